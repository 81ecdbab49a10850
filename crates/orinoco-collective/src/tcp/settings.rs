use crate::{MessageSettings, Security};

/// Settings of a group whose ranks are connected by TCP.
#[derive(Debug, Clone)]
pub struct TcpSettings {
    /// Protection of the connections.
    pub security: Security,
    /// Times, order and algorithms.
    pub messages: MessageSettings,
}

impl TcpSettings {
    /// Creates settings with this protection and the usual times.
    pub fn new(security: Security) -> Self {
        Self { security, messages: MessageSettings::default() }
    }
}
