//! A board's memory: what everything needs, planned before anything is allocated, and the arenas that engines allocate
//! from.
//!
//! The planner is pure: it reads no file, asks no engine and allocates nothing. It adds up sizes; where something lies is
//! decided by whoever maps it. It refuses a set that does not fit, and says which single change would; a change to a
//! running board is admitted at its peak. An arena never grows and never falls back to the system's allocator: a request
//! that does not fit is refused and counted.
//!
//! Read first: [`Needs`] (what models and streams need, checked), [`Plan`] (what that adds up to, or [`Refused`]) and
//! [`Arena`] (one planned area, from which an engine allocates; its [`Ledger`] keeps the books, also of memory that lies
//! elsewhere).

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
