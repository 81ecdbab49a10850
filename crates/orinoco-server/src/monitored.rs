//! Board, as the server sees it.

use orinoco_api::{Dump, EventJson, Status};
use orinoco_telemetry::Metric;

/// Running board that the server reports on. Its methods are called on blocking threads of the server, at most one call of
/// each method at a time; a call that hangs delays only answers of its kind, which then report a time-out.
pub trait Monitored: Send + Sync + 'static {
    /// Returns the state of the board.
    fn status(&self) -> Status;

    /// Returns the metrics of the board. Names of metrics are unique.
    fn metrics(&self) -> Vec<Metric>;

    /// Returns the events that are still kept and whose number is greater than `number`, oldest first.
    fn events_after(&self, number: u64) -> Vec<EventJson>;

    /// Has `wake` called after each new event, on whichever thread emits it. `wake` does not block, and calls in a row may
    /// count as one. The server calls this method once.
    fn on_event(&self, wake: Box<dyn Fn() + Send + Sync>);

    /// Returns the post-mortem dump: status, events and trace, without secrets of addresses.
    fn dump(&self) -> Dump;
}
