//! Collective operations among the ranks of one machine, over shared memory.
//!
//! Every operation is a sequence of pieces. Each rank publishes its piece: it writes to memory of its own and then raises its
//! flag. Every rank then reads the pieces of all others. Short vectors travel in the two cache lines of the flag itself. The order
//! of steps is such that a rank that has published a piece has read the one two before it, so memory is free for reuse without
//! another word (`segment::SLOTS`). A rank that needs nothing more of the others, such as the root of a short broadcast, returns; its
//! next operation waits for them before it publishes anything.
//!
//! All reductions are in the order of the reduction tree, so results have the same bits for every size.

mod agreement;
mod arm;
mod cores;
mod deadlock;
mod heartbeat;
#[cfg(all(test, shuttle))]
mod interleavings;
mod join;
mod limits;
mod member;
mod messages;
mod operations;
mod process;
mod remote;
mod segment;
mod shrink;
mod single_copy;
mod split;
mod sync;
mod thread_state;
mod wait;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use zerocopy::IntoBytes;

pub use join::Settings;
pub use limits::Limits;

use crate::call::Call;
use crate::caller::Caller;
use crate::meeting_file::MeetingFile;
use crate::message::VOTING_RANKS_MAX;
use crate::recorder::Recorder;
use crate::silence::check_silence;
use crate::{
    CollectiveError, Communicator, Element, FailureCause, FlightRecord, JoinError, ReduceOp, Statistics,
};
use agreement::Agreement;
use heartbeat::Heartbeat;
use join::Meeting;
use member::Member;
use operations::{
    AllGather, AllReduce, AllToAll, Broadcast, Gather, Pieces, Reduce, ReduceScatter, Scatter, TwoShot,
};
use process::RankProcess;
use segment::{LINE_BYTES, Piece, PieceCounts, RANKS_MAX, Segment};
use sync::Ordering;
use wait::{Awaited, RunningOperation, Waiting, check_group, fail, raise};

const _: () = assert!(RANKS_MAX <= VOTING_RANKS_MAX, "a bit of a notice for each rank");

/// Least bytes of an all-to-all's vector or of a message that ranks read directly from one another, where each rank has a core.
const SINGLE_COPY_BYTES: usize = 128 << 10;
/// The same where ranks share cores: a read in the kernel keeps a core from the rank that is awaited.
const SINGLE_COPY_BYTES_SHARED: usize = 512 << 10;

/// The ranks of one machine, as one of them.
///
/// No call waits longer than [`Settings::deadline`] for a rank. After a failure, some ranks may return the result of an operation and
/// others the error: agreement ([`Uniform`](crate::Uniform)) exists only in groups whose ranks exchange messages.
pub struct ShmGroup {
    segment: Arc<Segment>,
    /// File through which the ranks met.
    path: PathBuf,
    rank: usize,
    ranks: usize,
    /// Operations so far; wraps around.
    operations: u32,
    /// Pieces published so far; wraps around.
    published: u32,
    /// The last operation, if this rank did not wait for all others in it.
    unsettled: Option<Unsettled>,
    /// Bare exchanges of measurements so far; wraps around.
    exchanges: u32,
    /// Messages to and from each rank.
    messages: Vec<PieceCounts>,
    /// Least bytes of a vector that ranks read directly from one another; `None` if they may not.
    single_copy_bytes: Option<usize>,
    waiting: Waiting,
    /// This rank's part in making a smaller group, once it was called for.
    shrinking: Option<Box<Agreement>>,
    _heartbeat: Heartbeat,
}

/// An operation that ended on this rank before all others were seen to have begun it.
#[derive(Clone, Copy)]
struct Unsettled {
    operation: u32,
    call: Call,
}

/// Step of an operation for which a rank waits.
#[derive(Clone, Copy)]
struct Step {
    /// Number of the operation.
    operation: u32,
    /// Number of pieces that a rank has published then.
    pieces: u32,
    is_first: bool,
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
        check_silence(settings.silence)?;
        // Groups that are split off meet next to it, also if the working directory changes.
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let Meeting { segment, processes, file } = join::join(path, rank, ranks, settings.deadline)?;
        let group = Self::of(Arc::new(segment), processes, absolute, rank, settings)?;
        // Last of all: whoever sees the file gone knows that this rank has joined.
        file.map_or(Ok(()), MeetingFile::remove)?;
        Ok(group)
    }

    /// Creates the group of ranks that have met in a segment.
    fn of(
        segment: Arc<Segment>,
        processes: Vec<RankProcess>,
        absolute: PathBuf,
        rank: usize,
        settings: Settings,
    ) -> Result<Self, JoinError> {
        let mut group = Self::start(segment, processes, absolute, rank, settings);
        if settings.single_copy {
            group.probe_single_copy()?;
            // Its operations are not the caller's.
            group.waiting.recorder = Recorder::new(rank, group.ranks);
        }
        Ok(group)
    }

    /// Creates the group of ranks that have met in a segment, and gives signs of life. Vectors are not read from other ranks.
    fn start(
        segment: Arc<Segment>,
        processes: Vec<RankProcess>,
        absolute: PathBuf,
        rank: usize,
        settings: Settings,
    ) -> Self {
        let heartbeat = Heartbeat::start(Arc::clone(&segment), rank, settings.silence);
        Self { path: absolute, ..Self::new(segment, processes, rank, settings, heartbeat) }
    }

    fn new(
        segment: Arc<Segment>,
        processes: Vec<RankProcess>,
        rank: usize,
        settings: Settings,
        heartbeat: Heartbeat,
    ) -> Self {
        let ranks = processes.len();
        let numbers = (0..ranks).map(|rank| segment.pulse(rank).process.load(Ordering::Relaxed));
        let cores = cores::count(numbers);
        let waiting = Waiting::new(&segment, rank, processes, cores, settings, heartbeat.clock_ms());
        Self {
            segment,
            path: PathBuf::new(),
            rank,
            ranks,
            operations: 0,
            published: 0,
            unsettled: None,
            exchanges: 0,
            messages: vec![PieceCounts::default(); ranks],
            single_copy_bytes: None,
            waiting,
            shrinking: None,
            _heartbeat: heartbeat,
        }
    }

    /// Whether the long vectors of an all-to-all, and long messages, are read directly from the memory of other ranks. The kernel must allow it
    /// (process_vm_readv(2)): ranks of one user, and with Yama, `kernel.yama.ptrace_scope = 0`. Otherwise they are copied through shared memory,
    /// as those of other operations are: there, two cores that copy at the same time are faster than one that copies once.
    pub fn has_single_copy(&self) -> bool {
        self.single_copy_bytes.is_some()
    }

    /// The last operations of this rank, and for whom it waited: after a failure, those that led to it.
    pub fn recent(&self) -> FlightRecord {
        self.waiting.recorder.record()
    }

    /// Number of operations, and this rank's waits for each other one.
    pub fn statistics(&self) -> Statistics {
        self.waiting.recorder.statistics()
    }

    /// Runs an operation, and records it.
    #[inline]
    fn record(
        &mut self,
        call: Call,
        run: impl FnOnce(&mut Self) -> Result<(), CollectiveError>,
    ) -> Result<(), CollectiveError> {
        let now_ms = self.waiting.now_ms();
        self.waiting.recorder.begin(call, now_ms);
        let result = run(self);
        let now_ms = self.waiting.now_ms();
        self.waiting.recorder.end(&result, now_ms);
        result
    }

    fn run_all_reduce<T: Element>(
        &mut self,
        call: Call,
        op: ReduceOp,
        input: Option<&[T]>,
        output: &mut [T],
    ) -> Result<(), CollectiveError> {
        if TwoShot::<T>::is_better(self.ranks, output.len()) {
            return self.run(call, &mut TwoShot { op, input, output });
        }
        self.run(call, &mut AllReduce { op, input, output })
    }

    /// Whether a vector is copied once, from rank to rank.
    fn is_long<T>(&self, vector: &[T]) -> bool {
        self.ranks > 1 && self.single_copy_bytes.is_some_and(|least| size_of_val(vector) >= least)
    }

    fn caller(&self) -> Caller {
        Caller { rank: self.rank, ranks: self.ranks }
    }

    /// Runs an operation: publishes a piece, then reads the one before it, until all are read.
    #[inline]
    fn run<P: Pieces>(&mut self, call: Call, pieces: &mut P) -> Result<(), CollectiveError> {
        self.settle()?;
        check_group(&self.segment, call)?;
        let operation = self.operations;
        self.operations = operation.wrapping_add(1);
        let line = self.segment.line(self.rank, operation);
        let count = pieces.count(self.ranks);
        let is_short = count == 1 && pieces.bytes(self.ranks) <= LINE_BYTES;
        if is_short {
            line.call.store(call.code(), Ordering::Relaxed);
        }
        let start = self.published;
        let place = |piece: u32| match is_short {
            true => Piece::Line { operation },
            false => Piece::Slot { number: start.wrapping_add(piece) },
        };
        for piece in 0..=count {
            if piece < count {
                pieces.fill(piece, &self.member(place(piece)));
                if piece == 0 && !is_short {
                    // Stored only after a piece in a slot: the call is in the flag's cache line, which ranks that look at the flag would
                    // have back by the time it is raised. A short vector is in that line, too.
                    line.call.store(call.code(), Ordering::Relaxed);
                }
                self.published = start.wrapping_add(piece + 1);
                raise(line, self.published);
            }
            // With a single piece there is nothing to overlap, and only those are waited for from whom this rank needs something.
            if piece > 0 {
                let is_needed = |from| count > 1 || pieces.needs(self.rank, from);
                let step = Step { operation, pieces: start.wrapping_add(piece), is_first: piece == 1 };
                self.wait_for(is_needed, step, start.wrapping_add(count), call)?;
                pieces.drain(piece - 1, &self.member(place(piece - 1)));
            }
        }
        if count == 1 && !P::NEEDS_ALL {
            self.unsettled = Some(Unsettled { operation, call });
        }
        Ok(())
    }

    /// Waits for the ranks for which the last operation did not wait, before memory that they may still read is used again.
    #[inline]
    fn settle(&mut self) -> Result<(), CollectiveError> {
        match self.unsettled.take() {
            None => Ok(()),
            Some(Unsettled { operation, call }) => {
                let step = Step { operation, pieces: self.published, is_first: true };
                self.wait_for(|_| true, step, self.published, call)
            }
        }
    }

    #[inline]
    fn member(&self, place: Piece) -> Member<'_> {
        Member { segment: &self.segment, rank: self.rank, ranks: self.ranks, place }
    }

    /// Waits until the other ranks that are needed have come to a step, and compares their calls at the first. `last`: number of pieces
    /// with which the operation ends.
    #[inline]
    fn wait_for(
        &self,
        is_needed: impl Fn(usize) -> bool,
        step: Step,
        last: u32,
        call: Call,
    ) -> Result<(), CollectiveError> {
        let (segment, Step { operation, pieces, is_first }) = (&*self.segment, step);
        let running = RunningOperation { number: operation, pieces: last, is_needed: &is_needed };
        for rank in (0..self.ranks).filter(|rank| *rank != self.rank && is_needed(*rank)) {
            let line = segment.line(rank, operation);
            self.waiting.wait(&Awaited { segment, rank, line, pieces, call, operation: Some(&running) })?;
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

impl Communicator for ShmGroup {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn barrier(&mut self) -> Result<(), CollectiveError> {
        let call = self.caller().barrier();
        self.record(call, |group| group.run(call, &mut operations::Barrier))
    }

    fn broadcast<T: Element>(&mut self, root: usize, vector: &mut [T]) -> Result<(), CollectiveError> {
        let call = self.caller().broadcast(root, vector);
        self.record(call, |group| group.run(call, &mut Broadcast { root, vector }))
    }

    fn all_reduce<T: Element>(&mut self, op: ReduceOp, vector: &mut [T]) -> Result<(), CollectiveError> {
        let call = self.caller().all_reduce(op, vector);
        self.record(call, |group| group.run_all_reduce(call, op, None, vector))
    }

    fn all_reduce_into<T: Element>(
        &mut self,
        op: ReduceOp,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), CollectiveError> {
        let call = self.caller().all_reduce_into(op, input, output)?;
        self.record(call, |group| group.run_all_reduce(call, op, Some(input), output))
    }

    fn reduce<T: Element>(
        &mut self,
        op: ReduceOp,
        root: usize,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), CollectiveError> {
        let call = self.caller().reduce(op, root, input, output)?;
        self.record(call, |group| group.run(call, &mut Reduce { op, root, input, output }))
    }

    fn scatter<T: Element>(
        &mut self,
        root: usize,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), CollectiveError> {
        let call = self.caller().scatter(root, input, output)?;
        self.record(call, |group| group.run(call, &mut Scatter { root, input, output }))
    }

    fn gather<T: Element>(
        &mut self,
        root: usize,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), CollectiveError> {
        let call = self.caller().gather(root, input, output)?;
        self.record(call, |group| group.run(call, &mut Gather { root, input, output }))
    }

    fn all_gather<T: Element>(&mut self, input: &[T], output: &mut [T]) -> Result<(), CollectiveError> {
        let call = self.caller().all_gather(input, output)?;
        self.record(call, |group| group.run(call, &mut AllGather { input, output }))
    }

    fn reduce_scatter<T: Element>(
        &mut self,
        op: ReduceOp,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), CollectiveError> {
        let call = self.caller().reduce_scatter(op, input, output)?;
        self.record(call, |group| group.run(call, &mut ReduceScatter { op, input, output }))
    }

    fn all_to_all<T: Element>(&mut self, input: &[T], output: &mut [T]) -> Result<(), CollectiveError> {
        let call = self.caller().all_to_all(input, output)?;
        self.record(call, |group| match group.is_long(input) {
            true => group.all_to_all_single_copy(call, input, output),
            false => group.run(call, &mut AllToAll { input, output }),
        })
    }

    fn all_gather_v<T: Element>(
        &mut self,
        input: &[T],
        counts: &[usize],
        output: &mut [T],
    ) -> Result<(), CollectiveError> {
        let call = self.caller().all_gather_v(input, counts, output)?;
        self.record(call, |group| group.gather_blocks(call, input, counts, output))
    }

    fn reduce_scatter_v<T: Element>(
        &mut self,
        op: ReduceOp,
        input: &[T],
        counts: &[usize],
        output: &mut [T],
    ) -> Result<(), CollectiveError> {
        let call = self.caller().reduce_scatter_v(op, input, counts, output)?;
        self.record(call, |group| group.reduce_blocks(call, op, input, counts, output))
    }

    fn scatter_v<T: Element>(
        &mut self,
        root: usize,
        input: &[T],
        counts: &[usize],
        output: &mut [T],
    ) -> Result<(), CollectiveError> {
        let call = self.caller().scatter_v(root, input, counts, output)?;
        self.record(call, |group| group.scatter_blocks(call, root, input, counts, output))
    }

    fn gather_v<T: Element>(
        &mut self,
        root: usize,
        input: &[T],
        counts: &[usize],
        output: &mut [T],
    ) -> Result<(), CollectiveError> {
        let call = self.caller().gather_v(root, input, counts, output)?;
        self.record(call, |group| group.gather_blocks_at(call, root, input, counts, output))
    }

    fn all_to_all_v<T: Element>(
        &mut self,
        input: &[T],
        send: &[usize],
        output: &mut [T],
        receive: &[usize],
    ) -> Result<(), CollectiveError> {
        let call = self.caller().all_to_all_v(input, send, output, receive)?;
        self.record(call, |group| group.exchange_blocks(call, input, send, output, receive))
    }

    fn send<T: Element>(&mut self, to: usize, vector: &[T]) -> Result<(), CollectiveError> {
        let call = self.caller().send(to, vector);
        self.record(call, |group| group.send_bytes(call, to, vector.as_bytes()))
    }

    fn recv<T: Element>(&mut self, from: usize, vector: &mut [T]) -> Result<(), CollectiveError> {
        let call = self.caller().recv(from, vector);
        self.record(call, |group| group.receive_bytes(call, from, vector.as_mut_bytes()))
    }
}
