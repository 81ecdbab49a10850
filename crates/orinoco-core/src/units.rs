use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Div, Mul, Neg, Sub};
use core::time::Duration;

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $symbol:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(i64);

        impl $name {
            /// Zero.
            pub const ZERO: Self = Self(0);

            /// Creates the quantity from millionths of the unit.
            pub const fn from_micro(micro: i64) -> Self {
                Self(micro)
            }

            /// Creates the quantity from thousandths of the unit. A value out of range becomes the nearest one in range.
            pub const fn from_milli(milli: i64) -> Self {
                Self(milli.saturating_mul(1_000))
            }

            /// Creates the quantity from whole units. A value out of range becomes the nearest one in range.
            pub const fn from_units(units: i64) -> Self {
                Self(units.saturating_mul(1_000_000))
            }

            /// Returns the quantity in millionths of the unit.
            pub const fn micro(self) -> i64 {
                self.0
            }

            /// Returns the quantity in thousandths of the unit, rounded towards zero.
            pub const fn milli(self) -> i64 {
                self.0 / 1_000
            }

            /// Returns the quantity in units, for figures and displays.
            pub fn to_f64(self) -> f64 {
                self.0 as f64 / 1e6
            }

            /// Creates the quantity from a number of units, rounded to millionths. A value out of range becomes the nearest
            /// one in range, and a value that is not a number becomes 0.
            pub fn from_f64(units: f64) -> Self {
                let micro = units * 1e6;
                Self((if micro < 0.0 { micro - 0.5 } else { micro + 0.5 }) as i64)
            }

            /// Returns the quantity without its sign.
            pub const fn abs(self) -> Self {
                Self(self.0.saturating_abs())
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }

        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }

        impl Neg for $name {
            type Output = Self;
            fn neg(self) -> Self {
                Self(self.0.saturating_neg())
            }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
                items.fold(Self::ZERO, Add::add)
            }
        }

        impl fmt::Display for $name {
            /// Writes the quantity with three decimals, or with as many as the caller asks for, up to six.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_micro(f, self.0, $symbol)
            }
        }
    };
}

quantity! {
    /// Electric potential, held in microvolts.
    Volts, "V"
}

quantity! {
    /// Electric current, held in microamperes.
    Amperes, "A"
}

quantity! {
    /// Electric resistance, held in microohms.
    Ohms, "Ω"
}

quantity! {
    /// Power, held in microwatts.
    Watts, "W"
}

quantity! {
    /// Energy, held in microjoules.
    Joules, "J"
}

quantity! {
    /// Electric charge, held in microcoulombs.
    Coulombs, "C"
}

quantity! {
    /// Temperature in degrees Celsius, held in millionths of a degree.
    Celsius, "°C"
}

impl Mul<Amperes> for Volts {
    type Output = Watts;
    /// Returns the power, rounded towards zero to a microwatt.
    fn mul(self, current: Amperes) -> Watts {
        Watts(scaled(self.0, current.0, 1_000_000))
    }
}

impl Div<Ohms> for Volts {
    type Output = Amperes;
    /// Returns the current through a resistance, rounded towards zero to a microampere.
    ///
    /// # Panics
    /// Panics if the resistance is zero.
    fn div(self, resistance: Ohms) -> Amperes {
        Amperes(scaled(self.0, 1_000_000, resistance.0))
    }
}

impl Mul<Duration> for Watts {
    type Output = Joules;
    /// Returns the energy, rounded towards zero to a microjoule. A sum over many short times should be formed over whole
    /// seconds, because each product is rounded.
    fn mul(self, time: Duration) -> Joules {
        Joules(scaled(self.0, i64::try_from(time.as_nanos()).unwrap_or(i64::MAX), 1_000_000_000))
    }
}

impl Div<Duration> for Joules {
    type Output = Watts;
    /// Returns the average power, rounded towards zero to a microwatt; 0 for no time.
    fn div(self, time: Duration) -> Watts {
        match i64::try_from(time.as_nanos()).unwrap_or(i64::MAX) {
            0 => Watts::ZERO,
            nanos => Watts(scaled(self.0, 1_000_000_000, nanos)),
        }
    }
}

/// Returns `value * by / over`. A result out of range becomes the nearest one in range.
fn scaled(value: i64, by: i64, over: i64) -> i64 {
    let result = i128::from(value) * i128::from(by) / i128::from(over);
    result.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

fn write_micro(f: &mut fmt::Formatter<'_>, micro: i64, symbol: &str) -> fmt::Result {
    let decimals = f.precision().unwrap_or(3).min(6);
    let step = 10_u64.pow(6 - decimals as u32);
    let rounded = (micro.unsigned_abs().saturating_add(step / 2)) / step;
    let unit = 10_u64.pow(decimals as u32);
    let sign = if micro < 0 && rounded > 0 { "-" } else { "" };
    match decimals {
        0 => write!(f, "{sign}{rounded} {symbol}"),
        _ => write!(f, "{sign}{}.{:0decimals$} {symbol}", rounded / unit, rounded % unit),
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    #[test]
    fn a_quantity_is_shown_in_its_unit() {
        let power = Watts::from_micro(12_345_678);
        assert_eq!(format!("{power} {power:.1} {power:.0} {power:.6}"), "12.346 W 12.3 W 12 W 12.345678 W");
        assert_eq!(format!("{} {:.0}", Watts::from_micro(-500), Watts::from_micro(-400)), "-0.001 W 0 W");
        assert_eq!(format!("{:.1}", Celsius::from_milli(-40_250)), "-40.3 °C");
    }

    #[test]
    fn power_is_potential_by_current_and_energy_is_power_by_time() {
        let power = Volts::from_milli(19_032) * Amperes::from_milli(2_500);
        assert_eq!(power, Watts::from_milli(47_580));
        assert_eq!(power * Duration::from_millis(1_500), Joules::from_milli(71_370));
        assert_eq!(Joules::from_milli(71_370) / Duration::from_millis(1_500), power);
        assert_eq!(Volts::from_micro(-40_000) / Ohms::from_milli(5), Amperes::from_units(-8));
        assert_eq!(Joules::from_units(1) / Duration::ZERO, Watts::ZERO);
    }

    #[test]
    fn numbers_are_rounded_and_extremes_saturate() {
        assert_eq!(Volts::from_f64(1.234_567_6), Volts::from_micro(1_234_568));
        assert_eq!(Volts::from_f64(-1.234_567_6), Volts::from_micro(-1_234_568));
        assert_eq!(Volts::from_f64(f64::NAN), Volts::ZERO);
        assert_eq!(Volts::from_f64(f64::INFINITY), Volts::from_micro(i64::MAX));
        assert_eq!(Watts::from_units(i64::MAX) + Watts::from_units(1), Watts::from_micro(i64::MAX));
        assert_eq!(Watts::from_micro(i64::MAX) * Duration::MAX, Joules::from_micro(i64::MAX));
    }
}
