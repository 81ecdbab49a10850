//! A session with what surrounds the engine's call: the other inputs, types other than f32, and the head.

use orinoco_core::{Diagnosis, Dim, ElementType, Findings, TensorDesc, WithSubject, codes};
use orinoco_vision::{Head, Mapping, Output, heads};

use crate::engine::{Prepared, Session};
use orinoco_model::{Binding, FeedValue, Model, Quantization};

/// No head reads more outputs than this.
pub(crate) const OUTPUTS_MAX: usize = 16;

/// What a model's inputs are bound with before its first run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProbeInputs {
    /// One shape per input.
    pub shapes: Vec<Vec<usize>>,
    /// Inputs by index that hold the same every time; one number fills the whole tensor. All others start as zeros.
    pub constants: Vec<(usize, Vec<f32>)>,
}

impl ProbeInputs {
    /// Shapes and constants of `model` as `binding` places them.
    pub fn new(model: &Model, binding: &Binding) -> Self {
        let feeds = model.feeds.iter().zip(&binding.feeds);
        let constants = feeds.filter_map(|(feed, input)| match &feed.value {
            FeedValue::Constant(values) => Some((*input, values.clone())),
            FeedValue::State(_) => None,
        });
        Self { shapes: binding.shapes.clone(), constants: constants.collect() }
    }

    /// Writes the constants into the inputs of a session.
    pub fn write_constants(&self, session: &mut dyn Session) {
        self.constants.iter().for_each(|(input, values)| fill(session, *input, values));
    }
}

/// A bound model, from f32 input to findings.
pub(crate) struct Inference {
    session: Box<dyn Session>,
    input: usize,
    /// The input as f32, where the tensor is of another type.
    staged: Option<Staged>,
    states: Vec<State>,
    outputs: Vec<Read>,
    output_quantization: Option<Quantization>,
    batch: usize,
    head: Box<dyn Head>,
}

struct Staged {
    values: Vec<f32>,
    quantization: Option<Quantization>,
}

/// An output that goes back into an input.
struct State {
    input: usize,
    output: usize,
    carried: Vec<f32>,
}

/// An output that the head reads, and its values as f32 where it is of another type.
struct Read {
    index: usize,
    converted: Option<Vec<f32>>,
}

impl Inference {
    /// Binds `model` to a session of `prepared` with the shapes of `binding`, and runs it once, with its constants
    /// and zeros in every other input: only then is it known what shapes the outputs have.
    pub(crate) fn new(
        model: &Model,
        binding: &Binding,
        prepared: &dyn Prepared,
        mut session: Box<dyn Session>,
    ) -> Result<Self, Diagnosis> {
        ProbeInputs::new(model, binding).write_constants(session.as_mut());
        let states = binding.feeds.iter().zip(&binding.states).filter_map(|(input, output)| {
            output.map(|output| State { input: *input, output, carried: Vec::new() })
        });
        let states = states.collect();
        session.run()?;
        let outputs: Vec<Read> = prepared
            .outputs()
            .iter()
            .enumerate()
            .filter(|(_, output)| !model.is_state(&output.name))
            .map(|(index, output)| {
                let converted =
                    output.element != Some(ElementType::F32) || model.output_quantization.is_some();
                Read { index, converted: converted.then(Vec::new) }
            })
            .collect();
        let shown = model.file.display();
        if outputs.len() > OUTPUTS_MAX {
            let cause = format!("it has {} outputs, and at most {OUTPUTS_MAX} are supported", outputs.len());
            let next = "remove the outputs it does not need";
            return Err(Diagnosis::new(&codes::MODEL_UNSUPPORTED, shown, cause, next));
        }
        let seen: Vec<TensorDesc> = outputs
            .iter()
            .map(|read| as_seen(&prepared.outputs()[read.index], session.as_ref(), read.index))
            .collect();
        let next = "correct model.toml (`orinoco models show` prints the graph)";
        let head = heads::check_batch(&model.head.kind, &seen, binding.batch);
        let head = head.and_then(|()| heads::build(&model.head, &model.head_input(), &seen));
        let head = head.about(&codes::MODEL_DISAGREES, shown, next)?;
        let tensor = session.input(binding.input).host().data;
        let plain = tensor.element() == ElementType::F32 && model.input_quantization.is_none();
        let staged = (!plain)
            .then(|| Staged { values: vec![0.0; tensor.len()], quantization: model.input_quantization });
        Ok(Self {
            session,
            input: binding.input,
            staged,
            states,
            outputs,
            output_quantization: model.output_quantization,
            batch: binding.batch,
            head,
        })
    }

    /// Writes the main input as f32. What is not written stays from the last time.
    pub(crate) fn write(&mut self, write: impl FnOnce(&mut [f32])) {
        match &mut self.staged {
            Some(staged) => write(&mut staged.values),
            None => {
                write(self.session.input(self.input).host().data.f32().expect("what is not f32 is staged"))
            }
        }
    }

    /// One inference; outputs that are states go back into their inputs.
    pub(crate) fn run(&mut self) -> Result<(), Diagnosis> {
        if let Some(staged) = &self.staged {
            let mut tensor = self.session.input(self.input).host().data;
            match staged.quantization {
                Some(Quantization { scale, zero_point }) => {
                    tensor.map_from_f32(&staged.values, |value| value / scale + zero_point);
                }
                None => tensor.copy_from_f32(&staged.values),
            }
        }
        self.session.run()?;
        for state in &mut self.states {
            self.session.output(state.output).host().data.to_f32(&mut state.carried);
            self.session.input(state.input).host().data.copy_from_f32(&state.carried);
        }
        for read in &mut self.outputs {
            if let Some(converted) = &mut read.converted {
                self.session.output(read.index).host().data.to_f32(converted);
                if let Some(Quantization { scale, zero_point }) = self.output_quantization {
                    converted.iter_mut().for_each(|value| *value = (*value - zero_point) * scale);
                }
            }
        }
        Ok(())
    }

    /// Reads item `item` of the latest run.
    pub(crate) fn decode(&mut self, item: usize, mapping: &Mapping, found: &mut Findings) {
        let mut outputs = [Output { shape: &[], data: &[], batch: self.batch }; OUTPUTS_MAX];
        for (output, read) in outputs.iter_mut().zip(&self.outputs) {
            let tensor = self.session.output(read.index).host();
            let data = match &read.converted {
                Some(converted) => converted.as_slice(),
                None => tensor.data.f32().expect("what is not f32 is converted"),
            };
            *output = Output { shape: tensor.shape, data, batch: self.batch };
        }
        found.clear();
        self.head.decode(&outputs[..self.outputs.len()], item, mapping, found);
    }

    /// Forgets what went before: states are zero again.
    pub(crate) fn reset(&mut self) {
        for state in &self.states {
            fill(self.session.as_mut(), state.input, &[0.0]);
        }
    }
}

/// Writes `values` into an input; a single one everywhere.
fn fill(session: &mut dyn Session, input: usize, values: &[f32]) {
    let mut tensor = session.input(input).host().data;
    match values {
        [one] => tensor.copy_from_f32(&vec![*one; tensor.len()]),
        all => tensor.copy_from_f32(all),
    }
}

/// A declared output with the shape that the latest run gave it.
fn as_seen(declared: &TensorDesc, session: &dyn Session, index: usize) -> TensorDesc {
    let shape = session.output(index).host().shape.iter().map(|size| Dim::Fixed(*size)).collect();
    TensorDesc { shape, ..declared.clone() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use orinoco_vision::HeadSpec;

    use super::*;
    use crate::engine::SessionSpec;
    use crate::stream::ExecutionStream;
    use crate::tensor::{Elements, ElementsMut, TensorMut, TensorRef, TensorView, TensorViewMut};

    /// A graph that takes any batch, and whose output has one shape for all of them.
    struct Baked {
        inputs: [TensorDesc; 1],
        outputs: [TensorDesc; 1],
    }

    impl Prepared for Baked {
        fn inputs(&self) -> &[TensorDesc] {
            &self.inputs
        }

        fn outputs(&self) -> &[TensorDesc] {
            &self.outputs
        }

        fn session(&self, _: &SessionSpec<'_>) -> Result<Box<dyn Session>, Diagnosis> {
            unreachable!("the test has one")
        }
    }

    struct BakedSession {
        input_shape: Vec<usize>,
        input: Vec<f32>,
        output_shape: Vec<usize>,
        output: Vec<f32>,
    }

    impl Session for BakedSession {
        fn input(&mut self, _: usize) -> TensorMut<'_> {
            let data = ElementsMut::F32(&mut self.input);
            TensorMut::Host(TensorViewMut { shape: &self.input_shape, data })
        }

        fn enqueue(&mut self, _: &ExecutionStream) -> Result<(), Diagnosis> {
            Ok(())
        }

        fn output(&self, _: usize) -> TensorRef<'_> {
            TensorRef::Host(TensorView { shape: &self.output_shape, data: Elements::F32(&self.output) })
        }
    }

    /// An inference of `head` whose output is 0, 1, 2, .. in `output_shape`, bound for `batch` pictures.
    fn bind(head: HeadSpec, output_shape: &[usize], batch: usize) -> Result<Inference, Diagnosis> {
        let desc = |name: &str, shape: Vec<Dim>| TensorDesc {
            name: name.to_owned(),
            element: Some(ElementType::F32),
            shape,
        };
        let picture = vec![Dim::Dynamic, Dim::Fixed(3), Dim::Fixed(8), Dim::Fixed(8)];
        let given = vec![Dim::Dynamic; output_shape.len()];
        let baked = Baked { inputs: [desc("images", picture)], outputs: [desc("y", given)] };
        let mut model = Model::guess(Path::new("m.onnx"), baked.inputs(), baked.outputs())?;
        model.head = head;
        let binding = model.bind(baked.inputs(), baked.outputs(), batch)?;
        let elements: usize = output_shape.iter().product();
        let session = BakedSession {
            input_shape: binding.shapes[0].clone(),
            input: vec![0.0; binding.shapes[0].iter().product()],
            output_shape: output_shape.to_vec(),
            output: (0..elements).map(|index| index as f32).collect(),
        };
        Inference::new(&model, &binding, &baked, Box::new(session))
    }

    #[test]
    fn an_output_whose_first_axis_is_not_the_batch_is_refused() {
        let head = || HeadSpec::new("yolov8", 2);
        assert!(bind(head(), &[1, 6, 4], 1).is_ok());
        let fault = bind(head(), &[1, 6, 4], 2).err().expect("all boxes would be those of the first picture");
        assert_eq!(fault.code.id, codes::MODEL_DISAGREES.id, "{fault}");
        let cause = "its output is y f32[1,6,4] for a batch of 2, which has to be the first axis";
        assert_eq!(fault.cause, cause);
        let fault = bind(head(), &[0, 6, 4], 0).err().expect("there is nothing to look at");
        assert_eq!(fault.code.id, codes::MODEL_DISAGREES.id, "{fault}");
    }

    #[test]
    fn raw_tensors_of_one_picture_are_kept_whole() {
        let mut inference = bind(HeadSpec::new("raw", 0), &[3, 4], 1).expect("raw takes anything");
        inference.run().expect("it does nothing");
        let mut found = Findings::default();
        inference.decode(0, &Mapping::default(), &mut found);
        let expected: Vec<f32> = (0u8..12).map(f32::from).collect();
        assert_eq!((&found.tensors[0].shape[..], &found.tensors[0].data), (&[3, 4][..], &expected));
        assert!(bind(HeadSpec::new("raw", 0), &[3, 4], 2).is_err());
    }
}
