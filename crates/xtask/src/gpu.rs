//! Tests on this machine's GPU. The other tests skip what needs one.

use anyhow::{Context, Result};

use crate::steps::{Outcome, command, report, skip, step};
use crate::workspace::target_dir;

/// NVIDIA's checker of memory accesses in kernels. With one test at a time, because it serialises launches anyway.
const SANITIZER: &str = "compute-sanitizer";

pub(crate) fn test() -> Result<()> {
    let mut outcomes =
        vec![step("build", command(&["cargo", "build", "--release", "--workspace", "--all-targets"]))?];
    let orinoco = target_dir().join("release/orinoco");
    let orinoco = orinoco.to_str().context("the build folder's path is not UTF-8")?;
    let measured = step("captured graphs and preprocessing", command(&[orinoco, "bench", "graph"]));
    outcomes.push(measured.context("the tests of this target need an NVIDIA GPU with its driver")?);
    outcomes.push(step("kernels and driver", tests(&["device", "kernels"]))?);
    outcomes.push(sanitizer()?);
    outcomes.push(step("plans on the GPU", tests(&["cuda"]))?);
    let has_engine =
        step("ort-cuda", command(&[orinoco, "models", "check", "--engine", "ort-cuda", "person-nano"]));
    outcomes.push(match has_engine {
        Ok(_) => step("models and operators on ort-cuda", tests(&["conformance", "nodes"]))?,
        Err(_) => skip(
            "models and operators on ort-cuda",
            "ort-cuda was refused, see above; ORT_DYLIB_PATH names a build of ONNX Runtime with CUDA",
        ),
    });
    report(&outcomes);
    Ok(())
}

/// The tests with these names, and what they print.
fn tests(names: &[&str]) -> std::process::Command {
    let mut tests = command(&["cargo", "test", "--release", "--workspace"]);
    tests.args(names.iter().flat_map(|name| ["--test", name])).args(["--", "--nocapture"]);
    tests
}

/// The tests of the kernels with every memory access checked.
fn sanitizer() -> Result<Outcome> {
    const TITLE: &str = "memory accesses of the kernels";
    if command(&[SANITIZER, "--version"]).output().is_err() {
        return Ok(skip(TITLE, "compute-sanitizer of the CUDA toolkit is not installed"));
    }
    let mut checked = tests(&["kernels"]);
    checked.arg("--test-threads=1");
    let runner = format!("CARGO_TARGET_{}_UNKNOWN_LINUX_GNU_RUNNER", std::env::consts::ARCH.to_uppercase());
    checked.env(runner, format!("{SANITIZER} --tool memcheck --error-exitcode 1"));
    step(TITLE, checked)
}
