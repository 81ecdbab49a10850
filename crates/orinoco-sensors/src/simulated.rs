//! Simulated chips on a simulated I2C bus, for tests and examples without hardware. They are files of registers,
//! written from the datasheets and without the drivers' code: they convert what is applied to their inputs, saturate,
//! and raise their alerts. They have no noise, and a conversion takes no time.

mod chip;
mod fault;
mod ina226;
mod ina228;
mod ina3221;
mod tmp451;
mod tmp75;

use embedded_hal::i2c::{ErrorType, I2c, Operation};
use heapless::Vec;

pub use chip::SimulatedChip;
pub use fault::SimulatedFault;

/// Simulated I2C bus with up to `CHIPS` chips.
#[derive(Debug, Default)]
pub struct SimulatedBus<const CHIPS: usize> {
    chips: Vec<(u8, SimulatedChip), CHIPS>,
    failures: u32,
    transactions: u64,
}

impl<const CHIPS: usize> SimulatedBus<CHIPS> {
    /// Creates a bus without chips.
    pub fn new() -> Self {
        Self { chips: Vec::new(), failures: 0, transactions: 0 }
    }

    /// Adds a chip.
    ///
    /// # Panics
    /// Panics if the bus has no place, or a chip at this address.
    pub fn add(&mut self, address: u8, chip: SimulatedChip) {
        assert!(self.chip(address).is_none(), "there is a chip at {address:#04x}");
        assert!(self.chips.push((address, chip)).is_ok(), "the bus has {CHIPS} chips");
    }

    /// Returns the chip at an address.
    pub fn chip(&mut self, address: u8) -> Option<&mut SimulatedChip> {
        self.chips.iter_mut().find(|(own, _)| *own == address).map(|(_, chip)| chip)
    }

    /// Makes the next transactions fail.
    pub fn fail_next(&mut self, transactions: u32) {
        self.failures = transactions;
    }

    /// Returns the number of transactions so far, failed ones included.
    pub fn transactions(&self) -> u64 {
        self.transactions
    }
}

impl<const CHIPS: usize> ErrorType for SimulatedBus<CHIPS> {
    type Error = SimulatedFault;
}

impl<const CHIPS: usize> I2c for SimulatedBus<CHIPS> {
    fn transaction(&mut self, address: u8, operations: &mut [Operation<'_>]) -> Result<(), SimulatedFault> {
        self.transactions += 1;
        if self.failures > 0 {
            self.failures -= 1;
            return Err(SimulatedFault::Injected);
        }
        let chip = self.chip(address).ok_or(SimulatedFault::NoChip(address))?;
        operations.iter_mut().try_for_each(|operation| match operation {
            Operation::Write([register, value @ ..]) => chip.select(*register, value),
            Operation::Write([]) => Err(SimulatedFault::WrongLength),
            Operation::Read(bytes) => chip.read_selected(bytes),
        })
    }
}
