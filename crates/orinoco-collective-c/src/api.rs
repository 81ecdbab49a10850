//! The functions of the library.
#![expect(unsafe_code, reason = "C calls these functions by name, with addresses")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the conditions stand with the types and functions, for readers of the header"
)]

use std::ffi::{c_char, c_void};
use std::ptr::null_mut;

use half::{bf16, f16};
use orinoco_collective::{CollectiveError, DataType, ReduceOp};

use crate::fault::{Fault, OrinocoStatus, last_message, last_rank, status};
use crate::group::{AnyGroup, OrinocoGroup, OrinocoWork};
use crate::vectors::{Vector, at, check_list, count_list, give, vector_list, write_text};
use crate::{explanation, record};

/// Data type: IEEE 754 single precision.
pub const ORINOCO_F32: u32 = 0;
/// Data type: IEEE 754 double precision.
pub const ORINOCO_F64: u32 = 1;
/// Data type: IEEE 754 half precision.
pub const ORINOCO_F16: u32 = 2;
/// Data type: the upper half of a single precision number.
pub const ORINOCO_BF16: u32 = 3;
/// Data type: 8-bit signed integer.
pub const ORINOCO_I8: u32 = 4;
/// Data type: 8-bit unsigned integer.
pub const ORINOCO_U8: u32 = 5;
/// Data type: 32-bit signed integer.
pub const ORINOCO_I32: u32 = 6;
/// Data type: 32-bit unsigned integer.
pub const ORINOCO_U32: u32 = 7;
/// Data type: 64-bit signed integer.
pub const ORINOCO_I64: u32 = 8;
/// Data type: 64-bit unsigned integer.
pub const ORINOCO_U64: u32 = 9;
/// Reduction: sum.
pub const ORINOCO_SUM: u32 = 0;
/// Reduction: product.
pub const ORINOCO_PRODUCT: u32 = 1;
/// Reduction: minimum.
pub const ORINOCO_MIN: u32 = 2;
/// Reduction: maximum.
pub const ORINOCO_MAX: u32 = 3;
/// Reduction: sum, divided by the number of ranks. Integers are rounded towards zero.
pub const ORINOCO_AVERAGE: u32 = 4;

/// Runs a block for a data type that is known at run time.
macro_rules! typed {
    ($data_type:expr, $element:ident => $block:block) => {
        match $data_type {
            ORINOCO_F32 => {
                type $element = f32;
                $block
            }
            ORINOCO_F64 => {
                type $element = f64;
                $block
            }
            ORINOCO_F16 => {
                type $element = f16;
                $block
            }
            ORINOCO_BF16 => {
                type $element = bf16;
                $block
            }
            ORINOCO_I8 => {
                type $element = i8;
                $block
            }
            ORINOCO_U8 => {
                type $element = u8;
                $block
            }
            ORINOCO_I32 => {
                type $element = i32;
                $block
            }
            ORINOCO_U32 => {
                type $element = u32;
                $block
            }
            ORINOCO_I64 => {
                type $element = i64;
                $block
            }
            ORINOCO_U64 => {
                type $element = u64;
                $block
            }
            other => Err(no_data_type(other)),
        }
    };
}

/// Runs a block for a data type that can be quantized, and that is known at run time.
macro_rules! quantized {
    ($data_type:expr, $element:ident => $block:block) => {
        match $data_type {
            ORINOCO_F32 => {
                type $element = f32;
                $block
            }
            ORINOCO_F16 => {
                type $element = f16;
                $block
            }
            ORINOCO_BF16 => {
                type $element = bf16;
                $block
            }
            other => Err(Fault::argument(format!(
                "elements of data type {other} cannot be quantized; expected ORINOCO_F32, ORINOCO_F16 or ORINOCO_BF16"
            ))),
        }
    };
}

/// Color of a rank that takes no part in a split.
pub const ORINOCO_NO_COLOR: i64 = -1;

/// Makes groups of a group's ranks, as MPI_Comm_split does. Ranks that name the same color, from 0 to 2^32 - 1, form one, in the order
/// of their keys and then of their ranks. A rank with the color ORINOCO_NO_COLOR belongs to none, and gets NULL. All ranks must call
/// it. The new group is independent, and to be left by `orinoco_leave`. Making it takes about as long as joining: make it
/// once, and use it again and again. Groups over RDMA and PCIe cannot be split.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_split(
    group: *const OrinocoGroup,
    color: i64,
    key: i32,
    part: *mut *mut OrinocoGroup,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointer is what its type says.
        let group = unsafe { at(group, "the group")? };
        if part.is_null() {
            return Err(Fault::argument("the place for the new group is NULL"));
        }
        let color = match color {
            ORINOCO_NO_COLOR => None,
            _ => Some(u32::try_from(color).map_err(|_| {
                Fault::argument(format!("{color} is no color: they are 0 to 4294967295, or ORINOCO_NO_COLOR"))
            })?),
        };
        let split = group.split(color, key)?.map_or(null_mut(), |split| Box::into_raw(Box::new(split)));
        // SAFETY: as above, and it is not NULL.
        unsafe { part.write(split) };
        Ok(())
    })
}

/// Makes a group of the ranks that are left after a failure, as ncclCommShrink does, in the order of their ranks in `group`. All ranks
/// that are left must call it, usually after an operation has failed. Ranks that have ended or left, give no signs of life or were too
/// late for an operation are left out. All ranks that are left get the same group, or an error. A group is shrunk once; after that,
/// leave it by `orinoco_leave`. The new group is independent, has the settings of the old one, and is to be left by itself. Groups over
/// RDMA and PCIe cannot be shrunk.
///
/// ORINOCO_JOIN_FAILED: not all ranks that give signs of life called it before the deadline of the settings, or they could not connect;
/// it can be called again then. It cannot be called again if the other ranks go on without this one, or if it has returned a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_shrink(
    group: *const OrinocoGroup,
    smaller: *mut *mut OrinocoGroup,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointer is what its type says.
        let group = unsafe { at(group, "the group")? };
        if smaller.is_null() {
            return Err(Fault::argument("the place for the new group is NULL"));
        }
        let shrunk = Box::into_raw(Box::new(group.shrink()?));
        // SAFETY: as above, and it is not NULL.
        unsafe { smaller.write(shrunk) };
        Ok(())
    })
}

/// Leaves a group, after all operations that were started have ended. `group` is not valid after that. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_leave(group: *mut OrinocoGroup) -> OrinocoStatus {
    status(|| {
        if !group.is_null() {
            // SAFETY: `give` made it from a box, and the caller gives it back once.
            drop(unsafe { Box::from_raw(group) });
        }
        Ok(())
    })
}

/// This rank's number; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_rank(group: *const OrinocoGroup) -> usize {
    // SAFETY: the caller's pointer is what its type says.
    unsafe { group.as_ref() }.map_or(0, OrinocoGroup::rank)
}

/// Number of ranks; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_ranks(group: *const OrinocoGroup) -> usize {
    // SAFETY: the caller's pointer is what its type says.
    unsafe { group.as_ref() }.map_or(0, OrinocoGroup::ranks)
}

/// Message of the last failure on this thread. It is valid until the next failure on this thread, and empty if there was none.
#[unsafe(no_mangle)]
pub extern "C" fn orinoco_last_error() -> *const c_char {
    last_message()
}

/// The rank that the last failure on this thread names, or -1 if it names none.
#[unsafe(no_mangle)]
pub extern "C" fn orinoco_last_error_rank() -> i32 {
    last_rank()
}

/// Measures the links of a group, its copies and its reductions, and chooses algorithms by them from now on. All ranks must call it. It
/// takes some tenths of a second. Results have the same bits as before, unless the group is `fast`. Groups of more than 16 ranks keep
/// their choices by size, and ORINOCO_OK is returned. A group over shared memory has one algorithm for each operation:
/// ORINOCO_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_tune(group: *const OrinocoGroup) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointer is what its type says.
        unsafe { at(group, "the group")? }.tune()
    })
}

/// Format of a flight record or an explanation: a table for people.
pub const ORINOCO_TEXT: u32 = 0;
/// Format of a flight record or an explanation: one JSON object.
pub const ORINOCO_JSON: u32 = 1;

/// Writes the flight record of this rank to `buffer`, of `capacity` bytes, as a string that ends with a null character: the last 64
/// operations, how long each waited, for which rank longest, and the waits for each rank. After a failure, the last operation is the
/// one that failed, and the rank it waited for longest is the late one.
///
/// `length` receives the bytes of the whole string, without the null character. If that is not less than `capacity`, the string in the
/// buffer is cut off: call again with a larger buffer. With a capacity of 0, `buffer` may be NULL. The function does not wait for other
/// ranks, but for the operations of this one that were started in the background.
///
/// `format` is ORINOCO_TEXT or ORINOCO_JSON. The object has the keys `rank`, `operations` (oldest first), `waits` (one entry for each
/// rank) and `failure` (the message of the first failure, or null). An operation has `number`, `call`, `state` ("done", "failed" or
/// "under way"), `began_ms` and `ended_ms` since the group was joined, `waited_ms`, and `longest`: null, or an object with `rank` and
/// `waited_ms`. A wait has `count`, `waited_ms` and `longest_ms`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_recent(
    group: *const OrinocoGroup,
    format: u32,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointer is what its type says.
        let group = unsafe { at(group, "the group") }?;
        let describe = formatter(format, record::json)?;
        // SAFETY: the caller's buffer has as many bytes as it says.
        unsafe { give_text(|| Ok(describe(&group.recent()?)), buffer, capacity, length) }
    })
}

/// Writes the reasons for the choice of an operation's algorithm in a group that is tuned (by `orinoco_tune`, or the setting `tune`), as
/// `orinoco_recent` writes a flight record: the algorithm that is used, the predicted times of all that could be, the least time that
/// the links allow, and the times of the calls so far at this rank.
///
/// `operation` is ORINOCO_BARRIER or one of those after it. `count` is the number of elements as in the function of that operation, and `root`
/// its root; both are without effect where the function has none. The functions with a count for each rank are explained if all counts
/// are equal. The largest vector of a rank has at most 64 GiB. The function does not wait for other ranks.
///
/// The object has the keys `operation`, `data_type`, `bytes` (of the largest vector), `ranks`, `algorithm` (the one that is used),
/// `candidates` (the fastest one first), `bound_us` (the least time) and `measured`. A candidate has `algorithm`, `predicted_at_once_us`
/// (if all ranks begin at once) and `predicted_after_barrier_us` (in a benchmark that times each call after a barrier). `measured` is
/// null if there was no such call, or an object with `calls`, `last_us`, `median_us` and `bound_share` (the least time divided by the
/// median).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_explain(
    group: *const OrinocoGroup,
    operation: u32,
    count: usize,
    data_type: u32,
    root: usize,
    format: u32,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointer is what its type says.
        let group = unsafe { at(group, "the group") }?;
        check_rank(group, root)?;
        let data_type = DataType::ALL.get(data_type as usize).ok_or_else(|| no_data_type(data_type))?;
        let collective = explanation::collective(operation, count, *data_type, root, group.ranks())?;
        let describe = formatter(format, explanation::json)?;
        let explain = || Ok(describe(&group.explain(collective, *data_type)?));
        // SAFETY: the caller's buffer has as many bytes as it says.
        unsafe { give_text(explain, buffer, capacity, length) }
    })
}

/// Waits until an operation that was started in the background has ended, and returns its status. `work` is not valid after that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_wait(work: *mut OrinocoWork) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointer is what its type says.
        unsafe { at(work, "the work") }?;
        // SAFETY: `give` made it from a box, and the caller gives it back once.
        let work = unsafe { Box::from_raw(work) };
        Ok(work.pending.wait()?)
    })
}

/// Whether an operation that was started in the background has ended. `orinoco_wait` is still to be called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_is_done(work: *const OrinocoWork) -> bool {
    // SAFETY: the caller's pointer is what its type says.
    unsafe { work.as_ref() }.is_none_or(|work| work.pending.is_done())
}

/// Returns when all ranks have called it. Here and below, `work` is NULL, and the function returns when the operation has ended; or
/// else the operation runs in the background, `work` receives a handle for `orinoco_wait`, and the vectors stay lent until then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_barrier(
    group: *const OrinocoGroup,
    work: *mut *mut OrinocoWork,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointers are what their types say.
        unsafe { run(at(group, "the group")?, work, AnyGroup::barrier) }
    })
}

/// Copies the vector of `root`, of `count` elements, to all ranks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_broadcast(
    group: *const OrinocoGroup,
    vector: *mut c_void,
    count: usize,
    data_type: u32,
    root: usize,
    work: *mut *mut OrinocoWork,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointer is what its type says.
        let group = unsafe { at(group, "the group") }?;
        check_rank(group, root)?;
        // SAFETY: the caller lends the vectors until the operation has ended.
        let to = unsafe { Vector::output(vector, count) };
        typed!(data_type, T => {
            to.check::<T>("the vector")?;
            // SAFETY: the caller's pointer is what its type says.
            unsafe { run(group, work, move |group| group.broadcast(root, to.elements_mut::<T>())) }
        })
    })
}

/// Reduces the inputs of all ranks, of `count` elements, into the output of `root`. The output of other ranks may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_reduce(
    group: *const OrinocoGroup,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    data_type: u32,
    reduction: u32,
    root: usize,
    work: *mut *mut OrinocoWork,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointer is what its type says.
        let group = unsafe { at(group, "the group") }?;
        let op = reduce_op(reduction)?;
        check_rank(group, root)?;
        let output_count = if group.rank() == root { count } else { 0 };
        // SAFETY: the caller lends the vectors until the operation has ended.
        let from = unsafe { Vector::input(input, count) };
        // SAFETY: as above.
        let to = unsafe { Vector::output(output, output_count) };
        typed!(data_type, T => {
            from.check::<T>("the input")?;
            to.check::<T>("the output")?;
            // SAFETY: the caller's pointer is what its type says.
            unsafe { run(group, work, move |group| group.reduce(op, root, &from.elements::<T>(to), to.elements_mut())) }
        })
    })
}

/// Reduces the inputs of all ranks, of `count` elements, into the output of each, which may be the input.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_all_reduce(
    group: *const OrinocoGroup,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    data_type: u32,
    reduction: u32,
    work: *mut *mut OrinocoWork,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointer is what its type says.
        let group = unsafe { at(group, "the group") }?;
        let op = reduce_op(reduction)?;
        // SAFETY: the caller lends the vectors until the operation has ended.
        let from = unsafe { Vector::input(input, count) };
        // SAFETY: as above.
        let to = unsafe { Vector::output(output, count) };
        typed!(data_type, T => {
            from.check::<T>("the input")?;
            to.check::<T>("the output")?;
            // SAFETY: the caller's pointer is what its type says.
            unsafe { run(group, work, move |group| match from.is(to) {
                true => group.all_reduce(op, to.elements_mut::<T>()),
                false => group.all_reduce_into(op, &from.elements::<T>(to), to.elements_mut()),
            }) }
        })
    })
}

/// Reduces several vectors of one data type, in place, as `orinoco_all_reduce` does, in fewer exchanges: short vectors that follow one
/// another travel together. `vectors` has the addresses of the `number` vectors, and `counts` the elements of each. Both lists are read
/// before the function returns. All ranks name vectors of the same lengths, in the same order, and no two of a rank share memory. The
/// results are those of single calls, to the bit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_all_reduce_many(
    group: *const OrinocoGroup,
    vectors: *const *mut c_void,
    counts: *const usize,
    number: usize,
    data_type: u32,
    reduction: u32,
    work: *mut *mut OrinocoWork,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointer is what its type says.
        let group = unsafe { at(group, "the group") }?;
        let op = reduce_op(reduction)?;
        // SAFETY: the caller's lists have an entry for each vector, and it lends the vectors until the operation has ended.
        let vectors = unsafe { vector_list(vectors, counts, number) }?;
        typed!(data_type, T => {
            check_list::<T>(&vectors)?;
            let reduce = move |group: &mut AnyGroup| {
                let mut vectors: Vec<&mut [T]> = vectors.iter().map(|vector| vector.elements_mut()).collect();
                group.all_reduce_many(op, &mut vectors)
            };
            // SAFETY: the caller's pointer is what its type says.
            unsafe { run(group, work, reduce) }
        })
    })
}

/// Sums the inputs of all ranks, of `count` elements, into the output of each, which may be the input, as 8-bit integers with a scale
/// for each 256 elements. It sends about a quarter of the bytes of an all-reduce of ORINOCO_F32, and the result is rounded: an element
/// differs from the sum by at most about 1/127 of the sum of the ranks' largest magnitudes among those 256. All ranks get the same
/// bits. The data type is ORINOCO_F32, ORINOCO_F16 or ORINOCO_BF16. The Rust function `all_reduce_int8` has the exact bound.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_all_reduce_int8(
    group: *const OrinocoGroup,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    data_type: u32,
    work: *mut *mut OrinocoWork,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointer is what its type says.
        let group = unsafe { at(group, "the group") }?;
        // SAFETY: the caller lends the vectors until the operation has ended.
        let from = unsafe { Vector::input(input, count) };
        // SAFETY: as above.
        let to = unsafe { Vector::output(output, count) };
        quantized!(data_type, T => {
            from.check::<T>("the input")?;
            to.check::<T>("the output")?;
            let sum = move |group: &mut AnyGroup| {
                if !from.is(to) {
                    // Read first, since the two may share memory.
                    let input = from.elements::<T>(to);
                    to.elements_mut().copy_from_slice(&input);
                }
                group.all_reduce_int8(to.elements_mut::<T>())
            };
            // SAFETY: the caller's pointer is what its type says.
            unsafe { run(group, work, sum) }
        })
    })
}

/// Concatenates the inputs of all ranks, of `count` elements each, in the output of each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_all_gather(
    group: *const OrinocoGroup,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    data_type: u32,
    work: *mut *mut OrinocoWork,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointer is what its type says.
        let group = unsafe { at(group, "the group") }?;
        let total = whole(group, count)?;
        // SAFETY: the caller lends the vectors until the operation has ended.
        let from = unsafe { Vector::input(input, count) };
        // SAFETY: as above.
        let to = unsafe { Vector::output(output, total) };
        typed!(data_type, T => {
            from.check::<T>("the input")?;
            to.check::<T>("the output")?;
            // SAFETY: the caller's pointer is what its type says.
            unsafe { run(group, work, move |group| group.all_gather(&from.elements::<T>(to), to.elements_mut())) }
        })
    })
}

/// Reduces the inputs of all ranks, which hold a block of `count` elements for each, and gives each rank its block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_reduce_scatter(
    group: *const OrinocoGroup,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    data_type: u32,
    reduction: u32,
    work: *mut *mut OrinocoWork,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointer is what its type says.
        let group = unsafe { at(group, "the group") }?;
        let op = reduce_op(reduction)?;
        let total = whole(group, count)?;
        // SAFETY: the caller lends the vectors until the operation has ended.
        let from = unsafe { Vector::input(input, total) };
        // SAFETY: as above.
        let to = unsafe { Vector::output(output, count) };
        typed!(data_type, T => {
            from.check::<T>("the input")?;
            to.check::<T>("the output")?;
            // SAFETY: the caller's pointer is what its type says.
            unsafe { run(group, work, move |group| group.reduce_scatter(op, &from.elements::<T>(to), to.elements_mut())) }
        })
    })
}

/// Sends block `i` of the input of `root`, of `count` elements, to rank `i`. The input of other ranks may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_scatter(
    group: *const OrinocoGroup,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    data_type: u32,
    root: usize,
    work: *mut *mut OrinocoWork,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointer is what its type says.
        let group = unsafe { at(group, "the group") }?;
        check_rank(group, root)?;
        let total = if group.rank() == root { whole(group, count)? } else { 0 };
        // SAFETY: the caller lends the vectors until the operation has ended.
        let from = unsafe { Vector::input(input, total) };
        // SAFETY: as above.
        let to = unsafe { Vector::output(output, count) };
        typed!(data_type, T => {
            from.check::<T>("the input")?;
            to.check::<T>("the output")?;
            // SAFETY: the caller's pointer is what its type says.
            unsafe { run(group, work, move |group| group.scatter(root, &from.elements::<T>(to), to.elements_mut())) }
        })
    })
}

/// Concatenates the inputs of all ranks, of `count` elements each, in the output of `root`. The output of other ranks may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_gather(
    group: *const OrinocoGroup,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    data_type: u32,
    root: usize,
    work: *mut *mut OrinocoWork,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointer is what its type says.
        let group = unsafe { at(group, "the group") }?;
        check_rank(group, root)?;
        let total = if group.rank() == root { whole(group, count)? } else { 0 };
        // SAFETY: the caller lends the vectors until the operation has ended.
        let from = unsafe { Vector::input(input, count) };
        // SAFETY: as above.
        let to = unsafe { Vector::output(output, total) };
        typed!(data_type, T => {
            from.check::<T>("the input")?;
            to.check::<T>("the output")?;
            // SAFETY: the caller's pointer is what its type says.
            unsafe { run(group, work, move |group| group.gather(root, &from.elements::<T>(to), to.elements_mut())) }
        })
    })
}

/// Sends each rank its block of the input, of `count` elements, and receives a block from each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_all_to_all(
    group: *const OrinocoGroup,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    data_type: u32,
    work: *mut *mut OrinocoWork,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointer is what its type says.
        let group = unsafe { at(group, "the group") }?;
        let total = whole(group, count)?;
        // SAFETY: the caller lends the vectors until the operation has ended.
        let from = unsafe { Vector::input(input, total) };
        // SAFETY: as above.
        let to = unsafe { Vector::output(output, total) };
        typed!(data_type, T => {
            from.check::<T>("the input")?;
            to.check::<T>("the output")?;
            // SAFETY: the caller's pointer is what its type says.
            unsafe { run(group, work, move |group| group.all_to_all(&from.elements::<T>(to), to.elements_mut())) }
        })
    })
}

/// Concatenates the inputs of all ranks in the output of each. `counts` has the elements of each rank's input.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_all_gather_v(
    group: *const OrinocoGroup,
    input: *const c_void,
    output: *mut c_void,
    counts: *const usize,
    data_type: u32,
    work: *mut *mut OrinocoWork,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointer is what its type says.
        let group = unsafe { at(group, "the group") }?;
        // SAFETY: the caller's list has a count for each rank.
        let counts = unsafe { count_list(counts, group.ranks()) }?;
        let (own, total) = (counts[group.rank()], sum(&counts)?);
        // SAFETY: the caller lends the vectors until the operation has ended.
        let from = unsafe { Vector::input(input, own) };
        // SAFETY: as above.
        let to = unsafe { Vector::output(output, total) };
        typed!(data_type, T => {
            from.check::<T>("the input")?;
            to.check::<T>("the output")?;
            // SAFETY: the caller's pointer is what its type says.
            unsafe { run(group, work, move |group| group.all_gather_v(&from.elements::<T>(to), &counts, to.elements_mut())) }
        })
    })
}

/// Reduces the inputs of all ranks, and gives each rank its block. `counts` has the elements of each block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_reduce_scatter_v(
    group: *const OrinocoGroup,
    input: *const c_void,
    output: *mut c_void,
    counts: *const usize,
    data_type: u32,
    reduction: u32,
    work: *mut *mut OrinocoWork,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointer is what its type says.
        let group = unsafe { at(group, "the group") }?;
        let op = reduce_op(reduction)?;
        // SAFETY: the caller's list has a count for each rank.
        let counts = unsafe { count_list(counts, group.ranks()) }?;
        let (own, total) = (counts[group.rank()], sum(&counts)?);
        // SAFETY: the caller lends the vectors until the operation has ended.
        let from = unsafe { Vector::input(input, total) };
        // SAFETY: as above.
        let to = unsafe { Vector::output(output, own) };
        typed!(data_type, T => {
            from.check::<T>("the input")?;
            to.check::<T>("the output")?;
            // SAFETY: the caller's pointer is what its type says.
            unsafe { run(group, work, move |group| group.reduce_scatter_v(op, &from.elements::<T>(to), &counts, to.elements_mut())) }
        })
    })
}

/// Sends block `i` of the input of `root` to rank `i`. `counts` has the elements of each block. The input of other ranks may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_scatter_v(
    group: *const OrinocoGroup,
    input: *const c_void,
    output: *mut c_void,
    counts: *const usize,
    data_type: u32,
    root: usize,
    work: *mut *mut OrinocoWork,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointer is what its type says.
        let group = unsafe { at(group, "the group") }?;
        check_rank(group, root)?;
        // SAFETY: the caller's list has a count for each rank.
        let counts = unsafe { count_list(counts, group.ranks()) }?;
        let (own, total) = (counts[group.rank()], sum(&counts)?);
        let total = if group.rank() == root { total } else { 0 };
        // SAFETY: the caller lends the vectors until the operation has ended.
        let from = unsafe { Vector::input(input, total) };
        // SAFETY: as above.
        let to = unsafe { Vector::output(output, own) };
        typed!(data_type, T => {
            from.check::<T>("the input")?;
            to.check::<T>("the output")?;
            // SAFETY: the caller's pointer is what its type says.
            unsafe { run(group, work, move |group| group.scatter_v(root, &from.elements::<T>(to), &counts, to.elements_mut())) }
        })
    })
}

/// Concatenates the inputs of all ranks in the output of `root`. `counts` has the elements of each rank's input. The output of other
/// ranks may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_gather_v(
    group: *const OrinocoGroup,
    input: *const c_void,
    output: *mut c_void,
    counts: *const usize,
    data_type: u32,
    root: usize,
    work: *mut *mut OrinocoWork,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointer is what its type says.
        let group = unsafe { at(group, "the group") }?;
        check_rank(group, root)?;
        // SAFETY: the caller's list has a count for each rank.
        let counts = unsafe { count_list(counts, group.ranks()) }?;
        let (own, total) = (counts[group.rank()], sum(&counts)?);
        let total = if group.rank() == root { total } else { 0 };
        // SAFETY: the caller lends the vectors until the operation has ended.
        let from = unsafe { Vector::input(input, own) };
        // SAFETY: as above.
        let to = unsafe { Vector::output(output, total) };
        typed!(data_type, T => {
            from.check::<T>("the input")?;
            to.check::<T>("the output")?;
            // SAFETY: the caller's pointer is what its type says.
            unsafe { run(group, work, move |group| group.gather_v(root, &from.elements::<T>(to), &counts, to.elements_mut())) }
        })
    })
}

/// Sends each rank its block of the input, and receives a block from each. `send` and `receive` are this rank's: the elements of the
/// block for each rank, and of the block from each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_all_to_all_v(
    group: *const OrinocoGroup,
    input: *const c_void,
    send: *const usize,
    output: *mut c_void,
    receive: *const usize,
    data_type: u32,
    work: *mut *mut OrinocoWork,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointer is what its type says.
        let group = unsafe { at(group, "the group") }?;
        // SAFETY: the caller's list has a count for each rank.
        let (send, receive) =
            unsafe { (count_list(send, group.ranks())?, count_list(receive, group.ranks())?) };
        let (sent, received) = (sum(&send)?, sum(&receive)?);
        // SAFETY: the caller lends the vectors until the operation has ended.
        let from = unsafe { Vector::input(input, sent) };
        // SAFETY: as above.
        let to = unsafe { Vector::output(output, received) };
        typed!(data_type, T => {
            from.check::<T>("the input")?;
            to.check::<T>("the output")?;
            // SAFETY: the caller's pointer is what its type says.
            unsafe { run(group, work, move |group| group.all_to_all_v(&from.elements::<T>(to), &send, to.elements_mut(), &receive)) }
        })
    })
}

/// Sends a vector of `count` elements to another rank, which calls `orinoco_recv` with as many. Two ranks make all the calls that
/// concern both in the same order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_send(
    group: *const OrinocoGroup,
    vector: *const c_void,
    count: usize,
    data_type: u32,
    to_rank: usize,
    work: *mut *mut OrinocoWork,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointer is what its type says.
        let group = unsafe { at(group, "the group") }?;
        check_other(group, to_rank)?;
        // SAFETY: the caller lends the vectors until the operation has ended.
        let from = unsafe { Vector::input(vector, count) };
        typed!(data_type, T => {
            from.check::<T>("the vector")?;
            // SAFETY: the caller's pointer is what its type says.
            unsafe { run(group, work, move |group| group.send(to_rank, &from.elements::<T>(Vector::nothing()))) }
        })
    })
}

/// Receives a vector that another rank sends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orinoco_recv(
    group: *const OrinocoGroup,
    vector: *mut c_void,
    count: usize,
    data_type: u32,
    from_rank: usize,
    work: *mut *mut OrinocoWork,
) -> OrinocoStatus {
    status(|| {
        // SAFETY: the caller's pointer is what its type says.
        let group = unsafe { at(group, "the group") }?;
        check_other(group, from_rank)?;
        // SAFETY: the caller lends the vectors until the operation has ended.
        let to = unsafe { Vector::output(vector, count) };
        typed!(data_type, T => {
            to.check::<T>("the vector")?;
            // SAFETY: the caller's pointer is what its type says.
            unsafe { run(group, work, move |group| group.recv(from_rank, to.elements_mut::<T>())) }
        })
    })
}

/// Runs an operation, or starts it in the background if there is a place for a handle.
///
/// # Safety
/// `work` is null or such a place.
unsafe fn run(
    group: &OrinocoGroup,
    work: *mut *mut OrinocoWork,
    operation: impl FnOnce(&mut AnyGroup) -> Result<(), CollectiveError> + Send + 'static,
) -> Result<(), Fault> {
    if work.is_null() {
        return group.run(operation);
    }
    // SAFETY: the caller's.
    unsafe { give(work, group.start(operation)?, "the place for the work") }
}

/// The function that describes a thing in a format.
fn formatter<T: ToString>(format: u32, json: fn(&T) -> String) -> Result<fn(&T) -> String, Fault> {
    match format {
        ORINOCO_TEXT => Ok(T::to_string),
        ORINOCO_JSON => Ok(json),
        other => Err(Fault::argument(format!("{other} is no format; expected ORINOCO_TEXT or ORINOCO_JSON"))),
    }
}

/// Gives the caller as much of a text as fits its buffer, and the length of the whole text.
///
/// # Safety
/// There must be as many bytes in the buffer as it says, which nobody else reads or changes, and `length` must be null or a place for a
/// number.
unsafe fn give_text(
    describe: impl FnOnce() -> Result<String, Fault>,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> Result<(), Fault> {
    if length.is_null() {
        return Err(Fault::argument("the place for the length is NULL"));
    }
    let text = describe()?;
    // SAFETY: the caller's.
    unsafe { write_text(&text, buffer, capacity) }?;
    // SAFETY: the caller's, and not null.
    unsafe { length.write(text.len()) };
    Ok(())
}

fn no_data_type(number: u32) -> Fault {
    Fault::argument(format!("{number} is no data type; see ORINOCO_F32 and those after it"))
}

fn reduce_op(number: u32) -> Result<ReduceOp, Fault> {
    let op = ReduceOp::ALL.get(number as usize).copied();
    op.ok_or_else(|| Fault::argument(format!("{number} is not a reduction; use ORINOCO_SUM, ORINOCO_PRODUCT, ORINOCO_MIN or another one of orinoco_collective.h")))
}

fn check_rank(group: &OrinocoGroup, rank: usize) -> Result<(), Fault> {
    let ranks = group.ranks();
    (rank < ranks)
        .then_some(())
        .ok_or_else(|| Fault::argument(format!("there is no rank {rank} among {ranks}")))
}

fn check_other(group: &OrinocoGroup, rank: usize) -> Result<(), Fault> {
    check_rank(group, rank)?;
    let is_other = rank != group.rank();
    is_other
        .then_some(())
        .ok_or_else(|| Fault::argument(format!("rank {rank} is this rank; a rank has no link to itself")))
}

/// Elements of a block for each rank.
fn whole(group: &OrinocoGroup, count: usize) -> Result<usize, Fault> {
    let total = count.checked_mul(group.ranks());
    total.ok_or_else(|| Fault::argument(format!("{count} elements for each rank do not fit memory")))
}

fn sum(counts: &[usize]) -> Result<usize, Fault> {
    let total = counts.iter().try_fold(0usize, |total, count| total.checked_add(*count));
    total.ok_or_else(|| Fault::argument("the counts do not fit memory"))
}

const _: () = {
    assert!(ORINOCO_F32 == DataType::F32 as u32);
    assert!(ORINOCO_F64 == DataType::F64 as u32);
    assert!(ORINOCO_F16 == DataType::F16 as u32);
    assert!(ORINOCO_BF16 == DataType::Bf16 as u32);
    assert!(ORINOCO_I8 == DataType::I8 as u32);
    assert!(ORINOCO_U8 == DataType::U8 as u32);
    assert!(ORINOCO_I32 == DataType::I32 as u32);
    assert!(ORINOCO_U32 == DataType::U32 as u32);
    assert!(ORINOCO_I64 == DataType::I64 as u32);
    assert!(ORINOCO_U64 == DataType::U64 as u32);
    assert!(ORINOCO_SUM == ReduceOp::Sum as u32);
    assert!(ORINOCO_PRODUCT == ReduceOp::Product as u32);
    assert!(ORINOCO_MIN == ReduceOp::Min as u32);
    assert!(ORINOCO_MAX == ReduceOp::Max as u32);
    assert!(ORINOCO_AVERAGE == ReduceOp::Average as u32);
};
