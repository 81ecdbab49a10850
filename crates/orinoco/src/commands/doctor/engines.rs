//! Check of the engines: each computes a small graph whose result is known.

use std::path::Path;

use orinoco_api::{MachinePart, PartState};
use orinoco_core::{Clock, ComputeUnit};
use orinoco_infer::{
    ENGINES, Elements, ElementsMut, Engine, EngineContext, EngineError, SessionSpec, engines,
};

use super::advice::System;
use super::check::{Fix, Group, part, with_fix};

/// Graph of the probe inference: a convolution of 4 x 4 numbers with a kernel of 3 x 3 ones and the bias -50, then ReLU. The test
/// `doctor` of the end-to-end tests writes the same file.
pub(super) const GRAPH: &[u8] = include_bytes!("probe/conv.onnx");

/// Result for the numbers from 0 to 15: the sums 45, 54, 81 and 90 of the four windows, less 50, and at least 0.
const EXPECTED: [f32; 4] = [0.0, 4.0, 31.0, 40.0];

/// Checks every engine with the graph in the file `graph`, and the GPU.
pub(super) fn checks(
    graph: &Path,
    context: &EngineContext,
    system: &System,
    clock: &dyn Clock,
) -> Vec<MachinePart> {
    let built = engines();
    let engine = |name: &&'static str| match built.iter().find(|engine| engine.name() == *name) {
        Some(engine) => check(*engine, graph, context, system, clock),
        None => part(Group::Engines, "engine", *name, PartState::Missing, "this binary was built without it"),
    };
    ENGINES.iter().map(engine).chain(gpu()).collect()
}

fn check(
    engine: &dyn Engine,
    graph: &Path,
    context: &EngineContext,
    system: &System,
    clock: &dyn Clock,
) -> MachinePart {
    let report = |state, says: String| part(Group::Engines, "engine", engine.name(), state, says);
    let info = match engine.check(context) {
        Ok(info) => info,
        Err(why) => {
            let state = if is_missing(&why) { PartState::Missing } else { PartState::Broken };
            return with_fix(report(state, why), fix(engine, context, system));
        }
    };
    let start = clock.now();
    match infer(engine, graph, context) {
        Ok(()) => {
            let ms = clock.now().since(start).as_secs_f64() * 1000.0;
            let library = info.library.map_or_else(String::new, |path| format!(" ({})", path.display()));
            report(PartState::Ok, format!("{}{library}, probe inference correct, {ms:.1} ms", info.version))
        }
        Err(why) => report(PartState::Broken, format!("{}: the probe inference failed: {why}", info.version)),
    }
}

/// Returns the correction for an engine that cannot run here.
pub(super) fn fix(engine: &dyn Engine, context: &EngineContext, system: &System) -> Fix {
    // A GPU, or the build of ONNX Runtime for one, is not brought by a command that was checked.
    if engine.uses_onnx_runtime() && engine.compute_unit() == ComputeUnit::Cpu {
        system.onnx_runtime(context.cache().ok().map(|cache| cache.folder()))
    } else {
        Fix::default()
    }
}

/// Returns whether an engine's reason is that a part of it is not here.
fn is_missing(why: &str) -> bool {
    const MISSING: [&str; 3] = ["no usable", "no CUDA", "No such file"];
    MISSING.iter().any(|text| why.contains(text))
}

/// Loads the graph, computes it once, and compares the result.
fn infer(engine: &dyn Engine, graph: &Path, context: &EngineContext) -> Result<(), String> {
    let cause = |why: EngineError| why.diagnosis(graph).cause;
    let prepared = engine.prepare(graph, context).map_err(cause)?;
    let shapes = [vec![1, 1, 4, 4]];
    let mut session = prepared.session(&SessionSpec::new(&shapes)).map_err(cause)?;
    match session.input(0).host().data {
        ElementsMut::F32(numbers) => numbers.iter_mut().enumerate().for_each(|(index, x)| *x = index as f32),
        other => return Err(format!("its input is not f32: {other:?}")),
    }
    session.run().map_err(cause)?;
    match session.output(0).host().data {
        Elements::F32(found) if found == EXPECTED => Ok(()),
        found => Err(format!("it computed {found:?}, expected {EXPECTED:?}")),
    }
}

#[cfg(feature = "cuda")]
fn gpu() -> Option<MachinePart> {
    Some(match orinoco_cuda::Device::open(0) {
        Ok(device) => {
            let info = device.info();
            let says = format!("{}, driver for CUDA {}.{}", info.sm, info.driver.0, info.driver.1);
            part(Group::Engines, "gpu", info.name.clone(), PartState::Ok, says)
        }
        Err(why) => part(Group::Engines, "gpu", "cuda", PartState::Missing, why.to_string()),
    })
}

#[cfg(not(feature = "cuda"))]
fn gpu() -> Option<MachinePart> {
    None
}
