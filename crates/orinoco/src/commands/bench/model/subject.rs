//! Model that is measured: loaded on one engine, bound for one batch size, with an input on which it runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use orinoco_board::Inference;
use orinoco_config::Faults;
use orinoco_core::{Clock, Diagnosis, FrameDesc, InferenceResult, PixelFormat, WithSubject, codes};
use orinoco_infer::{AudioPlan, TensorMemory};
use orinoco_model::{ModelInput, Repository};
use orinoco_pipeline::{Executor, Frame, Slot, SlotPool, StageTimes};
use orinoco_runtime::{BoardEngines, LoadedModel, bind_audio, bind_plan, load_model};
use orinoco_telemetry::EventSink;

use super::super::noise;
use crate::args::{BenchModelArgs, EngineArgs};
use crate::commands::{board_model, inference};

/// Size of the frame that stands for a camera's where no dataset is given.
const CAMERA: (u32, u32) = (1280, 720);
/// Number of images of a dataset that the model runs on in turn: so many that they do not stay in the caches.
const IMAGES_MAX: usize = 32;

/// Input of the measurements.
pub(super) enum Input {
    /// Frames, in turn.
    Frames(Vec<Frame>),
    /// One window of sound, with noise in it.
    Sound,
}

impl Input {
    /// Returns the input for `images` of a dataset; noise if there are none.
    pub(super) fn of(images: &[PathBuf], clock: &dyn Clock) -> Result<Self, Diagnosis> {
        let decoded = images.iter().take(IMAGES_MAX).map(|image| orinoco_media::decode_image(image, clock));
        let frames = decoded.collect::<Result<Vec<_>, _>>()?;
        Ok(Self::Frames(if frames.is_empty() { vec![noise_frame(clock)] } else { frames }))
    }

    /// Returns its description for a card.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Frames(frames) => match &frames[..] {
                [only] if only.desc.format == PixelFormat::Nv12 => {
                    format!("noise, {} {}x{}", only.desc.format.name(), only.desc.width, only.desc.height)
                }
                frames => format!("{} of the dataset", crate::output::count(frames.len() as u64, "image")),
            },
            Self::Sound => "noise, one window of sound".to_owned(),
        }
    }

    fn share(&self) -> Self {
        match self {
            Self::Frames(frames) => Self::Frames(frames.iter().map(Frame::share).collect()),
            Self::Sound => Self::Sound,
        }
    }
}

/// Frame of noise in the format of a video decoder or camera.
fn noise_frame(clock: &dyn Clock) -> Frame {
    let desc = FrameDesc::packed(PixelFormat::Nv12, CAMERA.0, CAMERA.1);
    let mut slot = SlotPool::new(1, desc.bytes_needed()).try_take().expect("a new pool has a free slot");
    slot.bytes.iter_mut().enumerate().for_each(|(index, byte)| *byte = noise(index));
    Frame::new(desc, Slot::Owned(slot), clock.now()).expect("the slot has the size of the frame")
}

/// Model on one engine.
pub(super) struct Subject {
    pub(super) loaded: LoadedModel,
    /// Time in which it was loaded.
    pub(super) load: Duration,
    plan: Plan,
    results: Vec<InferenceResult>,
    clock: Arc<dyn Clock>,
}

enum Plan {
    Image { plan: Box<dyn Executor>, frames: Vec<Frame>, next: usize },
    Audio { plan: Box<AudioPlan>, samples: Vec<f32> },
}

/// Returns the settings for one engine, or for the default order.
///
/// # Errors
/// `E0301` for a name that no engine has.
pub(super) fn inference_on(engine: Option<&str>, threads: Option<u16>) -> Result<Inference, Diagnosis> {
    inference(&EngineArgs { engine: engine.iter().map(|name| (*name).to_owned()).collect(), threads })
}

/// Loads the model on one engine, or on the first of the default order, for batches of `batch`.
pub(super) fn load(
    args: &BenchModelArgs,
    model: &str,
    engine: Option<&str>,
    batch: usize,
    place: &Repository,
    events: &dyn EventSink,
) -> Result<LoadedModel, Faults> {
    let inference = inference_on(engine, args.threads)?;
    load_model(&board_model(model, batch, None), &BoardEngines::new(&inference)?, place, events)
}

impl Subject {
    /// Binds a loaded model to `input`. A model of sound gets noise, whatever `input` is.
    pub(super) fn bind(
        mut loaded: LoadedModel,
        load: Duration,
        input: &Input,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, Diagnosis> {
        let plan = match (&loaded.model.input, input.share()) {
            (ModelInput::Image(_), Input::Frames(frames)) => {
                Plan::Image { plan: bind_plan(&mut loaded, Arc::clone(clock), None)?, frames, next: 0 }
            }
            (ModelInput::Audio(_), Input::Sound) => {
                let plan = bind_audio(&mut loaded)?;
                let samples = (0..plan.window_samples()).map(|index| f32::from(noise(index)) / 128.0 - 1.0);
                Plan::Audio { samples: samples.collect(), plan: Box::new(plan) }
            }
            _ => {
                let cause = "one engine reads its input as sound and another as images";
                let fault =
                    Err(cause).about(&codes::MODEL_DISAGREES, &loaded.name, "describe it in a model.toml");
                return fault;
            }
        };
        let results = vec![InferenceResult::default(); loaded.binding.batch];
        Ok(Self { loaded, load, plan, results, clock: Arc::clone(clock) })
    }

    /// Returns the number of images of one inference.
    pub(super) fn batch(&self) -> usize {
        self.loaded.binding.batch
    }

    /// Whether it computes on a GPU.
    pub(super) fn is_on_gpu(&self) -> bool {
        self.loaded.chosen.prepared.memory() == TensorMemory::Device
    }

    /// Returns name and version of the engine.
    pub(super) fn engine(&self) -> String {
        format!("{} {}", self.loaded.chosen.name, self.loaded.chosen.version)
    }

    /// Executes one inference of a whole batch.
    pub(super) fn execute(&mut self) -> Result<StageTimes, Diagnosis> {
        match &mut self.plan {
            Plan::Image { plan, frames, next } => {
                let batch: Vec<Frame> = (0..self.results.len())
                    .map(|index| frames[(*next + index) % frames.len()].share())
                    .collect();
                *next = (*next + batch.len()) % frames.len();
                plan.execute(&batch, &mut self.results)
            }
            Plan::Audio { plan, samples } => plan.execute(samples, &*self.clock, &mut self.results[0]),
        }
    }
}
