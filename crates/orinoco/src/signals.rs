//! Ctrl-C, SIGTERM, and the hangup of a terminal that goes away.

use std::ffi::c_int;
use std::thread;

use orinoco_core::{Diagnosis, Exit, WithSubject, codes};
use orinoco_runtime::Control;
use orinoco_sysroot::Sysroot;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

/// From now on a first Ctrl-C, SIGTERM or SIGHUP asks for a clean end, and a second Ctrl-C or SIGTERM ends at once. A second
/// SIGHUP does not: when a terminal goes away the kernel sends one, and a shell that ends with it sends another.
pub(crate) fn stop_on_signals(control: Control) -> Result<(), Diagnosis> {
    listen(&[SIGINT, SIGTERM], move |signal| {
        if control.is_stopping() && signal != SIGHUP {
            end();
        }
        control.stop();
    })
}

/// From now on SIGTERM and SIGHUP end a command that has no outputs to complete, by the exit code of what was interrupted.
/// Ctrl-C keeps the default action: a shell's loop ends with a command that SIGINT has killed.
pub(crate) fn end_on_signals() -> Result<(), Diagnosis> {
    listen(&[SIGTERM], |_| end())
}

/// From now on Ctrl-C, SIGTERM and SIGHUP call `end`, in place of ending the program: it has to restore the terminal first.
pub(crate) fn call_on_signals(mut end: impl FnMut() + Send + 'static) -> Result<(), Diagnosis> {
    listen(&[SIGINT, SIGTERM], move |_| end())
}

/// Calls `hear` with each of `signals` that comes, and with SIGHUP unless that was ignored when the program started: this is
/// how nohup(1) keeps a program running.
fn listen(signals: &[c_int], mut hear: impl FnMut(c_int) + Send + 'static) -> Result<(), Diagnosis> {
    let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    let next = "check the sandbox or seccomp profile";
    let mut signals = Signals::new(signals.iter().copied().chain(hangup)).about(
        &codes::ENGINE_RUN,
        "installing the handler for SIGTERM and SIGHUP",
        next,
    )?;
    thread::spawn(move || signals.forever().for_each(&mut hear));
    Ok(())
}

/// Whether the kernel ignores a signal for this process (`SigIgn` of proc(5), bit 0 is signal 1).
fn is_ignored(signal: c_int) -> bool {
    let status = Sysroot::host().text("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Ends the program without waiting for anything: destructors of libraries would, for threads that compute.
fn end() -> ! {
    low_level::exit(Exit::Interrupted as i32)
}
