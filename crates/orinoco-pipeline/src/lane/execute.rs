//! Execution of a batch by the plans of a lane.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use orinoco_core::{
    Clock, ComputeUnit, Diagnosis, InferenceResult, Nanos, Region, StreamId, TimeSpan, codes,
};
use orinoco_telemetry::{
    Event, EventSink, LaneTelemetry, ModelCounter, ModelTelemetry, Stage, StageSetter, StreamTelemetry,
};

use super::batch::Batch;
use super::batches::{BatchStep, ExecutionEnd};
use super::step::{BoundPlan, ObjectSelection, Step};
use crate::mux::SuspensionError;
use crate::request::Request;
use crate::suspension::Suspender;
use crate::{Executed, Frame, ModelResult, Mux, Object, StageTimes};

/// Failure of a model.
pub(super) struct Failure {
    /// `Failed` if it tried, `Unanswered` if no answer came and it has no other way.
    pub(super) end: ExecutionEnd,
    /// The model's name.
    pub(super) model: String,
    pub(super) why: Diagnosis,
}

/// Plan, and the results that it fills.
pub(super) struct LanePlan {
    pub(super) plan: BoundPlan,
    inference: Vec<InferenceResult>,
    telemetry: ModelTelemetry,
    stage: StageSetter,
}

/// Handles by which a lane emits what happens to itself and to its streams.
pub(super) struct Emitters {
    pub(super) lane: LaneTelemetry,
    pub(super) streams: BTreeMap<StreamId, StreamTelemetry>,
}

impl Emitters {
    pub(super) fn new(lane: LaneTelemetry) -> Self {
        Self { lane, streams: BTreeMap::new() }
    }

    /// The handle of a frame's stream.
    pub(super) fn stream(&self, frame: &Frame) -> &StreamTelemetry {
        self.streams.get(&frame.desc.stream).expect("a stream joins before its frames")
    }
}

/// Inputs of one model in a batch: frames, or crops of them. Reused from step to step.
#[derive(Default)]
pub(super) struct BatchInputs {
    frames: Vec<Frame>,
    positions: Vec<InputPosition>,
}

/// Origin of an input.
#[derive(Clone, Copy)]
struct InputPosition {
    /// Index of its frame in the batch.
    frame: usize,
    object: Option<Object>,
    /// Its left top corner in the frame.
    at: (u32, u32),
}

impl BatchInputs {
    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.positions.clear();
    }

    /// Returns the number of images.
    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Collects the images that a step infers in a batch.
    pub(super) fn collect(&mut self, step: &Step, at: BatchStep<'_>, batch: &Batch) {
        self.clear();
        for (index, frame) in batch.frames.iter().enumerate() {
            match &step.on {
                _ if !at.infers(index) => {}
                None => self.push_whole(index, frame),
                Some(wanted) => self.push_objects(index, frame, wanted, &batch.found[index]),
            }
        }
    }

    fn push(&mut self, input: Frame, place: InputPosition) {
        self.frames.push(input);
        self.positions.push(place);
    }

    /// All of frame number `index` of the batch.
    fn push_whole(&mut self, index: usize, frame: &Frame) {
        self.push(frame.share(), InputPosition { frame: index, object: None, at: (0, 0) });
    }

    /// Those objects in frame number `index` of the batch that are wanted.
    fn push_objects(&mut self, index: usize, frame: &Frame, wanted: &ObjectSelection, found: &[ModelResult]) {
        let Some(found) = found.iter().find(|found| found.model == wanted.of && found.object.is_none())
        else {
            return;
        };
        let detections = found.inference.detections.iter().enumerate();
        let of_class =
            detections.filter(|(_, d)| wanted.classes.is_empty() || wanted.classes.contains(&d.class_id));
        let regions = of_class.filter_map(|(detection, d)| {
            let region = Region::of(&d.bounds, frame.desc.width, frame.desc.height)?;
            (region.width.min(region.height) >= wanted.side_min).then_some((detection, region))
        });
        for (detection, region) in regions.take(wanted.count_max) {
            if let Some((input, part)) = frame.part(region) {
                let object = Some(Object { model: wanted.of, detection });
                self.push(input, InputPosition { frame: index, object, at: (part.x, part.y) });
            }
        }
    }
}

impl LanePlan {
    pub(super) fn new(mut plan: BoundPlan, lane: &LaneTelemetry) -> Self {
        let telemetry = lane.run().model(plan.model);
        let inference = vec![InferenceResult::default(); plan.executor.batch_max()];
        let stage = lane.current_stage().of(plan.model);
        plan.executor.show_stage(stage.clone());
        Self { plan, inference, telemetry, stage }
    }

    /// Executes a client's request.
    pub(super) fn answer(&mut self, request: Request, lane: &LaneTelemetry, clock: &dyn Clock) {
        let start = clock.now();
        lane.took_request(start);
        self.stage.enter(Stage::Infer);
        self.plan.executor.answer(request);
        self.telemetry.request(lane, TimeSpan::new(start, clock.now()));
    }

    /// Runs the plan on these inputs, and adds what it found to the frames they are of, or suspends them. The batch may wait
    /// for answers until `wait_end`, if it has waited before.
    #[expect(clippy::too_many_arguments, reason = "what a lane lends to a plan")]
    pub(super) fn execute(
        &mut self,
        inputs: &BatchInputs,
        range: Range<usize>,
        batch: &mut Batch,
        wait_end: Option<Nanos>,
        mux: &Arc<Mux>,
        emitters: &Emitters,
        events: &dyn EventSink,
    ) -> Result<ExecutionEnd, Diagnosis> {
        let frames = &inputs.frames[range.clone()];
        let inference = &mut self.inference[..frames.len()];
        let mut suspender = Suspender::new(mux, wait_end);
        self.stage.enter(Stage::Infer);
        let executed = self.plan.executor.begin(frames, inference, &mut suspender);
        match (executed, suspender.take()) {
            (Ok(Executed::Suspended(wait)), Some(ticket)) => Ok(ExecutionEnd::Suspended { ticket, wait }),
            (executed, unused) => {
                unused.into_iter().for_each(|ticket| mux.forget(ticket));
                Ok(self.add_executed(executed?, range, inputs, batch, emitters, events))
            }
        }
    }

    /// Runs the plan, which has begun a step that was suspended and has failed, in another way on the inputs that waited.
    /// `None`: it has no other way.
    pub(super) fn fall_back(
        &mut self,
        why: &SuspensionError,
        inputs: &BatchInputs,
        range: Range<usize>,
        batch: &mut Batch,
        emitters: &Emitters,
        events: &dyn EventSink,
    ) -> Option<Result<ExecutionEnd, Diagnosis>> {
        let results = &mut self.inference[..range.len()];
        self.stage.enter(Stage::Infer);
        let executed = self.plan.executor.fall_back(&inputs.frames[range.clone()], results, why)?;
        Some(executed.map(|executed| self.add_executed(executed, range, inputs, batch, emitters, events)))
    }

    /// Returns the failure of an execution.
    pub(super) fn failure(&self, why: Diagnosis) -> Failure {
        Failure { end: ExecutionEnd::Failed, model: self.plan.name.clone(), why }
    }

    /// Adds the results of inputs that were executed here, or none if they were skipped.
    fn add_executed(
        &self,
        executed: Executed,
        range: Range<usize>,
        inputs: &BatchInputs,
        batch: &mut Batch,
        emitters: &Emitters,
        events: &dyn EventSink,
    ) -> ExecutionEnd {
        let times = match executed {
            Executed::Done(times) => times,
            Executed::Skipped => return ExecutionEnd::Passed,
            Executed::Suspended(_) => {
                panic!("{} suspended a step without a place for its answer", self.plan.name)
            }
        };
        let frames = &inputs.frames[range.clone()];
        batch.add_times(&times);
        self.emit(emitters, frames, &times);
        self.report_not_finite(&self.inference[..frames.len()], times.postprocess.end(), events);
        let inference = self.inference[..frames.len()].iter().cloned();
        self.add_findings(&inputs.positions[range], inference, batch);
        ExecutionEnd::Executed
    }

    /// Adds the results that a suspended step has waited for, in the span `waited`. There are as many as it has inputs.
    ///
    /// That span, from the suspension until the lane took the answer, is the step's inference: the way there and back is in
    /// it, and what the lane did before it came to the answer. The model is charged all of it, each input's stream its
    /// share, and the lane nothing, because it worked on other batches meanwhile.
    #[expect(clippy::too_many_arguments, reason = "what a lane lends to a plan, and the answer")]
    pub(super) fn add_late(
        &self,
        inputs: &BatchInputs,
        range: Range<usize>,
        inference: Vec<InferenceResult>,
        waited: TimeSpan,
        batch: &mut Batch,
        emitters: &Emitters,
        events: &dyn EventSink,
    ) {
        let stages = [(Stage::Infer, waited)];
        let frames = &inputs.frames[range.clone()];
        self.telemetry.late_batch(&emitters.lane, streams(frames), &stages);
        emit_shares(emitters, frames, &stages);
        self.report_not_finite(&inference, waited.end(), events);
        self.add_findings(&inputs.positions[range], inference, batch);
    }

    fn add_findings(
        &self,
        positions: &[InputPosition],
        inference: impl IntoIterator<Item = InferenceResult>,
        batch: &mut Batch,
    ) {
        for (place, mut inference) in positions.iter().zip(inference) {
            inference.shift(place.at.0, place.at.1);
            let InputPosition { frame, object, .. } = *place;
            batch.found[frame].push(ModelResult {
                model: self.plan.model,
                object,
                inference,
                ..ModelResult::default()
            });
        }
    }

    /// Emits the records of one execution: the model and the lane are charged all of it, each input's stream its share.
    fn emit(&self, emitters: &Emitters, inputs: &[Frame], times: &StageTimes) {
        self.telemetry.batch(&emitters.lane, ComputeUnit::Cpu, streams(inputs), &times.stages());
        if let Some(device) = times.device {
            self.telemetry.batch(&emitters.lane, device.unit, streams(inputs), &device.stages());
        }
        if times.graph_fallbacks > 0 {
            let (counter, count) = (ModelCounter::GraphFallbacks, u64::from(times.graph_fallbacks));
            self.telemetry.count(counter, count, times.postprocess.end());
        }
        emit_shares(emitters, inputs, &times.stages());
    }

    /// Counts the values that are not finite, and reports the first of them.
    fn report_not_finite(&self, inference: &[InferenceResult], at: Nanos, events: &dyn EventSink) {
        let count: u64 = inference.iter().map(|inference| inference.not_finite).sum();
        if count == 0 {
            return;
        }
        let before = self.telemetry.count(ModelCounter::NotFinite, count, at);
        if before == 0 {
            let model = self.plan.name.clone();
            let why = not_finite(&model);
            events.emit(Event::OutputNotFinite { model, why });
        }
    }
}

/// Emits each image's share of the stages to its stream.
fn emit_shares(emitters: &Emitters, inputs: &[Frame], stages: &[(Stage, TimeSpan)]) {
    let items = u32::try_from(inputs.len()).expect("a batch is small");
    for (input, index) in inputs.iter().zip(0..) {
        let mut emitter = emitters.stream(input).emitter();
        for (stage, of_batch) in stages {
            emitter.stage(input.desc.seq, *stage, of_batch.share(index, items));
        }
    }
}

/// The stream of each image.
fn streams(inputs: &[Frame]) -> impl ExactSizeIterator<Item = StreamId> {
    inputs.iter().map(|input| input.desc.stream)
}

/// Returns the fault that is reported when [`InferenceResult::not_finite`] counts something of `model`.
pub fn not_finite(model: &str) -> Diagnosis {
    let subject = format!("outputs of {model}");
    let cause = "some values are NaN or infinite; results made from them are dropped";
    let next = "check mean and scale of its model.toml, or export it with 32-bit floats";
    Diagnosis::new(&codes::OUTPUT_NOT_FINITE, subject, cause, next)
}
