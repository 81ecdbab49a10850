//! Compares the contracts with their pages in `docs` and with their schema files.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use orinoco_api::{CONTRACTS, Contract, ResultLine, Summary};
use serde_json::{Value, json};

/// Page that describes results, summaries and errors.
const RESULTS: &str = include_str!("../../../docs/results.md");
/// Page that describes the other JSON output of commands.
const JSON: &str = include_str!("../../../docs/json.md");

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas")
}

/// Returns the schema file of a contract.
fn file(contract: &Contract) -> Value {
    let text = fs::read_to_string(folder().join(contract.file_name())).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_else(|why| panic!("{}: {why}", contract.file_name()))
}

/// Returns the reason why `value` does not match the schema, or `None` if it matches.
fn refused(schema: Value, value: &Value) -> Option<String> {
    const PLACE: &str = "https://orinoco/schema.json";
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    compiler.add_resource(PLACE, schema).expect("a name of its own");
    let index = compiler.compile(PLACE, &mut schemas).expect("a schema of draft 2020-12");
    schemas.validate(value, index).err().map(|why| why.to_string())
}

/// Adds the names of all fields that a schema describes.
fn add_fields(schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Array(parts) => parts.iter().for_each(|part| add_fields(part, names)),
        Value::Object(parts) => {
            names.extend(
                parts
                    .get("properties")
                    .and_then(Value::as_object)
                    .into_iter()
                    .flatten()
                    .map(|(name, _)| name.clone()),
            );
            parts.values().for_each(|part| add_fields(part, names));
        }
        _ => {}
    }
}

/// Returns the section of `json.md` about a contract.
fn section(name: &str) -> Option<&'static str> {
    let (_, text) = JSON.split_once(&format!("## `{name}`\n"))?;
    text.split("\n## ").next()
}

/// Returns the text that describes a contract: its own section in `json.md` with those of the contracts that are named there,
/// or all of `results.md`.
fn described(contract: &Contract) -> String {
    let own = section(contract.name).unwrap_or(RESULTS);
    let named = CONTRACTS.iter().filter(|other| own.contains(&format!("`{}`", other.name)));
    let named = named.filter_map(|other| section(other.name));
    std::iter::once(own).chain(named).collect::<Vec<_>>().join("\n")
}

/// Returns the fenced examples of the results page: a result and a summary.
fn examples() -> [Value; 2] {
    let texts = RESULTS.split("```json\n").skip(1).filter_map(|text| text.split("```").next());
    let values: Vec<Value> = texts.map(|text| serde_json::from_str(text).expect("JSON")).collect();
    values.try_into().expect("a result and a summary")
}

#[test]
fn schema_files_are_what_the_types_give() {
    const RENEW: &str = "run `cargo xtask schemas`, and see that fields were only added";
    let names: BTreeSet<String> = CONTRACTS.iter().map(Contract::file_name).collect();
    assert_eq!(names.len(), CONTRACTS.len(), "one file for each contract");
    for contract in &CONTRACTS {
        let text = fs::read_to_string(folder().join(contract.file_name())).unwrap_or_default();
        assert!(
            text == contract.file_text(),
            "docs/schemas/{} is not current: {RENEW}",
            contract.file_name()
        );
    }
    let there = fs::read_dir(folder()).expect("the folder is there").flatten();
    let there: BTreeSet<String> = there.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
    assert_eq!(there, names, "docs/schemas: {RENEW}");
}

#[test]
fn every_contract_is_listed() {
    for contract in &CONTRACTS {
        let file = contract.file_name();
        let short = file.trim_end_matches(".schema.json");
        let row = format!("| `{}` | {} | [{short}](schemas/{file}) |", contract.name, contract.printed_by);
        assert!(JSON.contains(&row), "docs/json.md has no row {row}");
    }
}

#[test]
fn every_field_is_described() {
    for contract in &CONTRACTS {
        let mut names = BTreeSet::new();
        add_fields(&contract.schema(), &mut names);
        assert!(names.contains("schema"), "{}: {names:?}", contract.name);
        // The pages' table of contracts describes `schema`.
        let missing: Vec<&String> = (names.iter())
            .filter(|name| *name != "schema" && !described(contract).contains(&format!("`{name}`")))
            .collect();
        assert!(missing.is_empty(), "the pages do not describe {missing:?} of {}", contract.name);
    }
}

#[test]
fn the_examples_are_of_the_contract() {
    let [result, summary] = examples();
    for example in [&result, &summary] {
        let contract = Contract::find(example["schema"].as_str().expect("a name")).expect("a contract");
        assert_eq!(refused(file(contract), example), None);
    }
    serde_json::from_value::<ResultLine>(result).expect("a result");
    serde_json::from_value::<Summary>(summary).expect("a summary");
}

/// Makes sure that the schemas reject wrong values: one that accepted everything would make these tests worthless.
#[test]
fn schemas_refuse_what_is_not_printed() {
    let [result, summary] = examples();
    let check = |example: &Value, change: fn(&mut Value), expected: &str| {
        let mut changed = example.clone();
        change(&mut changed);
        let contract = Contract::find(example["schema"].as_str().expect("a name")).expect("a contract");
        let why = refused(file(contract), &changed).unwrap_or_else(|| panic!("accepted: {changed}"));
        assert!(why.contains(expected), "`{expected}` in {why}");
    };
    check(&result, |line| line["schema"] = json!("orinoco.result/2"), "orinoco.result/1");
    check(&result, |line| line["seq"] = json!(-1), "/seq");
    check(&result, |line| line["detections"][0]["box"] = json!([1, 2, 3]), "/detections/0/box");
    check(&result, |line| drop(line.as_object_mut().expect("an object").remove("engine")), "engine");
    // A field that may be absent is never null.
    check(&result, |line| line["mask"] = Value::Null, "/mask");
    check(&result, |line| line["image"] = Value::Null, "/image");
    check(&summary, |summary| summary["end"] = json!("done"), "/end");
    check(&summary, |summary| summary["streams"][0]["fps"] = json!("fast"), "/streams/0/fps");
}
