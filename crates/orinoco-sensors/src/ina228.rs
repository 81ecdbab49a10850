//! INA228: one channel with 20-bit conversions, and accumulators of energy and charge in the chip. Source: Texas
//! Instruments SLYS021, "Register Maps" and "Current, Power, Energy, and Charge Calculations".

use embedded_hal::i2c::{ErrorKind, I2c};
use orinoco_core::{Amperes, Celsius, Coulombs, Joules, Ohms, Volts, Watts};

use crate::alert::{AlertLatch, AlertPolarity, ConversionSignal};
use crate::conversion::Averaging;
use crate::error::SensorError;
use crate::reading::{RailMeter, RailReading};
use crate::registers::Registers;
use crate::scale::{
    PICO_PER_MICRO, Scale, current_through, nearest, picovolts, scaled, sign_extended, voltage_across, volts,
};

/// Value of the manufacturer's register: "TI".
pub const MANUFACTURER_ID: u16 = 0x5449;
/// Value of the device's register, without its revision.
pub const DEVICE_ID: u16 = 0x2280;

const CONFIGURATION: u8 = 0x00;
const ADC_CONFIGURATION: u8 = 0x01;
const SHUNT_CALIBRATION: u8 = 0x02;
const SHUNT_TEMPERATURE: u8 = 0x03;
const SHUNT_VOLTAGE: u8 = 0x04;
const BUS_VOLTAGE: u8 = 0x05;
const DIE_TEMPERATURE: u8 = 0x06;
const CURRENT: u8 = 0x07;
const POWER: u8 = 0x08;
const ENERGY: u8 = 0x09;
const CHARGE: u8 = 0x0A;
const DIAGNOSTICS: u8 = 0x0B;
const SHUNT_OVER: u8 = 0x0C;
const SHUNT_UNDER: u8 = 0x0D;
const BUS_OVER: u8 = 0x0E;
const BUS_UNDER: u8 = 0x0F;
const TEMPERATURE_OVER: u8 = 0x10;
const POWER_OVER: u8 = 0x11;
const MANUFACTURER: u8 = 0x3E;
const DEVICE: u8 = 0x3F;

/// Bits of the configuration: reset of everything, and of the accumulators.
const RESET: u16 = 1 << 15;
const RESET_ACCUMULATORS: u16 = 1 << 14;

/// Bus voltage: 195.3125 uV, in picovolts.
const BUS_STEP: i64 = 195_312_500;
/// Limits of the bus voltage: 3.125 mV.
const BUS_LIMIT: Scale = Scale::unsigned(3_125 * PICO_PER_MICRO, 15, 0);
/// Die temperature and its limit: 7.8125 thousandths of a degree, in billionths.
const TEMPERATURE: Scale = Scale::signed(7_812_500, 16, 0);

/// Range of the shunt voltage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShuntRange {
    /// 163.84 mV in both directions, in steps of 312.5 nV.
    #[default]
    Wide,
    /// 40.96 mV in both directions, in steps of 78.125 nV.
    Narrow,
}

impl ShuntRange {
    /// Returns the step of a reading in picovolts.
    const fn step(self) -> i64 {
        match self {
            Self::Wide => 312_500,
            Self::Narrow => 78_125,
        }
    }

    /// Returns the encoding of the limits: 16 steps of a reading.
    const fn limit(self) -> Scale {
        Scale::signed(16 * self.step(), 16, 0)
    }

    /// Returns the factor of the calibration (SLYS021, "Current, Power, Energy, and Charge Calculations").
    const fn factor(self) -> i64 {
        match self {
            Self::Wide => 1,
            Self::Narrow => 4,
        }
    }
}

/// Duration of one conversion (SLYS021, register ADC_CONFIG).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ConversionTime {
    /// 50 us.
    Us50,
    /// 84 us.
    Us84,
    /// 150 us.
    Us150,
    /// 280 us.
    Us280,
    /// 540 us.
    Us540,
    /// 1.052 ms, as after a reset.
    #[default]
    Us1052,
    /// 2.074 ms.
    Us2074,
    /// 4.12 ms.
    Us4120,
}

impl ConversionTime {
    /// All settings, in the order of their codes.
    pub const ALL: [Self; 8] = [
        Self::Us50,
        Self::Us84,
        Self::Us150,
        Self::Us280,
        Self::Us540,
        Self::Us1052,
        Self::Us2074,
        Self::Us4120,
    ];

    /// Returns the duration in microseconds.
    pub const fn micros(self) -> u32 {
        [50, 84, 150, 280, 540, 1_052, 2_074, 4_120][self as usize]
    }

    const fn from_code(bits: u16) -> Self {
        Self::ALL[(bits & 7) as usize]
    }
}

/// Quantities that are converted, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantities(u8);

impl Quantities {
    /// Voltage of the bus.
    pub const BUS: Self = Self(1);
    /// Voltage across the shunt.
    pub const SHUNT: Self = Self(2);
    /// Temperature of the die.
    pub const TEMPERATURE: Self = Self(4);
    /// All three.
    pub const ALL: Self = Self(7);

    /// Returns these quantities and `other`.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn contains(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// Operating mode (SLYS021, register ADC_CONFIG).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No conversions.
    Shutdown,
    /// One conversion of each quantity.
    Triggered(Quantities),
    /// Continuous conversions of each quantity.
    Continuous(Quantities),
}

impl Mode {
    const fn code(self) -> u16 {
        match self {
            Self::Shutdown => 0,
            Self::Triggered(quantities) => quantities.0 as u16,
            Self::Continuous(quantities) => 8 | quantities.0 as u16,
        }
    }

    const fn from_code(bits: u16) -> Self {
        match (bits & 8, (bits & 7) as u8) {
            (_, 0) => Self::Shutdown,
            (0, quantities) => Self::Triggered(Quantities(quantities)),
            (_, quantities) => Self::Continuous(Quantities(quantities)),
        }
    }
}

/// Settings of the conversions. The default is the chip's own after a reset (0x0000, 0xFB68 and 0x0000).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Delay before the first conversion, in steps of 2 ms: 255 is 510 ms.
    pub delay_steps: u8,
    /// Temperature coefficient of the shunt, for which the chip corrects, in millionths per degree: 1 to 16,383.
    /// Greater ones count as 16,383.
    pub shunt_ppm: Option<u16>,
    /// Range of the shunt voltage.
    pub range: ShuntRange,
    /// Operating mode.
    pub mode: Mode,
    /// Conversion time of the bus voltage.
    pub bus_time: ConversionTime,
    /// Conversion time of the shunt voltage.
    pub shunt_time: ConversionTime,
    /// Conversion time of the temperature.
    pub temperature_time: ConversionTime,
    /// Conversions in a reading.
    pub averaging: Averaging,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            delay_steps: 0,
            shunt_ppm: None,
            range: ShuntRange::Wide,
            mode: Mode::Continuous(Quantities::ALL),
            bus_time: ConversionTime::Us1052,
            shunt_time: ConversionTime::Us1052,
            temperature_time: ConversionTime::Us1052,
            averaging: Averaging::Samples1,
        }
    }
}

impl Config {
    /// Greatest temperature coefficient of a shunt: 14 bits.
    pub const SHUNT_PPM_MAX: u16 = 0x3FFF;

    /// Returns the registers CONFIG, ADC_CONFIG and SHUNT_TEMPCO.
    pub const fn encode(&self) -> [u16; 3] {
        let (compensated, ppm) = match self.shunt_ppm {
            Some(ppm) if ppm > Self::SHUNT_PPM_MAX => (1, Self::SHUNT_PPM_MAX),
            Some(ppm) => (1, ppm),
            None => (0, 0),
        };
        let config = (self.delay_steps as u16) << 6
            | compensated << 5
            | (matches!(self.range, ShuntRange::Narrow) as u16) << 4;
        let adc = self.mode.code() << 12
            | (self.bus_time as u16) << 9
            | (self.shunt_time as u16) << 6
            | (self.temperature_time as u16) << 3
            | self.averaging.code();
        [config, adc, ppm]
    }

    /// Returns the settings of the registers CONFIG, ADC_CONFIG and SHUNT_TEMPCO.
    pub const fn decode([config, adc, ppm]: [u16; 3]) -> Self {
        Self {
            delay_steps: (config >> 6) as u8,
            shunt_ppm: if config & 1 << 5 != 0 { Some(ppm & Self::SHUNT_PPM_MAX) } else { None },
            range: if config & 1 << 4 != 0 { ShuntRange::Narrow } else { ShuntRange::Wide },
            mode: Mode::from_code(adc >> 12),
            bus_time: ConversionTime::from_code(adc >> 9),
            shunt_time: ConversionTime::from_code(adc >> 6),
            temperature_time: ConversionTime::from_code(adc >> 3),
            averaging: Averaging::from_code(adc),
        }
    }

    /// Returns the time between new readings, in microseconds.
    pub const fn cycle_micros(&self) -> u32 {
        let quantities = match self.mode {
            Mode::Shutdown => return 0,
            Mode::Triggered(quantities) | Mode::Continuous(quantities) => quantities,
        };
        let bus = if quantities.contains(Quantities::BUS) { self.bus_time.micros() } else { 0 };
        let shunt = if quantities.contains(Quantities::SHUNT) { self.shunt_time.micros() } else { 0 };
        let die =
            if quantities.contains(Quantities::TEMPERATURE) { self.temperature_time.micros() } else { 0 };
        self.averaging.samples() * (bus + shunt + die)
    }
}

/// Calibration: the factor between shunt voltage and the chip's own current, power, energy and charge (SLYS021,
/// "Current, Power, Energy, and Charge Calculations").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibration {
    register: u16,
    /// Shunt in microohms, four times that in the narrow range.
    divisor: i64,
}

impl Calibration {
    /// Creates the calibration with the finest steps that reach `current_max`, less one step, through this shunt:
    /// `SHUNT_CAL = 13107.2e6 / V * step * shunt * factor`, with a step of `current_max / 2^19`.
    fn new(shunt: Ohms, range: ShuntRange, current_max: Amperes) -> Self {
        let full_scale = voltage_across(shunt, current_max.abs()).saturating_mul(range.factor());
        // 13107.2e6 / 2^19 = 25,000 for each volt, which is 1e12 pV.
        let register = (full_scale / 40_000_000).saturating_add(i64::from(full_scale % 40_000_000 != 0));
        Self {
            register: register.clamp(1, 0x7FFF) as u16,
            divisor: shunt.micro().saturating_mul(range.factor()),
        }
    }

    /// Returns the current of a number of steps. A step is `SHUNT_CAL / (13107.2e6 / V * shunt * factor)`.
    fn current(self, steps: i64) -> Amperes {
        Amperes::from_micro(scaled(
            steps * i64::from(self.register),
            78_125,
            self.divisor.saturating_mul(1_024),
        ))
    }

    /// Returns the power of a number of steps, each of 3.2 W for each ampere of the current's step.
    fn power(self, steps: i64) -> Watts {
        Watts::from_micro(scaled(steps * i64::from(self.register), 15_625, self.divisor.saturating_mul(64)))
    }

    /// Returns the energy of a number of steps, each of 16 J for each watt of the power's step.
    fn energy(self, steps: i64) -> Joules {
        Joules::from_micro(scaled(steps * i64::from(self.register), 15_625, self.divisor.saturating_mul(4)))
    }

    /// Returns the charge of a number of steps, each of 1 C for each ampere of the current's step.
    fn charge(self, steps: i64) -> Coulombs {
        Coulombs::from_micro(scaled(
            steps * i64::from(self.register),
            78_125,
            self.divisor.saturating_mul(1_024),
        ))
    }

    /// Returns the register of the nearest limit of the power, in steps of 256 steps of the power.
    fn power_limit(self, limit: Watts) -> u16 {
        let steps = scaled(limit.micro(), self.divisor.saturating_mul(64), 15_625 * i64::from(self.register));
        nearest(steps, 256).clamp(0, 0xFFFF) as u16
    }

    /// Returns the greatest current that the chip can represent with it.
    pub fn current_max(self) -> Amperes {
        self.current((1 << 19) - 1)
    }
}

/// Settings of the alerts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlertConfig {
    /// Behaviour after the fault has gone.
    pub latch: AlertLatch,
    /// Signal for finished conversions.
    pub conversion: ConversionSignal,
    /// Values that are compared with the limits.
    pub compared: Compared,
    /// Level of the pin in an alert.
    pub polarity: AlertPolarity,
}

/// Values that are compared with the limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compared {
    /// Single conversions.
    #[default]
    Conversions,
    /// Averaged readings.
    Readings,
}

impl AlertConfig {
    const fn encode(&self) -> u16 {
        (matches!(self.latch, AlertLatch::Latched) as u16) << 15
            | (matches!(self.conversion, ConversionSignal::AlertPin) as u16) << 14
            | (matches!(self.compared, Compared::Readings) as u16) << 13
            | (matches!(self.polarity, AlertPolarity::ActiveHigh) as u16) << 12
    }
}

/// Diagnostic flags. Reading them clears those that are latched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The energy accumulator has overflowed. Reading the energy clears it.
    pub energy_overflow: bool,
    /// The charge accumulator has overflowed. Reading the charge clears it.
    pub charge_overflow: bool,
    /// Current or power are wrong, because a computation overflowed: calibrate for a greater current.
    pub math_overflow: bool,
    /// The die is hotter than its limit.
    pub temperature_over: bool,
    /// The current is above its upper limit.
    pub current_over: bool,
    /// The current is below its lower limit.
    pub current_under: bool,
    /// The bus voltage is above its upper limit.
    pub bus_over: bool,
    /// The bus voltage is below its lower limit.
    pub bus_under: bool,
    /// The power is above its limit.
    pub power_over: bool,
    /// A conversion has finished.
    pub conversion_ready: bool,
    /// The checksum of the chip's trim memory is wrong: the chip is damaged.
    pub memory_damaged: bool,
}

impl Flags {
    /// Returns the flags of the register DIAG_ALRT.
    pub const fn decode(register: u16) -> Self {
        const fn has(register: u16, bit: u32) -> bool {
            register & 1 << bit != 0
        }
        Self {
            energy_overflow: has(register, 11),
            charge_overflow: has(register, 10),
            math_overflow: has(register, 9),
            temperature_over: has(register, 7),
            current_over: has(register, 6),
            current_under: has(register, 5),
            bus_over: has(register, 4),
            bus_under: has(register, 3),
            power_over: has(register, 2),
            conversion_ready: has(register, 1),
            memory_damaged: !has(register, 0),
        }
    }
}

/// INA228 on an I2C bus.
#[derive(Debug)]
pub struct Ina228<I2C> {
    registers: Registers<I2C>,
    shunt: Ohms,
    config: Config,
}

impl<I2C: I2c> Ina228<I2C> {
    /// Creates the driver of a chip at `address` with its shunt resistor. It does not access the bus, and takes the
    /// chip to be as after a reset: call [`configure`](Self::configure), or [`configuration`](Self::configuration)
    /// where another program has set the range.
    ///
    /// # Errors
    /// Refuses a shunt of zero or less. The bus is dropped then; lend a `&mut` of it where that matters.
    pub fn new(bus: I2C, address: u8, shunt: Ohms) -> Result<Self, SensorError<I2C::Error>> {
        let registers = Registers::new(bus, "INA228", address);
        registers.check_shunt(1, shunt)?;
        Ok(Self { registers, shunt, config: Config::default() })
    }

    /// Returns the bus.
    pub fn release(self) -> I2C {
        self.registers.release()
    }

    /// Fails unless an INA228 answers, by the ids of manufacturer and device.
    pub fn probe(&mut self) -> Result<(), SensorError<I2C::Error>> {
        self.registers.expect(MANUFACTURER, MANUFACTURER_ID, 0xFFFF)?;
        self.registers.expect(DEVICE, DEVICE_ID, 0xFFF0)
    }

    /// Resets every register to its default, calibration included.
    pub fn reset(&mut self) -> Result<(), SensorError<I2C::Error>> {
        self.registers.write_u16(CONFIGURATION, RESET)?;
        self.config = Config::default();
        Ok(())
    }

    /// Sets up the conversions. A triggered mode starts one. A change of the range makes earlier calibrations and
    /// limits of the current wrong.
    pub fn configure(&mut self, config: &Config) -> Result<(), SensorError<I2C::Error>> {
        let [general, adc, ppm] = config.encode();
        self.registers.write_u16(SHUNT_TEMPERATURE, ppm)?;
        self.registers.write_u16(CONFIGURATION, general)?;
        self.config = Config::decode([general, adc, ppm]);
        self.registers.write_u16(ADC_CONFIGURATION, adc)
    }

    /// Reads the settings of the conversions, and uses their range afterwards.
    pub fn configuration(&mut self) -> Result<Config, SensorError<I2C::Error>> {
        let general = self.registers.read_u16(CONFIGURATION)?;
        let adc = self.registers.read_u16(ADC_CONFIGURATION)?;
        let ppm = self.registers.read_u16(SHUNT_TEMPERATURE)?;
        self.config = Config::decode([general, adc, ppm]);
        Ok(self.config)
    }

    /// Reads the voltage across the shunt, rounded to a microvolt. [`current`](Self::current) has all 20 bits.
    pub fn shunt_voltage(&mut self) -> Result<Volts, SensorError<I2C::Error>> {
        self.shunt_picovolts().map(volts)
    }

    /// Reads the voltage of the bus against ground, up to 85 V.
    pub fn bus_voltage(&mut self) -> Result<Volts, SensorError<I2C::Error>> {
        let register = self.registers.read_u24(BUS_VOLTAGE)?;
        Ok(volts(sign_extended((register >> 4).into(), 20) * BUS_STEP))
    }

    /// Reads the temperature of the die.
    pub fn die_temperature(&mut self) -> Result<Celsius, SensorError<I2C::Error>> {
        self.registers.read_u16(DIE_TEMPERATURE).map(celsius)
    }

    /// Reads the current, computed here from the voltage across the shunt. It needs no calibration.
    pub fn current(&mut self) -> Result<Amperes, SensorError<I2C::Error>> {
        let picovolts = self.shunt_picovolts()?;
        Ok(current_through(self.shunt, picovolts))
    }

    /// Reads voltage and current.
    pub fn read(&mut self) -> Result<RailReading, SensorError<I2C::Error>> {
        Ok(RailReading { current: self.current()?, voltage: self.bus_voltage()? })
    }

    /// Makes the chip compute current, power, energy and charge, up to `current_max` less one step, in the finest
    /// steps, and sets the accumulators to zero: they count in steps of the calibration.
    pub fn calibrate(&mut self, current_max: Amperes) -> Result<Calibration, SensorError<I2C::Error>> {
        let calibration = Calibration::new(self.shunt, self.config.range, current_max);
        self.registers.write_u16(SHUNT_CALIBRATION, calibration.register)?;
        self.reset_accumulators()?;
        Ok(calibration)
    }

    /// Sets the accumulators of energy and charge to zero.
    pub fn reset_accumulators(&mut self) -> Result<(), SensorError<I2C::Error>> {
        let [general, ..] = self.config.encode();
        self.registers.write_u16(CONFIGURATION, general | RESET_ACCUMULATORS)
    }

    /// Reads the current that the chip computed.
    pub fn chip_current(&mut self, calibration: &Calibration) -> Result<Amperes, SensorError<I2C::Error>> {
        let register = self.registers.read_u24(CURRENT)?;
        Ok(calibration.current(sign_extended((register >> 4).into(), 20)))
    }

    /// Reads the power that the chip computed. It has no sign.
    pub fn chip_power(&mut self, calibration: &Calibration) -> Result<Watts, SensorError<I2C::Error>> {
        let register = self.registers.read_u24(POWER)?;
        Ok(calibration.power(register.into()))
    }

    /// Reads the energy that the chip accumulated. It adds up the power, which has no sign.
    pub fn energy(&mut self, calibration: &Calibration) -> Result<Joules, SensorError<I2C::Error>> {
        let register = self.registers.read_u40(ENERGY)?;
        Ok(calibration.energy(register as i64))
    }

    /// Reads the charge that the chip accumulated.
    pub fn charge(&mut self, calibration: &Calibration) -> Result<Coulombs, SensorError<I2C::Error>> {
        let register = self.registers.read_u40(CHARGE)?;
        Ok(calibration.charge(sign_extended(register, 40)))
    }

    /// Sets up the alerts.
    pub fn configure_alerts(&mut self, config: &AlertConfig) -> Result<(), SensorError<I2C::Error>> {
        self.registers.write_u16(DIAGNOSTICS, config.encode())
    }

    /// Reads the diagnostic flags. This clears those that are latched.
    pub fn flags(&mut self) -> Result<Flags, SensorError<I2C::Error>> {
        self.registers.read_u16(DIAGNOSTICS).map(Flags::decode)
    }

    /// Sets the upper limit of the current. Returns the limit that the chip has: the nearest one within its range.
    pub fn set_current_over(&mut self, limit: Amperes) -> Result<Amperes, SensorError<I2C::Error>> {
        self.set_current_limit(SHUNT_OVER, limit)
    }

    /// Sets the lower limit of the current. Returns the limit that the chip has: the nearest one within its range.
    pub fn set_current_under(&mut self, limit: Amperes) -> Result<Amperes, SensorError<I2C::Error>> {
        self.set_current_limit(SHUNT_UNDER, limit)
    }

    /// Sets the upper limit of the bus voltage. Returns the limit that the chip has: the nearest one within its range.
    pub fn set_bus_over(&mut self, limit: Volts) -> Result<Volts, SensorError<I2C::Error>> {
        self.set_bus_limit(BUS_OVER, limit)
    }

    /// Sets the lower limit of the bus voltage. Returns the limit that the chip has: the nearest one within its range.
    pub fn set_bus_under(&mut self, limit: Volts) -> Result<Volts, SensorError<I2C::Error>> {
        self.set_bus_limit(BUS_UNDER, limit)
    }

    /// Sets the limit of the die's temperature. Returns the limit that the chip has: the nearest one within its range.
    pub fn set_temperature_over(&mut self, limit: Celsius) -> Result<Celsius, SensorError<I2C::Error>> {
        let register = TEMPERATURE.encode(limit.micro().saturating_mul(1_000));
        self.registers.write_u16(TEMPERATURE_OVER, register)?;
        Ok(celsius(register))
    }

    /// Sets the limit of the power. Returns the limit that the chip has: the nearest one within its range.
    pub fn set_power_over(
        &mut self,
        calibration: &Calibration,
        limit: Watts,
    ) -> Result<Watts, SensorError<I2C::Error>> {
        let register = calibration.power_limit(limit);
        self.registers.write_u16(POWER_OVER, register)?;
        Ok(calibration.power(i64::from(register) * 256))
    }

    fn shunt_picovolts(&mut self) -> Result<i64, SensorError<I2C::Error>> {
        let register = self.registers.read_u24(SHUNT_VOLTAGE)?;
        Ok(sign_extended((register >> 4).into(), 20) * self.config.range.step())
    }

    fn set_current_limit(
        &mut self,
        register: u8,
        limit: Amperes,
    ) -> Result<Amperes, SensorError<I2C::Error>> {
        let scale = self.config.range.limit();
        let value = scale.encode(voltage_across(self.shunt, limit));
        self.registers.write_u16(register, value)?;
        Ok(current_through(self.shunt, scale.decode(value)))
    }

    fn set_bus_limit(&mut self, register: u8, limit: Volts) -> Result<Volts, SensorError<I2C::Error>> {
        let value = BUS_LIMIT.encode(picovolts(limit));
        self.registers.write_u16(register, value)?;
        Ok(volts(BUS_LIMIT.decode(value)))
    }
}

/// Returns the temperature of a register.
fn celsius(register: u16) -> Celsius {
    Celsius::from_micro(nearest(TEMPERATURE.decode(register), 1_000))
}

impl<I2C: I2c> RailMeter for Ina228<I2C> {
    fn rails(&self) -> usize {
        1
    }

    fn read_rail(&mut self, rail: usize) -> Result<RailReading, ErrorKind> {
        assert!(rail == 0, "an INA228 has one rail, and no rail {rail}");
        self.read().map_err(|fault| fault.bus_fault().unwrap_or(ErrorKind::Other))
    }
}
