use std::collections::HashMap;
use std::ops::AddAssign;

use super::{Video, matching};

/// Number of IoU thresholds over which HOTA is a mean.
pub const ALPHAS: usize = 19;

/// Higher Order Tracking Accuracy (Luiten et al., "HOTA: A Higher Order Metric for Evaluating Multi-Object Tracking",
/// IJCV 2021). Each figure is a mean over the IoU thresholds 0.05, 0.10, .. 0.95.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hota {
    /// Counts at each IoU threshold.
    pub at: [HotaAt; ALPHAS],
}

/// Counts of [`Hota`] at the IoU threshold [`alpha`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HotaAt {
    /// Labelled boxes that were found (true positives).
    pub hits: u64,
    /// Labelled boxes that were not found (false negatives).
    pub misses: u64,
    /// Found boxes that match no label (false positives).
    pub strays: u64,
    /// Sum of the IoU of all hits.
    pub overlap_sum: f64,
    /// Sum of the association accuracies of all hits: frames in which both objects are matched, over frames with either
    /// of them.
    pub accuracy_sum: f64,
    /// Sum of the association recalls of all hits: the same over the frames of the labelled object.
    pub recall_sum: f64,
    /// Sum of the association precisions of all hits: the same over the frames of the found object.
    pub precision_sum: f64,
}

/// Returns the IoU threshold at `index`, as `numpy.arange(0.05, 0.99, 0.05)` computes it.
pub fn alpha(index: usize) -> f64 {
    0.05 + index as f64 * 0.05
}

impl Hota {
    /// Returns HOTA: the geometric mean of detection and association accuracy.
    pub fn hota(&self) -> f64 {
        self.mean(HotaAt::hota)
    }

    /// Returns the detection accuracy: hits over hits, misses and false positives.
    pub fn det_a(&self) -> f64 {
        self.mean(HotaAt::det_a)
    }

    /// Returns the association accuracy.
    pub fn ass_a(&self) -> f64 {
        self.mean(HotaAt::ass_a)
    }

    /// Returns the localisation accuracy: the mean IoU of hits; 1 without hits, as in TrackEval.
    pub fn loc_a(&self) -> f64 {
        self.mean(HotaAt::loc_a)
    }

    /// Returns the detection recall.
    pub fn det_re(&self) -> f64 {
        self.mean(|at| ratio(at.hits as f64, at.hits + at.misses))
    }

    /// Returns the detection precision.
    pub fn det_pr(&self) -> f64 {
        self.mean(|at| ratio(at.hits as f64, at.hits + at.strays))
    }

    /// Returns the association recall.
    pub fn ass_re(&self) -> f64 {
        self.mean(|at| ratio(at.recall_sum, at.hits))
    }

    /// Returns the association precision.
    pub fn ass_pr(&self) -> f64 {
        self.mean(|at| ratio(at.precision_sum, at.hits))
    }

    fn mean(&self, figure: impl Fn(&HotaAt) -> f64) -> f64 {
        self.at.iter().map(figure).sum::<f64>() / ALPHAS as f64
    }
}

impl HotaAt {
    /// Returns the geometric mean of detection and association accuracy.
    pub fn hota(&self) -> f64 {
        (self.det_a() * self.ass_a()).sqrt()
    }

    /// Returns the detection accuracy.
    pub fn det_a(&self) -> f64 {
        ratio(self.hits as f64, self.hits + self.misses + self.strays)
    }

    /// Returns the association accuracy.
    pub fn ass_a(&self) -> f64 {
        ratio(self.accuracy_sum, self.hits)
    }

    /// Returns the localisation accuracy; 1 without hits.
    pub fn loc_a(&self) -> f64 {
        if self.hits == 0 { 1.0 } else { self.overlap_sum / self.hits as f64 }
    }
}

impl AddAssign<&Hota> for Hota {
    fn add_assign(&mut self, other: &Hota) {
        for (sum, more) in self.at.iter_mut().zip(&other.at) {
            sum.hits += more.hits;
            sum.misses += more.misses;
            sum.strays += more.strays;
            sum.overlap_sum += more.overlap_sum;
            sum.accuracy_sum += more.accuracy_sum;
            sum.recall_sum += more.recall_sum;
            sum.precision_sum += more.precision_sum;
        }
    }
}

fn ratio(part: f64, whole: u64) -> f64 {
    part / whole.max(1) as f64
}

pub(super) fn evaluate(video: &Video) -> Hota {
    let alignment = alignment(video);
    let mut hota = Hota::default();
    // Number of matches of each labelled object with each found one, at each IoU threshold.
    let mut together: Vec<HashMap<(usize, usize), u64>> = vec![HashMap::new(); ALPHAS];
    for frame in &video.frames {
        let (labelled, found) = (frame.truth.len(), frame.found.len());
        let weight = |row: usize, column: usize| {
            let ids = (frame.truth[row], frame.found[column]);
            alignment.get(&ids).copied().unwrap_or(0.0) * frame.overlap(row, column)
        };
        let pairs = matching::heaviest(labelled, found, weight);
        for (index, at) in hota.at.iter_mut().enumerate() {
            let mut hits = 0;
            for (row, column) in &pairs {
                let overlap = frame.overlap(*row, *column);
                if overlap >= alpha(index) - f64::EPSILON {
                    hits += 1;
                    at.overlap_sum += overlap;
                    *together[index].entry((frame.truth[*row], frame.found[*column])).or_default() += 1;
                }
            }
            at.hits += hits;
            at.misses += labelled as u64 - hits;
            at.strays += found as u64 - hits;
        }
    }
    for (at, together) in hota.at.iter_mut().zip(&together) {
        // Sorted, so that the sums are the same in every run.
        let mut pairs: Vec<_> = together.iter().collect();
        pairs.sort_unstable();
        for ((truth, found), count) in pairs {
            let (labelled, seen) = (video.truth_frames[*truth], video.found_frames[*found]);
            let weighed = (count * count) as f64;
            at.accuracy_sum += weighed / (labelled + seen - count) as f64;
            at.recall_sum += weighed / labelled as f64;
            at.precision_sum += weighed / seen as f64;
        }
    }
    hota
}

/// Returns the alignment of each labelled object and each found one over the whole video, before any matching: HOTA
/// chooses matches for association too, not frame by frame.
fn alignment(video: &Video) -> HashMap<(usize, usize), f64> {
    let mut shared: HashMap<(usize, usize), f64> = HashMap::new();
    for frame in &video.frames {
        let (rows, columns) = (frame.truth.len(), frame.found.len());
        let of_row: Vec<f64> =
            (0..rows).map(|row| (0..columns).map(|column| frame.overlap(row, column)).sum()).collect();
        let of_column: Vec<f64> =
            (0..columns).map(|column| (0..rows).map(|row| frame.overlap(row, column)).sum()).collect();
        for (row, truth) in frame.truth.iter().enumerate() {
            for (column, found) in frame.found.iter().enumerate() {
                let overlap = frame.overlap(row, column);
                let whole = of_row[row] + of_column[column] - overlap;
                if overlap > 0.0 && whole > f64::EPSILON {
                    *shared.entry((*truth, *found)).or_default() += overlap / whole;
                }
            }
        }
    }
    for ((truth, found), shared) in &mut shared {
        let frames = video.truth_frames[*truth] + video.found_frames[*found];
        *shared /= frames as f64 - *shared;
    }
    shared
}
