//! The cameras that there are, and what each offers.

use std::io;
use std::path::{Path, PathBuf};

use super::formats::{name, payload};
use super::kernel::{Device, FourCc, Sizes};

/// A capture device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Camera {
    /// Its device node.
    pub path: PathBuf,
    /// Its name.
    pub card: String,
    /// Its driver.
    pub driver: String,
    /// Where it is plugged in.
    pub bus: String,
    /// Whether it uses the multi-planar interface.
    pub multiplanar: bool,
    /// Its formats.
    pub formats: Vec<CameraFormat>,
    /// Its settings.
    pub controls: Vec<CameraControl>,
}

/// A pixel format of a camera.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CameraFormat {
    /// Its four characters, as V4L2 writes them.
    pub fourcc: String,
    /// Whether a stream can be made of it.
    pub understood: bool,
    /// The sizes that it has.
    pub sizes: Vec<CameraSize>,
}

/// A size, or a range of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CameraSize {
    /// As `640x360`, or `2x1 to 8192x8192`.
    pub size: String,
    /// Frames a second, as `30` or `30000/1001`.
    pub rates: Vec<String>,
}

/// A setting that is one number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CameraControl {
    /// Its name as a source URI writes it: `brightness` for `control.brightness=`.
    pub name: String,
    /// Least and greatest value.
    pub range: (i64, i64),
    /// From one value to the next.
    pub step: u64,
    /// Its value after power-on.
    pub default: i64,
}

/// Every capture device that this user may open, by number. Others are given with the reason.
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
    // One control that cannot be asked for does not make the camera useless: those before it are shown.
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

/// A control's name as `v4l2-ctl` writes it: letters and digits in lower case, anything else one `_`.
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
