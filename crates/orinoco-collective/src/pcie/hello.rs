//! Hellos: each rank leaves one for every other, in that rank's row of the window.
//!
//! Format, version 2: 64 bytes, numbers in little-endian order.
//!
//! | Bytes | Content |
//! |---|---|
//! | 0-7 | `ORIPCIE` and a 0 |
//! | 8-9 | version of the format: 2. Ranks of version 1 do not know notices of waits |
//! | 10 | protection: 0 none, 1 a group key, 2 key pairs |
//! | 11 | 0 |
//! | 12-15 | epoch |
//! | 16-19 | number of ranks |
//! | 20-23 | rank of the sender |
//! | 24-27 | rank that is addressed |
//! | 28-31 | bytes of a ring of messages |
//! | 32-39 | the sender's nonce: a random number of this membership |
//! | 40-47 | nonce of the rank that is addressed, or 0 while the sender has not seen it |
//! | 48-51 | CRC32C of the settings that all ranks must have in common |
//! | 52-59 | 0 |
//! | 60-63 | CRC32C of the bytes before |
//!
//! A window keeps what was in it. A hello is believed only if it repeats the nonce of the rank that reads it, so those of earlier
//! groups never are.

use super::window::Window;

/// Bytes of a hello.
pub(super) const HELLO_BYTES: usize = 64;
const CHECKED_BYTES: usize = HELLO_BYTES - 4;
/// The last word is written last.
const LAST_WORD: usize = HELLO_BYTES - 8;
const MAGIC: [u8; 8] = *b"ORIPCIE\0";
/// Version of the format.
pub(super) const VERSION: u16 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) security: u8,
    pub(super) epoch: u32,
    pub(super) ranks: u32,
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) ring_bytes: u32,
    pub(super) nonce: u64,
    pub(super) echo: u64,
    pub(super) settings: u32,
}

impl Hello {
    pub(super) fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10] = self.security;
        for (start, number) in [
            (12, self.epoch),
            (16, self.ranks),
            (20, self.from),
            (24, self.to),
            (28, self.ring_bytes),
            (48, self.settings),
        ] {
            bytes[start..start + 4].copy_from_slice(&number.to_le_bytes());
        }
        bytes[32..40].copy_from_slice(&self.nonce.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.echo.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a hello. `None` if the bytes are something else, or are written just now.
    pub(super) fn decode(bytes: &[u8; HELLO_BYTES]) -> Option<Self> {
        let four = |start: usize| u32::from_le_bytes(bytes[start..start + 4].try_into().expect("four bytes"));
        let eight =
            |start: usize| u64::from_le_bytes(bytes[start..start + 8].try_into().expect("eight bytes"));
        (version(bytes) == Some(VERSION)).then(|| Self {
            security: bytes[10],
            epoch: four(12),
            ranks: four(16),
            from: four(20),
            to: four(24),
            ring_bytes: four(28),
            nonce: eight(32),
            echo: eight(40),
            settings: four(48),
        })
    }

    /// Leaves the hello at its place.
    pub(super) fn leave(&self, window: &impl Window, offset: usize) {
        let bytes = self.encode();
        window.write(offset, &bytes[..LAST_WORD]);
        let last = u64::from_le_bytes(bytes[LAST_WORD..].try_into().expect("eight bytes"));
        window.publish(offset + LAST_WORD, last);
    }

    /// Reads the hello at a place, if there is one. It is read once, and checked after that.
    pub(super) fn find(window: &impl Window, offset: usize) -> Option<Self> {
        Self::decode(&read(window, offset))
    }
}

/// Version of the hello at a place, if it is one that this build does not understand.
pub(super) fn other_version(window: &impl Window, offset: usize) -> Option<u16> {
    version(&read(window, offset)).filter(|version| *version != VERSION)
}

fn read(window: &impl Window, offset: usize) -> [u8; HELLO_BYTES] {
    let last = window.load(offset + LAST_WORD);
    let mut bytes = [0; HELLO_BYTES];
    window.read(offset, &mut bytes[..LAST_WORD]);
    bytes[LAST_WORD..].copy_from_slice(&last.to_le_bytes());
    bytes
}

/// Version of a hello. `None` if the bytes are something else, or are written just now.
fn version(bytes: &[u8; HELLO_BYTES]) -> Option<u16> {
    let checksum = crc32c::crc32c(&bytes[..CHECKED_BYTES]).to_le_bytes();
    let is_hello = bytes[..8] == MAGIC && bytes[CHECKED_BYTES..] == checksum;
    is_hello.then(|| u16::from_le_bytes([bytes[8], bytes[9]]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_hello_or_none(rest in prop::collection::vec(any::<u8>(), 50), is_checked in any::<bool>()) {
            let mut bytes = [0; HELLO_BYTES];
            bytes[10..60].copy_from_slice(&rest);
            bytes[..8].copy_from_slice(&MAGIC);
            bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
            let checksum = crc32c::crc32c(&bytes[..CHECKED_BYTES]) ^ u32::from(!is_checked);
            bytes[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
            prop_assert_eq!(version(&bytes), is_checked.then_some(VERSION));
            let hello = Hello::decode(&bytes);
            prop_assert_eq!(hello.is_some(), is_checked);
            if let Some(hello) = hello {
                prop_assert_eq!(Hello::decode(&hello.encode()), Some(hello));
            }
        }
    }
}
