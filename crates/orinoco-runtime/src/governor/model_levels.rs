//! Levels of the board's models: the governor asks the supervisor for others, which takes as long as loading a model.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

use orinoco_board::{BoardModel, ChosenLevels, GovernorActuator};
use orinoco_config::Faults;
use orinoco_core::{Diagnosis, Nanos, codes};

use crate::action::Action;
use crate::prepare::RunAction;
use crate::reloaded::{Reloaded, Reply};

/// Time after a refused choice until the next one.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// Level of a model to choose.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Choice {
    Interval(u32),
    Variant(String),
}

/// Chooses levels of models, one at a time. `T` is what the caller keeps about a choice until it is answered.
pub(super) struct ModelLevels<T> {
    actions: Sender<RunAction>,
    chosen: ChosenLevels,
    waiting: Option<Waiting<T>>,
    /// Time until which nothing is chosen, after a choice that was refused.
    refused_until: Nanos,
}

/// Choice that waits for its answer.
struct Waiting<T> {
    wanted: ChosenLevels,
    about: T,
    answer: Receiver<Result<Reloaded, Faults>>,
}

impl<T> ModelLevels<T> {
    pub(super) fn new(actions: Sender<RunAction>) -> Self {
        Self { actions, chosen: BTreeMap::new(), waiting: None, refused_until: Nanos(0) }
    }

    /// Returns the models of the board whose levels can be changed at `now`, as far as `allowed`.
    pub(super) fn models(
        &self,
        now: Nanos,
        board: Vec<BoardModel>,
        allowed: &[GovernorActuator],
    ) -> Vec<BoardModel> {
        if self.waiting.is_some() || now < self.refused_until {
            return Vec::new();
        }
        let allow = |mut model: BoardModel| {
            if !allowed.contains(&GovernorActuator::Interval) {
                model.levels.intervals.clear();
            }
            if !allowed.contains(&GovernorActuator::ModelVariant) {
                model.levels.variants.clear();
            }
            model
        };
        board.into_iter().map(allow).collect()
    }

    /// Whether a choice waits for its answer.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Asks for a level of a model. [`Self::answer`] returns `about` with the answer.
    pub(super) fn choose(&mut self, model: &str, choice: Choice, about: T) {
        let mut wanted = self.chosen.clone();
        let level = wanted.entry(model.to_owned()).or_default();
        match choice {
            Choice::Interval(interval) => level.interval = Some(interval),
            Choice::Variant(variant) => level.variant = Some(variant),
        }
        let (sender, answer) = channel();
        // Whoever asked may be gone when the answer comes.
        let reply = Reply::new(move |answer| drop(sender.send(answer)));
        // If the run is over, the reply is answered by its drop.
        let _ = self.actions.send(Action::ChooseLevels(wanted.clone(), reply));
        self.waiting = Some(Waiting { wanted, about, answer });
    }

    /// Returns the answer to the choice that waits for one, if it has come.
    pub(super) fn answer(&mut self, now: Nanos) -> Option<(T, Result<(), Diagnosis>)> {
        let waiting = self.waiting.as_ref()?;
        let answer = match waiting.answer.try_recv() {
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Err(lost()),
            Ok(Err(faults)) => Err(faults.first().clone()),
            // The supervisor keeps levels that were applied, also where a stream that was missing before could still not join.
            Ok(Ok(_)) => Ok(()),
        };
        let Waiting { wanted, about, .. } = self.waiting.take()?;
        match &answer {
            Ok(()) => self.chosen = wanted,
            Err(_) => self.refused_until = now + RETRY_AFTER,
        }
        Some((about, answer))
    }
}

fn lost() -> Diagnosis {
    Diagnosis::new(&codes::GOVERNOR_STEP, "[governor]", "the run has ended", "start the daemon again")
}
