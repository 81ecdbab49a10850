//! Compares each frame's time stamp and pixels with FFmpeg's, for files that FFmpeg makes: reordering codecs in every
//! container, open GOPs, variable rates, edit lists, animations.
#![cfg(feature = "gstreamer")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{has_ffmpeg, note, read};
use md5::{Digest, Md5};
use orinoco_core::PixelFormat;

/// Maximum deviation, in nanoseconds, where a tick of the container is longer.
const TICK_NANOS_MAX: f64 = 1e6;
/// Number of files that are made and read at the same time.
const WORKERS: usize = 2;

/// Time of a file's first frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// Time in the container.
    Container,
    /// Zero: the container starts at any time (MPEG-TS, MPEG-PS), or has no presentation times (AVI, and Matroska in
    /// its compatibility mode), where FFmpeg counts the frames by which the decoder reorders.
    Zero,
}

/// Whether two decoders must agree bit for bit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pixels {
    Exact,
    /// The standard leaves the inverse transform open, so the decoders differ.
    Differ,
}

/// File to test: FFmpeg's arguments after its first input.
struct Case {
    name: &'static str,
    arguments: &'static str,
    start: Start,
    pixels: Pixels,
}

const fn case(name: &'static str, arguments: &'static str) -> Case {
    Case { name, arguments, start: Start::Container, pixels: Pixels::Exact }
}

const fn from_zero(name: &'static str, arguments: &'static str) -> Case {
    Case { name, arguments, start: Start::Zero, pixels: Pixels::Exact }
}

const fn times_only(name: &'static str, arguments: &'static str) -> Case {
    Case { name, arguments, start: Start::Container, pixels: Pixels::Differ }
}

const CASES: &[Case] = &[
    // AVI has one time for each chunk, in decoding order.
    from_zero("mpeg4-b.avi", "-c:v mpeg4 -bf 2 -g 12 -q:v 3"),
    // libxvid packs two frames into one chunk, as DivX did, and adds empty ones.
    from_zero("mpeg4-packed.avi", "-c:v libxvid -bf 2 -g 10 -frames:v 32"),
    from_zero("mpeg4-b-ntsc.avi", "-r 30000/1001 -c:v mpeg4 -bf 1 -g 9 -q:v 3"),
    from_zero("mpeg4-b-sound.avi", "-f lavfi -i sine=d=1.2 -c:v mpeg4 -bf 2 -g 12 -c:a mp3"),
    from_zero(
        "mpeg4-b-gaps.avi",
        "-vf select='not(between(n,7,9)+eq(n,20))' -vsync vfr -c:v mpeg4 -bf 2 -g 12",
    ),
    from_zero("mpeg4-plain.avi", "-c:v mpeg4 -bf 0"),
    from_zero("mpeg2-b.avi", "-c:v mpeg2video -bf 2 -g 12"),
    from_zero("h264-b.avi", "-c:v libx264 -bf 2 -b_strategy 0"),
    from_zero("h264-pyramid.avi", "-c:v libx264 -bf 5 -b_strategy 0 -x264-params b-pyramid=normal"),
    from_zero("h264-open.avi", "-c:v libx264 -bf 3 -g 10 -x264-params open-gop=1:b-adapt=0"),
    from_zero("h264-late-b.avi", "-vf select='gt(n,14)',loop=15:1,setpts=N/25/TB -c:v libx264 -bf 3"),
    from_zero("vp8.avi", "-c:v libvpx -auto-alt-ref 1 -lag-in-frames 16 -deadline realtime -b:v 300k"),
    // MP4 and MOV.
    case("mpeg4-b.mp4", "-c:v mpeg4 -bf 2 -g 12"),
    case("mpeg2-b.mp4", "-c:v mpeg2video -bf 2 -g 12"),
    case("h264-b.mp4", "-c:v libx264 -bf 2 -b_strategy 0"),
    case("h264-pyramid.mp4", "-c:v libx264 -bf 7 -b_strategy 0 -x264-params b-pyramid=normal"),
    case("h264-open.mp4", "-c:v libx264 -bf 3 -g 10 -x264-params open-gop=1:b-adapt=0"),
    case("h264-edited.mp4", "then -ss 0.48 -i FIRST -c copy"),
    // Key frames near the end, before which `qtdemux` would end the movie.
    case("h264-short-groups.mp4", "then -ss 0.72 -i FIRST -c copy"),
    case(
        "h264-short-groups-sound.mov",
        "then -ss 0.72 -i FIRST -f lavfi -i sine=d=2 -shortest -map 0 -map 1 -c:v copy -c:a aac",
    ),
    case("h264-short-groups-part.mp4", "then -ss 0.48 -t 0.6 -i FIRST -c copy"),
    case("h264-negative.mp4", "-c:v libx264 -bf 3 -movflags negative_cts_offsets"),
    case("h264-later.mp4", "-f lavfi -i sine=d=2 -vf setpts=PTS+0.5/TB -c:v libx264 -bf 2 -c:a aac"),
    case("h264-fragmented.mp4", "-c:v libx264 -bf 2 -g 10 -movflags frag_keyframe+empty_moov"),
    case("h264-variable.mp4", "-vf setpts='(N*0.04+0.013*mod(N*7,5))/TB' -vsync vfr -c:v libx264 -bf 3"),
    case("h264-interlaced.mp4", "-vf interlace -c:v libx264 -flags +ildct+ilme -bf 2 -x264-params tff=1"),
    case("h265-b.mp4", "-c:v libx265 -bf 4 -x265-params log-level=none -tag:v hvc1"),
    case("h265-open.mov", "-c:v libx265 -g 10 -x265-params open-gop=1:bframes=3:log-level=none"),
    case("vp9.mp4", "-c:v libvpx-vp9 -deadline realtime -cpu-used 8"),
    times_only("jpeg.mov", "-c:v mjpeg -q:v 3"),
    // Matroska.
    case("mpeg4-b.mkv", "-c:v mpeg4 -bf 2 -g 12"),
    from_zero("mpeg4-b-vfw.mkv", "then -fflags +genpts -i FIRST -c copy -allow_raw_vfw 1"),
    case("mpeg2-b.mkv", "-c:v mpeg2video -bf 2 -g 12"),
    case("h264-b.mkv", "-c:v libx264 -bf 2 -b_strategy 0"),
    case("h264-open.mkv", "-c:v libx264 -bf 3 -g 10 -x264-params open-gop=1:b-adapt=0"),
    case("h264-variable.mkv", "-vf setpts='(N*0.04+0.013*mod(N*7,5))/TB' -vsync vfr -c:v libx264 -bf 3"),
    case("h265-b.mkv", "-c:v libx265 -bf 4 -x265-params log-level=none"),
    case(
        "vp9-hidden.webm",
        "-c:v libvpx-vp9 -auto-alt-ref 1 -lag-in-frames 25 -cpu-used 8 -b:v 200k -row-mt 0",
    ),
    case(
        "vp9-alpha.webm",
        "-vf format=yuva420p,colorchannelmixer=aa=0.5 -c:v libvpx-vp9 -cpu-used 8 -pix_fmt yuva420p",
    ),
    case("vp8-alpha.webm", "-vf format=yuva420p -c:v libvpx -auto-alt-ref 0 -pix_fmt yuva420p"),
    case("vp8-hidden.webm", "-c:v libvpx -auto-alt-ref 1 -lag-in-frames 16 -cpu-used 8 -b:v 200k"),
    // Transport and program streams.
    from_zero("mpeg2-b.ts", "-c:v mpeg2video -bf 2 -g 12"),
    from_zero("mpeg4-b.ts", "-c:v mpeg4 -bf 2 -g 12"),
    from_zero("h264-b.ts", "-c:v libx264 -bf 2 -b_strategy 0"),
    from_zero("h264-open.ts", "-c:v libx264 -bf 3 -g 10 -x264-params open-gop=1:b-adapt=0"),
    from_zero("h265-b.ts", "-c:v libx265 -bf 4 -x265-params log-level=none"),
    from_zero("mpeg2-b.mpg", "-c:v mpeg2video -bf 2 -g 12"),
    from_zero("mpeg2-small.mpg", "-c:v mpeg2video -bf 2 -g 12 -b:v 60k"),
    from_zero("mpeg2-interlaced.vob", "-r 30000/1001 -c:v mpeg2video -flags +ildct+ilme -bf 2 -g 12 -f vob"),
    from_zero("mpeg1-b.mpg", "-c:v mpeg1video -bf 2 -g 12 -f mpeg"),
    // Others.
    case("h264-b.flv", "-c:v libx264 -bf 2 -b_strategy 0"),
    case("wmv2.wmv", "-c:v wmv2"),
    case("theora.ogv", "-c:v libtheora"),
    case("delays.gif", "-vf setpts='(N*N*0.006)/TB' -vsync vfr"),
    case("even.gif", "-r 10"),
    case("fast.gif", "-r 50"),
];

fn ffmpeg(arguments: &[&str], path: &Path) -> bool {
    let output = Command::new("ffmpeg").args(["-v", "error", "-y"]).args(arguments).arg(path).output();
    let output = output.expect("ffmpeg was there just now");
    if !output.status.success() {
        note(&format!("{}: {}", path.display(), String::from_utf8_lossy(&output.stderr)));
    }
    output.status.success()
}

/// Makes the file of `case`. Arguments that start with `then` copy from a file with B-frames that is made first.
fn make(folder: &Path, case: &Case) -> PathBuf {
    let path = folder.join(case.name);
    let pattern = ["-f", "lavfi", "-i", "testsrc2=s=160x120:r=25:d=1.4"];
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let common = ["-pix_fmt", "yuv420p", "-threads", "2"];
    let made = match case.arguments.strip_prefix("then ") {
        None => {
            let own = words(case.arguments);
            // GIF has its own pixel formats.
            let own = own.iter().map(String::as_str);
            let is_own = case.name.ends_with(".gif") || case.arguments.contains("pix_fmt");
            let common: &[&str] = if is_own { &[] } else { &common };
            let arguments: Vec<&str> = pattern.into_iter().chain(own).chain(common.iter().copied()).collect();
            ffmpeg(&arguments, &path)
        }
        Some(rest) => {
            let first = folder
                .join(format!("first-{}", case.name))
                .with_extension(if case.name.contains("vfw") { "avi" } else { "mp4" });
            let coder = match case.name {
                name if name.contains("vfw") => "-c:v mpeg4 -bf 2 -g 12",
                name if name.contains("short") => "-c:v libx264 -bf 3 -g 10 -b_strategy 0",
                _ => "-c:v libx264 -bf 3 -g 50 -b_strategy 0",
            };
            let coder = words(coder);
            let arguments: Vec<&str> =
                pattern.into_iter().chain(coder.iter().map(String::as_str)).chain(common).collect();
            assert!(ffmpeg(&arguments, &first), "{}", case.name);
            let rest = words(&rest.replace("FIRST", first.to_str().expect("UTF-8")));
            ffmpeg(&rest.iter().map(String::as_str).collect::<Vec<_>>(), &path)
        }
    };
    assert!(made, "{} could not be made", case.name);
    path
}

/// Returns FFmpeg's view of a file: the tick in nanoseconds, and each frame's time in ticks, if it has one.
fn ffprobe(path: &Path) -> (f64, Vec<Option<f64>>) {
    let entries = "stream=time_base:frame=best_effort_timestamp";
    let arguments = ["-v", "error", "-select_streams", "v:0", "-show_entries", entries, "-of", "csv"];
    let output =
        Command::new("ffprobe").args(arguments).arg(path).output().expect("ffprobe comes with FFmpeg");
    let text = String::from_utf8(output.stdout).expect("it is text");
    let (mut tick, mut frames) = (0.0, Vec::new());
    for line in text.lines() {
        let fields: Vec<&str> = line.split(',').collect();
        match fields[0] {
            "frame" => frames.push(fields[1].parse().ok()),
            "stream" => {
                let (number, of) = fields[1].split_once('/').expect("a fraction");
                let term = |text: &str| text.parse::<f64>().expect("a number");
                tick = term(number) / term(of) * 1e9;
            }
            _ => {}
        }
    }
    (tick, frames)
}

/// Returns the checksums of FFmpeg's frames in `format`.
fn ffmpeg_checksums(path: &Path, format: &str) -> Vec<String> {
    let file = path.to_str().expect("UTF-8");
    let arguments = ["-v", "error", "-i", file, "-map", "0:v:0", "-vsync", "0", "-pix_fmt", format];
    let output = Command::new("ffmpeg").args(arguments).args(["-f", "framemd5", "-"]).output();
    let text = String::from_utf8(output.expect("ffmpeg was there just now").stdout).expect("it is text");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit(',').next().unwrap_or_default().trim().to_owned()).collect()
}

/// Reads a file and lists the differences from FFmpeg.
fn compare(path: &Path, case: &Case) -> Vec<String> {
    let reading = read(path.to_str().expect("UTF-8"), usize::MAX, |frame| {
        let mut md5 = Md5::new();
        frame.view().packed_rows().for_each(|row| md5.update(row));
        let md5: String = md5.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        (frame.desc.pts.0, md5, frame.desc.format)
    });
    let mut faults: Vec<String> = reading.fault.iter().map(|fault| format!("{fault}")).collect();
    let (tick, probed) = ffprobe(path);
    let ours: Vec<u64> = reading.frames.iter().map(|(pts, ..)| *pts).collect();
    if ours.len() != probed.len() {
        faults.push(format!("{} frames, ffprobe has {}", ours.len(), probed.len()));
    }
    let first = probed.iter().copied().next().flatten().unwrap_or(0.0);
    let zero = if case.start == Start::Zero { first } else { 0.0 };
    let shift = if case.start == Start::Zero { ours.first().copied().unwrap_or(0) } else { 0 };
    if case.start == Start::Zero && shift != 0 {
        faults.push(format!("the first frame is at {shift} ns"));
    }
    let near = tick.min(TICK_NANOS_MAX) + 1.0;
    let differ = |(ours, theirs): (&u64, &Option<f64>)| {
        theirs.is_some_and(|theirs| (*ours as f64 - (theirs - zero) * tick).abs() > near)
    };
    let off = ours.iter().zip(&probed).filter(|pair| differ(*pair)).count();
    let repeats = ours.windows(2).filter(|pair| pair[0] >= pair[1]).count();
    if off > 0 || repeats > 0 {
        let millis: Vec<f64> = ours.iter().map(|pts| (*pts as f64 / 1e5).round() / 10.0).collect();
        let theirs: Vec<f64> = probed
            .iter()
            .map(|time| time.map_or(-1.0, |time| ((time - zero) * tick / 1e5).round() / 10.0))
            .collect();
        faults.push(format!("{off} times differ, {repeats} repeat or go back:\n  {millis:?}\n  {theirs:?}"));
    }
    let format = match reading.frames.first().map(|(.., format)| *format) {
        Some(PixelFormat::Rgb) => "rgb24",
        Some(PixelFormat::Bgr) => "bgr24",
        Some(PixelFormat::Nv12) => "nv12",
        _ => "yuv420p",
    };
    if case.pixels == Pixels::Exact {
        let theirs = ffmpeg_checksums(path, format);
        let unlike =
            reading.frames.iter().zip(&theirs).filter(|((_, ours, _), theirs)| ours != *theirs).count();
        if unlike > 0 || theirs.len() != ours.len() {
            faults.push(format!(
                "{unlike} frames differ in pixels of {}, ffmpeg has {}",
                ours.len(),
                theirs.len()
            ));
        }
    }
    faults
}

#[test]
fn every_time_stamp_and_every_frame_is_ffmpegs() {
    if !has_ffmpeg() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    // The short form leaves out two of three files of the containers that have a time for every frame, unless they are
    // edited.
    let is_long = std::env::var_os("ORINOCO_TEST_LONG").is_some();
    let is_told = |case: &Case| {
        let is_edited = case.arguments.starts_with("then ");
        !is_edited && [".mp4", ".mov", ".mkv", ".ts"].iter().any(|end| case.name.ends_with(end))
    };
    let chosen =
        CASES.iter().enumerate().filter(|(number, case)| is_long || !is_told(case) || number % 3 == 0);
    let cases: Vec<&Case> = chosen.map(|(_, case)| case).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let faults = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    let path = make(folder.path(), case);
                    let found = compare(&path, case);
                    let lines = found.into_iter().map(|fault| format!("{}: {fault}", case.name));
                    faults.lock().expect("not poisoned").extend(lines);
                    fs::remove_file(path).expect("just read");
                }
            });
        }
    });
    let faults = faults.into_inner().expect("not poisoned");
    assert!(faults.is_empty(), "{} of {} files:\n{}", faults.len(), cases.len(), faults.join("\n"));
    note(&format!("{} files: time stamps and frames as FFmpeg's", cases.len()));
}

#[test]
fn repeated_files_go_on_where_the_pass_before_ended() {
    if !has_ffmpeg() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["mpeg4-b.avi", "mpeg2-b.mpg", "even.gif"] {
        let path = make(folder.path(), CASES.iter().find(|case| case.name == name).expect("it is a case"));
        let once = read(path.to_str().expect("UTF-8"), usize::MAX, |frame| frame.desc.pts.0).frames;
        let step = once[1] - once[0];
        let uri = format!("{}?loop=1", path.display());
        let seen = read(&uri, 2 * once.len() + 3, |frame| frame.desc.pts.0).frames;
        let near = |time: &u64, number: usize| time.abs_diff(number as u64 * step) <= 1_000;
        assert!(seen.iter().enumerate().all(|(number, time)| near(time, number)), "{name}: {seen:?}");
        assert_eq!(seen.len(), 2 * once.len() + 3, "{name}");
    }
}

#[test]
fn an_edit_that_begins_within_a_frame_shows_the_rest_of_it() {
    if !has_ffmpeg() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = make(folder.path(), &case("h264-within.mp4", "then -ss 0.5 -i FIRST -c copy"));
    let reading = read(path.to_str().expect("UTF-8"), usize::MAX, |frame| frame.desc.pts.0 / 1_000_000);
    // Frames are 40 ms apart; the one at 480 ms is shown for 20 ms more (ISO/IEC 14496-12, section 8.6.6). FFmpeg
    // leaves it out, and moves the others to the front.
    assert_eq!(reading.frames[..4], [0, 20, 60, 100], "{:?}", reading.fault);
}
