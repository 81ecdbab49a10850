//! A frame into a model's input tensor: colour, resize, fit, normalise.
//!
//! The bilinear path is one pass: each output row blends two source rows, then samples across them, and converts only
//! the samples that the model will see. The antialiased path converts the whole frame first, because its filter reads
//! every pixel anyway.

use orinoco_core::{FrameView, Layout, PixelFormat, PlaneView};

use crate::antialias::Antialias;
use crate::yuv::YuvToRgb;
use crate::{ColorOrder, InputSpec, Mapping, Resize};

/// Preprocesses frames for one model input. Keeps its scratch, so that it allocates only when the frames' size changes.
pub struct Preprocessor {
    spec: InputSpec,
    columns: Columns,
    rows: [Vec<f32>; 2],
    samples: [Vec<f32>; 3],
    luma: Vec<f32>,
    rgb: Vec<u8>,
    resized: Vec<u8>,
    antialias: Antialias,
}

impl Preprocessor {
    /// A preprocessor for `spec`.
    pub fn new(spec: InputSpec) -> Self {
        Self {
            spec,
            columns: Columns::default(),
            rows: Default::default(),
            samples: Default::default(),
            luma: Vec::new(),
            rgb: Vec::new(),
            resized: Vec::new(),
            antialias: Antialias::default(),
        }
    }

    /// Fills `out`, the tensor of one picture (`spec.elements()` values), from `frame`.
    pub fn run(&mut self, frame: &FrameView<'_>, out: &mut [f32]) -> Mapping {
        assert_eq!(out.len(), self.spec.elements(), "the tensor of {:?}", self.spec);
        let mapping = self.spec.mapping(frame.desc().width, frame.desc().height);
        self.fill_border(&mapping, out);
        self.samples.iter_mut().for_each(|row| row.resize(mapping.size.0 as usize, 0.0));
        match self.spec.resize {
            Resize::Bilinear => self.bilinear(frame, &mapping, out),
            Resize::BilinearAntialias => self.antialiased(frame, &mapping, out),
        }
        mapping
    }

    fn bilinear(&mut self, frame: &FrameView<'_>, mapping: &Mapping, out: &mut [f32]) {
        self.columns.update(frame.desc().width, mapping.size.0);
        let (source_h, picture_h) = (frame.desc().height as usize, mapping.size.1 as usize);
        let to_rgb = YuvToRgb::of(frame.desc());
        for y in 0..picture_h {
            let tap = Tap::centered(y, picture_h, source_h);
            blend_rows(&frame.plane(0), tap, &mut self.rows[0]);
            match frame.desc().format {
                PixelFormat::I420 => {
                    let chroma = tap.halved(frame.plane(1).rows());
                    blend_planes(&frame.plane(1), &frame.plane(2), chroma, &mut self.rows[1]);
                    self.sample_yuv(&to_rgb);
                }
                PixelFormat::Nv12 => {
                    blend_rows(&frame.plane(1), tap.halved(frame.plane(1).rows()), &mut self.rows[1]);
                    self.sample_yuv(&to_rgb);
                }
                PixelFormat::Gray8 => {
                    let [first, others @ ..] = &mut self.samples;
                    sample(&self.rows[0], &self.columns.luma, [first]);
                    others.iter_mut().for_each(|row| row.copy_from_slice(first));
                }
                PixelFormat::Bgr => {
                    let [r, g, b] = &mut self.samples;
                    sample(&self.rows[0], &self.columns.luma, [b, g, r]);
                }
                _ => {
                    sample(&self.rows[0], &self.columns.luma, self.samples.each_mut().map(Vec::as_mut_slice))
                }
            }
            self.write_row(y, mapping, out);
        }
    }

    /// Samples a luma row and a row of interleaved chroma, and converts them to RGB.
    fn sample_yuv(&mut self, to_rgb: &YuvToRgb) {
        let [y, u, v] = &mut self.samples;
        sample(&self.rows[0], &self.columns.luma, [y]);
        sample(&self.rows[1], &self.columns.chroma, [u, v]);
        to_rgb.convert_rows(&mut self.samples);
    }

    fn antialiased(&mut self, frame: &FrameView<'_>, mapping: &Mapping, out: &mut [f32]) {
        to_rgb8(frame, &mut self.rgb);
        let (w, h) = (mapping.size.0 as usize, mapping.size.1 as usize);
        self.resized.resize(w * h * 3, 0);
        let from = (frame.desc().width as usize, frame.desc().height as usize);
        self.antialias.resize(&self.rgb, from, &mut self.resized, (w, h));
        for y in 0..h {
            let row = &self.resized[y * w * 3..][..w * 3];
            for (x, pixel) in row.chunks_exact(3).enumerate() {
                self.samples.iter_mut().zip(pixel).for_each(|(row, value)| row[x] = f32::from(*value));
            }
            self.write_row(y, mapping, out);
        }
    }

    /// Normalises the sampled row `y` of the picture into its place in the tensor.
    fn write_row(&mut self, y: usize, mapping: &Mapping, out: &mut [f32]) {
        let spec = &self.spec;
        let (w, h) = (spec.width as usize, spec.height as usize);
        let (left, y) = (mapping.offset.0 as usize, y + mapping.offset.1 as usize);
        let picture_w = mapping.size.0 as usize;
        if spec.color == ColorOrder::Gray {
            // Luma weights of BT.601, as JPEG and Pillow's mode L use.
            let [r, g, b] = &self.samples;
            let luma = r.iter().zip(g).zip(b).map(|((r, g), b)| 0.299 * r + 0.587 * g + 0.114 * b);
            self.luma.clear();
            self.luma.extend(luma);
        }
        let [r, g, b] = &self.samples;
        for channel in 0..spec.color.channels() {
            let row = match (spec.color, channel) {
                (ColorOrder::Rgb, 0) | (ColorOrder::Bgr, 2) => r,
                (ColorOrder::Rgb, 2) | (ColorOrder::Bgr, 0) => b,
                (ColorOrder::Gray, _) => &self.luma,
                _ => g,
            };
            // (x - mean) * scale with one multiplication less to round.
            let (scale, shift) = (spec.scale[channel], -spec.mean[channel] * spec.scale[channel]);
            match spec.layout {
                Layout::Nchw => {
                    let target = &mut out[(channel * h + y) * w + left..][..picture_w];
                    target.iter_mut().zip(row).for_each(|(t, sample)| *t = sample * scale + shift);
                }
                Layout::Nhwc => {
                    let channels = spec.color.channels();
                    let target = &mut out[(y * w + left) * channels..][..picture_w * channels];
                    let pixels = target.chunks_exact_mut(channels).zip(row);
                    pixels.for_each(|(pixel, sample)| pixel[channel] = sample * scale + shift);
                }
            }
        }
    }

    /// Fills what the picture leaves free: whole rows above and below, and both sides of the rows between.
    fn fill_border(&self, mapping: &Mapping, out: &mut [f32]) {
        let spec = &self.spec;
        if mapping.size == (spec.width, spec.height) {
            return;
        }
        let channels = spec.color.channels();
        let value = |channel: usize| (f32::from(spec.fill) - spec.mean[channel]) * spec.scale[channel];
        let (w, h) = (spec.width as usize, spec.height as usize);
        let rows = mapping.offset.1 as usize..(mapping.offset.1 + mapping.size.1) as usize;
        let columns = mapping.offset.0 as usize..(mapping.offset.0 + mapping.size.0) as usize;
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

/// Between which sample of a line and its successor to blend, and how far towards the successor.
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

    /// The tap of output sample `index` of `outputs` over `inputs` samples, pixel centres at one half.
    fn centered(index: usize, outputs: usize, inputs: usize) -> Self {
        Self::at((index as f32 + 0.5) * inputs as f32 / outputs as f32 - 0.5, inputs)
    }

    fn position(self) -> f32 {
        self.first as f32 + self.weight
    }

    /// The two rows of `plane` to blend; the last row is its own successor.
    fn rows_of<'a>(self, plane: &PlaneView<'a>) -> (&'a [u8], &'a [u8]) {
        let first = self.first as usize;
        (plane.row(first), plane.row((first + 1).min(plane.rows() - 1)))
    }

    #[inline]
    fn blend(self, first: u8, second: u8) -> f32 {
        let (first, second) = (f32::from(first), f32::from(second));
        first + (second - first) * self.weight
    }

    /// The same place in a chroma plane of half the rows, whose samples lie between two luma rows.
    fn halved(self, size: usize) -> Self {
        Self::at((self.position() - 0.5) / 2.0, size)
    }

    /// The same place along a chroma row of half the samples, which lie on the even luma samples: the default of
    /// H.264 and H.265 (chroma_sample_loc_type 0).
    fn halved_cosited(self, size: usize) -> Self {
        Self::at(self.position() / 2.0, size)
    }
}

/// Samples a blended row, whose pixels have `CHANNELS` values and are followed by one more pixel, into one line for each
/// channel.
fn sample<const CHANNELS: usize>(row: &[f32], taps: &[Tap], mut lines: [&mut [f32]; CHANNELS]) {
    let pixels = row.as_chunks::<CHANNELS>().0;
    lines.iter_mut().for_each(|line| *line = &mut std::mem::take(line)[..taps.len()]);
    for (x, tap) in taps.iter().enumerate() {
        let pair = &pixels[tap.first as usize..][..2];
        for (channel, line) in lines.iter_mut().enumerate() {
            line[x] = pair[0][channel] + (pair[1][channel] - pair[0][channel]) * tap.weight;
        }
    }
}

/// The taps of every output column, kept while the frame's width stays the same.
#[derive(Default)]
struct Columns {
    sizes: (u32, u32),
    luma: Vec<Tap>,
    chroma: Vec<Tap>,
}

impl Columns {
    fn update(&mut self, source_w: u32, picture_w: u32) {
        if self.sizes == (source_w, picture_w) {
            return;
        }
        let (inputs, outputs) = (source_w as usize, picture_w as usize);
        self.luma = (0..outputs).map(|x| Tap::centered(x, outputs, inputs)).collect();
        self.chroma = self.luma.iter().map(|tap| tap.halved_cosited(inputs.div_ceil(2))).collect();
        self.sizes = (source_w, picture_w);
    }
}

/// The most values a pixel has.
const PIXEL_VALUES_MAX: usize = 3;

/// Blends the two rows of `tap`, and adds a pixel so that every sample has a successor: one of weight 0, so any will do.
fn blend_rows(plane: &PlaneView<'_>, tap: Tap, out: &mut Vec<f32>) {
    let (first, second) = tap.rows_of(plane);
    out.clear();
    out.extend(first.iter().zip(second).map(|(a, b)| tap.blend(*a, *b)));
    out.extend([0.0; PIXEL_VALUES_MAX]);
}

/// As [`blend_rows`], of two planes whose values come out interleaved: their samples then share index and weight.
fn blend_planes(plane_u: &PlaneView<'_>, plane_v: &PlaneView<'_>, tap: Tap, out: &mut Vec<f32>) {
    let ((u1, u2), (v1, v2)) = (tap.rows_of(plane_u), tap.rows_of(plane_v));
    out.resize(2 * u1.len() + PIXEL_VALUES_MAX, 0.0);
    let inputs = u1.iter().zip(u2).zip(v1.iter().zip(v2));
    for (pair, ((u1, u2), (v1, v2))) in out.as_chunks_mut::<2>().0.iter_mut().zip(inputs) {
        *pair = [tap.blend(*u1, *u2), tap.blend(*v1, *v2)];
    }
}

/// The whole frame as packed 8-bit RGB.
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
            _ => row.copy_from_slice(line),
        }
    }
}

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

    /// The definition, in float64: bilinear with pixel centres at one half, edges repeated.
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
        ] {
            let desc = FrameDesc::packed(PixelFormat::Rgb, w, h);
            let bytes = gradient(&desc);
            let spec = spec(mw, mh, fit, Align::Center);
            let mut out = vec![-1.0; spec.elements()];
            let map =
                Preprocessor::new(spec.clone()).run(&FrameView::new(&desc, &bytes).expect("fits"), &mut out);
            for c in 0..3 {
                for y in 0..mh {
                    for x in 0..mw {
                        let seen = f64::from(out[((c * mh + y) * mw + x) as usize]);
                        let (px, py) = (x.wrapping_sub(map.offset.0), y.wrapping_sub(map.offset.1));
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
    fn i420_and_nv12_see_the_same_picture() {
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
            Preprocessor::new(spec.clone()).run(&FrameView::new(&planar, &bytes).expect("fits"), &mut a);
            Preprocessor::new(spec).run(&FrameView::new(&semi, &interleaved).expect("fits"), &mut b);
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
            Preprocessor::new(spec).run(&frame, &mut out);
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
