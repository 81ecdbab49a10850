//! Measurement of a model, in a process that does nothing else.

use std::path::PathBuf;
use std::sync::Arc;

use orinoco_board::{BoardModel, Inference};
use orinoco_config::Faults;
use orinoco_core::{
    Diagnosis, ElementType, FrameDesc, InferenceResult, Nanos, PixelFormat, WithSubject, codes,
};
#[cfg(feature = "cuda")]
use orinoco_infer::{AllocatedBytes, allocated, device_peak_bytes};
use orinoco_infer::{ElementsMut, EngineError, Scratch, Session, TensorMemory};
use orinoco_memory::{Domain, Mib};
use orinoco_model::Repository;
use orinoco_pipeline::{Executor, Frame, MonotonicClock, Slot, SlotPool};
use serde::{Deserialize, Serialize};

use crate::available::{Available, available};
use crate::memory::{peak_bytes, reset_peak, resident_bytes};
use crate::models::{bind_session, session_for};
use crate::process::trim_heap;
use crate::scratch_size::ScratchSize;
use crate::{BoardEngines, LoadedModel, Quiet, load_model};

/// Maximum size of the area in which a model is measured, in bytes. The area is mapped, and only touched pages take memory.
const MEASURING_BYTES_MAX: u64 = 4 << 30;
/// Number of runs of a measured model: ONNX Runtime plans its memory in the first one, so later ones need more.
const RUNS: usize = 5;

/// Request to the process that measures.
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

/// Memory that a model needs on this machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(super) engine: String,
    /// Bytes that stay allocated: weights, and the data that the engine made of them.
    pub(super) weights_bytes: u64,
    /// Bytes of scratch memory; 0 if the engine allocates it itself, as a part of `weights_bytes`.
    pub(super) scratch_bytes: u64,
    /// Names and bytes of the inputs, then of the outputs; empty on the GPU, where they are part of the memory that stays.
    pub(super) tensors: Vec<(String, u64)>,
    /// Resident bytes that loading, probing and binding took at their peak, in addition to the memory that stays. Scratch
    /// memory is not counted: nothing computes in it before the model is bound.
    pub(super) building_bytes: u64,
    /// Memory in addition to all that, if the model computes on the GPU.
    #[serde(default)]
    pub(super) on_device: Option<OnDevice>,
}

/// Memory that a model needs on the GPU, and host memory that the GPU maps. Memory of the driver and its libraries is not
/// counted.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct OnDevice {
    /// Bytes that stay allocated: weights, bound tensors, tables, buffers for frames.
    pub(super) kept_bytes: u64,
    /// Bytes of scratch memory.
    pub(super) scratch_bytes: u64,
    /// Page-locked bytes of host memory.
    pub(super) pinned_bytes: u64,
    /// Peak of allocated bytes, in addition to the memory that stays and the scratch memory.
    pub(super) building_bytes: u64,
}

impl Measured {
    /// Returns the needs of a model that another seat executes: none on this board.
    pub(super) fn of_seat() -> Self {
        let (weights_bytes, scratch_bytes, building_bytes) = (0, 0, 0);
        let (engine, tensors) = ("cluster".to_owned(), Vec::new());
        Self { engine, weights_bytes, scratch_bytes, tensors, building_bytes, on_device: None }
    }

    /// Returns the size of the scratch memory that the model needs.
    pub(crate) fn scratch_size(&self) -> ScratchSize {
        let device_bytes = self.on_device.map_or(0, |device| device.scratch_bytes);
        ScratchSize { host_bytes: self.scratch_bytes, device_bytes }
    }

    /// Returns the bytes that building the model takes temporarily, in addition to the memory that stays.
    pub(crate) fn building(&self) -> Vec<(Domain, u64)> {
        let on_device = self.on_device.map_or(0, |device| device.building_bytes);
        vec![(Domain::Host, self.building_bytes), (Domain::Device, on_device)]
    }

    /// Returns the bytes that loading and probing the model takes temporarily if no stream uses it, so that none of its
    /// memory stays.
    pub(crate) fn proving(&self) -> Vec<(Domain, u64)> {
        let mut bytes = self.building();
        let tensors = self.tensors.iter().map(|(_, bytes)| bytes).sum();
        bytes.extend([(Domain::Host, self.weights_bytes), (Domain::Host, tensors)]);
        if let Some(OnDevice { kept_bytes, pinned_bytes, .. }) = self.on_device {
            bytes.extend([(Domain::Pinned, pinned_bytes), (Domain::Device, kept_bytes)]);
        }
        bytes
    }
}

#[cfg(test)]
impl Measured {
    /// Makes the figures of a model on the CPU, in bytes.
    pub(crate) fn on_host(weights_bytes: u64, scratch_bytes: u64, building_bytes: u64) -> Self {
        let (engine, tensors) = ("tract".to_owned(), Vec::new());
        Self { engine, weights_bytes, scratch_bytes, tensors, building_bytes, on_device: None }
    }
}

/// Executes a model once, and drops it.
fn run_once(mut loaded: LoadedModel) -> Result<(), Diagnosis> {
    let ran = loaded.chosen.session(TensorMemory::Host, None).and_then(|mut session| session.run());
    ran.map_err(|why| why.diagnosis(&loaded.model.file))
}

/// Loads a model and runs it on noise, in this process, which does nothing else.
pub(super) fn measure(asked: &MeasureRequest) -> Result<Measured, Faults> {
    let wanted = BoardModel { batch: asked.batch, ..BoardModel::new(&*asked.model, &*asked.model) };
    let inference = Inference {
        threads: asked.threads,
        ort_library: asked.ort_library.clone(),
        shared_scratch: true,
        ..Inference::new(asked.engines.clone())
    };
    let repository = Repository { roots: asked.roots.clone(), data: asked.data.clone() };
    let engines = BoardEngines::new(&inference)?;
    let load = || load_model(&wanted, &engines, &repository, &Quiet);
    // Memory that an engine sets up with its first model is shared by all models, and is not counted.
    run_once(load()?)?;
    trim_heap();
    let before = resident_bytes();
    reset_peak();
    let mut loaded = load()?;
    let area = MeasuringArea::map()?.for_model(&loaded)?;
    let scratch = &area.scratch;
    let mut session = session_for(&mut loaded, Some(scratch))?;
    if session.memory() == TensorMemory::Device {
        let _plan = executed_on_device(&loaded, session)?;
        area.check()?;
        let growth = Growth { before, peak: peak_bytes() };
        return Ok(measured(&loaded, growth, scratch, Vec::new()));
    }
    let failed = |why: EngineError| why.diagnosis(&loaded.model.file);
    // The run that binds a plan does not compute in the scratch area.
    session.run().map_err(failed)?;
    let growth = Growth { before, peak: peak_bytes() };
    fill_with_noise(&mut session.input(loaded.binding.input).host().data);
    for _ in 0..RUNS {
        session.run().map_err(failed)?;
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
    Ok(measured(&loaded, growth, scratch, tensors))
}

/// Resident bytes of this process while a model is built.
#[derive(Clone, Copy)]
struct Growth {
    /// Resident bytes before the model was loaded.
    before: u64,
    /// Resident bytes at the peak of loading and binding it.
    peak: u64,
}

/// Returns the memory of a model that has just run in `scratch`.
fn measured(
    loaded: &LoadedModel,
    growth: Growth,
    scratch: &Scratch,
    tensors: Vec<(String, u64)>,
) -> Measured {
    let on_device = on_device(loaded, scratch);
    let used = scratch.usage().reach_bytes - scratch.device_usage().reach_bytes;
    let own: u64 = tensors.iter().map(|(_, bytes)| bytes).sum();
    trim_heap();
    let grown = resident_bytes().saturating_sub(growth.before);
    // A driver may map pinned memory so that it is resident, too. It then counts twice here.
    let weights_bytes = grown.saturating_sub(used as u64 + own);
    Measured {
        engine: loaded.chosen.name.to_owned(),
        weights_bytes,
        building_bytes: growth.peak.saturating_sub(growth.before + weights_bytes + own),
        scratch_bytes: used as u64,
        tensors,
        on_device,
    }
}

/// Area in which a model is measured, and the bound on its size.
struct MeasuringArea {
    scratch: Scratch,
    available: Option<Available>,
}

impl MeasuringArea {
    /// Maps as much as this process may take, and no more than the largest model needs.
    fn map() -> Result<Self, Diagnosis> {
        Self::within(available())
    }

    fn within(available: Option<Available>) -> Result<Self, Diagnosis> {
        let bytes = available.as_ref().map_or(MEASURING_BYTES_MAX, |available| available.bytes);
        // The area has at least a page: a model whose engine allocates its own memory needs none of it.
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

    /// Returns a fault if the model requested more than the area has: its needs are then unknown.
    fn check(&self) -> Result<(), Diagnosis> {
        match self.scratch.usage().refused {
            0 => Ok(()),
            _ => {
                let area = Mib(self.scratch.bytes() as u64);
                let cause =
                    format!("it needs more scratch memory than the {area} MiB that could be reserved");
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

    /// Adds an area on the GPU, for a model that computes there.
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

/// Returns the GPU memory of this process, if the model computes there.
#[cfg(feature = "cuda")]
fn on_device(loaded: &LoadedModel, scratch: &Scratch) -> Option<OnDevice> {
    let AllocatedBytes { device_bytes, pinned_bytes } = allocated();
    let usage = scratch.device_usage();
    let kept_bytes = device_bytes.saturating_sub(usage.in_use_bytes as u64);
    let scratch_bytes = usage.reach_bytes as u64;
    (loaded.chosen.prepared.memory() == TensorMemory::Device).then(|| OnDevice {
        kept_bytes,
        scratch_bytes,
        pinned_bytes,
        // The measured area grows range by range, but a planned area has its whole size from the start.
        building_bytes: device_peak_bytes().saturating_sub(kept_bytes + scratch_bytes),
    })
}

/// Binds and executes a plan on the GPU as it will run: several times, on frames as large as those of most cameras.
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

/// Makes a Full HD frame of noise.
fn noise_frame() -> Frame {
    let desc = FrameDesc::packed(PixelFormat::Nv12, 1920, 1080);
    let mut slot = SlotPool::new(1, desc.bytes_needed()).try_take().expect("it is free");
    slot.bytes.iter_mut().enumerate().for_each(|(index, byte)| *byte = (noise(index) * 255.0) as u8);
    Frame::new(desc, Slot::Owned(slot), Nanos(0)).expect("it has room")
}

fn tensor_bytes(shape: &[usize], element: ElementType) -> u64 {
    (shape.iter().product::<usize>() * element.bytes()) as u64
}

/// Fills an input with noise from 0 to 1 (Knuth's multiplicative hash of the index): zeros might need less memory.
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

    /// Variable that is set where the next test runs itself: it prints the size of the area.
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
        // `ulimit -v` counts in KiB: 1.5 GiB, of which the test's own process takes a part.
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
