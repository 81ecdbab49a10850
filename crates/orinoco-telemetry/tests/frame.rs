//! Checks the records of one frame on its whole way: none allocates, every figure counts them, and each is in the trace.

mod common;

use orinoco_core::{LaneId, Nanos};
use orinoco_telemetry::{Record, Stage, Telemetry};

use common::{Emitters, RECORDS};

/// Number of frames; they have more records than the trace holds, so that it overwrites some.
const FRAMES: u64 = 2000;

#[test]
fn emitting_allocates_nothing() {
    let telemetry = Telemetry::default();
    let (stream, model) = (telemetry.add_stream("s"), telemetry.add_model());
    let emitters = Emitters::new(&telemetry, stream, LaneId(0), model);
    emitters.emit_frame(0);
    let counted = allocation_counter::measure(|| (1..=FRAMES).for_each(|seq| emitters.emit_frame(seq)));
    assert_eq!(counted.count_total, 0, "{counted:?}");
    assert!(FRAMES as usize * RECORDS > orinoco_telemetry::TRACE_RECORDS_MAX, "the trace overwrites");
}

#[test]
fn threads_lose_no_count_and_the_trace_counts_what_it_loses() {
    const THREADS: u32 = 4;
    let telemetry = Telemetry::default();
    let (stream, model) = (telemetry.add_stream("s"), telemetry.add_model());
    std::thread::scope(|scope| {
        for lane in 0..THREADS {
            let emitters = Emitters::new(&telemetry, stream, LaneId(lane), model);
            scope.spawn(move || (0..FRAMES).for_each(|seq| emitters.emit_frame(seq)));
        }
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
    let trace = telemetry.take_trace();
    let emitted = frames as usize * RECORDS;
    assert_eq!(trace.records.len() + trace.lost as usize, emitted);
    assert!(trace.records.is_sorted_by_key(Record::at));
    assert_eq!(trace.records.last().map(Record::at), Some(Nanos((FRAMES - 1) * 10_000_000 + 9_000_000)));
}
