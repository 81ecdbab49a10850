//! Memory plan of a board, made before a model is loaded. The needs of each model are measured once in a child process, and
//! cached. A board that does not fit its budget is refused before anything is allocated.

mod cache;
mod child;
mod measure;
mod needs;

use std::sync::Arc;

use orinoco_board::Board;
use orinoco_config::Faults;
use orinoco_core::text::mebibytes;
use orinoco_core::{Diagnosis, WithSubject, codes};
use orinoco_infer::{CacheUnavailable, EngineContext, Scratch};
use orinoco_memory::{Budget, ChangeRefused, NeedsFault, PeakRefused, Plan, Refused, plan};
use orinoco_model::Repository;
use orinoco_pipeline::Stop;
use orinoco_telemetry::{Event, EventSink};

pub use self::child::asked_to_measure;
pub use self::needs::planned_name;

pub(crate) use self::measure::Measured;
pub(crate) use self::needs::{model_needs, stream_memory};

use self::cache::find_or_measure;
use crate::BoardEngines;
use crate::available::available;
use crate::run_memory::needs_of;
use crate::scratch_size::ScratchSize;

/// Plans the memory of a board; `None` if its file has no budget. Ends with `E0702` soon after `stop` is requested.
pub fn plan_board(
    board: &Board,
    engines: &BoardEngines,
    repository: &Repository,
    events: &dyn EventSink,
    stop: &Stop,
) -> Result<Option<Plan>, Faults> {
    let measured = measure_models(board, |_| None, engines, repository, events, stop)?;
    Ok(measured.map(|measured| plan_start(board, &measured, events)).transpose()?)
}

/// Returns the measured memory of each model of a board, or `None` if it has no budget. Models for which `known` has
/// figures are not measured again.
pub(crate) fn measure_models(
    board: &Board,
    known: impl Fn(usize) -> Option<Arc<Measured>>,
    engines: &BoardEngines,
    repository: &Repository,
    events: &dyn EventSink,
    stop: &Stop,
) -> Result<Option<Vec<Arc<Measured>>>, Faults> {
    if board.memory.is_none() {
        return Ok(None);
    }
    if let Err(CacheUnavailable::Untrusted(why)) = engines.context.cache() {
        events.emit(Event::CacheRefused { why: why.clone() });
    }
    let measured = board.models.iter().enumerate().map(|(index, model)| {
        if let Some(known) = known(index) {
            return Ok(known);
        }
        if !model.is_loaded() {
            return Ok(Arc::new(Measured::of_seat()));
        }
        let found = find_or_measure(model, &board.inference, engines, repository, stop)?;
        found.map(Arc::new).ok_or_else(|| Faults::from(stopped(board)))
    });
    measured.collect::<Result<Vec<_>, Faults>>().map(Some)
}

/// Plans the memory of a board with a budget, with its streams on the lanes that a start assigns to them.
pub(crate) fn plan_start(
    board: &Board,
    measured: &[Arc<Measured>],
    events: &dyn EventSink,
) -> Result<Plan, Diagnosis> {
    let revision = |model: usize| format!("model {model}");
    let streams = board.streams.iter().enumerate();
    let streams = streams
        .map(|(index, stream)| stream_memory(board, stream, board.lane_of(index), measured, &revision));
    let needs = needs_of(board.lanes_used(), streams.collect(), None);
    let budget = Budget::Shared(board.memory.expect("the board has a budget"));
    let planned = plan(&needs.map_err(|fault| unsound(board, &fault))?, budget);
    planned.map_err(|why| refused(board, ChangeRefused::Needs(why), AfterRefusal::NothingRuns, events))
}

/// Effect of a refusal on the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterRefusal {
    /// Nothing runs, because the board was to be started.
    NothingRuns,
    /// The running board continues, and a restart would load the refused one.
    RunsOn,
}

/// Reports that the memory of a board is refused: emits the table as an event, and returns the fault with the smallest
/// change that fits.
pub(crate) fn refused(
    board: &Board,
    why: ChangeRefused,
    after: AfterRefusal,
    events: &dyn EventSink,
) -> Diagnosis {
    let why = Arc::new(why);
    let (limit, least, when, suggestion) = match &*why {
        ChangeRefused::Needs(refused) => {
            let Refused { plan, suggestion } = &**refused;
            (plan.budget, plan.spent(), "", suggestion)
        }
        ChangeRefused::Peak(refused) => {
            let PeakRefused { change, suggestion } = &**refused;
            (change.after.budget, change.peak(), " during the reload", suggestion)
        }
    };
    let (Budget::Shared(limit), Budget::Shared(least)) = (limit, least) else {
        unreachable!("boards have one budget")
    };
    events.emit(Event::MemoryRefused {
        needed_bytes: least,
        budget_bytes: limit,
        refused: Arc::<ChangeRefused>::clone(&why),
    });
    let (excess, limit) = (mebibytes(least.saturating_sub(limit)), mebibytes(limit));
    let cause = format!("it is {excess} over its memory budget of {limit}{when}");
    let next = match (suggestion, after) {
        (Some(suggestion), AfterRefusal::NothingRuns) => suggestion.change.to_string(),
        (Some(suggestion), AfterRefusal::RunsOn) => {
            format!("{}, or restart the daemon: the new board fits on its own", suggestion.change)
        }
        (None, AfterRefusal::NothingRuns) => {
            format!("set budget = \"{} MiB\" or more", least.div_ceil(1 << 20))
        }
        (None, AfterRefusal::RunsOn) => "restart the daemon: the new board alone fits".to_owned(),
    };
    Diagnosis::new(&codes::MEMORY_BUDGET, format!("board {}", board.name), cause, next)
}

/// Reports needs that are inconsistent, so that no plan can be made for them.
pub(crate) fn unsound(board: &Board, fault: &NeedsFault) -> Diagnosis {
    let next = "correct the board file";
    Diagnosis::new(&codes::MEMORY_BUDGET, format!("board {}", board.name), fault.to_string(), next)
}

/// Maps the scratch area of a lane.
pub(crate) fn scratch(scratch_size: ScratchSize, context: &EngineContext) -> Result<Scratch, Diagnosis> {
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let made = || -> Result<Scratch, String> {
        // A lane whose models compute elsewhere still gets a page, so that every lane is treated alike.
        let scratch =
            Scratch::new(bytes(scratch_size.host_bytes.max(1))).map_err(|why| match available() {
                Some(available) => format!("{why} failed: {available}"),
                None => why.to_string(),
            })?;
        match bytes(scratch_size.device_bytes) {
            0 => Ok(scratch),
            bytes => scratch.with_device_area(context, bytes),
        }
    };
    made().about(&codes::MEMORY_BUDGET, "the scratch area", "free some memory, or lower the budget")
}

/// Makes the fault of a board that was stopped before it ran.
pub(crate) fn stopped(board: &Board) -> Diagnosis {
    let (subject, cause) = (format!("board {}", board.name), "it was stopped before it started");
    Diagnosis::new(&codes::STOPPED, subject, cause, "start it again")
}
