//! Announcement of a long message by its receiver: where the payload is to be placed.
//!
//! Wire format (its version is that of the [endpoint](super::endpoint)): 40 bytes, numbers in little-endian order. The receiver of the message writes them into the memory of its
//! sender: into one of the slots behind the ring there, which are used in rotation.
//!
//! | Bytes | Content |
//! |---|---|
//! | 0-3 | number of the message's operation, as in its header |
//! | 4-7 | piece of the vector |
//! | 8-9 | number of the message among those of the piece |
//! | 10 | 1 if the payload may be written to the address, 0 if it goes through the ring |
//! | 11 | 0 |
//! | 12-15 | key of the memory at the address, or 0 |
//! | 16-23 | address, or 0 |
//! | 24-31 | bytes of the payload, or 0 |
//! | 32-35 | 0 |
//! | 36-39 | CRC32C of the bytes before |

use crate::message::MessageId;

/// Bytes of the smallest payload that uses a rendezvous. Copying fewer takes less time than waiting for the announcement.
pub(super) const DIRECT_BYTES: usize = if cfg!(test) { 256 } else { 32 << 10 };

/// Bytes of an announcement.
pub(super) const ANNOUNCEMENT_BYTES: usize = 40;
const CHECKED_BYTES: usize = ANNOUNCEMENT_BYTES - 4;

/// Announcement of a long message to its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Announcement {
    pub(super) id: MessageId,
    /// Destination of its payload; `None` if it goes through the ring.
    pub(super) destination: Option<Destination>,
}

/// Memory of a receiver for one payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Destination {
    pub(super) address: u64,
    pub(super) key: u32,
    pub(super) len: u64,
}

impl Announcement {
    pub(super) fn encode(&self) -> [u8; ANNOUNCEMENT_BYTES] {
        let mut bytes = [0; ANNOUNCEMENT_BYTES];
        bytes[..4].copy_from_slice(&self.id.operation.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.id.piece.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.id.message.to_le_bytes());
        if let Some(Destination { address, key, len }) = self.destination {
            bytes[10] = 1;
            bytes[12..16].copy_from_slice(&key.to_le_bytes());
            bytes[16..24].copy_from_slice(&address.to_le_bytes());
            bytes[24..32].copy_from_slice(&len.to_le_bytes());
        }
        let checksum = crc32c::crc32c(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads an announcement. `None` if the bytes cannot be one.
    pub(super) fn decode(bytes: &[u8; ANNOUNCEMENT_BYTES]) -> Option<Self> {
        let four = |start: usize| u32::from_le_bytes(bytes[start..start + 4].try_into().expect("four bytes"));
        let eight =
            |start: usize| u64::from_le_bytes(bytes[start..start + 8].try_into().expect("eight bytes"));
        if four(CHECKED_BYTES) != crc32c::crc32c(&bytes[..CHECKED_BYTES]) {
            return None;
        }
        let (key, address, len) = (four(12), eight(16), eight(24));
        let destination = match bytes[10] {
            0 => None,
            1 if address.checked_add(len).is_some() => Some(Destination { address, key, len }),
            _ => return None,
        };
        let message = u16::from_le_bytes([bytes[8], bytes[9]]);
        let announcement =
            Self { id: MessageId { operation: four(0), piece: four(4), message }, destination };
        (announcement.encode() == *bytes).then_some(announcement)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn announcement()(
            operation in any::<u32>(),
            piece in any::<u32>(),
            message in any::<u16>(),
            destination in prop::option::of((any::<u32>(), any::<u32>(), any::<u32>())),
        ) -> Announcement {
            let destination = destination.map(|(address, key, len)| Destination {
                address: u64::from(address) << 12,
                key,
                len: u64::from(len),
            });
            Announcement { id: MessageId { operation, piece, message }, destination }
        }
    }

    proptest! {
        #[test]
        fn an_announcement_is_read_as_it_was_written(announcement in announcement()) {
            prop_assert_eq!(Announcement::decode(&announcement.encode()), Some(announcement));
        }

        #[test]
        fn a_changed_bit_is_noticed(announcement in announcement(), bit in 0usize..8 * ANNOUNCEMENT_BYTES) {
            let mut bytes = announcement.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Announcement::decode(&bytes), None);
        }

        #[test]
        fn any_bytes_are_an_announcement_or_refused(mut bytes in any::<[[u8; 8]; 5]>(), kind in 0u8..3) {
            bytes[1][2] = kind;
            let mut bytes: [u8; ANNOUNCEMENT_BYTES] = bytes.concat().try_into().unwrap();
            let checksum = crc32c::crc32c(&bytes[..CHECKED_BYTES]);
            bytes[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
            if let Some(announcement) = Announcement::decode(&bytes) {
                prop_assert_eq!(announcement.encode(), bytes);
            }
        }
    }
}
