//! What is freed, and when. Freeing waits for the whole device first, and such a wait ends every capture that is under way on
//! it, whichever thread makes that (CUDA C++ Programming Guide, "Prohibited and Unhandled Operations" of stream capture). So
//! what loses its last owner during a capture is freed when no capture is left.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::device::Context;
use crate::memory::Block;

/// Captures under way on a device, and what waits for their end. As long as it is locked no capture begins.
#[derive(Default)]
pub(crate) struct Frees(Mutex<State>);

#[derive(Default)]
struct State {
    captures: usize,
    /// There is no more than was allocated, which the memory plan bounds, and a capture takes milliseconds.
    waiting: Vec<Block>,
}

/// While it is held, nothing on its device is freed, and nobody waits for the whole of it.
#[must_use = "what is freed meanwhile waits only as long as it is held"]
pub struct CaptureGuard {
    context: Arc<Context>,
}

impl CaptureGuard {
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        context.frees().lock().captures += 1;
        Self { context: Arc::clone(context) }
    }
}

impl Drop for CaptureGuard {
    fn drop(&mut self) {
        let mut state = self.context.frees().lock();
        state.captures -= 1;
        if state.captures == 0 && !state.waiting.is_empty() {
            free(&self.context, mem::take(&mut state.waiting));
        }
    }
}

impl fmt::Debug for CaptureGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CaptureGuard({})", self.context.info().name)
    }
}

impl Frees {
    /// Frees a block whose last owner has gone: now, or after the last capture.
    pub(crate) fn free(&self, context: &Context, block: Block) {
        let mut state = self.lock();
        match state.captures {
            0 => free(context, vec![block]),
            _ => state.waiting.push(block),
        }
    }

    /// Waits for everything on the device, unless a capture is under way; returns whether it waited.
    pub(crate) fn synchronize(&self, context: &Context) -> bool {
        let state = self.lock();
        state.captures == 0 && context.synchronize().is_ok()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing between two changes of it panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn free(context: &Context, blocks: Vec<Block>) {
    // Work that was launched before may still use them.
    let _ = context.synchronize();
    blocks.into_iter().for_each(Block::free);
}
