//! Coded pictures into the file, on a thread of its own: a slow disk holds up nobody who makes pictures.
//!
//! Each fragment is one write, and once a second what was written is brought to the disk. So a file that nobody could
//! complete has all but its latest pictures.

#![expect(clippy::disallowed_methods, reason = "FIXME: real time, see clippy.toml")]

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use super::boxes::{self, Entry, Picture, TIMESCALE, Track};

/// A fragment that begins with a key frame is due after this; key frames are asked for every 0.8 s.
const FRAGMENT_TICKS_MIN: u64 = TIMESCALE as u64 / 2;
/// A fragment ends here although no key frame came: not every encoder makes them when it is asked.
const FRAGMENT_TICKS_MAX: u64 = TIMESCALE as u64;
/// A picture waits no longer than this for its fragment to fill. Slightly more than from key frame to key frame.
const FRAGMENT_WAIT_MAX: Duration = Duration::from_millis(900);
/// How often what was written is brought to the disk.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// Coded pictures that may wait for the disk: five seconds of a camera. Then the encoder waits, and those before it.
const PICTURES_MAX: usize = 128;
/// Fragments in the table at the end of the file: 18 hours, a mebibyte. A longer file has none, and is searched.
const INDEX_ENTRIES_MAX: usize = 1 << 16;
/// Duration of a picture that nothing came after.
const INTERVAL_DEFAULT_TICKS: u64 = TIMESCALE as u64 / 25;
/// How long one look for room takes.
const ROOM_STEP: Duration = Duration::from_millis(5);

/// What the recording thread is sent.
#[derive(Debug)]
pub(super) enum RecorderMessage {
    /// The decoder's configuration.
    Config(Vec<u8>),
    Picture(Picture),
    End,
}

/// The way to the recording thread. Clones are closed together.
#[derive(Clone, Debug)]
pub(super) struct RecorderSender {
    sender: SyncSender<RecorderMessage>,
    fault: Arc<OnceLock<String>>,
    is_closed: Arc<AtomicBool>,
}

impl RecorderSender {
    /// Waits while the disk is behind, until the entrance is closed; false when `coded` was not sent: then, or when the
    /// file has failed.
    pub(super) fn send(&self, mut coded: RecorderMessage) -> bool {
        loop {
            coded = match self.sender.try_send(coded) {
                Ok(()) => return true,
                Err(TrySendError::Disconnected(_)) => return false,
                Err(TrySendError::Full(_)) if self.is_closed.load(Ordering::Relaxed) => return false,
                Err(TrySendError::Full(coded)) => coded,
            };
            thread::sleep(ROOM_STEP);
        }
    }

    /// Ends the wait of those who send. What the recording thread has room for is still sent.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Why the file has failed.
    pub(super) fn fault(&self) -> Option<&str> {
        self.fault.get().map(String::as_str)
    }
}

/// A file that is being recorded.
#[derive(Debug)]
pub(super) struct Recorder {
    entrance: RecorderSender,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
}

impl Recorder {
    /// Starts the thread that records into `file`, from its beginning.
    pub(super) fn start(file: File, track: Track) -> io::Result<Self> {
        let (sender, coded) = sync_channel(PICTURES_MAX);
        let (end, ended) = sync_channel(0);
        let entrance = RecorderSender { sender, fault: Arc::default(), is_closed: Arc::default() };
        let fault = Arc::clone(&entrance.fault);
        thread::Builder::new().name("mp4".to_owned()).spawn(move || {
            if let Err(why) = Writer::new(file, track).record(&coded) {
                let _ = fault.set(cause(&why));
            }
            drop((coded, end));
        })?;
        Ok(Self { entrance, ended })
    }

    /// An entrance that is closed apart from the others: a recording may have one encoder after another.
    pub(super) fn entrance(&self) -> RecorderSender {
        RecorderSender { is_closed: Arc::default(), ..self.entrance.clone() }
    }

    /// Completes the file, within `wait`. Errors are causes.
    pub(super) fn complete(self, wait: Duration) -> Result<(), String> {
        let deadline = Instant::now() + wait;
        let stuck = || format!("the disk did not take the rest of the file within {} s", wait.as_secs());
        while let Err(TrySendError::Full(_)) = self.entrance.sender.try_send(RecorderMessage::End) {
            if Instant::now() >= deadline {
                return Err(stuck());
            }
            thread::sleep(ROOM_STEP);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if self.ended.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
            return Err(stuck());
        }
        self.entrance.fault().map_or(Ok(()), |fault| Err(fault.to_owned()))
    }
}

/// The recording thread.
struct Writer {
    file: File,
    /// Pipes and devices are written in one go: no second look at what was written, and no disk under it.
    is_regular: bool,
    track: Track,
    config: Vec<u8>,
    /// The head, once it was written.
    head: Vec<u8>,
    written: u64,
    fragments: u32,
    index: Vec<Entry>,
    pending: Vec<Picture>,
    /// When the first of those came.
    pending_since: Option<Instant>,
    unsynced_since: Option<Instant>,
    /// When the latest picture is shown, and how long the one before it is.
    latest: Option<u64>,
    interval: u64,
    /// End of the last picture that was written.
    end: u64,
}

impl Writer {
    fn new(file: File, track: Track) -> Self {
        let is_regular = file.metadata().is_ok_and(|there| there.is_file());
        Self {
            file,
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

    /// Records until the end, or until the disk takes no more. Then, too, the file says how long it is.
    fn record(mut self, coded: &Receiver<RecorderMessage>) -> io::Result<()> {
        let taken = self.run(coded).and_then(|()| self.write_pending(None, Instant::now()));
        if self.is_regular && self.written > 0 {
            // All that was written plays without what follows: no reason to call it failed.
            if taken.is_ok() && self.index.len() <= INDEX_ENTRIES_MAX {
                let _ = self.write(&boxes::index(&self.index));
            }
            let (offset, bytes) = boxes::duration(&self.head, self.end);
            let _ = self.file.write_all_at(&bytes, offset);
        }
        taken.and_then(|()| self.sync())
    }

    fn run(&mut self, coded: &Receiver<RecorderMessage>) -> io::Result<()> {
        loop {
            let dues = [
                self.pending_since.map(|since| since + FRAGMENT_WAIT_MAX),
                self.unsynced_since.map(|since| since + SYNC_EVERY),
            ];
            let next = match dues.into_iter().flatten().min() {
                Some(due) => coded.recv_timeout(due.saturating_duration_since(Instant::now())),
                None => coded.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let now = Instant::now();
            match next {
                Ok(RecorderMessage::Config(config)) => self.configure(config)?,
                Ok(RecorderMessage::Picture(picture)) => self.take(picture, now)?,
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

    /// An encoder that is started again has to code as the one before it: the head was written for that.
    fn configure(&mut self, config: Vec<u8>) -> io::Result<()> {
        if !self.config.is_empty() && self.config != config {
            return Err(io::Error::other("the encoder has changed its parameters"));
        }
        self.config = config;
        Ok(())
    }

    fn take(&mut self, mut picture: Picture, now: Instant) -> io::Result<()> {
        if let Some(latest) = self.latest {
            picture.ticks = picture.ticks.max(latest + 1);
            self.interval = picture.ticks - latest;
        }
        self.latest = Some(picture.ticks);
        if let Some(first) = self.pending.first() {
            let ticks = picture.ticks - first.ticks;
            if ticks >= FRAGMENT_TICKS_MAX || picture.is_key && ticks >= FRAGMENT_TICKS_MIN {
                self.write_pending(Some(picture.ticks), now)?;
            }
        }
        self.pending.push(picture);
        self.pending_since.get_or_insert(now);
        Ok(())
    }

    /// Writes the pictures that wait as a fragment. Where the next picture is not known, the last one is taken to last as
    /// long as the one before it; the next fragment says when it begins.
    fn write_pending(&mut self, next: Option<u64>, now: Instant) -> io::Result<()> {
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

    /// Writes all of `bytes`, or takes back what there was room for: the file stays whole.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(why) = self.file.write_all(bytes) {
            if self.is_regular {
                // If this fails too, the torn end stays, and players that are strict refuse the last second.
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

fn cause(why: &io::Error) -> String {
    match why.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "there is no space left".to_owned(),
        ErrorKind::FileTooLarge => "the file may not become larger (see `ulimit -f`)".to_owned(),
        _ => format!("it cannot be written ({why})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::i420::Colour;
    use orinoco_core::{Codec, ColorMatrix, ColorRange};
    use orinoco_pipeline::PixelAspect;
    use std::os::fd::OwnedFd;

    fn track() -> Track {
        let colour = Colour { matrix: ColorMatrix::Bt709, range: ColorRange::Limited };
        Track { codec: Codec::H264, width: 64, height: 48, aspect: PixelAspect::SQUARE, colour }
    }

    fn picture(ticks: u64, bytes: usize) -> RecorderMessage {
        RecorderMessage::Picture(Picture { ticks, is_key: true, bytes: vec![0; bytes] })
    }

    #[test]
    fn a_disk_that_is_stuck_holds_up_nobody_for_seconds_and_the_end_not_for_ever() {
        // A pipe that nobody reads, and that has no room for the first fragment.
        let (reader, writer) = io::pipe().expect("made");
        let recorder = Recorder::start(File::from(OwnedFd::from(writer)), track()).expect("it starts");
        let entrance = recorder.entrance();
        let begin = Instant::now();
        for number in 0..PICTURES_MAX as u64 {
            assert!(entrance.send(picture(number * u64::from(TIMESCALE), 1 << 20)));
        }
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        // Who waits for room does so until the entrance is closed.
        let blocked = entrance.clone();
        let blocked = thread::spawn(move || (0..10).all(|number| blocked.send(picture(number, 1))));
        thread::sleep(Duration::from_millis(100));
        assert!(!blocked.is_finished(), "there is no room");
        entrance.close();
        assert!(!blocked.join().expect("it only sends"), "it was told that its picture is lost");
        assert!(!recorder.entrance().is_closed.load(Ordering::Relaxed), "the next encoder has its own");
        let why = recorder.complete(Duration::from_millis(100)).expect_err("nobody reads");
        assert!(why.contains("did not take"), "{why}");
        // Its thread ends with the reader.
        drop(reader);
    }

    #[test]
    fn a_picture_is_in_the_file_although_no_other_comes() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("x.mp4");
        let recorder = Recorder::start(File::create(&path).expect("writable"), track()).expect("it starts");
        let entrance = recorder.entrance();
        assert!(entrance.send(RecorderMessage::Config(vec![1])) && entrance.send(picture(0, 5000)));
        thread::sleep(FRAGMENT_WAIT_MAX + Duration::from_millis(400));
        let length = || path.metadata().expect("it is there").len();
        let first = length();
        assert!(first > 5000, "{first}");
        assert!(entrance.send(picture(1, 1000)));
        recorder.complete(Duration::from_secs(10)).expect("there is room");
        assert!(length() > first + 1000);
    }

    #[test]
    fn other_parameters_of_the_encoder_are_an_error() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = File::create(folder.path().join("x.mp4")).expect("writable");
        let recorder = Recorder::start(file, track()).expect("it starts");
        let entrance = recorder.entrance();
        for config in [[1], [1], [2]] {
            assert!(entrance.send(RecorderMessage::Config(config.to_vec())));
        }
        let why = recorder.complete(Duration::from_secs(10)).expect_err("two encoders that differ");
        assert!(why.contains("parameters"), "{why}");
    }
}
