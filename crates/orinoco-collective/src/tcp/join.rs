//! Connection of a group: each rank connects to all lower ranks and accepts connections of all higher ranks.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::hello::{Answer, EPOCH, HELLO_BYTES, Hello, Use};
use super::lobby::Lobby;
use super::socket::set_up;
use crate::JoinError;
use crate::clock::{Ticks, pause};
use crate::message::{MessageSettings, Order};
use crate::publish::{fault, publish};

/// Meeting point of the ranks of a group.
#[derive(Debug, Clone)]
pub enum Rendezvous {
    /// The address of each rank, in order.
    List(Vec<SocketAddr>),
    /// The address of rank 0, which tells the others' addresses to all.
    Address(SocketAddr),
    /// A file in which rank 0 writes its address. It is removed when all have joined.
    File(PathBuf),
}

/// A connection for notices and one for messages, for each other rank.
type Links = Vec<(Option<TcpStream>, Option<TcpStream>)>;

/// Time between two attempts to connect, and between two looks for a file.
const RETRY: Duration = Duration::from_millis(5);
/// Longest time for one attempt to connect, and for an answer to a hello.
const ATTEMPT: Duration = Duration::from_secs(5);
/// Bytes of an address in a directory: IPv6 or mapped IPv4, and the port.
const ENTRY_BYTES: usize = 18;

pub(super) fn join(
    rendezvous: &Rendezvous,
    rank: usize,
    ranks: usize,
    settings: &MessageSettings,
) -> Result<Links, JoinError> {
    let joining =
        Joining { rank, ranks, settings: digest(settings), deadline: settings.deadline, start: Ticks::now() };
    let (mut lobby, addresses) = match rendezvous {
        Rendezvous::List(addresses) => {
            assert_eq!(addresses.len(), ranks, "one address for each rank");
            addresses.iter().try_for_each(check_loopback)?;
            (open(addresses[rank])?, addresses.clone())
        }
        Rendezvous::Address(address) if rank == 0 => joining.publish_directory(open(*address)?)?,
        Rendezvous::Address(address) => joining.ask_directory(*address)?,
        Rendezvous::File(path) if rank == 0 => {
            let lobby = open(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
            let address = lobby.address().map_err(JoinError::System)?;
            publish(path, |mut file| writeln!(file, "{address}"))?;
            let found = joining.publish_directory(lobby);
            let removed = fs::remove_file(path);
            let found = found?;
            removed.map_err(|source| fault("removing", path, source))?;
            found
        }
        Rendezvous::File(path) => joining.ask_directory(joining.read_address(path)?)?,
    };
    joining.connect_all(&mut lobby, &addresses)
}

/// Checksum of the settings that all ranks must share.
fn digest(settings: &MessageSettings) -> u32 {
    let order = match settings.order {
        Order::Reproducible => 0,
        Order::Fast => 1,
    };
    let algorithm = settings.algorithm.map_or("chosen", |algorithm| algorithm.name());
    crc32c::crc32c(format!("{order} {algorithm} {}", settings.piece_bytes).as_bytes())
}

fn open(address: SocketAddr) -> Result<Lobby, JoinError> {
    check_loopback(&address)?;
    Lobby::open(address).map_err(|source| JoinError::Listen { address, source })
}

fn check_loopback(address: &SocketAddr) -> Result<(), JoinError> {
    match address.ip().is_loopback() {
        true => Ok(()),
        false => Err(JoinError::Unprotected { address: *address }),
    }
}

/// One rank that joins.
struct Joining {
    rank: usize,
    ranks: usize,
    settings: u32,
    deadline: Duration,
    start: Ticks,
}

impl Joining {
    fn rest(&self) -> Duration {
        self.deadline.saturating_sub(Ticks::now().since(self.start))
    }

    fn hello(&self, purpose: Use, to: usize, port: u16) -> Hello {
        let number = |number: usize| u32::try_from(number).expect("few ranks");
        Hello {
            kind: purpose as u8,
            epoch: EPOCH,
            ranks: number(self.ranks),
            from: number(self.rank),
            to: number(to),
            port,
            settings: self.settings,
        }
    }

    /// Waits for all ranks as rank 0, and tells each where the others are.
    fn publish_directory(&self, mut lobby: Lobby) -> Result<(Lobby, Vec<SocketAddr>), JoinError> {
        let own = lobby.address().map_err(JoinError::System)?;
        let mut found: Vec<Option<(SocketAddr, Option<TcpStream>)>> = (0..self.ranks).map(|_| None).collect();
        found[0] = Some((own, None));
        while found.iter().any(Option::is_none) {
            let Some((stream, hello)) = lobby.next(self.rest()) else {
                let missing = (0..self.ranks).filter(|rank| found[*rank].is_none()).collect();
                return Err(self.missing(missing, own.to_string()));
            };
            let from = hello.from as usize;
            let is_new =
                hello.purpose() == Some(Use::Directory) && found.get(from).is_some_and(Option::is_none);
            let answer = if is_new { self.answer(&hello) } else { Answer::WrongRank };
            let Some(stream) = self.reply(stream, answer) else { continue };
            let Ok(address) = stream.peer_addr() else { continue };
            found[from] = Some((SocketAddr::new(address.ip(), hello.port), Some(stream)));
        }
        let (addresses, streams): (Vec<_>, Vec<_>) = found.into_iter().flatten().unzip();
        let directory = encode(&addresses);
        for mut stream in streams.into_iter().flatten() {
            // A rank that does not get it does not connect, and is missed then.
            let _ = stream.write_all(&directory);
        }
        Ok((lobby, addresses))
    }

    /// Asks rank 0 where the others are.
    fn ask_directory(&self, address: SocketAddr) -> Result<(Lobby, Vec<SocketAddr>), JoinError> {
        check_loopback(&address)?;
        let broken = |source| JoinError::Broken { rank: 0, address, source };
        let stream = self.connect(0, address)?;
        let own = stream.local_addr().map_err(broken)?;
        let lobby = open(SocketAddr::new(own.ip(), 0))?;
        let port = lobby.address().map_err(JoinError::System)?.port();
        let mut stream = self.greet(stream, 0, address, self.hello(Use::Directory, 0, port))?;
        stream.set_read_timeout(Some(self.rest().max(RETRY))).map_err(broken)?;
        let mut directory = vec![0; self.ranks * ENTRY_BYTES + 4];
        stream.read_exact(&mut directory).map_err(broken)?;
        let addresses = decode(&directory).ok_or(JoinError::NoRank { rank: 0, address })?;
        addresses.iter().try_for_each(check_loopback)?;
        Ok((lobby, addresses))
    }

    /// Reads the address of rank 0, as soon as its file is there.
    fn read_address(&self, path: &Path) -> Result<SocketAddr, JoinError> {
        loop {
            match fs::read_to_string(path) {
                Ok(text) => {
                    let found = text.trim();
                    return found.parse().map_err(|_| JoinError::Foreign {
                        path: path.to_owned(),
                        found: format!("\"{}\"", found.chars().take(40).collect::<String>()),
                    });
                }
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(fault("reading", path, source));
                }
                Err(_) if self.rest().is_zero() => {
                    return Err(self.missing(vec![0], path.display().to_string()));
                }
                Err(_) => pause(RETRY),
            }
        }
    }

    fn connect_all(&self, lobby: &mut Lobby, addresses: &[SocketAddr]) -> Result<Links, JoinError> {
        let mut links: Links = (0..self.ranks).map(|_| (None, None)).collect();
        for (peer, address) in addresses.iter().enumerate().take(self.rank) {
            let connect = |purpose| {
                let hello = self.hello(purpose, peer, 0);
                self.greet(self.connect(peer, *address)?, peer, *address, hello).and_then(ready)
            };
            links[peer] = (Some(connect(Use::Notices)?), Some(connect(Use::Messages)?));
        }
        let is_missing = |links: &Links, peer: usize| links[peer].0.is_none() || links[peer].1.is_none();
        while (self.rank + 1..self.ranks).any(|peer| is_missing(&links, peer)) {
            let Some((stream, hello)) = lobby.next(self.rest()) else {
                let missing = (self.rank + 1..self.ranks).filter(|peer| is_missing(&links, *peer)).collect();
                return Err(self.missing(missing, addresses[self.rank].to_string()));
            };
            let from = hello.from as usize;
            let is_higher = (self.rank + 1..self.ranks).contains(&from) && hello.to as usize == self.rank;
            let place = match hello.purpose() {
                Some(Use::Notices) if is_higher => Some(&mut links[from].0),
                Some(Use::Messages) if is_higher => Some(&mut links[from].1),
                _ => None,
            };
            let place = place.filter(|place| place.is_none());
            let answer = if place.is_some() { self.answer(&hello) } else { Answer::WrongRank };
            if let (Some(stream), Some(place)) = (self.reply(stream, answer), place) {
                *place = Some(ready(stream)?);
            }
        }
        Ok(links)
    }

    /// Answer to a hello of a rank that is expected.
    fn answer(&self, hello: &Hello) -> Answer {
        if hello.ranks as usize != self.ranks || hello.epoch != EPOCH {
            Answer::OtherRanks
        } else if hello.settings != self.settings {
            Answer::OtherSettings
        } else {
            Answer::Accepted
        }
    }

    /// Answers a hello. Returns the connection if it is accepted.
    fn reply(&self, mut stream: TcpStream, answer: Answer) -> Option<TcpStream> {
        let reply = Hello { kind: answer as u8, ..self.hello(Use::Directory, 0, 0) };
        stream.set_nonblocking(false).ok()?;
        stream.set_write_timeout(Some(ATTEMPT)).ok()?;
        stream.write_all(&reply.encode()).ok()?;
        (answer == Answer::Accepted).then_some(stream)
    }

    /// Connects to a rank as soon as it listens.
    fn connect(&self, rank: usize, address: SocketAddr) -> Result<TcpStream, JoinError> {
        loop {
            let rest = self.rest();
            if rest.is_zero() {
                return Err(self.missing(vec![rank], address.to_string()));
            }
            match TcpStream::connect_timeout(&address, rest.min(ATTEMPT)) {
                Ok(stream) => return Ok(stream),
                Err(_) => pause(RETRY.min(rest)),
            }
        }
    }

    /// Says hello to a rank. Returns the connection if it is accepted.
    fn greet(
        &self,
        mut stream: TcpStream,
        rank: usize,
        address: SocketAddr,
        hello: Hello,
    ) -> Result<TcpStream, JoinError> {
        let broken = |source| JoinError::Broken { rank, address, source };
        stream.write_all(&hello.encode()).map_err(broken)?;
        // A rank answers when it has connected to all lower ones.
        stream.set_read_timeout(Some(self.rest().max(RETRY))).map_err(broken)?;
        let mut reply = [0; HELLO_BYTES];
        let no_rank = || JoinError::NoRank { rank, address };
        stream.read_exact(&mut reply).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => no_rank(),
            _ => broken(source),
        })?;
        let reply = Hello::decode(&reply).ok_or_else(no_rank)?;
        match reply.answer().ok_or_else(no_rank)? {
            Answer::Accepted => Ok(stream),
            Answer::WrongRank => Err(JoinError::Refused {
                rank,
                why: format!("rank {} has connected already, or is none of the group", self.rank),
            }),
            Answer::OtherRanks => Err(JoinError::Refused {
                rank,
                why: format!("its group has {} ranks, this one {}", reply.ranks, self.ranks),
            }),
            Answer::OtherSettings => Err(JoinError::Refused {
                rank,
                why: "it has another order, algorithm or size of pieces".to_owned(),
            }),
        }
    }

    fn missing(&self, missing: Vec<usize>, at: String) -> JoinError {
        JoinError::Missing { missing, at, waited: Ticks::now().since(self.start) }
    }
}

fn ready(stream: TcpStream) -> Result<TcpStream, JoinError> {
    set_up(&stream).map_err(JoinError::System)?;
    Ok(stream)
}

fn encode(addresses: &[SocketAddr]) -> Vec<u8> {
    let mut bytes = Vec::new();
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
fn decode(bytes: &[u8]) -> Option<Vec<SocketAddr>> {
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
    use super::*;

    #[test]
    fn a_directory_is_read_as_it_was_sent() {
        let addresses: Vec<SocketAddr> =
            ["127.0.0.1:4000", "[::1]:5000", "10.0.0.7:65535"].map(|address| address.parse().unwrap()).into();
        let mut bytes = encode(&addresses);
        assert_eq!(decode(&bytes), Some(addresses));
        bytes[3] ^= 1;
        assert_eq!(decode(&bytes), None);
        assert_eq!(decode(&[1, 2]), None);
    }
}
