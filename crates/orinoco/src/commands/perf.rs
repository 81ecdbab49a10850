//! `orinoco perf`: times of collective operations, by size.

mod limits;
mod measure;
mod operation;

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use orinoco_api::{PERF_SCHEMA, PerfReport, PerfRow};
use orinoco_collective::{
    CollectiveError, Communicator, DataType, FlightRecord, GroupKey, JoinError, KeyError, Limits, ReduceOp,
    Rendezvous, Security, Settings, ShmGroup, TcpGroup, TcpSettings,
};
use orinoco_config::Faults;
use orinoco_core::{Diagnosis, Exit, codes};

use crate::args::PerfArgs;
use crate::output;
use measure::{Explains, measure};
use operation::Operation;

pub(crate) fn run(args: &PerfArgs, json: bool) -> Result<Exit, Faults> {
    if args.explain && transport(args) == "shm" {
        let (cause, next) =
            ("over shared memory there is one algorithm for each operation", "add `--transport tcp`");
        return Err(Diagnosis::new(&codes::KEY_RANGE, "--explain", cause, next).into());
    }
    if let (Some(rank), Some(group)) = (args.spawned_rank, &args.group) {
        run_rank(args, Rendezvous::File(group.clone()), rank)?;
        return Ok(Exit::Done);
    }
    if let (Some(rank), Some(address)) = (args.rank, args.address) {
        let report = run_rank(args, Rendezvous::Address(address), rank)?;
        return Ok(if rank == 0 { print(&report, json) } else { Exit::Done });
    }
    let group = PathBuf::from(format!("/dev/shm/orinoco-perf-{}", std::process::id()));
    let mut others = Others(Vec::new());
    for rank in 1..usize::from(args.ranks) {
        others.0.push(start_rank(&group, rank)?);
    }
    let report = run_rank(args, Rendezvous::File(group), 0)?;
    others.wait();
    Ok(print(&report, json))
}

/// Prints a report. Returns whether all results were right.
fn print(report: &PerfReport, json: bool) -> Exit {
    let wrong: u64 = report.rows.iter().filter_map(|row| row.wrong).sum();
    if json {
        output::print_json(report);
    } else {
        output::print(&text(report));
    }
    if wrong == 0 { Exit::Done } else { Exit::CheckFailed }
}

/// Processes of the other ranks. None outlives this value.
struct Others(Vec<Child>);

impl Others {
    /// Waits for their end. They have nothing left to do.
    fn wait(&mut self) {
        for mut other in self.0.drain(..) {
            // A rank that has failed has said so by itself.
            let _ = other.wait();
        }
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for other in &mut self.0 {
            let _ = other.kill();
        }
        self.wait();
    }
}

/// Starts another rank with the arguments of this process.
fn start_rank(group: &Path, rank: usize) -> Result<Child, Diagnosis> {
    let fault = |why: std::io::Error| {
        Diagnosis::new(&codes::GROUP_JOIN, format!("rank {rank}"), why.to_string(), "allow more processes")
    };
    let mut command = Command::new(std::env::current_exe().map_err(fault)?);
    command.args(std::env::args_os().skip(1));
    command.args(["--spawned-rank", &rank.to_string(), "--group"]).arg(group);
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().map_err(fault)
}

/// Measures as one rank.
fn run_rank(args: &PerfArgs, rendezvous: Rendezvous, rank: usize) -> Result<PerfReport, Diagnosis> {
    let ranks = usize::from(args.ranks);
    let not_joined = |why: JoinError| {
        let source = why.source().map(|source| format!(": {source}")).unwrap_or_default();
        let (cause, next) = (format!("{why}{source}"), "see `orinoco explain E1001`");
        Diagnosis::new(&codes::GROUP_JOIN, format!("rank {rank}"), cause, next)
    };
    let failed = |why: CollectiveError| {
        let next = "see `orinoco explain E1002`";
        Diagnosis::new(&codes::COLLECTIVE_FAILED, format!("rank {rank}"), why.to_string(), next)
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let join =
        |security| TcpGroup::join(&rendezvous, rank, ranks, TcpSettings::new(security)).map_err(not_joined);
    let measured = match (&rendezvous, args.transport.as_str()) {
        (Rendezvous::File(path), "shm") => {
            let mut group = ShmGroup::join(path, rank, ranks, Settings::default()).map_err(not_joined)?;
            pin(rank, ranks);
            print_record_on_failure(measure_group(&mut group, ShmGroup::measure_limits, args), || {
                group.recent()
            })
        }
        (_, transport) => {
            let mut group = join(match (args.address, transport) {
                (Some(_), _) => Security::GroupKey(group_key(args)?),
                (None, "tcp-plaintext") => Security::Plaintext,
                (None, _) => Security::FileKey,
            })?;
            if args.address.is_none() {
                pin(rank, ranks);
            }
            if args.explain {
                // Not earlier: cores are part of what it measures.
                group.tune(None).map_err(failed)?;
            }
            let ip = args.address.map_or(IpAddr::from(Ipv4Addr::LOCALHOST), |address| address.ip());
            let measured = measure_group(&mut group, |group| limits::of_tcp(group, ip), args);
            print_record_on_failure(measured, || group.recent())
        }
    };
    let (limits, rows) = measured.map_err(failed)?;
    Ok(PerfReport {
        schema: PERF_SCHEMA.to_owned(),
        operation: args.operation.clone(),
        data_type: args.datatype.clone(),
        redop: operation(args).reduces().then(|| args.redop.clone()),
        ranks,
        transport: transport(args).to_owned(),
        cores,
        iterations: args.iterations,
        exchange_us: limits.exchange.as_secs_f64() * 1e6,
        copy_bytes_per_s: limits.bytes_per_second,
        rows,
    })
}

/// The transport: between machines it is TCP.
fn transport(args: &PerfArgs) -> &str {
    if args.address.is_some() { "tcp" } else { &args.transport }
}

/// Reads the key that the ranks share.
fn group_key(args: &PerfArgs) -> Result<GroupKey, Diagnosis> {
    let path = args.key.as_deref().unwrap_or(Path::new(""));
    GroupKey::read(path).map_err(|why: KeyError| {
        let source = why.source().map(|source| format!(": {source}")).unwrap_or_default();
        let (cause, next) = (format!("{why}{source}"), "see `orinoco explain E1003`");
        Diagnosis::new(&codes::GROUP_KEY, "group key", cause, next)
    })
}

/// After a failure, prints the last operations of this rank, and for whom it waited.
fn print_record_on_failure<R>(
    measured: Result<R, CollectiveError>,
    record: impl FnOnce() -> FlightRecord,
) -> Result<R, CollectiveError> {
    measured.inspect_err(|_| output::note(record().to_string().trim_end()))
}

/// Measures the transport's limits, and then the operation.
fn measure_group<G: Communicator + Explains>(
    group: &mut G,
    limits: impl FnOnce(&mut G) -> Result<Limits, CollectiveError>,
    args: &PerfArgs,
) -> Result<(Limits, Vec<PerfRow>), CollectiveError> {
    let limits = limits(group)?;
    let data_type = DataType::ALL.into_iter().find(|data_type| data_type.name() == args.datatype);
    let redop = ReduceOp::ALL.into_iter().find(|op| op.name() == args.redop).expect("clap knows the names");
    let operation = operation(args);
    let rows = match data_type.expect("clap knows the names") {
        DataType::F32 => measure::<f32>(group, &limits, operation, redop, args),
        DataType::F64 => measure::<f64>(group, &limits, operation, redop, args),
        DataType::F16 => measure::<half::f16>(group, &limits, operation, redop, args),
        DataType::Bf16 => measure::<half::bf16>(group, &limits, operation, redop, args),
        DataType::I8 => measure::<i8>(group, &limits, operation, redop, args),
        DataType::U8 => measure::<u8>(group, &limits, operation, redop, args),
        DataType::I32 => measure::<i32>(group, &limits, operation, redop, args),
        DataType::U32 => measure::<u32>(group, &limits, operation, redop, args),
        DataType::I64 => measure::<i64>(group, &limits, operation, redop, args),
        DataType::U64 => measure::<u64>(group, &limits, operation, redop, args),
    }?;
    Ok((limits, rows))
}

fn operation(args: &PerfArgs) -> Operation {
    Operation::from_name(&args.operation).expect("clap knows the names")
}

/// Gives each rank a core, where there are enough. Without it the figures are noisier, no more.
fn pin(rank: usize, ranks: usize) {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return };
    let allowed: Vec<usize> =
        (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    if ranks <= allowed.len() {
        let mut own = rustix::thread::CpuSet::new();
        own.set(allowed[rank]);
        let _ = rustix::thread::sched_setaffinity(None, &own);
    }
}

fn text(report: &PerfReport) -> String {
    let (exchange, transfer) = match report.transport.as_str() {
        "tcp" | "tcp-plaintext" => ("8-byte exchange", "transfer"),
        _ => ("flag exchange", "copy"),
    };
    let heading = format!(
        "{} over {}, {} on {}; limits: {} {:.2} us, {} {:.1} GB/s per rank",
        report.operation,
        report.transport,
        output::count(report.ranks as u64, "rank"),
        output::count(report.cores as u64, "core"),
        exchange,
        report.exchange_us,
        transfer,
        report.copy_bytes_per_s / 1e9,
    );
    let mut headings = vec![
        "TYPE",
        "REDOP",
        "SIZE (B)",
        "COUNT",
        "P50 (us)",
        "P99 (us)",
        "ALGBW (GB/s)",
        "BUSBW (GB/s)",
        "% OF LIMIT",
        "#WRONG",
    ];
    let is_explained = report.rows.iter().any(|row| row.explanation.is_some());
    if is_explained {
        headings.extend(["PREDICTED (us)", "BOUND (us)", "% OF BOUND", "ALGORITHM"]);
    }
    let row = |row: &PerfRow| {
        let mut cells = vec![
            report.data_type.clone(),
            report.redop.clone().unwrap_or_else(|| "none".to_owned()),
            row.bytes.to_string(),
            row.count.to_string(),
            format!("{:.2}", row.p50_us),
            format!("{:.2}", row.p99_us),
            format!("{:.2}", row.algbw / 1e9),
            format!("{:.2}", row.busbw / 1e9),
            format!("{:.0}", row.limit_share * 100.0),
            row.wrong.map_or_else(|| "N/A".to_owned(), |wrong| wrong.to_string()),
        ];
        if let Some(explanation) = &row.explanation {
            cells.extend([
                format!("{:.2}", explanation.predicted_us),
                format!("{:.2}", explanation.bound_us),
                format!("{:.0}", explanation.bound_share * 100.0),
                explanation.algorithm.clone(),
            ]);
        }
        cells
    };
    format!("{heading}\n{}", output::table(&headings, 2, report.rows.iter().map(row).collect()))
}
