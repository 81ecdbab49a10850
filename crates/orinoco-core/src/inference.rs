use alloc::string::String;
use alloc::vec::Vec;

use crate::{BoxF, Detection, TrackId};

/// Point in source pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Point {
    /// Distance from the left edge.
    pub x: f32,
    /// Distance from the top edge.
    pub y: f32,
}

/// Keypoint (joint or landmark) of a detection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Keypoint {
    /// Position in source pixels.
    pub at: Point,
    /// Confidence, 0 to 1; 1 when the model gives none.
    pub score: f32,
}

/// Instance mask: the pixels of one detection.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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

/// Class with the model's confidence in it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ClassScore {
    /// Index into the model's labels.
    pub class_id: u32,
    /// Confidence, 0 to 1.
    pub score: f32,
}

/// Class of every cell of a grid that covers the whole frame.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ClassMap {
    /// Columns of the grid; 0 when there is no map.
    pub width: u32,
    /// Rows of the grid.
    pub height: u32,
    /// `width * height` class ids, row by row.
    pub classes: Vec<u8>,
}

/// Raw output tensor of a model.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RawTensor {
    /// Name of the output in the graph.
    pub name: String,
    /// Shape, without the batch axis where there is one.
    pub shape: Vec<usize>,
    /// Elements in row-major order.
    pub data: Vec<f32>,
}

/// Inference result of one model for one image. The model's head decides which fields are filled. The value is reused
/// from batch to batch, so an execution allocates nothing after warm-up.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct InferenceResult {
    /// Detected objects, best score first.
    pub detections: Vec<Detection>,
    /// Corners of oriented boxes, clockwise; empty, or one entry for each detection.
    pub corners: Vec<[Point; 4]>,
    /// Keypoints; empty, or the same number for each detection, one detection after the other.
    pub keypoints: Vec<Keypoint>,
    /// Instance masks; empty, or one for each detection.
    pub masks: Vec<Mask>,
    /// Track of each detection, where tracking is enabled; empty, or one entry for each detection.
    pub tracks: Vec<Option<TrackId>>,
    /// Classes of the whole frame, best score first.
    pub classes: Vec<ClassScore>,
    /// Semantic segmentation: the class of each cell.
    pub class_map: ClassMap,
    /// Embedding that identifies the object in the frame: a unit vector.
    pub embedding: Vec<f32>,
    /// Raw output tensors that no head decodes.
    pub tensors: Vec<RawTensor>,
    /// Number of values left out because the model gave no finite number: candidates for detections, keypoints,
    /// classes, cells of a map, or an embedding. Raw tensors leave nothing out: there it is the number of elements that
    /// are not finite.
    pub not_finite: u64,
}

impl InferenceResult {
    /// Empties all fields but keeps their memory; `tensors` stay, and the head overwrites them.
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

    /// Shifts all coordinates by whole pixels, from those of a part of a frame to those of the frame: to the right by
    /// `x`, down by `y`. A class map is not changed and still covers only the part.
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

    /// Returns the number of keypoints of each detection.
    pub fn keypoints_each(&self) -> usize {
        self.keypoints.len().checked_div(self.detections.len()).unwrap_or(0)
    }
}
