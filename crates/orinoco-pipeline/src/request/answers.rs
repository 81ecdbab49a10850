//! The way of an answer to the client: a few parts may wait, and the end of the answer always has a place.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, PoisonError};

use orinoco_core::{Clock, Diagnosis, InferenceResult, Nanos, Signal, Tensor, codes};

use crate::sync::{Mutex, MutexGuard};

/// Parts of an answer that may wait for their receiver: a second of a model that gives 16 a second.
pub const ANSWER_PARTS_MAX: usize = 16;

/// One answer of several to a request, or the only one.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Tensors, and more will follow.
    Part(Vec<Tensor>),
    /// Tensors, and nothing follows.
    Last(Vec<Tensor>),
    /// The results of a request of images, in their order, and nothing follows.
    Results(Vec<InferenceResult>),
    /// A fault, and nothing follows.
    Failed(Diagnosis),
}

/// State of an answer as its receiver sees it.
#[derive(Clone, Debug)]
pub enum NextAnswer {
    /// A part of it, or its end.
    Answer(Answer),
    /// Nothing yet.
    Pending,
    /// Nothing more: the end was received.
    Ended,
}

/// Reason for which a part of an answer was not taken. The answer has ended, and whoever computes it can stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// The client cancelled the request or is gone.
    Cancelled,
    /// [`ANSWER_PARTS_MAX`] parts wait. A part that is left out would make the others wrong, and a lane does not wait for
    /// clients: so the answer ends with a fault.
    Full,
}

/// Makes the place of an answer: an end for whoever computes it, and one for the client.
pub fn answer_channel(clock: &Arc<dyn Clock>) -> (AnswerSender, AnswerReceiver) {
    let (state, answer_came) = (Mutex::default(), clock.signal());
    let shared = Arc::new(Shared { state, answer_came, clock: Arc::clone(clock) });
    (AnswerSender { shared: Arc::clone(&shared) }, AnswerReceiver { shared })
}

struct Shared {
    state: Mutex<State>,
    /// Wakes the client.
    answer_came: Arc<dyn Signal>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Answer>,
    is_cancelled: bool,
    /// Its end was given; nothing is taken any more.
    has_ended: bool,
}

impl State {
    /// Ends the answer, unless it has ended.
    fn end(&mut self, answer: impl FnOnce() -> Answer) {
        if !std::mem::replace(&mut self.has_ended, true) {
            self.waiting.push_back(answer());
        }
    }

    fn part(&mut self, tensors: Vec<Tensor>) -> Result<(), NotTaken> {
        if self.has_ended {
            return Err(if self.is_cancelled { NotTaken::Cancelled } else { NotTaken::Full });
        }
        if self.waiting.len() < ANSWER_PARTS_MAX {
            self.waiting.push_back(Answer::Part(tensors));
            return Ok(());
        }
        self.end(|| {
            let cause = format!("{ANSWER_PARTS_MAX} parts of it are unread, and another arrived");
            Answer::Failed(fault(&codes::REQUEST_OVERLOAD, cause, "receive the parts while they come"))
        });
        Err(NotTaken::Full)
    }

    fn cancel(&mut self) {
        if !self.has_ended {
            self.is_cancelled = true;
            self.waiting.clear();
            self.end(|| {
                Answer::Failed(fault(&codes::REQUEST_CANCELLED, "it was cancelled", "send it again"))
            });
        }
    }
}

fn fault(code: &'static orinoco_core::Code, cause: impl fmt::Display, next: &str) -> Diagnosis {
    Diagnosis::new(code, "an answer", cause, next)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, answer: impl FnOnce() -> Answer) {
        self.lock().end(answer);
        self.answer_came.notify();
    }
}

/// The end of an answer's way for whoever computes it. It never waits. Dropped without an end of the answer, it ends that
/// with a fault.
pub struct AnswerSender {
    shared: Arc<Shared>,
}

impl AnswerSender {
    /// Whether the answer has ended although its sender is here: it was cancelled, or too many parts wait.
    pub fn has_ended(&self) -> bool {
        self.shared.lock().has_ended
    }

    /// Gives a part of the answer.
    ///
    /// # Errors
    /// The answer has ended: it was cancelled, or too many parts wait.
    pub fn part(&mut self, tensors: Vec<Tensor>) -> Result<(), NotTaken> {
        let taken = self.shared.lock().part(tensors);
        self.shared.answer_came.notify();
        taken
    }

    /// Gives the only or the last part of the answer.
    pub fn last(self, tensors: Vec<Tensor>) {
        self.shared.end(|| Answer::Last(tensors));
    }

    /// Gives the results of a request of images.
    pub fn results(self, results: Vec<InferenceResult>) {
        self.shared.end(|| Answer::Results(results));
    }

    /// Ends the answer with a fault.
    pub fn fail(self, why: Diagnosis) {
        self.shared.end(|| Answer::Failed(why));
    }
}

impl Drop for AnswerSender {
    fn drop(&mut self) {
        let cause = "the model that had to answer has stopped";
        self.shared
            .end(|| Answer::Failed(fault(&codes::REQUEST_UNANSWERED, cause, "send the request again")));
    }
}

impl fmt::Debug for AnswerSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnswerSender(ended {})", self.has_ended())
    }
}

/// The client's end of an answer's way. Dropping it cancels the request.
pub struct AnswerReceiver {
    shared: Arc<Shared>,
}

impl AnswerReceiver {
    /// Returns what has come.
    pub fn poll(&self) -> NextAnswer {
        let mut state = self.shared.lock();
        match state.waiting.pop_front() {
            Some(answer) => NextAnswer::Answer(answer),
            None if state.has_ended => NextAnswer::Ended,
            None => NextAnswer::Pending,
        }
    }

    /// Waits for what comes next, at most until `until`. One thread waits at a time.
    pub fn next(&self, until: Option<Nanos>) -> NextAnswer {
        loop {
            let next = self.poll();
            let is_late = until.is_some_and(|until| self.shared.clock.now() >= until);
            if !matches!(next, NextAnswer::Pending) || is_late {
                return next;
            }
            self.shared.answer_came.wait(until);
        }
    }

    /// Cancels the request. If its answer has not ended, that ends now, and parts that wait are dropped.
    pub fn cancel(&self) {
        self.shared.lock().cancel();
        self.shared.answer_came.notify();
    }
}

impl Drop for AnswerReceiver {
    fn drop(&mut self) {
        self.shared.lock().cancel();
    }
}

impl fmt::Debug for AnswerReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnswerReceiver({} wait)", self.shared.lock().waiting.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MonotonicClock;

    fn channel() -> (AnswerSender, AnswerReceiver) {
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
        answer_channel(&clock)
    }

    /// All that comes, one letter each: part, last, or the code of the fault.
    fn check(receiver: &AnswerReceiver, expected: &str) {
        let mut seen = String::new();
        loop {
            match receiver.poll() {
                NextAnswer::Answer(Answer::Part(_)) => seen.push('p'),
                NextAnswer::Answer(Answer::Last(_)) => seen.push('l'),
                NextAnswer::Answer(Answer::Results(_)) => seen.push('r'),
                NextAnswer::Answer(Answer::Failed(why)) => seen.push_str(why.code.id),
                NextAnswer::Pending => break seen.push('?'),
                NextAnswer::Ended => break,
            }
        }
        assert_eq!(seen, expected);
    }

    #[test]
    fn an_answer_has_parts_and_one_end() {
        let (mut sender, receiver) = channel();
        check(&receiver, "?");
        sender.part(Vec::new()).expect("there is room");
        sender.part(Vec::new()).expect("there is room");
        check(&receiver, "pp?");
        sender.last(Vec::new());
        check(&receiver, "l");
        check(&receiver, "");
        let (sender, receiver) = channel();
        drop(sender);
        check(&receiver, codes::REQUEST_UNANSWERED.id);
    }

    #[test]
    fn nothing_comes_after_a_cancellation() {
        let (mut sender, receiver) = channel();
        sender.part(Vec::new()).expect("there is room");
        receiver.cancel();
        assert!(sender.has_ended());
        assert_eq!(sender.part(Vec::new()), Err(NotTaken::Cancelled));
        sender.last(Vec::new());
        receiver.cancel();
        check(&receiver, codes::REQUEST_CANCELLED.id);
        let (mut sender, receiver) = channel();
        drop(receiver);
        assert_eq!(sender.part(Vec::new()), Err(NotTaken::Cancelled));
    }

    #[test]
    fn a_receiver_that_is_too_slow_ends_the_answer() {
        let (mut sender, receiver) = channel();
        (0..ANSWER_PARTS_MAX).for_each(|_| sender.part(Vec::new()).expect("there is room"));
        assert_eq!(sender.part(Vec::new()), Err(NotTaken::Full));
        assert!(sender.has_ended());
        sender.last(Vec::new());
        check(&receiver, &("p".repeat(ANSWER_PARTS_MAX) + codes::REQUEST_OVERLOAD.id));
    }

    #[test]
    fn a_receiver_waits_for_an_answer_and_not_after_its_time() {
        let (sender, receiver) = channel();
        assert!(matches!(receiver.next(Some(Nanos(1))), NextAnswer::Pending));
        std::thread::scope(|scope| {
            scope.spawn(|| sender.last(Vec::new()));
            assert!(matches!(receiver.next(None), NextAnswer::Answer(Answer::Last(_))));
        });
        assert!(matches!(receiver.next(None), NextAnswer::Ended));
    }
}
