//! Models to evaluate: selected, loaded and run on images.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use indicatif::ProgressBar;
use orinoco_api::EvalResult;
use orinoco_config::Faults;
use orinoco_core::{Clock, Diagnosis, InferenceResult};
use orinoco_infer::ENGINES;
use orinoco_pipeline::{MonotonicClock, not_finite};
use orinoco_runtime::{BoardEngines, LoadedModel, OutputFile, TakenFiles, bind_plan, load_model, repository};

use crate::args::{EvalArgs, TuneArgs};
use crate::commands::{board_model, inference};
use crate::output::{self, EventLines};

/// Model, and the engines that it may run on; without engines, the default order.
pub(super) struct Entry<'a> {
    pub(super) model: &'a str,
    pub(super) engines: Vec<String>,
}

/// Models to evaluate: one, and optionally another with which it is compared.
pub(super) struct Entries<'a> {
    pub(super) first: Entry<'a>,
    pub(super) against: Option<Entry<'a>>,
}

impl<'a> Entries<'a> {
    /// Returns the models of the command line; `None` if it names no model.
    pub(super) fn of(args: &'a EvalArgs) -> Option<Self> {
        let (model, engines) = (args.model.as_deref()?, &args.engine.engine);
        let against = args.against.as_deref().map(|other| match ENGINES.contains(&other) {
            true => Entry { model, engines: vec![other.to_owned()] },
            false => Entry { model: other, engines: engines.clone() },
        });
        Some(Self { first: Entry { model, engines: engines.clone() }, against })
    }
}

/// Loads a model. Results below `score`, or else below the model's own threshold, are dropped.
pub(super) fn load(args: &EvalArgs, entry: &Entry<'_>, score: Option<f32>) -> Result<LoadedModel, Faults> {
    let place = repository(args.place.models.as_deref(), args.place.data.as_deref());
    let tune = TuneArgs { score, ..args.tune.clone() };
    let mut inference = inference(&args.engine)?;
    if !entry.engines.is_empty() {
        inference.engines.clone_from(&entry.engines);
    }
    load_model(
        &board_model(entry.model, 1, Some(&tune)),
        &BoardEngines::new(&inference)?,
        &place,
        &EventLines,
    )
}

/// Returns the report's name of the model.
pub(super) fn name_model(result: &mut EvalResult, loaded: &LoadedModel) {
    result.model = Some(loaded.name.clone());
    result.engine = Some(format!("{} {}", loaded.chosen.name, loaded.chosen.version));
}

/// Runs the model on `images`, and calls `each` with the index of each image and its result.
pub(super) fn watch(
    images: &[impl AsRef<Path>],
    loaded: &mut LoadedModel,
    mut each: impl FnMut(usize, &mut InferenceResult) -> Result<(), Diagnosis>,
) -> Result<(), Diagnosis> {
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
    let mut plan = bind_plan(loaded, Arc::clone(&clock), None)?;
    let bar: ProgressBar = output::bar(images.len() as u64, "images");
    let mut scratch = vec![InferenceResult::default(); plan.batch_max()];
    let mut left_out = 0;
    for (index, image) in images.iter().enumerate() {
        let frame = orinoco_media::decode_image(image.as_ref(), &*clock)?;
        plan.execute(std::slice::from_ref(&frame), &mut scratch[..1])?;
        left_out += scratch[0].not_finite;
        each(index, &mut scratch[0])?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    if left_out > 0 {
        output::warn(&not_finite(&loaded.name).to_string());
    }
    Ok(())
}

/// Refuses to overwrite the dataset, a model or results that are read. Nothing is written before this check.
pub(super) fn check_not_read(
    args: &EvalArgs,
    files: impl IntoIterator<Item = PathBuf>,
) -> Result<(), Diagnosis> {
    let place = repository(args.place.models.as_deref(), args.place.data.as_deref());
    let mut taken = TakenFiles::default();
    taken.add_folder(&args.dataset, "it is a file of the data set and would be overwritten");
    if let Some(results) = &args.results {
        taken.add_folder(results, "results are read from it");
        taken.add(results, || "results are read from it".to_owned());
    }
    for model in args.model.iter().chain(&args.against) {
        taken.add_model(model, model, &place);
    }
    // Kept open until the last output is checked, because two paths may be one file.
    let open =
        |file: PathBuf| taken.open(&file, "another output of this command already writes to this file");
    files.into_iter().map(open).collect::<Result<Vec<OutputFile>, _>>()?;
    Ok(())
}

pub(super) fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.4}"))
}
