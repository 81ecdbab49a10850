//! Invariants that must hold after every step, and at the end.

use std::time::Duration;

use orinoco_core::{ModelId, Nanos};
use orinoco_pipeline::{REQUESTS_MAX, SUSPENDED_FRAMES_MAX, SUSPENSION_MAX};
use orinoco_telemetry::SourceState;

use super::lane::Doing;
use super::stream::Stream;
use super::turns::can_go;
use super::{BATCH_MAX, Board, MODELS};
use crate::camera::Mode;

/// Outcomes that may wait for a stream's sinks.
const OUTCOMES_MAX: usize = 4;
/// Time in which what was written is visible, while its sinks do nothing else.
const HIDDEN_MAX_NANOS: u64 = 400_000_000;
/// Time in which a source that can deliver is live again: it notices its stall, closes, backs off, fails to open a last
/// time, backs off, opens, and reads.
const BACK_MAX: Duration = Duration::from_secs(12);

impl Board<'_> {
    /// After every step: no frame is lost, every queue is bounded, deadlines are kept, what was written is visible in time.
    pub(super) fn check(&self) {
        let now = self.simulator.now();
        for stream in &self.streams {
            self.check_frames(stream);
            self.check_source(stream, now);
            let outputs = &stream.outputs;
            if outputs.is_idle() && !outputs.is_finished {
                let hidden = outputs.hidden_since.map_or(0, |since| now.0 - since.0);
                assert!(hidden <= HIDDEN_MAX_NANOS, "stream {}: not flushed for {hidden} ns", stream.id);
            }
        }
        for (index, lane) in self.lanes.iter().enumerate() {
            self.check_suspended(index);
            // What it would do at this moment, it does in its next step.
            if lane.is_waiting() && self.simulator.due(lane.task).is_none_or(|due| due > now) {
                self.check_deadlines(index, now);
            }
        }
    }

    fn check_frames(&self, stream: &Stream) {
        let (counts, id) = (&stream.counts, stream.id);
        let waiting = self.lanes[stream.lane].mux.waiting(id);
        assert_eq!(waiting, stream.ring.len(), "stream {id}: frames in its ring");
        assert!(waiting <= stream.queue.frames_max, "stream {id}: {waiting} frames in {:?}", stream.queue);
        let frame_results = stream.sinks.waiting();
        assert!(frame_results <= OUTCOMES_MAX, "stream {id}: {frame_results} outcomes wait");
        let in_flight = stream.in_flight(&self.lanes[stream.lane].mux);
        let dropped: u64 = counts.dropped.iter().sum();
        assert_eq!(
            counts.frames_in,
            counts.frames_out + dropped + in_flight,
            "stream {id}: frames in = out + dropped + in flight ({in_flight}): {counts:?}"
        );
    }

    /// A lane knows as many suspended steps as its mux, and holds few frames for them. Requests are bounded.
    fn check_suspended(&self, index: usize) {
        let lane = &self.lanes[index];
        if !lane.is_closed {
            assert_eq!(lane.mux.suspended(), lane.batches.suspended().len(), "lane {index}: suspended steps");
        }
        let (replaced, suspended) = (lane.batches.replaced(), lane.batches.suspended().len());
        assert!(replaced <= suspended, "lane {index}: {replaced} plans are kept for {suspended} answers");
        for model in (0..MODELS).map(ModelId) {
            let (has, must) = (lane.batches.facts(model), lane.plans.get(&model));
            let generations = [has, must].map(|plan| plan.map(|plan| plan.generation));
            assert_eq!(generations[0], generations[1], "lane {index}: plan of model {model}");
        }
        for (_, batch) in lane.batches.suspended() {
            let first = batch.first_suspended.expect("it is suspended");
            assert!(batch.until <= first + SUSPENSION_MAX, "lane {index}: {first:?} to {:?}", batch.until);
        }
        for stream in lane.batches.streams() {
            let held = lane.batches.held(stream);
            assert!(held <= SUSPENDED_FRAMES_MAX.max(BATCH_MAX), "stream {stream} has {held} frames held");
        }
        let requests = (0..MODELS).map(|model| lane.mux.requests_waiting(ModelId(model)));
        let waiting = requests.inspect(|waiting| assert!(*waiting <= REQUESTS_MAX)).sum::<usize>();
        assert_eq!(waiting, lane.requests.len(), "lane {index}: requests that wait");
    }

    /// A source whose ring is empty is not blocked, and one that can deliver does so again.
    fn check_source(&self, stream: &Stream, now: Nanos) {
        let id = stream.id;
        if stream.is_blocked() && stream.ring.is_empty() {
            let due = self.simulator.due(stream.source);
            assert!(due.is_some_and(|due| due <= now), "source {id} waits for room, and its ring is empty");
        }
        let is_live = stream.state == Some(SourceState::Live);
        if is_live || stream.is_over || stream.is_stopping || stream.camera.mode != Mode::Delivers {
            return;
        }
        // What its sinks hold may be all of its slots.
        let since = stream.camera.since.max(stream.joined).max(stream.outputs.latest);
        assert!(
            now.since(since) < BACK_MAX || stream.in_flight(&self.lanes[stream.lane].mux) > 0,
            "source {id} delivers since {since:?}, and is {:?}",
            stream.state
        );
    }

    /// A lane that waits has no frame that has waited long enough, and wakes when the first of them has.
    fn check_deadlines(&self, lane: usize, now: Nanos) {
        let due = self.simulator.due(self.lanes[lane].task);
        let until = self.lanes[lane].batches.suspended().map(|(_, batch)| batch.until).min();
        let is_late = until.is_some_and(|until| due.is_none_or(|due| due > until.max(now)));
        assert!(!is_late, "lane {lane} waits until {due:?}, and for an answer until {until:?}");
        let of_lane = self.streams.iter().filter(|stream| stream.lane == lane);
        let of_lane = of_lane.filter(|stream| can_go(stream.id, &self.lanes[lane]));
        let deadline = |stream: &Stream| Some(stream.ring.front()?.0 + stream.queue.batch_wait);
        let Some((deadline, id)) = of_lane.filter_map(|s| Some((deadline(s)?, s.id))).min() else { return };
        assert!(
            deadline > now && due.is_some_and(|due| due <= deadline),
            "lane {lane} waits until {due:?}, and a frame of stream {id} until {deadline:?}"
        );
    }

    /// At the end: everything has ended, and every slot is free.
    pub(super) fn check_ended(&mut self) {
        self.check_requests_ended();
        assert!(self.remote.is_idle(), "the other board has answered");
        for (index, lane) in self.lanes.iter().enumerate() {
            assert_eq!(lane.mux.suspended(), 0, "lane {index} waits for an answer");
            assert!(matches!(lane.doing, Doing::Ended), "lane {index} has not ended");
        }
        for stream in &self.streams {
            assert!(stream.is_over, "source {} has not ended: {:?}", stream.id, stream.state);
            assert!(stream.outputs.is_finished, "the sinks of stream {} have not ended", stream.id);
            let (free, slots) = stream.slots_free();
            assert_eq!(free, slots, "stream {}: slots", stream.id);
        }
    }
}
