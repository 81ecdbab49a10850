//! Tests of `orinoco models init`: first descriptions of models, and errors for models that cannot be described.
#![allow(clippy::print_stdout, reason = "tests say what they skip")]

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use orinoco_tests::onnx::{Graph, element};
use orinoco_tests::{assert_one_sentence, binary, orinoco, root, shared, wait};

/// Maximum duration of a command, far longer than any of them takes on a busy machine, so that a hang is found.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Returns a classifier of images without nodes, whose input has this element type.
fn classifier(element_of_input: i32) -> Graph {
    Graph::new().input("x", element_of_input, &[1, 3, 8, 8]).output("y", element::F32, &[1, 3]).floats(
        "weights",
        &[192, 3],
        &[0.5; 576],
    )
}

/// Returns a classifier that an engine can run.
fn sound(input: i32) -> Graph {
    let graph = classifier(input).ints("flat", &[2], &[1, 192]);
    let cast = [("to", orinoco_tests::onnx::Attribute::Int(1))];
    let graph =
        graph.node("Cast", &["x"], &["float"], &cast).node("Reshape", &["float", "flat"], &["row"], &[]);
    graph.node("MatMul", &["row", "weights"], &["y"], &[])
}

fn write(path: &Path, bytes: impl AsRef<[u8]>) -> String {
    fs::create_dir_all(path.parent().expect("has a folder")).expect("makes folders");
    fs::write(path, bytes).expect("writable");
    path.display().to_string()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).expect("readable")
}

fn init(file: &str, more: &[&str]) -> Output {
    let arguments = [&["models", "init", file, "--engine", "tract"], more].concat();
    orinoco(&arguments).output().expect("orinoco starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the lines of `text` that begin with `key`.
fn lines<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    text.lines().filter(|line| line.split(' ').next() == Some(key)).collect()
}

/// Executes a command, which must end by itself. Returns its exit code and its output.
fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let child = orinoco(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    wait(child.expect("orinoco starts"), WAIT_MAX)
}

fn pipe(path: &Path) -> String {
    let made = Command::new("mkfifo").arg(path).status().expect("mkfifo starts");
    assert!(made.success() && fs::metadata(path).expect("made").file_type().is_fifo());
    path.display().to_string()
}

#[test]
fn every_doubt_that_is_named_has_its_line_in_the_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, kind) in [("u8", element::U8), ("i8", element::I8), ("f32", element::F32)] {
        let file = write(&folder.path().join(name).join("m.onnx"), sound(kind).file());
        let output = init(&file, &["--json"]);
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stdout));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let toml = report["toml"].as_str().expect("the description");
        for unsure in report["unsure"].as_array().expect("doubts") {
            let key = unsure["key"].as_str().expect("a key");
            let is_marked =
                |line: &str| line.contains("unsure: ") && line.trim_start_matches("# ").starts_with(key);
            assert!(toml.lines().any(is_marked), "{name}: {key}:\n{toml}");
        }
        if kind != element::F32 {
            assert!(lines(toml, "scale")[0].starts_with("scale = [1.0]  # unsure: "), "{toml}");
        }
    }
}

#[test]
fn shared_models_of_8_bits_get_the_scales_of_their_graphs() {
    let Some(file) = shared("models/kws_dscnn_int8.onnx") else { return };
    let output = orinoco(&["models", "init", &file]).output().expect("orinoco starts");
    if !output.status.success() {
        println!("skipped: no engine here runs kws_dscnn_int8: {}", stderr(&output));
        return;
    }
    let toml = String::from_utf8_lossy(&output.stdout).into_owned();
    let scales = lines(&toml, "quant_scale");
    assert!(
        scales[0].starts_with("quant_scale = 0.5847") && scales[1] == "quant_scale = 0.00390625",
        "{toml}"
    );
    assert_eq!(lines(&toml, "quant_zero_point"), ["quant_zero_point = 83", "quant_zero_point = -128"]);
    assert!(!stderr(&output).contains("quant_scale"), "{}", stderr(&output));
}

#[test]
fn a_description_is_written_whole_or_not_at_all() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = write(&folder.path().join("m.onnx"), sound(element::F32).file());
    let toml = folder.path().join("to").join("model.toml");
    let written = toml.display().to_string();
    // `ulimit -f 0` lets no file grow, which acts like a full disk.
    let limited = format!(
        "trap '' XFSZ; ulimit -f 0; exec {} models init {file} --engine tract --output {written}",
        binary("orinoco").display()
    );
    let output = Command::new("sh").args(["-c", &limited]).current_dir(root()).env("NO_COLOR", "1").output();
    assert_one_sentence(&output.expect("sh starts"), 3, "E0502", &[&written, "free space"]);
    let left: Vec<PathBuf> = fs::read_dir(toml.parent().expect("a folder"))
        .expect("made")
        .flatten()
        .map(|entry| entry.path())
        .collect();
    assert!(left.is_empty(), "{left:?}");
    // The retry finds no leftover that blocks it, and a further attempt overwrites nothing.
    assert!(init(&file, &["--output", &written]).status.success());
    let whole = text(&toml);
    let again = init(&file, &["--output", &written]);
    assert_one_sentence(&again, again.status.code().expect("ends"), "E0501", &["nothing is overwritten"]);
    assert_eq!(text(&toml), whole);
}

#[test]
fn a_file_that_is_described_already_is_guessed_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = write(&folder.path().join("1").join("model.onnx"), sound(element::F32).file());
    let toml = folder.path().join("model.toml");
    write(
        &toml,
        "version = 1\nname = 'mine'\n[input]\nwidth = 8\nheight = 8\nfill = 7\n[output]\nhead = 'raw'\n",
    );
    let output = init(&file, &[]);
    let guessed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(guessed.contains("head = \"classification\"") && !guessed.contains("mine"), "{guessed}");
    let said = stderr(&output);
    assert!(said.contains(&format!("{} already describes this model", toml.display())), "{said}");
}

#[test]
fn types_that_are_not_carried_are_not_sent_back_to_init() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, kind) in [("f64", element::F64), ("u16", element::U16), ("bool", element::BOOL)] {
        let file = write(&folder.path().join(format!("{name}.onnx")), sound(kind).file());
        let output = init(&file, &[]);
        let code = output.status.code().expect("ends by itself");
        assert!((1..=3).contains(&code), "{name}: {code}");
        let said = stderr(&output);
        assert!(said.contains("unsupported data type") && !said.contains("models init"), "{name}: {said}");
    }
}

#[test]
fn weights_in_a_file_that_is_missing_are_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let graph = Graph::new().input("x", element::F32, &[1, 3, 8, 8]).output("y", element::F32, &[1, 3, 8, 8]);
    let graph = graph.external("far", &[1], "weights.bin").node("Add", &["x", "far"], &["y"], &[]);
    let file = write(&folder.path().join("m.onnx"), graph.file());
    let weights = folder.path().join("weights.bin");
    let output = init(&file, &[]);
    assert_one_sentence(
        &output,
        2,
        "E0101",
        &[&weights.display().to_string(), &file, "into the model's folder"],
    );
    write(&weights, 0.5f32.to_le_bytes());
    let output = init(&file, &[]);
    assert!(output.status.success(), "{}", stderr(&output));
}

/// Returns a description of an 8 by 8 model, with further lines for input and output.
fn described(file: &str, input: &str, output: &str) -> String {
    format!(
        "version = 1\nname = 'm'\nfile = '{file}'\n[input]\nwidth = 8\nheight = 8\n{input}\n[output]\n{output}\n"
    )
}

#[test]
fn files_without_an_end_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let fifo = pipe(&folder.path().join("pipe"));
    let model = write(&folder.path().join("m.onnx"), sound(element::F32).file());
    let raw = "head = 'raw'";
    let labelled = |file: &str| format!("head = 'classification'\nlabels_file = '{file}'");
    let cases = [
        ("file is a pipe", described(&fifo, "", raw), "pipe"),
        ("file is a device", described("/dev/zero", "", raw), "device"),
        ("labels are a pipe", described(&model, "", &labelled(&fifo)), "pipe"),
        ("labels are a device", described(&model, "", &labelled("/dev/zero")), "device"),
    ];
    for (name, toml, word) in cases {
        let toml = write(&folder.path().join(name).join("model.toml"), toml);
        let (code, said) = run(&["models", "show", &toml, "--engine", "tract", "--json"]);
        assert!(code == Some(2) && said.contains("E0101") && said.contains(word), "{name}: {code:?}: {said}");
    }
    let (code, said) = run(&["models", "import", "/dev/zero", "--json"]);
    assert!(code == Some(2) && said.contains("device"), "{code:?}: {said}");
    let onnx = folder.path().join("pipe.onnx");
    let onnx = pipe(&onnx);
    let (code, said) = run(&["models", "init", &onnx, "--json"]);
    assert!(code == Some(2) && said.contains("pipe"), "{code:?}: {said}");
}

#[test]
fn classes_in_the_billions_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(&folder.path().join("m.onnx"), sound(element::F32).file());
    let text = "[property]\nonnx-file=m.onnx\nnetwork-type=1\nnum-detected-classes=4000000000\n";
    let file = write(&folder.path().join("config.txt"), text);
    let (code, said) = run(&["models", "import", &file, "--json"]);
    assert!(
        code == Some(2)
            && said.contains("E0207")
            && said.contains("number of classes is 4000000000, above the maximum of 100000"),
        "{code:?}: {said}"
    );
    let open =
        Graph::new().input("x", element::F32, &[1, 3, 8, 8]).output("y", element::F32, &[1, 4_000_000_000]);
    let file = write(&folder.path().join("open.onnx"), open.node("Foo", &["x"], &["y"], &[]).file());
    let (code, said) = run(&["models", "init", &file, "--json"]);
    assert!(code.is_some_and(|code| (1..=3).contains(&code)), "{code:?}: {said}");
}

#[test]
fn numbers_that_make_all_samples_the_same_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let model = write(&folder.path().join("m.onnx"), sound(element::F32).file());
    let check = |input: &str, output: &str, expected: &[(&str, &str)]| {
        let toml = write(&folder.path().join("m").join("model.toml"), described(&model, input, output));
        let (code, said) = run(&["models", "show", &toml, "--engine", "tract", "--json"]);
        let report: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        let faults = report["faults"].as_array().unwrap_or_else(|| panic!("{input}: {said}"));
        let found: Vec<(String, &str)> = faults
            .iter()
            .map(|fault| {
                let subject = fault["subject"].as_str().unwrap_or_default();
                let key = subject.rsplit("key ").next().unwrap_or_default().trim_matches('`').to_owned();
                (key, fault["code"].as_str().unwrap_or_default())
            })
            .collect();
        let found: Vec<(&str, &str)> = found.iter().map(|(key, code)| (key.as_str(), *code)).collect();
        assert_eq!((code, found.as_slice()), (Some(2), expected), "{input} {output}: {said}");
    };
    let raw = "head = 'raw'";
    for (line, key) in [
        ("scale = [0]", "input.scale"),
        ("scale = [1, 0, 1]", "input.scale"),
        ("scale = [nan]", "input.scale"),
        ("scale = [1e60]", "input.scale"),
        ("mean = [inf]", "input.mean"),
        ("std = [0]", "input.std"),
        ("std = [nan]", "input.std"),
        ("quant_scale = 1e-60", "input.quant_scale"),
        ("quant_scale = nan", "input.quant_scale"),
    ] {
        check(line, raw, &[(key, "E0106")]);
    }
    // A key with an error of its own is not reported as missing, too.
    check("", "head = 'classification'\nclasses = 0", &[("output.classes", "E0106")]);
    check("", "head = 'classification'\nclasses = 'many'", &[("output.classes", "E0105")]);
    check("", "head = 'classification'\nlabels = 'person'", &[("output.labels", "E0105")]);
    check("", "head = 'classification'\nlabels = []", &[("output.labels", "E0104")]);
    check("", "head = 'classification'", &[("output.labels", "E0104")]);
}
