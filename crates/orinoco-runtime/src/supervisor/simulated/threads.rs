//! Sources, sinks and lanes as their threads run them, as far as the supervisor can tell.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use orinoco_board::BoardStream;
use orinoco_core::{Diagnosis, ModelId, Nanos, Rng, StreamId, codes};
use orinoco_pipeline::{LaneCore, SinkOutputs, SourceEnd};
use orinoco_sim::Task;

use super::boards::life;
use super::run::{Resource, Run};
use crate::action::Action;

/// The longest that a source of a calm board takes to close, or its sinks to complete.
const CALM_END_MAX: Duration = Duration::from_millis(100);
/// The longest that a source takes to close which does not hang.
pub(super) const CLOSE_MAX: Duration = Duration::from_secs(20);
/// The longest that sinks take to complete which do not hang.
pub(super) const COMPLETE_MAX: Duration = Duration::from_secs(30);
/// The longest that a source takes to notice that its lane has ended, unless it is away.
const NOTICE_MAX: Duration = Duration::from_secs(1);

/// A stream: its settings, and its two threads.
pub(super) struct Stream {
    pub(super) spec: BoardStream,
    pub(super) models: Vec<ModelId>,
    pub(super) lane: usize,
    /// Number of the lane's thread.
    pub(super) lane_number: u64,
    pub(super) source: Thread,
    pub(super) sinks: Thread,
    pub(super) joined: Nanos,
    /// When it was asked to end.
    pub(super) stopped: Option<Nanos>,
    /// Its lane takes no frames any more.
    pub(super) is_refused: bool,
    /// Its lane forwards no results any more.
    pub(super) is_drained: bool,
    pub(super) habits: Habits,
    pub(super) is_retired: bool,
    pub(super) _resource: Resource,
}

/// How a stream's threads behave.
#[derive(Clone, Debug)]
pub(super) struct Habits {
    /// When its source ends by itself, and how.
    pub(super) ends: Option<(Nanos, Result<SourceEnd, Diagnosis>)>,
    /// How long its source takes to close; `None` where it hangs.
    pub(super) close: Option<Duration>,
    /// Its source notices only a request to stop.
    pub(super) is_away: bool,
    /// How long its sinks take to complete; `None` where they hang.
    pub(super) complete: Option<Duration>,
    /// When its sinks panic.
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

    /// Whether something of it never ends.
    pub(super) fn hangs(&self) -> bool {
        self.close.is_none() || self.complete.is_none()
    }
}

/// A source's or sinks' thread.
pub(super) struct Thread {
    pub(super) task: Option<Task>,
    pub(super) doing: Doing,
}

pub(super) enum Doing {
    /// It is to be started, or was given up before.
    NotStarted,
    Runs,
    /// It ends with this in its next step.
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

/// A lane's thread, and where streams join it.
pub(super) struct Lane {
    pub(super) number: u64,
    pub(super) task: Option<Task>,
    pub(super) books: Books,
    /// Streams that have joined, and those of them whose source is gone.
    pub(super) streams: BTreeSet<StreamId>,
    pub(super) leaving: VecDeque<StreamId>,
    /// It outlives its streams.
    pub(super) has_keeper: bool,
    /// How it has ended: nobody can join it any more.
    pub(super) end: Option<Result<(), Diagnosis>>,
}

/// Streams of a lane and the models that they use; outlives the lane's thread while somebody holds a model.
pub(super) type Books = Rc<RefCell<LaneCore>>;

/// A model of a lane that is held for a stream which is prepared.
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
        self.books.borrow_mut().release(self.model);
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
                    stream.habits.ends = None;
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
                self.free_task(task);
                self.drop_inlet(id);
                self.send(Action::SourceEnded(id, end));
            }
            _ => self.simulator.wait(task, ends),
        }
    }

    /// A source pushes no frames any more: its lane forwards what waits, then the stream leaves it.
    pub(super) fn drop_inlet(&mut self, id: StreamId) {
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
        } else if let Some(stream) = lane.leaving.pop_front() {
            lane.books.borrow_mut().leave(stream);
            lane.streams.remove(&stream);
            self.drop_outlet(stream);
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
        let (task, streams) = (lane.task, std::mem::take(&mut lane.streams));
        for stream in streams {
            self.drop_outlet(stream);
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

    /// The lane forwards no results of a stream any more. Its sinks may have panicked, and the stream be forgotten.
    fn drop_outlet(&mut self, stream: StreamId) {
        let Some(stream) = self.streams.get_mut(&stream) else { return };
        stream.is_drained = true;
        if let Some(task) = stream.sinks.task.filter(|_| matches!(stream.sinks.doing, Doing::Runs)) {
            self.simulator.notify(task);
        }
    }
}

/// Any time up to `max`.
pub(super) fn up_to(rng: &mut Rng, max: Duration) -> Duration {
    Duration::from_micros(rng.u64(..=max.as_micros() as u64))
}

pub(super) fn fault(subject: &str, cause: &str) -> Diagnosis {
    Diagnosis::new(&codes::ENGINE_RUN, subject, cause, "nothing: it is simulated")
}
