//! `ort-cpu` and `ort-cuda`: ONNX Runtime's providers for the CPU and for CUDA, from a library found at run time.
//!
//! The library is looked for once per process, in a fixed order, and the first that is there is used or reported:
//! an explicit choice that cannot be loaded is never replaced by another library in silence.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "cuda")]
mod device_memory;
mod memory;

use std::error::Error as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ::ort::LoadDynamicError;
use ::ort::environment::Environment;
use ::ort::logging::LogLevel;
use ::ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ::ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use ::ort::session::{IoBinding, Session as OrtSession, SessionOutputs};
use ::ort::value::{DynTensor, DynTensorValueType, Outlet, TensorElementType, ValueType};
use ::ort::{Error, ErrorCode};
use orinoco_core::{Diagnosis, Dim, ElementType, TensorDesc, codes};
use orinoco_model::check_file;

use self::memory::{Place, inside};
#[cfg(feature = "cuda")]
use crate::engine::DeviceSession;
use crate::engine::{
    Engine, EngineInfo, NOT_ONNX, Options, Prepared, Session, TensorView, TensorViewMut, catch_panic,
    check_binding, run_failed, shorten, unreadable, unsupported,
};
use crate::{Cache, NoCache, Scratch};

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

/// The loaded library. ONNX Runtime allows one environment per process, and `ort` one library.
struct Runtime {
    environment: Environment,
    info: EngineInfo,
}

/// The runtime of this process, loaded on first use. A failure is not kept: the library may be there next time.
fn runtime(options: &Options) -> Result<Arc<Runtime>, String> {
    static RUNTIME: Mutex<Option<Arc<Runtime>>> = Mutex::new(None);
    let mut slot = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = slot.as_ref() {
        check_same_library(&runtime.info, options)?;
        return Ok(Arc::clone(runtime));
    }
    let search = Search::of_process(options);
    let runtime = catch_panic(|| load_runtime(&search))??;
    Ok(Arc::clone(slot.insert(Arc::new(runtime))))
}

fn check_same_library(loaded: &EngineInfo, options: &Options) -> Result<(), String> {
    let (Some(wanted), Some(loaded)) = (&options.ort_library, &loaded.library) else { return Ok(()) };
    if wanted.canonicalize().is_ok_and(|wanted| wanted == *loaded) {
        return Ok(());
    }
    let (wanted, loaded) = (wanted.display(), loaded.display());
    Err(format!("{wanted} cannot be used, because this process has already loaded {loaded}"))
}

fn load_runtime(search: &Search) -> Result<Runtime, String> {
    let mut builder = None;
    for library in search.candidates()? {
        match ::ort::init_from(&library) {
            Ok(found) => {
                builder = Some((found, library));
                break;
            }
            // A bare name that the system's loader does not know is not a fault yet.
            Err(LoadDynamicError::Dlopen { .. }) if !library.is_absolute() => {}
            Err(why) => return Err(why_not_loaded(&library, &why)),
        }
    }
    let (builder, library) = builder.ok_or_else(|| search.nothing_found())?;
    // This says no to telemetry on Windows. On Linux only the environment does: programs call
    // `orinoco_runtime::set_up_process` first.
    let environment = builder.with_name("orinoco").with_telemetry(false).build();
    let environment = environment.map_err(|why| shorten(why.message()))?;
    // What it would print to standard error comes back as an error, and is reported once.
    environment.set_log_level(LogLevel::Fatal);
    // Only sessions that ask for it use it.
    memory::register(&environment).map_err(|why| shorten(why.message()))?;
    let (library, version) = identify(library);
    Ok(Runtime { environment, info: EngineInfo { version, library: Some(library) } })
}

fn why_not_loaded(library: &Path, why: &LoadDynamicError) -> String {
    let library = library.display();
    match why {
        // `ort`'s feature `api-20` makes 1.20 the oldest: it is the first with everything used here, and what
        // JetPack 6 has builds of.
        LoadDynamicError::BadVersion { version_str, .. } => {
            format!(
                "{library} is ONNX Runtime {version_str}, but 1.{} or newer is needed",
                ::ort::MINOR_VERSION
            )
        }
        LoadDynamicError::MissingApi { .. } => format!("{library} is not ONNX Runtime"),
        LoadDynamicError::InvalidVersionString => format!("{library} does not tell its version"),
        LoadDynamicError::Dlopen { error, .. } => {
            let reason = error.source().map_or_else(|| error.to_string(), |source| source.to_string());
            format!(
                "{library} cannot be loaded: {}",
                shorten(reason.trim_start_matches(&format!("{library}: ")))
            )
        }
    }
}

/// The real path and full version of the library that was just loaded. The library tells its version only before it
/// is loaded, and only as a whole number; its file name has it in full.
fn identify(library: PathBuf) -> (PathBuf, String) {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut mapped = maps.lines().filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])));
    let real = match library.canonicalize() {
        Ok(real) if library.is_absolute() => real,
        _ => mapped.find(|path| is_library(path)).unwrap_or(library),
    };
    let named =
        real.to_str().and_then(|path| path.rsplit_once(".so.")).map(|(_, version)| version.to_owned());
    let version = named.filter(|version| version.contains('.')).unwrap_or_else(|| {
        let minor = ::ort::util::probe(&real).unwrap_or(::ort::MINOR_VERSION);
        format!("1.{minor}")
    });
    (real, version)
}

const LIBRARY: &str = "libonnxruntime.so";
/// Folder of the libraries in the cache.
const CACHED: &str = "onnxruntime";

fn is_library(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(LIBRARY))
}

/// Where the library may be.
#[derive(Debug, Default)]
struct Search {
    option: Option<PathBuf>,
    variable: Option<PathBuf>,
    cache: Option<Result<Cache, NoCache>>,
}

impl Search {
    fn of_process(options: &Options) -> Self {
        let variable =
            |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self {
            option: options.ort_library.clone(),
            variable: variable("ORT_DYLIB_PATH"),
            cache: Some(Cache::of_process()),
        }
    }

    /// What to try to load, in order: one path, or names for the system's loader.
    fn candidates(&self) -> Result<Vec<PathBuf>, String> {
        let named = self.option.as_ref().map(|path| (path, "ort_library"));
        let named = named.or(self.variable.as_ref().map(|path| (path, "ORT_DYLIB_PATH")));
        if let Some((path, origin)) = named {
            let real = path.canonicalize();
            return Ok(vec![real.map_err(|why| format!("{}, named by {origin}: {why}", path.display()))?]);
        }
        if let Ok(Some(cached)) = self.cached() {
            return Ok(vec![cached]);
        }
        // Debian's runtime package has only the name with the major version.
        Ok(vec![PathBuf::from(LIBRARY), PathBuf::from(format!("{LIBRARY}.1"))])
    }

    /// The newest library of the cache, with all that lies next to it: it loads its providers from there.
    fn cached(&self) -> Result<Option<PathBuf>, String> {
        let Some(cache) = &self.cache else { return Ok(None) };
        let cache = cache.as_ref().map_err(NoCache::to_string)?;
        let Some(library) = newest_cached(&cache.folder().join(CACHED)) else { return Ok(None) };
        let folder = library.parent().unwrap_or(cache.folder());
        for entry in fs::read_dir(folder).map_err(|why| format!("{}: {why}", folder.display()))?.flatten() {
            cache.check(&entry.path())?;
        }
        Ok(Some(library))
    }

    fn nothing_found(&self) -> String {
        let place = match &self.cache {
            Some(Ok(cache)) => cache.folder().join(CACHED).display().to_string(),
            _ => "the user's cache".to_owned(),
        };
        let not_used = self.cached().err().map_or_else(String::new, |why| format!("; {why}"));
        format!(
            "no usable {LIBRARY} in {place} or the system's library folders{not_used}; copy it there, set \
             ORT_DYLIB_PATH, or set ort_library in the board file"
        )
    }
}

/// The library of the newest version in `<cache>/<version>/<arch>/`.
fn newest_cached(cache: &Path) -> Option<PathBuf> {
    let entries =
        |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries(cache)
        .filter_map(|folder| {
            let version = version_key(folder.file_name()?.to_str()?)?;
            // A folder may hold links beside the library; the longest name is the library itself.
            let library =
                entries(&folder.join(std::env::consts::ARCH)).filter(|path| is_library(path)).max()?;
            Some((version, library))
        })
        .max()
        .map(|(_, library)| library)
}

fn version_key(text: &str) -> Option<Vec<u32>> {
    text.split('.').map(|part| part.parse().ok()).collect()
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

/// ONNX Runtime's error for a model that it does not load, sorted: no ONNX, lacking an operator, or broken.
fn why_not_read(file: &Path, why: &Error) -> Diagnosis {
    const LACKING: [&str; 6] = [
        "Could not find an implementation for",
        "is not a registered function/op",
        "No Op registered for",
        "is under development and support for this is limited",
        "Unsupported model IR version",
        "Unrecognized op",
    ];
    let text = essence(why.message());
    match why.code() {
        ErrorCode::InvalidProtobuf | ErrorCode::NoModel => unreadable(file, NOT_ONNX),
        ErrorCode::NotImplemented => unsupported(file, text),
        _ if LACKING.iter().any(|lacking| text.contains(lacking)) => unsupported(file, text),
        _ => unreadable(file, text),
    }
}

/// ONNX Runtime's error of a run. Each node around the one that failed repeats itself before the reason.
fn why_not_run(file: &Path, why: &Error) -> Diagnosis {
    let text = essence(why.message());
    run_failed(file, &innermost(text)).with_detail(text)
}

/// The node that failed and why, from `... running If node. Name:'a' Status Message: ... Name:'b' Status Message: why`.
fn innermost(text: &str) -> String {
    let Some((head, why)) = text.rsplit_once(" Status Message: ") else { return text.to_owned() };
    match head.rsplit_once("Name:'") {
        Some((_, name)) => format!("node `{}`: {}", name.trim_end_matches('\''), essence(why)),
        None => essence(why).to_owned(),
    }
}

/// What an error of ONNX Runtime says, without the path, the status code and the C++ function it came from:
/// `Load model from m.onnx failed:/src/graph.cc:1587 void f(int) [ONNXRuntimeError] : 1 : FAIL : what it says`.
fn essence(text: &str) -> &str {
    let loading = text.strip_prefix("Load model from ").and_then(|rest| rest.split_once(" failed:"));
    let text = loading.map_or(text, |(_, rest)| rest);
    let text = match text.rsplit_once("[ONNXRuntimeError] : ") {
        Some((_, status)) => status.splitn(3, " : ").last().unwrap_or(status),
        None => text,
    };
    let Some(at) = text.find(".cc:").or_else(|| text.find(".h:")) else { return text };
    let mut depth = 0;
    for (index, character) in text.char_indices().skip_while(|(index, _)| *index < at) {
        match character {
            '(' => depth += 1,
            ')' if depth == 1 => return text[index + 1..].trim_start_matches(" const").trim_start(),
            ')' => depth -= 1,
            _ => {}
        }
    }
    text
}

fn describe(outlet: &Outlet) -> TensorDesc {
    let (element, shape) = match outlet.dtype() {
        ValueType::Tensor { ty, shape, .. } => {
            let axes = shape.iter().map(|n| usize::try_from(*n).map_or(Dim::Dynamic, Dim::Fixed));
            (element_of(*ty), axes.collect())
        }
        _ => (None, Vec::new()),
    };
    TensorDesc { name: outlet.name().to_owned(), element, shape }
}

/// The shape of a tensor without dynamic axes.
fn fixed_shape(tensor: &TensorDesc) -> Option<Vec<usize>> {
    tensor.shape.iter().map(|axis| if let Dim::Fixed(n) = axis { Some(*n) } else { None }).collect()
}

fn symbols_of(outlet: &Outlet) -> Vec<String> {
    let ValueType::Tensor { shape, dimension_symbols, .. } = outlet.dtype() else { return Vec::new() };
    let dynamic = |(size, symbol): (&i64, &String)| if *size < 0 { symbol.clone() } else { String::new() };
    shape.iter().zip(dimension_symbols.iter()).map(dynamic).collect()
}

const TYPES: [(ElementType, TensorElementType); 7] = [
    (ElementType::F32, TensorElementType::Float32),
    (ElementType::F16, TensorElementType::Float16),
    (ElementType::U8, TensorElementType::Uint8),
    (ElementType::I8, TensorElementType::Int8),
    (ElementType::I32, TensorElementType::Int32),
    (ElementType::I64, TensorElementType::Int64),
    (ElementType::Bool, TensorElementType::Bool),
];

fn element_of(theirs: TensorElementType) -> Option<ElementType> {
    TYPES.iter().find(|(_, other)| *other == theirs).map(|(ours, _)| *ours)
}

/// A session with its bound tensors. Inputs, and outputs of a known shape, are allocated once and stay where they
/// are; other outputs are allocated by ONNX Runtime in each run, and copied out of its memory.
struct BoundSession {
    session: OrtSession,
    binding: IoBinding,
    /// Where ONNX Runtime leaves the outputs that it allocates.
    host: MemoryInfo<'static>,
    inputs: Vec<Bound>,
    outputs: Vec<Bound>,
    file: PathBuf,
    /// Whether inputs are copied when they are bound, so that they are bound before every run.
    copies_inputs: bool,
    shared_scratch: bool,
    place: Place,
    #[cfg(feature = "cuda")]
    device_place: Option<device_memory::DevicePlace>,
}

struct Bound {
    name: String,
    shape: Vec<usize>,
    /// `None` for an output of unknown shape before the first run.
    tensor: Option<DynTensor>,
    fixed: bool,
}

impl BoundSession {
    fn bind(session: OrtSession, model: &OrtModel, shapes: &[Vec<usize>]) -> Result<Self, Error> {
        let mut binding = session.create_binding()?;
        let mut inputs = Vec::with_capacity(shapes.len());
        for (input, shape) in model.inputs.iter().zip(shapes) {
            let tensor = allocate(input, shape)?;
            binding.bind_input(&input.name, &tensor)?;
            inputs.push(Bound::fixed(&input.name, shape, tensor));
        }
        let host = MemoryInfo::new(AllocationDevice::CPU, 0, AllocatorType::Device, MemoryType::CPUOutput)?;
        let mut outputs = Vec::with_capacity(model.outputs.len());
        // With the axes fixed, the graph's own shape inference knows more than the file declared.
        for output in session.outputs().iter().map(describe) {
            if let Some(shape) = fixed_shape(&output) {
                let mut tensor = allocate(&output, &shape)?;
                binding.bind_output(&output.name, &mut tensor)?;
                outputs.push(Bound::fixed(&output.name, &shape, tensor));
            } else {
                binding.bind_output_to_device(&output.name, &host)?;
                outputs.push(Bound { name: output.name, shape: Vec::new(), tensor: None, fixed: false });
            }
        }
        Ok(Self {
            session,
            binding,
            host,
            inputs,
            outputs,
            file: model.file.clone(),
            copies_inputs: model.provider != Provider::Cpu,
            shared_scratch: model.options.shared_scratch,
            place: Place::System,
            #[cfg(feature = "cuda")]
            device_place: None,
        })
    }
}

impl BoundSession {
    fn compute(&mut self) -> Result<(), Error> {
        #[cfg(feature = "cuda")]
        if self.copies_inputs {
            cuda::leave_captures_alone();
        }
        let Self { session, binding, inputs, copies_inputs, place, .. } = self;
        let run = move || {
            // Moved, so that what was found may refer to them.
            let (session, binding) = (session, binding);
            if *copies_inputs {
                bind_inputs(binding, inputs)?;
            }
            session.run_binding(binding)
        };
        #[cfg(feature = "cuda")]
        let run = || device_memory::inside(self.device_place.as_ref(), run);
        let found = inside(place, run);
        let kept = found.and_then(|found| keep(&mut self.outputs, found));
        kept.and(self.release_outputs())
    }

    /// Lets go of what ONNX Runtime allocated in a run. The binding would hold it, and refuse a next run in which the
    /// output has another shape.
    fn release_outputs(&mut self) -> Result<(), Error> {
        for output in self.outputs.iter().filter(|output| !output.fixed) {
            self.binding.bind_output_to_device(output.name.as_str(), &self.host)?;
        }
        Ok(())
    }
}

/// Takes what was written into the inputs, where the engine does not read them itself.
fn bind_inputs(binding: &mut IoBinding, inputs: &[Bound]) -> Result<(), Error> {
    for Bound { name, tensor, .. } in inputs {
        let tensor = tensor.as_ref().expect("inputs are allocated when they are bound");
        binding.bind_input(name.as_str(), tensor)?;
    }
    Ok(())
}

/// Copies the outputs that ONNX Runtime allocated in a run.
fn keep(outputs: &mut [Bound], mut found: SessionOutputs<'_>) -> Result<(), Error> {
    for output in outputs.iter_mut().filter(|output| !output.fixed) {
        let value = found.remove(&output.name).expect("every output is bound by name");
        output.keep(&value.downcast::<DynTensorValueType>()?)?;
    }
    Ok(())
}

impl Bound {
    fn fixed(name: &str, shape: &[usize], tensor: DynTensor) -> Self {
        Self { name: name.to_owned(), shape: shape.to_vec(), tensor: Some(tensor), fixed: true }
    }

    /// Copies `value`, into the tensor of the run before where the shape is the same.
    fn keep(&mut self, value: &DynTensor) -> Result<(), Error> {
        let size = |n: &i64| usize::try_from(*n).expect("a size is not negative");
        self.shape.clear();
        self.shape.extend(value.shape().iter().map(size));
        let before = self.tensor.take().filter(|before| before.shape() == value.shape());
        let mut kept = match before {
            Some(before) => before,
            None => DynTensor::new(&Allocator::default(), *value.data_type(), self.shape.as_slice())?,
        };
        elements::copy(value, &mut kept);
        self.tensor = Some(kept);
        Ok(())
    }
}

/// A zeroed tensor in the host's memory, aligned as ONNX Runtime's own.
fn allocate(desc: &TensorDesc, shape: &[usize]) -> Result<DynTensor, Error> {
    DynTensor::new(&Allocator::default(), type_of(desc)?, shape)
}

fn type_of(desc: &TensorDesc) -> Result<TensorElementType, Error> {
    let known = TYPES.iter().find(|(ours, _)| Some(*ours) == desc.element);
    known.map(|(_, theirs)| *theirs).ok_or_else(|| Error::new(format!("`{}` changed its type", desc.name)))
}

impl Session for BoundSession {
    fn input(&mut self, index: usize) -> TensorViewMut<'_> {
        let Bound { shape, tensor, .. } = &mut self.inputs[index];
        let tensor = tensor.as_mut().expect("inputs are allocated when they are bound");
        TensorViewMut { shape, data: elements::write(tensor) }
    }

    fn run(&mut self) -> Result<(), Diagnosis> {
        self.compute().map_err(|why| why_not_run(&self.file, &why))
    }

    fn output(&self, index: usize) -> TensorView<'_> {
        let Bound { shape, tensor, .. } = &self.outputs[index];
        let tensor = tensor.as_ref().expect("an output is read after a run");
        TensorView { shape, data: elements::read(tensor) }
    }

    fn compute_in(&mut self, scratch: &Scratch, model: &str) -> bool {
        if self.shared_scratch {
            memory::know(scratch);
            self.place = Place::Lane(scratch.clone(), scratch.owner(model));
            #[cfg(feature = "cuda")]
            {
                let place = |pool| device_memory::DevicePlace::new(pool, model);
                self.device_place = scratch.device().map(place);
            }
        }
        self.shared_scratch
    }
}

/// Typed views of tensors in host memory.
mod elements {
    use ::ort::value::{DynTensor, PrimitiveTensorElementType, TensorElementType};

    use crate::engine::{Elements, ElementsMut};

    const CHECKED: &str = "only known types in host memory are bound";

    pub(super) fn read(tensor: &DynTensor) -> Elements<'_> {
        fn typed<T: PrimitiveTensorElementType>(tensor: &DynTensor) -> &[T] {
            tensor.try_extract_tensor().expect(CHECKED).1
        }
        match tensor.data_type() {
            TensorElementType::Float32 => Elements::F32(typed(tensor)),
            TensorElementType::Float16 => Elements::F16(typed(tensor)),
            TensorElementType::Uint8 => Elements::U8(typed(tensor)),
            TensorElementType::Int8 => Elements::I8(typed(tensor)),
            TensorElementType::Int32 => Elements::I32(typed(tensor)),
            TensorElementType::Int64 => Elements::I64(typed(tensor)),
            TensorElementType::Bool => Elements::Bool(typed(tensor)),
            other => unreachable!("{CHECKED}, not {other}"),
        }
    }

    pub(super) fn write(tensor: &mut DynTensor) -> ElementsMut<'_> {
        fn typed<T: PrimitiveTensorElementType>(tensor: &mut DynTensor) -> &mut [T] {
            tensor.try_extract_tensor_mut().expect(CHECKED).1
        }
        match tensor.data_type() {
            TensorElementType::Float32 => ElementsMut::F32(typed(tensor)),
            TensorElementType::Float16 => ElementsMut::F16(typed(tensor)),
            TensorElementType::Uint8 => ElementsMut::U8(typed(tensor)),
            TensorElementType::Int8 => ElementsMut::I8(typed(tensor)),
            TensorElementType::Int32 => ElementsMut::I32(typed(tensor)),
            TensorElementType::Int64 => ElementsMut::I64(typed(tensor)),
            TensorElementType::Bool => ElementsMut::Bool(typed(tensor)),
            other => unreachable!("{CHECKED}, not {other}"),
        }
    }

    /// Copies all elements into a tensor of the same type and shape.
    pub(super) fn copy(source: &DynTensor, target: &mut DynTensor) {
        match (read(source), write(target)) {
            (Elements::F32(source), ElementsMut::F32(target)) => target.copy_from_slice(source),
            (Elements::F16(source), ElementsMut::F16(target)) => target.copy_from_slice(source),
            (Elements::U8(source), ElementsMut::U8(target)) => target.copy_from_slice(source),
            (Elements::I8(source), ElementsMut::I8(target)) => target.copy_from_slice(source),
            (Elements::I32(source), ElementsMut::I32(target)) => target.copy_from_slice(source),
            (Elements::I64(source), ElementsMut::I64(target)) => target.copy_from_slice(source),
            (Elements::Bool(source), ElementsMut::Bool(target)) => target.copy_from_slice(source),
            (source, target) => unreachable!("{:?} into {:?}", source.element(), target.element()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explicit_library_that_is_not_there_is_not_replaced() {
        let search = Search { option: Some("/no/such/lib.so".into()), ..Search::default() };
        let why = search.candidates().unwrap_err();
        assert!(why.starts_with("/no/such/lib.so, named by ort_library: "), "{why}");
        let search = Search { variable: Some("/no/such/lib.so".into()), ..Search::default() };
        let why = search.candidates().unwrap_err();
        assert!(why.contains("named by ORT_DYLIB_PATH"), "{why}");
    }

    #[test]
    fn the_newest_cached_library_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join(CACHED);
        for (version, arch) in
            [("1.9.0", std::env::consts::ARCH), ("1.22.1", std::env::consts::ARCH), ("2.0", "z80")]
        {
            let folder = cache.join(version).join(arch);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("libonnxruntime_providers_shared.so"), "").unwrap();
            fs::write(folder.join(format!("{LIBRARY}.{version}")), "").unwrap();
        }
        fs::create_dir(cache.join("not-a-version")).unwrap();
        let trusted = Cache::at(dir.path().to_owned());
        let search = Search { cache: Some(trusted), ..Search::default() };
        let found = search.candidates().unwrap();
        let newest = cache.join("1.22.1").join(std::env::consts::ARCH).join("libonnxruntime.so.1.22.1");
        assert_eq!(found, std::slice::from_ref(&newest));
        assert!(search.nothing_found().contains("copy it there, set ORT_DYLIB_PATH, or set ort_library"));
        // A provider that somebody else could have put next to it would be loaded with it.
        let provider = newest.with_file_name("libonnxruntime_providers_shared.so");
        fs::set_permissions(&provider, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        assert_eq!(search.candidates().unwrap(), [LIBRARY.into(), PathBuf::from(format!("{LIBRARY}.1"))]);
        let why = search.nothing_found();
        assert!(why.contains("providers_shared.so is ignored: others can write it"), "{why}");
    }

    #[test]
    fn without_any_the_systems_loader_is_asked() {
        let found = Search::default().candidates().unwrap();
        assert_eq!(found, [PathBuf::from("libonnxruntime.so"), PathBuf::from("libonnxruntime.so.1")]);
    }

    #[test]
    fn a_file_that_is_no_library_is_reported() {
        let library = tempfile::NamedTempFile::new().unwrap();
        let search = Search { option: Some(library.path().to_owned()), ..Search::default() };
        let why = load_runtime(&search).map(|runtime| runtime.info).unwrap_err();
        assert!(why.ends_with("cannot be loaded: file too short"), "{why}");
    }

    #[test]
    fn errors_are_reduced_to_what_they_say() {
        let check = |text: &str, expected: &str| assert_eq!(essence(text), expected);
        check("Load model from a b.onnx failed:Protobuf parsing failed.", "Protobuf parsing failed.");
        check(
            "Load model from m failed:/o/graph.cc:1587 void o::Graph::Init() Output does not exist.",
            "Output does not exist.",
        );
        check(
            "Load model from m failed:/o/graph.cc:14 o::Graph::Graph(const std::map<int(int)>&, bool) \
             [ONNXRuntimeError] : 1 : FAIL : Type mismatch : 1 != 17",
            "Type mismatch : 1 != 17",
        );
        check("a message without a place", "a message without a place");
    }

    #[test]
    fn of_nodes_inside_nodes_the_one_that_failed_is_named() {
        let outer = "Non-zero status code returned while running If node. Name:'If_0' Status Message: ";
        let inner =
            "Non-zero status code returned while running Conv node. Name:'conv' Status Message: no room";
        assert_eq!(innermost(&format!("{outer}{inner}")), "node `conv`: no room");
        assert_eq!(innermost("no node in it"), "no node in it");
    }
}
