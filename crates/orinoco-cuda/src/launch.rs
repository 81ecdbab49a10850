//! Kernel launches: the parts of a launch, and in the modules below one function for each kernel, with the types of its
//! arguments and the checks that the kernel relies on. The target is a [`Launch`]: a [`Stream`](crate::Stream), or the
//! emulation of a stream in tests.
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
    /// Queues a launch of `kernel`.
    fn launch(&self, kernel: Kernel, grid: Grid, arguments: &Arguments<'_>) -> Result<(), CudaError>;

    /// Queues a fill of `span` with zeros.
    fn zero(&self, span: &Span) -> Result<(), CudaError>;
}

/// Launch configuration: number of blocks, and threads per block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Number of blocks along x, y, z.
    pub blocks: [u32; 3],
    /// Number of threads per block along x, y, z.
    pub threads: [u32; 3],
}

/// Arguments of a kernel. Only this module and the modules below it make them, so that their types match the kernel.
#[derive(Debug)]
pub struct Arguments<'a> {
    pointers: &'a [*const c_void],
    spans: &'a [&'a Span],
}

impl<'a> Arguments<'a> {
    /// Pointers to the values, in the order of the kernel's parameters.
    pub fn pointers(&self) -> &'a [*const c_void] {
        self.pointers
    }

    /// Spans of all memory that the kernel uses.
    pub fn spans(&self) -> &'a [&'a Span] {
        self.spans
    }
}

/// Returns the address of one argument.
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
