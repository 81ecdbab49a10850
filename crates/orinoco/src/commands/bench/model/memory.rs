//! Memory of a model: of a separate process that loads and runs it alone.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use orinoco_api::CardMemory;
use orinoco_config::Faults;
use orinoco_core::{Clock, Diagnosis, Exit};
use orinoco_model::ModelInput;
use orinoco_pipeline::MonotonicClock;
use orinoco_runtime::{BoardEngines, Quiet, peak_bytes, repository, resident_bytes, trim_heap};

use super::super::child::{place_arguments, run_bench};
use super::subject::{Input, Subject, inference_on, load};
use crate::args::BenchModelArgs;
use crate::output;

/// Number of inferences. ONNX Runtime plans its memory in the first one, so later ones need more.
const RUNS: usize = 10;

/// Measures the model on `engine` in a separate process.
pub(super) fn measure(args: &BenchModelArgs, model: &str, engine: &str) -> Result<CardMemory, Diagnosis> {
    let mut arguments: Vec<OsString> = ["model-child", model, "--engine", engine].map(Into::into).to_vec();
    arguments
        .extend(args.threads.iter().flat_map(|threads| ["--threads".into(), threads.to_string().into()]));
    arguments.extend(place_arguments(&args.place));
    run_bench("orinoco bench model", model, &arguments)
}

/// Measures in the process that [`measure`] starts.
pub(crate) fn run_child(args: &BenchModelArgs) -> Result<Exit, Faults> {
    let place = repository(args.place.models.as_deref(), args.place.data.as_deref());
    let (model, engine) =
        (args.model.as_deref().unwrap_or_default(), args.engine.first().map(String::as_str));
    // The engine's library is code that all of its models share.
    let engines = BoardEngines::new(&inference_on(engine, args.threads)?)?;
    for engine in engines.order.engines() {
        let _ = engine.check(&engines.context);
    }
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
    // A frame belongs to its source.
    let frame = Input::of(&[], &*clock)?;
    let before = resident_bytes();
    let loaded = load(args, model, engine, 1, &place, &Quiet)?;
    let input = match loaded.model.input {
        ModelInput::Image(_) => frame,
        ModelInput::Audio(_) => Input::Sound,
    };
    let mut subject = Subject::bind(loaded, Duration::ZERO, &input, &clock)?;
    for _ in 0..RUNS {
        subject.execute()?;
    }
    let process_peak = peak_bytes();
    trim_heap();
    output::print_json(&CardMemory {
        peak: process_peak.saturating_sub(before),
        steady: resident_bytes().saturating_sub(before),
        process_peak,
        device_peak: device_peak(&subject),
    });
    Ok(Exit::Done)
}

#[cfg(feature = "cuda")]
fn device_peak(subject: &Subject) -> Option<u64> {
    subject.is_on_gpu().then(orinoco_infer::device_peak_bytes)
}

#[cfg(not(feature = "cuda"))]
fn device_peak(_: &Subject) -> Option<u64> {
    None
}
