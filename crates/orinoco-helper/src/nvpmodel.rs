//! Runs `nvpmodel`, the program of Jetson Linux that sets a power mode.

use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};

use orinoco_sysroot::Sysroot;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Path of the program on every Jetson.
const PROGRAM: &str = "/usr/sbin/nvpmodel";
/// Longest time for which it may run: it takes less than a second where it needs no reboot.
const RUN_MAX: Timespec = Timespec { tv_sec: 8, tv_nsec: 0 };
/// Mode bits that let others than the owner write.
const OTHERS_WRITE: u32 = 0o022;

/// Sets the power mode with a number.
///
/// # Errors
/// Says why the program could not be run, or that it failed.
pub(crate) fn set_mode(sysroot: &Sysroot, id: u32) -> Result<(), String> {
    let path = sysroot.real_path(PROGRAM).map_err(|why| why.to_string())?;
    let metadata = path.metadata().map_err(|why| format!("{PROGRAM}: {why}"))?;
    let owner = rustix::process::geteuid().as_raw();
    let is_safe = metadata.is_file() && [0, owner].contains(&metadata.uid());
    if !is_safe || metadata.mode() & OTHERS_WRITE != 0 {
        return Err(format!("{PROGRAM} is not a file that only root can write"));
    }
    // A mode that needs a reboot asks for it on standard input; there is none, so the answer is no.
    let mut command = Command::new(path);
    command.args(["-m", &id.to_string()]).env_clear().current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().map_err(|why| format!("{PROGRAM} cannot be started: {why}"))?;
    wait(child)
}

/// Waits for the end of the program, and kills it if it takes too long.
fn wait(mut child: Child) -> Result<(), String> {
    let pid = Pid::from_child(&child);
    let ended = pidfd_open(pid, PidfdFlags::empty()).and_then(|pidfd| {
        let mut waited = [PollFd::new(&pidfd, PollFlags::IN)];
        poll(&mut waited, Some(&RUN_MAX))
    });
    if ended.is_ok_and(|ready| ready == 0) {
        // It may have ended meanwhile; the status below says what it was.
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("{PROGRAM} did not end within {} s", RUN_MAX.tv_sec));
    }
    let status = child.wait().map_err(|why| format!("{PROGRAM}: {why}"))?;
    if status.success() { Ok(()) } else { Err(format!("{PROGRAM} failed: {status}")) }
}
