//! Draws boxes and labels on an image.

use std::convert::Infallible;

use embedded_graphics::mono_font::MonoTextStyle;
use embedded_graphics::mono_font::ascii::FONT_7X13_BOLD;
use embedded_graphics::pixelcolor::Rgb888;
use embedded_graphics::prelude::*;
use embedded_graphics::primitives::{Circle, Line, PrimitiveStyle, Rectangle};
use embedded_graphics::text::{Baseline, Text};
use orinoco_core::{ClassMap, Detection, InferenceResult, Keypoint, Mask};

/// Line width of boxes, in pixels.
const LINE: u32 = 2;
/// Distance between lines of text, in pixels.
const LINE_HEIGHT: i32 = 14;
/// Distance between the image's edge and the text in its corner, in pixels.
const MARGIN: i32 = 4;
/// Maximum number of classes of a whole frame that are written on it.
const CLASSES_DRAWN_MAX: usize = 3;
/// Minimum score of keypoints that are drawn; those below it are hidden or outside the image.
const JOINT_SCORE_MIN: f32 = 0.5;
/// Diameter of a keypoint's dot, in pixels.
const JOINT_DIAMETER: u32 = 5;
/// Number of keypoints of a person in COCO.
const COCO_JOINTS: usize = 17;
/// Pairs of keypoints that are joined by a line (the `skeleton` of COCO's person_keypoints annotations, counted from
/// 0).
const COCO_LIMBS: [(usize, usize); 19] = [
    (15, 13),
    (13, 11),
    (16, 14),
    (14, 12),
    (11, 12),
    (5, 11),
    (6, 12),
    (5, 6),
    (5, 7),
    (6, 8),
    (7, 9),
    (8, 10),
    (1, 2),
    (0, 1),
    (0, 2),
    (1, 3),
    (2, 4),
    (3, 5),
    (4, 6),
];
/// Limit of coordinates outside of the image, in pixels: points and edges further away are drawn at this distance,
/// which is more than any line is wide.
const OUTSIDE_MAX: f64 = 64.0;
/// Colours of classes (the first eight of Tableau's palette); further classes repeat them.
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

/// Tightly packed I420 image to draw on (BT.601, limited range).
#[derive(Debug)]
pub struct Canvas<'a> {
    bytes: &'a mut [u8],
    width: u32,
    height: u32,
}

impl<'a> Canvas<'a> {
    /// Creates a canvas over `bytes`; `None` when they are too few for the size.
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

    /// Returns `pixels` pixels of row `y` from column `left` on, or fewer at the right edge, in the planes Y, U and V.
    fn row(&mut self, left: u32, y: u32, pixels: usize) -> [&mut [u8]; 3] {
        let (w, h) = (self.width as usize, self.height as usize);
        let (left, y) = ((left as usize).min(w), y as usize);
        let right = (left + pixels).min(w);
        let (chroma_w, chroma_h) = (w.div_ceil(2), h.div_ceil(2));
        let (luma, chroma) = self.bytes.split_at_mut(w * h);
        let (u, v) = chroma.split_at_mut(chroma_w * chroma_h);
        // No pixels have no cell of chroma, also in the middle of one.
        let cells = if left < right { left / 2..right.div_ceil(2) } else { 0..0 };
        let cells = y / 2 * chroma_w + cells.start..y / 2 * chroma_w + cells.end;
        [&mut luma[y * w + left..y * w + right], &mut u[cells.clone()], &mut v[cells]]
    }

    /// Fills pixels of a row.
    fn fill(&mut self, left: u32, y: u32, pixels: usize, [luma, u, v]: [u8; 3]) {
        let [lumas, us, vs] = self.row(left, y, pixels);
        lumas.fill(luma);
        us.fill(u);
        vs.fill(v);
    }

    /// Tints pixels of a row so that the image stays visible: half of its brightness, and the chroma of the colour.
    fn tint(&mut self, left: u32, y: u32, pixels: usize, [luma, u, v]: [u8; 3]) {
        let [lumas, us, vs] = self.row(left, y, pixels);
        lumas.iter_mut().for_each(|is| *is = is.midpoint(luma));
        us.fill(u);
        vs.fill(v);
    }

    /// Tints, as [`Canvas::tint`] does, the pixels of a row whose entry in `inside` is not 0.
    fn tint_inside(&mut self, left: u32, y: u32, inside: &[u8], [luma, u, v]: [u8; 3]) {
        let [lumas, us, vs] = self.row(left, y, inside.len());
        let inside = &inside[..lumas.len()];
        for (is, inside) in lumas.iter_mut().zip(inside) {
            *is = if *inside == 0 { *is } else { is.midpoint(luma) };
        }
        // The first and the last cell of chroma may have one pixel in this row instead of two.
        let (first, pairs) = inside.split_at(inside.len().min(left as usize % 2));
        let (pairs, last) = pairs.as_chunks::<2>();
        for (cells, value) in [(us, u), (vs, v)] {
            let (first_cell, cells) = cells.split_at_mut(first.len());
            let (cells, last_cell) = cells.split_at_mut(pairs.len());
            for (is, [left, right]) in cells.iter_mut().zip(pairs) {
                *is = if left | right == 0 { *is } else { value };
            }
            for (is, inside) in first_cell.iter_mut().zip(first).chain(last_cell.iter_mut().zip(last)) {
                *is = if *inside == 0 { *is } else { value };
            }
        }
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

    /// Fills only the part inside the image, however large `area` is.
    fn fill_solid(&mut self, area: &Rectangle, color: Rgb888) -> Result<(), Infallible> {
        let color = to_yuv(color);
        let area = area.intersection(&self.bounding_box());
        for y in area.rows() {
            // Not negative: the intersection lies inside the image.
            self.fill(area.top_left.x as u32, y as u32, area.size.width as usize, color);
        }
        Ok(())
    }
}

/// Converts RGB to Y, U, V: BT.601 limited range, in the 8-bit integer form.
fn to_yuv(color: Rgb888) -> [u8; 3] {
    let (r, g, b) = (i32::from(color.r()), i32::from(color.g()), i32::from(color.b()));
    let y = (66 * r + 129 * g + 25 * b + 128) / 256 + 16;
    let u = (-38 * r - 74 * g + 112 * b + 128) / 256 + 128;
    let v = (112 * r - 94 * g - 18 * b + 128) / 256 + 128;
    [y, u, v].map(|value| value.clamp(0, 255) as u8)
}

/// Draws results, and `caption` in the upper left corner: masks first, then boxes, keypoints and labels over them.
pub fn draw(canvas: &mut Canvas<'_>, inference: &InferenceResult, labels: &[String], caption: &str) {
    let label = |class_id: u32| labels.get(class_id as usize).map_or("?", String::as_str);
    shade_map(canvas, &inference.class_map, labels);
    for (mask, found) in inference.masks.iter().zip(&inference.detections) {
        shade_mask(canvas, mask, color_of(found.class_id));
    }
    let each = inference.keypoints_each();
    for (index, found) in inference.detections.iter().enumerate() {
        let color = color_of(found.class_id);
        let at = outline(canvas, found, inference.corners.get(index), color);
        joints(canvas, &inference.keypoints[index * each..][..each], color);
        let id =
            inference.tracks.get(index).copied().flatten().map_or_else(String::new, |id| format!("#{id} "));
        let text = format!("{id}{} {:.0}%", label(found.class_id), found.score * 100.0);
        plate(canvas, &text, at - Point::new(0, LINE_HEIGHT), color, Rgb888::WHITE);
    }
    let classes = inference.classes.iter().take(CLASSES_DRAWN_MAX);
    let classes = classes.map(|class| format!("{} {:.0}%", label(class.class_id), class.score * 100.0));
    let lines = (!caption.is_empty()).then(|| caption.to_owned()).into_iter().chain(classes);
    for (line, top) in lines.zip((MARGIN..).step_by(LINE_HEIGHT as usize)) {
        plate(canvas, &line, Point::new(MARGIN, top), Rgb888::BLACK, Rgb888::WHITE);
    }
}

/// Draws the results for the object `holder` as [`draw`] does, with the best class below the object's upper edge.
pub fn draw_within(
    canvas: &mut Canvas<'_>,
    inference: &InferenceResult,
    labels: &[String],
    holder: &Detection,
) {
    let label = |class_id: u32| labels.get(class_id as usize).map_or("?", String::as_str);
    // A class map covers the object, and none of the frame's pixels.
    let placed = InferenceResult { classes: Vec::new(), class_map: ClassMap::default(), ..inference.clone() };
    draw(canvas, &placed, labels, "");
    if let Some(best) = inference.classes.first() {
        let text = format!("{} {:.0}%", label(best.class_id), best.score * 100.0);
        let corner = pixel(canvas, &orinoco_core::Point { x: holder.bounds.x1, y: holder.bounds.y1 });
        plate(canvas, &text, corner + Point::new(LINE as i32, LINE as i32), Rgb888::BLACK, Rgb888::WHITE);
    }
}

/// Draws a line of text in the middle of the image.
pub fn draw_card(canvas: &mut Canvas<'_>, text: &str) {
    let width = FONT_7X13_BOLD.character_size.width as i32 * text.chars().count() as i32;
    let at = Point::new((canvas.width as i32 - width) / 2, (canvas.height as i32 - LINE_HEIGHT) / 2);
    plate(canvas, text, at, Rgb888::BLACK, Rgb888::WHITE);
}

fn color_of(class_id: u32) -> Rgb888 {
    let (r, g, b) = COLORS[class_id as usize % COLORS.len()];
    Rgb888::new(r, g, b)
}

/// Returns the pixel of a point. A point far outside is moved closer, so that arithmetic cannot overflow.
fn pixel(canvas: &Canvas<'_>, at: &orinoco_core::Point) -> Point {
    let near =
        |at: f32, side: u32| f64::from(at).clamp(-OUTSIDE_MAX, f64::from(side) + OUTSIDE_MAX).round() as i32;
    Point::new(near(at.x, canvas.width), near(at.y, canvas.height))
}

/// Whether a point is inside the image or close to it.
fn is_near(canvas: &Canvas<'_>, at: &orinoco_core::Point) -> bool {
    let is_near =
        |at: f32, side: u32| (-OUTSIDE_MAX..=f64::from(side) + OUTSIDE_MAX).contains(&f64::from(at));
    is_near(at.x, canvas.width) && is_near(at.y, canvas.height)
}

/// Draws the part of a line inside the image.
fn line(canvas: &mut Canvas<'_>, from: &orinoco_core::Point, to: &orinoco_core::Point, color: Rgb888) {
    let Some([from, to]) = clipped(canvas, from, to) else { return };
    let style = PrimitiveStyle::with_stroke(color, LINE);
    let Ok(()) = Line::new(from, to).into_styled(style).draw(canvas);
}

/// Returns the ends of the part of a line that lies inside or close to the image, if there is any. An end is moved onto
/// the border that it is beyond, so that the coordinate along the border keeps its value however far away the end was.
fn clipped(canvas: &Canvas<'_>, from: &orinoco_core::Point, to: &orinoco_core::Point) -> Option<[Point; 2]> {
    let mut ends = [from, to].map(|at| [f64::from(at.x), f64::from(at.y)]);
    if !ends.as_flattened().iter().all(|coordinate| coordinate.is_finite()) {
        return None;
    }
    for (axis, side) in [canvas.width, canvas.height].into_iter().enumerate() {
        let (low, high) = (-OUTSIDE_MAX, f64::from(side) + OUTSIDE_MAX);
        let is_swapped = ends[0][axis] > ends[1][axis];
        if is_swapped {
            ends.swap(0, 1);
        }
        let [mut near, mut far] = ends;
        if far[axis] < low || near[axis] > high {
            return None;
        }
        let other = 1 - axis;
        let across = |near: [f64; 2], far: [f64; 2], border: f64| {
            near[other] + (far[other] - near[other]) * ((border - near[axis]) / (far[axis] - near[axis]))
        };
        if near[axis] < low {
            near[other] = across(near, far, low);
            near[axis] = low;
        }
        if far[axis] > high {
            far[other] = across(near, far, high);
            far[axis] = high;
        }
        ends = if is_swapped { [far, near] } else { [near, far] };
    }
    Some(ends.map(|[x, y]| Point::new(x.round() as i32, y.round() as i32)))
}

/// Draws the oriented box if there is one, else the upright one. Returns the position of its label.
fn outline(
    canvas: &mut Canvas<'_>,
    found: &Detection,
    corners: Option<&[orinoco_core::Point; 4]>,
    color: Rgb888,
) -> Point {
    if let Some(corners) = corners {
        for (from, to) in corners.iter().zip(corners.iter().cycle().skip(1)) {
            line(canvas, from, to, color);
        }
        let top = corners.iter().min_by(|a, b| a.y.total_cmp(&b.y)).expect("there are four");
        return pixel(canvas, top);
    }
    let bounds = found.bounds;
    let corner = |x: f32, y: f32| pixel(canvas, &orinoco_core::Point { x, y });
    // An edge outside of the image stays outside.
    let frame = Rectangle::with_corners(corner(bounds.x1, bounds.y1), corner(bounds.x2, bounds.y2));
    let Ok(()) = frame.into_styled(PrimitiveStyle::with_stroke(color, LINE)).draw(canvas);
    frame.top_left
}

/// Draws the keypoints with a sufficient score, and the limbs of a person between them.
fn joints(canvas: &mut Canvas<'_>, keypoints: &[Keypoint], color: Rgb888) {
    let certain = |index: usize| keypoints.get(index).filter(|keypoint| keypoint.score >= JOINT_SCORE_MIN);
    if keypoints.len() == COCO_JOINTS {
        for (from, to) in COCO_LIMBS {
            if let (Some(from), Some(to)) = (certain(from), certain(to)) {
                line(canvas, &from.at, &to.at, color);
            }
        }
    }
    for keypoint in (0..keypoints.len()).filter_map(certain) {
        if !is_near(canvas, &keypoint.at) {
            continue;
        }
        let dot = Circle::with_center(pixel(canvas, &keypoint.at), JOINT_DIAMETER);
        let Ok(()) = dot.into_styled(PrimitiveStyle::with_fill(Rgb888::WHITE)).draw(canvas);
        let Ok(()) = dot.into_styled(PrimitiveStyle::with_stroke(color, 1)).draw(canvas);
    }
}

/// Tints the pixels of one object.
fn shade_mask(canvas: &mut Canvas<'_>, mask: &Mask, color: Rgb888) {
    let color = to_yuv(color);
    let rows = mask.pixels.chunks_exact((mask.width as usize).max(1));
    (mask.top..canvas.height).zip(rows).for_each(|(y, row)| canvas.tint_inside(mask.left, y, row, color));
}

/// Tints every pixel by its class; pixels of a class called "background" are not changed.
fn shade_map(canvas: &mut Canvas<'_>, map: &ClassMap, labels: &[String]) {
    if map.width == 0 || map.height == 0 {
        return;
    }
    // The first pixel of each column of cells, and the one after the last.
    let start = |cell: u32| {
        let start = (u64::from(cell) * u64::from(canvas.width)).div_ceil(u64::from(map.width));
        start as u32
    };
    let starts: Vec<u32> = (0..=map.width).map(start).collect();
    let colors: Vec<Option<[u8; 3]>> = (0..=u32::from(u8::MAX))
        .map(|class_id| {
            let name = labels.get(class_id as usize).map_or("", String::as_str);
            // The last id marks cells without a label.
            let is_shaded = class_id < u32::from(u8::MAX) && !name.eq_ignore_ascii_case("background");
            is_shaded.then(|| to_yuv(color_of(class_id)))
        })
        .collect();
    for y in 0..canvas.height {
        let row = (u64::from(y) * u64::from(map.height) / u64::from(canvas.height)) as usize;
        let mut first = 0;
        for run in map.classes[row * map.width as usize..][..map.width as usize].chunk_by(|a, b| a == b) {
            let [left, right] = [starts[first], starts[first + run.len()]];
            first += run.len();
            if let Some(color) = colors[usize::from(run[0])] {
                canvas.tint(left, y, (right - left) as usize, color);
            }
        }
    }
}

/// Draws text on a filled background, moved into the image if it would extend beyond it.
fn plate(canvas: &mut Canvas<'_>, text: &str, at: Point, ground: Rgb888, ink: Rgb888) {
    let style = MonoTextStyle::new(&FONT_7X13_BOLD, ink);
    let at = Point::new(at.x.max(0), at.y.max(0));
    // Characters beyond the image's width are not visible.
    let fits_max = (canvas.width / FONT_7X13_BOLD.character_size.width) as usize + 1;
    let text = text.char_indices().nth(fits_max).map_or(text, |(end, _)| &text[..end]);
    let text = Text::with_baseline(text, at + Point::new(2, 0), style, Baseline::Top);
    let size = text.bounding_box().size;
    let back = Rectangle::new(at, Size::new(size.width + 4, size.height + 1));
    let Ok(()) = back.into_styled(PrimitiveStyle::with_fill(ground)).draw(canvas);
    let Ok(_) = text.draw(canvas);
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
mod tests {
    use super::*;
    use orinoco_core::BoxF;
    use proptest::prelude::*;

    #[test]
    fn a_box_is_drawn_and_what_sticks_out_is_cut() {
        let mut bytes = vec![0u8; 64 * 48 * 3 / 2];
        let mut canvas = Canvas::new(&mut bytes, 64, 48).expect("fits");
        let bounds = BoxF { x1: 10.0, y1: 20.0, x2: 900.0, y2: 40.0 };
        let detections = vec![Detection { class_id: 0, score: 0.5, bounds }];
        draw(
            &mut canvas,
            &InferenceResult { detections, ..InferenceResult::default() },
            &["cat".to_owned()],
            "",
        );
        let [luma, ..] = to_yuv(Rgb888::new(255, 127, 14));
        assert_eq!(bytes[30 * 64 + 10], luma, "left edge");
        assert_eq!(bytes[30 * 64 + 30], 0, "inside");
        assert_eq!(bytes[40 * 64 + 60], luma, "bottom edge");
    }

    /// Returns the luma of a black image of 64 x 48 pixels with `inference` drawn on it.
    fn drawn(inference: &InferenceResult, labels: &[&str]) -> Vec<u8> {
        let mut bytes = vec![0u8; 64 * 48 * 3 / 2];
        let mut canvas = Canvas::new(&mut bytes, 64, 48).expect("fits");
        let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        draw(&mut canvas, inference, &labels, "");
        bytes
    }

    fn found(x1: f32, y1: f32, x2: f32, y2: f32) -> Vec<Detection> {
        vec![Detection { class_id: 0, score: 0.5, bounds: BoxF { x1, y1, x2, y2 } }]
    }

    #[test]
    fn masks_and_maps_shade_what_they_cover() {
        let [luma, ..] = to_yuv(color_of(0));
        // The mask extends beyond the right edge: the part outside is left out.
        let mask = Mask { left: 60, top: 40, width: 8, height: 2, pixels: vec![1; 16] };
        let bytes = drawn(
            &InferenceResult {
                detections: found(60.0, 40.0, 68.0, 42.0),
                masks: vec![mask],
                ..InferenceResult::default()
            },
            &["cat"],
        );
        assert_eq!(bytes[41 * 64 + 62], luma / 2, "inside");
        let class_map = ClassMap { width: 2, height: 1, classes: vec![0, 1] };
        let bytes =
            drawn(&InferenceResult { class_map, ..InferenceResult::default() }, &["background", "cat"]);
        assert_eq!(bytes[20 * 64 + 31], 0, "background");
        assert_eq!(bytes[20 * 64 + 32], to_yuv(color_of(1))[0] / 2, "the second column");
    }

    /// Tints one pixel of an I420 image.
    fn tint_pixel(bytes: &mut [u8], (width, height): (usize, usize), (x, y): (usize, usize), color: [u8; 3]) {
        let (chroma_w, chroma_h) = (width.div_ceil(2), height.div_ceil(2));
        let cell = width * height + y / 2 * chroma_w + x / 2;
        bytes[y * width + x] = bytes[y * width + x].midpoint(color[0]);
        bytes[cell] = color[1];
        bytes[cell + chroma_w * chroma_h] = color[2];
    }

    proptest! {
        #[test]
        fn tinted_rows_are_tinted_pixels(
            size in (1u32..40, 1u32..9),
            corner in (0u32..44, 0u32..10),
            mask in (1u32..20, 1u32..9).prop_flat_map(|(width, height)| {
                (Just(width), Just(height), prop::collection::vec(0u8..2, (width * height) as usize))
            }),
            cells in (1u32..50, 1u32..12).prop_flat_map(|(width, height)| {
                (Just(width), Just(height), prop::collection::vec(0u8..3, (width * height) as usize))
            }),
        ) {
            let (width, height) = (size.0 as usize, size.1 as usize);
            let (chroma_w, chroma_h) = (width.div_ceil(2), height.div_ceil(2));
            let before: Vec<u8> = (0..width * height + 2 * chroma_w * chroma_h).map(|i| i as u8).collect();
            let (mut drawn, mut expected) = (before.clone(), before.clone());
            let (columns, rows, pixels) = mask;
            let mask = Mask { left: corner.0, top: corner.1, width: columns, height: rows, pixels };
            let color = color_of(1);
            shade_mask(&mut Canvas::new(&mut drawn, size.0, size.1).expect("fits"), &mask, color);
            for (index, inside) in mask.pixels.iter().enumerate() {
                let (x, y) = (index % columns as usize + corner.0 as usize, index / columns as usize + corner.1 as usize);
                if *inside == 1 && x < width && y < height {
                    tint_pixel(&mut expected, (width, height), (x, y), to_yuv(color));
                }
            }
            prop_assert_eq!(&drawn, &expected, "a mask");

            let (mut drawn, mut expected) = (before.clone(), before);
            let (columns, rows, classes) = cells;
            let map = ClassMap { width: columns, height: rows, classes };
            let labels = ["background", "cat", "dog"].map(str::to_owned);
            shade_map(&mut Canvas::new(&mut drawn, size.0, size.1).expect("fits"), &map, &labels);
            for (x, y) in (0..height).flat_map(|y| (0..width).map(move |x| (x, y))) {
                let cell = y * rows as usize / height * columns as usize + x * columns as usize / width;
                let class_id = map.classes[cell];
                if class_id != 0 {
                    tint_pixel(&mut expected, (width, height), (x, y), to_yuv(color_of(class_id.into())));
                }
            }
            prop_assert_eq!(&drawn, &expected, "a class map");
        }
    }

    #[test]
    fn oriented_boxes_and_joints_are_lines_and_dots() {
        let [luma, ..] = to_yuv(color_of(0));
        let corners = [(20.0, 20.0), (40.0, 20.0), (40.0, 44.0), (20.0, 44.0)];
        let corners = vec![corners.map(|(x, y)| orinoco_core::Point { x, y })];
        let keypoint = |x: f32, score: f32| Keypoint { at: orinoco_core::Point { x, y: 34.0 }, score };
        let bytes = drawn(
            &InferenceResult {
                detections: found(0.0, 0.0, 60.0, 47.0),
                corners,
                keypoints: vec![keypoint(25.0, 0.9), keypoint(32.0, 0.1)],
                ..InferenceResult::default()
            },
            &["ship"],
        );
        assert_eq!(bytes[30 * 64 + 20], luma, "its own side");
        assert_eq!(bytes[30 * 64], 0, "not the upright box");
        assert_eq!(bytes[34 * 64 + 25], to_yuv(Rgb888::WHITE)[0], "a joint");
        assert_eq!(bytes[34 * 64 + 32], 0, "an uncertain one");
    }

    #[test]
    fn classes_are_written_in_the_corner() {
        let classes = vec![orinoco_core::ClassScore { class_id: 0, score: 0.9 }];
        let bytes = drawn(&InferenceResult { classes, ..InferenceResult::default() }, &["cat"]);
        let white = to_yuv(Rgb888::WHITE)[0];
        assert!((4..18).any(|y| bytes[y * 64..][..64].contains(&white)));
    }

    /// Draws only `inference`, and returns whether a pixel has the colour of the first class. Callers look below the
    /// label's plate and right of it.
    fn marked(inference: &InferenceResult) -> impl Fn(usize, usize) -> bool + use<> {
        let bytes = drawn(inference, &["a"]);
        let [luma, ..] = to_yuv(color_of(0));
        move |x, y| bytes[y * 64 + x] == luma
    }

    #[test]
    fn edges_far_outside_leave_the_frame_alone() {
        let check = |bounds: [f32; 4], expected: fn(usize, usize) -> bool| {
            let [x1, y1, x2, y2] = bounds;
            let marked =
                marked(&InferenceResult { detections: found(x1, y1, x2, y2), ..InferenceResult::default() });
            for (x, y) in (20..48).flat_map(|y| (0..64).map(move |x| (x, y))) {
                assert_eq!(marked(x, y), expected(x, y), "{x}, {y}: {bounds:?}");
            }
        };
        for far in [1e3, 1e8, 1e10, 1e30, f32::MAX] {
            check([-far, -far, far, far], |_, _| false);
            check([far, far, far, far], |_, _| false);
            // The left edge of one box, and the lower edge of another, cross the image.
            check([30.0, -far, far, far], |x, _| (29..31).contains(&x));
            check([-far, -far, far, 40.0], |_, y| (40..42).contains(&y));
        }
    }

    #[test]
    fn lines_far_outside_are_drawn_where_they_cross_the_frame() {
        let point = |(x, y)| orinoco_core::Point { x, y };
        // Only row 30 has a line, of two pixels.
        let check = |inference: &InferenceResult| {
            let marked = marked(inference);
            for x in 44..64 {
                assert!(marked(x, 30), "{x}: {inference:?}");
                let rows: Vec<usize> = (0..48).filter(|y| marked(x, *y)).collect();
                assert!(rows.len() == 2 && rows.iter().all(|row| row.abs_diff(30) <= 1), "{x}: {rows:?}");
            }
        };
        for far in [1e3, 1e8, 1e30, f32::MAX] {
            let corners = vec![[(-far, 30.0), (far, 30.0), (far, far), (-far, far)].map(point)];
            check(&InferenceResult {
                detections: found(-far, 30.0, far, far),
                corners,
                ..InferenceResult::default()
            });
            // A limb between two keypoints that are both outside.
            let mut keypoints = vec![Keypoint::default(); COCO_JOINTS];
            for (joint, x) in [(5, -far), (6, far)] {
                keypoints[joint] = Keypoint { at: point((x, 30.0)), score: 1.0 };
            }
            check(&InferenceResult {
                detections: found(-far, -far, far, far),
                keypoints,
                ..InferenceResult::default()
            });
        }
        let nowhere =
            vec![[(f32::NAN, 0.0), (f32::INFINITY, 0.0), (0.0, f32::NEG_INFINITY), (1.0, 1.0)].map(point)];
        let detections = found(f32::NAN, f32::NEG_INFINITY, f32::INFINITY, f32::NAN);
        drawn(&InferenceResult { detections, corners: nowhere, ..InferenceResult::default() }, &[]);
    }

    #[test]
    fn a_box_of_1e8_pixels_takes_no_longer_than_the_frame_has_pixels() {
        let mut bytes = vec![0u8; 1920 * 1080 * 3 / 2];
        let mut canvas = Canvas::new(&mut bytes, 1920, 1080).expect("fits");
        let far = found(-1e8, 10.0, 1e8, 1e8)[0];
        let corners =
            [(-1e8, 5e2), (1e8, 6e2), (1e8, 1e8), (-1e8, 1e8)].map(|(x, y)| orinoco_core::Point { x, y });
        let upright = InferenceResult { detections: vec![far; 100], ..InferenceResult::default() };
        let turned = InferenceResult { corners: vec![corners; 100], ..upright.clone() };
        let start = std::time::Instant::now();
        draw(&mut canvas, &upright, &["x".repeat(1_000_000)], "");
        draw(&mut canvas, &turned, &[], "");
        // Drawn point by point, these took minutes.
        assert!(start.elapsed().as_secs_f64() < 5.0, "{:?}", start.elapsed());
    }
}
