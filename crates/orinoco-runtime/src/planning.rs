//! A board's memory, planned before a model is loaded: what each model needs is measured once in a process of its own, and
//! kept; a board that does not fit its budget is refused before anything is allocated.

use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, UNIX_EPOCH};

use orinoco_board::{Board, BoardModel, BoardStream, Inference};
use orinoco_config::{Faults, FileKind};
use orinoco_core::text::mebibytes;
use orinoco_core::{Diagnosis, ElementType, WithSubject, codes};
use orinoco_infer::{Cache, ElementsMut, NoCache, Options, Scratch, by_name};
use orinoco_media::{SourceKind, SourceUri};
use orinoco_memory::{Budget, Domain, Mib, ModelNeeds, Needs, Plan, Scaled, StreamNeeds, TensorNeeds, plan};
use orinoco_model::Repository;
use orinoco_pipeline::Stop;
use orinoco_telemetry::{Event, EventSink};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
#[cfg(feature = "cuda")]
use {
    crate::models::bind_on_device,
    orinoco_core::{Clock, Findings, FrameDesc, Nanos, PixelFormat},
    orinoco_infer::{Allocated, CudaPlan, allocated, device},
    orinoco_pipeline::{Executor, Frame, MonotonicClock, Slot, SlotPool},
    std::sync::Arc,
};

use crate::available::{Available, available};
use crate::memory::resident_bytes;
use crate::process::give_back_freed;
use crate::{LoadedModel, Quiet, load_model};

/// The variable by which this program is asked to measure a model instead of what it does otherwise.
const ASKED: &str = "ORINOCO_MEASURE";
/// Largest area in which a model is measured. It is mapped, and only what is touched is taken from the machine.
const MEASURING_BYTES_MAX: u64 = 4 << 30;
/// How needs are measured. Those that an earlier version kept are measured anew when this changes.
const METHOD: u32 = 2;
/// Runs of a measured model: ONNX Runtime plans its memory in the first, so later ones need more.
const RUNS: usize = 5;
/// How long measuring may take. The largest models load in a minute or two on the slowest boards.
const MEASURE_MAX: Duration = Duration::from_secs(600);
/// Mode of what is kept in the cache.
const KEPT_MODE: u32 = 0o600;
/// How long after the process that measures was ended by a signal this one may learn that it is to end, too.
const SIGNAL_WAIT: Duration = Duration::from_millis(300);
/// How often the process that measures is looked at.
const CHILD_LOOK: Duration = Duration::from_millis(20);
/// Alignment of tensors and frames: a cache line, or an AVX-512 register.
const ALIGN_BYTES: u64 = 64;
/// A frame of a source that does not say its size before it is opened: Full HD, NV12.
const FRAME_BYTES_UNKNOWN: u64 = 1920 * 1080 * 3 / 2;
/// Frames beside the ring: in work, and at the sinks.
const FRAMES_BESIDE: usize = 2;

/// What a model needs on this machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Measured {
    engine: String,
    /// What stays: weights, and what the engine made of them.
    weights_bytes: u64,
    /// The area in which it computes; 0 where the engine keeps that to itself, within `weights_bytes`.
    scratch_bytes: u64,
    /// Inputs, then outputs; empty on the GPU, where they are part of what stays.
    tensors: Vec<(String, u64)>,
    /// Beside all that, for a model that computes on the GPU.
    #[serde(default)]
    on_device: Option<OnDevice>,
}

/// What a model needs on the GPU, and of the host's memory that the GPU maps. What the driver and its libraries take for
/// themselves is not in it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct OnDevice {
    /// What stays: weights, bound tensors, tables, places for frames.
    kept_bytes: u64,
    /// The area in which it computes.
    scratch_bytes: u64,
    /// Page-locked memory of the host.
    pinned_bytes: u64,
}

/// Bytes in which a model computes, or that a lane has for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) host_bytes: u64,
    pub(crate) device_bytes: u64,
}

impl Room {
    /// What a lane has.
    pub(crate) fn of(scratch: &Scratch) -> Self {
        let device_bytes = scratch.device_bytes() as u64;
        Self { host_bytes: scratch.bytes() as u64 - device_bytes, device_bytes }
    }

    /// Enough for either of two models.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            host_bytes: self.host_bytes.max(other.host_bytes),
            device_bytes: self.device_bytes.max(other.device_bytes),
        }
    }

    /// Why a model that needs this cannot compute in `there`.
    pub(crate) fn why_not(self, there: Self) -> String {
        let (needed, there, place) = match self.host_bytes > there.host_bytes {
            true => (self.host_bytes, there.host_bytes, ""),
            false => (self.device_bytes, there.device_bytes, " on the GPU"),
        };
        let (short, there) = (mebibytes(needed - there), mebibytes(there));
        format!(
            "a model needs {short} more{place} to compute in than the {there} that its lane was planned with"
        )
    }

    /// Whether a model that needs this can compute in `there`.
    pub(crate) fn fits(self, there: Self) -> bool {
        self.host_bytes <= there.host_bytes && self.device_bytes <= there.device_bytes
    }
}

/// The planned memory, and the areas that lanes compute in.
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    pub(crate) scratches: Vec<Scratch>,
}

impl Measured {
    fn room(&self) -> Room {
        let device_bytes = self.on_device.map_or(0, |device| device.scratch_bytes);
        Room { host_bytes: self.scratch_bytes, device_bytes }
    }
}

/// What a child is asked.
#[derive(Serialize, Deserialize)]
struct Asked {
    model: String,
    batch: usize,
    engines: Vec<String>,
    threads: usize,
    ort_library: Option<PathBuf>,
    roots: Vec<PathBuf>,
    data: Vec<PathBuf>,
}

/// Whether this process was started to measure a model, and if so what it found, for standard output. The first thing that
/// a program which runs boards asks.
pub fn asked_to_measure() -> Option<Result<String, Faults>> {
    let asked = std::env::var(ASKED).ok()?;
    // However the process that asked ends, this one ends with it. Where that cannot be had it ends by itself, later.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let next = "leave that variable out: it is for Orinoco's own use";
    let asked: Result<Asked, Diagnosis> = serde_json::from_str(&asked).about(&codes::KEY_RANGE, ASKED, next);
    Some(asked.map_err(Faults::from).and_then(|asked| {
        let measured = measure(&asked)?;
        Ok(serde_json::to_string(&measured).expect("names and numbers"))
    }))
}

/// Plans the memory of a board; `None` where its file has no budget. Ends with `E0702` soon after `stop` is requested.
pub fn plan_board(
    board: &Board,
    repository: &Repository,
    events: &dyn EventSink,
    stop: &Stop,
) -> Result<Option<Plan>, Faults> {
    Ok(plan_with_rooms(board, repository, events, stop)?.map(|(plan, _)| plan))
}

/// The same, with what each model computes in.
pub(crate) fn plan_with_rooms(
    board: &Board,
    repository: &Repository,
    events: &dyn EventSink,
    stop: &Stop,
) -> Result<Option<(Plan, Vec<Room>)>, Faults> {
    let Some(budget) = board.memory else { return Ok(None) };
    let cache = Cache::of_process();
    if let Err(NoCache::Untrusted(why)) = &cache {
        events.emit(Event::CacheRefused { why: why.clone() });
    }
    let cache = cache.as_ref().ok();
    let measured = board.models.iter().map(|model| {
        let found = find_or_measure(model, &board.inference, repository, cache, stop)?;
        found.ok_or_else(|| Faults::from(stopped(board)))
    });
    let measured = measured.collect::<Result<Vec<_>, Faults>>()?;
    let needs = needs_of(board, &measured)?;
    match plan(&needs, Budget::Shared(budget)) {
        Ok(plan) => {
            debug_assert_eq!(plan.check(), Ok(()));
            Ok(Some((plan, measured.iter().map(Measured::room).collect())))
        }
        Err(refused) => {
            events.emit(Event::MemoryRefused { table: refused.to_string() });
            let bytes = refused.plan.bytes();
            let (short, budget) = (mebibytes(bytes.saturating_sub(budget)), mebibytes(budget));
            let cause = format!("it is {short} over its memory budget of {budget}");
            let next = match &refused.suggestion {
                Some(suggestion) => suggestion.change.to_string(),
                None => format!("set budget = \"{} MiB\" or more", bytes.div_ceil(1 << 20)),
            };
            Err(Diagnosis::new(&codes::MEMORY_BUDGET, format!("board {}", board.name), cause, next).into())
        }
    }
}

/// The scratch area of each lane, as planned.
pub(crate) fn scratches(plan: &Plan, lanes: usize) -> Result<Vec<Scratch>, Diagnosis> {
    let areas = |domain| {
        let areas = plan.lanes(domain);
        move |lane| usize::try_from(areas.get(&lane).copied().unwrap_or(0)).unwrap_or(usize::MAX)
    };
    let (host_bytes, device_bytes) = (areas(Domain::Host), areas(Domain::Device));
    let next = "free some memory, or lower the budget";
    let make = |lane| {
        // A lane without models of ours still gets a page: one way to do it is simpler than two.
        let scratch = Scratch::new(host_bytes(lane).max(1)).map_err(|why| match available() {
            Some(available) => format!("{why} failed: {available}"),
            None => why.to_string(),
        })?;
        match device_bytes(lane) {
            0 => Ok(scratch),
            bytes => with_device_area(scratch, bytes),
        }
    };
    (0..lanes).map(|lane| make(lane).about(&codes::MEMORY_BUDGET, "the scratch area", next)).collect()
}

#[cfg(feature = "cuda")]
fn with_device_area(scratch: Scratch, bytes: usize) -> Result<Scratch, String> {
    scratch.with_device_area(bytes)
}

#[cfg(not(feature = "cuda"))]
fn with_device_area(_: Scratch, bytes: usize) -> Result<Scratch, String> {
    let planned = mebibytes(bytes as u64);
    Err(format!("the plan needs {planned} of GPU memory, but this build has no CUDA"))
}

// --- needs -------------------------------------------------------------------------------------------------------------

fn needs_of(board: &Board, measured: &[Measured]) -> Result<Needs, Diagnosis> {
    let lanes = board.lanes_used();
    let mut models = Vec::new();
    for lane in 0..lanes {
        let on_lane = |(index, _): &(usize, _)| board.lane_of(*index) == lane;
        let streams = || board.streams.iter().enumerate().filter(on_lane).map(|(_, stream)| stream);
        for (index, model) in board.models.iter().enumerate() {
            if streams().any(|stream: &BoardStream| stream.models.contains(&index)) {
                models.push(model_needs(model, &measured[index], lane));
            }
        }
    }
    let streams = board.streams.iter().map(stream_needs).collect::<Result<Vec<_>, _>>()?;
    let next = "correct the board file";
    Needs::new(lanes, models, streams).about(&codes::MEMORY_BUDGET, format!("board {}", board.name), next)
}

/// What a model on a lane is called in plans: each lane has a session of its own.
pub fn planned_name(model: &str, lane: usize) -> String {
    if lane == 0 { model.to_owned() } else { format!("{model}@{lane}") }
}

fn model_needs(model: &BoardModel, measured: &Measured, lane: usize) -> ModelNeeds {
    let batch = u32::try_from(model.batch).unwrap_or(u32::MAX);
    let tensor = |(name, bytes): &(String, u64)| {
        let each = bytes / u64::from(batch);
        let bytes = match each * u64::from(batch) == *bytes {
            true => Scaled { fixed_bytes: 0, item_bytes: each },
            false => Scaled { fixed_bytes: *bytes, item_bytes: 0 },
        };
        TensorNeeds { name: name.clone(), bytes }
    };
    let mut weights = vec![(Domain::Host, measured.weights_bytes)];
    if let Some(OnDevice { kept_bytes, pinned_bytes, .. }) = measured.on_device {
        weights.extend([(Domain::Pinned, pinned_bytes), (Domain::Device, kept_bytes)]);
    }
    let (domain, scratch_bytes) = match measured.on_device {
        Some(device) => (Domain::Device, device.scratch_bytes),
        None => (Domain::Host, measured.scratch_bytes),
    };
    ModelNeeds {
        name: planned_name(&model.name, lane),
        engine: measured.engine.clone(),
        lane,
        domain,
        io_domain: Domain::Host,
        weights,
        scratch: Scaled { fixed_bytes: scratch_bytes, item_bytes: 0 },
        tensors: measured.tensors.iter().map(tensor).collect(),
        batch,
        align: ALIGN_BYTES,
    }
}

fn stream_needs(stream: &BoardStream) -> Result<StreamNeeds, Diagnosis> {
    let uri = SourceUri::parse(&stream.source)?;
    Ok(StreamNeeds {
        name: stream.name.clone(),
        domain: Domain::Host,
        frames_max: u32::try_from(stream.queue_frames + FRAMES_BESIDE).unwrap_or(u32::MAX),
        frame_bytes: frame_bytes(uri.kind()),
        align: ALIGN_BYTES,
    })
}

/// A frame's bytes, where the source says its size; else those of Full HD.
fn frame_bytes(kind: &SourceKind) -> u64 {
    let known = |width: u32, height: u32| u64::from(width) * u64::from(height) * 3 / 2;
    match kind {
        SourceKind::Test(ball) => known(ball.width, ball.height),
        SourceKind::Camera(camera) => match (camera.width, camera.height) {
            // Packed 4:2:2 is the most that cameras are read in without decoding.
            (Some(width), Some(height)) => u64::from(width) * u64::from(height) * 2,
            _ => FRAME_BYTES_UNKNOWN,
        },
        _ => FRAME_BYTES_UNKNOWN,
    }
}

// --- measuring ---------------------------------------------------------------------------------------------------------

/// The fault of a board that was stopped before it ran.
pub(crate) fn stopped(board: &Board) -> Diagnosis {
    let (subject, cause) = (format!("board {}", board.name), "it was stopped before it was ready");
    Diagnosis::new(&codes::STOPPED, subject, cause, "start it again")
}

/// The descriptor of a model, from the cache or a child process; `None` when `stop` was requested first.
fn find_or_measure(
    model: &BoardModel,
    inference: &Inference,
    repository: &Repository,
    cache: Option<&Cache>,
    stop: &Stop,
) -> Result<Option<Measured>, Faults> {
    let asked = Asked {
        model: model.model.clone(),
        batch: model.batch,
        engines: inference.engines.clone(),
        threads: inference.threads,
        ort_library: inference.ort_library.clone(),
        roots: repository.roots.clone(),
        data: repository.data.clone(),
    };
    let key = cache_key(&asked, model, repository)?;
    let kept =
        cache.map(|cache| Kept { cache, file: cache.folder().join("memory").join(format!("{key}.json")) });
    if let Some(measured) = kept.as_ref().and_then(Kept::read) {
        return Ok(Some(measured));
    }
    // A file that is not the one described is refused here, because a child's fault would be worded as one of measuring.
    repository.describe(&model.model)?;
    let Some(measured) = measure_in_child(&asked, &model.name, stop)? else { return Ok(None) };
    // A cache that cannot be written costs time, and nothing else.
    let _ = kept.map(|kept| kept.write(&measured));
    Ok(Some(measured))
}

/// A model's needs in the cache.
struct Kept<'a> {
    cache: &'a Cache,
    file: PathBuf,
}

impl Kept<'_> {
    /// What was measured before; nothing where others could have written it.
    fn read(&self) -> Option<Measured> {
        self.cache.check(&self.file).ok()?;
        serde_json::from_slice(&FileKind::DESCRIPTION.read(&self.file).ok()?).ok()
    }

    fn write(&self, measured: &Measured) -> io::Result<()> {
        let folder = self.file.parent().expect("it is in a folder of the cache");
        self.cache.make_folder(folder)?;
        self.cache.check(folder).map_err(io::Error::other)?;
        let text = serde_json::to_vec(measured).expect("names and numbers");
        // For the user alone whatever the umask: what others can write is not read. Removed where it cannot be written.
        let mut part = tempfile::Builder::new()
            .prefix(".orinoco-")
            .suffix(".part")
            .permissions(Permissions::from_mode(KEPT_MODE))
            .tempfile_in(folder)?;
        part.write_all(&text)?;
        part.persist(&self.file).map_err(|error| error.error)?;
        Ok(())
    }
}

/// Everything that a model's needs depend on, as a hash: the file, its description, the batch, and the engines that are here.
fn cache_key(asked: &Asked, model: &BoardModel, repository: &Repository) -> Result<String, Faults> {
    // The file's length and time stand for what it holds; loading the model checks its hash.
    let described = repository.read_description(&model.model)?;
    let file = described.as_ref().map_or(Path::new(&model.model), |described| &described.file);
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    add(&file.canonicalize().unwrap_or_else(|_| file.to_owned()).display().to_string());
    // A graph may leave the size of its input open.
    add(&format!("{described:?}"));
    if let Ok(metadata) = file.metadata() {
        let changed = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        add(&format!("{} {changed:?}", metadata.len()));
    }
    add(&format!("{METHOD} {} {} {}", asked.batch, asked.threads, env!("CARGO_PKG_VERSION")));
    let options = Options { ort_library: asked.ort_library.clone(), ..Options::default() };
    for name in &asked.engines {
        let version = by_name(name)?.check(&options).map_or_else(|why| why, |info| info.version);
        add(&format!("{name} {version}"));
    }
    #[cfg(feature = "cuda")]
    if asked.engines.iter().any(|name| name == "ort-cuda") {
        add(&device().map_or_else(|why| why.reason, |device| format!("{:?}", device.info())));
    }
    Ok(hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect())
}

fn measure_in_child(asked: &Asked, name: &str, stop: &Stop) -> Result<Option<Measured>, Faults> {
    let about = |cause: String| {
        let next = format!("try it with `orinoco models check {name}`");
        Faults::from(Diagnosis::new(&codes::MEMORY_MEASURE, format!("model {name}"), cause, next))
    };
    let program = std::env::current_exe().map_err(|why| about(why.to_string()))?;
    let asked = serde_json::to_string(asked).expect("names and numbers");
    let mut child = Command::new(program);
    let ended = output_within(child.env(ASKED, asked), MEASURE_MAX, stop);
    let done = match ended.map_err(|why| about(why.to_string()))? {
        ChildEnd::Done(done) => done,
        ChildEnd::Stopped => return Ok(None),
        ChildEnd::TooLate => {
            let minutes = MEASURE_MAX.as_secs() / 60;
            let cause = format!(
                "its memory cannot be measured: the measuring process did not end within {minutes} minutes"
            );
            return Err(about(cause));
        }
    };
    if let Ok(measured) = serde_json::from_slice(&done.stdout) {
        return Ok(Some(measured));
    }
    // A signal to all processes of a terminal or a service ends the child, and may reach this process a moment later.
    let signal = done.status.signal();
    if signal.is_some_and(|signal| signal != Signal::KILL.as_raw()) && stop.sleep(SIGNAL_WAIT) {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let said = match said.lines().rev().find(|line| !line.trim().is_empty()) {
        Some(line) => line,
        None if signal == Some(Signal::KILL.as_raw()) => {
            "the measuring process was killed, probably out of memory"
        }
        None => "it said nothing",
    };
    Err(about(format!("its memory cannot be measured ({}): {said}", done.status)))
}

/// How a child process ended.
enum ChildEnd {
    Done(Output),
    /// It was killed, because the end of this process was asked for.
    Stopped,
    /// It was killed, because its time was over.
    TooLate,
}

/// What a program prints, unless its time is over or `stop` is requested: then it is killed.
fn output_within(command: &mut Command, limit: Duration, stop: &Stop) -> io::Result<ChildEnd> {
    fn read(pipe: Option<impl Read + Send + 'static>) -> io::Result<JoinHandle<Vec<u8>>> {
        thread::Builder::new().spawn(move || {
            let mut text = Vec::new();
            // What cannot be read was not said.
            let _ = pipe.expect("it was asked for").read_to_end(&mut text);
            text
        })
    }
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (stdout, stderr) = (read(child.stdout.take())?, read(child.stderr.take())?);
    let begin = Instant::now();
    while child.try_wait()?.is_none() {
        let end = match stop.sleep(CHILD_LOOK) {
            true => ChildEnd::Stopped,
            false if begin.elapsed() >= limit => ChildEnd::TooLate,
            false => continue,
        };
        child.kill()?;
        child.wait()?;
        return Ok(end);
    }
    let status = child.wait()?;
    let text = |said: JoinHandle<Vec<u8>>| said.join().expect("reading does not panic");
    Ok(ChildEnd::Done(Output { status, stdout: text(stdout), stderr: text(stderr) }))
}

/// Loads a model and runs it on noise, in this process, which does nothing else.
fn measure(asked: &Asked) -> Result<Measured, Faults> {
    let wanted = BoardModel { batch: asked.batch, ..BoardModel::new(&*asked.model, &*asked.model) };
    let inference = Inference {
        engines: asked.engines.clone(),
        threads: asked.threads,
        ort_library: asked.ort_library.clone(),
        shared_scratch: true,
        ..Inference::default()
    };
    let repository = Repository { roots: asked.roots.clone(), data: asked.data.clone() };
    let load = || load_model(&wanted, &inference, &repository, &Quiet);
    // What an engine sets up with its first model is there for all of them.
    load()?.chosen.session()?.run()?;
    give_back_freed();
    let before = resident_bytes();
    let mut loaded = load()?;
    let area = MeasuringArea::map()?.for_model(&loaded)?;
    let scratch = &area.scratch;
    #[cfg(feature = "cuda")]
    if let Some(_plan) = replayed_on_device(&mut loaded, scratch)? {
        area.check()?;
        return Ok(measured(&loaded, before, scratch, Vec::new()));
    }
    let mut session = loaded.chosen.session()?;
    // Binding a plan runs its model once before it computes in a scratch.
    session.run()?;
    session.compute_in(scratch, &asked.model);
    fill_with_noise(&mut session.input(loaded.binding.input).data);
    for _ in 0..RUNS {
        session.run()?;
    }
    area.check()?;
    let prepared = &loaded.chosen.prepared;
    let mut tensors = Vec::new();
    for (index, input) in prepared.inputs().iter().enumerate() {
        let tensor = session.input(index);
        tensors.push((input.name.clone(), tensor_bytes(tensor.shape, tensor.data.element())));
    }
    for (index, output) in prepared.outputs().iter().enumerate() {
        let tensor = session.output(index);
        tensors.push((output.name.clone(), tensor_bytes(tensor.shape, tensor.data.element())));
    }
    Ok(measured(&loaded, before, scratch, tensors))
}

/// What a model has taken that has just run in `scratch`; `before` is what was resident before it was loaded.
fn measured(loaded: &LoadedModel, before: u64, scratch: &Scratch, tensors: Vec<(String, u64)>) -> Measured {
    let on_device = on_device(loaded, scratch);
    let used = scratch.usage().reach_bytes - scratch.device_usage().reach_bytes;
    let own: u64 = tensors.iter().map(|(_, bytes)| bytes).sum();
    give_back_freed();
    let grown = resident_bytes().saturating_sub(before);
    Measured {
        engine: loaded.chosen.name.to_owned(),
        // A driver may map pinned memory so that it is resident, too: then it counts twice here.
        weights_bytes: grown.saturating_sub(used as u64 + own),
        scratch_bytes: used as u64,
        tensors,
        on_device,
    }
}

/// The area in which a model is measured, and what bounds it.
struct MeasuringArea {
    scratch: Scratch,
    available: Option<Available>,
}

impl MeasuringArea {
    /// Maps as much as may be taken, and no more than the largest model needs.
    fn map() -> Result<Self, Diagnosis> {
        Self::within(available())
    }

    fn within(available: Option<Available>) -> Result<Self, Diagnosis> {
        let bytes = available.as_ref().map_or(MEASURING_BYTES_MAX, |available| available.bytes);
        // At least a page: a model whose engine keeps its own memory needs none of it.
        let bytes = bytes.clamp(1, MEASURING_BYTES_MAX);
        match Scratch::unreserved(usize::try_from(bytes).unwrap_or(usize::MAX)) {
            Ok(scratch) => Ok(Self { scratch, available }),
            Err(why) => {
                let source =
                    std::error::Error::source(&why).map(|why| format!(" ({why})")).unwrap_or_default();
                Err(Self::too_small(available.as_ref(), &format!("{why} failed{source}")))
            }
        }
    }

    /// A fault, where the model asked for more than the area holds: what it needs is not known then.
    fn check(&self) -> Result<(), Diagnosis> {
        match self.scratch.usage().refused {
            0 => Ok(()),
            _ => {
                let area = Mib(self.scratch.bytes() as u64);
                let cause = format!("it computes in more than the {area} MiB that could be set aside for it");
                Err(Self::too_small(self.available.as_ref(), &cause))
            }
        }
    }

    fn too_small(available: Option<&Available>, what: &str) -> Diagnosis {
        let (cause, next) = match available {
            Some(available) if available.bytes < MEASURING_BYTES_MAX => {
                (format!("{what}: {available}"), available.bound.next())
            }
            _ => (what.to_owned(), "use a smaller model or batch"),
        };
        Diagnosis::new(&codes::MEMORY_MEASURE, "the area for measuring", cause, next)
    }

    /// The same with an area on the GPU for a model that computes there.
    #[cfg(feature = "cuda")]
    fn for_model(self, loaded: &LoadedModel) -> Result<Self, Diagnosis> {
        if !loaded.chosen.prepared.is_on_device() {
            return Ok(self);
        }
        let scratch = self.scratch.with_device_measured();
        let scratch = scratch.about(&codes::MEMORY_MEASURE, &loaded.name, "free some memory of the GPU")?;
        Ok(Self { scratch, ..self })
    }

    #[cfg(not(feature = "cuda"))]
    fn for_model(self, _: &LoadedModel) -> Result<Self, Diagnosis> {
        Ok(self)
    }
}

#[cfg(not(feature = "cuda"))]
fn on_device(_: &LoadedModel, _: &Scratch) -> Option<OnDevice> {
    None
}

/// What this process holds of the GPU, for a model that computes there.
#[cfg(feature = "cuda")]
fn on_device(loaded: &LoadedModel, scratch: &Scratch) -> Option<OnDevice> {
    let Allocated { device_bytes, pinned_bytes } = allocated();
    loaded.chosen.prepared.is_on_device().then(|| OnDevice {
        kept_bytes: device_bytes.saturating_sub(scratch.device_usage().in_use_bytes as u64),
        scratch_bytes: scratch.device_usage().reach_bytes as u64,
        pinned_bytes,
    })
}

/// A plan on the GPU as it is going to run, on frames that need as much room as most cameras' do, after so many replays;
/// `None` for a model that does not have one.
#[cfg(feature = "cuda")]
fn replayed_on_device(loaded: &mut LoadedModel, scratch: &Scratch) -> Result<Option<CudaPlan>, Diagnosis> {
    if !loaded.chosen.prepared.is_on_device() {
        return Ok(None);
    }
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
    let Some(mut plan) = bind_on_device(loaded, &clock, Some(scratch))? else { return Ok(None) };
    let frames: Vec<Frame> = (0..plan.batch_max()).map(|_| noise_frame()).collect();
    let mut findings = vec![Findings::default(); frames.len()];
    for _ in 0..RUNS {
        plan.replay(&frames, &mut findings)?;
    }
    Ok(Some(plan))
}

/// A Full HD frame of noise.
#[cfg(feature = "cuda")]
fn noise_frame() -> Frame {
    let desc = FrameDesc::packed(PixelFormat::Nv12, 1920, 1080);
    let mut slot = SlotPool::new(1, desc.bytes_needed()).take(Duration::ZERO).expect("it is free");
    slot.bytes.iter_mut().enumerate().for_each(|(index, byte)| *byte = (noise(index) * 255.0) as u8);
    Frame::new(desc, Slot::Owned(slot), Nanos(0)).expect("it has room")
}

fn tensor_bytes(shape: &[usize], element: ElementType) -> u64 {
    (shape.iter().product::<usize>() * element.bytes()) as u64
}

/// Knuth's multiplicative hash of the index, from 0 to 1: what is found in zeros may need less.
fn fill_with_noise(input: &mut ElementsMut<'_>) {
    let values: Vec<f32> = (0..input.len()).map(noise).collect();
    input.copy_from_f32(&values);
}

fn noise(index: usize) -> f32 {
    ((index as u32).wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 24) as f32
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Set where the next test runs itself: the folder of its cache.
    const CACHE_CHILD: &str = "ORINOCO_TEST_CACHE_CHILD";

    #[test]
    fn what_is_kept_is_for_the_user_alone_and_whole() {
        let measured = Measured {
            engine: "ort-cpu".into(),
            weights_bytes: 1,
            scratch_bytes: 2,
            tensors: Vec::new(),
            on_device: None,
        };
        if let Some(dir) = std::env::var_os(CACHE_CHILD) {
            let cache = Cache::of_process().unwrap_or_else(|why| panic!("{why}"));
            assert!(cache.folder().starts_with(dir), "it is the test's own");
            let file = cache.folder().join("memory/key.json");
            let folder = file.parent().expect("it has one");
            let kept = Kept { cache: &cache, file: file.clone() };
            kept.write(&measured).expect("writable");
            assert_eq!(kept.read().expect("readable").scratch_bytes, 2);
            assert_eq!(file.metadata().expect("there").permissions().mode() & 0o777, KEPT_MODE);
            // A folder cannot be replaced by a file.
            fs::remove_file(&file).expect("removed");
            fs::create_dir(&file).expect("made");
            kept.write(&measured).expect_err("a folder is there");
            assert_eq!(fs::read_dir(folder).expect("there").count(), 1, "no part is left");
            return;
        }
        let dir = tempfile::tempdir().expect("temporary folder");
        let program = std::env::current_exe().expect("it has a path");
        let name = "planning::tests::what_is_kept_is_for_the_user_alone_and_whole";
        let mut command = Command::new("sh");
        command.args(["-c", "umask 0; exec \"$0\" --exact \"$1\""]).arg(program).arg(name);
        command.env(CACHE_CHILD, dir.path()).env("XDG_CACHE_HOME", dir.path());
        let output = command.output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    #[test]
    fn another_description_is_measured_anew() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/person-nano");
        fs::create_dir(dir.path().join("1")).expect("made");
        fs::copy(models.join("1/model.onnx"), dir.path().join("1/model.onnx")).expect("copied");
        let text = fs::read_to_string(models.join("model.toml")).expect("readable");
        let key = |text: &str| {
            fs::write(dir.path().join("model.toml"), text).expect("written");
            let repository = Repository { roots: Vec::new(), data: Vec::new() };
            let model = BoardModel::new("m", dir.path().display().to_string());
            let asked = Asked {
                model: model.model.clone(),
                batch: 1,
                engines: Vec::new(),
                threads: 1,
                ort_library: None,
                roots: Vec::new(),
                data: Vec::new(),
            };
            cache_key(&asked, &model, &repository).expect("it is described")
        };
        assert_eq!(key(&text), key(&text));
        let (from, to) = ("width = 384", "width = 416");
        assert!(text.contains(from));
        assert_ne!(key(&text), key(&text.replace(from, to)));
    }

    #[test]
    fn a_model_on_the_gpu_has_a_share_of_every_memory() {
        let on_host = Measured {
            engine: "ort-cpu".into(),
            weights_bytes: 5 << 20,
            scratch_bytes: 3 << 20,
            tensors: vec![("images".into(), 4096), ("boxes".into(), 100)],
            on_device: None,
        };
        let device = OnDevice { kept_bytes: 20 << 20, scratch_bytes: 7 << 20, pinned_bytes: 3 << 20 };
        let on_gpu = Measured {
            engine: "ort-cuda".into(),
            scratch_bytes: 0,
            tensors: Vec::new(),
            on_device: Some(device),
            ..on_host.clone()
        };
        assert_eq!(on_host.room(), Room { host_bytes: 3 << 20, device_bytes: 0 });
        assert_eq!(on_gpu.room(), Room { host_bytes: 0, device_bytes: 7 << 20 });

        let models = [("cpu", &on_host), ("gpu", &on_gpu), ("larger", &on_gpu)];
        let models = models.map(|(name, measured)| {
            let measured = Measured {
                on_device: measured.on_device.map(|device| OnDevice {
                    scratch_bytes: device.scratch_bytes + name.len() as u64 * 4096,
                    ..device
                }),
                ..measured.clone()
            };
            model_needs(&BoardModel::new(name, "m"), &measured, 0)
        });
        let needs = Needs::new(1, models.into(), Vec::new()).expect("they are sound");
        let plan = plan(&needs, Budget::Shared(100 << 20)).expect("it fits");
        expect_test::expect![[r#"
            NAME             KIND             DOMAIN    MIB      BYTES    OFFSET
            cpu              weights          host      5.0    5242880         0
            gpu              weights          host      5.0    5242880   5242880
            larger           weights          host      5.0    5242880  10485760
            lane 0 (cpu)     scratch          host      3.0    3145728  15728640
            cpu              inputs, outputs  host      0.0       8192  18874368
            gpu              weights          pinned    3.0    3145728         0
            larger           weights          pinned    3.0    3145728   3145728
            gpu              weights          device   20.0   20971520         0
            larger           weights          device   20.0   20971520  20971520
            lane 0 (larger)  scratch          device    7.0    7364608  41943040
            total                             board    71.0   74481664
            budget                            board   100.0  104857600"#]]
        .assert_eq(&plan.to_string());
        assert_eq!(plan.lanes(Domain::Host)[&0], 3 << 20);
        assert_eq!(plan.lanes(Domain::Device)[&0], (7 << 20) + 6 * 4096, "they share the larger one's");
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let (limit, stop) = (Duration::from_millis(50), Stop::default());
        let end = output_within(Command::new("sleep").arg("60"), limit, &stop).expect("it starts");
        assert!(matches!(end, ChildEnd::TooLate));
        let end = output_within(Command::new("sh").args(["-c", "echo a; echo b >&2"]), MEASURE_MAX, &stop);
        let ChildEnd::Done(output) = end.expect("it starts") else { panic!("it ends by itself") };
        assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"a\n"[..], &b"b\n"[..]));
        stop.request();
        let begin = Instant::now();
        let end = output_within(Command::new("sleep").arg("60"), MEASURE_MAX, &stop).expect("it starts");
        assert!(matches!(end, ChildEnd::Stopped));
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    }

    #[test]
    fn the_area_for_measuring_is_no_larger_than_what_is_left() {
        let left = |bytes| available().expect("Linux gives a figure").with_bytes(bytes);
        let area = MeasuringArea::within(Some(left(1 << 20))).expect("there is a megabyte");
        assert_eq!(area.scratch.bytes(), 1 << 20);
        assert!(area.check().is_ok(), "nothing was asked of it");
        assert!(MeasuringArea::within(Some(left(0))).is_ok(), "an engine may keep its own memory");
        let area = MeasuringArea::within(Some(left(1 << 50))).expect("only what is touched is taken");
        assert_eq!(area.scratch.bytes() as u64, MEASURING_BYTES_MAX);
        let fault = MeasuringArea::too_small(Some(&left(1 << 20)), "it fails");
        assert_eq!(fault.cause, format!("it fails: {}", left(1 << 20)));
        assert_eq!(MeasuringArea::too_small(Some(&left(1 << 50)), "it fails").cause, "it fails");
    }

    /// Set where the next test runs itself: it prints the size of the area.
    const AREA_CHILD: &str = "ORINOCO_TEST_AREA_CHILD";

    #[test]
    #[allow(clippy::print_stdout, reason = "it is what the other process reads")]
    fn the_area_for_measuring_fits_the_limits_of_its_process() {
        if std::env::var_os(AREA_CHILD).is_some() {
            let area = MeasuringArea::map().unwrap_or_else(|why| panic!("{why}"));
            println!("area {}", area.scratch.bytes());
            return;
        }
        let program = std::env::current_exe().expect("it has a path");
        let name = "planning::tests::the_area_for_measuring_fits_the_limits_of_its_process";
        // `ulimit -v` counts in KiB: 1.5 GiB, of which the test's own process takes some.
        let script = "ulimit -v 1572864 && exec \"$0\" --exact --nocapture \"$1\"";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(program).arg(name).env(AREA_CHILD, "1");
        let end = output_within(&mut command, MEASURE_MAX, &Stop::default()).expect("it starts");
        let ChildEnd::Done(output) = end else { panic!("it ends by itself") };
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        let area = text.split("area ").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        let area: u64 = area.unwrap_or_else(|| panic!("no size in {text}"));
        assert!((64 << 20..768 << 20).contains(&area), "{area}");
    }
}
