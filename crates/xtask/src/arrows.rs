//! Dependencies allowed between crates, and the check that no files of one crate use one another in a cycle. A new arrow between crates is a
//! decision: it goes here, into docs/ARCHITECTURE.md, and into a commit of its own.

mod cycles;
mod modules;
mod names;
mod shadows;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::steps::command;

/// Every crate of the workspace with the crates of the workspace that it may use.
const ALLOWED: &[(&str, &[&str])] = &[
    ("orinoco-core", &[]),
    ("orinoco-config", &["orinoco-core"]),
    ("orinoco-telemetry", &["orinoco-core", "orinoco-memory"]),
    ("orinoco-api", &["orinoco-core"]),
    (
        "orinoco-board",
        &["orinoco-config", "orinoco-core", "orinoco-memory", "orinoco-sysroot", "orinoco-uri"],
    ),
    ("orinoco-vision", &["orinoco-core"]),
    ("orinoco-collective", &[]),
    ("orinoco-collective-c", &["orinoco-api", "orinoco-collective"]),
    ("orinoco-cuda", &["orinoco-core", "orinoco-memory"]),
    ("orinoco-cuda-doubles", &["orinoco-cuda"]),
    ("orinoco-eval", &["orinoco-config", "orinoco-core"]),
    ("orinoco-governor", &["orinoco-core"]),
    ("orinoco-helper", &["orinoco-api", "orinoco-board", "orinoco-sysroot"]),
    ("orinoco-memory", &["orinoco-core"]),
    ("orinoco-model", &["orinoco-config", "orinoco-core", "orinoco-vision"]),
    (
        "orinoco-otlp",
        &["orinoco-board", "orinoco-config", "orinoco-core", "orinoco-telemetry", "orinoco-uri"],
    ),
    ("orinoco-pipeline", &["orinoco-core", "orinoco-telemetry"]),
    ("orinoco-media", &["orinoco-config", "orinoco-core", "orinoco-pipeline", "orinoco-uri"]),
    ("orinoco-uri", &["orinoco-core"]),
    (
        "orinoco-infer",
        &[
            "orinoco-core",
            "orinoco-cuda",
            "orinoco-memory",
            "orinoco-model",
            "orinoco-pipeline",
            "orinoco-vision",
        ],
    ),
    (
        "orinoco-runtime",
        &[
            "orinoco-api",
            "orinoco-board",
            "orinoco-config",
            "orinoco-core",
            "orinoco-governor",
            "orinoco-helper",
            "orinoco-infer",
            "orinoco-media",
            "orinoco-memory",
            "orinoco-model",
            "orinoco-pipeline",
            "orinoco-sysroot",
            "orinoco-telemetry",
            "orinoco-uri",
            "orinoco-vision",
        ],
    ),
    ("orinoco-sensors", &["orinoco-core"]),
    ("orinoco-server", &["orinoco-api", "orinoco-core", "orinoco-telemetry"]),
    ("orinoco-sim", &["orinoco-core"]),
    ("orinoco-sysroot", &["orinoco-api"]),
    (
        "orinoco",
        &[
            "orinoco-api",
            "orinoco-board",
            "orinoco-collective",
            "orinoco-config",
            "orinoco-core",
            "orinoco-cuda",
            "orinoco-eval",
            "orinoco-helper",
            "orinoco-infer",
            "orinoco-memory",
            "orinoco-media",
            "orinoco-model",
            "orinoco-otlp",
            "orinoco-pipeline",
            "orinoco-runtime",
            "orinoco-sysroot",
            "orinoco-telemetry",
            "orinoco-uri",
            "orinoco-vision",
        ],
    ),
    (
        "orinocod",
        &[
            "orinoco-api",
            "orinoco-board",
            "orinoco-collective",
            "orinoco-config",
            "orinoco-core",
            "orinoco-model",
            "orinoco-otlp",
            "orinoco-pipeline",
            "orinoco-runtime",
            "orinoco-server",
            "orinoco-sysroot",
            "orinoco-telemetry",
        ],
    ),
    ("orinoco-rig", &[]),
    ("orinoco-tests", &["orinoco-api", "orinoco-core"]),
    ("xtask", &["orinoco-api", "orinoco-rig"]),
];

/// Checks the arrows between crates, then those between the files of each crate, and the names of modules.
pub(crate) fn check() -> Result<()> {
    let output = command(&["cargo", "metadata", "--no-deps", "--format-version", "1"]).output()?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("reading `cargo metadata`")?;
    let packages = metadata["packages"].as_array().context("`cargo metadata` names packages")?;
    check_crates(packages)?;
    cycles::check(packages)?;
    shadows::check(packages)
}

/// Fails on an arrow that the table does not have, on a table row without a crate, and on a crate without a row.
fn check_crates(packages: &[Value]) -> Result<()> {
    let found = arrows(packages);
    let mut faults = Vec::new();
    for (name, used) in &found {
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| known == name) else {
            faults.push(format!("{name} has no row in the table"));
            continue;
        };
        let more = used.iter().filter(|other| !allowed.contains(&other.as_str()));
        faults.extend(more.map(|other| format!("{name} uses {other}, which the table does not allow")));
        let fewer = allowed.iter().filter(|other| !used.contains(**other));
        faults.extend(fewer.map(|other| format!("{name} does not use {other}: remove it from the table")));
    }
    let gone = ALLOWED.iter().filter(|(name, _)| !found.contains_key(*name));
    faults.extend(gone.map(|(name, _)| format!("there is no crate {name}: remove its row")));
    if !faults.is_empty() {
        bail!("arrows (crates/xtask/src/arrows.rs):\n  {}", faults.join("\n  "));
    }
    println!("{} crates, every arrow allowed", found.len());
    Ok(())
}

/// Every crate with the crates of the workspace that it uses outside its tests.
fn arrows(packages: &[Value]) -> BTreeMap<String, BTreeSet<String>> {
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let ours: BTreeSet<String> = packages.iter().map(name).collect();
    let used = |package: &Value| -> BTreeSet<String> {
        let all = package["dependencies"].as_array().into_iter().flatten();
        let shipped = all.filter(|dependency| dependency["kind"] != "dev");
        shipped.map(name).filter(|other| ours.contains(other)).collect()
    };
    packages.iter().map(|package| (name(package), used(package))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tests_use_test_doubles() {
        for (name, used) in ALLOWED {
            assert!(!used.contains(&"orinoco-cuda-doubles"), "{name} would bring them into a program");
        }
    }
}
