//! Random calls, with their inputs and expected results.

use half::{bf16, f16};
use orinoco_core::Rng;
use zerocopy::IntoBytes;

use super::super::Kernel;
use crate::call::{Call, Operation};
use crate::element::kernel;
use crate::{Algorithm, Collective, DataType, Element, ReduceOp, reduce};

/// One call of all ranks.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    pub(crate) collective: Collective,
    pub(crate) data_type: DataType,
    pub(crate) op: ReduceOp,
    pub(crate) algorithm: Algorithm,
    /// Weights of the ranks' slices.
    pub(crate) weights: Vec<u32>,
    /// Whether operations that allow it have one vector as input and output.
    pub(crate) in_place: bool,
    pub(crate) piece: usize,
    pub(crate) seed: u64,
}

/// A rank's vectors.
pub(crate) struct Vectors {
    /// `None` if the output is the input, too.
    pub(crate) input: Option<Vec<u64>>,
    pub(crate) input_bytes: usize,
    pub(crate) output: Vec<u64>,
    pub(crate) output_bytes: usize,
}

impl Planned {
    pub(crate) fn call(&self) -> Call {
        let (operation, root, count) = match &self.collective {
            Collective::Barrier => return Call::new(Operation::Barrier, None, None, 0, 0),
            Collective::Broadcast { root, count } => (Operation::Broadcast, *root, *count),
            Collective::Reduce { root, count } => (Operation::Reduce, *root, *count),
            Collective::AllReduce { count } => (Operation::AllReduce, 0, *count),
            Collective::AllGather { counts } => (Operation::AllGather, 0, counts[0]),
            Collective::ReduceScatter { counts } => (Operation::ReduceScatter, 0, counts[0]),
            Collective::Scatter { root, counts } => (Operation::Scatter, *root, counts[0]),
            Collective::Gather { root, counts } => (Operation::Gather, *root, counts[0]),
            Collective::AllToAll { send, .. } => (Operation::AllToAll, 0, send[0]),
            Collective::Send { from, count, .. } => (Operation::Send, *from, *count),
        };
        let op = self.collective.reduces().then_some(self.op);
        Call::new(operation, Some(self.data_type), op, root, count)
    }

    pub(crate) fn kernel(&self) -> Kernel {
        if self.collective.reduces() { self.typed(Reducing) } else { Kernel::copying(Some(self.data_type)) }
    }

    pub(crate) fn vectors(&self, rank: usize, ranks: usize) -> Vectors {
        self.typed(Make { rank, ranks })
    }

    /// Whether a rank's output is what it computes alone, bit for bit.
    pub(crate) fn is_right(&self, vectors: &Vectors, rank: usize, ranks: usize) -> bool {
        let output = &vectors.output.as_bytes()[..vectors.output_bytes];
        output == self.typed(Expect { rank, ranks })
    }

    /// Whether the result's bits depend on the order of reduction, so that the algorithm must keep to the reduction tree.
    fn depends_on_order(&self) -> bool {
        self.collective.reduces() && self.algorithm.is_reproducible()
    }

    fn has_one_vector(&self) -> bool {
        match self.collective {
            Collective::Broadcast { .. } => true,
            Collective::AllReduce { .. } => self.in_place,
            _ => false,
        }
    }

    fn typed<F: Typed>(&self, typed: F) -> F::Result {
        match self.data_type {
            DataType::F32 => typed.run::<f32>(self),
            DataType::F64 => typed.run::<f64>(self),
            DataType::F16 => typed.run::<f16>(self),
            DataType::Bf16 => typed.run::<bf16>(self),
            DataType::I8 => typed.run::<i8>(self),
            DataType::U8 => typed.run::<u8>(self),
            DataType::I32 => typed.run::<i32>(self),
            DataType::U32 => typed.run::<u32>(self),
            DataType::I64 => typed.run::<i64>(self),
            DataType::U64 => typed.run::<u64>(self),
        }
    }
}

/// A function of a data type that is known at run time.
trait Typed {
    type Result;
    fn run<T: Value>(self, planned: &Planned) -> Self::Result;
}

/// Numbers that differ by rank and place. Sums of these depend on their order if the divisor is 7, and do not if it is 1.
pub(crate) trait Value: Element {
    fn from_small(small: u8, divisor: f32) -> Self;
}

macro_rules! value {
    ($($type:ty: |$small:ident, $divisor:ident| $value:expr;)*) => {$(
        impl Value for $type {
            fn from_small($small: u8, $divisor: f32) -> Self {
                $value
            }
        }
    )*};
}

value! {
    f32: |small, divisor| f32::from(small) / divisor;
    f64: |small, divisor| f64::from(small) / f64::from(divisor);
    f16: |small, divisor| f16::from_f32(f32::from(small) / divisor);
    bf16: |small, divisor| bf16::from_f32(f32::from(small) / divisor);
    i8: |small, _divisor| small as i8;
    u8: |small, _divisor| small;
    i32: |small, _divisor| i32::from(small) - 100;
    u32: |small, _divisor| u32::from(small);
    i64: |small, _divisor| i64::from(small) - 100;
    u64: |small, _divisor| u64::from(small);
}

fn inputs<T: Value>(planned: &Planned, rank: usize) -> Vec<T> {
    let mut rng = Rng::with_seed(planned.seed ^ (rank as u64) << 32);
    let divisor = if planned.depends_on_order() { 7.0 } else { 1.0 };
    (0..planned.collective.input_len(rank)).map(|_| T::from_small(rng.u8(..), divisor)).collect()
}

struct Reducing;

impl Typed for Reducing {
    type Result = Kernel;

    fn run<T: Value>(self, planned: &Planned) -> Kernel {
        kernel::<T>(planned.op)
    }
}

struct Make {
    rank: usize,
    ranks: usize,
}

impl Typed for Make {
    type Result = Vectors;

    fn run<T: Value>(self, planned: &Planned) -> Vectors {
        assert!(self.rank < self.ranks);
        let input = inputs::<T>(planned, self.rank);
        let output_len = planned.collective.output_len(self.rank);
        let words = |bytes: usize| vec![0xa5a5_a5a5_a5a5_a5a5; bytes.div_ceil(8)];
        let (input_bytes, output_bytes) = (size_of_val(&input[..]), output_len * size_of::<T>());
        let mut output = words(output_bytes);
        if planned.has_one_vector() {
            output.as_mut_bytes()[..input_bytes].copy_from_slice(input.as_bytes());
            return Vectors { input: None, input_bytes, output, output_bytes };
        }
        let mut own = words(input_bytes);
        own.as_mut_bytes()[..input_bytes].copy_from_slice(input.as_bytes());
        Vectors { input: Some(own), input_bytes, output, output_bytes }
    }
}

struct Expect {
    rank: usize,
    ranks: usize,
}

impl Typed for Expect {
    type Result = Vec<u8>;

    fn run<T: Value>(self, planned: &Planned) -> Vec<u8> {
        let Self { rank, ranks } = self;
        let all: Vec<Vec<T>> = (0..ranks).map(|rank| inputs::<T>(planned, rank)).collect();
        let reduced = || {
            let operands: Vec<&[T]> = all.iter().map(Vec::as_slice).collect();
            let mut result = vec![T::default(); operands[0].len()];
            reduce(planned.op, &mut result, &operands, u32::try_from(ranks).unwrap());
            result
        };
        let block = |counts: &[usize], rank: usize| {
            let start: usize = counts[..rank].iter().sum();
            start..start + counts[rank]
        };
        let expected: Vec<T> = match &planned.collective {
            Collective::Barrier => Vec::new(),
            Collective::Broadcast { root, .. } => all[*root].clone(),
            Collective::Reduce { root, .. } if rank != *root => Vec::new(),
            Collective::Reduce { .. } | Collective::AllReduce { .. } => reduced(),
            Collective::AllGather { .. } => all.concat(),
            Collective::ReduceScatter { counts } => reduced()[block(counts, rank)].to_vec(),
            Collective::Scatter { root, counts } => all[*root][block(counts, rank)].to_vec(),
            Collective::Gather { root, .. } if rank != *root => Vec::new(),
            Collective::Gather { .. } => all.concat(),
            Collective::Send { to, .. } if rank != *to => Vec::new(),
            Collective::Send { from, .. } => all[*from].clone(),
            Collective::AllToAll { send, .. } => {
                all.iter().flat_map(|input| input[block(send, rank)].to_vec()).collect()
            }
        };
        expected.as_bytes().to_vec()
    }
}
