//! Clusters in virtual time: seats that start, end and start again, and links that are cut and restored.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use orinoco_core::{Nanos, Rng};
use orinoco_sim::{Simulator, Task, check_seeds};

use super::membership::{Bounds, Membership, MembershipEvent};
use super::packet::Packet;
use super::seats::{Quorum, SeatSet};

const SETTLE: Duration = Duration::from_millis(300);
const SILENCE: Duration = Duration::from_millis(400);
/// Time in which the members of an epoch connect with one another.
const ASSEMBLY: Duration = Duration::from_secs(1);
/// Time after which a member notices that another has failed.
const NOTICE: Duration = Duration::from_millis(500);
/// Time of the last fault.
const FAULTS_END: Duration = Duration::from_secs(20);
/// Time by which all seats that can are in one epoch, with nothing more to happen.
const CALM: Duration = Duration::from_secs(40);
const BOUNDS: Bounds = Bounds { settle: SETTLE, silence: SILENCE };

/// A seat with its program.
struct Seat {
    membership: Membership,
    program: Program,
    /// Its process runs.
    is_up: bool,
    /// Packets on their way to it: time of arrival, sender, number of the connection, packet.
    arriving: VecDeque<(Nanos, usize, u32, Packet)>,
}

/// State of a seat's program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Program {
    Waiting,
    /// It connects with the other members, until this time.
    Assembling {
        epoch: u32,
        members: SeatSet,
        until: Nanos,
    },
    Running {
        epoch: u32,
        members: SeatSet,
        bad_since: Option<Nanos>,
    },
}

struct World {
    seats: Vec<Seat>,
    quorum: Quorum,
    /// Whether packets pass between two seats.
    is_linked: Vec<Vec<bool>>,
    /// Number of the connection of two seats, if there is one, and the number of the last.
    connections: Vec<Vec<Option<u32>>>,
    last_connection: u32,
    /// Members of all epochs that have run since a seat started.
    epochs: BTreeMap<u32, SeatSet>,
}

impl World {
    fn new(quorum: Quorum) -> Self {
        let count = quorum.seats;
        let seats = (0..count).map(|own| Seat::new(own, quorum, Duration::ZERO)).collect();
        Self {
            seats,
            quorum,
            is_linked: vec![vec![true; count]; count],
            connections: vec![vec![None; count]; count],
            last_connection: 0,
            epochs: BTreeMap::new(),
        }
    }

    fn can_talk(&self, one: usize, other: usize) -> bool {
        self.is_linked[one][other] && self.seats[one].is_up && self.seats[other].is_up
    }

    /// Opens the connections that are missing, as each seat's dialers do.
    fn connect(&mut self, now: Nanos, rng: &mut Rng) {
        for one in 0..self.seats.len() {
            for other in 0..one {
                if self.connections[one][other].is_none() && self.can_talk(one, other) && rng.bool() {
                    self.last_connection += 1;
                    for (own, peer) in [(one, other), (other, one)] {
                        self.connections[own][peer] = Some(self.last_connection);
                        self.seats[own].membership.connected_with(peer, since_start(now));
                    }
                }
            }
        }
    }

    fn close(&mut self, one: usize, other: usize, now: Nanos) {
        for (own, peer) in [(one, other), (other, one)] {
            self.connections[own][peer] = None;
            self.seats[own].membership.closed(peer, since_start(now));
        }
    }

    /// Ends a process: its connections are closed.
    fn kill(&mut self, seat: usize, now: Nanos) {
        self.seats[seat].is_up = false;
        self.seats[seat].arriving.clear();
        for other in 0..self.seats.len() {
            if self.connections[seat][other].is_some() && self.is_linked[seat][other] {
                self.close(seat, other, now);
            }
            self.connections[seat][other] = None;
        }
    }

    /// Starts a process, which remembers nothing.
    fn start(&mut self, seat: usize, now: Nanos) {
        for other in 0..self.seats.len() {
            // A connection that the other end still holds is replaced.
            if self.connections[other][seat].is_some() {
                self.close(other, seat, now);
            }
        }
        self.seats[seat] = Seat::new(seat, self.quorum, since_start(now));
        // If it is the last that knew them, numbers are given again.
        self.epochs.clear();
    }

    /// One step of a seat. Returns when the next is due.
    fn step(&mut self, own: usize, now: Nanos, rng: &mut Rng) -> Nanos {
        if !self.seats[own].is_up {
            return now + Duration::from_millis(50);
        }
        let time = since_start(now);
        while let Some(at) = self.seats[own].arriving.iter().position(|(arrival, ..)| *arrival <= now) {
            let (_, from, connection, packet) = self.seats[own].arriving.remove(at).expect("it was found");
            if self.connections[own][from] == Some(connection) {
                self.seats[own].membership.received(from, packet, time);
            }
        }
        if self.seats[own].membership.poll_timeout() <= time {
            self.seats[own].membership.handle_timeout(time);
        }
        while let Some(event) = self.seats[own].membership.next_event() {
            match event {
                MembershipEvent::Committed { epoch, members } => {
                    assert!(self.quorum.is_met_by(members), "{members:?} are no quorum");
                    assert!(members.contains(own), "seat {own} is in an epoch of others");
                    self.seats[own].program = Program::Assembling { epoch, members, until: now + ASSEMBLY };
                }
                MembershipEvent::Silent { seat } => {
                    self.connections[own][seat] = None;
                    if self.is_linked[own][seat] {
                        self.close(own, seat, now);
                    }
                }
            }
        }
        self.run_program(own, now);
        while let Some((to, packet)) = self.seats[own].membership.next_packet() {
            let Some(connection) = self.connections[own][to] else { continue };
            if self.can_talk(own, to) {
                // Packets of one connection keep their order.
                let earliest = self.seats[to].arriving.iter().filter(|of| of.1 == own).map(|of| of.0).max();
                let delay = now + Duration::from_micros(100 + rng.u64(..20_000));
                let arrival = earliest.map_or(delay, |earliest| earliest.max(delay));
                self.seats[to].arriving.push_back((arrival, own, connection, packet));
            }
        }
        let arrival = self.seats[own].arriving.iter().map(|of| of.0).min();
        let timeout = Nanos(0) + self.seats[own].membership.poll_timeout();
        let due = timeout.min(now + Duration::from_millis(50));
        arrival.map_or(due, |arrival| due.min(arrival)).max(now + Duration::from_micros(1))
    }

    fn run_program(&mut self, own: usize, now: Nanos) {
        let program = self.seats[own].program;
        let is_whole = |members: SeatSet| {
            members.iter().all(|one| members.iter().all(|other| one == other || self.can_talk(one, other)))
        };
        self.seats[own].program = match program {
            Program::Waiting => {
                self.seats[own].membership.ask(since_start(now));
                Program::Waiting
            }
            Program::Assembling { epoch, members, until } => {
                let has_come = |seat: usize| match self.seats[seat].program {
                    Program::Assembling { epoch: theirs, members: of, .. }
                    | Program::Running { epoch: theirs, members: of, .. } => (theirs, of) == (epoch, members),
                    Program::Waiting => false,
                };
                if is_whole(members) && members.iter().all(has_come) {
                    let known = *self.epochs.entry(epoch).or_insert(members);
                    assert_eq!(known, members, "two epochs have the number {epoch}");
                    Program::Running { epoch, members, bad_since: None }
                } else if now >= until {
                    self.seats[own].membership.ask(since_start(now));
                    Program::Waiting
                } else {
                    program
                }
            }
            Program::Running { epoch, members, bad_since } => {
                let is_in = |seat: usize| match self.seats[seat].program {
                    Program::Assembling { epoch: theirs, .. } | Program::Running { epoch: theirs, .. } => {
                        theirs == epoch
                    }
                    Program::Waiting => false,
                };
                let is_bad = !is_whole(members) || !members.iter().all(is_in);
                match (is_bad, bad_since) {
                    (false, _) => Program::Running { epoch, members, bad_since: None },
                    (true, None) => Program::Running { epoch, members, bad_since: Some(now) },
                    (true, Some(since)) if now >= since + NOTICE => {
                        self.seats[own].membership.ask(since_start(now));
                        Program::Waiting
                    }
                    (true, Some(_)) => program,
                }
            }
        };
    }

    fn strike(&mut self, now: Nanos, rng: &mut Rng) -> String {
        let count = self.seats.len();
        let seat = rng.usize(..count);
        match rng.u32(..5) {
            0 => {
                self.kill(seat, now);
                format!("seat {seat} ends")
            }
            1 if !self.seats[seat].is_up => {
                self.start(seat, now);
                format!("seat {seat} starts")
            }
            2 => {
                let side: Vec<bool> = (0..count).map(|_| rng.bool()).collect();
                for (one, other) in pairs(count) {
                    self.is_linked[one][other] = side[one] == side[other];
                }
                format!("partition {side:?}")
            }
            3 => {
                let other = (seat + 1 + rng.usize(..count.max(2) - 1)) % count;
                self.is_linked[seat][other] = seat == other;
                self.is_linked[other][seat] = seat == other;
                format!("no link between {seat} and {other}")
            }
            _ => {
                self.restore(now);
                "all is well".to_owned()
            }
        }
    }

    /// Restores all links, and starts all seats.
    fn restore(&mut self, now: Nanos) {
        for (one, other) in pairs(self.seats.len()) {
            self.is_linked[one][other] = true;
        }
        for seat in 0..self.seats.len() {
            if !self.seats[seat].is_up {
                self.start(seat, now);
            }
        }
    }
}

impl Seat {
    fn new(own: usize, quorum: Quorum, now: Duration) -> Self {
        let membership = Membership::new(own, quorum, BOUNDS, now);
        Self { membership, program: Program::Waiting, is_up: true, arriving: VecDeque::new() }
    }
}

fn pairs(count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count).flat_map(move |one| (0..count).map(move |other| (one, other)))
}

fn since_start(now: Nanos) -> Duration {
    Duration::from_nanos(now.0)
}

/// Runs a cluster until `end`, with faults until [`FAULTS_END`], and then with all seats and links.
fn run(simulator: &mut Simulator, quorum: Quorum, has_faults: bool) -> World {
    let mut world = World::new(quorum);
    let tasks: Vec<Task> = (0..quorum.seats).map(|_| simulator.add_task()).collect();
    let weather = simulator.add_task();
    let mut is_calm = !has_faults;
    while let Some(task) = simulator.next(Nanos(0) + CALM) {
        let now = simulator.now();
        if task == weather {
            let mut rng = Rng::with_seed(simulator.rng().u64(..));
            if !is_calm && now >= Nanos(0) + FAULTS_END {
                is_calm = true;
                world.restore(now);
                simulator.note(|| "faults are over".to_owned());
            }
            if !is_calm && rng.u32(..60) == 0 {
                let fault = world.strike(now, &mut rng);
                simulator.note(|| fault);
            }
            world.connect(now, &mut rng);
            simulator.wait(weather, Some(now + Duration::from_millis(20)));
            continue;
        }
        let before = world.seats[task.index()].program;
        let mut rng = Rng::with_seed(simulator.rng().u64(..));
        let due = world.step(task.index(), now, &mut rng);
        let after = world.seats[task.index()].program;
        if before != after {
            simulator.note(|| format!("seat {}: {after:?}", task.index()));
        }
        simulator.wait(task, Some(due));
        for (seat, task) in tasks.iter().enumerate() {
            if world.seats[seat].arriving.iter().any(|(arrival, ..)| *arrival < due) {
                simulator.notify(*task);
            }
        }
    }
    world
}

fn random_quorum(rng: &mut Rng) -> Quorum {
    let seats = 1 + rng.usize(..6);
    Quorum { seats, witness: rng.bool().then(|| rng.usize(..seats)) }
}

#[test]
fn all_seats_that_start_together_are_in_the_first_epoch() {
    check_seeds(200, |simulator| {
        let quorum = random_quorum(simulator.rng());
        let world = run(simulator, quorum, false);
        let all = SeatSet::first(quorum.seats);
        for seat in &world.seats {
            let Program::Running { members, .. } = seat.program else {
                panic!("{:?} of {quorum:?}", seat.program);
            };
            assert_eq!(members, all);
        }
        assert_eq!(world.epochs.len(), 1, "{:?}", world.epochs);
    });
}

#[test]
fn after_any_faults_a_quorum_is_in_one_epoch() {
    check_seeds(500, |simulator| {
        let quorum = random_quorum(simulator.rng());
        let world = run(simulator, quorum, true);
        let of = |seat: &Seat| match seat.program {
            Program::Running { epoch, members, .. } => Some((epoch, members)),
            _ => None,
        };
        let last = world.seats.iter().filter_map(of).max_by_key(|(epoch, _)| *epoch);
        let (_, members) = last.expect("an epoch runs");
        for (number, seat) in world.seats.iter().enumerate() {
            if members.contains(number) {
                assert_eq!(of(seat), last, "seat {number}");
            } else {
                assert_eq!(
                    seat.program,
                    Program::Waiting,
                    "seat {number} has no epoch, and waits for the next"
                );
            }
        }
    });
}

#[test]
fn a_minority_has_no_epoch() {
    let quorum = Quorum { seats: 4, witness: None };
    check_seeds(100, |simulator| {
        let mut world = World::new(quorum);
        for (one, other) in pairs(4) {
            world.is_linked[one][other] = (one < 2) == (other < 2);
        }
        let tasks: Vec<Task> = (0..4).map(|_| simulator.add_task()).collect();
        while let Some(task) = simulator.next(Nanos(0) + Duration::from_secs(5)) {
            let now = simulator.now();
            let mut rng = Rng::with_seed(simulator.rng().u64(..));
            world.connect(now, &mut rng);
            let due = world.step(task.index(), now, &mut rng);
            simulator.wait(tasks[task.index()], Some(due));
        }
        assert!(world.epochs.is_empty());
        for (number, seat) in world.seats.iter().enumerate() {
            assert_eq!(seat.program, Program::Waiting);
            assert_eq!(seat.membership.reachable().len(), 2, "seat {number}");
        }
    });
}
