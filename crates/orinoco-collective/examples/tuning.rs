//! Compares the tuner with measurements, over TCP among processes of this machine: for every operation and size, the time of each
//! algorithm and the time that was predicted from messages, copies and reductions alone.
//!
//!     cargo run --release -p orinoco-collective --example tuning [RANKS] [SECONDS_PER_SIZE] [verbose]
//!
//! Each call is timed after a barrier, which each rank in turn reaches last, and the slowest rank counts: a figure is the mean, over the last
//! ranks, of the median. Algorithms take turns, so that noise hits all of them, and links are measured again before each size.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use orinoco_collective::cost::LATENESS;
use orinoco_collective::{
    Algorithm, Collective, CollectiveError, Communicator, DataType, MessageSettings, ReduceOp, Rendezvous,
    Schedule, Security, TcpGroup, TcpSettings, Topology, schedule,
};

const RANK: &str = "ORINOCO_EXAMPLE_RANK";
const OPERATIONS: [&str; 9] = [
    "barrier",
    "broadcast",
    "reduce",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "scatter",
    "gather",
    "all_to_all",
];
const BYTES_MAX: usize = 4 << 20;
/// Turns of each algorithm at each size, at least and at most, and those before them that do not count.
const TURNS: (usize, usize) = (7, 200);
const WARM_UP: usize = 2;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let ranks: usize = arguments.next().map_or(Ok(2), |ranks| ranks.parse())?;
    let seconds: f64 = arguments.next().map_or(Ok(0.2), |seconds| seconds.parse())?;
    let verbose = arguments.next().is_some_and(|word| word == "verbose");
    if let Some(rank) = std::env::var_os(RANK) {
        let path = PathBuf::from(std::env::var_os("ORINOCO_EXAMPLE_PATH").ok_or("the path is missing")?);
        return compare(&path, rank.to_string_lossy().parse()?, ranks, seconds, verbose);
    }
    let path = PathBuf::from(format!("/dev/shm/orinoco-tuning-{}", std::process::id()));
    let start = |rank: usize| {
        let mut process = Command::new(std::env::current_exe()?);
        process.args(std::env::args().skip(1)).env(RANK, rank.to_string()).env("ORINOCO_EXAMPLE_PATH", &path);
        process.spawn()
    };
    let others = (1..ranks).map(start).collect::<Result<Vec<_>, _>>()?;
    compare(&path, 0, ranks, seconds, verbose)?;
    for mut other in others {
        other.wait()?;
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example prints its result")]
#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn compare(
    path: &Path,
    rank: usize,
    ranks: usize,
    seconds: f64,
    verbose: bool,
) -> Result<(), Box<dyn Error>> {
    let join = |name: &str, algorithm| {
        let path = PathBuf::from(format!("{}-{name}", path.display()));
        // On a busy machine none counts as dead soon.
        let silence = Duration::from_secs(10);
        let messages = MessageSettings { algorithm, silence, ..MessageSettings::default() };
        let settings = TcpSettings { security: Security::Plaintext, messages };
        TcpGroup::join(&Rendezvous::File(path), rank, ranks, settings)
    };
    let mut tuned = join("tuned", None)?;
    pin(rank, ranks);
    tuned.barrier()?;
    let start = Instant::now();
    tuned.tune(None)?;
    if rank == 0 {
        println!("tuned in {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
        if verbose {
            print!("{}", tuned.figures().ok_or("no figures")?);
        }
    }
    let mut groups = BTreeMap::new();
    for algorithm in Algorithm::ALL {
        groups.insert(algorithm, join(algorithm.name(), Some(algorithm))?);
    }
    let (mut errors, mut good, mut points, mut worst) = (Vec::new(), 0, 0, 1.0f64);
    for operation in OPERATIONS {
        let (mut errors_here, mut good_here, mut points_here) = (Vec::new(), 0, 0);
        for bytes in
            std::iter::successors(Some(8), |bytes| Some(bytes * 4)).take_while(|bytes| *bytes <= BYTES_MAX)
        {
            if operation == "barrier" && bytes > 8 {
                continue;
            }
            let collective = collective(operation, ranks, bytes / 4);
            // The speed of a shared machine changes within seconds: what is predicted and what is measured must be close together.
            tuned.tune(None)?;
            let explanation = tuned.explain(&collective, DataType::F32).ok_or("not tuned")?;
            let candidates = candidates(&collective, ranks);
            let distinct: Vec<Algorithm> =
                candidates.iter().filter(|(one, same)| one == same).map(|(one, _)| *one).collect();
            let measured = measure(&mut tuned, &mut groups, &distinct, &collective, seconds)?;
            if rank > 0 {
                continue;
            }
            let best = measured.values().copied().fold(f64::INFINITY, f64::min);
            let time_of = |algorithm| measured[&candidates[&algorithm]];
            let ratio = time_of(explanation.chosen) / best;
            (good_here, points_here) = (good_here + usize::from(ratio <= 1.1), points_here + 1);
            worst = worst.max(ratio);
            for candidate in explanation.candidates.iter().filter(|of| measured.contains_key(&of.algorithm)) {
                let time = time_of(candidate.algorithm);
                let predicted = candidate.predicted_after_barrier.as_secs_f64();
                let at_once = candidate.predicted.as_secs_f64();
                errors_here.push((predicted - time).abs() / time);
                if verbose {
                    let is_chosen = candidate.algorithm == candidates[&explanation.chosen];
                    let mark = if is_chosen { '*' } else { ' ' };
                    println!(
                        "{mark} {operation:<14} {bytes:>8} {:<18} {:>9.1} us, predicted {:>9.1} us, {:>+5.0} %, from a common start {:>9.1} us",
                        candidate.algorithm.name(),
                        time * 1e6,
                        predicted * 1e6,
                        (predicted / time - 1.0) * 100.0,
                        at_once * 1e6,
                    );
                }
            }
        }
        if rank == 0 {
            println!(
                "{operation:<14} median error {:>3.0} %, choice within 1.10 of the best at {good_here} of {points_here} points",
                median(&mut errors_here) * 100.0
            );
            errors.extend(errors_here);
            (good, points) = (good + good_here, points + points_here);
        }
    }
    if rank == 0 {
        println!(
            "{ranks} ranks: median error {:.0} %, choice within 1.10 of the best at {good} of {points} points, at worst {worst:.2}",
            median(&mut errors) * 100.0
        );
        if let Some(drift) = tuned.recheck()? {
            println!("since then: {drift}, {:.2} times", drift.factor());
        }
    } else {
        tuned.recheck()?;
    }
    Ok(())
}

/// Algorithms that carry out an operation reproducibly, each with the first one that has the same schedules: with few ranks some are
/// the same, and comparing them would compare noise.
fn candidates(collective: &Collective, ranks: usize) -> BTreeMap<Algorithm, Algorithm> {
    let topology = Topology::flat(ranks);
    let schedules = |algorithm| -> Option<Vec<Schedule>> {
        (0..ranks).map(|rank| schedule(collective, algorithm, &topology, rank).ok()).collect()
    };
    let mut known: Vec<(Algorithm, Vec<Schedule>)> = Vec::new();
    let mut candidates = BTreeMap::new();
    for algorithm in Algorithm::ALL.into_iter().filter(|of| !collective.reduces() || of.is_reproducible()) {
        let Some(own) = schedules(algorithm) else { continue };
        let same = known.iter().find(|(_, schedules)| *schedules == own).map(|(same, _)| *same);
        candidates.insert(algorithm, same.unwrap_or(algorithm));
        if same.is_none() {
            known.push((algorithm, own));
        }
    }
    candidates
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn collective(operation: &str, ranks: usize, elements: usize) -> Collective {
    let counts = || vec![elements.div_ceil(ranks); ranks];
    match operation {
        "barrier" => Collective::Barrier,
        "broadcast" => Collective::Broadcast { root: 0, count: elements },
        "reduce" => Collective::Reduce { root: 0, count: elements },
        "all_reduce" => Collective::AllReduce { count: elements },
        "all_gather" => Collective::AllGather { counts: counts() },
        "reduce_scatter" => Collective::ReduceScatter { counts: counts() },
        "scatter" => Collective::Scatter { root: 0, counts: counts() },
        "gather" => Collective::Gather { root: 0, counts: counts() },
        _ => Collective::all_to_all(ranks, elements.div_ceil(ranks)),
    }
}

/// Median times of some algorithms, of the slowest rank.
#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn measure(
    tuned: &mut TcpGroup,
    groups: &mut BTreeMap<Algorithm, TcpGroup>,
    algorithms: &[Algorithm],
    collective: &Collective,
    seconds: f64,
) -> Result<BTreeMap<Algorithm, f64>, Box<dyn Error>> {
    let rank = tuned.rank();
    let input = vec![1.0f32; collective.input_len(rank)];
    let mut output = vec![0.0f32; collective.output_len(rank)];
    if let Collective::Broadcast { .. } = collective {
        output.fill(1.0);
    }
    let barrier = tuned.explain(&Collective::Barrier, DataType::F32).and_then(|barrier| barrier.predicted());
    let lateness = barrier.ok_or("a barrier has no price")?.mul_f64(LATENESS);
    let mut times: BTreeMap<(Algorithm, usize), Vec<f64>> = BTreeMap::new();
    let start = Instant::now();
    let mut turns = 0;
    loop {
        // Whichever comes first finds colder caches, so they take turns in that, too.
        for place in 0..algorithms.len() {
            let algorithm = &algorithms[(place + turns) % algorithms.len()];
            let group = groups.get_mut(algorithm).ok_or("a group for each algorithm")?;
            for last in 0..tuned.ranks() {
                if last == rank {
                    let start = Instant::now();
                    while start.elapsed() < lateness {}
                }
                tuned.barrier()?;
                let start = Instant::now();
                call(group, collective, &input, &mut output)?;
                let time = start.elapsed().as_secs_f64();
                if turns >= WARM_UP {
                    times.entry((*algorithm, last)).or_default().push(time);
                }
            }
        }
        turns += 1;
        let is_last = turns >= WARM_UP + TURNS.0
            && (turns >= WARM_UP + TURNS.1 || start.elapsed() > Duration::from_secs_f64(seconds));
        // Rank 0 decides.
        let mut decision = [u8::from(is_last)];
        tuned.broadcast(0, &mut decision)?;
        if decision[0] == 1 {
            break;
        }
    }
    let mut medians = BTreeMap::new();
    for ((algorithm, _), mut times) in times {
        tuned.all_reduce(ReduceOp::Max, &mut times)?;
        *medians.entry(algorithm).or_default() += median(&mut times) / tuned.ranks() as f64;
    }
    Ok(medians)
}

fn call(
    group: &mut TcpGroup,
    collective: &Collective,
    input: &[f32],
    output: &mut [f32],
) -> Result<(), CollectiveError> {
    match collective {
        Collective::Barrier => group.barrier(),
        Collective::Broadcast { root, .. } => group.broadcast(*root, output),
        Collective::Reduce { root, .. } => group.reduce(ReduceOp::Sum, *root, input, output),
        Collective::AllReduce { .. } => group.all_reduce_into(ReduceOp::Sum, input, output),
        Collective::AllGather { .. } => group.all_gather(input, output),
        Collective::ReduceScatter { .. } => group.reduce_scatter(ReduceOp::Sum, input, output),
        Collective::Scatter { root, .. } => group.scatter(*root, input, output),
        Collective::Gather { root, .. } => group.gather(*root, input, output),
        _ => group.all_to_all(input, output),
    }
}

/// Gives each rank a core, where there are enough.
fn pin(rank: usize, ranks: usize) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if ranks <= cores {
        let mut set = rustix::thread::CpuSet::new();
        // Neighbours often share a core's units.
        set.set(rank * (cores / ranks));
        // Without it the figures are noisier, no more.
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}
