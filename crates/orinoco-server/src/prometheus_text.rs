//! Metrics in the text format of Prometheus, version 0.0.4.

use orinoco_telemetry::{Durations, Metric, MetricKind, MetricValue, Series};
use prometheus::TextEncoder;
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric as Sample, MetricFamily, MetricType,
};

/// Content type of [`prometheus_text`].
pub const PROMETHEUS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the metrics in the text format of Prometheus 0.0.4. A metric without series has no lines.
///
/// # Panics
///
/// If the kind of a metric does not agree with one of its values.
pub fn prometheus_text(metrics: &[Metric]) -> String {
    let families: Vec<MetricFamily> =
        metrics.iter().filter(|metric| !metric.series.is_empty()).map(family).collect();
    // It fails for a family without name or samples, and there is none.
    TextEncoder::new().encode_to_string(&families).expect("every family has a name and samples")
}

fn family(metric: &Metric) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(metric.name.to_owned());
    family.set_help(metric.help.to_owned());
    family.set_field_type(match metric.kind {
        MetricKind::Counter => MetricType::COUNTER,
        MetricKind::Gauge => MetricType::GAUGE,
        MetricKind::Histogram => MetricType::HISTOGRAM,
    });
    family.set_metric(metric.series.iter().map(|series| sample(metric, series)).collect());
    family
}

fn sample(metric: &Metric, series: &Series) -> Sample {
    let mut sample = Sample::from_label(series.labels.iter().map(label).collect());
    match (metric.kind, &series.value) {
        (MetricKind::Counter, MetricValue::Number(number)) => {
            let mut counter = Counter::default();
            counter.set_value(*number);
            sample.set_counter(counter);
        }
        (MetricKind::Gauge, MetricValue::Number(number)) => {
            let mut gauge = Gauge::default();
            gauge.set_value(*number);
            sample.set_gauge(gauge);
        }
        (MetricKind::Histogram, MetricValue::Durations(durations)) => {
            sample.set_histogram(histogram(durations));
        }
        (kind, value) => panic!("metric {} is a {kind:?} and has the value {value:?}", metric.name),
    }
    sample
}

fn label((name, value): &(&'static str, String)) -> LabelPair {
    let mut label = LabelPair::default();
    label.set_name((*name).to_owned());
    label.set_value(value.clone());
    label
}

fn histogram(durations: &Durations) -> Histogram {
    let bucket = |&(bound, count): &(f64, u64)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(bound);
        bucket.set_cumulative_count(count);
        bucket
    };
    let mut histogram = Histogram::default();
    histogram.set_bucket(durations.buckets.iter().map(bucket).collect());
    histogram.set_sample_count(durations.count);
    histogram.set_sample_sum(durations.sum);
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(metrics: &[Metric], expected: Expect) {
        expected.assert_eq(&prometheus_text(metrics));
    }

    fn number(kind: MetricKind, help: &'static str, labels: &[(&'static str, &str)], value: f64) -> Metric {
        let mut metric = Metric::new("orinoco_example", kind, help);
        metric.add(labels, MetricValue::Number(value));
        metric
    }

    #[test]
    fn numbers_have_their_labels_and_series_share_one_head() {
        let mut metric = number(MetricKind::Counter, "Frames.", &[("stream", "north")], 12.0);
        metric.add(&[("stream", "south"), ("cause", "late")], MetricValue::Number(9_007_199_254_740_992.0));
        check(
            &[metric, number(MetricKind::Gauge, "Power in watts.", &[], 7.25)],
            expect![[r#"
                # HELP orinoco_example Frames.
                # TYPE orinoco_example counter
                orinoco_example{stream="north"} 12
                orinoco_example{stream="south",cause="late"} 9007199254740992
                # HELP orinoco_example Power in watts.
                # TYPE orinoco_example gauge
                orinoco_example 7.25
            "#]],
        );
    }

    #[test]
    fn quotes_backslashes_and_line_ends_are_escaped() {
        let labels = [("stream", "a \"b\" \\ c\nd é")];
        check(
            &[number(MetricKind::Gauge, "One \\ line\nand \"another\".", &labels, -1.5e-9)],
            expect![[r#"
                # HELP orinoco_example One \\ line\nand "another".
                # TYPE orinoco_example gauge
                orinoco_example{stream="a \"b\" \\ c\nd é"} -0.0000000015
            "#]],
        );
    }

    #[test]
    fn numbers_that_are_not_finite_are_written_as_prometheus_reads_them() {
        let mut metric = number(MetricKind::Gauge, "Odd.", &[], f64::NAN);
        metric.add(&[("a", "b")], MetricValue::Number(f64::INFINITY));
        metric.add(&[("a", "c")], MetricValue::Number(f64::NEG_INFINITY));
        check(
            &[metric],
            expect![[r#"
                # HELP orinoco_example Odd.
                # TYPE orinoco_example gauge
                orinoco_example NaN
                orinoco_example{a="b"} inf
                orinoco_example{a="c"} -inf
            "#]],
        );
    }

    #[test]
    fn a_histogram_has_buckets_to_infinity_a_sum_and_a_count() {
        let mut metric = Metric::new("orinoco_latency_seconds", MetricKind::Histogram, "Latency.");
        let durations = Durations { buckets: vec![(0.005, 2), (0.01, 3)], count: 4, sum: 0.125 };
        metric.add(&[("stage", "infer")], MetricValue::Durations(durations));
        check(
            &[metric],
            expect![[r#"
                # HELP orinoco_latency_seconds Latency.
                # TYPE orinoco_latency_seconds histogram
                orinoco_latency_seconds_bucket{stage="infer",le="0.005"} 2
                orinoco_latency_seconds_bucket{stage="infer",le="0.01"} 3
                orinoco_latency_seconds_bucket{stage="infer",le="+Inf"} 4
                orinoco_latency_seconds_sum{stage="infer"} 0.125
                orinoco_latency_seconds_count{stage="infer"} 4
            "#]],
        );
    }

    #[test]
    fn a_metric_without_series_has_no_lines() {
        check(&[Metric::new("orinoco_none", MetricKind::Gauge, "None.")], expect![""]);
    }

    #[test]
    #[should_panic(expected = "metric orinoco_example is a Histogram")]
    fn kind_and_value_agree() {
        prometheus_text(&[number(MetricKind::Histogram, "Odd.", &[], 1.0)]);
    }
}
