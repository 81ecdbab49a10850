//! Encryption of a byte stream.
//!
//! Each direction of a stream is a sequence of records: two bytes of length in little-endian order, then so many bytes of AES-256-GCM
//! with their tag. The nonce is the number of the record, so a record that is left out, repeated, or moved does not open. The key
//! of a direction is replaced after every [`REKEY_RECORDS`] by the one that Noise derives from it.

use std::io::IoSlice;

use snow::StatelessTransportState;

use crate::message::Moved;

/// Bytes of a tag.
const TAG_BYTES: usize = 16;
/// Bytes of a record's length.
const LENGTH_BYTES: usize = 2;
/// Most bytes of a stream in one record. Less than Noise allows: records that are opened next are still in the second-level cache.
const RECORD_BYTES: usize = 32 << 10;
/// Most bytes of a record.
const SEALED_BYTES: usize = LENGTH_BYTES + RECORD_BYTES + TAG_BYTES;
/// Bytes that are sealed before they are sent, and read before they are opened.
const BATCH_BYTES: usize = 8 * SEALED_BYTES;
/// Records after which a direction's key is replaced: half a tebibyte at most, far below the limits of AES-GCM (NIST SP 800-38D).
const REKEY_RECORDS: u64 = 1 << 24;
/// Bytes of a record without content.
pub(crate) const CONFIRMATION_BYTES: usize = LENGTH_BYTES + TAG_BYTES;

/// Keys of a connection, and its bytes between stream and socket.
pub(crate) struct Seal {
    state: StatelessTransportState,
    rekey_records: u64,
    sealed: u64,
    opened: u64,
    /// Records to send: those at `sent..ready` are not sent.
    outgoing: Box<[u8]>,
    sent: usize,
    ready: usize,
    /// Bytes of the stream in `outgoing`.
    taken: usize,
    /// Records that have come: those at `start..end` are not opened.
    incoming: Box<[u8]>,
    start: usize,
    end: usize,
    /// Whether more is read than the next record, if more has come.
    reads_ahead: bool,
    /// Content of a record that did not fit where it was wanted: the bytes at `plain_start..plain_end` are not taken.
    plain: Box<[u8]>,
    plain_start: usize,
    plain_end: usize,
}

impl Seal {
    pub(super) fn new(state: StatelessTransportState) -> Self {
        Self {
            state,
            rekey_records: REKEY_RECORDS,
            sealed: 0,
            opened: 0,
            outgoing: vec![0; BATCH_BYTES].into(),
            sent: 0,
            ready: 0,
            taken: 0,
            incoming: vec![0; BATCH_BYTES].into(),
            start: 0,
            end: 0,
            reads_ahead: true,
            plain: vec![0; RECORD_BYTES + TAG_BYTES].into(),
            plain_start: 0,
            plain_end: 0,
        }
    }

    /// Whether more may be read from the socket than the next record. Without it, the encryption can end after any record.
    pub(crate) fn read_ahead(&mut self, is_allowed: bool) {
        self.reads_ahead = is_allowed;
    }

    /// The record by which the side that connects shows that it has its key. It is the first of its direction.
    pub(crate) fn confirmation(&mut self) -> [u8; CONFIRMATION_BYTES] {
        self.seal(&[]);
        let record = self.outgoing[..self.ready].try_into().expect("a record without content");
        self.ready = 0;
        record
    }

    /// Whether this is the other side's confirmation.
    #[must_use]
    pub(crate) fn confirms(&mut self, record: &[u8; CONFIRMATION_BYTES]) -> bool {
        let nonce = self.next_opened();
        record[..LENGTH_BYTES] == (TAG_BYTES as u16).to_le_bytes()
            && self.state.read_message(nonce, &record[LENGTH_BYTES..], &mut self.plain).is_ok()
    }

    /// Writes the beginning of a stream through `write`, which takes records. Bytes count as moved when all of their record are sent:
    /// until then the caller must offer the same bytes again.
    pub(crate) fn write(
        &mut self,
        slices: &[IoSlice<'_>],
        mut write: impl FnMut(&[IoSlice<'_>]) -> Moved,
    ) -> Moved {
        if self.ready == 0 {
            self.taken = 0;
            for chunk in slices.iter().flat_map(|slice| slice.chunks(RECORD_BYTES)) {
                if self.ready + LENGTH_BYTES + chunk.len() + TAG_BYTES > BATCH_BYTES {
                    break;
                }
                self.seal(chunk);
                self.taken += chunk.len();
            }
        }
        while self.sent < self.ready {
            match write(&[IoSlice::new(&self.outgoing[self.sent..self.ready])]) {
                Moved::Bytes(bytes) => self.sent += bytes,
                other => return other,
            }
        }
        (self.sent, self.ready) = (0, 0);
        Moved::Bytes(self.taken)
    }

    /// Reads the beginning of a stream through `read`, which fills a slice with records.
    pub(crate) fn read(&mut self, into: &mut [u8], mut read: impl FnMut(&mut [u8]) -> Moved) -> Moved {
        if self.plain_start < self.plain_end {
            return self.take_plain(into);
        }
        loop {
            match self.next_record() {
                Some(len) if into.len() >= len => match self.open(len, Some(&mut *into)) {
                    Some(0) => {}
                    Some(bytes) => return Moved::Bytes(bytes),
                    None => return Moved::Damaged,
                },
                Some(len) => match self.open(len, None) {
                    Some(0) => {}
                    Some(bytes) => {
                        (self.plain_start, self.plain_end) = (0, bytes);
                        return self.take_plain(into);
                    }
                    None => return Moved::Damaged,
                },
                None => {
                    self.incoming.copy_within(self.start..self.end, 0);
                    (self.start, self.end) = (0, self.end - self.start);
                    if self.has_bad_length() {
                        return Moved::Damaged;
                    }
                    let end = if self.reads_ahead { BATCH_BYTES } else { self.record_end() };
                    match read(&mut self.incoming[self.end..end]) {
                        Moved::Bytes(bytes) => self.end += bytes,
                        other => return other,
                    }
                }
            }
        }
    }

    fn take_plain(&mut self, into: &mut [u8]) -> Moved {
        let len = into.len().min(self.plain_end - self.plain_start);
        into[..len].copy_from_slice(&self.plain[self.plain_start..self.plain_start + len]);
        self.plain_start += len;
        Moved::Bytes(len)
    }

    fn seal(&mut self, content: &[u8]) {
        let nonce = self.sealed;
        if nonce > 0 && nonce.is_multiple_of(self.rekey_records) {
            self.state.rekey_outgoing();
        }
        self.sealed += 1;
        let len = content.len() + TAG_BYTES;
        let (length, record) = self.outgoing[self.ready..].split_at_mut(LENGTH_BYTES);
        length.copy_from_slice(&u16::try_from(len).expect("a short record").to_le_bytes());
        self.ready += LENGTH_BYTES + len;
        self.state.write_message(nonce, content, record).expect("a short record, and few of them");
    }

    /// Bytes of the next record without its length, if it has come whole.
    fn next_record(&self) -> Option<usize> {
        let come = &self.incoming[self.start..self.end];
        let len = usize::from(u16::from_le_bytes(*come.first_chunk()?));
        (come.len() >= LENGTH_BYTES + len).then_some(len)
    }

    /// End of the next record, which is at the beginning of the buffer, or of its length while that is not known.
    fn record_end(&self) -> usize {
        let length = self.incoming[..self.end].first_chunk().map_or(0, |len| u16::from_le_bytes(*len));
        LENGTH_BYTES + usize::from(length)
    }

    /// Whether the next record is longer than any.
    fn has_bad_length(&self) -> bool {
        let come = &self.incoming[self.start..self.end];
        come.first_chunk()
            .is_some_and(|len| usize::from(u16::from_le_bytes(*len)) > SEALED_BYTES - LENGTH_BYTES)
    }

    /// Opens the next record. `None` if it is not the one that the other side sealed.
    fn open(&mut self, len: usize, into: Option<&mut [u8]>) -> Option<usize> {
        let nonce = self.next_opened();
        let record = &self.incoming[self.start + LENGTH_BYTES..self.start + LENGTH_BYTES + len];
        self.start += LENGTH_BYTES + len;
        let plain = into.unwrap_or(&mut self.plain);
        (len <= RECORD_BYTES + TAG_BYTES)
            .then(|| self.state.read_message(nonce, record, plain).ok())
            .flatten()
    }

    fn next_opened(&mut self) -> u64 {
        let nonce = self.opened;
        if nonce > 0 && nonce.is_multiple_of(self.rekey_records) {
            self.state.rekey_incoming();
        }
        self.opened += 1;
        nonce
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::GroupKey;
    use crate::security::{Handshake, Keys};

    fn connection() -> (Seal, Seal) {
        let keys = Keys::Group(GroupKey::generate().unwrap());
        let mut initiator = Handshake::initiator(&keys, 1, b"").unwrap();
        let mut responder = Handshake::responder(&keys, 0, b"").unwrap();
        assert!(responder.read(&initiator.write()) && initiator.read(&responder.write()));
        (initiator.finish(), responder.finish())
    }

    /// Sends `content` in parts of some sizes. Returns what arrives, or `None` if it was damaged.
    fn carry(
        sender: &mut Seal,
        receiver: &mut Seal,
        content: &[u8],
        sizes: &[usize],
        damage: &mut impl FnMut(&mut VecDeque<u8>),
    ) -> Option<Vec<u8>> {
        let mut socket = VecDeque::new();
        let (mut moved, mut arrived) = (0, Vec::new());
        let mut sizes = sizes.iter().copied().cycle();
        while arrived.len() < content.len() {
            let (head, tail) = content[moved..].split_at((content.len() - moved).min(48));
            if moved < content.len() {
                let mut room = sizes.next().unwrap();
                let answer = sender.write(&[IoSlice::new(head), IoSlice::new(tail)], |slices| {
                    let bytes = room.min(slices[0].len());
                    socket.extend(&slices[0][..bytes]);
                    room -= bytes;
                    if bytes == 0 { Moved::Later } else { Moved::Bytes(bytes) }
                });
                if let Moved::Bytes(bytes) = answer {
                    moved += bytes;
                }
                damage(&mut socket);
            }
            let mut into = vec![0; sizes.next().unwrap()];
            loop {
                let answer = receiver.read(&mut into, |into| {
                    let bytes = into.len().min(socket.len());
                    into[..bytes].iter_mut().zip(socket.drain(..bytes)).for_each(|(into, byte)| *into = byte);
                    if bytes == 0 { Moved::Later } else { Moved::Bytes(bytes) }
                });
                match answer {
                    Moved::Bytes(bytes) => arrived.extend_from_slice(&into[..bytes]),
                    Moved::Later if moved == content.len() && arrived.len() < content.len() => return None,
                    Moved::Later => break,
                    _ => return None,
                }
                if arrived.len() >= content.len() {
                    break;
                }
            }
        }
        Some(arrived)
    }

    proptest! {
        #[test]
        fn a_stream_arrives_as_it_was_sent(
            len in 1usize..300_000,
            sizes in prop::collection::vec(1usize..200_000, 1..8),
            rekey in 1u64..5,
        ) {
            let (mut sender, mut receiver) = connection();
            (sender.rekey_records, receiver.rekey_records) = (rekey, rekey);
            let content: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            for _ in 0..2 {
                let arrived = carry(&mut sender, &mut receiver, &content, &sizes, &mut |_| {});
                prop_assert!(arrived.as_ref() == Some(&content));
                std::mem::swap(&mut sender, &mut receiver);
            }
        }

        #[test]
        fn a_damaged_stream_does_not_open(len in 1usize..200_000, at in any::<prop::sample::Index>(), kind in 0..3) {
            let (mut sender, mut receiver) = connection();
            let content = vec![7; len];
            let mut is_damaged = false;
            let arrived = carry(&mut sender, &mut receiver, &content, &[SEALED_BYTES], &mut |socket| {
                if is_damaged || socket.len() < 40 {
                    return;
                }
                is_damaged = true;
                let at = at.index(socket.len());
                match kind {
                    0 => socket[at] ^= 1,
                    1 => drop(socket.remove(at)),
                    _ => socket.insert(at, socket[at]),
                }
            });
            // A byte that is repeated at the very end comes after all records.
            prop_assert!(arrived.is_none() || !is_damaged || kind == 2);
            prop_assert!(arrived.is_none_or(|arrived| arrived == content));
        }
    }

    #[test]
    fn nothing_behind_the_record_is_read_unless_that_is_allowed() {
        let (mut sender, mut receiver) = connection();
        let mut socket = VecDeque::new();
        let moved = sender.write(&[IoSlice::new(b"the last record")], |slices| {
            socket.extend(&slices[0][..]);
            Moved::Bytes(slices[0].len())
        });
        assert_eq!(moved, Moved::Bytes(15));
        socket.extend(b"not encrypted");
        receiver.read_ahead(false);
        let mut into = [0; 15];
        let moved = receiver.read(&mut into, |into| {
            let bytes = into.len().min(socket.len());
            into[..bytes].iter_mut().zip(socket.drain(..bytes)).for_each(|(into, byte)| *into = byte);
            Moved::Bytes(bytes)
        });
        assert_eq!((moved, &into[..]), (Moved::Bytes(15), &b"the last record"[..]));
        assert_eq!(socket, b"not encrypted");
    }

    #[test]
    fn a_record_opens_once_and_in_its_place() {
        let (mut sender, mut receiver) = connection();
        let records = [sender.confirmation(), sender.confirmation()];
        assert!(!receiver.confirms(&records[1]), "the second record is not the first");
        let (mut sender, mut receiver) = connection();
        let record = sender.confirmation();
        assert!(receiver.confirms(&record) && !receiver.confirms(&record));
    }
}
