//! Counters of the server itself.

use std::sync::atomic::{AtomicU64, Ordering};

use orinoco_telemetry::{Metric, MetricKind, MetricValue};

/// Way by which a client connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The Unix socket.
    Socket,
    /// Loopback TCP.
    Tcp,
}

impl Way {
    const ALL: [Self; 2] = [Self::Socket, Self::Tcp];

    /// Returns the name in the label `listener`.
    fn name(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::Tcp => "tcp",
        }
    }
}

/// Reason why a connection or a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Too many connections.
    Connections,
    /// Too many event streams.
    EventStreams,
    /// Host header that is not this machine's.
    Host,
    /// Method, path or body that is not served.
    Request,
}

impl Refusal {
    const ALL: [Self; 4] = [Self::Connections, Self::EventStreams, Self::Host, Self::Request];

    /// Returns the name in the label `reason`.
    fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::EventStreams => "event_streams",
            Self::Host => "host",
            Self::Request => "request",
        }
    }
}

/// Counters of the server, by listener.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    connections: [AtomicU64; Way::ALL.len()],
    requests: [AtomicU64; Way::ALL.len()],
    refused: [[AtomicU64; Refusal::ALL.len()]; Way::ALL.len()],
}

impl Counters {
    /// Counts an accepted connection.
    pub(crate) fn count_connection(&self, way: Way) {
        self.connections[way as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request.
    pub(crate) fn count_request(&self, way: Way) {
        self.requests[way as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a refused connection or request.
    pub(crate) fn count_refusal(&self, way: Way, refusal: Refusal) {
        self.refused[way as usize][refusal as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counters as metrics.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let counter = |name, help| Metric::new(name, MetricKind::Counter, help);
        let value = |count: &AtomicU64| MetricValue::Number(count.load(Ordering::Relaxed) as f64);
        let mut connections =
            counter("orinoco_server_connections_total", "Connections that the control server accepted.");
        let mut requests =
            counter("orinoco_server_requests_total", "Requests that the control server received.");
        let mut refused = counter(
            "orinoco_server_refused_total",
            "Connections and requests that the control server refused, by reason.",
        );
        for way in Way::ALL {
            let listener = ("listener", way.name());
            connections.add(&[listener], value(&self.connections[way as usize]));
            requests.add(&[listener], value(&self.requests[way as usize]));
            for refusal in Refusal::ALL {
                let count = &self.refused[way as usize][refusal as usize];
                refused.add(&[listener, ("reason", refusal.name())], value(count));
            }
        }
        vec![connections, requests, refused]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_documented_with_its_labels() {
        const PAGE: &str = include_str!("../../../docs/metrics.md");
        for metric in Counters::default().metrics() {
            let name = format!("`{}`", metric.name);
            let row = PAGE.lines().find(|line| line.starts_with("| ") && line.contains(&name));
            let row = row.unwrap_or_else(|| panic!("{name} is not in docs/metrics.md"));
            for (label, value) in metric.series.iter().flat_map(|series| &series.labels) {
                let is_there = |word: &str| row.contains(&format!("`{word}`"));
                assert!(is_there(label), "label {label} of {name}");
                assert!(is_there(value) || *label == "listener", "{label} {value} of {name}");
            }
        }
    }
}
