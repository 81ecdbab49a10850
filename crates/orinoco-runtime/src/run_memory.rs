//! Planned memory of a run: what its streams were admitted with, and the areas of its lanes.
//!
//! Pure: it counts, and others allocate. A stream counts from the time at which it joins until its source and its sinks have
//! ended, and so do the models that it uses on its lane. A lane's area counts as long as a stream there has models.

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
    /// Its models on that lane. The revision is that of the model in the run: streams of a lane that share a model give the
    /// same.
    pub(crate) models: Vec<ModelNeeds>,
}

impl StreamMemory {
    /// The same without revisions: sizes alone.
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
    /// The plan that was admitted last.
    admitted: Plan,
    lanes: usize,
    /// Areas of lanes. One without bytes is for models that do not compute in it.
    areas: BTreeMap<usize, ScratchSize>,
    streams: BTreeMap<StreamId, StreamMemory>,
    /// Streams whose lane has failed, by name. What they had is kept for them until they are started again.
    lost: BTreeMap<String, StreamMemory>,
}

/// Memory of a change that was admitted.
#[derive(Clone, Debug)]
pub(crate) struct AdmittedMemory {
    /// The plan once the change is done.
    pub(crate) plan: Plan,
    /// Areas of the lanes that streams join.
    pub(crate) areas: BTreeMap<usize, ScratchSize>,
    /// Streams that join.
    pub(crate) streams: Vec<StreamMemory>,
}

impl RunMemory {
    /// Memory of a run without streams.
    pub(crate) fn new(budget: u64, lanes: usize) -> Self {
        let plan = Plan { budget: Budget::Shared(budget), areas: Vec::new(), uncounted: Vec::new() };
        let (areas, streams, lost) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { admitted: plan, lanes, areas, streams, lost }
    }

    /// The plan that was admitted last.
    pub(crate) fn admitted(&self) -> &Plan {
        &self.admitted
    }

    /// The area of a lane, if it has one.
    pub(crate) fn area(&self, lane: usize) -> Option<ScratchSize> {
        self.areas.get(&lane).copied()
    }

    /// The plan of everything that counts now.
    pub(crate) fn running(&self) -> Plan {
        let needs = self.needs(self.counted().cloned().collect());
        Plan::of(&needs.expect("needs that were admitted are sound"), self.admitted.budget)
    }

    /// The needs of a change: `staying` streams of those that run go on, unless they have ended, and `joining` ones join.
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

    /// The lane of a stream that was lost with it.
    pub(crate) fn lost_lane(&self, stream: &str) -> Option<usize> {
        self.lost.get(stream).map(|lost| lost.lane)
    }

    /// The memory that is kept for a stream that was lost with its lane and joins it again as it was: it takes that over.
    pub(crate) fn kept_for(&self, joining: &StreamMemory) -> Option<&StreamMemory> {
        let lost = self.lost.get(&joining.frames.name)?;
        (lost.clone().sizes() == joining.clone().sizes()).then_some(lost)
    }

    /// Takes a change that was applied: of its streams those `joined`. What is kept for lost streams goes, unless they are
    /// `on_board`.
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

    /// Keeps what a stream had whose lane has failed, until it is started again: loading its models anew takes no more than
    /// they had.
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

    /// All streams that count.
    fn counted(&self) -> impl Iterator<Item = &StreamMemory> {
        self.streams.values().chain(self.lost.values())
    }

    /// Needs of `streams`, with the areas that lanes have.
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
