//! Checks every operation, data type and reduction on a transport, bit for bit against results that each rank computes alone
//! (`check`), or reduces without end, and shows which rank has failed (`hold`).
//!
//!     conformance MODE pcie WINDOW RANK RANKS KEYFILE
//!     conformance MODE rdma ADDRESS RANK RANKS KEYFILE
//!     conformance MODE shm FILE RANK RANKS
//!
//! Each rank is one process. WINDOW is a PCI device's memory that the ranks share, such as `/sys/bus/pci/devices/*/resource2`, or a
//! file. ADDRESS is that of rank 0. KEYFILE has the key of the group (`GroupKey::write`).

#![expect(clippy::print_stdout, reason = "an example prints its result")]

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use half::{bf16, f16};
use orinoco_collective::{
    AllocateError, CollectiveError, Communicator, Element, GroupKey, PcieGroup, PcieSettings, ReduceOp,
    Security, Settings, ShmGroup, VectorMemory, reduce,
};
use zerocopy::IntoBytes;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (&[mode, transport, place, rank, ranks], rest) = words.split_first_chunk().ok_or(USAGE)?;
    let (path, rank, ranks) = (Path::new(place), rank.parse()?, ranks.parse()?);
    let run = match mode {
        "check" => Mode::Check,
        "hold" => Mode::Hold,
        _ => return Err(USAGE.into()),
    };
    match (transport, rest) {
        ("pcie", [key]) => {
            let mut settings = PcieSettings::new(Security::GroupKey(GroupKey::read(Path::new(key))?));
            settings.messages.silence = run.silence();
            run.run(PcieGroup::join(path, rank, ranks, settings)?)
        }
        ("rdma", [key]) => {
            let key = GroupKey::read(Path::new(key))?;
            let mut settings = orinoco_collective::RdmaSettings::new(Security::GroupKey(key));
            settings.messages.silence = run.silence();
            let rendezvous = orinoco_collective::Rendezvous::Address(place.parse()?);
            run.run(orinoco_collective::RdmaGroup::join(&rendezvous, rank, ranks, settings)?)
        }
        ("shm", []) => {
            let settings = Settings { silence: run.silence(), ..Settings::default() };
            run.run(ShmGroup::join(path, rank, ranks, settings)?)
        }
        _ => Err(USAGE.into()),
    }
}

const USAGE: &str = "usage: conformance check|hold TRANSPORT PLACE RANK RANKS [KEYFILE]";

#[derive(Clone, Copy)]
enum Mode {
    Check,
    Hold,
}

impl Mode {
    /// Time without a sign of life after which a rank counts as dead. Results are checked on machines that are too busy for the usual
    /// one.
    fn silence(self) -> Duration {
        match self {
            Self::Check => Duration::from_secs(20),
            Self::Hold => Settings::default().silence,
        }
    }

    fn run(self, mut group: impl Communicator) -> Result<(), Box<dyn Error>> {
        match self {
            Self::Check => {
                let results = check(&mut group)?;
                println!("rank {} of {}: {results} results are exact", group.rank(), group.ranks());
            }
            Self::Hold => println!("{}", reduce_until_failure(&mut group)?),
        }
        Ok(())
    }
}

/// Elements of the vectors, and of the blocks of operations with blocks.
const LENS: [usize; 5] = [0, 1, 13, 1000, 4097];
/// Bytes from which a vector is in memory of the group.
const LONG_BYTES: usize = 32 << 10;
/// Elements of a vector that is longer than any buffer of a transport.
const LONG: usize = 200_003;

/// Checks everything. Returns the number of results.
fn check(group: &mut impl Communicator) -> Result<usize, Box<dyn Error>> {
    Ok(check_type::<f32>(group)?
        + check_type::<f64>(group)?
        + check_type::<f16>(group)?
        + check_type::<bf16>(group)?
        + check_type::<i8>(group)?
        + check_type::<u8>(group)?
        + check_type::<i32>(group)?
        + check_type::<u32>(group)?
        + check_type::<i64>(group)?
        + check_type::<u64>(group)?)
}

/// Reduces short and long vectors in turn, without end. Returns the error that ends it.
fn reduce_until_failure(group: &mut impl Communicator) -> Result<CollectiveError, Box<dyn Error>> {
    let mut vectors = [group.allocate::<f32>(1_000)?, group.allocate(30_000)?];
    group.all_reduce(ReduceOp::Sum, &mut vectors[0])?;
    println!("rank {} holds", group.rank());
    loop {
        for vector in &mut vectors {
            vector.fill(1.0);
            if let Err(error) = group.all_reduce(ReduceOp::Sum, vector) {
                return Ok(error);
            }
        }
    }
}

/// A data type with numbers whose sums depend on their order, if those of any do.
trait Value: Element {
    fn of(number: usize) -> Self;
}

macro_rules! value {
    ($($type:ty: |$number:ident| $value:expr;)*) => {$(
        impl Value for $type {
            fn of($number: usize) -> Self {
                $value
            }
        }
    )*};
}

value! {
    f32: |number| number as f32 * 0.1 + 1e-4;
    f64: |number| number as f64 * 0.1 + 1e-4;
    f16: |number| f16::from_f32(number as f32 * 0.01);
    bf16: |number| bf16::from_f32(number as f32 * 0.1);
    i8: |number| number as i8;
    u8: |number| number as u8;
    i32: |number| (number as i32).wrapping_mul(-40_503);
    u32: |number| (number as u32).wrapping_mul(2_654_435_761);
    i64: |number| (number as i64).wrapping_mul(-2_654_435_761_000);
    u64: |number| (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
}

/// A rank's vector.
fn vector<T: Value>(rank: usize, len: usize) -> Vec<T> {
    (0..len).map(|at| T::of((rank * 31 + at * 7) % 1013)).collect()
}

/// Vectors of all ranks, one after another. That of rank `i` has `lens[i]` elements.
fn vectors<T: Value>(lens: &[usize]) -> Vec<T> {
    let mut all = Vec::with_capacity(lens.iter().sum());
    for (rank, len) in lens.iter().enumerate() {
        all.extend(vector::<T>(rank, *len));
    }
    all
}

/// Elements that a rank receives in an all-to-all in which rank `from` sends `len(from, to)` elements to rank `to`.
fn exchanged<T: Value>(rank: usize, ranks: usize, len: &dyn Fn(usize, usize) -> usize) -> Vec<T> {
    let mut blocks = Vec::new();
    for from in 0..ranks {
        let end = |last: usize| (0..=last).map(|to| len(from, to)).sum::<usize>();
        let vector = vector::<T>(from, end(ranks - 1));
        blocks.extend_from_slice(&vector[end(rank) - len(from, rank)..end(rank)]);
    }
    blocks
}

/// A vector in memory of the group, if it may be a message that the transport treats as long; else in ordinary memory.
fn memory<T: Value>(group: &mut impl Communicator, vector: Vec<T>) -> Result<VectorMemory<T>, AllocateError> {
    if size_of_val(&*vector) < LONG_BYTES {
        return Ok(vector.into());
    }
    let mut memory = group.allocate(vector.len())?;
    memory.copy_from_slice(&vector);
    Ok(memory)
}

/// Result of a reduction of all ranks' vectors.
fn reduced<T: Value>(op: ReduceOp, ranks: usize, len: usize) -> Vec<T> {
    let vectors: Vec<Vec<T>> = (0..ranks).map(|rank| vector(rank, len)).collect();
    let operands: Vec<&[T]> = vectors.iter().map(Vec::as_slice).collect();
    let mut result = vec![T::default(); len];
    reduce(op, &mut result, &operands, u32::try_from(ranks).expect("few ranks"));
    result
}

/// Compares results, and counts them.
struct Checker {
    rank: usize,
    results: usize,
}

impl Checker {
    fn expect<T: Value>(&mut self, what: &str, found: &[T], expected: &[T]) -> Result<(), String> {
        if found.as_bytes() != expected.as_bytes() {
            let len = expected.len();
            return Err(format!("rank {}: {what} of {len} {} is wrong", self.rank, T::DATA_TYPE));
        }
        self.results += 1;
        Ok(())
    }
}

/// Checks every operation on a data type. Returns the number of results.
fn check_type<T: Value>(group: &mut impl Communicator) -> Result<usize, Box<dyn Error>> {
    let mut checker = Checker { rank: group.rank(), results: 0 };
    for len in LENS {
        check_copies::<T>(group, &mut checker, len)?;
        check_uneven::<T>(group, &mut checker, len)?;
        for op in ReduceOp::ALL {
            check_reductions::<T>(group, &mut checker, op, len)?;
        }
        group.barrier()?;
    }
    let mut long = vector::<T>(group.rank(), LONG);
    group.all_reduce(ReduceOp::Max, &mut long)?;
    checker.expect("all-reduce", &long, &reduced(ReduceOp::Max, group.ranks(), LONG))?;
    let mut long = memory(group, vector::<T>(group.rank(), LONG))?;
    group.all_reduce(ReduceOp::Max, &mut long)?;
    checker.expect(
        "all-reduce in memory of the group",
        &long,
        &reduced(ReduceOp::Max, group.ranks(), LONG),
    )?;
    check_messages::<T>(group, &mut checker)?;
    Ok(checker.results)
}

/// Operations that copy blocks.
fn check_copies<T: Value>(
    group: &mut impl Communicator,
    checker: &mut Checker,
    len: usize,
) -> Result<(), Box<dyn Error>> {
    let (rank, ranks) = (group.rank(), group.ranks());
    let (root, zero) = (len % ranks, T::default());
    let all = memory(group, vectors::<T>(&vec![len; ranks]))?;
    let own = memory(group, vector::<T>(rank, len))?;

    let mut copied = memory(group, own.to_vec())?;
    group.broadcast(root, &mut copied)?;
    checker.expect("broadcast", &copied, &vector(root, len))?;

    let mut gathered = memory(group, vec![zero; len * ranks])?;
    group.all_gather(&own, &mut gathered)?;
    checker.expect("all-gather", &gathered, &all)?;

    let mut gathered = memory(group, vec![zero; len * ranks])?;
    group.gather(root, &own, &mut gathered)?;
    let unchanged = vec![zero; len * ranks];
    checker.expect("gather", &gathered, if rank == root { &all } else { &unchanged })?;

    let mut block = memory(group, vec![zero; len])?;
    group.scatter(root, &all, &mut block)?;
    checker.expect("scatter", &block, &own)?;

    let mut received = memory(group, vec![zero; len * ranks])?;
    let blocks = memory(group, vector::<T>(rank, len * ranks))?;
    group.all_to_all(&blocks, &mut received)?;
    checker.expect("all-to-all", &received, &exchanged::<T>(rank, ranks, &|_, _| len))?;
    Ok(())
}

/// Operations with a count for each rank.
fn check_uneven<T: Value>(
    group: &mut impl Communicator,
    checker: &mut Checker,
    len: usize,
) -> Result<(), Box<dyn Error>> {
    let (rank, ranks) = (group.rank(), group.ranks());
    let (root, zero) = (len % ranks, T::default());
    let counts: Vec<usize> = (0..ranks).map(|rank| (rank + 2) % 3 * len).collect();
    let total = counts.iter().sum();
    let place = counts[..rank].iter().sum()..counts[..=rank].iter().sum::<usize>();
    let all = vectors::<T>(&counts);
    let own = memory(group, vector::<T>(rank, counts[rank]))?;

    let mut gathered = memory(group, vec![zero; total])?;
    group.all_gather_v(&own, &counts, &mut gathered)?;
    checker.expect("all-gather-v", &gathered, &all)?;

    let mut gathered = memory(group, vec![zero; total])?;
    group.gather_v(root, &own, &counts, &mut gathered)?;
    let unchanged = vec![zero; total];
    checker.expect("gather-v", &gathered, if rank == root { &all } else { &unchanged })?;

    let mut block = memory(group, vec![zero; counts[rank]])?;
    group.scatter_v(root, &all, &counts, &mut block)?;
    checker.expect("scatter-v", &block, &own)?;

    let mut block = memory(group, vec![zero; counts[rank]])?;
    group.reduce_scatter_v(ReduceOp::Sum, &vector::<T>(rank, total), &counts, &mut block)?;
    checker.expect("reduce-scatter-v", &block, &reduced::<T>(ReduceOp::Sum, ranks, total)[place])?;

    let between = |from: usize, to: usize| (from + 2 * to + 1) % 3 * len;
    let to_all: Vec<usize> = (0..ranks).map(|to| between(rank, to)).collect();
    let from_all: Vec<usize> = (0..ranks).map(|from| between(from, rank)).collect();
    let mut received = memory(group, vec![zero; from_all.iter().sum()])?;
    let own = vector::<T>(rank, to_all.iter().sum());
    group.all_to_all_v(&own, &to_all, &mut received, &from_all)?;
    checker.expect("all-to-all-v", &received, &exchanged::<T>(rank, ranks, &between))?;
    Ok(())
}

/// Operations that reduce.
fn check_reductions<T: Value>(
    group: &mut impl Communicator,
    checker: &mut Checker,
    op: ReduceOp,
    len: usize,
) -> Result<(), Box<dyn Error>> {
    let (rank, ranks) = (group.rank(), group.ranks());
    let (root, zero) = (len % ranks, T::default());
    let (expected, unchanged) = (reduced::<T>(op, ranks, len), vec![zero; len]);

    let mut output = memory(group, vector::<T>(rank, len))?;
    group.all_reduce(op, &mut output)?;
    checker.expect("all-reduce", &output, &expected)?;

    let mut output = memory(group, vec![zero; len])?;
    group.all_reduce_into(op, &vector::<T>(rank, len), &mut output)?;
    checker.expect("all-reduce into another vector", &output, &expected)?;

    let mut output = memory(group, vec![zero; len])?;
    group.reduce(op, root, &vector::<T>(rank, len), &mut output)?;
    checker.expect("reduce", &output, if rank == root { &expected } else { &unchanged })?;

    let mut block = memory(group, vec![zero; len])?;
    group.reduce_scatter(op, &vector::<T>(rank, len * ranks), &mut block)?;
    let whole = reduced::<T>(op, ranks, len * ranks);
    checker.expect("reduce-scatter", &block, &whole[rank * len..(rank + 1) * len])?;

    let lens = [len, 3, 0];
    let mut vectors = lens.map(|len| vector::<T>(rank, len));
    let mut slices: Vec<&mut [T]> = vectors.iter_mut().map(Vec::as_mut_slice).collect();
    group.all_reduce_many(op, &mut slices)?;
    for (vector, len) in vectors.iter().zip(lens) {
        checker.expect("all-reduce of several vectors", vector, &reduced(op, ranks, len))?;
    }
    Ok(())
}

/// Messages around the ring of ranks.
fn check_messages<T: Value>(
    group: &mut impl Communicator,
    checker: &mut Checker,
) -> Result<(), Box<dyn Error>> {
    let (rank, ranks) = (group.rank(), group.ranks());
    if ranks == 1 {
        return Ok(());
    }
    let (next, previous) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    for len in [0, 1, 4097, LONG] {
        let mut received = vec![T::default(); len];
        // Long messages are taken from their sender only when they are received.
        if rank == 0 {
            group.send(next, &vector::<T>(rank, len))?;
        }
        group.recv(previous, &mut received)?;
        if rank != 0 {
            group.send(next, &vector::<T>(rank, len))?;
        }
        checker.expect("a message", &received, &vector(previous, len))?;
    }
    Ok(())
}
