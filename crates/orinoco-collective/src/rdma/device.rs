//! The interface of links to an RDMA device.

use std::io;

use super::announcement::ANNOUNCEMENT_BYTES;
use super::flow::Area;

/// A request to the send queue: a write into a peer's memory with immediate data, or what opens and closes windows.
#[derive(Clone, Copy)]
pub(super) struct Write {
    pub(super) what: What,
    pub(super) immediate: u32,
    /// If the request is signaled, the number of send-queue slots that its completion frees.
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
    /// Nothing: the peer may write to this memory from now on.
    Open(Window),
    /// Nothing: the peer may not write to the memory of the window in this place any more.
    Close(usize),
}

/// Memory of a vector that a peer may write to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    /// Place among the windows of the peer.
    pub(super) place: usize,
    pub(super) key: u32,
    pub(super) address: u64,
    pub(super) len: usize,
}

/// Local source (address, lkey) and remote destination (address, rkey).
#[derive(Clone, Copy)]
pub(super) struct Direct {
    pub(super) from: u64,
    pub(super) from_key: u32,
    pub(super) to: u64,
    pub(super) to_key: u32,
    pub(super) len: usize,
}

/// A completion, and the peer that it concerns.
#[derive(Clone, Copy)]
pub(super) enum Completion {
    /// A signaled request completed, and with it so many requests.
    Written { peer: usize, freed: usize },
    /// The peer wrote, with this immediate data.
    Arrived { peer: usize, immediate: u32 },
    /// The queue pair is broken.
    Broken { peer: usize },
}

/// Most requests that are posted with one doorbell: the parts before and after the wrap-around of a ring, or a window and its announcement.
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

    /// Posts so many receives. They have no buffers: they only take the immediate data of writes.
    ///
    /// # Errors
    /// As [`Device::post`].
    fn post_receives(&mut self, peer: usize, count: usize) -> io::Result<()>;

    /// Collects up to [`COLLECTED_MAX`] completions. Returns their number.
    fn collect(&mut self, into: &mut Vec<Completion>) -> usize;

    /// Copies bytes into the staging memory of a link.
    fn stage(&mut self, peer: usize, start: usize, bytes: &[u8]);

    /// Copies bytes out of this rank's ring. The peer can change them meanwhile, so they are validated after the copy.
    fn unload(&mut self, peer: usize, start: usize, into: &mut [u8]);

    /// Puts an announcement into a place of the staging memory.
    fn stage_announcement(&mut self, peer: usize, place: usize, announcement: &[u8; ANNOUNCEMENT_BYTES]);

    /// The announcement of the peer in a place, which may be anything.
    fn announcement(&self, peer: usize, place: usize) -> [u8; ANNOUNCEMENT_BYTES];

    /// The lkey of bytes of a vector, if one registration covers all of them.
    fn key(&self, peer: usize, bytes: &[u8]) -> Option<u32>;

    /// The window that a peer gets for bytes of a vector by [`What::Open`], in a place whose last window is closed. `None` if no registration
    /// covers the bytes, or if the device has no windows. There are as many places as announcements.
    fn window(&self, peer: usize, place: usize, bytes: &mut [u8]) -> Option<Window>;
}
