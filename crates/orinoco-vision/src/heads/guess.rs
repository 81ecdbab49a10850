//! What a model without a description most likely is.

use orinoco_core::ColorOrder;

use super::HeadSpec;
use crate::{Align, Fit, InputSpec};

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

impl Guess {
    pub(super) fn new(head: HeadSpec, input: &InputSpec) -> Self {
        let input = InputSpec { rounding: head.kind.rounding, ..input.clone() };
        Self { head, input, unsure: Vec::new() }
    }

    /// RGB from 0 to 1, as most trainers feed.
    pub(super) fn unit_rgb(mut self, fit: Fit) -> Self {
        self.input.scale = [1.0 / 255.0; 3];
        self.fit(fit)
    }

    /// BGR, as models trained with OpenCV see it.
    pub(super) fn bgr(mut self) -> Self {
        if self.input.color != ColorOrder::Gray {
            self.input.color = ColorOrder::Bgr;
        }
        self
    }

    pub(super) fn fit(mut self, fit: Fit) -> Self {
        self.input.fit = fit;
        self.input.align = Align::Center;
        self
    }

    pub(super) fn unsure(mut self, key: &'static str, why: &'static str) -> Self {
        self.unsure.push((key, why));
        self
    }
}
