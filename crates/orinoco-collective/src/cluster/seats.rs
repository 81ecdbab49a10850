use std::fmt;

/// Most seats of a cluster.
pub const SEATS_MAX: usize = 16;

/// A set of seats, by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SeatSet(u16);

impl SeatSet {
    /// Seats 0 to `count` - 1.
    #[cfg(test)]
    pub(crate) fn first(count: usize) -> Self {
        (0..count).collect()
    }

    /// The set with these bits, seat 0 in the lowest.
    pub(crate) fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    pub(crate) fn bits(self) -> u16 {
        self.0
    }

    /// Whether a seat is in the set.
    pub fn contains(self, seat: usize) -> bool {
        seat < SEATS_MAX && self.0 >> seat & 1 == 1
    }

    /// Number of seats in the set.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The seats, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..SEATS_MAX).filter(move |seat| self.contains(*seat))
    }

    /// Rank of a seat in the group of these seats. `None` if it is no member.
    pub(crate) fn rank_of(self, seat: usize) -> Option<usize> {
        self.iter().position(|member| member == seat)
    }

    /// The set with one more seat.
    ///
    /// # Panics
    /// If there can be no such seat.
    #[must_use]
    pub(crate) fn with(self, seat: usize) -> Self {
        assert!(seat < SEATS_MAX, "seat {seat} of at most {SEATS_MAX}");
        Self(self.0 | 1 << seat)
    }

    #[cfg(test)]
    pub(crate) fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    pub(crate) fn has_all_of(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }
}

impl FromIterator<usize> for SeatSet {
    fn from_iter<I: IntoIterator<Item = usize>>(seats: I) -> Self {
        seats.into_iter().fold(Self::default(), Self::with)
    }
}

impl fmt::Debug for SeatSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// Seats of which an epoch needs enough: more than half, or exactly half with the witness. Two epochs at the same time would have
/// a seat in common, which takes part in one only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quorum {
    pub(crate) seats: usize,
    pub(crate) witness: Option<usize>,
}

impl Quorum {
    /// Whether these seats are enough.
    pub(crate) fn is_met_by(self, set: SeatSet) -> bool {
        let is_half = 2 * set.len() == self.seats;
        2 * set.len() > self.seats || (is_half && self.witness.is_some_and(|witness| set.contains(witness)))
    }

    /// Whether the cluster has all seats of a set.
    pub(crate) fn has_all_of(self, set: SeatSet) -> bool {
        set.iter().all(|seat| seat < self.seats)
    }

    /// Number of seats that are always enough.
    pub(crate) fn needed(self) -> usize {
        self.seats / 2 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_quorums_are_apart() {
        for seats in 1..=8 {
            for witness in (0..seats).map(Some).chain([None]) {
                let quorum = Quorum { seats, witness };
                let all = SeatSet::first(seats);
                assert!(quorum.is_met_by(all));
                for bits in 0..1 << seats {
                    let one = SeatSet::from_bits(bits);
                    assert!(
                        !quorum.is_met_by(one) || !quorum.is_met_by(all.without(one)),
                        "{one:?} {witness:?}"
                    );
                    assert!(one.len() < quorum.needed() || quorum.is_met_by(one));
                }
            }
        }
    }

    #[test]
    fn ranks_are_in_the_order_of_seats() {
        let members: SeatSet = [1, 4, 9].into_iter().collect();
        assert_eq!(
            [1, 4, 9, 0, 5].map(|seat| members.rank_of(seat)),
            [Some(0), Some(1), Some(2), None, None]
        );
    }

    #[test]
    fn half_of_the_seats_need_the_witness() {
        let quorum = Quorum { seats: 2, witness: Some(1) };
        let meets = |seat| quorum.is_met_by(SeatSet::default().with(seat));
        assert!(meets(1) && !meets(0));
        assert!(!Quorum { seats: 2, witness: None }.is_met_by(SeatSet::default().with(1)));
    }
}
