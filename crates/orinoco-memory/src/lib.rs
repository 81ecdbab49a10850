//! A board's memory: what everything needs, planned before anything is allocated, and the arenas that engines allocate
//! from.
//!
//! The planner is pure: it reads no file, asks no engine and allocates nothing. It refuses a set that does not fit, and
//! says which single change would. An arena never grows and never falls back to the system's allocator: a request that
//! does not fit is refused and counted.
//!
//! Read first: [`Needs`] (what models and streams need, checked), [`Plan`] (where it lies, or [`Refused`]) and [`Arena`]
//! (one planned area, from which an engine allocates; its [`Ledger`] keeps the books, also of memory that lies elsewhere).

mod arena;
mod ledger;
mod needs;
mod plan;
mod refused;
mod size;

pub use arena::{Arena, ArenaError, NotHeld};
pub use ledger::{Ledger, Owner, Usage};
pub use needs::{
    ALIGN_BYTES_MAX, BYTES_MAX, Domain, ModelNeeds, Needs, NeedsFault, PAGE_BYTES, Scaled, StreamNeeds,
    TensorNeeds,
};
pub use plan::{Area, Budget, Fault, Kind, Live, ModelBytes, Part, Plan, Span, plan};
pub use refused::{Change, FRAMES_MIN, Refused, Suggestion};
pub use size::{Mib, SizeError, parse_size};
