//! A checked board into running pipelines, for the CLI and the daemon alike.
//!
//! [`Runtime::prepare`] loads models, proves engines and opens sinks, and so finds nearly everything that can be wrong
//! before the first frame. [`Runtime::start`] starts the threads; [`Running::wait`] returns the [`Summary`].
//! [`Running::reload`] makes it another board while it runs. It neither prints nor exits.

mod available;
#[cfg_attr(not(test), expect(dead_code, reason = "starting and reloading come to use it"))]
mod change;
mod endings;
mod events;
mod follow;
mod memory;
mod models;
mod outputs;
mod paths;
mod planning;
mod process;
mod progress;
mod readers;
mod reload;
mod run;
mod sinks;
mod summary;
mod threads;

pub use events::Quiet;
pub use memory::{peak_bytes, resident_bytes};
pub use models::{Describe, LoadedModel, bind_audio, bind_plan, load_as, load_model};
pub use orinoco_api::Summary;
pub use outputs::{Earlier, OutputFile, TakenFiles, open_own_file};
pub use paths::{data_dirs, repository, vars};
pub use planning::{asked_to_measure, plan_board, planned_name};
pub use process::set_up_process;
pub use progress::{Away, Progress, SlidingRate};
pub use readers::reader_is_gone;
pub use reload::{Ready, Reload, Reloaded};
pub use run::{Running, Runtime};
