//! Connection of seats with one another: as members of an epoch, or of a group that is split off from one. Higher seats connect to
//! lower ones, at the one port of each address at which those listen for everything.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use zeroize::Zeroizing;

use super::assembly::Assembly;
use super::seats::SeatSet;
use super::shared::{Shared, State};
use crate::clock::pause;
use crate::message::MessageSettings;
use crate::split::divide;
use crate::tcp::{Connection, JoinAttempt, Joined, Links, PeerLinks, Place, Use};
use crate::{Communicator, JoinError, KeyError};

/// Numbers of groups that are split off have this bit, and those of epochs do not.
const SPLIT_BIT: u32 = 1 << 31;
/// Interval at which a seat looks whether another is ready to be connected with.
const RETRY: Duration = Duration::from_millis(2);
/// Times that a seat is tried again after it has closed a connection without an answer.
const CLOSED_MAX: u32 = 5;

impl Shared {
    /// Connects this seat with the other members of an assembly, which its state has. Returns the connections by seat.
    pub(super) fn connect(
        &self,
        attempt: &JoinAttempt,
        members: SeatSet,
        addresses: impl Fn(usize) -> Vec<SocketAddr>,
    ) -> Result<Links, JoinError> {
        let mut links: Links = (0..self.list.seats.len()).map(|_| PeerLinks::default()).collect();
        for seat in members.iter().take_while(|seat| *seat < self.own) {
            let addresses = addresses(seat);
            for (purpose, number) in attempt.connections() {
                let connection = self.dial_member(attempt, (purpose, number), seat, &addresses)?;
                links[seat].add(purpose, number, connection);
            }
        }
        for (seat, arrived) in self.arrivals(attempt)?.into_iter().enumerate().skip(self.own + 1) {
            links[seat] = arrived;
        }
        Ok(links)
    }

    /// Waits for the connections of higher members.
    fn arrivals(&self, attempt: &JoinAttempt) -> Result<Links, JoinError> {
        loop {
            let mut state = self.lock();
            let assembly = state.assembly(attempt.epoch);
            let assembly = assembly.ok_or(JoinError::OtherEpoch { rank: self.own })?;
            let Some(missing) = assembly.missing(self.own, attempt.tcp_connections) else {
                return Ok(std::mem::take(&mut assembly.arrived));
            };
            let is_late = attempt.rest().is_zero().then_some(missing);
            if let Some(rank) = self.given_up_for(&state, attempt.epoch, missing).or(is_late) {
                return Err(JoinError::OtherEpoch { rank });
            }
            drop(state);
            pause(RETRY);
        }
    }

    /// Connects with a lower member at the first of these addresses at which it answers. It may not know yet that the epoch has begun.
    fn dial_member(
        &self,
        attempt: &JoinAttempt,
        (purpose, number): (Use, u16),
        seat: usize,
        addresses: &[SocketAddr],
    ) -> Result<Connection, JoinError> {
        let mut next = addresses.iter().cycle();
        let mut address = next.next().expect("a seat has an address");
        let mut closed = 0;
        loop {
            let dialled = attempt.try_dial(purpose, number, seat, *address);
            let is_early = match dialled {
                Err(JoinError::OtherEpoch { .. }) => true,
                // Its daemon shows connections out when too many strangers come.
                Err(JoinError::NoRank { .. }) => {
                    closed += 1;
                    closed <= CLOSED_MAX
                }
                Err(JoinError::Missing { .. }) => {
                    address = next.next().expect("a cycle has no end");
                    true
                }
                _ => false,
            };
            if !is_early || attempt.rest().is_zero() {
                return dialled;
            }
            if let Some(rank) = self.given_up_for(&self.lock(), attempt.epoch, seat) {
                return Err(JoinError::OtherEpoch { rank });
            }
            pause(RETRY);
        }
    }

    /// Seat for which an assembly is given up: a member that is lost, or the awaited one if the call is interrupted.
    fn given_up_for(&self, state: &State, number: u32, awaited: usize) -> Option<usize> {
        let State { membership, assembly, splits, is_interrupted, is_ending, .. } = state;
        let assembly = assembly.iter().chain(splits).find(|assembly| assembly.number == number);
        match assembly {
            Some(assembly) if !*is_interrupted && !*is_ending => assembly.lost_member(self.own, membership),
            _ => Some(awaited),
        }
    }
}

/// Seats of the ranks of a group, for groups that are split off from it.
#[derive(Clone)]
pub(super) struct Seats {
    pub(super) shared: Arc<Shared>,
    /// The epoch in which the group is.
    pub(super) epoch: u32,
    /// By rank.
    pub(super) of_ranks: Vec<usize>,
    /// Address of this board for groups that are split off from those.
    pub(super) place: Place,
}

impl Seats {
    /// Divides a group, whose seats these are, into new ones. Connects this seat with the others of its new group, and returns its
    /// rank there and the seats of that group; `None` if it has no colour.
    pub(super) fn divide(
        &self,
        parent: &mut impl Communicator,
        color: Option<u32>,
        key: i32,
        settings: &MessageSettings,
    ) -> Result<Option<(Joined, usize, Self)>, JoinError> {
        let Some(((), part)) = divide(parent, color, key, choose_number)? else { return Ok(None) };
        let seats: Vec<usize> = part.members.iter().map(|member| self.of_ranks[member.rank]).collect();
        let (shared, members) = (&*self.shared, seats.iter().copied().collect::<SeatSet>());
        let number = u32::from_le_bytes(*part.members[0].offer) | SPLIT_BIT;
        let attempt = shared.introduction(number, members, settings.deadline);
        let expected =
            Expected::new(shared, Assembly::new(number, self.epoch, members, shared.list.seats.len()));
        let links = shared.connect(&attempt, members, |seat| shared.preference_in_epoch(seat));
        drop(expected);
        let mut links = links.map_err(|why| by_rank(why, &attempt, &seats))?;
        let links = seats.iter().map(|seat| std::mem::take(&mut links[*seat])).collect();
        let (keys, ips) = (shared.keys(seats.iter().copied()), shared.ips(seats.iter().copied()));
        let joined = Joined { links, keys, ips, place: self.place.clone(), offer: attempt.offer };
        Ok(Some((joined, part.rank, Self { of_ranks: seats, ..self.clone() })))
    }
}

/// A number for a new group. That of the group's rank 0 is used.
fn choose_number() -> Result<((), Zeroizing<[u8; 4]>), JoinError> {
    let mut number = Zeroizing::new([0; 4]);
    getrandom::fill(&mut *number).map_err(|error| KeyError::Randomness(error.to_string()))?;
    Ok(((), number))
}

/// Error of the new group, which has these seats as ranks, if not all of them could be connected with.
fn by_rank(why: JoinError, attempt: &JoinAttempt, seats: &[usize]) -> JoinError {
    let rank = |seat: usize| seats.iter().position(|member| *member == seat).unwrap_or(seat);
    match why {
        JoinError::Missing { missing, at, waited, turned_away, other_version } => {
            let missing = missing.into_iter().map(rank).collect();
            JoinError::Missing { missing, at, waited, turned_away, other_version }
        }
        JoinError::OtherEpoch { rank: seat } => JoinError::Missing {
            missing: vec![rank(seat)],
            at: "the new group".to_owned(),
            waited: attempt.deadline - attempt.rest(),
            turned_away: 0,
            other_version: None,
        },
        other => other,
    }
}

/// Group that is split off, for whose connections this seat waits.
struct Expected<'s> {
    shared: &'s Shared,
    number: u32,
}

impl<'s> Expected<'s> {
    fn new(shared: &'s Shared, assembly: Assembly) -> Self {
        let number = assembly.number;
        shared.lock().splits.push(assembly);
        Self { shared, number }
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.shared.lock().splits.retain(|assembly| assembly.number != self.number);
    }
}
