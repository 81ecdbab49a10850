//! Tells one peer where to write the long messages that this rank expects from it.

use std::collections::VecDeque;

use super::device::{Device, Window};
use super::flow::ANNOUNCEMENTS_MAX;
use super::wire::Wire;
use crate::message::{Engine, Expected, LinkFault, Memory, MessageId, Refusal};

/// Tells one peer where to write the long messages that this rank expects from it.
pub(super) struct Announcer {
    peer: usize,
    /// Messages that are expected and not yet announced, in the order of their rounds.
    waiting: VecDeque<Expected>,
    /// Messages that are announced and have not arrived, and the windows for their payloads.
    announced: Vec<(MessageId, Option<Window>)>,
    /// Places of windows whose messages have arrived, to be closed.
    closing: Vec<usize>,
    /// Places of windows that are closed.
    closed: Vec<usize>,
}

impl Announcer {
    pub(super) fn new(peer: usize) -> Self {
        Self {
            peer,
            waiting: VecDeque::new(),
            announced: Vec::new(),
            closing: Vec::new(),
            closed: (0..ANNOUNCEMENTS_MAX).collect(),
        }
    }

    /// Whether a message with a window has been announced and has not arrived.
    pub(super) fn lends_vectors(&self) -> bool {
        self.announced.iter().any(|(_, window)| window.is_some())
    }

    /// Whether a message was announced with a window, so that its payload may come by direct writes.
    pub(super) fn is_direct(&self, id: MessageId) -> bool {
        self.announced.iter().any(|(announced, window)| *announced == id && window.is_some())
    }

    /// Closes the windows of messages that have arrived, and announces those that the operation expects, while slots are free.
    ///
    /// Once the peer has sent the header of a long message, it sends no other message until that one is announced. So it is announced first, and one
    /// slot stays reserved for it.
    ///
    /// # Errors
    /// If a long message has arrived that was not announced.
    pub(super) fn announce(
        &mut self,
        engine: &mut Engine,
        memory: &mut Memory<'_>,
        wire: &mut Wire,
        device: &mut impl Device,
    ) -> Result<(), LinkFault> {
        while let Some(id) = engine.next_arrived(self.peer) {
            let arrived = self.announced.iter().position(|(announced, _)| *announced == id);
            let unexpected = LinkFault::Refused { peer: self.peer, refusal: Refusal::Unexpected };
            let (_, window) = self.announced.swap_remove(arrived.ok_or(unexpected)?);
            self.closing.extend(window.map(|window| window.place));
        }
        self.close_windows(wire, device);
        while let Some(expected) = engine.next_expected(self.peer) {
            self.waiting.push_back(expected);
        }
        let current = engine.incoming_id(self.peer);
        let at = current.and_then(|id| self.waiting.iter().position(|expected| expected.id == id));
        if let Some(expected) = at.and_then(|at| self.waiting.remove(at)) {
            self.waiting.push_front(expected);
        }
        let mut room = ANNOUNCEMENTS_MAX - usize::from(at.is_none());
        while self.announced.len() < room
            && wire.has_slots(2)
            && let Some(expected) = self.waiting.pop_front()
        {
            let memory = engine.expected_destination(&expected, memory);
            let place = self.closed.last().copied();
            let window =
                memory.zip(place).and_then(|(memory, place)| device.window(self.peer, place, memory));
            if window.is_some() {
                self.closed.pop();
            }
            wire.announce(device, expected.id, window);
            self.announced.push((expected.id, window));
            room = ANNOUNCEMENTS_MAX - 1;
        }
        Ok(())
    }

    /// Closes the windows of messages that have arrived, as far as there is room. Returns whether all of them are.
    pub(super) fn close_windows(&mut self, wire: &mut Wire, device: &mut impl Device) -> bool {
        while wire.has_slots(1)
            && let Some(place) = self.closing.pop()
        {
            wire.close_window(device, place);
            self.closed.push(place);
        }
        self.closing.is_empty()
    }
}
