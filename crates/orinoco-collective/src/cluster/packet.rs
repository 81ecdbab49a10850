//! Packets between seats, outside epochs.
//!
//! Wire format, version 1: 24 bytes, numbers in little-endian order.
//!
//! | Bytes | Content |
//! |---|---|
//! | 0 | kind: 1 status, 2 proposal, 3 acceptance, 4 refusal, 5 commit, 6 figures of a link |
//! | 1 | of a status: 1 if its sender is ready for an epoch, or 0; of figures: the seat at the other end |
//! | 2-3 | of a status: seats with which its sender is connected, of a proposal and a commit: the members; seat 0 in the lowest bit |
//! | 4-7 | epoch; of a status and a refusal: the highest that its sender knows; of figures: round trip in microseconds |
//! | 8-11 | of a status: the epoch in which its sender takes part, or 0; of figures: rate in KiB per second |
//! | 12-19 | 0 |
//! | 20-23 | CRC32C of the bytes before |

use super::seats::SeatSet;

/// Bytes of a packet.
pub(crate) const PACKET_BYTES: usize = 24;
const CHECKED_BYTES: usize = PACKET_BYTES - 4;

const STATUS: u8 = 1;
const PROPOSE: u8 = 2;
const ACCEPT: u8 = 3;
const REFUSE: u8 = 4;
const COMMIT: u8 = 5;
const LINK: u8 = 6;

/// Packet from one seat to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packet {
    /// State of its sender, and a sign of life.
    Status(Status),
    /// Its sender proposes an epoch with these members.
    Propose { epoch: u32, members: SeatSet },
    /// Its sender accepts the proposal, and no lower epoch afterwards.
    Accept { epoch: u32 },
    /// Its sender does not accept the proposal.
    Refuse { highest: u32 },
    /// All members have accepted: the epoch begins.
    Commit { epoch: u32, members: SeatSet },
    /// Figures of the link between its sender and a seat.
    Link(LinkPacket),
}

/// Figures of a link as they are sent to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkPacket {
    pub(crate) seat: u8,
    pub(crate) round_trip_us: u32,
    pub(crate) kib_per_second: u32,
}

/// State of a seat as it is sent to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Status {
    /// It waits for an epoch.
    pub(crate) is_ready: bool,
    /// Seats with which it is connected.
    pub(crate) connected: SeatSet,
    /// Highest epoch that it knows.
    pub(crate) highest: u32,
    /// Epoch in which it takes part, or 0.
    pub(crate) epoch: u32,
}

impl Packet {
    pub(crate) fn encode(&self) -> [u8; PACKET_BYTES] {
        let (kind, flag, set, epoch, of_sender) = match *self {
            Self::Status(Status { is_ready, connected, highest, epoch }) => {
                (STATUS, u8::from(is_ready), connected, highest, epoch)
            }
            Self::Propose { epoch, members } => (PROPOSE, 0, members, epoch, 0),
            Self::Accept { epoch } => (ACCEPT, 0, SeatSet::default(), epoch, 0),
            Self::Refuse { highest } => (REFUSE, 0, SeatSet::default(), highest, 0),
            Self::Commit { epoch, members } => (COMMIT, 0, members, epoch, 0),
            Self::Link(LinkPacket { seat, round_trip_us, kib_per_second }) => {
                (LINK, seat, SeatSet::default(), round_trip_us, kib_per_second)
            }
        };
        let mut bytes = [0; PACKET_BYTES];
        bytes[0] = kind;
        bytes[1] = flag;
        bytes[2..4].copy_from_slice(&set.bits().to_le_bytes());
        bytes[4..8].copy_from_slice(&epoch.to_le_bytes());
        bytes[8..12].copy_from_slice(&of_sender.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a packet. `None` if the bytes cannot be one.
    pub(crate) fn decode(bytes: &[u8; PACKET_BYTES]) -> Option<Self> {
        let four = |start: usize| u32::from_le_bytes(bytes[start..start + 4].try_into().expect("four bytes"));
        if four(CHECKED_BYTES) != crc32c::crc32c(&bytes[..CHECKED_BYTES]) {
            return None;
        }
        let set = SeatSet::from_bits(u16::from_le_bytes([bytes[2], bytes[3]]));
        let epoch = four(4);
        Some(match bytes[0] {
            STATUS => Self::Status(Status {
                is_ready: bytes[1] == 1,
                connected: set,
                highest: epoch,
                epoch: four(8),
            }),
            PROPOSE => Self::Propose { epoch, members: set },
            ACCEPT => Self::Accept { epoch },
            REFUSE => Self::Refuse { highest: epoch },
            COMMIT => Self::Commit { epoch, members: set },
            LINK => Self::Link(LinkPacket { seat: bytes[1], round_trip_us: epoch, kib_per_second: four(8) }),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_packet_is_read_as_it_was_sent(is_ready: bool, bits: u16, highest: u32, epoch: u32) {
            let set = SeatSet::from_bits(bits);
            for packet in [
                Packet::Status(Status { is_ready, connected: set, highest, epoch }),
                Packet::Propose { epoch, members: set },
                Packet::Accept { epoch },
                Packet::Refuse { highest },
                Packet::Commit { epoch, members: set },
                Packet::Link(LinkPacket { seat: bits as u8, round_trip_us: highest, kib_per_second: epoch }),
            ] {
                prop_assert_eq!(Packet::decode(&packet.encode()), Some(packet));
            }
        }

        #[test]
        fn any_bytes_are_a_packet_or_none(bytes in prop::array::uniform24(any::<u8>())) {
            prop_assert_eq!(Packet::decode(&bytes), None, "the checksum is right once in 2^32");
            let mut checked = bytes;
            let checksum = crc32c::crc32c(&bytes[..CHECKED_BYTES]).to_le_bytes();
            checked[CHECKED_BYTES..].copy_from_slice(&checksum);
            prop_assert_eq!(Packet::decode(&checked).is_some(), (STATUS..=LINK).contains(&bytes[0]));
        }
    }
}
