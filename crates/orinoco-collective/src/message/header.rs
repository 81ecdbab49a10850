//! Header of a message that carries elements.
//!
//! Wire format, version 1: 48 bytes, numbers in little-endian order, followed by the payload.
//!
//! | Bytes | Content |
//! |---|---|
//! | 0 | kind of message: 1 with a checksum of the payload, 2 without |
//! | 1 | algorithm of the schedule, its place in [`Algorithm::ALL`] |
//! | 2-3 | number of the message among those of the piece on its link, in this direction |
//! | 4-7 | epoch |
//! | 8-11 | number of the operation in the epoch, or for a send of the next operation; wraps around |
//! | 12-15 | number of the message on its link, in this direction; wraps around |
//! | 16-19 | piece of the vector |
//! | 20-23 | CRC32C (Castagnoli) of the payload, or 0 |
//! | 24-31 | code of the [`Call`] |
//! | 32-39 | bytes of the payload |
//! | 40-43 | 0 |
//! | 44-47 | CRC32C of the bytes before |

use crate::{Algorithm, Call};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 48;
/// Kind of a message whose payload has a checksum.
const CHECKED: u8 = 1;
/// Kind of a message whose link keeps payloads whole by itself.
const UNCHECKED: u8 = 2;
/// Bytes that the header's own checksum covers.
const CHECKED_BYTES: usize = HEADER_BYTES - 4;

/// Header of a message that carries elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub(super) algorithm: Algorithm,
    pub(super) message: u16,
    pub(super) epoch: u32,
    pub(super) operation: u32,
    pub(super) number: u32,
    pub(super) piece: u32,
    /// CRC32C of the payload, unless the link keeps payloads whole by itself.
    pub(super) checksum: Option<u32>,
    pub(super) call: Call,
    pub(super) len: u64,
}

/// Identifies a message on its link while it is in flight. Later messages can have the same, since sends do not increment the number of the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MessageId {
    pub(crate) operation: u32,
    pub(crate) piece: u32,
    pub(crate) message: u16,
}

impl Header {
    /// Identifies the message while it is in flight.
    pub(crate) fn id(&self) -> MessageId {
        MessageId { operation: self.operation, piece: self.piece, message: self.message }
    }

    /// Bytes of the message's payload.
    pub fn payload_len(&self) -> u64 {
        self.len
    }

    /// The header as it is sent.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = if self.checksum.is_some() { CHECKED } else { UNCHECKED };
        bytes[1] = self.algorithm as u8;
        bytes[2..4].copy_from_slice(&self.message.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.operation.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.piece.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.checksum.unwrap_or(0).to_le_bytes());
        bytes[24..32].copy_from_slice(&self.call.code().to_le_bytes());
        bytes[32..40].copy_from_slice(&self.len.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a header. `None` if the bytes cannot be one: they were damaged, or their sender is not a rank of this version.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let four = |start: usize| u32::from_le_bytes(bytes[start..start + 4].try_into().expect("four bytes"));
        let eight =
            |start: usize| u64::from_le_bytes(bytes[start..start + 8].try_into().expect("eight bytes"));
        if four(CHECKED_BYTES) != crc32c::crc32c(&bytes[..CHECKED_BYTES]) {
            return None;
        }
        let checksum = match bytes[0] {
            CHECKED => Some(four(20)),
            UNCHECKED => None,
            _ => return None,
        };
        Some(Self {
            algorithm: *Algorithm::ALL.get(usize::from(bytes[1]))?,
            message: u16::from_le_bytes([bytes[2], bytes[3]]),
            epoch: four(4),
            operation: four(8),
            number: four(12),
            piece: four(16),
            checksum,
            call: Call::from_code(eight(24)),
            len: eight(32),
        })
    }
}

/// CRC32C of a payload.
pub(super) fn checksum<'a>(payload: impl Iterator<Item = &'a [u8]>) -> u32 {
    payload.fold(0, crc32c::crc32c_append)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(payload: &[u8]) -> Header {
        Header {
            algorithm: Algorithm::TwoLevel,
            message: 3,
            epoch: 1,
            operation: 77,
            number: 12,
            piece: 4,
            checksum: Some(checksum([payload].into_iter())),
            call: Call::from_code(1 << 60),
            len: payload.len() as u64,
        }
    }

    #[test]
    fn algorithms_are_sent_by_their_place_in_the_list() {
        for (place, algorithm) in Algorithm::ALL.into_iter().enumerate() {
            assert_eq!(algorithm as usize, place);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_header_or_none(start in prop::array::uniform32(any::<u8>()), is_checked in any::<bool>(), kind in CHECKED..=UNCHECKED) {
            let mut bytes = [0; HEADER_BYTES];
            bytes[..32].copy_from_slice(&start);
            if is_checked {
                bytes[0] = kind;
                if kind == UNCHECKED {
                    bytes[20..24].fill(0);
                }
                let checksum = crc32c::crc32c(&bytes[..CHECKED_BYTES]).to_le_bytes();
                bytes[CHECKED_BYTES..].copy_from_slice(&checksum);
            }
            match Header::decode(&bytes) {
                Some(header) => prop_assert_eq!(header.encode(), bytes),
                None => prop_assert!(!is_checked || usize::from(bytes[1]) >= Algorithm::ALL.len()),
            }
        }

        #[test]
        fn a_changed_bit_is_noticed(bit in 0usize..8 * (HEADER_BYTES + 16), payload in any::<[u8; 16]>()) {
            let mut bytes = [&header(&payload).encode()[..], &payload].concat();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let changed = Header::decode(bytes[..HEADER_BYTES].try_into().unwrap());
            let is_right = changed.is_some_and(|changed| Some(checksum([&bytes[HEADER_BYTES..]].into_iter())) == changed.checksum);
            prop_assert!(!is_right);
        }
    }
}
