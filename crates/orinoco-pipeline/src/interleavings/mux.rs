//! Sources that push, and a thread that takes batches.

use std::sync::Arc;

use orinoco_core::{DropPolicy, StreamId};

use super::check;
use super::frames::{Held, POLICIES, clock, dropped, queue, telemetry};
use crate::mux::Next;
use crate::sync::{join, spawn};
use crate::{FrameSender, Mux};

const FRAMES: u64 = 4;

/// Pushes until the mux is closed; returns how many frames were offered.
fn push_all(frame_sender: FrameSender, held: Held, stream: StreamId) -> u64 {
    let mut offered = 0;
    while offered < FRAMES {
        offered += 1;
        if frame_sender.push(held.frame(stream, offered)).is_err() {
            break;
        }
    }
    offered
}

/// Takes every batch; returns the sequence numbers of each of two streams.
fn take_all(mux: &Mux, batch_max: usize) -> [Vec<u64>; 2] {
    let (mut batch, mut seen, mut left) = (Vec::new(), [Vec::new(), Vec::new()], Vec::new());
    while let Some((next, _)) = mux.next(&mut batch) {
        match next {
            Next::Joined => {}
            Next::Left(stream) => left.push(stream),
            Next::Batch(_) => assert!((1..=batch_max).contains(&batch.len())),
            Next::Exchanged | Next::Request | Next::Resumed(_) => panic!("nobody asked for {next:?}"),
        }
        for frame in batch.drain(..) {
            assert!(!left.contains(&frame.desc.stream), "it has left");
            seen[frame.desc.stream.0 as usize].push(frame.desc.seq);
        }
    }
    assert!(seen.iter().all(|seen| seen.is_sorted_by(|a, b| a < b)), "{seen:?}");
    seen
}

/// Two sources against one taker, and somebody who closes the mux at any moment if `closes`.
fn run(policy: DropPolicy, frames_max: usize, batch_max: usize, wait_ms: u64, closes: bool) {
    let (telemetry, held) = (telemetry(2), Held::default());
    let mux = Mux::new(clock());
    let inlets = [0, 1].map(|stream| {
        (
            StreamId(stream),
            mux.add(telemetry.stream(StreamId(stream)), queue(policy, frames_max, wait_ms), batch_max)
                .expect("open"),
        )
    });
    let sources = inlets.map(|(stream, frame_sender)| {
        let held = held.clone();
        spawn(move || push_all(frame_sender, held, stream))
    });
    let closer = closes.then(|| {
        let mux = Arc::clone(&mux);
        spawn(move || mux.close())
    });
    let taker = spawn({
        let mux = Arc::clone(&mux);
        move || take_all(&mux, batch_max)
    });
    let offered = sources.map(join);
    let taken = join(taker);
    closer.into_iter().for_each(join);
    for (stream, (offered, taken)) in offered.into_iter().zip(taken).enumerate() {
        let dropped = dropped(&telemetry.stream(StreamId(stream as u32)));
        assert_eq!(taken.len() as u64 + dropped, offered, "stream {stream}: {taken:?} and {dropped} dropped");
        assert!(closes || offered == FRAMES);
        assert!(closes || policy != DropPolicy::Block || dropped == 0, "{dropped} dropped");
    }
    assert_eq!(held.count(), 0);
}

#[test]
fn every_frame_is_taken_or_counted_as_dropped() {
    for policy in POLICIES {
        check(move || run(policy, 2, 2, 10, false));
    }
}

#[test]
fn one_place_in_the_ring_is_enough() {
    check(|| run(DropPolicy::Block, 1, 4, 10, false));
}

#[test]
fn a_source_that_waits_for_room_is_woken_when_the_ring_has_emptied_enough() {
    check(|| run(DropPolicy::Block, 3, 1, 0, false));
}

#[test]
fn closing_ends_sources_and_taker_at_any_moment() {
    for policy in POLICIES {
        check(move || run(policy, 2, 1, 10, true));
    }
}
