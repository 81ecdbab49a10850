use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use zerocopy::IntoBytes;

use super::attempt::Attempt;
use super::choice::{Order, choose};
use super::engine::Engine;
use super::kernel::Kernel;
use super::memory::Memory;
use super::plan::OperationPlan;
use super::transport::Transport;
use crate::call::Call;
use crate::caller::Caller;
use crate::clock::Ticks;
use crate::element::kernel;
use crate::{
    Algorithm, Collective, CollectiveError, Communicator, Element, FailureCause, ReduceOp, Topology,
};

/// Settings of a group whose ranks exchange messages. All ranks must have equal ones, apart from the times.
#[derive(Debug, Clone, Copy)]
pub struct MessageSettings {
    /// Longest wait for a rank that gives signs of life.
    pub deadline: Duration,
    /// Time without a sign of life after which a rank counts as dead.
    pub silence: Duration,
    /// Time for which a rank looks again and again for messages before it sleeps until one comes. A rank that sleeps leaves its core
    /// to others, and takes some microseconds to wake.
    pub busy_poll: Duration,
    /// Order in which reductions combine values.
    pub order: Order,
    /// Algorithm of every operation that has it, instead of the one that is chosen by size.
    pub algorithm: Option<Algorithm>,
    /// Bytes of the pieces into which long vectors are cut. Pieces overlap: one is reduced while the next is on its way.
    pub piece_bytes: usize,
}

impl Default for MessageSettings {
    /// A minute, half a second, 200 us, reproducible, pieces of 512 KiB.
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(60),
            silence: Duration::from_millis(500),
            busy_poll: Duration::from_micros(200),
            order: Order::Reproducible,
            algorithm: None,
            piece_bytes: 512 << 10,
        }
    }
}

/// Operations among ranks that exchange messages over a transport, as one of them.
pub struct MessageGroup<T> {
    transport: T,
    engine: Engine,
    topology: Topology,
    settings: MessageSettings,
    /// Plans of the last operations, the newest first.
    plans: VecDeque<(Call, Collective, Arc<OperationPlan>)>,
    /// Working memory. Its elements are aligned for every data type.
    scratch: Vec<u64>,
    partial: Vec<u64>,
    epoch: u32,
    origin: Ticks,
}

/// Operations whose plans are kept.
const PLANS_MAX: usize = 16;
/// Looks for messages between two looks at the clock.
const LOOKS: u32 = 32;
/// Longest sleep before the next look at the group's health.
const SLEEP: Duration = Duration::from_millis(20);

impl<T: Transport> MessageGroup<T> {
    /// Creates the group of an engine's rank. All links of the transport are open.
    pub fn new(transport: T, topology: Topology, rank: usize, epoch: u32, settings: MessageSettings) -> Self {
        let mut engine = Engine::new(rank, topology.ranks(), epoch);
        (0..topology.ranks())
            .filter(|peer| transport.keeps_whole(*peer))
            .for_each(|peer| engine.trust_link(peer));
        let (plans, scratch, partial) = (VecDeque::new(), Vec::new(), Vec::new());
        let origin = Ticks::now();
        Self { transport, engine, topology, settings, plans, scratch, partial, epoch, origin }
    }

    pub(crate) fn settings(&self) -> MessageSettings {
        self.settings
    }

    /// The transport.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// A rank that has failed or left, and the reason: every operation that needs it will fail. It is known without a call.
    pub fn lost_rank(&self) -> Option<(usize, FailureCause)> {
        self.transport.health(|health| health.lost_rank())
    }

    fn run(
        &mut self,
        call: Call,
        collective: Collective,
        kernel: Kernel,
        input: Option<&[u8]>,
        output: &mut [u8],
    ) -> Result<(), CollectiveError> {
        let attempt = Attempt::new(call, self.epoch, self.settings.deadline);
        attempt.begin(&self.transport)?;
        let plan = self.plan(call, collective, kernel);
        let (mut scratch, mut partial) = (mem::take(&mut self.scratch), mem::take(&mut self.partial));
        grow(&mut scratch, plan.scratch_bytes());
        grow(&mut partial, plan.partial_bytes());
        let (of_elements, of_partials) = (scratch.as_mut_bytes(), partial.as_mut_bytes());
        let mut memory = Memory { input, output, scratch: of_elements, partial: of_partials };
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
        while !attempt.carry(&mut self.transport, &mut self.engine, memory)? {
            let now = Ticks::now();
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
        let is_same = |known: &(Call, Collective, _)| known.0 == call && known.1 == collective;
        if let Some(at) = self.plans.iter().position(is_same) {
            self.plans.swap(0, at);
            return Arc::clone(&self.plans[0].2);
        }
        let (rank, ranks) = (self.engine.rank(), self.engine.ranks());
        let piece = self.settings.piece_bytes / kernel.element;
        let plan =
            |algorithm| OperationPlan::new(&collective, algorithm, &self.topology, rank, kernel, piece);
        let elements = (0..ranks).map(|rank| collective.input_len(rank).max(collective.output_len(rank)));
        let bytes = elements.max().unwrap_or(0) * kernel.element;
        let chosen = choose(&collective, bytes, ranks, self.settings.order);
        let wanted = self.settings.algorithm.and_then(|algorithm| plan(algorithm).ok());
        let plan = Arc::new(wanted.unwrap_or_else(|| plan(chosen).expect("a schedule of every choice")));
        self.plans.truncate(PLANS_MAX - 1);
        self.plans.push_front((call, collective, Arc::clone(&plan)));
        plan
    }

    fn caller(&self) -> Caller {
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

/// Makes working memory at least so long.
fn grow(memory: &mut Vec<u64>, bytes: usize) {
    let words = bytes.div_ceil(size_of::<u64>());
    if memory.len() < words {
        memory.resize(words, 0);
    }
}
