//! Size of the memory in which models compute, and that a lane has for them.

use orinoco_core::text::mebibytes;
use orinoco_infer::Scratch;

/// Size of scratch memory: of a model's need, or of a lane's area.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScratchSize {
    pub(crate) host_bytes: u64,
    pub(crate) device_bytes: u64,
}

impl ScratchSize {
    /// Returns the size of a lane's area.
    pub(crate) fn of(scratch: &Scratch) -> Self {
        let device_bytes = scratch.device_bytes() as u64;
        Self { host_bytes: scratch.bytes() as u64 - device_bytes, device_bytes }
    }

    /// Returns the size that is enough for either of two models.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            host_bytes: self.host_bytes.max(other.host_bytes),
            device_bytes: self.device_bytes.max(other.device_bytes),
        }
    }

    /// Describes by how much the area `there` is too small for a model that needs this size.
    pub(crate) fn shortfall(self, there: Self) -> String {
        let (needed, there, place) = match self.host_bytes > there.host_bytes {
            true => (self.host_bytes, there.host_bytes, ""),
            false => (self.device_bytes, there.device_bytes, " on the GPU"),
        };
        let (short, there) = (mebibytes(needed - there), mebibytes(there));
        format!("a model needs {short} more scratch memory{place} than its lane has ({there})")
    }

    /// Whether a model that needs this size can compute in the area `there`.
    pub(crate) fn fits(self, there: Self) -> bool {
        self.host_bytes <= there.host_bytes && self.device_bytes <= there.device_bytes
    }
}
