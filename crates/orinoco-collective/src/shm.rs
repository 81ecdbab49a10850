//! Collective operations among the ranks of one machine, over shared memory.
//!
//! Every operation is a sequence of pieces. Each rank publishes its piece: it writes to memory of its own and then raises its
//! flag. Every rank then reads the pieces of all others. Short vectors travel in the two cache lines of the flag itself. The order
//! of steps is such that a rank that has published a piece has read the one two before it, so memory is free for reuse without
//! another word (`segment::SLOTS`).
//!
//! All reductions are in the order of the reduction tree, so results have the same bits for every size.

mod join;
mod life;
mod operations;
mod segment;
mod wait;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use join::Settings;

use crate::call::{Call, Operation};
use crate::data::AllArithmetic;
use crate::{CollectiveError, Element, FailureCause, JoinError, ReduceOp};
use life::Life;
use operations::{AllGather, AllReduce, AllToAll, Broadcast, Pieces, ReduceScatter, TwoShot};
use segment::{LINE_BYTES, Piece, RANKS_MAX, Segment};
use wait::{Awaited, Waiting, check_group, fail, raise};

/// The ranks of one machine, as one of them.
///
/// All ranks call the same operations in the same order, with the same sizes. An operation returns the correct result, or an error
/// that names the rank that failed; after an error every later call fails too. No call waits longer than
/// [`Settings::deadline`] for a rank.
pub struct ShmGroup {
    segment: Arc<Segment>,
    rank: usize,
    ranks: usize,
    /// Operations so far; wraps around.
    operations: u32,
    /// Pieces published so far; wraps around.
    published: u32,
    waiting: Waiting,
    _life: Life,
}

impl ShmGroup {
    /// Joins a group as one of its ranks, through a file that all name: in `/dev/shm`, so that it is never written to a disk. Returns
    /// when all have joined; the file is removed then.
    ///
    /// # Errors
    /// If the file cannot be used, if the rank has joined before, or if not all join before the deadline.
    pub fn join(path: &Path, rank: usize, ranks: usize, settings: Settings) -> Result<Self, JoinError> {
        if rank >= ranks || ranks > RANKS_MAX {
            return Err(JoinError::Ranks { rank, ranks, max: RANKS_MAX });
        }
        let segment = Arc::new(join::join(path, rank, ranks, settings.deadline)?);
        let life = Life::start(Arc::clone(&segment), rank, settings.silence);
        let waiting = Waiting::new(ranks, settings);
        Ok(Self { segment, rank, ranks, operations: 0, published: 0, waiting, _life: life })
    }

    /// This rank's number.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Returns when all ranks have called it.
    ///
    /// # Errors
    /// See [`ShmGroup`].
    pub fn barrier(&mut self) -> Result<(), CollectiveError> {
        let call = Call::new(Operation::Barrier, None, None, 0, 0);
        self.run(call, &mut operations::Barrier)
    }

    /// Copies the vector of `root` to all ranks.
    ///
    /// # Errors
    /// See [`ShmGroup`]. `vector` may then hold a part of the result.
    ///
    /// # Panics
    /// If there is no such root.
    pub fn broadcast<T: Element>(&mut self, root: usize, vector: &mut [T]) -> Result<(), CollectiveError> {
        assert!(root < self.ranks, "root {root} of {} ranks", self.ranks);
        let call = Call::new(Operation::Broadcast, Some(T::DATA_TYPE), None, root, vector.len());
        self.run(call, &mut Broadcast { root, vector })
    }

    /// Reduces the vectors of all ranks into the vector of each.
    ///
    /// # Errors
    /// See [`ShmGroup`]. `vector` may then hold a part of the result.
    #[expect(private_bounds, reason = "the arithmetic of the sealed element types")]
    pub fn all_reduce<T: AllArithmetic>(
        &mut self,
        op: ReduceOp,
        vector: &mut [T],
    ) -> Result<(), CollectiveError> {
        let call = Call::new(Operation::AllReduce, Some(T::DATA_TYPE), Some(op), 0, vector.len());
        if TwoShot::<T>::is_better(self.ranks, vector.len()) {
            return self.run(call, &mut TwoShot { op, vector });
        }
        self.run(call, &mut AllReduce { op, vector })
    }

    /// Concatenates the inputs of all ranks, which have equal lengths, in the output of each.
    ///
    /// # Errors
    /// See [`ShmGroup`], and if `output` is not as long as all inputs.
    pub fn all_gather<T: Element>(&mut self, input: &[T], output: &mut [T]) -> Result<(), CollectiveError> {
        let call = Call::new(Operation::AllGather, Some(T::DATA_TYPE), None, 0, input.len());
        check_len("the output", output.len(), input.len() * self.ranks, call)?;
        self.run(call, &mut AllGather { input, output })
    }

    /// Reduces the inputs of all ranks, which hold a block for each rank, and gives each rank its block.
    ///
    /// # Errors
    /// See [`ShmGroup`], and if `input` is not as long as all blocks.
    #[expect(private_bounds, reason = "the arithmetic of the sealed element types")]
    pub fn reduce_scatter<T: AllArithmetic>(
        &mut self,
        op: ReduceOp,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), CollectiveError> {
        let call = Call::new(Operation::ReduceScatter, Some(T::DATA_TYPE), Some(op), 0, output.len());
        check_len("the input", input.len(), output.len() * self.ranks, call)?;
        self.run(call, &mut ReduceScatter { op, input, output })
    }

    /// Sends each rank its block of the input, and receives a block from each.
    ///
    /// # Errors
    /// See [`ShmGroup`], and if the lengths differ or are no multiple of the number of ranks.
    pub fn all_to_all<T: Element>(&mut self, input: &[T], output: &mut [T]) -> Result<(), CollectiveError> {
        let count = output.len() / self.ranks;
        let call = Call::new(Operation::AllToAll, Some(T::DATA_TYPE), None, 0, count);
        check_len("the output", output.len(), count * self.ranks, call)?;
        check_len("the input", input.len(), output.len(), call)?;
        self.run(call, &mut AllToAll { input, output })
    }

    /// Runs an operation: publishes a piece, then reads the one before it, until all are read.
    #[inline]
    fn run<P: Pieces>(&mut self, call: Call, pieces: &mut P) -> Result<(), CollectiveError> {
        check_group(&self.segment, call)?;
        let operation = self.operations;
        self.operations = operation.wrapping_add(1);
        let line = self.segment.line(self.rank, operation);
        line.call.store(call.code(), Ordering::Relaxed);
        let count = pieces.count(self.ranks);
        let is_short = count == 1 && pieces.bytes(self.ranks) <= LINE_BYTES;
        let start = self.published;
        let place = |piece: u32| match is_short {
            true => Piece::Line { operation },
            false => Piece::Slot { number: start.wrapping_add(piece) },
        };
        for piece in 0..=count {
            if piece < count {
                pieces.fill(piece, &Member { group: self, place: place(piece) });
                self.published = start.wrapping_add(piece + 1);
                raise(line, self.published);
            }
            // With a single piece there is nothing to overlap.
            if piece > 0 {
                self.wait_for_all(operation, start.wrapping_add(piece), call, piece == 1)?;
                pieces.drain(piece - 1, &Member { group: self, place: place(piece - 1) });
            }
        }
        Ok(())
    }

    /// Waits until all other ranks have published so many pieces, and compares their calls at the first.
    #[inline]
    fn wait_for_all(
        &self,
        operation: u32,
        pieces: u32,
        call: Call,
        is_first: bool,
    ) -> Result<(), CollectiveError> {
        let segment = &*self.segment;
        for rank in (0..self.ranks).filter(|rank| *rank != self.rank) {
            let line = segment.line(rank, operation);
            self.waiting.wait(&Awaited { segment, rank, line, pieces, call })?;
            if is_first {
                let theirs = Call::from_code(line.call.load(Ordering::Relaxed));
                if theirs != call {
                    fail(segment, rank, FailureCause::Mismatch);
                    return Err(CollectiveError::Mismatch { rank, theirs, ours: call });
                }
            }
        }
        Ok(())
    }
}

/// The memory of a piece, as an operation sees it.
struct Member<'a> {
    group: &'a ShmGroup,
    place: Piece,
}

impl Member<'_> {
    fn rank(&self) -> usize {
        self.group.rank
    }

    fn ranks(&self) -> usize {
        self.group.ranks
    }

    /// What a rank has published.
    #[inline]
    fn read<T: Element>(&self, rank: usize, len: usize) -> &[T] {
        self.group.segment.read(rank, self.place, len)
    }

    /// Where this rank publishes.
    #[inline]
    fn write<T: Element>(&self, len: usize) -> &mut [T] {
        self.group.segment.write(self.group.rank, self.place, len)
    }
}

fn check_len(what: &'static str, len: usize, expected: usize, call: Call) -> Result<(), CollectiveError> {
    if len == expected { Ok(()) } else { Err(CollectiveError::Length { what, len, expected, call }) }
}
