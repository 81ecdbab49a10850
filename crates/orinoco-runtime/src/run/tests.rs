#![expect(clippy::disallowed_methods, reason = "the tests wait for real threads")]

use super::*;
use crate::memory::resident_bytes;
use crate::testing::{ENDLESS, Log, WAIT_MAX, board, demo_model, known, repository, uri};
use orinoco_api::EndState;
use orinoco_board::{BoardModel, BoardStream, GovernorActuator, GovernorSpec};
use orinoco_core::{Diagnosis, InferenceResult, ModelId, Nanos, Signal, WallTime, codes};
use orinoco_pipeline::{BoundPlan, Executor, Frame, FrameResult, Sink, StageTimes, Step};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

struct Broken;
impl Executor for Broken {
    fn batch_max(&self) -> usize {
        1
    }
    fn execute(&mut self, _: &[Frame], _: &mut [InferenceResult]) -> Result<StageTimes, Diagnosis> {
        Err(Diagnosis::new(&codes::ENGINE_RUN, "engine", "it is broken", "nothing"))
    }
}
impl Sink for Broken {
    fn write(&mut self, _: &FrameResult) -> Result<(), Diagnosis> {
        panic!("this test wants it")
    }
    fn finish(&mut self) -> Result<Option<PathBuf>, Diagnosis> {
        Ok(None)
    }
}

/// Clock whose first signal panics when a thread waits for it.
struct Trap {
    clock: MonotonicClock,
    is_set: AtomicBool,
}
impl Clock for Trap {
    fn now(&self) -> Nanos {
        self.clock.now()
    }
    fn wall(&self) -> WallTime {
        self.clock.wall()
    }
    fn signal(&self) -> Arc<dyn Signal> {
        if self.is_set.swap(false, Ordering::Relaxed) { Arc::new(Broken) } else { self.clock.signal() }
    }
}
impl Signal for Broken {
    fn notify(&self) {}
    fn wait(&self, _: Option<Nanos>) {
        panic!("this test wants it")
    }
}

fn options() -> (RunOptions, Arc<Log>) {
    let log = Arc::new(Log::default());
    (RunOptions::new(&repository(), log.clone()), log)
}

fn prepare(board: Board, options: RunOptions) -> First {
    First::prepare(board, options).unwrap_or_else(|why| panic!("{why}"))
}

fn end(running: Running) -> Summary {
    let (tell, told) = channel();
    thread::spawn(move || drop(tell.send(running.wait(|_| {}))));
    told.recv_timeout(WAIT_MAX).expect("it ends")
}

/// Waits until more frames than this have been delivered.
fn wait_for_frames(control: &Control, frames: u64) {
    let delivered = || control.snapshot().expect("it runs").frames_out;
    let is_enough = (0..WAIT_MAX.as_millis() / 10).any(|_| {
        thread::sleep(Duration::from_millis(10));
        delivered() > frames
    });
    assert!(is_enough, "{} frames", delivered());
}

/// Requests another board, and returns the receiver of the answer.
fn reload(control: &Control, board: Board) -> Receiver<Result<Reloaded, Faults>> {
    let (tell, told) = channel();
    control.reload(board, move |answer| drop(tell.send(answer)));
    told
}

fn done(told: &Receiver<Result<Reloaded, Faults>>) -> Reloaded {
    told.recv_timeout(WAIT_MAX).expect("it is answered").unwrap_or_else(|why| panic!("{why}"))
}

/// Puts a model that fails each batch in front of the first stream.
fn break_first(first: &mut First) {
    let id = ModelId(1000);
    let Prepared { joining, plans, models, board, .. } = &mut first.prepared;
    let plan = BoundPlan::new(id, "m", Box::new(Broken));
    plans.entry(joining[0].lane).or_default().insert(id, plan);
    joining[0].models = vec![id];
    joining[0].steps = vec![Step { model: id, on: None }];
    let known = known(&demo_model());
    // When the lane is restarted, the model is loaded again, and works.
    board.models = vec![known.spec.clone()];
    board.streams[0].models = vec![0];
    models.insert(id, known);
}

#[cfg(feature = "gstreamer")]
#[test]
fn a_lane_that_fails_ends_a_run_of_files_although_a_camera_is_away() {
    // Connections to that port are refused; the camera is tried without end.
    let streams = [("fails", ENDLESS), ("away", "rtsp://127.0.0.1:1/x"), ("fine", ENDLESS)];
    let (options, log) = options();
    let control = options.control.clone();
    let mut board = board(2, &streams);
    board.streams[2].lane = Some(1);
    let mut first = prepare(board, options);
    break_first(&mut first);
    let summary = end(first.start().expect("it starts"));
    assert!(!log.places("lane 0 failed").is_empty() && control.is_stopping());
    assert_eq!((summary.end, summary.faults.len()), (EndState::Failed, 1), "{:?}", summary.faults);
    assert_eq!(summary.faults[0].subject, "engine");
}

#[cfg(feature = "tract")]
#[test]
fn a_lane_that_fails_is_started_again_with_its_streams() {
    let (mut options, log) = options();
    options.earlier = ExistingOutputs::Kept;
    let mut first = prepare(board(2, &[("a", ENDLESS), ("b", ENDLESS)]), options);
    break_first(&mut first);
    let running = first.start().expect("it starts");
    log.wait("lane 0 restarts", 1);
    log.wait("a live", 2);
    assert_eq!(log.places("b live").len(), 1, "the other lane runs on");
    let control = running.control().clone();
    wait_for_frames(&control, 20);
    control.stop();
    let summary = end(running);
    assert_eq!(summary.end, EndState::Interrupted, "{:?}", summary.faults);
    let names: Vec<&str> = summary.streams.iter().map(|stream| stream.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "a"]);
    assert!(summary.streams[2].frames_out > 0);
}

#[test]
fn a_panic_in_sinks_ends_their_stream_alone() {
    let (options, _) = options();
    let mut first = prepare(board(1, &[("a", ENDLESS), ("b", "test://ball?frames=50")]), options);
    first.prepared.joining[0].sinks = vec![Box::new(Broken)];
    let summary = end(first.start().expect("it starts"));
    let faults: Vec<&str> = summary.faults.iter().map(|fault| fault.subject.as_str()).collect();
    assert_eq!((faults, summary.streams[1].frames_out), (vec!["thread sink-a"], 50));
}

#[test]
fn a_board_that_is_stopped_early_loads_nothing() {
    let mut board = board(1, &[("a", ENDLESS)]);
    board.models.push(BoardModel::new("m", demo_model()));
    board.streams[0].models.push(0);
    let (options, _) = options();
    options.control.stop();
    let faults = start(board, options).err().expect("it stops");
    let found: Vec<&str> = faults.iter().map(|fault| fault.code.id).collect();
    assert_eq!(found, [codes::STOPPED.id]);
}

#[test]
fn a_board_that_switches_its_sensors_off_reads_none() {
    let mut board = board(1, &[("a", "test://ball?frames=5")]);
    board.sensors.enabled = false;
    let (options, _) = options();
    let running = start(board, options).unwrap_or_else(|why| panic!("{why}"));
    let monitor = running.monitor().clone();
    let summary = end(running);
    let why = "sensors are switched off ([sensors] enabled = false)";
    assert_eq!(summary.power.source, format!("not measured: {why}"));
    let status = monitor.status();
    assert_eq!(status.energy.not_measured.as_deref(), Some(why));
    assert_eq!((status.sensors.rails.len(), status.sensors.clocks.len()), (0, 0));
}

/// Starts a run whose first thread panics: that for sensors, or else the governor. Checks that it continues, and returns its
/// monitor and its summary.
fn run_with_panic(board: Board, govern: bool, event: &str) -> (Monitor, Summary) {
    let (mut options, log) = options();
    options.govern = govern;
    let mut first = prepare(board, options);
    let clock = MonotonicClock::default();
    first.context.shared.clock = Arc::new(Trap { clock, is_set: AtomicBool::new(true) });
    let running = first.start().expect("it starts");
    let (control, monitor) = (running.control().clone(), running.monitor().clone());
    log.wait(event, 1);
    wait_for_frames(&control, control.snapshot().expect("it runs").frames_out);
    control.stop();
    let summary = end(running);
    assert_eq!(log.places(event).len(), 1, "it is reported once");
    assert_eq!(summary.end, EndState::Failed);
    (monitor, summary)
}

#[test]
fn a_panic_of_the_thread_for_sensors_is_reported_and_the_run_continues() {
    let (monitor, summary) = run_with_panic(board(1, &[("a", ENDLESS)]), false, "sensors failed");
    let faults: Vec<&str> = summary.faults.iter().map(|fault| fault.subject.as_str()).collect();
    assert_eq!(faults, ["thread sensors"]);
    let why = "the thread that reads the sensors has failed";
    assert_eq!(summary.power.source, format!("not measured: {why}"));
    let status = monitor.status();
    assert_eq!(status.energy.not_measured.as_deref(), Some(why));
    assert!(status.sensors.temperatures.is_empty() && status.sensors.clocks.is_empty(), "they are old");
    let event = status.events.iter().find(|event| event.kind == "sensors-failed").expect("it is logged");
    assert_eq!(
        event.text,
        "the sensors are no longer read: thread sensors: it panicked, which is a bug in Orinoco; \
         report this with the message above"
    );
}

#[test]
fn a_panic_of_the_governor_is_reported_and_the_run_continues() {
    let mut board = board(1, &[("a", ENDLESS)]);
    board.sensors.enabled = false;
    board.governor = Some(GovernorSpec {
        power_limit: None,
        temperature_limit: None,
        p99: Some(Duration::from_millis(40)),
        modes: None,
        actuators: vec![GovernorActuator::Interval],
        helper: None,
    });
    let (monitor, summary) = run_with_panic(board, true, "governor E0304");
    let faults: Vec<&str> = summary.faults.iter().map(|fault| fault.subject.as_str()).collect();
    assert_eq!(faults, ["thread governor"]);
    let governor = monitor.status().governor.expect("the board has one");
    assert_eq!((governor.state.as_str(), governor.p99_target_ms), ("unavailable", Some(40.0)));
    assert_eq!(governor.fault.expect("it failed").subject, "thread governor");
}

/// Notes which actions wait when a stop is requested.
struct Watch {
    actions: Mutex<Receiver<RunAction>>,
    has_stop: AtomicBool,
}
impl Signal for Watch {
    fn notify(&self) {
        let actions = self.actions.lock().expect("not poisoned");
        let has_stop = actions.try_iter().any(|action| matches!(action, Action::Stop));
        self.has_stop.store(has_stop, Ordering::Relaxed);
    }
    fn wait(&self, _: Option<Nanos>) {}
}

#[test]
fn the_supervisor_receives_a_stop_before_its_streams_end() {
    let control = Control::default();
    let (actions, has_stop) = (Mutex::new(control.take()), AtomicBool::new(false));
    let watch = Arc::new(Watch { actions, has_stop });
    let signal: Arc<dyn Signal> = watch.clone();
    control.stop.watch(&signal);
    control.stop();
    assert!(watch.has_stop.load(Ordering::Relaxed));
}

#[test]
fn a_stop_that_comes_just_before_the_start_is_not_lost() {
    let (options, _) = options();
    let control = options.control.clone();
    let first = prepare(board(1, &[("a", ENDLESS)]), options);
    control.stop();
    assert_eq!(end(first.start().expect("it starts")).end, EndState::Interrupted);
    assert!(control.snapshot().is_none(), "it is over");
}

#[test]
fn a_stream_that_changes_waits_for_its_source() {
    let board = board(2, &[("a", ENDLESS), ("b", ENDLESS)]);
    let (options, log) = options();
    let running = prepare(board.clone(), options).start().expect("it starts");
    log.wait("b live", 1);
    let mut changed = board;
    changed.streams[1].latency_max = Some(Duration::from_secs(1));
    let reloaded = done(&reload(running.control(), changed));
    assert_eq!(
        (reloaded.joined, reloaded.left, reloaded.stayed),
        (vec!["b".to_owned()], vec!["b".to_owned()], 1)
    );
    log.wait("b live", 2);
    assert!(log.places("b ended")[0] < log.places("b connecting")[1], "{log:?}");
    running.control().stop();
    assert_eq!(end(running).end, EndState::Interrupted);
}

#[test]
fn reloads_close_together_lose_no_stream() {
    let board = board(2, &[("a", ENDLESS), ("b", ENDLESS)]);
    let (options, log) = options();
    let running = prepare(board.clone(), options).start().expect("it starts");
    log.wait("b live", 1);
    // The first change removes b, the last stream of lane 1; the second adds a stream that names that lane.
    let mut without_b = board;
    without_b.streams.truncate(1);
    let mut with_c = without_b.clone();
    with_c.streams.push(BoardStream { lane: Some(1), ..BoardStream::new("c", uri(ENDLESS), Vec::new()) });
    let (first, second) = (reload(running.control(), without_b), reload(running.control(), with_c));
    assert_eq!(done(&first).left, ["b"]);
    let reloaded = done(&second);
    assert_eq!((reloaded.joined, reloaded.stayed, reloaded.faults.len()), (vec!["c".to_owned()], 1, 0));
    log.wait("c live", 1);
    running.control().stop();
    assert_eq!(end(running).end, EndState::Interrupted);
}

#[test]
fn a_thousand_reloads_lose_no_stream_and_take_no_memory() {
    const RELOADS: usize = 1000;
    const WARM: usize = 200;
    /// Maximum growth over 800 reloads, in bytes: more than the allocator's noise, and less than one stream's histograms
    /// per reload.
    const GROWTH_MAX: u64 = 16 << 20;
    let small = "test://ball?pace=pts&width=16&height=16";
    let boards = [board(2, &[("a", small), ("b", small)]), board(2, &[("a", small), ("c", small)])];
    let (options, _) = options();
    let running = prepare(boards[0].clone(), options).start().expect("it starts");
    let mut warm_bytes = 0;
    for count in 1..=RELOADS {
        let reloaded = done(&reload(running.control(), boards[count % 2].clone()));
        assert_eq!((reloaded.joined.len(), reloaded.left.len(), reloaded.stayed), (1, 1, 1), "{reloaded:?}");
        assert!(reloaded.faults.is_empty(), "{reloaded:?}");
        if count == WARM {
            warm_bytes = resident_bytes();
        }
    }
    let grown = resident_bytes().saturating_sub(warm_bytes);
    assert!(grown <= GROWTH_MAX, "{grown} bytes after {RELOADS} reloads");
    running.control().stop();
    let summary = end(running);
    let older: u64 = summary.older_streams.iter().map(|total| total.streams).sum();
    assert_eq!(summary.streams.len() + older as usize, RELOADS + 2);
    assert_eq!((summary.end, summary.faults.len()), (EndState::Interrupted, 0));
}

#[test]
fn a_reload_after_the_end_is_answered() {
    let (options, _) = options();
    let board = board(1, &[("a", "test://ball?frames=5")]);
    let running = prepare(board.clone(), options).start().expect("it starts");
    let control = running.control().clone();
    assert_eq!(end(running).end, EndState::Complete);
    let answer = reload(&control, board).recv_timeout(WAIT_MAX).expect("it is answered");
    assert_eq!(answer.expect_err("it is too late").first().code.id, codes::RELOAD.id);
}
