//! Ids of traces and spans, and the choice of frames to trace. All follow from the identity of the run, so that a frame has one
//! id, wherever it is computed.

use orinoco_core::{Rng, StreamId, WallTime};

/// Bits of a trace id by which samplers of OpenTelemetry choose (W3C Trace Context, level 2): the lowest 56.
const RANDOM_BITS: u32 = 56;

/// Identity of a run, from which the ids of its traces follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunId {
    high: u64,
    low: u64,
}

/// Ids of one frame: its trace, and its spans in the order in which they are drawn.
#[derive(Clone, Debug)]
pub(crate) struct FrameIds {
    trace: u128,
    spans: Rng,
}

/// Share of the frames that are traced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sampling {
    /// Trace ids whose random bits are below this are not sampled.
    rejected_below: u64,
}

impl RunId {
    /// Creates the identity of the run of a process, which started at a time of day on a machine. A board without a battery for
    /// its clock starts each time in 1970, but hardly twice in the same nanosecond.
    pub fn new(started: WallTime, machine: &str, process: u32) -> Self {
        let mix = |seed, value| Rng::with_seed(seed ^ value).u64(..);
        let low = machine.bytes().fold(u64::from(process), |seed, byte| mix(seed, u64::from(byte)));
        Self { high: started.unix_nanos(), low }
    }

    /// Returns the ids of a frame.
    pub(crate) fn frame(self, stream: StreamId, seq: u64) -> FrameIds {
        let draw = |seed: u64| {
            let of_stream = Rng::with_seed(seed ^ u64::from(stream.0)).u64(..);
            Rng::with_seed(of_stream ^ seq).u64(..)
        };
        let (high, low) = (draw(self.high), draw(self.low));
        // An id of zeros is invalid.
        let trace = (u128::from(high) << 64 | u128::from(low)).max(1);
        FrameIds { trace, spans: Rng::with_seed(high.rotate_left(32) ^ low) }
    }
}

impl FrameIds {
    /// Returns the id of the trace.
    pub(crate) fn trace(&self) -> Vec<u8> {
        self.trace.to_be_bytes().to_vec()
    }

    /// Draws the id of the next span.
    pub(crate) fn next_span(&mut self) -> Vec<u8> {
        self.spans.u64(1..).to_be_bytes().to_vec()
    }
}

impl Sampling {
    /// Creates the choice of a share of the frames, from 0 to 1.
    pub(crate) fn new(ratio: f64) -> Self {
        let all = (1_u64 << RANDOM_BITS) as f64;
        Self { rejected_below: ((1.0 - ratio.clamp(0.0, 1.0)) * all).round() as u64 }
    }

    /// Whether a frame is traced.
    pub(crate) fn takes(self, ids: &FrameIds) -> bool {
        let random = ids.trace as u64 & ((1 << RANDOM_BITS) - 1);
        random >= self.rejected_below
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn run() -> RunId {
        RunId::new(WallTime::from_unix_nanos(1_700_000_000_000_000_000), "gate-3", 42)
    }

    #[test]
    fn a_frame_has_the_same_ids_each_time() {
        let ids = || run().frame(StreamId(3), 9);
        assert_eq!(ids().trace(), ids().trace());
        assert_eq!((ids().next_span(), ids().trace().len()), (ids().next_span(), 16));
        let mut drawn = ids();
        assert_ne!(drawn.next_span(), drawn.next_span());
    }

    #[test]
    fn other_frames_streams_machines_and_runs_have_other_ids() {
        let later = RunId::new(WallTime::from_unix_nanos(1_700_000_000_000_000_001), "gate-3", 42);
        let other = RunId::new(WallTime::from_unix_nanos(1_700_000_000_000_000_000), "gate-4", 42);
        let mut seen = BTreeSet::new();
        for run in [run(), later, other] {
            for (stream, seq) in (0..20).flat_map(|stream| (0..500).map(move |seq| (stream, seq))) {
                assert!(seen.insert(run.frame(StreamId(stream), seq).trace()), "{run:?} {stream} {seq}");
            }
        }
    }

    #[test]
    fn the_share_is_as_wanted() {
        for ratio in [0.0, 0.01, 0.3, 1.0] {
            let sampling = Sampling::new(ratio);
            let taken = (0..100_000).filter(|seq| sampling.takes(&run().frame(StreamId(1), *seq))).count();
            let share = taken as f64 / 100_000.0;
            // Four standard deviations of a binomial distribution.
            let tolerance = 4.0 * (ratio * (1.0 - ratio) / 100_000.0).sqrt();
            assert!((share - ratio).abs() <= tolerance, "{share} instead of {ratio}");
        }
    }
}
