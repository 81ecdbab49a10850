//! Groups of ranks whose devices are simulated: writes arrive after any time, in the order of their queue pair.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use orinoco_core::Rng;
use orinoco_sim::check_seeds;
use zerocopy::IntoBytes;

use super::announcement::{ANNOUNCEMENT_BYTES, Announcement, DIRECT_BYTES};
use super::device::{Completion, Device, Direct, What, Window, Write};
use super::flow::{ANNOUNCEMENTS_MAX, ARRIVALS_MAX, Area, RING_BYTES};
use super::links::Links;
use crate::message::simulated::calls::{Planned, Vectors};
use crate::message::simulated::random_call;
use crate::message::{
    Engine, LinkFault, MappedMemory, Memory, MessageId, OperationPlan, Refusal, VectorMemory,
};
use crate::{Algorithm, Collective, DataType, ReduceOp, Topology};

/// Steps of a run that ends: no run takes as many by far.
const STEPS_MAX: usize = 2_000_000;

/// All devices, and what is on its way between them.
#[derive(Default)]
struct Fabric {
    /// Memory of the links, by rank and peer.
    memory: BTreeMap<(usize, usize), LinkMemory>,
    /// Registered memory and its owner. Its key is its place.
    vectors: Vec<(usize, Arc<MappedMemory>)>,
    /// Writes on their way, by sender and receiver.
    writes: BTreeMap<(usize, usize), VecDeque<Write>>,
    /// Number of writes that have arrived, by sender and receiver.
    arrived: BTreeMap<(usize, usize), u32>,
    /// Receives that are posted, by receiver and sender.
    receives: BTreeMap<(usize, usize), usize>,
    completions: Vec<VecDeque<Completion>>,
    /// Ranks whose queue pairs are broken.
    broken: Option<(usize, usize)>,
    /// Windows that are open, by owner, peer and place.
    windows: BTreeMap<(usize, usize, usize), Window>,
    /// Key of the last window.
    key: Cell<u32>,
    direct_bytes: usize,
    copied_bytes: usize,
}

struct LinkMemory {
    ring: Vec<u8>,
    announcements: [[u8; ANNOUNCEMENT_BYTES]; ANNOUNCEMENTS_MAX],
    staging: Vec<u8>,
    staged_announcements: [[u8; ANNOUNCEMENT_BYTES]; ANNOUNCEMENTS_MAX],
}

impl Fabric {
    fn new(ranks: usize) -> Self {
        let pairs = (0..ranks).flat_map(|rank| (0..ranks).map(move |peer| (rank, peer)));
        let memory = || LinkMemory {
            ring: vec![0; RING_BYTES],
            announcements: [[0; _]; _],
            staging: vec![0; RING_BYTES],
            staged_announcements: [[0; _]; _],
        };
        Self {
            memory: pairs.clone().map(|pair| (pair, memory())).collect(),
            receives: pairs.map(|pair| (pair, ARRIVALS_MAX)).collect(),
            completions: vec![VecDeque::new(); ranks],
            ..Self::default()
        }
    }

    /// Lets the next write between two ranks arrive: its bytes are those that are there now.
    fn deliver(&mut self, (from, to): (usize, usize)) {
        let Some(write) = self.writes.get_mut(&(from, to)).and_then(VecDeque::pop_front) else { return };
        let written = write.frees.map(|freed| Completion::Written { peer: to, freed });
        match write.what {
            What::Ring(Area { start, len }) => {
                let bytes = self.memory[&(from, to)].staging[start..start + len].to_vec();
                self.target(from, to).ring[start..start + len].copy_from_slice(&bytes);
            }
            What::Announcement(place) => {
                let bytes = self.memory[&(from, to)].staged_announcements[place];
                self.target(from, to).announcements[place] = bytes;
            }
            What::Direct(direct) if !self.write_direct(from, to, direct) => {
                return self.break_pair(from, to);
            }
            What::Direct(_) => {}
            What::Open(window) => {
                let before = self.windows.insert((from, to, window.place), window);
                assert_eq!(before, None, "the window in that place is closed");
                return self.completions[from].extend(written);
            }
            What::Close(place) => {
                assert!(self.windows.remove(&(from, to, place)).is_some(), "the window is open");
                return self.completions[from].extend(written);
            }
        }
        *self.arrived.entry((from, to)).or_default() += 1;
        let posted = self.receives.get_mut(&(to, from)).unwrap();
        *posted = posted.checked_sub(1).expect("a receive is posted for every write");
        self.completions[to].push_back(Completion::Arrived { peer: from, immediate: write.immediate });
        self.completions[from].extend(written);
    }

    /// Writes bytes of a vector through a window. Returns whether that is open.
    fn write_direct(&mut self, from: usize, to: usize, direct: Direct) -> bool {
        let end = direct.to + direct.len as u64;
        let is_open = self.windows.iter().any(|((owner, peer, _), window)| {
            (*owner, *peer, window.key) == (to, from, direct.to_key)
                && window.address <= direct.to
                && end <= window.address + window.len as u64
        });
        if is_open {
            let mut bytes = vec![0; direct.len];
            let (owner, source) = &self.vectors[direct.from_key as usize];
            assert_eq!(*owner, from, "a key of the rank's own memory");
            source.read(direct.from, &mut bytes);
            let (_, target) = self.vectors_at(to, direct.to, direct.len).expect("memory of the window");
            target.write(direct.to, &bytes);
            self.direct_bytes += direct.len;
        }
        is_open
    }

    /// Memory of one rank that another writes to.
    fn target(&mut self, from: usize, to: usize) -> &mut LinkMemory {
        self.memory.get_mut(&(to, from)).unwrap()
    }

    /// Registered memory of a rank that has these bytes, and its key.
    fn vectors_at(&self, rank: usize, address: u64, len: usize) -> Option<(u32, &MappedMemory)> {
        let mut all = self.vectors.iter().zip(0..);
        let is_at =
            |owner: usize, memory: &MappedMemory| owner == rank && memory.holds(address as usize, len);
        all.find_map(|((owner, memory), key)| is_at(*owner, memory).then_some((key, &**memory)))
    }

    fn break_pair(&mut self, first: usize, second: usize) {
        self.broken = Some((first, second));
        for (rank, peer) in [(first, second), (second, first)] {
            self.writes.remove(&(rank, peer));
            self.completions[rank].push_back(Completion::Broken { peer });
        }
    }
}

struct SimulatedDevice {
    rank: usize,
    fabric: Rc<RefCell<Fabric>>,
}

impl SimulatedDevice {
    fn with_memory<R>(&self, peer: usize, look: impl FnOnce(&mut LinkMemory) -> R) -> R {
        look(self.fabric.borrow_mut().memory.get_mut(&(self.rank, peer)).unwrap())
    }
}

impl Device for SimulatedDevice {
    fn post(&mut self, peer: usize, writes: &[Write]) -> io::Result<()> {
        let mut fabric = self.fabric.borrow_mut();
        let (rank, broken) = (self.rank, fabric.broken);
        if broken.is_some_and(|pair| pair == (rank, peer) || pair == (peer, rank)) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        fabric.writes.entry((rank, peer)).or_default().extend(writes);
        Ok(())
    }

    fn post_receives(&mut self, peer: usize, count: usize) -> io::Result<()> {
        *self.fabric.borrow_mut().receives.get_mut(&(self.rank, peer)).unwrap() += count;
        Ok(())
    }

    fn collect(&mut self, into: &mut Vec<Completion>) -> usize {
        let all = &mut self.fabric.borrow_mut().completions[self.rank];
        let count = all.len().min(super::device::COLLECTED_MAX);
        into.extend(all.drain(..count));
        count
    }

    fn stage(&mut self, peer: usize, start: usize, bytes: &[u8]) {
        self.with_memory(peer, |memory| memory.staging[start..start + bytes.len()].copy_from_slice(bytes));
        self.fabric.borrow_mut().copied_bytes += bytes.len();
    }

    fn unload(&mut self, peer: usize, start: usize, into: &mut [u8]) {
        self.with_memory(peer, |memory| into.copy_from_slice(&memory.ring[start..start + into.len()]));
        self.fabric.borrow_mut().copied_bytes += into.len();
    }

    fn stage_announcement(&mut self, peer: usize, place: usize, announcement: &[u8; ANNOUNCEMENT_BYTES]) {
        self.with_memory(peer, |memory| memory.staged_announcements[place] = *announcement);
    }

    fn announcement(&self, peer: usize, place: usize) -> [u8; ANNOUNCEMENT_BYTES] {
        self.with_memory(peer, |memory| memory.announcements[place])
    }

    fn key(&self, _: usize, bytes: &[u8]) -> Option<u32> {
        let fabric = self.fabric.borrow();
        let found = fabric.vectors_at(self.rank, bytes.as_ptr().addr() as u64, bytes.len());
        found.map(|(key, _)| key)
    }

    fn window(&self, _: usize, place: usize, bytes: &mut [u8]) -> Option<Window> {
        let fabric = self.fabric.borrow();
        let (address, len) = (bytes.as_mut_ptr().addr() as u64, bytes.len());
        fabric.vectors_at(self.rank, address, len)?;
        fabric.key.set(fabric.key.get() + 1);
        Some(Window { place, key: fabric.key.get(), address, len })
    }
}

/// Memory that the device knows, or does not.
enum Words {
    Ordinary(Vec<u64>),
    Registered(VectorMemory<u64>),
}

impl Words {
    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Ordinary(words) => words.as_mut_bytes(),
            Self::Registered(words) => words.as_mut_bytes(),
        }
    }
}

/// A call under way.
struct Running {
    vectors: Vectors,
    input: Option<Words>,
    output: Words,
    scratch: Words,
    partial: Words,
}

struct Rank {
    engine: Engine,
    links: Links,
    device: SimulatedDevice,
    /// Of eight memories, as many are registered.
    registered: u32,
    running: Option<Running>,
    done: usize,
    fault: Option<LinkFault>,
}

impl Rank {
    fn new(rank: usize, ranks: usize, fabric: &Rc<RefCell<Fabric>>, registered: u32) -> Self {
        let mut engine = Engine::new(rank, ranks, 1);
        engine.tell_of_messages_from(DIRECT_BYTES);
        Self {
            engine,
            links: Links::new((0..ranks).map(|peer| (peer != rank).then_some(peer))),
            device: SimulatedDevice { rank, fabric: Rc::clone(fabric) },
            registered,
            running: None,
            done: 0,
            fault: None,
        }
    }

    fn is_over(&self, calls: &[Planned]) -> bool {
        self.fault.is_some() || self.done == calls.len()
    }

    /// Begins the next call, or goes on with the one under way.
    fn step(&mut self, calls: &[Planned], rng: &mut Rng) {
        if self.is_over(calls) {
            self.links.collect(&mut self.device);
            return;
        }
        let planned = &calls[self.done];
        let (rank, ranks) = (self.engine.rank(), self.engine.ranks());
        match self.running.take() {
            None => self.begin(planned, rng),
            Some(mut running) => {
                let carried = self.links.carry(&mut self.engine, &mut running.memory(), &mut self.device);
                self.fault = carried.err();
                if self.fault.is_none() && self.engine.is_done() {
                    let bytes = running.vectors.output_bytes;
                    let output = running.output.bytes()[..bytes].to_vec();
                    running.vectors.output.as_mut_bytes()[..bytes].copy_from_slice(&output);
                    assert!(planned.is_right(&running.vectors, rank, ranks), "rank {rank} of {planned:?}");
                    assert!(!self.links.hold_vectors(), "rank {rank} of {planned:?} is done");
                    self.done += 1;
                } else {
                    self.running = Some(running);
                }
            }
        }
    }

    fn begin(&mut self, planned: &Planned, rng: &mut Rng) {
        let (rank, ranks) = (self.engine.rank(), self.engine.ranks());
        let topology = Topology::flat(ranks).with_weights(planned.weights.clone());
        let plan = OperationPlan::new(
            &planned.collective,
            planned.algorithm,
            &topology,
            rank,
            planned.kernel(),
            planned.piece,
        );
        let plan = Arc::new(plan.expect("an algorithm that has the operation"));
        let vectors = planned.vectors(rank, ranks);
        let mut running = Running {
            input: vectors.input.as_ref().map(|input| self.words(input.clone(), rng)),
            output: self.words(vectors.output.clone(), rng),
            scratch: self.words(vec![0; plan.scratch_bytes().div_ceil(8)], rng),
            partial: self.words(vec![0; plan.partial_bytes().div_ceil(8)], rng),
            vectors,
        };
        self.engine.begin(planned.call(), plan, &mut running.memory());
        self.running = Some(running);
    }

    /// Puts words into memory that is registered, or not.
    fn words(&self, words: Vec<u64>, rng: &mut Rng) -> Words {
        if rng.u32(..8) >= self.registered {
            return Words::Ordinary(words);
        }
        let (mut registered, memory) = VectorMemory::map(words.len()).unwrap();
        registered.copy_from_slice(&words);
        self.device.fabric.borrow_mut().vectors.push((self.engine.rank(), memory));
        Words::Registered(registered)
    }
}

impl Running {
    fn memory(&mut self) -> Memory<'_> {
        let Self { vectors, input, output, scratch, partial } = self;
        Memory {
            input: input.as_mut().map(|input| &input.bytes()[..vectors.input_bytes]),
            output: &mut output.bytes()[..vectors.output_bytes],
            scratch: scratch.bytes(),
            partial: partial.bytes(),
        }
    }
}

/// A group with its devices.
struct Group {
    fabric: Rc<RefCell<Fabric>>,
    ranks: Vec<Rank>,
}

impl Group {
    fn new(ranks: usize, registered: u32) -> Self {
        let fabric = Rc::new(RefCell::new(Fabric::new(ranks)));
        let ranks = (0..ranks).map(|rank| Rank::new(rank, ranks, &fabric, registered)).collect();
        Self { fabric, ranks }
    }

    /// Runs until all ranks are at their end.
    fn run(&mut self, calls: &[Planned], rng: &mut Rng) {
        for _ in 0..STEPS_MAX {
            if self.ranks.iter().all(|rank| rank.is_over(calls)) {
                return;
            }
            self.step(calls, rng);
        }
        let done: Vec<usize> = self.ranks.iter().map(|rank| rank.done).collect();
        panic!("the ranks hang after {done:?} calls of {calls:?}");
    }

    fn step(&mut self, calls: &[Planned], rng: &mut Rng) {
        let count = self.ranks.len();
        if rng.bool() {
            return self.ranks[rng.usize(..count)].step(calls, rng);
        }
        let mut fabric = self.fabric.borrow_mut();
        let busy = fabric.writes.iter().filter(|(_, writes)| !writes.is_empty()).map(|(pair, _)| *pair);
        let busy: Vec<(usize, usize)> = busy.collect();
        if !busy.is_empty() {
            fabric.deliver(busy[rng.usize(..busy.len())]);
        }
    }
}

#[test]
fn every_operation_is_exact_whatever_is_registered() {
    check_seeds(400, |simulator| {
        let rng = simulator.rng();
        let ranks = rng.usize(1..6);
        let calls: Vec<Planned> = (0..rng.usize(1..6)).map(|_| random_call(rng, ranks)).collect();
        let registered = [0, 4, 7, 8][rng.usize(..4)];
        let mut group = Group::new(ranks, registered);
        group.run(&calls, rng);
        assert!(group.ranks.iter().all(|rank| rank.fault.is_none()));
    });
}

#[test]
fn long_messages_between_registered_vectors_are_not_copied() {
    check_seeds(20, |simulator| {
        let rng = simulator.rng();
        let ranks = rng.usize(2..5);
        let of = |collective: Collective, algorithm, rng: &mut Rng| Planned {
            collective,
            data_type: DataType::F32,
            op: ReduceOp::Sum,
            algorithm,
            weights: vec![1; ranks],
            in_place: rng.bool(),
            piece: 8_000,
            seed: rng.u64(..),
        };
        let count = 40_000;
        let calls = [
            of(Collective::Broadcast { root: 0, count }, Algorithm::Chain, rng),
            of(Collective::AllReduce { count }, Algorithm::Direct, rng),
            of(Collective::AllGather { counts: vec![count; ranks] }, Algorithm::Ring, rng),
            of(Collective::Send { from: 0, to: 1, count }, Algorithm::Direct, rng),
        ];
        let mut group = Group::new(ranks, 8);
        group.run(&calls, rng);
        assert!(group.ranks.iter().all(|rank| rank.fault.is_none()));
        let fabric = group.fabric.borrow();
        let (direct, copied) = (fabric.direct_bytes, fabric.copied_bytes);
        // Headers are copied, and nothing else.
        assert!(direct > 0 && copied < direct / 50, "{copied} bytes of {direct} were copied");
    });
}

#[test]
fn a_link_that_breaks_ends_operations_at_both_ends() {
    check_seeds(400, |simulator| {
        let rng = simulator.rng();
        let calls: Vec<Planned> = (0..rng.usize(1..4)).map(|_| random_call(rng, 2)).collect();
        let mut group = Group::new(2, 6);
        let before = rng.usize(..2_000);
        for _ in 0..before {
            group.step(&calls, rng);
        }
        group.fabric.borrow_mut().break_pair(0, 1);
        group.run(&calls, rng);
        for rank in &group.ranks {
            assert!(matches!(rank.fault, None | Some(LinkFault::Closed { .. })), "{:?}", rank.fault);
        }
    });
}

/// The number is the right one, so that nothing else is wrong.
#[test]
fn a_direct_write_that_was_not_announced_is_refused() {
    check_seeds(20, |simulator| {
        let rng = simulator.rng();
        let call = Planned {
            collective: Collective::Send { from: 1, to: 0, count: 5_000 },
            algorithm: Algorithm::Direct,
            piece: 5_000,
            ..random_call(rng, 2)
        };
        let mut group = Group::new(2, 0);
        while group.ranks[0].engine.incoming_id(1).is_none() {
            group.step(std::slice::from_ref(&call), rng);
        }
        let number = group.fabric.borrow().arrived[&(1, 0)];
        let immediate = 0x7_fffe | number << 26;
        group.fabric.borrow_mut().completions[0].push_back(Completion::Arrived { peer: 1, immediate });
        group.ranks[0].step(&[call], rng);
        let refused = LinkFault::Refused { peer: 1, refusal: Refusal::Unexpected };
        assert_eq!(group.ranks[0].fault, Some(refused));
    });
}

/// Announcements are forged, so that the sender does not wait for those of the receiver.
#[test]
fn a_long_message_that_was_not_announced_is_refused() {
    check_seeds(20, |simulator| {
        let rng = simulator.rng();
        let call = Planned {
            collective: Collective::Send { from: 1, to: 0, count: 8 * 300 },
            data_type: DataType::U8,
            algorithm: Algorithm::Direct,
            piece: 300,
            ..random_call(rng, 2)
        };
        let calls = [call];
        let mut group = Group::new(2, 8);
        group.ranks.iter_mut().for_each(|rank| rank.step(&calls, rng));
        for piece in 0..8 {
            let id = MessageId { operation: 0, piece, message: 0 };
            let place = piece as usize % ANNOUNCEMENTS_MAX;
            let mut fabric = group.fabric.borrow_mut();
            fabric.target(0, 1).announcements[place] = Announcement { id, destination: None }.encode();
            let immediate = 0x7_ffff | piece << 26;
            fabric.completions[1].push_back(Completion::Arrived { peer: 0, immediate });
            drop(fabric);
            group.ranks[1].step(&calls, rng);
        }
        while !group.fabric.borrow().writes[&(1, 0)].is_empty() {
            group.fabric.borrow_mut().deliver((1, 0));
        }
        group.ranks[0].step(&calls, rng);
        let refused = LinkFault::Refused { peer: 1, refusal: Refusal::Unexpected };
        assert_eq!(group.ranks[0].fault, Some(refused));
    });
}

/// A peer that says what it likes: results are right, or the message is refused.
#[test]
fn writes_that_were_never_made_do_not_change_results() {
    check_seeds(400, |simulator| {
        let rng = simulator.rng();
        let calls: Vec<Planned> = (0..rng.usize(1..4)).map(|_| random_call(rng, 2)).collect();
        let mut group = Group::new(2, 6);
        for _ in 0..3_000 {
            group.step(&calls, rng);
            if rng.u32(..500) == 0 {
                let mut fabric = group.fabric.borrow_mut();
                let place = rng.usize(..ANNOUNCEMENTS_MAX);
                let other = fabric.memory[&(0, 1)].announcements[rng.usize(..ANNOUNCEMENTS_MAX)];
                fabric.target(1, 0).announcements[place] = other;
                let immediate = rng.u32(..) | [0, 0x7_ffff, 0x7_fffe][rng.usize(..3)];
                fabric.completions[0].push_back(Completion::Arrived { peer: 1, immediate });
            }
        }
        let fault = group.ranks[0].fault;
        let is_refused = matches!(
            fault,
            Some(LinkFault::Refused { refusal: Refusal::Damaged | Refusal::Unexpected, .. })
                | Some(LinkFault::Closed { .. })
        );
        assert!(fault.is_none() || is_refused, "{fault:?}");
    });
}
