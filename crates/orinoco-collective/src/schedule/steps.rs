//! Parts of a schedule.

use std::ops::Range;

/// Messages, copies and reductions of one rank in one collective operation.
///
/// Rounds run one after the other. A round posts its sends and receives together, waits for all of them, and then executes its
/// local steps in order. No region that a round sends overlaps one that it receives, and every schedule makes progress even
/// where a send waits for its receive; the tests prove both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Rounds, in order.
    pub rounds: Vec<Round>,
    /// Size of [`Buffer::Scratch`], in elements of the data type.
    pub scratch_len: usize,
    /// Size of [`Buffer::Partial`], in accumulators.
    pub partial_len: usize,
}

/// One round of a [`Schedule`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Round {
    /// Messages to other ranks.
    pub sends: Vec<Transfer>,
    /// Messages from other ranks. Messages between two ranks arrive in the order in which they were sent.
    pub receives: Vec<Transfer>,
    /// Steps after the messages.
    pub locals: Vec<Local>,
}

/// A message: the regions are sent, or filled, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// The other rank.
    pub peer: usize,
    /// Elements of the message. Empty for a message that only says that its sender has arrived.
    pub regions: Vec<Region>,
}

impl Transfer {
    /// Elements of the message.
    pub fn len(&self) -> usize {
        self.regions.iter().map(|region| region.len).sum()
    }

    /// Whether the message carries no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A step without messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Local {
    /// Copies elements.
    Copy {
        /// Source.
        from: Region,
        /// Destination, of the same length and kind.
        into: Region,
    },
    /// Reduces operands element by element, in the order of the reduction tree for that many leaves
    /// (see [`crate::reduce`]). Operands in elements of the data type are widened first. A result in [`Buffer::Output`] is final:
    /// it is divided if an average is asked for, and rounded to the data type. A result may take the place of an operand.
    Reduce {
        /// Destination.
        into: Region,
        /// Operands, of the destination's length.
        operands: Vec<Region>,
    },
}

/// Memory of a rank during one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Buffer {
    /// The caller's input. May be the same memory as the output for a broadcast, a reduce and an all-reduce.
    Input,
    /// The caller's output.
    Output,
    /// Elements of the data type, as other ranks sent them.
    Scratch,
    /// Partial reductions, in the accumulator's type: `f32` for `f16` and `bf16`.
    Partial,
}

impl Buffer {
    /// Whether it holds accumulators and not elements of the data type.
    pub fn is_partial(self) -> bool {
        self == Self::Partial
    }
}

/// Consecutive elements of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Region {
    /// Buffer.
    pub buffer: Buffer,
    /// First element.
    pub start: usize,
    /// Number of elements.
    pub len: usize,
}

impl Region {
    /// The part at `range`, which counts from the region's start.
    pub(super) fn part(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} elements", self.len);
        Self { buffer: self.buffer, start: self.start + range.start, len: range.len() }
    }
}
