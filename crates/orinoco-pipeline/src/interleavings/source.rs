//! A source that is kept alive, against a lane that takes its frames.

use std::sync::Arc;
use std::time::Duration;

use orinoco_core::{Clock, DropPolicy, StreamId};

use super::check;
use super::frames::{Held, POLICIES, Quiet, clock, dropped, fault, queue, telemetry};
use crate::sync::{join, spawn};
use crate::{Mux, Poll, Reconnect, Source, SourceEnd, SourceError, SourceRunner, Stop};

const STREAM: StreamId = StreamId(0);
const FRAMES: u64 = 6;

/// Delivers frames, is silent now and then, and breaks after every fourth step.
struct Camera {
    held: Held,
    clock: Arc<dyn Clock>,
    steps: u64,
    frames_max: u64,
    frames: u64,
}

impl Source for Camera {
    fn open(&mut self) -> Result<(), SourceError> {
        self.steps += 1;
        if self.steps.is_multiple_of(5) { Err(SourceError::Transient(fault())) } else { Ok(()) }
    }

    fn next(&mut self, wait: Duration) -> Result<Poll, SourceError> {
        self.steps += 1;
        if self.frames == self.frames_max {
            return Ok(Poll::End);
        }
        match self.steps % 4 {
            0 => Err(SourceError::Transient(fault())),
            1 => {
                self.clock.signal().wait(Some(self.clock.now() + wait));
                Ok(Poll::Pending)
            }
            _ => {
                self.frames += 1;
                Ok(Poll::Frame(self.held.frame(STREAM, 0)))
            }
        }
    }

    fn close(&mut self) {}
}

fn run(policy: DropPolicy, frames_max: u64, stops: bool, closes: bool) {
    let (stream, held, stop, clock) =
        (telemetry(1).stream(STREAM), Held::default(), Stop::default(), clock());
    let mux = Mux::new(clock.clone());
    let runner = SourceRunner {
        shown: "camera".to_owned(),
        source: Box::new(Camera {
            held: held.clone(),
            clock: clock.clone(),
            steps: 0,
            frames_max,
            frames: 0,
        }),
        frame_sender: mux.add(stream.clone(), queue(policy, 2, 5), 1).expect("open"),
        reconnect: Reconnect { attempts_max: None, stall: Duration::from_secs(3600) },
        frames_max: None,
        clock,
        seed: 7,
        events: Arc::new(Quiet),
        telemetry: stream.clone(),
        stop: stop.of(STREAM),
    };
    let source = spawn(move || runner.run());
    let taker = spawn({
        let mux = Arc::clone(&mux);
        move || {
            let (mut batch, mut taken) = (Vec::new(), 0);
            while mux.next(&mut batch).is_some() {
                taken += batch.len() as u64;
            }
            taken
        }
    });
    let stopper = stops.then(|| spawn(move || stop.request()));
    let closer = closes.then(|| spawn(move || mux.close()));
    let end = join(source);
    let taken = join(taker);
    stopper.into_iter().chain(closer).for_each(join);
    assert!(matches!(end, SourceEnd::Complete) || stops || closes, "{end:?}");
    let frames_in = stream.read(|fold| fold.frames_in);
    assert_eq!(taken + dropped(&stream), frames_in);
    assert!(stops || closes || frames_in == FRAMES);
    assert_eq!(held.count(), 0);
}

#[test]
fn a_camera_that_breaks_again_and_again_delivers_every_frame() {
    for policy in POLICIES {
        check(move || run(policy, FRAMES, false, false));
    }
}

#[test]
fn a_request_to_stop_ends_it_at_any_moment() {
    check(|| run(DropPolicy::Block, u64::MAX, true, false));
}

#[test]
fn a_lane_that_ends_ends_it() {
    check(|| run(DropPolicy::Block, u64::MAX, false, true));
}
