use core::fmt;

use embedded_hal::i2c::{Error, ErrorKind};
use orinoco_core::Ohms;

/// Chip on an I2C bus, as messages name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Type of the chip: "INA3221".
    pub chip: &'static str,
    /// 7-bit address on the bus.
    pub address: u8,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} at {:#04x}", self.chip, self.address)
    }
}

/// Fault of a driver over a bus whose faults are `E`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SensorError<E> {
    /// The bus failed while a register was read.
    Read {
        /// Chip that was addressed.
        device: Device,
        /// Register that was read.
        register: u8,
        /// Fault of the bus.
        source: E,
    },
    /// The bus failed while a register was written.
    Write {
        /// Chip that was addressed.
        device: Device,
        /// Register that was written.
        register: u8,
        /// Fault of the bus.
        source: E,
    },
    /// Another chip answers at the address.
    WrongDevice {
        /// Chip that was expected.
        device: Device,
        /// Register that identifies the chip.
        register: u8,
        /// Value that was read.
        read: u16,
        /// Value that the chip has there, in the bits of `mask`.
        expected: u16,
        /// Bits that were compared.
        mask: u16,
    },
    /// A shunt resistor of zero or less, through which no current can be computed.
    InvalidShunt {
        /// Chip that was set up.
        device: Device,
        /// Channel of the shunt, from 1.
        channel: u8,
        /// Resistance that was given.
        resistance: Ohms,
    },
}

impl<E: Error> SensorError<E> {
    /// Returns the kind of the bus's fault, if the bus failed.
    pub fn bus_fault(&self) -> Option<ErrorKind> {
        match self {
            Self::Read { source, .. } | Self::Write { source, .. } => Some(source.kind()),
            Self::WrongDevice { .. } | Self::InvalidShunt { .. } => None,
        }
    }
}

impl<E: fmt::Debug> fmt::Display for SensorError<E> {
    /// Writes a sentence. It includes the bus's fault, because those implement `Debug` only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { device, register, source } => {
                write!(f, "reading register {register:#04x} of {device}: {source:?}")
            }
            Self::Write { device, register, source } => {
                write!(f, "writing register {register:#04x} of {device}: {source:?}")
            }
            Self::WrongDevice { device, register, read, expected, mask } => write!(
                f,
                "{device} is another chip: its register {register:#04x} reads {read:#06x}, expected {expected:#06x} \
                 in the bits {mask:#06x}"
            ),
            Self::InvalidShunt { device, channel, resistance } => {
                write!(
                    f,
                    "{device} cannot have a shunt of {resistance:.6} at channel {channel}: it must be above zero"
                )
            }
        }
    }
}

impl<E: fmt::Debug> core::error::Error for SensorError<E> {}
