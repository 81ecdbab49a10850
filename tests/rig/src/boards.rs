//! Start of a set of boards, which run until they are dropped.

#![expect(clippy::disallowed_methods, reason = "it waits for real processes and boards")]

use std::fs::{self, File};
use std::ops::Deref;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use crate::parts::store;
use crate::qemu::{BOARDS_MAX, Link, Options, emulator, make_bridge, write_device_tree};
use crate::run::{Run, namespace};
use crate::{Board, Rig, Unavailable, qmp};

/// Maximum boot time, of the slow flavour on a machine that is busy otherwise. 15 s is usual, 60 s has been seen.
const BOOT_MAX: Duration = Duration::from_secs(300);

/// Interval at which a starting board is polled.
const POLL: Duration = Duration::from_millis(50);

/// File of a run's folder that lists its boards, for [`Boards::attach`].
const LIST: &str = "boards.json";

/// Running boards. They end without leftovers when this is dropped, or when this process ends in any way.
#[derive(Debug)]
pub struct Boards {
    boards: Vec<Board>,
    emulators: Vec<Child>,
    run: Run,
    /// Lock for [`Boards::alone`]. It is released last, after the emulators have ended.
    turn: File,
}

impl Rig {
    /// Starts `count` boards, and waits until all answer ssh. Fails with [`Unavailable`] if this machine does not
    /// support the link.
    pub fn up(&self, count: u8, options: &Options) -> Result<Boards> {
        ensure!((1..=BOARDS_MAX).contains(&count), "{count} boards: 1 to {BOARDS_MAX} are possible");
        if options.link == Link::Bridge && !rustix::process::geteuid().is_root() {
            let why = "a bridge between boards needs root: run as root, or use the link `socket`";
            return Err(Unavailable(why.to_owned()).into());
        }
        let turn = shared_turn()?;
        let run = Run::new()?;
        write_device_tree(self, options, &run)?;
        if options.link == Link::Bridge {
            make_bridge(namespace(run.folder()), count, options.mtu)
                .map_err(|why| Unavailable(format!("no network namespace can be made here: {why:#}")))?;
        }
        let mut boards = Boards { boards: Vec::new(), emulators: Vec::new(), run, turn };
        for id in 1..=count {
            boards.start(self, id, count, options)?;
        }
        let list = serde_json::to_vec(&boards.boards)?;
        fs::write(boards.run.file(LIST), list)?;
        for index in 0..boards.len() {
            boards.wait_ready(index)?;
        }
        Ok(boards)
    }
}

/// Waits until no boards with [`Boards::alone`] run. The returned lock blocks such boards until it is dropped.
fn shared_turn() -> Result<File> {
    let path = store()?.join("turn.lock");
    let file = File::create(&path).with_context(|| format!("making {}", path.display()))?;
    file.lock_shared().with_context(|| format!("locking {}", path.display()))?;
    Ok(file)
}

impl Boards {
    /// Returns the boards of a folder ([`Boards::folder`]) that another process owns.
    pub fn attach(folder: &Path) -> Result<Vec<Board>> {
        let file = folder.join(LIST);
        let list = fs::read(&file).with_context(|| format!("no boards are up at {}", folder.display()))?;
        serde_json::from_slice(&list).with_context(|| format!("reading {}", file.display()))
    }

    /// Returns the folder of these boards, with consoles (`1.log`), sockets, and the error output of the emulators
    /// (`1.err`).
    pub fn folder(&self) -> &Path {
        self.run.folder()
    }

    /// Waits until no other boards of this user run, and blocks the start of others until these have ended. For tests
    /// that measure time, because emulated cores occupy real ones.
    pub fn alone(&self) -> Result<()> {
        self.turn.lock().context("waiting for other boards to end")
    }

    /// Starts the emulator of one board.
    fn start(&mut self, rig: &Rig, id: u8, count: u8, options: &Options) -> Result<()> {
        let complaints = File::create(self.run.file(&format!("{id}.err")))?;
        let emulator = emulator(rig, options, id, count, &self.run).stderr(complaints).spawn();
        let emulator = emulator.context("starting the emulator")?;
        let pid = emulator.id();
        self.emulators.push(emulator);
        // The cleanup script reads the process ID from this file.
        fs::write(self.run.file(&format!("{id}.pid")), pid.to_string())?;
        let port = ssh_port(&self.run, id)?;
        self.boards.push(Board {
            id,
            pid,
            port,
            folder: self.run.folder().to_owned(),
            namespaced: options.link == Link::Bridge,
            keys: rig.initrd.clone(),
        });
        Ok(())
    }

    /// Waits until a board answers ssh.
    fn wait_ready(&self, index: usize) -> Result<()> {
        let board = &self.boards[index];
        board.wait_for_boots(1, BOOT_MAX)?;
        board.run("true").with_context(|| format!("{board} says that it is up and does not answer"))?;
        Ok(())
    }
}

impl Deref for Boards {
    type Target = [Board];

    fn deref(&self) -> &[Board] {
        &self.boards
    }
}

impl Drop for Boards {
    fn drop(&mut self) {
        for emulator in &mut self.emulators {
            let _ = emulator.kill();
            let _ = emulator.wait();
        }
        // The run is dropped last: its cleanup script finds no emulators any more, and removes the rest.
    }
}

/// Returns the port of this machine (or of the run's network namespace) that is forwarded to a board's ssh.
fn ssh_port(run: &Run, id: u8) -> Result<u16> {
    let socket = run.file(&format!("{id}.qmp"));
    let start = Instant::now();
    let answer = loop {
        let question = json!({ "command-line": "info usernet" });
        match qmp::execute(&socket, "human-monitor-command", question) {
            Ok(answer) => break answer,
            Err(why) if start.elapsed() > Duration::from_secs(20) => {
                let complaints = fs::read_to_string(run.file(&format!("{id}.err"))).unwrap_or_default();
                bail!("the emulator of board {id} does not start: {} ({why:#})", complaints.trim());
            }
            Err(_) => thread::sleep(POLL),
        }
    };
    forwarded_port(answer.as_str().unwrap_or_default()).context("the emulator names no port for ssh")
}

/// Returns the port in a line such as `TCP[HOST_FORWARD]  13  127.0.0.1 39807  10.0.2.15 22  0 0`.
fn forwarded_port(text: &str) -> Option<u16> {
    let line = text.lines().find(|line| line.contains("HOST_FORWARD"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_found_in_what_the_emulator_prints() {
        let text = "Hub -1 (m0):\r\n  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ\r\n  \
                    TCP[HOST_FORWARD]  13       127.0.0.1 39807       10.0.2.15    22     0     0\r\n";
        assert_eq!(forwarded_port(text), Some(39807));
        assert_eq!(forwarded_port("nothing"), None);
    }
}
