//! `orinoco doctor`: what this machine has for Orinoco, and why it lacks the rest.

use orinoco_api::{DOCTOR_SCHEMA, DoctorReport, MachinePart};
use orinoco_config::Faults;
use orinoco_core::Exit;
use orinoco_infer::{Engine, EngineContext, engines};

use crate::output;

pub(crate) fn run(json: bool) -> Result<Exit, Faults> {
    let mut parts = engine_parts();
    parts.extend(gpu_part());
    parts.extend(video_parts());
    parts.extend(camera_parts());
    if json {
        output::print_json(&DoctorReport { schema: DOCTOR_SCHEMA.to_owned(), parts });
        return Ok(Exit::Done);
    }
    let row = |part: &MachinePart| {
        let state = if part.ok { "ok" } else { "no" };
        vec![part.kind.clone(), part.name.clone(), state.to_owned(), part.says.clone()]
    };
    let table = output::table(
        &["part", "name", "here", "details, or the reason"],
        4,
        parts.iter().map(row).collect(),
    );
    let next = "\n`orinoco models check NAME` runs a model once on each engine.";
    output::print(&format!("{table}{next}"));
    Ok(Exit::Done)
}

fn engine_parts() -> Vec<MachinePart> {
    let context = EngineContext::default();
    let part = |engine: &dyn Engine| {
        let found = engine.check(&context);
        let (ok, says) = match found {
            Ok(info) => (true, info.version),
            Err(why) => (false, why),
        };
        MachinePart { kind: "engine".to_owned(), name: engine.name().to_owned(), ok, says }
    };
    engines().into_iter().map(part).collect()
}

#[cfg(feature = "cuda")]
fn gpu_part() -> Option<MachinePart> {
    let (ok, name, says) = match orinoco_cuda::Device::open(0) {
        Ok(device) => (
            true,
            device.info().name.clone(),
            format!(
                "{}, driver for CUDA {}.{}",
                device.info().sm,
                device.info().driver.0,
                device.info().driver.1
            ),
        ),
        Err(why) => (false, "cuda".to_owned(), why.to_string()),
    };
    Some(MachinePart { kind: "gpu".to_owned(), name, ok, says })
}

#[cfg(not(feature = "cuda"))]
fn gpu_part() -> Option<MachinePart> {
    None
}

#[cfg(feature = "gstreamer")]
fn video_parts() -> Vec<MachinePart> {
    match orinoco_media::video_hardware() {
        Ok(found) => found
            .iter()
            .map(|part| MachinePart {
                kind: "video".to_owned(),
                name: part.element.to_owned(),
                ok: part.refused.is_none(),
                says: part.refused.clone().unwrap_or_else(|| part.purpose.to_owned()),
            })
            .collect(),
        Err(fault) => {
            vec![MachinePart {
                kind: "video".to_owned(),
                name: "gstreamer".to_owned(),
                ok: false,
                says: fault.to_string(),
            }]
        }
    }
}

#[cfg(not(feature = "gstreamer"))]
fn video_parts() -> Vec<MachinePart> {
    let says = "this binary was built without it".to_owned();
    vec![MachinePart { kind: "video".to_owned(), name: "gstreamer".to_owned(), ok: false, says }]
}

#[cfg(feature = "v4l2")]
fn camera_parts() -> Vec<MachinePart> {
    let found = orinoco_media::cameras().into_iter().map(|(path, camera)| {
        let (ok, says) = match camera {
            Ok(camera) => (true, format!("{} ({})", camera.card, camera.driver)),
            Err(why) => (false, why),
        };
        MachinePart { kind: "camera".to_owned(), name: path.display().to_string(), ok, says }
    });
    let parts: Vec<MachinePart> = found.collect();
    if parts.is_empty() {
        let says = "there is no /dev/video*".to_owned();
        return vec![MachinePart { kind: "camera".to_owned(), name: "v4l2".to_owned(), ok: false, says }];
    }
    parts
}

#[cfg(not(feature = "v4l2"))]
fn camera_parts() -> Vec<MachinePart> {
    let says = "this binary was built without it".to_owned();
    vec![MachinePart { kind: "camera".to_owned(), name: "v4l2".to_owned(), ok: false, says }]
}
