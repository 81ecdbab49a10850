use std::collections::BTreeMap;

use orinoco_core::{ModelId, StreamId};

/// After this many failed batches in a row the engine is taken to be broken and the lane ends.
const FAILURES_MAX: u32 = 8;

/// The books of a lane, without what executes: its streams, the models that they use, and failures in a row. A model that
/// no stream uses is given up, and its memory with it.
#[derive(Debug, Default)]
pub struct LaneCore {
    /// Models of each stream, in the order of its steps.
    streams: BTreeMap<StreamId, Vec<ModelId>>,
    models: BTreeMap<ModelId, ModelUse>,
    /// Failed batches since one succeeded.
    failures: u32,
}

/// A model of a lane.
#[derive(Clone, Copy, Debug)]
struct ModelUse {
    /// Number of streams that use it, and of those that are prepared.
    users: usize,
    /// Whether the lane's plan of it reads frames in the video hardware's memory; another lane's may not.
    reads_video_memory: bool,
}

/// A model's plan that a stream brings to a lane.
#[derive(Clone, Copy, Debug)]
pub struct PlanFacts {
    /// The model.
    pub model: ModelId,
    /// Whether the plan reads frames in the video hardware's memory.
    pub reads_video_memory: bool,
}

/// Why a stream cannot join a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinError {
    /// The lane has ended with its last stream.
    Ended,
    /// The lane does not hold this model, and no plan of it came along.
    NoPlan(ModelId),
}

/// What becomes of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterBatch {
    /// Its results go on to the sinks.
    Forward,
    /// Its frames are dropped.
    Drop,
    /// Its frames are dropped, and the lane ends: its engine is broken.
    End,
}

impl LaneCore {
    /// Checks that a stream with these models can join: each is there, or its plan is brought along.
    pub fn check_join(&self, models: &[ModelId], brought: &[PlanFacts]) -> Result<(), JoinError> {
        let is_brought = |model: ModelId| brought.iter().any(|plan| plan.model == model);
        let missing = |model: &&ModelId| !self.models.contains_key(model) && !is_brought(**model);
        models.iter().find(missing).map_or(Ok(()), |model| Err(JoinError::NoPlan(*model)))
    }

    /// Adds a stream that [`Self::check_join`] has passed.
    pub fn join(&mut self, stream: StreamId, models: Vec<ModelId>, brought: &[PlanFacts]) {
        for model in &models {
            // A plan that the lane has already stays.
            let reads_video_memory =
                brought.iter().any(|plan| plan.model == *model && plan.reads_video_memory);
            self.models.entry(*model).or_insert(ModelUse { users: 0, reads_video_memory }).users += 1;
        }
        let before = self.streams.insert(stream, models);
        assert!(before.is_none(), "stream {stream} is here already");
    }

    /// Removes a stream, and gives up models that nobody uses any more.
    pub fn leave(&mut self, stream: StreamId) {
        let models = self.streams.remove(&stream).unwrap_or_else(|| panic!("stream {stream} is not here"));
        for model in models {
            self.release(model);
        }
        self.models.retain(|_, used| used.users > 0);
    }

    /// Keeps a model for somebody who prepares a stream for it, until [`Self::release`]; false if it is not here.
    pub fn hold(&mut self, model: ModelId) -> bool {
        let used = self.models.get_mut(&model);
        used.map(|used| used.users += 1).is_some()
    }

    /// Ends a use of a model. Without any left it is given up when the next stream leaves.
    pub fn release(&mut self, model: ModelId) {
        let used = self.models.get_mut(&model);
        used.unwrap_or_else(|| panic!("model {model} is not here")).users -= 1;
    }

    /// Whether the lane has a model.
    pub fn has_model(&self, model: ModelId) -> bool {
        self.models.contains_key(&model)
    }

    /// Whether the lane's plan of a model reads frames where the video hardware left them.
    pub fn reads_video_memory(&self, model: ModelId) -> bool {
        self.models.get(&model).is_some_and(|used| used.reads_video_memory)
    }

    /// Takes whether a batch was executed, and decides what becomes of it.
    pub fn finished(&mut self, succeeded: bool) -> AfterBatch {
        self.failures = if succeeded { 0 } else { self.failures + 1 };
        match self.failures {
            0 => AfterBatch::Forward,
            failures if failures < FAILURES_MAX => AfterBatch::Drop,
            _ => AfterBatch::End,
        }
    }
}
