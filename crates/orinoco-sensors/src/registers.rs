//! Registers of a chip on an I2C bus: a pointer byte, then the value with its most significant byte first.

use embedded_hal::i2c::I2c;
use orinoco_core::Ohms;

use crate::error::{Device, SensorError};

/// Chip's registers, and the bus to them.
#[derive(Debug)]
pub(crate) struct Registers<I2C> {
    bus: I2C,
    device: Device,
}

impl<I2C: I2c> Registers<I2C> {
    pub(crate) fn new(bus: I2C, chip: &'static str, address: u8) -> Self {
        Self { bus, device: Device { chip, address } }
    }

    /// Returns the bus.
    pub(crate) fn release(self) -> I2C {
        self.bus
    }

    /// Fails unless the shunt at `channel` (from 1) has a resistance above zero.
    pub(crate) fn check_shunt(&self, channel: u8, resistance: Ohms) -> Result<(), SensorError<I2C::Error>> {
        match resistance > Ohms::ZERO {
            true => Ok(()),
            false => Err(SensorError::InvalidShunt { device: self.device, channel, resistance }),
        }
    }

    /// Fails unless a register has the expected value in the bits of `mask`.
    pub(crate) fn expect(
        &mut self,
        register: u8,
        expected: u16,
        mask: u16,
    ) -> Result<(), SensorError<I2C::Error>> {
        let read = self.read_u16(register)?;
        self.compare(register, read, expected, mask)
    }

    /// Fails unless a register of one byte has the expected value.
    pub(crate) fn expect_u8(&mut self, register: u8, expected: u8) -> Result<(), SensorError<I2C::Error>> {
        let read = self.read_u8(register)?;
        self.compare(register, read.into(), expected.into(), 0x00FF)
    }

    fn compare(
        &self,
        register: u8,
        read: u16,
        expected: u16,
        mask: u16,
    ) -> Result<(), SensorError<I2C::Error>> {
        match read & mask == expected & mask {
            true => Ok(()),
            false => Err(SensorError::WrongDevice { device: self.device, register, read, expected, mask }),
        }
    }

    /// Reads a register of `N` bytes.
    pub(crate) fn read<const N: usize>(&mut self, register: u8) -> Result<[u8; N], SensorError<I2C::Error>> {
        let device = self.device;
        let mut bytes = [0; N];
        self.bus.write_read(device.address, &[register], &mut bytes).map_err(|source| SensorError::Read {
            device,
            register,
            source,
        })?;
        Ok(bytes)
    }

    pub(crate) fn read_u8(&mut self, register: u8) -> Result<u8, SensorError<I2C::Error>> {
        self.read(register).map(u8::from_be_bytes)
    }

    pub(crate) fn read_u16(&mut self, register: u8) -> Result<u16, SensorError<I2C::Error>> {
        self.read(register).map(u16::from_be_bytes)
    }

    pub(crate) fn read_u24(&mut self, register: u8) -> Result<u32, SensorError<I2C::Error>> {
        let [high, middle, low] = self.read(register)?;
        Ok(u32::from_be_bytes([0, high, middle, low]))
    }

    pub(crate) fn read_u40(&mut self, register: u8) -> Result<u64, SensorError<I2C::Error>> {
        let [a, b, c, d, e] = self.read(register)?;
        Ok(u64::from_be_bytes([0, 0, 0, a, b, c, d, e]))
    }

    pub(crate) fn write_u8(&mut self, register: u8, value: u8) -> Result<(), SensorError<I2C::Error>> {
        self.write(register, &[register, value])
    }

    pub(crate) fn write_u16(&mut self, register: u8, value: u16) -> Result<(), SensorError<I2C::Error>> {
        let [high, low] = value.to_be_bytes();
        self.write(register, &[register, high, low])
    }

    fn write(&mut self, register: u8, bytes: &[u8]) -> Result<(), SensorError<I2C::Error>> {
        let device = self.device;
        self.bus.write(device.address, bytes).map_err(|source| SensorError::Write {
            device,
            register,
            source,
        })
    }
}
