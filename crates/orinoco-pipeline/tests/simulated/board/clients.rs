//! Clients, which send requests, receive answers slowly or not at all, and cancel.

use std::cmp::Reverse;
use std::sync::Arc;

use orinoco_core::{Clock, ModelId, Nanos, Signal, WallTime, codes};
use orinoco_pipeline::{
    Answer, AnswerReceiver, NextAnswer, Priority, REQUESTS_MAX, Request, RequestInputs, RequestRefusal,
    Unserved, answer_channel,
};
use orinoco_sim::Task;

use super::{Board, MODELS, millis};
use crate::director::RUN;

/// More than may wait for one model.
const BURST: usize = REQUESTS_MAX + 8;

pub(crate) struct Clients {
    task: Task,
    clock: Arc<dyn Clock>,
    requests: Vec<Sent>,
    /// Requests that have not ended, by their index.
    open: Vec<usize>,
    pub(crate) counts: ClientCounts,
}

/// Requests by what became of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClientCounts {
    pub(crate) parts: u64,
    pub(crate) answered: u64,
    pub(crate) expired: u64,
    pub(crate) cancelled: u64,
    pub(crate) overloaded: u64,
    pub(crate) unanswered: u64,
}

impl ClientCounts {
    pub(crate) fn add(&mut self, other: Self) {
        let Self { parts, answered, expired, cancelled, overloaded, unanswered } = other;
        self.parts += parts;
        self.answered += answered;
        self.expired += expired;
        self.cancelled += cancelled;
        self.overloaded += overloaded;
        self.unanswered += unanswered;
    }
}

/// A request as its client sees it.
struct Sent {
    /// Gone when the client is.
    receiver: Option<AnswerReceiver>,
    priority: Priority,
    deadline: Option<Nanos>,
    is_cancelled: bool,
    /// It receives when it wants to.
    is_slow: bool,
}

/// Nobody waits for real in virtual time.
struct NoClock;

impl Clock for NoClock {
    fn now(&self) -> Nanos {
        Nanos(0)
    }
    fn wall(&self) -> WallTime {
        WallTime::from_unix_nanos(0)
    }
    fn signal(&self) -> Arc<dyn Signal> {
        Arc::new(Self)
    }
}

impl Signal for NoClock {
    fn notify(&self) {}
    fn wait(&self, _: Option<Nanos>) {
        panic!("clients poll");
    }
}

impl Clients {
    pub(crate) fn new(task: Task) -> Self {
        let (requests, open) = (Vec::new(), Vec::new());
        Self { task, clock: Arc::new(NoClock), requests, open, counts: ClientCounts::default() }
    }

    /// The least of these goes first.
    fn order(&self, request: usize) -> impl Ord + use<> {
        let Sent { priority, deadline, .. } = &self.requests[request];
        (Reverse(*priority), deadline.unwrap_or(Nanos(u64::MAX)), request)
    }

    /// Receives all that has come for a request; returns whether it has ended.
    fn receive(&mut self, request: usize) -> bool {
        let sent = &mut self.requests[request];
        let Some(receiver) = &sent.receiver else {
            self.counts.cancelled += 1;
            return true;
        };
        let counts = &mut self.counts;
        let failed = loop {
            match receiver.poll() {
                NextAnswer::Pending => {
                    assert!(!sent.is_cancelled, "a request that was cancelled has its answer");
                    return false;
                }
                NextAnswer::Ended => panic!("request {request}: an answer ends once"),
                NextAnswer::Answer(Answer::Part(_)) => {
                    assert!(!sent.is_cancelled, "request {request}: a part came after its cancellation");
                    counts.parts += 1;
                }
                NextAnswer::Answer(Answer::Last(_) | Answer::Results(_)) => break None,
                NextAnswer::Answer(Answer::Failed(why)) => break Some(why.code.id),
            }
        };
        assert!(matches!(receiver.poll(), NextAnswer::Ended), "request {request}: nothing follows an end");
        let count = match failed {
            None => &mut counts.answered,
            Some(code) if code == codes::REQUEST_EXPIRED.id => &mut counts.expired,
            Some(code) if code == codes::REQUEST_CANCELLED.id => {
                assert!(sent.is_cancelled, "request {request} was not cancelled");
                &mut counts.cancelled
            }
            Some(code) if code == codes::REQUEST_OVERLOAD.id => &mut counts.overloaded,
            Some(_) => &mut counts.unanswered,
        };
        *count += 1;
        assert!(!sent.is_cancelled || failed == Some(codes::REQUEST_CANCELLED.id), "{failed:?}");
        true
    }
}

impl Board<'_> {
    pub(crate) fn step_clients(&mut self) {
        let now = self.simulator.now();
        let rng = self.simulator.rng();
        let all = rng.u32(..20) == 0;
        let clients = &mut self.clients;
        for request in std::mem::take(&mut clients.open) {
            let skips = clients.requests[request].is_slow && !all;
            if skips || !clients.receive(request) {
                clients.open.push(request);
            }
        }
        if now >= Nanos(0) + RUN {
            return;
        }
        let (act, lane, model) = (rng.u32(..40), rng.usize(..self.lanes.len()), ModelId(rng.u32(..MODELS)));
        let other = (!clients.open.is_empty()).then(|| clients.open[rng.usize(..clients.open.len())]);
        match (act, other) {
            (0, _) => (0..BURST).for_each(|_| self.request(lane, model)),
            (1..4, Some(request)) => {
                // A cancellation may come too late.
                let has_ended = !clients.requests[request].is_cancelled && clients.receive(request);
                if has_ended {
                    clients.open.retain(|open| *open != request);
                } else if let Some(receiver) = &clients.requests[request].receiver {
                    receiver.cancel();
                    clients.requests[request].is_cancelled = true;
                }
            }
            (4..6, Some(request)) => {
                let sent = &mut clients.requests[request];
                (sent.receiver, sent.is_cancelled) = (None, true);
            }
            _ => self.request(lane, model),
        }
        let pause = millis(self.simulator.rng(), 5..400);
        self.simulator.work(self.clients.task, now + pause);
    }

    /// Sends a request, as the lane's entry takes it.
    fn request(&mut self, lane: usize, model: ModelId) {
        let (now, rng) = (self.simulator.now(), self.simulator.rng());
        let deadline = rng.bool().then(|| now + millis(rng, 1..500));
        let priority = Priority(rng.u8(..3));
        let is_slow = rng.u32(..4) == 0;
        let index = self.clients.requests.len();
        let (answers, receiver) = answer_channel(&self.clients.clock);
        let (name, inputs) = (index.to_string().into(), RequestInputs::Tensors(Vec::new()));
        let request = Request { model, name, inputs, deadline, priority, answers };
        let receiver = Some(receiver);
        self.clients.requests.push(Sent { receiver, priority, deadline, is_cancelled: false, is_slow });
        self.clients.open.push(index);
        let at = &mut self.lanes[lane];
        if !at.models.has_model(model) {
            return request.refuse(Unserved::Refused(RequestRefusal::NoModel));
        }
        if at.mux.offer_request(request, now).is_ok() {
            at.requests.push(index);
        }
        self.refuse_unserved(lane);
        self.simulator.notify(self.lanes[lane].task);
    }

    /// Answers the requests that a lane does not execute.
    pub(crate) fn refuse_unserved(&mut self, lane: usize) {
        let now = self.simulator.now();
        let lane = &mut self.lanes[lane];
        for (request, why) in lane.mux.take_unserved() {
            let index = index_of(&request);
            let sent = &self.clients.requests[index];
            let is_right = match why {
                Unserved::Expired => sent.deadline.is_some_and(|deadline| deadline <= now),
                Unserved::Cancelled => sent.is_cancelled,
                Unserved::Refused(RequestRefusal::Overloaded) => {
                    lane.mux.requests_waiting(request.model) == REQUESTS_MAX
                }
                Unserved::Refused(RequestRefusal::Ended) => lane.is_closed || lane.has_left(),
                Unserved::Refused(RequestRefusal::NoModel) => false,
            };
            assert!(is_right, "request {index} is not executed: {why:?}");
            lane.requests.retain(|waiting| *waiting != index);
            request.refuse(why);
        }
    }

    /// Checks a request that is handed out.
    pub(crate) fn check_request(&mut self, lane: usize, request: &Request) {
        let now = self.simulator.now();
        let index = index_of(request);
        let sent = &self.clients.requests[index];
        assert!(!sent.is_cancelled, "request {index} was cancelled");
        assert!(sent.deadline.is_none_or(|deadline| deadline > now), "request {index} is too late");
        let waiting = &mut self.lanes[lane].requests;
        let first = waiting.iter().copied().min_by_key(|waiting| self.clients.order(*waiting));
        assert_eq!(first, Some(index), "the first request goes first");
        waiting.retain(|waiting| *waiting != index);
    }

    /// At the end: each request was answered.
    pub(crate) fn check_requests_ended(&mut self) {
        for request in std::mem::take(&mut self.clients.open) {
            assert!(self.clients.receive(request), "request {request} has no end");
        }
    }
}

fn index_of(request: &Request) -> usize {
    request.name.parse().expect("its name is its index")
}
