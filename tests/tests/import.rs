//! Import of descriptions for DeepStream and Triton: the imported description gives the same results.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use orinoco_api::ResultLine;
use orinoco_tests::{Random, assert_one_sentence, data, engines, orinoco, results, root, shared};
use serde_json::Value;

/// Photos in which detectors find people, cars, animals and faces.
const PHOTOS: [&str; 4] =
    ["astronaut_group.jpg", "dog_bicycle_truck.jpg", "person_road.jpg", "cricket_man.jpg"];

fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().expect("has a folder")).expect("makes folders");
    fs::write(&path, text).expect("writable");
    path
}

fn import(file: &Path, to: &Path, more: &[&str]) -> Output {
    let (file, to) = (file.display().to_string(), to.display().to_string());
    let arguments = [&["models", "import", &file, "-o", &to, "--json"], more].concat();
    orinoco(&arguments).output().expect("starts")
}

/// Imports a description, and returns the report.
fn imported(file: &Path, to: &Path, more: &[&str]) -> Value {
    let output = import(file, to, more);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).expect("a JSON report")
}

fn infer(model: &Path, engine: &str) -> Vec<ResultLine> {
    let photos: Vec<String> = PHOTOS.iter().filter_map(|photo| shared(&format!("images/{photo}"))).collect();
    let model = model.display().to_string();
    let output = orinoco(&["infer", "--json", "--model", &model, "--engine", engine])
        .args(&photos)
        .output()
        .expect("starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    results(&output)
}

/// Checks that both descriptions give the same results for every photo, and that there are results.
fn same(imported: &Path, by_hand: &Path) {
    for engine in engines() {
        let (ours, theirs) = (infer(imported, engine), infer(by_hand, engine));
        assert_eq!(ours.len(), PHOTOS.len());
        for (one, other) in ours.iter().zip(&theirs) {
            assert_eq!(one.detections, other.detections, "{engine}: {:?}", one.image);
            assert_eq!(one.classes, other.classes, "{engine}: {:?}", one.image);
        }
        let found: usize = ours.iter().map(|line| line.detections.len() + line.classes.len()).sum();
        assert!(found >= PHOTOS.len(), "{engine}: {found} found");
    }
}

/// Writes the tests' own description of `model` with changes, and returns its path.
fn by_hand(dir: &Path, model: &str, changes: &[(&str, &str)]) -> PathBuf {
    let mut text =
        fs::read_to_string(root().join("tests/models").join(model).join("model.toml")).expect("readable");
    for (from, to) in changes {
        assert!(text.contains(from), "`{from}` in the description of {model}");
        text = text.replace(from, to);
    }
    write(dir, "by-hand/model.toml", &text)
}

fn keys(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(|row| row["key"].as_str()).collect()
}

/// Returns a configuration for nvinfer in the style of DeepStream's guide and the YOLO samples.
fn yolox_keyfile(model: &str, labels: &str) -> String {
    format!(
        "# YOLOX-Nano for nvinfer
[property]
gpu-id=0
net-scale-factor=1.0
model-color-format=1
onnx-file={model}
model-engine-file=yolox_nano.onnx_b1_gpu0_fp16.engine
labelfile-path={labels}
batch-size=1
network-mode=2
num-detected-classes=80
interval=0
gie-unique-id=1
process-mode=1
network-type=0
cluster-mode=2
maintain-aspect-ratio=1
symmetric-padding=0
parse-bbox-func-name=NvDsInferParseYolox
custom-lib-path=libnvdsinfer_custom_impl_yolox.so

[class-attrs-all]
pre-cluster-threshold=0.3
nms-iou-threshold=0.45
topk=300

[class-attrs-2]
pre-cluster-threshold=0.6
"
    )
}

#[test]
fn a_detector_for_nvinfer() {
    let (Some(model), Some(labels)) = (shared("models/yolox_nano.onnx"), shared("labels/coco80.txt")) else {
        return;
    };
    let dir = tempfile::tempdir().expect("temporary folder");
    // nvinfer pads images with black.
    let by_hand = by_hand(dir.path(), "yolox_nano", &[("fill = 114", "fill = 0")]);
    let keyfile = yolox_keyfile(&model, &labels);
    let yaml: String = keyfile
        .lines()
        .map(|line| match line.strip_prefix('[').and_then(|group| group.strip_suffix(']')) {
            Some(group) => format!("{group}:\n"),
            None => match line.split_once('=') {
                Some((key, value)) => format!("  {key}: {value}\n"),
                None => format!("{line}\n"),
            },
        })
        .collect();
    for (name, text) in [("config_infer_primary.txt", keyfile), ("config_infer_primary.yml", yaml)] {
        let to = dir.path().join(format!("{name}.d/model.toml"));
        let report = imported(&write(dir.path(), name, &text), &to, &[]);
        assert!(keys(&report["unsure"]).is_empty(), "{name}: {report}");
        assert_eq!(
            keys(&report["left_out"]),
            [
                "gpu-id = 0",
                "model-engine-file = yolox_nano.onnx_b1_gpu0_fp16.engine",
                "batch-size = 1",
                "network-mode = 2",
                "interval = 0",
                "gie-unique-id = 1",
                "process-mode = 1",
                "parse-bbox-func-name = NvDsInferParseYolox",
                "custom-lib-path = libnvdsinfer_custom_impl_yolox.so",
                "[class-attrs-2] pre-cluster-threshold = 0.6",
            ],
            "{name}"
        );
        same(&to, &by_hand);
    }
}

#[test]
fn a_face_detector_and_a_classifier_for_nvinfer() {
    let models = ["models/ultraface_rfb320.onnx", "models/squeezenet1.0_fp32.onnx"].map(shared);
    let ([Some(faces), Some(classes)], Some(synset)) = (models, shared("labels/imagenet1000_synset.txt"))
    else {
        return;
    };
    let dir = tempfile::tempdir().expect("temporary folder");
    write(dir.path(), "faces.txt", "background\nface\n");
    let text = format!(
        "[property]\nonnx-file={faces}\nnet-scale-factor=0.0078125\noffsets=127;127;127\nmodel-color-format=0\n\
         labelfile-path=faces.txt\nnum-detected-classes=2\ncluster-mode=2\n\n[class-attrs-all]\nthreshold=0.7\n\
         nms-iou-threshold=0.3\n"
    );
    let to = dir.path().join("faces/model.toml");
    imported(&write(dir.path(), "faces_infer.txt", &text), &to, &[]);
    same(&to, &by_hand(dir.path(), "ultraface_rfb320", &[("bilinear-antialias", "bilinear")]));

    // Labels of classifiers are in one line.
    let names = fs::read_to_string(synset).expect("readable").lines().collect::<Vec<_>>().join(";");
    write(dir.path(), "synset.txt", &names);
    let text = format!(
        "[property]\nonnx-file={classes}\nnetwork-type=1\noffsets=104;117;123\nmodel-color-format=1\n\
         labelfile-path=synset.txt\n"
    );
    let to = dir.path().join("classes/model.toml");
    imported(&write(dir.path(), "classes_infer.txt", &text), &to, &[]);
    let changes =
        [("bilinear-antialias", "bilinear"), ("fit = \"crop\"\ncrop_from = 256", "fit = \"stretch\"")];
    same(&to, &by_hand(dir.path(), "squeezenet1.0_fp32", &changes));
}

#[test]
fn a_detector_for_triton() {
    let (Some(model), Some(labels)) = (shared("models/yolox_nano.onnx"), shared("labels/coco80.txt")) else {
        return;
    };
    let dir = tempfile::tempdir().expect("temporary folder");
    let text = r#"
name: "detector"
platform: "onnxruntime_onnx"
max_batch_size: 0
input [
  { name: "images", data_type: TYPE_FP32, format: FORMAT_NCHW, dims: [ 1, 3, 416, 416 ] }
]
output [
  {
    name: "output"
    data_type: TYPE_FP32
    dims: [ 1, 3549, 85 ]
    label_filename: "coco80.txt"
  }
]
instance_group [ { count: 1 kind: KIND_GPU } ]
dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 100 }
"#;
    let config = write(dir.path(), "repository/detector/config.pbtxt", text);
    fs::create_dir_all(dir.path().join("repository/detector/1")).expect("makes folders");
    fs::copy(&model, dir.path().join("repository/detector/1/model.onnx")).expect("copied");
    fs::copy(&labels, dir.path().join("repository/detector/coco80.txt")).expect("copied");
    let to = dir.path().join("ours/model.toml");
    let report = imported(&config, &to, &[]);
    assert_eq!(
        keys(&report["left_out"]),
        ["max_batch_size: 0", "instance_group {…}", "dynamic_batching {…}"]
    );
    // A Triton configuration contains nothing about the preprocessing of images.
    assert_eq!(keys(&report["unsure"]), ["color", "mean", "align", "fit", "fill", "resize"]);
    let by_hand = by_hand(dir.path(), "yolox_nano", &[]);
    same(&to, &by_hand);
}

#[test]
fn sequences_for_triton_keep_their_state() {
    let Some(model) = shared("models/silero_vad_16k_static.onnx") else { return };
    let dir = tempfile::tempdir().expect("temporary folder");
    let text = r#"
backend: "onnxruntime"
input { name: "input" data_type: TYPE_FP32 dims: [ 1, 576 ] }
input { name: "sr" data_type: TYPE_INT64 dims: [ 1 ] }
output { name: "output" data_type: TYPE_FP32 dims: [ 1, 1 ] }
sequence_batching {
  max_sequence_idle_microseconds: 5000000
  state [ { input_name: "state" output_name: "stateN" data_type: TYPE_FP32 dims: [ 2, 1, 128 ] } ]
}
"#;
    let config = write(dir.path(), "config.pbtxt", text);
    let to = dir.path().join("model.toml");
    let report = imported(&config, &to, &["--onnx", &model]);
    assert_eq!(keys(&report["left_out"]), ["sequence_batching.max_sequence_idle_microseconds: 5000000"]);
    let toml = fs::read_to_string(&to).expect("readable");
    assert!(toml.contains("[[state]]\ninput = \"state\"\noutput = \"stateN\""), "{toml}");
}

#[test]
fn what_cannot_be_imported_is_said_in_a_sentence() {
    let Some(data) = data() else { return };
    let dir = tempfile::tempdir().expect("temporary folder");
    let model = data.join("models/yolox_nano.onnx").display().to_string();
    let to = dir.path().join("model.toml");
    let refused = |name: &str, text: &str, words: &[&str]| {
        let path = write(dir.path(), name, text);
        let (path, to) = (path.display().to_string(), to.display().to_string());
        let output = orinoco(&["models", "import", &path, "-o", &to]).output().expect("starts");
        assert_one_sentence(&output, 2, "E0207", words);
        assert!(!to_exists(dir.path()), "nothing is written");
    };
    let with = |line: &str| format!("[property]\nonnx-file={model}\n{line}\n");
    refused("a.txt", "this is text", &["a.txt"]);
    refused("b.txt", "[application]\nx=1\n[primary-gie]\nconfig-file=c.txt\n", &["config-file"]);
    refused("c.txt", "[property]\nmodel-engine-file=a.engine\n", &["model-engine-file", "--onnx"]);
    refused("d.txt", &with("net-scale-factor=big"), &["net-scale-factor", "big"]);
    refused("e.txt", &with("offsets=1;2"), &["offsets", "2 values, not 3"]);
    refused("f.txt", &with("model-color-format=7"), &["model-color-format", "0 to 2"]);
    refused("g.txt", &with("infer-dims=3;0;4"), &["infer-dims"]);
    refused("h.yml", "property: [1, 2]\n", &["h.yml", "property"]);
    refused("i.yml", "property:\n  a: b: c\n", &["i.yml"]);
    refused("j.yml", &"[".repeat(100_000), &["j.yml"]);
    refused("k.pbtxt", "name: \"a\ninput {", &["k.pbtxt", "line 1"]);
    refused("l.pbtxt", "name: \"a\"\nplatform: \"tensorrt_plan\"\n", &["tensorrt_plan", "--onnx"]);
    refused("m.pbtxt", "name: \"a\"\nplatform: \"onnxruntime_onnx\"\n", &["model.onnx", "1/model.onnx"]);
    refused("n.pbtxt", &"input {".repeat(50_000), &["n.pbtxt"]);
    let onnx = fs::read(&model).map(|bytes| bytes[..5000].to_vec()).unwrap_or_default();
    fs::write(dir.path().join("o.txt"), onnx).expect("writable");
    let path = dir.path().join("o.txt").display().to_string();
    let output = orinoco(&["models", "import", &path]).output().expect("starts");
    assert_one_sentence(&output, 2, "E0207", &["o.txt", "models init"]);
}

fn to_exists(dir: &Path) -> bool {
    dir.join("model.toml").exists()
}

#[test]
fn cut_and_scrambled_files_end_with_a_sentence_or_a_description() {
    let (Some(model), Some(labels)) = (shared("models/ultraface_rfb320.onnx"), shared("labels/coco80.txt"))
    else {
        return;
    };
    let dir = tempfile::tempdir().expect("temporary folder");
    let whole = yolox_keyfile(&model, &labels);
    let mut random = Random(7);
    for round in 0..60 {
        let extension = ["txt", "yml", "pbtxt"][round % 3];
        let mut bytes = whole.clone().into_bytes();
        bytes.truncate(random.below(bytes.len()));
        for _ in 0..random.below(4) {
            let at = random.below(bytes.len().max(1));
            if let Some(byte) = bytes.get_mut(at) {
                *byte = random.below(256) as u8;
            }
        }
        let path = dir.path().join(format!("{round}.{extension}"));
        fs::write(&path, bytes).expect("writable");
        let output = orinoco(&["models", "import", &path.display().to_string()]).output().expect("starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("panicked"), "{round}: {said}");
        assert!(matches!(output.status.code(), Some(0 | 2 | 3)), "{round}: {:?}: {said}", output.status);
    }
}
