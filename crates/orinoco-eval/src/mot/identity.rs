use std::collections::HashMap;
use std::ops::AddAssign;

use super::{IOU_MIN, Video, matching, share};

/// Identity measures (Ristani et al., "Performance Measures and a Data Set for Multi-Target, Multi-Camera Tracking",
/// 2016): each labelled object is assigned one found id for the whole video, so that most boxes agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Boxes found under the id assigned to their object.
    pub hits: u64,
    /// Labelled boxes without a found box of that id.
    pub misses: u64,
    /// Found boxes of another id, or without a labelled object.
    pub strays: u64,
}

impl Identity {
    /// Returns the F1 score: the harmonic mean of [`Self::idp`] and [`Self::idr`]; `None` without boxes.
    pub fn idf1(&self) -> Option<f64> {
        share(2.0 * self.hits as f64, 2 * self.hits + self.misses + self.strays)
    }

    /// Returns the precision: the share of found boxes with the correct id; `None` without found boxes.
    pub fn idp(&self) -> Option<f64> {
        share(self.hits as f64, self.hits + self.strays)
    }

    /// Returns the recall: the share of labelled boxes found with the correct id; `None` without labelled boxes.
    pub fn idr(&self) -> Option<f64> {
        share(self.hits as f64, self.hits + self.misses)
    }
}

impl AddAssign<&Identity> for Identity {
    fn add_assign(&mut self, other: &Identity) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.strays += other.strays;
    }
}

pub(super) fn evaluate(video: &Video) -> Identity {
    // Number of frames in which each labelled object overlaps each found one.
    let mut together: HashMap<(usize, usize), u64> = HashMap::new();
    for frame in &video.frames {
        for (row, truth) in frame.truth.iter().enumerate() {
            for (column, found) in frame.found.iter().enumerate() {
                if frame.overlap(row, column) >= IOU_MIN {
                    *together.entry((*truth, *found)).or_default() += 1;
                }
            }
        }
    }
    let count = |truth: usize, found: usize| together.get(&(truth, found)).copied().unwrap_or(0);
    let (labelled, found) = (video.truth_frames.len(), video.found_frames.len());
    let pairs = matching::heaviest(labelled, found, |truth, found| count(truth, found) as f64);
    let hits: u64 = pairs.iter().map(|(truth, found)| count(*truth, *found)).sum();
    let (labelled, found) = (video.truth_frames.iter().sum::<u64>(), video.found_frames.iter().sum::<u64>());
    Identity { hits, misses: labelled - hits, strays: found - hits }
}
