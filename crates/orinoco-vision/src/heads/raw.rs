//! Raw outputs, without decoding: for each image its part of the batch, or the whole tensor where the first axis is not
//! the batch.

use orinoco_core::{InferenceResult, RawTensor, TensorDesc};

use super::{Guess, Head, HeadDescriptor, HeadKind, HeadResultKind, HeadSamples, HeadSpec, Output};
use crate::{Fit, InputSpec, Mapping};

/// The kind of this head.
pub const KIND: HeadKind = HeadKind(&DESCRIPTOR);

static DESCRIPTOR: HeadDescriptor = HeadDescriptor {
    finds: HeadResultKind::Tensors,
    takes_whole: |_| true,
    ..HeadDescriptor::usual("raw", build, guess, SAMPLES)
};

struct Raw {
    names: Vec<String>,
}

fn build(_: &HeadSpec, _: &InputSpec, outputs: &[TensorDesc]) -> Result<Box<dyn Head>, String> {
    Ok(Box::new(Raw { names: outputs.iter().map(|output| output.name.clone()).collect() }))
}

fn guess(input: &InputSpec, _: &[TensorDesc]) -> Option<Guess> {
    let guess = Guess::new(HeadSpec::new(KIND, 0), input).unit_rgb(Fit::Stretch);
    let guess = guess.unsure("head", "the outputs are those of no known head");
    let guess = guess.unsure("fit", "the graph does not show how images were cropped in training");
    Some(guess.unsure("mean", "the graph does not show how images were normalised in training"))
}

impl Head for Raw {
    fn decode(&mut self, outputs: &[Output<'_>], item: usize, _: &Mapping, found: &mut InferenceResult) {
        found.tensors.resize_with(outputs.len(), RawTensor::default);
        for ((output, name), tensor) in outputs.iter().zip(&self.names).zip(&mut found.tensors) {
            if tensor.name != *name {
                tensor.name.clone_from(name);
            }
            let (shape, data) = match output.shape {
                [batch, shape @ ..] if *batch == output.batch => (shape, output.item(item)),
                whole => (whole, output.data),
            };
            tensor.shape.clear();
            tensor.shape.extend_from_slice(shape);
            tensor.data.clear();
            tensor.data.extend_from_slice(data);
            found.not_finite += data.iter().filter(|value| !value.is_finite()).count() as u64;
        }
    }
}

/// Models that the suite of heads feeds.
const SAMPLES: HeadSamples = HeadSamples::published(0, 640, &[("y", &[1, 300, 84])]);

#[cfg(test)]
mod tests {
    use super::super::tests::decode;
    use super::*;

    #[test]
    fn tensors_pass_through() {
        let found = decode(&HeadSpec::new(KIND, 0), (8, 8), &[("y", &[1, 2, 1], &[3.0, 4.0])]);
        let expected = RawTensor { name: "y".to_owned(), shape: vec![2, 1], data: vec![3.0, 4.0] };
        assert_eq!(found.tensors, [expected]);
    }

    #[test]
    fn a_tensor_without_a_batch_is_kept_whole() {
        let data: Vec<f32> = (0u8..12).map(f32::from).collect();
        let found = decode(&HeadSpec::new(KIND, 0), (8, 8), &[("y", &[3, 4], &data)]);
        assert_eq!(found.tensors, [RawTensor { name: "y".to_owned(), shape: vec![3, 4], data }]);
    }
}
