//! Functions that the tests of sources and sinks share.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
#![allow(dead_code, reason = "each test program uses its own part of it")]

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gstreamer as gst;
use gstreamer::prelude::*;
use orinoco_core::{Clock, ColorMatrix, ColorRange, Diagnosis, DropPolicy, PixelFormat, StreamId};
use orinoco_media::{FrameMd5Sink, FrameMemory, GstSource, open};
use orinoco_pipeline::{
    Frame, MonotonicClock, Mux, Poll, Reconnect, Sink, Source, SourceEnd, SourceRunner, Stop, StreamQueue,
};
use orinoco_telemetry::{Event, EventSink, Telemetry};
use orinoco_uri::SourceUri;

/// Returns the folder of the shared test data, if it exists.
pub(crate) fn data() -> Option<PathBuf> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = std::env::var_os("ORINOCO_DATA").map_or(shared, PathBuf::from);
    let found = folder.join("video").is_dir().then_some(folder);
    if found.is_none() {
        note("skipped: shared test data not found");
    }
    found
}

/// Whether FFmpeg's programs are installed, with which the tests of time stamps and colours compare.
pub(crate) fn has_ffmpeg() -> bool {
    let is_there = |name: &&str| std::process::Command::new(name).arg("-version").output().is_ok();
    let found = ["ffmpeg", "ffprobe"].iter().all(is_there);
    if !found {
        note("skipped: ffmpeg or ffprobe is not installed");
    }
    found
}

/// Runs FFmpeg with these arguments, split at spaces. Returns its standard output.
pub(crate) fn ffmpeg(arguments: &str) -> Vec<u8> {
    let output =
        std::process::Command::new("ffmpeg").args(["-v", "error", "-y"]).args(arguments.split(' ')).output();
    let output = output.expect("ffmpeg was there just now");
    assert!(output.status.success(), "ffmpeg {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Writes a note for the person who runs the tests.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Default capacity of a board's ring, in frames.
const RING_FRAMES: usize = 4;

pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(MonotonicClock::default())
}

pub(crate) fn source(uri: &str) -> Result<Box<dyn Source>, Diagnosis> {
    open(&SourceUri::parse(uri)?, "test", FrameMemory::Host, RING_FRAMES, clock())
}

pub(crate) fn gst_source(uri: &str) -> GstSource {
    let uri = SourceUri::parse(uri).expect("it is valid");
    GstSource::new(&uri, "test", clock()).expect("GStreamer is there")
}

/// Frames of a source up to its end or its fault.
#[derive(Debug)]
pub(crate) struct Reading<T> {
    pub(crate) frames: Vec<T>,
    pub(crate) fault: Option<Diagnosis>,
    pub(crate) took: Duration,
}

/// Opens a source and reads at most `frames_max` frames, for at most a minute.
pub(crate) fn read<T>(uri: &str, frames_max: usize, see: impl FnMut(&Frame) -> T) -> Reading<T> {
    let begin = Instant::now();
    match source(uri) {
        Ok(mut source) => read_from(&mut *source, frames_max, see),
        Err(fault) => Reading { frames: Vec::new(), fault: Some(fault), took: begin.elapsed() },
    }
}

pub(crate) fn read_from<T>(
    source: &mut dyn Source,
    frames_max: usize,
    mut see: impl FnMut(&Frame) -> T,
) -> Reading<T> {
    let begin = Instant::now();
    let mut frames = Vec::new();
    let mut fault = source.open().err().map(|error| error.diagnosis().clone());
    while fault.is_none() && frames.len() < frames_max {
        assert!(begin.elapsed() < Duration::from_secs(60), "no end after {} frames", frames.len());
        match source.next(Duration::from_millis(100)) {
            Ok(Poll::Frame(frame)) => frames.push(see(&frame)),
            Ok(Poll::Pending | Poll::Waiting) => {}
            Ok(Poll::End) => break,
            Err(error) => fault = Some(error.diagnosis().clone()),
        }
    }
    source.close();
    Reading { frames, fault, took: begin.elapsed() }
}

/// Output that can be read afterwards.
#[derive(Clone, Default)]
pub(crate) struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("not poisoned").write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Computes red, green and blue of a pixel by the standards: ITU-R BT.601, BT.709 and BT.2020 with their Kr and Kb.
pub(crate) fn rgb(frame: &Frame, x: usize, y: usize) -> [f64; 3] {
    let (view, desc) = (frame.view(), frame.desc);
    let sample = |plane: usize, x: usize, y: usize| f64::from(view.plane(plane).row(y)[x]);
    let (luma, u, v) = match desc.format {
        PixelFormat::I420 => (sample(0, x, y), sample(1, x / 2, y / 2), sample(2, x / 2, y / 2)),
        PixelFormat::Nv12 => (sample(0, x, y), sample(1, x / 2 * 2, y / 2), sample(1, x / 2 * 2 + 1, y / 2)),
        PixelFormat::Gray8 => return [sample(0, x, y); 3],
        PixelFormat::Rgb => return [0, 1, 2].map(|channel| sample(0, 3 * x + channel, y)),
        PixelFormat::Bgr => return [2, 1, 0].map(|channel| sample(0, 3 * x + channel, y)),
        other => panic!("{other:?}"),
    };
    let (kr, kb) = match desc.matrix {
        ColorMatrix::Bt601 => (0.299, 0.114),
        ColorMatrix::Bt709 => (0.2126, 0.0722),
        ColorMatrix::Bt2020 => (0.2627, 0.0593),
        other => panic!("{other:?}"),
    };
    let (luma, blue, red) = match desc.range {
        ColorRange::Limited => ((luma - 16.0) / 219.0, (u - 128.0) / 224.0, (v - 128.0) / 224.0),
        ColorRange::Full => (luma / 255.0, (u - 128.0) / 255.0, (v - 128.0) / 255.0),
    };
    let (r, b) = (luma + 2.0 * (1.0 - kr) * red, luma + 2.0 * (1.0 - kb) * blue);
    let g = (luma - kr * r - kb * b) / (1.0 - kr - kb);
    [r, g, b].map(|value| value.clamp(0.0, 1.0) * 255.0)
}

/// One line of a frame checksum file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) pts: u64,
    pub(crate) duration: u64,
    pub(crate) size: usize,
    pub(crate) md5: String,
}

/// Returns the checksums of a source's frames, as the sink writes them.
pub(crate) fn checksums(uri: &str) -> Reading<Line> {
    let output = Shared::default();
    let mut sink = FrameMd5Sink::to_writer(Box::new(output.clone()), "test");
    let reading = read(uri, usize::MAX, |frame| sink.write_frame(frame).expect("memory has room"));
    sink.finish().expect("memory has room");
    let text = String::from_utf8(output.0.lock().expect("not poisoned").clone()).expect("it is text");
    let lines = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let fields: Vec<&str> = line.split(", ").collect();
        let number = |index: usize| fields[index].parse::<u64>().expect("a number");
        assert_eq!(fields[1], fields[2]);
        Line { pts: number(2), duration: number(3), size: number(4) as usize, md5: fields[5].to_owned() }
    });
    Reading { frames: lines.collect(), fault: reading.fault, took: reading.took }
}

/// Runs a pipeline in GStreamer's own notation to its end. The tests make their files with it.
pub(crate) fn launch(description: &str) {
    gst::init().expect("GStreamer starts");
    let pipeline = gst::parse::launch(description).expect("the pipeline is right");
    let bus = pipeline.bus().expect("a pipeline has a bus");
    pipeline.set_state(gst::State::Playing).expect("it plays");
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
    let message = bus.timed_pop_filtered(gst::ClockTime::from_seconds(60), &kinds).expect("it ends");
    assert_eq!(message.type_(), gst::MessageType::Eos, "{message:?}");
    pipeline.set_state(gst::State::Null).expect("it stops");
}

/// Returns the resident memory of this process, in bytes.
pub(crate) fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("Linux has it");
    let kilobytes = line.split_whitespace().nth(1).and_then(|text| text.parse::<u64>().ok());
    kilobytes.expect("a number") * 1024
}

/// Returns the number of threads of this process.
pub(crate) fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("Linux has it").count()
}

/// Records a source's states with their times.
pub(crate) struct Log(Instant, Mutex<Vec<(Duration, String)>>);

impl EventSink for Log {
    fn emit(&self, event: Event) {
        let text = match event {
            Event::Source { state, why, .. } => {
                format!("{}{}", state.name(), why.map(|why| format!(" ({why})")).unwrap_or_default())
            }
            Event::SourceRetry { attempt, wait, .. } => format!("retry {attempt} in {wait:?}"),
            _ => return,
        };
        self.1.lock().expect("not poisoned").push((self.0.elapsed(), text));
    }
}

/// Source that runs as in the runtime, and whose frames are taken.
pub(crate) struct Running {
    stop: Stop,
    log: Arc<Log>,
    frames: Arc<Mutex<Vec<Instant>>>,
    runner: std::thread::JoinHandle<SourceEnd>,
    taker: std::thread::JoinHandle<()>,
}

pub(crate) fn run(uri: &str, stall: Duration) -> Running {
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
    let telemetry = Telemetry::new(1).stream(StreamId(0));
    let (policy, batch_wait) = (DropPolicy::DropOldest, Duration::ZERO);
    let queue = StreamQueue { group: 0, frames_max: 4, policy, batch_wait };
    let mux = Mux::new(clock.clone());
    let log = Arc::new(Log(Instant::now(), Mutex::default()));
    let stop = Stop::default();
    let runner = SourceRunner {
        shown: "live".to_owned(),
        source: Box::new(gst_source(uri)),
        frame_sender: mux.add(telemetry.clone(), queue, 1).expect("open"),
        reconnect: Reconnect { attempts_max: None, stall },
        frames_max: None,
        clock,
        seed: 11,
        events: log.clone(),
        telemetry,
        stop: stop.clone(),
    };
    let frames = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&frames);
    let taker = std::thread::spawn(move || {
        let mut batch = Vec::new();
        while mux.next(&mut batch).is_some() {
            seen.lock().expect("not poisoned").extend(batch.drain(..).map(|_| Instant::now()));
        }
    });
    Running { stop, log, frames, runner: std::thread::spawn(move || runner.run()), taker }
}

impl Running {
    /// Waits until `count` frames have come since `since`. Returns the time of the first of them.
    pub(crate) fn wait(&self, since: Instant, count: usize, wait_max: Duration) -> Instant {
        let begin = Instant::now();
        loop {
            let frames = self.frames.lock().expect("not poisoned");
            let fresh: Vec<Instant> = frames.iter().copied().filter(|&frame| frame > since).collect();
            drop(frames);
            if fresh.len() >= count {
                return fresh[0];
            }
            assert!(begin.elapsed() < wait_max, "{:#?}", self.log.1.lock().expect("not poisoned"));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the states that occurred.
    pub(crate) fn states(&self) -> Vec<String> {
        self.log.1.lock().expect("not poisoned").iter().map(|(_, text)| text.clone()).collect()
    }

    /// Waits for the source's own end. Returns it with the number of frames.
    pub(crate) fn finish(self) -> (SourceEnd, usize) {
        let end = self.runner.join().expect("it does not panic");
        self.taker.join().expect("it does not panic");
        let frames = self.frames.lock().expect("not poisoned").len();
        (end, frames)
    }

    pub(crate) fn end(self) {
        self.stop.request();
        assert!(matches!(self.runner.join().expect("it does not panic"), SourceEnd::Stopped));
        self.taker.join().expect("it does not panic");
        for (time, text) in self.log.1.lock().expect("not poisoned").iter() {
            note(&format!("  {:7.3} s {text}", time.as_secs_f64()));
        }
    }
}
