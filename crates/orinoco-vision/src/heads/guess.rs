//! Settings that heads share in their guesses.

use orinoco_core::ColorOrder;

use super::{Guess, HeadSpec};
use crate::{Align, Fit, InputSpec};

impl Guess {
    pub(super) fn new(head: HeadSpec, input: &InputSpec) -> Self {
        let input = InputSpec { rounding: head.kind.rounding, ..input.clone() };
        Self { head, input, unsure: Vec::new() }
    }

    /// Sets RGB from 0 to 1, which most models are trained with.
    pub(super) fn unit_rgb(mut self, fit: Fit) -> Self {
        self.input.scale = [1.0 / 255.0; 3];
        self.fit(fit)
    }

    /// Sets BGR, for models trained with OpenCV.
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
