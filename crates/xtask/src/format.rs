//! The sources' format. `cargo fmt` finds files by their `mod` items and does not see those that a list of ours declares
//! (`engines! { mod pure_rust: .. }`), so each tracked file is formatted by itself.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::steps::command;
use crate::workspace::root;

/// Treatment of a file that is not as rustfmt has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Odd {
    /// It is named, and the step fails.
    Refused,
    /// It is formatted.
    Written,
}

/// Formats every source file that git tracks, or refuses those that are not.
pub(crate) fn format(odd: Odd) -> Result<()> {
    let listed = command(&["git", "ls-files", "-z", "*.rs"]).output().context("starting git")?;
    if !listed.status.success() {
        bail!("listing sources: {}", String::from_utf8_lossy(&listed.stderr));
    }
    let names = String::from_utf8(listed.stdout).context("source files have plain names")?;
    let mut refused = Vec::new();
    for name in names.split_terminator('\0') {
        let path = root().join(name);
        if !path.exists() {
            continue; // Removed, and not yet committed.
        }
        let (text, formatted) = (fs::read(&path)?, formatted(&path)?);
        if text != formatted {
            match odd {
                Odd::Refused => refused.push(name),
                Odd::Written => fs::write(&path, formatted)?,
            }
        }
    }
    if !refused.is_empty() {
        bail!("not formatted (`cargo xtask format` does it):\n  {}", refused.join("\n  "));
    }
    Ok(())
}

/// The text of a file as rustfmt has it. Given on standard input it has no modules in other files.
fn formatted(path: &Path) -> Result<Vec<u8>> {
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--edition", "2024", "--emit", "stdout"]).current_dir(root());
    let input = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let output = rustfmt.stdin(input).stderr(Stdio::piped()).output().context("starting rustfmt")?;
    if !output.status.success() {
        bail!("formatting {}: {}", path.display(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.stdout)
}
