//! SBOS547.

use super::chip::{Model, SimulatedChip, converted, timeless};

static MODEL: Model = Model {
    defaults: &[(0x00, 0x4127), (0xFE, 0x5449), (0xFF, 0x2260)],
    width: |_| 2,
    after_read,
    write,
    convert,
    advance: timeless,
};

impl SimulatedChip {
    /// Creates an INA226 as after a reset, with nothing at its inputs.
    pub fn ina226() -> Self {
        Self::new(&MODEL)
    }
}

const MASK_ENABLE: u8 = 0x06;
const ALERT: u64 = 1 << 4;
const CONVERTED: u64 = 1 << 3;
const OVERFLOW: u64 = 1 << 2;

fn after_read(chip: &mut SimulatedChip, register: u8) {
    if register == MASK_ENABLE {
        let is_latched = chip.register(MASK_ENABLE) & 1 != 0;
        chip.set_bits(MASK_ENABLE, CONVERTED | if is_latched { ALERT } else { 0 }, false);
    }
}

fn write(chip: &mut SimulatedChip, register: u8, value: u64) {
    match register {
        0x00 if value & 1 << 15 != 0 => chip.reset(),
        0x00 => {
            chip.set_register(0x00, value);
            if (1..=3).contains(&(value & 7)) {
                convert_by(chip, value & 3);
            }
        }
        0x05 => chip.set_register(0x05, value & 0x7FFF),
        MASK_ENABLE => {
            let flags = chip.register(MASK_ENABLE) & (ALERT | CONVERTED | OVERFLOW);
            chip.set_register(MASK_ENABLE, value & 0xFC03 | flags);
        }
        0x07 => chip.set_register(0x07, value),
        _ => {}
    }
}

fn convert(chip: &mut SimulatedChip) {
    let mode = chip.register(0x00) & 7;
    if mode > 4 {
        convert_by(chip, mode & 3);
    }
}

/// Converts the shunt (bit 0) and the bus (bit 1), and computes current and power.
fn convert_by(chip: &mut SimulatedChip, quantities: u64) {
    let (bus, shunt) = chip.inputs.rails[0];
    if quantities & 1 != 0 {
        let steps = converted(shunt, 2_500_000, -32_768, 32_767);
        chip.set_register(0x01, steps as u64 & 0xFFFF);
    }
    if quantities & 2 != 0 {
        chip.set_register(0x02, converted(bus, 1_250_000_000, 0, 32_767) as u64);
    }
    // Current = shunt * CAL / 2048, power = current * bus / 20,000.
    let current = i64::from(chip.register(0x01) as u16 as i16) * chip.register(0x05) as i64 / 2_048;
    let power = current.abs() * chip.register(0x02) as i64 / 20_000;
    chip.set_bits(MASK_ENABLE, OVERFLOW, i16::try_from(current).is_err() || u16::try_from(power).is_err());
    chip.set_register(0x04, current.clamp(-32_768, 32_767) as u64 & 0xFFFF);
    chip.set_register(0x03, power.min(65_535) as u64);
    raise(chip);
    chip.set_bits(MASK_ENABLE, CONVERTED, true);
}

fn raise(chip: &mut SimulatedChip) {
    let mask = chip.register(MASK_ENABLE);
    let (limit, shunt) = (chip.register(0x07), chip.register(0x01) as u16 as i16);
    let is_raised = match mask >> 11 {
        0b10000 => shunt > limit as u16 as i16,
        0b01000 => shunt < limit as u16 as i16,
        0b00100 => chip.register(0x02) > limit,
        0b00010 => chip.register(0x02) < limit,
        0b00001 => chip.register(0x03) > limit,
        _ => false,
    };
    if is_raised || mask & 1 == 0 {
        chip.set_bits(MASK_ENABLE, ALERT, is_raised);
    }
}
