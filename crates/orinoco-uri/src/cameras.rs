use std::ops::RangeInclusive;
use std::path::PathBuf;

use crate::fault::Fault;
use crate::rate::{Rate, read_rate};
use crate::settings::{SIDE, read_number, settings, unknown_setting};

/// Maximum number of CSI sensors of a Jetson: six connectors with two each.
const CSI_SENSORS_MAX: u32 = 16;

/// Capture buffers of a camera: the driver fills one while another is in use; V4L2 allows 32.
const CAMERA_BUFFERS: RangeInclusive<u32> = 2..=32;

/// Video4Linux2 device with its settings; the driver keeps its own value for those that are `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct V4l2Address {
    /// Device node: `/dev/video0`, or a persistent name below `/dev/v4l`.
    pub path: PathBuf,
    /// Four-character code of the pixel format: `NV12`, `YUYV`, `MJPG`.
    pub format: Option<[u8; 4]>,
    /// Width in pixels.
    pub width: Option<u32>,
    /// Height in pixels.
    pub height: Option<u32>,
    /// Frame rate.
    pub rate: Option<Rate>,
    /// Number of buffers that the driver fills in turn.
    pub buffers: u32,
    /// Controls by name with their values.
    pub controls: Vec<(String, i32)>,
}

impl Default for V4l2Address {
    fn default() -> Self {
        /// A ring, a batch and the sinks hold 6 frames; two more stay with the driver.
        const BUFFERS: u32 = 8;
        Self {
            path: PathBuf::new(),
            format: None,
            width: None,
            height: None,
            rate: None,
            buffers: BUFFERS,
            controls: Vec::new(),
        }
    }
}

/// CSI camera, read through NVIDIA's image signal processor, with its settings; the sensor decides those that are
/// `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CsiAddress {
    /// Sensor number, from 0.
    pub sensor: u32,
    /// Width in pixels.
    pub width: Option<u32>,
    /// Height in pixels.
    pub height: Option<u32>,
    /// Frame rate.
    pub rate: Option<Rate>,
}

/// Parses the text after `v4l2://`.
pub(crate) fn read_v4l2(rest: &str) -> Result<V4l2Address, Fault> {
    const KNOWN: &str = "format, width, height, fps, buffers and control.NAME";
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if !path.starts_with('/') {
        let next = "write v4l2:///dev/video0; `orinoco cameras` lists what there is";
        return Err(Fault::new("it does not name a device node", next));
    }
    let mut address = V4l2Address { path: PathBuf::from(path), ..V4l2Address::default() };
    for (key, value) in settings(query) {
        match key {
            "format" => address.format = Some(read_fourcc(value)?),
            "width" => address.width = Some(read_number(key, value, SIDE)?),
            "height" => address.height = Some(read_number(key, value, SIDE)?),
            "fps" => address.rate = Some(read_rate(value)?),
            "buffers" => address.buffers = read_number(key, value, CAMERA_BUFFERS)?,
            _ => match key.strip_prefix("control.") {
                Some(name) => {
                    let next = "write a whole number, as control.brightness=100";
                    let fault = || Fault::new(format!("`{key}={value}` is not valid"), next);
                    address.controls.push((name.to_owned(), value.parse().map_err(|_| fault())?));
                }
                None => return Err(unknown_setting(key, "a camera", KNOWN)),
            },
        }
    }
    Ok(address)
}

/// Parses the text after `csi://`.
pub(crate) fn read_csi(rest: &str) -> Result<CsiAddress, Fault> {
    let (sensor, query) = rest.split_once('?').unwrap_or((rest, ""));
    let sensor = sensor.parse().ok().filter(|sensor| *sensor < CSI_SENSORS_MAX);
    let Some(sensor) = sensor else {
        return Err(Fault::new("it has no sensor number", "write csi://0 for the first camera"));
    };
    let mut address = CsiAddress { sensor, ..CsiAddress::default() };
    for (key, value) in settings(query) {
        match key {
            "width" => address.width = Some(read_number(key, value, SIDE)?),
            "height" => address.height = Some(read_number(key, value, SIDE)?),
            "fps" => address.rate = Some(read_rate(value)?),
            _ => return Err(unknown_setting(key, "a CSI camera", "width, height and fps")),
        }
    }
    Ok(address)
}

/// Parses V4L2's four-character code; shorter names are filled with spaces.
fn read_fourcc(value: &str) -> Result<[u8; 4], Fault> {
    let fits = (1..=4).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_graphic());
    let next = "write the four characters that `orinoco cameras` shows, as format=NV12";
    let mut fourcc = [b' '; 4];
    match fits {
        true => fourcc[..value.len()].copy_from_slice(value.as_bytes()),
        false => return Err(Fault::new(format!("`format={value}` is not a format of V4L2"), next)),
    }
    Ok(fourcc)
}
