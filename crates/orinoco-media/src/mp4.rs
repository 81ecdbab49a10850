//! Sink of annotated video: frames with the caller's drawings, as H.264 or H.265 in MP4.

mod boxes;
mod errors;
mod recorder;
mod torn;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gstreamer as gst;
use gstreamer::prelude::*;
use gstreamer_app as app;
use gstreamer_video as video;
use orinoco_core::{
    Clock, Codec, ColorMatrix, ColorRange, Diagnosis, FrameDesc, Nanos, PixelFormat, Pts, PtsClock, codes,
};
use orinoco_pipeline::{FrameResult, PixelAspect, Sink};

use self::boxes::{CodedFrame, TIMESCALE, Track};
use self::errors::{EncoderError, OpenError, WriteError};
use self::recorder::{Recorder, RecorderMessage, RecorderSender};
pub use self::torn::cut_torn_mp4;
use crate::gst::{CONVERTER, GstError, NVMM, chain, init, make, works};
use crate::i420::{self, Colour};

/// Callback that draws on a frame: packed I420, width, height, content.
pub type Draw = Box<dyn FnMut(&mut [u8], u32, u32, OverlayContent<'_>) + Send>;

/// Content of a frame.
#[derive(Clone, Copy, Debug)]
pub enum OverlayContent<'a> {
    /// A frame of the stream, whose pixels are already there, with its results.
    FrameResult(&'a FrameResult),
    /// No frame: the source has delivered nothing for this time. The frame is black.
    Offline(Duration),
}

/// Threads of the encoder. Inference needs the cores more, and one thread encodes several streams in real time.
const ENCODER_THREADS: u32 = 1;
/// Constant rate factor of x264: visually close to the source, at about a quarter of the bits of the default.
const QUANTIZER: u32 = 23;
/// Number of frames that the encoder looks ahead while they come fast. Three of them save as much as ten did (half of
/// the bits without lookahead), and few frames are lost if the program is killed.
const LOOKAHEAD_FRAMES: u32 = 3;
/// Maximum interval between frames that come fast, in nanoseconds.
const SHORT_INTERVAL_NANOS: u64 = 150_000_000;
/// Number of short intervals in a row after which the encoder looks ahead again.
const SHORT_INTERVALS_MIN: u32 = 100;
/// Number of long intervals in a row after which it stops looking ahead. A single one is an accident.
const LONG_INTERVALS_MIN: u32 = 2;
/// Time without a new frame after which frames in the encoder are forced into the file.
const HELD_MAX: Duration = Duration::from_millis(200);
/// Time between key frames, in nanoseconds. With the current fragment, the one being written and the frames in the
/// encoder's queue, less than two seconds can be lost.
const KEY_EVERY_NANOS: u64 = 800_000_000;
/// Maximum number of frames that wait for the encoder.
const QUEUE_FRAMES_MAX: u64 = 4;
/// Maximum time that one frame waits for space in the queue. An encoder that took none for so long has stopped.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(10);
/// Time between two checks for space.
const ROOM_STEP: Duration = Duration::from_millis(5);
/// Maximum time that the encoder may take to end the file: it has a lookahead to encode.
const FINISH_WAIT_MAX: Duration = Duration::from_secs(30);
/// Duration of a frame without a successor, in nanoseconds.
const INTERVAL_DEFAULT_NANOS: u64 = 40_000_000;

/// Bits per pixel for encoders that need a bit rate: about those of x264 at the quantizer above.
const BITS_PER_PIXEL: f64 = 0.1;
/// Frame rate with which these encoders calculate, in frames per second.
const RATE_NOMINAL: f64 = 30.0;

/// Element that encodes video.
#[derive(Debug)]
struct Encoder {
    codec: Codec,
    element: &'static str,
    package: &'static str,
    /// Whether it reads NVMM. Such an encoder is used only where it was found to work.
    hardware: bool,
    /// Whether it can hold frames back and analyse them before it encodes earlier ones.
    looks_ahead: bool,
}

const fn software(codec: Codec, element: &'static str, package: &'static str) -> Encoder {
    Encoder { codec, element, package, hardware: false, looks_ahead: true }
}

const fn hardware(codec: Codec, element: &'static str) -> Encoder {
    Encoder { codec, element, package: "nvidia-l4t-gstreamer", hardware: true, looks_ahead: false }
}

/// All encoders, the best first.
const ENCODERS: [Encoder; 5] = [
    hardware(Codec::H264, "nvv4l2h264enc"),
    hardware(Codec::H265, "nvv4l2h265enc"),
    software(Codec::H264, "x264enc", "gstreamer1.0-plugins-ugly"),
    Encoder { looks_ahead: false, ..software(Codec::H264, "openh264enc", "gstreamer1.0-plugins-bad") },
    software(Codec::H265, "x265enc", "gstreamer1.0-plugins-bad"),
];

/// Encoder of a codec that annotated MP4 uses here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VideoEncoder {
    /// Codec: `H.264` or `H.265`.
    pub codec: &'static str,
    /// Element that encodes; `None` where none of this codec is here.
    pub element: Option<&'static str>,
    /// Package of Debian and Ubuntu with the encoder that needs no hardware.
    pub package: &'static str,
}

/// Returns the encoder of each codec.
///
/// # Errors
/// `E0503`, if GStreamer does not start.
pub fn video_encoders() -> Result<[VideoEncoder; 2], Diagnosis> {
    init().map_err(|error| error.about(&codes::FEATURE_MISSING, "GStreamer"))?;
    let encoder = |(codec, name)| VideoEncoder {
        codec: name,
        element: Encoder::choose(codec).map(|encoder| encoder.element),
        package: Encoder::in_software(codec).package,
    };
    Ok([(Codec::H264, "H.264"), (Codec::H265, "H.265")].map(encoder))
}

impl Encoder {
    /// Returns the best encoder that needs no hardware.
    fn in_software(codec: Codec) -> &'static Self {
        let mut encoders = ENCODERS.iter().filter(|encoder| encoder.codec == codec && !encoder.hardware);
        encoders.next().expect("every codec has one")
    }

    /// Chooses the best available encoder.
    fn choose(codec: Codec) -> Option<&'static Self> {
        let mut all = ENCODERS.iter().filter(|encoder| encoder.codec == codec);
        let usable = |encoder: &&Self| match encoder.hardware {
            true => works(encoder.element) && works(CONVERTER),
            false => gst::ElementFactory::find(encoder.element).is_some(),
        };
        all.find(usable)
    }

    /// Creates the elements from packed I420 to the coded stream.
    fn make(&self, width: u32, height: u32, lookahead: u32) -> Result<Vec<gst::Element>, GstError> {
        let encoder = make(self.element, self.package)?;
        self.tune(&encoder, f64::from(width) * f64::from(height), lookahead);
        let parser = match self.codec {
            Codec::H264 => "h264parse",
            Codec::H265 => "h265parse",
        };
        let parse = make(parser, "gstreamer1.0-plugins-bad")?;
        if !self.hardware {
            return Ok(vec![encoder, parse]);
        }
        let upload = make(CONVERTER, self.package)?;
        let only = make("capsfilter", "gstreamer1.0-plugins-base")?;
        let caps = gst::Caps::builder("video/x-raw").features([NVMM]).field("format", "NV12").build();
        only.set_property("caps", caps);
        Ok(vec![upload, only, encoder, parse])
    }

    /// Returns the caps of the coded stream in MP4: whole access units, with the parameter sets apart.
    fn codec_caps(&self) -> gst::Caps {
        let (name, format) = match self.codec {
            Codec::H264 => ("video/x-h264", "avc"),
            Codec::H265 => ("video/x-h265", "hvc1"),
        };
        gst::Caps::builder(name).field("stream-format", format).field("alignment", "au").build()
    }

    fn tune(&self, encoder: &gst::Element, pixels: f64, lookahead: u32) {
        match self.element {
            "x264enc" => {
                encoder.set_property_from_str("speed-preset", "veryfast");
                encoder.set_property_from_str("pass", "qual");
                encoder.set_property("quantizer", QUANTIZER);
                encoder.set_property("threads", ENCODER_THREADS);
                encoder.set_property("rc-lookahead", lookahead as i32);
                // Without B-frames decoding order is presentation order, and the file needs no edit list.
                encoder.set_property("bframes", 0u32);
            }
            "x265enc" => {
                encoder.set_property_from_str("speed-preset", "ultrafast");
                // It does not start without a frame rate, and ours is variable.
                // Slightly variable quantisers: otherwise the parameters would differ from those with a lookahead.
                let ahead =
                    if lookahead == 0 { ":scenecut=0:cutree=0:aq-mode=1:aq-strength=0.1" } else { "" };
                let options = format!(
                    "fps={RATE_NOMINAL}:bframes=0:pools={ENCODER_THREADS}:frame-threads=1:rc-lookahead={lookahead}{ahead}:crf={QUANTIZER}"
                );
                encoder.set_property("option-string", options);
            }
            "openh264enc" => encoder.set_property("multi-thread", ENCODER_THREADS),
            // NVIDIA's encoders make no B-frames by default.
            _ => encoder
                .set_property_from_str("bitrate", &format!("{:.0}", pixels * RATE_NOMINAL * BITS_PER_PIXEL)),
        }
    }
}

/// Sink of annotated MP4. Presentation times are kept; where they jump back, as when a camera reconnects, the file
/// continues after its last frame. Frames of another size are scaled to that of the first one.
///
/// The file is written in fragments of 0.8 s. However the recording ends, all but the latest of them plays.
pub struct Mp4Sink {
    path: PathBuf,
    /// File, until the first frame.
    file: Option<File>,
    draw: Draw,
    clock: Arc<dyn Clock>,
    encoder: &'static Encoder,
    recording: Option<Recording>,
}

/// Recording that has begun.
struct Recording {
    /// Format of the file's frames.
    shape: Shape,
    clock: PtsClock,
    /// Presentation time of the latest frame of the source.
    latest: Pts,
    times: Times,
    pace: Pace,
    /// Encoder; `None` when every frame has been encoded.
    encoding: Option<Encoding>,
    recorder: Recorder,
}

/// Format of a frame, without its pixel format.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shape {
    width: u32,
    height: u32,
    colour: Colour,
    aspect: PixelAspect,
}

/// Running encoder.
struct Encoding {
    pipeline: gst::Pipeline,
    entry: app::AppSrc,
    /// Pad at which key frames are requested.
    keys: Option<gst::Pad>,
    bus: gst::Bus,
    /// Format of the frames that enter the encoder.
    shape: Shape,
    lookahead: u32,
    /// Time of the last frame that entered the encoder.
    pushed: Nanos,
    /// Time at which the next key frame is due, in nanoseconds.
    key_due: u64,
    entrance: RecorderSender,
}

/// Decides how far the encoder looks ahead. Frames that it holds back are lost when the program is killed, so it looks
/// ahead only while they come fast.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// Number of short intervals in a row; `long` counts the long ones.
    short: u32,
    long: u32,
}

/// Presentation times that always increase.
#[derive(Default)]
struct Times {
    shift: i128,
    last: Option<u64>,
    interval: Option<u64>,
}

/// Returns the encoder of a codec, after a check that all elements that go with it are here.
fn find_encoder(codec: Codec) -> Result<&'static Encoder, OpenError> {
    init()?;
    let encoder = Encoder::choose(codec)
        .ok_or_else(|| OpenError::NoEncoder { codec, package: Encoder::in_software(codec).package })?;
    encoder.make(2, 2, LOOKAHEAD_FRAMES)?;
    scaler()?;
    Ok(encoder)
}

impl Mp4Sink {
    /// Creates the file at `path`, and the sink as [`Mp4Sink::to_file`] does.
    pub fn create(path: &Path, codec: Codec, draw: Draw, clock: Arc<dyn Clock>) -> Result<Self, Diagnosis> {
        let file = File::create(path).map_err(|error| {
            let next = "check that the folder exists and that this user may write in it";
            Diagnosis::new(&codes::SINK_OPEN, path.display(), error, next)
        })?;
        Self::to_file(file, path, codec, draw, clock)
    }

    /// Creates a sink that writes to `file`, an empty one at `path`, and checks that there is an encoder. `draw` is
    /// called for each frame.
    pub fn to_file(
        file: File,
        path: &Path,
        codec: Codec,
        draw: Draw,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Diagnosis> {
        let shown = path.display().to_string();
        let encoder = find_encoder(codec).map_err(|error| error.about(&shown))?;
        // The lock is held as long as the file is open, so that a later start of the daemon does not touch it. Some
        // file systems have no locks.
        let _ = file.try_lock();
        Ok(Self { path: path.to_owned(), file: Some(file), draw, clock, encoder, recording: None })
    }

    /// Returns the name of the GStreamer element that encodes.
    pub fn encoder(&self) -> &'static str {
        self.encoder.element
    }

    fn start(&mut self, shape: Shape, frame: &FrameDesc) -> Result<Recording, WriteError> {
        let side = |side: u32| u16::try_from(side).map_err(|_| WriteError::FrameTooLarge);
        let track = Track {
            codec: self.encoder.codec,
            width: side(shape.width)?,
            height: side(shape.height)?,
            aspect: shape.aspect,
            colour: shape.colour,
        };
        let file = self.file.take().expect("a recording starts once");
        let recorder = Recorder::start(file, track, Arc::clone(&self.clock)).map_err(WriteError::NoThread)?;
        let (latest, clock, times, pace) = (frame.pts, frame.clock, Times::default(), Pace::default());
        Ok(Recording { shape, clock, latest, times, pace, encoding: None, recorder })
    }

    fn failed(&self, error: &WriteError) -> Diagnosis {
        error.about(&self.path.display().to_string())
    }

    fn encode(&mut self, frame_result: &FrameResult) -> Result<(), WriteError> {
        let view = frame_result.frame.view();
        let desc = *view.desc();
        // 4:2:0 video has even sides; an odd last row or column is left out.
        let (width, height) = (desc.width & !1, desc.height & !1);
        if width == 0 || height == 0 {
            return Err(WriteError::FrameTooSmall);
        }
        let shape =
            Shape { width, height, colour: i420::colour_of(&view), aspect: frame_result.frame.aspect };
        if self.recording.is_none() {
            self.recording = Some(self.start(shape, &desc)?);
        }
        self.recording.as_mut().expect("it was started above").latest = desc.pts;
        let fits = self.put(desc.pts, desc.clock, shape, |bytes, draw| {
            let fits = i420::pack(&view, width as usize, height as usize, bytes);
            draw(bytes, width, height, OverlayContent::FrameResult(frame_result));
            fits
        })?;
        if fits { Ok(()) } else { Err(WriteError::UnknownFormat) }
    }

    /// Encodes one frame, which `fill` draws; returns the result of `fill`.
    fn put<T>(
        &mut self,
        pts: Pts,
        clock: PtsClock,
        shape: Shape,
        fill: impl FnOnce(&mut [u8], &mut Draw) -> T,
    ) -> Result<T, WriteError> {
        let frame = FrameDesc::packed(PixelFormat::I420, shape.width, shape.height);
        let mut buffer = gst::Buffer::with_size(frame.bytes_needed()).map_err(|_| WriteError::NoMemory)?;
        let memory = buffer.make_mut();
        let filled = {
            let mut bytes = memory.map_writable().map_err(|_| WriteError::Unmapped)?;
            fill(&mut bytes, &mut self.draw)
        };
        let recording = self.recording.as_mut().expect("frames come after the start");
        let (pts, interval) = recording.times.place(pts.0, clock);
        memory.set_pts(gst::ClockTime::from_nseconds(pts));
        memory.set_duration(gst::ClockTime::from_nseconds(interval));
        add_layout(memory, &frame);
        let wanted = recording.pace.lookahead(interval, recording.encoding.as_ref().map(|now| now.lookahead));
        let is_other = |encoding: &Encoding| self.encoder.looks_ahead && encoding.lookahead != wanted;
        let drained = match &recording.encoding {
            Some(encoding) if is_other(encoding) => self.drain(),
            _ => Ok(()),
        };
        let pushed = drained.and_then(|()| {
            let recording = self.recording.as_mut().expect("it is there, see above");
            let encoding = match &mut recording.encoding {
                Some(encoding) => encoding,
                none => {
                    let entrance = recording.recorder.entrance();
                    let (shape, now) = (recording.shape, self.clock.now());
                    none.insert(Encoding::start(self.encoder, shape, wanted, entrance, now)?)
                }
            };
            Ok(encoding.push(buffer, shape, pts, &*self.clock)?)
        });
        pushed.map(|()| filled)
    }

    /// Lets the encoder finish its frames. The next frame starts another encoder.
    fn drain(&mut self) -> Result<(), WriteError> {
        let encoding = self.recording.as_mut().and_then(|recording| recording.encoding.take());
        Ok(encoding.map_or(Ok(()), |encoding| encoding.complete())?)
    }
}

impl Sink for Mp4Sink {
    /// Encodes the outcome's frame. Waits at most 10 s for an encoder that is behind.
    fn write(&mut self, frame_result: &FrameResult) -> Result<(), Diagnosis> {
        self.encode(frame_result).map_err(|error| self.failed(&error))
    }

    /// Shows that the source is offline, if it has delivered frames before.
    fn offline(&mut self, silence: Duration) -> Result<(), Diagnosis> {
        let Some(recording) = &self.recording else { return Ok(()) };
        let silent_nanos = u64::try_from(silence.as_nanos()).unwrap_or(u64::MAX);
        let pts = Pts(recording.latest.0.saturating_add(silent_nanos));
        let (clock, shape) = (recording.clock, recording.shape);
        let put = self.put(pts, clock, shape, |bytes, draw| {
            i420::blacken(bytes, shape.width as usize, shape.height as usize);
            draw(bytes, shape.width, shape.height, OverlayContent::Offline(silence));
        });
        put.map_err(|error| self.failed(&error))
    }

    /// Forces the frames in the encoder's lookahead into the file, if no more come.
    fn flush(&mut self) -> Result<(), Diagnosis> {
        let encoding = self.recording.as_ref().and_then(|recording| recording.encoding.as_ref());
        let holds = |encoding: &Encoding| {
            self.encoder.looks_ahead
                && encoding.lookahead > 0
                && self.clock.now().since(encoding.pushed) >= HELD_MAX
        };
        let drained = if encoding.is_some_and(holds) { self.drain() } else { Ok(()) };
        drained.map_err(|error| self.failed(&error))
    }

    fn file(&self) -> Option<&Path> {
        Some(&self.path)
    }

    /// Ends the file, within 30 s. Without a single frame there is no file.
    fn finish(&mut self) -> Result<Option<PathBuf>, Diagnosis> {
        let Some(Recording { encoding, recorder, .. }) = self.recording.take() else {
            // If an empty file cannot be removed, it stays. A device or a pipe stays in any case.
            if self.path.metadata().is_ok_and(|there| there.is_file() && there.len() == 0) {
                let _ = fs::remove_file(&self.path);
            }
            return Ok(None);
        };
        let begin = self.clock.now();
        let encoded = encoding.map_or(Ok(()), |encoding| encoding.complete());
        // Also if the encoder has failed: the frames that it has encoded are complete.
        let recorded = recorder.complete(FINISH_WAIT_MAX.saturating_sub(self.clock.now().since(begin)));
        let written = recorded.map_err(EncoderError::Recorder).and(encoded);
        written.map_err(|error| self.failed(&error.into()))?;
        Ok(Some(self.path.clone()))
    }
}

impl Encoding {
    /// Starts an encoder for frames of `shape`, whose output goes to the recorder's `entrance`.
    fn start(
        encoder: &Encoder,
        shape: Shape,
        lookahead: u32,
        entrance: RecorderSender,
        now: Nanos,
    ) -> Result<Self, WriteError> {
        let caps = shape.caps().ok_or(WriteError::NoCaps)?;
        let entry = app::AppSrc::builder().caps(&caps).format(gst::Format::Time).build();
        let bytes = FrameDesc::packed(PixelFormat::I420, shape.width, shape.height).bytes_needed();
        entry.set_max_bytes(QUEUE_FRAMES_MAX * bytes as u64);
        let [convert, scale, only] = scaler()?;
        only.set_property("caps", &caps);
        let encode = encoder.make(shape.width, shape.height, lookahead)?;
        let exit = app::AppSink::builder().caps(&encoder.codec_caps()).sync(false).build();
        exit.set_property("async", false);
        exit.set_property("enable-last-sample", false);
        exit.set_callbacks(record(entrance.clone()));
        let pipeline = gst::Pipeline::new();
        let mut elements = vec![entry.upcast_ref(), &convert, &scale, &only];
        elements.extend(&encode);
        elements.push(exit.upcast_ref());
        chain(&pipeline, &elements);
        let encoder = encode
            .iter()
            .find(|element| element.factory().is_some_and(|made| made.name() == encoder.element));
        let keys = encoder.and_then(|element| element.static_pad("src"));
        let bus = pipeline.bus().expect("a pipeline has a bus");
        let _ = pipeline.set_state(gst::State::Playing);
        let (pushed, key_due) = (now, 0);
        Ok(Self { pipeline, entry, keys, bus, shape, lookahead, pushed, key_due, entrance })
    }

    /// Queues a frame of `shape` when there is space.
    fn push(
        &mut self,
        buffer: gst::Buffer,
        shape: Shape,
        pts: u64,
        clock: &dyn Clock,
    ) -> Result<(), EncoderError> {
        let limit = self.entry.max_bytes();
        let steps = ROOM_WAIT_MAX.as_millis() / ROOM_STEP.as_millis();
        for _ in 0..steps {
            let full = self.entry.current_level_bytes() >= limit;
            let wait = if full { ROOM_STEP } else { Duration::ZERO };
            if let Some(error) = self.error(wait) {
                return Err(error);
            }
            if !full {
                self.ask_for_key(pts);
                if shape != self.shape {
                    self.entry.set_caps(Some(&shape.caps().ok_or(EncoderError::NoCaps)?));
                    self.shape = shape;
                }
                self.pushed = clock.now();
                let pushed = self.entry.push_buffer(buffer);
                return pushed
                    .map(drop)
                    .map_err(|_| self.error(Duration::ZERO).unwrap_or(EncoderError::Stopped));
            }
        }
        Err(EncoderError::Full(ROOM_WAIT_MAX))
    }

    /// Requests a key frame every 0.8 s: fragments begin with one, and players seek to them.
    fn ask_for_key(&mut self, pts: u64) {
        if pts < self.key_due {
            return;
        }
        // The first frame is a key frame anyway.
        if let Some(keys) = self.keys.as_ref().filter(|_| self.key_due > 0) {
            let time = gst::ClockTime::from_nseconds(pts);
            let event = video::UpstreamForceKeyUnitEvent::builder().running_time(time).all_headers(false);
            keys.send_event(event.build());
        }
        self.key_due = pts.saturating_add(KEY_EVERY_NANOS);
    }

    /// Waits until all frames are encoded, and ends.
    fn complete(self) -> Result<(), EncoderError> {
        // It fails only when the encoder has stopped; then the bus has the reason.
        let _ = self.entry.end_of_stream();
        let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
        let wait = gst::ClockTime::from_seconds(FINISH_WAIT_MAX.as_secs());
        let message = self.bus.timed_pop_filtered(wait, &kinds);
        match message.as_ref().map(|message| message.view()) {
            Some(gst::MessageView::Eos(_)) => Ok(()),
            Some(gst::MessageView::Error(error)) => Err(self.cause(error)),
            _ => Err(EncoderError::NotEnded(FINISH_WAIT_MAX)),
        }
    }

    fn error(&self, wait: Duration) -> Option<EncoderError> {
        let wait = gst::ClockTime::from_mseconds(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        let message = self.bus.timed_pop_filtered(wait, &[gst::MessageType::Error]);
        match message.as_ref().map(|message| message.view()) {
            Some(gst::MessageView::Error(error)) => Some(self.cause(error)),
            _ => self.entrance.error().map(EncoderError::Recorder),
        }
    }

    /// Returns the cause of an error. If the file has failed, that is the cause, because the encoder has only lost its
    /// consumer.
    fn cause(&self, error: &gst::message::Error) -> EncoderError {
        let encoder = || EncoderError::Failed(error.error().message().to_owned());
        self.entrance.error().map_or_else(encoder, EncoderError::Recorder)
    }
}

impl Pace {
    /// Returns how far to look ahead after a frame that comes `interval` after the one before it; `now` is the
    /// lookahead of the running encoder.
    fn lookahead(&mut self, interval: u64, now: Option<u32>) -> u32 {
        *self = match interval <= SHORT_INTERVAL_NANOS {
            true => Self { short: self.short.saturating_add(1), long: 0 },
            false => Self { short: 0, long: self.long.saturating_add(1) },
        };
        match now {
            None if self.long > 0 => 0,
            None => LOOKAHEAD_FRAMES,
            Some(0) if self.short >= SHORT_INTERVALS_MIN => LOOKAHEAD_FRAMES,
            Some(_) if self.long >= LONG_INTERVALS_MIN => 0,
            Some(now) => now,
        }
    }
}

/// Returns callbacks that send coded frames to the recorder.
fn record(entrance: RecorderSender) -> app::AppSinkCallbacks {
    let mut caps: Option<gst::Caps> = None;
    let callbacks = app::AppSinkCallbacks::builder().new_sample(move |exit| {
        let sample = exit.pull_sample().map_err(|_| gst::FlowError::Eos)?;
        if sample.caps() != caps.as_deref() {
            let config = sample.caps().and_then(config_of).ok_or(gst::FlowError::NotNegotiated)?;
            caps = sample.caps_owned();
            send(&entrance, RecorderMessage::Config(config))?;
        }
        let frame = frame_of(&sample).ok_or(gst::FlowError::Error)?;
        send(&entrance, RecorderMessage::Frame(frame))
    });
    callbacks.build()
}

fn send(entrance: &RecorderSender, coded: RecorderMessage) -> Result<gst::FlowSuccess, gst::FlowError> {
    if entrance.send(coded) { Ok(gst::FlowSuccess::Ok) } else { Err(gst::FlowError::Error) }
}

/// Returns the decoder's configuration, which the parser puts into the caps.
fn config_of(caps: &gst::CapsRef) -> Option<Vec<u8>> {
    let data = caps.structure(0)?.get::<gst::Buffer>("codec_data").ok()?;
    Some(data.map_readable().ok()?.to_vec())
}

/// Converts a coded sample. Without B-frames frames are coded in presentation order. Encoders shift times, and the
/// segment has the offset.
fn frame_of(sample: &gst::Sample) -> Option<CodedFrame> {
    let buffer = sample.buffer()?;
    let segment = sample.segment()?.downcast_ref::<gst::ClockTime>()?;
    let time = segment.to_running_time(buffer.pts()?)?.nseconds();
    let ticks = time.mul_div_round(u64::from(TIMESCALE), 1_000_000_000)?;
    let is_key = !buffer.flags().contains(gst::BufferFlags::DELTA_UNIT);
    Some(CodedFrame { ticks, is_key, bytes: buffer.map_readable().ok()?.to_vec() })
}

/// Creates elements that scale frames of another size, colour or pixel aspect ratio to those of the file, with black
/// borders; others pass unchanged.
fn scaler() -> Result<[gst::Element; 3], GstError> {
    let new = |element| make(element, "gstreamer1.0-plugins-base");
    let [convert, scale, only] = [new("videoconvert")?, new("videoscale")?, new("capsfilter")?];
    scale.set_property("add-borders", true);
    Ok([convert, scale, only])
}

impl Drop for Encoding {
    fn drop(&mut self) {
        // While stopping, GStreamer waits for the thread that sends to the recorder, which may wait for the disk.
        self.entrance.close();
        // Stopping cannot fail, and an error would have no consequence here.
        let _ = self.pipeline.set_state(gst::State::Null);
    }
}

impl Times {
    /// Returns the time at which the file shows a frame of `pts`, and its duration.
    fn place(&mut self, pts: u64, clock: PtsClock) -> (u64, u64) {
        // The monotonic clock began when the machine started; the file begins with its first frame.
        if self.last.is_none() && clock == PtsClock::Monotonic {
            self.shift = -i128::from(pts);
        }
        let shifted = i128::from(pts) + self.shift;
        let earliest = self.last.map_or(0, |last| i128::from(last) + 1);
        let placed = if shifted >= earliest {
            shifted
        } else {
            let after = self
                .last
                .map_or(0, |last| last.saturating_add(self.interval.unwrap_or(INTERVAL_DEFAULT_NANOS)));
            self.shift += i128::from(after) - shifted;
            i128::from(after)
        };
        let placed = u64::try_from(placed).unwrap_or(u64::MAX);
        if let Some(last) = self.last.replace(placed) {
            self.interval = Some(placed.saturating_sub(last));
        }
        (placed, self.interval.unwrap_or(INTERVAL_DEFAULT_NANOS))
    }
}

/// Adds the layout to a buffer: GStreamer would assume that I420 rows are padded to four bytes, and these are not.
fn add_layout(buffer: &mut gst::BufferRef, frame: &FrameDesc) {
    let planes = &frame.planes[..frame.format.planes()];
    let offsets: Vec<usize> = planes.iter().map(|plane| plane.offset).collect();
    let strides: Vec<i32> =
        planes.iter().map(|plane| i32::try_from(plane.stride).expect("a row is short")).collect();
    let flags = video::VideoFrameFlags::empty();
    let (width, height) = (frame.width, frame.height);
    video::VideoMeta::add_full(buffer, flags, video::VideoFormat::I420, width, height, &offsets, &strides)
        .expect("the buffer was allocated for this layout");
}

impl Shape {
    /// Returns the caps of the format. They have no frame rate, because frames may have been dropped before.
    fn caps(&self) -> Option<gst::Caps> {
        let matrix = match self.colour.matrix {
            ColorMatrix::Bt601 => video::VideoColorMatrix::Bt601,
            ColorMatrix::Bt2020 => video::VideoColorMatrix::Bt2020,
            _ => video::VideoColorMatrix::Bt709,
        };
        let range = match self.colour.range {
            ColorRange::Limited => video::VideoColorRange::Range16_235,
            ColorRange::Full => video::VideoColorRange::Range0_255,
        };
        let primaries = match self.colour.matrix {
            ColorMatrix::Bt601 => video::VideoColorPrimaries::Smpte170m,
            ColorMatrix::Bt2020 => video::VideoColorPrimaries::Bt2020,
            _ => video::VideoColorPrimaries::Bt709,
        };
        let transfer = video::VideoTransferFunction::Bt709;
        let colorimetry = video::VideoColorimetry::new(range, matrix, transfer, primaries);
        let term = |term: u32| i32::try_from(term).expect("a ratio's terms have 16 bits");
        let info = video::VideoInfo::builder(video::VideoFormat::I420, self.width, self.height)
            .fps(gst::Fraction::new(0, 1))
            .par(gst::Fraction::new(term(self.aspect.width), term(self.aspect.height)))
            .colorimetry(&colorimetry);
        info.build().ok()?.to_caps().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_kept_until_they_jump_back() {
        let mut times = Times::default();
        let seen: Vec<u64> =
            [5, 45, 85, 5, 45, 45].iter().map(|&pts| times.place(pts, PtsClock::Media).0).collect();
        assert_eq!(seen, [5, 45, 85, 125, 165, 205]);
    }
}
