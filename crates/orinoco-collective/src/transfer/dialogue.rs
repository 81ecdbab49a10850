//! The protocol with one peer, without its connection: requests of this rank and their answers, and those of the peer.

use std::collections::VecDeque;
use std::sync::Arc;

use super::buffer::Buffer;
use super::error::RefusalReason;
use super::frame::{Body, Frame, HEADER_BYTES, Target, decode_regions, encode_regions};
use super::notification::Notification;
use super::requests::{Answer, REQUESTS_MAX, Requests};
use super::shared::Shared;
use crate::FailureCause;

/// The protocol with one peer.
pub(super) struct Dialogue {
    peer: usize,
    /// Whether the connection protects the integrity of payloads. Otherwise they have checksums.
    keeps_whole: bool,
    shared: Arc<Shared>,
    requests: Arc<Requests>,
    /// Requests of the peer without an answer, in their order: [`REQUESTS_MAX`] at most.
    unanswered: VecDeque<Unanswered>,
    /// Requests and answers take turns, so that neither waits for all of the other.
    is_request_next: bool,
}

/// Request of the peer without an answer. What a get asks for is read when it can be sent, so few bytes wait.
struct Unanswered {
    number: u32,
    reply: Reply,
}

enum Reply {
    Finished(Body),
    Read { target: Target, bytes: u32 },
    List,
}

/// A frame on its way to the peer.
pub(super) struct Outgoing {
    pub(super) header: [u8; HEADER_BYTES],
    pub(super) payload: Buffer,
}

impl Dialogue {
    pub(super) fn new(peer: usize, keeps_whole: bool, shared: Arc<Shared>, requests: Arc<Requests>) -> Self {
        Self { peer, keeps_whole, shared, requests, unanswered: VecDeque::new(), is_request_next: false }
    }

    /// Takes a header that has come. Its payload follows.
    ///
    /// # Errors
    /// If no agent would send it now: the connection cannot be used any more.
    pub(super) fn accept(&mut self, header: &[u8; HEADER_BYTES]) -> Result<Frame, FailureCause> {
        let frame = Frame::decode(header).ok_or(FailureCause::Damaged)?;
        let is_right = match frame.body {
            Body::Put(_) | Body::Get(_) | Body::List => self.unanswered.len() < REQUESTS_MAX,
            _ => self.requests.is_awaited(&frame),
        };
        if is_right { Ok(frame) } else { Err(FailureCause::Unexpected) }
    }

    /// Takes the payload of a frame that was accepted.
    ///
    /// # Errors
    /// If the payload is corrupt, or is not a valid list of regions.
    pub(super) fn arrived(&mut self, frame: Frame, payload: Buffer) -> Result<(), FailureCause> {
        let has_right_checksum = match frame.checksum {
            Some(checksum) => checksum == crc32c::crc32c(&payload),
            None => self.keeps_whole || payload.is_empty(),
        };
        if !has_right_checksum {
            return Err(FailureCause::Damaged);
        }
        let number = frame.number;
        let mut answer = |reply| self.unanswered.push_back(Unanswered { number, reply });
        match frame.body {
            Body::Get(target) => answer(Reply::Read { target, bytes: frame.bytes }),
            Body::List => answer(Reply::List),
            Body::Put(target) => {
                let body = match put(&self.shared, self.peer, &target, &payload) {
                    Ok(serial) => Body::Done { serial },
                    Err(reason) => Body::Refused(reason),
                };
                answer(Reply::Finished(body));
            }
            Body::Done { serial } => self.requests.complete(Answer::Done { serial }),
            Body::Data { serial } => self.requests.complete(Answer::Data { serial, bytes: payload }),
            Body::Refused(reason) => self.requests.complete(Answer::Refused(reason)),
            Body::Regions => {
                let regions = decode_regions(&payload).ok_or(FailureCause::Unexpected)?;
                self.requests.complete(Answer::Regions(regions));
            }
        }
        Ok(())
    }

    /// The next frame to send.
    pub(super) fn next_outgoing(&mut self) -> Option<Outgoing> {
        let (mut frame, payload) = match self.is_request_next {
            true => self.requests.next().or_else(|| self.next_answer())?,
            false => self.next_answer().or_else(|| self.requests.next())?,
        };
        self.is_request_next = !self.is_request_next;
        frame.checksum = (!self.keeps_whole && !payload.is_empty()).then(|| crc32c::crc32c(&payload));
        Some(Outgoing { header: frame.encode(), payload })
    }

    fn next_answer(&mut self) -> Option<(Frame, Buffer)> {
        let Unanswered { number, reply } = self.unanswered.pop_front()?;
        let buffers = &self.shared.buffers;
        let (body, payload) = match reply {
            Reply::Finished(body) => (body, buffers.take(0)),
            Reply::Read { target, bytes } => {
                let mut payload = buffers.take(bytes as usize);
                match get(&self.shared, self.peer, &target, &mut payload) {
                    Ok(serial) => (Body::Data { serial }, payload),
                    Err(reason) => (Body::Refused(reason), buffers.take(0)),
                }
            }
            Reply::List => {
                let list = encode_regions(&self.shared.registry.list());
                let mut payload = buffers.take(list.len());
                payload.copy_from_slice(&list);
                (Body::Regions, payload)
            }
        };
        let bytes = u32::try_from(payload.len()).expect("a short payload");
        Some((Frame { number, bytes, checksum: None, body }, payload))
    }
}

/// Writes a piece to a region. Returns the number of the region's registration.
fn put(shared: &Shared, from: usize, target: &Target, bytes: &[u8]) -> Result<u32, RefusalReason> {
    let region = shared.registry.find(&target.region, target.serial)?;
    region.check_write()?;
    region.check_range(target.offset, bytes.len() as u64)?;
    notifying(shared, from, target, bytes.len() as u64, || {
        region.write(target.offset, bytes)?;
        if target.is_durable { region.sync() } else { Ok(()) }
    })?;
    Ok(region.serial())
}

/// Reads a piece of a region. Returns the number of the region's registration.
fn get(shared: &Shared, from: usize, target: &Target, into: &mut [u8]) -> Result<u32, RefusalReason> {
    let region = shared.registry.find(&target.region, target.serial)?;
    region.check_read()?;
    region.check_range(target.offset, into.len() as u64)?;
    notifying(shared, from, target, into.len() as u64, || region.read(target.offset, into))?;
    Ok(region.serial())
}

/// Accesses a region, and notifies its owner if the request says so. Where there is no room for a notification, it does neither.
fn notifying(
    shared: &Shared,
    from: usize,
    target: &Target,
    piece_bytes: u64,
    access: impl FnOnce() -> Result<(), RefusalReason>,
) -> Result<(), RefusalReason> {
    let Some(notice) = target.notice else { return access() };
    let bytes = notice.transfer_bytes;
    // The range of the piece is in the region, so the sum cannot overflow.
    let Some(offset) = (target.offset + piece_bytes).checked_sub(bytes).filter(|_| bytes >= piece_bytes)
    else {
        return Err(RefusalReason::OutOfRange { region_bytes: 0 });
    };
    let reservation = shared.notifications.reserve()?;
    access()?;
    let (region, value) = (target.region.clone(), notice.value);
    reservation.fill(Notification { from, region, offset, bytes, value });
    Ok(())
}
