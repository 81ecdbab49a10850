//! Metrics in a neutral form, from which exporters write Prometheus text or OTLP.

/// A metric with all of its series. Names are those of Prometheus: `orinoco_stream_frames_in_total`, in native units.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Name.
    pub name: &'static str,
    /// One sentence about the metric.
    pub help: &'static str,
    /// Kind of its values.
    pub kind: MetricKind,
    /// Series, each with other values of the labels.
    pub series: Vec<Series>,
}

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Number that only rises while the run lasts.
    Counter,
    /// Number that rises and falls.
    Gauge,
    /// Durations in seconds, counted by buckets.
    Histogram,
}

/// Value of a metric for one set of labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Names and values of the labels.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: MetricValue,
}

/// Value of one series.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricValue {
    /// Value of a counter or a gauge.
    Number(f64),
    /// Durations of a histogram.
    Durations(Durations),
}

/// Durations, counted by buckets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Durations {
    /// Upper bound of each bucket in seconds, rising, and number of the durations that do not exceed it: the numbers are
    /// cumulative. The bucket of all durations is not among them.
    pub buckets: Vec<(f64, u64)>,
    /// Number of durations.
    pub count: u64,
    /// Sum of the durations, in seconds.
    pub sum: f64,
}

impl Metric {
    /// Creates a metric without series.
    pub fn new(name: &'static str, kind: MetricKind, help: &'static str) -> Self {
        Self { name, help, kind, series: Vec::new() }
    }

    /// Adds the value for one set of labels.
    pub fn add(&mut self, labels: &[(&'static str, &str)], value: MetricValue) {
        let labels = labels.iter().map(|&(name, value)| (name, value.to_owned())).collect();
        self.series.push(Series { labels, value });
    }
}
