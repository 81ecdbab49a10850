//! Operations of a uniform group: each is followed by two barriers, and after a failure by the agreement on its outcome.

use std::sync::Arc;
use std::time::Duration;

use super::agreement::{Outcome, RankSet, time_max};
use super::group::MessageGroup;
use super::plan::OperationPlan;
use super::transport::Transport;
use crate::clock::{Ticks, pause};
use crate::{Call, CollectiveError};

/// Polling interval while waiting for the outcome.
const LOOK_EVERY: Duration = Duration::from_micros(200);

impl<T: Transport> MessageGroup<T> {
    /// Runs an operation of all ranks. If one fails meanwhile, it returns what the others return.
    pub(super) fn run_uniform(
        &mut self,
        call: Call,
        plan: Arc<OperationPlan>,
        input: Option<&[u8]>,
        output: &mut [u8],
    ) -> Result<(), CollectiveError> {
        match self.run_steps(call, plan, input, output) {
            Ok(()) => {}
            Err(error) => self.await_outcome(call, error)?,
        }
        let state = self.uniform_state.as_mut().expect("a uniform group");
        state.operations += 1;
        Ok(())
    }

    /// Runs the operation, a barrier after which all ranks have the result, and one after which all know that.
    fn run_steps(
        &mut self,
        call: Call,
        plan: Arc<OperationPlan>,
        input: Option<&[u8]>,
        output: &mut [u8],
    ) -> Result<(), CollectiveError> {
        self.run_plan(call, plan, input, output)?;
        self.advance(call)?;
        for _ in 0..2 {
            let barrier = Arc::clone(&self.uniform_state.as_ref().expect("a uniform group").barrier);
            self.execute(self.attempt(call), self.caller().barrier(), barrier, None, &mut [])?;
            self.advance(call)?;
        }
        Ok(())
    }

    /// Notes that the operation has come one step further. Fails if a rank has failed.
    fn advance(&self, call: Call) -> Result<(), CollectiveError> {
        let advanced = self.transport.health(|health| health.advance());
        advanced.map_err(|failure| self.attempt(call).failed(failure.rank, failure.cause))
    }

    /// Waits until the ranks have agreed on the outcome of an operation that has failed here. The thread that exchanges notices votes
    /// meanwhile.
    #[cold]
    fn await_outcome(&mut self, call: Call, error: CollectiveError) -> Result<(), CollectiveError> {
        let operation = self.uniform_state.as_ref().expect("a uniform group").operations;
        let (start, ranks) = (Ticks::now(), self.engine.ranks());
        let longest = time_max(ranks, self.settings().silence);
        loop {
            let outcome = self.transport.health(|health| {
                if Ticks::now().since(start) >= longest {
                    health.give_up();
                }
                health.outcome(operation)
            });
            match outcome {
                Some(Outcome::Done) => return Ok(()),
                Some(Outcome::Failed) => return Err(error),
                Some(Outcome::Isolated { reachable }) => return Err(isolated(reachable, ranks, call)),
                None => pause(LOOK_EVERY),
            }
        }
    }
}

fn isolated(reachable: RankSet, ranks: usize, call: Call) -> CollectiveError {
    CollectiveError::Isolated { reachable: reachable.iter().collect(), ranks, call }
}
