//! Sums vectors among processes of this machine, and shows how long that takes for each size.
//!
//!     cargo run --release -p orinoco-collective --example all_reduce [RANKS]
//!
//! Each call is timed after a barrier, and the slowest rank counts.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use orinoco_collective::{Communicator, ReduceOp, Settings, ShmGroup};

const RANK: &str = "ORINOCO_EXAMPLE_RANK";

fn main() -> Result<(), Box<dyn Error>> {
    let ranks = std::env::args().nth(1).map_or(Ok(2), |ranks| ranks.parse())?;
    if let Some(rank) = std::env::var_os(RANK) {
        let path = PathBuf::from(std::env::args_os().nth(2).ok_or("the group's file is missing")?);
        return sum(&path, rank.to_string_lossy().parse()?, ranks);
    }
    let path = PathBuf::from(format!("/dev/shm/orinoco-all-reduce-{}", std::process::id()));
    let start = |rank: usize| {
        let mut process = Command::new(std::env::current_exe()?);
        process.arg(ranks.to_string()).arg(&path).env(RANK, rank.to_string()).spawn()
    };
    let others = (1..ranks).map(start).collect::<Result<Vec<_>, _>>()?;
    sum(&path, 0, ranks)?;
    for mut other in others {
        other.wait()?;
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example prints its result")]
#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn sum(path: &Path, rank: usize, ranks: usize) -> Result<(), Box<dyn Error>> {
    let mut group = ShmGroup::join(path, rank, ranks, Settings::default())?;
    pin(rank, ranks);
    if rank == 0 {
        println!("{:>10} {:>10} {:>10}", "bytes", "p50 us", "p99 us");
    }
    let mut bytes = 8;
    while bytes <= 64 << 20 {
        let runs = match bytes {
            0..4097 => 20_000,
            4097..65_537 => 4_000,
            65_537..1_048_577 => 500,
            _ => 30,
        };
        let mut vector = vec![0.0f32; bytes / 4];
        let mut times = Vec::new();
        for run in 0..runs + runs / 5 + 2 {
            vector.fill(1.0);
            group.barrier()?;
            let start = Instant::now();
            group.all_reduce(ReduceOp::Sum, &mut vector)?;
            let time = start.elapsed().as_secs_f64() * 1e6;
            if run >= runs / 5 + 2 {
                times.push(time);
            }
        }
        assert!(vector.iter().all(|value| *value == ranks as f32), "the sum is right");
        group.all_reduce(ReduceOp::Max, &mut times)?;
        times.sort_by(f64::total_cmp);
        if rank == 0 {
            println!("{bytes:>10} {:>10.2} {:>10.2}", times[runs / 2], times[runs * 99 / 100]);
        }
        bytes *= if bytes < 64 {
            8
        } else if bytes < 1024 {
            16
        } else {
            4
        };
    }
    Ok(())
}

/// Gives each rank a core, where there are enough.
fn pin(rank: usize, ranks: usize) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if ranks <= cores {
        let mut set = rustix::thread::CpuSet::new();
        set.set(rank);
        // Without it the figures are noisier, no more.
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}
