//! Planned memory of a run: the memory with which its streams were admitted, and the scratch areas of its lanes.
//!
//! This module is pure: it counts, and others allocate. A stream counts from its joining until its source and its sinks
//! have ended, and so do the models that it uses on its lane. A replaced model counts until its plan is dropped. A lane's area counts as long as a stream on the lane has
//! models.

use std::collections::BTreeMap;

use orinoco_core::StreamId;
use orinoco_memory::{Budget, Domain, ModelNeeds, Needs, NeedsFault, Plan, StreamNeeds};

use crate::model_version::LanePlan;
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
    /// Replaces a model, and returns the needs of the old one, if the stream uses it on that lane.
    fn replace(&mut self, replacement: &Replacement) -> Option<ModelNeeds> {
        let Replacement { old, old_revision, new } = replacement;
        let is_old = |model: &&mut ModelNeeds| model.name == new.name && model.revision == *old_revision;
        let replaced = self.models.iter_mut().find(is_old).filter(|_| self.lane == old.lane)?;
        Some(std::mem::replace(replaced, new.clone()))
    }

    /// Returns the memory without revisions, to compare sizes only.
    fn sizes(mut self) -> Self {
        self.frames.revision.clear();
        self.models.iter_mut().for_each(|model| model.revision.clear());
        self
    }
}

/// Adds up the needs of streams and of `other` models. A model that several streams share on a lane counts once.
pub(crate) fn needs_of(
    lanes: usize,
    streams: Vec<StreamMemory>,
    other: impl IntoIterator<Item = ModelNeeds>,
) -> Result<Needs, NeedsFault> {
    let named = |model: ModelNeeds| ((model.name.clone(), model.revision.clone()), model);
    let (mut models, mut frames) = (BTreeMap::new(), Vec::new());
    models.extend(other.into_iter().map(named));
    for stream in streams {
        models.extend(stream.models.into_iter().map(named));
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
    /// Models that were replaced and whose plans are not dropped yet.
    replaced: BTreeMap<LanePlan, ModelNeeds>,
}

/// Replacement of a model on a lane.
#[derive(Clone, Debug)]
pub(crate) struct Replacement {
    /// Plan that is replaced.
    pub(crate) old: LanePlan,
    /// Revision of the replaced model.
    pub(crate) old_revision: String,
    /// Needs of the model that replaces it.
    pub(crate) new: ModelNeeds,
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
    /// Models that are replaced.
    pub(crate) replacements: Vec<Replacement>,
}

impl RunMemory {
    /// Creates the memory of a run without streams.
    pub(crate) fn new(budget: u64, lanes: usize) -> Self {
        let plan = Plan { budget: Budget::Shared(budget), areas: Vec::new(), uncounted: Vec::new() };
        let (areas, streams, lost) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { admitted: plan, lanes, areas, streams, lost, replaced: BTreeMap::new() }
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
        let needs = self.needs(self.counted().cloned().collect(), &self.replaced);
        Plan::of(&needs.expect("needs that were admitted are sound"), self.admitted.budget)
    }

    /// Returns the needs after a change: the running streams `staying`, unless they have ended, with the `replacements` of
    /// their models, and the streams `joining`.
    pub(crate) fn needs_after(
        &self,
        staying: &[StreamId],
        joining: &[StreamMemory],
        replacements: &[Replacement],
    ) -> Result<Needs, NeedsFault> {
        let staying = staying.iter().filter_map(|stream| self.streams.get(stream));
        self.needs_with(staying, joining, replacements)
    }

    /// Returns what a change needs in addition to what runs, together with that of it which stays: a lane replaces a model
    /// also for the streams that leave it.
    pub(crate) fn needs_at_peak(
        &self,
        joining: &[StreamMemory],
        replacements: &[Replacement],
    ) -> Result<Needs, NeedsFault> {
        self.needs_with(self.streams.values(), joining, replacements)
    }

    fn needs_with<'a>(
        &'a self,
        running: impl Iterator<Item = &'a StreamMemory>,
        joining: &[StreamMemory],
        replacements: &[Replacement],
    ) -> Result<Needs, NeedsFault> {
        let running = running.cloned().map(|mut stream| {
            replacements.iter().for_each(|replacement| drop(stream.replace(replacement)));
            stream
        });
        let joining = joining.iter().map(|stream| self.kept_for(stream).unwrap_or(stream)).cloned();
        self.needs(running.chain(joining).collect(), &BTreeMap::new())
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

    /// Counts a change that was applied, with those of its streams that `joined` and those of its plans that were `replaced`.
    /// Memory that is kept for lost streams is released, unless they are `on_board`.
    pub(crate) fn apply<'a>(
        &mut self,
        admitted: AdmittedMemory,
        joined: impl Iterator<Item = (StreamId, &'a str)>,
        on_board: impl Iterator<Item = &'a str> + Clone,
        replaced: impl Iterator<Item = LanePlan>,
    ) {
        let AdmittedMemory { plan, areas, streams, replacements } = admitted;
        self.admitted = plan;
        self.areas.extend(areas);
        for old in replaced {
            let replacement = replacements.iter().find(|replacement| replacement.old == old);
            self.replace(replacement.expect("a model is replaced as it was admitted"));
        }
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

    /// Counts a replaced model until its plan is dropped, and the new one in its place.
    fn replace(&mut self, replacement: &Replacement) {
        let replaced = self.streams.values_mut().filter_map(|stream| stream.replace(replacement)).last();
        self.replaced.extend(replaced.map(|needs| (replacement.old, needs)));
    }

    /// Stops counting a replaced model, whose plan was dropped.
    pub(crate) fn plan_dropped(&mut self, plan: LanePlan) {
        self.replaced.remove(&plan);
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

    /// Returns the needs of `streams` and of models that were `replaced`, with the areas that lanes have.
    fn needs(
        &self,
        streams: Vec<StreamMemory>,
        replaced: &BTreeMap<LanePlan, ModelNeeds>,
    ) -> Result<Needs, NeedsFault> {
        let needs = needs_of(self.lanes, streams, replaced.values().cloned())?;
        Ok(self.areas.iter().fold(needs, |needs, (lane, scratch_size)| {
            let needs = needs.with_scratch(*lane, Domain::Host, scratch_size.host_bytes);
            needs.with_scratch(*lane, Domain::Device, scratch_size.device_bytes)
        }))
    }
}

#[cfg(test)]
mod tests;
