//! `orinoco board`.

mod json;
mod record;
mod text;

use std::path::Path;

use orinoco_config::Faults;
use orinoco_core::{Diagnosis, Exit};
use orinoco_pipeline::MonotonicClock;
use orinoco_sysroot::Sysroot;

use crate::output;

pub(crate) use record::{RecordArgs, run as record};

/// Detects this machine, or the board whose files are in a folder or in a recording.
pub(crate) fn detect(sysroot: Option<&Path>, json: bool) -> Result<Exit, Faults> {
    let sysroot = sysroot_at(sysroot)?;
    let detection = orinoco_board::detect(&sysroot);
    match json {
        true => output::print_json(&json::board(&detection)),
        false => output::print(&text::board(&detection)),
    }
    Ok(Exit::Done)
}

/// Returns the root of this machine, or of the board whose files are in a folder or in a recording, which is replayed from now on.
pub(super) fn sysroot_at(path: Option<&Path>) -> Result<Sysroot, Diagnosis> {
    path.map_or_else(|| Ok(Sysroot::host()), |path| orinoco_board::open_root(path, MonotonicClock::default()))
}

/// Lists the profiles.
pub(crate) fn list(json: bool) -> Result<Exit, Faults> {
    let profiles = orinoco_board::profiles();
    match json {
        true => output::print_json(&json::list(profiles)),
        false => output::print(&text::list(profiles)),
    }
    Ok(Exit::Done)
}

/// Shows one profile.
pub(crate) fn show(name: &str, json: bool) -> Result<Exit, Faults> {
    let profile = orinoco_board::profile_named(name)?;
    match json {
        true => output::print_json(&json::report(profile)),
        false => output::print(&text::profile(profile)),
    }
    Ok(Exit::Done)
}
