//! Collective operations (all-reduce, broadcast, all-gather and the like) for small groups of boards.
//!
//! - A **schedule** is the list of messages and reductions that one rank executes in one collective operation. It is a pure
//!   function of the operation, the algorithm, the ranks and the rank, so it can be proved and priced without a network:
//!   `tests/schedules` proves every algorithm for every number of ranks up to 64, and [`cost`] prices it.
//! - A [`ShmGroup`] carries out operations among the ranks of one machine, over shared memory.
//! - A [`TcpGroup`] carries them out among ranks on any machines, by messages over TCP: authenticated, and encrypted by default
//!   ([`Security`]).
//! - A [`PcieGroup`] carries them out among ranks that share memory through PCI, or any other memory that they can map. Ranks are
//!   authenticated, messages are not encrypted.
//! - An [`RdmaGroup`] carries them out by RDMA (RoCE v2), authenticated but not encrypted. The verbs library is loaded at run time.
//! - A [`Cluster`] is a board's fixed seat among others. Its groups change as boards fail and return, from [`Epoch`] to epoch.
//! - A [`TransferAgent`](transfer::TransferAgent) moves bytes between memory and files of two ranks, of which only one makes a call.
//! - A [`Queue`] runs the operations of any of them in the background.
//!
//! The crate opens no socket outside its transports, reads no clock in its engine, and neither prints nor exits.
//!
//! Read first: [`Communicator`] (the operations), [`ShmGroup`] and [`TcpGroup`], [`Collective`] and [`Algorithm`] (what, and how).

mod algorithm;
mod arithmetic;
mod call;
mod caller;
mod clock;
mod cluster;
mod collective;
mod communicator;
pub mod cost;
mod data;
mod element;
mod error;
mod failure;
mod meeting_file;
mod message;
#[cfg(test)]
mod mutations;
mod partition;
mod pcie;
mod priority;
mod publish;
mod quantization;
mod queue;
mod rdma;
mod recorder;
mod reduce;
mod reduction_tree;
mod regular_file;
mod schedule;
mod security;
mod shm;
mod silence;
mod split;
mod tcp;
mod topology;
pub mod transfer;
mod tuning;
mod wire_version;

pub use algorithm::Algorithm;
pub use call::Call;
pub use cluster::{
    ADDRESSES_MAX, Cluster, ClusterError, ClusterGroup, ClusterMonitor, ClusterRdma, ClusterSettings,
    ClusterTransport, Epoch, LinkFigures, ListError, MemberList, SEATS_MAX, Seat, SeatLink, SeatSet,
    SeatState,
};
pub use collective::Collective;
pub use communicator::Communicator;
pub use data::{DataType, ReduceOp};
pub use element::{Element, reduce};
pub use error::{CollectiveError, JoinError, RetryError};
pub use failure::FailureCause;
pub use message::{
    AllocateError, Engine, Failure, HEADER_BYTES, Header, Health, LinkFault, MappedMemory, Memory,
    MessageGroup, MessageSettings, Moved, NOTICE_BYTES, Notice, NumberedCall, OperationPlan, Order, Position,
    RankSet, Refusal, ShrinkNotice, ShrinkStage, Span, StreamReceiver, StreamSender, TCP_CONNECTIONS_MAX,
    TUNED_RANKS_MAX, Transport, Tune, Uniform, VectorMemory, Vote, WaitEnd,
};
pub use pcie::{Pcie, PcieGroup, PcieSettings};
pub use quantization::QuantizedElement;
pub use queue::{Pending, Queue};
pub use rdma::{
    Mtu, PortRefusal, Rdma, RdmaCounters, RdmaError, RdmaGroup, RdmaLink, RdmaPolicy, RdmaPort, RdmaSettings,
    RefusedPort, rdma_ports,
};
pub use recorder::{FlightRecord, OperationRecord, OperationState, RankWaits, Statistics};
pub use schedule::{Buffer, Local, Region, Round, Schedule, Transfer, Unsupported, schedule};
pub use security::{GroupKey, KeyError, KeyPair, PublicKey, Security, SigningKey, VerifyingKey};
pub use shm::{Limits, Settings, ShmGroup};
pub use silence::SILENCE_MIN;
pub use tcp::{Rendezvous, SharedPorts, Tcp, TcpGroup, TcpSettings};
pub use topology::Topology;
pub use tuning::{Candidate, Drift, Explanation, Figures, FiguresError, Measured};
pub use wire_version::WireVersion;
