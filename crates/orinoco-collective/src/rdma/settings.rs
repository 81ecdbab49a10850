use crate::{MessageSettings, Security};

/// Whether ranks use RDMA.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RdmaPolicy {
    /// No: TCP only.
    #[default]
    Off,
    /// If all ranks of the group can; otherwise TCP.
    Preferred,
    /// Yes: there is no group unless all its ranks can.
    Required,
}

/// Settings of a group whose ranks are connected by RDMA.
#[derive(Debug, Clone)]
pub struct RdmaSettings {
    /// Protection of the TCP connections by which ranks join and give signs of life. Vectors are neither encrypted nor
    /// authenticated one by one.
    pub security: Security,
    /// Name of the RDMA device (`rdma link` lists them) instead of the one that has the addresses of the TCP connections.
    pub device: Option<String>,
    /// Times, order and algorithms.
    pub messages: MessageSettings,
}

impl RdmaSettings {
    /// Creates settings with this protection, any device and the usual times.
    pub fn new(security: Security) -> Self {
        Self { security, device: None, messages: MessageSettings::default() }
    }
}
