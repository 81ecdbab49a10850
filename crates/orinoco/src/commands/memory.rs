//! `orinoco memory`: what a board's models and streams need, and where it would lie.

use orinoco_config::Faults;
use orinoco_core::{Diagnosis, Exit, codes};
use orinoco_memory::{Area, Domain, Span};
use orinoco_runtime::{plan_board, repository, vars};
use serde::Serialize;

use crate::args::MemoryArgs;
use crate::output::{self, EventLines};

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    budget_bytes: u64,
    total_bytes: u64,
    areas: Vec<AreaJson>,
}

#[derive(Serialize)]
struct AreaJson {
    name: String,
    kind: &'static str,
    domain: &'static str,
    offset: u64,
    bytes: u64,
    spans: Vec<SpanJson>,
}

#[derive(Serialize)]
struct SpanJson {
    name: String,
    offset: u64,
    bytes: u64,
}

pub(crate) fn run(args: &MemoryArgs, json: bool) -> Result<Exit, Faults> {
    let mut board = orinoco_board::load(&args.board, &orinoco_infer::ENGINES, &vars())?;
    board.memory = args.budget.or(board.memory);
    let place = repository(args.place.models.as_deref(), args.place.data.as_deref());
    let plan = plan_board(&board, &place, &EventLines)?;
    let (Some(plan), Some(budget_bytes)) = (plan, board.memory) else {
        let next = "write [memory] with budget = \"3 GiB\" into it, or give --budget";
        let cause = "the board file has no memory budget";
        return Err(Diagnosis::new(&codes::KEY_MISSING, args.board.display(), cause, next).into());
    };
    if json {
        let areas = plan.areas().map(|(domain, area)| area_json(domain, area)).collect();
        let (schema, total_bytes) = ("orinoco.memory/1", plan.bytes());
        output::print_json(&Report { schema, budget_bytes, total_bytes, areas });
    } else {
        output::print(&plan.to_string());
    }
    Ok(Exit::Done)
}

fn area_json(domain: Domain, area: &Area) -> AreaJson {
    let span = |span: &Span| SpanJson { name: span.name.clone(), offset: span.offset, bytes: span.bytes };
    AreaJson {
        name: area.name.clone(),
        kind: area.kind.name(),
        domain: domain.name(),
        offset: area.offset,
        bytes: area.bytes,
        spans: area.spans.iter().map(span).collect(),
    }
}
