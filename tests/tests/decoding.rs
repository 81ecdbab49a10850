//! Decoded frames, compared bit for bit with those of another decoder.
#![allow(clippy::print_stdout, reason = "tests say what they skip and what they compared")]

use std::fs;

use orinoco_tests::{orinoco, shared};
use serde_json::Value;

fn check(video: &str) {
    let (Some(file), Some(refs)) =
        (shared(&format!("video/{video}")), shared(&format!("refs/video/{video}.json")))
    else {
        return;
    };
    let reference: Value = serde_json::from_str(&fs::read_to_string(refs).expect("readable")).expect("JSON");
    let wanted = reference["frame_pts_md5_of_tight_yuv420p"].as_array().expect("frames");
    let base = reference["time_base"].as_str().expect("a time base");
    let ticks_per_second: f64 = base.strip_prefix("1/").expect("1/n").parse().expect("a number");

    let output = orinoco(&["run", "--source", &file, "--sink", "framemd5"]).output().expect("orinoco starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let found: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(',').map(str::trim).collect())
        .collect();
    assert_eq!(Some(found.len() as u64), reference["frames"].as_u64(), "frames of {video}");
    assert!(!wanted.is_empty());
    for wanted in wanted {
        let line = &found[wanted[0].as_u64().expect("a frame number") as usize];
        assert_eq!(line[5], wanted[2].as_str().expect("an MD5"), "frame {} of {video}", wanted[0]);
        let pts_ns: f64 = line[2].parse().expect("a time");
        let ticks = pts_ns * ticks_per_second / 1e9;
        let exact = wanted[1].as_f64().expect("a tick");
        assert!((ticks - exact).abs() <= 1.0, "frame {} of {video}: {ticks} ticks for {exact}", wanted[0]);
    }
    println!(
        "{video}: {} frames, {} compared and equal, PTS within one tick of {base} s",
        found.len(),
        wanted.len()
    );
}

#[test]
fn baseline_h264_is_decoded_exactly() {
    check("car-detection.mp4");
}

#[test]
fn main_profile_h264_with_b_frames_is_decoded_exactly() {
    check("one-by-one-person-detection.mp4");
}
