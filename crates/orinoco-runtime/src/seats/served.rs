//! Models that this board executes for other seats.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use orinoco_core::{Clock, Diagnosis, ModelId, Nanos, StreamId, codes};
use orinoco_pipeline::{AnswerReceiver, Frame, LaneEntry, Priority, Request, RequestInputs, answer_channel};

use super::ModelIdentity;

/// Models of the streams with the source `cluster://`, which other seats may use.
#[derive(Clone)]
pub struct ServedModels {
    models: Arc<Mutex<Vec<ServedModel>>>,
    clock: Arc<dyn Clock>,
}

/// Reason why this board does not infer another seat's images (`E1006`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotServed {
    /// No stream serves a model of this name.
    NoModel,
    /// The model of this name has another head or other labels, so that its results mean something else.
    OtherModel,
}

impl NotServed {
    /// Returns the fault of `model` that the other seat sees.
    pub fn diagnosis(self, model: &str) -> Diagnosis {
        let (cause, next) = match self {
            Self::NoModel => (
                "the seat serves no model of this name",
                "list it in a [[stream]] with source = \"cluster://\" of that board",
            ),
            Self::OtherModel => {
                ("the seat's model has another head or other labels", "give both boards the same model")
            }
        };
        Diagnosis::new(&codes::SEAT_FAILED, format!("model {model}"), cause, next)
    }
}

pub(crate) struct ServedModel {
    pub(crate) name: Arc<str>,
    pub(crate) id: ModelId,
    pub(crate) identity: ModelIdentity,
    /// Stream that keeps it on its lane.
    pub(crate) stream: StreamId,
    pub(crate) lane: LaneEntry,
}

impl ServedModels {
    pub(crate) fn new(clock: &Arc<dyn Clock>) -> Self {
        Self { models: Arc::default(), clock: Arc::clone(clock) }
    }

    /// Returns the clock of the run.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Asks a model to infer images by a deadline. The answer is a fault or one result for each image.
    ///
    /// # Errors
    /// [`NotServed`]
    pub fn infer(
        &self,
        model: &str,
        identity: &ModelIdentity,
        images: Vec<Frame>,
        deadline: Nanos,
    ) -> Result<AnswerReceiver, NotServed> {
        let (request, lane, receiver) = {
            let models = self.lock();
            let found = models.iter().find(|served| &*served.name == model);
            let served = found.ok_or(NotServed::NoModel)?;
            if served.identity != *identity {
                return Err(NotServed::OtherModel);
            }
            let (answers, receiver) = answer_channel(&self.clock);
            let request = Request {
                model: served.id,
                name: Arc::clone(&served.name),
                inputs: RequestInputs::Images(images),
                deadline: Some(deadline),
                priority: Priority::default(),
                answers,
            };
            (request, served.lane.clone(), receiver)
        };
        // A refusal is an answer, too.
        let _ = lane.request(request);
        Ok(receiver)
    }

    pub(crate) fn add(&self, models: impl Iterator<Item = ServedModel>) {
        self.lock().extend(models);
    }

    pub(crate) fn remove(&self, stream: StreamId) {
        self.lock().retain(|model| model.stream != stream);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ServedModel>> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
