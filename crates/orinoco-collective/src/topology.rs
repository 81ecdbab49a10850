use std::collections::{HashMap, HashSet};

/// Ranks of a communicator: how many there are, which share a board, and how a vector is divided among them.
///
/// All ranks of a communicator hold an equal topology; it is agreed on when they join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    boards: Vec<usize>,
    weights: Vec<u32>,
}

impl Topology {
    /// Creates a topology of `ranks` ranks, each on a board of its own and with equal shares.
    ///
    /// # Panics
    /// If `ranks` is 0.
    pub fn flat(ranks: usize) -> Self {
        Self::of_boards((0..ranks).collect())
    }

    /// Creates a topology from the board of each rank: ranks with equal numbers share a board.
    ///
    /// # Panics
    /// If the list is empty.
    pub fn of_boards(boards: Vec<usize>) -> Self {
        assert!(!boards.is_empty(), "a communicator has one rank or more");
        let weights = vec![1; boards.len()];
        Self { boards, weights }
    }

    /// Divides vectors in proportion to `weights`, one for each rank, instead of equally. A rank on a slow link takes a
    /// smaller share.
    ///
    /// # Panics
    /// If there is not one weight for each rank, or if all are 0.
    #[must_use]
    pub fn with_weights(mut self, weights: Vec<u32>) -> Self {
        assert_eq!(weights.len(), self.ranks(), "one weight for each rank");
        assert!(weights.iter().any(|weight| *weight > 0), "one weight or more is above 0");
        self.weights = weights;
        self
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.boards.len()
    }

    /// Weight of each rank.
    pub fn weights(&self) -> &[u32] {
        &self.weights
    }

    /// Whether two ranks are on one board.
    pub fn share_board(&self, one: usize, other: usize) -> bool {
        self.boards[one] == self.boards[other]
    }

    /// Ranks on the board of `rank`, in order.
    pub(crate) fn on_board_of(&self, rank: usize) -> Vec<usize> {
        (0..self.ranks()).filter(|other| self.boards[*other] == self.boards[rank]).collect()
    }

    /// The lowest rank on the board of each rank.
    pub(crate) fn first_ranks(&self) -> Vec<usize> {
        let mut first = HashMap::new();
        self.boards.iter().enumerate().map(|(rank, board)| *first.entry(board).or_insert(rank)).collect()
    }

    /// The lowest rank of each board, in order.
    pub(crate) fn leaders(&self) -> Vec<usize> {
        let mut seen = HashSet::new();
        (0..self.ranks()).filter(|rank| seen.insert(self.boards[*rank])).collect()
    }
}
