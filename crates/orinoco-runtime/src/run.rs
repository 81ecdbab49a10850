//! Putting the parts together, starting them, and waiting for them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use orinoco_api::{EndState, MemorySummary, ModelSummary, Summary};
use orinoco_board::{Board, BoardStream, Drop as DropKey};
use orinoco_config::Faults;
use orinoco_core::{Clock, Diagnosis, Nanos, StreamId, codes};
use orinoco_infer::{Repository, Scratch};
use orinoco_media::SourceUri;
use orinoco_memory::Plan;
use orinoco_pipeline::{
    BoundPlan, DropPolicy, Follow, Lane, MonotonicClock, Mux, Reconnect, Sink, SinkThread, SourceEnd,
    SourceRunner, Stop, StreamQueue,
};
use orinoco_telemetry::{EventSink, Stats};

use crate::follow::{Counted, Follower};
use crate::memory::{peak_bytes, resident_bytes};
use crate::planning::{plan_board, scratches};
use crate::sinks::{self, ModelNames};
use crate::summary::{Ended, summarise, summarise_memory, summarise_model};
use crate::{LoadedModel, bind_plan, load_model};

/// How often the waiting thread looks at the counters.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Frames after which pools, arenas and caches have their size: memory is flat from here on.
const WARM_FRAMES: u64 = 500;

/// A board whose models are proved and whose sinks are open; nothing runs yet.
pub struct Runtime {
    board: Board,
    sources: Vec<SourceUri>,
    models: Vec<ModelSummary>,
    lanes: Vec<LanePlan>,
    memory: Option<Planned>,
    followers: BTreeMap<StreamId, (Follower, Counted)>,
    sinks: Vec<Vec<Box<dyn Sink>>>,
    clock: Arc<dyn Clock>,
    events: Arc<dyn EventSink>,
    stop: Stop,
}

/// What one lane runs: its streams, and the plans of each group of streams with the same models.
struct LanePlan {
    streams: Vec<(StreamId, usize)>,
    groups: Vec<Vec<BoundPlan>>,
}

/// The planned memory, and the areas that lanes compute in.
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    pub(crate) scratches: Vec<Scratch>,
}

/// A board at work.
pub struct Running {
    board: Board,
    shown: Vec<(String, String)>,
    models: Vec<ModelSummary>,
    memory: Option<Planned>,
    counted: BTreeMap<StreamId, Counted>,
    sources: Vec<JoinHandle<SourceEnd>>,
    lanes: Vec<JoinHandle<Result<(), Diagnosis>>>,
    sinks: Vec<JoinHandle<(Vec<PathBuf>, Vec<Diagnosis>)>>,
    stats: Stats,
    clock: Arc<dyn Clock>,
    started: Nanos,
    stop: Stop,
}

/// Where a run is, for a progress bar.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Frames delivered by all sources.
    pub frames_in: u64,
    /// Frames through every model and sink.
    pub frames_out: u64,
    /// Since the start.
    pub elapsed: Duration,
}

impl Runtime {
    /// Checks sources, loads models, proves engines and opens sinks. All faults of one kind come together.
    pub fn prepare(
        board: Board,
        repository: &Repository,
        events: Arc<dyn EventSink>,
        stop: Stop,
    ) -> Result<Self, Faults> {
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
        let sources = collect(board.streams.iter().map(|stream| check_source(stream).map_err(Faults::from)))?;
        let plan = plan_board(&board, repository, &*events)?;
        let mut loaded = collect(
            board.models.iter().map(|model| load_model(model, &board.inference, repository, &*events)),
        )?;
        check_states(&board, &loaded)?;
        let count = board.lanes.min(board.streams.len());
        let scratches = plan.as_ref().map_or_else(|| Ok(Vec::new()), |plan| scratches(plan, count))?;
        let lanes = bind_lanes(&board, &mut loaded, &clock, &scratches)?;
        let followers = followers(&board)?;
        let names: Arc<[ModelNames]> = loaded.iter().map(names_of).collect();
        let sinks = collect(board.streams.iter().map(|stream| {
            collect(
                stream.sinks.iter().map(|spec| sinks::open(spec, &stream.name, &names).map_err(Faults::from)),
            )
        }))?;
        let models = loaded.iter().map(summarise_model).collect();
        let memory = plan.map(|plan| Planned { plan, scratches });
        Ok(Self { board, sources, models, lanes, memory, followers, sinks, clock, events, stop })
    }

    /// The models and their engines.
    pub fn models(&self) -> &[ModelSummary] {
        &self.models
    }

    /// Starts every thread.
    pub fn start(self) -> Result<Running, Faults> {
        let Self { board, sources, models, lanes, memory, mut followers, sinks, clock, events, stop } = self;
        let stats = Stats::new(board.streams.len());
        let shared = Shared { clock: Arc::clone(&clock), events, stats: stats.clone(), stop: stop.clone() };
        let started = clock.now();
        let shown =
            board.streams.iter().zip(&sources).map(|(s, uri)| (s.name.clone(), uri.to_string())).collect();
        let mut running = Running {
            shown,
            models,
            memory,
            counted: followers.iter().map(|(stream, (_, counted))| (*stream, counted.clone())).collect(),
            sources: vec![],
            lanes: vec![],
            sinks: vec![],
            stats,
            clock,
            started,
            stop,
            board,
        };

        let mut outlets = BTreeMap::new();
        for (index, sinks) in sinks.into_iter().enumerate() {
            let (stream, policy) =
                (&running.board.streams[index], policy(&running.board.streams[index], &sources[index]));
            let (thread, outlet) = shared.sink_thread(stream_id(index), sinks, policy, stream.latency_max);
            running.sinks.push(spawn(format!("sink-{}", stream.name), move || thread.run())?);
            outlets.insert(stream_id(index), outlet);
        }
        for (index, plan) in lanes.into_iter().enumerate() {
            let mux = shared.mux(&running.board, &sources, &plan);
            for (stream, _) in &plan.streams {
                let runner = shared.source(
                    &running.board.streams[stream.index()],
                    *stream,
                    &sources[stream.index()],
                    &mux,
                )?;
                let name = format!("src-{}", running.board.streams[stream.index()].name);
                running.sources.push(spawn(name, move || runner.run())?);
            }
            let own = plan
                .streams
                .iter()
                .map(|(stream, _)| (*stream, outlets.remove(stream).expect("one outlet a stream")));
            let following = plan.streams.iter().filter_map(|(stream, _)| {
                let (follower, _) = followers.remove(stream)?;
                Some((*stream, Box::new(follower) as Box<dyn Follow>))
            });
            let following = following.collect();
            let lane = shared.lane(mux, plan.groups, following, own.collect());
            running.lanes.push(spawn(format!("lane-{index}"), move || lane.run())?);
        }
        Ok(running)
    }
}

fn check_source(stream: &BoardStream) -> Result<SourceUri, Diagnosis> {
    let uri = SourceUri::parse(&stream.source)?;
    uri.check()?;
    Ok(uri)
}

/// A model that carries a state from frame to frame serves one stream, one frame at a time: the frames of two would mix in
/// it.
fn check_states(board: &Board, loaded: &[LoadedModel]) -> Result<(), Diagnosis> {
    for (index, model) in loaded.iter().enumerate() {
        let users: Vec<&str> = board
            .streams
            .iter()
            .filter(|stream| stream.models.contains(&index))
            .map(|stream| stream.name.as_str())
            .collect();
        if model.model.has_state() && (users.len() > 1 || model.binding.batch > 1) {
            let cause = match users[..] {
                [_, _, ..] => {
                    format!("it carries a state from frame to frame, and serves {}", users.join(", "))
                }
                _ => format!(
                    "it carries a state from frame to frame, and its batch is {}",
                    model.binding.batch
                ),
            };
            let next = "give each stream a [[model]] of its own, with batch = 1";
            return Err(Diagnosis::new(
                &codes::MODEL_DISAGREES,
                format!("model {}", model.name),
                cause,
                next,
            ));
        }
    }
    Ok(())
}

fn followers(board: &Board) -> Result<BTreeMap<StreamId, (Follower, Counted)>, Diagnosis> {
    let streams = board.streams.iter().enumerate();
    streams
        .filter_map(|(index, stream)| Some((index, stream, stream.track.as_ref()?)))
        .map(|(index, stream, spec)| Ok((stream_id(index), Follower::new(stream, spec)?)))
        .collect()
}

fn names_of(loaded: &LoadedModel) -> ModelNames {
    ModelNames { name: loaded.name.clone(), engine: loaded.chosen.name, labels: loaded.model.labels.clone() }
}

/// Deals the streams to the lanes in turn, and binds on each lane one plan for every model its streams use.
fn bind_lanes(
    board: &Board,
    loaded: &mut [LoadedModel],
    clock: &Arc<dyn Clock>,
    scratches: &[Scratch],
) -> Result<Vec<LanePlan>, Faults> {
    let lanes = board.lanes.min(board.streams.len());
    (0..lanes).map(|lane| bind_lane(lane, lanes, board, loaded, clock, scratches.get(lane))).collect()
}

fn bind_lane(
    lane: usize,
    lanes: usize,
    board: &Board,
    loaded: &mut [LoadedModel],
    clock: &Arc<dyn Clock>,
    scratch: Option<&Scratch>,
) -> Result<LanePlan, Faults> {
    let mut routes: Vec<&[usize]> = Vec::new();
    let mut plan = LanePlan { streams: Vec::new(), groups: Vec::new() };
    for (index, stream) in board.streams.iter().enumerate().filter(|(index, _)| index % lanes == lane) {
        let known = routes.iter().position(|route| *route == stream.models);
        let group = known.unwrap_or_else(|| {
            routes.push(&stream.models);
            routes.len() - 1
        });
        plan.streams.push((stream_id(index), group));
    }
    for route in routes {
        let mut plans = Vec::new();
        for &model in route {
            let executor = Box::new(bind_plan(&mut loaded[model], Arc::clone(clock), scratch)?);
            plans.push(BoundPlan { model, name: loaded[model].name.clone(), executor });
        }
        plan.groups.push(plans);
    }
    Ok(plan)
}

fn policy(stream: &BoardStream, uri: &SourceUri) -> DropPolicy {
    match stream.drop {
        Some(DropKey::Oldest) => DropPolicy::DropOldest,
        Some(DropKey::Newest) => DropPolicy::DropNewest,
        Some(DropKey::Block) => DropPolicy::Block,
        // Live video does not wait; of a file every frame counts.
        None if uri.is_live() => DropPolicy::DropOldest,
        None => DropPolicy::Block,
    }
}

/// What every thread gets.
struct Shared {
    clock: Arc<dyn Clock>,
    events: Arc<dyn EventSink>,
    stats: Stats,
    stop: Stop,
}

impl Shared {
    fn sink_thread(
        &self,
        stream: StreamId,
        sinks: Vec<Box<dyn Sink>>,
        policy: DropPolicy,
        latency_max: Option<Duration>,
    ) -> (SinkThread, orinoco_pipeline::Outlet) {
        let (clock, events) = (Arc::clone(&self.clock), Arc::clone(&self.events));
        SinkThread::new(stream, sinks, policy, latency_max, clock, events, self.stats.clone())
    }

    fn mux(&self, board: &Board, sources: &[SourceUri], plan: &LanePlan) -> Arc<Mux> {
        let queue = |(stream, group): &(StreamId, usize)| {
            let settings = &board.streams[stream.index()];
            let queue = StreamQueue {
                group: *group,
                frames_max: settings.queue_frames,
                policy: policy(settings, &sources[stream.index()]),
                batch_wait: settings.batch_wait,
            };
            (*stream, queue)
        };
        // A group takes no more at once than its smallest plan.
        let batch_max =
            |plans: &Vec<BoundPlan>| plans.iter().map(|plan| plan.executor.batch_max()).min().unwrap_or(1);
        let batches = plan.groups.iter().map(batch_max).collect();
        Mux::new(
            plan.streams.iter().map(queue).collect(),
            batches,
            Arc::clone(&self.clock),
            self.stats.clone(),
        )
    }

    fn source(
        &self,
        settings: &BoardStream,
        stream: StreamId,
        uri: &SourceUri,
        mux: &Arc<Mux>,
    ) -> Result<SourceRunner, Diagnosis> {
        Ok(SourceRunner {
            stream,
            shown: uri.to_string(),
            source: orinoco_media::open(uri, &settings.name, Arc::clone(&self.clock))?,
            inlet: mux.inlet(stream),
            reconnect: Reconnect { attempts_max: settings.reconnect_attempts, stall: settings.stall },
            frames_max: settings.frames_max,
            clock: Arc::clone(&self.clock),
            // Differs between boards and streams, so that they do not knock on one server together.
            seed: u64::from(std::process::id()) << 16 | u64::from(stream.0),
            events: Arc::clone(&self.events),
            stats: self.stats.clone(),
            stop: self.stop.clone(),
        })
    }

    fn lane(
        &self,
        mux: Arc<Mux>,
        groups: Vec<Vec<BoundPlan>>,
        followers: BTreeMap<StreamId, Box<dyn Follow>>,
        outlets: BTreeMap<StreamId, orinoco_pipeline::Outlet>,
    ) -> Lane {
        let (clock, events) = (Arc::clone(&self.clock), Arc::clone(&self.events));
        Lane { mux, groups, followers, outlets, clock, events, stats: self.stats.clone() }
    }
}

impl Running {
    /// Waits until every source has ended and every sink is complete, calling `look` now and then.
    pub fn wait(mut self, mut look: impl FnMut(Progress)) -> Summary {
        let mut warm_bytes = None;
        while !self.sinks.iter().all(JoinHandle::is_finished) {
            let progress = self.progress();
            if warm_bytes.is_none() && progress.frames_out >= WARM_FRAMES {
                warm_bytes = Some(resident_bytes());
            }
            look(progress);
            thread::sleep(LOOK_EVERY);
        }
        look(self.progress());
        let planned = self.memory.as_ref().map(summarise_memory);
        let (peak_bytes, end_bytes) = (peak_bytes(), resident_bytes());
        let memory = MemorySummary { peak_bytes, warm_bytes, end_bytes, planned };
        let wall = self.clock.now().since(self.started);
        let (end, files, faults) = self.join();
        let ended = Ended { board: self.board.name, end, wall, streams: self.shown, memory, files, faults };
        let mut summary = summarise(ended, &self.models, &self.stats);
        for (stream, counted) in &self.counted {
            summary.streams[stream.index()].tracked = Some(counted.summary());
        }
        summary
    }

    fn progress(&self) -> Progress {
        let (mut frames_in, mut frames_out) = (0, 0);
        for index in 0..self.stats.streams() {
            let stats = self.stats.stream(stream_id(index));
            frames_in += stats.frames_in;
            frames_out += stats.frames_out;
        }
        Progress { frames_in, frames_out, elapsed: self.clock.now().since(self.started) }
    }

    fn join(&mut self) -> (EndState, Vec<String>, Vec<Diagnosis>) {
        let mut faults = Vec::new();
        for lane in self.lanes.drain(..) {
            faults.extend(joined(lane, "a lane").and_then(|end| end).err());
        }
        let mut stopped = false;
        for source in self.sources.drain(..) {
            match joined(source, "a source") {
                Ok(SourceEnd::Complete) => {}
                Ok(SourceEnd::Stopped) => stopped = true,
                Ok(SourceEnd::Failed(why)) | Err(why) => faults.push(why),
            }
        }
        let mut files = Vec::new();
        for sink in self.sinks.drain(..) {
            match joined(sink, "a sink") {
                Ok((written, failed)) => {
                    files.extend(written.iter().map(|path| path.display().to_string()));
                    faults.extend(failed);
                }
                Err(why) => faults.push(why),
            }
        }
        let end = match (faults.is_empty(), stopped && self.stop.requested()) {
            (false, _) => EndState::Failed,
            (true, true) => EndState::Interrupted,
            (true, false) => EndState::Complete,
        };
        (end, files, faults)
    }
}

fn joined<T>(thread: JoinHandle<T>, what: &str) -> Result<T, Diagnosis> {
    thread.join().map_err(|_| {
        let next = "report this with the message above";
        Diagnosis::new(&codes::ENGINE_RUN, what, "its thread panicked, which is a bug in Orinoco", next)
    })
}

fn spawn<T: Send + 'static>(
    name: String,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Diagnosis> {
    thread::Builder::new().name(name.clone()).spawn(work).map_err(|error| {
        Diagnosis::new(
            &codes::ENGINE_RUN,
            format!("thread {name}"),
            error,
            "raise the limit on threads (ulimit -u)",
        )
    })
}

fn stream_id(index: usize) -> StreamId {
    StreamId(u16::try_from(index).expect("a board has at most 64 streams"))
}

/// All values, or all faults.
fn collect<T>(results: impl Iterator<Item = Result<T, Faults>>) -> Result<Vec<T>, Faults> {
    let mut values = Vec::new();
    let mut faults = Faults::default();
    for result in results {
        match result {
            Ok(value) => values.push(value),
            Err(more) => faults.0.extend(more.0),
        }
    }
    if faults.0.is_empty() { Ok(values) } else { Err(faults) }
}
