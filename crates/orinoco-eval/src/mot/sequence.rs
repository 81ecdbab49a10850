//! The rows of one video.

use std::fmt;

/// One object in one frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The frame's number; MOTChallenge counts from 1.
    pub frame: u32,
    /// Identity of the object: the same number in every frame.
    pub id: u64,
    /// Class of the object, by index.
    pub class: u32,
    /// Left, top, width, height in pixels.
    pub bounds: [f64; 4],
    /// Of what was found, the detector's confidence. Of what is labelled, 0 where the row is not to be judged.
    pub confidence: f64,
    /// Share of the object that can be seen, 0 to 1; labelled rows only.
    pub visibility: f64,
}

/// The rows of one video: no id is twice in a frame as the same class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sequence {
    pub(super) rows: Vec<Row>,
}

/// An id that is twice in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatedId {
    /// Index of the second of the two rows.
    pub row: usize,
    /// The frame.
    pub frame: u32,
    /// The id.
    pub id: u64,
}

impl fmt::Display for RepeatedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "id {} is twice in frame {}", self.id, self.frame)
    }
}

impl std::error::Error for RepeatedId {}

impl Sequence {
    /// Takes `rows` in any order.
    pub fn new(rows: Vec<Row>) -> Result<Self, RepeatedId> {
        let mut seen = std::collections::HashSet::with_capacity(rows.len());
        let again = rows.iter().position(|row| !seen.insert((row.frame, row.class, row.id)));
        match again {
            Some(index) => Err(RepeatedId { row: index, frame: rows[index].frame, id: rows[index].id }),
            None => Ok(Self { rows }),
        }
    }

    /// Its rows, in the order in which they were given.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The rows of the frames up to `last`.
    pub fn until(&self, last: u32) -> Self {
        Self { rows: self.rows.iter().filter(|row| row.frame <= last).copied().collect() }
    }
}
