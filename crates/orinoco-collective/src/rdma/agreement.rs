//! Agreement of ranks that have joined by TCP: all of them use RDMA with one another, or none does.
//!
//! Over its TCP connections each rank sends its [`Endpoint`] to every other one, or that it has none. It connects its queue pairs,
//! and sends a verdict: one byte that says whether they are all connected, and whether this rank requires RDMA. So all ranks know
//! all verdicts, and come to the same conclusion.

use std::net::IpAddr;
use std::time::Duration;

use super::endpoint::{ENDPOINT_BYTES, Endpoint};
use super::error::RdmaError;
use super::settings::RdmaPolicy;
use crate::clock::Ticks;
use crate::tcp::Connection;

/// Bits of a verdict.
const CONNECTED: u8 = 1;
const REQUIRED: u8 = 2;

/// Result of an agreement. It is the same on all ranks.
pub(crate) enum Agreed<D> {
    /// All ranks use RDMA.
    Rdma(D),
    /// All ranks use TCP. The reason is that of this rank, if it has one, else the rank that has.
    Tcp(RdmaError),
}

/// Queue pairs of one rank.
pub(super) trait QueuePairs {
    /// This rank's end of the queue pair for a peer.
    fn endpoint(&self, peer: usize) -> &Endpoint;

    /// Connects the queue pair for a peer with that peer's end.
    fn connect(&mut self, peer: usize, theirs: &Endpoint) -> Result<(), RdmaError>;
}

/// Agrees with the ranks at the other ends of these connections, by rank, within `time`. `open` creates the queue pairs of this
/// rank for some peers, each with this rank's address on the connection with it.
///
/// # Errors
/// A connection broke, or not all ranks can use RDMA and one requires it. Then there is no group.
pub(super) fn agree<D: QueuePairs>(
    connections: &mut [Vec<Connection>],
    policy: RdmaPolicy,
    open: impl FnOnce(&[(usize, IpAddr)]) -> Result<D, RdmaError>,
    time: Duration,
) -> Result<Agreed<D>, RdmaError> {
    let mut exchange = Exchange { connections, start: Ticks::now(), time };
    let addresses = exchange.addresses()?;
    let opened = match policy {
        RdmaPolicy::Off => Err(RdmaError::Off),
        RdmaPolicy::Preferred | RdmaPolicy::Required => open(&addresses),
    };
    let own = |peer| opened.as_ref().map_or_else(|_| Endpoint::none(), |pairs| pairs.endpoint(peer).encode());
    let theirs = exchange.trade::<ENDPOINT_BYTES>(own)?;
    let connected = opened.and_then(|mut pairs| {
        for (peer, record) in &theirs {
            pairs.connect(*peer, &Endpoint::decode(record, *peer)?)?;
        }
        Ok(pairs)
    });
    let connected_bit = if connected.is_ok() { CONNECTED } else { 0 };
    let required_bit = if policy == RdmaPolicy::Required { REQUIRED } else { 0 };
    let verdicts = exchange.trade::<1>(|_| [connected_bit | required_bit])?;
    conclude(connected, policy, &verdicts)
}

fn conclude<D>(
    connected: Result<D, RdmaError>,
    policy: RdmaPolicy,
    verdicts: &[(usize, [u8; 1])],
) -> Result<Agreed<D>, RdmaError> {
    if let Some((rank, _)) = verdicts.iter().find(|(_, [verdict])| verdict & !(CONNECTED | REQUIRED) != 0) {
        return Err(RdmaError::Endpoint { rank: *rank, found: "a verdict of another version" });
    }
    let first = |is_wanted: fn(u8) -> bool| {
        verdicts.iter().find(|(_, [verdict])| is_wanted(*verdict)).map(|(rank, _)| *rank)
    };
    let unconnected = first(|verdict| verdict & CONNECTED == 0);
    let why = match (connected, unconnected) {
        (Ok(pairs), None) => return Ok(Agreed::Rdma(pairs)),
        (Ok(_), Some(rank)) => RdmaError::Peer { rank },
        (Err(why), _) => why,
    };
    match (policy, first(|verdict| verdict & REQUIRED != 0)) {
        (RdmaPolicy::Required, _) => Err(why),
        (_, Some(rank)) => Err(RdmaError::Required { rank, why: Box::new(why) }),
        (_, None) => Ok(Agreed::Tcp(why)),
    }
}

/// Exchange of records with all peers.
struct Exchange<'a> {
    /// By rank; none for this rank itself. The first is used.
    connections: &'a mut [Vec<Connection>],
    start: Ticks,
    time: Duration,
}

impl Exchange<'_> {
    /// Peers, and this rank's address on the connection with each.
    fn addresses(&self) -> Result<Vec<(usize, IpAddr)>, RdmaError> {
        let peers = self.connections.iter().enumerate();
        let peers = peers.filter_map(|(rank, connections)| connections.first().map(|own| (rank, own)));
        let address = |(rank, connection): (usize, &Connection)| {
            let own = connection.stream().local_addr();
            let own = own.map_err(|source| RdmaError::Broken { rank, source })?;
            Ok((rank, own.ip().to_canonical()))
        };
        peers.map(address).collect()
    }

    /// Sends a record to each peer, and receives one of each.
    fn trade<const BYTES: usize>(
        &mut self,
        own: impl Fn(usize) -> [u8; BYTES],
    ) -> Result<Vec<(usize, [u8; BYTES])>, RdmaError> {
        let (start, time) = (self.start, self.time);
        let rest = || time.saturating_sub(Ticks::now().since(start));
        let broken = |rank| move |source| RdmaError::Broken { rank, source };
        for (rank, connections) in self.connections.iter_mut().enumerate() {
            let Some(connection) = connections.first_mut() else { continue };
            connection.send_all(&own(rank), rest()).map_err(broken(rank))?;
        }
        let mut theirs = Vec::new();
        for (rank, connections) in self.connections.iter_mut().enumerate() {
            let Some(connection) = connections.first_mut() else { continue };
            let mut record = [0; BYTES];
            connection.receive_all(&mut record, rest()).map_err(broken(rank))?;
            theirs.push((rank, record));
        }
        Ok(theirs)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::mtu::Mtu;
    use super::*;

    /// Queue pairs without a device, simulated: connecting them works or fails.
    struct SimulatedPairs {
        endpoint: Endpoint,
        /// Peer for which connecting fails.
        fails_for: Option<usize>,
    }

    impl QueuePairs for SimulatedPairs {
        fn endpoint(&self, _: usize) -> &Endpoint {
            &self.endpoint
        }

        fn connect(&mut self, peer: usize, theirs: &Endpoint) -> Result<(), RdmaError> {
            assert_eq!(*theirs, self.endpoint, "records arrive as they were sent");
            match self.fails_for == Some(peer) {
                true => Err(RdmaError::NoDevice),
                false => Ok(()),
            }
        }
    }

    /// A rank's device in a test.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Device {
        Works,
        Missing,
        /// Connecting with this peer fails.
        FailsFor(usize),
    }

    const RANKS: usize = 3;
    const TIME: Duration = Duration::from_secs(20);

    /// Connections between all ranks, by rank and by peer.
    fn connections() -> Vec<Vec<Vec<Connection>>> {
        let mut all: Vec<Vec<Vec<Connection>>> =
            (0..RANKS).map(|_| (0..RANKS).map(|_| Vec::new()).collect()).collect();
        let pairs = (0..RANKS).flat_map(|lower| (lower + 1..RANKS).map(move |higher| (lower, higher)));
        for (lower, higher) in pairs {
            let [near, far] = Connection::pair();
            all[lower][higher].push(near);
            all[higher][lower].push(far);
        }
        all
    }

    fn open(device: Device) -> Result<SimulatedPairs, RdmaError> {
        let fails_for = match device {
            Device::Missing => return Err(RdmaError::NoLibrary),
            Device::Works => None,
            Device::FailsFor(peer) => Some(peer),
        };
        let mtu = Mtu::from_code(3).unwrap();
        let endpoint = Endpoint { mtu, queue_pair: 7, first_packet: 8, gid: [9; 16], ring: 4096, key: 10 };
        Ok(SimulatedPairs { endpoint, fails_for })
    }

    fn agreed(ranks: [(RdmaPolicy, Device); RANKS]) -> Vec<Result<Agreed<SimulatedPairs>, RdmaError>> {
        thread::scope(|scope| {
            let agree_as = |(mut own, (policy, device)): (Vec<Vec<Connection>>, _)| {
                scope.spawn(move || agree(&mut own, policy, |_| open(device), TIME))
            };
            let threads: Vec<_> = connections().into_iter().zip(ranks).map(agree_as).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn all_ranks_come_to_the_same_conclusion() {
        let policies = [RdmaPolicy::Off, RdmaPolicy::Preferred, RdmaPolicy::Required];
        let devices = |rank: usize| [Device::Works, Device::Missing, Device::FailsFor((rank + 1) % RANKS)];
        let count = 9_usize.pow(RANKS as u32);
        for case in 0..count {
            let of = |rank: usize| {
                let choice = case / 9_usize.pow(rank as u32) % 9;
                (policies[choice / 3], devices(rank)[choice % 3])
            };
            let ranks = std::array::from_fn(of);
            let is_possible =
                ranks.iter().all(|(policy, device)| *policy != RdmaPolicy::Off && *device == Device::Works);
            let is_required = ranks.iter().any(|(policy, _)| *policy == RdmaPolicy::Required);
            for (rank, result) in agreed(ranks).iter().enumerate() {
                match result {
                    Ok(Agreed::Rdma(_)) => assert!(is_possible, "rank {rank} of {ranks:?}"),
                    Ok(Agreed::Tcp(_)) => assert!(!is_possible && !is_required, "rank {rank} of {ranks:?}"),
                    Err(why) => assert!(!is_possible && is_required, "rank {rank} of {ranks:?}: {why}"),
                }
            }
        }
    }

    #[test]
    fn the_rank_that_cannot_and_the_one_that_requires_it_are_named() {
        use RdmaPolicy::{Preferred, Required};
        let results =
            agreed([(Preferred, Device::Works), (Preferred, Device::Missing), (Required, Device::Works)]);
        let texts: Vec<String> = results.into_iter().map(|result| text(&result.err().unwrap())).collect();
        let peer = "rank 1 cannot use RDMA, or its settings do not include it; its own error or log says why";
        assert_eq!(texts[0], format!("rank 2 requires RDMA, but not all ranks can use it: {peer}"));
        assert_eq!(
            texts[1],
            format!("rank 2 requires RDMA, but not all ranks can use it: {}", RdmaError::NoLibrary)
        );
        assert_eq!(texts[2], peer);
    }

    fn text(error: &dyn std::error::Error) -> String {
        error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
    }

    #[test]
    fn a_rank_that_ends_meanwhile_is_named() {
        let mut all = connections();
        all[1].clear();
        let (first, rest) = all.split_at_mut(1);
        let results = thread::scope(|scope| {
            let agree_as =
                |own| scope.spawn(|| agree(own, RdmaPolicy::Preferred, |_| open(Device::Works), TIME));
            let threads = [agree_as(&mut first[0]), agree_as(&mut rest[1])];
            threads.map(|thread| thread.join().unwrap().err())
        });
        assert!(matches!(results[0], Some(RdmaError::Broken { rank: 1, .. })), "{:?}", results[0]);
    }
}
