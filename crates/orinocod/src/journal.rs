//! Log lines for the journal, with the priority prefixes of sd-daemon(3) if systemd reads them. A separate thread writes them,
//! so that no caller waits for the reader.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use orinoco_core::{Clock, Signal};
use orinoco_telemetry::{Event, EventSink};

/// Maximum number of queued lines. A board writes at most a few lines per second.
const LINES_MAX: usize = 1024;
/// Maximum time that the end of the program waits until the last lines are read.
const LAST_LINES_WAIT: Duration = Duration::from_secs(2);

/// Severity of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Level {
    Error,
    Warning,
    Info,
}

/// Lines that are not written yet.
struct Waiting {
    lines: VecDeque<String>,
    /// Number of lines dropped because the queue was full.
    lost: u64,
    /// Whether a line is being written.
    writing: bool,
    /// Notified when a line was written; set at the end of the program.
    written: Option<Arc<dyn Signal>>,
}

static WAITING: Mutex<Waiting> =
    Mutex::new(Waiting { lines: VecDeque::new(), lost: 0, writing: false, written: None });
/// Wakes the thread that writes.
static LINE_CAME: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Waiting> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Logs one line. If nobody reads the log any more, the board continues without it, and still stops on request.
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

/// Waits until all lines are written, at most [`LAST_LINES_WAIT`].
pub(crate) fn finish(clock: &dyn Clock) {
    let (written, until) = (clock.signal(), clock.now() + LAST_LINES_WAIT);
    let mut waiting = lock();
    note_lost(&mut waiting);
    waiting.written = Some(Arc::clone(&written));
    drop(waiting);
    LINE_CAME.notify_one();
    // Lines that are not written by then are lost.
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
        let text = format!("lines_lost={lost} log lines were dropped, because nobody read them in time");
        waiting.lines.push_back(as_line(Level::Warning, &text));
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
    // A failed write to stderr cannot be reported anywhere.
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
            Event::ModelReplaced { model, lane } => {
                log(
                    Level::Info,
                    &format!("model={model} lane={lane} replaced: the new version now runs on this lane"),
                );
            }
            Event::SeatMissed { model, seat, why } => {
                log(Level::Warning, &format!("model={model} seat={seat} {} {why}", why.code.id));
            }
            Event::SeatRecovered { model, seat } => {
                log(
                    Level::Info,
                    &format!("model={model} seat={seat} recovered: the seat executes the model again"),
                );
            }
            Event::EpochBegan { epoch, members, transport, fallback } => {
                log(Level::Info, &format!("cluster epoch={epoch} members={members} transport={transport}"));
                if let Some(why) = fallback {
                    log(Level::Warning, &format!("cluster epoch={epoch} does not use RDMA: {why}"));
                }
            }
            Event::EpochEnded { epoch, why, has_failed } => {
                let level = if has_failed { Level::Warning } else { Level::Info };
                log(level, &format!("cluster epoch={epoch} is over: {why}"));
            }
            Event::ClusterFault { why } => log(Level::Warning, &format!("cluster {why}")),
            Event::IntervalChanged { model, interval } => {
                log(Level::Info, &format!("model={model} interval={interval}"));
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
            Event::RestartFailed { why } => {
                let code = why.code.id;
                log(
                    Level::Warning,
                    &format!("code={code} failed lanes cannot be restarted before the reload: {why}"),
                );
            }
            Event::SinkUnread { stream, output } => {
                log(
                    Level::Warning,
                    &format!("stream={stream} {output} has no reader any more and is closed"),
                );
            }
            Event::GovernorReady { actuators } => log(Level::Info, &format!("governor=ready {actuators}")),
            Event::GovernorStep { actuator, from, to, direction, why } => {
                log(
                    Level::Info,
                    &format!("governor={direction} actuator={actuator} from={from} to={to} because {why}"),
                );
            }
            Event::GovernorFault { why } => {
                log(Level::Warning, &format!("governor=fault code={} {why}", why.code.id));
            }
            Event::SensorsFailed { why } => {
                log(Level::Error, &format!("sensors=failed code={} {why}", why.code.id));
            }
            Event::SinkFailed { stream, why } => log(Level::Error, &format!("stream={stream} {why}")),
            other => log(Level::Info, &format!("{other:?}")),
        }
    }
}
