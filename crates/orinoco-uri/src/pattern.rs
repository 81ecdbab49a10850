use std::ops::RangeInclusive;

use crate::fault::Fault;
use crate::settings::{Pace, read_number, read_pace, settings, unknown_setting};

/// Width and height of the test pattern, in pixels: the ball must fit, and a frame must not be larger than a board can
/// hold.
const TEST_SIDE: RangeInclusive<u32> = 16..=8192;

/// Frame rates of the test pattern, in frames per second.
const TEST_FPS: RangeInclusive<u32> = 1..=1000;

/// Test pattern: a ball that moves over a plain background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestPattern {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Frame rate, in frames per second.
    pub fps: u32,
    /// Number of frames; `None` never ends.
    pub frames: Option<u64>,
    /// Pace of delivery.
    pub pace: Pace,
}

/// Parses the text after `test://`.
pub(crate) fn read_test(rest: &str) -> Result<TestPattern, Fault> {
    let (name, query) = rest.split_once('?').unwrap_or((rest, ""));
    if name != "ball" {
        return Err(Fault::new(format!("there is no test pattern `{name}`"), "use test://ball"));
    }
    let mut pattern = TestPattern { width: 640, height: 480, fps: 30, frames: None, pace: Pace::Free };
    for (key, value) in settings(query) {
        match key {
            "width" => pattern.width = read_number(key, value, TEST_SIDE)?,
            "height" => pattern.height = read_number(key, value, TEST_SIDE)?,
            "fps" => pattern.fps = read_number(key, value, TEST_FPS)?,
            "frames" => pattern.frames = Some(read_number(key, value, 1..=u32::MAX)?.into()),
            "pace" => pattern.pace = read_pace(value)?,
            _ => return Err(unknown_setting(key, "a test pattern", "width, height, fps, frames and pace")),
        }
    }
    Ok(pattern)
}
