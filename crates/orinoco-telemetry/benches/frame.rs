//! Measures the time to emit all records of one frame on its whole way: folds and trace.

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::atomic::{AtomicU64, Ordering};

use divan::counter::ItemsCount;
use orinoco_core::{LaneId, ModelId, StreamId};
use orinoco_telemetry::Telemetry;

use common::{Emitters, RECORDS};

/// Numbers of threads that emit at the same time; a board has several threads for each stream.
const THREADS: [usize; 3] = [1, 2, 4];
/// Frames of one sample. They take some milliseconds, so that the threads really run at the same time.
const SAMPLE: u32 = 20_000;
/// Number of streams of the bench, each with its own lane and model.
const STREAMS: u32 = 4;

fn main() {
    divan::main();
}

/// Creates the handles of all streams. Only the trace is shared between them.
fn emitters() -> Vec<Emitters> {
    let telemetry = Telemetry::new(STREAMS as usize);
    let add = |id| {
        assert_eq!(telemetry.add_model(), ModelId(id));
        Emitters::new(&telemetry, StreamId(id), LaneId(id), ModelId(id))
    };
    (0..STREAMS).map(add).collect()
}

/// Measures threads that each emit for their own stream, as sources and lanes mostly do.
#[divan::bench(threads = THREADS, sample_size = SAMPLE, sample_count = 40)]
fn own_stream(bencher: divan::Bencher<'_, '_>) {
    let (emitters, threads, seq) = (emitters(), AtomicU64::new(0), AtomicU64::new(0));
    thread_local! {
        static STREAM: std::cell::Cell<Option<usize>> = const { std::cell::Cell::new(None) };
    }
    bencher.counter(ItemsCount::new(RECORDS)).bench(|| {
        let stream = STREAM.get().unwrap_or_else(|| {
            let stream = threads.fetch_add(1, Ordering::Relaxed) as usize % STREAMS as usize;
            STREAM.set(Some(stream));
            stream
        });
        emitters[stream].emit_frame(seq.fetch_add(1, Ordering::Relaxed));
    });
}

/// Measures the worst case, which never happens: every thread emits for the same stream.
#[divan::bench(threads = THREADS, sample_size = SAMPLE, sample_count = 40)]
fn one_stream(bencher: divan::Bencher<'_, '_>) {
    let (emitters, seq) = (emitters(), AtomicU64::new(0));
    bencher
        .counter(ItemsCount::new(RECORDS))
        .bench(|| emitters[0].emit_frame(seq.fetch_add(1, Ordering::Relaxed)));
}
