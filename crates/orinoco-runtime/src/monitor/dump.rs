//! Post-mortem of a run: its status, its events, and the latest records of its data plane.

use std::time::Duration;

use orinoco_api::{DUMP_SCHEMA, Dump, LaneStatus, StuckPart, TraceEntry};
use orinoco_core::{Nanos, StreamId, TimeSpan};
use orinoco_telemetry::{
    DropCause, MissCause, ModelCounter, Queue, QueueStep, Record, SourceState, Stage, StreamFold, Trace,
};

use super::directory::Directory;
use super::status;
use super::status::STUCK_AFTER;
use super::view::View;

pub(super) fn of(view: &View, reason: &str) -> Dump {
    let status = status::of(view);
    let Trace { records, lost } = view.telemetry.trace();
    let directory = view.directory();
    Dump {
        schema: DUMP_SCHEMA.to_owned(),
        reason: reason.to_owned(),
        written_unix_s: view.clock.wall().unix_nanos() as f64 * 1e-9,
        crash: None,
        stuck: stuck(view, &directory, &status.lanes),
        trace: records.iter().map(|record| entry(record, &directory)).collect(),
        trace_lost: lost,
        events: view.events.after(0),
        status,
    }
}

/// Returns the lanes and streams that make no progress.
fn stuck(view: &View, directory: &Directory, lanes: &[LaneStatus]) -> Vec<StuckPart> {
    let of_lane = |lane: &LaneStatus| StuckPart {
        part: format!("lane {}", lane.lane),
        stage: lane.stage.clone().unwrap_or_else(|| Stage::Infer.name().to_owned()),
        since_s: lane.executing_ms.unwrap_or_default() / 1e3,
    };
    let mut parts: Vec<StuckPart> = lanes.iter().filter(|lane| lane.stuck).map(of_lane).collect();
    let now = view.now();
    for (id, listed) in &directory.streams {
        // Frames of a stream whose lane is stuck wait for that lane.
        if lanes.get(listed.lane).is_some_and(|lane| lane.stuck) {
            continue;
        }
        let stuck = view.telemetry.stream(*id).read(|fold| stuck_stream(fold, view.started, now));
        parts.extend(stuck.map(|(stage, since)| StuckPart {
            part: format!("stream {}", listed.name),
            stage: stage.name().to_owned(),
            since_s: since.as_secs_f64(),
        }));
    }
    parts
}

/// Returns the stage in which a stream makes no progress, and for how long: its source if all frames that came are accounted
/// for, else its sinks, because its lane works.
fn stuck_stream(fold: &StreamFold, started: Nanos, now: Nanos) -> Option<(Stage, Duration)> {
    let since_out = now.since(fold.last_out.unwrap_or(started));
    if fold.state == Some(SourceState::Ended) || since_out <= STUCK_AFTER {
        return None;
    }
    let dropped: u64 = DropCause::ALL.into_iter().map(|cause| fold.dropped(cause)).sum();
    if fold.frames_in > fold.frames_out + dropped {
        return Some((Stage::Sink, since_out));
    }
    let since_in = now.since(fold.last_in.unwrap_or(started));
    (since_in > STUCK_AFTER).then_some((Stage::Capture, since_in))
}

/// Entry without anything but its kind and its time.
fn blank(kind: &str, at: Nanos) -> TraceEntry {
    TraceEntry {
        at_us: at.since(Nanos(0)).as_nanos() as f64 / 1e3,
        kind: kind.to_owned(),
        stream: None,
        model: None,
        lane: None,
        seq: None,
        what: None,
        took_us: None,
        count: None,
    }
}

fn took(span: TimeSpan) -> Option<f64> {
    Some(span.duration().as_nanos() as f64 / 1e3)
}

fn entry(record: &Record, directory: &Directory) -> TraceEntry {
    let stream = |id: StreamId| {
        Some(directory.streams.get(&id).map_or_else(|| format!("#{}", id.0), |listed| listed.name.clone()))
    };
    let of_frame = |kind, at, id, seq| TraceEntry { stream: stream(id), seq: Some(seq), ..blank(kind, at) };
    match record {
        Record::Arrival(it) => of_frame("arrival", it.at, it.stream, it.seq),
        Record::Frame(it) => TraceEntry {
            what: Some(it.stage.name().to_owned()),
            took_us: took(it.span),
            ..of_frame("frame", it.span.start(), it.stream, it.seq)
        },
        Record::Queue(it) => TraceEntry {
            what: Some(format!("{} {}", queue_name(it.queue), step_name(it.step))),
            ..of_frame("queue", it.at, it.stream, it.seq)
        },
        Record::DecoderCpu(it) => TraceEntry {
            took_us: Some(it.took.as_nanos() as f64 / 1e3),
            ..of_frame("decoder-cpu", it.at, it.stream, it.seq)
        },
        Record::Drop(it) => TraceEntry {
            what: Some(it.cause.name().to_owned()),
            count: Some(it.frames),
            ..of_frame("drop", it.at, it.stream, it.seq)
        },
        Record::Result(it) => TraceEntry {
            what: it.late_in.map(|stage| format!("late in {}", stage.name())),
            count: Some(it.detections),
            ..of_frame("result", it.at, it.stream, it.seq)
        },
        Record::State(it) => TraceEntry {
            stream: stream(it.stream),
            what: Some(it.state.name().to_owned()),
            ..blank("state", it.at)
        },
        Record::Lane(it) => TraceEntry {
            lane: Some(it.lane.index()),
            what: Some(lane_step_name(it.step).to_owned()),
            count: Some(u64::from(it.frames)),
            ..blank("lane", it.at)
        },
        Record::Batch(it) => TraceEntry {
            lane: Some(it.lane.index()),
            model: Some(directory.model_name(it.model)),
            what: Some(it.stage.name().to_owned()),
            took_us: took(it.span),
            count: Some(u64::from(it.items)),
            ..blank("batch", it.span.start())
        },
        Record::Request(it) => TraceEntry {
            lane: Some(it.lane.index()),
            model: Some(directory.model_name(it.model)),
            took_us: took(it.span),
            ..blank("request", it.span.start())
        },
        Record::Count(it) => TraceEntry {
            model: Some(directory.model_name(it.model)),
            what: Some(counter_name(it.counter).to_owned()),
            count: Some(it.count),
            ..blank("count", it.at)
        },
        other => blank("other", other.at()),
    }
}

fn queue_name(queue: Queue) -> &'static str {
    match queue {
        Queue::Ring => "ring",
        Queue::Sinks => "sinks",
    }
}

fn step_name(step: QueueStep) -> &'static str {
    match step {
        QueueStep::Waited => "waited",
        QueueStep::Accepted => "accepted",
        QueueStep::ReplacedOldest => "replaced-oldest",
        QueueStep::Refused => "refused",
        QueueStep::Taken => "taken",
    }
}

fn lane_step_name(step: orinoco_telemetry::LaneStep) -> &'static str {
    use orinoco_telemetry::LaneStep::{Finished, Resumed, Suspended, Took, TookRequest};
    match step {
        Took => "took",
        Finished => "finished",
        Suspended => "suspended",
        Resumed => "resumed",
        TookRequest => "took-request",
    }
}

fn counter_name(counter: ModelCounter) -> &'static str {
    match counter {
        ModelCounter::GraphFallbacks => "graph-fallbacks",
        ModelCounter::NotFinite => "not-finite",
        ModelCounter::Missed(MissCause::Offline) => "missed-offline",
        ModelCounter::Missed(MissCause::Overloaded) => "missed-overloaded",
        ModelCounter::Missed(MissCause::Late) => "missed-late",
        ModelCounter::Missed(MissCause::Failed) => "missed-failed",
    }
}
