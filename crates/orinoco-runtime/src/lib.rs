//! Turns a checked board into running pipelines, for the CLI and the daemon alike.
//!
//! [`start`] loads models, probes engines and opens sinks, so that nearly every fault is found before the first frame; then
//! it starts the threads. [`Control`] stops a run and reloads it with another board; [`Running::wait`] returns its
//! [`Summary`]. The crate neither prints nor exits.
//!
//! Inside, read `change.rs` (difference between two boards), `prepare.rs` (work that is slow or may be refused) and
//! `supervisor.rs` (owner of all state: actions in, effects out); `shell.rs` carries the effects out, and `apply.rs` lets
//! streams join and leave.

mod action;
mod admission;
mod apply;
mod areas;
mod available;
mod capabilities;
mod change;
mod checks;
mod ended;
mod energy_rails;
mod engines;
mod event_log;
mod events;
mod governor;
mod joining;
mod memory;
mod model_entry;
mod model_version;
mod models;
mod monitor;
mod outputs;
mod paths;
mod percentiles;
mod placement;
mod planning;
mod prepare;
mod prepare_error;
mod process;
mod progress;
mod readers;
mod reloaded;
mod replacing;
mod run;
mod run_memory;
mod running_board;
mod sampler;
mod scratch_size;
mod seats;
mod sensors_status;
mod shared;
mod shell;
mod sinks;
mod stream;
mod summary;
mod supervisor;
#[cfg(test)]
mod testing;
mod threads;
mod track;

pub use capabilities::capabilities;
pub use checks::{check_references, faults_of};
pub use energy_rails::{EnergyRails, EnergyRailsError, ReadingTimes};
pub use engines::BoardEngines;
pub use events::Quiet;
pub use memory::{peak_bytes, resident_bytes};
pub use models::{Describe, LoadedModel, bind_audio, bind_plan, load_as, load_model, session_for};
pub use monitor::{ModelName, Monitor, RunNames};
pub use orinoco_api::Summary;
pub use outputs::{ExistingOutputs, OutputError, OutputFile, TakenFiles, check_sinks, open_own_file};
pub use paths::{data_dirs, repository, vars};
pub use planning::{asked_to_measure, plan_board, planned_name};
pub use process::{set_up_process, trim_heap};
pub use progress::{OfflineStream, Progress, SlidingRate};
pub use readers::reader_is_gone;
pub use reloaded::Reloaded;
pub use run::{Control, RunOptions, Running, start};
pub use seats::{ModelIdentity, NotServed, SeatBatch, Seats, ServedModels};
pub use sensors_status::{conditions, sensors_status};
pub use sinks::{JSONL, MP4, SINKS};
