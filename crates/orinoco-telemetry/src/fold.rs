//! The one place where records become figures.

use std::sync::Arc;
use std::time::Duration;

use orinoco_core::{ComputeUnit, Nanos};

use crate::record::{
    ArrivalRecord, BatchRecord, CountRecord, DecoderCpuRecord, DropCause, DropRecord, FrameRecord,
    LaneRecord, LaneStep, ModelCounter, ResultRecord, Stage, StateRecord,
};
use crate::{Histogram, SourceState};

/// Counters and percentiles of one stream.
#[derive(Clone, Debug, Default)]
pub struct StreamFold {
    /// The stream's name on this board.
    pub name: Arc<str>,
    /// Frames that the source delivered, and those that it reports as lost.
    pub frames_in: u64,
    /// Frames that went through every model and sink.
    pub frames_out: u64,
    /// Frames that took longer than the stream's `latency_ms_max`.
    pub late: u64,
    /// Objects found by all models.
    pub detections: u64,
    /// Times the source was to be opened again: after a loss, or after an attempt that failed.
    pub reconnects: u64,
    /// From losing the source to its next frame, for each time that it came back.
    pub recovery: Histogram,
    /// Time at which the first frame that went through everything had reached its slot.
    pub first_in: Option<Nanos>,
    /// Time at which its latest frame had gone through its sinks.
    pub last_out: Option<Nanos>,
    /// Decoder of its frames, where that was chosen.
    pub decoder: Option<String>,
    /// Processor time of the decoder, where it is known.
    pub decoder_cpu: Option<Duration>,
    /// State of the source.
    pub state: Option<SourceState>,
    /// Whether the source has delivered.
    was_live: bool,
    /// Time at which the source was lost, if it was live before and is not now.
    lost: Option<Nanos>,
    dropped: [u64; DropCause::ALL.len()],
    stages: [Histogram; Stage::ALL.len()],
}

impl StreamFold {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Frames out a second, from the arrival of the first of them to the latest one's end; 0 before there is one.
    pub fn fps(&self) -> f64 {
        let (Some(first), Some(last)) = (self.first_in, self.last_out) else { return 0.0 };
        self.frames_out as f64 / last.since(first).as_secs_f64().max(1e-9)
    }

    /// Frames dropped for `cause`.
    pub fn dropped(&self, cause: DropCause) -> u64 {
        self.dropped[cause as usize]
    }

    /// A stage's durations.
    pub fn stage(&self, stage: Stage) -> &Histogram {
        &self.stages[stage as usize]
    }

    pub(crate) fn add_arrival(&mut self, _: &ArrivalRecord) {
        self.frames_in += 1;
    }

    pub(crate) fn add_frame(&mut self, record: &FrameRecord) {
        self.stages[record.stage as usize].record(record.span.duration());
        if record.stage == Stage::Total {
            self.first_in.get_or_insert(record.span.start());
        }
    }

    pub(crate) fn add_decoder_cpu(&mut self, record: &DecoderCpuRecord) {
        *self.decoder_cpu.get_or_insert_default() += record.took;
    }

    pub(crate) fn add_drop(&mut self, record: &DropRecord) {
        self.dropped[record.cause as usize] += record.frames;
        if record.cause == DropCause::LostAtSource {
            self.frames_in += record.frames;
        }
    }

    pub(crate) fn add_result(&mut self, record: &ResultRecord) {
        self.frames_out += 1;
        self.late += u64::from(record.is_late);
        self.detections += record.detections;
        self.last_out = Some(record.at);
    }

    pub(crate) fn add_state(&mut self, record: &StateRecord) {
        self.state = Some(record.state);
        match record.state {
            SourceState::Live => {
                self.was_live = true;
                if let Some(lost) = self.lost.take() {
                    self.recovery.record(record.at.since(lost));
                }
            }
            SourceState::BackingOff => {
                self.reconnects += 1;
                if self.was_live {
                    self.lost.get_or_insert(record.at);
                }
            }
            SourceState::Connecting | SourceState::Stalled | SourceState::Ended => {}
        }
    }
}

/// Counters and percentiles of one model, over all streams and lanes.
#[derive(Clone, Debug, Default)]
pub struct ModelFold {
    /// Frames, and objects in them, that it looked at.
    pub pictures: u64,
    /// Executions, of one batch of pictures each.
    pub replays: u64,
    /// Time of one execution for colour, resize and normalisation.
    pub preprocess: Histogram,
    /// Time of one execution in the engine.
    pub infer: Histogram,
    /// Time of one execution in head and suppression.
    pub postprocess: Histogram,
    /// Captured sequences of launches that a GPU's driver refused, and that were launched call by call.
    pub graph_fallbacks: u64,
    /// Candidates, keypoints, classes, cells, embeddings or raw elements that were no finite number.
    pub not_finite: u64,
}

impl ModelFold {
    /// Each execution has one record of each stage on the lane's thread; the engine's counts it.
    pub(crate) fn add_batch(&mut self, record: &BatchRecord) {
        if record.unit != ComputeUnit::Cpu {
            return;
        }
        let stage = match record.stage {
            Stage::Preprocess => &mut self.preprocess,
            Stage::Infer => {
                self.replays += 1;
                self.pictures += u64::from(record.items);
                &mut self.infer
            }
            Stage::Postprocess => &mut self.postprocess,
            Stage::Capture | Stage::Decode | Stage::Queue | Stage::Sink | Stage::Total => {
                unreachable!("a model has no stage {}", record.stage.name())
            }
        };
        stage.record(record.span.duration());
    }

    pub(crate) fn add_count(&mut self, record: &CountRecord) {
        *self.counter_mut(record.counter) += record.count;
    }

    /// The value of a counter.
    pub fn counter(&self, counter: ModelCounter) -> u64 {
        match counter {
            ModelCounter::GraphFallbacks => self.graph_fallbacks,
            ModelCounter::NotFinite => self.not_finite,
        }
    }

    fn counter_mut(&mut self, counter: ModelCounter) -> &mut u64 {
        match counter {
            ModelCounter::GraphFallbacks => &mut self.graph_fallbacks,
            ModelCounter::NotFinite => &mut self.not_finite,
        }
    }
}

/// Progress of one lane. It can be read while the lane works.
#[derive(Clone, Debug, Default)]
pub struct LaneFold {
    /// Batches that it took.
    pub batches: u64,
    /// Frames in them.
    pub frames: u64,
    /// Time at which it took or resumed the batch that it works on; `None` while it waits for one.
    pub executing_since: Option<Nanos>,
    /// Time of its latest progress: a batch taken, suspended, resumed or finished, or a stage of a model.
    pub progress: Option<Nanos>,
    busy: [Duration; ComputeUnit::ALL.len()],
}

impl LaneFold {
    /// Time for which its models kept a unit busy: the lane's thread, waiting for other units included, or a GPU by its own
    /// clock, where that is known.
    pub fn busy(&self, unit: ComputeUnit) -> Duration {
        self.busy[unit as usize]
    }

    pub(crate) fn add_lane(&mut self, record: &LaneRecord) {
        self.progress = self.progress.max(Some(record.at));
        match record.step {
            LaneStep::Took => {
                self.batches += 1;
                self.frames += u64::from(record.frames);
                self.executing_since = Some(record.at);
            }
            LaneStep::Resumed => self.executing_since = Some(record.at),
            LaneStep::Finished | LaneStep::Suspended => self.executing_since = None,
        }
    }

    pub(crate) fn add_batch(&mut self, record: &BatchRecord) {
        self.progress = self.progress.max(Some(record.span.end()));
        if !record.was_suspended {
            self.busy[record.unit as usize] += record.span.duration();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orinoco_core::StreamId;

    /// Reconnects, recoveries and the longest of them in ms, of states at times in ms.
    fn check(states: &[(SourceState, u64)]) -> (u64, u64, u128) {
        let mut fold = StreamFold::default();
        for &(state, ms) in states {
            fold.add_state(&StateRecord { stream: StreamId(0), state, at: Nanos(ms * 1_000_000) });
        }
        (fold.reconnects, fold.recovery.count(), fold.recovery.max().as_millis())
    }

    #[test]
    fn a_recovery_lasts_from_the_first_loss_to_the_next_frame() {
        use SourceState::{BackingOff, Connecting, Live, Stalled};
        assert_eq!(check(&[(Connecting, 0), (BackingOff, 5), (Connecting, 9), (Live, 20)]), (1, 0, 0));
        let lost = [(Live, 0), (Stalled, 100), (BackingOff, 110), (Connecting, 300), (BackingOff, 500)];
        assert_eq!(check(&lost), (2, 0, 0));
        let (reconnects, recoveries, longest) =
            check(&[&lost[..], &[(Connecting, 900), (Live, 1110)]].concat());
        assert_eq!((reconnects, recoveries), (2, 1));
        assert!(longest.abs_diff(1000) <= 10, "{longest} ms");
    }
}
