//! Samples of several output rows, computed at a time.

/// Number of output rows that are computed at a time: the values of one AVX register, or of two NEON registers.
pub(crate) const ROWS: usize = 8;
/// Same sample of [`ROWS`] output rows. Aligned to one register, so that none crosses a cache line: where the allocator put
/// them made up to a third of the time.
#[derive(Clone, Copy, Default)]
#[repr(C, align(32))]
pub(crate) struct Rows(pub(crate) [f32; ROWS]);

impl Rows {
    /// Computes the sample of each row.
    #[inline(always)]
    pub(crate) fn from_fn(sample: impl FnMut(usize) -> f32) -> Self {
        Self(std::array::from_fn(sample))
    }

    /// Blends with `right`, of which each sample gets `weight`.
    #[inline(always)]
    pub(crate) fn blend(&self, right: &Self, weight: f32) -> Self {
        Self::from_fn(|row| self.0[row] + (right.0[row] - self.0[row]) * weight)
    }
}
