//! Kinds of heads with their defaults, and the settings of a head.

use std::fmt;
use std::ops::Deref;

use orinoco_core::{Activation, TensorDesc};

use super::{BoxForm, BoxUnit, Head, HeadSamples};
use crate::{Across, InputSpec, Rounding};

/// Kind of head, one of [`ALL`](super::ALL): a handle to the descriptor in its file. Kinds of one name are equal.
#[derive(Clone, Copy)]
pub struct HeadKind(pub(super) &'static HeadDescriptor);

impl Deref for HeadKind {
    type Target = HeadDescriptor;

    fn deref(&self) -> &HeadDescriptor {
        self.0
    }
}

impl PartialEq for HeadKind {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for HeadKind {}

impl fmt::Debug for HeadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Kind of thing that a head finds in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadResultKind {
    /// Boxes with classes (detection).
    Boxes,
    /// Boxes with classes and masks (instance segmentation).
    Instances,
    /// Classes of the whole image (classification).
    Classes,
    /// Class of each cell of a map (semantic segmentation).
    ClassMap,
    /// Embedding: a vector of unit length.
    Embedding,
    /// Raw output tensors.
    Tensors,
}

/// Layout of values in a head's only output, as far as there are kernels that read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputForm {
    /// One row for each cell of the grids: box relative to the cell, objectness, class scores.
    GridRows,
    /// Rows of box in model pixels, objectness and class scores.
    PixelRows,
    /// Channels before anchors: box in model pixels, class scores.
    Channels,
    /// One value for each class.
    Classes,
    /// Layout that no kernel reads.
    Other,
}

/// Function that builds a head for a model with these outputs, or returns the reason why they do not fit.
pub type Build = fn(&HeadSpec, &InputSpec, &[TensorDesc]) -> Result<Box<dyn Head>, String>;

/// Function that guesses the description of a model if its outputs may belong to this head. The given input is the one
/// that the graph shows: size, layout and channels.
pub type GuessModel = fn(&InputSpec, &[TensorDesc]) -> Option<Guess>;

/// Declaration of a head, which stands in its own file.
pub struct HeadDescriptor {
    /// Name in model files.
    pub name: &'static str,
    /// Kind of thing that it finds.
    pub finds: HeadResultKind,
    /// Layout of its output.
    pub form: OutputForm,
    /// Default cell sizes in model pixels, finest first; empty where it has none.
    pub strides: &'static [u32],
    /// Default score threshold: detections and classes at or below it are dropped.
    pub score_threshold: f32,
    /// Default unit of boxes.
    pub box_unit: BoxUnit,
    /// Whether a box is reported once for each class above the threshold by default.
    pub multi_label: bool,
    /// Rounding of a letterboxed image's sides, as the trainers of its models do it (docs/model-files.md has the table).
    /// Those that never letterbox cut the exact product.
    pub rounding: Rounding,
    /// Whether Ultralytics exports detectors of this form.
    pub reads_ultralytics: bool,
    /// Whether outputs without a batch axis are a whole result for a single image.
    pub takes_whole: fn(&[TensorDesc]) -> bool,
    /// Corrects a guess of this head by the keypoints that the trainer noted in the file. Returns whether they fit.
    pub settle_keypoints: fn(&mut HeadSpec, &[TensorDesc], KeypointShape) -> bool,
    /// Guesses the description of a model with this head.
    pub guess: GuessModel,
    /// Builds the head.
    pub build: Build,
    /// Models that the suite of heads feeds.
    pub samples: HeadSamples,
}

impl HeadDescriptor {
    /// Returns the descriptor of a detector with the most common settings. Each file adds the differences of its head.
    pub(super) const fn usual(
        name: &'static str,
        build: Build,
        guess: GuessModel,
        samples: HeadSamples,
    ) -> Self {
        Self {
            name,
            finds: HeadResultKind::Boxes,
            form: OutputForm::Other,
            strides: &[],
            score_threshold: 0.3,
            box_unit: BoxUnit::Fraction,
            multi_label: false,
            rounding: Rounding::Exact,
            reads_ultralytics: false,
            takes_whole: |_| false,
            settle_keypoints: |_, _, _| false,
            guess,
            build,
            samples,
        }
    }

    /// Whether results have classes, so that a description must name them.
    pub fn has_classes(&self) -> bool {
        !matches!(self.finds, HeadResultKind::Embedding | HeadResultKind::Tensors)
    }

    /// Whether results have boxes.
    pub fn has_boxes(&self) -> bool {
        matches!(self.finds, HeadResultKind::Boxes | HeadResultKind::Instances)
    }
}

/// Settings for reading a model's outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadSpec {
    /// Kind of head.
    pub kind: HeadKind,
    /// Number of classes.
    pub classes: usize,
    /// Cell sizes in model pixels, finest first; empty uses the head's default.
    pub strides: Vec<u32>,
    /// Score at or below which results are dropped: one rule for all heads, the one of the published decoders.
    pub score_threshold: f32,
    /// IoU threshold of non-maximum suppression: a box that overlaps a better one of its class by more is dropped.
    pub iou_threshold: f32,
    /// Maximum number of detections in one image.
    pub detections_max: usize,
    /// Whether boxes of different classes suppress one another.
    pub across: Across,
    /// Whether a box is reported once for each class above the threshold, as COCO's evaluations do, or only for its
    /// best class.
    pub multi_label: bool,
    /// Function that turns the model's class values into probabilities.
    pub activation: Activation,
    /// Class that means "nothing" and is never reported.
    pub background: Option<u32>,
    /// Maximum number of classes reported for a whole image.
    pub top: usize,
    /// Form in which boxes are written, where a head allows several ways.
    pub boxes: BoxForm,
    /// Unit of boxes, for heads that allow several.
    pub box_unit: BoxUnit,
    /// Number of values of a keypoint: 2 (x and y) or 3 (and visibility). `None` derives it from the number of all
    /// values, as 3 where both divide it.
    pub keypoint_values: Option<usize>,
}

impl HeadSpec {
    /// Creates a spec with the most common settings.
    pub fn new(kind: HeadKind, classes: usize) -> Self {
        Self {
            kind,
            classes,
            strides: Vec::new(),
            score_threshold: kind.score_threshold,
            iou_threshold: 0.45,
            detections_max: 300,
            across: Across::NoClasses,
            multi_label: kind.multi_label,
            activation: Activation::Auto,
            background: None,
            top: 5,
            boxes: BoxForm::Corners,
            box_unit: kind.box_unit,
            keypoint_values: None,
        }
    }

    /// Returns the strides of the spec, else the head's default.
    pub fn strides_or_usual(&self) -> &[u32] {
        if self.strides.is_empty() { self.kind.strides } else { &self.strides }
    }
}

/// Model that a graph looks like, and what of that is not certain.
#[derive(Clone, Debug, PartialEq)]
pub struct Guess {
    /// Settings for reading the outputs.
    pub head: HeadSpec,
    /// Input that the head's models usually want.
    pub input: InputSpec,
    /// Keys of the description that the graph does not confirm, each with the reason.
    pub unsure: Vec<(&'static str, &'static str)>,
}

/// Keypoints of an object, as a trainer noted them in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeypointShape {
    /// Number of keypoints.
    pub count: usize,
    /// Number of values of each keypoint.
    pub values: usize,
}
