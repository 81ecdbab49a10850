//! Steps whose answer comes later, from another thread.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use orinoco_core::Nanos;

use crate::SUSPENSION_MAX;
use crate::mux::{LateAnswer, Mux, SuspensionError, Ticket};

/// A lane's offer to wait for an answer while it goes on with other batches.
pub struct Suspender<'a> {
    mux: &'a Arc<Mux>,
    /// Time until which the batch may wait, if it has waited before.
    until: Option<Nanos>,
    ticket: Option<Ticket>,
}

impl<'a> Suspender<'a> {
    /// Makes the offer of a lane with this mux, for a batch that may wait for answers until then. `None`: it has not waited yet.
    pub fn new(mux: &'a Arc<Mux>, until: Option<Nanos>) -> Self {
        Self { mux, until, ticket: None }
    }

    /// Returns the longest time for which the step can wait from `now` on: [`SUSPENSION_MAX`] less the time since the batch
    /// waited for its first answer.
    pub fn time_left(&self, now: Nanos) -> Duration {
        self.until.map_or(SUSPENSION_MAX, |until| until.since(now))
    }

    /// Returns the place of an answer that comes later. Whoever asks for it returns [`Executed::Suspended`], or the place
    /// has no use.
    ///
    /// [`Executed::Suspended`]: crate::Executed::Suspended
    pub fn suspend(&mut self) -> Suspension {
        assert!(self.ticket.is_none(), "a step is suspended once at a time");
        let ticket = self.mux.ticket();
        self.ticket = Some(ticket);
        Suspension { mux: Arc::clone(self.mux), ticket, is_answered: false }
    }

    /// Returns the ticket of the suspended step, if it is one.
    pub(crate) fn take(&mut self) -> Option<Ticket> {
        self.ticket.take()
    }
}

impl fmt::Debug for Suspender<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Suspender({:?})", self.ticket)
    }
}

/// The place of an answer to a suspended step. Dropping it is an answer, too: a fault.
pub struct Suspension {
    mux: Arc<Mux>,
    ticket: Ticket,
    is_answered: bool,
}

impl Suspension {
    /// Number of the suspension on its lane.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Resumes the step: with as many results as it has inputs, or with the reason why there are none. Returns whether the
    /// lane still waits.
    pub fn resume(mut self, answer: LateAnswer) -> bool {
        self.is_answered = true;
        self.mux.resume(self.ticket, answer)
    }
}

impl Drop for Suspension {
    fn drop(&mut self) {
        if !self.is_answered {
            self.mux.resume(self.ticket, Err(SuspensionError::Dropped));
        }
    }
}

impl fmt::Debug for Suspension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Suspension({:?})", self.ticket)
    }
}
