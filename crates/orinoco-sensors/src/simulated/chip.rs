use orinoco_core::{Celsius, Volts};

use super::fault::SimulatedFault;

/// Simulated chip: its registers, and what is applied to its inputs.
#[derive(Clone, Debug)]
pub struct SimulatedChip {
    model: &'static Model,
    pub(super) registers: [u64; 256],
    selected: u8,
    pub(super) inputs: Inputs,
}

/// Physical quantities at a chip.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Inputs {
    /// Voltage of each bus and across each shunt, in picovolts.
    pub(super) rails: [(i64, i64); 3],
    /// Temperatures of the chip and of the remote diode, in millionths of a degree.
    pub(super) local: i64,
    pub(super) remote: Option<i64>,
    /// Remainders of accumulated energy and charge, in steps times microseconds.
    pub(super) rests: (i128, i128),
}

/// Behaviour of a type of chip.
#[derive(Debug)]
pub(super) struct Model {
    /// Registers and their values after a reset.
    pub(super) defaults: &'static [(u8, u64)],
    /// Number of bytes of a register.
    pub(super) width: fn(u8) -> usize,
    /// Action after a register was read.
    pub(super) after_read: fn(&mut SimulatedChip, u8),
    /// Action that stores a value in a register; some store other bits, or elsewhere, or nothing.
    pub(super) write: fn(&mut SimulatedChip, u8, u64),
    /// Conversion of the inputs, where the chip converts continuously.
    pub(super) convert: fn(&mut SimulatedChip),
    /// Action for time that passes, in microseconds.
    pub(super) advance: fn(&mut SimulatedChip, u64),
}

impl SimulatedChip {
    /// Creates a chip as after a reset, with nothing at its inputs.
    pub(super) fn new(model: &'static Model) -> Self {
        let mut chip = Self { model, registers: [0; 256], selected: 0, inputs: Inputs::default() };
        chip.reset();
        chip
    }

    /// Applies the voltage of a bus, and the voltage across its shunt in picovolts, to a channel counted from 0. A chip
    /// that converts continuously converts it.
    pub fn set_rail(&mut self, channel: usize, bus: Volts, shunt_picovolts: i64) {
        self.inputs.rails[channel] = (bus.micro() * 1_000_000, shunt_picovolts);
        (self.model.convert)(self);
    }

    /// Sets the temperatures of the chip and of the remote diode, which may be open. A chip that converts continuously
    /// converts them.
    pub fn set_temperature(&mut self, local: Celsius, remote: Option<Celsius>) {
        self.inputs.local = local.micro();
        self.inputs.remote = remote.map(Celsius::micro);
        (self.model.convert)(self);
    }

    /// Lets time pass, in microseconds, for accumulators.
    pub fn advance(&mut self, time_us: u64) {
        (self.model.advance)(self, time_us);
    }

    /// Returns a register as it is, without what reading it through the bus would change.
    pub fn register(&self, register: u8) -> u64 {
        self.registers[usize::from(register)]
    }

    /// Changes a register as it is, without what writing it through the bus would do.
    pub fn set_register(&mut self, register: u8, value: u64) {
        self.registers[usize::from(register)] = value;
    }

    pub(super) fn reset(&mut self) {
        self.registers = [0; 256];
        for (register, value) in self.model.defaults {
            self.set_register(*register, *value);
        }
    }

    /// Changes the bits of a mask in a register.
    pub(super) fn set_bits(&mut self, register: u8, mask: u64, are_set: bool) {
        let value = self.register(register);
        self.set_register(register, if are_set { value | mask } else { value & !mask });
    }

    /// Selects a register, and writes it if there is a value.
    pub(super) fn select(&mut self, register: u8, value: &[u8]) -> Result<(), SimulatedFault> {
        self.selected = register;
        if value.is_empty() {
            return Ok(());
        }
        if value.len() != (self.model.width)(register) {
            return Err(SimulatedFault::WrongLength);
        }
        let value = value.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        (self.model.write)(self, register, value);
        Ok(())
    }

    /// Reads the selected register, with its most significant byte first.
    pub(super) fn read_selected(&mut self, bytes: &mut [u8]) -> Result<(), SimulatedFault> {
        if bytes.len() != (self.model.width)(self.selected) {
            return Err(SimulatedFault::WrongLength);
        }
        let value = self.register(self.selected).to_be_bytes();
        bytes.copy_from_slice(&value[8 - bytes.len()..]);
        (self.model.after_read)(self, self.selected);
        Ok(())
    }
}

/// Returns a conversion: the nearest number of steps, within its range.
pub(super) fn converted(input: i64, step: i64, least: i64, greatest: i64) -> i64 {
    (input + step / 2).div_euclid(step).clamp(least, greatest)
}

/// Action that does nothing.
pub(super) fn nothing(_: &mut SimulatedChip, _: u8) {}

/// Time that changes nothing.
pub(super) fn timeless(_: &mut SimulatedChip, _: u64) {}
