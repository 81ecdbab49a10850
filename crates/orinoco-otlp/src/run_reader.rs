//! Reads a run: its metrics at an interval, and its records several times a second. Makes requests of them.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use orinoco_core::{Clock, Nanos};
use orinoco_telemetry::TraceFeed;
use prost::Message;

use crate::counts::Counts;
use crate::exported::{Exported, Names, Run};
use crate::frames::Frames;
use crate::ids::Sampling;
use crate::metrics::MetricsConverter;
use crate::resource::{resource, scope};
use crate::settings::Settings;
use crate::spans::spans;
use crate::time_of_day::TimeOfDay;

/// Interval between two readings of the trace. Its ring of 16,384 records then holds what a board emits at 65,000 records per second:
/// twenty times that of eight cameras.
const READ_EVERY: Duration = Duration::from_millis(250);
/// Interval after a reading that found records lost.
const READ_EVERY_BEHIND: Duration = Duration::from_millis(50);
/// Longest time that a span waits for others, as in OpenTelemetry's batch processor.
const SPANS_WAIT_MAX: Duration = Duration::from_secs(5);
/// Number of spans at which a request is made, as in OpenTelemetry's batch processor. With the last frame there may be some more.
const SPANS_MAX: usize = 512;

/// Requests that are due.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Requests {
    pub(crate) metrics: Option<Bytes>,
    pub(crate) traces: Vec<Bytes>,
}

/// Reader of one run.
pub(crate) struct RunReader {
    exported: Box<dyn Exported>,
    clock: Arc<dyn Clock>,
    times: TimeOfDay,
    resource: Resource,
    counts: Arc<Counts>,
    metrics: Option<MetricsReader>,
    traces: Option<TraceReader>,
}

struct MetricsReader {
    converter: MetricsConverter,
    interval: Duration,
    /// Time of the next export.
    next: Nanos,
}

struct TraceReader {
    feed: TraceFeed,
    frames: Frames,
    /// Names at the previous reading: a stream may have ended since.
    earlier: Names,
    spans: Vec<Span>,
    /// Time at which the spans are sent.
    send_at: Nanos,
}

impl RunReader {
    /// Creates the reader of a run.
    pub(crate) fn new(settings: &Settings, run: Run, counts: Arc<Counts>) -> Self {
        let resource = resource(&run.attributes, &settings.attributes);
        let metrics = settings.metrics.as_ref().map(|metrics| MetricsReader {
            converter: MetricsConverter::new(run.started),
            interval: metrics.interval,
            // The first export follows at once: series then count from the start of the run.
            next: run.clock.now(),
        });
        let traces = settings.traces.as_ref().zip(run.records).map(|(traces, feed)| TraceReader {
            feed,
            frames: Frames::new(run.id, Sampling::new(traces.ratio)),
            earlier: Names::default(),
            spans: Vec::new(),
            send_at: Nanos(0),
        });
        let times = TimeOfDay::default();
        Self { exported: run.exported, clock: run.clock, times, resource, counts, metrics, traces }
    }

    /// Reads what has come, and returns the requests that are due and the time until the next reading. At the end of the run
    /// (`is_last`) everything is due.
    pub(crate) fn read(&mut self, is_last: bool) -> (Requests, Duration) {
        let now = self.clock.now();
        let (traces, wait) = self.read_traces(now, is_last);
        let is_due = self.metrics.as_ref().is_some_and(|metrics| is_last || metrics.next <= now);
        let metrics = if is_due { self.read_metrics(now) } else { None };
        (Requests { metrics, traces }, wait)
    }

    fn read_metrics(&mut self, now: Nanos) -> Option<Bytes> {
        let reader = self.metrics.as_mut()?;
        reader.next = now + reader.interval;
        let mut metrics = self.exported.metrics();
        metrics.extend(self.counts.metrics());
        let metrics = reader.converter.convert(&metrics, now, &self.times.unix(&*self.clock));
        let of_scope = ScopeMetrics { scope: Some(scope()), metrics, ..ScopeMetrics::default() };
        let resource_metrics = vec![ResourceMetrics {
            resource: Some(self.resource.clone()),
            scope_metrics: vec![of_scope],
            ..ResourceMetrics::default()
        }];
        Some(ExportMetricsServiceRequest { resource_metrics }.encode_to_vec().into())
    }

    fn read_traces(&mut self, now: Nanos, is_last: bool) -> (Vec<Bytes>, Duration) {
        let Some(reader) = &mut self.traces else { return (Vec::new(), READ_EVERY) };
        // Names first: a stream that ends afterwards is among them.
        let names = self.exported.names();
        let trace = reader.feed.read();
        let frames = reader.frames.add(&trace);
        self.counts.add_frames(frames.len() as u64, reader.frames.take_incomplete(), trace.lost);
        let known = names.clone().with_earlier(std::mem::replace(&mut reader.earlier, names));
        let unix = self.times.unix(&*self.clock);
        let mut requests = Vec::new();
        for frame in frames {
            if reader.spans.is_empty() {
                reader.send_at = now + SPANS_WAIT_MAX;
            }
            reader.spans.extend(spans(frame, &known, &unix));
            if reader.spans.len() >= SPANS_MAX {
                requests.push(trace_request(&self.resource, std::mem::take(&mut reader.spans)));
            }
        }
        if !reader.spans.is_empty() && (is_last || reader.send_at <= now) {
            requests.push(trace_request(&self.resource, std::mem::take(&mut reader.spans)));
        }
        (requests, if trace.lost > 0 { READ_EVERY_BEHIND } else { READ_EVERY })
    }
}

impl Names {
    /// Adds the names of an earlier time, of what has ended since.
    fn with_earlier(mut self, earlier: Self) -> Self {
        for (id, name) in earlier.streams {
            self.streams.entry(id).or_insert(name);
        }
        for (id, labels) in earlier.models {
            self.models.entry(id).or_insert(labels);
        }
        self
    }
}

fn trace_request(resource: &Resource, spans: Vec<Span>) -> Bytes {
    let of_scope = ScopeSpans { scope: Some(scope()), spans, ..ScopeSpans::default() };
    let resource_spans = vec![ResourceSpans {
        resource: Some(resource.clone()),
        scope_spans: vec![of_scope],
        ..ResourceSpans::default()
    }];
    ExportTraceServiceRequest { resource_spans }.encode_to_vec().into()
}

#[cfg(test)]
mod tests;
