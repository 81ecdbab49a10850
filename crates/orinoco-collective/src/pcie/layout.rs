//! Places in a window.
//!
//! ```text
//! beginning      8 B    a number by which files of such groups are told from others; written by rank 0, read by nobody
//! hellos         a row of 16 for each rank: the one of each other rank to it
//! inboxes        one for each rank: a channel for each other rank
//!
//! channel from rank a to rank b, in the inbox of b: a writes and b reads all of it
//!   0 B          written: bytes of messages that a has written for b
//!   128 B        taken: bytes of messages that a has taken, of those that b has written for a
//!   256, 384 B   the same for notices
//!   512 B        ring of notices from a to b
//!   4608 B       ring of messages from a to b
//! ```
//!
//! | Word | Written by | Read by |
//! |---|---|---|
//! | hello from a to b | a, when it joins | b, when it joins |
//! | `written` and rings of the channel from a to b | a, to send to b | b, which polls them |
//! | `taken` of the channel from a to b | a, when it has received from b | b, when it needs room to send to a |
//!
//! Every word has one writer and one reader, and all that a rank reads is in its own row and its own inbox.

use super::window_ring::{Ends, Ring, RingReceiver, RingSender, Rings};

/// Most ranks of a group.
pub(super) const RANKS_MAX: usize = 16;
/// First eight bytes of a window.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"orinocoP");

const LINE_BYTES: usize = 128;
const HELLOS: usize = 4096;
const CHANNELS: usize = HELLOS + RANKS_MAX * RANKS_MAX * LINE_BYTES;
const LINES_BYTES: usize = 4 * LINE_BYTES;
/// Bytes of a ring of notices: several seconds of them.
const NOTICES_BYTES: usize = 4096;
/// Least bytes of a ring of messages: all that ranks say when they join fits at once.
const RING_BYTES_MIN: usize = 4096;
/// Most bytes of a ring of messages. A longer one would not stay in a core's second-level cache.
const RING_BYTES_MAX: usize = 256 << 10;
/// Bytes of a file that rank 0 makes, at most.
const FILE_BYTES_MAX: usize = 16 << 20;

const _: () = assert!(CHANNELS.is_multiple_of(LINE_BYTES) && RING_BYTES_MIN >= 512);

/// Places in a window, for so many ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    ranks: usize,
    /// Bytes of a ring of messages, a power of two.
    pub(super) ring_bytes: usize,
}

impl Layout {
    /// The layout of a window of so many bytes, with the largest rings that fit. `None` if none does.
    pub(super) fn new(ranks: usize, bytes: u64) -> Option<Self> {
        assert!((1..=RANKS_MAX).contains(&ranks), "{ranks} ranks");
        let sizes =
            (0..).map(|halvings| RING_BYTES_MAX >> halvings).take_while(|size| *size >= RING_BYTES_MIN);
        sizes.map(|ring_bytes| Self { ranks, ring_bytes }).find(|layout| layout.bytes() as u64 <= bytes)
    }

    /// The layout of a file that rank 0 makes.
    pub(super) fn of_file(ranks: usize) -> Self {
        Self::new(ranks, FILE_BYTES_MAX as u64).expect("rings of 4 KiB fit")
    }

    /// Bytes of the least window for so many ranks.
    pub(super) fn least_bytes(ranks: usize) -> usize {
        Self { ranks, ring_bytes: RING_BYTES_MIN }.bytes()
    }

    /// Bytes of the window that are used.
    pub(super) fn bytes(&self) -> usize {
        CHANNELS + self.ranks * self.ranks * self.channel_bytes()
    }

    /// Place of the hello from one rank to another.
    pub(super) fn hello(&self, from: usize, to: usize) -> usize {
        assert!(from < self.ranks && to < self.ranks, "from rank {from} to rank {to} of {}", self.ranks);
        HELLOS + (to * RANKS_MAX + from) * LINE_BYTES
    }

    /// The rings between a rank and a peer, empty. Their words have the tag of their group.
    pub(super) fn rings(&self, rank: usize, peer: usize, tag: u32) -> Rings {
        let ends = |ring: fn(&Self, usize, usize, u32) -> Ring| Ends {
            outgoing: RingSender::new(ring(self, rank, peer, tag)),
            incoming: RingReceiver::new(ring(self, peer, rank, tag)),
        };
        Rings { messages: ends(Self::messages), notices: ends(Self::notices) }
    }

    fn messages(&self, from: usize, to: usize, tag: u32) -> Ring {
        let (there, back) = (self.channel(from, to), self.channel(to, from));
        let data = there + LINES_BYTES + NOTICES_BYTES;
        Ring { data, bytes: size(self.ring_bytes), written: there, taken: back + LINE_BYTES, tag }
    }

    fn notices(&self, from: usize, to: usize, tag: u32) -> Ring {
        let (there, back) = (self.channel(from, to), self.channel(to, from));
        let (written, taken) = (there + 2 * LINE_BYTES, back + 3 * LINE_BYTES);
        Ring { data: there + LINES_BYTES, bytes: size(NOTICES_BYTES), written, taken, tag }
    }

    /// The four words of the channel from one rank to another.
    pub(super) fn words(&self, from: usize, to: usize) -> [usize; 4] {
        let channel = self.channel(from, to);
        std::array::from_fn(|line| channel + line * LINE_BYTES)
    }

    fn channel(&self, from: usize, to: usize) -> usize {
        assert!(from < self.ranks && to < self.ranks, "from rank {from} to rank {to} of {}", self.ranks);
        CHANNELS + (to * self.ranks + from) * self.channel_bytes()
    }

    fn channel_bytes(&self) -> usize {
        LINES_BYTES + NOTICES_BYTES + self.ring_bytes
    }
}

fn size(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a ring of 256 KiB at most")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_places_overlap_and_all_are_inside() {
        for (ranks, bytes) in [(1, 1 << 20), (2, 16 << 20), (3, 200 << 10), (16, 16 << 20)] {
            let layout = Layout::new(ranks, bytes).expect("it fits");
            let mut places = vec![(0, 8)];
            for (from, to) in (0..ranks).flat_map(|from| (0..ranks).map(move |to| (from, to))) {
                places.push((layout.hello(from, to), LINE_BYTES));
                places.extend(layout.words(from, to).map(|word| (word, 8)));
                for ring in [layout.messages(from, to, 0), layout.notices(from, to, 0)] {
                    places.push((ring.data, ring.bytes as usize));
                    assert!(layout.words(from, to).contains(&ring.written), "the sender writes it");
                    assert!(layout.words(to, from).contains(&ring.taken), "the receiver writes it");
                }
            }
            places.sort_unstable();
            assert!(places.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{ranks} ranks");
            let (last, len) = places[places.len() - 1];
            assert!(last + len <= layout.bytes() && layout.bytes() as u64 <= bytes);
        }
    }

    #[test]
    fn rings_are_as_large_as_the_window_allows() {
        let ring = |ranks, bytes| Layout::new(ranks, bytes).map(|layout| layout.ring_bytes);
        assert_eq!(ring(2, 16 << 20), Some(256 << 10));
        assert_eq!(ring(2, 1 << 20), Some(128 << 10));
        assert_eq!(ring(16, 16 << 20), Some(32 << 10));
        let least = Layout::least_bytes(2);
        assert_eq!((ring(2, least as u64), ring(2, least as u64 - 1)), (Some(4096), None));
    }
}
