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
