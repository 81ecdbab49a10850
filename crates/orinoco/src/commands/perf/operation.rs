use orinoco_collective::{
    AllocateError, Collective, CollectiveError, Communicator, Element, Order, ReduceOp, VectorMemory, reduce,
};

/// A collective operation that can be measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    AllReduce,
    Broadcast,
    AllGather,
    ReduceScatter,
    AllToAll,
    Reduce,
    Scatter,
    Gather,
}

/// Reduction, and the order in which it combines values. Operations that only copy ignore it.
#[derive(Clone, Copy)]
pub(super) struct Reduction {
    pub(super) op: ReduceOp,
    pub(super) order: Order,
}

/// A rank's vectors for one size.
pub(super) struct Vectors<T> {
    pub(super) input: VectorMemory<T>,
    pub(super) output: VectorMemory<T>,
}

impl Operation {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "all_reduce" => Self::AllReduce,
            "broadcast" => Self::Broadcast,
            "all_gather" => Self::AllGather,
            "reduce_scatter" => Self::ReduceScatter,
            "all_to_all" => Self::AllToAll,
            "reduce" => Self::Reduce,
            "scatter" => Self::Scatter,
            "gather" => Self::Gather,
            _ => return None,
        })
    }

    pub(super) fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce)
    }

    /// Elements of the largest buffer of a rank that a size in bytes stands for. Operations with a block for each rank need a
    /// multiple of their number.
    pub(super) fn elements<T>(self, bytes: usize, ranks: usize) -> usize {
        let elements = bytes / size_of::<T>();
        if self.has_blocks() { (elements / ranks * ranks).max(ranks) } else { elements.max(1) }
    }

    /// Elements of the buffer that nccl-tests counts.
    pub(super) fn count(self, elements: usize, ranks: usize) -> usize {
        if self.has_blocks() { elements / ranks } else { elements }
    }

    /// Factor from `algbw` to `busbw`: the share of the bytes that each link must carry (nccl-tests, doc/PERFORMANCE.md).
    pub(super) fn bus_factor(self, ranks: usize) -> f64 {
        let others = (ranks - 1) as f64 / ranks as f64;
        match self {
            Self::AllReduce => 2.0 * others,
            Self::Broadcast | Self::Reduce => 1.0,
            Self::AllGather | Self::ReduceScatter | Self::AllToAll | Self::Scatter | Self::Gather => others,
        }
    }

    /// Bytes that a rank must read from others: the one that reads most.
    pub(super) fn bytes_read(self, bytes: usize, ranks: usize) -> f64 {
        match (self, ranks) {
            (_, 1) => 0.0,
            (Self::Scatter, _) => bytes as f64 / ranks as f64,
            _ => bytes as f64 * self.bus_factor(ranks),
        }
    }

    /// The operation as the library names it.
    pub(super) fn collective(self, elements: usize, ranks: usize) -> Collective {
        let counts = || vec![elements / ranks; ranks];
        match self {
            Self::AllReduce => Collective::AllReduce { count: elements },
            Self::Broadcast => Collective::Broadcast { root: 0, count: elements },
            Self::AllGather => Collective::AllGather { counts: counts() },
            Self::ReduceScatter => Collective::ReduceScatter { counts: counts() },
            Self::AllToAll => Collective::all_to_all(ranks, elements / ranks),
            Self::Reduce => Collective::Reduce { root: 0, count: elements },
            Self::Scatter => Collective::Scatter { root: 0, counts: counts() },
            Self::Gather => Collective::Gather { root: 0, counts: counts() },
        }
    }

    fn has_blocks(self) -> bool {
        !matches!(self, Self::AllReduce | Self::Broadcast | Self::Reduce)
    }

    /// Vectors with this rank's numbers, in memory of the group.
    pub(super) fn vectors<T: Number>(
        self,
        elements: usize,
        order: Order,
        group: &mut impl Communicator,
    ) -> Result<Vectors<T>, AllocateError> {
        let (rank, ranks) = (group.rank(), group.ranks());
        let (of_input, of_output) = match self {
            Self::AllReduce | Self::Broadcast | Self::AllToAll | Self::Reduce => (elements, elements),
            Self::AllGather | Self::Gather => (elements / ranks, elements),
            Self::ReduceScatter | Self::Scatter => (elements, elements / ranks),
        };
        let (mut input, output) = (group.allocate(of_input)?, group.allocate(of_output)?);
        input.iter_mut().enumerate().for_each(|(i, element)| *element = T::at(order, rank, i));
        Ok(Vectors { input, output })
    }

    /// Carries it out once. Operations in place write to a copy of the input that [`Operation::prepare`] has made.
    pub(super) fn call<T: Element>(
        self,
        group: &mut impl Communicator,
        reduction: Reduction,
        vectors: &mut Vectors<T>,
    ) -> Result<(), CollectiveError> {
        let (Vectors { input, output }, op) = (vectors, reduction.op);
        match self {
            Self::AllReduce => group.all_reduce_into(op, input, output),
            Self::Broadcast => group.broadcast(0, if group.rank() == 0 { input } else { output }),
            Self::AllGather => group.all_gather(input, output),
            Self::ReduceScatter => group.reduce_scatter(op, input, output),
            Self::AllToAll => group.all_to_all(input, output),
            Self::Reduce => group.reduce(op, 0, input, output),
            Self::Scatter => group.scatter(0, input, output),
            Self::Gather => group.gather(0, input, output),
        }
    }

    /// Elements of the output that are not what this rank computes alone, bit for bit.
    pub(super) fn wrong<T: Number>(
        self,
        output: &[T],
        reduction: Reduction,
        rank: usize,
        ranks: usize,
    ) -> u64 {
        let block = output.len() / ranks.max(1);
        let at = |rank, i| T::at(reduction.order, rank, i);
        let expected = |i: usize| match self {
            Self::AllReduce | Self::Reduce => reduced(reduction, i, ranks),
            Self::ReduceScatter => reduced(reduction, rank * output.len() + i, ranks),
            Self::Broadcast => at(0, i),
            Self::Scatter => at(0, rank * output.len() + i),
            Self::AllGather | Self::Gather => at(i / block, i % block),
            Self::AllToAll => at(i / block, rank * block + i % block),
        };
        let has_output = match self {
            Self::Broadcast => rank != 0,
            Self::Reduce | Self::Gather => rank == 0,
            _ => true,
        };
        let wrong = |(i, value): &(usize, &T)| !value.has_bits_of(expected(*i));
        if has_output { output.iter().enumerate().filter(wrong).count() as u64 } else { 0 }
    }
}

fn reduced<T: Number>(reduction: Reduction, i: usize, ranks: usize) -> T {
    let Reduction { op, order } = reduction;
    let values: Vec<T> = (0..ranks).map(|rank| T::at(order, rank, i)).collect();
    let operands: Vec<&[T]> = values.iter().map(std::slice::from_ref).collect();
    let mut result = [T::default()];
    reduce(op, &mut result, &operands, u32::try_from(ranks).expect("few ranks"));
    result[0]
}

/// Numbers to calculate with: different for each rank and element, and small, so that no reduction leaves the type's range too soon.
pub(super) trait Number: Element {
    /// Number of an element. In the order of the reduction tree, the bits of a sum depend on that order; in any order, every
    /// reduction of the numbers is exact, so that there is one right result.
    fn at(order: Order, rank: usize, i: usize) -> Self {
        let small = ((rank * 7 + i * 3) % 11) as u8 + 1;
        match order {
            Order::Reproducible => Self::of_small(small),
            // 1 or 2: sums of 64 ranks fit in the 8 bits of bf16, and products are powers of two.
            Order::Fast => Self::of_exact(small % 2 + 1),
        }
    }

    /// Number of 1 to 11.
    fn of_small(small: u8) -> Self;
    /// The number itself.
    fn of_exact(number: u8) -> Self;
    fn has_bits_of(self, other: Self) -> bool;
}

macro_rules! number {
    ($($type:ty: |$small:ident| $of_small:expr, $of_exact:expr, $bits:expr;)*) => {$(
        impl Number for $type {
            fn of_small($small: u8) -> Self {
                $of_small
            }

            fn of_exact(number: u8) -> Self {
                $of_exact(number)
            }

            fn has_bits_of(self, other: Self) -> bool {
                $bits(self) == $bits(other)
            }
        }
    )*};
}

number! {
    // Sums of these depend on their order.
    f32: |small| f32::from(small) / 7.0, f32::from, f32::to_bits;
    f64: |small| f64::from(small) / 7.0, f64::from, f64::to_bits;
    half::f16: |small| half::f16::from_f32(f32::from(small) / 7.0), half::f16::from, half::f16::to_bits;
    half::bf16: |small| half::bf16::from_f32(f32::from(small) / 7.0), half::bf16::from, half::bf16::to_bits;
    i8: |small| i8::try_from(small).expect("small") - 6, |number| i8::try_from(number).expect("small"), i8::from;
    u8: |small| small, u8::from, u8::from;
    i32: |small| i32::from(small) - 6, i32::from, i32::from;
    u32: |small| u32::from(small), u32::from, u32::from;
    i64: |small| i64::from(small) - 6, i64::from, i64::from;
    u64: |small| u64::from(small), u64::from, u64::from;
}
