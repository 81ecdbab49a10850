use crate::caller::Caller;
use crate::quantization::Shares;
use crate::{AllocateError, CollectiveError, Element, QuantizedElement, ReduceOp, VectorMemory};

/// Ranks that carry out collective operations together, as one of them.
///
/// All ranks call the same operations in the same order, with the same sizes. Only a send and its receive concern no other ranks; the
/// two ranks make all the calls that concern both in the same order. An operation returns the correct result, or an error
/// that names the rank that failed; after an error every later call fails too. No call waits for a
/// rank longer than the deadline of the communicator's settings. Time counts from the last bytes that came or could be sent, so a long
/// vector over a slow link is no reason to fail.
///
/// # Errors
/// Every operation fails as described, and on vectors of a wrong length. Its output may then hold a part of the result.
///
/// # Panics
/// Operations with a root or another rank panic if there is no such rank. A rank cannot send to itself.
pub trait Communicator {
    /// This rank's number.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn ranks(&self) -> usize;

    /// Allocates a vector of elements, all 0. Over RDMA the memory is registered, so long messages between such vectors are zero-copy
    /// ([`Rdma`](crate::Rdma)). Allocate vectors once and use them again: each allocation registers the memory once per peer. This call is local: other
    /// ranks need not make it.
    ///
    /// # Errors
    /// There is not enough memory, or it cannot be registered, for example because `ulimit -l` is too low.
    fn allocate<T: Element>(&mut self, len: usize) -> Result<VectorMemory<T>, AllocateError> {
        VectorMemory::ordinary(len)
    }

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

    /// Reduces several vectors as [`Communicator::all_reduce`] does, in fewer exchanges: short vectors that follow one another travel
    /// together. All ranks name vectors of the same lengths, in the same order. The results are those of single calls, to the bit.
    fn all_reduce_many<T: Element>(
        &mut self,
        op: ReduceOp,
        vectors: &mut [&mut [T]],
    ) -> Result<(), CollectiveError> {
        let mut fused = Vec::new();
        let mut rest = vectors;
        while let Some(number) = fused_vectors(rest) {
            let (now, later) = rest.split_at_mut(number);
            rest = later;
            match now {
                [one] => self.all_reduce(op, one)?,
                several => {
                    fused.clear();
                    several.iter().for_each(|vector| fused.extend_from_slice(vector));
                    self.all_reduce(op, &mut fused)?;
                    let mut reduced = &fused[..];
                    for vector in several {
                        let (own, others) = reduced.split_at(vector.len());
                        vector.copy_from_slice(own);
                        reduced = others;
                    }
                }
            }
        }
        Ok(())
    }

    /// Reduces the inputs of all ranks into the output of each, which is as long.
    fn all_reduce_into<T: Element>(
        &mut self,
        op: ReduceOp,
        input: &[T],
        output: &mut [T],
    ) -> Result<(), CollectiveError>;

    /// Sums the vectors of all ranks into the vector of each, as 8-bit integers: it sends about a quarter of the bytes of an all-reduce
    /// of `f32`, and the result is rounded.
    ///
    /// The scheme is the two-step one of Flash Communication (Li et al., 2024, arXiv:2412.04964) with the blocks of EQuARX (Ahmed et
    /// al., 2025, arXiv:2506.17615): each of `n` ranks has a share of the vector, `ceil(len / n)` elements. A share is quantized in
    /// blocks of 256 elements. The scale of a block is its largest magnitude divided by 127 (symmetric), and an element becomes the nearest
    /// multiple of the scale, of two the even one. Every rank sends each share to its owner, which sums them in `f32` in the order of
    /// the [reduction tree](crate::reduce), quantizes the sums, and sends them to all.
    ///
    /// All ranks get the same bits, over every transport and on every processor, with `Order::Fast`, too. An element of `f32` differs
    /// from the exact sum by at most `(1 + 2^-10) / 127` times the sum of the ranks' largest magnitudes in its block, plus `2^-142`
    /// for each rank and once more; `f16` and `bf16` are rounded once besides, and become infinite beyond their range.
    /// A NaN or an infinity, of any rank or by overflow of a sum, makes the elements of its block NaN (quiet, without sign and payload).
    /// Zeros have no sign. Denormal numbers are kept where the bound allows.
    ///
    /// If ranks name vectors of different lengths or types, each gets an error: `Mismatch` with the two `all_reduce`, after
    /// which the communicator can still be used, or else with the `all_to_all` of bytes in which it was noticed.
    fn all_reduce_int8<T: QuantizedElement>(&mut self, vector: &mut [T]) -> Result<(), CollectiveError> {
        let (rank, ranks) = (self.rank(), self.ranks());
        let call = Caller { rank, ranks }.all_reduce(ReduceOp::Sum, vector);
        let shares = Shares::new(call, vector.len(), ranks);
        let mut quantized = shares.quantize(vector);
        let mut received = vec![0u8; quantized.len()];
        self.all_to_all(&quantized, &mut received)?;
        shares.check(&received)?;
        self.all_gather(&shares.sum(rank, &received), &mut quantized)?;
        shares.dequantize(&quantized, vector);
        Ok(())
    }

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

    /// Concatenates the inputs of all ranks in the output of each. `counts` has the elements of each rank's input.
    fn all_gather_v<T: Element>(
        &mut self,
        input: &[T],
        counts: &[usize],
        output: &mut [T],
    ) -> Result<(), CollectiveError>;

    /// Reduces the inputs of all ranks, which hold a block for each rank, and gives each rank its block. `counts` has the elements of
    /// each block.
    fn reduce_scatter_v<T: Element>(
        &mut self,
        op: ReduceOp,
        input: &[T],
        counts: &[usize],
        output: &mut [T],
    ) -> Result<(), CollectiveError>;

    /// Sends block `i` of the root's input to rank `i`. `counts` has the elements of each block. The input of other ranks is not
    /// read, and may be empty.
    fn scatter_v<T: Element>(
        &mut self,
        root: usize,
        input: &[T],
        counts: &[usize],
        output: &mut [T],
    ) -> Result<(), CollectiveError>;

    /// Concatenates the inputs of all ranks in the output of `root`. `counts` has the elements of each rank's input. The output of
    /// other ranks is not touched, and may be empty.
    fn gather_v<T: Element>(
        &mut self,
        root: usize,
        input: &[T],
        counts: &[usize],
        output: &mut [T],
    ) -> Result<(), CollectiveError>;

    /// Sends each rank its block of the input, and receives a block from each. `send` and `receive` are this rank's: the elements of
    /// the block for each rank, and of the block from each.
    fn all_to_all_v<T: Element>(
        &mut self,
        input: &[T],
        send: &[usize],
        output: &mut [T],
        receive: &[usize],
    ) -> Result<(), CollectiveError>;

    /// Sends a vector to another rank, which receives it in a vector of the same length. Returns when the vector may be changed: a
    /// long one only after the other rank has called.
    fn send<T: Element>(&mut self, to: usize, vector: &[T]) -> Result<(), CollectiveError>;

    /// Receives a vector that another rank sends.
    fn recv<T: Element>(&mut self, from: usize, vector: &mut [T]) -> Result<(), CollectiveError>;
}

/// Most bytes of vectors that travel together. Where bytes cost more than messages, copying them twice would cost time.
const FUSED_BYTES: usize = 64 << 10;

/// Number of vectors, from the first on, that travel together; `None` if there is none.
fn fused_vectors<T>(vectors: &[&mut [T]]) -> Option<usize> {
    let mut bytes = 0;
    let fits = |vector: &&&mut [T]| {
        bytes += size_of_val(&***vector);
        bytes <= FUSED_BYTES
    };
    let fitting = vectors.iter().take_while(fits).count();
    (!vectors.is_empty()).then_some(fitting.max(1))
}
