//! Bounds of the server.

use std::time::Duration;

/// Bounds of the server. The defaults are those of the daemon; tests choose shorter times.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum number of connections of one listener. Those of the Unix socket are counted apart from those of TCP, so that
    /// clients of one cannot lock out those of the other.
    pub connections_max: usize,
    /// Maximum number of event streams of both listeners. It is less than `connections_max`, because an event stream has no
    /// end and would otherwise leave no connection for requests.
    pub event_streams_max: usize,
    /// Maximum wait of a new connection for a free place. Longer than the requests of a burst take together.
    pub place_wait_max: Duration,
    /// Maximum time from a connection, or from the previous answer, until the next request has arrived: also the time after
    /// which an idle connection is closed. Longer than Prometheus's usual interval between two scrapes, 15 s.
    pub request_wait_max: Duration,
    /// Maximum time for which a client does not read and its answer therefore waits.
    pub write_stall_max: Duration,
    /// Maximum time that a request waits for the board's answer: less than a client waits, so that it hears the reason.
    pub answer_wait_max: Duration,
    /// Time for which an answer is shared: requests within it get the same.
    pub shared_for: Duration,
    /// Interval of comments on an event stream without events. They keep proxies from closing it, and find clients that
    /// are gone.
    pub keep_alive_every: Duration,
    /// Maximum time that requests in progress may take when the server ends.
    pub end_wait_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 64,
            event_streams_max: 32,
            place_wait_max: Duration::from_secs(1),
            request_wait_max: Duration::from_secs(30),
            write_stall_max: Duration::from_secs(10),
            answer_wait_max: Duration::from_secs(3),
            shared_for: Duration::from_millis(100),
            keep_alive_every: Duration::from_secs(15),
            end_wait_max: Duration::from_secs(1),
        }
    }
}
