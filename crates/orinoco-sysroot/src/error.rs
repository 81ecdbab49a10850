use std::io;

/// Greatest length of a file that is read, in bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// A file of a [`Sysroot`](crate::Sysroot) that gave no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {kind}")]
pub struct ReadError {
    /// Path on the board, such as `/sys/class/thermal/thermal_zone0/temp`.
    pub path: String,
    /// Reason why it gave none.
    pub kind: ReadErrorKind,
}

/// Reason why a file gave no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadErrorKind {
    /// There is no such file or folder.
    #[error("does not exist")]
    Absent,
    /// The user may not read it.
    #[error("permission denied")]
    Denied,
    /// The driver has no value at present (`EAGAIN`, `ENODATA`, `ENODEV`), for example because the part is powered off.
    #[error("has no value at present")]
    Unavailable,
    /// It is longer than [`FILE_BYTES_MAX`](crate::FILE_BYTES_MAX), or than the caller allows.
    #[error("is larger than 1 MiB")]
    TooLarge,
    /// It is not a regular file: a device, a FIFO or a socket.
    #[error("is not a regular file")]
    NotAFile,
    /// It is a folder where a file is expected, or a file where a folder is expected.
    #[error("is not what is expected there: a folder for a file, or a file for a folder")]
    WrongType,
    /// Symbolic links that lead to one another.
    #[error("its symbolic links form a loop")]
    LinkLoop,
    /// Its text is not UTF-8.
    #[error("is not UTF-8 text")]
    NotText,
    /// Its text is not a whole number.
    #[error("'{0}' is not a whole number")]
    NotANumber(String),
    /// The root is a recording, and the recorder did not keep this file: it was not asked for, or left out for privacy.
    #[error("is not in the recording")]
    NotRecorded,
    /// Another error of the operating system.
    #[error("{0}")]
    Other(String),
}

impl From<&io::Error> for ReadErrorKind {
    fn from(error: &io::Error) -> Self {
        use io::ErrorKind;
        use rustix::io::Errno;
        let errno = error.raw_os_error().map(Errno::from_raw_os_error);
        match (error.kind(), errno) {
            (ErrorKind::NotFound, _) => Self::Absent,
            (ErrorKind::PermissionDenied, _) => Self::Denied,
            (ErrorKind::IsADirectory | ErrorKind::NotADirectory, _) => Self::WrongType,
            (_, Some(Errno::LOOP)) => Self::LinkLoop,
            (ErrorKind::WouldBlock, _) | (_, Some(Errno::NODATA | Errno::NODEV | Errno::NXIO)) => {
                Self::Unavailable
            }
            _ => Self::Other(error.to_string()),
        }
    }
}
