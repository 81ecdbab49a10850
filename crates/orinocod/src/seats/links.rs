//! Links of a board with other seats, as the runtime and the epochs see them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use orinoco_api::SeatModels;
use orinoco_board::Board;
use orinoco_core::{Clock, Diagnosis, codes};
use orinoco_model::Repository;
use orinoco_runtime::{SeatBatch, Seats, ServedModels};
use orinoco_server::ModelPart;
use orinoco_telemetry::MissCause;

use super::faults::SeatError;
use super::inbox::{Inbox, NotTaken};
use super::own_models::{HashedModels, Hashes, OwnModels};
use super::transfers::{CopyError, Transfers};
use super::waits::Waits;
use crate::journal::{self, Level};

/// Links of this board with the seats that execute its models, and what it executes for others.
pub(crate) struct SeatLinks {
    state: Mutex<State>,
    served: OnceLock<ServedModels>,
    /// Names of the other seats of the list, once this board has its own.
    others: OnceLock<Vec<String>>,
    /// Hashes of the files of this board's models. A thread that hashes holds the lock.
    hashes: Mutex<Hashes>,
    waits: Waits,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct State {
    /// Seats that execute models of the board.
    wanted: BTreeSet<String>,
    /// Batches for the clients' threads, by seat.
    links: BTreeMap<String, Arc<Inbox>>,
    /// Whether this board shares the models that it runs.
    shares: bool,
    /// Number of times that the board's models were opened to be shared.
    generation: u32,
    /// The models that are shared, and their generation.
    own: Option<(u32, Arc<HashedModels>)>,
    /// Transfers of the epoch, if a board shares models.
    transfers: Option<Arc<Transfers>>,
}

impl SeatLinks {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            state: Mutex::default(),
            served: OnceLock::new(),
            others: OnceLock::new(),
            hashes: Mutex::default(),
            waits: Waits::default(),
            clock,
        }
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

    /// Lets other boards copy the models that this board runs.
    pub(crate) fn set_shares(&self) {
        self.lock().shares = true;
    }

    /// Waits for the answers of seats that execute models for this board.
    pub(crate) fn waits(&self) -> &Waits {
        &self.waits
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(super) fn shares(&self) -> bool {
        self.lock().shares
    }

    /// Opens the files of a board's models, if this board shares them: before they are loaded, so that a version that comes later is not taken
    /// for the one that runs.
    pub(crate) fn open_models(&self, board: &Board, place: &Repository) -> Option<OwnModels> {
        self.shares().then(|| OwnModels::open(board, place))
    }

    /// Shares the models of the board that runs now, as soon as their files are hashed.
    pub(crate) fn share(self: &Arc<Self>, own: OwnModels) {
        let generation = {
            let mut state = self.lock();
            state.generation += 1;
            state.generation
        };
        let this = Arc::clone(self);
        let hash = move || {
            let hashed = own.hash(&mut this.hashes.lock().unwrap_or_else(PoisonError::into_inner));
            let mut state = this.lock();
            if state.own.as_ref().is_none_or(|(known, _)| *known < generation) {
                state.own = Some((generation, Arc::new(hashed)));
                drop(state);
                this.publish();
            }
        };
        if let Err(why) = thread::Builder::new().name("model-hash".to_owned()).spawn(hash) {
            journal::log(Level::Warning, &format!("models are not shared with the cluster: {why}"));
        }
    }

    /// Uses the transfers of an epoch.
    pub(super) fn set_transfers(&self, transfers: Transfers) {
        self.lock().transfers = Some(Arc::new(transfers));
        self.publish();
    }

    /// Registers this board's models with the transfers of the epoch.
    fn publish(&self) {
        let (transfers, own) = {
            let state = self.lock();
            (state.transfers.clone(), state.own.clone())
        };
        if let (Some(transfers), Some((generation, own))) = (transfers, own)
            && let Err(why) = transfers.share(generation, &own)
        {
            journal::log(Level::Warning, &format!("models are not shared with the cluster: {why}"));
        }
    }

    /// Asks the other boards of the epoch for the models that they share.
    pub(crate) fn models(&self) -> Vec<SeatModels> {
        let transfers = self.lock().transfers.clone();
        transfers.map_or_else(Vec::new, |transfers| transfers.models())
    }

    /// Reads a part of a file of another board's model.
    ///
    /// # Errors
    /// `E1008`
    pub(crate) fn model_data(&self, part: &ModelPart) -> Result<Vec<u8>, Diagnosis> {
        let transfers = self.lock().transfers.clone();
        let read = transfers.ok_or(CopyError::NoTransfers).and_then(|transfers| transfers.read(part));
        read.map_err(|why| why.diagnosis(part))
    }

    /// Ends all links and transfers. Batches that wait are answered with a fault.
    pub(super) fn unlink_all(&self) {
        let (links, transfers) = {
            let mut state = self.lock();
            (std::mem::take(&mut state.links), state.transfers.take())
        };
        for (seat, inbox) in links {
            inbox.close().into_iter().for_each(|batch| batch.fail(SeatError::Offline.of_step(&seat)));
        }
        // Last of all: it waits for what the other boards still read.
        drop(transfers);
    }

    /// Whether a connection for images or for the files of models was lost.
    pub(super) fn has_lost_link(&self) -> bool {
        let state = self.lock();
        state.links.values().any(|inbox| inbox.is_closed())
            || state.transfers.as_ref().is_some_and(|transfers| transfers.have_failed())
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
            Some((batch, NotTaken::Full)) => batch.fail(SeatError::Overloaded.of_step(seat)),
            Some((batch, NotTaken::Closed)) => batch.fail(SeatError::Offline.of_step(seat)),
        }
    }
}
