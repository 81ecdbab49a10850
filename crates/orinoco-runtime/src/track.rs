//! Tracks the objects of one stream from frame to frame, and counts them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use orinoco_api::{LineSummary, TrackedSummary, ZoneSummary};
use orinoco_board::{BoardStream, Shape, TrackSpec, TrackerSpec};
use orinoco_core::{Diagnosis, FrameDesc, InferenceResult, ModelId, Pts, codes};
use orinoco_pipeline::{Crossing, CrossingKind, ModelResult, StreamTracker};
use orinoco_vision::zones::{
    Counter, Direction, FramePoint, FrameSize, Line, MARGIN, ShapeError, Zone, ZoneCrossing, ZoneCrossingKind,
};
use orinoco_vision::{Across, Tracker, TrackerConfig};

/// Counts of a stream's trackers, for the summary.
#[derive(Clone)]
pub(crate) struct TrackingCounts(Arc<Mutex<State>>);

impl TrackingCounts {
    /// Returns the counts of all models together.
    pub(crate) fn summary(&self) -> TrackedSummary {
        lock(&self.0).sum()
    }
}

/// Trackers of a stream, one for each of its models.
pub(crate) struct ModelTrackers(Arc<Mutex<State>>);

struct State {
    config: TrackerConfig,
    zones: Vec<Zone>,
    lines: Vec<Line>,
    /// Trackers by model: objects of one model are not those of another.
    models: BTreeMap<ModelId, TrackedModel>,
}

/// Locks the state. Only the lane waits for this lock, and only while the summary is written.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // A poisoned lock means a panic between two counter updates: the counters are still worth showing.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

struct TrackedModel {
    tracker: Tracker,
    counter: Counter,
    /// Greatest track id so far, which is the number of objects.
    objects: u64,
}

impl ModelTrackers {
    /// Creates the trackers of a stream, with their counts. The error names a zone or a line without extent.
    pub(crate) fn new(stream: &BoardStream, spec: &TrackSpec) -> Result<(Self, TrackingCounts), Diagnosis> {
        let zones =
            spec.zones.iter().map(|shape| make_zone(&stream.name, shape)).collect::<Result<_, _>>()?;
        let lines =
            spec.lines.iter().map(|shape| make_line(&stream.name, shape)).collect::<Result<_, _>>()?;
        let config = tracker_config(&spec.tracker);
        let state = Arc::new(Mutex::new(State { config, zones, lines, models: BTreeMap::new() }));
        Ok((Self(Arc::clone(&state)), TrackingCounts(state)))
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

/// Returns the faults of a stream's zones and lines.
pub(crate) fn check_shapes(stream: &str, spec: &TrackSpec) -> Vec<Diagnosis> {
    let zones = spec.zones.iter().filter_map(|shape| make_zone(stream, shape).err());
    zones.chain(spec.lines.iter().filter_map(|shape| make_line(stream, shape).err())).collect()
}

fn make_zone(stream: &str, shape: &Shape) -> Result<Zone, Diagnosis> {
    Zone::new(&shape.name, spots(shape)).map_err(|why| shape_fault(stream, "zone", shape, &why))
}

fn make_line(stream: &str, shape: &Shape) -> Result<Line, Diagnosis> {
    let ends = spots(shape).try_into().map_err(|_| ShapeError::Flat);
    let line = ends.and_then(|ends| Line::new(&shape.name, ends));
    line.map_err(|why| shape_fault(stream, "line", shape, &why))
}

fn shape_fault(stream: &str, kind: &str, shape: &Shape, why: &ShapeError) -> Diagnosis {
    let next = "give points from 0 to 1 that form a polygon (zone) or a line";
    let subject = format!("stream {stream}, {kind} {}", shape.name);
    shape.written.fault(Diagnosis::new(&codes::KEY_RANGE, subject, why, next))
}

fn spots(shape: &Shape) -> Vec<FramePoint> {
    shape.points.iter().map(|&(x, y)| FramePoint { x, y }).collect()
}

impl StreamTracker for ModelTrackers {
    fn track(&mut self, frame: &FrameDesc, found: &mut Vec<ModelResult>) {
        let size = FrameSize { width: frame.width, height: frame.height };
        let State { config, zones, lines, models } = &mut *lock(&self.0);
        // Objects within objects are not tracked: the object that contains them is.
        for result in found.iter_mut().filter(|found| found.object.is_none()) {
            let ModelResult { model, inference, tracker_only, crossings, .. } = result;
            let tracked = models.entry(*model).or_insert_with(|| TrackedModel {
                tracker: Tracker::new(*config),
                counter: Counter::new(zones.clone(), lines.clone(), MARGIN),
                objects: 0,
            });
            tracked.tracker.update(&inference.detections, frame.pts, &mut inference.tracks);
            *tracker_only = tracker_only_rows(inference, config.score_high);
            let mut zone_crossings = Vec::new();
            tracked.counter.update(&tracked.tracker, size, &mut zone_crossings);
            crossings
                .extend(zone_crossings.iter().map(|zone_crossing| crossing(zone_crossing, zones, lines)));
            let newest = inference.tracks.iter().flatten().map(|id| id.0).max().unwrap_or(0);
            tracked.objects = tracked.objects.max(newest);
        }
        for (&model, tracked) in models {
            if !found.iter().any(|found| found.model == model) {
                found.push(predict(model, &mut tracked.tracker, frame.pts));
            }
        }
    }
}

/// Predicts where the objects of a model are in a frame that the model did not infer.
fn predict(model: ModelId, tracker: &mut Tracker, pts: Pts) -> ModelResult {
    let mut inference = InferenceResult::default();
    tracker.predict(pts, &mut inference.detections, &mut inference.tracks);
    ModelResult { model, predicted: true, inference, ..ModelResult::default() }
}

/// Marks the detections that are only for the tracker: those below `score_high` that continue no track. Empty if there are
/// none.
fn tracker_only_rows(inference: &InferenceResult, score_high: f32) -> Vec<bool> {
    let rows = inference.detections.iter().zip(&inference.tracks);
    let rows: Vec<bool> = rows.map(|(found, track)| track.is_none() && found.score < score_high).collect();
    if rows.contains(&true) { rows } else { Vec::new() }
}

fn crossing(zone_crossing: &ZoneCrossing, zones: &[Zone], lines: &[Line]) -> Crossing {
    let (name, kind) = match zone_crossing.kind {
        ZoneCrossingKind::Entered(zone) => (zones[zone].name(), CrossingKind::Entered),
        ZoneCrossingKind::Left(zone) => (zones[zone].name(), CrossingKind::Left),
        ZoneCrossingKind::Crossed(line, Direction::AToB) => (lines[line].name(), CrossingKind::AToB),
        ZoneCrossingKind::Crossed(line, Direction::BToA) => (lines[line].name(), CrossingKind::BToA),
    };
    Crossing { name: name.into(), kind, track: zone_crossing.track, class_id: zone_crossing.class_id }
}

impl State {
    fn sum(&self) -> TrackedSummary {
        let objects = self.models.values().map(|tracked| tracked.objects).sum();
        let zones = self.zones.iter().enumerate().map(|(index, zone)| {
            let mut sum = ZoneSummary { name: zone.name().to_owned(), ..ZoneSummary::default() };
            for tally in self.models.values().map(|tracked| tracked.counter.in_zones()[index].all()) {
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
            for tally in self.models.values().map(|tracked| tracked.counter.over_lines()[index].all()) {
                sum.a_to_b += tally.a_to_b;
                sum.b_to_a += tally.b_to_a;
            }
            sum
        });
        TrackedSummary { objects, zones: zones.collect(), lines: lines.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::uri;
    use orinoco_core::{BoxF, Detection, PixelFormat};

    /// Makes a detection whose reference point is at `x`, `y`.
    fn detection(x: f32, y: f32, score: f32) -> Detection {
        let bounds = BoxF { x1: x - 20.0, y1: y - 60.0, x2: x + 20.0, y2: y };
        Detection { class_id: 0, score, bounds }
    }

    /// Tracks these detections of one model, in frames of 400x300 at 25 per second. Returns the results and the summary.
    fn track(spec: &TrackSpec, frames: &[Vec<Detection>]) -> (Vec<ModelResult>, TrackedSummary) {
        let stream = BoardStream::new("s", uri("test://ball"), vec![0]);
        let (mut tracker, counted) = ModelTrackers::new(&stream, spec).expect("the shapes are sound");
        let results = frames.iter().zip(0..).map(|(detections, index)| {
            let mut frame = FrameDesc::packed(PixelFormat::Gray8, 400, 300);
            frame.pts = Pts(index * 40_000_000);
            let inference = InferenceResult { detections: detections.clone(), ..InferenceResult::default() };
            let mut found = vec![ModelResult { inference, ..ModelResult::default() }];
            tracker.track(&frame, &mut found);
            found.remove(0)
        });
        (results.collect(), counted.summary())
    }

    #[test]
    fn a_weak_detection_is_for_the_tracker_only_unless_it_continues_a_track() {
        let frames = [
            vec![detection(100.0, 150.0, 0.9), detection(300.0, 150.0, 0.2)],
            vec![detection(102.0, 150.0, 0.8), detection(300.0, 250.0, 0.4)],
            // The object is half hidden: its detection is weak, and still the same object.
            vec![detection(300.0, 150.0, 0.5), detection(104.0, 150.0, 0.3), detection(250.0, 280.0, 0.15)],
        ];
        let (results, _) = track(&TrackSpec::default(), &frames);
        let only: Vec<&[bool]> = results.iter().map(|found| &*found.tracker_only).collect();
        assert_eq!(only, [&[false, true][..], &[false, true], &[false, false, true]]);
        assert_eq!(results[2].inference.detections, frames[2], "no row moves");
        let reported = results[2].reported();
        assert_eq!(reported.detections, frames[2][..2]);
        assert_eq!(reported.tracks, [None, Some(orinoco_core::TrackId(1))]);
        let strong = [vec![detection(100.0, 150.0, 0.9)]];
        assert!(track(&TrackSpec::default(), &strong).0[0].tracker_only.is_empty(), "every row is reported");
    }

    #[test]
    fn crossings_are_in_the_result_of_their_frame() {
        let shape = |name: &str, points: &[(f32, f32)]| Shape {
            name: name.to_owned(),
            points: points.to_vec(),
            ..Shape::default()
        };
        let zone = shape("right", &[(0.5, 0.0), (1.0, 0.0), (1.0, 1.0), (0.5, 1.0)]);
        let line = shape("gate", &[(0.5, 1.0), (0.5, 0.0)]);
        let spec = TrackSpec { zones: vec![zone], lines: vec![line], ..TrackSpec::default() };
        // The object moves to the right once, and back.
        let steps = (0..20).chain((0..20).rev());
        let frames: Vec<Vec<Detection>> =
            steps.map(|step| vec![detection(105.0 + 10.0 * step as f32, 150.0, 0.9)]).collect();
        let (results, summary) = track(&spec, &frames);
        let crossings = results.iter().enumerate().flat_map(|(frame, found)| {
            found
                .crossings
                .iter()
                .map(move |Crossing { name, kind, track, .. }| format!("{frame} {track} {name} {kind:?}"))
        });
        expect_test::expect![[r#"
            10 1 right Entered
            10 1 gate AToB
            31 1 right Left
            31 1 gate BToA"#]]
        .assert_eq(&crossings.collect::<Vec<_>>().join("\n"));
        let (zone, line) = (&summary.zones[0], &summary.lines[0]);
        assert_eq!((zone.entered, zone.left, line.a_to_b + line.b_to_a), (1, 1, 2), "as the summary counts");
    }
}
