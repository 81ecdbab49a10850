//! Simulated links: byte streams with delays, bounds and faults.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::rc::Rc;
use std::time::Duration;

use orinoco_core::{Nanos, Rng};

use super::super::{
    Engine, Health, LinkFault, Memory, Moved, Notice, StreamReceiver, StreamSender, Transport,
};

pub(super) const EPOCH: u32 = 3;

/// Fault of the bytes of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamFault {
    FlippedBit,
    LostBytes,
    RepeatedBytes,
    /// The end of a chunk arrives before its start.
    ReorderedBytes,
}

impl StreamFault {
    pub(super) const ALL: [Self; 4] =
        [Self::FlippedBit, Self::LostBytes, Self::RepeatedBytes, Self::ReorderedBytes];

    /// Applies the fault to the start of `bytes` that is written as a chunk.
    fn apply(self, bytes: &[u8], len: usize, rng: &mut Rng) -> Vec<u8> {
        let mut chunk = bytes[..len].to_vec();
        match self {
            Self::FlippedBit => chunk[rng.usize(..len)] ^= 1 << rng.u32(..8),
            Self::LostBytes => chunk.truncate(rng.usize(..len)),
            Self::RepeatedBytes => chunk.extend_from_slice(&bytes[rng.usize(..len)..len]),
            Self::ReorderedBytes => chunk.rotate_left(rng.usize(..len)),
        }
        chunk
    }
}

/// One direction of a link.
#[derive(Default)]
pub(super) struct Stream {
    chunks: VecDeque<(Nanos, Vec<u8>)>,
    bytes: usize,
    last: Nanos,
    closed: Option<Nanos>,
    /// Time that each chunk takes longer than on other streams.
    pub(super) delay: Duration,
    /// Nothing arrives any more, and nobody is told.
    pub(super) is_cut: bool,
    /// Fault of the chunk that is written after so many others.
    pub(super) fault: Option<(u32, StreamFault)>,
    /// Fault that has changed or lost bytes on their way.
    pub(super) faulted: Option<StreamFault>,
}

/// Bytes under way at most: a sender that is faster must wait.
const BYTES_MAX: usize = 3000;

impl Stream {
    fn write(&mut self, bytes: &[u8], now: Nanos, rng: &mut Rng) -> Moved {
        self.write_within(BYTES_MAX.saturating_sub(self.bytes), bytes, now, rng)
    }

    fn write_within(&mut self, room: usize, bytes: &[u8], now: Nanos, rng: &mut Rng) -> Moved {
        if self.closed.is_some() {
            return Moved::Closed;
        }
        let len = bytes.len().min(room).min(1 + rng.usize(..2000));
        if len == 0 {
            return Moved::Later;
        }
        let chunk = match &mut self.fault {
            Some((0, fault)) => {
                let (fault, chunk) = (*fault, fault.apply(bytes, len, rng));
                self.fault = None;
                self.faulted = (chunk != bytes[..len]).then_some(fault);
                chunk
            }
            Some((after, _)) => {
                *after -= 1;
                bytes[..len].to_vec()
            }
            None => bytes[..len].to_vec(),
        };
        self.push(chunk, now, rng);
        Moved::Bytes(len)
    }

    fn push(&mut self, chunk: Vec<u8>, now: Nanos, rng: &mut Rng) {
        self.bytes += chunk.len();
        let delay = self.delay + Duration::from_micros(5 + rng.u64(..200));
        self.last = self.last.max(now + delay);
        if !self.is_cut && !chunk.is_empty() {
            self.chunks.push_back((self.last, chunk));
        }
    }

    pub(super) fn read(&mut self, into: &mut [u8], now: Nanos, rng: &mut Rng) -> Moved {
        let Some((arrival, chunk)) = self.chunks.front_mut() else {
            return if self.closed.is_some_and(|at| at <= now) { Moved::Closed } else { Moved::Later };
        };
        if *arrival > now || into.is_empty() {
            return Moved::Later;
        }
        let len = chunk.len().min(into.len()).min(1 + rng.usize(..1500));
        into[..len].copy_from_slice(&chunk[..len]);
        chunk.drain(..len);
        self.bytes -= len;
        if chunk.is_empty() {
            self.chunks.pop_front();
        }
        Moved::Bytes(len)
    }

    /// Sends a notice. One that is repeated is left out if too much is under way.
    pub(super) fn send(&mut self, notice: &Notice, now: Nanos, rng: &mut Rng) {
        let bytes = notice.encode(EPOCH);
        if notice.is_repeated() && self.bytes + bytes.len() > BYTES_MAX {
            return;
        }
        let mut rest = &bytes[..];
        while let Moved::Bytes(sent) = self.write_within(usize::MAX, rest, now, rng) {
            rest = &rest[sent..];
        }
    }

    pub(super) fn close(&mut self, now: Nanos) {
        if !self.is_cut && self.closed.is_none() {
            self.closed = Some(self.last.max(now) + Duration::from_micros(50));
        }
    }

    /// Cuts the stream at any byte of what is under way: that and what comes after it does not arrive.
    pub(super) fn cut(&mut self, now: Nanos, rng: &mut Rng) {
        self.is_cut = true;
        let arrived = self.chunks.iter().take_while(|(arrival, _)| *arrival <= now).count();
        self.chunks.truncate(rng.usize(arrived..=self.chunks.len()));
        if let Some((arrival, chunk)) = self.chunks.back_mut().filter(|(arrival, _)| *arrival > now) {
            self.last = *arrival;
            chunk.truncate(rng.usize(1..=chunk.len()));
        }
        self.bytes = self.chunks.iter().map(|(_, chunk)| chunk.len()).sum();
    }

    /// Time at which something arrives next.
    fn due(&self) -> Option<Nanos> {
        self.chunks.front().map(|(arrival, _)| *arrival).or(self.closed)
    }
}

/// Links of all ranks: `data[from][to]`, and of notices.
pub(super) struct Net {
    pub(super) now: Nanos,
    pub(super) rng: Rng,
    pub(super) data: Vec<Vec<Stream>>,
    pub(super) notices: Vec<Vec<Stream>>,
    /// Ranks to which something was written, or from which something was read, since they were last looked at.
    pub(super) touched: Vec<usize>,
    /// Streams do not damage their bytes, and payloads have no checksum.
    pub(super) keeps_whole: bool,
    /// Ranks tell their ends of waits at once, not only with the next sign of life.
    pub(super) tells_at_once: bool,
}

impl Net {
    pub(super) fn new(ranks: usize, seed: u64) -> Rc<RefCell<Self>> {
        let streams = || (0..ranks).map(|_| (0..ranks).map(|_| Stream::default()).collect()).collect();
        let (data, notices) = (streams(), streams());
        let rng = Rng::with_seed(seed);
        let (now, touched) = (Nanos(0), Vec::new());
        Rc::new(RefCell::new(Self {
            now,
            rng,
            data,
            notices,
            touched,
            keeps_whole: false,
            tells_at_once: false,
        }))
    }

    /// Time at which something arrives at a rank next, after now.
    pub(super) fn due(&self, rank: usize) -> Option<Nanos> {
        let streams = self.data.iter().chain(&self.notices).map(|from| &from[rank]);
        streams.filter_map(Stream::due).filter(|due| *due > self.now).min()
    }

    /// All streams to and from a rank.
    pub(super) fn streams_of(&mut self, rank: usize) -> impl Iterator<Item = &mut Stream> {
        let rows = self.data.iter_mut().enumerate().chain(self.notices.iter_mut().enumerate());
        rows.flat_map(move |(from, row)| {
            row.iter_mut().enumerate().filter(move |(to, _)| from == rank || *to == rank)
        })
        .map(|(_, stream)| stream)
    }
}

/// One rank's ends of the links.
pub(super) struct SimulatedTransport {
    pub(super) rank: usize,
    pub(super) net: Rc<RefCell<Net>>,
    pub(super) health: RefCell<Health>,
    senders: Vec<StreamSender>,
    receivers: Vec<StreamReceiver>,
}

impl SimulatedTransport {
    pub(super) fn new(rank: usize, ranks: usize, net: &Rc<RefCell<Net>>, silence: Duration) -> Self {
        Self {
            rank,
            net: Rc::clone(net),
            health: RefCell::new(Health::new(rank, ranks, silence, Duration::ZERO)),
            senders: (0..ranks).map(StreamSender::new).collect(),
            receivers: (0..ranks).map(StreamReceiver::new).collect(),
        }
    }
}

impl Transport for SimulatedTransport {
    fn carry(&mut self, engine: &mut Engine, memory: &mut Memory<'_>) -> Result<bool, LinkFault> {
        let net = &mut *self.net.borrow_mut();
        let mut has_moved = false;
        for peer in (0..self.senders.len()).filter(|peer| *peer != self.rank) {
            let stream = &mut net.data[self.rank][peer];
            let (now, rng) = (net.now, &mut net.rng);
            let sent = self.senders[peer].send(engine, memory, |slices: &[IoSlice<'_>]| {
                let slice = slices.iter().find(|slice| !slice.is_empty()).expect("something to send");
                stream.write(slice, now, rng)
            })?;
            let stream = &mut net.data[peer][self.rank];
            let received =
                self.receivers[peer].receive(engine, memory, |into| stream.read(into, now, rng))?;
            if sent || received {
                net.touched.push(peer);
                has_moved = true;
            }
        }
        Ok(has_moved)
    }

    fn wait(&mut self, _: &Engine, _: Duration) {
        unreachable!("a simulated rank waits in its scenario");
    }

    fn is_bulk(&self) -> bool {
        false
    }

    fn keeps_whole(&self, _: usize) -> bool {
        self.net.borrow().keeps_whole
    }

    fn health<R>(&self, look: impl FnOnce(&mut Health) -> R) -> R {
        look(&mut self.health.borrow_mut())
    }
}
