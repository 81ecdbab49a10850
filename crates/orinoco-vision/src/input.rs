//! What a model wants to see, and how its pixels map back to the frame's.

use orinoco_core::{BoxF, Layout, Point};

/// The order of a model's colour channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColorOrder {
    /// Red first.
    Rgb,
    /// Blue first.
    Bgr,
    /// Luma only: one channel.
    Gray,
}

impl ColorOrder {
    /// Number of channels.
    pub fn channels(self) -> usize {
        if self == Self::Gray { 1 } else { 3 }
    }
}

/// How the frame is brought to the model's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resize {
    /// Two taps each way, whatever the scale: OpenCV's `INTER_LINEAR`.
    Bilinear,
    /// A triangle filter as wide as the scale: Pillow's `BILINEAR`, PyTorch's `antialias=True`.
    BilinearAntialias,
}

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

/// Where a letterboxed picture lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Filled right and below, as YOLOX was trained.
    TopLeft,
    /// Filled on both sides.
    Center,
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
        let (source_w, source_h) = (width as f32, height as f32);
        let model = (self.width, self.height);
        let (model_w, model_h) = (model.0 as f32, model.1 as f32);
        match self.fit {
            Fit::Stretch => Mapping {
                source: (width, height),
                model,
                scale: (model_w / source_w, model_h / source_h),
                offset: (0, 0),
                size: (self.width, self.height),
            },
            Fit::Letterbox => {
                let ratio = (model_w / source_w).min(model_h / source_h);
                // Rounded down and mapped back by the one ratio, as YOLOX's own preprocessing does.
                let size = (((source_w * ratio) as u32).max(1), ((source_h * ratio) as u32).max(1));
                let offset = match self.align {
                    Align::TopLeft => (0, 0),
                    Align::Center => (middle(self.width, size.0), middle(self.height, size.1)),
                };
                Mapping { source: (width, height), model, scale: (ratio, ratio), offset, size }
            }
            Fit::Crop { shorter } => {
                // The longer side to the nearest pixel (torchvision rounds it down), the cut to the nearest even.
                let ratio = f64::from(shorter) / f64::from(width.min(height));
                let side = |length: u32| ((f64::from(length) * ratio).round() as u32).max(1);
                let size = (side(width), side(height));
                let cut = |model: u32, size: u32| {
                    (f64::from(model) / 2.0 - f64::from(size) / 2.0).round_ties_even() as i32
                };
                Mapping {
                    source: (width, height),
                    model,
                    scale: (size.0 as f32 / source_w, size.1 as f32 / source_h),
                    offset: (cut(self.width, size.0), cut(self.height, size.1)),
                    size,
                }
            }
        }
    }
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
        let map = spec(416, 416, Fit::Letterbox, Align::Center).mapping(768, 432);
        assert_eq!((map.size, map.offset), ((416, 234), (0, 91)));
    }
}
