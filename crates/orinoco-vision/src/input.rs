//! Image input of a model, and the mapping of its pixels to the frame's.

use orinoco_core::{BoxF, Choice, ColorOrder, Layout, Point, Resize};

/// Method that fits a frame to the size of the model's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Scales each axis by its own factor.
    Stretch,
    /// Scales both axes by one factor, and fills the rest.
    Letterbox,
    /// Scales the shorter side to `shorter` pixels, then crops the centre, as classifiers are trained.
    Crop {
        /// Length of the shorter side before the crop, in pixels.
        shorter: u32,
    },
}

impl Fit {
    /// Returns all fits; the crop has the given shorter side.
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

/// Position of a letterboxed image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Upper left corner; the right and lower parts are filled, as for YOLOX.
    TopLeft,
    /// Centre; both sides are filled.
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

/// Rounding of a letterboxed image's sides to whole pixels. Each kind computes in double precision and in the order of
/// operations of the code it is named after, because the last bit of a product can decide on a row of pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Rounds down, as in YOLOX: `int(side * ratio)`.
    Down,
    /// Rounds down without an intermediate ratio, as in nvinfer: `int(model_side * side / other_side)`.
    Exact,
    /// Rounds to the nearest pixel, halves to the even one, as in Ultralytics: `round(side * ratio)`.
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

/// Image input of a model: `value = (sample - mean) * scale`, with samples of 0 to 255, per channel in `color` order.
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
    /// Resize filter.
    pub resize: Resize,
    /// Method that fits a frame to this size.
    pub fit: Fit,
    /// Position of a letterboxed image.
    pub align: Align,
    /// Rounding of a letterboxed image's sides.
    pub rounding: Rounding,
    /// Sample value of the filled part, 0 to 255.
    pub fill: u8,
    /// Mean of each channel, in samples.
    pub mean: [f32; 3],
    /// Scale of each channel.
    pub scale: [f32; 3],
}

impl InputSpec {
    /// Returns the number of elements in one image's tensor.
    pub fn elements(&self) -> usize {
        self.color.channels() * self.width as usize * self.height as usize
    }

    /// Returns the shape of the tensor for `batch` images.
    pub fn shape(&self, batch: usize) -> Vec<usize> {
        let (c, h, w) = (self.color.channels(), self.height as usize, self.width as usize);
        match self.layout {
            Layout::Nchw => vec![batch, c, h, w],
            Layout::Nhwc => vec![batch, h, w, c],
        }
    }

    /// Returns the mapping of a frame of `width` by `height` pixels into the model's input.
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
        // The scale follows from the final size in pixels, not from the ratio before rounding, because pixels are
        // resized to that size.
        let scale = (size.0 as f32 / width as f32, size.1 as f32 / height as f32);
        Mapping { source: (width, height), model: (self.width, self.height), scale, offset, size }
    }

    /// Returns the size of a letterboxed image. No side is shorter than a pixel or longer than the input's.
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

/// Returns the size of an image whose shorter side has `shorter` pixels: the longer side is rounded down, as in
/// torchvision's `Resize`.
fn cropped_from(shorter: u32, width: u32, height: u32) -> (u32, u32) {
    let (short, long) = (width.min(height), width.max(height));
    let longer = (u64::from(shorter) * u64::from(long)) as f64 / f64::from(short);
    let longer = (longer.trunc() as u32).max(shorter);
    if width <= height { (shorter, longer) } else { (longer, shorter) }
}

/// Returns the offset of `model` pixels that are cropped from the centre of `size`, to the nearest even pixel as in
/// torchvision's `CenterCrop`; a smaller image is centred.
fn cut(model: u32, size: u32) -> i32 {
    if size < model {
        return middle(model, size);
    }
    -((f64::from(size - model) / 2.0).round_ties_even() as i32)
}

/// Returns the offset that centres `size` in `model`.
fn middle(model: u32, size: u32) -> i32 {
    i32::try_from((model - size) / 2).expect("a side is at most 8192")
}

/// Position of the frame in the model's input. It maps boxes back to the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mapping {
    /// Width and height of the frame, in pixels.
    pub source: (u32, u32),
    /// Width and height of the model's input, in pixels.
    pub model: (u32, u32),
    /// Model pixels per source pixel, along x and y.
    pub scale: (f32, f32),
    /// Upper left corner of the resized image in the model's input; negative where it is cropped.
    pub offset: (i32, i32),
    /// Width and height of the resized image before any crop, in model pixels.
    pub size: (u32, u32),
}

/// Part of the resized image inside the model's input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Window {
    /// Upper left corner of the part in the model's input.
    pub(crate) at: (usize, usize),
    /// Upper left corner of the part in the resized image.
    pub(crate) from: (usize, usize),
    /// Width and height of the part.
    pub(crate) size: (usize, usize),
}

impl Mapping {
    /// Converts a box from model pixels to source pixels.
    pub fn to_source(&self, b: BoxF) -> BoxF {
        let (near, far) = (self.point(b.x1, b.y1), self.point(b.x2, b.y2));
        BoxF { x1: near.x, y1: near.y, x2: far.x, y2: far.y }
    }

    /// Converts a point from model pixels to source pixels.
    pub fn point(&self, x: f32, y: f32) -> Point {
        Point { x: (x - self.offset.0 as f32) / self.scale.0, y: (y - self.offset.1 as f32) / self.scale.1 }
    }

    /// Returns the part of the resized image inside the model's input.
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
