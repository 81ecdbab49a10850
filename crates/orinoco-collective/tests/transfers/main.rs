//! One-sided transfers among ranks that work: bytes arrive whole, in the right place, and what is refused harms nothing else.

#![expect(clippy::disallowed_methods, reason = "the tests wait for real threads")]

mod device;
mod moves;
mod notifications;
mod refusals;

use std::fs::File;
use std::path::Path;
use std::thread;
use std::time::Duration;

use orinoco_collective::transfer::{TransferAgent, TransferOptions};
use orinoco_collective::{
    Communicator, MessageSettings, ReduceOp, Rendezvous, Security, TcpGroup, TcpSettings,
};
use orinoco_core::Rng;

/// Bytes of a piece, into which agents cut transfers.
const PIECE: usize = 256 << 10;
/// Protections of a group.
const SECURITIES: [Security; 2] = [Security::FileKey, Security::Plaintext];

/// Agents of a group, in rank order. The group carried out operations before, and was split.
fn agents(ranks: usize, security: &Security) -> Vec<TransferAgent> {
    let folder = tempfile::tempdir().unwrap();
    let rendezvous = Rendezvous::File(folder.path().join("meeting"));
    // Dozens of threads share the cores, and none may count as dead for that.
    let silence = Duration::from_secs(10);
    let messages = MessageSettings { silence, tcp_connections: 2, ..MessageSettings::default() };
    let settings = TcpSettings { security: security.clone(), messages };
    let start = |rank| {
        let mut group = TcpGroup::join(&rendezvous, rank, ranks, settings.clone()).expect("all join");
        let mut part = group.split(Some(0), 0).expect("a group").expect("this rank belongs to it");
        // What it leaves in the connections' buffers must not be taken for a transfer, or the other way round.
        part.all_reduce(ReduceOp::Sum, &mut [rank as u64; 100]).expect("a sum");
        part.barrier().expect("all come");
        TransferAgent::start(part).expect("an agent")
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || start(rank))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn pair(security: &Security) -> [TransferAgent; 2] {
    agents(2, security).try_into().ok().expect("two agents")
}

fn usual() -> TransferOptions {
    TransferOptions::default()
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::with_seed(seed);
    (0..len.div_ceil(8)).flat_map(|_| rng.u64(..).to_le_bytes()).take(len).collect()
}

/// A file that can be read and written.
fn file(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}
