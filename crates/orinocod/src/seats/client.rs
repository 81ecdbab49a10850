//! Thread of a board whose images another seat infers.

use std::sync::Arc;
use std::time::Duration;

use orinoco_collective::{ClusterGroup, CollectiveError};
use orinoco_core::InferenceResult;
use orinoco_runtime::SeatBatch;

use super::faults::{SeatError, log_if_timed_out};
use super::inbox::{Inbox, Next};
use super::links::SeatLinks;
use super::messages::{MESSAGE_MAX, receive, send};
use super::wire::{decode_answer, encode_request};
use crate::journal::{self, Level};

/// Interval at which a client without images shows the server that it is there.
const SIGN_EVERY: Duration = Duration::from_secs(1);

/// One seat that infers images of this board.
pub(super) struct Client {
    pub(super) seat: String,
    /// Group of the two boards.
    pub(super) pair: ClusterGroup,
    pub(super) inbox: Arc<Inbox>,
    pub(super) links: Arc<SeatLinks>,
}

/// The connection with the server is of no use any more.
struct Lost(String);

impl Client {
    /// Sends batches until the epoch is over or the connection fails.
    pub(super) fn run(mut self) {
        let (mut message, mut buffer) = (Vec::new(), Vec::new());
        loop {
            let done = match self.inbox.next(SIGN_EVERY) {
                Next::Batch(batch) => self.infer(batch, &mut message, &mut buffer),
                Next::Idle => send(&mut self.pair, &[]).map_err(|why| self.lost(&why)),
                Next::Closed => return,
            };
            if let Err(Lost(why)) = done {
                journal::log(
                    Level::Warning,
                    &format!("cluster connection to seat={} lost: {why}", self.seat),
                );
                self.links.waits().lost(&self.seat);
                let waiting = self.inbox.close();
                return waiting
                    .into_iter()
                    .for_each(|batch| batch.fail(SeatError::Offline.of_step(&self.seat)));
            }
        }
    }

    fn infer(&mut self, batch: SeatBatch, message: &mut Vec<u8>, buffer: &mut Vec<u8>) -> Result<(), Lost> {
        let rest = batch.rest();
        if rest.is_zero() {
            batch.fail(SeatError::Late.of_step(&self.seat));
            return Ok(());
        }
        encode_request(&batch, rest, message);
        if message.len() > MESSAGE_MAX {
            batch.fail(SeatError::TooLarge.of_step(&self.seat));
            return Ok(());
        }
        let images = batch.images.len();
        let answered = self.exchange(message, buffer, images);
        match answered {
            Ok(answer) => {
                batch.answer.resume(answer.map_err(|why| why.of_step(&self.seat)));
                Ok(())
            }
            Err(lost) => {
                batch.fail(SeatError::Offline.of_step(&self.seat));
                Err(lost)
            }
        }
    }

    fn exchange(
        &mut self,
        message: &[u8],
        buffer: &mut Vec<u8>,
        images: usize,
    ) -> Result<Result<Vec<InferenceResult>, SeatError>, Lost> {
        let start = self.links.clock().now();
        send(&mut self.pair, message).map_err(|why| self.lost(&why))?;
        let answer = match receive(&mut self.pair, buffer) {
            Ok(answer) => answer.ok_or_else(|| Lost("its answer is too long".to_owned()))?,
            Err(why) => return Err(self.lost(&why)),
        };
        self.links.waits().answered(&self.seat, start, self.links.clock().now());
        Ok(decode_answer(answer, images))
    }

    fn lost(&self, why: &CollectiveError) -> Lost {
        log_if_timed_out(&self.pair, why);
        Lost(why.to_string())
    }
}
