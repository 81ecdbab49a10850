use std::time::Duration;

use super::engine::{Engine, Refusal};
use super::memory::Memory;
use super::transport::{LinkFault, Transport};
use crate::{Call, CollectiveError, FailureCause};

/// One operation until it is done or has failed. Time is an argument.
pub(super) struct Attempt {
    call: Call,
    epoch: u32,
    deadline: Duration,
    /// Time since which nothing has moved, once it was looked at.
    idle_since: Option<Duration>,
    /// A rank whose link is closed although the operation needs it.
    closed: Option<usize>,
    /// The group's health was told for whom the operation waits.
    has_waited: bool,
}

/// Time that the end of a rank takes to show on all its links, after it has shown on one. The thread that sends or reads the reason may
/// lack a core for some of it.
const VERDICT: Duration = Duration::from_millis(500);

impl Attempt {
    pub(super) fn new(call: Call, epoch: u32, deadline: Duration) -> Self {
        Self { call, epoch, deadline, idle_since: None, closed: None, has_waited: false }
    }

    /// Notes the call with the group's health. Fails if a rank has failed before.
    pub(super) fn begin<T: Transport>(&self, transport: &T) -> Result<(), CollectiveError> {
        let failure = transport.health(|health| {
            health.begin(self.call);
            health.failure()
        });
        failure.map_or(Ok(()), |failure| Err(self.failed(failure.rank, failure.cause)))
    }

    /// Carries messages, without waiting. Returns whether anything moved.
    pub(super) fn carry<T: Transport>(
        &mut self,
        transport: &mut T,
        engine: &mut Engine,
        memory: &mut Memory<'_>,
    ) -> Result<bool, CollectiveError> {
        match transport.carry(engine, memory) {
            Ok(moved) => {
                if moved {
                    self.idle_since = None;
                }
                Ok(moved)
            }
            Err(LinkFault::Closed { peer }) => {
                self.closed = Some(peer);
                Ok(false)
            }
            Err(LinkFault::Refused { peer, refusal }) => Err(self.refused(transport, peer, refusal)),
        }
    }

    /// Fails if a rank has failed, or if time is up. To be called when nothing moves.
    pub(super) fn check<T: Transport>(
        &mut self,
        transport: &T,
        engine: &Engine,
        now: Duration,
    ) -> Result<(), CollectiveError> {
        let idle = now.saturating_sub(*self.idle_since.get_or_insert(now));
        let closed = self.closed;
        self.has_waited = true;
        let failure = transport.health(|health| {
            if let Some(rank) = closed {
                // Its reason is on another link, unless only this one broke.
                let disconnected = (idle >= VERDICT).then_some(FailureCause::Disconnected);
                if let Some(cause) = health.gone(rank).or(disconnected) {
                    health.fail(rank, cause);
                }
            }
            let awaited = engine.awaited();
            health.waits_for(awaited);
            if let Some(rank) = awaited.filter(|_| idle >= self.deadline) {
                health.late(rank, idle);
            }
            health.failure()
        });
        failure.map_or(Ok(()), |failure| Err(self.failed(failure.rank, failure.cause)))
    }

    /// The operation is done.
    pub(super) fn finish<T: Transport>(&self, transport: &T) {
        if self.has_waited {
            transport.health(|health| health.waits_for(None));
        }
    }

    /// Longest time until [`Attempt::check`] is to be called again.
    pub(super) fn rest(&self, now: Duration) -> Duration {
        let idle = self.idle_since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        let bound = if self.closed.is_some() { VERDICT.min(self.deadline) } else { self.deadline };
        bound.saturating_sub(idle)
    }

    #[cold]
    fn refused<T: Transport>(&self, transport: &T, peer: usize, refusal: Refusal) -> CollectiveError {
        let cause = match refusal {
            Refusal::Mismatch(_) => FailureCause::Mismatch,
            Refusal::Damaged => FailureCause::Damaged,
            Refusal::Unexpected => FailureCause::Unexpected,
        };
        transport.health(|health| health.fail(peer, cause));
        match refusal {
            Refusal::Mismatch(theirs) => CollectiveError::Mismatch { rank: peer, theirs, ours: self.call },
            _ => self.failed(peer, cause),
        }
    }

    fn failed(&self, rank: usize, cause: FailureCause) -> CollectiveError {
        CollectiveError::EpochFailed { epoch: self.epoch, rank, cause, call: self.call }
    }
}
