//! Objects of one stream, followed from frame to frame and counted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use orinoco_api::{LineSummary, TrackedSummary, ZoneSummary};
use orinoco_board::{BoardStream, Shape, TrackSpec, TrackerSpec};
use orinoco_core::{Diagnosis, Findings, FrameDesc, Pts, WithSubject, codes};
use orinoco_pipeline::{Follow, Found};
use orinoco_vision::zones::{Counter, FrameSize, Line, MARGIN, ShapeError, Spot, Zone};
use orinoco_vision::{Across, Tracker, TrackerConfig};

/// What a follower has counted, for who writes the summary.
#[derive(Clone)]
pub(crate) struct Counted(Arc<Mutex<State>>);

impl Counted {
    /// All models together.
    pub(crate) fn summary(&self) -> TrackedSummary {
        lock(&self.0).sum()
    }
}

/// Follows what each model of a stream finds.
pub(crate) struct Follower(Arc<Mutex<State>>);

struct State {
    config: TrackerConfig,
    zones: Vec<Zone>,
    lines: Vec<Line>,
    /// By model: objects of one are not those of another.
    models: BTreeMap<usize, Followed>,
}

/// Only the lane waits for it, and only while the summary is written.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // A poisoned lock means a panic between two counter updates: the counters are still worth showing.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Followed {
    tracker: Tracker,
    counter: Counter,
    /// The greatest id that was given.
    objects: u64,
}

impl Follower {
    /// A follower for a stream, and where it counts; an error names a shape that is none.
    pub(crate) fn new(stream: &BoardStream, spec: &TrackSpec) -> Result<(Self, Counted), Diagnosis> {
        let zone = |shape: &Shape| Zone::new(&shape.name, spots(shape));
        let line = |shape: &Shape| {
            let ends = spots(shape).try_into().map_err(|_| ShapeError::Flat)?;
            Line::new(&shape.name, ends)
        };
        let zones = make(stream, &spec.zones, "zone", zone)?;
        let lines = make(stream, &spec.lines, "line", line)?;
        let config = tracker_config(&spec.tracker);
        let state = Arc::new(Mutex::new(State { config, zones, lines, models: BTreeMap::new() }));
        Ok((Self(Arc::clone(&state)), Counted(state)))
    }
}

fn tracker_config(spec: &TrackerSpec) -> TrackerConfig {
    let default = TrackerConfig::default();
    TrackerConfig {
        score_high: spec.score_high.unwrap_or(default.score_high),
        score_low: spec.score_low.unwrap_or(default.score_low),
        score_new: spec.score_new.unwrap_or(default.score_new),
        iou_min: spec.iou_min.unwrap_or(default.iou_min),
        iou_min_low: spec.iou_min_low.unwrap_or(default.iou_min_low),
        lost_max: spec.lost_max.unwrap_or(default.lost_max),
        confirm_hits: spec.confirm_hits.unwrap_or(default.confirm_hits),
        across: match spec.across_classes {
            Some(true) => Across::AllClasses,
            Some(false) => Across::NoClasses,
            None => default.across,
        },
    }
}

fn make<T>(
    stream: &BoardStream,
    shapes: &[Shape],
    kind: &str,
    new: impl Fn(&Shape) -> Result<T, ShapeError>,
) -> Result<Vec<T>, Diagnosis> {
    let next = "give it points within the frame, from 0 to 1, that enclose or divide something";
    let about = |shape: &Shape| format!("stream {}, {kind} {}", stream.name, shape.name);
    shapes
        .iter()
        .map(|shape| new(shape).map_err(|why| why.to_string()).about(&codes::KEY_RANGE, about(shape), next))
        .collect()
}

fn spots(shape: &Shape) -> Vec<Spot> {
    shape.points.iter().map(|&(x, y)| Spot { x, y }).collect()
}

impl Follow for Follower {
    fn follow(&mut self, frame: &FrameDesc, found: &mut Vec<Found>) {
        let size = FrameSize { width: frame.width, height: frame.height };
        let mut passages = Vec::new();
        let State { config, zones, lines, models } = &mut *lock(&self.0);
        // Objects in objects are followed through what they are in.
        for Found { model, findings, .. } in found.iter_mut().filter(|found| found.object.is_none()) {
            let followed = models.entry(*model).or_insert_with(|| Followed {
                tracker: Tracker::new(*config),
                counter: Counter::new(zones.clone(), lines.clone(), MARGIN),
                objects: 0,
            });
            followed.tracker.update(&findings.detections, frame.pts, &mut findings.tracks);
            followed.counter.update(&followed.tracker, size, &mut passages);
            let newest = findings.tracks.iter().flatten().map(|id| id.0).max().unwrap_or(0);
            followed.objects = followed.objects.max(newest);
        }
        for (&model, followed) in models {
            if !found.iter().any(|found| found.model == model) {
                found.push(predict(model, &mut followed.tracker, frame.pts));
            }
        }
    }
}

/// Where the objects of a model are in a frame that it did not look at.
fn predict(model: usize, tracker: &mut Tracker, pts: Pts) -> Found {
    let mut findings = Findings::default();
    tracker.predict(pts, &mut findings.detections, &mut findings.tracks);
    Found { model, object: None, predicted: true, findings }
}

impl State {
    fn sum(&self) -> TrackedSummary {
        let objects = self.models.values().map(|followed| followed.objects).sum();
        let zones = self.zones.iter().enumerate().map(|(index, zone)| {
            let mut sum = ZoneSummary { name: zone.name().to_owned(), ..ZoneSummary::default() };
            for tally in self.models.values().map(|followed| followed.counter.in_zones()[index].all()) {
                sum.inside += tally.inside;
                sum.appeared += tally.appeared;
                sum.entered += tally.entered;
                sum.left += tally.left;
                sum.vanished += tally.vanished;
            }
            sum
        });
        let lines = self.lines.iter().enumerate().map(|(index, line)| {
            let mut sum = LineSummary { name: line.name().to_owned(), ..LineSummary::default() };
            for tally in self.models.values().map(|followed| followed.counter.over_lines()[index].all()) {
                sum.a_to_b += tally.a_to_b;
                sum.b_to_a += tally.b_to_a;
            }
            sum
        });
        TrackedSummary { objects, zones: zones.collect(), lines: lines.collect() }
    }
}
