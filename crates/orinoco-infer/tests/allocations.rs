//! After warm-up, executing a bound model allocates nothing outside of the engine. Every allocation of the thread is
//! counted, and those inside the engine's call separately. `ORINOCO_TEST_LONG=1` sets 10,000 executions instead of 100.
#![expect(unsafe_code, reason = "a global allocator that counts")]
#![allow(clippy::print_stdout, reason = "tests say what they skip and what they counted")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use orinoco_core::{FrameDesc, InferenceResult, Nanos, PixelFormat};
use orinoco_infer::{
    ENGINES, EngineContext, EngineError, ExecutionStream, ImagePlan, Options, Scratch, Session, SessionSpec,
    TensorMut, TensorRef, by_name,
};
use orinoco_model::Repository;
use orinoco_pipeline::{Executor, Frame, MonotonicClock, Slot, SlotPool};

/// Number of executions before allocations are counted. They give pools, rows and results their final size.
const WARM: usize = 5;

thread_local! {
    static OURS: Cell<u64> = const { Cell::new(0) };
    static ENGINES_OWN: Cell<u64> = const { Cell::new(0) };
    static IN_ENGINE: Cell<bool> = const { Cell::new(false) };
}

/// System allocator that counts the requests of this thread.
struct Counting;

fn note() {
    // A thread that is ending has no counters any more.
    let _ = IN_ENGINE.try_with(|inside| {
        let counter = if inside.get() { &ENGINES_OWN } else { &OURS };
        counter.try_with(|count| count.set(count.get() + 1))
    });
}

// SAFETY: every call is passed to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Session that records whether the engine's call is under way.
struct Watched(Box<dyn Session>);

impl Session for Watched {
    fn input(&mut self, index: usize) -> TensorMut<'_> {
        self.0.input(index)
    }

    fn enqueue(&mut self, stream: &ExecutionStream) -> Result<(), EngineError> {
        IN_ENGINE.set(true);
        let done = self.0.enqueue(stream);
        IN_ENGINE.set(false);
        done
    }

    fn output(&self, index: usize) -> TensorRef<'_> {
        self.0.output(index)
    }
}

/// Binds the demo's model; `None`, with a printed line, if the engine cannot run on this machine.
fn plan(engine: &str, scratch: &Scratch) -> Option<ImagePlan> {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models");
    let repository = Repository { roots: vec![models], data: Vec::new() };
    let model =
        repository.describe("person-nano").expect("it is in the repository").expect("it is described");
    let context = EngineContext::new(Options { shared_scratch: true, ..Options::default() });
    let engine = by_name(engine).expect("it is known");
    if let Err(why) = engine.check(&context) {
        println!("skipped: {}: {why}", engine.name());
        return None;
    }
    let prepared = engine.prepare(&model.file, &context).expect("the model is read");
    let binding = model.bind(prepared.inputs(), prepared.outputs(), 1).expect("it fits its graph");
    let wanted = SessionSpec { scratch: Some((scratch, "person-nano")), ..SessionSpec::new(&binding.shapes) };
    let session = Box::new(Watched(prepared.session(&wanted).expect("it is bound")));
    let clock = Arc::new(MonotonicClock::default());
    let mut plan =
        ImagePlan::new(&model, &binding, prepared.as_ref(), session, &context, clock).expect("it runs");
    // Another model of the lane may compute in the scratch while this one is bound.
    assert_eq!(scratch.usage().allocations, 0, "a plan keeps out of it until it is replayed");
    let mut results = [InferenceResult::default()];
    plan.execute(&[frame()], &mut results).expect("it runs");
    assert_eq!(scratch.usage().allocations > 0, engine.computes_in_scratch(), "as the engine says");
    Some(plan)
}

fn frame() -> Frame {
    let desc = FrameDesc::packed(PixelFormat::Nv12, 768, 576);
    let pool = SlotPool::new(1, desc.bytes_needed());
    let mut slot = pool.try_take().expect("it is free");
    slot.bytes
        .iter_mut()
        .zip(0u32..)
        .for_each(|(byte, index)| *byte = (index.wrapping_mul(2_654_435_761) >> 24) as u8);
    Frame::new(desc, Slot::Owned(slot), Nanos(0)).expect("it fits")
}

#[test]
fn a_replay_allocates_nothing_around_the_engines_call() {
    let long = std::env::var_os("ORINOCO_TEST_LONG").is_some();
    for engine in ENGINES {
        let scratch = Scratch::new(64 << 20).expect("there is room");
        let Some(mut plan) = plan(engine, &scratch) else { continue };
        let (frames, mut results) = ([frame()], [InferenceResult::default()]);
        for _ in 0..WARM {
            plan.execute(&frames, &mut results).expect("it runs");
        }
        let replays = if long { 10_000 } else { 100 };
        let (ours, theirs) = (OURS.get(), ENGINES_OWN.get());
        let mut last = theirs;
        let mut each = (u64::MAX, 0);
        for _ in 0..replays {
            plan.execute(&frames, &mut results).expect("it runs");
            let now = ENGINES_OWN.get();
            each = (each.0.min(now - last), each.1.max(now - last));
            last = now;
        }
        let ours = OURS.get() - ours;
        println!(
            "{engine}: {replays} replays: {ours} allocations around the call, {} to {} in it",
            each.0, each.1
        );
        assert_eq!(ours, 0, "{engine}");
        assert_eq!(each.0, each.1, "{engine}: the engine's own number is constant");
    }
}
