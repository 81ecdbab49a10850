//! Settings of streams that are the same for a board file, a pipeline, sources and sinks.

use crate::Choice;

/// Treatment of a frame that arrives when its ring is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropPolicy {
    /// Drops the oldest frame that waits. Suits live video.
    DropOldest,
    /// Drops the new frame and keeps those that wait.
    DropNewest,
    /// Makes the source wait. Suits files, where every frame counts.
    Block,
}

impl Choice for DropPolicy {
    const ALL: &'static [Self] = &[Self::DropOldest, Self::DropNewest, Self::Block];

    fn name(self) -> &'static str {
        match self {
            Self::DropOldest => "drop-oldest",
            Self::DropNewest => "drop-newest",
            Self::Block => "block",
        }
    }
}

/// Video codec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// H.264, which every player supports.
    #[default]
    H264,
    /// H.265, which needs about half of the size.
    H265,
}
