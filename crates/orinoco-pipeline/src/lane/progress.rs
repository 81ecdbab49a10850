//! Way of a batch through the steps of its streams, without its frames, the engines and the time.

use std::ops::Range;
use std::time::Duration;

use orinoco_core::Nanos;

use crate::{LateAnswer, SUSPENSION_MAX, SuspensionError};

/// Position of a batch on its way through the steps of its streams. In each step a model takes inputs, which are frames or
/// objects in them, a part at a time: it executes or skips them, or suspends the step until an answer comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchProgress {
    /// Index of the step at work.
    step: usize,
    /// Inputs of that step that are done.
    inputs_done: usize,
    /// Whether some of them were executed on this lane, and not skipped or answered by another board.
    executed_here: bool,
    /// Inference interval with which that step began. The lane's may change while the step is suspended.
    interval: u32,
    /// Set once a step was suspended.
    suspension: Option<Suspension>,
}

/// The latest suspension of a batch.
#[derive(Clone, Copy, Debug)]
struct Suspension {
    /// Time of the batch's first suspension.
    first: Nanos,
    /// Time of this one.
    since: Nanos,
    /// Inputs that wait for the answer.
    inputs: usize,
}

impl Default for BatchProgress {
    fn default() -> Self {
        Self { step: 0, inputs_done: 0, executed_here: false, interval: 1, suspension: None }
    }
}

impl BatchProgress {
    /// Returns the index of the step at work; the number of steps once all are done.
    pub(super) fn step(&self) -> usize {
        self.step
    }

    /// Returns the inference interval of the step at work, in frames of a stream.
    pub(super) fn interval(&self) -> u32 {
        self.interval
    }

    /// Whether a step of it was suspended, so that frames of its streams may have come after it.
    pub(super) fn was_suspended(&self) -> bool {
        self.suspension.is_some()
    }

    /// Begins the step at work with its model's inference interval, or continues it with the one that it has.
    pub(super) fn begin_step(&mut self, interval: u32) {
        if self.inputs_done == 0 {
            self.interval = interval;
        }
    }

    /// Returns the next inputs of the step at work, at most `batch_max` of its `inputs`. `None`: all are done.
    pub(super) fn next_inputs(&self, inputs: usize, batch_max: usize) -> Option<Range<usize>> {
        let range = self.inputs_done..inputs.min(self.inputs_done + batch_max);
        (!range.is_empty()).then_some(range)
    }

    /// Returns the inputs that wait for the answer to the suspended step, and the time at which they began to.
    ///
    /// # Panics
    ///
    /// If no step was suspended.
    pub(super) fn waiting_inputs(&self) -> (Range<usize>, Nanos) {
        let Suspension { inputs, since, .. } = self.suspension.expect("a step was suspended");
        (self.inputs_done..self.inputs_done + inputs, since)
    }

    /// Returns the time until which the batch may wait for answers, all of its steps together; `None` before it has waited.
    pub(super) fn wait_end(&self) -> Option<Nanos> {
        self.suspension.map(|suspension| suspension.first + SUSPENSION_MAX)
    }

    /// Notes that the next `count` inputs were executed on this lane.
    pub(super) fn executed(&mut self, count: usize) {
        self.inputs_done += count;
        self.executed_here = true;
    }

    /// Notes that the plan of the step at work was replaced: what it has executed says nothing about the one that replaced it.
    pub(super) fn replaced(&mut self) {
        self.executed_here = false;
    }

    /// Notes that the next `count` inputs were skipped, or answered by another board.
    pub(super) fn passed(&mut self, count: usize) {
        self.inputs_done += count;
    }

    /// Suspends the step at `now` until the answer for its next `inputs` comes, and returns the time until which it waits:
    /// for at most `wait`, and [`SUSPENSION_MAX`] for all suspensions of the batch.
    pub(super) fn suspend(&mut self, inputs: usize, wait: Duration, now: Nanos) -> Nanos {
        let first = self.suspension.map_or(now, |earlier| earlier.first);
        self.suspension = Some(Suspension { first, since: now, inputs });
        (now + wait).min(first + SUSPENSION_MAX)
    }

    /// Returns the results of the suspended step at `now`: one for each input that waits. `answer` is `None` when it did not
    /// come in time.
    pub(super) fn results(&self, answer: Option<LateAnswer>, now: Nanos) -> LateAnswer {
        let (waiting, since) = self.waiting_inputs();
        match answer {
            None => Err(SuspensionError::TimedOut { waited: now.since(since) }),
            Some(Ok(results)) if results.len() != waiting.len() => {
                Err(SuspensionError::Count { inputs: waiting.len(), results: results.len() })
            }
            Some(answer) => answer,
        }
    }

    /// Goes on to the next step. Returns whether inputs of this one were executed on this lane: skipped inputs, and those that
    /// another board has answered, say nothing about the engine here.
    pub(super) fn end_step(&mut self) -> bool {
        self.step += 1;
        self.inputs_done = 0;
        std::mem::take(&mut self.executed_here)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orinoco_core::InferenceResult;

    const START: Nanos = Nanos(1_000_000);

    #[test]
    fn every_suspension_is_bounded_from_the_first_one() {
        let mut batch = BatchProgress::default();
        assert_eq!(batch.wait_end(), None);
        assert_eq!(batch.suspend(1, SUSPENSION_MAX * 2, START), START + SUSPENSION_MAX);
        for quarters in 1..4 {
            batch.passed(1);
            let now = START + SUSPENSION_MAX / 4 * quarters;
            assert_eq!(batch.suspend(1, SUSPENSION_MAX, now), START + SUSPENSION_MAX, "suspended again");
            assert_eq!((batch.waiting_inputs().1, batch.wait_end()), (now, Some(START + SUSPENSION_MAX)));
        }
    }

    #[test]
    fn only_what_was_executed_here_speaks_for_the_engine() {
        let mut batch = BatchProgress::default();
        batch.begin_step(1);
        batch.passed(2);
        batch.suspend(1, SUSPENSION_MAX, START);
        batch.passed(1);
        assert!(!batch.end_step(), "all were skipped or answered by another board");
        batch.begin_step(1);
        batch.executed(1);
        batch.executed(2);
        assert_eq!(batch.next_inputs(4, 4), Some(3..4), "parts add up");
        batch.passed(1);
        assert!(batch.end_step(), "three were executed here");
        batch.begin_step(1);
        batch.executed(1);
        batch.replaced();
        batch.passed(1);
        assert!(!batch.end_step(), "by an engine that is not used any more");
    }

    #[test]
    fn a_step_takes_its_inputs_in_parts() {
        let mut batch = BatchProgress::default();
        batch.begin_step(2);
        assert_eq!(batch.next_inputs(5, 2), Some(0..2));
        batch.executed(2);
        batch.begin_step(3);
        assert_eq!(batch.interval(), 2, "the step keeps the interval with which it began");
        assert_eq!(batch.next_inputs(5, 4), Some(2..5), "its plan was replaced by one of a larger batch");
        batch.passed(3);
        assert_eq!((batch.next_inputs(5, 4), batch.end_step(), batch.step()), (None, true, 1));
        batch.begin_step(3);
        assert_eq!((batch.interval(), batch.next_inputs(0, 4)), (3, None), "nothing was detected");
        assert!(!batch.end_step(), "the engine did nothing in this step");
        assert!(!batch.was_suspended());
    }

    #[test]
    fn all_suspensions_of_a_batch_together_are_bounded() {
        let mut batch = BatchProgress::default();
        assert_eq!(batch.suspend(1, Duration::from_millis(40), START), START + Duration::from_millis(40));
        let later = START + SUSPENSION_MAX - Duration::from_millis(10);
        assert_eq!(batch.suspend(1, Duration::from_millis(40), later), START + SUSPENSION_MAX);
        assert_eq!(batch.waiting_inputs(), (0..1, later));
    }

    #[test]
    fn an_answer_has_one_result_for_each_input_that_waits() {
        let mut batch = BatchProgress::default();
        batch.executed(1);
        batch.suspend(2, SUSPENSION_MAX, START);
        assert_eq!(batch.waiting_inputs(), (1..3, START));
        let results = |count| Some(Ok(vec![InferenceResult::default(); count]));
        assert_eq!(batch.results(results(2), START).map(|results| results.len()).ok(), Some(2));
        assert!(matches!(
            batch.results(results(3), START),
            Err(SuspensionError::Count { inputs: 2, results: 3 })
        ));
        let failed = batch.results(Some(Err(SuspensionError::Dropped)), START);
        assert!(matches!(failed, Err(SuspensionError::Dropped)));
        let wait = Duration::from_millis(7);
        let late = batch.results(None, START + wait);
        assert!(matches!(late, Err(SuspensionError::TimedOut { waited }) if waited == wait));
        batch.passed(2);
        assert_eq!(batch.next_inputs(3, 8), None);
        assert!(batch.end_step() && batch.was_suspended(), "one input was executed here");
    }
}
