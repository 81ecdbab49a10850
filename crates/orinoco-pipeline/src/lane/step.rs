use orinoco_core::ModelId;

use crate::Executor;

/// One model of those that a stream's frames run through.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The model.
    pub model: ModelId,
    /// It looks at objects in place of whole frames.
    pub on: Option<ObjectSelection>,
}

/// A plan with the model it belongs to.
pub struct BoundPlan {
    /// The model.
    pub model: ModelId,
    /// Generation of the model: it rises when the model is replaced while streams use it.
    pub generation: u32,
    /// The model's name, for events.
    pub name: String,
    /// Inference interval: the model infers one of this many frames of a stream, beginning with the first. The lane can be
    /// given another one while it runs ([`crate::LaneEntry::set_interval`]).
    pub interval: u32,
    /// The plan.
    pub executor: Box<dyn Executor>,
    /// Called after the plan was dropped, and with it the memory that it held.
    pub dropped: Option<Notice>,
}

impl BoundPlan {
    /// Makes the first generation of a model's plan, which infers every frame.
    pub fn new(model: ModelId, name: impl Into<String>, executor: Box<dyn Executor>) -> Self {
        Self { model, generation: 0, name: name.into(), interval: 1, executor, dropped: None }
    }
}

/// Function that is called once, when this is dropped.
pub struct Notice(Option<Box<dyn FnOnce() + Send>>);

impl Notice {
    /// Makes a notice that calls `notify` when it is dropped.
    pub fn new(notify: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(notify)))
    }
}

impl Drop for Notice {
    fn drop(&mut self) {
        if let Some(notify) = self.0.take() {
            notify();
        }
    }
}

/// Selection of the objects that a model looks at: some of those that a model before it found in the same frame.
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
