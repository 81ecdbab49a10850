//! Two ranks on two machines with RDMA devices: counts their requests to the devices, and measures throughput. The example `conformance` checks results.
//!
//!     rdma ADDRESS KEY_FILE RANK count|long|stream [RUNS]
//!
//! `ADDRESS` is the IP address and port of rank 0, `KEY_FILE` a group key (`orinoco-group-key` and 64 hexadecimal digits, mode 0600), the same on both.
//!
//! | Mode | What |
//! |---|---|
//! | count | what a thousand all-reduces of 8 bytes to 160 kB need, after as many to warm up |
//! | long | what twenty all-reduces of 1 MiB need |
//! | stream | time of messages of 1 MiB from rank 0 to rank 1 |

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use orinoco_collective::{
    CollectiveError, Communicator, GroupKey, RdmaGroup, RdmaSettings, ReduceOp, Rendezvous, Security,
    VectorMemory,
};

const RANKS: usize = 2;
/// Bytes of a message of the stream.
const MESSAGE: usize = 1 << 20;
/// Messages of one run of the stream.
const MESSAGES: usize = 32;
/// All-reduces of as many bytes as a message that are counted.
const LONG_CALLS: usize = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, key, rank, mode, rest @ ..] = arguments.as_slice() else {
        return Err("usage: rdma ADDRESS KEY_FILE RANK count|long|stream [RUNS]".into());
    };
    let rank: usize = rank.parse()?;
    let security = Security::GroupKey(GroupKey::read(Path::new(key))?);
    let mut settings = RdmaSettings::new(security);
    // It counts and measures, also on machines that are slow and busy.
    settings.messages.silence = Duration::from_secs(10);
    let mut group = RdmaGroup::join(&Rendezvous::Address(address.parse()?), rank, RANKS, settings)?;
    say(&format!("link: {}", group.transport().link()));
    match mode.as_str() {
        "count" => count(&mut group)?,
        "long" => long(&mut group)?,
        "stream" => stream(&mut group, rest.first().map_or(Ok(5), |runs| runs.parse())?)?,
        _ => return Err(format!("there is no mode `{mode}`").into()),
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example prints its result")]
fn say(line: &str) {
    println!("{line}");
}

/// Counts of a thousand all-reduces of four sizes, after as many for which buffers grow.
fn count(group: &mut RdmaGroup) -> Result<(), Box<dyn Error>> {
    let mut vectors: Vec<VectorMemory<f32>> =
        [2, 500, 5_000, 40_000].into_iter().map(|len| group.allocate(len)).collect::<Result<_, _>>()?;
    count_calls(group, "counted", |group| {
        (0..1_000).try_for_each(|number| group.all_reduce(ReduceOp::Sum, &mut vectors[number % 4]))
    })
}

/// Counts of twenty all-reduces of 1 MiB, after as many for which buffers grow.
fn long(group: &mut RdmaGroup) -> Result<(), Box<dyn Error>> {
    let mut vector = group.allocate::<f32>(MESSAGE / size_of::<f32>())?;
    count_calls(group, "long", |group| {
        (0..LONG_CALLS).try_for_each(|_| group.all_reduce(ReduceOp::Sum, &mut vector))
    })
}

/// Makes calls twice, and shows what the second time needed.
fn count_calls(
    group: &mut RdmaGroup,
    name: &str,
    mut calls: impl FnMut(&mut RdmaGroup) -> Result<(), CollectiveError>,
) -> Result<(), Box<dyn Error>> {
    calls(group)?;
    let before = group.transport().counters();
    calls(group)?;
    let after = group.transport().counters();
    say(&format!(
        "{name}: registrations {} requests {} writes {} direct {} copied_bytes {} doorbells {} completions {} arrivals {}",
        after.registrations - before.registrations,
        after.requests - before.requests,
        after.writes - before.writes,
        after.direct_writes - before.direct_writes,
        after.copied_bytes - before.copied_bytes,
        after.doorbells - before.doorbells,
        after.completions - before.completions,
        after.arrivals - before.arrivals,
    ));
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn stream(group: &mut RdmaGroup, runs: usize) -> Result<(), Box<dyn Error>> {
    let mut message = group.allocate::<u8>(MESSAGE)?;
    message.fill(7);
    for _ in 0..runs {
        group.barrier()?;
        let start = Instant::now();
        for _ in 0..MESSAGES {
            match group.rank() {
                0 => group.send(1, &message)?,
                _ => group.recv(0, &mut message)?,
            }
        }
        group.barrier()?;
        let seconds = start.elapsed().as_secs_f64();
        say(&format!(
            "stream: {:.2} MiB/s",
            MESSAGES as f64 * (MESSAGE as f64 / f64::from(1 << 20)) / seconds
        ));
    }
    Ok(())
}
