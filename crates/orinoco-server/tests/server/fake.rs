//! Fake board, and a server for it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

use orinoco_api::{
    CLUSTER_MODELS_SCHEMA, ClusterModels, DUMP_SCHEMA, Dump, EVENT_SCHEMA, EventJson, Health,
    MODEL_DATA_BYTES_MAX, STATUS_SCHEMA, SeatModels, SharedFile, SharedModel, Status,
};
use orinoco_core::{Clock, Diagnosis, Nanos, Signal, WallTime, codes};
use orinoco_server::{
    Limits, Listeners, LocalSocket, LoopbackListener, ModelPart, Monitored, Server, SocketSetting,
};
use orinoco_telemetry::{Durations, Metric, MetricKind, MetricValue};
use serde_json::json;
use tempfile::TempDir;

use crate::client::Client;

/// Time that a test sets.
#[derive(Default)]
pub(crate) struct TestClock(AtomicU64);

impl TestClock {
    pub(crate) fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Nanos {
        Nanos(self.0.load(Ordering::SeqCst))
    }

    fn wall(&self) -> WallTime {
        WallTime::from_unix_nanos(0)
    }

    fn signal(&self) -> Arc<dyn Signal> {
        unreachable!("the server waits at its sockets")
    }
}

/// Board that counts what it is asked, and answers when the test lets it.
#[derive(Default)]
pub(crate) struct FakeBoard {
    pub(crate) hangs: Gate,
    pub(crate) panics: AtomicBool,
    pub(crate) status: Mutex<Option<Status>>,
    pub(crate) statuses: AtomicUsize,
    pub(crate) scrapes: AtomicUsize,
    pub(crate) event_reads: AtomicUsize,
    /// Size of the dump, in bytes.
    pub(crate) dump_bytes: AtomicUsize,
    events: Mutex<Vec<EventJson>>,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// Gate that may be closed.
#[derive(Default)]
pub(crate) struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(crate) fn close(&self) {
        *self.closed.lock().expect("no panic") = true;
    }

    pub(crate) fn open(&self) {
        *self.closed.lock().expect("no panic") = false;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let closed = self.closed.lock().expect("no panic");
        drop(self.opened.wait_while(closed, |closed| *closed).expect("no panic"));
    }
}

impl FakeBoard {
    /// Emits an event.
    pub(crate) fn emit(&self, text: &str) {
        let mut events = self.events.lock().expect("no panic");
        let number = events.len() as u64 + 1;
        events.push(EventJson {
            schema: EVENT_SCHEMA.to_owned(),
            number,
            at_s: number as f64,
            level: "info".to_owned(),
            kind: "source-state".to_owned(),
            subject: Some("north".to_owned()),
            text: text.to_owned(),
            fault: None,
        });
        drop(events);
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }
}

/// Size of the model file that the fake board's neighbour shares.
pub(crate) const MODEL_BYTES: u64 = MODEL_DATA_BYTES_MAX + 17;

/// Returns a path with the query that it needs.
pub(crate) fn target(path: &str) -> String {
    let query = match path {
        "/v1/cluster/model-data" => "?seat=east&model=person&file=1%2Fmodel.onnx&offset=0",
        _ => "",
    };
    format!("{path}{query}")
}

impl Monitored for FakeBoard {
    fn status(&self) -> Status {
        self.statuses.fetch_add(1, Ordering::SeqCst);
        self.hangs.pass();
        assert!(!self.panics.load(Ordering::SeqCst), "the test asked for it");
        self.status.lock().expect("no panic").clone().unwrap_or_else(status)
    }

    fn metrics(&self) -> Vec<Metric> {
        self.scrapes.fetch_add(1, Ordering::SeqCst);
        metrics()
    }

    fn events_after(&self, number: u64) -> Vec<EventJson> {
        self.event_reads.fetch_add(1, Ordering::SeqCst);
        self.events.lock().expect("no panic").iter().filter(|event| event.number > number).cloned().collect()
    }

    fn on_event(&self, wake: Box<dyn Fn() + Send + Sync>) {
        assert!(self.wake.set(wake).is_ok(), "it is called once");
    }

    fn dump(&self) -> Dump {
        Dump {
            crash: None,
            schema: DUMP_SCHEMA.to_owned(),
            reason: "x".repeat(self.dump_bytes.load(Ordering::SeqCst)),
            written_unix_s: 0.0,
            stuck: Vec::new(),
            status: status(),
            events: Vec::new(),
            trace: Vec::new(),
            trace_lost: 0,
        }
    }

    fn cluster_models(&self) -> Result<ClusterModels, Diagnosis> {
        let file = SharedFile {
            path: "1/model.onnx".to_owned(),
            bytes: MODEL_BYTES,
            sha256: "0f".repeat(32),
            graph: true,
        };
        let person = SharedModel { name: "person".to_owned(), version: Some(1), files: vec![file] };
        let east = SeatModels { seat: "east".to_owned(), models: vec![person], fault: None };
        Ok(ClusterModels {
            schema: CLUSTER_MODELS_SCHEMA.to_owned(),
            cluster: "crossing".to_owned(),
            seat: "north".to_owned(),
            seats: vec![east],
        })
    }

    fn model_data(&self, part: &ModelPart) -> Result<Vec<u8>, Diagnosis> {
        let ModelPart { seat, model, file, offset, .. } = part;
        if (seat.as_str(), model.as_str(), file.as_str()) != ("east", "person", "1/model.onnx") {
            let cause = "no connected board of the cluster has this seat";
            return Err(Diagnosis::new(
                &codes::MODEL_COPY,
                format!("seat {seat}"),
                cause,
                "see `orinoco status`",
            ));
        }
        let bytes = MODEL_BYTES.saturating_sub(*offset).min(part.bytes_max());
        Ok(vec![b'x'; usize::try_from(bytes).expect("1 MiB at most")])
    }
}

/// Status of a board with one stream and one lane that work.
pub(crate) fn status() -> Status {
    let status = json!({
        "schema": STATUS_SCHEMA, "version": "0.1.0", "board": "gate-3", "healthy": true, "ready": true, "uptime_s": 12.5,
        "window_s": 10.0, "streams_ended": 0, "models": [], "events": [],
        "streams": [{
            "name": "north", "source": "rtsp://u:***@10.0.0.7/live", "state": "live", "lane": 0, "models": ["person"],
            "fps": 29.9, "frames_in": 360, "frames_out": 358, "dropped": [], "late": 0, "late_in": [], "reconnects": 0,
            "detections": 12, "window": [], "stages": []
        }],
        "lanes": [{
            "lane": 0, "batches": 358, "frames": 358, "requests": 0, "busy_s": 4.5, "gpu_busy_s": 0.0, "stuck": false
        }],
        "memory": { "resident_bytes": 40_000_000 },
        "sensors": { "rails": [], "temperatures": [], "clocks": [], "fans": [], "unknown": [] },
        "energy": { "rails": [], "unmeasured_s": 0.0, "not_measured": "the board has no power sensor" }
    });
    serde_json::from_value(status).expect("a status")
}

/// Metrics of each kind.
pub(crate) fn metrics() -> Vec<Metric> {
    let mut frames =
        Metric::new("orinoco_stream_frames_in_total", MetricKind::Counter, "Frames of the source.");
    frames.add(&[("stream", "north \"gate\"\\1\n")], MetricValue::Number(360.0));
    let mut power = Metric::new("orinoco_rail_power_watts", MetricKind::Gauge, "Power of a rail.");
    power.add(&[("rail", "VDD_IN")], MetricValue::Number(7.25));
    let mut stage = Metric::new(
        "orinoco_stream_stage_duration_seconds",
        MetricKind::Histogram,
        "Duration of a stage for one frame.",
    );
    let durations = Durations { buckets: vec![(0.005, 20), (0.01, 300)], count: 358, sum: 3.25 };
    stage.add(&[("stream", "north"), ("stage", "infer")], MetricValue::Durations(durations));
    vec![frames, power, stage]
}

/// Server for a fake board, on a Unix socket and on TCP.
pub(crate) struct Served {
    pub(crate) server: Option<Server>,
    pub(crate) board: Arc<FakeBoard>,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) path: PathBuf,
    pub(crate) address: SocketAddr,
    _folder: TempDir,
}

impl Served {
    /// Starts a server with a board that runs.
    pub(crate) fn new(limits: Limits) -> Self {
        let served = Self::starting(limits);
        served.attach();
        served
    }

    /// Starts a server whose board does not run yet.
    pub(crate) fn starting(limits: Limits) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("orinoco.sock");
        let socket = LocalSocket::bind(&path, SocketSetting::CONTROL).expect("a socket");
        let tcp = LoopbackListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
        let (address, clock) = (tcp.address(), Arc::new(TestClock::default()));
        let listeners = Listeners { socket: Some(socket), tcp: Some(tcp) };
        let server =
            Server::start(listeners, limits, Arc::clone(&clock) as Arc<dyn Clock>).expect("a server");
        Self { server: Some(server), board: Arc::default(), clock, path, address, _folder: folder }
    }

    pub(crate) fn attach(&self) {
        let server = self.server.as_ref().expect("the server runs");
        server.attach(Arc::clone(&self.board) as Arc<dyn Monitored>);
    }

    pub(crate) fn unix(&self) -> Client {
        Client::unix(&self.path)
    }

    pub(crate) fn tcp(&self) -> Client {
        Client::tcp(self.address)
    }

    /// Returns the header that names the TCP listener.
    pub(crate) fn host(&self) -> String {
        format!("Host: {}\r\n", self.address)
    }

    /// Returns the health that `path` answers, with the answer's status.
    pub(crate) fn health(&self, path: &str) -> (u16, Health) {
        let answer = self.unix().get(path);
        (answer.status, serde_json::from_value(answer.json()).expect("a health"))
    }

    /// Returns the value of a series of the server's metrics.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        self.clock.advance(Duration::from_secs(1));
        let text = self.unix().get("/metrics").body;
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {series} in {text}")).parse().expect("a number")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // A board that hangs would hold its thread for the rest of the process.
        self.board.hangs.open();
    }
}
