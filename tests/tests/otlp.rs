//! The daemon's export to an OpenTelemetry collector, from the board file to the decoded spans and metrics.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]

#[allow(dead_code, reason = "the exporter's own tests use more of it")]
#[path = "../../crates/orinoco-otlp/tests/exporter/receiver.rs"]
mod receiver;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::trace::v1::Span;
use orinoco_tests::{binary, root, signal};

use receiver::{Receiver, Reply, at, attribute};

/// Writes a board file of one stream of images, with an inference and a sink, and this section `[otlp]`.
fn write_board(dir: &Path, otlp: &str) {
    fs::create_dir_all(dir.join("images")).expect("created");
    fs::copy(root().join("docs/demo.jpg"), dir.join("images/1.jpg")).expect("copied");
    let dir_text = dir.display();
    let text = format!(
        "version = 1\n[board]\nname = 'yard'\n[control]\nsocket = '{dir_text}/orinoco.sock'\n[otlp]\n{otlp}\n\
         [inference]\nengines = ['tract']\n[[model]]\nname = 'person'\nmodel = 'person-nano'\n\
         [[sink]]\nname = 'log'\nkind = 'jsonl'\npath = '{dir_text}/out.jsonl'\n\
         [[stream]]\nname = 'gate'\nsource = 'file://{dir_text}/images/?loop=1&pace=pts'\n\
         models = ['person']\nsinks = ['log']\n"
    );
    fs::write(dir.join("board.toml"), text).expect("written");
}

fn start(dir: &Path, variables: &[(&str, &str)]) -> Child {
    let mut command = Command::new(binary("orinocod"));
    command.arg("--board").arg(dir.join("board.toml")).current_dir(root());
    command.envs(variables.iter().copied()).stderr(Stdio::piped()).spawn().expect("starts")
}

/// Ends the daemon, and returns its log.
fn stop(daemon: Child) -> String {
    signal(&daemon, "TERM");
    log_of(daemon.wait_with_output().expect("it ends"), 0)
}

fn log_of(output: Output, exit: i32) -> String {
    let log = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(exit), "{log}");
    log
}

/// Returns names and times of the spans of a trace.
fn times(trace: &[Span]) -> Vec<(&str, u64, u64)> {
    trace
        .iter()
        .map(|span| (span.name.as_str(), span.start_time_unix_nano, span.end_time_unix_nano))
        .collect()
}

#[test]
fn spans_nest_from_the_source_to_the_sink() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let receiver = Receiver::start(|_, _| Reply::status("200 OK"));
    let headers = dir.path().join("headers");
    fs::write(&headers, "authorization: Bearer sesame\n").expect("written");
    fs::set_permissions(&headers, fs::Permissions::from_mode(0o600)).expect("its owner may");
    let section = format!(
        "endpoint = 'http://{}'\nheaders_file = 'headers'\ntrace_ratio = 1.0\nmetrics_interval_ms = 1000",
        receiver.address()
    );
    write_board(dir.path(), &section);
    let daemon = start(dir.path(), &[("OTEL_SERVICE_NAME", "north"), ("OTEL_TRACES_SAMPLER", "always_off")]);
    receiver.wait_until(|requests| {
        !at(requests, "/v1/traces").is_empty() && at(requests, "/v1/metrics").len() >= 3
    });
    // What listens and what is sent is fixed while the board runs.
    write_board(dir.path(), "traces = false");
    signal(&daemon, "HUP");
    std::thread::sleep(Duration::from_millis(500));
    let log = stop(daemon);
    let requests = receiver.requests();
    assert!(requests.iter().all(|request| request.headers["authorization"] == "Bearer sesame"));
    let traces = receiver::traces(receiver::spans(&requests));
    let names = ["frame", "source", "decode", "queue", "preprocess", "infer", "postprocess", "sink"];
    let complete: Vec<_> =
        traces.iter().filter(|trace| trace.iter().map(|span| &*span.name).eq(names)).collect();
    assert!(
        complete.len() >= 3 && complete.len() + 2 >= traces.len(),
        "{} of {}",
        complete.len(),
        traces.len()
    );
    for trace in &complete {
        let spans = times(trace);
        // After the decoder, each stage begins when the one before it has ended, and takes time.
        assert!(spans[2..].windows(2).all(|pair| pair[0].2 <= pair[1].1), "{spans:?}");
        assert!(
            spans[1..]
                .iter()
                .filter(|span| ["decode", "infer"].contains(&span.0))
                .all(|span| span.1 < span.2)
        );
        assert_eq!((spans[1].1, spans[1].2), (spans[2].1, spans[2].2), "decoding an image is its source");
        let of_infer =
            ["orinoco.model", "orinoco.engine", "orinoco.batch.images"].map(|key| attribute(&trace[5], key));
        assert_eq!(of_infer.map(Option::unwrap_or_default), ["person", "tract", "1"]);
        assert_eq!(attribute(&trace[0], "orinoco.stream").as_deref(), Some("gate"));
    }
    let of_metrics = at(&requests, "/v1/metrics");
    let resource = receiver::resource(of_metrics[0]);
    assert_eq!((&*resource["service.name"], &*resource["orinoco.board"]), ("north", "yard"));
    let last = receiver::metrics(of_metrics.last().expect("the last"));
    let out = last.iter().find(|metric| metric.name == "orinoco_frames_out").expect("it is there");
    let Some(Data::Sum(sum)) = &out.data else { panic!("not a sum") };
    assert_eq!(sum.data_points.len(), 1);
    for name in ["orinoco_stream_stage_duration", "orinoco_model_stage_duration"] {
        let named = |metric: &opentelemetry_proto::tonic::metrics::v1::Metric| metric.name == name;
        assert!(of_metrics.iter().any(|request| receiver::metrics(request).iter().any(named)), "{name}");
    }
    assert!(log.contains("E0110") && log.contains("[otlp]"), "{log}");
    assert!(log.contains("otlp metrics=http://127.0.0.1:") && log.contains("ratio=1"), "{log}");
    assert!(!log.contains("sesame"), "{log}");
}

#[test]
fn a_board_runs_without_its_collector() {
    let dir = tempfile::tempdir().expect("temporary folder");
    // Nobody listens there any more.
    let address = Receiver::start(|_, _| Reply::Silence).address();
    write_board(dir.path(), &format!("endpoint = 'http://{address}'\ntrace_ratio = 1.0\n"));
    let daemon = start(dir.path(), &[]);
    let results = dir.path().join("out.jsonl");
    while fs::read_to_string(&results).unwrap_or_default().lines().count() < 5 {
        std::thread::sleep(Duration::from_millis(50));
    }
    let log = stop(daemon);
    assert!(log.contains("warning: otlp=metrics not sent, will be repeated"), "{log}");
    assert!(log.contains("not sent before the end"), "{log}");
}

#[test]
fn a_wrong_variable_or_file_of_headers_is_named_before_anything_runs() {
    let dir = tempfile::tempdir().expect("temporary folder");
    fs::write(dir.path().join("headers"), "authorization: Bearer sesame\n").expect("written");
    fs::set_permissions(dir.path().join("headers"), fs::Permissions::from_mode(0o644))
        .expect("its owner may");
    write_board(dir.path(), "headers_file = 'headers'");
    let daemon = start(dir.path(), &[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:4318")]);
    let log = log_of(daemon.wait_with_output().expect("it ends"), 2);
    assert!(log.contains("E0931") && log.contains("chmod 600"), "{log}");
    assert!(log.contains("OTEL_EXPORTER_OTLP_ENDPOINT: https is not supported"), "{log}");
    assert!(!log.contains("sesame") && !log.contains("running"), "{log}");
}

#[test]
fn the_environment_can_switch_the_export_off() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let receiver = Receiver::start(|_, _| Reply::status("200 OK"));
    write_board(dir.path(), &format!("endpoint = 'http://{}'", receiver.address()));
    let daemon = start(dir.path(), &[("OTEL_SDK_DISABLED", "true")]);
    let results = dir.path().join("out.jsonl");
    while fs::read_to_string(&results).unwrap_or_default().lines().count() < 2 {
        std::thread::sleep(Duration::from_millis(50));
    }
    stop(daemon);
    assert!(receiver.requests().is_empty());
}
