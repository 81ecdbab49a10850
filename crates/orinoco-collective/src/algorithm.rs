use std::fmt;

/// Way to carry out a collective operation. Not every algorithm exists for every operation: see
/// [`schedule`](crate::schedule).
///
/// Costs below are for `p` ranks and vectors of `S` bytes; `a` is the latency of a message, `L` = ceil(log2 p).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Algorithm {
    /// Each rank sends all it has to whom it concerns, at once. As an all-reduce this is the one-shot algorithm: one latency,
    /// `(p-1) S` on each link, best for small vectors.
    Direct,
    /// A direct reduce-scatter, then a direct all-gather: two latencies, and no more bytes than a ring. Needs a full mesh.
    TwoShot,
    /// Each rank passes blocks to the next one: `p-1` latencies (`2(p-1)` for an all-reduce), least bytes.
    Ring,
    /// Partners at distance 1, 2, 4, ... exchange all they have: `L` latencies.
    RecursiveDoubling,
    /// Partners at distance 1, 2, 4, ... exchange half of what remains, then the way back (Rabenseifner): `2L` latencies, least
    /// bytes.
    HalvingDoubling,
    /// A binomial tree: `L` latencies (`2L` for an all-reduce).
    BinomialTree,
    /// Two binary trees, each with half of the vector; inner nodes of one are leaves of the other, so all links are busy in
    /// both directions (Sanders, Speck and Traff, 2009).
    DoubleBinaryTree,
    /// From rank to rank, in pieces: `p-1` latencies, least bytes for a broadcast of large vectors.
    Chain,
    /// Blocks at distance 1, 2, 4, ... (Bruck and others, 1997): `L` latencies for any number of ranks.
    Bruck,
    /// In step `i`, rank `r` sends to `r+i` and receives from `r-i`: one message at a time on each link.
    Pairwise,
    /// First among the ranks of a board, then between boards, then among the ranks of a board.
    TwoLevel,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 11] = [
        Self::Direct,
        Self::TwoShot,
        Self::Ring,
        Self::RecursiveDoubling,
        Self::HalvingDoubling,
        Self::BinomialTree,
        Self::DoubleBinaryTree,
        Self::Chain,
        Self::Bruck,
        Self::Pairwise,
        Self::TwoLevel,
    ];

    /// Name in messages and settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::TwoShot => "two-shot",
            Self::Ring => "ring",
            Self::RecursiveDoubling => "recursive-doubling",
            Self::HalvingDoubling => "halving-doubling",
            Self::BinomialTree => "binomial-tree",
            Self::DoubleBinaryTree => "double-binary-tree",
            Self::Chain => "chain",
            Self::Bruck => "bruck",
            Self::Pairwise => "pairwise",
            Self::TwoLevel => "two-level",
        }
    }

    /// Whether reductions follow the communicator's [reduction tree](crate::reduce), so that a result has the same bits
    /// whichever of these algorithms computed it. Operations that only copy are always reproducible.
    pub fn is_reproducible(self) -> bool {
        match self {
            Self::Direct
            | Self::TwoShot
            | Self::RecursiveDoubling
            | Self::HalvingDoubling
            | Self::BinomialTree => true,
            Self::Ring | Self::DoubleBinaryTree | Self::Chain | Self::TwoLevel => false,
            Self::Bruck | Self::Pairwise => true,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
