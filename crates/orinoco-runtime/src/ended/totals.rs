//! Sums by name over what has ended, with a bound on the names.

use std::collections::BTreeMap;

/// Maximum number of names of streams or models. The totals of further names are one entry.
pub(super) const NAMES_MAX: usize = 1000;
/// Name of the entry for all further names.
pub(super) const OTHERS: &str = "(others)";

/// Total of each of the first [`NAMES_MAX`] names, and of all others together.
pub(super) struct Totals<T>(BTreeMap<String, T>);

impl<T> Default for Totals<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> Totals<T> {
    /// Returns the total to which `name` belongs; `empty` makes it from its own name, if there is none.
    pub(super) fn of(&mut self, name: &str, empty: impl FnOnce(String) -> T) -> &mut T {
        let is_known = self.0.contains_key(name) || self.0.len() < NAMES_MAX;
        let name = if is_known { name } else { OTHERS };
        self.0.entry(name.to_owned()).or_insert_with(|| empty(name.to_owned()))
    }

    /// Returns the totals in the order of their names.
    pub(super) fn into_all(self) -> Vec<T> {
        self.0.into_values().collect()
    }
}

/// Returns the entry that `is_it` recognises; `empty` makes it, if there is none.
pub(super) fn entry_of<T>(
    entries: &mut Vec<T>,
    is_it: impl Fn(&T) -> bool,
    empty: impl FnOnce() -> T,
) -> &mut T {
    let index = entries.iter().position(is_it).unwrap_or_else(|| {
        entries.push(empty());
        entries.len() - 1
    });
    &mut entries[index]
}

/// Adds a value to a sum of those that are known.
pub(super) fn add_known(sum: &mut Option<f64>, value: Option<f64>) {
    if let Some(value) = value {
        *sum.get_or_insert(0.0) += value;
    }
}
