//! Starting a board, and what its owner can ask of it while it runs.

use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use orinoco_api::Summary;
use orinoco_board::Board;
use orinoco_config::Faults;
use orinoco_core::{Clock, WithSubject, codes};
use orinoco_model::Repository;
use orinoco_pipeline::{MonotonicClock, Stop};
use orinoco_telemetry::{EventSink, Telemetry};

use crate::BoardEngines;
use crate::action::Action;
use crate::memory::resident_bytes;
use crate::outputs::{ExistingOutputs, TakenFiles};
use crate::prepare::{Context, Prepared, RunningState, prepare};
use crate::progress::Progress;
use crate::reloaded::{Reloaded, Reply};
use crate::shared::Shared;
use crate::shell::{Launch, RunAction, Shell};

/// Time between two looks at how far a run is, unless its [`RunOptions`] say otherwise: a progress line moves smoothly.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Looks that may wait for who watches them.
const LOOKS_MAX: usize = 64;

/// What a board is started with.
pub struct RunOptions {
    repository: Repository,
    events: Arc<dyn EventSink>,
    /// How it is stopped and reloaded, also while it starts.
    pub control: Control,
    /// What becomes of files of an earlier run.
    pub earlier: ExistingOutputs,
    /// Files that the caller writes, and no sink therefore.
    pub own: TakenFiles,
    /// Time between two looks at how far the run is.
    pub look_every: Duration,
    /// Whether the run ends when nobody reads its outputs any more: what waits is dropped, and counted.
    pub end_unread: bool,
}

impl RunOptions {
    /// RunOptions of a run that overwrites files of an earlier one.
    pub fn new(repository: &Repository, events: Arc<dyn EventSink>) -> Self {
        Self {
            repository: repository.clone(),
            events,
            control: Control::default(),
            earlier: ExistingOutputs::Overwritten,
            own: TakenFiles::default(),
            look_every: LOOK_EVERY,
            end_unread: true,
        }
    }
}

/// Stops and reloads a run, from any thread and already while it starts.
#[derive(Clone, Debug)]
pub struct Control {
    stop: Stop,
    actions: Sender<RunAction>,
    /// The other end, until a run takes it.
    received: Arc<Mutex<Option<Receiver<RunAction>>>>,
}

impl Default for Control {
    fn default() -> Self {
        let (actions, received) = channel();
        Self { stop: Stop::default(), actions, received: Arc::new(Mutex::new(Some(received))) }
    }
}

impl Control {
    /// Requests the end: sources stop, frames in work are finished, outputs are completed. May be called more than once.
    pub fn stop(&self) {
        self.stop.request();
        self.send(Action::Stop);
    }

    /// Whether the end was requested.
    pub fn is_stopping(&self) -> bool {
        self.stop.requested()
    }

    /// Makes the run another board: streams join and leave, and those that stay do not notice. `done` is called once, on
    /// another thread, with what became of it. While a change is being prepared the newest board waits.
    pub fn reload(&self, board: Board, done: impl FnOnce(Result<Reloaded, Faults>) + Send + 'static) {
        self.send(Action::Reload(board, Reply::new(done)));
    }

    /// How far the run is; `None` when it is over.
    pub fn snapshot(&self) -> Option<Progress> {
        let (reply, answer) = channel();
        self.send(Action::Snapshot(reply));
        answer.recv().ok()
    }

    /// Where the run is over, the action is dropped, and with it who waits for an answer gets one.
    fn send(&self, action: RunAction) {
        let _ = self.actions.send(action);
    }

    /// The actions, for the one run that takes them.
    fn take(&self) -> Receiver<RunAction> {
        let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        received.take().expect("a control is of one run")
    }
}

/// A board at work.
pub struct Running {
    control: Control,
    looks: Receiver<Progress>,
    supervisor: JoinHandle<Summary>,
    prepared_bytes: u64,
}

/// Starts a board: checks sources, loads models, probes engines, opens sinks, and starts every thread. All faults of one kind
/// come together, and nearly all of them before anything runs.
pub fn start(board: Board, options: RunOptions) -> Result<Running, Faults> {
    First::prepare(board, options)?.start()
}

/// The first change of a run: the board without streams becomes the one that is wanted.
pub(crate) struct First {
    pub(crate) prepared: Prepared,
    context: Context,
    options: RunOptions,
}

impl First {
    pub(crate) fn prepare(board: Board, options: RunOptions) -> Result<Self, Faults> {
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::default());
        let (events, stop) = (Arc::clone(&options.events), options.control.stop.clone());
        let engines = BoardEngines::new(&board.inference)?;
        let context = Context {
            shared: Shared { clock, events, telemetry: Telemetry::default(), stop, engines },
            repository: options.repository.clone(),
            earlier: options.earlier,
            own: options.own.clone(),
        };
        let base = RunningState::empty(&board);
        let prepared = prepare(board, base, &context)?;
        Ok(Self { prepared, context, options })
    }

    pub(crate) fn start(self) -> Result<Running, Faults> {
        let Self { prepared, context, options } = self;
        let RunOptions { control, look_every, end_unread, earlier, .. } = options;
        let prepared_bytes = resident_bytes();
        let (watcher, looks) = sync_channel(LOOKS_MAX);
        let launch = Launch {
            context,
            actions: control.actions.clone(),
            watcher,
            look_every,
            end_unread,
            // Where results of an earlier run stay, a file that begins again loses none.
            repeat_files: earlier == ExistingOutputs::Kept,
        };
        let actions = control.take();
        let (shell, supervisor) = Shell::launch(prepared, launch)?;
        let supervise = move || shell.run(supervisor, &actions);
        let supervisor = thread::Builder::new().name("supervisor".to_owned()).spawn(supervise);
        let next = "raise the limit on threads (ulimit -u)";
        let supervisor = supervisor.about(&codes::ENGINE_RUN, "thread supervisor", next)?;
        if control.is_stopping() {
            // It was requested before anybody took actions, or while the board was being prepared.
            control.send(Action::Stop);
        }
        Ok(Running { control, looks, supervisor, prepared_bytes })
    }
}

impl Running {
    /// How it is stopped and reloaded.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Resident memory when everything was prepared and nothing ran, in bytes.
    pub fn prepared_bytes(&self) -> u64 {
        self.prepared_bytes
    }

    /// Waits until every source has ended and every sink is complete, calling `look` now and then and at the end.
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
