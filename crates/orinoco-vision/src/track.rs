//! Object tracker: assigns track ids to the detections of one stream, which stay with their objects from frame to
//! frame.
//!
//! The method is ByteTrack (Zhang et al., "ByteTrack: Multi-Object Tracking by Associating Every Detection Box", ECCV
//! 2022): a Kalman filter predicts boxes, which are matched first with detections of high score, then with those of low
//! score, which are mostly partly hidden objects. It differs in three points. Time comes from the frames' timestamps,
//! so a dropped frame is a longer step. Width and height are filtered instead of the aspect ratio, which is more
//! accurate (Aharon et al., "BoT-SORT", 2022). Ids are assigned on confirmation, so false detections use none.
//!
//! It uses boxes only. An object that moves further than its own size between frames, or that is lost for longer than
//! `lost_max`, comes back with another id.

mod assign;
mod matching;
mod motion;

use std::cmp::Ordering;
use std::ops::Range;
use std::time::Duration;

use orinoco_core::{BoxF, Detection, Nanos, Pts, TrackId};

use crate::Across;
use matching::{Entrant, Matcher};
use motion::Motion;

/// Maximum number of tracks at a time. Heads keep a few hundred detections at most; ten times that is a scene nobody
/// can count.
pub const TRACKS_MAX: usize = 4096;
/// Maximum coordinate of a detection, in pixels: boxes further out are a model's errors.
const COORDINATE_MAX: f32 = 1e6;
/// Maximum time by which a frame may be older than the one before and still count as late instead of another recording:
/// arrival timestamps have jitter.
const LATE_MAX: Duration = Duration::from_millis(100);

/// Settings of the tracker. The defaults are ByteTrack's, for detectors whose scores are like YOLOX's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrackerConfig {
    /// Minimum score of detections that are matched first, with every track. Default: 0.5.
    pub score_high: f32,
    /// Minimum score of any detection. Detections between this and `score_high` only continue tracks that were visible
    /// in the frame before, and start none. Default: 0.1.
    pub score_low: f32,
    /// Minimum score of an unmatched detection that starts a track. Default: 0.6.
    pub score_new: f32,
    /// Minimum IoU of a high-score detection with the predicted box. Default: 0.2.
    pub iou_min: f32,
    /// Minimum IoU of a low-score detection with the predicted box. It is higher, because more of these are false.
    /// Default: 0.5.
    pub iou_min_low: f32,
    /// Time without detection after which a track ends. It must be longer than the time between frames. Default: 1
    /// second.
    pub lost_max: Duration,
    /// Number of consecutive frames with an object before it gets an id; 0 is taken for 1. Default: 2.
    pub confirm_hits: u32,
    /// Whether a detection may continue a track of another class. Off by default; useful where a detector varies
    /// between car and truck.
    pub across: Across,
}

impl Default for TrackerConfig {
    fn default() -> Self {
        Self {
            score_high: 0.5,
            score_low: 0.1,
            score_new: 0.6,
            iou_min: 0.2,
            iou_min_low: 0.5,
            lost_max: Duration::from_secs(1),
            confirm_hits: 2,
            across: Across::NoClasses,
        }
    }
}

/// State of a track. Ended tracks are in [`Tracker::removed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackState {
    /// Detected in too few frames to have an id. Ends at the first frame without it.
    Tentative,
    /// Detected in the latest frame.
    Confirmed,
    /// Not detected in the latest frame. Ends after `lost_max`.
    Lost,
}

/// Track of one object, as of the latest frame.
#[derive(Clone, Copy, Debug)]
pub struct Track {
    id: Option<TrackId>,
    state: TrackState,
    class_id: u32,
    score: f32,
    hits: u32,
    seen: Pts,
    motion: Motion,
    /// Index of its detection in the latest frame.
    detection: Option<usize>,
}

impl Track {
    /// Returns its id; `None` while it is tentative.
    pub fn id(&self) -> Option<TrackId> {
        self.id
    }

    /// Returns its state.
    pub fn state(&self) -> TrackState {
        self.state
    }

    /// Returns the class of its last detection.
    pub fn class_id(&self) -> u32 {
        self.class_id
    }

    /// Returns the score of its last detection.
    pub fn score(&self) -> f32 {
        self.score
    }

    /// Returns the time of its last detection.
    pub fn seen(&self) -> Pts {
        self.seen
    }

    /// Returns the box of the Kalman filter, in source pixels. It is smoother than the detection, and also exists while
    /// the object is lost.
    pub fn bounds(&self) -> BoxF {
        self.motion.bounds()
    }
}

/// Tracks the objects of one stream.
#[derive(Clone, Debug)]
pub struct Tracker {
    config: TrackerConfig,
    tracks: Vec<Track>,
    removed: Vec<TrackId>,
    ids_given: u64,
    /// Time of the latest frame.
    now: Option<Pts>,
    /// Indices of the frame's usable detections, best first.
    order: Vec<usize>,
    /// Whether each detection of the frame continues a track.
    taken: Vec<bool>,
    matcher: Matcher,
}

impl Tracker {
    /// Creates a tracker without tracks.
    pub fn new(config: TrackerConfig) -> Self {
        Self {
            config,
            tracks: Vec::new(),
            removed: Vec::new(),
            ids_given: 0,
            now: None,
            order: Vec::new(),
            taken: Vec::new(),
            matcher: Matcher::default(),
        }
    }

    /// Updates the tracks with the `detections` of the frame at `pts`, in any order. Replaces `ids` by one entry for
    /// each detection: the id of its track, or `None` where its score is too low, its object is too new, or its box is
    /// empty or not finite.
    ///
    /// If `pts` jumps ahead by more than `lost_max`, or goes back, the camera was away and every track ends. Does not
    /// allocate after the largest number of objects has occurred.
    pub fn update(&mut self, detections: &[Detection], pts: Pts, ids: &mut Vec<Option<TrackId>>) {
        self.advance(pts);
        let strong = self.sort(detections);
        self.join(detections, strong);
        self.settle(detections);
        self.start(detections, strong);
        ids.clear();
        ids.resize(detections.len(), None);
        for track in &self.tracks {
            if let Some(index) = track.detection {
                ids[index] = track.id;
            }
        }
    }

    /// Predicts the objects of the last update for a frame at `pts` without inference. Replaces `detections` (with the
    /// scores of the last update) and `ids`. An object is only lost in a frame with inference.
    pub fn predict(&mut self, pts: Pts, detections: &mut Vec<Detection>, ids: &mut Vec<Option<TrackId>>) {
        self.advance(pts);
        detections.clear();
        ids.clear();
        for track in self.tracks.iter().filter(|track| track.state == TrackState::Confirmed) {
            let (class_id, score, bounds) = (track.class_id, track.score, track.bounds());
            detections.push(Detection { class_id, score, bounds });
            ids.push(track.id);
        }
    }

    /// Returns every track, also tentative and lost ones, the oldest first.
    pub fn tracks(&self) -> &[Track] {
        &self.tracks
    }

    /// Returns the ids of tracks that ended with the latest frame.
    pub fn removed(&self) -> &[TrackId] {
        &self.removed
    }

    /// Moves the time to `pts`, ends the tracks without detection for too long, and predicts the others.
    fn advance(&mut self, pts: Pts) {
        let before = self.now.unwrap_or(pts);
        // Back by more than lateness explains: another recording, or the same one again.
        let restarted = since(before, pts) > LATE_MAX;
        let now = if restarted { pts } else { pts.max(before) };
        self.now = Some(now);
        self.removed.clear();
        let (removed, lost_max) = (&mut self.removed, self.config.lost_max);
        self.tracks.retain(|track| {
            let ends = restarted || since(now, track.seen) > lost_max;
            if ends {
                removed.extend(track.id);
            }
            !ends
        });
        let passed = since(now, before).as_secs_f64();
        for track in &mut self.tracks {
            track.motion.predict(passed, track.state == TrackState::Lost);
            track.detection = None;
        }
    }

    /// Fills `order` with the usable detections, best first, and returns how many of them have a high score. The order
    /// depends on their values and not on their position in the list, so no later result depends on it either.
    fn sort(&mut self, detections: &[Detection]) -> usize {
        let TrackerConfig { score_low, score_high, .. } = self.config;
        let usable =
            |index: &usize| detections[*index].score >= score_low && is_box(&detections[*index].bounds);
        self.order.clear();
        self.order.extend((0..detections.len()).filter(usable));
        self.order.sort_unstable_by(|a, b| best_first(&detections[*a], &detections[*b]));
        self.order.partition_point(|index| detections[*index].score >= score_high)
    }

    /// Matches tracks and detections in ByteTrack's three stages.
    fn join(&mut self, detections: &[Detection], strong: usize) {
        self.taken.clear();
        self.taken.resize(detections.len(), false);
        let TrackerConfig { iou_min, iou_min_low, .. } = self.config;
        let weak = strong..self.order.len();
        let known = |state| matches!(state, TrackState::Confirmed | TrackState::Lost);
        self.stage(detections, 0..strong, iou_min, known);
        // Low-score detections do not bring back lost tracks, because too many of them are false.
        self.stage(detections, weak, iou_min_low, |state| state == TrackState::Confirmed);
        self.stage(detections, 0..strong, iou_min, |state| state == TrackState::Tentative);
    }

    /// Matches the free tracks whose state is `wanted` with the free detections at `places` of the order.
    fn stage(
        &mut self,
        detections: &[Detection],
        places: Range<usize>,
        iou_min: f32,
        wanted: impl Fn(TrackState) -> bool,
    ) {
        let (tracks, order, taken) = (&self.tracks, &self.order, &self.taken);
        let free = |index: &usize| tracks[*index].detection.is_none() && wanted(tracks[*index].state);
        self.matcher.rows.clear();
        self.matcher.rows.extend((0..tracks.len()).filter(free).map(|index| {
            let track = &tracks[index];
            Entrant { index, class_id: track.class_id, score: 1.0, bounds: track.bounds() }
        }));
        self.matcher.columns.clear();
        let open = order[places].iter().copied().filter(|index| !taken[*index]);
        self.matcher.columns.extend(open.map(|index| {
            let Detection { class_id, score, bounds } = detections[index];
            Entrant { index, class_id, score: score.min(1.0), bounds }
        }));
        for &(track, detection) in self.matcher.pair(iou_min, self.config.across) {
            self.tracks[track].detection = Some(detection);
            self.taken[detection] = true;
        }
    }

    /// Updates every track with its detection, or marks it as not detected.
    fn settle(&mut self, detections: &[Detection]) {
        let now = self.now.unwrap_or_default();
        for track in &mut self.tracks {
            match track.detection {
                Some(index) => {
                    track.motion.correct(&detections[index].bounds);
                    track.class_id = detections[index].class_id;
                    track.score = detections[index].score;
                    track.seen = now;
                    track.hits = track.hits.saturating_add(1);
                }
                None if track.state == TrackState::Confirmed => track.state = TrackState::Lost,
                None => {}
            }
        }
        self.tracks.retain(|track| track.state != TrackState::Tentative || track.detection.is_some());
        self.confirm();
    }

    /// Starts a track from every high-score detection that continues none.
    fn start(&mut self, detections: &[Detection], strong: usize) {
        let now = self.now.unwrap_or_default();
        for &index in &self.order[..strong] {
            let Detection { class_id, score, bounds } = detections[index];
            if self.taken[index] || score < self.config.score_new {
                continue;
            }
            if self.tracks.len() == TRACKS_MAX {
                break;
            }
            self.tracks.push(Track {
                id: None,
                state: TrackState::Tentative,
                class_id,
                score,
                hits: 1,
                seen: now,
                motion: Motion::at(&bounds),
                detection: Some(index),
            });
        }
        self.confirm();
    }

    /// Confirms the tracks with a detection in this frame, and assigns ids to those that had enough of them.
    fn confirm(&mut self) {
        for track in self.tracks.iter_mut().filter(|track| track.detection.is_some()) {
            if track.id.is_none() && track.hits >= self.config.confirm_hits {
                self.ids_given += 1;
                track.id = Some(TrackId(self.ids_given));
            }
            if track.id.is_some() {
                track.state = TrackState::Confirmed;
            }
        }
    }
}

/// Returns the time from `earlier` to `later`; zero when it is the other way round.
fn since(later: Pts, earlier: Pts) -> Duration {
    Nanos(later.0).since(Nanos(earlier.0))
}

/// Whether the box has an area, and is at a position that an image may have.
fn is_box(bounds: &BoxF) -> bool {
    let corners = [bounds.x1, bounds.y1, bounds.x2, bounds.y2];
    // Comparisons with NaN are false.
    corners.iter().all(|side| side.abs() <= COORDINATE_MAX) && bounds.area() > 0.0
}

/// Orders by score, and then by all other values: only detections that are equal in everything have no order.
fn best_first(a: &Detection, b: &Detection) -> Ordering {
    let corners = |d: &Detection| [d.bounds.x1, d.bounds.y1, d.bounds.x2, d.bounds.y2];
    let by_corners = || {
        let pairs = corners(a).into_iter().zip(corners(b));
        pairs.map(|(a, b)| a.total_cmp(&b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    };
    b.score.total_cmp(&a.score).then(a.class_id.cmp(&b.class_id)).then_with(by_corners)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: u64 = 40_000_000;

    fn at(x: f32, score: f32) -> Detection {
        Detection { class_id: 0, score, bounds: BoxF { x1: x, y1: 0.0, x2: x + 20.0, y2: 40.0 } }
    }

    /// Checks the ids for frames of detections, each at its time in milliseconds; 0 is no id.
    fn check(config: TrackerConfig, frames: &[(u64, &[Detection])], expected: &[&[u64]]) {
        let mut tracker = Tracker::new(config);
        let mut ids = Vec::new();
        for ((milliseconds, detections), expected) in frames.iter().zip(expected) {
            tracker.update(detections, Pts(milliseconds * 1_000_000), &mut ids);
            let numbers: Vec<u64> = ids.iter().map(|id| id.map_or(0, |id| id.0)).collect();
            assert_eq!(numbers, *expected, "at {milliseconds} ms");
        }
        assert_eq!(frames.len(), expected.len());
    }

    #[test]
    fn an_id_is_given_when_an_object_is_seen_again() {
        let frames: &[(u64, &[Detection])] = &[
            (0, &[at(0.0, 0.9), at(100.0, 0.9)]),
            (40, &[at(102.0, 0.9), at(1.0, 0.9), at(200.0, 0.9)]),
            (80, &[at(2.0, 0.9), at(104.0, 0.9)]),
        ];
        check(TrackerConfig::default(), frames, &[&[0, 0], &[2, 1, 0], &[1, 2]]);
        let at_once = TrackerConfig { confirm_hits: 1, ..TrackerConfig::default() };
        check(at_once, frames, &[&[1, 2], &[2, 1, 3], &[1, 2]]);
    }

    #[test]
    fn a_weak_detection_keeps_a_track_and_starts_none() {
        let frames: &[(u64, &[Detection])] = &[
            (0, &[at(0.0, 0.9), at(100.0, 0.3)]),
            (40, &[at(1.0, 0.9), at(101.0, 0.3)]),
            (80, &[at(2.0, 0.3), at(102.0, 0.3)]),
            (120, &[at(3.0, 0.05)]),
            // The object is lost by now, and a low-score detection does not bring it back.
            (160, &[at(4.0, 0.3)]),
            (200, &[at(5.0, 0.9)]),
        ];
        check(TrackerConfig::default(), frames, &[&[0, 0], &[1, 0], &[1, 0], &[0], &[0], &[1]]);
    }

    #[test]
    fn what_was_away_for_too_long_is_somebody_else() {
        let seen: &[Detection] = &[at(0.0, 0.9)];
        let frames = [
            (0, seen),
            (40, seen),
            (80, &[]),
            (1040, seen),
            (1080, &[]),
            (2060, &[]),
            (2100, seen),
            (2140, seen),
        ];
        let expected: [&[u64]; 8] = [&[0], &[1], &[], &[1], &[], &[], &[0], &[2]];
        check(TrackerConfig::default(), &frames, &expected);
    }

    #[test]
    fn a_camera_that_comes_back_starts_with_new_ids() {
        let seen: &[Detection] = &[at(0.0, 0.9)];
        // Ahead by an hour, then back to the beginning, then slightly late.
        let frames = [
            (0, seen),
            (40, seen),
            (3_600_000, seen),
            (3_600_040, seen),
            (0, seen),
            (40, seen),
            (20, seen),
            (60, seen),
        ];
        let expected: [&[u64]; 8] = [&[0], &[1], &[0], &[2], &[0], &[3], &[3], &[3]];
        check(TrackerConfig::default(), &frames, &expected);
    }

    #[test]
    fn classes_are_followed_apart_unless_told_otherwise() {
        let other = Detection { class_id: 1, ..at(2.0, 0.9) };
        let frames: &[(u64, &[Detection])] = &[(0, &[at(0.0, 0.9)]), (40, &[at(1.0, 0.9)]), (80, &[other])];
        check(TrackerConfig::default(), frames, &[&[0], &[1], &[0]]);
        let across = TrackerConfig { across: Across::AllClasses, ..TrackerConfig::default() };
        check(across, frames, &[&[0], &[1], &[1]]);
    }

    #[test]
    fn what_is_no_box_has_no_id() {
        let bounds = |x1, y1, x2, y2| Detection { class_id: 0, score: 0.9, bounds: BoxF { x1, y1, x2, y2 } };
        let odd: &[Detection] = &[
            bounds(f32::NAN, 0.0, 1.0, 1.0),
            bounds(0.0, 0.0, f32::INFINITY, 1.0),
            bounds(5.0, 5.0, 5.0, 9.0),
            bounds(9.0, 9.0, 5.0, 5.0),
            at(0.0, f32::NAN),
            at(0.0, f32::INFINITY),
        ];
        check(TrackerConfig::default(), &[(0, odd), (40, odd)], &[&[0; 6], &[0, 0, 0, 0, 0, 1]]);
    }

    #[test]
    fn a_dropped_frame_is_a_longer_step() {
        // 10 pixels in 40 ms; the box is 20 wide, so without prediction it would be lost after three frames.
        let mut tracker = Tracker::new(TrackerConfig::default());
        let mut ids = Vec::new();
        for frame in [0, 1, 2, 3, 4, 5, 6, 9, 10, 13, 14] {
            tracker.update(&[at(10.0 * frame as f32, 0.9)], Pts(frame * FRAME), &mut ids);
            assert_eq!(ids, [(frame > 0).then_some(TrackId(1))], "frame {frame}");
        }
    }

    #[test]
    fn tracks_show_their_state_and_removed_ids_are_told_once() {
        let mut tracker = Tracker::new(TrackerConfig::default());
        let mut ids = Vec::new();
        let mut step = |milliseconds: u64, detections: &[Detection]| {
            tracker.update(detections, Pts(milliseconds * 1_000_000), &mut ids);
            let states: Vec<TrackState> = tracker.tracks().iter().map(Track::state).collect();
            (states, tracker.removed().to_vec())
        };
        assert_eq!(step(0, &[at(0.0, 0.9)]), (vec![TrackState::Tentative], vec![]));
        assert_eq!(step(40, &[at(0.0, 0.9)]), (vec![TrackState::Confirmed], vec![]));
        assert_eq!(step(80, &[]), (vec![TrackState::Lost], vec![]));
        assert_eq!(step(1041, &[]), (vec![], vec![TrackId(1)]));
        assert_eq!(step(1080, &[]), (vec![], vec![]));
    }

    #[test]
    fn tracks_have_a_bound() {
        let many: Vec<Detection> = (0..TRACKS_MAX + 50).map(|index| at(30.0 * index as f32, 0.9)).collect();
        let mut tracker = Tracker::new(TrackerConfig::default());
        let mut ids = Vec::new();
        for frame in 0..3 {
            tracker.update(&many, Pts(frame * FRAME), &mut ids);
            assert_eq!(tracker.tracks().len(), TRACKS_MAX);
        }
        assert_eq!(ids.iter().flatten().count(), TRACKS_MAX);
    }

    #[test]
    fn a_warm_tracker_does_not_allocate() {
        let mut tracker = Tracker::new(TrackerConfig::default());
        let mut ids = Vec::new();
        // Overlapping neighbours make groups that the assignment has to solve.
        let mut frame = |frame: u64| {
            let seen: Vec<Detection> =
                (0..100).map(|index| at(9.0 * index as f32 + (frame % 7) as f32, 0.9)).collect();
            tracker.update(&seen[..100 - (frame % 11) as usize], Pts(frame * FRAME), &mut ids);
            let matcher = tracker.matcher.capacities();
            (
                tracker.tracks.capacity(),
                tracker.order.capacity(),
                tracker.taken.capacity(),
                ids.capacity(),
                matcher,
            )
        };
        (0..50).for_each(|index| {
            frame(index);
        });
        let warm = frame(50);
        (51..200).for_each(|index| assert_eq!(frame(index), warm, "frame {index}"));
    }
}
