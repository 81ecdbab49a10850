//! Executes schedules on links with costs, event by event.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::{Costs, LinkCosts, Links, Sizes};
use crate::partition::PIECES_ACTIVE;
use crate::{Local, Region, Round, Schedule, Topology, Transfer};

/// Times of ranks between two operations: an operation begins at each rank as soon as the one before has ended there.
pub(super) struct RankClocks {
    /// Time at which each rank ended its last operation.
    ended: Vec<f64>,
    /// Time until which each rank's outgoing port, incoming port and thread are busy.
    sending: Vec<f64>,
    receiving: Vec<f64>,
    working: Vec<f64>,
    /// Time until which each board's link to other boards is busy, out and in, at the place of the board's first rank: its ranks share it.
    uplink: Vec<f64>,
    downlink: Vec<f64>,
    /// Cores of each machine, where ranks share them.
    cores: Vec<Vec<Core>>,
}

impl RankClocks {
    /// Creates ranks that all begin at time 0, with nothing to do.
    pub(super) fn new(ranks: usize, costs: &Costs) -> Self {
        let idle = |cores: &usize| vec![Core { free: 0.0, last: usize::MAX }; (*cores).max(1)];
        Self {
            ended: vec![0.0; ranks],
            sending: vec![0.0; ranks],
            receiving: vec![0.0; ranks],
            working: vec![0.0; ranks],
            uplink: vec![0.0; ranks],
            downlink: vec![0.0; ranks],
            cores: costs.cores.iter().flat_map(|of| &of.cores).map(idle).collect(),
        }
    }

    /// Keeps a rank busy from time 0 on with something else.
    pub(super) fn delay(&mut self, rank: usize, seconds: f64, costs: &Costs) {
        (self.ended[rank], self.working[rank]) = (seconds, seconds);
        let machine = costs.cores.as_ref().map(|of| of.machines[rank]);
        if let Some(core) = machine.and_then(|machine| self.cores[machine].first_mut()) {
            *core = Core { free: seconds, last: rank };
        }
    }

    /// Time at which each rank ended its last operation.
    pub(super) fn times(&self) -> &[f64] {
        &self.ended
    }

    /// Time at which the last rank ended.
    pub(super) fn last(&self) -> f64 {
        self.ended.iter().copied().fold(0.0, f64::max)
    }

    /// Executes pieces of an operation, each with the schedule of every rank, and returns the number of messages. Pieces share ports and
    /// processors; as many are under way at a rank as in its engine.
    pub(super) fn run(
        &mut self,
        pieces: &[Vec<Schedule>],
        topology: &Topology,
        sizes: Sizes,
        costs: &Costs,
    ) -> usize {
        let ranks = topology.ranks();
        let mut simulation = Simulation {
            pieces,
            topology,
            boards: topology.first_ranks(),
            sizes,
            costs,
            unseen: vec![Some(Vec::new()); ranks],
            clocks: self,
            events: BinaryHeap::new(),
            number: 0,
            progress: pieces.iter().map(|piece| vec![Progress::default(); piece.len()]).collect(),
            mailboxes: pieces.iter().map(|piece| vec![Vec::new(); piece.len()]).collect(),
            windows: vec![Window::default(); ranks],
            messages: 0,
        };
        for rank in 0..ranks {
            simulation.slide(simulation.clocks.ended[rank], rank);
        }
        while let Some(Event { at, what, .. }) = simulation.events.pop() {
            match what {
                What::Begin { piece, rank } => simulation.begin(at, piece, rank),
                What::Arrive { piece, from, to, bytes } => simulation.arrive(at, piece, from, to, bytes),
            }
        }
        simulation.messages
    }
}

struct Simulation<'a> {
    pieces: &'a [Vec<Schedule>],
    topology: &'a Topology,
    /// The first rank on the board of each rank.
    boards: Vec<usize>,
    sizes: Sizes,
    costs: &'a Costs,
    clocks: &'a mut RankClocks,
    /// Messages that lie at each rank until it looks for the first one, which it does after what it sends before. Then `None`.
    unseen: Vec<Option<Vec<What>>>,
    events: BinaryHeap<Event>,
    /// Events so far.
    number: usize,
    progress: Vec<Vec<Progress>>,
    /// Messages that no round has taken, by piece and receiver: their senders and the times at which they arrived.
    mailboxes: Vec<Vec<Vec<(usize, f64)>>>,
    /// Pieces under way at each rank.
    windows: Vec<Window>,
    messages: usize,
}

#[derive(Clone, Default)]
struct Progress {
    round: usize,
    /// The round's messages are sent, and it waits for others.
    is_waiting: bool,
    /// Latest of what the round waits for, so far.
    ready: f64,
    /// Receives of the round that have arrived.
    taken: usize,
}

/// A core that ranks share.
#[derive(Clone)]
struct Core {
    /// Time until which the rank that used it last keeps it.
    free: f64,
    last: usize,
}

/// Pieces of a rank: those before `front` are done, those from `next` on have not begun.
#[derive(Clone, Copy, Default)]
struct Window {
    front: usize,
    next: usize,
}

struct Event {
    at: f64,
    /// Events at the same time take place in the order in which they were found.
    number: usize,
    what: What,
}

#[derive(Clone)]
enum What {
    /// A rank begins its next round of a piece.
    Begin { piece: usize, rank: usize },
    /// The first byte of a message comes to its receiver.
    Arrive { piece: usize, from: usize, to: usize, bytes: usize },
}

impl Simulation<'_> {
    fn push(&mut self, at: f64, what: What) {
        self.events.push(Event { at, number: self.number, what });
        self.number += 1;
    }

    /// Begins the pieces for which there is room at a rank.
    fn slide(&mut self, at: f64, rank: usize) {
        let is_done =
            |piece: usize| self.progress[piece][rank].round == self.pieces[piece][rank].rounds.len();
        let Window { mut front, mut next } = self.windows[rank];
        while front < next && is_done(front) {
            front += 1;
        }
        let first = next;
        next = self.pieces.len().min(front + PIECES_ACTIVE);
        self.windows[rank] = Window { front, next };
        (first..next).for_each(|piece| self.push(at, What::Begin { piece, rank }));
    }

    fn begin(&mut self, at: f64, piece: usize, rank: usize) {
        let pieces = self.pieces;
        let Some(round) = pieces[piece][rank].rounds.get(self.progress[piece][rank].round) else {
            let ended = &mut self.clocks.ended[rank];
            *ended = ended.max(at);
            self.slide(at, rank);
            return;
        };
        let mut ready = at;
        for send in &round.sends {
            ready = self.send(at, piece, rank, send);
        }
        let progress = &mut self.progress[piece][rank];
        (progress.is_waiting, progress.ready, progress.taken) = (true, ready, 0);
        if !round.receives.is_empty() {
            self.unseen[rank].take().into_iter().flatten().for_each(|message| self.push(at, message));
        }
        self.take(piece, rank, round);
    }

    /// Sends a message when port and thread are free. Returns when its sender may use its memory again.
    fn send(&mut self, at: f64, piece: usize, rank: usize, send: &Transfer) -> f64 {
        let bytes = send.regions.iter().map(|region| self.bytes(*region)).sum();
        let link = self.link(rank, send.peer);
        let (occupancy, latency, work) =
            (link.occupancy.at(bytes), link.latency.at(bytes), link.send.at(bytes));
        let first_byte = (latency - occupancy.max(link.receive.at(bytes))).max(0.0);
        let uplink = self.is_between_boards(rank, send.peer).then_some(self.boards[rank]);
        let free = uplink.map_or(0.0, |board| self.clocks.uplink[board]).max(self.clocks.sending[rank]);
        let end = self.work(rank, at.max(free), work);
        let start = end - work;
        self.clocks.sending[rank] = start + occupancy.max(work);
        if let Some(board) = uplink {
            self.clocks.uplink[board] = start + occupancy;
        }
        self.push(start + first_byte, What::Arrive { piece, from: rank, to: send.peer, bytes });
        self.messages += 1;
        self.clocks.sending[rank]
    }

    fn arrive(&mut self, at: f64, piece: usize, from: usize, to: usize, bytes: usize) {
        if let Some(unseen) = &mut self.unseen[to] {
            unseen.push(What::Arrive { piece, from, to, bytes });
            return;
        }
        let link = self.link(from, to);
        let (occupancy, work) = (link.occupancy.at(bytes), link.receive.at(bytes));
        // The shorter of the two ends with the longer one.
        let longest = occupancy.max(work);
        let downlink = self.is_between_boards(from, to).then_some(self.boards[to]);
        let free = downlink.map_or(0.0, |board| self.clocks.downlink[board]).max(self.clocks.receiving[to]);
        let through_port = (at + longest - occupancy).max(free) + occupancy;
        let copied = self.work(to, at + longest - work, work);
        self.clocks.receiving[to] = through_port;
        if let Some(board) = downlink {
            self.clocks.downlink[board] = through_port;
        }
        self.mailboxes[piece][to].push((from, through_port.max(copied)));
        if self.progress[piece][to].is_waiting {
            let pieces = self.pieces;
            self.take(piece, to, &pieces[piece][to].rounds[self.progress[piece][to].round]);
        }
    }

    /// Lets a rank's thread work as soon as it can from a time on. Returns when it is done.
    fn work(&mut self, rank: usize, from: f64, seconds: f64) -> f64 {
        if seconds == 0.0 {
            return from;
        }
        let mut start = from.max(self.clocks.working[rank]);
        if let Some(cores) = self.cores_of(rank) {
            let core = match cores.iter().position(|core| core.last == rank) {
                // It still has its core, and looks there for what it waits for.
                Some(own) => &mut cores[own],
                None => {
                    let core = cores.iter_mut().min_by(|one, other| one.free.total_cmp(&other.free));
                    let core = core.expect("a machine has one core or more");
                    start = start.max(core.free);
                    core
                }
            };
            *core = Core { free: start + seconds, last: rank };
        }
        self.clocks.working[rank] = start + seconds;
        start + seconds
    }

    /// Lets a rank that waits keep its core for a while.
    fn spin(&mut self, rank: usize, from: f64, missing: usize) {
        let Some(spin) = self.costs.cores.as_ref().map(|of| of.spin * missing as f64) else { return };
        let cores = self.cores_of(rank).into_iter().flatten();
        if let Some(core) = cores.into_iter().find(|core| core.last == rank) {
            core.free = core.free.max(from + spin);
        }
    }

    /// Cores that a rank shares with others.
    fn cores_of(&mut self, rank: usize) -> Option<&mut Vec<Core>> {
        let machine = self.costs.cores.as_ref()?.machines[rank];
        self.clocks.cores.get_mut(machine)
    }

    /// Takes arrived messages in the round's order, and ends the round when it has all.
    fn take(&mut self, piece: usize, rank: usize, round: &Round) {
        let progress = &mut self.progress[piece][rank];
        for receive in &round.receives[progress.taken..] {
            let mailbox = &mut self.mailboxes[piece][rank];
            let Some(at) = mailbox.iter().position(|(from, _)| *from == receive.peer) else {
                let (from, missing) = (progress.ready, round.receives.len() - progress.taken);
                self.spin(rank, from, missing);
                return;
            };
            progress.ready = progress.ready.max(mailbox.remove(at).1);
            progress.taken += 1;
        }
        progress.is_waiting = false;
        progress.round += 1;
        let ready = progress.ready;
        let work: f64 = round.locals.iter().map(|local| self.seconds(local)).sum();
        let at = self.work(rank, ready, work);
        self.push(at, What::Begin { piece, rank });
    }

    fn seconds(&self, local: &Local) -> f64 {
        match local {
            Local::Copy { from, .. } => self.costs.copy.at(self.bytes(*from)),
            Local::Reduce { into, operands } => {
                let one = self.costs.reduce.at(into.len * self.sizes.element);
                one * operands.len().saturating_sub(1) as f64
            }
        }
    }

    fn bytes(&self, region: Region) -> usize {
        region.len * if region.buffer.is_partial() { self.sizes.accumulator } else { self.sizes.element }
    }

    fn is_between_boards(&self, one: usize, other: usize) -> bool {
        self.boards[one] != self.boards[other]
    }

    fn link(&self, from: usize, to: usize) -> &LinkCosts {
        match &self.costs.links {
            Links::OfBoards { within, .. } if self.topology.share_board(from, to) => within,
            Links::OfBoards { between, .. } => between,
            Links::OfRanks(links) => &links[from][to],
        }
    }
}

/// The earliest first.
impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.total_cmp(&self.at).then(other.number.cmp(&self.number))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}
