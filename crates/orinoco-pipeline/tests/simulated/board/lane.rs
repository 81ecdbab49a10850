//! A lane, as its thread runs it.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use orinoco_core::{ModelId, Nanos, Rng, StreamId};
use orinoco_pipeline::{
    AfterBatch, Closed, Frame, FrameResult, JoinError, LaneCore, MuxCore, Next, NextBatch, PlanFacts,
    ResultOffer, StreamQueue,
};
use orinoco_sim::Task;
use orinoco_telemetry::DropCause;

use super::{Board, MODEL_SETS, millis};

/// How long a lane waits for room once its stream is to end.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(5);

pub(crate) struct Lane {
    pub(crate) task: Task,
    pub(crate) mux: MuxCore,
    pub(crate) core: LaneCore,
    pub(crate) engine: Engine,
    /// Streams that joined, with the models whose plans they bring, until the lane admits them.
    joining: Vec<(StreamId, Vec<ModelId>)>,
    /// Streams that it has admitted.
    streams: BTreeSet<StreamId>,
    /// Models whose plans it has.
    plans: BTreeSet<ModelId>,
    pub(crate) doing: Doing,
    /// It ended because its engine failed again and again.
    pub(crate) is_broken: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct Engine {
    per_batch: Duration,
    per_frame: Duration,
    pub(crate) slow_until: Nanos,
    pub(crate) fails_until: Nanos,
    /// Until then it fails for each batch, and not for one of two.
    pub(crate) fails_always: bool,
}

/// What a lane does.
pub(crate) enum Doing {
    Waiting,
    Executing(Vec<Frame>),
    /// Offers results to sinks.
    Forwarding(VecDeque<FrameResult>),
    Ended,
}

impl Lane {
    pub(crate) fn new(task: Task, rng: &mut Rng) -> Self {
        let (per_batch, per_frame) = (millis(rng, 1..30), millis(rng, 1..20));
        let engine =
            Engine { per_batch, per_frame, slow_until: Nanos(0), fails_until: Nanos(0), fails_always: false };
        Self {
            task,
            mux: MuxCore::default(),
            core: LaneCore::default(),
            engine,
            joining: Vec::new(),
            streams: BTreeSet::new(),
            plans: BTreeSet::new(),
            doing: Doing::Waiting,
            is_broken: false,
        }
    }

    /// As [`orinoco_pipeline::LaneEntry::join`], with the plans that the lane lacks.
    pub(crate) fn join(&mut self, stream: StreamId, queue: StreamQueue) -> Result<(), JoinError> {
        let models = MODEL_SETS[queue.group];
        let lacking: Vec<ModelId> = models.iter().copied().filter(|m| !self.core.has_model(*m)).collect();
        let brought: Vec<PlanFacts> =
            lacking.iter().map(|model| PlanFacts { model: *model, reads_video_memory: false }).collect();
        self.core.check_join(models, &brought)?;
        self.mux.add(stream, queue).map_err(|Closed| JoinError::Ended)?;
        self.core.join(stream, models.to_vec(), &brought);
        self.joining.push((stream, lacking));
        Ok(())
    }

    /// Whether nothing keeps it from the next batch.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.doing, Doing::Waiting)
    }
}

impl Board<'_> {
    pub(crate) fn step_lane(&mut self, index: usize) {
        let now = self.simulator.now();
        let lane = &mut self.lanes[index];
        match std::mem::replace(&mut lane.doing, Doing::Waiting) {
            Doing::Waiting => self.next_batch(index),
            Doing::Executing(batch) => {
                let fails = now < lane.engine.fails_until
                    && (lane.engine.fails_always || self.simulator.rng().bool());
                let after = lane.core.finished(!fails);
                if after == AfterBatch::Forward {
                    let frame_result = |frame| FrameResult { frame, found: Vec::new(), finished: now };
                    lane.doing = Doing::Forwarding(batch.into_iter().map(frame_result).collect());
                    return self.simulator.work(lane.task, now);
                }
                for frame in batch {
                    let stream = &mut self.streams[frame.desc.stream.index()];
                    stream.at_lane -= 1;
                    stream.counts.drop_frame(DropCause::ExecutionFailed);
                }
                if after == AfterBatch::End {
                    self.lanes[index].is_broken = true;
                    return self.end_lane(index);
                }
                self.simulator.work(lane.task, now);
            }
            Doing::Forwarding(frame_results) => self.forward(index, frame_results),
            Doing::Ended => lane.doing = Doing::Ended,
        }
    }

    fn next_batch(&mut self, index: usize) {
        let now = self.simulator.now();
        let lane = &mut self.lanes[index];
        let mut batch = Vec::new();
        let next = lane.mux.next(now, &mut batch);
        match next {
            NextBatch::WaitUntil(until) => self.simulator.wait(lane.task, until),
            NextBatch::Closed => self.end_lane(index),
            NextBatch::Ready(Next::Joined) => {
                for (stream, plans) in lane.joining.drain(..) {
                    lane.plans.extend(plans);
                    lane.streams.insert(stream);
                }
                self.simulator.work(lane.task, now);
            }
            NextBatch::Ready(Next::Left(stream)) => {
                assert!(lane.streams.remove(&stream), "stream {stream} leaves and was never admitted");
                lane.core.leave(stream);
                lane.plans.retain(|model| lane.core.has_model(*model));
                let left = &mut self.streams[stream.index()];
                assert!(left.is_over && left.ring.is_empty(), "stream {stream} leaves before its end");
                left.sinks.end();
                self.simulator.notify(left.sinks_task);
                self.simulator.work(self.lanes[index].task, now);
            }
            NextBatch::Ready(Next::Batch(group)) => {
                let rng = self.simulator.rng();
                let slow = if now < lane.engine.slow_until { rng.u32(2..12) } else { 1 };
                let frames = u32::try_from(batch.len()).expect("a small batch");
                let took = (lane.engine.per_batch + lane.engine.per_frame * frames) * slow;
                self.simulator.note(|| format!("lane {index} executes {batch:?}"));
                self.check_batch(index, group, &batch);
                self.resume_sources(index);
                let lane = &mut self.lanes[index];
                lane.doing = Doing::Executing(batch);
                self.simulator.work(lane.task, now + took);
            }
        }
    }

    /// What holds for every batch, against what its streams' rings must have had.
    fn check_batch(&mut self, index: usize, group: usize, batch: &[Frame]) {
        let (now, lane) = (self.simulator.now(), &self.lanes[index]);
        let models = MODEL_SETS[group];
        assert!(models.iter().all(|model| lane.plans.contains(model)), "group {group} lacks a plan");
        let is_here = |stream: &&mut super::Stream| lane.streams.contains(&stream.id);
        let is_overdue = |stream: &super::Stream| {
            stream.ring.front().is_some_and(|(came, _)| *came + stream.queue.batch_wait <= now)
        };
        // Streams that have left meanwhile had their turn before.
        let others = self.streams.iter().filter(|stream| stream.lane == index).count() - 1;
        let batch_max = self.streams.iter().map(|s| s.queue).filter(|queue| queue.group == group);
        let batch_max = batch_max.map(|queue| queue.batch_max).max().unwrap_or(0);
        assert!((1..=batch_max).contains(&batch.len()), "{} frames of {batch_max}", batch.len());
        for stream in self.streams.iter_mut().filter(is_here) {
            if !is_overdue(stream) || batch.iter().any(|frame| frame.desc.stream == stream.id) {
                stream.passed_over = 0;
                continue;
            }
            stream.passed_over += 1;
            assert!(
                stream.passed_over <= others,
                "stream {} waits for its turn, and {} batches of {others} other streams went before it",
                stream.id,
                stream.passed_over
            );
        }
        for frame in batch {
            let stream = &mut self.streams[frame.desc.stream.index()];
            assert_eq!((stream.lane, stream.queue.group), (index, group), "{frame:?} is elsewhere");
            let (_, seq) = stream.ring.pop_front().expect("its ring is not empty");
            assert_eq!(seq, frame.desc.seq, "stream {}: the oldest frame goes first", stream.id);
            stream.at_lane += 1;
        }
    }

    fn forward(&mut self, index: usize, mut frame_results: VecDeque<FrameResult>) {
        let (now, task) = (self.simulator.now(), self.lanes[index].task);
        while let Some(frame_result) = frame_results.pop_front() {
            let stream = &mut self.streams[frame_result.frame.desc.stream.index()];
            match stream.sinks.offer(frame_result, stream.is_stopping, now) {
                ResultOffer::Accepted => self.simulator.notify(stream.sinks_task),
                ResultOffer::Refused(_) => stream.counts.drop_frame(DropCause::SinkBehind),
                ResultOffer::Full(frame_result, until) => {
                    let gives_up = until.is_some_and(|until| now < until && until <= now + ROOM_WAIT_MAX);
                    assert!(gives_up || !stream.is_stopping, "it waits for room until {until:?}");
                    frame_results.push_front(frame_result);
                    self.lanes[index].doing = Doing::Forwarding(frame_results);
                    return self.simulator.wait(task, until);
                }
            }
            stream.at_lane -= 1;
        }
        self.simulator.work(task, now);
    }

    /// The lane's thread ends: its mux closes, and the sinks of its streams hear that nothing more comes.
    fn end_lane(&mut self, index: usize) {
        self.simulator.note(|| format!("lane {index} ends"));
        self.close_lane(index);
        let lane = &mut self.lanes[index];
        lane.doing = Doing::Ended;
        lane.joining.clear();
        for stream in self.streams.iter_mut().filter(|stream| stream.lane == index) {
            stream.sinks.end();
            self.simulator.notify(stream.sinks_task);
        }
    }
}
