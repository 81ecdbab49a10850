//! Every kernel against its twin on the CPU, on every machine there is: the kernels' own sources run on the CPU in both
//! directions, and on a GPU where there is one.
//!
//! On the CPU the bits must be the same, except where `exp` is called. On a GPU nothing may differ by more than
//! [`DIFFERENCE_MAX`].

use orinoco_core::{
    Activation, BoxF, Choice, ColorMatrix, ColorOrder, ColorRange, Detection, ElementType, FrameDesc,
    FrameView, InferenceResult, Layout, Orientation, PixelFormat, Resize, TensorDesc,
};
use orinoco_cuda::launch::{
    self, BoxRows, Candidate, CandidateLists, Elements, KeptLists, Reduction, Totals,
};
use orinoco_cuda::{Element, FilterBounds, ImageTensor, Placement, TableFault, TableLayout, twin};
use orinoco_cuda_doubles::{Machine, machines};
use orinoco_vision::{
    Across, Align, Fit, HeadKind, HeadSpec, InputSpec, Mapping, Output, Preprocessor, Rounding, heads,
    suppress,
};

/// The largest difference on a GPU, of values from 0 to 1, or as a share of larger ones.
const DIFFERENCE_MAX: f32 = 1e-3;

/// Boxes that overlap by more hide one another: of two from one corner, one of them twice as wide, neither does.
const IOU_MAX: f32 = 0.5;

/// Numbers that look random and are the same each time (xorshift64*).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn byte(&mut self) -> u8 {
        (self.next() >> 56) as u8
    }

    /// 0 to 1.
    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 24) as f32
    }

    fn below(&mut self, end: usize) -> usize {
        (self.unit() * end as f32) as usize % end
    }
}

/// Compares bytes of elements: bit for bit on the CPU, within the tolerance on a GPU.
fn check_equal(machine: &dyn Machine, element: Element, seen: &[u8], expected: &[u8], what: &str) {
    assert_eq!(seen.len(), expected.len(), "{what}");
    if seen == expected {
        return;
    }
    for index in 0..seen.len() / element.bytes() {
        let (a, b) = (twin::load(seen, element, index), twin::load(expected, element, index));
        let same = a == b && a.is_sign_positive() == b.is_sign_positive() || a.is_nan() && b.is_nan();
        let close = machine.is_gpu() && (a - b).abs() <= DIFFERENCE_MAX * b.abs().max(1.0);
        assert!(same || close, "{what} on {}: element {index} is {a}, and its twin {b}", machine.name());
    }
}

// ---- preprocess ------------------------------------------------------------------------------------------------------

/// A frame with noise for pixels, and rows `padding` bytes further apart than they need to be.
fn frame(noise: &mut Noise, format: PixelFormat, size: (u32, u32), padding: usize) -> (FrameDesc, Vec<u8>) {
    let mut desc = FrameDesc::packed(format, size.0, size.1);
    // What lies before the first plane is not the image's.
    let mut offset = 3 * padding;
    for plane in 0..format.planes() {
        let (row, rows) = format.plane_size(plane, size.0, size.1);
        desc.planes[plane].offset = offset;
        desc.planes[plane].stride = row + padding;
        offset += (row + padding) * rows;
    }
    let bytes = (0..desc.bytes_needed()).map(|_| noise.byte()).collect();
    (desc, bytes)
}

fn spec(size: (u32, u32), fit: Fit, align: Align, resize: Resize) -> InputSpec {
    InputSpec {
        layout: Layout::Nchw,
        width: size.0,
        height: size.1,
        color: ColorOrder::Rgb,
        resize,
        fit,
        align,
        rounding: Rounding::Down,
        fill: 114,
        mean: [0.0; 3],
        scale: [1.0 / 255.0; 3],
    }
}

fn placement(mapping: &Mapping) -> Placement {
    Placement { offset: mapping.offset, size: mapping.size, scale: mapping.scale }
}

fn tensor(spec: &InputSpec, element: Element) -> ImageTensor {
    ImageTensor {
        width: spec.width,
        height: spec.height,
        order: spec.color,
        layout: spec.layout,
        element,
        filter: spec.resize,
        mean: spec.mean,
        scale: spec.scale,
        fill: spec.fill,
    }
}

fn layout_for(spec: &InputSpec, batch: usize) -> TableLayout {
    match spec.resize {
        Resize::Bilinear => TableLayout::bilinear(batch),
        Resize::BilinearAntialias => {
            let input = (spec.width, spec.height);
            TableLayout::antialiased(batch, FilterBounds { frame_side_max: 256, input })
        }
    }
}

/// Result of the kernel for a batch of frames; `None` is an empty item.
fn preprocess(
    machine: &dyn Machine,
    spec: &InputSpec,
    element: Element,
    frames: &[Option<(&FrameDesc, &[u8], Mapping)>],
) -> Vec<u8> {
    let mut layout = layout_for(spec, frames.len());
    let mut table = vec![0; layout.bytes()];
    let mut held = Vec::new();
    for (item, frame) in frames.iter().enumerate() {
        if let Some((desc, bytes, mapping)) = frame {
            let span = machine.place(bytes);
            layout.set(&mut table, item, desc, &span, placement(mapping)).expect("the frame fits");
            held.push(span);
        }
    }
    let tensor = tensor(spec, element);
    // What no kernel writes stays: an item left out keeps it.
    let out = machine.place(&vec![0x2a; frames.len() * tensor.elements() * element.bytes()]);
    let table = machine.table(&layout, &table);
    launch::preprocess(machine.target(), &table, &tensor, &out).expect("launched");
    machine.read(&out)
}

/// Result of the CPU implementation for one frame, as elements.
fn preprocess_twin(spec: &InputSpec, element: Element, desc: &FrameDesc, bytes: &[u8]) -> (Mapping, Vec<u8>) {
    let mut values = vec![0.0; spec.elements()];
    let view = FrameView::new(desc, bytes).expect("the frame fits");
    let mapping = Preprocessor::new(spec.clone()).run(&view, &Mapping::default(), &mut values);
    let mut expected = vec![0; values.len() * element.bytes()];
    values.iter().enumerate().for_each(|(index, value)| twin::store(&mut expected, element, index, *value));
    (mapping, expected)
}

const FORMATS: [PixelFormat; 7] = [
    PixelFormat::Nv12,
    PixelFormat::I420,
    PixelFormat::Yuy2,
    PixelFormat::Uyvy,
    PixelFormat::Rgb,
    PixelFormat::Bgr,
    PixelFormat::Gray8,
];
const RESIZES: [Resize; 2] = [Resize::Bilinear, Resize::BilinearAntialias];

/// A frame alone, through a spec, as float32.
fn check_preprocess(
    machines: &[Box<dyn Machine>],
    spec: &InputSpec,
    element: Element,
    desc: &FrameDesc,
    bytes: &[u8],
) {
    let (mapping, expected) = preprocess_twin(spec, element, desc, bytes);
    let what = format!(
        "{:?} {:?} {:?} {}x{} to {}x{} by {:?} {:?}, {:?} {:?} {element:?}",
        desc.format,
        desc.matrix,
        desc.range,
        desc.width,
        desc.height,
        spec.width,
        spec.height,
        spec.fit,
        spec.resize,
        spec.color,
        spec.layout
    );
    for machine in machines {
        let seen = preprocess(machine.as_ref(), spec, element, &[Some((desc, bytes, mapping))]);
        check_equal(machine.as_ref(), element, &seen, &expected, &what);
    }
}

#[test]
fn every_format_size_and_fit_is_preprocessed_as_the_twin_does() {
    let machines = machines("preprocess");
    let mut noise = Noise(1);
    let fits = [
        (Fit::Stretch, Align::TopLeft),
        (Fit::Letterbox, Align::Center),
        (Fit::Letterbox, Align::TopLeft),
        (Fit::Crop { shorter: 40 }, Align::Center),
    ];
    for format in FORMATS {
        for (size, padding) in [((64, 48), 0), ((37, 91), 5), ((1, 1), 1), ((75, 20), 16)] {
            let (desc, bytes) = frame(&mut noise, format, size, padding);
            for (fit, align) in fits {
                for resize in RESIZES {
                    let spec = spec((40, 33), fit, align, resize);
                    check_preprocess(&machines, &spec, Element::F32, &desc, &bytes);
                }
            }
        }
    }
}

#[test]
fn images_shrink_and_grow_by_much() {
    let machines = machines("preprocess of much larger and smaller frames");
    let mut noise = Noise(2);
    for (from, to) in [((250, 190), (9, 7)), ((5, 3), (97, 61)), ((256, 2), (16, 40)), ((97, 97), (97, 97))] {
        let (desc, bytes) = frame(&mut noise, PixelFormat::Nv12, from, 2);
        for resize in RESIZES {
            let spec = spec(to, Fit::Stretch, Align::TopLeft, resize);
            check_preprocess(&machines, &spec, Element::F32, &desc, &bytes);
        }
    }
}

#[test]
fn thin_objects_fill_the_input() {
    let machines = machines("preprocess of thin objects");
    let mut noise = Noise(8);
    for size in [(2, 250), (250, 2), (1, 77)] {
        let (desc, bytes) = frame(&mut noise, PixelFormat::Nv12, size, 2);
        for resize in RESIZES {
            let spec = spec((24, 20), Fit::Crop { shorter: 24 }, Align::Center, resize);
            check_preprocess(&machines, &spec, Element::F32, &desc, &bytes);
        }
    }
}

#[test]
fn every_matrix_and_range_is_converted_as_the_twin_does() {
    let machines = machines("colour matrices");
    let mut noise = Noise(3);
    for matrix in [ColorMatrix::Bt601, ColorMatrix::Bt709, ColorMatrix::Bt2020] {
        for range in [ColorRange::Limited, ColorRange::Full] {
            for format in [PixelFormat::Nv12, PixelFormat::I420, PixelFormat::Uyvy] {
                let (mut desc, bytes) = frame(&mut noise, format, (30, 22), 2);
                (desc.matrix, desc.range) = (matrix, range);
                for resize in RESIZES {
                    let spec = spec((24, 24), Fit::Letterbox, Align::Center, resize);
                    check_preprocess(&machines, &spec, Element::F32, &desc, &bytes);
                }
            }
        }
    }
}

#[test]
fn every_layout_order_and_element_is_written_as_the_twin_does() {
    let machines = machines("layouts and elements");
    let mut noise = Noise(4);
    let (desc, bytes) = frame(&mut noise, PixelFormat::Nv12, (50, 31), 6);
    let unit = ([0.0; 3], [1.0; 3]);
    let imagenet = ([123.675, 116.28, 103.53], [1.0 / 58.395, 1.0 / 57.12, 1.0 / 57.375]);
    for layout in [Layout::Nchw, Layout::Nhwc] {
        for color in [ColorOrder::Rgb, ColorOrder::Bgr, ColorOrder::Gray] {
            for element in [Element::F32, Element::F16, Element::Bf16, Element::U8] {
                // Normalised values below 0 or above 255 are cut in bytes, so both kinds are of interest there.
                for (mean, scale) in [unit, imagenet] {
                    for resize in RESIZES {
                        let base = spec((33, 40), Fit::Letterbox, Align::Center, resize);
                        let spec = InputSpec { layout, color, mean, scale, ..base };
                        check_preprocess(&machines, &spec, element, &desc, &bytes);
                    }
                }
            }
        }
    }
}

#[test]
fn a_batch_mixes_frames_and_leaves_items_out() {
    let mut noise = Noise(5);
    let frames = [
        frame(&mut noise, PixelFormat::Nv12, (64, 36), 4),
        frame(&mut noise, PixelFormat::Rgb, (20, 50), 0),
        frame(&mut noise, PixelFormat::Yuy2, (41, 17), 3),
    ];
    for resize in RESIZES {
        let spec = spec((32, 24), Fit::Letterbox, Align::Center, resize);
        for machine in machines("a batch") {
            let map = |index: usize| spec.mapping(frames[index].0.width, frames[index].0.height);
            let item = |index: usize| Some((&frames[index].0, &frames[index].1[..], map(index)));
            let seen = preprocess(machine.as_ref(), &spec, Element::F16, &[item(0), None, item(1), item(2)]);
            let each = spec.elements() * 2;
            for (place, index) in [(0, 0), (2, 1), (3, 2)] {
                let (_, expected) = preprocess_twin(&spec, Element::F16, &frames[index].0, &frames[index].1);
                let what = format!("item {place} {resize:?}");
                check_equal(machine.as_ref(), Element::F16, &seen[place * each..][..each], &expected, &what);
            }
            assert!(seen[each..2 * each].iter().all(|byte| *byte == 0x2a), "an item left out is not written");
        }
    }
}

/// Turns packed values, `each` for a pixel, as the image must be turned to stand upright. Returns the new size.
fn turned<T: Copy>(
    pixels: &[T],
    each: usize,
    (w, h): (usize, usize),
    turn: Orientation,
) -> (Vec<T>, (usize, usize)) {
    let (new_w, new_h) = match turn {
        Orientation::Rotate90 | Orientation::Rotate270 => (h, w),
        _ => (w, h),
    };
    let mut out = Vec::with_capacity(pixels.len());
    for y in 0..new_h {
        for x in 0..new_w {
            let (sx, sy) = match turn {
                Orientation::Rotate90 => (y, h - 1 - x),
                Orientation::Rotate180 => (w - 1 - x, h - 1 - y),
                Orientation::Rotate270 => (w - 1 - y, x),
                _ => (x, y),
            };
            out.extend_from_slice(&pixels[(sy * w + sx) * each..][..each]);
        }
    }
    (out, (new_w, new_h))
}

const TURNS: [Orientation; 3] = [Orientation::Rotate90, Orientation::Rotate180, Orientation::Rotate270];

#[test]
fn a_turn_is_what_its_name_says() {
    // Red, green above blue, white: a quarter turn clockwise brings blue to the left top corner.
    assert_eq!(turned(&[1, 2, 3, 4], 1, (2, 2), Orientation::Rotate90).0, [3, 1, 4, 2]);
    assert_eq!(turned(&[1, 2, 3, 4], 1, (2, 2), Orientation::Rotate270).0, [2, 4, 1, 3]);
    assert_eq!(
        turned(&[1, 2, 3, 4, 5, 6], 1, (3, 2), Orientation::Rotate90),
        (vec![4, 1, 5, 2, 6, 3], (2, 3))
    );
}

#[test]
fn a_turned_frame_is_the_upright_one() {
    let machines = machines("orientation");
    let mut noise = Noise(6);
    for format in FORMATS {
        let (upright, bytes) = frame(&mut noise, format, (34, 21), 2);
        // The frame as 8-bit RGB, which the antialiased filter reads: it changes nothing where the size stays.
        let same = InputSpec {
            layout: Layout::Nhwc,
            scale: [1.0; 3],
            ..spec((34, 21), Fit::Stretch, Align::TopLeft, Resize::BilinearAntialias)
        };
        let (_, rgb) = preprocess_twin(&same, Element::U8, &upright, &bytes);
        // And at its own size by the bilinear one, which reads chroma between its samples.
        let exact = InputSpec {
            layout: Layout::Nhwc,
            ..spec((34, 21), Fit::Stretch, Align::TopLeft, Resize::Bilinear)
        };
        let (_, sampled) = preprocess_twin(&exact, Element::F32, &upright, &bytes);
        let sampled = sampled.as_chunks::<4>().0;
        for orientation in TURNS {
            let stored = FrameDesc { orientation, ..upright };
            let (rgb, (w, h)) = turned(&rgb, 3, (34, 21), orientation);
            let desc = FrameDesc::packed(PixelFormat::Rgb, w as u32, h as u32);
            for machine in &machines {
                let what = format!("{format:?} {orientation:?}");
                let fit = spec((25, 30), Fit::Letterbox, Align::Center, Resize::BilinearAntialias);
                let (mapping, expected) = preprocess_twin(&fit, Element::F32, &desc, &rgb);
                let seen =
                    preprocess(machine.as_ref(), &fit, Element::F32, &[Some((&stored, &bytes, mapping))]);
                check_equal(machine.as_ref(), Element::F32, &seen, &expected, &what);

                let turned_exact = InputSpec { width: w as u32, height: h as u32, ..exact.clone() };
                let mapping = turned_exact.mapping(w as u32, h as u32);
                let frames = [Some((&stored, &bytes[..], mapping))];
                let seen = preprocess(machine.as_ref(), &turned_exact, Element::F32, &frames);
                let expected = turned(sampled, 3, (34, 21), orientation).0;
                check_close(&seen, expected.as_flattened(), &what);
            }
        }
    }
}

/// Float32 values within the tolerance: positions are counted from the other side.
fn check_close(seen: &[u8], expected: &[u8], what: &str) {
    assert_eq!(seen.len(), expected.len(), "{what}");
    for index in 0..seen.len() / 4 {
        let [a, b] = [seen, expected].map(|bytes| twin::load(bytes, Element::F32, index));
        assert!((a - b).abs() <= DIFFERENCE_MAX, "{what}: element {index} is {a}, and its twin {b}");
    }
}

#[test]
fn a_table_refuses_what_kernels_must_not_read() {
    let mut noise = Noise(7);
    let Some(machine) = machines("the table's refusals").into_iter().next() else { return };
    let (desc, bytes) = frame(&mut noise, PixelFormat::Nv12, (64, 48), 0);
    let span = machine.place(&bytes);
    let short = machine.place(&bytes[1..]);
    let mut layout = TableLayout::antialiased(1, FilterBounds { frame_side_max: 16, input: (16, 16) });
    let mut table = vec![0; layout.bytes()];
    let at = Placement { offset: (0, 0), size: (32, 24), scale: (0.5, 0.5) };
    let mut refused =
        |desc: &FrameDesc, span, at| layout.set(&mut table, 0, desc, span, at).expect_err("refused");
    let outside = TableFault::FrameOutside { width: 64, height: 48, needed: 4608, bytes: 4607 };
    assert_eq!(refused(&desc, &short, at), outside);
    let mut narrow = desc;
    narrow.planes[1].stride = 63;
    assert_eq!(refused(&narrow, &span, at), TableFault::StrideTooShort { plane: 1, row: 64, stride: 63 });
    let flat = Placement { size: (32, 0), ..at };
    let none = TableFault::NoPixels { width: 64, height: 48, to_width: 32, to_height: 0 };
    assert_eq!(refused(&desc, &span, flat), none);
    let large = refused(&desc, &span, Placement { size: (16, 12), scale: (0.25, 0.25), ..at });
    assert!(matches!(large, TableFault::FilterTooLarge { words_max: 128, .. }), "{large}");
}

// ---- heads and suppression -------------------------------------------------------------------------------------------

/// Detections of one image after decoding and suppression on a machine.
fn detections(
    machine: &dyn Machine,
    how: &launch::Decode,
    across: Across,
    mapping: &Mapping,
    output: &[f32],
) -> (Vec<Detection>, Totals) {
    const CAPACITY: usize = 4096;
    const KEEP_MAX: usize = 40;
    let pixels = machine.place(&[0; 3]);
    let mut layout = TableLayout::bilinear(2);
    let mut table = vec![0; layout.bytes()];
    // The second item has the image; the first is left out.
    let frame = FrameDesc::packed(PixelFormat::Rgb, 1, 1);
    layout.set(&mut table, 1, &frame, &pixels, placement(mapping)).expect("a pixel fits");
    let table = machine.table(&layout, &table);
    let (candidate_bytes, count_bytes) = CandidateLists::bytes(2, CAPACITY);
    let lists = CandidateLists {
        candidates: machine.place(&vec![0; candidate_bytes]),
        counts: machine.place(&vec![0xff; count_bytes]),
        capacity: CAPACITY,
    };
    let kept = KeptLists {
        kept: machine.place(&vec![0; 2 * KEEP_MAX * Candidate::BYTES]),
        totals: machine.place(&[0; 2 * Totals::BYTES]),
    };
    let both: Vec<f32> = output.iter().chain(output).copied().collect();
    let bytes: Vec<u8> = both.iter().flat_map(|value| value.to_le_bytes()).collect();
    let output = machine.place(&bytes);
    let suppress =
        launch::Suppress { iou_max: 0.45, keep_max: KEEP_MAX, across_classes: across == Across::AllClasses };
    launch::decode(machine.target(), &table, how, &output, &lists).expect("launched");
    launch::suppress(machine.target(), 2, &suppress, &lists, &kept).expect("launched");
    let totals: Vec<Totals> = Totals::read_all(&machine.read(&kept.totals)).collect();
    assert_eq!(totals[0], Totals { kept: 0, found: 0 }, "an item left out has no boxes");
    let kept = machine.read(&kept.kept);
    let kept = Candidate::read_all(&kept).skip(KEEP_MAX).take(totals[1].kept as usize);
    (kept.map(|candidate| detection(&candidate)).collect(), totals[1])
}

fn detection(candidate: &Candidate) -> Detection {
    let Candidate { class_id, score, x1, y1, x2, y2, .. } = *candidate;
    Detection { class_id, score, bounds: BoxF { x1, y1, x2, y2 } }
}

fn check_detections(seen: &[Detection], expected: &[Detection], what: &str) {
    assert_eq!(seen.len(), expected.len(), "{what}");
    let close = |a: f32, b: f32| (a - b).abs() <= DIFFERENCE_MAX * b.abs().max(1.0);
    for (index, (a, b)) in seen.iter().zip(expected).enumerate() {
        let (p, q) = (&a.bounds, &b.bounds);
        let place = close(p.x1, q.x1) && close(p.y1, q.y1) && close(p.x2, q.x2) && close(p.y2, q.y2);
        assert!(
            a.class_id == b.class_id && close(a.score, b.score) && place,
            "{what}: {index} is {a:?}, its twin {b:?}"
        );
    }
}

/// An output of `shape` through the head `kind` and through the kernels.
fn check_head(
    kind: &str,
    boxes: BoxRows,
    shape: [usize; 3],
    mut value: impl FnMut(usize, &mut Noise) -> f32,
) {
    const CLASSES: usize = 6;
    let mut noise = Noise(8);
    let output: Vec<f32> = (0..shape[1] * shape[2]).map(|index| value(index, &mut noise)).collect();
    let input = spec((64, 96), Fit::Letterbox, Align::Center, Resize::Bilinear);
    let mapping = input.mapping(200, 150);
    for (multi_label, across) in
        [(false, Across::NoClasses), (true, Across::NoClasses), (true, Across::AllClasses)]
    {
        let head_spec = HeadSpec {
            multi_label,
            across,
            score_threshold: 0.3,
            iou_threshold: 0.45,
            detections_max: 40,
            ..HeadSpec::new(HeadKind::from_name(kind).expect("a head has this name"), CLASSES)
        };
        let desc = TensorDesc {
            name: "output".into(),
            element: Some(ElementType::F32),
            shape: shape.map(orinoco_core::Dim::Fixed).into(),
        };
        let mut head = heads::build(&head_spec, &input, &[desc]).expect("the shape fits");
        let mut found = InferenceResult::default();
        head.decode(&[Output { shape: &shape, data: &output, batch: 1 }], 0, &mapping, &mut found);
        let how = launch::Decode {
            boxes: boxes.clone(),
            classes: CLASSES,
            element: Element::F32,
            multi_label,
            threshold: 0.3,
        };
        assert_eq!(how.elements(), output.len(), "{kind}");
        assert!(found.detections.len() > 10, "{kind}: the check has something to compare");
        for machine in machines(kind) {
            let what = format!("{kind} {across:?} on {}", machine.name());
            let (seen, totals) = detections(machine.as_ref(), &how, across, &mapping, &output);
            assert!(totals.found >= totals.kept, "{what}: {totals:?}");
            check_detections(&seen, &found.detections, &what);
        }
    }
}

#[test]
fn yolox_is_decoded_as_the_twin_does() {
    let rows = 8 * 12 + 4 * 6 + 2 * 3;
    let boxes = BoxRows::Grid { strides: vec![8, 16, 32], size: (64, 96) };
    check_head("yolox", boxes, [1, rows, 11], |index, noise| match index % 11 {
        0 | 1 => noise.unit(),
        2 | 3 => noise.unit() * 2.0 - 0.5,
        _ => noise.unit(),
    });
}

#[test]
fn yolov5_is_decoded_as_the_twin_does() {
    check_head("yolov5", BoxRows::Pixels { rows: 300 }, [1, 300, 11], |index, noise| match index % 11 {
        0 | 1 => noise.unit() * 96.0,
        2 | 3 => noise.unit() * 40.0,
        _ => noise.unit(),
    });
}

#[test]
fn yolov8_is_decoded_as_the_twin_does() {
    let boxes = BoxRows::Channels { anchors: 260, more: 0 };
    check_head("yolov8", boxes, [1, 10, 260], |index, noise| match index / 260 {
        0 | 1 => noise.unit() * 96.0,
        2 | 3 => noise.unit() * 40.0,
        _ => noise.unit() * noise.unit(),
    });
}

#[test]
fn suppression_is_the_twins_whatever_the_order() {
    let mut noise = Noise(9);
    for (count, keep_max, across) in [
        (0, 5, Across::NoClasses),
        (1, 5, Across::NoClasses),
        (2, 5, Across::AllClasses),
        (333, 50, Across::NoClasses),
        (1500, 1500, Across::AllClasses),
        (1024, 7, Across::NoClasses),
    ] {
        // Coarse numbers, so that scores tie and boxes touch; their places differ, so that the order is one.
        let mut candidates: Vec<Candidate> = (0..count)
            .map(|index| {
                let (x, y) = (noise.below(40) as f32 * 3.0, index as f32 * 0.25);
                let (w, h) = (noise.below(12) as f32 * 4.0, noise.below(30) as f32 * 4.0);
                let score = [0.9, 0.5, 0.25, 0.0, -0.0][noise.below(5)];
                let class_id = noise.below(3) as u32;
                Candidate { class_id, score, x1: x, y1: y, x2: x + w, y2: y + h, index: index as u32 }
            })
            .collect();
        let mut expected: Vec<Detection> = candidates.iter().map(detection).collect();
        suppress(&mut expected, IOU_MAX, keep_max, across);
        for machine in machines("suppression") {
            for _ in 0..2 {
                let what = format!("{count} boxes on {}", machine.name());
                let seen = suppressed(machine.as_ref(), &candidates, count.max(1), keep_max, across);
                assert_eq!(seen.1, Totals { kept: expected.len() as u32, found: count as u32 }, "{what}");
                assert_eq!(seen.0, expected, "{what}");
                // Another order of the same boxes.
                (1..candidates.len()).for_each(|last| candidates.swap(last, noise.below(last + 1)));
            }
        }
    }
}

#[test]
fn boxes_alike_in_all_else_keep_the_models_order() {
    let mut noise = Noise(13);
    // From one corner, so wide apart that none hides another.
    let at = |index: u32| Candidate {
        score: 0.5,
        x2: f32::from(1u16 << (index * 5 % 12)),
        y2: 1.0,
        index,
        ..Candidate::default()
    };
    let mut candidates: Vec<Candidate> = (0..12).map(at).collect();
    let expected: Vec<Detection> = candidates.iter().map(detection).collect();
    for machine in machines("ties") {
        for _ in 0..4 {
            let (seen, _) = suppressed(machine.as_ref(), &candidates, 16, 16, Across::NoClasses);
            assert_eq!(seen.len(), 12, "{}", machine.name());
            assert_eq!(seen, expected, "{}", machine.name());
            (1..candidates.len()).for_each(|last| candidates.swap(last, noise.below(last + 1)));
        }
    }
}

#[test]
fn more_candidates_than_the_list_holds_are_told() {
    let candidates = vec![Candidate { score: 0.5, x2: 1.0, y2: 1.0, ..Candidate::default() }; 8];
    for machine in machines("a full list") {
        let (_, totals) = suppressed(machine.as_ref(), &candidates, 4, 8, Across::NoClasses);
        assert_eq!(totals, Totals { kept: 1, found: 8 });
    }
}

fn suppressed(
    machine: &dyn Machine,
    candidates: &[Candidate],
    capacity: usize,
    keep_max: usize,
    across: Across,
) -> (Vec<Detection>, Totals) {
    let words = |c: &Candidate| {
        [
            c.class_id,
            c.score.to_bits(),
            c.x1.to_bits(),
            c.y1.to_bits(),
            c.x2.to_bits(),
            c.y2.to_bits(),
            c.index,
        ]
    };
    let mut bytes: Vec<u8> =
        candidates.iter().take(capacity).flat_map(words).flat_map(u32::to_le_bytes).collect();
    bytes.resize(capacity * Candidate::BYTES, 0);
    let lists = CandidateLists {
        candidates: machine.place(&bytes),
        counts: machine.place(&(candidates.len() as u32).to_le_bytes()),
        capacity,
    };
    let kept = KeptLists {
        kept: machine.place(&vec![0; keep_max * Candidate::BYTES]),
        totals: machine.place(&[0; Totals::BYTES]),
    };
    let how = launch::Suppress { iou_max: IOU_MAX, keep_max, across_classes: across == Across::AllClasses };
    launch::suppress(machine.target(), 1, &how, &lists, &kept).expect("launched");
    let totals = Totals::read_all(&machine.read(&kept.totals)).next().expect("one image");
    let kept = machine.read(&kept.kept);
    (Candidate::read_all(&kept).take(totals.kept as usize).map(|c| detection(&c)).collect(), totals)
}

#[test]
fn the_best_classes_are_the_twins() {
    let mut noise = Noise(10);
    for classes in [1, 2, 10, 1000] {
        let logits: Vec<f32> = (0..classes).map(|_| noise.unit() * 8.0 - 2.0).collect();
        // So far apart that most probabilities are zero, and tie.
        let steep: Vec<f32> = (0..classes).map(|class| class as f32 * -60.0).collect();
        let whole: f32 = logits.iter().map(|value| value.abs()).sum();
        let shares: Vec<f32> = logits.iter().map(|value| value.abs() / whole).collect();
        for values in [&logits, &steep, &shares] {
            for activation in Activation::ALL {
                for background in [None, Some(0)] {
                    check_classes(values, *activation, background);
                }
            }
        }
    }
}

fn check_classes(values: &[f32], activation: Activation, background: Option<u32>) {
    const TOP: usize = 5;
    let shape = [1, values.len()];
    let head_spec =
        HeadSpec { activation, background, top: TOP, ..HeadSpec::new(heads::CLASSIFICATION, values.len()) };
    let desc = TensorDesc {
        name: "output".into(),
        element: Some(ElementType::F32),
        shape: shape.map(orinoco_core::Dim::Fixed).into(),
    };
    let input = spec((8, 8), Fit::Stretch, Align::TopLeft, Resize::Bilinear);
    let mut head = heads::build(&head_spec, &input, &[desc]).expect("the shape fits");
    let mut found = InferenceResult::default();
    let output = Output { shape: &shape, data: values, batch: 1 };
    head.decode(&[output], 0, &input.mapping(8, 8), &mut found);
    let how = launch::Classify {
        classes: values.len(),
        element: Element::F32,
        activation,
        background,
        top: TOP,
        // The kernel keeps what is at least this, the head what is more.
        threshold: head_spec.score_threshold.next_up(),
    };
    for machine in machines("classification") {
        // The second image of a batch.
        let bytes: Vec<u8> = values.iter().chain(values).flat_map(|value| value.to_le_bytes()).collect();
        let output = machine.place(&bytes);
        let best = machine.place(&[0; 2 * TOP * launch::CLASS_BYTES]);
        let counts = machine.place(&[0; 8]);
        launch::classify(machine.target(), 2, &how, &output, &best, &counts).expect("launched");
        let what = format!("{} classes {activation:?} {background:?} on {}", values.len(), machine.name());
        let count = u32::from_le_bytes(machine.read(&counts)[4..].try_into().expect("four bytes"));
        assert_eq!(count as usize, found.classes.len(), "{what}");
        let best = machine.read(&best);
        let best = best[TOP * launch::CLASS_BYTES..].as_chunks::<4>().0.as_chunks::<2>().0;
        for ([class_id, score], expected) in best.iter().zip(&found.classes) {
            let (class_id, score) = (u32::from_le_bytes(*class_id), f32::from_le_bytes(*score));
            let close = (score - expected.score).abs() <= DIFFERENCE_MAX * expected.score.abs().max(1.0);
            assert!(
                class_id == expected.class_id && close,
                "{what}: {class_id} {score}, its twin {expected:?}"
            );
        }
    }
}

// ---- elements --------------------------------------------------------------------------------------------------------

const ELEMENTS: [Element; 4] = [Element::F32, Element::F16, Element::Bf16, Element::U8];

/// Noise of every magnitude and every special value, as `count` elements.
fn elements(noise: &mut Noise, element: Element, count: usize) -> Vec<u8> {
    let special =
        [0.0, -0.0, 1.0, 65504.0, 65520.0, 6e-8, 2.98e-8, -1.5, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    let mut bytes = vec![0; count * element.bytes()];
    for index in 0..count {
        let value = match noise.below(4) {
            0 => special[noise.below(special.len())],
            1 => noise.unit() * 256.0,
            2 => f32::from_bits(noise.next() as u32),
            _ => (noise.unit() - 0.5) * 4.0,
        };
        twin::store(&mut bytes, element, index, value);
    }
    bytes
}

#[test]
fn elements_are_converted_as_the_twin_does() {
    let mut noise = Noise(11);
    for machine in machines("conversion") {
        for from in ELEMENTS {
            for to in ELEMENTS {
                for count in [1, 255, 3000] {
                    let bytes = elements(&mut noise, from, count);
                    let mut expected = vec![0; count * to.bytes()];
                    (0..count).for_each(|i| twin::store(&mut expected, to, i, twin::load(&bytes, from, i)));
                    let (source, target) = (machine.place(&bytes), machine.place(&vec![0; expected.len()]));
                    let source = Elements { span: &source, element: from };
                    let wanted = Elements { span: &target, element: to };
                    launch::convert(machine.target(), source, wanted, count).expect("launched");
                    let what = format!("{from:?} to {to:?}");
                    check_equal(machine.as_ref(), to, &machine.read(&target), &expected, &what);
                }
            }
        }
    }
}

#[test]
fn elements_are_reduced_as_the_twin_does() {
    let mut noise = Noise(12);
    for machine in machines("reduction") {
        for element in [Element::F32, Element::F16, Element::Bf16] {
            for reduction in [Reduction::Sum, Reduction::Minimum, Reduction::Maximum] {
                let count = 1777;
                let (a, b) = (elements(&mut noise, element, count), elements(&mut noise, element, count));
                let mut expected = vec![0; a.len()];
                for index in 0..count {
                    let [a, b] = [&a, &b].map(|bytes| twin::load(bytes, element, index));
                    twin::store(&mut expected, element, index, twin::reduced(reduction, a, b));
                }
                let (into, from) = (machine.place(&a), machine.place(&b));
                let place = Elements { span: &into, element };
                launch::reduce(machine.target(), place, &from, reduction, count).expect("launched");
                let what = format!("{reduction:?} of {element:?}");
                check_equal(machine.as_ref(), element, &machine.read(&into), &expected, &what);
            }
        }
    }
}
