//! A GPU in a build without CUDA: nothing here has a value, but the reason why there is none.

use std::fmt;
use std::time::Duration;

use orinoco_memory::Usage;

/// Has no values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Never {}

impl fmt::Display for Never {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

/// Why no GPU can be used here: a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// The sentence, without its full stop.
    pub reason: String,
}

/// A GPU.
#[derive(Clone, Debug)]
pub struct Device(Never);

impl Device {
    /// Says why there is none.
    ///
    /// # Errors
    /// Always.
    pub fn open(_ordinal: u32) -> Result<Self, Unavailable> {
        Err(Unavailable { reason: "this build has no CUDA".to_owned() })
    }
}

/// A call of the driver that failed.
#[derive(Clone, Debug)]
pub struct CudaError {
    /// What the driver answered.
    pub source: Never,
}

impl fmt::Display for CudaError {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source {}
    }
}

/// Bytes on a GPU.
#[derive(Clone, Debug)]
pub struct Span(Never);

/// A stream of a GPU.
#[derive(Debug)]
pub struct Stream(Never);

impl Stream {
    /// Waits for what is queued.
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

/// A lane's scratch memory on a GPU.
#[derive(Debug)]
pub(crate) struct DevicePool(Never);

impl DevicePool {
    /// Allocates it.
    ///
    /// # Errors
    /// Those of the driver.
    pub(crate) fn new(device: &Device, _bytes: usize) -> Result<Self, CudaError> {
        match device.0 {}
    }

    /// One that measures.
    pub(crate) fn measuring(device: &Device) -> Self {
        match device.0 {}
    }

    /// Its size.
    pub(crate) fn bytes(&self) -> usize {
        match self.0 {}
    }

    /// What was done in it.
    pub(crate) fn usage(&self) -> Usage {
        match self.0 {}
    }

    /// What each model did in it.
    pub(crate) fn owners(&self) -> Vec<(String, Usage)> {
        match self.0 {}
    }
}
