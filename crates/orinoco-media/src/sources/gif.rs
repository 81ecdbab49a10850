use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::Duration;

use image::codecs::gif::GifDecoder;
use image::{AnimationDecoder, DynamicImage, ImageDecoder, ImageError, ImageResult};
use orinoco_core::{Clock, Diagnosis, FrameDesc, PixelFormat, Pts, codes};
use orinoco_pipeline::{Frame, Poll, Receiver, Sender, Slot, SlotPool, Source, SourceError, channel};
use orinoco_uri::{Pace, SourceKind, SourceUri};

use super::SourceDescriptor;
use super::images::decode_limits;
#[cfg(test)]
use super::suite::{Sample, Samples};
use crate::cpu_time::with_cpu_time;
use crate::local_file::{FileError, check_file};
use crate::pace::Pacer;
use crate::slots::SourceNeeds;

/// Maximum number of frames in flight: more than a ring, a batch and the sinks hold together.
const SLOTS: usize = 16;
/// Maximum number of decoded images that wait for a slot.
const IMAGES_MAX: usize = 1;
/// Minimum delay of an image. Shorter ones are replaced by [`DELAY_DEFAULT_NANOS`], as in browsers and FFmpeg, because
/// early tools wrote 0.
const DELAY_NANOS_MIN: u64 = 20_000_000;
const DELAY_DEFAULT_NANOS: u64 = 100_000_000;

/// Source of an animated GIF, as whole RGB frames: each image is drawn over the one before. Transparent pixels are
/// black.
///
/// It does not use GStreamer, whose GIF demuxer (libav, 1.22) gives every frame the time 0 and may hang at the end of
/// the file. A thread of its own decodes, one image ahead.
pub(crate) struct GifSource {
    path: PathBuf,
    repeat: bool,
    clock: Arc<dyn Clock>,
    pacer: Pacer,
    pool: SlotPool,
    images: Option<Receiver<ImageResult<Image>>>,
    /// Image that is already decoded, but has no free slot or is not due yet.
    early: Option<Image>,
    /// Presentation time of the next frame, in nanoseconds.
    next: u64,
    /// Frames since the last start from the beginning.
    pass_frames: u64,
}

/// One image of an animation.
struct Image {
    pixels: image::RgbImage,
    delay_nanos: u64,
    decode: Duration,
    decode_cpu: Duration,
}

/// Whether a file is a GIF, whatever its name.
pub(crate) fn is_gif(path: &Path) -> bool {
    let mut head = Vec::new();
    // Only regular files are opened, because a pipe would wait for its writer. The source itself reports a file that
    // cannot be read.
    let read = path.is_file().then(|| File::open(path).and_then(|file| file.take(6).read_to_end(&mut head)));
    matches!(read, Some(Ok(_))) && (head == b"GIF87a" || head == b"GIF89a")
}

impl GifSource {
    pub(crate) fn new(path: PathBuf, repeat: bool, pace: Pace, clock: Arc<dyn Clock>) -> Self {
        let (pacer, pool) = (Pacer::new(pace, clock.clone()), SlotPool::new(SLOTS, 0));
        Self { path, repeat, clock, pacer, pool, images: None, early: None, next: 0, pass_frames: 0 }
    }

    /// Starts decoding from the beginning.
    fn start(&mut self) -> Result<(), GifError> {
        let file = File::open(&self.path).map_err(ImageError::IoError)?;
        let (sender, images) = channel(IMAGES_MAX, Arc::clone(&self.clock));
        let clock = Arc::clone(&self.clock);
        let spawned =
            thread::Builder::new().name("gif".to_owned()).spawn(move || decode_all(file, &*clock, &sender));
        spawned.map_err(GifError::NoThread)?;
        self.images = Some(images);
        self.pass_frames = 0;
        Ok(())
    }

    fn failed(&self, error: &GifError) -> SourceError {
        SourceError::Permanent(error.about(&self.path.display().to_string()))
    }

    /// Delivers the image as a frame, if it is due and a slot becomes free within `wait`.
    fn deliver(&mut self, image: Image, wait: Duration) -> Result<Poll, SourceError> {
        let pts = Pts(self.next);
        let begin = self.clock.now();
        let is_due = self.pacer.wait(pts, wait);
        let left = wait.saturating_sub(self.clock.now().since(begin));
        let Some(mut slot) = is_due.then(|| self.pool.take(left, &*self.clock)).flatten() else {
            self.early = Some(image);
            return Ok(Poll::Waiting);
        };
        let mut desc = FrameDesc::packed(PixelFormat::Rgb, image.pixels.width(), image.pixels.height());
        desc.pts = pts;
        slot.bytes = image.pixels.into_raw();
        let frame = Frame::new(desc, Slot::Owned(slot), self.clock.now());
        let mut frame = frame.ok_or_else(|| self.failed(&GifError::NoPixels))?;
        frame.decode = Some(image.decode);
        frame.decode_cpu = Some(image.decode_cpu);
        self.next = self.next.saturating_add(image.delay_nanos);
        self.pass_frames += 1;
        Ok(Poll::Frame(frame))
    }
}

/// Reason why an animation is not played.
#[derive(Debug)]
enum GifError {
    /// The file cannot be read.
    File(FileError),
    /// The operating system starts no thread that decodes.
    NoThread(io::Error),
    /// The file ends before its last image.
    CutOff,
    /// The data of an image cannot be decoded.
    Corrupt(ImageError),
    /// An image has no pixels.
    NoPixels,
}

impl From<ImageError> for GifError {
    fn from(error: ImageError) -> Self {
        match error {
            ImageError::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => Self::CutOff,
            error => Self::Corrupt(error),
        }
    }
}

impl GifError {
    /// Converts the error to a fault of the file that is called `shown` in messages.
    fn about(&self, shown: &str) -> Diagnosis {
        let fault = |code, cause: &str| Diagnosis::new(code, shown, cause, "copy it again");
        match self {
            Self::File(error) => error.about(shown),
            Self::NoThread(error) => {
                let cause = format!("no thread can be started ({error})");
                Diagnosis::new(&codes::SOURCE_OPEN, shown, cause, "free some memory or processes")
            }
            Self::CutOff => fault(&codes::SOURCE_TRUNCATED, "the file was cut off"),
            Self::Corrupt(error) => fault(&codes::SOURCE_DECODE, &format!("its data is corrupt ({error})")),
            Self::NoPixels => fault(&codes::SOURCE_DECODE, "it has no pixels"),
        }
    }
}

impl Source for GifSource {
    fn open(&mut self) -> Result<(), SourceError> {
        self.close();
        check_file(&self.path).map_err(|error| self.failed(&GifError::File(error)))?;
        self.next = 0;
        self.pacer.restart();
        self.start().map_err(|error| self.failed(&error))
    }

    fn next(&mut self, wait: Duration) -> Result<Poll, SourceError> {
        if let Some(image) = self.early.take() {
            return self.deliver(image, wait);
        }
        let Some(images) = &self.images else { return Ok(Poll::End) };
        let begin = self.clock.now();
        let image = match images.receive(Some(begin + wait)) {
            Ok(Ok(image)) => image,
            Ok(Err(error)) => {
                self.images = None;
                return Err(self.failed(&error.into()));
            }
            Err(RecvTimeoutError::Timeout) => return Ok(Poll::Pending),
            Err(RecvTimeoutError::Disconnected) if self.repeat && self.pass_frames > 0 => {
                self.start().map_err(|error| self.failed(&error))?;
                return Ok(Poll::Pending);
            }
            Err(RecvTimeoutError::Disconnected) => {
                self.images = None;
                return Ok(Poll::End);
            }
        };
        let left = wait.saturating_sub(self.clock.now().since(begin));
        self.deliver(image, left)
    }

    fn close(&mut self) {
        (self.images, self.early) = (None, None);
    }

    fn frames_max(&self) -> Option<usize> {
        Some(SLOTS)
    }
}

/// Decodes a file to its end, its first fault, or until nobody takes the images any more.
fn decode_all(file: File, clock: &dyn Clock, images: &Sender<ImageResult<Image>>) {
    let decoder = GifDecoder::new(BufReader::new(file)).and_then(|mut decoder| {
        decoder.set_limits(decode_limits())?;
        Ok(decoder)
    });
    let mut frames = match decoder {
        Ok(decoder) => decoder.into_frames(),
        // Sending fails only when the receiver is gone, here and below.
        Err(error) => return drop(images.send(Err(error))),
    };
    loop {
        let started = clock.now();
        let (image, decode_cpu) = with_cpu_time(|| Some(frames.next()?.map(in_rgb)));
        let Some(image) = image else { return };
        let decode = clock.now().since(started);
        let image = image.map(|(pixels, delay_nanos)| Image { pixels, delay_nanos, decode, decode_cpu });
        let is_last = image.is_err();
        if images.send(image).is_err() || is_last {
            return;
        }
    }
}

/// The pixels of a frame, and for how many nanoseconds it is shown.
fn in_rgb(frame: image::Frame) -> (image::RgbImage, u64) {
    let (millis, of) = frame.delay().numer_denom_ms();
    let delay = u64::from(millis) * 1_000_000 / u64::from(of.max(1));
    let delay_nanos = if delay < DELAY_NANOS_MIN { DELAY_DEFAULT_NANOS } else { delay };
    (DynamicImage::from(frame.into_buffer()).into_rgb8(), delay_nanos)
}

/// Files that hold an animated GIF, whatever their names.
pub(super) static GIF: SourceDescriptor = SourceDescriptor {
    scheme: None,
    opens: |uri| matches!(uri.kind(), SourceKind::Video { path, .. } if is_gif(path)),
    // By its text it is a video.
    needs: |_, _| SourceNeeds::uncounted("decoder buffers"),
    check: |uri| check_file(video_of(uri).0).map_err(|error| error.about(&uri.to_string())),
    files: |uri| vec![video_of(uri).0.to_owned()],
    make: |uri, settings| {
        let (path, repeat, pace) = video_of(uri);
        Ok(Box::new(GifSource::new(path.to_owned(), repeat, pace, settings.clock)))
    },
    #[cfg(test)]
    samples,
};

fn video_of(uri: &SourceUri) -> (&Path, bool, Pace) {
    let SourceKind::Video { path, repeat, pace } = uri.kind() else { unreachable!("{uri} is a file") };
    (path, *repeat, *pace)
}

#[cfg(test)]
fn samples(folder: &Path) -> Samples {
    let path = folder.join("clip.gif");
    let mut encoder = image::codecs::gif::GifEncoder::new(File::create(&path).expect("writable"));
    for shade in 0..20 {
        let image = image::RgbaImage::from_pixel(16, 8, image::Rgba([shade, 0, 0, 255]));
        encoder.encode_frame(image::Frame::new(image)).expect("writable");
    }
    drop(encoder);
    Samples::Here(vec![Sample::new(path.display(), 20)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::codecs::gif::GifEncoder;
    use orinoco_pipeline::MonotonicClock;

    #[test]
    fn as_many_frames_are_on_their_way_as_it_reports() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("x.gif");
        let images = (0..SLOTS + 4).map(|_| image::Frame::new(image::RgbaImage::new(8, 8)));
        let file = File::create(&path).expect("writable");
        GifEncoder::new(file).encode_frames(images).expect("there is room");
        let mut source = GifSource::new(path, false, Pace::Free, Arc::new(MonotonicClock::default()));
        source.open().expect("it is there");
        let mut held = Vec::new();
        loop {
            match source.next(Duration::from_millis(100)).expect("it is whole") {
                Poll::Frame(frame) => held.push(frame),
                Poll::Pending => {}
                Poll::Waiting => break,
                end => panic!("{end:?} after {} frames", held.len()),
            }
        }
        assert_eq!(source.frames_max(), Some(held.len()));
    }
}
