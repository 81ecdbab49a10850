//! Folds: the one place where records become figures.

use std::sync::Arc;
use std::time::Duration;

use orinoco_core::{ComputeUnit, Nanos};

use crate::buckets::Buckets;
use crate::record::{
    ArrivalRecord, BatchRecord, CountRecord, DecoderCpuRecord, DropCause, DropRecord, FrameRecord,
    LaneRecord, LaneStep, LaneWork, MissCause, ModelCounter, RequestRecord, ResultRecord, Stage, StateRecord,
};
use crate::stage_fold::StageFold;
use crate::window::{Reset, Window, window_start};
use crate::{CurrentStage, Histogram, SourceState};

/// Shortest time over which the rate of a stream that has just started is taken.
const RATE_TIME_MIN: Duration = Duration::from_secs(1);

/// Counters and percentiles of one stream.
#[derive(Clone, Debug, Default)]
pub struct StreamFold {
    /// Name of the stream on this board.
    pub name: Arc<str>,
    /// Number of frames that the source delivered, and of those that it reports as lost.
    pub frames_in: u64,
    /// Number of frames that went through every model and sink.
    pub frames_out: u64,
    /// Number of frames that took longer than the stream's `latency_ms_max`.
    pub late: u64,
    /// Number of objects that all models found.
    pub detections: u64,
    /// Number of times that the source had to be opened again: after a loss, or after a failed attempt.
    pub reconnects: u64,
    /// Times from a loss of the source to its next frame, one for each recovery.
    pub recovery: Histogram,
    /// Time at which the first frame that went through every model and sink had reached its slot.
    pub first_in: Option<Nanos>,
    /// Time at which the latest frame reached its slot.
    pub last_in: Option<Nanos>,
    /// Time at which the latest frame had gone through its sinks.
    pub last_out: Option<Nanos>,
    /// Name of the decoder, where one was chosen.
    pub decoder: Option<String>,
    /// Processor time that the decoder has used, where it is known.
    pub decoder_cpu: Option<Duration>,
    /// State of the source.
    pub state: Option<SourceState>,
    /// Whether the source has delivered.
    was_live: bool,
    /// Time at which the source was lost, if it was live before and is not now.
    lost: Option<Nanos>,
    dropped: [u64; DropCause::ALL.len()],
    late_in: [u64; Stage::ALL.len()],
    pub(crate) stages: [StageFold; Stage::ALL.len()],
    window: Window<WindowFrames>,
}

/// Numbers of frames of a stream in its window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowFrames {
    /// Frames that went through every model and sink.
    pub finished: u64,
    /// Finished frames that took longer than the stream's `latency_ms_max`.
    pub late: u64,
    /// Frames that were dropped, for any cause.
    pub dropped: u64,
}

impl Reset for WindowFrames {
    fn reset(&mut self) {
        *self = Self::default();
    }
}

impl StreamFold {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Returns the output rate in frames per second, from the arrival of the first finished frame to the end of the latest;
    /// 0 before any frame is finished.
    pub fn fps(&self) -> f64 {
        let (Some(first), Some(last)) = (self.first_in, self.last_out) else { return 0.0 };
        self.frames_out as f64 / last.since(first).as_secs_f64().max(1e-9)
    }

    /// Returns the output rate in frames per second over the window at `now`: from its start, or from the arrival of the first
    /// finished frame if that is later. In the first second after that, it is taken over one second.
    pub fn fps_in_window(&self, now: Nanos) -> f64 {
        let Some(first) = self.first_in else { return 0.0 };
        let covered = now.since(window_start(now).max(first)).max(RATE_TIME_MIN);
        self.frames_in_window(now).finished as f64 / covered.as_secs_f64()
    }

    /// Returns the numbers of frames in the window at `now`.
    pub fn frames_in_window(&self, now: Nanos) -> WindowFrames {
        self.window.values(now).fold(WindowFrames::default(), |sum, frames| WindowFrames {
            finished: sum.finished + frames.finished,
            late: sum.late + frames.late,
            dropped: sum.dropped + frames.dropped,
        })
    }

    /// Returns the number of late frames of whose time this stage took the largest part. A frame's time, from its slot to the
    /// end of the sinks, consists of the stages `queue`, `preprocess`, `infer`, `postprocess` and `sink`; in the three of a
    /// model it is in the stage for as long as the whole batch is.
    pub fn late_in(&self, stage: Stage) -> u64 {
        self.late_in[stage as usize]
    }

    /// Returns the number of frames that were dropped for `cause`.
    pub fn dropped(&self, cause: DropCause) -> u64 {
        self.dropped[cause as usize]
    }

    /// Returns the durations of a stage over the whole run.
    pub fn stage(&self, stage: Stage) -> &Histogram {
        self.stages[stage as usize].total()
    }

    /// Returns the durations of a stage over the whole run, by fixed buckets.
    pub fn buckets(&self, stage: Stage) -> Buckets {
        self.stages[stage as usize].buckets()
    }

    pub(crate) fn add_arrival(&mut self, record: &ArrivalRecord) {
        self.frames_in += 1;
        self.last_in = Some(record.at);
    }

    pub(crate) fn add_frame(&mut self, record: &FrameRecord) {
        self.stages[record.stage as usize].record(record.span);
        if record.stage == Stage::Total {
            self.first_in.get_or_insert(record.span.start());
        }
    }

    pub(crate) fn add_decoder_cpu(&mut self, record: &DecoderCpuRecord) {
        *self.decoder_cpu.get_or_insert_default() += record.took;
    }

    pub(crate) fn add_drop(&mut self, record: &DropRecord) {
        self.dropped[record.cause as usize] += record.frames;
        if let Some(frames) = self.window.at_mut(record.at) {
            frames.dropped += record.frames;
        }
        if record.cause == DropCause::LostAtSource {
            self.frames_in += record.frames;
        }
    }

    pub(crate) fn add_result(&mut self, record: &ResultRecord) {
        self.frames_out += 1;
        if let Some(stage) = record.late_in {
            self.late += 1;
            self.late_in[stage as usize] += 1;
        }
        if let Some(frames) = self.window.at_mut(record.at) {
            frames.finished += 1;
            frames.late += u64::from(record.late_in.is_some());
        }
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
    /// Number of images that the model inferred: frames, and objects in frames.
    pub items: u64,
    /// Number of inferences, each of one batch.
    pub inferences: u64,
    /// Time per execution for colour conversion, resize and normalisation.
    pub preprocess: StageFold,
    /// Time per execution in the engine.
    pub infer: StageFold,
    /// Time per execution in the head, with non-maximum suppression.
    pub postprocess: StageFold,
    /// Time per client's request on the lane's thread; their number is its count.
    pub request: StageFold,
    /// Number of captured CUDA graphs that the driver refused; their work was launched call by call instead.
    pub graph_fallbacks: u64,
    /// Number of candidates, keypoints, classes, cells, embeddings or raw elements that were not finite.
    pub not_finite: u64,
    /// Images of a model that another seat of the cluster executes.
    pub remote: RemoteFold,
}

/// Images of a model that another seat of the cluster executes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteFold {
    /// Number of images that the seat inferred.
    pub images: u64,
    missed: [u64; MissCause::ALL.len()],
}

impl RemoteFold {
    /// Returns the number of images that the seat should have inferred, and did not for this cause.
    pub fn missed(&self, cause: MissCause) -> u64 {
        self.missed[cause as usize]
    }
}

impl ModelFold {
    /// Adds a stage of an execution. Each execution has one record of each stage on the lane's thread; the record of the
    /// engine counts the execution.
    pub(crate) fn add_batch(&mut self, record: &BatchRecord) {
        if record.unit != ComputeUnit::Cpu {
            return;
        }
        let stage = match record.stage {
            Stage::Preprocess => &mut self.preprocess,
            Stage::Infer => {
                self.inferences += 1;
                self.items += u64::from(record.items);
                if record.was_suspended {
                    self.remote.images += u64::from(record.items);
                }
                &mut self.infer
            }
            Stage::Postprocess => &mut self.postprocess,
            Stage::Capture
            | Stage::Decode
            | Stage::Queue
            | Stage::Sink
            | Stage::Total
            | Stage::CaptureToResult => {
                unreachable!("a model has no stage {}", record.stage.name())
            }
        };
        stage.record(record.span);
    }

    pub(crate) fn add_request(&mut self, record: &RequestRecord) {
        self.request.record(record.span);
    }

    pub(crate) fn add_count(&mut self, record: &CountRecord) {
        *self.counter_mut(record.counter) += record.count;
    }

    /// Returns the value of a counter.
    pub fn counter(&self, counter: ModelCounter) -> u64 {
        match counter {
            ModelCounter::GraphFallbacks => self.graph_fallbacks,
            ModelCounter::NotFinite => self.not_finite,
            ModelCounter::Missed(cause) => self.remote.missed(cause),
        }
    }

    fn counter_mut(&mut self, counter: ModelCounter) -> &mut u64 {
        match counter {
            ModelCounter::GraphFallbacks => &mut self.graph_fallbacks,
            ModelCounter::NotFinite => &mut self.not_finite,
            ModelCounter::Missed(cause) => &mut self.remote.missed[cause as usize],
        }
    }
}

/// Progress of one lane, readable while the lane works.
#[derive(Clone, Debug, Default)]
pub struct LaneFold {
    /// Number of batches that the lane took.
    pub batches: u64,
    /// Number of frames in these batches.
    pub frames: u64,
    /// Number of clients' requests that the lane executed.
    pub requests: u64,
    /// Time at which the lane took the batch or the request that it executes; `None` while it waits for one.
    pub executing_since: Option<Nanos>,
    /// Work that the lane does besides executing, and since when.
    pub other_work: Option<(LaneWork, Nanos)>,
    /// Model and stage that the lane's thread is in.
    pub current: CurrentStage,
    /// Time of the latest progress: a batch taken or finished, or a stage of a model.
    pub progress: Option<Nanos>,
    busy: [Duration; ComputeUnit::ALL.len()],
}

impl LaneFold {
    /// Returns the time for which the lane's models kept a unit busy. For [`ComputeUnit::Cpu`] it is the time of the lane's
    /// thread, including its waits for other units; for a GPU it is the time by the GPU's own clock, where that is known.
    pub fn busy(&self, unit: ComputeUnit) -> Duration {
        self.busy[unit as usize]
    }

    /// Returns since when the lane has been at its present work; `None` while it waits for some.
    pub fn working_since(&self) -> Option<Nanos> {
        self.executing_since.or(self.other_work.map(|(_, since)| since))
    }

    pub(crate) fn begin(&mut self, work: LaneWork, at: Nanos) {
        self.progress = self.progress.max(Some(at));
        self.other_work = Some((work, at));
    }

    pub(crate) fn add_lane(&mut self, record: &LaneRecord) {
        self.progress = self.progress.max(Some(record.at));
        match record.step {
            LaneStep::Took => {
                self.batches += 1;
                self.frames += u64::from(record.frames);
                self.executing_since = Some(record.at);
            }
            LaneStep::Resumed | LaneStep::TookRequest => self.executing_since = Some(record.at),
            LaneStep::Finished | LaneStep::Suspended => self.executing_since = None,
        }
    }

    pub(crate) fn add_batch(&mut self, record: &BatchRecord) {
        self.progress = self.progress.max(Some(record.span.end()));
        if !record.was_suspended {
            self.busy[record.unit as usize] += record.span.duration();
        }
    }

    pub(crate) fn add_request(&mut self, record: &RequestRecord) {
        self.requests += 1;
        self.progress = self.progress.max(Some(record.span.end()));
        self.executing_since = None;
        self.busy[ComputeUnit::Cpu as usize] += record.span.duration();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Durations, StreamTelemetry, Telemetry, WindowReader};
    use orinoco_core::{LaneId, StreamId, TimeSpan};

    /// Folds states at times in ms. Returns the number of reconnects, the number of recoveries, and the longest recovery in
    /// ms.
    fn check(states: &[(SourceState, u64)]) -> (u64, u64, u128) {
        let mut fold = StreamFold::default();
        for &(state, ms) in states {
            fold.add_state(&StateRecord { stream: StreamId(0), state, at: Nanos(ms * 1_000_000) });
        }
        (fold.reconnects, fold.recovery.count(), fold.recovery.max().as_millis())
    }

    const SECOND: u64 = 1_000_000_000;

    /// Telemetry of one stream.
    fn stream() -> StreamTelemetry {
        Telemetry::new(1).stream(StreamId(0))
    }

    /// Emits a stage that took so many ms and ended at a time in seconds.
    fn emit(stream: &StreamTelemetry, ms: u64, end: u64) {
        let span = TimeSpan::ending(Nanos(end * SECOND), Duration::from_millis(ms));
        stream.emitter().stage(0, Stage::Infer, span);
    }

    /// Returns the number of durations of the window at a time in seconds, and the longest in ms.
    fn window(stream: &StreamTelemetry, now: u64) -> (u64, u128) {
        let histogram = stream.window(Stage::Infer, Nanos(now * SECOND), &mut WindowReader::default());
        (histogram.count(), (histogram.max() + Duration::from_micros(500)).as_millis())
    }

    #[test]
    fn a_window_covers_45_to_60_seconds_and_forgets_the_rest() {
        let stream = stream();
        (100..195).for_each(|second| emit(&stream, 10, second));
        // From 135 s on: the interval of the present time, and the three before it.
        assert_eq!(window(&stream, 194), (60, 10));
        assert_eq!(window(&stream, 195), (45, 10));
        assert_eq!(window(&stream, 209), (45, 10));
        assert_eq!(window(&stream, 224), (30, 10));
        assert_eq!(window(&stream, 239), (15, 10));
        assert_eq!(window(&stream, 240), (0, 0));
        assert_eq!(stream.read(|fold| fold.stage(Stage::Infer).count()), 95, "the run forgets nothing");
    }

    #[test]
    fn nothing_of_before_is_left_after_a_long_silence() {
        let stream = stream();
        (0..60).for_each(|second| emit(&stream, 500, second));
        // All intervals are those of long ago, one of them in the place of the present one.
        emit(&stream, 10, 86_400);
        assert_eq!(window(&stream, 86_401), (1, 10));
        emit(&stream, 20, 86_430);
        assert_eq!(window(&stream, 86_430), (2, 20));
    }

    #[test]
    fn records_count_in_their_own_time_in_whatever_order_they_come() {
        let stream = stream();
        emit(&stream, 10, 100);
        // Late by two intervals, whose place was never used.
        emit(&stream, 20, 70);
        emit(&stream, 30, 101);
        assert_eq!(window(&stream, 104), (3, 30));
        assert_eq!(window(&stream, 120), (2, 30), "that of 70 s is forgotten, although it came later");
        // Its interval is older than the window, and a later one has its place.
        emit(&stream, 900, 31);
        assert_eq!(window(&stream, 104), (3, 30));
        assert_eq!(stream.read(|fold| fold.stage(Stage::Infer).count()), 4);
        // A reader whose clock is behind.
        assert_eq!(window(&stream, 0), (3, 30));
    }

    #[test]
    fn models_have_windows_too() {
        let telemetry = Telemetry::new(1);
        let (lane, model) = (telemetry.lane(LaneId(0)), telemetry.add_model());
        let model = telemetry.model(model);
        let span = |second| TimeSpan::ending(Nanos(second * SECOND), Duration::from_millis(8));
        for second in [10, 70, 80] {
            let images = [StreamId(0); 2].into_iter();
            model.batch(&lane, ComputeUnit::Cpu, images, &[(Stage::Infer, span(second))]);
        }
        model.request(&lane, span(80));
        let mut reader = WindowReader::default();
        let mut count = |stage: fn(&ModelFold) -> &StageFold, second| {
            model.window(stage, Nanos(second * SECOND), &mut reader).count()
        };
        assert_eq!((count(|fold| &fold.infer, 80), count(|fold| &fold.preprocess, 80)), (2, 0));
        assert_eq!((count(|fold| &fold.request, 80), count(|fold| &fold.request, 140)), (1, 0));
        assert_eq!(model.read(|fold| fold.infer.count()), 3);
    }

    #[test]
    fn buckets_count_the_whole_run() {
        let stream = stream();
        // One in each of 400 intervals: 1 ms, 2 ms and so on.
        (1..=400).for_each(|ms| emit(&stream, ms, ms * 15));
        let Durations { buckets, count, sum } = stream.read(|fold| fold.buckets(Stage::Infer)).durations();
        let counts: Vec<_> = buckets.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [0, 1, 2, 5, 10, 20, 33, 50, 100, 200, 400, 400, 400, 400, 400]);
        assert_eq!(count, 400);
        assert!((sum - 80.2).abs() < 1e-9, "{sum} s");
        assert_eq!(stream.read(|fold| fold.buckets(Stage::Queue)).durations().count, 0);
    }

    /// Emits a finished frame at a time in ms, which took 40 ms.
    fn finish(stream: &StreamTelemetry, ms: u64, late_in: Option<Stage>) {
        let at = Nanos(ms * 1_000_000);
        let mut emitter = stream.emitter();
        emitter.stage(0, Stage::Total, TimeSpan::ending(at, Duration::from_millis(40)));
        emitter.result(0, 0, late_in, at);
    }

    #[test]
    fn late_frames_have_one_cause_each() {
        let stream = stream();
        let causes = [None, Some(Stage::Infer), Some(Stage::Sink), None, Some(Stage::Infer)];
        causes.into_iter().zip(100..).for_each(|(late_in, ms)| finish(&stream, ms, late_in));
        let (late, late_in) = stream.read(|fold| (fold.late, Stage::ALL.map(|stage| fold.late_in(stage))));
        assert_eq!((late, late_in[Stage::Infer as usize], late_in[Stage::Sink as usize]), (3, 2, 1));
        assert_eq!(late_in.iter().sum::<u64>(), late);
    }

    #[test]
    fn the_rate_is_that_of_the_window() {
        let stream = stream();
        let fps = |second: u64| stream.read(|fold| fold.fps_in_window(Nanos(second * SECOND)));
        let near = |fps: f64, exact: f64| (fps - exact).abs() <= exact * 0.01;
        assert_eq!(fps(1000), 0.0);
        finish(&stream, 1_000_040, None);
        assert_eq!(fps(1000), 1.0, "it has just started");
        // 25 frames per second for 100 s, then 5.
        (2..=500).for_each(|frame| finish(&stream, 1_000_000 + frame * 40, None));
        assert!(near(fps(1020), 25.0), "{} after 20 s", fps(1020));
        (501..=2500).for_each(|frame| finish(&stream, 1_000_000 + frame * 40, None));
        assert!(near(fps(1100), 25.0), "{}", fps(1100));
        let slow = |frame: u64| finish(&stream, 1_100_000 + frame * 200, Some(Stage::Queue));
        (1..=495).for_each(slow);
        stream.drop_frame(0, DropCause::DropOldest, Nanos(1_150 * SECOND));
        let frames = |second: u64| stream.read(|fold| fold.frames_in_window(Nanos(second * SECOND)));
        // From 1,140 s on.
        assert_eq!(frames(1199), WindowFrames { finished: 296, late: 296, dropped: 1 });
        (496..=500).for_each(slow);
        assert!(near(fps(1200), 5.0), "{}", fps(1200));
        // From 1,155 s on: the drop is before it.
        assert_eq!(frames(1200), WindowFrames { finished: 226, late: 226, dropped: 0 });
        assert_eq!(frames(1300), WindowFrames::default());
        assert_eq!(fps(1300), 0.0);
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
