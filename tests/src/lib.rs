//! What the end-to-end tests share: the built binaries, the shared data, and how to judge what comes out.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
#![allow(clippy::print_stdout, reason = "tests say what they skip")]

pub mod onnx;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use orinoco_api::{DetectionJson, ResultLine};
use orinoco_core::BoxF;

/// The workspace's folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .expect("the workspace is where it was built")
}

/// The folder cargo built this test into: `target/release` or another.
pub fn built() -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a path");
    test.parent().and_then(Path::parent).expect("tests lie in deps").to_owned()
}

/// A built binary of the workspace. `cargo build --workspace` (or `make test`) makes it.
pub fn binary(name: &str) -> PathBuf {
    let path = built().join(name);
    assert!(path.is_file(), "{} is not there: run `cargo build --release --workspace` first", path.display());
    path
}

/// The aarch64 binary; `None`, with a line, where it was not built.
pub fn cross_binary(name: &str) -> Option<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let path = target.join("aarch64-unknown-linux-gnu/release").join(name);
    if !path.is_file() {
        println!("skipped: no aarch64 binary (make cross)");
    }
    path.is_file().then_some(path)
}

/// `orinoco` with arguments, in the workspace's folder, with the tests' model descriptions.
pub fn orinoco(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary("orinoco"));
    command.args(arguments).current_dir(root()).env("NO_COLOR", "1");
    if let Some(data) = data() {
        command.env("ORINOCO_DATA", data);
    }
    command
}

/// The shared data: `$ORINOCO_DATA` or `../shared/data`. `None` where it is absent.
pub fn data() -> Option<PathBuf> {
    let named = std::env::var_os("ORINOCO_DATA").map(PathBuf::from);
    named.or_else(|| Some(root().join("../shared/data"))).filter(|dir| dir.join("models").is_dir())
}

/// A file of the shared data; says "skipped" and gives `None` where it is absent.
pub fn shared(name: &str) -> Option<String> {
    let path = data().map(|dir| dir.join(name)).filter(|path| path.exists());
    if path.is_none() {
        println!("skipped: shared test data not found ({name})");
    }
    path.map(|path| path.display().to_string())
}

/// The engines that can run here. ONNX Runtime may not be installed; then a line says so.
pub fn engines() -> Vec<&'static str> {
    let check = orinoco(&["models", "check", "person-nano", "--json"]).output().expect("orinoco starts");
    let rows: serde_json::Value = serde_json::from_slice(&check.stdout).expect("JSON rows");
    let ok = |engine: &&str| {
        let rows = rows["checks"].as_array().into_iter().flatten();
        rows.clone().any(|row| row["engine"] == **engine && row["ok"] == true)
    };
    let (here, gone): (Vec<_>, Vec<_>) = ["ort-cpu", "tract"].into_iter().partition(ok);
    for engine in gone {
        println!("skipped: engine {engine} cannot run here");
    }
    here
}

/// Sends a signal by its name: `TERM`.
pub fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(sent.expect("kill starts").success());
}

/// Waits for a program's end: its exit code, and what it printed.
pub fn wait(mut child: Child, within: Duration) -> (Option<i32>, String) {
    let start = Instant::now();
    while child.try_wait().expect("waits").is_none() {
        if start.elapsed() > within {
            child.kill().expect("killed");
            panic!("did not end within {within:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().expect("waits");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Standard output as result lines; other lines are left out.
pub fn results(output: &Output) -> Vec<ResultLine> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Checks a failure as users meet it: the exit code, exactly one error on one line with `code` and all of `words`, and no
/// panic.
pub fn assert_one_sentence(output: &Output, exit: i32, code: &str, words: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!text.contains("panicked"), "a panic:\n{text}");
    assert_eq!(output.status.code(), Some(exit), "exit code; stderr:\n{text}");
    let errors: Vec<&str> = text.lines().filter(|line| line.starts_with("error")).collect();
    assert_eq!(errors.len(), 1, "one error line:\n{text}");
    assert!(errors[0].starts_with(&format!("error[{code}]: ")), "{code}: {}", errors[0]);
    for word in words {
        assert!(errors[0].contains(word), "`{word}` in: {}", errors[0]);
    }
}

/// How findings must agree with a reference.
#[derive(Clone, Copy, Debug)]
pub struct Agreement {
    /// Least IoU of a pair.
    pub iou_min: f32,
    /// Largest difference of scores.
    pub score_max: f32,
    /// The threshold both used. A finding this close to it by `score_max` may be missing on the other side.
    pub threshold: f32,
}

/// Every finding has its counterpart of the same class, in both directions; the error names the first that has not.
pub fn agree(found: &[DetectionJson], wanted: &[DetectionJson], how: Agreement) -> Result<(), String> {
    for (ours, theirs, side) in [(found, wanted, "found"), (wanted, found, "wanted")] {
        for one in ours.iter().filter(|one| one.score > how.threshold + how.score_max) {
            let pair = theirs.iter().any(|other| {
                one.label == other.label
                    && as_box(one).iou(&as_box(other)) >= how.iou_min
                    && (one.score - other.score).abs() <= how.score_max
            });
            if !pair {
                return Err(format!(
                    "{side} without counterpart: {one:?}\nfound {found:#?}\nwanted {wanted:#?}"
                ));
            }
        }
    }
    Ok(())
}

fn as_box(found: &DetectionJson) -> BoxF {
    let [x1, y1, x2, y2] = found.bounds;
    BoxF { x1, y1, x2, y2 }
}

/// xorshift64 (Marsaglia 2003): seeded choices that a failure can be replayed with.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}
