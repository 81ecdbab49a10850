//! `orinoco infer`.

use std::path::Path;
use std::sync::Arc;

use orinoco_api::{DetectionJson, RESULT_SCHEMA, ResultLine};
use orinoco_config::Faults;
use orinoco_core::{Clock, Diagnosis, Exit};
use orinoco_infer::CpuPlan;
use orinoco_pipeline::{Executor, Findings, MonotonicClock};
use orinoco_runtime::{LoadedModel, bind_plan, load_model, repository};

use crate::args::InferArgs;
use crate::commands::{board_model, inference};
use crate::output::{self, EventLines};

pub(crate) fn run(args: &InferArgs, json: bool) -> Result<Exit, Faults> {
    let place = repository(args.place.models.as_deref(), args.place.data.as_deref());
    let wanted = board_model(&args.model, 1, Some(&args.tune));
    let mut loaded = load_model(&wanted, &inference(&args.engine)?, &place, &EventLines)?;
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
    let mut plan = bind_plan(&mut loaded, Arc::clone(&clock))?;
    let mut faults = Vec::new();
    for (path, seq) in args.images.iter().zip(0..) {
        match infer(path, seq, &loaded, &mut plan, &*clock) {
            Ok(line) if json => output::print_json(&line),
            Ok(line) => output::print(&describe(&line)),
            Err(fault) => faults.push(fault),
        }
    }
    if faults.is_empty() { Ok(Exit::Done) } else { Err(Faults(faults)) }
}

fn infer(
    path: &Path,
    seq: u64,
    loaded: &LoadedModel,
    plan: &mut CpuPlan,
    clock: &dyn Clock,
) -> Result<ResultLine, Diagnosis> {
    let frame = orinoco_media::decode_image(path, clock)?;
    let mut findings = vec![Findings::default(); plan.batch_max()];
    plan.replay(std::slice::from_ref(&frame), &mut findings[..1])?;
    let detections = findings[0].detections.iter();
    Ok(ResultLine {
        schema: RESULT_SCHEMA.to_owned(),
        stream: None,
        image: Some(path.display().to_string()),
        seq,
        pts_ns: 0,
        model: loaded.name.clone(),
        engine: loaded.chosen.name.to_owned(),
        detections: detections
            .map(|found| DetectionJson::new(found, loaded.model.label(found.class_id)))
            .collect(),
    })
}

fn describe(line: &ResultLine) -> String {
    let image = line.image.as_deref().unwrap_or_default();
    if line.detections.is_empty() {
        return format!("{image}: nothing found");
    }
    let rows = line.detections.iter().map(|found| {
        let corners = found.bounds.map(|value| format!("{value:.0}"));
        [vec![found.label.clone(), format!("{:.3}", found.score)], corners.to_vec()].concat()
    });
    let table = output::table(&["label", "score", "x1", "y1", "x2", "y2"], 1, rows.collect());
    format!("{image}: {} found\n{table}", line.detections.len())
}
