//! All-reduce of vectors that are quantized to 8-bit integers: the same bits on every rank and over every transport.

use half::{bf16, f16};
use orinoco_collective::{CollectiveError, Communicator, QuantizedElement, ReduceOp, reduce};

use crate::{Group, Kind, Times, run};

const BLOCK: usize = 256;

/// The numbers that a block stands for, as the documentation has them.
fn quantized(block: &[f32]) -> Vec<f32> {
    let scale = block.iter().fold(0.0f32, |largest, value| largest.max(value.abs())) / 127.0;
    let number =
        |value: &f32| if scale == 0.0 { 0.0 } else { (value / scale).round_ties_even() as i8 as f32 };
    block.iter().map(|value| number(value) * scale).collect()
}

/// The result, block by block.
fn expected(vectors: &[Vec<f32>]) -> Vec<f32> {
    let share = vectors[0].len().div_ceil(vectors.len()).max(1);
    let blocks = |vector: &[f32]| -> Vec<Vec<f32>> {
        vector.chunks(share).flat_map(|share| share.chunks(BLOCK)).map(quantized).collect()
    };
    let of_ranks: Vec<_> = vectors.iter().map(|vector| blocks(vector)).collect();
    let sum = |block: usize| {
        let operands: Vec<&[f32]> = of_ranks.iter().map(|blocks| blocks[block].as_slice()).collect();
        let mut sum = vec![0.0; operands[0].len()];
        reduce(ReduceOp::Sum, &mut sum, &operands, 1);
        quantized(&sum)
    };
    (0..of_ranks[0].len()).flat_map(sum).collect()
}

fn vector<T: QuantizedElement>(rank: usize, len: usize) -> Vec<T> {
    let value = |i: usize| ((rank * 31 + i * 7) % 1013) as f32 * 0.1 - 50.0 + (i % 3) as f32 * 1e-3;
    (0..len).map(|i| T::from_single(value(i))).collect()
}

fn check<T: QuantizedElement>(group: &mut impl Communicator) {
    let (rank, ranks) = (group.rank(), group.ranks());
    for len in [0, 1, 2, 3, 5, 255, 256, 257, 1000, 4099, 100_003] {
        let vectors: Vec<Vec<f32>> =
            (0..ranks).map(|rank| vector::<T>(rank, len).into_iter().map(T::to_single).collect()).collect();
        let mut own = vector::<T>(rank, len);
        group.all_reduce_int8(&mut own).unwrap();
        let bits = |value: T| value.to_single().to_bits();
        let found: Vec<u32> = own.into_iter().map(bits).collect();
        let expected: Vec<u32> =
            expected(&vectors).into_iter().map(|value| bits(T::from_single(value))).collect();
        assert_eq!(found, expected, "{len} {} of {ranks} ranks", T::DATA_TYPE);
    }
}

fn all_ranks_get_the_same_bits<G: Group>(kind: &Kind<G>) {
    for ranks in 1..=5 {
        run(kind, ranks, Times::of_a_busy_machine(), |mut group| {
            check::<f32>(&mut group);
            check::<f16>(&mut group);
            check::<bf16>(&mut group);
        });
    }
}

fn vectors_of_different_lengths_are_an_error_on_all_ranks<G: Group>(kind: &Kind<G>) {
    run(kind, 3, Times::default(), |mut group| {
        // As many elements in a share, so only the calls differ. The group can still be used.
        let error = group.all_reduce_int8(&mut vec![1.0f32; 4 + group.rank().min(1)]).unwrap_err();
        let CollectiveError::Mismatch { rank, theirs, ours } = error else { panic!("{error}") };
        assert_eq!((rank == 0, theirs == ours), (group.rank() != 0, false));
        let mut vector = [2.0f32; 10];
        group.all_reduce_int8(&mut vector).unwrap();
        assert_eq!(vector, [6.0; 10]);
        group.all_reduce_int8(&mut vec![1.0f32; 100 * (1 + group.rank())]).unwrap_err();
        assert!(group.barrier().is_err());
    });
}

macro_rules! int8 {
    ($($module:ident)*) => {$(
        mod $module {
            use crate::$module::KIND;

            #[test]
            fn all_ranks_get_the_same_bits() {
                super::all_ranks_get_the_same_bits(&KIND);
            }

            #[test]
            fn vectors_of_different_lengths_are_an_error_on_all_ranks() {
                super::vectors_of_different_lengths_are_an_error_on_all_ranks(&KIND);
            }
        }
    )*};
}

int8! {
    on_shm
    on_shm_without_single_copy
    on_tcp
    on_tcp_without_encryption
}
