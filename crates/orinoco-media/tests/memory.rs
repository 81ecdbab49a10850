//! A file that repeats for ever must not grow. Alone in its program, since it watches the process's memory.
#![cfg(feature = "gstreamer")]

mod common;

use std::time::Duration;

use common::{data, gst_source, note, resident};
use orinoco_pipeline::{Poll, Source};

/// Frames read in all, and after which memory counts.
const FRAMES: u32 = 10_000;
const WARM_FRAMES: u32 = 1_000;
/// What a warm source may still grow by. One frame leaked in each pass would be 12 MiB.
const GROWTH_MAX: u64 = 4 * 1024 * 1024;

#[test]
fn ten_thousand_frames_take_no_more_memory_than_a_thousand() {
    let Some(data) = data() else { return };
    let mut source = gst_source(&format!("{}?loop=1", data.join("video/car-detection.mp4").display()));
    source.open().expect("it opens");
    let (mut frames, mut warm, mut last) = (0, 0, 0);
    let begin = std::time::Instant::now();
    while frames < FRAMES {
        if let Poll::Frame(frame) = source.next(Duration::from_millis(100)).expect("it is whole") {
            assert!(frames == 0 || frame.desc.pts.0 > last);
            last = frame.desc.pts.0;
            frames += 1;
            if frames == WARM_FRAMES {
                warm = resident();
            }
        }
    }
    let end = resident();
    let rate = f64::from(FRAMES) / begin.elapsed().as_secs_f64();
    let (warm_kb, end_kb) = (warm / 1024, end / 1024);
    note(&format!(
        "resident after {WARM_FRAMES} frames {warm_kb} KiB, after {FRAMES} {end_kb} KiB; {rate:.0} fps"
    ));
    source.close();
    assert_eq!(source.frames_lent(), 0);
    assert!(end < warm + GROWTH_MAX, "{warm_kb} KiB grew to {end_kb} KiB");
}
