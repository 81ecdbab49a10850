//! The cross-compiled binaries on emulated boards, with cameras of the kernel's test driver vivid. The tests are
//! ignored by default: `make test` runs the test called `smoke`, `make test-boards` all of them. `ORINOCO_TEST_LONG=1`
//! makes some longer.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
#![allow(clippy::print_stdout, reason = "tests say what they skip and what they measured")]

mod cascade;
mod governor;
mod group;
mod hosts;
mod pcie;
mod privileges;
mod rdma;
mod shm;

use std::fs;
use std::io::{BufRead, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use md5::{Digest, Md5};
use orinoco_api::{EndState, StreamSummary, Summary};
use orinoco_rig::{
    Board, Boards, Flavour, Input, Options, Rail, Reading, Rig, StallWatch, Unavailable, VividOptions,
};
use orinoco_tests::{Agreement, Random, agree, cross_binary, orinoco, results, root};
use serde_json::Value;
use tempfile::TempDir;

/// Maximum duration of a program on a board.
const RUN_MAX: Duration = Duration::from_secs(600);
/// Maximum time in which a source must detect its loss.
const OFFLINE_MAX: Duration = Duration::from_secs(1);
/// Maximum time in which a source must deliver frames again.
const BACK_MAX: Duration = Duration::from_secs(2);

/// Boots a board with `orinoco` or `orinocod` in `/tmp`; `None`, with a printed line, if this machine does not support
/// boards.
fn stage(flavour: Flavour, options: &Options, program: &str) -> Option<Boards> {
    stage_all(flavour, options, 1, &[program])
}

/// Boots so many boards with these programs in `/tmp`; `None`, with a printed line, if this machine does not support boards.
fn stage_all(flavour: Flavour, options: &Options, count: u8, programs: &[&str]) -> Option<Boards> {
    let locals = programs.iter().map(|program| cross_binary(program)).collect::<Option<Vec<_>>>()?;
    let boards = match Rig::build(flavour).and_then(|rig| rig.up(count, options)) {
        Err(error) if error.is::<Unavailable>() => {
            println!("skipped: {error:#}");
            return None;
        }
        boards => boards.unwrap_or_else(|error| panic!("{error:#}")),
    };
    for (board, local) in boards.iter().flat_map(|board| locals.iter().map(move |local| (board, local))) {
        let name = local.file_name().expect("a file").to_str().expect("text");
        put(board, local, &format!("/tmp/{name}"));
    }
    Some(boards)
}

/// Copies the demo model to `/tmp/person-nano`.
fn put_model(board: &Board) {
    run(board, "mkdir -p /tmp/person-nano/1");
    for name in ["model.toml", "1/model.onnx"] {
        put(board, &root().join("models/person-nano").join(name), &format!("/tmp/person-nano/{name}"));
    }
}

/// Boots one board of the fast flavour, with normal priority.
fn one_board(program: &str) -> Option<Boards> {
    stage(Flavour::Dropbear, &Options::default(), program)
}

/// Boots one board that precedes others when cores are scarce.
fn hurried_board(program: &str) -> Option<Boards> {
    stage(Flavour::Dropbear, &Options { hurried: true, ..Options::default() }, program)
}

fn put(board: &Board, local: &Path, remote: &str) {
    board.put(local, remote).unwrap_or_else(|error| panic!("{error:#}"));
}

fn put_text(board: &Board, text: &str, remote: &str) {
    let dir = tempfile::tempdir().expect("temporary folder");
    let local = dir.path().join("text");
    fs::write(&local, text).expect("written");
    put(board, &local, remote);
}

/// Executes a command on a board, which must succeed, and returns its output.
fn run(board: &Board, command: &str) -> String {
    board.run(command).unwrap_or_else(|error| panic!("{error:#}"))
}

/// Executes `orinoco` on a board. It must succeed.
fn orinoco_on(board: &Board, arguments: &str) -> Output {
    let output = board.ssh_within(&format!("/tmp/orinoco {arguments}"), RUN_MAX).expect("it ends");
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Returns the summary, which is one of several lines of JSON.
fn summary(output: &Output) -> Summary {
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.lines().find_map(|line| serde_json::from_str(line).ok());
    found.unwrap_or_else(|| panic!("no summary in:\n{text}"))
}

fn lost(stream: &StreamSummary) -> u64 {
    stream.dropped.iter().map(|dropped| dropped.frames).sum()
}

/// Whether the tests should run for longer (`ORINOCO_TEST_LONG`).
fn long() -> bool {
    std::env::var_os("ORINOCO_TEST_LONG").is_some()
}

// --- a camera ----------------------------------------------------------------------------------------------------------

/// Captures from a webcam: 640x360 in NV12 at 30 frames/s.
fn capture(board: &Board, frames: u64) -> StreamSummary {
    board.camera(VividOptions::default()).expect("a camera");
    // By default, vivid stamps a frame with the time of its end before that time comes. This control sets the time of
    // its start.
    let source = "v4l2:///dev/video0?format=NV12&width=640&height=360&fps=30&control.timestamp_source=1";
    let output = orinoco_on(board, &format!("run --source '{source}' --frames {frames} --json"));
    let stream = summary(&output).streams.remove(0);
    let capture = stream.stages.iter().find(|stage| stage.stage == "capture").expect("vivid stamps frames");
    println!(
        "{} of {} frames, {:.2} a second, dropped {:?}; time stamp to slot p50 {:.2} ms, p99 {:.2} ms",
        stream.frames_out,
        stream.frames_in,
        stream.fps,
        stream.dropped,
        capture.p50_us / 1e3,
        capture.p99_us / 1e3
    );
    assert_eq!(stream.frames_in, stream.frames_out + lost(&stream), "every frame is accounted for");
    assert!(stream.frames_in >= frames);
    stream
}

#[test]
#[ignore = "boots an emulated board; `make test` runs it"]
fn smoke() {
    let Some(boards) = hurried_board("orinoco") else { return };
    let cameras = capture_list(&boards[0]);
    assert!(cameras.contains("NV12    640x360"), "{cameras}");
    let stream = capture(&boards[0], 90);
    assert!(stream.fps > 15.0, "half the rate even on a busy machine: {}", stream.fps);
}

fn capture_list(board: &Board) -> String {
    board.camera(VividOptions::default()).expect("a camera");
    String::from_utf8_lossy(&orinoco_on(board, "cameras").stdout).into_owned()
}

/// Maximum number of attempts at a measurement, which stalls of this machine's cores can disturb.
const ATTEMPTS: usize = 3;
/// Interval between frames.
const INTERVAL: Duration = Duration::from_millis(33);

/// Repeats a measurement, with any result, if a core of this machine stood still for half a frame or longer during it.
/// The emulated camera uses a clock that goes on during a stall, and counts a frame as lost when it wakes half a frame
/// late (it rounds to whole frames: vivid-kthread-cap.c).
fn undisturbed(measure: impl Fn() -> StreamSummary) -> StreamSummary {
    let mut attempt = 1;
    loop {
        let watch = StallWatch::start().expect("threads start");
        let stream = measure();
        let stall = watch.longest().expect("they end");
        println!("attempt {attempt}: this machine's cores stood still for at most {stall:.1?}");
        if stall < INTERVAL / 2 || attempt == ATTEMPTS {
            return stream;
        }
        attempt += 1;
    }
}

#[test]
#[ignore = "boots an emulated board; `make test-boards` runs it"]
fn a_camera_keeps_its_rate() {
    let Some(boards) = hurried_board("orinoco") else { return };
    boards.alone().expect("the others end");
    let frames = if long() { 9000 } else { 300 };
    let stream = undisturbed(|| capture(&boards[0], frames));
    let p99 = stream.stages.iter().find(|stage| stage.stage == "capture").expect("stamped").p99_us;
    assert!(stream.fps >= 29.0, "{} frames per second", stream.fps);
    assert_eq!(lost(&stream), 0, "{:?}", stream.dropped);
    assert!(p99 < 20_000.0, "time stamp to slot {p99} us");
}

// --- exact frames ------------------------------------------------------------------------------------------------------

/// Size and rate of the HDMI signal. This rate is enough work for an emulated core, and a lower rate has no timings.
const SIGNAL: (usize, usize) = (640, 480);
const FRAMES_A_SECOND: usize = 40;
/// Number of different frames, which are sent in a loop.
const SENT: usize = 8;
/// Maximum number of frames that wait in the output.
const QUEUED: usize = 4;

/// Sends known frames to the output that feeds a camera, until the board ends.
fn send(board: &Board, multiplanar: bool, format: &str, frames: &[u8]) {
    // A camera cannot be removed as long as frames are sent to it.
    run(board, "kill $(pidof v4l2-ctl) 2>/dev/null; while pidof v4l2-ctl >/dev/null; do sleep 0.1; done");
    let devices = board.camera(VividOptions { input: Input::Loop, multiplanar, ..VividOptions::default() });
    assert_eq!(devices.expect("a camera and an output"), ["/dev/video0", "/dev/video1"]);
    let dir = tempfile::tempdir().expect("temporary folder");
    let local = dir.path().join("frames");
    fs::write(&local, frames).expect("written");
    put(board, &local, "/tmp/frames");
    let (width, height) = SIGNAL;
    run(
        board,
        &format!(
            "for d in 0 1; do v4l2-ctl -d $d --set-dv-bt-timings cvt,width={width},height={height},fps={FRAMES_A_SECOND}; done; \
             v4l2-ctl -d 1 --set-fmt-video-out=width={width},height={height},pixelformat={format}; \
             v4l2-ctl -d 0 --set-ctrl loop_video=1,osd_text_mode=2; \
             v4l2-ctl -d 1 --stream-out-mmap=4 --stream-from=/tmp/frames --stream-loop >/dev/null 2>&1 </dev/null & \
             sleep 1"
        ),
    );
}

/// Returns the size of one packed frame of `format`, in bytes.
fn image_bytes(format: &str) -> usize {
    let pixels = SIGNAL.0 * SIGNAL.1;
    match format {
        "NV12" | "NM12" => pixels * 3 / 2,
        "YUYV" => pixels * 2,
        "RGB3" => pixels * 3,
        _ => panic!("{format}"),
    }
}

fn check_exact(board: &Board, multiplanar: bool, format: &str) {
    let bytes = image_bytes(format);
    let mut random = Random(11);
    let frames: Vec<u8> = (0..SENT * bytes).map(|_| 16 + random.below(220) as u8).collect();
    let sent: Vec<String> = frames
        .chunks(bytes)
        .map(|frame| Md5::digest(frame).iter().map(|b| format!("{b:02x}")).collect())
        .collect();
    send(board, multiplanar, format, &frames);

    let (width, height) = SIGNAL;
    let source = format!("v4l2:///dev/video0?format={format}&width={width}&height={height}");
    // `--frames` counts the frames that the camera made; if other boards run, some of them are lost.
    let output = orinoco_on(board, &format!("run --source '{source}' --frames 80 --sink framemd5"));
    let text = String::from_utf8_lossy(&output.stdout);
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(", ").map(str::trim).collect())
        .collect();
    assert!(rows.len() >= 30, "{text}");
    let mut seen = Vec::new();
    for row in &rows {
        let index = sent.iter().position(|md5| md5 == row[5]);
        seen.push(index.unwrap_or_else(|| panic!("a frame that was never sent: {row:?}")));
    }
    let pts: Vec<u64> = rows.iter().map(|row| row[2].parse().expect("a PTS")).collect();
    assert!(pts.is_sorted_by(|a, b| a < b), "PTS go back");
    // The output may repeat or skip frames, but it cannot skip more than passed in the meantime, and never goes back.
    for (pair, times) in seen.windows(2).zip(pts.windows(2)) {
        let step = (pair[1] + SENT - pair[0]) % SENT;
        let passed = (times[1] - times[0]) as usize * FRAMES_A_SECOND / 1_000_000_000;
        assert!(step <= passed + QUEUED, "out of order: {seen:?} at {pts:?}");
    }
    let different = sent.iter().filter(|md5| rows.iter().any(|row| row[5] == *md5)).count();
    println!("{format}: {} frames exact, {different} different ones", rows.len());
    assert!(different > 1, "the image stands still");
}

#[test]
#[ignore = "boots an emulated board; `make test-boards` runs it"]
fn frames_are_exact() {
    let Some(boards) = one_board("orinoco") else { return };
    for (multiplanar, format) in [(false, "NV12"), (false, "YUYV"), (true, "NM12"), (true, "YUYV")] {
        check_exact(&boards[0], multiplanar, format);
    }
}

// --- detections --------------------------------------------------------------------------------------------------------

#[test]
#[ignore = "boots an emulated board; `make test-boards` runs it"]
fn a_detector_sees_what_the_camera_shows() {
    let Some(boards) = one_board("orinoco") else { return };
    let (board, dir) = (&boards[0], tempfile::tempdir().expect("temporary folder"));
    let image = image::open(root().join("docs/demo.jpg")).expect("an image with people").to_rgb8();
    let filter = image::imageops::FilterType::Triangle;
    let image = image::imageops::resize(&image, SIGNAL.0 as u32, SIGNAL.1 as u32, filter);
    let local = dir.path().join("image.png");
    image.save(&local).expect("written");
    let here = orinoco(&["run", "--model", "models/person-nano", "--engine", "tract", "--json", "--source"])
        .arg(&local)
        .output()
        .expect("starts");
    let wanted = results(&here).remove(0);
    assert!(!wanted.detections.is_empty(), "nobody in the image");

    send(board, false, "RGB3", &image.into_raw().repeat(2));
    put_model(board);
    let (width, height) = SIGNAL;
    let source = format!("v4l2:///dev/video0?format=RGB3&width={width}&height={height}");
    let arguments =
        format!("run --model /tmp/person-nano --engine tract --source '{source}' --frames 2 --json");
    let output = orinoco_on(board, &arguments);
    let found = results(&output);
    let summary = summary(&output);
    assert_eq!((summary.end, summary.models[0].engine.as_str()), (EndState::Complete, "tract"));
    let how = Agreement { iou_min: 0.97, score_max: 0.02, threshold: 0.4 };
    for line in &found {
        agree(&line.detections, &wanted.detections, how).unwrap_or_else(|why| panic!("{why}"));
    }
    let stream = &summary.streams[0];
    println!(
        "{} people in each of {} frames; {} frames dropped",
        wanted.detections.len(),
        found.len(),
        lost(stream)
    );
    assert!(!found.is_empty());
}

// --- memory ------------------------------------------------------------------------------------------------------------

/// Returns a board file with a budget, for the demo model on an engine that is linked in.
fn budget_board(budget: &str) -> String {
    format!(
        "version = 1\n[memory]\nbudget = '{budget}'\n[inference]\nengines = ['tract']\n\
         [[model]]\nname = 'm'\nmodel = '/tmp/person-nano'\n\
         [[stream]]\nname = 's'\nsource = 'test://ball?width=320&height=240&frames=2'\nmodels = ['m']\n"
    )
}

/// Measures a model and runs within the plan, on a board with this much memory, in two of the kernel's overcommit
/// modes.
fn check_budget(memory_mib: u32) {
    let options = Options { memory_mib, ..Options::default() };
    let Some(boards) = stage(Flavour::Dropbear, &options, "orinoco") else { return };
    let board = &boards[0];
    put_model(board);
    put_text(board, &budget_board("200 MiB"), "/tmp/fits.toml");
    put_text(board, &budget_board("1 MiB"), "/tmp/small.toml");
    // Mode 0 estimates how much memory can be granted, and refuses only requests far beyond it. Mode 2 grants no more
    // than there is.
    for overcommit in [0, 2] {
        run(board, &format!("echo {overcommit} >/proc/sys/vm/overcommit_memory"));
        // Each mode has a cache of its own, so that each measures the model again.
        let orinoco = format!("XDG_CACHE_HOME=/tmp/cache{overcommit} /tmp/orinoco");
        let on_board =
            |arguments: &str| board.ssh_within(&format!("{orinoco} {arguments}"), RUN_MAX).expect("it ends");
        let planned = on_board("memory --json --board /tmp/fits.toml");
        let said = String::from_utf8_lossy(&planned.stderr);
        assert!(planned.status.success(), "{memory_mib} MiB, overcommit {overcommit}: {said}");
        let ran = on_board("run --json --board /tmp/fits.toml");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let memory = summary(&ran).memory.planned.expect("it was planned");
        assert!(memory.total_bytes <= memory.budget_bytes, "{memory:?}");
        let refused = on_board("run --board /tmp/small.toml");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains("E0305"), "{said}");
        println!("{memory_mib} MiB, overcommit {overcommit}: planned {} bytes", memory.total_bytes);
    }
}

#[test]
#[ignore = "boots an emulated board; `make test-boards` runs it"]
fn a_budget_is_measured_on_a_board_with_1_gib() {
    check_budget(1024);
}

#[test]
#[ignore = "boots an emulated board; `make test-boards` runs it"]
fn a_budget_is_measured_on_a_board_with_2_gib() {
    check_budget(2048);
}

#[test]
#[ignore = "boots an emulated board; `make test-boards` runs it"]
fn a_budget_is_measured_on_a_board_with_4_gib() {
    check_budget(4096);
}

// --- unplugging --------------------------------------------------------------------------------------------------------

const TWO_SOURCES: &str = "version = 1
[[stream]]
name = 'camera'
source = 'v4l2:///dev/video0?format=NV12&width=640&height=360&fps=30'
models = []
[[stream]]
name = 'other'
source = 'test://ball?width=64&height=48&fps=30&pace=pts'
models = []
";

/// Line that a program on a board printed, with its time by the board's clock, because ssh adds a delay.
type Line = (Duration, String);

/// Executes a program on a board, and returns its lines as they are printed.
fn lines_of(board: &Board, command: &str) -> Receiver<Line> {
    let stamp = "while read -r line; do read -r up rest </proc/uptime; echo \"$up $line\"; done";
    let mut session = board.spawn(&format!("{command} 2>&1 | {stamp}")).expect("ssh starts");
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut line = String::new();
        while session.stdout.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            let (up, text) = line.split_once(' ').expect("it was stamped");
            if sender.send((uptime(up), text.to_owned())).is_err() {
                return;
            }
            line.clear();
        }
    });
    receiver
}

fn uptime(text: &str) -> Duration {
    Duration::from_secs_f64(text.trim().parse().expect("a number of seconds"))
}

/// Binds the camera to its driver, or unbinds it. Returns the start of that by the board's clock.
fn driver(board: &Board, verb: &str) -> Duration {
    uptime(&run(
        board,
        &format!("read -r up rest </proc/uptime; echo $up; board-driver {verb} vivid vivid.0"),
    ))
}

/// Waits for a line with all of `words`, and returns its time.
fn wait_for(lines: &Receiver<Line>, words: &[&str], limit: Duration) -> Duration {
    let end = Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let (at, line) =
            lines.recv_timeout(left).unwrap_or_else(|_| panic!("no line with {words:?} in {limit:?}"));
        if words.iter().all(|word| line.contains(word)) {
            return at;
        }
    }
}

/// Returns the daemon's open descriptors, threads, and resident memory in KiB.
fn held(board: &Board) -> [u64; 3] {
    let text = run(
        board,
        "p=$(pidof orinocod); ls /proc/$p/fd | wc -l; ls /proc/$p/task | wc -l; awk '/VmRSS/ {print $2}' /proc/$p/status",
    );
    let numbers: Vec<u64> = text.lines().map(|line| line.trim().parse().expect("a number")).collect();
    numbers.try_into().expect("three numbers")
}

#[test]
#[ignore = "boots an emulated board; `make test-boards` runs it"]
fn an_unplugged_camera_comes_back() {
    /// Maximum growth of the daemon's memory after all rounds, in KiB: the allocator may keep this much.
    const GROWTH_KIB_MAX: u64 = 1024;
    let Some(boards) = hurried_board("orinocod") else { return };
    let board = &boards[0];
    let (rounds, warm_after) = if long() { (50, 5) } else { (4, 2) };
    board.camera(VividOptions::default()).expect("a camera");
    put_text(board, TWO_SOURCES, "/tmp/board.toml");
    let lines = lines_of(board, "/tmp/orinocod --board /tmp/board.toml");
    wait_for(&lines, &["stream=camera", "state=live"], Duration::from_secs(20));

    let (mut offline_max, mut back_max, mut warm) = (Duration::ZERO, Duration::ZERO, [0; 3]);
    for round in 0..rounds {
        let pulled = driver(board, "unbind");
        let offline =
            wait_for(&lines, &["stream=camera", "state=backing-off"], RUN_MAX).saturating_sub(pulled);
        let plugged = driver(board, "bind");
        let back = wait_for(&lines, &["stream=camera", "state=live"], RUN_MAX).saturating_sub(plugged);
        (offline_max, back_max) = (offline_max.max(offline), back_max.max(back));
        // Losses that follow one another faster are not all reported.
        thread::sleep(Duration::from_secs(6));
        if round + 1 == warm_after {
            warm = held(board);
        }
    }
    let end = held(board);
    println!(
        "{rounds} times: offline within {offline_max:.2?}, back within {back_max:.2?}; [descriptors, threads, KiB] {warm:?} then {end:?}"
    );
    assert!(offline_max < OFFLINE_MAX, "offline after {offline_max:?}");
    assert!(back_max < BACK_MAX, "back after {back_max:?}");
    assert_eq!(end[..2], warm[..2], "descriptors and threads");
    assert!(end[2] <= warm[2] + GROWTH_KIB_MAX, "resident memory grew from {} to {} KiB", warm[2], end[2]);

    run(board, "kill $(pidof orinocod)");
    check_other(&lines);
}

/// Checks that the other source was not disturbed.
fn check_other(lines: &Receiver<Line>) {
    let text =
        lines.iter().find_map(|(_, line)| line.split_once("summary ").map(|(_, json)| json.to_owned()));
    let summary: Summary = serde_json::from_str(&text.expect("a summary at the end")).expect("JSON");
    let [camera, other] = &summary.streams[..] else { panic!("two streams") };
    let recovery = camera.recovery.as_ref().expect("it came back");
    println!(
        "the camera: {} times lost, back p50 {:.2} s, max {:.2} s; the other: {:.2} frames per second, dropped {:?}",
        recovery.count,
        recovery.p50_us / 1e6,
        recovery.max_us / 1e6,
        other.fps,
        other.dropped
    );
    assert_eq!((lost(other), other.reconnects), (0, 0));
    assert!((29.0..31.0).contains(&other.fps), "{} frames per second of 30", other.fps);
}

// --- as a service ------------------------------------------------------------------------------------------------------

const SERVICE_BOARD: &str = "version = 1
[[stream]]
name = 'camera'
source = 'v4l2:///dev/video0?format=NV12&width=640&height=360&fps=30'
models = []
sinks = ['frames']
[[sink]]
name = 'frames'
kind = 'framemd5'
path = 'camera.md5'
";

/// Stream that joins while the daemon runs.
const JOINING: &str = "[[stream]]
name = 'ball'
source = 'test://ball?width=64&height=48&fps=5&pace=pts'
models = []
";

/// Installs the daemon of `/tmp` with its unit, its user and its rules for devices, as docs/using.md describes it.
fn install(board: &Board) {
    for (file, folder) in [
        ("orinocod.service", "systemd/system/orinocod.service"),
        ("orinoco.sysusers.conf", "sysusers.d/orinoco.conf"),
        ("60-orinoco.rules", "udev/rules.d/60-orinoco.rules"),
    ] {
        run(board, &format!("mkdir -p $(dirname /etc/{folder})"));
        put(board, &root().join("crates/orinocod").join(file), &format!("/etc/{folder}"));
    }
    run(
        board,
        "cp /tmp/orinocod /usr/bin/ && mkdir -p /etc/orinoco && systemd-sysusers && systemctl daemon-reload",
    );
}

/// Installs the daemon, and starts it with a board file.
fn start_service(board: &Board, board_file: &str) {
    install(board);
    start(board, board_file);
}

/// Starts the installed daemon with a board file.
fn start(board: &Board, board_file: &str) {
    put_text(board, board_file, "/etc/orinoco/board.toml");
    // `systemctl start` returns when the daemon reports that it is ready.
    let command = "chmod 644 /etc/orinoco/board.toml && systemctl start orinocod && \
         systemctl show -P ActiveState,SubState orinocod && ps -o user= -p $(pidof orinocod)";
    let started = board.ssh_within(command, RUN_MAX).expect("it ends");
    let said = String::from_utf8_lossy(&started.stderr);
    assert_eq!(String::from_utf8_lossy(&started.stdout), "active\nrunning\norinoco\n", "{said}");
}

#[test]
#[ignore = "boots an emulated board; `make test-boards` runs it"]
fn the_daemon_is_a_service() {
    let Some(boards) = stage(Flavour::Systemd, &Options::default(), "orinocod") else { return };
    let board = &boards[0];
    board.camera(VividOptions::default()).expect("a camera");
    start_service(board, SERVICE_BOARD);
    let exposure = run(board, "systemd-analyze security --no-pager orinocod | tail -n 1");
    println!("systemd-analyze security: {exposure}");
    let modes = run(board, "stat -c %a /var/lib/orinoco/camera.md5");
    assert_eq!(modes, "640", "the group may read results, and nobody else");
    let socket = run(board, "stat -c '%a %U %G' /run/orinoco /run/orinoco/orinoco.sock");
    assert_eq!(socket, "750 orinoco orinoco\n660 orinoco orinoco", "the group may use the control socket");
    thread::sleep(Duration::from_secs(2));
    put_text(board, &format!("{SERVICE_BOARD}{JOINING}"), "/tmp/board.toml");
    let reload = "cp /tmp/board.toml /etc/orinoco/ && systemctl reload orinocod && sleep 2";
    let stop = "systemctl stop orinocod; journalctl -u orinocod -o cat --no-pager";
    let journal = run(board, &format!("{reload}; {stop}"));
    assert!(journal.contains("reloaded joined=ball left=- stayed=1"), "{journal}");
    let bad = "journalctl -u orinocod -o cat --no-pager -p warning; systemctl --failed --no-legend";
    assert_eq!(run(board, bad), "", "{journal}");
    let text = journal.lines().find_map(|line| line.strip_prefix("summary ")).expect("a summary");
    let summary: Summary = serde_json::from_str(text).expect("JSON");
    println!(
        "as a service: {} frames, {:.1} a second",
        summary.streams[0].frames_out, summary.streams[0].fps
    );
    assert!(summary.streams[0].frames_out > 30, "{journal}");
}

// --- threads that hang -------------------------------------------------------------------------------------------------

/// Three streams without models on a lane of their own, one of which is only there to go on, and one with a model.
const HANGING_BOARD: &str = "version = 1
lanes = 2
[inference]
engines = ['tract']
[[model]]
name = 'm'
model = '/tmp/person-nano'
[[sink]]
name = 'frames'
kind = 'framemd5'
path = '{stream}.md5'
[[stream]]
name = 'inferred'
source = 'test://ball?width=320&height=240&fps=5&pace=pts'
models = ['m']
lane = 0
drop = 'drop-oldest'
[[stream]]
name = 'source'
source = 'test://ball?width=64&height=48&fps=5&pace=pts'
models = []
lane = 1
drop = 'drop-oldest'
[[stream]]
name = 'sink'
source = 'test://ball?width=64&height=48&fps=5&pace=pts'
models = []
sinks = ['frames']
lane = 1
drop = 'drop-oldest'
[[stream]]
name = 'other'
source = 'test://ball?width=64&height=48&fps=5&pace=pts'
models = []
lane = 1
drop = 'drop-oldest'
";

/// Time without progress after which something counts as stuck is 30 s; a busy machine gets as long again.
const STUCK_MAX: Duration = Duration::from_secs(90);
/// Maximum time in which systemd restarts a daemon whose lane hangs: stuck after 30 s, a watchdog of 30 s, and what aborting and
/// loading a model take on an emulated core.
const RESTART_MAX: Duration = Duration::from_secs(300);

/// Control socket of a board's daemon, forwarded to this machine.
struct ControlTunnel {
    ssh: Child,
    folder: TempDir,
}

impl ControlTunnel {
    fn open(board: &Board) -> Self {
        Self::open_with(board, &[])
    }

    /// Opens the tunnel with further options of ssh.
    fn open_with(board: &Board, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("temporary folder");
        let forward = format!("{}:/run/orinoco/orinoco.sock", folder.path().join("sock").display());
        let mut ssh = board.ssh_command();
        let ssh = ssh.args(options).args(["-N", "-L", &forward]).stdin(Stdio::null()).spawn();
        Self { ssh: ssh.expect("ssh starts"), folder }
    }

    /// Requests a path, and returns the body of the answer; `None` if nobody answers.
    fn get(&self, path: &str) -> Option<Value> {
        serde_json::from_str(&self.text(path)?).ok()
    }

    /// Requests a path, and returns the body of the answer as it is; `None` if nobody answers.
    fn text(&self, path: &str) -> Option<String> {
        let mut stream = UnixStream::connect(self.folder.path().join("sock")).ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
    }
}

impl Drop for ControlTunnel {
    fn drop(&mut self) {
        let _ = self.ssh.kill();
        let _ = self.ssh.wait();
    }
}

/// Waits until `value` returns one.
fn eventually<T>(what: &str, limit: Duration, mut value: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = value() {
            return value;
        }
        assert!(Instant::now() < end, "{what}: not within {limit:?}");
        thread::sleep(Duration::from_secs(1));
    }
}

/// Freezes or thaws threads of the daemon, by the freezer of a threaded control group. Nothing is left of it when the daemon
/// has ended: a frozen thread can be killed.
fn set_frozen(board: &Board, threads: &[&str], is_frozen: bool) {
    let names = threads.join(" ");
    let state = u8::from(is_frozen);
    run(
        board,
        &format!(
            "group=/sys/fs/cgroup$(systemctl show -P ControlGroup orinocod)/frozen; mkdir -p $group; \
             grep -q '^threaded$' $group/cgroup.type || echo threaded >$group/cgroup.type; \
             for name in {names}; do for task in /proc/$(pidof orinocod)/task/*; do \
             [ \"$(cat $task/comm)\" != $name ] || echo ${{task##*/}} >$group/cgroup.threads; done; done; \
             echo {state} >$group/cgroup.freeze; [ $(wc -l <$group/cgroup.threads) -ge {} ]",
            threads.len()
        ),
    );
}

/// Returns the stuck parts of a dump, as `stream a in sink`.
fn stuck_parts(dump: &Value) -> Vec<String> {
    let parts = dump["stuck"].as_array().expect("a list").iter();
    let text = |part: &Value, key: &str| part[key].as_str().expect("a string").to_owned();
    let mut parts: Vec<String> =
        parts.map(|part| format!("{} in {}", text(part, "part"), text(part, "stage"))).collect();
    parts.sort();
    parts
}

/// Returns the frames of a stream that are done; 0 while the board starts, whose status has no streams.
fn frames_out(status: &Value, stream: &str) -> u64 {
    let mut streams = status["streams"].as_array().into_iter().flatten();
    let found = streams.find(|found| found["name"] == stream);
    found.map_or(0, |found| found["frames_out"].as_u64().expect("a number"))
}

#[test]
#[ignore = "boots an emulated board; `make test-boards` runs it"]
fn what_hangs_is_named_and_a_lane_that_hangs_is_restarted() {
    let options = Options { memory_mib: 768, ..Options::default() };
    let Some(boards) = stage(Flavour::Systemd, &options, "orinocod") else { return };
    let board = &boards[0];
    put_model(board);
    start_service(board, HANGING_BOARD);
    let tunnel = ControlTunnel::open(board);
    let status = || tunnel.get("/v1/status");
    eventually("frames of all streams", RUN_MAX, || {
        status().filter(|status| {
            ["inferred", "source", "sink", "other"].iter().all(|stream| frames_out(status, stream) > 0)
        })
    });

    // A source and a sink: their own streams only.
    set_frozen(board, &["src-source", "sink-sink"], true);
    let expected = ["stream sink in sink", "stream source in capture"];
    let dump = eventually("a dump that names both", STUCK_MAX, || {
        tunnel.get("/v1/dump").filter(|dump| stuck_parts(dump) == expected)
    });
    let before = &dump["status"];
    // An inference takes seconds on an emulated core.
    let later = eventually("frames of the other streams", STUCK_MAX, || {
        let goes_on = |status: &Value, stream| frames_out(status, stream) > frames_out(before, stream);
        status().filter(|status| ["inferred", "other"].iter().all(|stream| goes_on(status, stream)))
    });
    for stream in ["source", "sink"] {
        assert_eq!(frames_out(&later, stream), frames_out(before, stream), "{stream} hangs");
    }
    assert_eq!(later["healthy"], true, "lanes make progress");
    assert_eq!(run(board, "systemctl show -P NRestarts orinocod"), "0", "the watchdog is fed");
    set_frozen(board, &["src-source", "sink-sink"], false);

    let stage = freeze_lane(board, &tunnel);
    let frozen = Instant::now();
    eventually("a restart by systemd", RESTART_MAX, || {
        let restarts = board.ssh("systemctl show -P NRestarts orinocod").ok()?;
        String::from_utf8_lossy(&restarts.stdout).starts_with('1').then_some(())
    });
    println!("a lane that hangs in {stage}: restarted after {:.0?}", frozen.elapsed());
    let journal = run(board, "journalctl -u orinocod -o cat --no-pager");
    assert!(journal.contains("watchdog=starving a lane makes no progress"), "{journal}");
    assert!(journal.contains(&format!("stuck.json stuck: lane 0 in {stage}")), "{journal}");
    let dump = run(board, "cat /var/lib/orinoco/dumps/*-stuck.json");
    let dump: Value = serde_json::from_str(&dump).expect("JSON");
    assert_eq!(
        (dump["reason"].as_str(), stuck_parts(&dump)),
        (Some("stuck"), vec![format!("lane 0 in {stage}")])
    );
    eventually("frames after the restart", RUN_MAX, || {
        status().filter(|status| frames_out(status, "inferred") > 0)
    });
    assert_eq!(run(board, "systemctl show -P ActiveState orinocod"), "active");
}

/// Freezes the thread of lane 0 while it executes a batch, and returns the stage that it is in.
fn freeze_lane(board: &Board, tunnel: &ControlTunnel) -> String {
    eventually("a lane frozen in a batch", STUCK_MAX, || {
        set_frozen(board, &["lane-0"], true);
        let status = tunnel.get("/v1/status")?;
        let lane = &status["lanes"][0];
        match (lane["executing_ms"].is_number(), lane["stage"].as_str()) {
            (true, Some(stage)) => Some(stage.to_owned()),
            _ => {
                set_frozen(board, &["lane-0"], false);
                None
            }
        }
    })
}

// --- power rails -------------------------------------------------------------------------------------------------------

/// Shows the quantities of a rail in whole milliunits.
fn shown([millivolts, milliamperes, milliwatts]: [i64; 3]) -> String {
    format!("{millivolts} mV {milliamperes} mA {milliwatts} mW")
}

/// Reads the rails by the kernel's driver: raw, and as `orinoco` reads them with their power.
fn by_kernel(board: &Board, hwmon: &str) -> [String; 3] {
    let output = orinoco_on(board, "board detect --json");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let names = ["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"];
    let rails = found["rails"].as_array().expect("a list");
    std::array::from_fn(|index| {
        let rail = rails.iter().find(|rail| rail["name"] == names[index]);
        let rail = rail.unwrap_or_else(|| panic!("no {} in {found}", names[index]));
        let read = ["mv", "ma", "mw"].map(|key| rail[key].as_i64().expect("a number"));
        let channel = index + 1;
        let raw = run(board, &format!("cd {hwmon}; cat in{channel}_input curr{channel}_input"));
        assert_eq!(raw, format!("{}\n{}", read[0], read[1]), "{}", names[index]);
        shown(read)
    })
}

/// Reads the rails by the driver of `orinoco-sensors` over `/dev/i2c-*`, which the kernel's driver must not hold.
fn by_own_driver(board: &Board, bus: &str) -> [String; 3] {
    let driver = "/sys/bus/i2c/drivers/ina3221";
    run(board, &format!("echo {bus}-0040 >{driver}/unbind"));
    let table = run(board, &format!("/tmp/read_rails --smbus {bus} 0x40 5 5 5"));
    run(board, &format!("echo {bus}-0040 >{driver}/bind"));
    let lines: Vec<&str> = table.lines().collect();
    std::array::from_fn(|index| {
        // `channel 1: 5.000000 V 1.200000 A 6.000000 W`
        let words: Vec<&str> = lines[index].split(' ').collect();
        // Six decimals, of which the kernel's units keep three.
        let milli = |word: usize| (words[word].parse::<f64>().expect("a number") * 1e6).round() as i64 / 1000;
        shown([milli(2), milli(4), milli(6)])
    })
}

#[test]
#[ignore = "boots an emulated board; `make test-boards` runs it"]
fn the_kernels_driver_and_ours_read_the_same_rails() {
    let Some(reader) = cross_binary("examples/read_rails") else { return };
    let Some(boards) = one_board("orinoco") else { return };
    let board = &boards[0];
    put(board, &reader, "/tmp/read_rails");
    board.rails().expect("a power monitor");
    let bus = run(board, "i2cdetect -l | sed -n 's/^i2c-\\([0-9]*\\).*SMBus stub.*/\\1/p'");
    // The ids of manufacturer and die, which our driver asks for first. SMBus words are little-endian, the chip's big-endian.
    run(board, &format!("i2cset -f -y {bus} 0x40 0xfe 0x4954 w; i2cset -f -y {bus} 0x40 0xff 0x2032 w"));
    for (round, readings) in [
        [(5000, 1200), (3304, 640), (1104, 904)],
        [(19_000, 264), (19_000, 8), (19_000, 0)],
        [(26_000, 32_000), (8, 31_992), (0, 16)],
    ]
    .into_iter()
    .enumerate()
    {
        let rails = [Rail::VddIn, Rail::VddCpuGpuCv, Rail::VddSoc];
        for (rail, (millivolts, milliamps)) in rails.into_iter().zip(readings) {
            board.set_rail(rail, Reading { millivolts, milliamps }).expect("written");
        }
        // A driver that is bound again has another folder.
        let hwmon = run(board, "dirname $(grep -l '^ina3221$' /sys/class/hwmon/hwmon*/name)");
        let (kernel, own) = (by_kernel(board, &hwmon), by_own_driver(board, &bus));
        println!("round {round}: {}", own.join("; "));
        assert_eq!(kernel, own, "round {round}");
        let [(millivolts, milliamperes), ..] =
            readings.map(|(volts, amps)| (i64::from(volts), i64::from(amps)));
        let milliwatts = millivolts * milliamperes / 1000;
        assert_eq!(
            own[0],
            shown([millivolts, milliamperes, milliwatts]),
            "they are multiples of the chip's steps"
        );
    }
}
