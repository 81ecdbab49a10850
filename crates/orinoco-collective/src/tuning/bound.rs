//! Lower bounds of operations: no algorithm can be faster on such links.

use super::figures::{Figures, MESSAGE_BYTES};
use crate::Collective;
use crate::cost::{Costs, Sizes};

/// Least seconds of an operation, of whose largest vector a rank has so many bytes: the longest of its latencies, of the bytes that a
/// rank must send or receive, and of the bytes that it must reduce (Thakur, Rabenseifner and Gropp, 2005). The best link counts.
pub(super) fn least_seconds(
    collective: &Collective,
    bytes: usize,
    figures: &Figures,
    sizes: Sizes,
    costs: &Costs,
) -> f64 {
    let ranks = figures.ranks();
    if ranks == 1 {
        return 0.0;
    }
    let links = || {
        (0..ranks).flat_map(move |from| (0..ranks).map(move |to| (from, to))).filter(|(from, to)| from != to)
    };
    let latency = links().map(|(from, to)| figures.latency(from, to, MESSAGE_BYTES[0]).as_secs_f64());
    let latency = latency.fold(f64::INFINITY, f64::min);
    let rate = links().map(|(from, to)| figures.bandwidth(from, to)).fold(0.0, f64::max);
    let (bytes, others) = (bytes as f64, (ranks - 1) as f64 / ranks as f64);
    let levels =
        if matches!(collective, Collective::Send { .. }) { 1 } else { ranks.next_power_of_two().ilog2() };
    let moved = match collective {
        Collective::Barrier => 0.0,
        Collective::Broadcast { .. } | Collective::Reduce { .. } | Collective::Send { .. } => bytes,
        Collective::AllReduce { .. } => 2.0 * others * bytes,
        Collective::AllGather { .. }
        | Collective::ReduceScatter { .. }
        | Collective::Scatter { .. }
        | Collective::Gather { .. }
        | Collective::AllToAll { .. } => others * bytes,
    };
    // Long vectors are reduced in pieces, which stay in the cache.
    let piece = sizes.piece * sizes.element;
    let per_byte = costs.reduce.at(piece) / piece as f64;
    let reduced = if collective.reduces() { others * bytes * per_byte } else { 0.0 };
    (f64::from(levels) * latency).max(moved / rate).max(reduced)
}
