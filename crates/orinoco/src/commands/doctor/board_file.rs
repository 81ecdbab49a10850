//! Whether a board file can run here: its models on an engine, its sources, its sinks, its memory plan, and at last all of it
//! together for one frame.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use orinoco_api::{BoardFileVerdict, MachinePart, PartState, Summary};
use orinoco_board::{Board, BoardModel, BoardStream};
use orinoco_config::Faults;
use orinoco_core::text::{count, mebibytes};
use orinoco_core::{Clock, Diagnosis};
use orinoco_model::Repository;
use orinoco_pipeline::Stop;
use orinoco_runtime::{
    BoardEngines, ExistingOutputs, Quiet, RunOptions, capabilities, check_references, check_sinks, faults_of,
    load_model, plan_board, start, vars,
};
use orinoco_uri::SourceKind;

use super::advice::System;
use super::check::{Fix, Group, part, with_fix};
use super::{cluster, engines, governor, otlp, sources};

/// Longest time of the trial: models are loaded, and each source gives a frame.
const TRIAL_MAX: Duration = Duration::from_secs(60);

/// Machine on which a board file is checked.
pub(super) struct Checker<'a> {
    pub(super) repository: &'a Repository,
    pub(super) system: &'a System,
    pub(super) clock: &'a Arc<dyn Clock>,
    /// Memory that programs can get, in bytes; `None` if it is not known.
    pub(super) available: Option<u64>,
    /// Parts of the machine, of which some correct what a source needs.
    pub(super) known: &'a [MachinePart],
}

impl Checker<'_> {
    /// Checks a board file. A file that is faulty wherever it runs is an error.
    pub(super) fn check(&self, path: &Path) -> Result<(BoardFileVerdict, Vec<MachinePart>), Faults> {
        let board = orinoco_board::load(path, &capabilities(), &vars());
        let board = board.map_err(|error| faults_of(error, self.repository))?;
        check_references(&board, self.repository)?;
        let engines = BoardEngines::new(&board.inference)?;
        let mut parts: Vec<MachinePart> =
            board.models.iter().map(|model| self.model(model, &board, &engines)).collect();
        parts.extend(board.streams.iter().map(|stream| self.stream(stream)));
        parts.extend(self.sinks(&board));
        parts.extend(board.cluster.iter().flat_map(|spec| cluster::check(spec, self.clock)));
        let otlp = board.otlp.iter().flat_map(|spec| otlp::check(spec, &|name| std::env::var(name).ok()));
        // A collector may be away; wrong settings keep the daemon from starting.
        let (wrong, collectors): (Vec<_>, Vec<_>) = otlp.partition(|part| part.state == PartState::Broken);
        parts.extend(wrong);
        // Without its helper a board runs ungoverned, so this keeps none from running.
        let governor = board.governor.as_ref().filter(|spec| spec.needs_helper());
        let governor = governor.map(|spec| governor::check(spec, self.system));
        let is_fine = |parts: &[MachinePart]| !parts.iter().any(is_fault);
        parts.push(match is_fine(&parts) {
            true => self.plan(&board, &engines),
            false => skipped("plan", "memory", "a check above failed"),
        });
        parts.push(match is_fine(&parts) {
            true => self.trial(&board),
            false => skipped("trial", "one frame", "a check above failed"),
        });
        let can_run = is_fine(&parts);
        parts.extend(collectors);
        parts.extend(governor);
        let verdict = BoardFileVerdict { file: path.display().to_string(), board: board.name, can_run };
        Ok((verdict, parts))
    }

    /// Loads a model, on the first engine that computes it.
    fn model(&self, model: &BoardModel, board: &Board, engines: &BoardEngines) -> MachinePart {
        match load_model(model, engines, self.repository, &Quiet) {
            Ok(loaded) => {
                let refused = loaded.chosen.refused.iter();
                let refused = refused.map(|refused| format!("; {} refused: {}", refused.engine, refused.why));
                let says = format!(
                    "{} {}{}",
                    loaded.chosen.name,
                    loaded.chosen.version,
                    refused.collect::<String>()
                );
                report("model", &model.name, PartState::Ok, says)
            }
            Err(faults) => {
                let fault = faults.first();
                let part = report("model", &model.name, PartState::Broken, cause(fault));
                with_fix(part, self.engine_fix(board, engines).unwrap_or_else(|| Fix::words(&fault.next)))
            }
        }
    }

    /// Returns the correction for the first engine of the board that cannot run here, if one is known.
    fn engine_fix(&self, board: &Board, engines: &BoardEngines) -> Option<Fix> {
        let refused = engines.order.engines().find(|engine| engine.check(&engines.context).is_err())?;
        if let Some(library) = &board.inference.ort_library {
            let next =
                format!("correct or remove `ort_library = \"{}\"` in the board file", library.display());
            return Some(Fix::words(next));
        }
        Some(engines::fix(refused, &engines.context, self.system)).filter(|fix| *fix != Fix::default())
    }

    /// Takes the first frame of a stream's source.
    fn stream(&self, stream: &BoardStream) -> MachinePart {
        if matches!(stream.source.kind(), SourceKind::Stdin(_)) {
            return skipped("stream", &stream.name, "standard input would be used up");
        }
        if matches!(stream.source.kind(), SourceKind::Cluster) {
            return skipped("stream", &stream.name, "its images come from other boards of the cluster");
        }
        match sources::first_frame(&stream.source, self.clock) {
            Ok(frame) => report("stream", &stream.name, PartState::Ok, format!("{}: {frame}", stream.source)),
            Err(fault) => {
                let part = report("stream", &stream.name, PartState::Broken, cause(&fault));
                with_fix(
                    part,
                    self.device_fix(&stream.source.to_string()).unwrap_or_else(|| Fix::words(fault.next)),
                )
            }
        }
    }

    /// Returns the correction for the device node that a source names, if the user may not open it.
    fn device_fix(&self, source: &str) -> Option<Fix> {
        let is_it =
            |part: &&MachinePart| part.kind == "device" && is_fault(part) && source.contains(&part.name);
        let denied = self.known.iter().find(is_it)?;
        Some(Fix { commands: denied.fix.clone(), next: denied.next.clone() })
    }

    /// Opens the sinks of each stream, and leaves no file behind.
    fn sinks(&self, board: &Board) -> Vec<MachinePart> {
        let results = board.streams.iter().zip(check_sinks(board, self.repository));
        let sinks = results.filter(|(stream, _)| !stream.sinks.is_empty()).map(|(stream, result)| {
            let paths: Vec<String> =
                stream.sinks.iter().map(|sink| sink.path.display().to_string()).collect();
            match result {
                Ok(()) => report("sink", &stream.name, PartState::Ok, paths.join(", ")),
                Err(fault) => {
                    let part = report("sink", &stream.name, PartState::Broken, cause(&fault));
                    with_fix(part, Fix::words(fault.next))
                }
            }
        });
        sinks.collect()
    }

    /// Plans the memory, and compares the plan with what the machine has.
    fn plan(&self, board: &Board, engines: &BoardEngines) -> MachinePart {
        let planned = plan_board(board, engines, self.repository, &Quiet, &Stop::default());
        let plan = match planned {
            Ok(Some(plan)) => plan,
            Ok(None) => return skipped("plan", "memory", "the board file has no memory budget"),
            Err(faults) => {
                let part = report("plan", "memory", PartState::Broken, cause(faults.first()));
                return with_fix(part, Fix::words(&faults.first().next));
            }
        };
        let needed = plan.bytes();
        let budget = mebibytes(board.memory.expect("a plan has a budget"));
        let says = format!("{} of the budget of {budget}", mebibytes(needed));
        match self.available {
            Some(available) if needed > available => {
                let says = format!("{} needed, {} available", mebibytes(needed), mebibytes(available));
                let next = "free some memory, or use fewer or smaller models";
                with_fix(report("plan", "memory", PartState::Broken, says), Fix::words(next))
            }
            _ => report("plan", "memory", PartState::Ok, says),
        }
    }

    /// Runs the board without its outputs for one frame of each stream.
    fn trial(&self, board: &Board) -> MachinePart {
        let mut trial = board.clone();
        trial
            .streams
            .retain(|stream| !matches!(stream.source.kind(), SourceKind::Stdin(_) | SourceKind::Cluster));
        if trial.streams.is_empty() {
            return skipped("trial", "one frame", "no stream has a source that may be tried");
        }
        for stream in &mut trial.streams {
            stream.sinks.clear();
            stream.frames_max = Some(1);
            stream.reconnect_attempts = Some(1);
        }
        let mut options = RunOptions::new(self.repository, Arc::new(Quiet));
        options.earlier = ExistingOutputs::Kept;
        let control = options.control.clone();
        let summary = start(trial, options).map(|running| {
            running.wait(|progress| {
                if progress.elapsed > TRIAL_MAX {
                    control.stop()
                }
            })
        });
        match summary {
            Ok(summary) => trial_part(&summary),
            Err(faults) => {
                let part = report("trial", "one frame", PartState::Broken, cause(faults.first()));
                with_fix(part, Fix::words(&faults.first().next))
            }
        }
    }
}

fn trial_part(summary: &Summary) -> MachinePart {
    if let Some(fault) = summary.faults.first() {
        let part =
            report("trial", "one frame", PartState::Broken, format!("{}: {}", fault.subject, fault.cause));
        return with_fix(part, Fix::words(&fault.next));
    }
    if let Some(stream) = summary.streams.iter().find(|stream| stream.frames_out == 0) {
        let says = format!("stream {}: no frame within {} s", stream.name, TRIAL_MAX.as_secs());
        return report("trial", "one frame", PartState::Broken, says);
    }
    let streams = count(summary.streams.len() as u64, "stream");
    report("trial", "one frame", PartState::Ok, format!("{streams}, {} ms", (summary.wall_s * 1e3).round()))
}

fn report(kind: &str, name: &str, state: PartState, says: impl Into<String>) -> MachinePart {
    part(Group::BoardFile, kind, name, state, says)
}

fn skipped(kind: &str, name: &str, why: &str) -> MachinePart {
    report(kind, name, PartState::NotChecked, why)
}

/// Returns whether a part keeps the board file from running.
fn is_fault(part: &MachinePart) -> bool {
    matches!(part.state, PartState::Missing | PartState::Broken)
}

fn cause(fault: &Diagnosis) -> String {
    format!("{}: {}", fault.subject, fault.cause)
}
