//! FastestDet: one grid, `[n, 5 + classes, h, w]`: objectness, `dx, dy` (through tanh), `w, h` (through the logistic
//! function) as fractions of the frame, class scores. The score is objectness^0.6 x class^0.4, as in the author's code.

use orinoco_core::{BoxF, Detection, Dim, InferenceResult, TensorDesc};

use super::{
    Guess, Head, HeadDescriptor, HeadKind, HeadSamples, HeadSpec, Output, add, check_axes, fixed_after_batch,
    is_candidate, labels_above, only, sigmoid, suppress_as,
};
use crate::{Fit, InputSpec, Mapping};

pub(super) const KIND: HeadKind = HeadKind(&DESCRIPTOR);

static DESCRIPTOR: HeadDescriptor =
    HeadDescriptor { strides: &[STRIDE], ..HeadDescriptor::usual("fastestdet", build, guess, SAMPLES) };

/// Number of values before the classes: objectness and box.
const BOX_VALUES: usize = 5;
const STRIDE: u32 = 16;
const COCO_CLASSES: usize = 80;

struct FastestDet {
    spec: HeadSpec,
    model: (f32, f32),
    /// Class values of one cell.
    classes: Vec<f32>,
}

fn build(spec: &HeadSpec, input: &InputSpec, outputs: &[TensorDesc]) -> Result<Box<dyn Head>, String> {
    let channels = Dim::Fixed(BOX_VALUES + spec.classes);
    check_axes(only(outputs, KIND.name)?, &[Dim::Dynamic, channels, Dim::Dynamic, Dim::Dynamic])?;
    let model = (input.width as f32, input.height as f32);
    Ok(Box::new(FastestDet { spec: spec.clone(), model, classes: Vec::new() }))
}

fn guess(input: &InputSpec, outputs: &[TensorDesc]) -> Option<Guess> {
    let [output] = outputs else { return None };
    let [channels, rows, columns] = fixed_after_batch(output)?;
    let grid = ((input.height / STRIDE) as usize, (input.width / STRIDE) as usize);
    let fits = channels == BOX_VALUES + COCO_CLASSES && (rows, columns) == grid;
    let head = HeadSpec { score_threshold: 0.5, ..HeadSpec::new(KIND, COCO_CLASSES) };
    fits.then(|| {
        let guess = Guess::new(head, input).unit_rgb(Fit::Stretch).bgr();
        let guess = guess.unsure("head", "a segmentation into 85 classes has the same shape");
        guess
            .unsure("color", "FastestDet is trained on BGR")
            .unsure("fit", "FastestDet is trained on stretched images")
    })
}

impl Head for FastestDet {
    fn decode(
        &mut self,
        outputs: &[Output<'_>],
        item: usize,
        mapping: &Mapping,
        found: &mut InferenceResult,
    ) {
        let [_, _, rows, columns] = *outputs[0].shape else { return };
        let (values, cells) = (outputs[0].item(item), rows * columns);
        let at = |channel: usize, cell: usize| values[channel * cells + cell];
        for cell in 0..cells {
            let objectness = not_negative(at(0, cell)).powf(0.6);
            if !is_candidate(objectness, &self.spec) {
                continue;
            }
            let [dx, dy, w, h] = [1, 2, 3, 4].map(|channel| number(at(channel, cell)));
            let cx = ((cell % columns) as f32 + dx.tanh()) / columns as f32;
            let cy = ((cell / columns) as f32 + dy.tanh()) / rows as f32;
            let (w, h) = (sigmoid(w) / 2.0, sigmoid(h) / 2.0);
            let (mw, mh) = self.model;
            let bounds = BoxF { x1: (cx - w) * mw, y1: (cy - h) * mh, x2: (cx + w) * mw, y2: (cy + h) * mh };
            let bounds = mapping.to_source(bounds);
            self.classes.clear();
            self.classes.extend((0..self.spec.classes).map(|class| at(BOX_VALUES + class, cell)));
            let score_of = |class: f32| objectness * not_negative(class).powf(0.4);
            labels_above(&self.spec, &self.classes, score_of, |class_id, score| {
                add(found, Detection { class_id, score, bounds });
            });
        }
        suppress_as(&self.spec, &mut found.detections);
    }
}

/// Returns `value`, but at least 0; NaN stays NaN.
fn not_negative(value: f32) -> f32 {
    if value < 0.0 { 0.0 } else { value }
}

/// Returns NaN in place of an infinity, which bounded functions would turn into an ordinary value.
fn number(value: f32) -> f32 {
    if value.is_infinite() { f32::NAN } else { value }
}

/// Models that the suite of heads feeds.
const SAMPLES: HeadSamples =
    HeadSamples::published(80, 352, &[("758", &[1, 85, 22, 22])]).finding(2, &[("y", &[1, 7, 2, 2], &[0.7])]);

#[cfg(test)]
mod tests {
    use super::super::tests::decode;
    use super::*;

    #[test]
    fn one_lit_cell_is_one_box() {
        // Two cells side by side, one class: the right one is active, and its box is half the frame wide and high.
        let data = [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
        let found = decode(&HeadSpec::new(KIND, 1), (32, 16), &[("758", &[1, 6, 1, 2], &data)]);
        let bounds = BoxF { x1: 16.0, y1: -8.0, x2: 48.0, y2: 8.0 };
        assert_eq!(found.detections, [Detection { class_id: 0, score: 1.0, bounds }]);
    }
}
