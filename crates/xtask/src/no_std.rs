//! Builds of the crates for microcontrollers, and the size of the example firmware.
//!
//! It needs the standard library's `core` for two targets. Where it is not installed, rustup is asked for it; where
//! rustup cannot, cargo builds it from its sources (`-Zbuild-std`, rustup's component `rust-src` or Debian's
//! `rust-web-src`).

mod elf;

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::steps::{Outcome, command, skip, step};
use crate::workspace::target_dir;
use elf::Sizes;

/// Cortex-M0 and M0+, without atomic compare-and-swap; Cortex-M4 and M7 with a floating-point unit.
const TARGETS: [&str; 2] = ["thumbv6m-none-eabi", "thumbv7em-none-eabihf"];
const TITLE: &str = "microcontrollers";
const EXAMPLE: &str = "carrier_supervisor";
/// Folder of the example with its linker script's part `memory.x`, in the workspace.
const EXAMPLE_FOLDER: &str = "crates/orinoco-sensors/examples/carrier_supervisor";

/// Source of the targets' `core`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Library {
    /// It is installed.
    Installed,
    /// Cargo builds it from its sources.
    Sources,
}

/// Builds the crates for both targets and prints the sizes of the example; skipped where the compiler cannot.
pub(crate) fn run() -> Result<Outcome> {
    let mut libraries = Vec::new();
    for target in TARGETS {
        match library(target)? {
            Some(library) => libraries.push((target, library)),
            None => {
                let why = format!(
                    "this Rust has no `core` for {target}: run `rustup target add {target}`, or install its sources \
                     (`rustup component add rust-src`, or Debian's rust-web-src with RUSTC naming Debian's rustc)"
                );
                return Ok(skip(TITLE, &why));
            }
        }
    }
    let mut rows = Vec::new();
    for (target, library) in libraries {
        for words in [
            &["--package", "orinoco-core"][..],
            &["--package", "orinoco-core", "--no-default-features"],
            &["--package", "orinoco-sensors"],
        ] {
            step(&format!("{target}: {}", words[1..].join(" ")), build(target, library, words))?;
        }
        let words = ["--package", "orinoco-sensors", "--example", EXAMPLE];
        step(&format!("{target}: {EXAMPLE}"), firmware(target, library, &words))?;
        let image = folder().join(target).join("release/examples").join(EXAMPLE);
        rows.push((target, Sizes::of(&image)?));
    }
    print_sizes(&rows)?;
    Ok(Outcome::Passed)
}

/// Returns where the `core` of a target comes from, after asking rustup for it.
fn library(target: &str) -> Result<Option<Library>> {
    if is_installed(target)? {
        return Ok(Some(Library::Installed));
    }
    // Not through a version manager that would ask something: no input.
    let asked = Command::new("rustup").args(["target", "add", target]).stdin(Stdio::null()).status();
    if asked.is_ok_and(|status| status.success()) && is_installed(target)? {
        return Ok(Some(Library::Installed));
    }
    let sources = Path::new(&rustc(&["--print", "sysroot"])?).join("lib/rustlib/src/rust/library/core");
    Ok(sources.is_dir().then_some(Library::Sources))
}

fn is_installed(target: &str) -> Result<bool> {
    Ok(Path::new(&rustc(&["--print", "target-libdir", "--target", target])?).is_dir())
}

/// Returns what the compiler prints, which is the one that cargo uses.
fn rustc(words: &[&str]) -> Result<String> {
    let program = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(program).args(words).output().context("starting rustc")?;
    if !output.status.success() {
        bail!("`rustc {}`: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Folder of these builds: their features and settings are other ones than those of every other build.
fn folder() -> std::path::PathBuf {
    target_dir().join("no-std")
}

/// The command that builds packages for a target, each with its own features only.
fn build(target: &str, library: Library, words: &[&str]) -> Command {
    let mut build = command(&["cargo", "build", "--release", "--quiet", "--target", target]);
    build.args(words).env("CARGO_TARGET_DIR", folder());
    build.env_remove("CARGO_RESOLVER_FEATURE_UNIFICATION").env_remove("CARGO_UNSTABLE_FEATURE_UNIFICATION");
    if library == Library::Sources {
        // Sources that belong to this compiler need no nightly one, only the permission.
        build.arg("-Zbuild-std=core,alloc").env("RUSTC_BOOTSTRAP", "1");
    }
    build
}

/// The command that links the firmware, for size as firmware is.
fn firmware(target: &str, library: Library, words: &[&str]) -> Command {
    let flags = format!("CARGO_TARGET_{}_RUSTFLAGS", target.to_uppercase().replace('-', "_"));
    let mut build = build(target, library, words);
    build
        .env(flags, format!("-C link-arg=-Tlink.x -L {EXAMPLE_FOLDER}"))
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "s")
        .env("CARGO_PROFILE_RELEASE_LTO", "true")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort");
    build
}

fn print_sizes(rows: &[(&str, Sizes)]) -> Result<()> {
    println!("\n{EXAMPLE}, {}, opt-level s, LTO; RAM without the stack:", rustc(&["--version"])?);
    for (target, sizes) in rows {
        println!("  {target:<22} flash {:>6} bytes, RAM {:>6} bytes", sizes.flash, sizes.ram);
    }
    Ok(())
}
