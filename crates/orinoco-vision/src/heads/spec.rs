//! The settings of a head.

use orinoco_core::{Activation, Choice};

use super::HeadKind;
use crate::Across;

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

/// How a box is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoxForm {
    /// `x1, y1, x2, y2`.
    Corners,
    /// `centre x, centre y, width, height`.
    Center,
}

impl Choice for BoxForm {
    const ALL: &'static [Self] = &[Self::Corners, Self::Center];

    fn name(self) -> &'static str {
        match self {
            Self::Corners => "corners",
            Self::Center => "center",
        }
    }
}

/// The unit of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoxUnit {
    /// 0 to 1 of the model's input.
    Fraction,
    /// Pixels of the model's input.
    Pixels,
}

impl Choice for BoxUnit {
    const ALL: &'static [Self] = &[Self::Fraction, Self::Pixels];

    fn name(self) -> &'static str {
        match self {
            Self::Fraction => "fraction",
            Self::Pixels => "pixels",
        }
    }
}
