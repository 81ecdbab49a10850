use super::*;
use expect_test::{Expect, expect};
use std::collections::BTreeMap;

fn settings(wanted: &OtlpSpec, variables: &[(&str, &str)]) -> Result<Option<Settings>, Faults> {
    let variables: BTreeMap<&str, &str> = variables.iter().copied().collect();
    Settings::new(wanted, &|name| variables.get(name).map(|value| (*value).to_owned()))
}

/// Shows addresses, headers, times and the ratio of both signals.
fn check(wanted: &OtlpSpec, variables: &[(&str, &str)], expected: Expect) {
    let target = |target: &Target| {
        format!("{} {:?} {} ms", target.endpoint, target.headers, target.timeout.as_millis())
    };
    let shown = match settings(wanted, variables) {
        Ok(None) => "nothing".to_owned(),
        Ok(Some(settings)) => {
            let metrics = settings
                .metrics
                .map(|it| format!("{} every {} ms", target(&it.target), it.interval.as_millis()));
            let traces = settings.traces.map(|it| format!("{} ratio {}", target(&it.target), it.ratio));
            let off = || "off".to_owned();
            format!("metrics {}\ntraces {}", metrics.unwrap_or_else(off), traces.unwrap_or_else(off))
        }
        Err(faults) => faults.to_string(),
    };
    expected.assert_eq(&shown);
}

fn board() -> OtlpSpec {
    OtlpSpec {
        endpoint: Some(HttpEndpoint::parse("http://10.0.0.2:4318/otlp").expect("valid")),
        timeout: Some(Duration::from_millis(500)),
        metrics_interval: Some(Duration::from_secs(15)),
        trace_ratio: Some(0.5),
        ..OtlpSpec::default()
    }
}

const VARIABLES: [(&str, &str); 8] = [
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/"),
    ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://tempo:4318/custom"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc, x-tenant=7"),
    ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "x-other=1"),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", "2000"),
    ("OTEL_METRIC_EXPORT_INTERVAL", "5000"),
    ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
    ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
];

#[test]
fn the_board_file_wins_over_the_environment_and_that_over_defaults() {
    check(
        &OtlpSpec::default(),
        &[],
        expect![[r#"
        metrics http://localhost:4318/v1/metrics [] 10000 ms every 60000 ms
        traces http://localhost:4318/v1/traces [] 10000 ms ratio 0.01"#]],
    );
    check(
        &OtlpSpec::default(),
        &VARIABLES,
        expect![[r#"
        metrics http://collector:4318/v1/metrics ["x-other"] 2000 ms every 5000 ms
        traces http://tempo:4318/custom ["authorization", "x-tenant"] 2000 ms ratio 0.25"#]],
    );
    check(
        &board(),
        &VARIABLES,
        expect![[r#"
        metrics http://10.0.0.2:4318/otlp/v1/metrics ["x-other"] 500 ms every 15000 ms
        traces http://10.0.0.2:4318/otlp/v1/traces ["authorization", "x-tenant"] 500 ms ratio 0.5"#]],
    );
}

#[test]
fn signals_can_be_off() {
    let off = [("OTEL_TRACES_EXPORTER", "none"), ("OTEL_METRICS_EXPORTER", "none")];
    check(&OtlpSpec::default(), &off, expect!["nothing"]);
    check(
        &OtlpSpec { traces: Some(true), ..OtlpSpec::default() },
        &off,
        expect![[r#"
        metrics off
        traces http://localhost:4318/v1/traces [] 10000 ms ratio 0.01"#]],
    );
    check(
        &OtlpSpec { traces: Some(false), metrics: Some(false), ..OtlpSpec::default() },
        &[],
        expect!["nothing"],
    );
    check(&board(), &[("OTEL_SDK_DISABLED", "TRUE")], expect!["nothing"]);
}

#[test]
fn samplers_of_the_environment_set_the_ratio() {
    let ratio = |variables: &[(&str, &str)]| {
        let settings = settings(&OtlpSpec::default(), variables).expect("valid");
        settings.and_then(|settings| settings.traces).expect("traces are on").ratio
    };
    assert_eq!(ratio(&[("OTEL_TRACES_SAMPLER", "always_on")]), 1.0);
    assert_eq!(ratio(&[("OTEL_TRACES_SAMPLER", "parentbased_always_off")]), 0.0);
    assert_eq!(ratio(&[("OTEL_TRACES_SAMPLER", "traceidratio")]), 1.0, "its argument's default");
    let both = [("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0.125")];
    assert_eq!(ratio(&both), 0.125);
}

#[test]
fn faults_are_named_without_secrets() {
    let wrong = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://me:secret@collector"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "secret"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10 s"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "gzip"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "10"),
        ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
        ("OTEL_METRICS_EXPORTER", "prometheus"),
        ("OTEL_RESOURCE_ATTRIBUTES", "a"),
    ];
    check(
        &OtlpSpec::default(),
        &wrong,
        expect![[r#"
        OTEL_METRICS_EXPORTER: Orinoco does not support this exporter; set otlp or none
        OTEL_EXPORTER_OTLP_PROTOCOL: only http/protobuf is supported; set http/protobuf, or unset it
        OTEL_EXPORTER_OTLP_ENDPOINT: https is not supported; run an OpenTelemetry Collector on this board or its local network, send to it with http://, and let it forward over TLS
        OTEL_EXPORTER_OTLP_HEADERS: it is not a list of pairs; write key1=value1,key2=value2
        OTEL_EXPORTER_OTLP_TIMEOUT: it is not a number within its range; set a number from 100 to 60000
        OTEL_METRIC_EXPORT_INTERVAL: it is not a number within its range; set a number from 1000 to 3600000
        OTEL_EXPORTER_OTLP_TRACES_COMPRESSION: only none is supported; set none, or unset it
        OTEL_TRACES_SAMPLER: Orinoco does not support this sampler; set always_on, always_off or traceidratio, or trace_ratio in [otlp]
        OTEL_RESOURCE_ATTRIBUTES: it is not a list of pairs; write key1=value1,key2=value2"#]],
    );
    let file = OtlpSpec { headers_file: Some("/nowhere/headers".into()), ..board() };
    check(
        &file,
        &[],
        expect!["/nowhere/headers: No such file or directory (os error 2); check headers_file in [otlp]"],
    );
}

#[test]
fn attributes_are_those_of_the_environment() {
    let variables = [
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=a,deployment.environment=north%2Cyard"),
        ("OTEL_SERVICE_NAME", "gate"),
    ];
    let settings = settings(&OtlpSpec::default(), &variables).expect("valid").expect("on");
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let expected = [
        pair("service.name", "a"),
        pair("deployment.environment", "north,yard"),
        pair("service.name", "gate"),
    ];
    assert_eq!(settings.attributes, expected);
}
