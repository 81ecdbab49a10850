//! Status of a run, made from the directory, the folds, and the latest readings.

use std::time::Duration;

use orinoco_api::{
    Dropped, EnergyStatus, LaneStatus, LateFrames, MemoryStatus, ModelStatus, ModelSummary, STATUS_SCHEMA,
    StageSummary, Status, StreamStatus,
};
use orinoco_core::{ComputeUnit, LaneId, ModelId, Nanos, StreamId};
use orinoco_telemetry::energy::{Covers, EnergyReport};
use orinoco_telemetry::{
    DropCause, Histogram, LaneFold, ModelFold, SourceState, Stage, StageFold, StreamFold, WINDOW,
    WindowReader,
};

use super::directory::{Directory, ListedStream};
use super::readings::{figure_json, joules, stages_json};
use super::view::View;
use crate::memory::resident_bytes;
use crate::percentiles::summarise_durations;
use crate::summary::counted_remote;

/// Time without progress after which a lane that executes a batch counts as stuck: longer than a batch of a large model takes
/// on a small board's processor, and shorter than a person waits.
pub(super) const STUCK_AFTER: Duration = Duration::from_secs(30);
/// Number of events in a status; `/v1/events` has more.
const EVENTS_MAX: usize = 16;

/// Stages of a model.
pub(super) const MODEL_STAGES: [Stage; 3] = [Stage::Preprocess, Stage::Infer, Stage::Postprocess];

pub(super) fn of(view: &View) -> Status {
    let now = view.now();
    let readings = view.readings.latest();
    let directory = view.directory();
    let report = readings.energy.as_ref().ok().map(|report| &**report);
    let streams: Vec<StreamStatus> = directory
        .streams
        .iter()
        .map(|(id, listed)| stream(view, &directory, *id, listed, report, now))
        .collect();
    let models = directory.models.iter().map(|(id, listed)| model(view, *id, listed, report, now)).collect();
    let lanes = lanes_of(view, &directory, now);
    let is_live = |stream: &StreamStatus| stream.state == SourceState::Live.name();
    let mut events = view.events.after(0);
    events.drain(..events.len().saturating_sub(EVENTS_MAX));
    Status {
        schema: STATUS_SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        board: directory.board.clone(),
        healthy: lanes.iter().all(|lane| !lane.stuck),
        ready: !streams.is_empty() && streams.iter().all(is_live),
        uptime_s: now.since(view.started).as_secs_f64(),
        window_s: WINDOW.as_secs_f64(),
        streams,
        streams_ended: directory.ended.streams,
        models,
        lanes,
        memory: MemoryStatus {
            resident_bytes: resident_bytes(),
            planned_bytes: directory.memory.map(|(planned, _)| planned),
            budget_bytes: directory.memory.map(|(_, budget)| budget),
            machine_bytes: readings.machine_bytes,
            available_bytes: readings.available_bytes,
        },
        sensors: readings.sensors.clone(),
        energy: energy(&readings.energy, now.since(view.started)),
        governor: view.governor(),
        // The daemon adds it: a run knows no other boards.
        cluster: None,
        events,
    }
}

/// Returns the state of the lanes.
pub(super) fn lanes(view: &View) -> Vec<LaneStatus> {
    lanes_of(view, &view.directory(), view.now())
}

fn lanes_of(view: &View, directory: &Directory, now: Nanos) -> Vec<LaneStatus> {
    (0..directory.lanes)
        .map(|lane| {
            let fold = view.telemetry.lane(LaneId::from_index(lane)).read(LaneFold::clone);
            let silence = fold.progress.map(|progress| now.since(progress));
            let current = fold.executing_since.and_then(|_| fold.current.get());
            let other_work = fold.other_work.map(|(work, _)| work.name());
            LaneStatus {
                lane,
                batches: fold.batches,
                frames: fold.frames,
                requests: fold.requests,
                busy_s: fold.busy(ComputeUnit::Cpu).as_secs_f64(),
                gpu_busy_s: fold.busy(ComputeUnit::Gpu).as_secs_f64(),
                executing_ms: fold.working_since().map(|since| now.since(since).as_secs_f64() * 1e3),
                model: current.map(|(model, _)| directory.model_name(model)),
                stage: current.map(|(_, stage)| stage.name()).or(other_work).map(str::to_owned),
                stuck: fold.working_since().is_some() && silence.is_some_and(|silence| silence > STUCK_AFTER),
            }
        })
        .collect()
}

fn stream(
    view: &View,
    directory: &Directory,
    id: StreamId,
    listed: &ListedStream,
    report: Option<&EnergyReport>,
    now: Nanos,
) -> StreamStatus {
    let telemetry = view.telemetry.stream(id);
    let counts = telemetry.read(|fold| StreamCounts::of(fold, now));
    let StreamCounts { state, frames_in, frames_out, late, reconnects, detections, last_out, fps, .. } =
        counts;
    let mut reader = WindowReader::default();
    let figure = report.and_then(|report| report.streams.iter().find(|energy| energy.stream == id));
    StreamStatus {
        name: listed.name.clone(),
        source: listed.source.clone(),
        state: state.map_or("starting", SourceState::name).to_owned(),
        lane: listed.lane,
        models: listed.models.iter().map(|model| directory.model_name(*model)).collect(),
        fps,
        frames_in,
        frames_out,
        dropped: counts.dropped(),
        late,
        late_in: counts.late_in(),
        reconnects,
        detections,
        silence_ms: last_out.map(|last| now.since(last).as_secs_f64() * 1e3),
        window: percentiles(Stage::ALL, |stage, times| *times = telemetry.window(stage, now, &mut reader)),
        stages: percentiles(Stage::ALL, |stage, times| {
            telemetry.read(|fold| times.copy_from(fold.stage(stage)));
        }),
        energy_per_frame: figure.map(|energy| figure_json(&energy.per_frame)),
        energy_j: figure.and_then(|energy| joules(&energy.total)),
        energy_by_stage: figure.map_or_else(Vec::new, |energy| stages_json(&energy.stages)),
    }
}

/// Numbers of a stream, which are copied under the lock of its fold: plain data without allocations.
struct StreamCounts {
    state: Option<SourceState>,
    frames_in: u64,
    frames_out: u64,
    dropped: [u64; DropCause::ALL.len()],
    late: u64,
    late_in: [u64; Stage::ALL.len()],
    reconnects: u64,
    detections: u64,
    last_out: Option<Nanos>,
    fps: f64,
}

impl StreamCounts {
    fn of(fold: &StreamFold, now: Nanos) -> Self {
        Self {
            state: fold.state,
            frames_in: fold.frames_in,
            frames_out: fold.frames_out,
            dropped: DropCause::ALL.map(|cause| fold.dropped(cause)),
            late: fold.late,
            late_in: Stage::ALL.map(|stage| fold.late_in(stage)),
            reconnects: fold.reconnects,
            detections: fold.detections,
            last_out: fold.last_out,
            fps: fold.fps_in_window(now),
        }
    }

    fn dropped(&self) -> Vec<Dropped> {
        let dropped = DropCause::ALL.into_iter().zip(self.dropped).filter(|(_, frames)| *frames > 0);
        dropped.map(|(cause, frames)| Dropped { cause: cause.name().to_owned(), frames }).collect()
    }

    fn late_in(&self) -> Vec<LateFrames> {
        let late = Stage::ALL.into_iter().zip(self.late_in).filter(|(_, frames)| *frames > 0);
        late.map(|(stage, frames)| LateFrames { stage: stage.name().to_owned(), frames }).collect()
    }
}

/// Returns the percentiles of each stage that has durations. Each stage is copied under the lock by itself, so that a frame
/// waits for one copy at most.
fn percentiles<const N: usize>(
    stages: [Stage; N],
    mut copy: impl FnMut(Stage, &mut Histogram),
) -> Vec<StageSummary> {
    let mut times = Histogram::default();
    let summary = |stage: Stage| {
        copy(stage, &mut times);
        (times.count() > 0).then(|| summarise_durations(stage.name(), &times))
    };
    stages.into_iter().filter_map(summary).collect()
}

/// Returns the figures of one of [`MODEL_STAGES`].
pub(super) fn stage_of(fold: &ModelFold, stage: Stage) -> &StageFold {
    match stage {
        Stage::Preprocess => &fold.preprocess,
        Stage::Infer => &fold.infer,
        _ => &fold.postprocess,
    }
}

fn model(
    view: &View,
    id: ModelId,
    listed: &ModelSummary,
    report: Option<&EnergyReport>,
    now: Nanos,
) -> ModelStatus {
    let telemetry = view.telemetry.model(id);
    let mut reader = WindowReader::default();
    let of_window = |stage, times: &mut Histogram| {
        *times = telemetry.window(|fold| stage_of(fold, stage), now, &mut reader);
    };
    let of_run = |stage, times: &mut Histogram| {
        telemetry.read(|fold| times.copy_from(stage_of(fold, stage).total()));
    };
    let counts = |fold: &ModelFold| (fold.inferences, fold.items, fold.graph_fallbacks, fold.not_finite);
    let (inferences, images, graph_fallbacks, not_finite) = telemetry.read(counts);
    let remote = counted_remote(listed.remote.as_ref(), telemetry.read(|fold| fold.remote));
    let figure = report.and_then(|report| report.models.iter().find(|energy| energy.model == id));
    ModelStatus {
        name: listed.name.clone(),
        engine: listed.engine.clone(),
        engine_version: listed.engine_version.clone(),
        batch: listed.batch,
        inferences,
        images,
        graph_fallbacks,
        not_finite,
        remote,
        window: percentiles(MODEL_STAGES, of_window),
        stages: percentiles(MODEL_STAGES, of_run),
        energy_per_image: figure.map(|energy| figure_json(&energy.per_item)),
        energy_j: figure.and_then(|energy| joules(&energy.total)),
        energy_by_stage: figure.map_or_else(Vec::new, |energy| stages_json(&energy.stages)),
    }
}

/// Returns the energy of a run that has lasted so long.
fn energy(report: &Result<std::sync::Arc<EnergyReport>, String>, uptime: Duration) -> EnergyStatus {
    let report = match report {
        Ok(report) => report,
        Err(why) => {
            return EnergyStatus {
                rails: Vec::new(),
                covers: None,
                joules: None,
                unmeasured_s: uptime.as_secs_f64(),
                idle_watts: None,
                not_measured: Some(why.clone()),
            };
        }
    };
    let covers = match report.total.covers {
        Covers::Input => "input",
        Covers::NamedRails => "named-rails",
    };
    EnergyStatus {
        rails: report.total.rails.iter().map(ToString::to_string).collect(),
        covers: Some(covers.to_owned()),
        joules: Some(report.total.energy.to_f64()),
        unmeasured_s: report.total.unmeasured.as_secs_f64(),
        idle_watts: report.baseline.as_ref().ok().map(|baseline| baseline.power.to_f64()),
        not_measured: report.baseline.err().map(|why| why.to_string()),
    }
}
