//! Reference outputs of a model: stored inputs, and the raw outputs that another program computed from them.
//!
//! A folder holds NPZ files (NumPy's archives), one for each input. An archive has the array `input_u8`, an image of the
//! model's input size in the model's channel order (height, width, channels), or `input`, the input tensor itself; and
//! `out_NAME` for each output NAME of the graph that is stored. Other arrays are ignored.

mod npy;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use orinoco_core::{Diagnosis, codes};
use zip::ZipArchive;
use zip::result::ZipError;

pub use npy::Array;
use npy::ArrayError;

/// Prefix of the arrays that are outputs of the graph.
const OUTPUT: &str = "out_";
/// Maximum size of one array, in bytes. Outputs of an image model have some megabytes.
const ARRAY_BYTES_MAX: u64 = 512 << 20;

/// A stored input with reference outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// File that holds both.
    pub file: PathBuf,
    /// The input.
    pub input: ReferenceInput,
    /// Outputs with their names in the graph.
    pub outputs: Vec<(String, Array)>,
}

/// Input of a reference.
#[derive(Clone, Debug, PartialEq)]
pub enum ReferenceInput {
    /// Image of the model's input size, in the model's channel order: height, width, channels.
    Image(Array),
    /// Input tensor of one item, as the graph takes it.
    Tensor(Array),
}

/// Differences of a tensor from its reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Differences {
    /// Greatest absolute difference; infinite where a value is not a number.
    pub max: f64,
    /// Root mean square of the differences, divided by that of the reference.
    pub relative: f64,
}

/// Reads all references in `folder`, by name of the file. Archives without an input or without an output are left out; the
/// result is empty where the folder does not exist.
///
/// # Errors
/// `E0602` for an archive that cannot be read.
pub fn read(folder: &Path) -> Result<Vec<Reference>, Diagnosis> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "npz"));
    files.sort();
    let read = |file: &PathBuf| read_archive(file).map_err(|error| error.about(file));
    let references = files.iter().map(read);
    Ok(references.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// Reason why an archive is not read.
#[derive(Debug)]
enum ArchiveError {
    /// The file cannot be opened.
    Unopened(io::Error),
    /// The file is not an archive, or one of its entries cannot be found.
    Zip(ZipError),
    /// The bytes of the array `name` cannot be read.
    Broken { name: String, error: io::Error },
    /// The array `name` is not accepted.
    Array { name: String, error: ArrayError },
}

impl From<ZipError> for ArchiveError {
    fn from(error: ZipError) -> Self {
        Self::Zip(error)
    }
}

impl ArchiveError {
    /// Converts the error to a fault of `file`.
    fn about(&self, file: &Path) -> Diagnosis {
        let fault = |cause: String| {
            Diagnosis::new(&codes::DATASET, file.display(), cause, "store it with numpy.savez")
        };
        match self {
            Self::Unopened(error) => {
                Diagnosis::new(&codes::FILE_MISSING, file.display(), error, "check its permissions")
            }
            Self::Zip(error) => fault(error.to_string()),
            Self::Broken { name, error } => fault(format!("array `{name}`: {error}")),
            Self::Array { name, error } => fault(format!("array `{name}` {error}")),
        }
    }
}

fn read_archive(file: &Path) -> Result<Option<Reference>, ArchiveError> {
    let opened = File::open(file).map_err(ArchiveError::Unopened)?;
    let mut archive = ZipArchive::new(opened)?;
    let (mut input, mut outputs) = (None, Vec::new());
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index)?;
        let name = entry.name().trim_end_matches(".npy").to_owned();
        if !(name == "input_u8" || name == "input" || name.starts_with(OUTPUT)) {
            continue;
        }
        let mut bytes = Vec::new();
        let read = (&mut entry).take(ARRAY_BYTES_MAX).read_to_end(&mut bytes);
        read.map_err(|error| ArchiveError::Broken { name: name.clone(), error })?;
        let array = npy::parse(&bytes).map_err(|error| ArchiveError::Array { name: name.clone(), error })?;
        match name.strip_prefix(OUTPUT) {
            Some(output) => outputs.push((output.to_owned(), array)),
            None if name == "input_u8" => input = Some(ReferenceInput::Image(array)),
            None => input = Some(ReferenceInput::Tensor(array)),
        }
    }
    let input = input.filter(|_| !outputs.is_empty());
    Ok(input.map(|input| Reference { file: file.to_owned(), input, outputs }))
}

/// Compares a tensor with its reference; `None` if they have different numbers of values, or none.
pub fn compare(found: &[f32], reference: &[f32]) -> Option<Differences> {
    if found.len() != reference.len() || found.is_empty() {
        return None;
    }
    let pairs =
        found.iter().zip(reference).map(|(found, reference)| (f64::from(*found), f64::from(*reference)));
    let (mut max, mut squares, mut scale) = (0.0_f64, 0.0, 0.0);
    for (found, reference) in pairs {
        let difference = (found - reference).abs();
        let difference = if difference.is_nan() { f64::INFINITY } else { difference };
        max = max.max(difference);
        squares += difference * difference;
        scale += reference * reference;
    }
    let relative = if squares == 0.0 { 0.0 } else { (squares / scale).sqrt() };
    Some(Differences { max, relative })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    /// Writes an archive of arrays, each with its type and values as bytes.
    fn archive(file: &Path, arrays: &[(&str, &str, &str, &[u8])]) {
        let mut archive = ZipWriter::new(File::create(file).expect("a file"));
        for (name, descr, shape, data) in arrays {
            let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
            archive.start_file(format!("{name}.npy"), SimpleFileOptions::default()).expect("an entry");
            archive.write_all(b"\x93NUMPY\x01\x00").expect("written");
            archive.write_all(&(header.len() as u16).to_le_bytes()).expect("written");
            archive.write_all(header.as_bytes()).expect("written");
            archive.write_all(data).expect("written");
        }
        archive.finish().expect("written");
    }

    #[test]
    fn archives_of_a_folder_are_read_by_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let floats: Vec<u8> = [0.5_f32, -2.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        let half: Vec<u8> = vec![0x00, 0x3c, 0x00, 0xc0];
        let image = ("input_u8", "|u1", "(1, 2, 1)", [7_u8, 255].as_slice());
        archive(
            &folder.path().join("b.npz"),
            &[image, ("out_y", "<f4", "(2,)", &floats), ("other", "<U3", "()", &[])],
        );
        archive(
            &folder.path().join("a.npz"),
            &[("input", "<f2", "(2,)", &half), ("out_y", "<f4", "(2,)", &floats)],
        );
        archive(&folder.path().join("c.npz"), &[image]);
        let read = read(folder.path()).expect("readable");
        let names: Vec<_> = read.iter().map(|one| one.file.file_name().expect("a name").to_owned()).collect();
        assert_eq!(names, ["a.npz", "b.npz"], "c has no output");
        let half = Array { shape: vec![2], values: vec![1.0, -2.0] };
        assert_eq!(read[0].input, ReferenceInput::Tensor(half));
        assert_eq!(
            read[1].input,
            ReferenceInput::Image(Array { shape: vec![1, 2, 1], values: vec![7.0, 255.0] })
        );
        assert_eq!(read[1].outputs, [("y".to_owned(), Array { shape: vec![2], values: vec![0.5, -2.0] })]);
    }

    #[test]
    fn a_wrong_archive_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(super::read(&folder.path().join("none")).expect("nothing to read"), []);
        let file = folder.path().join("x.npz");
        std::fs::write(&file, b"no archive").expect("written");
        let fault = super::read(folder.path()).expect_err("no archive");
        assert_eq!((fault.code.id, fault.subject.as_str()), ("E0602", file.to_str().expect("a path")));
        archive(&file, &[("input", "<f4", "(3,)", &[0; 8]), ("out_y", "<f4", "(1,)", &[0; 4])]);
        let fault = super::read(folder.path()).expect_err("too short");
        assert_eq!(fault.cause, "array `input` has 8 bytes of data, but its shape needs 12");
    }

    #[test]
    fn differences_are_relative_to_the_reference() {
        assert_eq!(compare(&[3.0, 4.0], &[3.0, 4.0]), Some(Differences { max: 0.0, relative: 0.0 }));
        let near = compare(&[3.0, 4.5], &[3.0, 4.0]).expect("of one length");
        assert!((near.max - 0.5).abs() < 1e-12 && (near.relative - 0.1).abs() < 1e-12, "{near:?}");
        let wrong = compare(&[f32::NAN], &[1.0]).expect("of one length");
        assert_eq!(wrong, Differences { max: f64::INFINITY, relative: f64::INFINITY });
        assert_eq!((compare(&[1.0], &[1.0, 2.0]), compare(&[], &[])), (None, None));
    }
}
