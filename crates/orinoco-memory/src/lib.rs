//! Memory of a board: the needs of models and streams, planned before anything is allocated, and the arenas from which
//! engines allocate.
//!
//! The planner is pure: it reads no file, asks no engine and allocates nothing. It adds up sizes; the code that maps an
//! area decides on its address. It refuses needs that do not fit, and suggests the single change that would make them
//! fit; a change to a running board is admitted at its peak. An arena never grows and never falls back to the system's
//! allocator: a request that does not fit is refused and counted.
//!
//! Read first: [`Needs`] (checked sizes of models and streams), [`Plan`] (the areas they add up to, or [`Refused`]) and
//! [`Arena`] (one planned area, from which an engine allocates; its [`Ledger`] has the allocated ranges, and also
//! serves memory elsewhere).

mod admission;
mod area;
mod arena;
mod budget;
mod change;
mod ledger;
mod needs;
mod plan;
mod size;
mod suggestion;
mod table;
#[cfg(test)]
mod testing;

pub use admission::{Refused, plan};
pub use area::{Area, AreaContent, Basis, Kind};
pub use arena::{Arena, ArenaError, UnknownRange};
pub use budget::Budget;
pub use change::{ChangeRefused, PlanChange, admit_change};
pub use ledger::{Ledger, Owner, Usage};
pub use needs::{
    ALIGN_BYTES, BYTES_MAX, BytesPerBatch, Domain, ModelNeeds, Needs, NeedsFault, PAGE_BYTES, StreamNeeds,
    TensorNeeds,
};
pub use plan::{ModelBytes, Plan, Uncounted};
pub use size::{Mib, SizeError, parse_size};
pub use suggestion::{Change, FRAMES_MIN, Suggestion};
