//! Division of a vector among ranks.

use std::ops::Range;

/// Slices of long vectors begin at multiples of this many elements: at cache lines, for every data type.
const SLICE_GRANULE: usize = 64;
/// Pieces of a vector that are under way at the same time.
pub(crate) const PIECES_ACTIVE: usize = 4;

/// Divides `0..count` into one range for each weight, in order and in proportion. Equal arguments give equal ranges
/// everywhere: the arithmetic is of integers.
pub(crate) fn partition(count: usize, weights: &[u32]) -> Vec<Range<usize>> {
    let total: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let granule = if count >= SLICE_GRANULE * weights.len() { SLICE_GRANULE } else { 1 };
    let mut taken = 0u128;
    let mut start = 0;
    let mut ranges = Vec::with_capacity(weights.len());
    for (i, weight) in weights.iter().enumerate() {
        taken += u128::from(*weight);
        // Below `count`, so it fits.
        let exact = (count as u128 * taken / total) as usize;
        let end = if i + 1 == weights.len() {
            count
        } else {
            ((exact + granule / 2) / granule * granule).min(count)
        };
        ranges.push(start..end);
        start = end;
    }
    ranges
}

/// Ranges of consecutive blocks of these lengths.
pub(crate) fn blocks(counts: &[usize]) -> Vec<Range<usize>> {
    counts
        .iter()
        .scan(0, |start, count| {
            let begin = *start;
            *start += count;
            Some(begin..*start)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{blocks, partition};

    #[test]
    fn slices_are_in_proportion_and_cover_the_vector() {
        assert_eq!(partition(10, &[1, 1, 1]), [0..3, 3..6, 6..10]);
        assert_eq!(partition(0, &[1, 1]), [0..0, 0..0]);
        assert_eq!(partition(8, &[3, 1]), [0..6, 6..8]);
        assert_eq!(partition(8, &[0, 1, 0]), [0..0, 0..8, 8..8]);
        assert_eq!(partition(1000, &[1, 1]), [0..512, 512..1000]);
    }

    #[test]
    fn blocks_follow_one_another() {
        assert_eq!(blocks(&[2, 0, 3]), [0..2, 2..2, 2..5]);
    }
}
