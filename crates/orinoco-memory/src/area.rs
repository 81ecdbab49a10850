//! One purpose that memory is planned for, in whole pages.

use std::fmt;

use crate::needs::{ALIGN_BYTES, Domain};

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// What an engine keeps between runs.
    Weights,
    /// Activations of whichever model of the lane executes.
    Scratch,
    /// Bound inputs and outputs.
    Io,
    /// Slots of a stream's frames, and its driver's buffers.
    Frames,
}

impl Kind {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::Scratch => "scratch",
            Self::Io => "inputs, outputs",
            Self::Frames => "frames",
        }
    }

    /// How the bytes of this kind are known.
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

/// How the bytes of an area are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Basis {
    /// From sizes that the board gives, by the rule that the allocating code follows.
    Computed,
    /// Counted after the fact, in a run of the model: how much an engine takes, only the engine knows.
    Measured,
}

impl Basis {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Computed => "computed",
            Self::Measured => "measured",
        }
    }
}

/// What an area is made of: a model's weights, a model's need of the lane's scratch, one tensor, a stream's slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AreaContent {
    /// The model or stream, and for a tensor its name: `yolox/images`.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
}

impl AreaContent {
    /// Its bytes as they count in an area that is a sum: in whole multiples of [`ALIGN_BYTES`].
    pub fn counted_bytes(&self) -> u64 {
        self.bytes.next_multiple_of(ALIGN_BYTES)
    }
}

/// Whole pages for one purpose: what becomes one mapping, or one [`Arena`](crate::Arena).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// The model, the lane (`lane 0`) or the stream.
    pub name: String,
    /// What it is for.
    pub kind: Kind,
    /// Whose memory it is.
    pub domain: Domain,
    /// The lane, of a scratch.
    pub lane: Option<usize>,
    /// Which model on which engine, or which source, is behind the name: what `revision` of its needs says. Empty for a
    /// scratch, which is anybody's.
    pub revision: String,
    /// Its size: the sum of its shares, of a scratch the largest of them.
    pub bytes: u64,
    /// What it is made of.
    pub shares: Vec<AreaContent>,
}
