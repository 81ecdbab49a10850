//! First message of each connection. With keys, the first message of a handshake follows it; an answer that accepts it is followed
//! by the second.
//!
//! Wire format, version 1.1: 48 bytes, numbers in little-endian order.
//!
//! | Bytes | Content |
//! |---|---|
//! | 0-7 | `ORINOCO` and a 0 |
//! | 8-9 | major version of the wire format: 1 |
//! | 10 | use of the connection: 1 to ask rank 0 for all addresses, 2 notices, 3 messages, 4 membership, 5 measurement of a link (6 is that of another message, see `target.rs`); of the answer: 0 accepted, or a reason |
//! | 11 | protection: 0 none, 1 a group key, 2 key pairs |
//! | 12-15 | epoch; in a cluster, of a group that is split off from an epoch: a random number with the highest bit set |
//! | 16-19 | number of ranks |
//! | 20-23 | rank of the sender; in a cluster, its seat |
//! | 24-27 | rank or seat that is addressed |
//! | 28-29 | if it asks for addresses: port at which the sender listens; on a connection for messages: its number, from 0; on a connection for notices, and in the answer to its hello: minor version of the sender in the highest four bits, and its capabilities in the others (see `offer.rs`) |
//! | 30-31 | in a cluster: members of the epoch or the group, seat 0 in the lowest bit |
//! | 32-35 | CRC32C of the settings that all ranks must have in common |
//! | 36-39 | in a cluster: serial number of the member list |
//! | 40-43 | in a cluster: CRC32C of that list |
//! | 44-47 | CRC32C of the bytes before |
//!
//! Bytes 0 to 9 are the same in every version: whoever gets a message of another major version answers in its own, and both know both
//! versions. Two ranks of which the minor versions differ by one use what both can do. With a greater difference, the answer to the hello
//! of the connection for notices is a refusal, and both know both versions.
//!
//! With keys, nobody in between can change what is negotiated. The hello is the prologue of the handshake: version, epoch, kind of protection,
//! settings, and the capabilities of the side that connects. The protocol name, which Noise puts in the transcript, has the cipher. The answer
//! to the hello of a connection for notices is repeated as the payload of the second message of the handshake, which is encrypted. The
//! second message is without it only if one side has minor version 0. If that is the side that connects, its hello, with that version, is the
//! prologue. If it is the side that answers, the one that connects knows that from the answer alone.

use super::offer::{MAJOR, Offer};

/// Bytes of a hello, and of its answer.
pub(crate) const HELLO_BYTES: usize = 48;
const CHECKED_BYTES: usize = HELLO_BYTES - 4;
pub(super) const MAGIC: [u8; 8] = *b"ORINOCO\0";

/// Epoch of a group that is no cluster: it has one only.
pub(crate) const EPOCH: u32 = 0;

/// Use of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Directory = 1,
    Notices = 2,
    Messages = 3,
    Membership = 4,
    Probe = 5,
}

/// Answer to a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Accepted = 0,
    /// The rank is not one of the group, or connected already.
    WrongRank = 1,
    /// Another number of ranks.
    OtherRanks = 2,
    /// Other settings.
    OtherSettings = 3,
    /// Another kind of protection.
    OtherSecurity = 4,
    /// The rank does not have the right key.
    WrongKey = 5,
    /// Another member list.
    OtherList = 6,
    /// The epoch has not begun at this seat, or is over.
    OtherEpoch = 7,
    /// No program on the board has asked its daemon for connections of the group.
    NoProgram = 8,
    /// The hello is of another version of the wire format.
    OtherVersion = 9,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) kind: u8,
    pub(crate) security: u8,
    pub(crate) epoch: u32,
    pub(crate) ranks: u32,
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// Port, number, or [`Offer`].
    pub(crate) detail: u16,
    pub(crate) settings: u32,
    pub(crate) cluster: ClusterHello,
}

/// Part of a hello about a cluster; all 0 outside of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ClusterHello {
    pub(crate) members: u16,
    pub(crate) list_serial: u32,
    pub(crate) list_checksum: u32,
}

impl Hello {
    pub(crate) fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&MAJOR.to_le_bytes());
        bytes[10] = self.kind;
        bytes[11] = self.security;
        for (start, number) in [
            (12, self.epoch),
            (16, self.ranks),
            (20, self.from),
            (24, self.to),
            (32, self.settings),
            (36, self.cluster.list_serial),
            (40, self.cluster.list_checksum),
        ] {
            bytes[start..start + 4].copy_from_slice(&number.to_le_bytes());
        }
        bytes[28..30].copy_from_slice(&self.detail.to_le_bytes());
        bytes[30..32].copy_from_slice(&self.cluster.members.to_le_bytes());
        seal_checksum(&mut bytes);
        bytes
    }

    /// Reads a hello. `None` if the bytes are something else: whoever sent them is not a rank.
    pub(crate) fn decode(bytes: &[u8; HELLO_BYTES]) -> Option<Self> {
        let four = |start: usize| u32::from_le_bytes(bytes[start..start + 4].try_into().expect("four bytes"));
        let two = |start: usize| u16::from_le_bytes([bytes[start], bytes[start + 1]]);
        let is_right = bytes[..8] == MAGIC
            && two(8) == MAJOR
            && four(CHECKED_BYTES) == crc32c::crc32c(&bytes[..CHECKED_BYTES]);
        is_right.then(|| Self {
            kind: bytes[10],
            security: bytes[11],
            epoch: four(12),
            ranks: four(16),
            from: four(20),
            to: four(24),
            detail: two(28),
            settings: four(32),
            cluster: ClusterHello { members: two(30), list_serial: four(36), list_checksum: four(40) },
        })
    }

    pub(crate) fn purpose(&self) -> Option<Use> {
        let all = [Use::Directory, Use::Notices, Use::Messages, Use::Membership, Use::Probe];
        all.into_iter().find(|purpose| *purpose as u8 == self.kind)
    }

    /// Minor version and capabilities of the sender, on a connection for notices.
    pub(crate) fn offer(&self) -> Option<Offer> {
        (self.purpose() == Some(Use::Notices)).then(|| Offer::from_word(self.detail))
    }

    /// The answer to a hello, made of this rank's own.
    pub(crate) fn answered(&self, answer: Answer) -> Self {
        Self { kind: answer as u8, ..*self }
    }

    pub(crate) fn answer(&self) -> Option<Answer> {
        let all = [Answer::Accepted, Answer::WrongRank, Answer::OtherRanks, Answer::OtherSettings];
        let of_keys = [Answer::OtherSecurity, Answer::WrongKey];
        let of_clusters = [Answer::OtherList, Answer::OtherEpoch, Answer::NoProgram];
        let others = of_clusters.into_iter().chain([Answer::OtherVersion]);
        all.into_iter().chain(of_keys).chain(others).find(|answer| *answer as u8 == self.kind)
    }
}

/// Major version of a message of another one of the wire format. `None` if the bytes are none, or one of this version.
pub(super) fn other_major(bytes: &[u8; HELLO_BYTES]) -> Option<u16> {
    let major = u16::from_le_bytes([bytes[8], bytes[9]]);
    (bytes[..8] == MAGIC && major != MAJOR).then_some(major)
}

/// Writes the checksum at the end of a message.
pub(super) fn seal_checksum(bytes: &mut [u8; HELLO_BYTES]) {
    let checksum = crc32c::crc32c(&bytes[..CHECKED_BYTES]);
    bytes[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_hello_or_none(rest in prop::array::uniform32(any::<u8>()), is_checked in any::<bool>()) {
            let mut bytes = [0; HELLO_BYTES];
            bytes[12..44].copy_from_slice(&rest);
            bytes[..8].copy_from_slice(&MAGIC);
            bytes[8] = 1;
            let checksum = crc32c::crc32c(&bytes[..CHECKED_BYTES]) ^ u32::from(!is_checked);
            bytes[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
            let hello = Hello::decode(&bytes);
            prop_assert_eq!(hello.is_some(), is_checked);
            if let Some(hello) = hello {
                prop_assert_eq!(Hello::decode(&hello.encode()), Some(hello));
                prop_assert_eq!((hello.purpose(), hello.answer()), (None, Some(Answer::Accepted)));
            }
        }
    }
}
