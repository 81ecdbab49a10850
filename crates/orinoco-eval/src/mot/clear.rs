use std::ops::AddAssign;

use super::{IOU_MIN, Video, matching, share};

/// What keeping the pair of the frame before is worth, in overlaps: more than all the overlaps of a frame.
const KEPT: f64 = 1000.0;
/// Followed in more than this share of its frames, an object is mostly tracked.
const MOSTLY_TRACKED: f64 = 0.8;
/// Followed in less than this share of its frames, an object is mostly lost.
const MOSTLY_LOST: f64 = 0.2;

/// CLEAR MOT (Bernardin and Stiefelhagen, "Evaluating Multiple Object Tracking Performance", EURASIP JIVP 2008), with the
/// details that TrackEval fixed: a pair is preferred where it was made in the frame before, not where it was made last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Clear {
    /// Labelled boxes that were found.
    pub hits: u64,
    /// Labelled boxes that were not.
    pub misses: u64,
    /// Found boxes where nothing is labelled.
    pub strays: u64,
    /// How often an object was found under another id than the last time.
    pub switches: u64,
    /// How often an object was found again after it was not.
    pub fragmentations: u64,
    /// Over the hits, the sum of their overlaps.
    pub overlap_sum: f64,
    /// Objects found in more than 80 % of their frames.
    pub mostly_tracked: u64,
    /// Objects in between.
    pub partly_tracked: u64,
    /// Objects found in less than 20 % of their frames.
    pub mostly_lost: u64,
}

impl Clear {
    /// Accuracy: 1 less misses, strays and switches for each labelled box, so it may be negative; `None` without any.
    pub fn mota(&self) -> Option<f64> {
        let good = self.hits as f64 - self.strays as f64 - self.switches as f64;
        share(good, self.hits + self.misses)
    }

    /// Precision: the mean overlap of hits (py-motmetrics gives the mean distance, 1 less this); `None` without any.
    pub fn motp(&self) -> Option<f64> {
        share(self.overlap_sum, self.hits)
    }
}

impl AddAssign<&Clear> for Clear {
    fn add_assign(&mut self, other: &Clear) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.strays += other.strays;
        self.switches += other.switches;
        self.fragmentations += other.fragmentations;
        self.overlap_sum += other.overlap_sum;
        self.mostly_tracked += other.mostly_tracked;
        self.partly_tracked += other.partly_tracked;
        self.mostly_lost += other.mostly_lost;
    }
}

/// What is remembered of a labelled object.
#[derive(Clone, Copy, Default)]
struct LastMatch {
    /// Under which id it was found last.
    last: Option<usize>,
    /// Under which id it was found in the frame before.
    before: Option<usize>,
    /// In how many frames it was found.
    frames: u64,
    /// How often it began to be found.
    pieces: u64,
}

pub(super) fn evaluate(video: &Video) -> Clear {
    let mut clear = Clear::default();
    let mut objects = vec![LastMatch::default(); video.truth_frames.len()];
    for frame in &video.frames {
        let (labelled, found) = (frame.truth.len(), frame.found.len());
        // TrackEval lets a frame without one side pass: it interrupts nobody.
        if labelled == 0 || found == 0 {
            clear.strays += found as u64;
            clear.misses += labelled as u64;
            continue;
        }
        let weight = |row: usize, column: usize| {
            let overlap = frame.overlap(row, column);
            let kept = objects[frame.truth[row]].before == Some(frame.found[column]);
            match overlap >= IOU_MIN - f64::EPSILON {
                true => overlap + if kept { KEPT } else { 0.0 },
                false => 0.0,
            }
        };
        let pairs = matching::heaviest(labelled, found, weight);
        let before: Vec<Option<usize>> = objects.iter_mut().map(|object| object.before.take()).collect();
        for (row, column) in &pairs {
            let (truth, found) = (frame.truth[*row], frame.found[*column]);
            let object = &mut objects[truth];
            clear.switches += u64::from(object.last.is_some_and(|last| last != found));
            object.pieces += u64::from(before[truth].is_none());
            object.frames += 1;
            object.last = Some(found);
            object.before = Some(found);
            clear.overlap_sum += frame.overlap(*row, *column);
        }
        clear.hits += pairs.len() as u64;
        clear.misses += (labelled - pairs.len()) as u64;
        clear.strays += (found - pairs.len()) as u64;
    }
    for (object, frames) in objects.iter().zip(&video.truth_frames) {
        clear.fragmentations += object.pieces.saturating_sub(1);
        let followed = object.frames as f64 / *frames as f64;
        if followed > MOSTLY_TRACKED {
            clear.mostly_tracked += 1;
        } else if followed >= MOSTLY_LOST {
            clear.partly_tracked += 1;
        } else {
            clear.mostly_lost += 1;
        }
    }
    clear
}
