//! Detectors with suppression inside the graph (YOLOv10, YOLO26, YOLO exports with `nms=True`): rows of `[x1, y1, x2,
//! y2, score, class]` in model pixels, best first; empty rows have a score of 0.

use orinoco_core::{BoxF, Detection, Dim, InferenceResult, TensorDesc};

use super::{
    Guess, Head, HeadDescriptor, HeadKind, HeadSamples, HeadSpec, Output, add, check_axes, fixed_after_batch,
    is_candidate, only,
};
use crate::nms::keep_best;
use crate::{Fit, InputSpec, Mapping, Rounding};

pub(super) const KIND: HeadKind = HeadKind(&DESCRIPTOR);

static DESCRIPTOR: HeadDescriptor = HeadDescriptor {
    rounding: Rounding::Nearest,
    reads_ultralytics: true,
    ..HeadDescriptor::usual("end2end", build, guess, SAMPLES)
};

const VALUES: usize = 6;
/// Number of classes in COCO's models; the graph does not show it.
const CLASSES_USUAL: usize = 80;

struct End2End {
    spec: HeadSpec,
}

fn build(spec: &HeadSpec, _: &InputSpec, outputs: &[TensorDesc]) -> Result<Box<dyn Head>, String> {
    check_axes(only(outputs, KIND.name)?, &[Dim::Dynamic, Dim::Dynamic, Dim::Fixed(VALUES)])?;
    Ok(Box::new(End2End { spec: spec.clone() }))
}

fn guess(input: &InputSpec, outputs: &[TensorDesc]) -> Option<Guess> {
    let [output] = outputs else { return None };
    let [_, values] = fixed_after_batch(output)?;
    let head = HeadSpec::new(KIND, CLASSES_USUAL);
    let guess = Guess::new(head, input).unit_rgb(Fit::Letterbox);
    (values == VALUES).then(|| guess.unsure("classes", "outputs after NMS do not show the number of classes"))
}

impl Head for End2End {
    fn decode(
        &mut self,
        outputs: &[Output<'_>],
        item: usize,
        mapping: &Mapping,
        found: &mut InferenceResult,
    ) {
        for row in outputs[0].item(item).chunks_exact(VALUES) {
            // Rows with a negative class are empty.
            if is_candidate(row[4], &self.spec) && (row[5] >= 0.0 || row[5].is_nan()) {
                let bounds = mapping.to_source(BoxF { x1: row[0], y1: row[1], x2: row[2], y2: row[3] });
                add_labelled(found, row[5], Detection { class_id: 0, score: row[4], bounds });
            }
        }
        keep_best(&mut found.detections, self.spec.detections_max);
    }
}

/// Adds a candidate whose class is `label`, a float that is a class index and not negative.
pub(super) fn add_labelled(found: &mut InferenceResult, label: f32, candidate: Detection) {
    if label.is_finite() {
        add(found, Detection { class_id: label as u32, ..candidate });
    } else {
        found.not_finite += 1;
    }
}

/// Models that the suite of heads feeds.
const SAMPLES: HeadSamples = HeadSamples::published(80, 640, &[("output0", &[1, 300, 6])])
    .finding(2, &[("y", &[1, 2, 6], &[1.0, 2.0, 9.0, 9.0, 0.7, 1.0])]);

#[cfg(test)]
mod tests {
    use super::super::tests::decode;
    use super::*;

    #[test]
    fn rows_are_taken_as_they_are() {
        let rows = [1.0, 2.0, 3.0, 4.0, 0.5, 7.0, 1.0, 2.0, 3.0, 4.0, 0.9, 7.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        let found = decode(&HeadSpec::new(KIND, 80), (32, 32), &[("output0", &[1, 3, 6], &rows)]);
        let bounds = BoxF { x1: 2.0, y1: 4.0, x2: 6.0, y2: 8.0 };
        let at = |score| Detection { class_id: 7, score, bounds };
        assert_eq!(found.detections, [at(0.9), at(0.5)]);
    }
}
