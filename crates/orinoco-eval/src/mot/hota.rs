use std::collections::HashMap;
use std::ops::AddAssign;

use super::{Video, matching};

/// How many overlaps HOTA is the mean of.
pub const ALPHAS: usize = 19;

/// Higher Order Tracking Accuracy (Luiten et al., "HOTA: A Higher Order Metric for Evaluating Multi-Object Tracking",
/// IJCV 2021). Each figure is a mean over the overlaps 0.05, 0.10, .. 0.95.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hota {
    /// The counts at each overlap.
    pub at: [HotaAt; ALPHAS],
}

/// What [`Hota`] counts where boxes must overlap by [`alpha`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HotaAt {
    /// Labelled boxes that were found.
    pub hits: u64,
    /// Labelled boxes that were not.
    pub misses: u64,
    /// Found boxes where nothing is labelled.
    pub strays: u64,
    /// Over the hits, the sum of their overlaps.
    pub overlap_sum: f64,
    /// Over the hits, the sum of their association's accuracies: frames where both objects are paired, over frames
    /// where either is.
    pub accuracy_sum: f64,
    /// The same over the frames of the labelled object.
    pub recall_sum: f64,
    /// The same over the frames of the found one.
    pub precision_sum: f64,
}

/// The overlap at `index`, as `numpy.arange(0.05, 0.99, 0.05)` computes it.
pub fn alpha(index: usize) -> f64 {
    0.05 + index as f64 * 0.05
}

impl Hota {
    /// The geometric mean of detection and association accuracy.
    pub fn hota(&self) -> f64 {
        self.mean(HotaAt::hota)
    }

    /// Detection accuracy: hits over hits, misses and strays.
    pub fn det_a(&self) -> f64 {
        self.mean(HotaAt::det_a)
    }

    /// Association accuracy.
    pub fn ass_a(&self) -> f64 {
        self.mean(HotaAt::ass_a)
    }

    /// Localisation accuracy: the mean overlap of hits; 1 without hits, as TrackEval has it.
    pub fn loc_a(&self) -> f64 {
        self.mean(HotaAt::loc_a)
    }

    /// Detection recall.
    pub fn det_re(&self) -> f64 {
        self.mean(|at| ratio(at.hits as f64, at.hits + at.misses))
    }

    /// Detection precision.
    pub fn det_pr(&self) -> f64 {
        self.mean(|at| ratio(at.hits as f64, at.hits + at.strays))
    }

    /// Association recall.
    pub fn ass_re(&self) -> f64 {
        self.mean(|at| ratio(at.recall_sum, at.hits))
    }

    /// Association precision.
    pub fn ass_pr(&self) -> f64 {
        self.mean(|at| ratio(at.precision_sum, at.hits))
    }

    fn mean(&self, figure: impl Fn(&HotaAt) -> f64) -> f64 {
        self.at.iter().map(figure).sum::<f64>() / ALPHAS as f64
    }
}

impl HotaAt {
    /// The geometric mean of detection and association accuracy.
    pub fn hota(&self) -> f64 {
        (self.det_a() * self.ass_a()).sqrt()
    }

    /// Detection accuracy.
    pub fn det_a(&self) -> f64 {
        ratio(self.hits as f64, self.hits + self.misses + self.strays)
    }

    /// Association accuracy.
    pub fn ass_a(&self) -> f64 {
        ratio(self.accuracy_sum, self.hits)
    }

    /// Localisation accuracy; 1 without hits.
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
    // How often each labelled object was paired with each found one, at each overlap.
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
        // In one order, so that the sums are the same in every run.
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

/// How well each labelled object and each found one go together over the whole video, before any is matched: HOTA's
/// pairs are chosen for the association too, not frame by frame.
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
