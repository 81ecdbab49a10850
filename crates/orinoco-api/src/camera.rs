//! Report of `orinoco cameras`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Schema name of [`CameraList`].
pub const CAMERAS_SCHEMA: &str = "orinoco.cameras/1";

/// The V4L2 cameras of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CameraList {
    /// Name and version of this contract.
    #[schemars(extend("const" = CAMERAS_SCHEMA))]
    pub schema: String,
    /// Cameras, ordered by device file.
    pub cameras: Vec<CameraJson>,
}

/// One camera. If it cannot be used, its strings and lists are empty, except `source` and `unusable`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CameraJson {
    /// URI for `--source`, such as `v4l2:///dev/video0`.
    pub source: String,
    /// Reason why the camera cannot be used; absent where it can.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unusable: Option<String>,
    /// Name of the camera.
    pub card: String,
    /// Name of its kernel driver.
    pub driver: String,
    /// Bus address of the camera, as the driver reports it.
    pub bus: String,
    /// Whether frames are captured through V4L2's multi-planar interface.
    pub multiplanar: bool,
    /// Pixel formats that the camera offers.
    pub formats: Vec<CameraFormatJson>,
    /// Controls that the camera offers.
    pub controls: Vec<CameraControlJson>,
}

/// Pixel format that a camera offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CameraFormatJson {
    /// V4L2's four-character code of the format, such as `YUYV`.
    pub fourcc: String,
    /// Whether Orinoco can read frames of this format.
    pub understood: bool,
    /// Frame sizes in this format.
    pub sizes: Vec<CameraSizeJson>,
}

/// Frame size that a camera offers in one format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CameraSizeJson {
    /// Width and height in pixels, such as `1280x720`, or a range of sizes.
    pub size: String,
    /// Frame rates in frames per second, such as `30`, or a range of rates.
    pub fps: Vec<String>,
}

/// Control that a camera offers, in the driver's units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CameraControlJson {
    /// Name by which a source URI sets the control.
    pub name: String,
    /// Smallest value.
    pub min: i64,
    /// Largest value.
    pub max: i64,
    /// Distance between two values that the driver accepts.
    pub step: u64,
    /// Value that the driver uses when nothing sets the control.
    pub default: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_camera_that_cannot_be_used_has_the_reason_and_nothing_else() {
        let check = |camera: CameraJson, expected: &str| {
            assert_eq!(serde_json::to_string(&camera).expect("serialises"), expected);
        };
        let (source, unusable) = ("v4l2:///dev/video0".to_owned(), Some("busy".to_owned()));
        check(
            CameraJson { source: source.clone(), unusable, ..CameraJson::default() },
            r#"{"source":"v4l2:///dev/video0","unusable":"busy","card":"","driver":"","bus":"","multiplanar":false,"formats":[],"controls":[]}"#,
        );
        let sizes = vec![CameraSizeJson { size: "640x360".to_owned(), fps: vec!["30".to_owned()] }];
        let name = "gain".to_owned();
        check(
            CameraJson {
                source,
                card: "c".to_owned(),
                driver: "d".to_owned(),
                bus: "b".to_owned(),
                formats: vec![CameraFormatJson { fourcc: "YUYV".to_owned(), understood: true, sizes }],
                controls: vec![CameraControlJson { name, min: 0, max: 9, step: 1, default: 4 }],
                ..CameraJson::default()
            },
            r#"{"source":"v4l2:///dev/video0","card":"c","driver":"d","bus":"b","multiplanar":false,"formats":[{"fourcc":"YUYV","understood":true,"sizes":[{"size":"640x360","fps":["30"]}]}],"controls":[{"name":"gain","min":0,"max":9,"step":1,"default":4}]}"#,
        );
    }
}
