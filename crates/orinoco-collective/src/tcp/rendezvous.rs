//! Addresses of ranks, and how they are told.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::JoinError;
use crate::meeting_file::{self, MeetingFile};
use crate::publish::fault;
use crate::security::GroupKey;

/// Meeting point of the ranks of a group.
#[derive(Debug, Clone)]
pub enum Rendezvous {
    /// The address of each rank, in order.
    List(Vec<SocketAddr>),
    /// The address of rank 0, which tells the others' addresses to all.
    Address(SocketAddr),
    /// A file on this machine in which rank 0 writes its address. It is removed when all have joined.
    File(PathBuf),
    /// The TCP ports of the daemons (`orinocod`) on the ranks' boards.
    SharedPorts(SharedPorts),
}

/// Ranks that are reached through the TCP ports of the daemons on their boards. Each daemon passes incoming connections to the ranks on its
/// board, so ranks need no listening ports and no further firewall rules. Daemons are not members of the group: the ranks authenticate
/// one another, as in any group. When all have joined, the group does not need the daemons any more; [`TcpGroup::split`](crate::TcpGroup::split)
/// does.
#[derive(Debug, Clone)]
pub struct SharedPorts {
    /// Name of the group, the same on all ranks: 1 to 28 ASCII letters, digits, `-`, `_` and `.`. No other group that joins through these
    /// boards at the same time may have it.
    pub group: String,
    /// For each rank, the address at which the others reach the daemon of its board, in order. Ranks on one board have the same address.
    pub addresses: Vec<SocketAddr>,
    /// Unix socket of this board's daemon: `program_socket` in its board file, or [`ClusterSettings::programs`](crate::ClusterSettings).
    pub socket: PathBuf,
}

/// Most bytes of the file that are read.
const FILE_BYTES_MAX: u64 = 1024;
/// Bytes of an address in a directory: IPv6 or mapped IPv4, and the port.
const ENTRY_BYTES: usize = 18;

/// Content of the file through which ranks meet.
pub(super) struct Meeting {
    pub(super) address: SocketAddr,
    pub(super) key: Option<GroupKey>,
}

impl Meeting {
    pub(super) fn publish(&self, path: &Path) -> Result<MeetingFile, JoinError> {
        let key = self.key.as_ref().map(GroupKey::to_text);
        let key = key.as_ref().map_or("", |key| key.as_str());
        let fill = |mut file: &File| writeln!(file, "{} {key}", self.address);
        Ok(MeetingFile::publish(path, is_meeting, fill)?.0)
    }

    /// Reads the file. `None` if it is not there yet.
    pub(super) fn read(path: &Path) -> Result<Option<Self>, JoinError> {
        let Some(file) = meeting_file::find(path, is_meeting)? else { return Ok(None) };
        let text = read_text(&file).map_err(|source| fault("reading", path, source))?;
        Self::parse(&text).map(Some).ok_or_else(|| JoinError::Foreign {
            path: path.to_owned(),
            // The rest may be a key.
            found: format!(
                "\"{}\"",
                text.split_whitespace().next().unwrap_or("").chars().take(40).collect::<String>()
            ),
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let address = words.next()?.parse().ok()?;
        let key = match words.next() {
            Some(key) => Some(GroupKey::from_text(key)?),
            None => None,
        };
        words.next().is_none().then_some(Self { address, key })
    }
}

fn is_meeting(file: &File) -> bool {
    read_text(file).is_ok_and(|text| Meeting::parse(&text).is_some())
}

/// The text of a file, from its beginning.
fn read_text(mut file: &File) -> io::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    file.rewind()?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
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

    #[test]
    fn a_meeting_is_read_as_it_was_published() {
        let folder = tempfile::tempdir().unwrap();
        for (name, key) in [("without", None), ("with", Some(GroupKey::generate().unwrap()))] {
            let path = folder.path().join(name);
            assert!(Meeting::read(&path).unwrap().is_none());
            let meeting = Meeting { address: "127.0.0.1:4000".parse().unwrap(), key };
            let file = meeting.publish(&path).unwrap();
            let read = Meeting::read(&path).unwrap().unwrap();
            let text = |meeting: &Meeting| meeting.key.as_ref().map(|key| key.to_text().to_string());
            assert_eq!((read.address, text(&read)), (meeting.address, text(&meeting)));
            file.remove().unwrap();
        }
        for text in ["", "here", "127.0.0.1:4000 key", "127.0.0.1:4000 0f 0f"] {
            assert!(Meeting::parse(text).is_none(), "{text}");
        }
    }
}
