//! `orinoco perf`: times of collective operations, by size.

mod energy;
mod hosts;
mod limits;
mod measure;
mod operation;

use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use orinoco_api::{PERF_SCHEMA, PerfReport, PerfRow};
use orinoco_collective::{
    Algorithm, CollectiveError, Communicator, DataType, FlightRecord, GroupKey, JoinError, KeyError, Limits,
    MessageGroup, MessageSettings, Order, PcieGroup, PcieSettings, RdmaGroup, RdmaSettings, ReduceOp,
    Rendezvous, Security, Settings, ShmGroup, TUNED_RANKS_MAX, TcpGroup, TcpSettings, Topology, Transport,
    schedule,
};
use orinoco_config::Faults;
use orinoco_core::{Diagnosis, Exit, codes};

use crate::args::PerfArgs;
use crate::output;
use measure::{Explains, measure};
use operation::{Operation, Reduction};
use zeroize::Zeroizing;

/// Longest line with a key.
const KEY_BYTES_MAX: usize = 128;

pub(crate) fn run(args: &PerfArgs, json: bool) -> Result<Exit, Faults> {
    check(args)?;
    if let (Some(rank), Some(group)) = (args.spawned_rank, &args.group) {
        run_rank(args, Meeting::Here(group), rank)?;
        return Ok(Exit::Done);
    }
    if !args.hosts.is_empty() {
        return Ok(print(&hosts::measure(args, transport(args))?, json));
    }
    let elsewhere = args.address.map(Meeting::At).or(args.window.as_deref().map(Meeting::Window));
    if let (Some(rank), Some(meeting)) = (args.rank, elsewhere) {
        let report = run_rank(args, meeting, rank)?;
        return Ok(if rank == 0 { print(&report, json) } else { Exit::Done });
    }
    let group = PathBuf::from(format!("/dev/shm/orinoco-perf-{}", std::process::id()));
    let mut others = Others(Vec::new());
    for rank in 1..usize::from(args.ranks) {
        others.0.push(start_rank(&group, rank)?);
    }
    let report = run_rank(args, Meeting::Here(&group), 0)?;
    others.wait();
    Ok(print(&report, json))
}

/// Refuses options that do not go together.
fn check(args: &PerfArgs) -> Result<(), Diagnosis> {
    let fault = |subject: &str, cause: String, next: &str| {
        Err(Diagnosis::new(&codes::KEY_RANGE, subject, cause, next))
    };
    let transport = transport(args);
    let of_choice = [
        (args.explain, "--explain"),
        (args.tune, "--tune"),
        (args.algorithm.is_some(), "--algorithm"),
        (order(args) == Order::Fast, "--order"),
    ];
    if let Some((_, option)) = of_choice.iter().find(|(is_set, _)| *is_set && transport == "shm") {
        let cause = "over shared memory there is one algorithm for each operation".to_owned();
        return fault(option, cause, "add `--transport tcp`, or leave it out");
    }
    if is_tuned(args) && ranks(args) > TUNED_RANKS_MAX {
        let option = if args.explain { "--explain" } else { "--tune" };
        let cause = format!("groups of more than {TUNED_RANKS_MAX} ranks are not tuned");
        return fault(option, cause, "measure fewer ranks, or leave it out");
    }
    if let Some(algorithm) = algorithm(args) {
        check_algorithm(args, algorithm)?;
    }
    if args.tcp_connections != 1 && !transport.starts_with("tcp") {
        let cause = format!("it is of no use over {transport}");
        return fault("--tcp-connections", cause, "use `--transport tcp`, or leave it out");
    }
    if args.address.is_some() && args.rank.is_none() && args.hosts.is_empty() {
        let cause = "it needs --rank: each rank is a process of its own, started by one command".to_owned();
        return fault("--address", cause, "add --rank and --key, or use --hosts to start all ranks");
    }
    if args.rank.is_some() && args.address.is_none() && args.window.is_none() {
        let cause = "it names no place where the ranks meet".to_owned();
        return fault("--rank", cause, "add --address or --window");
    }
    let between = if args.hosts.is_empty() { "--address" } else { "--hosts" };
    if (args.address.is_some() || !args.hosts.is_empty())
        && !["tcp", "tcp-plaintext", "rdma"].contains(&transport)
    {
        let cause = format!("between machines there is no transport {transport}");
        return fault(between, cause, "use `--transport tcp`, `tcp-plaintext` or `rdma`");
    }
    if args.window.is_some() && transport != "pcie" {
        let cause = format!("it is of no use over {transport}");
        return fault("--window", cause, "use `--transport pcie`, or --address");
    }
    Ok(())
}

/// Refuses an algorithm that does not carry out the operation, or not in the order of the options.
fn check_algorithm(args: &PerfArgs, algorithm: Algorithm) -> Result<(), Diagnosis> {
    let (operation, ranks) = (operation(args), ranks(args));
    let is_free = order(args) == Order::Fast || !operation.reduces();
    let has_schedule = |algorithm: &Algorithm| {
        schedule(&operation.collective(ranks, ranks), *algorithm, &Topology::flat(ranks), 0).is_ok()
    };
    let is_usable =
        |algorithm: &Algorithm| has_schedule(algorithm) && (is_free || algorithm.is_reproducible());
    if is_usable(&algorithm) {
        return Ok(());
    }
    let usable: Vec<&str> = Algorithm::ALL.iter().filter(|of| is_usable(of)).map(|of| of.name()).collect();
    let (cause, next) = if has_schedule(&algorithm) {
        let cause = format!("{algorithm} combines values in another order than the reproducible one");
        (cause, format!("add `--order fast`, or use one of: {}", usable.join(", ")))
    } else {
        let cause = format!("there is no {algorithm} algorithm for {}", args.operation);
        (cause, format!("use one of: {}", usable.join(", ")))
    };
    Err(Diagnosis::new(&codes::KEY_RANGE, "--algorithm", cause, next))
}

/// Place where the ranks of a group meet.
#[derive(Clone, Copy)]
enum Meeting<'a> {
    /// A file on this machine, for ranks that this program starts.
    Here(&'a Path),
    /// An address of rank 0.
    At(SocketAddr),
    /// Memory that the ranks share.
    Window(&'a Path),
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
fn run_rank(args: &PerfArgs, meeting: Meeting<'_>, rank: usize) -> Result<PerfReport, Diagnosis> {
    let (ranks, transport) = (usize::from(args.ranks), transport(args));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let security = match (meeting, transport) {
        (Meeting::At(_) | Meeting::Window(_), _) => Security::GroupKey(group_key(args)?),
        (Meeting::Here(_), "tcp-plaintext" | "pcie") => Security::Plaintext,
        (Meeting::Here(_), _) => Security::FileKey,
    };
    let rendezvous = match meeting {
        Meeting::Here(path) | Meeting::Window(path) => Rendezvous::File(path.to_owned()),
        Meeting::At(address) => Rendezvous::Address(address),
    };
    let not_joined = |why| not_joined(rank, why);
    let measured = match (&rendezvous, transport) {
        (Rendezvous::File(path), "shm") => {
            let mut group = ShmGroup::join(path, rank, ranks, Settings::default()).map_err(not_joined)?;
            pin(rank, ranks);
            let limits = |group: &mut ShmGroup| ShmGroup::measure_limits(group).map(Some);
            print_record_on_failure(measure_group(&mut group, limits, args), || group.recent())
        }
        (Rendezvous::File(path), "pcie") => {
            let settings = PcieSettings { security, messages: messages(args) };
            let group = PcieGroup::join(path, rank, ranks, settings).map_err(not_joined)?;
            measure_messages(group, meeting, |_| Ok(None), args)
        }
        (_, "rdma") => {
            let settings = RdmaSettings { messages: messages(args), ..RdmaSettings::new(security) };
            let group = RdmaGroup::join(&rendezvous, rank, ranks, settings).map_err(not_joined)?;
            measure_messages(group, meeting, |_| Ok(None), args)
        }
        _ => {
            let settings = TcpSettings { security, messages: messages(args) };
            let group = TcpGroup::join(&rendezvous, rank, ranks, settings).map_err(not_joined)?;
            let ip = args.address.map_or(IpAddr::from(Ipv4Addr::LOCALHOST), |address| address.ip());
            measure_messages(group, meeting, |group| limits::of_tcp(group, ip), args)
        }
    };
    let (limits, rows) = measured.map_err(|why| {
        let next = "see `orinoco explain E1002`";
        Diagnosis::new(&codes::COLLECTIVE_FAILED, format!("rank {rank}"), why.to_string(), next)
    })?;
    Ok(PerfReport {
        schema: PERF_SCHEMA.to_owned(),
        operation: args.operation.clone(),
        data_type: args.datatype.clone(),
        redop: operation(args).reduces().then(|| args.redop.clone()),
        order: operation(args).reduces().then(|| args.order.clone()),
        algorithm: args.algorithm.clone(),
        tuned: is_tuned(args),
        ranks,
        transport: transport.to_owned(),
        cores,
        iterations: args.iterations,
        exchange_us: limits.as_ref().map_or(0.0, |limits| limits.exchange.as_secs_f64() * 1e6),
        copy_bytes_per_s: limits.as_ref().map_or(0.0, |limits| limits.bytes_per_second),
        rows,
    })
}

/// Settings of a group whose ranks exchange messages.
fn messages(args: &PerfArgs) -> MessageSettings {
    MessageSettings {
        tcp_connections: args.tcp_connections,
        tcp_encryption: transport(args) != "tcp-plaintext",
        order: order(args),
        algorithm: algorithm(args),
        ..MessageSettings::default()
    }
}

/// Number of ranks of the group.
fn ranks(args: &PerfArgs) -> usize {
    if args.hosts.is_empty() { usize::from(args.ranks) } else { args.hosts.len() }
}

fn order(args: &PerfArgs) -> Order {
    if args.order == "fast" { Order::Fast } else { Order::Reproducible }
}

fn algorithm(args: &PerfArgs) -> Option<Algorithm> {
    let name = args.algorithm.as_deref()?;
    Some(Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name).expect("clap knows the names"))
}

/// Whether the links are measured, to choose algorithms by them.
fn is_tuned(args: &PerfArgs) -> bool {
    args.tune || args.explain
}

fn not_joined(rank: usize, why: JoinError) -> Diagnosis {
    let source = why.source().map(|source| format!(": {source}")).unwrap_or_default();
    let (cause, next) = (format!("{why}{source}"), "see `orinoco explain E1001`");
    Diagnosis::new(&codes::GROUP_JOIN, format!("rank {rank}"), cause, next)
}

/// Measures a group whose ranks exchange messages.
fn measure_messages<T: Transport>(
    mut group: MessageGroup<T>,
    meeting: Meeting<'_>,
    limits: impl FnOnce(&mut MessageGroup<T>) -> Result<Option<Limits>, CollectiveError>,
    args: &PerfArgs,
) -> Result<Measured, Box<dyn Error>> {
    if let Meeting::Here(_) = meeting {
        pin(group.rank(), group.ranks());
    }
    let measured = match is_tuned(args) {
        // Not earlier: cores are part of what it measures.
        true => group.tune(None).map(drop).map_err(Box::<dyn Error>::from),
        false => Ok(()),
    };
    let measured = measured.and_then(|_| measure_group(&mut group, limits, args));
    print_record_on_failure(measured, || group.recent())
}

/// The transport: the one that was named, or that of the place where ranks meet.
fn transport(args: &PerfArgs) -> &str {
    let usual = match (&args.address, &args.window) {
        _ if !args.hosts.is_empty() => "tcp",
        (Some(_), _) => "tcp",
        (None, Some(_)) => "pcie",
        (None, None) => "shm",
    };
    args.transport.as_deref().unwrap_or(usual)
}

/// Reads the key that the ranks share.
fn group_key(args: &PerfArgs) -> Result<GroupKey, Diagnosis> {
    let path = args.key.as_deref().unwrap_or(Path::new(""));
    if path == Path::new("-") {
        return read_key(std::io::stdin().lock());
    }
    GroupKey::read(path).map_err(|why: KeyError| {
        let source = why.source().map(|source| format!(": {source}")).unwrap_or_default();
        let (cause, next) = (format!("{why}{source}"), "see `orinoco explain E1003`");
        Diagnosis::new(&codes::GROUP_KEY, "group key", cause, next)
    })
}

/// Reads the key from the first line of standard input.
fn read_key(input: impl Read) -> Result<GroupKey, Diagnosis> {
    let mut text = Zeroizing::new(String::new());
    let read = BufReader::with_capacity(KEY_BYTES_MAX, input.take(KEY_BYTES_MAX as u64)).read_line(&mut text);
    let key = read.ok().and_then(|_| GroupKey::from_text(text.trim_end()));
    key.ok_or_else(|| {
        let (cause, next) =
            ("standard input has no key of 64 hexadecimal digits", "see `orinoco explain E1003`");
        Diagnosis::new(&codes::GROUP_KEY, "group key", cause, next)
    })
}

/// After a failure, prints the last operations of this rank, and for whom it waited.
fn print_record_on_failure<R>(
    measured: Result<R, Box<dyn Error>>,
    record: impl FnOnce() -> FlightRecord,
) -> Result<R, Box<dyn Error>> {
    measured.inspect_err(|_| output::note(record().to_string().trim_end()))
}

/// The transport's limits, if they are known, and a row for each size.
type Measured = (Option<Limits>, Vec<PerfRow>);

/// Measures the transport's limits, and then the operation.
fn measure_group<G: Communicator + Explains>(
    group: &mut G,
    limits: impl FnOnce(&mut G) -> Result<Option<Limits>, CollectiveError>,
    args: &PerfArgs,
) -> Result<Measured, Box<dyn Error>> {
    let limits = limits(group)?;
    let data_type = DataType::ALL.into_iter().find(|data_type| data_type.name() == args.datatype);
    let op = ReduceOp::ALL.into_iter().find(|op| op.name() == args.redop).expect("clap knows the names");
    let reduction = Reduction { op, order: order(args) };
    let operation = operation(args);
    let rows = match data_type.expect("clap knows the names") {
        DataType::F32 => measure::<f32>(group, limits.as_ref(), operation, reduction, args),
        DataType::F64 => measure::<f64>(group, limits.as_ref(), operation, reduction, args),
        DataType::F16 => measure::<half::f16>(group, limits.as_ref(), operation, reduction, args),
        DataType::Bf16 => measure::<half::bf16>(group, limits.as_ref(), operation, reduction, args),
        DataType::I8 => measure::<i8>(group, limits.as_ref(), operation, reduction, args),
        DataType::U8 => measure::<u8>(group, limits.as_ref(), operation, reduction, args),
        DataType::I32 => measure::<i32>(group, limits.as_ref(), operation, reduction, args),
        DataType::U32 => measure::<u32>(group, limits.as_ref(), operation, reduction, args),
        DataType::I64 => measure::<i64>(group, limits.as_ref(), operation, reduction, args),
        DataType::U64 => measure::<u64>(group, limits.as_ref(), operation, reduction, args),
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
    let group = format!(
        "{} over {}, {} on {}",
        report.operation,
        report.transport,
        output::count(report.ranks as u64, "rank"),
        output::count(report.cores as u64, "core"),
    );
    let has_limits = report.exchange_us > 0.0;
    let limits = match report.transport.as_str() {
        _ if !has_limits => "limits not known".to_owned(),
        transport => {
            let (exchange, transfer) =
                if transport == "shm" { ("flag exchange", "copy") } else { ("8-byte exchange", "transfer") };
            let rate = report.copy_bytes_per_s / 1e9;
            format!("limits: {exchange} {:.2} us, {transfer} {rate:.1} GB/s per rank", report.exchange_us)
        }
    };
    let heading = format!("{group}{}; {limits}", choice_text(report));
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
    let has_energy = report.rows.iter().any(|row| row.energy.is_some());
    if has_energy {
        headings.push("J/GB");
    }
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
            if has_limits { format!("{:.0}", row.limit_share * 100.0) } else { "N/A".to_owned() },
            row.wrong.map_or_else(|| "N/A".to_owned(), |wrong| wrong.to_string()),
        ];
        if let Some(energy) = &row.energy {
            cells.push(energy.value().map_or_else(
                || "N/A".to_owned(),
                |energy| {
                    let joules = energy.joules_per_gb;
                    format!("{:.3} ± {:.3}", joules.value, joules.half_width)
                },
            ));
        }
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
    let table = output::table(&headings, 2, report.rows.iter().map(row).collect());
    let notes: String = energy_notes(report).into_iter().map(|note| format!("\n{note}")).collect();
    format!("{heading}\n{}{notes}", table.trim_end())
}

/// Names the options by which algorithms were chosen, if they are not the usual ones.
fn choice_text(report: &PerfReport) -> String {
    let algorithm = report.algorithm.as_ref().map(|name| format!(", algorithm {name}"));
    let order = report.order.as_ref().filter(|order| *order == "fast").map(|_| ", any order".to_owned());
    let tuned = report.tuned.then(|| ", tuned".to_owned());
    [algorithm, order, tuned].into_iter().flatten().collect()
}

/// Says what the energy is of, or why it was not measured.
fn energy_notes(report: &PerfReport) -> Vec<String> {
    let of_rows = || report.rows.iter().filter_map(|row| row.energy.as_ref());
    let mut notes: Vec<String> = of_rows()
        .filter_map(|energy| energy.reason())
        .map(|why| format!("energy not measured: {why}"))
        .collect();
    notes.dedup();
    if let Some(energy) = of_rows().find_map(|energy| energy.value()) {
        let boards = output::count(energy.boards, "board");
        let (idle, rails) = (energy.idle_watts, energy.rails.join(", "));
        notes.push(format!(
            "energy: above the idle power of {boards} ({:.2} ± {:.2} W; rails of rank 0: {rails}), per gigabyte of SIZE",
            idle.value, idle.half_width
        ));
    }
    notes
}
