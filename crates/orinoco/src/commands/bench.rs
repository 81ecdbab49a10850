//! `orinoco bench`: speed of one stage, compared with the limit of this machine in the same run.

mod child;
#[cfg(feature = "cuda")]
pub(crate) mod graph;
pub(crate) mod memory;
pub(crate) mod model;
pub(crate) mod pipeline;
pub(crate) mod preprocess;
pub(crate) mod streams;

use crate::commands::{frames_measured, no_frames};

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// Returns pseudo-random samples of 0 to 255: Knuth's multiplicative hash of the index.
fn noise(index: usize) -> u8 {
    ((index as u32).wrapping_mul(2_654_435_761) >> 24) as u8
}
