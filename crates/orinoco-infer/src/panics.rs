//! Conversion of panics inside engines to errors.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// Whether a panic on this thread is expected and will be reported by [`catch_panic`].
    static CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, which may panic on a malformed model. A panic is returned as its message, and is not printed. Panics of
/// other threads, and of this thread outside of `work`, go to the process's own panic hook as before.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOKED: Once = Once::new();
    HOOKED.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !CATCHING.try_with(Cell::get).unwrap_or(false) {
                previous(info);
            }
        }));
    });
    let outer = CATCHING.replace(true);
    // The caller drops everything that `work` could access, so no half-changed value is visible afterwards.
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    CATCHING.set(outer);
    result.map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
        format!("the engine panicked: {text}")
    })
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_message() {
        assert_eq!(catch_panic(|| 7), Ok(7));
        let caught = catch_panic(|| panic!("index {} of {}", 3, 2)).map(|()| 0);
        assert_eq!(caught, Err("the engine panicked: index 3 of 2".to_owned()));
        assert!(!CATCHING.get());
    }
}
