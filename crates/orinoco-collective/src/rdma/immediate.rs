//! Immediate data: 32 bits that travel with each write into a peer's memory, and say what the write brought.
//!
//! | Bits | Content |
//! |---|---|
//! | 0-18 | bytes that were written into the ring, 0 for a write that only returns credits; all ones for an announcement, and one less for a part of a payload at its destination |
//! | 19-25 | credits: writes of the peer that this rank has read since it last said so |
//! | 26-31 | number of the write in this direction; wraps around |

const LEN_BITS: u32 = 19;
const CREDIT_BITS: u32 = 7;

const ANNOUNCEMENT: usize = (1 << LEN_BITS) - 1;
const DIRECT: usize = ANNOUNCEMENT - 1;
/// Most bytes of one write into a ring.
pub(super) const LEN_MAX: usize = DIRECT - 1;
/// Most credits of one write.
pub(super) const CREDITS_MAX: usize = (1 << CREDIT_BITS) - 1;

/// Immediate data of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Immediate {
    pub(super) content: Content,
    pub(super) credits: usize,
    pub(super) number: Number,
}

/// Content of a write, as its receiver sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// So many bytes of the stream of messages, in the ring.
    Ring(usize),
    /// An announcement, in its place behind the ring.
    Announcement,
    /// The next part of the payload under way, at its destination.
    Direct,
}

/// Number of a write in its direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Number(u8);

impl Number {
    /// Writes after which numbers begin again.
    const COUNT: u8 = 1 << (32 - LEN_BITS - CREDIT_BITS);

    pub(super) fn next(self) -> Self {
        Self((self.0 + 1) % Self::COUNT)
    }
}

impl Immediate {
    pub(super) fn encode(self) -> u32 {
        let len = match self.content {
            Content::Ring(len) => len,
            Content::Announcement => ANNOUNCEMENT,
            Content::Direct => DIRECT,
        };
        let is_possible = !matches!(self.content, Content::Ring(len) if len > LEN_MAX);
        assert!(is_possible && self.credits <= CREDITS_MAX, "{self:?} has more bits than there are");
        let (len, credits) = (len as u32, self.credits as u32);
        len | credits << LEN_BITS | u32::from(self.number.0) << (LEN_BITS + CREDIT_BITS)
    }

    /// All values are immediate data; whether they are possible now, [`Flow`](super::flow::Flow) knows.
    pub(super) fn decode(bits: u32) -> Self {
        let field = |start: u32, max: usize| (bits >> start) as usize & max;
        let content = match field(0, ANNOUNCEMENT) {
            ANNOUNCEMENT => Content::Announcement,
            DIRECT => Content::Direct,
            len => Content::Ring(len),
        };
        Self {
            content,
            credits: field(LEN_BITS, CREDITS_MAX),
            number: Number((bits >> (LEN_BITS + CREDIT_BITS)) as u8),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bits_are_read_as_they_were_written(bits in any::<u32>()) {
            prop_assert_eq!(Immediate::decode(bits).encode(), bits);
        }
    }
}
