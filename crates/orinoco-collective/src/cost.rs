//! Prices of schedules: how long an operation takes on links whose costs are known.
//!
//! The model is LogGP's (Alexandrov and others, 1995), with curves instead of constants: a message of `m` bytes arrives
//! `latency(m)` after it was sent, and keeps both its sender's and its receiver's port busy for `occupancy(m)`. The thread of a rank sends,
//! receives, reduces and copies, one after the other: where messages are copied by the processor, it is busy with one for
//! `send(m)` or `receive(m)`. The curves come from measurements of messages and reductions alone, never of
//! collective operations, so a price is a prediction.

mod curve;
mod model;
mod simulation;

pub use curve::Curve;
pub use model::{Cores, Costs, LinkCosts, Links, Price, Sizes};

use thiserror::Error;

use self::simulation::RankClocks;
use crate::{Algorithm, Collective, Schedule, Topology, Unsupported, schedule};

/// Most messages of an operation that is priced. Above it a price takes minutes and gigabytes.
const MESSAGES_MAX: usize = 1_000_000;
/// Time by which a rank reaches a barrier after the others, in times that the barrier takes if all reach it at once: their messages are there.
pub const LATENESS: f64 = 2.0;

/// No price.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unpriced {
    /// There is no such schedule.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The schedule is too large.
    #[error("about {messages} messages are too many to price, at most {MESSAGES_MAX}")]
    TooLarge {
        /// Messages, about.
        messages: usize,
    },
}

/// Prices an operation that all ranks call with equal sizes, and at the same time.
///
/// # Errors
/// If there is no such schedule, or if it has too many messages.
pub fn price(
    collective: &Collective,
    algorithm: Algorithm,
    topology: &Topology,
    sizes: Sizes,
    costs: &Costs,
) -> Result<Price, Unpriced> {
    let schedules = schedules(collective, algorithm, topology, sizes)?;
    let mut ranks = RankClocks::new(topology.ranks(), costs);
    let messages = ranks.run(&schedules, topology, sizes, costs);
    Ok(Price { seconds: ranks.last(), messages })
}

/// Prices an operation as a benchmark times it that calls it after a barrier, which one rank reaches last, each rank in turn: the time of
/// the rank at which the call takes longest, on average.
///
/// Ranks do not leave a barrier together: whoever waits is told, while the last one has yet to take the others' messages. So the first one
/// waits for the others in the operation that follows, and its call takes longer than the operation does from a common start ([`price`]).
///
/// # Errors
/// Like [`price`].
pub fn price_after_barrier(
    collective: &Collective,
    algorithm: Algorithm,
    barrier: Algorithm,
    topology: &Topology,
    sizes: Sizes,
    costs: &Costs,
) -> Result<Price, Unpriced> {
    let ranks = topology.ranks();
    let barrier = schedules(&Collective::Barrier, barrier, topology, sizes)?;
    let operation = schedules(collective, algorithm, topology, sizes)?;
    let mut together = RankClocks::new(ranks, costs);
    together.run(&barrier, topology, sizes, costs);
    let (mut seconds, mut messages) = (0.0, 0);
    for last in 0..ranks {
        let mut clocks = RankClocks::new(ranks, costs);
        clocks.delay(last, LATENESS * together.last(), costs);
        clocks.run(&barrier, topology, sizes, costs);
        let starts = clocks.times().to_vec();
        messages = clocks.run(&operation, topology, sizes, costs);
        let times = clocks.times().iter().zip(&starts).map(|(end, start)| end - start);
        seconds += times.fold(0.0, f64::max) / ranks as f64;
    }
    Ok(Price { seconds, messages })
}

/// Schedules of all pieces of an operation, of every rank.
fn schedules(
    collective: &Collective,
    algorithm: Algorithm,
    topology: &Topology,
    sizes: Sizes,
) -> Result<Vec<Vec<Schedule>>, Unpriced> {
    let pieces = pieces(collective, sizes.piece);
    let of_one = schedule(&pieces[0], algorithm, topology, 0)?;
    let sends: usize = of_one.rounds.iter().map(|round| round.sends.len().max(round.receives.len())).sum();
    let messages = sends * topology.ranks() * pieces.len();
    if messages > MESSAGES_MAX {
        return Err(Unpriced::TooLarge { messages });
    }
    let mut schedules = Vec::with_capacity(pieces.len());
    for piece in &pieces {
        let of_ranks = (0..topology.ranks()).map(|rank| schedule(piece, algorithm, topology, rank));
        schedules.push(of_ranks.collect::<Result<Vec<_>, _>>()?);
    }
    Ok(schedules)
}

/// Cuts an operation on one vector into pieces.
fn pieces(collective: &Collective, piece: usize) -> Vec<Collective> {
    let Some(count) = collective.vector_len() else { return vec![collective.clone()] };
    let starts = (0..count.max(1)).step_by(piece.max(1));
    starts.map(|start| collective.on_piece(piece.min(count - start))).collect()
}
