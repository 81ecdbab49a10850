//! Lines for the journal: one a line, with the priority prefixes of sd-daemon(3) when systemd reads them. A thread of its own
//! writes them: nobody who has something to say waits for whoever reads it.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use orinoco_core::{Clock, Signal};
use orinoco_telemetry::{Event, EventSink};

/// Lines that may wait to be read. A board says a few a second at its worst.
const LINES_MAX: usize = 1024;
/// Time that the end of the program waits for the last lines to be read.
const LAST_LINES_WAIT: Duration = Duration::from_secs(2);

/// Severity of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Level {
    Error,
    Warning,
    Info,
}

/// Lines that have not been written yet.
struct Waiting {
    lines: VecDeque<String>,
    /// Lines that found no room.
    lost: u64,
    /// One is being written.
    writing: bool,
    /// Notified of each line that was written; set at the end of the program.
    written: Option<Arc<dyn Signal>>,
}

static WAITING: Mutex<Waiting> =
    Mutex::new(Waiting { lines: VecDeque::new(), lost: 0, writing: false, written: None });
/// Wakes the thread that writes.
static LINE_CAME: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Waiting> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says one line. When nobody reads it any more, the board runs on without a log, and still stops when it is told to.
pub(crate) fn log(level: Level, text: &str) {
    static HAS_WRITER: OnceLock<bool> = OnceLock::new();
    let start = || thread::Builder::new().name("journal".to_owned()).spawn(write_lines).is_ok();
    let line = as_line(level, text);
    if !HAS_WRITER.get_or_init(start) {
        return write(&line);
    }
    let mut waiting = lock();
    if waiting.lines.len() >= LINES_MAX {
        waiting.lost += 1;
        return;
    }
    note_lost(&mut waiting);
    waiting.lines.push_back(line);
    drop(waiting);
    LINE_CAME.notify_one();
}

/// Waits until everything was written, or nobody reads it.
pub(crate) fn finish(clock: &dyn Clock) {
    let (written, until) = (clock.signal(), clock.now() + LAST_LINES_WAIT);
    let mut waiting = lock();
    note_lost(&mut waiting);
    waiting.written = Some(Arc::clone(&written));
    drop(waiting);
    LINE_CAME.notify_one();
    // What is not written by then is not written at all.
    while lock().is_busy() && clock.now() < until {
        written.wait(Some(until));
    }
}

impl Waiting {
    fn is_busy(&self) -> bool {
        self.writing || !self.lines.is_empty()
    }
}

fn note_lost(waiting: &mut Waiting) {
    let lost = std::mem::take(&mut waiting.lost);
    if lost > 0 {
        waiting
            .lines
            .push_back(as_line(Level::Warning, &format!("lines_lost={lost} nobody read them in time")));
    }
}

fn write_lines() {
    loop {
        let waiting = LINE_CAME.wait_while(lock(), |waiting| waiting.lines.is_empty());
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        let line = waiting.lines.pop_front().expect("one was waited for");
        waiting.writing = true;
        drop(waiting);
        write(&line);
        let mut waiting = lock();
        waiting.writing = false;
        waiting.written.iter().for_each(|written| written.notify());
    }
}

fn as_line(level: Level, text: &str) -> String {
    static TO_JOURNAL: OnceLock<bool> = OnceLock::new();
    let (priority, name) = match level {
        Level::Error => (3, "error"),
        Level::Warning => (4, "warning"),
        Level::Info => (6, "info"),
    };
    match TO_JOURNAL.get_or_init(|| std::env::var_os("JOURNAL_STREAM").is_some()) {
        true => format!("<{priority}>{text}\n"),
        false => format!("{name}: {text}\n"),
    }
}

fn write(line: &str) {
    // There is nobody to tell that there is nobody to tell.
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
            Event::CacheRefused { why } => log(Level::Warning, &why),
            Event::MemoryRefused { refused, .. } => {
                refused.to_string().lines().for_each(|line| log(Level::Warning, line));
            }
            Event::EngineRefused { model, engine, why } => {
                log(Level::Warning, &format!("model={model} engine={engine} refused: {why}"));
            }
            Event::EngineChosen { model, engine, version } => {
                log(Level::Info, &format!("model={model} engine={engine} version={version}"));
            }
            Event::ExecutionFailed { model, why } => log(Level::Error, &format!("model={model} {why}")),
            Event::OutputNotFinite { model, why } => {
                log(Level::Warning, &format!("model={model} code={} {why}", why.code.id));
            }
            Event::LaneFailed { lane, why } => {
                log(Level::Error, &format!("lane={lane} code={} {why}: the run ends", why.code.id));
            }
            Event::LaneRestarted { lane, why, restarts_left } => {
                let code = why.code.id;
                log(
                    Level::Warning,
                    &format!("lane={lane} code={code} restarts_left={restarts_left} {why}: restarting"),
                );
            }
            Event::SinkUnread { stream, output } => {
                log(
                    Level::Warning,
                    &format!("stream={stream} {output} has no reader any more and is closed"),
                );
            }
            Event::SinkFailed { stream, why } => log(Level::Error, &format!("stream={stream} {why}")),
            other => log(Level::Info, &format!("{other:?}")),
        }
    }
}
