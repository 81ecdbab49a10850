use std::fmt;

/// An operation, with its sizes in elements. The names are MPI's and NCCL's.
///
/// Every rank of a communicator calls the same operation with the same sizes; only a send concerns two of them. Sizes that differ from rank to rank (MPI's
/// v-variants) are lists with an entry for each rank.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Collective {
    /// No rank returns before all have called.
    Barrier,
    /// Copies `count` elements of `root` to all.
    Broadcast {
        /// Rank that sends.
        root: usize,
        /// Elements.
        count: usize,
    },
    /// Reduces `count` elements of all ranks into the output of `root`.
    Reduce {
        /// Rank that receives.
        root: usize,
        /// Elements.
        count: usize,
    },
    /// Reduces `count` elements of all ranks into the output of each.
    AllReduce {
        /// Elements.
        count: usize,
    },
    /// Concatenates the inputs of all ranks, in rank order, in the output of each.
    AllGather {
        /// Elements of each rank.
        counts: Vec<usize>,
    },
    /// Reduces the concatenated blocks of all ranks; rank `i` receives block `i`.
    ReduceScatter {
        /// Elements of each block.
        counts: Vec<usize>,
    },
    /// Sends block `i` of `root` to rank `i`.
    Scatter {
        /// Rank that sends.
        root: usize,
        /// Elements of each block.
        counts: Vec<usize>,
    },
    /// Concatenates the inputs of all ranks, in rank order, at `root`.
    Gather {
        /// Rank that receives.
        root: usize,
        /// Elements of each rank.
        counts: Vec<usize>,
    },
    /// Sends block `i` of each rank to rank `i`. The lists are this rank's: it sends `send[i]` elements to rank `i` and
    /// receives `receive[i]` from it.
    AllToAll {
        /// Elements for each rank.
        send: Vec<usize>,
        /// Elements from each rank.
        receive: Vec<usize>,
    },
    /// Sends `count` elements of one rank to another. The other ranks do not call it.
    Send {
        /// Rank that sends.
        from: usize,
        /// Rank that receives.
        to: usize,
        /// Elements.
        count: usize,
    },
}

impl Collective {
    /// Creates an all-to-all of blocks of equal size.
    pub fn all_to_all(ranks: usize, count: usize) -> Self {
        Self::AllToAll { send: vec![count; ranks], receive: vec![count; ranks] }
    }

    /// Whether all ranks call it.
    pub fn is_of_all(&self) -> bool {
        !matches!(self, Self::Send { .. })
    }

    /// Whether values are combined, not only copied.
    pub fn reduces(&self) -> bool {
        matches!(self, Self::Reduce { .. } | Self::AllReduce { .. } | Self::ReduceScatter { .. })
    }

    /// Length of the one vector that all ranks name, if the operation has one: it can be cut into pieces.
    pub(crate) fn vector_len(&self) -> Option<usize> {
        match self {
            Self::Broadcast { count, .. }
            | Self::Reduce { count, .. }
            | Self::AllReduce { count }
            | Self::Send { count, .. } => Some(*count),
            _ => None,
        }
    }

    /// The same operation on a piece of the vector. An operation without such a vector stays as it is.
    pub(crate) fn on_piece(&self, count: usize) -> Self {
        match *self {
            Self::Broadcast { root, .. } => Self::Broadcast { root, count },
            Self::Reduce { root, .. } => Self::Reduce { root, count },
            Self::AllReduce { .. } => Self::AllReduce { count },
            Self::Send { from, to, .. } => Self::Send { from, to, count },
            _ => self.clone(),
        }
    }

    /// Elements in the input of `rank`.
    pub fn input_len(&self, rank: usize) -> usize {
        match self {
            Self::Barrier => 0,
            Self::Broadcast { root, count } => {
                if rank == *root {
                    *count
                } else {
                    0
                }
            }
            Self::Reduce { count, .. } | Self::AllReduce { count } => *count,
            Self::AllGather { counts } | Self::Gather { counts, .. } => counts[rank],
            Self::ReduceScatter { counts } => counts.iter().sum(),
            Self::Scatter { root, counts } => {
                if rank == *root {
                    counts.iter().sum()
                } else {
                    0
                }
            }
            Self::AllToAll { send, .. } => send.iter().sum(),
            Self::Send { from, count, .. } => {
                if rank == *from {
                    *count
                } else {
                    0
                }
            }
        }
    }

    /// Elements in the output of `rank`.
    pub fn output_len(&self, rank: usize) -> usize {
        match self {
            Self::Barrier => 0,
            Self::Broadcast { count, .. } | Self::AllReduce { count } => *count,
            Self::Reduce { root, count } => {
                if rank == *root {
                    *count
                } else {
                    0
                }
            }
            Self::AllGather { counts } => counts.iter().sum(),
            Self::ReduceScatter { counts } | Self::Scatter { counts, .. } => counts[rank],
            Self::Gather { root, counts } => {
                if rank == *root {
                    counts.iter().sum()
                } else {
                    0
                }
            }
            Self::AllToAll { receive, .. } => receive.iter().sum(),
            Self::Send { to, count, .. } => {
                if rank == *to {
                    *count
                } else {
                    0
                }
            }
        }
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Barrier => "barrier",
            Self::Broadcast { .. } => "broadcast",
            Self::Reduce { .. } => "reduce",
            Self::AllReduce { .. } => "all_reduce",
            Self::AllGather { .. } => "all_gather",
            Self::ReduceScatter { .. } => "reduce_scatter",
            Self::Scatter { .. } => "scatter",
            Self::Gather { .. } => "gather",
            Self::AllToAll { .. } => "all_to_all",
            Self::Send { .. } => "send",
        })
    }
}
