//! Launches of kernels: what a launch is made of, and below, one function for each kernel, with its arguments' types and
//! the checks that the kernel counts on. They go to whatever is [`Launch`]: a [`Stream`](crate::Stream), or the tests'
//! emulation of one.
//!
//! A length that disagrees with its description is a bug of the caller, and panics with both numbers.

mod classify;
mod decode;
mod elements;
mod preprocess;
mod suppress;

use std::ffi::c_void;
use std::ptr;

use crate::span::Span;
use crate::{CudaError, Kernel};

pub use classify::{CLASS_BYTES, Classify, classify};
pub use decode::{BoxRows, CANDIDATES_MAX, Candidate, CandidateLists, Decode, LEVELS_MAX, decode};
pub use elements::{Element, Elements, Reduction, convert, reduce};
pub use preprocess::{ImageTensor, preprocess};
pub use suppress::{KeptLists, Suppress, Totals, suppress};

/// Target of kernel launches: a CUDA stream, or the CPU in tests.
pub trait Launch {
    /// Queues `kernel`.
    fn launch(&self, kernel: Kernel, grid: Grid, arguments: &Arguments<'_>) -> Result<(), CudaError>;

    /// Queues filling `span` with zeros.
    fn zero(&self, span: &Span) -> Result<(), CudaError>;
}

/// Launch configuration: number of blocks, and threads per block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks along x, y, z.
    pub blocks: [u32; 3],
    /// Threads of a block along x, y, z.
    pub threads: [u32; 3],
}

/// A kernel's arguments. They are made in this module and those below it only, so that they are what the kernel takes.
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
