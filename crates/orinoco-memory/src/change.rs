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

/// Admits a change of a running board at its peak: everything that runs, everything new, and `building`, the bytes that
/// an engine's build uses itself. The budget is that of the running plan.
///
/// An area stays where both plans have one of its kind, domain, name, revision and size. A lane's scratch that must
/// grow does not stay: no area grows in place. Pure: it allocates nothing and changes nothing.
pub fn admit_change(
    running: &Plan,
    needs: &Needs,
    building: &[(Domain, u64)],
) -> Result<PlanChange, ChangeRefused> {
    let after = plan(needs, running.budget).map_err(ChangeRefused::Needs)?;
    let change = PlanChange::between(running, after, building.to_vec());
    let fits = running.budget.covers(change.peak());
    if fits { Ok(change) } else { Err(ChangeRefused::Peak(Box::new(change))) }
}

impl PlanChange {
    fn between(running: &Plan, after: Plan, building: Vec<(Domain, u64)>) -> Self {
        let is_in = |areas: &[Area], area: &Area| areas.iter().any(|other| is_same(area, other));
        let (kept, added) = after.areas.iter().cloned().partition(|area| is_in(&running.areas, area));
        let removed = running.areas.iter().filter(|area| !is_in(&after.areas, area)).cloned().collect();
        Self { after, kept, added, removed, building }
    }

    /// Returns the memory in use at the peak, by the parts of the budget.
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
    #[error("{}", peak_text(.0))]
    Peak(Box<PlanChange>),
}

fn peak_text(change: &PlanChange) -> String {
    let (budget, peak) = (change.after.budget, change.peak());
    let excess = budget.excess_text(peak);
    let (after, least) = (change.after.spent(), peak.whole_mebibytes());
    format!(
        "the change exceeds the memory budget at its peak: {excess}\n{change}\nafter the change the total is {after}: \
         restart to load it, or set a budget of at least {least}"
    )
}

#[cfg(test)]
mod tests;
