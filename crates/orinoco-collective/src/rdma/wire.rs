//! One link: a stream of bytes in each direction, over a queue pair.

use std::io::IoSlice;

use super::flow::{CHUNK_BYTES, Flow};
use super::immediate::Immediate;
use super::slots::Slots;
use super::verbs::{POSTED_MAX, Verbs, Write};
use crate::message::Moved;

/// A link with one peer.
pub(super) struct Wire {
    peer: usize,
    flow: Flow,
    slots: Slots,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// Nothing can be sent any more. What has come before can be read.
    Closed,
    /// The peer wrote what it cannot have written.
    Damaged,
}

impl Wire {
    pub(super) fn new(peer: usize) -> Self {
        Self { peer, flow: Flow::default(), slots: Slots::default(), state: State::Open }
    }

    /// Whether the peer's ring is full.
    pub(super) fn is_full(&self) -> bool {
        self.flow.is_full()
    }

    /// Whether writes are on their way whose arrival is not known.
    pub(super) fn is_busy(&self) -> bool {
        self.state == State::Open && self.slots.is_any_taken()
    }

    pub(super) fn close(&mut self) {
        if self.state == State::Open {
            self.state = State::Closed;
        }
    }

    /// The peer wrote. Its receive is posted again.
    pub(super) fn arrived(&mut self, verbs: &mut Verbs, immediate: u32) {
        if self.flow.arrived(Immediate::decode(immediate)).is_err() {
            self.state = State::Damaged;
        }
        if self.state == State::Open && verbs.post_receives(self.peer, 1).is_err() {
            self.state = State::Closed;
        }
    }

    pub(super) fn written(&mut self, freed: usize) {
        self.slots.completed(freed);
    }

    /// Sends the beginning of some slices: at most a chunk, with one doorbell.
    pub(super) fn write(&mut self, verbs: &mut Verbs, slices: &[IoSlice<'_>]) -> Moved {
        if self.state != State::Open {
            return Moved::Closed;
        }
        let wanted = slices.iter().map(|slice| slice.len()).sum::<usize>().min(CHUNK_BYTES);
        let (mut moved, mut writes) = (0, [None; POSTED_MAX]);
        for place in &mut writes {
            if self.slots.free() == 0 {
                break;
            }
            let Some(area) = self.flow.free(wanted - moved) else { break };
            stage(verbs, self.peer, area.start, slices, moved..moved + area.len);
            moved += area.len;
            let immediate = self.flow.write(area).encode();
            *place = Some(Write { area, immediate, frees: self.slots.take() });
        }
        if moved == 0 {
            return Moved::Later;
        }
        let mut posted = writes.iter().flatten().copied();
        let result = match (posted.next(), posted.next()) {
            (Some(first), Some(second)) => verbs.post(self.peer, &[first, second]),
            (first, _) => verbs.post(self.peer, first.as_slice()),
        };
        match result {
            Ok(()) => Moved::Bytes(moved),
            Err(_) => {
                self.state = State::Closed;
                Moved::Closed
            }
        }
    }

    /// Fills the beginning of a slice.
    pub(super) fn read(&mut self, verbs: &Verbs, into: &mut [u8]) -> Moved {
        if self.state == State::Damaged {
            return Moved::Damaged;
        }
        let area = self.flow.readable();
        let len = area.len.min(into.len());
        if len == 0 {
            return if self.state == State::Closed { Moved::Closed } else { Moved::Later };
        }
        verbs.unload(self.peer, area.start, &mut into[..len]);
        self.flow.read(len);
        Moved::Bytes(len)
    }

    /// Returns credits to the peer, if it may come to wait for them.
    pub(super) fn return_credits(&mut self, verbs: &mut Verbs) {
        if self.state != State::Open || self.slots.free() == 0 {
            return;
        }
        if let Some(immediate) = self.flow.due_credits() {
            let frees = self.slots.take();
            self.post_empty(verbs, immediate, frees);
        }
    }

    /// Sends a last write, whose completion says that all writes have arrived, unless there is such a completion anyway.
    pub(super) fn finish(&mut self, verbs: &mut Verbs) {
        if self.state == State::Open && self.slots.is_end_silent() && self.slots.free() > 0 {
            let immediate = self.flow.last();
            let frees = Some(self.slots.take_last());
            self.post_empty(verbs, immediate, frees);
        }
    }

    fn post_empty(&mut self, verbs: &mut Verbs, immediate: Immediate, frees: Option<usize>) {
        let area = super::flow::Area { start: 0, len: 0 };
        let write = Write { area, immediate: immediate.encode(), frees };
        if verbs.post(self.peer, &[write]).is_err() {
            self.state = State::Closed;
        }
    }
}

/// Copies a range of the bytes of some slices into staging memory.
fn stage(
    verbs: &mut Verbs,
    peer: usize,
    start: usize,
    slices: &[IoSlice<'_>],
    range: std::ops::Range<usize>,
) {
    let mut before = 0;
    for slice in slices {
        let from = range.start.clamp(before, before + slice.len()) - before;
        let to = range.end.clamp(before, before + slice.len()) - before;
        if from < to {
            verbs.stage(peer, start + before + from - range.start, &slice[from..to]);
        }
        before += slice.len();
    }
}
