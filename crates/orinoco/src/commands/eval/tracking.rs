//! `orinoco eval` on sequences in the MOTChallenge layout: accuracy of tracking, by this tracker or another one.

use std::path::{Path, PathBuf};

use orinoco_api::{EVAL_SCHEMA, EvalReport, EvalResult, SequenceFigures, TrackingFigures};
use orinoco_config::Faults;
use orinoco_core::{Detection, Diagnosis, InferenceResult, Pts, WithSubject, codes};
use orinoco_eval::mot::{self, Folder, PEDESTRIAN, Row, Sequence};
use orinoco_runtime::LoadedModel;
use orinoco_vision::{Tracker, TrackerConfig};

use super::entries::{Entries, Entry, check_not_read, load, name_model, number, watch};
use crate::args::EvalArgs;
use crate::output;

/// Class names of models that correspond to MOTChallenge's class pedestrian.
const PEOPLE: [&str; 2] = ["person", "pedestrian"];
/// Name of the row for all sequences together.
const COMBINED: &str = "combined";

fn figures(report: &mot::Report) -> TrackingFigures {
    let mot::Report { hota, clear, identity, objects } = report;
    TrackingFigures {
        hota: hota.hota(),
        deta: hota.det_a(),
        assa: hota.ass_a(),
        loca: hota.loc_a(),
        mota: clear.mota(),
        motp: clear.motp(),
        idf1: identity.idf1(),
        idp: identity.idp(),
        idr: identity.idr(),
        switches: clear.switches,
        fragmentations: clear.fragmentations,
        false_positives: clear.strays,
        misses: clear.misses,
        tracks_found: objects.found,
        tracks_labelled: objects.labelled,
    }
}

/// Metric of a text report.
pub(super) struct Figure {
    /// Full name.
    pub(super) name: &'static str,
    /// Usual abbreviation, for narrow columns.
    short: &'static str,
    value: Value,
}

enum Value {
    /// Ratio, 0 to 1.
    Share(fn(&TrackingFigures) -> Option<f64>),
    /// Count.
    Count(fn(&TrackingFigures) -> u64),
}

impl Figure {
    const fn share(name: &'static str, value: fn(&TrackingFigures) -> Option<f64>) -> Self {
        Self { name, short: name, value: Value::Share(value) }
    }

    const fn count(name: &'static str, short: &'static str, value: fn(&TrackingFigures) -> u64) -> Self {
        Self { name, short, value: Value::Count(value) }
    }

    /// Returns its value as text; a dash if there is none.
    pub(super) fn text(&self, followed: Option<&TrackingFigures>) -> String {
        match self.value {
            Value::Share(share) => number(followed.and_then(share)),
            Value::Count(count) => {
                followed.map_or_else(|| number(None), |followed| count(followed).to_string())
            }
        }
    }
}

/// Metrics in the order in which the challenge lists them.
pub(super) const FIGURES: [Figure; 15] = [
    Figure::share("HOTA", |f| Some(f.hota)),
    Figure::share("DetA", |f| Some(f.deta)),
    Figure::share("AssA", |f| Some(f.assa)),
    Figure::share("LocA", |f| Some(f.loca)),
    Figure::share("MOTA", |f| f.mota),
    Figure::share("MOTP", |f| f.motp),
    Figure::share("IDF1", |f| f.idf1),
    Figure::share("IDP", |f| f.idp),
    Figure::share("IDR", |f| f.idr),
    Figure::count("ID switches", "IDSW", |f| f.switches),
    Figure::count("fragmentations", "Frag", |f| f.fragmentations),
    Figure::count("false positives", "FP", |f| f.false_positives),
    Figure::count("misses", "FN", |f| f.misses),
    Figure::count("tracks found", "found", |f| f.tracks_found),
    Figure::count("tracks labelled", "labelled", |f| f.tracks_labelled),
];

/// Evaluates `sequences`: tracks of a model's detections, or the results of another tracker.
pub(super) fn report(args: &EvalArgs, sequences: &[Folder]) -> Result<EvalReport, Faults> {
    check_options(args)?;
    // Without labels (a challenge's test sequences), a run is only useful if its results are saved.
    if args.save_results.is_none() {
        sequences.iter().try_for_each(Folder::check_labelled)?;
    }
    let set = SequenceSet { sequences, frames_max: args.limit.unwrap_or(usize::MAX) };
    let mut files = Vec::new();
    let (result, against) = match (Entries::of(args), &args.results) {
        (Some(entries), _) => {
            let place = args.save_results.as_deref().map(|path| set.place(path)).transpose()?;
            if let Some(place) = &place {
                check_not_read(args, sequences.iter().map(|sequence| place.file(sequence)))?;
            }
            let save = |sequence: &Folder, found: &Sequence| {
                let Some(place) = &place else { return Ok(()) };
                let file = place.file(sequence);
                files.push(file.display().to_string());
                found.write_results(&file)
            };
            let first = set.run(args, &entries.first, save)?;
            let other = entries.against.map(|other| set.run(args, &other, |_, _| Ok(())));
            (first, other.transpose()?)
        }
        (None, Some(results)) => (set.read(results)?, None),
        (None, None) => unreachable!("the command line has a model or results"),
    };
    let (dataset, images) = (args.dataset.display().to_string(), set.images());
    let schema = EVAL_SCHEMA.to_owned();
    Ok(EvalReport { schema, dataset, images, result, against, differences: Vec::new(), files })
}

/// Refuses options that do not apply to tracking.
fn check_options(args: &EvalArgs) -> Result<(), Diagnosis> {
    for (option, given) in [("--plots", args.plots.is_some()), ("--at", args.at.is_some())] {
        if given {
            let cause = format!("it has tracking sequences, to which {option} does not apply");
            let next = format!("remove {option}");
            return Err(Diagnosis::new(&codes::DATASET, args.dataset.display(), cause, next));
        }
    }
    Ok(())
}

/// Sequences to evaluate, and the number of frames of each.
struct SequenceSet<'a> {
    sequences: &'a [Folder],
    frames_max: usize,
}

impl SequenceSet<'_> {
    fn frames(&self, sequence: &Folder) -> usize {
        self.frames_max.min(sequence.frames() as usize)
    }

    fn images(&self) -> usize {
        self.sequences.iter().map(|sequence| self.frames(sequence)).sum()
    }

    /// Tracks a model's detections in every sequence; `save` gets the tracks of each sequence.
    fn run(
        &self,
        args: &EvalArgs,
        entry: &Entry<'_>,
        mut save: impl FnMut(&Folder, &Sequence) -> Result<(), Diagnosis>,
    ) -> Result<EvalResult, Faults> {
        let images = self.sequences.iter().map(Folder::images).collect::<Result<Vec<_>, Diagnosis>>()?;
        let mut loaded = load(args, entry, args.tune.score)?;
        let mut found = Vec::new();
        for (sequence, images) in self.sequences.iter().zip(images) {
            let rows = track(&mut loaded, &images[..self.frames(sequence)], sequence.frame_rate())?;
            save(sequence, &rows)?;
            found.push(rows);
        }
        let mut result = self.judge(&found);
        name_model(&mut result, &loaded);
        Ok(result)
    }

    /// Reads the results of another tracker.
    fn read(&self, path: &Path) -> Result<EvalResult, Diagnosis> {
        let place = ResultsPath::of(path, self.sequences)?;
        let found = self.sequences.iter().map(|sequence| sequence.read_results(&place.file(sequence)));
        let judged = self.judge(&found.collect::<Result<Vec<_>, Diagnosis>>()?);
        Ok(EvalResult { results: Some(path.display().to_string()), ..judged })
    }

    /// Evaluates the tracks `found` in each sequence.
    fn judge(&self, found: &[Sequence]) -> EvalResult {
        let mut combined: Option<mot::Report> = None;
        let mut rows = Vec::new();
        for (sequence, found) in self.sequences.iter().zip(found) {
            let images = self.frames(sequence);
            let report = sequence.judge(found, images as u32);
            if let Some(report) = &report {
                *combined.get_or_insert_default() += report;
            }
            let tracking = report.as_ref().map(figures);
            rows.push(SequenceFigures { name: sequence.name().to_owned(), images, tracking });
        }
        EvalResult { tracking: combined.as_ref().map(figures), sequences: rows, ..EvalResult::default() }
    }

    /// Opens the output for results: the file `path` for one sequence, a folder for several. The folder is created now, so that
    /// an error is not found only after hours.
    fn place(&self, path: &Path) -> Result<ResultsPath, Diagnosis> {
        let folder = if self.sequences.len() > 1 { path } else { path.parent().unwrap_or(path) };
        let next = "name a path in a folder that can be written";
        std::fs::create_dir_all(folder).about(&codes::SINK_OPEN, folder.display(), next)?;
        ResultsPath::of(path, self.sequences)
    }
}

/// Location of results.
enum ResultsPath {
    /// File for one sequence.
    File(PathBuf),
    /// Folder with `NAME.txt` for each sequence.
    Folder(PathBuf),
}

impl ResultsPath {
    fn of(path: &Path, sequences: &[Folder]) -> Result<Self, Diagnosis> {
        if path.is_dir() {
            return Ok(Self::Folder(path.to_owned()));
        }
        if sequences.len() > 1 {
            let what = if path.exists() { "a file" } else { "missing" };
            let cause = format!(
                "it is {what}, but {} need a folder",
                output::count(sequences.len() as u64, "sequence")
            );
            let next = format!("name the folder that has {}.txt and so on", sequences[0].name());
            return Err(Diagnosis::new(&codes::DATASET, path.display(), cause, next));
        }
        Ok(Self::File(path.to_owned()))
    }

    fn file(&self, sequence: &Folder) -> PathBuf {
        match self {
            Self::File(file) => file.clone(),
            Self::Folder(folder) => folder.join(format!("{}.txt", sequence.name())),
        }
    }
}

/// Tracks the model's detections in `images`, as in a stream of the same frames.
fn track(loaded: &mut LoadedModel, images: &[PathBuf], frame_rate: f64) -> Result<Sequence, Diagnosis> {
    let people = people(&loaded.model.labels);
    let name = loaded.name.clone();
    let mut tracker = Tracker::new(TrackerConfig::default());
    let (mut rows, mut ids) = (Vec::new(), Vec::new());
    watch(images, loaded, |index, found| {
        check_boxes(&name, found)?;
        found.detections.retain(|one| people.is_empty() || people.contains(&one.class_id));
        let pts = Pts((index as f64 * 1e9 / frame_rate).round() as u64);
        tracker.update(&found.detections, pts, &mut ids);
        let followed = found.detections.iter().zip(&ids).filter_map(|(one, id)| Some((one, (*id)?.0)));
        rows.extend(followed.map(|(one, id)| as_row(index, id, one)));
        Ok(())
    })?;
    Ok(Sequence::new(rows).expect("a tracker gives an id to one detection of a frame"))
}

/// Returns the classes that are people. If the model has none, the result is empty, and all detections are tracked.
fn people(labels: &[String]) -> Vec<u32> {
    let is_people = |label: &str| PEOPLE.iter().any(|name| label.eq_ignore_ascii_case(name));
    (0..).zip(labels).filter(|(_, label)| is_people(label)).map(|(class, _)| class).collect()
}

/// Checks that the model's results are detections: there is nothing else to track.
fn check_boxes(model: &str, found: &InferenceResult) -> Result<(), Diagnosis> {
    let speaks = found.class_map.width > 0
        || !(found.classes.is_empty() && found.embedding.is_empty() && found.tensors.is_empty());
    if speaks && found.detections.is_empty() {
        let cause = "its output has no boxes, but the dataset is for tracking";
        return Err(Diagnosis::new(&codes::MODEL_DISAGREES, model, cause, "use a detector"));
    }
    Ok(())
}

fn as_row(index: usize, id: u64, found: &Detection) -> Row {
    let [x1, y1, x2, y2] =
        [found.bounds.x1, found.bounds.y1, found.bounds.x2, found.bounds.y2].map(f64::from);
    Row {
        frame: index as u32 + 1,
        id,
        class: PEDESTRIAN,
        bounds: [x1, y1, x2 - x1, y2 - y1],
        confidence: f64::from(found.score),
        visibility: 1.0,
    }
}

/// Makes a row for each sequence, and one for all sequences unless there is only one.
pub(super) fn sequences_text(result: &EvalResult) -> Option<String> {
    if result.sequences.len() < 2 {
        return None;
    }
    let row = |name: &str, images: usize, followed: Option<&TrackingFigures>| {
        let figures = FIGURES.iter().map(|figure| figure.text(followed));
        [name.to_owned(), images.to_string()].into_iter().chain(figures).collect()
    };
    let each = result.sequences.iter().map(|one| row(&one.name, one.images, one.tracking.as_ref()));
    let images = result.sequences.iter().map(|one| one.images).sum();
    let rows = each.chain([row(COMBINED, images, result.tracking.as_ref())]).collect();
    let headings: Vec<&str> =
        ["sequence", "images"].into_iter().chain(FIGURES.iter().map(|figure| figure.short)).collect();
    Some(output::table(&headings, 1, rows))
}
