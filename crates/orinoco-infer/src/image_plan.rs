//! Image models: bound to a session, with preprocessing and head on the host or on the GPU.

use std::path::Path;
use std::sync::Arc;

use orinoco_core::{Clock, Diagnosis, InferenceResult, Tensor, TensorDesc, TimeSpan};
use orinoco_model::{Binding, Model};
use orinoco_pipeline::{Executor, Frame, Request, RequestInputs, Stage, StageSetter, StageTimes};
use orinoco_vision::{InputSpec, Mapping, Preprocessor};

use crate::bound::{Adapter, BoundModel, Readout};
use crate::context::EngineContext;
#[cfg(feature = "cuda")]
use crate::cuda::{self, DeviceHead, DeviceImages};
use crate::engine::{Prepared, Session};
use crate::host::{HostHead, HostInput, HostParts};
use crate::plan_error::{ExecuteError, PlanError};
use crate::request::RequestAdapter;
#[cfg(feature = "cuda")]
use crate::request::RequestError;
use crate::stream::ExecutionStream;
use crate::tensor::TensorMemory;

/// Image model bound for one batch size on one lane.
pub struct ImagePlan {
    bound: Bound,
    requests: RequestAdapter,
    batch: usize,
    clock: Arc<dyn Clock>,
    /// Setter of the stage that the plan is in, once it is on a lane.
    stage: Option<StageSetter>,
}

enum Bound {
    Host(Box<BoundModel<HostImages, HostHead>>),
    #[cfg(feature = "cuda")]
    Device(Box<BoundModel<DeviceImages, DeviceHead>>),
}

impl ImagePlan {
    /// Binds `model`, an image model, to a session of `prepared` whose shapes are those of `binding`. Preprocessing and
    /// head run where the session's tensors are. A session may have them on the GPU of `context` only if [that is
    /// supported](Self::can_be_on_device).
    ///
    /// # Errors
    /// `E0204` for a model that is not an image model, or whose outputs do not fit its head; errors of the engine and
    /// of the GPU.
    pub fn new(
        model: &Model,
        binding: &Binding,
        prepared: &dyn Prepared,
        session: Box<dyn Session>,
        context: &EngineContext,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Diagnosis> {
        let bound = Bound::new(model, binding, prepared, session, context);
        let bound = bound.map_err(|why| why.diagnosis(&model.file))?;
        let requests = RequestAdapter::new(model, binding, prepared.inputs(), prepared.outputs());
        Ok(Self { bound, requests, batch: binding.batch, clock, stage: None })
    }

    /// Whether there are CUDA kernels for the preprocessing and the head of `model`: its only input is an image, in
    /// floating point or plain bytes, and neither input nor outputs are quantised.
    #[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "there are no kernels"))]
    pub fn can_be_on_device(model: &Model, binding: &Binding, inputs: &[TensorDesc]) -> bool {
        #[cfg(feature = "cuda")]
        return cuda::serves(model, binding, inputs);
        #[cfg(not(feature = "cuda"))]
        false
    }
}

impl Bound {
    /// Binds `model` where the session's tensors are.
    fn new(
        model: &Model,
        binding: &Binding,
        prepared: &dyn Prepared,
        session: Box<dyn Session>,
        context: &EngineContext,
    ) -> Result<Self, PlanError> {
        let image = model.input.image().ok_or(PlanError::TakesAudio)?;
        match session.memory() {
            TensorMemory::Host => {
                Ok(Self::Host(Box::new(on_host(model, image, binding, prepared, session)?)))
            }
            #[cfg(feature = "cuda")]
            TensorMemory::Device => {
                let device = context.device().map_err(PlanError::Gpu)?;
                Ok(Self::Device(Box::new(cuda::bind(model, image, binding, prepared, session, &device)?)))
            }
            #[cfg(not(feature = "cuda"))]
            TensorMemory::Device => unreachable!("{context:?} has no tensors on a GPU"),
        }
    }
}

fn on_host(
    model: &Model,
    image: &InputSpec,
    binding: &Binding,
    prepared: &dyn Prepared,
    session: Box<dyn Session>,
) -> Result<BoundModel<HostImages, HostHead>, PlanError> {
    let HostParts { session, input, states, head } = HostParts::new(model, binding, prepared, session)?;
    let adapter = HostImages {
        input,
        elements: image.elements(),
        preprocessor: Preprocessor::new(image.clone()),
        mappings: vec![Mapping::default(); binding.batch],
    };
    let (file, stream) = (model.file.clone(), ExecutionStream::Host);
    Ok(BoundModel { file, adapter, session, states, readout: head, stream, marks: None })
}

/// Adapter that preprocesses frames into an input in the host's memory.
struct HostImages {
    input: HostInput,
    elements: usize,
    preprocessor: Preprocessor,
    mappings: Vec<Mapping>,
}

impl Adapter<[Frame]> for HostImages {
    fn write(
        &mut self,
        frames: &[Frame],
        session: &mut dyn Session,
        _: &ExecutionStream,
    ) -> Result<u32, ExecuteError> {
        let Self { input, elements, preprocessor, mappings } = self;
        input.write(session, |tensor| {
            let places = tensor.chunks_exact_mut(*elements).zip(mappings);
            for (frame, (place, mapping)) in frames.iter().zip(places) {
                *mapping = preprocessor.run(&frame.view(), mapping, place);
            }
        });
        Ok(0)
    }

    fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }
}

impl Executor for ImagePlan {
    fn batch_max(&self) -> usize {
        self.batch
    }

    fn reads_video_memory(&self) -> bool {
        match &self.bound {
            Bound::Host(_) => false,
            #[cfg(feature = "cuda")]
            Bound::Device(bound) => bound.adapter.reads_video_memory(),
        }
    }

    fn execute(
        &mut self,
        frames: &[Frame],
        results: &mut [InferenceResult],
    ) -> Result<StageTimes, Diagnosis> {
        let count = frames.len();
        assert!((1..=self.batch).contains(&count), "{count} frames for a batch of {}", self.batch);
        match &mut self.bound {
            Bound::Host(bound) => execute(bound, &*self.clock, self.stage.as_ref(), frames, results),
            #[cfg(feature = "cuda")]
            Bound::Device(bound) => execute(bound, &*self.clock, self.stage.as_ref(), frames, results),
        }
    }

    fn show_stage(&mut self, stage: StageSetter) {
        self.stage = Some(stage);
    }

    fn answer(&mut self, request: Request) {
        let Request { inputs, answers, .. } = request;
        match inputs {
            RequestInputs::Images(images) => match self.infer_images(&images) {
                Ok(results) => answers.results(results),
                Err(why) => answers.fail(why),
            },
            RequestInputs::Tensors(tensors) => match self.infer_tensors(&tensors) {
                Ok(outputs) => answers.last(outputs),
                Err(why) => answers.fail(why),
            },
        }
    }
}

impl ImagePlan {
    fn file(&self) -> &Path {
        match &self.bound {
            Bound::Host(bound) => &bound.file,
            #[cfg(feature = "cuda")]
            Bound::Device(bound) => &bound.file,
        }
    }

    /// Infers a client's images, as many at once as fit into the batch.
    fn infer_images(&mut self, images: &[Frame]) -> Result<Vec<InferenceResult>, Diagnosis> {
        self.requests.refuse_state().map_err(|why| why.diagnosis(self.file()))?;
        let mut results = vec![InferenceResult::default(); images.len()];
        let batch = self.batch;
        for (images, results) in images.chunks(batch).zip(results.chunks_mut(batch)) {
            self.execute(images, results)?;
        }
        Ok(results)
    }

    fn infer_tensors(&mut self, tensors: &[Tensor]) -> Result<Vec<Tensor>, Diagnosis> {
        match &mut self.bound {
            Bound::Host(bound) => answer(bound, &self.requests, tensors),
            #[cfg(feature = "cuda")]
            Bound::Device(bound) => Err(RequestError::OnGpu.diagnosis(&bound.file)),
        }
    }
}

/// Runs a model on a client's tensors.
fn answer(
    bound: &mut BoundModel<HostImages, HostHead>,
    requests: &RequestAdapter,
    inputs: &[Tensor],
) -> Result<Vec<Tensor>, Diagnosis> {
    let written = requests.write(inputs, bound.session.as_mut());
    let items = written.map_err(|why| why.diagnosis(&bound.file))?;
    // The client's numbers are where a frame left the border around its image, which would not be drawn again.
    bound.adapter.mappings.fill(Mapping::default());
    bound.infer().map_err(|why| why.diagnosis(&bound.file))?;
    requests.read(items, bound.session.as_ref()).map_err(|why| why.diagnosis(&bound.file))
}

fn execute<A: Adapter<[Frame]>, R: Readout>(
    bound: &mut BoundModel<A, R>,
    clock: &dyn Clock,
    stage: Option<&StageSetter>,
    frames: &[Frame],
    results: &mut [InferenceResult],
) -> Result<StageTimes, Diagnosis> {
    let times = execute_lent(bound, clock, stage, frames, results);
    // Frames are released after an error, too.
    bound.release(frames);
    times.map_err(|why| why.diagnosis(&bound.file))
}

fn execute_lent<A: Adapter<[Frame]>, R: Readout>(
    bound: &mut BoundModel<A, R>,
    clock: &dyn Clock,
    stage: Option<&StageSetter>,
    frames: &[Frame],
    results: &mut [InferenceResult],
) -> Result<StageTimes, ExecuteError> {
    let enter = |entered| stage.iter().for_each(|stage| stage.enter(entered));
    enter(Stage::Preprocess);
    let start = clock.now();
    let before = bound.write(frames)?;
    let ready = clock.now();
    enter(Stage::Infer);
    bound.infer()?;
    let inferred = clock.now();
    enter(Stage::Postprocess);
    let after = bound.read(results)?;
    let done = clock.now();
    Ok(StageTimes {
        preprocess: TimeSpan::new(start, ready),
        infer: TimeSpan::new(ready, inferred),
        postprocess: TimeSpan::new(inferred, done),
        device: bound.device_times(inferred),
        graph_fallbacks: before + after,
    })
}
