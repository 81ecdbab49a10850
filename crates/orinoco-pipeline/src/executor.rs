use std::time::Duration;

use orinoco_core::{Diagnosis, InferenceResult};

use crate::Frame;

/// Where a replay's time went, for the whole batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct StageTimes {
    /// Colour, resize, normalise.
    pub preprocess: Duration,
    /// The engine.
    pub infer: Duration,
    /// Head and suppression.
    pub postprocess: Duration,
    /// Captured sequences that had to be launched call by call; 0 on the CPU.
    pub graph_fallbacks: u32,
}

/// A plan: preprocess, infer and postprocess for one (model, batch), bound once and replayed. On the CPU a list of
/// bound calls; on a GPU a captured graph. A lane knows nothing else about it.
pub trait Executor: Send {
    /// The most frames one replay takes.
    fn batch_max(&self) -> usize;

    /// Whether it takes frames whose memory is a dma-buf of a Jetson's video hardware, which the host does not read.
    fn reads_video_memory(&self) -> bool {
        false
    }

    /// Runs the plan on `frames` (1 to `batch_max`), and fills as many `results`.
    fn execute(&mut self, frames: &[Frame], results: &mut [InferenceResult])
    -> Result<StageTimes, Diagnosis>;
}
