//! Environment variables of OpenTelemetry.

use std::collections::BTreeSet;

use orinoco_config::FaultList;
use orinoco_core::{Diagnosis, codes};
use percent_encoding::percent_decode_str;

use crate::notice::OtlpSignal;

/// Reader of environment variables, which collects faults.
pub(crate) struct Variables<'a> {
    get: &'a dyn Fn(&str) -> Option<String>,
    pub(crate) faults: FaultList,
    /// Variables with a fault. Several signals may read one variable.
    faulty: BTreeSet<String>,
}

/// Value of a variable, with its name for faults.
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) value: String,
}

impl<'a> Variables<'a> {
    /// Creates a reader of what `get` returns for a name.
    pub(crate) fn new(get: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { get, faults: FaultList::default(), faulty: BTreeSet::new() }
    }

    /// Returns a variable, if it is set. An empty one counts as not set (OpenTelemetry's general rule).
    pub(crate) fn get(&self, name: &str) -> Option<Variable> {
        let value = (self.get)(name)?.trim().to_owned();
        (!value.is_empty()).then(|| Variable { name: name.to_owned(), value })
    }

    /// Returns `OTEL_EXPORTER_OTLP_TRACES_<end>` for traces, else `OTEL_EXPORTER_OTLP_<end>`; so for metrics.
    pub(crate) fn of_signal(&self, signal: OtlpSignal, end: &str) -> Option<Variable> {
        self.only_of_signal(signal, end).or_else(|| self.get(&format!("OTEL_EXPORTER_OTLP_{end}")))
    }

    /// Returns `OTEL_EXPORTER_OTLP_TRACES_<end>` for traces; so for metrics.
    pub(crate) fn only_of_signal(&self, signal: OtlpSignal, end: &str) -> Option<Variable> {
        self.get(&format!("OTEL_EXPORTER_OTLP_{}_{end}", signal.name().to_uppercase()))
    }

    /// Returns the number of a variable, if it is set and within its range.
    pub(crate) fn number<N>(
        &mut self,
        variable: Option<Variable>,
        range: std::ops::RangeInclusive<N>,
    ) -> Option<N>
    where
        N: std::str::FromStr + PartialOrd + std::fmt::Display,
    {
        let variable = variable?;
        let number = variable.value.parse().ok().filter(|number| range.contains(number));
        if number.is_none() {
            let next = format!("set a number from {} to {}", range.start(), range.end());
            self.fault(&variable.name, "it is not a number within its range", &next);
        }
        number
    }

    /// Returns the pairs of a variable such as `key1=value1,key2=value2`, with escapes decoded.
    pub(crate) fn pairs(&mut self, variable: Option<&Variable>) -> Vec<(String, String)> {
        let Some(variable) = variable else { return Vec::new() };
        let decoded = |text: &str| Some(percent_decode_str(text.trim()).decode_utf8().ok()?.into_owned());
        let entries = variable.value.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let pairs: Option<Vec<_>> = entries
            .map(|entry| {
                let (key, value) = entry.split_once('=')?;
                Some((decoded(key).filter(|key| !key.is_empty())?, decoded(value)?))
            })
            .collect();
        pairs.unwrap_or_else(|| {
            self.fault(&variable.name, "it is not a list of pairs", "write key1=value1,key2=value2");
            Vec::new()
        })
    }

    /// Records the first fault of a variable. The cause does not quote the value, which may be secret.
    pub(crate) fn fault(&mut self, name: &str, cause: &str, next: &str) {
        if self.faulty.insert(name.to_owned()) {
            self.faults.push(Diagnosis::new(&codes::OTLP_SETTINGS, name, cause, next));
        }
    }
}
