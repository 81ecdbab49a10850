//! Admission of a change: the lanes that its streams join, and whether its memory fits at its peak.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use orinoco_board::Board;
use orinoco_core::{Diagnosis, StreamId};
use orinoco_memory::{ChangeRefused, Domain, ModelNeeds, NeedsFault, Plan, admit_change};
use orinoco_telemetry::EventSink;

use crate::placement::{LaneViews, NewAreas, NoLane};
use crate::planning::{AfterRefusal, Measured, refused, stream_memory, unsound};
use crate::replacing::{StalePlan, replacements};
use crate::run_memory::{AdmittedMemory, RunMemory, StreamMemory};
use crate::scratch_size::ScratchSize;

/// Request for the admission of a change: the facts on which placement and memory depend.
pub(crate) struct AdmissionRequest<'a> {
    /// Wanted board.
    pub(crate) board: &'a Board,
    /// Indices of the board's streams that join.
    pub(crate) joining: &'a [usize],
    /// Running streams that stay.
    pub(crate) staying: &'a [StreamId],
    /// Memory of the run, if the board has a budget.
    pub(crate) memory: Option<MemoryRequest<'a>>,
}

/// Facts about the memory of a change.
pub(crate) struct MemoryRequest<'a> {
    /// Memory of the run before the change.
    pub(crate) run: &'a RunMemory,
    /// Measured memory of the board's models, by their indices.
    pub(crate) measured: &'a [Arc<Measured>],
    /// Revision of each of the board's models in the run, by their indices.
    pub(crate) revisions: &'a [String],
    /// Indices of the board's models that are loaded for the change.
    pub(crate) loaded: &'a [usize],
    /// Plans that lanes replace.
    pub(crate) stale: &'a [StalePlan],
}

/// Admitted change.
pub(crate) struct Admission {
    /// Index of the lane of each stream that joins.
    pub(crate) lanes: Vec<usize>,
    /// Memory of the change, if the board has a budget.
    pub(crate) memory: Option<AdmittedMemory>,
}

/// Reason why a change is not admitted.
#[derive(Debug)]
enum RefusalReason {
    /// No lane can take a stream.
    Lane(NoLane),
    /// The needs are inconsistent, so that no plan can be made.
    Needs(NeedsFault),
    /// The change does not fit the budget.
    Memory(ChangeRefused),
}

/// Admits a start. Its streams get the lanes that the board assigns, and its memory is that of the plan. Memory that
/// building a model takes temporarily is not added: models are loaded before any stream has frames.
pub(crate) fn admit_start(
    asked: &AdmissionRequest<'_>,
    events: &dyn EventSink,
) -> Result<Admission, Diagnosis> {
    let lanes: Vec<usize> = asked.joining.iter().map(|stream| asked.board.lane_of(*stream)).collect();
    let memory = match &asked.memory {
        Some(memory) => admit_memory(asked, memory, &lanes, &[]).map(Some),
        None => Ok(None),
    };
    let memory = memory.map_err(|why| report(asked.board, why, AfterRefusal::NothingRuns, events))?;
    Ok(Admission { lanes, memory })
}

/// Admits a change while the board runs. `lanes` are the present lanes, each with the number of streams that stay on it.
///
/// With a budget, streams first go to the lanes with the fewest streams, and a lane without a scratch area gets one. If
/// that does not fit the budget, streams go only to lanes that have an area, which takes less memory.
pub(crate) fn admit_reload(
    asked: &AdmissionRequest<'_>,
    lanes: &LaneViews,
    events: &dyn EventSink,
) -> Result<Admission, Diagnosis> {
    let Some(memory) = &asked.memory else {
        let lanes = place(asked, lanes.clone(), NewAreas::Allowed)?;
        return Ok(Admission { lanes, memory: None });
    };
    let admit = |new_areas| {
        let lanes = place(asked, lanes.clone(), new_areas).map_err(RefusalReason::Lane)?;
        let building = building(asked, memory, &lanes);
        let memory = admit_memory(asked, memory, &lanes, &building)?;
        Ok(Admission { lanes, memory: Some(memory) })
    };
    let admission = admit(NewAreas::Allowed).or_else(|why| admit(NewAreas::None).map_err(|_| why));
    admission.map_err(|why| report(asked.board, why, AfterRefusal::RunsOn, events))
}

/// Chooses the lane of each stream that joins.
fn place(
    asked: &AdmissionRequest<'_>,
    mut lanes: LaneViews,
    new_areas: NewAreas,
) -> Result<Vec<usize>, NoLane> {
    let joining = asked.joining.iter().map(|stream| &asked.board.streams[*stream]);
    let chosen = joining.map(|stream| {
        let Some(MemoryRequest { run, measured, .. }) = &asked.memory else {
            return lanes.choose(stream, ScratchSize::default(), None, new_areas);
        };
        let needed = stream.models.iter().map(|model| measured[*model].scratch_size());
        lanes.choose(
            stream,
            needed.fold(ScratchSize::default(), ScratchSize::or),
            run.lost_lane(&stream.name),
            new_areas,
        )
    });
    chosen.collect()
}

/// Returns the memory of the streams that join, on the lanes `lanes`.
fn joining(asked: &AdmissionRequest<'_>, memory: &MemoryRequest<'_>, lanes: &[usize]) -> Vec<StreamMemory> {
    let revision = |model: usize| memory.revisions[model].clone();
    let joining = asked.joining.iter().zip(lanes);
    let streams = joining.map(|(stream, lane)| {
        let stream = &asked.board.streams[*stream];
        stream_memory(asked.board, stream, *lane, memory.measured, &revision)
    });
    streams.collect()
}

/// Admits the memory of streams that join the lanes `lanes`, while building models takes `building` bytes.
fn admit_memory(
    asked: &AdmissionRequest<'_>,
    memory: &MemoryRequest<'_>,
    lanes: &[usize],
    building: &[(Domain, u64)],
) -> Result<AdmittedMemory, RefusalReason> {
    let streams = joining(asked, memory, lanes);
    let MemoryRequest { run, measured, revisions, stale, .. } = memory;
    let replacements = replacements(asked.board, stale, measured, revisions);
    let (after, peak) = match replacements.is_empty() {
        true => (None, run.needs_after(asked.staying, &streams, &[])),
        false => {
            let after = run.needs_after(asked.staying, &streams, &replacements);
            (Some(after.map_err(RefusalReason::Needs)?), run.needs_at_peak(&streams, &replacements))
        }
    };
    let (running, peak) = (run.running(), peak.map_err(RefusalReason::Needs)?);
    let change = admit_change(&running, &peak, building).map_err(RefusalReason::Memory)?;
    let plan = after.map_or(change.after, |after| Plan::of(&after, running.budget));
    let on = |domain| {
        let areas = plan.lanes(domain);
        move |lane| areas.get(&lane).copied().unwrap_or(0)
    };
    let (host_bytes, device_bytes) = (on(Domain::Host), on(Domain::Device));
    let lanes: BTreeSet<usize> = lanes.iter().copied().collect();
    let areas = lanes
        .into_iter()
        .map(|lane| (lane, ScratchSize { host_bytes: host_bytes(lane), device_bytes: device_bytes(lane) }));
    Ok(AdmittedMemory { areas: areas.collect(), plan, streams, replacements })
}

/// Returns the bytes that building takes temporarily, by domain. Models are built one after another, so it is the maximum
/// over the models. Models of streams that take over the memory of lost streams are built in the place of the lost models.
fn building(asked: &AdmissionRequest<'_>, memory: &MemoryRequest<'_>, lanes: &[usize]) -> Vec<(Domain, u64)> {
    let joining = joining(asked, memory, lanes);
    let is_kept = |stream: &&StreamMemory| memory.run.kept_for(stream).is_some();
    let (kept, new): (Vec<&StreamMemory>, Vec<_>) = joining.iter().partition(is_kept);
    let uses = |streams: &[&StreamMemory], index: usize| {
        let is_it = |model: &&ModelNeeds| model.revision == memory.revisions[index];
        let models = streams.iter().flat_map(|stream| &stream.models).filter(is_it);
        models.filter(|model| !memory.run.has_model(model)).count() > 0
    };
    let mut most = BTreeMap::<Domain, u64>::new();
    for (index, measured) in memory.measured.iter().enumerate() {
        let is_new = uses(&new, index) || memory.stale.iter().any(|stale| stale.wanted == index);
        let bytes = match memory.loaded.contains(&index) && !is_new && !uses(&kept, index) {
            true => measured.proving(),
            false if is_new => measured.building(),
            false => continue,
        };
        let mut of_model = BTreeMap::<Domain, u64>::new();
        bytes.into_iter().for_each(|(domain, bytes)| *of_model.entry(domain).or_default() += bytes);
        for (domain, bytes) in of_model {
            let most = most.entry(domain).or_default();
            *most = bytes.max(*most);
        }
    }
    most.into_iter().collect()
}

fn report(board: &Board, why: RefusalReason, after: AfterRefusal, events: &dyn EventSink) -> Diagnosis {
    match why {
        RefusalReason::Lane(why) => why.into(),
        RefusalReason::Needs(fault) => unsound(board, &fault),
        RefusalReason::Memory(why) => refused(board, why, after, events),
    }
}

#[cfg(test)]
mod tests;
