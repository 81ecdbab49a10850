//! Settings of a URI: `key=value` pairs after a `?`.

use std::ops::RangeInclusive;

use crate::fault::Fault;

/// Width and height of frames, in pixels: of raw video, and of a requested camera mode.
pub(crate) const SIDE: RangeInclusive<u32> = 1..=8192;

/// Pace of a source that is not live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// Delivers as fast as the pipeline accepts frames.
    #[default]
    Free,
    /// Delivers in real time: each frame when its presentation time has come.
    Pts,
}

/// Settings with which a file is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Playback {
    /// Whether the file starts again at its end, without limit.
    pub(crate) repeat: bool,
    pub(crate) pace: Pace,
}

/// Returns the `key=value` pairs of a query; a key without a value has an empty one.
pub(crate) fn settings(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

pub(crate) fn unknown_setting(key: &str, of: &str, known: &str) -> Fault {
    Fault::new(format!("`{key}` is not a setting of {of}"), format!("supported settings: {known}"))
}

pub(crate) fn read_switch(key: &str, value: &str) -> Result<bool, Fault> {
    match value {
        "1" => Ok(true),
        "0" => Ok(false),
        _ => Err(Fault::new(
            format!("`{key}={value}` is neither on nor off"),
            format!("write {key}=1 or {key}=0"),
        )),
    }
}

pub(crate) fn read_pace(value: &str) -> Result<Pace, Fault> {
    match value {
        "pts" => Ok(Pace::Pts),
        "none" => Ok(Pace::Free),
        _ => Err(Fault::new(format!("`pace={value}` is not a pace"), "write pace=pts or pace=none")),
    }
}

pub(crate) fn read_number(key: &str, value: &str, range: RangeInclusive<u32>) -> Result<u32, Fault> {
    let number = value.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| {
        let next = format!("write a whole number from {} to {}", range.start(), range.end());
        Fault::new(format!("`{key}={value}` is not valid"), next)
    })
}
