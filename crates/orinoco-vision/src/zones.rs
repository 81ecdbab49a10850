//! Counting (as in DeepStream's nvdsanalytics): the objects in each zone, and the crossings of each line.
//!
//! Coordinates are fractions of the frame, so they hold at any resolution. The reference point of an object is the
//! bottom centre of its box, as the tracker's filter smooths it. Boxes jitter, so a border is only crossed when the
//! reference point is beyond it by a margin; each crossing is counted once.

mod shapes;

pub use shapes::{CORNERS_MAX, FramePoint, FrameSize, Line, ShapeError, Zone};

use orinoco_core::{BoxF, TrackId};

use crate::track::{TrackState, Tracker};
use shapes::{beyond, contains, from_border, meets};

/// Default margin beyond a border, as a fraction of the frame's height: 11 pixels of 1080. Boxes jitter by a few
/// hundredths of their own height.
pub const MARGIN: f32 = 0.01;
/// Direction of a line crossing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Crossing from side A to side B.
    AToB,
    /// Crossing from side B to side A.
    BToA,
}

/// Event of one object in one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneCrossing {
    /// Track id of the object.
    pub track: TrackId,
    /// Class of the object when its track began.
    pub class_id: u32,
    /// Kind of event.
    pub kind: ZoneCrossingKind,
}

/// Kind of [`ZoneCrossing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneCrossingKind {
    /// The object entered the zone with this index.
    Entered(usize),
    /// The object left the zone with this index.
    Left(usize),
    /// The object crossed the line with this index.
    Crossed(usize, Direction),
}

/// Counts of a zone so far. `inside` is always `appeared + entered - left - vanished`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneTally {
    /// Objects inside the zone now. An object that is hidden for a moment stays inside.
    pub inside: u64,
    /// Objects whose track began inside the zone.
    pub appeared: u64,
    /// Crossings into the zone.
    pub entered: u64,
    /// Crossings out of the zone.
    pub left: u64,
    /// Objects whose track ended inside the zone.
    pub vanished: u64,
}

/// Counts of a line so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineTally {
    /// Crossings from side A to side B.
    pub a_to_b: u64,
    /// Crossings from side B to side A.
    pub b_to_a: u64,
}

/// Counts for all classes together and for each class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tallies<T> {
    all: T,
    classes: Vec<(u32, T)>,
}

impl<T: Copy + Default> Tallies<T> {
    /// Returns the count of all classes together.
    pub fn all(&self) -> T {
        self.all
    }

    /// Returns the classes that occurred, in the order of their ids, each with its count.
    pub fn classes(&self) -> &[(u32, T)] {
        &self.classes
    }

    /// Returns the count of one class.
    pub fn class(&self, class_id: u32) -> T {
        self.classes.iter().find(|(known, _)| *known == class_id).map(|(_, tally)| *tally).unwrap_or_default()
    }

    /// Applies `change` to the count of all classes and to that of one class.
    fn count(&mut self, class_id: u32, change: impl Fn(&mut T)) {
        let place = self.classes.binary_search_by_key(&class_id, |(known, _)| *known);
        let place = place.unwrap_or_else(|place| {
            self.classes.insert(place, (class_id, T::default()));
            place
        });
        change(&mut self.all);
        change(&mut self.classes[place].1);
    }
}

/// Counts the objects of one stream.
#[derive(Clone, Debug)]
pub struct Counter {
    zones: Vec<Zone>,
    lines: Vec<Line>,
    margin: f32,
    in_zones: Vec<Tallies<ZoneTally>>,
    over_lines: Vec<Tallies<LineTally>>,
    /// Objects with a track, sorted by id.
    known: Vec<KnownObject>,
    /// Whether the object is inside, for each place of `known` and each zone.
    inside: Vec<bool>,
    /// Side of the object, for each place of `known` and each line.
    stands: Vec<LineSide>,
    /// Free places.
    free: Vec<usize>,
}

/// Object with a track.
#[derive(Clone, Copy, Debug)]
struct KnownObject {
    id: TrackId,
    class_id: u32,
    place: usize,
    /// Whether the tracker still has its track.
    lives: bool,
}

/// Side of a line on which an object certainly is, and its reference point at that time.
#[derive(Clone, Copy, Debug, Default)]
struct LineSide {
    beyond: bool,
    point: FramePoint,
}

impl Counter {
    /// Creates a counter for `zones` and `lines`. A border is crossed when the reference point is beyond it by
    /// `margin`, a fraction of the frame's height (normally [`MARGIN`]).
    pub fn new(zones: Vec<Zone>, lines: Vec<Line>, margin: f32) -> Self {
        Self {
            in_zones: vec![Tallies::default(); zones.len()],
            over_lines: vec![Tallies::default(); lines.len()],
            zones,
            lines,
            margin,
            known: Vec::new(),
            inside: Vec::new(),
            stands: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Returns the zones in the order in which they were given.
    pub fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// Returns the lines in the order in which they were given.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Returns the counts of each zone.
    pub fn in_zones(&self) -> &[Tallies<ZoneTally>] {
        &self.in_zones
    }

    /// Returns the counts of each line.
    pub fn over_lines(&self) -> &[Tallies<LineTally>] {
        &self.over_lines
    }

    /// Updates the counts with the tracks of `tracker` after a frame of `size`, and appends events to `zone_crossings`. Does
    /// not allocate after the largest number of simultaneous objects, and all classes, have occurred.
    pub fn update(&mut self, tracker: &Tracker, size: FrameSize, zone_crossings: &mut Vec<ZoneCrossing>) {
        self.known.iter_mut().for_each(|known| known.lives = false);
        let named = tracker.tracks().iter().filter_map(|track| Some((track.id()?, track)));
        for (id, track) in named {
            if let Ok(index) = self.known.binary_search_by_key(&id, |known| known.id) {
                self.known[index].lives = true;
            }
            // A hidden object stays at its last position, because its predicted reference point may be anywhere.
            let point =
                reference_point(&track.bounds(), size).filter(|_| track.state() == TrackState::Confirmed);
            if let Some(point) = point {
                self.see(id, track.class_id(), point, size, zone_crossings);
            }
        }
        for index in (0..self.known.len()).rev() {
            if !self.known[index].lives {
                self.forget(index);
            }
        }
    }

    /// Updates the object `id`, whose reference point is `point`.
    fn see(
        &mut self,
        id: TrackId,
        class_id: u32,
        point: FramePoint,
        size: FrameSize,
        zone_crossings: &mut Vec<ZoneCrossing>,
    ) {
        match self.known.binary_search_by_key(&id, |known| known.id) {
            Ok(index) => self.follow(self.known[index], point, size, zone_crossings),
            Err(index) => {
                let place = self.open_place();
                self.known.insert(index, KnownObject { id, class_id, place, lives: true });
                self.appear(class_id, place, point, size);
            }
        }
    }

    fn open_place(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            let place = self.known.len();
            self.inside.resize((place + 1) * self.zones.len(), false);
            self.stands.resize((place + 1) * self.lines.len(), LineSide::default());
            place
        })
    }

    /// Adds a new object. Its reference point alone decides on zones and sides of lines, without a margin.
    fn appear(&mut self, class_id: u32, place: usize, point: FramePoint, size: FrameSize) {
        for (index, zone) in self.zones.iter().enumerate() {
            let inside = contains(&zone.corners, point);
            self.inside[place * self.zones.len() + index] = inside;
            if inside {
                self.in_zones[index].count(class_id, |tally| {
                    tally.inside += 1;
                    tally.appeared += 1;
                });
            }
        }
        for (index, line) in self.lines.iter().enumerate() {
            let beyond = beyond(line, point, size) > 0.0;
            self.stands[place * self.lines.len() + index] = LineSide { beyond, point };
        }
    }

    fn follow(
        &mut self,
        known: KnownObject,
        point: FramePoint,
        size: FrameSize,
        zone_crossings: &mut Vec<ZoneCrossing>,
    ) {
        let KnownObject { id, class_id, place, .. } = known;
        let margin = self.margin * size.height as f32;
        let mut report =
            |kind: ZoneCrossingKind| zone_crossings.push(ZoneCrossing { track: id, class_id, kind });
        for (index, zone) in self.zones.iter().enumerate() {
            let inside = &mut self.inside[place * self.zones.len() + index];
            // A zone is entered without a margin, because it may be narrower than that.
            let within = contains(&zone.corners, point);
            if within && !*inside {
                *inside = true;
                self.in_zones[index].count(class_id, |tally| {
                    tally.inside += 1;
                    tally.entered += 1;
                });
                report(ZoneCrossingKind::Entered(index));
            } else if !within && *inside && from_border(&zone.corners, point, size) > margin {
                *inside = false;
                self.in_zones[index].count(class_id, |tally| {
                    tally.inside -= 1;
                    tally.left += 1;
                });
                report(ZoneCrossingKind::Left(index));
            }
        }
        for (index, line) in self.lines.iter().enumerate() {
            let stand = &mut self.stands[place * self.lines.len() + index];
            let by = beyond(line, point, size);
            if by.abs() <= margin {
                continue;
            }
            let before = std::mem::replace(stand, LineSide { beyond: by > 0.0, point });
            if before.beyond == stand.beyond || !meets(line, before.point, point, size) {
                continue;
            }
            let direction = if stand.beyond { Direction::AToB } else { Direction::BToA };
            self.over_lines[index].count(class_id, |tally| match direction {
                Direction::AToB => tally.a_to_b += 1,
                Direction::BToA => tally.b_to_a += 1,
            });
            report(ZoneCrossingKind::Crossed(index, direction));
        }
    }

    /// Removes the object at `index` of `known`, whose track has ended.
    fn forget(&mut self, index: usize) {
        let KnownObject { class_id, place, .. } = self.known.remove(index);
        self.free.push(place);
        for (zone, tallies) in self.in_zones.iter_mut().enumerate() {
            if self.inside[place * self.zones.len() + zone] {
                tallies.count(class_id, |tally| {
                    tally.inside -= 1;
                    tally.vanished += 1;
                });
            }
        }
    }
}

/// Returns the reference point of an object: the bottom centre of its box, which may be outside of the frame.
fn reference_point(bounds: &BoxF, size: FrameSize) -> Option<FramePoint> {
    let x = (bounds.x1 + bounds.x2) / 2.0 / size.width as f32;
    let y = bounds.y2 / size.height as f32;
    (x.is_finite() && y.is_finite()).then_some(FramePoint { x, y })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::track::TrackerConfig;
    use orinoco_core::{Detection, Pts};

    const SIZE: FrameSize = FrameSize { width: 200, height: 100 };

    fn point(x: f32, y: f32) -> FramePoint {
        FramePoint { x, y }
    }

    fn counter() -> Counter {
        let square = vec![point(0.25, 0.25), point(0.75, 0.25), point(0.75, 0.75), point(0.25, 0.75)];
        let zone = Zone::new("square", square).expect("a square");
        // Across the middle of the frame, from left to right: side A is above.
        let line = Line::new("middle", [point(0.25, 0.5), point(0.75, 0.5)]).expect("a line");
        Counter::new(vec![zone], vec![line], 0.02)
    }

    /// Checks the events of an object whose reference point takes these positions, one after the other.
    fn check(path: &[(f32, f32)], expected: &[ZoneCrossingKind]) {
        let mut counter = counter();
        let mut zone_crossings = Vec::new();
        for (x, y) in path {
            counter.see(TrackId(1), 0, point(*x, *y), SIZE, &mut zone_crossings);
        }
        let done: Vec<ZoneCrossingKind> =
            zone_crossings.iter().map(|zone_crossing| zone_crossing.kind).collect();
        assert_eq!(done, expected, "{path:?}");
        counter.forget(0);
        let tally = counter.in_zones()[0].all();
        assert_eq!((tally.inside, tally.appeared + tally.entered), (0, tally.left + tally.vanished));
    }

    #[test]
    fn passages_are_counted_once() {
        use Direction::{AToB, BToA};
        use ZoneCrossingKind::{Crossed, Entered, Left};
        // Straight down through the zone and over the line.
        check(&[(0.5, 0.1), (0.5, 0.3), (0.5, 0.6), (0.5, 0.9)], &[Entered(0), Crossed(0, AToB), Left(0)]);
        check(&[(0.5, 0.6), (0.5, 0.4)], &[Crossed(0, BToA)]);
        // Jitter on the line, then a crossing; jitter on the border of the zone, and back inside.
        check(&[(0.5, 0.4), (0.5, 0.51), (0.5, 0.49), (0.5, 0.515), (0.5, 0.53)], &[Crossed(0, AToB)]);
        check(&[(0.5, 0.7), (0.5, 0.76), (0.5, 0.74), (0.5, 0.765), (0.5, 0.7)], &[]);
        // A jump over the line, as after an occlusion.
        check(&[(0.4, 0.3), (0.6, 0.7)], &[Crossed(0, AToB)]);
        // Around the line's end, and then back over the line itself.
        check(&[(0.2, 0.4), (0.2, 0.6), (0.3, 0.6), (0.3, 0.4)], &[Entered(0), Crossed(0, BToA)]);
        // There and back again are two crossings.
        check(&[(0.5, 0.4), (0.5, 0.6), (0.5, 0.4)], &[Crossed(0, AToB), Crossed(0, BToA)]);
        // The track begins on the line: moving to one side is not a crossing from the other.
        check(&[(0.5, 0.5), (0.5, 0.4)], &[]);
        check(&[(0.5, 0.5), (0.5, 0.6)], &[Crossed(0, AToB)]);
    }

    #[test]
    fn classes_and_places_are_kept_apart() {
        let mut counter = counter();
        let mut zone_crossings = Vec::new();
        let mut see =
            |id, class_id, x, y| counter.see(TrackId(id), class_id, point(x, y), SIZE, &mut zone_crossings);
        see(1, 7, 0.5, 0.3);
        see(2, 3, 0.5, 0.1);
        see(3, 3, 0.5, 0.3);
        see(2, 3, 0.5, 0.3);
        // A class that changes later does not change the counts.
        see(1, 3, 0.5, 0.7);
        counter.forget(0);
        counter.see(TrackId(4), 7, point(0.0, 0.0), SIZE, &mut zone_crossings);
        assert_eq!(counter.stands.len(), 3, "the place of the first is used again");
        let zone = &counter.in_zones()[0];
        assert_eq!(zone.all(), ZoneTally { inside: 2, appeared: 2, entered: 1, left: 0, vanished: 1 });
        assert_eq!(zone.class(7), ZoneTally { inside: 0, appeared: 1, entered: 0, left: 0, vanished: 1 });
        assert_eq!(zone.class(3), ZoneTally { inside: 2, appeared: 1, entered: 1, left: 0, vanished: 0 });
        assert_eq!(zone.class(5), ZoneTally::default());
        assert_eq!(counter.over_lines()[0].classes(), [(7, LineTally { a_to_b: 1, b_to_a: 0 })]);
    }

    #[test]
    fn tracks_are_counted_by_their_feet() {
        let (mut tracker, mut counter) = (Tracker::new(TrackerConfig::default()), counter());
        let (mut ids, mut zone_crossings) = (Vec::new(), Vec::new());
        for frame in 0..40u16 {
            // Down through the frame by 2 pixels per frame; the reference point is 20 below the top.
            let top = f32::from(frame) * 2.0 - 10.0;
            let bounds = BoxF { x1: 95.0, y1: top, x2: 105.0, y2: top + 20.0 };
            let seen = [Detection { class_id: 0, score: 0.9, bounds }];
            tracker.update(&seen, Pts(u64::from(frame) * 40_000_000), &mut ids);
            counter.update(&tracker, SIZE, &mut zone_crossings);
        }
        let done: Vec<ZoneCrossingKind> =
            zone_crossings.iter().map(|zone_crossing| zone_crossing.kind).collect();
        assert_eq!(
            done,
            [
                ZoneCrossingKind::Entered(0),
                ZoneCrossingKind::Crossed(0, Direction::AToB),
                ZoneCrossingKind::Left(0)
            ]
        );
        // The camera is away: the track ends, and its object is removed.
        tracker.update(&[], Pts(3_600_000_000_000), &mut ids);
        counter.update(&tracker, SIZE, &mut zone_crossings);
        assert!(counter.known.is_empty());
    }

    #[test]
    fn shapes_are_checked() {
        let zone = |corners: &[(f32, f32)]| {
            let corners = corners.iter().map(|(x, y)| point(*x, *y)).collect();
            Zone::new("z", corners).map_or_else(|fault| fault.to_string(), |zone| zone.name().to_owned())
        };
        assert_eq!(zone(&[(0.0, 0.0), (1.0, 0.0), (1.0, 1.0)]), "z");
        assert_eq!(zone(&[(0.0, 0.0), (1.0, 0.0)]), "it has 2 corners, where 3 to 64 are allowed");
        assert_eq!(
            zone(&[(0.0, 0.0), (1.0, 0.0), (f32::NAN, 1.0)]),
            "point 2 is at NaN, 1, where both are fractions of the frame from 0 to 1"
        );
        let flat = "its points are all in one place or in one line";
        assert_eq!(zone(&[(0.0, 0.0), (0.5, 0.5), (1.0, 1.0)]), flat);
        assert_eq!(Line::new("l", [point(0.5, 0.5); 2]), Err(ShapeError::Flat));
        let outside = ShapeError::Outside { index: 1, point: point(0.0, 640.0) };
        assert_eq!(Line::new("l", [point(0.0, 0.0), point(0.0, 640.0)]), Err(outside));
    }

    #[test]
    fn a_frame_without_size_has_no_places() {
        let bounds = BoxF { x1: 0.0, y1: 0.0, x2: 10.0, y2: 10.0 };
        assert_eq!(reference_point(&bounds, FrameSize { width: 0, height: 0 }), None);
    }
}
