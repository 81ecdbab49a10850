//! A simulated rank: it makes its calls one after the other, and answers notices.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use orinoco_core::Nanos;
use zerocopy::IntoBytes;

use super::super::attempt::Attempt;
use super::super::transport::Transport;
use super::super::{Engine, Memory, Moved, NOTICE_BYTES, Notice, OperationPlan};
use super::calls::{Planned, Vectors};
use super::net::{Net, SimulatedTransport};
use crate::{CollectiveError, Topology};

pub(super) const EPOCH: u32 = 3;

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
}

struct Running {
    attempt: Attempt,
    vectors: Vectors,
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
        }
    }

    /// Whether all calls are made, or one has failed.
    pub(super) fn is_over(&self) -> bool {
        self.error.is_some() || self.done == self.calls.len()
    }

    /// Does all that can be done now. Returns when to look again, unless something arrives before.
    pub(super) fn step(&mut self, now: Nanos) -> Nanos {
        self.read_notices(now);
        self.transport.health.borrow_mut().handle_timeout(since_start(now));
        self.call(now);
        if self.is_over() && !self.has_left {
            self.has_left = true;
            self.transport.health.borrow_mut().leave();
        }
        self.write_notices(now);
        let mut due = Nanos(0) + self.transport.health.borrow().poll_timeout();
        if let Some(running) = &self.running {
            due = due.min(now + running.attempt.rest(since_start(now)));
        } else if !self.is_over() {
            due = due.min(self.next_call.max(self.late_until));
        }
        due.max(now + Duration::from_micros(1))
    }

    fn call(&mut self, now: Nanos) {
        if self.is_over() || (self.running.is_none() && now < self.next_call.max(self.late_until)) {
            return;
        }
        if let Err(error) = self.try_call(now) {
            (self.error, self.running) = (Some((now, error)), None);
        }
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
                    scratch: words(plan.scratch_bytes()),
                    partial: words(plan.partial_bytes()),
                };
                self.engine.begin(planned.call(), plan, &mut running.memory());
                self.running.insert(running)
            }
        };
        while !self.engine.is_done() {
            let Running { attempt, vectors, scratch, partial } = &mut *running;
            let memory = &mut memory(vectors, scratch, partial);
            if !attempt.carry(&mut self.transport, &mut self.engine, memory)? {
                return attempt.check(&self.transport, &self.engine, since_start(now));
            }
        }
        running.attempt.finish(&self.transport);
        assert!(
            planned.is_right(&running.vectors, rank, ranks),
            "rank {rank} got a wrong result of {planned:?}"
        );
        self.running = None;
        self.done += 1;
        self.next_call = now + Duration::from_micros(self.transport.net.borrow_mut().rng.u64(..300));
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
                net.notices[rank][peer].send(&notice.encode(EPOCH), now, &mut net.rng);
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
