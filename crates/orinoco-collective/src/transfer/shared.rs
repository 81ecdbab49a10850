use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::buffer::Buffers;
use super::notification::Notifications;
use super::region::Registry;
use crate::tcp::Pulse;

/// State of an agent that its threads share.
pub(super) struct Shared {
    pub(super) registry: Arc<Registry>,
    pub(super) notifications: Notifications,
    pub(super) buffers: Arc<Buffers>,
    pub(super) pulse: Arc<Pulse>,
    /// Time after which a rank without a heartbeat counts as dead.
    pub(super) silence: Duration,
    pub(super) is_leaving: AtomicBool,
}

impl Shared {
    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Acquire)
    }
}
