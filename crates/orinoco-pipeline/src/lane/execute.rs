//! The execution of a batch by the plans of a lane.

use std::collections::BTreeMap;

use orinoco_core::{ComputeUnit, Diagnosis, InferenceResult, ModelId, Region, StreamId, codes};
use orinoco_telemetry::{Event, EventSink, LaneTelemetry, ModelCounter, ModelTelemetry, StreamTelemetry};

use crate::{Executor, Frame, ModelResult, Object, StageTimes};

/// A plan with the model it belongs to.
pub struct BoundPlan {
    /// The model.
    pub model: ModelId,
    /// The model's name, for events.
    pub name: String,
    /// The plan.
    pub executor: Box<dyn Executor>,
}

/// Which objects a model looks at: those that a model before it found in the same frame.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectSelection {
    /// The model that finds them.
    pub of: ModelId,
    /// Their classes; any if empty.
    pub classes: Vec<u32>,
    /// Shortest side, in source pixels: less shows too little.
    pub side_min: u32,
    /// The most of one frame, best first.
    pub count_max: usize,
}

/// A plan, and what it fills.
pub(super) struct LanePlan {
    pub(super) plan: BoundPlan,
    inference: Vec<InferenceResult>,
    telemetry: ModelTelemetry,
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

/// What one model looks at in a batch: reused from step to step.
#[derive(Default)]
pub(super) struct BatchInputs {
    frames: Vec<Frame>,
    positions: Vec<InputPosition>,
}

/// Where a picture comes from.
#[derive(Clone, Copy)]
struct InputPosition {
    /// Which frame of the batch.
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

    fn push(&mut self, picture: Frame, place: InputPosition) {
        self.frames.push(picture);
        self.positions.push(place);
    }

    /// All of frame number `index` of the batch.
    pub(super) fn push_whole(&mut self, index: usize, frame: &Frame) {
        self.push(frame.share(), InputPosition { frame: index, object: None, at: (0, 0) });
    }

    /// Those objects in frame number `index` of the batch that are wanted.
    pub(super) fn push_objects(
        &mut self,
        index: usize,
        frame: &Frame,
        wanted: &ObjectSelection,
        found: &[ModelResult],
    ) {
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
            if let Some((picture, part)) = frame.part(region) {
                let object = Some(Object { model: wanted.of, detection });
                self.push(picture, InputPosition { frame: index, object, at: (part.x, part.y) });
            }
        }
    }
}

impl LanePlan {
    pub(super) fn new(plan: BoundPlan, telemetry: ModelTelemetry) -> Self {
        let inference = vec![InferenceResult::default(); plan.executor.batch_max()];
        Self { plan, inference, telemetry }
    }

    /// Runs the plan on all pictures, as many at once as it takes, and adds what it found to the frames they are of.
    pub(super) fn execute(
        &mut self,
        pictures: &BatchInputs,
        found: &mut [Vec<ModelResult>],
        emitters: &Emitters,
        events: &dyn EventSink,
    ) -> Result<(), Diagnosis> {
        let batch_max = self.plan.executor.batch_max();
        let chunks = pictures.frames.chunks(batch_max).zip(pictures.positions.chunks(batch_max));
        for (frames, positions) in chunks {
            let inference = &mut self.inference[..frames.len()];
            let times = self.plan.executor.execute(frames, inference)?;
            self.emit(emitters, frames, &times);
            self.report_not_finite(&self.inference[..frames.len()], &times, events);
            let inference = &self.inference[..frames.len()];
            for (place, inference) in positions.iter().zip(inference) {
                let mut inference = inference.clone();
                inference.shift(place.at.0, place.at.1);
                let InputPosition { frame, object, .. } = *place;
                found[frame].push(ModelResult {
                    model: self.plan.model,
                    object,
                    inference,
                    ..ModelResult::default()
                });
            }
        }
        Ok(())
    }

    /// Emits one replay: the model and the lane are charged all of it, each picture's stream its share.
    fn emit(&self, emitters: &Emitters, pictures: &[Frame], times: &StageTimes) {
        let items = u32::try_from(pictures.len()).expect("a batch is small");
        let stages = times.stages();
        self.telemetry.batch(&emitters.lane, ComputeUnit::Cpu, items, &stages);
        if let Some(device) = times.device {
            self.telemetry.batch(&emitters.lane, device.unit, items, &device.stages());
        }
        if times.graph_fallbacks > 0 {
            let (counter, count) = (ModelCounter::GraphFallbacks, u64::from(times.graph_fallbacks));
            self.telemetry.count(counter, count, times.postprocess.end());
        }
        for (picture, index) in pictures.iter().zip(0..) {
            let mut emitter = emitters.stream(picture).emitter();
            for (stage, of_batch) in &stages {
                emitter.stage(picture.desc.seq, *stage, of_batch.share(index, items));
            }
        }
    }

    /// Counts what was left out of `findings`, and reports the first of it.
    fn report_not_finite(&self, inference: &[InferenceResult], times: &StageTimes, events: &dyn EventSink) {
        let count: u64 = inference.iter().map(|inference| inference.not_finite).sum();
        if count == 0 {
            return;
        }
        let before = self.telemetry.count(ModelCounter::NotFinite, count, times.postprocess.end());
        if before == 0 {
            let model = self.plan.name.clone();
            let why = not_finite(&model);
            events.emit(Event::OutputNotFinite { model, why });
        }
    }
}

/// What there is to say when [`InferenceResult::not_finite`] counts something of `model`.
pub fn not_finite(model: &str) -> Diagnosis {
    let subject = format!("outputs of {model}");
    let cause = "some values are NaN or infinite; results made from them are dropped";
    let next = "check mean and scale of its model.toml, or export it with 32-bit floats";
    Diagnosis::new(&codes::OUTPUT_NOT_FINITE, subject, cause, next)
}
