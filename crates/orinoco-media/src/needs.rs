//! Memory that a source allocates for its frames, as far as its URI determines it. Used to plan a board's memory.

use orinoco_uri::{RawLayout, SourceKind, SourceUri};

use crate::slots::{SourceNeeds, raw_slots, slots};
use crate::sources::pattern;

/// Returns the memory that the source of `uri` allocates if its ring holds `queue_frames`. Nothing is opened or asked
/// for it: memory whose size only a file, a decoder or a device determines is named in the field `uncounted`.
pub fn source_needs(uri: &SourceUri, queue_frames: usize) -> SourceNeeds {
    match uri.kind() {
        SourceKind::Test(pattern) => {
            SourceNeeds::of_slots(slots(queue_frames), pattern::desc(pattern).bytes_needed())
        }
        SourceKind::Stdin(video) => match video.layout {
            RawLayout::Frames(frames) => {
                let bytes = frames.desc().bytes_needed();
                SourceNeeds::of_slots(raw_slots(queue_frames, bytes), bytes)
            }
            RawLayout::Y4m => SourceNeeds::uncounted("frames of the size in the stream's header"),
        },
        #[cfg(feature = "v4l2")]
        SourceKind::Camera(address) => crate::v4l2::camera_needs(address, queue_frames),
        #[cfg(not(feature = "v4l2"))]
        SourceKind::Camera(_) => SourceNeeds::default(),
        SourceKind::Images { .. } => SourceNeeds::uncounted("decoded images"),
        SourceKind::Video { .. }
        | SourceKind::Csi(_)
        | SourceKind::Rtsp(_)
        | SourceKind::HttpCamera(_)
        | SourceKind::HttpVideo { .. } => SourceNeeds::uncounted("decoder buffers"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FrameMemory, RawSource, open};
    use expect_test::{Expect, expect};
    use orinoco_pipeline::{Frame, MonotonicClock, Poll, Source};
    use std::sync::Arc;
    use std::time::Duration;

    fn uri(text: &str) -> SourceUri {
        SourceUri::parse(text).expect("it is valid")
    }

    fn check(text: &str, queue_frames: usize, expected: Expect) {
        let SourceNeeds { slots, extra_slots, frame_bytes, driver_bytes, uncounted } =
            source_needs(&uri(text), queue_frames);
        let uncounted = uncounted.join(", ");
        expected
            .assert_eq(&format!("{slots} ({extra_slots}) x {frame_bytes} + {driver_bytes} [{uncounted}]"));
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
            expect!["16 (12) x 6220800 + 0 [driver buffers of compressed frames]"],
        );
    }

    /// Returns every frame that a source gives while none is dropped.
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
}
