//! `orinoco cameras`.

use orinoco_config::Faults;
use orinoco_core::Exit;

#[cfg(feature = "v4l2")]
pub(crate) use with_v4l2::run;

#[cfg(not(feature = "v4l2"))]
pub(crate) fn run(_: bool) -> Result<Exit, Faults> {
    use orinoco_core::{Diagnosis, codes};
    let (cause, next) = ("this binary was built without V4L2", "build with `--features v4l2`");
    Err(Diagnosis::new(&codes::FEATURE_MISSING, "orinoco cameras", cause, next).into())
}

#[cfg(feature = "v4l2")]
mod with_v4l2 {
    use super::{Exit, Faults};
    use std::path::PathBuf;

    use orinoco_api::{
        CAMERAS_SCHEMA, CameraControlJson, CameraFormatJson, CameraJson, CameraList, CameraSizeJson,
    };
    use orinoco_media::{Camera, CameraControl, CameraFormat, CameraSize, cameras};

    use crate::output;

    pub(crate) fn run(json: bool) -> Result<Exit, Faults> {
        let found = cameras();
        if json {
            let cameras = found.into_iter().map(camera_json).collect();
            output::print_json(&CameraList { schema: CAMERAS_SCHEMA.to_owned(), cameras });
        } else if found.is_empty() {
            output::print("no camera: there is no /dev/video*");
        } else {
            let texts: Vec<String> = found.iter().map(|(path, camera)| text(path, camera)).collect();
            output::print(&texts.join("\n\n"));
        }
        Ok(Exit::Done)
    }

    fn text(path: &std::path::Path, camera: &Result<Camera, String>) -> String {
        let camera = match camera {
            Ok(camera) => camera,
            Err(why) => return format!("v4l2://{}  {why}", path.display()),
        };
        let heading =
            format!("v4l2://{}  {} ({}, {})", path.display(), camera.card, camera.driver, camera.bus);
        // Formats that cannot be used are many on some drivers, and of no use here.
        let understood = camera.formats.iter().filter(|format| format.understood);
        let rows: Vec<Vec<String>> = understood
            .flat_map(|format| {
                format
                    .sizes
                    .iter()
                    .map(|size| vec![format.fourcc.clone(), size.size.clone(), size.rates.join(" ")])
            })
            .collect();
        if rows.is_empty() {
            return format!("{heading}\n  none of its pixel formats is supported");
        }
        let mut text =
            format!("{heading}\n{}", output::table(&["format", "size", "frames per second"], 3, rows));
        if !camera.controls.is_empty() {
            let rows = camera.controls.iter().map(control_row).collect();
            let table = output::table(&["control", "from", "to", "default"], 1, rows);
            text.push_str(&format!("\n\n{table}"));
        }
        text
    }

    fn control_row(control: &CameraControl) -> Vec<String> {
        let (least, most) = control.range;
        vec![control.name.clone(), least.to_string(), most.to_string(), control.default.to_string()]
    }

    fn camera_json((path, camera): (PathBuf, Result<Camera, String>)) -> CameraJson {
        let source = format!("v4l2://{}", path.display());
        let camera = match camera {
            Ok(camera) => camera,
            Err(why) => return CameraJson { source, unusable: Some(why), ..CameraJson::default() },
        };
        let size = |CameraSize { size, rates }| CameraSizeJson { size, fps: rates };
        let format = |CameraFormat { fourcc, understood, sizes }| CameraFormatJson {
            fourcc,
            understood,
            sizes: sizes.into_iter().map(size).collect(),
        };
        let control = |CameraControl { name, range: (min, max), step, default }| CameraControlJson {
            name,
            min,
            max,
            step,
            default,
        };
        CameraJson {
            source,
            unusable: None,
            card: camera.card,
            driver: camera.driver,
            bus: camera.bus,
            multiplanar: camera.multiplanar,
            formats: camera.formats.into_iter().map(format).collect(),
            controls: camera.controls.into_iter().map(control).collect(),
        }
    }
}
