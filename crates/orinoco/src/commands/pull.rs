//! `orinoco models pull` and `orinoco models list --cluster`: models of other boards of the cluster, through the daemon.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use orinoco_api::{ClusterModels, PULL_SCHEMA, PullReport, PulledFile, SharedFile, SharedModel};
use orinoco_config::Faults;
use orinoco_core::{Diagnosis, Exit, WithSubject, codes};
use orinoco_model::{Repository, is_portable, sha256_of_file, version_of};
use orinoco_runtime::repository;
use tempfile::TempDir;

use crate::args::PullArgs;
use crate::client::{Client, DaemonArgs};
use crate::output::{self, mebibytes};

/// Repository of a board, for models that no other repository has.
const REPOSITORY: &str = "/var/lib/orinoco/models";

/// Next step where a repository cannot be written.
const NEXT_WRITE: &str = "use `sudo`, or choose another repository with --models";

/// Lists the models that the other boards share.
pub(crate) fn list(socket: Option<PathBuf>, json: bool) -> Result<Exit, Faults> {
    let shared = client(socket)?.cluster_models()?;
    match json {
        true => output::print_json(&shared),
        false => output::print(&text(&shared)),
    }
    let is_whole = shared.seats.iter().all(|seat| seat.fault.is_none());
    Ok(if is_whole { Exit::Done } else { Exit::CheckFailed })
}

fn client(socket: Option<PathBuf>) -> Result<Client, Diagnosis> {
    Client::new(&DaemonArgs { socket, address: None })
}

fn text(shared: &ClusterModels) -> String {
    let rows: Vec<Vec<String>> = shared
        .seats
        .iter()
        .flat_map(|seat| seat.models.iter().map(move |model| (seat, model)))
        .map(|(seat, model)| {
            let version = model.version.map_or_else(|| "-".to_owned(), |version| version.to_string());
            vec![model.name.clone(), version, seat.seat.clone(), mebibytes(model.bytes())]
        })
        .collect();
    let faults = shared.seats.iter().filter_map(|seat| Some((&seat.seat, seat.fault.as_ref()?)));
    let faults: Vec<String> = faults.map(|(seat, why)| format!("seat {seat}: {why}")).collect();
    let table = match rows.is_empty() {
        true => "no other board of the cluster shares models: set `share_models = true` in [cluster] of its board file, and see \
                 `orinoco status` for the members of the epoch"
            .to_owned(),
        false => output::table(&["model", "version", "seat", "size"], 3, rows),
    };
    match faults.is_empty() {
        true => table,
        false => format!("{table}\n\n{}", faults.join("\n")),
    }
}

/// Copies a model into the repository.
pub(crate) fn run(args: &PullArgs, json: bool) -> Result<Exit, Faults> {
    let client = client(args.socket.clone())?;
    let shared = client.cluster_models()?;
    let (seat, model) = choose(&shared, &args.model, args.seat.as_deref())?;
    check_paths(model)?;
    let root = root_of(&model.name, args.models.as_deref());
    let folder = root.join(&model.name);
    let states = states(model, &folder)?;
    let copied = copy(&client, seat, model, &states, &root)?;
    place(model, &states, copied.path(), &folder)?;
    check(&root, &model.name)?;
    let report = report(seat, model, &states, &folder);
    match json {
        true => output::print_json(&report),
        false => output::print(&report_text(&report)),
    }
    Ok(Exit::Done)
}

/// Chooses the seat from which a model is copied.
fn choose<'a>(
    shared: &'a ClusterModels,
    name: &str,
    wanted: Option<&str>,
) -> Result<(&'a str, &'a SharedModel), Diagnosis> {
    let fault = |cause: String, next: &str| Diagnosis::new(&codes::MODEL_COPY, name, cause, next);
    let of_seat = |seat: &str| wanted.is_none_or(|wanted| wanted == seat);
    let offers = || {
        let seats = shared.seats.iter().filter(|seat| of_seat(&seat.seat));
        let found = seats.filter_map(|seat| Some((&*seat.seat, seat.models.iter().find(|model| model.name == name)?)));
        found.collect::<Vec<_>>()
    };
    let offers = offers();
    let [first, others @ ..] = &offers[..] else {
        let unknown = shared.seats.iter().filter(|seat| of_seat(&seat.seat)).find_map(|seat| {
            Some(format!("seat {}: {}", seat.seat, seat.fault.as_ref()?))
        });
        let cause = unknown.unwrap_or_else(|| match wanted {
            Some(seat) => format!("seat {seat} does not share a model of this name"),
            None => "no other board of the cluster shares a model of this name".to_owned(),
        });
        return Err(fault(cause, "see what is shared with `orinoco models list --cluster`"));
    };
    if let Some((other, _)) = others.iter().find(|(_, model)| model.files != first.1.files) {
        let cause = format!("seats {} and {other} share different files of this model", first.0);
        return Err(fault(cause, "choose one with --seat"));
    }
    Ok(*first)
}

/// Checks that no file of a model would be outside its folder.
fn check_paths(model: &SharedModel) -> Result<(), Diagnosis> {
    let is_name = is_portable(&model.name) && !model.name.contains('/');
    let paths = || model.files.iter().map(|file| file.path.as_str());
    let wrong = paths().find(|path| !is_portable(path)).map(str::to_owned);
    let wrong = wrong.or((!is_name).then(|| model.name.clone()));
    let has_description = paths().any(|path| path == "model.toml");
    let cause = match wrong {
        Some(wrong) => format!("the other board names a file {wrong:?}, which is no path in a model's folder"),
        None if !has_description => "the other board names no model.toml".to_owned(),
        None => return Ok(()),
    };
    Err(Diagnosis::new(&codes::MODEL_COPY, &model.name, cause, "check that board, and its version of orinocod"))
}

/// Returns the repository for a model.
fn root_of(name: &str, wanted: Option<&Path>) -> PathBuf {
    let roots = repository(wanted, None).roots;
    let is_chosen = wanted.is_some() || roots.len() == 1;
    let known = roots.iter().find(|root| is_chosen || root.join(name).join("model.toml").is_file());
    known.cloned().unwrap_or_else(|| PathBuf::from(REPOSITORY))
}

/// State of a file in the repository, compared with that of the other board.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Added,
    Replaced,
    Unchanged,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Replaced => "replaced",
            Self::Unchanged => "unchanged",
        }
    }
}

/// Compares a model's files with those in the repository. The description and what belongs to all versions may be replaced; what a
/// version consists of may not.
fn states(model: &SharedModel, folder: &Path) -> Result<Vec<State>, Diagnosis> {
    let state = |file: &SharedFile| {
        let path = folder.join(&file.path);
        let known = match File::open(&path).and_then(sha256_of_file) {
            Ok(known) => known,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(State::Added),
            Err(why) => return Err(why).about(&codes::MODEL_COPY, path.display(), NEXT_WRITE),
        };
        let is_of_model = version_of(&file.path).is_none() && !file.path.ends_with(".onnx");
        match known == file.sha256 {
            true => Ok(State::Unchanged),
            false if is_of_model => Ok(State::Replaced),
            false => {
                let cause = "the repository has another file of this name, which may be in use";
                let next = "give the model a new version on the other board, or remove this file first";
                Err(Diagnosis::new(&codes::MODEL_COPY, path.display(), cause, next))
            }
        }
    };
    model.files.iter().map(state).collect()
}

/// Copies what the repository lacks into a folder of its own in the repository, and checks it.
fn copy(
    client: &Client,
    seat: &str,
    model: &SharedModel,
    states: &[State],
    root: &Path,
) -> Result<TempDir, Diagnosis> {
    let written = |path: &Path, done: io::Result<()>| done.about(&codes::MODEL_COPY, path.display(), NEXT_WRITE);
    written(root, fs::create_dir_all(root))?;
    let folder = tempfile::Builder::new().prefix(".orinoco-pull-").tempdir_in(root);
    let folder = folder.about(&codes::MODEL_COPY, root.display(), NEXT_WRITE)?;
    let missing = || model.files.iter().zip(states).filter(|(_, state)| **state != State::Unchanged);
    let bar = output::bytes_bar(missing().map(|(file, _)| file.bytes).sum());
    for (file, _) in missing() {
        let path = folder.path().join(&file.path);
        let above = path.parent().expect("a folder");
        written(&path, fs::create_dir_all(above))?;
        let copied = copy_file(client, seat, model, file, &path, &bar)?;
        written(&path, copied)?;
        check_hash(seat, model, file, &path)?;
    }
    bar.finish_and_clear();
    Ok(folder)
}

/// Copies one file. The inner result is that of writing.
fn copy_file(
    client: &Client,
    seat: &str,
    model: &SharedModel,
    file: &SharedFile,
    path: &Path,
    bar: &ProgressBar,
) -> Result<io::Result<()>, Diagnosis> {
    let mut output = match File::create_new(path) {
        Ok(output) => output,
        Err(why) => return Ok(Err(why)),
    };
    let mut offset = 0;
    while offset < file.bytes {
        let data = client.model_data(seat, &model.name, &file.path, offset)?;
        if data.is_empty() {
            break;
        }
        if let Err(why) = output.write_all(&data) {
            return Ok(Err(why));
        }
        offset += data.len() as u64;
        bar.inc(data.len() as u64);
    }
    Ok(output.sync_all())
}

fn check_hash(seat: &str, model: &SharedModel, file: &SharedFile, path: &Path) -> Result<(), Diagnosis> {
    let is = File::open(path).and_then(sha256_of_file).about(&codes::MODEL_COPY, path.display(), NEXT_WRITE)?;
    if is == file.sha256 {
        return Ok(());
    }
    let subject = format!("seat {seat}, model {}, file {}", model.name, file.path);
    let cause = "the copy has another SHA-256 hash: the file was changed on the other board meanwhile";
    Err(Diagnosis::new(&codes::MODEL_COPY, subject, cause, "try again"))
}

/// Moves what was copied into the model's folder: a version's ONNX file, by which the version is found, after its weights, and the
/// description last. So the model can be loaded at any time.
fn place(model: &SharedModel, states: &[State], copied: &Path, folder: &Path) -> Result<(), Diagnosis> {
    let mut moved: Vec<&SharedFile> = model
        .files
        .iter()
        .zip(states)
        .filter(|(_, state)| **state != State::Unchanged)
        .map(|(file, _)| file)
        .collect();
    moved.sort_by_key(|file| (file.path == "model.toml", file.path.ends_with(".onnx")));
    for file in moved {
        let path = folder.join(&file.path);
        let above = path.parent().expect("a folder");
        let done = fs::create_dir_all(above).and_then(|()| fs::rename(copied.join(&file.path), &path));
        done.about(&codes::MODEL_COPY, path.display(), NEXT_WRITE)?;
    }
    Ok(())
}

/// Checks that the model can be read from the repository.
fn check(root: &Path, name: &str) -> Result<(), Faults> {
    let place = Repository { roots: vec![root.to_owned()], data: Vec::new() };
    place.describe(&root.join(name).display().to_string()).map(drop)
}

fn report(seat: &str, model: &SharedModel, states: &[State], folder: &Path) -> PullReport {
    let file = |(file, state): (&SharedFile, &State)| PulledFile {
        path: file.path.clone(),
        bytes: file.bytes,
        state: state.name().to_owned(),
    };
    PullReport {
        schema: PULL_SCHEMA.to_owned(),
        model: model.name.clone(),
        version: model.version,
        seat: seat.to_owned(),
        folder: folder.display().to_string(),
        files: model.files.iter().zip(states).map(file).collect(),
    }
}

fn report_text(report: &PullReport) -> String {
    let PullReport { model, version, seat, folder, files, .. } = report;
    let version = version.map_or_else(String::new, |version| format!(" version {version}"));
    let copied = files.iter().filter(|file| file.state != State::Unchanged.name());
    let (count, bytes) = copied.fold((0, 0), |(count, bytes), file| (count + 1, bytes + file.bytes));
    if count == 0 {
        return format!("{model}{version}: {folder} has the same files as seat {seat}");
    }
    let rows = files.iter().map(|file| vec![file.path.clone(), file.state.clone(), mebibytes(file.bytes)]);
    format!(
        "{}\n{model}{version}: {} copied from seat {seat} to {folder}\nif the board runs this model, load it with `sudo systemctl \
         reload orinocod`",
        output::table(&["file", "", "size"], 2, rows.collect()),
        mebibytes(bytes)
    )
}
