//! Routing header of a connection through a daemon: it names the program, by its group and its number there. A remote rank sends it before
//! its hello. A program sends it to the daemon of its board, to register.
//!
//! Wire format, version 1: 48 bytes, numbers in little-endian order.
//!
//! | Bytes | Content |
//! |---|---|
//! | 0-7 | `ORINOCO` and a 0 |
//! | 8-9 | version of the wire format: 1 |
//! | 10 | kind of message: 6, which no hello has |
//! | 11 | length of the group's name in bytes |
//! | 12-15 | number of the program in the group: its rank; in a group that is split off, a random number with the highest bit set |
//! | 16-43 | name of the group, padded with zeros |
//! | 44-47 | CRC32C of the bytes before |

use super::hello::{HELLO_BYTES, MAGIC, seal_checksum};
use super::offer::MAJOR;
use crate::JoinError;

/// Bytes of the message: as many as of a hello, so that a daemon reads no byte that is for the program.
pub(crate) const TARGET_BYTES: usize = HELLO_BYTES;
const KIND: u8 = 6;
/// Most bytes of a group's name.
const NAME_BYTES_MAX: usize = 28;
const NAME_START: usize = 16;
/// Numbers of ranks in groups that are split off have this bit.
const SPLIT_BIT: u32 = 1 << 31;

/// A program that joins a group, as a daemon knows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    group: String,
    number: u32,
}

impl Target {
    /// Creates the target of a rank.
    ///
    /// # Errors
    /// If a group cannot have this name.
    pub(super) fn of_rank(group: &str, rank: usize) -> Result<Self, JoinError> {
        match is_name(group.as_bytes()) {
            true => Ok(Self { group: group.to_owned(), number: u32::try_from(rank).expect("few ranks") }),
            false => Err(JoinError::GroupName { name: group.to_owned(), max: NAME_BYTES_MAX }),
        }
    }

    /// Creates the target of a rank in a group that is split off from one with this name, by a random number.
    pub(super) fn of_split(group: &str, number: u32) -> Self {
        Self { group: group.to_owned(), number: number | SPLIT_BIT }
    }

    /// Name of the group.
    pub(super) fn group(&self) -> &str {
        &self.group
    }

    pub(crate) fn encode(&self) -> [u8; TARGET_BYTES] {
        let mut bytes = [0; TARGET_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&MAJOR.to_le_bytes());
        (bytes[10], bytes[11]) = (KIND, u8::try_from(self.group.len()).expect("a short name"));
        bytes[12..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[NAME_START..NAME_START + self.group.len()].copy_from_slice(self.group.as_bytes());
        seal_checksum(&mut bytes);
        bytes
    }

    /// Reads a message. `None` if the bytes are something else.
    pub(crate) fn decode(bytes: &[u8; TARGET_BYTES]) -> Option<Self> {
        let name = bytes.get(NAME_START..NAME_START + usize::from(bytes[11]))?;
        let number = u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes"));
        let group = is_name(name).then(|| String::from_utf8_lossy(name).into_owned())?;
        let target = Self { group, number };
        // That covers the magic bytes, the version, the kind, the zeros and the checksum.
        (target.encode() == *bytes).then_some(target)
    }
}

/// Whether these are the bytes of a group's name.
fn is_name(bytes: &[u8]) -> bool {
    let is_right = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    (1..=NAME_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(is_right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_read_as_it_was_sent() {
        for name in ["a", "training-7_b.c", &"x".repeat(NAME_BYTES_MAX)] {
            let target = Target::of_rank(name, 63).unwrap();
            assert_eq!(Target::decode(&target.encode()), Some(target.clone()));
            let split = Target::of_split(name, 5);
            assert_eq!(Target::decode(&split.encode()), Some(split.clone()));
            assert_eq!((split.group(), split.number), (name, 5 | SPLIT_BIT));
        }
        for name in ["", "a b", "ä", "a/b", &"x".repeat(NAME_BYTES_MAX + 1)] {
            let error = Target::of_rank(name, 0).expect_err("no name");
            assert!(matches!(error, JoinError::GroupName { .. }), "{error}");
        }
    }
}
