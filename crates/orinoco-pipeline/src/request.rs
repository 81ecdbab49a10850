//! Requests: tensors or images for a model, and the place of their answer.

mod answers;
mod queue;

use std::fmt;
use std::sync::Arc;

use orinoco_core::{Code, Diagnosis, ModelId, Nanos, Tensor, codes};

use crate::Frame;

pub use answers::{
    ANSWER_PARTS_MAX, Answer, AnswerReceiver, AnswerSender, NextAnswer, NotTaken, answer_channel,
};
pub use queue::RequestQueue;

/// Requests that may wait for one model. A client that sends more at a time than this would wait longer than most do;
/// each model has its own, so that requests to one of them cannot keep out those to the others.
pub const REQUESTS_MAX: usize = 32;

/// Inputs for a model of a lane, from a client. It is answered once, also if it is dropped.
pub struct Request {
    /// The model.
    pub model: ModelId,
    /// The model's name, for faults.
    pub name: Arc<str>,
    /// Tensors or images that the model infers.
    pub inputs: RequestInputs,
    /// Time after which nobody needs the answer any more. A request that has waited so long is not executed.
    pub deadline: Option<Nanos>,
    /// Its order among the requests of its lane.
    pub priority: Priority,
    /// Place of its answer. The receiver of that can cancel the request.
    pub answers: AnswerSender,
}

/// Inputs of a request.
#[derive(Debug)]
pub enum RequestInputs {
    /// One tensor for each input that is not a constant of the model. The answer is the model's outputs.
    Tensors(Vec<Tensor>),
    /// Images, one or more. The answer is an inference result for each.
    Images(Vec<Frame>),
}

/// Order of requests: those with the highest number go first. Most have 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Priority(pub u8);

/// Reason for which a lane does not accept a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestRefusal {
    /// [`REQUESTS_MAX`] requests wait for its model.
    Overloaded,
    /// The lane does not have its model.
    NoModel,
    /// The lane has ended.
    Ended,
}

/// Reason for which a request is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unserved {
    /// It was not accepted, or its lane or model has ended since.
    Refused(RequestRefusal),
    /// Its deadline passed while it waited.
    Expired,
    /// It was cancelled while it waited.
    Cancelled,
}

impl Request {
    /// Answers it with a fault of its own: it is not executed.
    pub fn fail(self, code: &'static Code, cause: impl fmt::Display, next: impl fmt::Display) {
        let subject = format!("a request to model {}", self.name);
        self.answers.fail(Diagnosis::new(code, subject, cause, next));
    }

    /// Answers it as one that is not executed.
    pub fn refuse(self, why: Unserved) {
        match why {
            Unserved::Refused(RequestRefusal::Overloaded) => {
                let cause = format!("{REQUESTS_MAX} requests wait for it already");
                self.fail(&codes::REQUEST_OVERLOAD, cause, "send fewer requests at a time");
            }
            Unserved::Refused(RequestRefusal::NoModel) => {
                let cause = "its lane does not have this model";
                self.fail(&codes::REQUEST_UNANSWERED, cause, "ask a lane that has it");
            }
            Unserved::Refused(RequestRefusal::Ended) => {
                self.fail(&codes::REQUEST_UNANSWERED, "its lane has ended", "send it again");
            }
            Unserved::Expired => {
                let cause = "its deadline passed while it waited";
                self.fail(&codes::REQUEST_EXPIRED, cause, "give it more time, or a higher priority");
            }
            // Whoever cancelled it knows.
            Unserved::Cancelled => drop(self),
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, inputs, deadline, priority, .. } = self;
        write!(f, "Request({name}, {inputs:?}, {deadline:?}, {priority:?})")
    }
}
