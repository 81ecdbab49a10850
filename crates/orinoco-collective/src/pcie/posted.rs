//! A model of a window on a bus: what a rank writes is posted, and others see it later.
//!
//! Writes travel in parts of 4 or 8 bytes. Parts that one rank has written before a word is published arrive before that word, and the
//! word before all later parts; between two published words they arrive in any order, as from a write-combining mapping or with
//! relaxed ordering. Parts of different ranks are not ordered at all. The model also watches that each word has one writer and one
//! reader, and that no rank reads what it writes.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use orinoco_core::{Nanos, Rng};

use super::window::Window;

/// Longest time until a part arrives, unless one before it takes longer.
const DELAY_MAX_US: u64 = 60;
/// Bytes for which the model knows writer and reader.
const UNIT: usize = 4;

/// Whether words are published in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Kept,
    /// As if the fences were forgotten.
    Ignored,
}

/// The bus and the memory behind it.
pub(super) struct Bus {
    pub(super) now: Nanos,
    pub(super) memory: Vec<u8>,
    rng: Rng,
    order: Order,
    requesters: Vec<Requester>,
    /// Writer and reader of each unit, once there is one.
    users: Vec<[Option<usize>; 2]>,
}

#[derive(Default, Clone)]
struct Requester {
    /// Parts under way, in the order in which they were written.
    parts: Vec<Part>,
    /// Arrival of the last of all parts so far.
    latest: Nanos,
    /// No part that is written from now on arrives earlier.
    floor: Nanos,
}

#[derive(Clone)]
struct Part {
    arrival: Nanos,
    offset: usize,
    bytes: Vec<u8>,
}

impl Bus {
    pub(super) fn new(ranks: usize, bytes: usize, order: Order, seed: u64) -> Rc<RefCell<Self>> {
        Rc::new(RefCell::new(Self {
            now: Nanos(0),
            memory: vec![0; bytes],
            rng: Rng::with_seed(seed),
            order,
            requesters: vec![Requester::default(); ranks],
            users: vec![[None; 2]; bytes / UNIT],
        }))
    }

    /// Begins again with other ranks, in the memory as it is. All that is under way arrives.
    pub(super) fn reuse(&mut self, ranks: usize) {
        self.now = self.requesters.iter().map(|of| of.latest).max().unwrap_or_default();
        self.arrive();
        self.requesters = vec![Requester::default(); ranks];
        self.users.fill([None; 2]);
    }

    fn post(&mut self, rank: usize, offset: usize, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let at = offset + bytes.len() - rest.len();
            let size = if self.rng.bool() { 4 } else { 8 };
            let (part, after) = rest.split_at(rest.len().min(size - at % size));
            let arrival = self.now + Duration::from_micros(self.rng.u64(..DELAY_MAX_US));
            let requester = &mut self.requesters[rank];
            let arrival = arrival.max(requester.floor);
            requester.latest = requester.latest.max(arrival);
            requester.parts.push(Part { arrival, offset: at, bytes: part.to_vec() });
            rest = after;
        }
    }

    /// Everything that is written from now on arrives after all that was written before.
    fn fence(&mut self, rank: usize) {
        if self.order == Order::Kept {
            self.requesters[rank].floor = self.requesters[rank].latest;
        }
    }

    fn arrive(&mut self) {
        let now = self.now;
        for requester in &mut self.requesters {
            let mut due: Vec<Part> = requester.parts.extract_if(.., |part| part.arrival <= now).collect();
            // The sort is stable: of those that arrive at one time, the first that was written is the first.
            due.sort_by_key(|part| part.arrival);
            for Part { offset, bytes, .. } in due {
                self.memory[offset..offset + bytes.len()].copy_from_slice(&bytes);
            }
        }
    }

    /// Notes who writes (0) or reads (1) some bytes.
    fn note(&mut self, rank: usize, offset: usize, len: usize, reads: usize) {
        if len == 0 {
            return;
        }
        for unit in offset / UNIT..=(offset + len - 1) / UNIT {
            let users = &mut self.users[unit];
            let user = *users[reads].get_or_insert(rank);
            let at = unit * UNIT;
            assert_eq!(user, rank, "byte {at} has one {}", ["writer", "reader"][reads]);
            assert_ne!(users[1 - reads], Some(rank), "rank {rank} reads byte {at}, which it writes");
        }
    }
}

/// A rank's access to the bus.
pub(super) struct Board {
    pub(super) bus: Rc<RefCell<Bus>>,
    pub(super) rank: usize,
}

impl Window for Board {
    fn load(&self, offset: usize) -> u64 {
        let mut word = [0; 8];
        self.read(offset, &mut word);
        u64::from_le_bytes(word)
    }

    fn publish(&self, offset: usize, word: u64) {
        assert!(offset.is_multiple_of(8), "a word at {offset}");
        self.bus.borrow_mut().fence(self.rank);
        self.write(offset, &word.to_le_bytes());
        self.bus.borrow_mut().fence(self.rank);
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        let mut bus = self.bus.borrow_mut();
        bus.arrive();
        bus.note(self.rank, offset, into.len(), 1);
        into.copy_from_slice(&bus.memory[offset..offset + into.len()]);
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        let mut bus = self.bus.borrow_mut();
        assert!(offset + bytes.len() <= bus.memory.len(), "{} bytes at {offset}", bytes.len());
        bus.note(self.rank, offset, bytes.len(), 0);
        bus.post(self.rank, offset, bytes);
    }
}
