//! The exporter against a receiver that decodes what arrives, is absent, slow, overloaded, or refuses.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads")]

mod receiver;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use orinoco_board::OtlpSpec;
use orinoco_core::{Clock, ComputeUnit, LaneId, ModelId, Nanos, StreamId, TimeSpan};
use orinoco_otlp::{
    Counts, Exported, Exporter, ModelLabels, Names, Notice, NoticeKind, OtlpSignal, Run, RunId, Settings,
};
use orinoco_pipeline::MonotonicClock;
use orinoco_telemetry::{Metric, MetricKind, MetricValue, Stage, Telemetry};
use orinoco_uri::HttpEndpoint;
use prost::Message;

use receiver::{Receiver, Reply, Request, at};

/// Board with one metric, one stream and one model.
struct Board;

impl Exported for Board {
    fn metrics(&self) -> Vec<Metric> {
        let mut frames = Metric::new("orinoco_frames_in_total", MetricKind::Counter, "Frames.");
        frames.add(&[], MetricValue::Number(7.0));
        vec![frames]
    }

    fn names(&self) -> Names {
        let labels = ModelLabels { model: "person".to_owned(), engine: "tract".to_owned() };
        Names { streams: [(StreamId(0), "gate".to_owned())].into(), models: [(ModelId(0), labels)].into() }
    }
}

/// Run of one stream whose exporter is tested.
struct Tested {
    telemetry: Telemetry,
    clock: Arc<dyn Clock>,
    notices: Arc<Mutex<Vec<Notice>>>,
    exporter: Exporter,
}

fn wanted(address: SocketAddr) -> OtlpSpec {
    OtlpSpec {
        endpoint: Some(HttpEndpoint::parse(&format!("http://{address}")).expect("valid")),
        timeout: Some(Duration::from_millis(300)),
        metrics_interval: Some(Duration::from_secs(1)),
        trace_ratio: Some(1.0),
        ..OtlpSpec::default()
    }
}

impl Tested {
    fn start(wanted: &OtlpSpec) -> Self {
        let variables = |name: &str| (name == "OTEL_SERVICE_NAME").then(|| "yard".to_owned());
        let settings = Settings::new(wanted, &variables).expect("valid").expect("something is sent");
        let (telemetry, clock) = (Telemetry::new(1), Arc::new(MonotonicClock::default()) as Arc<dyn Clock>);
        telemetry.add_model();
        let notices = Arc::new(Mutex::new(Vec::new()));
        let run = Run {
            exported: Box::new(Board),
            records: telemetry.subscribe_trace(),
            started: clock.now(),
            id: RunId::new(clock.wall(), "gate-3", 42),
            clock: Arc::clone(&clock),
            attributes: vec![("host.name", "gate-3".to_owned())],
        };
        let noted = Arc::clone(&notices);
        let notify = move |notice| noted.lock().expect("not poisoned").push(notice);
        let exporter = Exporter::start(&settings, run, notify).expect("it starts");
        Self { telemetry, clock, notices, exporter }
    }

    /// Takes a frame through the pipeline, which ends now.
    fn frame(&self, seq: u64) {
        let (stream, now) = (self.telemetry.stream(StreamId(0)), self.clock.now());
        let (lane, model) = (self.telemetry.lane(LaneId(0)), self.telemetry.model(ModelId(0)));
        let at = |micros: u64| Nanos(now.0 + micros * 1000);
        let mut emitter = stream.emitter();
        emitter.arrival(seq, at(20));
        emitter.stage(seq, Stage::Decode, TimeSpan::new(at(0), at(20)));
        emitter.stage(seq, Stage::Queue, TimeSpan::new(at(20), at(30)));
        drop(emitter);
        let infer = [(Stage::Infer, TimeSpan::new(at(30), at(70)))];
        model.batch(&lane, ComputeUnit::Cpu, [StreamId(0)].into_iter(), &infer);
        let mut emitter = stream.emitter();
        emitter.stage(seq, Stage::Infer, infer[0].1);
        emitter.stage(seq, Stage::Sink, TimeSpan::new(at(70), at(90)));
        emitter.result(seq, 1, None, at(90));
    }

    /// Waits for a notice.
    fn wait_for(&self, is_wanted: impl Fn(&Notice) -> bool) {
        let begin = Instant::now();
        while !self.notices().iter().any(&is_wanted) {
            assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", self.notices());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn notices(&self) -> Vec<Notice> {
        self.notices.lock().expect("not poisoned").clone()
    }

    /// Stops the exporter. Returns its counts, its notices, and the time that it took.
    fn stop(self) -> (Arc<Counts>, Vec<Notice>, Duration) {
        let (counts, begin) = (self.exporter.counts(), Instant::now());
        self.exporter.stop();
        let notices = self.notices.lock().expect("not poisoned").clone();
        (counts, notices, begin.elapsed())
    }
}

/// Returns the value of a counter with these values of its labels.
fn count(counts: &Counts, name: &str, labels: &[&str]) -> u64 {
    let metric = counts.metrics().into_iter().find(|metric| metric.name == name).expect("it is there");
    let has = |series: &&orinoco_telemetry::Series| series.labels.iter().map(|(_, value)| value).eq(labels);
    match metric.series.iter().find(has).expect("it is there").value {
        MetricValue::Number(number) => number as u64,
        MetricValue::Durations(_) => panic!("a counter"),
    }
}

const REQUESTS: &str = "orinoco_otlp_requests_total";

fn accept(_: &Request, _: usize) -> Reply {
    Reply::status("200 OK")
}

/// Names of a trace's spans, of whose times is checked that they lie within the frame.
fn names_of_traces(requests: &[Request]) -> Vec<Vec<String>> {
    let traces = receiver::traces(receiver::spans(requests));
    traces.iter().map(|trace| trace.iter().map(|span| span.name.clone()).collect()).collect()
}

#[test]
fn metrics_and_traces_arrive() {
    let receiver = Receiver::start(accept);
    let tested = Tested::start(&wanted(receiver.address()));
    tested.frame(0);
    receiver.wait_until(|requests| at(requests, "/v1/metrics").len() >= 2);
    tested.frame(1);
    let (counts, notices, _) = tested.stop();
    let requests = receiver.requests();
    assert_eq!(names_of_traces(&requests), vec![["frame", "source", "decode", "queue", "infer", "sink"]; 2]);
    let spans = receiver::spans(&requests);
    assert_eq!(receiver::attribute(&spans[0], "orinoco.stream").as_deref(), Some("gate"));
    let infer = spans.iter().find(|span| span.name == "infer").expect("it is there");
    assert_eq!(receiver::attribute(infer, "orinoco.model").as_deref(), Some("person"));
    let request = at(&requests, "/v1/metrics")[1];
    assert_eq!(request.headers["content-type"], "application/x-protobuf");
    let resource = receiver::resource(request);
    assert_eq!((&*resource["service.name"], &*resource["host.name"]), ("yard", "gate-3"));
    let metrics = receiver::metrics(request);
    let frames = metrics.iter().find(|metric| metric.name == "orinoco_frames_in").expect("it is there");
    let Some(Data::Sum(sum)) = &frames.data else { panic!("not a sum") };
    assert!(sum.is_monotonic && sum.data_points[0].start_time_unix_nano < sum.data_points[0].time_unix_nano);
    assert!(metrics.iter().any(|metric| metric.name == "orinoco_otlp_requests"), "its own counts");
    let accepted = OtlpSignal::ALL.map(|signal| count(&counts, REQUESTS, &[signal.name(), "accepted"]));
    assert_eq!(
        accepted.map(|requests| requests as usize),
        [at(&requests, "/v1/metrics").len(), at(&requests, "/v1/traces").len()]
    );
    assert_eq!(count(&counts, "orinoco_otlp_frames_total", &["traced"]), 2);
    assert_eq!(notices, []);
}

#[test]
fn headers_of_a_file_are_sent() {
    use std::os::unix::fs::PermissionsExt;
    let file = tempfile::NamedTempFile::new().expect("temporary file");
    std::fs::write(file.path(), "authorization: Bearer secret\n").expect("written");
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o600)).expect("its owner may");
    let receiver = Receiver::start(|_, _| Reply::status("401 Unauthorized"));
    let headers_file = Some(file.path().to_owned());
    let tested = Tested::start(&OtlpSpec { headers_file, ..wanted(receiver.address()) });
    let requests = receiver.wait_until(|requests| !requests.is_empty());
    assert_eq!(requests[0].headers["authorization"], "Bearer secret");
    let (_, notices, _) = tested.stop();
    let shown = notices.iter().map(Notice::to_string).collect::<String>();
    assert!(shown.contains("401 Unauthorized") && !shown.contains("secret"), "{shown}");
}

#[test]
fn a_receiver_that_comes_later_gets_what_waits() {
    let address = Receiver::start(accept).address();
    let tested = Tested::start(&wanted(address));
    tested.frame(0);
    tested.wait_for(|notice| matches!(notice.kind, NoticeKind::Failing { .. }));
    let receiver = Receiver::start_at(address, accept);
    tested.wait_for(|notice| notice.signal == OtlpSignal::Metrics && notice.kind == NoticeKind::Recovered);
    let (_, notices, _) = tested.stop();
    assert_eq!(names_of_traces(&receiver.requests()).len(), 1);
    let failing: Vec<_> =
        notices.iter().filter(|notice| matches!(notice.kind, NoticeKind::Failing { .. })).collect();
    assert!(failing.len() <= 2 && failing[0].to_string().contains("Connection refused"), "{failing:?}");
}

#[test]
fn an_absent_receiver_does_not_hold_up_the_end() {
    let address = Receiver::start(accept).address();
    let tested = Tested::start(&wanted(address));
    (0..100).for_each(|seq| tested.frame(seq));
    let (counts, notices, took) = tested.stop();
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(count(&counts, "orinoco_otlp_frames_total", &["traced"]), 100);
    for signal in OtlpSignal::ALL {
        let unsent = |notice: &&Notice| {
            notice.signal == signal && matches!(notice.kind, NoticeKind::Unsent { requests } if requests > 0)
        };
        assert_eq!(notices.iter().filter(unsent).count(), 1, "{notices:?}");
        assert!(count(&counts, REQUESTS, &[signal.name(), "dropped"]) > 0);
    }
}

#[test]
fn a_receiver_that_never_answers_costs_a_time_out_each() {
    let receiver = Receiver::start(|_, _| Reply::Silence);
    let tested = Tested::start(&wanted(receiver.address()));
    let emitting = Instant::now();
    (0..1000).for_each(|seq| tested.frame(seq));
    assert!(emitting.elapsed() < Duration::from_secs(5), "frames wait for nobody");
    tested.wait_for(|notice| {
        matches!(&notice.kind, NoticeKind::Failing { why } if why.contains("no answer within 0.3 s"))
    });
    let (counts, _, took) = tested.stop();
    assert!(took < Duration::from_secs(7), "{took:?}");
    let frames =
        ["traced", "incomplete"].map(|outcome| count(&counts, "orinoco_otlp_frames_total", &[outcome]));
    assert_eq!(frames, [1000, 0]);
}

#[test]
fn an_overloaded_receiver_gets_the_same_request_again() {
    let receiver = Receiver::start(|request, _| match request.path.as_str() {
        "/v1/traces" => Reply::status("404 Not Found"),
        _ => {
            Reply::Status { status: "429 Too Many Requests", headers: "retry-after: 1\r\n", body: Vec::new() }
        }
    });
    let tested = Tested::start(&OtlpSpec { traces: Some(false), ..wanted(receiver.address()) });
    let begin = Instant::now();
    let requests = receiver.wait_until(|requests| requests.len() >= 2);
    assert!(begin.elapsed() >= Duration::from_millis(900), "it asked for a second");
    assert_eq!(requests[0].body, requests[1].body);
    let (counts, notices, _) = tested.stop();
    assert!(count(&counts, REQUESTS, &["metrics", "failed"]) >= 2);
    let failing = notices.iter().filter(|notice| matches!(notice.kind, NoticeKind::Failing { .. })).count();
    assert_eq!(failing, 1, "{notices:?}");
}

#[test]
fn a_refused_request_is_not_repeated() {
    let receiver = Receiver::start(|_, number| match number {
        0 => Reply::status("400 Bad Request"),
        _ => Reply::status("200 OK"),
    });
    let tested = Tested::start(&OtlpSpec { traces: Some(false), ..wanted(receiver.address()) });
    let requests = receiver.wait_until(|requests| requests.len() >= 2);
    assert_ne!(requests[0].body, requests[1].body);
    tested.wait_for(|notice| notice.kind == NoticeKind::Recovered);
    let (counts, notices, _) = tested.stop();
    assert_eq!(count(&counts, REQUESTS, &["metrics", "refused"]), 1);
    assert!(matches!(&notices[0].kind, NoticeKind::Refused { why } if why.contains("400 Bad Request")));
}

#[test]
fn a_partial_rejection_is_counted_and_reported_once() {
    let receiver = Receiver::start(|_, _| {
        let error_message = "too many attributes".to_owned();
        let partial_success = Some(ExportTracePartialSuccess { rejected_spans: 2, error_message });
        let body = ExportTraceServiceResponse { partial_success }.encode_to_vec();
        Reply::Status { status: "200 OK", headers: "", body }
    });
    let tested = Tested::start(&OtlpSpec { metrics: Some(false), ..wanted(receiver.address()) });
    // More than one request.
    (0..200).for_each(|seq| tested.frame(seq));
    receiver.wait_until(|requests| !requests.is_empty());
    let (counts, notices, _) = tested.stop();
    let requests = receiver.requests().len() as u64;
    assert!(requests >= 2);
    assert_eq!(count(&counts, REQUESTS, &["traces", "accepted"]), requests);
    assert_eq!(count(&counts, "orinoco_otlp_items_rejected_total", &["traces"]), 2 * requests);
    let message = "too many attributes".to_owned();
    let kind = NoticeKind::PartlyRejected { rejected: 2, message };
    assert_eq!(notices, [Notice { signal: OtlpSignal::Traces, kind }]);
}
