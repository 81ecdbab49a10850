use std::time::Duration;

use orinoco_core::{Diagnosis, InferenceResult, Nanos, codes};
use orinoco_telemetry::MissCause;

/// Frames of one stream that a lane may hold because they, or frames before them, wait for an answer; one batch where
/// that is larger. Each holds a decoder's buffer, so few. When it is reached, further frames wait in the stream's ring, whose
/// policy drops some of them.
pub const SUSPENDED_FRAMES_MAX: usize = 8;

/// Longest time for which a batch waits for answers, all of its steps together. A stream that ends waits as long as its
/// frames do, and a later answer is of no use to a live one.
pub const SUSPENSION_MAX: Duration = Duration::from_secs(2);

/// Number of one suspension of a lane. None is given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(crate) u64);

/// Answer to a suspended step: a result for each of its inputs, or the reason why there are none.
pub type LateAnswer = Result<Vec<InferenceResult>, SuspensionError>;

/// Reason why a suspended step has no results.
#[derive(Clone, Debug)]
pub enum SuspensionError {
    /// Whoever infers its inputs refused them or failed.
    Remote {
        /// Cause for which the inputs are counted as missed.
        cause: MissCause,
        /// Fault of whoever was asked.
        why: Diagnosis,
    },
    /// The [`Suspension`](crate::Suspension) was dropped without an answer (`E0304`).
    Dropped,
    /// No answer came in time (`E0304`).
    TimedOut {
        /// Time for which the step waited.
        waited: Duration,
    },
    /// The answer does not have a result for each input (`E0304`).
    Count {
        /// Number of inputs that were sent.
        inputs: usize,
        /// Number of results that came back.
        results: usize,
    },
}

impl SuspensionError {
    /// Returns the cause for which the inputs of the step are counted as missed.
    pub fn cause(&self) -> MissCause {
        match self {
            Self::Remote { cause, .. } => *cause,
            // The lane gave up waiting, or nobody can answer any more.
            Self::Dropped | Self::TimedOut { .. } | Self::Count { .. } => MissCause::Late,
        }
    }

    /// Returns the fault of a step of `model` that a user sees.
    pub fn diagnosis(&self, model: &str) -> Diagnosis {
        let fault = |cause: String| {
            let next = "check the remote board that runs this model, and the connection to it";
            Diagnosis::new(&codes::ENGINE_RUN, format!("model {model}"), cause, next)
        };
        match self {
            Self::Remote { why, .. } => why.clone(),
            Self::Dropped => {
                let cause = "the remote inference ended without a result";
                let next = "see the events before this one";
                Diagnosis::new(&codes::ENGINE_RUN, "a suspended step", cause, next)
            }
            Self::TimedOut { waited } => fault(format!("no answer came within {} ms", waited.as_millis())),
            Self::Count { inputs, results } => {
                fault(format!("{inputs} inputs were sent, but {results} results came back"))
            }
        }
    }
}

/// The suspended steps of a lane, without threads.
#[derive(Default)]
pub(super) struct Suspensions {
    tickets: u64,
    waiting: Vec<Suspended>,
}

struct Suspended {
    ticket: Ticket,
    /// Time after which no answer is accepted; none before the lane has suspended the batch: the answer may be faster.
    until: Option<Nanos>,
    answer: Option<LateAnswer>,
}

impl Suspensions {
    /// Returns a new ticket, which can be answered from now on.
    pub(super) fn ticket(&mut self) -> Ticket {
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        self.waiting.push(Suspended { ticket, until: None, answer: None });
        ticket
    }

    /// Forgets a ticket, whose answer nobody needs.
    pub(super) fn forget(&mut self, ticket: Ticket) {
        self.waiting.retain(|suspended| suspended.ticket != ticket);
    }

    /// Lets a batch wait for the answer to a ticket, unless that was forgotten.
    pub(super) fn suspend(&mut self, ticket: Ticket, until: Nanos) {
        if let Some(suspended) = self.find(ticket) {
            suspended.until = Some(until);
        }
    }

    /// Forgets all tickets.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Accepts the answer to a ticket, unless it is too late or there is one.
    pub(super) fn resume(&mut self, ticket: Ticket, answer: LateAnswer) -> bool {
        let waits = self.find(ticket).filter(|suspended| suspended.answer.is_none());
        waits.map(|suspended| suspended.answer = Some(answer)).is_some()
    }

    /// Takes a ticket that was answered, with its answer, or one whose time has passed.
    pub(super) fn next(&mut self, now: Nanos) -> Option<(Ticket, Option<LateAnswer>)> {
        let is_due = |suspended: &Suspended| {
            suspended.until.is_some_and(|until| suspended.answer.is_some() || until <= now)
        };
        let due = self.waiting.iter().position(is_due)?;
        let Suspended { ticket, answer, .. } = self.waiting.remove(due);
        Some((ticket, answer))
    }

    /// Time at which the next ticket is given up.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.waiting.iter().filter_map(|suspended| suspended.until).min()
    }

    /// Number of tickets that can be answered.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    fn find(&mut self, ticket: Ticket) -> Option<&mut Suspended> {
        self.waiting.iter_mut().find(|suspended| suspended.ticket == ticket)
    }
}
