//! `orinoco models`.

use std::path::{Path, PathBuf};

use orinoco_api::{
    CHECKS_SCHEMA, CheckList, EngineCheck, Fault, ListedModel, MODEL_SCHEMA, MODELS_SCHEMA, ModelDetails,
    ModelList,
};
use orinoco_board::Inference;
use orinoco_config::Faults;
use orinoco_core::{Choice, Diagnosis, Exit, TensorDesc, codes};
use orinoco_infer::ENGINES;
use orinoco_model::{AudioFeatures, AudioSpec, Model, ModelInput};
use orinoco_runtime::{BoardEngines, LoadedModel, Quiet, load_model, repository};
use orinoco_vision::Fit;

use crate::args::{CheckArgs, ModelArgs, WhereArgs};
use crate::commands::{board_model, inference};
use crate::output::{self, EventLines, mebibytes};

pub(crate) fn list(args: &WhereArgs, json: bool) -> Result<Exit, Faults> {
    let place = repository(args.models.as_deref(), args.data.as_deref());
    let rows: Vec<ListedModel> = place
        .list()
        .into_iter()
        .map(|(name, folder)| {
            let described = place.describe(&folder.display().to_string());
            let model = described.as_ref().ok().and_then(Option::as_ref);
            ListedModel {
                head: model.map(|m| m.head.kind.name.to_owned()),
                classes: model.map(|m| m.labels.len()),
                bytes: model.and_then(|m| file_bytes(&m.file)),
                fault: described.as_ref().err().map(Faults::first).map(Fault::from),
                name,
                folder: folder.display().to_string(),
            }
        })
        .collect();
    if json {
        output::print_json_sorted(&ModelList { schema: MODELS_SCHEMA.to_owned(), models: rows });
    } else if rows.is_empty() {
        let roots = joined(&place.roots);
        output::print(&format!("no models in {roots}; choose another repository with --models"));
    } else {
        let cells = rows.iter().map(|row| {
            let fault =
                row.fault.as_ref().map_or_else(String::new, |f| format!("{}: {}", f.subject, f.cause));
            let classes = row.classes.map_or_else(String::new, |n| n.to_string());
            let size = row.bytes.map_or_else(String::new, mebibytes);
            vec![row.name.clone(), row.head.clone().unwrap_or_default(), classes, size, fault]
        });
        output::print(&output::table(&["model", "head", "classes", "size", ""], 5, cells.collect()));
        if rows.iter().flat_map(|row| &row.fault).any(|fault| fault.code == codes::FILE_MISSING.id) {
            let places = joined(&place.data);
            output::note(&format!(
                "files named in a model.toml are searched next to it and in {places}; set another folder with --data or \
                 ORINOCO_DATA"
            ));
        }
    }
    Ok(Exit::Done)
}

fn joined(folders: &[PathBuf]) -> String {
    folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn file_bytes(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().map(|data| data.len())
}

pub(crate) fn show(args: &ModelArgs, json: bool) -> Result<Exit, Faults> {
    let place = repository(args.place.models.as_deref(), args.place.data.as_deref());
    let engines = BoardEngines::new(&inference(&args.engine)?)?;
    let loaded = load_model(&board_model(&args.model, 1, None), &engines, &place, &EventLines)?;
    let shown = shown(&loaded);
    if json {
        output::print_json(&shown);
        return Ok(Exit::Done);
    }
    let described = shown.described_by.unwrap_or_else(|| "none: inferred from the graph".to_owned());
    let mut text = format!("{}: {}\n", shown.name, shown.description);
    for (key, value) in [
        ("file", shown.file),
        ("described by", described),
        ("license", shown.license),
        ("engine", shown.engine),
        ("graph inputs", shown.graph_inputs.join("; ")),
        ("graph outputs", shown.graph_outputs.join("; ")),
        ("input", shown.input),
        (
            "head",
            format!(
                "{}, score above {}, IoU up to {}",
                shown.head, shown.score_threshold, shown.iou_threshold
            ),
        ),
        ("labels", shown.labels.join(", ")),
    ] {
        text.push_str(&format!("{key:<14} {value}\n"));
    }
    output::print(text.trim_end());
    Ok(Exit::Done)
}

fn shown(loaded: &LoadedModel) -> ModelDetails {
    let model = &loaded.model;
    let texts = |tensors: &[TensorDesc]| tensors.iter().map(ToString::to_string).collect();
    ModelDetails {
        schema: MODEL_SCHEMA.to_owned(),
        name: model.name.clone(),
        description: model.description.clone(),
        license: model.license.clone(),
        file: model.file.display().to_string(),
        described_by: model.described_by.as_ref().map(|path| path.display().to_string()),
        engine: format!("{} {}", loaded.chosen.name, loaded.chosen.version),
        input: input_text(model),
        head: model.head.kind.name.to_owned(),
        score_threshold: model.head.score_threshold,
        iou_threshold: model.head.iou_threshold,
        labels: model.labels.clone(),
        graph_inputs: texts(loaded.chosen.prepared.inputs()),
        graph_outputs: texts(loaded.chosen.prepared.outputs()),
    }
}

fn input_text(model: &Model) -> String {
    let input = match &model.input {
        ModelInput::Image(input) => input,
        ModelInput::Audio(audio) => return audio_text(audio),
    };
    let color = input.color.name();
    let fit = match input.fit {
        Fit::Stretch => "stretched to".to_owned(),
        Fit::Letterbox => format!("letterboxed (fill {}) to", input.fill),
        Fit::Crop { shorter } => format!("shorter side to {shorter}, centre crop to"),
    };
    let (mean, scale) = (input.mean, input.scale);
    format!("{color} {fit} {}x{}, (x - {mean:?}) * {scale:?}", input.width, input.height)
}

fn audio_text(audio: &AudioSpec) -> String {
    let features = match &audio.features {
        AudioFeatures::Samples { window, context } => {
            format!("{window} samples, preceded by {context} samples of context")
        }
        AudioFeatures::Mfcc(mfcc) => {
            format!("{} by {} cepstral coefficients", mfcc.frames, mfcc.coefficients)
        }
    };
    format!("audio of {} samples per second, {features}", audio.sample_rate)
}

/// Every model on every engine; passes when each model runs on at least one.
pub(crate) fn check(args: &CheckArgs, json: bool) -> Result<Exit, Faults> {
    let place = repository(args.place.models.as_deref(), args.place.data.as_deref());
    let names = if args.names.is_empty() {
        place.list().into_iter().map(|(_, folder)| folder.display().to_string()).collect()
    } else {
        args.names.clone()
    };
    if names.is_empty() {
        let next = "choose another repository with --models, or name models";
        return Err(
            Diagnosis::new(&codes::MODEL_NOT_FOUND, joined(&place.roots), "it has no models", next).into()
        );
    }
    let wanted = inference(&args.engine)?;
    let engines =
        if args.engine.engine.is_empty() { ENGINES.map(str::to_owned).to_vec() } else { wanted.engines };
    let alone = |engine: &String| {
        let only = Inference { threads: wanted.threads, ..Inference::new(vec![engine.clone()]) };
        BoardEngines::new(&only)
    };
    let engines: Vec<_> = engines.iter().map(|engine| (engine, alone(engine))).collect();
    let mut rows = Vec::new();
    let mut passed = true;
    for name in &names {
        let tried: Vec<EngineCheck> = engines
            .iter()
            .map(|(engine, alone)| {
                let model = board_model(name, 1, None);
                let alone = alone.as_ref().map_err(|fault| Faults::from(fault.clone()));
                let outcome = alone.and_then(|alone| load_model(&model, alone, &place, &Quiet));
                let fault = outcome.as_ref().err().map(Faults::first).map(Fault::from);
                let version = outcome.ok().map(|loaded| loaded.chosen.version);
                EngineCheck {
                    model: model.name,
                    engine: (*engine).clone(),
                    ok: fault.is_none(),
                    version,
                    fault,
                }
            })
            .collect();
        passed &= tried.iter().any(|row| row.ok);
        rows.extend(tried);
    }
    if json {
        output::print_json_sorted(&CheckList { schema: CHECKS_SCHEMA.to_owned(), checks: rows });
    } else {
        let cells = rows.iter().map(|row| {
            let fault = row.fault.as_ref().map_or_else(String::new, |f| format!("{}: {}", f.code, f.cause));
            let outcome = if row.ok { "ok" } else { "refused" };
            let detail = row.version.clone().unwrap_or(fault);
            vec![row.model.clone(), row.engine.clone(), outcome.to_owned(), detail]
        });
        output::print(&output::table(&["model", "engine", "", "version or reason"], 4, cells.collect()));
        let full = |row: &EngineCheck| {
            let detail = row.fault.as_ref()?.detail.clone()?;
            Some(format!("\n{} on {}:\n{detail}", row.model, row.engine))
        };
        let details: Vec<String> = rows.iter().filter_map(full).collect();
        if args.verbose {
            details.iter().for_each(|detail| output::print(detail));
        } else if !details.is_empty() {
            output::note("some reasons are shortened; --verbose shows them in full");
        }
    }
    Ok(if passed { Exit::Done } else { Exit::CheckFailed })
}
