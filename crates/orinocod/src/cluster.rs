//! The board's seat in a cluster: taken at the start, and held in one epoch after the other.

mod events;
mod serials;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use orinoco_api::{ClusterStatus, LinkFigures, SeatStatus};
use orinoco_board::{ClusterSpec, RdmaUse};
use orinoco_collective::{
    Cluster, ClusterError, ClusterMonitor, ClusterRdma, ClusterSettings, CollectiveError, Epoch, KeyPair,
    MemberList, MessageSettings, RdmaPolicy, SeatSet, SeatState, VerifyingKey,
};
use orinoco_core::{Clock, Diagnosis, Signal, codes};
use orinoco_runtime::Monitor;
use orinoco_server::{LocalSocket, SocketSetting};
use orinoco_sysroot::Sysroot;
use orinoco_telemetry::{Event, EventSink};

use crate::journal::{self, Level};
use crate::network;
use crate::seats::{EpochLinks, SeatLinks, log_if_timed_out};
use events::SeatEvents;
use serials::Serials;

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
    events: Arc<SeatEvents>,
    stop: Arc<AtomicBool>,
    signal: Arc<dyn Signal>,
    thread: JoinHandle<()>,
    /// Its file is removed when the seat is left.
    _program_socket: Option<LocalSocket>,
}

/// Seat as the control socket shows it.
#[derive(Clone)]
pub(crate) struct ClusterView {
    monitor: ClusterMonitor,
    list: Arc<MemberList>,
    own: usize,
    /// Files that describe the network interfaces.
    sysroot: Sysroot,
    state: Arc<Mutex<EpochState>>,
}

/// The last epoch of this seat, or the reason for which there is none.
#[derive(Clone, Default)]
struct EpochState {
    fault: Option<String>,
    /// `tcp` or `rdma`.
    transport: Option<&'static str>,
    /// RDMA device and port.
    rdma_port: Option<String>,
    /// The other RDMA ports, with reasons.
    rdma_refused: Vec<String>,
    /// Reason for which it uses TCP although the board file lists RDMA.
    fallback: Option<String>,
}

/// Takes the board's seat. The other boards need not be there.
///
/// # Errors
///
/// The list, a key or the address cannot be used, the list is older than one that was used, or has no seat for this board's key.
pub(crate) fn start(
    spec: &ClusterSpec,
    links: &Arc<SeatLinks>,
    clock: Arc<dyn Clock>,
) -> Result<HeldSeat, Diagnosis> {
    let key: VerifyingKey = spec.operator_key.parse().map_err(|why| fault("operator_key", &why))?;
    let list = MemberList::read(&spec.list, &key).map_err(|why| fault(&subject(&spec.list), &why))?;
    let serials = Serials::read().map_err(|why| fault(&subject(&spec.list), &why))?;
    if let Some(serials) = &serials {
        serials.check(&list, &key).map_err(|why| fault(&subject(&spec.list), &why))?;
    }
    let own = KeyPair::read(&spec.key).map_err(|why| fault(&subject(&spec.key), &why))?;
    let messages = MessageSettings {
        deadline: CALL_MAX,
        tcp_connections: spec.tcp_connections,
        tcp_encryption: spec.tcp_encryption,
        ..MessageSettings::default()
    };
    let rdma = ClusterRdma { policy: policy_of(spec.rdma), device: spec.rdma_device.clone() };
    let bind = |path: &PathBuf| LocalSocket::bind(path, SocketSetting::PROGRAMS);
    let program_socket = spec.program_socket.as_ref().map(bind).transpose()?;
    let programs = program_socket.as_ref().map(|socket| socket.listener().try_clone()).transpose();
    let programs = programs.map_err(|why| fault(&subject(&spec.list), &why))?.map(Arc::new);
    let settings =
        ClusterSettings { listen: spec.listen, programs, rdma, messages, ..ClusterSettings::default() };
    let cluster = Cluster::open(list, own, settings).map_err(|why| fault(&subject(&spec.list), &why))?;
    if let Some(Err(why)) = serials.map(|serials| serials.note(cluster.list(), &key)) {
        journal::log(Level::Warning, &format!("cluster: {why}"));
    }
    let (list, own) = (Arc::new(cluster.list().clone()), cluster.seat());
    let others = list.seats.iter().enumerate().filter(|(seat, _)| *seat != own);
    if spec.share_models {
        links.set_shares();
    }
    links.set_others(others.map(|(_, seat)| seat.name.clone()).collect());
    links.check(&links.wanted())?;
    let listen: Vec<String> = cluster.addresses().iter().map(ToString::to_string).collect();
    let listen = listen.join(",");
    journal::log(
        Level::Info,
        &format!("cluster name={} seat={} listen={listen}", list.name, list.seats[own].name),
    );
    let view = ClusterView {
        monitor: cluster.monitor(),
        list,
        own,
        sysroot: Sysroot::host(),
        state: Arc::default(),
    };
    let (stop, signal) = (Arc::new(AtomicBool::new(false)), clock.signal());
    let events = Arc::new(SeatEvents::default());
    let holder = Holder {
        view: view.clone(),
        events: Arc::clone(&events),
        links: Arc::clone(links),
        stop: Arc::clone(&stop),
        signal: Arc::clone(&signal),
        clock,
    };
    let spawned = thread::Builder::new().name("cluster".to_owned()).spawn(move || holder.run(cluster));
    let thread = spawned.map_err(|why| fault(&subject(&spec.list), &why))?;
    Ok(HeldSeat { view, events, stop, signal, thread, _program_socket: program_socket })
}

fn policy_of(rdma: RdmaUse) -> RdmaPolicy {
    match rdma {
        RdmaUse::Off => RdmaPolicy::Off,
        RdmaUse::Preferred => RdmaPolicy::Preferred,
        RdmaUse::Required => RdmaPolicy::Required,
    }
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

    /// Makes the seat's events part of a run's events.
    pub(crate) fn attach(&self, run: Monitor) {
        self.events.attach(run);
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
        let (links, interfaces) = (self.monitor.links(), network::interfaces(&self.sysroot));
        let of = |(number, seat): (usize, SeatState)| SeatStatus {
            address: self.list.seats[number].addresses_text(),
            state: state(&seat).to_owned(),
            fault: seat.fault.filter(|_| !seat.is_reachable || number == self.own),
            links: match number == self.own {
                true => Vec::new(),
                false => network::links_with(&seat.name, &links[number], &interfaces),
            },
            name: seat.name,
            answers: None,
        };
        let last = self.lock().clone();
        ClusterStatus {
            name: self.list.name.clone(),
            serial: self.list.serial,
            seat: self.list.seats[self.own].name.clone(),
            epoch,
            fault: last.fault.filter(|_| epoch.is_none()),
            transport: last.transport.filter(|_| epoch.is_some()).map(str::to_owned),
            rdma_port: last.rdma_port.filter(|_| epoch.is_some()),
            rdma_refused: if epoch.is_some() { last.rdma_refused } else { Vec::new() },
            fallback: last.fallback.filter(|_| epoch.is_some()),
            seats: seats.into_iter().enumerate().map(of).collect(),
            matrix: self.matrix(),
        }
    }

    /// Returns the name of the cluster.
    pub(crate) fn cluster_name(&self) -> &str {
        &self.list.name
    }

    /// Returns the figures of the links between all seats that this one knows.
    fn matrix(&self) -> Vec<LinkFigures> {
        let name = |seat: usize| self.list.seats[seat].name.clone();
        let mut known = Vec::new();
        for (from, row) in self.monitor.figures().into_iter().enumerate() {
            for (to, figures) in row.into_iter().enumerate() {
                known.extend(figures.map(|figures| LinkFigures {
                    from: name(from),
                    to: name(to),
                    round_trip_us: figures.round_trip.as_secs_f64() * 1e6,
                    bytes_per_s: figures.bytes_per_second,
                }));
            }
        }
        known
    }

    /// Name of this board's seat.
    pub(crate) fn name(&self) -> &str {
        &self.list.seats[self.own].name
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, EpochState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn names(&self, seats: SeatSet) -> String {
        seats.iter().map(|seat| self.list.seats[seat].name.as_str()).collect::<Vec<_>>().join(",")
    }
}

/// Joins epochs, one after the other.
struct Holder {
    view: ClusterView,
    events: Arc<SeatEvents>,
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
                    self.note(&epoch);
                    let was_in_vain =
                        end.relink || end.waiting.iter().any(|seat| !epoch.members.contains(seat));
                    age = if was_in_vain { EPOCH_AGE_MAX.min(2 * age) } else { EPOCH_AGE_MIN };
                    end = self.hold(&mut epoch, age);
                }
                Err(ClusterError::Interrupted) => {}
                Err(why) => {
                    self.events.fault(&why.to_string());
                    *self.view.lock() = EpochState { fault: Some(why.to_string()), ..EpochState::default() };
                    // The others form a group without this board meanwhile.
                    let goes_on_without = match &why {
                        ClusterError::Rdma { seat, .. } => *seat == self.view.name(),
                        ClusterError::Version { .. } => true,
                        _ => false,
                    };
                    if goes_on_without {
                        self.signal.wait(Some(self.clock.now() + EPOCH_AGE_MIN));
                    }
                }
            }
        }
    }

    /// Notes and reports an epoch that has begun.
    fn note(&self, epoch: &Epoch) {
        let transport = epoch.group.transport();
        let state = EpochState {
            fault: None,
            transport: Some(transport.name()),
            rdma_port: transport.rdma_link().map(|link| link.port.to_string()),
            rdma_refused: transport
                .rdma_link()
                .map_or_else(Vec::new, |link| link.refused.iter().map(ToString::to_string).collect()),
            fallback: epoch.fallback.clone(),
        };
        self.events.emit(Event::EpochBegan {
            epoch: epoch.number,
            members: self.view.names(epoch.members),
            transport: transport.name(),
            fallback: state.fallback.clone(),
        });
        *self.view.lock() = state;
    }

    /// Returns why an operation of an epoch's group failed, with the names of its seats.
    fn reason(&self, epoch: &Epoch, why: &CollectiveError) -> String {
        let name = |rank: usize| &*self.view.list.seats[epoch.seat(rank)].name;
        match why {
            CollectiveError::EpochFailed { rank, cause, .. } => format!("seat {} {cause}", name(*rank)),
            CollectiveError::Mismatch { rank, .. } => format!("seat {}: {why}", name(*rank)),
            CollectiveError::Isolated { reachable, .. } => {
                let names: Vec<&str> = reachable.iter().map(|rank| name(*rank)).collect();
                format!("this board reaches only {} of the members, not a majority", names.join(", "))
            }
            why => why.to_string(),
        }
    }

    /// Connects with the seats that execute models for this board, and with those for which it does. Stays in the epoch until a
    /// member fails or, once it is old enough, until links are to be made again or seats wait for the next epoch.
    fn hold(&self, epoch: &mut Epoch, age_min: Duration) -> EpochEnd {
        let start = self.clock.now();
        let number = epoch.number;
        let over = |why: String, has_failed: bool| {
            self.events.emit(Event::EpochEnded { epoch: number, why, has_failed });
        };
        let links = match EpochLinks::connect(epoch, &self.view.list, &self.links) {
            Ok(links) => links,
            Err(why) => {
                log_if_timed_out(&epoch.group, &why);
                over(self.reason(epoch, &why), true);
                return EpochEnd::default();
            }
        };
        while !self.stop.load(Ordering::Acquire) {
            self.signal.wait(Some(self.clock.now() + LOOK_EVERY));
            if let Some((rank, cause)) = epoch.group.lost_rank() {
                let seat = &self.view.list.seats[epoch.seat(rank)].name;
                over(format!("seat {seat} {cause}"), true);
                return EpochEnd::default();
            }
            if self.clock.now() < start + age_min {
                continue;
            }
            let waiting = self.view.monitor.waiting();
            if !waiting.is_empty() {
                over(format!("it ends so that {} can join", self.view.names(waiting)), false);
                return EpochEnd { waiting, relink: false };
            }
            if links.are_outdated() {
                let why = "a connection to a seat was lost, or the board file names other seats";
                over(why.to_owned(), false);
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
