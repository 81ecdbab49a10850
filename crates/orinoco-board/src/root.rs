//! Root of the files that describe a board, as users name it.

use std::path::Path;
use std::time::Duration;

use orinoco_core::{Diagnosis, codes};
use orinoco_sysroot::Sysroot;

/// Opens the root of a board that `path` names: a folder that holds the board's `/proc`, `/sys` and `/etc`, or an archive of
/// `orinoco board record`. The archive is replayed: `at` returns the time since the start of the recording.
///
/// # Errors
/// `E0101`, if it is neither.
pub fn open_root(
    path: &Path,
    at: impl Fn() -> Duration + Send + Sync + 'static,
) -> Result<Sysroot, Diagnosis> {
    let next =
        "name a folder that holds the board's /proc, /sys and /etc, or an archive of `orinoco board record`";
    Sysroot::open(path, at).map_err(|why| Diagnosis::new(&codes::FILE_MISSING, path.display(), why, next))
}
