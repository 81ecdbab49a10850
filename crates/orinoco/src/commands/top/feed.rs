//! Source of the figures: a daemon, or this machine's sensors.

use std::sync::Arc;
use std::time::Duration;

use orinoco_api::Status;
use orinoco_core::{Clock, Diagnosis, Nanos, Signal, codes};
use orinoco_pipeline::MonotonicClock;

use super::local::LocalBoard;
use crate::args::TopArgs;
use crate::client::Client;

/// Status of a board, and who gave it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: Status,
    pub(crate) origin: Origin,
}

/// Giver of a status.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// The daemon.
    Daemon,
    /// The sensors of this machine or of another board's files, because the user wants so, or because no daemon answers.
    Local { no_daemon: Option<Diagnosis> },
}

/// Source of statuses.
#[derive(Debug)]
pub(crate) enum Feed {
    /// A daemon that the user named.
    Daemon(Client),
    /// The sensors of this machine, or of another board's files.
    Local(LocalBoard),
    /// The daemon of this machine; until it answers for the first time, the sensors.
    Either(Either),
}

/// Daemon that may run, and the sensors of this machine once they are needed.
#[derive(Debug)]
pub(crate) struct Either {
    client: Client,
    local: Option<LocalBoard>,
    clock: MonotonicClock,
    /// A daemon that has answered is not replaced when it goes away: its last state stays.
    has_answered: bool,
}

impl Feed {
    /// Creates the source that the command line names.
    pub(crate) fn new(args: &TopArgs, clock: MonotonicClock) -> Result<Self, Diagnosis> {
        if let Some(path) = &args.sysroot {
            return Ok(Self::Local(LocalBoard::elsewhere(path, clock)?));
        }
        if args.local {
            return Ok(Self::Local(LocalBoard::open(clock)));
        }
        let client = Client::new(&args.daemon)?;
        let is_named = args.daemon.socket.is_some() || args.daemon.address.is_some();
        Ok(match is_named {
            true => Self::Daemon(client),
            false => Self::Either(Either { client, local: None, clock, has_answered: false }),
        })
    }

    /// Returns what it shows, for people.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Daemon(client) | Self::Either(Either { client, .. }) => client.address().to_string(),
            Self::Local(local) => local.shown().to_owned(),
        }
    }

    /// Returns the status now.
    ///
    /// # Errors
    /// Says why the daemon gives none. Where no daemon runs and none was named, this machine answers instead.
    pub(crate) fn next(&mut self) -> Result<Answer, Diagnosis> {
        match self {
            Self::Daemon(client) => ask(client),
            Self::Local(local) => Ok(of_this_machine(local, None)),
            Self::Either(either) => either.next(),
        }
    }
}

impl Either {
    fn next(&mut self) -> Result<Answer, Diagnosis> {
        match ask(&self.client) {
            Err(fault) if is_absent(&fault) && !self.has_answered => {
                let local = self.local.get_or_insert_with(|| LocalBoard::open(self.clock));
                Ok(of_this_machine(local, Some(fault)))
            }
            answer => {
                self.has_answered |= answer.is_ok();
                answer
            }
        }
    }
}

fn of_this_machine(local: &mut LocalBoard, no_daemon: Option<Diagnosis>) -> Answer {
    Answer { status: local.status(no_daemon.as_ref()), origin: Origin::Local { no_daemon } }
}

fn ask(client: &Client) -> Result<Answer, Diagnosis> {
    client.status().map(|status| Answer { status, origin: Origin::Daemon })
}

/// Whether a fault says that no daemon is there for this user.
fn is_absent(fault: &Diagnosis) -> bool {
    [codes::DAEMON_ABSENT.id, codes::DAEMON_DENIED.id].contains(&fault.code.id)
}

/// Times at which the figures are updated: a whole number of intervals after the start, whatever an answer takes.
pub(crate) struct Ticks {
    clock: MonotonicClock,
    signal: Arc<dyn Signal>,
    interval: Duration,
    next: Nanos,
}

impl Ticks {
    pub(crate) fn new(clock: MonotonicClock, interval: Duration) -> Self {
        Self { clock, signal: clock.signal(), interval, next: clock.now() }
    }

    /// Waits for the next tick. Ticks that have passed are left out.
    pub(crate) fn wait(&mut self) {
        while self.next <= self.clock.now() {
            self.next = self.next + self.interval;
        }
        while self.clock.now() < self.next {
            self.signal.wait(Some(self.next));
        }
    }
}
