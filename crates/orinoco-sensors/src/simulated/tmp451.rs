//! SBOS686.

use super::chip::{Model, SimulatedChip, converted, timeless};

static MODEL: Model = Model {
    defaults: &[
        (0x02, 0x04),
        (0x04, 0x08),
        (0x05, 0x55),
        (0x07, 0x55),
        (0x19, 0x6C),
        (0x20, 0x55),
        (0x21, 0x0A),
        (0x22, 0x01),
        (0xFE, 0x55),
    ],
    width: |_| 1,
    after_read,
    write,
    convert,
    advance: timeless,
};

impl SimulatedChip {
    /// Creates a TMP451 as after a reset, at 0 degrees, without a remote diode.
    pub fn tmp451() -> Self {
        Self::new(&MODEL)
    }
}

const STATUS: u8 = 0x02;

/// Reading the status clears the flags of the limits.
fn after_read(chip: &mut SimulatedChip, register: u8) {
    if register == STATUS {
        chip.set_bits(STATUS, 0b0111_1000, false);
    }
}

fn write(chip: &mut SimulatedChip, register: u8, value: u64) {
    match register {
        0x09 => chip.set_register(0x03, value & 0xE4),
        0x0A => chip.set_register(0x04, value & 0x0F),
        0x0B..=0x0E => chip.set_register(register - 6, value),
        0x0F => convert_now(chip),
        // The low bytes have four bits.
        0x12..=0x14 => chip.set_register(register, value & 0xF0),
        0x11 | 0x19 | 0x20..=0x24 => chip.set_register(register, value),
        _ => {}
    }
}

fn convert(chip: &mut SimulatedChip) {
    if chip.register(0x03) & 1 << 6 == 0 {
        convert_now(chip);
    }
}

fn convert_now(chip: &mut SimulatedChip) {
    let local = number(chip, chip.inputs.local);
    store(chip, 0x00, 0x15, local);
    let offset = (chip.register(0x11) << 8 | chip.register(0x12)) as u16 as i16 >> 4;
    let remote = chip.inputs.remote.map(|remote| number(chip, remote + i64::from(offset) * 62_500));
    store(chip, 0x01, 0x10, remote.unwrap_or(0));
    raise_all(chip, local, remote);
}

/// Returns the number of 12 bits of a temperature.
fn number(chip: &SimulatedChip, temperature: i64) -> u64 {
    match chip.register(0x03) & 1 << 2 {
        0 => converted(temperature, 62_500, 0, 0x7FF) as u64,
        _ => converted(temperature + 64_000_000, 62_500, 0, 0xFFF) as u64,
    }
}

fn store(chip: &mut SimulatedChip, high: u8, low: u8, number: u64) {
    chip.set_register(high, number >> 4);
    chip.set_register(low, number << 4 & 0xF0);
}

fn raise_all(chip: &mut SimulatedChip, local: u64, remote: Option<u64>) {
    let degrees = |register| chip.register(register) << 4;
    let limit = |high, low| chip.register(high) << 4 | chip.register(low) >> 4;
    let flags = [
        (6, local > degrees(0x05)),
        (5, local < degrees(0x06)),
        (4, remote.is_some_and(|remote| remote > limit(0x07, 0x13))),
        (3, remote.is_some_and(|remote| remote < limit(0x08, 0x14))),
    ];
    let states = [
        (2, remote.is_none()),
        (1, remote.is_some_and(|remote| remote > degrees(0x19))),
        (0, local > degrees(0x20)),
    ];
    for (bit, _) in flags.into_iter().filter(|(_, is_raised)| *is_raised) {
        chip.set_bits(STATUS, 1 << bit, true);
    }
    for (bit, is_set) in states {
        chip.set_bits(STATUS, 1 << bit, is_set);
    }
}
