//! A board: its parts as tasks, what passes between them, and what must hold.

mod check;
mod clients;
mod lane;
mod remote;
mod stream;
mod turns;

use orinoco_core::{DropPolicy, ModelId, Nanos, Rng, StreamId};

use orinoco_sim::{Simulator, Task};
use orinoco_telemetry::DropCause;
use std::time::Duration;

use crate::Totals;
use crate::director::{Director, RUN};
pub(crate) use clients::ClientCounts;
use clients::Clients;
use lane::Lane;
use remote::Remote;
use stream::Stream;

/// Models of every board.
pub(crate) const MODELS: u32 = 3;
/// Models of the streams; the index is their group.
pub(crate) const MODEL_SETS: [&[ModelId]; 4] = [&[ModelId(0)], &[ModelId(1)], &[ModelId(0), ModelId(2)], &[]];
/// The largest batch of any plan.
pub(crate) const BATCH_MAX: usize = 12;
/// Models that may be computed elsewhere: their answers come later.
pub(crate) const REMOTE_MODELS: [ModelId; 2] = [ModelId(1), ModelId(2)];
/// Time in which a board ends: what waits is executed, and sinks that block are given up.
const END: Duration = Duration::from_secs(60);

pub(crate) struct Board<'s> {
    pub(crate) simulator: &'s mut Simulator,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) director: Director,
    pub(crate) clients: Clients,
    pub(crate) remote: Remote,
    /// Role of each task, by its index.
    roles: Vec<Role>,
}

#[derive(Clone, Copy, Debug)]
enum Role {
    Director,
    Clients,
    Remote,
    Source(usize),
    Lane(usize),
    Sinks(usize),
}

impl<'s> Board<'s> {
    /// A board of 1 to 3 lanes, with 1 to 3 streams each.
    pub(crate) fn new(simulator: &'s mut Simulator) -> Self {
        let director = Director::default();
        let roles = vec![Role::Director, Role::Clients, Role::Remote];
        let [_, clients, remote] = [(); 3].map(|()| simulator.add_task());
        let (clients, remote) = (Clients::new(clients), Remote::new(remote));
        let (lanes, streams) = (Vec::new(), Vec::new());
        let mut board = Self { simulator, lanes, streams, director, clients, remote, roles };
        for lane in 0..board.simulator.rng().usize(1..=3) {
            let task = board.add_task(Role::Lane(lane));
            let lane_new = Lane::new(task, board.simulator.rng());
            board.lanes.push(lane_new);
            for _ in 0..board.simulator.rng().usize(1..=3) {
                board.join(lane);
            }
        }
        board
    }

    /// Runs it until everything has ended.
    pub(crate) fn run(&mut self) {
        while let Some(task) = self.simulator.next(Nanos(0) + RUN + END) {
            let role = self.roles[task.index()];
            match role {
                Role::Director => {
                    if let Some(next) = self.direct() {
                        self.simulator.work(task, next);
                    }
                }
                Role::Clients => self.step_clients(),
                Role::Remote => self.step_remote(),
                Role::Source(stream) => self.step_source(stream),
                Role::Lane(lane) => self.step_lane(lane),
                Role::Sinks(stream) => self.step_sinks(stream),
            }
            self.check();
        }
        self.check_ended();
    }

    /// Adds what happened.
    pub(crate) fn add_to(&self, totals: &mut Totals) {
        totals.steps += self.simulator.steps();
        totals.broken += self.lanes.iter().filter(|lane| lane.is_broken).count() as u64;
        totals.exchanged += self.lanes.iter().map(|lane| lane.exchanged).sum::<u64>();
        totals.given_up += self.lanes.iter().map(|lane| lane.given_up).sum::<u64>();
        totals.replaced_failed += self.lanes.iter().map(|lane| lane.replaced_failed).sum::<u64>();
        totals.fallen_back += self.lanes.iter().map(|lane| lane.fallen_back).sum::<u64>();
        totals.answered += self.remote.answered;
        totals.answered_late += self.remote.late;
        totals.requests.add(self.clients.counts);
        for stream in &self.streams {
            totals.frames_out += stream.counts.frames_out;
            totals.recovered += stream.counts.recovered;
            for (total, dropped) in totals.dropped.iter_mut().zip(stream.counts.dropped) {
                *total += dropped;
            }
        }
    }

    /// Lets a stream join a lane, as its entry does. Returns false if the lane refuses it.
    pub(crate) fn join(&mut self, lane: usize) -> bool {
        let index = self.streams.len();
        let id = StreamId(index.try_into().expect("a few streams"));
        let (source, sinks) = (self.add_task(Role::Source(index)), self.add_task(Role::Sinks(index)));
        let (now, rng) = (self.simulator.now(), self.simulator.rng());
        let mut stream = Stream::new(id, lane, source, sinks, now, rng);
        let joined = self.lanes[lane].join(id, stream.queue, rng);
        self.simulator.notify(self.lanes[lane].task);
        self.simulator.note(|| format!("stream {id} joins lane {lane}: {joined:?}, {:?}", stream.queue));
        (stream.in_video_memory, stream.batch_max) = joined.unwrap_or_default();
        self.streams.push(stream);
        if joined.is_err() {
            // Nobody will feed its sinks, and its source is not started.
            let stream = &mut self.streams[index];
            stream.is_over = true;
            stream.sinks.end();
        }
        joined.is_ok()
    }

    /// Asks one stream to end. Returns whether it had not been asked before, and not ended by itself.
    pub(crate) fn stop(&mut self, stream: usize) -> bool {
        let stopped = &mut self.streams[stream];
        let is_first = !stopped.is_stopping && !stopped.is_over;
        stopped.is_stopping = true;
        let (source, lane) = (stopped.source, self.lanes[stopped.lane].task);
        self.simulator.note(|| format!("stop stream {stream}"));
        // Those that wait for the request are its source and a lane that waits for its sinks.
        self.simulator.notify(source);
        self.simulator.notify(lane);
        is_first
    }

    /// Asks all streams to end.
    pub(crate) fn stop_all(&mut self) {
        for stream in 0..self.streams.len() {
            self.stop(stream);
        }
    }

    /// Ends a lane after the batch at work. Returns whether it was open.
    pub(crate) fn close_lane(&mut self, lane: usize) -> bool {
        self.simulator.note(|| format!("close lane {lane}"));
        let was_closed = std::mem::replace(&mut self.lanes[lane].is_closed, true);
        let dropped = self.lanes[lane].mux.close();
        self.refuse_unserved(lane);
        for frame in dropped {
            let stream = &mut self.streams[frame.desc.stream.index()];
            stream.counts.drop_frame(DropCause::Shutdown);
            stream.ring.pop_front();
        }
        self.resume_sources(lane);
        self.simulator.notify(self.lanes[lane].task);
        !was_closed
    }

    /// Notifies the sources of a lane whose rings have room again.
    fn resume_sources(&mut self, lane: usize) {
        for stream in self.lanes[lane].mux.resumed() {
            self.simulator.notify(self.streams[stream.index()].source);
        }
    }

    fn add_task(&mut self, role: Role) -> Task {
        let task = self.simulator.add_task();
        self.roles.push(role);
        assert_eq!(self.roles.len(), task.index() + 1);
        task
    }
}

/// One of several, each as likely.
fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.usize(..from.len())]
}

/// A time of milliseconds.
fn millis(rng: &mut Rng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_micros(rng.u64(range.start * 1000..range.end * 1000))
}

/// Any drop policy, `Block` as often as both others.
fn policy(rng: &mut Rng) -> DropPolicy {
    pick(rng, &[DropPolicy::Block, DropPolicy::Block, DropPolicy::DropOldest, DropPolicy::DropNewest])
}
