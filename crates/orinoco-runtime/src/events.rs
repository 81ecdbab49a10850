use orinoco_telemetry::{Event, EventSink};

/// Takes events and does nothing with them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl EventSink for Quiet {
    fn emit(&self, _: Event) {}
}
