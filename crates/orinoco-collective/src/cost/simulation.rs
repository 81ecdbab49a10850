//! Executes schedules on links with costs, event by event.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use super::{Costs, LinkCosts, Price, Sizes};
use crate::{Local, Region, Round, Schedule, Topology, Transfer};

/// Prices pieces of an operation, each with the schedule of every rank. All pieces begin at once and share ports and processors.
pub(super) fn run(pieces: &[Vec<Schedule>], topology: &Topology, sizes: Sizes, costs: &Costs) -> Price {
    let ranks = topology.ranks();
    let mut simulation = Simulation {
        pieces,
        topology,
        sizes,
        costs,
        events: BinaryHeap::new(),
        number: 0,
        progress: pieces.iter().map(|piece| vec![Progress::default(); piece.len()]).collect(),
        mailboxes: HashMap::new(),
        sending: vec![0.0; ranks],
        receiving: vec![0.0; ranks],
        computing: vec![0.0; ranks],
        end: 0.0,
        messages: 0,
    };
    for piece in 0..pieces.len() {
        for rank in 0..ranks {
            simulation.push(0.0, What::Begin { piece, rank });
        }
    }
    while let Some(Event { at, what, .. }) = simulation.events.pop() {
        match what {
            What::Begin { piece, rank } => simulation.begin(at, piece, rank),
            What::Arrive { piece, from, to, occupancy } => simulation.arrive(at, piece, from, to, occupancy),
        }
    }
    Price { seconds: simulation.end, messages: simulation.messages }
}

struct Simulation<'a> {
    pieces: &'a [Vec<Schedule>],
    topology: &'a Topology,
    sizes: Sizes,
    costs: &'a Costs,
    events: BinaryHeap<Event>,
    /// Events so far.
    number: usize,
    progress: Vec<Vec<Progress>>,
    /// Arrivals that no round has taken, by piece, sender and receiver.
    mailboxes: HashMap<(usize, usize, usize), VecDeque<f64>>,
    /// Time until which each rank's outgoing port, incoming port and processor are busy.
    sending: Vec<f64>,
    receiving: Vec<f64>,
    computing: Vec<f64>,
    end: f64,
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

struct Event {
    at: f64,
    /// Events at the same time take place in the order in which they were found.
    number: usize,
    what: What,
}

enum What {
    /// A rank begins its next round of a piece.
    Begin { piece: usize, rank: usize },
    /// The first byte of a message comes to its receiver, whose port it keeps busy for so many seconds.
    Arrive { piece: usize, from: usize, to: usize, occupancy: f64 },
}

impl Simulation<'_> {
    fn push(&mut self, at: f64, what: What) {
        self.events.push(Event { at, number: self.number, what });
        self.number += 1;
    }

    fn begin(&mut self, at: f64, piece: usize, rank: usize) {
        let pieces = self.pieces;
        let Some(round) = pieces[piece][rank].rounds.get(self.progress[piece][rank].round) else {
            self.end = self.end.max(at);
            return;
        };
        let mut ready = at;
        for send in &round.sends {
            ready = self.send(at, piece, rank, send);
        }
        let progress = &mut self.progress[piece][rank];
        (progress.is_waiting, progress.ready, progress.taken) = (true, ready, 0);
        self.take(piece, rank, round);
    }

    /// Sends a message when the port is free. Returns when its sender may use its memory again.
    fn send(&mut self, at: f64, piece: usize, rank: usize, send: &Transfer) -> f64 {
        let bytes = send.regions.iter().map(|region| self.bytes(*region)).sum();
        let link = self.link(rank, send.peer);
        let (occupancy, latency) = (link.occupancy.at(bytes), link.latency.at(bytes));
        let start = at.max(self.sending[rank]);
        self.sending[rank] = start + occupancy;
        let first_byte = start + (latency - occupancy).max(0.0);
        self.push(first_byte, What::Arrive { piece, from: rank, to: send.peer, occupancy });
        self.messages += 1;
        start + occupancy
    }

    fn arrive(&mut self, at: f64, piece: usize, from: usize, to: usize, occupancy: f64) {
        let arrival = at.max(self.receiving[to]) + occupancy;
        self.receiving[to] = arrival;
        self.mailboxes.entry((piece, from, to)).or_default().push_back(arrival);
        if self.progress[piece][to].is_waiting {
            let pieces = self.pieces;
            self.take(piece, to, &pieces[piece][to].rounds[self.progress[piece][to].round]);
        }
    }

    /// Takes arrived messages in the round's order, and ends the round when it has all.
    fn take(&mut self, piece: usize, rank: usize, round: &Round) {
        let progress = &mut self.progress[piece][rank];
        for receive in &round.receives[progress.taken..] {
            let arrival = self.mailboxes.get_mut(&(piece, receive.peer, rank)).and_then(VecDeque::pop_front);
            let Some(arrival) = arrival else { return };
            progress.ready = progress.ready.max(arrival);
            progress.taken += 1;
        }
        progress.is_waiting = false;
        progress.round += 1;
        let ready = progress.ready;
        let work: f64 = round.locals.iter().map(|local| self.seconds(local)).sum();
        let at = if work > 0.0 { ready.max(self.computing[rank]) + work } else { ready };
        self.computing[rank] = self.computing[rank].max(at);
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

    fn link(&self, from: usize, to: usize) -> &LinkCosts {
        let shares_board = self.topology.share_board(from, to);
        if shares_board { &self.costs.on_board } else { &self.costs.between_boards }
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
