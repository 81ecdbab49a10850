use super::*;
use orinoco_core::{LaneId, WallTime};
use orinoco_telemetry::{LaneTelemetry, ModelTelemetry, StreamTelemetry, Telemetry, TraceFeed};
use std::time::Duration;

/// Run whose records are put together.
struct Run {
    telemetry: Telemetry,
    feed: TraceFeed,
    frames: Frames,
}

impl Run {
    fn new(telemetry: Telemetry, ratio: f64) -> Self {
        let feed = telemetry.subscribe_trace().expect("nobody reads it");
        let run = RunId::new(WallTime::from_unix_nanos(1), "gate-3", 42);
        Self { telemetry, feed, frames: Frames::new(run, Sampling::new(ratio)) }
    }

    fn stream(&self, name: &str) -> StreamTelemetry {
        self.telemetry.stream(self.telemetry.add_stream(name))
    }

    fn model(&self) -> ModelTelemetry {
        self.telemetry.model(self.telemetry.add_model())
    }

    fn lane(&self, lane: u32) -> LaneTelemetry {
        self.telemetry.lane(LaneId(lane))
    }

    fn read(&mut self) -> Vec<TracedFrame> {
        self.frames.add(&self.feed.read())
    }
}

fn span(start: u64, end: u64) -> TimeSpan {
    TimeSpan::new(Nanos(start), Nanos(end))
}

/// Emits a batch as a lane does: first the model's stages, then the share of each image.
fn execute(
    lane: &LaneTelemetry,
    model: &ModelTelemetry,
    images: &[(&StreamTelemetry, u64)],
    stages: &[(Stage, TimeSpan)],
) {
    let streams: Vec<StreamId> = images.iter().map(|(stream, _)| stream.id()).collect();
    model.batch(lane, ComputeUnit::Cpu, streams.into_iter(), stages);
    for ((stream, seq), index) in images.iter().zip(0..) {
        for (stage, whole) in stages {
            stream.emitter().stage(*seq, *stage, whole.share(index, images.len() as u32));
        }
    }
}

fn finish(stream: &StreamTelemetry, seq: u64, from: u64, at: u64) {
    let mut emitter = stream.emitter();
    emitter.stage(seq, Stage::Sink, span(from, at));
    emitter.stage(seq, Stage::Total, span(0, at));
    emitter.result(seq, 3, Some(Stage::Infer), Nanos(at));
}

#[test]
fn a_frame_has_the_times_of_its_whole_batch() {
    let mut run = Run::new(Telemetry::default(), 1.0);
    let (gate, door) = (run.stream("gate"), run.stream("door"));
    let (lane, model) = (run.lane(2), run.model());
    for (stream, seq) in [(&gate, 7), (&door, 9)] {
        let mut emitter = stream.emitter();
        emitter.arrival(seq, Nanos(1000));
        emitter.stage(seq, Stage::Capture, TimeSpan::ending(Nanos(1000), Duration::from_nanos(400)));
        emitter.stage(seq, Stage::Decode, TimeSpan::ending(Nanos(1000), Duration::from_nanos(300)));
        drop(emitter);
        stream.emitter().stage(seq, Stage::Queue, span(1000, 2000));
    }
    assert!(run.read().is_empty(), "they have not ended");
    let stages = [
        (Stage::Preprocess, span(2000, 2101)),
        (Stage::Infer, span(2101, 5001)),
        (Stage::Postprocess, span(5001, 5003)),
    ];
    execute(&lane, &model, &[(&gate, 7), (&door, 9)], &stages);
    finish(&door, 9, 5003, 6000);
    finish(&gate, 7, 5003, 7000);
    let ended = run.read();
    let keys: Vec<_> = ended.iter().map(|frame| (frame.stream, frame.seq, frame.ended)).collect();
    assert_eq!(keys, [(door.id(), 9, Nanos(6000)), (gate.id(), 7, Nanos(7000))]);
    let frame = &ended[0];
    let around = (frame.arrived, frame.capture, frame.decode, frame.queue, frame.sink);
    let expected = (Nanos(1000), Some(span(600, 1000)), Some(span(700, 1000)), Some(span(1000, 2000)));
    assert_eq!(around, (expected.0, expected.1, expected.2, expected.3, Some(span(5003, 6000))));
    assert_eq!(frame.end, FrameEnd::Finished { detections: 3, late_in: Some(Stage::Infer) });
    for (step, (stage, whole)) in frame.steps.iter().zip(stages) {
        let batch = step.batch.expect("its batch is known");
        assert_eq!(
            (step.stage, step.span, step.images, batch.items, batch.lane),
            (stage, whole, 1, 2, LaneId(2))
        );
    }
    assert_eq!(frame.steps.len(), 3);
    assert_eq!(run.frames.take_incomplete(), 0);
}

#[test]
fn batches_of_several_lanes_are_told_apart() {
    let mut run = Run::new(Telemetry::default(), 1.0);
    let streams: Vec<_> = (0..8).map(|_| run.stream("s")).collect();
    let models: Vec<_> = (0..8).map(|_| run.model()).collect();
    streams.iter().for_each(|stream| stream.emitter().arrival(0, Nanos(0)));
    // All batches first, as if every lane were interrupted between its batch and its shares.
    let whole = |lane: u64| span(100 + lane, 1_000_100 + 3 * lane);
    for (lane, (stream, model)) in streams.iter().zip(&models).enumerate() {
        let stages = [(Stage::Infer, whole(lane as u64))];
        let images = [stream.id(); 2].into_iter();
        model.batch(&run.lane(lane as u32), ComputeUnit::Cpu, images.clone(), &stages);
        model.batch(&run.lane(lane as u32), ComputeUnit::Gpu, images, &stages);
    }
    for (lane, stream) in streams.iter().enumerate() {
        // Two objects of one frame.
        (0..2).for_each(|index| stream.emitter().stage(0, Stage::Infer, whole(lane as u64).share(index, 2)));
        finish(stream, 0, 2_000_000, 2_000_001);
    }
    for (lane, (frame, model)) in run.read().iter().zip(&models).enumerate() {
        let [step] = frame.steps[..] else { panic!("{:?}", frame.steps) };
        let batch = step.batch.expect("its batch is known");
        assert_eq!(
            (batch.lane.index(), batch.model, step.images, step.span),
            (lane, model.id(), 2, whole(lane as u64))
        );
    }
}

#[test]
fn a_stage_whose_batch_is_not_known_keeps_its_share() {
    let mut run = Run::new(Telemetry::default(), 1.0);
    let gate = run.stream("gate");
    gate.emitter().arrival(0, Nanos(0));
    gate.emitter().stage(0, Stage::Infer, span(10, 20));
    finish(&gate, 0, 20, 30);
    let step = ModelStep { stage: Stage::Infer, span: span(10, 20), batch: None, images: 1 };
    assert_eq!(run.read()[0].steps, [step]);
}

#[test]
fn dropped_frames_end_too() {
    let mut run = Run::new(Telemetry::default(), 1.0);
    let (gate, door) = (run.stream("gate"), run.stream("door"));
    (0..4).for_each(|seq| gate.emitter().arrival(seq, Nanos(seq)));
    door.emitter().arrival(1, Nanos(1));
    gate.emitter().drop_frames(1, DropCause::Shutdown, 2, Nanos(50));
    let ended = run.read();
    let shown: Vec<_> = ended.iter().map(|frame| (frame.stream, frame.seq, frame.end, frame.ended)).collect();
    let end = FrameEnd::Dropped(DropCause::Shutdown);
    assert_eq!(shown, [(gate.id(), 1, end, Nanos(50)), (gate.id(), 2, end, Nanos(50))]);
    assert_eq!(run.frames.pending.len(), 3);
    // Frames that never arrived have no trace.
    gate.emitter().drop_frames(10, DropCause::LostAtSource, u64::MAX / 2, Nanos(60));
    assert!(run.read().is_empty());
}

#[test]
fn frames_in_work_are_left_out_after_a_loss() {
    let mut run = Run::new(Telemetry::with_trace(8), 1.0);
    let gate = run.stream("gate");
    gate.emitter().arrival(0, Nanos(0));
    assert!(run.read().is_empty());
    // The queue of frame 0 is overwritten.
    gate.emitter().stage(0, Stage::Queue, span(0, 1));
    gate.emitter().arrival(1, Nanos(1));
    (0..2).for_each(|_| gate.emitter().decoder_cpu(9, Duration::from_nanos(1), Nanos(1)));
    finish(&gate, 0, 2, 3);
    gate.emitter().arrival(2, Nanos(4));
    finish(&gate, 1, 5, 6);
    finish(&gate, 2, 7, 8);
    let lost = run.feed.read();
    assert!(lost.lost > 0);
    let ended: Vec<u64> = run.frames.add(&lost).iter().map(|frame| frame.seq).collect();
    assert_eq!((ended, run.frames.take_incomplete()), (vec![2], 1));
}

#[test]
fn frames_that_never_end_are_bounded() {
    let mut run = Run::new(Telemetry::default(), 1.0);
    let gate = run.stream("gate");
    (0..3000).for_each(|seq| gate.emitter().arrival(seq, Nanos(seq)));
    assert!(run.read().is_empty());
    assert_eq!((run.frames.pending.len(), run.frames.take_incomplete()), (PENDING_MAX, 3000 - 1024));
    finish(&gate, 2999, 3000, 3001);
    finish(&gate, 0, 3000, 3001);
    assert_eq!(run.read().len(), 1, "the oldest were left out");
}

#[test]
fn only_sampled_frames_are_put_together() {
    for (ratio, expected) in [(0.0, 0..=0), (0.1, 60..=140), (1.0, 1000..=1000)] {
        let mut run = Run::new(Telemetry::default(), ratio);
        let gate = run.stream("gate");
        for seq in 0..1000 {
            gate.emitter().arrival(seq, Nanos(seq));
            finish(&gate, seq, seq, seq + 1);
        }
        let frames = run.read().len();
        assert!(expected.contains(&frames), "{frames} of 1000 at {ratio}");
    }
}
