//! Models across the boards of a cluster: this board sends images to other seats, infers those that others send, and lets others copy the
//! files of its models.
//!
//! In each epoch, two boards of which one executes models for the other form a group of their own. The client sends one request at a
//! time and receives its answer; `wire` has the messages.

mod client;
mod faults;
mod inbox;
mod links;
mod messages;
mod own_models;
mod server;
mod transfers;
mod waits;
mod wire;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use orinoco_board::Board;
use orinoco_collective::{
    ClusterGroup, CollectiveError, Communicator, Epoch, JoinError, MemberList, SEATS_MAX,
};

use crate::journal::{self, Level};

pub(crate) use faults::log_if_timed_out;
pub(crate) use links::SeatLinks;
use transfers::Transfers;

/// Returns the names of the seats that execute models of a board.
pub(crate) fn seats_of(board: &Board) -> BTreeSet<String> {
    board.models.iter().filter_map(|model| Some(model.seat.as_ref()?.name.clone())).collect()
}

/// Links of one epoch. Dropping it ends them.
pub(crate) struct EpochLinks {
    links: Arc<SeatLinks>,
    /// Seats that were wanted when the epoch began.
    wanted: BTreeSet<String>,
    /// Whether a link could not be made.
    has_failed: bool,
    stop: Arc<AtomicBool>,
}

impl EpochLinks {
    /// Agrees with the other members about who executes models for whom, and connects those. A connection that cannot be made
    /// leaves its seat offline.
    ///
    /// # Errors
    /// The epoch has failed.
    pub(crate) fn connect(
        epoch: &mut Epoch,
        list: &MemberList,
        links: &Arc<SeatLinks>,
    ) -> Result<Self, CollectiveError> {
        let wanted = links.wanted();
        let needs = exchange_needs(epoch, list, &wanted, links.shares())?;
        let own = epoch.group.rank();
        let mut this = Self { links: Arc::clone(links), wanted, has_failed: false, stop: Arc::default() };
        for (client, server) in pairs(epoch, &needs) {
            let color = (own == client || own == server).then_some(0);
            let other = epoch.seat(if own == client { server } else { client });
            let name = list.seats[other].name.clone();
            let linked = match epoch.group.split(color, i32::from(own != client)) {
                Ok(None) => Ok(()),
                Ok(Some(pair)) if own == client => this.send_to(name.clone(), pair),
                Ok(Some(pair)) => this.serve(name.clone(), pair),
                Err(JoinError::Split(why)) => return Err(why),
                Err(why) => Err(why),
            };
            if let Err(why) = linked {
                journal::log(Level::Warning, &format!("cluster connection to seat={name} failed: {why}"));
                this.has_failed = true;
            }
        }
        if needs.iter().any(|needs| needs.shares)
            && let Err(why) = this.start_transfers(epoch, list)?
        {
            journal::log(Level::Warning, &format!("models cannot be copied between the boards: {why}"));
            this.has_failed = true;
        }
        Ok(this)
    }

    /// Starts the transfers of models, together with all members of the epoch.
    fn start_transfers(
        &self,
        epoch: &mut Epoch,
        list: &MemberList,
    ) -> Result<Result<(), String>, CollectiveError> {
        let seats = (0..epoch.group.ranks()).map(|rank| list.seats[epoch.seat(rank)].name.clone()).collect();
        let rank = i32::try_from(epoch.group.rank()).expect("few seats");
        let group = match epoch.group.split_over_tcp(Some(0), rank) {
            Ok(group) => group.expect("this rank has named a colour"),
            Err(JoinError::Split(why)) => return Err(why),
            Err(why) => return Ok(Err(why.to_string())),
        };
        let started = Transfers::start(group, seats, Arc::clone(self.links.clock()));
        Ok(started.map(|transfers| self.links.set_transfers(transfers)).map_err(|why| why.to_string()))
    }

    /// Whether the links are to be made again: one is lost, or the board wants other seats.
    pub(crate) fn are_outdated(&self) -> bool {
        self.has_failed || self.links.has_lost_link() || self.links.wanted() != self.wanted
    }

    fn send_to(&self, seat: String, pair: ClusterGroup) -> Result<(), JoinError> {
        journal::log(Level::Info, &format!("cluster seat={seat} executes models for this board"));
        let client =
            client::Client { inbox: self.links.link(&seat), seat, pair, links: Arc::clone(&self.links) };
        start("seat-client", move || client.run())
    }

    fn serve(&self, seat: String, pair: ClusterGroup) -> Result<(), JoinError> {
        journal::log(Level::Info, &format!("cluster this board executes models for seat={seat}"));
        let (links, stop) = (Arc::clone(&self.links), Arc::clone(&self.stop));
        start("seat-server", move || server::Server { seat, pair, links, stop }.run())
    }
}

impl Drop for EpochLinks {
    fn drop(&mut self) {
        // The threads end by themselves: a client when its inbox is closed, a server at the next message, which comes every second.
        self.stop.store(true, Ordering::Release);
        self.links.unlink_all();
    }
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), JoinError> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop).map_err(JoinError::System)
}

/// Requests and offers of one member of an epoch.
#[derive(Clone, Copy)]
struct Needs {
    /// Seats that execute models for it, one bit each.
    seats: u64,
    /// Whether it shares the models that it runs.
    shares: bool,
}

/// Tells the other members which seats execute models for this board, and whether it shares its models. Returns the same of each rank.
fn exchange_needs(
    epoch: &mut Epoch,
    list: &MemberList,
    wanted: &BTreeSet<String>,
    shares: bool,
) -> Result<Vec<Needs>, CollectiveError> {
    const { assert!(SEATS_MAX <= u64::BITS as usize) }
    let seats = list.seats.iter().enumerate().filter(|(_, seat)| wanted.contains(&seat.name));
    let own = seats.fold(0, |bits, (seat, _)| bits | 1_u64 << seat);
    let mut all = vec![0; 2 * epoch.group.ranks()];
    epoch.group.all_gather(&[own, u64::from(shares)], &mut all)?;
    Ok(all.chunks_exact(2).map(|needs| Needs { seats: needs[0], shares: needs[1] != 0 }).collect())
}

/// Ranks of a client and a server each, in an order that is the same on all boards.
fn pairs(epoch: &Epoch, needs: &[Needs]) -> Vec<(usize, usize)> {
    let ranks = 0..needs.len();
    let all = ranks.clone().flat_map(|client| ranks.clone().map(move |server| (client, server)));
    all.filter(|(client, server)| client != server && needs[*client].seats & 1 << epoch.seat(*server) != 0)
        .collect()
}
