//! One module for each command.

pub(crate) mod bench;
pub(crate) mod board;
pub(crate) mod cameras;
pub(crate) mod cluster;
pub(crate) mod doctor;
mod energy;
pub(crate) mod eval;
pub(crate) mod explain;
mod gallery;
pub(crate) mod infer;
pub(crate) mod init;
pub(crate) mod links;
pub(crate) mod memory;
pub(crate) mod models;
pub(crate) mod perf;
pub(crate) mod pull;
pub(crate) mod run;
pub(crate) mod status;
pub(crate) mod top;

use clap::CommandFactory;
use orinoco_api::{Fault, Summary};
use orinoco_board::{BoardModel, Inference};
use orinoco_core::{Diagnosis, codes};
use orinoco_infer::{by_name, default_engines};

use crate::args::{Cli, EngineArgs, TuneArgs};
use crate::output;

/// A source that somebody typed on the command line is likely mistyped when it does not answer.
const RECONNECT_ATTEMPTS: u32 = 3;

/// Prints a shell's completion script.
pub(crate) fn completions(shell: clap_complete::Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "orinoco", &mut script);
    output::print(String::from_utf8_lossy(&script).trim_end());
}

/// The engines of the command line: exactly those named, or the default order.
fn inference(args: &EngineArgs) -> Result<Inference, Diagnosis> {
    for name in &args.engine {
        by_name(name)?;
    }
    let engines = match args.engine.is_empty() {
        true => default_engines().into_iter().map(str::to_owned).collect(),
        false => args.engine.clone(),
    };
    let usual = Inference::new(engines);
    Ok(Inference { threads: args.threads.map_or(usual.threads, usize::from), ..usual })
}

/// A model of the command line.
fn board_model(model: &str, batch: usize, tune: Option<&TuneArgs>) -> BoardModel {
    // Names in results and summaries are short: the last part of a path, without its extension.
    let path = std::path::Path::new(model);
    let named = match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => path.parent().and_then(std::path::Path::file_name),
        Some("onnx") => path.file_stem(),
        _ => path.file_name(),
    };
    let name = named.map_or_else(|| model.to_owned(), |name| name.to_string_lossy().into_owned());
    BoardModel {
        batch,
        score_threshold: tune.and_then(|tune| tune.score),
        iou_threshold: tune.and_then(|tune| tune.iou),
        resize: tune.and_then(|tune| tune.resize),
        ..BoardModel::new(name, model)
    }
}

/// Frames through all streams of a pipeline that is measured. What failed in it is returned instead: its figures would be
/// of something else.
fn frames_measured(summary: &Summary) -> Result<f64, Diagnosis> {
    if let Some(fault) = summary.faults.first() {
        return Err(diagnosis_of(fault));
    }
    let frames: u64 = summary.streams.iter().map(|stream| stream.frames_out).sum();
    if frames == 0 {
        return Err(no_frames(&summary.streams[0].source));
    }
    Ok(frames as f64)
}

fn diagnosis_of(fault: &Fault) -> Diagnosis {
    let code = codes::ALL.iter().find(|code| code.id == fault.code).expect("our faults have known codes");
    Diagnosis::new(code, &fault.subject, &fault.cause, &fault.next)
}

fn no_frames(source: &str) -> Diagnosis {
    let next = "use a source that delivers frames";
    Diagnosis::new(&codes::SOURCE_NO_VIDEO, source, "it has no frames", next)
}
