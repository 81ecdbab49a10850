//! Control law of the power and thermal governor: it holds a limit of power or temperature always, and a p99 latency where the
//! limit allows it.
//!
//! The crate does no I/O and reads no clock: [`Governor::tick`] takes the time and the readings, and returns at most one
//! step. It never guesses a reading. What cannot be read for a while is treated as if the limit were exceeded, because the board
//! must be safe without it.
//!
//! Read first: [`Inputs`] (readings and actuators), [`Governor`] (the law), [`Decision`] (its step, with the reason).

mod actuator;
mod decision;
mod governor;
mod inputs;
mod pressure;
mod retry;
mod trend;

pub use actuator::{Actuator, ActuatorKind, Level};
pub use decision::{Decision, Direction, Missing, Reason, State, Step};
pub use governor::{Governor, MODE_DWELL, TICK};
pub use inputs::{Inputs, Limits, StreamLatency, Zone};
pub use pressure::{STALE_AFTER, TRIP_MARGIN};
