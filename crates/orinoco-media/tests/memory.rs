//! Tests that sources that repeat without end do not grow. It has its own program, because it measures the process's
//! memory.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
#![cfg(feature = "gstreamer")]

mod common;

use std::fs;
use std::path::Path;
use std::time::Duration;

use common::{data, launch, note, resident, source};
use image::{Rgb, RgbImage};
use orinoco_pipeline::Poll;

/// Maximum growth of a warm source, in bytes. One frame leaked in each pass would be 12 MiB.
const GROWTH_MAX: u64 = 4 * 1024 * 1024;

/// Reads `frames` frames of a source that repeats; memory counts after the first `warm_frames` of them.
fn check(uri: &str, frames: u32, warm_frames: u32) {
    let mut source = source(uri).unwrap_or_else(|fault| panic!("{fault}"));
    source.open().expect("it opens");
    let (mut seen, mut warm, mut last, mut interval) = (0, 0, 0, 0);
    let begin = std::time::Instant::now();
    while seen < frames {
        if let Poll::Frame(frame) = source.next(Duration::from_millis(100)).expect("it is whole") {
            // A pass that loses a frame, or gives one twice, breaks the interval.
            let gap = frame.desc.pts.0 - last;
            interval = if seen == 1 { gap } else { interval };
            assert!(seen < 2 || gap.abs_diff(interval) <= 1_000_000, "{uri}, frame {seen}: {gap} ns");
            last = frame.desc.pts.0;
            seen += 1;
            if seen == warm_frames {
                warm = resident();
            }
        }
    }
    let end = resident();
    let rate = f64::from(frames) / begin.elapsed().as_secs_f64();
    let (warm_kb, end_kb) = (warm / 1024, end / 1024);
    let name = Path::new(uri).file_name().unwrap_or_default().display();
    note(&format!(
        "{name}: resident after {warm_frames} frames {warm_kb} KiB, after {frames} {end_kb} KiB; {rate:.0} fps"
    ));
    source.close();
    assert!(end < warm + GROWTH_MAX, "{uri}: {warm_kb} KiB grew to {end_kb} KiB");
}

#[test]
fn sources_that_repeat_take_no_more_memory_than_at_first() {
    if let Some(data) = data() {
        check(&format!("{}?loop=1", data.join("video/car-detection.mp4").display()), 4_000, 1_000);
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    // A frame of each file is 115 kB.
    for (name, frames, how) in [
        ("clip.ts", 700, "x264enc speed-preset=ultrafast ! mpegtsmux"),
        ("clip.webm", 50, "vp8enc deadline=1 cpu-used=8 ! webmmux"),
        ("clip.avi", 50, "jpegenc ! avimux"),
    ] {
        launch(&format!(
            "videotestsrc num-buffers={frames} ! video/x-raw,format=I420,width=320,height=240,framerate=25/1 ! {how} ! \
             filesink location={}",
            path(name).display()
        ));
        check(&format!("{}?loop=1", path(name).display()), 3_000, 1_000);
    }
    fs::create_dir(path("images")).expect("writable");
    for number in 0..12 {
        let image = RgbImage::from_pixel(200 + number, 160, Rgb([7, 8, 9]));
        image.save(path("images").join(format!("{number}.png"))).expect("writable");
    }
    check(&format!("{}/?loop=1", path("images").display()), 4_000, 1_000);
}
