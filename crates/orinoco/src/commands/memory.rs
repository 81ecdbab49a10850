//! `orinoco memory`: what a board's models and streams need, and what they use of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use orinoco_api::{MEMORY_SCHEMA, MemoryArea, MemoryReport, MemorySpan, MemoryUse, UncountedMemory};
use orinoco_board::Board;
use orinoco_config::Faults;
use orinoco_core::{Diagnosis, Exit, codes};
use orinoco_memory::{Area, AreaContent, Domain, Kind, Plan};
use orinoco_model::Repository;
use orinoco_pipeline::Stop;
use orinoco_runtime::{
    BoardEngines, ExistingOutputs, RunOptions, capabilities, plan_board, planned_name, repository,
    resident_bytes, start, vars,
};

use super::{RECONNECT_ATTEMPTS, frames_measured};
use crate::args::MemoryArgs;
use crate::output::{self, EventLines};

pub(crate) fn run(args: &MemoryArgs, json: bool) -> Result<Exit, Faults> {
    let mut board = orinoco_board::load(&args.board, &capabilities(), &vars())?;
    board.memory = args.budget.or(board.memory);
    board.inference.shared_scratch = board.memory.is_some();
    let place = repository(args.place.models.as_deref(), args.place.data.as_deref());
    let engines = BoardEngines::new(&board.inference)?;
    let plan = plan_board(&board, &engines, &place, &EventLines, &Stop::default())?;
    let (Some(plan), Some(budget_bytes)) = (plan, board.memory) else {
        let next = "write [memory] with budget = \"3 GiB\" into it, or give --budget";
        let cause = "the board file has no memory budget";
        return Err(Diagnosis::new(&codes::KEY_MISSING, args.board.display(), cause, next).into());
    };
    let used = args.frames.map(|frames| use_memory(board, &engines, &place, frames)).transpose()?;
    if json {
        let (schema, total_bytes, areas) = (MEMORY_SCHEMA.to_owned(), plan.bytes(), areas_json(&plan));
        let uncounted =
            plan.uncounted.into_iter().map(|memory| UncountedMemory { name: memory.name, what: memory.what });
        let uncounted = uncounted.collect();
        output::print_json(&MemoryReport { schema, budget_bytes, total_bytes, areas, uncounted, used });
    } else {
        output::print(&plan.to_string());
        used.iter().for_each(|used| output::print(&format!("\n{}", used_text(&plan, used))));
    }
    Ok(Exit::Done)
}

/// Runs the board without its outputs.
fn use_memory(
    mut board: Board,
    engines: &BoardEngines,
    place: &Repository,
    frames: u64,
) -> Result<MemoryUse, Faults> {
    for stream in &mut board.streams {
        stream.sinks.clear();
        stream.frames_max = Some(frames);
        stream.reconnect_attempts.get_or_insert(RECONNECT_ATTEMPTS);
    }
    // The engines' libraries are code, which no plan counts.
    for engine in engines.order.engines() {
        let _ = engine.check(&engines.context);
    }
    let before = resident_bytes();
    let mut options = RunOptions::new(place, Arc::new(EventLines));
    options.earlier = ExistingOutputs::Kept;
    let running = start(board, options)?;
    let bound = running.prepared_bytes();
    let summary = running.wait(|_| ());
    let frames = frames_measured(&summary)? as u64;
    let planned = summary.memory.planned.expect("a board with a budget was planned");
    let in_lanes: u64 = planned.lanes.iter().map(|lane| lane.used_bytes - lane.used_on_device_bytes).sum();
    Ok(MemoryUse {
        frames,
        models_bytes: bound.saturating_sub(before),
        streams_bytes: summary.memory.end_bytes.saturating_sub(bound + in_lanes),
        lanes: planned.lanes,
    })
}

fn used_text(plan: &Plan, used: &MemoryUse) -> String {
    let row = |name: &str, kind: &str, planned: Option<u64>, used: u64| {
        let planned = planned.map_or_else(|| "-".to_owned(), output::mebibytes);
        vec![name.to_owned(), kind.to_owned(), planned, output::mebibytes(used)]
    };
    let of_host = |kind| {
        let areas = plan.areas.iter().filter(|area| area.domain != Domain::Device && area.kind == kind);
        areas.map(|area| area.bytes).sum::<u64>()
    };
    let kept = of_host(Kind::Weights) + of_host(Kind::Io);
    let mut rows = vec![row("models", "host; used includes the engine", Some(kept), used.models_bytes)];
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
    rows.push(row("streams", "frames; used includes decoders", Some(frames), used.streams_bytes));
    let heading = format!("used after {}", output::count(used.frames, "frame"));
    format!("{heading}\n{}", output::table(&["NAME", "KIND", "PLANNED", "USED"], 2, rows))
}

/// Every area. Offsets are those of rows one after another in their domain, and are here because version 1 has them: the
/// plan knows sizes only, and each area is mapped by itself.
fn areas_json(plan: &Plan) -> Vec<MemoryArea> {
    let mut ends = BTreeMap::new();
    let areas = plan.areas.iter().map(|area| {
        let end = ends.entry(area.domain).or_insert(0);
        let offset = *end;
        *end += area.bytes;
        MemoryArea {
            name: area.name.clone(),
            kind: area.kind.name().to_owned(),
            domain: area.domain.name().to_owned(),
            offset,
            bytes: area.bytes,
            basis: area.kind.basis().name().to_owned(),
            spans: spans_json(area, offset),
        }
    });
    areas.collect()
}

/// Parts of an area that begins at `offset`. The models of a lane all begin where its scratch does.
fn spans_json(area: &Area, mut offset: u64) -> Vec<MemorySpan> {
    let spans = area.shares.iter().map(|share| {
        let AreaContent { name, bytes } = share.clone();
        let span = MemorySpan { name, offset, bytes };
        if area.kind != Kind::Scratch {
            offset += share.counted_bytes();
        }
        span
    });
    spans.collect()
}
