//! The CPU plan: preprocess, engine and head, bound once and replayed.

use std::sync::Arc;

use orinoco_core::{Clock, Diagnosis, TensorDesc, WithSubject, codes};
use orinoco_pipeline::{Executor, Findings, Frame, StageTimes};
use orinoco_vision::{Head, Mapping, Output, Preprocessor, heads};

use crate::engine::Session;
use crate::model::{Binding, Model};

/// No head reads more outputs than this.
const OUTPUTS_MAX: usize = 16;

/// One model's plan for one batch size, on one lane.
pub struct CpuPlan {
    session: Box<dyn Session>,
    input: usize,
    outputs: usize,
    batch: usize,
    elements: usize,
    preprocessor: Preprocessor,
    head: Box<dyn Head>,
    mappings: Vec<Mapping>,
    clock: Arc<dyn Clock>,
}

impl CpuPlan {
    /// Binds `model` to a session whose shapes are those of `binding`.
    pub fn new(
        model: &Model,
        binding: &Binding,
        outputs: &[TensorDesc],
        session: Box<dyn Session>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Diagnosis> {
        let next = "correct model.toml (`orinoco models show` prints the graph)";
        let shown = model.file.display();
        let head =
            heads::build(&model.head, &model.input, outputs).about(&codes::MODEL_DISAGREES, &shown, next)?;
        if outputs.len() > OUTPUTS_MAX {
            let cause = format!("it has {} outputs, and at most {OUTPUTS_MAX} are supported", outputs.len());
            return Err(Diagnosis::new(
                &codes::MODEL_UNSUPPORTED,
                shown,
                cause,
                "remove the outputs it does not need",
            ));
        }
        Ok(Self {
            session,
            input: binding.input,
            outputs: outputs.len(),
            batch: binding.batch,
            elements: model.input.elements(),
            preprocessor: Preprocessor::new(model.input.clone()),
            head,
            mappings: vec![Mapping::default(); binding.batch],
            clock,
        })
    }

    /// A batch shorter than the plan's leaves the rest of the input as it was: the engine computes it, nobody reads it.
    fn preprocess(&mut self, frames: &[Frame]) {
        let tensor =
            self.session.input(self.input).data.f32().expect("the binding checked that the input is f32");
        let places = tensor.chunks_exact_mut(self.elements).zip(&mut self.mappings);
        for (frame, (place, mapping)) in frames.iter().zip(places) {
            *mapping = self.preprocessor.run(&frame.view(), place);
        }
    }

    fn postprocess(&mut self, findings: &mut [Findings]) {
        let mut outputs = [Output { shape: &[], data: &[] }; OUTPUTS_MAX];
        for (index, output) in outputs.iter_mut().enumerate().take(self.outputs) {
            let tensor = self.session.output(index);
            let data = tensor.data.f32().expect("the binding checked that the outputs are f32");
            *output = Output { shape: tensor.shape, data };
        }
        for (item, found) in findings.iter_mut().enumerate() {
            self.head.decode(&outputs[..self.outputs], item, &self.mappings[item], &mut found.detections);
        }
    }
}

impl Executor for CpuPlan {
    fn batch_max(&self) -> usize {
        self.batch
    }

    fn replay(&mut self, frames: &[Frame], findings: &mut [Findings]) -> Result<StageTimes, Diagnosis> {
        assert!(
            !frames.is_empty() && frames.len() <= self.batch,
            "{} frames for a batch of {}",
            frames.len(),
            self.batch
        );
        let start = self.clock.now();
        self.preprocess(frames);
        let ready = self.clock.now();
        self.session.run()?;
        let inferred = self.clock.now();
        self.postprocess(findings);
        let done = self.clock.now();
        Ok(StageTimes {
            preprocess: ready.since(start),
            infer: inferred.since(ready),
            postprocess: done.since(inferred),
        })
    }
}
