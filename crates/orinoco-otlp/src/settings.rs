//! Settings of an exporter: of the board file, else of OpenTelemetry's environment variables, else their defaults.

use std::time::Duration;

use orinoco_board::OtlpSpec;
use orinoco_config::Faults;
use orinoco_uri::HttpEndpoint;

use crate::headers::Headers;
use crate::notice::OtlpSignal;
use crate::variables::{Variable, Variables};

/// Collector where nobody names another (OTLP exporter specification).
const ENDPOINT: &str = "http://localhost:4318";
/// Time for one request where nobody sets it (OTLP exporter specification).
const TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between metrics where nobody sets it (metrics SDK specification).
const METRICS_INTERVAL: Duration = Duration::from_secs(60);
/// Share of traced frames where nobody sets it. OpenTelemetry's is 1, for requests of a server; a camera has 30 frames per second.
const TRACE_RATIO: f64 = 0.01;
/// Range of times in environment variables, in milliseconds, as in board files.
const TIMEOUT_MS: std::ops::RangeInclusive<u64> = 100..=60_000;
const METRICS_INTERVAL_MS: std::ops::RangeInclusive<u64> = 1000..=3_600_000;

/// Checked settings of an exporter.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Export of metrics; `None` sends none.
    pub metrics: Option<MetricsSettings>,
    /// Export of traces; `None` sends none.
    pub traces: Option<TraceSettings>,
    /// Attributes of everything that is sent, as the environment sets them.
    pub attributes: Vec<(String, String)>,
}

/// Export of metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricsSettings {
    /// The collector.
    pub target: Target,
    /// Interval between two exports.
    pub interval: Duration,
}

/// Export of traces.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSettings {
    /// The collector.
    pub target: Target,
    /// Share of the frames that are traced, from 0 to 1.
    pub ratio: f64,
}

/// Collector of one signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Address to which requests are posted.
    pub endpoint: HttpEndpoint,
    /// Headers of each request.
    pub headers: Headers,
    /// Maximum time for one request, from the connection to the end of the answer.
    pub timeout: Duration,
}

impl Settings {
    /// Checks the settings of a board file, with `variable` for environment variables. What the board file sets wins. Returns
    /// `None` where nothing is to be sent: both signals are off, or `OTEL_SDK_DISABLED` is true.
    ///
    /// # Errors
    ///
    /// All faults of the variables that are used, and of the headers file. None of them quotes a header.
    pub fn new(spec: &OtlpSpec, variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, Faults> {
        let wanted = BoardSettings(spec);
        let mut variables = Variables::new(variable);
        if variables.get("OTEL_SDK_DISABLED").is_some_and(|it| it.value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let file = wanted.0.headers_file.as_deref().map(|path| Headers::from_file(path).map_err(Some));
        let file = file.map(|read| variables.faults.value_of(read).unwrap_or_default());
        let metrics = wanted.is_on(OtlpSignal::Metrics, &mut variables).then(|| MetricsSettings {
            target: wanted.target(OtlpSignal::Metrics, file.as_ref(), &mut variables),
            interval: wanted.interval(&mut variables),
        });
        let traces = wanted.is_on(OtlpSignal::Traces, &mut variables).then(|| TraceSettings {
            target: wanted.target(OtlpSignal::Traces, file.as_ref(), &mut variables),
            ratio: wanted.ratio(&mut variables),
        });
        let attributes = attributes(&mut variables);
        let is_wanted = metrics.is_some() || traces.is_some();
        let settings = is_wanted.then_some(Self { metrics, traces, attributes });
        variables.faults.finish(settings)
    }
}

/// Settings of the board file, each of which may be left to the environment.
struct BoardSettings<'a>(&'a OtlpSpec);

impl BoardSettings<'_> {
    /// Whether a signal is sent: unless the board file says no, or the variable of its exporter says `none`.
    fn is_on(&self, signal: OtlpSignal, variables: &mut Variables<'_>) -> bool {
        let (of_board, name) = match signal {
            OtlpSignal::Metrics => (self.0.metrics, "OTEL_METRICS_EXPORTER"),
            OtlpSignal::Traces => (self.0.traces, "OTEL_TRACES_EXPORTER"),
        };
        if let Some(is_on) = of_board {
            return is_on;
        }
        let Some(variable) = variables.get(name) else { return true };
        let exporters: Vec<&str> = variable.value.split(',').map(str::trim).collect();
        if exporters == ["none"] {
            return false;
        }
        if !exporters.contains(&"otlp") {
            variables.fault(name, "Orinoco does not support this exporter", "set otlp or none");
        }
        true
    }

    /// Returns the collector of a signal. `file` has the headers of the board file, where it names some.
    fn target(&self, signal: OtlpSignal, file: Option<&Headers>, variables: &mut Variables<'_>) -> Target {
        check_unsupported(signal, variables);
        Target {
            endpoint: self.endpoint(signal, variables),
            headers: file.cloned().unwrap_or_else(|| headers(signal, variables)),
            timeout: self.timeout(signal, variables),
        }
    }

    /// Returns the address of a signal: below that of the board file, else the signal's own, else below the general one.
    fn endpoint(&self, signal: OtlpSignal, variables: &mut Variables<'_>) -> HttpEndpoint {
        let path = format!("v1/{}", signal.name());
        if let Some(endpoint) = &self.0.endpoint {
            return endpoint.below(&path);
        }
        if let Some(variable) = variables.only_of_signal(signal, "ENDPOINT") {
            return parse(variable, variables);
        }
        let general = variables.get("OTEL_EXPORTER_OTLP_ENDPOINT");
        general.map_or_else(usual_endpoint, |variable| parse(variable, variables)).below(&path)
    }

    fn timeout(&self, signal: OtlpSignal, variables: &mut Variables<'_>) -> Duration {
        self.0.timeout.unwrap_or_else(|| {
            let variable = variables.of_signal(signal, "TIMEOUT");
            variables.number(variable, TIMEOUT_MS).map_or(TIMEOUT, Duration::from_millis)
        })
    }

    fn interval(&self, variables: &mut Variables<'_>) -> Duration {
        self.0.metrics_interval.unwrap_or_else(|| {
            let variable = variables.get("OTEL_METRIC_EXPORT_INTERVAL");
            variables.number(variable, METRICS_INTERVAL_MS).map_or(METRICS_INTERVAL, Duration::from_millis)
        })
    }

    /// Returns the share of traced frames. Frames have no parents, so samplers by parent are those of their roots.
    fn ratio(&self, variables: &mut Variables<'_>) -> f64 {
        if let Some(ratio) = self.0.trace_ratio {
            return ratio;
        }
        let sampler = variables.get("OTEL_TRACES_SAMPLER");
        match sampler.as_ref().map(|sampler| sampler.value.trim_start_matches("parentbased_")) {
            Some("always_on") => 1.0,
            Some("always_off") => 0.0,
            None | Some("traceidratio") => {
                let argument = variables.get("OTEL_TRACES_SAMPLER_ARG");
                let default = if sampler.is_some() { 1.0 } else { TRACE_RATIO };
                variables.number(argument, 0.0..=1.0).unwrap_or(default)
            }
            Some(_) => {
                let next = "set always_on, always_off or traceidratio, or trace_ratio in [otlp]";
                variables.fault("OTEL_TRACES_SAMPLER", "Orinoco does not support this sampler", next);
                TRACE_RATIO
            }
        }
    }
}

fn headers(signal: OtlpSignal, variables: &mut Variables<'_>) -> Headers {
    let variable = variables.of_signal(signal, "HEADERS");
    let mut headers = Headers::default();
    for (name, value) in variables.pairs(variable.as_ref()) {
        if let (Err(fault), Some(variable)) = (headers.add(&name, &value), &variable) {
            let next = fault.next("write name1=value1,name2=value2");
            variables.fault(&variable.name, fault.cause(), next);
        }
    }
    headers
}

fn usual_endpoint() -> HttpEndpoint {
    HttpEndpoint::parse(ENDPOINT).expect("a constant address is valid")
}

/// Parses an address. After a fault any other does, because the settings are not used.
fn parse(variable: Variable, variables: &mut Variables<'_>) -> HttpEndpoint {
    HttpEndpoint::parse(&variable.value).unwrap_or_else(|fault| {
        variables.fault(&variable.name, fault.cause(), fault.next());
        usual_endpoint()
    })
}

/// Refuses what a variable asks for and this exporter does not have, instead of doing something else.
fn check_unsupported(signal: OtlpSignal, variables: &mut Variables<'_>) {
    let supported = [("PROTOCOL", "http/protobuf"), ("COMPRESSION", "none")];
    for (end, only) in supported {
        if let Some(variable) = variables.of_signal(signal, end).filter(|variable| variable.value != only) {
            variables.fault(
                &variable.name,
                &format!("only {only} is supported"),
                &format!("set {only}, or unset it"),
            );
        }
    }
}

/// Returns the attributes of everything that is sent. The name of the service has a variable of its own, which wins.
fn attributes(variables: &mut Variables<'_>) -> Vec<(String, String)> {
    let listed = variables.get("OTEL_RESOURCE_ATTRIBUTES");
    let mut attributes = variables.pairs(listed.as_ref());
    let service = variables.get("OTEL_SERVICE_NAME");
    attributes.extend(service.map(|service| ("service.name".to_owned(), service.value)));
    attributes
}

#[cfg(test)]
mod tests;
