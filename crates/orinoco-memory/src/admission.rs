//! Admission: checks that the needs of a board fit its budget, and suggests a change if they do not.

use std::fmt;

use crate::budget::Budget;
use crate::needs::Needs;
use crate::plan::{BASIS, Plan};
use crate::suggestion::{Suggestion, suggest};
use crate::table::{table, total_rows};

/// Sums up the needs into a plan, or refuses them with a table and a suggestion. Pure: equal needs give equal plans.
pub fn plan(needs: &Needs, budget: Budget) -> Result<Plan, Box<Refused>> {
    let plan = Plan::of(needs, budget);
    if budget.covers(plan.spent()) {
        return Ok(plan);
    }
    Err(Box::new(Refused { plan, suggestion: suggest(needs, budget) }))
}

/// Needs that exceed the budget. The display form is a table of the planned areas.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Refused {
    /// Plan that does not fit.
    pub plan: Plan,
    /// Smallest single change that fits; `None` where no single change is enough.
    pub suggestion: Option<Suggestion>,
}

impl Refused {
    /// Returns the bytes over budget, for each part of the budget.
    pub fn excess(&self) -> Budget {
        self.plan.budget.excess(self.plan.spent())
    }

    /// Returns the smallest budget that the unchanged needs fit in.
    pub fn budget_min(&self) -> Budget {
        self.plan.spent()
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (spent, budget) = (self.plan.spent(), self.plan.budget);
        writeln!(f, "the memory budget is exceeded: {}", budget.excess_text(spent))?;
        let totals = [("total", spent), ("budget", budget), ("too many", self.excess())];
        let totals = totals.into_iter().flat_map(|(what, budget)| total_rows(what, budget));
        writeln!(f, "{}", table(BASIS, self.plan.rows().chain(totals)))?;
        match &self.suggestion {
            Some(Suggestion { change, spent }) => {
                write!(f, "the smallest change that fits: {change}; then the total is {spent}")
            }
            None => {
                let least = self.budget_min().whole_mebibytes();
                write!(f, "no single change fits; the smallest sufficient budget is {least}")
            }
        }
    }
}

#[cfg(test)]
mod tests;
