//! Section `[otlp]` of a board file: what the daemon sends to an OpenTelemetry collector.

use std::path::PathBuf;
use std::time::Duration;

use orinoco_config::TableReader;
use orinoco_core::codes;
use orinoco_uri::HttpEndpoint;

/// Range of the time for one request, in milliseconds. The longest is that of other waiting times.
const TIMEOUT_MS: std::ops::RangeInclusive<i64> = 100..=60_000;
/// Range of the interval between metrics, in milliseconds: from a second, which is as often as sensors are read, to an hour.
const METRICS_INTERVAL_MS: std::ops::RangeInclusive<i64> = 1000..=3_600_000;

/// Export to an OpenTelemetry collector. What is `None` is set by OpenTelemetry's environment variables, else it is their
/// default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OtlpSpec {
    /// Address of the collector, below which each signal has its path.
    pub endpoint: Option<HttpEndpoint>,
    /// File with headers of each request, which may be secret.
    pub headers_file: Option<PathBuf>,
    /// Maximum time for one request.
    pub timeout: Option<Duration>,
    /// Whether metrics are sent.
    pub metrics: Option<bool>,
    /// Interval between two exports of all metrics.
    pub metrics_interval: Option<Duration>,
    /// Whether traces are sent.
    pub traces: Option<bool>,
    /// Share of the frames that are traced.
    pub trace_ratio: Option<f64>,
}

/// Reads the section; `None` where the board exports nothing.
pub(crate) fn read_otlp(top: &TableReader<'_>) -> Option<OtlpSpec> {
    if !top.has("otlp") {
        return None;
    }
    let table = top.table("otlp");
    let millis =
        |key, range| table.integer(key, range).map(|millis| Duration::from_millis(millis.unsigned_abs()));
    let otlp = OtlpSpec {
        endpoint: table.text("endpoint").and_then(|text| read_endpoint(&table, &text)),
        headers_file: table.path("headers_file"),
        timeout: millis("timeout_ms", TIMEOUT_MS),
        metrics: table.boolean("metrics"),
        metrics_interval: millis("metrics_interval_ms", METRICS_INTERVAL_MS),
        traces: table.boolean("traces"),
        trace_ratio: table.float("trace_ratio", 0.0..=1.0),
    };
    table.finish();
    Some(otlp)
}

fn read_endpoint(table: &TableReader<'_>, text: &str) -> Option<HttpEndpoint> {
    HttpEndpoint::parse(text)
        .inspect_err(|fault| table.fault("endpoint", &codes::KEY_RANGE, fault.cause(), fault.next()))
        .ok()
}

#[cfg(test)]
mod tests {
    use crate::{Capabilities, load};
    use expect_test::{Expect, expect};
    use orinoco_config::Vars;

    fn check(text: &str, expected: Expect) {
        let dir = tempfile::tempdir().expect("temporary folder");
        let path = dir.path().join("b.toml");
        let stream = "[[stream]]\nname = 'x'\nsource = 'test://ball'\nmodels = []\n";
        std::fs::write(&path, format!("version = 1\n{stream}{text}")).expect("write");
        let known = Capabilities::default();
        let shown = match load(&path, &known, &Vars::new()) {
            Ok(board) => format!("{:#?}", board.otlp),
            Err(faults) => faults.to_string(),
        };
        expected.assert_eq(&shown.replace(&format!("{}/", dir.path().display()), ""));
    }

    #[test]
    fn nothing_is_exported_unless_the_section_is_there() {
        check("", expect!["None"]);
        check(
            "[otlp]\n",
            expect![[r#"
            Some(
                OtlpSpec {
                    endpoint: None,
                    headers_file: None,
                    timeout: None,
                    metrics: None,
                    metrics_interval: None,
                    traces: None,
                    trace_ratio: None,
                },
            )"#]],
        );
    }

    #[test]
    fn every_key_is_read() {
        check(
            "[otlp]\nendpoint = 'http://10.0.0.2:4318'\nheaders_file = 'otlp.headers'\ntimeout_ms = 2500\n\
             metrics = true\nmetrics_interval_ms = 15000\ntraces = false\ntrace_ratio = 1\n",
            expect![[r#"
                Some(
                    OtlpSpec {
                        endpoint: Some(
                            HttpEndpoint {
                                host: "10.0.0.2",
                                port: 4318,
                                path: "/",
                            },
                        ),
                        headers_file: Some(
                            "otlp.headers",
                        ),
                        timeout: Some(
                            2.5s,
                        ),
                        metrics: Some(
                            true,
                        ),
                        metrics_interval: Some(
                            15s,
                        ),
                        traces: Some(
                            false,
                        ),
                        trace_ratio: Some(
                            1.0,
                        ),
                    },
                )"#]],
        );
    }

    #[test]
    fn every_fault_is_named() {
        check(
            "[otlp]\nendpoint = 'https://me:secret@collector'\nheaders_file = 3\ntimeout_ms = 10\n\
             metrics_interval_ms = 10\ntrace_ratio = 1.5\nprotocol = 'grpc'\n",
            expect![[r#"
                b.toml:7: key `otlp.endpoint`: https is not supported; run an OpenTelemetry Collector on this board or its local network, send to it with http://, and let it forward over TLS
                b.toml:8: key `otlp.headers_file`: it is a whole number; write a string in quotes
                b.toml:9: key `otlp.timeout_ms`: 10 is outside its range; choose 100 to 60000
                b.toml:10: key `otlp.metrics_interval_ms`: 10 is outside its range; choose 1000 to 3600000
                b.toml:11: key `otlp.trace_ratio`: 1.5 is outside its range; choose 0 to 1
                b.toml:12: key `otlp.protocol`: unknown key; use one of endpoint, headers_file, timeout_ms, metrics, metrics_interval_ms, traces, trace_ratio"#]],
        );
    }
}
