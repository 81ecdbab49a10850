//! Serialised summary, made from the figures of a run.

use std::path::PathBuf;
use std::time::Duration;

use orinoco_api::{
    Dropped, EndState, EnergyFigure, Fault, LaneMemory, MemorySummary, MissedImages, ModelSummary,
    PlannedMemory, PowerSummary, RefusedJson, RemoteSummary, SUMMARY_SCHEMA, StreamSummary, Summary,
};
use orinoco_board::{BoardModel, SeatSpec};
use orinoco_core::{Choice, Diagnosis, ModelId, StreamId};
use orinoco_memory::{Budget, Plan};
use orinoco_telemetry::{DropCause, MissCause, ModelFold, RemoteFold, Stage, StreamFold};

use crate::LoadedModel;
use crate::action::EndedBy;
use crate::ended::{AllEnded, AllModels};
use crate::monitor::{Latest, figure_json, joules};
use crate::percentiles::summarise_durations;

/// Results of a finished run, except those of its streams and models.
pub(crate) struct Results {
    pub(crate) board: String,
    pub(crate) wall: Duration,
    pub(crate) by: EndedBy,
    /// Faults of lanes, and of the threads for sensors and governor.
    pub(crate) faults: Vec<Diagnosis>,
    pub(crate) memory: MemorySummary,
    pub(crate) power: PowerSummary,
}

pub(crate) fn summarise(results: Results, streams: AllEnded, models: AllModels) -> Summary {
    let shown = |path: &PathBuf| path.display().to_string();
    let Results { board, wall, by, mut faults, memory, power } = results;
    faults.extend(streams.faults);
    let end = match (faults.is_empty(), streams.was_stopped && by.stop && !by.unread) {
        (false, _) => EndState::Failed,
        (true, true) => EndState::Interrupted,
        (true, false) => EndState::Complete,
    };
    Summary {
        schema: SUMMARY_SCHEMA.to_owned(),
        board,
        end,
        wall_s: wall.as_secs_f64(),
        streams: streams.streams,
        older_streams: streams.totals,
        models: models.models,
        older_models: models.totals,
        memory,
        power,
        cluster: None,
        files: streams.files.iter().map(shown).collect(),
        incomplete: streams.incomplete.iter().map(shown).collect(),
        faults: faults.iter().map(Fault::from).collect(),
    }
}

pub(crate) fn summarise_model(loaded: &LoadedModel) -> ModelSummary {
    let refused = loaded.chosen.refused.iter();
    ModelSummary {
        file: loaded.model.file.display().to_string(),
        engine_version: loaded.chosen.version.clone(),
        refused: refused.map(|r| RefusedJson { engine: r.engine.to_owned(), why: r.why.clone() }).collect(),
        ..unused_model(&loaded.name, loaded.chosen.name, loaded.binding.batch)
    }
}

/// Makes the summary of a model that another seat executes.
pub(crate) fn summarise_seat_model(spec: &BoardModel, engine: &str) -> ModelSummary {
    ModelSummary { remote: remote_of(spec), ..unused_model(&spec.name, engine, spec.batch) }
}

/// Makes the summary of a model that has inferred nothing.
pub(crate) fn unused_model(name: &str, engine: &str, batch: usize) -> ModelSummary {
    ModelSummary {
        name: name.to_owned(),
        file: String::new(),
        engine: engine.to_owned(),
        engine_version: String::new(),
        batch,
        images: 0,
        inferences: 0,
        stages: Vec::new(),
        graph_fallbacks: 0,
        not_finite: 0,
        energy_per_image: None,
        energy_j: None,
        remote: None,
        refused: Vec::new(),
    }
}

/// Makes the counts of a model that another seat executes, before it has inferred any image; `None` if this board executes it.
pub(crate) fn remote_of(spec: &BoardModel) -> Option<RemoteSummary> {
    let SeatSpec { name, fallback } = spec.seat.as_ref()?;
    let (seat, fallback) = (name.clone(), fallback.name().to_owned());
    Some(RemoteSummary { seat, fallback, images: 0, missed: Vec::new() })
}

/// Returns the counts of a model that another seat executes.
pub(crate) fn counted_remote(remote: Option<&RemoteSummary>, fold: RemoteFold) -> Option<RemoteSummary> {
    let missed = MissCause::ALL.map(|cause| (cause, fold.missed(cause))).into_iter();
    let missed = missed.filter(|(_, images)| *images > 0);
    let missed = missed.map(|(cause, images)| MissedImages { cause: cause.name().to_owned(), images });
    remote.map(|remote| RemoteSummary { images: fold.images, missed: missed.collect(), ..remote.clone() })
}

/// Adds the figures of a model to its summary from the start.
pub(crate) fn with_times(model: ModelSummary, fold: &ModelFold) -> ModelSummary {
    let stages = [
        (Stage::Preprocess, fold.preprocess.total()),
        (Stage::Infer, fold.infer.total()),
        (Stage::Postprocess, fold.postprocess.total()),
    ];
    let stages = stages.into_iter().filter(|(_, times)| times.count() > 0);
    let stages = stages.map(|(stage, times)| summarise_durations(stage.name(), times)).collect();
    let ModelFold { items: images, inferences, graph_fallbacks, not_finite, .. } = *fold;
    let remote = counted_remote(model.remote.as_ref(), fold.remote);
    ModelSummary { images, inferences, stages, graph_fallbacks, not_finite, remote, ..model }
}

/// Compares the plan that was admitted last with the measured use of the areas of `lanes`.
pub(crate) fn summarise_memory(plan: &Plan, lanes: Vec<LaneMemory>) -> PlannedMemory {
    let Budget::Shared(budget_bytes) = plan.budget else { unreachable!("boards have one budget") };
    PlannedMemory { budget_bytes, total_bytes: plan.bytes(), lanes }
}

/// Returns the mean power of the run, and the rails that were added up, or the reason why it is not measured.
pub(crate) fn power_of(readings: &Latest) -> PowerSummary {
    match &readings.energy {
        Ok(report) => {
            let rails: Vec<&str> = report.total.rails.iter().map(|rail| &**rail).collect();
            let measured = report.total.measured.as_secs_f64();
            let joules = report.total.energy.to_f64();
            PowerSummary {
                watts: (measured > 0.0).then(|| joules / measured),
                source: format!("rails {}", rails.join(", ")),
                energy_j: Some(joules),
            }
        }
        Err(why) => PowerSummary { watts: None, source: format!("not measured: {why}"), energy_j: None },
    }
}

/// Returns the energy of one frame of a stream, and that of all its frames in joules; `None` where it is not measured.
pub(crate) fn energy_of_stream(readings: &Latest, stream: StreamId) -> (Option<EnergyFigure>, Option<f64>) {
    let Ok(report) = &readings.energy else { return (None, None) };
    let energy = report.streams.iter().find(|energy| energy.stream == stream);
    (energy.map(|energy| figure_json(&energy.per_frame)), energy.and_then(|energy| joules(&energy.total)))
}

/// Returns the energy of one image of a model, and that of all its images in joules; `None` where it is not measured.
pub(crate) fn energy_of_model(readings: &Latest, model: ModelId) -> (Option<EnergyFigure>, Option<f64>) {
    let Ok(report) = &readings.energy else { return (None, None) };
    let energy = report.models.iter().find(|energy| energy.model == model);
    (energy.map(|energy| figure_json(&energy.per_item)), energy.and_then(|energy| joules(&energy.total)))
}

pub(crate) fn summarise_stream(source: &str, fold: &StreamFold) -> StreamSummary {
    let dropped = DropCause::ALL.into_iter().map(|cause| (cause, fold.dropped(cause)));
    let stages = Stage::ALL.into_iter().map(|stage| (stage, fold.stage(stage)));
    StreamSummary {
        name: fold.name.to_string(),
        source: source.to_owned(),
        decoder: fold.decoder.clone(),
        decoder_cpu_ms: fold.decoder_cpu.map(|took| took.as_secs_f64() * 1e3),
        state: fold.state.map_or("not started", |state| state.name()).to_owned(),
        frames_in: fold.frames_in,
        frames_out: fold.frames_out,
        dropped: dropped
            .filter(|(_, frames)| *frames > 0)
            .map(|(cause, frames)| Dropped { cause: cause.name().to_owned(), frames })
            .collect(),
        late: fold.late,
        reconnects: fold.reconnects,
        recovery: Some(&fold.recovery)
            .filter(|recovery| recovery.count() > 0)
            .map(|recovery| summarise_durations("recovery", recovery)),
        fps: fold.fps(),
        detections: fold.detections,
        energy_per_frame: None,
        energy_j: None,
        tracked: None,
        stages: stages
            .filter(|(_, h)| h.count() > 0)
            .map(|(stage, h)| summarise_durations(stage.name(), h))
            .collect(),
    }
}
