//! The places where Orinoco is extended, kept honest by patches: each adds a toy (an engine, a source, a head, a sink) as one
//! new file and one line elsewhere, and the toy passes the suite that everything of its kind passes.
//!
//! The patches are applied to a copy of the tree below cargo's target folder, which has a target folder of its own: what does
//! not change is built once.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::steps::{Outcome, command, step};
use crate::workspace::{root, target_dir};

/// Folder of the patches.
const FOLDER: &str = "tests/seams";

/// A place where Orinoco is extended.
struct Seam {
    /// Name of its patch.
    name: &'static str,
    /// Arguments of each `cargo test` that the toy has to pass.
    suites: &'static [&'static [&'static str]],
}

const SEAMS: [Seam; 4] = [
    Seam {
        name: "engine",
        suites: &[
            &["--package", "orinoco-infer", "--lib", "engines::"],
            &["--package", "orinoco-infer", "--test", "conformance"],
        ],
    },
    Seam { name: "source", suites: &[&["--package", "orinoco-media", "--lib", "sources::"]] },
    Seam {
        name: "head",
        suites: &[
            &["--package", "orinoco-vision", "--lib", "heads::"],
            &["--package", "orinoco-vision", "--test", "hostile"],
        ],
    },
    Seam { name: "sink", suites: &[&["--package", "orinoco-runtime", "--lib", "sinks::"]] },
];

/// Applies each patch to a copy of the tree, or those called `names` where there are any, and runs its suites.
pub(crate) fn run(names: &[String]) -> Result<Outcome> {
    if let Some(unknown) = names.iter().find(|name| !SEAMS.iter().any(|seam| seam.name == **name)) {
        bail!("there is no seam `{unknown}`: {FOLDER} has the patches");
    }
    let folder = target_dir().join("seams");
    let tree = folder.join("tree");
    let is_wanted = |seam: &&Seam| names.is_empty() || names.iter().any(|name| name == seam.name);
    for seam in SEAMS.iter().filter(is_wanted) {
        let change = Change::of(seam)?;
        change.check(seam)?;
        copy_tracked(&tree)?;
        apply(seam, &tree, &[])?;
        println!("== seam {}: {} and a line in {}", seam.name, change.created, change.extended);
        for suite in seam.suites {
            let mut test = command(&["cargo", "test", "--release"]);
            test.args(*suite).current_dir(&tree).env("CARGO_TARGET_DIR", folder.join("target"));
            let data = root().join("../shared/data");
            if std::env::var_os("ORINOCO_DATA").is_none() && data.is_dir() {
                test.env("ORINOCO_DATA", data);
            }
            step(&format!("seam {}: {}", seam.name, suite.join(" ")), test)?;
        }
    }
    Ok(Outcome::Passed)
}

/// Files that a patch touches, as it shall be.
#[derive(Debug)]
struct Change {
    /// The new file.
    created: String,
    /// The file that gets a line.
    extended: String,
}

impl Change {
    /// Reads what a patch does, and refuses more than one new file and one line in one other.
    fn of(seam: &Seam) -> Result<Self> {
        let output = command(&["git", "apply", "--numstat", "--summary", &patch(seam)]).output()?;
        let text = String::from_utf8(output.stdout).context("paths are text")?;
        if !output.status.success() {
            bail!("reading {}: {}", patch(seam), String::from_utf8_lossy(&output.stderr));
        }
        Self::read(&text).with_context(|| format!("{}:\n{text}", patch(seam)))
    }

    /// Reads `git apply --numstat --summary`.
    fn read(text: &str) -> Result<Self> {
        let mut created = BTreeSet::new();
        let mut rows = Vec::new();
        for line in text.lines() {
            if let Some(new) = line.strip_prefix(" create mode 100644 ") {
                created.insert(new);
            } else if let [added, removed, path] = line.split('\t').collect::<Vec<_>>()[..] {
                rows.push((added, removed, path));
            } else {
                bail!("it does more than adding a file and a line: {}", line.trim());
            }
        }
        let (new, old): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(.., path)| created.contains(path));
        match (new.as_slice(), old.as_slice()) {
            ([(_, "0", created)], [("1", "0", extended)]) => {
                Ok(Self { created: (*created).to_owned(), extended: (*extended).to_owned() })
            }
            _ => bail!("it is not one new file and one new line in one other file"),
        }
    }

    /// Checks that the patch can be applied to the tree as it is, and that the new file is in it by the line.
    fn check(&self, seam: &Seam) -> Result<()> {
        if !root().join(&self.extended).is_file() {
            bail!("{} is not in the tree", self.extended);
        }
        apply(seam, &root(), &["--check"])
    }
}

fn patch(seam: &Seam) -> String {
    format!("{FOLDER}/{}.patch", seam.name)
}

fn apply(seam: &Seam, tree: &Path, options: &[&str]) -> Result<()> {
    // The copy lies in a folder that git ignores: it is no part of the repository around it.
    let mut git = Command::new("git");
    git.arg("apply").args(options).arg(root().join(patch(seam))).current_dir(tree);
    git.env_remove("GIT_DIR").env("GIT_CEILING_DIRECTORIES", tree.parent().unwrap_or(tree));
    let output = git.output().context("starting git")?;
    if !output.status.success() {
        bail!("{} does not apply: {}", patch(seam), String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Makes `tree` a copy of what git tracks. Files that are the same stay as they are, so that cargo does not build them again.
fn copy_tracked(tree: &Path) -> Result<()> {
    let listed = command(&["git", "ls-files", "-z"]).output().context("starting git")?;
    if !listed.status.success() {
        bail!("listing files: {}", String::from_utf8_lossy(&listed.stderr));
    }
    let names = String::from_utf8(listed.stdout).context("files have plain names")?;
    let names: BTreeSet<PathBuf> = names.split_terminator('\0').map(PathBuf::from).collect();
    let names = names.into_iter().filter(|name| root().join(name).is_file()).collect::<BTreeSet<_>>();
    for name in files_below(tree, Path::new(""))? {
        if !names.contains(&name) {
            fs::remove_file(tree.join(name))?;
        }
    }
    for name in &names {
        let (from, to) = (root().join(name), tree.join(name));
        let bytes = fs::read(&from).with_context(|| format!("reading {}", from.display()))?;
        if fs::read(&to).ok().as_ref() != Some(&bytes) {
            fs::create_dir_all(to.parent().expect("a file lies in a folder"))?;
            fs::write(&to, bytes).with_context(|| format!("writing {}", to.display()))?;
            fs::set_permissions(&to, fs::metadata(&from)?.permissions())?;
        }
    }
    Ok(())
}

/// Every file in the folder `below` of `tree`, relative to `tree`; none where there is no such folder.
fn files_below(tree: &Path, below: &Path) -> Result<Vec<PathBuf>> {
    let Ok(entries) = fs::read_dir(tree.join(below)) else { return Ok(Vec::new()) };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            files.extend(files_below(tree, &name)?);
        } else {
            files.push(name);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_patch_is_one_file_and_one_line_and_applies() {
        for seam in &SEAMS {
            let change = Change::of(seam).unwrap_or_else(|why| panic!("{why:#}"));
            change.check(seam).unwrap_or_else(|why| panic!("{why:#}"));
        }
        let patches = fs::read_dir(root().join(FOLDER)).expect("it is there").flatten();
        let patches = patches.filter(|file| file.path().extension().is_some_and(|ending| ending == "patch"));
        assert_eq!(patches.count(), SEAMS.len(), "a patch without a suite proves nothing");
    }

    #[test]
    fn more_than_a_file_and_a_line_is_refused() {
        let good = "90\t0\ta/toy.rs\n1\t0\ta.rs\n create mode 100644 a/toy.rs\n";
        let change = Change::read(good).expect("it is one file and one line");
        assert_eq!((&*change.created, &*change.extended), ("a/toy.rs", "a.rs"));
        for bad in [
            "",
            "1\t0\ta.rs\n",
            "90\t0\ta/toy.rs\n create mode 100644 a/toy.rs\n",
            &good.replace("1\t0\ta.rs", "2\t0\ta.rs"),
            &good.replace("1\t0\ta.rs", "1\t1\ta.rs"),
            &format!("1\t0\tb.rs\n{good}"),
            &format!("{good}2\t0\tb/toy.rs\n create mode 100644 b/toy.rs\n"),
            &format!("{good} delete mode 100644 b.rs\n"),
            &good.replace("100644", "100755"),
        ] {
            assert!(Change::read(bad).is_err(), "{bad}");
        }
    }
}
