//! Detectors with suppression inside the graph that list the results in three outputs: boxes `[found, 4]`, scores
//! `[found]` and labels `[found]` (torchvision), or the same with a batch axis first (RT-DETR's own export). Outputs
//! are recognised by their names (`box`, `score`, `label` or `class`), else by the order boxes, scores, labels. Boxes
//! are corners, in model pixels unless `box_unit` is set.

use orinoco_core::{Detection, Dim, InferenceResult, TensorDesc};

use super::end2end::add_labelled;
use super::ssd::place_in_pixels;
use super::{BoxUnit, Guess, Head, HeadDescriptor, HeadKind, HeadSamples, HeadSpec, Output, is_candidate};
use crate::nms::keep_best;
use crate::{Fit, InputSpec, Mapping};

pub(super) const KIND: HeadKind = HeadKind(&DESCRIPTOR);

static DESCRIPTOR: HeadDescriptor = HeadDescriptor {
    box_unit: BoxUnit::Pixels,
    takes_whole: is_flat,
    ..HeadDescriptor::usual("listed", build, guess, SAMPLES)
};

/// Number of classes: COCO's category ids go up to 90, and torchvision has the background as 0.
const CLASSES_USUAL: usize = 91;

struct Listed {
    spec: HeadSpec,
    boxes: usize,
    scores: usize,
    labels: usize,
    unit: (f32, f32),
}

/// Returns the indices of boxes, scores and labels.
fn roles(outputs: &[TensorDesc]) -> Option<[usize; 3]> {
    if outputs.len() != 3 {
        return None;
    }
    let named = |words: &[&str]| {
        let called = |output: &TensorDesc| words.iter().any(|word| output.name.to_lowercase().contains(word));
        outputs.iter().position(called)
    };
    let by_name = [named(&["box"]), named(&["score"]), named(&["label", "class"])];
    let by_order = [Some(0), Some(1), Some(2)];
    let [boxes, scores, labels] = if by_name.iter().all(Option::is_some) { by_name } else { by_order };
    let (boxes, scores, labels) = (boxes?, scores?, labels?);
    let rank = |index: usize| outputs[index].shape.len();
    let fits = outputs[boxes].shape.last()?.accepts(4)
        && [2, 3].contains(&rank(boxes))
        && rank(scores) + 1 == rank(boxes)
        && rank(labels) + 1 == rank(boxes);
    fits.then_some([boxes, scores, labels])
}

fn build(spec: &HeadSpec, input: &InputSpec, outputs: &[TensorDesc]) -> Result<Box<dyn Head>, String> {
    let [boxes, scores, labels] = roles(outputs)
        .ok_or("listed needs three outputs: boxes [found, 4], scores [found] and labels [found]")?;
    let unit = match spec.box_unit {
        BoxUnit::Fraction => (input.width as f32, input.height as f32),
        BoxUnit::Pixels => (1.0, 1.0),
    };
    Ok(Box::new(Listed { spec: spec.clone(), boxes, scores, labels, unit }))
}

/// Whether the lists have no batch axis.
fn is_flat(outputs: &[TensorDesc]) -> bool {
    roles(outputs).is_some_and(|[boxes, ..]| outputs[boxes].shape.len() == 2)
}

fn guess(input: &InputSpec, outputs: &[TensorDesc]) -> Option<Guess> {
    let [boxes, ..] = roles(outputs)?;
    let head = HeadSpec::new(KIND, CLASSES_USUAL);
    let known = outputs[boxes].shape.last() == Some(&Dim::Fixed(4));
    known.then(|| {
        let guess = Guess::new(head, input).unit_rgb(Fit::Stretch);
        guess
            .unsure("classes", "a list of detections does not show the number of classes")
            .unsure("fit", "torchvision resizes in the graph, others do not say")
    })
}

impl Head for Listed {
    fn decode(
        &mut self,
        outputs: &[Output<'_>],
        item: usize,
        mapping: &Mapping,
        found: &mut InferenceResult,
    ) {
        // Lists without a batch axis belong to the single image of their batch.
        let values = |index: usize| outputs[index].item(item);
        let (boxes, _) = values(self.boxes).as_chunks::<4>();
        for ((place, score), label) in boxes.iter().zip(values(self.scores)).zip(values(self.labels)) {
            let label = if *label < 0.0 { 0.0 } else { *label };
            let is_background = label.is_finite() && self.spec.background == Some(label as u32);
            if is_candidate(*score, &self.spec) && !is_background {
                let bounds = mapping.to_source(place_in_pixels(&self.spec, *place, self.unit));
                add_labelled(found, label, Detection { class_id: 0, score: *score, bounds });
            }
        }
        keep_best(&mut found.detections, self.spec.detections_max);
    }
}

/// Models that the suite of heads feeds.
const SAMPLES: HeadSamples =
    HeadSamples::published(91, 640, &[("boxes", &[300, 4]), ("scores", &[300]), ("labels", &[300])]).finding(
        2,
        &[("boxes", &[2, 4], &[1.0, 2.0, 9.0, 9.0]), ("scores", &[2], &[0.7]), ("labels", &[2], &[1.0])],
    );

#[cfg(test)]
mod tests {
    use super::super::tests::decode;
    use super::*;
    use orinoco_core::BoxF;

    #[test]
    fn lists_are_read_by_name() {
        let spec = HeadSpec::new(KIND, 91);
        let outputs: [(&str, &[usize], &[f32]); 3] = [
            ("labels", &[2], &[3.0, 1.0]),
            ("boxes", &[2, 4], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]),
            ("scores", &[2], &[0.9, 0.1]),
        ];
        let bounds = BoxF { x1: 2.0, y1: 4.0, x2: 6.0, y2: 8.0 };
        let found = decode(&spec, (32, 32), &outputs);
        assert_eq!(found.detections, [Detection { class_id: 3, score: 0.9, bounds }]);
    }
}
