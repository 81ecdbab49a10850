//! Measures the time to emit all records of one frame on its whole way (folds, trace, and the feed of work), and to read a
//! window.

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::atomic::{AtomicU64, Ordering};

use divan::counter::ItemsCount;
use orinoco_core::{LaneId, ModelId, Nanos, StreamId};
use orinoco_telemetry::{Stage, Telemetry, WindowReader};

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

/// Measures one thread whose work is read, every 1,000 frames: the reader's time is in the result.
#[divan::bench(sample_size = SAMPLE, sample_count = 40)]
fn with_work_feed(bencher: divan::Bencher<'_, '_>) {
    let telemetry = Telemetry::new(1);
    let emitters = Emitters::new(&telemetry, StreamId(0), LaneId(0), telemetry.add_model());
    let mut feed = telemetry.subscribe_work().expect("nobody else reads it");
    let mut seq = 0;
    bencher.counter(ItemsCount::new(RECORDS)).bench_local(|| {
        emitters.emit_frame(seq);
        seq += 1;
        if seq % 1000 == 0 {
            assert_eq!(feed.take(divan::black_box_drop), 0);
        }
    });
}

/// Measures reading the window of one stage, while nobody emits.
#[divan::bench]
fn window(bencher: divan::Bencher<'_, '_>) {
    let telemetry = Telemetry::new(1);
    let emitters = Emitters::new(&telemetry, StreamId(0), LaneId(0), telemetry.add_model());
    (0..6000).for_each(|seq| emitters.emit_frame(seq));
    let (stream, mut reader) = (telemetry.stream(StreamId(0)), WindowReader::default());
    bencher.bench_local(|| stream.window(Stage::Infer, Nanos(60_000_000_000), &mut reader).count());
}
