//! Output of commands, validated against the schema files of the contracts.
#![allow(clippy::print_stdout, reason = "tests say what they skip")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use orinoco_api::Contract;
use orinoco_tests::{engines, orinoco, root, shared};
use serde_json::Value;

/// Schema files of contracts, each read once.
#[derive(Default)]
struct Schemas {
    compiled: boon::Schemas,
    known: BTreeMap<String, boon::SchemaIndex>,
}

impl Schemas {
    /// Compiles the schema file of a contract. Fields that the schema does not contain are refused here, because a
    /// printed field must be documented.
    fn read(&mut self, name: &str) -> boon::SchemaIndex {
        if let Some(index) = self.known.get(name) {
            return *index;
        }
        let contract = Contract::find(name).unwrap_or_else(|| panic!("{name} is no contract"));
        let path = root().join("docs/schemas").join(contract.file_name());
        let text = fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        let mut schema = serde_json::from_str(&text).expect("a schema is JSON");
        refuse_more(&mut schema);
        let place = format!("https://orinoco/{}", contract.file_name());
        let mut compiler = boon::Compiler::new();
        compiler.add_resource(&place, schema).expect("a name of its own");
        let index = compiler.compile(&place, &mut self.compiled).expect("a schema of draft 2020-12");
        self.known.insert(name.to_owned(), index);
        index
    }

    /// Executes a command, and validates each line of its output against the contract that the line names.
    #[track_caller]
    fn check(&mut self, arguments: &[&str], expected: &[&str]) {
        let output = orinoco(&[&["--json"], arguments].concat()).output().expect("orinoco starts");
        let text = String::from_utf8_lossy(&output.stdout);
        let mut names = Vec::new();
        for line in text.lines() {
            let value: Value = serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
            let name = value["schema"].as_str().unwrap_or_else(|| panic!("no schema: {line}")).to_owned();
            let index = self.read(&name);
            if let Err(why) = self.compiled.validate(&value, index) {
                panic!("{arguments:?}: {why}\n{line}");
            }
            names.push(name);
        }
        names.dedup();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(names, expected, "{arguments:?}: {text}{said}");
    }
}

fn refuse_more(schema: &mut Value) {
    match schema {
        Value::Array(parts) => parts.iter_mut().for_each(refuse_more),
        Value::Object(parts) => {
            parts.values_mut().for_each(refuse_more);
            if parts.get("properties").is_some_and(Value::is_object) {
                parts.insert("additionalProperties".to_owned(), false.into());
            }
        }
        _ => {}
    }
}

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(&path, text).expect("written");
    path.display().to_string()
}

#[test]
fn explanations_errors_and_the_machine() {
    let mut schemas = Schemas::default();
    schemas.check(&["explain"], &["orinoco.codes/1"]);
    schemas.check(&["explain", "E0107"], &["orinoco.codes/1"]);
    schemas.check(&["explain", "E9999"], &["orinoco.error/1"]);
    schemas.check(&["run", "--source", "no/such.mp4"], &["orinoco.error/1"]);
    schemas.check(&["doctor"], &["orinoco.doctor/1"]);
    schemas.check(&["cameras"], &["orinoco.cameras/1"]);
    schemas.check(&["board", "detect"], &["orinoco.board/1"]);
    schemas.check(&["board", "detect", "--sysroot", "docs"], &["orinoco.board/1"]);
    schemas.check(&["board", "detect", "--sysroot", "no/such/folder"], &["orinoco.error/1"]);
    schemas.check(&["board", "list"], &["orinoco.board-profiles/1"]);
    schemas.check(&["board", "show", "orin-nano-8gb"], &["orinoco.board-profile/1"]);
    schemas.check(&["board", "show", "orin-nano"], &["orinoco.error/1"]);
    schemas.check(&["perf", "all_reduce", "-e", "64", "-n", "3", "-c"], &["orinoco.perf/1"]);
}

#[test]
fn models() {
    let mut schemas = Schemas::default();
    let dir = tempfile::tempdir().expect("temporary folder");
    write(dir.path(), "broken/model.toml", "version = 1\n");
    let broken = dir.path().display().to_string();
    schemas.check(&["models", "list"], &["orinoco.models/1"]);
    schemas.check(&["models", "list", "--models", &broken], &["orinoco.models/1"]);
    schemas.check(&["models", "show", "person-nano"], &["orinoco.model/1"]);
    schemas.check(&["models", "check", "person-nano"], &["orinoco.checks/1"]);
    schemas.check(&["models", "check", "broken", "--models", &broken], &["orinoco.checks/1"]);
    schemas.check(&["models", "init", "models/person-nano/1/model.onnx"], &["orinoco.init/1"]);
}

#[test]
fn results_and_summaries() {
    let mut schemas = Schemas::default();
    let dir = tempfile::tempdir().expect("temporary folder");
    let summary = dir.path().join("summary.json").display().to_string();
    let source = "test://ball?width=320&height=240&frames=5";
    let run = ["run", "--model", "person-nano", "--source", source, "--track", "--engine", "tract"];
    schemas.check(
        &[&run[..], &["--score", "0.01", "--summary", &summary]].concat(),
        &["orinoco.result/1", "orinoco.summary/1"],
    );
    let written: Value =
        serde_json::from_str(&fs::read_to_string(&summary).expect("it was written")).expect("JSON");
    let index = schemas.read("orinoco.summary/1");
    schemas.compiled.validate(&written, index).expect("the file is of the same contract");
    schemas.check(&["infer", "--model", "person-nano", "docs/demo.jpg"], &["orinoco.result/1"]);

    // The models give classes, a class map, and classes of sound.
    for (model, file) in [
        ("squeezenet1.0_fp32", "images/mug.jpg"),
        ("deeplabv3_mnv2_257", "images/tabby_cat.jpg"),
        ("kws_dscnn_f32", "audio/marvin_1s_16k_stereo.wav"),
    ] {
        let (Some(file), Some(_)) = (shared(file), shared(&format!("models/{model}.onnx"))) else { continue };
        schemas.check(&["infer", "--model", &format!("tests/models/{model}"), &file], &["orinoco.result/1"]);
    }
}

#[test]
fn evaluations() {
    let mut schemas = Schemas::default();
    let dir = tempfile::tempdir().expect("temporary folder");
    let rows = "1,1,0,0,10,10,1,1,1\n2,1,0,0,10,10,1,1,1\n";
    for name in ["one", "two"] {
        write(dir.path(), &format!("set/{name}/seqinfo.ini"), "[Sequence]\nseqLength=2\n");
        write(dir.path(), &format!("set/{name}/gt/gt.txt"), rows);
        write(dir.path(), &format!("found/{name}.txt"), rows);
    }
    let (set, found) = (dir.path().join("set"), dir.path().join("found"));
    let (set, found) = (set.display().to_string(), found.display().to_string());
    schemas.check(&["eval", "--dataset", &set, "--results", &found], &["orinoco.eval/1"]);

    let (Some(dataset), Some(_)) = (shared("coco_mini"), shared("models/fastestdet.onnx")) else { return };
    let plots = dir.path().join("plots").display().to_string();
    let eval = ["eval", "--model", "tests/models/fastestdet", "--dataset", &dataset, "--limit", "2"];
    schemas.check(
        &[&eval[..], &["--against", "tests/models/yolox_nano", "--plots", &plots]].concat(),
        &["orinoco.eval/1"],
    );
}

#[test]
fn memory_and_benchmarks() {
    let mut schemas = Schemas::default();
    let once = ["--rounds", "1", "--frames", "4"];
    schemas.check(&[&["bench", "preprocess"], &once[..]].concat(), &["orinoco.bench-preprocess/1"]);
    let model = ["--model", "person-nano", "--source", "test://ball?width=320&height=240"];
    schemas.check(&[&["bench", "pipeline"], &model[..], &once].concat(), &["orinoco.bench/1"]);
    schemas
        .check(&[&["bench", "streams", "--streams", "2"], &model[..], &once].concat(), &["orinoco.bench/1"]);
    if !engines().contains(&"ort-cpu") {
        return;
    }
    let bench = ["bench", "memory", "--model", "person-nano", "--rounds", "1"];
    schemas.check(&bench, &["orinoco.bench-memory/1"]);
    let dir = tempfile::tempdir().expect("temporary folder");
    let board = write(
        dir.path(),
        "board.toml",
        "version = 1\n[memory]\nbudget = \"1 GiB\"\n[inference]\nengines = [\"ort-cpu\"]\n[[model]]\nname = \"person-nano\"\n\
         [[stream]]\nname = \"s\"\nsource = \"test://ball?width=320&height=240&frames=5\"\nmodels = [\"person-nano\"]\n",
    );
    schemas.check(&["memory", "--board", &board], &["orinoco.memory/1"]);
    schemas.check(&["memory", "--board", &board, "--frames", "2"], &["orinoco.memory/1"]);
}
