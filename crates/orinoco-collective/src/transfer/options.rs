use std::time::Duration;

/// Options of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferOptions {
    /// Longest time for the whole transfer.
    pub deadline: Duration,
    /// Notifies the owner of the region, with this value: of a put when its last byte is in the region, of a get when its last byte was
    /// read from the region, which may then be changed.
    pub notify: Option<u64>,
    /// Returns from a put, or from a copy, when the bytes are on the disk of the rank that receives them (`fdatasync`), if its region
    /// is a file.
    pub durable: bool,
}

impl Default for TransferOptions {
    /// A minute, without a notification, not durable.
    fn default() -> Self {
        Self { deadline: Duration::from_secs(60), notify: None, durable: false }
    }
}
