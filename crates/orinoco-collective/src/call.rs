use std::fmt;

use crate::{DataType, ReduceOp};

/// Largest count that fits a call's code.
const COUNT_MAX: u64 = (1 << 40) - 1;

/// One call of an operation, as ranks compare it: operation, data type, reduction, root and count.
///
/// Its code is 64 bits: the operation in the highest 4, then data type (4), reduction (4), root (12) and count (40). A send has its
/// sender as the root. Operations with a count for each rank have a checksum of the counts as their count, and the all-to-all among
/// them, whose counts differ from rank to rank, has 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Call(u64);

/// Kind of a collective operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Operation {
    Barrier = 1,
    Broadcast = 2,
    Reduce = 3,
    AllReduce = 4,
    AllGather = 5,
    ReduceScatter = 6,
    Scatter = 7,
    Gather = 8,
    AllToAll = 9,
    Send = 10,
    AllGatherV = 11,
    ReduceScatterV = 12,
    ScatterV = 13,
    GatherV = 14,
    AllToAllV = 15,
}

impl Call {
    /// Creates a call. `count` is the number of elements of a rank's vector, or of a block.
    pub(crate) fn new(
        operation: Operation,
        data_type: Option<DataType>,
        op: Option<ReduceOp>,
        root: usize,
        count: usize,
    ) -> Self {
        let count = count as u64;
        assert!(count <= COUNT_MAX && root < 1 << 12, "{count} elements, root {root}");
        let data_type = data_type.map_or(0, |data_type| data_type as u64 + 1);
        let op = op.map_or(0, |op| op as u64 + 1);
        Self((operation as u64) << 60 | data_type << 56 | op << 52 | (root as u64) << 40 | count)
    }

    /// Creates a call with a count for each rank.
    pub(crate) fn of_counts(
        operation: Operation,
        data_type: DataType,
        op: Option<ReduceOp>,
        root: usize,
        counts: &[usize],
    ) -> Self {
        let add = |checksum, count: &usize| crc32c::crc32c_append(checksum, &(*count as u64).to_le_bytes());
        let checksum = counts.iter().fold(0, add);
        Self::new(operation, Some(data_type), op, root, checksum as usize)
    }

    /// The call with this code, which may come from anywhere.
    pub(crate) fn from_code(code: u64) -> Self {
        Self(code)
    }

    pub(crate) fn code(self) -> u64 {
        self.0
    }

    /// Data type of its elements, if it has any.
    pub(crate) fn data_type(self) -> Option<DataType> {
        DataType::ALL.get(self.bits(56, 4).checked_sub(1)?).copied()
    }

    /// Whether each rank has counts of its own, which the others do not know.
    pub(crate) fn has_counts_of_one_rank(self) -> bool {
        self.bits(60, 4) == Operation::AllToAllV as usize
    }

    /// Whether `rank`, which waits in this operation, cannot end it before `other` has called it, too, whatever the algorithm.
    pub(crate) fn cannot_end_without(self, rank: usize, other: usize) -> bool {
        const ALL: [Operation; 5] = [
            Operation::Barrier,
            Operation::AllReduce,
            Operation::AllGather,
            Operation::ReduceScatter,
            Operation::AllToAll,
        ];
        let is_one_of =
            |operations: &[Operation]| operations.iter().any(|of| *of as usize == self.bits(60, 4));
        let root = self.bits(40, 12);
        // Operations with a count for each rank are left out: that of `other` may be 0, and then nobody waits for it. The others send nothing if
        // their count is 0, so no rank waits in them.
        is_one_of(&ALL)
            || is_one_of(&[Operation::Broadcast, Operation::Scatter]) && other == root
            || is_one_of(&[Operation::Reduce, Operation::Gather]) && rank == root
    }

    fn bits(self, shift: u32, bits: u32) -> usize {
        usize::try_from(self.0 >> shift & ((1 << bits) - 1)).expect("40 bits at most")
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = match self.bits(60, 4) {
            1 => "barrier",
            2 => "broadcast",
            3 => "reduce",
            4 => "all_reduce",
            5 => "all_gather",
            6 => "reduce_scatter",
            7 => "scatter",
            8 => "gather",
            9 => "all_to_all",
            10 => "send",
            11 => "all_gather_v",
            12 => "reduce_scatter_v",
            13 => "scatter_v",
            14 => "gather_v",
            15 => "all_to_all_v",
            other => return write!(f, "operation {other}"),
        };
        write!(f, "{operation}")?;
        let Some(data_type) = self.bits(56, 4).checked_sub(1) else { return Ok(()) };
        let data_type = DataType::ALL.get(data_type).map_or("unknown", |data_type| data_type.name());
        match operation {
            "all_to_all_v" => write!(f, " of {data_type}")?,
            _ if operation.ends_with("_v") => {
                write!(f, " of {data_type}, counts with the checksum {:08x}", self.bits(0, 40))?;
            }
            _ => write!(f, " of {} {data_type}", self.bits(0, 40))?,
        }
        if let Some(op) = self.bits(52, 4).checked_sub(1) {
            write!(f, ", {}", ReduceOp::ALL.get(op).map_or("unknown", |op| op.name()))?;
        }
        let root = self.bits(40, 12);
        match operation {
            "broadcast" | "reduce" | "scatter" | "gather" | "scatter_v" | "gather_v" => {
                write!(f, ", root {root}")?;
            }
            "send" => write!(f, " from rank {root}")?,
            _ => {}
        }
        Ok(())
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Call({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_shown_and_any_code_is_a_call() {
        let show = |code| Call::from_code(code).to_string();
        let call = Call::new(Operation::AllReduce, Some(DataType::F32), Some(ReduceOp::Sum), 0, 1024);
        assert_eq!(show(call.code()), "all_reduce of 1024 f32, sum");
        let call = Call::new(Operation::Broadcast, Some(DataType::U8), None, 3, 0);
        assert_eq!(show(call.code()), "broadcast of 0 u8, root 3");
        assert_eq!(show(Call::new(Operation::Barrier, None, None, 0, 0).code()), "barrier");
        let call = Call::new(Operation::Send, Some(DataType::U8), None, 3, 12);
        assert_eq!(show(call.code()), "send of 12 u8 from rank 3");
        let call = Call::of_counts(Operation::GatherV, DataType::U8, None, 1, &[1, 2]);
        assert_eq!(show(call.code()), "gather_v of u8, counts with the checksum 22046d5a, root 1");
        let call = Call::of_counts(Operation::AllToAllV, DataType::U8, None, 0, &[]);
        assert_eq!(show(call.code()), "all_to_all_v of u8");
        assert_eq!(show(0), "operation 0");
        assert_eq!(show(4 << 60 | 15 << 56 | 15 << 52 | 7), "all_reduce of 7 unknown, unknown");
    }
}
