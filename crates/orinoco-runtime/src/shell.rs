//! Carries out the decisions of the [`Supervisor`]: starts threads, lets streams join lanes, and keeps the figures of
//! streams and models that have ended. All of it happens on one thread, which waits only for the next action.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

use orinoco_api::{MemorySummary, ModelSummary, Summary};
use orinoco_board::Board;
use orinoco_config::Faults;
use orinoco_core::{Diagnosis, LaneId, ModelId, Nanos, StreamId, codes};
use orinoco_memory::Budget;
use orinoco_pipeline::{
    BoundPlan, ExchangeError, FrameSender, Lane, LaneEntry, ModelHold, SinkOutputs, SourceEnd, Stop,
};
use orinoco_telemetry::{Event, SourceState, StreamFold};
use orinoco_uri::SourceKind;

use crate::action::{Action, Applied, ChangeKind, Effect, Joined, Replaced, Rules, StreamEnd};
use crate::apply::{Host, JoinFailure, apply};
use crate::areas::LaneAreas;
use crate::ended::{EndedModels, EndedStream, EndedStreams};
use crate::governor::GovernorThread;
use crate::joining::{Joiner, RunningStream, reported_when_dropped};
use crate::memory::{peak_bytes, resident_bytes};
use crate::model_entry::ModelEntry;
use crate::model_version::LanePlan;
use crate::monitor::{ListedStream, Monitor};
use crate::outputs::TakenFiles;
use crate::placement::{LaneView, LaneViews};
use crate::prepare::{
    Context, Plans, Prepared, PreparedMemory, ReplacingPlan, RunAction, RunningState, prepare,
};
use crate::progress::{OfflineStream, Progress};
use crate::running_board::RunningBoard;
use crate::sampler::Sampler;
use crate::scratch_size::ScratchSize;
use crate::seats::ServedModel;
use crate::stream::OpenStream;
use crate::summary::{
    Results, energy_of_model, energy_of_stream, power_of, summarise, summarise_memory, summarise_stream,
    with_times,
};
use crate::supervisor::Supervisor;
use crate::threads::{ThreadError, spawn};

/// Number of frames after which pools, arenas and caches have their final size: memory stays flat afterwards.
const WARM_FRAMES: u64 = 500;
/// Name of the thread that prepares a change.
const PREPARATION_THREAD: &str = "reload";

pub(crate) type RunSupervisor = Supervisor<Box<Prepared>>;
type RunEffect = Effect<Box<Prepared>>;

/// Everything that runs.
pub(crate) struct Shell {
    context: Context,
    /// Sender with which threads report their actions.
    actions: Sender<RunAction>,
    /// Sender of progress reports to the watcher.
    watcher: SyncSender<Progress>,
    /// Whether the run ends when no output has a reader any more.
    end_unread: bool,
    board: RunningBoard<ModelEntry>,
    ended_models: EndedModels,
    /// Scratch areas of lanes, if the board has a budget.
    areas: LaneAreas,
    lanes: Vec<Option<RunningLane>>,
    streams: BTreeMap<StreamId, RunningStream>,
    joiner: Joiner,
    ended: EndedStreams,
    /// Preparation of a change, on a thread of its own.
    preparation: Option<Preparation>,
    /// Number of preparations that were begun.
    preparations: u64,
    /// Result of the first change. It is handled before all other actions.
    first: Option<RunAction>,
    monitor: Monitor,
    /// Thread that reads the board's sensors.
    sampler: Option<Sampler>,
    /// Thread that governs power and heat.
    governor: Option<GovernorThread>,
    started: Nanos,
    warm_bytes: Option<u64>,
    /// Resident bytes at the latest check while a source still ran. After that, models are unloaded.
    latest_bytes: Option<u64>,
}

struct Preparation {
    thread: JoinHandle<()>,
    /// Stop request with which it is cancelled.
    stop: Stop,
}

struct RunningLane {
    entry: LaneEntry,
    /// Sender of a stream without frames, which keeps the lane alive after its other streams.
    keeper: Option<FrameSender>,
}

/// Settings with which a run is started.
pub(crate) struct Launch {
    pub(crate) context: Context,
    /// View of the run, which the shell keeps true.
    pub(crate) monitor: Monitor,
    /// Thread that reads the board's sensors, if they are read.
    pub(crate) sampler: Option<Sampler>,
    /// Thread that governs power and heat, if the board is governed.
    pub(crate) governor: Option<GovernorThread>,
    pub(crate) actions: Sender<RunAction>,
    pub(crate) watcher: SyncSender<Progress>,
    pub(crate) sample_every: Duration,
    /// Whether the run ends when no output has a reader any more.
    pub(crate) end_unread: bool,
    /// Whether streams of files may start again at their beginning when their lane is restarted.
    pub(crate) repeat_files: bool,
}

impl Shell {
    /// Starts every thread of a board.
    pub(crate) fn launch(prepared: Prepared, launch: Launch) -> Result<(Self, RunSupervisor), Faults> {
        let Launch {
            context,
            monitor,
            sampler,
            governor,
            actions,
            watcher,
            sample_every,
            end_unread,
            repeat_files,
        } = launch;
        let board = prepared.board.clone();
        let started = context.shared.clock.now();
        let rules = Rules { sample_every, repeat_files };
        let supervisor = Supervisor::new(board.clone(), rules, started);
        let mut shell = Self {
            actions,
            watcher,
            end_unread,
            lanes: (0..board.lanes).map(|_| None).collect(),
            board: RunningBoard::new(board),
            ended_models: EndedModels::default(),
            areas: LaneAreas::default(),
            streams: BTreeMap::new(),
            joiner: Joiner::new(context.shared.clone()),
            context,
            ended: EndedStreams::default(),
            preparation: None,
            preparations: 0,
            first: None,
            monitor,
            sampler,
            governor,
            started,
            warm_bytes: None,
            latest_bytes: None,
        };
        let mut applied = shell.apply(prepared);
        let mut faults = std::mem::take(&mut applied.faults);
        faults.append(&mut applied.missed);
        if let Some(why) = faults.into_iter().next() {
            shell.context.shared.stop.request();
            return Err(why.into());
        }
        shell.first = Some(Action::Applied(applied));
        Ok((shell, supervisor))
    }

    /// Runs until everything has ended, and returns the summary.
    #[expect(clippy::disallowed_methods, reason = "the core's next wake is the receive's time-out")]
    pub(crate) fn run(mut self, mut supervisor: RunSupervisor, actions: &Receiver<RunAction>) -> Summary {
        let first = self.first.take();
        if let Some(faults) = first.and_then(|first| self.act(&mut supervisor, first)) {
            return self.finish(&supervisor, faults, actions);
        }
        loop {
            let wait = supervisor.next_wake().map(|wake| wake.since(self.now()));
            let action = match wait.map(|wait| actions.recv_timeout(wait)) {
                Some(Err(RecvTimeoutError::Timeout)) => Action::Tick,
                Some(received) => received.expect("the run itself can send"),
                None => actions.recv().expect("the run itself can send"),
            };
            if let Some(faults) = self.act(&mut supervisor, action) {
                return self.finish(&supervisor, faults, actions);
            }
        }
    }

    fn now(&self) -> Nanos {
        self.context.shared.clock.now()
    }

    /// Handles one action and the actions that follow from it. Returns the faults of lanes when the run is over.
    fn act(&mut self, supervisor: &mut RunSupervisor, action: RunAction) -> Option<Vec<Diagnosis>> {
        let mut actions = VecDeque::from([action]);
        while let Some(action) = actions.pop_front() {
            match action {
                Action::Prepared(_) => self.end_preparation(),
                // A new lane can take this index only from now on, so that the end of one is not taken for the end of the
                // other.
                Action::LaneEnded(lane, _) => self.lanes[lane] = None,
                _ => {}
            }
            for effect in supervisor.handle(action, self.now()) {
                match effect {
                    Effect::Finish(faults) => return Some(faults),
                    effect => actions.extend(self.carry_out(supervisor, effect)),
                }
            }
        }
        let memory = supervisor.memory();
        self.areas.retain(|lane| memory.is_some_and(|memory| memory.area(lane).is_some()));
        None
    }

    /// Carries out one effect. Returns the action that follows from it at once.
    fn carry_out(&mut self, supervisor: &RunSupervisor, effect: RunEffect) -> Option<RunAction> {
        let shared = &self.context.shared;
        match effect {
            Effect::Prepare(board, kind) => {
                let why = self.prepare(supervisor, *board, kind).err()?;
                return Some(Action::Prepared(Err(why.into())));
            }
            Effect::CancelPreparation => self.preparation.as_ref()?.stop.request(),
            Effect::Apply(prepared) => return Some(Action::Applied(self.apply(*prepared))),
            Effect::Answer(replies, answer) => {
                replies.into_iter().for_each(|reply| reply.send(answer.clone()))
            }
            Effect::StartSource(stream) => {
                let why = self.start_source(stream).err()?;
                return Some(Action::SourceEnded(stream, Err(why)));
            }
            Effect::DropSource(stream) => drop(self.streams.get_mut(&stream)?.source.take()),
            Effect::StopStream(stream) => shared.stop.of(stream).request(),
            Effect::StopAll => shared.stop.request(),
            Effect::ReleaseLane(lane) => drop(self.lanes[lane].as_mut()?.keeper.take()),
            Effect::CloseLane(lane) => self.lanes[lane].as_ref()?.entry.close(),
            Effect::Emit(event) => shared.events.emit(event),
            Effect::Sample => return self.sample(supervisor),
            // The receiver may have been dropped meanwhile.
            Effect::Answered(reply) => drop(reply.send(self.progress())),
            Effect::Retire(stream, outcome) => self.retire(stream, outcome),
            Effect::Forget(stream) => {
                shared.stop.of(stream).forget();
                self.streams.remove(&stream);
                self.forget_models();
            }
            Effect::Finish(_) => unreachable!("the caller ends with it"),
        }
        None
    }

    // --- changes -------------------------------------------------------------------------------------------------------

    /// Starts to prepare a change, on a thread of its own.
    fn prepare(
        &mut self,
        supervisor: &RunSupervisor,
        board: Board,
        kind: ChangeKind,
    ) -> Result<(), Diagnosis> {
        let (base, mut context, actions) =
            (self.base(supervisor), self.context.clone(), self.actions.clone());
        self.preparations += 1;
        let stop = context.shared.stop.of_preparation(self.preparations);
        context.shared.stop = stop.clone();
        let work = move || prepare(board, base, kind, &context).map(Box::new);
        let done = move |end: Result<Result<_, Faults>, Diagnosis>| {
            let prepared = end.unwrap_or_else(|panicked| Err(panicked.into()));
            // Sending fails if the run is over.
            let _ = actions.send(Action::Prepared(prepared));
        };
        let thread = spawn(PREPARATION_THREAD.to_owned(), work, done)?;
        self.preparation = Some(Preparation { thread, stop });
        Ok(())
    }

    fn end_preparation(&mut self) {
        if let Some(ended) = self.preparation.take() {
            ended.stop.forget();
        }
    }

    /// Waits until the preparation of a change has ended: a model that is still being loaded would crash if the process
    /// ended meanwhile. Returns a fault if that is not over by the time at which the run must have ended.
    #[expect(clippy::disallowed_methods, reason = "the wait ends with the run's deadline")]
    fn await_preparation(
        &mut self,
        end_max: Option<Nanos>,
        actions: &Receiver<RunAction>,
    ) -> Option<Diagnosis> {
        let preparation = self.preparation.take()?;
        preparation.stop.request();
        loop {
            let wait = end_max.map_or(Duration::ZERO, |end_max| end_max.since(self.now()));
            match actions.recv_timeout(wait) {
                Ok(Action::Prepared(_)) => break,
                Ok(_) => {}
                Err(_) => return Some(ThreadError::StillPreparing.diagnosis(PREPARATION_THREAD)),
            }
        }
        let _ = preparation.thread.join();
        None
    }

    /// Returns the present state, from which a change starts.
    fn base(&self, supervisor: &RunSupervisor) -> RunningState {
        let streams: Vec<(StreamId, Option<usize>)> = supervisor.running().collect();
        let of_streams = streams.iter().map(|(id, _)| {
            let stream = &self.streams[id];
            (&stream.spec, &stream.models[..])
        });
        let (running, models) = self.board.with_streams(of_streams);
        let memory = supervisor.memory().cloned();
        let area = |lane| memory.as_ref().and_then(|memory| memory.area(lane));
        let lanes = self.lanes.iter().enumerate().map(|(index, lane)| LaneView {
            entry: lane.as_ref().map(|lane| lane.entry.clone()),
            // An area with 0 bytes is not used by any model, so that another one may replace it.
            scratch: self
                .areas
                .get(index)
                .filter(|_| area(index).is_some_and(|area| area != ScratchSize::default()))
                .cloned(),
            streams: 0,
        });
        let lanes = Some(LaneViews { lanes: lanes.collect() });
        RunningState { running, models, streams, lanes, memory, written: self.written() }
    }

    /// Returns the files that are or were written.
    fn written(&self) -> TakenFiles {
        let mut written = TakenFiles::default();
        let running = self
            .streams
            .values()
            .flat_map(|stream| stream.files.iter().map(|file| (stream.spec.name.as_str(), file)));
        for (stream, file) in running.chain(self.ended.paths()) {
            written.add(file, || format!("another output (stream {stream}) already writes to this file"));
        }
        written
    }

    /// Applies a prepared change.
    fn apply(&mut self, prepared: Prepared) -> Applied {
        let Prepared { board, models, joining, plans, replacing, leaving, holds, memory } = prepared;
        let mut directory = self.monitor.directory_mut();
        directory.rename(&board.name);
        directory.set_levels(&board.models);
        models.iter().for_each(|(id, known)| directory.add_model(*id, known.summary.clone()));
        drop(directory);
        for model in self.board.replace(board.clone(), models) {
            self.context.shared.telemetry.insert_model(model);
        }
        let admitted = memory.map(|PreparedMemory { admitted, areas }| {
            let Budget::Shared(budget) = admitted.plan.budget else { unreachable!("boards have one budget") };
            self.monitor.directory_mut().set_memory(admitted.plan.bytes(), budget);
            self.areas.extend(areas);
            Box::new(admitted)
        });
        let mut host = ChangeHost { shell: self, plans, replacing, holds, made: Vec::new() };
        let mut applied = apply(&mut host, board, joining, leaving);
        applied.memory = admitted;
        self.forget_models();
        applied
    }

    /// Gives a lane the plan that replaces another one. A lane that has ended or unloaded the model needs none.
    fn replace_plan(&self, old: LanePlan, plan: BoundPlan) -> Option<Result<Replaced, Diagnosis>> {
        let LanePlan { lane, .. } = old;
        let entry = &self.lanes[lane].as_ref()?.entry;
        let name = plan.name.clone();
        match entry.replace(reported_when_dropped(plan, lane, &self.actions)) {
            Ok(()) => {
                self.context.shared.events.emit(Event::ModelReplaced { model: name.clone(), lane });
                Some(Ok(Replaced { name: name.into(), old }))
            }
            Err(ExchangeError::Ended | ExchangeError::NoModel(_)) => None,
            Err(ExchangeError::VideoMemory(_)) => {
                let cause = "its new version cannot read frames from GPU memory (NVMM), and a stream that \
                             started during the reload delivers them";
                let next = "reload the board file again";
                Some(Err(Diagnosis::new(&codes::RELOAD, format!("model {name}"), cause, next)))
            }
        }
    }

    /// Gives lanes the inference intervals of the board's models that they have otherwise, and reports each change.
    fn set_intervals(&self) {
        for (&id, known) in self.board.models() {
            let interval = known.spec.interval;
            let lanes = self.lanes.iter().flatten().map(|lane| &lane.entry);
            let has_other = |entry: &&LaneEntry| entry.interval(id).is_some_and(|there| there != interval);
            let set = lanes.filter(has_other).filter(|entry| entry.set_interval(id, interval).is_ok());
            if set.count() > 0 {
                let model = known.spec.name.clone();
                self.context.shared.events.emit(Event::IntervalChanged { model, interval });
            }
        }
    }

    fn start_lane(&mut self, index: usize, lane: Lane) -> Result<(), Diagnosis> {
        let actions = self.actions.clone();
        let ended = move |end: Result<Result<(), Diagnosis>, Diagnosis>| {
            let _ = actions.send(Action::LaneEnded(index, end.and_then(|end| end)));
        };
        spawn(format!("lane-{index}"), move || lane.run(), ended).map(drop)
    }

    fn start_source(&mut self, stream: StreamId) -> Result<(), Diagnosis> {
        let starting = self.streams.get_mut(&stream);
        let Some((runner, name)) =
            starting.and_then(|stream| Some((stream.source.take()?, stream.spec.name.clone())))
        else {
            return Ok(());
        };
        let actions = self.actions.clone();
        let ended = move |end: Result<SourceEnd, Diagnosis>| {
            let _ = actions.send(Action::SourceEnded(stream, end));
        };
        spawn(format!("src-{name}"), move || runner.run(), ended).map(drop)
    }

    // --- figures -------------------------------------------------------------------------------------------------------

    /// Checks readers and memory, and sends the progress to the watcher.
    fn sample(&mut self, supervisor: &RunSupervisor) -> Option<RunAction> {
        self.notice_readers();
        let progress = self.progress();
        if self.warm_bytes.is_none() && progress.frames_out >= WARM_FRAMES {
            self.warm_bytes = Some(resident_bytes());
        }
        if supervisor.sources_run() {
            self.latest_bytes = Some(resident_bytes());
        }
        // A slow watcher sees the next report.
        let _ = self.watcher.try_send(progress);
        let is_unread = self.end_unread && !self.is_read(supervisor) && !self.context.shared.stop.requested();
        is_unread.then_some(Action::Unread)
    }

    /// Finds outputs that have lost their reader.
    fn notice_readers(&mut self) {
        for stream in self.streams.values_mut() {
            for reader in stream.readers.extract_if(.., |reader| reader.is_gone()) {
                stream.outputs_read -= 1;
                let stream = stream.spec.name.as_str().into();
                self.context.shared.events.emit(Event::SinkUnread { stream, output: reader.shown });
            }
        }
    }

    /// Whether an output of a running stream may still have a reader. A run without outputs is for its summary, and a run
    /// whose outputs have all failed continues to its end, which reports them.
    fn is_read(&self, supervisor: &RunSupervisor) -> bool {
        let lost = |stream: &RunningStream| {
            stream.outputs_read < stream.spec.sinks.len() && stream.outputs_left() == 0
        };
        let read = |(id, stream): (&StreamId, &RunningStream)| {
            stream.outputs_left() > 0 && supervisor.sinks_run(*id)
        };
        !self.streams.values().any(lost) || self.streams.iter().any(read)
    }

    fn progress(&self) -> Progress {
        let (telemetry, now) = (&self.context.shared.telemetry, self.now());
        let (frames_in, frames_out) = (self.ended.frames_in(), self.ended.frames_out());
        let elapsed = now.since(self.started);
        let mut progress = Progress { frames_in, frames_out, elapsed, ..Progress::default() };
        for (id, _) in self.streams.iter().filter(|(_, stream)| !stream.has_ended) {
            let stream = telemetry.stream(*id);
            let look = |fold: &StreamFold| (fold.frames_in, fold.frames_out, fold.state, fold.last_out);
            let (frames_in, frames_out, state, last_out) = stream.read(look);
            progress.frames_in += frames_in;
            progress.frames_out += frames_out;
            if state == Some(SourceState::Ended) {
                continue;
            }
            progress.streams += 1;
            if state.is_some_and(|state| state != SourceState::Live) {
                let (was_live, silence) = (last_out.is_some(), now.since(last_out.unwrap_or(self.started)));
                progress.away.push(OfflineStream { stream: Arc::clone(stream.name()), was_live, silence });
            }
        }
        progress
    }

    /// Keeps the figures of a stream that has ended, and releases everything else of it.
    fn retire(&mut self, id: StreamId, outcome: StreamEnd) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.has_ended = true;
        self.context.shared.served.remove(id);
        let (energy_per_frame, energy_j) = energy_of_stream(&self.monitor.readings().latest(), id);
        let mut directory = self.monitor.directory_mut();
        let fold = self.context.shared.telemetry.remove_stream(id).unwrap_or_default();
        directory.end(id, &fold);
        drop(directory);
        let mut summary = summarise_stream(&stream.shown, &fold);
        (summary.energy_per_frame, summary.energy_j) = (energy_per_frame, energy_j);
        summary.tracked = stream.counted.take().map(|counted| counted.summary());
        let StreamEnd { source, sink } = outcome;
        let was_stopped = matches!(source, Ok(SourceEnd::Stopped | SourceEnd::LaneEnded));
        let mut faults = Vec::new();
        if let Ok(SourceEnd::Failed(why)) | Err(why) = source {
            faults.push(why);
        }
        let outputs = sink.unwrap_or_else(|why| {
            // The sinks hang or panicked: the state of their files is not known.
            let named = stream.files.iter().filter(|path| *path != Path::new("-")).cloned();
            SinkOutputs { files: Vec::new(), incomplete: named.collect(), faults: vec![why] }
        });
        faults.extend(outputs.faults);
        let SinkOutputs { files, incomplete, .. } = outputs;
        let paths = std::mem::take(&mut stream.files);
        self.ended.add(EndedStream { id, summary, paths, files, incomplete, faults, was_stopped });
    }

    /// Releases models that are not on the board any more and that no stream uses.
    fn forget_models(&mut self) {
        let used = self.streams.values().flat_map(|stream| stream.models.iter().copied());
        let unused = self.board.remove_unused(used);
        self.end_models(unused);
    }

    /// Keeps the figures of models that are not used any more.
    fn end_models(&mut self, models: impl IntoIterator<Item = (ModelId, ModelEntry)>) {
        for (id, known) in models {
            let (energy_per_image, energy_j) = energy_of_model(&self.monitor.readings().latest(), id);
            self.monitor.directory_mut().remove_model(id);
            let fold = self.context.shared.telemetry.remove_model(id).unwrap_or_default();
            let summary = with_times(known.summary, &fold);
            self.ended_models.add(id, ModelSummary { energy_per_image, energy_j, ..summary });
        }
    }

    /// Ends the run and returns its summary.
    fn finish(
        mut self,
        supervisor: &RunSupervisor,
        mut faults: Vec<Diagnosis>,
        actions: &Receiver<RunAction>,
    ) -> Summary {
        faults.extend(self.await_preparation(supervisor.end_max(), actions));
        // It publishes its last readings, which the summary needs. The governor's settings hold until then: with those that are
        // restored, the energy would be measured from new.
        faults.extend(self.sampler.take().and_then(Sampler::finish));
        faults.extend(self.governor.take().and_then(GovernorThread::finish));
        // A slow watcher misses the last report.
        let _ = self.watcher.try_send(self.progress());
        let memory = supervisor.memory();
        let planned = memory.map(|memory| summarise_memory(memory.admitted(), self.areas.summary()));
        let (peak_bytes, end_bytes) = (peak_bytes(), self.latest_bytes.unwrap_or_else(resident_bytes));
        let memory = MemorySummary { peak_bytes, warm_bytes: self.warm_bytes, end_bytes, planned };
        let wall = self.now().since(self.started);
        let power = power_of(&self.monitor.readings().latest());
        let models = self.board.take_models();
        self.end_models(models);
        let board = self.board.name().to_owned();
        let results = Results { board, wall, by: supervisor.ended_by(), faults, memory, power };
        summarise(results, self.ended.into_all(), self.ended_models.into_all())
    }
}

/// The shell as the host of a change that is being applied.
struct ChangeHost<'a> {
    shell: &'a mut Shell,
    /// Plans that no stream has brought to its lane yet, by lane.
    plans: BTreeMap<usize, Plans>,
    /// Plans that replace others.
    replacing: Vec<ReplacingPlan>,
    /// Holds on models of lanes, for the streams that join.
    holds: Vec<ModelHold>,
    /// Lanes that were created and are not started yet.
    made: Vec<(usize, Lane)>,
}

impl Host for ChangeHost<'_> {
    type Open = OpenStream;

    fn name_of(open: &OpenStream) -> &str {
        &open.spec.name
    }

    fn is_called(&self, stream: StreamId, name: &str) -> bool {
        self.shell.streams.get(&stream).is_some_and(|stream| stream.spec.name == name)
    }

    fn join(&mut self, open: OpenStream) -> Result<Joined, JoinFailure> {
        let Self { shell, plans, made, .. } = self;
        let (lane, name) = (open.lane, open.spec.name.as_str().into());
        let running = shell.lanes[lane].get_or_insert_with(|| {
            let (lane_thread, running) = shell.joiner.new_lane(LaneId::from_index(lane));
            made.push((lane, lane_thread));
            RunningLane { entry: running.0, keeper: Some(running.1) }
        });
        let of_lane = plans.entry(lane).or_default();
        let (stream, joined) =
            shell.joiner.join(open, of_lane, &running.entry, &shell.actions, &shell.streams)?;
        let is_live = joined.is_live;
        if matches!(joined.spec.source.kind(), SourceKind::Cluster) {
            let known = shell.board.models();
            let served = joined.models.iter().filter_map(|id| Some((*id, known.get(id)?)));
            shell.context.shared.served.add(served.map(|(id, known)| ServedModel {
                name: known.spec.name.as_str().into(),
                id,
                identity: known.identity(),
                stream,
                lane: running.entry.clone(),
            }));
        }
        let listed = ListedStream {
            name: joined.spec.name.clone(),
            source: joined.shown.clone(),
            lane,
            models: joined.models.clone(),
        };
        shell.monitor.directory_mut().join(stream, listed);
        shell.streams.insert(stream, joined);
        Ok(Joined { stream, name, lane, is_live })
    }

    fn replace_plans(&mut self) -> Vec<Result<Replaced, Diagnosis>> {
        let Self { shell, replacing, .. } = self;
        replacing.drain(..).filter_map(|ReplacingPlan { old, plan }| shell.replace_plan(old, plan)).collect()
    }

    fn set_intervals(&mut self) {
        self.shell.set_intervals();
    }

    fn start_lanes(&mut self) -> Vec<(usize, Result<(), Diagnosis>)> {
        // The streams that joined use the held models now.
        self.holds.clear();
        let Self { shell, made, .. } = self;
        let mut start = |(index, lane)| {
            let started = shell.start_lane(index, lane);
            if started.is_err() {
                // The next stream that joins creates another lane.
                shell.lanes[index] = None;
            }
            (index, started)
        };
        made.drain(..).map(&mut start).collect()
    }
}

#[cfg(test)]
mod tests;
