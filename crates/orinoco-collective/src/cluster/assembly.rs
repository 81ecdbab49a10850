use super::membership::Membership;
use super::seats::SeatSet;
use crate::tcp::{Connection, Links, PeerLinks, Use};

/// Seats that connect with one another: members of an epoch, or of a group that is split off from one.
pub(super) struct Assembly {
    /// Number of the epoch or of the group.
    pub(super) number: u32,
    /// Number of the epoch: the same, or that of the epoch from which the group is split off.
    epoch: u32,
    pub(super) members: SeatSet,
    /// Connections that higher seats have opened, by seat.
    pub(super) arrived: Links,
}

impl Assembly {
    pub(super) fn new(number: u32, epoch: u32, members: SeatSet, seats: usize) -> Self {
        let arrived = (0..seats).map(|_| PeerLinks::default()).collect();
        Self { number, epoch, members, arrived }
    }

    /// Takes a connection of a higher seat.
    pub(super) fn take(&mut self, from: usize, purpose: Use, number: u16, connection: Connection) {
        self.arrived[from].add(purpose, number, connection);
    }

    /// The first of the higher members than `own` whose connections have not all arrived.
    pub(super) fn missing(&self, own: usize, tcp_connections: u16) -> Option<usize> {
        let is_missing = |seat: &usize| !self.arrived[*seat].is_complete(tcp_connections);
        self.members.iter().filter(|seat| *seat > own).find(is_missing)
    }

    /// A member that is lost for the epoch.
    pub(super) fn lost_member(&self, own: usize, membership: &Membership) -> Option<usize> {
        self.members.iter().find(|seat| *seat != own && membership.is_lost(*seat, self.epoch))
    }
}
