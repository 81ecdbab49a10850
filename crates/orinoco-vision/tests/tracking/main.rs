//! Runs the tracker on generated videos, evaluated by the metrics of multi-object tracking; and tests properties that
//! hold for any input.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
#![allow(clippy::print_stdout, reason = "the figures, shown with --nocapture")]

mod scene;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use orinoco_core::TrackId;
use orinoco_core::{BoxF, Detection, Pts};
use orinoco_eval::mot::{Report, Sequence, evaluate};
use orinoco_vision::track::{Tracker, TrackerConfig};
use orinoco_vision::zones::{
    Counter, Direction, FramePoint, FrameSize, Line, MARGIN, Zone, ZoneCrossing, ZoneCrossingKind,
};
use proptest::prelude::*;
use scene::{Chance, Filmed, Scene};

/// Minimum IDF1 of the tracker over all scenes together.
const IDF1_MIN: f64 = 0.95;
/// Maximum difference of IDF1, in each scene, from a tracker that knows the object of each detection: no tracker can
/// identify what the detector did not find. Where objects appear among others, one that is hidden at that moment may
/// lend them its id.
const IDF1_BEHIND_MAX: f64 = 0.06;

/// Whether long tests are enabled: `ORINOCO_TEST_LONG=1`.
fn long() -> bool {
    std::env::var_os("ORINOCO_TEST_LONG").is_some()
}

/// Evaluates the ids that `name` assigns to the detections of each frame.
fn judge(frames: &[Filmed], mut name: impl FnMut(&Filmed) -> Vec<Option<u64>>) -> Report {
    let (mut found, mut labelled) = (Vec::new(), Vec::new());
    for (index, frame) in frames.iter().enumerate() {
        let ids = name(frame);
        let named = frame.seen.iter().zip(ids).filter_map(|(seen, id)| Some((seen, id?)));
        found.extend(named.map(|(seen, id)| scene::row(index, id, seen.class_id, &seen.bounds)));
        labelled.extend(&frame.labelled);
    }
    let sequence = |rows| Sequence::new(rows).expect("ids are unique in a frame");
    evaluate(&sequence(labelled), &sequence(found))
}

fn track(frames: &[Filmed]) -> Report {
    let mut tracker = Tracker::new(TrackerConfig::default());
    let mut ids = Vec::new();
    judge(frames, |frame| {
        tracker.update(&frame.seen, frame.pts, &mut ids);
        ids.iter().map(|id| id.map(|id| id.0)).collect()
    })
}

/// Returns the figures of a tracker that knows the object of each detection, and uses those with a sufficient score.
fn follow_knowing(frames: &[Filmed]) -> Report {
    let weakest = TrackerConfig::default().score_low;
    judge(frames, |frame| {
        let strong = |(seen, whose): (&Detection, &Option<u64>)| whose.filter(|_| seen.score >= weakest);
        frame.seen.iter().zip(&frame.whose).map(strong).collect()
    })
}

#[test]
fn frames_that_nobody_searched_are_not_misses() {
    // 25 frames per second with inference on every fifth; two objects that pass one another.
    let (step, searched_every) = (40_000_000, 5);
    let object = |x1: f32, y1: f32| Detection {
        class_id: 0,
        score: 0.9,
        bounds: BoxF { x1, y1, x2: x1 + 40.0, y2: y1 + 80.0 },
    };
    let scene = |frame: u64| [object(2.0 * frame as f32, 100.0), object(400.0 - frame as f32, 110.0)];
    let mut tracker = Tracker::new(TrackerConfig::default());
    let (mut found, mut ids) = (Vec::new(), Vec::new());
    let mut named = BTreeSet::new();
    for frame in 0..200_u64 {
        let (truth, pts) = (scene(frame), Pts(frame * step));
        if frame % searched_every == 0 {
            tracker.update(&truth, pts, &mut ids);
            named.extend(ids.iter().flatten().copied());
            continue;
        }
        tracker.predict(pts, &mut found, &mut ids);
        assert_eq!(found.len(), ids.len());
        // From the third inference on, the filter knows the speeds.
        if frame > 3 * searched_every {
            assert_eq!(found.len(), 2, "frame {frame}");
            for (found, truth) in found.iter().zip(&truth) {
                assert!(found.bounds.iou(&truth.bounds) > 0.85, "frame {frame}: {found:?} {truth:?}");
                assert_eq!((found.class_id, found.score), (0, 0.9));
            }
        }
    }
    assert_eq!(named.len(), 2, "nobody was lost");
    // An object that is not found by an inference is predicted no more.
    tracker.update(&[], Pts(200 * step), &mut ids);
    tracker.predict(Pts(201 * step), &mut found, &mut ids);
    assert!(found.is_empty());
}

#[test]
fn objects_keep_their_ids() {
    let seeds = if long() { 30 } else { 3 };
    let mut scenes: BTreeMap<&str, (Report, Report)> = BTreeMap::new();
    for seed in 0..seeds {
        for (name, scene) in scene::all(seed) {
            let frames = scene.film(&mut Chance::new(seed ^ 0xf11b));
            let (ours, best) = scenes.entry(name).or_default();
            *ours += &track(&frames);
            *best += &follow_knowing(&frames);
        }
    }
    let mut all = <(Report, Report)>::default();
    for (ours, best) in scenes.values() {
        all.0 += ours;
        all.1 += best;
    }
    println!("{:<20}  IDF1  at best  HOTA   MOTA   switches   boxes   ({seeds} seeds)", "scene");
    for (name, (ours, best)) in scenes.iter().chain([(&"all", &all)]) {
        println!(
            "{name:<20}  {:.3}  {:.3}   {:.3}  {:.3}  {:>8} {:>7}",
            idf1(ours),
            idf1(best),
            ours.hota.hota(),
            ours.clear.mota().unwrap_or(0.0),
            ours.clear.switches,
            ours.clear.hits + ours.clear.misses,
        );
    }
    assert!(idf1(&all.0) >= IDF1_MIN, "IDF1 of all is {}", idf1(&all.0));
    for (name, (ours, best)) in &scenes {
        let (ours, best) = (idf1(ours), idf1(best));
        assert!(ours >= best - IDF1_BEHIND_MAX, "IDF1 of `{name}` is {ours}, where {best} could be reached");
    }
}

#[test]
fn dropped_frames_are_followed_by_the_clock() {
    let (mut by_clock, mut by_frame) = <(Report, Report)>::default();
    for seed in 0..8 {
        let scenes = scene::all(seed);
        let (_, dropping) = scenes.iter().find(|(name, _)| *name == "dropped frames").expect("a scene");
        let mut frames = dropping.film(&mut Chance::new(seed ^ 0xf11b));
        by_clock += &track(&frames);
        for (index, frame) in (0u64..).zip(&mut frames) {
            frame.pts = Pts(index * 40_000_000);
        }
        by_frame += &track(&frames);
    }
    let (by_clock, by_frame) = (idf1(&by_clock), idf1(&by_frame));
    println!("two of five frames dropped: IDF1 {by_clock:.3} by the clock, {by_frame:.3} by counting frames");
    assert!(by_clock > by_frame + 0.1, "{by_clock} by the clock, {by_frame} by counting frames");
}

fn idf1(report: &Report) -> f64 {
    report.identity.idf1().unwrap_or(0.0)
}

#[test]
fn who_walks_through_is_counted_once() {
    for seed in 0..if long() { 100 } else { 5 } {
        let scenes = scene::all(seed);
        let (_, walking) = scenes.iter().find(|(name, _)| *name == "walking apart").expect("a scene");
        // Every lane crosses the middle; even ones go right, and those that started in time arrive.
        let over = |right: bool| {
            let middle = scene::WIDTH / 2.0;
            walking.actors.iter().filter(|actor| goes_right(actor) == right && arrives(actor, middle)).count()
        };
        let passages = count(walking, seed);
        let crossed = |wanted: Direction| {
            passages.iter().filter(|passage| passage.kind == ZoneCrossingKind::Crossed(0, wanted)).count()
        };
        // Looking down the line, side A is on the left: to the east.
        assert_eq!(crossed(Direction::BToA), over(true), "to the right, seed {seed}");
        assert_eq!(crossed(Direction::AToB), over(false), "to the left, seed {seed}");
        let left = passages.iter().filter(|passage| passage.kind == ZoneCrossingKind::Left(0)).count();
        assert_eq!(left, over(true), "out of the left half, seed {seed}");
    }
}

fn goes_right(actor: &scene::Actor) -> bool {
    matches!(actor.way, scene::Way::Straight { vx, .. } if vx > 0.0)
}

/// Whether the actor passes the middle well before the scene ends.
fn arrives(actor: &scene::Actor, middle: f32) -> bool {
    let scene::Way::Straight { x, vx, .. } = actor.way else { return false };
    actor.from + (middle - x) / vx < actor.until - 1.0
}

/// Makes a counter for the left half of the frame, and for the line between the halves, drawn from the top to the
/// bottom.
fn halves() -> Counter {
    let corners = [(0.0, 0.0), (0.5, 0.0), (0.5, 1.0), (0.0, 1.0)].map(|(x, y)| FramePoint { x, y });
    let zone = Zone::new("left", corners.to_vec()).expect("a zone");
    let line =
        Line::new("middle", [FramePoint { x: 0.5, y: 0.0 }, FramePoint { x: 0.5, y: 1.0 }]).expect("a line");
    Counter::new(vec![zone], vec![line], MARGIN)
}

fn count(scene: &Scene, seed: u64) -> Vec<ZoneCrossing> {
    let size = FrameSize { width: scene::WIDTH as u32, height: scene::HEIGHT as u32 };
    let mut tracker = Tracker::new(TrackerConfig::default());
    let mut counter = halves();
    let (mut ids, mut passages) = (Vec::new(), Vec::new());
    for frame in scene.film(&mut Chance::new(seed)) {
        tracker.update(&frame.seen, frame.pts, &mut ids);
        counter.update(&tracker, size, &mut passages);
        let tally = counter.in_zones()[0].all();
        assert_eq!(tally.inside + tally.left + tally.vanished, tally.appeared + tally.entered);
    }
    passages
}

/// Generates any number that a model may output, mostly sensible ones.
fn number() -> impl Strategy<Value = f32> {
    prop_oneof![
        20 => -50.0f32..700.0,
        1 => any::<f32>(),
        1 => prop_oneof![Just(f32::NAN), Just(f32::INFINITY), Just(f32::NEG_INFINITY), Just(0.0), Just(f32::MAX)],
    ]
}

fn detection() -> impl Strategy<Value = Detection> {
    let size = prop_oneof![10 => 1.0f32..200.0, 1 => number()];
    let score = prop_oneof![10 => 0.0f32..1.0, 1 => number()];
    (number(), number(), size.clone(), size, score, 0u32..3).prop_map(|(x, y, w, h, score, class_id)| {
        Detection { class_id, score, bounds: BoxF { x1: x, y1: y, x2: x + w, y2: y + h } }
    })
}

/// Generates frames whose times mostly increase.
fn video() -> impl Strategy<Value = Vec<(Pts, Vec<Detection>)>> {
    let step = prop_oneof![10 => 0i64..200_000_000, 1 => any::<i64>()];
    // Boxes of one frame also appear in the next, else there would be no tracks.
    let frame = prop::collection::vec(detection(), 0..12);
    (frame, prop::collection::vec((step, prop::collection::vec(detection(), 0..4)), 1..20)).prop_map(
        |(stay, frames)| {
            let mut now = 0u64;
            let filmed = |(step, more): (i64, Vec<Detection>)| {
                now = now.saturating_add_signed(step);
                (Pts(now), stay.iter().copied().chain(more).collect())
            };
            frames.into_iter().map(filmed).collect()
        },
    )
}

/// Returns the bits of a detection's values, by which detections are distinguished.
fn bits(detection: &Detection) -> [u32; 6] {
    let BoxF { x1, y1, x2, y2 } = detection.bounds;
    let [x1, y1, x2, y2, score] = [x1, y1, x2, y2, detection.score].map(f32::to_bits);
    [detection.class_id, score, x1, y1, x2, y2]
}

proptest! {
    #[test]
    fn any_input_has_sound_ids(video in video()) {
        let mut tracker = Tracker::new(TrackerConfig::default());
        let mut ids = Vec::new();
        let mut ended: BTreeSet<TrackId> = BTreeSet::new();
        let mut newest = TrackId(0);
        let (mut counter, mut passages) = (halves(), Vec::new());
        for (pts, detections) in &video {
            let before = newest;
            tracker.update(detections, *pts, &mut ids);
            counter.update(&tracker, FrameSize { width: 640, height: 480 }, &mut passages);
            let tally = counter.in_zones()[0].all();
            prop_assert_eq!(tally.inside + tally.left + tally.vanished, tally.appeared + tally.entered);
            prop_assert_eq!(ids.len(), detections.len());
            ended.extend(tracker.removed());
            let given: Vec<TrackId> = ids.iter().copied().flatten().collect();
            let distinct: BTreeSet<TrackId> = given.iter().copied().collect();
            prop_assert_eq!(distinct.len(), given.len(), "an id twice in a frame");
            prop_assert!(distinct.is_disjoint(&ended), "an id that had ended");
            newest = newest.max(given.iter().copied().max().unwrap_or(TrackId(0)));
            for track in tracker.tracks() {
                prop_assert!(!ended.contains(&track.id().unwrap_or(TrackId(0))));
            }
            prop_assert!(newest >= before);
        }
    }

    #[test]
    fn the_order_of_detections_changes_nothing(video in video(), seed in any::<u64>()) {
        let (mut tracker, mut shuffled_tracker) =
            (Tracker::new(TrackerConfig::default()), Tracker::new(TrackerConfig::default()));
        let (mut ids, mut shuffled_ids) = (Vec::new(), Vec::new());
        let mut chance = Chance::new(seed);
        for (pts, detections) in &video {
            let mut shuffled = detections.clone();
            for last in (1..shuffled.len()).rev() {
                shuffled.swap(last, (chance.unit() * last as f32) as usize);
            }
            tracker.update(detections, *pts, &mut ids);
            shuffled_tracker.update(&shuffled, *pts, &mut shuffled_ids);
            let named = |detections: &[Detection], ids: &[Option<TrackId>]| {
                let mut named: Vec<_> = detections.iter().map(bits).zip(ids.iter().copied()).collect();
                named.sort_unstable();
                named
            };
            prop_assert_eq!(named(detections, &ids), named(&shuffled, &shuffled_ids));
        }
    }
}

#[test]
fn a_frame_takes_little_time() {
    if !long() {
        println!("skipped: the time of a frame (ORINOCO_TEST_LONG is not set)");
        return;
    }
    for objects in [10, 100, 1000, 4000] {
        let (median, worst) =
            time(objects, |chance, _| (chance.between(0.0, 1280.0), chance.between(0.0, 720.0)));
        println!("{objects} objects: {median:?} a frame in the middle, {worst:?} at worst");
    }
    // All objects at one point.
    for objects in [100, 1000, 4000] {
        let (median, worst) =
            time(objects, |chance, _| (chance.between(600.0, 620.0), chance.between(300.0, 320.0)));
        println!("{objects} objects on one spot: {median:?} a frame in the middle, {worst:?} at worst");
        // The median, because the worst time may include waiting for another process.
        assert!(median < Duration::from_secs(2), "{objects} objects on one spot take {median:?}");
    }
}

/// Returns the median and the worst time of an update with `objects` boxes, each at its own `place` with jitter.
fn time(objects: usize, place: impl Fn(&mut Chance, usize) -> (f32, f32)) -> (Duration, Duration) {
    let mut chance = Chance::new(1);
    let places: Vec<(f32, f32)> = (0..objects).map(|index| place(&mut chance, index)).collect();
    let mut tracker = Tracker::new(TrackerConfig::default());
    let mut ids = Vec::new();
    let mut times = Vec::new();
    for frame in 0..60u64 {
        let see = |(x, y): &(f32, f32)| {
            let (x, y) = (x + chance.normal(), y + chance.normal());
            let bounds = BoxF { x1: x, y1: y, x2: x + 40.0, y2: y + 80.0 };
            Detection { class_id: 0, score: chance.between(0.6, 0.95), bounds }
        };
        let seen: Vec<Detection> = places.iter().map(see).collect();
        let begun = Instant::now();
        tracker.update(&seen, Pts(frame * 40_000_000), &mut ids);
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    (times[times.len() / 2], times[times.len() - 1])
}
