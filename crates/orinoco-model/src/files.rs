//! Files from which a model is read, so that no output is written over one of them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use orinoco_config::{Document, Vars};

use crate::Model;
use crate::onnx::ONNX;
use crate::protobuf::Fields;
use crate::repository::{Repository, newest_version};

/// Maximum nesting of messages: a graph in an attribute of a node of a graph. A file that nests deeper is not searched.
const DEPTH_MAX: usize = 64;
/// Maximum length of the name of a file with weights, in bytes.
const NAME_BYTES_MAX: u64 = 4096;

impl Repository {
    /// Returns every file from which the model `text` is read: descriptions, labels, the ONNX file and files with its
    /// weights. Files that cannot be read are left out: loading the model reports them.
    pub fn files(&self, text: &str) -> Vec<PathBuf> {
        let path = Path::new(text);
        let ends_with = |ending: &str| path.extension().is_some_and(|is| is.eq_ignore_ascii_case(ending));
        let (toml, version_file) = if ends_with("onnx") {
            let above = path.parent().and_then(Path::parent).map(|dir| dir.join("model.toml"));
            (above, Some(path.to_owned()))
        } else if ends_with("toml") {
            (Some(path.to_owned()), newest_version(path.parent().unwrap_or(Path::new(""))))
        } else {
            let dir = self.find_dir(text).ok();
            (dir.as_ref().map(|dir| dir.join("model.toml")), dir.as_deref().and_then(newest_version))
        };
        let files = RefCell::new(BTreeSet::from_iter(version_file.clone()));
        if let Some(toml) = toml.filter(|toml| toml.is_file()) {
            files.borrow_mut().insert(toml.clone());
            if let Ok(document) = Document::load(&toml, &Vars::new()) {
                files.borrow_mut().extend(document.files().iter().cloned());
            }
            let _ = Model::read(&toml, version_file, &|text, dir| {
                let found = self.locate(text, dir);
                files.borrow_mut().insert(found.clone());
                found
            });
        }
        let mut files = files.into_inner();
        let onnx: Vec<PathBuf> = files.iter().filter(|file| is_onnx(file)).cloned().collect();
        files.extend(onnx.iter().flat_map(|file| weight_files(file)));
        files.into_iter().collect()
    }
}

pub(crate) fn is_onnx(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("onnx"))
}

/// Returns the files next to `file` that hold weights of its graph. A file that cannot be read has none, and a damaged
/// one has those before the damage: engines report both better.
pub(crate) fn weight_files(file: &Path) -> Vec<PathBuf> {
    let mut names = BTreeSet::new();
    if let Ok(opened) = ONNX.open(file) {
        let mut fields = Fields::new(opened);
        let end = fields.end();
        let _ = find_locations(&mut fields, end, Kind::Model, DEPTH_MAX, &mut names);
    }
    let folder = file.parent().unwrap_or(Path::new(""));
    names.into_iter().map(|name| folder.join(name)).collect()
}

/// Messages of onnx.proto on the way to `external_data`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Model,
    Graph,
    Function,
    Node,
    Attribute,
    SparseTensor,
    Tensor,
    /// Entry of `external_data`: a key and a value.
    Entry,
}

impl Kind {
    /// Returns the message in a field, if it may lead to weights.
    fn field(self, number: u64) -> Option<Self> {
        match (self, number) {
            (Self::Model, 7) => Some(Self::Graph),
            (Self::Graph, 1) => Some(Self::Node),
            (Self::Graph, 5) | (Self::Attribute, 5 | 10) | (Self::SparseTensor, 1 | 2) => Some(Self::Tensor),
            (Self::Graph, 15) | (Self::Attribute, 22 | 23) => Some(Self::SparseTensor),
            (Self::Model, 25) => Some(Self::Function),
            (Self::Function, 7) => Some(Self::Node),
            (Self::Node, 5) => Some(Self::Attribute),
            (Self::Attribute, 6 | 11) => Some(Self::Graph),
            (Self::Tensor, 13) => Some(Self::Entry),
            _ => None,
        }
    }
}

/// Collects the locations of weights in the message of `kind` that ends at `end`.
fn find_locations(
    fields: &mut Fields,
    end: u64,
    kind: Kind,
    depth_left: usize,
    names: &mut BTreeSet<String>,
) -> io::Result<()> {
    let (mut key, mut value) = (String::new(), String::new());
    while let Some(field) = fields.next(end)? {
        match (kind, field.number) {
            (Kind::Entry, 1) => key = fields.text(field, NAME_BYTES_MAX)?,
            (Kind::Entry, 2) => value = fields.text(field, NAME_BYTES_MAX)?,
            _ => match kind.field(field.number).filter(|_| depth_left > 0) {
                Some(inner) => {
                    let end = fields.end_of(field);
                    find_locations(fields, end, inner, depth_left - 1, names)?;
                }
                None => fields.skip(field.length)?,
            },
        }
    }
    if kind == Kind::Entry && key == "location" && !value.is_empty() {
        names.insert(value);
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use crate::{ModelFileError, check_file};

    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(bytes.len()).expect("it is short")], bytes].concat()
    }

    /// Makes a tensor whose weights are in the file `name`, after some of its own.
    fn tensor(name: &str) -> Vec<u8> {
        let entry = |key: &str, value: &str| [field(1, key.as_bytes()), field(2, value.as_bytes())].concat();
        let own = field(9, &[0xff; 40]);
        [own, field(13, &entry("location", name)), field(13, &entry("offset", "0"))].concat()
    }

    #[test]
    fn every_file_that_holds_weights_is_found() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let inner = field(5, &tensor("inner.bin"));
        let attribute = field(6, &inner);
        let constant = field(5, &tensor("constant.bin"));
        let nodes = [field(1, &field(5, &attribute)), field(1, &field(5, &constant))].concat();
        let graph = [nodes, field(5, &tensor("weights.bin")), field(2, b"a graph")].concat();
        let model =
            [vec![8, 10], vec![7 << 3 | 2, graph.len() as u8 | 0x80, (graph.len() >> 7) as u8], graph];
        let file = dir.path().join("model.onnx");
        std::fs::write(&file, model.concat()).expect("written");
        let fault = check_file(&file).expect_err("none of them is there");
        let constant = dir.path().join("constant.bin");
        assert!(matches!(&fault, ModelFileError::Weights { path, .. } if *path == constant), "{fault:?}");
        let found = weight_files(&file);
        let wanted = ["constant.bin", "inner.bin", "weights.bin"].map(|name| dir.path().join(name));
        assert_eq!(found, wanted);
        let repository = Repository { roots: Vec::new(), data: Vec::new() };
        let files = repository.files(&file.display().to_string());
        assert!(files.contains(&file) && wanted.iter().all(|name| files.contains(name)), "{files:?}");
    }

    #[test]
    fn damage_is_no_harm() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let file = dir.path().join("model.onnx");
        for bytes in [&b""[..], b"text", &[0xff; 30], &[0x3a, 0xff, 0xff, 0xff, 0xff, 0x0f], &[0x3a; 300]] {
            std::fs::write(&file, bytes).expect("written");
            assert!(weight_files(&file).is_empty(), "{bytes:?}");
        }
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        /// Longer than opening a file takes on a busy machine; a hang does not end.
        const WAIT_MAX: Duration = Duration::from_secs(20);
        let dir = tempfile::tempdir().expect("temporary folder");
        let pipe = dir.path().join("m.onnx");
        mkfifoat(CWD, &pipe, Mode::RWXU).expect("made");
        let (sender, receiver) = mpsc::channel();
        let text = pipe.display().to_string();
        thread::spawn(move || {
            let files = Repository { roots: Vec::new(), data: Vec::new() }.files(&text);
            sender.send(files).expect("somebody waits");
        });
        assert_eq!(receiver.recv_timeout(WAIT_MAX).expect("it is not opened"), [pipe]);
    }

    #[test]
    fn a_description_is_there_with_its_labels_and_what_it_inherits() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let file = |name: &str| dir.path().join(name);
        std::fs::write(file("base.toml"), "license = 'x'\n").expect("written");
        std::fs::write(file("names.txt"), "one\n").expect("written");
        let text = "version = 1\ninherit = ['base.toml']\nname = 'm'\nfile = 'm.onnx'\n[output]\nhead = 'yolov8'\n\
                    labels_file = 'names.txt'\n";
        std::fs::write(file("model.toml"), text).expect("written");
        let repository = Repository { roots: Vec::new(), data: Vec::new() };
        let files = repository.files(&dir.path().display().to_string());
        for name in ["base.toml", "model.toml", "m.onnx", "names.txt"] {
            assert!(files.contains(&file(name)), "{name} in {files:?}");
        }
    }
}
