//! What the engines of a program share.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cache::{Cache, CacheUnavailable};
use crate::device::{Device, Unavailable};

/// Number of the GPU that engines compute on, as the driver and ONNX Runtime count.
pub(crate) const DEVICE: u32 = 0;

/// How engines are to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Threads that share the work of one operator; 0 counts as 1. tract always runs on the caller's thread alone.
    pub threads: usize,
    /// The ONNX Runtime library to load, instead of looking for one.
    pub ort_library: Option<PathBuf>,
    /// Whether sessions are going to compute in memory of ours, where the engine allows it.
    pub shared_scratch: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { threads: 1, ort_library: None, shared_scratch: false }
    }
}

/// Everything that engines share: options, the user's cache, the GPU, and what each engine keeps for all of its models. A
/// program makes one and hands it on; clones are the same context. Several in one process do not see each other.
#[derive(Clone)]
pub struct EngineContext {
    shared: Arc<Shared>,
}

struct Shared {
    options: Options,
    cache: Result<Cache, CacheUnavailable>,
    device: Mutex<Option<Device>>,
    states: Mutex<BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

impl EngineContext {
    /// A context with the cache of this process's user.
    pub fn new(options: Options) -> Self {
        let shared = Shared {
            options,
            cache: Cache::of_process(),
            device: Mutex::new(None),
            states: Mutex::new(BTreeMap::new()),
        };
        Self { shared: Arc::new(shared) }
    }

    /// How engines are to run.
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// The user's cache, or why there is none.
    pub fn cache(&self) -> Result<&Cache, &CacheUnavailable> {
        self.shared.cache.as_ref()
    }

    /// The GPU, opened on first use. A failure is not kept: a driver may be there next time.
    ///
    /// # Errors
    /// A sentence for people.
    pub fn device(&self) -> Result<Device, Unavailable> {
        let mut slot = self.shared.device.lock().unwrap_or_else(PoisonError::into_inner);
        match slot.as_ref() {
            Some(device) => Ok(device.clone()),
            None => Ok(slot.insert(Device::open(DEVICE)?).clone()),
        }
    }

    /// What an engine keeps for all of its models, by its type, made on first use. A failure is not kept. `make` must not ask
    /// for another state.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn state<T: Any + Send + Sync, E>(
        &self,
        make: impl FnOnce() -> Result<Arc<T>, E>,
    ) -> Result<Arc<T>, E> {
        let mut states = self.shared.states.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = states.get(&TypeId::of::<T>()) {
            return Ok(Arc::clone(state).downcast().expect("a state is kept by its type"));
        }
        let state = make()?;
        states.insert(TypeId::of::<T>(), Arc::clone(&state) as _);
        Ok(state)
    }
}

impl Default for EngineContext {
    fn default() -> Self {
        Self::new(Options::default())
    }
}

impl fmt::Debug for EngineContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { options, cache, .. } = &*self.shared;
        f.debug_struct("EngineContext")
            .field("options", options)
            .field("cache", cache)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_context_keeps_states_of_its_own() {
        let (one, other) = (EngineContext::default(), EngineContext::default());
        let state = |context: &EngineContext, make: Result<u32, &'static str>| {
            context.state(|| make.map(Arc::new)).map(|state| *state)
        };
        assert_eq!(state(&one, Err("not now")), Err("not now"));
        assert_eq!(state(&one, Ok(1)), Ok(1), "a failure is not kept");
        assert_eq!(state(&one.clone(), Ok(2)), Ok(1), "a clone is the same context");
        assert_eq!(state(&other, Ok(3)), Ok(3));
        assert_eq!(one.state(|| Ok::<_, ()>(Arc::new("text"))).map(|state| *state), Ok("text"));
    }
}
