//! Compares the contracts with their pages in `docs` and with their schema files.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use orinoco_api::helper::{Answer, ClockState, ModeState, PowerState, Refusal, RefusalReason, Request};
use orinoco_api::helper::{SavedClock, SavedState};
use orinoco_api::{
    AlgorithmCandidateJson, CONTRACTS, Contract, ExplanationJson, FlightRecordJson, LongestWaitJson,
    MeasuredTimesJson, OperationJson, OperationStateJson, RankWaitsJson, RecordingIndexEntry,
    RecordingManifest, RecordingTimelineEntry, ResultLine, Summary,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
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
        assert_eq!(names.contains("schema"), contract.is_named, "{}: {names:?}", contract.name);
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

/// Checks the bytes of an object, that they are read as the same object, and that its schema accepts them.
#[track_caller]
fn check_bytes<T: Serialize + DeserializeOwned>(contract: &str, object: &T, expected: &str) {
    assert_eq!(serde_json::to_string(object).expect("plain data"), expected);
    let read: T = serde_json::from_str(expected).expect("an object of this contract");
    assert_eq!(serde_json::to_string(&read).expect("plain data"), expected);
    let value = serde_json::from_str(expected).expect("JSON");
    let contract = Contract::find(contract).expect("a contract");
    assert_eq!(refused(file(contract), &value), None, "{expected}");
}

#[test]
fn recordings_keep_their_bytes() {
    let manifest = RecordingManifest {
        schema: "orinoco.recording/1".into(),
        complete: false,
        duration_ns: 30_000_000_000,
        contents: 412,
    };
    check_bytes(
        "orinoco.recording/1",
        &manifest,
        r#"{"schema":"orinoco.recording/1","complete":false,"duration_ns":30000000000,"contents":412}"#,
    );
    let index = RecordingIndexEntry { path: "/sys".into(), names: None, error: None, folder: false };
    let check = |entry: &RecordingIndexEntry, expected| {
        check_bytes("orinoco.recording-index/1", entry, expected);
    };
    let names = Some(vec!["class".to_owned(), "devices".to_owned()]);
    check(&RecordingIndexEntry { names, ..index.clone() }, r#"{"path":"/sys","names":["class","devices"]}"#);
    let error = Some("denied".to_owned());
    check(
        &RecordingIndexEntry { error: error.clone(), ..index.clone() },
        r#"{"path":"/sys","error":"denied"}"#,
    );
    check(
        &RecordingIndexEntry { error: error.clone(), folder: true, ..index },
        r#"{"path":"/sys","error":"denied","folder":true}"#,
    );
    let line = RecordingTimelineEntry { t: 50, path: "/sys/a".into(), text: None, hex: None, error: None };
    let check = |entry: &RecordingTimelineEntry, expected| {
        check_bytes("orinoco.recording-timeline/1", entry, expected);
    };
    let text = Some("5\n".to_owned());
    check(&RecordingTimelineEntry { text, ..line.clone() }, r#"{"t":50,"path":"/sys/a","text":"5\n"}"#);
    let hex = Some("00ff".to_owned());
    check(&RecordingTimelineEntry { hex, ..line.clone() }, r#"{"t":50,"path":"/sys/a","hex":"00ff"}"#);
    check(&RecordingTimelineEntry { error, ..line }, r#"{"t":50,"path":"/sys/a","error":"denied"}"#);
}

#[test]
fn messages_of_the_helper_keep_their_bytes() {
    let check = |request: &Request, expected| check_bytes("orinoco.helper-request/1", request, expected);
    check(&Request::Status {}, r#"{"verb":"status"}"#);
    let name = "15W".to_owned();
    check(&Request::SetPowerMode { name: name.clone() }, r#"{"verb":"set-power-mode","name":"15W"}"#);
    let domain = "cpufreq/policy0".to_owned();
    check(
        &Request::SetClock { domain: domain.clone(), hertz: 729_600_000 },
        r#"{"verb":"set-clock","domain":"cpufreq/policy0","hertz":729600000}"#,
    );
    check(&Request::Restore {}, r#"{"verb":"restore"}"#);
    let state = PowerState {
        version: 1,
        power_modes: vec![ModeState { name, is_current: true, can_be_set: false }],
        clocks: vec![ClockState { domain: domain.clone(), max: 2, available: vec![1, 2] }],
        is_changed: true,
        blocked_by: None,
    };
    let blocked = PowerState { version: 1, blocked_by: Some("cpufreq-cpu0".into()), ..PowerState::default() };
    check_bytes(
        "orinoco.helper-answer/1",
        &Answer::Done(blocked),
        r#"{"answer":"done","version":1,"power_modes":[],"clocks":[],"is_changed":false,"blocked_by":"cpufreq-cpu0"}"#,
    );
    check_bytes(
        "orinoco.helper-answer/1",
        &Answer::Done(state),
        r#"{"answer":"done","version":1,"power_modes":[{"name":"15W","is_current":true,"can_be_set":false}],"clocks":[{"domain":"cpufreq/policy0","max":2,"available":[1,2]}],"is_changed":true}"#,
    );
    for (reason, name) in [
        (RefusalReason::NotARequest, "not-a-request"),
        (RefusalReason::NotAllowed, "not-allowed"),
        (RefusalReason::Busy, "busy"),
        (RefusalReason::NotListed, "not-listed"),
        (RefusalReason::NeedsReboot, "needs-reboot"),
        (RefusalReason::Throttled, "throttled"),
        (RefusalReason::Failed, "failed"),
    ] {
        let expected = format!(r#"{{"answer":"refused","reason":"{name}","text":"why"}}"#);
        let answer = Answer::Refused(Refusal { reason, text: "why".into() });
        check_bytes("orinoco.helper-answer/1", &answer, &expected);
    }
    let clocks = vec![SavedClock { domain, hertz: 3 }];
    let check = |state: &SavedState, expected| check_bytes("orinoco.helper-state/1", state, expected);
    check(
        &SavedState { power_mode: Some("15W".into()), clocks },
        r#"{"power_mode":"15W","clocks":[{"domain":"cpufreq/policy0","hertz":3}]}"#,
    );
    check(&SavedState::default(), r#"{"power_mode":null,"clocks":[]}"#);
}

#[test]
fn flight_records_keep_their_bytes() {
    let operation = |number, state, ended_ms| OperationJson {
        began_ms: 12_350.0,
        call: "barrier".into(),
        ended_ms,
        longest: None,
        number,
        state,
        waited_ms: 0.0,
    };
    let longest = Some(LongestWaitJson { rank: 2, waited_ms: 0.21 });
    let done = operation(1, OperationStateJson::Done, Some(12_351.5));
    let record = FlightRecordJson {
        failure: Some("why".into()),
        operations: vec![
            OperationJson { longest, waited_ms: 0.21, ..done },
            operation(2, OperationStateJson::UnderWay, None),
            operation(3, OperationStateJson::Failed, Some(12_351.5)),
        ],
        rank: 1,
        waits: vec![RankWaitsJson { count: 2, longest_ms: 40.0, waited_ms: 40.21 }],
    };
    let expected = r#"{"failure":"why","operations":[{"began_ms":12350.0,"call":"barrier","ended_ms":12351.5,"longest":{"rank":2,"waited_ms":0.21},"number":1,"state":"done","waited_ms":0.21},{"began_ms":12350.0,"call":"barrier","ended_ms":null,"longest":null,"number":2,"state":"under way","waited_ms":0.0},{"began_ms":12350.0,"call":"barrier","ended_ms":12351.5,"longest":null,"number":3,"state":"failed","waited_ms":0.0}],"rank":1,"waits":[{"count":2,"longest_ms":40.0,"waited_ms":40.21}]}"#;
    check_bytes("orinoco.flight-record/1", &record, expected);
    // Keys are in alphabetical order, which is that of a map.
    assert_eq!(serde_json::from_str::<Value>(expected).expect("JSON").to_string(), expected);
    let empty = FlightRecordJson { failure: None, operations: vec![], rank: 0, waits: vec![] };
    check_bytes("orinoco.flight-record/1", &empty, r#"{"failure":null,"operations":[],"rank":0,"waits":[]}"#);
}

#[test]
fn explanations_keep_their_bytes() {
    let candidate = AlgorithmCandidateJson {
        algorithm: "two-shot".into(),
        predicted_after_barrier_us: 61.5,
        predicted_at_once_us: 48.0,
    };
    let explanation = |measured| ExplanationJson {
        algorithm: "two-shot".into(),
        bound_us: 20.25,
        bytes: 4000,
        candidates: vec![candidate.clone()],
        data_type: "f32".into(),
        measured,
        operation: "all_reduce".into(),
        ranks: 2,
    };
    let times = MeasuredTimesJson { bound_share: Some(0.405), calls: 3, last_us: 55.0, median_us: 50.0 };
    let check = |measured, expected: &str| {
        let start = r#"{"algorithm":"two-shot","bound_us":20.25,"bytes":4000,"candidates":[{"algorithm":"two-shot","predicted_after_barrier_us":61.5,"predicted_at_once_us":48.0}],"data_type":"f32","measured":"#;
        let end = r#","operation":"all_reduce","ranks":2}"#;
        check_bytes("orinoco.explanation/1", &explanation(measured), &format!("{start}{expected}{end}"));
    };
    check(Some(times), r#"{"bound_share":0.405,"calls":3,"last_us":55.0,"median_us":50.0}"#);
    check(
        Some(MeasuredTimesJson { bound_share: None, ..times }),
        r#"{"bound_share":null,"calls":3,"last_us":55.0,"median_us":50.0}"#,
    );
    check(None, "null");
}
