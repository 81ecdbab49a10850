//! List of the contracts and their JSON Schemas.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value};

use crate::helper;
use crate::{
    BENCH_SCHEMA, BOARD_PROFILE_SCHEMA, BOARD_PROFILES_SCHEMA, BOARD_RECORDING_SCHEMA, BOARD_SCHEMA,
    BenchReport, BoardProfileList, BoardProfileReport, BoardRecording, BoardReport, CAMERAS_SCHEMA,
    CHECKS_SCHEMA, CLUSTER_KEY_SCHEMA, CLUSTER_LIST_SCHEMA, CLUSTER_MODELS_SCHEMA, CODES_SCHEMA, CameraList,
    CheckList, ClusterKey, ClusterList, ClusterModels, CodeList, DESCRIPTION_SCHEMA, DOCTOR_SCHEMA,
    DUMP_SCHEMA, DescriptionReport, DoctorReport, Dump, ERROR_SCHEMA, EVAL_SCHEMA, EVENT_SCHEMA,
    EXPLANATION_SCHEMA, ErrorReport, EvalReport, EventJson, ExplanationJson, FLIGHT_RECORD_SCHEMA,
    FlightRecordJson, GRAPH_BENCH_SCHEMA, GraphBench, HEALTH_SCHEMA, Health, LINKS_SCHEMA, LinksReport,
    MEMORY_BENCH_SCHEMA, MEMORY_SCHEMA, MODEL_CARD_SCHEMA, MODEL_COMPARISON_SCHEMA, MODEL_SCHEMA,
    MODELS_SCHEMA, MemoryBench, MemoryReport, ModelCard, ModelComparison, ModelDetails, ModelList,
    PERF_SCHEMA, PREPROCESS_BENCH_SCHEMA, PULL_SCHEMA, PerfReport, PreprocessBench, PullReport,
    RECORDING_INDEX_SCHEMA, RECORDING_SCHEMA, RECORDING_TIMELINE_SCHEMA, RESULT_SCHEMA, RecordingIndexEntry,
    RecordingManifest, RecordingTimelineEntry, ResultLine, STATUS_SCHEMA, SUMMARY_SCHEMA, Status, Summary,
};

/// Serialised contract: one kind of JSON object that Orinoco prints or writes.
#[derive(Clone, Copy, Debug)]
pub struct Contract {
    /// Name and version.
    pub name: &'static str,
    /// Commands and programs that print or write it, or the place where it is found.
    pub printed_by: &'static str,
    /// Whether the object has the name in its field `schema`. Without it, the file or the connection tells the reader which contract
    /// it is.
    pub is_named: bool,
    schema: fn() -> Schema,
}

/// All contracts.
pub const CONTRACTS: [Contract; 40] = [
    contract::<ResultLine>(RESULT_SCHEMA, "`orinoco run`, `orinoco infer`, sinks of kind `jsonl`"),
    contract::<Summary>(SUMMARY_SCHEMA, "`orinoco run`, `orinocod`"),
    contract::<ErrorReport>(ERROR_SCHEMA, "every command that fails"),
    contract::<CodeList>(CODES_SCHEMA, "`orinoco explain`"),
    contract::<ModelList>(MODELS_SCHEMA, "`orinoco models list`"),
    contract::<ModelDetails>(MODEL_SCHEMA, "`orinoco models show`"),
    contract::<CheckList>(CHECKS_SCHEMA, "`orinoco models check`"),
    contract::<DescriptionReport>(DESCRIPTION_SCHEMA, "`orinoco models init`, `orinoco models import`"),
    contract::<EvalReport>(EVAL_SCHEMA, "`orinoco eval`"),
    contract::<MemoryReport>(MEMORY_SCHEMA, "`orinoco memory`"),
    contract::<DoctorReport>(DOCTOR_SCHEMA, "`orinoco doctor`"),
    contract::<CameraList>(CAMERAS_SCHEMA, "`orinoco cameras`"),
    contract::<BoardReport>(BOARD_SCHEMA, "`orinoco board detect`"),
    contract::<BoardProfileList>(BOARD_PROFILES_SCHEMA, "`orinoco board list`"),
    contract::<BoardProfileReport>(BOARD_PROFILE_SCHEMA, "`orinoco board show`"),
    contract::<BoardRecording>(BOARD_RECORDING_SCHEMA, "`orinoco board record`"),
    contract::<Status>(STATUS_SCHEMA, "`orinoco status`, `orinoco top`, the control socket (`/v1/status`)"),
    contract::<Health>(HEALTH_SCHEMA, "the control socket (`/healthz`, `/readyz`)"),
    contract::<EventJson>(EVENT_SCHEMA, "the control socket (`/v1/events`)"),
    contract::<Dump>(DUMP_SCHEMA, "`orinocod`, the control socket (`/v1/dump`)"),
    contract::<BenchReport>(BENCH_SCHEMA, "`orinoco bench pipeline`, `orinoco bench streams`"),
    contract::<PreprocessBench>(PREPROCESS_BENCH_SCHEMA, "`orinoco bench preprocess`"),
    contract::<MemoryBench>(MEMORY_BENCH_SCHEMA, "`orinoco bench memory`"),
    contract::<GraphBench>(GRAPH_BENCH_SCHEMA, "`orinoco bench graph`"),
    contract::<PerfReport>(PERF_SCHEMA, "`orinoco perf`"),
    contract::<ClusterKey>(CLUSTER_KEY_SCHEMA, "`orinoco cluster keygen`, `orinoco cluster sign`"),
    contract::<ClusterList>(CLUSTER_LIST_SCHEMA, "`orinoco cluster check`"),
    contract::<LinksReport>(LINKS_SCHEMA, "`orinoco links`"),
    contract::<ClusterModels>(
        CLUSTER_MODELS_SCHEMA,
        "`orinoco models list --cluster`, the control socket (`/v1/cluster/models`)",
    ),
    contract::<PullReport>(PULL_SCHEMA, "`orinoco models pull`"),
    contract::<ModelCard>(MODEL_CARD_SCHEMA, "`orinoco bench model`"),
    contract::<ModelComparison>(
        MODEL_COMPARISON_SCHEMA,
        "`orinoco bench model` with several engines or `--compare`",
    ),
    contract::<RecordingManifest>(
        RECORDING_SCHEMA,
        "`recording.json` in the archive of `orinoco board record`",
    ),
    unnamed::<RecordingIndexEntry>(
        RECORDING_INDEX_SCHEMA,
        "lines of `index.jsonl` in the archive of `orinoco board record`",
    ),
    unnamed::<RecordingTimelineEntry>(
        RECORDING_TIMELINE_SCHEMA,
        "lines of `timeline.jsonl` in the archive of `orinoco board record`",
    ),
    unnamed::<helper::Request>(
        helper::REQUEST_SCHEMA,
        "requests of `orinocod` and `orinoco doctor` to `orinoco-helper`",
    ),
    unnamed::<helper::Answer>(helper::ANSWER_SCHEMA, "answers of `orinoco-helper`"),
    unnamed::<helper::SavedState>(helper::SAVED_STATE_SCHEMA, "`/run/orinoco-helper/saved.json`"),
    unnamed::<FlightRecordJson>(
        FLIGHT_RECORD_SCHEMA,
        "`orinoco_recent` of the C library, `group.recent()` in Python",
    ),
    unnamed::<ExplanationJson>(
        EXPLANATION_SCHEMA,
        "`orinoco_explain` of the C library, `group.explain()` in Python",
    ),
];

const fn contract<T: JsonSchema>(name: &'static str, printed_by: &'static str) -> Contract {
    Contract { name, printed_by, is_named: true, schema: schema_of::<T> }
}

/// Makes the contract of objects that have no field `schema`.
const fn unnamed<T: JsonSchema>(name: &'static str, printed_by: &'static str) -> Contract {
    Contract { is_named: false, ..contract::<T>(name, printed_by) }
}

impl Contract {
    /// Returns the contract with this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        const { &CONTRACTS }.iter().find(|contract| contract.name == name)
    }

    /// Returns the name of its schema file in `docs/schemas`.
    pub fn file_name(&self) -> String {
        format!("{}.schema.json", self.name.replace('/', "-"))
    }

    /// Returns the JSON Schema (draft 2020-12) of the printed object.
    pub fn schema(&self) -> Value {
        let mut schema = (self.schema)();
        // The name of the Rust type means nothing to a reader of JSON.
        schema.insert("title".to_owned(), self.name.into());
        schema.to_value()
    }

    /// Returns the content of its schema file.
    pub fn file_text(&self) -> String {
        let text = serde_json::to_string_pretty(&self.schema()).expect("a schema has only text keys");
        text + "\n"
    }
}

fn schema_of<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings.with_transform(RecursiveTransform(tidy)).into_generator().into_root_schema_for::<T>()
}

/// Makes the derived schema describe the printed JSON, which is less than the Rust type could hold, and puts each
/// description on one line.
fn tidy(schema: &mut Schema) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.replace('\n', " ");
    }
    let required: Vec<String> = (schema.get("required").and_then(Value::as_array).into_iter().flatten())
        .filter_map(|name| Some(name.as_str()?.to_owned()))
        .collect();
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (name, property) in properties {
        let Some(property) = property.as_object_mut() else { continue };
        property.remove("default");
        if !required.contains(name) {
            remove_null(property);
        }
    }
}

/// Removes null from the types of an optional field: a field without a value is left out and is never null.
fn remove_null(property: &mut Map<String, Value>) {
    if let Some(types) = property.get_mut("type").and_then(Value::as_array_mut) {
        types.retain(|one| one != "null");
        if let [only] = &types[..] {
            let only = only.clone();
            property.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(mut choices)) = property.remove("anyOf") {
        choices.retain(|choice| choice["type"] != "null");
        match choices.pop() {
            Some(Value::Object(only)) if choices.is_empty() => property.extend(only),
            last => {
                choices.extend(last);
                property.insert("anyOf".to_owned(), choices.into());
            }
        }
    }
}
