use std::collections::VecDeque;
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use zerocopy::IntoBytes;

use super::agreement::Uniform;
use super::attempt::Attempt;
use super::choice::{Order, choose};
use super::engine::Engine;
use super::kernel::Kernel;
use super::memory::Memory;
use super::plan::OperationPlan;
use super::transport::Transport;
use super::uniform_state::UniformState;
use super::vector_memory::{AllocateError, VectorMemory};
use super::working_memory::WorkingMemory;
use crate::call::Call;
use crate::caller::Caller;
use crate::clock::Ticks;
use crate::element::kernel;
use crate::recorder::Recorder;
use crate::tuning::{Choices, Explanation, Figures, Measured, Question, Rules, reduced_kind};
use crate::{
    Algorithm, Collective, CollectiveError, Communicator, DataType, Element, FailureCause, FlightRecord,
    ReduceOp, Statistics, Topology,
};

/// Whether a group measures its links, to choose algorithms by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tune {
    /// It chooses by size alone, until [`MessageGroup::tune`] is called.
    #[default]
    Off,
    /// It measures them when all ranks have joined.
    AtJoin,
}

/// Settings of a group whose ranks exchange messages. All ranks must have equal ones, apart from the times.
#[derive(Debug, Clone, Copy)]
pub struct MessageSettings {
    /// Longest wait for a rank that gives signs of life.
    pub deadline: Duration,
    /// Time without a sign of life after which a rank counts as dead. At least [`SILENCE_MIN`](crate::SILENCE_MIN).
    pub silence: Duration,
    /// Time for which a rank looks again and again for messages before it sleeps until one comes. A rank that sleeps leaves its core
    /// to others, and takes some microseconds to wake.
    pub busy_poll: Duration,
    /// TCP connections for the messages between two ranks, 1 to [`TCP_CONNECTIONS_MAX`]. Several fill links with a long delay better, and those
    /// of which a switch sends each connection over another cable. Over other transports, it is without effect.
    pub tcp_connections: u16,
    /// Whether messages over TCP are encrypted where ranks have keys. Without it, ranks still authenticate one another when they join, and
    /// notices stay encrypted, but whoever can change packets on their way can read and change messages: for networks that nobody
    /// else can reach. Messages have a checksum then, except within a machine. Over other transports, it is without effect.
    pub tcp_encryption: bool,
    /// Order in which reductions combine values.
    pub order: Order,
    /// Algorithm of every operation that has it, instead of the one that is chosen by size. With [`Order::Reproducible`], reductions do not
    /// use one that combines values in another order (see [`Algorithm::is_reproducible`]).
    pub algorithm: Option<Algorithm>,
    /// Bytes of the pieces into which long vectors are cut. Pieces overlap: one is reduced while the next is on its way.
    pub piece_bytes: usize,
    /// Whether links are measured, to choose algorithms by them.
    pub tune: Tune,
    /// Whether all ranks that are still there after a failure return the same: all the result, or all an error.
    pub uniform: Option<Uniform>,
}

impl Default for MessageSettings {
    /// A minute, half a second, 200 us, one connection, encrypted, reproducible, pieces of 512 KiB, not tuned, not uniform.
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(60),
            silence: Duration::from_millis(500),
            busy_poll: Duration::from_micros(200),
            tcp_connections: 1,
            tcp_encryption: true,
            order: Order::Reproducible,
            algorithm: None,
            piece_bytes: 512 << 10,
            tune: Tune::Off,
            uniform: None,
        }
    }
}

/// Most TCP connections for the messages between two ranks.
pub const TCP_CONNECTIONS_MAX: u16 = 8;

/// Operations among ranks that exchange messages over a transport, as one of them.
pub struct MessageGroup<T> {
    pub(super) transport: T,
    pub(super) engine: Engine,
    topology: Topology,
    settings: MessageSettings,
    /// State of a uniform group; `None` for other groups.
    pub(super) uniform_state: Option<UniformState>,
    /// The last operations, the newest first.
    plans: VecDeque<Planned>,
    tuned: Option<Tuned>,
    /// Bytes that probes send.
    probe_input: Vec<u8>,
    /// Time at which the last operation that waited began to give way to others.
    gave_way: Option<Ticks>,
    scratch: WorkingMemory,
    partial: WorkingMemory,
    epoch: u32,
    origin: Ticks,
    recorder: Recorder,
}

/// Figures by which a group was tuned, and the choices made by them.
pub(super) struct Tuned {
    pub(super) figures: Figures,
    pub(super) choices: Choices,
}

/// An operation, its plan, and the times of its last calls.
struct Planned {
    call: Call,
    collective: Collective,
    plan: Arc<OperationPlan>,
    times: VecDeque<Duration>,
    calls: usize,
}

/// Operations whose plans are kept.
const PLANS_MAX: usize = 16;
/// Calls of an operation whose times are kept.
const TIMES_MAX: usize = 32;
/// Looks for messages between two looks at the clock.
const LOOKS: u32 = 32;
/// Longest sleep before the next look at the group's health.
const SLEEP: Duration = Duration::from_millis(20);

impl<T: Transport> MessageGroup<T> {
    /// Creates the group of an engine's rank. All links of the transport are open. If the group is uniform, the transport's health
    /// [is, too](crate::Health::with_uniform).
    pub fn new(transport: T, topology: Topology, rank: usize, epoch: u32, settings: MessageSettings) -> Self {
        let mut engine = Engine::new(rank, topology.ranks(), epoch);
        (0..topology.ranks())
            .filter(|peer| transport.keeps_whole(*peer))
            .for_each(|peer| engine.trust_link(peer));
        if let Some(bytes) = transport.expected_bytes() {
            engine.tell_of_messages_from(bytes);
        }
        let recorder = Recorder::new(rank, topology.ranks());
        let uniform_state = settings.uniform.map(|_| UniformState::new(&topology, rank));
        Self {
            transport,
            engine,
            uniform_state,
            topology,
            settings,
            plans: VecDeque::new(),
            tuned: None,
            probe_input: Vec::new(),
            gave_way: None,
            scratch: WorkingMemory::default(),
            partial: WorkingMemory::default(),
            epoch,
            origin: Ticks::now(),
            recorder,
        }
    }

    pub(crate) fn settings(&self) -> MessageSettings {
        self.settings
    }

    /// Creates the group of a rank that has just joined, and measures its links if the settings say so.
    pub(crate) fn joined(
        transport: T,
        topology: Topology,
        rank: usize,
        epoch: u32,
        settings: MessageSettings,
    ) -> Result<Self, CollectiveError> {
        let mut group = Self::new(transport, topology, rank, epoch, settings);
        if settings.tune == Tune::AtJoin {
            group.tune(None)?;
        }
        Ok(group)
    }

    /// The transport, without the group.
    pub(crate) fn into_transport(self) -> T {
        self.transport
    }

    /// The transport.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// A rank that has failed or left, and the reason: every operation that needs it will fail. It is known without a call.
    pub fn lost_rank(&self) -> Option<(usize, FailureCause)> {
        self.transport.health(|health| health.lost_rank())
    }

    /// The last operations of this rank, and for whom it waited: after a failure, those that led to it.
    pub fn recent(&self) -> FlightRecord {
        self.recorder.record()
    }

    /// Number of operations, and this rank's waits for each other one.
    pub fn statistics(&self) -> Statistics {
        self.recorder.statistics()
    }

    /// Runs an operation, and records it.
    fn run(
        &mut self,
        call: Call,
        collective: Collective,
        kernel: Kernel,
        input: Option<&[u8]>,
        output: &mut [u8],
    ) -> Result<(), CollectiveError> {
        let start = Ticks::now();
        self.recorder.begin(call, millis(start.since(self.origin)));
        let plan = self.plan(call, collective, kernel);
        let result =
            panic::catch_unwind(AssertUnwindSafe(|| match self.uniform_state.is_some() && plan.is_of_all {
                true => self.run_uniform(call, plan, input, output),
                false => self.run_plan(call, plan, input, output),
            }));
        // The caller gets its vectors back, even by a panic.
        self.transport.leave_vectors();
        let result = result.unwrap_or_else(|panic| panic::resume_unwind(panic));
        let end = Ticks::now();
        self.recorder.end(&result, millis(end.since(self.origin)));
        if result.is_ok() {
            let planned = &mut self.plans[0];
            planned.times.truncate(TIMES_MAX - 1);
            planned.times.push_front(end.since(start));
            planned.calls += 1;
        }
        result
    }

    pub(super) fn run_plan(
        &mut self,
        call: Call,
        plan: Arc<OperationPlan>,
        input: Option<&[u8]>,
        output: &mut [u8],
    ) -> Result<(), CollectiveError> {
        let attempt = self.attempt(call);
        attempt.begin(&self.transport)?;
        self.execute(attempt, call, plan, input, output)
    }

    /// Creates the attempt of an operation, which names it in its errors.
    pub(super) fn attempt(&self, call: Call) -> Attempt {
        Attempt::new(call, self.epoch, self.settings.deadline)
    }

    /// Executes the plan of a call, which may be a step of the operation that is attempted.
    pub(super) fn execute(
        &mut self,
        attempt: Attempt,
        call: Call,
        plan: Arc<OperationPlan>,
        input: Option<&[u8]>,
        output: &mut [u8],
    ) -> Result<(), CollectiveError> {
        let (mut scratch, mut partial) = (mem::take(&mut self.scratch), mem::take(&mut self.partial));
        scratch.grow(plan.scratch_bytes(), &mut self.transport);
        partial.grow(plan.partial_bytes(), &mut self.transport);
        let mut memory = Memory { input, output, scratch: scratch.bytes(), partial: partial.bytes() };
        self.engine.begin(call, plan, &mut memory);
        let result = self.drive(attempt, &mut memory);
        (self.scratch, self.partial) = (scratch, partial);
        result
    }

    fn drive(&mut self, mut attempt: Attempt, memory: &mut Memory<'_>) -> Result<(), CollectiveError> {
        let mut looks = LOOKS;
        while !self.engine.is_done() {
            if attempt.carry(&mut self.transport, &mut self.engine, memory)? {
                looks = LOOKS;
                continue;
            }
            looks -= 1;
            if looks == 0 {
                self.wait(&mut attempt, memory)?;
                looks = LOOKS;
            }
        }
        attempt.finish(&self.transport);
        Ok(())
    }

    /// Waits until something moves: looks again and again at first, then sleeps in between.
    #[cold]
    fn wait(&mut self, attempt: &mut Attempt, memory: &mut Memory<'_>) -> Result<(), CollectiveError> {
        let start = Ticks::now();
        self.gave_way = Some(start);
        let mut timed = Timed { rank: self.engine.awaited(), since: start };
        let result = self.wait_timed(attempt, memory, start, &mut timed);
        timed.end(Ticks::now(), &self.recorder);
        result
    }

    fn wait_timed(
        &mut self,
        attempt: &mut Attempt,
        memory: &mut Memory<'_>,
        start: Ticks,
        timed: &mut Timed,
    ) -> Result<(), CollectiveError> {
        while !attempt.carry(&mut self.transport, &mut self.engine, memory)? {
            let now = Ticks::now();
            timed.look(self.engine.awaited(), now, &self.recorder);
            attempt.check(&self.transport, &self.engine, now.since(self.origin))?;
            if now.since(start) < self.settings.busy_poll && !self.transport.is_bulk() {
                thread::yield_now();
            } else {
                self.transport.wait(&self.engine, SLEEP.min(attempt.rest(now.since(self.origin))));
            }
        }
        Ok(())
    }

    /// Returns the plan of a call: a cached one, or a new one. The call tells data type and reduction, too.
    fn plan(&mut self, call: Call, collective: Collective, kernel: Kernel) -> Arc<OperationPlan> {
        let is_same = |known: &Planned| known.call == call && known.collective == collective;
        if let Some(at) = self.plans.iter().position(is_same) {
            self.plans.swap(0, at);
            return Arc::clone(&self.plans[0].plan);
        }
        let plan = |algorithm| {
            let piece = self.settings.piece_bytes / kernel.element;
            OperationPlan::new(&collective, algorithm, &self.topology, self.engine.rank(), kernel, piece)
        };
        let wanted = self.wanted(&collective).and_then(|algorithm| plan(algorithm).ok());
        let choice = || self.choice(&collective, kernel, !call.has_counts_of_one_rank());
        let plan = Arc::new(wanted.unwrap_or_else(|| plan(choice()).expect("a schedule of every choice")));
        self.plans.truncate(PLANS_MAX - 1);
        let (times, calls) = (VecDeque::with_capacity(TIMES_MAX), 0);
        self.plans.push_front(Planned { call, collective, plan: Arc::clone(&plan), times, calls });
        plan
    }

    /// The algorithm of the settings, unless the operation would combine values in another order than that of the settings.
    fn wanted(&self, collective: &Collective) -> Option<Algorithm> {
        let is_free = self.settings.order == Order::Fast || !collective.reduces();
        self.settings.algorithm.filter(|algorithm| is_free || algorithm.is_reproducible())
    }

    /// The algorithm of an operation. `is_equal`: all ranks know the same counts, and may choose by them.
    fn choice(&self, collective: &Collective, kernel: Kernel, is_equal: bool) -> Algorithm {
        let bytes = largest_vector(collective, self.engine.ranks()) * kernel.element;
        let kind = reduced_kind(kernel.element, kernel.accumulator);
        let tuned = self.tuned.as_ref().filter(|_| is_equal);
        let tuned = tuned.and_then(|tuned| tuned.choices.algorithm(collective, kind, bytes));
        tuned.unwrap_or_else(|| choose(collective, bytes, self.engine.ranks(), self.settings.order))
    }

    /// Explains the choice of the algorithm of an operation, and compares the times of its calls with what was predicted. The
    /// operation is named as this rank calls it. `None` if the group is not tuned.
    ///
    /// # Panics
    /// If a rank is not in the group, or if a list of counts has not one entry for each rank.
    pub fn explain(&self, collective: &Collective, data_type: DataType) -> Option<Explanation> {
        let figures = &self.tuned.as_ref()?.figures;
        let kernel = Kernel::of_sum(data_type);
        let is_same = |known: &&Planned| {
            known.collective == *collective && known.call.data_type().is_none_or(|of| of == data_type)
        };
        let called = self.plans.iter().find(is_same);
        let question = Question {
            collective,
            data_type,
            reduced: reduced_kind(kernel.element, kernel.accumulator),
            bytes: largest_vector(collective, self.engine.ranks()) * kernel.element,
            chosen: called.map_or_else(
                || self.wanted(collective).unwrap_or_else(|| self.choice(collective, kernel, true)),
                |called| called.plan.algorithm,
            ),
            barrier: self.choice(&Collective::Barrier, Kernel::copying(None), true),
            measured: called.and_then(Planned::measured),
        };
        Some(Explanation::new(question, figures, &self.topology, self.rules()))
    }

    pub(super) fn rules(&self) -> Rules {
        let MessageSettings { order, piece_bytes, .. } = self.settings;
        Rules { order, piece_bytes, has_machines: self.transport.has_machines() }
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(super) fn tuned(&self) -> Option<&Tuned> {
        self.tuned.as_ref()
    }

    /// Chooses by these figures from now on, with the ranks on these boards. All ranks do so between the same two operations.
    pub(super) fn set_tuned(&mut self, tuned: Tuned, boards: &Topology) {
        self.topology = boards.clone().with_weights(tuned.choices.weights().to_vec());
        self.tuned = Some(tuned);
        self.plans.clear();
    }

    /// So many bytes or more for a probe to send. To be given back.
    pub(super) fn take_probe_input(&mut self, bytes: usize) -> Vec<u8> {
        let mut input = mem::take(&mut self.probe_input);
        input.resize(input.len().max(bytes), 0);
        input
    }

    /// Time at which the last operation began to give way to others while it waited, if one did since the last question.
    pub(super) fn take_gave_way(&mut self) -> Option<Ticks> {
        self.gave_way.take()
    }

    pub(super) fn keep_probe_input(&mut self, input: Vec<u8>) {
        self.probe_input = input;
    }

    pub(super) fn caller(&self) -> Caller {
        Caller { rank: self.engine.rank(), ranks: self.engine.ranks() }
    }
}

impl<T: Transport> Communicator for MessageGroup<T> {
    fn rank(&self) -> usize {
        self.engine.rank()
    }

    fn ranks(&self) -> usize {
        self.engine.ranks()
    }

    fn allocate<E: Element>(&mut self, len: usize) -> Result<VectorMemory<E>, AllocateError> {
        if self.transport.expected_bytes().is_none() {
            return VectorMemory::ordinary(len);
        }
        let (vector, memory) = VectorMemory::map(len)?;
        self.transport.register(&memory)?;
        Ok(vector)
    }

    fn barrier(&mut self) -> Result<(), CollectiveError> {
        let call = self.caller().barrier();
        self.run(call, Collective::Barrier, Kernel::copying(None), None, &mut [])
    }

    fn broadcast<E: Element>(&mut self, root: usize, vector: &mut [E]) -> Result<(), CollectiveError> {
        let count = vector.len();
        let call = self.caller().broadcast(root, vector);
        let collective = Collective::Broadcast { root, count };
        self.run(call, collective, Kernel::copying(Some(E::DATA_TYPE)), None, vector.as_mut_bytes())
    }

    fn reduce<E: Element>(
        &mut self,
        op: ReduceOp,
        root: usize,
        input: &[E],
        output: &mut [E],
    ) -> Result<(), CollectiveError> {
        let count = input.len();
        let call = self.caller().reduce(op, root, input, output)?;
        let collective = Collective::Reduce { root, count };
        self.run(call, collective, kernel::<E>(op), Some(input.as_bytes()), output.as_mut_bytes())
    }

    fn all_reduce<E: Element>(&mut self, op: ReduceOp, vector: &mut [E]) -> Result<(), CollectiveError> {
        let count = vector.len();
        let call = self.caller().all_reduce(op, vector);
        let collective = Collective::AllReduce { count };
        self.run(call, collective, kernel::<E>(op), None, vector.as_mut_bytes())
    }

    fn all_reduce_into<E: Element>(
        &mut self,
        op: ReduceOp,
        input: &[E],
        output: &mut [E],
    ) -> Result<(), CollectiveError> {
        let count = input.len();
        let call = self.caller().all_reduce_into(op, input, output)?;
        let collective = Collective::AllReduce { count };
        self.run(call, collective, kernel::<E>(op), Some(input.as_bytes()), output.as_mut_bytes())
    }

    fn all_gather<E: Element>(&mut self, input: &[E], output: &mut [E]) -> Result<(), CollectiveError> {
        let (count, ranks) = (input.len(), self.ranks());
        let call = self.caller().all_gather(input, output)?;
        let collective = Collective::AllGather { counts: vec![count; ranks] };
        let kernel = Kernel::copying(Some(E::DATA_TYPE));
        self.run(call, collective, kernel, Some(input.as_bytes()), output.as_mut_bytes())
    }

    fn reduce_scatter<E: Element>(
        &mut self,
        op: ReduceOp,
        input: &[E],
        output: &mut [E],
    ) -> Result<(), CollectiveError> {
        let (count, ranks) = (output.len(), self.ranks());
        let call = self.caller().reduce_scatter(op, input, output)?;
        let collective = Collective::ReduceScatter { counts: vec![count; ranks] };
        self.run(call, collective, kernel::<E>(op), Some(input.as_bytes()), output.as_mut_bytes())
    }

    fn scatter<E: Element>(
        &mut self,
        root: usize,
        input: &[E],
        output: &mut [E],
    ) -> Result<(), CollectiveError> {
        let (count, ranks) = (output.len(), self.ranks());
        let call = self.caller().scatter(root, input, output)?;
        let collective = Collective::Scatter { root, counts: vec![count; ranks] };
        let kernel = Kernel::copying(Some(E::DATA_TYPE));
        self.run(call, collective, kernel, Some(input.as_bytes()), output.as_mut_bytes())
    }

    fn gather<E: Element>(
        &mut self,
        root: usize,
        input: &[E],
        output: &mut [E],
    ) -> Result<(), CollectiveError> {
        let (count, ranks) = (input.len(), self.ranks());
        let call = self.caller().gather(root, input, output)?;
        let collective = Collective::Gather { root, counts: vec![count; ranks] };
        let kernel = Kernel::copying(Some(E::DATA_TYPE));
        self.run(call, collective, kernel, Some(input.as_bytes()), output.as_mut_bytes())
    }

    fn all_to_all<E: Element>(&mut self, input: &[E], output: &mut [E]) -> Result<(), CollectiveError> {
        let ranks = self.ranks();
        let count = output.len() / ranks;
        let call = self.caller().all_to_all(input, output)?;
        let kernel = Kernel::copying(Some(E::DATA_TYPE));
        let collective = Collective::all_to_all(ranks, count);
        self.run(call, collective, kernel, Some(input.as_bytes()), output.as_mut_bytes())
    }

    fn all_gather_v<E: Element>(
        &mut self,
        input: &[E],
        counts: &[usize],
        output: &mut [E],
    ) -> Result<(), CollectiveError> {
        let call = self.caller().all_gather_v(input, counts, output)?;
        let collective = Collective::AllGather { counts: counts.to_vec() };
        let kernel = Kernel::copying(Some(E::DATA_TYPE));
        self.run(call, collective, kernel, Some(input.as_bytes()), output.as_mut_bytes())
    }

    fn reduce_scatter_v<E: Element>(
        &mut self,
        op: ReduceOp,
        input: &[E],
        counts: &[usize],
        output: &mut [E],
    ) -> Result<(), CollectiveError> {
        let call = self.caller().reduce_scatter_v(op, input, counts, output)?;
        let collective = Collective::ReduceScatter { counts: counts.to_vec() };
        self.run(call, collective, kernel::<E>(op), Some(input.as_bytes()), output.as_mut_bytes())
    }

    fn scatter_v<E: Element>(
        &mut self,
        root: usize,
        input: &[E],
        counts: &[usize],
        output: &mut [E],
    ) -> Result<(), CollectiveError> {
        let call = self.caller().scatter_v(root, input, counts, output)?;
        let collective = Collective::Scatter { root, counts: counts.to_vec() };
        let kernel = Kernel::copying(Some(E::DATA_TYPE));
        self.run(call, collective, kernel, Some(input.as_bytes()), output.as_mut_bytes())
    }

    fn gather_v<E: Element>(
        &mut self,
        root: usize,
        input: &[E],
        counts: &[usize],
        output: &mut [E],
    ) -> Result<(), CollectiveError> {
        let call = self.caller().gather_v(root, input, counts, output)?;
        let collective = Collective::Gather { root, counts: counts.to_vec() };
        let kernel = Kernel::copying(Some(E::DATA_TYPE));
        self.run(call, collective, kernel, Some(input.as_bytes()), output.as_mut_bytes())
    }

    fn all_to_all_v<E: Element>(
        &mut self,
        input: &[E],
        send: &[usize],
        output: &mut [E],
        receive: &[usize],
    ) -> Result<(), CollectiveError> {
        let call = self.caller().all_to_all_v(input, send, output, receive)?;
        let collective = Collective::AllToAll { send: send.to_vec(), receive: receive.to_vec() };
        let kernel = Kernel::copying(Some(E::DATA_TYPE));
        self.run(call, collective, kernel, Some(input.as_bytes()), output.as_mut_bytes())
    }

    fn send<E: Element>(&mut self, to: usize, vector: &[E]) -> Result<(), CollectiveError> {
        let (from, count) = (self.rank(), vector.len());
        let call = self.caller().send(to, vector);
        let kernel = Kernel::copying(Some(E::DATA_TYPE));
        self.run(call, Collective::Send { from, to, count }, kernel, Some(vector.as_bytes()), &mut [])
    }

    fn recv<E: Element>(&mut self, from: usize, vector: &mut [E]) -> Result<(), CollectiveError> {
        let (to, count) = (self.rank(), vector.len());
        let call = self.caller().recv(from, vector);
        let kernel = Kernel::copying(Some(E::DATA_TYPE));
        self.run(call, Collective::Send { from, to, count }, kernel, None, vector.as_mut_bytes())
    }
}

impl Planned {
    fn measured(&self) -> Option<Measured> {
        let mut times: Vec<Duration> = self.times.iter().copied().collect();
        times.sort_unstable();
        let median = *times.get(times.len() / 2)?;
        Some(Measured { calls: self.calls, last: self.times[0], median })
    }
}

/// Elements of the largest vector of any rank, as far as this one knows.
fn largest_vector(collective: &Collective, ranks: usize) -> usize {
    let elements = (0..ranks).map(|rank| collective.input_len(rank).max(collective.output_len(rank)));
    elements.max().unwrap_or(0)
}

/// A wait for a rank that is being timed.
struct Timed {
    rank: Option<usize>,
    since: Ticks,
}

impl Timed {
    /// The operation waits for this rank now.
    fn look(&mut self, rank: Option<usize>, now: Ticks, recorder: &Recorder) {
        if rank != self.rank {
            self.end(now, recorder);
            *self = Self { rank, since: now };
        }
    }

    fn end(&self, now: Ticks, recorder: &Recorder) {
        if let Some(rank) = self.rank {
            recorder.waited(rank, now.since(self.since));
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
