//! State that the threads of a seat share.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::assembly::Assembly;
use super::links::{LinkFigures, SeatLinks};
use super::list::{ADDRESSES_MAX, MemberList};
use super::membership::Membership;
use super::packet::{LinkPacket, Packet};
use super::seats::SeatSet;
use crate::JoinError;
use crate::clock::Ticks;
use crate::security::{KeyPair, Keys};
use crate::tcp::{Answer, ClusterHello, Connection, Hello, JoinAttempt, Offer, PortSharing, Use, raise};

pub(super) struct Shared {
    pub(super) own: usize,
    pub(super) list: MemberList,
    /// Key pair of this seat.
    pub(super) pair: KeyPair,
    /// Checksum of the settings that all seats must have in common.
    pub(super) settings: u32,
    /// Connections for the messages between two members.
    pub(super) tcp_connections: u16,
    pub(super) origin: Ticks,
    pub(super) state: Mutex<State>,
    /// Programs on this board that share this seat's ports, if any may.
    pub(super) programs: Option<Arc<PortSharing>>,
    /// Raised when the control thread has something to do.
    pub(super) wake: OwnedFd,
    /// Raised when the program that waits for an epoch has something to look at.
    pub(super) news: OwnedFd,
}

pub(super) struct State {
    pub(super) membership: Membership,
    /// Connections for packets that were opened, for the control thread.
    pub(super) opened: Vec<(usize, Connection)>,
    /// The epoch whose members connect with one another.
    pub(super) assembly: Option<Assembly>,
    /// Groups that are split off, whose members connect with one another.
    pub(super) splits: Vec<Assembly>,
    /// Addresses of this seat at which it cannot listen, and the system's answers.
    pub(super) unbound: BTreeMap<SocketAddr, String>,
    /// Reasons for which lower seats could not be connected with last, by seat.
    pub(super) faults: Vec<Option<String>>,
    /// By seat.
    pub(super) links: Vec<SeatLinks>,
    /// Figures of the links between other seats, as the first of both has sent them.
    pub(super) figures: Vec<Vec<Option<LinkFigures>>>,
    /// Number of links that a seat measures with this one now, by seat.
    pub(super) probes: Vec<usize>,
    /// The program is not to wait for an epoch any longer.
    pub(super) is_interrupted: bool,
    pub(super) is_ending: bool,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Duration {
        Ticks::now().since(self.origin)
    }

    /// Keys of connections among these seats.
    pub(super) fn keys(&self, seats: impl Iterator<Item = usize>) -> Keys {
        Keys::Pairs { own: self.pair.clone(), public: seats.map(|seat| self.list.seats[seat].key).collect() }
    }

    /// Addresses at which these seats listen; unspecified for those that have several.
    pub(super) fn ips(&self, seats: impl Iterator<Item = usize>) -> Vec<IpAddr> {
        let ip = |seat: usize| match self.list.seats[seat].addresses[..] {
            [address] => address.ip(),
            _ => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        };
        seats.map(ip).collect()
    }

    /// Addresses of a lower seat in the order in which they are to be tried.
    pub(super) fn preference(&self, seat: usize) -> Vec<SocketAddr> {
        let addresses = &self.list.seats[seat].addresses;
        let order = self.lock().links[seat].preference(addresses.len());
        order.into_iter().map(|at| addresses[at]).collect()
    }

    /// Addresses of a lower seat in the order in which they are to be tried: that which the present epoch uses, then the others.
    pub(super) fn preference_in_epoch(&self, seat: usize) -> Vec<SocketAddr> {
        let mut addresses = self.preference(seat);
        let used = self.lock().links[seat].used();
        // The sort keeps the order of the others.
        addresses.sort_by_key(|address| Some(address.ip()) != used);
        addresses
    }

    /// This seat as it introduces itself in an epoch or a group with this number, or outside of both with number 0 and no members.
    pub(super) fn introduction(&self, number: u32, members: SeatSet, deadline: Duration) -> JoinAttempt {
        JoinAttempt {
            offer: Offer::OURS,
            rank: self.own,
            ranks: self.list.seats.len(),
            settings: self.settings,
            tcp_connections: self.tcp_connections,
            keys: self.keys(0..self.list.seats.len()),
            epoch: number,
            cluster: ClusterHello {
                members: members.bits(),
                list_serial: self.list.serial,
                list_checksum: self.list.checksum(),
            },
            deadline,
            start: Ticks::now(),
            give_up: None,
        }
    }

    /// Answer to the hello of another seat. Higher seats connect to lower ones.
    pub(super) fn answer(&self, own: &Hello, hello: &Hello) -> Answer {
        let from = hello.from as usize;
        let ClusterHello { list_serial, list_checksum, .. } = hello.cluster;
        if (list_serial, list_checksum) != (own.cluster.list_serial, own.cluster.list_checksum) {
            return Answer::OtherList;
        }
        if hello.to as usize != self.own || from <= self.own || from >= self.list.seats.len() {
            return Answer::WrongRank;
        }
        if hello.settings != self.settings {
            return Answer::OtherSettings;
        }
        match hello.purpose() {
            Some(Use::Membership) => Answer::Accepted,
            // The one before may end a moment later than the next begins.
            Some(Use::Probe) if self.lock().probes[from] >= ADDRESSES_MAX => Answer::WrongRank,
            Some(Use::Probe) => Answer::Accepted,
            Some(Use::Notices | Use::Messages) => match self.lock().assembly(hello.epoch) {
                Some(Assembly { members, arrived, .. })
                    if members.bits() == hello.cluster.members && members.contains(from) =>
                {
                    match arrived[from].lacks(hello.purpose(), hello.detail, self.tcp_connections) {
                        true => Answer::Accepted,
                        false => Answer::WrongRank,
                    }
                }
                _ => Answer::OtherEpoch,
            },
            Some(Use::Directory) | None => Answer::WrongRank,
        }
    }

    /// Takes a connection of a higher seat.
    pub(super) fn arrived(&self, connection: Connection, hello: &Hello) {
        let from = hello.from as usize;
        let mut state = self.lock();
        match hello.purpose() {
            Some(Use::Membership) => {
                state.opened.push((from, connection));
                drop(state);
                raise(&self.wake);
            }
            Some(purpose) => {
                // It may have ended meanwhile, or another listener may have taken the same connection.
                if let Some(assembly) = state.assembly(hello.epoch)
                    && assembly.arrived[from].lacks(Some(purpose), hello.detail, self.tcp_connections)
                {
                    assembly.take(from, purpose, hello.detail, connection);
                }
            }
            None => {}
        }
    }
}

impl State {
    /// The epoch, or the group that is split off, with this number, if its members connect with one another now.
    pub(super) fn assembly(&mut self, number: u32) -> Option<&mut Assembly> {
        self.assembly.iter_mut().chain(&mut self.splits).find(|assembly| assembly.number == number)
    }

    /// Notes the figures that a seat has sent. Returns whether they can be such.
    pub(super) fn figures_of(&mut self, seat: usize, packet: LinkPacket) -> bool {
        let place = self.figures[seat].get_mut(usize::from(packet.seat));
        place.map(|place| *place = Some(LinkFigures::of_packet(packet))).is_some()
    }

    /// Packets with the figures of this seat's links.
    pub(super) fn own_figures(&self) -> impl Iterator<Item = Packet> {
        let packet = |(seat, links): (usize, &SeatLinks)| Some(Packet::Link(links.figures()?.packet(seat)));
        self.links.iter().enumerate().filter_map(packet)
    }

    /// Reason for which a seat could not be connected with last, or for which this one does not listen at an address.
    pub(super) fn fault_of(&self, seat: usize, own: usize) -> Option<String> {
        if seat != own {
            return self.faults[seat].clone();
        }
        let unbound =
            self.unbound.iter().map(|(address, why)| format!("this board cannot listen on {address}: {why}"));
        Some(unbound.collect::<Vec<_>>().join("; ")).filter(|text| !text.is_empty())
    }
}

/// Reason for which a seat could not be connected with, for people.
pub(super) fn describe(why: &JoinError, address: SocketAddr) -> String {
    match why {
        JoinError::Missing { .. } => {
            format!(
                "cannot connect to {address}; check that orinocod is running there and that the firewall allows TCP"
            )
        }
        JoinError::NoRank { .. } => {
            format!(
                "{address} did not answer as orinocod does: another program uses that port, or its version is incompatible"
            )
        }
        JoinError::Untrusted { .. } => {
            format!("the program that replies at {address} does not have the seat's key")
        }
        JoinError::Refused { why, .. } => format!("the seat refused the connection: {why}"),
        other => other.to_string(),
    }
}
