//! What a model wants to see, and how its pixels map back to the frame's.

use orinoco_core::{BoxF, Choice, ColorOrder, Layout, Point, Resize};

/// How the frame's shape is brought to the model's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Each axis on its own.
    Stretch,
    /// One scale for both; the rest is filled.
    Letterbox,
    /// The shorter side to `shorter` pixels, then the middle: what classifiers are trained with.
    Crop {
        /// Pixels of the shorter side before the cut.
        shorter: u32,
    },
}

impl Fit {
    /// Every fit, with the shorter side that a crop has.
    pub fn all(shorter: u32) -> [Self; 3] {
        [Self::Stretch, Self::Letterbox, Self::Crop { shorter }]
    }

    /// Returns the name in model files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stretch => "stretch",
            Self::Letterbox => "letterbox",
            Self::Crop { .. } => "crop",
        }
    }
}

/// Where a letterboxed picture lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Filled right and below, as YOLOX was trained.
    TopLeft,
    /// Filled on both sides.
    Center,
}

impl Choice for Align {
    const ALL: &'static [Self] = &[Self::TopLeft, Self::Center];

    fn name(self) -> &'static str {
        match self {
            Self::TopLeft => "top-left",
            Self::Center => "center",
        }
    }
}

/// How the sides of a letterboxed picture become whole pixels. Each computes in double precision and in the order of
/// operations of the code it is named after, because the last bit of a product can be a row of pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Down, as YOLOX: `int(side * ratio)`.
    Down,
    /// Down, without a rounded ratio on the way, as nvinfer: `int(model_side * side / other_side)`.
    Exact,
    /// To the nearest pixel, halves to the even one, as Ultralytics: `round(side * ratio)`.
    Nearest,
}

impl Choice for Rounding {
    const ALL: &'static [Self] = &[Self::Down, Self::Exact, Self::Nearest];

    fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Exact => "exact",
            Self::Nearest => "nearest",
        }
    }
}

/// The image input of a model: `value = (sample - mean) * scale`, sample 0 to 255, per channel in `color` order.
#[derive(Clone, Debug, PartialEq)]
pub struct InputSpec {
    /// Axis order of the tensor.
    pub layout: Layout,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Channel order.
    pub color: ColorOrder,
    /// Filter.
    pub resize: Resize,
    /// Shape.
    pub fit: Fit,
    /// Place of a letterboxed picture.
    pub align: Align,
    /// Whole pixels of a letterboxed picture.
    pub rounding: Rounding,
    /// Sample value of the filled part.
    pub fill: u8,
    /// Per-channel mean, in samples.
    pub mean: [f32; 3],
    /// Per-channel scale.
    pub scale: [f32; 3],
}

impl InputSpec {
    /// Elements of one picture's tensor.
    pub fn elements(&self) -> usize {
        self.color.channels() * self.width as usize * self.height as usize
    }

    /// The tensor's shape for `batch` pictures.
    pub fn shape(&self, batch: usize) -> Vec<usize> {
        let (c, h, w) = (self.color.channels(), self.height as usize, self.width as usize);
        match self.layout {
            Layout::Nchw => vec![batch, c, h, w],
            Layout::Nhwc => vec![batch, h, w, c],
        }
    }

    /// Where a frame of `width` by `height` lands in the model's input.
    pub fn mapping(&self, width: u32, height: u32) -> Mapping {
        let (size, offset) = match self.fit {
            Fit::Stretch => ((self.width, self.height), (0, 0)),
            Fit::Letterbox => {
                let size = self.letterboxed(width, height);
                let offset = match self.align {
                    Align::TopLeft => (0, 0),
                    Align::Center => (middle(self.width, size.0), middle(self.height, size.1)),
                };
                (size, offset)
            }
            Fit::Crop { shorter } => {
                let size = cropped_from(shorter, width, height);
                (size, (cut(self.width, size.0), cut(self.height, size.1)))
            }
        };
        // The size that the picture really has, and not the ratio that led to it: this is what pixels went through.
        let scale = (size.0 as f32 / width as f32, size.1 as f32 / height as f32);
        Mapping { source: (width, height), model: (self.width, self.height), scale, offset, size }
    }

    /// The size of a letterboxed picture. No side is less than a pixel, nor more than the input's.
    fn letterboxed(&self, width: u32, height: u32) -> (u32, u32) {
        let model = [self.width, self.height].map(f64::from);
        let source = [width, height].map(f64::from);
        let ratio = (model[0] / source[0]).min(model[1] / source[1]);
        let sides = match self.rounding {
            Rounding::Down => source.map(|side| (side * ratio).trunc()),
            Rounding::Nearest => source.map(|side| (side * ratio).round_ties_even()),
            Rounding::Exact => {
                let sides = [model[1] * source[0] / source[1], model[0] * source[1] / source[0]];
                if sides[1] <= model[1] { [model[0], sides[1].trunc()] } else { [sides[0].trunc(), model[1]] }
            }
        };
        let [width, height] = sides.map(|side| side as u32);
        (width.clamp(1, self.width), height.clamp(1, self.height))
    }
}

/// The size of a picture whose shorter side has `shorter` pixels: the longer one is rounded down, as torchvision's
/// `Resize` does.
fn cropped_from(shorter: u32, width: u32, height: u32) -> (u32, u32) {
    let (short, long) = (width.min(height), width.max(height));
    let longer = (u64::from(shorter) * u64::from(long)) as f64 / f64::from(short);
    let longer = (longer.trunc() as u32).max(shorter);
    if width <= height { (shorter, longer) } else { (longer, shorter) }
}

/// The offset at which `model` pixels are cut from the middle of `size`, to the nearest even pixel as torchvision's
/// `CenterCrop`; a picture that is smaller lies in the middle.
fn cut(model: u32, size: u32) -> i32 {
    if size < model {
        return middle(model, size);
    }
    -((f64::from(size - model) / 2.0).round_ties_even() as i32)
}

/// The offset that puts `size` in the middle of `model`.
fn middle(model: u32, size: u32) -> i32 {
    i32::try_from((model - size) / 2).expect("a side is at most 8192")
}

/// Where the frame lies in the model's input, and so how boxes come back.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mapping {
    /// The frame's size.
    pub source: (u32, u32),
    /// The model's input size.
    pub model: (u32, u32),
    /// Model pixels per source pixel, by axis.
    pub scale: (f32, f32),
    /// The picture's left top corner in the model's input; negative where it is cut.
    pub offset: (i32, i32),
    /// The picture's size after the resize, before any cut.
    pub size: (u32, u32),
}

/// The part of the resized picture that the model sees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Window {
    /// Its left top corner in the model's input.
    pub(crate) at: (usize, usize),
    /// Its left top corner in the resized picture.
    pub(crate) from: (usize, usize),
    /// Its size.
    pub(crate) size: (usize, usize),
}

impl Mapping {
    /// A box in model pixels as source pixels.
    pub fn to_source(&self, b: BoxF) -> BoxF {
        let (near, far) = (self.point(b.x1, b.y1), self.point(b.x2, b.y2));
        BoxF { x1: near.x, y1: near.y, x2: far.x, y2: far.y }
    }

    /// A point in model pixels as source pixels.
    pub fn point(&self, x: f32, y: f32) -> Point {
        Point { x: (x - self.offset.0 as f32) / self.scale.0, y: (y - self.offset.1 as f32) / self.scale.1 }
    }

    /// What the model sees of the picture.
    pub(crate) fn window(&self) -> Window {
        let axis = |offset: i32, size: u32, model: u32| {
            let (at, from) = (offset.max(0) as usize, (-offset).max(0) as usize);
            let seen = (model as usize).saturating_sub(at).min((size as usize).saturating_sub(from));
            (at, from, seen)
        };
        let (x, y) =
            (axis(self.offset.0, self.size.0, self.model.0), axis(self.offset.1, self.size.1, self.model.1));
        Window { at: (x.0, y.0), from: (x.1, y.1), size: (x.2, y.2) }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn spec(width: u32, height: u32, fit: Fit, align: Align) -> InputSpec {
        InputSpec {
            layout: Layout::Nchw,
            width,
            height,
            color: ColorOrder::Rgb,
            resize: Resize::Bilinear,
            fit,
            align,
            rounding: Rounding::Down,
            fill: 114,
            mean: [0.0; 3],
            scale: [1.0; 3],
        }
    }

    #[test]
    fn boxes_come_back_where_they_were() {
        for (fit, align) in [
            (Fit::Stretch, Align::TopLeft),
            (Fit::Letterbox, Align::TopLeft),
            (Fit::Letterbox, Align::Center),
        ] {
            let map = spec(416, 416, fit, align).mapping(768, 432);
            let there = BoxF {
                x1: 100.0 * map.scale.0 + map.offset.0 as f32,
                y1: 50.0 * map.scale.1 + map.offset.1 as f32,
                x2: 700.0 * map.scale.0 + map.offset.0 as f32,
                y2: 400.0 * map.scale.1 + map.offset.1 as f32,
            };
            let back = map.to_source(there);
            for (seen, exact) in [(back.x1, 100.0), (back.y1, 50.0), (back.x2, 700.0), (back.y2, 400.0)] {
                assert!((seen - exact).abs() < 0.01, "{fit:?} {align:?}: {back:?}");
            }
        }
    }

    #[test]
    fn a_letterbox_keeps_the_shape() {
        let down = spec(416, 416, Fit::Letterbox, Align::Center);
        // 432 * (416 / 768) is 233.99999999999997 in Python, too.
        assert_eq!((down.mapping(768, 432).size, down.mapping(768, 432).offset), ((416, 233), (0, 91)));
        let nearest = InputSpec { rounding: Rounding::Nearest, ..down };
        assert_eq!((nearest.mapping(768, 432).size, nearest.mapping(768, 432).offset), ((416, 234), (0, 91)));
    }
}
