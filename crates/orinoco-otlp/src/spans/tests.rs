use super::*;
use crate::exported::ModelLabels;
use crate::ids::RunId;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use orinoco_core::{ComputeUnit, LaneId, ModelId, StreamId, WallTime};
use orinoco_telemetry::{BatchRecord, DropCause, Stage};

fn span(start: u64, end: u64) -> TimeSpan {
    TimeSpan::new(Nanos(start), Nanos(end))
}

fn frame() -> TracedFrame {
    let step = |stage, span| {
        let (lane, model, unit) = (LaneId(1), ModelId(5), ComputeUnit::Cpu);
        let batch = BatchRecord { lane, model, stage, unit, span, items: 4, was_suspended: false };
        ModelStep { stage, span, batch: Some(batch), images: 2 }
    };
    let (stream, seq) = (StreamId(3), 7);
    TracedFrame {
        stream,
        seq,
        ids: RunId::new(WallTime::from_unix_nanos(1), "gate-3", 42).frame(stream, seq),
        arrived: Nanos(1000),
        capture: Some(span(500, 1000)),
        decode: Some(span(700, 1000)),
        queue: Some(span(1000, 1500)),
        steps: vec![step(Stage::Preprocess, span(1500, 1600)), step(Stage::Infer, span(1600, 2600))],
        sink: Some(span(2700, 3000)),
        end: FrameEnd::Finished { detections: 2, late_in: Some(Stage::Infer) },
        ended: Nanos(3000),
    }
}

fn names() -> Names {
    let labels = ModelLabels { model: "person".to_owned(), engine: "tract".to_owned() };
    Names { streams: [(StreamId(3), "gate".to_owned())].into(), models: [(ModelId(5), labels)].into() }
}

fn unix(at: Nanos) -> u64 {
    1_000_000 + at.0
}

/// Returns name, start and end of each span in times of the run, after a check that all are below the first.
fn shown(spans: &[Span]) -> Vec<(&str, u64, u64)> {
    let (root, parts) = spans.split_first().expect("a frame has spans");
    assert!(root.parent_span_id.is_empty());
    for part in parts {
        assert_eq!((&part.trace_id, &part.parent_span_id), (&root.trace_id, &root.span_id), "{}", part.name);
        assert_ne!(part.span_id, root.span_id);
        let is_within = root.start_time_unix_nano <= part.start_time_unix_nano
            && part.start_time_unix_nano <= part.end_time_unix_nano
            && part.end_time_unix_nano <= root.end_time_unix_nano;
        assert!(is_within, "{part:?} is not within {root:?}");
    }
    let back = |unix: u64| unix - 1_000_000;
    let times = |span: &Span| (back(span.start_time_unix_nano), back(span.end_time_unix_nano));
    spans.iter().map(|span| (span.name.as_str(), times(span).0, times(span).1)).collect()
}

fn attributes(span: &Span) -> Vec<(&str, String)> {
    let value = |attribute: &KeyValue| match attribute.value.clone().and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("{other:?}"),
    };
    span.attributes.iter().map(|attribute| (attribute.key.as_str(), value(attribute))).collect()
}

#[test]
fn a_frame_is_the_parent_of_its_stages() {
    let spans = spans(frame(), &names(), &unix);
    let expected = [
        ("frame", 500, 3000),
        ("source", 500, 1000),
        ("decode", 700, 1000),
        ("queue", 1000, 1500),
        ("preprocess", 1500, 1600),
        ("infer", 1600, 2600),
        ("sink", 2700, 3000),
    ];
    assert_eq!(shown(&spans), expected);
    let text = |text: &str| text.to_owned();
    let of_frame = [
        ("orinoco.stream", text("gate")),
        ("orinoco.frame.seq", text("7")),
        ("orinoco.frame.detections", text("2")),
        ("orinoco.frame.late_in", text("infer")),
    ];
    assert_eq!(attributes(&spans[0]), of_frame);
    assert_eq!(attributes(&spans[1]), [("orinoco.source.begin", text("capture"))]);
    let of_infer = [
        ("orinoco.model", text("person")),
        ("orinoco.engine", text("tract")),
        ("orinoco.lane", text("1")),
        ("orinoco.batch.images", text("4")),
        ("orinoco.batch.frame_images", text("2")),
    ];
    assert_eq!(attributes(&spans[5]), of_infer);
    assert!(spans.iter().all(|span| span.status.is_none() && span.flags == 0x103 && span.span_id.len() == 8));
}

#[test]
fn a_source_begins_with_the_earliest_time_that_is_known() {
    let check = |capture, decode, expected: (&str, u64)| {
        let spans = spans(TracedFrame { capture, decode, ..frame() }, &names(), &unix);
        assert_eq!((attributes(&spans[1])[0].1.as_str(), shown(&spans)[1].1), expected);
    };
    check(Some(span(500, 1000)), None, ("capture", 500));
    check(None, Some(span(700, 1000)), ("decode", 700));
    check(None, None, ("arrival", 1000));
    // A driver's time stamp after the start of decoding.
    check(Some(span(900, 1000)), Some(span(700, 1000)), ("capture", 700));
}

#[test]
fn a_dropped_frame_is_an_error_with_the_stages_that_it_passed() {
    let (steps, end) = (Vec::new(), FrameEnd::Dropped(DropCause::DropOldest));
    let dropped = TracedFrame {
        capture: None,
        decode: None,
        queue: None,
        steps,
        sink: None,
        end,
        ended: Nanos(1800),
        ..frame()
    };
    let spans = spans(dropped, &Names::default(), &unix);
    assert_eq!(shown(&spans), [("frame", 1000, 1800), ("source", 1000, 1000)]);
    let status = spans[0].status.as_ref().expect("an error");
    assert_eq!((status.message.as_str(), status.code()), ("dropped: drop-oldest", StatusCode::Error));
    assert_eq!((spans[0].events[0].name.as_str(), spans[0].events[0].time_unix_nano), ("dropped", 1_001_800));
    let cause = ("orinoco.frame.drop_cause", "drop-oldest".to_owned());
    let expected = [("orinoco.stream", "#3".to_owned()), ("orinoco.frame.seq", "7".to_owned()), cause];
    assert_eq!(attributes(&spans[0]), expected, "a stream that nobody knows any more has its number");
}
