//! Byte rings in a window, each from one rank to another.
//!
//! Bytes at the positions `taken..written` are on their way. Positions count bytes and wrap around; the byte at a position is at
//! that position modulo the ring's size. The first position is the tag of the group, so that a wrap-around is nothing rare. The sender publishes `written` after the bytes, and the receiver publishes `taken` after it
//! has read them. Both words carry the tag of their group in the upper half, so that a word of another group is never taken for a
//! position. The tag does not change while the ring is used: a word that is seen in two halves is right all the same.
//!
//! A position that the other side cannot have reached is damage, and ends the ring: no position is used as a place before it was
//! checked.

use std::io::IoSlice;

use super::window::Window;
use crate::message::Moved;

/// Places of a ring in a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ring {
    /// Offset of its bytes.
    pub(super) data: usize,
    /// Number of its bytes, a power of two of at least 8.
    pub(super) bytes: u32,
    /// Offset of the sender's word.
    pub(super) written: usize,
    /// Offset of the receiver's word.
    pub(super) taken: usize,
    /// Tag of its group.
    pub(super) tag: u32,
}

/// Both rings between a rank and a peer, as that rank uses them.
pub(super) struct Ends {
    pub(super) outgoing: RingSender,
    pub(super) incoming: RingReceiver,
}

/// All rings between a rank and a peer.
pub(super) struct Rings {
    pub(super) messages: Ends,
    pub(super) notices: Ends,
}

/// Share of a ring that is moved at a time: the other side goes on meanwhile.
const PARTS: u32 = 4;

impl Ring {
    /// Both words of a ring that is empty.
    pub(super) fn first_word(tag: u32) -> u64 {
        Self::word(tag, tag)
    }

    /// The word of a position.
    fn word(tag: u32, position: u32) -> u64 {
        u64::from(tag) << 32 | u64::from(position)
    }

    /// Reads a position that is between `from` and `from + most`. `None` if it cannot be one.
    fn position(&self, word: u64, from: u32, most: u32) -> Option<u32> {
        let position = word as u32;
        ((word >> 32) as u32 == self.tag && position.wrapping_sub(from) <= most).then_some(position)
    }

    /// Splits `len` bytes from a position on at the ring's end. Returns the offset of the first part, and its length.
    fn place(&self, position: u32, len: usize) -> (usize, usize) {
        let start = (position & (self.bytes - 1)) as usize;
        (self.data + start, len.min(self.bytes as usize - start))
    }
}

/// The sender's end of a ring.
#[derive(Debug)]
pub(super) struct RingSender {
    ring: Ring,
    written: u32,
    /// Position up to which there is room again, as far as it was looked at.
    taken: u32,
    is_damaged: bool,
}

impl RingSender {
    /// The sender's end of a ring that is empty.
    pub(super) fn new(ring: Ring) -> Self {
        Self { ring, written: ring.tag, taken: ring.tag, is_damaged: false }
    }

    /// Sends the beginning of some slices, of which one is not empty.
    pub(super) fn write(&mut self, window: &impl Window, slices: &[IoSlice<'_>]) -> Moved {
        let wanted: usize = slices.iter().map(|slice| slice.len()).sum();
        if self.room() < wanted {
            self.look(window);
        }
        if self.is_damaged {
            return Moved::Damaged;
        }
        let mut room = self.room().min((self.ring.bytes / PARTS) as usize);
        if room == 0 {
            return Moved::Later;
        }
        let mut sent = 0;
        for slice in slices {
            let part = &slice[..slice.len().min(room)];
            self.copy(window, part);
            room -= part.len();
            sent += part.len();
        }
        window.publish(self.ring.written, Ring::word(self.ring.tag, self.written));
        Moved::Bytes(sent)
    }

    /// Sends bytes if there is room for all of them. Returns whether there was.
    pub(super) fn write_whole(&mut self, window: &impl Window, bytes: &[u8]) -> bool {
        if self.room() < bytes.len() {
            self.look(window);
        }
        let fits = !self.is_damaged && self.room() >= bytes.len();
        if fits {
            self.copy(window, bytes);
            window.publish(self.ring.written, Ring::word(self.ring.tag, self.written));
        }
        fits
    }

    /// Whether a byte can be sent, or will never be.
    pub(super) fn has_room(&mut self, window: &impl Window) -> bool {
        if self.room() == 0 {
            self.look(window);
        }
        self.room() > 0 || self.is_damaged
    }

    fn room(&self) -> usize {
        (self.ring.bytes - self.written.wrapping_sub(self.taken)) as usize
    }

    fn look(&mut self, window: &impl Window) {
        let word = window.load(self.ring.taken);
        match self.ring.position(word, self.taken, self.written.wrapping_sub(self.taken)) {
            Some(taken) => self.taken = taken,
            None => self.is_damaged = true,
        }
    }

    fn copy(&mut self, window: &impl Window, bytes: &[u8]) {
        let (offset, len) = self.ring.place(self.written, bytes.len());
        window.write(offset, &bytes[..len]);
        if len < bytes.len() {
            window.write(self.ring.data, &bytes[len..]);
        }
        self.written = self.written.wrapping_add(bytes.len() as u32);
    }
}

/// The receiver's end of a ring.
#[derive(Debug)]
pub(super) struct RingReceiver {
    ring: Ring,
    /// Position up to which there are bytes, as far as it was looked at.
    written: u32,
    read: u32,
    /// The position that the sender was told.
    taken: u32,
    is_damaged: bool,
}

impl RingReceiver {
    /// The receiver's end of a ring that is empty.
    pub(super) fn new(ring: Ring) -> Self {
        Self { ring, written: ring.tag, read: ring.tag, taken: ring.tag, is_damaged: false }
    }

    /// Fills the beginning of a slice, which is not empty.
    pub(super) fn read(&mut self, window: &impl Window, into: &mut [u8]) -> Moved {
        let part = self.ring.bytes / PARTS;
        if !self.has_input(window) {
            return Moved::Later;
        }
        if self.is_damaged {
            return Moved::Damaged;
        }
        let len = into.len().min(self.available()).min(part as usize);
        let (offset, first) = self.ring.place(self.read, len);
        window.read(offset, &mut into[..first]);
        if first < len {
            window.read(self.ring.data, &mut into[first..len]);
        }
        self.read = self.read.wrapping_add(len as u32);
        // Told in parts: a sender that knows of three quarters of the ring can go on.
        if self.read.wrapping_sub(self.taken) >= part {
            self.taken = self.read;
            window.publish(self.ring.taken, Ring::word(self.ring.tag, self.taken));
        }
        Moved::Bytes(len)
    }

    /// Whether a byte has come, or none ever will.
    pub(super) fn has_input(&mut self, window: &impl Window) -> bool {
        if self.available() == 0 && !self.is_damaged {
            let word = window.load(self.ring.written);
            // What was read and not told yet takes room, too.
            let most = self.ring.bytes - self.read.wrapping_sub(self.taken);
            match self.ring.position(word, self.read, most) {
                Some(written) => self.written = written,
                None => self.is_damaged = true,
            }
        }
        self.available() > 0 || self.is_damaged
    }

    fn available(&self) -> usize {
        self.written.wrapping_sub(self.read) as usize
    }
}
