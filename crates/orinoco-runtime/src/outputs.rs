//! Where outputs go, so that nothing is destroyed by it.
//!
//! An output is opened without being touched. Then it is known which file it is, however its path is written, and that is
//! compared with every file that the run reads and with the other outputs. Only when all of them are accepted is the
//! first one emptied.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use orinoco_board::{Board, BoardStream, SinkKind, SinkSpec};
use orinoco_config::{Existing, write_whole};
use orinoco_core::{Diagnosis, WithSubject, codes};
use orinoco_media::source_files;
use orinoco_model::Repository;
use orinoco_uri::SourceKind;

use crate::endings::check_ending;

/// What becomes of the files of an earlier run where this one is told to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExistingOutputs {
    /// They are overwritten: somebody has just named them.
    Overwritten,
    /// They stay, and this run writes beside them: nobody may have been there when it began.
    Kept,
}

/// Folders in one another. Links may lead in a circle, and data sets are flatter.
const FOLDERS_DEPTH_MAX: usize = 8;

const NEXT: &str = "check that its folder can be written";

/// A file, whatever its paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// `None` of pipes and devices: nothing is lost in them.
    fn of(metadata: &Metadata) -> Option<Self> {
        metadata.is_file().then(|| Self { device: metadata.dev(), inode: metadata.ino() })
    }

    fn at(path: &Path) -> Option<Self> {
        Self::of(&path.metadata().ok()?)
    }
}

/// Files that no output may be: those that are read, and those that are written already.
#[derive(Clone, Debug, Default)]
pub struct TakenFiles {
    /// Each with why it is taken.
    files: BTreeMap<FileId, String>,
    /// Folders that were made for outputs, in their canonical spelling. Outputs share them, and are dropped in any order.
    made_folders: BTreeSet<PathBuf>,
}

impl TakenFiles {
    /// Every file that a board is read from: its own and those that it inherits, its models' and its sources'. Files that
    /// are not there are left out.
    pub fn of_board(board: &Board, repository: &Repository) -> Self {
        let mut taken = Self::default();
        for file in &board.files {
            taken.add(file, || format!("it is a file of board {} and would be overwritten", board.name));
        }
        for file in board.inference.ort_library.iter() {
            taken.add(file, || "it is the library of ONNX Runtime".to_owned());
        }
        for model in &board.models {
            taken.add_model(&model.name, &model.model, repository);
        }
        for stream in &board.streams {
            let whose = || format!("stream {} reads this file", stream.name);
            for file in source_files(&stream.source) {
                taken.add(&file, whose);
            }
            if matches!(stream.source.kind(), SourceKind::Stdin(_)) {
                taken.add_open(io::stdin().as_fd(), whose);
            }
        }
        taken
    }

    /// Adds every file that the model `text` is read from; messages call it `name`.
    pub fn add_model(&mut self, name: &str, text: &str, repository: &Repository) {
        for file in repository.files(text) {
            self.add(&file, || format!("it is a file of model {name} and would be overwritten"));
        }
    }

    /// Adds every file in a folder, for which `why` holds, but for drawings: nobody reads those.
    pub fn add_folder(&mut self, folder: &Path, why: &str) {
        self.add_folder_to(folder, why, FOLDERS_DEPTH_MAX);
    }

    fn add_folder_to(&mut self, folder: &Path, why: &str, depth_left: usize) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                if depth_left > 0 {
                    self.add_folder_to(&path, why, depth_left - 1);
                }
            } else if path.extension().is_none_or(|ending| ending != "svg") {
                self.add(&path, || why.to_owned());
            }
        }
    }

    /// Adds the file at `path`, and why it is taken; nothing where there is none.
    pub fn add(&mut self, path: &Path, why: impl Fn() -> String) {
        if let Some(file) = FileId::at(path) {
            self.files.entry(file).or_insert_with(why);
        }
    }

    fn add_open(&mut self, file: BorrowedFd<'_>, why: impl Fn() -> String) {
        let metadata = file.try_clone_to_owned().and_then(|file| File::from(file).metadata());
        if let Some(file) = metadata.ok().as_ref().and_then(FileId::of) {
            self.files.entry(file).or_insert_with(why);
        }
    }

    /// Adds all of `others`.
    pub(crate) fn extend(&mut self, others: &Self) {
        for (file, why) in &others.files {
            self.files.entry(*file).or_insert_with(|| why.clone());
        }
        self.made_folders.extend(others.made_folders.iter().cloned());
    }

    fn has(&self, path: &Path) -> bool {
        FileId::at(path).is_some_and(|file| self.files.contains_key(&file))
    }

    /// Opens an output, which is taken from then on: `whose` is what others are told. It is created with its folders where
    /// it is not there, and else stays as it is until [`OutputFile::begin`].
    ///
    /// # Errors
    /// `E0501` where it cannot be written, or is taken.
    pub fn open(&mut self, path: &Path, whose: &str) -> Result<OutputFile, Diagnosis> {
        let output = OutputFile::open(path, &mut self.made_folders);
        let output = output.about(&codes::SINK_OPEN, path.display(), NEXT)?;
        let metadata = output.file.metadata().about(&codes::SINK_OPEN, path.display(), NEXT)?;
        if let Some(file) = FileId::of(&metadata) {
            if let Some(why) = self.files.get(&file) {
                return Err(Diagnosis::new(&codes::SINK_OPEN, path.display(), why, "write to another path"));
            }
            self.files.insert(file, whose.to_owned());
        }
        Ok(output)
    }
}

/// Opens a file that the caller writes besides those of the board's sinks. Hand the [`TakenFiles`] to
/// [`Runtime::prepare_with`](crate::Runtime::prepare_with), so that no sink writes there.
pub fn open_own_file(
    board: &Board,
    repository: &Repository,
    path: &Path,
    whose: &str,
) -> Result<(OutputFile, TakenFiles), Diagnosis> {
    let mut taken = TakenFiles::of_board(board, repository);
    let file = taken.open(path, whose)?;
    let mut own = TakenFiles { made_folders: taken.made_folders, ..TakenFiles::default() };
    own.add(path, || whose.to_owned());
    // Also where the sink is going to write to a numbered file: what an earlier run recorded here stays.
    for stream in &board.streams {
        if stream.sinks.iter().any(|sink| own.has(&sink.path)) {
            let cause = format!("another output (stream {}) already writes to this file", stream.name);
            return Err(Diagnosis::new(&codes::SINK_OPEN, path.display(), cause, "write to another path"));
        }
    }
    Ok((file, own))
}

/// An output that is open and not yet touched. One that was created for it is removed with it, unless it was begun.
#[derive(Debug)]
pub struct OutputFile {
    file: File,
    path: PathBuf,
    is_new: bool,
    /// Folders that were made for it, or for another output and hold it, too.
    folders: BTreeSet<PathBuf>,
}

impl OutputFile {
    /// `made_folders` are those that were made for outputs before it; its own are added.
    fn open(path: &Path, made_folders: &mut BTreeSet<PathBuf>) -> io::Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let missing = folder.into_iter().flat_map(Path::ancestors).take_while(|folder| !folder.exists());
        // `new/..` is a folder that was there, whatever becomes of `new`.
        let missing: BTreeSet<&Path> = missing.filter(|folder| folder.file_name().is_some()).collect();
        if let Err(why) = folder.map_or(Ok(()), fs::create_dir_all) {
            remove_folders(&missing);
            return Err(why);
        }
        let mut folders: BTreeSet<PathBuf> =
            missing.iter().filter_map(|folder| folder.canonicalize().ok()).collect();
        made_folders.extend(folders.iter().cloned());
        let inside = folder.and_then(|folder| folder.canonicalize().ok()).unwrap_or_default();
        let shared = inside.ancestors().filter(|folder| made_folders.contains(*folder));
        folders.extend(shared.map(Path::to_owned));
        // Also where a link points to nothing: what it names is created.
        let is_new = path.metadata().is_err_and(|why| why.kind() == io::ErrorKind::NotFound);
        let opened = File::options().write(true).create(true).truncate(false).open(path);
        match opened {
            Ok(file) => Ok(Self { file, path: path.to_owned(), is_new, folders }),
            Err(why) => {
                remove_folders(&folders);
                Err(why)
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Empties it, and gives it to who writes it.
    pub fn begin(mut self) -> io::Result<File> {
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.keep();
        self.file.try_clone()
    }

    /// Writes it whole, or leaves what was there. Where it can be written and not replaced, because its folder is
    /// read-only or it is a mount point, it is emptied and written as it is.
    pub fn write_whole(self, bytes: &[u8]) -> io::Result<()> {
        self.write_with(bytes, |path, bytes| write_whole(path, bytes, Existing::Replace))
    }

    fn write_with(
        mut self,
        bytes: &[u8],
        replace: impl FnOnce(&Path, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        use io::ErrorKind::{CrossesDevices, PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
        match replace(&self.path, bytes).map_err(|why| (why.kind(), why)) {
            Err((PermissionDenied | ReadOnlyFilesystem | ResourceBusy | CrossesDevices, _)) => {
                self.overwrite(bytes)?;
            }
            done => done.map_err(|(_, why)| why)?,
        }
        self.keep();
        Ok(())
    }

    fn overwrite(&mut self, bytes: &[u8]) -> io::Result<()> {
        let is_file = self.file.metadata()?.is_file();
        if is_file {
            self.file.set_len(0)?;
            self.file.rewind()?;
        }
        self.file.write_all(bytes)?;
        if is_file { self.file.sync_all() } else { Ok(()) }
    }

    /// From now on it is not removed.
    fn keep(&mut self) {
        self.is_new = false;
        self.folders.clear();
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if self.is_new {
            // An empty file that cannot be removed does no harm.
            let _ = fs::remove_file(self.path.canonicalize().as_deref().unwrap_or(&self.path));
        }
        remove_folders(&self.folders);
    }
}

/// Removes folders that were made and hold nothing, the innermost first.
fn remove_folders<P: AsRef<Path>>(folders: &BTreeSet<P>) {
    folders.iter().rev().for_each(|folder| drop(fs::remove_dir(folder)));
}

/// An output of a stream: where it writes, and the file, or `None` for standard output.
pub(crate) type OpenSink = (SinkSpec, Option<OutputFile>);

/// Opens the sinks of streams, all of them or none. With [`ExistingOutputs::Kept`] one whose file has been written already writes
/// to the first free one of `name-2.ext`, `name-3.ext` and so on.
pub(crate) fn open_sinks<'s>(
    streams: impl IntoIterator<Item = &'s BoardStream>,
    taken: &mut TakenFiles,
    written: &TakenFiles,
    earlier: ExistingOutputs,
) -> Result<Vec<Vec<OpenSink>>, Diagnosis> {
    let open = |stream: &BoardStream| -> Result<Vec<OpenSink>, Diagnosis> {
        stream.sinks.iter().map(|sink| open_sink(sink, &stream.name, taken, written, earlier)).collect()
    };
    streams.into_iter().map(open).collect()
}

fn open_sink(
    sink: &SinkSpec,
    stream: &str,
    taken: &mut TakenFiles,
    written: &TakenFiles,
    earlier: ExistingOutputs,
) -> Result<OpenSink, Diagnosis> {
    let whose = format!("another output (stream {stream}) already writes to this file");
    if sink.path == Path::new("-") {
        if matches!(sink.kind, SinkKind::Mp4(_)) {
            let (cause, next) = (
                "MP4 cannot be written to standard output, because it needs a seekable file",
                "name a file, such as out.mp4",
            );
            return Err(Diagnosis::new(&codes::SINK_OPEN, "standard output", cause, next));
        }
        taken.add_open(io::stdout().as_fd(), || whose.clone());
        return Ok((sink.clone(), None));
    }
    if let Err(why) = check_name(sink) {
        // Whose file it is says more than what it is called.
        if sink.path.is_file() {
            taken.open(&sink.path, &whose)?;
        }
        return Err(why);
    }
    let path = free_path(&sink.path, written, earlier);
    let file = taken.open(&path, &whose)?;
    Ok((SinkSpec { kind: sink.kind, path }, Some(file)))
}

/// Refuses a folder, and a name that promises another format. The name of a pipe or a device promises nothing.
fn check_name(sink: &SinkSpec) -> Result<(), Diagnosis> {
    match sink.path.metadata() {
        Ok(there) if there.is_dir() => {
            let (cause, next) = ("it is a folder", "name a file in it");
            Err(Diagnosis::new(&codes::SINK_OPEN, sink.path.display(), cause, next))
        }
        Ok(there) if !there.is_file() => Ok(()),
        _ => check_ending(sink.kind, &sink.path),
    }
}

/// `path`, or where that has been written the first free one of `name-2.ext`, `name-3.ext` and so on.
fn free_path(path: &Path, written: &TakenFiles, earlier: ExistingOutputs) -> PathBuf {
    let is_free = |path: &PathBuf| !is_written(path, written, earlier);
    if is_free(&path.to_owned()) {
        return path.to_owned();
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let ending = path.extension().map_or_else(String::new, |ending| format!(".{}", ending.to_string_lossy()));
    let numbered = |number: usize| path.with_file_name(format!("{stem}-{number}{ending}"));
    let mut latest = path.to_owned();
    for number in 2.. {
        let next = numbered(number);
        if is_free(&next) {
            cut_torn(&latest);
            return next;
        }
        latest = next;
    }
    unreachable!("numbers do not end")
}

fn is_written(path: &Path, written: &TakenFiles, earlier: ExistingOutputs) -> bool {
    match path.metadata() {
        Ok(there) if !there.is_file() => false,
        Ok(there) if earlier == ExistingOutputs::Kept && there.len() > 0 => true,
        _ => written.has(path),
    }
}

/// Cuts off what a power loss left of the last recording's last fragment. What was recorded before has been seen to when
/// that one began.
fn cut_torn(path: &Path) {
    #[cfg(feature = "gstreamer")]
    if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("mp4")) {
        // A file that cannot be cut plays as it is in most players.
        let _ = orinoco_media::cut_torn_mp4(path);
    }
    #[cfg(not(feature = "gstreamer"))]
    let _ = path;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::uri;
    use orinoco_board::BoardModel;
    use orinoco_config::Vars;
    use orinoco_core::Codec;
    use std::os::unix::fs::symlink;

    /// A folder with one file of each kind that a board is read from, and an output of an earlier run.
    struct Inputs {
        dir: tempfile::TempDir,
        board: Board,
        repository: Repository,
    }

    impl Inputs {
        fn new() -> Self {
            let dir = tempfile::tempdir().expect("temporary folder");
            let write = |name: &str, bytes: &[u8]| {
                let path = dir.path().join(name);
                fs::create_dir_all(path.parent().expect("it has one")).expect("made");
                fs::write(path, bytes).expect("written");
            };
            for picture in ["one.png", "folder/a.jpg", "folder/b.png", "numbered/i_0.png", "numbered/i_1.png"]
            {
                write(picture, b"a picture");
            }
            for video in ["video.mp4", "libort.so", "old.jsonl"] {
                write(video, b"bytes");
            }
            // A graph whose only tensor has its weights in another file.
            let entry = b"\x6a\x17\x0a\x08location\x12\x0bweights.bin";
            let tensor = [&[0x2a, entry.len() as u8], &entry[..]].concat();
            write("models/m/m.onnx", &[&[0x3a, tensor.len() as u8], &tensor[..]].concat());
            write("models/m/weights.bin", b"weights");
            write("models/m/names.txt", b"one\n");
            let model = "version = 1\nname = 'm'\nfile = 'm.onnx'\n[output]\nlabels_file = 'names.txt'\n";
            write("models/m/model.toml", model.as_bytes());
            write("base.toml", b"version = 1\n");
            let sources = ["video.mp4", "one.png", "folder/", "numbered/i_%i.png"];
            let streams = sources.iter().enumerate().map(|(number, source)| {
                let source = dir.path().join(source).display().to_string();
                format!("[[stream]]\nname = 's{number}'\nsource = '{source}'\nmodels = ['m']\n")
            });
            let text = format!(
                "inherit = ['base.toml']\n[inference]\nort_library = '{}'\n[[model]]\nname = 'm'\n{}",
                dir.path().join("libort.so").display(),
                streams.collect::<String>()
            );
            write("board.toml", text.as_bytes());
            let board = orinoco_board::load(&dir.path().join("board.toml"), &[], &Vars::new());
            let board = board.unwrap_or_else(|why| panic!("{why}"));
            let repository = Repository { roots: vec![dir.path().join("models")], data: Vec::new() };
            Self { dir, board, repository }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        /// Each file that is read, and who reads it.
        fn read(&self) -> [(PathBuf, &'static str); 13] {
            let (model, board) = (
                "it is a file of model m and would be overwritten",
                "it is a file of board board and would be overwritten",
            );
            [
                ("video.mp4", "stream s0 reads this file"),
                ("one.png", "stream s1 reads this file"),
                ("folder/a.jpg", "stream s2 reads this file"),
                ("folder/b.png", "stream s2 reads this file"),
                ("numbered/i_0.png", "stream s3 reads this file"),
                ("numbered/i_1.png", "stream s3 reads this file"),
                ("models/m/m.onnx", model),
                ("models/m/weights.bin", model),
                ("models/m/names.txt", model),
                ("models/m/model.toml", model),
                ("board.toml", board),
                ("base.toml", board),
                ("libort.so", "it is the library of ONNX Runtime"),
            ]
            .map(|(name, whose)| (self.path(name), whose))
        }

        /// The file's names: its own, one with a detour, two kinds of links to it, and a link through a folder's link.
        fn spellings(&self, file: &Path) -> Vec<PathBuf> {
            let ways = tempfile::tempdir_in(self.dir.path()).expect("temporary folder").keep();
            let name = file.file_name().expect("it has one");
            let folder = file.parent().expect("it has one");
            symlink(file, ways.join("symlink")).expect("linked");
            fs::hard_link(file, ways.join("hard")).expect("linked");
            symlink(folder, ways.join("folder")).expect("linked");
            let detour =
                folder.join("../").join(folder.file_name().expect("it has one")).join("./").join(name);
            let names = ["symlink", "hard"].map(|way| ways.join(way)).into_iter();
            names.chain([file.to_owned(), detour, ways.join("folder").join(name)]).collect()
        }

        fn taken(&self) -> TakenFiles {
            TakenFiles::of_board(&self.board, &self.repository)
        }
    }

    fn sinks(paths: &[(SinkKind, &Path)]) -> Vec<BoardStream> {
        let sinks = paths.iter().map(|(kind, path)| SinkSpec { kind: *kind, path: path.to_path_buf() });
        vec![BoardStream { sinks: sinks.collect(), ..BoardStream::new("a", uri("test://ball"), Vec::new()) }]
    }

    fn open(streams: &[BoardStream], taken: &mut TakenFiles) -> Result<Vec<Vec<OpenSink>>, String> {
        let opened = open_sinks(streams, taken, &TakenFiles::default(), ExistingOutputs::Overwritten);
        opened.map_err(|why| format!("{}: {}", why.subject, why.cause))
    }

    #[test]
    fn no_output_is_a_file_that_is_read_however_it_is_named() {
        let inputs = Inputs::new();
        for (file, whose) in inputs.read() {
            let before = fs::read(&file).expect("it is there");
            for path in inputs.spellings(&file) {
                let new = inputs.path("new/sub/first.jsonl");
                // An output that is fine comes before it, and is not there afterwards either.
                let wanted = format!("{}: {whose}", path.display());
                for kind in [SinkKind::Jsonl, SinkKind::Mp4(Codec::H264), SinkKind::FrameMd5] {
                    let old = inputs.path("old.jsonl");
                    let streams = sinks(&[(SinkKind::Jsonl, &new), (SinkKind::Jsonl, &old), (kind, &path)]);
                    assert_eq!(open(&streams, &mut inputs.taken()).expect_err("it is taken"), wanted);
                    assert_eq!(fs::read(old).expect("it is there"), b"bytes", "not yet emptied");
                }
                // So for summaries, plots and the like.
                let why = inputs
                    .taken()
                    .open(&path, "the run's summary is written to this file")
                    .expect_err("it is taken");
                assert_eq!(format!("{}: {}", why.subject, why.cause), wanted);
                assert!(!inputs.path("new").exists(), "{wanted}");
            }
            assert_eq!(fs::read(&file).expect("it is there"), before, "{}", file.display());
        }
    }

    #[test]
    fn no_output_is_another_however_it_is_named() {
        let inputs = Inputs::new();
        let old = inputs.path("old.jsonl");
        for path in inputs.spellings(&old) {
            let why = open(
                &sinks(&[(SinkKind::Jsonl, &old), (SinkKind::Mp4(Codec::H264), &path)]),
                &mut inputs.taken(),
            );
            assert_eq!(
                why.expect_err("it is taken"),
                format!("{}: another output (stream a) already writes to this file", path.display())
            );
            let mut taken = inputs.taken();
            let summary = taken.open(&old, "the run's summary is written to this file").expect("it is free");
            let why = open(&sinks(&[(SinkKind::Jsonl, &path)]), &mut taken).expect_err("it is taken");
            assert_eq!(why, format!("{}: the run's summary is written to this file", path.display()));
            drop(summary);
        }
        assert_eq!(fs::read(&old).expect("it is there"), b"bytes");
        // Files that are not there yet: two spellings, a folder's link, and a link that points to nothing.
        let (folder, new, link) = (inputs.path("folder"), inputs.path("folder/new"), inputs.path("dangling"));
        symlink(&folder, inputs.path("way")).expect("linked");
        symlink(&new, &link).expect("linked");
        for path in [folder.join("../folder/./new"), inputs.path("way/new"), link.clone()] {
            for (first, second) in [(&new, &path), (&path, &new)] {
                let streams = sinks(&[(SinkKind::Jsonl, first), (SinkKind::Jsonl, second)]);
                open(&streams, &mut inputs.taken()).expect_err("it is one file");
                assert!(!new.exists() && link.is_symlink(), "a refused file is gone, and no link");
            }
        }
    }

    #[test]
    fn pipes_devices_and_standard_output_take_many_outputs() {
        let (null, dash) = (Path::new("/dev/null"), Path::new("-"));
        let mut streams =
            sinks(&[(SinkKind::Jsonl, null), (SinkKind::Mp4(Codec::H264), null), (SinkKind::Jsonl, dash)]);
        let mut taken = TakenFiles::default();
        let opened = open(&streams, &mut taken).expect("nothing is lost in them");
        assert_eq!(opened[0].iter().map(|(_, file)| file.is_some()).collect::<Vec<_>>(), [true, true, false]);
        for (_, file) in opened.into_iter().flatten() {
            file.map(|file| file.begin().expect("a device is begun as it is"));
        }
        streams[0].sinks[2].kind = SinkKind::Mp4(Codec::H264);
        assert!(open(&streams, &mut taken).expect_err("no MP4").contains("seekable"));
        let why = taken.open(Path::new("/nowhere/at/all"), "");
        if let Err(why) = why {
            assert_eq!(why.code.id, codes::SINK_OPEN.id);
        }
        let folder = tempfile::tempdir().expect("temporary folder");
        assert_eq!(taken.open(folder.path(), "").expect_err("a folder").code.id, codes::SINK_OPEN.id);
    }

    #[test]
    fn an_output_is_emptied_when_it_begins_and_removed_when_it_does_not() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (old, new) = (folder.path().join("old"), folder.path().join("a/b/new"));
        fs::write(&old, "bytes").expect("written");
        let mut taken = TakenFiles::default();
        drop((taken.open(&old, "").expect("free"), taken.open(&new, "").expect("free")));
        assert_eq!(fs::read(&old).expect("it is there"), b"bytes");
        assert!(!folder.path().join("a").exists());
        let mut taken = TakenFiles::default();
        for path in [&old, &new] {
            taken.open(path, "").expect("free").begin().expect("writable");
            assert_eq!(path.metadata().expect("it is there").len(), 0);
        }
    }

    #[test]
    fn folders_that_refused_outputs_share_are_removed() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let file = |name: &str| dir.path().join(name);
        fs::write(file("taken"), "bytes").expect("written");
        fs::create_dir(file("old")).expect("made");
        symlink(file("old"), file("link")).expect("linked");
        let names = ["new/a", "new/b", "new/sub/c", "old/d/e", "link/d/f", "one/../two/g", "taken"].map(file);
        let streams = sinks(&names.each_ref().map(|path| (SinkKind::Jsonl, path.as_path())));
        let mut taken = TakenFiles::default();
        taken.add(&file("taken"), || "it is read".to_owned());
        open(&streams, &mut taken).expect_err("the last one is taken");
        let left = |name: &str| fs::read_dir(file(name)).expect("a folder").count();
        assert_eq!((left(""), left("old")), (3, 0), "taken, old and link");
        // A folder that cannot be made: those on the way to it are removed.
        let long = "x".repeat(300);
        taken.open(&file("new/sub").join(long).join("a"), "").expect_err("too long a name");
        assert_eq!(left(""), 3);
        // What is begun keeps its folder.
        let mut taken = TakenFiles::default();
        let opened = ["new/a", "new/b"].map(|name| taken.open(&file(name), "").expect("it is free"));
        let [first, second] = opened;
        second.begin().expect("writable");
        drop(first);
        assert_eq!(left("new"), 1);
    }

    #[test]
    fn a_file_that_cannot_be_replaced_is_overwritten() {
        use io::ErrorKind::{
            CrossesDevices, PermissionDenied, ReadOnlyFilesystem, ResourceBusy, StorageFull,
        };
        let dir = tempfile::tempdir().expect("temporary folder");
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        let overwritten = [PermissionDenied, ReadOnlyFilesystem, ResourceBusy, CrossesDevices];
        for kind in overwritten.into_iter().chain([StorageFull]) {
            fs::write(&old, "of an earlier run").expect("written");
            let mut taken = TakenFiles::default();
            for path in [&old, &new] {
                let file = taken.open(path, "").expect("it is free");
                let done = file.write_with(b"summary", |_, _| Err(kind.into()));
                assert_eq!(done.map_err(|why| why.kind()).err(), (kind == StorageFull).then_some(kind));
            }
            let text = |path: &Path| fs::read_to_string(path).ok();
            let wanted = match kind {
                StorageFull => (Some("of an earlier run".to_owned()), None),
                _ => (Some("summary".to_owned()), Some("summary".to_owned())),
            };
            assert_eq!((text(&old), text(&new)), wanted, "{kind:?}");
            let _ = fs::remove_file(&new);
        }
    }

    #[test]
    fn what_was_written_is_kept() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let file = |name: &str| dir.path().join(name);
        let mut written = TakenFiles::default();
        for name in ["a.mp4", "a-2.mp4", "b"] {
            fs::write(file(name), "").expect("written");
            written.add(&file(name), String::new);
        }
        fs::hard_link(file("b"), file("c")).expect("linked");
        let free = |name: &str| free_path(&file(name), &written, ExistingOutputs::Kept);
        assert_eq!([free("a.mp4"), free("b"), free("c")], [file("a-3.mp4"), file("b-2"), file("c-2")]);
        assert_eq!(free("d.jsonl"), file("d.jsonl"));
    }

    #[test]
    fn what_an_earlier_run_wrote_is_kept_where_nobody_may_have_been_there() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let [full, empty] = ["full", "empty"].map(|name| dir.path().join(name));
        fs::write(&full, "results").expect("written");
        fs::write(&empty, "").expect("written");
        for (earlier, wanted) in [(ExistingOutputs::Overwritten, "full"), (ExistingOutputs::Kept, "full-2")] {
            let free = |path: &Path| free_path(path, &TakenFiles::default(), earlier);
            assert_eq!(free(&full), dir.path().join(wanted));
            assert_eq!(free(&empty), empty);
        }
    }

    #[test]
    fn a_model_without_a_description_is_read_too() {
        let inputs = Inputs::new();
        let mut board = inputs.board.clone();
        let file = inputs.path("models/m/m.onnx");
        board.models = vec![BoardModel::new("x", file.display().to_string())];
        let mut taken = TakenFiles::of_board(&board, &inputs.repository);
        for name in ["models/m/m.onnx", "models/m/weights.bin"] {
            let why = taken.open(&inputs.path(name), "").expect_err("it is taken");
            assert_eq!(why.cause, "it is a file of model x and would be overwritten");
        }
    }
}
