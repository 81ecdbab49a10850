//! Preprocessing: converts a frame to a model's input tensor (colour, resize, fit, normalise).
//!
//! The bilinear path is one pass: each output row blends two source rows, then samples across them, and converts only
//! the samples inside the model's input. It computes [`ROWS`] output rows at a time and keeps them interleaved until
//! they are written, because they sample the same columns: a vector load replaces a gather. The antialiased path
//! converts the whole frame first, because its filter reads every pixel anyway.

use orinoco_core::{ColorOrder, FrameView, Layout, PixelFormat, PlaneView, Resize};

use crate::antialias::{Antialias, Axis};
use crate::input::Window;
use crate::yuv::YuvToRgb;
use crate::{InputSpec, Mapping};

/// Number of output rows that are computed at a time: the values of one AVX register, or of two NEON registers.
const ROWS: usize = 8;
/// Same sample of [`ROWS`] output rows.
type Rows = [f32; ROWS];

/// Preprocessor of frames for one model input. It keeps its scratch, so it allocates only when the frame size changes.
pub struct Preprocessor {
    spec: InputSpec,
    columns: Columns,
    blended: Vec<Rows>,
    samples: [Vec<Rows>; 3],
    rgb: Vec<u8>,
    resized: Vec<u8>,
    antialias: Antialias,
}

impl Preprocessor {
    /// Creates a preprocessor for `spec`.
    pub fn new(spec: InputSpec) -> Self {
        Self {
            spec,
            columns: Columns::default(),
            blended: Vec::new(),
            samples: Default::default(),
            rgb: Vec::new(),
            resized: Vec::new(),
            antialias: Antialias::default(),
        }
    }

    /// Fills `out`, the tensor of one image (`spec.elements()` values), from `frame`. `before` is the mapping that the
    /// last call with the same `out` returned, `Mapping::default()` at first: if the position of the image has not
    /// changed, the border is not filled again.
    pub fn run(&mut self, frame: &FrameView<'_>, before: &Mapping, out: &mut [f32]) -> Mapping {
        assert_eq!(out.len(), self.spec.elements(), "the tensor of {:?}", self.spec);
        let mapping = self.spec.mapping(frame.desc().width, frame.desc().height);
        let window = mapping.window();
        if mapping != *before {
            self.fill_border(&window, out);
        }
        self.samples.iter_mut().for_each(|rows| rows.resize(window.size.0, [0.0; ROWS]));
        match self.spec.resize {
            Resize::Bilinear => bilinear(self, frame, &mapping, &window, out),
            Resize::BilinearAntialias => antialiased(self, frame, &mapping, &window, out),
        }
        mapping
    }

    #[inline(always)]
    fn bilinear(&mut self, frame: &FrameView<'_>, mapping: &Mapping, window: &Window, out: &mut [f32]) {
        self.columns.update(frame.desc().width, mapping.size.0, window);
        let (source_h, image_h) = (frame.desc().height as usize, mapping.size.1 as usize);
        let to_rgb = YuvToRgb::of(frame.desc());
        for first in (0..window.size.1).step_by(ROWS) {
            // Rows after the last one repeat it, and are not written.
            let taps = std::array::from_fn(|row| {
                let y = window.from.1 + (first + row).min(window.size.1 - 1);
                Tap::centered(y, image_h, source_h)
            });
            self.sample_rows(frame, taps, &to_rgb);
            self.write_rows(first, window, out);
        }
    }

    /// Blends the rows at `taps` and samples across them; the result is RGB.
    #[inline(always)]
    fn sample_rows(&mut self, frame: &FrameView<'_>, taps: [Tap; ROWS], to_rgb: &YuvToRgb) {
        let Self { blended, samples, columns, .. } = self;
        let [first, second, third] = samples;
        blend_rows(&frame.plane(0), taps, blended);
        match frame.desc().format {
            PixelFormat::I420 => {
                sample(blended, &columns.luma, [first]);
                for (plane, rows) in [(1, second), (2, third)] {
                    let plane = frame.plane(plane);
                    blend_rows(&plane, taps.map(|tap| tap.halved(plane.rows())), blended);
                    sample(blended, &columns.chroma, [rows]);
                }
                to_rgb.convert_rows(samples.each_mut().map(|rows| rows.as_flattened_mut()));
            }
            PixelFormat::Nv12 => {
                sample(blended, &columns.luma, [first]);
                let plane = frame.plane(1);
                blend_rows(&plane, taps.map(|tap| tap.halved(plane.rows())), blended);
                sample(blended, &columns.chroma, [second, third]);
                to_rgb.convert_rows(samples.each_mut().map(|rows| rows.as_flattened_mut()));
            }
            PixelFormat::Yuy2 | PixelFormat::Uyvy => {
                let [luma, u, v] = packed_places(frame.desc().format);
                sample_every::<2>(blended, &columns.luma, luma, first);
                sample_every::<4>(blended, &columns.chroma, u, second);
                sample_every::<4>(blended, &columns.chroma, v, third);
                to_rgb.convert_rows(samples.each_mut().map(|rows| rows.as_flattened_mut()));
            }
            PixelFormat::Gray8 => {
                sample(blended, &columns.luma, [first]);
                second.copy_from_slice(first);
                third.copy_from_slice(first);
            }
            PixelFormat::Bgr => sample(blended, &columns.luma, [third, second, first]),
            _ => sample(blended, &columns.luma, [first, second, third]),
        }
    }

    #[inline(always)]
    fn antialiased(&mut self, frame: &FrameView<'_>, mapping: &Mapping, window: &Window, out: &mut [f32]) {
        to_rgb8(frame, &mut self.rgb);
        let axis = |inputs: u32, outputs: u32, from: usize, size: usize| Axis {
            inputs: inputs as usize,
            outputs: outputs as usize,
            seen: from..from + size,
        };
        let across = axis(frame.desc().width, mapping.size.0, window.from.0, window.size.0);
        let down = axis(frame.desc().height, mapping.size.1, window.from.1, window.size.1);
        self.resized.resize(window.size.0 * window.size.1 * 3, 0);
        self.antialias.resize(&self.rgb, [across, down], &mut self.resized);
        for first in (0..window.size.1).step_by(ROWS) {
            let rows = self.resized.chunks_exact(window.size.0 * 3).skip(first).take(ROWS);
            for (y, row) in rows.enumerate() {
                for (x, pixel) in row.chunks_exact(3).enumerate() {
                    self.samples
                        .iter_mut()
                        .zip(pixel)
                        .for_each(|(rows, value)| rows[x][y] = f32::from(*value));
                }
            }
            self.write_rows(first, window, out);
        }
    }

    /// Normalises the sampled rows, the first of which is row `first` of the window, into their position in the tensor.
    #[inline(always)]
    fn write_rows(&mut self, first: usize, window: &Window, out: &mut [f32]) {
        let Self { spec, samples: [r, g, b], .. } = self;
        if spec.color == ColorOrder::Gray {
            // Luma weights of BT.601, which JPEG and Pillow's mode L use.
            let luma = |r: f32, g: f32, b: f32| 0.299 * r + 0.587 * g + 0.114 * b;
            for ((r, g), b) in r.iter_mut().zip(&*g).zip(&*b) {
                *r = std::array::from_fn(|row| luma(r[row], g[row], b[row]));
            }
        }
        let (w, h, channels) = (spec.width as usize, spec.height as usize, spec.color.channels());
        let rows = (window.size.1 - first).min(ROWS);
        let (left, top) = (window.at.0, window.at.1 + first);
        for channel in 0..channels {
            let samples = match (spec.color, channel) {
                (ColorOrder::Rgb, 2) | (ColorOrder::Bgr, 0) => &*b,
                (ColorOrder::Rgb | ColorOrder::Bgr, 1) => &*g,
                _ => &*r,
            };
            // (x - mean) * scale as x * scale + shift, where the shift is computed once.
            let (scale, shift) = (spec.scale[channel], -spec.mean[channel] * spec.scale[channel]);
            match spec.layout {
                Layout::Nchw => {
                    let out = &mut out[(channel * h + top) * w..][..rows * w];
                    write_planar(samples, out, w, left, |sample| sample * scale + shift);
                }
                Layout::Nhwc => {
                    let out = &mut out[top * w * channels..][..rows * w * channels];
                    for (row, out) in out.chunks_exact_mut(w * channels).enumerate() {
                        let pixels = out[left * channels..].chunks_exact_mut(channels).zip(samples);
                        pixels.for_each(|(pixel, rows)| pixel[channel] = rows[row] * scale + shift);
                    }
                }
            }
        }
    }

    /// Fills the border around the image: whole rows above and below, and both sides of the rows between.
    fn fill_border(&self, window: &Window, out: &mut [f32]) {
        let spec = &self.spec;
        if window.size == (spec.width as usize, spec.height as usize) {
            return;
        }
        let channels = spec.color.channels();
        let value = |channel: usize| (f32::from(spec.fill) - spec.mean[channel]) * spec.scale[channel];
        let (w, h) = (spec.width as usize, spec.height as usize);
        let rows = window.at.1..window.at.1 + window.size.1;
        let columns = window.at.0..window.at.0 + window.size.0;
        match spec.layout {
            Layout::Nchw => {
                for (index, row) in out.chunks_exact_mut(w).enumerate() {
                    let value = value(index / h);
                    if rows.contains(&(index % h)) {
                        row[..columns.start].fill(value);
                        row[columns.end..].fill(value);
                    } else {
                        row.fill(value);
                    }
                }
            }
            Layout::Nhwc => {
                let pixels = out.chunks_exact_mut(channels).enumerate();
                let free = pixels.filter(|(i, _)| !(rows.contains(&(i / w)) && columns.contains(&(i % w))));
                free.for_each(|(_, pixel)| pixel.iter_mut().enumerate().for_each(|(c, t)| *t = value(c)));
            }
        }
    }
}

/// Runs the bilinear path, compiled for each instruction set that makes it faster. All functions that it calls are
/// inlined, so that they are compiled for the same set. Operations are not fused, so that every set gives the same
/// bits.
#[multiversion::multiversion(targets("x86_64+avx2", "x86_64+avx2+avx512f"))]
fn bilinear(
    preprocessor: &mut Preprocessor,
    frame: &FrameView<'_>,
    mapping: &Mapping,
    window: &Window,
    out: &mut [f32],
) {
    preprocessor.bilinear(frame, mapping, window, out);
}

/// Runs the antialiased path, compiled like [`bilinear`].
#[multiversion::multiversion(targets("x86_64+avx2", "x86_64+avx2+avx512f"))]
fn antialiased(
    preprocessor: &mut Preprocessor,
    frame: &FrameView<'_>,
    mapping: &Mapping,
    window: &Window,
    out: &mut [f32],
) {
    preprocessor.antialiased(frame, mapping, window, out);
}

/// Position between two samples of a line: the first one, and the weight of its successor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Tap {
    first: u32,
    weight: f32,
}

impl Tap {
    fn at(position: f32, size: usize) -> Self {
        let position = position.clamp(0.0, (size - 1) as f32);
        let first = position as u32;
        Self { first, weight: position - first as f32 }
    }

    /// Returns the tap of output sample `index` of `outputs` over `inputs` samples, with pixel centres at one half.
    fn centered(index: usize, outputs: usize, inputs: usize) -> Self {
        Self::at((index as f32 + 0.5) * inputs as f32 / outputs as f32 - 0.5, inputs)
    }

    fn position(self) -> f32 {
        self.first as f32 + self.weight
    }

    /// Returns the two rows of `plane` to blend; the last row is its own successor.
    fn rows_of<'a>(self, plane: &PlaneView<'a>) -> (&'a [u8], &'a [u8]) {
        let first = self.first as usize;
        (plane.row(first), plane.row((first + 1).min(plane.rows() - 1)))
    }

    /// Returns the same position in a chroma plane of half the rows, whose samples lie between two luma rows.
    fn halved(self, size: usize) -> Self {
        Self::at((self.position() - 0.5) / 2.0, size)
    }

    /// Returns the same position along a chroma row of half the samples, which lie on the even luma samples: the
    /// default of H.264 and H.265 (chroma_sample_loc_type 0).
    fn halved_cosited(self, size: usize) -> Self {
        Self::at(self.position() / 2.0, size)
    }
}

/// Samples across blended rows, whose pixels have `CHANNELS` values, into one list for each channel. One more pixel
/// must follow the row.
#[inline(always)]
fn sample<const CHANNELS: usize>(blended: &[Rows], taps: &[Tap], mut channels: [&mut Vec<Rows>; CHANNELS]) {
    let pixels = blended.as_chunks::<CHANNELS>().0;
    for (x, tap) in taps.iter().enumerate() {
        let pair = &pixels[tap.first as usize..][..2];
        for (channel, samples) in channels.iter_mut().enumerate() {
            let (left, right) = (pair[0][channel], pair[1][channel]);
            samples[x] = std::array::from_fn(|row| left[row] + (right[row] - left[row]) * tap.weight);
        }
    }
}

/// Samples the value at offset `place` of every `STEP` values across blended rows.
#[inline(always)]
fn sample_every<const STEP: usize>(blended: &[Rows], taps: &[Tap], place: usize, samples: &mut [Rows]) {
    let pixels = blended.as_chunks::<STEP>().0;
    for (samples, tap) in samples.iter_mut().zip(taps) {
        let pair = &pixels[tap.first as usize..][..2];
        let (left, right) = (pair[0][place], pair[1][place]);
        *samples = std::array::from_fn(|row| left[row] + (right[row] - left[row]) * tap.weight);
    }
}

/// Returns the offsets of luma, U and V in packed 4:2:2: luma in every 2 bytes, chroma in every 4.
fn packed_places(format: PixelFormat) -> [usize; 3] {
    if format == PixelFormat::Uyvy { [1, 0, 2] } else { [0, 1, 3] }
}

/// Writes samples to rows of `width` values, from column `left`, as `normalise` gives them. Blocks of [`ROWS`] columns
/// are transposed in registers, so that each row is written a vector at a time.
#[inline(always)]
fn write_planar(
    samples: &[Rows],
    out: &mut [f32],
    width: usize,
    left: usize,
    normalise: impl Fn(f32) -> f32,
) {
    let rows = out.len() / width;
    // The last rows of the window may be fewer, and are not worth a transposition.
    let (blocks, rest) = if rows == ROWS { samples.as_chunks::<ROWS>() } else { (&[][..], samples) };
    for (block, column) in blocks.iter().zip((left..).step_by(ROWS)) {
        for row in 0..ROWS {
            let target = &mut out[row * width + column..][..ROWS];
            target.copy_from_slice(&std::array::from_fn::<f32, ROWS, _>(|x| normalise(block[x][row])));
        }
    }
    for (sample, column) in rest.iter().zip(left + blocks.len() * ROWS..) {
        (0..rows).for_each(|row| out[row * width + column] = normalise(sample[row]));
    }
}

/// Taps of every column inside the model's input, kept as long as the frame's width stays the same.
#[derive(Default)]
struct Columns {
    sizes: (u32, u32),
    luma: Vec<Tap>,
    chroma: Vec<Tap>,
}

impl Columns {
    fn update(&mut self, source_w: u32, image_w: u32, window: &Window) {
        if self.sizes == (source_w, image_w) {
            return;
        }
        let (inputs, outputs) = (source_w as usize, image_w as usize);
        let seen = window.from.0..window.from.0 + window.size.0;
        self.luma = seen.map(|x| Tap::centered(x, outputs, inputs)).collect();
        self.chroma = self.luma.iter().map(|tap| tap.halved_cosited(inputs.div_ceil(2))).collect();
        self.sizes = (source_w, image_w);
    }
}

/// Maximum number of values that a pixel has, or that two pixels share.
const PIXEL_VALUES_MAX: usize = 4;

/// Blends the two rows of each tap, and appends a pixel so that every sample has a successor. Its weight is 0, so its
/// value does not matter.
#[inline(always)]
fn blend_rows(plane: &PlaneView<'_>, taps: [Tap; ROWS], blended: &mut Vec<Rows>) {
    let bytes = plane.row(0).len();
    blended.resize(bytes + PIXEL_VALUES_MAX, [0.0; ROWS]);
    let rows = taps.map(|tap| tap.rows_of(plane));
    // All rows have one length that the compiler knows, so that the loop needs no bounds checks.
    let rows = rows.map(|(first, second)| (&first[..bytes], &second[..bytes]));
    let weights = taps.map(|tap| tap.weight);
    for (x, values) in blended[..bytes].iter_mut().enumerate() {
        *values = std::array::from_fn(|row| blend(rows[row].0[x], rows[row].1[x], weights[row]));
    }
}

#[inline(always)]
fn blend(first: u8, second: u8, weight: f32) -> f32 {
    let (first, second) = (f32::from(first), f32::from(second));
    first + (second - first) * weight
}

/// Converts the whole frame to packed 8-bit RGB.
#[inline(always)]
pub(crate) fn to_rgb8(frame: &FrameView<'_>, out: &mut Vec<u8>) {
    let desc = frame.desc();
    let (w, h) = (desc.width as usize, desc.height as usize);
    out.resize(w * h * 3, 0);
    for (y, row) in out.chunks_exact_mut(w * 3).enumerate() {
        let line = frame.plane(0).row(y);
        match desc.format {
            PixelFormat::Bgr => row.chunks_exact_mut(3).zip(line.chunks_exact(3)).for_each(|(t, s)| {
                t.copy_from_slice(&[s[2], s[1], s[0]]);
            }),
            PixelFormat::Gray8 => row.chunks_exact_mut(3).zip(line).for_each(|(t, s)| t.fill(*s)),
            PixelFormat::I420 | PixelFormat::Nv12 => yuv_row(frame, y, line, row),
            PixelFormat::Yuy2 | PixelFormat::Uyvy => packed_row(frame, line, row),
            _ => row.copy_from_slice(line),
        }
    }
}

#[inline(always)]
fn packed_row(frame: &FrameView<'_>, line: &[u8], row: &mut [u8]) {
    let to_rgb = YuvToRgb::of(frame.desc());
    let [luma, u, v] = packed_places(frame.desc().format);
    for (x, pixel) in row.chunks_exact_mut(3).enumerate() {
        let pair = &line[x / 2 * 4..][..4];
        let y = pair[luma + x % 2 * 2];
        let rgb = to_rgb.rgb(f32::from(y), f32::from(pair[u]), f32::from(pair[v]));
        pixel.iter_mut().zip(rgb).for_each(|(t, value)| *t = (value + 0.5) as u8);
    }
}

#[inline(always)]
fn yuv_row(frame: &FrameView<'_>, y: usize, line: &[u8], row: &mut [u8]) {
    let to_rgb = YuvToRgb::of(frame.desc());
    let planar = frame.desc().format == PixelFormat::I420;
    let chroma = frame.plane(1).row(y / 2);
    let chroma_v = if planar { frame.plane(2).row(y / 2) } else { chroma };
    for (x, (pixel, luma)) in row.chunks_exact_mut(3).zip(line).enumerate() {
        let half = x / 2;
        let (u, v) =
            if planar { (chroma[half], chroma_v[half]) } else { (chroma[2 * half], chroma[2 * half + 1]) };
        let rgb = to_rgb.rgb(f32::from(*luma), f32::from(u), f32::from(v));
        pixel.iter_mut().zip(rgb).for_each(|(t, value)| *t = (value + 0.5) as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::tests::spec;
    use crate::{Align, Fit};
    use orinoco_core::FrameDesc;

    fn gradient(desc: &FrameDesc) -> Vec<u8> {
        (0..desc.bytes_needed()).map(|i| ((i * 31 + i / 7) % 253) as u8).collect()
    }

    /// Computes the definition in float64: bilinear with pixel centres at one half, edges repeated.
    fn reference(bytes: &[u8], w: usize, h: usize, channel: usize, x: f64, y: f64) -> f64 {
        let (x, y) = (x.clamp(0.0, (w - 1) as f64), y.clamp(0.0, (h - 1) as f64));
        let (x0, y0) = (x as usize, y as usize);
        let at = |x: usize, y: usize| f64::from(bytes[(y.min(h - 1) * w + x.min(w - 1)) * 3 + channel]);
        let (fx, fy) = (x - x0 as f64, y - y0 as f64);
        let top = at(x0, y0) * (1.0 - fx) + at(x0 + 1, y0) * fx;
        let bottom = at(x0, y0 + 1) * (1.0 - fx) + at(x0 + 1, y0 + 1) * fx;
        top * (1.0 - fy) + bottom * fy
    }

    #[test]
    fn bilinear_is_the_definition() {
        for (w, h, mw, mh, fit) in [
            (64, 48, 32, 24, Fit::Stretch),
            (37, 91, 50, 20, Fit::Letterbox),
            (10, 10, 33, 47, Fit::Letterbox),
            (1, 1, 4, 4, Fit::Stretch),
            (61, 40, 20, 20, Fit::Crop { shorter: 26 }),
            (40, 61, 24, 16, Fit::Crop { shorter: 20 }),
        ] {
            let desc = FrameDesc::packed(PixelFormat::Rgb, w, h);
            let bytes = gradient(&desc);
            let spec = spec(mw, mh, fit, Align::Center);
            let mut out = vec![-1.0; spec.elements()];
            let map = Preprocessor::new(spec.clone()).run(
                &FrameView::new(&desc, &bytes).expect("fits"),
                &Mapping::default(),
                &mut out,
            );
            for c in 0..3 {
                for y in 0..mh {
                    for x in 0..mw {
                        let seen = f64::from(out[((c * mh + y) * mw + x) as usize]);
                        let (px, py) =
                            (x.wrapping_sub_signed(map.offset.0), y.wrapping_sub_signed(map.offset.1));
                        let exact = if px < map.size.0 && py < map.size.1 {
                            let sx = (f64::from(px) + 0.5) * f64::from(w) / f64::from(map.size.0) - 0.5;
                            let sy = (f64::from(py) + 0.5) * f64::from(h) / f64::from(map.size.1) - 0.5;
                            reference(&bytes, w as usize, h as usize, c as usize, sx, sy)
                        } else {
                            114.0
                        };
                        assert!((seen - exact).abs() < 0.01, "{w}x{h} at {c},{y},{x}: {seen} for {exact}");
                    }
                }
            }
        }
    }

    #[test]
    fn packed_422_sees_the_same_image_where_chroma_does_not_change_downwards() {
        let planar = FrameDesc::packed(PixelFormat::I420, 38, 22);
        let mut bytes = gradient(&planar);
        for plane in [1, 2] {
            let rows = &mut bytes[planar.planes[plane].offset..][..19 * 11];
            let (first, rest) = rows.split_at_mut(19);
            rest.chunks_exact_mut(19).for_each(|row| row.copy_from_slice(first));
        }
        for (format, order) in [(PixelFormat::Yuy2, [0, 1, 0, 2]), (PixelFormat::Uyvy, [1, 0, 2, 0])] {
            let packed = FrameDesc::packed(format, 38, 22);
            let value = |y: usize, x: usize, place: usize| match order[place] {
                0 => bytes[y * 38 + x * 2 + usize::from(place > 1)],
                plane => bytes[planar.planes[plane].offset + x],
            };
            let pairs = (0..22).flat_map(|y| (0..19).map(move |x| (y, x)));
            let pixels: Vec<u8> = pairs
                .flat_map(|(y, x)| (0..4).map(move |place| (y, x, place)))
                .map(|(y, x, p)| value(y, x, p))
                .collect();
            for resize in [Resize::Bilinear, Resize::BilinearAntialias] {
                let spec = InputSpec { resize, ..spec(20, 20, Fit::Letterbox, Align::Center) };
                let (mut a, mut b) = (vec![0.0; spec.elements()], vec![0.0; spec.elements()]);
                let none = Mapping::default();
                Preprocessor::new(spec.clone()).run(
                    &FrameView::new(&planar, &bytes).expect("fits"),
                    &none,
                    &mut a,
                );
                Preprocessor::new(spec).run(&FrameView::new(&packed, &pixels).expect("fits"), &none, &mut b);
                assert_eq!(a, b, "{format:?} {resize:?}");
            }
        }
    }

    #[test]
    fn i420_and_nv12_see_the_same_image() {
        let planar = FrameDesc::packed(PixelFormat::I420, 38, 22);
        let bytes = gradient(&planar);
        let semi = FrameDesc::packed(PixelFormat::Nv12, 38, 22);
        let (luma, chroma) = bytes.split_at(38 * 22);
        let (u, v) = chroma.split_at(19 * 11);
        let mut interleaved = luma.to_vec();
        u.iter().zip(v).for_each(|(u, v)| interleaved.extend([*u, *v]));
        for resize in [Resize::Bilinear, Resize::BilinearAntialias] {
            let mut spec = spec(20, 30, Fit::Letterbox, Align::TopLeft);
            spec.resize = resize;
            let (mut a, mut b) = (vec![0.0; spec.elements()], vec![0.0; spec.elements()]);
            Preprocessor::new(spec.clone()).run(
                &FrameView::new(&planar, &bytes).expect("fits"),
                &Mapping::default(),
                &mut a,
            );
            Preprocessor::new(spec).run(
                &FrameView::new(&semi, &interleaved).expect("fits"),
                &Mapping::default(),
                &mut b,
            );
            assert_eq!(a, b);
        }
    }

    #[test]
    fn layouts_and_orders_hold_the_same_values() {
        let desc = FrameDesc::packed(PixelFormat::Rgb, 9, 7);
        let bytes = gradient(&desc);
        let frame = FrameView::new(&desc, &bytes).expect("fits");
        let mut nchw = spec(9, 7, Fit::Stretch, Align::TopLeft);
        nchw.mean = [1.0, 2.0, 3.0];
        nchw.scale = [0.5, 0.25, 2.0];
        let nhwc = InputSpec { layout: Layout::Nhwc, ..nchw.clone() };
        let bgr = InputSpec {
            color: ColorOrder::Bgr,
            mean: [3.0, 2.0, 1.0],
            scale: [2.0, 0.25, 0.5],
            ..nchw.clone()
        };
        let run = |spec: InputSpec| {
            let mut out = vec![0.0; spec.elements()];
            Preprocessor::new(spec).run(&frame, &Mapping::default(), &mut out);
            out
        };
        let (planes, pixels, swapped) = (run(nchw), run(nhwc), run(bgr));
        for i in 0..63 {
            for c in 0..3 {
                assert_eq!(planes[c * 63 + i], pixels[i * 3 + c]);
                assert_eq!(planes[c * 63 + i], swapped[(2 - c) * 63 + i]);
            }
            assert!((planes[i] - (f32::from(bytes[i * 3]) - 1.0) * 0.5).abs() < 1e-4);
        }
    }
}
