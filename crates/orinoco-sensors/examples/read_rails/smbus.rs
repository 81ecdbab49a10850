//! `embedded-hal`'s I2C over the SMBus commands of `/dev/i2c-*`, for adapters that have nothing else, such as the kernel's
//! i2c-stub and the SMBus of PCs.

use std::fmt;
use std::path::{Path, PathBuf};

use embedded_hal::i2c::{Error, ErrorKind, ErrorType, I2c, Operation};
use linux_embedded_hal::i2cdev::core::I2CDevice;
use linux_embedded_hal::i2cdev::linux::{LinuxI2CDevice, LinuxI2CError};

/// Bus that reads and writes registers of one or two bytes, and nothing else.
pub(crate) struct Smbus {
    path: PathBuf,
    /// Device of the latest transfer, with its address.
    device: Option<(u8, LinuxI2CDevice)>,
}

impl Smbus {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), device: None }
    }

    /// Returns the device at an address. It fails if a driver of the kernel holds the device.
    fn at(&mut self, address: u8) -> Result<&mut LinuxI2CDevice, LinuxI2CError> {
        let device = match self.device.take() {
            Some((open, device)) if open == address => device,
            _ => LinuxI2CDevice::new(&self.path, address.into())?,
        };
        Ok(&mut self.device.insert((address, device)).1)
    }
}

/// Reason why a transfer failed.
#[derive(Debug)]
pub(crate) enum SmbusError {
    /// The kernel reported a fault.
    Bus(LinuxI2CError),
    /// No SMBus command does this.
    Unsupported,
}

impl From<LinuxI2CError> for SmbusError {
    fn from(fault: LinuxI2CError) -> Self {
        Self::Bus(fault)
    }
}

impl fmt::Display for SmbusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bus(fault) => fault.fmt(f),
            Self::Unsupported => f.write_str("SMBus has no command for this transfer"),
        }
    }
}

impl std::error::Error for SmbusError {}

impl Error for SmbusError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Bus(_) => ErrorKind::Bus,
            Self::Unsupported => ErrorKind::Other,
        }
    }
}

impl ErrorType for Smbus {
    type Error = SmbusError;
}

impl I2c for Smbus {
    fn transaction(&mut self, address: u8, operations: &mut [Operation<'_>]) -> Result<(), SmbusError> {
        let device = self.at(address)?;
        // SMBus puts the low byte of a word on the bus first (System Management Bus specification 3.2, section 6.5.5).
        match operations {
            [Operation::Write([register]), Operation::Read(bytes)] => match &mut **bytes {
                [byte] => *byte = device.smbus_read_byte_data(*register)?,
                [first, second] => [*first, *second] = device.smbus_read_word_data(*register)?.to_le_bytes(),
                _ => return Err(SmbusError::Unsupported),
            },
            [Operation::Write([register, byte])] => device.smbus_write_byte_data(*register, *byte)?,
            [Operation::Write([register, first, second])] => {
                device.smbus_write_word_data(*register, u16::from_le_bytes([*first, *second]))?;
            }
            _ => return Err(SmbusError::Unsupported),
        }
        Ok(())
    }
}
