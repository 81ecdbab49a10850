//! Single-shot detectors (UltraFace, SSD exports) that decode boxes in the graph: `[n, priors, classes]` scores and
//! `[n, priors, 4]` boxes, in either order of outputs.

use orinoco_core::{BoxF, Detection, Dim, InferenceResult, TensorDesc};

use super::yolov5::from_center;
use super::{
    BoxForm, BoxUnit, Guess, Head, HeadDescriptor, HeadKind, HeadSamples, HeadSpec, Output, add, check_axes,
    fixed_after_batch, is_candidate, suppress_as,
};
use crate::{Fit, InputSpec, Mapping};

pub(super) const KIND: HeadKind = HeadKind(&DESCRIPTOR);

static DESCRIPTOR: HeadDescriptor = HeadDescriptor::usual("ssd", build, guess, SAMPLES);

struct Ssd {
    spec: HeadSpec,
    scores: usize,
    boxes: usize,
    /// Model pixels per unit of the boxes, along x and y.
    unit: (f32, f32),
}

/// Returns the indices of the scores and of the boxes. The boxes are the output of 4 values; if both have 4, the one
/// with "box" in its name.
fn scores_and_boxes(outputs: &[TensorDesc]) -> Option<(usize, usize)> {
    let [first, second] = outputs else { return None };
    let four = |output: &TensorDesc| output.shape.last().is_some_and(|axis| axis.accepts(4));
    let called = |output: &TensorDesc| output.name.to_lowercase().contains("box");
    match (four(first), four(second)) {
        (true, false) => Some((1, 0)),
        (false, true) => Some((0, 1)),
        (true, true) if called(first) => Some((1, 0)),
        (true, true) => Some((0, 1)),
        (false, false) => None,
    }
}

fn build(spec: &HeadSpec, input: &InputSpec, outputs: &[TensorDesc]) -> Result<Box<dyn Head>, String> {
    let found = scores_and_boxes(outputs);
    let (scores, boxes) =
        found.ok_or("ssd needs two outputs, scores [n, priors, classes] and boxes [n, priors, 4]")?;
    check_axes(&outputs[scores], &[Dim::Dynamic, Dim::Dynamic, Dim::Fixed(spec.classes)])?;
    check_axes(&outputs[boxes], &[Dim::Dynamic, Dim::Dynamic, Dim::Fixed(4)])?;
    let unit = match spec.box_unit {
        BoxUnit::Fraction => (input.width as f32, input.height as f32),
        BoxUnit::Pixels => (1.0, 1.0),
    };
    Ok(Box::new(Ssd { spec: spec.clone(), scores, boxes, unit }))
}

fn guess(input: &InputSpec, outputs: &[TensorDesc]) -> Option<Guess> {
    let (scores, boxes) = scores_and_boxes(outputs)?;
    let ([priors, classes], [places, 4]) =
        (fixed_after_batch(&outputs[scores])?, fixed_after_batch(&outputs[boxes])?)
    else {
        return None;
    };
    let head = HeadSpec { background: Some(0), score_threshold: 0.5, ..HeadSpec::new(KIND, classes) };
    let mut guess = Guess::new(head, input).fit(Fit::Stretch);
    guess.input.mean = [127.0; 3];
    guess.input.scale = [1.0 / 128.0; 3];
    (priors == places && classes > 1).then(|| {
        guess
            .unsure("boxes", "corners as fractions of the image; others give centres or pixels")
            .unsure("background", "class 0, as most SSDs have it")
            .unsure("mean", "(x - 127) / 128, as UltraFace and MobileNet-SSD; the graph does not show it")
            .unsure("fit", "SSDs are usually trained on stretched images")
    })
}

impl Head for Ssd {
    fn decode(
        &mut self,
        outputs: &[Output<'_>],
        item: usize,
        mapping: &Mapping,
        found: &mut InferenceResult,
    ) {
        let scores = outputs[self.scores].item(item).chunks_exact(self.spec.classes);
        let boxes = outputs[self.boxes].item(item).as_chunks::<4>().0;
        for (scores, place) in scores.zip(boxes) {
            for (class_id, score) in (0u32..).zip(scores) {
                if is_candidate(*score, &self.spec) && self.spec.background != Some(class_id) {
                    let bounds = mapping.to_source(place_in_pixels(&self.spec, *place, self.unit));
                    add(found, Detection { class_id, score: *score, bounds });
                }
            }
        }
        suppress_as(&self.spec, &mut found.detections);
    }
}

/// Converts a box in the spec's format and unit to corners in model pixels.
pub(super) fn place_in_pixels(spec: &HeadSpec, [a, b, c, d]: [f32; 4], unit: (f32, f32)) -> BoxF {
    let place = [a * unit.0, b * unit.1, c * unit.0, d * unit.1];
    match spec.boxes {
        BoxForm::Corners => BoxF { x1: place[0], y1: place[1], x2: place[2], y2: place[3] },
        BoxForm::Center => from_center(&place),
    }
}

/// Models that the suite of heads feeds.
const SAMPLES: HeadSamples =
    HeadSamples::published(81, 300, &[("scores", &[1, 8732, 81]), ("boxes", &[1, 8732, 4])])
        .finding(2, &[("scores", &[1, 3, 2], &[0.7, 0.2]), ("pred_boxes", &[1, 3, 4], &[0.5])]);

#[cfg(test)]
mod tests {
    use super::super::tests::decode;
    use super::*;

    #[test]
    fn the_background_is_not_reported() {
        let spec = HeadSpec { background: Some(0), ..HeadSpec::new(KIND, 2) };
        let scores = [0.1, 0.9, 0.8, 0.2];
        let boxes = [0.25, 0.5, 0.5, 1.0, 0.0, 0.0, 1.0, 1.0];
        let outputs: [(&str, &[usize], &[f32]); 2] =
            [("scores", &[1, 2, 2], &scores), ("boxes", &[1, 2, 4], &boxes)];
        let found = decode(&spec, (32, 16), &outputs);
        let bounds = BoxF { x1: 16.0, y1: 16.0, x2: 32.0, y2: 32.0 };
        assert_eq!(found.detections, [Detection { class_id: 1, score: 0.9, bounds }]);
        let spec = HeadSpec { boxes: BoxForm::Center, box_unit: BoxUnit::Pixels, ..spec };
        let outputs: [(&str, &[usize], &[f32]); 2] =
            [("boxes", &[1, 1, 4], &[8.0, 8.0, 4.0, 2.0]), ("scores", &[1, 1, 2], &scores)];
        let bounds = BoxF { x1: 12.0, y1: 14.0, x2: 20.0, y2: 18.0 };
        assert_eq!(decode(&spec, (32, 16), &outputs).detections[0].bounds, bounds);
    }
}
