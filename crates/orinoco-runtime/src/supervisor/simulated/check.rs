//! Invariants after every step, and at the end of a run.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use orinoco_config::Faults;
use orinoco_core::{Nanos, StreamId};

use super::prepare::PREPARE_MAX;
use super::run::Run;
use super::threads::{CLOSE_MAX, COMPLETE_MAX, Doing, Stream};
use crate::action::Applied;
use crate::reloaded::Reloaded;
use crate::supervisor::state::{Phase, Source};
use crate::supervisor::{ATTEMPTS_MAX, CLOSE_WAIT_MAX, END_MAX, RESTART_WINDOW, RESTARTS_MAX};

/// Time in which a reload is answered, unless models are measured or lanes fail meanwhile: the change at work and the requested
/// one are each prepared at most [`ATTEMPTS_MAX`] times.
const ANSWER_MAX: Duration = Duration::from_nanos(2 * ATTEMPTS_MAX as u64 * PREPARE_MAX.as_nanos() as u64);
/// Time in which lanes that have failed are restarted: a change at work notices that it is cancelled, and the running board is
/// prepared.
const RESTART_MAX: Duration = Duration::from_nanos(2 * PREPARE_MAX.as_nanos() as u64);
/// Time in which a stream that was asked to leave has ended, unless one of its threads hangs: its source closes, its frames
/// pass the lane, and its sinks complete.
const LEAVE_MAX: Duration = Duration::from_secs(CLOSE_MAX.as_secs() + COMPLETE_MAX.as_secs() + 5);
/// Maximum number of models of one board.
const BOARD_MODELS_MAX: usize = 5;

impl Run<'_> {
    /// Checks the run after a step.
    pub(super) fn check(&mut self) {
        let now = self.simulator.now();
        let Some(supervisor) = &self.supervisor else { return };
        let (measured, restarts) = (self.measured(), self.restarts());
        for (reload, asked) in &self.asked {
            let stopped = self.seen.stopped.map(|stopped| (stopped + PREPARE_MAX).max(asked.at));
            let restarts = u32::try_from(restarts - asked.restarts).expect("they are few");
            let answer_max = ANSWER_MAX + ANSWER_MAX * restarts + (measured - asked.measured);
            let by = stopped.into_iter().chain([asked.at + answer_max]).min();
            assert!(Some(now) <= by, "reload {reload} is not answered: {asked:?}");
        }
        if let Some(stopped) = self.seen.stopped {
            assert!(now <= stopped + END_MAX, "the end was requested at {stopped:?}");
        }
        for (id, stream) in &self.streams {
            let known = supervisor.streams.get(id).map(|stream| stream.lane);
            assert_eq!(known, Some(stream.lane), "stream {id} has a lane");
            self.check_stream(*id, stream, now);
        }
        assert_eq!(
            self.streams.len(),
            supervisor.streams.len(),
            "streams of the supervisor and of the shell"
        );
        self.check_board();
        for (lane, restarts) in &self.seen.restarts {
            let late = restarts.len().saturating_sub(RESTARTS_MAX + 1);
            if let [first, .., last] = &restarts[late..]
                && restarts.len() > RESTARTS_MAX
            {
                assert!(
                    last.since(*first) > RESTART_WINDOW,
                    "lane {lane} is restarted too often: {restarts:?}"
                );
            }
        }
        self.check_restart();
        self.check_generations();
        self.check_sizes();
    }

    /// Checks that lanes which have failed are soon restarted, whatever else is wanted.
    fn check_restart(&mut self) {
        let supervisor = self.supervisor.as_ref().expect("it runs");
        let Some(change) = supervisor.change.as_ref().filter(|_| self.seen.stopped.is_none()) else {
            // Streams that could not join were reported.
            self.seen.restarting = None;
            return;
        };
        // A lane waits for models that are measured for itself, or for a change that was put off before.
        let may_wait = !change.restarts.is_empty() || change.was_put_off;
        let by = self.seen.restarting.map(|restarting| restarting.since + RESTART_MAX);
        assert!(
            (may_wait && self.measures()) || by.is_none_or(|by| self.simulator.now() <= by),
            "lanes are not restarted: {:?}",
            self.seen.restarting
        );
    }

    /// Returns the number of restarts of lanes.
    pub(super) fn restarts(&self) -> usize {
        self.seen.restarts.values().map(Vec::len).sum()
    }

    /// Checks that lanes have, or take next, the latest generation of each model.
    fn check_generations(&self) {
        for (index, lane) in self.lanes.iter().enumerate() {
            let Some(lane) = lane.as_ref().filter(|lane| lane.end.is_none()) else { continue };
            let books = lane.books.borrow();
            for (model, known) in self.board.models() {
                let there = books.generation(*model);
                let latest = known.plan.generation;
                assert!(
                    there.is_none_or(|there| there == latest),
                    "lane {index}: {model} is {there:?} of {latest}"
                );
                let plan = lane.exchanges.get(model).or_else(|| lane.plans.get(model));
                assert!(there.is_none() || plan == Some(&known.plan), "lane {index}: {plan:?} of {model}");
                let interval = books.interval(*model);
                let is_set = interval.is_none_or(|interval| interval == known.spec.interval);
                assert!(is_set, "lane {index}: {model} has the interval {interval:?}");
            }
        }
    }

    fn check_stream(&self, id: StreamId, stream: &Stream, now: Nanos) {
        let supervisor = self.supervisor.as_ref().expect("it runs");
        let known = &supervisor.streams[&id];
        match known.source {
            Source::Waits { .. } => {
                assert!(
                    matches!(stream.source.doing, Doing::NotStarted),
                    "source {id} waits, and was started"
                );
            }
            Source::Runs => {
                let is_at_work = stream.source.runs() || matches!(stream.source.doing, Doing::Ended);
                assert!(is_at_work, "source {id} runs, and was not started");
            }
            Source::Refused | Source::Ended(_) | Source::Retired => {
                assert!(!stream.source.runs(), "source {id} has ended, and runs");
            }
        }
        assert_eq!(known.retired, stream.is_retired, "stream {id} has ended");
        let is_lost = known.retired && !known.left && stream.lost_its_lane;
        assert!(
            !is_lost || supervisor.phase != Phase::Running,
            "stream {id} was not restarted with its lane"
        );
        if let (Some(stopped), false, false) = (stream.stopped, stream.is_retired, stream.habits.hangs()) {
            assert!(now <= stopped + LEAVE_MAX, "stream {id} was asked to leave at {stopped:?}");
        }
        assert!(!known.left || stream.stopped.is_some(), "stream {id} has to leave, and does not know");
        let lane = self.lanes[stream.lane].as_ref();
        let has_lane = lane.is_some_and(|lane| lane.number == stream.lane_number);
        let is_fed = matches!(known.source, Source::Waits { .. }) || stream.source.runs();
        assert!(has_lane || stream.stopped.is_some() || !is_fed, "stream {id} runs, and its lane does not");
    }

    /// Checks that every stream of the board runs, has ended, or is joining, unless it was reported that it could not join.
    fn check_board(&self) {
        let supervisor = self.supervisor.as_ref().expect("it runs");
        if supervisor.change.is_some() || supervisor.next.is_some() || supervisor.phase != Phase::Running {
            return;
        }
        for spec in &supervisor.board.streams {
            let here = |(id, stream): (&StreamId, &crate::supervisor::state::Stream)| {
                !stream.left && self.streams[id].spec.name == spec.name
            };
            let is_here = supervisor.streams.iter().any(here);
            assert!(is_here || self.seen.reported.contains(&spec.name), "stream {} is nowhere", spec.name);
        }
    }

    /// Checks that sizes are bounded by the board and by the changes in progress.
    fn check_sizes(&mut self) {
        let supervisor = self.supervisor.as_ref().expect("it runs");
        let on_way =
            self.streams.values().filter(|stream| stream.stopped.is_some() && !stream.is_retired).count();
        let on_board = supervisor.streams.values().filter(|stream| !stream.left).count();
        assert!(self.streams.len() <= on_board + on_way, "{} streams", self.streams.len());
        let known = self.board.models().len();
        let used: BTreeSet<_> = self.streams.values().flat_map(|stream| &stream.models).collect();
        assert!(known <= BOARD_MODELS_MAX + used.len(), "{known} models are known");
        let replies = supervisor.next.as_ref().map_or(0, |next| next.earlier.len() + next.replies.len());
        assert!(replies <= self.asked.len(), "{replies} replies wait");
        self.seen.streams_max = self.seen.streams_max.max(self.streams.len());
    }

    /// Checks that a lane ends the run only when its restarts are used up, or when no stream can be restarted.
    pub(super) fn check_failure(&self, lane: usize) {
        let (now, supervisor) = (self.simulator.now(), self.supervisor.as_ref().expect("it runs"));
        let restarts = self.seen.restarts.get(&lane).into_iter().flatten();
        let recent = restarts.filter(|then| now.since(**then) <= RESTART_WINDOW).count();
        let on_lane = self.streams.values().filter(|stream| stream.lane == lane && !stream.is_retired);
        let mut lost = on_lane.filter(|stream| {
            let may_repeat = supervisor.rules.repeat_files || stream.spec.source.is_live();
            may_repeat && stream.stopped.is_none() && (stream.source.runs() || stream.lost_its_lane)
        });
        let is_last = self.was_stopping || recent >= RESTARTS_MAX;
        assert!(is_last || lost.next().is_none(), "lane {lane} is not restarted, although it may be");
    }

    /// Checks that a source is started only when the one before it has ended, or has had its time.
    pub(super) fn check_start(&self, id: StreamId) {
        let (now, name) = (self.simulator.now(), &self.streams[&id].spec.name);
        for (other, stream) in self.streams.range(..id).filter(|(_, stream)| stream.spec.name == *name) {
            let waited = stream.stopped.map(|stopped| now.since(stopped));
            assert!(
                matches!(stream.source.doing, Doing::NotStarted | Doing::Ended)
                    || waited >= Some(CLOSE_WAIT_MAX),
                "source {id} ({name}) starts, and {other} closes only since {waited:?}"
            );
        }
    }

    /// Checks that an answer matches the state of the run.
    pub(super) fn check_answer(&mut self, asked: Nanos, answer: &Result<Reloaded, Faults>) {
        assert!(asked <= self.simulator.now());
        let (Ok(done), Some(supervisor)) = (answer, &self.supervisor) else { return };
        let joined: BTreeSet<&String> = done.joined.iter().collect();
        assert_eq!(joined.len(), done.joined.len(), "a stream joined twice: {done:?}");
        let running = supervisor.streams.values().filter(|stream| !stream.left).count();
        let wanted = done.joined.len() + done.stayed;
        assert_eq!(wanted, running, "streams that run: {done:?}");
    }

    /// Counts the effects of a change.
    pub(super) fn note_applied(&mut self, applied: &Applied) {
        let Applied { faults, missed, .. } = applied;
        self.seen.missed += missed.len() as u64;
        if std::mem::take(&mut self.seen.restarts_now) {
            self.excuse_restart(self.simulator.now());
            self.seen.restarting = self.seen.restarting.filter(|_| !missed.is_empty());
        }
        self.simulator.note(|| format!("a change is applied; faults {faults:?}, missed {missed:?}"));
        let board = applied.board.as_ref().expect("it has one");
        let failed = faults.iter().chain(missed);
        let names = failed.filter_map(|fault| fault.subject.strip_prefix("stream ").map(str::to_owned));
        self.seen.reported = names.collect();
        // A lane that did not start has lost all of its streams.
        if faults.iter().any(|fault| fault.subject.starts_with("lane ")) {
            self.seen.reported.extend(board.streams.iter().map(|stream| stream.name.clone()));
        }
    }

    /// Checks the end: every request is answered, everything except hung threads has ended, and no resource is held.
    pub(super) fn check_ended(&mut self) {
        assert!(self.asked.is_empty(), "not answered: {:?}", self.asked);
        let (faults, _) = self.seen.end.as_ref().expect("it is over");
        let may_fail =
            self.director.lanes_broken > 0 || self.seen.restarts.values().any(|lane| !lane.is_empty());
        assert!(faults.is_empty() || may_fail || self.seen.may_hang, "{faults:?}");
        for (id, stream) in &self.streams {
            assert!(stream.is_retired, "stream {id} outlived the run");
            let is_late = stream.habits.hangs() || stream.stopped.is_some();
            let is_over = !stream.source.runs() && !stream.sinks.runs();
            assert!(is_late || is_over, "threads of stream {id} outlived the run");
        }
        self.streams.clear();
        self.lanes.clear();
        self.board.take_models();
        assert_eq!(Rc::strong_count(&self.resource), 1, "something is held");
    }
}
