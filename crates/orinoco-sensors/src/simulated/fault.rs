use embedded_hal::i2c::{Error, ErrorKind, NoAcknowledgeSource};

/// Fault of a [`SimulatedBus`](super::SimulatedBus).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulatedFault {
    /// No chip has this address.
    NoChip(u8),
    /// The transaction was made to fail.
    Injected,
    /// A register was read or written with a number of bytes that it does not have, or no register was selected.
    WrongLength,
}

impl Error for SimulatedFault {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoChip(_) => ErrorKind::NoAcknowledge(NoAcknowledgeSource::Address),
            Self::Injected => ErrorKind::Bus,
            Self::WrongLength => ErrorKind::Other,
        }
    }
}
