use alloc::string::String;
use alloc::vec::Vec;

use crate::{BoxF, Detection, TrackId};

/// A point in source pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// From the left edge.
    pub x: f32,
    /// From the top edge.
    pub y: f32,
}

/// One joint or landmark of a detection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Keypoint {
    /// Where, in source pixels.
    pub at: Point,
    /// Confidence, 0 to 1; 1 when the model gives none.
    pub score: f32,
}

/// The pixels of one detection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mask {
    /// Left edge of the first column, in source pixels.
    pub left: u32,
    /// Top edge of the first row, in source pixels.
    pub top: u32,
    /// Columns, one for each source pixel.
    pub width: u32,
    /// Rows, one for each source pixel.
    pub height: u32,
    /// `width * height` values, row by row: 1 inside, 0 outside.
    pub pixels: Vec<u8>,
}

/// A class and how much the model believes in it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassScore {
    /// Index into the model's labels.
    pub class_id: u32,
    /// Confidence, 0 to 1.
    pub score: f32,
}

/// The class of every cell of a grid that covers the whole frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassMap {
    /// Columns; 0 when there is no map.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// `width * height` class ids, row by row.
    pub classes: Vec<u8>,
}

/// An output as the model gave it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawTensor {
    /// Its name in the graph.
    pub name: String,
    /// Its axes, without the batch where there is one.
    pub shape: Vec<usize>,
    /// Its elements, row-major.
    pub data: Vec<f32>,
}

/// What a model found in one frame. Which parts are filled depends on its head. Reused from batch to batch, so that a
/// replay allocates nothing after warm-up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InferenceResult {
    /// Objects, best first.
    pub detections: Vec<Detection>,
    /// The corners of oriented boxes, clockwise; empty, or one for each detection.
    pub corners: Vec<[Point; 4]>,
    /// Keypoints; empty, or the same number for each detection, one detection after the other.
    pub keypoints: Vec<Keypoint>,
    /// Instance masks; empty, or one for each detection.
    pub masks: Vec<Mask>,
    /// Which object each detection is, where objects are followed; empty, or one for each detection.
    pub tracks: Vec<Option<TrackId>>,
    /// Classes of the whole frame, best first.
    pub classes: Vec<ClassScore>,
    /// Semantic segmentation.
    pub class_map: ClassMap,
    /// What identifies the object in the frame: a unit vector.
    pub embedding: Vec<f32>,
    /// Outputs that no head reads.
    pub tensors: Vec<RawTensor>,
    /// What was left out because the model gave no finite number for it: candidates for detections, keypoints, classes,
    /// cells of a map, or an embedding. Of raw tensors, which leave nothing out, the elements that are none.
    pub not_finite: u64,
}

impl InferenceResult {
    /// Empties everything but keeps its memory; `tensors` stay for the head to overwrite.
    pub fn clear(&mut self) {
        self.detections.clear();
        self.corners.clear();
        self.keypoints.clear();
        self.masks.clear();
        self.tracks.clear();
        self.classes.clear();
        self.class_map.width = 0;
        self.class_map.height = 0;
        self.class_map.classes.clear();
        self.embedding.clear();
        self.not_finite = 0;
    }

    /// Moves everything that has a place by whole pixels: what was found in a part of a frame lies further right and down in
    /// the frame. A class map stays one of the part.
    pub fn shift(&mut self, x: u32, y: u32) {
        let (dx, dy) = (x as f32, y as f32);
        let points = self.corners.iter_mut().flatten().chain(self.keypoints.iter_mut().map(|k| &mut k.at));
        for point in points {
            *point = Point { x: point.x + dx, y: point.y + dy };
        }
        for bounds in self.detections.iter_mut().map(|found| &mut found.bounds) {
            *bounds = BoxF { x1: bounds.x1 + dx, y1: bounds.y1 + dy, x2: bounds.x2 + dx, y2: bounds.y2 + dy };
        }
        for mask in &mut self.masks {
            mask.left += x;
            mask.top += y;
        }
    }

    /// How many keypoints each detection has.
    pub fn keypoints_each(&self) -> usize {
        self.keypoints.len().checked_div(self.detections.len()).unwrap_or(0)
    }
}
