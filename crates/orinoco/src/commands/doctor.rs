//! `orinoco doctor`: what this machine has for Orinoco, and why it lacks the rest.

use orinoco_config::Faults;
use orinoco_core::Exit;
use orinoco_infer::{Engine, EngineContext, engines};
use serde::Serialize;

use crate::output;

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    parts: Vec<Part>,
}

/// Something that Orinoco can use.
#[derive(Serialize)]
struct Part {
    kind: &'static str,
    name: String,
    ok: bool,
    /// Its version or purpose where it is there; why it is not where it is not.
    says: String,
}

pub(crate) fn run(json: bool) -> Result<Exit, Faults> {
    let mut parts = engine_parts();
    parts.extend(gpu_part());
    parts.extend(video_parts());
    parts.extend(camera_parts());
    if json {
        output::print_json(&Report { schema: "orinoco.doctor/1", parts });
        return Ok(Exit::Done);
    }
    let row = |part: &Part| {
        let state = if part.ok { "ok" } else { "no" };
        vec![part.kind.to_owned(), part.name.clone(), state.to_owned(), part.says.clone()]
    };
    let table = output::table(
        &["part", "name", "here", "what it is, or why it is not"],
        4,
        parts.iter().map(row).collect(),
    );
    let next = "\nA model is proved on each engine by `orinoco models check NAME`.";
    output::print(&format!("{table}{next}"));
    Ok(Exit::Done)
}

fn engine_parts() -> Vec<Part> {
    let context = EngineContext::default();
    let part = |engine: &dyn Engine| {
        let found = engine.check(&context);
        let (ok, says) = match found {
            Ok(info) => (true, info.version),
            Err(why) => (false, why),
        };
        Part { kind: "engine", name: engine.name().to_owned(), ok, says }
    };
    engines().into_iter().map(part).collect()
}

#[cfg(feature = "cuda")]
fn gpu_part() -> Option<Part> {
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
    Some(Part { kind: "gpu", name, ok, says })
}

#[cfg(not(feature = "cuda"))]
fn gpu_part() -> Option<Part> {
    None
}

#[cfg(feature = "gstreamer")]
fn video_parts() -> Vec<Part> {
    match orinoco_media::video_hardware() {
        Ok(found) => found
            .iter()
            .map(|part| Part {
                kind: "video",
                name: part.element.to_owned(),
                ok: part.refused.is_none(),
                says: part.refused.clone().unwrap_or_else(|| part.purpose.to_owned()),
            })
            .collect(),
        Err(fault) => {
            vec![Part { kind: "video", name: "gstreamer".to_owned(), ok: false, says: fault.to_string() }]
        }
    }
}

#[cfg(not(feature = "gstreamer"))]
fn video_parts() -> Vec<Part> {
    let says = "this binary was built without it".to_owned();
    vec![Part { kind: "video", name: "gstreamer".to_owned(), ok: false, says }]
}

#[cfg(feature = "v4l2")]
fn camera_parts() -> Vec<Part> {
    let found = orinoco_media::cameras().into_iter().map(|(path, camera)| {
        let (ok, says) = match camera {
            Ok(camera) => (true, format!("{} ({})", camera.card, camera.driver)),
            Err(why) => (false, why),
        };
        Part { kind: "camera", name: path.display().to_string(), ok, says }
    });
    let parts: Vec<Part> = found.collect();
    if parts.is_empty() {
        let says = "there is no /dev/video*".to_owned();
        return vec![Part { kind: "camera", name: "v4l2".to_owned(), ok: false, says }];
    }
    parts
}

#[cfg(not(feature = "v4l2"))]
fn camera_parts() -> Vec<Part> {
    let says = "this binary was built without it".to_owned();
    vec![Part { kind: "camera", name: "v4l2".to_owned(), ok: false, says }]
}
