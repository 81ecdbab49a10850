//! The Python package of the collective operations: its wheels, its tests, and PyTorch's own tests of the operations that Gloo has.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::steps::{Outcome, command, step};
use crate::workspace::root;

/// Variable of the environment with a Python that has the packages already.
const PYTHON: &str = "ORINOCO_PYTHON";
/// Packages that the tests need, for building and running.
const PACKAGES: &[&str] =
    &["maturin>=1.7,<2", "cffi>=1.15", "pytest", "numpy", "expecttest", "hypothesis", "torch>=2.4"];

/// Builds the wheel, installs it, and runs the tests. Builds the wheel for aarch64, too, where that is possible.
pub(crate) fn test() -> Result<()> {
    let python = python()?;
    let folder = root().join("crates/orinoco-collective-c");
    let wheels = root().join("target/wheels");
    let mut build = run(&python, &["-m", "maturin", "build", "--release", "--quiet", "--out"]);
    build.arg(&wheels).current_dir(&folder);
    step("wheel", build)?;
    let mut install = run(&python, &["-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps"]);
    install.arg(newest_wheel(&wheels)?);
    step("installation", install)?;
    let cross = with_programs_of(&python, command(&["cross/wheel.sh"]));
    step("wheel for aarch64", cross)?;
    let mut tests = run(&python, &["-m", "pytest", "-q"]);
    tests.args([folder.join("python/tests/test_group.py"), folder.join("python/tests/test_torch.py")]);
    // PyTorch must not be found in the current folder.
    tests.current_dir(&wheels);
    step("Python package", tests)?;
    let mut suite = run(&python, &["-m", "pytest", "-q", "-p", "no:cacheprovider"]);
    suite.arg(folder.join("python/tests/torch_suite.py")).current_dir(&wheels);
    step("PyTorch's tests of collective operations", suite)?;
    Ok(())
}

/// The Python to use: the one that is named, or a virtual environment of our own.
fn python() -> Result<PathBuf> {
    if let Some(python) = std::env::var_os(PYTHON) {
        return Ok(PathBuf::from(python));
    }
    let environment = root().join("target/torch");
    let python = environment.join("bin/python");
    if !python.exists() {
        let mut make = command(&["python3", "-m", "venv"]);
        make.arg(&environment);
        step("virtual environment", make)?;
    }
    let mut install = run(&python, &["-m", "pip", "install", "--quiet"]);
    install.args(PACKAGES);
    match step("packages (PyTorch has some GB)", install)? {
        Outcome::Passed => Ok(python),
        Outcome::Skipped => bail!("the packages are not there; set {PYTHON} to a Python that has them"),
    }
}

/// Python with its own programs first in the path, which maturin needs.
fn run(python: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(python);
    command.args(words).current_dir(root());
    with_programs_of(python, command)
}

/// A command with the programs of a Python first in the path.
fn with_programs_of(python: &Path, mut command: Command) -> Command {
    if let Some(folder) = python.parent() {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
        if let Ok(joined) = std::env::join_paths(paths) {
            command.env("PATH", joined);
        }
    }
    command
}

fn newest_wheel(folder: &Path) -> Result<PathBuf> {
    let files = folder.read_dir().with_context(|| format!("reading {}", folder.display()))?;
    let wheels = files.filter_map(Result::ok).map(|file| file.path());
    let wheels = wheels.filter(|path| path.extension().is_some_and(|extension| extension == "whl"));
    let newest = wheels.max_by_key(|path| path.metadata().and_then(|metadata| metadata.modified()).ok());
    newest.with_context(|| format!("there is no wheel in {}", folder.display()))
}
