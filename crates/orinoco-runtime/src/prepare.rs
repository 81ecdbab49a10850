//! Preparing a change: what is slow or may be refused, so that applying it is quick. Models are loaded and probed, memory is
//! planned, outputs are opened.
//!
//! A start is the change of a board without streams, and goes the same way as a reload.

use std::collections::{BTreeMap, BTreeSet};

use orinoco_board::{Board, BoardStream};
use orinoco_config::{FaultList, Faults};
use orinoco_core::{Diagnosis, ModelId, StreamId, codes};
use orinoco_infer::Scratch;
use orinoco_model::Repository;
use orinoco_pipeline::{BoundPlan, ModelHold};

use crate::LoadedModel;
use crate::change::{Change, Difference, ModelFacts};
use crate::checks::{check_joining, check_states};
use crate::known::{KnownModel, Origin};
use crate::outputs::{ExistingOutputs, TakenFiles, open_sinks};
use crate::placement::{LaneView, LaneViews};
use crate::planning::{Planned, ScratchSize, plan_with_scratch_sizes, scratches};
use crate::process::trim_heap;
use crate::shared::{Shared, collect};
use crate::stream::OpenStream;

/// Models bound for one lane that no stream has brought to it yet.
pub(crate) type Plans = BTreeMap<ModelId, BoundPlan>;

/// The state of a run from which a change starts.
pub(crate) struct RunningState {
    /// The board that runs: all models that are known, and the streams that have not been asked to leave.
    pub(crate) running: Board,
    /// Its models, in its order.
    pub(crate) models: Vec<(ModelId, KnownModel)>,
    /// Its streams, in its order, each with its lane unless it has ended.
    pub(crate) streams: Vec<(StreamId, Option<usize>)>,
    /// Its lanes; none before the start.
    pub(crate) lanes: Option<LaneViews>,
    /// Files that this run writes or has written.
    pub(crate) written: TakenFiles,
}

impl RunningState {
    /// The board without streams, on which `board` is started.
    pub(crate) fn empty(board: &Board) -> Self {
        let running = Board { models: Vec::new(), streams: Vec::new(), ..board.clone() };
        let written = TakenFiles::default();
        Self { running, models: Vec::new(), streams: Vec::new(), lanes: None, written }
    }
}

/// What a change is prepared with.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) shared: Shared,
    pub(crate) repository: Repository,
    /// Whether files of an earlier run are overwritten.
    pub(crate) earlier: ExistingOutputs,
    /// Files that the caller writes.
    pub(crate) own: TakenFiles,
}

/// A change whose models were probed and whose outputs are open.
pub(crate) struct Prepared {
    pub(crate) board: Board,
    /// The models of the board.
    pub(crate) models: BTreeMap<ModelId, KnownModel>,
    pub(crate) joining: Vec<OpenStream>,
    /// Models that lanes do not hold yet, by lane.
    pub(crate) plans: BTreeMap<usize, Plans>,
    /// Models that lanes hold already, so that they are there when the streams join.
    pub(crate) holds: Vec<ModelHold>,
    pub(crate) leaving: Vec<StreamId>,
    /// The planned memory, where this is the start of a board with a budget.
    pub(crate) memory: Option<Planned>,
}

/// Prepares the change from `base` to `board`. Takes as long as loading models takes; what runs is not touched. All faults
/// of one kind come together.
pub(crate) fn prepare(board: Board, base: RunningState, context: &Context) -> Result<Prepared, Faults> {
    let Context { shared, repository, own, .. } = context;
    let RunningState { running, models: known, streams: on, lanes, written } = base;
    let is_start = lanes.is_none();
    let facts = model_facts(&board, &known, repository)?;
    let change = Change::between(&running, &board, &facts);
    refuse_fixed(&board, &change)?;
    let Difference { joining, leaving, staying } = &change.streams;
    let new: Vec<&BoardStream> = joining.iter().map(|stream| &board.streams[*stream]).collect();
    let new_models: Vec<_> = change.models.joining.iter().map(|model| &board.models[*model]).collect();
    check_joining(new.iter().copied(), &new_models, repository)?;

    let mut taken = TakenFiles::of_board(&board, repository);
    taken.extend(own);
    taken.extend(&written);
    let earlier = if is_start { context.earlier } else { ExistingOutputs::Kept };
    let outputs = open_sinks(new.iter().copied(), &mut taken, &written, earlier)?;
    let planned =
        plan_with_scratch_sizes(&board, &shared.engines, repository, &*shared.events, &shared.stop)?;
    let (plan, scratch_sizes) = planned.unzip();
    let scratch_sizes = scratch_sizes.unwrap_or_else(|| vec![ScratchSize::default(); board.models.len()]);

    let mut models = Models::load(&board, &change, known, context)?;
    shared.check_stop(&board)?;
    check_states(&board.streams, &models.known())?;

    let memory = match plan.filter(|_| is_start) {
        Some(plan) => {
            let scratches = scratches(&plan, board.lanes_used(), &shared.engines.context)?;
            Some(Planned { plan, scratches })
        }
        None => None,
    };
    let mut lanes = lanes.unwrap_or_else(|| first_lanes(&board, memory.as_ref()));
    for lane in staying.iter().filter_map(|stream| on[stream.running].1) {
        lanes.lanes[lane].streams += 1;
    }
    let (mut plans, mut holds, mut placed) = (BTreeMap::new(), Vec::new(), Vec::new());
    for (&index, stream) in joining.iter().zip(&new) {
        let needed = stream
            .models
            .iter()
            .map(|model| scratch_sizes[*model])
            .fold(ScratchSize::default(), ScratchSize::or);
        // The memory plan of a start counts on streams being dealt as the board says.
        let lane = if is_start { board.lane_of(index) } else { lanes.choose(stream, needed)? };
        let of_lane = plans.entry(lane).or_default();
        holds.extend(models.bring(stream, &lanes.lanes[lane], of_lane, context)?);
        placed.push((*stream, lane));
    }
    // Last, since it begins the outputs: what fails before leaves none behind.
    let known = models.known_with_ids();
    let open = |((stream, lane), outputs)| OpenStream::new(stream, outputs, lane, &known, &shared.clock);
    let joining = collect(placed.into_iter().zip(outputs).map(open))?;
    trim_heap();
    let leaving = leaving.iter().map(|stream| on[*stream].0).collect();
    let models = models.into_known();
    Ok(Prepared { board, models, joining, plans, holds, leaving, memory })
}

/// Looks up which of the known models have changed on disk, of those that the board still names.
fn model_facts(
    board: &Board,
    known: &[(ModelId, KnownModel)],
    repository: &Repository,
) -> Result<ModelFacts, Faults> {
    let (mut facts, mut faults) = (ModelFacts::default(), FaultList::default());
    for (index, (_, model)) in known.iter().enumerate() {
        if model.has_state {
            facts.stateful.insert(index);
        }
        if !board.models.contains(&model.spec) {
            continue;
        }
        let now = faults.value_of(Origin::of(&model.spec, repository));
        if now.is_some_and(|now| now != model.origin) {
            facts.changed.insert(index);
        }
    }
    faults.finish(facts)
}

/// Refuses what only a restart can change.
fn refuse_fixed(board: &Board, change: &Change) -> Result<(), Diagnosis> {
    let Some(key) = change.fixed_keys.first() else { return Ok(()) };
    let cause = format!("`{key}` has changed, but cannot change while the board runs");
    let next = "restart the daemon, or change it back";
    Err(Diagnosis::new(&codes::RELOAD, format!("board {}", board.name), cause, next))
}

/// The lanes of a board that starts.
fn first_lanes(board: &Board, memory: Option<&Planned>) -> LaneViews {
    let scratch = |lane: usize| memory.and_then(|memory| memory.scratches.get(lane)).cloned();
    let lanes = (0..board.lanes).map(|lane| LaneView { entry: None, scratch: scratch(lane), streams: 0 });
    LaneViews { lanes: lanes.collect(), is_planned: memory.is_some() }
}

/// The models of the wanted board, by their indices in it.
struct Models {
    all: Vec<BoardsModel>,
}

struct BoardsModel {
    id: ModelId,
    known: KnownModel,
    /// Loaded for this change.
    loaded: Option<LoadedModel>,
}

impl Models {
    /// Loads the models that join. Those that stay are as they were.
    fn load(
        board: &Board,
        change: &Change,
        running: Vec<(ModelId, KnownModel)>,
        context: &Context,
    ) -> Result<Self, Faults> {
        let Context { shared, repository, .. } = context;
        let staying: BTreeMap<usize, usize> =
            change.models.staying.iter().map(|model| (model.wanted, model.running)).collect();
        let make = |(index, spec)| match staying.get(&index) {
            Some(&stays) => {
                let (id, known) = running[stays].clone();
                Ok(BoardsModel { id, known, loaded: None })
            }
            None => {
                let (known, loaded) = KnownModel::load(spec, &shared.engines, repository, &*shared.events)?;
                Ok(BoardsModel { id: shared.telemetry.next_model(), known, loaded: Some(loaded) })
            }
        };
        let wanted = board.models.iter().enumerate().take_while(|_| !shared.stop.requested());
        Ok(Self { all: collect(wanted.map(make))? })
    }

    fn known(&self) -> Vec<&KnownModel> {
        self.all.iter().map(|model| &model.known).collect()
    }

    fn known_with_ids(&self) -> Vec<(ModelId, &KnownModel)> {
        self.all.iter().map(|model| (model.id, &model.known)).collect()
    }

    fn into_known(self) -> BTreeMap<ModelId, KnownModel> {
        self.all.into_iter().map(|model| (model.id, model.known)).collect()
    }

    /// Holds those of a stream's models that its lane has, and adds plans of the others.
    fn bring(
        &mut self,
        stream: &BoardStream,
        lane: &LaneView,
        plans: &mut Plans,
        context: &Context,
    ) -> Result<Vec<ModelHold>, Faults> {
        let mut holds = Vec::new();
        let wanted: BTreeSet<usize> = stream.models.iter().copied().collect();
        for index in wanted {
            let model = &mut self.all[index];
            let there = lane.entry.as_ref().and_then(|entry| entry.hold(model.id));
            if there.is_none() && !plans.contains_key(&model.id) {
                plans.insert(model.id, model.bind(lane.scratch.as_ref(), context)?);
            }
            holds.extend(there);
        }
        Ok(holds)
    }
}

impl BoardsModel {
    /// Binds the model for a lane that does not hold it.
    fn bind(&mut self, scratch: Option<&Scratch>, context: &Context) -> Result<BoundPlan, Faults> {
        let Context { shared, repository, .. } = context;
        if self.loaded.is_none() {
            let (now, again) =
                KnownModel::load(&self.known.spec, &shared.engines, repository, &*shared.events)?;
            if now.origin != self.known.origin {
                let subject = format!("model {}", self.known.names.name);
                let cause = "its files have changed just now";
                let next = "reload the board file again";
                return Err(Diagnosis::new(&codes::RELOAD, subject, cause, next).into());
            }
            self.loaded = Some(again);
        }
        let loaded = self.loaded.as_mut().expect("it was loaded above");
        Ok(shared.bind(self.id, loaded, scratch)?)
    }
}
