//! The CPU plan: preprocess, engine and head, bound once and replayed.

use std::sync::Arc;

use orinoco_core::{Clock, Diagnosis, Findings, WithSubject, codes};
use orinoco_pipeline::{Executor, Frame, StageTimes};
use orinoco_vision::{Mapping, Preprocessor};

use crate::engine::{Prepared, Session};
use crate::inference::Inference;
use orinoco_model::{Binding, Model};

/// One model's plan for one batch size, on one lane.
pub struct CpuPlan {
    inference: Inference,
    batch: usize,
    elements: usize,
    preprocessor: Preprocessor,
    mappings: Vec<Mapping>,
    clock: Arc<dyn Clock>,
}

impl CpuPlan {
    /// Binds `model`, which takes pictures, to a session of `prepared` whose shapes are those of `binding`.
    pub fn new(
        model: &Model,
        binding: &Binding,
        prepared: &dyn Prepared,
        session: Box<dyn Session>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Diagnosis> {
        let image = model.input.image().ok_or("it takes sound, and this is a stream of pictures");
        let next = "use a model whose input is a picture, or `orinoco infer` with WAV files";
        let image = image.about(&codes::MODEL_DISAGREES, model.file.display(), next)?;
        Ok(Self {
            inference: Inference::new(model, binding, prepared, session)?,
            batch: binding.batch,
            elements: image.elements(),
            preprocessor: Preprocessor::new(image.clone()),
            mappings: vec![Mapping::default(); binding.batch],
            clock,
        })
    }

    /// A batch shorter than the plan's leaves the rest of the input as it was: the engine computes it, nobody reads it.
    fn preprocess(&mut self, frames: &[Frame]) {
        let (preprocessor, mappings, elements) = (&mut self.preprocessor, &mut self.mappings, self.elements);
        self.inference.write(|tensor| {
            let places = tensor.chunks_exact_mut(elements).zip(mappings);
            for (frame, (place, mapping)) in frames.iter().zip(places) {
                *mapping = preprocessor.run(&frame.view(), mapping, place);
            }
        });
    }

    fn postprocess(&mut self, findings: &mut [Findings]) {
        for (item, found) in findings.iter_mut().enumerate() {
            self.inference.decode(item, &self.mappings[item], found);
        }
    }
}

impl Executor for CpuPlan {
    fn batch_max(&self) -> usize {
        self.batch
    }

    fn replay(&mut self, frames: &[Frame], findings: &mut [Findings]) -> Result<StageTimes, Diagnosis> {
        check_count(frames, self.batch);
        let start = self.clock.now();
        self.preprocess(frames);
        let ready = self.clock.now();
        self.inference.run()?;
        let inferred = self.clock.now();
        self.postprocess(findings);
        let done = self.clock.now();
        Ok(StageTimes {
            preprocess: ready.since(start),
            infer: inferred.since(ready),
            postprocess: done.since(inferred),
            graph_fallbacks: 0,
        })
    }
}

/// Lanes hand over 1 to `batch` frames.
pub(crate) fn check_count(frames: &[Frame], batch: usize) {
    let count = frames.len();
    assert!((1..=batch).contains(&count), "{count} frames for a batch of {batch}");
}
