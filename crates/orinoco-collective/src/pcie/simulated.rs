//! Rings and meetings on a bus with posted writes, in virtual time: what arrives is what was sent, whatever was in the window before,
//! and whatever another rank writes into it.

use std::cell::RefCell;
use std::io::IoSlice;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use orinoco_core::{Nanos, Rng};
use orinoco_sim::{Simulator, Task, check_seeds};

use super::layout::Layout;
use super::meeting::{JoinAttempt, Meetings};
use super::posted::{Board, Bus, Order};
use super::window_ring::{Ends, Ring, Rings};
use crate::message::Moved;
use crate::security::Keys;
use crate::{GroupKey, JoinError};

/// Time by which all that ranks do is done.
const END: Nanos = Nanos(1_000_000_000);

fn layout(ranks: usize) -> Layout {
    Layout::new(ranks, Layout::least_bytes(ranks) as u64).expect("the least window")
}

fn bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.u8(..)).collect()
}

/// A rank that sends bytes to another, and receives others from it.
struct Talker {
    board: Board,
    ends: Ends,
    outgoing: Vec<u8>,
    sent: usize,
    incoming: Vec<u8>,
}

impl Talker {
    fn new(bus: &Rc<RefCell<Bus>>, rank: usize, tag: u32, outgoing: Vec<u8>) -> Self {
        let board = Board { bus: Rc::clone(bus), rank };
        let ends = layout(2).rings(rank, 1 - rank, tag).messages;
        Self { board, ends, outgoing, sent: 0, incoming: Vec::new() }
    }

    /// Sends and receives some bytes. `None` if the ring is damaged.
    fn step(&mut self, rng: &mut Rng) -> Option<()> {
        let rest = &self.outgoing[self.sent..];
        if !rest.is_empty() && rng.bool() {
            let some = &rest[..rest.len().min(1 + rng.usize(..6000))];
            let (first, second) = some.split_at(rng.usize(..some.len() + 1));
            match self.ends.outgoing.write(&self.board, &[IoSlice::new(first), IoSlice::new(second)]) {
                Moved::Bytes(count) => self.sent += count,
                Moved::Later => {}
                Moved::Closed | Moved::Damaged => return None,
            }
        }
        if rng.bool() {
            let mut into = vec![0; 1 + rng.usize(..3000)];
            match self.ends.incoming.read(&self.board, &mut into) {
                Moved::Bytes(count) => self.incoming.extend_from_slice(&into[..count]),
                Moved::Later => {}
                Moved::Closed | Moved::Damaged => return None,
            }
        }
        Some(())
    }
}

/// Two ranks exchange bytes. Returns whether they came as they were sent.
fn exchange(simulator: &mut Simulator, order: Order) -> bool {
    let rng = simulator.rng();
    let (seed, tag) = (rng.u64(..), rng.u32(..));
    // Half of the positions wrap around soon.
    let tag = if rng.bool() { u32::MAX - tag % 10_000 } else { tag };
    let bus = Bus::new(2, layout(2).bytes(), order, seed);
    for (from, to) in [(0, 1), (1, 0)] {
        for word in layout(2).words(from, to) {
            bus.borrow_mut().memory[word..word + 8].copy_from_slice(&Ring::first_word(tag).to_le_bytes());
        }
    }
    let mut ranks = [0, 1].map(|rank| {
        let len = rng.usize(..30_000);
        Talker::new(&bus, rank, tag, bytes(rng, len))
    });
    let tasks: Vec<Task> = ranks.iter().map(|_| simulator.add_task()).collect();
    let is_done =
        |ranks: &[Talker; 2]| (0..2).all(|rank| ranks[rank].incoming.len() >= ranks[1 - rank].outgoing.len());
    while let Some(task) = simulator.next(END) {
        bus.borrow_mut().now = simulator.now();
        if ranks[task.index()].step(simulator.rng()).is_none() {
            return false;
        }
        if is_done(&ranks) {
            break;
        }
        let next = simulator.now() + Duration::from_micros(1 + simulator.rng().u64(..40));
        simulator.wait(tasks[task.index()], Some(next));
    }
    (0..2).all(|rank| ranks[rank].incoming == ranks[1 - rank].outgoing)
}

#[test]
fn bytes_arrive_as_they_were_sent() {
    check_seeds(2000, |simulator| assert!(exchange(simulator, Order::Kept)));
}

/// The model is worth something only if it finds a ring without fences.
#[test]
fn without_order_bytes_are_torn() {
    let torn = (0..100).filter(|seed| !exchange(&mut Simulator::new(*seed), Order::Ignored)).count();
    assert!(torn > 90, "{torn} of 100");
}

/// Two ends of a ring with a tag, and a bus on which the words say something else.
fn ends_with(words: [u64; 2], tag: u32) -> (Board, Ends) {
    let bus = Bus::new(2, layout(2).bytes(), Order::Kept, 1);
    let [written, taken, ..] = layout(2).words(1, 0);
    for (place, word) in [(written, words[0]), (taken, words[1])] {
        bus.borrow_mut().memory[place..place + 8].copy_from_slice(&word.to_le_bytes());
    }
    (Board { bus, rank: 0 }, layout(2).rings(0, 1, tag).messages)
}

#[test]
fn impossible_positions_are_damage() {
    const TAG: u32 = u32::MAX - 5;
    let word = |tag: u32, ahead: u32| u64::from(tag) << 32 | u64::from(TAG.wrapping_add(ahead));
    let first = Ring::first_word(TAG);
    let read = |written: u64| {
        let (board, mut ends) = ends_with([written, first], TAG);
        ends.incoming.read(&board, &mut [0; 100])
    };
    assert_eq!(read(word(TAG, 0)), Moved::Later);
    assert_eq!(read(word(TAG, 30)), Moved::Bytes(30));
    assert_eq!(read(word(TAG, 4096)), Moved::Bytes(100));
    for written in [word(TAG, 4097), word(TAG, u32::MAX), word(TAG - 1, 30), 0, u64::MAX] {
        assert_eq!(read(written), Moved::Damaged, "{written:#x}");
    }
    // Nothing was sent: no byte can have been taken.
    let write = |taken: u64| {
        let (board, mut ends) = ends_with([first, taken], TAG);
        let whole = vec![0; 4096];
        let slices = [IoSlice::new(&whole)];
        while let Moved::Bytes(_) = ends.outgoing.write(&board, &slices) {}
        ends.outgoing.write(&board, &slices)
    };
    assert_eq!(write(first), Moved::Later);
    for taken in [word(TAG, 4097), word(TAG, u32::MAX), word(TAG ^ 1, 0), 0, u64::MAX] {
        assert_eq!(write(taken), Moved::Damaged, "{taken:#x}");
    }
}

#[test]
fn whatever_is_written_into_an_inbox_is_bytes_or_damage() {
    check_seeds(2000, |simulator| {
        let rng = simulator.rng();
        let tag = rng.u32(..);
        let (board, mut ends) = ends_with([Ring::first_word(tag); 2], tag);
        let [written, taken, ..] = layout(2).words(1, 0);
        let mut is_damaged = [false; 2];
        for _ in 0..200 {
            let place = [written, taken][rng.usize(..2)];
            let word = match rng.u32(..4) {
                0 => rng.u64(..),
                // Often near the truth.
                1 => u64::from(tag) << 32 | u64::from(rng.u32(..)),
                _ => u64::from(tag) << 32 | u64::from(tag.wrapping_add(rng.u32(..6000))),
            };
            board.bus.borrow_mut().memory[place..place + 8].copy_from_slice(&word.to_le_bytes());
            let (out, mut into) = (bytes(rng, 2000), vec![0; 1 + rng.usize(..5000)]);
            let moved =
                [ends.outgoing.write(&board, &[IoSlice::new(&out)]), ends.incoming.read(&board, &mut into)];
            for (moved, is_damaged) in moved.into_iter().zip(&mut is_damaged) {
                assert!(moved != Moved::Closed && moved != Moved::Bytes(0));
                assert!(!*is_damaged || moved == Moved::Damaged, "damage does not heal");
                *is_damaged = moved == Moved::Damaged;
            }
        }
    });
}

/// All ranks meet, each with its keys.
fn meet(simulator: &mut Simulator, bus: &Rc<RefCell<Bus>>, keys: &[Keys]) -> Vec<Ended> {
    let all: Vec<usize> = (0..keys.len()).collect();
    meet_as(simulator, bus, keys, &all)
}

/// Some ranks meet. Returns what became of each: its rings, an error, or nothing until the end.
fn meet_as(
    simulator: &mut Simulator,
    bus: &Rc<RefCell<Bus>>,
    keys: &[Keys],
    present: &[usize],
) -> Vec<Ended> {
    let ranks = keys.len();
    let (start, passed) = (bus.borrow().now, simulator.now());
    let mut meetings: Vec<Option<Meetings<'_>>> = keys.iter().map(|_| None).collect();
    let mut ended: Vec<Ended> = keys.iter().map(|_| None).collect();
    let tasks: Vec<Task> = present.iter().map(|_| simulator.add_task()).collect();
    let first = tasks[0].index();
    let end = passed + Duration::from_millis(20);
    while let Some(task) = simulator.next(end) {
        let rank = present[task.index() - first];
        bus.borrow_mut().now = Nanos(start.0 + simulator.now().0 - passed.0);
        let board = Board { bus: Rc::clone(bus), rank };
        let nonce = simulator.rng().u64(1..);
        let meeting = meetings[rank].get_or_insert_with(|| {
            let (layout, keys, path) = (layout(ranks), keys[rank].clone(), Path::new("window"));
            Meetings::begin(JoinAttempt { path, rank, ranks, layout, keys, settings: 7, nonce }, &board)
        });
        match meeting.step(&board) {
            Ok(missing) if missing.is_empty() => {
                ended[rank] = Some(Ok(meetings[rank].take().expect("its meeting").finish()));
                continue;
            }
            Ok(_) => {}
            Err(error) => {
                ended[rank] = Some(Err(error));
                continue;
            }
        }
        let next = simulator.now() + Duration::from_micros(1 + simulator.rng().u64(..400));
        simulator.wait(task, Some(next));
    }
    ended
}

/// Sends a few bytes from each rank to each, over both kinds of rings.
fn talk(bus: &Rc<RefCell<Bus>>, rings: &mut [Vec<Option<Rings>>]) {
    let pairs: Vec<(usize, usize)> = (0..rings.len())
        .flat_map(|from| (0..rings.len()).map(move |to| (from, to)))
        .filter(|(from, to)| from != to)
        .collect();
    for (from, to) in &pairs {
        let board = Board { bus: Rc::clone(bus), rank: *from };
        let Rings { messages, notices } = rings[*from][*to].as_mut().expect("a peer's rings");
        let word = [*from as u8, *to as u8, 9];
        assert!(messages.outgoing.write_whole(&board, &word) && notices.outgoing.write_whole(&board, &word));
    }
    bus.borrow_mut().now = Nanos(u64::MAX / 2);
    for (from, to) in &pairs {
        let board = Board { bus: Rc::clone(bus), rank: *to };
        let Rings { messages, notices } = rings[*to][*from].as_mut().expect("a peer's rings");
        for ends in [messages, notices] {
            let mut word = [0; 10];
            assert_eq!(ends.incoming.read(&board, &mut word), Moved::Bytes(3));
            assert_eq!(word[..3], [*from as u8, *to as u8, 9]);
        }
    }
}

type Ended = Option<Result<Vec<Option<Rings>>, JoinError>>;

fn all_met(ended: Vec<Ended>) -> Vec<Vec<Option<Rings>>> {
    let met = |ended: Ended| ended.expect("an end").unwrap_or_else(|error| panic!("{error}"));
    ended.into_iter().map(met).collect()
}

#[test]
fn ranks_meet_whatever_is_in_the_window() {
    check_seeds(100, |simulator| {
        let key = Keys::Group(GroupKey::generate().expect("a key"));
        let rng = simulator.rng();
        let (ranks, seed) = (rng.usize(2..5), rng.u64(..));
        let bus = Bus::new(4, layout(4).bytes(), Order::Kept, seed);
        if rng.bool() {
            let noise = bytes(rng, layout(4).bytes());
            bus.borrow_mut().memory = noise;
        }
        // The second group finds what the first has left, perhaps of other ranks.
        for ranks in [ranks, rng.usize(2..5)] {
            bus.borrow_mut().reuse(ranks);
            let mut rings = all_met(meet(simulator, &bus, &vec![key.clone(); ranks]));
            talk(&bus, &mut rings);
        }
    });
}

#[test]
fn an_earlier_group_is_not_met() {
    check_seeds(100, |simulator| {
        let seed = simulator.rng().u64(..);
        let bus = Bus::new(3, layout(3).bytes(), Order::Kept, seed);
        all_met(meet(simulator, &bus, &[const { Keys::Plaintext }; 3]));
        bus.borrow_mut().reuse(3);
        // All that the other ranks have left is right, but old.
        let ended = meet_as(simulator, &bus, &[const { Keys::Plaintext }; 3], &[0, 2]);
        assert!(ended.iter().all(Option::is_none), "rank 1 has not come");
    });
}

#[test]
fn a_rank_that_comes_again_leaves_what_it_has_sent() {
    check_seeds(100, |simulator| {
        let seed = simulator.rng().u64(..);
        let bus = Bus::new(2, layout(2).bytes(), Order::Kept, seed);
        let keys = [const { Keys::Plaintext }; 2];
        let mut rings = all_met(meet(simulator, &bus, &keys));
        let sender = Board { bus: Rc::clone(&bus), rank: 0 };
        let Rings { messages, notices } = rings[0][1].as_mut().expect("a peer's rings");
        for ends in [messages, notices] {
            assert!(ends.outgoing.write_whole(&sender, &[1, 2, 3]));
        }
        assert!(meet_as(simulator, &bus, &keys, &[0])[0].is_none(), "rank 1 is in the first group");
        bus.borrow_mut().now = Nanos(u64::MAX / 2);
        let receiver = Board { bus: Rc::clone(&bus), rank: 1 };
        let Rings { messages, notices } = rings[1][0].as_mut().expect("a peer's rings");
        for ends in [messages, notices] {
            assert_eq!(ends.incoming.read(&receiver, &mut [0; 10]), Moved::Bytes(3));
        }
    });
}

#[test]
fn a_rank_with_another_key_is_named() {
    check_seeds(100, |simulator| {
        let keys = [0, 1].map(|_| Keys::Group(GroupKey::generate().expect("a key")));
        let rng = simulator.rng();
        let (seed, stranger) = (rng.u64(..), rng.usize(..3));
        let bus = Bus::new(3, layout(3).bytes(), Order::Kept, seed);
        let of_rank = |rank: usize| keys[usize::from(rank == stranger)].clone();
        let ended = meet(simulator, &bus, &[0, 1, 2].map(of_rank));
        let mut named = 0;
        for (rank, ended) in ended.iter().enumerate() {
            match ended {
                None => {}
                Some(Ok(_)) => panic!("rank {rank} has met rank {stranger}"),
                Some(Err(
                    JoinError::WrongKey { rank: other, .. } | JoinError::Refused { rank: other, .. },
                )) => {
                    assert!(rank == stranger || *other == stranger, "rank {rank} names rank {other}");
                    named += 1;
                }
                Some(Err(error)) => panic!("rank {rank}: {error}"),
            }
        }
        assert!(named >= 2, "the stranger, and who has met it first");
    });
}
