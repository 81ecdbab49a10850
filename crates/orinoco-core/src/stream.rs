//! Settings of streams that are the same for a board file, a pipeline, sources and sinks.

use crate::Choice;

/// What happens to a frame that finds its ring full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropPolicy {
    /// The oldest waiting frame makes room: live video.
    DropOldest,
    /// The new frame is dropped: what waits is kept.
    DropNewest,
    /// The source waits: files, where every frame counts.
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

/// How video is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// H.264, which everything plays.
    #[default]
    H264,
    /// H.265, which needs about half of the space.
    H265,
}
