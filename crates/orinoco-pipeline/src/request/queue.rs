//! The order of requests, without threads.

use std::cmp::Reverse;

use orinoco_core::{ModelId, Nanos};

use super::{REQUESTS_MAX, Request, Unserved};

/// Requests that wait for the models of a lane. The highest priority goes first; of one priority the earliest deadline,
/// and then the first that came. So requests of a low priority wait for as long as others keep coming.
#[derive(Default)]
pub struct RequestQueue {
    waiting: Vec<Waiting>,
    /// Requests that came so far.
    arrivals: u64,
}

struct Waiting {
    request: Request,
    came: Nanos,
    arrival: u64,
}

impl RequestQueue {
    /// Adds a request, or returns it if as many wait for its model as may.
    pub fn offer(&mut self, request: Request, now: Nanos) -> Result<(), Request> {
        if self.waiting_for(request.model) >= REQUESTS_MAX {
            return Err(request);
        }
        self.waiting.push(Waiting { request, came: now, arrival: self.arrivals });
        self.arrivals += 1;
        Ok(())
    }

    /// Moves requests that are not to be executed any more into `unserved`.
    pub fn sweep(&mut self, now: Nanos, unserved: &mut Vec<(Request, Unserved)>) {
        // Most lanes have no requests, and this is asked before each batch.
        if self.waiting.is_empty() {
            return;
        }
        unserved.extend(self.waiting.extract_if(.., |waiting| waiting.unserved(now).is_some()).map(
            |waiting| {
                let why = waiting.unserved(now).expect("nothing takes a cancellation back");
                (waiting.request, why)
            },
        ));
    }

    /// Takes the request that goes first.
    pub fn pop(&mut self) -> Option<Request> {
        let first = self.waiting.iter().enumerate().min_by_key(|(_, waiting)| waiting.order())?.0;
        Some(self.waiting.swap_remove(first).request)
    }

    /// Time at which the oldest request came.
    pub fn oldest(&self) -> Option<Nanos> {
        self.waiting.iter().map(|waiting| waiting.came).min()
    }

    /// Number of requests that wait for a model.
    pub fn waiting_for(&self, model: ModelId) -> usize {
        self.waiting.iter().filter(|waiting| waiting.request.model == model).count()
    }

    /// Takes all that wait.
    pub fn drain(&mut self) -> impl Iterator<Item = Request> {
        self.waiting.drain(..).map(|waiting| waiting.request)
    }
}

impl Waiting {
    /// The least of these goes first.
    fn order(&self) -> impl Ord + use<> {
        let Request { priority, deadline, .. } = &self.request;
        (Reverse(*priority), deadline.unwrap_or(Nanos(u64::MAX)), self.arrival)
    }

    fn unserved(&self, now: Nanos) -> Option<Unserved> {
        let Request { answers, deadline, .. } = &self.request;
        let is_late = || deadline.is_some_and(|deadline| deadline <= now);
        answers.has_ended().then_some(Unserved::Cancelled).or_else(|| is_late().then_some(Unserved::Expired))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use orinoco_core::Clock;

    use super::*;
    use crate::MonotonicClock;
    use crate::request::{AnswerReceiver, Priority, RequestInputs, answer_channel};

    fn request(model: u32, name: &str, priority: u8, deadline: Option<u64>) -> (Request, AnswerReceiver) {
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
        let (answers, receiver) = answer_channel(&clock);
        let (deadline, priority) = (deadline.map(Nanos), Priority(priority));
        let (model, name) = (ModelId(model), name.into());
        let inputs = RequestInputs::Tensors(Vec::new());
        (Request { model, name, inputs, deadline, priority, answers }, receiver)
    }

    #[test]
    fn priority_goes_before_deadline_and_deadline_before_arrival() {
        let mut queue = RequestQueue::default();
        let of = [
            ("e", 0, None),
            ("f", 0, None),
            ("d", 0, Some(9)),
            ("c", 0, Some(8)),
            ("b", 1, None),
            ("a", 1, Some(9)),
        ];
        let receivers = of.map(|(name, priority, deadline)| {
            let (request, receiver) = request(0, name, priority, deadline);
            queue.offer(request, Nanos(0)).expect("there is room");
            receiver
        });
        let order: String =
            std::iter::from_fn(|| queue.pop()).map(|request| request.name.to_string()).collect();
        assert_eq!(order, "abcdef");
        drop(receivers);
    }

    #[test]
    fn a_full_queue_refuses_requests_to_its_model_only() {
        let mut queue = RequestQueue::default();
        let mut offer = |model| queue.offer(request(model, "x", 0, None).0, Nanos(0)).is_ok();
        assert!((0..REQUESTS_MAX).all(|_| offer(0)));
        assert_eq!((offer(0), offer(1)), (false, true));
    }

    #[test]
    fn requests_that_are_late_or_cancelled_are_not_served() {
        let mut queue = RequestQueue::default();
        let receivers =
            [("late", Some(5)), ("cancelled", Some(5)), ("served", Some(6))].map(|(name, deadline)| {
                let (request, receiver) = request(0, name, 0, deadline);
                queue.offer(request, Nanos(0)).expect("there is room");
                receiver
            });
        receivers[1].cancel();
        let mut unserved = Vec::new();
        queue.sweep(Nanos(5), &mut unserved);
        let names = unserved.iter().map(|(request, why)| (&*request.name, *why));
        assert!(names.eq([("late", Unserved::Expired), ("cancelled", Unserved::Cancelled)]));
        assert_eq!(&*queue.pop().expect("one is left").name, "served");
    }
}
