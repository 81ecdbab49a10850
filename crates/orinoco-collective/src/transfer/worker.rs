//! The thread of one connection: it sends requests and answers, and serves those of the peer.

use std::io::IoSlice;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use super::buffer::Buffer;
use super::dialogue::{Dialogue, Outgoing};
use super::frame::{Frame, HEADER_BYTES};
use super::requests::Requests;
use super::shared::Shared;
use crate::FailureCause;
use crate::clock::Ticks;
use crate::message::Moved;
use crate::tcp::{Bundle, lower, wait_for};

/// Longest sleep of a thread that nothing wakes. Whatever it waits for wakes it; this only bounds the wait.
const SLEEP: Duration = Duration::from_secs(1);
/// Size of the buffer for discarded input.
const DISCARDED_BYTES: usize = 16 << 10;

/// One connection, and what is on its way over it.
pub(super) struct Worker {
    peer: usize,
    shared: Arc<Shared>,
    requests: Arc<Requests>,
    dialogue: Dialogue,
    bundle: Bundle,
    /// Bytes that were read from the connection before, and not used.
    unused: Vec<u8>,
    incoming: Incoming,
    outgoing: Option<(Outgoing, usize)>,
    can_send: bool,
    is_closed: bool,
    /// Time at which the end of the connection or of the peer was first noticed.
    ending_since: Option<Ticks>,
}

enum Incoming {
    Header { bytes: [u8; HEADER_BYTES], filled: usize },
    Payload { frame: Frame, payload: Buffer, filled: usize },
}

impl Incoming {
    const NOTHING: Self = Self::Header { bytes: [0; HEADER_BYTES], filled: 0 };
}

/// Fails the requests of a connection whose thread panics, for example in a device's memory: nobody would answer them.
struct FailRequests(Arc<Requests>);

impl Drop for FailRequests {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail(FailureCause::Disconnected);
        }
    }
}

impl Worker {
    /// Creates the worker of a connection from which some bytes were read already.
    pub(super) fn new(
        peer: usize,
        shared: Arc<Shared>,
        requests: Arc<Requests>,
        (bundle, unused): (Bundle, Vec<u8>),
    ) -> Self {
        let keeps_whole = bundle.keeps_whole();
        let dialogue = Dialogue::new(peer, keeps_whole, Arc::clone(&shared), Arc::clone(&requests));
        Self {
            peer,
            shared,
            requests,
            dialogue,
            bundle,
            unused,
            incoming: Incoming::NOTHING,
            outgoing: None,
            can_send: true,
            is_closed: false,
            ending_since: None,
        }
    }

    /// Serves the peer until it fails, or until this rank leaves.
    pub(super) fn run(mut self) {
        let _end = FailRequests(Arc::clone(&self.requests));
        match self.serve() {
            Ok(()) => self.leave(),
            Err(cause) => self.requests.fail(cause),
        }
    }

    fn serve(&mut self) -> Result<(), FailureCause> {
        while !self.shared.is_leaving() {
            let has_sent = self.send();
            if self.receive()? || has_sent {
                continue;
            }
            match self.verdict() {
                Some(cause) => return Err(cause),
                None => self.wait(),
            }
        }
        Ok(())
    }

    /// Sends what the connection takes of one frame. Returns whether anything moved.
    fn send(&mut self) -> bool {
        if !self.can_send {
            return false;
        }
        if self.outgoing.is_none() {
            self.outgoing = self.dialogue.next_outgoing().map(|outgoing| (outgoing, 0));
        }
        let Some((frame, sent)) = &mut self.outgoing else { return false };
        let header = IoSlice::new(&frame.header[(*sent).min(HEADER_BYTES)..]);
        let payload = IoSlice::new(&frame.payload[sent.saturating_sub(HEADER_BYTES)..]);
        let slices = [header, payload];
        let unsent = match (slices[0].is_empty(), slices[1].is_empty()) {
            (true, _) => &slices[1..],
            (_, true) => &slices[..1],
            _ => &slices[..],
        };
        match self.bundle.write(unsent) {
            Moved::Bytes(bytes) => {
                *sent += bytes;
                if *sent == HEADER_BYTES + frame.payload.len() {
                    self.outgoing = None;
                }
                true
            }
            Moved::Later => false,
            // What the peer sent before is still read; the read then reports the closed connection.
            Moved::Closed | Moved::Damaged => {
                self.can_send = false;
                false
            }
        }
    }

    /// Reads what has come of one header or payload. Returns whether anything moved.
    fn receive(&mut self) -> Result<bool, FailureCause> {
        if self.is_closed {
            return Ok(false);
        }
        let (into, filled) = match &mut self.incoming {
            Incoming::Header { bytes, filled } => (&mut bytes[*filled..], filled),
            Incoming::Payload { payload, filled, .. } => (&mut payload[*filled..], filled),
        };
        match read(&mut self.unused, &mut self.bundle, into) {
            Moved::Bytes(bytes) => *filled += bytes,
            Moved::Later => return Ok(false),
            Moved::Closed => {
                self.is_closed = true;
                return Ok(false);
            }
            Moved::Damaged => return Err(FailureCause::Damaged),
        }
        self.advance()?;
        Ok(true)
    }

    /// Takes a header or a payload that has come whole.
    fn advance(&mut self) -> Result<(), FailureCause> {
        if let Incoming::Header { bytes, filled: HEADER_BYTES } = &self.incoming {
            let frame = self.dialogue.accept(bytes)?;
            let payload = self.shared.buffers.take(frame.payload_bytes());
            self.incoming = Incoming::Payload { frame, payload, filled: 0 };
        }
        let is_whole =
            matches!(&self.incoming, Incoming::Payload { payload, filled, .. } if *filled == payload.len());
        if !is_whole {
            return Ok(());
        }
        match std::mem::replace(&mut self.incoming, Incoming::NOTHING) {
            Incoming::Payload { frame, payload, .. } => self.dialogue.arrived(frame, payload),
            Incoming::Header { .. } => unreachable!("it is a payload"),
        }
    }

    /// The reason for which the peer has failed, if it has. To be called when nothing moves.
    fn verdict(&mut self) -> Option<FailureCause> {
        let lost = self.shared.pulse.health(|health| health.lost(self.peer));
        let (cause, may_wait) = match lost {
            // Answers that it sent before may be on their way.
            Some(cause @ (FailureCause::Left | FailureCause::Ended)) => (cause, !self.is_closed),
            Some(cause) => (cause, false),
            // The reason is on another connection, unless only this one broke.
            None if self.is_closed => (FailureCause::Disconnected, true),
            None => return None,
        };
        let now = Ticks::now();
        let since = *self.ending_since.get_or_insert(now);
        (!may_wait || now.since(since) >= self.shared.silence).then_some(cause)
    }

    fn wait(&self) {
        let wake = self.requests.wake();
        let mut awaited = vec![PollFd::new(wake, PollFlags::IN)];
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, !self.is_closed);
        flags.set(PollFlags::OUT, self.can_send && self.outgoing.is_some());
        if !flags.is_empty() {
            awaited.extend(self.bundle.poll_fds(flags));
        }
        let rest = |since| self.shared.silence.saturating_sub(Ticks::now().since(since));
        wait_for(&mut awaited, self.ending_since.map_or(SLEEP, rest));
        lower(wake);
    }

    fn wait_for(&self, flags: PollFlags, time: Duration) {
        wait_for(&mut self.bundle.poll_fds(flags).collect::<Vec<_>>(), time);
    }

    /// Sends the answers that are due, then waits until the peer has read them: a connection that is closed with something unread in it
    /// is reset, and what is on its way may be lost. It takes no longer than the time after which a silent rank counts as dead.
    fn leave(&mut self) {
        let (start, silence) = (Ticks::now(), self.shared.silence);
        let rest = || silence.saturating_sub(Ticks::now().since(start));
        while !rest().is_zero() {
            let has_sent = self.send();
            if !self.can_send || (!has_sent && self.outgoing.is_none()) {
                break;
            }
            if !has_sent {
                self.wait_for(PollFlags::OUT, rest());
            }
        }
        self.bundle.shut_down();
        let mut discarded = [0; DISCARDED_BYTES];
        while !self.is_closed && !rest().is_zero() {
            match self.bundle.read(&mut discarded) {
                Moved::Bytes(_) => {}
                Moved::Later => self.wait_for(PollFlags::IN, rest()),
                Moved::Closed | Moved::Damaged => break,
            }
        }
    }
}

/// Reads bytes that are left over first, then those of the connections.
fn read(unused: &mut Vec<u8>, bundle: &mut Bundle, into: &mut [u8]) -> Moved {
    if unused.is_empty() {
        return bundle.read(into);
    }
    let bytes = unused.len().min(into.len());
    into[..bytes].copy_from_slice(&unused[..bytes]);
    unused.drain(..bytes);
    Moved::Bytes(bytes)
}
