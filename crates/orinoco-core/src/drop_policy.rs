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

impl DropPolicy {
    /// All policies by the name used in board files.
    pub const NAMES: [(&'static str, Self); 3] =
        [("drop-oldest", Self::DropOldest), ("drop-newest", Self::DropNewest), ("block", Self::Block)];
}
