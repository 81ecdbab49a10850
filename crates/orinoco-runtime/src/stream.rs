//! Stream that was checked and whose outputs are open, before it joins a lane.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use orinoco_board::BoardStream;
use orinoco_config::Faults;
use orinoco_core::{Clock, Diagnosis, DropPolicy, ModelId};
use orinoco_media::FrameMemory;
use orinoco_pipeline::{ObjectSelection, Sink, Step};

use crate::checks::{check_source, object_classes};
use crate::model_entry::ModelEntry;
use crate::outputs::OpenSink;
use crate::readers::OutputReader;
use crate::shared::collect;
use crate::sinks::{self, NamesOfModels};
use crate::track::{ModelTrackers, TrackingCounts};

/// Stream that was checked, with its sinks open.
pub(crate) struct OpenStream {
    /// Settings of the stream. Its models are indices into the list of the board for which it was prepared.
    pub(crate) spec: BoardStream,
    /// Ids of its models.
    pub(crate) models: Vec<ModelId>,
    /// Paths of its sinks.
    pub(crate) files: Vec<PathBuf>,
    pub(crate) sinks: Vec<Box<dyn Sink>>,
    pub(crate) readers: Vec<OutputReader>,
    pub(crate) tracker: Option<(ModelTrackers, TrackingCounts)>,
    pub(crate) lane: usize,
    pub(crate) steps: Vec<Step>,
    /// Whether a sink reads the pixels of frames, and not only results.
    pub(crate) reads_pixels: bool,
}

impl OpenStream {
    /// Checks a stream for a lane and begins its `outputs`. Its models are indices into `models`.
    pub(crate) fn new(
        spec: &BoardStream,
        outputs: Vec<OpenSink>,
        lane: usize,
        models: &[(ModelId, &ModelEntry)],
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, Faults> {
        check_source(spec)?;
        let steps = spec.models.iter().map(|&model| step(model, spec, models));
        let steps = steps.collect::<Result<Vec<_>, _>>()?;
        let used = || spec.models.iter().map(|&model| models[model]);
        let tracker = spec.track.as_ref().map(|track| ModelTrackers::new(spec, track)).transpose()?;
        let names: BTreeMap<_, _> = used().map(|(id, known)| (id, Arc::clone(&known.names))).collect();
        let names: NamesOfModels = Arc::new(names);
        let files = outputs.iter().map(|(sink, _)| sink.path.clone()).collect();
        let reads_pixels = outputs.iter().any(|(sink, _)| sink.kind.reads_pixels);
        let mut readers = Vec::new();
        let mut open = |(sink, file): OpenSink| {
            sinks::open(&sink, file, &spec.name, &names, clock, &mut readers).map_err(Faults::from)
        };
        let sinks = collect(outputs.into_iter().map(&mut open))?;
        let (spec, models) = (spec.clone(), used().map(|(id, _)| id).collect());
        Ok(Self { spec, models, files, sinks, readers, tracker, lane, steps, reads_pixels })
    }

    /// Returns the memory in which its frames are best left.
    pub(crate) fn frame_memory(&self, reads_video_memory: impl Fn(ModelId) -> bool) -> FrameMemory {
        frame_memory(&self.steps, self.reads_pixels, reads_video_memory)
    }

    /// Returns the drop policy of its ring.
    pub(crate) fn policy(&self) -> DropPolicy {
        // Live video does not wait for a full ring; of a file, every frame counts.
        let usual = if self.spec.source.is_live() { DropPolicy::DropOldest } else { DropPolicy::Block };
        self.spec.drop.unwrap_or(usual)
    }
}

/// Makes the step of one model in a stream.
fn step(model: usize, stream: &BoardStream, models: &[(ModelId, &ModelEntry)]) -> Result<Step, Diagnosis> {
    let (id, known) = models[model];
    let spec = &known.spec;
    let Some(on) = &spec.on else { return Ok(Step { model: id, on: None }) };
    let primary =
        stream.models.iter().map(|&other| models[other]).find(|(_, other)| other.spec.name == on.model);
    let (of, primary) = primary.expect("a board file lists a primary model before its secondary models");
    let classes = object_classes(spec, on, &primary.names.labels)?;
    let on = ObjectSelection { of, classes, side_min: on.side_min, count_max: on.count_max };
    Ok(Step { model: id, on: Some(on) })
}

/// Returns the memory in which a stream's frames are best left: the video hardware's, if all of its models read it there
/// and no sink reads pixels. A secondary model never does: objects are parts of frames, and several of one frame cannot be
/// mapped for the GPU at the same time.
fn frame_memory(steps: &[Step], reads_pixels: bool, reads: impl Fn(ModelId) -> bool) -> FrameMemory {
    let reads = |step: &Step| step.on.is_none() && reads(step.model);
    let all_read = !steps.is_empty() && steps.iter().all(reads);
    if all_read && !reads_pixels { FrameMemory::Nvmm } else { FrameMemory::Host }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_stay_in_video_memory_where_nobody_needs_them_elsewhere() {
        let reads_video_memory = |model| model == ModelId(0);
        let whole = |model| Step { model: ModelId(model), on: None };
        let on = ObjectSelection { of: ModelId(0), classes: Vec::new(), side_min: 1, count_max: 1 };
        let objects = Step { on: Some(on), ..whole(0) };
        for (steps, reads_pixels, wanted) in [
            (vec![whole(0)], false, FrameMemory::Nvmm),
            (vec![whole(0)], true, FrameMemory::Host),
            (vec![whole(0), whole(1)], false, FrameMemory::Host),
            (vec![whole(0), objects], false, FrameMemory::Host),
            (Vec::new(), false, FrameMemory::Host),
        ] {
            let memory = frame_memory(&steps, reads_pixels, reads_video_memory);
            assert_eq!(memory, wanted, "{steps:?} {reads_pixels}");
        }
    }
}
