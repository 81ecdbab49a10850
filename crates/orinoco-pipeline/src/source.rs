use std::time::Duration;

use orinoco_core::Diagnosis;

use crate::Frame;

/// Source of frames. It runs on a thread of its own and may fail on its own; [`crate::SourceRunner`] opens it,
/// reads it, and opens it again.
pub trait Source: Send {
    /// Opens or reopens it. Returns within a bound that the source names in its documentation.
    fn open(&mut self) -> Result<(), SourceError>;

    /// The next frame, waiting at most `wait`.
    fn next(&mut self, wait: Duration) -> Result<Poll, SourceError>;

    /// Gives back everything that [`Source::open`] took. Called before each reopening and at the end.
    fn close(&mut self);

    /// Whether it delivers frames. One that does not keeps its stream alive, and counts as live once it is open.
    fn has_frames(&self) -> bool {
        true
    }

    /// Maximum number of frames that it can have delivered and not got back; `None` where there is no bound, or nobody knows
    /// it. Asked when it has delivered its first frame.
    fn frames_max(&self) -> Option<usize> {
        None
    }

    /// Returns the name of the decoder or capture element of its frames, if it was chosen by this source and is known already.
    fn decoder(&self) -> Option<String> {
        None
    }
}

/// Result of [`Source::next`].
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation for each frame")]
pub enum Poll {
    /// A frame. Its `seq` and `stream` are set by the runner.
    Frame(Frame),
    /// Nothing yet.
    Pending,
    /// Nothing yet, by our own doing: its time has not come, the pipeline holds every slot, or it was left out. This is no
    /// silence.
    Waiting,
    /// The end: no more frames will come.
    End,
}

/// Reason for which a source stopped delivering.
#[derive(Clone, Debug)]
pub enum SourceError {
    /// Trying again may help: a camera that went away.
    Transient(Diagnosis),
    /// Trying again will not help: a damaged file.
    Permanent(Diagnosis),
}

impl SourceError {
    /// The fault.
    pub fn diagnosis(&self) -> &Diagnosis {
        match self {
            Self::Transient(diagnosis) | Self::Permanent(diagnosis) => diagnosis,
        }
    }
}
