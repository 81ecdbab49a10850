//! CPU implementations of `kernels/convert.cu` and `kernels/reduce.cu`. The other kernels' twins are in
//! `orinoco-vision`.

use crate::launch::{Element, Reduction};

/// Element `index` of a tensor's bytes.
pub fn load(tensor: &[u8], element: Element, index: usize) -> f32 {
    let at = index * element.bytes();
    match element {
        Element::F32 => f32::from_le_bytes(tensor[at..][..4].try_into().expect("four bytes")),
        Element::F16 => f32_of_f16(half_at(tensor, at)),
        Element::Bf16 => f32::from_bits(u32::from(half_at(tensor, at)) << 16),
        Element::U8 => f32::from(tensor[at]),
    }
}

/// Stores element `index` of a tensor's bytes: to the nearest value, ties to even. Bytes are cut to 0 to 255.
pub fn store(tensor: &mut [u8], element: Element, index: usize, value: f32) {
    let place = &mut tensor[index * element.bytes()..][..element.bytes()];
    match element {
        Element::F32 => place.copy_from_slice(&value.to_le_bytes()),
        Element::F16 => place.copy_from_slice(&f16_of(value).to_le_bytes()),
        Element::Bf16 => place.copy_from_slice(&bf16_of(value).to_le_bytes()),
        Element::U8 => place[0] = value.round_ties_even() as u8,
    }
}

/// `a op b`, in f32. Minimum and maximum are those of IEEE 754-2019: NaN wins, and -0 lies below +0.
pub fn reduced(reduction: Reduction, a: f32, b: f32) -> f32 {
    match reduction {
        Reduction::Sum => a + b,
        _ if a.is_nan() || b.is_nan() => f32::NAN,
        Reduction::Minimum => {
            if a.total_cmp(&b).is_lt() {
                a
            } else {
                b
            }
        }
        Reduction::Maximum => {
            if a.total_cmp(&b).is_gt() {
                a
            } else {
                b
            }
        }
    }
}

fn half_at(tensor: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([tensor[at], tensor[at + 1]])
}

/// To bfloat16. Any NaN becomes 0x7fff.
pub fn bf16_of(value: f32) -> u16 {
    if value.is_nan() {
        return 0x7fff;
    }
    let bits = value.to_bits();
    (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// To binary16. Any NaN becomes 0x7fff.
pub fn f16_of(value: f32) -> u16 {
    let (sign, magnitude) = ((value.to_bits() >> 16 & 0x8000) as u16, value.abs());
    if value.is_nan() {
        return 0x7fff;
    }
    // Half way from the greatest finite value, 65504, to the one after it.
    if magnitude >= 65520.0 {
        return sign | 0x7c00;
    }
    // In units of the last place, which is 2^-24 below 2^-14: exact, since it only moves the exponent.
    let exponent = ((magnitude.to_bits() >> 23) as i32 - 127).max(-14);
    let units = (f64::from(magnitude) * 2f64.powi(10 - exponent)).round_ties_even() as u16;
    // A normal value's units go from 1024; rounding up to 2048 carries into the exponent, as it should.
    sign | (((exponent + 14) as u16) << 10).wrapping_add(units)
}

/// From binary16.
pub fn f32_of_f16(half: u16) -> f32 {
    let (exponent, mantissa) = (i32::from(half >> 10 & 0x1f), f32::from(half & 0x3ff));
    let magnitude = match exponent {
        31 if mantissa > 0.0 => f32::NAN,
        31 => f32::INFINITY,
        0 => mantissa * 2f32.powi(-24),
        _ => (1024.0 + mantissa) * 2f32.powi(exponent - 25),
    };
    if half & 0x8000 == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values around every binade of both halves, and what lies beyond.
    fn values() -> impl Iterator<Item = f32> {
        let near = (0..0x7f80u32).flat_map(|top| {
            [0, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001].map(|low| top << 16 | low)
        });
        near.flat_map(|bits| [f32::from_bits(bits), -f32::from_bits(bits)])
            .chain([f32::INFINITY, f32::NEG_INFINITY])
    }

    #[test]
    fn halves_are_those_of_the_half_crate() {
        for value in values() {
            assert_eq!(f16_of(value), half::f16::from_f32(value).to_bits(), "{value:e}");
            assert_eq!(bf16_of(value), half::bf16::from_f32(value).to_bits(), "{value:e}");
        }
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (f32_of_f16(bits), half::f16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(), "{bits:#x}");
        }
        assert_eq!((f16_of(f32::NAN), bf16_of(f32::NAN)), (0x7fff, 0x7fff));
    }

    #[test]
    fn minimum_and_maximum_do_not_depend_on_the_order() {
        let values = [0.0, -0.0, 1.5, -2.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
        for reduction in [Reduction::Minimum, Reduction::Maximum] {
            for a in values {
                for b in values {
                    let (one, other) = (reduced(reduction, a, b), reduced(reduction, b, a));
                    assert_eq!(one.to_bits(), other.to_bits(), "{reduction:?} of {a} and {b}");
                    assert_eq!(one.is_nan(), a.is_nan() || b.is_nan());
                }
            }
        }
        assert!(reduced(Reduction::Minimum, 0.0, -0.0).is_sign_negative());
    }
}
