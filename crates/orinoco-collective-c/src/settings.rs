//! Settings of a group, as C gives them.

use std::time::Duration;

use orinoco_collective::{Algorithm, MessageSettings, Order, Settings, Tune, Uniform};

use crate::fault::Fault;

/// Algorithm: each rank sends all it has to every rank that needs it, at once. The fastest one for short vectors.
pub const ORINOCO_DIRECT: u32 = 1;
/// Algorithm: a direct reduce-scatter, then a direct all-gather.
pub const ORINOCO_TWO_SHOT: u32 = 2;
/// Algorithm: each rank passes blocks to the next one.
pub const ORINOCO_RING: u32 = 3;
/// Algorithm: partners at distance 1, 2, 4, ... exchange all they have.
pub const ORINOCO_RECURSIVE_DOUBLING: u32 = 4;
/// Algorithm: partners at distance 1, 2, 4, ... exchange half of what remains, and then return the results.
pub const ORINOCO_HALVING_DOUBLING: u32 = 5;
/// Algorithm: a binomial tree.
pub const ORINOCO_BINOMIAL_TREE: u32 = 6;
/// Algorithm: two binary trees, each with half of the vector.
pub const ORINOCO_DOUBLE_BINARY_TREE: u32 = 7;
/// Algorithm: from rank to rank, in pieces.
pub const ORINOCO_CHAIN: u32 = 8;
/// Algorithm: blocks at distance 1, 2, 4, ..., for any number of ranks.
pub const ORINOCO_BRUCK: u32 = 9;
/// Algorithm: one message at a time on each link.
pub const ORINOCO_PAIRWISE: u32 = 10;
/// Algorithm: first among the ranks of a machine, then between machines, then among the ranks of a machine.
pub const ORINOCO_TWO_LEVEL: u32 = 11;

/// Settings of a group. Zero stands for the usual value. All ranks give equal ones, apart from the times.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct OrinocoSettings {
    /// Longest wait for a rank that gives signs of life, in ms; usually 60,000.
    pub deadline_ms: u64,
    /// Time without a sign of life after which a rank counts as dead, in ms: 10 or more; usually 500.
    pub silence_ms: u64,
    /// Whether reductions may combine values in any order. If not, a result has the same bits for every size, algorithm and transport.
    pub fast: bool,
    /// Whether messages over TCP are not encrypted where ranks have a key: for networks that nobody else can reach. Ranks are authenticated all
    /// the same.
    pub plaintext_messages: bool,
    /// Whether ranks measure their links when all have joined, to choose algorithms by them, as `orinoco_tune` does. Refused over shared
    /// memory, which has one algorithm for each operation.
    pub tune: bool,
    /// Whether all ranks that are left after a failure, and that reach more than half of the ranks, return the same: all the result, or all
    /// an error. It adds two barriers to every operation. Refused over shared memory, which has no such agreement.
    pub uniform: bool,
    /// Whether `witness` is a rank.
    pub has_witness: bool,
    /// TCP connections for the messages between two ranks, 1 to 8; usually 1. Over other transports, it is without effect.
    pub tcp_connections: u16,
    /// Algorithm of every operation that has it: ORINOCO_DIRECT or one of those after it. Usually each is chosen by size, or by measured times if
    /// the group is tuned. Without `fast`, reductions do not use one that combines values in another order. Refused over shared memory.
    pub algorithm: u32,
    /// With `has_witness`: the rank of a uniform group with which exactly half of the ranks is enough.
    pub witness: usize,
}

/// Settings of a group that exchanges messages.
pub(crate) fn messages(settings: Option<&OrinocoSettings>, ranks: usize) -> Result<MessageSettings, Fault> {
    let usual = MessageSettings::default();
    let Some(settings) = settings else { return Ok(usual) };
    Ok(MessageSettings {
        deadline: millis(settings.deadline_ms, usual.deadline),
        silence: millis(settings.silence_ms, usual.silence),
        tcp_connections: if settings.tcp_connections == 0 {
            usual.tcp_connections
        } else {
            settings.tcp_connections
        },
        tcp_encryption: !settings.plaintext_messages,
        order: if settings.fast { Order::Fast } else { Order::Reproducible },
        algorithm: settings.algorithm()?,
        tune: if settings.tune { Tune::AtJoin } else { Tune::Off },
        uniform: settings.uniform(ranks)?,
        ..usual
    })
}

/// Settings of a group over shared memory. Those that it cannot have are refused.
pub(crate) fn shared_memory(settings: Option<&OrinocoSettings>) -> Result<Settings, Fault> {
    let usual = Settings::default();
    let Some(settings) = settings else { return Ok(usual) };
    let refused = |name: &str, why: &str| {
        Err(Fault::argument(format!("over shared memory {why}; leave out `{name}`, or join over TCP")))
    };
    let one_algorithm = "there is one algorithm for each operation";
    if settings.tune {
        return refused("tune", one_algorithm);
    }
    if settings.algorithm()?.is_some() {
        return refused("algorithm", one_algorithm);
    }
    if settings.uniform || settings.has_witness {
        return refused("uniform", "ranks do not agree on the outcome of an operation");
    }
    Ok(Settings {
        deadline: millis(settings.deadline_ms, usual.deadline),
        silence: millis(settings.silence_ms, usual.silence),
        ..usual
    })
}

impl OrinocoSettings {
    fn algorithm(&self) -> Result<Option<Algorithm>, Fault> {
        let Some(place) = self.algorithm.checked_sub(1) else { return Ok(None) };
        match Algorithm::ALL.get(place as usize) {
            Some(algorithm) => Ok(Some(*algorithm)),
            None => Err(Fault::argument(format!(
                "{} is no algorithm; see ORINOCO_DIRECT and those after it",
                self.algorithm
            ))),
        }
    }

    fn uniform(&self, ranks: usize) -> Result<Option<Uniform>, Fault> {
        let witness = self.witness;
        let fault = match self.has_witness {
            false if witness != 0 => {
                format!(
                    "the witness is rank {witness}, but `has_witness` is not set; set it, or leave the witness out"
                )
            }
            true if !self.uniform => {
                "only a uniform group has a witness; set `uniform`, or leave the witness out".to_owned()
            }
            true if witness >= ranks => {
                format!("the witness cannot be rank {witness}: there is no such rank among {ranks}")
            }
            has_witness => {
                let witness = has_witness.then_some(witness);
                return Ok(self.uniform.then_some(Uniform { witness }));
            }
        };
        Err(Fault::argument(fault))
    }
}

fn millis(value: u64, usual: Duration) -> Duration {
    if value == 0 { usual } else { Duration::from_millis(value) }
}

const _: () = {
    assert!(ORINOCO_DIRECT == Algorithm::Direct as u32 + 1);
    assert!(ORINOCO_TWO_SHOT == Algorithm::TwoShot as u32 + 1);
    assert!(ORINOCO_RING == Algorithm::Ring as u32 + 1);
    assert!(ORINOCO_RECURSIVE_DOUBLING == Algorithm::RecursiveDoubling as u32 + 1);
    assert!(ORINOCO_HALVING_DOUBLING == Algorithm::HalvingDoubling as u32 + 1);
    assert!(ORINOCO_BINOMIAL_TREE == Algorithm::BinomialTree as u32 + 1);
    assert!(ORINOCO_DOUBLE_BINARY_TREE == Algorithm::DoubleBinaryTree as u32 + 1);
    assert!(ORINOCO_CHAIN == Algorithm::Chain as u32 + 1);
    assert!(ORINOCO_BRUCK == Algorithm::Bruck as u32 + 1);
    assert!(ORINOCO_PAIRWISE == Algorithm::Pairwise as u32 + 1);
    assert!(ORINOCO_TWO_LEVEL == Algorithm::TwoLevel as u32 + 1);
    assert!(Algorithm::ALL.len() == ORINOCO_TWO_LEVEL as usize);
};
