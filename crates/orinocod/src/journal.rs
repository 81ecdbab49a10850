//! Lines for the journal: one a line, with the priority prefixes of sd-daemon(3) when systemd reads them.

use std::io::Write;
use std::sync::OnceLock;

use orinoco_telemetry::{Event, EventSink};

/// How grave a line is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Level {
    Error,
    Warning,
    Info,
}

/// Writes one line. When nobody reads it any more, the board runs on without a log, and still stops when it is told to.
pub(crate) fn log(level: Level, text: &str) {
    static TO_JOURNAL: OnceLock<bool> = OnceLock::new();
    let (priority, name) = match level {
        Level::Error => (3, "error"),
        Level::Warning => (4, "warning"),
        Level::Info => (6, "info"),
    };
    let line = match TO_JOURNAL.get_or_init(|| std::env::var_os("JOURNAL_STREAM").is_some()) {
        true => format!("<{priority}>{text}\n"),
        false => format!("{name}: {text}\n"),
    };
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Events as lines, fields first.
#[derive(Debug)]
pub(crate) struct Journal;

impl EventSink for Journal {
    fn emit(&self, event: Event) {
        match event {
            Event::Source { stream, state, why: None } => {
                log(Level::Info, &format!("stream={stream} state={}", state.name()));
            }
            Event::Source { stream, state, why: Some(why) } => {
                log(
                    Level::Warning,
                    &format!("stream={stream} state={} code={} {why}", state.name(), why.code.id),
                );
            }
            Event::SourceRetry { stream, attempt, wait } => {
                log(
                    Level::Info,
                    &format!("stream={stream} attempt={} wait_ms={}", attempt + 1, wait.as_millis()),
                );
            }
            Event::SourceRecovered { stream, after } => {
                log(Level::Info, &format!("stream={stream} recovered_ms={}", after.as_millis()));
            }
            Event::MemoryRefused { table } => table.lines().for_each(|line| log(Level::Warning, line)),
            Event::EngineRefused { model, engine, why } => {
                log(Level::Warning, &format!("model={model} engine={engine} refused: {why}"));
            }
            Event::EngineChosen { model, engine, version } => {
                log(Level::Info, &format!("model={model} engine={engine} version={version}"));
            }
            Event::ReplayFailed { model, why } => log(Level::Error, &format!("model={model} {why}")),
            Event::SinkFailed { stream, why } => log(Level::Error, &format!("stream={stream} {why}")),
            other => log(Level::Info, &format!("{other:?}")),
        }
    }
}
