//! Thread of a board that infers images of another seat.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use orinoco_collective::{ClusterGroup, CollectiveError};
use orinoco_core::{Diagnosis, InferenceResult, codes};
use orinoco_pipeline::{Answer, NextAnswer};
use orinoco_runtime::{NotServed, ServedModels};

use super::faults::{SLOW_SEAT, log_if_timed_out};
use super::links::SeatLinks;
use super::messages::{MESSAGE_MAX, receive, send};
use super::wire::{DecodeError, Images, decode_request, encode_answer};
use crate::journal::{self, Level};

/// One seat whose images this board infers.
pub(super) struct Server {
    pub(super) seat: String,
    /// Group of the two boards.
    pub(super) pair: ClusterGroup,
    pub(super) links: Arc<SeatLinks>,
    /// The epoch is over.
    pub(super) stop: Arc<AtomicBool>,
}

impl Server {
    /// Answers requests until the epoch is over, the client leaves, or the connection fails.
    pub(super) fn run(mut self) {
        let (mut buffer, mut message) = (Vec::new(), Vec::new());
        while !self.stop.load(Ordering::Acquire) {
            match self.serve(&mut buffer, &mut message) {
                Ok(true) => {}
                Ok(false) => {
                    let text =
                        format!("cluster connection to seat={} closed: its message is too long", self.seat);
                    return journal::log(Level::Warning, &text);
                }
                Err(why) => {
                    log_if_timed_out(&self.pair, &why);
                    let text = format!("cluster connection to seat={} closed: {why}", self.seat);
                    return journal::log(Level::Info, &text);
                }
            }
        }
    }

    /// Answers one request. Returns whether the connection can be used further.
    fn serve(&mut self, buffer: &mut Vec<u8>, message: &mut Vec<u8>) -> Result<bool, CollectiveError> {
        match receive(&mut self.pair, buffer)? {
            None => return Ok(false),
            // A sign that the client is there.
            Some([]) => return Ok(true),
            Some(_) => {}
        }
        // The frames keep the message's bytes until they are inferred.
        let answer = self.infer(std::mem::take(buffer)).map_err(ServeError::diagnosis);
        encode_answer(&answer, message);
        if message.len() > MESSAGE_MAX {
            encode_answer(&Err(ServeError::TooLarge.diagnosis()), message);
        }
        send(&mut self.pair, message)?;
        Ok(true)
    }

    fn infer(&self, request: Vec<u8>) -> Result<Vec<InferenceResult>, ServeError> {
        let served = self.links.served().ok_or(ServeError::Starting)?;
        infer(served, decode_request(request, &**served.clock()).map_err(ServeError::Request)?)
    }
}

/// Infers images, and waits for the results as long as somebody needs them.
fn infer(served: &ServedModels, images: Images) -> Result<Vec<InferenceResult>, ServeError> {
    let Images { model, identity, frames, time } = images;
    let deadline = served.clock().now() + time;
    let answers = match served.infer(&model, &identity, frames, deadline) {
        Ok(answers) => answers,
        Err(why) => return Err(ServeError::NotServed { model, why }),
    };
    loop {
        match answers.next(Some(deadline)) {
            NextAnswer::Answer(Answer::Results(results)) => return Ok(results),
            NextAnswer::Answer(Answer::Failed(why)) => return Err(ServeError::Model(why)),
            NextAnswer::Answer(Answer::Part(_) | Answer::Last(_)) => {}
            NextAnswer::Pending | NextAnswer::Ended => return Err(ServeError::Late { model, time }),
        }
    }
}

/// Reason why this board does not infer images of another seat.
#[derive(Debug)]
enum ServeError {
    /// The board is starting, so that its models are not there yet.
    Starting,
    /// The request cannot be read.
    Request(DecodeError),
    /// The board does not serve the model.
    NotServed {
        /// Name of the model.
        model: String,
        /// Reason why it does not.
        why: NotServed,
    },
    /// The model's lane refused the images or failed.
    Model(Diagnosis),
    /// There were no results within the time that the other seat gave.
    Late {
        /// Name of the model.
        model: String,
        /// That time.
        time: Duration,
    },
    /// The results do not fit into one message.
    TooLarge,
}

impl ServeError {
    /// Returns the fault that the other seat gets.
    fn diagnosis(self) -> Diagnosis {
        match self {
            Self::Starting => {
                let (cause, next) = ("it is starting", "wait until it has started");
                Diagnosis::new(&codes::SEAT_OFFLINE, "the seat", cause, next)
            }
            Self::Request(why) => why.diagnosis(),
            Self::NotServed { model, why } => why.diagnosis(&model),
            Self::Model(why) => why,
            Self::Late { model, time } => {
                let cause = format!("no result within {} ms", time.as_millis());
                Diagnosis::new(&codes::REQUEST_EXPIRED, format!("model {model}"), cause, SLOW_SEAT)
            }
            Self::TooLarge => {
                let (cause, next) = ("the results are too large", "lower `batch` of the model");
                Diagnosis::new(&codes::SEAT_FAILED, "the results", cause, next)
            }
        }
    }
}
