use std::ops::AddAssign;

use super::{IOU_MIN, Video, matching, share};

/// Bonus for a pair that was also matched in the previous frame, in overlaps: more than all the overlaps of a frame.
const KEPT: f64 = 1000.0;
/// Share of its frames above which a tracked object is mostly tracked.
const MOSTLY_TRACKED: f64 = 0.8;
/// Share of its frames below which a tracked object is mostly lost.
const MOSTLY_LOST: f64 = 0.2;

/// CLEAR MOT (Bernardin and Stiefelhagen, "Evaluating Multiple Object Tracking Performance", EURASIP JIVP 2008), with
/// TrackEval's details: a pair is preferred if it was matched in the previous frame, not if it was the last match.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Clear {
    /// Labelled boxes that were found (true positives).
    pub hits: u64,
    /// Labelled boxes that were not found (false negatives).
    pub misses: u64,
    /// Found boxes that match no label (false positives).
    pub strays: u64,
    /// Identity switches: an object was found under another id than the last time.
    pub switches: u64,
    /// Fragmentations: an object was found again after frames without it.
    pub fragmentations: u64,
    /// Sum of the IoU of all hits.
    pub overlap_sum: f64,
    /// Objects found in more than 80 % of their frames.
    pub mostly_tracked: u64,
    /// Objects found in 20 to 80 % of their frames.
    pub partly_tracked: u64,
    /// Objects found in less than 20 % of their frames.
    pub mostly_lost: u64,
}

impl Clear {
    /// Returns the accuracy: 1 minus the misses, false positives and identity switches per labelled box, so it may be
    /// negative; `None` without labelled boxes.
    pub fn mota(&self) -> Option<f64> {
        let good = self.hits as f64 - self.strays as f64 - self.switches as f64;
        share(good, self.hits + self.misses)
    }

    /// Returns the precision: the mean IoU of hits (py-motmetrics gives the mean distance, 1 minus this); `None`
    /// without hits.
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

/// Matches of one labelled object so far.
#[derive(Clone, Copy, Default)]
struct LastMatch {
    /// Id under which it was last found.
    last: Option<usize>,
    /// Id under which it was found in the previous frame.
    before: Option<usize>,
    /// Number of frames in which it was found.
    frames: u64,
    /// Number of times at which it was found again, the first one included.
    pieces: u64,
}

pub(super) fn evaluate(video: &Video) -> Clear {
    let mut clear = Clear::default();
    let mut objects = vec![LastMatch::default(); video.truth_frames.len()];
    for frame in &video.frames {
        let (labelled, found) = (frame.truth.len(), frame.found.len());
        // As in TrackEval, a frame without labelled or without found boxes does not interrupt a track.
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
