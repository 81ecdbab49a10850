//! Models with outputs that are NaN, infinite or huge, one model for each head, in a complete run: 1080p, tracker,
//! zones, annotated video, JSON.
#![allow(clippy::print_stdout, reason = "tests say what they skip")]

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use orinoco_api::{ResultLine, Summary};
use orinoco_tests::{assert_one_sentence, engines, orinoco, results};

/// Width and height of the models' input, in pixels.
const SIDE: usize = 64;
const FRAMES: usize = 3;
/// Maximum duration of a run. 18 models over three frames take a second or two; the rest is for a busy machine.
const RUN_MAX: Duration = Duration::from_secs(120);

/// Huge, but finite value.
const HUGE: f32 = 1e8;

/// Output of a model: its name, its shape, and its values.
type Tensor = (&'static str, &'static [usize], Vec<f32>);

/// Returns one model for each head. Without changes to its values, each model finds something with certainty, in boxes
/// of 1e8 pixels.
fn models() -> Vec<(&'static str, &'static str, Vec<Tensor>)> {
    /// Returns the values of a tensor whose rows are all `row`.
    fn rows(shape: &[usize], row: &[f32]) -> Vec<f32> {
        row.iter().copied().cycle().take(shape.iter().product()).collect()
    }
    /// Returns the values of a tensor with one value for each channel, repeated over the other axes.
    fn channels(shape: &[usize], values: &[f32]) -> Vec<f32> {
        let places: usize = shape[2..].iter().product();
        values.iter().flat_map(|value| vec![*value; places]).collect()
    }
    let place = [32.0, 32.0, HUGE, HUGE];
    let corners = [-HUGE, -HUGE, HUGE, HUGE];
    let of = |name, shape: &'static [usize], row: &[f32]| (name, shape, rows(shape, row));
    let by_channel = |name, shape: &'static [usize], values: &[f32]| (name, shape, channels(shape, values));
    let classes = "classes = 2";
    let pose: Vec<f32> = place.into_iter().chain([0.9]).chain([HUGE, HUGE, 0.9].repeat(17)).collect();
    let nanodet: Vec<f32> = [0.9, 0.8].into_iter().chain([1.0; 32]).collect();
    vec![
        // A width of e^16 cells is a hundred million pixels.
        ("yolox", classes, vec![of("y", &[1, 84, 7], &[0.0, 0.0, 16.0, 16.0, 0.9, 0.9, 0.8])]),
        ("yolov5", classes, vec![of("y", &[1, 252, 7], &[32.0, 32.0, HUGE, HUGE, 0.9, 0.9, 0.8])]),
        ("yolov8", classes, vec![by_channel("y", &[1, 6, 84], &[32.0, 32.0, HUGE, HUGE, 0.9, 0.8])]),
        (
            "yolov8-seg",
            classes,
            vec![
                by_channel("y", &[1, 8, 84], &[32.0, 32.0, HUGE, HUGE, 0.9, 0.8, 1.0, HUGE]),
                of("masks", &[1, 2, 16, 16], &[1.0]),
            ],
        ),
        ("yolov8-pose", "classes = 1", vec![by_channel("y", &[1, 56, 84], &pose)]),
        ("yolov8-obb", classes, vec![by_channel("y", &[1, 7, 84], &[32.0, 32.0, HUGE, HUGE, 0.9, 0.8, 0.3])]),
        ("end2end", classes, vec![of("y", &[1, 10, 6], &[-HUGE, -HUGE, HUGE, HUGE, 0.9, 1.0])]),
        ("nanodet", classes, vec![of("y", &[1, 84, 34], &nanodet)]),
        (
            "fastestdet",
            classes,
            vec![by_channel("y", &[1, 7, 4, 4], &[0.9, HUGE, HUGE, HUGE, HUGE, 0.9, 0.8])],
        ),
        (
            "centernet",
            "classes = 2\nstrides = [4]",
            vec![
                of("heatmap", &[1, 2, 16, 16], &[0.9]),
                of("size", &[1, 2, 16, 16], &[HUGE]),
                of("offset", &[1, 2, 16, 16], &[HUGE]),
            ],
        ),
        ("ssd", classes, vec![of("scores", &[1, 10, 2], &[0.8, 0.9]), of("boxes", &[1, 10, 4], &corners)]),
        (
            "detr",
            classes,
            vec![of("logits", &[1, 10, 2], &[3.0, 2.0]), of("pred_boxes", &[1, 10, 4], &place)],
        ),
        (
            "listed",
            classes,
            vec![of("boxes", &[10, 4], &corners), of("scores", &[10], &[0.9]), of("labels", &[10], &[1.0])],
        ),
        ("classification", "classes = 3", vec![of("y", &[1, 3], &[HUGE, 0.0, 1.0])]),
        ("segmentation", "classes = 3", vec![by_channel("y", &[1, 3, 8, 8], &[HUGE, 0.0, 1.0])]),
        ("embedding", "", vec![of("y", &[1, 4], &[HUGE, 1.0, 0.0, -HUGE])]),
        ("raw", "", vec![of("y", &[1, 3], &[HUGE, 0.0, 1.0])]),
    ]
}

/// Encoding of the protobuf messages of onnx.proto that a graph of constants needs.
mod onnx {
    fn varint(mut value: u64, bytes: &mut Vec<u8>) {
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
    }

    fn number(tag: u64, value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        varint(tag << 3, &mut bytes);
        varint(value, &mut bytes);
        bytes
    }

    /// Returns a field with a message, a string, or packed numbers.
    fn field(tag: u64, content: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        varint(tag << 3 | 2, &mut bytes);
        varint(content.len() as u64, &mut bytes);
        bytes.extend_from_slice(content);
        bytes
    }

    /// Returns the `ValueInfoProto` of an f32 tensor.
    fn value(name: &str, shape: &[usize]) -> Vec<u8> {
        let axes: Vec<u8> = shape.iter().flat_map(|size| field(1, &number(1, *size as u64))).collect();
        let tensor = [number(1, 1), field(2, &axes)].concat();
        [field(1, name.as_bytes()), field(2, &field(1, &tensor))].concat()
    }

    /// Returns the `TensorProto` of an f32 tensor.
    fn tensor(name: &str, shape: &[usize], values: &[f32]) -> Vec<u8> {
        let dims: Vec<u8> = shape.iter().flat_map(|size| number(1, *size as u64)).collect();
        let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        [dims, number(2, 1), field(8, name.as_bytes()), field(9, &raw)].concat()
    }

    fn node(operator: &str, inputs: &[&str], output: &str, attributes: &[u8]) -> Vec<u8> {
        let inputs: Vec<u8> = inputs.iter().flat_map(|name| field(1, name.as_bytes())).collect();
        [inputs, field(2, output.as_bytes()), field(4, operator.as_bytes()), attributes.to_vec()].concat()
    }

    /// Returns a model whose outputs are `values` for any image. A zero that is computed from the image is added to
    /// each, so that no engine treats the outputs as constants.
    pub(super) fn model(side: usize, outputs: &[(&str, &[usize], Vec<f32>)]) -> Vec<u8> {
        let keepdims = field(5, &[field(1, b"keepdims"), number(3, 0), number(20, 2)].concat());
        let mut graph = Vec::new();
        graph.extend(field(1, &node("ReduceMax", &["images"], "most", &keepdims)));
        graph.extend(field(1, &node("Mul", &["most", "nothing"], "zero", &[])));
        for (index, (name, ..)) in outputs.iter().enumerate() {
            graph.extend(field(1, &node("Add", &[&format!("value{index}"), "zero"], name, &[])));
        }
        graph.extend(field(2, b"hostile"));
        graph.extend(field(5, &tensor("nothing", &[], &[0.0])));
        for (index, (_, shape, values)) in outputs.iter().enumerate() {
            graph.extend(field(5, &tensor(&format!("value{index}"), shape, values)));
        }
        graph.extend(field(11, &value("images", &[1, 3, side, side])));
        for (name, shape, _) in outputs {
            graph.extend(field(12, &value(name, shape)));
        }
        let opset = field(8, &[field(1, b""), number(2, 13)].concat());
        [number(1, 8), field(7, &graph), opset].concat()
    }
}

/// Writes a model for each head, with `change` applied to all its values, and a board that runs all of them on one
/// stream. Returns the names of the heads.
fn write_board(dir: &Path, engine: &str, change: impl Fn(f32) -> f32) -> Vec<&'static str> {
    let mut text = format!("version = 1\n[inference]\nengines = ['{engine}']\n");
    let models = models();
    for (head, keys, outputs) in &models {
        let folder = dir.join(head);
        fs::create_dir_all(&folder).expect("made");
        let outputs: Vec<Tensor> = outputs
            .iter()
            .map(|(name, shape, values)| (*name, *shape, values.iter().map(|v| change(*v)).collect()))
            .collect();
        fs::write(folder.join("model.onnx"), onnx::model(SIDE, &outputs)).expect("written");
        let described = format!(
            "version = 1\nname = '{head}'\nfile = 'model.onnx'\n[input]\nwidth = {SIDE}\nheight = {SIDE}\n\
             fit = 'letterbox'\nalign = 'center'\n[output]\nhead = '{head}'\n{keys}\n"
        );
        fs::write(folder.join("model.toml"), described).expect("written");
        text.push_str(&format!("[[model]]\nname = '{head}'\nmodel = '{}'\n", folder.display()));
    }
    let heads: Vec<&str> = models.iter().map(|(head, ..)| *head).collect();
    let shown = dir.display();
    text.push_str(&format!(
        "[[sink]]\nname = 'log'\nkind = 'jsonl'\npath = '{shown}/out.jsonl'\n\
         [[sink]]\nname = 'video'\nkind = 'mp4'\npath = '{shown}/out.mp4'\n\
         [[stream]]\nname = 's'\nsource = 'test://ball?width=1920&height=1080&frames={FRAMES}'\n\
         models = {heads:?}\nsinks = ['log', 'video']\ndrop = 'block'\ntrack = true\n\
         [[stream.zone]]\nname = 'all'\ncorners = [0, 0, 1, 0, 1, 1, 0, 1]\n\
         [[stream.line]]\nname = 'middle'\nends = [0, 0, 1, 1]\n"
    ));
    fs::write(dir.join("board.toml"), text).expect("written");
    heads
}

/// Runs every head with `change` applied to its values. Returns the result lines, the summary and standard error;
/// `None` without an engine.
fn run(change: impl Fn(f32) -> f32) -> Option<(Vec<ResultLine>, Summary, String)> {
    let engine = *engines().first()?;
    let dir = tempfile::tempdir().expect("temporary folder");
    let heads = write_board(dir.path(), engine, change);
    let (board, summary) = (dir.path().join("board.toml"), dir.path().join("summary.json"));
    let mut command = orinoco(&["run", "--board"]);
    command.arg(&board).arg("--summary").arg(&summary).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("orinoco starts");
    let mut stderr = child.stderr.take().expect("it is piped");
    // Standard error is read while the program runs, because a full pipe would stop it.
    let reader = std::thread::spawn(move || std::io::read_to_string(&mut stderr).expect("text"));
    let (code, _) = orinoco_tests::wait(child, RUN_MAX);
    let said = reader.join().expect("it reads to the end");
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    let text = fs::read_to_string(dir.path().join("out.jsonl")).expect("results");
    let lines: Vec<ResultLine> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}")))
        .collect();
    assert_eq!(lines.len(), FRAMES * heads.len(), "a line for each model and frame");
    assert!(fs::metadata(dir.path().join("out.mp4")).expect("a video").len() > 1000);
    let summary = fs::read_to_string(&summary).expect("a summary");
    Some((lines, serde_json::from_str(&summary).expect("a summary is JSON"), said))
}

/// Checks that values which are not finite give no results, are counted, and are reported in one warning for each
/// model.
fn check_not_finite(value: f32) {
    let Some((lines, summary, said)) = run(|_| value) else {
        return println!("skipped: {value} through the program: no engine can run here");
    };
    for line in &lines {
        assert!(
            line.detections.is_empty() && line.classes.is_empty() && line.embedding.is_empty(),
            "{line:?}"
        );
    }
    for model in &summary.models {
        let name = &model.name;
        assert!(model.not_finite > 0, "{name}: {}", model.not_finite);
        assert_eq!(model.not_finite % FRAMES as u64, 0, "{name}: as many in each frame");
        let warnings = said.lines().filter(|line| line.contains(&format!("outputs of {name}: "))).count();
        assert_eq!(warnings, 1, "{name}:\n{said}");
    }
}

#[test]
fn no_numbers_are_counted_and_reported_once() {
    check_not_finite(f32::NAN);
}

#[test]
fn infinities_are_counted_and_reported_once() {
    check_not_finite(f32::INFINITY);
}

#[test]
fn boxes_of_1e8_pixels_are_found_drawn_and_followed() {
    let Some((lines, summary, said)) = run(|value| value) else {
        return println!("skipped: huge boxes through the program: no engine can run here");
    };
    let boxless = ["classification", "segmentation", "embedding", "raw"];
    for line in lines.iter().filter(|line| !boxless.contains(&line.model.as_str())) {
        let found = line.detections.first().unwrap_or_else(|| panic!("{} finds nothing", line.model));
        // The decoders of these heads use bounded functions, so they give boxes of ordinary size for any value.
        let is_huge = ["nanodet", "fastestdet"].contains(&line.model.as_str())
            || found.bounds[2] - found.bounds[0] > HUGE
            || found.bounds[0] > HUGE;
        assert!(is_huge, "{}: {found:?}", line.model);
    }
    assert!(summary.models.iter().all(|model| model.not_finite == 0), "{:?}", summary.models);
    assert!(!said.contains("outputs of"), "{said}");
}

#[test]
fn values_of_1e30_come_through() {
    if run(|_| 1e30).is_none() || run(|_| -1e30).is_none() {
        println!("skipped: 1e30 through the program: no engine can run here");
    }
}

#[test]
fn infer_warns_once_and_a_gallery_of_nothing_is_refused() {
    let Some(engine) = engines().into_iter().next() else {
        return println!("skipped: infer on no numbers: no engine can run here");
    };
    let dir = tempfile::tempdir().expect("temporary folder");
    write_board(dir.path(), engine, |_| f32::NAN);
    let known = dir.path().join("known");
    fs::create_dir(&known).expect("made");
    let images = ["known/ann.png", "a.png", "b.png"].map(|name| dir.path().join(name));
    for image in &images {
        image::RgbImage::new(8, 8).save(image).expect("written");
    }
    let infer = |head: &str| {
        let model = dir.path().join(head).display().to_string();
        let mut command = orinoco(&["infer", "--json", "--engine", engine, "--model", &model]);
        command.args(&images[1..]);
        command
    };
    for head in ["yolov8", "classification", "embedding", "segmentation", "raw"] {
        let output = infer(head).output().expect("orinoco starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{head}: {said}");
        assert_eq!(results(&output).len(), 2, "{head}: {}", String::from_utf8_lossy(&output.stdout));
        assert_eq!(said.lines().filter(|line| line.contains("outputs of")).count(), 1, "{head}: {said}");
    }
    let output = infer("embedding").arg("--gallery").arg(&known).output().expect("orinoco starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("E0208"), "{said}");
    let output = orinoco(&["infer", "--engine", engine, "--model"])
        .arg(dir.path().join("embedding"))
        .arg("--gallery")
        .arg(&known)
        .arg(&images[1])
        .output()
        .expect("orinoco starts");
    assert_one_sentence(&output, 3, "E0208", &["ann.png", "NaN or infinite"]);
}
