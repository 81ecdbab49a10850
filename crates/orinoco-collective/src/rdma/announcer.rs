//! Announces the long messages of one peer: whether they go through the ring, or where their payloads are to be placed.

use std::collections::VecDeque;

use super::announcement::{Announcement, Destination};
use super::device::Device;
use super::flow::ANNOUNCEMENTS_MAX;
use super::wire::Wire;
use crate::message::{Engine, Expected, Memory, MessageId};

/// Announces the long messages of one peer.
pub(super) struct Announcer {
    peer: usize,
    /// Messages that are expected and not announced, in the order of their rounds.
    waiting: VecDeque<Expected>,
    /// Messages that are announced and have not arrived.
    announced: Vec<Announcement>,
}

impl Announcer {
    pub(super) fn new(peer: usize) -> Self {
        Self { peer, waiting: VecDeque::new(), announced: Vec::new() }
    }

    /// Whether the peer may write to vectors.
    pub(super) fn lends_vectors(&self) -> bool {
        self.announced.iter().any(|announced| announced.destination.is_some())
    }

    /// Whether the payload of a message may be placed by the peer.
    pub(super) fn is_direct(&self, id: MessageId) -> bool {
        self.announced.iter().any(|announced| announced.id == id && announced.destination.is_some())
    }

    /// Announces what the operation expects, as far as there is room.
    ///
    /// The peer sends nothing else before a message whose header it has sent. So that message is announced first, and its place is kept free.
    pub(super) fn announce(
        &mut self,
        engine: &mut Engine,
        memory: &mut Memory<'_>,
        wire: &mut Wire,
        device: &mut impl Device,
    ) {
        while let Some(id) = engine.next_arrived(self.peer) {
            self.announced.retain(|announced| announced.id != id);
        }
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
            && let Some(expected) = self.waiting.front()
        {
            let announcement = announcement(self.peer, expected, engine, memory, device);
            if !wire.announce(device, &announcement) {
                return;
            }
            self.announced.push(announcement);
            self.waiting.pop_front();
            room = ANNOUNCEMENTS_MAX - 1;
        }
    }
}

fn announcement(
    peer: usize,
    expected: &Expected,
    engine: &Engine,
    memory: &mut Memory<'_>,
    device: &impl Device,
) -> Announcement {
    let memory = engine.expected_destination(expected, memory);
    let destination = memory.and_then(|memory| {
        let key = device.keys(peer, memory)?.remote;
        Some(Destination { address: memory.as_mut_ptr().addr() as u64, key, len: memory.len() as u64 })
    });
    Announcement { id: expected.id, destination }
}
