//! Checks the records of one frame on its whole way: none allocates, every figure counts them, and each is in the trace.

mod common;

use orinoco_core::{LaneId, Nanos};
use orinoco_telemetry::{
    Histogram, ModelFold, Record, Stage, StreamFold, Telemetry, WORK_ENTRIES_MAX, Work, WorkFeed,
};

use common::{Emitters, RECORDS};

/// Number of frames, 10 ms apart; they have more records than the trace and the feed of work hold, so that both lose some, and
/// last for longer than a window, so that each of its intervals is used again.
const FRAMES: u64 = 8000;
/// Number of entries of one frame in the feed of work: the stages of its batch, and its result.
const WORK_ENTRIES: usize = 4;

#[test]
fn emitting_allocates_nothing() {
    let telemetry = Telemetry::default();
    let (stream, model) = (telemetry.add_stream("s"), telemetry.add_model());
    let emitters = Emitters::new(&telemetry, stream, LaneId(0), model);
    let emit = |from: u64| {
        emitters.emit_frame(from);
        let counted = allocation_counter::measure(|| {
            (from + 1..=from + FRAMES).for_each(|seq| emitters.emit_frame(seq))
        });
        assert_eq!(counted.count_total, 0, "{counted:?}");
    };
    emit(0);
    let mut feed = telemetry.subscribe_work().expect("it is the first");
    emit(FRAMES + 1);
    let mut taken = 0;
    let counted = allocation_counter::measure(|| {
        feed.take(|_| taken += 1);
    });
    assert_eq!((counted.count_total, taken), (0, WORK_ENTRIES_MAX));
    assert!(FRAMES as usize * RECORDS > orinoco_telemetry::TRACE_RECORDS_MAX, "the trace overwrites");
    assert!(FRAMES as usize * WORK_ENTRIES > WORK_ENTRIES_MAX, "the feed loses entries");
    assert!(u128::from(FRAMES) * 10 > orinoco_telemetry::WINDOW.as_millis(), "the window forgets");
}

#[test]
fn figures_are_copied_under_the_lock_without_allocations() {
    let telemetry = Telemetry::default();
    let (stream, model) = (telemetry.add_stream("s"), telemetry.add_model());
    let emitters = Emitters::new(&telemetry, stream, LaneId(0), model);
    (0..100).for_each(|seq| emitters.emit_frame(seq));
    let (stream, model) = (telemetry.stream(stream), telemetry.model(model));
    let mut times = Histogram::default();
    let counted = allocation_counter::measure(|| {
        stream.read(|fold| times.copy_from(fold.stage(Stage::Total)));
        model.read(|fold| times.copy_from(fold.infer.total()));
        let _ = (stream.read(|fold| fold.buckets(Stage::Total)), model.read(|fold| fold.infer.buckets()));
    });
    assert_eq!((counted.count_total, times.count()), (0, 100));
}

#[test]
fn the_memory_of_folds_is_as_documented() {
    let bytes = |make: fn()| allocation_counter::measure(make).bytes_max;
    let stream = bytes(|| drop(Box::new(StreamFold::default())));
    let model = bytes(|| drop(Box::new(ModelFold::default())));
    assert!((650_000..=700_000).contains(&stream), "a stream takes {stream} bytes");
    assert!((270_000..=290_000).contains(&model), "a model takes {model} bytes");
}

#[test]
fn threads_lose_no_count_and_the_trace_counts_what_it_loses() {
    const THREADS: u32 = 4;
    let telemetry = Telemetry::default();
    let (stream, model) = (telemetry.add_stream("s"), telemetry.add_model());
    let mut feed = telemetry.subscribe_work().expect("it is the first");
    std::thread::scope(|scope| {
        let emitting = (0..THREADS).map(|lane| {
            let emitters = Emitters::new(&telemetry, stream, LaneId(lane), model);
            scope.spawn(move || (0..FRAMES).for_each(|seq| emitters.emit_frame(seq)))
        });
        let emitting: Vec<_> = emitting.collect();
        let is_over = || emitting.iter().all(|thread| thread.is_finished());
        check_work(&mut feed, THREADS as usize, is_over);
    });
    let frames = FRAMES * u64::from(THREADS);
    let seen = telemetry.stream(stream).read(|fold| {
        let counts = Stage::ALL.map(|stage| fold.stage(stage).count());
        (fold.frames_in, fold.frames_out, fold.detections, counts)
    });
    assert_eq!(seen, (frames, frames, 2 * frames, [frames; Stage::ALL.len()]));
    assert_eq!(telemetry.model(model).read(|fold| (fold.inferences, fold.items)), (frames, frames));
    for lane in 0..THREADS {
        assert_eq!(telemetry.lane(LaneId(lane)).read(|fold| (fold.batches, fold.frames)), (FRAMES, FRAMES));
    }
    let trace = telemetry.trace();
    let emitted = frames as usize * RECORDS;
    assert_eq!(trace.records.len() + trace.lost as usize, emitted);
    assert!(trace.records.is_sorted_by_key(Record::at));
    assert_eq!(trace.records.last().map(Record::at), Some(Nanos((FRAMES - 1) * 10_000_000 + 9_000_000)));
}

/// Takes the work of `lanes` threads, each with its lane, until it is over: none is lost without being counted, and that of
/// each lane comes in its order.
fn check_work(feed: &mut WorkFeed, lanes: usize, is_over: impl Fn() -> bool) {
    let (mut taken, mut lost) = (0, 0);
    let mut latest = vec![Nanos(0); lanes];
    loop {
        let was_over = is_over();
        lost += feed.take(|work| {
            taken += 1;
            if let Work::Batch { record, streams } = work {
                assert_eq!(streams.as_slice()[0].items, record.items);
                let before = std::mem::replace(&mut latest[record.lane.0 as usize], record.span.end());
                assert!(before < record.span.end(), "work of lane {} out of order", record.lane.0);
            }
        });
        if was_over {
            break;
        }
        std::thread::yield_now();
    }
    assert_eq!(taken + lost, lanes as u64 * FRAMES * WORK_ENTRIES as u64);
}
