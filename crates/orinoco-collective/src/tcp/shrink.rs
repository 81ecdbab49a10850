//! Groups of the ranks that are left after a failure. Ranks agree on them by the notices of the old group, whose connections stay open:
//! those for messages are in no known state after a failure.

use std::sync::Arc;
use std::time::Duration;

use super::contacts::Contacts;
use super::hello::EPOCH;
use super::join::{GiveUp, Interrupt, Joined, join_listed};
use super::lobby::Lobby;
use super::offer::Capability;
use super::pulse::Pulse;
use super::{Tcp, TcpGroup};
use crate::clock::{Ticks, pause};
use crate::message::{MessageSettings, ShrinkState, Survivors, Tune, Uniform};
use crate::{CollectiveError, Communicator, FailureCause, JoinError, KeyError, RetryError, Topology};

/// Interval at which a rank looks at the agreement.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Time between two attempts to connect with the same ranks.
const RETRY: Duration = Duration::from_millis(20);

impl TcpGroup {
    /// Makes a group of the ranks that are left, as `ncclCommShrink` and `MPIX_Comm_shrink` do: in the order of their ranks here, with the
    /// settings and the protection of this group, and independent of it. All ranks that are left must call it, usually after an operation
    /// has failed. Ranks that have ended or left, give no signs of life, cannot be reached or were too late for an operation
    /// ([`FailureCause::Late`]) are left out, also if other ranks only know of it.
    ///
    /// All ranks that are left get the same group, or an error: also if more of them fail meanwhile. If one fails when the new group is
    /// there already, the operations of the new group fail, and it can be shrunk in turn. A group is shrunk once: the old one is of no use
    /// any more, and can be dropped. A group key stays the same, so it does not keep out those who are left out.
    ///
    /// A uniform group ([`MessageSettings::uniform`]) is shrunk only if the ranks that are left are the majority of it, so at most one part
    /// goes on; its witness stays the same rank. In other groups nothing else tells a rank that has failed from one that cannot be
    /// reached: if the network is cut in two, both halves go on.
    ///
    /// # Errors
    /// [`JoinError::Excluded`] if the other ranks go on without this one, and [`JoinError::AlreadyShrunk`] if there is a smaller group
    /// already: calling it again is of no use then. [`JoinError::Isolated`] if this rank is isolated in a uniform group. If ranks that give signs of life do not call
    /// it before the deadline of the settings ([`JoinError::NotShrunk`]), or if the ranks cannot connect with one another, it can be called
    /// again.
    pub fn shrink(&mut self) -> Result<Self, JoinError> {
        let (tcp, settings) = (self.transport(), self.settings());
        let call = ShrinkCall::begin(&tcp.contacts, &tcp.pulse, self.rank(), self.ranks(), settings)?;
        let (survivors, joined) = call.run()?;
        let rank_of = |old: usize| survivors.new_rank(old);
        let rank = rank_of(self.rank()).expect("this rank is a member");
        let uniform = settings.uniform.map(|of| Uniform { witness: of.witness.and_then(rank_of) });
        let settings = MessageSettings { uniform, ..settings };
        let (ranks, tcp) = (joined.links.len(), Tcp::start(joined, rank, EPOCH, &settings)?);
        let mut group = Self::new(tcp, Topology::flat(ranks), rank, EPOCH, settings);
        if settings.tune == Tune::AtJoin {
            // If a rank fails meanwhile, the next operation says so, and the new group can be shrunk.
            let _ = group.tune(None);
        }
        Ok(group)
    }

    /// Runs an operation. Each time that a rank fails, it replaces this group by [that of the ranks that are left](TcpGroup::shrink), and
    /// runs the operation again: `attempts` times in all. It is for uniform groups, in which all ranks repeat an operation or none does.
    ///
    /// All ranks must call it with the same operation, which may be several calls of this group, and must return their first error. The
    /// operation must begin with its own copy of the input each time: after a failure, vectors may hold a part of the result. The
    /// [rank](Communicator::rank) and the [number of ranks](Communicator::ranks) are others after a failure; the operation has to
    /// ask again for them, and for whatever depends on them.
    ///
    /// # Errors
    /// Before anything runs, if the group is not uniform. The last error of the operation, if it is no failure of a rank (ranks that make
    /// different calls would do so again) or the attempts are used up. The reason, if there is no smaller group.
    pub fn retry<R>(
        &mut self,
        attempts: usize,
        mut operation: impl FnMut(&mut Self) -> Result<R, CollectiveError>,
    ) -> Result<R, RetryError> {
        if self.settings().uniform.is_none() {
            return Err(RetryError::NotUniform);
        }
        for attempt in 1.. {
            let source = match operation(self) {
                Ok(result) => return Ok(result),
                Err(error) => error,
            };
            if attempt >= attempts || !is_failure(&source) {
                return Err(RetryError::Operation { attempt, source });
            }
            *self = self.shrink().map_err(|source| RetryError::Shrink { attempt, source })?;
        }
        unreachable!("the attempts end")
    }
}

/// Whether a rank has failed, and no rank has made another call.
fn is_failure(error: &CollectiveError) -> bool {
    matches!(error, CollectiveError::EpochFailed { cause, .. } if *cause != FailureCause::Mismatch)
}

/// A rank's call.
struct ShrinkCall<'g> {
    contacts: &'g Contacts,
    pulse: &'g Arc<Pulse>,
    rank: usize,
    ranks: usize,
    settings: MessageSettings,
    start: Ticks,
    lobby: Lobby,
    /// Members with which this rank is connected.
    connected: Option<(Survivors, Joined)>,
    /// For each of them, since when its connections with this rank are closed, if they are.
    broken: Vec<Option<Ticks>>,
    /// Time of the last look at these connections.
    looked: Ticks,
    /// Reason for which this rank could not connect last.
    fault: Option<JoinError>,
}

impl<'g> ShrinkCall<'g> {
    fn begin(
        contacts: &'g Contacts,
        pulse: &'g Arc<Pulse>,
        rank: usize,
        ranks: usize,
        settings: MessageSettings,
    ) -> Result<Self, JoinError> {
        contacts.check(Capability::Shrink)?;
        let start = Ticks::now();
        let mut number = [0; 4];
        getrandom::fill(&mut number).map_err(|error| KeyError::Randomness(error.to_string()))?;
        let number = u32::from_le_bytes(number);
        let (lobby, port) = contacts.open(number, &settings)?;
        match pulse.health(|health| health.begin_shrink(port, number)) {
            true => Ok(Self {
                contacts,
                pulse,
                rank,
                ranks,
                settings,
                start,
                lobby,
                connected: None,
                broken: Vec::new(),
                looked: start,
                fault: None,
            }),
            false => Err(JoinError::AlreadyShrunk),
        }
    }

    fn run(mut self) -> Result<(Survivors, Joined), JoinError> {
        loop {
            let state = self.pulse.health(|health| health.shrink_state());
            let rest = self.settings.deadline.saturating_sub(Ticks::now().since(self.start));
            let error = match state {
                ShrinkState::Formed => {
                    return Ok(self.connected.expect("a rank forms what it is connected with"));
                }
                ShrinkState::Waiting(_) if !rest.is_zero() => {
                    self.check_links();
                    pause(LOOK_EVERY);
                    continue;
                }
                ShrinkState::Ready(survivors) if !rest.is_zero() => {
                    self.connect(survivors, rest);
                    continue;
                }
                ShrinkState::Waiting(missing) => self.late(missing),
                ShrinkState::Ready(survivors) => self.late(survivors.old_ranks()),
                ShrinkState::Excluded { by } => {
                    JoinError::Excluded { by, cause: self.pulse.health(|health| health.blamed()) }
                }
                ShrinkState::Isolated { reachable } => {
                    JoinError::Isolated { reachable: reachable.iter().collect(), ranks: self.ranks }
                }
            };
            // All may have formed the group in this moment.
            if self.pulse.health(|health| health.withdraw_shrink()) {
                return Err(error);
            }
        }
    }

    /// Excludes a member that has closed its connections with this rank, although the group is not formed: it could not connect with
    /// another one, and cannot join this rank again. A member that has formed the group may leave it at once. The notice of that is on
    /// another connection, and comes within the time in which a rank gives a sign of life.
    fn check_links(&mut self) {
        let now = Ticks::now();
        // Time in which this rank did not look does not count: it may have been stopped itself.
        let was_stopped = now.since(self.looked) > self.settings.silence / 4;
        self.looked = now;
        let Some((survivors, joined)) = &self.connected else { return };
        for (since, links) in self.broken.iter_mut().zip(&joined.links) {
            let known = since.filter(|_| !was_stopped);
            *since = links.is_broken().then(|| known.unwrap_or(now));
        }
        let broken = self.broken.iter().zip(&survivors.members);
        let broken = broken.filter_map(|(since, member)| Some((now.since((*since)?), member.rank)));
        if let Some((_, rank)) =
            broken.filter(|(time, _)| *time >= self.settings.silence).max_by_key(|(time, _)| *time)
        {
            // One that has ended or gives no signs of life is no member any more.
            self.pulse.health(|health| {
                if health.awaits_shrunk(survivors) {
                    health.fail(rank, FailureCause::Disconnected);
                }
            });
        }
    }

    /// Connects with the other members, unless they turn out to be others.
    fn connect(&mut self, survivors: Survivors, rest: Duration) {
        let (pulse, members) = (Arc::clone(self.pulse), survivors.clone());
        let is_over = move || {
            pulse.health(
                |health| !matches!(health.shrink_state(), ShrinkState::Ready(ready) if ready == members),
            )
        };
        let interrupt: Interrupt = Arc::new(is_over);
        let listed = self.contacts.listed(self.rank, &survivors);
        let settings = MessageSettings { deadline: rest, ..self.settings };
        let give_up = Some(GiveUp::OnOtherRanks(Arc::clone(&interrupt)));
        match join_listed(&mut self.lobby, listed, &settings, give_up) {
            Ok(joined) => {
                if self.pulse.health(|health| health.connect_shrunk(&survivors)) {
                    self.broken = vec![None; joined.links.len()];
                    (self.connected, self.fault) = (Some((survivors, joined)), None);
                }
            }
            Err(why) if !interrupt() => {
                self.fault =
                    Some(JoinError::Shrink { members: survivors.old_ranks(), source: Box::new(why) });
                pause(RETRY.min(rest));
            }
            Err(_) => {}
        }
    }

    /// Error of a rank whose time is up.
    fn late(&mut self, missing: Vec<usize>) -> JoinError {
        let waited = Ticks::now().since(self.start);
        self.fault.take().unwrap_or(JoinError::NotShrunk { missing, waited })
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::sync::Barrier;
    use std::thread;

    use super::*;
    use crate::{GroupKey, ReduceOp, Rendezvous, Security, TcpSettings};

    const RANKS: usize = 4;

    fn settings() -> MessageSettings {
        let (deadline, silence) = (Duration::from_secs(40), Duration::from_secs(1));
        MessageSettings { deadline, silence, ..MessageSettings::default() }
    }

    /// Part of a rank that connects with the others, closes these connections, and says nothing of it. It goes on to give signs of life.
    fn connects_and_breaks_off(group: &TcpGroup) -> Result<(), JoinError> {
        let tcp = group.transport();
        let mut call = ShrinkCall::begin(&tcp.contacts, &tcp.pulse, group.rank(), RANKS, settings())?;
        let survivors = loop {
            match tcp.pulse.health(|health| health.shrink_state()) {
                ShrinkState::Ready(survivors) => break survivors,
                _ => pause(LOOK_EVERY),
            }
        };
        let listed = call.contacts.listed(group.rank(), &survivors);
        join_listed(&mut call.lobby, listed, &settings(), None).map(drop)
    }

    /// Shrinks the group, and sums the ranks of the smaller one. Returns how many there are, the sum, and how long it took to shrink.
    fn shrinks_and_sums(
        group: &mut TcpGroup,
    ) -> Result<(usize, u64, Duration), Box<dyn Error + Send + Sync>> {
        let start = Ticks::now();
        let mut sum = [group.rank() as u64];
        let mut smaller = group.shrink()?;
        let took = Ticks::now().since(start);
        smaller.all_reduce(ReduceOp::Sum, &mut sum)?;
        Ok((smaller.ranks(), sum[0], took))
    }

    #[test]
    fn a_member_that_breaks_off_is_excluded_long_before_the_deadline() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("meeting");
        let security = Security::GroupKey(GroupKey::generate().unwrap());
        let end = Barrier::new(RANKS - 1);
        let run = |rank: usize| {
            let messages = settings();
            let settings = TcpSettings { security: security.clone(), messages };
            let mut group = TcpGroup::join(&Rendezvous::File(path.clone()), rank, RANKS, settings).unwrap();
            match rank {
                // It leaves.
                0 => None,
                2 => {
                    let broken_off = connects_and_breaks_off(&group);
                    end.wait();
                    broken_off.unwrap();
                    None
                }
                _ => {
                    let shrunk = shrinks_and_sums(&mut group);
                    end.wait();
                    let (ranks, sum, took) = shrunk.unwrap();
                    Some((ranks, sum, took < messages.deadline / 2))
                }
            }
        };
        thread::scope(|scope| {
            let ranks: Vec<_> = (0..RANKS)
                .map(|rank| {
                    scope.spawn({
                        let run = &run;
                        move || run(rank)
                    })
                })
                .collect();
            let found: Vec<_> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
            assert_eq!(found, [None, Some((2, 4, true)), None, Some((2, 4, true))]);
        });
    }
}
