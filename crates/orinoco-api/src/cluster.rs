//! Answers of `orinoco cluster`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Name and version of the contract of [`ClusterKey`].
pub const CLUSTER_KEY_SCHEMA: &str = "orinoco.cluster-key/1";
/// Name and version of the contract of [`ClusterList`].
pub const CLUSTER_LIST_SCHEMA: &str = "orinoco.cluster-list/1";

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

/// Seat in a list of members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterSeat {
    /// Name of the seat.
    pub name: String,
    /// Address at which the others reach it.
    pub address: String,
    /// Public key of its board, as 64 hexadecimal digits.
    pub public_key: String,
    /// Whether it decides when exactly half of the seats can reach one another.
    pub witness: bool,
}
