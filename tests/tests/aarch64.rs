//! The cross-compiled binary under qemu-user gives the same results as the native one. The tests are ignored by
//! default: `make test` and `make test-boards` run them after they have built the aarch64 binaries.
#![allow(clippy::print_stdout, reason = "tests say what they skip and what they compared")]

use std::fs;
use std::process::Command;

use orinoco_api::ResultLine;
use orinoco_tests::{Agreement, agree, cross_binary, data, orinoco, results, root, shared};

const FRAMES: &str = "5";

fn check(engine: &str, library: Option<&str>) {
    let (Some(binary), Some(video), Some(data)) =
        (cross_binary("orinoco"), shared("video/one-by-one-person-detection.mp4"), data())
    else {
        return;
    };
    // The first frames show little, so the threshold is low: otherwise there would be no detections to compare.
    let arguments = [
        "run",
        "--model",
        "tests/models/yolox_nano",
        "--source",
        &video,
        "--frames",
        FRAMES,
        "--engine",
        engine,
        "--score",
        "0.02",
        "--json",
    ];
    let mut cross = Command::new(root().join("cross/run.sh"));
    cross.arg(&binary).args(arguments).current_dir(root()).env("ORINOCO_DATA", data);
    if let Some(library) = library {
        cross.env("ORT_DYLIB_PATH", library);
    }
    let cross = cross.output().expect("cross/run.sh starts");
    assert!(cross.status.success(), "{}", String::from_utf8_lossy(&cross.stderr));
    let native = orinoco(&arguments).output().expect("starts");
    compare(engine, &results(&cross), &results(&native));
}

fn compare(what: &str, cross: &[ResultLine], native: &[ResultLine]) {
    assert_eq!((cross.len(), native.len()), (5, 5));
    let how = Agreement { iou_min: 0.97, score_max: 0.02, threshold: 0.02 };
    for (ours, theirs) in cross.iter().zip(native) {
        assert_eq!((ours.seq, ours.pts_ns, &ours.engine), (theirs.seq, theirs.pts_ns, &theirs.engine));
        agree(&ours.detections, &theirs.detections, how)
            .unwrap_or_else(|why| panic!("frame {}: {why}", ours.seq));
    }
    let boxes: usize = cross.iter().map(|line| line.detections.len()).sum();
    println!("{what} on aarch64: {boxes} boxes on {FRAMES} frames agree");
}

#[test]
#[ignore = "needs the aarch64 binaries with tract; `make test-boards` runs it"]
fn tract_on_aarch64() {
    check("tract", None);
}

/// Fetches ONNX Runtime for aarch64, and returns its path; `None`, with a printed line, if that fails.
fn cross_library() -> Option<String> {
    let fetched = Command::new(root().join("cross/onnxruntime.sh")).arg("aarch64").output().expect("starts");
    if !fetched.status.success() {
        println!("skipped: ONNX Runtime for aarch64 cannot be fetched");
    }
    fetched.status.success().then(|| String::from_utf8_lossy(&fetched.stdout).trim().to_owned())
}

#[test]
#[ignore = "needs the aarch64 binaries and ONNX Runtime for aarch64; `make test` runs it"]
fn onnx_runtime_on_aarch64() {
    if let Some(library) = cross_library() {
        check("ort-cpu", Some(&library));
    }
}

#[test]
#[ignore = "needs the aarch64 binaries and ONNX Runtime for aarch64; `make test` runs it"]
fn the_daemon_on_aarch64() {
    let (Some(binary), Some(video), Some(data), Some(library)) =
        (cross_binary("orinocod"), shared("video/one-by-one-person-detection.mp4"), data(), cross_library())
    else {
        return;
    };
    let dir = tempfile::tempdir().expect("temporary folder");
    let video = fs::canonicalize(video).expect("it is there").display().to_string();
    let model = root().join("tests/models/yolox_nano").display().to_string();
    let (board, out) = (dir.path().join("board.toml"), dir.path().join("out.jsonl"));
    let text = format!(
        "version = 1\n[inference]\nengines = ['ort-cpu']\n[[model]]\nname = 'yolox_nano'\nmodel = '{model}'\n\
         score_threshold = 0.02\n[[sink]]\nname = 's'\nkind = 'jsonl'\npath = '{}'\n\
         [[stream]]\nname = '0'\nsource = '{video}'\nmodels = ['yolox_nano']\nsinks = ['s']\nframes_max = {FRAMES}\n",
        out.display()
    );
    fs::write(&board, text).expect("written");
    let mut cross = Command::new(root().join("cross/run.sh"));
    cross.arg(&binary).args(["--board", &board.display().to_string()]).current_dir(root());
    let cross = cross.env("ORINOCO_DATA", data).env("ORT_DYLIB_PATH", library).output().expect("starts");
    assert!(cross.status.success(), "{}", String::from_utf8_lossy(&cross.stderr));
    let arguments = [
        "run",
        "--model",
        "tests/models/yolox_nano",
        "--source",
        &video,
        "--frames",
        FRAMES,
        "--score",
        "0.02",
        "--engine",
        "ort-cpu",
        "--json",
    ];
    let native = orinoco(&arguments).output().expect("starts");
    let lines = fs::read_to_string(&out).expect("written by the daemon");
    let cross: Vec<ResultLine> =
        lines.lines().map(|line| serde_json::from_str(line).expect("a result")).collect();
    compare("the daemon with ort-cpu", &cross, &results(&native));
}
