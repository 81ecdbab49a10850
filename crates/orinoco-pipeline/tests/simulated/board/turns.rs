//! Checks of everything that a lane is handed: streams and requests take turns.

use orinoco_core::{Nanos, StreamId};
use orinoco_pipeline::{Frame, SUSPENDED_FRAMES_MAX};

use super::lane::Lane;
use super::stream::Stream;
use super::{Board, MODEL_SETS};

/// Whether a stream of a lane has a frame that has waited long enough, and that can be handed out.
pub(super) fn is_overdue(stream: &Stream, lane: &Lane, now: Nanos) -> bool {
    stream.ring.front().is_some_and(|(came, _)| *came + stream.queue.batch_wait <= now)
        && can_go(stream.id, lane)
}

/// Whether frames of a stream can be handed out: not too many of those before them wait for answers.
pub(super) fn can_go(stream: StreamId, lane: &Lane) -> bool {
    lane.batches.held(stream) < SUSPENDED_FRAMES_MAX
}

impl Board<'_> {
    /// Checks a batch against what its streams' rings must have had.
    pub(super) fn check_batch(&mut self, index: usize, group: usize, batch: &[Frame]) {
        let now = self.simulator.now();
        let lane = &mut self.lanes[index];
        let others = self.streams.iter().filter(|stream| stream.lane == index).count() - 1;
        let of_group = |stream: &&Stream| stream.lane == index && stream.queue.group == group;
        let batch_max = self.streams.iter().filter(of_group).map(|stream| stream.batch_max).max();
        assert!((1..=batch_max.unwrap_or(0)).contains(&batch.len()), "{} of {batch_max:?}", batch.len());
        for stream in &mut self.streams {
            let overdue = is_overdue(stream, lane, now);
            let Some(requests_before) = lane.requests_before.get_mut(&stream.id) else { continue };
            if batch.iter().any(|frame| frame.desc.stream == stream.id) {
                *requests_before = 0;
                stream.passed_over = 0;
            } else if !overdue {
                stream.passed_over = 0;
            } else {
                stream.passed_over += 1;
            }
            assert!(
                stream.passed_over <= others,
                "stream {} waits for its turn, and {} batches of {others} other streams went before it",
                stream.id,
                stream.passed_over
            );
        }
        if lane.requests.is_empty() {
            lane.batches_before_request = 0;
        } else {
            lane.batches_before_request += 1;
            let batches = lane.batches_before_request;
            assert!(batches <= others + 1, "requests wait, and {batches} batches went before them");
        }
        for frame in batch {
            let stream = &mut self.streams[frame.desc.stream.index()];
            assert_eq!((stream.lane, stream.queue.group), (index, group), "{frame:?} is elsewhere");
            for model in MODEL_SETS[group] {
                let plan = lane.plans.get(model).expect("each model has its plan");
                assert!(plan.reads_video_memory || !stream.in_video_memory, "{frame:?} cannot be read");
            }
            let (_, seq) = stream.ring.pop_front().expect("its ring is not empty");
            assert_eq!(seq, frame.desc.seq, "stream {}: the oldest frame goes first", stream.id);
            stream.at_lane += 1;
        }
    }

    /// Checks the turn of a request: each stream that waits for its turn has let one go before it, or a
    /// second one if it joined just then.
    pub(super) fn check_turn_of_request(&mut self, index: usize) {
        let now = self.simulator.now();
        let lane = &mut self.lanes[index];
        lane.batches_before_request = 0;
        for stream in self.streams.iter().filter(|stream| stream.lane == index) {
            let overdue = is_overdue(stream, lane, now);
            let Some(requests) = lane.requests_before.get_mut(&stream.id) else { continue };
            *requests = if overdue { *requests + 1 } else { 0 };
            assert!(*requests <= 2, "stream {} waits, and {requests} requests went before it", stream.id);
        }
    }
}
