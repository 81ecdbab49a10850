//! Prepares a change: does everything that is slow or may be refused, so that applying is quick. Models are loaded and
//! probed, memory is planned, and outputs are opened.
//!
//! A start is the change from a board without streams, and takes the same way as a reload.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use orinoco_board::{Board, BoardModel, BoardStream};
use orinoco_config::{FaultList, Faults};
use orinoco_core::{Diagnosis, ModelId, StreamId};
use orinoco_infer::Scratch;
use orinoco_model::Repository;
use orinoco_pipeline::{BoundPlan, ModelHold};

use crate::LoadedModel;
use crate::action::{Action, ChangeKind};
use crate::admission::{Admission, AdmissionRequest, MemoryRequest, admit_reload, admit_start};
use crate::areas::PreparedAreas;
use crate::change::{Change, ModelFacts, StayingEntry};
use crate::checks::{check_joining, check_states};
use crate::model_entry::{ModelEntry, Origin};
use crate::model_version::{LanePlan, ModelVersion};
use crate::outputs::{ExistingOutputs, OpenSink, ReaderWait, TakenFiles, open_sinks};
use crate::placement::{LaneView, LaneViews};
use crate::planning::{Measured, measure_models, plan_start, scratch};
use crate::prepare_error::PrepareError;
use crate::process::trim_heap;
use crate::replacing::{StalePlan, have_same_results, stale_plans, too_large};
use crate::run_memory::{AdmittedMemory, RunMemory};
use crate::seats::{SeatExecutor, SeatModel};
use crate::shared::{Shared, collect};
use crate::stream::OpenStream;

/// Models that are bound for one lane, and that no stream has brought to it yet.
pub(crate) type Plans = BTreeMap<ModelId, BoundPlan>;

/// Action of a run.
pub(crate) type RunAction = Action<Box<Prepared>>;

/// State of a run from which a change starts.
pub(crate) struct RunningState {
    /// Running board: all known models, and the streams that were not asked to leave.
    pub(crate) running: Board,
    /// Models of that board, in its order.
    pub(crate) models: Vec<(ModelId, ModelEntry)>,
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
    pub(crate) models: BTreeMap<ModelId, ModelEntry>,
    pub(crate) joining: Vec<OpenStream>,
    /// Models that their lanes do not hold yet, by lane.
    pub(crate) plans: BTreeMap<usize, Plans>,
    /// Plans that lanes take in the place of others.
    pub(crate) replacing: Vec<ReplacingPlan>,
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

/// Plan that replaces another one on its lane.
pub(crate) struct ReplacingPlan {
    pub(crate) old: LanePlan,
    pub(crate) plan: BoundPlan,
}

/// Reason why a change was not prepared.
enum NotPrepared {
    /// It is refused.
    Refused(Faults),
    /// These running models, by their indices, cannot be replaced while streams use them. The change can be prepared with
    /// models of their own for the streams.
    Irreplaceable(BTreeSet<usize>),
}

impl From<Faults> for NotPrepared {
    fn from(faults: Faults) -> Self {
        Self::Refused(faults)
    }
}

impl From<PrepareError> for NotPrepared {
    fn from(error: PrepareError) -> Self {
        Self::Refused(error.into())
    }
}

impl From<Diagnosis> for NotPrepared {
    fn from(why: Diagnosis) -> Self {
        Self::Refused(why.into())
    }
}

/// Prepares the change from `base` to `board`. It takes as long as loading the models, and does not touch what runs. All
/// faults of one kind are reported together.
pub(crate) fn prepare(
    board: Board,
    base: RunningState,
    kind: ChangeKind,
    context: &Context,
) -> Result<Prepared, Faults> {
    let mut facts = model_facts(&board, &base.models, &context.repository)?;
    if kind == ChangeKind::Levels {
        let change = Change::between(&base.running, &board, &facts);
        let restarting = change.restarting_models(&base.running, &board);
        if !restarting.is_empty() {
            return Err(level_restarts(&base, &restarting).into());
        }
    }
    loop {
        match prepare_change(&board, &base, &facts, context) {
            Ok(prepared) => return Ok(prepared),
            Err(NotPrepared::Refused(faults)) => return Err(faults),
            Err(NotPrepared::Irreplaceable(models)) if kind == ChangeKind::Levels => {
                return Err(level_restarts(&base, &models).into());
            }
            Err(NotPrepared::Irreplaceable(models)) => {
                let before = facts.irreplaceable.len();
                facts.irreplaceable.extend(models);
                assert!(facts.irreplaceable.len() > before, "the same models are replaced again");
            }
        }
    }
}

/// Refuses levels for which streams that use these models would have to start again.
fn level_restarts(base: &RunningState, models: &BTreeSet<usize>) -> PrepareError {
    let names = models.iter().map(|model| base.models[*model].1.spec.name.clone());
    PrepareError::LevelRestarts { models: names.collect() }
}

/// Prepares the change once, with the models that can be replaced according to `facts`.
fn prepare_change(
    board: &Board,
    base: &RunningState,
    facts: &ModelFacts,
    context: &Context,
) -> Result<Prepared, NotPrepared> {
    let Context { shared, repository, .. } = context;
    let change = Change::between(&base.running, board, facts);
    refuse_fixed(board, &change)?;
    let new: Vec<&BoardStream> =
        change.streams.joining.iter().map(|stream| &board.streams[*stream]).collect();
    let new_models: Vec<_> = change.models.joining.iter().map(|model| &board.models[*model]).collect();
    check_joining(new.iter().copied(), &new_models, repository)?;
    let outputs = open_outputs(board, &new, base, context)?;

    let versions = model_versions(board, &change, &base.models, shared);
    let measured = measure(board, &change, base, context)?;
    let mut lanes = lanes_before(board, &change, base);
    let stale = stale_plans(&versions, &lanes);
    if let Some(measured) = &measured {
        refuse_replacing(base, &versions, too_large(&stale, measured, &lanes))?;
    }
    let to_admit = ModelsToAdmit { measured: measured.as_deref(), versions: &versions, stale: &stale };
    let Admission { lanes: placed, memory: admitted } =
        admit(board, &change, base, to_admit, &lanes, shared)?;
    let memory = admitted.map(|admitted| lanes.prepare_areas(admitted, context)).transpose()?;

    let mut models =
        Models::load(board, &change, &base.models, ListedModels { versions, measured }, context)?;
    shared.check_stop(board)?;
    refuse_replacing(base, &models.versions(), models.with_other_results(&change, base))?;
    check_states(&board.streams, &models.known())?;
    let (replacing, blind) = models.replace(&stale, &lanes, context)?;
    refuse_replacing(base, &models.versions(), blind)?;

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
    let leaving = change.streams.leaving.iter().map(|stream| base.streams[*stream].0).collect();
    let (board, models) = (board.clone(), models.into_known());
    Ok(Prepared { board, models, joining, plans, replacing, holds, leaving, memory })
}

/// Opens the outputs of the streams that join.
fn open_outputs(
    board: &Board,
    new: &[&BoardStream],
    base: &RunningState,
    context: &Context,
) -> Result<Vec<Vec<OpenSink>>, Faults> {
    let earlier = if base.lanes.is_none() { context.earlier } else { ExistingOutputs::Kept };
    let mut taken = TakenFiles::of_board(board, &context.repository);
    taken.extend(&context.own);
    taken.extend(&base.written);
    let shared = &context.shared;
    let readers = ReaderWait::new(&*shared.clock, &shared.stop);
    let opened = open_sinks(new.iter().copied(), &mut taken, &base.written, earlier, &readers);
    // A stop is no fault of an output that waited for its reader.
    shared.check_stop(board)?;
    Ok(opened?)
}

/// Measures the models of a board with a budget; those that stay keep their figures.
fn measure(
    board: &Board,
    change: &Change,
    base: &RunningState,
    context: &Context,
) -> Result<Option<Vec<Arc<Measured>>>, Faults> {
    let Context { shared, repository, .. } = context;
    let staying: BTreeMap<usize, usize> =
        change.models.staying.iter().map(|model| (model.wanted, model.running)).collect();
    let figures = |model: usize| base.models[*staying.get(&model)?].1.measured.clone();
    measure_models(board, figures, &shared.engines, repository, &*shared.events, &shared.stop)
}

/// Returns the lanes as the change finds them, with the numbers of streams that stay.
fn lanes_before(board: &Board, change: &Change, base: &RunningState) -> LaneViews {
    let mut lanes = base.lanes.clone().unwrap_or_else(|| first_lanes(board));
    for lane in change.streams.staying.iter().filter_map(|stream| base.streams[stream.running].1) {
        lanes.lanes[lane].streams += 1;
    }
    lanes
}

/// Models of a wanted board, as far as admission depends on them.
struct ModelsToAdmit<'a> {
    /// Measured memory, if the board has a budget.
    measured: Option<&'a [Arc<Measured>]>,
    versions: &'a [ModelVersion],
    /// Plans that lanes replace.
    stale: &'a [StalePlan],
}

/// Chooses the lanes of the streams that join, and admits the memory of the change.
fn admit(
    board: &Board,
    change: &Change,
    base: &RunningState,
    models: ModelsToAdmit<'_>,
    lanes: &LaneViews,
    shared: &Shared,
) -> Result<Admission, Diagnosis> {
    let ModelsToAdmit { measured, versions, stale } = models;
    let revisions: Vec<String> = versions.iter().map(|version| version.revision()).collect();
    let run = board.memory.map(|budget| {
        let run = base.memory.clone();
        run.unwrap_or_else(|| RunMemory::new(budget, board.lanes))
    });
    let replaced = change.replaced.iter().map(|model| model.wanted);
    let loaded: Vec<usize> = change.models.joining.iter().copied().chain(replaced).collect();
    let staying = change.streams.staying.iter().map(|stream| base.streams[stream.running].0);
    let asked = AdmissionRequest {
        board,
        joining: &change.streams.joining,
        staying: &staying.collect::<Vec<_>>(),
        memory: run.as_ref().zip(measured).map(|(run, measured)| MemoryRequest {
            run,
            measured,
            revisions: &revisions,
            loaded: &loaded,
            stale,
        }),
    };
    if base.lanes.is_none() {
        return admit_start(&asked, &*shared.events);
    }
    // A board may run only if it can also be started again.
    if let Some(measured) = measured {
        plan_start(board, measured, &*shared.events)?;
    }
    admit_reload(&asked, lanes, &*shared.events)
}

/// Refuses to replace models, by their indices on the wanted board, if there are any.
fn refuse_replacing(
    base: &RunningState,
    versions: &[ModelVersion],
    wanted: BTreeSet<usize>,
) -> Result<(), NotPrepared> {
    let running = |wanted: usize| base.models.iter().position(|(id, _)| *id == versions[wanted].id);
    let models: BTreeSet<usize> = wanted.into_iter().filter_map(running).collect();
    if models.is_empty() { Ok(()) } else { Err(NotPrepared::Irreplaceable(models)) }
}

/// Finds the known models that have changed on disk, among those that the board still names.
fn model_facts(
    board: &Board,
    known: &[(ModelId, ModelEntry)],
    repository: &Repository,
) -> Result<ModelFacts, Faults> {
    let (mut facts, mut faults) = (ModelFacts::default(), FaultList::default());
    for (index, (_, model)) in known.iter().enumerate() {
        if model.has_state {
            facts.stateful.insert(index);
        }
        if !board.models.iter().any(|wanted| wanted.has_same_plan(&model.spec)) {
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
fn refuse_fixed(board: &Board, change: &Change) -> Result<(), PrepareError> {
    match change.fixed_keys.first() {
        Some(key) => Err(PrepareError::FixedKey { board: board.name.clone(), key }),
        None => Ok(()),
    }
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

/// Returns the versions of the board's models: those that stay or are replaced keep their ids.
fn model_versions(
    board: &Board,
    change: &Change,
    known: &[(ModelId, ModelEntry)],
    shared: &Shared,
) -> Vec<ModelVersion> {
    let find = |entries: &[StayingEntry], index: usize| {
        let entry = entries.iter().find(|model| model.wanted == index)?;
        let (id, known) = &known[entry.running];
        Some(ModelVersion { id: *id, generation: known.generation })
    };
    let version = |index| {
        if let Some(stays) = find(&change.models.staying, index) {
            return stays;
        }
        match find(&change.replaced, index) {
            Some(old) => ModelVersion { generation: old.generation + 1, ..old },
            None => ModelVersion { id: shared.telemetry.next_model(), generation: 0 },
        }
    };
    (0..board.models.len()).map(version).collect()
}

/// Models of a wanted board, before they are loaded.
struct ListedModels {
    versions: Vec<ModelVersion>,
    /// Measured memory, if the board has a budget.
    measured: Option<Vec<Arc<Measured>>>,
}

/// Models of the wanted board, by their indices in it.
struct Models {
    all: Vec<BoardsModel>,
}

struct BoardsModel {
    version: ModelVersion,
    known: ModelEntry,
    /// Instance that was loaded for this change.
    loaded: Option<LoadedModel>,
}

impl Models {
    /// Loads the models that join and those that replace others. Those that stay are not touched.
    fn load(
        board: &Board,
        change: &Change,
        running: &[(ModelId, ModelEntry)],
        listed: ListedModels,
        context: &Context,
    ) -> Result<Self, Faults> {
        let ListedModels { versions, measured } = listed;
        let Context { shared, repository, .. } = context;
        let staying: BTreeMap<usize, usize> =
            change.models.staying.iter().map(|model| (model.wanted, model.running)).collect();
        let joining = change.streams.joining.iter().flat_map(|stream| &board.streams[*stream].models);
        let replaced = change.replaced.iter().map(|model| model.wanted);
        let used: BTreeSet<usize> = joining.copied().chain(replaced).collect();
        let make = |(index, spec): (usize, &BoardModel)| {
            let version = versions[index];
            if let Some(&stays) = staying.get(&index) {
                let known = ModelEntry { spec: spec.clone(), ..running[stays].1.clone() };
                return Ok(BoardsModel { version, known, loaded: None });
            }
            let (known, loaded) = match spec.is_loaded() {
                true => {
                    let (known, loaded) =
                        ModelEntry::load(spec, &shared.engines, repository, &*shared.events)?;
                    (known, Some(loaded))
                }
                false => (ModelEntry::of_seat(spec, repository)?, None),
            };
            let measured = measured.as_ref().map(|measured| Arc::clone(&measured[index]));
            // A model that no stream uses was probed, and is not kept in memory.
            let loaded = loaded.filter(|_| used.contains(&index));
            let known = ModelEntry { measured, generation: version.generation, ..known };
            Ok(BoardsModel { version, known, loaded })
        };
        let wanted = board.models.iter().enumerate().take_while(|_| !shared.stop.requested());
        Ok(Self { all: collect(wanted.map(make))? })
    }

    /// Returns those of the models that are to replace others and give other results, by their indices.
    fn with_other_results(&self, change: &Change, base: &RunningState) -> BTreeSet<usize> {
        let is_other = |model: &&StayingEntry| {
            !have_same_results(&base.models[model.running].1, &self.all[model.wanted].known)
        };
        change.replaced.iter().filter(is_other).map(|model| model.wanted).collect()
    }

    /// Binds the models that replace plans of lanes. Also returns those, by their indices, that do not read frames in video
    /// memory although the plan before them does.
    fn replace(
        &mut self,
        stale: &[StalePlan],
        lanes: &LaneViews,
        context: &Context,
    ) -> Result<(Vec<ReplacingPlan>, BTreeSet<usize>), Faults> {
        let (mut replacing, mut blind) = (Vec::new(), BTreeSet::new());
        for &StalePlan { plan: old, wanted } in stale {
            let view = &lanes.lanes[old.lane];
            let plan = self.all[wanted].bind(view.scratch.as_ref(), context)?;
            let reads = view.entry.as_ref().is_some_and(|entry| entry.reads_video_memory(old.model));
            if reads && !plan.executor.reads_video_memory() {
                blind.insert(wanted);
            }
            replacing.push(ReplacingPlan { old, plan });
        }
        Ok((replacing, blind))
    }

    fn versions(&self) -> Vec<ModelVersion> {
        self.all.iter().map(|model| model.version).collect()
    }

    fn known(&self) -> Vec<&ModelEntry> {
        self.all.iter().map(|model| &model.known).collect()
    }

    fn known_with_ids(&self) -> Vec<(ModelId, &ModelEntry)> {
        self.all.iter().map(|model| (model.version.id, &model.known)).collect()
    }

    fn into_known(self) -> BTreeMap<ModelId, ModelEntry> {
        self.all.into_iter().map(|model| (model.version.id, model.known)).collect()
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
            let id = model.version.id;
            let there = lane.entry.as_ref().and_then(|entry| entry.hold(id));
            if there.is_none() && !plans.contains_key(&id) {
                plans.insert(id, model.bind(lane.scratch.as_ref(), context)?);
            }
            holds.extend(there);
        }
        Ok(holds)
    }
}

impl BoardsModel {
    /// Binds the model for a lane that does not hold it, or holds an earlier generation.
    fn bind(&mut self, scratch: Option<&Scratch>, context: &Context) -> Result<BoundPlan, Faults> {
        let local = self.known.spec.is_loaded().then(|| self.bind_here(scratch, context)).transpose()?;
        let ModelEntry { spec, .. } = &self.known;
        let plan = match (local, &spec.seat) {
            (Some(plan), None) => plan,
            (local, seat) => {
                let seat = seat.as_ref().expect("a model that is not loaded has a seat");
                let ModelVersion { id, generation } = self.version;
                let (name, identity, batch) = (spec.name.as_str().into(), self.known.identity(), spec.batch);
                let model = SeatModel { name, id, spec: seat.clone(), identity, batch };
                let local = local.map(|plan| plan.executor);
                let executor = Box::new(SeatExecutor::new(model, local, &context.shared));
                BoundPlan { generation, ..BoundPlan::new(id, spec.name.clone(), executor) }
            }
        };
        Ok(BoundPlan { interval: spec.interval, ..plan })
    }

    /// Binds the model to an engine of this board.
    fn bind_here(&mut self, scratch: Option<&Scratch>, context: &Context) -> Result<BoundPlan, Faults> {
        let Context { shared, repository, .. } = context;
        if self.loaded.is_none() {
            let (now, again) =
                ModelEntry::load(&self.known.spec, &shared.engines, repository, &*shared.events)?;
            if now.origin != self.known.origin {
                return Err(PrepareError::FilesChanged { model: self.known.names.name.clone() }.into());
            }
            self.loaded = Some(again);
        }
        let loaded = self.loaded.as_mut().expect("it was loaded above");
        Ok(shared.bind(self.version, loaded, scratch)?)
    }
}
