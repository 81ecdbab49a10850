//! Launch of the kernel that finds the best classes of an image (`kernels/heads.cu`).

use orinoco_core::Activation;

use super::elements::Element;
use super::{Arguments, Grid, Launch, at, check_span, word};
use crate::span::Span;
use crate::{CudaError, Kernel};

/// Parameters of the kernel that finds the best classes of an image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Classify {
    /// Number of classes.
    pub classes: usize,
    /// Element type of the output.
    pub element: Element,
    /// Activation that turns the values into probabilities.
    pub activation: Activation,
    /// Class that is never reported (background).
    pub background: Option<u32>,
    /// Maximum number of classes per image.
    pub top: usize,
    /// Minimum score of a reported class.
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

/// `Activation` of `kernels/heads.cu`.
fn activation_number(activation: Activation) -> u32 {
    match activation {
        Activation::Auto => 0,
        Activation::None => 1,
        Activation::Softmax => 2,
        Activation::Sigmoid => 3,
    }
}

/// Size of a class and its score in a list, in bytes.
pub const CLASS_BYTES: usize = 8;

/// Finds the best classes of `batch` images: `top` pairs of class (u32) and score (f32) for each in `best`, best first,
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
    /// Number of no class: the kernel's NO_CLASS.
    const NO_CLASS: u32 = u32::MAX;
    check_span("class values", output, batch * how.classes, how.element.bytes());
    check_span("a list of classes", best, batch * how.top * CLASS_BYTES / 4, 4);
    check_span("counts of classes", counts, batch, 4);
    let spec = ClassifySpec {
        classes: word(how.classes),
        element: how.element as u32,
        activation: activation_number(how.activation),
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
