//! Lists the cameras of this machine, with their formats and controls.

use std::io;
use std::path::{Path, PathBuf};

use super::formats::{name, payload};
use super::kernel::{Device, FourCc, Sizes};

/// Capture device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Camera {
    /// Path of the device node.
    pub path: PathBuf,
    /// Name of the camera.
    pub card: String,
    /// Name of the driver.
    pub driver: String,
    /// Bus address, as the driver reports it.
    pub bus: String,
    /// Whether it uses the multi-planar interface.
    pub multiplanar: bool,
    /// Pixel formats.
    pub formats: Vec<CameraFormat>,
    /// Controls.
    pub controls: Vec<CameraControl>,
}

/// Pixel format of a camera.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CameraFormat {
    /// Four-character code, as V4L2 writes it.
    pub fourcc: String,
    /// Whether Orinoco can read this format.
    pub understood: bool,
    /// Frame sizes of this format.
    pub sizes: Vec<CameraSize>,
}

/// Frame size, or a range of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CameraSize {
    /// Text such as `640x360`, or `2x1 to 8192x8192`.
    pub size: String,
    /// Frame rates in frames per second, such as `30` or `30000/1001`.
    pub rates: Vec<String>,
}

/// Control with a numeric value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CameraControl {
    /// Name in a source URI: `brightness` for `control.brightness=`.
    pub name: String,
    /// Minimum and maximum value.
    pub range: (i64, i64),
    /// Distance between two values.
    pub step: u64,
    /// Value after power-on.
    pub default: i64,
}

/// Lists every capture device by number. A device that this user cannot open has the reason instead.
pub fn cameras() -> Vec<(PathBuf, Result<Camera, String>)> {
    let number = |path: &Path| path.to_string_lossy().strip_prefix("/dev/video")?.parse::<u32>().ok();
    let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = entries.filter(|path| number(path).is_some()).collect();
    paths.sort_by_key(|path| number(path));
    let described = paths.into_iter().map(|path| {
        let camera = Device::open(&path).and_then(|device| describe(&path, &device));
        (path, camera.map_err(|error| error.to_string()))
    });
    described.collect()
}

fn describe(path: &Path, device: &Device) -> io::Result<Camera> {
    let info = device.info();
    let formats = device.formats()?.into_iter().map(|fourcc| describe_format(device, fourcc)).collect();
    // A control that cannot be queried does not make the camera useless: those before it are listed.
    let (controls, _) = device.controls();
    let controls = controls.into_iter().map(|control| CameraControl {
        name: control_name(&control.name),
        range: control.range,
        step: control.step,
        default: control.default,
    });
    Ok(Camera {
        path: path.to_owned(),
        card: info.card.clone(),
        driver: info.driver.clone(),
        bus: info.bus.clone(),
        multiplanar: device.is_multiplanar(),
        formats,
        controls: controls.collect(),
    })
}

fn describe_format(device: &Device, fourcc: FourCc) -> CameraFormat {
    let rates = |size| device.rates(fourcc, size).into_iter().map(|rate| rate.to_string()).collect();
    let sizes = match device.sizes(fourcc) {
        Sizes::Listed(sizes) => {
            sizes.into_iter().map(|size| CameraSize { size: size_text(size), rates: rates(size) }).collect()
        }
        Sizes::Range(least, most, _) => {
            vec![CameraSize {
                size: format!("{} to {}", size_text(least), size_text(most)),
                rates: rates(most),
            }]
        }
    };
    CameraFormat { fourcc: name(fourcc), understood: payload(fourcc).is_some(), sizes }
}

pub(super) fn size_text((width, height): (u32, u32)) -> String {
    format!("{width}x{height}")
}

/// Converts a control's name to the form of `v4l2-ctl`: lower-case letters and digits, and a `_` for anything else.
pub(super) fn control_name(text: &str) -> String {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_v4l2_ctl() {
        assert_eq!(control_name("Exposure, Auto Priority"), "exposure_auto_priority");
    }
}
