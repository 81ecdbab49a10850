//! Groups of ranks in virtual time: every operation, over links with delays, and with every fault that a link or a rank can have.

pub(crate) mod calls;
mod net;
mod rank;
mod shrink;
mod uniform;

use std::time::Duration;

use orinoco_core::{Nanos, Rng};
use orinoco_sim::{Simulator, Task, check_seeds};

use crate::tuning::{Choices, Figures, Rules, reduced_kind};
use crate::{
    Algorithm, Collective, CollectiveError, DataType, FailureCause, Order, ReduceOp, Topology, schedule,
};
use calls::Planned;
use net::{Net, StreamFault};
use rank::Rank;

const SILENCE: Duration = Duration::from_millis(500);
const DEADLINE: Duration = Duration::from_secs(2);
/// Time by which every rank has returned from its last call, after any fault.
const END: Duration = Duration::from_secs(10);

/// Fault of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The rank's process ends, and its links are closed.
    Killed(usize),
    /// The rank's process is stopped, and goes on after a while.
    Stopped(usize),
    /// Nothing comes from the rank or to it, and nobody is told.
    Unplugged(usize),
    /// The rank makes a call only after the deadline.
    Late(usize),
    /// The rank makes another call than the others.
    OtherCall(usize),
    /// In their last call, so many ranks from the first one on receive from the next, and the last of them from the first one, while the
    /// others make a call of all ranks. A single rank receives from one of the others.
    Circle {
        first: usize,
        members: usize,
    },
    /// A stream of messages or of notices from the first rank to the second damages its bytes.
    Damaged {
        from: usize,
        to: usize,
        notices: bool,
    },
}

fn random_fault(rng: &mut Rng, ranks: usize) -> Fault {
    let rank = rng.usize(..ranks);
    match rng.u32(..8) {
        0 => Fault::Killed(rank),
        1 => Fault::Stopped(rank),
        2 => Fault::Unplugged(rank),
        3 => Fault::Late(rank),
        4 => Fault::OtherCall(rank),
        5 => Fault::Damaged { from: rank, to: (rank + 1) % ranks, notices: false },
        6 => Fault::Damaged { from: rank, to: (rank + 1) % ranks, notices: true },
        _ => Fault::None,
    }
}

pub(crate) fn random_call(rng: &mut Rng, ranks: usize) -> Planned {
    let count = match rng.u32(..4) {
        0 => rng.usize(..3),
        1 => rng.usize(..64),
        _ => rng.usize(..3000),
    };
    let (root, counts) = (rng.usize(..ranks), vec![count / ranks; ranks]);
    let collective = match rng.u32(..11) {
        0 => Collective::Barrier,
        8 | 9 if ranks > 1 => {
            Collective::Send { from: root, to: (root + rng.usize(1..ranks)) % ranks, count }
        }
        1 => Collective::Broadcast { root, count },
        2 => Collective::Reduce { root, count },
        3 => Collective::AllGather { counts },
        4 => Collective::ReduceScatter { counts },
        5 => Collective::Scatter { root, counts },
        6 => Collective::Gather { root, counts },
        7 => Collective::all_to_all(ranks, count / ranks),
        _ => Collective::AllReduce { count },
    };
    let data_type = DataType::ALL[rng.usize(..DataType::ALL.len())];
    let op = ReduceOp::ALL[rng.usize(..ReduceOp::ALL.len())];
    let algorithms = algorithms(&collective, data_type, op, ranks);
    Planned {
        algorithm: algorithms[rng.usize(..algorithms.len())],
        weights: vec![1; ranks],
        collective,
        data_type,
        op,
        in_place: rng.bool(),
        piece: 1 + rng.usize(..1000),
        seed: rng.u64(..),
    }
}

/// Algorithms that carry out an operation. Those that reduce in another order than the reduction tree get numbers whose sums do not
/// depend on it; there are none for products.
fn algorithms(collective: &Collective, data_type: DataType, op: ReduceOp, ranks: usize) -> Vec<Algorithm> {
    let is_float = matches!(data_type, DataType::F32 | DataType::F64 | DataType::F16 | DataType::Bf16);
    let any_order = !collective.reduces() || !is_float || op != ReduceOp::Product;
    let has = |algorithm: &Algorithm| {
        (any_order || algorithm.is_reproducible())
            && schedule(collective, *algorithm, &Topology::flat(ranks), 0).is_ok()
    };
    Algorithm::ALL.into_iter().filter(has).collect()
}

/// Every operation of so many ranks with every algorithm, type and reduction, on vectors with these numbers of elements (blocks of as
/// many for operations with blocks).
fn all_calls(ranks: usize, counts: &[usize]) -> Vec<Planned> {
    let root = ranks / 2;
    let mut calls = Vec::new();
    for (number, count) in counts.iter().enumerate() {
        let (count, blocks) = (*count, vec![*count; ranks]);
        let collectives = [
            Collective::Barrier,
            Collective::Broadcast { root, count },
            Collective::Reduce { root, count },
            Collective::AllReduce { count },
            Collective::AllGather { counts: blocks.clone() },
            Collective::ReduceScatter { counts: blocks.clone() },
            Collective::Scatter { root, counts: blocks.clone() },
            Collective::Gather { root, counts: blocks },
            Collective::all_to_all(ranks, count),
        ];
        let send = Collective::Send { from: root, to: 0, count };
        let collectives = collectives.into_iter().chain((root != 0).then_some(send));
        let collectives: Vec<Collective> = collectives.collect();
        for (collective, data_type) in
            collectives.iter().flat_map(|of| DataType::ALL.map(|data_type| (of, data_type)))
        {
            let ops = if collective.reduces() { &ReduceOp::ALL[..] } else { &ReduceOp::ALL[..1] };
            for op in ops {
                for algorithm in algorithms(collective, data_type, *op, ranks) {
                    let (collective, in_place, seed) =
                        (collective.clone(), calls.len() % 2 == 0, calls.len() as u64);
                    let piece = if number % 2 == 0 { 1000 } else { 7 };
                    let (op, weights) = (*op, vec![1; ranks]);
                    calls.push(Planned {
                        collective,
                        data_type,
                        op,
                        algorithm,
                        weights,
                        in_place,
                        piece,
                        seed,
                    });
                }
            }
        }
    }
    calls
}

/// Runs the ranks until the end, with a fault. Returns them, and the time of the fault.
fn run(simulator: &mut Simulator, ranks: usize, calls: &[Planned], fault: Fault) -> (Vec<Rank>, Nanos) {
    let net = Net::new(ranks, simulator.rng().u64(..));
    let keeps_whole = simulator.rng().bool() && !matches!(fault, Fault::Damaged { .. });
    net.borrow_mut().keeps_whole = keeps_whole;
    net.borrow_mut().tells_at_once = simulator.rng().u32(..4) == 0;
    let calls_of = |rank: usize, rng: &mut Rng| {
        let mut calls = calls.to_vec();
        if let Fault::Circle { first, members } = fault {
            let at = (rank + ranks - first) % ranks;
            let next = if at + 1 == members.max(2) { first } else { (rank + 1) % ranks };
            let last = calls.last_mut().expect("a call");
            if at < members {
                last.collective = Collective::Send { from: next, to: rank, count: 3 };
                last.algorithm = Algorithm::Direct;
            }
        }
        if fault == Fault::OtherCall(rank) {
            let place = rng.usize(..calls.len());
            calls[place] = other_call(&calls[place], ranks);
        }
        calls
    };
    let mut all: Vec<Rank> = (0..ranks)
        .map(|rank| {
            let calls = calls_of(rank, simulator.rng());
            Rank::new(rank, ranks, &net, calls, SILENCE, DEADLINE)
        })
        .collect();
    let tasks: Vec<Task> = (0..ranks).map(|_| simulator.add_task()).collect();
    let mut fault_at = Some(Nanos(0) + Duration::from_micros(simulator.rng().u64(..4000)));
    if let Fault::Damaged { from, to, notices } = fault {
        let faults = StreamFault::ALL;
        let (after, which) = (simulator.rng().u32(..12), simulator.rng().usize(..faults.len()));
        let mut net = net.borrow_mut();
        let streams = if notices { &mut net.notices } else { &mut net.data };
        streams[from][to].fault = Some((after, faults[which]));
        fault_at = None;
    }
    let (mut ended, struck) = (None, fault_at.unwrap_or_default());
    let end = Nanos(0) + END;
    while let Some(task) = simulator.next(end) {
        let (rank, now) = (task.index(), simulator.now());
        net.borrow_mut().now = now;
        if fault_at.is_some_and(|at| at <= now) {
            fault_at = None;
            strike(fault, &mut all, &net, now, &mut ended);
        }
        if let Some((_, until)) = ended.filter(|(dead, until): &(usize, Option<Nanos>)| {
            *dead == rank && until.is_none_or(|until| now < until)
        }) {
            simulator.wait(task, Some(until.unwrap_or(end + Duration::from_secs(1))));
            continue;
        }
        let (begun, done, had_error) = (all[rank].begun, all[rank].done, all[rank].error.is_some());
        let due = all[rank].step(now);
        let of_all = matches!(fault, Fault::OtherCall(_) | Fault::Circle { .. })
            || all.iter().all(|other| other.begun >= all[rank].done);
        let barriers =
            calls[done..all[rank].done].iter().filter(|call| call.collective == Collective::Barrier);
        assert!(barriers.count() == 0 || of_all, "rank {rank} returned from a barrier too early");
        if (begun, done) != (all[rank].begun, all[rank].done) || had_error != all[rank].error.is_some() {
            let Rank { begun, done, error, .. } = &all[rank];
            simulator.note(|| format!("rank {rank}: {begun} begun, {done} done, {error:?}"));
        }
        let mut net = net.borrow_mut();
        let due = net.due(rank).map_or(due, |arrival| due.min(arrival));
        let due = fault_at.map_or(due, |at| due.min(at));
        let touched = std::mem::take(&mut net.touched);
        simulator.wait(task, Some(due));
        for peer in touched {
            simulator.notify(tasks[peer]);
        }
    }
    check_damage(fault, &all, &net.borrow());
    (all, struck)
}

/// Checks that a rank has noticed that bytes of a message were changed. Lost and repeated bytes may be those after the last message.
fn check_damage(fault: Fault, all: &[Rank], net: &Net) {
    let Fault::Damaged { from, to, notices: false } = fault else { return };
    if let Some(StreamFault::FlippedBit | StreamFault::ReorderedBytes) = net.data[from][to].faulted {
        assert!(all[to].error.is_some(), "rank {to} has not noticed the damage");
    }
}

/// A call of the same ranks that is not `planned`.
fn other_call(planned: &Planned, ranks: usize) -> Planned {
    let collective = match planned.collective {
        Collective::Barrier => Collective::AllReduce { count: 5 },
        Collective::AllReduce { count } if count > 0 => Collective::AllReduce { count: count + 1 },
        _ => Collective::Barrier,
    };
    let algorithm = algorithms(&collective, planned.data_type, planned.op, ranks)[0];
    Planned { collective, algorithm, ..planned.clone() }
}

/// Lets a fault take place.
fn strike(
    fault: Fault,
    all: &mut [Rank],
    net: &std::cell::RefCell<Net>,
    now: Nanos,
    ended: &mut Option<(usize, Option<Nanos>)>,
) {
    match fault {
        Fault::Killed(rank) => {
            *ended = Some((rank, None));
            net.borrow_mut().streams_of(rank).for_each(|stream| stream.close(now));
        }
        Fault::Stopped(rank) => *ended = Some((rank, Some(now + 2 * SILENCE))),
        Fault::Unplugged(rank) => net.borrow_mut().streams_of(rank).for_each(|stream| stream.is_cut = true),
        Fault::Late(rank) => all[rank].late_until = now + 2 * DEADLINE,
        Fault::None | Fault::OtherCall(_) | Fault::Circle { .. } | Fault::Damaged { .. } => {}
    }
}

#[test]
fn every_operation_is_exact_to_the_bit() {
    for ranks in 1..=16 {
        let calls = all_calls(ranks, &[0, 1, 2 * ranks + 3]);
        check_seeds(1, |simulator| {
            let (all, _) = run(simulator, ranks, &calls, Fault::None);
            assert!(all.iter().all(|rank| rank.done == calls.len()), "{ranks} ranks");
        });
    }
}

/// Whatever was measured, the choices made by it lead to the same bits.
#[test]
fn choices_by_any_figures_are_exact_to_the_bit() {
    check_seeds(20, |simulator| {
        let rng = simulator.rng();
        let ranks = rng.usize(1..6);
        let words: Vec<u64> = (0..Figures::words_of(ranks)).map(|_| rng.u64(..) >> rng.u32(..64)).collect();
        let rules =
            Rules { order: Order::Reproducible, piece_bytes: 1 << rng.u32(6..14), has_machines: true };
        let choices = Choices::priced(&Figures::from_words(ranks, &words), rules);
        // Clearly different weights are rare by chance.
        let weights = if rng.bool() { choices.weights().to_vec() } else { (1..=ranks as u32).collect() };
        let call = |rng: &mut Rng| {
            let planned = random_call(rng, ranks);
            let lens = (0..ranks)
                .map(|rank| planned.collective.input_len(rank).max(planned.collective.output_len(rank)));
            let (kernel, longest) = (planned.kernel(), lens.max().unwrap_or(0));
            let kind = reduced_kind(kernel.element, kernel.accumulator);
            let chosen = choices.algorithm(&planned.collective, kind, longest * kernel.element);
            Planned { algorithm: chosen.unwrap_or(Algorithm::Direct), weights: weights.clone(), ..planned }
        };
        let calls: Vec<Planned> = (0..12).map(|_| call(rng)).collect();
        let (all, _) = run(simulator, ranks, &calls, Fault::None);
        assert!(all.iter().all(|rank| rank.done == calls.len()), "{ranks} ranks, {calls:?}");
    });
}

#[test]
fn every_rank_returns_the_result_or_names_the_rank_that_failed() {
    check_seeds(3000, |simulator| {
        let rng = simulator.rng();
        let ranks = rng.usize(1..7);
        let calls: Vec<Planned> = (0..rng.usize(1..8)).map(|_| random_call(rng, ranks)).collect();
        let fault = random_fault(rng, ranks);
        simulator.note(|| format!("{ranks} ranks, {fault:?}, {calls:?}"));
        let (all, struck) = run(simulator, ranks, &calls, fault);
        for (rank, ended) in all.iter().enumerate() {
            if fault != Fault::Killed(rank) {
                assert!(ended.is_over(), "rank {rank} waits without end");
                check_end(rank, ended, fault, struck);
            }
        }
    });
}

/// Ranks wait for messages that are under way, in different calls, all the time.
#[test]
fn ranks_in_right_calls_are_in_no_circle() {
    check_seeds(1000, |simulator| {
        let rng = simulator.rng();
        let ranks = rng.usize(2..5);
        let is_send = |planned: &Planned| matches!(planned.collective, Collective::Send { .. });
        let call = |rng: &mut Rng| {
            let may_be_any = rng.u32(..4) == 0;
            let calls = std::iter::repeat_with(|| random_call(rng, ranks));
            calls.into_iter().find(|planned| may_be_any || is_send(planned)).expect("a call")
        };
        let calls: Vec<Planned> = (0..30).map(|_| call(rng)).collect();
        let (all, _) = run(simulator, ranks, &calls, Fault::None);
        assert!(all.iter().all(|rank| rank.done == calls.len()), "{ranks} ranks, {calls:?}");
    });
}

/// No message and no deadline tells ranks that they wait for one another without end.
#[test]
fn ranks_that_wait_for_one_another_in_a_circle_report_a_mismatch() {
    check_seeds(2000, |simulator| {
        let rng = simulator.rng();
        let ranks = rng.usize(2..9);
        let fault = Fault::Circle { first: rng.usize(..ranks), members: rng.usize(1..=ranks) };
        let mut calls: Vec<Planned> = (0..rng.usize(..5)).map(|_| random_call(rng, ranks)).collect();
        calls.extend(std::iter::repeat_with(|| random_call(rng, ranks)).find(needs_all));
        simulator.note(|| format!("{ranks} ranks, {fault:?}, {calls:?}"));
        let (all, _) = run(simulator, ranks, &calls, fault);
        for (rank, ended) in all.iter().enumerate() {
            let Some((at, _)) = &ended.error else { panic!("rank {rank} waits without end") };
            check_end(rank, ended, fault, Nanos(0));
            assert!(*at < Nanos(0) + SILENCE, "rank {rank} learns it at {at:?}");
        }
        let names_both = |rank: &&Rank| matches!(rank.error, Some((_, CollectiveError::Mismatch { .. })));
        assert!(all.iter().filter(names_both).count() >= 1, "no rank names two calls");
    });
}

/// Whether no rank can end a call before all have made it.
fn needs_all(planned: &Planned) -> bool {
    match &planned.collective {
        Collective::Barrier => true,
        Collective::AllReduce { count } => *count > 0,
        Collective::AllGather { counts } | Collective::ReduceScatter { counts } => counts[0] > 0,
        _ => false,
    }
}

/// Checks what a rank said at its end.
fn check_end(rank: usize, ended: &Rank, fault: Fault, struck: Nanos) {
    let Some((at, error)) = &ended.error else { return };
    let (named, cause) = match error {
        CollectiveError::EpochFailed { rank, cause, .. } => (*rank, *cause),
        CollectiveError::Mismatch { rank, .. } => (*rank, FailureCause::Mismatch),
        CollectiveError::Isolated { .. } | CollectiveError::Length { .. } => panic!("rank {rank}: {error}"),
    };
    let is_right = match fault {
        Fault::None => false,
        Fault::Killed(killed) => (named, cause) == (killed, FailureCause::Ended),
        Fault::Stopped(guilty) | Fault::Unplugged(guilty) => {
            // The rank itself sees all others fall silent, or hears that it was.
            (named == guilty || rank == guilty) && matches!(cause, FailureCause::Silent(_))
        }
        Fault::Late(late) => named == late && matches!(cause, FailureCause::Late(_)),
        Fault::OtherCall(_) => {
            matches!(cause, FailureCause::Mismatch | FailureCause::Unexpected | FailureCause::Late(_))
        }
        Fault::Circle { .. } => cause == FailureCause::Mismatch,
        Fault::Damaged { from, .. } => match cause {
            FailureCause::Damaged | FailureCause::Unexpected => named == from,
            // The rest of the last message was lost.
            FailureCause::Late(_) => true,
            _ => false,
        },
    };
    assert!(is_right, "rank {rank} says: {error}");
    let bound = match fault {
        Fault::Killed(_) => Duration::from_millis(5),
        Fault::Stopped(guilty) | Fault::Unplugged(guilty) if guilty != rank => SILENCE,
        _ => return,
    };
    assert!(*at <= struck + bound, "rank {rank} says at {at:?}, {bound:?} after {struck:?}: {error}");
}
