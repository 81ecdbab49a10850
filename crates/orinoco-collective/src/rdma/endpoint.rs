//! Record with which two ranks connect their queue pairs. They exchange it over the authenticated connection of their join.
//!
//! Wire format, version 2: 64 bytes, numbers in little-endian order.
//!
//! | Bytes | Content |
//! |---|---|
//! | 0-7 | `ORINRDMA` |
//! | 8-9 | version of the wire format: 2 |
//! | 10 | 1, or 0 if the sender has no usable RDMA device: everything up to the checksum is 0 then |
//! | 11 | largest packet: 1 to 5 for 256 to 4096 bytes |
//! | 12-15 | number of the queue pair |
//! | 16-19 | number of its first packet |
//! | 20-35 | GID of the sender's port |
//! | 36-43 | address of the sender's ring, with places for announcements behind it |
//! | 44-47 | its key |
//! | 48-51 | bytes of the ring |
//! | 52-55 | most bytes of a write |
//! | 56-59 | most writes without a credit |
//! | 60-63 | CRC32C of the bytes before |

use super::error::RdmaError;
use super::flow::{CHUNK_BYTES, RING_BYTES, TARGET_BYTES, WRITES_MAX};
use super::mtu::Mtu;

/// Bytes of a record.
pub(super) const ENDPOINT_BYTES: usize = 64;
const MAGIC: &[u8; 8] = b"ORINRDMA";
const VERSION: u16 = 2;
const READY: u8 = 1;
const CHECKED_BYTES: usize = ENDPOINT_BYTES - 4;
/// Queue pairs and packets have numbers of 24 bits.
pub(super) const NUMBER_MAX: u32 = (1 << 24) - 1;
/// Sizes that both ends must share.
const SIZES: [u32; 3] = [RING_BYTES as u32, CHUNK_BYTES as u32, WRITES_MAX as u32];

/// One end of a connection of queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) mtu: Mtu,
    pub(super) queue_pair: u32,
    pub(super) first_packet: u32,
    pub(super) gid: [u8; 16],
    pub(super) ring: u64,
    pub(super) key: u32,
}

impl Endpoint {
    pub(super) fn encode(&self) -> [u8; ENDPOINT_BYTES] {
        let mut bytes = [0; ENDPOINT_BYTES];
        bytes[10] = READY;
        bytes[11] = self.mtu.code();
        bytes[12..16].copy_from_slice(&self.queue_pair.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.first_packet.to_le_bytes());
        bytes[20..36].copy_from_slice(&self.gid);
        bytes[36..44].copy_from_slice(&self.ring.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.key.to_le_bytes());
        for (size, place) in SIZES.iter().zip(bytes[48..60].chunks_exact_mut(4)) {
            place.copy_from_slice(&size.to_le_bytes());
        }
        finish(bytes)
    }

    /// The record of a rank that has no usable device.
    pub(super) fn none() -> [u8; ENDPOINT_BYTES] {
        finish([0; ENDPOINT_BYTES])
    }

    /// Reads the record of a rank.
    ///
    /// # Errors
    /// If it is none of this version, or if that rank has no usable device.
    pub(super) fn decode(bytes: &[u8; ENDPOINT_BYTES], rank: usize) -> Result<Self, RdmaError> {
        let four = |start: usize| u32::from_le_bytes(bytes[start..start + 4].try_into().expect("four bytes"));
        let bad = |found| RdmaError::Endpoint { rank, found };
        if &bytes[..8] != MAGIC || bytes[8..10] != VERSION.to_le_bytes() {
            return Err(bad("a record of another version"));
        }
        if four(CHECKED_BYTES) != crc32c::crc32c(&bytes[..CHECKED_BYTES]) {
            return Err(bad("a damaged record"));
        }
        if bytes[10] != READY {
            return Err(RdmaError::Peer { rank });
        }
        if [four(48), four(52), four(56)] != SIZES {
            return Err(bad("another size of rings"));
        }
        let ring = u64::from_le_bytes(bytes[36..44].try_into().expect("eight bytes"));
        if ring == 0 || ring.checked_add(TARGET_BYTES as u64).is_none() {
            return Err(bad("a ring at an address that cannot be one"));
        }
        let (queue_pair, first_packet) = (four(12), four(16));
        if queue_pair == 0 || queue_pair > NUMBER_MAX || first_packet > NUMBER_MAX {
            return Err(bad("a queue pair with a number that cannot be one"));
        }
        let mtu = Mtu::from_code(bytes[11]).ok_or_else(|| bad("an MTU that cannot be one"))?;
        let gid = bytes[20..36].try_into().expect("sixteen bytes");
        Ok(Self { mtu, queue_pair, first_packet, gid, ring, key: four(44) })
    }
}

fn finish(mut bytes: [u8; ENDPOINT_BYTES]) -> [u8; ENDPOINT_BYTES] {
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[..CHECKED_BYTES]);
    bytes[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn endpoint()(
            mtu in 1u8..=5,
            queue_pair in 1u32..=NUMBER_MAX,
            first_packet in 0..=NUMBER_MAX,
            gid in any::<[u8; 16]>(),
            ring in 1..=u64::MAX - TARGET_BYTES as u64,
            key in any::<u32>(),
        ) -> Endpoint {
            Endpoint { mtu: Mtu::from_code(mtu).unwrap(), queue_pair, first_packet, gid, ring, key }
        }
    }

    proptest! {
        #[test]
        fn a_record_is_read_as_it_was_written(endpoint in endpoint()) {
            prop_assert_eq!(Endpoint::decode(&endpoint.encode(), 1).unwrap(), endpoint);
        }

        #[test]
        fn what_a_peer_writes_to_ends_before_addresses_do(endpoint in endpoint(), missing in 0..=TARGET_BYTES as u64) {
            let beyond = Endpoint { ring: u64::MAX - missing, ..endpoint };
            prop_assert_eq!(Endpoint::decode(&beyond.encode(), 1).is_ok(), missing == TARGET_BYTES as u64);
        }

        #[test]
        fn a_changed_bit_is_noticed(endpoint in endpoint(), bit in 0usize..8 * ENDPOINT_BYTES) {
            let mut bytes = endpoint.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Endpoint::decode(&bytes, 1).is_err());
        }

        #[test]
        fn any_bytes_are_a_record_or_refused(start in any::<[u8; 32]>(), end in any::<[u8; 32]>(), has_sizes in any::<bool>()) {
            let mut bytes: [u8; ENDPOINT_BYTES] = [start, end].concat().try_into().unwrap();
            bytes[10] = READY;
            if has_sizes {
                bytes[11] %= 7;
                (bytes[15], bytes[19]) = (0, 0);
                bytes[48..60].copy_from_slice(&endpoint_sizes());
            }
            let bytes = finish(bytes);
            if let Ok(endpoint) = Endpoint::decode(&bytes, 1) {
                prop_assert_eq!(endpoint.encode(), bytes);
            }
        }
    }

    fn endpoint_sizes() -> [u8; 12] {
        SIZES.map(u32::to_le_bytes).concat().try_into().unwrap()
    }

    #[test]
    fn a_rank_without_a_device_is_named() {
        let error = Endpoint::decode(&Endpoint::none(), 3).unwrap_err();
        assert!(matches!(error, RdmaError::Peer { rank: 3 }), "{error}");
    }
}
