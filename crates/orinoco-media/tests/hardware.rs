//! Tests the pipelines for a Jetson's video hardware, with SIMULATED elements: that pipelines have the correct
//! elements, that every buffer in NVMM is returned exactly once, and that never more are held than there are. No Jetson
//! was used.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
#![allow(clippy::print_stdout, reason = "tests say what they measured")]

mod common;
mod stand_in;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::{clock, gst_source, launch, read, read_from};
use orinoco_core::{Codec, DropPolicy, FrameDesc, MemoryDomain, PixelFormat, StreamId};
use orinoco_media::{FrameMemory, GstSource, Mp4Sink, video_hardware};
use orinoco_pipeline::{
    Frame, FrameResult, Mux, Poll, Reconnect, Sink, Slot, SlotPool, Source, SourceEnd, SourceRunner, Stop,
    StreamQueue,
};
use orinoco_telemetry::{Event, EventSink, Telemetry};
use stand_in::{Count, Script, count, luma_of_number, start};

const WIDTH: u32 = 320;
const HEIGHT: u32 = 240;
const FRAMES: usize = 40;
/// Capacity of the ring, in frames.
const RING: usize = 4;
/// Number of frames between the decoder and the ring: two in the sink's queue, one on its way into it, one being made.
const ON_THE_WAY: u64 = 4;

fn video(folder: &Path) -> PathBuf {
    let path = folder.join("clip.mp4");
    launch(&format!(
        "videotestsrc num-buffers={FRAMES} ! video/x-raw,width={WIDTH},height={HEIGHT},framerate=25/1 ! \
         x264enc bframes=0 ! h264parse ! mp4mux ! filesink location={}",
        path.display()
    ));
    path
}

/// Waits until an element has all its buffers back.
fn all_back(element: &str) -> Count {
    let begin = Instant::now();
    loop {
        let count = count(element);
        if count.made == count.released {
            return count;
        }
        assert!(begin.elapsed() < Duration::from_secs(5), "{element}: {count:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the luma of a frame's first pixel, in any memory.
fn luma(frame: &Frame) -> u8 {
    match frame.desc.memory {
        MemoryDomain::DmaBuf => {
            let fd = frame.dma_buf().expect("it has one");
            let mut pixel = [0];
            let offset = frame.desc.planes[0].offset as u64;
            rustix::io::pread(fd, &mut pixel, offset).expect("it can be read");
            pixel[0]
        }
        _ => frame.view().plane(0).row(0)[0],
    }
}

fn nvmm_source(uri: &str) -> GstSource {
    gst_source(uri).in_memory(FrameMemory::Nvmm)
}

#[test]
fn hardware_is_chosen_where_it_works_and_refused_with_a_reason() {
    let _turn = start(Script::default());
    let parts = video_hardware().expect("GStreamer starts");
    let refused =
        |element| parts.iter().find(|part| part.element == element).expect("it is known").refused.clone();
    for element in ["nvvidconv", "nvarguscamerasrc", "nvv4l2decoder", "nvv4l2h264enc"] {
        assert_eq!(refused(element), None, "{element}");
    }
    assert!(refused("nvjpegdec").expect("it is not there").contains("no such element"));
    assert_eq!(refused("nvv4l2h265enc").expect("it is broken"), "no such device");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let sink =
        |codec| Mp4Sink::create(&folder.path().join("x.mp4"), codec, Box::new(|_, _, _, _| {}), clock());
    assert_eq!(sink(Codec::H264).expect("it opens").encoder(), "nvv4l2h264enc");
    assert_eq!(sink(Codec::H265).expect("it opens").encoder(), "x265enc");
}

#[test]
fn decoded_frames_come_to_the_host() {
    let _turn = start(Script::default());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let uri = video(folder.path()).display().to_string();
    let mut source = gst_source(&uri);
    let mut decoder = None;
    source.open().expect("it opens");
    let mut seen = Vec::new();
    while let Poll::Frame(frame) = source.next(Duration::from_secs(5)).expect("it is whole") {
        decoder = source.decoder();
        assert_eq!(frame.desc.memory, MemoryDomain::Host);
        seen.push(luma(&frame));
    }
    source.close();
    assert_eq!(seen, (0..FRAMES as u64).map(luma_of_number).collect::<Vec<_>>());
    assert_eq!(decoder.as_deref(), Some("nvv4l2decoder"));
    let count = all_back("nvv4l2decoder");
    assert_eq!(count.made, FRAMES as u64);
    assert!(count.most <= ON_THE_WAY, "{count:?}");
}

#[test]
fn decoded_frames_stay_in_nvidias_memory() {
    let _turn = start(Script::default());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let uri = video(folder.path()).display().to_string();
    let mut held = std::collections::VecDeque::new();
    let reading = read_from(&mut nvmm_source(&uri), usize::MAX, |frame| {
        let FrameDesc { format, memory, planes, .. } = frame.desc;
        assert_eq!((format, memory), (PixelFormat::Nv12, MemoryDomain::DmaBuf));
        assert_eq!((planes[0].stride, planes[1].offset), (512, 512 * HEIGHT as usize));
        held.push_back(luma(frame));
    });
    assert!(reading.fault.is_none(), "{:?}", reading.fault);
    assert_eq!(held, (0..FRAMES as u64).map(luma_of_number).collect::<Vec<_>>());
    for element in ["nvv4l2decoder", "nvvidconv"] {
        assert_eq!(all_back(element).made, FRAMES as u64, "{element}");
    }
}

struct Silent;
impl EventSink for Silent {
    fn emit(&self, _: Event) {}
}

/// Runs a source as in a pipeline, into a ring whose frames are not taken until the end.
fn run_into_ring(
    source: GstSource,
    policy: DropPolicy,
    frames_max: Option<u64>,
    wait: Duration,
) -> (SourceEnd, Count) {
    let (clock, stop) = (clock(), Stop::default());
    let telemetry = Telemetry::new(1).stream(StreamId(0));
    let queue = StreamQueue { group: 0, frames_max: RING, policy, batch_wait: Duration::ZERO };
    let mux = Mux::new(Arc::clone(&clock));
    let runner = SourceRunner {
        shown: "stand-in".to_owned(),
        source: Box::new(source),
        frame_sender: mux.add(telemetry.clone(), queue, 1).expect("open"),
        reconnect: Reconnect { attempts_max: Some(3), stall: Duration::from_secs(5) },
        frames_max,
        clock,
        seed: 7,
        events: Arc::new(Silent),
        telemetry,
        stop: stop.clone(),
    };
    let running = thread::spawn(move || runner.run());
    thread::sleep(wait);
    stop.request();
    mux.close();
    let end = running.join().expect("it does not panic");
    (end, all_back("nvvidconv"))
}

#[test]
fn never_more_is_held_than_the_ring_has_room_for() {
    for policy in [DropPolicy::Block, DropPolicy::DropOldest, DropPolicy::DropNewest] {
        let _turn = start(Script::default());
        let folder = tempfile::tempdir().expect("a temporary folder");
        let uri = video(folder.path()).display().to_string();
        let (end, count) = run_into_ring(nvmm_source(&uri), policy, None, Duration::from_millis(400));
        println!("{policy:?}: {count:?}, {end:?}");
        assert!(count.most <= RING as u64 + ON_THE_WAY, "{policy:?}: {count:?}");
        assert!(count.made >= RING as u64);
        all_back("nvv4l2decoder");
    }
}

#[test]
fn every_buffer_comes_back_after_an_error() {
    let _turn = start(Script { fail_after: Some(9), ..Script::default() });
    let folder = tempfile::tempdir().expect("a temporary folder");
    let uri = video(folder.path()).display().to_string();
    let reading = read_from(&mut nvmm_source(&uri), usize::MAX, luma);
    let fault = reading.fault.expect("the decoder fails");
    assert!(fault.cause.contains("told to fail"), "{fault}");
    assert!(reading.frames.len() <= 9);
    all_back("nvvidconv");
    assert_eq!(all_back("nvv4l2decoder").made, 9);
}

#[test]
fn every_buffer_comes_back_after_reopening_and_while_readers_still_hold_some() {
    let _turn = start(Script::default());
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Of files, only those that repeat are opened again.
    let uri = format!("{}?loop=1", video(folder.path()).display());
    let mut source = nvmm_source(&uri);
    let mut held = Vec::new();
    for _ in 0..10 {
        source.open().expect("it opens");
        for _ in 0..3 {
            if let Poll::Frame(frame) = source.next(Duration::from_secs(5)).expect("it is whole") {
                held.push(frame);
            }
        }
        source.close();
    }
    assert_eq!((held.len(), source.frames_lent()), (30, 30));
    assert_eq!(luma(&held[29]), luma_of_number(2), "it can be read although its source was closed");
    held.clear();
    assert_eq!(source.frames_lent(), 0);
    all_back("nvvidconv");
    all_back("nvv4l2decoder");
}

#[test]
fn a_csi_camera_is_read_from_either_memory() {
    for memory in [FrameMemory::Host, FrameMemory::Nvmm] {
        let _turn = start(Script::default());
        let mut source = gst_source("csi://0?width=640&height=480&fps=60").in_memory(memory);
        source.open().expect("it opens");
        assert_eq!(source.decoder().as_deref(), Some("nvarguscamerasrc"));
        let mut seen = Vec::new();
        while seen.len() < 20 {
            if let Poll::Frame(frame) = source.next(Duration::from_secs(5)).expect("it works") {
                assert_eq!((frame.desc.width, frame.desc.height), (640, 480));
                seen.push(luma(&frame));
            }
        }
        source.close();
        assert_eq!(seen, (0..20).map(luma_of_number).collect::<Vec<_>>(), "{memory:?}");
        all_back("nvvidconv");
        assert!(all_back("nvarguscamerasrc").most <= ON_THE_WAY);
    }
}

/// SIMULATED: the converter has as many output buffers as NVIDIA's has by default, and stops without a free one.
#[test]
fn a_camera_goes_on_while_readers_hold_what_the_converter_has() {
    let _turn = start(Script { converter_buffers: Some(4), ..Script::default() });
    let mut source = gst_source("csi://0?width=64&height=64&fps=100").in_memory(FrameMemory::Nvmm);
    source.open().expect("it opens");
    let mut held = Vec::new();
    let begin = Instant::now();
    // Longer than the converter waits for a buffer.
    while begin.elapsed() < Duration::from_millis(2500) {
        if let Poll::Frame(frame) = source.next(Duration::from_millis(20)).expect("it goes on") {
            held.push(frame);
        }
    }
    assert!(
        !held.is_empty() && count("nvvidconv").most <= 4,
        "{} held, {:?}",
        held.len(),
        count("nvvidconv")
    );
    let last = held.len();
    held.clear();
    while held.is_empty() {
        if let Poll::Frame(frame) = source.next(Duration::from_secs(1)).expect("it goes on") {
            held.push(frame);
        }
    }
    assert!(held[0].lost > 100, "{last} frames held, {} lost meanwhile", held[0].lost);
    source.close();
    held.clear();
    all_back("nvvidconv");
    all_back("nvarguscamerasrc");
}

#[test]
fn damaged_frames_of_a_camera_are_lost() {
    let _turn = start(Script { damaged: 4, ..Script::default() });
    let mut source = gst_source("csi://0?width=64&height=64&fps=100");
    source.open().expect("it opens");
    let mut seen = Vec::new();
    while seen.len() < 3 {
        if let Poll::Frame(frame) = source.next(Duration::from_secs(5)).expect("it works") {
            seen.push((luma(&frame), frame.lost));
        }
    }
    source.close();
    assert_eq!(seen, [(luma_of_number(4), 4), (luma_of_number(5), 0), (luma_of_number(6), 0)]);
    all_back("nvarguscamerasrc");
}

#[test]
fn a_csi_camera_that_fails_is_opened_again() {
    let _turn = start(Script { fail_after: Some(5), ..Script::default() });
    let source = gst_source("csi://0?width=64&height=64&fps=100").in_memory(FrameMemory::Nvmm);
    let (end, count) = run_into_ring(source, DropPolicy::DropOldest, None, Duration::from_millis(1500));
    assert!(matches!(end, SourceEnd::Stopped), "{end:?}");
    assert!(count.made > 5, "it was opened once: {count:?}");
    all_back("nvarguscamerasrc");
}

#[test]
fn annotated_video_is_encoded_by_hardware() {
    let _turn = start(Script::default());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("out.mp4");
    let mut sink = Mp4Sink::create(&path, Codec::H264, Box::new(|_, _, _, _| {}), clock()).expect("it opens");
    let pool = SlotPool::new(1, FrameDesc::packed(PixelFormat::I420, WIDTH, HEIGHT).bytes_needed());
    for number in 0..20 {
        let mut desc = FrameDesc::packed(PixelFormat::I420, WIDTH, HEIGHT);
        desc.pts = orinoco_core::Pts(number * 40_000_000);
        let slot = pool.take(Duration::from_secs(1), &*clock()).expect("it came back");
        let frame = Frame::new(desc, Slot::Owned(slot), orinoco_core::Nanos(0)).expect("it fits");
        sink.write(&FrameResult { frame, found: Vec::new(), finished: orinoco_core::Nanos(0) })
            .expect("it is encoded");
    }
    sink.finish().expect("the file is whole");
    assert_eq!(all_back("nvvidconv").made, 20);
    let reading = read(&path.display().to_string(), usize::MAX, |frame| frame.desc.pts.0);
    assert_eq!(reading.frames, (0..20).map(|number| number * 40_000_000).collect::<Vec<u64>>());
}
