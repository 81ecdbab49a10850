//! Numbers of a register, and the quantities that they stand for. Shunt voltages are computed in picovolts: the finest
//! step of these chips is 78.125 nV, and a microampere through a microohm is a picovolt.

use orinoco_core::{Amperes, Ohms, Volts};

/// Picovolts of a microvolt.
pub(crate) const PICO_PER_MICRO: i64 = 1_000_000;

/// Encoding of a quantity in 16 bits or fewer: a whole number of steps, aligned to the left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Quantity of one step.
    step: i64,
    /// Unused bits to the right of the number.
    shift: u32,
    /// Least and greatest number of steps.
    least: i64,
    greatest: i64,
}

impl Scale {
    /// Creates the encoding as two's complement of `bits` bits.
    pub(crate) const fn signed(step: i64, bits: u32, shift: u32) -> Self {
        let half = 1 << (bits - 1);
        Self { step, shift, least: -half, greatest: half - 1 }
    }

    /// Creates the encoding as a number without sign, of `bits` bits.
    pub(crate) const fn unsigned(step: i64, bits: u32, shift: u32) -> Self {
        Self { step, shift, least: 0, greatest: (1 << bits) - 1 }
    }

    /// Returns the register of the nearest number of steps. What is out of range becomes the nearest end of the range.
    pub(crate) const fn encode(self, quantity: i64) -> u16 {
        let steps = nearest(quantity, self.step);
        let steps = if steps < self.least { self.least } else { steps };
        let steps = if steps > self.greatest { self.greatest } else { steps };
        (steps << self.shift) as u16
    }

    /// Returns the quantity of a register. Bits to the right of the number are ignored.
    pub(crate) const fn decode(self, register: u16) -> i64 {
        let number = if self.least < 0 { register as i16 as i64 } else { register as i64 };
        (number >> self.shift) * self.step
    }
}

/// Returns `value / step`, rounded to the nearest whole number, halves away from zero.
pub(crate) const fn nearest(value: i64, step: i64) -> i64 {
    let half = step / 2;
    if value < 0 { value.saturating_sub(half) / step } else { value.saturating_add(half) / step }
}

/// Returns `a * b / over` for `over` above zero, rounded to the nearest whole number. What is out of range becomes the
/// nearest number in range.
pub(crate) fn scaled(a: i64, b: i64, over: i64) -> i64 {
    let (product, over) = (i128::from(a) * i128::from(b), i128::from(over));
    let half = if product < 0 { -over / 2 } else { over / 2 };
    ((product + half) / over).clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

/// Returns a two's complement number of `bits` bits with its sign.
pub(crate) const fn sign_extended(value: u64, bits: u32) -> i64 {
    ((value << (64 - bits)) as i64) >> (64 - bits)
}

/// Returns the current that makes this voltage, in picovolts, across a shunt.
pub(crate) fn current_through(shunt: Ohms, picovolts: i64) -> Amperes {
    Amperes::from_micro(nearest(picovolts, shunt.micro()))
}

/// Returns the voltage, in picovolts, that a current makes across a shunt.
pub(crate) fn voltage_across(shunt: Ohms, current: Amperes) -> i64 {
    current.micro().saturating_mul(shunt.micro())
}

/// Returns picovolts as volts, rounded to a microvolt.
pub(crate) fn volts(picovolts: i64) -> Volts {
    Volts::from_micro(nearest(picovolts, PICO_PER_MICRO))
}

/// Returns volts in picovolts. What is out of range becomes the nearest number in range.
pub(crate) fn picovolts(volts: Volts) -> i64 {
    volts.micro().saturating_mul(PICO_PER_MICRO)
}
