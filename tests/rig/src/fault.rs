//! Faults that can be injected into a board.

#![expect(clippy::disallowed_methods, reason = "it waits for real processes and boards")]

use std::fmt;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::board::quoted;
use crate::{Board, qemu, qmp};

/// Fault of a board, or its end. [`Board::fault`] injects it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Pulls the cable to the other boards: the carrier is lost.
    LinkDown,
    /// Plugs the cable in again.
    LinkUp,
    /// Stops all cores, as when a board hangs.
    Pause,
    /// Resumes all cores.
    Resume,
    /// Presses the reset button. Files written since the boot are lost. See [`Board::wait_for_boots`].
    Reset,
    /// Cuts the power. The board does not come back.
    Kill,
    /// Treats packets to the other boards as `tc-netem` specifies: `delay 10ms 2ms loss 1%`.
    Netem(String),
    /// Ends the treatment of packets by [`Fault::Netem`].
    NetemOff,
    /// Unbinds a device from its driver: driver `vivid`, device `vivid.0`.
    Unbind {
        /// Name of the driver under `/sys/bus/*/drivers`.
        driver: String,
        /// Name of the device in the driver's folder.
        device: String,
    },
    /// Binds a device to a driver.
    Bind {
        /// Name of the driver under `/sys/bus/*/drivers`.
        driver: String,
        /// Name of the device on the bus.
        device: String,
    },
}

impl Board {
    /// Injects a fault. The fault is in effect when this returns, but the board may notice it later.
    pub fn fault(&self, fault: &Fault) -> Result<()> {
        match fault {
            Fault::LinkDown => self.set_link("down"),
            Fault::LinkUp => self.set_link("up"),
            Fault::Pause => self.ask_emulator("stop"),
            Fault::Resume => self.ask_emulator("cont"),
            Fault::Reset => self.ask_emulator("system_reset"),
            Fault::Kill => self.kill(),
            Fault::Netem(treatment) => self.netem(&format!("replace dev $BOARD root netem {treatment}")),
            Fault::NetemOff => self.netem("delete dev $BOARD root"),
            Fault::Unbind { driver, device } => self.driver("unbind", driver, device),
            Fault::Bind { driver, device } => self.driver("bind", driver, device),
        }
        .with_context(|| format!("{self}: {fault}"))
    }

    /// Sets the link of the board's own network device. Setting that of the bridge's port would not remove the board's
    /// carrier.
    fn set_link(&self, state: &str) -> Result<()> {
        let arguments = json!({ "name": qemu::LINK, "up": state == "up" });
        qmp::execute(&self.file("qmp"), "set_link", arguments).map(drop)
    }

    fn ask_emulator(&self, command: &str) -> Result<()> {
        qmp::execute(&self.file("qmp"), command, json!({})).map(drop)
    }

    fn kill(&self) -> Result<()> {
        const END_MAX: Duration = Duration::from_secs(10);
        ensure!(self.is_running(), "it does not run");
        let pid =
            i32::try_from(self.pid).ok().and_then(Pid::from_raw).context("its emulator has no number")?;
        kill_process(pid, Signal::KILL)?;
        let start = Instant::now();
        while self.is_running() {
            ensure!(start.elapsed() < END_MAX, "the emulator does not end");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn netem(&self, words: &str) -> Result<()> {
        self.run(&format!(". /run/board.net; tc qdisc {words}")).map(drop)
    }

    fn driver(&self, verb: &str, driver: &str, device: &str) -> Result<()> {
        self.run(&format!("board-driver {verb} {} {}", quoted(driver), quoted(device))).map(drop)
    }
}

impl FromStr for Fault {
    type Err = anyhow::Error;

    /// Parses a fault in the notation of the command line: `link-down`, `netem delay 10ms`, `unbind vivid vivid.0`.
    fn from_str(text: &str) -> Result<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        Ok(match words[..] {
            ["link-down"] => Self::LinkDown,
            ["link-up"] => Self::LinkUp,
            ["pause"] => Self::Pause,
            ["resume"] => Self::Resume,
            ["reset"] => Self::Reset,
            ["kill"] => Self::Kill,
            ["netem-off"] => Self::NetemOff,
            ["netem", _, ..] => Self::Netem(treatment(&words[1..])?),
            ["unbind", driver, device] => {
                Self::Unbind { driver: driver.to_owned(), device: device.to_owned() }
            }
            ["bind", driver, device] => Self::Bind { driver: driver.to_owned(), device: device.to_owned() },
            _ => bail!(
                "`{text}` is not a fault: use link-down, link-up, pause, resume, reset, kill, netem <treatment>, netem-off, \
                 unbind <driver> <device> or bind <driver> <device>"
            ),
        })
    }
}

/// Checks and joins words for tc-netem. They may contain only characters that the board's shell does not interpret.
fn treatment(words: &[&str]) -> Result<String> {
    let plain = |word: &&&str| !word.chars().all(|c| c.is_ascii_alphanumeric() || ".%-".contains(c));
    if let Some(word) = words.iter().find(plain) {
        bail!("`{word}` is no word of tc-netem");
    }
    Ok(words.join(" "))
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkDown => write!(f, "link-down"),
            Self::LinkUp => write!(f, "link-up"),
            Self::Pause => write!(f, "pause"),
            Self::Resume => write!(f, "resume"),
            Self::Reset => write!(f, "reset"),
            Self::Kill => write!(f, "kill"),
            Self::Netem(treatment) => write!(f, "netem {treatment}"),
            Self::NetemOff => write!(f, "netem-off"),
            Self::Unbind { driver, device } => write!(f, "unbind {driver} {device}"),
            Self::Bind { driver, device } => write!(f, "bind {driver} {device}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_as_they_are_written() {
        let faults = [
            "link-down",
            "link-up",
            "pause",
            "resume",
            "reset",
            "kill",
            "netem delay 10ms 2ms loss 1%",
            "netem-off",
            "unbind vivid vivid.0",
            "bind vivid vivid.0",
        ];
        for text in faults {
            assert_eq!(text.parse::<Fault>().expect("a fault").to_string(), text);
        }
    }

    #[test]
    fn other_words_are_refused() {
        for text in ["", "flood", "netem", "netem delay 10ms; reboot", "unbind vivid", "pause now"] {
            assert!(text.parse::<Fault>().is_err(), "{text}");
        }
    }
}
