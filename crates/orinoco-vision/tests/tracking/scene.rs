//! Generated videos: objects that walk, meet, hide behind each other and leave, and the detections of a poor detector.
//! The same seed makes the same video.

use orinoco_core::{BoxF, Detection, Pts};
use orinoco_eval::mot::Row;

/// Width of the frame, in pixels.
pub(crate) const WIDTH: f32 = 1280.0;
/// Height of the frame, in pixels.
pub(crate) const HEIGHT: f32 = 720.0;
/// Minimum visible share at which an object is labelled.
const LABELLED_MIN: f32 = 0.25;

/// Random number generator with a seed: SplitMix64 (Steele et al., "Fast Splittable Pseudorandom Number Generators",
/// OOPSLA 2014).
pub(crate) struct Chance(u64);

impl Chance {
    /// Creates a generator. The same seed gives the same numbers.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number from 0 to 1.
    pub(crate) fn unit(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Returns a number from `low` to `high`.
    pub(crate) fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.unit()
    }

    /// Returns a number with mean 0 and deviation 1: the sum of twelve units minus six, which is nearly normal.
    pub(crate) fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.unit()).sum::<f32>() - 6.0
    }

    fn happens(&mut self, probability: f32) -> bool {
        self.unit() < probability
    }
}

/// Path of an object: its centre, in pixels, at a time in seconds since it appeared.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// Constant velocity, in pixels per second.
    Straight { x: f32, y: f32, vx: f32, vy: f32 },
    /// Straight path with a vertical swing of `swing` pixels, once in `period` seconds.
    Swinging { x: f32, y: f32, vx: f32, swing: f32, period: f32 },
    /// Straight path for `until` seconds, then standing still.
    Stopping { x: f32, y: f32, vx: f32, until: f32 },
}

impl Way {
    fn at(&self, seconds: f32) -> (f32, f32) {
        match *self {
            Self::Straight { x, y, vx, vy } => (x + vx * seconds, y + vy * seconds),
            Self::Swinging { x, y, vx, swing, period } => {
                (x + vx * seconds, y + swing * (seconds / period * std::f32::consts::TAU).sin())
            }
            Self::Stopping { x, y, vx, until } => (x + vx * seconds.min(until), y),
        }
    }
}

/// Object of a scene.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Actor {
    /// Class of the object.
    pub(crate) class_id: u32,
    /// Width and height in pixels.
    pub(crate) size: (f32, f32),
    /// Path of the object.
    pub(crate) way: Way,
    /// Time at which it appears, in seconds.
    pub(crate) from: f32,
    /// Time at which it disappears, in seconds.
    pub(crate) until: f32,
}

impl Actor {
    fn bounds(&self, seconds: f32) -> Option<BoxF> {
        let ((x, y), (w, h)) = (self.way.at(seconds - self.from), self.size);
        let there = (self.from..self.until).contains(&seconds)
            && (0.0..WIDTH).contains(&x)
            && (0.0..HEIGHT).contains(&y);
        there.then_some(BoxF { x1: x - w / 2.0, y1: y - h / 2.0, x2: x + w / 2.0, y2: y + h / 2.0 })
    }
}

/// Quality of a detector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Detector {
    /// Deviation of each edge, as a share of the box's side.
    pub(crate) jitter: f32,
    /// Probability of missing a visible object.
    pub(crate) misses: f32,
    /// Mean number of false detections in a frame.
    pub(crate) strays: f32,
}

/// Description of a generated video.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    /// Objects of the scene. Of two, the one whose lower edge is lower hides the other.
    pub(crate) actors: Vec<Actor>,
    /// Pillars that hide every object behind them.
    pub(crate) pillars: Vec<BoxF>,
    /// Quality of the detector.
    pub(crate) detector: Detector,
    /// Length in seconds.
    pub(crate) length: f32,
    /// Frames per second.
    pub(crate) rate: f32,
    /// Probability that a frame is dropped.
    pub(crate) drops: f32,
    /// Interval without frames, in seconds, in which the camera was away.
    pub(crate) away: Option<(f32, f32)>,
}

/// Frame of a scene.
#[derive(Clone, Debug)]
pub(crate) struct Filmed {
    /// Presentation time of the frame.
    pub(crate) pts: Pts,
    /// Detections of the detector.
    pub(crate) seen: Vec<Detection>,
    /// Object of each detection; `None` for false ones.
    pub(crate) whose: Vec<Option<u64>>,
    /// Labelled objects; `frame` is the frame's index.
    pub(crate) labelled: Vec<Row>,
}

impl Scene {
    /// Generates the frames.
    pub(crate) fn film(&self, chance: &mut Chance) -> Vec<Filmed> {
        let mut frames = Vec::new();
        for index in 0..(self.length * self.rate) as u32 {
            let seconds = index as f32 / self.rate;
            let away = self.away.is_some_and(|(from, until)| (from..until).contains(&seconds));
            if chance.happens(self.drops) || away {
                continue;
            }
            let there: Vec<(usize, BoxF)> =
                self.actors.iter().enumerate().filter_map(|(id, a)| Some((id, a.bounds(seconds)?))).collect();
            let mut filmed =
                Filmed { pts: pts(seconds), seen: Vec::new(), whose: Vec::new(), labelled: Vec::new() };
            for &(id, bounds) in &there {
                let class_id = self.actors[id].class_id;
                let visible = self.visible(bounds, &there);
                if visible >= LABELLED_MIN {
                    filmed.labelled.push(row(frames.len(), id as u64, class_id, &bounds));
                }
                filmed.seen.extend(self.detector.look(class_id, &bounds, visible, chance));
                filmed.whose.resize(filmed.seen.len(), Some(id as u64));
            }
            filmed.seen.extend(self.detector.stray(chance));
            filmed.whose.resize(filmed.seen.len(), None);
            frames.push(filmed);
        }
        frames
    }

    /// Returns the visible share of a box: the part that the largest object in front does not cover.
    fn visible(&self, bounds: BoxF, there: &[(usize, BoxF)]) -> f32 {
        let nearer = there.iter().map(|(_, other)| *other).filter(|other| other.y2 > bounds.y2);
        let covered = nearer.chain(self.pillars.iter().copied()).map(|front| {
            let across = (bounds.x2.min(front.x2) - bounds.x1.max(front.x1)).max(0.0);
            let down = (bounds.y2.min(front.y2) - bounds.y1.max(front.y1)).max(0.0);
            across * down / bounds.area()
        });
        1.0 - covered.fold(0.0, f32::max)
    }
}

impl Detector {
    /// Returns the detection of an object, unless it is missed. The less of it is visible, the lower is its score; below
    /// a fifth it is always missed.
    fn look(&self, class_id: u32, bounds: &BoxF, visible: f32, chance: &mut Chance) -> Option<Detection> {
        let missed = chance.happens(self.misses) || visible < 0.2;
        let (w, h) = (bounds.x2 - bounds.x1, bounds.y2 - bounds.y1);
        let mut shake = |side: f32| side * self.jitter * chance.normal();
        let bounds = BoxF {
            x1: bounds.x1 + shake(w),
            y1: bounds.y1 + shake(h),
            x2: bounds.x2 + shake(w),
            y2: bounds.y2 + shake(h),
        };
        let score = (0.95 * visible.sqrt() - 0.1 * chance.normal().abs()).clamp(0.05, 1.0);
        (!missed).then_some(Detection { class_id, score, bounds })
    }

    /// Returns a false detection, mostly with a low score.
    fn stray(&self, chance: &mut Chance) -> Option<Detection> {
        let (x, y) = (chance.between(0.0, WIDTH), chance.between(0.0, HEIGHT));
        let (w, h) = (chance.between(20.0, 80.0), chance.between(40.0, 160.0));
        let score = chance.between(0.05, 0.75);
        chance.happens(self.strays).then_some(Detection {
            class_id: 0,
            score,
            bounds: BoxF { x1: x, y1: y, x2: x + w, y2: y + h },
        })
    }
}

/// Makes a row in MOTChallenge's form.
pub(crate) fn row(frame: usize, id: u64, class_id: u32, bounds: &BoxF) -> Row {
    let [x1, y1, x2, y2] = [bounds.x1, bounds.y1, bounds.x2, bounds.y2].map(f64::from);
    Row {
        frame: frame as u32,
        id,
        class: class_id,
        bounds: [x1, y1, x2 - x1, y2 - y1],
        confidence: 1.0,
        visibility: 1.0,
    }
}

fn pts(seconds: f32) -> Pts {
    Pts((f64::from(seconds) * 1e9) as u64)
}

/// Returns every kind of scene, by name.
pub(crate) fn all(seed: u64) -> Vec<(&'static str, Scene)> {
    let mut chance = Chance::new(seed);
    let c = &mut chance;
    let good = Detector { jitter: 0.015, misses: 0.03, strays: 0.1 };
    let scene = |actors: Vec<Actor>| Scene {
        actors,
        pillars: Vec::new(),
        detector: good,
        length: 20.0,
        rate: 25.0,
        drops: 0.0,
        away: None,
    };
    let pillar = |x: f32| BoxF { x1: x, y1: 0.0, x2: x + 90.0, y2: HEIGHT };
    vec![
        ("walking apart", scene(lanes(c, 8, 1.0))),
        ("crossing", scene(meeting(c, 6))),
        ("behind pillars", Scene { pillars: vec![pillar(400.0), pillar(800.0)], ..scene(lanes(c, 8, 1.6)) }),
        ("coming and going", scene(passing(c, 40))),
        ("turning", scene(swinging(c, 10))),
        ("stopping", scene(stopping(c, 8))),
        (
            "poor detector",
            Scene {
                detector: Detector { jitter: 0.03, misses: 0.12, strays: 0.6 },
                ..scene(lanes(c, 8, 1.0))
            },
        ),
        ("dropped frames", Scene { drops: 0.4, ..scene(meeting(c, 5)) }),
        ("five frames per second", Scene { rate: 5.0, ..scene(lanes(c, 8, 1.0)) }),
        ("crowd", scene(passing(c, 90))),
        ("two classes", scene(classes(c, 6))),
        ("camera away", returning(scene(lanes(c, 8, 0.5)))),
    ]
}

/// Makes objects that each have their own lane, alternately from the left and from the right.
fn lanes(chance: &mut Chance, count: usize, pace: f32) -> Vec<Actor> {
    let lane = |index: usize| 60.0 + (HEIGHT - 120.0) * index as f32 / count as f32;
    let actor = |index: usize| {
        let right = index.is_multiple_of(2);
        let speed = chance.between(70.0, 120.0) * pace;
        let (x, vx) = if right { (10.0, speed) } else { (WIDTH - 10.0, -speed) };
        Actor {
            class_id: 0,
            size: (chance.between(40.0, 60.0), chance.between(60.0, 74.0)),
            way: Way::Straight { x, y: lane(index), vx, vy: 0.0 },
            from: chance.between(0.0, 3.0),
            until: 20.0,
        }
    };
    (0..count).map(actor).collect()
}

/// Makes pairs that walk through each other, one slightly in front of the other.
fn meeting(chance: &mut Chance, pairs: usize) -> Vec<Actor> {
    let pair = |index: usize| {
        let y = 100.0 + 90.0 * index as f32;
        let size = (chance.between(36.0, 50.0), chance.between(90.0, 120.0));
        let (there, back) = (chance.between(90.0, 160.0), chance.between(90.0, 160.0));
        let actor = |x: f32, y: f32, vx: f32| Actor {
            class_id: 0,
            size,
            way: Way::Straight { x, y, vx, vy: 0.0 },
            from: 0.0,
            until: 20.0,
        };
        [actor(20.0, y, there), actor(WIDTH - 20.0, y + 12.0, -back)]
    };
    (0..pairs).flat_map(pair).collect()
}

/// Makes objects that go in any direction, and exist for some seconds.
fn passing(chance: &mut Chance, count: usize) -> Vec<Actor> {
    let actor = |_| {
        let from = chance.between(0.0, 16.0);
        Actor {
            class_id: 0,
            size: (chance.between(30.0, 55.0), chance.between(80.0, 130.0)),
            way: Way::Straight {
                x: chance.between(0.0, WIDTH),
                y: chance.between(80.0, HEIGHT - 20.0),
                vx: chance.between(-120.0, 120.0),
                vy: chance.between(-30.0, 30.0),
            },
            from,
            until: from + chance.between(2.0, 6.0),
        }
    };
    (0..count).map(actor).collect()
}

fn swinging(chance: &mut Chance, count: usize) -> Vec<Actor> {
    let actor = |index: usize| Actor {
        class_id: 0,
        size: (chance.between(40.0, 60.0), chance.between(60.0, 90.0)),
        way: Way::Swinging {
            x: 10.0 + 120.0 * index as f32,
            y: HEIGHT / 2.0,
            vx: chance.between(-10.0, 10.0),
            swing: chance.between(100.0, 250.0),
            period: chance.between(3.0, 6.0),
        },
        from: 0.0,
        until: 20.0,
    };
    (0..count).map(actor).collect()
}

fn stopping(chance: &mut Chance, count: usize) -> Vec<Actor> {
    let actor = |index: usize| Actor {
        class_id: 0,
        size: (chance.between(40.0, 60.0), chance.between(60.0, 80.0)),
        way: Way::Stopping {
            x: 10.0,
            y: 60.0 + 80.0 * index as f32,
            vx: chance.between(80.0, 200.0),
            until: chance.between(2.0, 5.0),
        },
        from: chance.between(0.0, 3.0),
        until: 20.0,
    };
    (0..count).map(actor).collect()
}

/// Makes pairs with one box in two classes, like a rider and a bicycle.
fn classes(chance: &mut Chance, pairs: usize) -> Vec<Actor> {
    let lanes = lanes(chance, pairs, 1.0);
    let rider = |actor: &Actor| Actor { class_id: 1, size: (actor.size.0, actor.size.1 * 0.9), ..*actor };
    lanes.iter().flat_map(|actor| [*actor, rider(actor)]).collect()
}

/// Makes the camera be away for five seconds. Objects after that are labelled with new ids, because no tracker can know
/// them.
fn returning(scene: Scene) -> Scene {
    let (from, until) = (8.0, 13.0);
    let actors = scene.actors.iter().flat_map(|actor| {
        let (x, y) = actor.way.at((until - actor.from).max(0.0));
        let way = match actor.way {
            Way::Straight { vx, vy, .. } => Way::Straight { x, y, vx, vy },
            other => other,
        };
        [Actor { until: from, ..*actor }, Actor { way, from: until, ..*actor }]
    });
    Scene { actors: actors.collect(), away: Some((from, until)), ..scene }
}
