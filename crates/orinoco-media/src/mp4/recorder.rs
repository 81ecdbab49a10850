//! Writes coded frames into the file on a thread of its own, so that a slow disk does not delay the encoder.
//!
//! Each fragment is one write, and once a second the file is synced to the disk. So a file that was not completed has
//! all but its latest frames.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, TrySendError};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use orinoco_core::{Clock, Nanos};
use orinoco_pipeline::{Receiver, Sender, channel};

use super::boxes::{self, CodedFrame, Entry, TIMESCALE, Track};

/// Minimum length of a fragment. It ends at the next key frame after this; key frames are requested every 0.8 s.
const FRAGMENT_TICKS_MIN: u64 = TIMESCALE as u64 / 2;
/// Maximum length of a fragment, which ends here even without a key frame: not every encoder makes them on request.
const FRAGMENT_TICKS_MAX: u64 = TIMESCALE as u64;
/// Maximum time that a frame waits for its fragment to fill. Slightly more than the time between key frames.
const FRAGMENT_WAIT_MAX: Duration = Duration::from_millis(900);
/// Interval at which the file is synced to the disk.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of coded frames that wait for the disk: five seconds of a camera. Beyond it, the encoder and the
/// stages before it wait.
const FRAMES_MAX: usize = 128;
/// Maximum number of fragments in the table at the end of the file: 18 hours, a mebibyte. A longer file has no table,
/// and players search it.
const INDEX_ENTRIES_MAX: usize = 1 << 16;
/// Duration of a frame without a successor.
const INTERVAL_DEFAULT_TICKS: u64 = TIMESCALE as u64 / 25;

/// Message to the recording thread.
#[derive(Debug)]
pub(super) enum RecorderMessage {
    /// Configuration of the decoder.
    Config(Vec<u8>),
    Frame(CodedFrame),
    End,
}

/// Sender to the recording thread. Clones are closed together.
#[derive(Clone, Debug)]
pub(super) struct RecorderSender {
    sender: Sender<RecorderMessage>,
    error: Arc<OnceLock<RecordError>>,
    is_closed: Arc<AtomicBool>,
}

impl RecorderSender {
    /// Sends `coded`, and waits while the disk is behind, until the sender is closed. Returns false if `coded` was not
    /// sent, because the sender is closed or the file has failed.
    pub(super) fn send(&self, mut coded: RecorderMessage) -> bool {
        loop {
            coded = match self.sender.try_send(coded) {
                Ok(()) => return true,
                Err(TrySendError::Disconnected(_)) => return false,
                Err(TrySendError::Full(_)) if self.is_closed.load(Ordering::Relaxed) => return false,
                Err(TrySendError::Full(coded)) => coded,
            };
            self.sender.wait_for_room(None);
        }
    }

    /// Ends the wait of all that send. Frames that fit into the queue are still sent.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.sender.wake_senders();
    }

    /// Returns the reason why the file has failed, if it has.
    pub(super) fn error(&self) -> Option<RecordError> {
        self.error.get().cloned()
    }
}

/// Reason why a file is not completed.
#[derive(Clone, Debug)]
pub(super) enum RecordError {
    /// The disk, or the user's share of it, is full.
    NoSpace,
    /// The file has the maximum size that this process may write.
    FileTooLarge,
    /// The encoder has changed its parameters, for which the head of the file was written.
    OtherParameters,
    /// Writing failed for another reason.
    Io(Arc<io::Error>),
    /// The rest of the file was not written within this time.
    Stuck(Duration),
}

impl From<io::Error> for RecordError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::NoSpace,
            ErrorKind::FileTooLarge => Self::FileTooLarge,
            _ => Self::Io(Arc::new(error)),
        }
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSpace => f.write_str("there is no space left"),
            Self::FileTooLarge => f.write_str("the file may not become larger (see `ulimit -f`)"),
            Self::OtherParameters => {
                f.write_str("it cannot be written (the encoder has changed its parameters)")
            }
            Self::Io(error) => write!(f, "it cannot be written ({error})"),
            Self::Stuck(waited) => {
                write!(f, "the rest of the file was not written within {} s", waited.as_secs())
            }
        }
    }
}

/// File that is being recorded.
pub(super) struct Recorder {
    entrance: RecorderSender,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
    clock: Arc<dyn Clock>,
}

impl Recorder {
    /// Starts the thread that records into `file`, from its beginning.
    pub(super) fn start(file: File, track: Track, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let (sender, coded) = channel(FRAMES_MAX, Arc::clone(&clock));
        let (end, ended) = channel(1, Arc::clone(&clock));
        let entrance = RecorderSender { sender, error: Arc::default(), is_closed: Arc::default() };
        let error = Arc::clone(&entrance.error);
        let writer = Writer::new(file, track, Arc::clone(&clock));
        thread::Builder::new().name("mp4".to_owned()).spawn(move || {
            if let Err(why) = writer.record(&coded) {
                let _ = error.set(why);
            }
            drop((coded, end));
        })?;
        Ok(Self { entrance, ended, clock })
    }

    /// Creates a sender that is closed independently of the others: a recording may have several encoders, one after
    /// another.
    pub(super) fn entrance(&self) -> RecorderSender {
        RecorderSender { is_closed: Arc::default(), ..self.entrance.clone() }
    }

    /// Completes the file, within `wait`.
    pub(super) fn complete(self, wait: Duration) -> Result<(), RecordError> {
        let deadline = self.clock.now() + wait;
        let sender = &self.entrance.sender;
        while let Err(TrySendError::Full(_)) = sender.try_send(RecorderMessage::End) {
            if self.clock.now() >= deadline {
                return Err(RecordError::Stuck(wait));
            }
            sender.wait_for_room(Some(deadline));
        }
        if self.ended.receive(Some(deadline)) == Err(RecvTimeoutError::Timeout) {
            return Err(RecordError::Stuck(wait));
        }
        self.entrance.error().map_or(Ok(()), Err)
    }
}

/// State of the recording thread.
struct Writer {
    file: File,
    clock: Arc<dyn Clock>,
    /// Whether `file` is a regular file. Pipes and devices are written once, in order, and not synced.
    is_regular: bool,
    track: Track,
    config: Vec<u8>,
    /// Start of the file, once it was written.
    head: Vec<u8>,
    written: u64,
    fragments: u32,
    index: Vec<Entry>,
    pending: Vec<CodedFrame>,
    /// Time at which the first of them arrived.
    pending_since: Option<Nanos>,
    unsynced_since: Option<Nanos>,
    /// Presentation time of the latest frame; `interval` is the duration of the one before it.
    latest: Option<u64>,
    interval: u64,
    /// End of the last frame that was written.
    end: u64,
}

impl Writer {
    fn new(file: File, track: Track, clock: Arc<dyn Clock>) -> Self {
        let is_regular = file.metadata().is_ok_and(|there| there.is_file());
        Self {
            file,
            clock,
            is_regular,
            track,
            config: Vec::new(),
            head: Vec::new(),
            written: 0,
            fragments: 0,
            index: Vec::new(),
            pending: Vec::new(),
            pending_since: None,
            unsynced_since: None,
            latest: None,
            interval: INTERVAL_DEFAULT_TICKS,
            end: 0,
        }
    }

    /// Records until the end, or until the disk is full. In both cases the duration is written into the file.
    fn record(mut self, coded: &Receiver<RecorderMessage>) -> Result<(), RecordError> {
        let taken = self.run(coded).and_then(|()| Ok(self.write_pending(None, self.clock.now())?));
        if self.is_regular && self.written > 0 {
            // All frames play without this table, so a failure here is not an error.
            if taken.is_ok() && self.index.len() <= INDEX_ENTRIES_MAX {
                let _ = self.write(&boxes::index(&self.index));
            }
            let (offset, bytes) = boxes::duration(&self.head, self.end);
            let _ = self.file.write_all_at(&bytes, offset);
        }
        taken.and_then(|()| Ok(self.sync()?))
    }

    fn run(&mut self, coded: &Receiver<RecorderMessage>) -> Result<(), RecordError> {
        loop {
            let dues = [
                self.pending_since.map(|since| since + FRAGMENT_WAIT_MAX),
                self.unsynced_since.map(|since| since + SYNC_EVERY),
            ];
            let next = coded.receive(dues.into_iter().flatten().min());
            let now = self.clock.now();
            match next {
                Ok(RecorderMessage::Config(config)) => self.configure(config)?,
                Ok(RecorderMessage::Frame(frame)) => self.take(frame, now)?,
                Ok(RecorderMessage::End) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.pending_since.is_some_and(|since| now >= since + FRAGMENT_WAIT_MAX) {
                self.write_pending(None, now)?;
            }
            if self.unsynced_since.is_some_and(|since| now >= since + SYNC_EVERY) {
                self.sync()?;
            }
        }
    }

    /// Sets the decoder's configuration. An encoder that starts again must use the same parameters, because the head
    /// was written for them.
    fn configure(&mut self, config: Vec<u8>) -> Result<(), RecordError> {
        if !self.config.is_empty() && self.config != config {
            return Err(RecordError::OtherParameters);
        }
        self.config = config;
        Ok(())
    }

    fn take(&mut self, mut frame: CodedFrame, now: Nanos) -> io::Result<()> {
        if let Some(latest) = self.latest {
            frame.ticks = frame.ticks.max(latest + 1);
            self.interval = frame.ticks - latest;
        }
        self.latest = Some(frame.ticks);
        if let Some(first) = self.pending.first() {
            let ticks = frame.ticks - first.ticks;
            if ticks >= FRAGMENT_TICKS_MAX || frame.is_key && ticks >= FRAGMENT_TICKS_MIN {
                self.write_pending(Some(frame.ticks), now)?;
            }
        }
        self.pending.push(frame);
        self.pending_since.get_or_insert(now);
        Ok(())
    }

    /// Writes the waiting frames as a fragment. If the next frame is unknown, the last one gets the duration of the one
    /// before it; the next fragment has its own start time.
    fn write_pending(&mut self, next: Option<u64>, now: Nanos) -> io::Result<()> {
        let Some((first, last)) = self.pending.first().zip(self.pending.last()) else { return Ok(()) };
        let (begin, end) = (first.ticks, next.unwrap_or(last.ticks + self.interval));
        let is_key = first.is_key;
        let mut bytes = Vec::new();
        if self.head.is_empty() {
            self.head = boxes::head(&self.track, &self.config);
            bytes.clone_from(&self.head);
        }
        let offset = self.written + bytes.len() as u64;
        self.fragments += 1;
        bytes.append(&mut boxes::fragment(self.fragments, &self.pending, end));
        self.write(&bytes)?;
        self.unsynced_since.get_or_insert(now);
        if is_key && self.index.len() <= INDEX_ENTRIES_MAX {
            self.index.push(Entry { ticks: begin, offset });
        }
        self.end = end;
        self.pending.clear();
        self.pending_since = None;
        Ok(())
    }

    /// Writes all of `bytes`, or removes the part that fit: the file stays whole.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(why) = self.file.write_all(bytes) {
            if self.is_regular {
                // If this fails too, the torn end stays, and strict players reject the last second.
                let _ = self.file.set_len(self.written);
            }
            return Err(why);
        }
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.unsynced_since = None;
        if self.is_regular { self.file.sync_data() } else { Ok(()) }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
mod tests {
    use super::*;
    use crate::i420::Colour;
    use orinoco_core::{Codec, ColorMatrix, ColorRange};
    use orinoco_pipeline::{MonotonicClock, PixelAspect};
    use std::os::fd::OwnedFd;
    use std::time::Instant;

    fn track() -> Track {
        let colour = Colour { matrix: ColorMatrix::Bt709, range: ColorRange::Limited };
        Track { codec: Codec::H264, width: 64, height: 48, aspect: PixelAspect::SQUARE, colour }
    }

    fn clock() -> Arc<dyn Clock> {
        Arc::new(MonotonicClock::default())
    }

    fn frame(ticks: u64, bytes: usize) -> RecorderMessage {
        RecorderMessage::Frame(CodedFrame { ticks, is_key: true, bytes: vec![0; bytes] })
    }

    #[test]
    fn a_disk_that_is_stuck_holds_up_nobody_for_seconds_and_the_end_not_for_ever() {
        // A pipe that nobody reads, and that has no space for the first fragment.
        let (reader, writer) = io::pipe().expect("made");
        let recorder =
            Recorder::start(File::from(OwnedFd::from(writer)), track(), clock()).expect("it starts");
        let entrance = recorder.entrance();
        let begin = Instant::now();
        for number in 0..FRAMES_MAX as u64 {
            assert!(entrance.send(frame(number * u64::from(TIMESCALE), 1 << 20)));
        }
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        // A sender waits for space until it is closed.
        let blocked = entrance.clone();
        let blocked = thread::spawn(move || (0..10).all(|number| blocked.send(frame(number, 1))));
        thread::sleep(Duration::from_millis(100));
        assert!(!blocked.is_finished(), "there is no room");
        entrance.close();
        assert!(!blocked.join().expect("it only sends"), "it was told that its frame is lost");
        assert!(!recorder.entrance().is_closed.load(Ordering::Relaxed), "the next encoder has its own");
        let why = recorder.complete(Duration::from_millis(100)).expect_err("nobody reads");
        assert!(matches!(why, RecordError::Stuck(_)), "{why}");
        // The thread ends when the reader is dropped.
        drop(reader);
    }

    #[test]
    fn a_frame_is_in_the_file_although_no_other_comes() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("x.mp4");
        let recorder =
            Recorder::start(File::create(&path).expect("writable"), track(), clock()).expect("it starts");
        let entrance = recorder.entrance();
        assert!(entrance.send(RecorderMessage::Config(vec![1])) && entrance.send(frame(0, 5000)));
        thread::sleep(FRAGMENT_WAIT_MAX + Duration::from_millis(400));
        let length = || path.metadata().expect("it is there").len();
        let first = length();
        assert!(first > 5000, "{first}");
        assert!(entrance.send(frame(1, 1000)));
        recorder.complete(Duration::from_secs(10)).expect("there is room");
        assert!(length() > first + 1000);
    }

    #[test]
    fn other_parameters_of_the_encoder_are_an_error() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = File::create(folder.path().join("x.mp4")).expect("writable");
        let recorder = Recorder::start(file, track(), clock()).expect("it starts");
        let entrance = recorder.entrance();
        for config in [[1], [1], [2]] {
            assert!(entrance.send(RecorderMessage::Config(config.to_vec())));
        }
        let why = recorder.complete(Duration::from_secs(10)).expect_err("two encoders that differ");
        assert!(matches!(why, RecordError::OtherParameters), "{why}");
    }
}
