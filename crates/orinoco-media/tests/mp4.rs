//! Annotated MP4: what goes in comes out again.
#![cfg(feature = "gstreamer")]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::{clock, note, read, source};
use orinoco_core::{FrameDesc, Nanos, PixelFormat, Pts, codes};
use orinoco_media::{Codec, Draw, Mp4Sink, Shown, SourceKind, SourceUri, decode_image};
use orinoco_pipeline::{Frame, Outcome, Poll, Sink, Slot, SlotPool};

fn outcome(frame: Frame) -> Outcome {
    Outcome { frame, found: Vec::new(), finished: Nanos(0) }
}

fn no_drawing() -> Draw {
    Box::new(|_, _, _, _| ())
}

fn grey(width: u32, height: u32, format: PixelFormat, pts: u64) -> Outcome {
    let mut desc = FrameDesc::packed(format, width, height);
    desc.pts = Pts(pts);
    let mut slot = SlotPool::new(1, desc.bytes_needed()).take(Duration::ZERO).expect("free");
    slot.bytes.fill(128);
    outcome(Frame::new(desc, Slot::Owned(slot), Nanos(0)).expect("it fits"))
}

#[test]
fn a_card_fills_the_time_without_pictures() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("out.mp4");
    let told = Arc::new(AtomicU32::new(0));
    let silence = Arc::clone(&told);
    let draw: Draw = Box::new(move |picture, _, _, shown| {
        if let Shown::Offline(silent) = shown {
            silence.store(silent.as_secs() as u32, Ordering::Relaxed);
            assert!(picture.iter().all(|byte| matches!(byte, 16 | 128)), "it is black");
        }
    });
    let mut sink = Mp4Sink::create(&path, Codec::H264, draw).expect("the folder is writable");
    sink.offline(Duration::from_secs(9)).expect("nothing was seen yet: nothing is shown");
    let at = |millis: u64| grey(64, 48, PixelFormat::I420, millis * 1_000_000);
    sink.write(&at(0)).expect("there is room");
    sink.write(&at(40)).expect("there is room");
    sink.offline(Duration::from_secs(1)).expect("there is room");
    sink.offline(Duration::from_secs(2)).expect("there is room");
    // The camera counts on, and then it begins anew.
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
    let draw: Draw = Box::new(move |picture, width, height, shown| {
        count.fetch_add(1, Ordering::Relaxed);
        let Shown::Outcome(outcome) = shown else { panic!("{shown:?}") };
        assert_eq!((width, height), (outcome.frame.desc.width, outcome.frame.desc.height));
        assert_eq!(picture.len(), (width * height * 3 / 2) as usize);
        for row in picture.chunks_exact_mut(width as usize).take(16) {
            row[..16].fill(235);
        }
    });
    let mut sink = Mp4Sink::create(&path, Codec::H264, draw).expect("the folder is writable");
    let uri = "test://ball?width=332&height=240&fps=30&frames=90";
    let mut source = source(uri).expect("it is valid");
    source.open().expect("it always opens");
    let begin = Instant::now();
    let mut times = Vec::new();
    while let Poll::Frame(frame) = source.next(Duration::from_secs(1)).expect("it never fails") {
        times.push(frame.desc.pts.0);
        sink.write(&outcome(frame)).expect("there is room");
    }
    assert_eq!(sink.finish().expect("there is room"), Some(path.clone()));
    note(&format!("{} encodes 90 frames in {:?}", sink.encoder(), begin.elapsed()));
    assert_eq!(drawn.load(Ordering::Relaxed), 90);

    let parsed = SourceUri::parse(uri).expect("it is valid");
    let SourceKind::Test(pattern) = *parsed.kind() else { panic!("it is a test pattern") };
    let mut number = 0;
    let reading = read(path.to_str().expect("UTF-8"), usize::MAX, |frame| {
        let ball = pattern.ball(number);
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
        let mut sink = Mp4Sink::create(&path, Codec::H264, no_drawing()).expect("the folder is writable");
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
    let mut sink = Mp4Sink::create(&path, Codec::H265, no_drawing()).expect("the folder is writable");
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
        Mp4Sink::create(&folder.path().join("x.mp4"), Codec::H264, no_drawing()).expect("writable");
    sink.write(&outcome(frame)).expect("there is room");
    let path = sink.finish().expect("there is room").expect("there was a frame");
    let reading = read(path.to_str().expect("UTF-8"), usize::MAX, |_| ());
    assert_eq!((reading.frames.len(), reading.fault.is_none()), (1, true));
}

#[test]
fn a_size_that_changes_is_an_error() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut sink =
        Mp4Sink::create(&folder.path().join("x.mp4"), Codec::H264, no_drawing()).expect("writable");
    sink.write(&grey(320, 240, PixelFormat::I420, 0)).expect("there is room");
    let fault = sink.write(&grey(640, 480, PixelFormat::I420, 40)).expect_err("it is another size");
    assert_eq!(fault.code.id, codes::SINK_WRITE.id);
    assert!(fault.cause.contains("320x240 to 640x480"), "{fault}");
    sink.finish().expect("the first frame is complete");
}

#[test]
fn what_cannot_be_written_is_told_before_the_run() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for path in [Path::new("/nowhere/out.mp4"), folder.path()] {
        let fault =
            Mp4Sink::create(path, Codec::H264, no_drawing()).map(|_| ()).expect_err("it cannot be written");
        assert_eq!(fault.code.id, codes::SINK_OPEN.id, "{fault}");
    }
}

#[test]
fn a_full_disk_is_told_and_does_not_hang() {
    let begin = Instant::now();
    let mut sink = Mp4Sink::create(Path::new("/dev/full"), Codec::H264, no_drawing()).expect("it opens");
    let mut fault = None;
    for number in 0..200 {
        let mut source = source("test://ball?width=640&height=480&frames=1").expect("it is valid");
        source.open().expect("it always opens");
        let Ok(Poll::Frame(mut frame)) = source.next(Duration::ZERO) else { panic!("a slot is free") };
        frame.desc.pts = Pts(number * 40_000_000);
        fault = sink.write(&outcome(frame)).err();
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
    let mut sink = Mp4Sink::create(&path, Codec::H264, no_drawing()).expect("writable");
    assert!(path.exists());
    assert_eq!(sink.finish().expect("there is nothing to do"), None);
    assert!(!path.exists());
}
