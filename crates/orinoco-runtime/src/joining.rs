//! Letting streams join lanes.

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
    BoundPlan, FrameSender, JoinRequest, Lane, LaneEntry, ModelHold, Reconnect, SinkOutputs, SinkThread,
    SourceRunner, StreamQueue, StreamTracker,
};

use crate::action::Action;
use crate::apply::JoinFailure;
use crate::prepare::Plans;
use crate::readers::OutputReader;
use crate::shared::Shared;
use crate::stream::OpenStream;
use crate::threads::spawn;
use crate::track::TrackingCounts;

/// Group of the stream that keeps a lane. It has no frames, so it never shares a batch.
const KEEPER_GROUP: usize = usize::MAX;

/// A stream that has joined.
pub(crate) struct RunningStream {
    pub(crate) spec: BoardStream,
    pub(crate) models: Vec<ModelId>,
    /// Where its sinks write.
    pub(crate) files: Vec<PathBuf>,
    /// Its outputs that may lose their readers and have not, and how many outputs have theirs.
    pub(crate) readers: Vec<OutputReader>,
    pub(crate) outputs_read: usize,
    /// How many of its outputs have failed.
    outputs_failed: Arc<AtomicUsize>,
    /// Its source as messages show it.
    pub(crate) shown: String,
    pub(crate) is_live: bool,
    pub(crate) counted: Option<TrackingCounts>,
    /// Streams that run through the same models share batches, if they are of one group.
    group: usize,
    /// Its source, until that is started.
    pub(crate) source: Option<SourceRunner>,
    /// Its figures have been handed over.
    pub(crate) has_ended: bool,
}

impl RunningStream {
    /// Number of outputs that have their readers and have not failed.
    pub(crate) fn outputs_left(&self) -> usize {
        self.outputs_read.saturating_sub(self.outputs_failed.load(Ordering::Relaxed))
    }
}

/// Lets streams join lanes.
pub(crate) struct Joiner {
    shared: Shared,
    /// Groups that were given so far.
    groups: usize,
}

impl Joiner {
    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared, groups: 0 }
    }

    /// A lane that is to be started, where streams join it, and what it lives for: it ends with its last stream, and this
    /// counts as one.
    pub(crate) fn new_lane(&self, lane: LaneId) -> (Lane, (LaneEntry, FrameSender)) {
        let Shared { clock, events, telemetry, stop, .. } = self.shared.clone();
        let (lane, entry) = Lane::new(Arc::clone(&clock), Arc::clone(&events), telemetry.lane(lane));
        // It has an id, which nobody else gets, and no figures.
        let stream = telemetry.add_stream("");
        let keeper = telemetry.stream(stream);
        telemetry.remove_stream(stream);
        let policy = DropPolicy::Block;
        let (_, result_sender) = SinkThread::new(keeper, Vec::new(), policy, None, clock, events);
        let (group, batch_wait) = (KEEPER_GROUP, Duration::ZERO);
        let joining = JoinRequest {
            stream,
            queue: StreamQueue { group, batch_max: 1, frames_max: 1, policy, batch_wait },
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

    /// Lets a stream join a lane and starts its sinks; its source waits to be started. Models that the lane does not hold are
    /// taken from `plans`, but only when nothing can go wrong any more: the streams after it may need them, too.
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
        let OpenStream { spec, models, files, sinks, readers, tracker, steps, batch_max, .. } = open;
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
        let brought: Vec<BoundPlan> = models.iter().filter_map(|model| plans.remove(model)).collect();
        let joining = JoinRequest {
            stream,
            queue: StreamQueue {
                group,
                batch_max,
                frames_max: spec.queue_frames,
                policy,
                batch_wait: spec.batch_wait,
            },
            steps,
            plans: brought,
            tracker: tracker.map(|tracker| Box::new(tracker) as Box<dyn StreamTracker>),
            in_video_memory: memory == FrameMemory::Nvmm,
            result_sender,
            stop: stop.of(stream),
        };
        let frame_sender = entry.join(joining).map_err(|_| {
            telemetry.remove_stream(stream);
            not_joined(&spec, "its lane has just failed")
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
            // Differs between boards and streams, so that they do not knock on one server together.
            seed: u64::from(std::process::id()) << 32 | u64::from(stream.0),
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

    /// Holds those models of a stream that its lane has. All others have to be in `plans`.
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
                None => return Err(not_joined(&open.spec, "its lane has just given up one of its models")),
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

fn not_joined(spec: &BoardStream, cause: &str) -> JoinFailure {
    let next = "reload the board file again";
    let why = Diagnosis::new(&codes::RELOAD, format!("stream {}", spec.name), cause, next);
    JoinFailure { why, once_more: true }
}
