//! Tests video files: exact pixels and times, and every way in which a file can be damaged.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
#![cfg(feature = "gstreamer")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{checksums, data, gst_source, launch, note, read, read_from, run};
use orinoco_core::{Code, ColorMatrix, ColorRange, Orientation, PixelFormat, codes};
use orinoco_pipeline::{Frame, Poll, Source, SourceEnd, SourceError};

const CAR: &str = "car-detection.mp4";
const CAR_FRAMES: usize = 377;
const PERSON: &str = "one-by-one-person-detection.mp4";

/// Compares a file's frames with those of the reference decoder.
fn check_reference(name: &str) {
    let Some(data) = data() else { return };
    let reference = fs::read(data.join(format!("refs/video/{name}.json"))).expect("the reference is there");
    let reference: serde_json::Value = serde_json::from_slice(&reference).expect("it is JSON");
    let base = reference["time_base"].as_str().and_then(|text| text.split_once('/')).expect("a fraction");
    let tick = 1e9 * base.0.parse::<f64>().expect("a number") / base.1.parse::<f64>().expect("a number");
    let video = data.join("video").join(name);
    let reading = checksums(video.to_str().expect("UTF-8"));
    assert!(reading.fault.is_none(), "{:?}", reading.fault);
    let mut differ = Vec::new();
    let rows = reference["frame_pts_md5_of_tight_yuv420p"].as_array().expect("a list");
    for row in rows {
        let (index, ticks) =
            (row[0].as_u64().expect("a number") as usize, row[1].as_f64().expect("a number"));
        let Some(line) = reading.frames.get(index) else {
            differ.push(format!("frame {index} is missing"));
            continue;
        };
        let late = line.pts as f64 - ticks * tick;
        if late.abs() > tick || line.md5 != row[2].as_str().expect("text") {
            differ.push(format!("frame {index}: {late} ns off, {line:?} instead of {row}"));
        }
    }
    let frames = reference["frames"].as_u64().expect("a number") as usize;
    let rate = frames as f64 / reading.took.as_secs_f64();
    note(&format!(
        "{name}: {frames} frames, {} compared, {} differ, {rate:.0} fps",
        rows.len(),
        differ.len()
    ));
    assert_eq!(reading.frames.len(), frames);
    assert!(differ.is_empty(), "{differ:#?}");
}

#[test]
fn baseline_h264_with_sound_is_exact() {
    check_reference(CAR);
}

#[test]
fn h264_with_b_frames_is_exact() {
    check_reference(PERSON);
}

#[test]
fn frames_describe_themselves_and_their_decoding_is_timed() {
    let Some(data) = data() else { return };
    let reading = read(data.join("video").join(PERSON).to_str().expect("UTF-8"), 200, |frame| {
        (frame.desc, frame.decode)
    });
    let timed =
        reading.frames.iter().filter(|(_, decode)| decode.is_some_and(|time| time > Duration::ZERO)).count();
    let mut times: Vec<_> = reading.frames.iter().filter_map(|(_, decode)| *decode).collect();
    times.sort();
    let desc = reading.frames[0].0;
    let (p50, longest) = (times[times.len() / 2], times[times.len() - 1]);
    note(&format!("decode p50 {p50:?}, longest {longest:?}; rows are {} bytes apart", desc.planes[0].stride));
    assert_eq!(timed, 200);
    assert_eq!((desc.format, desc.width, desc.height), (PixelFormat::I420, 768, 432));
    assert_eq!((desc.matrix, desc.range), (ColorMatrix::Bt601, ColorRange::Limited));
}

#[test]
fn the_processor_time_of_a_decoder_in_one_thread_is_known() {
    let Some(data) = data() else { return };
    let reading = read(data.join("video").join(PERSON).to_str().expect("UTF-8"), 200, |frame| {
        (frame.decode_cpu, frame.decode)
    });
    // The decoder is a few frames ahead, so one frame may have the time of several, and the next one none.
    let cpu: Duration = reading.frames.iter().filter_map(|(cpu, _)| *cpu).sum();
    let wall: Duration = reading.frames.iter().filter_map(|(_, wall)| *wall).sum();
    note(&format!("200 frames: {cpu:?} of the processor, {wall:?} from entry to exit"));
    assert!(cpu > 200 * Duration::from_micros(20), "{cpu:?} is too little for 200 frames");
    // It works in one thread, and several frames are in it at once.
    assert!(cpu < reading.took && cpu < wall, "{cpu:?} within {:?}, {wall:?}", reading.took);
}

#[test]
fn a_slow_reader_is_not_taken_for_a_slow_decoder() {
    let Some(data) = data() else { return };
    let reading = read(data.join("video").join(PERSON).to_str().expect("UTF-8"), 60, |frame| {
        std::thread::sleep(Duration::from_millis(20));
        frame.decode
    });
    let mut times: Vec<_> = reading.frames.iter().flatten().collect();
    times.sort();
    note(&format!("decode p50 {:?} with a slow reader", times[30]));
    // The decoder reorders six frames and more, and each is read for 20 ms.
    assert!(*times[30] < Duration::from_millis(60), "{times:?}");
}

#[test]
fn lent_frames_come_back() {
    let Some(data) = data() else { return };
    let mut source = gst_source(data.join("video").join(CAR).to_str().expect("UTF-8"));
    source.open().expect("it opens");
    let mut held = Vec::new();
    while held.len() < 40 {
        if let Poll::Frame(frame) = source.next(Duration::from_millis(100)).expect("it is whole") {
            held.push(frame);
        }
    }
    assert_eq!(source.frames_lent(), 40);
    let frame =
        |frame: &orinoco_pipeline::Frame| frame.view().packed_rows().map(<[u8]>::to_vec).collect::<Vec<_>>();
    let before = frame(&held[3]);
    source.close();
    assert_eq!(source.frames_lent(), 40, "closing takes nothing from those who still read");
    assert_eq!(before, frame(&held[3]));
    drop(held);
    assert_eq!(source.frames_lent(), 0);
}

#[test]
fn sources_that_close_leave_no_threads() {
    let Some(data) = data() else { return };
    let mut source = gst_source(data.join("video").join(CAR).to_str().expect("UTF-8"));
    let mut open_and_close = |times: usize| {
        for _ in 0..times {
            source.open().expect("it opens");
            source.close();
        }
        common::threads()
    };
    let few = open_and_close(3);
    let many = open_and_close(20);
    // Other tests of this program run at the same time, and GLib keeps a small pool.
    assert!(many < few + 20, "{few} threads grew to {many}");
}

#[test]
fn a_file_that_repeats_goes_on_in_time() {
    let Some(data) = data() else { return };
    let uri = format!("{}?loop=1", data.join("video").join(CAR).display());
    let reading = read(&uri, 2 * CAR_FRAMES + 50, |frame| frame.desc.pts.0);
    assert!(reading.fault.is_none(), "{:?}", reading.fault);
    let times = reading.frames;
    assert_eq!(times.len(), 2 * CAR_FRAMES + 50);
    let odd: Vec<_> = times.windows(2).filter(|pair| pair[1] - pair[0] != 80_000_000).collect();
    assert!(odd.is_empty(), "{odd:?}");
}

#[test]
fn pace_keeps_real_time() {
    let Some(data) = data() else { return };
    let uri = format!("{}?pace=pts", data.join("video").join(CAR).display());
    let reading = read(&uri, 11, |_| ());
    let took = reading.took.as_secs_f64();
    assert!((0.7..1.6).contains(&took), "ten intervals of 80 ms took {took} s");
}

/// Makes a video of small frames, in a temporary folder that exists as long as the first result.
fn make_video(name: &str, frames: usize, rate: &str, muxer: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join(name);
    launch(&format!(
        "videotestsrc num-buffers={frames} ! video/x-raw,format=I420,width=64,height=48,framerate={rate} ! \
         jpegenc ! {muxer} ! filesink location={}",
        path.display()
    ));
    (folder, path)
}

#[test]
fn a_pass_in_real_time_shows_its_last_frame_as_long_as_the_others() {
    let (_folder, path) = make_video("short.avi", 3, "5/1", "avimux");
    let reading = read(&format!("{}?loop=1&pace=pts", path.display()), 10, |frame| frame.desc.pts.0);
    assert!(reading.frames.windows(2).all(|pair| pair[1] - pair[0] == 200_000_000), "{:?}", reading.frames);
    // Three seeks to the start cost little; without the duration of the last frames 0.6 s would be missing.
    let took = reading.took.as_secs_f64();
    assert!((1.7..2.6).contains(&took), "nine intervals of 200 ms took {took} s");
}

#[test]
fn frames_that_wait_for_their_time_are_no_silence() {
    let (_folder, path) = make_video("slow.mkv", 4, "1/2", "matroskamux");
    let begin = Instant::now();
    let running = run(&format!("{}?pace=pts", path.display()), Duration::from_secs(1));
    running.wait(begin, 4, Duration::from_secs(20));
    let (took, states) = (begin.elapsed(), running.states());
    assert!(took > Duration::from_millis(5_900), "three intervals of 2 s took {took:?}");
    assert!(!states.iter().any(|text| text.starts_with("stalled")), "{states:?}");
    let (end, frames) = running.finish();
    assert!(matches!(end, SourceEnd::Complete) && frames == 4, "{end:?} after {frames} frames");
}

#[test]
fn a_file_that_stalled_does_not_give_its_first_frames_twice() {
    let (_folder, path) = make_video("clip.avi", 5, "5/1", "avimux");
    // The runner does this with a source that stalled.
    let reopen = |uri: &str, given: usize| {
        let mut source = gst_source(uri);
        source.open().expect("it opens");
        for _ in 0..given {
            assert!(matches!(source.next(Duration::from_secs(5)), Ok(Poll::Frame(_))));
        }
        source.close();
        source.open()
    };
    let plain = path.display().to_string();
    assert!(reopen(&plain, 0).is_ok(), "nothing would come twice");
    assert!(reopen(&format!("{plain}?loop=1"), 1).is_ok(), "it repeats anyway");
    let Err(SourceError::Permanent(fault)) = reopen(&plain, 1) else { panic!("it would begin again") };
    assert!(fault.cause.contains("stopped delivering data") && fault.subject.contains("clip.avi"), "{fault}");
}

#[test]
fn looking_never_takes_longer_than_asked() {
    let Some(data) = data() else { return };
    let mut source = gst_source(&format!("{}?pace=pts", data.join("video").join(CAR).display()));
    source.open().expect("it opens");
    for wait in [0, 1, 7, 30] {
        let begin = Instant::now();
        source.next(Duration::from_millis(wait)).expect("it is whole");
        let took = begin.elapsed();
        assert!(took < Duration::from_millis(wait + 60), "{wait} ms took {took:?}");
    }
}

/// Reads a damaged file, which must end with one sentence of kind `code`. Returns the number of frames before it.
fn check_fault(path: &Path, code: &'static Code) -> usize {
    let reading = read(path.to_str().expect("UTF-8"), usize::MAX, |_| ());
    let fault = reading.fault.unwrap_or_else(|| panic!("{} of {path:?}: no fault", reading.frames.len()));
    let text = fault.to_string();
    assert_eq!(fault.code.id, code.id, "{text}");
    assert!(text.len() < 300 && !text.contains('\n') && !text.contains(".c("), "{text}");
    assert!(reading.took < Duration::from_secs(15), "{text} took {:?}", reading.took);
    reading.frames.len()
}

#[test]
fn files_cut_off_give_their_frames_and_one_sentence() {
    let Some(data) = data() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let first = data.join("video").join(CAR);
    let remux = |mux: &str, name: &str| {
        let path = folder.path().join(name);
        let (from, to) = (first.display(), path.display());
        launch(&format!("filesrc location={from} ! qtdemux ! h264parse ! {mux} ! filesink location={to}"));
        let reading = read(path.to_str().expect("UTF-8"), usize::MAX, |_| ());
        assert_eq!(
            (reading.frames.len(), reading.fault.map(|fault| fault.to_string())),
            (CAR_FRAMES, None),
            "{name}"
        );
        path
    };
    let last = remux("mp4mux", "last.mp4");
    let fragmented = remux("mp4mux fragment-duration=1000", "fragmented.mp4");
    let matroska = remux("matroskamux", "whole.mkv");
    let cut = |whole: &Path, share: f64| {
        let bytes = fs::read(whole).expect("it is there");
        let path = folder.path().join("cut.mp4");
        fs::write(&path, &bytes[..(bytes.len() as f64 * share) as usize]).expect("the folder is writable");
        check_fault(&path, &codes::SOURCE_TRUNCATED)
    };
    let mut seen = Vec::new();
    // The last few bytes of a fragmented file are an index that is not needed.
    for share in [0.001, 0.005, 0.01, 0.1, 0.5, 0.9, 0.99] {
        let frames = [&first, &matroska, &fragmented].map(|whole| cut(whole, share));
        seen.push((share, frames));
        assert_eq!(cut(&last, share), 0);
    }
    note(&format!("frames before the cut (moov first, Matroska, fragmented): {seen:?}"));
    let half = seen[4].1;
    assert!(half.iter().all(|&frames| frames > CAR_FRAMES / 4 && frames < CAR_FRAMES), "{half:?}");
}

#[test]
fn what_is_no_video_is_told_in_one_sentence() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    fs::write(path("text.mp4"), "This is not a video.\n".repeat(100)).expect("writable");
    fs::write(path("empty.mp4"), "").expect("writable");
    fs::write(path("zeros.mp4"), [0; 100_000]).expect("writable");
    let noise: Vec<u8> = (0..100_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(path("noise.mp4"), noise).expect("writable");
    for name in ["text.mp4", "empty.mp4", "zeros.mp4", "noise.mp4"] {
        assert_eq!(check_fault(&path(name), &codes::SOURCE_OPEN), 0, "{name}");
    }
    assert_eq!(check_fault(folder.path(), &codes::FILE_MISSING), 0);
    assert_eq!(check_fault(&path("nothing.mp4"), &codes::FILE_MISSING), 0);
}

#[test]
fn sound_alone_is_no_video() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    let sound = "audiotestsrc num-buffers=40 ! audioconvert";
    for (name, how) in [
        ("sound.wav", "wavenc"),
        ("sound.mp4", "avenc_aac ! aacparse ! mp4mux"),
        ("sound.mkv", "vorbisenc ! matroskamux"),
        ("sound.ogg", "vorbisenc ! oggmux"),
    ] {
        launch(&format!("{sound} ! {how} ! filesink location={}", path(name).display()));
        assert_eq!(check_fault(&path(name), &codes::SOURCE_NO_VIDEO), 0, "{name}");
    }
}

#[test]
fn a_size_that_changes_midway_is_followed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("both.h264");
    let mut bytes = Vec::new();
    for (width, height) in [(320, 240), (206, 158)] {
        let part = folder.path().join("part.h264");
        launch(&format!(
            "videotestsrc num-buffers=20 ! video/x-raw,format=I420,width={width},height={height},framerate=25/1 ! x264enc ! \
             video/x-h264,stream-format=byte-stream ! filesink location={}",
            part.display()
        ));
        bytes.extend(fs::read(part).expect("just written"));
    }
    fs::write(&path, bytes).expect("writable");
    let reading = read(path.to_str().expect("UTF-8"), usize::MAX, |frame| {
        let rows = frame.view().packed_rows().count();
        (frame.desc.width, frame.desc.height, rows)
    });
    assert!(reading.fault.is_none(), "{:?}", reading.fault);
    let of = |size| reading.frames.iter().filter(|&&seen| seen == size).count();
    assert_eq!((of((320, 240, 480)), of((206, 158, 316))), (20, 20), "{:?}", reading.frames);
}

#[test]
fn formats_and_colours_are_told() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let check = |raw: &str, coder: &str| {
        let path = folder.path().join("x.mkv");
        launch(&format!(
            "videotestsrc num-buffers=3 ! {raw} ! {coder} ! matroskamux ! filesink location={}",
            path.display()
        ));
        let reading = read(path.to_str().expect("UTF-8"), usize::MAX, |frame| frame.desc);
        assert_eq!(reading.frames.len(), 3, "{:?}", reading.fault);
        let desc = reading.frames[0];
        (desc.format, desc.width, desc.matrix, desc.range)
    };
    let hd = check("video/x-raw,format=I420,width=1280,height=720", "x264enc");
    assert_eq!(hd, (PixelFormat::I420, 1280, ColorMatrix::Bt709, ColorRange::Limited));
    let odd = check("video/x-raw,format=I420,width=322,height=242", "x264enc");
    assert_eq!(odd, (PixelFormat::I420, 322, ColorMatrix::Bt601, ColorRange::Limited));
    let jpeg = check("video/x-raw,width=320,height=240,format=I420", "jpegenc");
    assert_eq!((jpeg.0, jpeg.1, jpeg.3), (PixelFormat::I420, 320, ColorRange::Full));
    let raw = check("video/x-raw,width=321,height=240,format=RGB", "identity");
    assert_eq!((raw.0, raw.3), (PixelFormat::Rgb, ColorRange::Full));
    let high = check("video/x-raw,width=320,height=240,format=Y42B", "x264enc");
    assert_eq!(high.1, 320);
}

#[test]
fn video_that_lies_on_its_side_is_turned_upright() {
    let Some(data) = data() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("turned.mp4");
    let whole = fs::read(data.join("video").join(CAR)).expect("it is there");
    // Matrix of the track header (ISO/IEC 14496-12, section 8.3.2), 40 bytes after the box's header.
    let matrix = whole.windows(4).position(|bytes| bytes == b"tkhd").expect("a track has a header") + 44;
    let one = 0x0001_0000i32;
    let size_of = |path: &Path, uri: &str| {
        let reading = read(&format!("{}{uri}", path.display()), 2, |frame| {
            (frame.desc.orientation, frame.desc.width, frame.desc.height, luma(frame))
        });
        assert_eq!(reading.frames.len(), 2, "{:?}", reading.fault);
        reading.frames.into_iter().next().expect("two frames")
    };
    let lying = size_of(&data.join("video").join(CAR), "").3;
    for (turn, degrees, size) in [
        ([one, 0, 0, one], 0, (768, 432)),
        ([0, one, -one, 0], 90, (432, 768)),
        ([-one, 0, 0, -one], 180, (768, 432)),
        ([0, -one, one, 0], 270, (432, 768)),
    ] {
        let mut bytes = whole.clone();
        for (place, value) in [0, 4, 12, 16].into_iter().zip(turn) {
            bytes[matrix + place..][..4].copy_from_slice(&value.to_be_bytes());
        }
        fs::write(&path, bytes).expect("writable");
        let (orientation, width, height, seen) = size_of(&path, "");
        assert_eq!((orientation, (width, height)), (Orientation::Upright, size), "{degrees} degrees");
        assert!(seen == turned(&lying, 768, degrees), "{degrees} degrees");
    }
}

/// Returns a frame's luma, without padding.
fn luma(frame: &Frame) -> Vec<u8> {
    let plane = frame.view().plane(0);
    (0..plane.rows()).flat_map(|y| plane.row(y).to_vec()).collect()
}

/// Rotates a plane of `width` clockwise.
fn turned(plane: &[u8], width: usize, degrees: u32) -> Vec<u8> {
    let height = plane.len() / width;
    let at = |x: usize, y: usize| plane[y * width + x];
    match degrees {
        0 => plane.to_vec(),
        90 => (0..width).flat_map(|y| (0..height).map(move |x| at(y, height - 1 - x))).collect(),
        180 => plane.iter().rev().copied().collect(),
        _ => (0..width).flat_map(|y| (0..height).map(move |x| at(width - 1 - y, x))).collect(),
    }
}

#[test]
fn damaged_bytes_neither_panic_nor_hang() {
    let Some(data) = data() else { return };
    let whole = fs::read(data.join("video").join(CAR)).expect("it is there");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("damaged.mp4");
    let mut ends = Vec::new();
    for seed in 1..=12u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut bytes = whole[..600_000].to_vec();
        bytes.extend(&whole[600_000..]);
        // Odd seeds damage the index, even ones the frames.
        let span = if seed % 2 == 1 { 0..9_624 } else { 19_822..bytes.len() };
        for _ in 0..40 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let place = span.start + (random >> 16) as usize % span.len();
            bytes[place] ^= (random & 0xff) as u8;
        }
        fs::write(&path, &bytes).expect("writable");
        let reading = read_from(&mut gst_source(path.to_str().expect("UTF-8")), 1000, |frame| {
            frame.view().packed_rows().map(|row| row.len()).sum::<usize>()
        });
        if let Some(fault) = &reading.fault {
            assert!(!fault.to_string().contains('\n'), "seed {seed}: {fault}");
        }
        ends.push((seed, reading.frames.len(), reading.fault.map(|fault| fault.code.id)));
    }
    note(&format!("damaged files (seed, frames, fault): {ends:?}"));
}
