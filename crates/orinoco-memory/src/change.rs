//! Admission of a change to a running board at its peak.
//!
//! New parts are built and loaded while old ones still run, so for a while the board holds both. Parts that stay are
//! held once.

use std::fmt;

use crate::admission::{Refused, plan};
use crate::area::Area;
use crate::budget::Budget;
use crate::needs::{Domain, Needs};
use crate::plan::Plan;
use crate::suggestion::{Suggestion, suggest};
use crate::table::{area_row, table, total_rows};

/// Change from one plan to another: areas that stay, are added and are removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanChange {
    /// Plan after the change.
    pub after: Plan,
    /// Areas in both plans.
    pub kept: Vec<Area>,
    /// Areas to allocate.
    pub added: Vec<Area>,
    /// Areas to free once the added ones have taken over.
    pub removed: Vec<Area>,
    /// Bytes that building uses until the change is done, by domain.
    pub building: Vec<(Domain, u64)>,
}

/// Admits a change of a running board at its peak: everything that runs, everything that is new, and `building`, which is
/// what loading a model takes for a while and gives back. The budget is the running plan's.
///
/// An area stays where both plans have one of its kind, domain, name, revision and size. A lane's scratch that must grow
/// does not stay: no area grows in place. One that could be smaller stays where [`Needs::with_scratch`] gives its size.
/// Pure: it allocates nothing and changes nothing.
pub fn admit_change(
    running: &Plan,
    needs: &Needs,
    building: &[(Domain, u64)],
) -> Result<PlanChange, ChangeRefused> {
    let budget = running.budget;
    let after = plan(needs, budget).map_err(ChangeRefused::Needs)?;
    let change = PlanChange::between(running, after, building.to_vec());
    if budget.covers(change.peak()) {
        return Ok(change);
    }
    let peak =
        |needs: &Needs| PlanChange::between(running, Plan::of(needs, budget), building.to_vec()).peak();
    let suggestion = suggest(needs, budget, &peak);
    Err(ChangeRefused::Peak(Box::new(PeakRefused { change, suggestion })))
}

impl PlanChange {
    fn between(running: &Plan, after: Plan, building: Vec<(Domain, u64)>) -> Self {
        let is_in = |areas: &[Area], area: &Area| areas.iter().any(|other| is_same(area, other));
        let (kept, added) = after.areas.iter().cloned().partition(|area| is_in(&running.areas, area));
        let removed = running.areas.iter().filter(|area| !is_in(&after.areas, area)).cloned().collect();
        Self { after, kept, added, removed, building }
    }

    /// Returns what is held at the peak, by the parts of the budget.
    pub fn peak(&self) -> Budget {
        let areas = [&self.kept, &self.added, &self.removed].into_iter().flatten();
        let areas = areas.map(|area| (area.domain, area.bytes));
        self.after.budget.sum(areas.chain(self.building.iter().copied()))
    }
}

/// Whether an area of one plan can be reused as an area of another.
fn is_same(left: &Area, right: &Area) -> bool {
    let key = |area: &Area| (area.kind, area.domain, area.bytes);
    key(left) == key(right) && left.name == right.name && left.revision == right.revision
}

impl fmt::Display for PlanChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [("stays", &self.kept), ("added", &self.added), ("goes", &self.removed)];
        let areas = parts.into_iter().flat_map(|(what, areas)| {
            areas.iter().map(move |area| {
                let mut row = area_row(area);
                row.push(what.to_owned());
                row
            })
        });
        let building = self.after.budget.sum(self.building.iter().copied());
        let totals = [("building", building), ("peak", self.peak()), ("budget", self.after.budget)];
        let totals = totals.into_iter().flat_map(|(what, budget)| total_rows(what, budget));
        f.write_str(&table("CHANGE", areas.chain(totals)))
    }
}

/// Reason why a change is not admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeRefused {
    /// The needs do not fit the budget, with or without the running board.
    #[error(transparent)]
    Needs(Box<Refused>),
    /// The needs fit, but not in addition to the running board.
    #[error(transparent)]
    Peak(Box<PeakRefused>),
}

/// A change that fits by itself, but not in addition to what runs now. Shown as a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct PeakRefused {
    /// The change that does not fit.
    pub change: PlanChange,
    /// The smallest single change to what is wanted that fits while the rest goes on; none where no single one does.
    pub suggestion: Option<Suggestion>,
}

impl fmt::Display for PeakRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (budget, peak, after) = (self.change.after.budget, self.change.peak(), self.change.after.spent());
        writeln!(
            f,
            "the reload would exceed the memory budget while old and new are both loaded: {}",
            budget.excess_text(peak)
        )?;
        writeln!(f, "{}", self.change)?;
        if let Some(Suggestion { change, spent }) = &self.suggestion {
            writeln!(f, "the smallest change that fits: {change}; then the peak is {spent}")?;
        }
        let least = peak.whole_mebibytes();
        write!(
            f,
            "after the change the total is {after}: restart the daemon to load the new board, or set a budget of at \
             least {least}"
        )
    }
}

#[cfg(test)]
mod tests;
