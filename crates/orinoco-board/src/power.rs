//! Power settings of a board that can be changed while it runs: the modes of `nvpmodel`, and the highest clocks of GPU and
//! processor. Nothing here writes.

mod clock_domain;
mod modes;

pub use clock_domain::{ClockDomain, ClockUnit, clock_domains};
pub use modes::{NvpMode, NvpModes};
