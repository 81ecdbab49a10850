//! Rounds of random operations, of which every result is checked.

use orinoco_collective::{CollectiveError, Communicator, ReduceOp};
use orinoco_core::Rng;

/// Within a cache line, within a piece, of several pieces, and so long that ranks read from one another's memory.
const LENS: [usize; 7] = [0, 1, 13, 1_000, 9_000, 20_001, 70_000];

/// Element of a rank's vector.
fn value(salt: u32, rank: usize, i: usize) -> i64 {
    i64::from(salt) + (rank * 1_000_003 + i * 31) as i64
}

fn vector(salt: u32, rank: usize, len: usize) -> Vec<i64> {
    (0..len).map(|i| value(salt, rank, i)).collect()
}

fn sum(salt: u32, ranks: usize, i: usize) -> i64 {
    (0..ranks).map(|rank| value(salt, rank, i)).sum()
}

/// Runs one operation, which the seed of `rng` decides on all ranks alike, and checks its result. `excess` elements are added to
/// this rank's vector.
///
/// # Panics
/// If a result is wrong.
pub(crate) fn round(
    group: &mut impl Communicator,
    rng: &mut Rng,
    excess: usize,
) -> Result<(), CollectiveError> {
    let (rank, ranks) = (group.rank(), group.ranks());
    let (kind, len, salt, root) =
        (rng.u32(..8), LENS[rng.usize(..LENS.len())] + excess, rng.u32(..), rng.usize(..ranks));
    let own = vector(salt, rank, len);
    match kind {
        0 if excess == 0 => group.barrier()?,
        1 => {
            let mut copied = own;
            group.broadcast(root, &mut copied)?;
            assert!(copied == vector(salt, root, len), "broadcast of {len} elements");
        }
        2 => {
            let mut gathered = vec![0; len * ranks];
            group.all_gather(&own, &mut gathered)?;
            let is_right =
                gathered.iter().enumerate().all(|(i, found)| *found == value(salt, i / len, i % len));
            assert!(is_right, "all-gather of {len} elements");
        }
        3 => {
            let mut scattered = vec![0; len];
            group.reduce_scatter(ReduceOp::Sum, &vector(salt, rank, len * ranks), &mut scattered)?;
            let is_right =
                scattered.iter().enumerate().all(|(i, found)| *found == sum(salt, ranks, rank * len + i));
            assert!(is_right, "reduce-scatter of {len} elements");
        }
        4 => {
            let mut exchanged = vec![0; len * ranks];
            group.all_to_all(&vector(salt, rank, len * ranks), &mut exchanged)?;
            let of = |i: usize| value(salt, i / len, rank * len + i % len);
            assert!(
                exchanged.iter().enumerate().all(|(i, found)| *found == of(i)),
                "all-to-all of {len} elements"
            );
        }
        5 => pass_on(group, salt, &own)?,
        _ => {
            let mut reduced = own;
            group.all_reduce(ReduceOp::Sum, &mut reduced)?;
            let is_right = reduced.iter().enumerate().all(|(i, found)| *found == sum(salt, ranks, i));
            assert!(is_right, "all-reduce of {len} elements");
        }
    }
    Ok(())
}

/// Sends a vector once around the ring.
fn pass_on(group: &mut impl Communicator, salt: u32, own: &[i64]) -> Result<(), CollectiveError> {
    let (rank, ranks) = (group.rank(), group.ranks());
    let (next, previous) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    let mut received = vec![0; own.len()];
    if rank == 0 {
        group.send(next, own)?;
        group.recv(previous, &mut received)?;
    } else {
        group.recv(previous, &mut received)?;
        group.send(next, own)?;
    }
    assert!(received == vector(salt, previous, own.len()), "message of {} elements", own.len());
    Ok(())
}
