//! Prepares a change: does everything that is slow or may be refused, so that applying is quick. Models are loaded and
//! probed, memory is planned, and outputs are opened.
//!
//! A start is the change from a board without streams, and takes the same way as a reload.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use orinoco_board::{Board, BoardModel, BoardStream};
use orinoco_config::{FaultList, Faults};
use orinoco_core::{Diagnosis, ModelId, StreamId, codes};
use orinoco_infer::Scratch;
use orinoco_model::Repository;
use orinoco_pipeline::{BoundPlan, ModelHold};

use crate::LoadedModel;
use crate::admission::{Admission, AdmissionRequest, MemoryRequest, admit_reload, admit_start};
use crate::areas::PreparedAreas;
use crate::change::{Change, Difference, ModelFacts};
use crate::checks::{check_joining, check_states};
use crate::known::{KnownModel, Origin};
use crate::outputs::{ExistingOutputs, TakenFiles, open_sinks};
use crate::placement::{LaneView, LaneViews};
use crate::planning::{Measured, measure_models, plan_start, scratch};
use crate::process::trim_heap;
use crate::run_memory::{AdmittedMemory, RunMemory};
use crate::shared::{Shared, collect};
use crate::stream::OpenStream;

/// Models that are bound for one lane, and that no stream has brought to it yet.
pub(crate) type Plans = BTreeMap<ModelId, BoundPlan>;

/// State of a run from which a change starts.
pub(crate) struct RunningState {
    /// Running board: all known models, and the streams that were not asked to leave.
    pub(crate) running: Board,
    /// Models of that board, in its order.
    pub(crate) models: Vec<(ModelId, KnownModel)>,
    /// Streams of that board, in its order, each with its lane; `None` if the stream has ended.
    pub(crate) streams: Vec<(StreamId, Option<usize>)>,
    /// Lanes of the run; `None` before the start.
    pub(crate) lanes: Option<LaneViews>,
    /// Planned memory; `None` before the start, and if the board has no budget.
    pub(crate) memory: Option<RunMemory>,
    /// Files that this run writes or has written.
    pub(crate) written: TakenFiles,
}

impl RunningState {
    /// Makes the state without streams, from which `board` is started.
    pub(crate) fn empty(board: &Board) -> Self {
        let running = Board { models: Vec::new(), streams: Vec::new(), ..board.clone() };
        let written = TakenFiles::default();
        Self { running, models: Vec::new(), streams: Vec::new(), lanes: None, memory: None, written }
    }
}

/// Environment in which a change is prepared.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) shared: Shared,
    pub(crate) repository: Repository,
    /// Treatment of files of an earlier run.
    pub(crate) earlier: ExistingOutputs,
    /// Files that the caller writes.
    pub(crate) own: TakenFiles,
}

/// Change whose models were probed and whose outputs are open.
pub(crate) struct Prepared {
    pub(crate) board: Board,
    /// Models of the board.
    pub(crate) models: BTreeMap<ModelId, KnownModel>,
    pub(crate) joining: Vec<OpenStream>,
    /// Models that their lanes do not hold yet, by lane.
    pub(crate) plans: BTreeMap<usize, Plans>,
    /// Holds on models that lanes have already, so that they are still there when the streams join.
    pub(crate) holds: Vec<ModelHold>,
    pub(crate) leaving: Vec<StreamId>,
    /// Memory of the change, if the board has a budget.
    pub(crate) memory: Option<PreparedMemory>,
}

/// Memory of a prepared change.
pub(crate) struct PreparedMemory {
    pub(crate) admitted: AdmittedMemory,
    pub(crate) areas: PreparedAreas,
}

/// Prepares the change from `base` to `board`. It takes as long as loading the models, and does not touch what runs. All
/// faults of one kind are reported together.
pub(crate) fn prepare(board: Board, base: RunningState, context: &Context) -> Result<Prepared, Faults> {
    let Context { shared, repository, own, .. } = context;
    let RunningState { running, models: known, streams: on, lanes, memory, written } = base;
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
    let ids = model_ids(&board, &change, &known, shared);
    let figures: BTreeMap<usize, &KnownModel> =
        change.models.staying.iter().map(|model| (model.wanted, &known[model.running].1)).collect();
    let figures = |model: usize| figures.get(&model).and_then(|known| known.measured.clone());
    let measured =
        measure_models(&board, figures, &shared.engines, repository, &*shared.events, &shared.stop)?;

    let mut lanes = lanes.unwrap_or_else(|| first_lanes(&board));
    for lane in staying.iter().filter_map(|stream| on[stream.running].1) {
        lanes.lanes[lane].streams += 1;
    }
    let revisions: Vec<String> = ids.iter().map(|id| format!("model {id}")).collect();
    let before = board.memory.map(|budget| memory.unwrap_or_else(|| RunMemory::new(budget, board.lanes)));
    let asked = AdmissionRequest {
        board: &board,
        joining,
        staying: &staying.iter().map(|stream| on[stream.running].0).collect::<Vec<_>>(),
        memory: before.as_ref().zip(measured.as_deref()).map(|(run, measured)| MemoryRequest {
            run,
            measured,
            revisions: &revisions,
            loaded: &change.models.joining,
        }),
    };
    let admission = match is_start {
        true => admit_start(&asked, &*shared.events)?,
        false => {
            // A board may run only if it can also be started again.
            if let Some(measured) = &measured {
                plan_start(&board, measured, &*shared.events)?;
            }
            admit_reload(&asked, &lanes, &*shared.events)?
        }
    };
    let Admission { lanes: placed, memory: admitted } = admission;
    let memory = admitted.map(|admitted| lanes.prepare_areas(admitted, context)).transpose()?;

    let mut models = Models::load(&board, &change, ListedModels { running: known, ids, measured }, context)?;
    shared.check_stop(&board)?;
    check_states(&board.streams, &models.known())?;

    let (mut plans, mut holds) = (BTreeMap::new(), Vec::new());
    for (stream, &lane) in new.iter().zip(&placed) {
        let of_lane = plans.entry(lane).or_default();
        holds.extend(models.bring(stream, &lanes.lanes[lane], of_lane, context)?);
    }
    let placed = new.iter().copied().zip(placed);
    // Outputs are begun last, so that an earlier failure leaves none behind.
    let known = models.known_with_ids();
    let open = |((stream, lane), outputs)| OpenStream::new(stream, outputs, lane, &known, &shared.clock);
    let joining = collect(placed.zip(outputs).map(open))?;
    trim_heap();
    let leaving = leaving.iter().map(|stream| on[*stream].0).collect();
    let models = models.into_known();
    Ok(Prepared { board, models, joining, plans, holds, leaving, memory })
}

/// Finds the known models that have changed on disk, among those that the board still names.
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

/// Refuses changes that only a restart can make.
fn refuse_fixed(board: &Board, change: &Change) -> Result<(), Diagnosis> {
    let Some(key) = change.fixed_keys.first() else { return Ok(()) };
    let cause = format!("`{key}` has changed, but cannot change while the board runs");
    let next = "restart the daemon, or change it back";
    Err(Diagnosis::new(&codes::RELOAD, format!("board {}", board.name), cause, next))
}

/// Returns the lanes of a board that starts.
fn first_lanes(board: &Board) -> LaneViews {
    let lane = |_| LaneView { entry: None, scratch: None, streams: 0 };
    LaneViews { lanes: (0..board.lanes).map(lane).collect() }
}

impl LaneViews {
    /// Maps areas for the lanes that streams join and that have none.
    fn prepare_areas(
        &mut self,
        admitted: AdmittedMemory,
        context: &Context,
    ) -> Result<PreparedMemory, Diagnosis> {
        let mut areas = PreparedAreas::default();
        for (&lane, &scratch_size) in &admitted.areas {
            let view = &mut self.lanes[lane].scratch;
            match view {
                Some(scratch) => drop(areas.kept.insert(lane, scratch.clone())),
                None => {
                    let made = view.insert(scratch(scratch_size, &context.shared.engines.context)?);
                    areas.made.insert(lane, made.clone());
                }
            }
        }
        Ok(PreparedMemory { admitted, areas })
    }
}

/// Returns the ids of the board's models: those that stay keep their ids.
fn model_ids(
    board: &Board,
    change: &Change,
    known: &[(ModelId, KnownModel)],
    shared: &Shared,
) -> Vec<ModelId> {
    let staying = |index: usize| change.models.staying.iter().find(|model| model.wanted == index);
    let id = |index| match staying(index) {
        Some(model) => known[model.running].0,
        None => shared.telemetry.next_model(),
    };
    (0..board.models.len()).map(id).collect()
}

/// Models of a change, before those that join are loaded.
struct ListedModels {
    /// Models of the running board.
    running: Vec<(ModelId, KnownModel)>,
    /// Ids of the wanted board's models.
    ids: Vec<ModelId>,
    /// Measured memory of the wanted board's models, if it has a budget.
    measured: Option<Vec<Arc<Measured>>>,
}

/// Models of the wanted board, by their indices in it.
struct Models {
    all: Vec<BoardsModel>,
}

struct BoardsModel {
    id: ModelId,
    known: KnownModel,
    /// Instance that was loaded for this change.
    loaded: Option<LoadedModel>,
}

impl Models {
    /// Loads the models that join. Those that stay are not touched.
    fn load(board: &Board, change: &Change, listed: ListedModels, context: &Context) -> Result<Self, Faults> {
        let ListedModels { running, ids, measured } = listed;
        let Context { shared, repository, .. } = context;
        let staying: BTreeMap<usize, usize> =
            change.models.staying.iter().map(|model| (model.wanted, model.running)).collect();
        let joining = change.streams.joining.iter().flat_map(|stream| &board.streams[*stream].models);
        let used: BTreeSet<usize> = joining.copied().collect();
        let make = |(index, spec): (usize, &BoardModel)| {
            let id = ids[index];
            if let Some(&stays) = staying.get(&index) {
                return Ok(BoardsModel { id, known: running[stays].1.clone(), loaded: None });
            }
            let (known, loaded) = KnownModel::load(spec, &shared.engines, repository, &*shared.events)?;
            let measured = measured.as_ref().map(|measured| Arc::clone(&measured[index]));
            // A model that no stream uses was probed, and is not kept in memory.
            let loaded = used.contains(&index).then_some(loaded);
            Ok(BoardsModel { id, known: KnownModel { measured, ..known }, loaded })
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

    /// Holds the models of a stream that its lane has already, and adds plans of the others.
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
                let cause = "its files changed during the reload";
                let next = "reload the board file again";
                return Err(Diagnosis::new(&codes::RELOAD, subject, cause, next).into());
            }
            self.loaded = Some(again);
        }
        let loaded = self.loaded.as_mut().expect("it was loaded above");
        Ok(shared.bind(self.id, loaded, scratch)?)
    }
}
