//! Tests annotated MP4: frames that are written can be read again.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
#![cfg(feature = "gstreamer")]

mod common;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::{clock, ffmpeg, has_ffmpeg, note, read, source};
use orinoco_core::{Codec, FrameDesc, Nanos, PixelFormat, Pts, codes};
use orinoco_media::{Ball, Draw, Mp4Sink, OverlayContent, cut_torn_mp4, decode_image};
use orinoco_pipeline::{Frame, FrameResult, PixelAspect, Poll, Sink, Slot, SlotPool};
use orinoco_uri::{SourceKind, SourceUri};

fn frame_result(frame: Frame) -> FrameResult {
    FrameResult { frame, found: Vec::new(), finished: Nanos(0) }
}

fn no_drawing() -> Draw {
    Box::new(|_, _, _, _| ())
}

fn grey(width: u32, height: u32, format: PixelFormat, pts: u64) -> FrameResult {
    let mut desc = FrameDesc::packed(format, width, height);
    desc.pts = Pts(pts);
    let mut slot = SlotPool::new(1, desc.bytes_needed()).try_take().expect("free");
    slot.bytes.fill(128);
    frame_result(Frame::new(desc, Slot::Owned(slot), Nanos(0)).expect("it fits"))
}

#[test]
fn a_card_fills_the_time_without_frames() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("out.mp4");
    let told = Arc::new(AtomicU32::new(0));
    let silence = Arc::clone(&told);
    let draw: Draw = Box::new(move |frame, _, _, shown| {
        if let OverlayContent::Offline(silent) = shown {
            silence.store(silent.as_secs() as u32, Ordering::Relaxed);
            assert!(frame.iter().all(|byte| matches!(byte, 16 | 128)), "it is black");
        }
    });
    let mut sink = Mp4Sink::create(&path, Codec::H264, draw, clock()).expect("the folder is writable");
    sink.offline(Duration::from_secs(9)).expect("nothing was seen yet: nothing is shown");
    let at = |millis: u64| grey(64, 48, PixelFormat::I420, millis * 1_000_000);
    sink.write(&at(0)).expect("there is room");
    sink.write(&at(40)).expect("there is room");
    sink.offline(Duration::from_secs(1)).expect("there is room");
    sink.offline(Duration::from_secs(2)).expect("there is room");
    // The camera's time continues, and then starts again.
    sink.write(&at(3000)).expect("there is room");
    sink.write(&at(0)).expect("there is room");
    sink.finish().expect("there is room");
    assert_eq!(told.load(Ordering::Relaxed), 2);
    let uri = format!("file://{}", path.display());
    let see = |frame: &Frame| (frame.desc.pts.0 / 1_000_000, frame.view().plane(0).row(20)[20]);
    let reading = read(&uri, 100, see);
    let (times, luma): (Vec<u64>, Vec<u8>) = reading.frames.into_iter().unzip();
    assert_eq!(times[..5], [0, 40, 1040, 2040, 3000]);
    assert!(times.len() == 6 && times[5] > 3000, "{times:?}");
    assert_eq!(
        luma.iter().map(|luma| *luma < 64).collect::<Vec<_>>(),
        [false, false, true, true, false, false]
    );
}

#[test]
fn every_frame_comes_back_at_its_time_with_what_was_drawn() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("out.mp4");
    let drawn = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&drawn);
    let draw: Draw = Box::new(move |frame, width, height, shown| {
        count.fetch_add(1, Ordering::Relaxed);
        let OverlayContent::FrameResult(frame_result) = shown else { panic!("{shown:?}") };
        assert_eq!((width, height), (frame_result.frame.desc.width, frame_result.frame.desc.height));
        assert_eq!(frame.len(), (width * height * 3 / 2) as usize);
        for row in frame.chunks_exact_mut(width as usize).take(16) {
            row[..16].fill(235);
        }
    });
    let mut sink = Mp4Sink::create(&path, Codec::H264, draw, clock()).expect("the folder is writable");
    let uri = "test://ball?width=332&height=240&fps=30&frames=90";
    let mut source = source(uri).expect("it is valid");
    source.open().expect("it always opens");
    let begin = Instant::now();
    let mut times = Vec::new();
    while let Poll::Frame(frame) = source.next(Duration::from_secs(1)).expect("it never fails") {
        times.push(frame.desc.pts.0);
        sink.write(&frame_result(frame)).expect("there is room");
    }
    assert_eq!(sink.finish().expect("there is room"), Some(path.clone()));
    note(&format!("{} encodes 90 frames in {:?}", sink.encoder(), begin.elapsed()));
    assert_eq!(drawn.load(Ordering::Relaxed), 90);

    let parsed = SourceUri::parse(uri).expect("it is valid");
    let SourceKind::Test(pattern) = *parsed.kind() else { panic!("it is a test pattern") };
    let mut number = 0;
    let reading = read(path.to_str().expect("UTF-8"), usize::MAX, |frame| {
        let ball = Ball::at(&pattern, number);
        number += 1;
        let luma = |x: u32, y: u32| frame.view().plane(0).row(y as usize)[x as usize];
        assert!(luma(ball.x, ball.y).abs_diff(180) < 20, "frame {number}");
        assert!(luma(7, 7) > 200, "frame {number}");
        frame.desc.pts.0
    });
    assert!(reading.fault.is_none(), "{:?}", reading.fault);
    assert_eq!(reading.frames.len(), 90);
    let off = reading.frames.iter().zip(&times).map(|(seen, sent)| seen.abs_diff(*sent)).max();
    note(&format!("largest difference in time: {off:?} ns"));
    assert!(off.is_some_and(|nanos| nanos <= 1_000_000_000 / 90_000), "{off:?}");
}

#[test]
fn odd_sizes_and_every_format_are_encoded() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for format in
        [PixelFormat::I420, PixelFormat::Nv12, PixelFormat::Rgb, PixelFormat::Bgr, PixelFormat::Gray8]
    {
        let path = folder.path().join(format!("{}.mp4", format.name()));
        let mut sink =
            Mp4Sink::create(&path, Codec::H264, no_drawing(), clock()).expect("the folder is writable");
        // Frames were dropped between these, and then the camera came back with its clock at zero.
        for pts in [0, 40, 400, 0, 40] {
            sink.write(&grey(321, 243, format, pts * 1_000_000)).expect("there is room");
        }
        sink.finish().expect("there is room");
        let reading = read(path.to_str().expect("UTF-8"), usize::MAX, |frame| {
            let grey = frame.view().plane(0).row(100)[100];
            assert!(grey.abs_diff(126) < 4, "{format:?}: {grey}");
            (frame.desc.width, frame.desc.height, frame.desc.pts.0 / 1_000_000)
        });
        assert!(reading.fault.is_none(), "{:?}", reading.fault);
        let times = [0, 40, 400, 760, 800].map(|time| (320, 242, time));
        assert_eq!(reading.frames, times, "{format:?}");
    }
}

#[test]
fn h265_is_written_and_read() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("x.mp4");
    let mut sink =
        Mp4Sink::create(&path, Codec::H265, no_drawing(), clock()).expect("the folder is writable");
    for pts in [0, 40, 80] {
        sink.write(&grey(320, 240, PixelFormat::I420, pts * 1_000_000)).expect("there is room");
    }
    sink.finish().expect("there is room");
    let reading =
        read(path.to_str().expect("UTF-8"), usize::MAX, |frame| frame.view().plane(0).row(100)[100]);
    assert!(reading.fault.is_none(), "{:?}", reading.fault);
    assert!(reading.frames.iter().all(|grey| grey.abs_diff(126) < 4), "{:?}", reading.frames);
    assert_eq!(reading.frames.len(), 3);
}

#[test]
fn a_decoded_image_can_be_encoded() {
    let Some(data) = common::data() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let frame = decode_image(&data.join("images/dog_bicycle_truck.jpg"), &*clock()).expect("it is an image");
    let mut sink =
        Mp4Sink::create(&folder.path().join("x.mp4"), Codec::H264, no_drawing(), clock()).expect("writable");
    sink.write(&frame_result(frame)).expect("there is room");
    let path = sink.finish().expect("there is room").expect("there was a frame");
    let reading = read(path.to_str().expect("UTF-8"), usize::MAX, |_| ());
    assert_eq!((reading.frames.len(), reading.fault.is_none()), (1, true));
}

#[test]
fn frames_of_another_size_are_scaled_into_the_first_with_what_was_drawn() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("x.mp4");
    // White in the middle, like a box around an object.
    let draw: Draw = Box::new(|frame, width, height, _| {
        for y in height / 4..height * 3 / 4 {
            let row = (y * width) as usize;
            frame[row + width as usize / 4..row + width as usize * 3 / 4].fill(235);
        }
    });
    let mut sink = Mp4Sink::create(&path, Codec::H264, draw, clock()).expect("writable");
    let sizes = [(320, 240), (640, 240), (200, 600), (1281, 961), (320, 240)];
    for (number, (width, height)) in sizes.into_iter().enumerate() {
        let pts = number as u64 * 40_000_000;
        sink.write(&grey(width, height, PixelFormat::I420, pts)).expect("there is room");
    }
    assert_eq!(sink.finish().expect("there is room"), Some(path.clone()));
    let reading = read(path.to_str().expect("UTF-8"), usize::MAX, |frame| {
        let luma = |x: usize, y: usize| frame.view().plane(0).row(y)[x];
        // Upper left corner, middle of the upper edge, middle of the left edge, centre.
        let seen = [luma(2, 2), luma(160, 2), luma(2, 120), luma(160, 120)];
        ((frame.desc.width, frame.desc.height), seen.map(|luma| (u32::from(luma) + 32) / 64))
    });
    let (whole, wide, high) = ([2, 2, 2, 4], [0, 0, 2, 4], [0, 2, 0, 4]);
    let wanted = [whole, wide, high, whole, whole].map(|seen| ((320, 240), seen));
    assert_eq!(reading.frames, wanted);
    assert!(reading.fault.is_none(), "{:?}", reading.fault);
}

/// Returns the output of `ffprobe`; `None`, with a note, if it is not installed.
fn ffprobe(path: &Path, arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("ffprobe").args(["-v", "error", "-of", "csv=p=0"]).args(arguments).arg(path).output();
    let Ok(output) = output else {
        note("skipped: no ffprobe here");
        return None;
    };
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    Some(String::from_utf8(output.stdout).expect("text"))
}

/// Writes `count` images, one per `interval`, with flushes as a sink thread makes them; in real time.
fn record(sink: &mut Mp4Sink, count: u64, interval: Duration) {
    let begin = Instant::now();
    for number in 0..count {
        let due = interval * number as u32;
        while begin.elapsed() < due {
            sink.flush().expect("there is room");
            std::thread::sleep((due.saturating_sub(begin.elapsed())).min(Duration::from_millis(400)));
        }
        let pts = u64::try_from(due.as_nanos()).expect("it is short");
        sink.write(&grey(320, 240, PixelFormat::I420, pts)).expect("there is room");
    }
}

#[test]
fn a_file_that_nobody_completes_plays_but_for_its_last_two_seconds() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cases = [
        (Codec::H264, 40, 100),
        (Codec::H264, 40, 61),
        (Codec::H264, 1000, 5),
        (Codec::H264, 400, 10),
        (Codec::H265, 40, 100),
        (Codec::H265, 1000, 5),
    ];
    let checks = cases.into_iter().enumerate().map(|(number, (codec, interval_ms, count))| {
        let path = folder.path().join(format!("{number}.mp4"));
        std::thread::spawn(move || {
            let mut sink = Mp4Sink::create(&path, codec, no_drawing(), clock()).expect("writable");
            record(&mut sink, count, Duration::from_millis(interval_ms));
            // State after a kill: images in the encoder and in the recording thread are lost.
            let left = path.with_extension("left.mp4");
            std::fs::copy(&path, &left).expect("copied");
            let reading =
                read(left.to_str().expect("UTF-8"), usize::MAX, |frame| frame.desc.pts.0 / 1_000_000);
            assert!(reading.fault.is_none(), "{:?}", reading.fault);
            let wanted: Vec<u64> =
                (0..reading.frames.len() as u64).map(|number| number * interval_ms).collect();
            assert_eq!(reading.frames, wanted);
            let (there, written) = (reading.frames.len() as u64 * interval_ms, (count - 1) * interval_ms);
            assert!(there + 2000 >= written, "{codec:?}, each {interval_ms} ms: {there} of {written} ms");
            if let Some(packets) =
                ffprobe(&left, &["-count_packets", "-show_entries", "stream=nb_read_packets"])
            {
                assert_eq!(packets.trim(), reading.frames.len().to_string());
            }
            sink.finish().expect("there is room");
        })
    });
    checks.collect::<Vec<_>>().into_iter().for_each(|check| check.join().expect("it holds"));
}

#[test]
fn an_encoder_that_is_started_again_goes_on_in_the_same_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for codec in [Codec::H264, Codec::H265] {
        let path = folder.path().join("x.mp4");
        let mut sink = Mp4Sink::create(&path, codec, no_drawing(), clock()).expect("writable");
        // Fast, then nothing, then slow, and fast again for so long that the encoder looks ahead again.
        let intervals = [(40u64, 10), (3000, 1), (500, 5), (20, 130)];
        let each = intervals.iter().flat_map(|&(interval, count)| std::iter::repeat_n(interval, count));
        let times: Vec<u64> = each
            .scan(0, |time, interval| {
                *time += interval;
                Some(*time)
            })
            .collect();
        for (number, time) in times.iter().enumerate() {
            sink.write(&grey(64, 48, PixelFormat::I420, time * 1_000_000)).expect("there is room");
            if number == 9 {
                std::thread::sleep(Duration::from_millis(300));
                sink.flush().expect("there is room");
            }
        }
        sink.finish().expect("there is room");
        let reading =
            read(path.to_str().expect("UTF-8"), usize::MAX, |frame| (frame.desc.pts.0 + 500_000) / 1_000_000);
        assert_eq!((reading.frames, reading.fault.is_none()), (times, true), "{codec:?}");
    }
}

#[test]
fn a_complete_file_has_its_duration_and_is_found_through_by_its_key_frames() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for codec in [Codec::H264, Codec::H265] {
        let path = folder.path().join("x.mp4");
        let mut sink = Mp4Sink::create(&path, codec, no_drawing(), clock()).expect("writable");
        for number in 0..100 {
            sink.write(&grey(64, 48, PixelFormat::I420, number * 40_000_000)).expect("there is room");
        }
        sink.finish().expect("there is room");
        let Some(duration) = ffprobe(&path, &["-show_entries", "format=duration"]) else { return };
        assert_eq!(duration.trim(), "4.000000", "{codec:?}");
        let keys = ["-skip_frame", "nokey", "-show_entries", "frame=pts_time"];
        let keys = ffprobe(&path, &keys).expect("it is installed, see above");
        let keys: Vec<f64> = keys.lines().filter_map(|line| line.trim_matches(',').parse().ok()).collect();
        assert_eq!(keys, [0.0, 0.8, 1.6, 2.4, 3.2], "{codec:?}");
        let seek = ["-read_intervals", "2.3%+#1", "-show_entries", "packet=pts_time"];
        let found = ffprobe(&path, &seek).expect("it is installed, see above");
        assert_eq!(found.trim().trim_matches(','), "1.600000", "{codec:?}");
    }
}

#[test]
fn a_torn_end_is_cut_off_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("x.mp4");
    let mut sink = Mp4Sink::create(&path, Codec::H264, no_drawing(), clock()).expect("writable");
    for number in 0..100 {
        sink.write(&grey(64, 48, PixelFormat::I420, number * 40_000_000)).expect("there is room");
    }
    assert_eq!(cut_torn_mp4(&path).expect("readable"), 0, "it is being written");
    sink.finish().expect("there is room");
    drop(sink);
    let whole = std::fs::read(&path).expect("readable");
    assert_eq!(cut_torn_mp4(&path).expect("readable"), 0, "it is complete");
    let fragments: Vec<usize> =
        (0..whole.len() - 4).filter(|&at| &whole[at..at + 4] == b"moof").map(|at| at - 4).collect();
    assert_eq!(fragments.len(), 5, "4 s, with a key frame every 0.8 s");
    // Each way in which the last fragment can be torn, and a disk that had stored the length but not the bytes.
    let last = *fragments.last().expect("there are five");
    let table = whole.windows(4).position(|name| name == b"mfra").expect("it is complete") - 4;
    let ends = [last, last + 3, last + 8, last + 100, table - 1, table, table + 20];
    let torn = ends.map(|end| (end, 0)).into_iter().chain([(last, 5000), (table, 5000)]);
    for (end, zeros) in torn {
        let kept = if end < table { last } else { table };
        let torn = [&whole[..end], &vec![0; zeros]].concat();
        std::fs::write(&path, &torn).expect("written");
        assert_eq!(cut_torn_mp4(&path).expect("readable"), (torn.len() - kept) as u64, "{end} and {zeros}");
        assert!(std::fs::read(&path).expect("readable") == whole[..kept]);
        let reading = read(path.to_str().expect("UTF-8"), usize::MAX, |_| ());
        assert!(reading.fault.is_none(), "{:?}", reading.fault);
    }
    // A recording that another program has rewritten (`ffmpeg -c copy -movflags +faststart`) keeps the track's name.
    let part = |name: &[u8; 4], bytes: usize| {
        [&u32::try_from(8 + bytes).expect("small").to_be_bytes(), &name[..], &vec![7; bytes]].concat()
    };
    let (head, media) = (&whole[..fragments[0]], part(b"mdat", 3000));
    let renewed = [
        [head, &part(b"free", 0), &media].concat(),
        [head, &part(b"free", 0), &media[..2000]].concat(),
        [head, &media[..2000]].concat(),
        [head, &[0; 4], b"mdat", &[7; 3000]].concat(),
        [head, &part(b"sidx", 40), &whole[fragments[0]..last + 100]].concat(),
        [head, &part(b"uuid", 40), &whole[fragments[0]..]].concat(),
        [&whole[..], &part(b"udta", 40)].concat(),
    ];
    for (number, bytes) in renewed.into_iter().enumerate() {
        std::fs::write(&path, &bytes).expect("written");
        assert_eq!(cut_torn_mp4(&path).expect("readable"), 0, "{number}");
        assert!(std::fs::read(&path).expect("readable") == bytes);
    }
    let (recorded, remuxed) = (folder.path().join("recorded.mp4"), folder.path().join("remuxed.mp4"));
    std::fs::write(&recorded, &whole).expect("written");
    for flags in ["+faststart", "+frag_keyframe+global_sidx", "+empty_moov+frag_keyframe"] {
        if has_ffmpeg() {
            ffmpeg(&format!("-i {} -c copy -movflags {flags} {}", recorded.display(), remuxed.display()));
            let made = std::fs::read(&remuxed).expect("readable");
            assert!(
                made.windows(13).any(|name| name == b"Orinoco video"),
                "{flags}: it is known by another name"
            );
            assert_eq!(cut_torn_mp4(&remuxed).expect("readable"), 0, "{flags}");
        }
    }
    // Files of other programs, and files that are not MP4.
    let mut foreign = whole[..table - 1].to_vec();
    let name = foreign.windows(7).position(|name| name == b"Orinoco").expect("by this it is known");
    foreign[name] = b'X';
    for bytes in [foreign, Vec::new(), b"text".to_vec(), whole[..40].to_vec(), vec![0; 100]] {
        std::fs::write(&path, &bytes).expect("written");
        assert_eq!(cut_torn_mp4(&path).expect("readable"), 0);
        assert!(std::fs::read(&path).expect("readable") == bytes);
    }
}

#[test]
fn the_shape_of_pixels_is_kept_and_turns_with_the_frame() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("x.mp4");
    let name = path.to_str().expect("UTF-8");
    let aspect = |frame: &Frame| ((frame.desc.width, frame.desc.height), frame.aspect);
    for codec in [Codec::H264, Codec::H265] {
        let mut sink = Mp4Sink::create(&path, codec, no_drawing(), clock()).expect("writable");
        let mut anamorphic = grey(64, 48, PixelFormat::I420, 0);
        anamorphic.frame.aspect = PixelAspect::new(2, 1);
        sink.write(&anamorphic).expect("there is room");
        sink.finish().expect("there is room");
        assert_eq!(read(name, 1, aspect).frames, [((64, 48), PixelAspect::new(2, 1))], "{codec:?}");
        if let Some(told) = ffprobe(&path, &["-show_entries", "stream=sample_aspect_ratio"]) {
            assert_eq!(told.trim(), "2:1", "{codec:?}");
        }
    }
    // A quarter turn in the track's header: pixels that were twice as wide as high are twice as high as wide.
    let mut bytes = std::fs::read(&path).expect("readable");
    let matrix = |terms: [i32; 4]| {
        let [a, b, c, d] = terms;
        [a, b, 0, c, d, 0, 0, 0, 0x4000_0000].map(i32::to_be_bytes).concat()
    };
    let upright = matrix([0x1_0000, 0, 0, 0x1_0000]);
    let place = bytes.windows(upright.len()).rposition(|there| there == upright).expect("the track has one");
    bytes[place..place + upright.len()].copy_from_slice(&matrix([0, 0x1_0000, -0x1_0000, 0]));
    std::fs::write(&path, bytes).expect("written");
    assert_eq!(read(name, 1, aspect).frames, [((48, 64), PixelAspect::new(1, 2))]);
}

#[test]
fn what_cannot_be_written_is_told_before_the_run() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for path in [Path::new("/nowhere/out.mp4"), folder.path()] {
        let fault = Mp4Sink::create(path, Codec::H264, no_drawing(), clock())
            .map(|_| ())
            .expect_err("it cannot be written");
        assert_eq!(fault.code.id, codes::SINK_OPEN.id, "{fault}");
    }
}

#[test]
fn a_full_disk_is_told_and_does_not_hang() {
    let begin = Instant::now();
    let mut sink =
        Mp4Sink::create(Path::new("/dev/full"), Codec::H264, no_drawing(), clock()).expect("it opens");
    let mut fault = None;
    for number in 0..200 {
        let mut source = source("test://ball?width=640&height=480&frames=1").expect("it is valid");
        source.open().expect("it always opens");
        let Ok(Poll::Frame(mut frame)) = source.next(Duration::ZERO) else { panic!("a slot is free") };
        frame.desc.pts = Pts(number * 40_000_000);
        fault = sink.write(&frame_result(frame)).err();
        if fault.is_some() {
            break;
        }
    }
    // A sink that has failed is completed, too.
    let finished = sink.finish().err();
    let fault = fault.or(finished).expect("there is no room");
    note(&fault.to_string());
    assert_eq!(fault.code.id, codes::SINK_WRITE.id);
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[test]
fn without_frames_there_is_no_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("x.mp4");
    let mut sink = Mp4Sink::create(&path, Codec::H264, no_drawing(), clock()).expect("writable");
    assert!(path.exists());
    assert_eq!(sink.finish().expect("there is nothing to do"), None);
    assert!(!path.exists());
}
