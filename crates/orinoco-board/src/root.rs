//! Root of the files that describe a board, as users name it.

use std::path::Path;

use orinoco_core::{Clock, Diagnosis, codes};
use orinoco_sysroot::Sysroot;

/// Opens the root of a board that `path` names: a folder that holds the board's `/proc`, `/sys` and `/etc`, or an archive of
/// `orinoco board record`, which is replayed from now on.
///
/// # Errors
/// `E0101`, if it is neither.
pub fn open_root(path: &Path, clock: impl Clock + 'static) -> Result<Sysroot, Diagnosis> {
    let start = clock.now();
    let next =
        "name a folder that holds the board's /proc, /sys and /etc, or an archive of `orinoco board record`";
    let root = Sysroot::open(path, move || clock.now().since(start));
    root.map_err(|why| Diagnosis::new(&codes::FILE_MISSING, path.display(), why, next))
}
