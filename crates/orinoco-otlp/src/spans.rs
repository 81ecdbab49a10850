//! Spans of a frame: one for the frame, and below it one for each part of its way.

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, SpanFlags, Status};
use orinoco_core::{Nanos, TimeSpan};

use crate::attributes::{number, text};
use crate::exported::Names;
use crate::frames::{FrameEnd, ModelStep, TracedFrame};

/// Flags of every span: its trace is sampled and has a random id (W3C Trace Context, level 2), and its parent is not remote.
const FLAGS: u32 = 0x03 | SpanFlags::ContextHasIsRemoteMask as u32;

/// Returns the spans of a frame, its own first. `unix` gives the Unix time of a time of the run, in nanoseconds.
pub(crate) fn spans(frame: TracedFrame, names: &Names, unix: &dyn Fn(Nanos) -> u64) -> Vec<Span> {
    let whole = whole(&frame);
    let mut ids = frame.ids.clone();
    let root = ids.next_span();
    let mut span = |name: &str, span: TimeSpan, parent: &[u8], attributes: Vec<KeyValue>| Span {
        trace_id: frame.ids.trace(),
        span_id: if parent.is_empty() { root.clone() } else { ids.next_span() },
        parent_span_id: parent.to_vec(),
        flags: FLAGS,
        name: name.to_owned(),
        kind: SpanKind::Internal as i32,
        start_time_unix_nano: unix(span.start()),
        end_time_unix_nano: unix(span.end()),
        attributes,
        ..Span::default()
    };
    let mut spans = vec![Span {
        status: status(&frame),
        events: events(&frame, unix),
        ..span("frame", whole, &[], of_frame(&frame, names))
    }];
    let (source, begin) = source(&frame, whole);
    spans.push(span("source", source, &root, vec![text("orinoco.source.begin", begin)]));
    spans.extend(frame.decode.map(|decode| span("decode", decode, &root, Vec::new())));
    spans.extend(frame.queue.map(|queue| span("queue", queue, &root, Vec::new())));
    spans.extend(
        frame.steps.iter().map(|step| span(step.stage.name(), step.span, &root, of_step(step, names))),
    );
    spans.extend(frame.sink.map(|sink| span("sink", sink, &root, Vec::new())));
    spans
}

/// Returns the time of the whole frame, which contains that of all of its parts.
fn whole(frame: &TracedFrame) -> TimeSpan {
    let parts = [frame.capture, frame.decode, frame.queue, frame.sink];
    let parts = parts.into_iter().flatten().chain(frame.steps.iter().map(|step| step.span));
    let (mut start, mut end) = (frame.arrived, frame.arrived.max(frame.ended));
    for part in parts {
        start = start.min(part.start());
        end = end.max(part.end());
    }
    TimeSpan::new(start, end)
}

/// Returns the time until the frame reached its slot, and what begins it.
fn source(frame: &TracedFrame, whole: TimeSpan) -> (TimeSpan, &'static str) {
    let begin = match (frame.capture, frame.decode) {
        (Some(_), _) => "capture",
        (None, Some(_)) => "decode",
        (None, None) => "arrival",
    };
    (TimeSpan::new(whole.start(), frame.arrived), begin)
}

fn of_frame(frame: &TracedFrame, names: &Names) -> Vec<KeyValue> {
    let stream = names.streams.get(&frame.stream);
    let stream = stream.map_or_else(|| format!("#{}", frame.stream.0), String::clone);
    let mut attributes = vec![text("orinoco.stream", &stream), number("orinoco.frame.seq", frame.seq)];
    match frame.end {
        FrameEnd::Finished { detections, late_in } => {
            attributes.push(number("orinoco.frame.detections", detections));
            attributes.extend(late_in.map(|stage| text("orinoco.frame.late_in", stage.name())));
        }
        FrameEnd::Dropped(cause) => attributes.push(text("orinoco.frame.drop_cause", cause.name())),
    }
    attributes
}

fn of_step(step: &ModelStep, names: &Names) -> Vec<KeyValue> {
    let Some(batch) = step.batch else { return Vec::new() };
    let mut attributes = Vec::new();
    if let Some(labels) = names.models.get(&batch.model) {
        attributes.push(text("orinoco.model", &labels.model));
        attributes.push(text("orinoco.engine", &labels.engine));
    }
    attributes.extend([
        number("orinoco.lane", batch.lane.index() as u64),
        number("orinoco.batch.images", u64::from(batch.items)),
        number("orinoco.batch.frame_images", u64::from(step.images)),
    ]);
    attributes
}

/// Returns the status: an error for a dropped frame, else none.
fn status(frame: &TracedFrame) -> Option<Status> {
    let FrameEnd::Dropped(cause) = frame.end else { return None };
    Some(Status { message: format!("dropped: {}", cause.name()), code: StatusCode::Error as i32 })
}

fn events(frame: &TracedFrame, unix: &dyn Fn(Nanos) -> u64) -> Vec<Event> {
    let FrameEnd::Dropped(_) = frame.end else { return Vec::new() };
    let (time_unix_nano, name) = (unix(frame.ended), "dropped".to_owned());
    vec![Event { time_unix_nano, name, ..Event::default() }]
}

#[cfg(test)]
mod tests;
