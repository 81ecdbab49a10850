//! Directories: the addresses of all ranks, as rank 0 tells them to the others.

use std::io::{self, ErrorKind};
use std::iter;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use super::connection::Connection;
use super::socket::{Peeked, peek, wait_for};

/// Bytes of an address in a directory: IPv6 or mapped IPv4, and the port.
const ENTRY_BYTES: usize = 18;

/// Question of a rank that gives up: which ranks did not come? The answer is a directory.
const WHO_IS_MISSING: &[u8] = b"?";

/// Ranks that have come to rank 0, where each waits for the addresses of all.
pub(super) struct Directory {
    of_rank_0: SocketAddr,
    /// Of the other ranks, in order.
    others: Vec<Presence>,
}

/// State of a rank, as rank 0 sees it.
enum Presence {
    /// It did not come, or has ended since.
    Absent,
    /// Its address, and the connection on which it waits.
    Waits(SocketAddr, Connection),
    /// Its deadline is over. It came, so others are why it could not join.
    GaveUp(SocketAddr),
}

impl Directory {
    pub(super) fn new(of_rank_0: SocketAddr, ranks: usize) -> Self {
        Self { of_rank_0, others: (1..ranks).map(|_| Presence::Absent).collect() }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.others.iter().all(|presence| matches!(presence, Presence::Waits(..)))
    }

    /// Whether a rank is to come. One that gave up may come again.
    pub(super) fn awaits(&self, rank: usize) -> bool {
        let presence = rank.checked_sub(1).and_then(|at| self.others.get(at));
        presence.is_some_and(|presence| !matches!(presence, Presence::Waits(..)))
    }

    /// Adds an awaited rank that listens at a port, unless its connection is closed already.
    pub(super) fn add(&mut self, rank: usize, port: u16, connection: Connection) {
        if let Ok(address) = connection.stream().peer_addr() {
            self.others[rank - 1] = Presence::Waits(SocketAddr::new(address.ip(), port), connection);
        }
    }

    /// Ranks because of which the others cannot join: those that did not come, or, if all came, those that gave up.
    pub(super) fn missing(&self) -> Vec<usize> {
        let ranks = |is_one: fn(&Presence) -> bool| {
            (1..)
                .zip(&self.others)
                .filter(|(_, presence)| is_one(presence))
                .map(|(rank, _)| rank)
                .collect::<Vec<_>>()
        };
        let absent = ranks(|presence| matches!(presence, Presence::Absent));
        if absent.is_empty() { ranks(|presence| matches!(presence, Presence::GaveUp(_))) } else { absent }
    }

    /// Looks for ranks that have ended, and answers those that give up. A rank has `time` to take the answer.
    pub(super) fn see_off(&mut self, time: Duration) {
        let directory = encode(&self.addresses());
        for presence in &mut self.others {
            let Presence::Waits(address, connection) = presence else { continue };
            match peek(connection.stream()) {
                Peeked::Nothing => {}
                Peeked::Closed => *presence = Presence::Absent,
                Peeked::Bytes => {
                    answer(connection, &directory, time);
                    *presence = Presence::GaveUp(*address);
                }
            }
        }
    }

    /// Sends the directory to all ranks that wait for it, each within `time`, and returns its addresses. Those of missing ranks are
    /// [`NOBODY`].
    pub(super) fn send_to_all(self, time: Duration) -> Vec<SocketAddr> {
        let addresses = self.addresses();
        let directory = encode(&addresses);
        for presence in self.others {
            if let Presence::Waits(_, mut connection) = presence {
                // One that does not get it sees the connection close. If all have come, it is missed when they connect.
                let _ = connection.send_all(&directory, time);
            }
        }
        addresses
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        let missing = self.missing();
        let address = |(rank, presence): (usize, &Presence)| match presence {
            Presence::Waits(address, _) | Presence::GaveUp(address) if !missing.contains(&rank) => *address,
            _ => NOBODY,
        };
        iter::once(self.of_rank_0).chain((1..).zip(&self.others).map(address)).collect()
    }
}

/// Answers the question of a rank. One that does not get the answer sees the connection close.
fn answer(connection: &mut Connection, directory: &[u8], time: Duration) {
    // A connection that is closed with something unread in it is reset, and the rank might not get to read the answer.
    let asked = connection.receive_all(&mut [0; WHO_IS_MISSING.len()], time);
    let _ = asked.and_then(|()| connection.send_all(directory, time));
}

/// Receives the directory of rank 0 as the addresses of all ranks. If it has not come when no time is left, asks rank 0 who is missing,
/// and waits for `grace` longer: those have the address [`NOBODY`] then.
pub(super) fn receive(
    connection: &mut Connection,
    ranks: usize,
    rest: impl Fn() -> Duration,
    grace: Duration,
) -> io::Result<Vec<SocketAddr>> {
    while peek(connection.stream()) == Peeked::Nothing {
        let rest = rest();
        if rest.is_zero() {
            // If this fails, the connection has ended, which shows below.
            let _ = connection.send_all(WHO_IS_MISSING, grace);
            break;
        }
        wait_for(&mut [PollFd::new(connection, PollFlags::IN)], rest);
    }
    let mut bytes = vec![0; directory_bytes(ranks)];
    connection.receive_all(&mut bytes, rest().saturating_add(grace))?;
    decode(&bytes).ok_or_else(|| ErrorKind::InvalidData.into())
}

/// Bytes of a directory of so many ranks.
pub(super) const fn directory_bytes(ranks: usize) -> usize {
    ranks * ENTRY_BYTES + 4
}

/// Placeholder in the directory for a rank that did not join.
pub(super) const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

/// The addresses of all ranks as they are sent, with a CRC32C at the end.
pub(super) fn encode(addresses: &[SocketAddr]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(directory_bytes(addresses.len()));
    for address in addresses {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        bytes.extend_from_slice(&ip.octets());
        bytes.extend_from_slice(&address.port().to_le_bytes());
    }
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Reads a directory. `None` if it was damaged.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<SocketAddr>> {
    let (entries, checksum) = bytes.split_last_chunk::<4>()?;
    if u32::from_le_bytes(*checksum) != crc32c::crc32c(entries) {
        return None;
    }
    let address = |entry: &[u8]| {
        let ip = Ipv6Addr::from(<[u8; 16]>::try_from(&entry[..16]).expect("16 bytes"));
        SocketAddr::new(IpAddr::V6(ip).to_canonical(), u16::from_le_bytes([entry[16], entry[17]]))
    };
    Some(entries.chunks_exact(ENTRY_BYTES).map(address).collect())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_directory_is_read_as_it_was_sent() {
        let addresses: Vec<SocketAddr> =
            ["127.0.0.1:4000", "[::]:0", "10.0.0.7:65535"].map(|address| address.parse().unwrap()).into();
        let mut bytes = encode(&addresses);
        assert_eq!(bytes.len(), directory_bytes(3));
        assert_eq!(addresses[1], NOBODY);
        assert_eq!(decode(&bytes), Some(addresses));
        bytes[3] ^= 1;
        assert_eq!(decode(&bytes), None);
        assert_eq!(decode(&[1, 2]), None);
    }

    /// Rank 0 of three at the other end of rank 2's connection; rank 1 did not come.
    fn without_rank_1() -> (Directory, Connection) {
        let [near, far] = Connection::pair();
        let mut directory = Directory::new("127.0.0.1:4000".parse().unwrap(), 3);
        directory.add(2, 4002, near);
        assert_eq!(directory.missing(), [1]);
        assert!(!directory.awaits(2) && directory.awaits(1) && !directory.awaits(0) && !directory.awaits(3));
        (directory, far)
    }

    const WAIT: Duration = Duration::from_secs(10);

    #[test]
    fn a_rank_that_gives_up_is_told_who_is_missing_and_may_come_again() {
        let (mut directory, mut rank_2) = without_rank_1();
        let asked = thread::scope(|scope| {
            let asks = scope.spawn(|| receive(&mut rank_2, 3, || Duration::ZERO, WAIT));
            while !directory.awaits(2) {
                directory.see_off(WAIT);
            }
            asks.join().unwrap().unwrap()
        });
        assert_eq!((asked[1], asked[2].port()), (NOBODY, 4002));
        assert_eq!(directory.missing(), [1], "rank 2 came, and could not join because of rank 1");
        let [near, mut rank_1] = Connection::pair();
        directory.add(1, 4001, near);
        assert!(!directory.is_complete(), "rank 2 does not wait any more");
        assert_eq!(directory.missing(), [2]);
        directory.send_to_all(WAIT);
        assert_eq!(receive(&mut rank_1, 3, || WAIT, WAIT).unwrap()[2], NOBODY);
    }

    #[test]
    fn a_rank_that_ends_is_missing_and_may_come_again() {
        let (mut directory, rank_2) = without_rank_1();
        directory.see_off(WAIT);
        assert_eq!(directory.missing(), [1], "it waits");
        drop(rank_2);
        while !directory.awaits(2) {
            directory.see_off(WAIT);
        }
        assert_eq!(directory.missing(), [1, 2]);
    }

    #[test]
    fn ranks_that_wait_get_the_directory_once_all_have_come() {
        let (mut directory, mut rank_2) = without_rank_1();
        let [near, mut rank_1] = Connection::pair();
        directory.add(1, 4001, near);
        assert!(directory.is_complete());
        let told = directory.send_to_all(WAIT);
        for rank in [&mut rank_1, &mut rank_2] {
            let received = receive(rank, 3, || WAIT, Duration::ZERO).unwrap();
            assert_eq!(received, told);
        }
        assert_eq!(told.iter().map(SocketAddr::port).collect::<Vec<_>>(), [4000, 4001, 4002]);
    }

    #[test]
    fn a_rank_0_that_does_not_answer_is_not_waited_for_without_end() {
        let [mut rank_2, _rank_0] = Connection::pair();
        let error = receive(&mut rank_2, 3, || Duration::ZERO, Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let [mut rank_2, rank_0] = Connection::pair();
        drop(rank_0);
        assert_eq!(receive(&mut rank_2, 3, || WAIT, WAIT).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}
