//! Parts around a session whose tensors are in the host's memory: conversion of element types other than f32, and the
//! head.

use orinoco_core::{ElementType, InferenceResult, TensorDesc};
use orinoco_model::{Binding, Model, Quantization};
use orinoco_vision::{Head, Mapping, Output};

use crate::bound::Readout;
use crate::engine::{Prepared, Session};
use crate::head::{OUTPUTS_MAX, as_bound, build};
use crate::plan_error::{ExecuteError, PlanError};
use crate::states::{ProbeInputs, States};
use crate::stream::ExecutionStream;

/// Session that has run once, with its input, states and head.
pub(crate) struct HostParts {
    pub(crate) session: Box<dyn Session>,
    pub(crate) input: HostInput,
    pub(crate) states: States,
    pub(crate) head: HostHead,
}

impl HostParts {
    /// Binds `model` to a session of `prepared` with the shapes of `binding`, and runs it once, with its constants and
    /// zeros in every other input: the shapes of the outputs are known only after a run.
    pub(crate) fn new(
        model: &Model,
        binding: &Binding,
        prepared: &dyn Prepared,
        mut session: Box<dyn Session>,
    ) -> Result<Self, PlanError> {
        ProbeInputs::new(model, binding).write_constants(session.as_mut());
        session.run()?;
        let head = HostHead::new(model, binding, prepared, session.as_ref())?;
        let input = HostInput::new(model, binding, session.as_mut());
        Ok(Self { input, states: States::new(binding), head, session })
    }
}

/// Main input of a model, written as f32.
pub(crate) struct HostInput {
    index: usize,
    /// Values of the input as f32, if the tensor has another element type or is quantised.
    staged: Option<InputStaging>,
}

struct InputStaging {
    values: Vec<f32>,
    quantization: Option<Quantization>,
}

impl HostInput {
    fn new(model: &Model, binding: &Binding, session: &mut dyn Session) -> Self {
        let tensor = session.input(binding.input).host().data;
        let plain = tensor.element() == ElementType::F32 && model.input_quantization.is_none();
        let staged = (!plain).then(|| InputStaging {
            values: vec![0.0; tensor.len()],
            quantization: model.input_quantization,
        });
        Self { index: binding.input, staged }
    }

    /// Writes the input. Values that `write` does not set keep those of the previous call.
    pub(crate) fn write(&mut self, session: &mut dyn Session, write: impl FnOnce(&mut [f32])) {
        let mut tensor = session.input(self.index).host().data;
        let Some(InputStaging { values, quantization }) = &mut self.staged else {
            return write(tensor.f32().expect("what is not f32 is staged"));
        };
        write(values);
        match quantization {
            Some(Quantization { scale, zero_point }) => {
                tensor.map_from_f32(values, |value| value / *scale + *zero_point);
            }
            None => tensor.copy_from_f32(values),
        }
    }
}

/// Head of a model on the CPU, which reads outputs in the host's memory.
pub(crate) struct HostHead {
    outputs: Vec<HeadOutput>,
    quantization: Option<Quantization>,
    batch: usize,
    head: Box<dyn Head>,
}

/// Output that the head reads, and its values as f32 if it has another element type or is quantised.
struct HeadOutput {
    index: usize,
    converted: Option<Vec<f32>>,
}

impl HostHead {
    fn new(
        model: &Model,
        binding: &Binding,
        prepared: &dyn Prepared,
        session: &dyn Session,
    ) -> Result<Self, PlanError> {
        let outputs = prepared.outputs().iter().enumerate();
        let outputs = outputs.filter(|(_, output)| !model.is_state(&output.name)).map(|(index, output)| {
            let converted = output.element != Some(ElementType::F32) || model.output_quantization.is_some();
            HeadOutput { index, converted: converted.then(Vec::new) }
        });
        let outputs: Vec<HeadOutput> = outputs.collect();
        if outputs.len() > OUTPUTS_MAX {
            return Err(PlanError::Outputs(outputs.len()));
        }
        let as_seen = |output: &HeadOutput| {
            as_bound(&prepared.outputs()[output.index], session.output(output.index).host().shape)
        };
        let seen: Vec<TensorDesc> = outputs.iter().map(as_seen).collect();
        let head = build(model, &seen, binding.batch).map_err(PlanError::Head)?;
        Ok(Self { outputs, quantization: model.output_quantization, batch: binding.batch, head })
    }
}

impl Readout for HostHead {
    fn read(
        &mut self,
        session: &dyn Session,
        mappings: &[Mapping],
        _: &ExecutionStream,
        results: &mut [InferenceResult],
    ) -> Result<u32, ExecuteError> {
        for HeadOutput { index, converted } in &mut self.outputs {
            let Some(converted) = converted else { continue };
            session.output(*index).host().data.to_f32(converted);
            if let Some(Quantization { scale, zero_point }) = self.quantization {
                converted.iter_mut().for_each(|value| *value = (*value - zero_point) * scale);
            }
        }
        let mut views = [Output { shape: &[], data: &[], batch: self.batch }; OUTPUTS_MAX];
        for (view, output) in views.iter_mut().zip(&self.outputs) {
            let tensor = session.output(output.index).host();
            let data = match &output.converted {
                Some(converted) => converted.as_slice(),
                None => tensor.data.f32().expect("what is not f32 is converted"),
            };
            *view = Output { shape: tensor.shape, data, batch: self.batch };
        }
        for (item, (found, mapping)) in results.iter_mut().zip(mappings).enumerate() {
            found.clear();
            self.head.decode(&views[..self.outputs.len()], item, mapping, found);
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use orinoco_core::Choice;
    use orinoco_core::Dim;
    use orinoco_vision::{HeadKind, HeadSpec, heads};

    use super::*;
    use crate::engine::SessionSpec;
    use crate::engine_error::EngineError;
    use crate::tensor::{Elements, ElementsMut, TensorMut, TensorRef, TensorView, TensorViewMut};

    /// Graph that accepts any batch size, and whose output has the same shape for all of them.
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

        fn session(&self, _: &SessionSpec<'_>) -> Result<Box<dyn Session>, EngineError> {
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

        fn enqueue(&mut self, _: &ExecutionStream) -> Result<(), EngineError> {
            Ok(())
        }

        fn output(&self, _: usize) -> TensorRef<'_> {
            TensorRef::Host(TensorView { shape: &self.output_shape, data: Elements::F32(&self.output) })
        }
    }

    /// Returns a graph whose output has as many axes as `output_shape`, and a model of it with `head`.
    fn model(head: HeadSpec, output_shape: &[usize]) -> (Model, Baked) {
        let desc = |name: &str, shape: Vec<Dim>| TensorDesc {
            name: name.to_owned(),
            element: Some(ElementType::F32),
            shape,
        };
        let image = vec![Dim::Dynamic, Dim::Fixed(3), Dim::Fixed(8), Dim::Fixed(8)];
        let given = vec![Dim::Dynamic; output_shape.len()];
        let baked = Baked { inputs: [desc("images", image)], outputs: [desc("y", given)] };
        let guessed = Model::guess(Path::new("m.onnx"), baked.inputs(), baked.outputs());
        (Model { head, ..guessed.expect("its input is an image") }, baked)
    }

    /// Binds a session for `head` whose output is 0, 1, 2, .. in `output_shape`, for a batch of `batch` images.
    fn bind(head: HeadSpec, output_shape: &[usize], batch: usize) -> Result<HostParts, PlanError> {
        let (model, baked) = model(head, output_shape);
        let binding = model.bind(baked.inputs(), baked.outputs(), batch).expect("the input has these axes");
        let elements: usize = output_shape.iter().product();
        let session = BakedSession {
            input_shape: binding.shapes[0].clone(),
            input: vec![0.0; binding.shapes[0].iter().product()],
            output_shape: output_shape.to_vec(),
            output: (0..elements).map(|index| index as f32).collect(),
        };
        HostParts::new(&model, &binding, &baked, Box::new(session))
    }

    #[test]
    fn an_output_whose_first_axis_is_not_the_batch_is_refused() {
        let head = || HeadSpec::new(HeadKind::from_name("yolov8").expect("a head has this name"), 2);
        assert!(bind(head(), &[1, 6, 4], 1).is_ok());
        let error = bind(head(), &[1, 6, 4], 2).err().expect("all boxes would be those of the first image");
        let expected = "its output is y f32[1,6,4]; the first axis must be the batch (2)";
        assert!(matches!(&error, PlanError::Head(why) if why == expected), "{error:?}");
        let (model, baked) = model(head(), &[0, 6, 4]);
        let fault = model.bind(baked.inputs(), baked.outputs(), 0).expect_err("there is nothing to look at");
        assert_eq!(fault.code.id, orinoco_core::codes::MODEL_DISAGREES.id, "{fault}");
    }

    #[test]
    fn raw_tensors_of_one_image_are_kept_whole() {
        let mut parts = bind(HeadSpec::new(heads::RAW, 0), &[3, 4], 1).expect("raw takes anything");
        let mut results = [InferenceResult::default()];
        let read = parts.head.read(
            parts.session.as_ref(),
            &[Mapping::default()],
            &ExecutionStream::Host,
            &mut results,
        );
        read.expect("it is there");
        let [found] = results;
        let expected: Vec<f32> = (0u8..12).map(f32::from).collect();
        assert_eq!((&found.tensors[0].shape[..], &found.tensors[0].data), (&[3, 4][..], &expected));
        assert!(bind(HeadSpec::new(heads::RAW, 0), &[3, 4], 2).is_err());
    }
}
