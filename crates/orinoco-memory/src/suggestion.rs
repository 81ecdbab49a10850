//! The smallest single change to a board's needs that fits its budget.
//!
//! Changes are ordered by harm. A shorter ring costs frames in a burst, and computes the same as before. A smaller batch
//! costs throughput. A model on a busier lane makes every model there wait. A model left out is missing. The first kind
//! that has a change which fits is the one suggested, and of that kind the smallest.

use std::cmp::Reverse;
use std::fmt;

use orinoco_core::text::count;

use crate::budget::Budget;
use crate::needs::Needs;
use crate::plan::Plan;

/// The shortest ring that is suggested: one frame is filled while another is read.
pub const FRAMES_MIN: u32 = 2;

/// One change to the needs of a board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A shorter ring.
    Frames {
        /// The stream.
        stream: String,
        /// Frames that may wait now.
        from: u32,
        /// Frames that would fit: the most that do.
        to: u32,
    },
    /// A smaller batch.
    Batch {
        /// The model.
        model: String,
        /// Items now.
        from: u32,
        /// Items that would fit: the most that do.
        to: u32,
    },
    /// Another lane, whose scratch it shares.
    Lane {
        /// The model.
        model: String,
        /// Its lane now.
        from: usize,
        /// The lane it would share.
        to: usize,
    },
    /// One model fewer.
    Drop {
        /// The model.
        model: String,
    },
}

impl Change {
    /// The needs after the change, which must be one of theirs.
    pub fn apply(&self, needs: &Needs) -> Needs {
        match self {
            Self::Frames { stream, to, .. } => needs.with_ring(stream, *to),
            Self::Batch { model, to, .. } => needs.with_model(model, |model| model.batch = *to),
            Self::Lane { model, to, .. } => needs.with_model(model, |model| model.lane = *to),
            Self::Drop { model } => needs.without_model(model),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frames { stream, from, to } => {
                write!(
                    f,
                    "give stream `{stream}` a ring of {} instead of {from}",
                    count(u64::from(*to), "frame")
                )
            }
            Self::Batch { model, from, to } => {
                write!(f, "run model `{model}` with a batch of {to} instead of {from}")
            }
            Self::Lane { model, from, to } => write!(f, "move model `{model}` from lane {from} to lane {to}"),
            Self::Drop { model } => write!(f, "leave out model `{model}`"),
        }
    }
}

/// A change that fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// The change.
    pub change: Change,
    /// What the plan takes after it.
    pub spent: Budget,
}

/// The least harmful change that fits.
pub(crate) fn suggest(needs: &Needs, budget: Budget) -> Option<Suggestion> {
    let change = shorter_ring(needs, budget)
        .or_else(|| smaller_batch(needs, budget))
        .or_else(|| busier_lane(needs, budget))
        .or_else(|| fewer_models(needs, budget))?;
    let spent = Plan::of(&change.apply(needs), budget).spent();
    Some(Suggestion { change, spent })
}

/// The ring that loses the smallest share of its frames; of equal ones the first by name.
fn shorter_ring(needs: &Needs, budget: Budget) -> Option<Change> {
    let changes = needs.streams().iter().filter_map(|stream| {
        let (stream, from) = (&stream.name, stream.queue_frames);
        let change = |to| Change::Frames { stream: stream.clone(), from, to };
        let to = most(FRAMES_MIN..from, |to| fits(needs, budget, &change(to)))?;
        Some((change(to), share_lost(from, to)))
    });
    changes.min_by_key(|(_, lost)| *lost).map(|(change, _)| change)
}

/// The batch that loses the smallest share of its items; of equal ones the first by name.
fn smaller_batch(needs: &Needs, budget: Budget) -> Option<Change> {
    let changes = needs.models().iter().filter_map(|model| {
        let (model, from) = (&model.name, model.batch);
        let change = |to| Change::Batch { model: model.clone(), from, to };
        let to = most(1..from, |to| fits(needs, budget, &change(to)))?;
        Some((change(to), share_lost(from, to)))
    });
    changes.min_by_key(|(_, lost)| *lost).map(|(change, _)| change)
}

/// The move to the lane with the fewest models; of equal ones the first by model, then by lane. An empty lane is none:
/// nothing is shared there.
fn busier_lane(needs: &Needs, budget: Budget) -> Option<Change> {
    let on = |lane| needs.models().iter().filter(|model| model.lane == lane).count();
    let changes = needs.models().iter().flat_map(|model| {
        let others = (0..needs.lanes()).filter(|lane| *lane != model.lane && on(*lane) > 0);
        others.map(|to| Change::Lane { model: model.name.clone(), from: model.lane, to })
    });
    let fitting = changes.filter(|change| fits(needs, budget, change));
    fitting.min_by_key(|change| if let Change::Lane { to, .. } = change { on(*to) } else { usize::MAX })
}

/// The model whose absence gives back the fewest bytes; of equal ones the first by name. The only model is never
/// suggested: a board without models has nothing to do.
fn fewer_models(needs: &Needs, budget: Budget) -> Option<Change> {
    let changes = needs.models().iter().map(|model| Change::Drop { model: model.name.clone() });
    let fitting = changes.filter(|change| needs.models().len() > 1 && fits(needs, budget, change));
    // The fewest given back leave the most.
    fitting.min_by_key(|change| Reverse(Plan::of(&change.apply(needs), budget).bytes()))
}

fn fits(needs: &Needs, budget: Budget, change: &Change) -> bool {
    budget.covers(Plan::of(&change.apply(needs), budget).spent())
}

/// The greatest number of the range that fits, where every smaller one fits too: bytes never shrink while a batch or a
/// ring grows.
fn most(range: std::ops::Range<u32>, fits: impl Fn(u32) -> bool) -> Option<u32> {
    if range.is_empty() || !fits(range.start) {
        return None;
    }
    // `low` fits, and `high` does not or is past the end.
    let (mut low, mut high) = (range.start, range.end);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle }
    }
    Some(low)
}

/// The share lost on the way from `from` to `to`, as a fraction of 2³².
fn share_lost(from: u32, to: u32) -> u64 {
    (u64::from(from - to) << 32) / u64::from(from)
}
