//! The board's seat in a cluster: taken at the start, and held in one epoch after the other.

use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use orinoco_api::{ClusterStatus, SeatStatus};
use orinoco_board::ClusterSpec;
use orinoco_collective::{
    Cluster, ClusterError, ClusterMonitor, ClusterSettings, Epoch, KeyPair, MemberList, MessageSettings,
    SeatSet, SeatState, VerifyingKey,
};
use orinoco_core::{Clock, Diagnosis, Signal, codes};

use crate::journal::{self, Level};
use crate::seats::{EpochLinks, SeatLinks};

/// Interval at which the members of an epoch look for failures, and for seats that wait.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Longest wait for another seat in a call, and for its connection. Seats give signs of life meanwhile.
const CALL_MAX: Duration = Duration::from_secs(10);
/// Least age of an epoch that is ended for seats that wait for the next, or for connections that are to be made again, at first and at
/// most. It is doubled when that was in vain.
const EPOCH_AGE_MIN: Duration = Duration::from_secs(5);
const EPOCH_AGE_MAX: Duration = Duration::from_secs(300);

/// A seat that was taken.
pub(crate) struct HeldSeat {
    view: ClusterView,
    stop: Arc<AtomicBool>,
    signal: Arc<dyn Signal>,
    thread: JoinHandle<()>,
}

/// Seat as the control socket shows it.
#[derive(Clone)]
pub(crate) struct ClusterView {
    monitor: ClusterMonitor,
    list: Arc<MemberList>,
    own: usize,
    /// Reason for which there is no epoch.
    fault: Arc<Mutex<Option<String>>>,
}

/// Takes the board's seat. The other boards need not be there.
///
/// # Errors
///
/// The list, a key or the address cannot be used, or the list has no seat for this board's key.
pub(crate) fn start(
    spec: &ClusterSpec,
    links: &Arc<SeatLinks>,
    clock: Arc<dyn Clock>,
) -> Result<HeldSeat, Diagnosis> {
    let key: VerifyingKey = spec.operator_key.parse().map_err(|why| fault("operator_key", &why))?;
    let list = MemberList::read(&spec.list, &key).map_err(|why| fault(&subject(&spec.list), &why))?;
    let own = KeyPair::read(&spec.key).map_err(|why| fault(&subject(&spec.key), &why))?;
    let messages = MessageSettings { deadline: CALL_MAX, ..MessageSettings::default() };
    let settings = ClusterSettings { listen: spec.listen, messages, ..ClusterSettings::default() };
    let cluster = Cluster::open(list, own, settings).map_err(|why| fault(&subject(&spec.list), &why))?;
    let (list, own) = (Arc::new(cluster.list().clone()), cluster.seat());
    let others = list.seats.iter().enumerate().filter(|(seat, _)| *seat != own);
    links.set_others(others.map(|(_, seat)| seat.name.clone()).collect());
    links.check(&links.wanted())?;
    journal::log(
        Level::Info,
        &format!("cluster name={} seat={} listen={}", list.name, list.seats[own].name, cluster.address()),
    );
    let view = ClusterView { monitor: cluster.monitor(), list, own, fault: Arc::default() };
    let (stop, signal) = (Arc::new(AtomicBool::new(false)), clock.signal());
    let holder = Holder {
        view: view.clone(),
        links: Arc::clone(links),
        stop: Arc::clone(&stop),
        signal: Arc::clone(&signal),
        clock,
    };
    let spawned = thread::Builder::new().name("cluster".to_owned()).spawn(move || holder.run(cluster));
    let thread = spawned.map_err(|why| fault(&subject(&spec.list), &why))?;
    Ok(HeldSeat { view, stop, signal, thread })
}

fn subject(path: &Path) -> String {
    path.display().to_string()
}

fn fault(subject: &str, why: &dyn Error) -> Diagnosis {
    let source = why.source().map(|source| format!(": {source}")).unwrap_or_default();
    Diagnosis::new(&codes::CLUSTER_SEAT, subject, format!("{why}{source}"), "see `orinoco explain E1004`")
}

impl HeldSeat {
    /// Returns the view of the seat.
    pub(crate) fn view(&self) -> ClusterView {
        self.view.clone()
    }

    /// Leaves the cluster.
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.view.monitor.interrupt();
        self.signal.notify();
        // A thread that has panicked has said so.
        let _ = self.thread.join();
    }
}

impl ClusterView {
    /// Returns the state of the cluster.
    pub(crate) fn status(&self) -> ClusterStatus {
        let seats = self.monitor.seats();
        let epoch = seats[self.own].epoch;
        let state = |seat: &SeatState| {
            if epoch.is_some() && seat.epoch == epoch {
                "member"
            } else if seat.is_waiting {
                "waiting"
            } else if seat.is_reachable {
                "reachable"
            } else {
                "unreachable"
            }
        };
        let of = |(number, seat): (usize, SeatState)| SeatStatus {
            address: self.list.seats[number].address.to_string(),
            state: state(&seat).to_owned(),
            fault: seat.fault.filter(|_| !seat.is_reachable),
            name: seat.name,
        };
        ClusterStatus {
            name: self.list.name.clone(),
            serial: self.list.serial,
            seat: self.list.seats[self.own].name.clone(),
            epoch,
            fault: self.lock().clone().filter(|_| epoch.is_none()),
            seats: seats.into_iter().enumerate().map(of).collect(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn names(&self, seats: SeatSet) -> String {
        seats.iter().map(|seat| self.list.seats[seat].name.as_str()).collect::<Vec<_>>().join(",")
    }
}

/// Joins epochs, one after the other.
struct Holder {
    view: ClusterView,
    links: Arc<SeatLinks>,
    stop: Arc<AtomicBool>,
    signal: Arc<dyn Signal>,
    clock: Arc<dyn Clock>,
}

impl Holder {
    fn run(self, mut cluster: Cluster) {
        let (mut age, mut end) = (EPOCH_AGE_MIN, EpochEnd::default());
        while !self.stop.load(Ordering::Acquire) {
            match cluster.join() {
                Ok(mut epoch) => {
                    *self.view.lock() = None;
                    let members = self.view.names(epoch.members);
                    journal::log(Level::Info, &format!("cluster epoch={} members={members}", epoch.number));
                    let was_in_vain =
                        end.relink || end.waiting.iter().any(|seat| !epoch.members.contains(seat));
                    age = if was_in_vain { EPOCH_AGE_MAX.min(2 * age) } else { EPOCH_AGE_MIN };
                    end = self.hold(&mut epoch, age);
                }
                Err(ClusterError::Interrupted) => {}
                Err(why) => {
                    journal::log(Level::Warning, &format!("cluster {why}"));
                    *self.view.lock() = Some(why.to_string());
                }
            }
        }
    }

    /// Connects with the seats that execute models for this board, and with those for which it does. Stays in the epoch until a
    /// member fails or, once it is old enough, until links are to be made again or seats wait for the next epoch.
    fn hold(&self, epoch: &mut Epoch, age_min: Duration) -> EpochEnd {
        let start = self.clock.now();
        let number = epoch.number;
        let links = match EpochLinks::connect(epoch, &self.view.list, &self.links) {
            Ok(links) => links,
            Err(why) => {
                journal::log(Level::Warning, &format!("cluster epoch={number} is over: {why}"));
                return EpochEnd::default();
            }
        };
        while !self.stop.load(Ordering::Acquire) {
            self.signal.wait(Some(self.clock.now() + LOOK_EVERY));
            if let Some((rank, cause)) = epoch.group.lost_rank() {
                let seat = &self.view.list.seats[epoch.seat(rank)].name;
                let text = format!("cluster epoch={number} is over: seat {seat} {cause}");
                journal::log(Level::Warning, &text);
                return EpochEnd::default();
            }
            if self.clock.now() < start + age_min {
                continue;
            }
            let waiting = self.view.monitor.waiting();
            if !waiting.is_empty() {
                let names = self.view.names(waiting);
                journal::log(Level::Info, &format!("cluster epoch={number} ends for seats={names}"));
                return EpochEnd { waiting, relink: false };
            }
            if links.are_outdated() {
                let why = "a connection to a seat was lost, or the board file names other seats";
                journal::log(Level::Info, &format!("cluster epoch={number} ends: {why}"));
                return EpochEnd { waiting, relink: true };
            }
        }
        EpochEnd::default()
    }
}

/// Reason for which this seat has ended an epoch, if it has.
#[derive(Default)]
struct EpochEnd {
    /// Seats that waited for the next epoch.
    waiting: SeatSet,
    /// Links were to be made again.
    relink: bool,
}
