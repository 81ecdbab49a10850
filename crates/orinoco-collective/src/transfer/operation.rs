//! One transfer: it is cut into pieces, of which several are under way at a time.

use std::sync::Arc;
use std::time::Duration;

use super::buffer::Buffers;
use super::error::TransferError;
use super::frame::{Body, Notice, PIECE_BYTES, Target};
use super::options::TransferOptions;
use super::region::RegionInfo;
use super::requests::{Answer, OpenCall, Requests, WINDOW};
use crate::clock::Ticks;

/// One transfer with a region of another rank.
pub(super) struct Operation<'a> {
    pub(super) peer: usize,
    pub(super) region: &'a str,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) options: TransferOptions,
    pub(super) requests: &'a Requests,
    pub(super) buffers: &'a Arc<Buffers>,
}

/// Fills the piece at an offset of the transfer.
type Fill<'a> = dyn FnMut(u64, &mut [u8]) -> Result<(), TransferError> + 'a;
/// Takes the piece at an offset of the transfer.
type Take<'a> = dyn FnMut(u64, &[u8]) -> Result<(), TransferError> + 'a;

/// This rank's side of a transfer. The pieces follow one another; each is named by its offset in the transfer.
pub(super) enum Side<'a> {
    /// Fills pieces that are put.
    Source(&'a mut Fill<'a>),
    /// Takes pieces that were got.
    Sink(&'a mut Take<'a>),
}

/// Progress of a transfer.
struct Progress {
    start: Ticks,
    /// Number of the region's registration, or 0 while no answer has told it.
    serial: u32,
    /// Pieces that were asked for, and those without an answer.
    asked: u64,
    open: usize,
    confirmed: u64,
}

impl Operation<'_> {
    /// Moves all bytes. Returns when all are in place.
    pub(super) fn run(&self, mut side: Side<'_>) -> Result<(), TransferError> {
        let mut progress = Progress { start: Ticks::now(), serial: 0, asked: 0, open: 0, confirmed: 0 };
        let call = self.begin(&progress)?;
        loop {
            while self.may_ask(&progress) {
                self.ask(&call, &mut progress, &mut side)?;
            }
            if progress.open == 0 {
                return Ok(());
            }
            let Some((piece, answer)) = call.next(self.rest(&progress)) else {
                return Err(self.late(&progress));
            };
            progress.open -= 1;
            progress.serial = self.take(piece, answer, &mut side)?;
            progress.confirmed += self.piece_bytes(piece) as u64;
        }
    }

    /// Asks for the regions of the other rank.
    pub(super) fn list(&self) -> Result<Vec<RegionInfo>, TransferError> {
        let progress = Progress { start: Ticks::now(), serial: 0, asked: 0, open: 0, confirmed: 0 };
        let call = self.begin(&progress)?;
        call.add(0, Body::List, 0, self.buffers.take(0));
        match call.next(self.rest(&progress)) {
            Some((_, Answer::Regions(regions))) => Ok(regions),
            Some((_, answer)) => Err(self.fault(answer)),
            None => Err(self.late(&progress)),
        }
    }

    fn begin(&self, progress: &Progress) -> Result<OpenCall<'_>, TransferError> {
        let failed = |cause| TransferError::RankFailed { rank: self.peer, cause };
        let call = self.requests.begin(self.rest(progress)).map_err(failed)?;
        call.ok_or_else(|| self.late(progress))
    }

    /// Whether the next piece may be asked for. The first tells the number of the registration, so that all pieces concern the same
    /// one. The last goes alone if something is to happen when all bytes are in place.
    fn may_ask(&self, progress: &Progress) -> bool {
        let is_last = progress.asked + 1 == self.pieces();
        let goes_alone =
            progress.serial == 0 || (is_last && (self.options.notify.is_some() || self.options.durable));
        progress.asked < self.pieces() && progress.open < if goes_alone { 1 } else { WINDOW }
    }

    fn ask(
        &self,
        call: &OpenCall<'_>,
        progress: &mut Progress,
        side: &mut Side<'_>,
    ) -> Result<(), TransferError> {
        let piece = progress.asked * PIECE_BYTES as u64;
        let is_last = progress.asked + 1 == self.pieces();
        let notice = self.options.notify.filter(|_| is_last);
        let target = Target {
            region: self.region.to_owned(),
            serial: progress.serial,
            // Saturates: an offset this large is out of range for any region, so the owner refuses the first piece.
            offset: self.offset.saturating_add(piece),
            notice: notice.map(|value| Notice { value, transfer_bytes: self.bytes }),
            is_durable: self.options.durable && is_last,
        };
        let len = self.piece_bytes(piece);
        let (body, payload) = match side {
            Side::Source(fill) => {
                let mut payload = self.buffers.take(len);
                fill(piece, &mut payload)?;
                (Body::Put(target), payload)
            }
            Side::Sink(_) => (Body::Get(target), self.buffers.take(0)),
        };
        call.add(piece, body, u32::try_from(len).expect("a short piece"), payload);
        progress.asked += 1;
        progress.open += 1;
        Ok(())
    }

    /// Takes the answer for a piece. Returns the number of the region's registration.
    fn take(&self, piece: u64, answer: Answer, side: &mut Side<'_>) -> Result<u32, TransferError> {
        match (answer, side) {
            (Answer::Done { serial }, Side::Source(_)) => Ok(serial),
            (Answer::Data { serial, bytes }, Side::Sink(take)) => take(piece, &bytes).map(|()| serial),
            (answer, _) => Err(self.fault(answer)),
        }
    }

    fn fault(&self, answer: Answer) -> TransferError {
        let rank = self.peer;
        match answer {
            Answer::Refused(why) => TransferError::Refused { rank, region: self.region.to_owned(), why },
            Answer::Failed(cause) => TransferError::RankFailed { rank, cause },
            Answer::Done { .. } | Answer::Data { .. } | Answer::Regions(_) => {
                unreachable!("the dialogue has checked that the answer fits the request")
            }
        }
    }

    fn pieces(&self) -> u64 {
        // A transfer without bytes asks once, too, so that its range is checked and its notification is sent.
        self.bytes.div_ceil(PIECE_BYTES as u64).max(1)
    }

    fn piece_bytes(&self, piece: u64) -> usize {
        usize::try_from(self.bytes - piece).map_or(PIECE_BYTES, |rest| rest.min(PIECE_BYTES))
    }

    fn rest(&self, progress: &Progress) -> Duration {
        self.options.deadline.saturating_sub(Ticks::now().since(progress.start))
    }

    /// Error of a transfer whose time is up. If the other rank is known to have failed by then, that is the reason.
    fn late(&self, progress: &Progress) -> TransferError {
        let rank = self.peer;
        match self.requests.failure() {
            Some(cause) => TransferError::RankFailed { rank, cause },
            None => TransferError::Late {
                rank,
                waited: Ticks::now().since(progress.start),
                confirmed: progress.confirmed,
                bytes: self.bytes,
            },
        }
    }
}
