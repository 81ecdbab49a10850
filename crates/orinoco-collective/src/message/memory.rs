use std::ops::Range;

use crate::Buffer;

/// Consecutive bytes of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Buffer.
    pub buffer: Buffer,
    /// First byte.
    pub start: usize,
    /// Number of bytes.
    pub len: usize,
}

impl Span {
    pub(super) fn range(self) -> Range<usize> {
        self.start..self.start + self.len
    }
}

/// Memory of a rank during one operation: the caller's vectors, and working memory of the group.
pub struct Memory<'a> {
    /// `None` if the input is the same memory as the output.
    pub(crate) input: Option<&'a [u8]>,
    pub(crate) output: &'a mut [u8],
    pub(crate) scratch: &'a mut [u8],
    pub(crate) partial: &'a mut [u8],
}

impl Memory<'_> {
    /// Bytes of a message to send, or of an operand.
    pub fn bytes(&self, span: Span) -> &[u8] {
        let buffer = match span.buffer {
            Buffer::Input => self.input.unwrap_or(self.output),
            Buffer::Output => self.output,
            Buffer::Scratch => self.scratch,
            Buffer::Partial => self.partial,
        };
        &buffer[span.range()]
    }

    /// Bytes to receive a message into, or to write a result to.
    ///
    /// # Panics
    /// If the span is of the input: no schedule writes there.
    pub fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        let buffer = match span.buffer {
            Buffer::Input => panic!("{span:?} of the input would be written"),
            Buffer::Output => &mut *self.output,
            Buffer::Scratch => &mut *self.scratch,
            Buffer::Partial => &mut *self.partial,
        };
        &mut buffer[span.range()]
    }

    /// Copies between spans of one length, which may overlap.
    pub(super) fn copy(&mut self, from: Span, into: Span) {
        let buffer = match from.buffer {
            Buffer::Input if self.input.is_none() => Buffer::Output,
            other => other,
        };
        let output = &mut *self.output;
        match (buffer, into.buffer) {
            (Buffer::Output, Buffer::Output) => output.copy_within(from.range(), into.start),
            (Buffer::Scratch, Buffer::Scratch) => self.scratch.copy_within(from.range(), into.start),
            (Buffer::Partial, Buffer::Partial) => self.partial.copy_within(from.range(), into.start),
            (Buffer::Input, Buffer::Output) => {
                let input = self.input.expect("an input of its own");
                output[into.range()].copy_from_slice(&input[from.range()]);
            }
            (Buffer::Scratch, Buffer::Output) => {
                output[into.range()].copy_from_slice(&self.scratch[from.range()]);
            }
            (Buffer::Input, Buffer::Scratch) => {
                let input = self.input.expect("an input of its own");
                self.scratch[into.range()].copy_from_slice(&input[from.range()]);
            }
            (Buffer::Output, Buffer::Scratch) => {
                self.scratch[into.range()].copy_from_slice(&output[from.range()]);
            }
            (from, into) => panic!("no schedule copies from {from:?} to {into:?}"),
        }
    }
}
