//! Model repositories from the user's view: their models, missing files, and the reasons why an engine refused a model.
#![allow(clippy::print_stdout, reason = "tests say what they skip")]

use std::fs;
use std::process::Output;

use orinoco_tests::onnx::{Graph, element};
use orinoco_tests::{assert_one_sentence, data, orinoco};
use serde_json::Value;

fn check(arguments: &[&str]) -> Output {
    orinoco(&[&["models", "check"], arguments].concat()).output().expect("orinoco starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_empty_repository_is_a_fault_of_configuration() {
    let empty = tempfile::tempdir().expect("a temporary folder");
    let models = empty.path().display().to_string();
    let output = check(&["--models", &models]);
    assert_one_sentence(&output, 2, "E0201", &[&models, "has no models", "--models"]);
    assert!(output.stdout.is_empty(), "no table without rows");
    let json = check(&["--models", &models, "--json"]);
    assert_eq!(json.status.code(), Some(2));
    let report: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(report["faults"][0]["code"], "E0201");
}

#[test]
fn a_list_with_missing_files_names_the_folders_and_the_option() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = folder.path().join("m");
    fs::create_dir(&dir).expect("made");
    let text =
        "version = 1\nname = 'm'\nfile = 'm.onnx'\n[input]\nwidth = 8\nheight = 8\n[output]\nhead = 'raw'\n";
    fs::write(dir.join("model.toml"), text).expect("written");
    let models = folder.path().display().to_string();
    let list = |more: &[&str]| {
        let mut command = orinoco(&[&["models", "list", "--models", &models], more].concat());
        command.env_remove("ORINOCO_DATA").output().expect("orinoco starts")
    };
    let said = stderr(&list(&[]));
    assert!(
        said.contains("--data or ORINOCO_DATA") && said.contains("in data, /var/lib/orinoco/data"),
        "{said}"
    );
    assert!(stderr(&list(&["--data", "/no/such"])).contains("in /no/such; "));
    fs::write(dir.join("m.onnx"), Graph::new().file()).expect("written");
    assert_eq!(stderr(&list(&[])), "");
}

#[test]
fn a_shortened_reason_is_given_in_full_on_request() {
    // The names of 70 operators that no engine has do not fit on one line.
    let graph = (0..70).fold(Graph::new().input("x", element::F32, &[1, 3, 8, 8]), |graph, index| {
        let before = if index == 0 { "x".to_owned() } else { format!("y{index}") };
        graph.node(&format!("Unheard{index}"), &[&before], &[&format!("y{}", index + 1)], &[])
    });
    let graph = graph.output("y70", element::F32, &[1, 3, 8, 8]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("m.onnx");
    fs::write(&file, graph.file()).expect("written");
    let file = file.display().to_string();

    let short = check(&[&file, "--engine", "tract"]);
    let table = String::from_utf8_lossy(&short.stdout).into_owned();
    assert_eq!(short.status.code(), Some(1));
    assert!(table.contains("[...]") && !table.contains("Unheard69"), "{table}");
    assert!(stderr(&short).contains("--verbose"), "{}", stderr(&short));
    let full = check(&[&file, "--engine", "tract", "--verbose"]);
    let table = String::from_utf8_lossy(&full.stdout).into_owned();
    assert!((0..70).all(|index| table.contains(&format!("Unheard{index}"))), "{table}");
    let json = check(&[&file, "--engine", "tract", "--json"]);
    let rows: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let fault = &rows["checks"][0]["fault"];
    assert!(fault["detail"].as_str().is_some_and(|text| text.contains("Unheard69")), "{fault}");
    assert!(!fault["cause"].as_str().expect("a cause").contains("Unheard69"), "{fault}");
}

/// The model is the 16 kHz export with an If, which tract refuses with a long reason.
#[test]
fn a_model_with_a_branch_runs_where_its_constant_is_given() {
    if data().is_none() {
        println!("skipped: shared test data not found (models/silero_vad_16k_op15.onnx)");
        return;
    }
    let json = check(&["tests/models/silero_vad_16k_op15", "--json"]);
    let rows: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    for row in rows["checks"].as_array().expect("rows") {
        let (engine, fault) = (row["engine"].as_str().expect("a name"), &row["fault"]);
        match engine {
            "ort-cpu" if row["ok"] == true => {}
            "tract" => {
                assert!(fault["detail"].as_str().is_some_and(|text| text.contains("1,128,1,F32")), "{fault}")
            }
            _ => println!("skipped: {engine}: {}", fault["cause"]),
        }
    }
}
