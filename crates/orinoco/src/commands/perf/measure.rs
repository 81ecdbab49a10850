//! Measures one rank's part.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::error::Error;
use std::time::{Duration, Instant};

use orinoco_api::{PerfCandidate, PerfExplanation, PerfRow};
use orinoco_collective::{
    Collective, CollectiveError, Communicator, DataType, Explanation, Limits, MessageGroup, ReduceOp,
    ShmGroup, Transport,
};

use super::energy::{Board, Call};
use super::operation::{Number, Operation, Reduction, Vectors};
use crate::args::PerfArgs;
use crate::commands::board::sysroot_at;
use crate::output;

/// Longest time of the timed calls of a size.
const SIZE_TIME_MAX: Duration = Duration::from_secs(2);
/// Least timed calls of a size.
const ITERATIONS_MIN: u32 = 20;
/// Calls before the timed ones: a fifth of them, within these bounds.
const WARM_UP: (u32, u32) = (5, 2_000);

/// A group that may explain how it chooses algorithms.
pub(super) trait Explains {
    fn explanation(&self, collective: &Collective, data_type: DataType) -> Option<Explanation>;
}

impl<T: Transport> Explains for MessageGroup<T> {
    fn explanation(&self, collective: &Collective, data_type: DataType) -> Option<Explanation> {
        self.explain(collective, data_type)
    }
}

impl Explains for ShmGroup {
    /// It has one algorithm for each operation.
    fn explanation(&self, _: &Collective, _: DataType) -> Option<Explanation> {
        None
    }
}

/// Measures all sizes. Returns a row for each, the same on every rank.
pub(super) fn measure<T: Number>(
    group: &mut (impl Communicator + Explains),
    limits: Option<&Limits>,
    operation: Operation,
    reduction: Reduction,
    args: &PerfArgs,
) -> Result<Vec<PerfRow>, Box<dyn Error>> {
    let sizes = sizes(args);
    let bar = if group.rank() == 0 {
        output::bar(sizes.len() as u64, "sizes")
    } else {
        indicatif::ProgressBar::hidden()
    };
    let mut board = match args.energy {
        Some(seconds) => {
            let sysroot = sysroot_at(args.sysroot.as_deref())?;
            Some(Board::find(sysroot, reads_board(group.rank(), args), Duration::from_secs_f64(seconds)))
        }
        None => None,
    };
    let mut rows = Vec::with_capacity(sizes.len());
    for bytes in sizes {
        let elements = operation.elements::<T>(bytes, group.ranks());
        rows.push(measure_size::<T>(group, operation, reduction, elements, limits, board.as_mut(), args)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(rows)
}

/// Whether a rank reads the sensors of its board. Ranks that this program started are on one board, others each on their own.
fn reads_board(rank: usize, args: &PerfArgs) -> bool {
    rank == 0 || args.rank.is_some()
}

fn sizes(args: &PerfArgs) -> Vec<usize> {
    let next = |bytes: &usize| bytes.checked_mul(args.factor as usize);
    std::iter::successors(Some(args.begin.max(1)), next).take_while(|bytes| *bytes <= args.end).collect()
}

fn measure_size<T: Number>(
    group: &mut (impl Communicator + Explains),
    operation: Operation,
    reduction: Reduction,
    elements: usize,
    limits: Option<&Limits>,
    board: Option<&mut Board>,
    args: &PerfArgs,
) -> Result<PerfRow, Box<dyn Error>> {
    let (rank, ranks) = (group.rank(), group.ranks());
    let mut vectors: Vectors<T> = operation.vectors(elements, reduction.order, group)?;
    let iterations = iterations(group, operation, reduction, &mut vectors, args.iterations)?;
    let mut times = Vec::with_capacity(iterations as usize);
    let warm_up = (iterations / 5).clamp(WARM_UP.0, WARM_UP.1);
    for call in 0..warm_up + iterations {
        let time = timed(group, operation, reduction, &mut vectors)?;
        if call >= warm_up {
            times.push(time);
        }
    }
    let wrong = args.check.then(|| operation.wrong(&vectors.output, reduction, rank, ranks));
    let wrong = wrong.map(|wrong| total(group, wrong)).transpose()?;
    // The slowest rank counts.
    group.all_reduce(ReduceOp::Max, &mut times)?;
    times.sort_unstable_by(f64::total_cmp);
    let p50 = times[times.len() / 2];
    let bytes = elements * size_of::<T>();
    let least = limits.map_or(0.0, |limits| {
        limits.exchange.as_secs_f64().max(operation.bytes_read(bytes, ranks) / limits.bytes_per_second)
    });
    let algbw = bytes as f64 / p50;
    let energy = board.map(|board| {
        let call = Call { operation, reduction, vectors: &mut vectors, bytes, seconds: p50 };
        board.measure(group, call)
    });
    let explanation = group.explanation(&operation.collective(elements, ranks), T::DATA_TYPE);
    Ok(PerfRow {
        bytes: bytes as u64,
        count: operation.count(elements, ranks) as u64,
        iterations,
        p50_us: p50 * 1e6,
        p99_us: times[times.len() * 99 / 100] * 1e6,
        algbw,
        busbw: algbw * operation.bus_factor(ranks),
        limit_share: least / p50,
        wrong,
        energy: energy.transpose()?,
        explanation: explanation.map(|explanation| explanation_json(&explanation, p50)),
    })
}

/// An explanation, with the median seconds that the operation took.
fn explanation_json(explanation: &Explanation, p50: f64) -> PerfExplanation {
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let candidates = explanation.candidates.iter().map(|candidate| PerfCandidate {
        algorithm: candidate.algorithm.to_string(),
        predicted_us: micros(candidate.predicted_after_barrier),
    });
    PerfExplanation {
        algorithm: explanation.chosen.to_string(),
        predicted_us: (explanation.of_chosen()).map_or(0.0, |chosen| micros(chosen.predicted_after_barrier)),
        bound_us: micros(explanation.bound),
        bound_share: explanation.bound.as_secs_f64() / p50,
        candidates: candidates.collect(),
    }
}

/// Seconds of one call after a barrier.
fn timed<T: Number>(
    group: &mut impl Communicator,
    operation: Operation,
    reduction: Reduction,
    vectors: &mut Vectors<T>,
) -> Result<f64, CollectiveError> {
    group.barrier()?;
    let start = Instant::now();
    operation.call(group, reduction, vectors)?;
    Ok(start.elapsed().as_secs_f64())
}

/// Number of timed calls: those asked for, or as many as take [`SIZE_TIME_MAX`]. All ranks agree on it.
fn iterations<T: Number>(
    group: &mut impl Communicator,
    operation: Operation,
    reduction: Reduction,
    vectors: &mut Vectors<T>,
    wanted: u32,
) -> Result<u32, CollectiveError> {
    let mut slowest = [f64::INFINITY; 3];
    for time in &mut slowest {
        *time = timed(group, operation, reduction, vectors)?;
    }
    group.all_reduce(ReduceOp::Max, &mut slowest)?;
    let usual = slowest.into_iter().fold(f64::INFINITY, f64::min).max(1e-9);
    let most = (SIZE_TIME_MAX.as_secs_f64() / usual) as u32;
    Ok(wanted.min(most.max(ITERATIONS_MIN)))
}

fn total(group: &mut impl Communicator, wrong: u64) -> Result<u64, CollectiveError> {
    let mut total = [wrong];
    group.all_reduce(ReduceOp::Sum, &mut total)?;
    Ok(total[0])
}
