//! What happened, as typed events and histograms. No I/O: binaries decide where it goes.
//!
//! Read first: [`Event`] (anything an operator might count), [`StreamStats`] (counters and percentiles of one
//! stream) and [`Histogram`].

mod event;
mod histogram;
mod stats;

pub use event::{Event, EventSink, SourceState};
pub use histogram::Histogram;
pub use stats::{DropCause, ModelStats, Stage, Stats, StatsGuard, StreamStats};
