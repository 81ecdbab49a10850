//! Child process that measures a model: this program, started again.

use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use orinoco_config::Faults;
use orinoco_core::{Clock, Diagnosis, WithSubject, codes};
use orinoco_pipeline::{MonotonicClock, Stop};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, set_parent_process_death_signal, waitid};

use super::measure::{MeasureRequest, Measured, measure};

/// Variable with which this program is asked to measure a model instead of its usual work.
const ASKED: &str = "ORINOCO_MEASURE";
/// Maximum time in which a model is measured. The largest models load in a minute or two on the slowest boards.
pub(super) const MEASURE_MAX: Duration = Duration::from_secs(600);
/// Maximum time after which a signal that has ended the child reaches this process, too.
const SIGNAL_WAIT: Duration = Duration::from_millis(300);

/// Returns the result of measuring, for standard output, if this process was started to measure a model; `None` otherwise.
/// A program that runs boards must call it before anything else.
pub fn asked_to_measure() -> Option<Result<String, Faults>> {
    let asked = std::env::var(ASKED).ok()?;
    // However the parent process ends, this process ends with it. If that cannot be set up, this process ends by itself,
    // later.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let next = "unset it: Orinoco uses it internally";
    let asked: Result<MeasureRequest, Diagnosis> =
        serde_json::from_str(&asked).about(&codes::KEY_RANGE, ASKED, next);
    Some(asked.map_err(Faults::from).and_then(|asked| {
        let measured = measure(&asked)?;
        Ok(serde_json::to_string(&measured).expect("names and numbers"))
    }))
}

pub(super) fn measure_in_child(
    asked: &MeasureRequest,
    name: &str,
    stop: &Stop,
) -> Result<Option<Measured>, Faults> {
    ask_child(asked, stop).map_err(|why| why.diagnosis(name).into())
}

/// Failure to measure a model in a child process (`E0306`).
#[derive(Debug)]
enum MeasureError {
    /// The system did not start the process, or did not give its output.
    Child(io::Error),
    /// The process did not end within [`MEASURE_MAX`].
    TooLate,
    /// The process failed.
    Failed {
        /// Its exit status.
        status: ExitStatus,
        /// Last line that it wrote to standard error, or what is known instead.
        said: String,
    },
}

impl MeasureError {
    /// Returns the fault of `model` that a user sees.
    fn diagnosis(&self, model: &str) -> Diagnosis {
        let cause = match self {
            Self::Child(why) => why.to_string(),
            Self::TooLate => format!(
                "its memory cannot be measured: the measuring process did not end within {} minutes",
                MEASURE_MAX.as_secs() / 60
            ),
            Self::Failed { status, said } => format!("its memory cannot be measured ({status}): {said}"),
        };
        let next = format!("try it with `orinoco models check {model}`");
        Diagnosis::new(&codes::MEMORY_MEASURE, format!("model {model}"), cause, next)
    }
}

/// Measures a model in a child process; `None` if `stop` was requested meanwhile.
fn ask_child(asked: &MeasureRequest, stop: &Stop) -> Result<Option<Measured>, MeasureError> {
    let program = std::env::current_exe().map_err(MeasureError::Child)?;
    let asked = serde_json::to_string(asked).expect("names and numbers");
    let mut child = Command::new(program);
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
    let ended = output_within(child.env(ASKED, asked), MEASURE_MAX, stop, &clock);
    let done = match ended.map_err(MeasureError::Child)? {
        ChildEnd::Done(done) => done,
        ChildEnd::Stopped => return Ok(None),
        ChildEnd::TooLate => return Err(MeasureError::TooLate),
    };
    if let Ok(measured) = serde_json::from_slice(&done.stdout) {
        return Ok(Some(measured));
    }
    // A signal to all processes of a terminal or a service ends the child, and may reach this process a moment later.
    let signal = done.status.signal();
    if signal.is_some_and(|signal| signal != Signal::KILL.as_raw()) && stop.sleep(&*clock, SIGNAL_WAIT) {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let said = match said.lines().rev().find(|line| !line.trim().is_empty()) {
        Some(line) => line,
        None if signal == Some(Signal::KILL.as_raw()) => {
            "the measuring process was killed, probably out of memory"
        }
        None => "it printed no error",
    };
    Err(MeasureError::Failed { status: done.status, said: said.to_owned() })
}

/// End of a child process.
pub(super) enum ChildEnd {
    Done(Output),
    /// The child was killed, because the end of this process was requested.
    Stopped,
    /// The child was killed, because its time was over.
    TooLate,
}

/// Returns the output of a program. If its time is over or `stop` is requested, it is killed.
pub(super) fn output_within(
    command: &mut Command,
    limit: Duration,
    stop: &Stop,
    clock: &Arc<dyn Clock>,
) -> io::Result<ChildEnd> {
    fn read(pipe: Option<impl Read + Send + 'static>) -> io::Result<JoinHandle<Vec<u8>>> {
        thread::Builder::new().spawn(move || {
            let mut text = Vec::new();
            // Output that cannot be read is treated as empty.
            let _ = pipe.expect("it was asked for").read_to_end(&mut text);
            text
        })
    }
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (stdout, stderr) = (read(child.stdout.take())?, read(child.stderr.take())?);
    let deadline = clock.now() + limit;
    let signal = clock.signal();
    stop.watch(&signal);
    let (has_ended, waiter) = watch_end(&child, Arc::clone(&signal))?;
    let early = loop {
        if has_ended.load(Ordering::Acquire) {
            break None;
        } else if stop.requested() {
            break Some(ChildEnd::Stopped);
        } else if clock.now() >= deadline {
            break Some(ChildEnd::TooLate);
        }
        signal.wait(Some(deadline));
    };
    if early.is_some() {
        child.kill()?;
    }
    // The waiting thread ends with the child. It must not outlive the child's process id, which the system may use again.
    waiter.join().expect("waiting does not panic");
    if let Some(end) = early {
        child.wait()?;
        return Ok(end);
    }
    let status = child.wait()?;
    let text = |said: JoinHandle<Vec<u8>>| said.join().expect("reading does not panic");
    Ok(ChildEnd::Done(Output { status, stdout: text(stdout), stderr: text(stderr) }))
}

/// Waits for the end of `child` on a thread of its own, and notifies `signal` of it. The child is left for [`Child::wait`]
/// to reap, so that its process id is not used again before.
fn watch_end(
    child: &Child,
    signal: Arc<dyn orinoco_core::Signal>,
) -> io::Result<(Arc<AtomicBool>, JoinHandle<()>)> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process has a number");
    let has_ended = Arc::<AtomicBool>::default();
    let waiter = thread::Builder::new().spawn({
        let has_ended = Arc::clone(&has_ended);
        move || {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(pid), options) {}
            has_ended.store(true, Ordering::Release);
            signal.notify();
        }
    })?;
    Ok((has_ended, waiter))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_program_that_hangs_is_ended() {
        let (limit, stop) = (Duration::from_millis(50), Stop::default());
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
        let end = output_within(Command::new("sleep").arg("60"), limit, &stop, &clock).expect("it starts");
        assert!(matches!(end, ChildEnd::TooLate));
        let end =
            output_within(Command::new("sh").args(["-c", "echo a; echo b >&2"]), MEASURE_MAX, &stop, &clock);
        let ChildEnd::Done(output) = end.expect("it starts") else { panic!("it ends by itself") };
        assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"a\n"[..], &b"b\n"[..]));
        stop.request();
        let begin = Instant::now();
        let end =
            output_within(Command::new("sleep").arg("60"), MEASURE_MAX, &stop, &clock).expect("it starts");
        assert!(matches!(end, ChildEnd::Stopped));
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    }
}
