//! SBOS576.

use super::chip::{Model, SimulatedChip, converted, timeless};

static MODEL: Model = Model {
    defaults: &[
        (0x00, 0x7127),
        (0x07, 0x7FF8),
        (0x08, 0x7FF8),
        (0x09, 0x7FF8),
        (0x0A, 0x7FF8),
        (0x0B, 0x7FF8),
        (0x0C, 0x7FF8),
        (0x0E, 0x7FFE),
        (0x0F, 0x0002),
        (0x10, 0x2710),
        (0x11, 0x2328),
        (0xFE, 0x5449),
        (0xFF, 0x3220),
    ],
    width: |_| 2,
    after_read,
    write,
    convert,
    advance: timeless,
};

impl SimulatedChip {
    /// Creates an INA3221 as after a reset, with nothing at its inputs.
    pub fn ina3221() -> Self {
        Self::new(&MODEL)
    }
}

const MASK_ENABLE: u8 = 0x0F;

/// Reading Mask/Enable clears the flag of finished conversions, and the flags whose latch is enabled.
fn after_read(chip: &mut SimulatedChip, register: u8) {
    if register != MASK_ENABLE {
        return;
    }
    let latches = chip.register(MASK_ENABLE);
    chip.set_bits(MASK_ENABLE, 1, false);
    if latches & 1 << 10 != 0 {
        chip.set_bits(MASK_ENABLE, 0b1111 << 6, false);
    }
    if latches & 1 << 11 != 0 {
        chip.set_bits(MASK_ENABLE, 0b111 << 3, false);
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
        0x07..=0x0C | 0x10 | 0x11 => chip.set_register(register, value & 0xFFF8),
        0x0E => chip.set_register(register, value & 0xFFFE),
        // Flags are read-only, and the highest bit is reserved.
        MASK_ENABLE => {
            let flags = chip.register(MASK_ENABLE) & 0x03FF;
            chip.set_register(MASK_ENABLE, value & 0x7C00 | flags);
        }
        _ => {}
    }
}

fn convert(chip: &mut SimulatedChip) {
    let mode = chip.register(0x00) & 7;
    if mode > 4 {
        convert_by(chip, mode & 3);
    }
}

/// Converts shunts (bit 0) and buses (bit 1) of the enabled channels.
fn convert_by(chip: &mut SimulatedChip, quantities: u64) {
    let is_enabled = |chip: &SimulatedChip, channel: u8| chip.register(0x00) & 1 << (14 - channel) != 0;
    for channel in (0..3).filter(|channel| is_enabled(chip, *channel)).collect::<heapless::Vec<u8, 3>>() {
        let (bus, shunt) = chip.inputs.rails[usize::from(channel)];
        if quantities & 1 != 0 {
            let steps = converted(shunt, 40_000_000, -4_096, 4_095);
            chip.set_register(0x01 + 2 * channel, (steps << 3) as u64 & 0xFFFF);
            raise_limits(chip, channel);
        }
        if quantities & 2 != 0 {
            let steps = converted(bus, 8_000_000_000, -4_096, 4_095);
            chip.set_register(0x02 + 2 * channel, (steps << 3) as u64 & 0xFFFF);
        }
    }
    raise_sum(chip);
    update_power_valid(chip);
    chip.set_bits(MASK_ENABLE, 1, true);
}

/// Value of a register with its sign.
fn signed(chip: &SimulatedChip, register: u8) -> i64 {
    i64::from(chip.register(register) as u16 as i16)
}

fn raise_limits(chip: &mut SimulatedChip, channel: u8) {
    let shunt = signed(chip, 0x01 + 2 * channel);
    let is_critical = shunt > signed(chip, 0x07 + 2 * channel);
    let is_warning = shunt > signed(chip, 0x08 + 2 * channel);
    raise(chip, 1 << (9 - channel), is_critical, 10);
    raise(chip, 1 << (5 - channel), is_warning, 11);
}

fn raise_sum(chip: &mut SimulatedChip) {
    let is_summed = |channel: &u8| chip.register(MASK_ENABLE) & 1 << (14 - channel) != 0;
    let summed = (0..3_u8).filter(is_summed).map(|channel| signed(chip, 0x01 + 2 * channel) >> 3);
    let sum = summed.sum::<i64>().clamp(-16_384, 16_383);
    chip.set_register(0x0D, (sum << 1) as u64 & 0xFFFF);
    let is_above = sum << 1 > signed(chip, 0x0E);
    raise(chip, 1 << 6, is_above, 10);
}

/// Sets a flag, or clears it unless its latch, another bit, holds it.
fn raise(chip: &mut SimulatedChip, flag: u64, is_raised: bool, latch: u32) {
    let is_latched = chip.register(MASK_ENABLE) & 1 << latch != 0;
    if is_raised || !is_latched {
        chip.set_bits(MASK_ENABLE, flag, is_raised);
    }
}

fn update_power_valid(chip: &mut SimulatedChip) {
    let enabled = |channel: &u8| chip.register(0x00) & 1 << (14 - channel) != 0;
    let buses = || (0..3_u8).filter(enabled).map(|channel| signed(chip, 0x02 + 2 * channel));
    let is_up = buses().all(|bus| bus > signed(chip, 0x10));
    let is_down = buses().any(|bus| bus < signed(chip, 0x11));
    if is_up || is_down {
        chip.set_bits(MASK_ENABLE, 1 << 2, is_up);
    }
}
