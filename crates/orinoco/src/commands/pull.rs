//! `orinoco models pull` and `orinoco models list --cluster`: models of other boards of the cluster, through the daemon.

mod part_length;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::body::Bytes;
use indicatif::ProgressBar;
use orinoco_api::{ClusterModels, PULL_SCHEMA, PullReport, PulledFile, SharedFile, SharedModel};
use orinoco_config::Faults;
use orinoco_core::{Clock, Diagnosis, Exit, WithSubject, codes};
use orinoco_model::{Repository, is_portable, sha256_of_file, version_of};
use orinoco_pipeline::MonotonicClock;
use orinoco_runtime::repository;
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use rustix::io::Errno;

use crate::args::PullArgs;
use crate::client::{Client, DaemonArgs};
use crate::output::{self, mebibytes};

use part_length::PartLength;

/// Repository of a board, for models that no other repository has.
const REPOSITORY: &str = "/var/lib/orinoco/models";

/// Time for which a part of a file is tried to be read: that of several new epochs.
const RETRY_TIME: Duration = Duration::from_secs(30);

/// Interval between two attempts.
const RETRY_EVERY: Duration = Duration::from_millis(500);

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
        true => "no connected board of the cluster shares models: on the board that has the model, set `share_models = true` in [cluster] of the \
                 board file and restart its daemon; `orinoco status` shows which boards are connected"
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
    let staging = Staging::open(&root, &model.name)?;
    check_versions(model, &folder)?;
    let states = states(model, &folder)?;
    copy(&client, seat, model, &states, &staging.folder)?;
    check(model, &states, &folder, &staging)?;
    place(model, &states, &staging.folder, &folder)?;
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
    let seats = || shared.seats.iter().filter(|seat| wanted.is_none_or(|wanted| wanted == seat.seat));
    let silent = seats().find_map(|seat| Some((&seat.seat, seat.fault.as_ref()?)));
    let offer = |model: &&SharedModel| model.name == name;
    let offers = seats().filter_map(|seat| Some((&*seat.seat, seat.models.iter().find(offer)?)));
    let offers: Vec<_> = offers.collect();
    let [first, others @ ..] = &offers[..] else {
        let cause = match (silent, wanted) {
            (Some((seat, why)), _) => format!("seat {seat}: {why}"),
            (None, Some(seat)) => format!("seat {seat} does not share a model of this name"),
            (None, None) => "no connected board of the cluster shares a model of this name".to_owned(),
        };
        return Err(fault(cause, "see what is shared with `orinoco models list --cluster`"));
    };
    if let Some((seat, why)) = silent {
        let cause = format!("seat {seat} may share other files of this model: {why}");
        return Err(fault(cause, "try again, or choose a seat with --seat"));
    }
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
        Some(wrong) => {
            format!("the other board names a file {wrong:?}, which is no path in a model's folder")
        }
        None if !has_description => "the other board names no model.toml".to_owned(),
        None => return Ok(()),
    };
    Err(Diagnosis::new(
        &codes::MODEL_COPY,
        &model.name,
        cause,
        "check that board, and its version of orinocod",
    ))
}

/// Returns the repository for a model.
fn root_of(name: &str, wanted: Option<&Path>) -> PathBuf {
    let roots = repository(wanted, None).roots;
    let is_chosen = wanted.is_some() || roots.len() == 1;
    let known = roots.iter().find(|root| is_chosen || root.join(name).join("model.toml").is_file());
    known.cloned().unwrap_or_else(|| PathBuf::from(REPOSITORY))
}

/// Checks that a daemon would load the version that is copied, which is the highest one.
fn check_versions(model: &SharedModel, folder: &Path) -> Result<(), Diagnosis> {
    let Some(copied) = model.version else { return Ok(()) };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let versions = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let complete = |version: &u32| folder.join(version.to_string()).join("model.onnx").is_file();
    let Some(higher) = versions.filter(complete).max().filter(|version| *version > copied) else {
        return Ok(());
    };
    let cause =
        format!("the repository has version {higher}, which daemons load instead of version {copied}");
    let next = format!("remove the folder {higher} first, if the other board's version is to be used");
    Err(Diagnosis::new(&codes::MODEL_COPY, folder.display(), cause, next))
}

/// Folder in the repository into which a model is copied first. One command at a time has it. It is emptied when it is opened, and removed
/// when it is dropped.
struct Staging {
    folder: PathBuf,
    /// The folder, locked.
    _lock: File,
}

impl Staging {
    fn open(root: &Path, model: &str) -> Result<Self, Diagnosis> {
        let folder = root.join(format!(".{model}.pull"));
        let opened = fs::create_dir_all(&folder).and_then(|()| File::open(&folder));
        let lock = opened.about(&codes::MODEL_COPY, folder.display(), NEXT_WRITE)?;
        if let Err(why) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            let cause = match why {
                Errno::WOULDBLOCK => "another `orinoco models pull` copies this model now".to_owned(),
                why => io::Error::from(why).to_string(),
            };
            return Err(Diagnosis::new(
                &codes::MODEL_COPY,
                folder.display(),
                cause,
                "try again when it has ended",
            ));
        }
        // An interrupted command left its files.
        let emptied = empty(&folder);
        emptied.about(&codes::MODEL_COPY, folder.display(), NEXT_WRITE)?;
        Ok(Self { folder, _lock: lock })
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // The next command removes the rest.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn empty(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
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

/// Compares a model's files with those in the repository. Descriptions and labels may be replaced, an ONNX file and its weights may not.
fn states(model: &SharedModel, folder: &Path) -> Result<Vec<State>, Diagnosis> {
    let state = |file: &SharedFile| {
        let path = folder.join(&file.path);
        let known = match File::open(&path).and_then(sha256_of_file) {
            Ok(known) => known,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(State::Added),
            Err(why) => return Err(why).about(&codes::MODEL_COPY, path.display(), NEXT_WRITE),
        };
        let is_of_graph = file.graph || version_of(&file.path).is_some();
        match known == file.sha256 {
            true => Ok(State::Unchanged),
            false if !is_of_graph => Ok(State::Replaced),
            false => {
                let cause = "it exists with other content than on the other board, and is not overwritten because a daemon may use it";
                let next = "put the new files into a new version folder on the other board and reload its daemon, or remove this file \
                            if no daemon uses it";
                Err(Diagnosis::new(&codes::MODEL_COPY, path.display(), cause, next))
            }
        }
    };
    model.files.iter().map(state).collect()
}

/// Copies what the repository lacks into a folder, and checks it.
fn copy(
    client: &Client,
    seat: &str,
    model: &SharedModel,
    states: &[State],
    folder: &Path,
) -> Result<(), Diagnosis> {
    let changed = || changed(model, states).map(|(file, _)| file);
    let bar = output::bytes_bar(changed().map(|file| file.bytes).fold(0, u64::saturating_add));
    let mut source = Source { client, seat, model, length: PartLength::new(), has_failed: false, bar };
    for file in changed() {
        let path = folder.join(&file.path);
        source.copy(file, &path)?.about(&codes::MODEL_COPY, path.display(), NEXT_WRITE)?;
        check_hash(seat, model, file, &path)?;
    }
    source.bar.finish_and_clear();
    Ok(())
}

/// Files that the repository lacks, or has otherwise.
fn changed<'a>(model: &'a SharedModel, states: &'a [State]) -> impl Iterator<Item = (&'a SharedFile, State)> {
    model.files.iter().zip(states.iter().copied()).filter(|(_, state)| *state != State::Unchanged)
}

/// Model of another board, whose files are read in parts.
struct Source<'a> {
    client: &'a Client,
    seat: &'a str,
    model: &'a SharedModel,
    length: PartLength,
    /// Whether reading a part has failed. The first failure is shown; over a bad link others follow.
    has_failed: bool,
    bar: ProgressBar,
}

impl Source<'_> {
    /// Copies a file. The inner result is that of writing.
    fn copy(&mut self, file: &SharedFile, path: &Path) -> Result<io::Result<()>, Diagnosis> {
        let above = path.parent().expect("a folder");
        let mut output = match fs::create_dir_all(above).and_then(|()| File::create_new(path)) {
            Ok(output) => output,
            Err(why) => return Ok(Err(why)),
        };
        let mut offset = 0;
        while offset < file.bytes {
            let data = self.read(file, offset)?;
            if data.is_empty() {
                break;
            }
            if let Err(why) = output.write_all(&data) {
                return Ok(Err(why));
            }
            offset += data.len() as u64;
            self.bar.inc(data.len() as u64);
        }
        Ok(output.sync_all())
    }

    /// Reads a part. The epoch may end meanwhile and another begin, so it is tried again for a while.
    fn read(&mut self, file: &SharedFile, offset: u64) -> Result<Bytes, Diagnosis> {
        let clock = MonotonicClock::default();
        let (signal, until) = (clock.signal(), clock.now() + RETRY_TIME);
        loop {
            let (part, start) = (offset..offset.saturating_add(self.length.bytes()), clock.now());
            let read = self.client.model_data(self.seat, &self.model.name, &file.path, part);
            let why = match read {
                Ok(data) => {
                    self.length.came(data.len() as u64, clock.now().since(start));
                    return Ok(data);
                }
                Err(why) if clock.now() < until => why,
                Err(why) => return Err(why),
            };
            self.length.failed();
            if !std::mem::replace(&mut self.has_failed, true) {
                self.bar.suspend(|| output::note(&format!("{}: {}; trying again", why.subject, why.cause)));
            }
            signal.wait(Some(clock.now() + RETRY_EVERY));
        }
    }
}

fn check_hash(seat: &str, model: &SharedModel, file: &SharedFile, path: &Path) -> Result<(), Diagnosis> {
    let is =
        File::open(path).and_then(sha256_of_file).about(&codes::MODEL_COPY, path.display(), NEXT_WRITE)?;
    if is == file.sha256 {
        return Ok(());
    }
    let subject = format!("seat {seat}, model {}, file {}", model.name, file.path);
    let cause = "the copy has a different SHA-256 hash: probably the file was changed on the other board";
    Err(Diagnosis::new(&codes::MODEL_COPY, subject, cause, "reload the daemon of that board, and try again"))
}

/// Checks that the model can be read once its files are in the repository: from the copied files, and links to the others.
fn check(model: &SharedModel, states: &[State], folder: &Path, staging: &Staging) -> Result<(), Faults> {
    let unchanged = model.files.iter().zip(states).filter(|(_, state)| **state == State::Unchanged);
    for (file, _) in unchanged {
        let (from, to) = (folder.join(&file.path), staging.folder.join(&file.path));
        let from = std::path::absolute(from).and_then(|from| {
            fs::create_dir_all(to.parent().expect("a folder"))?;
            std::os::unix::fs::symlink(from, &to)
        });
        from.about(&codes::MODEL_COPY, to.display(), NEXT_WRITE)?;
    }
    let place = Repository { roots: Vec::new(), data: Vec::new() };
    place.describe(&staging.folder.display().to_string()).map(drop)
}

/// Moves what was copied into the model's folder: a version's ONNX file, by which the version is found, after its weights, and the
/// description last. So the model can be loaded at any time.
fn place(model: &SharedModel, states: &[State], copied: &Path, folder: &Path) -> Result<(), Diagnosis> {
    let mut moved: Vec<(&SharedFile, State)> = changed(model, states).collect();
    moved.sort_by_key(|(file, _)| (file.path == "model.toml", file.path.ends_with(".onnx")));
    for (file, state) in moved {
        let (from, path) = (copied.join(&file.path), folder.join(&file.path));
        let above = path.parent().expect("a folder");
        let done = fs::create_dir_all(above).and_then(|()| match state {
            State::Added => rename_new(&from, &path),
            State::Replaced | State::Unchanged => fs::rename(&from, &path),
        });
        done.about(&codes::MODEL_COPY, path.display(), NEXT_WRITE)?;
    }
    Ok(())
}

/// Renames a file unless there is one of the new name, which may have come since it was looked for.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system, such as NFS, cannot do so.
        Err(Errno::INVAL) if !to.exists() => fs::rename(from, to),
        done => Ok(done?),
    }
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
        "{}\n{model}{version}: copied {} from seat {seat}, into the folder {folder}.\nIf the board file names this model, `sudo systemctl \
         reload orinocod` loads the highest version",
        output::table(&["file", "", "size"], 2, rows.collect()),
        mebibytes(bytes)
    )
}
