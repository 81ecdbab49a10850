//! Names that may occur once only.

use std::collections::BTreeSet;

use orinoco_config::TableReader;
use orinoco_core::codes;

/// Reads a list of names, each once; a name that is listed again is a fault.
pub(crate) fn listed_once(table: &TableReader<'_>, key: &'static str) -> Vec<String> {
    let mut names = table.texts(key);
    for name in repeated(names.iter().map(String::as_str)) {
        let cause = format!("`{name}` is listed more than once");
        table.fault(key, &codes::REFERENCE, cause, "list it once");
    }
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

pub(crate) fn check_unique<'n>(
    table: &TableReader<'_>,
    key: &'static str,
    names: impl Iterator<Item = &'n str>,
) {
    for name in repeated(names.filter(|name| !name.is_empty())) {
        table.fault(
            key,
            &codes::REFERENCE,
            format!("the name `{name}` is used more than once"),
            "give each one a name of its own (check inherited files too)",
        );
    }
}

/// Returns the names that occur more than once, each once.
fn repeated<'n>(names: impl Iterator<Item = &'n str>) -> BTreeSet<&'n str> {
    let mut seen = BTreeSet::new();
    names.filter(|name| !seen.insert(*name)).collect()
}
