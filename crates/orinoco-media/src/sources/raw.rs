use std::fmt;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::Duration;

use orinoco_core::{Clock, ColorMatrix, ColorRange, Diagnosis, FrameDesc, PixelFormat, Pts, codes};
use orinoco_pipeline::{
    Frame, OwnedSlot, PixelAspect, Poll, Receiver, Sender, Slot, SlotPool, Source, SourceError, channel,
};
use orinoco_uri::{Rate, RawLayout, RawVideo, SourceKind, SourceUri};

#[cfg(test)]
use super::SourceSettings;
#[cfg(test)]
use super::suite::{Reopened, Sample, Samples};
use super::{SourceDescriptor, no_check, no_files};
use crate::pace::{Pacer, pause};
use crate::slots::{SLOTS_MAX, SourceNeeds, raw_slots};

/// Maximum width and height of Y4M video, which its header declares.
const Y4M_SIDE_MAX: u32 = 8192;
/// Frame rate of Y4M video whose header has none.
const Y4M_RATE: Rate = Rate::new(25, 1).expect("neither term is zero");
/// Maximum length of a Y4M header line, in bytes. FFmpeg's have about 100.
const LINE_MAX: u64 = 1024;
/// Wait of the reading thread for a slot, after which it looks whether anybody still wants one.
const SLOT_WAIT: Duration = Duration::from_millis(100);
/// Wait before it asks a non-blocking input again.
const RETRY_WAIT: Duration = Duration::from_millis(2);

/// Whether a source uses standard input. There is only one, and bytes that one source has read are lost for others.
static STDIN_TAKEN: AtomicBool = AtomicBool::new(false);

/// Source of uncompressed video from a pipe: packed frames one after another, or YUV4MPEG2.
///
/// It reads in a thread of its own, because a read from a pipe has no time limit. The thread starts at the first
/// [`Source::open`] and survives every reopening, so that a pause in the input loses no frame. It ends with the input
/// or, once the source is dropped, with the next byte that arrives.
pub struct RawSource {
    input: Input,
    video: RawVideo,
    shown: String,
    clock: Arc<dyn Clock>,
    pacer: Pacer,
    /// Frame that is already read, but not due yet.
    early: Option<Frame>,
    dropped: Arc<AtomicBool>,
    /// Whether the reading thread waits for a free slot.
    held_up: Arc<AtomicBool>,
    /// Number of slots; 0 before the reading thread knows.
    slots: Arc<AtomicUsize>,
    /// Capacity of the stream's ring, in frames.
    queue_frames: usize,
}

enum Input {
    Stdin,
    Reader(Box<dyn Read + Send>),
    Running(Receiver<ReaderMessage>),
    Over,
}

/// Report of the reading thread. Its channel holds as many steps as there are slots, and one for the end.
enum ReaderMessage {
    Frame(Frame),
    End,
    Failed(RawError),
}

/// Form of a frame, and how many come in a second.
#[derive(Clone, Copy)]
struct Stream {
    desc: FrameDesc,
    rate: Rate,
    aspect: PixelAspect,
}

impl RawSource {
    /// Creates the source of `video` on standard input, called `uri` in messages. Nothing is read yet.
    pub fn stdin(video: RawVideo, uri: &SourceUri, clock: Arc<dyn Clock>) -> Self {
        Self::new(Input::Stdin, video, uri.to_string(), clock)
    }

    /// Creates the source of `video` in `reader`, called `name` in messages.
    pub fn from_reader(
        reader: Box<dyn Read + Send>,
        video: RawVideo,
        name: &str,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self::new(Input::Reader(reader), video, name.to_owned(), clock)
    }

    fn new(input: Input, video: RawVideo, shown: String, clock: Arc<dyn Clock>) -> Self {
        let pacer = Pacer::new(video.pace, clock.clone());
        let (dropped, held_up, slots) = (Arc::default(), Arc::default(), Arc::default());
        Self {
            input,
            video,
            shown,
            clock,
            pacer,
            early: None,
            dropped,
            held_up,
            slots,
            queue_frames: SLOTS_MAX,
        }
    }

    /// Sets the capacity of the stream's ring: with a short one the source needs fewer slots.
    pub fn with_ring(mut self, queue_frames: usize) -> Self {
        self.queue_frames = queue_frames;
        self
    }

    fn failed(&self, error: &RawError) -> SourceError {
        SourceError::Permanent(error.about(&self.shown))
    }

    fn start(&mut self, reader: Box<dyn Read + Send>) -> Result<(), RawError> {
        let (sender, steps) = channel(SLOTS_MAX + 1, Arc::clone(&self.clock));
        let reading = ReadingThread {
            input: BufReader::new(reader),
            clock: Arc::clone(&self.clock),
            dropped: Arc::clone(&self.dropped),
            held_up: Arc::clone(&self.held_up),
            slots: Arc::clone(&self.slots),
            queue_frames: self.queue_frames,
        };
        let layout = self.video.layout;
        let spawned = thread::Builder::new().name("raw video".to_owned()).spawn(move || {
            reading.run(layout, &sender);
        });
        spawned.map_err(RawError::NoThread)?;
        self.input = Input::Running(steps);
        Ok(())
    }

    /// Delivers the frame if it is due within `wait`.
    fn deliver(&mut self, mut frame: Frame, wait: Duration) -> Poll {
        if !self.pacer.wait(frame.desc.pts, wait) {
            self.early = Some(frame);
            return Poll::Waiting;
        }
        // Until now it waited in the pipe, like the frames of a file on the disk.
        frame.arrived = self.clock.now();
        Poll::Frame(frame)
    }
}

impl Source for RawSource {
    /// Returns at once.
    fn open(&mut self) -> Result<(), SourceError> {
        match std::mem::replace(&mut self.input, Input::Over) {
            Input::Stdin => {
                claim_stdin().map_err(|error| self.failed(&error))?;
                self.start(Box::new(io::stdin())).map_err(|error| self.failed(&error))?;
            }
            Input::Reader(reader) => self.start(reader).map_err(|error| self.failed(&error))?,
            other => self.input = other,
        }
        Ok(())
    }

    fn next(&mut self, wait: Duration) -> Result<Poll, SourceError> {
        if let Some(frame) = self.early.take() {
            return Ok(self.deliver(frame, wait));
        }
        let Input::Running(steps) = &self.input else { return Ok(Poll::End) };
        let begin = self.clock.now();
        let step = match steps.receive(Some(begin + wait)) {
            Ok(step) => step,
            Err(RecvTimeoutError::Timeout) if self.held_up.load(Ordering::Relaxed) => {
                return Ok(Poll::Waiting);
            }
            Err(RecvTimeoutError::Timeout) => return Ok(Poll::Pending),
            Err(RecvTimeoutError::Disconnected) => ReaderMessage::End,
        };
        let left = wait.saturating_sub(self.clock.now().since(begin));
        match step {
            ReaderMessage::Frame(frame) => return Ok(self.deliver(frame, left)),
            ReaderMessage::End => {}
            ReaderMessage::Failed(error) => {
                self.input = Input::Over;
                return Err(self.failed(&error));
            }
        }
        self.input = Input::Over;
        Ok(Poll::End)
    }

    /// Keeps the input, because bytes that were read cannot be read again.
    fn close(&mut self) {}

    fn frames_max(&self) -> Option<usize> {
        Some(self.slots.load(Ordering::Relaxed)).filter(|slots| *slots > 0)
    }
}

/// Takes standard input for one source.
fn claim_stdin() -> Result<(), RawError> {
    if io::stdin().is_terminal() {
        return Err(RawError::Terminal);
    }
    if STDIN_TAKEN.swap(true, Ordering::Relaxed) {
        return Err(RawError::Taken);
    }
    Ok(())
}

/// Reason why no video is read from a pipe.
#[derive(Debug)]
enum RawError {
    /// Standard input is a terminal: nothing is piped into it.
    Terminal,
    /// Another source reads standard input.
    Taken,
    /// The operating system starts no thread that reads.
    NoThread(io::Error),
    /// The input ended before the first frame.
    Empty,
    /// The input ended within frame `number`, of which it has `read` of `wanted` bytes.
    Short { number: u64, read: usize, wanted: usize },
    /// The input cannot be read any more.
    Broken(io::Error),
    /// The input does not begin like Y4M video.
    NotY4m,
    /// The header of the Y4M video is not accepted.
    Y4mHead(Y4mError),
    /// A frame of Y4M video has no line before it.
    NoFrameMark,
}

impl From<io::Error> for RawError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

impl RawError {
    /// Converts the error to a fault of the source that is called `shown` in messages.
    fn about(&self, shown: &str) -> Diagnosis {
        let fault = |code, cause: &str, next: &str| Diagnosis::new(code, shown, cause, next);
        let unopened = |cause: &str, next: &str| fault(&codes::SOURCE_OPEN, cause, next);
        let feeder = "check the command that feeds it";
        match self {
            Self::Terminal => {
                unopened("nothing is piped into standard input", "pipe raw video into this command")
            }
            Self::Taken => {
                unopened("another stream reads standard input", "use stdin:// for one stream only")
            }
            Self::NoThread(error) => {
                unopened(&format!("no thread can be started ({error})"), "free some memory or processes")
            }
            Self::Empty => fault(&codes::SOURCE_NO_VIDEO, "it ended before the first frame", feeder),
            Self::Short { number, read, wanted } => fault(
                &codes::SOURCE_TRUNCATED,
                &format!("its last frame (number {number}) has {read} of {wanted} bytes"),
                "check format, width and height, and that the command that feeds it was not cut off",
            ),
            Self::Broken(error) => {
                fault(&codes::SOURCE_DECODE, &format!("it cannot be read ({error})"), feeder)
            }
            Self::NotY4m => unopened(
                "it is not Y4M: it does not begin with YUV4MPEG2",
                "feed it from `ffmpeg -f yuv4mpegpipe -`, or say the format, width and height",
            ),
            Self::Y4mHead(error) => {
                unopened(&error.to_string(), "feed it from `ffmpeg -pix_fmt yuv420p -f yuv4mpegpipe -`")
            }
            Self::NoFrameMark => {
                fault(&codes::SOURCE_DECODE, "a Y4M frame does not begin with FRAME", feeder)
            }
        }
    }
}

impl Drop for RawSource {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::Relaxed);
    }
}

/// State of the reading thread.
struct ReadingThread {
    input: BufReader<Box<dyn Read + Send>>,
    clock: Arc<dyn Clock>,
    dropped: Arc<AtomicBool>,
    held_up: Arc<AtomicBool>,
    slots: Arc<AtomicUsize>,
    queue_frames: usize,
}

impl ReadingThread {
    fn run(mut self, layout: RawLayout, steps: &Sender<ReaderMessage>) {
        let last = match self.read_all(layout, steps) {
            Ok(()) => ReaderMessage::End,
            Err(error) => ReaderMessage::Failed(error),
        };
        // Sending fails only when the receiver is gone.
        let _ = steps.send(last);
    }

    /// Reads to the end, or until the source is dropped.
    fn read_all(&mut self, layout: RawLayout, steps: &Sender<ReaderMessage>) -> Result<(), RawError> {
        let stream = match layout {
            RawLayout::Frames(frames) => {
                Stream { desc: frames.desc(), rate: frames.rate, aspect: PixelAspect::SQUARE }
            }
            RawLayout::Y4m => self.read_y4m_head()?,
        };
        let bytes = stream.desc.bytes_needed();
        let slots = raw_slots(self.queue_frames, bytes);
        let pool = SlotPool::new(slots, bytes);
        self.slots.store(slots, Ordering::Relaxed);
        for number in 0.. {
            let Some(slot) = self.take_slot(&pool) else { return Ok(()) };
            if layout == RawLayout::Y4m && !self.read_y4m_frame_head()? {
                return check_any(number);
            }
            let Some(frame) = self.read_frame(slot, &stream, number)? else {
                return match layout {
                    RawLayout::Frames(_) => check_any(number),
                    RawLayout::Y4m => Err(RawError::Short { number, read: 0, wanted: bytes }),
                };
            };
            if steps.send(ReaderMessage::Frame(frame)).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn take_slot(&self, pool: &SlotPool) -> Option<OwnedSlot> {
        let mut wait = Duration::ZERO;
        while !self.dropped.load(Ordering::Relaxed) {
            if let Some(slot) = pool.take(wait, &*self.clock) {
                self.held_up.store(false, Ordering::Relaxed);
                return Some(slot);
            }
            self.held_up.store(true, Ordering::Relaxed);
            wait = SLOT_WAIT;
        }
        None
    }

    /// Reads frame `number`; `None` at the end of the input.
    fn read_frame(
        &mut self,
        mut slot: OwnedSlot,
        stream: &Stream,
        number: u64,
    ) -> Result<Option<Frame>, RawError> {
        let wanted = slot.bytes.len();
        let read = fill(&mut self.input, &mut slot.bytes, &self.dropped, &*self.clock)?;
        if read == 0 {
            return Ok(None);
        }
        if read < wanted {
            return Err(RawError::Short { number, read, wanted });
        }
        let desc = FrameDesc { pts: Pts(stream.rate.nanos(number)), ..stream.desc };
        let frame = Frame::new(desc, Slot::Owned(slot), self.clock.now());
        let mut frame = frame.expect("slots are as large as the stream's frames");
        frame.aspect = stream.aspect;
        Ok(Some(frame))
    }

    fn read_y4m_head(&mut self) -> Result<Stream, RawError> {
        let line = self.read_line()?.ok_or(RawError::Empty)?;
        let text = line.strip_prefix("YUV4MPEG2").ok_or(RawError::NotY4m)?;
        parse_y4m_head(text).map_err(RawError::Y4mHead)
    }

    /// Reads the line before a frame; `false` at the end of the input.
    fn read_y4m_frame_head(&mut self) -> Result<bool, RawError> {
        match self.read_line()? {
            None => Ok(false),
            Some(line) if line == "FRAME" || line.starts_with("FRAME ") => Ok(true),
            Some(_) => Err(RawError::NoFrameMark),
        }
    }

    /// Reads a line without its end; bytes that are not text are replaced. Returns `None` at the end of the input. A
    /// line without an end, or longer than any header, is returned as far as it was read.
    fn read_line(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        loop {
            let left = LINE_MAX.saturating_sub(line.len() as u64);
            match self.input.by_ref().take(left).read_until(b'\n', &mut line) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.dropped.load(Ordering::Relaxed) {
                        return Ok(None);
                    }
                    pause(RETRY_WAIT, &*self.clock);
                }
                Err(error) => return Err(error),
                Ok(_) => break,
            }
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if line.is_empty() {
            return Ok(None);
        }
        Ok(Some(String::from_utf8_lossy(&line).into_owned()))
    }
}

/// Reason why a Y4M header is not accepted.
#[derive(Debug, PartialEq, Eq)]
enum Y4mError {
    /// The width or height, by this `name`, is not a number from 1 to [`Y4M_SIDE_MAX`].
    Side { name: &'static str, value: String },
    /// The frames have this format, not 8-bit 4:2:0.
    Format(String),
    /// The width or the height is missing.
    NoSize,
}

impl fmt::Display for Y4mError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Side { name, value } => {
                write!(f, "its header has the {name} `{value}`, not 1 to {Y4M_SIDE_MAX} pixels")
            }
            Self::Format(format) => write!(f, "its frames are `{format}`, not 8-bit 4:2:0"),
            Self::NoSize => f.write_str("its header has no width and height"),
        }
    }
}

/// Parses the fields after `YUV4MPEG2`: ` W640 H480 F30:1 A1:1 C420jpeg XCOLORRANGE=FULL`, in any order.
fn parse_y4m_head(text: &str) -> Result<Stream, Y4mError> {
    let side = |name: &'static str, text: &str| {
        let number = text.parse().ok().filter(|number| (1..=Y4M_SIDE_MAX).contains(number));
        number.ok_or_else(|| Y4mError::Side { name, value: text.to_owned() })
    };
    let mut aspect = PixelAspect::SQUARE;
    let (mut width, mut height, mut rate, mut format, mut range) =
        (None, None, Y4M_RATE, PixelFormat::I420, ColorRange::Limited);
    for field in text.split_ascii_whitespace() {
        if let Some(text) = field.strip_prefix('W') {
            width = Some(side("width", text)?);
        } else if let Some(text) = field.strip_prefix('H') {
            height = Some(side("height", text)?);
        } else if let Some(text) = field.strip_prefix('F') {
            // F0:0 means that the rate is unknown.
            rate = parse_y4m_rate(text).unwrap_or(rate);
        } else if let Some((wide, high)) = field.strip_prefix('A').and_then(|text| text.split_once(':')) {
            // A0:0 means that the aspect ratio is unknown.
            let term = |text: &str| text.parse().unwrap_or(0);
            aspect = PixelAspect::new(term(wide), term(high));
        } else if let Some(text) = field.strip_prefix('C') {
            format = match text {
                "420" | "420jpeg" | "420mpeg2" | "420paldv" => PixelFormat::I420,
                "mono" => PixelFormat::Gray8,
                _ => return Err(Y4mError::Format(text.to_owned())),
            };
        } else if field == "XCOLORRANGE=FULL" {
            range = ColorRange::Full;
        }
    }
    let (Some(width), Some(height)) = (width, height) else {
        return Err(Y4mError::NoSize);
    };
    let mut desc = FrameDesc::packed(format, width, height);
    if format.is_yuv() {
        (desc.matrix, desc.range) = (ColorMatrix::of_untagged(height), range);
    }
    Ok(Stream { desc, rate, aspect })
}

fn parse_y4m_rate(text: &str) -> Option<Rate> {
    let (frames, seconds) = text.split_once(':')?;
    Rate::from_terms(frames, seconds)
}

/// Checks that there was at least one frame before the end.
fn check_any(frames: u64) -> Result<(), RawError> {
    if frames > 0 { Ok(()) } else { Err(RawError::Empty) }
}

/// Fills `buffer` up to the end of the input, or until the source is dropped.
fn fill(
    input: &mut impl Read,
    buffer: &mut [u8],
    dropped: &AtomicBool,
    clock: &dyn Clock,
) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Another program that shares our standard input may have made it non-blocking.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if dropped.load(Ordering::Relaxed) {
                    break;
                }
                pause(RETRY_WAIT, clock);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// `stdin://`.
pub(super) static STDIN: SourceDescriptor = SourceDescriptor {
    scheme: None,
    opens: |uri| matches!(uri.kind(), SourceKind::Stdin(_)),
    needs: |uri, queue_frames| match video_of(uri).layout {
        RawLayout::Frames(frames) => {
            let bytes = frames.desc().bytes_needed();
            SourceNeeds::of_slots(raw_slots(queue_frames, bytes), bytes)
        }
        RawLayout::Y4m => SourceNeeds::uncounted("frames of the size in the stream's header"),
    },
    check: no_check,
    files: no_files,
    make: |uri, settings| {
        let source = RawSource::stdin(video_of(uri), uri, settings.clock);
        Ok(Box::new(source.with_ring(settings.queue_frames)))
    },
    #[cfg(test)]
    samples,
};

fn video_of(uri: &SourceUri) -> RawVideo {
    let SourceKind::Stdin(video) = *uri.kind() else { unreachable!("{uri} is standard input") };
    video
}

/// Raw video from memory: the test's own standard input is not ours. What was read is gone, so it goes on.
#[cfg(test)]
fn samples(_: &std::path::Path) -> Samples {
    let from_memory = |uri: &SourceUri, settings: SourceSettings<'_>| -> Result<Box<dyn Source>, Diagnosis> {
        let bytes = io::Cursor::new(vec![0; 40 * 16 * 8 * 3 / 2]);
        let source = RawSource::from_reader(Box::new(bytes), video_of(uri), "memory", settings.clock);
        Ok(Box::new(source.with_ring(settings.queue_frames)))
    };
    let sample = Sample::new("stdin://?format=i420&width=16&height=8", 40);
    Samples::Here(vec![Sample { make: Some(from_memory), reopened: Reopened::Continues, ..sample }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_gives_the_shape_of_pixels_where_it_is_known() {
        let aspect = |text: &str| parse_y4m_head(text).expect("a header").aspect;
        assert_eq!(aspect(" W720 H576 F25:1 A64:45"), PixelAspect::new(64, 45));
        for unknown in [" W4 H2", " W4 H2 A0:0", " W4 H2 A1", " W4 H2 Awide:1"] {
            assert_eq!(aspect(unknown), PixelAspect::SQUARE, "{unknown}");
        }
    }
}
