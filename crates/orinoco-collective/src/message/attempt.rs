use std::time::Duration;

use super::engine::{Engine, Refusal};
use super::health::Health;
use super::memory::Memory;
use super::notice::NumberedCall;
use super::transport::{LinkFault, Transport};
use crate::{Call, CollectiveError, FailureCause};

/// One operation until it is done or has failed. Time is an argument.
pub(super) struct Attempt {
    call: Call,
    epoch: u32,
    deadline: Duration,
    /// Time since which nothing has moved, once it was looked at.
    idle_since: Option<Duration>,
    /// Link that is closed although the operation needs it.
    closed: Option<ClosedLink>,
    /// The group's health was told for whom the operation waits.
    has_waited: bool,
}

/// A closed link with a rank.
#[derive(Clone, Copy)]
struct ClosedLink {
    peer: usize,
    /// Time since which it is known to be closed, once it was looked at. Before, this rank may have been stopped for any time.
    since: Option<Duration>,
}

/// Time that the end of a rank takes to show on all its links, after it has shown on one. The thread that sends or reads the reason may
/// lack a core for some of it.
const VERDICT: Duration = Duration::from_millis(500);

/// Time without progress after which the waits of an operation are compared with those of other ranks. Exchanges of short messages take
/// less, and are not to pay for it.
pub(super) const COMPARED_AFTER: Duration = Duration::from_micros(100);

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
                self.closed.get_or_insert(ClosedLink { peer, since: None });
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
        let closed = self.closed.as_mut().map(|closed| (closed.peer, *closed.since.get_or_insert(now)));
        self.has_waited = true;
        let (failure, mismatch) = transport.health(|health| {
            if let Some((rank, since)) = closed {
                // Its reason is on another link, unless only this one broke.
                let waited = now.saturating_sub(since);
                let disconnected = (waited >= VERDICT).then_some(FailureCause::Disconnected);
                if let Some(cause) = health.gone(rank).or(disconnected) {
                    health.fail(rank, cause);
                }
            }
            let awaited = engine.awaited();
            health.waits_for(awaited, engine.running_call());
            if idle >= COMPARED_AFTER {
                health.waits_for_messages(engine.waits(), |peer, theirs| engine.blocks(peer, theirs));
            }
            let mismatch = mismatch(health, engine).filter(|_| health.failure().is_none());
            if let Some(rank) = awaited.filter(|_| idle >= self.deadline && mismatch.is_none()) {
                health.late(rank, idle);
            }
            (health.failure(), mismatch)
        });
        if let Some((peer, refusal)) = mismatch {
            return Err(self.refused(transport, peer, refusal));
        }
        failure.map_or(Ok(()), |failure| Err(self.failed(failure.rank, failure.cause)))
    }

    /// The operation is done.
    pub(super) fn finish<T: Transport>(&self, transport: &T) {
        if self.has_waited {
            transport.health(Health::goes_on);
        }
    }

    /// Longest time until [`Attempt::check`] is to be called again.
    pub(super) fn rest(&self, now: Duration) -> Duration {
        let rest_of = |bound: Duration, since: Option<Duration>| {
            bound.saturating_sub(since.map_or(Duration::ZERO, |since| now.saturating_sub(since)))
        };
        let rest = rest_of(self.deadline, self.idle_since);
        self.closed.map_or(rest, |closed| rest.min(rest_of(VERDICT, closed.since)))
    }

    #[cold]
    fn refused<T: Transport>(&self, transport: &T, peer: usize, refusal: Refusal) -> CollectiveError {
        let cause = match refusal {
            Refusal::Mismatch { .. } => FailureCause::Mismatch,
            Refusal::Damaged => FailureCause::Damaged,
            Refusal::Unexpected => FailureCause::Unexpected,
        };
        transport.health(|health| health.fail(peer, cause));
        match refusal {
            Refusal::Mismatch { theirs, ours } => CollectiveError::Mismatch { rank: peer, theirs, ours },
            _ => self.failed(peer, cause),
        }
    }

    pub(super) fn failed(&self, rank: usize, cause: FailureCause) -> CollectiveError {
        CollectiveError::EpochFailed { epoch: self.epoch, rank, cause, call: self.call }
    }
}

/// A rank that waits in an operation for which this rank made another call, or for which this rank waits in a circle of ranks in different
/// calls. When ranks with different calls all wait, no message shows it.
fn mismatch(health: &Health, engine: &Engine) -> Option<(usize, Refusal)> {
    let differing = |(rank, theirs): (usize, NumberedCall)| {
        engine.differing_call(theirs).map(|ours| (rank, theirs.call, ours))
    };
    let circle = || {
        let (rank, theirs) = health.circle(|peer, theirs| engine.holds_up(peer, theirs))?;
        Some((rank, theirs, engine.call()))
    };
    let (rank, theirs, ours) = health.waiting_ranks().find_map(differing).or_else(circle)?;
    Some((rank, Refusal::Mismatch { theirs, ours }))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// A link that is closed, and the notices that have come.
    struct ClosedTransport(RefCell<Health>);

    impl Transport for ClosedTransport {
        fn carry(&mut self, _: &mut Engine, _: &mut Memory<'_>) -> Result<bool, LinkFault> {
            Err(LinkFault::Closed { peer: 1 })
        }

        fn wait(&mut self, _: &Engine, _: Duration) {}

        fn is_bulk(&self) -> bool {
            false
        }

        fn keeps_whole(&self, _: usize) -> bool {
            true
        }

        fn health<R>(&self, look: impl FnOnce(&mut Health) -> R) -> R {
            look(&mut self.0.borrow_mut())
        }
    }

    #[test]
    fn a_rank_that_was_stopped_waits_for_the_reason_of_a_closed_link() {
        let millis = Duration::from_millis;
        let health = Health::new(0, 2, millis(500), Duration::ZERO);
        let mut transport = ClosedTransport(RefCell::new(health));
        let mut engine = Engine::new(0, 2, 0);
        let mut memory = Memory { input: None, output: &mut [], scratch: &mut [], partial: &mut [] };
        let mut attempt = Attempt::new(Call::from_code(0), 0, Duration::from_secs(60));
        assert!(attempt.check(&transport, &engine, millis(10)).is_ok(), "it waits");
        // It was stopped for two seconds, and finds the link closed.
        assert!(matches!(attempt.carry(&mut transport, &mut engine, &mut memory), Ok(false)));
        assert!(attempt.check(&transport, &engine, millis(2010)).is_ok(), "the reason may come yet");
        assert_eq!(attempt.rest(millis(2110)), VERDICT - millis(100));
        assert!(attempt.check(&transport, &engine, millis(2509)).is_ok());
        let error = attempt.check(&transport, &engine, millis(2510)).expect_err("no reason has come");
        let is_disconnected =
            matches!(error, CollectiveError::EpochFailed { rank: 1, cause: FailureCause::Disconnected, .. });
        assert!(is_disconnected, "{error}");
    }
}
