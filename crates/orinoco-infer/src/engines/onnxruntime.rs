//! `ort-cpu` and `ort-cuda`: ONNX Runtime's providers for the CPU and for CUDA, from a library found at run time.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "cuda")]
mod device_memory;
mod errors;
mod library;
mod memory;
mod session;
mod tensors;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use orinoco_core::{Diagnosis, TensorDesc, codes};
use orinoco_model::check_file;
use ort::Error;
use ort::session::Session as OrtSession;
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};

use self::errors::why_not_read;
use self::library::{Runtime, runtime};
use self::memory::{Place, inside};
use self::session::BoundSession;
use self::tensors::{describe, symbols_of};
#[cfg(feature = "cuda")]
use crate::engine::DeviceSession;
use crate::engine::{Engine, EngineInfo, Options, Prepared, Session, check_binding};
use crate::faults::{run_failed, unreadable, unsupported};
use crate::panics::catch_panic;
#[cfg(feature = "cuda")]
use crate::scratch::Scratch;

/// Requests for memory of engines that came from a thread of which we do not know what it works for, since the process
/// began. They were served by the system.
pub fn stray_requests() -> u64 {
    memory::stray_requests()
}

/// ONNX Runtime, computing in one place.
#[derive(Debug)]
pub(crate) struct Ort {
    provider: Provider,
}

/// Where ONNX Runtime computes: its execution providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Provider {
    Cpu,
    #[cfg(feature = "cuda")]
    Cuda,
}

impl Ort {
    pub(crate) const CPU: Self = Self { provider: Provider::Cpu };
    #[cfg(feature = "cuda")]
    pub(crate) const CUDA: Self = Self { provider: Provider::Cuda };
}

impl Engine for Ort {
    fn name(&self) -> &'static str {
        match self.provider {
            Provider::Cpu => "ort-cpu",
            #[cfg(feature = "cuda")]
            Provider::Cuda => "ort-cuda",
        }
    }

    fn check(&self, options: &Options) -> Result<EngineInfo, String> {
        let runtime = runtime(options)?;
        self.provider.check(&runtime)?;
        Ok(runtime.info.clone())
    }

    fn prepare(&self, file: &Path, options: &Options) -> Result<Box<dyn Prepared>, Diagnosis> {
        check_file(file)?;
        let absent =
            |why| Diagnosis::new(&codes::ENGINE_UNAVAILABLE, self.name(), why, "see `orinoco explain E0302`");
        let runtime = runtime(options).map_err(absent)?;
        self.provider.check(&runtime).map_err(absent)?;
        let model = catch_panic(|| OrtModel::load(runtime, self.provider, file, options));
        let model = model.unwrap_or_else(|panic| Err(unreadable(file, &panic)))?;
        Ok(Box::new(model))
    }
}

#[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "only the GPU's provider asks"))]
impl Provider {
    /// Whether the library and this machine have it; if not, the reason in one sentence.
    fn check(self, runtime: &Runtime) -> Result<(), String> {
        match self {
            Self::Cpu => Ok(()),
            #[cfg(feature = "cuda")]
            Self::Cuda => cuda::check(runtime),
        }
    }

    /// Makes sessions of `builder` compute there, for tensors in `memory`, in memory of ours if `shared_scratch`.
    fn choose(
        self,
        builder: SessionBuilder,
        memory: Tensors,
        shared_scratch: bool,
    ) -> Result<SessionBuilder, Error> {
        match self {
            Self::Cpu if shared_scratch => Ok(builder.with_env_allocators()?),
            Self::Cpu => Ok(builder),
            #[cfg(feature = "cuda")]
            Self::Cuda => cuda::choose(builder, memory, shared_scratch),
        }
    }
}

/// Where a session's tensors are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tensors {
    Host,
    /// On the GPU, with what it computes in.
    #[cfg(feature = "cuda")]
    Device(cuda::Memory),
}
/// A model in ONNX Runtime.
struct OrtModel {
    runtime: Arc<Runtime>,
    provider: Provider,
    file: PathBuf,
    options: Options,
    inputs: Vec<TensorDesc>,
    outputs: Vec<TensorDesc>,
    /// The names of each input's dynamic axes; empty for the others.
    symbols: Vec<Vec<String>>,
    /// The session that told inputs and outputs. The first binding takes it, so that weights are read once.
    spare: Mutex<Option<OrtSession>>,
}

impl OrtModel {
    fn load(
        runtime: Arc<Runtime>,
        provider: Provider,
        file: &Path,
        options: &Options,
    ) -> Result<Self, Diagnosis> {
        let session = load_session(&runtime, provider, Tensors::Host, file, options, &[])?;
        Ok(Self {
            inputs: session.inputs().iter().map(describe).collect(),
            outputs: session.outputs().iter().map(describe).collect(),
            symbols: session.inputs().iter().map(symbols_of).collect(),
            spare: Mutex::new(Some(session)),
            file: file.to_owned(),
            options: options.clone(),
            runtime,
            provider,
        })
    }

    /// Another session of the model, with every axis fixed, for tensors in `memory`.
    fn load_again(&self, memory: Tensors, overrides: &[(&str, i64)]) -> Result<OrtSession, Diagnosis> {
        load_session(&self.runtime, self.provider, memory, &self.file, &self.options, overrides)
    }

    /// The sizes that `shapes` gives to named axes. ONNX Runtime plans its memory and infers the outputs' shapes with
    /// them, so they are fixed before the graph is optimised.
    fn overrides(&self, shapes: &[Vec<usize>]) -> Result<Vec<(&str, i64)>, Diagnosis> {
        let mut fixed: Vec<(&str, i64)> = Vec::new();
        for (symbol, size) in self.symbols.iter().flatten().zip(shapes.iter().flatten()) {
            let size = i64::try_from(*size).expect("check_binding keeps sizes below isize::MAX");
            match fixed.iter().find(|(name, _)| name == symbol) {
                _ if symbol.is_empty() => {}
                None => fixed.push((symbol, size)),
                Some((_, other)) if *other == size => {}
                Some((_, other)) => {
                    let cause = format!("axis `{symbol}` cannot be both {other} and {size}");
                    return Err(unsupported(&self.file, &cause));
                }
            }
        }
        Ok(fixed)
    }
}

impl Prepared for OrtModel {
    fn inputs(&self) -> &[TensorDesc] {
        &self.inputs
    }

    fn outputs(&self) -> &[TensorDesc] {
        &self.outputs
    }

    fn session(&self, shapes: &[Vec<usize>]) -> Result<Box<dyn Session>, Diagnosis> {
        check_binding(&self.file, &self.inputs, &self.outputs, shapes)?;
        let overrides = self.overrides(shapes)?;
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        let bound = catch_panic(|| {
            let session = match spare {
                Some(session) if overrides.is_empty() => session,
                _ => self.load_again(Tensors::Host, &overrides)?,
            };
            BoundSession::bind(session, self, shapes).map_err(|why| run_failed(&self.file, why.message()))
        });
        Ok(Box::new(bound.unwrap_or_else(|panic| Err(run_failed(&self.file, &panic)))?))
    }

    #[cfg(feature = "cuda")]
    fn is_on_device(&self) -> bool {
        self.provider == Provider::Cuda
    }

    #[cfg(feature = "cuda")]
    fn device_session(
        &self,
        shapes: &[Vec<usize>],
        scratch: Option<(&Scratch, &str)>,
    ) -> Result<Option<Box<dyn DeviceSession>>, Diagnosis> {
        if self.provider != Provider::Cuda {
            return Ok(None);
        }
        check_binding(&self.file, &self.inputs, &self.outputs, shapes)?;
        let overrides = self.overrides(shapes)?;
        let pool = scratch.and_then(|(scratch, model)| Some((scratch.device()?, model)));
        let bound = catch_panic(|| {
            let session = self.load_again(Tensors::Device(cuda::Memory::of(pool)), &overrides)?;
            cuda::CudaSession::bind(session, self, shapes, pool)
        });
        let bound = bound.unwrap_or_else(|panic| Err(run_failed(&self.file, &panic)))?;
        Ok(bound.map(|session| Box::new(session) as _))
    }
}

fn load_session(
    runtime: &Runtime,
    provider: Provider,
    memory: Tensors,
    file: &Path,
    options: &Options,
    overrides: &[(&str, i64)],
) -> Result<OrtSession, Diagnosis> {
    let load = || -> Result<OrtSession, Error> {
        let mut builder = OrtSession::builder(&runtime.environment)?
            .with_optimization_level(GraphOptimizationLevel::All)?
            .with_intra_threads(options.threads.max(1))?
            .with_inter_threads(1)?
            .with_parallel_execution(false)?
            // Idle workers that spin take the cores that decode and preprocess need on a small board: at two threads
            // and 30 ms between frames they cost 2.5 to 3.8 times the CPU time, and on busy cores latency as well.
            .with_intra_op_spinning(false)?
            .with_deterministic_compute(true)?;
        for (symbol, size) in overrides {
            builder = builder.with_dimension_override(symbol, *size)?;
        }
        provider.choose(builder, memory, options.shared_scratch)?.commit_from_file(file)
    };
    inside(&Place::System, load).map_err(|why| why_not_read(file, &why))
}
