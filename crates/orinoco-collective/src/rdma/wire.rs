//! One link: a stream of bytes in each direction, over a queue pair, and payloads that go to their destination at once.

use std::io::{self, IoSlice};

use super::announcement::{Announcement, Destination};
use super::device::{Device, Direct, POSTED_MAX, What, Window, Write};
use super::flow::{ANNOUNCEMENTS_MAX, Area, CHUNK_BYTES, Flow};
use super::immediate::{Content, Immediate};
use super::slots::Slots;
use crate::message::{MessageId, Moved};

/// A link with one peer.
pub(super) struct Wire {
    peer: usize,
    flow: Flow,
    slots: Slots,
    state: State,
    /// Places of the next announcements in each direction.
    next_announced: usize,
    next_heard: usize,
    /// Announcements of the peer for messages that are not sent.
    heard: Vec<Announcement>,
    /// Direct messages that the peer has read, not asked for yet.
    read: usize,
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
        Self {
            peer,
            flow: Flow::default(),
            slots: Slots::default(),
            state: State::Open,
            next_announced: 0,
            next_heard: 0,
            heard: Vec::new(),
            read: 0,
        }
    }

    /// Whether the peer's ring is full.
    pub(super) fn is_full(&self) -> bool {
        self.flow.is_full()
    }

    pub(super) fn peer(&self) -> usize {
        self.peer
    }

    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Answer of a link on which nothing can be sent now, or ever.
    pub(super) fn standstill(&self) -> Moved {
        match self.state {
            State::Open => Moved::Later,
            State::Closed => Moved::Closed,
            State::Damaged => Moved::Damaged,
        }
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
    pub(super) fn arrived(&mut self, device: &mut impl Device, immediate: u32) {
        let immediate = Immediate::decode(immediate);
        match self.flow.arrived(immediate) {
            Ok(read) => self.read += read,
            Err(_) => self.state = State::Damaged,
        }
        if immediate.content == Content::Announcement && !self.hear(device) {
            self.state = State::Damaged;
        }
        if self.state == State::Open && device.post_receives(self.peer, 1).is_err() {
            self.state = State::Closed;
        }
    }

    /// Reads an announcement of the peer. Returns whether it is one.
    fn hear(&mut self, device: &impl Device) -> bool {
        let bytes = device.announcement(self.peer, self.next_heard);
        self.next_heard = (self.next_heard + 1) % ANNOUNCEMENTS_MAX;
        let announcement = Announcement::decode(&bytes).filter(|_| self.heard.len() < ANNOUNCEMENTS_MAX);
        self.heard.extend(announcement);
        announcement.is_some()
    }

    /// The peer's announcement of a message, if it has made it. It is told once.
    pub(super) fn take_announcement(&mut self, id: MessageId) -> Option<Announcement> {
        let at = self.heard.iter().position(|heard| heard.id == id)?;
        Some(self.heard.swap_remove(at))
    }

    /// Number of direct messages that the peer has read, since the last question.
    pub(super) fn take_read(&mut self) -> usize {
        std::mem::take(&mut self.read)
    }

    pub(super) fn written(&mut self, freed: usize) {
        self.slots.completed(freed);
    }

    /// Whether so many requests can be posted.
    pub(super) fn has_slots(&self, count: usize) -> bool {
        self.state == State::Open && self.slots.free() >= count
    }

    /// Announces a message of the peer, and opens the window for its payload. There are never more than [`ANNOUNCEMENTS_MAX`] announced that
    /// have not arrived. There must be [slots](Wire::has_slots) for both.
    pub(super) fn announce(&mut self, device: &mut impl Device, id: MessageId, window: Option<Window>) {
        let place = self.next_announced;
        self.next_announced = (place + 1) % ANNOUNCEMENTS_MAX;
        let destination =
            window.map(|Window { key, address, len, .. }| Destination { address, key, len: len as u64 });
        device.stage_announcement(self.peer, place, &Announcement { id, destination }.encode());
        let open =
            window.map(|window| Write { what: What::Open(window), immediate: 0, frees: self.slots.take() });
        let immediate = self.flow.announcement().encode();
        let announce = Write { what: What::Announcement(place), immediate, frees: self.slots.take() };
        // A link that breaks is closed.
        let _ = match open {
            Some(open) => self.post(device, &[open, announce]),
            None => self.post(device, &[announce]),
        };
    }

    /// Closes the window in a place. There must be a [slot](Wire::has_slots).
    pub(super) fn close_window(&mut self, device: &mut impl Device, place: usize) {
        let frees = self.slots.take();
        // A link that breaks is closed.
        let _ = self.post(device, &[Write { what: What::Close(place), immediate: 0, frees }]);
    }

    /// Writes a part of a payload to its destination. `is_last`: nothing of the message comes after it.
    pub(super) fn write_direct(&mut self, device: &mut impl Device, direct: Direct, is_last: bool) -> Moved {
        if self.state != State::Open {
            return self.standstill();
        }
        if self.slots.free() == 0 {
            return Moved::Later;
        }
        let Some(immediate) = self.flow.direct(is_last) else { return Moved::Later };
        let (immediate, frees) = (immediate.encode(), self.slots.take());
        match self.post(device, &[Write { what: What::Direct(direct), immediate, frees }]) {
            Ok(()) => Moved::Bytes(direct.len),
            Err(_) => Moved::Closed,
        }
    }

    /// Whether a direct write of the peer comes next.
    pub(super) fn is_direct_next(&self) -> bool {
        self.state != State::Damaged && self.flow.is_direct_next()
    }

    /// Notes that the direct write that came next is read. `is_last`: its message is complete.
    pub(super) fn read_direct(&mut self, is_last: bool) {
        self.flow.read_direct(is_last);
    }

    /// Sends the beginning of some slices: at most a chunk, with one doorbell.
    pub(super) fn write(&mut self, device: &mut impl Device, slices: &[IoSlice<'_>]) -> Moved {
        if self.state != State::Open {
            return self.standstill();
        }
        let wanted = slices.iter().map(|slice| slice.len()).sum::<usize>().min(CHUNK_BYTES);
        let (mut moved, mut writes) = (0, [None; POSTED_MAX]);
        for place in &mut writes {
            if self.slots.free() == 0 {
                break;
            }
            let Some(area) = self.flow.free(wanted - moved) else { break };
            stage(device, self.peer, area.start, slices, moved..moved + area.len);
            moved += area.len;
            let immediate = self.flow.write(area).encode();
            *place = Some(Write { what: What::Ring(area), immediate, frees: self.slots.take() });
        }
        if moved == 0 {
            return Moved::Later;
        }
        let mut posted = writes.iter().flatten().copied();
        let result = match (posted.next(), posted.next()) {
            (Some(first), Some(second)) => self.post(device, &[first, second]),
            (first, _) => self.post(device, first.as_slice()),
        };
        result.map_or(Moved::Closed, |()| Moved::Bytes(moved))
    }

    /// Fills the beginning of a slice.
    pub(super) fn read(&mut self, device: &mut impl Device, into: &mut [u8]) -> Moved {
        if self.state == State::Damaged {
            return Moved::Damaged;
        }
        let area = self.flow.readable();
        let len = area.len.min(into.len());
        if len == 0 {
            let is_over = self.state == State::Closed && !self.flow.is_direct_next();
            return if is_over { Moved::Closed } else { Moved::Later };
        }
        device.unload(self.peer, area.start, &mut into[..len]);
        self.flow.read(len);
        Moved::Bytes(len)
    }

    /// Returns credits to the peer, if it waits for them or may come to.
    pub(super) fn return_credits(&mut self, device: &mut impl Device) {
        if self.state != State::Open || self.slots.free() == 0 {
            return;
        }
        if let Some(immediate) = self.flow.due_credits() {
            let (immediate, frees) = (immediate.encode(), self.slots.take());
            // A link that breaks is closed.
            let _ = self.post(device, &[Write { what: NOTHING, immediate, frees }]);
        }
    }

    /// Sends a last write, whose completion says that all writes have arrived, unless there is such a completion anyway.
    pub(super) fn finish(&mut self, device: &mut impl Device) {
        if self.state == State::Open && self.slots.is_end_silent() && self.slots.free() > 0 {
            let (immediate, frees) = (self.flow.last().encode(), Some(self.slots.take_last()));
            // A link that breaks is closed.
            let _ = self.post(device, &[Write { what: NOTHING, immediate, frees }]);
        }
    }

    /// Posts requests. The link is closed if that fails.
    fn post(&mut self, device: &mut impl Device, writes: &[Write]) -> io::Result<()> {
        let posted = device.post(self.peer, writes);
        if posted.is_err() {
            self.state = State::Closed;
        }
        posted
    }
}

/// A write of its immediate data alone.
const NOTHING: What = What::Ring(Area { start: 0, len: 0 });

/// Copies a range of the bytes of some slices into staging memory.
fn stage(
    device: &mut impl Device,
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
            device.stage(peer, start + before + from - range.start, &slice[from..to]);
        }
        before += slice.len();
    }
}
