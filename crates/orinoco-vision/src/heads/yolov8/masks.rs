//! Masks of detections, from the prototypes of their image.

use orinoco_core::{BoxF, InferenceResult, Mask};

use super::{BOX_VALUES, Channels, YoloV8};
use crate::Mapping;
use crate::heads::Output;

/// Maximum number of pixels in all masks of an image, as a multiple of the frame's pixels. Masks of the best detections
/// come first; those beyond the limit are empty. In a crowd the boxes of all objects cover a frame two or three times.
const MASK_FRAMES_MAX: u64 = 8;

impl YoloV8 {
    /// Computes the masks: pixels inside the box where the sum of the prototypes, weighted by the detection's
    /// coefficients, is positive.
    pub(super) fn masks(
        &mut self,
        channels: &Channels<'_>,
        prototypes: &Output<'_>,
        item: usize,
        mapping: &Mapping,
        found: &mut InferenceResult,
    ) {
        let [_, coefficients, rows, columns] = *prototypes.shape else { return };
        let values = prototypes.item(item);
        let first = BOX_VALUES + self.spec.classes;
        let frame_pixels = u64::from(mapping.source.0) * u64::from(mapping.source.1);
        let mut pixels_left = MASK_FRAMES_MAX * frame_pixels;
        for candidate in &self.candidates {
            let area = MaskArea::of(&candidate.detection.bounds, mapping);
            let Some(left) = pixels_left.checked_sub(area.pixels()) else {
                found.masks.push(Mask { left: area.left, top: area.top, ..Mask::default() });
                continue;
            };
            pixels_left = left;
            let taps_x =
                taps(area.left..area.right, mapping.scale.0, mapping.offset.0, mapping.model.0, columns);
            let taps_y =
                taps(area.top..area.bottom, mapping.scale.1, mapping.offset.1, mapping.model.1, rows);
            // Only the rows under the box are blended.
            let cells = match (taps_y.first(), taps_y.last()) {
                (Some(top), Some(bottom)) => top.first * columns..(bottom.second + 1) * columns,
                _ => 0..0,
            };
            self.blend.clear();
            self.blend.resize(cells.len(), 0.0);
            for (index, plane) in values.chunks_exact((rows * columns).max(1)).enumerate().take(coefficients)
            {
                let weight = channels.at(first + index, candidate.anchor);
                let plane = &plane[cells.clone()];
                self.blend.iter_mut().zip(plane).for_each(|(sum, value)| *sum += weight * value);
            }
            let mut pixels = Vec::with_capacity(area.pixels() as usize);
            for tap_y in &taps_y {
                let row = |row: usize| &self.blend[row * columns - cells.start..][..columns];
                self.line.clear();
                let column = row(tap_y.first).iter().zip(row(tap_y.second));
                self.line.extend(column.map(|(first, second)| tap_y.blend(*first, *second)));
                let line = &self.line[..];
                pixels.extend(
                    taps_x
                        .iter()
                        .map(|tap_x| u8::from(tap_x.blend(line[tap_x.first], line[tap_x.second]) > 0.0)),
                );
            }
            let (width, height) = (area.right - area.left, area.bottom - area.top);
            found.masks.push(Mask { left: area.left, top: area.top, width, height, pixels });
        }
    }
}

/// Whole pixels of a box inside the image.
struct MaskArea {
    left: u32,
    top: u32,
    right: u32,
    bottom: u32,
}

impl MaskArea {
    fn of(bounds: &BoxF, mapping: &Mapping) -> Self {
        let (source_w, source_h) = mapping.source;
        let edge = |value: f32, max: u32| (value.round().max(0.0) as u32).min(max);
        let (left, top) = (edge(bounds.x1, source_w), edge(bounds.y1, source_h));
        let (right, bottom) = (edge(bounds.x2, source_w).max(left), edge(bounds.y2, source_h).max(top));
        Self { left, top, right, bottom }
    }

    fn pixels(&self) -> u64 {
        u64::from(self.right - self.left) * u64::from(self.bottom - self.top)
    }
}

/// Two cells of a prototype along one axis, and the weight of the second.
struct CellTap {
    first: usize,
    second: usize,
    weight: f32,
}

impl CellTap {
    #[inline]
    fn blend(&self, first: f32, second: f32) -> f32 {
        first + (second - first) * self.weight
    }
}

/// Maps source pixels to the `cells` of a prototype, which cover the model's input.
fn taps(pixels: std::ops::Range<u32>, scale: f32, offset: i32, model: u32, cells: usize) -> Vec<CellTap> {
    let per_pixel = cells as f32 / model as f32;
    let tap = |pixel: u32| {
        let at = ((pixel as f32 + 0.5) * scale + offset as f32) * per_pixel - 0.5;
        let at = at.clamp(0.0, (cells - 1) as f32);
        let first = at as usize;
        CellTap { first, second: (first + 1).min(cells - 1), weight: at - first as f32 }
    };
    pixels.map(tap).collect()
}
