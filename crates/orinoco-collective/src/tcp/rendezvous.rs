//! Meeting points of the ranks of a group.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::net::SocketAddr;
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

#[cfg(test)]
mod tests {
    use super::*;

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
