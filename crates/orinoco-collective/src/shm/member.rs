use super::segment::{Piece, Segment};
use crate::Element;

/// Memory of a piece, as an operation sees it.
pub(super) struct Member<'a> {
    pub(super) segment: &'a Segment,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) place: Piece,
}

impl<'a> Member<'a> {
    /// Elements that a rank has published.
    #[inline]
    pub(super) fn read<T: Element>(&self, rank: usize, len: usize) -> &'a [T] {
        self.segment.read(rank, self.place, len)
    }

    /// Memory in which this rank publishes.
    #[inline]
    pub(super) fn write<T: Element>(&self, len: usize) -> &'a mut [T] {
        self.segment.write(self.rank, self.place, len)
    }
}
