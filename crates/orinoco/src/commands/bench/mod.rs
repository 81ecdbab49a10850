//! `orinoco bench`: what a part costs, beside the limit of this machine, both measured in one run.

#[cfg(feature = "cuda")]
pub(crate) mod graph;
pub(crate) mod memory;
pub(crate) mod pipeline;
pub(crate) mod preprocess;
pub(crate) mod streams;

use orinoco_api::{Fault, Summary};
use orinoco_core::{Diagnosis, codes};

/// Frames through all streams of a pipeline that is measured. What failed in it is returned instead: its figures would be
/// of something else.
fn frames_measured(summary: &Summary) -> Result<f64, Diagnosis> {
    if let Some(fault) = summary.faults.first() {
        return Err(diagnosis_of(fault));
    }
    let frames: u64 = summary.streams.iter().map(|stream| stream.frames_out).sum();
    if frames == 0 {
        return Err(no_frames(&summary.streams[0].source));
    }
    Ok(frames as f64)
}

fn diagnosis_of(fault: &Fault) -> Diagnosis {
    let code = codes::ALL.iter().find(|code| code.id == fault.code).expect("our faults have known codes");
    Diagnosis::new(code, &fault.subject, &fault.cause, &fault.next)
}

fn no_frames(source: &str) -> Diagnosis {
    let next = "use a source that delivers frames";
    Diagnosis::new(&codes::SOURCE_NO_VIDEO, source, "it has no frames", next)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// Samples of 0 to 255 without a pattern: Knuth's multiplicative hash of the index.
fn noise(index: usize) -> u8 {
    ((index as u32).wrapping_mul(2_654_435_761) >> 24) as u8
}
