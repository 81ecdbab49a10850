use super::seats::SeatSet;
use crate::tcp::{Connection, Links, Use};

/// Seats that connect with one another: members of an epoch, or of a group that is split off from one.
pub(super) struct Assembly {
    /// Number of the epoch or of the group.
    pub(super) number: u32,
    pub(super) members: SeatSet,
    /// Connections that higher seats have opened: notices and messages, by seat.
    pub(super) arrived: Links,
}

impl Assembly {
    pub(super) fn new(number: u32, members: SeatSet, seats: usize) -> Self {
        Self { number, members, arrived: (0..seats).map(|_| (None, None)).collect() }
    }

    /// Takes a connection of a higher seat.
    pub(super) fn take(&mut self, from: usize, purpose: Use, connection: Connection) {
        let (notices, messages) = &mut self.arrived[from];
        *(if purpose == Use::Notices { notices } else { messages }) = Some(connection);
    }

    /// The first of the higher members than `own` whose connections have not all arrived.
    pub(super) fn missing(&self, own: usize) -> Option<usize> {
        let is_missing = |seat: &usize| !matches!(self.arrived[*seat], (Some(_), Some(_)));
        self.members.iter().filter(|seat| *seat > own).find(is_missing)
    }
}
