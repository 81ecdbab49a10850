use crate::{MessageSettings, Security};

/// Settings of a group whose ranks exchange messages through a PCI window.
#[derive(Debug, Clone)]
pub struct PcieSettings {
    /// Keys by which ranks authenticate one another when they join. Messages are not encrypted. [`Security::Plaintext`] is for files of
    /// one machine only, and [`Security::FileKey`] is not supported.
    pub security: Security,
    /// Times, order and algorithms.
    pub messages: MessageSettings,
}

impl PcieSettings {
    /// Creates settings with these keys and the usual times.
    pub fn new(security: Security) -> Self {
        Self { security, messages: MessageSettings::default() }
    }
}
