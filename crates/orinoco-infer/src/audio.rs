//! Audio models: their inputs are windows of samples, or the cepstral coefficients of such windows.

use std::time::Duration;

use orinoco_core::{Clock, Diagnosis, InferenceResult, TimeSpan};
use orinoco_model::{AudioFeatures, AudioSpec, Binding, Model, ModelInput};
use orinoco_pipeline::StageTimes;
use orinoco_vision::Mapping;

use crate::bound::{Adapter, BoundModel};
use crate::cepstra::Cepstra;
use crate::engine::{Prepared, Session};
use crate::host::{HostHead, HostInput, HostParts};
use crate::plan_error::{ExecuteError, PlanError};
use crate::stream::ExecutionStream;

/// Audio model bound to a session, which executes one window at a time.
pub struct AudioPlan {
    bound: BoundModel<Windows, HostHead>,
    spec: AudioSpec,
}

/// Inference result of one window of sound.
#[derive(Clone, Debug, Default)]
pub struct WindowResult {
    /// Start of the window, from the start of the sound.
    pub at: Duration,
    /// Inference result of the model.
    pub inference: InferenceResult,
}

impl AudioPlan {
    /// Binds `model`, an audio model, to a session of `prepared` whose shapes are those of `binding`.
    ///
    /// # Errors
    /// `E0204` for a model that is not an audio model, or whose outputs do not fit its head; errors of the engine.
    pub fn new(
        model: &Model,
        binding: &Binding,
        prepared: &dyn Prepared,
        session: Box<dyn Session>,
    ) -> Result<Self, Diagnosis> {
        Self::bind(model, binding, prepared, session).map_err(|why| why.diagnosis(&model.file))
    }

    fn bind(
        model: &Model,
        binding: &Binding,
        prepared: &dyn Prepared,
        session: Box<dyn Session>,
    ) -> Result<Self, PlanError> {
        let ModelInput::Audio(spec) = &model.input else { return Err(PlanError::TakesImages) };
        let (step, cepstra) = match &spec.features {
            AudioFeatures::Samples { window, .. } => (*window, None),
            AudioFeatures::Mfcc(mfcc) => (mfcc.window(), Some(Cepstra::new(mfcc, spec.sample_rate))),
        };
        let HostParts { session, input, states, head } = HostParts::new(model, binding, prepared, session)?;
        let adapter = Windows { input, step, cepstra, mapping: [Mapping::default()] };
        let (file, stream) = (model.file.clone(), ExecutionStream::Host);
        let bound = BoundModel { file, adapter, session, states, readout: head, stream, marks: None };
        Ok(Self { bound, spec: spec.clone() })
    }

    /// Returns the audio format that the model takes.
    pub fn spec(&self) -> &AudioSpec {
        &self.spec
    }

    /// Returns the number of new samples in one window.
    pub fn window_samples(&self) -> usize {
        self.bound.adapter.step
    }

    /// Executes the model on the first window of `samples`, and returns the times of its stages. States go on from the window
    /// before.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn execute(
        &mut self,
        samples: &[f32],
        clock: &dyn Clock,
        result: &mut InferenceResult,
    ) -> Result<StageTimes, Diagnosis> {
        self.execute_first(samples, clock, result).map_err(|why| why.diagnosis(&self.bound.file))
    }

    fn execute_first(
        &mut self,
        samples: &[f32],
        clock: &dyn Clock,
        result: &mut InferenceResult,
    ) -> Result<StageTimes, ExecuteError> {
        let start = clock.now();
        self.bound.write(&Window { samples, first: 0 })?;
        let ready = clock.now();
        self.bound.infer()?;
        let inferred = clock.now();
        self.bound.read::<Window<'_>>(std::slice::from_mut(result))?;
        Ok(StageTimes {
            preprocess: TimeSpan::new(start, ready),
            infer: TimeSpan::new(ready, inferred),
            postprocess: TimeSpan::new(inferred, clock.now()),
            ..StageTimes::default()
        })
    }

    /// Executes the model on all of `samples` (-1 to 1, one channel, at the model's sample rate), window by window.
    /// States begin at zero. An incomplete last window is left out, unless it is the only one.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn run(&mut self, samples: &[f32]) -> Result<Vec<WindowResult>, Diagnosis> {
        self.execute_all(samples).map_err(|why| why.diagnosis(&self.bound.file))
    }

    fn execute_all(&mut self, samples: &[f32]) -> Result<Vec<WindowResult>, ExecuteError> {
        self.bound.reset();
        let step = self.bound.adapter.step;
        let windows = (samples.len() / step).max(1);
        let mut heard = Vec::with_capacity(windows);
        for first in (0..windows).map(|window| window * step) {
            self.bound.write(&Window { samples, first })?;
            self.bound.infer()?;
            let mut inference = [InferenceResult::default()];
            self.bound.read::<Window<'_>>(&mut inference)?;
            let at = Duration::from_secs_f64(first as f64 / f64::from(self.spec.sample_rate));
            let [inference] = inference;
            heard.push(WindowResult { at, inference });
        }
        Ok(heard)
    }
}

/// Window of sound that begins with sample `first`.
struct Window<'a> {
    samples: &'a [f32],
    first: usize,
}

/// Adapter that writes windows of sound into an input in the host's memory.
struct Windows {
    input: HostInput,
    /// Number of new samples of each window.
    step: usize,
    cepstra: Option<Cepstra>,
    /// Default mapping, which heads require: sound has no position in an image.
    mapping: [Mapping; 1],
}

impl Adapter<Window<'_>> for Windows {
    fn write(
        &mut self,
        &Window { samples, first }: &Window<'_>,
        session: &mut dyn Session,
        _: &ExecutionStream,
    ) -> Result<u32, ExecuteError> {
        let Self { input, step, cepstra, .. } = self;
        input.write(session, |tensor| match cepstra {
            Some(cepstra) => cepstra.compute(&samples[first.min(samples.len())..], tensor),
            None => {
                // The tensor begins `context` samples before the new ones. Samples before the start of the sound are
                // zeros.
                let context = tensor.len() - *step;
                for (index, value) in tensor.iter_mut().enumerate() {
                    let at = (first + index).checked_sub(context);
                    *value = at.and_then(|at| samples.get(at)).copied().unwrap_or(0.0);
                }
            }
        });
        Ok(0)
    }

    fn mappings(&self) -> &[Mapping] {
        &self.mapping
    }
}
