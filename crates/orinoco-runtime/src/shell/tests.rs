#![expect(clippy::disallowed_methods, reason = "the tests wait for real threads")]

use super::*;
use crate::Quiet;
use crate::event_log::EventLog;
use crate::outputs::ExistingOutputs;
use crate::planning::plan_board;
use crate::prepare::Plans;
use crate::reloaded::{Reloaded, Reply};
use crate::shared::Shared;
use crate::stream::OpenStream;
use crate::testing::{ENDLESS, Log, WAIT_MAX, board, context, demo_model, known, uri};
use orinoco_board::{BoardStream, SinkSpec};
use orinoco_core::{InferenceResult, codes};
use orinoco_pipeline::{BoundPlan, Executor, Frame, StageTimes};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::mpsc::{channel, sync_channel};

/// Running board whose actions are handled one by one.
struct ByHand {
    shell: Shell,
    supervisor: RunSupervisor,
    actions: Receiver<RunAction>,
    log: Arc<Log>,
}

impl ByHand {
    fn start(board: Board) -> Self {
        let log = Arc::new(Log::default());
        let context = context(&board, log.clone(), ExistingOutputs::Overwritten);
        let base = RunningState::empty(&board);
        let prepared = prepare(board.clone(), base, ChangeKind::Board, &context);
        let prepared = prepared.unwrap_or_else(|why| panic!("{why}"));
        let (sender, actions) = channel();
        let (watcher, _) = sync_channel(1);
        let Shared { clock, telemetry, .. } = &context.shared;
        let events = Arc::new(EventLog::new(Arc::new(Quiet), Arc::clone(clock)));
        let launch = Launch {
            monitor: Monitor::new(Arc::clone(clock), telemetry.clone(), events, "test"),
            sampler: None,
            governor: None,
            context,
            actions: sender,
            watcher,
            sample_every: Duration::from_millis(50),
            end_unread: true,
            repeat_files: false,
        };
        let (mut shell, mut supervisor) =
            Shell::launch(prepared, launch).unwrap_or_else(|why| panic!("{why}"));
        let first = shell.first.take().expect("it was started");
        assert!(shell.act(&mut supervisor, first).is_none());
        Self { shell, supervisor, actions, log }
    }

    /// Handles actions until one is `wanted`, and returns that one unhandled.
    fn receive(&mut self, wanted: impl Fn(&RunAction) -> bool) -> RunAction {
        loop {
            let action = self.actions.recv_timeout(WAIT_MAX).expect("it comes");
            if wanted(&action) {
                return action;
            }
            assert!(self.shell.act(&mut self.supervisor, action).is_none(), "it runs on");
        }
    }

    /// Requests another board.
    fn request(&mut self, board: Board) -> Receiver<Result<Reloaded, Faults>> {
        let (tell, told) = channel();
        let reply = Reply::new(move |answer| drop(tell.send(answer)));
        assert!(self.shell.act(&mut self.supervisor, Action::Reload(board, reply)).is_none());
        told
    }

    /// Requests another board, and returns the prepared change before it is applied.
    fn prepare(&mut self, board: Board) -> (RunAction, Receiver<Result<Reloaded, Faults>>) {
        let told = self.request(board);
        (self.receive(|action| matches!(action, Action::Prepared(_))), told)
    }

    fn reload(&mut self, board: Board) -> Reloaded {
        let (prepared, told) = self.prepare(board);
        assert!(self.shell.act(&mut self.supervisor, prepared).is_none());
        told.try_recv().expect("it was applied").unwrap_or_else(|why| panic!("{why}"))
    }

    /// Returns the latest stream with this name.
    fn stream(&self, name: &str) -> StreamId {
        let mut streams = self.shell.streams.iter().rev();
        *streams.find(|(_, stream)| stream.spec.name == name).expect("it has joined").0
    }

    fn end(mut self) -> Summary {
        self.shell.context.shared.stop.request();
        if let Some(faults) = self.shell.act(&mut self.supervisor, Action::Stop) {
            return self.shell.finish(&self.supervisor, faults, &self.actions);
        }
        loop {
            let action = self.actions.recv_timeout(Duration::from_millis(50)).unwrap_or(Action::Tick);
            if let Some(faults) = self.shell.act(&mut self.supervisor, action) {
                return self.shell.finish(&self.supervisor, faults, &self.actions);
            }
        }
    }
}

/// Model that can be recognised on its lane by whether it reads video memory.
struct Marked;
impl Executor for Marked {
    fn batch_max(&self) -> usize {
        1
    }
    fn execute(&mut self, _: &[Frame], _: &mut [InferenceResult]) -> Result<StageTimes, Diagnosis> {
        Ok(StageTimes::default())
    }
    fn reads_video_memory(&self) -> bool {
        true
    }
}

#[test]
fn a_stream_that_changes_keeps_its_lane() {
    let board = board(2, &[("a", ENDLESS), ("b", ENDLESS)]);
    let mut run = ByHand::start(board.clone());
    let mut changed = board;
    changed.streams[1].latency_max = Some(Duration::from_secs(1));
    let (prepared, _) = run.prepare(changed);
    let Action::Prepared(Ok(prepared)) = prepared else { panic!("it is refused") };
    let lanes: Vec<usize> = prepared.joining.iter().map(|stream| stream.lane).collect();
    assert_eq!(lanes, [1]);
    run.end();
}

#[test]
fn a_stream_joins_a_lane_that_lost_its_last_stream_meanwhile() {
    let board = board(2, &[("a", ENDLESS), ("b", ENDLESS)]);
    let mut run = ByHand::start(board.clone());
    run.log.wait("b live", 1);
    let mut with_c = board.clone();
    with_c.streams[1] = BoardStream::new("c", uri(ENDLESS), Vec::new());
    with_c.streams[1].lane = Some(1);
    let (prepared, told) = run.prepare(with_c);
    // The last stream of lane 1 ends by itself before the change is applied.
    run.shell.context.shared.stop.of(run.stream("b")).request();
    let ended = run.receive(|action| matches!(action, Action::SinkEnded(..) | Action::SourceEnded(..)));
    assert!(run.shell.act(&mut run.supervisor, ended).is_none());
    assert!(run.shell.act(&mut run.supervisor, prepared).is_none());
    let done = told.try_recv().expect("it was applied").expect("it can be");
    assert_eq!((done.joined, done.faults.len()), (vec!["c".to_owned()], 0));
    run.receive(|action| matches!(action, Action::SourceEnded(..) | Action::SinkEnded(..)));
    run.log.wait("c live", 1);
    run.end();
}

#[test]
fn a_lane_that_failed_meanwhile_is_started_again_for_a_stream() {
    let board = board(2, &[("a", ENDLESS), ("b", ENDLESS)]);
    let mut run = ByHand::start(board.clone());
    run.supervisor.allow_restarts();
    let mut with_c = board.clone();
    with_c.streams.push(BoardStream::new("c", uri(ENDLESS), Vec::new()));
    with_c.streams[2].lane = Some(1);
    let (prepared, told) = run.prepare(with_c);
    // The lane has ended, but its end was not handled yet.
    run.shell.lanes[1].as_ref().expect("it runs").entry.close();
    let lane = run.receive(|action| matches!(action, Action::LaneEnded(..)));
    assert!(run.shell.act(&mut run.supervisor, prepared).is_none());
    assert!(told.try_recv().is_err(), "it is prepared once more");
    let Action::LaneEnded(1, _) = lane else { panic!("another lane") };
    let why = Diagnosis::new(&codes::ENGINE_RUN, "engine", "it is broken", "nothing");
    assert!(run.shell.act(&mut run.supervisor, Action::LaneEnded(1, Err(why))).is_none());
    while told.try_recv().is_err() {
        let next = run.receive(|_| true);
        assert!(run.shell.act(&mut run.supervisor, next).is_none());
    }
    run.log.wait("c live", 1);
    assert_eq!(run.log.places("lane 1 restarts").len(), 1);
    let summary = run.end();
    assert!(summary.faults.is_empty(), "{:?}", summary.faults);
}

#[test]
fn a_lane_is_restarted_while_a_reload_waits_for_the_reader_of_a_pipe() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).expect("made");
    let board = board(2, &[("a", ENDLESS), ("b", ENDLESS)]);
    let mut run = ByHand::start(board.clone());
    run.supervisor.allow_restarts();
    run.log.wait("b live", 1);
    let mut with_c = board.clone();
    let mut c = BoardStream::new("c", uri(ENDLESS), Vec::new());
    c.sinks.push(SinkSpec { kind: crate::sinks::JSONL, path: pipe.clone() });
    with_c.streams.push(c);
    let told = run.request(with_c);
    run.shell.lanes[1].as_ref().expect("it runs").entry.close();
    let lane = run.receive(|action| matches!(action, Action::LaneEnded(1, _)));
    drop(lane);
    let why = Diagnosis::new(&codes::ENGINE_RUN, "engine", "it is broken", "nothing");
    assert!(run.shell.act(&mut run.supervisor, Action::LaneEnded(1, Err(why))).is_none());

    // The reload is put off, the running board is prepared, then the reload again.
    let cancelled = run.receive(|action| matches!(action, Action::Prepared(_)));
    let Action::Prepared(Err(faults)) = &cancelled else { panic!("nobody reads the pipe") };
    assert_eq!(faults.first().code.id, codes::STOPPED.id, "it was cancelled, and did not wait for a reader");
    assert!(run.shell.act(&mut run.supervisor, cancelled).is_none());
    let restart = run.receive(|action| matches!(action, Action::Prepared(_)));
    let Action::Prepared(Ok(prepared)) = &restart else { panic!("it runs already") };
    assert_eq!(prepared.joining.iter().map(|stream| &*stream.spec.name).collect::<Vec<_>>(), ["b"]);
    assert!(run.shell.act(&mut run.supervisor, restart).is_none());
    assert!(told.try_recv().is_err(), "it waits for the reader");
    let mut options = std::fs::File::options();
    let flags = rustix::fs::OFlags::NONBLOCK.bits();
    let flags = i32::try_from(flags).expect("it is a flag");
    let _reader = options.read(true).custom_flags(flags).open(&pipe).expect("a reader");
    let done = loop {
        if let Ok(done) = told.try_recv() {
            break done.unwrap_or_else(|why| panic!("{why}"));
        }
        let next = run.receive(|_| true);
        assert!(run.shell.act(&mut run.supervisor, next).is_none());
    };
    assert_eq!((&done.joined[..], done.stayed), (&["c".to_owned()][..], 2));
    let summary = run.end();
    assert!(summary.faults.is_empty(), "{:?}", summary.faults);
}

#[test]
fn a_stream_that_cannot_join_takes_nothing_from_the_others() {
    let image = tempfile::Builder::new().suffix(".png").tempfile().expect("temporary file");
    let path = image.path().display().to_string();
    let board = board(1, &[("a", ENDLESS)]);
    let mut run = ByHand::start(board);
    let (id, known) = (ModelId(7), known(&demo_model()));
    let clock = Arc::clone(&run.shell.context.shared.clock);
    let open = |name: &str, source: &str| {
        let spec = BoardStream::new(name, uri(source), vec![0]);
        OpenStream::new(&spec, Vec::new(), 0, &[(id, &known)], &clock).unwrap_or_else(|why| panic!("{why}"))
    };
    let (carrier, next) = (open("carrier", &path), open("next", ENDLESS));
    image.close().expect("removed");
    let plan = BoundPlan::new(id, "m", Box::new(Marked));
    let mut plans = Plans::from([(id, plan)]);
    let Shell { joiner, lanes, actions, streams, .. } = &mut run.shell;
    let entry = &lanes[0].as_ref().expect("it runs").entry;
    let refused =
        joiner.join(carrier, &mut plans, entry, actions, streams).map(drop).expect_err("its source is gone");
    assert_eq!((refused.why.code.id, refused.once_more), (codes::FILE_MISSING.id, false));
    let next = joiner.join(next, &mut plans, entry, actions, streams);
    assert!(next.is_ok(), "the model is still there");
    assert!(entry.reads_video_memory(id));
    let again = open("again", ENDLESS);
    assert!(joiner.join(again, &mut plans, entry, actions, streams).is_ok(), "its lane has the model");
    run.end();
}

#[test]
fn a_stream_that_cannot_join_runs_on_as_it_was() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let image = dir.path().join("a.png");
    std::fs::write(&image, "not opened").expect("written");
    let board = board(1, &[("a", ENDLESS), ("b", ENDLESS)]);
    let mut run = ByHand::start(board.clone());
    let mut other = board;
    other.streams[1].latency_max = Some(Duration::from_secs(1));
    other.streams[0].source = uri(&image.display().to_string());
    let (prepared, told) = run.prepare(other);
    std::fs::remove_file(&image).expect("it is there");
    assert!(run.shell.act(&mut run.supervisor, prepared).is_none());
    let done = told.try_recv().expect("it was applied").expect("it can be");
    assert_eq!((done.joined, done.left, done.stayed), (vec!["b".to_owned()], vec!["b".to_owned()], 1));
    let [fault] = &done.faults[..] else { panic!("{:?}", done.faults) };
    assert_eq!(fault.code.id, codes::FILE_MISSING.id);
    let running: Vec<StreamId> = run.supervisor.running().map(|(id, _)| id).collect();
    let wanted = [run.stream("a"), run.stream("b")];
    assert_eq!(running, wanted, "a, and the new b");
    run.end();
}

#[test]
fn a_reload_reports_all_faults_of_one_kind() {
    let board = board(1, &[("a", ENDLESS)]);
    let mut run = ByHand::start(board.clone());
    let mut other = board;
    other.streams.push(BoardStream::new("b", uri("/nowhere/b.mp4"), Vec::new()));
    other.streams.push(BoardStream::new("c", uri("/nowhere/c.mp4"), Vec::new()));
    let (prepared, _) = run.prepare(other);
    let Action::Prepared(Err(faults)) = prepared else { panic!("it is not refused") };
    assert_eq!(faults.iter().count(), 2, "{faults}");
    run.end();
}

#[test]
fn a_model_that_is_gone_from_the_board_is_forgotten_and_summed_up() {
    let board = board(1, &[("a", ENDLESS)]);
    let mut run = ByHand::start(board.clone());
    run.shell.board.insert(ModelId(7), known(&demo_model()));
    run.shell.context.shared.telemetry.insert_model(ModelId(7));
    let done = run.reload(board);
    assert_eq!(
        (done.stayed, run.shell.board.models().len(), run.shell.context.shared.telemetry.models()),
        (1, 0, 0)
    );
    assert_eq!(run.end().models.len(), 1);
}

/// Sets a budget of exactly the bytes that the board's plan takes, plus `more` bytes.
fn with_budget(mut board: Board, more: u64) -> Board {
    board.memory = Some(1 << 30);
    let context = context(&board, Arc::new(Quiet), ExistingOutputs::Overwritten);
    let (engines, stop) = (&context.shared.engines, &context.shared.stop);
    let plan = plan_board(&board, engines, &context.repository, &Quiet, stop);
    let plan = plan.unwrap_or_else(|why| panic!("{why}")).expect("it has a budget");
    Board { memory: Some(plan.bytes() + more), ..board }
}

fn running_bytes(run: &ByHand) -> u64 {
    run.supervisor.memory().expect("the board has a budget").running().bytes()
}

#[test]
fn a_change_counts_next_to_what_runs_until_that_has_ended() {
    let (one, two) = (board(2, &[("a", ENDLESS)]), board(2, &[("a", ENDLESS), ("b", ENDLESS)]));
    let two = with_budget(two, 0);
    let budget = two.memory.expect("it was set");
    let mut run = ByHand::start(two.clone());
    assert_eq!(running_bytes(&run), budget);
    let mut changed = two.clone();
    changed.streams[1].latency_max = Some(Duration::from_secs(1));
    let (prepared, told) = run.prepare(changed.clone());
    assert!(run.shell.act(&mut run.supervisor, prepared).is_none());
    let faults = told.try_recv().expect("it was refused").expect_err("both do not fit");
    assert_eq!(faults.as_slice()[0].code.id, codes::MEMORY_BUDGET.id);
    assert!(faults.to_string().contains("during the reload"), "{faults}");

    run.log.wait("b live", 1);
    assert_eq!(run.reload(Board { memory: Some(budget), ..one }).left, ["b"]);
    assert_eq!(running_bytes(&run), budget, "b is on its way out");
    for _ in 0..2 {
        let ended = run.receive(|action| matches!(action, Action::SourceEnded(..) | Action::SinkEnded(..)));
        assert!(run.shell.act(&mut run.supervisor, ended).is_none());
    }
    assert_eq!(running_bytes(&run), budget / 2);
    assert_eq!(run.reload(changed).joined, ["b"]);
    assert_eq!(run.end().memory.planned.expect("it was planned").total_bytes, budget);
}

#[test]
fn a_lane_that_fails_starts_again_within_a_budget_that_it_fills() {
    let board = with_budget(board(2, &[("a", ENDLESS), ("b", ENDLESS)]), 0);
    let mut run = ByHand::start(board.clone());
    run.supervisor.allow_restarts();
    run.log.wait("b live", 1);
    run.shell.lanes[1].as_ref().expect("it runs").entry.close();
    let lane = run.receive(|action| matches!(action, Action::LaneEnded(..)));
    let Action::LaneEnded(1, _) = lane else { panic!("another lane") };
    let why = Diagnosis::new(&codes::ENGINE_RUN, "engine", "it is broken", "nothing");
    assert!(run.shell.act(&mut run.supervisor, Action::LaneEnded(1, Err(why))).is_none());
    assert_eq!(running_bytes(&run), board.memory.expect("it was set"), "what b had is kept for it");
    let prepared = run.receive(|action| matches!(action, Action::Prepared(_)));
    assert!(run.shell.act(&mut run.supervisor, prepared).is_none());
    // The old source ends, and then the new one starts.
    while run.log.places("b live").len() < 2 {
        let action = run.actions.recv_timeout(Duration::from_millis(20)).unwrap_or(Action::Tick);
        assert!(run.shell.act(&mut run.supervisor, action).is_none());
    }
    assert_eq!(running_bytes(&run), board.memory.expect("it was set"));
    let summary = run.end();
    assert!(summary.faults.is_empty(), "{:?}", summary.faults);
}
