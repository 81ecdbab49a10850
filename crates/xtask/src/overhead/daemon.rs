//! One run of the daemon.

#![expect(clippy::disallowed_methods, reason = "it waits for a real process")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use orinoco_api::{EndState, Summary};
use rustix::param::clock_ticks_per_second;

/// Maximum time between two lines of the daemon's log until it runs: models are loaded in between.
const LINE_WAIT: Duration = Duration::from_secs(60);

/// Whether the daemon has telemetry besides the folds that its summary needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Telemetry {
    On,
    Off,
}

/// Addresses of the control socket.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    pub(super) socket: PathBuf,
    pub(super) tcp: String,
}

/// Running daemon. It is killed when this is dropped.
pub(super) struct Daemon {
    child: Child,
    folder: PathBuf,
    lines: Receiver<String>,
    has_control: bool,
}

impl Daemon {
    pub(super) fn start(program: &Path, folder: &Path, sysroot: &Path, board: &str) -> Result<Self> {
        let path = folder.join("board.toml");
        fs::write(&path, board).with_context(|| format!("writing {}", path.display()))?;
        let mut command = Command::new(program);
        command.arg("--board").arg(&path).arg("--sysroot").arg(sysroot);
        command.arg("--summary").arg(folder.join("summary.json"));
        command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
        let log = BufReader::new(child.stderr.take().expect("it is piped"));
        let (sender, lines) = channel();
        thread::spawn(move || log.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Ok(Self { child, folder: folder.to_owned(), lines, has_control: !board.contains("socket = false") })
    }

    /// Waits until the board runs, and returns the addresses that the daemon listens on; `None` if it has no control socket.
    pub(super) fn addresses(&self) -> Result<Option<Addresses>> {
        let (mut log, mut addresses) = (String::new(), None);
        loop {
            let Ok(line) = self.lines.recv_timeout(LINE_WAIT) else {
                bail!("the daemon does not run; its log:\n{log}");
            };
            let word = |key: &str| line.split(' ').find_map(|word| word.strip_prefix(key).map(str::to_owned));
            match (word("socket="), word("listen=")) {
                (Some(socket), Some(tcp)) => {
                    addresses = Some(Addresses { socket: self.folder.join(socket), tcp })
                }
                // Before that, the control socket answers that the board starts.
                _ if line.ends_with(": running") => break,
                _ => {}
            }
            log = log + &line + "\n";
        }
        ensure!(
            addresses.is_some() == self.has_control,
            "the daemon has another control socket than asked:\n{log}"
        );
        Ok(addresses)
    }

    /// Waits until all streams have ended. Returns the summary, and the processor time of the daemon.
    pub(super) fn wait(mut self) -> Result<(Summary, Duration)> {
        let before = children_time()?;
        let status = self.child.wait()?;
        let cpu = children_time()?.saturating_sub(before);
        let log: Vec<String> = self.lines.try_iter().collect();
        ensure!(status.success(), "the daemon ended with {status}:\n{}", log.join("\n"));
        let path = self.folder.join("summary.json");
        let file = File::open(&path).with_context(|| format!("opening {}", path.display()))?;
        let summary: Summary =
            serde_json::from_reader(BufReader::new(file)).context("reading the summary")?;
        ensure!(summary.end == EndState::Complete, "the run did not end well: {:?}", summary.faults);
        Ok((summary, cpu))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the processor time of all children that have ended, in steps of 10 ms (proc_pid_stat(5), `cutime` and `cstime`).
fn children_time() -> Result<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").context("reading /proc/self/stat")?;
    // The name of the program, in parentheses, may have spaces. The state is the field after it, number 3.
    let (_, fields) = stat.rsplit_once(')').context("/proc/self/stat has no name")?;
    let ticks: u64 =
        fields.split_whitespace().skip(16 - 3).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64))
}
