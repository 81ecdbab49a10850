//! Models of sound: windows of samples, or their cepstral coefficients.

use std::time::Duration;

use orinoco_core::{Diagnosis, InferenceResult, WithSubject, codes};
use orinoco_model::{AudioFeatures, AudioSpec, Binding, Model, ModelInput};
use orinoco_vision::Mapping;

use crate::bound::{Adapter, BoundModel};
use crate::cepstra::Cepstra;
use crate::engine::{Prepared, Session};
use crate::host::{HostHead, HostInput, HostParts};
use crate::stream::ExecutionStream;

/// One model's plan for sound, one window at a time.
pub struct AudioPlan {
    bound: BoundModel<Windows, HostHead>,
    spec: AudioSpec,
}

/// What a model found in one window.
#[derive(Clone, Debug, Default)]
pub struct WindowResult {
    /// Where the window begins.
    pub at: Duration,
    /// What was found.
    pub inference: InferenceResult,
}

impl AudioPlan {
    /// Binds `model`, which takes sound, to a session of `prepared` whose shapes are those of `binding`.
    ///
    /// # Errors
    /// `E0204` for a model that takes no sound, or whose outputs are not those of its head; faults of the engine.
    pub fn new(
        model: &Model,
        binding: &Binding,
        prepared: &dyn Prepared,
        session: Box<dyn Session>,
    ) -> Result<Self, Diagnosis> {
        let ModelInput::Audio(spec) = &model.input else {
            let next = "use a model whose input is sound, or give pictures";
            return Err("it takes pictures, and this is sound").about(
                &codes::MODEL_DISAGREES,
                model.file.display(),
                next,
            );
        };
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

    /// What sound it takes.
    pub fn spec(&self) -> &AudioSpec {
        &self.spec
    }

    /// Runs the whole of `samples` (-1 to 1, one channel, at the model's rate), window by window. States begin at zero.
    /// A last window that is not full is left out, unless it is the only one.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn run(&mut self, samples: &[f32]) -> Result<Vec<WindowResult>, Diagnosis> {
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

/// The window that begins with sample `first`.
struct Window<'a> {
    samples: &'a [f32],
    first: usize,
}

/// Windows of sound into an input in the host's memory.
struct Windows {
    input: HostInput,
    /// New samples of each window.
    step: usize,
    cepstra: Option<Cepstra>,
    /// Sound lies nowhere in a picture.
    mapping: [Mapping; 1],
}

impl Adapter<Window<'_>> for Windows {
    fn write(
        &mut self,
        &Window { samples, first }: &Window<'_>,
        session: &mut dyn Session,
        _: &ExecutionStream,
    ) -> Result<u32, Diagnosis> {
        let Self { input, step, cepstra, .. } = self;
        input.write(session, |tensor| match cepstra {
            Some(cepstra) => cepstra.compute(&samples[first.min(samples.len())..], tensor),
            None => {
                // The tensor begins `context` samples before the new ones; before the sound there is silence.
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
