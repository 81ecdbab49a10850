//! The cross-compiled binary under qemu-user finds what the native one finds. Ignored by default: `make test` runs it after
//! it has built the aarch64 binaries.

use std::path::PathBuf;
use std::process::Command;

use orinoco_tests::{Agreement, agree, data, orinoco, results, root, shared};

const FRAMES: &str = "5";

/// The aarch64 binary; `None`, with a line, where it was not built.
fn cross_binary() -> Option<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let path = target.join("aarch64-unknown-linux-gnu/release/orinoco");
    if !path.is_file() {
        println!("skipped: no aarch64 binary (make cross)");
    }
    path.is_file().then_some(path)
}

fn check(engine: &str, library: Option<&str>) {
    let (Some(binary), Some(video), Some(data)) =
        (cross_binary(), shared("video/one-by-one-person-detection.mp4"), data())
    else {
        return;
    };
    // Little happens in the first frames: the threshold is low so that there is something to compare.
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
    let (cross, native) = (results(&cross), results(&native));
    assert_eq!((cross.len(), native.len()), (5, 5));
    let how = Agreement { iou_min: 0.97, score_max: 0.02, threshold: 0.02 };
    for (ours, theirs) in cross.iter().zip(&native) {
        assert_eq!((ours.seq, ours.pts_ns, &ours.engine), (theirs.seq, theirs.pts_ns, &theirs.engine));
        agree(&ours.detections, &theirs.detections, how)
            .unwrap_or_else(|why| panic!("frame {}: {why}", ours.seq));
    }
    let boxes: usize = cross.iter().map(|line| line.detections.len()).sum();
    println!("{engine} on aarch64: {boxes} boxes on {FRAMES} frames agree");
}

#[test]
#[ignore = "needs the aarch64 binaries; `make test` runs it"]
fn tract_on_aarch64() {
    check("tract", None);
}

#[test]
#[ignore = "needs the aarch64 binaries and ONNX Runtime for aarch64; `make test` runs it"]
fn onnx_runtime_on_aarch64() {
    let fetched = Command::new(root().join("cross/onnxruntime.sh")).arg("aarch64").output().expect("starts");
    if !fetched.status.success() {
        println!("skipped: ONNX Runtime for aarch64 cannot be fetched");
        return;
    }
    check("ort-cpu", Some(String::from_utf8_lossy(&fetched.stdout).trim()));
}
