//! Carries out the decisions of the supervisor, as the shell does with threads.

use std::collections::VecDeque;

use orinoco_core::{Diagnosis, StreamId};
use orinoco_telemetry::Event;

use super::prepare::Prepared;
use super::run::{Restarting, Role, Run};
use super::threads::Doing;
use crate::action::{Action, Effect};
use crate::progress::Progress;

impl Run<'_> {
    /// Handles one action and the actions that follow from it.
    pub(super) fn act(&mut self, action: Action<Prepared>) {
        let mut actions = VecDeque::from([action]);
        while let Some(action) = actions.pop_front() {
            match &action {
                Action::Prepared(prepared) => self.note_prepared(prepared.is_ok()),
                Action::LaneEnded(lane, _) => self.lanes[*lane] = None,
                _ => {}
            }
            let now = self.simulator.now();
            let Some(supervisor) = &mut self.supervisor else { return };
            // A requested change may be refused, and that does not end the run.
            let asked = supervisor.change.as_ref().is_some_and(|change| change.was_asked());
            let ends_nothing = asked && matches!(action, Action::Prepared(_) | Action::Applied(_));
            let was_stopped = supervisor.by.stop;
            self.was_stopping = was_stopped;
            let effects = supervisor.handle(action, now);
            supervisor.check();
            assert!(!ends_nothing || was_stopped == supervisor.by.stop, "a reload ends the run");
            if supervisor.by.stop {
                self.seen.stopped.get_or_insert(now);
            }
            for effect in effects {
                if let Effect::Finish(faults) = effect {
                    return self.finish(faults);
                }
                actions.extend(self.carry_out(effect));
            }
        }
    }

    fn carry_out(&mut self, effect: Effect<Prepared>) -> Option<Action<Prepared>> {
        match effect {
            Effect::Prepare(board, kind) => {
                let why = self.prepare(*board, kind).err()?;
                return Some(Action::Prepared(Err(why.into())));
            }
            Effect::CancelPreparation => self.cancel_preparation(),
            Effect::Apply(prepared) => return Some(Action::Applied(self.apply(prepared))),
            Effect::Answer(replies, answer) => {
                replies.into_iter().for_each(|reply| reply.send(answer.clone()));
            }
            Effect::StartSource(stream) => return self.start_source(stream),
            Effect::DropSource(id) => {
                let stream = self.streams.get(&id).expect("it is known");
                assert!(matches!(stream.source.doing, Doing::NotStarted), "the source of {id} was started");
                self.drop_frame_sender(id);
            }
            Effect::StopStream(stream) => self.stop_stream(stream),
            Effect::StopAll => self.stop_threads(),
            Effect::ReleaseLane(lane) => {
                let lane = self.lanes[lane].as_mut()?;
                lane.has_keeper = false;
                self.simulator.notify(lane.task?);
            }
            Effect::CloseLane(lane) => self.end_lane(lane, Ok(())),
            Effect::Emit(event) => self.hear(event),
            Effect::Sample => return (self.is_unread && !self.stop_all).then_some(Action::Unread),
            Effect::Answered(reply) => drop(reply.send(Progress::default())),
            Effect::Retire(stream, _) => {
                let retired = self.streams.get_mut(&stream).expect("it is known");
                assert!(!retired.is_retired, "stream {stream} ends once");
                retired.is_retired = true;
                self.simulator.note(|| format!("stream {stream} has ended"));
            }
            Effect::Forget(id) => {
                let stream = self.streams.remove(&id).expect("it is known");
                assert!(stream.is_retired, "stream {id} is forgotten before its end");
                self.forget_models();
            }
            Effect::Finish(_) => unreachable!("the caller ends with it"),
        }
        None
    }

    fn start_source(&mut self, id: StreamId) -> Option<Action<Prepared>> {
        self.check_start(id);
        let stream = self.streams.get_mut(&id).expect("it is known");
        assert!(matches!(stream.source.doing, Doing::NotStarted), "the source of {id} is started once");
        if self.is_unlucky(500) {
            self.drop_frame_sender(id);
            return Some(Action::SourceEnded(id, Err(super::threads::fault("source", "no thread is left"))));
        }
        let now = self.simulator.now();
        let task = self.add_task(Role::Source(id));
        let stream = self.streams.get_mut(&id).expect("it is known");
        // The lifetime of a source begins when it is started.
        if let Some((when, _)) = &mut stream.habits.ends {
            *when = *when + now.since(stream.joined);
        }
        self.seen.waited += u64::from(now > stream.joined);
        (stream.source.task, stream.source.doing) = (Some(task), Doing::Runs);
        self.simulator.note(|| format!("source {id} starts"));
        None
    }

    fn stop_stream(&mut self, id: StreamId) {
        let now = self.simulator.now();
        let stream = self.streams.get_mut(&id).expect("it is known");
        stream.stopped.get_or_insert(now);
        if let Some(task) = stream.source.task.filter(|_| matches!(stream.source.doing, Doing::Runs)) {
            self.simulator.notify(task);
        }
    }

    /// Requests the end of all streams, including those that join later.
    pub(super) fn stop_threads(&mut self) {
        self.stop_all = true;
        let streams: Vec<StreamId> = self.streams.keys().copied().collect();
        streams.into_iter().for_each(|stream| self.stop_stream(stream));
        self.wake_worker();
    }

    fn hear(&mut self, event: Event) {
        let now = self.simulator.now();
        match event {
            Event::LaneRestarted { lane, restarts_left, .. } => {
                self.simulator.note(|| format!("lane {lane} restarts, {restarts_left} left"));
                self.seen.restarts.entry(lane).or_default().push(now);
                self.seen.restarting = Some(Restarting { failed: now, since: now });
            }
            Event::LaneFailed { lane, .. } => {
                self.simulator.note(|| format!("lane {lane} failed for good"));
                self.check_failure(lane);
                self.seen.lanes_failed += 1;
            }
            _ => {}
        }
    }

    fn finish(&mut self, faults: Vec<Diagnosis>) {
        self.simulator.note(|| format!("the run is over: {faults:?}"));
        let supervisor = self.supervisor.take().expect("it ends once");
        self.seen.end = Some((faults, supervisor.ended_by()));
        // A request without an answer is answered now, as when a channel is dropped.
        drop(supervisor);
        self.drop_actions();
        self.worker = None;
        self.hear_answers();
    }

    pub(super) fn forget_models(&mut self) {
        let used = self.streams.values().flat_map(|stream| stream.models.iter().copied());
        let used: Vec<_> = used.collect();
        self.board.remove_unused(used.into_iter());
    }

    /// Decides at random, with a chance of one in `of`, where faults may happen.
    pub(super) fn is_unlucky(&mut self, of: u32) -> bool {
        self.is_launched && self.weather == super::run::Weather::Rough && self.simulator.rng().u32(..of) == 0
    }
}
