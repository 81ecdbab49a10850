//! The stages of an execution by a GPU's own clock.

use orinoco_core::{ComputeUnit, Nanos, TimeSpan};
use orinoco_pipeline::DeviceTimes;

use crate::device::{CudaError, Event, Stream};

/// Places in a stream between which the stages of an execution lie; each execution records them again.
#[derive(Debug)]
pub(crate) struct StageMarks {
    /// Before the first launch of the preprocessing.
    started: Event,
    /// After the last.
    preprocessed: Event,
    /// After the engine.
    inferred: Event,
    /// After the last launch that brings the findings to the host.
    read: Event,
}

/// One of the [`StageMarks`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark {
    Started,
    Preprocessed,
    Inferred,
    Read,
}

impl StageMarks {
    #[cfg(feature = "cuda")]
    pub(crate) fn new(device: &crate::device::Device) -> Result<Self, CudaError> {
        Ok(Self {
            started: device.event()?,
            preprocessed: device.event()?,
            inferred: device.event()?,
            read: device.event()?,
        })
    }

    /// Records a mark after what is queued in `stream`.
    pub(crate) fn record(&self, mark: Mark, stream: &Stream) -> Result<(), CudaError> {
        stream.record(match mark {
            Mark::Started => &self.started,
            Mark::Preprocessed => &self.preprocessed,
            Mark::Inferred => &self.inferred,
            Mark::Read => &self.read,
        })
    }

    /// The stages of an execution all of whose marks have passed. The host saw the engine's end at `inferred`, by which the
    /// GPU's clock is mapped to the run's: late by the microseconds that the host takes to wake. The engine's stage is all
    /// between two marks, also while an engine with a stream of its own prepares its launches. `None` where the driver does
    /// not measure: that is no reason to drop frames.
    pub(crate) fn times(&self, inferred: Nanos) -> Option<DeviceTimes> {
        let before = |event: &Event| event.until(&self.inferred).map(|duration| inferred - duration).ok();
        let (started, preprocessed) = (before(&self.started)?, before(&self.preprocessed)?);
        let read = inferred + self.inferred.until(&self.read).ok()?;
        Some(DeviceTimes {
            unit: ComputeUnit::Gpu,
            preprocess: TimeSpan::new(started, preprocessed),
            infer: TimeSpan::new(preprocessed, inferred),
            postprocess: TimeSpan::new(inferred, read),
        })
    }
}
