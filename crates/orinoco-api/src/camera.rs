//! What `orinoco cameras` prints.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema name of [`CameraList`].
pub const CAMERAS_SCHEMA: &str = "orinoco.cameras/1";

/// The V4L2 cameras of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CameraList {
    /// Name and version of this contract.
    #[schemars(extend("const" = CAMERAS_SCHEMA))]
    pub schema: String,
    /// Cameras, by their device file.
    pub cameras: Vec<CameraJson>,
}

/// One camera. Where it cannot be used, texts are empty and so are its lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CameraJson {
    /// What `--source` takes, such as `v4l2:///dev/video0`.
    pub source: String,
    /// Why it cannot be used; absent where it can.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unusable: Option<String>,
    /// The camera's name.
    pub card: String,
    /// The kernel's driver.
    pub driver: String,
    /// Where it is connected, as the driver writes it.
    pub bus: String,
    /// Whether it is captured through V4L2's multi-planar interface.
    pub multiplanar: bool,
    /// Formats that it offers.
    pub formats: Vec<CameraFormatJson>,
    /// Settings that it offers.
    pub controls: Vec<CameraControlJson>,
}

/// A format that a camera offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CameraFormatJson {
    /// V4L2's name of four letters, such as `YUYV`.
    pub fourcc: String,
    /// Whether frames of this format can be read.
    pub understood: bool,
    /// Sizes in this format.
    pub sizes: Vec<CameraSizeJson>,
}

/// A size that a camera offers in one format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CameraSizeJson {
    /// Width and height in pixels, such as `1280x720`, or their range.
    pub size: String,
    /// Rates in frames a second, such as `30`, or their range.
    pub fps: Vec<String>,
}

/// A setting that a camera offers, in the driver's own units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CameraControlJson {
    /// The name by which a source sets it.
    pub name: String,
    /// Smallest value.
    pub min: i64,
    /// Largest value.
    pub max: i64,
    /// Distance between values.
    pub step: u64,
    /// Value when nothing sets it.
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
