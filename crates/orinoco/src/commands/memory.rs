//! `orinoco memory`: what a board's models and streams need, where it would lie, and what they use of it.

use std::sync::Arc;

use orinoco_api::LaneMemory;
use orinoco_board::Board;
use orinoco_config::Faults;
use orinoco_core::{Diagnosis, Exit, codes};
use orinoco_infer::{Options, by_name};
use orinoco_memory::{Area, Domain, Kind, Plan, Span};
use orinoco_model::Repository;
use orinoco_pipeline::Stop;
use orinoco_runtime::{
    Earlier, RunOptions, plan_board, planned_name, repository, resident_bytes, start, vars,
};
use serde::Serialize;

use super::{RECONNECT_ATTEMPTS, frames_measured};
use crate::args::MemoryArgs;
use crate::output::{self, EventLines};

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    budget_bytes: u64,
    total_bytes: u64,
    areas: Vec<AreaJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    used: Option<Used>,
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

/// What a run used. Models and streams are told by what the process has grown, which is the host's memory alone.
#[derive(Serialize)]
struct Used {
    /// Of all streams.
    frames: u64,
    /// While models were loaded and bound, with what an engine sets up once for all of them.
    models_bytes: u64,
    lanes: Vec<LaneMemory>,
    /// From then to the end, without the lanes' areas: frames, and what decoders take for themselves.
    streams_bytes: u64,
}

pub(crate) fn run(args: &MemoryArgs, json: bool) -> Result<Exit, Faults> {
    let mut board = orinoco_board::load(&args.board, &orinoco_infer::ENGINES, &vars())?;
    board.memory = args.budget.or(board.memory);
    board.inference.shared_scratch = board.memory.is_some();
    let place = repository(args.place.models.as_deref(), args.place.data.as_deref());
    let plan = plan_board(&board, &place, &EventLines, &Stop::default())?;
    let (Some(plan), Some(budget_bytes)) = (plan, board.memory) else {
        let next = "write [memory] with budget = \"3 GiB\" into it, or give --budget";
        let cause = "the board file has no memory budget";
        return Err(Diagnosis::new(&codes::KEY_MISSING, args.board.display(), cause, next).into());
    };
    let used = args.frames.map(|frames| use_memory(board, &place, frames)).transpose()?;
    if json {
        let areas = plan.areas().map(|(domain, area)| area_json(domain, area)).collect();
        let (schema, total_bytes) = ("orinoco.memory/1", plan.bytes());
        output::print_json(&Report { schema, budget_bytes, total_bytes, areas, used });
    } else {
        output::print(&plan.to_string());
        used.iter().for_each(|used| output::print(&format!("\n{}", used_text(&plan, used))));
    }
    Ok(Exit::Done)
}

/// Runs the board without its outputs.
fn use_memory(mut board: Board, place: &Repository, frames: u64) -> Result<Used, Faults> {
    for stream in &mut board.streams {
        stream.sinks.clear();
        stream.frames_max = Some(frames);
        stream.reconnect_attempts.get_or_insert(RECONNECT_ATTEMPTS);
    }
    // The engines' libraries are code, which no plan counts.
    let options = Options { ort_library: board.inference.ort_library.clone(), ..Options::default() };
    for name in &board.inference.engines {
        let _ = by_name(name)?.check(&options);
    }
    let before = resident_bytes();
    let mut options = RunOptions::new(place, Arc::new(EventLines));
    options.earlier = Earlier::Kept;
    let running = start(board, options)?;
    let bound = running.prepared_bytes();
    let summary = running.wait(|_| ());
    let frames = frames_measured(&summary)? as u64;
    let planned = summary.memory.planned.expect("a board with a budget was planned");
    let in_lanes: u64 = planned.lanes.iter().map(|lane| lane.used_bytes - lane.used_on_device_bytes).sum();
    Ok(Used {
        frames,
        models_bytes: bound.saturating_sub(before),
        streams_bytes: summary.memory.end_bytes.saturating_sub(bound + in_lanes),
        lanes: planned.lanes,
    })
}

fn used_text(plan: &Plan, used: &Used) -> String {
    let row = |name: &str, kind: &str, planned: Option<u64>, used: u64| {
        let planned = planned.map_or_else(|| "-".to_owned(), output::mebibytes);
        vec![name.to_owned(), kind.to_owned(), planned, output::mebibytes(used)]
    };
    let of_host = |kind| {
        let areas = plan.areas().filter(|(domain, area)| *domain != Domain::Device && area.kind == kind);
        areas.map(|(_, area)| area.bytes).sum::<u64>()
    };
    let kept = of_host(Kind::Weights) + of_host(Kind::Io);
    let mut rows = vec![row("models", "on the host; used: with the engine", Some(kept), used.models_bytes)];
    let shares = plan.models();
    for (index, lane) in used.lanes.iter().enumerate() {
        rows.push(row(&format!("lane {index}"), "scratch", Some(lane.scratch_bytes), lane.used_bytes));
        for model in &lane.models {
            let planned = shares.get(planned_name(&model.model, index).as_str()).map(|share| share.scratch);
            rows.push(row(&format!("  {}", model.model), "", planned, model.used_bytes));
        }
        if lane.outside > 0 {
            rows.push(vec![String::new(), output::no_room(lane.outside), String::new(), String::new()]);
        }
    }
    let frames = of_host(Kind::Frames);
    rows.push(row("streams", "frames; used: with decoders", Some(frames), used.streams_bytes));
    let heading = format!("used by {}", output::count(used.frames, "frame"));
    format!("{heading}\n{}", output::table(&["NAME", "KIND", "PLANNED", "USED"], 2, rows))
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
