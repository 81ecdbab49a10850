//! Post-mortem of a crash in native code, such as an engine or a driver. In the handler of the signal, little may be called:
//! the crashed thread only tells another one, and waits while that one writes the dump. Then the signal ends the process, as
//! it would have without a handler.
#![expect(
    unsafe_code,
    reason = "the code that handles a signal of a crash must promise to call nothing unsafe there"
)]

use std::io::{self, PipeReader, PipeWriter, Read, Write, stderr};
use std::thread;

use crash_handler::{CrashContext, CrashEventResult, CrashHandler, make_crash_event};
use orinoco_core::{Diagnosis, WithSubject, codes};
use orinoco_sysroot::Sysroot;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};

/// Longest time that the crashed thread waits for its dump. A crash while memory is allocated, for example, can stop the
/// thread that writes it, too.
const DUMP_WAIT_MAX: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };
/// Signals of crashes, by name.
const SIGNALS: [(Signal, &str); 6] = [
    (Signal::ABORT, "SIGABRT"),
    (Signal::BUS, "SIGBUS"),
    (Signal::FPE, "SIGFPE"),
    (Signal::ILL, "SIGILL"),
    (Signal::SEGV, "SIGSEGV"),
    (Signal::TRAP, "SIGTRAP"),
];

/// Signal that is about to end the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Crash {
    signal: i32,
    /// Id of the thread in which it came.
    thread: i32,
    /// Cause as the kernel gives it (`si_code` of sigaction(2)).
    code: i32,
}

impl Crash {
    fn to_bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        for (place, number) in bytes.chunks_exact_mut(4).zip([self.signal, self.thread, self.code]) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: [u8; 12]) -> Self {
        let number = |at: usize| i32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        Self { signal: number(0), thread: number(4), code: number(8) }
    }

    /// Whether another process sent the signal, as systemd's watchdog does.
    pub(crate) fn is_from_outside(self) -> bool {
        /// `SI_USER` of sigaction(2): kill(2).
        const USER: i32 = 0;
        self.code == USER
    }

    fn name(self) -> &'static str {
        let known = SIGNALS.iter().find(|(signal, _)| signal.as_raw() == self.signal);
        known.map_or("an unknown signal", |(_, name)| name)
    }

    /// Returns a phrase such as `SIGSEGV in thread lane-0`.
    pub(crate) fn text(self) -> String {
        let (name, thread) = (self.name(), self.thread);
        if self.is_from_outside() {
            return format!("{name} from another process");
        }
        let comm = Sysroot::host().text(&format!("/proc/self/task/{thread}/comm"));
        let thread = comm.map_or_else(|_| thread.to_string(), |comm| comm.trim_end().to_owned());
        format!("{name} in thread {thread}")
    }
}

/// Calls `on_crash` on a thread of its own when a signal of a crash comes while the returned handler exists.
pub(crate) fn watch(on_crash: impl FnOnce(Crash) + Send + 'static) -> Result<CrashHandler, Diagnosis> {
    install(on_crash).about(
        &codes::ENGINE_RUN,
        "installing the handler for crashes",
        "check the sandbox or seccomp profile",
    )
}

fn install(on_crash: impl FnOnce(Crash) + Send + 'static) -> io::Result<CrashHandler> {
    let (crashes, crashed) = io::pipe()?;
    let (written, done) = io::pipe()?;
    let write = move || await_crash(crashes, done, on_crash);
    thread::Builder::new().name("crash".to_owned()).spawn(write)?;
    let handle = move |context: &CrashContext| {
        let info = &context.siginfo;
        let crash = Crash { signal: info.ssi_signo.cast_signed(), thread: context.tid, code: info.ssi_code };
        tell_and_wait(crash, &crashed, &written);
        end_by(crash)
    };
    // SAFETY: it calls only write(2), poll(2), getpid(2) and kill(2), which signal-safety(7) permits, and allocates nothing.
    let event = unsafe { make_crash_event(handle) };
    CrashHandler::attach(event).map_err(io::Error::other)
}

/// Tells the waiting thread about the crash of this one, and waits for it. Runs in the handler of a signal.
fn tell_and_wait(crash: Crash, mut crashed: &PipeWriter, written: &PipeReader) {
    if crashed.write_all(&crash.to_bytes()).is_ok() {
        // Also returns when the waiting thread is gone, and its end of the pipe with it.
        while poll(&mut [PollFd::new(written, PollFlags::IN)], Some(&DUMP_WAIT_MAX)) == Err(Errno::INTR) {}
    }
}

/// Has the signal end the process as it would have without a handler. Runs in the handler of a signal.
fn end_by(crash: Crash) -> CrashEventResult {
    let is_fault = crash.code > 0;
    if is_fault && crash.signal == Signal::TRAP.as_raw() {
        // The instruction after a breakpoint would follow. GLib's g_error has one.
        let _ = kill_process(getpid(), Signal::TRAP);
    }
    // After a fault, the handler that was there before: Rust's, which reports stack overflows. It ignores a signal that a
    // process sent: after one, the default action.
    CrashEventResult::Handled(!is_fault)
}

fn await_crash(mut crashes: PipeReader, done: PipeWriter, on_crash: impl FnOnce(Crash)) {
    let mut message = [0; 12];
    // It ends without a message when the handler was removed.
    if crashes.read_exact(&mut message).is_ok() {
        let crash = Crash::from_bytes(message);
        say_at_once(crash);
        on_crash(crash);
    }
    drop(done);
}

/// Writes the signal's name to the log without allocating memory: where the heap is damaged, nothing else comes.
fn say_at_once(crash: Crash) {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let (log, name) = (stderr(), crash.name());
    // Nobody may read the log, and then writing would wait.
    if poll(&mut [PollFd::new(&log, PollFlags::OUT)], Some(&now)) == Ok(1) {
        let mut line = [b' '; 32];
        let length = name.len().min(line.len() - 1);
        line[..length].copy_from_slice(&name.as_bytes()[..length]);
        line[length] = b'\n';
        let _ = rustix::io::write(&log, &line[..=length]);
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, abort};
    use std::ptr;

    use super::*;

    /// Variable by which a test tells the process that it starts how to crash.
    const CRASH: &str = "ORINOCO_TEST_CRASH";

    /// Has this process crash under the handler.
    #[expect(clippy::print_stderr, reason = "the test reads it")]
    fn crash(how: &str) -> ! {
        let _handler = watch(|crash| eprintln!("crashed: {}", crash.text())).expect("installed");
        match how {
            // SAFETY: not at all. Nothing is mapped there, which ends the process.
            "fault" => unsafe { ptr::null::<u8>().wrapping_add(8).read_volatile() }.to_string(),
            "overflow" => depth(&[0; 4096]).to_string(),
            "breakpoint" => breakpoint().to_string(),
            _ => abort(),
        };
        unreachable!("it goes on after {how}")
    }

    /// Calls itself until the stack is full.
    #[expect(unconditional_recursion, reason = "it is to fill the stack")]
    fn depth(above: &[u8; 4096]) -> usize {
        let own = std::hint::black_box([above[0]; 4096]);
        depth(&own) + usize::from(own[7])
    }

    fn breakpoint() -> u8 {
        // SAFETY: a breakpoint changes nothing. Without a debugger it raises SIGTRAP.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            std::arch::asm!("int3");
            #[cfg(target_arch = "aarch64")]
            std::arch::asm!("brk #0");
        }
        0
    }

    #[test]
    fn a_crash_is_told_and_ends_the_process_by_its_signal() {
        if let Ok(how) = env::var(CRASH) {
            crash(&how);
        }
        let this = thread::current().name().expect("a test has a name").to_owned();
        for (how, told, signal) in [
            ("fault", "SIGSEGV", Signal::SEGV),
            // Rust's handler reports it and aborts.
            ("overflow", "SIGSEGV", Signal::ABORT),
            ("breakpoint", "SIGTRAP", Signal::TRAP),
            ("abort", "SIGABRT", Signal::ABORT),
        ] {
            let mut process = Command::new(env::current_exe().expect("a path"));
            let output =
                process.args(["--exact", &this, "--nocapture"]).env(CRASH, how).output().expect("runs");
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.signal(), Some(signal.as_raw()), "{how}: {said}");
            let told = format!("crashed: {told} in thread {}", &this[..15]);
            assert!(said.contains(&told), "{how}: {said}");
        }
    }

    #[test]
    fn a_crash_is_described_by_signal_and_thread() {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let name = thread::current().name().expect("a test has a name")[..15].to_owned();
        let crash = |signal: Signal, thread, code| Crash { signal: signal.as_raw(), thread, code };
        assert_eq!(crash(Signal::SEGV, thread, 1).text(), format!("SIGSEGV in thread {name}"));
        assert_eq!(crash(Signal::ABORT, i32::MAX, -6).text(), format!("SIGABRT in thread {}", i32::MAX));
        assert_eq!(crash(Signal::ABORT, thread, 0).text(), "SIGABRT from another process");
        let unknown = Crash { signal: 40, thread, code: 1 };
        assert_eq!(unknown.text(), format!("an unknown signal in thread {name}"));
        assert_eq!(Crash::from_bytes(unknown.to_bytes()), unknown);
    }
}
