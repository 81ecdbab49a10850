//! What a model wants to see, and how its pixels map back to the frame's.

use orinoco_core::{BoxF, Layout};

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
        let (model_w, model_h) = (self.width as f32, self.height as f32);
        match self.fit {
            Fit::Stretch => Mapping {
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
                    Align::Center => ((self.width - size.0) / 2, (self.height - size.1) / 2),
                };
                Mapping { scale: (ratio, ratio), offset, size }
            }
        }
    }
}

/// Where the frame lies in the model's input, and so how boxes come back.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mapping {
    /// Model pixels per source pixel, by axis.
    pub scale: (f32, f32),
    /// The picture's left top corner in the model's input.
    pub offset: (u32, u32),
    /// The picture's size in the model's input.
    pub size: (u32, u32),
}

impl Mapping {
    /// A box in model pixels as source pixels.
    pub fn to_source(&self, b: BoxF) -> BoxF {
        let x = |v: f32| (v - self.offset.0 as f32) / self.scale.0;
        let y = |v: f32| (v - self.offset.1 as f32) / self.scale.1;
        BoxF { x1: x(b.x1), y1: y(b.y1), x2: x(b.x2), y2: y(b.y2) }
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
