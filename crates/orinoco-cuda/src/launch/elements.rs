//! Launches of the element-wise kernels for tensors (`kernels/convert.cu` and `kernels/reduce.cu`).

use orinoco_core::ElementType;

use super::{Arguments, Grid, Launch, at, check_span, word};
use crate::span::Span;
use crate::{CudaError, Kernel};

/// Element type of a tensor that the kernels can read and write, numbered as in `kernels/prelude.cuh`.
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
    /// Returns the kernel type of `element`; `None` if the kernels do not support it.
    pub fn of(element: ElementType) -> Option<Self> {
        match element {
            ElementType::F32 => Some(Self::F32),
            ElementType::F16 => Some(Self::F16),
            ElementType::U8 => Some(Self::U8),
            _ => None,
        }
    }

    /// Returns the size of one element, in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::U8 => 1,
        }
    }
}

/// Tensor of `count` elements.
#[derive(Clone, Copy, Debug)]
pub struct Elements<'a> {
    /// Memory of the elements.
    pub span: &'a Span,
    /// Type of the elements.
    pub element: Element,
}

impl Elements<'_> {
    fn check(&self, what: &str, count: usize) {
        check_span(what, self.span, count, self.element.bytes());
    }
}

/// Returns the number of blocks for `count` elements: at most enough to fill the largest Jetson several times, because threads
/// stride over the elements.
fn strided(count: usize) -> Grid {
    const THREADS: usize = 256;
    const BLOCKS_MAX: usize = 1024;
    Grid {
        blocks: [word(count.div_ceil(THREADS).clamp(1, BLOCKS_MAX)), 1, 1],
        threads: [word(THREADS), 1, 1],
    }
}

/// Queues the conversion of `count` elements.
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

/// Operation that a reduction applies to two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Reduction {
    /// Sum, in f32.
    Sum,
    /// Minimum; NaN if either is NaN, and -0 is less than +0.
    Minimum,
    /// Maximum; NaN if either is NaN, and -0 is less than +0.
    Maximum,
}

/// Queues `into = into op from`, element by element.
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
