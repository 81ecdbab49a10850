//! Tests that need a GPU. Without one, `make test` skips them.

use anyhow::{Context, Result};

use crate::steps::{Outcome, command, report, skip, step};
use crate::workspace::target_dir;

/// NVIDIA's checker of memory accesses in kernels, on the path or where the CUDA toolkit puts it.
const SANITIZERS: [&str; 2] = ["compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer"];

pub(crate) fn test() -> Result<()> {
    let mut outcomes =
        vec![step("build", command(&["cargo", "build", "--release", "--workspace", "--all-targets"]))?];
    let orinoco = target_dir().join("release/orinoco");
    let orinoco = orinoco.to_str().context("the build folder's path is not UTF-8")?;
    let measured = step("captured graphs and preprocessing", command(&[orinoco, "bench", "graph"]));
    outcomes.push(measured.context("`make test-gpu` needs an NVIDIA GPU and its driver")?);
    outcomes.push(step("kernels and driver", tests(&["device", "kernels"]))?);
    outcomes.push(step("transfers between ranks with GPU memory", tests(&["transfers"]))?);
    outcomes.push(sanitizer()?);
    outcomes.push(step("pipelines on the GPU", tests(&["cuda"]))?);
    let check = command(&[orinoco, "models", "check", "--engine", "ort-cuda", "person-nano"]);
    let checked = step("ort-cuda", check);
    outcomes.push(
        checked.context("`make test-gpu` needs an ONNX Runtime with CUDA, which ORT_DYLIB_PATH can name")?,
    );
    outcomes.push(step("models and operators on ort-cuda", tests(&["conformance", "nodes"]))?);
    report(&outcomes);
    Ok(())
}

/// The tests with these names, and what they print.
fn tests(names: &[&str]) -> std::process::Command {
    let mut tests = command(&["cargo", "test", "--release", "--workspace"]);
    tests.args(names.iter().flat_map(|name| ["--test", name])).args(["--", "--nocapture"]);
    tests
}

/// The tests of the kernels with every memory access checked, one at a time: launches are serialised anyway.
fn sanitizer() -> Result<Outcome> {
    const TITLE: &str = "memory accesses of the kernels";
    let is_here = |sanitizer: &&str| command(&[sanitizer, "--version"]).output().is_ok();
    let Some(sanitizer) = SANITIZERS.into_iter().find(is_here) else {
        return Ok(skip(TITLE, "compute-sanitizer of the CUDA toolkit was not found"));
    };
    let mut checked = tests(&["kernels"]);
    checked.arg("--test-threads=1");
    let runner = format!("CARGO_TARGET_{}_UNKNOWN_LINUX_GNU_RUNNER", std::env::consts::ARCH.to_uppercase());
    checked.env(runner, format!("{sanitizer} --tool memcheck --error-exitcode 1"));
    step(TITLE, checked)
}
