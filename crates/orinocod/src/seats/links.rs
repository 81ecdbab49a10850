//! Links of a board with other seats, as the runtime and the epochs see them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use orinoco_core::{Clock, Diagnosis, codes};
use orinoco_runtime::{SeatBatch, Seats, ServedModels};
use orinoco_telemetry::MissCause;

use super::faults::{offline, overloaded};
use super::inbox::{Inbox, NotTaken};

/// Links of this board with the seats that execute its models, and what it executes for others.
pub(crate) struct SeatLinks {
    state: Mutex<State>,
    served: OnceLock<ServedModels>,
    /// Names of the other seats of the list, once this board has its own.
    others: OnceLock<Vec<String>>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct State {
    /// Seats that execute models of the board.
    wanted: BTreeSet<String>,
    /// Batches for the clients' threads, by seat.
    links: BTreeMap<String, Arc<Inbox>>,
}

impl SeatLinks {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { state: Mutex::default(), served: OnceLock::new(), others: OnceLock::new(), clock }
    }

    /// Lets other seats use the models of the running board.
    pub(crate) fn serve(&self, served: &ServedModels) {
        // A board runs once in a process.
        let _ = self.served.set(served.clone());
    }

    /// Sets the names of the other seats of the list: this board has its own.
    pub(crate) fn set_others(&self, others: Vec<String>) {
        // A board takes its seat once in a process.
        let _ = self.others.set(others);
    }

    /// Checks that seats which are to execute models are others of the list.
    pub(crate) fn check(&self, wanted: &BTreeSet<String>) -> Result<(), Diagnosis> {
        let Some(others) = self.others.get() else { return Ok(()) };
        let Some(name) = wanted.iter().find(|name| !others.contains(name)) else { return Ok(()) };
        let cause = format!("seat `{name}` of a model is not another seat of the member list");
        let next = match others.as_slice() {
            [] => "add it to the list, or remove `seat`".to_owned(),
            others => format!("use one of {}", others.join(", ")),
        };
        Err(Diagnosis::new(&codes::CLUSTER_SEAT, "the board file", cause, next))
    }

    /// Sets the seats that execute models of the board, when it is started or reloaded.
    pub(crate) fn set_wanted(&self, wanted: BTreeSet<String>) {
        self.lock().wanted = wanted;
    }

    pub(crate) fn wanted(&self) -> BTreeSet<String> {
        self.lock().wanted.clone()
    }

    /// Returns the models that other seats may use, once the board runs.
    pub(super) fn served(&self) -> Option<&ServedModels> {
        self.served.get()
    }

    /// Links a seat, and returns where its batches wait.
    pub(super) fn link(&self, seat: &str) -> Arc<Inbox> {
        let inbox = Arc::new(Inbox::new(&self.clock));
        self.lock().links.insert(seat.to_owned(), Arc::clone(&inbox));
        inbox
    }

    /// Ends all links. Batches that wait are answered with a fault.
    pub(super) fn unlink_all(&self) {
        let links = std::mem::take(&mut self.lock().links);
        for (seat, inbox) in links {
            inbox.close().into_iter().for_each(|batch| batch.fail(offline(&seat)));
        }
    }

    /// Whether a connection to a linked seat was lost.
    pub(super) fn has_lost_link(&self) -> bool {
        self.lock().links.values().any(|inbox| inbox.is_closed())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seats for SeatLinks {
    fn readiness(&self, seat: &str) -> Result<(), MissCause> {
        let is_linked = self.lock().links.get(seat).is_some_and(|inbox| !inbox.is_closed());
        is_linked.then_some(()).ok_or(MissCause::Offline)
    }

    fn infer(&self, seat: &str, batch: SeatBatch) {
        let inbox = self.lock().links.get(seat).cloned();
        let refused = match inbox {
            Some(inbox) => inbox.push(batch),
            None => Some((batch, NotTaken::Closed)),
        };
        match refused {
            None => {}
            Some((batch, NotTaken::Full)) => batch.fail(overloaded(seat)),
            Some((batch, NotTaken::Closed)) => batch.fail(offline(seat)),
        }
    }
}
