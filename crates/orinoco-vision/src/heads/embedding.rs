//! Embeddings (person re-identification, faces): `[n, dimensions]`, scaled to unit length, so that the cosine of two
//! embeddings is their dot product.

use orinoco_core::{Dim, InferenceResult, TensorDesc};

use super::{Guess, Head, HeadDescriptor, HeadKind, HeadResultKind, HeadSamples, HeadSpec, Output, only};
use crate::{Fit, InputSpec, Mapping};

pub(super) const KIND: HeadKind = HeadKind(&DESCRIPTOR);

static DESCRIPTOR: HeadDescriptor = HeadDescriptor {
    finds: HeadResultKind::Embedding,
    ..HeadDescriptor::usual("embedding", build, guess, SAMPLES)
};

struct Embedding;

fn build(_: &HeadSpec, _: &InputSpec, outputs: &[TensorDesc]) -> Result<Box<dyn Head>, String> {
    let output = only(outputs, KIND.name)?;
    if output.shape.len() < 2 {
        return Err(format!("its output is {output}, which has no batch axis"));
    }
    Ok(Box::new(Embedding))
}

fn guess(input: &InputSpec, outputs: &[TensorDesc]) -> Option<Guess> {
    let [output] = outputs else { return None };
    let (Dim::Fixed(_), ones) = output.shape.get(1..)?.split_first()? else { return None };
    let mut guess = Guess::new(HeadSpec::new(KIND, 0), input).fit(Fit::Stretch);
    guess.input.mean = [123.675, 116.28, 103.53];
    guess.input.scale = [1.0 / 58.395, 1.0 / 57.12, 1.0 / 57.375];
    ones.iter().all(|axis| *axis == Dim::Fixed(1)).then(|| {
        guess
            .unsure("head", "a classifier may have as many classes")
            .unsure("mean", "the graph does not show how images were normalised in training")
            .unsure("fit", "the graph does not show how images were cropped in training")
    })
}

impl Head for Embedding {
    fn decode(&mut self, outputs: &[Output<'_>], item: usize, _: &Mapping, found: &mut InferenceResult) {
        let values = outputs[0].item(item);
        if values.iter().any(|value| !value.is_finite()) {
            found.not_finite += 1;
            return;
        }
        // Double precision can represent the square of every float.
        let squares = values.iter().map(|value| f64::from(*value).powi(2));
        let length = squares.sum::<f64>().sqrt().max(f64::from(f32::MIN_POSITIVE));
        found.embedding.extend(values.iter().map(|value| (f64::from(*value) / length) as f32));
    }
}

/// Models that the suite of heads feeds.
const SAMPLES: HeadSamples = HeadSamples::published(0, 256, &[("y", &[1, 512])]);

#[cfg(test)]
mod tests {
    use super::super::tests::decode;
    use super::*;

    #[test]
    fn embeddings_have_unit_length() {
        let found = decode(&HeadSpec::new(KIND, 0), (8, 8), &[("y", &[1, 2], &[3.0, 4.0])]);
        assert_eq!(found.embedding, [0.6, 0.8]);
        // The squares are beyond single precision.
        let huge = 2.0f32.powi(100);
        let found = decode(&HeadSpec::new(KIND, 0), (8, 8), &[("y", &[1, 2], &[3.0 * huge, 4.0 * huge])]);
        assert_eq!(found.embedding, [0.6, 0.8]);
    }
}
