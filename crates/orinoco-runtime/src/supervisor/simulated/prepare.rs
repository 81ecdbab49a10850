//! Preparing and applying changes, with the product's comparison of boards, placement and rules.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use orinoco_board::{Board, BoardModel, BoardStream};
use orinoco_config::Faults;
use orinoco_core::{Diagnosis, ModelId, Nanos, StreamId};
use orinoco_infer::Scratch;
use orinoco_pipeline::{JoinError, PlanFacts, StreamModels};
use orinoco_sim::Task;

use super::boards::{has_state, scratch_bytes};
use super::run::{Resource, Role, Run, Weather};
use super::threads::{Books, Habits, Lane, ModelHold, SimPlan, Stream, Thread, fault, up_to};
use crate::action::{Action, Applied, ChangeKind, Joined, Replaced};
use crate::apply::{Host, JoinFailure, apply};
use crate::change::{Change, ModelFacts, StayingEntry};
use crate::model_version::LanePlan;
use crate::placement::{LaneView, LaneViews, NewAreas, NoLane};
use crate::running_board::RunningBoard;
use crate::scratch_size::ScratchSize;

/// Maximum time in which a change is prepared, except for measuring its models.
pub(super) const PREPARE_MAX: Duration = Duration::from_secs(8);
/// Maximum time in which the models of a change are measured.
const MEASURE_MAX: Duration = Duration::from_secs(600);

/// Model that was loaded.
#[derive(Clone)]
pub(super) struct SimModel {
    pub(super) spec: BoardModel,
    pub(super) plan: SimPlan,
    _resource: Resource,
}

impl AsRef<BoardModel> for SimModel {
    fn as_ref(&self) -> &BoardModel {
        &self.spec
    }
}

/// Prepared change.
pub(super) struct Prepared {
    board: Board,
    models: BTreeMap<ModelId, SimModel>,
    joining: Vec<OpenStream>,
    plans: BTreeMap<usize, BTreeMap<ModelId, Resource>>,
    /// Plans that lanes replace, and the models in whose place they come.
    replacing: Vec<(LanePlan, SimModel)>,
    holds: Vec<ModelHold>,
    leaving: Vec<StreamId>,
}

pub(super) struct OpenStream {
    spec: BoardStream,
    models: Vec<ModelId>,
    lane: usize,
    resource: Resource,
}

/// State from which a change starts.
struct RunningState {
    running: Board,
    models: Vec<(ModelId, SimModel)>,
    streams: Vec<(StreamId, Option<usize>)>,
    views: LaneViews,
    books: Vec<Option<Books>>,
}

/// Thread that prepares a change.
pub(super) struct Worker {
    task: Task,
    doing: Work,
    began: Nanos,
    /// Times at which measuring began and ends, if models are measured.
    measures: Option<(Nanos, Nanos)>,
    is_cancelled: bool,
}

enum Work {
    Loads(Box<(Board, RunningState, ChangeKind)>),
    /// Reports the result; everything is loaded and held.
    Reports(Box<Result<Prepared, Faults>>),
    Ended,
}

impl Run<'_> {
    /// Prepares and applies the first change.
    pub(super) fn launch(&mut self, board: Board) -> Applied {
        let running = Board { models: Vec::new(), streams: Vec::new(), ..board.clone() };
        if board.memory.is_some() {
            let lane_bytes = |lane| {
                let streams =
                    board.streams.iter().enumerate().filter(|(index, _)| board.lane_of(*index) == lane);
                let needed =
                    streams.map(|(_, stream)| scratch_size(&board, stream).host_bytes).max().unwrap_or(0);
                usize::try_from(needed).expect("it is small").max(1)
            };
            let areas =
                (0..board.lanes_used()).map(|lane| Scratch::new(lane_bytes(lane)).expect("there is memory"));
            self.scratches = areas.collect();
        }
        let base = RunningState {
            running,
            models: Vec::new(),
            streams: Vec::new(),
            views: self.views(),
            books: self.books(),
        };
        let dealt: Vec<usize> = (0..board.streams.len()).map(|stream| board.lane_of(stream)).collect();
        let lane = |index: usize, _: &mut LaneViews, _: &BoardStream, _: ScratchSize| Ok(dealt[index]);
        let prepared =
            self.change(board, base, ChangeKind::Board, lane).unwrap_or_else(|why| panic!("{why}"));
        self.apply(prepared)
    }

    /// Starts to prepare a change.
    pub(super) fn prepare(&mut self, board: Board, kind: ChangeKind) -> Result<(), Diagnosis> {
        assert!(self.worker.is_none(), "two changes are prepared at one time");
        if self.is_unlucky(200) {
            return Err(fault("reload", "no thread is left"));
        }
        let supervisor = self.supervisor.as_ref().expect("it runs");
        let streams: Vec<(StreamId, Option<usize>)> = supervisor.running().collect();
        let of_streams = streams.iter().map(|(id, _)| {
            let stream = &self.streams[id];
            (&stream.spec, &stream.models[..])
        });
        let (running, models) = self.board.with_streams(of_streams);
        let base = RunningState { running, models, streams, views: self.views(), books: self.books() };
        // The models of the running board were measured before, unless their files have changed.
        let change = supervisor.change.as_ref().expect("it is prepared");
        let is_other = change.board.is_some() || change.levels.is_some();
        let may_measure = is_other || !self.model_facts(&board, &base.models).changed.is_empty();
        let (now, task) = (self.simulator.now(), self.add_task(Role::Worker));
        let measures = (may_measure && self.is_unlucky(8))
            .then(|| (now, now + up_to(self.simulator.rng(), MEASURE_MAX)));
        match measures {
            Some((_, until)) => self.simulator.wait(task, Some(until)),
            None => {
                let time = up_to(self.simulator.rng(), PREPARE_MAX / 2);
                self.simulator.work(task, now + time);
            }
        }
        let doing = Work::Loads(Box::new((board, base, kind)));
        self.worker = Some(Worker { task, doing, began: now, measures, is_cancelled: false });
        Ok(())
    }

    /// Asks the thread that prepares a change to give up. It notices unless everything is loaded.
    pub(super) fn cancel_preparation(&mut self) {
        let worker = self.worker.as_mut().expect("only what is prepared is cancelled");
        assert!(!worker.is_cancelled, "a preparation is cancelled once");
        worker.is_cancelled = true;
        self.seen.cancelled += 1;
        self.simulator.note(|| "the preparation is cancelled".to_owned());
        self.wake_worker();
    }

    /// Lets the thread that prepares a change look whether it has to give up.
    pub(super) fn wake_worker(&mut self) {
        if let Some(worker) = self.worker.as_ref().filter(|worker| !matches!(worker.doing, Work::Ended)) {
            self.simulator.notify(worker.task);
        }
    }

    /// Whether models are being measured.
    pub(super) fn measures(&self) -> bool {
        self.worker.as_ref().is_some_and(|worker| worker.measures.is_some())
    }

    /// Notes the end of a preparation, for the lanes that wait to be restarted.
    pub(super) fn note_prepared(&mut self, succeeded: bool) {
        let worker = self.worker.take();
        if !succeeded && !worker.as_ref().is_some_and(|worker| worker.is_cancelled) {
            self.excuse_restart(self.simulator.now());
        }
        let began = worker.filter(|_| succeeded).map(|worker| worker.began);
        let failed = self.seen.restarting.map(|restarting| restarting.failed);
        self.seen.restarts_now = failed.is_some() && began >= failed;
    }

    /// Notes that lanes could not be restarted before now.
    pub(super) fn excuse_restart(&mut self, now: Nanos) {
        if let Some(restarting) = &mut self.seen.restarting {
            restarting.since = now;
        }
    }

    /// Returns the time for which models were measured, with that of the preparation at work.
    pub(super) fn measured(&self) -> Duration {
        let began = self.worker.as_ref().and_then(|worker| worker.measures);
        self.seen.measured + began.map_or(Duration::ZERO, |(began, _)| self.simulator.now().since(began))
    }

    pub(super) fn step_worker(&mut self, task: Task) {
        let Some(worker) = self.worker.as_mut().filter(|worker| worker.task == task) else { return };
        let now = self.simulator.now();
        if let Some((began, until)) = worker.measures {
            if now < until && !worker.is_cancelled && !self.stop_all {
                return self.simulator.wait(task, Some(until));
            }
            worker.measures = None;
            self.seen.measured += now.since(began);
            if let Some(restarting) = self.seen.restarting.as_mut().filter(|_| !worker.is_cancelled) {
                restarting.since = now;
            }
        }
        match std::mem::replace(&mut worker.doing, Work::Ended) {
            Work::Loads(loads) => {
                let (board, base, kind) = *loads;
                let gives_up = worker.is_cancelled || self.stop_all;
                // Areas are mapped at the start only, for the lanes that have streams then.
                let new_areas = if self.scratches.is_empty() { NewAreas::Allowed } else { NewAreas::None };
                let chosen = |_: usize, views: &mut LaneViews, stream: &BoardStream, scratch_size| {
                    views.choose(stream, scratch_size, None, new_areas)
                };
                let prepared = if gives_up || self.is_unlucky(20) {
                    Err(fault("reload", "it cannot be prepared").into())
                } else {
                    self.change(board, base, kind, chosen)
                };
                let worker = self.worker.as_mut().expect("it is at work");
                worker.doing = Work::Reports(Box::new(prepared));
                let (now, time) = (self.simulator.now(), up_to(self.simulator.rng(), PREPARE_MAX / 2));
                self.simulator.work(task, now + time);
            }
            Work::Reports(prepared) => {
                self.free_task(task);
                self.send(Action::Prepared(*prepared));
            }
            Work::Ended => {}
        }
    }

    /// Decides about a change, as `crate::prepare::prepare` does.
    fn change(
        &mut self,
        board: Board,
        base: RunningState,
        kind: ChangeKind,
        choose: impl Fn(usize, &mut LaneViews, &BoardStream, ScratchSize) -> Result<usize, NoLane>,
    ) -> Result<Prepared, Faults> {
        let RunningState { running, models: known, streams: on, mut views, books } = base;
        let mut facts = self.model_facts(&board, &known);
        let (change, models, stale) = loop {
            let change = Change::between(&running, &board, &facts);
            assert!(change.fixed_keys.is_empty(), "{:?}", change.fixed_keys);
            if kind == ChangeKind::Levels && !change.restarting_models(&running, &board).is_empty() {
                return Err(fault("model", "streams would start again for its level").into());
            }
            let models = self.models(&board, &change, &known);
            let stale = stale_plans(&models, &books);
            match self.irreplaceable(&models, &stale, &known, &views) {
                Some(_) if kind == ChangeKind::Levels => {
                    return Err(fault("model", "streams would start again for its level").into());
                }
                Some(model) => assert!(facts.irreplaceable.insert(model), "it is replaced again"),
                None => break (change, models, stale),
            }
        };
        for lane in change.streams.staying.iter().filter_map(|stream| on[stream.running].1) {
            views.lanes[lane].streams += 1;
        }
        let (mut plans, mut holds, mut joining) = (BTreeMap::new(), Vec::new(), Vec::new());
        for &index in &change.streams.joining {
            let stream = &board.streams[index];
            let lane =
                choose(index, &mut views, stream, scratch_size(&board, stream)).map_err(Diagnosis::from)?;
            let of_lane: &mut BTreeMap<ModelId, Resource> = plans.entry(lane).or_default();
            let used: Vec<ModelId> = stream.models.iter().map(|model| models[*model].0).collect();
            for &model in &used {
                let hold = books[lane].as_ref().and_then(|books| ModelHold::of(books, model, &self.resource));
                if hold.is_none() {
                    of_lane.entry(model).or_insert_with(|| self.resource.clone());
                }
                holds.extend(hold);
            }
            let resource = self.resource.clone();
            joining.push(OpenStream { spec: stream.clone(), models: used, lane, resource });
        }
        let leaving = change.streams.leaving.iter().map(|stream| on[*stream].0).collect();
        let replacing = stale.into_iter().map(|(plan, wanted)| (plan, models[wanted].1.clone())).collect();
        Ok(Prepared {
            board,
            models: models.into_iter().collect(),
            joining,
            plans,
            replacing,
            holds,
            leaving,
        })
    }

    fn model_facts(&self, board: &Board, known: &[(ModelId, SimModel)]) -> ModelFacts {
        let mut facts = ModelFacts::default();
        for (index, (_, model)) in known.iter().enumerate() {
            facts.stateful.extend(has_state(&model.spec).then_some(index));
            let is_changed = model.plan.version != self.version(&model.spec);
            let is_wanted = board.models.iter().any(|wanted| wanted.has_same_plan(&model.spec));
            facts.changed.extend((is_wanted && is_changed).then_some(index));
        }
        facts
    }

    /// Returns the models of the wanted board.
    fn models(
        &mut self,
        board: &Board,
        change: &Change,
        known: &[(ModelId, SimModel)],
    ) -> Vec<(ModelId, SimModel)> {
        let find = |entries: &[StayingEntry], index: usize| {
            entries.iter().find(|model| model.wanted == index).map(|model| known[model.running].clone())
        };
        let make = |(index, spec): (usize, &BoardModel)| {
            if let Some((id, stays)) = find(&change.models.staying, index) {
                return (id, SimModel { spec: spec.clone(), ..stays });
            }
            match find(&change.replaced, index) {
                Some((id, old)) => (id, self.load(spec, old.plan.generation + 1)),
                None => {
                    self.next_model += 1;
                    (ModelId(self.next_model - 1), self.load(spec, 0))
                }
            }
        };
        board.models.iter().enumerate().map(make).collect()
    }

    /// Returns a running model that cannot be replaced, by its index: the new one needs more memory than a lane has, or, by
    /// chance, gives other results.
    fn irreplaceable(
        &mut self,
        models: &[(ModelId, SimModel)],
        stale: &[(LanePlan, usize)],
        known: &[(ModelId, SimModel)],
        views: &LaneViews,
    ) -> Option<usize> {
        let is_too_large = |(plan, wanted): &&(LanePlan, usize)| {
            let needed = ScratchSize { host_bytes: scratch_bytes(&models[*wanted].1.spec), device_bytes: 0 };
            views.lanes[plan.lane].scratch_size().is_some_and(|there| !needed.fits(there))
        };
        let other = |run: &mut Self| stale.iter().find(|_| run.is_unlucky(10));
        let found = stale.iter().find(is_too_large).or_else(|| other(self));
        found.map(|(plan, _)| {
            known.iter().position(|(id, _)| *id == plan.model).expect("a lane has only known models")
        })
    }

    /// Applies a prepared change.
    pub(super) fn apply(&mut self, prepared: Prepared) -> Applied {
        let Prepared { board, models, joining, plans, replacing, leaving, holds } = prepared;
        self.board.replace(board.clone(), models);
        let mut host = ChangeHost { run: self, plans, replacing, holds, made: Vec::new() };
        let applied = apply(&mut host, board, joining, leaving);
        self.forget_models();
        self.note_applied(&applied);
        applied
    }

    fn load(&self, spec: &BoardModel, generation: u32) -> SimModel {
        let plan = SimPlan { generation, version: self.version(spec) };
        SimModel { spec: spec.clone(), plan, _resource: self.resource.clone() }
    }

    fn version(&self, spec: &BoardModel) -> u32 {
        self.versions.get(&spec.model).copied().unwrap_or(0)
    }

    fn views(&self) -> LaneViews {
        let view =
            |lane: usize| LaneView { entry: None, scratch: self.scratches.get(lane).cloned(), streams: 0 };
        LaneViews { lanes: (0..self.lanes.len()).map(view).collect() }
    }

    fn books(&self) -> Vec<Option<Books>> {
        self.lanes.iter().map(|lane| lane.as_ref().map(|lane| Rc::clone(&lane.books))).collect()
    }
}

/// The simulated shell as the host of a change that is being applied.
struct ChangeHost<'a, 's> {
    run: &'a mut Run<'s>,
    plans: BTreeMap<usize, BTreeMap<ModelId, Resource>>,
    replacing: Vec<(LanePlan, SimModel)>,
    holds: Vec<ModelHold>,
    made: Vec<usize>,
}

impl Host for ChangeHost<'_, '_> {
    type Open = OpenStream;

    fn name_of(open: &OpenStream) -> &str {
        &open.spec.name
    }

    fn is_called(&self, stream: StreamId, name: &str) -> bool {
        self.run.streams.get(&stream).is_some_and(|stream| stream.spec.name == name)
    }

    fn join(&mut self, open: OpenStream) -> Result<Joined, JoinFailure> {
        let Self { run, plans, made, .. } = self;
        let OpenStream { spec, models, lane: index, resource } = open;
        let has_no_source = run.is_unlucky(100);
        if run.lanes[index].is_none() {
            run.lanes[index] = Some(run.new_lane());
            made.push(index);
        }
        let lane = run.lanes[index].as_mut().expect("it was made");
        let of_lane = plans.entry(index).or_default();
        let brought = of_lane.keys().filter(|model| models.contains(model));
        let brought: Vec<PlanFacts> =
            brought.map(|model| facts(*model, &run.board.models()[model])).collect();
        let stream_models =
            StreamModels { models: models.clone(), of_frames: models.clone(), in_video_memory: false };
        let why = |cause: &str| fault(&format!("stream {}", spec.name), cause);
        let mut books = lane.books.borrow_mut();
        if let Err(JoinError::NoPlan(_)) = books.check_join(&stream_models, &brought) {
            return Err(JoinFailure { why: why("its lane has just given up a model"), once_more: true });
        }
        if has_no_source {
            return Err(JoinFailure { why: why("its source is gone"), once_more: false });
        }
        of_lane.retain(|model, _| !models.contains(model));
        if lane.end.is_some() {
            return Err(JoinFailure { why: why("its lane has just failed"), once_more: true });
        }
        let id = StreamId(run.next_stream);
        run.next_stream += 1;
        for plan in brought.iter().filter(|plan| !books.has_model(plan.model)) {
            lane.plans.insert(plan.model, run.board.models()[&plan.model].plan);
        }
        books.join(id, stream_models, &brought);
        drop(books);
        lane.streams.insert(id);
        let (lane_number, now) = (lane.number, run.simulator.now());
        let is_calm = run.weather == Weather::Calm;
        let habits = Habits::new(&spec, now, is_calm, run.simulator.rng());
        run.seen.may_hang |= habits.hangs();
        let (name, is_live) = (spec.name.as_str().into(), spec.source.is_live());
        let mut sinks = Thread::not_started();
        (sinks.task, sinks.doing) = (Some(run.add_task(Role::Sinks(id))), super::threads::Doing::Runs);
        run.simulator.note(|| format!("stream {id} ({name}) joins lane {index}: {habits:?}"));
        let source = Thread::not_started();
        let stream = Stream {
            spec,
            models,
            lane: index,
            lane_number,
            source,
            sinks,
            joined: now,
            stopped: run.stop_all.then_some(now),
            is_refused: false,
            lost_its_lane: false,
            is_drained: false,
            habits,
            is_retired: false,
            _resource: resource,
        };
        run.streams.insert(id, stream);
        Ok(Joined { stream: id, name, lane: index, is_live })
    }

    fn replace_plans(&mut self) -> Vec<Result<Replaced, Diagnosis>> {
        let Self { run, replacing, .. } = self;
        let replace = |(old, model): (LanePlan, SimModel)| {
            let lane = run.lanes[old.lane].as_mut().filter(|lane| lane.end.is_none())?;
            lane.books.borrow_mut().exchange(facts(old.model, &model)).ok()?;
            lane.exchanges.insert(old.model, model.plan);
            run.simulator.notify(lane.task?);
            Some(Ok(Replaced { name: model.spec.name.as_str().into(), old }))
        };
        replacing.drain(..).filter_map(replace).collect()
    }

    fn set_intervals(&mut self) {
        let lanes = self.run.lanes.iter().flatten().filter(|lane| lane.end.is_none());
        for lane in lanes {
            for (model, known) in self.run.board.models() {
                lane.books.borrow_mut().set_interval(*model, known.spec.interval);
            }
        }
    }

    fn start_lanes(&mut self) -> Vec<(usize, Result<(), Diagnosis>)> {
        self.holds.clear();
        let Self { run, made, .. } = self;
        made.drain(..).map(|index| (index, run.start_lane(index))).collect()
    }
}

impl Run<'_> {
    fn new_lane(&mut self) -> Lane {
        self.next_lane += 1;
        Lane {
            number: self.next_lane,
            task: None,
            books: Books::default(),
            plans: BTreeMap::new(),
            exchanges: BTreeMap::new(),
            streams: Default::default(),
            leaving: Default::default(),
            has_keeper: true,
            end: None,
        }
    }

    fn start_lane(&mut self, index: usize) -> Result<(), Diagnosis> {
        if self.is_unlucky(50) {
            let why = fault(&format!("lane {index}"), "no thread is left");
            self.end_lane(index, Err(why.clone()));
            self.lanes[index] = None;
            return Err(why);
        }
        let number = self.lanes[index].as_ref().expect("it was made").number;
        let task = self.add_task(Role::Lane(index, number));
        self.lanes[index].as_mut().expect("it was made").task = Some(task);
        Ok(())
    }
}

/// Returns the scratch memory that a stream's models need.
fn scratch_size(board: &Board, stream: &BoardStream) -> ScratchSize {
    let needed = stream.models.iter().map(|model| scratch_bytes(&board.models[*model]));
    ScratchSize { host_bytes: needed.max().unwrap_or(0), device_bytes: 0 }
}

/// Returns the models of a running board, so that they can be compared between runs.
pub(super) fn shown_models(board: &RunningBoard<SimModel>) -> Vec<String> {
    board.models().values().map(|model| shown_model(&model.spec, model.plan)).collect()
}

/// Shows a model without its generation, which counts changes.
pub(super) fn shown_model(spec: &BoardModel, plan: SimPlan) -> String {
    format!("{spec:?} version {}", plan.version)
}

/// Returns the plans that lanes have of other generations than those of `models`, with the indices of their models.
fn stale_plans(models: &[(ModelId, SimModel)], books: &[Option<Books>]) -> Vec<(LanePlan, usize)> {
    let books = books.iter().enumerate().filter_map(|(lane, books)| Some((lane, books.as_ref()?.borrow())));
    let of_lane = books.flat_map(|(lane, books)| {
        let stale = models.iter().enumerate().filter_map(|(index, (model, wanted))| {
            let there = books.generation(*model).filter(|there| *there != wanted.plan.generation)?;
            Some((LanePlan { lane, model: *model, generation: there }, index))
        });
        stale.collect::<Vec<_>>()
    });
    of_lane.collect()
}

fn facts(model: ModelId, known: &SimModel) -> PlanFacts {
    let SimModel { spec, plan, .. } = known;
    PlanFacts {
        model,
        generation: plan.generation,
        batch_max: 1,
        reads_video_memory: false,
        interval: spec.interval,
    }
}
