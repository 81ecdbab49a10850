//! Owner of everything that runs, as pure state: which streams and lanes exist, which change is being prepared, and what
//! must happen next. It receives one [`Action`], changes its state, and returns [`Effect`]s for the shell to carry out. It
//! reads no clock and starts no thread.
//!
//! - A change is prepared, then applied. Meanwhile only the newest wanted board waits, and is prepared next.
//! - Levels of models that were chosen hold for every board until others are chosen. A choice of levels waits until no board
//!   does, and is refused by itself.
//! - Lanes live as long as the run, or until they fail. A failed lane is restarted by preparing the change from the streams
//!   that still run to the running board. A change that is being prepared meanwhile is cancelled, and prepared again after
//!   that: measuring its models may take minutes.
//! - The run is over when the last source has ended and no change is in progress, or soon after a stop was requested.

#[cfg(any(test, debug_assertions))]
mod invariants;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use orinoco_board::{Board, ChosenLevels};
use orinoco_config::Faults;
use orinoco_core::{Diagnosis, Nanos, StreamId};
use orinoco_pipeline::{SinkOutputs, SourceEnd};
use orinoco_telemetry::Event;

use crate::action::{Action, Applied, ChangeKind, Effect, EndedBy, Joined, Rules, StreamEnd};
use crate::reloaded::{Reloaded, Reply, run_has_ended};
use crate::run_memory::RunMemory;
use crate::threads::ThreadError;
use state::{Change, Lane, Next, NextLevels, Phase, Source, Stream};

/// Time for which a changed stream waits for its old source, which may be opening and then notices late that it has to end.
/// Most devices can be opened only once.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(10);
/// Time in which a run must end. The longest wait of a working sink is 30 s, for an MP4 file; systemd waits 60 s
/// (`TimeoutStopSec` of orinocod.service).
const END_MAX: Duration = Duration::from_secs(50);
/// Time for which the end of a run without readers waits for a source. A source that tries to reach a camera notices late,
/// and a shell waits for the whole of a pipeline.
const UNREAD_SOURCE_WAIT_MAX: Duration = Duration::from_millis(300);
/// Maximum number of restarts of one lane within [`RESTART_WINDOW`]. A brief fault of a driver is over after a restart; a
/// lane that fails more often in ten minutes is broken, and a fresh process may help.
const RESTARTS_MAX: usize = 3;
/// Time after which a restart of a lane no longer counts.
const RESTART_WINDOW: Duration = Duration::from_secs(600);
/// Maximum number of times that a change is prepared, if streams cannot join because their lane has failed or lost a model
/// meanwhile.
const ATTEMPTS_MAX: u32 = 3;

/// State of a run, from which it decides what happens next. `P` is the type of a prepared change.
pub(crate) struct Supervisor<P> {
    rules: Rules,
    /// Board that was applied last.
    board: Board,
    /// Streams that have not ended, and ended ones that are still on the board.
    streams: BTreeMap<StreamId, Stream>,
    lanes: Vec<Lane>,
    /// Change that is being prepared or applied.
    change: Option<Change>,
    /// Change that is wanted next.
    next: Option<Next>,
    /// Levels that are chosen for the models of every board.
    levels: ChosenLevels,
    /// Levels that are wanted after that change.
    next_levels: Option<NextLevels>,
    /// Faults of lanes because of which the run ends.
    faults: Vec<Diagnosis>,
    /// Planned memory, if the board has a budget.
    memory: Option<RunMemory>,
    phase: Phase,
    by: EndedBy,
    /// Time by which the run must have ended, once the end was requested.
    end_max: Option<Nanos>,
    sample_at: Nanos,
    effects: Vec<Effect<P>>,
}

impl<P> Supervisor<P> {
    /// Creates the state of a run that starts: its first change is being applied.
    pub(crate) fn new(board: Board, rules: Rules, now: Nanos) -> Self {
        let first = Change { attempt: ATTEMPTS_MAX, ..Change::from(Next::again()) };
        Self {
            rules,
            lanes: (0..board.lanes).map(|_| Lane::default()).collect(),
            streams: BTreeMap::new(),
            change: Some(first),
            next: None,
            levels: ChosenLevels::default(),
            next_levels: None,
            faults: Vec::new(),
            memory: board.memory.map(|budget| RunMemory::new(budget, board.lanes)),
            board,
            phase: Phase::Running,
            by: EndedBy::default(),
            end_max: None,
            sample_at: now,
            effects: Vec::new(),
        }
    }

    /// Allows restarts of lanes of files, too.
    #[cfg(test)]
    pub(crate) fn allow_restarts(&mut self) {
        self.rules.repeat_files = true;
    }

    /// Handles one action, and returns the effects to carry out, in order.
    pub(crate) fn handle(&mut self, action: Action<P>, now: Nanos) -> Vec<Effect<P>> {
        match action {
            Action::SourceEnded(stream, end) => self.source_ended(stream, end),
            Action::SinkEnded(stream, end) => self.sink_ended(stream, end),
            Action::LaneEnded(lane, end) => self.lane_ended(lane, end, now),
            Action::Reload(board, reply) => self.wanted(board, reply),
            Action::ChooseLevels(levels, reply) => self.choose_levels(levels, reply),
            Action::Prepared(prepared) => self.prepared(prepared, now),
            Action::Applied(applied) => self.applied(applied, now),
            Action::PlanDropped(plan) => {
                if let Some(memory) = &mut self.memory {
                    memory.plan_dropped(plan);
                }
            }
            Action::Snapshot(reply) => self.effects.push(Effect::Answered(reply)),
            Action::Unread => {
                if !self.by.stop {
                    self.by.unread = true;
                    self.stop(now);
                    self.close_lanes();
                }
            }
            Action::Stop => self.stop(now),
            Action::Tick => {}
        }
        self.meet_deadlines(now);
        self.settle(now);
        #[cfg(debug_assertions)]
        self.check();
        std::mem::take(&mut self.effects)
    }

    /// Returns the time at which [`Action::Tick`] is due if no other action comes before; `None` when the run is over.
    pub(crate) fn next_wake(&self) -> Option<Nanos> {
        if self.phase == Phase::Over {
            return None;
        }
        let closing = if let Phase::Closing(by) = self.phase { Some(by) } else { None };
        let waits = self.streams.values().filter_map(|stream| match stream.source {
            Source::Waits { until, .. } => Some(until),
            _ => None,
        });
        waits.chain([self.sample_at]).chain(self.end_max).chain(closing).min()
    }

    /// Returns the time by which the run must have ended; `None` if its end was not requested.
    pub(crate) fn end_max(&self) -> Option<Nanos> {
        self.end_max
    }

    /// Returns the reasons for which the run was ended early.
    pub(crate) fn ended_by(&self) -> EndedBy {
        self.by
    }

    /// Returns the streams from which a change starts: those that were not asked to leave, each with its lane unless it has
    /// ended.
    pub(crate) fn running(&self) -> impl Iterator<Item = (StreamId, Option<usize>)> {
        let staying = self.streams.iter().filter(|(_, stream)| !stream.left);
        staying.map(|(id, stream)| (*id, (!stream.has_ended()).then_some(stream.lane)))
    }

    /// Returns the planned memory of the run, if the board has a budget.
    pub(crate) fn memory(&self) -> Option<&RunMemory> {
        self.memory.as_ref()
    }

    /// Whether the sinks of a stream have not ended.
    pub(crate) fn sinks_run(&self, stream: StreamId) -> bool {
        self.streams.get(&stream).is_some_and(|stream| !stream.retired && stream.sink.is_none())
    }

    /// Whether any source has not ended. Until the last source of its streams has ended, a lane keeps its models.
    pub(crate) fn sources_run(&self) -> bool {
        !self.streams.values().all(|stream| stream.source.has_ended())
    }

    // --- changes -------------------------------------------------------------------------------------------------------

    fn wanted(&mut self, board: Board, reply: Reply) {
        let Some(reply) = self.if_it_runs(&board.name, reply) else { return };
        // The newest board counts, and every request is answered with its result.
        let next = self.next.get_or_insert_with(Next::again);
        next.board = Some(board);
        next.replies.push(reply);
    }

    fn choose_levels(&mut self, levels: ChosenLevels, reply: Reply) {
        let name = self.board.name.clone();
        let Some(reply) = self.if_it_runs(&name, reply) else { return };
        // A choice that still waits is given up. Its reply is answered by its drop.
        self.next_levels = Some(NextLevels { levels, reply, was_put_off: false });
    }

    /// Returns the reply of a change that is wanted, if the run has not ended; else answers it.
    fn if_it_runs(&mut self, board: &str, reply: Reply) -> Option<Reply> {
        if self.phase == Phase::Running && !self.by.stop {
            return Some(reply);
        }
        self.effects.push(Effect::Answer(vec![reply], Err(run_has_ended(board).into())));
        None
    }

    /// Starts to prepare the change that is wanted next, if no other change is at work.
    fn begin_next(&mut self) {
        if self.by.stop || self.change.is_some() {
            return;
        }
        let (change, kind) = if let Some(next) = self.next.take() {
            let (first, later) = next.split();
            self.next = later;
            (Change::from(first), ChangeKind::Board)
        } else if let Some(NextLevels { levels, reply, was_put_off }) = self.next_levels.take() {
            let chosen = Next { replies: vec![reply], was_put_off, ..Next::again() };
            (Change { levels: Some(levels), ..Change::from(chosen) }, ChangeKind::Levels)
        } else {
            return;
        };
        let board = change.board.clone().unwrap_or_else(|| self.board.clone());
        let board = board.with_levels(change.levels.as_ref().unwrap_or(&self.levels));
        self.change = Some(change);
        self.effects.push(Effect::Prepare(Box::new(board), kind));
    }

    /// Cancels the preparation of a change, which may take minutes, so that a lane is restarted first.
    fn cancel_preparation(&mut self) {
        let may_be_put_off = |change: &&mut Change| !change.is_cancelled && !change.was_put_off;
        if let Some(change) = self.change.as_mut().filter(may_be_put_off) {
            change.is_cancelled = true;
            self.effects.push(Effect::CancelPreparation);
        }
    }

    /// Puts off a change whose preparation was cancelled.
    fn put_off(&mut self, mut change: Change) {
        match change.levels.take() {
            // A choice that was made meanwhile counts instead. The reply is then answered by its drop.
            Some(levels) => {
                let again = |reply| NextLevels { levels, reply, was_put_off: true };
                self.next_levels = self.next_levels.take().or(change.replies.pop().map(again));
            }
            None => {
                let next = self.next.get_or_insert_with(Next::again);
                next.was_put_off = true;
                next.go_on_with(change);
            }
        }
    }

    /// Goes on with a change of which streams missed their lane.
    fn prepare_again(&mut self, mut change: Change) {
        let is_restart = change.board.is_none() && !change.restarts.is_empty();
        (change.board, change.attempt, change.is_cancelled) = (None, change.attempt + 1, false);
        match &mut self.next {
            // A newer board takes its place, unless it restarts lanes: these do not wait for another board.
            Some(next) if next.board.is_none() || !is_restart => next.go_on_with(change),
            next => {
                next.iter_mut().for_each(|next| change.restarts.append(&mut next.restarts));
                self.effects.push(Effect::Prepare(Box::new(self.board.clone()), ChangeKind::Board));
                self.change = Some(change);
            }
        }
    }

    /// Handles that lanes could not be restarted on the running board. Another one that is wanted may correct that; else the
    /// run ends.
    fn restart_failed(&mut self, restarts: Vec<Diagnosis>, faults: &[Diagnosis], now: Nanos) {
        match &mut self.next {
            Some(next) => {
                next.restart_failed = true;
                next.restarts.splice(..0, restarts);
                let event = |why: &Diagnosis| Effect::Emit(Event::RestartFailed { why: why.clone() });
                self.effects.extend(faults.iter().map(event));
            }
            None => {
                self.faults.extend(restarts);
                self.faults.extend_from_slice(faults);
                self.stop(now);
            }
        }
    }

    fn prepared(&mut self, prepared: Result<P, Faults>, now: Nanos) {
        let Some(mut change) = self.change.take() else { return };
        match prepared {
            // The change is not needed any more, and a lane that was not restarted is no fault of a run that ends.
            prepared if self.by.stop => {
                let ended = run_has_ended(&self.board.name).into();
                let why = prepared.err().unwrap_or(ended);
                self.effects.push(Effect::Answer(change.into_replies(), Err(why)));
            }
            Ok(prepared) => {
                self.change = Some(change);
                self.effects.push(Effect::Apply(prepared));
            }
            Err(_) if change.is_cancelled => self.put_off(change),
            Err(faults) => {
                let restarts = std::mem::take(&mut change.restarts);
                if change.was_asked() && !restarts.is_empty() {
                    // It may have been the wanted board that was refused: they are restarted on the running one.
                    self.next.get_or_insert_with(Next::again).restarts.extend(restarts);
                } else if !restarts.is_empty() {
                    self.restart_failed(restarts, faults.as_slice(), now);
                }
                let (mut applied, mut refused) = (change.earlier, change.replies);
                if change.attempt > 1 {
                    applied.append(&mut refused);
                }
                // These were applied, except for the streams that missed their lane.
                let mut done = change.done;
                self.count_done(&mut done);
                done.faults.extend(faults.clone());
                self.effects.push(Effect::Answer(applied, Ok(done)));
                self.effects.push(Effect::Answer(refused, Err(faults)));
            }
        }
    }

    fn applied(&mut self, applied: Applied, now: Nanos) {
        let Applied { board, joined, left, replaced, lanes, mut faults, missed, memory } = applied;
        let Some(mut change) = self.change.take() else { return };
        self.board = board.unwrap_or_else(|| self.board.clone());
        if let Some(levels) = change.levels.take() {
            self.levels = levels;
        }
        if let Some((held, admitted)) = self.memory.as_mut().zip(memory) {
            let joined = joined.iter().map(|joined| (joined.stream, &*joined.name));
            let names = self.board.streams.iter().map(|stream| &*stream.name);
            let plans = replaced.iter().map(|replaced| replaced.old);
            held.apply(*admitted, joined, names, plans);
        }
        change.done.replaced.extend(replaced.iter().map(|replaced| replaced.name.to_string()));
        for lane in lanes {
            self.lanes[lane].runs = true;
        }
        for joined in joined {
            change.done.joined.push(joined.name.to_string());
            self.join(joined, now);
        }
        for stream in left {
            if let Some(name) = self.leave(stream) {
                change.done.left.push(name.to_string());
            }
        }
        self.count_done(&mut change.done);
        if !missed.is_empty() && change.attempt < ATTEMPTS_MAX && !self.by.stop {
            change.done.faults.extend(faults);
            return self.prepare_again(change);
        }
        faults.extend(missed);
        if !change.restarts.is_empty() && !change.was_asked() && !faults.is_empty() {
            self.restart_failed(std::mem::take(&mut change.restarts), &faults, now);
        }
        change.done.faults.extend(faults);
        let done = std::mem::take(&mut change.done);
        self.effects.push(Effect::Answer(change.into_replies(), Ok(done)));
    }

    /// Counts the streams that stayed, and lists each of the others and each replaced model once: a change that is prepared
    /// again does some things twice, and a model may be on several lanes.
    fn count_done(&self, done: &mut Reloaded) {
        let staying = self.streams.values().filter(|stream| !stream.left);
        let running: BTreeSet<&str> = staying.map(|stream| &*stream.name).collect();
        let (mut joined, mut left, mut replaced) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        done.joined.retain(|name| running.contains(&**name) && joined.insert(name.clone()));
        done.left.retain(|name| left.insert(name.clone()));
        done.replaced.retain(|name| replaced.insert(name.clone()));
        done.stayed = running.len() - done.joined.len();
    }

    fn join(&mut self, joined: Joined, now: Nanos) {
        let Joined { stream, name, lane, is_live } = joined;
        let mut earlier = self.streams.iter().rev();
        let before = earlier.find(|(_, earlier)| earlier.name == name && !earlier.source.has_ended());
        let source = match before {
            Some((&before, _)) => Source::Waits { before, until: now + CLOSE_WAIT_MAX },
            None => Source::Runs,
        };
        if let Source::Runs = source {
            self.effects.push(Effect::StartSource(stream));
        }
        let joined = Stream { name, lane, is_live, left: false, source, sink: None, retired: false };
        self.streams.insert(stream, joined);
    }

    /// Asks a stream to leave: its source stops, and its sinks complete after its last frame.
    fn leave(&mut self, stream: StreamId) -> Option<Arc<str>> {
        let leaving = self.streams.get_mut(&stream)?;
        leaving.left = true;
        let name = Arc::clone(&leaving.name);
        self.stop_stream(stream);
        Some(name)
    }

    fn stop_stream(&mut self, stream: StreamId) {
        self.effects.push(Effect::StopStream(stream));
        let Some(stopped) = self.streams.get_mut(&stream) else { return };
        let Source::Waits { before, until } = stopped.source else { return };
        stopped.source = Source::Ended(Ok(SourceEnd::Stopped));
        self.effects.push(Effect::DropSource(stream));
        // The device is still in use: a stream that waits for this one now waits for the source before it.
        for waiting in self.streams.values_mut() {
            if matches!(waiting.source, Source::Waits { before, .. } if before == stream) {
                waiting.source = Source::Waits { before, until };
            }
        }
    }

    // --- ends ----------------------------------------------------------------------------------------------------------

    fn source_ended(&mut self, stream: StreamId, end: Result<SourceEnd, Diagnosis>) {
        let Some(ended) = self.streams.get_mut(&stream).filter(|stream| !stream.source.has_ended()) else {
            return;
        };
        // A lane refuses frames before it reports its end. The streams of a failed lane are restarted, so this one has not
        // ended yet. A stream that was asked to leave has no such claim, and its lane may be another one by now.
        if matches!(end, Ok(SourceEnd::LaneEnded)) && !ended.left && self.lanes[ended.lane].runs {
            ended.source = Source::Refused;
            return;
        }
        ended.source = Source::Ended(end);
        self.source_has_ended(stream);
    }

    /// Ends the sources that were refused by a lane which has ended now.
    fn end_refused(&mut self, lane: usize) {
        let refused = self.streams.iter_mut().filter(|(_, stream)| stream.lane == lane);
        let refused = refused.filter(|(_, stream)| matches!(stream.source, Source::Refused));
        let refused = refused.map(|(id, stream)| {
            stream.source = Source::Ended(Ok(SourceEnd::LaneEnded));
            *id
        });
        let refused: Vec<StreamId> = refused.collect();
        refused.into_iter().for_each(|stream| self.source_has_ended(stream));
    }

    /// Starts the source that waited for this one.
    fn source_has_ended(&mut self, ended: StreamId) {
        for (id, stream) in &mut self.streams {
            if matches!(stream.source, Source::Waits { before, .. } if before == ended) {
                stream.source = Source::Runs;
                self.effects.push(Effect::StartSource(*id));
            }
        }
    }

    /// Handles the end of a stream's sinks. A panic in them ends the stream.
    fn sink_ended(&mut self, stream: StreamId, end: Result<SinkOutputs, Diagnosis>) {
        let Some(ended) = self.streams.get_mut(&stream) else { return };
        let name = Arc::clone(&ended.name);
        let why = end.as_ref().err().cloned();
        ended.sink = Some(end);
        if let Some(why) = why {
            self.effects.push(Effect::Emit(Event::SinkFailed { stream: name, why }));
            self.stop_stream(stream);
        }
    }

    fn lane_ended(&mut self, lane: usize, end: Result<(), Diagnosis>, now: Nanos) {
        self.lanes[lane].runs = false;
        if let Err(why) = end {
            self.lane_failed(lane, why, now);
        }
        self.end_refused(lane);
    }

    /// Handles the failure of a lane. It is restarted with its streams, a bounded number of times. After that its failure
    /// ends the run, because the engine may be broken for all streams.
    fn lane_failed(&mut self, lane: usize, why: Diagnosis, now: Nanos) {
        let of_lane = |stream: &&Stream| stream.lane == lane && !stream.has_ended();
        let is_live = self.streams.values().filter(of_lane).any(|stream| stream.is_live);
        let restarts = &mut self.lanes[lane].restarts;
        while restarts.front().is_some_and(|then| now.since(*then) > RESTART_WINDOW) {
            restarts.pop_front();
        }
        let may_restart = self.rules.repeat_files || is_live;
        if self.by.stop || self.phase != Phase::Running || !may_restart || restarts.len() >= RESTARTS_MAX {
            self.effects.push(Effect::Emit(Event::LaneFailed { lane, why: why.clone() }));
            self.faults.push(why);
            self.stop(now);
            return;
        }
        restarts.push_back(now);
        let restarts_left = RESTARTS_MAX - restarts.len();
        self.effects.push(Effect::Emit(Event::LaneRestarted { lane, why: why.clone(), restarts_left }));
        let lost = self.streams.iter().filter(|(_, stream)| stream.lane == lane && !stream.has_ended());
        let lost: Vec<StreamId> = lost.map(|(id, _)| *id).collect();
        // The streams leave, but are still on the board: preparing it again starts them again.
        for stream in lost {
            if let Some(memory) = self.memory.as_mut().filter(|_| !self.streams[&stream].left) {
                memory.lose(stream);
            }
            self.leave(stream);
        }
        self.next.get_or_insert_with(Next::again).restarts.push(why);
        self.cancel_preparation();
    }

    fn stop(&mut self, now: Nanos) {
        if self.by.stop {
            return;
        }
        self.by.stop = true;
        self.end_max = Some(now + END_MAX);
        // The change is not prepared any more. The loss of its streams is no fault of a run that ends.
        if let Some(next) = self.next.take() {
            let ended = run_has_ended(&self.board.name).into();
            let replies = next.earlier.into_iter().chain(next.replies).collect();
            self.effects.push(Effect::Answer(replies, Err(ended)));
        }
        if let Some(NextLevels { reply, .. }) = self.next_levels.take() {
            let ended = run_has_ended(&self.board.name).into();
            self.effects.push(Effect::Answer(vec![reply], Err(ended)));
        }
        // Takes the last figures while all models are still loaded.
        self.effects.push(Effect::Sample);
        self.effects.push(Effect::StopAll);
        let waiting = |stream: &Stream| matches!(stream.source, Source::Waits { .. });
        let waiting: Vec<StreamId> =
            self.streams.iter().filter(|(_, stream)| waiting(stream)).map(|(id, _)| *id).collect();
        for stream in waiting {
            self.stop_stream(stream);
        }
    }

    fn close_lanes(&mut self) {
        let running = self.lanes.iter().enumerate().filter(|(_, lane)| lane.runs);
        self.effects.extend(running.map(|(lane, _)| Effect::CloseLane(lane)));
    }

    // --- time, and what always holds -----------------------------------------------------------------------------------

    fn meet_deadlines(&mut self, now: Nanos) {
        if self.phase == Phase::Over {
            return;
        }
        if now >= self.sample_at {
            self.sample_at = now + self.rules.sample_every;
            self.effects.push(Effect::Sample);
        }
        for (id, stream) in &mut self.streams {
            if matches!(stream.source, Source::Waits { until, .. } if now >= until) {
                stream.source = Source::Runs;
                self.effects.push(Effect::StartSource(*id));
            }
        }
    }

    /// Draws the conclusions from the present state: starts the next change, moves to the next phase, and hands over ended
    /// streams.
    fn settle(&mut self, now: Nanos) {
        self.begin_next();
        let sources_ended = self.streams.values().all(|stream| stream.source.has_ended());
        let is_changing = self.change.is_some() || self.next.is_some();
        if self.phase == Phase::Running && (self.by.stop || (sources_ended && !is_changing)) {
            self.phase = Phase::Draining;
            let running = self.lanes.iter().enumerate().filter(|(_, lane)| lane.runs);
            self.effects.extend(running.map(|(lane, _)| Effect::ReleaseLane(lane)));
        }
        let lanes_ended = !self.lanes.iter().any(|lane| lane.runs);
        let sinks_ended = self.streams.values().all(|stream| stream.retired || stream.sink.is_some());
        if self.phase == Phase::Draining && lanes_ended && sinks_ended {
            // A source notices with its next frame that its lane has ended; a source that is offline has no next frame.
            let running = self.streams.iter().filter(|(_, stream)| !stream.source.has_ended());
            let running: Vec<StreamId> = running.map(|(id, _)| *id).collect();
            running.into_iter().for_each(|stream| self.stop_stream(stream));
            let unread_by = self.by.unread.then(|| now + UNREAD_SOURCE_WAIT_MAX);
            let end_max = self.end_max.unwrap_or(now + END_MAX);
            self.phase = Phase::Closing(unread_by.unwrap_or(end_max).min(end_max));
        }
        let is_late = self.end_max.is_some_and(|end_max| now >= end_max);
        let is_over = match self.phase {
            Phase::Running => false,
            Phase::Draining => is_late,
            Phase::Closing(by) => is_late || now >= by || sources_ended,
            Phase::Over => return,
        };
        if is_over {
            self.phase = Phase::Over;
            self.abandon_hung();
        }
        self.retire();
        if is_over {
            let faults = std::mem::take(&mut self.faults);
            self.effects.push(Effect::Finish(faults));
        }
    }

    /// Stops waiting for lanes, sources and sinks that have not ended in time, and records a fault for each.
    fn abandon_hung(&mut self) {
        for index in 0..self.lanes.len() {
            if std::mem::take(&mut self.lanes[index].runs) {
                self.faults.push(ThreadError::Hung.diagnosis(&format!("lane-{index}")));
                self.end_refused(index);
            }
        }
        let unread = self.by.unread;
        for stream in self.streams.values_mut().filter(|stream| !stream.retired) {
            if !stream.source.has_ended() {
                let is_left = unread && stream.sink.is_some();
                let end = if is_left {
                    Ok(SourceEnd::Stopped)
                } else {
                    Err(ThreadError::Hung.diagnosis(&format!("src-{}", stream.name)))
                };
                stream.source = Source::Ended(end);
            }
            stream
                .sink
                .get_or_insert_with(|| Err(ThreadError::Hung.diagnosis(&format!("sink-{}", stream.name))));
        }
    }

    /// Hands over the figures of streams that have ended.
    fn retire(&mut self) {
        for (id, stream) in &mut self.streams {
            if stream.retired || !stream.has_ended() {
                continue;
            }
            stream.retired = true;
            if let Some(memory) = &mut self.memory {
                memory.release(*id);
            }
            let source = std::mem::replace(&mut stream.source, Source::Retired);
            if let (Source::Ended(source), Some(sink)) = (source, stream.sink.take()) {
                self.effects.push(Effect::Retire(*id, StreamEnd { source, sink }));
            }
        }
        let gone: Vec<StreamId> = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.retired && stream.left)
            .map(|(id, _)| *id)
            .collect();
        for stream in gone {
            self.streams.remove(&stream);
            self.effects.push(Effect::Forget(stream));
        }
    }
}

#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;
