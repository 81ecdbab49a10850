//! Scratch memory in which a lane's engines compute.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use orinoco_memory::{Arena, ArenaError, Owner, Usage};

use crate::context::EngineContext;
use crate::device::DevicePool;

/// Memory area that all models of a lane compute in. They can share it because they never run at the same time. It may
/// have a second area on the GPU, for the models that compute there.
#[derive(Clone, Debug)]
pub struct Scratch {
    host: Arc<Arena>,
    device: Option<Arc<DevicePool>>,
}

impl Scratch {
    /// Maps an area of `bytes` in the host's memory. The system provides pages as they are first touched.
    pub fn new(bytes: usize) -> Result<Self, ArenaError> {
        Arena::new(bytes).map(Self::on_host)
    }

    /// Maps an area of which most is never touched: see [`Arena::unreserved`].
    pub fn unreserved(bytes: usize) -> Result<Self, ArenaError> {
        Arena::unreserved(bytes).map(Self::on_host)
    }

    fn on_host(arena: Arena) -> Self {
        Self { host: Arc::new(arena), device: None }
    }

    /// Adds an area of `bytes` on the GPU.
    ///
    /// # Errors
    /// The reason in one sentence, if there is no GPU, or it has no room for the area.
    pub fn with_device_area(self, context: &EngineContext, bytes: usize) -> Result<Self, String> {
        let device = context.device().map_err(|why| why.reason)?;
        let pool = DevicePool::new(&device, bytes).map_err(|why| format!("{why}: {}", why.source))?;
        Ok(Self { device: Some(Arc::new(pool)), ..self })
    }

    /// Adds an area on the GPU that measures the size it needs: see `DevicePool::measuring` of `orinoco-cuda`.
    ///
    /// # Errors
    /// The reason in one sentence, if there is no GPU.
    pub fn with_device_measured(self, context: &EngineContext) -> Result<Self, String> {
        let device = context.device().map_err(|why| why.reason)?;
        Ok(Self { device: Some(Arc::new(DevicePool::measuring(&device))), ..self })
    }

    /// Returns the size in bytes, of the host's and the GPU's area together.
    pub fn bytes(&self) -> usize {
        self.host.bytes() + self.device_bytes()
    }

    /// Returns the usage of all models, of the host's and the GPU's area together. `refused` counts requests that did
    /// not fit, and were served by the system or the driver instead.
    pub fn usage(&self) -> Usage {
        sum(self.host.usage(), self.device_usage())
    }

    /// Returns the usage of the area on the GPU by all models.
    pub fn device_usage(&self) -> Usage {
        self.device.as_ref().map(|device| device.usage()).unwrap_or_default()
    }

    /// Returns the usage of each model, by name. A model computes in one of the areas.
    pub fn owners(&self) -> Vec<(String, Usage)> {
        let on_device = self.device.iter().flat_map(|device| device.owners());
        self.host.owners().into_iter().chain(on_device).collect()
    }

    pub(crate) fn owner(&self, name: &str) -> Owner {
        self.host.owner(name)
    }

    pub(crate) fn set_owner(&self, owner: Owner) {
        self.host.set_owner(owner);
    }

    pub(crate) fn alloc(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.host.alloc(layout)
    }

    pub(crate) fn downgrade(&self) -> Weak<Arena> {
        Arc::downgrade(&self.host)
    }

    pub(crate) fn arena_ptr(&self) -> *const Arena {
        Arc::as_ptr(&self.host)
    }

    /// Returns the area on the GPU.
    #[cfg(feature = "cuda")]
    pub(crate) fn device(&self) -> Option<&Arc<DevicePool>> {
        self.device.as_ref()
    }

    /// Returns the size of the area on the GPU, in bytes; 0 without one.
    pub fn device_bytes(&self) -> usize {
        self.device.as_ref().map_or(0, |device| device.bytes())
    }
}

fn sum(a: Usage, b: Usage) -> Usage {
    Usage {
        in_use_bytes: a.in_use_bytes + b.in_use_bytes,
        high_water_bytes: a.high_water_bytes + b.high_water_bytes,
        reach_bytes: a.reach_bytes + b.reach_bytes,
        held: a.held + b.held,
        allocations: a.allocations + b.allocations,
        refused: a.refused + b.refused,
    }
}
