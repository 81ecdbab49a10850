//! A group behind a pointer: one of any transport, called directly or through a queue.

use std::sync::{Mutex, MutexGuard, PoisonError};

use orinoco_collective::{
    Collective, CollectiveError, Communicator, DataType, Element, Explanation, FlightRecord, PcieGroup,
    Pending, QuantizedElement, Queue, RdmaGroup, ReduceOp, ShmGroup, TcpGroup,
};

use crate::fault::Fault;

/// Ranks that carry out collective operations together, as one of them. Any thread may call it; calls run one after the other.
pub struct OrinocoGroup {
    rank: usize,
    ranks: usize,
    state: Mutex<State>,
}

/// An operation that runs in the background.
pub struct OrinocoWork {
    pub(crate) pending: Pending<()>,
}

enum State {
    /// Each call runs on the caller's thread.
    Direct(Box<AnyGroup>),
    /// An operation was started in the background: all run there, so that they stay in order.
    Queued(Queue<AnyGroup>),
    /// The thread for the queue was refused, and took the group along.
    Lost,
}

/// A group of any transport.
pub(crate) enum AnyGroup {
    Shm(Box<ShmGroup>),
    Tcp(Box<TcpGroup>),
    Rdma(Box<RdmaGroup>),
    Pcie(Box<PcieGroup>),
}

impl OrinocoGroup {
    pub(crate) fn new(group: AnyGroup) -> Self {
        let (rank, ranks) = (group.rank(), group.ranks());
        Self { rank, ranks, state: Mutex::new(State::Direct(Box::new(group))) }
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn ranks(&self) -> usize {
        self.ranks
    }

    /// Runs an operation after all that were started.
    pub(crate) fn run<R: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut AnyGroup) -> Result<R, CollectiveError> + Send + 'static,
    ) -> Result<R, Fault> {
        let mut state = self.lock();
        let pending = match &mut *state {
            State::Direct(group) => return Ok(operation(group)?),
            State::Queued(queue) => queue.start(operation),
            State::Lost => return Err(lost()),
        };
        drop(state);
        Ok(pending.wait()?)
    }

    /// Returns the last operations of this rank, after all that were started.
    pub(crate) fn recent(&self) -> Result<FlightRecord, Fault> {
        self.run(|group| Ok(group.recent()))
    }

    /// Measures the links of the group, after all operations that were started, and chooses algorithms by them.
    pub(crate) fn tune(&self) -> Result<(), Fault> {
        self.run(|group| Ok(group.tune()))?
    }

    /// Explains the choice of the algorithm of an operation, after all that were started.
    pub(crate) fn explain(&self, collective: Collective, data_type: DataType) -> Result<Explanation, Fault> {
        self.run(move |group| Ok(group.explain(&collective, data_type)))?
    }

    /// Splits the group, after all operations that were started. `None` if this rank takes no part.
    pub(crate) fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Self>, Fault> {
        let part = self.run(move |group| Ok(group.split(color, key)))??;
        Ok(part.map(Self::new))
    }

    /// Makes a group of the ranks that are left, after all operations that were started.
    pub(crate) fn shrink(&self) -> Result<Self, Fault> {
        let smaller = self.run(move |group| Ok(group.shrink()))??;
        Ok(Self::new(smaller))
    }

    /// Starts an operation in the background.
    pub(crate) fn start(
        &self,
        operation: impl FnOnce(&mut AnyGroup) -> Result<(), CollectiveError> + Send + 'static,
    ) -> Result<OrinocoWork, Fault> {
        let mut state = self.lock();
        if let State::Direct(_) = &*state {
            let State::Direct(group) = std::mem::replace(&mut *state, State::Lost) else {
                return Err(lost());
            };
            let queue = Queue::new(*group).map_err(|why| {
                Fault::internal(format!("the system refuses a thread for operations: {why}"))
            })?;
            *state = State::Queued(queue);
        }
        match &*state {
            State::Queued(queue) => Ok(OrinocoWork { pending: queue.start(operation) }),
            State::Direct(_) | State::Lost => Err(lost()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lost() -> Fault {
    Fault::internal("the group has ended, because the system refused a thread for its operations")
}

/// Calls an operation of the group's transport.
macro_rules! each {
    ($self:ident, $group:ident => $call:expr) => {
        match $self {
            Self::Shm($group) => $call,
            Self::Tcp($group) => $call,
            Self::Rdma($group) => $call,
            Self::Pcie($group) => $call,
        }
    };
}

type Outcome = Result<(), CollectiveError>;

impl AnyGroup {
    fn rank(&self) -> usize {
        each!(self, group => group.rank())
    }

    fn ranks(&self) -> usize {
        each!(self, group => group.ranks())
    }

    fn recent(&self) -> FlightRecord {
        each!(self, group => group.recent())
    }

    fn tune(&mut self) -> Result<(), Fault> {
        Ok(match self {
            Self::Shm(_) => return Err(one_algorithm()),
            Self::Tcp(group) => group.tune(None),
            Self::Rdma(group) => group.tune(None),
            Self::Pcie(group) => group.tune(None),
        }?)
    }

    fn explain(&self, collective: &Collective, data_type: DataType) -> Result<Explanation, Fault> {
        let explanation = match self {
            Self::Shm(_) => return Err(one_algorithm()),
            Self::Tcp(group) => group.explain(collective, data_type),
            Self::Rdma(group) => group.explain(collective, data_type),
            Self::Pcie(group) => group.explain(collective, data_type),
        };
        explanation.ok_or_else(|| {
            Fault::argument(
                "the group is not tuned: let all ranks tune it first, or join with the setting `tune`; groups of more than 16 ranks are never tuned",
            )
        })
    }

    fn split(&mut self, color: Option<u32>, key: i32) -> Result<Option<Self>, Fault> {
        Ok(match self {
            Self::Shm(group) => group.split(color, key)?.map(|group| Self::Shm(Box::new(group))),
            Self::Tcp(group) => group.split(color, key)?.map(|group| Self::Tcp(Box::new(group))),
            Self::Rdma(_) => return Err(cannot_be("RDMA", "split")),
            Self::Pcie(_) => return Err(cannot_be("PCIe", "split")),
        })
    }

    fn shrink(&mut self) -> Result<Self, Fault> {
        Ok(match self {
            Self::Shm(group) => Self::Shm(Box::new(group.shrink()?)),
            Self::Tcp(group) => Self::Tcp(Box::new(group.shrink()?)),
            Self::Rdma(_) => return Err(cannot_be("RDMA", "shrunk")),
            Self::Pcie(_) => return Err(cannot_be("PCIe", "shrunk")),
        })
    }

    pub(crate) fn barrier(&mut self) -> Outcome {
        each!(self, group => group.barrier())
    }

    pub(crate) fn broadcast<T: Element>(&mut self, root: usize, vector: &mut [T]) -> Outcome {
        each!(self, group => group.broadcast(root, vector))
    }

    pub(crate) fn reduce<T: Element>(
        &mut self,
        op: ReduceOp,
        root: usize,
        from: &[T],
        to: &mut [T],
    ) -> Outcome {
        each!(self, group => group.reduce(op, root, from, to))
    }

    pub(crate) fn all_reduce<T: Element>(&mut self, op: ReduceOp, vector: &mut [T]) -> Outcome {
        each!(self, group => group.all_reduce(op, vector))
    }

    pub(crate) fn all_reduce_into<T: Element>(&mut self, op: ReduceOp, from: &[T], to: &mut [T]) -> Outcome {
        each!(self, group => group.all_reduce_into(op, from, to))
    }

    pub(crate) fn all_reduce_many<T: Element>(&mut self, op: ReduceOp, vectors: &mut [&mut [T]]) -> Outcome {
        each!(self, group => group.all_reduce_many(op, vectors))
    }

    pub(crate) fn all_reduce_int8<T: QuantizedElement>(&mut self, vector: &mut [T]) -> Outcome {
        each!(self, group => group.all_reduce_int8(vector))
    }

    pub(crate) fn all_gather<T: Element>(&mut self, from: &[T], to: &mut [T]) -> Outcome {
        each!(self, group => group.all_gather(from, to))
    }

    pub(crate) fn reduce_scatter<T: Element>(&mut self, op: ReduceOp, from: &[T], to: &mut [T]) -> Outcome {
        each!(self, group => group.reduce_scatter(op, from, to))
    }

    pub(crate) fn scatter<T: Element>(&mut self, root: usize, from: &[T], to: &mut [T]) -> Outcome {
        each!(self, group => group.scatter(root, from, to))
    }

    pub(crate) fn gather<T: Element>(&mut self, root: usize, from: &[T], to: &mut [T]) -> Outcome {
        each!(self, group => group.gather(root, from, to))
    }

    pub(crate) fn all_to_all<T: Element>(&mut self, from: &[T], to: &mut [T]) -> Outcome {
        each!(self, group => group.all_to_all(from, to))
    }

    pub(crate) fn all_gather_v<T: Element>(&mut self, from: &[T], counts: &[usize], to: &mut [T]) -> Outcome {
        each!(self, group => group.all_gather_v(from, counts, to))
    }

    pub(crate) fn reduce_scatter_v<T: Element>(
        &mut self,
        op: ReduceOp,
        from: &[T],
        counts: &[usize],
        to: &mut [T],
    ) -> Outcome {
        each!(self, group => group.reduce_scatter_v(op, from, counts, to))
    }

    pub(crate) fn scatter_v<T: Element>(
        &mut self,
        root: usize,
        from: &[T],
        counts: &[usize],
        to: &mut [T],
    ) -> Outcome {
        each!(self, group => group.scatter_v(root, from, counts, to))
    }

    pub(crate) fn gather_v<T: Element>(
        &mut self,
        root: usize,
        from: &[T],
        counts: &[usize],
        to: &mut [T],
    ) -> Outcome {
        each!(self, group => group.gather_v(root, from, counts, to))
    }

    pub(crate) fn all_to_all_v<T: Element>(
        &mut self,
        from: &[T],
        send: &[usize],
        to: &mut [T],
        receive: &[usize],
    ) -> Outcome {
        each!(self, group => group.all_to_all_v(from, send, to, receive))
    }

    pub(crate) fn send<T: Element>(&mut self, to: usize, vector: &[T]) -> Outcome {
        each!(self, group => group.send(to, vector))
    }

    pub(crate) fn recv<T: Element>(&mut self, from: usize, vector: &mut [T]) -> Outcome {
        each!(self, group => group.recv(from, vector))
    }
}

fn one_algorithm() -> Fault {
    Fault::argument(
        "a group over shared memory has one algorithm for each operation, so there is nothing to tune or to explain; join over TCP",
    )
}

fn cannot_be(transport: &str, done: &str) -> Fault {
    Fault::argument(format!("a group over {transport} cannot be {done}; join over TCP, or join a new group"))
}
