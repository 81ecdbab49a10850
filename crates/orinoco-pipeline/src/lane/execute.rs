//! The execution of a batch by the plans of a lane.

use orinoco_core::{Diagnosis, InferenceResult, ModelId, Region, codes};
use orinoco_telemetry::{Event, EventSink, Stage, Stats};

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
    pub(super) fn new(plan: BoundPlan) -> Self {
        let inference = vec![InferenceResult::default(); plan.executor.batch_max()];
        Self { plan, inference }
    }

    /// Runs the plan on all pictures, as many at once as it takes, and adds what it found to the frames they are of.
    pub(super) fn execute(
        &mut self,
        pictures: &BatchInputs,
        found: &mut [Vec<ModelResult>],
        stats: &Stats,
        events: &dyn EventSink,
    ) -> Result<(), Diagnosis> {
        let batch_max = self.plan.executor.batch_max();
        let chunks = pictures.frames.chunks(batch_max).zip(pictures.positions.chunks(batch_max));
        for (frames, positions) in chunks {
            let inference = &mut self.inference[..frames.len()];
            let times = self.plan.executor.execute(frames, inference)?;
            record_times(stats, self.plan.model, frames, times);
            self.count_not_finite(&self.inference[..frames.len()], stats, events);
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

    /// Counts what was left out of `inference`, and reports the first of it.
    fn count_not_finite(&self, inference: &[InferenceResult], stats: &Stats, events: &dyn EventSink) {
        let count: u64 = inference.iter().map(|inference| inference.not_finite).sum();
        if count == 0 {
            return;
        }
        let mut of_model = stats.model(self.plan.model);
        let is_first = of_model.not_finite == 0;
        of_model.not_finite += count;
        drop(of_model);
        if is_first {
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

/// A model is charged the replay, each picture's stream its share of that.
fn record_times(stats: &Stats, model: ModelId, pictures: &[Frame], times: StageTimes) {
    let mut of_model = stats.model(model);
    of_model.pictures += pictures.len() as u64;
    of_model.replays += 1;
    of_model.preprocess.record(times.preprocess);
    of_model.infer.record(times.infer);
    of_model.postprocess.record(times.postprocess);
    of_model.graph_fallbacks += u64::from(times.graph_fallbacks);
    drop(of_model);
    let share = u32::try_from(pictures.len()).expect("a batch is small");
    for picture in pictures {
        let mut stats = stats.stream(picture.desc.stream);
        stats.record(Stage::Preprocess, times.preprocess / share);
        stats.record(Stage::Infer, times.infer / share);
        stats.record(Stage::Postprocess, times.postprocess / share);
    }
}
