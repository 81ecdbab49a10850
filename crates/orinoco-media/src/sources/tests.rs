use super::*;
use crate::RawSource;
use expect_test::{Expect, expect};
use orinoco_core::codes;
use orinoco_pipeline::{Frame, MonotonicClock, Poll};
use orinoco_uri::SourceKind;
use std::time::Duration;

fn uri(text: &str) -> SourceUri {
    SourceUri::parse(text).expect("it is valid")
}

fn check(text: &str, queue_frames: usize, expected: Expect) {
    let SourceNeeds { slots, extra_slots, frame_bytes, driver_bytes, uncounted } =
        source_needs(&uri(text), queue_frames);
    let uncounted = uncounted.join(", ");
    expected.assert_eq(&format!("{slots} ({extra_slots}) x {frame_bytes} + {driver_bytes} [{uncounted}]"));
}

#[test]
fn needs_follow_from_the_uri() {
    check("test://ball?width=320&height=240", 4, expect!["16 (12) x 115200 + 0 []"]);
    check("test://ball?width=320&height=240", 64, expect!["16 (12) x 115200 + 0 []"]);
    check("test://ball?width=320&height=240", 1, expect!["13 (12) x 115200 + 0 []"]);
    check("stdin://?format=nv12&width=1920&height=1080", 4, expect!["16 (12) x 3110400 + 0 []"]);
    check("stdin://?format=rgb&width=8192&height=4096", 2, expect!["4 (12) x 100663296 + 0 []"]);
    check("stdin://?format=y4m", 4, expect!["0 (0) x 0 + 0 [frames of the size in the stream's header]"]);
    check("rtsp://camera/x", 4, expect!["0 (0) x 0 + 0 [decoder buffers]"]);
    check("clip.mp4", 4, expect!["0 (0) x 0 + 0 [decoder buffers]"]);
    check("img_%04i.jpg", 4, expect!["0 (0) x 0 + 0 [decoded images]"]);
}

#[test]
#[cfg(feature = "v4l2")]
fn needs_of_cameras_follow_from_their_format() {
    let camera = "v4l2:///dev/video0?width=1920&height=1080";
    check(
        "v4l2:///dev/video0",
        4,
        expect!["0 (0) x 0 + 0 [frames and driver buffers of the camera's current size]"],
    );
    check(camera, 4, expect!["16 (12) x 6220800 + 49766400 []"]);
    check(&format!("{camera}&format=NV12"), 4, expect!["16 (12) x 3110400 + 24883200 []"]);
    check(&format!("{camera}&format=YUYV&buffers=3"), 2, expect!["14 (12) x 4147200 + 12441600 []"]);
    check(&format!("{camera}&format=NM12"), 4, expect!["16 (12) x 3110400 + 24883200 []"]);
    check(
        &format!("{camera}&format=MJPG"),
        4,
        expect!["16 (12) x 6220800 + 0 [driver buffers of compressed frames, decoder buffers]"],
    );
}

/// Every frame that a source gives while none is dropped.
fn held(source: &mut dyn Source) -> Vec<Frame> {
    source.open().expect("it opens");
    let mut held = Vec::new();
    loop {
        match source.next(Duration::from_millis(50)).expect("it does not fail") {
            Poll::Frame(frame) => held.push(frame),
            Poll::Pending => {}
            Poll::Waiting => return held,
            Poll::End => panic!("it ends after {} frames", held.len()),
        }
    }
}

#[test]
fn a_source_allocates_what_it_needs() {
    let clock = || Arc::new(MonotonicClock::default());
    for queue_frames in [1, 2, 4, 5, 64] {
        let text = "test://ball?width=33&height=17&fps=1000";
        let mut test =
            open(&uri(text), "test", FrameMemory::Host, queue_frames, clock()).expect("it is built in");
        let text_of_raw = "stdin://?format=i420&width=35&height=21&fps=1000";
        let SourceKind::Stdin(video) = *uri(text_of_raw).kind() else { panic!("it is raw video") };
        let zeros = Box::new(std::io::repeat(0));
        let mut raw = RawSource::from_reader(zeros, video, "zeros", clock()).with_ring(queue_frames);
        for (text, source) in [(text, &mut *test), (text_of_raw, &mut raw as &mut dyn Source)] {
            let (needs, held) = (source_needs(&uri(text), queue_frames), held(source));
            assert_eq!((held.len(), source.frames_max()), (needs.slots, Some(needs.slots)), "{text}");
            assert!(held.iter().all(|frame| frame.desc.bytes_needed() as u64 == needs.frame_bytes));
        }
    }
}

#[test]
fn what_is_not_there_is_told() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let empty = folder.path().to_str().expect("UTF-8");
    let slash = format!("{empty}/");
    for text in [
        "/nowhere/clip.mp4",
        "file:///nowhere/%03i.png",
        empty,
        &slash,
        "/nowhere/",
        "/dev/null",
        "/dev/null/",
    ] {
        let uri = SourceUri::parse(text).expect("it is valid");
        let fault = check_source(&uri).expect_err("it is no file");
        assert_eq!(fault.code.id, codes::FILE_MISSING.id, "{fault}");
    }
}

#[test]
fn the_files_of_a_source_are_those_that_are_there() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["i_1.png", "i_2.png", "i_4.png", "clip.mp4"] {
        std::fs::write(folder.path().join(name), "any").expect("written");
    }
    let path = folder.path().to_str().expect("UTF-8");
    let images = ["i_1.png", "i_2.png", "i_4.png"];
    for (text, expected) in [
        (format!("{path}/"), &images[..]),
        // The file system alone knows that it is a folder.
        (path.to_owned(), &images),
        (format!("{path}/i_%i.png"), &images[..2]),
        (format!("{path}/i_4.png"), &images[2..]),
        (format!("{path}/clip.mp4?loop=1"), &["clip.mp4"]),
        (format!("{path}/nothing/"), &[]),
        ("test://ball".to_owned(), &[]),
    ] {
        let files = source_files(&SourceUri::parse(&text).expect("it is valid"));
        let expected: Vec<PathBuf> = expected.iter().map(|name| folder.path().join(name)).collect();
        assert_eq!(files, expected, "{text}");
    }
}

#[test]
fn no_fault_shows_a_password() {
    for text in [
        "u:hunter2@h:554/x",
        "u:hunter2@h:554/x/",
        "u:hunter2@h:554/x%i.png",
        "rtsp://u:hunter2@h/x",
        "http://u:hunter2@h/x",
    ] {
        let uri = SourceUri::parse(text).expect("it may be a path");
        let seen = format!("{uri} {uri:?} {:?}", check_source(&uri));
        assert!(!seen.contains("hunter2"), "{seen}");
    }
}

#[test]
#[cfg(not(feature = "gstreamer"))]
fn streams_need_gstreamer() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("clip.mp4");
    std::fs::write(&path, "any").expect("writable");
    for text in [path.to_str().expect("UTF-8"), "rtsp://camera/x", "http://camera/x"] {
        let uri = SourceUri::parse(text).expect("it is valid");
        let opened = open(&uri, "test", FrameMemory::Host, 4, Arc::new(MonotonicClock::default()));
        let fault = opened.map(|_| ()).expect_err("there is no GStreamer");
        assert_eq!(fault.code.id, codes::FEATURE_MISSING.id);
    }
}

#[test]
fn a_scheme_of_no_source_is_refused_in_the_words_of_the_reader() {
    let other = [Scheme { name: "nobody", is_live: true }];
    let uri = SourceUri::parse_with("nobody://u:secret@host/x", &other).expect("it was named");
    let read = SourceUri::parse("nobody://u:secret@host/x").expect_err("it is no scheme");
    assert_eq!(check_source(&uri).map_err(|why| why.to_string()), Err(read.to_string()));
    let opened = open(&uri, "test", FrameMemory::Host, 4, Arc::new(MonotonicClock::default()));
    assert_eq!(opened.map(|_| ()).map_err(|why| why.to_string()), Err(read.to_string()));
    assert_eq!((source_files(&uri), source_needs(&uri, 4)), (Vec::new(), SourceNeeds::default()));
}
