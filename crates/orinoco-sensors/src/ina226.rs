//! INA226: one channel of shunt and bus voltage, with current, power and one alert computed in the chip. Source: Texas
//! Instruments SBOS547, "Programming" and "Register Maps".

use embedded_hal::i2c::{ErrorKind, I2c};
use orinoco_core::{Amperes, Ohms, Volts, Watts};

use crate::alert::{AlertLatch, AlertPolarity, ConversionSignal};
use crate::conversion::{Averaging, ConversionTime, Mode, cycle_micros};
use crate::error::SensorError;
use crate::reading::{RailMeter, RailReading};
use crate::registers::Registers;
use crate::scale::{PICO_PER_MICRO, Scale, current_through, picovolts, scaled, voltage_across, volts};

/// Value of the manufacturer's register: "TI".
pub const MANUFACTURER_ID: u16 = 0x5449;
/// Value of the die's register, without its revision.
pub const DIE_ID: u16 = 0x2260;

const CONFIGURATION: u8 = 0x00;
const SHUNT_VOLTAGE: u8 = 0x01;
const BUS_VOLTAGE: u8 = 0x02;
const POWER: u8 = 0x03;
const CURRENT: u8 = 0x04;
const CALIBRATION: u8 = 0x05;
const MASK_ENABLE: u8 = 0x06;
const ALERT_LIMIT: u8 = 0x07;
const MANUFACTURER: u8 = 0xFE;
const DIE: u8 = 0xFF;

/// Reset bit of the configuration.
const RESET: u16 = 1 << 15;
/// Bits of the configuration that have no meaning, and are 100 after a reset.
const FIXED: u16 = 0b100 << 12;

/// Shunt voltage and its limits: 2.5 uV, in picovolts.
const SHUNT: Scale = Scale::signed(2_500_000, 16, 0);
/// Bus voltage and its limits: 1.25 mV. The highest bit is always 0.
const BUS: Scale = Scale::unsigned(1_250 * PICO_PER_MICRO, 15, 0);

/// 0.00512 V in picovolts, or in microamperes times microohms: the fixed factor of the calibration (SBOS547,
/// "Programming the Calibration Register").
const CALIBRATION_FACTOR: i64 = 5_120_000_000;

/// Settings of the conversions. The default is the chip's own after a reset (0x4127).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Conversions in a reading.
    pub averaging: Averaging,
    /// Conversion time of the bus voltage.
    pub bus_time: ConversionTime,
    /// Conversion time of the shunt voltage.
    pub shunt_time: ConversionTime,
    /// Operating mode.
    pub mode: Mode,
}

impl Config {
    /// Returns the register.
    pub const fn encode(&self) -> u16 {
        FIXED
            | self.averaging.code() << 9
            | self.bus_time.code() << 6
            | self.shunt_time.code() << 3
            | self.mode.code()
    }

    /// Returns the settings of a register.
    pub const fn decode(register: u16) -> Self {
        Self {
            averaging: Averaging::from_code(register >> 9),
            bus_time: ConversionTime::from_code(register >> 6),
            shunt_time: ConversionTime::from_code(register >> 3),
            mode: Mode::from_code(register),
        }
    }

    /// Returns the time between new readings, in microseconds.
    pub const fn cycle_micros(&self) -> u32 {
        cycle_micros(self.averaging, self.mode, self.bus_time, self.shunt_time, 1)
    }
}

/// Calibration: the factor between shunt voltage and the chip's own current and power (SBOS547, "Programming the
/// Calibration Register").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibration {
    register: u16,
    shunt: Ohms,
}

impl Calibration {
    /// Creates the calibration with the finest steps that reach `current_max`, less one step, through this shunt, which
    /// is above zero: `CAL = 0.00512 V / (step * shunt)`, with a step of `current_max / 2^15`.
    fn new(shunt: Ohms, current_max: Amperes) -> Self {
        let full_scale = voltage_across(shunt, current_max.abs()).max(1);
        let register = (CALIBRATION_FACTOR * (1 << 15) / full_scale).clamp(1, 0x7FFF);
        Self { register: register as u16, shunt }
    }

    /// Returns the current of the register `Current`. One step is `0.00512 V / (CAL * shunt)`.
    fn current(self, steps: i64) -> Amperes {
        Amperes::from_micro(scaled(steps, CALIBRATION_FACTOR, self.divisor()))
    }

    /// Returns the power of the register `Power`. One step is 25 W for each ampere of the current's step.
    fn power(self, steps: i64) -> Watts {
        Watts::from_micro(scaled(steps, 25 * CALIBRATION_FACTOR, self.divisor()))
    }

    /// Returns the number of the register `Power` that is nearest to a power.
    fn power_steps(self, power: Watts) -> u16 {
        scaled(power.micro(), self.divisor(), 25 * CALIBRATION_FACTOR).clamp(0, 0xFFFF) as u16
    }

    /// Returns the greatest current that the chip can represent with it.
    pub fn current_max(self) -> Amperes {
        self.current(0x7FFF)
    }

    fn divisor(self) -> i64 {
        i64::from(self.register).saturating_mul(self.shunt.micro())
    }
}

/// Condition of the alert. The chip compares one quantity with one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlertCondition {
    /// No condition.
    #[default]
    None,
    /// The current is above the limit.
    CurrentAbove(Amperes),
    /// The current is below the limit.
    CurrentBelow(Amperes),
    /// The bus voltage is above the limit.
    BusAbove(Volts),
    /// The bus voltage is below the limit.
    BusBelow(Volts),
    /// The power is above the limit. The chip must have been calibrated with this calibration.
    PowerAbove(Watts, Calibration),
}

/// Settings of the alert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlertConfig {
    /// Condition.
    pub condition: AlertCondition,
    /// Signal for finished conversions.
    pub conversion: ConversionSignal,
    /// Level of the pin in an alert.
    pub polarity: AlertPolarity,
    /// Behaviour after the fault has gone.
    pub latch: AlertLatch,
}

/// Alert flags. Reading them clears the alert where it is latched, and `conversion_ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlertFlags {
    /// The condition holds, or held where it is latched.
    pub alert: bool,
    /// A conversion has finished.
    pub conversion_ready: bool,
    /// Current or power were too large for their registers: calibrate for a greater current.
    pub overflow: bool,
}

impl AlertFlags {
    /// Returns the flags of a Mask/Enable register.
    pub const fn decode(register: u16) -> Self {
        Self {
            alert: register & 1 << 4 != 0,
            conversion_ready: register & 1 << 3 != 0,
            overflow: register & 1 << 2 != 0,
        }
    }
}

/// INA226 on an I2C bus.
#[derive(Debug)]
pub struct Ina226<I2C> {
    registers: Registers<I2C>,
    shunt: Ohms,
}

impl<I2C: I2c> Ina226<I2C> {
    /// Creates the driver of a chip at `address` with its shunt resistor. It does not access the bus.
    ///
    /// # Errors
    /// Refuses a shunt of zero or less. The bus is dropped then; lend a `&mut` of it where that matters.
    pub fn new(bus: I2C, address: u8, shunt: Ohms) -> Result<Self, SensorError<I2C::Error>> {
        let registers = Registers::new(bus, "INA226", address);
        registers.check_shunt(1, shunt)?;
        Ok(Self { registers, shunt })
    }

    /// Returns the bus.
    pub fn release(self) -> I2C {
        self.registers.release()
    }

    /// Fails unless an INA226 answers, by the ids of manufacturer and die.
    pub fn probe(&mut self) -> Result<(), SensorError<I2C::Error>> {
        self.registers.expect(MANUFACTURER, MANUFACTURER_ID, 0xFFFF)?;
        self.registers.expect(DIE, DIE_ID, 0xFFF0)
    }

    /// Resets every register to its default, calibration included.
    pub fn reset(&mut self) -> Result<(), SensorError<I2C::Error>> {
        self.registers.write_u16(CONFIGURATION, RESET)
    }

    /// Sets up the conversions. A triggered mode starts one.
    pub fn configure(&mut self, config: &Config) -> Result<(), SensorError<I2C::Error>> {
        self.registers.write_u16(CONFIGURATION, config.encode())
    }

    /// Reads the settings of the conversions.
    pub fn configuration(&mut self) -> Result<Config, SensorError<I2C::Error>> {
        self.registers.read_u16(CONFIGURATION).map(Config::decode)
    }

    /// Reads the voltage across the shunt, within 81.92 mV in both directions, rounded to a microvolt.
    pub fn shunt_voltage(&mut self) -> Result<Volts, SensorError<I2C::Error>> {
        self.registers.read_u16(SHUNT_VOLTAGE).map(|register| volts(SHUNT.decode(register)))
    }

    /// Reads the voltage of the bus against ground, up to 40.96 V.
    pub fn bus_voltage(&mut self) -> Result<Volts, SensorError<I2C::Error>> {
        self.registers.read_u16(BUS_VOLTAGE).map(|register| volts(BUS.decode(register)))
    }

    /// Reads the current, computed here from the voltage across the shunt. It needs no calibration.
    pub fn current(&mut self) -> Result<Amperes, SensorError<I2C::Error>> {
        let register = self.registers.read_u16(SHUNT_VOLTAGE)?;
        Ok(current_through(self.shunt, SHUNT.decode(register)))
    }

    /// Reads voltage and current.
    pub fn read(&mut self) -> Result<RailReading, SensorError<I2C::Error>> {
        Ok(RailReading { current: self.current()?, voltage: self.bus_voltage()? })
    }

    /// Makes the chip compute current and power, up to `current_max` less one step, in the finest steps.
    pub fn calibrate(&mut self, current_max: Amperes) -> Result<Calibration, SensorError<I2C::Error>> {
        let calibration = Calibration::new(self.shunt, current_max);
        self.registers.write_u16(CALIBRATION, calibration.register)?;
        Ok(calibration)
    }

    /// Reads the current that the chip computed.
    pub fn chip_current(&mut self, calibration: &Calibration) -> Result<Amperes, SensorError<I2C::Error>> {
        let register = self.registers.read_u16(CURRENT)?;
        Ok(calibration.current((register as i16).into()))
    }

    /// Reads the power that the chip computed. It has no sign.
    pub fn chip_power(&mut self, calibration: &Calibration) -> Result<Watts, SensorError<I2C::Error>> {
        let register = self.registers.read_u16(POWER)?;
        Ok(calibration.power(register.into()))
    }

    /// Sets up the alert. Returns the condition that the chip has: the limit is the nearest one within its range.
    pub fn configure_alert(
        &mut self,
        config: &AlertConfig,
    ) -> Result<AlertCondition, SensorError<I2C::Error>> {
        let (function, limit, condition) = self.encode_condition(config.condition);
        self.registers.write_u16(ALERT_LIMIT, limit)?;
        let mask = function
            | ((config.conversion == ConversionSignal::AlertPin) as u16) << 10
            | ((config.polarity == AlertPolarity::ActiveHigh) as u16) << 1
            | (config.latch == AlertLatch::Latched) as u16;
        self.registers.write_u16(MASK_ENABLE, mask)?;
        Ok(condition)
    }

    /// Reads the alert flags. This clears the alert where it is latched, and `conversion_ready`.
    pub fn alerts(&mut self) -> Result<AlertFlags, SensorError<I2C::Error>> {
        self.registers.read_u16(MASK_ENABLE).map(AlertFlags::decode)
    }

    /// Returns the function's bit, the limit's register, and the condition with the limit that the chip has.
    fn encode_condition(&self, condition: AlertCondition) -> (u16, u16, AlertCondition) {
        let current = |limit| {
            let register = SHUNT.encode(voltage_across(self.shunt, limit));
            (register, current_through(self.shunt, SHUNT.decode(register)))
        };
        let bus = |limit| {
            let register = BUS.encode(picovolts(limit));
            (register, volts(BUS.decode(register)))
        };
        match condition {
            AlertCondition::None => (0, 0, condition),
            AlertCondition::CurrentAbove(limit) => {
                let (register, limit) = current(limit);
                (1 << 15, register, AlertCondition::CurrentAbove(limit))
            }
            AlertCondition::CurrentBelow(limit) => {
                let (register, limit) = current(limit);
                (1 << 14, register, AlertCondition::CurrentBelow(limit))
            }
            AlertCondition::BusAbove(limit) => {
                let (register, limit) = bus(limit);
                (1 << 13, register, AlertCondition::BusAbove(limit))
            }
            AlertCondition::BusBelow(limit) => {
                let (register, limit) = bus(limit);
                (1 << 12, register, AlertCondition::BusBelow(limit))
            }
            AlertCondition::PowerAbove(limit, calibration) => {
                let register = calibration.power_steps(limit);
                let limit = calibration.power(register.into());
                (1 << 11, register, AlertCondition::PowerAbove(limit, calibration))
            }
        }
    }
}

impl<I2C: I2c> RailMeter for Ina226<I2C> {
    fn rails(&self) -> usize {
        1
    }

    fn read_rail(&mut self, rail: usize) -> Result<RailReading, ErrorKind> {
        assert!(rail == 0, "an INA226 has one rail, and no rail {rail}");
        self.read().map_err(|fault| fault.bus_fault().unwrap_or(ErrorKind::Other))
    }
}
