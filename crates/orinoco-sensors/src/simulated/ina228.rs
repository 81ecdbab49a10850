//! SLYS021.

use super::chip::{Model, SimulatedChip, converted};

static MODEL: Model = Model {
    defaults: &[
        (0x01, 0xFB68),
        (0x02, 0x1000),
        (0x0B, 0x0001),
        (0x0C, 0x7FFF),
        (0x0D, 0x8000),
        (0x0E, 0x7FFF),
        (0x10, 0x7FFF),
        (0x11, 0xFFFF),
        (0x3E, 0x5449),
        (0x3F, 0x2281),
    ],
    width: |register| match register {
        0x04 | 0x05 | 0x07 | 0x08 => 3,
        0x09 | 0x0A => 5,
        _ => 2,
    },
    after_read,
    write,
    convert,
    advance,
};

impl SimulatedChip {
    /// Creates an INA228 as after a reset, with nothing at its inputs, at 0 degrees.
    pub fn ina228() -> Self {
        Self::new(&MODEL)
    }
}

const DIAGNOSTICS: u8 = 0x0B;
const BITS_20: i64 = 1 << 19;

fn after_read(chip: &mut SimulatedChip, register: u8) {
    match register {
        0x09 => chip.set_bits(DIAGNOSTICS, 1 << 11, false),
        0x0A => chip.set_bits(DIAGNOSTICS, 1 << 10, false),
        DIAGNOSTICS => {
            let is_latched = chip.register(DIAGNOSTICS) & 1 << 15 != 0;
            chip.set_bits(DIAGNOSTICS, 1 << 1 | if is_latched { 0b1111_1100 } else { 0 }, false);
        }
        _ => {}
    }
}

fn write(chip: &mut SimulatedChip, register: u8, value: u64) {
    match register {
        0x00 if value & 1 << 15 != 0 => chip.reset(),
        0x00 => {
            chip.set_register(0x00, value & 0x3FF0);
            if value & 1 << 14 != 0 {
                chip.set_register(0x09, 0);
                chip.set_register(0x0A, 0);
                chip.inputs.rests = (0, 0);
            }
        }
        0x01 => {
            chip.set_register(0x01, value);
            if (1..=7).contains(&(value >> 12)) {
                convert_by(chip, value >> 12);
            }
        }
        0x02 | 0x0E | 0x0F => chip.set_register(register, value & 0x7FFF),
        0x03 => chip.set_register(register, value & 0x3FFF),
        0x0C | 0x0D | 0x10 | 0x11 => chip.set_register(register, value),
        DIAGNOSTICS => {
            let flags = chip.register(DIAGNOSTICS) & 0x0FFF;
            chip.set_register(DIAGNOSTICS, value & 0xF000 | flags);
        }
        _ => {}
    }
}

fn convert(chip: &mut SimulatedChip) {
    let mode = chip.register(0x01) >> 12;
    if mode > 8 {
        convert_by(chip, mode & 7);
    }
}

/// Converts the bus (bit 0), the shunt (bit 1) and the temperature (bit 2), and computes current and power.
fn convert_by(chip: &mut SimulatedChip, quantities: u64) {
    let (bus, shunt) = chip.inputs.rails[0];
    let is_narrow = chip.register(0x00) & 1 << 4 != 0;
    if quantities & 1 != 0 {
        let steps = converted(bus, 195_312_500, 0, BITS_20 - 1);
        chip.set_register(0x05, (steps as u64) << 4);
    }
    if quantities & 2 != 0 {
        let step = if is_narrow { 78_125 } else { 312_500 };
        let steps = converted(shunt, step, -BITS_20, BITS_20 - 1);
        chip.set_register(0x04, (steps << 4) as u64 & 0xFF_FFFF);
    }
    if quantities & 4 != 0 {
        let steps = converted(chip.inputs.local * 1_000, 7_812_500, -32_768, 32_767);
        chip.set_register(0x06, steps as u64 & 0xFFFF);
    }
    // A step of the current is SHUNT_CAL / (13107.2e6 * shunt), so with 4096 it is one of the shunt voltage.
    let current = (signed(chip, 0x04, 24) / 16 * 4_096).checked_div(chip.register(0x02) as i64).unwrap_or(0);
    // Power = 3.2 * current in steps; a step of the bus is 195.3125 uV: power = current * bus * 195.3125e-6 / 3.2.
    let power = current.unsigned_abs() * (chip.register(0x05) >> 4) / 16_384;
    let is_overflow = !(-BITS_20..BITS_20).contains(&current) || power > 0xFF_FFFF;
    chip.set_bits(DIAGNOSTICS, 1 << 9, is_overflow);
    chip.set_register(0x07, (current.clamp(-BITS_20, BITS_20 - 1) << 4) as u64 & 0xFF_FFFF);
    chip.set_register(0x08, power.min(0xFF_FFFF));
    raise_all(chip);
    chip.set_bits(DIAGNOSTICS, 1 << 1, true);
}

/// Value of a register of `bits` bits with its sign.
fn signed(chip: &SimulatedChip, register: u8, bits: u32) -> i64 {
    let value = chip.register(register) as i64;
    if value >> (bits - 1) == 1 { value - (1 << bits) } else { value }
}

fn raise_all(chip: &mut SimulatedChip) {
    // A limit's step is 16 steps of a reading, for the shunt and the bus; 256 for the power.
    let shunt = signed(chip, 0x04, 24) >> 4;
    let bus = (chip.register(0x05) >> 4) as i64;
    let flags = [
        (7, signed(chip, 0x06, 16) > signed(chip, 0x10, 16)),
        (6, shunt > signed(chip, 0x0C, 16) * 16),
        (5, shunt < signed(chip, 0x0D, 16) * 16),
        (4, bus > chip.register(0x0E) as i64 * 16),
        (3, bus < chip.register(0x0F) as i64 * 16),
        (2, chip.register(0x08) > chip.register(0x11) * 256),
    ];
    let is_latched = chip.register(DIAGNOSTICS) & 1 << 15 != 0;
    for (bit, is_raised) in flags {
        if is_raised || !is_latched {
            chip.set_bits(DIAGNOSTICS, 1 << bit, is_raised);
        }
    }
}

/// Accumulates energy, in steps of 16 s of a step of the power, and charge, in steps of 1 s of a step of the current.
fn advance(chip: &mut SimulatedChip, time_us: u64) {
    const BITS_40: u64 = 1 << 40;
    let power = i128::from(chip.register(0x08));
    let current = i128::from(signed(chip, 0x07, 24) >> 4);
    let (energy, charge) = chip.inputs.rests;
    let energy = energy + power * i128::from(time_us);
    let charge = charge + current * i128::from(time_us);
    chip.inputs.rests = (energy.rem_euclid(16_000_000), charge.rem_euclid(1_000_000));
    let energy = chip.register(0x09) + energy.div_euclid(16_000_000) as u64;
    let charge = signed(chip, 0x0A, 40) + charge.div_euclid(1_000_000) as i64;
    let is_within = (-(BITS_40 as i64) / 2..BITS_40 as i64 / 2).contains(&charge);
    chip.set_bits(DIAGNOSTICS, 1 << 11, energy >= BITS_40);
    chip.set_bits(DIAGNOSTICS, 1 << 10, !is_within);
    chip.set_register(0x09, energy % BITS_40);
    chip.set_register(0x0A, charge as u64 % BITS_40);
}
