use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, ImageResult, Limits};
use orinoco_core::{Clock, Diagnosis, FrameDesc, PixelFormat, Pts, codes};
use orinoco_pipeline::{Frame, OwnedSlot, Poll, Slot, SlotPool, Source, SourceError};
use orinoco_uri::{ImagePaths, Pace, SourceKind, SourceUri, is_video_name};

use super::SourceDescriptor;
#[cfg(test)]
use super::suite::{Sample, Samples};
use crate::cpu_time::with_cpu_time;
use crate::image_folder::{FOLDER_IMAGES_MAX, list_images};
use crate::image_paths::{first_image, folder_of};
use crate::jpeg;
use crate::local_file::{FileError, check_file};
use crate::pace::Pacer;
use crate::slots::SourceNeeds;

/// Maximum width and height that is decoded: four times 4K; a larger image is damaged or an attack.
const SIDE_MAX: u32 = 16_384;
/// Maximum memory of a decoder, in bytes: `SIDE_MAX` squared would be 805 MB, more than a small board can spare.
const DECODE_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// Time between images: 25 per second.
const INTERVAL_NANOS: u64 = 1_000_000_000 / 25;
/// Maximum number of images in flight. They differ in size, so each has its own buffer.
const SLOTS: usize = 8;

/// Source of one image, numbered images, or a folder of them, as upright RGB frames at 25 per second.
///
/// 16-bit samples are rounded to 8, grey becomes RGB, and alpha is ignored as if every pixel were opaque, as in the
/// tools with which models are trained. Of an animation, the first image is used.
pub struct ImageSource {
    paths: ImagePaths,
    repeat: bool,
    clock: Arc<dyn Clock>,
    pacer: Pacer,
    pool: SlotPool,
    place: Place,
    /// Images of a folder.
    listed: Vec<PathBuf>,
}

/// Place in the sequence.
#[derive(Clone, Copy, Default)]
struct Place {
    /// Number of the first image.
    first: u32,
    /// Images delivered since the last start from the first one.
    done: u32,
    /// Images delivered since the source was opened.
    total: u64,
}

impl ImageSource {
    /// Creates the source of `paths`.
    pub fn new(paths: ImagePaths, repeat: bool, pace: Pace, clock: Arc<dyn Clock>) -> Self {
        let pacer = Pacer::new(pace, clock.clone());
        let pool = SlotPool::new(SLOTS, 0);
        Self { paths, repeat, pacer, clock, pool, place: Place::default(), listed: Vec::new() }
    }

    /// Returns the path of the next image, if there is one.
    fn next_path(&mut self) -> Option<PathBuf> {
        let path = self.path_after(self.place.done);
        if path.is_none() && self.repeat && self.place.done > 0 {
            self.place.done = 0;
            return self.path_after(0);
        }
        path
    }

    fn path_after(&self, done: u32) -> Option<PathBuf> {
        match &self.paths {
            ImagePaths::One(path) => (done == 0).then(|| path.clone()),
            ImagePaths::Numbered(numbered) => {
                Some(numbered.path(self.place.first.checked_add(done)?)).filter(|path| path.exists())
            }
            ImagePaths::Folder(_) => self.listed.get(usize::try_from(done).ok()?).cloned(),
        }
    }
}

impl Source for ImageSource {
    /// Checks that the first image exists, or lists the folder. Returns as soon as the disk has answered.
    fn open(&mut self) -> Result<(), SourceError> {
        let first = first_image(&self.paths);
        let shown = first.path.display().to_string();
        if let ImagePaths::Folder(folder) = &self.paths {
            let listed = list_images(folder);
            self.listed = listed.map_err(|error| SourceError::Permanent(error.about(&shown)))?;
        } else {
            check_file(&first.path).map_err(|error| SourceError::Permanent(error.about(&shown)))?;
        }
        self.place = Place { first: first.number, done: 0, total: 0 };
        self.pacer.restart();
        Ok(())
    }

    fn next(&mut self, wait: Duration) -> Result<Poll, SourceError> {
        let pts = Pts(self.place.total.saturating_mul(INTERVAL_NANOS));
        let Some(path) = self.next_path() else { return Ok(Poll::End) };
        if !self.pacer.wait(pts, wait) {
            return Ok(Poll::Waiting);
        }
        let Some(slot) = self.pool.take(wait, &*self.clock) else { return Ok(Poll::Waiting) };
        let decoded = decode_into(slot, &path, &*self.clock);
        let mut frame = decoded.map_err(|error| SourceError::Permanent(error.about(&path)))?;
        frame.desc.pts = pts;
        self.place.done += 1;
        self.place.total += 1;
        Ok(Poll::Frame(frame))
    }

    fn close(&mut self) {}

    fn frames_max(&self) -> Option<usize> {
        Some(SLOTS)
    }
}

/// Decodes the image at `path` into an upright RGB frame with its own memory.
pub fn decode_image(path: &Path, clock: &dyn Clock) -> Result<Frame, Diagnosis> {
    let slot = SlotPool::new(1, 0).try_take().expect("a new pool has its slot");
    let decoded = match path.is_dir() {
        true => Err(DecodeError::Folder),
        false => decode_into(slot, path, clock),
    };
    decoded.map_err(|error| error.about(path))
}

/// Reason why an image is not decoded.
#[derive(Debug)]
enum DecodeError {
    /// A folder was named instead of an image.
    Folder,
    /// The file cannot be read.
    File(FileError),
    /// Reading failed after the file was opened.
    Broken(io::Error),
    /// The file is in no format that is known here.
    UnknownFormat,
    /// The format is known, but not this variant of it.
    Unsupported,
    /// The image is larger than [`SIDE_MAX`] or [`DECODE_BYTES_MAX`].
    TooLarge,
    /// The file ends before the image does.
    CutOff,
    /// The data cannot be decoded.
    Corrupt(ImageError),
    /// The image has no pixels.
    NoPixels,
}

impl From<io::Error> for DecodeError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

impl From<ImageError> for DecodeError {
    fn from(error: ImageError) -> Self {
        match error {
            ImageError::Limits(_) => Self::TooLarge,
            ImageError::Unsupported(_) => Self::Unsupported,
            error => Self::Corrupt(error),
        }
    }
}

impl DecodeError {
    /// Converts the error to a fault of the image at `path`.
    fn about(&self, path: &Path) -> Diagnosis {
        let shown = path.display().to_string();
        let fault = |cause: &str, next: &str| Diagnosis::new(&codes::IMAGE_DECODE, &shown, cause, next);
        let other = match is_video_name(path) {
            true => "a video is for `orinoco run --source FILE`",
            false => "save it again as PNG, JPEG or WebP",
        };
        match self {
            Self::Folder => {
                let next = format!("name its images ({shown}/*.jpg), or use `orinoco run --source {shown}`");
                Diagnosis::new(&codes::FILE_MISSING, &shown, "it is a folder, not an image", next)
            }
            Self::File(error) => error.about(&shown),
            Self::Broken(error) => fault(&error.to_string(), other),
            Self::UnknownFormat => fault("it is not a PNG, JPEG or WebP image", other),
            Self::Unsupported => fault("it is not a PNG, JPEG or WebP image that can be decoded", other),
            Self::TooLarge => fault(
                &format!("it is larger than {SIDE_MAX} pixels a side or {} MiB", DECODE_BYTES_MAX >> 20),
                "scale it down, or cut it into parts",
            ),
            Self::CutOff => fault("the file was cut off", "copy it again"),
            Self::Corrupt(error) => fault(&format!("it is corrupt ({error})"), other),
            Self::NoPixels => fault("it has no pixels", other),
        }
    }
}

fn decode_into(mut slot: OwnedSlot, path: &Path, clock: &dyn Clock) -> Result<Frame, DecodeError> {
    let started = clock.now();
    let (image, cpu) = with_cpu_time(|| decode_rgb(path));
    let image = image?;
    let desc = FrameDesc::packed(PixelFormat::Rgb, image.width(), image.height());
    slot.bytes = image.into_raw();
    let arrived = clock.now();
    let mut frame = Frame::new(desc, Slot::Owned(slot), arrived).ok_or(DecodeError::NoPixels)?;
    frame.decode = Some(arrived.since(started));
    frame.decode_cpu = Some(cpu);
    Ok(frame)
}

fn decode_rgb(path: &Path) -> Result<image::RgbImage, DecodeError> {
    // An image of a folder or a sequence may be a pipe, on which opening would block.
    check_file(path).map_err(DecodeError::File)?;
    let limits = decode_limits();
    let file = BufReader::new(File::open(path)?);
    let mut reader = ImageReader::new(file).with_guessed_format()?;
    reader.limits(limits.clone());
    let image = match reader.format() {
        None => return Err(DecodeError::UnknownFormat),
        // Decoders of these formats decode the part that is there, and leave the rest grey.
        Some(format @ (ImageFormat::Jpeg | ImageFormat::WebP)) => {
            let mut bytes = Vec::new();
            let mut file = reader.into_inner().take(DECODE_BYTES_MAX + 1);
            file.read_to_end(&mut bytes)?;
            if bytes.len() as u64 > DECODE_BYTES_MAX {
                return Err(DecodeError::TooLarge);
            }
            let is_whole = if format == ImageFormat::Jpeg { jpeg::is_whole } else { webp_is_whole };
            if !is_whole(&bytes) {
                return Err(DecodeError::CutOff);
            }
            let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
            reader.limits(limits.clone());
            decode_upright(reader, limits)
        }
        Some(_) => decode_upright(reader, limits),
    };
    Ok(image?.into_rgb8())
}

/// Whether a WebP file is as long as its header declares (RFC 9649, section 2.4).
fn webp_is_whole(bytes: &[u8]) -> bool {
    let size = bytes.get(4..8).and_then(|size| size.first_chunk::<4>());
    size.is_none_or(|size| bytes.len() as u64 >= u64::from(u32::from_le_bytes(*size)) + 8)
}

/// Limits of what a decoder may take.
pub(crate) fn decode_limits() -> Limits {
    let mut limits = Limits::default();
    limits.max_image_width = Some(SIDE_MAX);
    limits.max_image_height = Some(SIDE_MAX);
    limits.max_alloc = Some(DECODE_BYTES_MAX);
    limits
}

/// Does what [`ImageReader::decode`] does, and finds the turn that EXIF asks for.
fn decode_upright(reader: ImageReader<impl BufRead + Seek>, limits: Limits) -> ImageResult<DynamicImage> {
    let mut decoder = reader.into_decoder()?;
    let mut room = limits;
    room.reserve(decoder.total_bytes())?;
    decoder.set_limits(room)?;
    // A photo with damaged EXIF data is still a photo.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let mut image = DynamicImage::from_decoder(decoder)?;
    image.apply_orientation(orientation);
    Ok(image)
}

/// Images, also those of a folder that only the file system knows to be one.
pub(super) static IMAGES: SourceDescriptor = SourceDescriptor {
    scheme: None,
    opens: |uri| matches!(uri.kind(), SourceKind::Images { .. }) || folder_of(uri).is_some(),
    needs: |uri, _| match uri.kind() {
        SourceKind::Images { .. } => SourceNeeds::uncounted("decoded images"),
        // By its text it is a video.
        _ => SourceNeeds::uncounted("decoder buffers"),
    },
    check: |uri| match images_of(uri).paths {
        ImagePaths::Folder(folder) => {
            list_images(&folder).map(drop).map_err(|error| error.about(&uri.to_string()))
        }
        paths => check_file(&first_image(&paths).path).map_err(|error| error.about(&uri.to_string())),
    },
    files: |uri| match images_of(uri).paths {
        // A folder that cannot be read is a fault of the source.
        ImagePaths::Folder(folder) => list_images(&folder).unwrap_or_default(),
        ImagePaths::One(path) => vec![path],
        ImagePaths::Numbered(ref numbered) => {
            let numbers =
                (first_image(&ImagePaths::Numbered(numbered.clone())).number..).take(FOLDER_IMAGES_MAX);
            numbers.map(|number| numbered.path(number)).take_while(|path| path.exists()).collect()
        }
    },
    make: |uri, settings| {
        let Images { paths, repeat, pace } = images_of(uri);
        Ok(Box::new(ImageSource::new(paths, repeat, pace, settings.clock)))
    },
    #[cfg(test)]
    samples,
};

/// Images that a source reads, and how.
struct Images {
    paths: ImagePaths,
    repeat: bool,
    pace: Pace,
}

fn images_of(uri: &SourceUri) -> Images {
    let (SourceKind::Video { repeat, pace, .. } | SourceKind::Images { repeat, pace, .. }) = *uri.kind()
    else {
        unreachable!("{uri} is in the file system")
    };
    let paths = match (folder_of(uri), uri.kind()) {
        (Some(folder), _) => ImagePaths::Folder(folder.to_owned()),
        (None, SourceKind::Images { paths, .. }) => paths.clone(),
        (None, _) => unreachable!("{uri} is a video"),
    };
    Images { paths, repeat, pace }
}

#[cfg(test)]
fn samples(folder: &Path) -> Samples {
    for number in 0..20 {
        let path = folder.join(format!("i_{number}.png"));
        image::RgbImage::new(16, 8).save(path).expect("the folder is writable");
    }
    let folder = folder.display();
    let samples =
        [(format!("{folder}/"), 20), (format!("{folder}/i_%i.png"), 20), (format!("{folder}/i_3.png"), 1)];
    Samples::Here(samples.into_iter().map(|(uri, frames)| Sample::new(uri, frames)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open;
    use image::{Rgb, RgbImage};
    use orinoco_pipeline::MonotonicClock;
    use orinoco_uri::SourceUri;
    use std::fs;

    fn save(path: &Path, width: u32, value: u8) {
        RgbImage::from_pixel(width, 3, Rgb([value, 0, 9])).save(path).expect("the folder is writable");
    }

    fn clock() -> Arc<dyn Clock> {
        Arc::new(MonotonicClock::default())
    }

    /// Reads at most `frames_max` frames of `uri`. Returns width, first byte and milliseconds of each.
    fn read(uri: &str, frames_max: usize) -> Result<Vec<(u32, u8, u64)>, Diagnosis> {
        let uri = SourceUri::parse(uri)?;
        let mut source = open(&uri, "test", crate::FrameMemory::Host, 4, clock())?;
        source.open().map_err(|error| error.diagnosis().clone())?;
        let mut seen = Vec::new();
        while seen.len() < frames_max {
            match source.next(Duration::from_secs(1)).map_err(|error| error.diagnosis().clone())? {
                Poll::Frame(frame) => {
                    assert_eq!(frame.desc.format, PixelFormat::Rgb);
                    let first = frame.view().plane(0).row(0)[0];
                    seen.push((frame.desc.width, first, frame.desc.pts.0 / 1_000_000));
                }
                Poll::Pending | Poll::Waiting => panic!("images are never late here"),
                Poll::End => break,
            }
        }
        Ok(seen)
    }

    #[test]
    fn a_sequence_starts_at_zero_or_one_and_ends_at_the_gap() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name);
        for (number, value) in [(1, 10), (2, 20), (4, 40)] {
            save(&path(&format!("a_{number:03}.png")), 4 + number, value);
        }
        save(&path("b0.png"), 7, 1);
        save(&path("b1.png"), 8, 2);
        let uri = |name: &str| format!("file://{}", path(name).display());
        assert_eq!(read(&uri("a_%03i.png"), 9).expect("it is read"), [(5, 10, 0), (6, 20, 40)]);
        assert_eq!(read(&uri("b%d.png"), 9).expect("it is read"), [(7, 1, 0), (8, 2, 40)]);
        let looped = [(7, 1, 0), (8, 2, 40), (7, 1, 80), (8, 2, 120), (7, 1, 160)];
        assert_eq!(read(&uri("b%i.png?loop=1"), 5).expect("it is read"), looped);
        assert_eq!(read(&uri("b0.png"), 9).expect("it is read"), [(7, 1, 0)]);
        let missing = read(&uri("c_%i.png"), 9).expect_err("there is none");
        assert_eq!(missing.code.id, codes::FILE_MISSING.id);
    }

    #[test]
    fn the_next_step_fits_what_was_named() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name);
        let next = |path: &Path| decode_image(path, &*clock()).expect_err("it is no image").next.to_string();
        for name in ["clip.mp4", "CLIP.MKV", "clip.gif"] {
            fs::write(path(name), "not an image").expect("the folder is writable");
            assert!(next(&path(name)).contains("orinoco run --source"), "{}", next(&path(name)));
        }
        fs::write(path("x.txt"), "not an image").expect("the folder is writable");
        assert_eq!(next(&path("x.txt")), "save it again as PNG, JPEG or WebP");
        let of_folder = next(folder.path());
        assert!(of_folder.contains("/*.jpg") && of_folder.contains("orinoco run --source"), "{of_folder}");
        save(&path("huge.jpg"), 300, 7);
        let mut huge = fs::read(path("huge.jpg")).expect("just written");
        let frame =
            huge.windows(2).position(|marker| marker == [0xff, 0xc0]).expect("a baseline image has it");
        huge[frame + 7..][..2].copy_from_slice(&20_000u16.to_be_bytes());
        fs::write(path("huge.jpg"), huge).expect("the folder is writable");
        assert_eq!(next(&path("huge.jpg")), "scale it down, or cut it into parts");
    }

    #[test]
    fn damage_is_one_sentence() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("x.png");
        save(&path, 300, 7);
        let whole = fs::read(&path).expect("just written");
        let jpeg = folder.path().join("x.jpg");
        save(&jpeg, 300, 7);
        let whole_jpeg = fs::read(&jpeg).expect("just written");
        let webp = folder.path().join("x.webp");
        save(&webp, 300, 7);
        let whole_webp = fs::read(&webp).expect("just written");
        let mut huge = whole.clone();
        huge[16..20].copy_from_slice(&100_000u32.to_be_bytes());
        let cut = |bytes: &[u8], to: usize| bytes[..to].to_vec();
        let cases = [
            cut(&whole, 0),
            cut(&whole, 20),
            cut(&whole, whole.len() / 2),
            cut(&whole_jpeg, 30),
            cut(&whole_jpeg, whole_jpeg.len() / 2),
            cut(&whole_jpeg, whole_jpeg.len() - 40),
            cut(&whole_webp, 20),
            cut(&whole_webp, whole_webp.len() / 2),
            cut(&whole_webp, whole_webp.len() - 1),
            b"not an image".to_vec(),
            huge,
        ];
        for bytes in cases {
            fs::write(&path, &bytes).expect("the folder is writable");
            let fault = decode_image(&path, &*clock()).expect_err("it is damaged");
            assert_eq!(fault.code.id, codes::IMAGE_DECODE.id, "{fault}");
            assert!(!fault.to_string().contains('\n'), "{fault}");
        }
        // Only the end marker is missing, or bytes follow the end.
        for bytes in [cut(&whole_jpeg, whole_jpeg.len() - 2), [&whole_jpeg[..], &[0; 9]].concat()] {
            fs::write(&path, &bytes).expect("the folder is writable");
            let frame = decode_image(&path, &*clock()).expect("it has every pixel");
            assert_eq!((frame.desc.width, frame.desc.height), (300, 3));
        }
        let folder = decode_image(folder.path(), &*clock()).expect_err("it is a folder");
        assert_eq!(folder.code.id, codes::FILE_MISSING.id);
    }
}
