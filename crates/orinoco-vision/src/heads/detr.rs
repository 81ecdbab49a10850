//! Detection transformers (DETR, RT-DETR): a fixed number of queries, no suppression. Either `logits`
//! `[n, queries, classes]` with `pred_boxes` `[n, queries, 4]`, or one output `[n, queries, 4 + classes]` whose scores are
//! already probabilities (Ultralytics). Boxes are centre and size as fractions of the picture.

use orinoco_core::{Detection, Dim, Findings, TensorDesc};

use super::yolov5::from_center;
use super::{
    Activation, Guess, Head, HeadKind, HeadSpec, Output, best, check_axes, fixed_after_batch, sigmoid,
};
use crate::nms::sort_by_score;
use crate::{Fit, InputSpec, Mapping};

pub(super) const KIND: HeadKind = HeadKind { name: "detr", build, guess };

const BOX_VALUES: usize = 4;
/// What the published models have.
const QUERIES_USUAL: usize = 300;

struct Detr {
    spec: HeadSpec,
    /// Indices of the outputs with class values and with boxes; the same where both are in one.
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
        _ => return Err(format!("it has {} outputs, where detr has 1 or 2", outputs.len())),
    };
    let model = (input.width as f32, input.height as f32);
    Ok(Box::new(Detr { spec: spec.clone(), scores, boxes, model }))
}

fn guess(input: &InputSpec, outputs: &[TensorDesc]) -> Option<Guess> {
    let guess = |classes| Guess::new(HeadSpec::new(KIND.name, classes), input).unit_rgb(Fit::Stretch);
    match outputs {
        [both] => {
            let [queries, values] = fixed_after_batch(both)?;
            let classes = values.checked_sub(BOX_VALUES).filter(|classes| *classes > 2)?;
            let why = "any 300 rows of boxes and scores look like this";
            (queries == QUERIES_USUAL).then(|| guess(classes).unsure("head", why))
        }
        [first, second] => {
            let logits = [first, second].into_iter().find(|output| output.name.contains("logits"))?;
            let [_, classes] = fixed_after_batch(logits)?;
            Some(guess(classes).unsure("fit", "RT-DETR is trained on stretched pictures, DETR is not"))
        }
        _ => None,
    }
}

impl Head for Detr {
    fn decode(&mut self, outputs: &[Output<'_>], item: usize, mapping: &Mapping, found: &mut Findings) {
        let together = self.scores == self.boxes;
        let skip = if together { BOX_VALUES } else { 0 };
        let scores = outputs[self.scores].item(item).chunks_exact(skip + self.spec.classes);
        let boxes =
            outputs[self.boxes].item(item).chunks_exact(if together { skip + self.spec.classes } else { 4 });
        for (scores, place) in scores.zip(boxes) {
            let (class_id, value) = best(&scores[skip..]);
            let score = match self.spec.activation {
                Activation::None => value,
                Activation::Auto if together => value,
                _ => sigmoid(value),
            };
            if score > self.spec.score_threshold && self.spec.background != Some(class_id) {
                let (w, h) = self.model;
                let pixels = [place[0] * w, place[1] * h, place[2] * w, place[3] * h];
                let bounds = mapping.to_source(from_center(&pixels));
                found.detections.push(Detection { class_id, score, bounds });
            }
        }
        sort_by_score(&mut found.detections);
        found.detections.truncate(self.spec.detections_max);
    }
}

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
        let found = decode(&HeadSpec::new("detr", 2), (32, 16), &outputs);
        assert_eq!(found.detections, [Detection { class_id: 1, score: 0.5, bounds }]);
        let one: [f32; 6] = [0.5, 0.5, 0.5, 0.5, 0.2, 0.7];
        let found = decode(&HeadSpec::new("detr", 2), (32, 16), &[("output0", &[1, 1, 6], &one)]);
        assert_eq!(found.detections, [Detection { class_id: 1, score: 0.7, bounds }]);
    }
}
