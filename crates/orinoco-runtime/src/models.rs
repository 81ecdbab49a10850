//! Models of a board: described, checked against their graphs, and probed on an engine.

use std::path::Path;
use std::sync::Arc;

use orinoco_board::BoardModel;
use orinoco_config::Faults;
use orinoco_core::{Clock, Diagnosis, TensorDesc, codes};
use orinoco_infer::{
    AudioPlan, ChosenEngine, ImagePlan, Prepared, ProbeInputs, Scratch, Session, TensorMemory, choose,
};
use orinoco_model::{Binding, Model, ModelInput, Repository};
use orinoco_pipeline::Executor;
use orinoco_telemetry::{Event, EventSink};

use crate::BoardEngines;

/// Model that passed a probe inference on an engine.
pub struct LoadedModel {
    /// Name of the model on the board.
    pub name: String,
    /// Description of the model, with the board's settings applied.
    pub model: Model,
    /// Inputs, outputs and shapes of the model in its graph.
    pub binding: Binding,
    /// Chosen engine, and the engines before it in the order that refused.
    pub chosen: ChosenEngine,
}

/// Finds a model in the repository, checks it against its graph, and chooses an engine by probe inferences.
pub fn load_model(
    wanted: &BoardModel,
    engines: &BoardEngines,
    repository: &Repository,
    events: &dyn EventSink,
) -> Result<LoadedModel, Faults> {
    match repository.describe(&wanted.model)? {
        Some(model) => load_as(wanted, engines, &model.file, &|_, _| Ok(model.clone()), events),
        None => {
            let file = Path::new(&wanted.model);
            load_as(wanted, engines, file, &|inputs, outputs| Model::guess(file, inputs, outputs), events)
        }
    }
}

/// Function that describes a graph with these inputs and outputs.
pub type Describe<'a> = dyn Fn(&[TensorDesc], &[TensorDesc]) -> Result<Model, Diagnosis> + 'a;

/// Checks the ONNX `file` against its graph, with the description that `describe` returns, and chooses an engine by probe
/// inferences.
pub fn load_as(
    wanted: &BoardModel,
    engines: &BoardEngines,
    file: &Path,
    describe: &Describe<'_>,
    events: &dyn EventSink,
) -> Result<LoadedModel, Faults> {
    let resolve = |inputs: &[TensorDesc], outputs: &[TensorDesc]| -> Result<(Model, Binding), Diagnosis> {
        let model = with_settings(describe(inputs, outputs)?, wanted);
        let binding = model.bind(inputs, outputs, wanted.batch)?;
        check_batch(&model, &binding, wanted)?;
        Ok((model, binding))
    };
    let probe = |inputs: &[TensorDesc], outputs: &[TensorDesc]| {
        resolve(inputs, outputs).map(|(model, binding)| ProbeInputs::new(&model, &binding))
    };
    let mut chosen = choose(&engines.order, file, &engines.context, &probe)?;
    report(&wanted.name, &chosen, events);
    let (model, binding) = resolve(chosen.prepared.inputs(), chosen.prepared.outputs())?;
    if wanted_memory(&model, &binding, chosen.prepared.as_ref()) == TensorMemory::Device {
        chosen.drop_probe();
    }
    Ok(LoadedModel { name: wanted.name.clone(), model, binding, chosen })
}

/// Binds a plan of `loaded` for one lane, which computes in the lane's `scratch` area if there is one. The plan is on the
/// GPU if the engine computes there and our kernels support the rest of the model.
pub fn bind_plan(
    loaded: &mut LoadedModel,
    clock: Arc<dyn Clock>,
    scratch: Option<&Scratch>,
) -> Result<Box<dyn Executor>, Diagnosis> {
    let session = session_for(loaded, scratch)?;
    bind_session(loaded, session, clock)
}

/// Creates a session of `loaded` with its tensors in the memory that a plan needs.
pub fn session_for(
    loaded: &mut LoadedModel,
    scratch: Option<&Scratch>,
) -> Result<Box<dyn Session>, Diagnosis> {
    let LoadedModel { name, model, binding, chosen } = loaded;
    let wanted = wanted_memory(model, binding, chosen.prepared.as_ref());
    let session = chosen.session(wanted, scratch.map(|scratch| (scratch, name.as_str())));
    session.map_err(|why| why.diagnosis(&model.file))
}

/// Binds a plan of `loaded` with `session`, on the GPU if the session's tensors are there.
pub(crate) fn bind_session(
    loaded: &LoadedModel,
    session: Box<dyn Session>,
    clock: Arc<dyn Clock>,
) -> Result<Box<dyn Executor>, Diagnosis> {
    let LoadedModel { model, binding, chosen, .. } = loaded;
    let prepared = chosen.prepared.as_ref();
    Ok(Box::new(ImagePlan::new(model, binding, prepared, session, &chosen.context, clock)?))
}

/// Returns the memory in which a plan of `model` needs the session's tensors.
fn wanted_memory(model: &Model, binding: &Binding, prepared: &dyn Prepared) -> TensorMemory {
    match ImagePlan::can_be_on_device(model, binding, prepared.inputs()) {
        true => prepared.memory(),
        false => TensorMemory::Host,
    }
}

/// Binds a plan of `loaded`, a model of sound.
pub fn bind_audio(loaded: &mut LoadedModel) -> Result<AudioPlan, Diagnosis> {
    let session = loaded.chosen.session(TensorMemory::Host, None);
    let session = session.map_err(|why| why.diagnosis(&loaded.model.file))?;
    AudioPlan::new(&loaded.model, &loaded.binding, loaded.chosen.prepared.as_ref(), session)
}

fn with_settings(mut model: Model, wanted: &BoardModel) -> Model {
    model.head.score_threshold = wanted.score_threshold.unwrap_or(model.head.score_threshold);
    model.head.iou_threshold = wanted.iou_threshold.unwrap_or(model.head.iou_threshold);
    if let (ModelInput::Image(image), Some(resize)) = (&mut model.input, wanted.resize) {
        image.resize = resize;
    }
    model
}

fn check_batch(model: &Model, binding: &Binding, wanted: &BoardModel) -> Result<(), Diagnosis> {
    if wanted.batch == 1 || binding.batch == wanted.batch {
        return Ok(());
    }
    let cause = format!(
        "the graph fixes its batch at {}, but model `{}` asks for {}",
        binding.batch, wanted.name, wanted.batch
    );
    let next = format!("set batch = {}, or export the model with a dynamic batch", binding.batch);
    Err(Diagnosis::new(&codes::MODEL_DISAGREES, model.file.display(), cause, next))
}

fn report(name: &str, chosen: &ChosenEngine, events: &dyn EventSink) {
    for refusal in &chosen.refused {
        let (engine, why) = (refusal.engine.clone(), refusal.why.clone());
        events.emit(Event::EngineRefused { model: name.to_owned(), engine, why });
    }
    let version = chosen.version.clone();
    events.emit(Event::EngineChosen { model: name.to_owned(), engine: chosen.name, version });
}
