//! Uniform groups in virtual time: whatever fails and whenever, no two ranks return different outcomes of an operation, and only
//! ranks without a majority are isolated.

use std::cell::RefCell;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use orinoco_core::{Nanos, Rng};
use orinoco_sim::{Simulator, Task, check_seeds};

use super::calls::Planned;
use super::net::Net;
use super::rank::Rank;
use super::{DEADLINE, SILENCE, other_call, random_call};
use crate::{Collective, CollectiveError, Uniform};

const RANKS_MAX: usize = 7;
/// Time of the first fault, at most: all calls take about as long.
const FAULT_MICROS: u64 = 10_000;
/// Time until the second one, at most: ranks have agreed after it.
const SECOND_MICROS: u64 = 3000;
/// Time that a slow stream takes longer, at most: what two ranks say arrives in any order.
const SLOWER_MICROS: u64 = 3000;
/// Time by which every rank has returned from its last call, after any faults.
const END: Duration = Duration::from_secs(20);
/// Time in which a failure is noticed and agreed on after a fault that is no call: one silence until it is noticed, and one more for
/// another rank that fails meanwhile.
const AGREED: Duration = Duration::from_millis(1100);

/// Fault of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The rank's process ends, and its links are closed.
    Killed(usize),
    /// The rank's machine loses its power, and what is under way may be lost.
    PoweredOff(usize),
    /// The rank's process is stopped, and goes on after a while.
    Stopped(usize),
    /// Nothing travels between ranks with a bit in the mask and those without one.
    Split(usize),
    /// Both connections for messages between two ranks break.
    Unlinked(usize, usize),
    /// No notice of the first rank comes to the second any more.
    Unheard(usize, usize),
    /// The rank makes a call only after the deadline.
    Late(usize),
    /// The rank makes another call than the others.
    OtherCall(usize),
}

/// Time of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strike {
    At(Nanos),
    /// So much later than a rank first knows of a failure: while they agree.
    AfterFailure(Duration),
    /// It has taken place.
    Over,
}

fn random_fault(rng: &mut Rng, ranks: usize) -> Fault {
    let rank = rng.usize(..ranks);
    let other = (rank + rng.usize(1..ranks)) % ranks;
    match rng.u32(..11) {
        0..2 => Fault::Killed(rank),
        2..5 => Fault::PoweredOff(rank),
        5 => Fault::Stopped(rank),
        6 => Fault::Split(rng.usize(1..(1 << ranks) - 1)),
        7 => Fault::Unlinked(rank, other),
        8 => Fault::Unheard(rank, other),
        9 => Fault::Late(rank),
        _ => Fault::OtherCall(rank),
    }
}

/// One or two faults, of which the second comes soon after the first, or while the ranks agree.
fn random_faults(rng: &mut Rng, ranks: usize) -> Vec<(Fault, Strike)> {
    let at = Nanos(0) + Duration::from_micros(rng.u64(..FAULT_MICROS));
    let mut faults = vec![(random_fault(rng, ranks), Strike::At(at))];
    if rng.u32(..4) > 0 {
        let soon = Duration::from_micros(rng.u64(..SECOND_MICROS));
        let strike = if rng.u32(..4) == 0 { Strike::At(at + soon) } else { Strike::AfterFailure(soon) };
        // A call is another one from the beginning.
        let second = (0..).map(|_| random_fault(rng, ranks));
        let second = second.into_iter().find(|fault| !matches!(fault, Fault::OtherCall(_)));
        faults.push((second.expect("there are others"), strike));
    }
    faults
}

/// A run: its ranks, and what has happened to them.
struct Run {
    all: Vec<Rank>,
    net: std::rc::Rc<RefCell<Net>>,
    uniform: Uniform,
    faults: Vec<(Fault, Strike)>,
    /// Ranks whose process has ended, or which are stopped until a time.
    halted: Vec<Option<Nanos>>,
    /// Time of the last fault that has taken place.
    struck: Nanos,
}

impl Run {
    fn new(rng: &mut Rng, calls: &[Planned], ranks: usize, faults: Vec<(Fault, Strike)>) -> Self {
        let net = Net::new(ranks, rng.u64(..));
        if rng.bool() {
            let Net { data, notices, .. } = &mut *net.borrow_mut();
            let streams = data.iter_mut().chain(notices).flatten();
            streams.for_each(|stream| stream.delay = Duration::from_micros(rng.u64(..SLOWER_MICROS)));
        }
        let uniform = Uniform { witness: rng.bool().then(|| rng.usize(..ranks)) };
        let rank = |rank: usize| {
            let mut calls = calls.to_vec();
            if faults.iter().any(|(fault, _)| *fault == Fault::OtherCall(rank)) {
                let place = rng.usize(..calls.len());
                calls[place] = other_call(&calls[place], ranks);
            }
            let leaves_after = [None, Some(Duration::ZERO), Some(Duration::from_micros(rng.u64(..2000)))];
            let mut one = Rank::new(rank, ranks, &net, calls, SILENCE, DEADLINE);
            one.make_uniform(uniform, SILENCE, leaves_after[rng.usize(..3)]);
            one
        };
        let all = (0..ranks).map(rank).collect();
        Self { all, net, uniform, faults, halted: vec![None; ranks], struck: Nanos(0) }
    }

    /// Lets the faults take place whose time has come. Returns the time of the next one.
    fn strike(&mut self, now: Nanos) -> Option<Nanos> {
        let has_failure = self.all.iter().any(Rank::has_failure);
        let mut due: Option<Nanos> = None;
        for number in 0..self.faults.len() {
            let (fault, strike) = &mut self.faults[number];
            if let (Strike::AfterFailure(time), true) = (*strike, has_failure) {
                *strike = Strike::At(now + time);
            }
            match (*fault, *strike) {
                (fault, Strike::At(at)) if at <= now => {
                    *strike = Strike::Over;
                    self.apply(fault, now);
                }
                (_, Strike::At(at)) if at > now => due = Some(due.map_or(at, |due| due.min(at))),
                _ => {}
            }
        }
        due
    }

    fn apply(&mut self, fault: Fault, now: Nanos) {
        self.struck = now;
        let net = &mut *self.net.borrow_mut();
        let Net { data, notices, rng, touched, .. } = &mut *net;
        let mut cut_where = |is_cut: &dyn Fn(usize, usize) -> bool| {
            for (from, row) in data.iter_mut().enumerate().chain(notices.iter_mut().enumerate()) {
                let streams = row.iter_mut().enumerate().filter(|(to, _)| is_cut(from, *to));
                streams.for_each(|(_, stream)| stream.cut(now, rng));
            }
        };
        match fault {
            Fault::Killed(rank) => {
                self.halted[rank] = Some(Nanos(u64::MAX));
                touched.extend(0..self.all.len());
                net.streams_of(rank).for_each(|stream| stream.close(now));
            }
            Fault::PoweredOff(rank) => {
                self.halted[rank] = Some(Nanos(u64::MAX));
                cut_where(&|from, to| from == rank || to == rank);
            }
            Fault::Stopped(rank) => {
                let until = now + 2 * SILENCE;
                self.halted[rank] = self.halted[rank].max(Some(until));
            }
            Fault::Split(mask) => cut_where(&|from, to| mask >> from & 1 != mask >> to & 1),
            Fault::Unlinked(one, other) => {
                for (from, to) in [(one, other), (other, one)] {
                    data[from][to].close(now);
                    touched.push(to);
                }
            }
            Fault::Unheard(from, to) => notices[from][to].cut(now, rng),
            Fault::Late(rank) => self.all[rank].late_until = now + 2 * DEADLINE,
            Fault::OtherCall(_) => {}
        }
    }

    fn run_to_end(&mut self, simulator: &mut Simulator) {
        let tasks: Vec<Task> = self.all.iter().map(|_| simulator.add_task()).collect();
        let end = Nanos(0) + END;
        while let Some(task) = simulator.next(end) {
            let (rank, now) = (task.index(), simulator.now());
            self.net.borrow_mut().now = now;
            let fault_at = self.strike(now);
            if let Some(until) = self.halted[rank].filter(|until| now < *until) {
                let due = fault_at.map_or(until, |at| until.min(at));
                simulator.wait(task, Some(due.min(end + Duration::from_secs(1))));
                continue;
            }
            let before = (self.all[rank].done, self.all[rank].error.is_some());
            let due = self.all[rank].step(now);
            let Rank { done, error, .. } = &self.all[rank];
            if before != (*done, error.is_some()) {
                simulator.note(|| format!("rank {rank}: {done} done, {error:?}"));
            }
            let mut net = self.net.borrow_mut();
            let due = net.due(rank).map_or(due, |arrival| due.min(arrival));
            let touched = mem::take(&mut net.touched);
            // The failure that this step has found may bring the next fault.
            let fault_at =
                if self.all[rank].has_failure() { Some(now + Duration::from_micros(1)) } else { fault_at };
            let fault_at = fault_at.filter(|_| self.has_faults_left(now));
            simulator.wait(task, Some(fault_at.map_or(due, |at| due.min(at))));
            touched.into_iter().for_each(|peer| simulator.notify(tasks[peer]));
        }
    }

    fn has_faults_left(&self, now: Nanos) -> bool {
        self.faults.iter().any(|(_, strike)| match strike {
            Strike::At(at) => *at > now,
            Strike::AfterFailure(_) => true,
            Strike::Over => false,
        })
    }

    fn has(&self, is_so: impl Fn(Fault) -> bool) -> bool {
        self.faults.iter().any(|(fault, _)| is_so(*fault))
    }

    fn is_dead(&self, rank: usize) -> bool {
        self.has(|fault| fault == Fault::Killed(rank) || fault == Fault::PoweredOff(rank))
    }

    /// Whether other ranks may exclude a rank that is alive.
    fn is_in_doubt(&self, rank: usize) -> bool {
        self.has(|fault| match fault {
            Fault::Stopped(stopped) => stopped == rank,
            Fault::Unlinked(one, other) | Fault::Unheard(one, other) => one == rank || other == rank,
            _ => false,
        })
    }

    /// Number of the part of the network in which a rank is.
    fn part(&self, rank: usize) -> Vec<bool> {
        let sides = self.faults.iter().filter_map(|(fault, _)| match fault {
            Fault::Split(mask) => Some(mask >> rank & 1 == 1),
            _ => None,
        });
        sides.collect()
    }

    /// Whether the ranks in one part of the network that are certainly alive and heard are a majority.
    fn has_majority(&self, part: &[bool], counts: impl Fn(usize) -> bool) -> bool {
        let ranks = self.all.len();
        let alive: Vec<usize> = (0..ranks).filter(|rank| self.part(*rank) == part && counts(*rank)).collect();
        let is_half = 2 * alive.len() == ranks;
        let has_witness = self.uniform.witness.is_some_and(|witness| alive.contains(&witness));
        2 * alive.len() > ranks || is_half && has_witness
    }
}

/// Number of times that something happened in all runs: a test in which it never does shows nothing.
#[derive(Default)]
struct Counts {
    /// A rank returned a result although it knew of a failure.
    done: AtomicU64,
    failed: AtomicU64,
    isolated: AtomicU64,
}

fn check(run: &Run, counts: &Counts) {
    let most = run.all.iter().map(|rank| rank.done).max().expect("some ranks");
    for (rank, ended) in run.all.iter().enumerate() {
        let Some((at, error)) = &ended.error else {
            assert!(ended.is_over() || run.is_dead(rank), "rank {rank} waits without end");
            let knows = ended.is_over() && ended.has_failure();
            counts.done.fetch_add(u64::from(knows), Ordering::Relaxed);
            continue;
        };
        check_time(run, rank, *at);
        let part = run.part(rank);
        if matches!(error, CollectiveError::Isolated { .. }) {
            counts.isolated.fetch_add(1, Ordering::Relaxed);
            let is_certain = |rank: usize| !run.is_dead(rank) && !run.is_in_doubt(rank);
            assert!(
                !is_certain(rank) || !run.has_majority(&part, is_certain),
                "rank {rank} is isolated in the majority"
            );
        } else {
            counts.failed.fetch_add(1, Ordering::Relaxed);
            assert!(ended.done == most, "rank {rank} says {error}, and another rank has the result");
            // Before one fault alone, nobody has decided anything, unless all was done.
            let only = run.faults.len() == 1
                && run
                    .has(|fault| matches!(fault, Fault::Killed(_) | Fault::PoweredOff(_) | Fault::Split(_)));
            let is_over = run.all.iter().any(|rank| rank.error.is_none() && rank.is_over());
            assert!(
                !only || is_over || run.has_majority(&part, |rank| !run.is_dead(rank)),
                "rank {rank} is in no majority, and says {error}"
            );
        }
    }
}

/// Checks the time of a rank's error.
fn check_time(run: &Run, rank: usize, at: Nanos) {
    let mut bound = run.struck + AGREED;
    if run.has(|fault| matches!(fault, Fault::Late(_) | Fault::OtherCall(_))) {
        bound = bound + DEADLINE;
    }
    if run.has(|fault| fault == Fault::Late(rank)) {
        bound = bound + DEADLINE;
    }
    if run.has(|fault| matches!(fault, Fault::Stopped(_))) {
        bound = bound + 2 * SILENCE;
    }
    assert!(at <= bound, "rank {rank} says at {at:?} what it should have said by {bound:?}");
}

#[test]
fn all_ranks_of_the_majority_return_the_same() {
    let counts = Counts::default();
    let seeds = check_seeds(3000, |simulator| {
        let rng = simulator.rng();
        let ranks = rng.usize(2..RANKS_MAX + 1);
        let all_call = |rng: &mut Rng| {
            let planned = (0..).map(|_| random_call(rng, ranks));
            let planned =
                planned.into_iter().find(|call| !matches!(call.collective, Collective::Send { .. }));
            planned.expect("most are of all ranks")
        };
        let calls: Vec<Planned> = (0..rng.usize(1..8)).map(|_| all_call(rng)).collect();
        let faults = random_faults(rng, ranks);
        let mut run = Run::new(rng, &calls, ranks, faults);
        simulator.note(|| format!("{ranks} ranks, {:?}, {:?}, {calls:?}", run.uniform, run.faults));
        run.run_to_end(simulator);
        check(&run, &counts);
    });
    for (what, count) in [("done", counts.done), ("failed", counts.failed), ("isolated", counts.isolated)] {
        let count = count.into_inner();
        assert!(seeds < 1000 || count > seeds / 20, "{what}: {count} of {seeds} seeds");
    }
}
