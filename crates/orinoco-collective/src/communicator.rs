use crate::{CollectiveError, Element, ReduceOp};

/// Ranks that carry out collective operations together, as one of them.
///
/// All ranks call the same operations in the same order, with the same sizes. An operation returns the correct result, or an error
/// that names the rank that failed; after an error every later call fails too. No call waits for a rank longer than the
/// deadline of the communicator's settings.
///
/// # Errors
/// Every operation fails as described, and on vectors of a wrong length. Its output may then hold a part of the result.
///
/// # Panics
/// Operations with a root panic if there is no such rank.
pub trait Communicator {
    /// This rank's number.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn ranks(&self) -> usize;

    /// Returns when all ranks have called it.
    fn barrier(&mut self) -> Result<(), CollectiveError>;

    /// Copies the vector of `root` to all ranks.
    fn broadcast<T: Element>(&mut self, root: usize, vector: &mut [T]) -> Result<(), CollectiveError>;

    /// Reduces the inputs of all ranks into the output of `root`. The output of other ranks is not touched, and may be empty.
    fn reduce<T: Element>(
        &mut self,
        op: ReduceOp,
        root: usize,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), CollectiveError>;

    /// Reduces the vectors of all ranks into the vector of each.
    fn all_reduce<T: Element>(&mut self, op: ReduceOp, vector: &mut [T]) -> Result<(), CollectiveError>;

    /// Reduces the inputs of all ranks into the output of each, which is as long.
    fn all_reduce_into<T: Element>(
        &mut self,
        op: ReduceOp,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), CollectiveError>;

    /// Concatenates the inputs of all ranks, which have equal lengths, in the output of each.
    fn all_gather<T: Element>(&mut self, input: &[T], output: &mut [T]) -> Result<(), CollectiveError>;

    /// Reduces the inputs of all ranks, which hold a block for each rank, and gives each rank its block.
    fn reduce_scatter<T: Element>(
        &mut self,
        op: ReduceOp,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), CollectiveError>;

    /// Sends block `i` of the root's input to rank `i`. The input of other ranks is not read, and may be empty.
    fn scatter<T: Element>(
        &mut self,
        root: usize,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), CollectiveError>;

    /// Concatenates the inputs of all ranks, which have equal lengths, in the output of `root`. The output of other ranks is not
    /// touched, and may be empty.
    fn gather<T: Element>(
        &mut self,
        root: usize,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), CollectiveError>;

    /// Sends each rank its block of the input, and receives a block from each.
    fn all_to_all<T: Element>(&mut self, input: &[T], output: &mut [T]) -> Result<(), CollectiveError>;
}
