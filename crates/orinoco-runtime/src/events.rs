use orinoco_telemetry::{Event, EventSink};

/// Event sink that discards every event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl EventSink for Quiet {
    fn emit(&self, _: Event) {}
}
