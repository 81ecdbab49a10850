//! Launch of non-maximum suppression (`kernels/nms.cu`).

use super::decode::{Candidate, CandidateLists};
use super::{Arguments, Grid, Launch, at, check_span, word};
use crate::span::Span;
use crate::{CudaError, Kernel};

/// Parameters of non-maximum suppression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Suppress {
    /// IoU threshold: boxes that overlap a better one by more than this are dropped.
    pub iou_max: f32,
    /// Maximum number of boxes per image.
    pub keep_max: usize,
    /// Whether boxes of different classes hide one another.
    pub across_classes: bool,
}

/// Boxes left by suppression, for each image of a batch.
#[derive(Clone, Debug)]
pub struct KeptLists {
    /// Memory for `batch * keep_max` candidates, best first.
    pub kept: Span,
    /// `batch` pairs of counts: kept, and found before suppression ([`Totals`]).
    pub totals: Span,
}

/// Numbers of boxes of one image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number after suppression.
    pub kept: u32,
    /// Number before suppression. If it is more than the list's capacity, candidates are missing, and the kept ones are not
    /// reliable.
    pub found: u32,
}

impl Totals {
    /// Size of one entry in a list, in bytes.
    pub const BYTES: usize = 8;

    /// Reads the totals from the bytes of a list.
    pub fn read_all(bytes: &[u8]) -> impl Iterator<Item = Self> + use<'_> {
        bytes.as_chunks::<{ Self::BYTES }>().0.iter().map(|record| {
            let words = record.as_chunks::<4>().0;
            Self { kept: u32::from_le_bytes(words[0]), found: u32::from_le_bytes(words[1]) }
        })
    }
}

/// `SuppressSpec` of `kernels/nms.cu`.
#[repr(C)]
struct SuppressSpec {
    capacity: u32,
    keep_max: u32,
    across: u32,
    iou_max: f32,
}

/// Queues the suppression of the candidates of `batch` images.
pub fn suppress(
    target: &(impl Launch + ?Sized),
    batch: usize,
    how: &Suppress,
    lists: &CandidateLists,
    kept: &KeptLists,
) -> Result<(), CudaError> {
    const THREADS: u32 = 512;
    lists.check(batch);
    check_span("a list of boxes", &kept.kept, batch * how.keep_max * Candidate::BYTES / 4, 4);
    check_span("totals of boxes", &kept.totals, batch * Totals::BYTES / 4, 4);
    let spec = SuppressSpec {
        capacity: word(lists.capacity),
        keep_max: word(how.keep_max),
        across: u32::from(how.across_classes),
        iou_max: how.iou_max,
    };
    let grid = Grid { blocks: [word(batch), 1, 1], threads: [THREADS, 1, 1] };
    let spans = [&lists.candidates, &lists.counts, &kept.kept, &kept.totals];
    let addresses = spans.map(Span::address);
    let pointers = [at(&spec), at(&addresses[0]), at(&addresses[1]), at(&addresses[2]), at(&addresses[3])];
    target.launch(Kernel::Suppress, grid, &Arguments { pointers: &pointers, spans: &spans })
}
