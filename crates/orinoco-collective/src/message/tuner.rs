//! Measures links and reductions, and chooses algorithms by them.
//!
//! A probe is a schedule of two ranks, so its messages take the same way through engine and transport as those of an operation. Each
//! link is measured by its lower rank while the other ranks wait for their turn, and that rank decides by its clock how often.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use half::f16;
use zerocopy::IntoBytes;

use super::group::{MessageGroup, Tuned};
use super::kernel::Kernel;
use super::memory::{Memory, Span};
use super::plan::OperationPlan;
use super::transport::Transport;
use crate::call::{Call, Operation};
use crate::clock::Ticks;
use crate::cost::Curve;
use crate::element::kernel;
use crate::tuning::{
    Choices, Drift, Figures, LinkFigures, MESSAGE_BYTES, REDUCE_BYTES, REDUCED_TYPES, RankFigures, nanos,
};
use crate::{
    Buffer, CollectiveError, Communicator, DataType, FailureCause, ReduceOp, Region, Round, Schedule,
    Transfer,
};

/// Most ranks of a group that is tuned: prices of larger ones take seconds. They keep the fixed choices.
pub const TUNED_RANKS_MAX: usize = 16;
/// Most ranks of a group in which every link is measured. In larger ones those of rank 0 and of neighbours are, and the others are
/// taken to be as fast as the measured links of their ranks.
const ALL_LINKS_RANKS_MAX: usize = 8;
/// Time for the measurement of all links, and of one.
const ALL_TIME: Duration = Duration::from_millis(200);
const LINK_TIME_MAX: Duration = Duration::from_millis(100);
/// Order in which sizes are measured, as places in [`MESSAGE_BYTES`]: if time runs out, the last ones are missing.
const ORDER: [usize; MESSAGE_BYTES.len()] = [0, 4, 2, 5, 3, 1, 6];
/// So many sizes are measured whatever time it takes.
const ORDER_MIN: usize = 2;
/// Samples of a size, at least and at most. A size with fewer is left out: one of them may be from a time at which a rank had no core.
const SAMPLES_MIN: usize = 3;
const SAMPLES_MAX: usize = 7;
/// Round trips of a sample of the latency of short messages.
const ROUND_TRIPS: usize = 3;
/// Messages of a sample of a stream, short and long ones.
const SHORT_MESSAGES: usize = 4;
const LONG_MESSAGES: usize = 2;
/// Messages up to this size are in the receiver's socket before it looks. Whether it takes long to receive them is measured then; of
/// longer ones, how long it takes to send and receive at the same time.
const SHORT_BYTES: usize = 16 << 10;
/// Time for which a receiver lets a short message lie, in addition to its latency, and longest such time.
const LIE_TIME: Duration = Duration::from_micros(20);
const LIE_TIME_MAX: Duration = Duration::from_millis(2);
/// Samples of a local computation, and bytes that each works on at least.
const LOCAL_SAMPLES: usize = 7;
const LOCAL_BYTES: usize = 16 << 10;
/// Time after which no further sample of a local computation is taken.
const LOCAL_TIME: Duration = Duration::from_micros(500);
/// Sizes of a recheck, as places in [`MESSAGE_BYTES`], and its samples of each.
const RECHECKED: [usize; 2] = [0, 4];
const RECHECK_SAMPLES: usize = 5;

/// First word of a command: the size's place, or this for the last one.
const END: u64 = u64::MAX;
/// Second word of a command: all curves, or the latency only.
const ALL_CURVES: u64 = 0;
const LATENCY_ONLY: u64 = 1;
/// Source of the figures, as rank 0 announces it.
const MEASURED: u8 = 1;
const GIVEN: u8 = 2;

/// A probe of two ranks, as one of them.
#[derive(Clone, Copy)]
enum Probe {
    /// Messages to and fro, so many times.
    PingPong(usize),
    /// So many messages in one direction, and an empty one back.
    Stream(usize),
    /// One message.
    Send,
    /// So many messages in each direction at the same time.
    Exchange(usize),
}

/// Samples of one size, in nanoseconds.
#[derive(Default)]
struct Samples {
    latency: Vec<u64>,
    /// Of all messages of a stream, with its answer.
    stream: Vec<u64>,
    send: Vec<u64>,
    /// Of short messages.
    receive: Vec<u64>,
    /// Of both directions, of long messages.
    exchange: Vec<u64>,
    /// Until a rank that waits gives way to others.
    spin: Vec<u64>,
}

impl<T: Transport> MessageGroup<T> {
    /// Measures the group's links and reductions, and chooses algorithms by them from now on. Takes some tenths of a second, less in small
    /// groups. All ranks call it. If rank 0 gives figures of as many ranks, from [`MessageGroup::figures`] of an earlier group, they
    /// are used instead of measuring; what other ranks give is ignored.
    ///
    /// Groups of more than [`TUNED_RANKS_MAX`] ranks are not tuned: their choices stay as they are.
    ///
    /// # Errors
    /// Like an operation.
    pub fn tune(&mut self, known: Option<&Figures>) -> Result<(), CollectiveError> {
        let ranks = self.ranks();
        if ranks > TUNED_RANKS_MAX {
            return Ok(());
        }
        let known = known.filter(|figures| figures.ranks() == ranks);
        let mut source = [if known.is_some() { GIVEN } else { MEASURED }];
        self.broadcast(0, &mut source)?;
        let figures = match (source[0], known) {
            (GIVEN, known) => known.cloned(),
            _ => self.measure()?,
        };
        self.agree(figures)
    }

    /// The figures by which the group was tuned. All ranks have equal ones.
    pub fn figures(&self) -> Option<&Figures> {
        self.tuned().map(|tuned| &tuned.figures)
    }

    /// Measures the latencies of the links again, and returns the one that has changed most since the figures were measured. All ranks
    /// call it, and get the same. `None` if the group is not tuned, or has one rank. The choices stay as they are: call
    /// [`MessageGroup::tune`] if it has changed too much.
    ///
    /// # Errors
    /// Like an operation.
    pub fn recheck(&mut self) -> Result<Option<Drift>, CollectiveError> {
        let ranks = self.ranks();
        let Some(figures) = self.figures().cloned().filter(|_| ranks > 1) else { return Ok(None) };
        let mut row = vec![0; ranks * RECHECKED.len()];
        self.in_turn(|group, peer| {
            for (place, size) in RECHECKED.into_iter().enumerate() {
                let mut samples = Vec::new();
                for _ in 0..RECHECK_SAMPLES {
                    group.command(peer, size as u64, LATENCY_ONLY, Duration::ZERO)?;
                    samples.push(group.latency(peer, size, true)?);
                }
                row[peer * RECHECKED.len() + place] = typical(&mut samples);
            }
            group.command(peer, END, LATENCY_ONLY, Duration::ZERO)
        })?;
        let mut rows = vec![0; if self.rank() == 0 { ranks * row.len() } else { 0 }];
        self.gather(0, &row, &mut rows)?;
        let mut most = [0; 4];
        if self.rank() == 0 {
            let places = (0..ranks).flat_map(|from| (0..ranks).map(move |to| (from, to)));
            let all = places.flat_map(|(from, to)| (0..RECHECKED.len()).map(move |place| [from, to, place]));
            let measured = all.zip(&rows).filter(|(_, now)| **now > 0);
            let drift = |(place, now): &([usize; 3], &u64)| drift(&figures, *place, **now).factor();
            if let Some((place, now)) = measured.max_by(|one, other| drift(one).total_cmp(&drift(other))) {
                most = [place[0] as u64, place[1] as u64, place[2] as u64, *now];
            }
        }
        self.broadcast(0, &mut most)?;
        let [from, to, place, now] = most;
        let place = [from, to, place].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
        if place[0] >= ranks || place[1] >= ranks || place[0] == place[1] || place[2] >= RECHECKED.len() {
            return Err(self.unexpected(0));
        }
        Ok(Some(drift(&figures, place, now)))
    }

    /// Takes over the figures of rank 0, and its choices. The other ranks have no figures.
    fn agree(&mut self, figures: Option<Figures>) -> Result<(), CollectiveError> {
        let (ranks, rules) = (self.ranks(), self.rules());
        let is_first = self.rank() == 0;
        let own = figures.filter(|_| is_first).map(|figures| (figures.to_words(), figures));
        let mut words = own.as_ref().map_or_else(|| vec![0; Figures::words_of(ranks)], |own| own.0.clone());
        self.broadcast(0, &mut words)?;
        let figures = own.map_or_else(|| Figures::from_words(ranks, &words), |own| own.1);
        let topology = rules.boards(&figures);
        let mut choices = if is_first {
            Choices::priced(&figures, rules).to_words()
        } else {
            vec![0; Choices::words_of(ranks)]
        };
        self.broadcast(0, &mut choices)?;
        let choices = Choices::from_words(&choices, &topology, rules.order);
        let choices = choices.ok_or_else(|| self.unexpected(0))?;
        self.set_tuned(Tuned { figures, choices }, &topology);
        Ok(())
    }

    /// Measures all links in turn, and the computations of each rank. Returns the figures at rank 0.
    fn measure(&mut self) -> Result<Option<Figures>, CollectiveError> {
        let (rank, ranks) = (self.rank(), self.ranks());
        let links = (0..ranks).flat_map(|one| (one + 1..ranks).map(move |other| (one, other)));
        let number = links.filter(|(one, other)| is_measured(*one, *other, ranks)).count();
        let time = (ALL_TIME / u32::try_from(number.max(1)).expect("few links")).min(LINK_TIME_MAX);
        let mut links = vec![LinkFigures::default(); ranks];
        let mut own = RankFigures::default();
        self.in_turn(|group, peer| {
            let (link, spin) = group.measure_link(peer, time)?;
            links[peer] = link;
            own.spin = own.spin.max(spin);
            Ok(())
        })?;
        measure_rank(&mut own);
        let words = Figures::words_of(ranks);
        let mut all = vec![0; if rank == 0 { words } else { 0 }];
        self.gather(0, &Figures::row(own, &links), &mut all)?;
        Ok((rank == 0).then(|| Figures::from_words(ranks, &all).complete()))
    }

    /// Measures the links of this rank with `initiate` when it has its turn, and answers before, while lower ranks have theirs.
    fn in_turn(
        &mut self,
        mut initiate: impl FnMut(&mut Self, usize) -> Result<(), CollectiveError>,
    ) -> Result<(), CollectiveError> {
        let (rank, ranks) = (self.rank(), self.ranks());
        for peer in (0..rank).filter(|peer| is_measured(*peer, rank, ranks)) {
            self.respond(peer)?;
        }
        // The last rank has no links of its own to measure.
        if rank > 0 && rank + 1 < ranks {
            self.recv(rank - 1, &mut [0u8])?;
        }
        for peer in (rank + 1..ranks).filter(|peer| is_measured(rank, *peer, ranks)) {
            initiate(self, peer)?;
        }
        if rank + 2 < ranks {
            self.send(rank + 1, &[0u8])?;
        }
        Ok(())
    }

    fn command(&mut self, peer: usize, size: u64, what: u64, lie: Duration) -> Result<(), CollectiveError> {
        self.send(peer, &[size, what, nanos(lie)])
    }

    /// Carries out the probes that a lower rank commands.
    fn respond(&mut self, peer: usize) -> Result<(), CollectiveError> {
        loop {
            let mut command = [0u64; 3];
            self.recv(peer, &mut command)?;
            let [size, what, lie] = command;
            if size == END {
                return Ok(());
            }
            let size = usize::try_from(size).ok().filter(|size| *size < MESSAGE_BYTES.len());
            let size = size.ok_or_else(|| self.unexpected(peer))?;
            self.latency(peer, size, false)?;
            if what == LATENCY_ONLY {
                continue;
            }
            self.probe(peer, size, Probe::Stream(messages(size)), false)?;
            if MESSAGE_BYTES[size] <= SHORT_BYTES {
                let start = Ticks::now();
                while Ticks::now().since(start) < Duration::from_nanos(lie).min(LIE_TIME_MAX) {
                    // Its sender may need this core.
                    thread::yield_now();
                }
                let receive = self.probe(peer, size, Probe::Send, false)?;
                self.send(peer, &[receive])?;
            } else {
                self.probe(peer, size, Probe::Send, false)?;
                self.probe(peer, size, Probe::Exchange(LONG_MESSAGES), false)?;
            }
        }
    }

    /// Measures a link, and the time after which this rank gives way to others while it waits.
    fn measure_link(&mut self, peer: usize, time: Duration) -> Result<(LinkFigures, u64), CollectiveError> {
        let start = Ticks::now();
        let mut all: [Samples; MESSAGE_BYTES.len()] = Default::default();
        for sample in 0..SAMPLES_MAX {
            for (number, size) in ORDER.into_iter().enumerate() {
                let is_needed = sample < SAMPLES_MIN && number < ORDER_MIN;
                if is_needed || Ticks::now().since(start) < time {
                    self.sample(peer, size, &mut all[size])?;
                }
            }
        }
        self.command(peer, END, ALL_CURVES, Duration::ZERO)?;
        let mut spins: Vec<u64> = all.iter().flat_map(|samples| &samples.spin).copied().collect();
        Ok((link_figures(&mut all), typical(&mut spins)))
    }

    /// Takes one sample of all curves at one size.
    fn sample(&mut self, peer: usize, size: usize, samples: &mut Samples) -> Result<(), CollectiveError> {
        let last = samples.latency.last().copied().unwrap_or(nanos(LIE_TIME_MAX / 4));
        self.command(peer, size as u64, ALL_CURVES, Duration::from_nanos(2 * last) + LIE_TIME)?;
        samples.latency.push(self.latency(peer, size, true)?);
        samples.stream.push(self.probe(peer, size, Probe::Stream(messages(size)), true)?);
        samples.send.push(self.probe(peer, size, Probe::Send, true)?);
        if MESSAGE_BYTES[size] <= SHORT_BYTES {
            // The receiver lets the message lie, so this rank waits.
            let mut receive = [0];
            self.take_gave_way();
            let start = Ticks::now();
            self.recv(peer, &mut receive)?;
            samples.receive.push(receive[0]);
            samples.spin.extend(self.take_gave_way().map(|gave_way| nanos(gave_way.since(start))));
        } else {
            let exchange = self.probe(peer, size, Probe::Exchange(LONG_MESSAGES), true)?;
            samples.exchange.push(exchange / LONG_MESSAGES as u64);
        }
        Ok(())
    }

    /// Nanoseconds of half a ping-pong.
    fn latency(&mut self, peer: usize, size: usize, is_initiator: bool) -> Result<u64, CollectiveError> {
        let round_trips = if MESSAGE_BYTES[size] <= SHORT_BYTES { ROUND_TRIPS } else { 1 };
        let time = self.probe(peer, size, Probe::PingPong(round_trips), is_initiator)?;
        Ok(time / (2 * round_trips as u64))
    }

    /// Carries out a probe with a peer. Returns the nanoseconds that it took here.
    fn probe(
        &mut self,
        peer: usize,
        size: usize,
        probe: Probe,
        is_initiator: bool,
    ) -> Result<u64, CollectiveError> {
        let bytes = MESSAGE_BYTES[size];
        let from = if is_initiator { self.rank() } else { peer };
        let call = Call::new(Operation::Send, Some(DataType::U8), None, from, bytes);
        let plan = OperationPlan::of_two(probe.schedule(peer, bytes, is_initiator), self.ranks());
        let input = self.take_probe_input(bytes);
        let start = Ticks::now();
        let result = self.run_plan(call, Arc::new(plan), Some(&input[..bytes]), &mut []);
        let time = nanos(Ticks::now().since(start));
        self.keep_probe_input(input);
        result.map(|()| time)
    }

    /// Ends the group because a rank sent what no rank of this version sends.
    fn unexpected(&mut self, rank: usize) -> CollectiveError {
        self.transport().health(|health| health.fail(rank, FailureCause::Unexpected));
        let call = Call::new(Operation::Send, Some(DataType::U64), None, rank, 0);
        CollectiveError::EpochFailed { epoch: self.epoch(), rank, cause: FailureCause::Unexpected, call }
    }
}

/// Messages of a sample of a stream of a size.
fn messages(size: usize) -> usize {
    if MESSAGE_BYTES[size] <= SHORT_BYTES { SHORT_MESSAGES } else { LONG_MESSAGES }
}

/// Whether the link of two ranks, the lower one first, is measured.
fn is_measured(one: usize, other: usize, ranks: usize) -> bool {
    ranks <= ALL_LINKS_RANKS_MAX || one == 0 || other == one + 1
}

fn drift(figures: &Figures, [from, to, place]: [usize; 3], now: u64) -> Drift {
    let bytes = MESSAGE_BYTES[RECHECKED[place]];
    let before = figures.latency(from, to, bytes);
    Drift { link: (from, to), bytes, before, now: Duration::from_nanos(now) }
}

impl Probe {
    fn schedule(self, peer: usize, bytes: usize, is_initiator: bool) -> Schedule {
        let message = |buffer, count: usize| {
            let regions = vec![Region { buffer, start: 0, len: bytes }];
            vec![Transfer { peer, regions }; count]
        };
        let send = |count| Round { sends: message(Buffer::Input, count), ..Round::default() };
        let receive = |count| Round { receives: message(Buffer::Scratch, count), ..Round::default() };
        let empty = || vec![Transfer { peer, regions: Vec::new() }];
        let rounds = match (self, is_initiator) {
            (Self::PingPong(times), true) => vec![[send(1), receive(1)]; times].concat(),
            (Self::PingPong(times), false) => vec![[receive(1), send(1)]; times].concat(),
            (Self::Stream(count), true) => {
                vec![send(count), Round { receives: empty(), ..Round::default() }]
            }
            (Self::Stream(count), false) => {
                vec![receive(count), Round { sends: empty(), ..Round::default() }]
            }
            (Self::Send, true) => vec![send(1)],
            (Self::Send, false) => vec![receive(1)],
            (Self::Exchange(count), _) => {
                let both = Round {
                    sends: message(Buffer::Input, 1),
                    receives: message(Buffer::Scratch, 1),
                    locals: Vec::new(),
                };
                vec![both; count]
            }
        };
        Schedule { rounds, scratch_len: bytes, partial_len: 0 }
    }
}

/// Figures from samples. What was not measured lies between what was, or goes on after it.
fn link_figures(all: &mut [Samples; MESSAGE_BYTES.len()]) -> LinkFigures {
    let shortest = typical(&mut all[0].latency);
    let mut measured = Vec::new();
    let is_measured = |samples: &Samples| samples.latency.len() >= SAMPLES_MIN;
    for (size, samples) in all.iter_mut().enumerate().filter(|(_, samples)| is_measured(samples)) {
        let bytes = MESSAGE_BYTES[size];
        let latency = typical(&mut samples.latency);
        // The first message takes its latency, the answer that of the shortest one.
        let stream = typical(&mut samples.stream).saturating_sub(latency + shortest);
        let stream = stream / (messages(size) as u64 - 1);
        let send = typical(&mut samples.send);
        let (send, receive) = if bytes <= SHORT_BYTES {
            // Together they can take longer than the message: within a machine, its receiver may have it before the sender's call returns.
            (send, typical(&mut samples.receive))
        } else {
            // A sender that waits for its receiver is not busy, and only both together are known.
            let both = typical(&mut samples.exchange);
            let send = send.min(both);
            (send, both - send)
        };
        measured.push((bytes as f64, [latency, stream, send, receive]));
    }
    let curve = |number: usize| {
        let points: Vec<(f64, f64)> =
            measured.iter().map(|(bytes, nanos)| (*bytes, nanos[number] as f64)).collect();
        let curve = Curve::through(&points);
        let mut nanos = MESSAGE_BYTES.map(|bytes| curve.at(bytes) as u64);
        // A shorter message never takes longer than a longer one: it was disturbed.
        for place in (1..nanos.len()).rev() {
            nanos[place - 1] = nanos[place - 1].min(nanos[place]);
        }
        nanos
    };
    // A measured link has a latency.
    let latency = curve(0).map(|nanos| nanos.max(1));
    let (send, mut receive) = (curve(2), curve(3));
    for (place, receive) in receive.iter_mut().enumerate() {
        // Both directions one after the other take twice the latency, and at the same time no longer.
        *receive = (*receive).min((2 * latency[place]).saturating_sub(send[place]));
    }
    LinkFigures { latency, stream: curve(1), send, receive }
}

/// The lower quartile of some samples, 0 if there are none: what disturbs a measurement only adds to it, and of few samples the
/// median is often a disturbed one.
fn typical(samples: &mut [u64]) -> u64 {
    samples.sort_unstable();
    samples.get(samples.len() / 4).copied().unwrap_or(0)
}

/// Measures copies and reductions of this rank.
fn measure_rank(figures: &mut RankFigures) {
    let bytes = REDUCE_BYTES[REDUCE_BYTES.len() - 1];
    let (input, mut output, mut other) =
        (vec![0u64; bytes / 8], vec![0u64; bytes / 8], vec![0u64; bytes / 8]);
    let mut memory = Memory {
        input: Some(input.as_bytes()),
        output: output.as_mut_bytes(),
        scratch: other.as_mut_bytes(),
        partial: &mut [],
    };
    (figures.machine, figures.cores) = (machine(), cores());
    let span = |buffer, len| Span { buffer, start: 0, len };
    for (place, bytes) in REDUCE_BYTES.into_iter().enumerate() {
        let (from, into) = (span(Buffer::Input, bytes), span(Buffer::Output, bytes));
        figures.copy[place] = measure_local(bytes, || memory.copy(from, into));
        for (kind, data_type) in REDUCED_TYPES.into_iter().enumerate() {
            let kernel = sum_of(data_type);
            let operands = [from, span(Buffer::Scratch, bytes)];
            let time = measure_local(bytes, || kernel.reduce(&mut memory, into, &operands, 2));
            figures.reduce[kind][place] = time;
        }
    }
}

/// Kernel of the sum of one of [`REDUCED_TYPES`].
fn sum_of(data_type: DataType) -> Kernel {
    match data_type {
        DataType::I8 => kernel::<i8>(ReduceOp::Sum),
        DataType::F64 => kernel::<f64>(ReduceOp::Sum),
        DataType::F16 => kernel::<f16>(ReduceOp::Sum),
        _ => kernel::<f32>(ReduceOp::Sum),
    }
}

/// Nanoseconds of a computation on so many bytes.
fn measure_local(bytes: usize, mut compute: impl FnMut()) -> u64 {
    let times = (LOCAL_BYTES / bytes).max(1);
    let mut sample = || {
        let start = Ticks::now();
        (0..times).for_each(|_| compute());
        nanos(Ticks::now().since(start)) / times as u64
    };
    let (start, mut samples) = (Ticks::now(), Vec::new());
    let has_time = || Ticks::now().since(start) < LOCAL_TIME;
    while samples.len() < SAMPLES_MIN || (samples.len() < LOCAL_SAMPLES && has_time()) {
        samples.push(sample());
    }
    typical(&mut samples)
}

/// Cores on which this rank may run, a bit for each. Those beyond the first 64 are left out; where there are so many, ranks do not share
/// them.
fn cores() -> u64 {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return u64::MAX };
    (0..64).filter(|core| allowed.is_set(*core)).fold(0, |cores, core| cores | 1 << core)
}

/// Number of the machine on which this process runs, equal for all its processes: of the kernel's boot id, or else of the host name. Where
/// there is neither, each process counts as a machine of its own.
fn machine() -> u64 {
    let names = ["/proc/sys/kernel/random/boot_id", "/etc/hostname"];
    let found = names.into_iter().find_map(|path| std::fs::read(path).ok().filter(|name| !name.is_empty()));
    let name = found.unwrap_or_else(|| std::process::id().to_le_bytes().to_vec());
    // Two halves: 32 bits of a checksum alone could be equal for two machines by chance.
    let (first, second) = name.split_at(name.len() / 2);
    u64::from(crc32c::crc32c(first)) << 32 | u64::from(crc32c::crc32c(second))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::{MessageSettings, Rendezvous, Security, TcpGroup, TcpSettings};

    /// The error of rank 1, which tunes honestly, while rank 0 does something else.
    fn tuned_with(name: &str, hostile: impl FnOnce(TcpGroup) + Send) -> CollectiveError {
        let path = PathBuf::from(format!("/dev/shm/orinoco-tuner-{}-{name}", std::process::id()));
        let join = |rank| {
            let messages = MessageSettings { silence: Duration::from_secs(10), ..MessageSettings::default() };
            let settings = TcpSettings { security: Security::Plaintext, messages };
            TcpGroup::join(&Rendezvous::File(path.clone()), rank, 2, settings).expect("both join")
        };
        std::thread::scope(|scope| {
            scope.spawn(|| hostile(join(0)));
            join(1).tune(None).expect_err("rank 0 is hostile")
        })
    }

    fn check_names_rank_0(error: &CollectiveError) {
        let is_named =
            matches!(error, CollectiveError::EpochFailed { rank: 0, cause: FailureCause::Unexpected, .. });
        assert!(is_named, "{error}");
    }

    #[test]
    fn choices_that_cannot_be_are_refused() {
        let error = tuned_with("choices", |mut group| {
            group.broadcast(0, &mut [GIVEN]).unwrap();
            group.broadcast(0, &mut vec![u64::MAX; Figures::words_of(2)]).unwrap();
            group.broadcast(0, &mut vec![999u32; Choices::words_of(2)]).unwrap();
            // It fails when rank 1 says so.
            let _ = group.barrier();
        });
        check_names_rank_0(&error);
    }

    #[test]
    fn commands_that_cannot_be_are_refused() {
        let error = tuned_with("commands", |mut group| {
            group.broadcast(0, &mut [MEASURED]).unwrap();
            group.send(1, &[MESSAGE_BYTES.len() as u64, ALL_CURVES, u64::MAX]).unwrap();
            let _ = group.barrier();
        });
        check_names_rank_0(&error);
    }

    #[test]
    fn larger_groups_measure_some_links_and_fill_in_the_others() {
        for ranks in [1, 2, 8, 9, 16] {
            let mut words = vec![0; Figures::words_of(ranks)];
            let row = words.len() / ranks;
            for (one, other) in (0..ranks).flat_map(|one| (one + 1..ranks).map(move |other| (one, other))) {
                if is_measured(one, other, ranks) {
                    let start = one * row + row - (ranks - other) * LinkFigures::WORDS;
                    words[start..start + LinkFigures::WORDS].fill(1000 + other as u64);
                }
            }
            let figures = Figures::from_words(ranks, &words).complete();
            for (from, to) in (0..ranks).flat_map(|from| (0..ranks).map(move |to| (from, to))) {
                let latency = (from != to).then(|| figures.latency(from, to, 8));
                assert!(latency.is_none_or(|latency| latency >= Duration::from_nanos(1001)), "{from} {to}");
                assert!(from == to || latency == Some(figures.latency(to, from, 8)), "{from} {to}");
            }
        }
    }
}
