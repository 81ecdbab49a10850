//! A device as links see it: what they ask of it, and what it answers.

use std::io;

use super::announcement::ANNOUNCEMENT_BYTES;
use super::flow::Area;

/// A write into a peer's memory, with immediate data.
#[derive(Clone, Copy)]
pub(super) struct Write {
    pub(super) what: What,
    pub(super) immediate: u32,
    /// Slots of the send queue that its completion frees, if it has one.
    pub(super) frees: Option<usize>,
}

/// Content of a write.
#[derive(Clone, Copy)]
pub(super) enum What {
    /// A part of the staging memory, to the same place in the peer's ring. It may be empty.
    Ring(Area),
    /// The announcement in this place of the staging memory, to the same place behind the peer's ring.
    Announcement(usize),
    /// Bytes of a vector, to where the peer wants them.
    Direct(Direct),
}

/// Bytes of registered memory, and an address and a key of the peer's.
#[derive(Clone, Copy)]
pub(super) struct Direct {
    pub(super) from: u64,
    pub(super) from_key: u32,
    pub(super) to: u64,
    pub(super) to_key: u32,
    pub(super) len: usize,
}

/// Keys of registered memory on the queue pair of one peer.
#[derive(Clone, Copy)]
pub(super) struct Keys {
    /// For this rank's own device.
    pub(super) local: u32,
    /// For the peer's writes.
    pub(super) remote: u32,
}

/// A completion, and the peer that it concerns.
#[derive(Clone, Copy)]
pub(super) enum Completion {
    /// So many writes are done.
    Written { peer: usize, freed: usize },
    /// The peer wrote, with this immediate data.
    Arrived { peer: usize, immediate: u32 },
    /// The queue pair is broken.
    Broken { peer: usize },
}

/// Most writes that are posted with one doorbell: the parts before and behind the end of a ring.
pub(super) const POSTED_MAX: usize = 2;
/// Completions that are collected at once.
pub(super) const COLLECTED_MAX: usize = 32;

/// A device with a queue pair for each peer, and memory of each link: a ring, places of announcements, and staging memory of both.
pub(super) trait Device {
    /// Gives writes to the device, with one doorbell.
    ///
    /// # Errors
    /// The device's: the queue pair is broken or closed.
    ///
    /// # Panics
    /// If they are more than [`POSTED_MAX`], or none.
    fn post(&mut self, peer: usize, writes: &[Write]) -> io::Result<()>;

    /// Posts so many receives. They have no memory: the peer says where it writes.
    ///
    /// # Errors
    /// As [`Device::post`].
    fn post_receives(&mut self, peer: usize, count: usize) -> io::Result<()>;

    /// Collects up to [`COLLECTED_MAX`] completions. Returns their number.
    fn collect(&mut self, into: &mut Vec<Completion>) -> usize;

    /// Copies bytes into the staging memory of a link.
    fn stage(&mut self, peer: usize, start: usize, bytes: &[u8]);

    /// Copies bytes out of this rank's ring. The peer can change them meanwhile: what counts is checked after it was copied.
    fn unload(&mut self, peer: usize, start: usize, into: &mut [u8]);

    /// Puts an announcement into a place of the staging memory.
    fn stage_announcement(&mut self, peer: usize, place: usize, announcement: &[u8; ANNOUNCEMENT_BYTES]);

    /// The announcement of the peer in a place, which may be anything.
    fn announcement(&self, peer: usize, place: usize) -> [u8; ANNOUNCEMENT_BYTES];

    /// Keys of bytes for the queue pair of a peer, if they are registered, all of them.
    fn keys(&self, peer: usize, bytes: &[u8]) -> Option<Keys>;
}
