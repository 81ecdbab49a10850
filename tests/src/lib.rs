//! Support for the end-to-end tests: the built binaries, the shared data, and checks of the output.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
#![allow(clippy::print_stdout, reason = "tests say what they skip")]

mod addresses;
mod cluster;
pub mod onnx;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use orinoco_api::{DetectionJson, ResultLine};
use orinoco_core::BoxF;

pub use addresses::free_address;
pub use cluster::{cluster_key, make_cluster, make_local_cluster};

/// Returns the folder of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .expect("the workspace is where it was built")
}

/// Returns the folder that cargo built this test into: `target/release` or another.
pub fn built() -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a path");
    test.parent().and_then(Path::parent).expect("tests lie in deps").to_owned()
}

/// Returns the path of a built binary of the workspace. Panics if `cargo build --workspace` (or `make test`) has not
/// built it.
pub fn binary(name: &str) -> PathBuf {
    let path = built().join(name);
    assert!(
        path.is_file(),
        "{} is not there: run `cargo build --workspace` first, with `--release` if this test has it",
        path.display()
    );
    path
}

/// Returns the path of the aarch64 binary of this test's profile; `None`, with a printed line, if it was not built.
pub fn cross_binary(name: &str) -> Option<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let built = built();
    let profile = built.file_name().expect("a profile has a folder");
    let path = target.join("aarch64-unknown-linux-gnu").join(profile).join(name);
    if !path.is_file() {
        println!(
            "skipped: no aarch64 binary {} (cross/build.sh builds it; for the profile dev, cross/build.sh --profile dev)",
            path.display()
        );
    }
    path.is_file().then_some(path)
}

/// Returns the command `orinoco` with these arguments, in the workspace's folder, with the shared data if present.
pub fn orinoco(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary("orinoco"));
    command.args(arguments).current_dir(root()).env("NO_COLOR", "1");
    if let Some(data) = data() {
        command.env("ORINOCO_DATA", data);
    }
    command
}

/// Returns the folder of the shared data, `$ORINOCO_DATA` or `../shared/data`; `None` if it does not exist.
pub fn data() -> Option<PathBuf> {
    let named = std::env::var_os("ORINOCO_DATA").map(PathBuf::from);
    named.or_else(|| Some(root().join("../shared/data"))).filter(|dir| dir.join("models").is_dir())
}

/// Returns the path of a file in the shared data; `None`, with a line "skipped", if it does not exist.
pub fn shared(name: &str) -> Option<String> {
    let path = data().map(|dir| dir.join(name)).filter(|path| path.exists());
    if path.is_none() {
        println!("skipped: shared test data not found ({name})");
    }
    path.map(|path| path.display().to_string())
}

/// Returns the engines that run on this machine. ONNX Runtime may not be installed; then a line reports that.
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

/// Sends a signal by name, such as `TERM`.
pub fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(sent.expect("kill starts").success());
}

/// Waits for the end of a program. Returns its exit code and standard output, and panics after the time `within`.
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

/// Parses standard output as result lines, and leaves out other lines.
pub fn results(output: &Output) -> Vec<ResultLine> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Checks a failure as users see it: the exit code, exactly one error line with `code` and all of `words`, and no
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

/// Tolerances for detections, compared with a reference.
#[derive(Clone, Copy, Debug)]
pub struct Agreement {
    /// Minimum IoU of two matching detections.
    pub iou_min: f32,
    /// Maximum difference of their scores.
    pub score_max: f32,
    /// Score threshold of both sides. A detection at most `score_max` above it may be missing on the other side.
    pub threshold: f32,
}

/// Checks that every detection has a counterpart of the same class, in both directions. The error names the first
/// without one.
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

/// xorshift64 generator (Marsaglia 2003): its seed reproduces the choices of a failed test.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}
