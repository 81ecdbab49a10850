//! Recordings play after any kind of end: a kill, a signal, a full disk.
//!
//! By default the test tries a few moments; `ORINOCO_TEST_LONG=1` tries a hundred. `--nocapture` shows the result of
//! each.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
#![allow(clippy::print_stdout, reason = "tests say what they skip and what they measured")]

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use orinoco_api::{EndState, Summary};
use orinoco_tests::{Random, binary, root, signal};

/// Maximum loss at the end of a recording, in seconds.
const LOST_MAX: f64 = 2.0;
/// Number of recordings that run at the same time.
const AT_ONCE: usize = 6;
/// Maximum time for a run to start, and to end.
const START_MAX: Duration = Duration::from_secs(60);
const END_MAX: Duration = Duration::from_secs(60);
/// Delay from the arrival of a frame to its line in the file of checksums, in seconds: a flush, and the next frame.
const LINE_LATE: f64 = 0.4;
const FRAMES_IN_WORK: f64 = 2.0;

/// Event that ends a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Kill,
    Terminate,
    Hangup,
    /// Size limit of the file, in KiB.
    SizeLimit(usize),
    /// Full disk: its size in KiB.
    FullDisk(usize),
}

/// Recording, with the event that ends it and the time of the event.
#[derive(Clone, Copy, Debug)]
struct Moment {
    end: End,
    sink: &'static str,
    frames_a_second: u32,
    after: Duration,
}

impl Moment {
    fn any(random: &mut Random, number: usize) -> Self {
        let end = match number % 5 {
            0 | 1 => End::Kill,
            2 => End::Terminate,
            3 => End::Hangup,
            _ if random.below(2) == 0 => End::SizeLimit(6 + random.below(14)),
            _ => End::FullDisk(12 + random.below(10)),
        };
        let frames_a_second = [1, 2, 5, 10, 25, 30][random.below(6)];
        let sink = if random.below(4) == 0 { "mp4-h265" } else { "mp4" };
        Self { end, sink, frames_a_second, after: Duration::from_millis(2500 + random.below(5000) as u64) }
    }

    /// Returns the number of frames if no signal ends the run: more than a disk of that size can store.
    fn frames(&self) -> Option<u32> {
        matches!(self.end, End::SizeLimit(_) | End::FullDisk(_)).then_some(self.frames_a_second * 12)
    }

    fn command(&self, video: &Path, sums: &Path, summary: &Path) -> Command {
        let rate = self.frames_a_second;
        // Large frames fill a disk sooner.
        let (size, frames) = match self.frames() {
            None => ("width=320&height=240", String::new()),
            Some(frames) => ("width=1280&height=720", format!("&frames={frames}")),
        };
        let mut command = match self.end {
            End::SizeLimit(kib) => {
                let mut shell = Command::new("bash");
                shell.args(["-c", &format!("ulimit -f {kib}; exec \"$0\" \"$@\"")]).arg(binary("orinoco"));
                shell
            }
            _ => Command::new(binary("orinoco")),
        };
        command
            .args([
                "run",
                "--source",
                &format!("test://ball?{size}&fps={rate}&pace=pts{frames}"),
                "--summary",
            ])
            .arg(summary)
            .args(["--sink", &format!("{}={}", self.sink, video.display())]);
        if self.frames().is_none() {
            command.args(["--sink", &format!("framemd5={}", sums.display())]);
        }
        command.current_dir(root()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// Small disk (tmpfs), which is unmounted when this is dropped.
struct Disk(PathBuf);

impl Disk {
    fn mount(folder: PathBuf, kib: usize) -> Option<Self> {
        fs::create_dir(&folder).expect("made");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={kib}k"), "tmpfs"]).arg(&folder);
        let done = mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        done.then_some(Self(folder))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Returns the time of the last line in a file of checksums, in seconds.
fn last_line(sums: &Path) -> Option<f64> {
    let text = fs::read_to_string(sums).ok()?;
    let line = text.lines().rfind(|line| line.starts_with("0, "))?;
    Some(line.split(", ").nth(2)?.parse::<f64>().ok()? / 1e9)
}

/// Returns the duration that FFmpeg decodes without an error message, in seconds, up to the end of the last frame.
fn played(video: &Path, frames_a_second: u32) -> f64 {
    let output =
        Command::new("ffmpeg").args(["-v", "error", "-i"]).arg(video).args(["-f", "null", "-"]).output();
    check_silent(&output.expect("it is installed"), video);
    let show = ["-v", "error", "-of", "csv=p=0", "-show_entries", "frame=pts_time"];
    let output = Command::new("ffprobe").args(show).arg(video).output().expect("it is installed");
    check_silent(&output, video);
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().map(|line| line.trim_matches(',')).filter(|line| !line.is_empty());
    let times: Vec<f64> = lines.map(|line| line.parse().expect("a time")).collect();
    for (number, time) in times.iter().enumerate() {
        let wanted = number as f64 / f64::from(frames_a_second);
        assert!((time - wanted).abs() < 1e-4, "{}: frame {number} at {time}", video.display());
    }
    times.len() as f64 / f64::from(frames_a_second)
}

fn check_silent(output: &Output, video: &Path) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{}: {said}", video.display());
}

/// Waits until the first frame is recorded. Returns the latest possible start of the source.
fn wait_for_frames(sums: &Path) -> Instant {
    let begin = Instant::now();
    while begin.elapsed() < START_MAX {
        if let Some(seconds) = last_line(sums) {
            return Instant::now() - Duration::from_secs_f64(seconds);
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("nothing is recorded");
}

fn wait(child: &mut Child) -> std::process::ExitStatus {
    let begin = Instant::now();
    while begin.elapsed() < END_MAX {
        if let Some(status) = child.try_wait().expect("waits") {
            return status;
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.kill().expect("killed");
    panic!("it does not end");
}

/// Records until the event. Returns the seconds of video that the sink received, and the seconds that play; `None` if
/// this machine does not support the test.
fn check(moment: Moment, folder: &Path) -> Option<(f64, f64)> {
    fs::create_dir(folder).expect("made");
    let disk = match moment.end {
        End::FullDisk(kib) => Some(Disk::mount(folder.join("disk"), kib)?),
        _ => None,
    };
    let video = disk.as_ref().map_or(folder, |disk| &disk.0).join("x.mp4");
    let (sums, summary) = (folder.join("sums"), folder.join("summary.json"));
    let mut child = moment.command(&video, &sums, &summary).spawn().expect("starts");
    let rate = moment.frames_a_second;
    let taken = if moment.frames().is_some() {
        let status = wait(&mut child);
        let summary: Summary =
            serde_json::from_slice(&fs::read(&summary).expect("written")).expect("a summary");
        assert_eq!(
            (status.code(), summary.end),
            (Some(3), EndState::Failed),
            "{moment:?}: {:?}",
            summary.faults
        );
        assert_eq!(summary.incomplete, [video.display().to_string()], "{moment:?}");
        assert!(summary.files.is_empty(), "{moment:?}");
        let stream = &summary.streams[0];
        let dropped: u64 = stream.dropped.iter().map(|dropped| dropped.frames).sum();
        assert_eq!(stream.frames_in, stream.frames_out + dropped, "{moment:?}");
        assert!(
            stream.dropped.iter().any(|dropped| dropped.cause == "sink-failed"),
            "{moment:?}: it was no limit"
        );
        stream.frames_out as f64 / f64::from(rate)
    } else {
        let began = wait_for_frames(&sums);
        thread::sleep(moment.after.saturating_sub(began.elapsed()));
        let name = match moment.end {
            End::Kill => "KILL",
            End::Terminate => "TERM",
            _ => "HUP",
        };
        let ran = began.elapsed().as_secs_f64();
        signal(&child, name);
        let status = wait(&mut child);
        let ended = if moment.end == End::Kill { (None, Some(9)) } else { (Some(130), None) };
        assert_eq!((status.code(), status.signal()), ended, "{moment:?}");
        // The received duration follows from the clock, but a machine that is behind has received less, as the
        // checksums show.
        let lines = last_line(&sums).expect("there was one") + LINE_LATE + FRAMES_IN_WORK / f64::from(rate);
        ran.min(lines)
    };
    let played = match video.metadata().map_or(0, |there| there.len()) {
        0 => 0.0,
        _ => played(&video, rate),
    };
    assert!(played + LOST_MAX >= taken, "{moment:?}: {played:.2} s of {taken:.2} s play");
    Some((taken, played))
}

#[test]
fn a_recording_plays_but_for_its_last_two_seconds_whatever_ends_it() {
    let installed = |name: &str| Command::new(name).arg("-version").stdout(Stdio::null()).status().is_ok();
    if !installed("ffprobe") || !installed("ffmpeg") {
        println!("skipped: no FFmpeg here");
        return;
    }
    let (seed, count) = match std::env::var_os("ORINOCO_TEST_LONG") {
        Some(_) => (u64::from(std::process::id()), 100),
        None => (0u64, 5),
    };
    let seed = std::env::var("ORINOCO_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(seed);
    println!("ORINOCO_TEST_SEED={seed}");
    let mut random = Random(seed | 1 << 40);
    let moments: Vec<Moment> = (0..count).map(|number| Moment::any(&mut random, number)).collect();
    let folder = tempfile::tempdir().expect("temporary folder");
    let next = AtomicUsize::new(0);
    let lost: Vec<f64> = thread::scope(|scope| {
        let work = || {
            let mut lost = Vec::new();
            while let Some((number, moment)) = next_of(&next, &moments) {
                match check(*moment, &folder.path().join(number.to_string())) {
                    Some((taken, played)) => {
                        println!("{moment:?}: {played:.2} s of {taken:.2} s");
                        lost.push((taken - played).max(0.0));
                    }
                    None => println!("skipped: {moment:?}: a disk cannot be mounted here"),
                }
            }
            lost
        };
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("every moment holds")).collect()
    });
    let most = lost.iter().copied().fold(0.0, f64::max);
    println!("{} moments, at most {most:.2} s lost", lost.len());
    assert!(lost.len() * 2 > count, "most of them could be made here");
}

fn next_of<'m>(next: &AtomicUsize, moments: &'m [Moment]) -> Option<(usize, &'m Moment)> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    Some((number, moments.get(number)?))
}
