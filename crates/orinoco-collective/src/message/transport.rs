use std::sync::Arc;
use std::time::Duration;

use super::engine::{Engine, Refusal};
use super::health::Health;
use super::memory::Memory;
use super::vector_memory::MappedMemory;
use crate::RdmaError;

/// Carries the messages of one rank.
pub trait Transport {
    /// Sends and receives what can be at once, without waiting. Returns whether anything moved.
    ///
    /// # Errors
    /// If a link is closed over which the operation has a message to send or to receive, or if a message was refused.
    fn carry(&mut self, engine: &mut Engine, memory: &mut Memory<'_>) -> Result<bool, LinkFault>;

    /// Waits until a message may have come, but no longer than `time`. May return early.
    fn wait(&mut self, engine: &Engine, time: Duration);

    /// Whether a long message is under way, of which much is missing: waking up takes less time than the rest of it, and the core is
    /// better used by what carries it.
    fn is_bulk(&self) -> bool;

    /// Whether the link with a peer keeps payloads whole by itself, at both ends. Others have a checksum.
    fn keeps_whole(&self, peer: usize) -> bool;

    /// Bytes of the smallest payload whose destination the transport must know before it arrives (the threshold of the rendezvous); `None` if it has no
    /// rendezvous.
    fn expected_bytes(&self) -> Option<usize> {
        None
    }

    /// Whether all ranks of the group choose algorithms by the machines on which ranks are, once the group is tuned: ranks of the previous
    /// version do not.
    fn has_machines(&self) -> bool {
        false
    }

    /// Registers memory for direct access by the device. It stays registered until the transport is dropped, or until the first call of this after
    /// the last other `Arc` of the memory was dropped.
    ///
    /// # Errors
    /// If the memory cannot be registered.
    fn register(&mut self, memory: &Arc<MappedMemory>) -> Result<(), RdmaError> {
        let _ = memory;
        Ok(())
    }

    /// Called when an operation has ended, well or not. Afterwards no device reads or writes its vectors. If a transfer was unfinished, this closes all
    /// links.
    fn leave_vectors(&mut self) {}

    /// Looks at the group's health, or changes it.
    fn health<R>(&self, look: impl FnOnce(&mut Health) -> R) -> R;
}

/// Fault of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkFault {
    /// It is closed.
    Closed {
        /// The rank at its other end.
        peer: usize,
    },
    /// A message was refused.
    Refused {
        /// Its sender.
        peer: usize,
        /// Reason.
        refusal: Refusal,
    },
}
