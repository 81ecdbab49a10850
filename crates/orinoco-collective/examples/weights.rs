//! Sends a file, such as the weights of a model, from one rank to all others, which write it and check it.
//!
//!     cargo run --release -p orinoco-collective --example weights FILE FOLDER [RANKS]
//!
//! Ranks are processes of this machine, connected by TCP as boards would be. Rank 0 exposes the file to the others, and rank N copies it
//! to FOLDER/weights-N when it wants to: the program of rank 0 takes no part in that. Pieces are read, sent and written one after the
//! other, so memory does not depend on the size of the file.

use std::env;
use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use orinoco_collective::transfer::{Access, Position, Region, TransferAgent, TransferOptions};
use orinoco_collective::{Communicator, ReduceOp, Rendezvous, Security, TcpGroup, TcpSettings};

const RANK: &str = "ORINOCO_EXAMPLE_RANK";
const MEETING: &str = "ORINOCO_EXAMPLE_MEETING";
/// Name of the file's region.
const WEIGHTS: &str = "weights";
/// Bytes that are read at once for a checksum.
const PIECE: usize = 4 << 20;
/// Longest time for a copy, and for the wait of the ranks that have theirs: some gigabytes take a minute over Gigabit Ethernet.
const DEADLINE: Duration = Duration::from_secs(600);

#[expect(clippy::print_stdout, reason = "an example prints its result")]
fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [file, folder, ranks @ ..] = &arguments[..] else {
        return Err("usage: weights FILE FOLDER [RANKS]".into());
    };
    let ranks: usize = ranks.first().map_or(Ok(3), |ranks| ranks.parse())?;
    let (file, folder) = (Path::new(file), Path::new(folder));
    if let (Ok(rank), Some(meeting)) = (env::var(RANK), env::var_os(MEETING)) {
        return receive(&mut join(meeting.into(), rank.parse()?, ranks)?, folder);
    }
    let meeting = env::temp_dir().join(format!("orinoco-weights-{}", std::process::id()));
    let start = |rank: usize| {
        let mut process = Command::new(env::current_exe()?);
        process.args(&arguments).env(RANK, rank.to_string()).env(MEETING, &meeting).spawn()
    };
    let others = (1..ranks).map(start).collect::<Result<Vec<_>, _>>()?;
    let bytes = send(&mut join(meeting, 0, ranks)?, file)?;
    for mut other in others {
        if !other.wait()?.success() {
            return Err("a rank failed".into());
        }
    }
    println!("{bytes} bytes sent to {} ranks, and checked by each", ranks - 1);
    Ok(())
}

fn join(meeting: PathBuf, rank: usize, ranks: usize) -> Result<TcpGroup, Box<dyn Error>> {
    let mut settings = TcpSettings::new(Security::FileKey);
    settings.messages.deadline = DEADLINE;
    Ok(TcpGroup::join(&Rendezvous::File(meeting), rank, ranks, settings)?)
}

/// Exposes a file to the others until all have copied it, and agrees with them on its checksum.
fn send(group: &mut TcpGroup, path: &Path) -> Result<u64, Box<dyn Error>> {
    let agent = agent(group)?;
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let weights = agent.register(WEIGHTS, Region::file(file, len)?, Access::Read)?;
    group.barrier()?;
    agree(group, checksum(path)?)?;
    drop(weights);
    Ok(len)
}

fn receive(group: &mut TcpGroup, folder: &Path) -> Result<(), Box<dyn Error>> {
    let agent = agent(group)?;
    // From then on, rank 0 has the region.
    group.barrier()?;
    let regions = agent.regions(0, DEADLINE)?;
    let len = regions.iter().find(|region| region.name == WEIGHTS).ok_or("rank 0 has no weights")?.bytes;
    let path = folder.join(format!("weights-{}", group.rank()));
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
    let copy = agent.register(WEIGHTS, Region::file(file, len)?, Access::Read)?;
    let position = |rank| Position { rank, region: WEIGHTS, offset: 0 };
    let options = TransferOptions { deadline: DEADLINE, durable: true, ..TransferOptions::default() };
    agent.copy(position(0), position(group.rank()), len, options)?;
    drop(copy);
    // Read back from the file: what came over the network would prove nothing about it.
    agree(group, checksum(&path)?)
}

/// Starts the agent of a group of its own: this one goes on with operations.
fn agent(group: &mut TcpGroup) -> Result<TransferAgent, Box<dyn Error>> {
    let own = group.split(Some(0), i32::try_from(group.rank())?)?.ok_or("all ranks belong to it")?;
    Ok(TransferAgent::start(own)?)
}

fn checksum(path: &Path) -> Result<u32, Box<dyn Error>> {
    let (mut file, mut piece, mut checksum) = (File::open(path)?, vec![0; PIECE], 0);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(checksum),
            bytes => checksum = crc32c::crc32c_append(checksum, &piece[..bytes]),
        }
    }
}

/// Fails on all ranks unless they have the same checksum.
fn agree(group: &mut TcpGroup, checksum: u32) -> Result<(), Box<dyn Error>> {
    let mut least_and_greatest = [checksum, !checksum];
    group.all_reduce(ReduceOp::Min, &mut least_and_greatest)?;
    let [least, greatest] = [least_and_greatest[0], !least_and_greatest[1]];
    if least == greatest { Ok(()) } else { Err("the file differs between ranks".into()) }
}
