//! `orinoco eval`: accuracy of a model on a labelled dataset, and its differences from another engine or model.

mod entries;
mod tracking;

use std::collections::HashMap;
use std::path::Path;

use orinoco_api::{ClassFigures, EVAL_SCHEMA, EvalFigures, EvalReport, EvalResult, ImageDifference};
use orinoco_config::{Existing, Faults, write_whole};
use orinoco_core::{Diagnosis, Exit, InferenceResult, WithSubject, codes};
use orinoco_eval::coco::{self, FoundBox, Truth};
use orinoco_eval::{Confusion, Dataset, Labels, classification, detection, mot, plot, segmentation};
use orinoco_runtime::LoadedModel;

use self::entries::{Entries, Entry, check_not_read, load, name_model, number, watch};
use crate::args::EvalArgs;
use crate::output;

/// Score threshold for average precision, which needs results of low score too.
const SCORE_FOR_AP: f32 = 0.01;
/// Default score at which recall, precision and confusion are computed.
const OPERATING_SCORE: f64 = 0.25;
/// Minimum IoU of two boxes of the same object.
const SAME_OBJECT_IOU: f64 = 0.5;
/// Maximum number of rows in text tables.
const ROWS_MAX: usize = 20;

/// Results of an evaluation.
struct Evaluation {
    report: EvalReport,
    /// Whether labels are boxes, and not classes of images, masks or sequences.
    of_boxes: bool,
}

/// Metrics of a model, and the data of its plots.
#[derive(Default)]
struct EvaluatedModel {
    result: EvalResult,
    coco: Option<coco::Report>,
    confusion: Option<Confusion>,
    labels: Vec<String>,
}

pub(crate) fn run(args: &EvalArgs, json: bool) -> Result<Exit, Faults> {
    let sequences = mot::Folder::find(&args.dataset)?;
    let evaluation = if sequences.is_empty() {
        evaluate_images(args)?
    } else {
        Evaluation { report: tracking::report(args, &sequences)?, of_boxes: false }
    };
    if json {
        output::print_json(&evaluation.report)
    } else {
        output::print(&text(&evaluation, args.single_label))
    }
    Ok(Exit::Done)
}

/// Evaluates a model on labelled images.
fn evaluate_images(args: &EvalArgs) -> Result<Evaluation, Faults> {
    let mut dataset = Dataset::open(&args.dataset)?;
    let Some(entries) = Entries::of(args).filter(|_| args.save_results.is_none()) else {
        let cause = "it has no sequence in the MOTChallenge layout, which --results and --save-results need";
        let next = "name a folder with img1/ and gt/gt.txt, or leave the option out";
        return Err(Diagnosis::new(&codes::DATASET, args.dataset.display(), cause, next).into());
    };
    if let Some(folder) = &args.plots {
        make_folder(folder)?;
        check_not_read(args, PLOTS.map(|name| folder.join(name)))?;
    }
    dataset.items.truncate(args.limit.unwrap_or(usize::MAX));
    let (first, seen) = judge(args, &entries.first, &dataset)?;
    let (mut against, mut differences) = (None, Vec::new());
    if let Some(other) = &entries.against {
        let (second, also_seen) = judge(args, other, &dataset)?;
        differences = differ(&dataset, &seen, &also_seen, args.at.map_or(OPERATING_SCORE, f64::from));
        against = Some(second.result);
    }
    let files = match &args.plots {
        Some(folder) => draw(folder, &first)?,
        None => Vec::new(),
    };
    let report = EvalReport {
        schema: EVAL_SCHEMA.to_owned(),
        dataset: args.dataset.display().to_string(),
        images: seen.len(),
        result: first.result,
        against,
        differences,
        files,
    };
    Ok(Evaluation { report, of_boxes: first.coco.is_some() })
}

/// Runs a model on the dataset and evaluates it.
fn judge(
    args: &EvalArgs,
    entry: &Entry<'_>,
    dataset: &Dataset,
) -> Result<(EvaluatedModel, Vec<InferenceResult>), Faults> {
    let boxes = matches!(dataset.items[0].labels, Labels::Boxes(_));
    let mut loaded = load(args, entry, args.tune.score.or(boxes.then_some(SCORE_FOR_AP)))?;
    // Average precision counts every class of a box, as most evaluations do.
    loaded.model.head.multi_label = boxes && !args.single_label;
    judge_loaded(&mut loaded, dataset, args.at.map_or(OPERATING_SCORE, f64::from))
}

/// Checks that a loaded model has the classes of the dataset.
///
/// # Errors
/// `E0204` for a dataset of other classes.
pub(super) fn check_classes(loaded: &LoadedModel, dataset: &Dataset) -> Result<(), Diagnosis> {
    class_map(dataset, loaded).map(drop)
}

/// Returns the accuracy of a loaded model on the dataset, with the default settings of this command.
///
/// # Errors
/// `E0204` for a dataset of other classes; errors of the engine and of images that cannot be read.
pub(super) fn accuracy(loaded: &mut LoadedModel, dataset: &Dataset) -> Result<EvalFigures, Faults> {
    let boxes = matches!(dataset.items[0].labels, Labels::Boxes(_));
    let head = &mut loaded.model.head;
    let usual = (head.score_threshold, head.multi_label);
    if boxes {
        (head.score_threshold, head.multi_label) = (SCORE_FOR_AP, true);
    }
    let judged = judge_loaded(loaded, dataset, OPERATING_SCORE);
    (loaded.model.head.score_threshold, loaded.model.head.multi_label) = usual;
    judged.map(|(judged, _)| judged.result.figures)
}

/// Runs a loaded model on the dataset and evaluates it; recall, precision and confusion at the score `at`.
fn judge_loaded(
    loaded: &mut LoadedModel,
    dataset: &Dataset,
    at: f64,
) -> Result<(EvaluatedModel, Vec<InferenceResult>), Faults> {
    let classes = class_map(dataset, loaded)?;
    let seen = see(dataset, loaded)?;
    let mut judged = match dataset.items[0].labels {
        Labels::Boxes(_) => judge_boxes(dataset, &seen, loaded, &classes, at),
        Labels::Class(_) => judge_classes(dataset, &seen, loaded, &classes),
        Labels::Mask(_) => judge_masks(dataset, &seen, loaded, &classes)?,
    };
    name_model(&mut judged.result, loaded);
    judged.labels.clone_from(&loaded.model.labels);
    Ok((judged, seen))
}

/// Whether there were labels to evaluate against. A sequence without labels is only tracked.
fn is_labelled(result: &EvalResult) -> bool {
    result.sequences.is_empty() || result.tracking.is_some()
}

/// Heading of its column.
fn heading(result: &EvalResult) -> String {
    let ran = result.model.iter().chain(&result.engine).map(String::as_str).collect::<Vec<_>>().join(" on ");
    result.results.clone().unwrap_or(ran)
}

/// Returns the model's class for each class of the dataset: by name if both have names, else by number.
fn class_map(dataset: &Dataset, loaded: &LoadedModel) -> Result<Vec<usize>, Diagnosis> {
    let labels = &loaded.model.labels;
    let numbered = dataset.items.iter().flat_map(|item| match &item.labels {
        Labels::Boxes(boxes) => boxes.iter().map(|labelled| labelled.class + 1).max(),
        Labels::Class(class) => Some(class + 1),
        Labels::Mask(_) => None,
    });
    let count = dataset.classes.len().max(numbered.max().unwrap_or(labels.len()));
    let by_name: Option<Vec<usize>> = dataset
        .classes
        .iter()
        .map(|name| labels.iter().position(|label| label.eq_ignore_ascii_case(name)))
        .collect();
    match by_name {
        Some(classes) if !classes.is_empty() && classes.len() >= count => Ok(classes),
        _ if count <= labels.len() => Ok((0..count).collect()),
        _ => {
            let cause = format!(
                "the model has {}, but the dataset has {count}",
                output::count(labels.len() as u64, "class")
            );
            let next = "use a dataset of the model's classes";
            Err(Diagnosis::new(&codes::MODEL_DISAGREES, &loaded.name, cause, next))
        }
    }
}

/// Runs the model on every image.
fn see(dataset: &Dataset, loaded: &mut LoadedModel) -> Result<Vec<InferenceResult>, Diagnosis> {
    let mut seen = Vec::with_capacity(dataset.items.len());
    let images: Vec<&Path> = dataset.items.iter().map(|item| item.image.as_path()).collect();
    watch(&images, loaded, |_, found| {
        seen.push(found.clone());
        Ok(())
    })?;
    Ok(seen)
}

fn judge_boxes(
    dataset: &Dataset,
    seen: &[InferenceResult],
    loaded: &LoadedModel,
    classes: &[usize],
    at: f64,
) -> EvaluatedModel {
    let (mut truth, mut found) = (Vec::new(), Vec::new());
    for (image, (item, seen)) in dataset.items.iter().zip(seen).enumerate() {
        if let Labels::Boxes(boxes) = &item.labels {
            truth.extend(boxes.iter().map(|labelled| Truth {
                image,
                class: classes[labelled.class],
                bounds: labelled.bounds,
                area: labelled.area,
                crowd: labelled.crowd,
            }));
        }
        found.extend(as_found(seen, image));
    }
    let count = loaded.model.labels.len();
    let report = coco::evaluate(&truth, &found, count);
    let point = detection::Point { score: at, iou: SAME_OBJECT_IOU };
    let at_point = detection::evaluate(&truth, &found, count, point);
    let rows = report.classes.iter().enumerate().filter(|(_, class)| class.objects > 0);
    let rows = rows.map(|(class, figures)| ClassFigures {
        label: loaded.model.label(class as u32).to_owned(),
        labelled: figures.objects as u64,
        score: figures.ap,
        ap50: figures.ap50,
    });
    EvaluatedModel {
        result: EvalResult {
            figures: EvalFigures {
                ap: report.ap,
                ap50: report.ap50,
                ap75: report.ap75,
                ap_small: report.ap_by_area[0],
                ap_medium: report.ap_by_area[1],
                ap_large: report.ap_by_area[2],
                ar100: report.recall[2],
                recall: at_point.recall,
                precision: at_point.precision,
                ..EvalFigures::default()
            },
            classes: rows.collect(),
            ..EvalResult::default()
        },
        coco: Some(report),
        confusion: Some(at_point.confusion),
        ..EvaluatedModel::default()
    }
}

fn as_found(seen: &InferenceResult, image: usize) -> impl Iterator<Item = FoundBox> {
    seen.detections.iter().map(move |found| {
        let b = found.bounds;
        let [x1, y1, x2, y2] = [b.x1, b.y1, b.x2, b.y2].map(f64::from);
        FoundBox {
            image,
            class: found.class_id as usize,
            score: f64::from(found.score),
            bounds: [x1, y1, x2 - x1, y2 - y1],
        }
    })
}

fn judge_classes(
    dataset: &Dataset,
    seen: &[InferenceResult],
    loaded: &LoadedModel,
    classes: &[usize],
) -> EvaluatedModel {
    let answers = dataset.items.iter().zip(seen).filter_map(|(item, seen)| match item.labels {
        Labels::Class(class) => Some(classification::Answer {
            labelled: classes[class],
            found: seen.classes.iter().map(|class| class.class_id as usize).collect(),
        }),
        _ => None,
    });
    let answers: Vec<classification::Answer> = answers.collect();
    let report = classification::evaluate(&answers, loaded.model.labels.len());
    let mut labelled: HashMap<usize, u64> = HashMap::new();
    answers.iter().for_each(|answer| *labelled.entry(answer.labelled).or_default() += 1);
    let mut rows: Vec<(usize, u64)> = labelled.into_iter().collect();
    rows.sort_unstable();
    let rows = rows.into_iter().map(|(class, count)| ClassFigures {
        label: loaded.model.label(class as u32).to_owned(),
        labelled: count,
        score: Some(report.confusion.at(class, class) as f64 / count as f64),
        ap50: None,
    });
    EvaluatedModel {
        result: EvalResult {
            figures: EvalFigures { top1: report.top1, top5: report.top5, ..EvalFigures::default() },
            classes: rows.collect(),
            ..EvalResult::default()
        },
        confusion: Some(report.confusion),
        ..EvaluatedModel::default()
    }
}

fn judge_masks(
    dataset: &Dataset,
    seen: &[InferenceResult],
    loaded: &LoadedModel,
    classes: &[usize],
) -> Result<EvaluatedModel, Diagnosis> {
    let count = loaded.model.labels.len();
    let mut confusion = Confusion::new(count);
    for (item, seen) in dataset.items.iter().zip(seen) {
        let (Labels::Mask(mask), map) = (&item.labels, &seen.class_map) else { continue };
        if map.width == 0 {
            let next = "use a model with the head segmentation";
            let cause = "it does not classify pixels, but the dataset has masks";
            return Err(Diagnosis::new(&codes::MODEL_DISAGREES, &loaded.name, cause, next));
        }
        let (mut labelled, size) = Dataset::read_mask(mask)?;
        for class in labelled.iter_mut().filter(|class| **class != segmentation::NOT_LABELLED) {
            let mapped = classes.get(usize::from(*class)).and_then(|class| u8::try_from(*class).ok());
            *class = mapped.unwrap_or(segmentation::NOT_LABELLED);
        }
        segmentation::count(&mut confusion, &labelled, size, &map.classes, (map.width, map.height));
    }
    let report = segmentation::summarise(&confusion);
    let rows = report.iou.iter().enumerate().filter_map(|(class, iou)| {
        let label = loaded.model.label(class as u32).to_owned();
        iou.map(|iou| ClassFigures { label, labelled: confusion.row(class), score: Some(iou), ap50: None })
    });
    Ok(EvaluatedModel {
        result: EvalResult {
            figures: EvalFigures {
                miou: report.miou,
                pixel_accuracy: report.pixel_accuracy,
                ..EvalFigures::default()
            },
            classes: rows.collect(),
            ..EvalResult::default()
        },
        confusion: Some(confusion),
        ..EvaluatedModel::default()
    })
}

/// Returns the images in which two runs differ, largest difference first: boxes at or above `score` without a counterpart of
/// their class, a different best class, or cells of a class map.
fn differ(
    dataset: &Dataset,
    first: &[InferenceResult],
    second: &[InferenceResult],
    score: f64,
) -> Vec<ImageDifference> {
    let unmatched = |ours: &InferenceResult, theirs: &InferenceResult| {
        let counts = ours.detections.iter().filter(|found| f64::from(found.score) >= score);
        let alone = counts.filter(|found| {
            !theirs.detections.iter().any(|other| {
                other.class_id == found.class_id
                    && f64::from(other.bounds.iou(&found.bounds)) >= SAME_OBJECT_IOU
            })
        });
        let best = |inference: &InferenceResult| inference.classes.first().map(|class| class.class_id);
        let cells = ours.class_map.classes.iter().zip(&theirs.class_map.classes);
        let moved = 1000 * cells.filter(|(a, b)| a != b).count();
        alone.count() + usize::from(best(ours) != best(theirs)) + moved / ours.class_map.classes.len().max(1)
    };
    let pairs = dataset.items.iter().zip(first.iter().zip(second));
    let mut differences: Vec<ImageDifference> = pairs
        .map(|(item, (first, second))| ImageDifference {
            image: item.image.display().to_string(),
            only_first: unmatched(first, second),
            only_second: unmatched(second, first),
        })
        .filter(|difference| difference.only_first + difference.only_second > 0)
        .collect();
    differences.sort_by_key(|difference| std::cmp::Reverse(difference.only_first + difference.only_second));
    differences
}

/// Draws the precision-recall curves and the confusion matrix.
const PLOTS: [&str; 2] = ["precision_recall.svg", "confusion.svg"];

const PLOTS_NEXT: &str = "check that the folder can be written";

/// Creates the folder for plots before the evaluation, so that an error is not found only after hours.
fn make_folder(folder: &Path) -> Result<(), Diagnosis> {
    std::fs::create_dir_all(folder).about(&codes::SINK_OPEN, folder.display(), PLOTS_NEXT)
}

fn draw(folder: &Path, judged: &EvaluatedModel) -> Result<Vec<String>, Diagnosis> {
    let curves = judged.coco.as_ref().map(|report| plot::precision_recall(report, &judged.labels));
    let matrix = judged.confusion.as_ref().map(|matrix| plot::confusion(matrix, &judged.labels));
    let mut files = Vec::new();
    for (name, svg) in PLOTS.into_iter().zip([curves, matrix]) {
        if let Some(svg) = svg {
            let path = folder.join(name);
            let written = write_whole(&path, svg.as_bytes(), Existing::Replace);
            written.about(&codes::SINK_OPEN, path.display(), PLOTS_NEXT)?;
            files.push(path.display().to_string());
        }
    }
    Ok(files)
}

fn text(evaluation: &Evaluation, single_label: bool) -> String {
    let Evaluation { report, of_boxes } = evaluation;
    let runs: Vec<&EvalResult> = std::iter::once(&report.result).chain(&report.against).collect();
    let mut parts = vec![format!("{}  {}", report.dataset, output::count(report.images as u64, "image"))];
    parts.push(match is_labelled(&report.result) {
        true if *of_boxes => {
            format!("{}\n{}", figures_text(&runs), labels_text(single_label))
        }
        true => figures_text(&runs),
        false => "not evaluated: there are no labels".to_owned(),
    });
    if report.result.sequences.is_empty() {
        parts.push(classes_text(&report.result.classes, *of_boxes));
        if report.against.is_some() {
            parts.push(differences_text(&report.differences, report.images));
        }
    } else {
        parts.extend(tracking::sequences_text(&report.result));
    }
    parts.extend(report.files.iter().map(|file| format!("wrote {file}")));
    parts.join("\n\n")
}

/// Returns a sentence about the classes of a box that are counted: only metrics under the same rule are comparable.
fn labels_text(single_label: bool) -> &'static str {
    match single_label {
        false => {
            "Every class of a box above the score threshold is counted. For results that count only the best class of \
             each box, use --single-label."
        }
        true => "Only the best class of each box is counted (--single-label).",
    }
}

/// Makes a table with a row for each metric and a column for each run.
fn figures_text(runs: &[&EvalResult]) -> String {
    type Figure = (&'static str, fn(&EvalFigures) -> Option<f64>);
    const FIGURES: [Figure; 13] = [
        ("AP", |f| f.ap),
        ("AP50", |f| f.ap50),
        ("AP75", |f| f.ap75),
        ("AP small", |f| f.ap_small),
        ("AP medium", |f| f.ap_medium),
        ("AP large", |f| f.ap_large),
        ("AR100", |f| f.ar100),
        ("recall", |f| f.recall),
        ("precision", |f| f.precision),
        ("top-1", |f| f.top1),
        ("top-5", |f| f.top5),
        ("mIoU", |f| f.miou),
        ("pixel accuracy", |f| f.pixel_accuracy),
    ];
    let row = |name: &str, values: Vec<String>| std::iter::once(name.to_owned()).chain(values).collect();
    let rows = FIGURES.iter().filter(|(_, figure)| runs.iter().any(|run| figure(&run.figures).is_some()));
    let rows =
        rows.map(|(name, figure)| row(name, runs.iter().map(|run| number(figure(&run.figures))).collect()));
    let followed = runs.iter().any(|run| run.tracking.is_some()).then_some(tracking::FIGURES);
    let followed = followed
        .iter()
        .flatten()
        .map(|figure| row(figure.name, runs.iter().map(|run| figure.text(run.tracking.as_ref())).collect()));
    let names: Vec<String> = runs.iter().map(|run| heading(run)).collect();
    let headings: Vec<&str> = std::iter::once("").chain(names.iter().map(String::as_str)).collect();
    output::table(&headings, 1, rows.chain(followed).collect())
}

/// Makes a table of the classes with the most labels.
fn classes_text(classes: &[ClassFigures], of_boxes: bool) -> String {
    let mut classes: Vec<&ClassFigures> = classes.iter().collect();
    classes.sort_by_key(|class| std::cmp::Reverse(class.labelled));
    let headings: &[&str] =
        if of_boxes { &["class", "labelled", "AP", "AP50"] } else { &["class", "labelled", "right"] };
    let rows = classes.iter().take(ROWS_MAX).map(|class| {
        let mut row = vec![class.label.clone(), class.labelled.to_string(), number(class.score)];
        row.extend(of_boxes.then(|| number(class.ap50)));
        row
    });
    let mut text = output::table(headings, 1, rows.collect());
    if classes.len() > ROWS_MAX {
        text.push_str(&format!("\nand {} more; --json has all", classes.len() - ROWS_MAX));
    }
    text
}

fn differences_text(differences: &[ImageDifference], images: usize) -> String {
    let rows = differences.iter().take(ROWS_MAX).map(|difference| {
        vec![difference.image.clone(), difference.only_first.to_string(), difference.only_second.to_string()]
    });
    let table = output::table(&["image", "only in first", "only in second"], 1, rows.collect());
    format!(
        "the two runs differ in {} of {}\n{table}",
        differences.len(),
        output::count(images as u64, "image")
    )
}
