//! A board's memory: what everything needs, planned before anything is allocated.
//!
//! The planner is pure: it reads no file, asks no engine and allocates nothing. It refuses a set that does not fit, and
//! says which single change would.
//!
//! Read first: [`Needs`] (what models and streams need, checked), [`Plan`] (where it lies) and [`Refused`].

mod needs;
mod plan;
mod refused;
mod size;

pub use needs::{
    ALIGN_BYTES_MAX, BYTES_MAX, Domain, ModelNeeds, Needs, NeedsFault, PAGE_BYTES, Scaled, StreamNeeds,
    TensorNeeds,
};
pub use plan::{Area, Budget, Fault, Kind, Live, ModelBytes, Part, Plan, Span, plan};
pub use refused::{Change, FRAMES_MIN, Refused, Suggestion};
pub use size::{Mib, SizeError, parse_size};
