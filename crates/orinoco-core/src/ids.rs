use core::fmt;

/// A stream's index in the running board, stable while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct StreamId(pub u16);

impl StreamId {
    /// The index into per-stream tables.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
