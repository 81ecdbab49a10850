use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::FailureCause;
use crate::call::Call;
use crate::rdma::error::RdmaError;
use crate::security::KeyError;
use crate::wire_version::WireVersion;

/// Fault of a collective operation.
#[derive(Debug, Error)]
pub enum CollectiveError {
    /// Ranks called different operations, or with different sizes, or wait for one another without end, such as two that both receive (of
    /// which each is shown with the send for which it waits). The communicator has failed. A rank whose call needed no message
    /// (a vector of no elements) may already have returned from it.
    #[error(
        "rank {rank} called {theirs}, this rank called {ours}; all ranks must make the same calls in the same order"
    )]
    Mismatch {
        /// The other rank.
        rank: usize,
        /// Its call.
        theirs: Call,
        /// This rank's call.
        ours: Call,
    },
    /// A rank failed during an operation, or before it. The communicator has failed with it.
    #[error("epoch {epoch} failed during {call}: rank {rank} {cause}; {}", cause.next_step())]
    EpochFailed {
        /// Membership that has ended.
        epoch: u32,
        /// The rank that failed.
        rank: usize,
        /// Reason of its failure.
        cause: FailureCause,
        /// The operation in which it was noticed.
        call: Call,
    },
    /// A rank failed in a uniform group, and this rank can reach too few others: it may be cut off from them, and does not know whether
    /// they return a result. The communicator has failed.
    #[error(
        "isolated during {call}: this rank reaches only ranks {} of {ranks} (itself included), not a majority; the operation may have completed on the other ranks; check the network and the other ranks, then restart all ranks",
        numbers(reachable)
    )]
    Isolated {
        /// Ranks that this one can reach, itself included.
        reachable: Vec<usize>,
        /// Number of ranks.
        ranks: usize,
        /// The operation.
        call: Call,
    },
    /// An input or output has the wrong length.
    #[error("{what} of {call} has {len} elements, expected {expected}")]
    Length {
        /// Input or output.
        what: &'static str,
        /// Its length.
        len: usize,
        /// The length it must have.
        expected: usize,
        /// The call.
        call: Call,
    },
}

/// Fault of joining a group.
#[derive(Debug, Error)]
pub enum JoinError {
    /// The numbers make no sense.
    #[error("rank {rank} of {ranks}: a group has 1 to {max} ranks, numbered from 0")]
    Ranks {
        /// This rank.
        rank: usize,
        /// Number of ranks.
        ranks: usize,
        /// Most ranks.
        max: usize,
    },
    /// The file of the group cannot be used.
    #[error("{action} {path}")]
    File {
        /// Attempted action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The file is not one of such a group.
    #[error(
        "{path} was made by another version, or for another number of ranks: {found}; remove it and start all ranks again"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Content that differs.
        found: String,
    },
    /// Another user may have made the file.
    #[error(
        "{path} cannot be used to join: {why}; remove it, or name a file in a folder to which only this user can write, and start all ranks again"
    )]
    UntrustedFile {
        /// The file.
        path: PathBuf,
        /// Its owner, or its mode.
        why: String,
    },
    /// Another rank 0 waits at the same file.
    #[error(
        "another group is joining at {path}; give each group a file of its own, or wait until all ranks of the other have joined"
    )]
    FileTaken {
        /// The file.
        path: PathBuf,
    },
    /// Another process has this rank.
    #[error(
        "rank {rank} of {path} has joined already (process {process}); give this process another rank, or end that one and start all ranks again"
    )]
    Taken {
        /// The rank.
        rank: usize,
        /// The file.
        path: PathBuf,
        /// Its process.
        process: u32,
    },
    /// A rank failed just after all had joined.
    #[error("all ranks joined, but then one failed")]
    Failed(#[from] CollectiveError),
    /// The group that was to be split has failed.
    #[error("splitting the group")]
    Split(#[source] CollectiveError),
    /// Another rank of the new group could not prepare to join it.
    #[error("rank {rank} of the group that is split could not prepare the new group; its own error says why")]
    Unprepared {
        /// Its number in the group that is split.
        rank: usize,
    },
    /// Ranks that give signs of life do not make the smaller group, too.
    #[error(
        "ranks {} did not call `shrink` within {} ms, and give signs of life; let them call it too, or end them, then call it again",
        numbers(missing),
        waited.as_millis()
    )]
    NotShrunk {
        /// Those ranks, by their numbers in the group that failed.
        missing: Vec<usize>,
        /// Time waited.
        waited: Duration,
    },
    /// The ranks that are left could not be connected with.
    #[error(
        "connecting ranks {} of the failed group, which are numbered from 0 in the new one; call `shrink` again on all of them",
        numbers(members)
    )]
    Shrink {
        /// Those ranks, by their numbers in the group that failed.
        members: Vec<usize>,
        /// The connection that failed last; its ranks have the numbers of the new group.
        source: Box<JoinError>,
    },
    /// The other ranks go on without this one.
    #[error(
        "rank {by} and others have left this rank out of their smaller group{}; it cannot join that one: start all ranks again, or go on without this rank",
        cause.map_or_else(String::new, |cause| format!(", since it {cause}"))
    )]
    Excluded {
        /// A rank that goes on without this one.
        by: usize,
        /// Failure of this rank as the others have noticed it, if they have sent it.
        cause: Option<FailureCause>,
    },
    /// Too few ranks of a uniform group are left, or can be reached.
    #[error(
        "isolated: this rank reaches only ranks {} of {ranks} (itself included), not a majority; check the network and the other ranks, then restart all ranks",
        numbers(reachable)
    )]
    Isolated {
        /// Ranks that this one can reach, itself included.
        reachable: Vec<usize>,
        /// Number of ranks of the failed group.
        ranks: usize,
    },
    /// There is a smaller group of this group already.
    #[error("this group was shrunk already; shrink the group that was made of it")]
    AlreadyShrunk,
    /// There cannot be so many connections between two ranks.
    #[error("`tcp_connections` is {connections}; it must be 1 to {max}")]
    Connections {
        /// The number in the settings.
        connections: u16,
        /// Most that there can be.
        max: u16,
    },
    /// Ranks would count as dead between two signs of life.
    #[error(
        "`silence` is {} ms; it must be {} ms or more",
        silence.as_secs_f64() * 1e3,
        min.as_millis()
    )]
    Silence {
        /// The time in the settings.
        silence: Duration,
        /// Shortest time that it can be.
        min: Duration,
    },
    /// An address is not of this machine.
    #[error(
        "{address} is not an address of this machine, and connections without encryption are accepted within one machine only; use a group key, or a key pair for each rank"
    )]
    Unprotected {
        /// The address.
        address: SocketAddr,
    },
    /// Some ranks have loopback addresses, others not.
    #[error(
        "rank {rank} has the loopback address {loopback}, at which no other machine can reach it, and rank {other} has {address}; give each rank the address of a network interface"
    )]
    Loopback {
        /// The rank with a loopback address.
        rank: usize,
        /// That address.
        loopback: SocketAddr,
        /// A rank with another address.
        other: usize,
        /// That address.
        address: SocketAddr,
    },
    /// Ranks without keys are to share the ports of daemons.
    #[error(
        "the port of a daemon can be reached from other machines, and connections without authentication are accepted within one machine only; use a group key, or a key pair for each rank"
    )]
    UnprotectedPort,
    /// The list of addresses has the wrong length.
    #[error("{addresses} addresses for {ranks} ranks; there must be one for each rank")]
    Addresses {
        /// Number of ranks.
        ranks: usize,
        /// Number of addresses in the list.
        addresses: usize,
    },
    /// This rank cannot listen at its address.
    #[error("listening at {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// This rank cannot register with the daemon of its board.
    #[error(
        "cannot register with the daemon at {socket}; check that orinocod runs with this `program_socket` in its board file, and that this user is in the Unix group `orinoco`"
    )]
    Daemon {
        /// The socket.
        socket: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Another process on this board is about to join as this rank.
    #[error(
        "another process on this board is joining group `{name}` as this rank; end it, or use another name for the group"
    )]
    GroupTaken {
        /// Name of the group.
        name: String,
    },
    /// A group cannot have this name.
    #[error("invalid group name `{name}`: use 1 to {max} ASCII letters, digits, `-`, `_` and `.`")]
    GroupName {
        /// The name.
        name: String,
        /// Most characters.
        max: usize,
    },
    /// A connection broke while ranks joined.
    #[error("joining rank {rank} at {address}")]
    Broken {
        /// The other rank.
        rank: usize,
        /// Its address.
        address: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// Another program listens at a rank's address.
    #[error(
        "no valid reply from rank {rank} at {address}: it has ended, or another program uses that port; if its own error does not say why, give it another port"
    )]
    NoRank {
        /// The rank.
        rank: usize,
        /// Its address.
        address: SocketAddr,
    },
    /// A rank has another version of Orinoco.
    #[error(
        "rank {rank} at {address} uses version {theirs} of the wire format, this rank version {ours}; install the same version of Orinoco on all machines"
    )]
    OtherVersion {
        /// The rank.
        rank: usize,
        /// Its address.
        address: SocketAddr,
        /// Its version.
        theirs: WireVersion,
        /// Version of this rank.
        ours: WireVersion,
    },
    /// A rank of the previous version of Orinoco cannot do what the group needs.
    #[error(
        "the version of Orinoco of rank {rank} does not support {needed}; install the same version of Orinoco on all machines"
    )]
    Incapable {
        /// The rank.
        rank: usize,
        /// Setting or call that it does not support.
        needed: String,
    },
    /// A rank refuses this one.
    #[error("rank {rank} refuses this rank: {why}")]
    Refused {
        /// The other rank.
        rank: usize,
        /// Its reason.
        why: String,
    },
    /// The system refuses something that it does not refuse usually.
    #[error("setting up connections")]
    System(#[source] io::Error),
    /// Some ranks did not join.
    #[error(
        "{} did not join {at} within {} ms{}{}; see whether each of them was started, and what its own error says",
        ranks_of(missing),
        waited.as_millis(),
        refusals(*turned_away),
        version_refusal(*other_version)
    )]
    Missing {
        /// Ranks that did not join.
        missing: Vec<usize>,
        /// The file, the address, or the group and the daemon's address at which they were expected.
        at: String,
        /// Time waited.
        waited: Duration,
        /// Connections that did not have the right key.
        turned_away: usize,
        /// Version of the last connection that was refused because this rank does not understand its version.
        other_version: Option<WireVersion>,
    },
    /// Rank 0 waited for other ranks until the deadline of this one, and did not say in time which they are.
    #[error("rank 0 at {address} waited for other ranks for {} ms; if they do not join, its own error names them", waited.as_millis())]
    Incomplete {
        /// Address of rank 0.
        address: SocketAddr,
        /// Time waited.
        waited: Duration,
    },
    /// Ranks cannot be connected by RDMA.
    #[error("connecting by RDMA")]
    Rdma(#[source] RdmaError),
    /// A key cannot be made.
    #[error("making a key")]
    Key(#[from] KeyError),
    /// The key is to come from a file, but there is none.
    #[error(
        "`Security::FileKey` needs `Rendezvous::File`; otherwise use a group key, or a key pair for each rank"
    )]
    NoKeyFile,
    /// The key pair is not the one of this rank.
    #[error("public key {rank} of the list does not belong to the key pair of this rank")]
    OwnKey {
        /// This rank.
        rank: usize,
    },
    /// The list of public keys has the wrong length.
    #[error("{keys} public keys for {ranks} ranks; there must be one for each rank")]
    Keys {
        /// Number of ranks.
        ranks: usize,
        /// Number of keys in the list.
        keys: usize,
    },
    /// A seat of a cluster does not take part in the epoch.
    #[error("number {rank} of the member list (counted from 0) does not take part in this epoch")]
    OtherEpoch {
        /// The other seat.
        rank: usize,
    },
    /// Whoever listens at a rank's address does not have that rank's key.
    #[error(
        "the program that replies at {address} does not have the key of rank {rank}; check that all ranks have the same group key or list of public keys, and that no other program uses that port"
    )]
    Untrusted {
        /// The rank.
        rank: usize,
        /// Its address.
        address: SocketAddr,
    },
    /// A rank in a window does not have its key.
    #[error(
        "rank {rank} in {path} does not have the key of that rank; check that all ranks have the same group key or list of public keys, and that no other group uses that memory"
    )]
    WrongKey {
        /// The rank.
        rank: usize,
        /// The window.
        path: PathBuf,
    },
    /// Something else than a rank writes to a window.
    #[error(
        "what was written to {path} for rank {rank} is not what a joining rank writes; make sure that no other group or program uses that memory"
    )]
    Garbled {
        /// The rank.
        rank: usize,
        /// The window.
        path: PathBuf,
    },
    /// A window is too small.
    #[error("{path} has {bytes} bytes; a group of {ranks} ranks needs {least} or more")]
    WindowSize {
        /// The window.
        path: PathBuf,
        /// Number of ranks.
        ranks: usize,
        /// Its size in bytes.
        bytes: u64,
        /// Least size for so many ranks, in bytes.
        least: u64,
    },
    /// A window may lead to other machines.
    #[error(
        "{path} is the memory of a PCI device, which may lead to another machine; use a group key, or a key pair for each rank"
    )]
    UnprotectedWindow {
        /// The window.
        path: PathBuf,
    },
}

/// Fault of an operation that was to be repeated without the ranks that fail.
#[derive(Debug, Error)]
pub enum RetryError {
    /// The group is not uniform.
    #[error(
        "`retry` works only in a uniform group: in another one, ranks that have the result already would not take part again; set `MessageSettings::uniform`"
    )]
    NotUniform,
    /// The operation failed, and was not repeated any more.
    #[error("the last attempt, number {attempt}, failed")]
    Operation {
        /// Number of the attempt, from 1.
        attempt: usize,
        /// Its error.
        source: CollectiveError,
    },
    /// There is no smaller group.
    #[error("making a smaller group after attempt {attempt}")]
    Shrink {
        /// Number of the attempt that failed, from 1.
        attempt: usize,
        /// Reason.
        source: JoinError,
    },
}

/// Numbers of ranks, as a sentence has them.
fn numbers(ranks: &[usize]) -> String {
    let numbers: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    numbers.join(", ")
}

/// Names ranks by their numbers, as the subject of a sentence.
fn ranks_of(ranks: &[usize]) -> String {
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, numbers(ranks))
}

/// Words about connections without the right key.
fn refusals(turned_away: usize) -> String {
    match turned_away {
        0 => String::new(),
        1 => "; 1 connection was refused because of its key".to_owned(),
        _ => format!("; {turned_away} connections were refused because of their keys"),
    }
}

/// Words about a connection of another version.
fn version_refusal(other: Option<WireVersion>) -> String {
    other.map_or_else(String::new, |version| {
        format!(
            "; a connection that uses version {version} of the wire format was refused, since this rank uses version {}; install the same version of Orinoco on all machines",
            WireVersion::OURS
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_isolated_rank_is_told_what_to_do() {
        let call = Call::from_code(0);
        let error = CollectiveError::Isolated { reachable: vec![0, 2], ranks: 5, call };
        assert_eq!(
            error.to_string(),
            "isolated during operation 0: this rank reaches only ranks 0, 2 of 5 (itself included), not a majority; the operation may have completed on the other ranks; check the network and the other ranks, then restart all ranks"
        );
    }
}
