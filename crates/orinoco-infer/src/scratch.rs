//! The memory in which a lane's engines compute.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use orinoco_memory::{Arena, ArenaError, Owner, Usage};

use crate::context::EngineContext;
use crate::device::DevicePool;

/// One area of memory for all models of a lane, which never run at the same time: what one computes in, the next computes
/// in as well. It may have a second area, on the GPU, for the models that compute there.
#[derive(Clone, Debug)]
pub struct Scratch {
    host: Arc<Arena>,
    device: Option<Arc<DevicePool>>,
}

impl Scratch {
    /// Maps `bytes`; the system gives pages as they are first touched.
    pub fn new(bytes: usize) -> Result<Self, ArenaError> {
        Arena::new(bytes).map(Self::on_host)
    }

    /// The same for an area of which most is never touched: see [`Arena::unreserved`].
    pub fn unreserved(bytes: usize) -> Result<Self, ArenaError> {
        Arena::unreserved(bytes).map(Self::on_host)
    }

    fn on_host(arena: Arena) -> Self {
        Self { host: Arc::new(arena), device: None }
    }

    /// The same with an area of `bytes` on the GPU.
    ///
    /// # Errors
    /// A sentence, where there is no GPU or no such area on it.
    pub fn with_device_area(self, context: &EngineContext, bytes: usize) -> Result<Self, String> {
        let device = context.device().map_err(|why| why.reason)?;
        let pool = DevicePool::new(&device, bytes).map_err(|why| format!("{why}: {}", why.source))?;
        Ok(Self { device: Some(Arc::new(pool)), ..self })
    }

    /// The same with an area on the GPU whose usage tells how large it has to be: see `DevicePool::measuring` of
    /// `orinoco-cuda`.
    ///
    /// # Errors
    /// A sentence, where there is no GPU.
    pub fn with_device_measured(self, context: &EngineContext) -> Result<Self, String> {
        let device = context.device().map_err(|why| why.reason)?;
        Ok(Self { device: Some(Arc::new(DevicePool::measuring(&device))), ..self })
    }

    /// Its size, on the host and the GPU together.
    pub fn bytes(&self) -> usize {
        self.host.bytes() + self.device_bytes()
    }

    /// What all models did in it, on the host and the GPU together. `refused` counts what did not fit, which then came from
    /// the system or the driver.
    pub fn usage(&self) -> Usage {
        sum(self.host.usage(), self.device_usage())
    }

    /// What all models did in its area on the GPU.
    pub fn device_usage(&self) -> Usage {
        self.device.as_ref().map(|device| device.usage()).unwrap_or_default()
    }

    /// What each model did in it, by name. A model computes in one place.
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

    /// Its area on the GPU.
    #[cfg(feature = "cuda")]
    pub(crate) fn device(&self) -> Option<&Arc<DevicePool>> {
        self.device.as_ref()
    }

    /// The size of its area on the GPU.
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
