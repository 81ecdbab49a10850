use crate::call::{Call, Operation};
use crate::{CollectiveError, Element, ReduceOp};

/// A rank that calls operations. It makes each call from its vectors, whose lengths are checked.
#[derive(Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
}

type Checked = Result<Call, CollectiveError>;

impl Caller {
    pub(crate) fn barrier(self) -> Call {
        Call::new(Operation::Barrier, None, None, 0, 0)
    }

    pub(crate) fn broadcast<T: Element>(self, root: usize, vector: &[T]) -> Call {
        self.rooted::<T>(Operation::Broadcast, None, root, vector.len())
    }

    pub(crate) fn reduce<T: Element>(self, op: ReduceOp, root: usize, input: &[T], output: &[T]) -> Checked {
        let call = self.rooted::<T>(Operation::Reduce, Some(op), root, input.len());
        self.check_at(root, "the output", output.len(), input.len(), call)
    }

    pub(crate) fn all_reduce<T: Element>(self, op: ReduceOp, vector: &[T]) -> Call {
        call::<T>(Operation::AllReduce, Some(op), vector.len())
    }

    pub(crate) fn all_reduce_into<T: Element>(self, op: ReduceOp, input: &[T], output: &[T]) -> Checked {
        let call = self.all_reduce(op, input);
        check_len("the output", output.len(), input.len(), call).map(|()| call)
    }

    pub(crate) fn all_gather<T: Element>(self, input: &[T], output: &[T]) -> Checked {
        let call = call::<T>(Operation::AllGather, None, input.len());
        check_len("the output", output.len(), input.len() * self.ranks, call).map(|()| call)
    }

    pub(crate) fn reduce_scatter<T: Element>(self, op: ReduceOp, input: &[T], output: &[T]) -> Checked {
        let call = call::<T>(Operation::ReduceScatter, Some(op), output.len());
        check_len("the input", input.len(), output.len() * self.ranks, call).map(|()| call)
    }

    pub(crate) fn scatter<T: Element>(self, root: usize, input: &[T], output: &[T]) -> Checked {
        let call = self.rooted::<T>(Operation::Scatter, None, root, output.len());
        self.check_at(root, "the input", input.len(), output.len() * self.ranks, call)
    }

    pub(crate) fn gather<T: Element>(self, root: usize, input: &[T], output: &[T]) -> Checked {
        let call = self.rooted::<T>(Operation::Gather, None, root, input.len());
        self.check_at(root, "the output", output.len(), input.len() * self.ranks, call)
    }

    pub(crate) fn all_to_all<T: Element>(self, input: &[T], output: &[T]) -> Checked {
        let count = output.len() / self.ranks;
        let call = call::<T>(Operation::AllToAll, None, count);
        check_len("the output", output.len(), count * self.ranks, call)?;
        check_len("the input", input.len(), output.len(), call).map(|()| call)
    }

    pub(crate) fn send<T: Element>(self, to: usize, vector: &[T]) -> Call {
        assert!(
            to < self.ranks && to != self.rank,
            "rank {} sends to rank {to} of {}",
            self.rank,
            self.ranks
        );
        Call::new(Operation::Send, Some(T::DATA_TYPE), None, self.rank, vector.len())
    }

    pub(crate) fn recv<T: Element>(self, from: usize, vector: &[T]) -> Call {
        let Self { rank, ranks } = self;
        assert!(from < ranks && from != rank, "rank {rank} receives from rank {from} of {ranks}");
        Call::new(Operation::Send, Some(T::DATA_TYPE), None, from, vector.len())
    }

    pub(crate) fn all_gather_v<T: Element>(self, input: &[T], counts: &[usize], output: &[T]) -> Checked {
        let call = self.of_counts::<T>(Operation::AllGatherV, None, 0, counts)?;
        check_len("the input", input.len(), counts[self.rank], call)?;
        check_len("the output", output.len(), counts.iter().sum(), call).map(|()| call)
    }

    pub(crate) fn reduce_scatter_v<T: Element>(
        self,
        op: ReduceOp,
        input: &[T],
        counts: &[usize],
        output: &[T],
    ) -> Checked {
        let call = self.of_counts::<T>(Operation::ReduceScatterV, Some(op), 0, counts)?;
        check_len("the input", input.len(), counts.iter().sum(), call)?;
        check_len("the output", output.len(), counts[self.rank], call).map(|()| call)
    }

    pub(crate) fn scatter_v<T: Element>(
        self,
        root: usize,
        input: &[T],
        counts: &[usize],
        output: &[T],
    ) -> Checked {
        let call = self.of_counts::<T>(Operation::ScatterV, None, root, counts)?;
        check_len("the output", output.len(), counts[self.rank], call)?;
        self.check_at(root, "the input", input.len(), counts.iter().sum(), call)
    }

    pub(crate) fn gather_v<T: Element>(
        self,
        root: usize,
        input: &[T],
        counts: &[usize],
        output: &[T],
    ) -> Checked {
        let call = self.of_counts::<T>(Operation::GatherV, None, root, counts)?;
        check_len("the input", input.len(), counts[self.rank], call)?;
        self.check_at(root, "the output", output.len(), counts.iter().sum(), call)
    }

    pub(crate) fn all_to_all_v<T: Element>(
        self,
        input: &[T],
        send: &[usize],
        output: &[T],
        receive: &[usize],
    ) -> Checked {
        let call = call::<T>(Operation::AllToAllV, None, 0);
        check_len("the list of counts to send", send.len(), self.ranks, call)?;
        check_len("the list of counts to receive", receive.len(), self.ranks, call)?;
        check_len("the input", input.len(), send.iter().sum(), call)?;
        check_len("the output", output.len(), receive.iter().sum(), call)?;
        check_len("the own block of the output", receive[self.rank], send[self.rank], call).map(|()| call)
    }

    fn of_counts<T: Element>(
        self,
        operation: Operation,
        op: Option<ReduceOp>,
        root: usize,
        counts: &[usize],
    ) -> Checked {
        assert!(root < self.ranks, "root {root} of {} ranks", self.ranks);
        let call = Call::of_counts(operation, T::DATA_TYPE, op, root, counts);
        check_len("the list of counts", counts.len(), self.ranks, call).map(|()| call)
    }

    /// Only the root's vector has a length that matters.
    fn check_at(self, root: usize, what: &'static str, len: usize, expected: usize, call: Call) -> Checked {
        if self.rank == root {
            check_len(what, len, expected, call)?;
        }
        Ok(call)
    }

    fn rooted<T: Element>(
        self,
        operation: Operation,
        op: Option<ReduceOp>,
        root: usize,
        count: usize,
    ) -> Call {
        assert!(root < self.ranks, "root {root} of {} ranks", self.ranks);
        Call::new(operation, Some(T::DATA_TYPE), op, root, count)
    }
}

fn call<T: Element>(operation: Operation, op: Option<ReduceOp>, count: usize) -> Call {
    Call::new(operation, Some(T::DATA_TYPE), op, 0, count)
}

/// Fails unless an input or output has the length that its call needs.
fn check_len(what: &'static str, len: usize, expected: usize, call: Call) -> Result<(), CollectiveError> {
    if len == expected { Ok(()) } else { Err(CollectiveError::Length { what, len, expected, call }) }
}
