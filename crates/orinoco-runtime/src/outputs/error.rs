//! Reasons why an output is not opened.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use orinoco_board::{Endings, SinkKind};
use orinoco_config::Faults;
use orinoco_core::{Diagnosis, codes};
use rustix::io::Errno;

/// Reason why an output is not opened (`E0501`).
#[derive(Debug)]
pub enum OutputError {
    /// The file cannot be created or written.
    Open {
        /// Path of the output.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Nobody reads the named pipe.
    NoReader {
        /// Path of the output.
        path: PathBuf,
    },
    /// The file is read, or another output writes to it.
    Taken {
        /// Path of the output.
        path: PathBuf,
        /// Reason in one sentence.
        why: String,
    },
    /// The path is a folder.
    Folder {
        /// Path of the output.
        path: PathBuf,
    },
    /// The ending of the name stands for another format.
    Ending {
        /// Path of the output.
        path: PathBuf,
        /// Kind of the output.
        kind: SinkKind,
    },
    /// The output cannot be written to standard output.
    StandardOutput {
        /// Kind of the output.
        kind: SinkKind,
        /// Reason in one sentence.
        why: &'static str,
    },
}

impl OutputError {
    pub(super) fn open(path: &Path) -> impl FnOnce(io::Error) -> Self {
        |source| {
            let path = path.to_owned();
            let is_pipe = path.metadata().is_ok_and(|there| there.file_type().is_fifo());
            match is_pipe && source.raw_os_error() == Some(Errno::NXIO.raw_os_error()) {
                true => Self::NoReader { path },
                false => Self::Open { path, source },
            }
        }
    }
}

impl From<OutputError> for Diagnosis {
    fn from(error: OutputError) -> Self {
        let fault =
            |path: &Path, cause: &str, next: &str| Self::new(&codes::SINK_OPEN, path.display(), cause, next);
        match error {
            OutputError::Open { path, source } => {
                fault(&path, &source.to_string(), "check that its folder can be written")
            }
            OutputError::NoReader { path } => {
                fault(&path, "nobody reads this named pipe", "start its reader first, or name a regular file")
            }
            OutputError::Taken { path, why } => fault(&path, &why, "write to another path"),
            OutputError::Folder { path } => fault(&path, "it is a folder", "name a file in it"),
            OutputError::Ending { path, kind } => {
                let ending = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
                let cause = format!("{} cannot be written to a .{ending} file", kind.content);
                let next = match kind.endings {
                    Endings::OneOf(endings) => format!("end the name in .{}", endings.join(" or .")),
                    Endings::OfText(usual) => format!("end the name in .{usual}"),
                };
                fault(&path, &cause, &next)
            }
            OutputError::StandardOutput { kind, why } => {
                let next = format!("name a file, such as out.{}", kind.endings.usual());
                Self::new(&codes::SINK_OPEN, "standard output", why, next)
            }
        }
    }
}

impl From<OutputError> for Faults {
    fn from(error: OutputError) -> Self {
        Diagnosis::from(error).into()
    }
}
