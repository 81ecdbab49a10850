//! Access of a context to the ONNX Runtime of this process.

use std::sync::{Arc, PoisonError};

use super::library::{Runtime, Search};
use super::{memory, process};
use crate::context::EngineContext;
use crate::engine_error::shorten;
use crate::panics::catch_panic;

/// Returns the runtime of this process, which is loaded on first use with our allocator registered. A failure is not
/// kept, because the library may be available next time.
pub(super) fn runtime(context: &EngineContext) -> Result<Arc<Runtime>, String> {
    context.state(|| {
        let mut slot = process::RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = slot.as_ref() {
            runtime.check_is(context.options().ort_library.as_deref())?;
            return Ok(Arc::clone(runtime));
        }
        let search = Search::of(context);
        let runtime = catch_panic(|| {
            let runtime = search.load()?;
            // Only sessions that request the allocator use it.
            memory::register(&runtime.environment).map_err(|why| shorten(why.message()))?;
            Ok::<_, String>(runtime)
        })??;
        Ok(Arc::clone(slot.insert(Arc::new(runtime))))
    })
}
