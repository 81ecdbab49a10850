use embedded_hal::i2c::ErrorKind;
use orinoco_core::{Amperes, Volts, Watts};

/// Reading of one rail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RailReading {
    /// Voltage of the rail, against ground.
    pub voltage: Volts,
    /// Current into the load; negative where the load feeds the rail.
    pub current: Amperes,
}

impl RailReading {
    /// Returns the power, rounded towards zero to a microwatt.
    pub fn power(&self) -> Watts {
        self.voltage * self.current
    }
}

/// Chip that measures one rail or several: one argument of [`RailSampler::poll`](crate::RailSampler::poll). Its faults
/// are reduced to their kind, so that chips on different buses can be sampled together.
pub trait RailMeter {
    /// Returns the number of rails that the chip measures.
    fn rails(&self) -> usize;

    /// Reads a rail, counted from 0.
    ///
    /// # Errors
    /// Returns the kind of the bus's fault. There is none for a rail that the chip does not have: callers count up to
    /// [`rails`](Self::rails).
    ///
    /// # Panics
    /// Panics if there is no such rail.
    fn read_rail(&mut self, rail: usize) -> Result<RailReading, ErrorKind>;
}
