use super::*;
use crate::testing::uri;
use orinoco_board::{BoardModel, BoardStream, ControlSpec, Inference, ModelLevel, ModelLevels, SensorsSpec};
use orinoco_core::codes;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

const RULES: Rules = Rules { sample_every: Duration::from_millis(50), repeat_files: true };

fn fault() -> Diagnosis {
    Diagnosis::new(&codes::ENGINE_RUN, "test", "it fails", "nothing")
}

fn board(streams: &[&str]) -> Board {
    let streams =
        streams.iter().map(|name| BoardStream::new(*name, uri("test://ball"), Vec::new())).collect();
    let (inference, models, files) = (Inference::new(Vec::new()), Vec::new(), Vec::new());
    Board {
        name: "test".to_owned(),
        inference,
        memory: None,
        lanes: 2,
        control: ControlSpec::default(),
        sensors: SensorsSpec::default(),
        otlp: None,
        cluster: None,
        governor: None,
        models,
        streams,
        files,
    }
}

/// Result of each reload, in the order in which they were answered.
type Answers = Arc<Mutex<Vec<Result<Reloaded, String>>>>;

/// Board in virtual time, without threads. It does what the shell does, as far as the supervisor can see.
struct Sim {
    supervisor: Supervisor<Board>,
    now: Nanos,
    next_stream: u32,
    /// Lane and name of each stream. `sources` and `sinks` are the streams whose source or sinks run.
    streams: BTreeMap<StreamId, (usize, String)>,
    sources: BTreeSet<StreamId>,
    waiting: BTreeSet<StreamId>,
    sinks: BTreeSet<StreamId>,
    lanes: BTreeSet<usize>,
    released: BTreeSet<usize>,
    closed: BTreeSet<usize>,
    stopped: BTreeSet<StreamId>,
    /// Streams that were stopped one by one, not with all others.
    stopped_alone: Vec<StreamId>,
    preparing: Option<Board>,
    /// Number of preparations that were cancelled.
    cancelled: usize,
    /// Kinds of the changes that were prepared.
    kinds: Vec<ChangeKind>,
    retired: Vec<StreamId>,
    source_faults: Vec<String>,
    started: Vec<StreamId>,
    events: Vec<String>,
    answers: Answers,
    asked: usize,
    /// Streams whose source and sinks do not end, although they should.
    stuck: BTreeSet<StreamId>,
    over: Option<Vec<Diagnosis>>,
}

impl Sim {
    fn start(board: Board) -> Self {
        let mut sim = Self {
            supervisor: Supervisor::new(board.clone(), RULES, Nanos(0)),
            now: Nanos(0),
            next_stream: 0,
            streams: BTreeMap::new(),
            sources: BTreeSet::new(),
            waiting: BTreeSet::new(),
            sinks: BTreeSet::new(),
            lanes: BTreeSet::new(),
            released: BTreeSet::new(),
            closed: BTreeSet::new(),
            stopped: BTreeSet::new(),
            stopped_alone: Vec::new(),
            preparing: None,
            cancelled: 0,
            kinds: Vec::new(),
            retired: Vec::new(),
            source_faults: Vec::new(),
            started: Vec::new(),
            events: Vec::new(),
            answers: Answers::default(),
            asked: 0,
            stuck: BTreeSet::new(),
            over: None,
        };
        let applied = sim.apply(board);
        sim.act(Action::Applied(applied));
        sim
    }

    fn act(&mut self, action: Action<Board>) {
        let mut actions = VecDeque::from([action]);
        while let Some(action) = actions.pop_front() {
            for effect in self.supervisor.handle(action, self.now) {
                actions.extend(self.carry_out(effect));
            }
            self.supervisor.check();
        }
    }

    fn carry_out(&mut self, effect: Effect<Board>) -> Option<Action<Board>> {
        match effect {
            Effect::Prepare(board, kind) => {
                self.kinds.push(kind);
                assert!(self.preparing.replace(*board).is_none(), "two changes are prepared at one time");
            }
            Effect::CancelPreparation => {
                assert!(self.preparing.is_some(), "only what is prepared is cancelled");
                self.cancelled += 1;
            }
            Effect::Apply(board) => return Some(Action::Applied(self.apply(board))),
            Effect::Answer(replies, answer) => {
                replies.into_iter().for_each(|reply| reply.send(answer.clone()));
            }
            Effect::StartSource(stream) => {
                assert!(self.waiting.remove(&stream), "stream {stream} is started once");
                self.started.push(stream);
                self.sources.insert(stream);
            }
            Effect::DropSource(stream) => assert!(self.waiting.remove(&stream)),
            Effect::StopStream(stream) => {
                self.stopped_alone.push(stream);
                self.stopped.insert(stream);
            }
            Effect::StopAll => self.stopped.extend(self.streams.keys()),
            Effect::ReleaseLane(lane) => drop(self.released.insert(lane)),
            Effect::CloseLane(lane) => {
                self.closed.insert(lane);
                self.released.insert(lane);
            }
            Effect::Emit(Event::LaneFailed { lane, .. }) => self.events.push(format!("lane {lane} failed")),
            Effect::Emit(Event::LaneRestarted { lane, restarts_left, .. }) => {
                self.events.push(format!("lane {lane} restarts, {restarts_left} left"));
            }
            Effect::Emit(_) | Effect::Sample | Effect::Answered(_) => {}
            Effect::Retire(stream, end) => {
                self.source_faults.extend(end.source.err().map(|fault| fault.subject));
                assert!(!self.retired.contains(&stream), "stream {stream} ends once");
                self.retired.push(stream);
            }
            Effect::Forget(stream) => assert!(self.retired.contains(&stream)),
            Effect::Finish(faults) => assert!(self.over.replace(faults).is_none(), "it ends once"),
        }
        None
    }

    /// Applies a change as the shell does, without models: streams are compared by name.
    fn apply(&mut self, board: Board) -> Applied {
        let running: Vec<StreamId> = self.supervisor.running().map(|(id, _)| id).collect();
        let name = |sim: &Self, id: &StreamId| sim.streams[id].1.clone();
        let names: Vec<String> = running.iter().map(|id| name(self, id)).collect();
        let left = running.iter().filter(|id| !board.streams.iter().any(|s| s.name == name(self, id)));
        let mut applied = Applied { left: left.copied().collect(), ..Applied::default() };
        for (index, stream) in board.streams.iter().enumerate().filter(|(_, s)| !names.contains(&s.name)) {
            let lane = board.lane_of(index);
            applied.joined.push(self.add_stream(&stream.name, lane));
            if self.lanes.insert(lane) {
                self.released.remove(&lane);
                applied.lanes.push(lane);
            }
        }
        applied.board = Some(board);
        applied
    }

    /// Adds a stream whose source is not started yet.
    fn add_stream(&mut self, name: &str, lane: usize) -> Joined {
        let stream = StreamId(self.next_stream);
        self.next_stream += 1;
        self.streams.insert(stream, (lane, name.to_owned()));
        self.waiting.insert(stream);
        self.sinks.insert(stream);
        Joined { stream, name: name.into(), lane, is_live: name.starts_with("camera") }
    }

    fn reload(&mut self, board: Board) {
        let reply = self.reply();
        self.act(Action::Reload(board, reply));
    }

    fn choose_levels(&mut self, levels: ChosenLevels) {
        let reply = self.reply();
        self.act(Action::ChooseLevels(levels, reply));
    }

    fn reply(&mut self) -> Reply {
        let answers = Arc::clone(&self.answers);
        self.asked += 1;
        Reply::new(move |answer: Result<Reloaded, Faults>| {
            let answer = answer.map_err(|faults| faults.first().cause.to_string());
            answers.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
        })
    }

    fn answers(&self) -> Vec<Result<Reloaded, String>> {
        self.answers.lock().expect("not poisoned").clone()
    }

    fn prepared(&mut self) {
        if let Some(board) = self.preparing.take() {
            self.act(Action::Prepared(Ok(board)));
        }
    }

    /// Lets a preparation fail, or notice that it is cancelled.
    fn not_prepared(&mut self) {
        if self.preparing.take().is_some() {
            self.act(Action::Prepared(Err(fault().into())));
        }
    }

    fn source_ends(&mut self, stream: StreamId) {
        if self.sources.remove(&stream) {
            self.act(Action::SourceEnded(stream, Ok(SourceEnd::Stopped)));
        }
    }

    /// Ends a source because its lane accepts no more frames.
    fn source_is_refused(&mut self, stream: StreamId) {
        if self.sources.remove(&stream) {
            self.act(Action::SourceEnded(stream, Ok(SourceEnd::LaneEnded)));
        }
    }

    fn sink_ends(&mut self, stream: StreamId) {
        if self.sinks.remove(&stream) {
            self.act(Action::SinkEnded(stream, Ok(SinkOutputs::default())));
        }
    }

    /// Lets a lane fail. The outputs and sources of its streams end by themselves.
    fn lane_fails(&mut self, lane: usize) {
        if self.lanes.remove(&lane) {
            self.act(Action::LaneEnded(lane, Err(fault())));
        }
    }

    /// Ends every source, sink and lane that was asked to end, or that has lost its peer.
    fn run_dry(&mut self) {
        loop {
            let stuck = self.stuck.clone();
            let has_source = |sim: &Self, id: &StreamId| sim.sources.contains(id) || sim.waiting.contains(id);
            let source = self.sources.iter().find(|id| self.stopped.contains(id) && !stuck.contains(id));
            if let Some(&source) = source {
                self.source_ends(source);
                continue;
            }
            let sink = self.sinks.iter().find(|id| {
                let lane_runs = self.lanes.contains(&self.streams[id].0);
                !stuck.contains(id) && (!has_source(self, id) || !lane_runs)
            });
            if let Some(&sink) = sink {
                self.sink_ends(sink);
                continue;
            }
            let is_used = |sim: &Self, lane: usize| sim.sinks.iter().any(|id| sim.streams[id].0 == lane);
            let lane = self.lanes.iter().find(|lane| self.released.contains(lane) && !is_used(self, **lane));
            let Some(&lane) = lane else { return };
            self.lanes.remove(&lane);
            self.act(Action::LaneEnded(lane, Ok(())));
        }
    }

    fn wait_until(&mut self, wake: Nanos) {
        self.now = Nanos(self.now.0.max(wake.0));
        self.act(Action::Tick);
    }

    /// Lets time pass until the run is over.
    fn end(&mut self) {
        for _ in 0..100_000 {
            self.run_dry();
            if self.over.is_some() {
                return;
            }
            let wake = self.supervisor.next_wake().expect("it wakes until it is over");
            self.wait_until(wake);
        }
        panic!("it does not end");
    }

    /// Returns the sorted names of the running streams.
    fn running(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .supervisor
            .running()
            .filter(|(_, lane)| lane.is_some())
            .map(|(id, _)| self.streams[&id].1.clone())
            .collect();
        names.sort();
        names
    }

    fn all_started(&self) -> usize {
        self.started.len()
    }
}

fn stream(id: u32) -> StreamId {
    StreamId(id)
}

#[test]
fn a_run_ends_with_its_last_source() {
    let mut sim = Sim::start(board(&["a", "b"]));
    assert_eq!(sim.all_started(), 2);
    sim.source_ends(stream(0));
    sim.run_dry();
    assert!(sim.released.is_empty() && sim.retired == [stream(0)], "others run on");
    sim.source_ends(stream(1));
    sim.end();
    assert_eq!((sim.over.map(|faults| faults.len()), sim.now, sim.retired.len()), (Some(0), Nanos(0), 2));
}

#[test]
fn a_board_without_streams_is_over_at_once() {
    assert!(Sim::start(board(&[])).over.is_some());
}

#[test]
fn what_hangs_is_left_behind_and_named() {
    let mut sim = Sim::start(board(&["a", "b"]));
    sim.stuck.insert(stream(1));
    assert_eq!(sim.supervisor.end_max(), None);
    sim.act(Action::Stop);
    assert_eq!(sim.supervisor.end_max(), Some(Nanos(0) + END_MAX));
    sim.end();
    let faults: Vec<String> = sim.over.expect("it is over").into_iter().map(|fault| fault.subject).collect();
    assert_eq!((faults, sim.now), (vec!["thread lane-1".to_owned()], Nanos(0) + END_MAX));
}

#[test]
fn a_source_that_hangs_is_named_when_lanes_and_sinks_have_ended() {
    let mut sim = Sim::start(board(&["a", "b"]));
    sim.act(Action::Stop);
    sim.source_ends(stream(1));
    sim.stuck.insert(stream(0));
    sim.lanes.clear();
    sim.act(Action::LaneEnded(0, Ok(())));
    sim.act(Action::LaneEnded(1, Ok(())));
    sim.sink_ends(stream(0));
    assert!(sim.stopped_alone.is_empty());
    sim.sink_ends(stream(1));
    assert_eq!(sim.stopped_alone, [stream(0)], "it may notice only now that nobody takes its frames");
    sim.end();
    assert_eq!(sim.source_faults, ["thread src-a"]);
}

#[test]
fn the_newest_board_waits_and_everybody_hears_of_it() {
    let mut sim = Sim::start(board(&["a"]));
    for streams in [&["a", "b"][..], &["a", "c"], &["a", "d"]] {
        sim.reload(board(streams));
    }
    assert!(sim.answers().is_empty());
    sim.prepared();
    assert_eq!((sim.answers().len(), sim.running()), (1, vec!["a".to_owned(), "b".to_owned()]));
    sim.prepared();
    sim.run_dry();
    assert_eq!(sim.running(), ["a", "d"]);
    let answers: Vec<Vec<String>> =
        sim.answers().into_iter().map(|answer| answer.expect("done").joined).collect();
    assert_eq!(answers, [vec!["b"], vec!["d"], vec!["d"]]);
}

/// Board with one stream and a model with two intervals.
fn board_with_levels(interval: u32) -> Board {
    let levels = ModelLevels { intervals: vec![interval, 8], variants: Vec::new() };
    let model = BoardModel { interval, levels, ..BoardModel::new("m", "file") };
    Board { models: vec![model], ..board(&["a"]) }
}

fn levels(interval: u32) -> ChosenLevels {
    ChosenLevels::from([("m".to_owned(), ModelLevel { interval: Some(interval), variant: None })])
}

#[test]
fn chosen_levels_wait_for_boards_and_hold_for_the_next_ones() {
    let mut sim = Sim::start(board_with_levels(1));
    let interval = |board: &Option<Board>| board.as_ref().expect("a change is prepared").models[0].interval;
    sim.reload(board_with_levels(2));
    sim.choose_levels(levels(8));
    assert_eq!(interval(&sim.preparing), 2, "the board comes first");
    sim.reload(board_with_levels(3));
    sim.prepared();
    assert_eq!(interval(&sim.preparing), 3, "boards come before levels");
    sim.prepared();
    assert_eq!((interval(&sim.preparing), sim.answers().len()), (8, 2));
    sim.prepared();
    assert_eq!(sim.answers().len(), 3);
    assert_eq!(sim.kinds, [ChangeKind::Board, ChangeKind::Board, ChangeKind::Levels]);
    sim.reload(board_with_levels(4));
    assert_eq!(interval(&sim.preparing), 8, "the level stays");
    sim.prepared();
    sim.choose_levels(ChosenLevels::new());
    assert_eq!(interval(&sim.preparing), 4, "the board's own level again");
    sim.prepared();
    assert!(sim.preparing.is_none());
}

#[test]
fn refused_levels_are_forgotten_and_late_ones_answered() {
    let mut sim = Sim::start(board_with_levels(1));
    sim.choose_levels(levels(8));
    sim.not_prepared();
    assert_eq!(sim.answers()[0].as_ref().err().map(String::as_str), Some("it fails"));
    sim.reload(board_with_levels(2));
    assert_eq!(sim.preparing.as_ref().expect("a change is prepared").models[0].interval, 2);
    sim.choose_levels(levels(8));
    sim.act(Action::Stop);
    sim.choose_levels(levels(8));
    sim.not_prepared();
    sim.end();
    let ended =
        sim.answers().into_iter().filter(|answer| answer.as_ref().is_err_and(|why| why.contains("ended")));
    assert_eq!((sim.answers().len(), ended.count()), (4, 2));
}

#[test]
fn a_board_that_is_refused_changes_nothing() {
    let mut sim = Sim::start(board(&["a"]));
    sim.reload(board(&["b"]));
    sim.not_prepared();
    assert_eq!(
        (sim.answers()[0].as_ref().err().map(String::as_str), sim.running()),
        (Some("it fails"), vec!["a".to_owned()])
    );
}

#[test]
fn a_reload_of_a_run_whose_last_source_has_ended_is_refused() {
    let mut sim = Sim::start(board(&["a"]));
    sim.source_ends(stream(0));
    // Its sinks still write.
    sim.reload(board(&["b"]));
    let [Err(why)] = &sim.answers()[..] else { panic!("{:?}", sim.answers()) };
    assert_eq!((why.as_str(), sim.preparing.is_none()), ("the run has ended", true));
    sim.end();
}

#[test]
fn it_knows_whose_sources_and_sinks_run() {
    let mut sim = Sim::start(board(&["a", "b"]));
    let sinks_run = |sim: &Sim| [0, 1, 2].map(|id| sim.supervisor.sinks_run(stream(id)));
    assert_eq!((sim.supervisor.sources_run(), sinks_run(&sim)), (true, [true, true, false]));
    sim.source_ends(stream(0));
    assert_eq!((sim.supervisor.sources_run(), sinks_run(&sim)), (true, [true, true, false]));
    // Stream 0 has ended, and stream 1 has lost its sinks only.
    sim.sink_ends(stream(0));
    sim.sink_ends(stream(1));
    assert_eq!((sim.supervisor.sources_run(), sinks_run(&sim)), (true, [false, false, false]));
    sim.source_ends(stream(1));
    assert!(!sim.supervisor.sources_run());
}

#[test]
fn a_stream_waits_for_the_source_that_it_had() {
    let mut sim = Sim::start(board(&["a"]));
    // The stream leaves, and comes back while its old source is still closing.
    sim.reload(board(&["b"]));
    sim.prepared();
    sim.reload(board(&["b", "a"]));
    sim.prepared();
    assert_eq!(sim.started, [stream(0), stream(1)]);
    sim.source_ends(stream(0));
    assert_eq!(sim.started, [stream(0), stream(1), stream(2)]);
    // The wait for a source that hangs is bounded, also where nothing else wakes the supervisor just then.
    sim.wait_until(Nanos(20_000_000));
    sim.reload(board(&["b"]));
    sim.prepared();
    sim.reload(board(&["b", "a"]));
    sim.prepared();
    let begin = sim.now;
    while sim.all_started() < 4 {
        let wake = sim.supervisor.next_wake().expect("it runs");
        sim.wait_until(wake);
    }
    assert_eq!(sim.now, begin + CLOSE_WAIT_MAX);
}

#[test]
fn a_stream_that_changes_while_it_waits_goes_on_waiting() {
    let mut sim = Sim::start(board(&["a"]));
    sim.reload(board(&["b"]));
    sim.prepared();
    sim.reload(board(&["b", "a"]));
    sim.prepared();
    assert_eq!(sim.waiting, BTreeSet::from([stream(2)]));
    // The stream is changed: the new one joins as the waiting one leaves, and the first source is still closing.
    sim.reload(board(&["b", "a"]));
    let Some(wanted) = sim.preparing.take() else { panic!("nothing is prepared") };
    let Some(Effect::Apply(wanted)) = sim.supervisor.handle(Action::Prepared(Ok(wanted)), sim.now).pop()
    else {
        panic!("it is not applied")
    };
    let (joined, left) = (sim.add_stream("a", 1), vec![stream(2)]);
    sim.act(Action::Applied(Applied {
        board: Some(wanted),
        joined: vec![joined],
        left,
        ..Applied::default()
    }));
    assert_eq!((&sim.started[..], &sim.waiting), (&[stream(0), stream(1)][..], &BTreeSet::from([stream(3)])));
    sim.source_ends(stream(0));
    assert_eq!(sim.started, [stream(0), stream(1), stream(3)]);
}

#[test]
fn a_stream_that_waits_ends_with_the_run() {
    let mut sim = Sim::start(board(&["a"]));
    sim.reload(board(&["b"]));
    sim.prepared();
    sim.reload(board(&["b", "a"]));
    sim.prepared();
    sim.act(Action::Stop);
    assert!(sim.waiting.is_empty());
    sim.end();
    assert_eq!(sim.retired.len(), 3);
}

#[test]
fn a_lane_that_fails_is_restarted_with_its_streams_a_few_times() {
    let mut sim = Sim::start(board(&["a", "b", "c"]));
    for left in (0..RESTARTS_MAX).rev() {
        sim.lane_fails(0);
        assert_eq!(sim.events.pop(), Some(format!("lane 0 restarts, {left} left")));
        sim.run_dry();
        assert_eq!(sim.running(), ["b"], "the other lane runs on");
        sim.prepared();
        assert_eq!(sim.running(), ["a", "b", "c"]);
    }
    sim.lane_fails(0);
    assert_eq!(sim.events, ["lane 0 failed"]);
    sim.end();
    assert_eq!(sim.over.expect("it is over").len(), 1);
}

#[test]
fn a_lane_is_restarted_although_its_streams_end_before_it_reports_its_failure() {
    let all = ["a", "b"];
    for (streams, sinks_too) in [(&all[..1], false), (&all[..1], true), (&all, false), (&all, true)] {
        let mut sim = Sim::start(board(streams));
        sim.source_is_refused(StreamId(0));
        if sinks_too {
            sim.sink_ends(StreamId(0));
        }
        assert!(sim.over.is_none() && sim.retired.is_empty(), "the lane decides what becomes of the stream");
        sim.lane_fails(0);
        assert_eq!(sim.events, ["lane 0 restarts, 2 left"]);
        sim.run_dry();
        sim.prepared();
        assert_eq!(sim.running(), streams);
    }
}

#[test]
fn a_stream_that_its_lane_refused_ends_with_a_run_that_stops() {
    for hangs in [false, true] {
        let mut sim = Sim::start(board(&["a"]));
        sim.act(Action::Stop);
        sim.source_is_refused(StreamId(0));
        sim.sink_ends(StreamId(0));
        if hangs {
            sim.wait_until(Nanos(0) + END_MAX);
            let faults = sim.over.expect("it is over");
            assert_eq!(faults.iter().map(|fault| &*fault.subject).collect::<Vec<_>>(), ["thread lane-0"]);
        } else {
            sim.end();
            assert_eq!(sim.over.map(|faults| faults.len()), Some(0));
        }
        assert_eq!(sim.retired, [StreamId(0)]);
    }
}

#[test]
fn restarts_long_ago_are_forgotten() {
    let mut sim = Sim::start(board(&["a", "b"]));
    for _ in 0..3 * RESTARTS_MAX {
        sim.lane_fails(0);
        sim.run_dry();
        sim.prepared();
        let later = sim.now + RESTART_WINDOW / 2;
        sim.wait_until(later);
    }
    assert!(sim.over.is_none() && sim.running() == ["a", "b"]);
}

#[test]
fn a_restart_counts_for_exactly_its_window() {
    for (later, event) in [(0, "lane 0 failed"), (1, "lane 0 restarts, 2 left")] {
        let mut sim = Sim::start(board(&["a", "b"]));
        for _ in 0..RESTARTS_MAX {
            sim.lane_fails(0);
            sim.run_dry();
            sim.prepared();
        }
        let wake = Nanos(0) + RESTART_WINDOW + Duration::from_nanos(later);
        sim.wait_until(wake);
        sim.lane_fails(0);
        assert_eq!(sim.events.last().map(String::as_str), Some(event));
    }
}

#[test]
fn a_lane_of_files_is_not_restarted_for_a_camera_on_another_lane() {
    for (fails, event) in [(0, "lane 0 failed"), (1, "lane 1 restarts, 2 left")] {
        let mut sim = Sim::start(board(&["file", "camera"]));
        sim.supervisor.rules.repeat_files = false;
        sim.lane_fails(fails);
        assert_eq!(sim.events, [event]);
    }
}

#[test]
fn a_lane_that_fails_while_the_run_drains_is_a_fault() {
    let mut sim = Sim::start(board(&["a"]));
    sim.source_ends(stream(0));
    sim.lane_fails(0);
    assert_eq!(sim.events, ["lane 0 failed"]);
    sim.end();
    assert_eq!(sim.over.map(|faults| faults.len()), Some(1));
}

#[test]
fn who_waits_for_a_change_hears_at_once_that_the_run_ends() {
    let mut sim = Sim::start(board(&["a"]));
    sim.reload(board(&["b"]));
    sim.reload(board(&["c"]));
    sim.act(Action::Stop);
    let [Err(why)] = &sim.answers()[..] else { panic!("{:?}", sim.answers()) };
    assert_eq!(why, "the run has ended");
    sim.prepared();
    assert_eq!(sim.answers().len(), 2, "the change at work is answered when it is prepared");
    sim.end();
}

#[test]
fn files_begin_again_only_where_that_loses_nothing() {
    let mut sim = Sim::start(board(&["a"]));
    sim.supervisor.rules.repeat_files = false;
    sim.lane_fails(0);
    assert_eq!(sim.events, ["lane 0 failed"]);
    sim.end();
    assert_eq!(sim.over.map(|faults| faults.len()), Some(1));
}

#[test]
fn a_restart_that_cannot_be_prepared_ends_the_run() {
    let mut sim = Sim::start(board(&["a", "b"]));
    sim.lane_fails(1);
    sim.not_prepared();
    sim.end();
    assert_eq!(sim.over.expect("it is over").len(), 2, "why it failed, and why it cannot start again");
}

#[test]
fn a_lane_is_restarted_although_the_board_that_was_wanted_with_it_is_refused() {
    let mut sim = Sim::start(board(&["a", "b"]));
    sim.lane_fails(1);
    sim.reload(board(&["a", "refused"]));
    // The running board cannot be started again: the wanted one may correct that.
    sim.not_prepared();
    assert!(sim.answers().is_empty() && sim.over.is_none());
    sim.not_prepared();
    assert_eq!(sim.answers().pop().and_then(Result::err).as_deref(), Some("it fails"));
    sim.run_dry();
    assert_eq!(sim.running(), ["a"]);
    sim.prepared();
    assert_eq!(sim.running(), ["a", "b"]);
    assert!(sim.over.is_none());
}

#[test]
fn a_restart_that_fails_with_every_board_ends_the_run() {
    let mut sim = Sim::start(board(&["a", "b"]));
    sim.lane_fails(1);
    sim.reload(board(&["a", "refused"]));
    for _ in 0..3 {
        assert!(sim.supervisor.ended_by() == EndedBy::default());
        sim.not_prepared();
    }
    assert!(sim.supervisor.ended_by().stop);
    sim.end();
    assert_eq!(sim.answers().len(), 1);
}

#[test]
fn a_lane_is_restarted_before_another_board_is_prepared() {
    let mut sim = Sim::start(board(&["a", "b"]));
    sim.reload(board(&["a", "b", "c"]));
    sim.lane_fails(1);
    assert_eq!(sim.cancelled, 1);
    // The other lane fails, too, before the preparation notices; it is cancelled once.
    sim.lane_fails(0);
    sim.run_dry();
    sim.not_prepared();
    assert!(sim.answers().is_empty(), "it is only put off");
    sim.prepared();
    assert_eq!((sim.running(), sim.cancelled), (vec!["a".to_owned(), "b".to_owned()], 1));
    sim.prepared();
    let [Ok(done)] = &sim.answers()[..] else { panic!("{:?}", sim.answers()) };
    assert_eq!((&done.joined[..], done.stayed, done.faults.len()), (&["c".to_owned()][..], 2, 0));
    assert!(sim.preparing.is_none() && sim.over.is_none());
}

#[test]
fn a_change_is_put_off_once() {
    // The lane fails again and again, until the board without its stream runs.
    let mut sim = Sim::start(board(&["a", "b"]));
    sim.reload(board(&["a"]));
    sim.lane_fails(1);
    sim.run_dry();
    sim.not_prepared();
    sim.prepared();
    sim.lane_fails(1);
    assert_eq!(sim.cancelled, 1);
    sim.run_dry();
    sim.prepared();
    assert_eq!((sim.running(), sim.answers().len()), (vec!["a".to_owned()], 1));
    sim.prepared();
    assert!(sim.preparing.is_none() && sim.over.is_none());
}

#[test]
fn a_restart_that_cannot_be_applied_leaves_it_to_the_board_that_waits() {
    for waits in [true, false] {
        let mut sim = Sim::start(board(&["a", "b"]));
        sim.lane_fails(1);
        if waits {
            sim.reload(board(&["a"]));
        }
        sim.run_dry();
        let wanted = sim.preparing.take().expect("it is prepared");
        let effects = sim.supervisor.handle(Action::Prepared(Ok(wanted.clone())), sim.now);
        assert!(matches!(&effects[..], [Effect::Apply(_)]));
        let applied = Applied { board: Some(wanted), faults: vec![fault()], ..Applied::default() };
        sim.act(Action::Applied(applied));
        assert_eq!(sim.supervisor.ended_by().stop, !waits);
        sim.prepared();
        assert_eq!(sim.answers().iter().filter(|answer| answer.is_ok()).count(), usize::from(waits));
    }
}

#[test]
fn a_restart_that_misses_its_lane_does_not_wait_for_another_board() {
    let mut sim = Sim::start(board(&["a", "b"]));
    sim.lane_fails(1);
    sim.reload(board(&["a", "b", "c"]));
    sim.run_dry();
    applied_without_a_lane(&mut sim, Applied::default());
    assert_eq!(sim.preparing.as_ref().map(|board| board.streams.len()), Some(2), "the running board again");
    sim.prepared();
    assert_eq!(sim.running(), ["a", "b"]);
    sim.prepared();
    assert_eq!((sim.running().len(), sim.answers().len()), (3, 1));
}

#[test]
fn a_restart_that_misses_its_lane_again_and_again_leaves_it_to_another_board() {
    let mut sim = Sim::start(board(&["a", "b"]));
    sim.lane_fails(1);
    sim.reload(board(&["a"]));
    sim.run_dry();
    for _ in 0..ATTEMPTS_MAX {
        assert_eq!(sim.preparing.as_ref().map(|board| board.streams.len()), Some(2), "the running board");
        applied_without_a_lane(&mut sim, Applied::default());
    }
    assert_eq!(sim.preparing.as_ref().map(|board| board.streams.len()), Some(1), "the board that waits");
    sim.prepared();
    assert_eq!((sim.running(), sim.answers().len()), (vec!["a".to_owned()], 1));
}

#[test]
fn a_newer_board_takes_the_place_of_one_that_was_cancelled() {
    let mut sim = Sim::start(board(&["a", "b"]));
    sim.reload(board(&["a", "old"]));
    sim.lane_fails(1);
    sim.reload(board(&["a", "b", "new"]));
    sim.not_prepared();
    sim.prepared();
    assert!(sim.answers().is_empty());
    sim.prepared();
    let answers = sim.answers();
    let [Ok(first), Ok(second)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((&first.joined, &second.joined), (&vec!["new".to_owned()], &vec!["new".to_owned()]));
    assert!(sim.preparing.is_none());
}

#[test]
fn a_change_that_is_cancelled_too_late_is_applied() {
    let mut sim = Sim::start(board(&["a", "b"]));
    sim.reload(board(&["a", "b", "c"]));
    sim.lane_fails(1);
    sim.run_dry();
    sim.prepared();
    assert_eq!((sim.running().len(), sim.answers().len()), (3, 1), "it started the streams of the lane, too");
    sim.prepared();
    assert!(sim.preparing.is_none() && sim.over.is_none());
}

#[test]
fn a_change_that_is_prepared_once_more_waits_for_a_restart() {
    let mut sim = missed(None);
    sim.lane_fails(0);
    sim.run_dry();
    sim.not_prepared();
    assert!(sim.answers().is_empty());
    sim.prepared();
    let [Ok(done)] = &sim.answers()[..] else { panic!("{:?}", sim.answers()) };
    assert_eq!((done.joined.len() + done.stayed, done.faults.len()), (3, 0));
    assert!(sim.preparing.is_none(), "the restart started all of its streams");
}

#[test]
fn levels_that_are_cancelled_are_chosen_after_the_restart() {
    for newer in [false, true] {
        let mut sim = Sim::start(board_with_levels(0));
        sim.choose_levels(levels(8));
        sim.lane_fails(0);
        if newer {
            sim.choose_levels(levels(0));
        }
        sim.run_dry();
        sim.not_prepared();
        assert_eq!(sim.answers().len(), usize::from(newer), "who chose before hears that it was given up");
        sim.prepared();
        sim.prepared();
        assert_eq!(sim.kinds, [ChangeKind::Levels, ChangeKind::Board, ChangeKind::Levels]);
        assert_eq!(sim.answers().len(), 1 + usize::from(newer));
        let interval = sim.supervisor.board.models[0].interval;
        assert_eq!(interval, if newer { 0 } else { 8 });
    }
}

#[test]
fn a_choice_of_levels_is_put_off_once() {
    let mut sim = Sim::start(board_with_levels(0));
    sim.choose_levels(levels(8));
    sim.lane_fails(0);
    sim.run_dry();
    sim.not_prepared();
    sim.prepared();
    assert_eq!(sim.kinds, [ChangeKind::Levels, ChangeKind::Board, ChangeKind::Levels]);
    sim.lane_fails(0);
    assert_eq!(sim.cancelled, 1);
    sim.run_dry();
    sim.prepared();
    sim.prepared();
    assert_eq!((sim.supervisor.board.models[0].interval, sim.answers().len()), (8, 1));
    assert!(sim.preparing.is_none() && sim.over.is_none());
}

#[test]
fn a_restart_that_is_stopped_is_no_fault() {
    let mut sim = Sim::start(board(&["a", "b"]));
    sim.lane_fails(1);
    sim.act(Action::Stop);
    sim.not_prepared();
    sim.end();
    assert_eq!(sim.over.map(|faults| faults.len()), Some(0));
}

/// Makes a change in which b joins and c misses its lane, so that it is prepared again, or `newer` is, if that was requested
/// meanwhile.
fn missed(newer: Option<Board>) -> Sim {
    let mut sim = Sim::start(board(&["a"]));
    sim.reload(board(&["a", "b", "c"]));
    newer.into_iter().for_each(|newer| sim.reload(newer));
    let joined = vec![sim.add_stream("b", 0)];
    applied_without_a_lane(&mut sim, Applied { joined, ..Applied::default() });
    assert!(sim.answers().is_empty());
    sim
}

/// Applies the change that is prepared, except for a stream that misses its lane.
fn applied_without_a_lane(sim: &mut Sim, applied: Applied) {
    let Some(wanted) = sim.preparing.take() else { panic!("nothing is prepared") };
    let Some(Effect::Apply(wanted)) = sim.supervisor.handle(Action::Prepared(Ok(wanted)), sim.now).pop()
    else {
        panic!("it is not applied")
    };
    let missed = Applied { board: Some(wanted), missed: vec![fault()], ..applied };
    sim.act(Action::Applied(missed));
}

#[test]
fn a_newer_board_takes_the_place_of_streams_that_miss_their_lane_again() {
    let mut sim = missed(None);
    sim.reload(board(&["a", "d"]));
    applied_without_a_lane(&mut sim, Applied::default());
    let preparing = sim.preparing.as_ref().expect("a board").streams.iter();
    assert_eq!(preparing.map(|stream| &*stream.name).collect::<Vec<_>>(), ["a", "d"]);
}

#[test]
fn who_asked_for_what_was_applied_hears_of_it_with_the_restart() {
    let mut sim = Sim::start(board(&["a", "b"]));
    sim.reload(board(&["a", "c"]));
    applied_without_a_lane(&mut sim, Applied { left: vec![stream(1)], ..Applied::default() });
    sim.reload(board(&["a", "d"]));
    sim.lane_fails(0);
    sim.run_dry();
    applied_without_a_lane(&mut sim, Applied::default());
    sim.prepared();
    let answers = sim.answers();
    assert!(matches!(&answers[..], [Ok(done)] if done.left == ["b"]), "{answers:?}");
    sim.prepared();
    assert_eq!((sim.running(), sim.answers().len()), (vec!["a".to_owned(), "d".to_owned()], 2));
}

#[test]
fn streams_that_miss_their_lane_again_and_again_are_reported() {
    let mut sim = Sim::start(board(&["a"]));
    sim.reload(board(&["a", "c"]));
    for _ in 0..ATTEMPTS_MAX {
        assert!(sim.answers().is_empty());
        applied_without_a_lane(&mut sim, Applied::default());
    }
    let [Ok(done)] = &sim.answers()[..] else { panic!("{:?}", sim.answers()) };
    assert_eq!((done.joined.len(), done.stayed, done.faults.len()), (0, 1, 1));
    assert!(sim.preparing.is_none() && sim.running() == ["a"]);
}

#[test]
fn a_restart_that_misses_its_lane_again_and_again_ends_the_run() {
    let mut sim = Sim::start(board(&["a", "b"]));
    sim.lane_fails(1);
    sim.run_dry();
    for _ in 0..ATTEMPTS_MAX {
        assert!(sim.supervisor.ended_by() == EndedBy::default());
        applied_without_a_lane(&mut sim, Applied::default());
    }
    assert!(sim.supervisor.ended_by().stop);
    sim.end();
    assert_eq!(sim.over.expect("it is over").len(), 2, "why it failed, and why it cannot start again");
}

#[test]
fn a_stream_that_misses_its_lane_at_the_start_ends_nothing() {
    let mut sim = Sim::start(board(&["a"]));
    let mut supervisor = Supervisor::new(board(&["a", "b"]), RULES, Nanos(0));
    std::mem::swap(&mut sim.supervisor, &mut supervisor);
    let joined = vec![sim.add_stream("a", 0)];
    let started = Applied {
        board: Some(board(&["a", "b"])),
        joined,
        lanes: vec![0],
        missed: vec![fault()],
        ..Applied::default()
    };
    sim.act(Action::Applied(started));
    assert!(!sim.supervisor.ended_by().stop);
}

#[test]
fn a_newer_board_that_is_refused_keeps_what_was_applied() {
    let mut sim = missed(Some(board(&["a", "b", "refused"])));
    sim.not_prepared();
    let answers = sim.answers();
    let [Ok(done), Err(_)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((&done.joined[..], done.stayed, done.faults.len()), (&["b".to_owned()][..], 1, 1));
}

#[test]
fn streams_that_missed_their_lane_are_prepared_once_more() {
    let mut sim = missed(None);
    sim.prepared();
    let [Ok(done)] = &sim.answers()[..] else { panic!("{:?}", sim.answers()) };
    let joined = ["b", "c"].map(str::to_owned);
    assert_eq!(
        (&done.joined[..], done.stayed, done.faults.len()),
        (&joined[..], 1, 0),
        "only a was there before"
    );
}

#[test]
fn what_was_applied_is_reported_although_it_cannot_be_prepared_once_more() {
    let mut sim = missed(None);
    sim.not_prepared();
    let [Ok(done)] = &sim.answers()[..] else { panic!("{:?}", sim.answers()) };
    assert_eq!((&done.joined[..], done.stayed, done.faults.len()), (&["b".to_owned()][..], 1, 1));
    assert_eq!(sim.running(), ["a", "b"]);
}

#[test]
fn a_newer_board_goes_on_with_what_was_applied() {
    let mut sim = missed(Some(board(&["a", "b", "c", "d"])));
    sim.prepared();
    let answers = sim.answers();
    assert_eq!(answers.len(), 2);
    for answer in answers {
        let done = answer.expect("it was applied");
        let joined = ["b", "c", "d"].map(str::to_owned);
        assert_eq!((&done.joined[..], done.stayed), (&joined[..], 1), "b joined before");
    }
}

#[test]
fn a_run_that_nobody_reads_does_not_wait_for_its_sources() {
    let mut sim = Sim::start(board(&["a"]));
    sim.act(Action::Unread);
    assert_eq!(sim.supervisor.ended_by(), EndedBy { stop: true, unread: true });
    assert_eq!(sim.closed, BTreeSet::from([0]), "what waits for the outputs is dropped");
    // Its source tries to reach a camera, and its lane was closed.
    sim.stuck.insert(stream(0));
    sim.lanes.clear();
    sim.act(Action::LaneEnded(0, Ok(())));
    sim.sink_ends(stream(0));
    sim.end();
    assert_eq!((sim.over.map(|faults| faults.len()), sim.now), (Some(0), Nanos(0) + UNREAD_SOURCE_WAIT_MAX));
}

#[derive(Clone, Debug)]
enum Move {
    Reload(Vec<usize>),
    Prepared,
    Refused,
    SourceEnds(usize),
    SinkFails(usize),
    LaneFails(usize),
    RunDry,
    Wait(u64),
    Stop,
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        4 => prop::collection::btree_set(0..NAMES.len(), 0..4).prop_map(|names| Move::Reload(names.into_iter().collect())),
        4 => Just(Move::Prepared),
        1 => Just(Move::Refused),
        2 => (0..8usize).prop_map(Move::SourceEnds),
        1 => (0..8usize).prop_map(Move::SinkFails),
        1 => (0..2usize).prop_map(Move::LaneFails),
        4 => Just(Move::RunDry),
        2 => (0..20_000u64).prop_map(Move::Wait),
        1 => Just(Move::Stop),
    ];
    prop::collection::vec(one, 0..60)
}

proptest! {
    /// Checks that whatever happens, every request is answered, every stream is handed over once, and the run ends in time.
    #[test]
    fn nothing_is_lost_whatever_happens(moves in moves()) {
        let mut sim = Sim::start(board(&["a", "b"]));
        for one in moves {
            if sim.over.is_some() {
                break;
            }
            match one {
                Move::Reload(names) => {
                    let names: Vec<&str> = names.into_iter().map(|name| NAMES[name]).collect();
                    sim.reload(board(&names));
                }
                Move::Prepared => sim.prepared(),
                Move::Refused => sim.not_prepared(),
                Move::SourceEnds(index) => {
                    if let Some(&id) = sim.sources.iter().nth(index) {
                        sim.source_ends(id);
                    }
                }
                Move::SinkFails(index) => {
                    if let Some(&id) = sim.sinks.iter().nth(index) {
                        sim.sinks.remove(&id);
                        sim.act(Action::SinkEnded(id, Err(fault())));
                    }
                }
                Move::LaneFails(lane) => sim.lane_fails(lane),
                Move::RunDry => sim.run_dry(),
                Move::Wait(millis) => {
                    let later = sim.now + Duration::from_millis(millis);
                    sim.wait_until(later);
                }
                Move::Stop => sim.act(Action::Stop),
            }
        }
        let begin = sim.now;
        sim.act(Action::Stop);
        sim.end();
        prop_assert!(sim.now <= begin + END_MAX);
        let Sim { supervisor, streams, retired, answers, asked, .. } = sim;
        drop(supervisor);
        prop_assert_eq!(retired.len(), streams.len(), "every stream is handed over");
        prop_assert_eq!(answers.lock().expect("not poisoned").len(), asked, "everybody is answered");
    }
}
