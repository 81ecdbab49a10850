use std::time::Duration;

use orinoco_core::{ComputeUnit, Diagnosis, InferenceResult, TimeSpan, codes};
use orinoco_telemetry::{Stage, StageSetter};

use crate::Frame;
use crate::mux::SuspensionError;
use crate::request::Request;
use crate::suspension::Suspender;

/// Stages of one execution on the run's clock, for the whole batch: the time that the lane's thread worked or waited in them.
#[derive(Clone, Copy, Debug, Default)]
pub struct StageTimes {
    /// Colour, resize, normalise.
    pub preprocess: TimeSpan,
    /// The engine.
    pub infer: TimeSpan,
    /// Head and suppression.
    pub postprocess: TimeSpan,
    /// Times of another unit's work meanwhile; `None` if no other unit worked, or if it was not measured.
    pub device: Option<DeviceTimes>,
    /// Captured sequences that had to be launched call by call; 0 on the CPU.
    pub graph_fallbacks: u32,
}

/// Stages of one execution on a unit other than the CPU, measured by that unit's clock, as spans of the run's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceTimes {
    /// The unit.
    pub unit: ComputeUnit,
    /// Colour, resize, normalise.
    pub preprocess: TimeSpan,
    /// The engine.
    pub infer: TimeSpan,
    /// Head and suppression, as far as the unit did it.
    pub postprocess: TimeSpan,
}

impl StageTimes {
    /// The stages in their order.
    pub fn stages(&self) -> [(Stage, TimeSpan); 3] {
        named([self.preprocess, self.infer, self.postprocess])
    }
}

impl DeviceTimes {
    /// The stages in their order.
    pub fn stages(&self) -> [(Stage, TimeSpan); 3] {
        named([self.preprocess, self.infer, self.postprocess])
    }
}

fn named([preprocess, infer, postprocess]: [TimeSpan; 3]) -> [(Stage, TimeSpan); 3] {
    [(Stage::Preprocess, preprocess), (Stage::Infer, infer), (Stage::Postprocess, postprocess)]
}

/// Result of a step that was begun.
#[derive(Clone, Copy, Debug)]
pub enum Executed {
    /// The results are available.
    Done(StageTimes),
    /// The results come later, by the [`Suspension`](crate::Suspension) that was asked for. The step waits for them for
    /// this long, and for [`SUSPENSION_MAX`](crate::SUSPENSION_MAX) at most; then the lane calls [`Executor::fall_back`].
    Suspended(Duration),
    /// There are no results, and the frames go on without them. The executor counts the skipped images itself.
    Skipped,
}

/// A plan: preprocess, infer and postprocess for one (model, batch), bound once and executed for each batch. On the
/// CPU it is a list of bound calls, on a GPU a captured graph. A lane knows nothing else about it.
pub trait Executor: Send {
    /// Maximum batch size, in frames. Always the same number.
    fn batch_max(&self) -> usize;

    /// Whether it accepts frames in NVMM (dma-bufs of a Jetson's video hardware), which the host does not read.
    fn reads_video_memory(&self) -> bool {
        false
    }

    /// Runs the plan on `frames` (1 to `batch_max`), and fills as many `results`.
    fn execute(&mut self, frames: &[Frame], results: &mut [InferenceResult])
    -> Result<StageTimes, Diagnosis>;

    /// Begins to run the plan on `frames`, for a lane. Plans that compute elsewhere may suspend the step, so that it does not
    /// hold the lane; all others execute it.
    fn begin(
        &mut self,
        frames: &[Frame],
        results: &mut [InferenceResult],
        suspender: &mut Suspender<'_>,
    ) -> Result<Executed, Diagnosis> {
        let _ = suspender;
        self.execute(frames, results).map(Executed::Done)
    }

    /// Runs the plan on `frames` in another way, after a suspended step failed or was not answered in time, and `why`. By default
    /// there is no other way (`None`), and the frames are dropped. An error is a fault of this lane's engine. Must not return
    /// [`Executed::Suspended`].
    fn fall_back(
        &mut self,
        frames: &[Frame],
        results: &mut [InferenceResult],
        why: &SuspensionError,
    ) -> Option<Result<Executed, Diagnosis>> {
        let _ = (frames, results, why);
        None
    }

    /// Has the plan say by `stage` which stage it is in, so that one that hangs is seen. Called once, before the first
    /// execution, while streams that want to join the lane wait: it must return at once. Plans that do not say it are taken to
    /// be in their inference.
    fn show_stage(&mut self, stage: StageSetter) {
        let _ = stage;
    }

    /// Runs the plan on a client's tensors, and answers in one part or in several. It may keep [`Request::answers`] and
    /// answer later, from another thread: then it bounds their number and the time. Plans that take frames only refuse
    /// (`E0801`).
    fn answer(&mut self, request: Request) {
        request.fail(&codes::REQUEST_INVALID, "it takes frames only", "send frames through a stream");
    }
}
