//! Annotated video: frames, drawn upon by the caller, as H.264 or H.265 in MP4.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gstreamer as gst;
use gstreamer::prelude::*;
use gstreamer_app as app;
use gstreamer_video as video;
use orinoco_core::{ColorMatrix, ColorRange, Diagnosis, FrameDesc, PixelFormat, Pts, PtsClock, codes};
use orinoco_pipeline::{Outcome, Sink};

use crate::Codec;
use crate::gst::{CONVERTER, NVMM, chain, init, make, works};
use crate::i420::{self, Colour};

/// Draws on a picture: packed I420, width, height, what it shows.
pub type Draw = Box<dyn FnMut(&mut [u8], u32, u32, Shown<'_>) + Send>;

/// What a picture shows.
#[derive(Clone, Copy, Debug)]
pub enum Shown<'a> {
    /// A frame; its pixels are there already.
    Outcome(&'a Outcome),
    /// That the source has delivered nothing for so long; the picture is black.
    Offline(Duration),
}

/// Threads of the encoder. Inference needs the cores more, and one thread encodes several streams in real time.
const ENCODER_THREADS: u32 = 1;
/// x264's constant rate factor: visually near the source, at about a quarter of the bits of the default.
const QUANTIZER: u32 = 23;
/// Pictures that the encoder looks ahead; it holds each of them in memory.
const LOOKAHEAD_PICTURES: i32 = 10;
/// Pictures that may wait for the encoder.
const QUEUE_PICTURES_MAX: u64 = 4;
/// Ticks a second of the video track: exact for 24, 25, 30, 50, 60 and NTSC rates.
const TIMESCALE: u32 = 90_000;
/// The longest that one picture waits for room. An encoder that took none for so long has stopped.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long one look for room waits.
const ROOM_STEP: Duration = Duration::from_millis(5);
/// The longest that the encoder may take to end the file: it has a lookahead to encode and an index to write.
const FINISH_WAIT_MAX: Duration = Duration::from_secs(30);
/// The duration of a picture of which no successor told it.
const INTERVAL_DEFAULT_NANOS: u64 = 40_000_000;

/// Bits that a picture element gets from encoders that are told a rate: about x264's at the quantizer above.
const BITS_PER_PIXEL: f64 = 0.1;
/// The rate that those count with.
const RATE_NOMINAL: f64 = 30.0;

/// An element that encodes.
#[derive(Debug)]
struct Encoder {
    codec: Codec,
    element: &'static str,
    package: &'static str,
    /// It reads NVIDIA's memory, and is used where it was found to work.
    hardware: bool,
}

const fn software(codec: Codec, element: &'static str, package: &'static str) -> Encoder {
    Encoder { codec, element, package, hardware: false }
}

const fn hardware(codec: Codec, element: &'static str) -> Encoder {
    Encoder { codec, element, package: "nvidia-l4t-gstreamer", hardware: true }
}

/// All of them, best first.
const ENCODERS: [Encoder; 5] = [
    hardware(Codec::H264, "nvv4l2h264enc"),
    hardware(Codec::H265, "nvv4l2h265enc"),
    software(Codec::H264, "x264enc", "gstreamer1.0-plugins-ugly"),
    software(Codec::H264, "openh264enc", "gstreamer1.0-plugins-bad"),
    software(Codec::H265, "x265enc", "gstreamer1.0-plugins-bad"),
];

impl Encoder {
    /// The best one that is here. The error says which package has the first that needs no hardware.
    fn choose(codec: Codec) -> Result<&'static Self, String> {
        let all = || ENCODERS.iter().filter(|encoder| encoder.codec == codec);
        let usable = |encoder: &&Self| match encoder.hardware {
            true => works(encoder.element) && works(CONVERTER),
            false => gst::ElementFactory::find(encoder.element).is_some(),
        };
        all().find(usable).ok_or_else(|| {
            let first = all().find(|encoder| !encoder.hardware).expect("every codec has one");
            format!("install the Debian package {}", first.package)
        })
    }

    /// The elements from packed I420 to the coded stream.
    fn make(&self, picture: &FrameDesc, shown: &str) -> Result<Vec<gst::Element>, Diagnosis> {
        let new = |element, package| make(element, package, &codes::SINK_OPEN, shown);
        let encoder = new(self.element, self.package)?;
        self.tune(&encoder, picture);
        let parser = match self.codec {
            Codec::H264 => "h264parse",
            Codec::H265 => "h265parse",
        };
        let parse = new(parser, "gstreamer1.0-plugins-bad")?;
        if !self.hardware {
            return Ok(vec![encoder, parse]);
        }
        let upload = new(CONVERTER, self.package)?;
        let only = new("capsfilter", "gstreamer1.0-plugins-base")?;
        let caps = gst::Caps::builder("video/x-raw").features([NVMM]).field("format", "NV12").build();
        only.set_property("caps", caps);
        Ok(vec![upload, only, encoder, parse])
    }

    fn tune(&self, encoder: &gst::Element, picture: &FrameDesc) {
        let pixels = f64::from(picture.width) * f64::from(picture.height);
        match self.element {
            "x264enc" => {
                encoder.set_property_from_str("speed-preset", "veryfast");
                encoder.set_property_from_str("pass", "qual");
                encoder.set_property("quantizer", QUANTIZER);
                encoder.set_property("threads", ENCODER_THREADS);
                encoder.set_property("rc-lookahead", LOOKAHEAD_PICTURES);
                // Without B-frames decoding order is presentation order, and the file needs no edit list.
                encoder.set_property("bframes", 0u32);
            }
            "x265enc" => {
                encoder.set_property_from_str("speed-preset", "ultrafast");
                // It does not start without a rate, and ours is open.
                let options = format!(
                    "fps={RATE_NOMINAL}:bframes=0:pools={ENCODER_THREADS}:rc-lookahead={LOOKAHEAD_PICTURES}:crf={QUANTIZER}"
                );
                encoder.set_property("option-string", options);
            }
            "openh264enc" => encoder.set_property("multi-thread", ENCODER_THREADS),
            // NVIDIA's make no B-frames unless told to.
            _ => encoder
                .set_property_from_str("bitrate", &format!("{:.0}", pixels * RATE_NOMINAL * BITS_PER_PIXEL)),
        }
    }
}

/// Writes annotated MP4. Presentation times are kept; where they jump back, as they do when a camera reconnects, the
/// file goes on behind its last picture.
pub struct Mp4Sink {
    path: PathBuf,
    draw: Draw,
    encoder: &'static Encoder,
    encoding: Option<Encoding>,
}

/// A running encoder, for pictures of one size and colour.
struct Encoding {
    pipeline: gst::Pipeline,
    entry: app::AppSrc,
    bus: gst::Bus,
    source: FrameDesc,
    picture: FrameDesc,
    /// The source's time of its latest frame.
    latest: Pts,
    times: Times,
    /// Nanoseconds that the last picture is shown for.
    interval: Arc<AtomicU64>,
}

/// Presentation times that always advance.
#[derive(Default)]
struct Times {
    shift: i128,
    last: Option<u64>,
    interval: Option<u64>,
}

impl Mp4Sink {
    /// Creates the file at `path` and checks that an encoder is there; `draw` is called for each picture.
    pub fn create(path: &Path, codec: Codec, draw: Draw) -> Result<Self, Diagnosis> {
        let shown = path.display().to_string();
        init(&codes::SINK_OPEN, &shown)?;
        let encoder = Encoder::choose(codec).map_err(|next| {
            Diagnosis::new(&codes::SINK_OPEN, &shown, format!("no {codec:?} encoder is installed"), next)
        })?;
        make("mp4mux", "gstreamer1.0-plugins-good", &codes::SINK_OPEN, &shown)?;
        encoder.make(&FrameDesc::packed(PixelFormat::I420, 2, 2), &shown)?;
        File::create(path).map_err(|error| {
            let next = "check that the folder exists and that this user may write in it";
            Diagnosis::new(&codes::SINK_OPEN, &shown, error, next)
        })?;
        Ok(Self { path: path.to_owned(), draw, encoder, encoding: None })
    }

    /// The GStreamer element that encodes.
    pub fn encoder(&self) -> &'static str {
        self.encoder.element
    }

    fn start(&self, desc: &FrameDesc, colour: Colour) -> Result<Encoding, Diagnosis> {
        let shown = self.path.display().to_string();
        // 4:2:0 video has even sides; an odd last row or column is left out.
        let (width, height) = (desc.width & !1, desc.height & !1);
        if width == 0 || height == 0 {
            return Err(self.fault("the pictures are too small to encode", "use a larger source"));
        }
        let picture = FrameDesc::packed(PixelFormat::I420, width, height);
        let caps = caps(&picture, colour)
            .ok_or_else(|| self.fault("unknown picture format", "use another source"))?;
        let entry = app::AppSrc::builder().caps(&caps).format(gst::Format::Time).build();
        entry.set_max_bytes(QUEUE_PICTURES_MAX * picture.bytes_needed() as u64);
        let encode = self.encoder.make(&picture, &shown)?;
        let mux = make("mp4mux", "gstreamer1.0-plugins-good", &codes::SINK_OPEN, &shown)?;
        let file = make("filesink", "gstreamer1.0-plugins-base", &codes::SINK_OPEN, &shown)?;
        file.set_property("location", &self.path);
        let pipeline = gst::Pipeline::new();
        let mut elements = vec![entry.upcast_ref()];
        elements.extend(&encode);
        elements.extend([&mux, &file]);
        chain(&pipeline, &elements);
        let interval = Arc::new(AtomicU64::new(INTERVAL_DEFAULT_NANOS));
        for pad in mux.sink_pads() {
            pad.set_property("trak-timescale", TIMESCALE);
            tell_durations(&pad, &interval);
        }
        let bus = pipeline.bus().expect("a pipeline has a bus");
        let _ = pipeline.set_state(gst::State::Playing);
        let (latest, times) = (desc.pts, Times::default());
        Ok(Encoding { pipeline, entry, bus, source: *desc, picture, latest, times, interval })
    }

    fn fault(&self, cause: &str, next: &str) -> Diagnosis {
        Diagnosis::new(&codes::SINK_WRITE, self.path.display(), cause, next)
    }

    fn encode(&mut self, outcome: &Outcome) -> Result<(), Diagnosis> {
        let view = outcome.frame.view();
        let desc = *view.desc();
        if self.encoding.is_none() {
            self.encoding = Some(self.start(&desc, i420::colour_of(&view))?);
        }
        let encoding = self.encoding.as_mut().expect("it was started above");
        if (desc.width, desc.height) != (encoding.source.width, encoding.source.height) {
            let cause = format!(
                "the pictures changed from {}x{} to {}x{}, and an MP4 file has one size",
                encoding.source.width, encoding.source.height, desc.width, desc.height
            );
            return Err(self.fault(&cause, "write another file for the new size"));
        }
        encoding.latest = desc.pts;
        let fits = self.put(desc.pts, desc.clock, |bytes, (width, height), draw| {
            let fits = i420::pack(&view, width as usize, height as usize, bytes);
            draw(bytes, width, height, Shown::Outcome(outcome));
            fits
        })?;
        if fits {
            Ok(())
        } else {
            Err(self.fault("its frames have an unknown pixel format", "use another source"))
        }
    }

    /// Encodes one picture, which `fill` makes; returns what that returns.
    fn put<T>(
        &mut self,
        pts: Pts,
        clock: PtsClock,
        fill: impl FnOnce(&mut [u8], (u32, u32), &mut Draw) -> T,
    ) -> Result<T, Diagnosis> {
        let encoding = self.encoding.as_ref().expect("pictures come after the start");
        let picture = encoding.picture;
        let mut buffer = gst::Buffer::with_size(picture.bytes_needed()).map_err(|_| self.full())?;
        let memory = buffer.make_mut();
        let filled = {
            let mut bytes =
                memory.map_writable().map_err(|_| self.fault("a picture cannot be mapped", "try again"))?;
            fill(&mut bytes, (picture.width, picture.height), &mut self.draw)
        };
        let encoding = self.encoding.as_mut().expect("it is there, see above");
        let (pts, duration) = encoding.times.place(pts.0, clock);
        memory.set_pts(gst::ClockTime::from_nseconds(pts));
        memory.set_duration(gst::ClockTime::from_nseconds(duration));
        encoding.interval.store(duration, Ordering::Relaxed);
        add_layout(memory, &picture);
        let pushed = encoding.push(buffer);
        pushed.map_err(|cause| self.fault(&cause, "check the free space where it is written"))?;
        Ok(filled)
    }

    fn full(&self) -> Diagnosis {
        self.fault("there is no memory for a picture", "free some memory")
    }
}

impl Sink for Mp4Sink {
    /// Encodes the outcome's frame; waits at most 10 s for an encoder that is behind.
    fn write(&mut self, outcome: &Outcome) -> Result<(), Diagnosis> {
        self.encode(outcome)
    }

    /// Shows that there is no picture, where there was one before.
    fn offline(&mut self, silence: Duration) -> Result<(), Diagnosis> {
        let Some(encoding) = &self.encoding else { return Ok(()) };
        let silent_nanos = u64::try_from(silence.as_nanos()).unwrap_or(u64::MAX);
        let (pts, clock) = (Pts(encoding.latest.0.saturating_add(silent_nanos)), encoding.source.clock);
        self.put(pts, clock, |bytes, (width, height), draw| {
            i420::blacken(bytes, width as usize, height as usize);
            draw(bytes, width, height, Shown::Offline(silence));
        })
    }

    /// Ends the file, within 30 s. Without a single frame there is no file.
    fn finish(&mut self) -> Result<Option<PathBuf>, Diagnosis> {
        let Some(encoding) = self.encoding.take() else {
            // Nothing can be done about an empty file that cannot be removed. A device or a pipe stays.
            if self.path.metadata().is_ok_and(|there| there.is_file()) {
                let _ = fs::remove_file(&self.path);
            }
            return Ok(None);
        };
        match encoding.complete() {
            Ok(()) => Ok(Some(self.path.clone())),
            Err(cause) => Err(self.fault(&cause, "check the free space where it is written")),
        }
    }
}

impl Encoding {
    /// Hands a picture over when there is room. Errors are causes.
    fn push(&self, buffer: gst::Buffer) -> Result<(), String> {
        let limit = self.entry.max_bytes();
        let steps = ROOM_WAIT_MAX.as_millis() / ROOM_STEP.as_millis();
        for _ in 0..steps {
            let full = self.entry.current_level_bytes() >= limit;
            let wait = if full { ROOM_STEP } else { Duration::ZERO };
            if let Some(cause) = self.error(wait) {
                return Err(cause);
            }
            if !full {
                return self
                    .entry
                    .push_buffer(buffer)
                    .map(|_| ())
                    .map_err(|_| "the encoder has stopped".to_owned());
            }
        }
        Err(format!("the encoder took no picture for {} s", ROOM_WAIT_MAX.as_secs()))
    }

    fn complete(self) -> Result<(), String> {
        // It fails only when the encoder has stopped, and then the bus says why.
        let _ = self.entry.end_of_stream();
        let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
        let wait = gst::ClockTime::from_seconds(FINISH_WAIT_MAX.as_secs());
        let message = self.bus.timed_pop_filtered(wait, &kinds);
        match message.as_ref().map(|message| message.view()) {
            Some(gst::MessageView::Eos(_)) => Ok(()),
            Some(gst::MessageView::Error(error)) => Err(write_cause(error)),
            _ => Err(format!("the encoder did not end within {} s", FINISH_WAIT_MAX.as_secs())),
        }
    }

    fn error(&self, wait: Duration) -> Option<String> {
        let wait = gst::ClockTime::from_mseconds(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        let message = self.bus.timed_pop_filtered(wait, &[gst::MessageType::Error])?;
        match message.view() {
            gst::MessageView::Error(error) => Some(write_cause(error)),
            _ => None,
        }
    }
}

impl Drop for Encoding {
    fn drop(&mut self) {
        // It cannot fail on the way down, and there would be nothing left to do about it.
        let _ = self.pipeline.set_state(gst::State::Null);
    }
}

impl Times {
    /// The time at which the file shows a frame of `pts`, and for how long.
    fn place(&mut self, pts: u64, clock: PtsClock) -> (u64, u64) {
        // The machine's clock began when it was started, the file begins with its first picture.
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

fn write_cause(error: &gst::message::Error) -> String {
    if error.error().matches(gst::ResourceError::NoSpaceLeft) {
        "there is no space left".to_owned()
    } else {
        format!("it cannot be encoded or written ({})", error.error().message())
    }
}

/// Gives each encoded picture the duration of the one that went in last.
///
/// The muxer measures durations by the next picture's time, but for the last one. `h264parse` makes up one of a nanosecond
/// for video without a fixed rate; players, ours among them, leave out a picture that is shown for no time.
fn tell_durations(pad: &gst::Pad, interval: &Arc<AtomicU64>) {
    let interval = Arc::clone(interval);
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        if let Some(buffer) = info.buffer_mut() {
            let interval = gst::ClockTime::from_nseconds(interval.load(Ordering::Relaxed));
            buffer.make_mut().set_duration(interval);
        }
        gst::PadProbeReturn::Ok
    });
}

/// GStreamer would take I420 rows to be padded to four bytes; ours are not, and the buffer says so.
fn add_layout(buffer: &mut gst::BufferRef, picture: &FrameDesc) {
    let planes = &picture.planes[..picture.format.planes()];
    let offsets: Vec<usize> = planes.iter().map(|plane| plane.offset).collect();
    let strides: Vec<i32> =
        planes.iter().map(|plane| i32::try_from(plane.stride).expect("a row is short")).collect();
    let flags = video::VideoFrameFlags::empty();
    let (width, height) = (picture.width, picture.height);
    video::VideoMeta::add_full(buffer, flags, video::VideoFormat::I420, width, height, &offsets, &strides)
        .expect("the buffer was allocated for this layout");
}

/// The frame rate is left open: frames may have been dropped before they came here.
fn caps(picture: &FrameDesc, colour: Colour) -> Option<gst::Caps> {
    let matrix = match colour.matrix {
        ColorMatrix::Bt601 => video::VideoColorMatrix::Bt601,
        ColorMatrix::Bt2020 => video::VideoColorMatrix::Bt2020,
        _ => video::VideoColorMatrix::Bt709,
    };
    let range = match colour.range {
        ColorRange::Limited => video::VideoColorRange::Range16_235,
        ColorRange::Full => video::VideoColorRange::Range0_255,
    };
    let primaries = match colour.matrix {
        ColorMatrix::Bt601 => video::VideoColorPrimaries::Smpte170m,
        ColorMatrix::Bt2020 => video::VideoColorPrimaries::Bt2020,
        _ => video::VideoColorPrimaries::Bt709,
    };
    let colorimetry =
        video::VideoColorimetry::new(range, matrix, video::VideoTransferFunction::Bt709, primaries);
    let info = video::VideoInfo::builder(video::VideoFormat::I420, picture.width, picture.height)
        .fps(gst::Fraction::new(0, 1))
        .colorimetry(&colorimetry);
    info.build().ok()?.to_caps().ok()
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
