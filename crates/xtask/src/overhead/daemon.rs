//! One run of the daemon.

#![expect(clippy::disallowed_methods, reason = "it waits for a real process")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use orinoco_api::{EndState, Summary};
use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::statistics::Sample;

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

/// Progress of a daemon.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// Frames of which the results are written.
    frames: usize,
    /// Time in its turns.
    wall: Duration,
    /// Processor time of all its threads, in steps of 10 ms.
    cpu: Duration,
}

impl Progress {
    pub(super) fn since(self, earlier: Self) -> Self {
        let (wall, cpu) = (self.wall - earlier.wall, self.cpu - earlier.cpu);
        Self { frames: self.frames - earlier.frames, wall, cpu }
    }

    /// Returns the times of one frame.
    pub(super) fn frame(self) -> Result<Sample> {
        ensure!(self.frames > 0, "no frame came through in {:.1?}", self.wall);
        let of = |time: Duration| time.as_secs_f64() * 1e6 / self.frames as f64;
        Ok(Sample { wall_us: of(self.wall), cpu_us: of(self.cpu) })
    }
}

/// Running daemon. It is killed when this is dropped.
pub(super) struct Daemon {
    child: Child,
    folder: PathBuf,
    lines: Receiver<String>,
    has_control: bool,
    /// Time in all its turns.
    wall: Duration,
}

impl Daemon {
    pub(super) fn start(program: &Path, folder: &Path, sysroot: &Path, board: &str) -> Result<Self> {
        // Results of another run would move those of this one to another name.
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let path = folder.join("board.toml");
        fs::write(&path, board).with_context(|| format!("writing {}", path.display()))?;
        // A stopped daemon would outlive this process if that is interrupted.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program);
        command.arg("--board").arg(&path).arg("--sysroot").arg(sysroot);
        command.arg("--summary").arg(folder.join("summary.json"));
        command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
        let log = BufReader::new(child.stderr.take().expect("it is piped"));
        let (sender, lines) = channel();
        thread::spawn(move || log.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let has_control = !board.contains("socket = false");
        Ok(Self { child, folder: folder.to_owned(), lines, has_control, wall: Duration::ZERO })
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

    /// Waits until the thread of the only lane has started, and returns it.
    pub(super) fn lane(&self) -> Result<Pid> {
        let start = Instant::now();
        while start.elapsed() < LINE_WAIT {
            let is_lane = |(_, name): &(Pid, String)| name == "lane-0";
            if let Some((lane, _)) = self.threads()?.into_iter().find(is_lane) {
                return Ok(lane);
            }
            thread::sleep(Duration::from_millis(10));
        }
        bail!("the daemon has no thread lane-0; its log:\n{}", self.log())
    }

    /// Returns the threads of the daemon with their names.
    fn threads(&self) -> Result<Vec<(Pid, String)>> {
        let folder = format!("/proc/{}/task", self.pid().as_raw_nonzero());
        let mut threads = Vec::new();
        for thread in fs::read_dir(&folder).with_context(|| format!("reading {folder}"))? {
            let thread = thread?;
            let id = thread.file_name().to_str().and_then(|id| id.parse().ok()).and_then(Pid::from_raw);
            // One that has ended since has no name.
            let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
            threads.push((id.context("a thread's folder is its number")?, name.trim_end().to_owned()));
        }
        Ok(threads)
    }

    /// Binds the lane of a stopped daemon to one of these cores, and its other threads to the others, if there are any.
    ///
    /// Where threads may execute anywhere, the kernel wakes some of them on the lane's core each time that the daemon goes on. In a run
    /// without stops it keeps them apart.
    fn bind(&self, lane: Pid, core: usize, cores: &[usize]) -> Result<()> {
        let [mut of_lane, mut of_others] = [CpuSet::new(), CpuSet::new()];
        of_lane.set(core);
        let others = cores.iter().filter(|other| **other != core || cores.len() == 1);
        others.for_each(|other| of_others.set(*other));
        for (thread, name) in self.threads()? {
            let set = if thread == lane { &of_lane } else { &of_others };
            sched_setaffinity(Some(thread), set).with_context(|| format!("binding the thread {name}"))?;
        }
        Ok(())
    }

    /// Stops all threads of the daemon, and waits until they are stopped.
    pub(super) fn stop(&mut self) -> Result<()> {
        let pid = self.pid();
        kill_process(pid, Signal::STOP)?;
        let status = waitpid(Some(pid), WaitOptions::UNTRACED)?.map(|(_, status)| status);
        ensure!(status.is_some_and(|status| status.stopped()), "the daemon has ended: {}", self.log());
        Ok(())
    }

    /// Lets a stopped daemon execute for this time, its lane on one of these cores and its other threads on the others, and stops it
    /// again.
    pub(super) fn execute_for(
        &mut self,
        time: Duration,
        lane: Pid,
        core: usize,
        cores: &[usize],
    ) -> Result<()> {
        self.bind(lane, core, cores)?;
        let begin = Instant::now();
        kill_process(self.pid(), Signal::CONT)?;
        thread::sleep(time);
        self.stop()?;
        self.wall += begin.elapsed();
        Ok(())
    }

    /// Returns the progress of a stopped daemon with one stream.
    pub(super) fn progress(&self) -> Result<Progress> {
        let path = self.folder.join("s0.jsonl");
        let results = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let frames = results.iter().filter(|byte| **byte == b'\n').count();
        Ok(Progress { frames, wall: self.wall, cpu: processor_time(self.pid())? })
    }

    /// Ends a stopped daemon, and returns its summary.
    pub(super) fn end(self) -> Result<Summary> {
        kill_process(self.pid(), Signal::TERM)?;
        kill_process(self.pid(), Signal::CONT)?;
        self.summary(EndState::Interrupted)
    }

    /// Waits until all streams have ended, and returns the summary.
    pub(super) fn wait(self) -> Result<Summary> {
        self.summary(EndState::Complete)
    }

    fn summary(mut self, end: EndState) -> Result<Summary> {
        let status = self.child.wait()?;
        ensure!(status.success(), "the daemon ended with {status}:\n{}", self.log());
        let path = self.folder.join("summary.json");
        let file = File::open(&path).with_context(|| format!("opening {}", path.display()))?;
        let summary: Summary =
            serde_json::from_reader(BufReader::new(file)).context("reading the summary")?;
        ensure!(summary.end == end, "the run ended as {:?}: {:?}", summary.end, summary.faults);
        Ok(summary)
    }

    fn log(&self) -> String {
        self.lines.try_iter().collect::<Vec<_>>().join("\n")
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the processor time of a process, in steps of 10 ms (proc_pid_stat(5), `utime` and `stime`).
fn processor_time(pid: Pid) -> Result<Duration> {
    let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
    let stat = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    // The name of the program, in parentheses, may have spaces. The state is the field after it, number 3.
    let (_, fields) = stat.rsplit_once(')').with_context(|| format!("{path} has no name"))?;
    let ticks: u64 =
        fields.split_whitespace().skip(14 - 3).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64))
}
