//! ONNX Runtime in this process, as a context sees it.

use std::sync::{Arc, PoisonError};

use super::library::{Runtime, Search};
use super::{memory, process};
use crate::context::EngineContext;
use crate::faults::shorten;
use crate::panics::catch_panic;

/// The runtime of this process, loaded on first use with our allocator registered. A failure is not kept: the library may
/// be there next time.
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
            // Only sessions that ask for it use it.
            memory::register(&runtime.environment).map_err(|why| shorten(why.message()))?;
            Ok::<_, String>(runtime)
        })??;
        Ok(Arc::clone(slot.insert(Arc::new(runtime))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Options;

    #[test]
    #[allow(clippy::print_stdout, reason = "tests say what they skip")]
    fn contexts_share_the_library_and_nothing_breaks_one_by_the_other() {
        let one = EngineContext::default();
        let loaded = match runtime(&one) {
            Ok(loaded) => loaded,
            Err(why) => return println!("skipped: two contexts on ONNX Runtime: {why}"),
        };
        let library = loaded.info.library.clone().expect("it was loaded from a file");
        let with = |library| EngineContext::new(Options { ort_library: Some(library), ..Options::default() });
        let same = runtime(&with(library.clone())).expect("the same library");
        assert!(Arc::ptr_eq(&loaded, &same));
        let other = with("/no/such/libonnxruntime.so".into());
        let why = runtime(&other).map(|runtime| runtime.info.clone()).expect_err("one library per process");
        let loaded_is = format!("this process has already loaded {}", library.display());
        assert!(
            why.starts_with("/no/such/libonnxruntime.so cannot be used") && why.contains(&loaded_is),
            "{why}"
        );
        drop((same, other, one));
        assert!(runtime(&EngineContext::default()).is_ok(), "a context that ends leaves it to the others");
    }
}
