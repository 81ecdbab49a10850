//! Classification of the whole frame: `[n, classes]`, with or without axes of one after it.

use orinoco_core::{Activation, ClassScore, Dim, InferenceResult, Resize, TensorDesc};

use super::{
    Guess, Head, HeadDescriptor, HeadKind, HeadResultKind, HeadSamples, HeadSpec, Output, OutputForm,
    is_candidate, only, probability,
};
use crate::{Fit, InputSpec, Mapping};

/// The kind of this head.
pub const KIND: HeadKind = HeadKind(&DESCRIPTOR);

static DESCRIPTOR: HeadDescriptor = HeadDescriptor {
    finds: HeadResultKind::Classes,
    form: OutputForm::Classes,
    // Every class of an image is of interest, if only as the second guess.
    score_threshold: 0.0,
    ..HeadDescriptor::usual("classification", build, guess, SAMPLES)
};

/// Tolerance for the sum of values to be accepted as probabilities: rounding to 8 bits changes the sum of a dozen
/// classes by this much.
const SUM_SLACK: f32 = 0.05;

struct Classification {
    spec: HeadSpec,
    scores: Vec<f32>,
}

fn build(spec: &HeadSpec, _: &InputSpec, outputs: &[TensorDesc]) -> Result<Box<dyn Head>, String> {
    let output = only(outputs, KIND.name)?;
    let fits = match output.shape.get(1..) {
        Some([classes, ones @ ..]) => {
            classes.accepts(spec.classes) && ones.iter().all(|axis| axis.accepts(1))
        }
        _ => false,
    };
    if !fits {
        return Err(format!("its output is {output}, but model.toml describes it as [?,{}]", spec.classes));
    }
    Ok(Box::new(Classification { spec: spec.clone(), scores: Vec::new() }))
}

fn guess(input: &InputSpec, outputs: &[TensorDesc]) -> Option<Guess> {
    let [output] = outputs else { return None };
    let (Dim::Fixed(classes), ones) = output.shape.get(1..)?.split_first()? else { return None };
    let flat = ones.iter().all(|axis| *axis == Dim::Fixed(1));
    // Embeddings usually have a power of two dimensions.
    let embedding = *classes >= 64 && classes.is_power_of_two();
    if !flat || embedding || *classes < 2 {
        return None;
    }
    let head = HeadSpec::new(KIND, *classes);
    // ImageNet's preprocessing: the shorter side resized to 8/7 of the input, with the mean and deviation of its
    // photos.
    let shorter = input.width.min(input.height) * 8 / 7;
    let mut guess = Guess::new(head, input).fit(Fit::Crop { shorter });
    guess.input.resize = Resize::BilinearAntialias;
    guess.input.mean = [123.675, 116.28, 103.53];
    guess.input.scale = [1.0 / 58.395, 1.0 / 57.12, 1.0 / 57.375];
    if guess.input.color.channels() == 1 {
        guess.input.fit = Fit::Stretch;
        guess.input.mean = [0.0; 3];
        guess.input.scale = [1.0; 3];
    }
    Some(
        guess
            .unsure("mean", "the graph does not show how images were normalised in training")
            .unsure("color", "the graph does not show the order of channels")
            .unsure("fit", "the graph does not show how images were cropped in training"),
    )
}

impl Head for Classification {
    fn decode(&mut self, outputs: &[Output<'_>], item: usize, _: &Mapping, found: &mut InferenceResult) {
        self.scores.clear();
        self.scores.extend_from_slice(outputs[0].item(item));
        activate(&mut self.scores, self.spec.activation);
        let scored =
            (0u32..).zip(&self.scores).map(|(class_id, score)| ClassScore { class_id, score: *score });
        let background = self.spec.background;
        let scored = scored.filter(|class| background != Some(class.class_id));
        for class in scored.filter(|class| is_candidate(class.score, &self.spec)) {
            if class.score.is_finite() {
                found.classes.push(class);
            } else {
                found.not_finite += 1;
            }
        }
        let by_score =
            |a: &ClassScore, b: &ClassScore| b.score.total_cmp(&a.score).then(a.class_id.cmp(&b.class_id));
        found.classes.sort_unstable_by(by_score);
        found.classes.truncate(self.spec.top);
    }
}

/// Converts class values to probabilities.
pub(super) fn activate(values: &mut [f32], activation: Activation) {
    match activation {
        Activation::None => {}
        Activation::Sigmoid => values.iter_mut().for_each(|value| *value = probability(*value)),
        Activation::Softmax => softmax(values),
        Activation::Auto => {
            let probable = values.iter().all(|value| (0.0..=1.0).contains(value));
            let whole = (values.iter().sum::<f32>() - 1.0).abs() < SUM_SLACK;
            if !(probable && (whole || values.len() == 1)) {
                softmax(values);
            }
        }
    }
}

fn softmax(values: &mut [f32]) {
    let top = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    values.iter_mut().for_each(|value| *value = (*value - top).exp());
    let sum: f32 = values.iter().sum();
    values.iter_mut().for_each(|value| *value /= sum);
}

/// Models that the suite of heads feeds.
const SAMPLES: HeadSamples =
    HeadSamples::published(1000, 224, &[("y", &[1, 1000])]).finding(2, &[("y", &[1, 2], &[0.7, 0.3])]);

#[cfg(test)]
mod tests {
    use super::super::tests::decode;
    use super::*;

    fn check(spec: HeadSpec, values: &[f32], expected: &[(u32, f32)]) {
        let found = decode(&spec, (8, 8), &[("y", &[1, values.len(), 1, 1], values)]);
        assert_eq!(found.classes.len(), expected.len(), "{found:?}");
        for (seen, (class_id, score)) in found.classes.iter().zip(expected) {
            assert!(seen.class_id == *class_id && (seen.score - score).abs() < 1e-6, "{found:?}");
        }
    }

    #[test]
    fn the_best_classes_come_first() {
        let spec = |top, activation| HeadSpec { top, activation, ..HeadSpec::new(KIND, 3) };
        // Probabilities stay as they are; other values go through softmax.
        check(spec(2, Activation::Auto), &[0.2, 0.7, 0.1], &[(1, 0.7), (0, 0.2)]);
        check(spec(1, Activation::Auto), &[0.0, 2.0f32.ln(), 0.0], &[(1, 0.5)]);
        check(spec(1, Activation::Softmax), &[1.0, 0.0, 0.0], &[(0, 0.576_116_9)]);
        check(spec(1, Activation::Sigmoid), &[-9.0, 0.0, -9.0], &[(1, 0.5)]);
    }
}
