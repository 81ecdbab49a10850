//! `ort-cpu` and `ort-cuda`: ONNX Runtime's providers for the CPU and for CUDA, from a library found at run time.

#[cfg(feature = "cuda")]
mod device_memory;
#[cfg(feature = "cuda")]
mod device_session;
mod errors;
mod graph;
mod library;
mod memory;
mod process;
mod provider;
mod runtime;
mod session;
mod spare;
mod tensors;

use std::path::Path;
use std::sync::Arc;

use orinoco_core::{ComputeUnit, TensorDesc};
use orinoco_model::check_file;
use ort::Error;
use ort::session::Session as OrtSession;
use ort::session::builder::GraphOptimizationLevel;

#[cfg(feature = "cuda")]
use self::device_session::CudaSession;
use self::errors::read_error;
use self::graph::GraphDesc;
use self::library::Runtime;
pub use self::memory::stray_requests;
use self::process::AllocationTarget;
#[cfg(feature = "cuda")]
use self::provider::Memory;
use self::provider::{Provider, Tensors};
use self::runtime::runtime;
use self::session::BoundSession;
use self::spare::{Overrides, SpareSession};
use crate::context::{EngineContext, Options};
use crate::device::Device;
use crate::engine::{Engine, EngineInfo, Prepared, Session, SessionSpec, SuiteException, check_binding};
use crate::engine_error::EngineError;
use crate::panics::catch_panic;
use crate::tensor::TensorMemory;

/// ONNX Runtime with one execution provider.
#[derive(Debug)]
pub(crate) struct OnnxRuntime {
    provider: Provider,
}

/// `ort-cpu`.
pub(super) const CPU: OnnxRuntime = OnnxRuntime { provider: Provider::Cpu };
/// `ort-cuda`.
#[cfg(feature = "cuda")]
pub(super) const CUDA: OnnxRuntime = OnnxRuntime { provider: Provider::Cuda };

impl Engine for OnnxRuntime {
    fn name(&self) -> &'static str {
        match self.provider {
            Provider::Cpu => "ort-cpu",
            #[cfg(feature = "cuda")]
            Provider::Cuda => "ort-cuda",
        }
    }

    fn compute_unit(&self) -> ComputeUnit {
        match self.provider {
            Provider::Cpu => ComputeUnit::Cpu,
            #[cfg(feature = "cuda")]
            Provider::Cuda => ComputeUnit::Gpu,
        }
    }

    fn uses_onnx_runtime(&self) -> bool {
        true
    }

    fn computes_in_scratch(&self) -> bool {
        true
    }

    fn check(&self, context: &EngineContext) -> Result<EngineInfo, String> {
        let runtime = runtime(context)?;
        self.provider.check(context, &runtime)?;
        Ok(runtime.info.clone())
    }

    fn prepare(&self, file: &Path, context: &EngineContext) -> Result<Box<dyn Prepared>, EngineError> {
        check_file(file)?;
        self.provider.check_computed(file)?;
        let absent = |why| EngineError::Unavailable { engine: self.name(), why };
        let runtime = runtime(context).map_err(absent)?;
        let device = self.provider.check(context, &runtime).map_err(absent)?;
        let loader = Loader { runtime, provider: self.provider, device, options: context.options().clone() };
        let model = catch_panic(|| OrtModel::load(loader, file));
        let model = model.unwrap_or_else(|panic| Err(EngineError::Unreadable(panic)))?;
        Ok(Box::new(model))
    }

    fn exceptions(&self) -> &'static [SuiteException] {
        self.provider.exceptions()
    }
}

/// Loader of a model's sessions, with their settings.
struct Loader {
    runtime: Arc<Runtime>,
    provider: Provider,
    /// GPU that the provider computes on; `None` for the CPU.
    device: Option<Device>,
    options: Options,
}

impl Loader {
    fn load(&self, file: &Path, memory: Tensors, overrides: &Overrides) -> Result<OrtSession, EngineError> {
        let load = |keeps_products: bool| -> Result<OrtSession, Error> {
            let mut builder = OrtSession::builder(&self.runtime.environment)?
                .with_optimization_level(GraphOptimizationLevel::All)?
                .with_intra_threads(self.options.threads.max(1))?
                .with_inter_threads(1)?
                .with_parallel_execution(false)?
                // On a small board, spinning idle workers take the cores that decoding and preprocessing need: with two
                // threads and 30 ms between frames they took 2.5 to 3.8 times the CPU time, and increased the latency
                // on busy cores.
                .with_intra_op_spinning(false)?
                .with_deterministic_compute(true)?;
            if keeps_products {
                builder = builder.with_config_entry("session.x64quantprecision", "1")?;
            }
            for (symbol, size) in overrides {
                builder = builder.with_dimension_override(symbol, *size)?;
            }
            self.provider.choose(builder, memory, self.options.shared_scratch)?.commit_from_file(file)
        };
        let load = || {
            // ONNX Runtime 1.31 refuses some models so ("Attempt to replace the existing tensor"). They run with the kernels that are usual
            // on this processor.
            let kept = saturates_products().then(|| load(true)).and_then(Result::ok);
            kept.map_or_else(|| load(false), Ok)
        };
        #[cfg(feature = "cuda")]
        let load = || match &self.device {
            Some(device) => device_memory::inside(&device_memory::DevicePlace::kept(device), load),
            None => load(),
        };
        memory::inside(&AllocationTarget::System, load).map_err(|why| read_error(&why))
    }
}

/// Whether ONNX Runtime's usual kernels add products of 8-bit numbers in pairs of 16 bits on this processor, which saturate: on x86-64
/// without 8-bit dot products (VNNI). A detector's AP fell from 0.232 to 0.010 in silence. The setting `session.x64quantprecision`
/// chooses slower kernels that do not saturate.
fn saturates_products() -> bool {
    #[cfg(target_arch = "x86_64")]
    return !is_x86_feature_detected!("avx512vnni") && !is_x86_feature_detected!("avxvnni");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Model that ONNX Runtime has read.
struct OrtModel {
    loader: Loader,
    graph: GraphDesc,
    /// Loaded session without bindings; at first the one from which inputs and outputs were read.
    spare: SpareSession,
}

impl OrtModel {
    fn load(loader: Loader, file: &Path) -> Result<Self, EngineError> {
        let session = loader.load(file, Tensors::Host, &Overrides::new())?;
        Ok(Self { graph: GraphDesc::of(file, &session), spare: SpareSession::new(session), loader })
    }
}

impl Prepared for OrtModel {
    fn inputs(&self) -> &[TensorDesc] {
        &self.graph.inputs
    }

    fn outputs(&self) -> &[TensorDesc] {
        &self.graph.outputs
    }

    fn memory(&self) -> TensorMemory {
        match self.loader.device {
            Some(_) => TensorMemory::Device,
            None => TensorMemory::Host,
        }
    }

    fn session(&self, wanted: &SessionSpec<'_>) -> Result<Box<dyn Session>, EngineError> {
        check_binding(&self.graph.inputs, &self.graph.outputs, wanted.shapes)?;
        let bound = catch_panic(|| {
            #[cfg(feature = "cuda")]
            if wanted.memory == TensorMemory::Device
                && let Some(session) = self.on_device(wanted)?
            {
                return Ok(Box::new(session) as Box<dyn Session>);
            }
            Ok(Box::new(self.on_host(wanted)?) as Box<dyn Session>)
        });
        bound.unwrap_or_else(|panic| Err(EngineError::run(panic)))
    }
}

impl OrtModel {
    fn on_host(&self, wanted: &SessionSpec<'_>) -> Result<BoundSession, EngineError> {
        let overrides = self.graph.overrides(wanted.shapes)?;
        let session = match self.spare.take(&overrides) {
            Some(session) => session,
            None => self.loader.load(&self.graph.file, Tensors::Host, &overrides)?,
        };
        let Loader { device, options, .. } = &self.loader;
        let home = (self.spare.clone(), overrides);
        let scratch = wanted.scratch.filter(|_| options.shared_scratch);
        let bound = BoundSession::bind(session, home, &self.graph, wanted.shapes, device.as_ref(), scratch);
        bound.map_err(|why| EngineError::run(why.message()))
    }

    /// Binds a session whose tensors are on the GPU; `None` if the engine computes elsewhere, or an output has no fixed
    /// shape.
    #[cfg(feature = "cuda")]
    fn on_device(&self, wanted: &SessionSpec<'_>) -> Result<Option<CudaSession>, EngineError> {
        let Some(device) = &self.loader.device else { return Ok(None) };
        let overrides = self.graph.overrides(wanted.shapes)?;
        let pool = wanted.scratch.and_then(|(scratch, model)| Some((scratch.device()?, model)));
        let memory = match pool {
            None => Memory::Its,
            Some((pool, _)) if pool.is_measuring() => Memory::Measured,
            Some(_) => Memory::Ours,
        };
        let session = self.loader.load(&self.graph.file, Tensors::Device(memory), &overrides)?;
        CudaSession::bind(session, &self.graph, wanted.shapes, device, pool)
    }
}
