//! Batches of a lane on their way through the steps of its streams. This decides what the lane's thread does next. It holds no
//! frame, calls no engine and reads no clock.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use orinoco_core::{ModelId, Nanos, StreamId};

use super::models::{LaneModels, PlanFacts};
use super::order::{FrameOrder, Settled};
use super::progress::BatchProgress;
use crate::{LateAnswer, Ticket};

/// Number of failed batches of one model in a row after which its engine counts as broken, and the lane ends.
const FAILURES_MAX: u32 = 8;

/// Batches and plans of a lane, owned by its thread.
///
/// The thread takes a batch ([`Self::take`]) or goes on with one that was suspended ([`Self::resume`]): that is the current
/// one. It executes what [`Self::next`] says, or after [`Self::resume`] what that returned, and tells how it ended
/// ([`Self::finished`]), until nothing is left, the batch is suspended, or it has failed. Unless it is suspended, the thread then
/// settles each of its frames, that is, forwards or drops its result ([`Self::settle_next`]), and ends it
/// ([`Self::end_batch`]).
///
/// A plan is a bound model ([`Executor`](crate::Executor)). `P` is one, `B` the contents of a batch, and `R` the result of a frame.
#[derive(Debug)]
pub struct LaneBatches<P, B, R> {
    plans: BTreeMap<ModelId, HeldPlan<P>>,
    /// Plans that were replaced while steps that they began were suspended: dropping one might lose the answers, and a step
    /// without an answer is done by the plan that began it.
    replaced: Vec<HeldPlan<P>>,
    /// Number of plans so far.
    plans_taken: u64,
    streams: BTreeMap<StreamId, LaneStream<R>>,
    /// Batch that is executed or settled. One that a panic leaves here has failed.
    current: Option<Batch<B>>,
    /// Batches that wait for an answer.
    suspended: BTreeMap<Ticket, Batch<B>>,
}

#[derive(Debug)]
struct HeldPlan<P> {
    plan: P,
    facts: PlanFacts,
    /// Number of this plan on its lane.
    number: u64,
    /// Number of failed batches since one succeeded.
    failures: u32,
}

#[derive(Debug)]
struct LaneStream<R> {
    /// Models of its steps, in their order.
    models: Vec<ModelId>,
    /// Number of frames that came.
    frames: u64,
    /// Frames that wait for an answer, and those behind them.
    order: FrameOrder<R>,
}

#[derive(Debug)]
struct Batch<B> {
    /// Stream of each frame, and number of the frame in its stream. These streams have the same steps.
    frames: Vec<(StreamId, u64)>,
    /// Number of frames that are settled.
    settled: usize,
    progress: BatchProgress,
    /// Number of inputs of the step at work, once they were collected.
    inputs: Option<usize>,
    /// The latest execution.
    execution: Option<Begun>,
    contents: B,
}

/// An execution that was handed out.
#[derive(Clone, Copy, Debug)]
struct Begun {
    /// Number of the plan.
    plan: u64,
    /// Number of inputs.
    inputs: usize,
}

/// Step of a batch for which inputs are collected.
#[derive(Clone, Copy, Debug)]
pub struct BatchStep<'a> {
    /// Index of the step.
    pub step: usize,
    interval: u32,
    frames: &'a [(StreamId, u64)],
}

impl BatchStep<'_> {
    /// Whether the step's model infers this frame of the batch: with an inference interval of n, every n-th frame of a stream.
    pub fn infers(&self, frame: usize) -> bool {
        self.frames[frame].1.is_multiple_of(u64::from(self.interval))
    }
}

/// Inputs of a step that are to be executed by a plan.
#[derive(Debug)]
pub struct Execution<'a, P, B> {
    /// The step.
    pub step: BatchStep<'a>,
    /// The plan.
    pub plan: &'a mut P,
    /// Contents of the batch.
    pub batch: &'a mut B,
    /// Those of the step's inputs that are to be executed.
    pub inputs: Range<usize>,
    /// Time until which the batch may wait for answers; `None` before it has waited.
    pub wait_end: Option<Nanos>,
}

/// A suspended step that goes on: its answer came, or did not come in time.
#[derive(Debug)]
pub struct Resumed<'a, P, B> {
    /// The step, with the plan that began it and the inputs that wait.
    pub execution: Execution<'a, P, B>,
    /// Time at which it was suspended.
    pub since: Nanos,
    /// Results, one for each input that waits, or the reason why there are none.
    pub answer: LateAnswer,
}

/// End of the execution of some inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutionEnd {
    /// The plan has executed them on this lane.
    Executed,
    /// The plan has skipped them, or another board has answered.
    Passed,
    /// They wait for the answer to this ticket, for at most `wait`.
    Suspended {
        /// The ticket.
        ticket: Ticket,
        /// Maximum time to wait.
        wait: Duration,
    },
    /// The plan has failed to execute them on this lane.
    Failed,
    /// They have no results, and the plan has not tried to execute them on this lane. That says nothing about its engine.
    Unanswered,
}

/// Consequence of the end of an execution.
#[derive(Debug, PartialEq, Eq)]
pub enum AfterExecution<'a, B> {
    /// The batch goes on.
    Next,
    /// The batch waits for an answer, and the lane takes another one.
    Suspended {
        /// Ticket of the answer.
        ticket: Ticket,
        /// Contents of the batch.
        batch: &'a mut B,
        /// Time until which it waits.
        until: Nanos,
        /// Whether its frames wait for the first time. From now on they are held.
        is_first: bool,
    },
    /// The frames of the batch are to be dropped, and this becomes of the lane.
    Failed(AfterFailure),
}

/// Decision about a lane on which a model has failed. The frames of the batch are dropped in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// The lane continues with the next batch.
    Continue,
    /// The lane ends: the model's engine is broken.
    End,
}

/// Result of taking the plans that were to replace others.
#[derive(Debug)]
pub struct Exchanged<Q, P> {
    /// Streams whose batches change, and their new maximum size.
    pub batches: Vec<(StreamId, usize)>,
    /// Plans that are not used any more. Dropping one may take long.
    pub dropped: Vec<P>,
    /// Plans that came for models which nobody uses any more.
    pub refused: Vec<Q>,
}

/// Frames that a lane which ends has not finished, and plans that were kept for them.
#[derive(Debug)]
pub struct Unfinished<P, B, R> {
    /// The current batch, which a panic ended.
    pub current: Option<B>,
    /// Batches that wait for an answer.
    pub suspended: Vec<B>,
    /// Results that wait for frames before them.
    pub held: Vec<R>,
    /// Plans that were replaced, and whose answers nobody waits for any more.
    pub replaced: Vec<P>,
}

impl<P, B, R> Default for LaneBatches<P, B, R> {
    fn default() -> Self {
        Self {
            plans: BTreeMap::new(),
            replaced: Vec::new(),
            plans_taken: 0,
            streams: BTreeMap::new(),
            current: None,
            suspended: BTreeMap::new(),
        }
    }
}

// --- streams and plans -------------------------------------------------------------------------------------------------

impl<P, B, R> LaneBatches<P, B, R> {
    /// Adds a stream, with the models of its steps in their order. Called before the stream's first frame is taken.
    pub fn add_stream(&mut self, stream: StreamId, models: Vec<ModelId>) {
        let added = LaneStream { models, frames: 0, order: FrameOrder::default() };
        self.streams.insert(stream, added);
    }

    /// Adds a plan of a model for which the lane has none.
    pub fn add_plan(&mut self, facts: PlanFacts, plan: P) {
        let held = self.hold(facts, plan);
        let before = self.plans.insert(facts.model, held);
        assert!(before.is_none(), "the lane has a plan of model {}", facts.model);
    }

    fn hold(&mut self, facts: PlanFacts, plan: P) -> HeldPlan<P> {
        self.plans_taken += 1;
        HeldPlan { plan, facts, number: self.plans_taken, failures: 0 }
    }

    /// Removes a stream that has ended, and returns the plans that are not used any more.
    pub fn remove_stream(&mut self, stream: StreamId, models: &mut LaneModels) -> Vec<P> {
        let removed = self.streams.remove(&stream).expect("a stream that leaves was added");
        assert!(removed.order.is_empty(), "stream {stream} leaves after its frames");
        models.leave(stream);
        self.extract_unused(models)
    }

    /// Takes the plans that are to replace others, each converted by `make`; one whose model nobody uses any more is refused.
    /// Drops the models that were held and are not used. A plan that is replaced is kept while steps that it began wait for
    /// their answers.
    pub fn exchange<Q>(
        &mut self,
        plans: BTreeMap<ModelId, Q>,
        models: &mut LaneModels,
        mut make: impl FnMut(Q) -> P,
    ) -> Exchanged<Q, P> {
        models.drop_unused();
        let (mut batches, mut refused) = (Vec::new(), Vec::new());
        let mut dropped = self.extract_unused(models);
        for (model, plan) in plans {
            let Some((facts, changed)) = models.take_exchange(model) else {
                refused.push(plan);
                continue;
            };
            batches.extend(changed);
            let held = self.hold(facts, make(plan));
            if let Some(before) = self.plans.insert(model, held) {
                dropped.extend(self.keep_for_answers(before));
            }
        }
        self.take_intervals(models);
        Exchanged { batches, dropped, refused }
    }

    /// Keeps a plan that was replaced while steps that it began wait for their answers, or returns it.
    fn keep_for_answers(&mut self, replaced: HeldPlan<P>) -> Option<P> {
        let is_needed = is_awaited(&replaced, &self.suspended);
        for batch in self.suspended.values_mut().filter(|batch| batch.is_begun_by(replaced.number)) {
            batch.progress.replaced();
        }
        if !is_needed {
            return Some(replaced.plan);
        }
        self.replaced.push(replaced);
        None
    }

    /// Takes the inference intervals that are set.
    pub fn take_intervals(&mut self, models: &LaneModels) {
        for (model, held) in &mut self.plans {
            held.facts.interval = models.interval(*model).unwrap_or(held.facts.interval);
        }
    }

    /// Removes the plans of models that the lane has dropped.
    fn extract_unused(&mut self, models: &LaneModels) -> Vec<P> {
        let unused = self.plans.extract_if(.., |model, _| !models.has_model(*model));
        unused.map(|(_, held)| held.plan).collect()
    }

    /// Returns the lane's plan of a model, if it has one.
    pub fn plan_mut(&mut self, model: ModelId) -> Option<&mut P> {
        self.plans.get_mut(&model).map(|held| &mut held.plan)
    }

    /// Returns the facts about the lane's plan of a model, if it has one.
    pub fn facts(&self, model: ModelId) -> Option<&PlanFacts> {
        self.plans.get(&model).map(|held| &held.facts)
    }

    /// Streams that were added, and have not left.
    pub fn streams(&self) -> impl Iterator<Item = StreamId> {
        self.streams.keys().copied()
    }

    /// Number of frames of a stream that wait for an answer, or behind one that does.
    pub fn held(&self, stream: StreamId) -> usize {
        self.streams.get(&stream).map_or(0, |stream| stream.order.len())
    }

    /// Number of plans that were replaced, and wait for answers to steps that they began.
    pub fn replaced(&self) -> usize {
        self.replaced.len()
    }

    /// Batches that wait for an answer.
    pub fn suspended(&self) -> impl ExactSizeIterator<Item = (Ticket, &B)> {
        self.suspended.iter().map(|(ticket, batch)| (*ticket, &batch.contents))
    }
}

// --- the current batch -------------------------------------------------------------------------------------------------

impl<P, B, R> LaneBatches<P, B, R> {
    /// Makes a batch of streams that have the same steps the current one. `stream_of` names the stream of a frame in it, by the frame's index; `None`
    /// after the last.
    pub fn take(&mut self, contents: B, stream_of: impl Fn(&B, usize) -> Option<StreamId>) {
        assert!(self.current.is_none(), "one batch is executed at a time");
        let number = |stream| {
            let of = self.streams.get_mut(&stream).expect("a stream joins before its frames");
            of.frames += 1;
            (stream, of.frames - 1)
        };
        let frames = (0..).map_while(|index| stream_of(&contents, index)).map(number).collect();
        let (progress, inputs, execution) = (BatchProgress::default(), None, None);
        self.current = Some(Batch { frames, settled: 0, progress, inputs, execution, contents });
    }

    /// Returns the part of the current batch that is to be executed next; `None` if nothing is left, and its frames are to
    /// be forwarded. `collect` collects the inputs of a step, and returns how many there are.
    pub fn next(
        &mut self,
        mut collect: impl FnMut(BatchStep<'_>, &mut B) -> usize,
    ) -> Option<Execution<'_, P, B>> {
        let batch = self.current.as_mut().expect("a batch is executed while it is the current one");
        let models = models_of(&self.streams, batch);
        let inputs = loop {
            let held = self.plans.get_mut(models.get(batch.progress.step())?).expect("each model has a plan");
            batch.progress.begin_step(held.facts.interval);
            let inputs = batch.inputs.unwrap_or_else(|| {
                let (step, contents) = batch.parts();
                collect(step, contents)
            });
            batch.inputs = Some(inputs);
            if let Some(inputs) = batch.progress.next_inputs(inputs, held.facts.batch_max) {
                batch.execution = Some(Begun { plan: held.number, inputs: inputs.len() });
                break inputs;
            }
            batch.inputs = None;
            if batch.progress.end_step() {
                held.failures = 0;
            }
        };
        let held = self.plans.get_mut(&models[batch.progress.step()]).expect("seen above");
        Some(batch.execution(&mut held.plan, inputs))
    }

    /// Takes the end of the latest execution, at `now`.
    pub fn finished(&mut self, end: ExecutionEnd, now: Nanos) -> AfterExecution<'_, B> {
        let batch = self.current.as_mut().expect("a batch is executed while it is the current one");
        let begun = batch.execution.expect("an execution was handed out");
        let model = models_of(&self.streams, batch)[batch.progress.step()];
        let of_lane = self.plans.get_mut(&model).filter(|held| held.number == begun.plan);
        let after = match end {
            // An engine that was replaced says nothing about the one that replaced it.
            ExecutionEnd::Executed if of_lane.is_some() => {
                batch.progress.executed(begun.inputs);
                AfterExecution::Next
            }
            ExecutionEnd::Executed | ExecutionEnd::Passed => {
                batch.progress.passed(begun.inputs);
                AfterExecution::Next
            }
            ExecutionEnd::Suspended { ticket, wait } => return self.suspend(ticket, wait, now),
            ExecutionEnd::Failed => AfterExecution::Failed(of_lane.map_or(AfterFailure::Continue, failed)),
            ExecutionEnd::Unanswered => AfterExecution::Failed(AfterFailure::Continue),
        };
        self.replaced.retain(|held| is_awaited(held, &self.suspended));
        after
    }

    /// Puts the current batch aside until its answer comes, and keeps results of later frames of its streams behind it.
    fn suspend(&mut self, ticket: Ticket, wait: Duration, now: Nanos) -> AfterExecution<'_, B> {
        let mut batch = self.current.take().expect("it is executed");
        let is_first = !batch.progress.was_suspended();
        if is_first {
            for (stream, number) in &batch.frames {
                stream_mut(&mut self.streams, *stream).order.suspend(*number);
            }
        }
        let inputs = batch.execution.expect("it is executed").inputs;
        let until = batch.progress.suspend(inputs, wait, now);
        assert!(!self.suspended.contains_key(&ticket), "{ticket:?} is given once");
        let batch = self.suspended.entry(ticket).insert_entry(batch).into_mut();
        AfterExecution::Suspended { ticket, batch: &mut batch.contents, until, is_first }
    }

    /// Makes a suspended batch the current one at `now`. `answer` is `None` if it did not come in time. The caller collects the
    /// inputs of the step again: [`Self::next`] does not.
    pub fn resume(&mut self, ticket: Ticket, answer: Option<LateAnswer>, now: Nanos) -> Resumed<'_, P, B> {
        assert!(self.current.is_none(), "one batch is executed at a time");
        let batch = self.suspended.remove(&ticket).expect("a ticket is resumed once");
        let batch = self.current.insert(batch);
        let answer = batch.progress.results(answer, now);
        let (inputs, since) = batch.progress.waiting_inputs();
        let began = batch.execution.expect("it was suspended").plan;
        let mut all = self.plans.values_mut().chain(&mut self.replaced);
        let held = all.find(|held| held.number == began).expect("a plan is kept for its answers");
        Resumed { execution: batch.execution(&mut held.plan, inputs), since, answer }
    }

    /// Contents of the current batch, if there is one.
    pub fn current_mut(&mut self) -> Option<&mut B> {
        self.current.as_mut().map(|batch| &mut batch.contents)
    }

    /// Settles the next frame of the current batch: takes its result, `None` if it is dropped, and forwards the results of
    /// its stream that wait for no frame before them. Returns the stream, and the change of its number of held frames; `None`
    /// if all frames are settled.
    pub fn settle_next(
        &mut self,
        result: impl FnOnce(&mut B) -> Option<R>,
        forward: impl FnMut(R),
    ) -> Option<(StreamId, Settled)> {
        let batch = self.current.as_mut().expect("a batch is settled while it is the current one");
        let (stream, number) = *batch.frames.get(batch.settled)?;
        batch.settled += 1;
        let result = result(&mut batch.contents);
        let order = &mut stream_mut(&mut self.streams, stream).order;
        Some((stream, order.settle(number, batch.progress.was_suspended(), result, forward)))
    }

    /// Ends the current batch, all of whose frames are settled, and returns its contents.
    pub fn end_batch(&mut self) -> B {
        let batch = self.current.take().expect("only a panic leaves a batch behind");
        assert_eq!(batch.settled, batch.frames.len(), "each frame is settled");
        batch.contents
    }

    /// Takes the frames that the lane has not finished, and the plans that were kept for them. It ends now.
    pub fn take_unfinished(&mut self) -> Unfinished<P, B, R> {
        let current = self.current.take().map(|batch| batch.contents);
        let suspended = std::mem::take(&mut self.suspended).into_values();
        let suspended = suspended.map(|batch| batch.contents).collect();
        let held = self.streams.values_mut().flat_map(|stream| stream.order.drain()).collect();
        let replaced = self.replaced.drain(..).map(|held| held.plan).collect();
        Unfinished { current, suspended, held, replaced }
    }
}

impl<B> Batch<B> {
    fn parts(&mut self) -> (BatchStep<'_>, &mut B) {
        let (step, interval) = (self.progress.step(), self.progress.interval());
        (BatchStep { step, interval, frames: &self.frames }, &mut self.contents)
    }

    fn execution<'a, P>(&'a mut self, plan: &'a mut P, inputs: Range<usize>) -> Execution<'a, P, B> {
        let wait_end = self.progress.wait_end();
        let (step, batch) = self.parts();
        Execution { step, plan, batch, inputs, wait_end }
    }

    /// Whether its latest execution is one of this plan.
    fn is_begun_by(&self, plan: u64) -> bool {
        self.execution.is_some_and(|begun| begun.plan == plan)
    }
}

/// Whether a batch waits for the answer to a step that this plan began.
fn is_awaited<P, B>(held: &HeldPlan<P>, suspended: &BTreeMap<Ticket, Batch<B>>) -> bool {
    suspended.values().any(|batch| batch.is_begun_by(held.number))
}

/// Notes that a plan has failed to execute a batch, and decides what happens to the lane.
fn failed<P>(held: &mut HeldPlan<P>) -> AfterFailure {
    held.failures += 1;
    if held.failures < FAILURES_MAX { AfterFailure::Continue } else { AfterFailure::End }
}

/// Models of the steps of a batch.
fn models_of<'a, B, R>(streams: &'a BTreeMap<StreamId, LaneStream<R>>, batch: &Batch<B>) -> &'a [ModelId] {
    let (stream, _) = batch.frames.first().expect("a batch has frames");
    &streams.get(stream).expect("a stream leaves after its last frame").models
}

fn stream_mut<R>(streams: &mut BTreeMap<StreamId, LaneStream<R>>, stream: StreamId) -> &mut LaneStream<R> {
    streams.get_mut(&stream).expect("a stream joins before its frames")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::models::StreamModels;
    use crate::{SUSPENSION_MAX, SuspensionError};
    use orinoco_core::InferenceResult;

    const NOW: Nanos = Nanos(1_000_000);
    const STREAM: StreamId = StreamId(0);
    const MODEL: ModelId = ModelId(0);
    const OTHER: ModelId = ModelId(1);
    const WAIT: Duration = Duration::from_millis(40);

    type Batches = LaneBatches<&'static str, Vec<char>, char>;

    fn facts(model: ModelId, generation: u32, batch_max: usize) -> PlanFacts {
        PlanFacts { model, generation, batch_max, reads_video_memory: false, interval: 1 }
    }

    /// A lane with a stream that has these models, each with a plan for so many inputs.
    fn lane(models: &[ModelId], batch_max: usize) -> (LaneModels, Batches) {
        let (mut known, mut batches) = (LaneModels::default(), Batches::default());
        let brought: Vec<_> = models.iter().map(|model| facts(*model, 0, batch_max)).collect();
        let of_stream = StreamModels { models: models.to_vec(), ..StreamModels::default() };
        known.join(STREAM, of_stream, &brought);
        brought.iter().for_each(|plan| batches.add_plan(*plan, "first"));
        batches.add_stream(STREAM, models.to_vec());
        (known, batches)
    }

    fn take(batches: &mut Batches, frames: &str) {
        batches.take(frames.chars().collect(), |frames, index| frames.get(index).map(|_| STREAM));
    }

    /// The plan and the inputs that are executed next, if all frames are inputs.
    fn next(batches: &mut Batches) -> Option<(&'static str, usize, Range<usize>)> {
        let execution = batches.next(|step, frames| (0..frames.len()).filter(|at| step.infers(*at)).count());
        execution.map(|execution| (*execution.plan, execution.step.step, execution.inputs))
    }

    /// Settles all frames, and returns those that are forwarded.
    fn settle(batches: &mut Batches, is_done: bool) -> String {
        let mut forwarded = String::new();
        let take = |frames: &mut Vec<char>| Some(frames.remove(0)).filter(|_| is_done);
        while batches.settle_next(take, |frame| forwarded.push(frame)).is_some() {}
        assert_eq!(batches.end_batch(), Vec::new());
        forwarded
    }

    fn replace(
        models: &mut LaneModels,
        batches: &mut Batches,
        generation: u32,
    ) -> Exchanged<&'static str, &'static str> {
        models.exchange(facts(MODEL, generation, 2)).expect("it is here");
        batches.exchange(BTreeMap::from([(MODEL, "next")]), models, |plan| plan)
    }

    fn suspended(ticket: u64) -> ExecutionEnd {
        ExecutionEnd::Suspended { ticket: Ticket(ticket), wait: WAIT }
    }

    /// Takes a batch of one frame, whose executions end like this, and settles it. Returns what a failure means to the lane.
    fn execute(batches: &mut Batches, ends: &[ExecutionEnd]) -> Option<AfterFailure> {
        take(batches, "a");
        let mut failure = None;
        for end in ends {
            next(batches).expect("a step");
            match batches.finished(*end, NOW) {
                AfterExecution::Next => {}
                AfterExecution::Failed(after) => failure = Some(after),
                after => panic!("{after:?}"),
            }
        }
        assert!(failure.is_some() || next(batches).is_none(), "a step is left");
        settle(batches, failure.is_none());
        failure
    }

    #[test]
    fn a_batch_goes_through_its_steps_in_parts() {
        let (_, mut batches) = lane(&[MODEL, OTHER], 2);
        take(&mut batches, "abc");
        for expected in [(0, 0..2), (0, 2..3), (1, 0..2), (1, 2..3)] {
            assert_eq!(next(&mut batches).map(|(_, step, inputs)| (step, inputs)), Some(expected));
            assert_eq!(batches.finished(ExecutionEnd::Executed, NOW), AfterExecution::Next);
        }
        assert_eq!(next(&mut batches), None);
        assert_eq!(settle(&mut batches, true), "abc");
    }

    #[test]
    fn a_model_looks_at_one_frame_of_each_interval() {
        let (mut models, mut batches) = lane(&[MODEL], 8);
        models.set_interval(MODEL, 3);
        batches.take_intervals(&models);
        for (frames, inferred) in [("ab", Some(0..1)), ("cd", Some(0..1)), ("ef", None)] {
            take(&mut batches, frames);
            assert_eq!(next(&mut batches).map(|(_, _, inputs)| inputs), inferred, "{frames}");
            if inferred.is_some() {
                batches.finished(ExecutionEnd::Executed, NOW);
                assert_eq!(next(&mut batches), None);
            }
            assert_eq!(settle(&mut batches, true), frames);
        }
    }

    #[test]
    fn a_broken_engine_is_noticed_next_to_a_sound_one() {
        let (_, mut batches) = lane(&[OTHER, MODEL], 1);
        let (sound, fails) = (ExecutionEnd::Executed, ExecutionEnd::Failed);
        for _ in 1..FAILURES_MAX {
            assert_eq!(execute(&mut batches, &[sound, fails]), Some(AfterFailure::Continue));
        }
        assert_eq!(execute(&mut batches, &[sound, sound]), None, "it has succeeded in between");
        for _ in 1..FAILURES_MAX {
            assert_eq!(execute(&mut batches, &[sound, fails]), Some(AfterFailure::Continue));
        }
        assert_eq!(execute(&mut batches, &[sound, fails]), Some(AfterFailure::End));
    }

    #[test]
    fn an_answer_that_does_not_come_says_nothing_about_the_engine() {
        let (_, mut batches) = lane(&[MODEL], 1);
        for turn in 0..2 * FAILURES_MAX {
            take(&mut batches, "a");
            next(&mut batches).expect("a step");
            batches.finished(suspended(turn.into()), NOW);
            let resumed = batches.resume(Ticket(turn.into()), None, NOW + WAIT);
            assert!(matches!(resumed.answer, Err(SuspensionError::TimedOut { waited }) if waited == WAIT));
            let after = batches.finished(ExecutionEnd::Unanswered, NOW + WAIT);
            assert_eq!(after, AfterExecution::Failed(AfterFailure::Continue));
            assert_eq!(settle(&mut batches, false), "");
        }
    }

    #[test]
    fn results_of_a_stream_wait_for_a_batch_that_waits() {
        let (_, mut batches) = lane(&[MODEL], 2);
        take(&mut batches, "ab");
        next(&mut batches).expect("a step");
        let AfterExecution::Suspended { until, is_first: true, .. } = batches.finished(suspended(1), NOW)
        else {
            panic!("it is not suspended")
        };
        assert_eq!((until, batches.held(STREAM)), (NOW + WAIT, 2));
        take(&mut batches, "c");
        next(&mut batches).expect("a step");
        batches.finished(ExecutionEnd::Executed, NOW);
        assert_eq!(
            (next(&mut batches), settle(&mut batches, true).as_str(), batches.held(STREAM)),
            (None, "", 3)
        );
        let answer = Ok(vec![InferenceResult::default(); 2]);
        let resumed = batches.resume(Ticket(1), Some(answer), NOW);
        assert_eq!((resumed.since, resumed.execution.inputs), (NOW, 0..2));
        assert_eq!(resumed.execution.wait_end, Some(NOW + SUSPENSION_MAX));
        batches.finished(ExecutionEnd::Passed, NOW);
        assert_eq!(next(&mut batches), None);
        assert_eq!((settle(&mut batches, true).as_str(), batches.held(STREAM)), ("abc", 0));
    }

    #[test]
    fn a_plan_that_was_replaced_ends_the_steps_that_it_began() {
        let (mut models, mut batches) = lane(&[MODEL], 1);
        for (frame, ticket) in [("a", 1), ("b", 2)] {
            take(&mut batches, frame);
            next(&mut batches).expect("a step");
            batches.finished(suspended(ticket), NOW);
        }
        let exchanged = replace(&mut models, &mut batches, 1);
        assert_eq!((exchanged.dropped, batches.replaced()), (vec![], 1), "two steps wait for it");
        assert_eq!(batches.facts(MODEL).map(|facts| facts.generation), Some(1));
        assert_eq!(*batches.resume(Ticket(1), None, NOW).execution.plan, "first");
        assert_eq!(batches.finished(ExecutionEnd::Executed, NOW), AfterExecution::Next);
        assert_eq!((next(&mut batches), batches.replaced()), (None, 1));
        assert_eq!(settle(&mut batches, true), "a");
        let resumed = batches.resume(Ticket(2), None, NOW);
        assert_eq!(*resumed.execution.plan, "first");
        let after = batches.finished(ExecutionEnd::Failed, NOW);
        assert_eq!(after, AfterExecution::Failed(AfterFailure::Continue), "it is not used any more");
        assert_eq!((settle(&mut batches, false).as_str(), batches.replaced()), ("", 0));
        take(&mut batches, "c");
        assert_eq!(next(&mut batches), Some(("next", 0, 0..1)));
    }

    #[test]
    fn an_engine_that_was_replaced_says_nothing_about_the_next_one() {
        let (mut models, mut batches) = lane(&[MODEL], 1);
        let fail = |batches: &mut Batches| execute(batches, &[ExecutionEnd::Failed]);
        // Its first part succeeds, the second one is suspended.
        let half = |batches: &mut Batches, ticket| {
            take(batches, "st");
            next(batches).expect("a step");
            batches.finished(ExecutionEnd::Executed, NOW);
            next(batches).expect("its second part");
            batches.finished(suspended(ticket), NOW);
        };
        for _ in 1..FAILURES_MAX {
            assert_eq!(fail(&mut batches), Some(AfterFailure::Continue));
        }
        half(&mut batches, 1);
        half(&mut batches, 2);
        assert!(replace(&mut models, &mut batches, 1).dropped.is_empty());
        for _ in 1..FAILURES_MAX {
            assert_eq!(fail(&mut batches), Some(AfterFailure::Continue), "the next one begins with none");
        }
        for (ticket, end) in [(1, ExecutionEnd::Executed), (2, ExecutionEnd::Passed)] {
            batches.resume(Ticket(ticket), None, NOW);
            batches.finished(end, NOW);
            assert_eq!((next(&mut batches), settle(&mut batches, true).as_str()), (None, "st"));
        }
        assert_eq!(fail(&mut batches), Some(AfterFailure::End), "the earlier one's success does not count");
    }

    #[test]
    fn plans_that_nobody_waits_for_are_dropped() {
        let (mut models, mut batches) = lane(&[MODEL], 1);
        assert_eq!(replace(&mut models, &mut batches, 1).dropped, ["first"]);
        models.exchange(facts(MODEL, 2, 1)).expect("it is here");
        assert_eq!(batches.remove_stream(STREAM, &mut models), ["next"]);
        let exchanged = batches.exchange(BTreeMap::from([(MODEL, "last")]), &mut models, |plan| plan);
        assert_eq!((exchanged.refused, exchanged.dropped), (vec!["last"], vec![]), "its model is gone");
        assert_eq!((batches.facts(MODEL).is_none(), batches.plan_mut(MODEL)), (true, None));
    }

    #[test]
    fn a_lane_that_ends_gives_back_all_frames() {
        let (mut models, mut batches) = lane(&[MODEL], 2);
        take(&mut batches, "ab");
        next(&mut batches).expect("a step");
        batches.finished(suspended(1), NOW);
        take(&mut batches, "c");
        next(&mut batches).expect("a step");
        batches.finished(ExecutionEnd::Executed, NOW);
        assert_eq!((next(&mut batches), settle(&mut batches, true).as_str()), (None, ""));
        assert!(replace(&mut models, &mut batches, 1).dropped.is_empty(), "a step of it waits");
        take(&mut batches, "de");
        let Unfinished { current, suspended, held, replaced } = batches.take_unfinished();
        assert_eq!((current, suspended, held), (Some(vec!['d', 'e']), vec![vec!['a', 'b']], vec!['c']));
        assert_eq!((replaced, batches.replaced()), (vec!["first"], 0));
    }
}
