use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::open::free_path;
use super::*;
use crate::capabilities::capabilities;
use crate::sinks::{JSONL, MP4, SINKS};
use crate::testing::uri;
use orinoco_board::{Board, BoardModel, BoardStream, SinkKind, SinkSpec};
use orinoco_config::Vars;
use orinoco_core::{Clock, Diagnosis};
use orinoco_model::Repository;
use orinoco_pipeline::{MonotonicClock, Stop};
use rustix::fs::OFlags;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::time::Duration;

/// Folder with one file of each kind from which a board is read, and an output of an earlier run.
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
        for image in ["one.png", "folder/a.jpg", "folder/b.png", "numbered/i_0.png", "numbered/i_1.png"] {
            write(image, b"an image");
        }
        for video in ["video.mp4", "libort.so", "old.jsonl"] {
            write(video, b"bytes");
        }
        // The graph's only tensor has its weights in another file.
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
        let board = orinoco_board::load(&dir.path().join("board.toml"), &capabilities(), &Vars::new());
        let board = board.unwrap_or_else(|why| panic!("{why}"));
        let repository = Repository { roots: vec![dir.path().join("models")], data: Vec::new() };
        Self { dir, board, repository }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns each file that is read, with the reason in messages.
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

    /// Returns several names of a file: its own, one with a detour, two kinds of links to it, and one through a link to its
    /// folder.
    fn spellings(&self, file: &Path) -> Vec<PathBuf> {
        let ways = tempfile::tempdir_in(self.dir.path()).expect("temporary folder").keep();
        let name = file.file_name().expect("it has one");
        let folder = file.parent().expect("it has one");
        symlink(file, ways.join("symlink")).expect("linked");
        fs::hard_link(file, ways.join("hard")).expect("linked");
        symlink(folder, ways.join("folder")).expect("linked");
        let detour = folder.join("../").join(folder.file_name().expect("it has one")).join("./").join(name);
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
    let (clock, stop) = (MonotonicClock::default(), Stop::default());
    let readers = ReaderWait::new(&clock, &stop);
    let opened = open_sinks(streams, taken, &TakenFiles::default(), ExistingOutputs::Overwritten, &readers);
    opened.map_err(shown)
}

fn shown(error: OutputError) -> String {
    let why = Diagnosis::from(error);
    format!("{}: {}", why.subject, why.cause)
}

#[test]
fn no_output_is_a_file_that_is_read_however_it_is_named() {
    let inputs = Inputs::new();
    for (file, whose) in inputs.read() {
        let before = fs::read(&file).expect("it is there");
        for path in inputs.spellings(&file) {
            let new = inputs.path("new/sub/first.jsonl");
            // A valid output comes before the refused one, and is not left behind.
            let wanted = format!("{}: {whose}", path.display());
            for kind in [JSONL, MP4, SINKS[3]] {
                let old = inputs.path("old.jsonl");
                let streams = sinks(&[(JSONL, &new), (JSONL, &old), (kind, &path)]);
                assert_eq!(open(&streams, &mut inputs.taken()).expect_err("it is taken"), wanted);
                assert_eq!(fs::read(old).expect("it is there"), b"bytes", "not yet emptied");
            }
            // The same holds for summaries, plots and similar files.
            let why = inputs
                .taken()
                .open(&path, "the run's summary is written to this file")
                .expect_err("it is taken");
            assert_eq!(shown(why), wanted);
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
        let why = open(&sinks(&[(JSONL, &old), (MP4, &path)]), &mut inputs.taken());
        assert_eq!(
            why.expect_err("it is taken"),
            format!("{}: another output (stream a) already writes to this file", path.display())
        );
        let mut taken = inputs.taken();
        let summary = taken.open(&old, "the run's summary is written to this file").expect("it is free");
        let why = open(&sinks(&[(JSONL, &path)]), &mut taken).expect_err("it is taken");
        assert_eq!(why, format!("{}: the run's summary is written to this file", path.display()));
        drop(summary);
    }
    assert_eq!(fs::read(&old).expect("it is there"), b"bytes");
    // Files that do not exist yet: two spellings, a link to the folder, and a link that points to nothing.
    let (folder, new, link) = (inputs.path("folder"), inputs.path("folder/new"), inputs.path("dangling"));
    symlink(&folder, inputs.path("way")).expect("linked");
    symlink(&new, &link).expect("linked");
    for path in [folder.join("../folder/./new"), inputs.path("way/new"), link.clone()] {
        for (first, second) in [(&new, &path), (&path, &new)] {
            let streams = sinks(&[(JSONL, first), (JSONL, second)]);
            open(&streams, &mut inputs.taken()).expect_err("it is one file");
            assert!(!new.exists() && link.is_symlink(), "a refused file is gone, and no link");
        }
    }
}

#[test]
fn pipes_devices_and_standard_output_take_many_outputs() {
    let (null, dash) = (Path::new("/dev/null"), Path::new("-"));
    let mut streams = sinks(&[(JSONL, null), (MP4, null), (JSONL, dash)]);
    let mut taken = TakenFiles::default();
    let opened = open(&streams, &mut taken).expect("nothing is lost in them");
    assert_eq!(opened[0].iter().map(|(_, file)| file.is_some()).collect::<Vec<_>>(), [true, true, false]);
    for (_, file) in opened.into_iter().flatten() {
        file.map(|file| file.begin().expect("a device is begun as it is"));
    }
    streams[0].sinks[2].kind = MP4;
    assert!(open(&streams, &mut taken).expect_err("no MP4").contains("seekable"));
    let why = taken.open(Path::new("/nowhere/at/all"), "");
    if let Err(why) = why {
        assert!(matches!(why, OutputError::Open { .. }), "{why:?}");
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    let why = taken.open(folder.path(), "").expect_err("a folder");
    assert!(matches!(why, OutputError::Open { .. }), "{why:?}");
}

fn pipe(folder: &tempfile::TempDir, name: &str) -> PathBuf {
    let path = folder.path().join(name);
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).expect("made");
    path
}

fn reader(pipe: &Path) -> fs::File {
    let mut options = fs::File::options();
    options.read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(pipe).expect("a reader")
}

#[test]
fn a_pipe_without_a_reader_is_a_fault_and_its_reader_may_come_later() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let pipe = pipe(&folder, "pipe");
    let mut taken = TakenFiles::default();
    let why = taken.open(&pipe, "").expect_err("nobody reads it");
    assert!(matches!(&why, OutputError::NoReader { path } if *path == pipe), "{why:?}");
    assert!(Diagnosis::from(why).to_string().contains("nobody reads this named pipe"));

    let (clock, stop) = (MonotonicClock::default(), Stop::default());
    let (mut looks, mut late) = (0, None);
    let opened = ReaderWait::new(&clock, &stop).open(|| {
        looks += 1;
        if looks == 3 {
            late = Some(reader(&pipe));
        }
        taken.open(&pipe, "")
    });
    let file = opened.expect("it is read").begin().expect("a pipe is begun as it is");
    let flags = rustix::fs::fcntl_getfl(&file).expect("flags");
    assert!(!flags.contains(OFlags::NONBLOCK), "or a slow reader would lose results");
    assert_eq!(looks, 3);

    drop((file, late));
    stop.request();
    let stopped = ReaderWait::new(&clock, &stop).open(|| taken.open(&pipe, ""));
    assert!(matches!(stopped, Err(OutputError::NoReader { .. })));
}

#[test]
fn the_reader_of_one_pipe_sees_no_end_while_that_of_another_is_waited_for() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let (first, second) = (pipe(&folder, "first"), pipe(&folder, "second"));
    let mut early = reader(&first);
    let streams = sinks(&[(JSONL, &first), (JSONL, &second)]);
    std::thread::scope(|scope| {
        let late = scope.spawn(|| {
            // 0 bytes are an end: nobody has the pipe open for writing.
            while early.read(&mut [0]).is_ok() {
                std::thread::yield_now();
            }
            let (clock, mut seen) = (MonotonicClock::default(), Vec::new());
            for _ in 0..20 {
                clock.signal().wait(Some(clock.now() + Duration::from_millis(5)));
                seen.push(early.read(&mut [0]).map_err(|why| why.kind()));
            }
            (seen, reader(&second))
        });
        let opened = open(&streams, &mut TakenFiles::default()).expect("both are read");
        let (seen, _second) = late.join().expect("no panic");
        assert_eq!(seen, [Err(io::ErrorKind::WouldBlock); 20]);
        drop(opened);
    });
}

#[test]
fn a_socket_is_no_pipe_whose_reader_is_missing() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&path).expect("bound");
    let why = TakenFiles::default().open(&path, "").expect_err("it cannot be opened");
    assert!(matches!(why, OutputError::Open { .. }), "{why:?}");
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
    let streams = sinks(&names.each_ref().map(|path| (JSONL, path.as_path())));
    let mut taken = TakenFiles::default();
    taken.add(&file("taken"), || "it is read".to_owned());
    open(&streams, &mut taken).expect_err("the last one is taken");
    let left = |name: &str| fs::read_dir(file(name)).expect("a folder").count();
    assert_eq!((left(""), left("old")), (3, 0), "taken, old and link");
    // A folder that cannot be created: the folders created on the way to it are removed.
    let long = "x".repeat(300);
    taken.open(&file("new/sub").join(long).join("a"), "").expect_err("too long a name");
    assert_eq!(left(""), 3);
    // An output that has begun keeps its folder.
    let mut taken = TakenFiles::default();
    let opened = ["new/a", "new/b"].map(|name| taken.open(&file(name), "").expect("it is free"));
    let [first, second] = opened;
    second.begin().expect("writable");
    drop(first);
    assert_eq!(left("new"), 1);
}

#[test]
fn a_file_that_cannot_be_replaced_is_overwritten() {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, ReadOnlyFilesystem, ResourceBusy, StorageFull};
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
    let free = |name: &str| {
        free_path(&SinkSpec { kind: SINKS[3], path: file(name) }, &written, ExistingOutputs::Kept)
    };
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
        let sink = |path: &Path| SinkSpec { kind: JSONL, path: path.to_owned() };
        let free = |path: &Path| free_path(&sink(path), &TakenFiles::default(), earlier);
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
        let error = taken.open(&inputs.path(name), "").expect_err("it is taken");
        let expected = "it is a file of model x and would be overwritten";
        assert!(matches!(&error, OutputError::Taken { why, .. } if why == expected), "{error:?}");
    }
}
