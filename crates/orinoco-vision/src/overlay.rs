//! Boxes and names onto a picture.

use std::convert::Infallible;

use embedded_graphics::mono_font::MonoTextStyle;
use embedded_graphics::mono_font::ascii::FONT_7X13_BOLD;
use embedded_graphics::pixelcolor::Rgb888;
use embedded_graphics::prelude::*;
use embedded_graphics::primitives::{PrimitiveStyle, Rectangle};
use embedded_graphics::text::{Baseline, Text};
use orinoco_core::Detection;

/// Line width of boxes, in pixels.
const LINE: u32 = 2;
/// Distinct colours by class (the first eight of Tableau's palette); classes beyond repeat them.
const COLORS: [(u8, u8, u8); 8] = [
    (255, 127, 14),
    (44, 160, 44),
    (214, 39, 40),
    (31, 119, 180),
    (148, 103, 189),
    (140, 86, 75),
    (227, 119, 194),
    (23, 190, 207),
];

/// A tightly packed I420 picture to draw on (BT.601, limited range).
#[derive(Debug)]
pub struct Canvas<'a> {
    bytes: &'a mut [u8],
    width: u32,
    height: u32,
}

impl<'a> Canvas<'a> {
    /// A canvas over `bytes`; `None` when they are too few for the size.
    pub fn new(bytes: &'a mut [u8], width: u32, height: u32) -> Option<Self> {
        let desc = orinoco_core::FrameDesc::packed(orinoco_core::PixelFormat::I420, width, height);
        (bytes.len() >= desc.bytes_needed()).then_some(Self { bytes, width, height })
    }

    fn set(&mut self, x: u32, y: u32, [luma, u, v]: [u8; 3]) {
        let (w, h) = (self.width as usize, self.height as usize);
        let (x, y) = (x as usize, y as usize);
        let (chroma_w, chroma_h) = (w.div_ceil(2), h.div_ceil(2));
        let chroma = (y / 2) * chroma_w + x / 2;
        self.bytes[y * w + x] = luma;
        self.bytes[w * h + chroma] = u;
        self.bytes[w * h + chroma_w * chroma_h + chroma] = v;
    }
}

impl OriginDimensions for Canvas<'_> {
    fn size(&self) -> Size {
        Size::new(self.width, self.height)
    }
}

impl DrawTarget for Canvas<'_> {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(&mut self, pixels: I) -> Result<(), Infallible> {
        for Pixel(point, color) in pixels {
            if let (Ok(x), Ok(y)) = (u32::try_from(point.x), u32::try_from(point.y))
                && x < self.width
                && y < self.height
            {
                self.set(x, y, to_yuv(color));
            }
        }
        Ok(())
    }
}

/// BT.601 limited range, 8-bit integer form.
fn to_yuv(color: Rgb888) -> [u8; 3] {
    let (r, g, b) = (i32::from(color.r()), i32::from(color.g()), i32::from(color.b()));
    let y = (66 * r + 129 * g + 25 * b + 128) / 256 + 16;
    let u = (-38 * r - 74 * g + 112 * b + 128) / 256 + 128;
    let v = (112 * r - 94 * g - 18 * b + 128) / 256 + 128;
    [y, u, v].map(|value| value.clamp(0, 255) as u8)
}

/// Draws each detection's box with its name and score, and `caption` in the left top corner.
pub fn draw(canvas: &mut Canvas<'_>, detections: &[Detection], labels: &[String], caption: &str) {
    for found in detections {
        let (r, g, b) = COLORS[found.class_id as usize % COLORS.len()];
        let color = Rgb888::new(r, g, b);
        let corner = |x: f32, y: f32| Point::new(x.round() as i32, y.round() as i32);
        let bounds = found.bounds;
        let frame = Rectangle::with_corners(corner(bounds.x1, bounds.y1), corner(bounds.x2, bounds.y2));
        let Ok(()) = frame.into_styled(PrimitiveStyle::with_stroke(color, LINE)).draw(canvas);
        let label = labels.get(found.class_id as usize).map_or("?", String::as_str);
        let text = format!("{label} {:.0}%", found.score * 100.0);
        plate(canvas, &text, frame.top_left - Point::new(0, 14), color, Rgb888::WHITE);
    }
    if !caption.is_empty() {
        plate(canvas, caption, Point::new(4, 4), Rgb888::BLACK, Rgb888::WHITE);
    }
}

/// Text on a filled ground, moved into the picture where it would stick out.
fn plate(canvas: &mut Canvas<'_>, text: &str, at: Point, ground: Rgb888, ink: Rgb888) {
    let style = MonoTextStyle::new(&FONT_7X13_BOLD, ink);
    let at = Point::new(at.x.max(0), at.y.max(0));
    let text = Text::with_baseline(text, at + Point::new(2, 0), style, Baseline::Top);
    let size = text.bounding_box().size;
    let back = Rectangle::new(at, Size::new(size.width + 4, size.height + 1));
    let Ok(()) = back.into_styled(PrimitiveStyle::with_fill(ground)).draw(canvas);
    let Ok(_) = text.draw(canvas);
}

#[cfg(test)]
mod tests {
    use super::*;
    use orinoco_core::BoxF;

    #[test]
    fn a_box_is_drawn_and_what_sticks_out_is_cut() {
        let mut bytes = vec![0u8; 64 * 48 * 3 / 2];
        let mut canvas = Canvas::new(&mut bytes, 64, 48).expect("fits");
        let bounds = BoxF { x1: 10.0, y1: 20.0, x2: 900.0, y2: 40.0 };
        draw(&mut canvas, &[Detection { class_id: 0, score: 0.5, bounds }], &["cat".to_owned()], "");
        let [luma, ..] = to_yuv(Rgb888::new(255, 127, 14));
        assert_eq!(bytes[30 * 64 + 10], luma, "left edge");
        assert_eq!(bytes[30 * 64 + 30], 0, "inside");
        assert_eq!(bytes[40 * 64 + 60], luma, "bottom edge");
    }
}
