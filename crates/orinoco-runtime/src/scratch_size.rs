//! Memory that a model computes in, and that a lane has for it.

use orinoco_core::text::mebibytes;
use orinoco_infer::Scratch;

/// Bytes in which a model computes, or that a lane has for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScratchSize {
    pub(crate) host_bytes: u64,
    pub(crate) device_bytes: u64,
}

impl ScratchSize {
    /// Returns the bytes that a lane has.
    pub(crate) fn of(scratch: &Scratch) -> Self {
        let device_bytes = scratch.device_bytes() as u64;
        Self { host_bytes: scratch.bytes() as u64 - device_bytes, device_bytes }
    }

    /// Enough for either of two models.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            host_bytes: self.host_bytes.max(other.host_bytes),
            device_bytes: self.device_bytes.max(other.device_bytes),
        }
    }

    /// Says why a model that needs this cannot compute in `there`.
    pub(crate) fn shortfall(self, there: Self) -> String {
        let (needed, there, place) = match self.host_bytes > there.host_bytes {
            true => (self.host_bytes, there.host_bytes, ""),
            false => (self.device_bytes, there.device_bytes, " on the GPU"),
        };
        let (short, there) = (mebibytes(needed - there), mebibytes(there));
        format!(
            "a model needs {short} more{place} to compute in than the {there} that its lane was planned with"
        )
    }

    /// Whether a model that needs this can compute in `there`.
    pub(crate) fn fits(self, there: Self) -> bool {
        self.host_bytes <= there.host_bytes && self.device_bytes <= there.device_bytes
    }
}
