//! Agreement on the members of the next epoch. It has no sockets and no clock: time is an argument.
//!
//! Every seat says to those with which it is connected whether it is ready for an epoch. When enough are ready (a quorum), the lowest
//! of them proposes the largest set of ready seats that are all connected with one another. If all members accept, the epoch is
//! committed. A seat that has accepted an epoch accepts none with the same or a lower number afterwards, and takes part in one at a
//! time. Two epochs that exist at the same time would have to have a member in common: there is one at most. A seat that starts again
//! learns the highest number from the others; if all have started again, numbers begin at 1 again.

use std::collections::VecDeque;
use std::time::Duration;

use super::packet::{Packet, Status};
use super::seats::{Quorum, SeatSet};

/// Bounds of the agreement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Time for which a quorum waits for further seats.
    pub(crate) settle: Duration,
    /// Longest time without a sign of life of a connected seat.
    pub(crate) silence: Duration,
}

/// Signs of life in the time after which a seat counts as not connected.
const BEATS: u32 = 4;
/// Part of `silence` after which a proposal without all answers is given up.
const ANSWER_PART: u32 = 2;
/// Part of `silence` between a refused proposal and the next.
const RETRY_PART: u32 = 10;

/// One seat's part in the agreement.
pub(crate) struct Membership {
    own: usize,
    quorum: Quorum,
    bounds: Bounds,
    /// By seat; none for those that are not connected, and for this seat.
    peers: Vec<Option<Peer>>,
    /// Highest epoch that this seat has accepted or heard of.
    highest: u32,
    phase: Phase,
    /// Time since which a quorum is ready.
    quorum_since: Option<Duration>,
    /// No proposal of this seat before that time.
    propose_after: Duration,
    next_beat: Duration,
    outgoing: VecDeque<(usize, Packet)>,
    events: VecDeque<MembershipEvent>,
}

/// A connected seat.
#[derive(Debug, Clone, Copy)]
struct Peer {
    status: Status,
    /// The last epoch in which it said that it was; 0 if it was in none.
    entered: u32,
    heard: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It does not wait for an epoch.
    Idle,
    /// It waits for seats to be ready, or for a proposal.
    Gathering,
    /// It has proposed an epoch.
    Proposing { members: SeatSet, accepted: SeatSet, until: Duration },
    /// It has accepted the proposal of another seat: [`Membership::highest`].
    Accepted { members: SeatSet, proposer: usize, until: Duration },
    /// It takes part in an epoch.
    Member { epoch: u32 },
}

/// News for whoever drives the agreement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MembershipEvent {
    /// An epoch has begun.
    Committed { epoch: u32, members: SeatSet },
    /// A seat gives no sign of life: its connection is to be closed.
    Silent { seat: usize },
}

impl Membership {
    pub(crate) fn new(own: usize, quorum: Quorum, bounds: Bounds, now: Duration) -> Self {
        Self {
            own,
            quorum,
            bounds,
            peers: vec![None; quorum.seats],
            highest: 0,
            phase: Phase::Idle,
            quorum_since: None,
            propose_after: now,
            next_beat: now,
            outgoing: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// This seat is ready for an epoch. If it took part in one, that one is over.
    pub(crate) fn ask(&mut self, now: Duration) {
        if matches!(self.phase, Phase::Idle | Phase::Member { .. }) {
            self.enter(Phase::Gathering);
            self.review(now);
        }
    }

    /// This seat no longer waits for an epoch, and takes part in none.
    pub(crate) fn rest(&mut self) {
        self.enter(Phase::Idle);
    }

    /// Seats with which this one is connected, and itself.
    pub(crate) fn reachable(&self) -> SeatSet {
        self.connected().with(self.own)
    }

    /// Connected seats that wait for an epoch.
    pub(crate) fn waiting(&self) -> SeatSet {
        self.peers_that(|status| status.is_ready)
    }

    /// State of a connected seat, as it was sent last.
    pub(crate) fn status_of(&self, seat: usize) -> Option<Status> {
        self.peers[seat].map(|peer| peer.status)
    }

    /// Whether a seat has left an epoch that this one takes part in, or will not enter it: it is not connected, was in the epoch and is no
    /// more, or knows a later one. What it said last may be older than the epoch: if it has not entered yet, it is waited for.
    pub(crate) fn is_lost(&self, seat: usize, epoch: u32) -> bool {
        self.peers[seat].is_none_or(|Peer { status, entered, .. }| {
            status.epoch != epoch && (status.highest > epoch || entered == epoch)
        })
    }

    /// State of this seat, as others see it.
    pub(crate) fn status(&self) -> Status {
        let (is_ready, epoch) = match self.phase {
            Phase::Idle => (false, 0),
            Phase::Gathering | Phase::Proposing { .. } | Phase::Accepted { .. } => (true, 0),
            Phase::Member { epoch } => (false, epoch),
        };
        Status { is_ready, connected: self.connected(), highest: self.highest, epoch }
    }

    /// A connection with a seat is open. It replaces an older one.
    pub(crate) fn connected_with(&mut self, seat: usize, now: Duration) {
        self.closed(seat, now);
        self.peers[seat] = Some(Peer { status: Status::default(), entered: 0, heard: now });
        self.announce();
    }

    /// The connection with a seat is closed.
    pub(crate) fn closed(&mut self, seat: usize, now: Duration) {
        if self.peers[seat].take().is_none() {
            return;
        }
        // Packets for it are lost with the connection.
        self.outgoing.retain(|(to, _)| *to != seat);
        match self.phase {
            Phase::Proposing { members, .. } if members.contains(seat) => self.enter(Phase::Gathering),
            Phase::Accepted { proposer, .. } if proposer == seat => self.enter(Phase::Gathering),
            _ => self.announce(),
        }
        self.review(now);
    }

    /// A packet came from a connected seat.
    pub(crate) fn received(&mut self, from: usize, packet: Packet, now: Duration) {
        let Some(peer) = &mut self.peers[from] else { return };
        peer.heard = now;
        match packet {
            Packet::Status(status) => {
                peer.status = status;
                if status.epoch != 0 {
                    peer.entered = status.epoch;
                }
                self.highest = self.highest.max(status.highest);
            }
            Packet::Propose { epoch, members } => self.proposed(from, epoch, members, now),
            Packet::Accept { epoch } => self.accepted(from, epoch),
            Packet::Refuse { highest } => self.refused(from, highest, now),
            Packet::Commit { epoch, members } => self.committed(from, epoch, members),
            // Figures of links do not matter to the membership.
            Packet::Link(_) => {}
        }
        self.review(now);
    }

    /// The next packet to send, and to which seat.
    pub(crate) fn next_packet(&mut self) -> Option<(usize, Packet)> {
        self.outgoing.pop_front()
    }

    /// The next event.
    pub(crate) fn next_event(&mut self) -> Option<MembershipEvent> {
        self.events.pop_front()
    }

    /// Time at which [`Membership::handle_timeout`] is to be called next.
    pub(crate) fn poll_timeout(&self) -> Duration {
        let own = match self.phase {
            Phase::Proposing { until, .. } | Phase::Accepted { until, .. } => Some(until),
            Phase::Gathering => self.proposal_due(),
            Phase::Idle | Phase::Member { .. } => None,
        };
        own.map_or(self.next_beat, |own| own.min(self.next_beat))
    }

    /// Gives signs of life, gives up what takes too long, and proposes an epoch, each when it is time.
    pub(crate) fn handle_timeout(&mut self, now: Duration) {
        match self.phase {
            Phase::Proposing { until, .. } | Phase::Accepted { until, .. } if until <= now => {
                self.propose_after = now + self.bounds.silence / RETRY_PART;
                self.enter(Phase::Gathering);
            }
            _ => {}
        }
        if self.next_beat <= now {
            self.next_beat = now + self.bounds.silence / BEATS;
            self.announce();
            for seat in self.connected().iter() {
                if self.peers[seat].is_some_and(|peer| now.saturating_sub(peer.heard) >= self.bounds.silence)
                {
                    self.events.push_back(MembershipEvent::Silent { seat });
                    self.closed(seat, now);
                }
            }
        }
        self.review(now);
    }

    fn proposed(&mut self, from: usize, epoch: u32, members: SeatSet, now: Duration) {
        let is_ready =
            matches!(self.phase, Phase::Gathering | Phase::Proposing { .. } | Phase::Accepted { .. });
        let is_right = members.contains(self.own)
            && members.contains(from)
            && self.quorum.has_all_of(members)
            && self.quorum.is_met_by(members);
        if epoch <= self.highest || !is_ready || !is_right {
            self.outgoing.push_back((from, Packet::Refuse { highest: self.highest }));
            return;
        }
        self.highest = epoch;
        let until = now.saturating_add(self.bounds.silence);
        self.outgoing.push_back((from, Packet::Accept { epoch }));
        self.enter(Phase::Accepted { members, proposer: from, until });
    }

    fn accepted(&mut self, from: usize, epoch: u32) {
        let Phase::Proposing { members, accepted, until } = self.phase else { return };
        if epoch != self.highest || !members.contains(from) {
            return;
        }
        let accepted = accepted.with(from);
        self.phase = Phase::Proposing { members, accepted, until };
        if accepted == members {
            self.commit(epoch, members);
        }
    }

    fn commit(&mut self, epoch: u32, members: SeatSet) {
        for seat in members.iter().filter(|seat| *seat != self.own) {
            self.outgoing.push_back((seat, Packet::Commit { epoch, members }));
        }
        self.begin(epoch, members);
    }

    fn refused(&mut self, from: usize, highest: u32, now: Duration) {
        self.highest = self.highest.max(highest);
        if matches!(self.phase, Phase::Proposing { members, .. } if members.contains(from)) {
            self.propose_after = now + self.bounds.silence / RETRY_PART;
            self.enter(Phase::Gathering);
        }
    }

    fn committed(&mut self, from: usize, epoch: u32, members: SeatSet) {
        let Phase::Accepted { members: accepted, proposer, .. } = self.phase else { return };
        if proposer == from && accepted == members && epoch == self.highest {
            self.begin(epoch, members);
        }
    }

    fn begin(&mut self, epoch: u32, members: SeatSet) {
        self.enter(Phase::Member { epoch });
        self.events.push_back(MembershipEvent::Committed { epoch, members });
    }

    /// Notes since when a quorum is ready, and proposes an epoch when it is time.
    fn review(&mut self, now: Duration) {
        if self.phase != Phase::Gathering || self.candidates().is_none() {
            self.quorum_since = None;
            return;
        }
        self.quorum_since.get_or_insert(now);
        if self.proposal_due().is_some_and(|due| due <= now) {
            self.propose(now);
        }
    }

    fn propose(&mut self, now: Duration) {
        // A seat that claims to know the last of all numbers ends the cluster, and nothing worse.
        let (Some(members), Some(epoch)) = (self.candidates(), self.highest.checked_add(1)) else { return };
        self.highest = epoch;
        for seat in members.iter().filter(|seat| *seat != self.own) {
            self.outgoing.push_back((seat, Packet::Propose { epoch, members }));
        }
        let accepted = SeatSet::default().with(self.own);
        let until = now + self.bounds.silence / ANSWER_PART;
        self.enter(Phase::Proposing { members, accepted, until });
        if members == accepted {
            self.commit(epoch, members);
        }
    }

    /// Time at which this seat proposes, if nothing changes. Each lower seat that could do so has its turn before.
    fn proposal_due(&self) -> Option<Duration> {
        let since = self.quorum_since?;
        let members = self.candidates()?;
        let lower = self.waiting().iter().filter(|seat| *seat < self.own).count();
        let turn = self.bounds.silence.saturating_mul(u32::try_from(lower).expect("few seats"));
        let settle = if members.len() == self.quorum.seats { Duration::ZERO } else { self.bounds.settle };
        Some(since.saturating_add(settle).saturating_add(turn).max(self.propose_after))
    }

    /// Ready seats that are all connected with one another, as far as this one knows, if they are enough. This one is among them.
    fn candidates(&self) -> Option<SeatSet> {
        let mut members = SeatSet::default().with(self.own);
        for seat in self.waiting().iter() {
            let connected = self.peers[seat].map_or(SeatSet::default(), |peer| peer.status.connected);
            if connected.has_all_of(members) {
                members = members.with(seat);
            }
        }
        self.quorum.is_met_by(members).then_some(members)
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.announce();
    }

    /// Says to all connected seats how it is with this one.
    fn announce(&mut self) {
        let status = self.status();
        for seat in self.connected().iter() {
            self.outgoing.push_back((seat, Packet::Status(status)));
        }
    }

    fn connected(&self) -> SeatSet {
        self.peers_that(|_| true)
    }

    fn peers_that(&self, is_so: impl Fn(&Status) -> bool) -> SeatSet {
        let is_one = |(_, peer): &(usize, &Option<Peer>)| peer.is_some_and(|peer| is_so(&peer.status));
        self.peers.iter().enumerate().filter(is_one).map(|(seat, _)| seat).collect()
    }
}
