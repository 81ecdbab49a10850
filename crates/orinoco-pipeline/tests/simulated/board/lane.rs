//! A lane, as its thread runs it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use orinoco_core::{ModelId, Nanos, Rng, StreamId};
use orinoco_pipeline::{
    AfterFailure, BatchProgress, Closed, ExchangeError, Frame, FrameOrder, FrameResult, JoinError, LaneCore,
    MuxCore, Next, NextBatch, PlanFacts, Request, RequestRefusal, ResultOffer, Settled, StreamModels,
    StreamQueue, Ticket, Unserved,
};
use orinoco_sim::Task;
use orinoco_telemetry::DropCause;

use super::remote::answer;
use super::{Board, MODEL_SETS, REMOTE_MODELS, millis};

/// Longest time for which a lane waits for room once its stream is to end.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(5);
/// Time below which another board is not asked.
const ANSWER_MIN: Duration = Duration::from_millis(750);

pub(crate) struct Lane {
    pub(crate) task: Task,
    pub(crate) mux: MuxCore,
    pub(crate) core: LaneCore,
    pub(crate) engine: Engine,
    /// Streams that joined, with the plans that they bring, until the lane admits them.
    joining: Vec<(StreamId, Vec<PlanFacts>)>,
    /// Plans that are to replace others, until the lane takes them.
    exchanges: BTreeMap<ModelId, PlanFacts>,
    /// Streams that it has admitted.
    pub(super) streams: BTreeMap<StreamId, Admitted>,
    /// Plans that it has.
    pub(super) plans: BTreeMap<ModelId, PlanFacts>,
    /// Batches that wait for an answer.
    pub(crate) suspended: BTreeMap<Ticket, Batch>,
    /// Requests that wait, by their index.
    pub(crate) requests: Vec<usize>,
    /// Batches since requests wait.
    pub(super) batches_before_request: usize,
    pub(crate) doing: Doing,
    /// It ended because its engine failed again and again.
    pub(crate) is_broken: bool,
    /// It was closed.
    pub(crate) is_closed: bool,
    /// Plans that were replaced.
    pub(crate) exchanged: u64,
    /// Batches that waited for an answer in vain.
    pub(crate) given_up: u64,
    /// Steps that were executed here, or skipped, because their answer was a fault or did not come.
    pub(crate) fallen_back: u64,
    /// Steps that were to be executed here, whose plan was replaced meanwhile, and failed.
    pub(crate) replaced_failed: u64,
}

/// A stream that a lane has admitted.
#[derive(Default)]
pub(crate) struct Admitted {
    /// Frames that wait for an answer, and those behind them.
    pub(crate) order: FrameOrder<Frame>,
    frames: u64,
    /// Requests since its oldest frame had waited long enough.
    pub(super) requests_before: usize,
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

/// Current work of a lane.
pub(crate) enum Doing {
    Waiting,
    /// Executes these inputs of a batch.
    Executing(Batch, Range<usize>),
    /// Gives so many more parts of an answer.
    Answering(Request, u32),
    /// Offers results to sinks.
    Forwarding(VecDeque<FrameResult>),
    Ended,
}

/// A batch, and how far it is.
pub(crate) struct Batch {
    group: usize,
    frames: Vec<Frame>,
    numbers: Vec<u64>,
    progress: BatchProgress,
    /// Number of inputs of the step at work, once it has begun.
    inputs: Option<usize>,
    /// Plan that began the step that is suspended.
    plan: Option<PlanFacts>,
    /// Time of its first suspension.
    pub(crate) first_suspended: Option<Nanos>,
    /// Time until which it waits for its answer.
    pub(crate) until: Nanos,
}

impl Batch {
    fn new(group: usize, frames: Vec<Frame>, numbers: Vec<u64>, now: Nanos) -> Self {
        let (progress, inputs, plan) = (BatchProgress::default(), None, None);
        Self { group, frames, numbers, progress, inputs, plan, first_suspended: None, until: now }
    }
}

/// End of an execution.
enum Execution {
    Done,
    Skipped,
    Suspended,
    Failed,
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
            exchanges: BTreeMap::new(),
            streams: BTreeMap::new(),
            plans: BTreeMap::new(),
            suspended: BTreeMap::new(),
            requests: Vec::new(),
            batches_before_request: 0,
            doing: Doing::Waiting,
            is_broken: false,
            is_closed: false,
            exchanged: 0,
            given_up: 0,
            fallen_back: 0,
            replaced_failed: 0,
        }
    }

    /// As [`orinoco_pipeline::LaneEntry::join`], with the plans that the lane lacks. Returns whether the stream's frames
    /// stay in video memory, and its maximum batch size.
    pub(crate) fn join(
        &mut self,
        stream: StreamId,
        queue: StreamQueue,
        rng: &mut Rng,
    ) -> Result<(bool, usize), JoinError> {
        let models = MODEL_SETS[queue.group];
        let lacking = models.iter().copied().filter(|model| !self.core.has_model(*model));
        let plan = |model| PlanFacts {
            model,
            generation: 0,
            batch_max: [1, 4, 2, 8][queue.group],
            reads_video_memory: rng.u32(..4) > 0,
            interval: if rng.bool() { 1 } else { 3 },
        };
        let brought: Vec<PlanFacts> = lacking.map(plan).collect();
        let brings = |model| brought.iter().any(|plan| plan.model == model && plan.reads_video_memory);
        let in_video_memory =
            models.iter().all(|model| self.core.reads_video_memory(*model) || brings(*model));
        let of_frames = models.iter().copied().take(1).collect();
        let models = StreamModels { models: models.to_vec(), of_frames, in_video_memory };
        self.core.check_join(&models, &brought)?;
        let batch_max = self.core.batch_max(&models, &brought);
        self.mux.add(stream, queue, batch_max).map_err(|Closed| JoinError::Ended)?;
        self.core.join(stream, models, &brought);
        self.joining.push((stream, brought));
        Ok((in_video_memory, batch_max))
    }

    /// As [`orinoco_pipeline::LaneEntry::replace`].
    pub(crate) fn replace(&mut self, plan: PlanFacts) -> Result<(), ExchangeError> {
        self.core.exchange(plan)?;
        self.mux.exchange().map_err(|Closed| ExchangeError::Ended)?;
        self.exchanges.insert(plan.model, plan);
        Ok(())
    }

    /// As [`orinoco_pipeline::LaneEntry::set_interval`].
    pub(crate) fn set_interval(&mut self, model: ModelId, interval: u32) -> Result<(), ExchangeError> {
        if !self.core.set_interval(model, interval) {
            return Err(ExchangeError::NoModel(model));
        }
        self.mux.exchange().map_err(|Closed| ExchangeError::Ended)
    }

    /// Gives its plans the intervals that are set for their models.
    fn take_intervals(&mut self) {
        for (model, plan) in &mut self.plans {
            plan.interval = self.core.interval(*model).unwrap_or(plan.interval);
        }
    }

    /// Whether nothing keeps it from the next batch.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.doing, Doing::Waiting)
    }

    /// Whether all of its streams have left.
    pub(crate) fn has_left(&self) -> bool {
        self.streams.is_empty() && self.joining.is_empty()
    }

    /// Frames of a stream that wait for an answer, or behind one that does.
    pub(crate) fn held(&self, stream: StreamId) -> usize {
        self.streams.get(&stream).map_or(0, |stream| stream.order.len())
    }
}

impl Board<'_> {
    pub(crate) fn step_lane(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        match std::mem::replace(&mut lane.doing, Doing::Waiting) {
            Doing::Waiting => self.next_batch(index),
            Doing::Executing(batch, inputs) => self.executed(index, batch, inputs),
            Doing::Answering(request, parts) => self.give_part(index, request, parts),
            Doing::Forwarding(frame_results) => self.forward(index, frame_results),
            Doing::Ended => lane.doing = Doing::Ended,
        }
    }

    /// Inputs of a batch are executed: they failed, wait for their answer, or are done.
    fn executed(&mut self, index: usize, mut batch: Batch, inputs: Range<usize>) {
        let now = self.simulator.now();
        let lane = &mut self.lanes[index];
        let rng = self.simulator.rng();
        let model = MODEL_SETS[batch.group][batch.progress.step()];
        let fails = now < lane.engine.fails_until && (lane.engine.fails_always || rng.bool());
        let has_time = batch.progress.wait_end().is_none_or(|end| end.since(now) >= ANSWER_MIN);
        let is_remote = REMOTE_MODELS.contains(&model);
        let execution = match rng.u32(..12) {
            _ if fails => Execution::Failed,
            // Some plans do not ask how much is left.
            0..8 if is_remote && (has_time || rng.bool()) => Execution::Suspended,
            0..9 if is_remote => Execution::Skipped,
            _ => Execution::Done,
        };
        match execution {
            Execution::Done => batch.progress.executed(inputs.len()),
            Execution::Skipped => batch.progress.passed(inputs.len()),
            Execution::Suspended => return self.suspend(index, batch, inputs.len()),
            Execution::Failed => {
                lane.is_broken = lane.core.failed(model) == AfterFailure::End;
                return self.finish(index, batch, false);
            }
        }
        self.execute(index, batch);
    }

    /// Executes what is left of a batch: the next inputs of the step at work, or of the next step that has some.
    fn execute(&mut self, index: usize, mut batch: Batch) {
        let (now, rng) = (self.simulator.now(), self.simulator.rng());
        let lane = &mut self.lanes[index];
        let models = MODEL_SETS[batch.group];
        while let Some(model) = models.get(batch.progress.step()) {
            batch.progress.begin_step(lane.plans[model].interval);
            let inputs = *batch.inputs.get_or_insert_with(|| match batch.progress.step() {
                0 => batch
                    .numbers
                    .iter()
                    .filter(|n| n.is_multiple_of(batch.progress.interval().into()))
                    .count(),
                // Objects in the frames.
                _ => rng.usize(..=2 * batch.frames.len()),
            });
            let batch_max = lane.plans[model].batch_max;
            if let Some(inputs) = batch.progress.next_inputs(inputs, batch_max) {
                let slow = if now < lane.engine.slow_until { rng.u32(2..12) } else { 1 };
                let images = u32::try_from(inputs.len()).expect("a small batch");
                let took = (lane.engine.per_batch + lane.engine.per_frame * images) * slow;
                lane.doing = Doing::Executing(batch, inputs);
                return self.simulator.work(lane.task, now + took);
            }
            batch.inputs = None;
            if batch.progress.end_step() {
                lane.core.executed(*model);
            }
        }
        self.finish(index, batch, true);
    }

    fn suspend(&mut self, index: usize, mut batch: Batch, images: usize) {
        let (now, rng) = (self.simulator.now(), self.simulator.rng());
        let wait = millis(rng, 50..3000);
        let is_fast = rng.u32(..10) == 0;
        let lane = &mut self.lanes[index];
        let ticket = lane.mux.ticket();
        if is_fast {
            // The answer is there before the lane waits for it.
            let accepted = lane.mux.resume(ticket, answer(images, false));
            assert_eq!(accepted, !lane.is_closed);
        }
        if !batch.progress.was_suspended() {
            for (frame, number) in batch.frames.iter().zip(&batch.numbers) {
                lane.mux.hold(frame.desc.stream);
                let stream = lane.streams.get_mut(&frame.desc.stream).expect("it was admitted");
                stream.order.suspend(*number);
            }
        }
        batch.plan = Some(lane.plans[&MODEL_SETS[batch.group][batch.progress.step()]]);
        batch.first_suspended.get_or_insert(now);
        batch.until = batch.progress.suspend(images, wait, now);
        lane.mux.suspend(ticket, batch.until);
        let task = lane.task;
        self.simulator.note(|| format!("lane {index} suspends {:?} as {ticket:?}", batch.frames));
        lane.suspended.insert(ticket, batch);
        if !is_fast {
            self.send_step(index, ticket, images);
        }
        self.simulator.work(task, now);
    }

    fn resume(&mut self, index: usize, ticket: Ticket) {
        let now = self.simulator.now();
        let lane = &mut self.lanes[index];
        let late = lane.mux.take_late_answer();
        let mut batch = lane.suspended.remove(&ticket).expect("a ticket is resumed once");
        self.simulator.note(|| format!("lane {index} resumes {ticket:?}: {late:?}"));
        if late.is_none() {
            assert!(batch.until <= now, "{ticket:?} is given up too early");
            lane.given_up += 1;
        }
        match batch.progress.results(late, now) {
            Ok(results) => {
                batch.progress.passed(results.len());
                self.execute(index, batch);
            }
            Err(_) => self.fall_back(index, batch),
        }
    }

    /// A suspended step has no results: the plan that began it executes it here, skips it, or has no other way.
    fn fall_back(&mut self, index: usize, mut batch: Batch) {
        let (now, rng) = (self.simulator.now(), self.simulator.rng());
        let lane = &mut self.lanes[index];
        let model = MODEL_SETS[batch.group][batch.progress.step()];
        let images = batch.progress.waiting_inputs().0.len();
        let plan = batch.plan.expect("it began the step");
        assert!(images <= plan.batch_max, "{images} images of {plan:?}");
        if rng.bool() {
            return self.finish(index, batch, false);
        }
        let is_replaced = plan.generation != lane.plans[&model].generation;
        if now < lane.engine.fails_until {
            lane.is_broken = !is_replaced && lane.core.failed(model) == AfterFailure::End;
            lane.replaced_failed += u64::from(is_replaced);
            return self.finish(index, batch, false);
        }
        lane.fallen_back += 1;
        if !is_replaced && rng.bool() {
            batch.progress.executed(images)
        } else {
            batch.progress.passed(images)
        }
        self.execute(index, batch);
    }

    /// A batch is done, or its frames are dropped: results that wait for no frame before them go on.
    fn finish(&mut self, index: usize, batch: Batch, is_done: bool) {
        let now = self.simulator.now();
        let lane = &mut self.lanes[index];
        let mut frame_results = VecDeque::new();
        for (frame, number) in batch.frames.into_iter().zip(batch.numbers) {
            let id = frame.desc.stream;
            if !is_done {
                let stream = &mut self.streams[id.index()];
                stream.at_lane -= 1;
                stream.counts.drop_frame(DropCause::ExecutionFailed);
            }
            let order = &mut lane.streams.get_mut(&id).expect("it was admitted").order;
            let forward =
                |frame| frame_results.push_back(FrameResult { frame, found: Vec::new(), finished: now });
            match order.settle(number, batch.progress.was_suspended(), is_done.then_some(frame), forward) {
                Settled::Unchanged => {}
                Settled::Held => lane.mux.hold(id),
                Settled::Released(count) => lane.mux.release(id, count),
            }
        }
        lane.doing = Doing::Forwarding(frame_results);
        self.simulator.work(lane.task, now);
    }

    fn next_batch(&mut self, index: usize) {
        let now = self.simulator.now();
        let lane = &mut self.lanes[index];
        let task = lane.task;
        let mut frames = Vec::new();
        let next = lane.mux.next(now, &mut frames);
        self.refuse_unserved(index);
        let lane = &mut self.lanes[index];
        match next {
            NextBatch::WaitUntil(until) => return self.simulator.wait(task, until),
            NextBatch::Closed => return self.end_lane(index),
            NextBatch::Ready(Next::Joined) => {
                for (stream, plans) in lane.joining.drain(..) {
                    for plan in plans {
                        lane.plans.entry(plan.model).or_insert(plan);
                    }
                    lane.streams.insert(stream, Admitted::default());
                }
                lane.take_intervals();
            }
            NextBatch::Ready(Next::Exchanged) => self.exchange(index),
            NextBatch::Ready(Next::Resumed(ticket)) => return self.resume(index, ticket),
            NextBatch::Ready(Next::Request) => return self.answer(index),
            NextBatch::Ready(Next::Left(stream)) => {
                let admitted = lane.streams.remove(&stream);
                let admitted = admitted.expect("a stream that leaves was admitted");
                assert!(admitted.order.is_empty(), "stream {stream} leaves before its frames");
                lane.core.leave(stream);
                lane.plans.retain(|model, _| lane.core.has_model(*model));
                let left = &mut self.streams[stream.index()];
                assert!(left.is_over && left.ring.is_empty(), "stream {stream} leaves before its end");
                left.sinks.end();
                self.simulator.notify(left.sinks_task);
            }
            NextBatch::Ready(Next::Batch(group)) => {
                self.simulator.note(|| format!("lane {index} executes {frames:?}"));
                self.check_batch(index, group, &frames);
                self.resume_sources(index);
                let lane = &mut self.lanes[index];
                let number = |frame: &Frame| {
                    let stream = lane.streams.get_mut(&frame.desc.stream).expect("it was admitted");
                    stream.frames += 1;
                    stream.frames - 1
                };
                let numbers = frames.iter().map(number).collect();
                return self.execute(index, Batch::new(group, frames, numbers, now));
            }
        }
        self.simulator.work(task, now);
    }

    fn exchange(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        lane.core.drop_unused();
        lane.plans.retain(|model, _| lane.core.has_model(*model));
        for (model, plan) in std::mem::take(&mut lane.exchanges) {
            let Some(batches) = lane.core.take_exchange(model) else { continue };
            for (stream, batch_max) in batches {
                lane.mux.set_batch_max(stream, batch_max);
                self.streams[stream.index()].batch_max = batch_max;
            }
            lane.plans.insert(model, plan);
            let begun = |batch: &&mut Batch| MODEL_SETS[batch.group][batch.progress.step()] == model;
            lane.suspended.values_mut().filter(begun).for_each(|batch| batch.progress.replaced());
            lane.exchanged += 1;
        }
        lane.take_intervals();
    }

    fn answer(&mut self, index: usize) {
        let request = self.lanes[index].mux.take_request().expect("one was handed out");
        self.check_request(index, &request);
        self.check_turn_of_request(index);
        let (now, rng) = (self.simulator.now(), self.simulator.rng());
        let (act, parts, took) = (rng.u32(..8), rng.u32(1..40), millis(rng, 1..60));
        let lane = &mut self.lanes[index];
        self.simulator.note(|| format!("lane {index} answers {request:?}"));
        let task = lane.task;
        if !lane.plans.contains_key(&request.model) {
            request.refuse(Unserved::Refused(RequestRefusal::NoModel));
            return self.simulator.work(task, now);
        }
        match act {
            0 => drop(request),
            1..3 => self.send_request(request.answers),
            _ => {
                let parts = if act < 5 { parts } else { 0 };
                lane.doing = Doing::Answering(request, parts);
                return self.simulator.work(task, now + took);
            }
        }
        self.simulator.work(task, now);
    }

    fn give_part(&mut self, index: usize, mut request: Request, parts: u32) {
        let now = self.simulator.now();
        let lane = &mut self.lanes[index];
        if parts == 0 {
            request.answers.last(Vec::new());
        } else if request.answers.part(Vec::new()).is_ok() {
            lane.doing = Doing::Answering(request, parts - 1);
            return self.simulator.work(lane.task, now + Duration::from_millis(1));
        }
        self.simulator.work(self.lanes[index].task, now);
    }

    fn forward(&mut self, index: usize, mut frame_results: VecDeque<FrameResult>) {
        let (now, task) = (self.simulator.now(), self.lanes[index].task);
        while let Some(frame_result) = frame_results.pop_front() {
            let stream = &mut self.streams[frame_result.frame.desc.stream.index()];
            match stream.sinks.offer(frame_result, stream.is_stopping, now) {
                ResultOffer::Accepted => self.simulator.notify(stream.sinks_task),
                ResultOffer::Refused(_, cause) => stream.counts.drop_frame(cause),
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
        if self.lanes[index].is_broken {
            return self.end_lane(index);
        }
        self.simulator.work(task, now);
    }

    /// The lane's thread ends: its mux closes, what waits for answers is dropped, and the sinks of its streams hear that
    /// nothing more comes.
    fn end_lane(&mut self, index: usize) {
        self.simulator.note(|| format!("lane {index} ends"));
        self.close_lane(index);
        let lane = &mut self.lanes[index];
        lane.doing = Doing::Ended;
        lane.joining.clear();
        let waiting = std::mem::take(&mut lane.suspended).into_values().flat_map(|batch| batch.frames);
        let behind = lane.streams.values_mut().flat_map(|stream| stream.order.drain());
        for frame in waiting.chain(behind) {
            let stream = &mut self.streams[frame.desc.stream.index()];
            stream.at_lane -= 1;
            stream.counts.drop_frame(DropCause::Shutdown);
        }
        for stream in self.streams.iter_mut().filter(|stream| stream.lane == index) {
            stream.sinks.end();
            self.simulator.notify(stream.sinks_task);
        }
    }
}
