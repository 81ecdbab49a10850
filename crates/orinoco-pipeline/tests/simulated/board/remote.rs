//! Another board, which answers for models of the lanes: soon, late or never, and in any order.

use std::time::Duration;

use orinoco_core::{InferenceResult, Nanos};
use orinoco_pipeline::{AnswerSender, LateAnswer, SuspensionError, Ticket};
use orinoco_sim::Task;

use super::{Board, millis};

pub(crate) struct Remote {
    pub(crate) task: Task,
    jobs: Vec<Job>,
    /// Steps that it answered, and answers that came too late.
    pub(crate) answered: u64,
    pub(crate) late: u64,
}

struct Job {
    due: Nanos,
    work: Work,
}

enum Work {
    /// Results for a step of this lane.
    Step(usize, Ticket, LateAnswer),
    /// The last part of an answer to a request; dropped without one if false.
    Request(AnswerSender, bool),
}

impl Remote {
    pub(crate) fn new(task: Task) -> Self {
        Self { task, jobs: Vec::new(), answered: 0, late: 0 }
    }

    /// Whether no answer is left to give.
    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }
}

/// Returns results of so many images, or a fault.
pub(crate) fn answer(images: usize, is_fault: bool) -> LateAnswer {
    if is_fault { Err(SuspensionError::Dropped) } else { Ok(vec![InferenceResult::default(); images]) }
}

impl Board<'_> {
    /// Sends a step of a lane to the other board, which may never answer.
    pub(crate) fn send_step(&mut self, lane: usize, ticket: Ticket, images: usize) {
        let (now, rng) = (self.simulator.now(), self.simulator.rng());
        let delay = match rng.u32(..10) {
            0 => return,
            1 => millis(rng, 1000..4000),
            2..5 => millis(rng, 100..1000),
            _ => millis(rng, 1..100),
        };
        // Sometimes a fault, sometimes one result too many.
        let answer = match rng.u32(..24) {
            0..2 => answer(images, true),
            2 => answer(images + 1, false),
            _ => answer(images, false),
        };
        self.send(now + delay, Work::Step(lane, ticket, answer));
    }

    /// Leaves the answer to a request to the other board.
    pub(crate) fn send_request(&mut self, answers: AnswerSender) {
        let (now, rng) = (self.simulator.now(), self.simulator.rng());
        let (delay, is_answered) = (millis(rng, 1..3000), rng.u32(..5) > 0);
        self.send(now + delay, Work::Request(answers, is_answered));
    }

    fn send(&mut self, due: Nanos, work: Work) {
        self.remote.jobs.push(Job { due, work });
        self.simulator.notify(self.remote.task);
    }

    pub(crate) fn step_remote(&mut self) {
        let now = self.simulator.now();
        let due: Vec<Job> = self.remote.jobs.extract_if(.., |job| job.due <= now).collect();
        for Job { work, .. } in due {
            match work {
                Work::Step(lane, ticket, answer) => {
                    let lane = &mut self.lanes[lane];
                    let waits =
                        lane.batches.suspended().any(|(waiting, _)| waiting == ticket) && !lane.is_closed;
                    assert_eq!(lane.mux.resume(ticket, answer), waits, "{ticket:?}");
                    self.simulator.notify(lane.task);
                    self.remote.answered += u64::from(waits);
                    self.remote.late += u64::from(!waits);
                }
                Work::Request(answers, true) => answers.last(Vec::new()),
                Work::Request(answers, false) => drop(answers),
            }
        }
        let next = self.remote.jobs.iter().map(|job| job.due).min();
        self.simulator.wait(self.remote.task, next.map(|due| due.max(now + Duration::from_nanos(1))));
    }
}
