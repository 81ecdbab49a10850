use std::collections::BTreeMap;

use orinoco_core::{ModelId, StreamId};

/// Streams of a lane, and the models that they use. A model that no stream uses is dropped, and its memory with it.
#[derive(Debug, Default)]
pub struct LaneModels {
    streams: BTreeMap<StreamId, StreamModels>,
    models: BTreeMap<ModelId, ModelUse>,
}

/// A model of a lane.
#[derive(Clone, Copy, Debug)]
struct ModelUse {
    /// Number of streams that use it, and of those that are prepared.
    users: usize,
    /// The lane's plan of it; another lane's may differ.
    plan: PlanFacts,
    /// The plan that the lane takes in its place between two batches.
    next_plan: Option<PlanFacts>,
    /// Inference interval, in frames of a stream.
    interval: u32,
}

/// Models of a stream, as far as its lane has to know.
#[derive(Clone, Debug, Default)]
pub struct StreamModels {
    /// All of them, in the order of the stream's steps.
    pub models: Vec<ModelId>,
    /// Those that look at whole frames: their batches are the stream's.
    pub of_frames: Vec<ModelId>,
    /// Whether the stream's frames stay in the video hardware's memory, so that all of its models must read them there.
    pub in_video_memory: bool,
}

/// A model's plan that a stream brings to a lane, or that is to replace the lane's.
#[derive(Clone, Copy, Debug)]
pub struct PlanFacts {
    /// The model.
    pub model: ModelId,
    /// Generation of the model: see [`crate::BoundPlan::generation`].
    pub generation: u32,
    /// Maximum batch size, in frames or objects.
    pub batch_max: usize,
    /// Whether the plan reads frames in the video hardware's memory.
    pub reads_video_memory: bool,
    /// Inference interval with which it comes, in frames of a stream.
    pub interval: u32,
}

/// Reason for which a stream cannot join a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinError {
    /// The lane has ended with its last stream.
    Ended,
    /// The lane does not hold this model, and no plan of it came along.
    NoPlan(ModelId),
    /// The stream's frames are in the video hardware's memory, and the lane's plan of this model does not read them there.
    VideoMemory(ModelId),
}

/// Reason for which a lane refuses another plan of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeError {
    /// The lane has ended.
    Ended,
    /// The lane does not hold this model.
    NoModel(ModelId),
    /// Frames of streams are in the video hardware's memory, or those of one that is being prepared may be, and the new
    /// plan of this model does not read them there.
    VideoMemory(ModelId),
}

impl LaneModels {
    /// Checks that a stream with these models can join: each is there, or its plan is brought along, and reads the
    /// stream's frames where they are.
    pub fn check_join(&self, models: &StreamModels, brought: &[PlanFacts]) -> Result<(), JoinError> {
        for model in &models.models {
            let brings = brought.iter().find(|plan| plan.model == *model);
            // A plan that the lane has already stays.
            let reads = match self.models.get(model) {
                Some(used) => used.reads_video_memory(),
                None => brings.ok_or(JoinError::NoPlan(*model))?.reads_video_memory,
            };
            if models.in_video_memory && !reads {
                return Err(JoinError::VideoMemory(*model));
            }
        }
        Ok(())
    }

    /// Returns the maximum batch size, in frames, of a stream with these models: that of the lane's plans, also where another
    /// one is brought along. A plan that replaces one of them changes it when the lane takes that plan.
    pub fn batch_max(&self, models: &StreamModels, brought: &[PlanFacts]) -> usize {
        let batch_max = |model: &ModelId| match self.models.get(model) {
            Some(used) => Some(used.plan.batch_max),
            None => brought.iter().find(|plan| plan.model == *model).map(|plan| plan.batch_max),
        };
        models.of_frames.iter().filter_map(batch_max).max().unwrap_or(1)
    }

    /// Adds a stream that [`Self::check_join`] has passed.
    pub fn join(&mut self, stream: StreamId, models: StreamModels, brought: &[PlanFacts]) {
        for model in &models.models {
            let used = self.models.entry(*model).or_insert_with(|| {
                let plan = brought.iter().find(|plan| plan.model == *model);
                let plan = *plan.unwrap_or_else(|| panic!("model {model} has no plan"));
                ModelUse { users: 0, plan, next_plan: None, interval: plan.interval }
            });
            used.users += 1;
        }
        let before = self.streams.insert(stream, models);
        assert!(before.is_none(), "stream {stream} is here already");
    }

    /// Removes a stream, and gives up models that nobody uses any more.
    pub fn leave(&mut self, stream: StreamId) {
        let models = self.streams.remove(&stream).unwrap_or_else(|| panic!("stream {stream} is not here"));
        for model in models.models {
            self.release(model);
        }
        self.drop_unused();
    }

    /// Drops the models that no stream uses and nobody holds.
    pub fn drop_unused(&mut self) {
        self.models.retain(|_, used| used.users > 0);
    }

    /// Keeps a model for somebody who prepares a stream for it, until [`Self::release`]; false if it is not here.
    pub fn hold(&mut self, model: ModelId) -> bool {
        let used = self.models.get_mut(&model);
        used.map(|used| used.users += 1).is_some()
    }

    /// Ends a use of a model. Returns whether it was the last: [`Self::drop_unused`] then drops the model.
    pub fn release(&mut self, model: ModelId) -> bool {
        let used = self.models.get_mut(&model).unwrap_or_else(|| panic!("model {model} is not here"));
        used.users -= 1;
        used.users == 0
    }

    /// Whether the lane has a model.
    pub fn has_model(&self, model: ModelId) -> bool {
        self.models.contains_key(&model)
    }

    /// Returns the generation of a model: that of the plan that comes next, if there is one.
    pub fn generation(&self, model: ModelId) -> Option<u32> {
        self.models.get(&model).map(|used| used.next_plan.unwrap_or(used.plan).generation)
    }

    /// Changes the inference interval of a model; false if it is not here.
    pub fn set_interval(&mut self, model: ModelId, interval: u32) -> bool {
        self.models.get_mut(&model).map(|used| used.interval = interval).is_some()
    }

    /// Returns the inference interval of a model: the one that was set last, by itself or with a plan.
    pub fn interval(&self, model: ModelId) -> Option<u32> {
        self.models.get(&model).map(|used| used.interval)
    }

    /// Whether the lane's plan of a model reads frames where the video hardware left them.
    pub fn reads_video_memory(&self, model: ModelId) -> bool {
        self.models.get(&model).is_some_and(ModelUse::reads_video_memory)
    }

    /// Accepts another plan of a model, which the lane takes between two batches. One that was accepted before it and not
    /// taken is given up.
    pub fn exchange(&mut self, plan: PlanFacts) -> Result<(), ExchangeError> {
        let model = plan.model;
        let of_streams = self.streams.values().filter(|stream| stream.models.contains(&model));
        let (uses, needs_video_memory) = of_streams.fold((0, false), |(uses, needs), stream| {
            let uses = uses + stream.models.iter().filter(|used| **used == model).count();
            (uses, needs || stream.in_video_memory)
        });
        let used = self.models.get_mut(&model).ok_or(ExchangeError::NoModel(model))?;
        // Whoever holds it may have been told that it reads video memory, and opens a source accordingly.
        let may_need = needs_video_memory || (used.users > uses && used.reads_video_memory());
        if may_need && !plan.reads_video_memory {
            return Err(ExchangeError::VideoMemory(model));
        }
        used.next_plan = Some(plan);
        used.interval = plan.interval;
        Ok(())
    }

    /// Takes the plan that was accepted last for a model, if the model is still here: returns it, and the streams whose
    /// batches change with it, with their new maximum size.
    pub fn take_exchange(&mut self, model: ModelId) -> Option<(PlanFacts, Vec<(StreamId, usize)>)> {
        let used = self.models.get_mut(&model)?;
        let plan = used.next_plan.take()?;
        used.plan = plan;
        let changed = self.streams.iter().filter(|(_, stream)| stream.of_frames.contains(&model));
        Some((plan, changed.map(|(id, stream)| (*id, self.batch_max(stream, &[]))).collect()))
    }
}

impl ModelUse {
    /// Whether frames in the video hardware's memory are read there, also by the plan that comes next.
    fn reads_video_memory(&self) -> bool {
        self.plan.reads_video_memory && self.next_plan.is_none_or(|plan| plan.reads_video_memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: ModelId = ModelId(0);

    fn plan(batch_max: usize, reads_video_memory: bool) -> PlanFacts {
        PlanFacts { model: MODEL, generation: 0, batch_max, reads_video_memory, interval: 1 }
    }

    /// Batches that change when a plan is taken.
    fn batches(taken: Option<(PlanFacts, Vec<(StreamId, usize)>)>) -> Option<Vec<(StreamId, usize)>> {
        taken.map(|(_, batches)| batches)
    }

    /// A lane with stream 0, whose frames are in video memory or not.
    fn lane(in_video_memory: bool) -> LaneModels {
        let models = StreamModels { models: vec![MODEL], of_frames: vec![MODEL], in_video_memory };
        let mut lane = LaneModels::default();
        lane.check_join(&models, &[plan(1, true)]).expect("its plan reads them");
        lane.join(StreamId(0), models, &[plan(1, true)]);
        lane
    }

    #[test]
    fn a_plan_that_cannot_read_the_frames_of_a_stream_is_refused() {
        let mut of_video = lane(true);
        assert_eq!(of_video.exchange(plan(1, false)), Err(ExchangeError::VideoMemory(MODEL)));
        assert_eq!(of_video.exchange(plan(1, true)), Ok(()));
        let mut of_host = lane(false);
        assert!(of_host.hold(MODEL));
        assert_eq!(of_host.exchange(plan(1, false)), Err(ExchangeError::VideoMemory(MODEL)), "it is held");
        of_host.release(MODEL);
        assert_eq!(of_host.exchange(plan(1, false)), Ok(()));
        assert!(!of_host.reads_video_memory(MODEL), "a stream that joins now meets the new plan");
        let other = PlanFacts { model: ModelId(1), ..plan(1, false) };
        assert_eq!(of_host.exchange(other), Err(ExchangeError::NoModel(ModelId(1))));
    }

    #[test]
    fn a_stream_whose_frames_a_plan_cannot_read_does_not_join() {
        let models = StreamModels { models: vec![MODEL], of_frames: vec![MODEL], in_video_memory: true };
        let refused = LaneModels::default().check_join(&models, &[plan(1, false)]);
        assert_eq!(refused, Err(JoinError::VideoMemory(MODEL)));
        assert_eq!(LaneModels::default().check_join(&models, &[]), Err(JoinError::NoPlan(MODEL)));
    }

    #[test]
    fn a_model_that_was_held_is_dropped_after_its_last_use() {
        let mut lane = lane(false);
        assert!(lane.hold(MODEL) && lane.hold(MODEL));
        lane.leave(StreamId(0));
        assert!(!lane.release(MODEL) && lane.has_model(MODEL), "it is held once more");
        assert!(lane.release(MODEL) && lane.hold(MODEL), "it is held again before it is dropped");
        lane.drop_unused();
        assert!(lane.has_model(MODEL) && lane.release(MODEL));
        lane.drop_unused();
        assert!(!lane.has_model(MODEL));
    }

    #[test]
    fn a_stream_that_joins_takes_its_batch_size_from_the_plans_of_its_lane() {
        let mut lane = LaneModels::default();
        let models = StreamModels { models: vec![MODEL], of_frames: vec![MODEL], in_video_memory: false };
        assert_eq!(lane.batch_max(&models, &[plan(4, true)]), 4, "it brings the plan");
        lane.join(StreamId(0), models.clone(), &[plan(4, true)]);
        let next = PlanFacts { generation: 1, ..plan(8, true) };
        lane.exchange(next).expect("it is here");
        assert_eq!(lane.batch_max(&models, &[plan(2, true)]), 4, "what it brings is not used");
        assert_eq!(lane.generation(MODEL), Some(1), "of the plan that comes next");
        assert_eq!(batches(lane.take_exchange(MODEL)), Some(vec![(StreamId(0), 8)]));
        assert_eq!((lane.batch_max(&models, &[]), lane.generation(MODEL)), (8, Some(1)));
        assert_eq!((lane.batch_max(&StreamModels::default(), &[]), lane.generation(ModelId(1))), (1, None));
    }

    #[test]
    fn the_interval_is_the_one_that_was_set_last() {
        let mut lane = lane(false);
        assert_eq!((lane.interval(MODEL), lane.interval(ModelId(1))), (Some(1), None));
        assert!(lane.set_interval(MODEL, 3) && !lane.set_interval(ModelId(1), 3));
        let models = StreamModels { models: vec![MODEL], of_frames: vec![MODEL], in_video_memory: false };
        lane.join(StreamId(1), models, &[plan(1, true)]);
        assert_eq!(lane.interval(MODEL), Some(3), "the model is here already");
        lane.exchange(PlanFacts { interval: 2, ..plan(1, true) }).expect("it is here");
        assert_eq!(lane.interval(MODEL), Some(2));
        lane.set_interval(MODEL, 4);
        lane.take_exchange(MODEL).expect("it was accepted");
        assert_eq!(lane.interval(MODEL), Some(4), "it was set after the plan came");
    }

    #[test]
    fn batches_are_those_of_the_plan_that_came_last() {
        let mut lane = lane(false);
        lane.exchange(plan(8, true)).expect("it is here");
        lane.exchange(plan(4, true)).expect("it is here");
        assert_eq!(batches(lane.take_exchange(MODEL)), Some(vec![(StreamId(0), 4)]));
        assert_eq!(batches(lane.take_exchange(MODEL)), None, "it was taken");
        lane.exchange(plan(2, true)).expect("it is here");
        lane.leave(StreamId(0));
        assert_eq!(batches(lane.take_exchange(MODEL)), None, "the model was given up");
    }
}
