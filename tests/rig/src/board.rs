//! Emulated board: commands and files by ssh, its console, and its attached devices.

#![expect(clippy::disallowed_methods, reason = "it waits for real processes and boards")]

use std::fmt;
use std::fs;
use std::io::BufReader;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::process::output_within;
use crate::qemu::in_namespace;
use crate::run::SHARED;

/// Line that a board prints on its console after each boot, once ssh can reach it.
const READY: &str = "BOARD-READY";

/// Maximum duration of a command by [`Board::ssh`]. Most take a second.
const COMMAND_MAX: Duration = Duration::from_secs(60);

/// Maximum duration of a file copy. An emulated board copies some MB/s.
const COPY_MAX: Duration = Duration::from_secs(300);

/// Interval at which a board's state is polled.
const POLL: Duration = Duration::from_millis(50);

/// Handle of a running board. The board ends when its [`crate::Boards`] are dropped.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Board {
    pub(crate) id: u8,
    pub(crate) pid: u32,
    /// Port of the board's ssh server, on 127.0.0.1 of this machine or of the network namespace.
    pub(crate) port: u16,
    pub(crate) folder: PathBuf,
    pub(crate) namespaced: bool,
    /// Folder with the ssh keys.
    pub(crate) keys: PathBuf,
}

/// Emulated cameras (V4L2 driver vivid) to attach.
#[derive(Clone, Copy, Debug)]
pub struct VividOptions {
    /// Number of cameras.
    pub count: u8,
    /// Type of the cameras' input.
    pub input: Input,
    /// Whether they use V4L2's multi-planar interface.
    pub multiplanar: bool,
}

impl Default for VividOptions {
    fn default() -> Self {
        Self { count: 1, input: Input::Webcam, multiplanar: false }
    }
}

/// Input of a camera of the driver vivid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Webcam with fixed sizes: 640x360 at 30 frames/s, 1280x720 at 12.5, 1920x1080 at 5.
    Webcam,
    /// HDMI receiver, whose size is that of the signal: up to 1280x720 at 60 frames/s.
    Hdmi,
    /// HDMI receiver that an HDMI output feeds: it shows the frames written to the output while the control
    /// `loop_video` is on.
    Loop,
}

/// Power rail of a Jetson Orin, with its channel of the power monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rail {
    /// Whole board.
    VddIn = 1,
    /// CPU, GPU and computer vision.
    VddCpuGpuCv = 2,
    /// Other parts of the SoC.
    VddSoc = 3,
}

/// Voltage and current of a rail. The power monitor rounds down to 8 mV and, at its shunt of 5 milliohms, to 8 mA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Voltage, in mV, up to 26000.
    pub millivolts: u32,
    /// Current, in mA, up to 32000.
    pub milliamps: u32,
}

impl fmt::Display for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "board{}", self.id)
    }
}

// --- commands and files ------------------------------------------------------------------------------------------------

impl Board {
    /// Returns the board's number; 1 is the first.
    pub fn id(&self) -> u8 {
        self.id
    }

    /// Returns the IP address on the link between the boards.
    pub fn address(&self) -> String {
        format!("10.77.0.{}", self.id)
    }

    /// Executes a shell command on the board, and waits for its end for at most a minute. The exit status is the
    /// command's; 255 is ssh's own.
    pub fn ssh(&self, command: &str) -> Result<Output> {
        self.ssh_within(command, COMMAND_MAX)
    }

    /// Executes a shell command like [`Board::ssh`], with another time limit.
    pub fn ssh_within(&self, command: &str, limit: Duration) -> Result<Output> {
        output_within(self.ssh_command().arg(command).stdin(Stdio::null()), limit)
            .with_context(|| format!("on {self}: {command}"))
    }

    /// Executes a shell command that must succeed, within a minute, and returns its standard output without surrounding
    /// space.
    pub fn run(&self, command: &str) -> Result<String> {
        let output = self.ssh(command)?;
        self.demand(&output, command)?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Starts a shell command that takes longer. Its output can be read while it runs.
    pub fn spawn(&self, command: &str) -> Result<Session> {
        let mut ssh = self.ssh_command();
        let mut child =
            ssh.arg(command).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Ok(Session { child, stdout })
    }

    /// Copies a file to the board, with its permissions; the board never sees an incomplete copy. The board reads it
    /// from a folder that it shares with this machine, because an emulated core receives only 7 MB/s by ssh.
    pub fn put(&self, local: &Path, remote: &str) -> Result<()> {
        let copying = || format!("copying {} to {self}", local.display());
        let shared = NamedTempFile::new_in(self.folder.join(SHARED)).with_context(copying)?;
        fs::copy(local, shared.path()).with_context(copying)?;
        let mode = local.metadata()?.permissions().mode() & 0o777;
        let name = shared.path().file_name().and_then(|name| name.to_str()).expect("it has a plain name");
        let command = format!("board-take {name} {} {mode:o}", quoted(remote));
        let output = self.ssh_within(&command, COPY_MAX)?;
        self.demand(&output, &command)
    }

    /// Copies a file from the board. The local file appears when the copy is complete.
    pub fn get(&self, remote: &str, local: &Path) -> Result<()> {
        let command = format!("cat {}", quoted(remote));
        let output = self.ssh_within(&command, COPY_MAX)?;
        self.demand(&output, &command)?;
        let part = local.with_extension("part");
        fs::write(&part, output.stdout).with_context(|| format!("writing {}", part.display()))?;
        fs::rename(&part, local).with_context(|| format!("writing {}", local.display()))
    }

    /// Returns everything that the board has printed on its console.
    pub fn log(&self) -> Result<String> {
        let bytes = fs::read(self.file("log")).with_context(|| format!("reading the console of {self}"))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns the command `ssh` with all options to reach the board, for a remote command or a terminal.
    pub fn ssh_command(&self) -> Command {
        let mut ssh = match self.namespaced {
            true => in_namespace(crate::run::namespace(&self.folder), "ssh"),
            false => Command::new("ssh"),
        };
        let known = self.keys.join("known_hosts").display().to_string();
        ssh.args(["-q", "-F", "/dev/null", "-p", &self.port.to_string(), "-i"]).arg(self.keys.join("key"));
        ssh.args(["-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20"]);
        // OpenSSH's first choice, which resists quantum computers, takes 0.3 s more on an emulated core.
        ssh.args(["-o", "KexAlgorithms=curve25519-sha256"]);
        // The port differs each time, but the host key belongs to the board.
        ssh.args(["-o", "HostKeyAlias=board", "-o", &format!("UserKnownHostsFile={known}")]);
        ssh.args(["-o", "StrictHostKeyChecking=yes", "root@127.0.0.1"]);
        ssh
    }

    fn demand(&self, output: &Output, command: &str) -> Result<()> {
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("on {self}: {command}: {} {}", output.status, said.trim());
        }
        Ok(())
    }

    /// Returns the path of this board's file in the run's folder, with this extension.
    pub(crate) fn file(&self, extension: &str) -> PathBuf {
        self.folder.join(format!("{}.{extension}", self.id))
    }
}

/// Returns a word in quotes, so that the board's shell does not interpret it.
pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

// --- state -------------------------------------------------------------------------------------------------------------

impl Board {
    /// Whether the board's emulator runs: false once the board was killed or its owner has ended.
    pub fn is_running(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        // The state follows the process name, which is in parentheses and may contain any character. Z is a process
        // that has ended, but was not waited for.
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
    }

    /// Returns the number of boots so far.
    pub fn boots(&self) -> usize {
        self.log().map_or(0, |log| log.matches(READY).count())
    }

    /// Waits until the board has booted `count` times. After a reset, that is one more than before.
    pub fn wait_for_boots(&self, count: usize, limit: Duration) -> Result<()> {
        let start = Instant::now();
        while self.boots() < count {
            if !self.is_running() {
                let complaints = fs::read_to_string(self.file("err")).unwrap_or_default();
                bail!("the emulator of {self} has ended: {}", complaints.trim());
            }
            if start.elapsed() > limit {
                bail!("{self} is not up after {} s; its console:\n{}", limit.as_secs(), self.log()?);
            }
            thread::sleep(POLL);
        }
        Ok(())
    }
}

// --- devices -----------------------------------------------------------------------------------------------------------

impl Board {
    /// Attaches cameras, in place of the present ones. Returns their devices (`/dev/video0` and so on), followed by the
    /// devices of the outputs that feed them, if any.
    pub fn camera(&self, options: VividOptions) -> Result<Vec<String>> {
        let input = match options.input {
            Input::Webcam => "webcam",
            Input::Hdmi => "hdmi",
            Input::Loop => "loop",
        };
        let planes = if options.multiplanar { "multi" } else { "single" };
        let devices = self.run(&format!("board-camera {} {input} {planes}", options.count))?;
        Ok(devices.lines().map(str::to_owned).collect())
    }

    /// Starts the power monitor, and returns its folder under `/sys/class/hwmon`, with the labels of a Jetson Orin. All
    /// rails read 0 until [`Board::set_rail`].
    pub fn rails(&self) -> Result<String> {
        self.run("board-rails up")
    }

    /// Sets voltage and current of a rail.
    pub fn set_rail(&self, rail: Rail, reading: Reading) -> Result<()> {
        let Reading { millivolts, milliamps } = reading;
        self.run(&format!("board-rails set {} {millivolts} {milliamps}", rail as u8)).map(drop)
    }

    /// Starts the thermal zone `tj-thermal` (at 45 °C, with a passive trip point at 95 °C), the clocks
    /// `devfreq/17000000.gpu` and `cpufreq/policy0`, and the power monitor.
    pub fn dvfs(&self) -> Result<()> {
        self.run("board-dvfs up").map(drop)
    }

    /// Sets the temperature of the thermal zone, in millidegrees. Its sensor rounds down to half a degree.
    pub fn heat(&self, millidegrees: i32) -> Result<()> {
        self.run(&format!("board-dvfs heat {millidegrees}")).map(drop)
    }

    /// Creates an RDMA device (Soft-RoCE) on the link between the boards, and returns its name.
    pub fn soft_roce(&self) -> Result<String> {
        self.run("board-rdma")
    }

    /// Opens the memory that the boards share through PCI.
    pub fn bar(&self) -> Result<Bar> {
        let line = self.run("board-bar")?;
        let mut words = line.split(' ');
        let mut next = || words.next().with_context(|| format!("board-bar printed `{line}`"));
        let (address, size, file) = (next()?, next()?, next()?);
        let address = u64::from_str_radix(address.trim_start_matches("0x"), 16)?;
        Ok(Bar { address, size: size.parse()?, file: file.to_owned() })
    }
}

/// Memory that boards share, as one of them sees it: a PCI BAR, like that of a non-transparent bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bar {
    /// Physical address in the board's memory.
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
    /// Path of the file that a process on the board can map.
    pub file: String,
}

// --- commands that take longer -----------------------------------------------------------------------------------------

/// Command that runs on a board. Dropping it ends ssh; the command itself ends when it next prints.
#[derive(Debug)]
pub struct Session {
    child: Child,
    /// Standard output of the command, while it runs.
    pub stdout: BufReader<ChildStdout>,
}

impl Session {
    /// Waits until the command has ended. Fails after `limit`.
    pub fn wait(mut self, limit: Duration) -> Result<ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if start.elapsed() > limit {
                bail!("no end after {} s", limit.as_secs());
            }
            thread::sleep(POLL);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_word_is_one_word_to_a_shell() {
        for word in ["plain", "two words", "it's", "$(reboot); `x`"] {
            let printed = Command::new("sh").args(["-c", &format!("printf %s {}", quoted(word))]).output();
            assert_eq!(String::from_utf8_lossy(&printed.expect("a shell").stdout), word);
        }
    }
}
