use super::*;
use crate::exported::ModelLabels;
use crate::ids::RunId;
use orinoco_board::OtlpSpec;
use orinoco_core::{Signal, StreamId, WallTime};
use orinoco_telemetry::{Metric, MetricKind, MetricValue, Telemetry};
use std::collections::BTreeMap;
use std::sync::Mutex;

const SECOND: u64 = 1_000_000_000;

/// Clock that the test sets. The time of day is 1,000 s ahead of it.
#[derive(Default)]
struct Set(Mutex<u64>);

impl Clock for Set {
    fn now(&self) -> Nanos {
        Nanos(*self.0.lock().expect("not poisoned"))
    }

    fn wall(&self) -> WallTime {
        WallTime::from_unix_nanos(1000 * SECOND + self.now().0)
    }

    fn signal(&self) -> Arc<dyn Signal> {
        unreachable!("nobody waits")
    }
}

/// Board whose streams the test sets.
struct Board(Arc<Mutex<BTreeMap<StreamId, String>>>);

impl Exported for Board {
    fn metrics(&self) -> Vec<Metric> {
        let mut metric = Metric::new("orinoco_frames_in_total", MetricKind::Counter, "Frames.");
        metric.add(&[], MetricValue::Number(1.0));
        vec![metric]
    }

    fn names(&self) -> Names {
        let labels = ModelLabels { model: "person".to_owned(), engine: "tract".to_owned() };
        Names {
            streams: self.0.lock().expect("not poisoned").clone(),
            models: [(orinoco_core::ModelId(0), labels)].into(),
        }
    }
}

struct Reading {
    clock: Arc<Set>,
    telemetry: Telemetry,
    streams: Arc<Mutex<BTreeMap<StreamId, String>>>,
    reader: RunReader,
    counts: Arc<Counts>,
}

impl Reading {
    fn new(records_max: usize) -> Self {
        let wanted = OtlpSpec { trace_ratio: Some(1.0), ..OtlpSpec::default() };
        let settings = Settings::new(&wanted, &|_| None).expect("valid").expect("both signals");
        let (clock, telemetry) = (Arc::new(Set::default()), Telemetry::with_trace(records_max));
        let streams = Arc::new(Mutex::new([(telemetry.add_stream("gate"), "gate".to_owned())].into()));
        let counts = Arc::new(Counts::default());
        let run = Run {
            exported: Box::new(Board(Arc::clone(&streams))),
            records: telemetry.subscribe_trace(),
            clock: clock.clone(),
            started: Nanos(0),
            id: RunId::new(clock.wall(), "gate-3", 42),
            attributes: Vec::new(),
        };
        let reader = RunReader::new(&settings, run, Arc::clone(&counts));
        Self { clock, telemetry, streams, reader, counts }
    }

    /// Ends frames at the present time, each with the spans `frame` and `source`.
    fn frames(&self, seqs: std::ops::Range<u64>) {
        let stream = self.telemetry.stream(StreamId(0));
        for seq in seqs {
            let mut emitter = stream.emitter();
            emitter.arrival(seq, self.clock.now());
            emitter.result(seq, 0, None, self.clock.now());
        }
    }

    /// Reads at a time in ms. Returns whether metrics are due, the spans of each request, and the time until the next reading.
    fn read(&mut self, ms: u64, is_last: bool) -> (bool, Vec<Vec<Span>>, u128) {
        *self.clock.0.lock().expect("not poisoned") = ms * 1_000_000;
        let (requests, wait) = self.reader.read(is_last);
        let spans = |request: &Bytes| {
            let request = ExportTraceServiceRequest::decode(request.clone()).expect("a request");
            let of_scopes = request.resource_spans.into_iter().flat_map(|it| it.scope_spans);
            of_scopes.flat_map(|it| it.spans).collect()
        };
        (requests.metrics.is_some(), requests.traces.iter().map(spans).collect(), wait.as_millis())
    }
}

fn lengths(requests: &[Vec<Span>]) -> Vec<usize> {
    requests.iter().map(Vec::len).collect()
}

#[test]
fn spans_wait_for_others_within_a_bound() {
    let mut reading = Reading::new(16_384);
    reading.frames(0..1);
    let (_, requests, wait) = reading.read(100, false);
    assert_eq!((lengths(&requests), wait), (vec![], 250));
    reading.frames(1..3);
    assert!(lengths(&reading.read(5099, false).1).is_empty());
    assert_eq!(lengths(&reading.read(5100, false).1), [6], "5 s after the first");
    reading.frames(3..603);
    assert_eq!(lengths(&reading.read(5200, false).1), [512, 512]);
    let (_, requests, _) = reading.read(5300, true);
    assert_eq!(lengths(&requests), [1200 - 1024], "the end waits for nothing");
    let span = &requests[0][0];
    assert_eq!(span.start_time_unix_nano, 1000 * SECOND + 5_100_000_000);
}

#[test]
fn metrics_come_at_the_start_at_each_interval_and_at_the_end() {
    let mut reading = Reading::new(16_384);
    let due: Vec<bool> =
        [0, 30_000, 59_999, 60_000, 60_250, 120_100].map(|ms| reading.read(ms, false).0).into();
    assert_eq!(due, [true, false, false, true, false, true]);
    assert!(reading.read(121_000, true).0);
}

#[test]
fn a_stream_that_has_ended_keeps_its_name_for_its_last_frames() {
    let mut reading = Reading::new(16_384);
    reading.read(0, false);
    reading.frames(0..1);
    reading.streams.lock().expect("not poisoned").clear();
    let (_, requests, _) = reading.read(250, true);
    let stream = crate::attributes::text("orinoco.stream", "gate");
    assert!(requests[0][0].attributes.contains(&stream), "{requests:?}");
}

#[test]
fn a_reader_that_is_behind_reads_more_often() {
    let mut reading = Reading::new(16);
    assert_eq!(reading.read(0, false).2, 250);
    reading.frames(0..100);
    assert_eq!(reading.read(250, false).2, 50);
    assert_eq!(reading.read(300, false).2, 250);
    let lost = reading.counts.metrics().into_iter().find(|metric| metric.name.ends_with("lost_total"));
    assert_eq!(lost.expect("it is there").series[0].value, MetricValue::Number(200.0 - 16.0));
}
