//! Planned memory of a run: the memory with which its streams were admitted, and the scratch areas of its lanes.
//!
//! This module is pure: it counts, and others allocate. A stream counts from its joining until its source and its sinks
//! have ended, and so do the models that it uses on its lane. A lane's area counts as long as a stream on the lane has
//! models.

use std::collections::BTreeMap;

use orinoco_core::StreamId;
use orinoco_memory::{Budget, Domain, ModelNeeds, Needs, NeedsFault, Plan, StreamNeeds};

use crate::scratch_size::ScratchSize;

/// Memory of one stream on its lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamMemory {
    pub(crate) lane: usize,
    /// Frames of its source. Their revision is set when the stream joins.
    pub(crate) frames: StreamNeeds,
    /// Models of the stream on that lane. The revision identifies the model in the run: streams of a lane that share a
    /// model have the same one.
    pub(crate) models: Vec<ModelNeeds>,
}

impl StreamMemory {
    /// Returns the memory without revisions, to compare sizes only.
    fn sizes(mut self) -> Self {
        self.frames.revision.clear();
        self.models.iter_mut().for_each(|model| model.revision.clear());
        self
    }
}

/// Adds up the needs of streams. A model that several streams share on a lane counts once.
pub(crate) fn needs_of(lanes: usize, streams: Vec<StreamMemory>) -> Result<Needs, NeedsFault> {
    let (mut models, mut frames) = (BTreeMap::new(), Vec::new());
    for stream in streams {
        let named =
            stream.models.into_iter().map(|model| ((model.name.clone(), model.revision.clone()), model));
        models.extend(named);
        frames.push(stream.frames);
    }
    Needs::new(lanes, models.into_values().collect(), frames)
}

/// Planned memory of a run.
#[derive(Clone, Debug)]
pub(crate) struct RunMemory {
    /// Plan that was admitted last.
    admitted: Plan,
    lanes: usize,
    /// Areas of lanes. An area with 0 bytes belongs to a lane whose models do not compute in it.
    areas: BTreeMap<usize, ScratchSize>,
    streams: BTreeMap<StreamId, StreamMemory>,
    /// Streams whose lane has failed, by name. Their memory is kept for them until they are restarted.
    lost: BTreeMap<String, StreamMemory>,
}

/// Memory of an admitted change.
#[derive(Clone, Debug)]
pub(crate) struct AdmittedMemory {
    /// Plan after the change.
    pub(crate) plan: Plan,
    /// Areas of the lanes that streams join.
    pub(crate) areas: BTreeMap<usize, ScratchSize>,
    /// Memory of the streams that join.
    pub(crate) streams: Vec<StreamMemory>,
}

impl RunMemory {
    /// Creates the memory of a run without streams.
    pub(crate) fn new(budget: u64, lanes: usize) -> Self {
        let plan = Plan { budget: Budget::Shared(budget), areas: Vec::new(), uncounted: Vec::new() };
        let (areas, streams, lost) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { admitted: plan, lanes, areas, streams, lost }
    }

    /// Returns the plan that was admitted last.
    pub(crate) fn admitted(&self) -> &Plan {
        &self.admitted
    }

    /// Returns the area of a lane, if it has one.
    pub(crate) fn area(&self, lane: usize) -> Option<ScratchSize> {
        self.areas.get(&lane).copied()
    }

    /// Returns the plan of everything that counts now.
    pub(crate) fn running(&self) -> Plan {
        let needs = self.needs(self.counted().cloned().collect());
        Plan::of(&needs.expect("needs that were admitted are sound"), self.admitted.budget)
    }

    /// Returns the needs after a change: the running streams `staying`, unless they have ended, and the streams `joining`.
    pub(crate) fn needs_after(
        &self,
        staying: &[StreamId],
        joining: &[StreamMemory],
    ) -> Result<Needs, NeedsFault> {
        let staying = staying.iter().filter_map(|stream| self.streams.get(stream));
        let joining = joining.iter().map(|stream| self.kept_for(stream).unwrap_or(stream));
        self.needs(staying.chain(joining).cloned().collect())
    }

    /// Whether a model counts already on its lane.
    pub(crate) fn has_model(&self, model: &ModelNeeds) -> bool {
        self.counted().any(|stream| stream.models.contains(model))
    }

    /// Returns the lane of a stream that was lost when the lane failed.
    pub(crate) fn lost_lane(&self, stream: &str) -> Option<usize> {
        self.lost.get(stream).map(|lost| lost.lane)
    }

    /// Returns the memory that is kept for a lost stream, if the stream joins its lane again with the same sizes: it takes
    /// that memory over.
    pub(crate) fn kept_for(&self, joining: &StreamMemory) -> Option<&StreamMemory> {
        let lost = self.lost.get(&joining.frames.name)?;
        (lost.clone().sizes() == joining.clone().sizes()).then_some(lost)
    }

    /// Counts a change that was applied, with those of its streams that `joined`. Memory that is kept for lost streams is
    /// released, unless they are `on_board`.
    pub(crate) fn apply<'a>(
        &mut self,
        admitted: AdmittedMemory,
        joined: impl Iterator<Item = (StreamId, &'a str)>,
        on_board: impl Iterator<Item = &'a str> + Clone,
    ) {
        let AdmittedMemory { plan, areas, streams } = admitted;
        self.admitted = plan;
        self.areas.extend(areas);
        for (stream, name) in joined {
            self.lost.remove(name);
            let memory = streams.iter().find(|memory| memory.frames.name == name);
            let mut memory = memory.expect("a stream joins with what it was admitted with").clone();
            memory.frames.revision = format!("stream {stream}");
            self.streams.insert(stream, memory);
        }
        self.lost.retain(|name, _| on_board.clone().any(|stream| stream == name));
        self.drop_areas();
    }

    /// Stops counting a stream that has ended.
    pub(crate) fn release(&mut self, stream: StreamId) {
        self.streams.remove(&stream);
        self.drop_areas();
    }

    /// Keeps the memory of a stream whose lane has failed, until the stream is restarted: loading its models again takes no
    /// more than they had.
    pub(crate) fn lose(&mut self, stream: StreamId) {
        if let Some(memory) = self.streams.remove(&stream) {
            self.lost.insert(memory.frames.name.clone(), memory);
        }
    }

    fn drop_areas(&mut self) {
        let Self { areas, streams, lost, .. } = self;
        let counted = || streams.values().chain(lost.values());
        areas.retain(|lane, _| counted().any(|stream| stream.lane == *lane && !stream.models.is_empty()));
    }

    /// Returns all streams that count.
    fn counted(&self) -> impl Iterator<Item = &StreamMemory> {
        self.streams.values().chain(self.lost.values())
    }

    /// Returns the needs of `streams`, with the areas that lanes have.
    fn needs(&self, streams: Vec<StreamMemory>) -> Result<Needs, NeedsFault> {
        let needs = needs_of(self.lanes, streams)?;
        Ok(self.areas.iter().fold(needs, |needs, (lane, scratch_size)| {
            let needs = needs.with_scratch(*lane, Domain::Host, scratch_size.host_bytes);
            needs.with_scratch(*lane, Domain::Device, scratch_size.device_bytes)
        }))
    }
}

#[cfg(test)]
mod tests;
