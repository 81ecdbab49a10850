//! `orinoco models init` and `orinoco models import`: a first description of a model that came without one, or with one
//! for another runtime.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use orinoco_api::{DESCRIPTION_SCHEMA, DescriptionReport, KeyReason};
use orinoco_config::{Existing, Faults, write_whole};
use orinoco_core::{Diagnosis, Exit, TensorDesc, WithSubject, codes};
use orinoco_model::{Import, Model, SkippedSetting, sha256_of};
use orinoco_runtime::{BoardEngines, load_as};

use crate::args::{ImportArgs, InitArgs};
use crate::commands::{board_model, inference};
use crate::output::{self, EventLines};

pub(crate) fn run(args: &InitArgs, json: bool) -> Result<Exit, Faults> {
    let wanted = board_model(&args.file.display().to_string(), 1, None);
    let guess = |inputs: &[TensorDesc], outputs: &[TensorDesc]| Model::guess(&args.file, inputs, outputs);
    let loaded =
        load_as(&wanted, &BoardEngines::new(&inference(&args.engine)?)?, &args.file, &guess, &EventLines)?;
    if let Some(known) = described_by(&args.file) {
        output::note(&format!(
            "{} already describes this model; it was ignored and only the graph was used",
            known.display()
        ));
    }
    finish(loaded.model, Vec::new(), args.output.as_deref(), json)
}

pub(crate) fn import(args: &ImportArgs, json: bool) -> Result<Exit, Faults> {
    let import = Import::read(&args.file, args.onnx.as_deref())?;
    let wanted = board_model(&import.onnx.display().to_string(), 1, None);
    let describe = |inputs: &[TensorDesc], outputs: &[TensorDesc]| import.describe(inputs, outputs);
    let loaded = load_as(
        &wanted,
        &BoardEngines::new(&inference(&args.engine)?)?,
        &import.onnx,
        &describe,
        &EventLines,
    )?;
    let mut left_out = import.contradictions(&loaded.model);
    left_out.extend(import.left_out);
    finish(loaded.model, left_out, args.output.as_deref(), json)
}

/// Writes or prints the description of `model`, and says what of it may be wrong and what was left out.
fn finish(
    mut model: Model,
    left_out: Vec<SkippedSetting>,
    to: Option<&Path>,
    json: bool,
) -> Result<Exit, Faults> {
    let next = "check the path";
    let absolute = model.file.canonicalize().about(&codes::FILE_MISSING, model.file.display(), next)?;
    model.sha256 = Some(sha256_of(&absolute)?);
    model.file = absolute;
    let toml = model.to_toml();
    if let Some(path) = to {
        write_new(path, &toml)?;
    }
    let reason = |key: &str, why: &str| KeyReason { key: key.to_owned(), why: why.to_owned() };
    let unsure: Vec<KeyReason> = model.unsure.iter().map(|unsure| reason(unsure.key, unsure.why)).collect();
    let written = to.map(|path| path.display().to_string());
    if json {
        let left_out =
            left_out.into_iter().map(|SkippedSetting { key, why }| KeyReason { key, why }).collect();
        let schema = DESCRIPTION_SCHEMA.to_owned();
        output::print_json(&DescriptionReport { schema, toml, written, unsure, left_out });
        return Ok(Exit::Done);
    }
    match &written {
        Some(path) => output::note(&format!("wrote {path}")),
        None => output::print(toml.trim_end()),
    }
    match unsure.len() {
        0 => {}
        n => {
            let keys: Vec<&str> = unsure.iter().map(|unsure| &*unsure.key).collect();
            output::warn(&format!("{n} of its keys are guesses that may be wrong: {}", keys.join(", ")));
        }
    }
    if !left_out.is_empty() {
        let rows = left_out.into_iter().map(|SkippedSetting { key, why }| vec![key, why]).collect();
        output::note(&format!("not carried over:\n{}", output::table(&["setting", "why"], 2, rows)));
    }
    Ok(Exit::Done)
}

fn write_new(path: &Path, text: &str) -> Result<(), Diagnosis> {
    let next = "choose another path: nothing is overwritten";
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).about(&codes::SINK_OPEN, path.display(), next)?;
    }
    write_whole(path, text.as_bytes(), Existing::Keep).map_err(|error| {
        let (code, next) = match error.kind() {
            ErrorKind::AlreadyExists | ErrorKind::NotFound | ErrorKind::PermissionDenied => {
                (&codes::SINK_OPEN, next)
            }
            _ => (&codes::SINK_WRITE, "free space, or choose another path"),
        };
        Diagnosis::new(code, path.display(), error, next)
    })
}

/// The description that a repository has of the ONNX file at `path`: next to it, or one folder up.
fn described_by(path: &Path) -> Option<PathBuf> {
    let folders = path.parent().into_iter().flat_map(|folder| [Some(folder), folder.parent()]).flatten();
    folders.map(|folder| folder.join("model.toml")).find(|toml| toml.is_file())
}
