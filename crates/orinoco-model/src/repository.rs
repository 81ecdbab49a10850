//! Finds models by name, folder or file.

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use orinoco_config::{Faults, ReadErrorKind};
use orinoco_core::{Diagnosis, WithSubject, codes};
use sha2::{Digest, Sha256};

use crate::Model;
use crate::onnx::ONNX;

/// Model repository: the folders with models.
#[derive(Clone, Debug)]
pub struct Repository {
    /// Folders of `<name>/model.toml`; the first match wins.
    pub roots: Vec<PathBuf>,
    /// Folders that are searched for the `file` and `labels_file` of a description, after its own folder.
    pub data: Vec<PathBuf>,
}

impl Repository {
    /// Lists the models by name, sorted, each with its folder.
    pub fn list(&self) -> Vec<(String, PathBuf)> {
        let mut found: Vec<(String, PathBuf)> = Vec::new();
        for root in &self.roots {
            let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
            for dir in entries.map(|entry| entry.path()).filter(|dir| dir.join("model.toml").is_file()) {
                let name =
                    dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                // Hidden folders are of copies that are under way.
                if !name.starts_with('.') && !found.iter().any(|(known, _)| *known == name) {
                    found.push((name, dir));
                }
            }
        }
        found.sort();
        found
    }

    /// Reads and checks the description of the model `text`: a name in the repository, a folder, or a `model.toml`.
    /// Returns `None` for an `.onnx` file without a description.
    pub fn describe(&self, text: &str) -> Result<Option<Model>, Faults> {
        let model = self.read_description(text)?;
        model.as_ref().map_or(Ok(()), check_file)?;
        Ok(model)
    }

    /// Reads the description as [`Repository::describe`] does, but does not check the ONNX file, which may be large.
    pub fn read_description(&self, text: &str) -> Result<Option<Model>, Faults> {
        let path = Path::new(text);
        let is_onnx = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("onnx"));
        let model = if is_onnx {
            // A file inside a repository has its description one folder up.
            let next_to_it = path.parent().and_then(Path::parent).map(|dir| dir.join("model.toml"));
            match next_to_it.filter(|toml| path.is_file() && toml.is_file()) {
                Some(toml) => self.read(&toml, Some(path.to_owned()))?,
                None => {
                    std::fs::metadata(path).about(&codes::FILE_MISSING, path.display(), "check the path")?;
                    return Ok(None);
                }
            }
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            self.read(path, newest_version(path.parent().unwrap_or(Path::new(""))))?
        } else {
            let dir = self.find_dir(text)?;
            self.read(&dir.join("model.toml"), newest_version(&dir))?
        };
        Ok(Some(model))
    }

    fn read(&self, toml: &Path, version_file: Option<PathBuf>) -> Result<Model, Faults> {
        Model::read(toml, version_file, &|text, dir| self.locate(text, dir))
    }

    pub(crate) fn find_dir(&self, text: &str) -> Result<PathBuf, Diagnosis> {
        let as_folder = Path::new(text);
        if as_folder.join("model.toml").is_file() {
            return Ok(as_folder.to_owned());
        }
        let in_roots =
            self.roots.iter().map(|root| root.join(text)).find(|dir| dir.join("model.toml").is_file());
        in_roots.ok_or_else(|| {
            let names: Vec<String> = self.list().into_iter().map(|(name, _)| name).collect();
            let next = match &names[..] {
                [] => "the repository is empty: choose another with --models".to_owned(),
                names => format!("use one of {}", names.join(", ")),
            };
            let roots: Vec<String> = self.roots.iter().map(|root| root.display().to_string()).collect();
            let cause = format!("no such model in {}", roots.join(", "));
            Diagnosis::new(&codes::MODEL_NOT_FOUND, text, cause, next)
        })
    }

    /// Returns the path of a file that a description names: in its own folder, else in the data folders.
    pub(crate) fn locate(&self, text: &str, folder: &Path) -> PathBuf {
        let own = folder.join(text);
        let in_data = || self.data.iter().map(|dir| dir.join(text)).find(|path| path.exists());
        if own.exists() { own } else { in_data().unwrap_or(own) }
    }
}

/// Returns `<dir>/<highest number>/model.onnx`.
pub(crate) fn newest_version(dir: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(dir).ok()?.flatten();
    let versions = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    versions
        .filter(|version| dir.join(version.to_string()).join("model.onnx").is_file())
        .max()
        .map(|version| dir.join(version.to_string()).join("model.onnx"))
}

fn check_file(model: &Model) -> Result<(), Diagnosis> {
    let shown = model.file.display();
    let next = "check the path, or name the folder that holds it with --data or ORINOCO_DATA";
    let file = ONNX.open(&model.file).map_err(|error| match error.kind {
        ReadErrorKind::Io(_) | ReadErrorKind::NotAFile(_) => {
            Diagnosis { next: next.to_owned(), ..error.into() }
        }
        ReadErrorKind::TooLarge | ReadErrorKind::NotText(_) => error.into(),
    })?;
    let Some(wanted) = &model.sha256 else { return Ok(()) };
    let is = sha256_of_file(file).about(&codes::FILE_MISSING, &shown, next)?;
    if is.eq_ignore_ascii_case(wanted) {
        return Ok(());
    }
    let short = |hash: &str| hash.chars().take(12).collect::<String>();
    let cause = format!("its sha256 is {}…, the description says {}…", short(&is), short(wanted));
    let next = "fetch the file again, or update sha256 in model.toml if the change is meant";
    Err(Diagnosis::new(&codes::MODEL_HASH, shown, cause, next))
}

/// Returns the SHA-256 of the ONNX file at `path` in hex.
///
/// # Errors
/// Those of opening and reading the file.
pub fn sha256_of(path: &Path) -> Result<String, Diagnosis> {
    sha256_of_file(ONNX.open(path)?).about(&codes::FILE_MISSING, path.display(), ONNX.next)
}

/// Returns the SHA-256 of the content of `file`, from its position to its end, in hex. The file is read once, piece by piece.
///
/// # Errors
/// Those of reading.
pub fn sha256_of_file(mut file: File) -> io::Result<String> {
    let mut hasher = Sha256::new();
    io::copy(&mut file, &mut hasher)?;
    Ok(hasher.finalize().iter().fold(String::new(), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of bytes that this thread has read so far.
    fn bytes_read() -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/io").expect("Linux counts");
        let line = text.lines().find_map(|line| line.strip_prefix("rchar: "));
        line.and_then(|count| count.parse().ok()).expect("a number")
    }

    #[test]
    fn a_model_file_is_read_once_for_its_sha256_and_not_at_all_without() {
        const BYTES: u64 = 3 << 20;
        // Bytes of the description, and of counting itself.
        const OTHERS_MAX: u64 = 64 << 10;
        let dir = tempfile::tempdir().expect("a temporary folder");
        let file = dir.path().join("m.onnx");
        std::fs::write(&file, vec![7; BYTES as usize]).expect("written");
        let hash = sha256_of(&file).expect("readable");
        assert_eq!(hash.len(), 64);
        let describe = |sha256: &str| {
            let text = format!(
                "version = 1\nname = 'm'\nfile = 'm.onnx'\n{sha256}[input]\nwidth = 8\nheight = 8\n[output]\nhead = 'raw'\n"
            );
            std::fs::write(dir.path().join("model.toml"), text).expect("written");
            let before = bytes_read();
            let repository = Repository { roots: Vec::new(), data: Vec::new() };
            let described = repository.describe(&dir.path().display().to_string());
            (described.map(|_| ()), bytes_read() - before)
        };
        let (described, read) = describe("");
        assert!(described.is_ok() && read < OTHERS_MAX, "{described:?}: {read} bytes");
        let (described, read) = describe(&format!("sha256 = '{hash}'\n"));
        assert!(
            described.is_ok() && (BYTES..BYTES + OTHERS_MAX).contains(&read),
            "{described:?}: {read} bytes"
        );
        let (described, _) = describe("sha256 = '00'\n");
        assert_eq!(described.expect_err("another").as_slice()[0].code.id, codes::MODEL_HASH.id);
    }
}
