//! Choice of an algorithm by size.

use crate::{Algorithm, Collective};

/// Order in which reductions combine values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// That of the [reduction tree](crate::reduce): a result has the same bits for every size, algorithm and transport.
    #[default]
    Reproducible,
    /// Any: the fastest algorithm.
    Fast,
}

/// Most bytes of a vector that each rank sends whole to all others. Above it, twice the latency costs less than the bytes.
const ONE_SHOT_BYTES: usize = 16 << 10;
/// Most ranks for direct algorithms: each has a message to every other one under way.
const DIRECT_RANKS: usize = 16;

/// Algorithm for an operation on `bytes` of this rank's largest vector. Equal arguments give equal choices on all ranks.
pub(super) fn choose(collective: &Collective, bytes: usize, ranks: usize, order: Order) -> Algorithm {
    let is_small_group = ranks <= DIRECT_RANKS;
    let is_short = bytes <= ONE_SHOT_BYTES;
    match collective {
        Collective::Barrier if is_small_group => Algorithm::Direct,
        Collective::Barrier => Algorithm::RecursiveDoubling,
        Collective::AllReduce { .. } if is_small_group && is_short => Algorithm::Direct,
        Collective::AllReduce { .. } if is_small_group => Algorithm::TwoShot,
        Collective::AllReduce { .. } if is_short => Algorithm::RecursiveDoubling,
        Collective::AllReduce { .. } if order == Order::Fast => Algorithm::Ring,
        Collective::AllReduce { .. } => Algorithm::HalvingDoubling,
        Collective::Broadcast { .. } if ranks > 2 && !is_short => Algorithm::Chain,
        Collective::Broadcast { .. } => Algorithm::BinomialTree,
        Collective::Reduce { .. } if is_small_group => Algorithm::Direct,
        Collective::Reduce { .. } => Algorithm::BinomialTree,
        Collective::AllGather { .. } if is_small_group => Algorithm::Direct,
        Collective::AllGather { .. } if is_short => Algorithm::Bruck,
        Collective::AllGather { .. } => Algorithm::Ring,
        Collective::ReduceScatter { .. } if is_small_group => Algorithm::Direct,
        Collective::ReduceScatter { .. } => Algorithm::HalvingDoubling,
        Collective::Scatter { .. } | Collective::Gather { .. } if is_small_group => Algorithm::Direct,
        Collective::Scatter { .. } | Collective::Gather { .. } => Algorithm::BinomialTree,
        Collective::AllToAll { .. } if is_small_group => Algorithm::Direct,
        Collective::AllToAll { .. } => Algorithm::Pairwise,
        Collective::Send { .. } => Algorithm::Direct,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Topology, schedule};

    #[test]
    fn every_choice_has_a_schedule_and_keeps_the_order() {
        for ranks in [1, 2, 3, 5, 16, 17, 40] {
            let counts = vec![3; ranks];
            let collectives = [
                Collective::Barrier,
                Collective::AllReduce { count: 3 },
                Collective::Broadcast { root: 0, count: 3 },
                Collective::Reduce { root: 0, count: 3 },
                Collective::AllGather { counts: counts.clone() },
                Collective::ReduceScatter { counts: counts.clone() },
                Collective::Scatter { root: 0, counts: counts.clone() },
                Collective::Gather { root: 0, counts },
                Collective::all_to_all(ranks, 3),
            ];
            for collective in &collectives {
                for bytes in [0, ONE_SHOT_BYTES, ONE_SHOT_BYTES + 1] {
                    for order in [Order::Reproducible, Order::Fast] {
                        let chosen = choose(collective, bytes, ranks, order);
                        schedule(collective, chosen, &Topology::flat(ranks), 0).expect("a schedule");
                        let is_free = order == Order::Fast || !collective.reduces();
                        assert!(is_free || chosen.is_reproducible(), "{chosen} {collective}");
                    }
                }
            }
        }
    }
}
