//! Start of a board, and control of it while it runs.

use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use orinoco_api::Summary;
use orinoco_board::{Board, SensorsSpec};
use orinoco_config::Faults;
use orinoco_core::Clock;
use orinoco_model::Repository;
use orinoco_pipeline::{MonotonicClock, Stop};
use orinoco_sysroot::Sysroot;
use orinoco_telemetry::{EventSink, Telemetry};

use crate::BoardEngines;
use crate::action::{Action, ChangeKind};
use crate::event_log::EventLog;
use crate::governor::GovernorThread;
use crate::memory::resident_bytes;
use crate::monitor::{Latest, Monitor};
use crate::outputs::{ExistingOutputs, TakenFiles};
use crate::prepare::{Context, Prepared, RunAction, RunningState, prepare};
use crate::progress::Progress;
use crate::reloaded::{Reloaded, Reply};
use crate::sampler::Sampler;
use crate::seats::{NoSeats, Seats, ServedModels};
use crate::shared::Shared;
use crate::shell::{Launch, Shell};
use crate::threads::ThreadError;

/// Default time between two progress reports: a progress line moves smoothly.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Maximum number of progress reports that wait for a slow watcher.
const LOOKS_MAX: usize = 64;

/// Options with which a board is started.
pub struct RunOptions {
    repository: Repository,
    events: Arc<dyn EventSink>,
    /// Clock of all threads of the run.
    pub clock: Arc<dyn Clock>,
    /// Seed of everything that happens by chance: pauses before reconnecting to cameras, and times of reading sensors.
    pub seed: u64,
    /// Control that stops and reloads the run, from the beginning of its start.
    pub control: Control,
    /// Treatment of files of an earlier run.
    pub earlier: ExistingOutputs,
    /// Files that the caller writes, so that no sink writes to them.
    pub own: TakenFiles,
    /// Time between two progress reports.
    pub sample_every: Duration,
    /// Whether the run ends when no output has a reader any more. Frames that wait are then dropped, and counted.
    pub end_unread: bool,
    /// Whether the board's governor runs, if its file has one.
    pub govern: bool,
    /// Other seats of the board's cluster; `None` counts all as offline.
    pub seats: Option<Arc<dyn Seats>>,
    /// Files from which the board's sensors are read, if the board enables them; `None` reads no sensors and measures no
    /// energy.
    pub sensors: Option<Sysroot>,
}

impl RunOptions {
    /// Creates the options of a run that overwrites files of an earlier one. Its seed is the time of day.
    pub fn new(repository: &Repository, events: Arc<dyn EventSink>) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
        Self {
            repository: repository.clone(),
            events,
            seed: clock.wall().unix_nanos(),
            clock,
            control: Control::default(),
            earlier: ExistingOutputs::Overwritten,
            own: TakenFiles::default(),
            sample_every: LOOK_EVERY,
            end_unread: true,
            govern: false,
            seats: None,
            sensors: Some(Sysroot::host()),
        }
    }
}

/// Control that stops and reloads a run, from any thread, and already while it starts.
#[derive(Clone, Debug)]
pub struct Control {
    /// Stop request of the run, which its threads watch. The supervisor sets it (`Effect::StopAll`). This control sets it too,
    /// for two that must not wait for the supervisor: the preparation of the start, during which no supervisor runs, and the
    /// handler of a second signal, which has to end a process whose supervisor hangs.
    stop: Stop,
    actions: Sender<RunAction>,
    /// Receiver of the actions, until a run takes it.
    received: Arc<Mutex<Option<Receiver<RunAction>>>>,
}

impl Default for Control {
    fn default() -> Self {
        let (actions, received) = channel();
        Self { stop: Stop::default(), actions, received: Arc::new(Mutex::new(Some(received))) }
    }
}

impl Control {
    /// Requests the end: sources stop, frames in progress are finished, and outputs are completed. May be called more than
    /// once.
    pub fn stop(&self) {
        // The supervisor receives this before the end of any stream that the flag stops: a stream that was stopped is not taken for
        // one that has ended by itself. During the start it waits in the channel.
        self.send(Action::Stop);
        self.stop.request();
    }

    /// Whether the end was requested.
    pub fn is_stopping(&self) -> bool {
        self.stop.requested()
    }

    /// Reloads the run with another board: streams join and leave, and those that stay are not disturbed. `done` is called
    /// once with the result, on another thread unless the run is over. While a change is being prepared, only the newest board waits.
    pub fn reload(&self, board: Board, done: impl FnOnce(Result<Reloaded, Faults>) + Send + 'static) {
        self.send(Action::Reload(board, Reply::new(done)));
    }

    /// Returns the progress of the run; `None` when it is over.
    pub fn snapshot(&self) -> Option<Progress> {
        let (reply, answer) = channel();
        self.send(Action::Snapshot(reply));
        answer.recv().ok()
    }

    /// Sends an action. If the run is over, the action is dropped, and a request in it is answered by its drop.
    fn send(&self, action: RunAction) {
        let _ = self.actions.send(action);
    }

    /// Refuses all actions, also those that wait: the run could not be started.
    fn close(&self) {
        drop(self.received.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Takes the receiver of the actions, for the one run of this control.
    fn take(&self) -> Receiver<RunAction> {
        let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        received.take().expect("a control is of one run")
    }
}

/// Board that runs.
pub struct Running {
    control: Control,
    looks: Receiver<Progress>,
    monitor: Monitor,
    served: ServedModels,
    supervisor: JoinHandle<Summary>,
    prepared_bytes: u64,
}

/// Starts a board: checks sources, loads models, probes engines, opens sinks, and starts every thread. All faults of one
/// kind are reported together, and nearly all of them before anything runs.
pub fn start(board: Board, options: RunOptions) -> Result<Running, Faults> {
    let control = options.control.clone();
    First::prepare(board, options).inspect_err(|_| control.close())?.start()
}

/// First change of a run, from the board without streams to the wanted one.
pub(crate) struct First {
    pub(crate) prepared: Prepared,
    context: Context,
    options: RunOptions,
    monitor: Monitor,
    sensors: SensorsSpec,
}

impl First {
    pub(crate) fn prepare(board: Board, options: RunOptions) -> Result<Self, Faults> {
        let (clock, seed) = (Arc::clone(&options.clock), options.seed);
        let stop = options.control.stop.clone();
        let engines = BoardEngines::new(&board.inference)?;
        let telemetry = Telemetry::default();
        let events = Arc::new(EventLog::new(Arc::clone(&options.events), Arc::clone(&clock)));
        let monitor = Monitor::new(Arc::clone(&clock), telemetry.clone(), Arc::clone(&events), &board.name);
        let served = ServedModels::new(&clock);
        let seats = options.seats.clone().unwrap_or_else(|| Arc::new(NoSeats));
        let context = Context {
            shared: Shared { clock, seed, events, telemetry, stop, engines, seats, served },
            repository: options.repository.clone(),
            earlier: options.earlier,
            own: options.own.clone(),
        };
        let (base, sensors) = (RunningState::empty(&board), board.sensors.clone());
        let prepared = prepare(board, base, ChangeKind::Board, &context)?;
        Ok(Self { prepared, context, options, monitor, sensors })
    }

    pub(crate) fn start(self) -> Result<Running, Faults> {
        let Self { prepared, context, options, monitor, sensors } = self;
        let RunOptions { control, sample_every, end_unread, earlier, sensors: sysroot, govern, .. } = options;
        let prepared_bytes = resident_bytes();
        monitor.directory_mut().set_levels(&prepared.board.models);
        let (watcher, looks) = sync_channel(LOOKS_MAX);
        let sysroot = sysroot.filter(|_| sensors.enabled);
        if sysroot.is_none() {
            monitor.readings().set(Latest::off());
        }
        let governed = prepared.board.governor.clone().filter(|_| govern);
        let detect = |sysroot: &Sysroot| orinoco_board::detect(sysroot).profile;
        let profile = sysroot.as_ref().filter(|_| governed.is_some()).and_then(detect);
        let sampler = sysroot.map(|sysroot| {
            let feed = context.shared.telemetry.subscribe_work();
            let feed = feed.expect("the feed of a new run has no reader");
            Sampler::start(sysroot, sensors.power_interval, &context.shared, feed, &monitor)
        });
        let governor = governed.map(|spec| {
            let profile = profile.map(|profile| profile.value);
            let Shared { clock, events, .. } = &context.shared;
            GovernorThread::start(
                spec,
                profile,
                Arc::clone(clock),
                Arc::clone(events),
                monitor.clone(),
                control.actions.clone(),
            )
        });
        let served = context.shared.served.clone();
        let launch = Launch {
            context,
            monitor: monitor.clone(),
            sampler: sampler.transpose()?,
            governor: governor.transpose()?,
            actions: control.actions.clone(),
            watcher,
            sample_every,
            end_unread,
            // If results of an earlier run are kept, a file that starts again loses none of them.
            repeat_files: earlier == ExistingOutputs::Kept,
        };
        let actions = control.take();
        let (shell, supervisor) = Shell::launch(prepared, launch)?;
        let supervise = move || shell.run(supervisor, &actions);
        let supervisor = thread::Builder::new().name("supervisor".to_owned()).spawn(supervise);
        let supervisor = supervisor.map_err(|why| ThreadError::Start(why).diagnosis("supervisor"))?;
        Ok(Running { control, looks, monitor, served, supervisor, prepared_bytes })
    }
}

impl Running {
    /// Returns the control that stops and reloads the run.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Returns the view of the run for its control socket.
    pub fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// Returns the models that other seats of the cluster may use.
    pub fn served(&self) -> &ServedModels {
        &self.served
    }

    /// Returns the resident memory after everything was prepared and before anything ran, in bytes.
    pub fn prepared_bytes(&self) -> u64 {
        self.prepared_bytes
    }

    /// Waits until every source has ended and every sink is complete. Calls `look` with each progress report and at the
    /// end.
    pub fn wait(self, mut look: impl FnMut(Progress)) -> Summary {
        for progress in &self.looks {
            look(progress);
        }
        match self.supervisor.join() {
            Ok(summary) => summary,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

#[cfg(test)]
mod tests;
