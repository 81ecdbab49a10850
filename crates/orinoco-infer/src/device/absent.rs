//! GPU types of a build without CUDA. None of them can have a value, except the reason why there is no GPU.

use std::fmt;
use std::time::Duration;

use orinoco_memory::Usage;

/// Type without values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Never {}

impl fmt::Display for Never {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

/// Reason why no GPU can be used: a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// Sentence, without its full stop.
    pub reason: String,
}

/// GPU. It has no values in this build.
#[derive(Clone, Debug)]
pub struct Device(Never);

impl Device {
    /// Returns the reason why there is no GPU.
    ///
    /// # Errors
    /// Always fails.
    pub fn open(_ordinal: u32) -> Result<Self, Unavailable> {
        Err(Unavailable { reason: "this build has no CUDA".to_owned() })
    }
}

/// Failed call of the CUDA driver. It has no values in this build.
#[derive(Clone, Debug)]
pub struct CudaError {
    /// Error of the driver.
    pub source: Never,
}

impl fmt::Display for CudaError {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source {}
    }
}

/// Memory range on a GPU. It has no values in this build.
#[derive(Clone, Debug)]
pub struct Span(Never);

/// CUDA stream. It has no values in this build.
#[derive(Debug)]
pub struct Stream(Never);

impl Stream {
    /// Waits for all queued work.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        match self.0 {}
    }

    /// Marks a place in it.
    ///
    /// # Errors
    /// Those of the driver.
    pub(crate) fn record(&self, _event: &Event) -> Result<(), CudaError> {
        match self.0 {}
    }
}

/// A place in a stream.
#[derive(Debug)]
pub(crate) struct Event(Never);

impl Event {
    /// Time from this event to a later one.
    ///
    /// # Errors
    /// Those of the driver.
    pub(crate) fn until(&self, _later: &Event) -> Result<Duration, CudaError> {
        match self.0 {}
    }
}

/// Scratch memory of a lane on a GPU. It has no values in this build.
#[derive(Debug)]
pub(crate) struct DevicePool(Never);

impl DevicePool {
    /// Allocates a pool.
    ///
    /// # Errors
    /// Those of the driver.
    pub(crate) fn new(device: &Device, _bytes: usize) -> Result<Self, CudaError> {
        match device.0 {}
    }

    /// Creates a pool that measures the size it needs.
    pub(crate) fn measuring(device: &Device) -> Self {
        match device.0 {}
    }

    /// Returns the size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self.0 {}
    }

    /// Returns the usage of all models.
    pub(crate) fn usage(&self) -> Usage {
        match self.0 {}
    }

    /// Returns the usage of each model, by name.
    pub(crate) fn owners(&self) -> Vec<(String, Usage)> {
        match self.0 {}
    }
}
