use std::fmt;

use orinoco_config::{FaultList, Faults};
use orinoco_core::Diagnosis;

use crate::{BoardModel, BoardStream, TrackSpec};

/// Why there is no board.
#[derive(Clone, Debug)]
pub enum BoardError {
    /// Nothing of it can be used.
    Faults(Faults),
    /// The sources of some streams are none; everything else holds. Whoever can check more of it (that files are there, that
    /// models are described) does so, and reports all faults together.
    Sources {
        /// Models, as in [`crate::Board::models`].
        models: Vec<BoardModel>,
        /// All streams, in the order of the file. At least one has a fault.
        streams: Vec<Result<BoardStream, SourceFault>>,
    },
}

/// What is left of a stream whose source is none.
#[derive(Clone, Debug)]
pub struct SourceFault {
    /// Its name.
    pub stream: String,
    /// How its objects are followed, as in [`BoardStream::track`].
    pub track: Option<TrackSpec>,
    /// What is wrong with its source.
    pub fault: Diagnosis,
}

impl BoardError {
    /// Returns the faults that are known without a further check.
    pub fn faults(&self) -> Faults {
        match self {
            Self::Faults(faults) => faults.clone(),
            Self::Sources { streams, .. } => {
                let wrong = streams.iter().filter_map(|stream| stream.as_ref().err());
                let mut faults = FaultList::default();
                faults.extend(wrong.map(|stream| stream.fault.clone()));
                faults.finish(()).expect_err("at least one source is wrong")
            }
        }
    }
}

impl From<Faults> for BoardError {
    fn from(faults: Faults) -> Self {
        Self::Faults(faults)
    }
}

impl From<Diagnosis> for BoardError {
    fn from(fault: Diagnosis) -> Self {
        Self::Faults(fault.into())
    }
}

impl From<BoardError> for Faults {
    fn from(error: BoardError) -> Self {
        error.faults()
    }
}

impl fmt::Display for BoardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.faults().fmt(f)
    }
}

impl std::error::Error for BoardError {}
