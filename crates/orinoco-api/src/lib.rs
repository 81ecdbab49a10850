//! The serialised contracts: what `--json` prints and result files hold. Within a version, fields are only added.
//!
//! Read first: [`ResultLine`] and [`Summary`].

mod fault;
mod result;
mod summary;

pub use fault::Fault;
pub use result::{
    ClassJson, ClassMapJson, DetectionJson, LineEventJson, MaskJson, ObjectJson, RESULT_SCHEMA, ResultLine,
    TensorJson, TrackJson, ZoneEventJson,
};
pub use summary::{
    Dropped, EndState, LaneMemory, LineSummary, MemorySummary, ModelMemory, ModelSummary, PlannedMemory,
    PowerSummary, RefusedJson, SUMMARY_SCHEMA, StageSummary, StreamSummary, StreamTotals, Summary,
    TrackedSummary, ZoneSummary,
};

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../docs/results.md");

    /// The fields that a source file declares, by their names in JSON.
    fn fields(source: &str) -> impl Iterator<Item = &str> {
        let public = source.lines().filter_map(|line| line.trim().strip_prefix("pub ")?.split_once(": "));
        let names = public.map(|(name, _)| name).filter(|name| !name.contains(' '));
        // One is renamed, two are flattened.
        names
            .filter(|name| !["detection", "by"].contains(name))
            .map(|name| if name == "bounds" { "box" } else { name })
    }

    #[test]
    fn every_field_is_described() {
        let sources =
            [include_str!("result.rs"), include_str!("summary.rs"), include_str!("fault.rs")].into_iter();
        let missing: Vec<&str> =
            sources.flat_map(fields).filter(|name| !PAGE.contains(&format!("`{name}`"))).collect();
        assert!(missing.is_empty(), "docs/results.md does not describe {missing:?}");
    }

    #[test]
    fn the_examples_are_of_the_contract() {
        let examples: Vec<&str> =
            PAGE.split("```json\n").skip(1).filter_map(|text| text.split("```").next()).collect();
        let [result, summary] = examples[..] else { panic!("{examples:?}") };
        let result: ResultLine = serde_json::from_str(result).expect("a result");
        let summary: Summary = serde_json::from_str(summary).expect("a summary");
        assert_eq!((&*result.schema, &*summary.schema), (RESULT_SCHEMA, SUMMARY_SCHEMA));
    }
}
