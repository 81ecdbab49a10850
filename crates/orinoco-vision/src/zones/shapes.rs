//! Zones and lines in a frame, and the position of points relative to them.

use std::fmt;

/// Maximum number of corners of a zone: each track is compared with each edge in every frame.
pub const CORNERS_MAX: usize = 64;

/// Minimum area of a zone, as a fraction of the frame's area: a smaller one is a mistake. It is a hundredth of a pixel
/// of 1080p.
const AREA_MIN: f32 = 5e-9;

/// Point in the frame, measured from its upper left corner.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FramePoint {
    /// Fraction of the frame's width, 0 to 1.
    pub x: f32,
    /// Fraction of the frame's height, 0 to 1.
    pub y: f32,
}

/// Zone: a polygon whose last corner is connected with its first. If it crosses itself, parts that are covered twice
/// are outside.
#[derive(Clone, Debug, PartialEq)]
pub struct Zone {
    name: String,
    pub(super) corners: Vec<FramePoint>,
}

impl Zone {
    /// Creates a zone with a `name` and these `corners`.
    pub fn new(name: impl Into<String>, corners: Vec<FramePoint>) -> Result<Self, ShapeError> {
        if !(3..=CORNERS_MAX).contains(&corners.len()) {
            return Err(ShapeError::Corners { count: corners.len() });
        }
        check_spots(&corners)?;
        let twice: f32 = edges(&corners).map(|(a, b)| a.x * b.y - b.x * a.y).sum();
        if twice.abs() / 2.0 < AREA_MIN {
            return Err(ShapeError::Flat);
        }
        Ok(Self { name: name.into(), corners })
    }

    /// Returns the name of the zone.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Line between two sides. Looking from its first end to its second, side A is on the left and side B on the right: for
/// a line drawn from left to right, A is above and B below.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    name: String,
    from: FramePoint,
    to: FramePoint,
}

impl Line {
    /// Creates a line with a `name` between its `ends`.
    pub fn new(name: impl Into<String>, ends: [FramePoint; 2]) -> Result<Self, ShapeError> {
        check_spots(&ends)?;
        let [from, to] = ends;
        if from == to {
            return Err(ShapeError::Flat);
        }
        Ok(Self { name: name.into(), from, to })
    }

    /// Returns the name of the line.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Reason why a shape cannot be used for counting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ShapeError {
    /// A point is outside of the frame, or not a number.
    Outside {
        /// Index of the corner or end.
        index: usize,
        /// Coordinates of the point.
        point: FramePoint,
    },
    /// A zone has too few or too many corners.
    Corners {
        /// Number of its corners.
        count: usize,
    },
    /// A zone has no area, or a line has no length.
    Flat,
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outside { index, point: FramePoint { x, y } } => {
                write!(f, "point {index} is at {x}, {y}, where both are fractions of the frame from 0 to 1")
            }
            Self::Corners { count } => {
                write!(f, "it has {count} corners, where 3 to {CORNERS_MAX} are allowed")
            }
            Self::Flat => f.write_str("its points are all in one place or in one line"),
        }
    }
}

impl std::error::Error for ShapeError {}

fn check_spots(spots: &[FramePoint]) -> Result<(), ShapeError> {
    let outside = |point: &FramePoint| !(0.0..=1.0).contains(&point.x) || !(0.0..=1.0).contains(&point.y);
    match spots.iter().position(outside) {
        Some(index) => Err(ShapeError::Outside { index, point: spots[index] }),
        None => Ok(()),
    }
}

/// Size of a frame, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameSize {
    /// Width of the frame.
    pub width: u32,
    /// Height of the frame.
    pub height: u32,
}

fn edges(corners: &[FramePoint]) -> impl Iterator<Item = (FramePoint, FramePoint)> {
    corners.iter().copied().zip(corners.iter().copied().cycle().skip(1))
}

/// Whether the polygon contains the point: a ray to the right crosses its edges an odd number of times.
pub(super) fn contains(corners: &[FramePoint], point: FramePoint) -> bool {
    let crossed = |(a, b): &(FramePoint, FramePoint)| {
        (a.y > point.y) != (b.y > point.y) && point.x < a.x + (point.y - a.y) / (b.y - a.y) * (b.x - a.x)
    };
    edges(corners).filter(crossed).count() % 2 == 1
}

/// Returns the vector from `a` to `b`, in pixels.
fn way(a: FramePoint, b: FramePoint, size: FrameSize) -> (f32, f32) {
    ((b.x - a.x) * size.width as f32, (b.y - a.y) * size.height as f32)
}

/// Returns the distance of `point` from the nearest edge, in pixels.
pub(super) fn from_border(corners: &[FramePoint], point: FramePoint, size: FrameSize) -> f32 {
    let from_edge = |(a, b): (FramePoint, FramePoint)| {
        let ((ex, ey), (sx, sy)) = (way(a, b, size), way(a, point, size));
        let length = ex * ex + ey * ey;
        let along = if length > 0.0 { ((ex * sx + ey * sy) / length).clamp(0.0, 1.0) } else { 0.0 };
        (sx - along * ex).hypot(sy - along * ey)
    };
    edges(corners).map(from_edge).fold(f32::INFINITY, f32::min)
}

/// Returns the distance of `point` from the line and its extension, in pixels: positive on side B, negative on side A.
pub(super) fn beyond(line: &Line, point: FramePoint, size: FrameSize) -> f32 {
    let ((ex, ey), (sx, sy)) = (way(line.from, line.to, size), way(line.from, point, size));
    (ex * sy - ey * sx) / ex.hypot(ey)
}

/// Whether the way from `a` on one side to `b` on the other crosses the line between its ends, and not around one of
/// them.
pub(super) fn meets(line: &Line, a: FramePoint, b: FramePoint, size: FrameSize) -> bool {
    let (before, after) = (beyond(line, a, size), beyond(line, b, size));
    let share = before / (before - after);
    let crossing = FramePoint { x: a.x + share * (b.x - a.x), y: a.y + share * (b.y - a.y) };
    let ((ex, ey), (cx, cy)) = (way(line.from, line.to, size), way(line.from, crossing, size));
    (0.0..=1.0).contains(&((ex * cx + ey * cy) / (ex * ex + ey * ey)))
}
