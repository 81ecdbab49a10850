use super::*;
use crate::input::tests::spec;
use crate::{Align, Fit};
use orinoco_core::{ElementType, InferenceResult};

/// Makes a graph's output with a dynamic batch; 0 is a dynamic axis.
pub(crate) fn output(name: &str, axes: &[usize]) -> TensorDesc {
    let dim = |n: &usize| if *n == 0 { Dim::Dynamic } else { Dim::Fixed(*n) };
    TensorDesc {
        name: name.to_owned(),
        element: Some(ElementType::F32),
        shape: axes.iter().map(dim).collect(),
    }
}

/// Returns the kind of head called `name`.
fn kind(name: &str) -> HeadKind {
    HeadKind::from_name(name).expect("a head has this name")
}

/// Decodes one image, which was stretched to the model's size from twice that size.
pub(crate) fn decode(
    head_spec: &HeadSpec,
    side: (u32, u32),
    outputs: &[(&str, &[usize], &[f32])],
) -> InferenceResult {
    let input = spec(side.0, side.1, Fit::Stretch, Align::TopLeft);
    let descs: Vec<TensorDesc> = outputs.iter().map(|(name, shape, _)| output(name, shape)).collect();
    let mut head = build(head_spec, &input, &descs).expect("fits");
    let shaped = outputs.iter().map(|(_, shape, data)| Output { shape, data, batch: 1 });
    let shaped: Vec<Output<'_>> = shaped.collect();
    let mut found = InferenceResult::default();
    head.decode(&shaped, 0, &input.mapping(2 * side.0, 2 * side.1), &mut found);
    found
}

#[test]
fn every_head_reports_what_scores_more_than_its_threshold() {
    for kind in ALL {
        let has_threshold = kind.has_boxes() || kind.finds == HeadResultKind::Classes;
        assert_eq!(
            kind.samples.finding.is_some(),
            has_threshold,
            "{kind:?} has a sample if it has a threshold"
        );
        let Some(sample) = kind.samples.finding else { continue };
        let spec = HeadSpec { strides: sample.strides.to_vec(), ..HeadSpec::new(*kind, sample.classes) };
        let full = |(name, shape, values): &SampleValues| -> (&str, &[usize], Vec<f32>) {
            (name, shape, values.iter().copied().cycle().take(shape.iter().product()).collect())
        };
        let outputs: Vec<(&str, &[usize], Vec<f32>)> = sample.outputs.iter().map(full).collect();
        let outputs: Vec<(&str, &[usize], &[f32])> =
            outputs.iter().map(|(name, shape, values)| (*name, *shape, &values[..])).collect();
        let scores = |score_threshold: f32| -> Vec<f32> {
            let spec = HeadSpec { score_threshold, ..spec.clone() };
            let found = decode(&spec, (sample.side, sample.side), &outputs);
            let of_boxes = found.detections.iter().map(|found| found.score);
            of_boxes.chain(found.classes.iter().map(|found| found.score)).collect()
        };
        let best = scores(0.0).into_iter().fold(0.0, f32::max);
        assert!(best > 0.0, "{kind:?}");
        assert!(scores(best.next_down()).contains(&best), "{kind:?}: more than the threshold");
        assert!(!scores(best).contains(&best), "{kind:?}: no more than the threshold");
    }
}

#[test]
fn every_head_has_a_name_of_its_own() {
    for (index, kind) in ALL.iter().enumerate() {
        assert_eq!(ALL.iter().position(|other| other.name == kind.name), Some(index), "{kind:?}");
    }
}

#[test]
fn every_head_takes_its_published_model_and_refuses_other_outputs() {
    let input = spec(32, 32, Fit::Stretch, Align::TopLeft);
    for kind in ALL {
        let published = kind.samples.published;
        let strides = published.strides.to_vec();
        let head = HeadSpec { strides, ..HeadSpec::new(*kind, published.classes) };
        let input = InputSpec { width: published.side, height: published.side, ..input.clone() };
        let outputs: Vec<TensorDesc> =
            published.outputs.iter().map(|(name, shape)| fixed(name, shape)).collect();
        assert_eq!(build(&head, &input, &outputs).err(), None, "{kind:?}: its published model");
        assert_eq!(check_batch(*kind, &outputs, 1), Ok(()), "{kind:?}: its published model");
        if kind.finds != HeadResultKind::Tensors {
            assert!(build(&head, &input, &[]).is_err(), "{kind:?}: no output at all");
            assert!(build(&head, &input, &[fixed("y", &[])]).is_err(), "{kind:?}: a single number");
        }
    }
}

fn guessed(side: (u32, u32), outputs: &[(&str, &[usize])]) -> String {
    let input = spec(side.0, side.1, Fit::Stretch, Align::TopLeft);
    let descs: Vec<TensorDesc> = outputs.iter().map(|(name, shape)| output(name, shape)).collect();
    let guess = guess(&input, &descs).expect("raw takes anything");
    let unsure: Vec<&str> = guess.unsure.iter().map(|(key, _)| *key).collect();
    build(&guess.head, &guess.input, &descs).map(|_| ()).expect("what is guessed can be built");
    format!("{} {} ?{}", guess.head.kind.name, guess.head.classes, unsure.join(","))
}

#[test]
fn heads_declare_what_files_and_lanes_count_on() {
    let head = |kind: &HeadKind| {
        let HeadDescriptor { finds, form, score_threshold, box_unit, multi_label, rounding, .. } = **kind;
        let usual = format!("{score_threshold} {box_unit:?} multi_label={multi_label} {rounding:?}");
        let ultralytics = if kind.reads_ultralytics { " ultralytics" } else { "" };
        format!("{} {finds:?} {form:?} {:?} {usual}{ultralytics}", kind.name, kind.strides)
    };
    let expected = [
        "centernet Boxes Other [] 0.3 Fraction multi_label=false Exact",
        "yolox Boxes GridRows [8, 16, 32] 0.3 Fraction multi_label=true Down",
        "nanodet Boxes Other [8, 16, 32, 64] 0.3 Fraction multi_label=false Exact",
        "yolov8-seg Instances Other [8, 16, 32] 0.3 Fraction multi_label=false Nearest ultralytics",
        "yolov8-pose Boxes Other [8, 16, 32] 0.3 Fraction multi_label=false Nearest ultralytics",
        "yolov8-obb Boxes Other [8, 16, 32] 0.3 Fraction multi_label=false Nearest ultralytics",
        "yolov8 Boxes Channels [8, 16, 32] 0.3 Fraction multi_label=false Nearest ultralytics",
        "yolov5 Boxes PixelRows [8, 16, 32] 0.3 Fraction multi_label=false Nearest ultralytics",
        "end2end Boxes Other [] 0.3 Fraction multi_label=false Nearest ultralytics",
        "listed Boxes Other [] 0.3 Pixels multi_label=false Exact",
        "detr Boxes Other [] 0.3 Fraction multi_label=false Exact ultralytics",
        "ssd Boxes Other [] 0.3 Fraction multi_label=false Exact",
        "fastestdet Boxes Other [16] 0.3 Fraction multi_label=false Exact",
        "classification Classes Classes [] 0 Fraction multi_label=false Exact",
        "embedding Embedding Other [] 0.3 Fraction multi_label=false Exact",
        "segmentation ClassMap Other [] 0.3 Fraction multi_label=false Exact",
        "raw Tensors Other [] 0.3 Fraction multi_label=false Exact",
    ];
    // A head that is not named here checks what it declares in its own file.
    let is_named = |kind: &&HeadKind| expected.iter().any(|line| line.split(' ').next() == Some(kind.name));
    assert_eq!(ALL.iter().filter(is_named).map(head).collect::<Vec<_>>(), expected);
}

#[test]
fn the_first_axis_is_the_batch() {
    let check = |name: &str, outputs: &[(&str, &[usize])], batch, expected: Result<(), &str>| {
        let outputs: Vec<TensorDesc> = outputs.iter().map(|(name, shape)| fixed(name, shape)).collect();
        let checked = check_batch(kind(name), &outputs, batch);
        assert_eq!(checked, expected.map_err(str::to_owned), "{name}");
    };
    let baked = "its output is y f32[1,84,33600]; the first axis must be the batch (4)";
    check("yolov8", &[("y", &[1, 84, 33600])], 4, Err(baked));
    check("yolov8", &[("y", &[4, 84, 8400])], 4, Ok(()));
    let flat: [(&str, &[usize]); 3] = [("boxes", &[0, 4]), ("scores", &[0]), ("labels", &[0])];
    let of_all = "its output is boxes f32[0,4]; the first axis must be the batch (2)";
    check("listed", &flat, 2, Err(of_all));
    check("listed", &flat, 1, Ok(()));
    check("raw", &[("y", &[3, 4])], 1, Ok(()));
    let of_two = "its output is y f32[3,4]; the first axis must be the batch (2)";
    check("raw", &[("y", &[3, 4])], 2, Err(of_two));
}

/// Makes an output with the fixed shape that a run gave.
fn fixed(name: &str, shape: &[usize]) -> TensorDesc {
    let shape = shape.iter().map(|size| Dim::Fixed(*size)).collect();
    TensorDesc { name: name.to_owned(), element: Some(ElementType::F32), shape }
}

#[test]
fn shapes_say_which_head() {
    let check = |side, outputs: &[(&str, &[usize])], expected: &str| {
        assert_eq!(guessed(side, outputs), expected);
    };
    check((416, 416), &[("output", &[1, 3549, 85])], "yolox 80 ?color,mean,align");
    check((640, 640), &[("output0", &[1, 25200, 85])], "yolov5 80 ?");
    check((640, 640), &[("output0", &[1, 84, 8400])], "yolov8 80 ?");
    check((640, 640), &[("output0", &[1, 116, 8400]), ("output1", &[1, 32, 160, 160])], "yolov8-seg 80 ?");
    check((640, 640), &[("output0", &[1, 56, 8400])], "yolov8-pose 1 ?head");
    check((1024, 1024), &[("output0", &[1, 20, 21504])], "yolov8-obb 15 ?head");
    check((640, 640), &[("output0", &[1, 300, 6])], "end2end 80 ?classes");
    check((320, 320), &[("output", &[1, 2125, 112])], "nanodet 80 ?mean");
    check(
        (416, 416),
        &[
            ("cls_8", &[1, 2704, 80]),
            ("dis_8", &[1, 2704, 32]),
            ("cls_16", &[1, 676, 80]),
            ("dis_16", &[1, 676, 32]),
            ("cls_32", &[1, 169, 80]),
            ("dis_32", &[1, 169, 32]),
        ],
        "nanodet 80 ?mean,fit",
    );
    check(
        (64, 64),
        &[
            ("cls_8", &[1, 64, 3]),
            ("cls_16", &[1, 16, 3]),
            ("cls_32", &[1, 4, 3]),
            ("cls_64", &[1, 1, 3]),
            ("dis_8", &[1, 64, 32]),
            ("dis_16", &[1, 16, 32]),
            ("dis_32", &[1, 4, 32]),
            ("dis_64", &[1, 1, 32]),
        ],
        "nanodet 3 ?mean,fit",
    );
    check((352, 352), &[("758", &[1, 85, 22, 22])], "fastestdet 80 ?head,color,fit");
    check(
        (320, 240),
        &[("scores", &[1, 4420, 2]), ("boxes", &[1, 4420, 4])],
        "ssd 2 ?boxes,background,mean,fit",
    );
    check((640, 640), &[("logits", &[1, 300, 80]), ("pred_boxes", &[1, 300, 4])], "detr 80 ?fit");
    check((640, 640), &[("logits", &[1, 100, 92]), ("pred_boxes", &[1, 100, 4])], "detr 92 ?fit,activation");
    check((640, 640), &[("output0", &[1, 300, 84])], "detr 80 ?head");
    check((320, 320), &[("boxes", &[0, 4]), ("scores", &[0]), ("labels", &[0])], "listed 91 ?classes,fit");
    check((224, 224), &[("softmaxout_1", &[1, 1000, 1, 1])], "classification 1000 ?mean,color,fit");
    check((257, 257), &[("logits", &[1, 21, 257, 257])], "segmentation 21 ?mean,fit");
    check((128, 256), &[("features", &[1, 512])], "embedding 0 ?head,mean,fit");
    check((224, 224), &[("y", &[1, 1, 672, 672])], "raw 0 ?head,fit,mean");
}
