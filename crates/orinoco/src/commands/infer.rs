//! `orinoco infer`.

use std::path::Path;
use std::sync::Arc;

use orinoco_api::{ClassMapJson, ResultLine};
use orinoco_config::{FaultList, Faults};
use orinoco_core::{Clock, Diagnosis, Exit, InferenceResult, codes};
use orinoco_infer::AudioPlan;
use orinoco_model::ModelInput;
use orinoco_pipeline::{Executor, MonotonicClock, not_finite};
use orinoco_runtime::{BoardEngines, LoadedModel, bind_audio, bind_plan, load_model, repository};
use orinoco_vision::Gallery;

use crate::args::InferArgs;
use crate::commands::{board_model, gallery, inference};
use crate::output::{self, EventLines};

/// More windows of one sound are summed up for people.
const WINDOWS_SHOWN_MAX: usize = 12;

pub(crate) fn run(args: &InferArgs, json: bool) -> Result<Exit, Faults> {
    let place = repository(args.place.models.as_deref(), args.place.data.as_deref());
    let wanted = board_model(&args.model, 1, Some(&args.tune));
    let engines = BoardEngines::new(&inference(&args.engine)?)?;
    let mut loaded = load_model(&wanted, &engines, &place, &EventLines)?;
    let mut plan = Plan::bind(&mut loaded)?;
    let gallery = args.gallery.as_deref().map(|dir| gallery::read(dir, |image| plan.embed(image)));
    let known =
        KnownIdentities { gallery: gallery.transpose()?, score_min: loaded.model.head.score_threshold };
    let (mut faults, mut left_out) = (FaultList::default(), 0);
    for (path, seq) in args.inputs.iter().zip(0..).take_while(|_| !output::is_unread()) {
        match plan.infer(path, seq, &loaded, &known, &mut left_out) {
            Ok(lines) if json => lines.iter().for_each(output::print_json),
            Ok(lines) => output::print(&describe(path, &lines, &loaded.model.labels, &known)),
            Err(fault) => faults.push(fault),
        }
    }
    if left_out > 0 {
        output::warn(&not_finite(&loaded.name).to_string());
    }
    faults.finish(Exit::Done)
}

/// Identities that a model may recognise.
struct KnownIdentities {
    gallery: Option<Gallery>,
    score_min: f32,
}

impl KnownIdentities {
    /// Names what `inference` has the embedding of; gives the names that its classes then mean.
    fn name(&self, inference: &mut InferenceResult) -> Option<&[String]> {
        /// The likest few: a second guess helps to judge the first.
        const MATCHES_MAX: usize = 5;
        let gallery = self.gallery.as_ref()?;
        gallery.find(&inference.embedding, self.score_min, MATCHES_MAX, &mut inference.classes);
        Some(gallery.names())
    }
}

/// A plan for what the model takes.
enum Plan {
    Image(Box<dyn Executor>, Arc<dyn Clock>),
    Audio(Box<AudioPlan>),
}

impl Plan {
    fn bind(loaded: &mut LoadedModel) -> Result<Self, Diagnosis> {
        match loaded.model.input {
            ModelInput::Image(_) => {
                let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
                Ok(Self::Image(bind_plan(loaded, Arc::clone(&clock), None)?, clock))
            }
            ModelInput::Audio(_) => Ok(Self::Audio(Box::new(bind_audio(loaded)?))),
        }
    }

    /// Computes the embedding of the image at `path`.
    fn embed(&mut self, path: &Path) -> Result<Vec<f32>, Diagnosis> {
        let Self::Image(plan, clock) = self else { return Err(no_embedding(path)) };
        let frame = orinoco_media::decode_image(path, &**clock)?;
        let mut inference = vec![InferenceResult::default(); plan.batch_max()];
        plan.execute(std::slice::from_ref(&frame), &mut inference[..1])?;
        let embedding = std::mem::take(&mut inference[0].embedding);
        if inference[0].not_finite > 0 {
            return Err(not_finite(&path.display().to_string()));
        }
        if embedding.is_empty() { Err(no_embedding(path)) } else { Ok(embedding) }
    }

    /// Runs the model on the image or sound at `path`. Adds the number of values that were not finite to `left_out`.
    fn infer(
        &mut self,
        path: &Path,
        seq: u64,
        loaded: &LoadedModel,
        known: &KnownIdentities,
        left_out: &mut u64,
    ) -> Result<Vec<ResultLine>, Diagnosis> {
        let line = |inference: &InferenceResult, labels: &[String]| {
            ResultLine::new(&loaded.name, loaded.chosen.name, inference, labels)
        };
        let shown = path.display().to_string();
        match self {
            Self::Image(plan, clock) => {
                let frame = orinoco_media::decode_image(path, &**clock)?;
                let mut inference = vec![InferenceResult::default(); plan.batch_max()];
                plan.execute(std::slice::from_ref(&frame), &mut inference[..1])?;
                *left_out += inference[0].not_finite;
                let labels = known.name(&mut inference[0]).unwrap_or(&loaded.model.labels);
                Ok(vec![ResultLine { image: Some(shown), seq, ..line(&inference[0], labels) }])
            }
            Self::Audio(plan) => {
                let sound = orinoco_media::read_wav(path)?;
                let wanted = plan.spec().sample_rate;
                if sound.sample_rate != wanted {
                    let cause =
                        format!("its sample rate is {} Hz, but the model needs {wanted}", sound.sample_rate);
                    let next = format!("convert it: ffmpeg -i FILE -ar {wanted} out.wav");
                    return Err(Diagnosis::new(&codes::MODEL_DISAGREES, shown, cause, next));
                }
                let heard = plan.run(&sound.samples)?;
                *left_out += heard.iter().map(|heard| heard.inference.not_finite).sum::<u64>();
                let lines = heard.iter().zip(0..).map(|(heard, seq)| ResultLine {
                    audio: Some(shown.clone()),
                    seq,
                    pts_ns: u64::try_from(heard.at.as_nanos()).unwrap_or(u64::MAX),
                    ..line(&heard.inference, &loaded.model.labels)
                });
                Ok(lines.collect())
            }
        }
    }
}

fn no_embedding(path: &Path) -> Diagnosis {
    let next = "use --gallery with a model whose head is `embedding`";
    Diagnosis::new(&codes::MODEL_DISAGREES, path.display(), "the model has no embedding output", next)
}

fn describe(path: &Path, lines: &[ResultLine], labels: &[String], known: &KnownIdentities) -> String {
    let shown = path.display();
    match lines {
        [line] if known.gallery.is_some() && line.classes.is_empty() => {
            format!("{shown}: no match in the gallery above {:.2}", known.score_min)
        }
        [line] => format!("{shown}: {}", describe_line(line, labels)),
        lines => describe_sound(&shown.to_string(), lines),
    }
}

/// A sound of many windows: the best class of each, and of the middle ones only their number.
fn describe_sound(shown: &str, lines: &[ResultLine]) -> String {
    let row = |line: &ResultLine| {
        let seconds = format!("{:.2}", line.pts_ns as f64 / 1e9);
        let best = line.classes.first();
        let label = best.map_or_else(String::new, |class| class.label.clone());
        let score = best.map_or_else(String::new, |class| format!("{:.3}", class.score));
        vec![seconds, label, score]
    };
    let rows = lines.iter().take(WINDOWS_SHOWN_MAX).map(row).collect();
    let mut text = format!(
        "{shown}: {}\n{}",
        output::count(lines.len() as u64, "window"),
        output::table(&["seconds", "class", "score"], 2, rows)
    );
    if lines.len() > WINDOWS_SHOWN_MAX {
        text.push_str(&format!("\nand {} more; --json prints all", lines.len() - WINDOWS_SHOWN_MAX));
    }
    text
}

fn describe_line(line: &ResultLine, labels: &[String]) -> String {
    if !line.detections.is_empty() {
        return detections(line);
    }
    if !line.classes.is_empty() {
        let rows = line.classes.iter().map(|class| vec![class.label.clone(), format!("{:.3}", class.score)]);
        return format!("\n{}", output::table(&["class", "score"], 1, rows.collect()));
    }
    if let Some(mask) = &line.mask {
        return areas(mask, labels);
    }
    if !line.embedding.is_empty() {
        return format!(
            "an embedding of {}; --json prints it",
            output::count(line.embedding.len() as u64, "number")
        );
    }
    if !line.tensors.is_empty() {
        let rows = line.tensors.iter().map(|tensor| {
            let least = tensor.data.iter().copied().fold(f32::INFINITY, f32::min);
            let most = tensor.data.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            vec![
                tensor.name.clone(),
                format!("{:?}", tensor.shape),
                format!("{least:.4}"),
                format!("{most:.4}"),
            ]
        });
        return format!("\n{}", output::table(&["tensor", "shape", "min", "max"], 1, rows.collect()));
    }
    "nothing found".to_owned()
}

fn detections(line: &ResultLine) -> String {
    let rows = line.detections.iter().map(|found| {
        let corners = found.bounds.map(|value| format!("{value:.0}"));
        [vec![found.label.clone(), format!("{:.3}", found.score)], corners.to_vec()].concat()
    });
    let table = output::table(&["label", "score", "x1", "y1", "x2", "y2"], 1, rows.collect());
    format!("{} found\n{table}", output::count(line.detections.len() as u64, "object"))
}

/// The share of the image that each class covers, largest first.
fn areas(mask: &ClassMapJson, labels: &[String]) -> String {
    let mut cells = std::collections::BTreeMap::<u32, u64>::new();
    for [class, count] in &mask.runs {
        *cells.entry(*class).or_default() += u64::from(*count);
    }
    let all = (u64::from(mask.width) * u64::from(mask.height)).max(1);
    let mut shares: Vec<(u32, u64)> = cells.into_iter().collect();
    shares.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let rows = shares.iter().map(|(class, count)| {
        let name = labels.get(*class as usize).cloned().unwrap_or_else(|| format!("class {class}"));
        vec![name, format!("{:.1} %", 100.0 * *count as f64 / all as f64)]
    });
    format!("{} by {}\n{}", mask.width, mask.height, output::table(&["class", "area"], 1, rows.collect()))
}
