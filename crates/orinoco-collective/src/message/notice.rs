//! Notices: messages between ranks outside operations. A notice is a sign of life, a departure, a failure, a vote, an end of a wait, or one of a
//! rank that makes a smaller group.
//!
//! Wire format, version 1: 32 bytes, numbers in little-endian order.
//!
//! | Bytes | Content |
//! |---|---|
//! | 0 | kind of message: 2 sign of life, 3 leaving, 4 failure, 5 vote, 6 final vote; of a rank that makes a smaller group: 7 it proposes one, 8 it is connected with its members, 9 it has formed it, 10 it has given up; 11 it waits for messages, 12 it blocks a rank that waits for its messages |
//! | 1-3 | 0 |
//! | 4-7 | epoch |
//! | 8-11 | of a sign of life: 1 more than the rank for which its sender waits, or 0; of a failure: the rank that failed |
//! | 12-15 | of a sign of life: number of the operation in which its sender waits; of a failure: cause, in the highest four bits, and milliseconds where it has a time |
//! | 8-15 | of a vote: position of its sender |
//! | 8-11 | of 11: rank for whose messages its sender waits; of 12: rank that its sender blocks |
//! | 12-15 | of 11 and 12: number of calls, sends and receives included, that its sender has begun in the group; wraps around |
//! | 8-11 | of a smaller group: random number of its sender's call |
//! | 12-13 | of a smaller group: port at which its sender listens, or 0 |
//! | 16-23 | of a sign of life: code of the [`Call`] of that operation, or 0; of a failure: code of the call in which it was noticed; of 11 and 12: code of its sender's call; of a vote or a smaller group: a bit for each excluded rank, rank 0 in the lowest |
//! | 24-27 | of 11: number of messages that its sender has received from that rank; of 12: number of those that it has sent to it; both wrap around |
//! | 24-27 | of a smaller group: its number if its sender is connected with its members, otherwise 0 |
//! | 28-31 | CRC32C of the bytes before |

use super::agreement::{Position, RankSet, Vote};
use super::shrink::{ShrinkNotice, ShrinkStage};
use super::waits::WaitEnd;
use crate::{Call, FailureCause};

/// Bytes of a notice.
pub const NOTICE_BYTES: usize = 32;
const CHECKED_BYTES: usize = NOTICE_BYTES - 4;

const ALIVE: u8 = 2;
const LEAVING: u8 = 3;
const FAILURE: u8 = 4;
const VOTE: u8 = 5;
const FINAL_VOTE: u8 = 6;
const PROPOSED: u8 = 7;
const CONNECTED: u8 = 8;
const FORMED: u8 = 9;
const WITHDRAWN: u8 = 10;
const WAITING: u8 = 11;
const BLOCKING: u8 = 12;

/// The failure of a rank, which ends the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// The rank.
    pub rank: usize,
    /// Reason.
    pub cause: FailureCause,
    /// Operation in which it was noticed.
    pub call: Call,
}

/// An operation of all ranks, by its number in the group, and one rank's call of it. All ranks of a correct program make the same call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberedCall {
    /// Number of the operation; wraps around.
    pub operation: u32,
    /// The call.
    pub call: Call,
}

/// Notice of a rank to all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// A sign of life.
    Alive {
        /// The rank for which its sender waits, in an operation that does not go on.
        awaited: Option<usize>,
        /// That operation, if it is one of all ranks.
        call: Option<NumberedCall>,
    },
    /// It waits for messages of a rank. This and the next one are sent only in groups whose ranks all know them.
    Waiting(WaitEnd),
    /// It blocks a rank that waits for its messages.
    Blocking(WaitEnd),
    /// It calls no further operation.
    Leaving,
    /// It has noticed a failure.
    Failed(Failure),
    /// Its vote about the outcome of the operation that failed, in a uniform group.
    Vote(Vote),
    /// Its part in making a smaller group.
    Shrink(ShrinkNotice),
}

impl Notice {
    /// A sign of life of a rank that does not say whether it waits.
    pub(crate) const SIGN_OF_LIFE: Self = Self::Alive { awaited: None, call: None };

    /// Whether the sender says the same again soon: it may be left out for a peer that takes nothing.
    pub(crate) fn is_repeated(&self) -> bool {
        matches!(self, Self::Alive { .. } | Self::Waiting(_) | Self::Blocking(_))
    }

    /// The notice as it is sent in an epoch.
    pub fn encode(&self, epoch: u32) -> [u8; NOTICE_BYTES] {
        let mut bytes = [0; NOTICE_BYTES];
        bytes[4..8].copy_from_slice(&epoch.to_le_bytes());
        match self {
            Self::Alive { awaited, call } => {
                bytes[0] = ALIVE;
                let awaited = awaited.map_or(0, |rank| u32::try_from(rank + 1).expect("few ranks"));
                bytes[8..12].copy_from_slice(&awaited.to_le_bytes());
                if let Some(NumberedCall { operation, call }) = call {
                    bytes[12..16].copy_from_slice(&operation.to_le_bytes());
                    bytes[16..24].copy_from_slice(&call.code().to_le_bytes());
                }
            }
            Self::Waiting(end) | Self::Blocking(end) => {
                bytes[0] = if matches!(self, Self::Waiting(_)) { WAITING } else { BLOCKING };
                let peer = u32::try_from(end.peer).expect("few ranks");
                bytes[8..12].copy_from_slice(&peer.to_le_bytes());
                bytes[12..16].copy_from_slice(&end.number.to_le_bytes());
                bytes[16..24].copy_from_slice(&end.call.code().to_le_bytes());
                bytes[24..28].copy_from_slice(&end.messages.to_le_bytes());
            }
            Self::Leaving => bytes[0] = LEAVING,
            Self::Failed(failure) => {
                bytes[0] = FAILURE;
                let rank = u32::try_from(failure.rank).expect("few ranks");
                bytes[8..12].copy_from_slice(&rank.to_le_bytes());
                bytes[12..16].copy_from_slice(&failure.cause.to_code().to_le_bytes());
                bytes[16..24].copy_from_slice(&failure.call.code().to_le_bytes());
            }
            Self::Vote(vote) => {
                bytes[0] = if vote.is_final { FINAL_VOTE } else { VOTE };
                bytes[8..16].copy_from_slice(&vote.position.0.to_le_bytes());
                bytes[16..24].copy_from_slice(&vote.excluded.bits().to_le_bytes());
            }
            Self::Shrink(notice) => {
                bytes[0] = match notice.stage {
                    ShrinkStage::Proposed => PROPOSED,
                    ShrinkStage::Connected => CONNECTED,
                    ShrinkStage::Formed => FORMED,
                    ShrinkStage::Withdrawn => WITHDRAWN,
                };
                bytes[8..12].copy_from_slice(&notice.number.to_le_bytes());
                bytes[12..14].copy_from_slice(&notice.port.to_le_bytes());
                bytes[16..24].copy_from_slice(&notice.excluded.bits().to_le_bytes());
                bytes[24..28].copy_from_slice(&notice.group.to_le_bytes());
            }
        }
        let checksum = crc32c::crc32c(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a notice of an epoch. `None` if the bytes cannot be one.
    pub fn decode(bytes: &[u8; NOTICE_BYTES], epoch: u32) -> Option<Self> {
        let four = |start: usize| u32::from_le_bytes(bytes[start..start + 4].try_into().expect("four bytes"));
        let eight =
            |start: usize| u64::from_le_bytes(bytes[start..start + 8].try_into().expect("eight bytes"));
        if four(CHECKED_BYTES) != crc32c::crc32c(&bytes[..CHECKED_BYTES]) || four(4) != epoch {
            return None;
        }
        let shrink = |stage| {
            Some(Self::Shrink(ShrinkNotice {
                stage,
                excluded: RankSet::from_bits(eight(16)),
                port: u16::from_le_bytes([bytes[12], bytes[13]]),
                number: four(8),
                group: four(24),
            }))
        };
        let end = || WaitEnd {
            peer: four(8) as usize,
            call: Call::from_code(eight(16)),
            number: four(12),
            messages: four(24),
        };
        match bytes[0] {
            ALIVE => {
                let numbered = |code| NumberedCall { operation: four(12), call: Call::from_code(code) };
                let call = Some(eight(16)).filter(|code| *code != 0).map(numbered);
                Some(Self::Alive { awaited: (four(8) as usize).checked_sub(1), call })
            }
            WAITING => Some(Self::Waiting(end())),
            BLOCKING => Some(Self::Blocking(end())),
            LEAVING => Some(Self::Leaving),
            FAILURE => Some(Self::Failed(Failure {
                rank: four(8) as usize,
                cause: FailureCause::from_code(four(12)),
                call: Call::from_code(eight(16)),
            })),
            kind @ (VOTE | FINAL_VOTE) => Some(Self::Vote(Vote {
                position: Position(eight(8)),
                excluded: RankSet::from_bits(eight(16)),
                is_final: kind == FINAL_VOTE,
            })),
            PROPOSED => shrink(ShrinkStage::Proposed),
            CONNECTED => shrink(ShrinkStage::Connected),
            FORMED => shrink(ShrinkStage::Formed),
            WITHDRAWN => shrink(ShrinkStage::Withdrawn),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_sign_of_life_is_read_as_it_was_sent(
            awaited in prop::option::of(0usize..64),
            call in prop::option::of((any::<u32>(), 1u64..)),
        ) {
            let numbered = |(operation, code)| NumberedCall { operation, call: Call::from_code(code) };
            let notice = Notice::Alive { awaited, call: call.map(numbered) };
            prop_assert_eq!(Notice::decode(&notice.encode(7), 7), Some(notice));
        }

        #[test]
        fn an_end_of_a_wait_is_read_as_it_was_sent(peer in 0usize..64, call in any::<u64>(), numbers in any::<(u32, u32)>()) {
            let (number, messages) = numbers;
            let end = WaitEnd { peer, call: Call::from_code(call), number, messages };
            for notice in [Notice::Waiting(end), Notice::Blocking(end)] {
                prop_assert_eq!(Notice::decode(&notice.encode(7), 7), Some(notice));
                prop_assert_eq!(Notice::decode(&notice.encode(7), 8), None);
            }
        }

        #[test]
        fn a_failure_is_read_as_it_was_sent(rank in 0usize..64, millis in 0u32..100_000, call in any::<u64>()) {
            let time = Duration::from_millis(u64::from(millis));
            for cause in [
                FailureCause::Silent(time),
                FailureCause::Left,
                FailureCause::Late(time),
                FailureCause::Mismatch,
                FailureCause::Ended,
                FailureCause::Damaged,
                FailureCause::Unexpected,
            ] {
                let notice = Notice::Failed(Failure { rank, cause, call: Call::from_code(call) });
                prop_assert_eq!(Notice::decode(&notice.encode(7), 7), Some(notice));
                prop_assert_eq!(Notice::decode(&notice.encode(7), 8), None);
            }
        }

        #[test]
        fn a_vote_is_read_as_it_was_sent(position in any::<u64>(), excluded in any::<u64>(), is_final in any::<bool>()) {
            let (position, excluded) = (Position(position), RankSet::from_bits(excluded));
            let notice = Notice::Vote(Vote { position, excluded, is_final });
            prop_assert_eq!(Notice::decode(&notice.encode(7), 7), Some(notice));
            prop_assert_eq!(Notice::decode(&notice.encode(7), 8), None);
        }

        #[test]
        fn a_notice_of_a_smaller_group_is_read_as_it_was_sent(
            numbers in any::<(u32, u32)>(),
            port in any::<u16>(),
            excluded in any::<u64>(),
        ) {
            for stage in [ShrinkStage::Proposed, ShrinkStage::Connected, ShrinkStage::Formed, ShrinkStage::Withdrawn] {
                let ((number, group), excluded) = (numbers, RankSet::from_bits(excluded));
                let notice = Notice::Shrink(ShrinkNotice { stage, excluded, port, number, group });
                prop_assert_eq!(Notice::decode(&notice.encode(7), 7), Some(notice));
                prop_assert_eq!(Notice::decode(&notice.encode(7), 8), None);
            }
        }

        #[test]
        fn any_bytes_are_a_notice_or_none(bytes in prop::array::uniform32(any::<u8>())) {
            let epoch = u32::from_le_bytes(bytes[4..8].try_into().unwrap());
            let mut checked = bytes;
            let checksum = crc32c::crc32c(&bytes[..CHECKED_BYTES]).to_le_bytes();
            checked[CHECKED_BYTES..].copy_from_slice(&checksum);
            prop_assert_eq!(Notice::decode(&checked, epoch).is_some(), (ALIVE..=BLOCKING).contains(&bytes[0]));
        }
    }
}
