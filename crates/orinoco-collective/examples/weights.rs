//! Sends a file, such as the weights of a model, from one rank to all others, which write it and check it.
//!
//!     cargo run --release -p orinoco-collective --example weights FILE FOLDER [RANKS]
//!
//! Ranks are processes of this machine, connected by TCP as boards would be. Rank N writes FOLDER/weights-N. The file is read, sent and
//! written in pieces, so memory does not depend on its size.

use std::env;
use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use orinoco_collective::{Communicator, ReduceOp, Rendezvous, Security, TcpGroup, TcpSettings};

const RANK: &str = "ORINOCO_EXAMPLE_RANK";
const MEETING: &str = "ORINOCO_EXAMPLE_MEETING";
/// Bytes of a piece.
const PIECE: usize = 4 << 20;

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
    Ok(TcpGroup::join(&Rendezvous::File(meeting), rank, ranks, TcpSettings::new(Security::FileKey))?)
}

/// Sends the length of a file, then its pieces, then agrees with the others on their checksum.
fn send(group: &mut TcpGroup, path: &Path) -> Result<u64, Box<dyn Error>> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    group.broadcast(0, &mut [len])?;
    let mut checksum = 0;
    let mut piece = vec![0; PIECE];
    let mut left = len;
    while left > 0 {
        let bytes = usize::try_from(left)?.min(PIECE);
        file.read_exact(&mut piece[..bytes])?;
        group.broadcast(0, &mut piece[..bytes])?;
        checksum = crc32c::crc32c_append(checksum, &piece[..bytes]);
        left -= bytes as u64;
    }
    agree(group, checksum)?;
    Ok(len)
}

fn receive(group: &mut TcpGroup, folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut len = [0];
    group.broadcast(0, &mut len)?;
    let path = folder.join(format!("weights-{}", group.rank()));
    let mut file = File::create(&path)?;
    let mut piece = vec![0; PIECE];
    let mut left: u64 = len[0];
    while left > 0 {
        let bytes = usize::try_from(left)?.min(PIECE);
        group.broadcast(0, &mut piece[..bytes])?;
        file.write_all(&piece[..bytes])?;
        left -= bytes as u64;
    }
    file.sync_all()?;
    drop(file);
    // Read back from the disk: a copy in memory would prove nothing about the file.
    let mut checksum = 0;
    let mut file = File::open(&path)?;
    loop {
        match file.read(&mut piece)? {
            0 => break,
            bytes => checksum = crc32c::crc32c_append(checksum, &piece[..bytes]),
        }
    }
    agree(group, checksum)
}

/// Fails on all ranks unless they have the same checksum.
fn agree(group: &mut TcpGroup, checksum: u32) -> Result<(), Box<dyn Error>> {
    let mut least_and_greatest = [checksum, !checksum];
    group.all_reduce(ReduceOp::Min, &mut least_and_greatest)?;
    let [least, greatest] = [least_and_greatest[0], !least_and_greatest[1]];
    if least == greatest { Ok(()) } else { Err("the file differs between ranks".into()) }
}
