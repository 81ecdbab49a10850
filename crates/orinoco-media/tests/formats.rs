//! Tests containers and codecs: every frame has its time, is upright, and has its true colours. GStreamer makes the
//! files.
#![cfg(feature = "gstreamer")]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Reading, launch, note, read, read_from, rgb};
use orinoco_core::{Code, ColorMatrix, ColorRange, FrameDesc, Orientation, PixelFormat, codes};
use orinoco_media::RawSource;
use orinoco_pipeline::Frame;
use orinoco_uri::{Pace, RawLayout, RawVideo};

/// Number of frames in each file, at 25 per second.
const FRAMES: usize = 24;
const INTERVAL: u64 = 40_000_000;
/// Rounding of times, in nanoseconds: Matroska and FLV have milliseconds.
const ROUNDING: u64 = 1_000_000;

const H264: &str = "x264enc speed-preset=ultrafast bframes=2 b-adapt=false";
const H264_PLAIN: &str = "x264enc speed-preset=ultrafast bframes=0";
const H265: &str = "x265enc speed-preset=ultrafast ! h265parse";
const JPEG: &str = "jpegenc";
const VP9: &str = "vp9enc cpu-used=8 deadline=1 ! vp9parse";
const VP8: &str = "vp8enc cpu-used=8 deadline=1";
const MPEG4: &str = "avenc_mpeg4 ! mpeg4videoparse";
const THEORA: &str = "theoraenc";
const AAC: &str = "avenc_aac ! aacparse";
const VORBIS: &str = "vorbisenc";
const PCM: &str = "audio/x-raw,format=S16LE";

/// Makes a file of [`FRAMES`] frames with an audio track, both starting at zero.
fn make(path: &Path, coder: &str, mux: &str, sound: &str) {
    make_late(path, coder, mux, sound, 0);
}

/// Makes the same file with the video starting `late` nanoseconds after the audio.
fn make_late(path: &Path, coder: &str, mux: &str, sound: &str, late: u64) {
    launch(&format!(
        "videotestsrc num-buffers={FRAMES} timestamp-offset={late} ! \
         video/x-raw,format=I420,width=160,height=120,framerate=25/1 ! {coder} ! queue ! mux. \
         audiotestsrc num-buffers=60 samplesperbuffer=1024 ! audioconvert ! {sound} ! queue ! mux. \
         {mux} name=mux ! filesink location={}",
        path.display()
    ));
}

fn times(uri: &str, frames_max: usize) -> Reading<u64> {
    read(uri, frames_max, |frame| {
        assert_eq!((frame.desc.width, frame.desc.height), (160, 120));
        frame.desc.pts.0
    })
}

/// Returns the times that `ffprobe` reports, in seconds, if it is installed; `None` for a time that the container does
/// not have.
fn ffprobe(path: &Path) -> Option<Vec<Option<f64>>> {
    let arguments =
        ["-v", "error", "-select_streams", "v:0", "-show_entries", "frame=pts_time", "-of", "csv=p=0"];
    let output = Command::new("ffprobe").args(arguments).arg(path).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let lines = text.lines().map(|line| line.trim_end_matches(',')).filter(|line| !line.is_empty());
    Some(lines.map(|line| line.parse().ok()).collect())
}

/// Checks that `seen` has the times that were made, and those that `ffprobe` reports. `start` is the first frame's
/// time.
fn check_times(path: &Path, start: u64, seen: &[u64]) {
    let expected: Vec<u64> = (0..FRAMES as u64).map(|number| start + number * INTERVAL).collect();
    let near = |a: &u64, b: &u64| a.abs_diff(*b) <= ROUNDING;
    assert!(
        seen.len() == FRAMES && seen.iter().zip(&expected).all(|(a, b)| near(a, b)),
        "{path:?}: {} frames, {seen:?}",
        seen.len()
    );
    let Some(probed) = ffprobe(path) else { return };
    assert_eq!(probed.len(), seen.len(), "{path:?}");
    let free = path.extension().is_some_and(|extension| extension == "ts");
    let zero = if free { probed[0].unwrap_or(0.0) } else { 0.0 };
    for (ours, theirs) in seen.iter().zip(&probed) {
        let Some(theirs) = theirs else { continue };
        let off = (*ours as f64 / 1e9 - (theirs - zero)).abs();
        assert!(off < 0.0011, "{path:?}: {ours} ns, ffprobe {theirs} s");
    }
}

#[test]
fn every_container_and_codec_gives_each_frame_at_its_time() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cases = [
        ("h264.mp4", H264, "mp4mux", AAC),
        ("h264-fragmented.mp4", H264_PLAIN, "mp4mux fragment-duration=500", AAC),
        ("h264.mov", H264, "qtmux", AAC),
        ("h264.mkv", H264, "matroskamux", VORBIS),
        ("h264.avi", H264_PLAIN, "avimux", PCM),
        ("h264.ts", H264, "mpegtsmux", AAC),
        ("h264.flv", H264_PLAIN, "flvmux", AAC),
        ("h265.mp4", H265, "mp4mux", AAC),
        ("h265.mkv", H265, "matroskamux", VORBIS),
        ("h265.ts", H265, "mpegtsmux", AAC),
        ("jpeg.mov", JPEG, "qtmux", AAC),
        ("jpeg.mkv", JPEG, "matroskamux", VORBIS),
        ("jpeg.avi", JPEG, "avimux", PCM),
        ("vp9.mp4", VP9, "mp4mux", AAC),
        ("vp9.mkv", VP9, "matroskamux", VORBIS),
        ("vp9.webm", VP9, "webmmux", VORBIS),
        ("vp8.webm", VP8, "webmmux", VORBIS),
        ("vp8.avi", VP8, "avimux", PCM),
        ("mpeg4.avi", MPEG4, "avimux", PCM),
        ("mpeg4.ts", MPEG4, "mpegtsmux", AAC),
        ("theora.ogv", THEORA, "oggmux", VORBIS),
    ];
    let mut probed = 0;
    for (name, coder, mux, sound) in cases {
        let path = folder.path().join(name);
        make(&path, coder, mux, sound);
        let reading = times(path.to_str().expect("UTF-8"), usize::MAX);
        assert!(reading.fault.is_none(), "{name}: {:?}", reading.fault);
        check_times(&path, 0, &reading.frames);
        probed += usize::from(ffprobe(&path).is_some());
        // Three passes: the second follows the first at the distance of one frame, and so does the third.
        let reading = times(&format!("{}?loop=1", path.display()), 2 * FRAMES + 5);
        assert_eq!(reading.frames.len(), 2 * FRAMES + 5, "{name}: {:?}", reading.fault);
        // FLV gives its last frame twice its duration.
        let gap_max = if name.ends_with("flv") { 2 * INTERVAL } else { INTERVAL };
        let odd = reading.frames.windows(2).filter(|pair| {
            let gap = pair[1].saturating_sub(pair[0]);
            gap + ROUNDING < INTERVAL || gap > gap_max + ROUNDING
        });
        let odd: Vec<_> = odd.collect();
        assert!(odd.is_empty(), "{name}: {odd:?}");
    }
    note(&format!("{} files of {FRAMES} frames, {probed} of them compared with ffprobe", cases.len()));
}

#[test]
fn video_that_starts_late_keeps_its_container_s_time() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, coder, mux, sound, start) in [
        ("late.mp4", H264, "mp4mux", AAC, 320_000_000),
        ("late.mkv", VP8, "matroskamux", VORBIS, 320_000_000),
        // A transport stream has no zero, so the first frame is at zero.
        ("late.ts", H264, "mpegtsmux", AAC, 0),
    ] {
        let path = folder.path().join(name);
        make_late(&path, coder, mux, sound, 320_000_000);
        let reading = times(path.to_str().expect("UTF-8"), usize::MAX);
        assert!(reading.fault.is_none(), "{name}: {:?}", reading.fault);
        check_times(&path, start, &reading.frames);
    }
}

#[test]
fn the_first_of_two_video_tracks_is_taken() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, mux) in [("two.mkv", "matroskamux"), ("two.mp4", "mp4mux"), ("two.ts", "mpegtsmux")] {
        let path = folder.path().join(name);
        let track = |side: u32| {
            format!(
                "videotestsrc num-buffers=10 ! video/x-raw,format=I420,width={side},height={side},framerate=25/1 ! {H264} ! \
                 queue ! mux.video_{} ",
                if mux == "mpegtsmux" { String::new() } else { format!("{}", u32::from(side != 64)) }
            )
        };
        let description =
            format!("{mux} name=mux ! filesink location={} {} {}", path.display(), track(64), track(96));
        launch(&description.replace("mux.video_ ", "mux. "));
        let reading = read(path.to_str().expect("UTF-8"), usize::MAX, |frame| frame.desc.width);
        assert_eq!(
            (reading.frames, reading.fault.map(|fault| fault.to_string())),
            (vec![64; 10], None),
            "{name}"
        );
    }
}

#[test]
fn one_frame_is_a_whole_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("one.mkv");
    launch(&format!(
        "videotestsrc num-buffers=1 ! video/x-raw,framerate=0/1,width=160,height=120 ! jpegenc ! matroskamux ! \
         filesink location={}",
        path.display()
    ));
    let reading = times(path.to_str().expect("UTF-8"), usize::MAX);
    assert_eq!((reading.frames.len(), reading.fault.map(|fault| fault.to_string())), (1, None));
    let reading = times(&format!("{}?loop=1", path.display()), 5);
    assert!(reading.frames.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", reading.frames);
}

/// Reads a damaged file, which must end in time with a sentence of an `allowed` kind, or without a fault if that is
/// allowed.
fn check_broken(path: &Path, allowed: &[Option<&'static Code>]) -> usize {
    let reading = read(path.to_str().expect("UTF-8"), usize::MAX, |_| ());
    let text = reading.fault.as_ref().map(|fault| fault.to_string()).unwrap_or_default();
    let code = reading.fault.map(|fault| fault.code.id);
    assert!(allowed.iter().any(|one| one.map(|code| code.id) == code), "{path:?}: {code:?} {text}");
    assert!(text.len() < 300 && !text.contains('\n') && !text.contains(".c("), "{text}");
    assert!(reading.took.as_secs() < 15, "{text} took {:?}", reading.took);
    reading.frames.len()
}

/// Runs `check` on all cases at the same time, because most of the time is waiting.
fn at_once<T: Send>(cases: Vec<T>, check: impl Fn(T) + Sync) {
    let check = &check;
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(move || check(case));
        }
    });
}

#[test]
fn files_without_video_end_with_one_sentence() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    at_once(vec!["text.mkv", "text.avi", "text.ts", "text.webm", "text.mov"], |name| {
        fs::write(path(name), "Not a video, whatever its name says.\n".repeat(200)).expect("writable");
        assert_eq!(check_broken(&path(name), &[Some(&codes::SOURCE_OPEN)]), 0);
    });
    at_once(vec!["empty.mkv", "empty.avi", "empty.ts"], |name| {
        fs::write(path(name), "").expect("writable");
        assert_eq!(check_broken(&path(name), &[Some(&codes::SOURCE_OPEN)]), 0);
    });
    let sounds = vec![
        ("sound.ts", AAC, "mpegtsmux"),
        ("sound.avi", PCM, "avimux"),
        ("sound.webm", VORBIS, "webmmux"),
        ("sound.flv", AAC, "flvmux"),
    ];
    at_once(sounds, |(name, sound, mux)| {
        launch(&format!(
            "audiotestsrc num-buffers=60 ! audioconvert ! {sound} ! {mux} ! filesink location={}",
            path(name).display()
        ));
        assert_eq!(check_broken(&path(name), &[Some(&codes::SOURCE_NO_VIDEO)]), 0);
    });
}

#[test]
fn files_cut_off_end_with_one_sentence() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cases = vec![
        ("cut.mkv", VP9, "matroskamux", VORBIS),
        ("cut.avi", JPEG, "avimux", PCM),
        ("cut.mp4", H265, "mp4mux", AAC),
        ("cut.ts", H264, "mpegtsmux", AAC),
        ("cut.ogv", THEORA, "oggmux", VORBIS),
    ];
    at_once(cases, |(name, coder, mux, sound)| {
        let location = folder.path().join(name);
        make(&location, coder, mux, sound);
        let whole = fs::read(&location).expect("just written");
        // These containers have no length, so a truncated file is only a shorter one.
        let silent = name.ends_with(".ts") || name.ends_with(".ogv");
        let (open, no_video) = (Some(&codes::SOURCE_OPEN), Some(&codes::SOURCE_NO_VIDEO));
        let allowed: &[_] = match silent {
            true => &[None, open, no_video, Some(&codes::SOURCE_DECODE)],
            false => &[Some(&codes::SOURCE_TRUNCATED)],
        };
        let frames = [0.005, 0.03, 0.5, 0.9].map(|share| {
            let length = (whole.len() as f64 * share) as usize;
            fs::write(&location, &whole[..length.max(40)]).expect("writable");
            check_broken(&location, allowed)
        });
        note(&format!("{name}: frames before the cut {frames:?}"));
        // The index of this MP4 comes last.
        assert_eq!(frames[3] > 0, name != "cut.mp4", "{name}: {frames:?}");
        assert!(frames.iter().all(|&frames| frames <= FRAMES));
    });
}

#[test]
fn codecs_that_nobody_knows_are_told() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, coder, mux, sound, codec, other) in [
        ("unknown.mkv", VP8, "matroskamux", VORBIS, &b"V_VP8"[..], &b"V_ZZ8"[..]),
        ("unknown.mp4", H264, "mp4mux", AAC, b"avc1", b"zzzz"),
        ("unknown.avi", JPEG, "avimux", PCM, b"MJPG", b"ZZZZ"),
    ] {
        let path = folder.path().join(name);
        make(&path, coder, mux, sound);
        let mut bytes = fs::read(&path).expect("just written");
        let places: Vec<usize> =
            (0..bytes.len() - codec.len()).filter(|&place| bytes[place..].starts_with(codec)).collect();
        assert!(!places.is_empty(), "{name}");
        places.into_iter().for_each(|place| bytes[place..][..other.len()].copy_from_slice(other));
        fs::write(&path, bytes).expect("writable");
        let reading = read(path.to_str().expect("UTF-8"), usize::MAX, |_| ());
        let fault = reading.fault.expect("nobody can decode it");
        note(&fault.to_string());
        assert!(reading.frames.is_empty() && !fault.to_string().contains('\n'), "{fault}");
        assert!([codes::SOURCE_OPEN.id, codes::SOURCE_NO_VIDEO.id].contains(&fault.code.id), "{fault}");
    }
}

/// Colours that a model should see, in patches of [`PATCH`] pixels. None is at the edge of the gamut, where rounding
/// would be clipped.
const COLOURS: [[u8; 3]; 8] = [
    [230, 230, 230],
    [200, 190, 40],
    [40, 180, 190],
    [40, 170, 50],
    [190, 50, 180],
    [200, 40, 40],
    [40, 50, 190],
    [25, 25, 25],
];
const PATCH: usize = 48;
/// Maximum error of coding and of 8 bits in limited range, in levels.
const LEVELS_MAX: f64 = 5.0;

/// Makes a video of the colours, through `format` with `colorimetry`.
fn make_colours(path: &Path, format: &str, colorimetry: &str, coder: &str, mux: &str) {
    let raw = path.with_extension("rgb");
    let (width, height) = (COLOURS.len() * PATCH, PATCH);
    let row: Vec<u8> = COLOURS.iter().flat_map(|colour| colour.repeat(PATCH)).collect();
    fs::write(&raw, row.repeat(height * 3)).expect("writable");
    launch(&format!(
        "filesrc location={} ! rawvideoparse format=rgb width={width} height={height} framerate=25/1 ! videoconvert ! \
         video/x-raw,format={format},colorimetry={colorimetry} ! {coder} ! {mux} ! filesink location={}",
        raw.display(),
        path.display()
    ));
}

/// Reads the first frame. Returns its descriptor and the largest difference from the true colours.
fn colours_of(path: &Path) -> (FrameDesc, f64) {
    let reading = read(path.to_str().expect("UTF-8"), 1, |frame| {
        let worst = COLOURS.iter().enumerate().flat_map(|(patch, truth)| {
            let seen = rgb(frame, patch * PATCH + PATCH / 2, PATCH / 2);
            seen.into_iter()
                .zip(truth)
                .map(|(seen, &truth)| (seen - f64::from(truth)).abs())
                .collect::<Vec<_>>()
        });
        (frame.desc, worst.fold(0.0, f64::max))
    });
    reading.frames.into_iter().next().unwrap_or_else(|| panic!("{path:?}: {:?}", reading.fault))
}

#[test]
fn colours_are_true_whatever_matrix_range_and_format() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (bt601, bt709, bt2020) = (ColorMatrix::Bt601, ColorMatrix::Bt709, ColorMatrix::Bt2020);
    let (limited, full) = (ColorRange::Limited, ColorRange::Full);
    let exact = "x264enc speed-preset=ultrafast pass=qual quantizer=4";
    let exact_hevc = "x265enc speed-preset=ultrafast qp=4 ! h265parse";
    let cases = [
        ("mkv", "I420", "bt601", exact, "matroskamux", (bt601, limited)),
        ("mp4", "I420", "bt709", exact, "mp4mux", (bt709, limited)),
        ("mp4", "I420", "1:4:16:4", exact, "mp4mux", (bt601, full)),
        ("mkv", "I420", "1:3:5:1", exact, "matroskamux", (bt709, full)),
        ("ts", "I420", "1:3:5:1", exact, "mpegtsmux", (bt709, full)),
        ("mkv", "NV12", "bt2020", exact, "matroskamux", (bt2020, limited)),
        ("mp4", "Y42B", "bt709", exact, "mp4mux", (bt709, limited)),
        ("mp4", "Y444", "bt601", exact, "mp4mux", (bt601, limited)),
        ("mkv", "Y444", "1:3:5:1", exact, "matroskamux", (bt709, full)),
        ("mp4", "I420_10LE", "bt2020-10", exact, "mp4mux", (bt2020, limited)),
        ("mkv", "I422_10LE", "bt709", exact, "matroskamux", (bt709, limited)),
        ("mp4", "I420", "bt709", exact_hevc, "mp4mux", (bt709, limited)),
        ("mkv", "I420_10LE", "bt2020-10", exact_hevc, "matroskamux", (bt2020, limited)),
        ("avi", "I420", "1:4:0:0", "jpegenc quality=98", "avimux", (bt601, full)),
        ("mkv", "Y42B", "1:4:0:0", "jpegenc quality=98", "matroskamux", (bt601, full)),
        (
            "webm",
            "I420",
            "bt709",
            "vp9enc cpu-used=8 deadline=1 min-quantizer=0 max-quantizer=4",
            "webmmux",
            (bt709, limited),
        ),
        (
            "webm",
            "I420",
            "bt601",
            "vp8enc cpu-used=8 deadline=1 min-quantizer=0 max-quantizer=4",
            "webmmux",
            (bt601, limited),
        ),
        ("avi", "I420", "bt601", "avenc_mpeg4 bitrate=8000000 qmax=2", "avimux", (bt601, limited)),
        // Only the container has the colorimetry here.
        (
            "mkv",
            "I420",
            "1:3:5:1",
            "avenc_mpeg4 bitrate=8000000 qmax=2 ! mpeg4videoparse",
            "matroskamux",
            (bt709, full),
        ),
    ];
    let mut seen = Vec::new();
    for (extension, format, colorimetry, coder, mux, expected) in cases {
        let path = folder.path().join("colours").with_extension(extension);
        make_colours(&path, format, colorimetry, coder, mux);
        let (desc, off) = colours_of(&path);
        let name =
            format!("{extension} {format} {colorimetry} {}", coder.split(' ').next().unwrap_or_default());
        assert!(desc.format.is_yuv(), "{name}: {desc:?}");
        assert_eq!((desc.matrix, desc.range), expected, "{name}");
        assert!(off <= LEVELS_MAX, "{name}: {off} levels off");
        seen.push(format!("{name}: {off:.1}"));
    }
    note(&format!("levels off: {seen:#?}"));
}

#[test]
fn uncompressed_and_grey_video_keeps_its_values() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("raw.mkv");
    make_colours(&path, "RGB", "sRGB", "identity", "matroskamux");
    let (desc, off) = colours_of(&path);
    assert_eq!((desc.format, desc.range, off), (PixelFormat::Rgb, ColorRange::Full, 0.0));
    let path = folder.path().join("grey.mkv");
    // White, mid grey and black of limited range, which Orinoco's grey format does not have.
    make_colours(&path, "GRAY8", "bt709", "avenc_ffv1", "matroskamux");
    let reading = read(path.to_str().expect("UTF-8"), 1, |frame| {
        [0, COLOURS.len() - 1].map(|patch| rgb(frame, patch * PATCH + PATCH / 2, PATCH / 2))
    });
    for (patch, truth) in reading.frames[0].iter().zip([230.0, 25.0]) {
        assert!(patch.iter().all(|value| (value - truth).abs() <= LEVELS_MAX), "{:?}", reading.frames);
    }
}

/// Returns the size of an image and the brightness of its quarters; before any rotation only the upper left one is
/// white.
fn bright_corner(frame: &Frame) -> (u32, u32, [bool; 4]) {
    assert_eq!(frame.desc.orientation, Orientation::Upright);
    let plane = frame.view().plane(0);
    let (width, height) = (frame.desc.width as usize, frame.desc.height as usize);
    let at = |x: usize, y: usize| plane.row(y)[x] > 128;
    let (left, right, top, bottom) = (width / 4, width * 3 / 4, height / 4, height * 3 / 4);
    (
        frame.desc.width,
        frame.desc.height,
        [at(left, top), at(right, top), at(left, bottom), at(right, bottom)],
    )
}

#[test]
fn turned_video_is_upright_also_when_it_repeats() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (raw, path) = (folder.path().join("corner.gray"), folder.path().join("corner.mp4"));
    // Odd sides, so that the halves of chroma are not whole either.
    // GStreamer's rows are padded to four bytes.
    let (width, height, stride) = (97, 63, 100);
    let bright = |i: usize| i % stride < width / 2 && i / stride < height / 2;
    let frame: Vec<u8> = (0..stride * height).map(|i| if bright(i) { 255 } else { 0 }).collect();
    fs::write(&raw, frame.repeat(6)).expect("writable");
    launch(&format!(
        "filesrc location={} ! rawvideoparse format=gray8 width={width} height={height} framerate=25/1 ! \
         videoconvert ! video/x-raw,format=I420 ! jpegenc ! qtmux ! filesink location={}",
        raw.display(),
        path.display()
    ));
    let whole = fs::read(&path).expect("just written");
    // Matrix of the track header (ISO/IEC 14496-12, section 8.3.2), 40 bytes after the box's header.
    let matrix = whole.windows(4).position(|bytes| bytes == b"tkhd").expect("a track has a header") + 44;
    let one = 0x0001_0000i32;
    for (turn, expected) in [
        ([one, 0, 0, one], (97, 63, [true, false, false, false])),
        ([0, one, -one, 0], (63, 97, [false, true, false, false])),
        ([-one, 0, 0, -one], (97, 63, [false, false, false, true])),
        ([0, -one, one, 0], (63, 97, [false, false, true, false])),
    ] {
        let mut bytes = whole.clone();
        for (place, value) in [0, 4, 12, 16].into_iter().zip(turn) {
            bytes[matrix + place..][..4].copy_from_slice(&value.to_be_bytes());
        }
        fs::write(&path, bytes).expect("writable");
        let reading = read(&format!("{}?loop=1", path.display()), 15, bright_corner);
        assert_eq!(reading.frames, vec![expected; 15], "{:?}", reading.fault);
    }
}

#[test]
fn gstreamer_s_y4m_is_what_we_read() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (raw, y4m) = (folder.path().join("x.i420"), folder.path().join("x.y4m"));
    launch(&format!(
        "videotestsrc num-buffers=5 ! video/x-raw,format=I420,width=64,height=48,framerate=30000/1001 ! tee name=t ! \
         queue ! filesink location={} t. ! queue ! y4menc ! filesink location={}",
        raw.display(),
        y4m.display()
    ));
    let video = RawVideo { layout: RawLayout::Y4m, pace: Pace::Free };
    let reader = Box::new(fs::File::open(&y4m).expect("just written"));
    let mut source = RawSource::from_reader(reader, video, "y4m", common::clock());
    let reading = read_from(&mut source, usize::MAX, |frame| {
        (frame.desc.pts.0, frame.view().packed_rows().flatten().copied().collect::<Vec<_>>())
    });
    assert!(reading.fault.is_none(), "{:?}", reading.fault);
    assert_eq!(
        reading.frames.iter().map(|(pts, _)| *pts).collect::<Vec<_>>()[..3],
        [0, 33_366_666, 66_733_333]
    );
    let frames: Vec<u8> = reading.frames.into_iter().flat_map(|(_, frame)| frame).collect();
    assert!(frames == fs::read(&raw).expect("just written"));
}
