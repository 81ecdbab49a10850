//! Metrics in the form of OTLP: cumulative sums, gauges, and histograms with the exact buckets of the run.

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric as OtlpMetric, NumberDataPoint, Sum,
};
use orinoco_core::Nanos;
use orinoco_telemetry::{Durations, Metric, MetricKind, MetricValue, Series};

use crate::attributes::text;
use crate::starts::Starts;
use crate::units::name_and_unit;

/// Converter of one run's metrics.
pub(crate) struct MetricsConverter {
    starts: Starts,
}

/// Times of one reading.
#[derive(Clone, Copy)]
struct Reading<'a> {
    now: Nanos,
    unix: &'a dyn Fn(Nanos) -> u64,
}

impl MetricsConverter {
    /// Creates the converter of a run that started at `run`.
    pub(crate) fn new(run: Nanos) -> Self {
        Self { starts: Starts::new(run) }
    }

    /// Converts the metrics that were read at `now`. `unix` gives the Unix time of a time of the run, in nanoseconds.
    ///
    /// # Panics
    ///
    /// If the kind of a metric does not agree with one of its values.
    pub(crate) fn convert(
        &mut self,
        metrics: &[Metric],
        now: Nanos,
        unix: &dyn Fn(Nanos) -> u64,
    ) -> Vec<OtlpMetric> {
        let reading = Reading { now, unix };
        let converted = metrics.iter().map(|metric| self.metric(metric, reading)).collect();
        self.starts.finish(now);
        converted
    }

    fn metric(&mut self, metric: &Metric, reading: Reading<'_>) -> OtlpMetric {
        let (name, unit) = name_and_unit(metric.name, metric.kind);
        let temporality = AggregationTemporality::Cumulative as i32;
        let data = match metric.kind {
            MetricKind::Gauge => Data::Gauge(Gauge { data_points: self.numbers(metric, reading) }),
            MetricKind::Counter => Data::Sum(Sum {
                data_points: self.numbers(metric, reading),
                aggregation_temporality: temporality,
                is_monotonic: true,
            }),
            MetricKind::Histogram => Data::Histogram(Histogram {
                data_points: metric
                    .series
                    .iter()
                    .map(|series| self.histogram(metric, series, reading))
                    .collect(),
                aggregation_temporality: temporality,
            }),
        };
        OtlpMetric {
            name: name.to_owned(),
            description: metric.help.to_owned(),
            unit: unit.to_owned(),
            data: Some(data),
            ..OtlpMetric::default()
        }
    }

    fn numbers(&mut self, metric: &Metric, reading: Reading<'_>) -> Vec<NumberDataPoint> {
        // Counts are whole numbers; a series keeps its type.
        let is_count =
            metric.kind == MetricKind::Counter && name_and_unit(metric.name, metric.kind).1.is_empty();
        let point = |series: &Series| {
            let MetricValue::Number(number) = series.value else { disagree(metric, &series.value) };
            let start = (metric.kind == MetricKind::Counter)
                .then(|| (reading.unix)(self.starts.start(metric.name, &series.labels, number)));
            NumberDataPoint {
                attributes: attributes(series),
                start_time_unix_nano: start.unwrap_or_default(),
                time_unix_nano: (reading.unix)(reading.now),
                value: Some(if is_count { Value::AsInt(number as i64) } else { Value::AsDouble(number) }),
                ..NumberDataPoint::default()
            }
        };
        metric.series.iter().map(point).collect()
    }

    fn histogram(&mut self, metric: &Metric, series: &Series, reading: Reading<'_>) -> HistogramDataPoint {
        let MetricValue::Durations(durations) = &series.value else { disagree(metric, &series.value) };
        let start = self.starts.start(metric.name, &series.labels, durations.count as f64);
        HistogramDataPoint {
            attributes: attributes(series),
            start_time_unix_nano: (reading.unix)(start),
            time_unix_nano: (reading.unix)(reading.now),
            count: durations.count,
            sum: Some(durations.sum),
            bucket_counts: counts_of_buckets(durations),
            explicit_bounds: durations.buckets.iter().map(|(bound, _)| *bound).collect(),
            ..HistogramDataPoint::default()
        }
    }
}

fn disagree(metric: &Metric, value: &MetricValue) -> ! {
    panic!("metric {} is a {:?} and has the value {value:?}", metric.name, metric.kind)
}

fn attributes(series: &Series) -> Vec<KeyValue> {
    series.labels.iter().map(|(name, value)| text(name, value)).collect()
}

/// Returns the number of durations in each bucket alone, and at the end of those above all bounds.
fn counts_of_buckets(durations: &Durations) -> Vec<u64> {
    let cumulative = durations.buckets.iter().map(|(_, count)| *count).chain([durations.count]);
    let mut before = 0;
    cumulative.map(|count| count - std::mem::replace(&mut before, count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 1_700_000_000_000_000_000;

    fn unix(at: Nanos) -> u64 {
        BASE + at.0
    }

    fn metric(name: &'static str, kind: MetricKind, value: MetricValue) -> Metric {
        let mut metric = Metric::new(name, kind, "Help.");
        metric.add(&[("stream", "gate")], value);
        metric
    }

    fn convert(metric: Metric) -> OtlpMetric {
        let mut converter = MetricsConverter::new(Nanos(5));
        let mut converted = converter.convert(&[metric], Nanos(100), &unix);
        assert_eq!(converted.len(), 1);
        converted.remove(0)
    }

    #[test]
    fn a_count_is_a_cumulative_whole_number_since_the_start() {
        let metric =
            convert(metric("orinoco_frames_in_total", MetricKind::Counter, MetricValue::Number(7.0)));
        assert_eq!((metric.name.as_str(), metric.description.as_str()), ("orinoco_frames_in", "Help."));
        let Some(Data::Sum(sum)) = metric.data else { panic!("not a sum") };
        assert!(sum.is_monotonic && sum.aggregation_temporality() == AggregationTemporality::Cumulative);
        let point = &sum.data_points[0];
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (BASE + 5, BASE + 100));
        assert_eq!(
            (&point.value, &point.attributes),
            (&Some(Value::AsInt(7)), &vec![text("stream", "gate")])
        );
    }

    #[test]
    fn seconds_and_gauges_are_fractions() {
        let value = MetricValue::Number(0.25);
        let busy = convert(metric("orinoco_lane_busy_seconds_total", MetricKind::Counter, value.clone()));
        assert_eq!(busy.unit, "s");
        let Some(Data::Sum(sum)) = busy.data else { panic!("not a sum") };
        assert_eq!(sum.data_points[0].value, Some(Value::AsDouble(0.25)));
        let power = convert(metric("orinoco_rail_power_watts", MetricKind::Gauge, value));
        let Some(Data::Gauge(gauge)) = power.data else { panic!("not a gauge") };
        let point = &gauge.data_points[0];
        assert_eq!((point.start_time_unix_nano, &point.value), (0, &Some(Value::AsDouble(0.25))));
    }

    #[test]
    fn buckets_are_counted_alone() {
        let durations = Durations { buckets: vec![(0.001, 2), (0.01, 2), (0.1, 9)], count: 10, sum: 1.5 };
        let value = MetricValue::Durations(durations);
        let metric = convert(metric("orinoco_stage_duration_seconds", MetricKind::Histogram, value));
        let Some(Data::Histogram(histogram)) = metric.data else { panic!("not a histogram") };
        let point = &histogram.data_points[0];
        assert_eq!((point.count, point.sum, point.start_time_unix_nano), (10, Some(1.5), BASE + 5));
        assert_eq!(
            (&*point.bucket_counts, &*point.explicit_bounds),
            (&[2, 0, 7, 1][..], &[0.001, 0.01, 0.1][..])
        );
    }

    #[test]
    fn an_empty_histogram_has_empty_buckets() {
        assert_eq!(counts_of_buckets(&Durations::default()), [0]);
    }
}
