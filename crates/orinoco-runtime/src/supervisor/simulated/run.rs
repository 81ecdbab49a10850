//! Run in virtual time: its threads as tasks, the channel between them and the supervisor, and the requests to it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orinoco_board::{Board, ChosenLevels};
use orinoco_config::Faults;
use orinoco_core::{Diagnosis, Nanos, StreamId};
use orinoco_infer::Scratch;
use orinoco_sim::{Simulator, Task};

use super::boards::Genome;
use super::director::Director;
use super::prepare::{Prepared, SimModel, Worker};
use super::threads::{Lane, Stream};
use crate::action::{Action, EndedBy, Rules};
use crate::reloaded::{Reloaded, Reply};
use crate::running_board::RunningBoard;
use crate::supervisor::Supervisor;

/// Resource that takes memory or a file: each holder has a clone.
pub(super) type Resource = Rc<()>;

/// Answers that have arrived, with the numbers of their reloads.
type Answers = Arc<Mutex<Vec<(u64, Result<Reloaded, Faults>)>>>;

/// Time between two progress checks, longer than in the product: no decision depends on it.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time that no run reaches.
const FAR: Nanos = Nanos(u64::MAX);

/// Weather of a run: whether faults may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weather {
    /// Nothing fails, and everything ends soon after it was asked to.
    Calm,
    /// Everything may fail, be slow, or hang.
    Rough,
}

/// Simulated run of a board.
pub(super) struct Run<'s> {
    pub(super) simulator: &'s mut Simulator,
    pub(super) weather: Weather,
    /// Supervisor; `None` when the run is over.
    pub(super) supervisor: Option<Supervisor<Prepared>>,
    /// Channel to the supervisor.
    actions: VecDeque<Action<Prepared>>,
    supervisor_task: Task,
    pub(super) director: Director,
    // State of the shell.
    pub(super) board: RunningBoard<SimModel>,
    pub(super) streams: BTreeMap<StreamId, Stream>,
    pub(super) lanes: Vec<Option<Lane>>,
    pub(super) scratches: Vec<Scratch>,
    pub(super) worker: Option<Worker>,
    pub(super) stop_all: bool,
    /// Whether a stop was requested before the action that is handled now.
    pub(super) was_stopping: bool,
    pub(super) is_unread: bool,
    /// Whether the first change was applied: from then on faults may happen.
    pub(super) is_launched: bool,
    // Number of times that each model file was replaced.
    pub(super) versions: BTreeMap<String, u32>,
    // Counters for numbers that are used once.
    pub(super) next_stream: u32,
    pub(super) next_model: u32,
    pub(super) next_lane: u64,
    next_reload: u64,
    // Observations of the run.
    pub(super) asked: BTreeMap<u64, Asked>,
    /// Requests that ask for levels of models.
    choices: BTreeSet<u64>,
    answers: Answers,
    pub(super) seen: Observations,
    pub(super) resource: Resource,
    roles: Vec<Option<Role>>,
    free: Vec<Task>,
}

/// Request that is not answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) at: Nanos,
    /// Time for which models had been measured by then.
    pub(super) measured: Duration,
    /// Number of restarts of lanes by then.
    pub(super) restarts: usize,
}

/// Lanes that have failed and wait for a change that restarts them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Restarting {
    /// Time of the latest failure.
    pub(super) failed: Nanos,
    /// Time since which nothing explains why they still wait.
    pub(super) since: Nanos,
}

/// Observed events of a run.
#[derive(Debug, Default)]
pub(super) struct Observations {
    pub(super) answered: u64,
    pub(super) applied: u64,
    pub(super) refused: u64,
    pub(super) latest: Option<Result<Reloaded, Faults>>,
    /// Number of the latest reload of a board that was applied.
    pub(super) latest_applied: Option<u64>,
    /// Streams that could not join in the latest change, as it was reported.
    pub(super) reported: BTreeSet<String>,
    /// Times at which each lane was restarted.
    pub(super) restarts: BTreeMap<usize, Vec<Nanos>>,
    /// Lanes that have failed and wait for a change that restarts them.
    pub(super) restarting: Option<Restarting>,
    /// Whether the change that is applied next was prepared after they had failed.
    pub(super) restarts_now: bool,
    /// Number of preparations that were cancelled.
    pub(super) cancelled: u64,
    /// Time for which models were measured in preparations that have ended.
    pub(super) measured: Duration,
    pub(super) lanes_failed: u64,
    pub(super) waited: u64,
    pub(super) missed: u64,
    /// Number of plans that lanes have replaced.
    pub(super) replaced: u64,
    /// Whether a thread of some stream never ends.
    pub(super) may_hang: bool,
    /// Time at which the supervisor learned or decided that the run has to end.
    pub(super) stopped: Option<Nanos>,
    /// Faults of lanes and reasons of the end, when the run is over.
    pub(super) end: Option<(Vec<Diagnosis>, EndedBy)>,
    pub(super) streams_max: usize,
}

/// Thread for which a task stands.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    Supervisor,
    Director,
    Worker,
    Lane(usize, u64),
    Source(StreamId),
    Sinks(StreamId),
}

impl<'s> Run<'s> {
    /// Starts a board.
    pub(super) fn start(
        simulator: &'s mut Simulator,
        weather: Weather,
        genome: Genome,
        director: Director,
    ) -> Self {
        let board = genome.board();
        let rules = Rules {
            sample_every: LOOK_EVERY,
            repeat_files: weather == Weather::Calm || simulator.rng().bool(),
        };
        let supervisor = Supervisor::new(board.clone(), rules, simulator.now());
        let mut run = Self {
            weather,
            supervisor: Some(supervisor),
            actions: VecDeque::new(),
            supervisor_task: simulator.add_task(),
            simulator,
            director,
            lanes: (0..board.lanes).map(|_| None).collect(),
            board: RunningBoard::new(board.clone()),
            streams: BTreeMap::new(),
            scratches: Vec::new(),
            worker: None,
            stop_all: false,
            was_stopping: false,
            is_unread: false,
            is_launched: false,
            versions: BTreeMap::new(),
            next_stream: 0,
            next_model: 0,
            next_lane: 0,
            next_reload: 0,
            asked: BTreeMap::new(),
            choices: BTreeSet::new(),
            answers: Arc::default(),
            seen: Observations::default(),
            resource: Resource::default(),
            roles: vec![Some(Role::Supervisor)],
            free: Vec::new(),
        };
        run.director.wanted = genome;
        run.add_task(Role::Director);
        let applied = run.launch(board);
        run.is_launched = true;
        run.act(Action::Applied(applied));
        run
    }

    /// Runs until `is_reached`, or until the run is over.
    pub(super) fn run_until(&mut self, is_reached: impl Fn(&Self) -> bool) {
        while self.supervisor.is_some() && !is_reached(self) {
            let task = self.simulator.next(FAR).expect("the supervisor wakes until it is over");
            let Some(role) = self.roles[task.index()] else { continue };
            match role {
                Role::Supervisor => self.step_supervisor(task),
                Role::Director => self.step_director(task),
                Role::Worker => self.step_worker(task),
                Role::Lane(index, number) => self.step_lane(index, number),
                Role::Source(stream) => self.step_source(stream),
                Role::Sinks(stream) => self.step_sinks(stream),
            }
            self.check();
        }
    }

    /// Runs until the run is over.
    pub(super) fn run(&mut self) {
        self.run_until(|_| false);
        self.check_ended();
    }

    /// Runs for a time.
    pub(super) fn run_for(&mut self, time: Duration) {
        let end = self.simulator.now() + time;
        self.run_until(|run| run.simulator.now() >= end);
    }

    /// Requests another board.
    pub(super) fn reload(&mut self, board: Board) {
        let (number, reply) = self.reply();
        self.simulator.note(|| {
            let names: Vec<&str> = board.streams.iter().map(|stream| &*stream.name).collect();
            format!("reload {number} asks for {names:?}")
        });
        self.send(Action::Reload(board, reply));
    }

    /// Requests other levels of the models.
    pub(super) fn choose_levels(&mut self, levels: ChosenLevels) {
        let (number, reply) = self.reply();
        self.choices.insert(number);
        self.simulator.note(|| format!("reload {number} asks for {levels:?}"));
        self.send(Action::ChooseLevels(levels, reply));
    }

    /// Makes the reply of a request, with its number.
    fn reply(&mut self) -> (u64, Reply) {
        let (number, answers) = (self.next_reload, Arc::clone(&self.answers));
        self.next_reload += 1;
        let (at, measured, restarts) = (self.simulator.now(), self.measured(), self.restarts());
        self.asked.insert(number, Asked { at, measured, restarts });
        (number, Reply::new(move |answer| answers.lock().expect("not poisoned").push((number, answer))))
    }

    /// Requests the end, as `Control` does: sources know before the supervisor.
    pub(super) fn stop(&mut self) {
        self.simulator.note(|| "stop is requested".to_owned());
        self.stop_threads();
        self.send(Action::Stop);
    }

    /// Sends an action to the supervisor.
    pub(super) fn send(&mut self, action: Action<Prepared>) {
        self.actions.push_back(action);
        self.simulator.notify(self.supervisor_task);
    }

    /// Starts a thread: its first step is due now.
    pub(super) fn add_task(&mut self, role: Role) -> Task {
        let task = match self.free.pop() {
            Some(task) => {
                let now = self.simulator.now();
                self.simulator.work(task, now);
                task
            }
            None => {
                self.roles.push(None);
                self.simulator.add_task()
            }
        };
        self.roles[task.index()] = Some(role);
        task
    }

    /// Returns the maximum number of threads that existed at one time.
    pub(super) fn threads_max(&self) -> usize {
        self.roles.len()
    }

    /// Ends a thread, in its own step.
    pub(super) fn free_task(&mut self, task: Task) {
        self.roles[task.index()] = None;
        self.free.push(task);
    }

    /// Takes one step of the supervisor's thread.
    fn step_supervisor(&mut self, task: Task) {
        let now = self.simulator.now();
        let Some(supervisor) = &self.supervisor else { return };
        let wake = supervisor.next_wake();
        let action = match self.actions.pop_front() {
            None if wake.is_some_and(|wake| now >= wake) => Some(Action::Tick),
            action => action,
        };
        match action {
            Some(action) => {
                self.act(action);
                self.simulator.work(task, now);
            }
            None => self.simulator.wait(task, wake),
        }
        self.hear_answers();
    }

    /// Takes and checks the answers that have arrived.
    pub(super) fn hear_answers(&mut self) {
        let answers = std::mem::take(&mut *self.answers.lock().expect("not poisoned"));
        for (number, answer) in answers {
            let asked = self.asked.remove(&number);
            let asked = asked.unwrap_or_else(|| panic!("reload {number} is answered once"));
            self.check_answer(asked.at, &answer);
            self.seen.answered += 1;
            match &answer {
                Ok(_) => {
                    self.seen.applied += 1;
                    // Whoever keeps the latest answer about a board keeps that of the running one. Levels wait for boards.
                    if !self.choices.remove(&number) {
                        assert!(Some(number) > self.seen.latest_applied, "reload {number} is answered late");
                        self.seen.latest_applied = Some(number);
                    }
                }
                Err(_) => self.seen.refused += 1,
            }
            self.simulator.note(|| format!("reload {number} is answered: {answer:?}"));
            self.seen.latest = Some(answer);
        }
    }

    /// Drops actions that were sent to the supervisor and not received.
    pub(super) fn drop_actions(&mut self) {
        self.actions.clear();
    }

    /// Whether the run is settled: no change is in progress, no stream is leaving, and no request waits.
    pub(super) fn is_settled(&self) -> bool {
        let Some(supervisor) = &self.supervisor else { return true };
        let is_leaving = supervisor.streams.values().any(|stream| stream.left);
        let is_changing = supervisor.change.is_some() || supervisor.next.is_some();
        let is_waiting =
            supervisor.streams.values().any(|stream| matches!(stream.source, super::Source::Waits { .. }));
        self.actions.is_empty() && self.asked.is_empty() && !is_changing && !is_leaving && !is_waiting
    }
}
