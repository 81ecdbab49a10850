//! `orinoco doctor`: the board, its engines, sources and sensors, each used once, with the reasons why others cannot be used and
//! the commands that fix it. With a board file: whether that can run here.

mod advice;
mod board;
mod board_file;
mod check;
mod cluster;
mod engines;
mod governor;
mod machine;
mod otlp;
mod sensors;
mod sources;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use orinoco_api::{BoardFileVerdict, DOCTOR_SCHEMA, DoctorReport, MachinePart, PartState};
use orinoco_board::Detection;
use orinoco_board::readers::{Sensors, Snapshot};
use orinoco_config::Faults;
use orinoco_core::{Clock, Diagnosis, Exit, WithSubject, codes};
use orinoco_infer::EngineContext;
use orinoco_pipeline::MonotonicClock;
use orinoco_runtime::repository;
use orinoco_sysroot::Sysroot;

use super::board::sysroot_at;
use crate::args::DoctorArgs;
use crate::output;
use advice::System;
use board_file::Checker;
use check::{Group, part};

/// Checks the machine, and the board file if there is one.
pub(crate) fn run(args: &DoctorArgs, json: bool) -> Result<Exit, Faults> {
    let sysroot = sysroot_at(args.sysroot.as_deref())?;
    let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
    let doctor = Doctor {
        system: System::read(&sysroot),
        detection: orinoco_board::detect(&sysroot),
        context: EngineContext::default(),
        sysroot,
        clock,
    };
    let (mut parts, snapshot) = doctor.machine()?;
    let mut board_file = None;
    if let Some(file) = &args.board {
        // Whatever is wrong with the file itself is a fault of configuration, also what a run would only find later.
        let checked = match doctor.board_file(file, args, &snapshot, &parts) {
            Ok(checked) => checked,
            Err(faults) => {
                output::report_faults(faults.as_slice(), json);
                return Ok(Exit::Configuration);
            }
        };
        parts.extend(checked.1);
        board_file = Some(checked.0);
    }
    let can_run = board_file.as_ref().is_none_or(|verdict| verdict.can_run);
    match json {
        true => {
            let (schema, system) = (DOCTOR_SCHEMA.to_owned(), doctor.system.name);
            output::print_json(&DoctorReport { schema, parts, system, board_file });
        }
        false => output::print(&text(parts, board_file.as_ref(), board::may_be_jetson(&doctor.detection))),
    }
    Ok(if can_run { Exit::Done } else { Exit::CheckFailed })
}

/// Machine that is checked, or another board's files.
struct Doctor {
    sysroot: Sysroot,
    system: System,
    detection: Detection,
    context: EngineContext,
    clock: Arc<dyn Clock>,
}

impl Doctor {
    /// Makes all checks of the machine. Returns the last values of its sensors, too.
    fn machine(&self) -> Result<(Vec<MachinePart>, Snapshot), Diagnosis> {
        let Self { sysroot, system, detection, context, clock } = self;
        let mut sensors = Sensors::discover(sysroot);
        let mut snapshot = Snapshot::default();
        // Energy counters give power from their second reading on, which follows the slow checks.
        sensors.read(clock.now(), &mut snapshot);
        let mut parts = board::checks(detection);
        match sysroot.is_host() {
            true => parts.extend(self.software()?),
            false => {
                let others = [(Group::Engines, "engine", "all"), (Group::Sources, "source", "all")];
                parts.extend(others.map(elsewhere));
            }
        }
        sensors.read(clock.now(), &mut snapshot);
        parts.extend(sensors::checks(&sensors, &snapshot, sysroot, system));
        let cache = context.cache().ok().map(|cache| cache.folder());
        parts.extend(machine::checks(&snapshot, cache, sysroot, system));
        Ok((parts, snapshot))
    }

    /// Checks engines and sources, which compute a small graph and decode small videos.
    fn software(&self) -> Result<Vec<MachinePart>, Diagnosis> {
        let Self { system, detection, context, clock, .. } = self;
        let next = "free space in the folder for temporary files, or set TMPDIR";
        let folder = tempfile::tempdir().about(&codes::SINK_OPEN, "temporary folder", next)?;
        let graph = folder.path().join("probe.onnx");
        fs::write(&graph, engines::GRAPH).about(&codes::SINK_WRITE, graph.display().to_string(), next)?;
        let mut parts = engines::checks(&graph, context, system, clock.as_ref());
        parts.extend(sources::checks(folder.path(), system, board::may_be_jetson(detection), clock));
        Ok(parts)
    }

    /// Checks a board file on the machine whose parts are `known`.
    fn board_file(
        &self,
        file: &Path,
        args: &DoctorArgs,
        snapshot: &Snapshot,
        known: &[MachinePart],
    ) -> Result<(BoardFileVerdict, Vec<MachinePart>), Faults> {
        let checker = Checker {
            repository: &repository(args.place.models.as_deref(), args.place.data.as_deref()),
            system: &self.system,
            clock: &self.clock,
            available: snapshot.memory.available.clone().ok(),
            known,
        };
        checker.check(file)
    }
}

/// Reports that what runs on another board cannot be checked here.
fn elsewhere((group, kind, name): (Group, &str, &str)) -> MachinePart {
    part(
        group,
        kind,
        name,
        PartState::NotChecked,
        "with --sysroot only the board's files are available, not the board",
    )
}

/// Returns the report for people.
fn text(parts: Vec<MachinePart>, board_file: Option<&BoardFileVerdict>, is_jetson: bool) -> String {
    // Six lines about hardware that only a Jetson can have help nobody else.
    let is_shown = |part: &MachinePart| is_jetson || part.kind != "video" || part.ok;
    let shown: Vec<MachinePart> = parts.into_iter().filter(is_shown).collect();
    let mut paragraphs = vec![check::table(&shown)];
    // Whoever asks about a board file wants to know what keeps it from running.
    let is_asked = |part: &&MachinePart| board_file.is_none() || part.group == Group::BoardFile.name();
    let asked: Vec<&MachinePart> = shown.iter().filter(is_asked).collect();
    paragraphs.extend(check::corrections(&asked).map(|list| format!("to correct\n{list}")));
    paragraphs.push(match board_file {
        Some(BoardFileVerdict { file, can_run: true, .. }) => format!("{file} can run here"),
        Some(BoardFileVerdict { file, .. }) => format!("{file} cannot run here"),
        None => "`orinoco doctor --board FILE` checks whether a board file can run here; `orinoco models check NAME` runs a \
                 model once on each engine."
            .to_owned(),
    });
    paragraphs.join("\n\n")
}
