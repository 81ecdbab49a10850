use std::fmt;
use std::time::Duration;

use super::bound::least_seconds;
use super::choices::{Rules, algorithms, sizes};
use super::figures::Figures;
use crate::cost::{price, price_after_barrier};
use crate::{Algorithm, Collective, DataType, Topology};

/// Reasons for the choice of an operation's algorithm: what each would cost, and what the operation took.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// Operation, such as `all_reduce`.
    pub operation: String,
    /// Data type of its elements.
    pub data_type: DataType,
    /// Bytes of the largest vector of any rank.
    pub bytes: usize,
    /// Number of ranks.
    pub ranks: usize,
    /// Algorithm that is used.
    pub chosen: Algorithm,
    /// Algorithms that carry out the operation in the group's order, the fastest one first.
    pub candidates: Vec<Candidate>,
    /// Least time that any algorithm takes on these links.
    pub bound: Duration,
    /// Times of the calls so far, if there were any.
    pub measured: Option<Measured>,
}

/// An algorithm that could be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Predicted time until the last rank has finished, if all begin at once.
    pub predicted: Duration,
    /// Predicted time of the slowest rank in a benchmark that times each call after a barrier: ranks leave a barrier up to a message's
    /// latency apart, and the first one waits for the others.
    pub predicted_after_barrier: Duration,
}

/// Times of an operation's last calls at this rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// Number of calls.
    pub calls: usize,
    /// Time of the last one.
    pub last: Duration,
    /// Median.
    pub median: Duration,
}

/// Operation to explain, and its choice.
pub(crate) struct Question<'a> {
    pub(crate) collective: &'a Collective,
    pub(crate) data_type: DataType,
    /// Place among the reduced data types.
    pub(crate) reduced: usize,
    pub(crate) bytes: usize,
    pub(crate) chosen: Algorithm,
    /// Algorithm of the group's barriers.
    pub(crate) barrier: Algorithm,
    pub(crate) measured: Option<Measured>,
}

impl Explanation {
    pub(crate) fn new(question: Question<'_>, figures: &Figures, topology: &Topology, rules: Rules) -> Self {
        let Question { collective, data_type, reduced, bytes, chosen, barrier, measured } = question;
        let costs = figures.costs(reduced);
        let mut sizes = sizes(reduced, rules);
        sizes.element = data_type.size();
        sizes.accumulator = sizes.accumulator.max(sizes.element);
        sizes.piece = (rules.piece_bytes / sizes.element).max(1);
        let candidate = |algorithm| {
            let at_once = price(collective, algorithm, topology, sizes, &costs).ok()?;
            let after_barrier =
                price_after_barrier(collective, algorithm, barrier, topology, sizes, &costs).ok()?;
            Some(Candidate {
                algorithm,
                predicted: Duration::from_secs_f64(at_once.seconds),
                predicted_after_barrier: Duration::from_secs_f64(after_barrier.seconds),
            })
        };
        let mut candidates: Vec<Candidate> =
            algorithms(collective, topology, rules.order).filter_map(candidate).collect();
        candidates.sort_by_key(|candidate| candidate.predicted);
        Self {
            operation: collective.to_string(),
            data_type,
            bytes,
            ranks: topology.ranks(),
            chosen,
            candidates,
            bound: Duration::from_secs_f64(least_seconds(collective, bytes, figures, sizes, &costs)),
            measured,
        }
    }

    /// Predicted time of the chosen algorithm, if it has a price.
    pub fn predicted(&self) -> Option<Duration> {
        self.of_chosen().map(|candidate| candidate.predicted)
    }

    /// The chosen algorithm, if it has a price.
    pub fn of_chosen(&self) -> Option<&Candidate> {
        self.candidates.iter().find(|candidate| candidate.algorithm == self.chosen)
    }

    /// The lower bound divided by the median of the measured times: 1 if nothing could be faster.
    pub fn bound_share(&self) -> Option<f64> {
        let median = self.measured?.median.as_secs_f64();
        (median > 0.0).then(|| self.bound.as_secs_f64() / median)
    }
}

/// A table with a row for each candidate; the chosen one has a star.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, data_type, bytes, ranks, .. } = self;
        let ranks = if *ranks == 1 { "1 rank".to_owned() } else { format!("{ranks} ranks") };
        writeln!(f, "{operation} of {data_type}, {bytes} bytes, {ranks}")?;
        writeln!(f, "  {:<20} {:>14} {:>20}", "ALGORITHM", "PREDICTED (us)", "AFTER A BARRIER (us)")?;
        for Candidate { algorithm, predicted, predicted_after_barrier } in &self.candidates {
            let mark = if *algorithm == self.chosen { '*' } else { ' ' };
            let (predicted, after_barrier) = (micros(*predicted), micros(*predicted_after_barrier));
            writeln!(f, "{mark} {:<20} {predicted:>14.1} {after_barrier:>20.1}", algorithm.name())?;
        }
        writeln!(f, "  {:<20} {:>14.1}", "lower bound", micros(self.bound))?;
        if let (Some(measured), Some(share)) = (self.measured, self.bound_share()) {
            let calls =
                if measured.calls == 1 { "1 call".to_owned() } else { format!("{} calls", measured.calls) };
            let (median, last) = (micros(measured.median), micros(measured.last));
            writeln!(f, "  {:<20} {median:>14.1}", format!("measured ({calls})"))?;
            writeln!(f, "  {:<20} {last:>14.1}", "last call")?;
            writeln!(f, "  {:<20} {:>13.0}%", "share of the bound", share * 100.0)?;
        }
        Ok(())
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
