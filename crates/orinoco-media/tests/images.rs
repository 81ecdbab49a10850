//! Tests images of all common kinds, and folders of them. All are made here.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]

use std::fs;
use std::io::Cursor;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::codecs::webp::WebPEncoder;
use image::{DynamicImage, ExtendedColorType, ImageBuffer, ImageEncoder, Luma, LumaA, Rgb, RgbImage, Rgba};
use orinoco_core::{Clock, Diagnosis, DropPolicy, Orientation, PixelFormat, StreamId, codes};
use orinoco_media::{FrameMemory, decode_image, open};
use orinoco_pipeline::{
    Frame, MonotonicClock, Mux, Poll, Reconnect, SourceEnd, SourceRunner, Stop, StreamQueue,
};
use orinoco_telemetry::{Event, EventSink, Telemetry};
use orinoco_uri::SourceUri;

const WIDTH: u32 = 48;
const HEIGHT: u32 = 32;
/// Colours of the upper left, upper right, lower left and lower right quarter.
const QUARTERS: [[u8; 3]; 4] = [[230, 30, 30], [30, 220, 30], [30, 30, 230], [210, 210, 40]];

fn decode(path: &Path) -> Result<Frame, Diagnosis> {
    decode_image(path, &MonotonicClock::default())
}

/// Returns a pixel of a frame, which must be RGB and upright.
fn pixel(frame: &Frame, x: u32, y: u32) -> [u8; 3] {
    assert_eq!((frame.desc.format, frame.desc.orientation), (PixelFormat::Rgb, Orientation::Upright));
    let row = frame.view().plane(0).row(y as usize);
    row[3 * x as usize..][..3].try_into().expect("three channels")
}

fn near(seen: [u8; 3], truth: [u8; 3], levels: u8) -> bool {
    seen.iter().zip(truth).all(|(a, b)| a.abs_diff(b) <= levels)
}

/// Returns the colour at a position of the upright image.
fn truth(x: u32, y: u32) -> [u8; 3] {
    QUARTERS[usize::from(x >= WIDTH / 2) + 2 * usize::from(y >= HEIGHT / 2)]
}

/// Makes the image as a camera stores it that was held in EXIF's `orientation` (Exif 2.32, section 4.6.4.A).
fn stored(orientation: u16) -> RgbImage {
    let (right, bottom) = (WIDTH - 1, HEIGHT - 1);
    let (width, height) = if orientation < 5 { (WIDTH, HEIGHT) } else { (HEIGHT, WIDTH) };
    RgbImage::from_fn(width, height, |column, row| {
        let (x, y) = match orientation {
            1 => (column, row),
            2 => (right - column, row),
            3 => (right - column, bottom - row),
            4 => (column, bottom - row),
            5 => (row, column),
            6 => (right - row, column),
            7 => (right - row, bottom - column),
            _ => (row, bottom - column),
        };
        Rgb(truth(x, y))
    })
}

/// Makes the smallest TIFF structure with an orientation.
fn exif(orientation: u16) -> Vec<u8> {
    let mut bytes = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
    bytes.extend(orientation.to_le_bytes());
    bytes.extend([0; 6]);
    bytes
}

#[test]
fn all_eight_exif_orientations_stand_upright() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for orientation in 1..=8 {
        let image = stored(orientation);
        for extension in ["jpg", "png", "webp"] {
            let mut bytes = Vec::new();
            match extension {
                "jpg" => encode(JpegEncoder::new_with_quality(&mut bytes, 98), &image, orientation),
                "png" => encode(PngEncoder::new(&mut bytes), &image, orientation),
                _ => encode(WebPEncoder::new_lossless(&mut bytes), &image, orientation),
            }
            let path = folder.path().join("x").with_extension(extension);
            fs::write(&path, bytes).expect("writable");
            let frame = decode(&path).unwrap_or_else(|fault| panic!("{fault}"));
            let what = format!("{extension}, orientation {orientation}");
            assert_eq!((frame.desc.width, frame.desc.height), (WIDTH, HEIGHT), "{what}");
            let levels = if extension == "jpg" { 6 } else { 0 };
            for (x, y) in [(8, 8), (40, 8), (8, 24), (40, 24)] {
                assert!(near(pixel(&frame, x, y), truth(x, y), levels), "{what} at {x}, {y}");
            }
        }
    }
}

fn encode(mut encoder: impl ImageEncoder, image: &RgbImage, orientation: u16) {
    encoder.set_exif_metadata(exif(orientation)).expect("the format has room for it");
    let (width, height) = image.dimensions();
    encoder.write_image(image, width, height, ExtendedColorType::Rgb8).expect("memory has room");
}

#[test]
fn every_depth_and_channel_count_becomes_rgb() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("x.png");
    let cases: [(&str, DynamicImage, [u8; 3]); 7] = [
        ("grey", DynamicImage::ImageLuma8(ImageBuffer::from_pixel(9, 7, Luma([77]))), [77; 3]),
        ("grey and alpha", DynamicImage::ImageLumaA8(ImageBuffer::from_pixel(9, 7, LumaA([77, 3]))), [77; 3]),
        ("RGBA", DynamicImage::ImageRgba8(ImageBuffer::from_pixel(9, 7, Rgba([1, 2, 3, 0]))), [1, 2, 3]),
        ("16-bit grey", DynamicImage::ImageLuma16(ImageBuffer::from_pixel(9, 7, Luma([0x8080]))), [0x80; 3]),
        (
            "16-bit RGB",
            DynamicImage::ImageRgb16(ImageBuffer::from_pixel(9, 7, Rgb([0, 0x7fff, 0xffff]))),
            [0, 127, 255],
        ),
        (
            "16-bit RGBA",
            DynamicImage::ImageRgba16(ImageBuffer::from_pixel(9, 7, Rgba([0x0101, 0x7f7f, 0xfefe, 9]))),
            [1, 127, 254],
        ),
        (
            "16-bit grey and alpha",
            DynamicImage::ImageLumaA16(ImageBuffer::from_pixel(9, 7, LumaA([0x4040, 9]))),
            [64; 3],
        ),
    ];
    for (name, image, expected) in cases {
        image.save(&path).expect("writable");
        let frame = decode(&path).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        let size = (frame.desc.width, frame.desc.height);
        assert_eq!((size, pixel(&frame, 8, 6)), ((9, 7), expected), "{name}");
    }
    let jpeg = folder.path().join("grey.jpg");
    DynamicImage::ImageLuma8(ImageBuffer::from_pixel(16, 16, Luma([200]))).save(&jpeg).expect("writable");
    assert!(near(pixel(&decode(&jpeg).expect("it is whole"), 8, 8), [200; 3], 1));
}

/// Coding process of a JPEG.
#[derive(Clone, Copy)]
enum Coding {
    Sequential,
    Progressive,
}

/// Makes a JPEG of one colour, 16 pixels a side, by the standard (ITU-T T.81): quantisation by one, DC coefficients
/// only.
fn jpeg(coding: Coding, adobe_transform: Option<u8>, components: &[u8]) -> Vec<u8> {
    let count = u8::try_from(components.len()).expect("at most four");
    let mut bytes = vec![0xff, 0xd8];
    let mut segment = |marker: u8, content: &[u8]| {
        bytes.extend([0xff, marker]);
        bytes.extend(u16::try_from(content.len() + 2).expect("short").to_be_bytes());
        bytes.extend(content);
    };
    if let Some(transform) = adobe_transform {
        segment(0xee, &[b"Adobe\0\x64\0\0\0\0", &[transform][..]].concat());
    }
    segment(0xdb, &[&[0][..], &[1; 64]].concat());
    let of_component = |id: u8| [id + 1, 0x11, 0];
    let frame: Vec<u8> = (0..count).flat_map(of_component).collect();
    let start = if matches!(coding, Coding::Progressive) { 0xc2 } else { 0xc0 };
    segment(start, &[&[8, 0, 16, 0, 16, count][..], &frame].concat());
    // Twelve DC categories of four bits each, and one AC symbol, the end of the block, of one bit.
    segment(0xc4, &[&[0, 0, 0, 0, 12][..], &[0; 12], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]].concat());
    segment(0xc4, &[&[0x10, 1][..], &[0; 15], &[0]].concat());
    let scan: Vec<u8> = (0..count).flat_map(|id| [id + 1, 0]).collect();
    let spectrum: [u8; 3] = if matches!(coding, Coding::Progressive) { [0, 0, 0] } else { [0, 63, 0] };
    segment(0xda, &[&[count][..], &scan, &spectrum].concat());
    let mut bits = Vec::new();
    for block in 0..4 {
        for &value in components {
            let coefficient = if block == 0 { 8 * (i32::from(value) - 128) } else { 0 };
            let category = 32 - coefficient.unsigned_abs().leading_zeros();
            push_bits(&mut bits, category, 4);
            let coded = if coefficient < 0 { coefficient + (1 << category) - 1 } else { coefficient };
            push_bits(&mut bits, coded.unsigned_abs(), category);
            if matches!(coding, Coding::Sequential) {
                push_bits(&mut bits, 0, 1);
            }
        }
    }
    while bits.len() % 8 != 0 {
        bits.push(true);
    }
    for eight in bits.chunks(8) {
        let byte = eight.iter().fold(0u8, |byte, &bit| byte << 1 | u8::from(bit));
        bytes.push(byte);
        // A zero after a byte distinguishes it from a marker.
        if byte == 0xff {
            bytes.push(0);
        }
    }
    bytes.extend([0xff, 0xd9]);
    bytes
}

fn push_bits(bits: &mut Vec<bool>, value: u32, count: u32) {
    bits.extend((0..count).rev().map(|place| value >> place & 1 == 1));
}

#[test]
fn jpegs_of_other_kinds_are_decoded() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("x.jpg");
    let (sequential, progressive) = (Coding::Sequential, Coding::Progressive);
    // Y, Cb and Cr of red by JFIF: 76, 85, 255. Adobe's CMYK is stored inverted: 255 is no ink. Its YCCK has the colour
    // of the ink, so red stands for cyan.
    for (name, coding, adobe, components, expected) in [
        ("YCbCr", sequential, None, &[76, 85, 255][..], [254, 0, 0]),
        ("progressive YCbCr", progressive, None, &[76, 85, 255], [254, 0, 0]),
        ("grey", sequential, None, &[99], [99; 3]),
        ("progressive grey", progressive, None, &[99], [99; 3]),
        ("CMYK", sequential, Some(0), &[255, 128, 0, 255], [255, 128, 0]),
        ("dark CMYK", sequential, Some(0), &[255, 128, 0, 128], [128, 64, 0]),
        ("progressive CMYK", progressive, Some(0), &[255, 128, 0, 255], [255, 128, 0]),
        ("YCCK", sequential, Some(2), &[76, 85, 255, 255], [1, 255, 255]),
    ] {
        fs::write(&path, jpeg(coding, adobe, components)).expect("writable");
        let frame = decode(&path).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        assert_eq!((frame.desc.width, frame.desc.height), (16, 16), "{name}");
        for (x, y) in [(0, 0), (15, 15)] {
            assert!(near(pixel(&frame, x, y), expected, 2), "{name}: {:?}", pixel(&frame, x, y));
        }
    }
}

/// Makes the `VP8L` chunk of an image of one colour.
fn lossless(colour: [u8; 3]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let image = RgbImage::from_pixel(20, 10, Rgb(colour));
    WebPEncoder::new_lossless(&mut bytes)
        .write_image(&image, 20, 10, ExtendedColorType::Rgb8)
        .expect("memory has room");
    bytes.split_off(12)
}

#[test]
fn the_first_image_of_an_animated_webp_is_taken() {
    let chunk = |name: &[u8; 4], content: &[u8]| {
        let mut bytes = name.to_vec();
        bytes.extend(u32::try_from(content.len()).expect("short").to_le_bytes());
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(2), 0);
        bytes
    };
    let image = |colour| {
        // Position 0, 0; size 20 by 10, each minus one; 100 ms.
        let head = [0, 0, 0, 0, 0, 0, 19, 0, 0, 9, 0, 0, 100, 0, 0, 0];
        chunk(b"ANMF", &[&head[..], &lossless(colour)].concat())
    };
    let content = [
        b"WEBP".to_vec(),
        chunk(b"VP8X", &[2, 0, 0, 0, 19, 0, 0, 9, 0, 0]),
        chunk(b"ANIM", &[0; 6]),
        image([10, 200, 30]),
        image([200, 10, 30]),
    ];
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("x.webp");
    fs::write(&path, chunk(b"RIFF", &content.concat())).expect("writable");
    let frame = decode(&path).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!((frame.desc.width, frame.desc.height), (20, 10));
    // The decoder blends even opaque images with their background, and rounds down.
    assert!(near(pixel(&frame, 10, 5), [10, 200, 30], 1), "{:?}", pixel(&frame, 10, 5));
}

/// Reads at most `frames_max` frames of `uri`. Returns the first red value and the milliseconds of each.
fn read(uri: &str, frames_max: usize) -> Result<Vec<(u8, u64)>, Diagnosis> {
    let mut source =
        open(&SourceUri::parse(uri)?, "test", FrameMemory::Host, 4, Arc::new(MonotonicClock::default()))?;
    source.open().map_err(|error| error.diagnosis().clone())?;
    let mut seen = Vec::new();
    while seen.len() < frames_max {
        match source.next(Duration::from_secs(1)).map_err(|error| error.diagnosis().clone())? {
            Poll::Frame(frame) => seen.push((pixel(&frame, 0, 0)[0], frame.desc.pts.0 / 1_000_000)),
            Poll::Pending | Poll::Waiting => {}
            Poll::End => break,
        }
    }
    Ok(seen)
}

fn save(path: &Path, red: u8) {
    RgbImage::from_pixel(4 + u32::from(red), 3, Rgb([red, 0, 9])).save(path).expect("writable");
}

#[test]
fn a_folder_is_read_in_natural_order() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    for (name, red) in [("img10.png", 3), ("img9.webp", 2), ("img1.PNG", 1), ("z.png", 4)] {
        save(&path(name), red);
    }
    fs::write(path("notes.txt"), "no image").expect("writable");
    fs::write(path(".hidden.png"), "no image").expect("writable");
    fs::create_dir(path("more.png.d")).expect("writable");
    let plain = folder.path().display().to_string();
    let once = [(1, 0), (2, 40), (3, 80), (4, 120)];
    for uri in [plain.clone(), format!("{plain}/"), format!("file://{plain}/"), format!("file://{plain}")] {
        assert_eq!(read(&uri, 9).expect("it is read"), once, "{uri}");
    }
    let looped = [once.as_slice(), &[(1, 160), (2, 200), (3, 240)]].concat();
    assert_eq!(read(&format!("file://{plain}/?loop=1"), 7).expect("it is read"), looped);
    let begin = std::time::Instant::now();
    assert_eq!(read(&format!("{plain}/?pace=pts"), 9).expect("it is read"), once);
    assert!((115..600).contains(&begin.elapsed().as_millis()), "{:?}", begin.elapsed());
}

/// Records a source's states.
#[derive(Default)]
struct Log(Mutex<Vec<&'static str>>);

impl EventSink for Log {
    fn emit(&self, event: Event) {
        if let Event::Source { state, .. } = event {
            self.0.lock().expect("not poisoned").push(state.name());
        }
    }
}

#[test]
fn images_come_once_however_long_the_pipeline_holds_their_slots() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for red in 1..=20 {
        save(&folder.path().join(format!("{red}.png")), red);
    }
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
    let uri = SourceUri::parse(&folder.path().display().to_string()).expect("it is valid");
    let telemetry = Telemetry::new(1).stream(StreamId(0));
    let (policy, batch_wait) = (DropPolicy::Block, Duration::ZERO);
    let queue = StreamQueue { group: 0, frames_max: 16, policy, batch_wait };
    let mux = Mux::new(Arc::clone(&clock));
    let log = Arc::new(Log::default());
    let runner = SourceRunner {
        shown: uri.to_string(),
        source: open(&uri, "test", FrameMemory::Host, queue.frames_max, Arc::clone(&clock))
            .expect("it is there"),
        frame_sender: mux.add(telemetry.clone(), queue, 1).expect("open"),
        reconnect: Reconnect { attempts_max: None, stall: Duration::from_millis(300) },
        frames_max: None,
        clock,
        seed: 5,
        events: log.clone(),
        telemetry,
        stop: Stop::default(),
    };
    let running = std::thread::spawn(move || runner.run());
    // All slots wait in the ring, for longer than the stall time.
    std::thread::sleep(Duration::from_secs(1));
    let (mut batch, mut seen) = (Vec::new(), Vec::new());
    while mux.next(&mut batch).is_some() {
        seen.extend(batch.iter().map(|frame| pixel(frame, 0, 0)[0]));
    }
    assert!(matches!(running.join().expect("it does not panic"), SourceEnd::Complete));
    assert_eq!(seen, (1..=20u8).collect::<Vec<_>>());
    assert_eq!(*log.0.lock().expect("not poisoned"), ["connecting", "live", "ended"]);
}

#[test]
fn folders_that_cannot_be_used_are_told() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let plain = folder.path().display().to_string();
    for uri in [plain.clone(), format!("{plain}/"), format!("{plain}/missing/")] {
        let fault = read(&uri, 9).expect_err("it has no image");
        assert_eq!(fault.code.id, codes::FILE_MISSING.id, "{fault}");
        assert!(!fault.to_string().contains('\n'), "{fault}");
    }
    save(&folder.path().join("1.png"), 7);
    let fault = read(&format!("{plain}/1.png/"), 9).expect_err("it is a file");
    assert_eq!(fault.code.id, codes::FILE_MISSING.id, "{fault}");
    let mut damaged = Cursor::new(Vec::new());
    RgbImage::new(300, 300).write_to(&mut damaged, image::ImageFormat::Png).expect("memory has room");
    fs::write(folder.path().join("2.png"), &damaged.get_ref()[..100]).expect("writable");
    let fault = read(&plain, 9).expect_err("the second image is damaged");
    assert_eq!(fault.code.id, codes::IMAGE_DECODE.id, "{fault}");
    assert!(fault.to_string().contains("2.png"), "{fault}");
}

#[test]
fn pipes_and_devices_are_refused_wherever_an_image_or_a_video_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    for name in ["pipe.mp4", "pipe.jpg", "sequence_2.png", "sub/b.jpg"] {
        fs::create_dir_all(path(name).parent().expect("it is below")).expect("writable");
        rustix::fs::mkfifoat(rustix::fs::CWD, path(name), mode).expect("writable");
    }
    for (name, device) in [("zero.mp4", "/dev/zero"), ("zero.png", "/dev/zero")] {
        std::os::unix::fs::symlink(device, path(name)).expect("writable");
    }
    RgbImage::new(8, 8).save(path("sequence_1.png")).expect("writable");
    RgbImage::new(8, 8).save(path("sub/a.jpg")).expect("writable");
    for name in ["pipe.mp4", "pipe.jpg", "zero.mp4", "zero.png", "sequence_%i.png", "sub/"] {
        let fault = read(path(name).to_str().expect("UTF-8"), 9).expect_err("it is no file");
        assert_eq!(fault.code.id, codes::FILE_MISSING.id, "{fault}");
        assert!(fault.cause.contains("device or pipe"), "{fault}");
    }
}
