//! Deferred freeing of device memory. Freeing waits for the whole device first, and such a wait ends every capture that is under way on
//! it, whichever thread makes that (CUDA C++ Programming Guide, "Prohibited and Unhandled Operations" of stream capture). So
//! what loses its last owner during a capture is freed when no capture is left.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::block::Block;

/// Captures under way on a device, and what waits for their end. As long as it is locked no capture begins.
#[derive(Default)]
pub(crate) struct DeferredFrees(Mutex<State>);

#[derive(Default)]
struct State {
    captures: usize,
    /// There is no more than was allocated, which the memory plan bounds, and a capture takes milliseconds.
    waiting: Vec<Block>,
}

impl DeferredFrees {
    /// Holds back what is freed until as many captures have ended as began.
    pub(crate) fn begin_capture(&self) {
        self.lock().captures += 1;
    }

    /// Ends a capture. After the last one, frees what waited for it, once `wait` has waited for the device.
    pub(crate) fn end_capture(&self, wait: impl FnOnce()) {
        let mut state = self.lock();
        state.captures -= 1;
        if state.captures == 0 && !state.waiting.is_empty() {
            wait();
            mem::take(&mut state.waiting).into_iter().for_each(Block::free);
        }
    }

    /// Frees a block whose last owner has gone: now, once `wait` has waited for the device, or after the last capture.
    pub(crate) fn free(&self, block: Block, wait: impl FnOnce()) {
        let mut state = self.lock();
        match state.captures {
            0 => {
                wait();
                block.free();
            }
            _ => state.waiting.push(block),
        }
    }

    /// Waits for the device by `wait`, unless a capture is under way; returns whether it waited.
    pub(crate) fn unless_capturing(&self, wait: impl FnOnce() -> bool) -> bool {
        let state = self.lock();
        state.captures == 0 && wait()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing between two changes of it panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
