//! Kinds of heads, what each of them declares about itself, and the settings of one.

use std::fmt;
use std::ops::Deref;

use orinoco_core::{Activation, TensorDesc};

use super::{BoxForm, BoxUnit, Head};
use crate::{Across, InputSpec, Rounding};

/// A kind of head, one of [`ALL`](super::ALL): a handle to what its file declares. Kinds of one name are equal.
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

/// What a head finds in a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadResultKind {
    /// Boxes with classes.
    Boxes,
    /// Boxes with classes and masks.
    Instances,
    /// Classes of the whole picture.
    Classes,
    /// A class for each cell of a map.
    ClassMap,
    /// A vector of unit length.
    Embedding,
    /// The outputs as they are.
    Tensors,
}

/// How values lie in a head's only output, as far as there are kernels that read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputForm {
    /// One row for each cell of grids: box relative to the cell, objectness, class scores.
    GridRows,
    /// Rows of box in model pixels, objectness and class scores.
    PixelRows,
    /// Channels before anchors: box in model pixels, class scores.
    Channels,
    /// One value for each class.
    Classes,
    /// A form that no kernel reads.
    Other,
}

/// Makes a head for a model with these outputs, or returns what does not fit.
pub type Build = fn(&HeadSpec, &InputSpec, &[TensorDesc]) -> Result<Box<dyn Head>, String>;

/// Returns what a model without a description would be if its outputs look like this head's. The input is what the graph
/// shows: size, layout and channels.
pub type GuessModel = fn(&InputSpec, &[TensorDesc]) -> Option<Guess>;

/// What a head declares about itself, in its own file.
pub struct HeadDescriptor {
    /// Name in model files.
    pub name: &'static str,
    /// What it finds.
    pub finds: HeadResultKind,
    /// Form of its output.
    pub form: OutputForm,
    /// Usual cell sizes in model pixels, finest first; empty where it has no usual ones.
    pub strides: &'static [u32],
    /// Usual score at or below which detections and classes are dropped.
    pub score_threshold: f32,
    /// Usual unit of boxes.
    pub box_unit: BoxUnit,
    /// Whether a box is usually reported once for each class above the threshold.
    pub multi_label: bool,
    /// How the trainers of its models round the sides of a letterboxed picture (docs/model-files.md has the table). Those
    /// that never letterbox cut the exact product.
    pub rounding: Rounding,
    /// Whether Ultralytics exports detectors of this form.
    pub reads_ultralytics: bool,
    /// Whether these outputs, which have no axis for the batch, are a whole result for a single picture.
    pub takes_whole: fn(&[TensorDesc]) -> bool,
    /// Corrects a guess of this head by the keypoints that the trainer noted in the file. Returns whether they fit.
    pub settle_keypoints: fn(&mut HeadSpec, &[TensorDesc], KeypointShape) -> bool,
    /// Guesses a model of this head.
    pub guess: GuessModel,
    /// Makes one.
    pub build: Build,
}

impl HeadDescriptor {
    /// A detector with what most of them have. Each file adds what is different in its head.
    pub(super) const fn usual(name: &'static str, build: Build, guess: GuessModel) -> Self {
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
        }
    }

    /// Whether its results name classes, so that its description must.
    pub fn has_classes(&self) -> bool {
        !matches!(self.finds, HeadResultKind::Embedding | HeadResultKind::Tensors)
    }

    /// Whether it finds boxes.
    pub fn has_boxes(&self) -> bool {
        matches!(self.finds, HeadResultKind::Boxes | HeadResultKind::Instances)
    }
}

/// How to read a model's outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadSpec {
    /// Kind of head.
    pub kind: HeadKind,
    /// Number of classes.
    pub classes: usize,
    /// Cell sizes in model pixels, finest first; empty where the head has usual ones.
    pub strides: Vec<u32>,
    /// What scores this or less is dropped: one rule for all heads, the one of the published decoders.
    pub score_threshold: f32,
    /// Boxes of one class that overlap a better one by more than this are dropped.
    pub iou_threshold: f32,
    /// The most detections of one frame.
    pub detections_max: usize,
    /// Whether boxes of different classes hide one another.
    pub across: Across,
    /// Whether a box is reported once for each class above the threshold, as COCO's evaluations do, or only for its best.
    pub multi_label: bool,
    /// What turns the model's class values into probabilities.
    pub activation: Activation,
    /// The class that means "nothing", which is never reported.
    pub background: Option<u32>,
    /// The most classes reported of a whole frame.
    pub top: usize,
    /// How boxes are written, where a head allows several ways.
    pub boxes: BoxForm,
    /// The unit of boxes, where a head allows several.
    pub box_unit: BoxUnit,
    /// Values of a keypoint: x and y (2), and visibility (3). `None`: what the number of all of them says, which is 3 where
    /// both divide it.
    pub keypoint_values: Option<usize>,
}

impl HeadSpec {
    /// A spec with the settings that most models of the field use.
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

    /// The strides given, else the head's usual ones.
    pub fn strides_or_usual(&self) -> &[u32] {
        if self.strides.is_empty() { self.kind.strides } else { &self.strides }
    }
}

/// What a graph looks like, and what of that is not certain.
#[derive(Clone, Debug, PartialEq)]
pub struct Guess {
    /// How to read the outputs.
    pub head: HeadSpec,
    /// What the head's models usually want to see.
    pub input: InputSpec,
    /// Keys of the description that the graph does not prove, each with the reason.
    pub unsure: Vec<(&'static str, &'static str)>,
}

/// Keypoints of an object, as a trainer noted them in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeypointShape {
    /// Number of keypoints.
    pub count: usize,
    /// Values of each.
    pub values: usize,
}
