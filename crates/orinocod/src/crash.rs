//! Post-mortem of a crash in native code, such as an engine or a driver. In the handler of the signal, little may be called:
//! the crashed thread only tells another one, and waits while that one writes the dump. Then the signal ends the process, as
//! it would have without a handler.
#![expect(
    unsafe_code,
    reason = "the code that handles a signal of a crash must promise to call nothing unsafe there"
)]

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::thread;

use crash_handler::{CrashContext, CrashEventResult, CrashHandler, make_crash_event};
use orinoco_core::{Diagnosis, WithSubject, codes};
use orinoco_sysroot::Sysroot;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

/// Longest time that the crashed thread waits for its dump. A crash while memory is allocated, for example, can stop the
/// thread that writes it, too.
const DUMP_WAIT_MAX: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Calls `on_crash` with a sentence about the crash, such as `SIGSEGV in thread lane 0`, on a thread of its own, when a signal of a
/// crash comes while the returned handler exists.
pub(crate) fn watch(on_crash: impl FnOnce(&str) + Send + 'static) -> Result<CrashHandler, Diagnosis> {
    install(on_crash).about(
        &codes::ENGINE_RUN,
        "installing the handler for crashes",
        "check the sandbox or seccomp profile",
    )
}

fn install(on_crash: impl FnOnce(&str) + Send + 'static) -> io::Result<CrashHandler> {
    let (crashes, crashed) = io::pipe()?;
    let (written, done) = io::pipe()?;
    let write = move || await_crash(crashes, done, on_crash);
    thread::Builder::new().name("crash".to_owned()).spawn(write)?;
    let tell = move |context: &CrashContext| {
        tell_and_wait(context, &crashed, &written);
        // The signal's default action follows: it ends the process, which leaves a core file where that is set up. Not the
        // handler that was there before, that of Rust for stack overflows: it ignores a signal that another process sent.
        CrashEventResult::Handled(true)
    };
    // SAFETY: it calls only write(2) and poll(2), which signal-safety(7) permits, and allocates nothing.
    let event = unsafe { make_crash_event(tell) };
    CrashHandler::attach(event).map_err(io::Error::other)
}

/// Tells the waiting thread about the crash of this one, and waits for it. Runs in the handler of a signal.
fn tell_and_wait(context: &CrashContext, mut crashed: &PipeWriter, written: &PipeReader) {
    let mut message = [0; 8];
    message[..4].copy_from_slice(&context.siginfo.ssi_signo.to_ne_bytes());
    message[4..].copy_from_slice(&context.tid.to_ne_bytes());
    if crashed.write_all(&message).is_ok() {
        // Also returns when the waiting thread is gone, and its end of the pipe with it.
        let _ = poll(&mut [PollFd::new(written, PollFlags::IN)], Some(&DUMP_WAIT_MAX));
    }
}

fn await_crash(mut crashes: PipeReader, done: PipeWriter, on_crash: impl FnOnce(&str)) {
    let mut message = [0; 8];
    // It ends without a message when the handler was removed.
    if crashes.read_exact(&mut message).is_ok() {
        let [signal, thread] =
            [0, 4].map(|at| i32::from_ne_bytes(message[at..at + 4].try_into().expect("4 bytes")));
        on_crash(&described(signal, thread));
    }
    drop(done);
}

/// Returns the sentence about a crash by `signal` in the thread with this id.
fn described(signal: i32, thread: i32) -> String {
    let name = match signal {
        _ if signal == Signal::ABORT.as_raw() => "SIGABRT",
        _ if signal == Signal::BUS.as_raw() => "SIGBUS",
        _ if signal == Signal::FPE.as_raw() => "SIGFPE",
        _ if signal == Signal::ILL.as_raw() => "SIGILL",
        _ if signal == Signal::SEGV.as_raw() => "SIGSEGV",
        _ if signal == Signal::TRAP.as_raw() => "SIGTRAP",
        _ => return format!("signal {signal} in thread {thread}"),
    };
    let comm = Sysroot::host().text(&format!("/proc/self/task/{thread}/comm"));
    let thread = comm.map_or_else(|_| thread.to_string(), |comm| comm.trim_end().to_owned());
    format!("{name} in thread {thread}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_is_described_by_signal_and_thread() {
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let name = thread::current().name().expect("a test has a name")[..15].to_owned();
        assert_eq!(described(Signal::SEGV.as_raw(), own), format!("SIGSEGV in thread {name}"));
        assert_eq!(described(Signal::ABORT.as_raw(), i32::MAX), format!("SIGABRT in thread {}", i32::MAX));
        assert_eq!(described(40, own), format!("signal 40 in thread {own}"));
    }
}
