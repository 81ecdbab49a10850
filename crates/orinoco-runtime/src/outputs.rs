//! Where sinks write, so that nothing is destroyed by it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use orinoco_board::{Board, BoardStream, SinkKind, SinkSpec};
use orinoco_core::{Diagnosis, codes};
use orinoco_media::{ImagePaths, SourceKind, SourceUri};

/// What becomes of the files of an earlier run where this one is told to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Earlier {
    /// They are overwritten: somebody has just named them.
    Overwritten,
    /// They stay, and this run writes beside them: nobody may have been there when it began.
    Kept,
}

/// The files of one run.
#[derive(Debug)]
pub(crate) struct Outputs {
    /// Those that it writes or has written.
    written: BTreeSet<PathBuf>,
    earlier: Earlier,
}

impl Outputs {
    pub(crate) fn new(written: BTreeSet<PathBuf>, earlier: Earlier) -> Self {
        Self { written, earlier }
    }

    /// The sinks of one more stream, each with the path at which it writes.
    pub(crate) fn place(&mut self, sinks: &[SinkSpec]) -> Vec<SinkSpec> {
        let mut placed = sinks.to_vec();
        for sink in &mut placed {
            sink.path = self.free(&sink.path);
            self.written.insert(sink.path.clone());
        }
        placed
    }

    /// `path`, or where that is taken the first free one of `name-2.ext`, `name-3.ext` and so on.
    fn free(&self, path: &Path) -> PathBuf {
        if !self.is_taken(path) {
            return path.to_owned();
        }
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let ending =
            path.extension().map_or_else(String::new, |ending| format!(".{}", ending.to_string_lossy()));
        let numbered = |number: usize| path.with_file_name(format!("{stem}-{number}{ending}"));
        (2..).map(numbered).find(|path| !self.is_taken(path)).expect("numbers do not end")
    }

    fn is_taken(&self, path: &Path) -> bool {
        match path.metadata() {
            _ if path == Path::new("-") => false,
            Ok(there) if !there.is_file() => false,
            Ok(there) if self.earlier == Earlier::Kept && there.len() > 0 => true,
            _ => self.written.contains(path),
        }
    }
}

/// Refuses a file that the caller means to write besides, where a stream of the board reads or writes it.
pub fn check_own_file(board: &Board, path: &Path) -> Result<(), Diagnosis> {
    let taken = check_outputs(&board.streams)?;
    taken.get(&place_of(path)).map_or(Ok(()), |whose| {
        Err(Diagnosis::new(&codes::SINK_OPEN, path.display(), whose, "write to another path"))
    })
}

/// Refuses sinks that would destroy something: a file that a stream reads, or what another sink writes. And an MP4 on
/// standard output, which cannot be rewound. Otherwise returns the files that are read or written, and by whom.
pub(crate) fn check_outputs(streams: &[BoardStream]) -> Result<BTreeMap<PathBuf, String>, Diagnosis> {
    let mut taken = BTreeMap::new();
    for stream in streams {
        if let Some(path) = file_read(stream)? {
            taken.insert(place_of(&path), format!("stream {} reads it", stream.name));
        }
    }
    for stream in streams {
        for SinkSpec { kind, path } in &stream.sinks {
            let refuse =
                |cause: &str, next: &str| Err(Diagnosis::new(&codes::SINK_OPEN, path.display(), cause, next));
            if path == Path::new("-") {
                if matches!(kind, SinkKind::Mp4 | SinkKind::Mp4H265) {
                    return refuse("an MP4 needs a file that can be rewound", "name a file, as out.mp4");
                }
                continue;
            }
            // Nothing is lost in a pipe or a device.
            if path.metadata().is_ok_and(|there| !there.is_file()) {
                continue;
            }
            if let Some(other) = taken.insert(place_of(path), format!("stream {} writes it too", stream.name))
            {
                return refuse(&other, "write to another path");
            }
        }
    }
    Ok(taken)
}

/// The file that a stream reads, where it is one.
fn file_read(stream: &BoardStream) -> Result<Option<PathBuf>, Diagnosis> {
    Ok(match SourceUri::parse(&stream.source)?.kind() {
        SourceKind::Video { path, .. } | SourceKind::Images { paths: ImagePaths::One(path), .. } => {
            Some(path.clone())
        }
        _ => None,
    })
}

/// The file itself, however its path is written. Of one that is not there yet: its name in its folder.
fn place_of(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let beside = || Some(folder.canonicalize().ok()?.join(path.file_name()?));
    path.canonicalize().ok().or_else(beside).unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_kept() {
        let written: BTreeSet<PathBuf> = ["out/a.mp4", "out/a-2.mp4", "b", "-"].map(PathBuf::from).into();
        let outputs = Outputs::new(written, Earlier::Overwritten);
        let path = |path: &str| outputs.free(Path::new(path)).display().to_string();
        assert_eq!(path("out/a.mp4"), "out/a-3.mp4");
        assert_eq!([path("b"), path("c.jsonl"), path("-")], ["b-2", "c.jsonl", "-"]);
    }

    #[test]
    fn what_an_earlier_run_wrote_is_kept_where_nobody_may_have_been_there() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let [full, empty] = ["full", "empty"].map(|name| dir.path().join(name));
        std::fs::write(&full, "results").expect("written");
        std::fs::write(&empty, "").expect("written");
        for (earlier, wanted) in [(Earlier::Overwritten, "full"), (Earlier::Kept, "full-2")] {
            let outputs = Outputs::new(BTreeSet::new(), earlier);
            assert_eq!(outputs.free(&full), dir.path().join(wanted));
            assert_eq!(outputs.free(&empty), empty);
        }
    }

    #[test]
    fn outputs_that_would_destroy_something_are_refused() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let file = |name: &str| dir.path().join(name).display().to_string();
        std::fs::write(file("in.png"), "a picture").expect("written");
        let check = |sinks: &[(SinkKind, &str)]| {
            let sinks = sinks.iter().map(|(kind, path)| SinkSpec { kind: *kind, path: path.into() });
            let stream = BoardStream::new("a", file("in.png"), Vec::new());
            let streams = [BoardStream { sinks: sinks.collect(), ..stream }];
            check_outputs(&streams).map(drop).map_err(|why| why.cause)
        };
        let (jsonl, mp4) = (SinkKind::Jsonl, SinkKind::Mp4);
        assert_eq!(check(&[(jsonl, &file("./in.png"))]), Err("stream a reads it".to_owned()));
        let twice = check(&[(jsonl, &file("out")), (mp4, &file("./out"))]);
        assert_eq!(twice, Err("stream a writes it too".to_owned()));
        assert!(check(&[(mp4, "-")]).is_err_and(|cause| cause.contains("rewound")));
        let fine = [(jsonl, "-"), (jsonl, "-"), (jsonl, "/dev/null"), (mp4, "/dev/null"), (mp4, &file("a"))];
        assert_eq!(check(&fine), Ok(()));
    }
}
