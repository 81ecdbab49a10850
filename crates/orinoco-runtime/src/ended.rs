//! Streams and models that have ended. The latest are kept in full, and only totals of the older ones, so that the memory of a
//! daemon does not grow with millions of streams. Read streams here, and models in `ended/models.rs`.

mod models;
mod totals;

use std::collections::VecDeque;
use std::path::PathBuf;

use orinoco_api::{Dropped, LineSummary, StreamSummary, StreamTotals, TrackedSummary, ZoneSummary};
use orinoco_core::{Diagnosis, StreamId};

pub(crate) use models::{AllModels, EndedModels};
use totals::{OTHERS, Totals, add_known, entry_of};

/// Maximum number of ended streams that are kept in full, at about 2 KiB each: more than a person reads.
const FULL_MAX: usize = 1000;
/// Maximum number of zones, and of lines, in the totals of a name. The counts of further ones are one entry.
const COUNTED_MAX: usize = 100;
/// Maximum number of faults of older streams: the first ones are kept, because they show how it began.
const FAULTS_MAX: usize = 1000;

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
    totals: Totals<StreamTotals>,
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
        let free = FAULTS_MAX.saturating_sub(self.older_faults.len());
        self.older_faults.extend(faults.into_iter().take(free));
        self.older_was_stopped |= was_stopped;
        let total = self.totals.of(&summary.name, |name| StreamTotals { name, ..StreamTotals::default() });
        total.streams += 1;
        total.frames_in += summary.frames_in;
        total.frames_out += summary.frames_out;
        total.reconnects += summary.reconnects;
        total.late += summary.late;
        total.detections += summary.detections;
        add_known(&mut total.decoder_cpu_ms, summary.decoder_cpu_ms);
        add_known(&mut total.energy_j, summary.energy_j);
        for Dropped { cause, frames } in summary.dropped {
            let is_it = |dropped: &Dropped| dropped.cause == cause;
            entry_of(&mut total.dropped, is_it, || Dropped { cause: cause.clone(), frames: 0 }).frames +=
                frames;
        }
        if let Some(tracked) = summary.tracked {
            add_tracked(total.tracked.get_or_insert_default(), &tracked);
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
            totals: self.totals.into_all(),
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

/// Adds the counts of tracked objects of a stream to those of its name.
fn add_tracked(total: &mut TrackedSummary, of: &TrackedSummary) {
    total.objects += of.objects;
    for zone in &of.zones {
        let sum = counted(&mut total.zones, &zone.name, |zone: &mut ZoneSummary| &mut zone.name);
        sum.inside += zone.inside;
        sum.appeared += zone.appeared;
        sum.entered += zone.entered;
        sum.left += zone.left;
        sum.vanished += zone.vanished;
    }
    for line in &of.lines {
        let sum = counted(&mut total.lines, &line.name, |line: &mut LineSummary| &mut line.name);
        sum.a_to_b += line.a_to_b;
        sum.b_to_a += line.b_to_a;
    }
}

/// Returns the counts to which those of a zone or line with this name are added.
fn counted<'a, T: Default>(
    all: &'a mut Vec<T>,
    name: &str,
    name_of: impl Fn(&mut T) -> &mut String,
) -> &'a mut T {
    let find = |all: &mut Vec<T>, name: &str| all.iter_mut().position(|entry| name_of(entry) == name);
    let name = if all.len() < COUNTED_MAX || find(all, name).is_some() { name } else { OTHERS };
    let index = find(all, name).unwrap_or_else(|| {
        let mut entry = T::default();
        name.clone_into(name_of(&mut entry));
        all.push(entry);
        all.len() - 1
    });
    &mut all[index]
}

#[cfg(test)]
mod tests {
    use super::*;
    use totals::NAMES_MAX;

    fn ended(id: u32, name: &str) -> EndedStream {
        let summary = serde_json::json!({
            "name": name, "source": "test://ball", "state": "ended", "frames_in": 3, "frames_out": 2,
            "dropped": [{ "cause": "sink-behind", "frames": 1 }], "late": 1, "reconnects": 1, "fps": 1.0,
            "detections": 5, "decoder_cpu_ms": 0.5, "energy_j": 0.25, "stages": [],
            "tracked": { "objects": 2, "zones": [{ "name": "door", "inside": 1, "appeared": 2, "entered": 3,
                                                   "left": 3, "vanished": 1 }],
                         "lines": [{ "name": format!("line {}", id / 2), "a_to_b": 4, "b_to_a": 1 }] },
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
        assert_eq!((total.late, total.detections), (2000, 10_000));
        assert_eq!((total.decoder_cpu_ms, total.energy_j), (Some(1000.0), Some(500.0)));
        let tracked = total.tracked.as_ref().expect("they tracked");
        let zone = &tracked.zones[0];
        assert_eq!((tracked.objects, tracked.zones.len(), &*zone.name), (4000, 1, "door"));
        let counts = (zone.inside, zone.appeared, zone.entered, zone.left, zone.vanished);
        assert_eq!(counts, (2000, 4000, 6000, 6000, 2000));
        // Each stream has a line with another name.
        let last = tracked.lines.last().expect("there are");
        assert_eq!((tracked.lines.len(), &*last.name, last.a_to_b), (COUNTED_MAX + 1, OTHERS, 4 * 1900));
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
