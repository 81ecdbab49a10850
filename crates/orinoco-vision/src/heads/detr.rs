//! Detection transformers (DETR, RT-DETR): a fixed number of queries, no suppression. Either `logits` `[n, queries,
//! classes]` with `pred_boxes` `[n, queries, 4]`, or one output `[n, queries, 4 + classes]` whose scores are already
//! probabilities (Ultralytics). Boxes are centre and size as fractions of the image. Each class has a sigmoid of its
//! own; the original DETR has a softmax over all classes, of which the last one is "no object".

use orinoco_core::text::count;
use orinoco_core::{Activation, Detection, Dim, InferenceResult, TensorDesc};

use super::yolov5::from_center;
use super::{
    Guess, Head, HeadDescriptor, HeadKind, HeadSamples, HeadSpec, Output, add, best, check_axes,
    fixed_after_batch, is_candidate, probability,
};
use crate::nms::keep_best;
use crate::{Fit, InputSpec, Mapping};

pub(super) const KIND: HeadKind = HeadKind(&DESCRIPTOR);

static DESCRIPTOR: HeadDescriptor =
    HeadDescriptor { reads_ultralytics: true, ..HeadDescriptor::usual("detr", build, guess, SAMPLES) };

const BOX_VALUES: usize = 4;
/// Number of queries of most published models.
const QUERIES_USUAL: usize = 300;
/// Number of queries of the original DETR and of YOLOS.
const QUERIES_FIRST: usize = 100;
/// Number of classes of the original DETR: COCO's category ids up to 90, and "no object".
const CLASSES_FIRST: usize = 92;

struct Detr {
    spec: HeadSpec,
    /// Indices of the outputs with class values and with boxes; the same where one output has both.
    scores: usize,
    boxes: usize,
    model: (f32, f32),
}

fn build(spec: &HeadSpec, input: &InputSpec, outputs: &[TensorDesc]) -> Result<Box<dyn Head>, String> {
    let rows = |values| [Dim::Dynamic, Dim::Dynamic, Dim::Fixed(values)];
    let (scores, boxes) = match outputs {
        [both] => {
            check_axes(both, &rows(BOX_VALUES + spec.classes))?;
            (0, 0)
        }
        [first, _] => {
            let boxes =
                usize::from(check_axes(first, &rows(BOX_VALUES)).is_err() || first.name.contains("logits"));
            check_axes(&outputs[boxes], &rows(BOX_VALUES))?;
            check_axes(&outputs[1 - boxes], &rows(spec.classes))?;
            (1 - boxes, boxes)
        }
        _ => return Err(format!("it has {}, where detr has 1 or 2", count(outputs.len() as u64, "output"))),
    };
    let model = (input.width as f32, input.height as f32);
    Ok(Box::new(Detr { spec: spec.clone(), scores, boxes, model }))
}

fn guess(input: &InputSpec, outputs: &[TensorDesc]) -> Option<Guess> {
    let guess = |classes| Guess::new(HeadSpec::new(KIND, classes), input).unit_rgb(Fit::Stretch);
    match outputs {
        [both] => {
            let [queries, values] = fixed_after_batch(both)?;
            let classes = values.checked_sub(BOX_VALUES).filter(|classes| *classes > 2)?;
            let why = "other models with 300 boxes and scores have the same shape";
            (queries == QUERIES_USUAL).then(|| guess(classes).unsure("head", why))
        }
        [first, second] => {
            let logits = [first, second].into_iter().find(|output| output.name.contains("logits"))?;
            let [queries, classes] = fixed_after_batch(logits)?;
            let guess = guess(classes).unsure("fit", "RT-DETR is trained on stretched images, DETR is not");
            let is_first = queries == QUERIES_FIRST || classes == CLASSES_FIRST;
            Some(if is_first { with_softmax(guess) } else { guess })
        }
        _ => None,
    }
}

/// Makes a guess of the original DETR, whose last class is "no object".
fn with_softmax(mut guess: Guess) -> Guess {
    let last = guess.head.classes.checked_sub(1);
    guess.head.activation = Activation::Softmax;
    guess.head.background = last.and_then(|last| u32::try_from(last).ok());
    guess.unsure("activation", "the shape is that of models with a softmax and a last class \"no object\"")
}

impl Head for Detr {
    fn decode(
        &mut self,
        outputs: &[Output<'_>],
        item: usize,
        mapping: &Mapping,
        found: &mut InferenceResult,
    ) {
        let together = self.scores == self.boxes;
        let skip = if together { BOX_VALUES } else { 0 };
        let scores = outputs[self.scores].item(item).chunks_exact(skip + self.spec.classes);
        let boxes =
            outputs[self.boxes].item(item).chunks_exact(if together { skip + self.spec.classes } else { 4 });
        for (scores, place) in scores.zip(boxes) {
            let (class_id, score) = self.best_class(&scores[skip..], together);
            if is_candidate(score, &self.spec) && self.spec.background != Some(class_id) {
                let (w, h) = self.model;
                let pixels = [place[0] * w, place[1] * h, place[2] * w, place[3] * h];
                let bounds = mapping.to_source(from_center(&pixels));
                add(found, Detection { class_id, score, bounds });
            }
        }
        keep_best(&mut found.detections, self.spec.detections_max);
    }
}

impl Detr {
    /// Returns the best class of a query with its probability. With a softmax it is never the background: even where
    /// that is more likely, the next class counts.
    fn best_class(&self, values: &[f32], together: bool) -> (u32, f32) {
        match self.spec.activation {
            Activation::Softmax => {
                let (_, top) = best(values);
                let sum: f32 = values.iter().map(|value| (value - top).exp()).sum();
                let classes =
                    (0u32..).zip(values).filter(|(class_id, _)| self.spec.background != Some(*class_id));
                let found = classes.max_by(|a, b| a.1.total_cmp(b.1));
                found.map_or((0, 0.0), |(class_id, value)| (class_id, (value - top).exp() / sum))
            }
            activation => {
                let (class_id, value) = best(values);
                let is_probability =
                    activation == Activation::None || (activation == Activation::Auto && together);
                (class_id, if is_probability { value } else { probability(value) })
            }
        }
    }
}

/// Models that the suite of heads feeds.
const SAMPLES: HeadSamples =
    HeadSamples::published(80, 640, &[("logits", &[1, 300, 80]), ("pred_boxes", &[1, 300, 4])])
        .finding(2, &[("logits", &[1, 3, 2], &[0.7, 0.2]), ("pred_boxes", &[1, 3, 4], &[0.5])]);

#[cfg(test)]
mod tests {
    use super::super::tests::decode;
    use super::*;
    use orinoco_core::BoxF;

    #[test]
    fn queries_become_boxes() {
        let bounds = BoxF { x1: 16.0, y1: 8.0, x2: 48.0, y2: 24.0 };
        let outputs: [(&str, &[usize], &[f32]); 2] =
            [("logits", &[1, 2, 2], &[-9.0, 0.0, -9.0, -9.0]), ("pred_boxes", &[1, 2, 4], &[0.5; 8])];
        let found = decode(&HeadSpec::new(KIND, 2), (32, 16), &outputs);
        assert_eq!(found.detections, [Detection { class_id: 1, score: 0.5, bounds }]);
        let one: [f32; 6] = [0.5, 0.5, 0.5, 0.5, 0.2, 0.7];
        let found = decode(&HeadSpec::new(KIND, 2), (32, 16), &[("output0", &[1, 1, 6], &one)]);
        assert_eq!(found.detections, [Detection { class_id: 1, score: 0.7, bounds }]);
    }

    #[test]
    fn no_object_takes_part_in_the_softmax_and_is_not_reported() {
        let first =
            HeadSpec { activation: Activation::Softmax, background: Some(2), ..HeadSpec::new(KIND, 3) };
        let check = |logits: &[f32], class_id: u32, score: f32| {
            let outputs: [(&str, &[usize], &[f32]); 2] =
                [("logits", &[1, 1, 3], logits), ("pred_boxes", &[1, 1, 4], &[0.5; 4])];
            let found = decode(&first, (32, 16), &outputs);
            assert_eq!(found.detections.len(), 1, "{found:?}");
            let seen = found.detections[0];
            assert!(seen.class_id == class_id && (seen.score - score).abs() < 1e-4, "{seen:?}");
        };
        check(&[0.0, 3.0, 2.9], 1, 0.5116);
        check(&[0.0, 2.9, 3.0], 1, 0.4629);
        check(&[3.0, 0.0, 2.9], 0, 0.5116);
    }
}
