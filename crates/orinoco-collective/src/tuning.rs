//! Choice of algorithms by measured costs of links and reductions.
//!
//! [`Figures`] are what was measured: messages between two ranks, reductions and copies, never a collective operation.
//! [`Choices`] are made of them by pricing every algorithm. One rank makes them, and the others take them over: a group whose ranks
//! computed for themselves could disagree, because they may be of different versions.

mod bound;
mod choices;
mod explanation;
mod figures;

pub(crate) use choices::{Choices, Rules};
pub(crate) use explanation::Question;
pub use explanation::{Candidate, Explanation, Measured};
pub use figures::{Drift, Figures, FiguresError};
pub(crate) use figures::{
    LinkFigures, MESSAGE_BYTES, REDUCE_BYTES, REDUCED_TYPES, RankFigures, nanos, reduced_kind,
};
