//! Checks of a model file that need no engine.

use std::io::Read;
use std::path::Path;

use orinoco_core::{Diagnosis, WithSubject, codes};

use crate::files::weight_files;
use crate::onnx::ONNX;

/// Makes the fault of a file that is not a model or is damaged. `cause` is a short sentence.
pub fn unreadable(file: &Path, cause: &str) -> Diagnosis {
    let next = "compare its size and sha256 with the original";
    Diagnosis::new(&codes::MODEL_PARSE, file.display(), cause, next)
}

/// Finds the faults of a model file that engines report badly: it is missing, not a file, empty, or was never fetched
/// from Git LFS; or a file with its weights is missing.
pub fn check_file(file: &Path) -> Result<(), Diagnosis> {
    const LFS: &[u8] = b"version https://git-lfs";
    let opened = ONNX.open(file)?;
    let mut head = Vec::with_capacity(LFS.len());
    let read = opened.take(LFS.len() as u64).read_to_end(&mut head);
    read.about(&codes::FILE_MISSING, file.display(), ONNX.next)?;
    match head.as_slice() {
        [] => Err(unreadable(file, "the file is empty")),
        LFS => Err(Diagnosis::new(
            &codes::MODEL_PARSE,
            file.display(),
            "it is a Git LFS pointer, not the model",
            "fetch the model with `git lfs pull`",
        )),
        _ => check_external(file),
    }
}

/// Checks that the files with external weights exist.
fn check_external(file: &Path) -> Result<(), Diagnosis> {
    for path in weight_files(file) {
        let metadata = std::fs::metadata(&path);
        let cause = match metadata {
            Ok(metadata) if metadata.is_file() => continue,
            Ok(_) => "it is not a file".to_owned(),
            Err(why) => why.to_string(),
        };
        let cause = format!("{} stores weights in this file: {cause}", file.display());
        let next = "put it next to the model, under the name that the model was exported with";
        return Err(Diagnosis::new(&codes::FILE_MISSING, path.display(), cause, next));
    }
    Ok(())
}
