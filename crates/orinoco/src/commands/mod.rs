//! One module for each command.

pub(crate) mod bench;
pub(crate) mod explain;
pub(crate) mod infer;
pub(crate) mod models;
pub(crate) mod run;

use clap::CommandFactory;
use orinoco_board::{BoardModel, Inference};
use orinoco_core::Diagnosis;

use crate::args::{Cli, EngineArgs, TuneArgs};

/// Prints a shell's completion script.
pub(crate) fn completions(shell: clap_complete::Shell) {
    clap_complete::generate(shell, &mut Cli::command(), "orinoco", &mut std::io::stdout());
}

/// The engines of the command line: exactly those named, or the default order.
fn inference(args: &EngineArgs) -> Result<Inference, Diagnosis> {
    let mut inference = Inference::default();
    for name in &args.engine {
        orinoco_infer::by_name(name)?;
    }
    if !args.engine.is_empty() {
        inference.engines.clone_from(&args.engine);
    }
    inference.threads = args.threads.map_or(inference.threads, usize::from);
    Ok(inference)
}

/// A model of the command line.
fn board_model(model: &str, batch: usize, tune: Option<&TuneArgs>) -> BoardModel {
    // Names in results and summaries are short: the last part of a path, without its extension.
    let path = std::path::Path::new(model);
    let described = path.file_name().is_some_and(|name| name == "model.toml");
    let named = if described { path.parent().unwrap_or(path) } else { path };
    let name = named.file_stem().map_or_else(|| model.to_owned(), |stem| stem.to_string_lossy().into_owned());
    BoardModel {
        name: if path.extension().is_some() {
            name
        } else {
            named.file_name().map_or(name, |n| n.to_string_lossy().into_owned())
        },
        model: model.to_owned(),
        batch,
        score_threshold: tune.and_then(|tune| tune.score),
        iou_threshold: tune.and_then(|tune| tune.iou),
        resize: tune.and_then(|tune| tune.resize.clone()),
    }
}
