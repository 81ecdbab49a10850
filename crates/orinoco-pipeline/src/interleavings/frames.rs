//! Frames that are counted, and what they pass through.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use orinoco_core::{Clock, Diagnosis, DropPolicy, FrameDesc, Nanos, PixelFormat, StreamId, codes};
use orinoco_telemetry::{DropCause, Event, EventSink, StreamTelemetry, Telemetry};

use crate::{Frame, Lease, MonotonicClock, Slot, StreamQueue};

pub(super) const POLICIES: [DropPolicy; 3] =
    [DropPolicy::Block, DropPolicy::DropOldest, DropPolicy::DropNewest];

/// Number of frames that somebody holds. Not shuttle's counter: looking at it is no step of a test.
#[derive(Clone, Default)]
pub(super) struct Held(Arc<AtomicUsize>);

struct CountedFrame(Held);

impl Lease for CountedFrame {
    fn bytes(&self) -> &[u8] {
        &[0]
    }
}

impl Drop for CountedFrame {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Held {
    pub(super) fn frame(&self, stream: StreamId, seq: u64) -> Frame {
        self.0.fetch_add(1, Ordering::Relaxed);
        let desc = FrameDesc { stream, seq, ..FrameDesc::packed(PixelFormat::Gray8, 1, 1) };
        Frame::new(desc, Slot::Leased(Box::new(CountedFrame(self.clone()))), Nanos(0)).expect("it fits")
    }

    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Swallows events.
pub(super) struct Quiet;

impl EventSink for Quiet {
    fn emit(&self, _: Event) {}
}

pub(super) fn clock() -> Arc<dyn Clock> {
    Arc::new(MonotonicClock::default())
}

pub(super) fn queue(policy: DropPolicy, frames_max: usize, wait_ms: u64) -> StreamQueue {
    StreamQueue { group: 0, frames_max, policy, batch_wait: Duration::from_millis(wait_ms) }
}

/// Telemetry of so many streams, with a small trace: each order of a test has its own.
pub(super) fn telemetry(streams: u32) -> Telemetry {
    let telemetry = Telemetry::with_trace(16);
    (0..streams).for_each(|stream| _ = telemetry.add_stream(&stream.to_string()));
    telemetry
}

/// Frames of a stream that were dropped, for any cause.
pub(super) fn dropped(stream: &StreamTelemetry) -> u64 {
    stream.read(|fold| DropCause::ALL.into_iter().map(|cause| fold.dropped(cause)).sum())
}

pub(super) fn fault() -> Diagnosis {
    Diagnosis::new(&codes::ENGINE_RUN, "test", "it fails", "nothing")
}
