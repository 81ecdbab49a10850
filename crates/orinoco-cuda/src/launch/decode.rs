//! Launch of the kernel that reads box candidates from a model's output (`kernels/heads.cu`).

use super::elements::Element;
use super::{Arguments, Grid, Launch, at, check_span, word};
use crate::span::Span;
use crate::table::TableSpan;
use crate::{CudaError, Kernel};

/// Layout of boxes in a model's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BoxRows {
    /// Rows of `[dx, dy, log w, log h, objectness, classes..]`, one per cell of the grids of an input: YOLOX.
    Grid {
        /// Strides in model pixels, smallest first; at most [`LEVELS_MAX`].
        strides: Vec<u32>,
        /// Width and height of the model's input, in pixels.
        size: (u32, u32),
    },
    /// Rows of `[cx, cy, w, h, objectness, classes..]` in model pixels: YOLOv5.
    Pixels {
        /// Number of rows.
        rows: usize,
    },
    /// Channels of `[cx, cy, w, h, classes.., more..]`, each with one value per anchor: YOLOv8 and YOLO11.
    Channels {
        /// Number of anchors.
        anchors: usize,
        /// Number of channels after the classes, which are not read.
        more: usize,
    },
}

/// Maximum number of grids of a model.
pub const LEVELS_MAX: usize = 4;
/// Maximum number of candidates per image: `CANDIDATES_MAX` of `kernels/nms.cu`.
pub const CANDIDATES_MAX: usize = 8192;

/// Parameters of the kernel that decodes candidates from a model's output.
#[derive(Clone, Debug, PartialEq)]
pub struct Decode {
    /// Layout of the boxes.
    pub boxes: BoxRows,
    /// Number of classes.
    pub classes: usize,
    /// Element type of the output.
    pub element: Element,
    /// Whether a box is reported for each class above the threshold, or only for its best.
    pub multi_label: bool,
    /// Score threshold: candidates score more than this.
    pub threshold: f32,
}

/// Candidate box with its class, in pixels of the upright frame.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
#[expect(missing_docs, reason = "as in orinoco_core::Detection")]
pub struct Candidate {
    pub class_id: u32,
    pub score: f32,
    pub x1: f32,
    pub y1: f32,
    pub x2: f32,
    pub y2: f32,
    /// Index in the model's output.
    pub index: u32,
}

impl Candidate {
    /// Size of one candidate in a list, in bytes.
    pub const BYTES: usize = size_of::<Self>();

    /// Reads the candidates from the bytes of a list.
    pub fn read_all(bytes: &[u8]) -> impl Iterator<Item = Self> + use<'_> {
        bytes.as_chunks::<{ Self::BYTES }>().0.iter().map(|record| {
            let words = record.as_chunks::<4>().0;
            let float = |index: usize| f32::from_le_bytes(words[index]);
            Self {
                class_id: u32::from_le_bytes(words[0]),
                score: float(1),
                x1: float(2),
                y1: float(3),
                x2: float(4),
                y2: float(5),
                index: u32::from_le_bytes(words[6]),
            }
        })
    }
}

/// Lists of candidates, one for each image of a batch.
#[derive(Clone, Debug)]
pub struct CandidateLists {
    /// Memory for `batch * capacity` candidates.
    pub candidates: Span,
    /// `batch` counts of candidates found; a count above `capacity` means that some are missing from the list.
    pub counts: Span,
    /// Maximum number of candidates per image; at most [`CANDIDATES_MAX`].
    pub capacity: usize,
}

impl CandidateLists {
    /// Returns the sizes of `candidates` and of `counts`, in bytes.
    pub fn bytes(batch: usize, capacity: usize) -> (usize, usize) {
        (batch * capacity * Candidate::BYTES, batch * size_of::<u32>())
    }

    pub(super) fn check(&self, batch: usize) {
        assert!(
            (1..=CANDIDATES_MAX).contains(&self.capacity),
            "{} of {CANDIDATES_MAX} candidates",
            self.capacity
        );
        check_span("a list of candidates", &self.candidates, batch * self.capacity * Candidate::BYTES / 4, 4);
        check_span("counts of candidates", &self.counts, batch, 4);
    }
}

/// `GridLevel` of `kernels/heads.cu`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct GridLevel {
    first: u32,
    columns: u32,
    stride: f32,
}

/// `DecodeSpec` of `kernels/heads.cu`.
#[repr(C)]
struct DecodeSpec {
    rows: u32,
    values: u32,
    classes: u32,
    element: u32,
    multi_label: u32,
    capacity: u32,
    threshold: f32,
    levels_used: u32,
    levels: [GridLevel; LEVELS_MAX],
}

impl Decode {
    /// Returns the number of output elements per image.
    pub fn elements(&self) -> usize {
        let spec = self.spec(1);
        spec.rows as usize * spec.values as usize
    }

    fn spec(&self, capacity: usize) -> DecodeSpec {
        /// Box and objectness.
        const BOX_VALUES: usize = 5;
        let mut levels = [GridLevel::default(); LEVELS_MAX];
        let (rows, values, levels_used) = match &self.boxes {
            BoxRows::Grid { strides, size } => {
                assert!((1..=LEVELS_MAX).contains(&strides.len()), "{} of {LEVELS_MAX} grids", strides.len());
                let mut first = 0;
                for (level, stride) in levels.iter_mut().zip(strides) {
                    *level = GridLevel { first, columns: size.0 / stride, stride: *stride as f32 };
                    first += (size.0 / stride) * (size.1 / stride);
                }
                (first as usize, BOX_VALUES + self.classes, strides.len())
            }
            BoxRows::Pixels { rows } => (*rows, BOX_VALUES + self.classes, 0),
            BoxRows::Channels { anchors, more } => (*anchors, BOX_VALUES - 1 + self.classes + more, 0),
        };
        // The kernels number what they find by row and class.
        word(rows * self.classes);
        DecodeSpec {
            rows: word(rows),
            values: word(values),
            classes: word(self.classes),
            element: self.element as u32,
            multi_label: u32::from(self.multi_label),
            capacity: word(capacity),
            threshold: self.threshold,
            levels_used: word(levels_used),
            levels,
        }
    }
}

/// Queues the kernel that reads the candidates of every frame of `table` from `output` into `lists`, in no order.
pub fn decode(
    target: &(impl Launch + ?Sized),
    table: &TableSpan,
    how: &Decode,
    output: &Span,
    lists: &CandidateLists,
) -> Result<(), CudaError> {
    const THREADS: u32 = 128;
    let (batch, spec) = (table.batch(), how.spec(lists.capacity));
    lists.check(batch);
    check_span("a head's output", output, batch * how.elements(), how.element.bytes());
    target.zero(&lists.counts)?;
    let grid = Grid { blocks: [spec.rows.div_ceil(THREADS), word(batch), 1], threads: [THREADS, 1, 1] };
    let kernel = match how.boxes {
        BoxRows::Channels { .. } => Kernel::DecodeChannels,
        _ => Kernel::DecodeRows,
    };
    let addresses = [table.span(), output, &lists.candidates, &lists.counts].map(Span::address);
    let pointers = [at(&addresses[0]), at(&spec), at(&addresses[1]), at(&addresses[2]), at(&addresses[3])];
    let spans = [table.span(), output, &lists.candidates, &lists.counts];
    target.launch(kernel, grid, &Arguments { pointers: &pointers, spans: &spans })
}
