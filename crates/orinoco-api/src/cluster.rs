//! State of a cluster, and answers of `orinoco cluster` and `orinoco links`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Name and version of the contract of [`ClusterKey`].
pub const CLUSTER_KEY_SCHEMA: &str = "orinoco.cluster-key/1";
/// Name and version of the contract of [`ClusterList`].
pub const CLUSTER_LIST_SCHEMA: &str = "orinoco.cluster-list/1";

/// Name and version of the contract of [`LinksReport`].
pub const LINKS_SCHEMA: &str = "orinoco.links/1";

/// Links of a board with the other seats of its cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinksReport {
    /// Name and version of this contract.
    #[schemars(extend("const" = LINKS_SCHEMA))]
    pub schema: String,
    /// Name of the cluster.
    pub cluster: String,
    /// Name of this board's seat.
    pub seat: String,
    /// Transport of the epoch's messages: `tcp` (encrypted), `tcp-plaintext` or `rdma` (both not encrypted); absent without an epoch.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub transport: Option<String>,
    /// RDMA device and port that the epoch uses; absent over TCP.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rdma_port: Option<String>,
    /// Other RDMA ports of this board, each with the reason for which the epoch does not use it, as sentences; empty over TCP.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub rdma_refused: Vec<String>,
    /// Reason for which the epoch uses TCP although the board file lists RDMA, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fallback: Option<String>,
    /// All seats, in the order of the list, with this board's links.
    pub seats: Vec<SeatStatus>,
    /// Measured links between all seats, as far as this board knows them.
    pub matrix: Vec<LinkFigures>,
}

/// Name and version of the contract of [`ClusterModels`].
pub const CLUSTER_MODELS_SCHEMA: &str = "orinoco.cluster-models/1";

/// Models that the boards of a cluster share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterModels {
    /// Name and version of this contract.
    #[schemars(extend("const" = CLUSTER_MODELS_SCHEMA))]
    pub schema: String,
    /// Name of the cluster.
    pub cluster: String,
    /// Name of the seat that was asked. It is not among `seats`.
    pub seat: String,
    /// The other seats of the epoch, in the order of the list.
    pub seats: Vec<SeatModels>,
}

/// Models that one board shares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SeatModels {
    /// Name of the seat.
    pub seat: String,
    /// Models that its board runs, where its board file has `share_models = true`.
    pub models: Vec<SharedModel>,
    /// Reason why the models are not known, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<String>,
}

/// Maximum length of a part of a model's file in an answer of the daemon, in bytes: less than a second at 10 Mb/s.
pub const MODEL_DATA_BYTES_MAX: u64 = 1 << 20;

/// Model that a board shares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SharedModel {
    /// Name of its folder in the repository.
    pub name: String,
    /// Version that the board runs; absent where the description names the ONNX file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub version: Option<u32>,
    /// Files from which the model is read, sorted by path.
    pub files: Vec<SharedFile>,
}

/// File of a model that a board shares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SharedFile {
    /// Path in the folder of the model, with slashes.
    pub path: String,
    /// Size of the file, in bytes.
    pub bytes: u64,
    /// SHA-256 of the file in hex.
    pub sha256: String,
    /// Whether it is the ONNX file, or has weights of it.
    pub graph: bool,
}

impl SharedModel {
    /// Returns the size of all its files, in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add)
    }
}

/// Public key of a board or of an operator, whose secret was written to a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterKey {
    /// Name and version of this contract.
    #[schemars(extend("const" = CLUSTER_KEY_SCHEMA))]
    pub schema: String,
    /// The key, as 64 hexadecimal digits. Of a board for `keygen`, of the operator for `sign`.
    pub public_key: String,
}

/// List of the members of a cluster, whose signature was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterList {
    /// Name and version of this contract.
    #[schemars(extend("const" = CLUSTER_LIST_SCHEMA))]
    pub schema: String,
    /// Name of the cluster.
    pub name: String,
    /// Serial number of the list.
    pub serial: u32,
    /// Seats, in the order of the list.
    pub seats: Vec<ClusterSeat>,
}

/// Seat in a member list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterSeat {
    /// Name of the seat.
    pub name: String,
    /// Address at which the others reach it; several have commas between them.
    pub address: String,
    /// Public key of its board, as 64 hexadecimal digits.
    pub public_key: String,
    /// Whether it decides when exactly half of the seats can reach one another.
    pub witness: bool,
}

/// Cluster of boards, as one of its seats sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterStatus {
    /// Name of the cluster.
    pub name: String,
    /// Serial number of the member list.
    pub serial: u32,
    /// Name of this board's seat.
    pub seat: String,
    /// Number of the epoch in which this seat takes part: a membership, from the time when its members have joined until one fails or
    /// leaves; absent where it waits for one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub epoch: Option<u32>,
    /// Reason for which there is no epoch, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<String>,
    /// Transport of the epoch's messages: `tcp` (encrypted), `tcp-plaintext` or `rdma` (both not encrypted); absent without an epoch.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub transport: Option<String>,
    /// RDMA device and port that the epoch uses; absent over TCP.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rdma_port: Option<String>,
    /// Other RDMA ports of this board, each with the reason for which the epoch does not use it, as sentences; empty over TCP.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub rdma_refused: Vec<String>,
    /// Reason for which the epoch uses TCP although the board file lists RDMA, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fallback: Option<String>,
    /// All seats, in the order of the list.
    pub seats: Vec<SeatStatus>,
    /// Measured links between seats, as far as this board knows them.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub matrix: Vec<LinkFigures>,
}

/// Measured figures of the link between two seats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkFigures {
    /// Name of the seat that has sent the figures.
    pub from: String,
    /// Name of the seat at the other end.
    pub to: String,
    /// Round trip of a short message, in microseconds.
    pub round_trip_us: f64,
    /// Rate in the slower one of both directions, in bytes per second.
    pub bytes_per_s: u64,
}

/// Link of this board with another seat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkStatus {
    /// Whether the present epoch uses it.
    pub used: bool,
    /// `tcp`; absent if no connection was possible.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub transport: Option<String>,
    /// Network interface of this board.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interface: Option<String>,
    /// Address of this board on the link.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub local: Option<String>,
    /// Address of the other seat; absent if no address of that seat is reached through the interface.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub address: Option<String>,
    /// MTU of the interface, in bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mtu: Option<u32>,
    /// Speed of the interface as its driver gives it, in Mb/s.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub speed_mbps: Option<u32>,
    /// Measured round trip of a short message, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub round_trip_us: Option<f64>,
    /// Measured rate in the slower one of both directions, with encryption, in bytes per second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes_per_s: Option<u64>,
    /// Reason for which it is not used or has no figures, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
}

/// Seat of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeatStatus {
    /// Name of the seat.
    pub name: String,
    /// Address at which the others reach it; several have commas between them.
    pub address: String,
    /// `member` of this seat's epoch; `waiting` for an epoch; `reachable`: connected, but neither; `unreachable`.
    pub state: String,
    /// Reason for which it could not be reached last, as a sentence; absent where it can be, or did not have to be tried. Of this
    /// board's own seat: the addresses at which it cannot listen.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<String>,
    /// Links with it: one for each of its addresses, and each faster network interface of this board that does not lead to it. Empty for
    /// this board's own seat.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub links: Vec<LinkStatus>,
    /// Answers of the seat to this board, where it executes models for it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub answers: Option<SeatAnswers>,
}

/// Answers of another seat that executes models for this board, since the daemon has started. The seat with the longest waits is the slow one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeatAnswers {
    /// Number of answers. An answer has the results of a batch of images.
    pub count: u64,
    /// Mean time from sending a batch to its answer, in milliseconds; absent without an answer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mean_ms: Option<f64>,
    /// The longest of these times, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub longest_ms: Option<f64>,
    /// Number of connections to it that were lost.
    pub lost_connections: u64,
}
