//! A board's memory, planned before a model is loaded: what each model needs is measured once in a process of its own, and
//! kept; a board that does not fit its budget is refused before anything is allocated.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, UNIX_EPOCH};

use orinoco_board::{Board, BoardModel, BoardStream, Inference};
use orinoco_config::Faults;
use orinoco_core::{Diagnosis, ElementType, WithSubject, codes};
use orinoco_infer::{ElementsMut, Options, Repository, Scratch, by_name};
use orinoco_media::{SourceKind, SourceUri};
use orinoco_memory::{Budget, Domain, ModelNeeds, Needs, Plan, Scaled, StreamNeeds, TensorNeeds, plan};
use orinoco_telemetry::{Event, EventSink};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::memory::resident_bytes;
use crate::{Quiet, cache_dir, load_model};

/// The variable by which this program is asked to measure a model instead of what it does otherwise.
const ASKED: &str = "ORINOCO_MEASURE";
/// The area in which a model is measured. It is mapped, and only what is touched is taken from the machine.
const MEASURING_BYTES: usize = 4 << 30;
/// Runs of a measured model: ONNX Runtime plans its memory in the first, so later ones need more.
const RUNS: usize = 5;
/// How long measuring may take. The largest models load in a minute or two on the slowest boards.
const MEASURE_MAX: Duration = Duration::from_secs(600);
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
    /// Inputs, then outputs.
    tensors: Vec<(String, u64)>,
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
    let next = "leave that variable out: it is for Orinoco's own use";
    let asked: Result<Asked, Diagnosis> = serde_json::from_str(&asked).about(&codes::KEY_RANGE, ASKED, next);
    Some(asked.map_err(Faults::from).and_then(|asked| {
        let measured = measure(&asked)?;
        Ok(serde_json::to_string(&measured).expect("names and numbers"))
    }))
}

/// Plans the memory of a board; `None` where its file has no budget.
pub fn plan_board(
    board: &Board,
    repository: &Repository,
    events: &dyn EventSink,
) -> Result<Option<Plan>, Faults> {
    let Some(budget) = board.memory else { return Ok(None) };
    let measured = board.models.iter().map(|model| find_or_measure(model, &board.inference, repository));
    let measured = measured.collect::<Result<Vec<_>, Faults>>()?;
    let needs = needs_of(board, &measured)?;
    match plan(&needs, Budget::Shared(budget)) {
        Ok(plan) => {
            debug_assert_eq!(plan.check(), Ok(()));
            Ok(Some(plan))
        }
        Err(refused) => {
            events.emit(Event::MemoryRefused { table: refused.to_string() });
            let cause = format!("it takes {} bytes, and the budget is {budget}", refused.plan.bytes());
            let next = match &refused.suggestion {
                Some(suggestion) => suggestion.change.to_string(),
                None => format!("set budget = \"{}\" or more", refused.plan.bytes()),
            };
            Err(Diagnosis::new(&codes::MEMORY_BUDGET, format!("board {}", board.name), cause, next).into())
        }
    }
}

/// What each model of a board computes in, in bytes.
pub(crate) fn scratch_bytes(board: &Board, repository: &Repository) -> Result<Vec<u64>, Faults> {
    let measured = board.models.iter().map(|model| find_or_measure(model, &board.inference, repository));
    measured.map(|measured| Ok(measured?.scratch_bytes)).collect()
}

/// The scratch area of each lane, as planned.
pub(crate) fn scratches(plan: &Plan, lanes: usize) -> Result<Vec<Scratch>, Diagnosis> {
    let areas = plan.lanes();
    let bytes = |lane| usize::try_from(areas.get(&lane).copied().unwrap_or(0)).unwrap_or(usize::MAX);
    let next = "free some memory, or lower the budget";
    // A lane without models of ours still gets a page: one way to do it is simpler than two.
    let make = |lane| Scratch::new(bytes(lane).max(1)).map_err(|why| why.to_string());
    (0..lanes).map(|lane| make(lane).about(&codes::MEMORY_BUDGET, "the scratch area", next)).collect()
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
    ModelNeeds {
        // Each lane has a session of its own.
        name: if lane == 0 { model.name.clone() } else { format!("{}@{lane}", model.name) },
        engine: measured.engine.clone(),
        lane,
        domain: Domain::Host,
        io_domain: Domain::Host,
        weights_bytes: measured.weights_bytes,
        scratch: Scaled { fixed_bytes: measured.scratch_bytes, item_bytes: 0 },
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

/// The descriptor of a model, from the cache or a child process.
fn find_or_measure(
    model: &BoardModel,
    inference: &Inference,
    repository: &Repository,
) -> Result<Measured, Faults> {
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
    let kept = cache_dir().join("memory").join(format!("{key}.json"));
    if let Some(measured) = fs::read(&kept).ok().and_then(|text| serde_json::from_slice(&text).ok()) {
        return Ok(measured);
    }
    let measured = measure_in_child(&asked, &model.name)?;
    keep(&kept, &measured);
    Ok(measured)
}

/// Everything that a model's needs depend on, as a hash: the file, its description, the batch, and the engines that are here.
fn cache_key(asked: &Asked, model: &BoardModel, repository: &Repository) -> Result<String, Faults> {
    let described = repository.describe(&model.model)?;
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
    add(&format!("{} {} {}", asked.batch, asked.threads, env!("CARGO_PKG_VERSION")));
    let options = Options { ort_library: asked.ort_library.clone(), ..Options::default() };
    for name in &asked.engines {
        let version = by_name(name)?.check(&options).map_or_else(|why| why, |info| info.version);
        add(&format!("{name} {version}"));
    }
    Ok(hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect())
}

/// A cache that cannot be written costs time, and nothing else.
fn keep(path: &Path, measured: &Measured) {
    let text = serde_json::to_vec(measured).expect("names and numbers");
    let part = path.with_extension(format!("part{}", std::process::id()));
    let _ = path.parent().map(fs::create_dir_all);
    let _ = fs::write(&part, text).and_then(|()| fs::rename(&part, path));
}

fn measure_in_child(asked: &Asked, name: &str) -> Result<Measured, Faults> {
    let about = |cause: String| {
        let next = format!("try it with `orinoco models check {name}`");
        Faults::from(Diagnosis::new(&codes::MEMORY_MEASURE, format!("model {name}"), cause, next))
    };
    let program = std::env::current_exe().map_err(|why| about(why.to_string()))?;
    let asked = serde_json::to_string(asked).expect("names and numbers");
    let mut child = Command::new(program);
    let done = output_within(child.env(ASKED, asked), MEASURE_MAX).map_err(|why| about(why.to_string()))?;
    let done = done.ok_or_else(|| {
        let minutes = MEASURE_MAX.as_secs() / 60;
        about(format!("it cannot be measured: its process did not end within {minutes} minutes"))
    })?;
    serde_json::from_slice(&done.stdout).map_err(|_| {
        let said = String::from_utf8_lossy(&done.stderr);
        let said = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        about(format!("it cannot be measured ({}): {said}", done.status))
    })
}

/// What a program says; `None` if it did not end in time, and was killed.
fn output_within(command: &mut Command, limit: Duration) -> io::Result<Option<Output>> {
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
        if begin.elapsed() >= limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(CHILD_LOOK);
    }
    let status = child.wait()?;
    let text = |said: JoinHandle<Vec<u8>>| said.join().expect("reading does not panic");
    Ok(Some(Output { status, stdout: text(stdout), stderr: text(stderr) }))
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
    // The engine's library is there once, however many models there are.
    let options = Options { ort_library: asked.ort_library.clone(), ..Options::default() };
    for name in &asked.engines {
        let _ = by_name(name)?.check(&options);
    }
    let before = resident_bytes();
    let mut loaded = load_model(&wanted, &inference, &repository, &Quiet)?;
    let mut session = loaded.chosen.session()?;
    // Binding a plan runs its model once before it computes in a scratch.
    session.run()?;
    let scratch = Scratch::new(MEASURING_BYTES).map_err(|why| why.to_string());
    let scratch = scratch.about(&codes::MEMORY_MEASURE, &asked.model, "free some memory")?;
    let is_ours = session.compute_in(&scratch, &asked.model);
    fill_with_noise(&mut session.input(loaded.binding.input).data);
    for _ in 0..RUNS {
        session.run()?;
    }
    let scratch_bytes = if is_ours { scratch.usage().reach_bytes as u64 } else { 0 };
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
    let own: u64 = tensors.iter().map(|(_, bytes)| bytes).sum();
    let grown = resident_bytes().saturating_sub(before);
    let weights_bytes = grown.saturating_sub(scratch_bytes + own);
    Ok(Measured { engine: loaded.chosen.name.to_owned(), weights_bytes, scratch_bytes, tensors })
}

fn tensor_bytes(shape: &[usize], element: ElementType) -> u64 {
    (shape.iter().product::<usize>() * element.bytes()) as u64
}

/// Knuth's multiplicative hash of the index, from 0 to 1: what is found in zeros may need less.
fn fill_with_noise(input: &mut ElementsMut<'_>) {
    let noise = |index: usize| ((index as u32).wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 24) as f32;
    let values: Vec<f32> = (0..input.len()).map(noise).collect();
    input.copy_from_f32(&values);
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_program_that_hangs_is_ended() {
        let limit = Duration::from_millis(50);
        let output = output_within(Command::new("sleep").arg("60"), limit).expect("it starts");
        assert!(output.is_none());
        let output = output_within(Command::new("sh").args(["-c", "echo a; echo b >&2"]), MEASURE_MAX);
        let output = output.expect("it starts").expect("it ends");
        assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"a\n"[..], &b"b\n"[..]));
    }
}
