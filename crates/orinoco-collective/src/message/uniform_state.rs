use std::sync::Arc;

use super::choice::{Order, choose};
use super::kernel::Kernel;
use super::plan::OperationPlan;
use crate::{Collective, Topology};

/// State of a uniform group.
pub(super) struct UniformState {
    /// Plan of the barrier that runs twice after each operation.
    pub(super) barrier: Arc<OperationPlan>,
    /// Number of collective operations that have completed on this rank.
    pub(super) operations: u64,
}

impl UniformState {
    /// Creates the state of a group. All ranks create the same.
    pub(super) fn new(topology: &Topology, rank: usize) -> Self {
        let algorithm = choose(&Collective::Barrier, 0, topology.ranks(), Order::Reproducible);
        let kernel = Kernel::copying(None);
        let barrier = OperationPlan::new(&Collective::Barrier, algorithm, topology, rank, kernel, 1);
        Self { barrier: Arc::new(barrier.expect("a schedule of every choice")), operations: 0 }
    }
}
