//! Whether a board fits its budget, and if not, what would.

use std::fmt;

use crate::budget::Budget;
use crate::needs::Needs;
use crate::plan::{BASIS, Plan};
use crate::suggestion::{Suggestion, suggest};
use crate::table::{table, total_rows};

/// Adds up the needs, or reports what does not fit and what would. Pure: equal needs give equal plans.
pub fn plan(needs: &Needs, budget: Budget) -> Result<Plan, Box<Refused>> {
    let plan = Plan::of(needs, budget);
    if budget.covers(plan.spent()) {
        return Ok(plan);
    }
    Err(Box::new(Refused { plan, suggestion: suggest(needs, budget) }))
}

/// Needs that are more than the budget. Shown as a table of what needs what.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Refused {
    /// What was planned, and does not fit.
    pub plan: Plan,
    /// The smallest single change that fits; none where no single one does.
    pub suggestion: Option<Suggestion>,
}

impl Refused {
    /// How many bytes are too many, by the parts of the budget.
    pub fn excess(&self) -> Budget {
        self.plan.budget.excess(self.plan.spent())
    }

    /// The least budget that everything fits in as it is.
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
                write!(f, "no single change fits; the least budget that does: {least}")
            }
        }
    }
}

#[cfg(test)]
mod tests;
