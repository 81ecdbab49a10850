//! One board: commands and files by ssh, its console, and what can be plugged into it.

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

/// What a board prints on its console each time it can be reached.
const READY: &str = "BOARD-READY";

/// Longest command by [`Board::ssh`]. Most take a second.
const COMMAND_MAX: Duration = Duration::from_secs(60);

/// Longest copy of a file. An emulated board takes some MB a second.
const COPY_MAX: Duration = Duration::from_secs(300);

/// How often a board is asked whether something has happened.
const POLL: Duration = Duration::from_millis(50);

/// A running board. It is a handle: the boards end with [`crate::Boards`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Board {
    pub(crate) id: u8,
    pub(crate) pid: u32,
    /// Where its ssh is, on 127.0.0.1 of this machine or of the namespace.
    pub(crate) port: u16,
    pub(crate) folder: PathBuf,
    pub(crate) namespaced: bool,
    /// The folder of the ssh keys.
    pub(crate) keys: PathBuf,
}

/// Cameras to plug in.
#[derive(Clone, Copy, Debug)]
pub struct VividOptions {
    /// How many.
    pub count: u8,
    /// Of which kind.
    pub input: Input,
    /// Whether they use V4L2's multi-planar interface.
    pub multiplanar: bool,
}

impl Default for VividOptions {
    fn default() -> Self {
        Self { count: 1, input: Input::Webcam, multiplanar: false }
    }
}

/// What a camera of the driver vivid plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Fixed sizes: 640x360 at 30 frames a second, 1280x720 at 12.5, 1920x1080 at 5.
    Webcam,
    /// An HDMI receiver, whose size follows the signal: up to 1280x720 at 60.
    Hdmi,
    /// The same, fed by an HDMI output: what is written to that is seen, while the control `loop_video` is on.
    Loop,
}

/// A power rail of a Jetson Orin, by its channel of the power monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rail {
    /// The whole board.
    VddIn = 1,
    /// CPU, GPU and computer vision.
    VddCpuGpuCv = 2,
    /// The rest of the chip.
    VddSoc = 3,
}

/// What a rail carries. The chip rounds down to 8 mV and, at its shunt of 5 milliohms, to 8 mA.
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
    /// 1 for the first board.
    pub fn id(&self) -> u8 {
        self.id
    }

    /// Its address on the link between the boards.
    pub fn address(&self) -> String {
        format!("10.77.0.{}", self.id)
    }

    /// Runs a shell command on the board to its end, within a minute. The exit status is the command's; 255 is ssh's own.
    pub fn ssh(&self, command: &str) -> Result<Output> {
        self.ssh_within(command, COMMAND_MAX)
    }

    /// [`Board::ssh`] with another limit.
    pub fn ssh_within(&self, command: &str, limit: Duration) -> Result<Output> {
        output_within(self.ssh_command().arg(command).stdin(Stdio::null()), limit)
            .with_context(|| format!("on {self}: {command}"))
    }

    /// Runs a shell command that must succeed, within a minute, and gives what it prints, trimmed.
    pub fn run(&self, command: &str) -> Result<String> {
        let output = self.ssh(command)?;
        self.demand(&output, command)?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Starts a shell command that takes longer, whose output can be read meanwhile.
    pub fn spawn(&self, command: &str) -> Result<Session> {
        let mut ssh = self.ssh_command();
        let mut child =
            ssh.arg(command).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Ok(Session { child, stdout })
    }

    /// Copies a file to the board, which gets it whole or not at all, with its permissions. It takes it from a folder that
    /// it sees: by ssh, an emulated core gets 7 MB a second.
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

    /// Copies a file from the board; the copy appears when it is whole.
    pub fn get(&self, remote: &str, local: &Path) -> Result<()> {
        let command = format!("cat {}", quoted(remote));
        let output = self.ssh_within(&command, COPY_MAX)?;
        self.demand(&output, &command)?;
        let part = local.with_extension("part");
        fs::write(&part, output.stdout).with_context(|| format!("writing {}", part.display()))?;
        fs::rename(&part, local).with_context(|| format!("writing {}", local.display()))
    }

    /// Everything that the board has printed on its console.
    pub fn log(&self) -> Result<String> {
        let bytes = fs::read(self.file("log")).with_context(|| format!("reading the console of {self}"))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// `ssh` with all that it takes to reach the board, for a command or a terminal.
    pub fn ssh_command(&self) -> Command {
        let mut ssh = match self.namespaced {
            true => in_namespace(crate::run::namespace(&self.folder), "ssh"),
            false => Command::new("ssh"),
        };
        let known = self.keys.join("known_hosts").display().to_string();
        ssh.args(["-q", "-F", "/dev/null", "-p", &self.port.to_string(), "-i"]).arg(self.keys.join("key"));
        ssh.args(["-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20"]);
        // OpenSSH's first choice, which quantum computers do not break, takes an emulated core 0.3 s more.
        ssh.args(["-o", "KexAlgorithms=curve25519-sha256"]);
        // The port is another each time, and the board is the same.
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

    /// A file of the run's folder that belongs to this board.
    pub(crate) fn file(&self, extension: &str) -> PathBuf {
        self.folder.join(format!("{}.{extension}", self.id))
    }
}

/// A word that the board's shell takes as it is.
pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

// --- whether it lives --------------------------------------------------------------------------------------------------

impl Board {
    /// Whether its emulator runs: false once the board was killed or its owner has gone.
    pub fn is_running(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        // The state follows the name, which is in parentheses and may hold anything. Z has ended and was not waited for.
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
    }

    /// How often it has come up so far.
    pub fn boots(&self) -> usize {
        self.log().map_or(0, |log| log.matches(READY).count())
    }

    /// Waits until it has come up `count` times. After a reset, that is one more than before.
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

// --- what is plugged in ------------------------------------------------------------------------------------------------

impl Board {
    /// Plugs in cameras, in place of those that are there, and gives their devices (`/dev/video0` and so on), and after
    /// them those of the outputs that feed them, if any.
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

    /// Brings up the power monitor, and gives its folder under `/sys/class/hwmon`, with the labels of an Orin. All rails
    /// read 0 until [`Board::set_rail`].
    pub fn rails(&self) -> Result<String> {
        self.run("board-rails up")
    }

    /// Lets a rail carry something.
    pub fn set_rail(&self, rail: Rail, reading: Reading) -> Result<()> {
        let Reading { millivolts, milliamps } = reading;
        self.run(&format!("board-rails set {} {millivolts} {milliamps}", rail as u8)).map(drop)
    }

    /// Makes an RDMA device on the link between the boards, and gives its name.
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

/// Memory that boards share, as one of them sees it: a PCI window, as through a non-transparent bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bar {
    /// Where it lies in the board's memory.
    pub address: u64,
    /// How long it is, in bytes.
    pub size: u64,
    /// The file that a process on the board can map.
    pub file: String,
}

// --- commands that take longer -----------------------------------------------------------------------------------------

/// A command that runs on a board. Dropping it ends ssh; the command itself ends when it prints next.
#[derive(Debug)]
pub struct Session {
    child: Child,
    /// What the command prints, as it comes.
    pub stdout: BufReader<ChildStdout>,
}

impl Session {
    /// Waits until the command has ended.
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
