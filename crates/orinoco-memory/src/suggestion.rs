//! Search for the smallest single change that makes a board's needs fit its budget.
//!
//! Changes are ordered by harm. A shorter ring costs frames in a burst; results stay the same. A smaller batch costs
//! throughput. A model on a busier lane makes every model there wait. A removed model is missing. The suggestion is of
//! the first kind that has a change which fits, and of that kind the smallest.

use std::cmp::Reverse;
use std::fmt;

use crate::budget::Budget;
use crate::needs::Needs;
use crate::plan::Plan;

/// Minimum capacity of a ring that is suggested: one frame is filled while another is read.
pub const FRAMES_MIN: u32 = 2;

/// Single change to the needs of a board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Shortens the ring of a stream.
    Frames {
        /// Name of the stream.
        stream: String,
        /// Capacity of the ring now, in frames.
        from: u32,
        /// Largest capacity that fits, in frames.
        to: u32,
    },
    /// Reduces the batch size of a model.
    Batch {
        /// Name of the model.
        model: String,
        /// Batch size now.
        from: u32,
        /// Largest batch size that fits.
        to: u32,
    },
    /// Moves a model to another lane, whose scratch it then shares.
    Lane {
        /// Name of the model.
        model: String,
        /// Lane of the model now.
        from: usize,
        /// Lane that it would share.
        to: usize,
    },
    /// Removes a model.
    Drop {
        /// Name of the model.
        model: String,
    },
}

impl Change {
    /// Returns the needs after the change. The names in the change must exist in them.
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
                write!(f, "set queue_frames of stream `{stream}` to {to} instead of {from}")
            }
            Self::Batch { model, from, to } => {
                write!(f, "run model `{model}` with a batch of {to} instead of {from}")
            }
            Self::Lane { model, from, to } => write!(f, "move model `{model}` from lane {from} to lane {to}"),
            Self::Drop { model } => write!(f, "remove model `{model}`"),
        }
    }
}

/// Change that fits the budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// Suggested change.
    pub change: Change,
    /// Bytes that everything takes after it.
    pub spent: Budget,
}

/// Finds the least harmful change that fits `budget`, where `spent` gives what needs take of it.
pub(crate) fn suggest(needs: &Needs, budget: Budget, spent: &dyn Fn(&Needs) -> Budget) -> Option<Suggestion> {
    let fits = |change: &Change| budget.covers(spent(&change.apply(needs)));
    let change = shorter_ring(needs, &fits)
        .or_else(|| smaller_batch(needs, &fits))
        .or_else(|| busier_lane(needs, &fits))
        .or_else(|| fewer_models(needs, budget, &fits))?;
    let spent = spent(&change.apply(needs));
    Some(Suggestion { change, spent })
}

/// Whether the needs fit after a change.
type Fits<'a> = &'a dyn Fn(&Change) -> bool;

/// Returns the shorter ring that loses the smallest share of its frames; among equal ones the first by name.
fn shorter_ring(needs: &Needs, fits: Fits<'_>) -> Option<Change> {
    let changes = needs.streams().iter().filter_map(|stream| {
        let (stream, from) = (&stream.name, stream.queue_frames);
        let change = |to| Change::Frames { stream: stream.clone(), from, to };
        let to = most(FRAMES_MIN..from, |to| fits(&change(to)))?;
        Some((change(to), share_lost(from, to)))
    });
    changes.min_by_key(|(_, lost)| *lost).map(|(change, _)| change)
}

/// Returns the smaller batch that loses the smallest share of its items; among equal ones the first by name.
fn smaller_batch(needs: &Needs, fits: Fits<'_>) -> Option<Change> {
    let changes = needs.models().iter().filter_map(|model| {
        let (model, from) = (&model.name, model.batch);
        let change = |to| Change::Batch { model: model.clone(), from, to };
        let to = most(1..from, |to| fits(&change(to)))?;
        Some((change(to), share_lost(from, to)))
    });
    changes.min_by_key(|(_, lost)| *lost).map(|(change, _)| change)
}

/// Returns the move to the lane with the fewest models; among equal ones the first by model, then by lane. Moves to an
/// empty lane are left out, because nothing is shared there.
fn busier_lane(needs: &Needs, fits: Fits<'_>) -> Option<Change> {
    let on = |lane| needs.models().iter().filter(|model| model.lane == lane).count();
    let changes = needs.models().iter().flat_map(|model| {
        let others = (0..needs.lanes()).filter(|lane| *lane != model.lane && on(*lane) > 0);
        others.map(|to| Change::Lane { model: model.name.clone(), from: model.lane, to })
    });
    let fitting = changes.filter(|change| fits(change));
    fitting.min_by_key(|change| if let Change::Lane { to, .. } = change { on(*to) } else { usize::MAX })
}

/// Returns the removal that frees the fewest bytes; among equal ones the first by name. The only model is never
/// suggested, because a board without models has nothing to do.
fn fewer_models(needs: &Needs, budget: Budget, fits: Fits<'_>) -> Option<Change> {
    let changes = needs.models().iter().map(|model| Change::Drop { model: model.name.clone() });
    let fitting = changes.filter(|change| needs.models().len() > 1 && fits(change));
    // The removal that frees the fewest bytes leaves the most.
    fitting.min_by_key(|change| Reverse(Plan::of(&change.apply(needs), budget).bytes()))
}

/// Returns the greatest number of the range that fits. Every smaller number fits too, because sizes never shrink when a
/// batch or a ring grows.
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

/// Returns the share lost from `from` to `to`, as a fraction of 2³².
fn share_lost(from: u32, to: u32) -> u64 {
    (u64::from(from - to) << 32) / u64::from(from)
}
