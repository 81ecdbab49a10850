//! Minor version and capabilities of a rank. Ranks exchange them when they join, and use what all of them can do.
//!
//! Wire format: a word of 16 bits in the hello of a connection for notices and in the answer to it. Its highest four bits are the minor
//! version. The others are a set of capabilities:
//!
//! | Bit | Capability | Without it |
//! |---|---|---|
//! | 0 | notices of `shrink` | no rank of the group can call `shrink` |
//! | 1 | several connections for messages | a group with `tcp_connections` above 1 is refused |
//! | 2 | votes of uniform groups | a uniform group is refused |
//! | 3 | messages with a checksum instead of encryption | a group with `tcp_encryption = false` is refused |
//! | 4 | algorithms that depend on the machines of the ranks, which tuned groups know | a tuned group treats all ranks as if each had a machine of its own |
//! | 5 | notices of waits | ranks of the group that wait for one another in a circle learn that at their deadline |
//! | 6-11 | none yet: 0, and ignored | - |
//!
//! A rank of minor version 0 sends 0 and has bits 1 to 3. Most builds of it do not know the notices of `shrink`, and nothing tells them from the
//! others. CRC32C, authentication and AES-256-GCM are no capabilities: every
//! rank has them.

use std::fmt;

use crate::wire_version::{MINOR, WireVersion};

/// Major version of the wire format.
pub(super) const MAJOR: u16 = WireVersion::OURS.major;
/// Position of the minor version in the word.
const MINOR_SHIFT: u32 = 12;
const CAPABILITY_BITS: u16 = (1 << MINOR_SHIFT) - 1;

/// One thing that a rank can do, or cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Capability {
    Shrink = 0,
    Streams = 1,
    Uniform = 2,
    Checksums = 3,
    Machines = 4,
    Waits = 5,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shrink => "`shrink`",
            Self::Streams => "`tcp_connections` above 1",
            Self::Uniform => "uniform groups",
            Self::Checksums => "`tcp_encryption = false`",
            Self::Machines => "algorithms by machine",
            Self::Waits => "notices of waits",
        })
    }
}

/// Set of capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capabilities(u16);

impl Capabilities {
    /// Those of every rank of minor version 0.
    const OF_MINOR_0: Self = Self(0b1110);
    /// Those of this build.
    const OURS: Self = Self(0b11_1111);

    /// Those that all of these ranks have.
    pub(crate) fn in_common(of_ranks: &[Self]) -> Self {
        of_ranks.iter().fold(Self::OURS, |common, of_rank| Self(common.0 & of_rank.0))
    }

    pub(crate) fn has(self, capability: Capability) -> bool {
        self.0 & 1 << capability as u8 != 0
    }

    #[cfg(test)]
    pub(crate) fn without(self, capability: Capability) -> Self {
        Self(self.0 & !(1 << capability as u8))
    }
}

/// Minor version and capabilities of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) minor: u8,
    pub(crate) capabilities: Capabilities,
}

impl Offer {
    /// That of this build.
    pub(crate) const OURS: Self = Self { minor: MINOR, capabilities: Capabilities::OURS };
    /// That of a rank of minor version 0.
    pub(crate) const MINOR_0: Self = Self { minor: 0, capabilities: Capabilities::OF_MINOR_0 };

    /// The offer as it is sent.
    pub(crate) fn word(self) -> u16 {
        match self.minor {
            0 => 0,
            minor => u16::from(minor) << MINOR_SHIFT | self.capabilities.0,
        }
    }

    /// Reads an offer: every word is one.
    pub(crate) fn from_word(word: u16) -> Self {
        match (word >> MINOR_SHIFT) as u8 {
            0 => Self::MINOR_0,
            minor => Self { minor, capabilities: Capabilities(word & CAPABILITY_BITS) },
        }
    }

    /// Whether ranks with these offers understand each other.
    pub(crate) fn understands(self, other: Self) -> bool {
        self.minor.abs_diff(other.minor) <= 1
    }

    /// Whether a rank with this offer repeats its answer to a hello in the handshake, and reads it there.
    pub(crate) fn repeats_answer(self) -> bool {
        self.minor >= 1
    }

    pub(crate) fn version(self) -> WireVersion {
        WireVersion { major: MAJOR, minor: Some(self.minor) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_word_is_an_offer() {
        assert_eq!(Offer::from_word(0), Offer::MINOR_0, "the word of a rank that sends none");
        for word in 0..=u16::MAX {
            let offer = Offer::from_word(word);
            let is_minor_0 = word >> MINOR_SHIFT == 0;
            assert_eq!(offer.word(), if is_minor_0 { 0 } else { word });
            assert_eq!(offer.understands(Offer::OURS), Offer::OURS.understands(offer));
        }
    }

    #[test]
    fn ranks_understand_the_minor_versions_next_to_theirs() {
        let offer = |minor| Offer { minor, ..Offer::OURS };
        let understood =
            |own| (0..=15).filter(|minor| offer(own).understands(offer(*minor))).collect::<Vec<u8>>();
        assert_eq!((understood(0), understood(1), understood(7)), (vec![0, 1], vec![0, 1, 2], vec![6, 7, 8]));
        assert!(Offer::OURS.understands(Offer::MINOR_0), "the previous minor version");
    }
}
