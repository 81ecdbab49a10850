//! Tests matrix and range in every combination that a coded stream can have: the colours must be those of FFmpeg's
//! swscale with the correct matrix and range forced.
#![cfg(feature = "gstreamer")]

mod common;

use std::path::Path;

use common::{ffmpeg, has_ffmpeg, note, read, rgb};
use orinoco_core::{ColorMatrix, ColorRange};

/// Maximum difference of a channel's mean from swscale's, in levels, with its sign.
const MEAN_MAX: f64 = 0.5;

const BT601: ColorMatrix = ColorMatrix::Bt601;
const BT709: ColorMatrix = ColorMatrix::Bt709;
const BT2020: ColorMatrix = ColorMatrix::Bt2020;
const LIMITED: ColorRange = ColorRange::Limited;
const FULL: ColorRange = ColorRange::Full;

/// Returns the first frame of `path` as swscale converts it with matrix and range forced.
fn swscale(path: &str, matrix: ColorMatrix, range: ColorRange) -> Vec<u8> {
    let matrix = match matrix {
        ColorMatrix::Bt709 => "bt709",
        ColorMatrix::Bt2020 => "bt2020",
        _ => "bt601",
    };
    let range = if range == FULL { "pc" } else { "tv" };
    let scale = format!(
        "scale=in_color_matrix={matrix}:in_range={range}:flags=neighbor+accurate_rnd+full_chroma_int"
    );
    ffmpeg(&format!("-i {path} -frames:v 1 -vf {scale} -pix_fmt rgb24 -f rawvideo -"))
}

/// Compares the first frame of `path` with swscale's. Returns the difference, if there is one.
fn compare(path: &str, matrix: ColorMatrix, range: ColorRange, theirs: &[u8]) -> Option<String> {
    let name = Path::new(path).file_name().expect("a file").to_string_lossy().into_owned();
    let reading = read(path, 1, |frame| {
        let (width, height) = (frame.desc.width as usize, frame.desc.height as usize);
        let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        (frame.desc, pixels.map(|(x, y)| rgb(frame, x, y)).collect::<Vec<_>>())
    });
    let Some((desc, pixels)) = reading.frames.first() else {
        return Some(format!("{name}: {:?}", reading.fault));
    };
    assert_eq!(theirs.len(), pixels.len() * 3, "{name}");
    let mean = [0, 1, 2].map(|channel| {
        let differences = pixels.iter().zip(theirs.chunks_exact(3));
        let sum: f64 = differences.map(|(ours, theirs)| ours[channel] - f64::from(theirs[channel])).sum();
        sum / pixels.len() as f64
    });
    let is_right =
        (desc.matrix, desc.range) == (matrix, range) && mean.iter().all(|mean| mean.abs() <= MEAN_MAX);
    (!is_right).then(|| {
        format!(
            "{name}: read as {:?} {:?}, not {matrix:?} {range:?}; off by {mean:.2?}",
            desc.matrix, desc.range
        )
    })
}

/// Encodes the pattern once, in `size`.
fn code(folder: &Path, name: &str, coder: &str, size: &str) -> String {
    let path = folder.join(name).display().to_string();
    ffmpeg(&format!("-f lavfi -i testsrc2=s={size}:r=25:d=0.12 -pix_fmt yuv420p {coder} {path}"));
    path
}

/// Code of a matrix in H.264 and H.265 (ITU-T H.273), with its meaning; an unspecified one in small video is BT.601.
const MATRICES: [(&str, ColorMatrix); 5] =
    [("1", BT709), ("5", BT601), ("6", BT601), ("9", BT2020), ("2", BT601)];

#[test]
fn every_matrix_and_range_of_a_stream_gives_its_colours() {
    if !has_ffmpeg() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    // One container for each codec, or all of them.
    let containers_max = if std::env::var_os("ORINOCO_TEST_LONG").is_some() { usize::MAX } else { 1 };
    let mut faults = Vec::new();
    let mut count = 0;
    // All files of one codec have the same content.
    let mut check = |plain: &str, path: &str, matrix, range, theirs: &mut Vec<_>| {
        count += 1;
        let known = theirs.iter().position(|(of, m, r, _)| (*m, *r) == (matrix, range) && of == plain);
        let known = known.unwrap_or_else(|| {
            theirs.push((plain.to_owned(), matrix, range, swscale(plain, matrix, range)));
            theirs.len() - 1
        });
        faults.extend(compare(path, matrix, range, &theirs[known].3));
    };
    let mut theirs = Vec::new();
    for (codec, coder, containers) in [
        ("h264", "-c:v libx264 -qp 10", &["mp4", "mkv", "ts"][..]),
        ("hevc", "-c:v libx265 -x265-params qp=10:log-level=none", &["mkv", "mp4"][..]),
    ] {
        // Nothing about colours.
        let plain = code(folder.path(), &format!("{codec}.mp4"), coder, "160x120");
        check(&plain, &plain, BT601, LIMITED, &mut theirs);
        let tall = code(folder.path(), &format!("{codec}-tall.mp4"), coder, "64x720");
        check(&tall, &tall, BT709, LIMITED, &mut theirs);
        for (number, matrix) in MATRICES {
            for (flag, range) in [("0", LIMITED), ("1", FULL)] {
                for container in containers.iter().take(containers_max) {
                    let path = folder.path().join(format!("{codec}-{number}-{flag}.{container}"));
                    let path = path.display().to_string();
                    let words = format!(
                        "video_full_range_flag={flag}:matrix_coefficients={number}:colour_primaries=2:transfer_characteristics=2"
                    );
                    ffmpeg(&format!("-i {plain} -c copy -bsf:v {codec}_metadata={words} {path}"));
                    check(&plain, &path, matrix, range, &mut theirs);
                }
            }
        }
        // Only the range, without a description of colours.
        let path = folder.path().join(format!("{codec}-range-alone.mkv")).display().to_string();
        ffmpeg(&format!("-i {plain} -c copy -bsf:v {codec}_metadata=video_full_range_flag=1 {path}"));
        check(&plain, &path, BT601, FULL, &mut theirs);
        let path = folder.path().join(format!("{codec}-range-alone-tall.mp4")).display().to_string();
        ffmpeg(&format!("-i {tall} -c copy -bsf:v {codec}_metadata=video_full_range_flag=1 {path}"));
        check(&tall, &path, BT709, FULL, &mut theirs);
    }
    let plain = code(folder.path(), "vp9.webm", "-c:v libvpx-vp9 -crf 4 -b:v 0 -cpu-used 8", "160x120");
    check(&plain, &plain, BT601, LIMITED, &mut theirs);
    for (name, matrix) in
        [("unknown", BT601), ("bt601", BT601), ("bt709", BT709), ("smpte170", BT601), ("bt2020", BT2020)]
    {
        for (word, range) in [("tv", LIMITED), ("pc", FULL)] {
            for container in ["webm", "mp4"].iter().take(containers_max) {
                let path = folder.path().join(format!("vp9-{name}-{word}.{container}")).display().to_string();
                let words = format!("color_space={name}:color_range={word}");
                ffmpeg(&format!("-i {plain} -c copy -bsf:v vp9_metadata={words} {path}"));
                check(&plain, &path, matrix, range, &mut theirs);
            }
        }
    }
    note(&format!("{count} files: colours as swscale's within {MEAN_MAX} levels in the mean"));
    assert!(faults.is_empty(), "{} of {count} files:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn converted_formats_keep_a_range_whose_matrix_is_unknown() {
    if !has_ffmpeg() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    for format in ["yuv422p", "yuv444p", "yuv420p10le"] {
        let plain = folder.path().join(format!("{format}.mp4")).display().to_string();
        ffmpeg(&format!(
            "-f lavfi -i testsrc2=s=160x120:r=25:d=0.12 -pix_fmt {format} -c:v libx264 -qp 10 {plain}"
        ));
        let path = folder.path().join(format!("{format}-full.mkv")).display().to_string();
        ffmpeg(&format!("-i {plain} -c copy -bsf:v h264_metadata=video_full_range_flag=1 {path}"));
        assert_eq!(compare(&path, BT601, FULL, &swscale(&plain, BT601, FULL)), None);
    }
}

#[test]
fn what_the_stream_leaves_open_is_taken_from_the_container() {
    if !has_ffmpeg() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let plain = code(folder.path(), "plain.mp4", "-c:v libx264 -qp 10", "160x120");
    let ranged = folder.path().join("ranged.mkv").display().to_string();
    ffmpeg(&format!("-i {plain} -c copy -bsf:v h264_metadata=video_full_range_flag=1 {ranged}"));
    let both = folder.path().join("both.mkv").display().to_string();
    // Matroska has the matrix, H.264 the range.
    ffmpeg(&format!("-i {ranged} -c copy -colorspace bt709 {both}"));
    assert_eq!(compare(&both, BT709, FULL, &swscale(&plain, BT709, FULL)), None);
}

#[test]
fn a_turn_does_not_change_the_matrix() {
    if !has_ffmpeg() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (size, matrix) in [("640x360", BT601), ("1280x720", BT709), ("360x640", BT709)] {
        let plain = code(folder.path(), "plain.mp4", "-c:v libx264 -qp 10", size);
        for degrees in ["90", "180", "270"] {
            let path = folder.path().join(format!("turned-{size}-{degrees}.mp4"));
            ffmpeg(&format!("-i {plain} -c copy -metadata:s:v rotate={degrees} {}", path.display()));
            let seen =
                read(path.to_str().expect("UTF-8"), 1, |frame| (frame.desc.width, frame.desc.matrix)).frames;
            let (width, height) = size.split_once('x').expect("a size");
            let upright = if degrees == "180" { width } else { height };
            assert_eq!(seen, [(upright.parse().expect("a number"), matrix)], "{size} turned by {degrees}");
        }
    }
}
