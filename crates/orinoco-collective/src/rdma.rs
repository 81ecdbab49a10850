//! Messages by RDMA (RoCE v2): each rank writes into rings in the memory of the others, and their systems take no part.
//!
//! Ranks join by TCP, where they are authenticated, and notices stay there: signs of life and failures are those of a group over
//! TCP. Messages travel over reliable queue pairs, one for each pair of ranks.
//!
//! What can be reckoned without a device ([`flow`], [`immediate`], [`slots`], [`endpoint`], [`port`]) is apart from the calls of
//! libibverbs ([`verbs`]), and what uses a device ([`links`]) knows it by what it does ([`device`]): in tests, it is simulated.

mod agreement;
mod announcement;
mod announcer;
mod device;
mod endpoint;
pub(crate) mod error;
mod flow;
mod immediate;
mod join;
mod links;
mod mtu;
mod port;
mod sender;
mod settings;
#[cfg(test)]
mod simulated;
mod slots;
mod transport;
mod verbs;
mod wire;

pub(crate) use agreement::Agreed;
pub use error::RdmaError;
pub use join::RdmaGroup;
pub(crate) use join::{RdmaRequest, connect};
pub use mtu::Mtu;
pub use port::{PortRefusal, RdmaLink, RdmaPort, RefusedPort};
pub use settings::{RdmaPolicy, RdmaSettings};
pub use transport::Rdma;
pub use verbs::{RdmaCounters, rdma_ports};
