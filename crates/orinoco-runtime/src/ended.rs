//! Streams that have ended. The latest are kept in full, and only totals of the older ones, so that the memory of a daemon
//! does not grow with millions of streams.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use orinoco_api::{Dropped, StreamSummary, StreamTotals};
use orinoco_core::{Diagnosis, StreamId};

/// Maximum number of ended streams that are kept in full, at about 2 KiB each: more than a person reads.
const FULL_MAX: usize = 1000;
/// Maximum number of names under which older streams are added up. The totals of further names are one entry.
const NAMES_MAX: usize = 1000;
/// Maximum number of faults of older streams: the first ones are kept, because they show how it began.
const FAULTS_MAX: usize = 1000;
/// Name of the entry for names beyond [`NAMES_MAX`].
const OTHERS: &str = "(others)";

/// Stream that has ended.
pub(crate) struct EndedStream {
    pub(crate) id: StreamId,
    pub(crate) summary: StreamSummary,
    /// Paths of its sinks, as the board names them.
    pub(crate) paths: Vec<PathBuf>,
    /// Files that are complete; `incomplete` has those that are not.
    pub(crate) files: Vec<PathBuf>,
    pub(crate) incomplete: Vec<PathBuf>,
    pub(crate) faults: Vec<Diagnosis>,
    /// Whether it ended because a stop was requested.
    pub(crate) was_stopped: bool,
}

/// All streams that have ended.
#[derive(Default)]
pub(crate) struct EndedStreams {
    latest: VecDeque<EndedStream>,
    totals: BTreeMap<String, StreamTotals>,
    older_faults: Vec<Diagnosis>,
    older_was_stopped: bool,
    frames_in: u64,
    frames_out: u64,
}

/// All streams of a run, for its summary.
pub(crate) struct AllEnded {
    pub(crate) streams: Vec<StreamSummary>,
    pub(crate) totals: Vec<StreamTotals>,
    pub(crate) files: Vec<PathBuf>,
    pub(crate) incomplete: Vec<PathBuf>,
    pub(crate) faults: Vec<Diagnosis>,
    pub(crate) was_stopped: bool,
}

impl EndedStreams {
    pub(crate) fn add(&mut self, ended: EndedStream) {
        self.frames_in += ended.summary.frames_in;
        self.frames_out += ended.summary.frames_out;
        self.latest.push_back(ended);
        if self.latest.len() > FULL_MAX
            && let Some(oldest) = self.latest.pop_front()
        {
            self.add_up(oldest);
        }
    }

    fn add_up(&mut self, ended: EndedStream) {
        let EndedStream { summary, faults, was_stopped, .. } = ended;
        let scratch_size = FAULTS_MAX.saturating_sub(self.older_faults.len());
        self.older_faults.extend(faults.into_iter().take(scratch_size));
        self.older_was_stopped |= was_stopped;
        let is_known = self.totals.contains_key(&summary.name) || self.totals.len() < NAMES_MAX;
        let name = if is_known { summary.name } else { OTHERS.to_owned() };
        let empty = || StreamTotals { name: name.clone(), ..StreamTotals::default() };
        let total = self.totals.entry(name.clone()).or_insert_with(empty);
        total.streams += 1;
        total.frames_in += summary.frames_in;
        total.frames_out += summary.frames_out;
        total.reconnects += summary.reconnects;
        for Dropped { cause, frames } in summary.dropped {
            match total.dropped.iter_mut().find(|dropped| dropped.cause == cause) {
                Some(dropped) => dropped.frames += frames,
                None => total.dropped.push(Dropped { cause, frames }),
            }
        }
    }

    /// Returns the number of frames that the sources of all ended streams delivered.
    pub(crate) fn frames_in(&self) -> u64 {
        self.frames_in
    }

    /// Returns the number of frames of all ended streams that went through every model and sink.
    pub(crate) fn frames_out(&self) -> u64 {
        self.frames_out
    }

    /// Returns the paths to which the latest streams wrote, each with the name of its stream.
    pub(crate) fn paths(&self) -> impl Iterator<Item = (&str, &PathBuf)> {
        self.latest.iter().flat_map(|ended| ended.paths.iter().map(|path| (&*ended.summary.name, path)))
    }

    /// Returns all ended streams, the latest in the order in which they started.
    pub(crate) fn into_all(self) -> AllEnded {
        let mut latest = Vec::from(self.latest);
        latest.sort_by_key(|ended| ended.id);
        let mut all = AllEnded {
            streams: Vec::new(),
            totals: self.totals.into_values().collect(),
            files: Vec::new(),
            incomplete: Vec::new(),
            faults: self.older_faults,
            was_stopped: self.older_was_stopped,
        };
        for ended in latest {
            all.streams.push(ended.summary);
            all.files.extend(ended.files);
            all.incomplete.extend(ended.incomplete);
            all.faults.extend(ended.faults);
            all.was_stopped |= ended.was_stopped;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(id: u32, name: &str) -> EndedStream {
        let summary = serde_json::json!({
            "name": name, "source": "test://ball", "state": "ended", "frames_in": 3, "frames_out": 2,
            "dropped": [{ "cause": "sink-behind", "frames": 1 }], "late": 0, "reconnects": 1, "fps": 1.0,
            "detections": 0, "stages": [],
        });
        let summary = serde_json::from_value(summary).expect("it is one");
        let (paths, files, incomplete, faults) =
            (Vec::new(), vec![PathBuf::from(name)], Vec::new(), Vec::new());
        EndedStream { id: StreamId(id), summary, paths, files, incomplete, faults, was_stopped: id == 0 }
    }

    #[test]
    fn older_streams_become_totals_and_nothing_is_lost_of_their_counts() {
        const STREAMS: u32 = 5000;
        let mut all = EndedStreams::default();
        (0..STREAMS).for_each(|id| all.add(ended(id, if id % 2 == 0 { "even" } else { "odd" })));
        assert_eq!((all.frames_in(), all.frames_out()), (3 * u64::from(STREAMS), 2 * u64::from(STREAMS)));
        let all = all.into_all();
        assert_eq!((all.streams.len(), all.files.len(), all.was_stopped), (FULL_MAX, FULL_MAX, true));
        let totals: Vec<_> =
            all.totals.iter().map(|total| (&*total.name, total.streams, total.frames_in)).collect();
        assert_eq!(totals, [("even", 2000, 6000), ("odd", 2000, 6000)]);
        let total = &all.totals[0];
        assert_eq!((total.frames_out, total.reconnects, total.dropped[0].frames), (4000, 2000, 2000));
    }

    #[test]
    fn names_are_bounded_too() {
        let mut all = EndedStreams::default();
        let streams = (FULL_MAX + NAMES_MAX + 500) as u32;
        (0..streams).for_each(|id| all.add(ended(id, &id.to_string())));
        let totals = all.into_all().totals;
        assert_eq!(totals.len(), NAMES_MAX + 1);
        let others = totals.iter().find(|total| total.name == OTHERS).expect("there are");
        assert_eq!((others.streams, totals.iter().map(|total| total.streams).sum::<u64>()), (500, 1500));
    }

    #[test]
    fn the_summary_lists_streams_as_they_started() {
        let mut all = EndedStreams::default();
        [2, 0, 1].into_iter().for_each(|id| all.add(ended(id, &id.to_string())));
        let names: Vec<String> = all.into_all().streams.into_iter().map(|stream| stream.name).collect();
        assert_eq!(names, ["0", "1", "2"]);
    }
}
