//! Accuracy of a model: on a labelled dataset, or compared with reference outputs.

use std::path::{Path, PathBuf};

use orinoco_api::{Accuracy, EvalFigures, Measured, OutputDifferences};
use orinoco_config::Faults;
use orinoco_core::{Diagnosis, Layout, WithSubject, codes};
use orinoco_eval::references::{self, Reference, ReferenceInput};
use orinoco_eval::{Dataset, Labels};
use orinoco_infer::{EngineError, Session, TensorMemory};
use orinoco_runtime::LoadedModel;
use orinoco_vision::InputSpec;

use crate::commands::eval;

/// Source of the accuracy.
pub(super) enum AccuracySource {
    /// A labelled dataset.
    Dataset(PathBuf, Dataset),
    /// Folders in which reference outputs of the model may be.
    References(Vec<PathBuf>),
}

impl AccuracySource {
    /// Opens the dataset; without one, references are looked for in `refs/NAME` of the data folders.
    ///
    /// # Errors
    /// `E0602` for a dataset that cannot be read, or that has no labels.
    pub(super) fn open(dataset: Option<&Path>, data: &[PathBuf], model: &str) -> Result<Self, Diagnosis> {
        match dataset {
            Some(folder) => {
                let dataset = Dataset::open(folder)?;
                let has_label = |labels: &Labels| !matches!(labels, Labels::Boxes(boxes) if boxes.is_empty());
                match dataset.items.iter().any(|item| has_label(&item.labels)) {
                    true => Ok(Self::Dataset(folder.to_owned(), dataset)),
                    false => Err(no_labels(folder)),
                }
            }
            None => Ok(Self::References(data.iter().map(|data| data.join("refs").join(model)).collect())),
        }
    }

    /// Checks that the model has the classes of the dataset, before anything is measured.
    pub(super) fn check(&self, loaded: &LoadedModel) -> Result<(), Diagnosis> {
        match self {
            Self::Dataset(_, dataset) => eval::check_classes(loaded, dataset),
            Self::References(_) => Ok(()),
        }
    }

    /// Returns the images of the dataset; none without a dataset.
    pub(super) fn images(&self) -> Vec<PathBuf> {
        match self {
            Self::Dataset(_, dataset) => dataset.items.iter().map(|item| item.image.clone()).collect(),
            Self::References(_) => Vec::new(),
        }
    }
}

/// Measures the accuracy of a loaded model.
pub(super) fn measure(
    source: &AccuracySource,
    loaded: &mut LoadedModel,
) -> Result<Measured<Accuracy>, Faults> {
    match source {
        AccuracySource::Dataset(folder, dataset) => on_dataset(folder, dataset, loaded).map(Measured::Value),
        AccuracySource::References(folders) => Ok(on_references(folders, loaded)?),
    }
}

fn on_dataset(folder: &Path, dataset: &Dataset, loaded: &mut LoadedModel) -> Result<Accuracy, Faults> {
    let figures = eval::accuracy(loaded, dataset)?;
    let (metric, value) = headline(&figures).ok_or_else(|| no_labels(folder))?;
    Ok(Accuracy {
        metric: metric.to_owned(),
        value,
        source: folder.display().to_string(),
        images: dataset.items.len(),
        figures: Some(figures),
        differences: None,
    })
}

fn no_labels(folder: &Path) -> Diagnosis {
    let cause = "no image has a label, so there is nothing to compare results with";
    Diagnosis::new(&codes::DATASET, folder.display(), cause, "name a dataset with labels")
}

/// Returns the metric by which models of this kind are usually compared.
fn headline(figures: &EvalFigures) -> Option<(&'static str, f64)> {
    let metrics = [("AP", figures.ap), ("top-1", figures.top1), ("mIoU", figures.miou)];
    metrics.into_iter().find_map(|(metric, value)| Some((metric, value?)))
}

fn on_references(folders: &[PathBuf], loaded: &mut LoadedModel) -> Result<Measured<Accuracy>, Diagnosis> {
    for folder in folders {
        let references = references::read(folder)?;
        if !references.is_empty() {
            return with_references(folder, &references, loaded);
        }
    }
    let tried = folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ");
    Ok(Measured::missing(format!("no --dataset is given, and there are no reference outputs in {tried}")))
}

fn with_references(
    folder: &Path,
    references: &[Reference],
    loaded: &mut LoadedModel,
) -> Result<Measured<Accuracy>, Diagnosis> {
    let failed = |why: EngineError, loaded: &LoadedModel| why.diagnosis(&loaded.model.file);
    let session = loaded.chosen.session(TensorMemory::Host, None);
    let mut session = session.map_err(|why| failed(why, loaded))?;
    let mut worst = OutputDifferences::default();
    let mut compared = 0;
    for reference in references {
        let outputs = matching_outputs(reference, loaded);
        if outputs.is_empty() || !write_input(&reference.input, loaded, session.as_mut()) {
            continue;
        }
        session.run().map_err(|why| failed(why, loaded))?;
        for (index, expected) in outputs {
            let mut found = Vec::new();
            session.output(index).host().data.to_f32(&mut found);
            let differences = references::compare(&found, expected)
                .ok_or_else(|| {
                    format!("its output has {} values, but the reference {}", found.len(), expected.len())
                })
                .about(&codes::MODEL_DISAGREES, reference.file.display(), "store the references again")?;
            worst.max = worst.max.max(differences.max);
            worst.relative = worst.relative.max(differences.relative);
        }
        compared += 1;
    }
    let source = folder.display().to_string();
    if compared == 0 {
        let reason = format!(
            "none of the reference outputs in {source} fits the model: an input of its size, with an output that its graph has"
        );
        return Ok(Measured::missing(reason));
    }
    let value = (1.0 - worst.relative).max(0.0);
    let (metric, differences) = ("agreement".to_owned(), Some(worst));
    Ok(Measured::Value(Accuracy { metric, value, source, images: compared, figures: None, differences }))
}

/// Returns the outputs of the graph that the reference has, with the expected values.
fn matching_outputs<'a>(reference: &'a Reference, loaded: &LoadedModel) -> Vec<(usize, &'a [f32])> {
    let graph = loaded.chosen.prepared.outputs();
    let index = |name: &str| graph.iter().position(|output| output.name == name);
    let outputs = reference.outputs.iter();
    outputs.filter_map(|(name, array)| Some((index(name)?, array.values.as_slice()))).collect()
}

/// Writes the input of a reference into the session; returns whether it has the size of the model's.
fn write_input(input: &ReferenceInput, loaded: &LoadedModel, session: &mut dyn Session) -> bool {
    let mut target = session.input(loaded.binding.input).host().data;
    let values = match (input, loaded.model.input.image()) {
        (ReferenceInput::Image(array), Some(spec)) => {
            if !is_size(&array.shape, spec) {
                return false;
            }
            normalise(&array.values, spec)
        }
        (ReferenceInput::Tensor(array), _) => array.values.clone(),
        (ReferenceInput::Image(_), None) => return false,
    };
    if values.len() != target.len() || loaded.model.input_quantization.is_some() && is_image(input) {
        return false;
    }
    target.copy_from_f32(&values);
    true
}

fn is_image(input: &ReferenceInput) -> bool {
    matches!(input, ReferenceInput::Image(_))
}

/// Whether an image has the size of the model's input: height, width, and channels unless there is one.
fn is_size(shape: &[usize], spec: &InputSpec) -> bool {
    let (height, width) = (spec.height as usize, spec.width as usize);
    match (shape, spec.color.channels()) {
        ([h, w], 1) => (*h, *w) == (height, width),
        ([h, w, c], channels) => (*h, *w, *c) == (height, width, channels),
        _ => false,
    }
}

/// Returns the input tensor of an image whose samples are in the model's channel order, channel by channel within each pixel.
fn normalise(samples: &[f32], spec: &InputSpec) -> Vec<f32> {
    let channels = spec.color.channels();
    let value = |pixel: usize, channel: usize| {
        (samples[pixel * channels + channel] - spec.mean[channel]) * spec.scale[channel]
    };
    let pixels = samples.len() / channels;
    match spec.layout {
        Layout::Nchw => (0..channels).flat_map(|c| (0..pixels).map(move |p| value(p, c))).collect(),
        Layout::Nhwc => (0..pixels).flat_map(|p| (0..channels).map(move |c| value(p, c))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use orinoco_core::ColorOrder;

    use super::*;

    #[test]
    fn images_are_normalised_in_the_models_layout() {
        let mut spec = InputSpec::plain(Layout::Nchw, 2, 1, ColorOrder::Bgr);
        (spec.mean, spec.scale) = ([1.0, 2.0, 3.0], [1.0, 0.5, 2.0]);
        let samples = [1.0, 2.0, 3.0, 11.0, 12.0, 13.0];
        assert_eq!(normalise(&samples, &spec), [0.0, 10.0, 0.0, 5.0, 0.0, 20.0]);
        spec.layout = Layout::Nhwc;
        assert_eq!(normalise(&samples, &spec), [0.0, 0.0, 0.0, 10.0, 5.0, 20.0]);
        assert!(is_size(&[1, 2, 3], &spec) && !is_size(&[2, 1, 3], &spec) && !is_size(&[1, 2], &spec));
        let gray = InputSpec::plain(Layout::Nchw, 2, 1, ColorOrder::Gray);
        assert!(is_size(&[1, 2], &gray) && is_size(&[1, 2, 1], &gray));
    }

    #[test]
    fn the_headline_is_the_usual_metric() {
        let figures = EvalFigures { top1: Some(0.5), top5: Some(0.9), ..EvalFigures::default() };
        assert_eq!(headline(&figures), Some(("top-1", 0.5)));
        let boxes = EvalFigures { ap: Some(0.4), ap50: Some(0.6), ..EvalFigures::default() };
        assert_eq!(headline(&boxes), Some(("AP", 0.4)));
        assert_eq!(headline(&EvalFigures::default()), None);
    }
}
