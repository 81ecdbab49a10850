//! Export to an OpenTelemetry collector, as the board file asks for it.

use std::env;

use orinoco_board::{OtlpSpec, detect};
use orinoco_config::Faults;
use orinoco_core::Diagnosis;
use orinoco_otlp::{Exported, Exporter, ModelLabels, Names, Notice, Run, RunId, Settings, Severity};
use orinoco_runtime::Monitor;
use orinoco_sysroot::Sysroot;
use orinoco_telemetry::Metric;

use crate::journal::{self, Level};

/// Checks the settings of a board file and of the environment; `None` where nothing is sent.
///
/// # Errors
///
/// A variable of the environment, or the headers file, is wrong.
pub(crate) fn settings(spec: Option<&OtlpSpec>) -> Result<Option<Settings>, Faults> {
    let Some(spec) = spec else { return Ok(None) };
    Settings::new(spec, &|name| env::var(name).ok())
}

/// Starts the export of a run, whose board is described by the files of `sysroot`.
///
/// # Errors
///
/// The system refuses its thread.
pub(crate) fn start(
    settings: &Settings,
    sysroot: &Sysroot,
    monitor: &Monitor,
) -> Result<Exporter, Diagnosis> {
    let host = Sysroot::host().text(HOST_NAME).ok();
    let attributes = attributes(host.clone(), sysroot, &monitor.names().board);
    let clock = monitor.clock();
    let run = Run {
        exported: Box::new(ExportedRun(monitor.clone())),
        records: settings.traces.as_ref().and_then(|_| monitor.subscribe_trace()),
        started: monitor.started(),
        id: RunId::new(clock.wall(), host.as_deref().unwrap_or_default(), std::process::id()),
        clock,
        attributes,
    };
    let exporter = Exporter::start(settings, run, log)?;
    journal::log(Level::Info, &described(settings));
    Ok(exporter)
}

/// File with the name of a machine.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// Returns the attributes of the machine with this name, and of the board whose files those of `sysroot` are. What is not known is left
/// out.
fn attributes(host: Option<String>, sysroot: &Sysroot, board: &str) -> Vec<(&'static str, String)> {
    let detected = detect(sysroot);
    let facts = [
        ("host.name", host.clone()),
        // Prometheus makes its label `instance` of it: it is the same after a restart.
        ("service.instance.id", host),
        ("host.arch", Some(architecture().to_owned())),
        ("os.type", Some("linux".to_owned())),
        ("orinoco.board", Some(board.to_owned())),
        ("orinoco.board.module", detected.module.map(|fact| fact.value)),
        ("orinoco.board.soc", detected.soc.map(|fact| fact.value)),
        ("orinoco.board.l4t", detected.l4t.map(|fact| fact.value)),
        ("orinoco.board.jetpack", detected.jetpack.map(|fact| fact.value)),
    ];
    let known = facts.into_iter().filter_map(|(key, value)| Some((key, value?.trim().to_owned())));
    known.filter(|(_, value)| !value.is_empty()).collect()
}

/// Returns the architecture by its name in OpenTelemetry's conventions.
fn architecture() -> &'static str {
    match env::consts::ARCH {
        "aarch64" => "arm64",
        "x86_64" => "amd64",
        other => other,
    }
}

/// Returns one line of what is sent and where. It has no header.
fn described(settings: &Settings) -> String {
    let metrics = settings.metrics.as_ref().map_or_else(
        || "-".to_owned(),
        |it| format!("{} interval_ms={}", it.target.endpoint, it.interval.as_millis()),
    );
    let traces = settings
        .traces
        .as_ref()
        .map_or_else(|| "-".to_owned(), |it| format!("{} ratio={}", it.target.endpoint, it.ratio));
    format!("otlp metrics={metrics} traces={traces}")
}

fn log(notice: Notice) {
    let level = match notice.severity() {
        Severity::Info => Level::Info,
        Severity::Warning => Level::Warning,
    };
    journal::log(level, &notice.to_string());
}

/// Run that is exported.
struct ExportedRun(Monitor);

impl Exported for ExportedRun {
    fn metrics(&self) -> Vec<Metric> {
        // Triton's names are for Prometheus's dashboards.
        self.0.metrics(false)
    }

    fn names(&self) -> Names {
        let names = self.0.names();
        let labels =
            |name: orinoco_runtime::ModelName| ModelLabels { model: name.model, engine: name.engine };
        let models = names.models.into_iter().map(|(id, name)| (id, labels(name))).collect();
        Names { streams: names.streams, models }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_the_machine_is_sent() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let attributes = attributes(Some("gate-3".to_owned()), &Sysroot::at(dir.path()), "yard");
        let keys: Vec<_> = attributes.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, ["host.name", "service.instance.id", "host.arch", "os.type", "orinoco.board"]);
        assert_eq!((attributes[0].1.as_str(), attributes[4].1.as_str()), ("gate-3", "yard"));
    }

    #[test]
    fn nothing_is_sent_unless_the_board_file_asks_for_it() {
        assert!(settings(None).expect("no fault").is_none());
    }
}
