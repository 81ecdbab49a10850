//! Whether a board can take its seat in a cluster, and which other seats it reaches.

use std::error::Error;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use orinoco_api::{MachinePart, PartState};
use orinoco_board::{ClusterSpec, RdmaUse};
use orinoco_collective::{
    Cluster, ClusterError, ClusterMonitor, ClusterSettings, KeyPair, ListError, MemberList, RdmaLink, Seat,
    SeatState, VerifyingKey,
};
use orinoco_core::Clock;

use super::check::{Fix, Group, part, with_fix};

/// Longest time in which other seats are looked for: they answer in milliseconds, and an attempt to connect is repeated within a second.
const REACH_MAX: Duration = Duration::from_secs(3);
/// Polling interval while waiting for all seats.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Takes the board's seat for a moment.
pub(super) fn check(spec: &ClusterSpec, clock: &Arc<dyn Clock>) -> Vec<MachinePart> {
    let list_name = spec.list.display().to_string();
    let operator: VerifyingKey = match spec.operator_key.parse() {
        Ok(key) => key,
        Err(why) => {
            let next = "set `operator_key` in [cluster] to the key that `orinoco cluster sign` printed";
            let part = report("operator_key", PartState::Broken, cause(&why));
            return vec![with_fix(part, Fix::words(next))];
        }
    };
    let list = match MemberList::read(&spec.list, &operator) {
        Ok(list) => list,
        Err(why) => {
            let next = match why {
                ListError::File { .. } => "copy the signed member list of this cluster to this board",
                _ => {
                    "copy the current signed member list to this board, or correct `operator_key` in [cluster]"
                }
            };
            return vec![with_fix(report(&list_name, PartState::Broken, cause(&why)), Fix::words(next))];
        }
    };
    let says = format!("cluster {}, serial {}: valid signature", list.name, list.serial);
    let mut parts = vec![report(&list_name, PartState::Ok, says)];
    let key_name = spec.key.display().to_string();
    let key = match KeyPair::read(&spec.key) {
        Ok(key) => key,
        Err(why) => {
            let is_missing = !spec.key.exists();
            let fix = match is_missing {
                true => {
                    "create a key pair with `orinoco cluster keygen FILE`, and add its public key to the list"
                }
                false => "correct the file as the message says; a new key pair would need a new member list",
            };
            parts.push(with_fix(report(&key_name, PartState::Broken, cause(&why)), Fix::words(fix)));
            return parts;
        }
    };
    if spec.rdma != RdmaUse::Off {
        let seat = list.seats.iter().find(|seat| seat.key == key.public());
        parts.extend(seat.map(|seat| rdma_port(spec, seat)));
    }
    let settings = ClusterSettings { listen: spec.listen, ..ClusterSettings::default() };
    match Cluster::open(list, key, settings) {
        Ok(cluster) => parts.extend(seats(&cluster, clock)),
        Err(why) => parts.push(refused(&why, &key_name)),
    }
    parts
}

/// Reports the RDMA port that has an address of this board's seat.
fn rdma_port(spec: &ClusterSpec, seat: &Seat) -> MachinePart {
    let addresses: Vec<_> = seat.addresses.iter().map(|address| address.ip()).collect();
    let found = addresses.iter().map(|address| RdmaLink::find(spec.rdma_device.as_deref(), &[*address]));
    let mut why = None;
    for link in found {
        match link {
            Ok(link) => return report("rdma", PartState::Ok, link.to_string()),
            Err(error) => why = why.or(Some(error)),
        }
    }
    let says = why.map_or_else(String::new, |why| cause(&why));
    match spec.rdma {
        RdmaUse::Required => {
            let next = "set up an RDMA device, or remove \"rdma\" from `require` in [cluster]";
            with_fix(report("rdma", PartState::Broken, says), Fix::words(next))
        }
        _ => report("rdma", PartState::NotChecked, format!("the cluster will use TCP: {says}")),
    }
}

/// Reports a seat that cannot be taken.
fn refused(why: &ClusterError, key: &str) -> MachinePart {
    match why {
        ClusterError::Listen { address, source } if source.kind() == ErrorKind::AddrInUse => {
            let says = format!(
                "{address} is in use: if orinocod is running, see `orinoco links`; otherwise stop the program that listens there (`ss -ltnp`)"
            );
            report("this board", PartState::NotChecked, says)
        }
        ClusterError::Listen { .. } => {
            let next = "correct the board's address in the member list, or set `listen` in [cluster]";
            with_fix(report("this board", PartState::Broken, cause(why)), Fix::words(next))
        }
        _ => report(key, PartState::Broken, cause(why)),
    }
}

/// Reports this seat, and the others as they are reached.
fn seats(cluster: &Cluster, clock: &Arc<dyn Clock>) -> Vec<MachinePart> {
    let monitor = cluster.monitor();
    wait_for_all(&monitor, clock);
    let own = cluster.seat();
    let seats = monitor.seats().into_iter().enumerate();
    seats
        .map(|(number, seat)| if number == own { own_seat(cluster, &seat) } else { other_seat(seat) })
        .collect()
}

fn wait_for_all(monitor: &ClusterMonitor, clock: &Arc<dyn Clock>) {
    let (signal, end) = (clock.signal(), clock.now() + REACH_MAX);
    while clock.now() < end && !monitor.seats().iter().all(|seat| seat.is_reachable) {
        signal.wait(Some(clock.now() + LOOK_EVERY));
    }
}

fn own_seat(cluster: &Cluster, seat: &SeatState) -> MachinePart {
    let name = format!("seat {}", seat.name);
    match &seat.fault {
        Some(fault) => {
            let next = "correct the board's addresses in the member list, or set up its network interfaces";
            with_fix(report(&name, PartState::Broken, fault.clone()), Fix::words(next))
        }
        None => {
            let addresses: Vec<String> = cluster.addresses().iter().map(ToString::to_string).collect();
            report(
                &name,
                PartState::Ok,
                format!("this board; its listen addresses are free: {}", addresses.join(", ")),
            )
        }
    }
}

/// Reports another seat. An unreachable seat is no error: this board can run without it.
fn other_seat(seat: SeatState) -> MachinePart {
    let name = format!("seat {}", seat.name);
    if seat.is_reachable {
        return report(&name, PartState::Ok, "reachable, and its key matches the list".to_owned());
    }
    // A seat that is later in the list connects by itself, and this board does not learn why it did not.
    let unknown = || {
        let waited = REACH_MAX.as_secs();
        format!(
            "it did not connect within {waited} s; check that it is on, and that TCP to this board is allowed"
        )
    };
    report(&name, PartState::NotChecked, seat.fault.unwrap_or_else(unknown))
}

fn cause(why: &dyn Error) -> String {
    let source = why.source().map(|source| format!(": {source}")).unwrap_or_default();
    format!("{why}{source}")
}

fn report(name: &str, state: PartState, says: String) -> MachinePart {
    part(Group::BoardFile, "cluster", name, state, says)
}
