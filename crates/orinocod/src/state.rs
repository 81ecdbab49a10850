//! Folder for what the daemon keeps between two runs.

use std::env;
use std::path::PathBuf;

/// Returns the state directory that systemd gives the daemon (systemd.exec(5), `StateDirectory=`). `None` outside of a unit.
pub(crate) fn state_directory() -> Option<PathBuf> {
    env::var_os("STATE_DIRECTORY").map(PathBuf::from)
}
