//! SBOS288.

use super::chip::{Model, SimulatedChip, converted, nothing, timeless};

static MODEL: Model = Model {
    defaults: &[(0x02, 0x4B00), (0x03, 0x5000)],
    width: |register| if register == 0x01 { 1 } else { 2 },
    after_read: nothing,
    write,
    convert,
    advance: timeless,
};

impl SimulatedChip {
    /// Creates a TMP75 as after a reset, at 0 degrees.
    pub fn tmp75() -> Self {
        Self::new(&MODEL)
    }
}

fn write(chip: &mut SimulatedChip, register: u8, value: u64) {
    match register {
        0x01 => {
            chip.set_register(0x01, value & 0x7F);
            if value & 0x81 == 0x81 {
                convert_now(chip);
            }
        }
        0x02 | 0x03 => chip.set_register(register, value & 0xFFF0),
        _ => {}
    }
}

fn convert(chip: &mut SimulatedChip) {
    if chip.register(0x01) & 1 == 0 {
        convert_now(chip);
    }
}

/// Converts with 9 to 12 bits, aligned to the left.
fn convert_now(chip: &mut SimulatedChip) {
    let finer = (chip.register(0x01) >> 5 & 3) as u32;
    let steps = converted(chip.inputs.local, 500_000 >> finer, -(256 << finer), (256 << finer) - 1);
    chip.set_register(0x00, (steps << (7 - finer)) as u64 & 0xFFFF);
}
