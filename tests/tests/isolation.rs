//! Isolation of streams: one bad camera never disturbs the others. Four files run together with an RTSP server that is
//! killed again and again, a server that accepts and never sends, a truncated file, and a camera with jitter.
//!
//! By default one run of 20 s checks results that do not depend on the machine's speed. `ORINOCO_TEST_LONG=1` takes
//! five minutes for each of three boards: the files alone, all streams in one lane, and the files in a lane of their
//! own. Then load, memory, recovery and the files' p99 are checked too. `ORINOCO_TEST_SECONDS` sets another duration.
//!
//! A lane processes one frame at a time, so in one lane each stream may wait for a frame of every other stream.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
#![allow(clippy::print_stdout, reason = "tests say what they skip and what they measured")]

use std::fs;
use std::io::{self, BufRead, BufReader, Cursor, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use gstreamer_rtsp_server as server;
use gstreamer_rtsp_server::prelude::*;
use image::{DynamicImage, ImageFormat, Rgb, RgbImage};
use orinoco_api::{EndState, ResultLine, StageSummary, StreamSummary, Summary};
use orinoco_core::codes;
use orinoco_tests::{Random, binary, root};

/// Maximum share of the machine that the daemon may use in a long run. With more, the test would measure the machine
/// instead of the daemon.
const LOAD_MAX: f64 = 0.6;
/// Maximum increase of a file's p99 over its p99 alone: a share of it or a time, whichever is larger.
const P99_PART: f64 = 0.05;
const P99_MORE_US: f64 = 2_000.0;
/// Maximum time until a killed server's stream is live again, from the moment that the server listens again.
const BACK_MAX: Duration = Duration::from_secs(2);
/// Maximum time of such a recovery if the machine's speed does not count.
const BACK_AT_ALL: Duration = Duration::from_secs(30);
/// Maximum growth of the daemon's memory between a fifth of the run and its end, in KiB.
const GROWTH_KIB_MAX: u64 = 5 * 1024;

/// Time of the first kill of the RTSP server, and interval of the following kills.
const FIRST_KILL: Duration = Duration::from_secs(8);
const KILL_EVERY: Duration = Duration::from_secs(20);
/// Maximum duration of a kill, until its stream is live again and the daemon's resources have been measured.
const KILL_TAKES: Duration = Duration::from_secs(12);
const _: () = assert!(KILL_EVERY.as_secs() > KILL_TAKES.as_secs());
/// Minimum and maximum outage of the server, in ms.
const DOWN_MS: (usize, usize) = (500, 3_000);

/// Maximum time to load models and open streams.
const START_MAX: Duration = Duration::from_secs(60);
/// Maximum time to drain. A source may be waiting for a silent server when it is asked to stop, for at most 5 s.
const END_MAX: Duration = Duration::from_secs(20);
/// Maximum delay of a file against real time: at its start, and at each rewind.
const LATE_MAX: Duration = Duration::from_secs(1);
const REWIND_MAX: Duration = Duration::from_millis(250);

/// Pauses and bursts of the camera with jitter: maximum pause in ms, frames in a burst, and steps per burst on average.
const PAUSE_MS_MAX: usize = 300;
const BURST: usize = 5;
const BURST_EVERY: usize = 8;

/// Duration of a run, and whether it is a long one with further checks.
#[derive(Clone, Copy)]
struct Mode {
    duration: Duration,
    long: bool,
}

impl Mode {
    fn from_environment() -> Self {
        let long = std::env::var_os("ORINOCO_TEST_LONG").is_some();
        let asked = std::env::var("ORINOCO_TEST_SECONDS").ok().and_then(|text| text.parse().ok());
        Self { duration: Duration::from_secs(asked.unwrap_or(if long { 300 } else { 20 })), long }
    }
}

// --- test data ---------------------------------------------------------------------------------------------------------

/// Video file that the test generates.
struct Video {
    name: &'static str,
    size: (u32, u32),
    /// Frame rate, in frames per 100 s.
    rate: u32,
    seconds: u32,
}

/// Files of the board. No rate divides another, so that during a run the frames of each stream meet those of the others
/// at every time offset. With equal rates, chance at the start would decide which stream waits for which. They rewind
/// at different times.
const FILES: [Video; 4] = [
    Video { name: "file-1", size: (320, 240), rate: 497, seconds: 12 },
    Video { name: "file-2", size: (480, 272), rate: 601, seconds: 13 },
    Video { name: "file-3", size: (640, 360), rate: 793, seconds: 14 },
    Video { name: "file-4", size: (640, 360), rate: 1009, seconds: 15 },
];
/// Video that is cut to half. It ends before the first kill.
const CUT: Video = Video { name: "cut", size: (320, 240), rate: 500, seconds: 6 };
const KILLED: &str = "killed";
const SILENT: &str = "silent";
const JITTER: &str = "jitter";

impl Video {
    fn frames(&self) -> u32 {
        self.rate * self.seconds / 100
    }

    fn frames_a_second(&self) -> f64 {
        f64::from(self.rate) / 100.0
    }

    fn path(&self, dir: &Path) -> PathBuf {
        dir.join(self.name).with_extension("mp4")
    }

    /// Generates the video, with the index at the start of the file.
    fn make(&self, dir: &Path) {
        let (width, height) = self.size;
        let pipeline = gst::parse::launch(&format!(
            "videotestsrc num-buffers={} pattern=ball ! \
             video/x-raw,format=I420,width={width},height={height},framerate={}/100 ! \
             x264enc tune=zerolatency key-int-max=10 speed-preset=ultrafast bitrate=500 ! h264parse ! \
             mp4mux faststart=true ! filesink location={}",
            self.frames(),
            self.rate,
            self.path(dir).display()
        ));
        let pipeline = pipeline.expect("the pipeline is right");
        let bus = pipeline.bus().expect("a pipeline has a bus");
        pipeline.set_state(gst::State::Playing).expect("it plays");
        let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
        let message = bus.timed_pop_filtered(gst::ClockTime::from_seconds(60), &kinds).expect("it ends");
        assert_eq!(message.type_(), gst::MessageType::Eos, "{message:?}");
        pipeline.set_state(gst::State::Null).expect("it stops");
    }
}

/// Whether GStreamer has all elements that the servers, the videos and the daemon need. Prints the first missing one.
fn has_elements() -> bool {
    gst::init().expect("GStreamer starts");
    let needed = ["videotestsrc", "x264enc", "h264parse", "mp4mux", "rtph264pay", "rtpbin", "rtspsrc"];
    let more = ["souphttpsrc", "multipartdemux", "jpegdec", "decodebin"];
    let missing = needed.into_iter().chain(more).find(|name| gst::ElementFactory::find(name).is_none());
    if let Some(name) = missing {
        println!("skipped: GStreamer has no {name} here");
    }
    missing.is_none()
}

// --- servers -----------------------------------------------------------------------------------------------------------

/// Environment variables of the server's process: the port to use, and the file that it writes when it is ready.
const PORT: &str = "ORINOCO_TEST_RTSP_PORT";
const READY: &str = "ORINOCO_TEST_RTSP_READY";

/// RTSP server on loopback, in a process of its own, which is killed when this is dropped.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// Starts the server on `port`, or on any free port for 0, and returns when it listens.
    fn start(port: u16) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let ready = folder.path().join("port");
        let child = Command::new(std::env::current_exe().expect("it has a path"))
            .args(["--exact", "the_server", "--ignored", "--nocapture"])
            .env(PORT, port.to_string())
            .env(READY, &ready)
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        let mut server = Self { child, port };
        let begin = Instant::now();
        loop {
            if let Some(port) = fs::read_to_string(&ready).ok().and_then(|text| text.parse().ok()) {
                server.port = port;
                return server;
            }
            assert!(begin.elapsed() < START_MAX, "the RTSP server does not start on port {port}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "the server's process: the other test starts it"]
fn the_server() {
    let (Ok(port), Some(ready)) = (std::env::var(PORT), std::env::var_os(READY).map(PathBuf::from)) else {
        return;
    };
    gst::init().expect("GStreamer starts");
    let server = server::RTSPServer::new();
    server.set_address("127.0.0.1");
    server.set_service(&port);
    let factory = server::RTSPMediaFactory::new();
    factory.set_launch(
        "( videotestsrc is-live=true pattern=ball ! video/x-raw,width=320,height=240,framerate=10/1 ! \
         x264enc tune=zerolatency key-int-max=10 speed-preset=ultrafast ! rtph264pay name=pay0 pt=96 )",
    );
    server.mount_points().expect("a server has mount points").add_factory("/live", factory);
    let _keep = server.attach(None).expect("the port is free");
    let unfinished = ready.with_extension("new");
    fs::write(&unfinished, server.bound_port().to_string()).expect("the folder is writable");
    fs::rename(&unfinished, &ready).expect("the folder is writable");
    glib::MainLoop::new(None, false).run();
}

/// Server that accepts connections and never sends. Like the next server, it lives as long as the test's process.
struct Silent {
    port: u16,
    accepted: Arc<Mutex<Option<Instant>>>,
}

impl Silent {
    fn start() -> Self {
        let (listener, port) = listen();
        let accepted = Arc::new(Mutex::new(None));
        let last = Arc::clone(&accepted);
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                *lock(&last) = Some(Instant::now());
                // This ends when the client closes the connection.
                thread::spawn(move || io::copy(&mut stream, &mut io::sink()));
            }
        });
        Self { port, accepted }
    }

    /// Whether a connection has been open for a while, and will stay open for another: the daemon gives up 5 s after it
    /// began to create a pipeline for it, and a measurement takes most of a second. So each measurement includes the
    /// resources that the daemon holds for the connection.
    fn is_waited_for(&self) -> bool {
        let since = lock(&self.accepted).map(|at| at.elapsed().as_millis());
        since.is_some_and(|waited_ms| (500..3_000).contains(&waited_ms))
    }
}

/// Starts a camera that sends MJPEG with pauses of random length, and now and then with a burst of frames. Returns its
/// port.
fn serve_jitter(seed: u64) -> u16 {
    let (listener, port) = listen();
    let parts: Arc<Vec<Vec<u8>>> = Arc::new((0..16).map(part).collect());
    thread::spawn(move || {
        for (stream, number) in listener.incoming().map_while(Result::ok).zip(0..) {
            let parts = Arc::clone(&parts);
            thread::spawn(move || send_with_jitter(stream, &parts, Random(seed + number)));
        }
    });
    port
}

/// Returns a JPEG image with a bar at position `step`, as one part of the multipart response.
fn part(step: u32) -> Vec<u8> {
    let image = RgbImage::from_fn(320, 240, |x, _| match x / 20 == step {
        true => Rgb([240, 240, 240]),
        false => Rgb([40, 90, 60]),
    });
    let mut jpeg = Cursor::new(Vec::new());
    DynamicImage::ImageRgb8(image).write_to(&mut jpeg, ImageFormat::Jpeg).expect("memory has room");
    let jpeg = jpeg.into_inner();
    let head = format!("--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {}\r\n\r\n", jpeg.len());
    [head.as_bytes(), &jpeg, b"\r\n"].concat()
}

/// Answers one request, and sends until the client closes the connection.
fn send_with_jitter(mut stream: TcpStream, parts: &[Vec<u8>], mut random: Random) -> io::Result<()> {
    let mut request = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    while request.read_line(&mut line)? > 2 {
        line.clear();
    }
    let kind = "multipart/x-mixed-replace; boundary=frame";
    stream.write_all(format!("HTTP/1.0 200 OK\r\nContent-Type: {kind}\r\n\r\n").as_bytes())?;
    let mut images = parts.iter().cycle();
    loop {
        thread::sleep(Duration::from_millis(random.below(PAUSE_MS_MAX + 1) as u64));
        let count = if random.below(BURST_EVERY) == 0 { BURST } else { 1 };
        for image in images.by_ref().take(count) {
            stream.write_all(image)?;
        }
    }
}

fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("it binds");
    let port = listener.local_addr().expect("it is bound").port();
    (listener, port)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// --- the daemon --------------------------------------------------------------------------------------------------------

/// Streams that run together with the files: none, the bad ones in the same lane, or the bad ones in another lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Company {
    Alone,
    SameLane,
    OtherLane,
}

/// Writes the board. Returns its path, and the names of the streams in their order.
fn write_board(dir: &Path, company: Company, bad: Option<&Bad>) -> (PathBuf, Vec<&'static str>) {
    let mut streams = Vec::new();
    let bad = bad.map(|bad| bad.streams(dir).into_iter().map(Some));
    let mut bad = bad.into_iter().flatten().chain(std::iter::repeat(None));
    // Lanes take streams in turn, so with two lanes the first one gets the files.
    for file in &FILES {
        streams.push((file.name, format!("{}?loop=1&pace=pts", file.path(dir).display())));
        streams.extend(bad.next().flatten());
    }
    let lanes = if company == Company::OtherLane { 2 } else { 1 };
    let out = dir.join(format!("{company:?}"));
    let mut text = format!(
        "version = 1\nlanes = {lanes}\n[[model]]\nname = 'person-nano'\n\
         [[sink]]\nname = 'log'\nkind = 'jsonl'\npath = '{}/{{stream}}.jsonl'\n",
        out.display()
    );
    for (name, source) in &streams {
        text += &format!(
            "[[stream]]\nname = '{name}'\nsource = '{source}'\nmodels = ['person-nano']\nsinks = ['log']\n"
        );
    }
    let board = out.with_extension("toml");
    fs::write(&board, text).expect("the folder is writable");
    (board, streams.iter().map(|(name, _)| *name).collect())
}

/// Running daemon, which is killed when this is dropped.
struct Daemon {
    child: Child,
    streams: Vec<&'static str>,
    /// Lines of its log, with their times of arrival.
    log: Arc<Mutex<Vec<(Instant, String)>>>,
    summary: PathBuf,
}

impl Daemon {
    fn start(board: &Path, streams: Vec<&'static str>) -> Self {
        let summary = board.with_extension("json");
        let mut child = Command::new(binary("orinocod"))
            .arg("--board")
            .arg(board)
            .arg("--summary")
            .arg(&summary)
            .current_dir(root())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let log = Arc::new(Mutex::new(Vec::new()));
        let (mut lines, heard) = (BufReader::new(child.stderr.take().expect("piped")), Arc::clone(&log));
        thread::spawn(move || {
            // Libraries may print text that is not UTF-8.
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
                lock(&heard).push((Instant::now(), String::from_utf8_lossy(&line).trim_end().to_owned()));
                line.clear();
            }
            lock(&heard).push((Instant::now(), "(it closed its standard error)".to_owned()));
        });
        Self { child, streams, log, summary }
    }

    /// Returns the log, with the time of each line in seconds since the first.
    fn text(&self) -> String {
        let log = lock(&self.log);
        let seconds = |at: Instant| (at - log[0].0).as_secs_f64();
        let lines: Vec<String> =
            log.iter().map(|(at, line)| format!("{:8.3} {line}", seconds(*at))).collect();
        lines.join("\n")
    }

    /// Returns the time at which a stream first entered a state, not before `since`.
    fn entered(&self, stream: &str, state: &str, since: Instant) -> Option<Instant> {
        let wanted = format!("stream={stream} state={state}");
        let log = lock(&self.log);
        log.iter().find(|(at, line)| *at >= since && line.contains(&wanted)).map(|(at, _)| *at)
    }

    fn wait_for(&self, stream: &str, state: &str, since: Instant, limit: Duration) -> Instant {
        let begin = Instant::now();
        loop {
            if let Some(at) = self.entered(stream, state, since) {
                return at;
            }
            assert!(begin.elapsed() < limit, "{stream} is not {state} after {limit:?}:\n{}", self.text());
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn proc(&self, name: &str) -> PathBuf {
        Path::new("/proc").join(self.child.id().to_string()).join(name)
    }

    /// Returns the CPU time that the daemon has used.
    fn spent(&self) -> Duration {
        /// USER_HZ of proc(5), the same on every platform that Orinoco supports.
        const TICKS_A_SECOND: f64 = 100.0;
        let text = fs::read_to_string(self.proc("stat")).expect("it runs");
        // The program's name, in parentheses, may contain any character. utime and stime are the 14th and 15th field.
        let fields = text.rsplit_once(')').expect("a name in brackets").1.split_whitespace();
        let ticks: f64 = fields.skip(11).take(2).map(|field| field.parse::<f64>().expect("a number")).sum();
        Duration::from_secs_f64(ticks / TICKS_A_SECOND)
    }

    /// Measures the daemon's resources. Returns the median of several measurements: for a moment there may be fewer
    /// descriptors (GLib holds an eventfd only while it waits for a socket) or more (the engine's library opens sockets
    /// now and then).
    fn held(&self) -> Held {
        let looks: Vec<Held> = (0..9)
            .map(|_| {
                thread::sleep(Duration::from_millis(100));
                self.held_now()
            })
            .collect();
        Held {
            threads: median(looks.iter().map(|look| look.threads)),
            descriptors: median(looks.iter().map(|look| look.descriptors)),
            anon_kib: median(looks.iter().map(|look| look.anon_kib)),
        }
    }

    fn held_now(&self) -> Held {
        let count = |name| fs::read_dir(self.proc(name)).expect("it runs").count();
        let status = fs::read_to_string(self.proc("status")).expect("it runs");
        let anon = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux tells it");
        let anon_kib = anon.trim().trim_end_matches(" kB").parse().expect("a number");
        Held { threads: count("task"), descriptors: count("fd"), anon_kib }
    }

    /// Sends SIGTERM to the daemon. Returns its exit code, its summary and its log.
    fn end(mut self) -> (Option<i32>, Summary, String) {
        let sent = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(sent.expect("kill is there").success());
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                break status;
            }
            assert!(begin.elapsed() < END_MAX, "it does not end:\n{}", self.text());
            thread::sleep(Duration::from_millis(10));
        };
        let summary = fs::read(&self.summary).expect("it was written");
        (status.code(), serde_json::from_slice(&summary).expect("JSON"), self.text())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Resources of the daemon: threads, file descriptors, and anonymous memory in KiB.
#[derive(Clone, Copy, Debug)]
struct Held {
    threads: usize,
    descriptors: usize,
    anon_kib: u64,
}

/// Returns the value in the middle of an odd number of values.
fn median<T: Ord>(values: impl Iterator<Item = T>) -> T {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable();
    let middle = values.len() / 2;
    values.swap_remove(middle)
}

/// CPU time of the whole machine, in ticks: the busy part, and all of it.
struct Machine {
    busy: f64,
    all: f64,
}

impl Machine {
    fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").expect("Linux has it");
        let fields = text.lines().next().expect("the sum over cores comes first").split_whitespace().skip(1);
        // Only the first eight fields count, because the time of guests, in later fields, is already included in the
        // users' time. The fourth and fifth field are idle time.
        let ticks: Vec<f64> = fields.take(8).map(|field| field.parse().expect("a number")).collect();
        let all = ticks.iter().sum();
        Self { busy: all - ticks[3] - ticks[4], all }
    }

    fn busy_since(&self) -> f64 {
        let now = Self::now();
        (now.busy - self.busy) / (now.all - self.all)
    }
}

// --- a run -------------------------------------------------------------------------------------------------------------

/// Sources that misbehave.
struct Bad {
    server: Option<Server>,
    rtsp: u16,
    silent: Silent,
    jitter: u16,
    random: Random,
}

impl Bad {
    fn start(seed: u64) -> Self {
        let server = Server::start(0);
        let rtsp = server.port;
        let (silent, jitter) = (Silent::start(), serve_jitter(seed));
        Self { server: Some(server), rtsp, silent, jitter, random: Random(seed) }
    }

    fn streams(&self, dir: &Path) -> [(&'static str, String); 4] {
        [
            (KILLED, format!("rtsp://127.0.0.1:{}/live", self.rtsp)),
            (SILENT, format!("rtsp://127.0.0.1:{}/live", self.silent.port)),
            (CUT.name, format!("{}?pace=pts", CUT.path(dir).display())),
            (JITTER, format!("http://127.0.0.1:{}/live", self.jitter)),
        ]
    }

    /// Kills the server, and starts it again after a while. Returns the time until its stream was live again.
    fn kill(&mut self, daemon: &Daemon) -> Duration {
        let down = Instant::now();
        self.server = None;
        // Frames on their way may still arrive before the daemon detects the loss.
        daemon.wait_for(KILLED, "backing-off", down, BACK_AT_ALL);
        let down_ms = DOWN_MS.0 + self.random.below(DOWN_MS.1 - DOWN_MS.0);
        thread::sleep(
            (down + Duration::from_millis(down_ms as u64)).saturating_duration_since(Instant::now()),
        );
        self.server = Some(Server::start(self.rtsp));
        let up = Instant::now();
        let back = daemon.wait_for(KILLED, "live", down, BACK_AT_ALL);
        // The daemon may reconnect before this test sees that the server listens.
        back.saturating_duration_since(up)
    }

    /// Waits for a moment at which the daemon's resources can be compared: the truncated file has ended, the killed
    /// server has been back for a while, and the daemon waits for the silent server.
    fn settle(&self, daemon: &Daemon, begin: Instant) {
        daemon.wait_for(CUT.name, "ended", begin, START_MAX);
        thread::sleep(Duration::from_secs(3));
        while !self.silent.is_waited_for() {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Results of one board's run.
struct Run {
    company: Company,
    exit: Option<i32>,
    summary: Summary,
    log: String,
    /// Time for which each file was live.
    live: Vec<Duration>,
    /// Share of the machine that the daemon used, and share that all processes used.
    load: f64,
    machine: f64,
    /// Time of each recovery, from the moment that the server listened until the stream was live.
    backs: Vec<Duration>,
    held: Vec<(Duration, Held)>,
}

fn run(dir: &Path, company: Company, mut bad: Option<&mut Bad>, duration: Duration) -> Run {
    let start = Instant::now();
    let (board, streams) = write_board(dir, company, bad.as_deref());
    let daemon = Daemon::start(&board, streams);
    for stream in daemon.streams.iter().filter(|stream| **stream != SILENT) {
        daemon.wait_for(stream, "live", start, START_MAX);
    }
    let (begin, spent, machine) = (Instant::now(), daemon.spent(), Machine::now());
    let (mut backs, mut held) = (Vec::new(), Vec::new());
    if let Some(bad) = &mut bad {
        let warm = begin + duration / 5;
        let mut look = |bad: &Bad| {
            sleep_until(warm);
            bad.settle(&daemon, start);
            held.push((begin.elapsed(), daemon.held()));
        };
        let mut kill = begin + FIRST_KILL;
        while kill + KILL_TAKES <= begin + duration {
            if kill > warm {
                look(bad);
            }
            sleep_until(kill);
            backs.push(bad.kill(&daemon));
            kill += KILL_EVERY;
        }
        look(bad);
    }
    sleep_until(begin + duration);
    let cores = thread::available_parallelism().expect("Linux tells it").get() as f64;
    let load = (daemon.spent() - spent).as_secs_f64() / begin.elapsed().as_secs_f64() / cores;
    let machine = machine.busy_since();
    let stopped = Instant::now();
    let live =
        FILES.iter().map(|file| stopped - daemon.entered(file.name, "live", start).expect("seen above"));
    let live = live.collect();
    let (exit, summary, log) = daemon.end();
    Run { company, exit, summary, log, live, load, machine, backs, held }
}

fn sleep_until(time: Instant) {
    thread::sleep(time.saturating_duration_since(Instant::now()));
}

// --- checks ------------------------------------------------------------------------------------------------------------

impl Run {
    fn stream(&self, name: &str) -> &StreamSummary {
        self.summary.streams.iter().find(|stream| stream.name == name).expect("it is on the board")
    }

    fn total(&self, name: &str) -> Option<&StageSummary> {
        self.stream(name).stages.iter().find(|stage| stage.stage == "total")
    }

    /// Checks results that do not depend on the machine's speed.
    fn check(&self, dir: &Path) {
        for stream in &self.summary.streams {
            let counts = (stream.frames_in, stream.frames_out + lost(stream));
            assert_eq!(counts.0, counts.1, "{}: not every frame is accounted for", stream.name);
        }
        for (file, live) in FILES.iter().zip(&self.live) {
            self.check_file(dir, file, *live);
        }
        match self.company {
            Company::Alone => assert_eq!((self.summary.end, self.exit), (EndState::Interrupted, Some(0))),
            Company::SameLane | Company::OtherLane => self.check_bad(),
        }
    }

    /// Checks that every due frame of a file was delivered, none twice and none too early, and that no frame was lost
    /// and no reconnect occurred.
    fn check_file(&self, dir: &Path, file: &Video, live: Duration) {
        let stream = self.stream(file.name);
        assert_eq!((lost(stream), stream.reconnects), (0, 0), "{}", file.name);
        let passes = (live.as_secs() / u64::from(file.seconds)) as u32;
        let least =
            live.saturating_sub(LATE_MAX + REWIND_MAX * passes).as_secs_f64() * file.frames_a_second();
        let most = (live + LATE_MAX).as_secs_f64() * file.frames_a_second();
        let frames = stream.frames_in as f64;
        assert!((least..=most).contains(&frames), "{}: {frames} of {least} to {most}", file.name);

        let out = dir.join(format!("{:?}/{}.jsonl", self.company, file.name));
        let text = fs::read_to_string(out).expect("it was written");
        let lines: Vec<ResultLine> =
            text.lines().map(|line| serde_json::from_str(line).expect("a result")).collect();
        assert_eq!(lines.len() as u64, stream.frames_in, "{}", file.name);
        let interval_ms = 1e3 / file.frames_a_second();
        for pair in lines.windows(2) {
            assert_eq!(pair[1].seq, pair[0].seq + 1, "{}", file.name);
            let step_ms = (pair[1].pts_ns - pair[0].pts_ns) as f64 / 1e6;
            assert!((step_ms - interval_ms).abs() < 1.0, "{}: a step of {step_ms} ms", file.name);
        }
    }

    /// Checks that each bad stream had its own faults, and that no other stream had any.
    fn check_bad(&self) {
        let [fault] = &self.summary.faults[..] else { panic!("{:?}", self.summary.faults) };
        assert_eq!(fault.code, codes::SOURCE_TRUNCATED.id, "{fault:?}");
        assert!(fault.subject.contains("cut.mp4"), "{fault:?}");
        assert_eq!((self.summary.end, self.exit), (EndState::Failed, Some(3)));
        let cut = self.stream(CUT.name);
        assert!((1..u64::from(CUT.frames())).contains(&cut.frames_in), "{} frames of half", cut.frames_in);

        let silent = self.stream(SILENT);
        assert_eq!(silent.frames_in, 0);
        assert!(silent.reconnects > 0);
        let killed = self.stream(KILLED);
        let recovered = killed.recovery.as_ref().map_or(0, |recovery| recovery.count);
        assert_eq!(recovered, self.backs.len() as u64, "kills and recoveries");
        assert!(self.stream(JITTER).frames_in > 0 && self.stream(JITTER).reconnects == 0);

        for stream in &self.summary.streams {
            let warned = self
                .log
                .lines()
                .any(|line| line.contains(&format!("stream={} ", stream.name)) && line.contains("code="));
            let expected = [KILLED, SILENT, CUT.name].contains(&stream.name.as_str());
            assert_eq!(warned, expected, "{}:\n{}", stream.name, self.log);
        }
        let (_, first) = self.held.first().expect("it was looked at");
        for (at, held) in &self.held {
            let counts = (held.threads, held.descriptors);
            assert_eq!(counts, (first.threads, first.descriptors), "threads and descriptors after {at:.0?}");
        }
    }

    /// Checks results that need an idle machine and a long run.
    fn judge(&self) {
        assert!(self.load <= LOAD_MAX, "{:?}: a load of {:.0} %", self.company, self.load * 100.0);
        for back in &self.backs {
            assert!(*back <= BACK_MAX, "{:?}: back after {back:?}", self.company);
        }
        if let (Some((_, first)), Some((_, last))) = (self.held.first(), self.held.last()) {
            let grown = last.anon_kib.saturating_sub(first.anon_kib);
            assert!(grown <= GROWTH_KIB_MAX, "{:?}: grown by {grown} KiB", self.company);
        }
    }

    fn print(&self, alone: Option<&Run>) {
        println!(
            "\n{:?}: {:.0} s on {}; the daemon used {:.0} % of the machine, everybody {:.0} %",
            self.company,
            self.summary.wall_s,
            self.summary.models[0].engine,
            self.load * 100.0,
            self.machine * 100.0
        );
        println!(
            "{:8} {:>6} {:>6} {:>6} {:>6} {:>8} {:>9} {:>9}   p99 alone   allowed",
            "stream", "in", "out", "lost", "fps", "reopened", "p50 ms", "p99 ms"
        );
        for stream in &self.summary.streams {
            let total = self.total(&stream.name);
            let ms = |us: Option<f64>| us.map_or("-".to_owned(), |us| format!("{:.2}", us / 1e3));
            let p99_alone = alone.and_then(|alone| p99_alone(alone, &stream.name));
            println!(
                "{:8} {:>6} {:>6} {:>6} {:>6.2} {:>8} {:>9} {:>9} {:>11} {:>9}",
                stream.name,
                stream.frames_in,
                stream.frames_out,
                lost(stream),
                stream.fps,
                stream.reconnects,
                ms(total.map(|total| total.p50_us)),
                ms(total.map(|total| total.p99_us)),
                ms(p99_alone),
                ms(p99_alone.map(p99_allowed))
            );
        }
        if !self.backs.is_empty() {
            println!("killed {} times, back after {:.2?}", self.backs.len(), self.backs);
        }
        for (at, held) in &self.held {
            println!(
                "after {:>5.1} s: {} threads, {} descriptors, {} KiB of its own",
                at.as_secs_f64(),
                held.threads,
                held.descriptors,
                held.anon_kib
            );
        }
    }
}

fn lost(stream: &StreamSummary) -> u64 {
    stream.dropped.iter().map(|dropped| dropped.frames).sum()
}

/// Returns a stream's p99 in the run of the files alone, in microseconds; `None` for a stream that is not a file.
fn p99_alone(alone: &Run, name: &str) -> Option<f64> {
    FILES.iter().any(|file| file.name == name).then(|| alone.total(name).expect("it had frames").p99_us)
}

fn p99_allowed(alone_us: f64) -> f64 {
    alone_us + (alone_us * P99_PART).max(P99_MORE_US)
}

#[test]
fn one_bad_camera_never_disturbs_the_others() {
    if !has_elements() {
        return;
    }
    let (mode, seed) = (Mode::from_environment(), 0x0dd_ba11);
    println!("seed {seed:#x}");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = folder.path();
    FILES.iter().chain([&CUT]).for_each(|video| video.make(dir));
    let whole = fs::read(CUT.path(dir)).expect("it was made");
    fs::write(CUT.path(dir), &whole[..whole.len() / 2]).expect("the folder is writable");

    let alone = mode.long.then(|| run(dir, Company::Alone, None, mode.duration));
    if let Some(alone) = &alone {
        alone.print(None);
        alone.check(dir);
    }
    let companies: &[_] =
        if mode.long { &[Company::SameLane, Company::OtherLane] } else { &[Company::SameLane] };
    let runs: Vec<Run> = companies
        .iter()
        .map(|&company| {
            let run = run(dir, company, Some(&mut Bad::start(seed)), mode.duration);
            run.print(alone.as_ref());
            run.check(dir);
            run
        })
        .collect();
    let Some(alone) = alone else { return };
    for run in [&alone].into_iter().chain(&runs) {
        run.judge();
    }
    for run in &runs {
        for file in &FILES {
            let p99 = run.total(file.name).expect("it had frames").p99_us;
            let allowed = p99_allowed(p99_alone(&alone, file.name).expect("it is a file"));
            let (name, company) = (file.name, run.company);
            assert!(p99 <= allowed, "{company:?}: {name}: p99 {p99:.0} us of at most {allowed:.0}");
        }
    }
}
