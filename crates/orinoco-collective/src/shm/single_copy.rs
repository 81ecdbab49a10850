//! An all-to-all of long vectors that copies each element once: ranks tell one another where their vectors are, and read from there.
//!
//! Whatever is published in slots is copied twice, but by two cores at the same time, and the kernel's copy takes as long as both. An all-to-all
//! gains all the same: each rank would publish its whole vector for all others, which each need a block of it.
//!
//! A rank may change its vector only after the others have read it, so the operation ends with an exchange of flags.

use std::hash::{BuildHasher, RandomState};
use std::io;

use super::segment::Piece;
use super::sync::Ordering;
use super::wait::{check_group, check_reads, fail, raise};
use super::{Call, SINGLE_COPY_BYTES, SINGLE_COPY_BYTES_SHARED, ShmGroup, Step, remote};
use crate::{CollectiveError, Communicator, Element, FailureCause, ReduceOp};

/// Addresses of the vectors of all ranks, in an operation that has begun.
struct Vectors {
    operation: u32,
    call: Call,
    /// By rank: process, and address of the input.
    ranks: Vec<(u32, u64)>,
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

    pub(super) fn all_to_all_single_copy<T: Element>(
        &mut self,
        call: Call,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), CollectiveError> {
        let vectors = self.begin(call, remote::address(input))?;
        let count = output.len() / self.ranks;
        let (start, block) = (self.rank * count, |rank: usize| rank * count..(rank + 1) * count);
        output[block(self.rank)].copy_from_slice(&input[block(self.rank)]);
        for distance in 1..self.ranks {
            let rank = (self.rank + distance) % self.ranks;
            let (process, address) = vectors.ranks[rank];
            let address = address.wrapping_add((start * size_of::<T>()) as u64);
            remote::read(process, address, &mut output[block(rank)])
                .or_else(|why| self.unreadable(call, rank, &why))?;
        }
        self.pass(&vectors)
    }

    /// Tells the others where this rank's vector is, and learns where theirs are.
    fn begin(&mut self, call: Call, address: u64) -> Result<Vectors, CollectiveError> {
        self.settle()?;
        check_group(&self.segment, call)?;
        let operation = self.operations;
        self.operations = operation.wrapping_add(1);
        let place = Piece::Line { operation };
        self.segment.write::<u64>(self.rank, place, 1)[0] = address;
        let line = self.segment.line(self.rank, operation);
        line.call.store(call.code(), Ordering::Relaxed);
        self.published = self.published.wrapping_add(1);
        raise(line, self.published);
        let step = Step { operation, pieces: self.published, is_first: true };
        self.wait_for(|_| true, step, self.published.wrapping_add(1), call)?;
        let of_rank = |rank: usize| {
            let process = self.segment.pulse(rank).process.load(Ordering::Relaxed);
            (process, self.segment.read::<u64>(rank, place, 1)[0])
        };
        Ok(Vectors { operation, call, ranks: (0..self.ranks).map(of_rank).collect() })
    }

    /// Waits until all ranks have come here.
    fn pass(&mut self, vectors: &Vectors) -> Result<(), CollectiveError> {
        self.published = self.published.wrapping_add(1);
        raise(self.segment.line(self.rank, vectors.operation), self.published);
        let step = Step { operation: vectors.operation, pieces: self.published, is_first: false };
        self.wait_for(|_| true, step, self.published, vectors.call)?;
        // A rank that was stopped may come here after the others have given it up, and have changed what it read.
        check_reads(&self.segment, vectors.call)
    }

    #[cold]
    pub(super) fn unreadable(&self, call: Call, rank: usize, why: &io::Error) -> Result<(), CollectiveError> {
        let has_ended = why.raw_os_error() == Some(libc::ESRCH);
        let cause = if has_ended { FailureCause::Ended } else { FailureCause::Unreadable };
        fail(&self.segment, rank, cause);
        check_group(&self.segment, call)
    }
}
