//! Smaller groups: ranks that die, are stopped or lose one another before and while they make one. Notices take any time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use orinoco_core::{Nanos, Rng};
use orinoco_sim::{Simulator, Task, check_seeds};

use super::super::Health;
use super::super::agreement::{RankSet, Uniform};
use super::super::notice::Notice;
use super::super::shrink::{ShrinkState, Survivors};
use super::SILENCE;
use crate::FailureCause;

const DEADLINE: Duration = Duration::from_secs(4);
/// Time in which ranks begin their calls, and in which faults happen.
const FAULTS: Duration = Duration::from_millis(400);
/// Longest delay of a notice, and of connecting with all members.
const DELAY_MICROS: u64 = 30_000;
/// Time after which no call is begun.
const CALLS: Duration = Duration::from_secs(6);
/// Most calls of a rank.
const CALLS_MAX: u32 = 3;
/// Longest time for which a rank is stopped.
const STOP_MAX: Duration = Duration::from_millis(1500);
const RANKS_MAX: usize = 7;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Its process ends, and some of what it has sent is lost.
    Killed(usize),
    /// Its process is stopped, and goes on after a while.
    Stopped(usize),
    /// The first rank finds its connection with the second one broken.
    Disconnected(usize, usize),
    /// Nothing comes through between these ranks and the others any more.
    Cut(RankSet),
}

/// End of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Formed(Survivors),
    Excluded,
    Isolated,
    Missing(Vec<usize>),
}

struct Rank {
    health: Health,
    /// Times at which it calls, unless it has formed a group before.
    calls: VecDeque<Nanos>,
    began: Option<Nanos>,
    /// Group with whose members it connects, and the time that this takes at least.
    attempt: Option<(Survivors, Nanos)>,
    connected: Option<Survivors>,
    ends: Vec<(Nanos, End)>,
    leaves_at: Option<Nanos>,
    is_dead: bool,
    stopped_until: Nanos,
}

/// Notices on their way, with the times of their arrival. `None` is the end of the link.
type Link = VecDeque<(Nanos, Option<Notice>)>;

struct World {
    ranks: Vec<Rank>,
    /// By sender and receiver.
    links: Vec<Vec<Link>>,
    faults: VecDeque<(Nanos, Fault)>,
    cut: RankSet,
    /// Whether something has changed that other ranks wait for.
    has_news: bool,
}

impl World {
    fn new(ranks: usize, uniform: Option<Uniform>) -> Self {
        let rank = |rank: usize| Rank {
            health: Health::new(rank, ranks, SILENCE, Duration::ZERO).with_uniform(uniform),
            calls: VecDeque::new(),
            began: None,
            attempt: None,
            connected: None,
            ends: Vec::new(),
            leaves_at: None,
            is_dead: false,
            stopped_until: Nanos(0),
        };
        let links = vec![vec![VecDeque::new(); ranks]; ranks];
        Self {
            ranks: (0..ranks).map(rank).collect(),
            links,
            faults: VecDeque::new(),
            cut: RankSet::default(),
            has_news: false,
        }
    }

    fn strike(&mut self, fault: Fault, rng: &mut Rng, now: Nanos) {
        match fault {
            Fault::Killed(rank) if self.ranks[rank].is_dead => {}
            Fault::Killed(rank) => {
                self.ranks[rank].is_dead = true;
                self.links[rank].iter_mut().for_each(|link| link.truncate(rng.usize(..=link.len())));
                self.close(rank, rng, now);
            }
            Fault::Stopped(rank) => {
                self.ranks[rank].stopped_until =
                    now + Duration::from_millis(rng.u64(300..STOP_MAX.as_millis() as u64));
            }
            Fault::Disconnected(rank, other) => {
                self.ranks[rank].health.fail(other, FailureCause::Disconnected);
            }
            Fault::Cut(ranks) => self.cut = ranks,
        }
    }

    fn send(&mut self, rank: usize, content: Option<Notice>, rng: &mut Rng, now: Nanos) {
        self.has_news = true;
        let is_cut = |peer: usize| self.cut.contains(peer) != self.cut.contains(rank);
        let links = self.links[rank].iter_mut().enumerate();
        let links = links.filter(|(peer, _)| *peer != rank && !is_cut(*peer));
        for (_, link) in links {
            let last = link.back().map_or(now, |(at, _)| *at);
            link.push_back((last.max(now + Duration::from_micros(rng.u64(..DELAY_MICROS))), content));
        }
    }

    fn close(&mut self, rank: usize, rng: &mut Rng, now: Nanos) {
        self.send(rank, None, rng, now);
    }

    /// A rank does all that it can do now. Returns when it is to look again, unless another one notifies it.
    fn step(&mut self, rank: usize, rng: &mut Rng, now: Nanos) -> Option<Nanos> {
        if self.ranks[rank].is_dead {
            return None;
        }
        if now < self.ranks[rank].stopped_until {
            return Some(self.ranks[rank].stopped_until);
        }
        let time = now.since(Nanos(0));
        for peer in (0..self.ranks.len()).filter(|peer| *peer != rank) {
            while let Some((_, notice)) = self.links[peer][rank].pop_front_if(|(at, _)| *at <= now) {
                match notice {
                    Some(notice) => self.ranks[rank].health.received(peer, notice, time),
                    None => self.ranks[rank].health.closed(peer),
                }
            }
        }
        self.ranks[rank].health.handle_timeout(time);
        self.call(rank, rng, now);
        while let Some(notice) = self.ranks[rank].health.next_notice() {
            self.send(rank, Some(notice), rng, now);
        }
        let own = &mut self.ranks[rank];
        if own.leaves_at.is_some_and(|at| at <= now) {
            own.is_dead = true;
            own.health.leave();
            while let Some(notice) = self.ranks[rank].health.next_notice() {
                self.send(rank, Some(notice), rng, now);
            }
            self.close(rank, rng, now);
            return None;
        }
        let own = &self.ranks[rank];
        let arrivals = self.links.iter().filter_map(|links| Some(links[rank].front()?.0));
        let due = arrivals.chain([Nanos(0) + own.health.poll_timeout()]);
        let due = due.chain(own.calls.front().copied().filter(|_| own.began.is_none()));
        let due = due.chain(own.began.map(|began| began + DEADLINE)).chain(own.leaves_at);
        let attempt = own.attempt.as_ref().map(|(_, at)| *at).filter(|at| *at > now);
        due.chain(attempt).min()
    }

    /// Goes on with the call of a rank, as `TcpGroup::shrink` does.
    fn call(&mut self, rank: usize, rng: &mut Rng, now: Nanos) {
        let own = &mut self.ranks[rank];
        if own.began.is_none() && own.calls.front().is_some_and(|at| *at <= now) {
            own.calls.pop_front();
            if own.health.begin_shrink(rng.u16(..), rng.u32(..)) {
                own.began = Some(now);
            }
        }
        let Some(began) = own.began else { return };
        assert!(now <= own.stopped_until.max(began + DEADLINE), "it waits beyond its deadline");
        let (state, is_late) = (own.health.shrink_state(), now >= began + DEADLINE);
        let end = match &state {
            ShrinkState::Formed => End::Formed(own.connected.clone().expect("it is connected")),
            ShrinkState::Excluded { .. } => End::Excluded,
            ShrinkState::Isolated { .. } => End::Isolated,
            ShrinkState::Waiting(missing) if is_late => End::Missing(missing.clone()),
            ShrinkState::Ready(_) if is_late => End::Missing(Vec::new()),
            ShrinkState::Waiting(_) => return own.attempt = None,
            ShrinkState::Ready(survivors) => return self.connect(rank, survivors, rng, now),
        };
        if matches!(end, End::Formed(_)) {
            own.leaves_at = Some(now + Duration::from_micros(rng.u64(..3 * DELAY_MICROS)));
        } else {
            assert!(own.health.withdraw_shrink(), "it has formed no group");
            own.connected = None;
        }
        (own.began, own.attempt) = (None, None);
        own.ends.push((now, end));
    }

    fn connect(&mut self, rank: usize, survivors: &Survivors, rng: &mut Rng, now: Nanos) {
        let own = &mut self.ranks[rank];
        let begun = own.attempt.take().filter(|(with, _)| with == survivors);
        let begun_at = begun.map(|(_, at)| at);
        let at = begun_at.unwrap_or_else(|| now + Duration::from_micros(rng.u64(..DELAY_MICROS)));
        own.attempt = Some((survivors.clone(), at));
        self.has_news |= begun_at.is_none();
        let takes_part = |member: usize| {
            let Rank { attempt, connected, is_dead, .. } = &self.ranks[member];
            let connects = attempt.as_ref().is_some_and(|(with, _)| with == survivors);
            let is_cut = self.cut.contains(member) != self.cut.contains(rank);
            !is_dead && !is_cut && (connects || connected.as_ref() == Some(survivors))
        };
        if at <= now && survivors.members.iter().all(|member| takes_part(member.rank)) {
            let own = &mut self.ranks[rank];
            assert!(own.health.connect_shrunk(survivors), "nothing has come meanwhile");
            (own.attempt, own.connected) = (None, Some(survivors.clone()));
        }
    }

    /// Runs all ranks to the end.
    fn run(&mut self, simulator: &mut Simulator) {
        let tasks: Vec<Task> = self.ranks.iter().map(|_| simulator.add_task()).collect();
        let end = Nanos(0) + CALLS + DEADLINE * CALLS_MAX + STOP_MAX;
        while let Some(task) = simulator.next(end) {
            let (rank, now) = (task.index(), simulator.now());
            while let Some((_, fault)) = self.faults.pop_front_if(|(at, _)| *at <= now) {
                simulator.note(|| format!("{fault:?}"));
                self.strike(fault, simulator.rng(), now);
            }
            let before = (self.ranks[rank].attempt.is_some(), self.ranks[rank].ends.len());
            let mut due = self.step(rank, simulator.rng(), now);
            let own = &self.ranks[rank];
            if before != (own.attempt.is_some(), own.ends.len()) {
                simulator
                    .note(|| format!("rank {rank}: {:?}, {:?}", own.health.shrink_state(), own.ends.last()));
            }
            if self.ranks.iter().all(|rank| rank.is_dead || rank.calls.is_empty() && rank.began.is_none()) {
                return;
            }
            if let Some((at, _)) = self.faults.front() {
                due = due.map(|due| due.min(*at));
            }
            simulator.wait(task, due);
            if std::mem::take(&mut self.has_news) {
                tasks.iter().filter(|other| **other != task).for_each(|other| simulator.notify(*other));
            }
        }
    }

    /// The group that a rank has formed.
    fn group(&self, rank: usize) -> Option<&Survivors> {
        self.ranks[rank].ends.iter().find_map(|(_, end)| match end {
            End::Formed(survivors) => Some(survivors),
            _ => None,
        })
    }

    /// Checks that no two ranks form different groups with one another, and no two majorities go on.
    fn check_groups(&self, uniform: Option<Uniform>) {
        let formed: Vec<(usize, &Survivors)> =
            (0..self.ranks.len()).filter_map(|rank| Some((rank, self.group(rank)?))).collect();
        let has = |group: &Survivors, rank: usize| group.members.iter().any(|member| member.rank == rank);
        for (rank, group) in &formed {
            assert!(has(group, *rank), "rank {rank} is in its own group");
            for (other, theirs) in &formed {
                let is_one = group == theirs || !has(group, *other) || !has(theirs, *rank);
                assert!(is_one, "ranks {rank} and {other} form different groups: {group:?}, {theirs:?}");
            }
        }
        // By the ranks of the old group: the witness of the new one is the same rank.
        let goes_on = |group: &Survivors| {
            let who = formed.iter().filter(|(_, theirs)| *theirs == group).map(|(rank, _)| *rank);
            let who = who.fold(RankSet::default(), RankSet::with);
            uniform.is_some_and(|uniform| uniform.is_majority(who, group.members.len()))
        };
        let majorities: Vec<&Survivors> =
            formed.iter().map(|(_, group)| *group).filter(|group| goes_on(group)).collect();
        assert!(majorities.windows(2).all(|pair| pair[0] == pair[1]), "two go on: {majorities:?}");
    }

    fn check_times(&self) {
        for (number, rank) in self.ranks.iter().enumerate() {
            let is_over = rank.is_dead || rank.calls.is_empty() && rank.began.is_none();
            assert!(is_over, "rank {number} waits without end");
        }
    }
}

fn random_time(rng: &mut Rng, within: Duration) -> Nanos {
    Nanos(0) + Duration::from_micros(rng.u64(..u64::try_from(within.as_micros()).unwrap()))
}

fn random_uniform(rng: &mut Rng, ranks: usize) -> Option<Uniform> {
    rng.bool().then(|| Uniform { witness: rng.bool().then(|| rng.usize(..ranks)) })
}

/// Ranks die at any time. All that are left form the same group, or are told why not.
#[test]
fn all_ranks_that_are_left_form_the_same_group() {
    let counts = [(); 4].map(|()| AtomicU64::new(0));
    let [whole, smaller, isolated, missing] = &counts;
    let seeds = check_seeds(3000, |simulator| {
        let rng = simulator.rng();
        let ranks = rng.usize(1..RANKS_MAX + 1);
        let uniform = random_uniform(rng, ranks);
        let mut world = World::new(ranks, uniform);
        let absent = (rng.u32(..8) == 0).then(|| rng.usize(..ranks));
        for rank in (0..ranks).filter(|rank| absent != Some(*rank)) {
            let at = random_time(rng, FAULTS);
            world.ranks[rank].calls.push_back(at);
        }
        let mut faults: Vec<(Nanos, Fault)> = (0..rng.usize(..ranks.min(4)))
            .map(|_| (random_time(rng, FAULTS), Fault::Killed(rng.usize(..ranks))))
            .collect();
        faults.sort_by_key(|(at, _)| *at);
        simulator.note(|| format!("{ranks} ranks, {uniform:?}, {absent:?}, {faults:?}"));
        let has_died = |rank: usize| faults.iter().any(|(_, fault)| *fault == Fault::Killed(rank));
        world.faults = faults.iter().copied().collect();
        world.run(simulator);
        world.check_times();
        world.check_groups(uniform);
        let left: Vec<usize> = (0..ranks).filter(|rank| !has_died(*rank) && absent != Some(*rank)).collect();
        let ends = left.iter().map(|rank| &world.ranks[*rank].ends[0].1);
        let ends: Vec<&End> = ends.collect();
        assert!(ends.windows(2).all(|pair| pair[0] == pair[1]), "{ends:?}");
        let Some(end) = ends.first() else { return };
        let count = match end {
            End::Formed(group) => {
                let members: Vec<usize> = group.members.iter().map(|member| member.rank).collect();
                assert!(left.iter().all(|rank| members.contains(rank)), "{members:?} of {left:?}");
                if members.len() == ranks { whole } else { smaller }
            }
            End::Isolated => {
                let alive =
                    (0..ranks).filter(|rank| !has_died(*rank)).fold(RankSet::default(), RankSet::with);
                assert!(uniform.is_some_and(|uniform| !uniform.is_majority(alive, ranks)));
                isolated
            }
            End::Missing(who) => {
                assert_eq!(*who, Vec::from_iter(absent));
                missing
            }
            End::Excluded => panic!("nobody is excluded"),
        };
        count.fetch_add(1, Ordering::Relaxed);
    });
    for count in counts.map(AtomicU64::into_inner) {
        assert!(seeds < 1000 || count > seeds / 40, "in {count} of {seeds} seeds");
    }
}

/// Ranks are stopped, lose connections, and call several times. Whatever happens, no group is in two minds.
#[test]
fn ranks_that_lose_one_another_form_no_two_groups_with_each_other() {
    let differing = AtomicU64::new(0);
    let seeds = check_seeds(3000, |simulator| {
        let rng = simulator.rng();
        let ranks = rng.usize(2..RANKS_MAX + 1);
        let uniform = random_uniform(rng, ranks);
        let mut world = World::new(ranks, uniform);
        for rank in 0..ranks {
            let mut calls: Vec<Nanos> =
                (0..rng.u32(1..CALLS_MAX + 1)).map(|_| random_time(rng, CALLS)).collect();
            calls[0] = random_time(rng, 2 * FAULTS);
            calls.sort();
            world.ranks[rank].calls.extend(calls);
        }
        let mut faults: Vec<(Nanos, Fault)> = (0..rng.usize(1..4))
            .map(|_| {
                let (rank, more) = (rng.usize(..ranks), rng.usize(1..ranks));
                let fault = match rng.u32(..4) {
                    0 => Fault::Killed(rank),
                    1 => Fault::Stopped(rank),
                    2 => Fault::Cut(RankSet::from_bits(rng.u64(..1 << ranks))),
                    _ => Fault::Disconnected(rank, (rank + more) % ranks),
                };
                (random_time(rng, 2 * FAULTS), fault)
            })
            .collect();
        faults.sort_by_key(|(at, _)| *at);
        simulator.note(|| format!("{ranks} ranks, {uniform:?}, {faults:?}"));
        world.faults = faults.into_iter().collect();
        world.run(simulator);
        world.check_times();
        world.check_groups(uniform);
        let mut groups: Vec<u32> = (0..ranks).filter_map(|rank| Some(world.group(rank)?.group)).collect();
        groups.dedup();
        differing.fetch_add(u64::from(groups.len() > 1), Ordering::Relaxed);
    });
    let differing = differing.into_inner();
    assert!(seeds < 1000 || differing > seeds / 40, "in {differing} of {seeds} seeds");
}
