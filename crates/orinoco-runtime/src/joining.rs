//! Joining of streams to lanes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use orinoco_board::BoardStream;
use orinoco_core::{Diagnosis, DropPolicy, LaneId, ModelId, StreamId, codes};
use orinoco_media::FrameMemory;
use orinoco_pipeline::{
    BoundPlan, FrameSender, JoinError, JoinRequest, Lane, LaneEntry, ModelHold, Notice, Reconnect,
    SinkOutputs, SinkThread, SourceRunner, StreamQueue, StreamTracker,
};

use crate::action::Action;
use crate::apply::JoinFailure;
use crate::model_version::LanePlan;
use crate::prepare::Plans;
use crate::readers::OutputReader;
use crate::shared::Shared;
use crate::stream::OpenStream;
use crate::threads::spawn;
use crate::track::TrackingCounts;

/// Group of the keeper stream of a lane. It has no frames, so it never shares a batch.
const KEEPER_GROUP: usize = usize::MAX;

/// Stream that has joined a lane.
pub(crate) struct RunningStream {
    pub(crate) spec: BoardStream,
    pub(crate) models: Vec<ModelId>,
    /// Paths of its sinks.
    pub(crate) files: Vec<PathBuf>,
    /// Readers that its outputs may lose and still have. `outputs_read` is the number of outputs that have not lost theirs.
    pub(crate) readers: Vec<OutputReader>,
    pub(crate) outputs_read: usize,
    /// Number of its outputs that have failed.
    outputs_failed: Arc<AtomicUsize>,
    /// Its source, as messages show it.
    pub(crate) shown: String,
    pub(crate) is_live: bool,
    pub(crate) counted: Option<TrackingCounts>,
    /// Group of streams that execute the same models, and may share batches.
    group: usize,
    /// Its source, until the source is started.
    pub(crate) source: Option<SourceRunner>,
    /// Whether the stream has ended, and its figures were moved to the ended streams.
    pub(crate) has_ended: bool,
}

impl RunningStream {
    /// Returns the number of outputs that have their reader and have not failed.
    pub(crate) fn outputs_left(&self) -> usize {
        self.outputs_read.saturating_sub(self.outputs_failed.load(Ordering::Relaxed))
    }
}

/// Adds streams to lanes.
pub(crate) struct Joiner {
    shared: Shared,
    /// Number of groups so far.
    groups: usize,
}

impl Joiner {
    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared, groups: 0 }
    }

    /// Creates a lane that is not started yet, with the entry at which streams join it, and the sender of its keeper. A
    /// lane ends with its last stream; the keeper is a stream without frames that counts as one.
    pub(crate) fn new_lane(&self, lane: LaneId) -> (Lane, (LaneEntry, FrameSender)) {
        let Shared { clock, events, telemetry, stop, .. } = self.shared.clone();
        let (lane, entry) = Lane::new(Arc::clone(&clock), Arc::clone(&events), telemetry.lane(lane));
        // The keeper has an id, which no other stream gets, and no figures.
        let stream = telemetry.add_stream("");
        let keeper = telemetry.stream(stream);
        telemetry.remove_stream(stream);
        let policy = DropPolicy::Block;
        let (_, result_sender) = SinkThread::new(keeper, Vec::new(), policy, None, clock, events);
        let (group, batch_wait) = (KEEPER_GROUP, Duration::ZERO);
        let joining = JoinRequest {
            stream,
            queue: StreamQueue { group, frames_max: 1, policy, batch_wait },
            steps: Vec::new(),
            plans: Vec::new(),
            tracker: None,
            in_video_memory: false,
            result_sender,
            stop: stop.of(stream),
        };
        let keeper = entry.join(joining).expect("a lane that was not started takes streams");
        (lane, (entry, keeper))
    }

    /// Lets a stream join a lane and starts its sinks; its source is not started yet. Models that the lane does not hold
    /// are taken from `plans`, but only when nothing can fail any more, because later streams may need them.
    pub(crate) fn join<P: Send + 'static>(
        &mut self,
        open: OpenStream,
        plans: &mut Plans,
        entry: &LaneEntry,
        actions: &Sender<Action<P>>,
        others: &BTreeMap<StreamId, RunningStream>,
    ) -> Result<(StreamId, RunningStream), JoinFailure> {
        let _holds = self.hold(&open, plans, entry)?;
        let brings =
            |model: &ModelId| plans.get(model).is_some_and(|plan| plan.executor.reads_video_memory());
        let memory = open.frame_memory(|model| entry.reads_video_memory(model) || brings(&model));
        let Shared { clock, events, telemetry, stop, .. } = self.shared.clone();
        let source = orinoco_media::open(
            &open.spec.source,
            &open.spec.name,
            memory,
            open.spec.queue_frames,
            Arc::clone(&clock),
        );
        let source = source.map_err(|why| JoinFailure { why, once_more: false })?;
        let (policy, is_live) = (open.policy(), open.spec.source.is_live());
        let OpenStream { spec, models, files, sinks, readers, tracker, lane, steps, .. } = open;
        let stream = telemetry.add_stream(&spec.name);
        let of_stream = telemetry.stream(stream);
        let outputs_read = sinks.len();
        let (sink, result_sender) = SinkThread::new(
            of_stream.clone(),
            sinks,
            policy,
            spec.latency_max,
            Arc::clone(&clock),
            Arc::clone(&events),
        );
        let outputs_failed = sink.failed();
        let group = self.group(&models, others);
        let (tracker, counted) = tracker.unzip();
        let brought = models.iter().filter_map(|model| plans.remove(model));
        let brought = brought.map(|plan| reported_when_dropped(plan, lane, actions));
        let joining = JoinRequest {
            stream,
            queue: StreamQueue { group, frames_max: spec.queue_frames, policy, batch_wait: spec.batch_wait },
            steps,
            plans: brought.collect(),
            tracker: tracker.map(|tracker| Box::new(tracker) as Box<dyn StreamTracker>),
            in_video_memory: memory == FrameMemory::Nvmm,
            result_sender,
            stop: stop.of(stream),
        };
        let frame_sender = entry.join(joining).map_err(|why| {
            telemetry.remove_stream(stream);
            not_joined(&spec, why)
        })?;
        let actions = actions.clone();
        let ended = move |end: Result<SinkOutputs, Diagnosis>| {
            let _ = actions.send(Action::SinkEnded(stream, end));
        };
        let started = spawn(format!("sink-{}", spec.name), move || sink.run(), ended);
        started.map_err(|why| {
            telemetry.remove_stream(stream);
            JoinFailure { why, once_more: false }
        })?;
        let runner = SourceRunner {
            shown: spec.source.to_string(),
            source,
            frame_sender,
            reconnect: Reconnect { attempts_max: spec.reconnect_attempts, stall: spec.stall },
            frames_max: spec.frames_max,
            clock,
            // A seed of its own for each run and stream, so that they do not reconnect to one server at the same time.
            seed: self.shared.seed ^ u64::from(stream.0) << 32,
            events,
            telemetry: of_stream,
            stop: stop.of(stream),
        };
        let shown = spec.source.to_string();
        let joined = RunningStream {
            spec,
            models,
            files,
            readers,
            outputs_read,
            outputs_failed,
            shown,
            is_live,
            counted,
            group,
            source: Some(runner),
            has_ended: false,
        };
        Ok((stream, joined))
    }

    /// Holds the models of a stream that its lane has already. All others must be in `plans`.
    fn hold(
        &self,
        open: &OpenStream,
        plans: &Plans,
        entry: &LaneEntry,
    ) -> Result<Vec<ModelHold>, JoinFailure> {
        let mut holds = Vec::new();
        for model in &open.models {
            match entry.hold(*model) {
                Some(hold) => holds.push(hold),
                None if plans.contains_key(model) => {}
                None => return Err(not_joined(&open.spec, JoinError::NoPlan(*model))),
            }
        }
        Ok(holds)
    }

    fn group(&mut self, models: &[ModelId], others: &BTreeMap<StreamId, RunningStream>) -> usize {
        let same = others.values().find(|other| !other.has_ended && other.models == models);
        same.map_or_else(
            || {
                self.groups += 1;
                self.groups
            },
            |other| other.group,
        )
    }
}

/// Has the run told when a plan was dropped, and with it the memory that the plan held.
pub(crate) fn reported_when_dropped<P: Send + 'static>(
    plan: BoundPlan,
    lane: usize,
    actions: &Sender<Action<P>>,
) -> BoundPlan {
    let (dropped, actions) =
        (LanePlan { lane, model: plan.model, generation: plan.generation }, actions.clone());
    // Sending fails if the run is over.
    let notice = Notice::new(move || drop(actions.send(Action::PlanDropped(dropped))));
    BoundPlan { dropped: Some(notice), ..plan }
}

fn not_joined(spec: &BoardStream, why: JoinError) -> JoinFailure {
    let cause = match why {
        JoinError::Ended => "its lane stopped during the reload",
        JoinError::NoPlan(_) => "its lane unloaded one of the stream's models during the reload",
        JoinError::VideoMemory(_) => {
            "the reload replaced a model on its lane by one that cannot read frames from GPU memory"
        }
    };
    let next = "reload the board file again";
    let why = Diagnosis::new(&codes::RELOAD, format!("stream {}", spec.name), cause, next);
    JoinFailure { why, once_more: true }
}
