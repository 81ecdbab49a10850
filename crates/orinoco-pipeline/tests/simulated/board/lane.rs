//! A lane, as its thread runs it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use orinoco_core::{ModelId, Nanos, Rng, StreamId};
use orinoco_pipeline::{
    AfterExecution, AfterFailure, BatchStep, Closed, ExchangeError, Execution, ExecutionEnd, Frame,
    FrameResult, JoinError, LaneBatches, LaneModels, MuxCore, Next, NextBatch, PlanFacts, Request,
    RequestRefusal, ResultOffer, Resumed, SUSPENSION_MAX, Settled, StreamModels, StreamQueue, Ticket,
    Unserved,
};
use orinoco_sim::Task;
use orinoco_telemetry::DropCause;

use super::remote::answer;
use super::{Board, MODEL_SETS, REMOTE_MODELS, millis};

/// Longest time for which a lane waits for room once its stream is to end.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(5);
/// Failed batches of a model in a row after which its lane ends.
const FAILURES_MAX: u32 = 8;
/// Time below which another board is not asked.
const ANSWER_MIN: Duration = Duration::from_millis(750);

pub(crate) struct Lane {
    pub(crate) task: Task,
    pub(crate) mux: MuxCore,
    pub(crate) models: LaneModels,
    pub(crate) batches: LaneBatches<PlanFacts, Batch, Frame>,
    pub(crate) engine: Engine,
    /// Streams that joined, with the plans that they bring, until the lane admits them.
    joining: Vec<(StreamId, Vec<PlanFacts>)>,
    /// Plans that are to replace others, until the lane takes them.
    exchanges: BTreeMap<ModelId, PlanFacts>,
    /// Plans that it must have.
    pub(super) plans: BTreeMap<ModelId, PlanFacts>,
    /// Failed batches in a row of each plan that it must have.
    failures: BTreeMap<ModelId, u32>,
    /// Frames so far of each stream that it has admitted.
    numbers: BTreeMap<StreamId, u64>,
    /// Requests that went before each stream that it has admitted, since the stream's oldest frame had waited long enough.
    pub(super) requests_before: BTreeMap<StreamId, usize>,
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
    /// Executes so many inputs of the batch.
    Executing(usize),
    /// Gives so many more parts of an answer.
    Answering(Request, u32),
    /// Offers results to sinks.
    Forwarding(VecDeque<FrameResult>),
    Ended,
}

/// Contents of a batch.
pub(crate) struct Batch {
    group: usize,
    frames: VecDeque<Frame>,
    /// Number of each frame in its stream.
    numbers: Vec<u64>,
    /// Step for which its inputs were counted last, and their number.
    counted: Option<(usize, usize)>,
    /// Number of the inputs of that step that are done, and the plan that executed some of them and was not replaced since.
    done: usize,
    executed_by: Option<PlanFacts>,
    /// Step, plan and number of inputs of the latest execution.
    executed: Option<(usize, PlanFacts, usize)>,
    /// Time of its latest suspension.
    suspended: Nanos,
    /// Time of its first suspension.
    pub(crate) first_suspended: Option<Nanos>,
    /// Time until which it waits for its answer.
    pub(crate) until: Nanos,
}

impl Batch {
    fn new(group: usize, frames: VecDeque<Frame>, numbers: Vec<u64>, now: Nanos) -> Self {
        let (counted, executed_by, executed, first_suspended) = (None, None, None, None);
        let (done, suspended, until) = (0, now, now);
        Self {
            group,
            frames,
            numbers,
            counted,
            done,
            executed_by,
            executed,
            suspended,
            first_suspended,
            until,
        }
    }

    /// Checks that all inputs of its latest step are done. A plan of the lane that executed some of them works.
    fn end_step(&mut self, plans: &BTreeMap<ModelId, PlanFacts>, failures: &mut BTreeMap<ModelId, u32>) {
        let Some((step, inputs)) = self.counted else { return };
        assert_eq!(self.done, inputs, "inputs of step {step} are left out");
        let by = self.executed_by.take();
        if let Some(plan) = by.filter(|plan| plans[&plan.model].generation == plan.generation) {
            failures.insert(plan.model, 0);
        }
    }
}

impl Lane {
    pub(crate) fn new(task: Task, rng: &mut Rng) -> Self {
        let (per_batch, per_frame) = (millis(rng, 1..30), millis(rng, 1..20));
        let engine =
            Engine { per_batch, per_frame, slow_until: Nanos(0), fails_until: Nanos(0), fails_always: false };
        Self {
            task,
            mux: MuxCore::default(),
            models: LaneModels::default(),
            batches: LaneBatches::default(),
            engine,
            joining: Vec::new(),
            exchanges: BTreeMap::new(),
            plans: BTreeMap::new(),
            failures: BTreeMap::new(),
            numbers: BTreeMap::new(),
            requests_before: BTreeMap::new(),
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
        let lacking = models.iter().copied().filter(|model| !self.models.has_model(*model));
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
            models.iter().all(|model| self.models.reads_video_memory(*model) || brings(*model));
        let of_frames = models.iter().copied().take(1).collect();
        let models = StreamModels { models: models.to_vec(), of_frames, in_video_memory };
        self.models.check_join(&models, &brought)?;
        let batch_max = self.models.batch_max(&models, &brought);
        self.mux.add(stream, queue, batch_max).map_err(|Closed| JoinError::Ended)?;
        self.models.join(stream, models, &brought);
        self.joining.push((stream, brought));
        Ok((in_video_memory, batch_max))
    }

    /// As [`orinoco_pipeline::LaneEntry::replace`].
    pub(crate) fn replace(&mut self, plan: PlanFacts) -> Result<(), ExchangeError> {
        self.models.exchange(plan)?;
        self.mux.exchange().map_err(|Closed| ExchangeError::Ended)?;
        self.exchanges.insert(plan.model, plan);
        Ok(())
    }

    /// As [`orinoco_pipeline::LaneEntry::set_interval`].
    pub(crate) fn set_interval(&mut self, model: ModelId, interval: u32) -> Result<(), ExchangeError> {
        if !self.models.set_interval(model, interval) {
            return Err(ExchangeError::NoModel(model));
        }
        self.mux.exchange().map_err(|Closed| ExchangeError::Ended)
    }

    /// Gives its plans the intervals that are set for their models.
    fn take_intervals(&mut self) {
        for (model, plan) in &mut self.plans {
            plan.interval = self.models.interval(*model).expect("it is used");
        }
    }

    /// Forgets the plans of models that it has dropped.
    fn drop_plans(&mut self) {
        self.plans.retain(|model, _| self.models.has_model(*model));
        self.failures.retain(|model, _| self.models.has_model(*model));
    }

    /// Whether nothing keeps it from the next batch.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.doing, Doing::Waiting)
    }

    /// Whether all of its streams have left.
    pub(crate) fn has_left(&self) -> bool {
        self.batches.streams().next().is_none() && self.joining.is_empty()
    }
}

impl Board<'_> {
    pub(crate) fn step_lane(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        match std::mem::replace(&mut lane.doing, Doing::Waiting) {
            Doing::Waiting => self.next_batch(index),
            Doing::Executing(inputs) => self.executed(index, inputs),
            Doing::Answering(request, parts) => self.give_part(index, request, parts),
            Doing::Forwarding(frame_results) => self.forward(index, frame_results),
            Doing::Ended => lane.doing = Doing::Ended,
        }
    }

    /// Inputs of the batch are executed: they failed, wait for their answer, or are done.
    fn executed(&mut self, index: usize, inputs: usize) {
        let now = self.simulator.now();
        let lane = &mut self.lanes[index];
        let rng = self.simulator.rng();
        let batch = lane.batches.current_mut().expect("it is executed");
        let (step, ..) = batch.executed.expect("it is executed");
        let model = MODEL_SETS[batch.group][step];
        let fails = now < lane.engine.fails_until && (lane.engine.fails_always || rng.bool());
        let wait_end = batch.first_suspended.map(|first| first + SUSPENSION_MAX);
        let has_time = wait_end.is_none_or(|end| end.since(now) >= ANSWER_MIN);
        let is_remote = REMOTE_MODELS.contains(&model);
        let end = match rng.u32(..12) {
            _ if fails => ExecutionEnd::Failed,
            // Some plans do not ask how much is left.
            0..8 if is_remote && (has_time || rng.bool()) => return self.suspend(index, inputs),
            0..9 if is_remote => ExecutionEnd::Passed,
            _ => ExecutionEnd::Executed,
        };
        self.finish_execution(index, end);
    }

    /// Goes on with the batch after an execution, or drops its frames.
    fn finish_execution(&mut self, index: usize, end: ExecutionEnd) {
        let now = self.simulator.now();
        let lane = &mut self.lanes[index];
        let batch = lane.batches.current_mut().expect("it is executed");
        let (_, plan, inputs) = batch.executed.expect("it is executed");
        let is_lanes = lane.plans.get(&plan.model).is_some_and(|now| now.generation == plan.generation);
        batch.done += inputs;
        if end == ExecutionEnd::Executed && is_lanes {
            batch.executed_by = Some(plan);
        }
        let failures = lane.failures.entry(plan.model).or_default();
        *failures += u32::from(end == ExecutionEnd::Failed && is_lanes);
        let is_broken = end == ExecutionEnd::Failed && is_lanes && *failures == FAILURES_MAX;
        match lane.batches.finished(end, now) {
            AfterExecution::Next => self.execute(index),
            AfterExecution::Failed(after) => {
                assert_eq!(after == AfterFailure::End, is_broken, "lane {index}: {end:?} by {plan:?}");
                lane.is_broken = is_broken;
                self.settle(index, false);
            }
            AfterExecution::Suspended { .. } => panic!("{end:?} suspends nothing"),
        }
    }

    /// Executes what is left of the batch: the next inputs of the step at work, or of the next step that has some.
    fn execute(&mut self, index: usize) {
        let (now, rng) = (self.simulator.now(), self.simulator.rng());
        let lane = &mut self.lanes[index];
        let (plans, failures) = (&lane.plans, &mut lane.failures);
        let collect = |at: BatchStep<'_>, batch: &mut Batch| match batch.counted {
            Some((step, inputs)) if step == at.step => inputs,
            _ => {
                batch.end_step(plans, failures);
                assert_eq!(at.step, batch.counted.map_or(0, |(step, _)| step + 1), "a step is left out");
                let interval = plans[&MODEL_SETS[batch.group][at.step]].interval;
                let inferred = |frame: &usize| batch.numbers[*frame].is_multiple_of(u64::from(interval));
                let is_same = (0..batch.numbers.len()).all(|frame| at.infers(frame) == inferred(&frame));
                assert!(is_same, "frames {:?} of an interval of {interval}", batch.numbers);
                let inputs = match at.step {
                    0 => (0..batch.numbers.len()).filter(inferred).count(),
                    // Objects in the frames.
                    _ => rng.usize(..=2 * batch.frames.len()),
                };
                (batch.counted, batch.done) = (Some((at.step, inputs)), 0);
                inputs
            }
        };
        let Some(Execution { step, plan, batch, inputs, wait_end }) = lane.batches.next(collect) else {
            let batch = lane.batches.current_mut().expect("it is done");
            batch.end_step(&lane.plans, &mut lane.failures);
            let steps = batch.counted.map_or(0, |(step, _)| step + 1);
            assert_eq!(steps, MODEL_SETS[batch.group].len(), "a step is left out");
            return self.settle(index, true);
        };
        assert_eq!(MODEL_SETS[batch.group][step.step], plan.model);
        assert_eq!(plan.generation, lane.plans[&plan.model].generation, "lane {index} has another plan");
        let (counted, all) = batch.counted.expect("they were counted");
        let most = plan.batch_max.min(all - batch.done);
        assert_eq!(
            (counted, &inputs),
            (step.step, &(batch.done..batch.done + most)),
            "of {all} for {plan:?}"
        );
        assert_eq!(wait_end, batch.first_suspended.map(|first| first + SUSPENSION_MAX));
        batch.executed = Some((step.step, *plan, inputs.len()));
        let slow = if now < lane.engine.slow_until { rng.u32(2..12) } else { 1 };
        let images = u32::try_from(inputs.len()).expect("a small batch");
        let took = (lane.engine.per_batch + lane.engine.per_frame * images) * slow;
        lane.doing = Doing::Executing(inputs.len());
        self.simulator.work(lane.task, now + took);
    }

    fn suspend(&mut self, index: usize, images: usize) {
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
        let suspended = lane.batches.finished(ExecutionEnd::Suspended { ticket, wait }, now);
        let AfterExecution::Suspended { batch, until, is_first, .. } = suspended else {
            panic!("{ticket:?} is not suspended")
        };
        assert_eq!(is_first, batch.first_suspended.is_none());
        let first = *batch.first_suspended.get_or_insert(now);
        assert_eq!(until, (now + wait).min(first + SUSPENSION_MAX));
        (batch.until, batch.suspended) = (until, now);
        if is_first {
            batch.frames.iter().for_each(|frame| lane.mux.hold(frame.desc.stream));
        }
        lane.mux.suspend(ticket, until);
        let task = lane.task;
        self.simulator.note(|| format!("lane {index} suspends {:?} as {ticket:?}", batch.frames));
        if !is_fast {
            self.send_step(index, ticket, images);
        }
        self.simulator.work(task, now);
    }

    fn resume(&mut self, index: usize, ticket: Ticket) {
        let (now, rng) = (self.simulator.now(), self.simulator.rng());
        let lane = &mut self.lanes[index];
        let late = lane.mux.take_late_answer();
        let is_answered = late.is_some();
        let Resumed { execution, answer, since } = lane.batches.resume(ticket, late, now);
        let Execution { step, plan, batch, inputs, .. } = execution;
        let (began_step, began, images) = batch.executed.expect("it was suspended");
        let (generation, batch_max) = (plan.generation, plan.batch_max);
        assert_eq!((step.step, inputs.len(), since), (began_step, images, batch.suspended), "{ticket:?}");
        assert_eq!((generation, batch_max), (began.generation, began.batch_max), "another plan goes on");
        if !is_answered {
            assert!(batch.until <= now, "{ticket:?} is given up too early");
            lane.given_up += 1;
        }
        let is_replaced = lane.plans.get(&began.model).is_none_or(|plan| plan.generation != generation);
        let end = match &answer {
            Ok(results) => {
                assert_eq!(results.len(), images);
                ExecutionEnd::Passed
            }
            // The plan that began the step has no other way, or fails, executes it here, or skips it.
            Err(_) if rng.bool() => ExecutionEnd::Unanswered,
            Err(_) if now < lane.engine.fails_until => {
                lane.replaced_failed += u64::from(is_replaced);
                ExecutionEnd::Failed
            }
            Err(_) => {
                lane.fallen_back += 1;
                if rng.bool() { ExecutionEnd::Executed } else { ExecutionEnd::Passed }
            }
        };
        self.simulator.note(|| format!("lane {index} resumes {ticket:?}: {answer:?}, {end:?}"));
        self.finish_execution(index, end);
    }

    /// The batch is done, or its frames are dropped: results that wait for no frame before them go on.
    fn settle(&mut self, index: usize, is_done: bool) {
        let now = self.simulator.now();
        let lane = &mut self.lanes[index];
        let mut frame_results = VecDeque::new();
        let mut forward =
            |frame| frame_results.push_back(FrameResult { frame, found: Vec::new(), finished: now });
        let take = |batch: &mut Batch| batch.frames.pop_front().filter(|_| is_done);
        while let Some((stream, settled)) = lane.batches.settle_next(take, &mut forward) {
            match settled {
                Settled::Unchanged => {}
                Settled::Held => lane.mux.hold(stream),
                Settled::Released(count) => lane.mux.release(stream, count),
            }
            if !is_done {
                let stream = &mut self.streams[stream.index()];
                stream.at_lane -= 1;
                stream.counts.drop_frame(DropCause::ExecutionFailed);
            }
        }
        assert!(lane.batches.end_batch().frames.is_empty());
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
                        assert_eq!(
                            lane.batches.facts(plan.model).is_some(),
                            lane.plans.contains_key(&plan.model)
                        );
                        if lane.batches.facts(plan.model).is_none() {
                            lane.batches.add_plan(plan, plan);
                            lane.plans.insert(plan.model, plan);
                        }
                    }
                    let group = self.streams[stream.index()].queue.group;
                    lane.batches.add_stream(stream, MODEL_SETS[group].to_vec());
                    lane.requests_before.insert(stream, 0);
                    lane.numbers.insert(stream, 0);
                }
                lane.batches.take_intervals(&lane.models);
                lane.take_intervals();
            }
            NextBatch::Ready(Next::Exchanged) => self.exchange(index),
            NextBatch::Ready(Next::Resumed(ticket)) => return self.resume(index, ticket),
            NextBatch::Ready(Next::Request) => return self.answer(index),
            NextBatch::Ready(Next::Left(stream)) => {
                lane.requests_before.remove(&stream).expect("a stream that leaves was admitted");
                lane.numbers.remove(&stream);
                let unused = lane.batches.remove_stream(stream, &mut lane.models);
                lane.drop_plans();
                assert!(unused.iter().all(|plan| !lane.plans.contains_key(&plan.model)), "{unused:?}");
                let left = &mut self.streams[stream.index()];
                assert!(left.is_over && left.ring.is_empty(), "stream {stream} leaves before its end");
                left.sinks.end();
                self.simulator.notify(left.sinks_task);
            }
            NextBatch::Ready(Next::Batch(group)) => {
                self.simulator.note(|| format!("lane {index} executes {frames:?}"));
                self.check_batch(index, group, &frames);
                self.resume_sources(index);
                let streams: Vec<StreamId> = frames.iter().map(|frame| frame.desc.stream).collect();
                let lane = &mut self.lanes[index];
                let number = |stream: &StreamId| {
                    let numbers = lane.numbers.get_mut(stream).expect("it was admitted");
                    *numbers += 1;
                    *numbers - 1
                };
                let numbers = streams.iter().map(number).collect();
                let batch = Batch::new(group, frames.into(), numbers, now);
                let stream_of = |batch: &Batch, index: usize| Some(batch.frames.get(index)?.desc.stream);
                lane.batches.take(batch, stream_of);
                return self.execute(index);
            }
        }
        self.simulator.work(task, now);
    }

    fn exchange(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        let plans = std::mem::take(&mut lane.exchanges);
        let exchanged = lane.batches.exchange(plans.clone(), &mut lane.models, |plan| plan);
        lane.drop_plans();
        for (model, plan) in plans {
            let is_refused = exchanged.refused.iter().any(|refused| refused.model == model);
            assert_eq!(is_refused, !lane.models.has_model(model), "{plan:?}");
            if !is_refused {
                lane.plans.insert(model, plan);
                lane.failures.insert(model, 0);
                lane.exchanged += 1;
            }
        }
        lane.take_intervals();
        for (stream, batch_max) in exchanged.batches {
            lane.mux.set_batch_max(stream, batch_max);
            self.streams[stream.index()].batch_max = batch_max;
        }
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
        if lane.batches.facts(request.model).is_none() {
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
        let unfinished = lane.batches.take_unfinished();
        assert!(unfinished.current.is_none(), "lane {index} ends in the middle of a batch");
        let waiting = unfinished.suspended.into_iter().flat_map(|batch| batch.frames);
        for frame in waiting.chain(unfinished.held) {
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
