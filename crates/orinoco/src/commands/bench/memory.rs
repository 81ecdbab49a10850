//! `orinoco bench memory`: memory of models that share one scratch area on a lane, compared with the same models in separate
//! sessions. Each mode runs in its own process.

use std::ffi::OsString;
use std::path::PathBuf;

use orinoco_api::{MEMORY_BENCH_SCHEMA, MemoryBench, MemoryRatios, ModelScratch};
use orinoco_config::Faults;
use orinoco_core::{ComputeUnit, Diagnosis, Exit, WithSubject, codes};
use orinoco_infer::{
    Elements, Engine, EngineContext, EngineError, Options, ProbeInputs, Scratch, Session, SessionSpec,
    engines, stray_requests,
};
use orinoco_memory::Usage;
use orinoco_runtime::{repository, resident_bytes, trim_heap};
use serde::{Deserialize, Serialize};

use super::child::{place_arguments, run_bench};
use super::{median, noise};
use crate::args::{BenchMemoryArgs, BenchMemoryChildArgs, MemoryMode};
use crate::output::{self, mebibytes};

/// Size of the scratch area in which a model is measured alone. It is only mapped: untouched pages take no memory.
const MEASURING_BYTES: usize = 4 << 30;
/// Number of runs of each model. ONNX Runtime plans its memory in the first run, so later runs need more.
const RUNS: usize = 5;

/// Report of a measuring child process.
#[derive(Deserialize, Serialize)]
struct ChildReport {
    growth_bytes: u64,
    reach_bytes: u64,
    refused: u64,
    stray: u64,
    /// Checksum of all outputs of all models in all runs.
    outputs: Vec<u64>,
}

pub(crate) fn run(args: &BenchMemoryArgs, json: bool) -> Result<Exit, Faults> {
    let alone =
        |model: &String| child(args, MemoryMode::Shared, std::slice::from_ref(model), MEASURING_BYTES);
    let alone = args.model.iter().map(alone).collect::<Result<Vec<_>, _>>()?;
    let planned = alone.iter().map(|told| told.reach_bytes).max().unwrap_or(0);
    let bytes = usize::try_from(planned).expect("it was mapped before");
    let (mut separate, mut shared) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        separate.push(child(args, MemoryMode::Separate, &args.model, 0)?);
        shared.push(child(args, MemoryMode::Shared, &args.model, bytes)?);
    }
    let growth = |told: &[ChildReport]| median(told.iter().map(|told| told.growth_bytes as f64).collect());
    let ratio = |(separate, shared): (&ChildReport, &ChildReport)| {
        shared.growth_bytes as f64 / separate.growth_bytes as f64
    };
    let activation_ratio = median(separate.iter().zip(&shared).map(ratio).collect());
    let used = shared.iter().map(|told| told.reach_bytes).max().unwrap_or(0);
    let report = MemoryBench {
        schema: MEMORY_BENCH_SCHEMA.to_owned(),
        rounds: args.rounds,
        models: (args.model.iter().zip(&alone))
            .map(|(model, told)| ModelScratch { model: model.clone(), scratch_bytes: told.reach_bytes })
            .collect(),
        scratch_bytes: planned,
        scratch_used_bytes: used,
        separate_growth_bytes: growth(&separate) as u64,
        shared_growth_bytes: growth(&shared) as u64,
        outputs_equal: separate.iter().zip(&shared).all(|(a, b)| a.outputs == b.outputs),
        requests_outside: shared.iter().map(|told| told.refused + told.stray).sum(),
        ratios: MemoryRatios {
            activation_ratio: activation_ratio.is_finite().then_some(activation_ratio),
            scratch_to_largest: used as f64 / planned.max(1) as f64,
        },
    };
    if json {
        output::print_json(&report);
    } else {
        output::print(&text(&report));
    }
    let sound = report.outputs_equal && report.requests_outside == 0;
    Ok(if sound { Exit::Done } else { Exit::CheckFailed })
}

fn text(report: &MemoryBench) -> String {
    let row = |name: &str, bytes: u64| vec![name.to_owned(), mebibytes(bytes)];
    let mut rows: Vec<Vec<String>> = report
        .models
        .iter()
        .map(|model| row(&format!("scratch of {}", model.model), model.scratch_bytes))
        .collect();
    rows.push(row("scratch of the shared area", report.scratch_bytes));
    rows.push(row("growth with separate memory", report.separate_growth_bytes));
    rows.push(row("growth with the shared area", report.shared_growth_bytes));
    let ratio = report.ratios.activation_ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"));
    rows.push(vec!["ratio".to_owned(), ratio]);
    let equal = if report.outputs_equal { "yes, bit for bit" } else { "NO" };
    rows.push(vec!["outputs are equal".to_owned(), equal.to_owned()]);
    rows.push(vec!["allocations that did not fit".to_owned(), report.requests_outside.to_string()]);
    output::table(&["", ""], 1, rows)
}

/// Runs the models in a separate process, and returns its report.
fn child(
    args: &BenchMemoryArgs,
    mode: MemoryMode,
    models: &[String],
    scratch: usize,
) -> Result<ChildReport, Diagnosis> {
    let mut arguments: Vec<OsString> = ["memory-child", "--mode", mode.name()].map(Into::into).to_vec();
    arguments.extend(["--scratch".into(), scratch.to_string().into()]);
    arguments.extend(["--threads".into(), args.threads.to_string().into()]);
    arguments.extend(place_arguments(&args.place));
    arguments.extend(models.iter().flat_map(|model| ["--model".into(), model.into()]));
    run_bench("orinoco bench memory", &models.join(", "), &arguments)
}

/// Measures in the process that [`child`] starts.
pub(crate) fn run_child(args: &BenchMemoryChildArgs) -> Result<Exit, Faults> {
    let shared = args.mode == MemoryMode::Shared;
    let options =
        Options { threads: usize::from(args.threads), shared_scratch: shared, ..Options::default() };
    let context = EngineContext::new(options);
    let scratch = shared.then(|| Scratch::new(args.scratch)).transpose().map_err(|why| why.to_string());
    let scratch = scratch.about(&codes::ENGINE_RUN, "the scratch area", "free some memory")?;
    let mut sessions = Vec::new();
    for name in &args.model {
        sessions.push(open(name, args, &context, scratch.as_ref())?);
    }
    let before = resident_bytes();
    let mut outputs = vec![0; sessions.len()];
    for run in 0..RUNS {
        if run == 1 {
            // The first runs bind the models and are not part of the steady state.
            trim_heap();
        }
        for (OpenModel { file, session, outputs: count }, sum) in sessions.iter_mut().zip(&mut outputs) {
            session.run().map_err(|why| why.diagnosis(file))?;
            (0..*count).for_each(|index| add(sum, &session.output(index).host().data));
        }
    }
    let growth_bytes = resident_bytes().saturating_sub(before);
    let usage = scratch.map_or_else(Usage::default, |scratch| scratch.usage());
    output::print_json(&ChildReport {
        growth_bytes,
        reach_bytes: usage.reach_bytes as u64,
        refused: usage.refused,
        stray: stray_requests(),
        outputs,
    });
    Ok(Exit::Done)
}

/// Model with a session.
struct OpenModel {
    file: PathBuf,
    session: Box<dyn Session>,
    /// Number of its outputs.
    outputs: usize,
}

/// Creates a session that has not run yet, with noise in its inputs.
fn open(
    name: &str,
    args: &BenchMemoryChildArgs,
    context: &EngineContext,
    scratch: Option<&Scratch>,
) -> Result<OpenModel, Faults> {
    let place = repository(args.place.models.as_deref(), args.place.data.as_deref());
    let next = "name a model that has a model.toml";
    let model = place.describe(name)?.ok_or("it has no description");
    let model = model.about(&codes::MODEL_UNSUPPORTED, name, next)?;
    let is_measured =
        |engine: &&dyn Engine| engine.computes_in_scratch() && engine.compute_unit() == ComputeUnit::Cpu;
    let engine = engines().into_iter().find(is_measured).expect("every build has ONNX Runtime on the CPU");
    let failed = |why: EngineError| why.diagnosis(&model.file);
    let prepared = engine.prepare(&model.file, context).map_err(failed)?;
    let binding = model.bind(prepared.inputs(), prepared.outputs(), 1)?;
    let scratch = scratch.map(|scratch| (scratch, name));
    let wanted = SessionSpec { scratch, ..SessionSpec::new(&binding.shapes) };
    let mut session = prepared.session(&wanted).map_err(failed)?;
    ProbeInputs::new(&model, &binding).write_constants(session.as_mut());
    let mut input = session.input(binding.input).host().data;
    let values: Vec<f32> = (0..input.len()).map(|index| f32::from(noise(index)) / 255.0).collect();
    input.copy_from_f32(&values);
    Ok(OpenModel { session, outputs: prepared.outputs().len(), file: model.file })
}

/// Adds a tensor to a checksum (FNV-1a, by words).
fn add(sum: &mut u64, data: &Elements<'_>) {
    let mut values = Vec::new();
    data.to_f32(&mut values);
    for value in values {
        *sum = (*sum ^ u64::from(value.to_bits())).wrapping_mul(0x0100_0000_01b3);
    }
}
