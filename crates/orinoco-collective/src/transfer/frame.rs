//! Frames between two agents: requests, and the answers to them. Both directions of a connection carry both.
//!
//! Wire format, version 1 (the [hello](crate::tcp) of a connection has the version): a header of 128 bytes, numbers in little-endian
//! order, followed by the payload of a put, of data and of a list of regions.
//!
//! | Bytes | Content |
//! |---|---|
//! | 0 | `T` |
//! | 1 | kind: 1 put, 2 get, 3 list; of answers: 4 done, 5 data, 6 regions, 7 refused |
//! | 2 | flags: 1 the payload has a checksum, 2 notify, 4 durable |
//! | 3 | bytes of the region's name, 1 to 64 in a put and a get, otherwise 0 |
//! | 4-7 | number of the request on its connection, in this direction; wraps around. An answer repeats it |
//! | 8-11 | bytes of the payload; of a get, bytes of the data that it asks for. At most 256 KiB |
//! | 12-15 | number of the region's registration; in a request, 0 for whichever has the name now |
//! | 16-23 | offset of the piece in the region |
//! | 24-31 | bytes of the whole transfer, which ends with this piece; 0 without the flag notify |
//! | 32-39 | value of the notification; 0 without the flag notify |
//! | 40-43 | of a refusal: [reason](RefusalReason) |
//! | 44-47 | 0 |
//! | 48-55 | of a refusal: length of the region, or the system's error number, where the reason has one |
//! | 56-59 | CRC32C (Castagnoli) of the payload; 0 without the flag |
//! | 60-123 | name of the region in UTF-8, and zeros behind it |
//! | 124-127 | CRC32C of the bytes before |
//!
//! Answers come in the order of the requests. An answer whose number is not that of the oldest pending request is a protocol error and
//! closes the connection. A list of regions is for each region: 1 byte length of the name, the name, 8 bytes length of the region, 1
//! byte access (1 read, 2 write, 3 both), 1 byte tier (1 host memory, 2 file, 3 device memory).

use super::error::RefusalReason;
use super::limits::{NAME_BYTES_MAX, REGIONS_MAX};
use super::region::{Access, RegionInfo, Tier};

/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 128;
/// Most bytes of a payload: long enough that a header and an answer for each cost little, short enough that several of them, which
/// are under way at a time, stay in a processor's cache.
pub(super) const PIECE_BYTES: usize = 256 << 10;

const CHECKED_BYTES: usize = HEADER_BYTES - 4;
const NAME: usize = 60;
const MAGIC: u8 = b'T';
const HAS_CHECKSUM: u8 = 1;
const NOTIFIES: u8 = 2;
const IS_DURABLE: u8 = 4;
/// Bytes of a region in a list, without its name.
const LISTED_BYTES: usize = 11;
const PUT: u8 = 1;
const GET: u8 = 2;
const LIST: u8 = 3;
const DONE: u8 = 4;
const DATA: u8 = 5;
const REGIONS: u8 = 6;
const REFUSED: u8 = 7;

const _: () = assert!(REGIONS_MAX * (LISTED_BYTES + NAME_BYTES_MAX) <= PIECE_BYTES);
const _: () = assert!(NAME + NAME_BYTES_MAX == CHECKED_BYTES);

/// A request or an answer, without its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) number: u32,
    /// Bytes of the payload, or of the data that a get asks for.
    pub(super) bytes: u32,
    /// CRC32C of the payload, unless the connection protects the integrity of payloads.
    pub(super) checksum: Option<u32>,
    pub(super) body: Body,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Body {
    Put(Target),
    Get(Target),
    List,
    Done { serial: u32 },
    Data { serial: u32 },
    Regions,
    Refused(RefusalReason),
}

/// Piece of a region that a request concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) region: String,
    /// Number of the region's registration; 0 for whichever has the name now.
    pub(super) serial: u32,
    pub(super) offset: u64,
    /// Notification after the last piece.
    pub(super) notice: Option<Notice>,
    /// Whether the bytes are to be on the disk before the answer.
    pub(super) is_durable: bool,
}

/// Notification of the rank that owns a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) value: u64,
    /// Bytes of the whole transfer.
    pub(super) transfer_bytes: u64,
}

impl Frame {
    /// Bytes that follow the header.
    pub(super) fn payload_bytes(&self) -> usize {
        match self.body {
            Body::Put(_) | Body::Data { .. } | Body::Regions => self.bytes as usize,
            Body::Get(_) | Body::List | Body::Done { .. } | Body::Refused(_) => 0,
        }
    }

    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let (kind, target, serial, refusal) = match &self.body {
            Body::Put(target) => (PUT, Some(target), target.serial, None),
            Body::Get(target) => (GET, Some(target), target.serial, None),
            Body::List => (LIST, None, 0, None),
            Body::Done { serial } => (DONE, None, *serial, None),
            Body::Data { serial } => (DATA, None, *serial, None),
            Body::Regions => (REGIONS, None, 0, None),
            Body::Refused(reason) => (REFUSED, None, 0, Some(reason.to_code())),
        };
        (bytes[0], bytes[1]) = (MAGIC, kind);
        bytes[4..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&serial.to_le_bytes());
        if let Some(target) = target {
            bytes[2] |= if target.is_durable { IS_DURABLE } else { 0 };
            bytes[3] = u8::try_from(target.region.len()).expect("a short name");
            bytes[16..24].copy_from_slice(&target.offset.to_le_bytes());
            bytes[NAME..NAME + target.region.len()].copy_from_slice(target.region.as_bytes());
            if let Some(notice) = target.notice {
                bytes[2] |= NOTIFIES;
                bytes[24..32].copy_from_slice(&notice.transfer_bytes.to_le_bytes());
                bytes[32..40].copy_from_slice(&notice.value.to_le_bytes());
            }
        }
        if let Some((code, detail)) = refusal {
            bytes[40..44].copy_from_slice(&code.to_le_bytes());
            bytes[48..56].copy_from_slice(&detail.to_le_bytes());
        }
        if let Some(checksum) = self.checksum {
            bytes[2] |= HAS_CHECKSUM;
            bytes[56..60].copy_from_slice(&checksum.to_le_bytes());
        }
        let checksum = crc32c::crc32c(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a header. `None` if no agent of this version writes these bytes.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let four = |start: usize| u32::from_le_bytes(bytes[start..start + 4].try_into().expect("four bytes"));
        let eight =
            |start: usize| u64::from_le_bytes(bytes[start..start + 8].try_into().expect("eight bytes"));
        let serial = four(12);
        let target = || {
            let name =
                bytes[NAME..CHECKED_BYTES].get(..usize::from(bytes[3])).filter(|name| !name.is_empty())?;
            Some(Target {
                region: std::str::from_utf8(name).ok()?.to_owned(),
                serial,
                offset: eight(16),
                notice: (bytes[2] & NOTIFIES != 0)
                    .then(|| Notice { value: eight(32), transfer_bytes: eight(24) }),
                is_durable: bytes[2] & IS_DURABLE != 0,
            })
        };
        let body = match bytes[1] {
            PUT => Body::Put(target()?),
            GET => Body::Get(target()?),
            LIST => Body::List,
            DONE => Body::Done { serial },
            DATA => Body::Data { serial },
            REGIONS => Body::Regions,
            REFUSED => Body::Refused(RefusalReason::from_code(four(40), eight(48))),
            _ => return None,
        };
        let bytes_max = match body {
            Body::Put(_) | Body::Get(_) | Body::Data { .. } | Body::Regions => PIECE_BYTES,
            Body::List | Body::Done { .. } | Body::Refused(_) => 0,
        };
        let checksum = (bytes[2] & HAS_CHECKSUM != 0).then(|| four(56));
        let frame = Self { number: four(4), bytes: four(8), checksum, body };
        // A frame has one form: this compares the checksum, the first byte, and whatever must be 0.
        (frame.bytes as usize <= bytes_max && frame.encode() == *bytes).then_some(frame)
    }
}

/// Writes a list of regions.
pub(super) fn encode_regions(regions: &[RegionInfo]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(regions.len() * (LISTED_BYTES + NAME_BYTES_MAX));
    for region in regions {
        bytes.push(u8::try_from(region.name.len()).expect("a short name"));
        bytes.extend_from_slice(region.name.as_bytes());
        bytes.extend_from_slice(&region.bytes.to_le_bytes());
        bytes.extend_from_slice(&[region.access.to_code(), region.tier.to_code()]);
    }
    bytes
}

/// Reads a list of regions. `None` if no agent of this version writes these bytes.
pub(super) fn decode_regions(mut bytes: &[u8]) -> Option<Vec<RegionInfo>> {
    let mut regions = Vec::new();
    while let Some((name_bytes, rest)) = bytes.split_first() {
        let (name, rest) = rest.split_at_checked(usize::from(*name_bytes))?;
        let (length, rest) = rest.split_first_chunk()?;
        let ([access, tier], rest) = rest.split_first_chunk()?;
        if name.is_empty() || name.len() > NAME_BYTES_MAX || regions.len() == REGIONS_MAX {
            return None;
        }
        regions.push(RegionInfo {
            name: std::str::from_utf8(name).ok()?.to_owned(),
            bytes: u64::from_le_bytes(*length),
            access: Access::from_code(*access)?,
            tier: Tier::from_code(*tier),
        });
        bytes = rest;
    }
    Some(regions)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mutations::{check, mutate, noise, seal_checksum, set_number};

    fn target() -> impl Strategy<Value = Target> {
        let notice = prop::option::of(any::<(u64, u64)>());
        ("[a-zé]{1,32}", any::<u32>(), any::<u64>(), notice, any::<bool>()).prop_map(
            |(region, serial, offset, notice, is_durable)| Target {
                region,
                serial,
                offset,
                notice: notice.map(|(value, transfer_bytes)| Notice { value, transfer_bytes }),
                is_durable,
            },
        )
    }

    fn frame() -> impl Strategy<Value = Frame> {
        let body = prop_oneof![
            target().prop_map(Body::Put),
            target().prop_map(Body::Get),
            Just(Body::List),
            any::<u32>().prop_map(|serial| Body::Done { serial }),
            any::<u32>().prop_map(|serial| Body::Data { serial }),
            Just(Body::Regions),
            (1u32..10, any::<u32>())
                .prop_map(|(code, detail)| Body::Refused(RefusalReason::from_code(code, detail.into()))),
        ];
        let bytes = 0..=u32::try_from(PIECE_BYTES).unwrap();
        (any::<u32>(), bytes, prop::option::of(any::<u32>()), body).prop_map(
            |(number, bytes, checksum, body)| {
                let has_bytes = !matches!(body, Body::List | Body::Done { .. } | Body::Refused(_));
                Frame { number, bytes: if has_bytes { bytes } else { 0 }, checksum, body }
            },
        )
    }

    fn info() -> impl Strategy<Value = RegionInfo> {
        ("[a-z]{1,64}", any::<u64>(), 1u8..4, any::<u8>()).prop_map(|(name, bytes, access, tier)| {
            let (access, tier) = (Access::from_code(access).unwrap(), Tier::from_code(tier));
            RegionInfo { name, bytes, access, tier }
        })
    }

    proptest! {
        #[test]
        fn a_frame_is_read_as_it_was_written(frame in frame()) {
            prop_assert_eq!(Frame::decode(&frame.encode()), Some(frame));
        }

        #[test]
        fn a_changed_bit_is_noticed(frame in frame(), bit in 0..8 * HEADER_BYTES) {
            let mut bytes = frame.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Frame::decode(&bytes), None);
        }

        #[test]
        fn a_list_is_read_as_it_was_written(regions in prop::collection::vec(info(), 0..20)) {
            prop_assert_eq!(decode_regions(&encode_regions(&regions)), Some(regions));
        }

        #[test]
        fn any_bytes_are_a_list_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(regions) = decode_regions(&bytes) {
                prop_assert_eq!(encode_regions(&regions), bytes);
            }
        }
    }

    /// A put as a right sender would write it.
    fn put() -> Frame {
        let notice = Some(Notice { value: 7, transfer_bytes: 1 << 20 });
        let region = "weights".to_owned();
        let target = Target { region, serial: 3, offset: 4096, notice, is_durable: true };
        Frame { number: 9, bytes: 1000, checksum: Some(5), body: Body::Put(target) }
    }

    #[test]
    fn any_header_is_read_or_refused() {
        let other = Frame { number: 1, bytes: 0, checksum: None, body: Body::Done { serial: 3 } }.encode();
        check("frame", |rng| {
            let mut bytes = put().encode().to_vec();
            match rng.u32(..3) {
                0 => bytes = noise(rng, HEADER_BYTES),
                1 => mutate(rng, &mut bytes, &other),
                _ => {
                    let at = rng.usize(..CHECKED_BYTES);
                    set_number(rng, &mut bytes[..CHECKED_BYTES], at);
                }
            }
            bytes.resize(HEADER_BYTES, 0);
            if rng.bool() {
                seal_checksum(&mut bytes);
            }
            let bytes: [u8; HEADER_BYTES] = bytes.try_into().unwrap();
            if let Some(frame) = Frame::decode(&bytes) {
                assert_eq!(frame.encode(), bytes, "a frame has one form");
                assert!(frame.payload_bytes() <= PIECE_BYTES);
            }
        });
    }

    /// Each is sealed by a peer that knows the format.
    #[test]
    fn frames_that_no_agent_writes_are_refused() {
        let refused = |change: fn(&mut [u8])| {
            let mut bytes = put().encode();
            change(&mut bytes);
            seal_checksum(&mut bytes);
            Frame::decode(&bytes).is_none()
        };
        assert!(!refused(|_| {}), "the checksum alone is right");
        assert!(refused(|bytes| bytes[0] = 1), "a message of an operation");
        assert!(refused(|bytes| bytes[1] = 0) && refused(|bytes| bytes[1] = 8), "an unknown kind");
        assert!(refused(|bytes| bytes[2] |= 8), "an unknown flag");
        assert!(refused(|bytes| bytes[3] = 0), "no name");
        assert!(refused(|bytes| bytes[3] = 65) && refused(|bytes| bytes[3] = 255), "a name too long");
        assert!(refused(|bytes| bytes[3] = 3), "bytes behind the name");
        assert!(refused(|bytes| bytes[NAME] = 0xff), "a name that is not UTF-8");
        assert!(refused(|bytes| bytes[8..12].fill(0xff)), "a payload too long");
        assert!(refused(|bytes| bytes[8..12].copy_from_slice(&(PIECE_BYTES as u32 + 1).to_le_bytes())));
        assert!(refused(|bytes| bytes[44] = 1), "something where nothing is");
    }
}
