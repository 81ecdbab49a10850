//! Memory area of a plan: whole pages for one purpose.

use std::fmt;

use crate::needs::{ALIGN_BYTES, Domain};

/// Purpose of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Weights, and other memory that an engine keeps between runs.
    Weights,
    /// Activations of the model that the lane executes.
    Scratch,
    /// Bound inputs and outputs.
    Io,
    /// Slots for a stream's frames, and its driver's buffers.
    Frames,
}

impl Kind {
    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::Scratch => "scratch",
            Self::Io => "inputs, outputs",
            Self::Frames => "frames",
        }
    }

    /// Returns the origin of sizes of this kind.
    pub fn basis(self) -> Basis {
        match self {
            Self::Weights | Self::Scratch | Self::Io => Basis::Measured,
            Self::Frames => Basis::Computed,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Origin of an area's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Basis {
    /// Computed from sizes in the board file, by the same rule that the allocating code follows.
    Computed,
    /// Measured in a run of the model: only the engine knows how much it takes.
    Measured,
}

impl Basis {
    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Computed => "computed",
            Self::Measured => "measured",
        }
    }
}

/// Part of an area: a model's weights, a model's use of the lane's scratch, one tensor, or a stream's slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AreaContent {
    /// Name of the model or stream; for a tensor also its own: `yolox/images`.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
}

impl AreaContent {
    /// Returns the size in an area that is a sum: rounded up to a multiple of [`ALIGN_BYTES`].
    pub fn counted_bytes(&self) -> u64 {
        self.bytes.next_multiple_of(ALIGN_BYTES)
    }
}

/// Whole pages for one purpose, which become one memory mapping or one [`Arena`](crate::Arena).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// Name of the model, the lane (`lane 0`) or the stream.
    pub name: String,
    /// Purpose of the area.
    pub kind: Kind,
    /// Memory domain of the area.
    pub domain: Domain,
    /// Lane of a scratch area.
    pub lane: Option<usize>,
    /// Revision of the model (with its engine) or source behind the name, from `revision` of its needs. Empty for a
    /// scratch area, which belongs to a lane.
    pub revision: String,
    /// Size in bytes: the sum of its shares, for a scratch area the largest of them.
    pub bytes: u64,
    /// Parts of the area.
    pub shares: Vec<AreaContent>,
}
