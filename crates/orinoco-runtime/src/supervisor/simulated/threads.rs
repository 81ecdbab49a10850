//! Sources, sinks and lanes, as far as the supervisor can see their threads.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use orinoco_board::BoardStream;
use orinoco_core::{Diagnosis, ModelId, Nanos, Rng, StreamId, codes};
use orinoco_pipeline::{LaneModels, SinkOutputs, SourceEnd};
use orinoco_sim::Task;

use super::boards::life;
use super::run::{Resource, Run};
use crate::action::Action;
use crate::model_version::LanePlan;

/// Maximum time in which, in a run without faults, a source closes or sinks complete.
const CALM_END_MAX: Duration = Duration::from_millis(100);
/// Maximum time in which a source closes that does not hang.
pub(super) const CLOSE_MAX: Duration = Duration::from_secs(20);
/// Maximum time in which sinks complete that do not hang.
pub(super) const COMPLETE_MAX: Duration = Duration::from_secs(30);
/// Maximum time in which a source notices that its lane has ended, unless it is offline.
const NOTICE_MAX: Duration = Duration::from_secs(1);

/// Stream with its settings and its two threads.
pub(super) struct Stream {
    pub(super) spec: BoardStream,
    pub(super) models: Vec<ModelId>,
    pub(super) lane: usize,
    /// Number of the lane's thread.
    pub(super) lane_number: u64,
    pub(super) source: Thread,
    pub(super) sinks: Thread,
    pub(super) joined: Nanos,
    /// Time at which the stream was asked to end.
    pub(super) stopped: Option<Nanos>,
    /// Whether its lane accepts no more frames.
    pub(super) is_refused: bool,
    /// Whether the source has ended because of that.
    pub(super) lost_its_lane: bool,
    /// Whether its lane forwards no more results.
    pub(super) is_drained: bool,
    pub(super) habits: Habits,
    pub(super) is_retired: bool,
    pub(super) _resource: Resource,
}

/// Behaviour of a stream's threads.
#[derive(Clone, Debug)]
pub(super) struct Habits {
    /// Time and result with which the source ends by itself.
    pub(super) ends: Option<(Nanos, Result<SourceEnd, Diagnosis>)>,
    /// Time in which the source closes; `None` if it hangs.
    pub(super) close: Option<Duration>,
    /// Whether the source is offline, so that it notices only a request to stop.
    pub(super) is_away: bool,
    /// Time in which the sinks complete; `None` if they hang.
    pub(super) complete: Option<Duration>,
    /// Time at which the sinks panic.
    pub(super) panics: Option<Nanos>,
}

impl Habits {
    pub(super) fn new(spec: &BoardStream, now: Nanos, is_calm: bool, rng: &mut Rng) -> Self {
        let ends = life(spec).map(|(life, fails)| match fails {
            true => (now + life, Ok(SourceEnd::Failed(fault("camera", "it does not answer")))),
            false => (now + life, Ok(SourceEnd::Complete)),
        });
        let mut span = |calm: Duration, rough: Duration| match rng.u32(..100) {
            0..85 => Some(up_to(rng, calm)),
            _ if is_calm => Some(up_to(rng, calm)),
            85..98 => Some(up_to(rng, rough)),
            _ => None,
        };
        let (close, complete) = (span(CALM_END_MAX, CLOSE_MAX), span(CALM_END_MAX, COMPLETE_MAX));
        let mut habits = Self { ends, close, is_away: false, complete, panics: None };
        if !is_calm {
            habits.is_away = rng.u32(..10) == 0;
            let later = now + up_to(rng, Duration::from_secs(100));
            match rng.u32(..40) {
                0 => habits.panics = Some(later),
                1 => habits.ends = Some((later, Err(fault("source", "it panicked")))),
                2 => habits.ends = Some((later, Ok(SourceEnd::Failed(fault("source", "it failed"))))),
                _ => {}
            }
        }
        habits
    }

    /// Whether a thread of the stream never ends.
    pub(super) fn hangs(&self) -> bool {
        self.close.is_none() || self.complete.is_none()
    }
}

/// Thread of a source, or of sinks.
pub(super) struct Thread {
    pub(super) task: Option<Task>,
    pub(super) doing: Doing,
}

pub(super) enum Doing {
    /// Is not started yet, or was dropped before its start.
    NotStarted,
    Runs,
    /// Ends in its next step.
    Ending,
    Hangs,
    Ended,
}

impl Thread {
    pub(super) fn not_started() -> Self {
        Self { task: None, doing: Doing::NotStarted }
    }

    pub(super) fn runs(&self) -> bool {
        matches!(self.doing, Doing::Runs | Doing::Ending | Doing::Hangs)
    }
}

/// Plan of a model on a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SimPlan {
    pub(super) generation: u32,
    /// Version of the model's file.
    pub(super) version: u32,
}

/// Thread of a lane, and the entry at which streams join it.
pub(super) struct Lane {
    pub(super) number: u64,
    pub(super) task: Option<Task>,
    pub(super) books: Books,
    /// Plans that the lane has or has had.
    pub(super) plans: BTreeMap<ModelId, SimPlan>,
    /// Plans that the lane takes next.
    pub(super) exchanges: BTreeMap<ModelId, SimPlan>,
    /// Streams that have joined; `leaving` are those whose source has ended.
    pub(super) streams: BTreeSet<StreamId>,
    pub(super) leaving: VecDeque<StreamId>,
    /// Whether the lane outlives its streams.
    pub(super) has_keeper: bool,
    /// Result with which the lane has ended: streams can join it no more.
    pub(super) end: Option<Result<(), Diagnosis>>,
}

/// Streams of a lane and the models that they use. They outlive the lane's thread while a model is held.
pub(super) type Books = Rc<RefCell<LaneModels>>;

/// Hold on a lane's model, for a stream that is being prepared.
pub(super) struct ModelHold {
    books: Books,
    model: ModelId,
    _resource: Resource,
}

impl ModelHold {
    pub(super) fn of(books: &Books, model: ModelId, resource: &Resource) -> Option<Self> {
        let hold = || Self { books: Rc::clone(books), model, _resource: resource.clone() };
        books.borrow_mut().hold(model).then(hold)
    }
}

impl Drop for ModelHold {
    fn drop(&mut self) {
        let mut books = self.books.borrow_mut();
        if books.release(self.model) {
            books.drop_unused();
        }
    }
}

impl Run<'_> {
    pub(super) fn step_source(&mut self, id: StreamId) {
        let now = self.simulator.now();
        let stream = self.streams.get_mut(&id).expect("its thread runs");
        let task = stream.source.task.expect("it was started");
        let ends = stream.habits.ends.as_ref().map(|(when, _)| *when);
        let has_ended = ends.is_some_and(|when| now >= when);
        let is_asked = self.stop_all || stream.stopped.is_some();
        let notices = stream.is_refused && !stream.habits.is_away;
        match stream.source.doing {
            Doing::Runs if has_ended || is_asked || notices => {
                let close = if has_ended { Some(Duration::ZERO) } else { stream.habits.close };
                let wait = if is_asked { Duration::ZERO } else { NOTICE_MAX };
                stream.source.doing = if close.is_some() { Doing::Ending } else { Doing::Hangs };
                if !has_ended {
                    let end = if is_asked { SourceEnd::Stopped } else { SourceEnd::LaneEnded };
                    stream.habits.ends = close.map(|_| (now, Ok(end)));
                }
                match close {
                    Some(close) => {
                        let wait = up_to(self.simulator.rng(), wait);
                        self.simulator.work(task, now + close + wait);
                    }
                    None => self.simulator.wait(task, None),
                }
            }
            Doing::Ending => {
                stream.source.doing = Doing::Ended;
                let end = stream.habits.ends.take().map_or(Ok(SourceEnd::Stopped), |(_, end)| end);
                stream.lost_its_lane = matches!(end, Ok(SourceEnd::LaneEnded));
                self.free_task(task);
                self.drop_frame_sender(id);
                self.send(Action::SourceEnded(id, end));
            }
            _ => self.simulator.wait(task, ends),
        }
    }

    /// Ends the frames of a source: its lane forwards what waits, then the stream leaves the lane.
    pub(super) fn drop_frame_sender(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get(&id) else { return };
        let lane = self.lanes[stream.lane].as_mut();
        let Some(lane) = lane.filter(|lane| lane.number == stream.lane_number && lane.end.is_none()) else {
            return;
        };
        lane.leaving.push_back(id);
        if let Some(task) = lane.task {
            self.simulator.notify(task);
        }
    }

    pub(super) fn step_sinks(&mut self, id: StreamId) {
        let now = self.simulator.now();
        let stream = self.streams.get_mut(&id).expect("its thread runs");
        let task = stream.sinks.task.expect("it was started");
        let panics = stream.habits.panics.filter(|_| matches!(stream.sinks.doing, Doing::Runs));
        match stream.sinks.doing {
            Doing::Runs if stream.is_drained => match stream.habits.complete {
                Some(complete) => {
                    stream.sinks.doing = Doing::Ending;
                    self.simulator.work(task, now + complete);
                }
                None => {
                    stream.sinks.doing = Doing::Hangs;
                    self.simulator.wait(task, None);
                }
            },
            Doing::Runs if panics.is_some_and(|when| now >= when) => {
                stream.sinks.doing = Doing::Ended;
                self.free_task(task);
                self.send(Action::SinkEnded(id, Err(fault("sinks", "they panicked"))));
            }
            Doing::Ending => {
                stream.sinks.doing = Doing::Ended;
                self.free_task(task);
                self.send(Action::SinkEnded(id, Ok(SinkOutputs::default())));
            }
            _ => self.simulator.wait(task, panics),
        }
    }

    pub(super) fn step_lane(&mut self, index: usize, number: u64) {
        let now = self.simulator.now();
        let lane = self.lanes[index].as_mut().filter(|lane| lane.number == number);
        let lane = lane.expect("the shell forgets a lane after its end");
        let task = lane.task.expect("it was started");
        if let Some(end) = lane.end.clone() {
            lane.task = None;
            self.free_task(task);
            self.send(Action::LaneEnded(index, end));
        } else if let Some((model, plan)) = lane.exchanges.pop_first() {
            let taken = lane.books.borrow_mut().take_exchange(model);
            // A model that was dropped meanwhile takes its new plan with it.
            if taken.is_some() {
                let old = lane.plans.insert(model, plan).expect("it had a plan");
                self.seen.replaced += 1;
                self.simulator.note(|| format!("lane {index} has {plan:?} of {model}, before {old:?}"));
                let (lane, generation) = (index, old.generation);
                self.send(Action::PlanDropped(LanePlan { lane, model, generation }));
            }
            let batch = up_to(self.simulator.rng(), Duration::from_millis(30));
            self.simulator.work(task, now + batch);
        } else if let Some(stream) = lane.leaving.pop_front() {
            lane.books.borrow_mut().leave(stream);
            lane.streams.remove(&stream);
            self.drop_result_sender(stream);
            let batch = up_to(self.simulator.rng(), Duration::from_millis(30));
            self.simulator.work(task, now + batch);
        } else if lane.streams.is_empty() && !lane.has_keeper {
            self.end_lane(index, Ok(()));
        } else {
            self.simulator.wait(task, None);
        }
    }

    /// Ends a lane: it refuses frames, its streams' sinks complete, and it reports its end a little later.
    pub(super) fn end_lane(&mut self, index: usize, end: Result<(), Diagnosis>) {
        let now = self.simulator.now();
        let Some(lane) = self.lanes[index].as_mut().filter(|lane| lane.end.is_none()) else { return };
        self.simulator.note(|| format!("lane {index} ends: {end:?}"));
        lane.end = Some(end);
        lane.leaving.clear();
        lane.exchanges.clear();
        let (task, streams) = (lane.task, std::mem::take(&mut lane.streams));
        for stream in streams {
            self.drop_result_sender(stream);
            let Some(stream) = self.streams.get_mut(&stream) else { continue };
            stream.is_refused = true;
            if let Some(task) = stream.source.task.filter(|_| matches!(stream.source.doing, Doing::Runs)) {
                self.simulator.notify(task);
            }
        }
        if let Some(task) = task {
            let later = up_to(self.simulator.rng(), Duration::from_millis(50));
            self.simulator.work(task, now + later);
        }
    }

    /// Ends the results of a stream. Its sinks may have panicked, and the stream may have been removed.
    fn drop_result_sender(&mut self, stream: StreamId) {
        let Some(stream) = self.streams.get_mut(&stream) else { return };
        stream.is_drained = true;
        if let Some(task) = stream.sinks.task.filter(|_| matches!(stream.sinks.doing, Doing::Runs)) {
            self.simulator.notify(task);
        }
    }
}

/// Returns a random time of at most `max`.
pub(super) fn up_to(rng: &mut Rng, max: Duration) -> Duration {
    Duration::from_micros(rng.u64(..=max.as_micros() as u64))
}

pub(super) fn fault(subject: &str, cause: &str) -> Diagnosis {
    Diagnosis::new(&codes::ENGINE_RUN, subject, cause, "nothing: it is simulated")
}
