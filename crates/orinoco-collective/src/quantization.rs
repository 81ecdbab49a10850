//! Quantization of vectors to 8-bit integers, in blocks with a scale each, and sums of quantized vectors.
//!
//! A message holds consecutive blocks of up to [`BLOCK`] elements: the scale as an `f32` in little-endian order, and an `i8` for each
//! element, which stands for its product with the scale.
//!
//! The results have the same bits on every processor. All arithmetic is that of IEEE 754 with one rounding each (largest magnitude,
//! division, rounding to the nearest even integer, product, sum), which Rust neither fuses nor reorders; the sums are in
//! the order of the reduction tree; and a NaN never reaches a result with bits of its own.

use std::ops::Range;

use half::{bf16, f16};

use crate::arithmetic::Add;
use crate::call::Call;
use crate::reduce::{Operands, combine, reduce_blocks};
use crate::{CollectiveError, Element};

/// Elements of a block. A sum is quantized as it is reduced, so both have blocks of one length.
const BLOCK: usize = 256;
const _: () = assert!(BLOCK == crate::reduce::BLOCK);
const SCALE_BYTES: usize = size_of::<f32>();
/// Largest number of an element. The range is symmetric: -128 is not used.
const LARGEST: f32 = 127.0;
/// Scale of a block that is not a number: the quiet NaN without sign and payload.
const NAN: f32 = f32::from_bits(0x7fc0_0000);

/// An element of a quantized reduction: `f32`, `f16` or `bf16`.
pub trait QuantizedElement: Element {
    /// Converts the number to `f32`, without loss.
    fn to_single(self) -> f32;

    /// The nearest number of this type; of two, the even one.
    fn from_single(value: f32) -> Self;
}

impl QuantizedElement for f32 {
    #[inline(always)]
    fn to_single(self) -> f32 {
        self
    }

    #[inline(always)]
    fn from_single(value: f32) -> Self {
        value
    }
}

impl QuantizedElement for f16 {
    #[inline(always)]
    fn to_single(self) -> f32 {
        self.to_f32()
    }

    #[inline(always)]
    fn from_single(value: f32) -> Self {
        Self::from_f32(value)
    }
}

impl QuantizedElement for bf16 {
    #[inline(always)]
    fn to_single(self) -> f32 {
        self.to_f32()
    }

    #[inline(always)]
    fn from_single(value: f32) -> Self {
        Self::from_f32(value)
    }
}

/// Division of a vector among ranks: each sums one share, and tells the sums to all.
///
/// Every rank has a slot in a message to all: the code of the call in 8 bytes, and a quantized share.
pub(crate) struct Shares {
    call: Call,
    len: usize,
    ranks: usize,
    /// Elements of a share. The last ones may have fewer, or none.
    share: usize,
}

const CALL_BYTES: usize = 8;

impl Shares {
    pub(crate) fn new(call: Call, len: usize, ranks: usize) -> Self {
        Self { call, len, ranks, share: len.div_ceil(ranks) }
    }

    /// Bytes of a rank's slot.
    fn slot(&self) -> usize {
        CALL_BYTES + quantized_bytes(self.share)
    }

    fn elements(&self, rank: usize) -> Range<usize> {
        self.len.min(rank * self.share)..self.len.min((rank + 1) * self.share)
    }

    /// Place of a rank's quantized share in a message to all.
    fn bytes(&self, rank: usize) -> Range<usize> {
        let start = rank * self.slot() + CALL_BYTES;
        start..start + quantized_bytes(self.elements(rank).len())
    }

    /// A message with a quantized share for each rank.
    pub(crate) fn quantize<T: QuantizedElement>(&self, vector: &[T]) -> Vec<u8> {
        let mut message = vec![0; self.ranks * self.slot()];
        for rank in 0..self.ranks {
            message[rank * self.slot()..][..CALL_BYTES].copy_from_slice(&self.call.code().to_le_bytes());
            quantize(&vector[self.elements(rank)], &mut message[self.bytes(rank)]);
        }
        message
    }

    /// Fails if a rank made another call: the slots may be as long all the same.
    pub(crate) fn check(&self, received: &[u8]) -> Result<(), CollectiveError> {
        for (rank, slot) in received.chunks_exact(self.slot()).enumerate() {
            let code = slot.first_chunk::<CALL_BYTES>().expect("a slot begins with a code");
            let theirs = Call::from_code(u64::from_le_bytes(*code));
            if theirs != self.call {
                return Err(CollectiveError::Mismatch { rank, theirs, ours: self.call });
            }
        }
        Ok(())
    }

    /// The quantized sum of a rank's share, of which all ranks sent theirs: its slot.
    pub(crate) fn sum(&self, rank: usize, received: &[u8]) -> Vec<u8> {
        let elements = self.elements(rank).len();
        let place = CALL_BYTES..CALL_BYTES + quantized_bytes(elements);
        let operands: Vec<&[u8]> =
            received.chunks_exact(self.slot()).map(|slot| &slot[place.clone()]).collect();
        let mut sums = vec![0; self.slot()];
        sum_quantized(&operands, elements, &mut sums[place]);
        sums
    }

    /// The vector of all ranks' sums.
    pub(crate) fn dequantize<T: QuantizedElement>(&self, gathered: &[u8], vector: &mut [T]) {
        for rank in 0..self.ranks {
            dequantize(&gathered[self.bytes(rank)], &mut vector[self.elements(rank)]);
        }
    }
}

/// Bytes of so many quantized elements.
fn quantized_bytes(elements: usize) -> usize {
    elements + elements.div_ceil(BLOCK) * SCALE_BYTES
}

/// Quantizes a vector.
#[multiversion::multiversion(targets("x86_64+avx2", "x86_64+avx2+avx512f"))]
fn quantize<T: QuantizedElement>(vector: &[T], message: &mut [u8]) {
    assert_eq!(message.len(), quantized_bytes(vector.len()));
    let mut values = [0.0; BLOCK];
    for (elements, block) in vector.chunks(BLOCK).zip(message.chunks_mut(SCALE_BYTES + BLOCK)) {
        let values = &mut values[..elements.len()];
        values.iter_mut().zip(elements).for_each(|(value, element)| *value = element.to_single());
        quantize_block(values, block);
    }
}

/// The vector that a message stands for.
#[multiversion::multiversion(targets("x86_64+avx2", "x86_64+avx2+avx512f"))]
fn dequantize<T: QuantizedElement>(message: &[u8], vector: &mut [T]) {
    assert_eq!(message.len(), quantized_bytes(vector.len()));
    let mut values = [0.0; BLOCK];
    for (elements, block) in vector.chunks_mut(BLOCK).zip(message.chunks(SCALE_BYTES + BLOCK)) {
        let values = &mut values[..elements.len()];
        dequantize_block(block, values);
        elements.iter_mut().zip(values).for_each(|(element, value)| *element = T::from_single(*value));
    }
}

/// Sums the vectors that messages stand for, in the order of the reduction tree, and quantizes the sums.
fn sum_quantized(messages: &[&[u8]], elements: usize, sums: &mut [u8]) {
    let mut blocks = Blocks { messages, sums };
    reduce_blocks(&mut blocks, messages.len(), elements, combine::<f32, Add>);
}

struct Blocks<'a> {
    messages: &'a [&'a [u8]],
    sums: &'a mut [u8],
}

impl Operands<f32> for Blocks<'_> {
    fn load(&self, operand: usize, range: Range<usize>, block: &mut [f32]) {
        dequantize_block(&self.messages[operand][bytes_of_block(range)], block);
    }

    fn store(&mut self, range: Range<usize>, totals: &[f32]) {
        quantize_block(totals, &mut self.sums[bytes_of_block(range)]);
    }
}

/// Place in a message of the block of these elements, which begin at a multiple of `BLOCK`.
fn bytes_of_block(elements: Range<usize>) -> Range<usize> {
    quantized_bytes(elements.start)..quantized_bytes(elements.end)
}

#[multiversion::multiversion(targets("x86_64+avx2", "x86_64+avx2+avx512f"))]
fn quantize_block(values: &[f32], block: &mut [u8]) {
    // Magnitudes are in the order of their bits, and whatever is not finite comes last.
    let magnitude = |value: &f32| value.to_bits() & 0x7fff_ffff;
    let largest = values.iter().map(magnitude).fold(0, u32::max);
    let scale = scale(f32::from_bits(largest));
    let (own, numbers) = block.split_at_mut(SCALE_BYTES);
    own.copy_from_slice(&scale.to_le_bytes());
    if scale > 0.0 {
        for (number, value) in numbers.iter_mut().zip(values) {
            // Only in a block of denormal numbers is the quotient ever larger: their scale has few digits.
            *number = ((value / scale).round_ties_even().clamp(-LARGEST, LARGEST) as i8).cast_unsigned();
        }
    } else {
        numbers.fill(0);
    }
}

/// Scale of a block whose largest magnitude is this.
#[inline(always)]
fn scale(largest: f32) -> f32 {
    if !largest.is_finite() {
        return NAN;
    }
    let scale = largest / LARGEST;
    // Rounded up, it would turn the largest of all numbers into infinity.
    if (scale * LARGEST).is_finite() { scale } else { scale.next_down() }
}

#[multiversion::multiversion(targets("x86_64+avx2", "x86_64+avx2+avx512f"))]
fn dequantize_block(block: &[u8], values: &mut [f32]) {
    let (scale, numbers) = block.split_at(SCALE_BYTES);
    let scale = f32::from_le_bytes(scale.try_into().expect("a scale"));
    if scale.is_nan() {
        // The bits of a product with NaN are not defined.
        return values.fill(NAN);
    }
    for (value, number) in values.iter_mut().zip(numbers) {
        *value = f32::from(number.cast_signed()) * scale;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ReduceOp;
    use crate::caller::Caller;

    /// Reduces the vectors of all ranks without a transport. Every rank's result has the same bits, so there is one.
    fn all_reduce<T: QuantizedElement>(vectors: &[Vec<T>]) -> Vec<T> {
        let (ranks, len) = (vectors.len(), vectors[0].len());
        let call = Caller { rank: 0, ranks }.all_reduce(ReduceOp::Sum, &vectors[0]);
        let shares = Shares::new(call, len, ranks);
        let sent: Vec<Vec<u8>> = vectors.iter().map(|vector| shares.quantize(vector)).collect();
        let slot = |message: &[u8], rank: usize| message[rank * shares.slot()..][..shares.slot()].to_vec();
        let gathered: Vec<u8> = (0..ranks)
            .flat_map(|rank| {
                let received: Vec<u8> = sent.iter().flat_map(|message| slot(message, rank)).collect();
                shares.check(&received).unwrap();
                shares.sum(rank, &received)
            })
            .collect();
        let mut result = vec![T::default(); len];
        shares.dequantize(&gathered, &mut result);
        result
    }

    /// Values of many magnitudes; some blocks are small, and some are of denormal numbers.
    fn value(seed: u32, rank: usize, i: usize) -> f32 {
        let mixed = (rank as u32 + 1).wrapping_mul(2_654_435_761).wrapping_add(i as u32).wrapping_add(seed);
        let mixed = (mixed ^ mixed >> 15).wrapping_mul(2_246_822_519);
        let mixed = (mixed ^ mixed >> 13).wrapping_mul(3_266_489_917);
        let exponent = match (i / 300 + seed as usize) % 4 {
            0 => mixed % 40 + 100,
            1 => mixed % 2,
            2 => 248,
            _ => 127,
        };
        f32::from_bits(mixed & 0x807f_ffff | exponent << 23)
    }

    /// The bound of the documentation: with `M` the largest magnitudes of the ranks' blocks, `sum(M) / 127 * (1 + 2^-10)`, and
    /// `2^-142` for each rank and the sum.
    fn bound(vectors: &[Vec<f32>], i: usize) -> f64 {
        let share = vectors[0].len().div_ceil(vectors.len());
        let start = i / share * share + i % share / BLOCK * BLOCK;
        let end = (start + BLOCK).min((i / share + 1) * share).min(vectors[0].len());
        let largest = |vector: &Vec<f32>| {
            vector[start..end].iter().fold(0.0, |largest: f64, value| largest.max(f64::from(value.abs())))
        };
        let total: f64 = vectors.iter().map(largest).sum();
        total / 127.0 * (1.0 + (-10f64).exp2()) + (vectors.len() + 1) as f64 * (-142f64).exp2()
    }

    proptest! {
        #[test]
        fn results_are_within_the_bound(
            ranks in 1usize..=9,
            len in prop_oneof![0usize..5, 250usize..260, 1000usize..1100, 3000usize..3100],
            seed in any::<u32>(),
        ) {
            let vectors: Vec<Vec<f32>> =
                (0..ranks).map(|rank| (0..len).map(|i| value(seed, rank, i)).collect()).collect();
            for (i, result) in all_reduce(&vectors).iter().enumerate() {
                let exact: f64 = vectors.iter().map(|vector| f64::from(vector[i])).sum();
                let error = (f64::from(*result) - exact).abs();
                let bound = bound(&vectors, i);
                prop_assert!(error <= bound, "element {}: {} instead of {}, bound {}", i, result, exact, bound);
            }
        }
    }

    #[test]
    fn special_numbers_are_defined() {
        let mut first = vec![1.0f32; 600];
        first[10] = f32::NEG_INFINITY;
        first[300] = f32::from_bits(0xffc0_1234);
        first[550] = -0.0;
        for vectors in [vec![first.clone()], vec![first, vec![-0.0; 600]]] {
            let ranks = vectors.len();
            let result = all_reduce(&vectors);
            // A share has 600 or 300 elements, so its blocks begin at 0, 256 and 512, or at 0, 256, 300 and 556.
            let is_nan = |i: usize| if ranks == 1 { i < 512 } else { i < 256 || (300..556).contains(&i) };
            for (i, value) in result.iter().enumerate() {
                let expected = match i {
                    _ if is_nan(i) => 0x7fc0_0000,
                    550 => 0,
                    _ => 1.0f32.to_bits(),
                };
                assert_eq!(value.to_bits(), expected, "element {i} of {ranks} ranks");
            }
        }
        for extreme in [f32::MAX, -f32::MAX, f32::MIN_POSITIVE, f32::from_bits(127), 0.0] {
            let result = all_reduce(&[vec![extreme]])[0];
            assert!(
                (result / extreme - 1.0).abs() < 1e-6 || result == extreme,
                "{result} instead of {extreme}"
            );
        }
        let overflow = all_reduce(&[vec![f32::MAX; 3], vec![f32::MAX; 3]]);
        assert!(overflow.iter().all(|value| value.to_bits() == 0x7fc0_0000), "{overflow:?}");
        let overflow = all_reduce(&[vec![f16::MAX], vec![f16::MAX]]);
        assert_eq!(overflow, [f16::INFINITY]);
        assert_eq!(
            all_reduce(&[vec![bf16::from_f32(3.0)], vec![bf16::from_f32(-1.0)]]),
            [bf16::from_f32(2.0)]
        );
    }

    /// Every processor has these results, to the bit.
    #[test]
    fn the_bits_of_results_are_known() {
        let vectors: Vec<Vec<f32>> =
            (0..5).map(|rank| (0..3001).map(|i| value(0, rank, i)).collect()).collect();
        let bits = |result: &[f32]| result.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        assert_eq!(crc32c::crc32c(&bits(&all_reduce(&vectors))), 22_133_825);
        assert_eq!(crc32c::crc32c(&bits(&all_reduce(&vectors[..1]))), 2_845_786_948);
    }

    #[test]
    fn another_call_is_an_error_that_names_both() {
        let shares = |len: usize| {
            let call = Caller { rank: 0, ranks: 2 }.all_reduce(ReduceOp::Sum, &vec![0.0f32; len]);
            Shares::new(call, len, 2)
        };
        let (ours, theirs) = (shares(6), shares(5));
        assert_eq!(ours.slot(), theirs.slot(), "only the code tells them apart");
        let mut received = ours.quantize(&[1.0f32; 6]);
        let slot = ours.slot();
        received[slot..].copy_from_slice(&theirs.quantize(&[1.0f32; 5])[slot..]);
        let expected = "rank 1 called all_reduce of 5 f32, sum, this rank called all_reduce of 6 f32, sum";
        assert!(ours.check(&received).unwrap_err().to_string().starts_with(expected));
    }
}
