//! The launches: one function for each kernel, with its arguments' types and the checks that the kernel counts on. They
//! go to whatever is [`Launch`]: a [`Stream`](crate::Stream), or the tests' emulation of one.
//!
//! A length that disagrees with its description is a bug of the caller, and panics with both numbers.

use std::ffi::c_void;
use std::ptr;

use orinoco_core::Layout;

use crate::memory::Span;
use crate::table::TableSpan;
use crate::{CudaError, Kernel};

/// Where kernels can be launched.
pub trait Launch {
    /// Queues `kernel`.
    fn launch(&self, kernel: Kernel, grid: Grid, arguments: &Arguments<'_>) -> Result<(), CudaError>;

    /// Queues filling `span` with zeros.
    fn zero(&self, span: &Span) -> Result<(), CudaError>;
}

/// How many blocks of how many threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks along x, y, z.
    pub blocks: [u32; 3],
    /// Threads of a block along x, y, z.
    pub threads: [u32; 3],
}

/// A kernel's arguments. They are made in this module only, so that they are what the kernel takes.
#[derive(Debug)]
pub struct Arguments<'a> {
    pointers: &'a [*const c_void],
    spans: &'a [&'a Span],
}

impl<'a> Arguments<'a> {
    /// A pointer to each value, in the order of the kernel's parameters.
    pub fn pointers(&self) -> &'a [*const c_void] {
        self.pointers
    }

    /// All memory that the kernel uses.
    pub fn spans(&self) -> &'a [&'a Span] {
        self.spans
    }
}

/// The address of one argument.
fn at<T>(value: &T) -> *const c_void {
    ptr::from_ref(value).cast()
}

/// The type of a tensor's elements, as kernels know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Element {
    F32,
    F16,
    Bf16,
    U8,
}

impl Element {
    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::U8 => 1,
        }
    }
}

/// Checks that `span` can be read as `count` elements of `bytes` bytes.
fn check_span(what: &str, span: &Span, count: usize, bytes: usize) {
    let needed = count * bytes;
    assert!(span.bytes() >= needed, "{what} needs {needed} bytes, and its span has {}", span.bytes());
    assert!(
        span.address().is_multiple_of(bytes as u64),
        "{what} at {:#x} is not aligned to {bytes}",
        span.address()
    );
}

fn word(number: usize) -> u32 {
    u32::try_from(number).unwrap_or_else(|_| panic!("{number} is more than a kernel counts"))
}

// ---- preprocess ------------------------------------------------------------------------------------------------------

/// The order of a model's colour channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Order {
    /// Red first.
    Rgb,
    /// Blue first.
    Bgr,
    /// Luma only: one channel.
    Gray,
}

/// How frames are brought to the model's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Two taps each way, whatever the scale.
    Bilinear,
    /// A triangle filter as wide as the scale: Pillow's `BILINEAR`. Its table is [`TableLayout::antialiased`].
    ///
    /// [`TableLayout::antialiased`]: crate::TableLayout::antialiased
    Antialias,
}

/// A model's image input: `value = (sample - mean) * scale`, sample 0 to 255, per channel in `order`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PictureTensor {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Channel order.
    pub order: Order,
    /// Axis order.
    pub layout: Layout,
    /// Element type.
    pub element: Element,
    /// Filter.
    pub filter: Filter,
    /// Per-channel mean, in samples.
    pub mean: [f32; 3],
    /// Per-channel scale.
    pub scale: [f32; 3],
    /// Sample value around the picture.
    pub fill: u8,
}

/// `PreprocessSpec` of `kernels/preprocess.cu`.
#[repr(C)]
struct PreprocessSpec {
    width: u32,
    height: u32,
    order: u32,
    nhwc: u32,
    element: u32,
    scale: [f32; 3],
    shift: [f32; 3],
    border: [f32; 3],
}

impl PictureTensor {
    /// Elements of one picture.
    pub fn elements(&self) -> usize {
        let channels = if self.order == Order::Gray { 1 } else { 3 };
        channels * self.width as usize * self.height as usize
    }

    fn spec(&self) -> PreprocessSpec {
        let (mean, scale) = (self.mean, self.scale);
        PreprocessSpec {
            width: self.width,
            height: self.height,
            order: self.order as u32,
            nhwc: u32::from(self.layout == Layout::Nhwc),
            element: self.element as u32,
            scale,
            // (x - mean) * scale with one multiplication less to round.
            shift: std::array::from_fn(|channel| -mean[channel] * scale[channel]),
            border: std::array::from_fn(|channel| (f32::from(self.fill) - mean[channel]) * scale[channel]),
        }
    }
}

/// Brings every frame of `table` into its place of `out`, which holds `table.batch()` pictures. Items left out of the
/// table keep what they had.
pub fn preprocess(
    target: &(impl Launch + ?Sized),
    table: &TableSpan,
    tensor: &PictureTensor,
    out: &Span,
) -> Result<(), CudaError> {
    // TILE_X and TILE_Y of the kernels.
    const TILE: (u32, u32) = (32, 8);
    let batch = table.batch();
    check_span("the input tensor", out, batch * tensor.elements(), tensor.element.bytes());
    let spec = tensor.spec();
    let blocks = [tensor.width.div_ceil(TILE.0), tensor.height.div_ceil(TILE.1), word(batch)];
    let grid = Grid { blocks, threads: [TILE.0, TILE.1, 1] };
    let (entries, output) = (table.span().address(), out.address());
    let spans = [table.span(), out];
    match tensor.filter {
        Filter::Bilinear => {
            let pointers = [at(&entries), at(&spec), at(&output)];
            let arguments = Arguments { pointers: &pointers, spans: &spans };
            target.launch(Kernel::PreprocessBilinear, grid, &arguments)
        }
        Filter::Antialias => {
            let weights = table.filters().expect("the antialiased resize has a table with weights").address();
            let pointers = [at(&entries), at(&spec), at(&weights), at(&output)];
            let arguments = Arguments { pointers: &pointers, spans: &spans };
            target.launch(Kernel::PreprocessAntialias, grid, &arguments)
        }
    }
}

// ---- heads -----------------------------------------------------------------------------------------------------------

/// How boxes lie in a model's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BoxRows {
    /// Rows of `[dx, dy, log w, log h, objectness, classes..]` for the cells of grids of these strides over an input of
    /// this size: YOLOX.
    Grid {
        /// Cell sizes in model pixels, finest first; at most [`LEVELS_MAX`].
        strides: Vec<u32>,
        /// The model input's width and height.
        size: (u32, u32),
    },
    /// Rows of `[cx, cy, w, h, objectness, classes..]` in model pixels: YOLOv5.
    Pixels {
        /// Number of rows.
        rows: usize,
    },
    /// Channels of `[cx, cy, w, h, classes.., more..]`, each a line of all anchors: YOLOv8 and YOLO11.
    Channels {
        /// Number of anchors.
        anchors: usize,
        /// Channels after the classes, which are not read.
        more: usize,
    },
}

/// The most grids of a model.
pub const LEVELS_MAX: usize = 4;
/// The most candidates of one picture: `CANDIDATES_MAX` of `kernels/nms.cu`.
pub const CANDIDATES_MAX: usize = 8192;

/// How candidates are read out of a model's output.
#[derive(Clone, Debug, PartialEq)]
pub struct Decode {
    /// Where the boxes are.
    pub boxes: BoxRows,
    /// Number of classes.
    pub classes: usize,
    /// The output's element type.
    pub element: Element,
    /// Whether a box is reported for each class above the threshold, or only for its best.
    pub multi_label: bool,
    /// Candidates score more than this.
    pub threshold: f32,
}

/// A box with its class, in pixels of the upright frame.
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
    /// Its place in the model's output.
    pub index: u32,
}

impl Candidate {
    /// Bytes of one in a list.
    pub const BYTES: usize = size_of::<Self>();

    /// The candidates in the bytes of a list.
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

/// Lists of candidates, one for each picture of a batch.
#[derive(Clone, Debug)]
pub struct CandidateLists {
    /// `batch * capacity` candidates.
    pub candidates: Span,
    /// `batch` numbers: how many were found, more than `capacity` where some are missing.
    pub counts: Span,
    /// The most candidates of one picture; at most [`CANDIDATES_MAX`].
    pub capacity: usize,
}

impl CandidateLists {
    /// Bytes of `candidates` and of `counts`.
    pub fn bytes(batch: usize, capacity: usize) -> (usize, usize) {
        (batch * capacity * Candidate::BYTES, batch * size_of::<u32>())
    }

    fn check(&self, batch: usize) {
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
    /// Elements of the output for one picture.
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

/// Reads the candidates of every frame of `table` out of `output` into `lists`, in no order.
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

// ---- suppression -----------------------------------------------------------------------------------------------------

/// Which boxes hide which.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Suppress {
    /// Boxes that overlap a better one by more than this are dropped.
    pub iou_max: f32,
    /// The most boxes of one picture.
    pub keep_max: usize,
    /// Whether boxes of different classes hide one another.
    pub across_classes: bool,
}

/// What suppression left, for each picture of a batch.
#[derive(Clone, Debug)]
pub struct KeptLists {
    /// `batch * keep_max` candidates, best first.
    pub kept: Span,
    /// `batch` pairs of numbers: kept, and found before suppression ([`Totals`]).
    pub totals: Span,
}

/// How many boxes of a picture there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// After suppression.
    pub kept: u32,
    /// Before it. More than the list's capacity means that the kept ones are not to be trusted.
    pub found: u32,
}

impl Totals {
    /// Bytes of one in a list.
    pub const BYTES: usize = 8;

    /// The totals in the bytes of a list.
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

/// Suppresses the candidates of `batch` pictures.
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

// ---- classification --------------------------------------------------------------------------------------------------

/// What turns class values into probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Activation {
    /// Nothing where they already are probabilities, else softmax.
    Auto,
    /// Nothing.
    None,
    /// Softmax.
    Softmax,
    /// Logistic function, each class on its own.
    Sigmoid,
}

/// How the best classes of a picture are found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Classify {
    /// Number of classes.
    pub classes: usize,
    /// The output's element type.
    pub element: Element,
    /// What makes probabilities of it.
    pub activation: Activation,
    /// The class that is never reported.
    pub background: Option<u32>,
    /// The most classes reported.
    pub top: usize,
    /// Classes score at least this.
    pub threshold: f32,
}

/// `ClassifySpec` of `kernels/heads.cu`.
#[repr(C)]
struct ClassifySpec {
    classes: u32,
    element: u32,
    activation: u32,
    background: u32,
    top: u32,
    threshold: f32,
}

/// Bytes of a class and its score in a list.
pub const CLASS_BYTES: usize = 8;

/// Finds the best classes of `batch` pictures: `top` pairs of class (u32) and score (f32) for each in `best`, best first,
/// and how many of them there are in `counts` (u32).
pub fn classify(
    target: &(impl Launch + ?Sized),
    batch: usize,
    how: &Classify,
    output: &Span,
    best: &Span,
    counts: &Span,
) -> Result<(), CudaError> {
    // CLASSIFY_THREADS of the kernel.
    const THREADS: u32 = 256;
    /// No class has this number: the kernel's NO_CLASS.
    const NO_CLASS: u32 = u32::MAX;
    check_span("class values", output, batch * how.classes, how.element.bytes());
    check_span("a list of classes", best, batch * how.top * CLASS_BYTES / 4, 4);
    check_span("counts of classes", counts, batch, 4);
    let spec = ClassifySpec {
        classes: word(how.classes),
        element: how.element as u32,
        activation: how.activation as u32,
        background: how.background.unwrap_or(NO_CLASS),
        top: word(how.top),
        threshold: how.threshold,
    };
    let grid = Grid { blocks: [word(batch), 1, 1], threads: [THREADS, 1, 1] };
    let spans = [output, best, counts];
    let addresses = spans.map(Span::address);
    let pointers = [at(&spec), at(&addresses[0]), at(&addresses[1]), at(&addresses[2])];
    target.launch(Kernel::Classify, grid, &Arguments { pointers: &pointers, spans: &spans })
}

// ---- elements --------------------------------------------------------------------------------------------------------

/// A tensor of `count` elements.
#[derive(Clone, Copy, Debug)]
pub struct Elements<'a> {
    /// Its bytes.
    pub span: &'a Span,
    /// Their type.
    pub element: Element,
}

impl Elements<'_> {
    fn check(&self, what: &str, count: usize) {
        check_span(what, self.span, count, self.element.bytes());
    }
}

/// Blocks for `count` elements: enough to fill the largest Jetson several times over, and no more, since threads stride.
fn strided(count: usize) -> Grid {
    const THREADS: usize = 256;
    const BLOCKS_MAX: usize = 1024;
    Grid {
        blocks: [word(count.div_ceil(THREADS).clamp(1, BLOCKS_MAX)), 1, 1],
        threads: [word(THREADS), 1, 1],
    }
}

/// Converts `count` elements.
pub fn convert(
    target: &(impl Launch + ?Sized),
    from: Elements<'_>,
    to: Elements<'_>,
    count: usize,
) -> Result<(), CudaError> {
    from.check("what is converted", count);
    to.check("what it is converted to", count);
    let (from_address, to_address) = (from.span.address(), to.span.address());
    let (from_element, to_element, count_word) = (from.element as u32, to.element as u32, count as u64);
    let pointers = [at(&from_address), at(&from_element), at(&to_address), at(&to_element), at(&count_word)];
    let arguments = Arguments { pointers: &pointers, spans: &[from.span, to.span] };
    target.launch(Kernel::Convert, strided(count), &arguments)
}

/// What a reduction makes of two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Reduction {
    /// Their sum, in f32.
    Sum,
    /// The lesser; NaN wins, and -0 lies below +0.
    Minimum,
    /// The greater; NaN wins, and -0 lies below +0.
    Maximum,
}

/// `into = into op from`, element by element.
pub fn reduce(
    target: &(impl Launch + ?Sized),
    into: Elements<'_>,
    from: &Span,
    reduction: Reduction,
    count: usize,
) -> Result<(), CudaError> {
    into.check("what is reduced into", count);
    Elements { span: from, ..into }.check("what is reduced", count);
    let (into_address, from_address) = (into.span.address(), from.address());
    let (element, reduction, count_word) = (into.element as u32, reduction as u32, count as u64);
    let pointers = [at(&into_address), at(&from_address), at(&element), at(&reduction), at(&count_word)];
    let arguments = Arguments { pointers: &pointers, spans: &[into.span, from] };
    target.launch(Kernel::Reduce, strided(count), &arguments)
}
