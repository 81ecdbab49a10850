//! Files through which ranks find one another.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::{JoinError, KeyError};

/// Makes a file that only this user can read. It gets its name when it is complete, so nobody sees half of it.
pub(crate) fn publish<T>(path: &Path, fill: impl FnOnce(&File) -> io::Result<T>) -> Result<T, JoinError> {
    let mut number = [0; 8];
    getrandom::fill(&mut number).map_err(|error| KeyError::Randomness(error.to_string()))?;
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{:016x}", u64::from_ne_bytes(number)));
    let temporary = PathBuf::from(temporary);
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&temporary);
    let file = file.map_err(|source| fault("creating", &temporary, source))?;
    let filled = fill(&file).and_then(|filled| {
        // A link fails where the name is taken; renaming would replace it.
        fs::hard_link(&temporary, path)?;
        Ok(filled)
    });
    let _ = fs::remove_file(&temporary);
    filled.map_err(|source| fault("creating", path, source))
}

pub(crate) fn fault(action: &'static str, path: &Path, source: io::Error) -> JoinError {
    JoinError::File { action, path: path.to_owned(), source }
}
