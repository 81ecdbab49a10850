//! The entry of a lane: streams join it, plans are replaced, requests come in.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError};

use orinoco_core::{FrameDesc, ModelId, StreamId};

use super::models::{ExchangeError, JoinError, LaneModels, PlanFacts, StreamModels};
use super::step::{BoundPlan, Step};
use crate::request::{Request, RequestRefusal, Unserved};
use crate::sync::{Mutex, MutexGuard};
use crate::{Closed, FrameSender, ModelResult, Mux, ResultSender, Stop, StreamQueue};

/// Tracker of a stream: tracks the detections of its models from frame to frame. Called for every frame, in order.
pub trait StreamTracker: Send {
    /// Adds what it knows to the findings of one frame.
    fn track(&mut self, frame: &FrameDesc, found: &mut Vec<ModelResult>);
}

/// A stream that joins a lane.
pub struct JoinRequest {
    /// The stream.
    pub stream: StreamId,
    /// Queue of its frames. Streams of one group have the same steps.
    pub queue: StreamQueue,
    /// Steps of each of its frames, in their order.
    pub steps: Vec<Step>,
    /// Plans of those models that the lane does not hold yet.
    pub plans: Vec<BoundPlan>,
    /// Object tracker of this stream, if tracking is enabled.
    pub tracker: Option<Box<dyn StreamTracker>>,
    /// Whether its frames stay in the video hardware's memory.
    pub in_video_memory: bool,
    /// Sender of its results to the sinks.
    pub result_sender: ResultSender,
    /// Stop request for this stream.
    pub stop: Stop,
}

/// State that a lane's thread shares with the threads through which streams join it.
#[derive(Default)]
pub(super) struct LaneState {
    pub(super) models: LaneModels,
    /// Streams that the lane has not admitted yet.
    pub(super) joining: Vec<JoinRequest>,
    /// Plans that the lane has not taken yet, at most one for each model.
    pub(super) exchanges: BTreeMap<ModelId, BoundPlan>,
}

/// Entry through which streams join a lane, also while it runs. They leave it when their source ends.
#[derive(Clone)]
pub struct LaneEntry {
    mux: Arc<Mux>,
    books: Arc<Mutex<LaneState>>,
}

impl LaneEntry {
    pub(super) fn new(mux: &Arc<Mux>, books: &Arc<Mutex<LaneState>>) -> Self {
        Self { mux: Arc::clone(mux), books: Arc::clone(books) }
    }

    /// Adds a stream; its source pushes into the frame sender.
    pub fn join(&self, joining: JoinRequest) -> Result<FrameSender, JoinError> {
        let of_frames = joining.steps.iter().filter(|step| step.on.is_none());
        let models = StreamModels {
            models: joining.steps.iter().map(|step| step.model).collect(),
            of_frames: of_frames.map(|step| step.model).collect(),
            in_video_memory: joining.in_video_memory,
        };
        let brought: Vec<PlanFacts> = joining.plans.iter().map(facts).collect();
        let mut books = lock(&self.books);
        books.models.check_join(&models, &brought)?;
        let batch_max = books.models.batch_max(&models, &brought);
        let frame_sender = self
            .mux
            .add(joining.result_sender.telemetry().clone(), joining.queue, batch_max)
            .map_err(|Closed| JoinError::Ended)?;
        // The lane may know of the stream by now, and waits for the books to admit it.
        books.models.join(joining.stream, models, &brought);
        books.joining.push(joining);
        Ok(frame_sender)
    }

    /// Whether the lane's plan of a model reads frames where the video hardware left them.
    pub fn reads_video_memory(&self, model: ModelId) -> bool {
        lock(&self.books).models.reads_video_memory(model)
    }

    /// Returns the generation of a model that the lane has, or takes next.
    pub fn generation(&self, model: ModelId) -> Option<u32> {
        lock(&self.books).models.generation(model)
    }

    /// Replaces the lane's plan of a model. The lane takes the new one between two batches, and drops the old one on its
    /// own thread, after the answers to its suspended steps. From then on the new plan's batch size holds.
    ///
    /// # Errors
    /// The lane has ended or does not hold the model, or the new plan does not read frames that are in video memory.
    pub fn replace(&self, plan: BoundPlan) -> Result<(), ExchangeError> {
        let new = facts(&plan);
        let mut books = lock(&self.books);
        books.models.exchange(new)?;
        self.mux.exchange().map_err(|Closed| ExchangeError::Ended)?;
        // The lane may know of it by now, and waits for the books to take it.
        let given_up = books.exchanges.insert(plan.model, plan);
        drop(books);
        drop(given_up);
        Ok(())
    }

    /// Returns the inference interval of a model that the lane has.
    pub fn interval(&self, model: ModelId) -> Option<u32> {
        lock(&self.books).models.interval(model)
    }

    /// Changes the inference interval of a model, for all streams of the lane, between two batches.
    ///
    /// # Errors
    /// The lane has ended or does not hold the model.
    pub fn set_interval(&self, model: ModelId, interval: u32) -> Result<(), ExchangeError> {
        if !lock(&self.books).models.set_interval(model, interval) {
            return Err(ExchangeError::NoModel(model));
        }
        self.mux.exchange().map_err(|Closed| ExchangeError::Ended)
    }

    /// Asks a model of the lane. The answer comes by the request's own way, also when the request is refused.
    ///
    /// # Errors
    /// As many requests wait for the model as may, the lane does not have it, or the lane has ended.
    pub fn request(&self, request: Request) -> Result<(), RequestRefusal> {
        if !lock(&self.books).models.has_model(request.model) {
            request.refuse(Unserved::Refused(RequestRefusal::NoModel));
            return Err(RequestRefusal::NoModel);
        }
        self.mux.request(request)
    }

    /// Ends the lane after the batch at work. Frames that wait are dropped, and further ones refused.
    pub fn close(&self) {
        self.mux.close();
    }

    /// Keeps a model on the lane until this is dropped, if the lane has it.
    pub fn hold(&self, model: ModelId) -> Option<ModelHold> {
        let is_held = lock(&self.books).models.hold(model);
        is_held.then(|| ModelHold { mux: Arc::clone(&self.mux), books: Arc::clone(&self.books), model })
    }
}

/// Facts about a plan.
pub(super) fn facts(plan: &BoundPlan) -> PlanFacts {
    let BoundPlan { model, generation, interval, executor, .. } = plan;
    let (batch_max, reads_video_memory) = (executor.batch_max(), executor.reads_video_memory());
    PlanFacts { model: *model, generation: *generation, batch_max, reads_video_memory, interval: *interval }
}

/// A use of a lane's model by somebody who prepares a stream for it.
pub struct ModelHold {
    mux: Arc<Mux>,
    books: Arc<Mutex<LaneState>>,
    model: ModelId,
}

impl Drop for ModelHold {
    fn drop(&mut self) {
        let is_unused = lock(&self.books).models.release(self.model);
        if is_unused {
            // The lane drops the model between two batches. A lane that has ended has dropped all of its models.
            let _ = self.mux.exchange();
        }
    }
}

impl fmt::Debug for ModelHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ModelHold({})", self.model)
    }
}

pub(super) fn lock(books: &Mutex<LaneState>) -> MutexGuard<'_, LaneState> {
    // A poisoned lock means a panic between two counts, and those are whole.
    books.lock().unwrap_or_else(PoisonError::into_inner)
}
