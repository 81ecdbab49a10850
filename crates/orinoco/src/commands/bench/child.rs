//! Measurements in a separate process, so that memory of earlier ones does not count.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use orinoco_api::ErrorReport;
use orinoco_core::{Diagnosis, codes};
use serde::de::DeserializeOwned;

use crate::args::WhereArgs;
use crate::commands::diagnosis_of;

/// Runs `orinoco --json bench` with `arguments`, and reads the report that it prints. `measured` names in faults what it
/// measures for the command `subject`.
///
/// # Errors
/// The fault that it prints, or `E0304` if it prints none.
pub(super) fn run_bench<T: DeserializeOwned>(
    subject: &str,
    measured: &str,
    arguments: &[OsString],
) -> Result<T, Diagnosis> {
    let about = |cause: String| {
        let next = "run it again; if it fails again, report it";
        Diagnosis::new(&codes::ENGINE_RUN, subject, cause, next)
    };
    let program = std::env::current_exe().map_err(|why| about(why.to_string()))?;
    let mut command = Command::new(program);
    command.args(["--json", "bench"]).args(arguments);
    let done = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let done = done.map_err(|why| about(why.to_string()))?;
    if let Ok(report) = serde_json::from_slice(&done.stdout) {
        return Ok(report);
    }
    // On failure it prints an error report.
    let failed: Option<ErrorReport> = serde_json::from_slice(&done.stdout).ok();
    let fault = failed.and_then(|failed| failed.faults.first().map(diagnosis_of));
    Err(fault.unwrap_or_else(|| {
        about(format!("the measuring process for {measured} exited with {}", done.status))
    }))
}

/// Returns the arguments that pass on the folders in which models are searched.
pub(super) fn place_arguments(place: &WhereArgs) -> Vec<OsString> {
    let folders = [("--models", &place.models), ("--data", &place.data)];
    let given = folders.into_iter().filter_map(|(name, folder)| Some((name, folder.as_ref()?)));
    given.flat_map(|(name, folder)| [name.into(), folder.clone().into_os_string()]).collect()
}
