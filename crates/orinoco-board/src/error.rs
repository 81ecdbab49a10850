use std::fmt;

use orinoco_config::{FaultList, Faults};
use orinoco_core::Diagnosis;

use crate::{BoardModel, BoardStream, TrackSpec};

/// Reason why there is no checked board.
#[derive(Clone, Debug)]
pub enum BoardError {
    /// Faults of the file or its entries. No part of the file can be used.
    Faults(Faults),
    /// Faults of some streams' sources; everything else is valid. The caller checks more of the board (that files
    /// exist, that models have a description), and reports all faults together.
    Sources {
        /// Models, as in [`crate::Board::models`].
        models: Vec<BoardModel>,
        /// Streams in the order of the file. At least one has a fault.
        streams: Vec<Result<BoardStream, SourceFault>>,
    },
}

/// Stream whose source has a fault.
#[derive(Clone, Debug)]
pub struct SourceFault {
    /// Name of the stream.
    pub stream: String,
    /// Object tracking, as in [`BoardStream::track`].
    pub track: Option<TrackSpec>,
    /// Fault of the source.
    pub fault: Diagnosis,
}

impl BoardError {
    /// Returns the faults that are known without further checks.
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
