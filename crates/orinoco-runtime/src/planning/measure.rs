//! Measuring a model, in a process that does nothing else.

use std::path::PathBuf;
use std::sync::Arc;

use orinoco_board::{BoardModel, Inference};
use orinoco_config::Faults;
use orinoco_core::{
    Diagnosis, ElementType, FrameDesc, InferenceResult, Nanos, PixelFormat, WithSubject, codes,
};
#[cfg(feature = "cuda")]
use orinoco_infer::{AllocatedBytes, allocated};
use orinoco_infer::{ElementsMut, Scratch, Session, TensorMemory};
use orinoco_memory::Mib;
use orinoco_model::Repository;
use orinoco_pipeline::{Executor, Frame, MonotonicClock, Slot, SlotPool};
use serde::{Deserialize, Serialize};

use crate::available::{Available, available};
use crate::memory::resident_bytes;
use crate::models::{bind_session, session_for};
use crate::process::trim_heap;
use crate::{BoardEngines, LoadedModel, Quiet, load_model};

/// Largest area in which a model is measured. It is mapped, and only what is touched is taken from the machine.
const MEASURING_BYTES_MAX: u64 = 4 << 30;
/// Runs of a measured model: ONNX Runtime plans its memory in the first, so later ones need more.
const RUNS: usize = 5;

/// What the process that measures is asked.
#[derive(Serialize, Deserialize)]
pub(super) struct MeasureRequest {
    pub(super) model: String,
    pub(super) batch: usize,
    pub(super) engines: Vec<String>,
    pub(super) threads: usize,
    pub(super) ort_library: Option<PathBuf>,
    pub(super) roots: Vec<PathBuf>,
    pub(super) data: Vec<PathBuf>,
}

/// What a model needs on this machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Measured {
    pub(super) engine: String,
    /// What stays: weights, and what the engine made of them.
    pub(super) weights_bytes: u64,
    /// The area in which it computes; 0 where the engine keeps that to itself, within `weights_bytes`.
    pub(super) scratch_bytes: u64,
    /// Inputs, then outputs; empty on the GPU, where they are part of what stays.
    pub(super) tensors: Vec<(String, u64)>,
    /// Beside all that, for a model that computes on the GPU.
    #[serde(default)]
    pub(super) on_device: Option<OnDevice>,
}

/// What a model needs on the GPU, and of the host's memory that the GPU maps. What the driver and its libraries take for
/// themselves is not in it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct OnDevice {
    /// What stays: weights, bound tensors, tables, places for frames.
    pub(super) kept_bytes: u64,
    /// The area in which it computes.
    pub(super) scratch_bytes: u64,
    /// Page-locked memory of the host.
    pub(super) pinned_bytes: u64,
}

/// Loads a model and runs it on noise, in this process, which does nothing else.
pub(super) fn measure(asked: &MeasureRequest) -> Result<Measured, Faults> {
    let wanted = BoardModel { batch: asked.batch, ..BoardModel::new(&*asked.model, &*asked.model) };
    let inference = Inference {
        engines: asked.engines.clone(),
        threads: asked.threads,
        ort_library: asked.ort_library.clone(),
        shared_scratch: true,
        ..Inference::default()
    };
    let repository = Repository { roots: asked.roots.clone(), data: asked.data.clone() };
    let engines = BoardEngines::new(&inference)?;
    let load = || load_model(&wanted, &engines, &repository, &Quiet);
    // What an engine sets up with its first model is there for all of them.
    load()?.chosen.session(TensorMemory::Host, None)?.run()?;
    trim_heap();
    let before = resident_bytes();
    let mut loaded = load()?;
    let area = MeasuringArea::map()?.for_model(&loaded)?;
    let scratch = &area.scratch;
    let mut session = session_for(&mut loaded, Some(scratch))?;
    if session.memory() == TensorMemory::Device {
        let _plan = executed_on_device(&loaded, session)?;
        area.check()?;
        return Ok(measured(&loaded, before, scratch, Vec::new()));
    }
    // The run that binds a plan keeps out of the scratch.
    session.run()?;
    fill_with_noise(&mut session.input(loaded.binding.input).host().data);
    for _ in 0..RUNS {
        session.run()?;
    }
    area.check()?;
    let prepared = &loaded.chosen.prepared;
    let mut tensors = Vec::new();
    for (index, input) in prepared.inputs().iter().enumerate() {
        let tensor = session.input(index).host();
        tensors.push((input.name.clone(), tensor_bytes(tensor.shape, tensor.data.element())));
    }
    for (index, output) in prepared.outputs().iter().enumerate() {
        let tensor = session.output(index).host();
        tensors.push((output.name.clone(), tensor_bytes(tensor.shape, tensor.data.element())));
    }
    Ok(measured(&loaded, before, scratch, tensors))
}

/// What a model has taken that has just run in `scratch`; `before` is what was resident before it was loaded.
fn measured(loaded: &LoadedModel, before: u64, scratch: &Scratch, tensors: Vec<(String, u64)>) -> Measured {
    let on_device = on_device(loaded, scratch);
    let used = scratch.usage().reach_bytes - scratch.device_usage().reach_bytes;
    let own: u64 = tensors.iter().map(|(_, bytes)| bytes).sum();
    trim_heap();
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
        Diagnosis::new(&codes::MEMORY_MEASURE, "the measuring area", cause, next)
    }

    /// The same with an area on the GPU for a model that computes there.
    fn for_model(self, loaded: &LoadedModel) -> Result<Self, Diagnosis> {
        if loaded.chosen.prepared.memory() == TensorMemory::Host {
            return Ok(self);
        }
        let scratch = self.scratch.with_device_measured(&loaded.chosen.context);
        let scratch = scratch.about(&codes::MEMORY_MEASURE, &loaded.name, "free some memory of the GPU")?;
        Ok(Self { scratch, ..self })
    }
}

#[cfg(not(feature = "cuda"))]
fn on_device(_: &LoadedModel, _: &Scratch) -> Option<OnDevice> {
    None
}

/// What this process holds of the GPU, for a model that computes there.
#[cfg(feature = "cuda")]
fn on_device(loaded: &LoadedModel, scratch: &Scratch) -> Option<OnDevice> {
    let AllocatedBytes { device_bytes, pinned_bytes } = allocated();
    (loaded.chosen.prepared.memory() == TensorMemory::Device).then(|| OnDevice {
        kept_bytes: device_bytes.saturating_sub(scratch.device_usage().in_use_bytes as u64),
        scratch_bytes: scratch.device_usage().reach_bytes as u64,
        pinned_bytes,
    })
}

/// A plan on the GPU as it is going to run, on frames that need as much room as most cameras' do, after so many replays.
fn executed_on_device(
    loaded: &LoadedModel,
    session: Box<dyn Session>,
) -> Result<Box<dyn Executor>, Diagnosis> {
    let mut plan = bind_session(loaded, session, Arc::new(MonotonicClock::default()))?;
    let frames: Vec<Frame> = (0..plan.batch_max()).map(|_| noise_frame()).collect();
    let mut results = vec![InferenceResult::default(); frames.len()];
    for _ in 0..RUNS {
        plan.execute(&frames, &mut results)?;
    }
    Ok(plan)
}

/// A Full HD frame of noise.
fn noise_frame() -> Frame {
    let desc = FrameDesc::packed(PixelFormat::Nv12, 1920, 1080);
    let mut slot = SlotPool::new(1, desc.bytes_needed()).try_take().expect("it is free");
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
    use std::process::Command;

    use orinoco_pipeline::Stop;

    use super::*;
    use crate::planning::child::{ChildEnd, MEASURE_MAX, output_within};

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
        let name = "planning::measure::tests::the_area_for_measuring_fits_the_limits_of_its_process";
        // `ulimit -v` counts in KiB: 1.5 GiB, of which the test's own process takes some.
        let script = "ulimit -v 1572864 && exec \"$0\" --exact --nocapture \"$1\"";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(program).arg(name).env(AREA_CHILD, "1");
        let clock: Arc<dyn orinoco_core::Clock> = Arc::new(MonotonicClock::default());
        let end = output_within(&mut command, MEASURE_MAX, &Stop::default(), &clock).expect("it starts");
        let ChildEnd::Done(output) = end else { panic!("it ends by itself") };
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        let area = text.split("area ").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        let area: u64 = area.unwrap_or_else(|| panic!("no size in {text}"));
        assert!((64 << 20..768 << 20).contains(&area), "{area}");
    }
}
