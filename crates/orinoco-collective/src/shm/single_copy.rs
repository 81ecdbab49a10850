//! Operations on long vectors that copy each element once: ranks tell one another where their vectors are, and read from there.
//!
//! A rank may change its vectors only after the others have read them, so every operation ends with an exchange of flags.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Range;

use super::segment::Piece;
use super::sync::Ordering;
use super::wait::{check_group, check_reads, fail, raise};
use super::{Call, SINGLE_COPY_BYTES, SINGLE_COPY_BYTES_SHARED, ShmGroup, remote};
use crate::partition::partition;
use crate::{CollectiveError, Communicator, Element, FailureCause, ReduceOp, reduce};

/// Bytes of another rank's vector that are read and reduced at a time: they stay in the second-level cache between the two.
const CHUNK_BYTES: usize = 64 << 10;

/// Addresses of the vectors of all ranks, in an operation that has begun.
struct Vectors {
    operation: u32,
    call: Call,
    /// By rank: process, address of the input, address of the output.
    ranks: Vec<(u32, u64, u64)>,
}

impl ShmGroup {
    /// Finds out whether all ranks may read one another's memory. All ranks get the same answer.
    pub(super) fn probe_single_copy(&mut self) -> Result<(), CollectiveError> {
        let secret = [RandomState::new().hash_one(self.rank)];
        let pulse = self.segment.pulse(self.rank);
        pulse.probe_address.store(remote::address(&secret), Ordering::Relaxed);
        pulse.probe_value.store(secret[0], Ordering::Relaxed);
        self.barrier()?;
        let can_read = |rank: usize| {
            let pulse = self.segment.pulse(rank);
            let (process, address) =
                (pulse.process.load(Ordering::Acquire), pulse.probe_address.load(Ordering::Relaxed));
            let mut found = [0u64];
            // In another container the number may be another process's, so the value counts.
            remote::read(process, address, &mut found).is_ok()
                && found[0] == pulse.probe_value.load(Ordering::Relaxed)
        };
        let may_read = u8::from((0..self.ranks).all(can_read));
        let have_cores = u8::from(!self.waiting.shares_cores());
        // Each rank sees its own cores, and all must decide alike.
        let mut agreed = [may_read, have_cores];
        self.all_reduce(ReduceOp::Min, &mut agreed)?;
        std::hint::black_box(&secret);
        self.single_copy_bytes = match agreed {
            [0, _] => None,
            [_, 0] => Some(SINGLE_COPY_BYTES_SHARED),
            _ => Some(SINGLE_COPY_BYTES),
        };
        Ok(())
    }

    pub(super) fn all_reduce_single_copy<T: Element>(
        &mut self,
        call: Call,
        op: ReduceOp,
        input: Option<&[T]>,
        output: &mut [T],
    ) -> Result<(), CollectiveError> {
        let vectors = self.begin(call, remote::address(input.unwrap_or(output)), remote::address(output))?;
        let slices = partition(output.len(), &vec![1; self.ranks]);
        let own = slices[self.rank].clone();
        let input = input.map(|input| &input[own.clone()]);
        self.reduce_remote(&vectors, op, input, &mut output[own.clone()], own.start)?;
        self.pass(&vectors)?;
        for distance in 1..self.ranks {
            let rank = (self.rank + distance) % self.ranks;
            let slice = slices[rank].clone();
            let (process, _, address) = vectors.ranks[rank];
            let address = element_address::<T>(address, slice.start);
            self.read(&vectors, rank, process, address, &mut output[slice])?;
        }
        self.pass(&vectors)
    }

    pub(super) fn reduce_scatter_single_copy<T: Element>(
        &mut self,
        call: Call,
        op: ReduceOp,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), CollectiveError> {
        let vectors = self.begin(call, remote::address(input), 0)?;
        let own = self.rank * output.len()..(self.rank + 1) * output.len();
        self.reduce_remote(&vectors, op, Some(&input[own.clone()]), output, own.start)?;
        self.pass(&vectors)
    }

    pub(super) fn broadcast_single_copy<T: Element>(
        &mut self,
        call: Call,
        root: usize,
        vector: &mut [T],
    ) -> Result<(), CollectiveError> {
        let vectors = self.begin(call, remote::address(vector), 0)?;
        if self.rank != root {
            let (process, address, _) = vectors.ranks[root];
            self.read(&vectors, root, process, address, vector)?;
        }
        self.pass(&vectors)
    }

    pub(super) fn all_gather_single_copy<T: Element>(
        &mut self,
        call: Call,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), CollectiveError> {
        let vectors = self.begin(call, remote::address(input), 0)?;
        self.read_blocks(&vectors, 0, input, output)?;
        self.pass(&vectors)
    }

    pub(super) fn all_to_all_single_copy<T: Element>(
        &mut self,
        call: Call,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), CollectiveError> {
        let vectors = self.begin(call, remote::address(input), 0)?;
        let count = output.len() / self.ranks;
        let start = self.rank * count;
        self.read_blocks(&vectors, start, &input[start..start + count], output)?;
        self.pass(&vectors)
    }

    /// Tells the others where this rank's vectors are, and learns where theirs are.
    fn begin(&mut self, call: Call, input: u64, output: u64) -> Result<Vectors, CollectiveError> {
        check_group(&self.segment, call)?;
        let operation = self.operations;
        self.operations = operation.wrapping_add(1);
        let place = Piece::Line { operation };
        self.segment.write::<u64>(self.rank, place, 2).copy_from_slice(&[input, output]);
        let line = self.segment.line(self.rank, operation);
        line.call.store(call.code(), Ordering::Relaxed);
        self.published = self.published.wrapping_add(1);
        raise(line, self.published);
        self.wait_for_all(operation, self.published, call, true)?;
        let of_rank = |rank: usize| {
            let addresses = self.segment.read::<u64>(rank, place, 2);
            (self.segment.pulse(rank).process.load(Ordering::Relaxed), addresses[0], addresses[1])
        };
        Ok(Vectors { operation, call, ranks: (0..self.ranks).map(of_rank).collect() })
    }

    /// Waits until all ranks have come here.
    fn pass(&mut self, vectors: &Vectors) -> Result<(), CollectiveError> {
        self.published = self.published.wrapping_add(1);
        raise(self.segment.line(self.rank, vectors.operation), self.published);
        self.wait_for_all(vectors.operation, self.published, vectors.call, false)?;
        // A rank that was stopped may come here after the others have given it up, and have changed what it read.
        check_reads(&self.segment, vectors.call)
    }

    /// Reduces a part of all inputs, which begins at element `start` of them, into `own`. It holds this rank's part already,
    /// unless that is given.
    fn reduce_remote<T: Element>(
        &self,
        vectors: &Vectors,
        op: ReduceOp,
        input: Option<&[T]>,
        own: &mut [T],
        start: usize,
    ) -> Result<(), CollectiveError> {
        let chunk_len = CHUNK_BYTES / size_of::<T>();
        let mut copies = vec![T::default(); self.ranks * chunk_len.min(own.len())];
        for (number, result) in own.chunks_mut(chunk_len).enumerate() {
            let offset = number * chunk_len;
            let mut operands: Vec<&[T]> = Vec::with_capacity(self.ranks);
            for (rank, copy) in (0..self.ranks).zip(copies.chunks_mut(result.len())) {
                if rank != self.rank {
                    let (process, address, _) = vectors.ranks[rank];
                    let address = element_address::<T>(address, start + offset);
                    self.read(vectors, rank, process, address, copy)?;
                } else if input.is_none() {
                    copy.copy_from_slice(result);
                }
                operands.push(match input {
                    Some(input) if rank == self.rank => &input[offset..offset + result.len()],
                    _ => copy,
                });
            }
            reduce(op, result, &operands, u32::try_from(self.ranks).expect("few ranks"));
        }
        Ok(())
    }

    /// Fills the blocks of `output` with what the ranks have at element `start` of their inputs. `own` is this rank's.
    fn read_blocks<T: Element>(
        &self,
        vectors: &Vectors,
        start: usize,
        own: &[T],
        output: &mut [T],
    ) -> Result<(), CollectiveError> {
        let block = |rank: usize| -> Range<usize> { rank * own.len()..(rank + 1) * own.len() };
        output[block(self.rank)].copy_from_slice(own);
        for distance in 1..self.ranks {
            let rank = (self.rank + distance) % self.ranks;
            let (process, address, _) = vectors.ranks[rank];
            self.read(
                vectors,
                rank,
                process,
                element_address::<T>(address, start),
                &mut output[block(rank)],
            )?;
        }
        Ok(())
    }

    fn read<T: Element>(
        &self,
        vectors: &Vectors,
        rank: usize,
        process: u32,
        address: u64,
        into: &mut [T],
    ) -> Result<(), CollectiveError> {
        remote::read(process, address, into).or_else(|why| self.unreadable(vectors.call, rank, &why))
    }

    #[cold]
    pub(super) fn unreadable(&self, call: Call, rank: usize, why: &io::Error) -> Result<(), CollectiveError> {
        let has_ended = why.raw_os_error() == Some(libc::ESRCH);
        let cause = if has_ended { FailureCause::Ended } else { FailureCause::Unreadable };
        fail(&self.segment, rank, cause);
        check_group(&self.segment, call)
    }
}

fn element_address<T>(address: u64, element: usize) -> u64 {
    address.wrapping_add((element * size_of::<T>()) as u64)
}
