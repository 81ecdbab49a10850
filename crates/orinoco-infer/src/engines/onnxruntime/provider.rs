//! ONNX Runtime's execution providers: the CPU's and CUDA's.

use std::path::Path;
#[cfg(feature = "cuda")]
use std::sync::PoisonError;

#[cfg(feature = "cuda")]
use orinoco_model::doubtful_upsample;
use ort::Error;
#[cfg(feature = "cuda")]
use ort::ep::cuda::ConvAlgorithmSearch;
#[cfg(feature = "cuda")]
use ort::ep::{ArenaExtendStrategy, CUDA, ExecutionProvider};
use ort::session::builder::SessionBuilder;

#[cfg(feature = "cuda")]
use super::device_memory::register;
use super::library::Runtime;
#[cfg(feature = "cuda")]
use crate::context::DEVICE;
use crate::context::EngineContext;
use crate::device::Device;
use crate::engine::SuiteException;
use crate::engine_error::EngineError;
#[cfg(feature = "cuda")]
use crate::engine_error::shorten;

/// Execution provider that computes a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Provider {
    Cpu,
    #[cfg(feature = "cuda")]
    Cuda,
}

/// Memory of a session's tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tensors {
    Host,
    /// Tensors on the GPU, and the memory that the session computes in.
    #[cfg(feature = "cuda")]
    Device(Memory),
}

/// Memory that a session with its tensors on the GPU computes in.
#[cfg(feature = "cuda")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// ONNX Runtime's own arena.
    Its,
    /// A pool of Orinoco's.
    Ours,
    /// A pool of Orinoco's that measures the size it needs.
    Measured,
}

#[cfg(feature = "cuda")]
const CUDA_EXCEPTIONS: [SuiteException; 2] = [
    SuiteException {
        model: "deeplabv3_mnv2_257",
        reason: "ONNX Runtime's provider for CUDA rounds the scales of an Upsample to whole numbers",
    },
    SuiteException {
        model: "silero_vad_16k_op15",
        reason: "ONNX Runtime would run some of its nodes on the CPU",
    },
];

#[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "only the GPU's provider asks"))]
impl Provider {
    /// Checks that the library and this machine support the provider. Returns its GPU, if it computes on one, or the
    /// reason in one sentence.
    pub(super) fn check(self, context: &EngineContext, runtime: &Runtime) -> Result<Option<Device>, String> {
        match self {
            Self::Cpu => Ok(None),
            #[cfg(feature = "cuda")]
            Self::Cuda => check_cuda(context, runtime).map(Some),
        }
    }

    /// Refuses a model with a node that the provider computes wrongly.
    pub(super) fn check_computed(self, file: &Path) -> Result<(), EngineError> {
        match self {
            Self::Cpu => Ok(()),
            #[cfg(feature = "cuda")]
            Self::Cuda => match doubtful_upsample(file) {
                Some(node) => Err(EngineError::Unsupported(format!(
                    "ONNX Runtime's CUDA provider rounds scales of Upsample to whole numbers, and those of `{node}` are not whole or \
                     unknown; export it with opset 11 or newer, which has Resize"
                ))),
                None => Ok(()),
            },
        }
    }

    /// Returns the models of the shared suite that it must not run.
    pub(super) fn exceptions(self) -> &'static [SuiteException] {
        match self {
            Self::Cpu => &[],
            #[cfg(feature = "cuda")]
            Self::Cuda => &CUDA_EXCEPTIONS,
        }
    }

    /// Configures `builder` to compute with this provider, for tensors in `memory`. Sessions compute in Orinoco's
    /// memory if `shared_scratch`.
    pub(super) fn choose(
        self,
        builder: SessionBuilder,
        memory: Tensors,
        shared_scratch: bool,
    ) -> Result<SessionBuilder, Error> {
        match self {
            Self::Cpu if shared_scratch => Ok(builder.with_env_allocators()?),
            Self::Cpu => Ok(builder),
            #[cfg(feature = "cuda")]
            Self::Cuda => choose_cuda(builder, memory, shared_scratch),
        }
    }
}

/// Checks that there is a GPU, and that the library was built for one. Then registers the allocator, so that sessions
/// can take the GPU's memory from Orinoco.
#[cfg(feature = "cuda")]
fn check_cuda(context: &EngineContext, runtime: &Runtime) -> Result<Device, String> {
    let device = context.device().map_err(|why| why.reason)?;
    if !CUDA::is_available().unwrap_or(false) {
        let library = runtime.info.library.as_ref();
        let library = library.map_or_else(|| "ONNX Runtime".into(), |path| path.display().to_string());
        let next = "set ort_library in the board file to a build with CUDA";
        return Err(format!("{library} was built without CUDA; {next}"));
    }
    let mut registered = runtime.gives_device_memory.lock().unwrap_or_else(PoisonError::into_inner);
    if !*registered {
        register(&runtime.environment).map_err(|why| shorten(why.message()))?;
        *registered = true;
    }
    Ok(device)
}

/// Configures sessions to compute on the GPU only: an operator that the provider does not have there is an error, not a
/// silent copy to the CPU and back. Their memory there comes from Orinoco, for tensors on the host only if
/// `shared_scratch`.
#[cfg(feature = "cuda")]
fn choose_cuda(
    builder: SessionBuilder,
    memory: Tensors,
    shared_scratch: bool,
) -> Result<SessionBuilder, Error> {
    let is_ours = match memory {
        Tensors::Host => shared_scratch,
        Tensors::Device(memory) => memory != Memory::Its,
    };
    let provider = CUDA::default()
        .with_device_id(DEVICE as i32)
        .with_arena_extend_strategy(ArenaExtendStrategy::SameAsRequested)
        // Trying every algorithm takes minutes on a small board, and memory that no memory plan contains.
        .with_conv_algorithm_search(ConvAlgorithmSearch::Heuristic)
        // The graph determines the precision of the numbers.
        .with_tf32(false)
        // ONNX Runtime's own CUDA graph needs tensors at fixed addresses, and memory that is already allocated.
        .with_cuda_graph(matches!(memory, Tensors::Device(Memory::Its | Memory::Ours)));
    let builder = if is_ours { builder.with_env_allocators()? } else { builder };
    let builder = builder.with_execution_providers([provider.build().error_on_failure()])?;
    let builder = builder.with_config_entry("session.disable_cpu_ep_fallback", "1")?;
    // By default ONNX Runtime keeps the DequantizeLinear of weights for fusions into quantised kernels, which only the CPU has, and
    // refuses the model, because they would run there. With this setting they become f32 constants when the model is loaded.
    Ok(builder.with_config_entry("session.disable_quant_qdq", "1")?)
}
