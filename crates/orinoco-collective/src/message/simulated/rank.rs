//! A simulated rank: it makes its calls one after the other, and answers notices.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use orinoco_core::Nanos;
use zerocopy::IntoBytes;

use super::super::agreement::{Outcome, Uniform};
use super::super::attempt::{Attempt, COMPARED_AFTER};
use super::super::transport::Transport;
use super::super::{Engine, Health, Kernel, Memory, Moved, NOTICE_BYTES, Notice, OperationPlan, WaitEnd};
use super::calls::{Planned, Vectors};
use super::net::{EPOCH, Net, SimulatedTransport};
use crate::call::{Call, Operation};
use crate::{Algorithm, Collective, CollectiveError, Topology};

/// Barriers after each operation of a uniform group.
const BARRIERS: usize = 2;

pub(super) struct Rank {
    transport: SimulatedTransport,
    engine: Engine,
    calls: Vec<Planned>,
    deadline: Duration,
    /// Calls that have begun.
    pub(super) begun: usize,
    /// Calls that are done.
    pub(super) done: usize,
    running: Option<Running>,
    /// Bytes of notices that have come, by peer, and whether its stream is at its end.
    notices: Vec<(Vec<u8>, bool)>,
    /// Time at which the next call is made.
    next_call: Nanos,
    /// No call is made before this time.
    pub(super) late_until: Nanos,
    /// The error of the call that failed, and its time.
    pub(super) error: Option<(Nanos, CollectiveError)>,
    has_left: bool,
    /// Ends of waits that it told last.
    told: [Vec<WaitEnd>; 2],
    /// Of a rank in a uniform group.
    uniform: Option<InUniformGroup>,
}

/// State of a rank in a uniform group.
struct InUniformGroup {
    barrier: Arc<OperationPlan>,
    /// Time after its last call at which it leaves, if it does.
    leaves_after: Option<Duration>,
    /// Time of its last call's return.
    over_since: Option<Nanos>,
    /// Error of the call under way, while the ranks agree on its outcome.
    failed: Option<CollectiveError>,
}

struct Running {
    attempt: Attempt,
    vectors: Vectors,
    /// Barriers after the operation that have begun.
    barriers: usize,
    scratch: Vec<u64>,
    partial: Vec<u64>,
}

impl Rank {
    pub(super) fn new(
        rank: usize,
        ranks: usize,
        net: &Rc<RefCell<Net>>,
        calls: Vec<Planned>,
        silence: Duration,
        deadline: Duration,
    ) -> Self {
        let transport = SimulatedTransport::new(rank, ranks, net, silence);
        let mut engine = Engine::new(rank, ranks, EPOCH);
        (0..ranks).filter(|peer| transport.keeps_whole(*peer)).for_each(|peer| engine.trust_link(peer));
        Self {
            transport,
            engine,
            calls,
            deadline,
            begun: 0,
            done: 0,
            running: None,
            notices: vec![(Vec::new(), false); ranks],
            next_call: Nanos(0),
            late_until: Nanos(0),
            error: None,
            has_left: false,
            told: Default::default(),
            uniform: None,
        }
    }

    /// Makes the rank one of a uniform group. It leaves a while after its last call, or not at all.
    pub(super) fn make_uniform(
        &mut self,
        uniform: Uniform,
        silence: Duration,
        leaves_after: Option<Duration>,
    ) {
        let (rank, ranks) = (self.engine.rank(), self.engine.ranks());
        let health = Health::new(rank, ranks, silence, Duration::ZERO).with_uniform(Some(uniform));
        self.transport.health = RefCell::new(health);
        let (topology, kernel) = (Topology::flat(ranks), Kernel::copying(None));
        let barrier = OperationPlan::new(&Collective::Barrier, Algorithm::Direct, &topology, rank, kernel, 1);
        let barrier = Arc::new(barrier.expect("it has a barrier"));
        self.uniform = Some(InUniformGroup { barrier, leaves_after, over_since: None, failed: None });
    }

    /// Whether it knows of a failure.
    pub(super) fn has_failure(&self) -> bool {
        self.transport.health.borrow().failure().is_some()
    }

    /// Whether it has left a uniform group, and closed its links.
    fn is_closed(&self) -> bool {
        self.has_left && self.uniform.is_some()
    }

    /// Time at which it leaves after its last call, if that has returned.
    fn leave_at(&mut self, now: Nanos) -> Option<Nanos> {
        if !self.is_over() || self.has_left {
            return None;
        }
        let Some(uniform) = &mut self.uniform else { return Some(now) };
        let since = *uniform.over_since.get_or_insert(now);
        uniform.leaves_after.map(|time| since + time)
    }

    /// Whether all calls are made, or one has failed.
    pub(super) fn is_over(&self) -> bool {
        self.error.is_some() || self.done == self.calls.len()
    }

    /// Does all that can be done now. Returns when to look again, unless something arrives before.
    pub(super) fn step(&mut self, now: Nanos) -> Nanos {
        if self.is_closed() {
            return now + Duration::from_secs(1);
        }
        self.read_notices(now);
        self.transport.health.borrow_mut().handle_timeout(since_start(now));
        self.call(now);
        self.tell_waits();
        let leave_at = self.leave_at(now);
        if leave_at.is_some_and(|at| at <= now) {
            self.has_left = true;
            self.transport.health.borrow_mut().leave();
        }
        self.write_notices(now);
        if self.is_closed() {
            let net = &mut *self.transport.net.borrow_mut();
            net.streams_of(self.transport.rank).for_each(|stream| stream.close(now));
            net.touched.extend(0..self.notices.len());
        }
        let mut due = Nanos(0) + self.transport.health.borrow().poll_timeout();
        due = leave_at.map_or(due, |at| due.min(at));
        if let Some(running) = &self.running {
            due = due.min(now + running.attempt.rest(since_start(now)));
            if self.transport.net.borrow().tells_at_once {
                due = due.min(now + COMPARED_AFTER);
            }
        } else if !self.is_over() {
            due = due.min(self.next_call.max(self.late_until));
        }
        due.max(now + Duration::from_micros(1))
    }

    fn tell_waits(&mut self) {
        let mut health = self.transport.health.borrow_mut();
        let ends = health.wait_ends().map(<[WaitEnd]>::to_vec);
        if self.transport.net.borrow().tells_at_once && ends != self.told {
            self.told = ends;
            health.give_sign();
        }
    }

    fn call(&mut self, now: Nanos) {
        if self.is_over() || (self.running.is_none() && now < self.next_call.max(self.late_until)) {
            return;
        }
        let is_agreeing = self.uniform.as_ref().is_some_and(|uniform| uniform.failed.is_some());
        let result = if is_agreeing { Ok(()) } else { self.try_call(now) };
        match (result, &mut self.uniform) {
            (Ok(()), _) => {}
            (Err(error), None) => (self.error, self.running) = (Some((now, error)), None),
            (Err(error), Some(uniform)) => uniform.failed = Some(error),
        }
        self.look_for_outcome(now);
    }

    /// Ends the call under way if it has failed, and the ranks have agreed on its outcome.
    fn look_for_outcome(&mut self, now: Nanos) {
        let ranks = self.engine.ranks();
        let Some(uniform) = self.uniform.as_mut().filter(|uniform| uniform.failed.is_some()) else { return };
        let Some(outcome) = self.transport.health.borrow().outcome(self.done as u64) else { return };
        let error = uniform.failed.take().expect("it has failed");
        match outcome {
            Outcome::Done => self.end_call(now),
            Outcome::Failed => (self.error, self.running) = (Some((now, error)), None),
            Outcome::Isolated { reachable } => {
                let call = self.calls[self.done].call();
                let error = CollectiveError::Isolated { reachable: reachable.iter().collect(), ranks, call };
                (self.error, self.running) = (Some((now, error)), None);
            }
        }
    }

    /// The call under way has a result.
    fn end_call(&mut self, now: Nanos) {
        let (rank, ranks) = (self.engine.rank(), self.engine.ranks());
        let (planned, running) = (&self.calls[self.done], self.running.take().expect("a call under way"));
        assert!(
            planned.is_right(&running.vectors, rank, ranks),
            "rank {rank} got a wrong result of {planned:?}"
        );
        self.done += 1;
        self.next_call = now + Duration::from_micros(self.transport.net.borrow_mut().rng.u64(..300));
    }

    fn try_call(&mut self, now: Nanos) -> Result<(), CollectiveError> {
        let (rank, ranks) = (self.engine.rank(), self.engine.ranks());
        let planned = &self.calls[self.done];
        let running = match &mut self.running {
            Some(running) => running,
            None => {
                let attempt = Attempt::new(planned.call(), EPOCH, self.deadline);
                attempt.begin(&self.transport)?;
                self.begun += 1;
                let plan = plan(planned, rank, ranks);
                let words = |bytes: usize| vec![0; bytes.div_ceil(8)];
                let mut running = Running {
                    attempt,
                    vectors: planned.vectors(rank, ranks),
                    barriers: 0,
                    scratch: words(plan.scratch_bytes()),
                    partial: words(plan.partial_bytes()),
                };
                self.engine.begin(planned.call(), plan, &mut running.memory());
                self.running.insert(running)
            }
        };
        loop {
            while !self.engine.is_done() {
                let Running { attempt, vectors, scratch, partial, .. } = &mut *running;
                let memory = &mut memory(vectors, scratch, partial);
                if !attempt.carry(&mut self.transport, &mut self.engine, memory)? {
                    return attempt.check(&self.transport, &self.engine, since_start(now));
                }
            }
            running.attempt.finish(&self.transport);
            let Some(uniform) = &self.uniform else { break };
            let advanced = self.transport.health(|health| health.advance());
            advanced.map_err(|failure| running.attempt.failed(failure.rank, failure.cause))?;
            if running.barriers == BARRIERS {
                break;
            }
            running.barriers += 1;
            running.attempt = Attempt::new(planned.call(), EPOCH, self.deadline);
            let barrier = Call::new(Operation::Barrier, None, None, 0, 0);
            self.engine.begin(barrier, Arc::clone(&uniform.barrier), &mut running.memory());
        }
        self.end_call(now);
        Ok(())
    }

    fn read_notices(&mut self, now: Nanos) {
        let net = &mut *self.transport.net.borrow_mut();
        let mut health = self.transport.health.borrow_mut();
        for (peer, (pending, is_at_end)) in self.notices.iter_mut().enumerate() {
            let stream = &mut net.notices[peer][self.transport.rank];
            let mut bytes = [0; 100];
            loop {
                match stream.read(&mut bytes, now, &mut net.rng) {
                    Moved::Bytes(len) => pending.extend_from_slice(&bytes[..len]),
                    Moved::Later => break,
                    Moved::Closed | Moved::Damaged => {
                        if !*is_at_end {
                            health.closed(peer);
                        }
                        *is_at_end = true;
                        break;
                    }
                }
            }
            while let Some(notice) = pending.first_chunk::<NOTICE_BYTES>() {
                match Notice::decode(notice, EPOCH) {
                    Some(notice) => health.received(peer, notice, since_start(now)),
                    None => health.refused(peer),
                }
                pending.drain(..NOTICE_BYTES);
            }
        }
    }

    fn write_notices(&mut self, now: Nanos) {
        let net = &mut *self.transport.net.borrow_mut();
        let rank = self.transport.rank;
        while let Some(notice) = self.transport.health.borrow_mut().next_notice() {
            for peer in (0..self.notices.len()).filter(|peer| *peer != rank) {
                net.notices[rank][peer].send(&notice, now, &mut net.rng);
                net.touched.push(peer);
            }
        }
    }
}

impl Running {
    fn memory(&mut self) -> Memory<'_> {
        memory(&mut self.vectors, &mut self.scratch, &mut self.partial)
    }
}

fn memory<'a>(vectors: &'a mut Vectors, scratch: &'a mut [u64], partial: &'a mut [u64]) -> Memory<'a> {
    Memory {
        input: vectors.input.as_ref().map(|input| &input.as_bytes()[..vectors.input_bytes]),
        output: &mut vectors.output.as_mut_bytes()[..vectors.output_bytes],
        scratch: scratch.as_mut_bytes(),
        partial: partial.as_mut_bytes(),
    }
}

fn plan(planned: &Planned, rank: usize, ranks: usize) -> Arc<OperationPlan> {
    let Planned { collective, algorithm, piece, .. } = planned;
    let topology = Topology::flat(ranks).with_weights(planned.weights.clone());
    let plan = OperationPlan::new(collective, *algorithm, &topology, rank, planned.kernel(), *piece);
    Arc::new(plan.expect("an algorithm that has the operation"))
}

fn since_start(now: Nanos) -> Duration {
    Duration::from_nanos(now.0)
}
