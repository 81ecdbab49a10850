//! A board's memory, planned and kept to.
#![allow(clippy::print_stdout, reason = "tests say what they skip")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use orinoco_api::Summary;
use orinoco_tests::{assert_one_sentence, engines, orinoco, root, shared};
use serde_json::Value;

/// A board of three models on one lane; `None`, with a line, where they or the engine cannot be had.
fn board(dir: &Path, budget: &str) -> Option<PathBuf> {
    shared("models/yolox_nano.onnx")?;
    if !engines().contains(&"ort-cpu") {
        return None;
    }
    let mut text =
        format!("version = 1\n[memory]\nbudget = \"{budget}\"\n[inference]\nengines = [\"ort-cpu\"]\n");
    for name in ["yolox_nano", "fastestdet", "squeezenet1.0_fp32"] {
        let folder = root().join("tests/models").join(name);
        text.push_str(&format!("[[model]]\nname = \"{name}\"\nmodel = \"{}\"\n", folder.display()));
    }
    text.push_str("[[stream]]\nname = \"s\"\nsource = \"test://ball?width=320&height=240&frames=20\"\n");
    text.push_str("models = [\"yolox_nano\", \"fastestdet\", \"squeezenet1.0_fp32\"]\nsinks = [\"found\"]\n");
    let output = output(dir);
    text.push_str(&format!(
        "[[sink]]\nname = \"found\"\nkind = \"jsonl\"\npath = \"{}\"\n",
        output.display()
    ));
    let path = dir.join("board.toml");
    fs::write(&path, text).expect("written");
    Some(path)
}

fn output(dir: &Path) -> PathBuf {
    dir.join("found.jsonl")
}

fn run(command: &[&str], board: &Path, cache: &Path) -> Output {
    let mut orinoco = orinoco(command);
    orinoco.arg("--board").arg(board);
    // ONNX Runtime is found in the user's own cache; measurements are kept in this one.
    if let Some(library) = library() {
        orinoco.env("ORT_DYLIB_PATH", library);
    }
    orinoco.env("XDG_CACHE_HOME", cache).output().expect("starts")
}

fn library() -> Option<String> {
    let fetched = std::process::Command::new(root().join("cross/onnxruntime.sh"))
        .arg(std::env::consts::ARCH)
        .output()
        .ok()?;
    fetched.status.success().then(|| String::from_utf8_lossy(&fetched.stdout).trim().to_owned())
}

#[test]
fn a_board_runs_in_exactly_what_it_needs_and_not_in_a_byte_less() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let (cache, dir) = (dir.path().join("cache"), dir.path());
    let Some(path) = board(dir, "1 GiB") else { return };
    let told = run(&["memory", "--json"], &path, &cache);
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let told: Value = serde_json::from_slice(&told.stdout).expect("JSON");
    let total = told["total_bytes"].as_u64().expect("a number");
    assert_eq!(fs::read_dir(cache.join("orinoco/memory")).expect("it is kept").count(), 3);

    let told = run(&["memory", "--json", "--frames", "10"], &path, &cache);
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let told: Value = serde_json::from_slice(&told.stdout).expect("JSON");
    let used = &told["used"];
    let lane = &used["lanes"][0];
    assert_eq!((&used["frames"], &lane["outside"]), (&10.into(), &0.into()));
    assert_eq!(lane["models"].as_array().map(Vec::len), Some(3));
    assert!(
        lane["used_bytes"].as_u64() > Some(0)
            && lane["used_bytes"].as_u64() <= lane["scratch_bytes"].as_u64()
    );
    assert!(used["models_bytes"].as_u64() > Some(0), "{used}");
    assert!(!output(dir).exists(), "outputs are left alone");

    board(dir, &total.to_string());
    let ran = run(&["run", "--json"], &path, &cache);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(output(dir).exists());
    let text = String::from_utf8_lossy(&ran.stdout);
    let summary =
        text.lines().find_map(|line| serde_json::from_str::<Summary>(line).ok()).expect("a summary");
    let planned = summary.memory.planned.expect("it was planned");
    assert_eq!((planned.total_bytes, planned.budget_bytes), (total, total));
    let lane = &planned.lanes[0];
    assert_eq!((lane.outside, lane.models.len()), (0, 3));
    assert!(lane.used_bytes <= lane.scratch_bytes, "{lane:?}");

    board(dir, &(total - 1).to_string());
    let refused = run(&["run"], &path, &cache);
    assert_one_sentence(&refused, 2, "E0305", &["the budget is", "give stream `s` a ring of"]);
    let table = String::from_utf8_lossy(&refused.stderr);
    for word in ["bytes too many: 1 ", "yolox_nano", "scratch", "budget"] {
        assert!(table.contains(word), "`{word}` in\n{table}");
    }
}

#[test]
fn a_budget_that_is_no_size_is_refused() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let path = dir.path().join("board.toml");
    let text = "version = 1\n[memory]\nbudget = 'much'\n[[stream]]\nname = 's'\nsource = 'test://ball'\nmodels = []\n";
    fs::write(&path, text).expect("written");
    let refused = orinoco(&["run", "--board"]).arg(&path).output().expect("starts");
    assert_one_sentence(&refused, 2, "E0106", &["budget", "board.toml:3"]);
}

#[test]
fn models_that_share_a_lane_compute_the_same() {
    if shared("models/yolox_nano.onnx").is_none() || !engines().contains(&"ort-cpu") {
        return;
    }
    let arguments = ["bench", "memory", "--json", "--rounds", "1", "--models", "tests/models", "--model"];
    let models = ["yolox_nano", "fastestdet", "squeezenet1.0_fp32", "ultraface_rfb320", "deeplabv3_mnv2_257"];
    let done = orinoco(&arguments).args(models).output().expect("starts");
    // It fails when outputs differ or a request lay outside the area.
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let report: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    println!("{}", report["ratios"]);
    assert_eq!(report["outputs_equal"], true);
    assert_eq!(report["requests_outside"], 0);
}
