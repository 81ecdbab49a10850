//! Records of one frame on its whole way, as the pipeline emits them.

use std::time::Duration;

use orinoco_core::{ComputeUnit, LaneId, ModelId, Nanos, StreamId, TimeSpan};
use orinoco_telemetry::{
    LaneTelemetry, LaneWork, ModelTelemetry, Queue, QueueStep, Stage, StreamTelemetry, Telemetry,
};

/// Number of records of one frame.
pub(crate) const RECORDS: usize = 20;

/// Handles of a stream, its lane and its model.
pub(crate) struct Emitters {
    stream: StreamTelemetry,
    lane: LaneTelemetry,
    model: ModelTelemetry,
}

impl Emitters {
    pub(crate) fn new(telemetry: &Telemetry, stream: StreamId, lane: LaneId, model: ModelId) -> Self {
        Self { stream: telemetry.stream(stream), lane: telemetry.lane(lane), model: telemetry.model(model) }
    }

    /// Emits the records of frame number `seq` from its source to its sinks.
    pub(crate) fn emit_frame(&self, seq: u64) {
        let at = |step: u64| Nanos(seq * 10_000_000 + step * 1_000_000);
        let span = |from: u64, to: u64| TimeSpan::new(at(from), at(to));
        let Self { stream, lane, model } = self;

        let mut emitter = stream.emitter();
        emitter.arrival(seq, at(1));
        emitter.stage(seq, Stage::Capture, span(0, 1));
        emitter.stage(seq, Stage::Decode, span(0, 1));
        emitter.decoder_cpu(seq, Duration::from_micros(300), at(1));
        drop(emitter);
        stream.queue(seq, Queue::Ring, QueueStep::Accepted, at(1));

        lane.took(1, at(2));
        stream.emitter().stage(seq, Stage::Queue, span(1, 2));
        let stages =
            [(Stage::Preprocess, span(2, 3)), (Stage::Infer, span(3, 6)), (Stage::Postprocess, span(6, 7))];
        model.batch(lane, ComputeUnit::Cpu, [stream.id()].into_iter(), &stages);
        let mut emitter = stream.emitter();
        stages.iter().for_each(|(stage, span)| emitter.stage(seq, *stage, *span));
        drop(emitter);
        lane.finished(1, at(7));
        drop(lane.works(LaneWork::Track, at(7)));

        stream.queue(seq, Queue::Sinks, QueueStep::Accepted, at(7));
        stream.queue(seq, Queue::Sinks, QueueStep::Taken, at(8));
        let mut emitter = stream.emitter();
        emitter.stage(seq, Stage::Sink, span(7, 9));
        emitter.stage(seq, Stage::Total, span(1, 9));
        emitter.stage(seq, Stage::CaptureToResult, span(0, 9));
        emitter.result(seq, 2, seq.is_multiple_of(2).then_some(Stage::Infer), at(9));
    }
}
