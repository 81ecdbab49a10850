//! INA3221: three channels of shunt and bus voltage, with alerts. Source: Texas Instruments SBOS576, "Register Maps".

use embedded_hal::i2c::{ErrorKind, I2c};
use orinoco_core::{Amperes, Ohms, Volts};

use crate::alert::AlertLatch;
use crate::conversion::{Averaging, ConversionTime, Mode, cycle_micros};
use crate::error::SensorError;
use crate::reading::{RailMeter, RailReading};
use crate::registers::Registers;
use crate::scale::{PICO_PER_MICRO, Scale, current_through, picovolts, voltage_across, volts};

/// Addresses that the pin A0 selects: ground, supply, SDA, SCL.
pub const ADDRESSES: [u8; 4] = [0x40, 0x41, 0x42, 0x43];

/// Value of the manufacturer's register: "TI".
pub const MANUFACTURER_ID: u16 = 0x5449;
/// Value of the die's register.
pub const DIE_ID: u16 = 0x3220;

const CONFIGURATION: u8 = 0x00;
const SHUNT_VOLTAGE: u8 = 0x01;
const BUS_VOLTAGE: u8 = 0x02;
const CRITICAL_LIMIT: u8 = 0x07;
const WARNING_LIMIT: u8 = 0x08;
const SHUNT_SUM: u8 = 0x0D;
const SHUNT_SUM_LIMIT: u8 = 0x0E;
const MASK_ENABLE: u8 = 0x0F;
const POWER_VALID_UPPER: u8 = 0x10;
const POWER_VALID_LOWER: u8 = 0x11;
const MANUFACTURER: u8 = 0xFE;
const DIE: u8 = 0xFF;

/// Reset bit of the configuration.
const RESET: u16 = 1 << 15;

/// Shunt voltages and their limits: 13 bits, 40 uV, in picovolts.
const SHUNT: Scale = Scale::signed(40 * PICO_PER_MICRO, 13, 3);
/// Sum of shunt voltages and its limit: 15 bits, 40 uV.
const SUM: Scale = Scale::signed(40 * PICO_PER_MICRO, 15, 1);
/// Bus voltages and power-valid limits: 13 bits, 8 mV.
const BUS: Scale = Scale::signed(8_000 * PICO_PER_MICRO, 13, 3);

/// Channel of an INA3221.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Channel 1.
    One,
    /// Channel 2.
    Two,
    /// Channel 3.
    Three,
}

impl Channel {
    /// All channels.
    pub const ALL: [Self; 3] = [Self::One, Self::Two, Self::Three];

    /// Returns the index, from 0.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns this channel's register of a group of two registers for each channel.
    const fn register(self, first: u8) -> u8 {
        first + 2 * self as u8
    }
}

/// Set of channels of an INA3221.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels(u8);

impl Channels {
    /// All three channels.
    pub const ALL: Self = Self(0b111);
    /// No channel.
    pub const NONE: Self = Self(0);

    /// Returns the set with one more channel.
    pub const fn with(self, channel: Channel) -> Self {
        Self(self.0 | 1 << channel as u8)
    }

    /// Whether the channel is in the set.
    pub const fn contains(self, channel: Channel) -> bool {
        self.0 & 1 << channel as u8 != 0
    }

    /// Returns the number of channels.
    pub const fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns the channels, in order.
    pub fn iter(self) -> impl Iterator<Item = Channel> {
        Channel::ALL.into_iter().filter(move |channel| self.contains(*channel))
    }

    /// Returns three bits with channel 1 in the highest, as every register of the chip has them.
    const fn bits(self) -> u16 {
        ((self.0 & 1) << 2 | self.0 & 2 | (self.0 & 4) >> 2) as u16
    }

    /// Returns the set of the lowest three bits, channel 1 in the highest of them.
    const fn from_bits(bits: u16) -> Self {
        Self(((bits & 1) << 2 | bits & 2 | (bits & 4) >> 2) as u8)
    }
}

/// Settings of the conversions. The default is the chip's own after a reset (0x7127).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Channels that are converted, one after another.
    pub channels: Channels,
    /// Conversions in a reading.
    pub averaging: Averaging,
    /// Conversion time of a bus voltage.
    pub bus_time: ConversionTime,
    /// Conversion time of a shunt voltage.
    pub shunt_time: ConversionTime,
    /// Operating mode.
    pub mode: Mode,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            channels: Channels::ALL,
            averaging: Averaging::Samples1,
            bus_time: ConversionTime::Us1100,
            shunt_time: ConversionTime::Us1100,
            mode: Mode::BothContinuous,
        }
    }
}

impl Config {
    /// Returns the register.
    pub const fn encode(&self) -> u16 {
        self.channels.bits() << 12
            | self.averaging.code() << 9
            | self.bus_time.code() << 6
            | self.shunt_time.code() << 3
            | self.mode.code()
    }

    /// Returns the settings of a register.
    pub const fn decode(register: u16) -> Self {
        Self {
            channels: Channels::from_bits(register >> 12),
            averaging: Averaging::from_code(register >> 9),
            bus_time: ConversionTime::from_code(register >> 6),
            shunt_time: ConversionTime::from_code(register >> 3),
            mode: Mode::from_code(register),
        }
    }

    /// Returns the time between new readings of a channel, in microseconds (SBOS576, "Basic ADC Functions").
    pub const fn cycle_micros(&self) -> u32 {
        let channels = self.channels.count() as u32;
        cycle_micros(self.averaging, self.mode, self.bus_time, self.shunt_time, channels)
    }
}

/// Settings of the alerts. The default is the chip's own after a reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlertConfig {
    /// Channels whose shunt voltages are added for the sum limit.
    pub summed: Channels,
    /// Latch of the warning alerts: averaged shunt voltages above their limit.
    pub warning: AlertLatch,
    /// Latch of the critical alerts: single conversions of the shunt voltage above their limit, and the sum.
    pub critical: AlertLatch,
}

/// Alert flags. Reading them clears those that are latched, and `conversion_ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlertFlags {
    /// Channels above their critical limit.
    pub critical: Channels,
    /// Channels above their warning limit.
    pub warning: Channels,
    /// The sum of shunt voltages is above its limit.
    pub sum: bool,
    /// All bus voltages have been above the upper power-valid limit, and none has fallen below the lower one since.
    pub power_valid: bool,
    /// The timing-control alert: channel 2 did not rise within four conversions of channel 1. Once raised, it stays
    /// until a reset.
    pub timing_control: bool,
    /// All enabled channels have been converted since the flags were last read.
    pub conversion_ready: bool,
}

/// Mask/Enable register: settings and flags of the alerts. One register holds both, so they are read together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MaskEnable {
    /// Settings.
    pub config: AlertConfig,
    /// Flags.
    pub flags: AlertFlags,
}

impl MaskEnable {
    /// Returns the register. The chip ignores the flags in what is written.
    pub const fn encode(&self) -> u16 {
        self.config.summed.bits() << 12
            | (matches!(self.config.warning, AlertLatch::Latched) as u16) << 11
            | (matches!(self.config.critical, AlertLatch::Latched) as u16) << 10
            | self.flags.critical.bits() << 7
            | (self.flags.sum as u16) << 6
            | self.flags.warning.bits() << 3
            | (self.flags.power_valid as u16) << 2
            // The flag is the level of the pin, which is low in an alert.
            | (!self.flags.timing_control as u16) << 1
            | self.flags.conversion_ready as u16
    }

    /// Returns settings and flags of a register.
    pub const fn decode(register: u16) -> Self {
        Self {
            config: AlertConfig {
                summed: Channels::from_bits(register >> 12),
                warning: latch_of(register, 11),
                critical: latch_of(register, 10),
            },
            flags: AlertFlags {
                critical: Channels::from_bits(register >> 7),
                warning: Channels::from_bits(register >> 3),
                sum: register & 1 << 6 != 0,
                power_valid: register & 1 << 2 != 0,
                timing_control: register & 1 << 1 == 0,
                conversion_ready: register & 1 != 0,
            },
        }
    }
}

const fn latch_of(register: u16, bit: u32) -> AlertLatch {
    if register & 1 << bit != 0 { AlertLatch::Latched } else { AlertLatch::Transparent }
}

/// Bus voltages between which the power counts as valid, with a hysteresis between the two. After a reset they are 10 V
/// and 9 V.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerValidLimits {
    /// The power becomes valid when every enabled bus is above this.
    pub upper: Volts,
    /// The power becomes invalid when an enabled bus is below this.
    pub lower: Volts,
}

/// INA3221 on an I2C bus.
#[derive(Debug)]
pub struct Ina3221<I2C> {
    registers: Registers<I2C>,
    shunts: [Ohms; 3],
    channels: Channels,
}

impl<I2C: I2c> Ina3221<I2C> {
    /// Creates the driver of a chip at `address`, with the shunt resistor of each channel. It does not access the bus.
    ///
    /// # Errors
    /// Refuses a shunt of zero or less. The bus is dropped then; lend a `&mut` of it where that matters.
    pub fn new(bus: I2C, address: u8, shunts: [Ohms; 3]) -> Result<Self, SensorError<I2C::Error>> {
        let registers = Registers::new(bus, "INA3221", address);
        for (channel, shunt) in (1..).zip(shunts) {
            registers.check_shunt(channel, shunt)?;
        }
        Ok(Self { registers, shunts, channels: Channels::ALL })
    }

    /// Returns the bus.
    pub fn release(self) -> I2C {
        self.registers.release()
    }

    /// Fails unless an INA3221 answers, by the ids of manufacturer and die.
    pub fn probe(&mut self) -> Result<(), SensorError<I2C::Error>> {
        self.registers.expect(MANUFACTURER, MANUFACTURER_ID, 0xFFFF)?;
        self.registers.expect(DIE, DIE_ID, 0xFFFF)
    }

    /// Resets every register to its default.
    pub fn reset(&mut self) -> Result<(), SensorError<I2C::Error>> {
        self.registers.write_u16(CONFIGURATION, RESET)?;
        self.channels = Channels::ALL;
        Ok(())
    }

    /// Sets up the conversions. A triggered mode starts one.
    pub fn configure(&mut self, config: &Config) -> Result<(), SensorError<I2C::Error>> {
        self.registers.write_u16(CONFIGURATION, config.encode())?;
        self.channels = config.channels;
        Ok(())
    }

    /// Reads the settings of the conversions, which another program may have made.
    pub fn configuration(&mut self) -> Result<Config, SensorError<I2C::Error>> {
        let config = Config::decode(self.registers.read_u16(CONFIGURATION)?);
        self.channels = config.channels;
        Ok(config)
    }

    /// Reads the voltage across a shunt, within 163.8 mV in both directions.
    pub fn shunt_voltage(&mut self, channel: Channel) -> Result<Volts, SensorError<I2C::Error>> {
        self.shunt_picovolts(channel).map(volts)
    }

    /// Reads the voltage of a bus against ground.
    pub fn bus_voltage(&mut self, channel: Channel) -> Result<Volts, SensorError<I2C::Error>> {
        let register = self.registers.read_u16(channel.register(BUS_VOLTAGE))?;
        Ok(volts(BUS.decode(register)))
    }

    /// Reads the current through a shunt.
    pub fn current(&mut self, channel: Channel) -> Result<Amperes, SensorError<I2C::Error>> {
        let picovolts = self.shunt_picovolts(channel)?;
        Ok(current_through(self.shunt(channel), picovolts))
    }

    /// Reads voltage and current of a channel.
    pub fn read(&mut self, channel: Channel) -> Result<RailReading, SensorError<I2C::Error>> {
        Ok(RailReading { current: self.current(channel)?, voltage: self.bus_voltage(channel)? })
    }

    /// Sets the critical limit of a channel, with which single conversions are compared. Returns the limit that the
    /// chip has: the nearest one within its range.
    pub fn set_critical_limit(
        &mut self,
        channel: Channel,
        limit: Amperes,
    ) -> Result<Amperes, SensorError<I2C::Error>> {
        self.set_limit(CRITICAL_LIMIT, channel, limit)
    }

    /// Reads the critical limit of a channel.
    pub fn critical_limit(&mut self, channel: Channel) -> Result<Amperes, SensorError<I2C::Error>> {
        self.limit(CRITICAL_LIMIT, channel)
    }

    /// Sets the warning limit of a channel, with which averaged readings are compared. Returns the limit that the chip
    /// has: the nearest one within its range.
    pub fn set_warning_limit(
        &mut self,
        channel: Channel,
        limit: Amperes,
    ) -> Result<Amperes, SensorError<I2C::Error>> {
        self.set_limit(WARNING_LIMIT, channel, limit)
    }

    /// Reads the warning limit of a channel.
    pub fn warning_limit(&mut self, channel: Channel) -> Result<Amperes, SensorError<I2C::Error>> {
        self.limit(WARNING_LIMIT, channel)
    }

    /// Reads the sum of the shunt voltages of the summed channels. It is a current only where those have shunts of one
    /// resistance.
    pub fn shunt_sum(&mut self) -> Result<Volts, SensorError<I2C::Error>> {
        self.registers.read_u16(SHUNT_SUM).map(|register| volts(SUM.decode(register)))
    }

    /// Sets the limit of the sum of shunt voltages. Returns the limit that the chip has: the nearest one within its
    /// range.
    pub fn set_shunt_sum_limit(&mut self, limit: Volts) -> Result<Volts, SensorError<I2C::Error>> {
        let register = SUM.encode(picovolts(limit));
        self.registers.write_u16(SHUNT_SUM_LIMIT, register)?;
        Ok(volts(SUM.decode(register)))
    }

    /// Reads the limit of the sum of shunt voltages.
    pub fn shunt_sum_limit(&mut self) -> Result<Volts, SensorError<I2C::Error>> {
        self.registers.read_u16(SHUNT_SUM_LIMIT).map(|register| volts(SUM.decode(register)))
    }

    /// Sets up the alerts.
    pub fn configure_alerts(&mut self, config: &AlertConfig) -> Result<(), SensorError<I2C::Error>> {
        let register = MaskEnable { config: *config, flags: AlertFlags::default() };
        self.registers.write_u16(MASK_ENABLE, register.encode())
    }

    /// Reads settings and flags of the alerts. This clears latched flags and `conversion_ready`.
    pub fn mask_enable(&mut self) -> Result<MaskEnable, SensorError<I2C::Error>> {
        self.registers.read_u16(MASK_ENABLE).map(MaskEnable::decode)
    }

    /// Reads the alert flags. This clears latched flags and `conversion_ready`.
    pub fn alerts(&mut self) -> Result<AlertFlags, SensorError<I2C::Error>> {
        self.mask_enable().map(|register| register.flags)
    }

    /// Sets the power-valid limits. Returns those that the chip has: the nearest ones within its range.
    pub fn set_power_valid_limits(
        &mut self,
        limits: PowerValidLimits,
    ) -> Result<PowerValidLimits, SensorError<I2C::Error>> {
        let [upper, lower] = [limits.upper, limits.lower].map(|limit| BUS.encode(picovolts(limit)));
        self.registers.write_u16(POWER_VALID_UPPER, upper)?;
        self.registers.write_u16(POWER_VALID_LOWER, lower)?;
        Ok(PowerValidLimits { upper: volts(BUS.decode(upper)), lower: volts(BUS.decode(lower)) })
    }

    /// Reads the power-valid limits.
    pub fn power_valid_limits(&mut self) -> Result<PowerValidLimits, SensorError<I2C::Error>> {
        let upper = self.registers.read_u16(POWER_VALID_UPPER)?;
        let lower = self.registers.read_u16(POWER_VALID_LOWER)?;
        Ok(PowerValidLimits { upper: volts(BUS.decode(upper)), lower: volts(BUS.decode(lower)) })
    }

    fn shunt(&self, channel: Channel) -> Ohms {
        self.shunts[channel.index()]
    }

    fn shunt_picovolts(&mut self, channel: Channel) -> Result<i64, SensorError<I2C::Error>> {
        let register = self.registers.read_u16(channel.register(SHUNT_VOLTAGE))?;
        Ok(SHUNT.decode(register))
    }

    fn set_limit(
        &mut self,
        first: u8,
        channel: Channel,
        limit: Amperes,
    ) -> Result<Amperes, SensorError<I2C::Error>> {
        let register = SHUNT.encode(voltage_across(self.shunt(channel), limit));
        self.registers.write_u16(channel.register(first), register)?;
        Ok(current_through(self.shunt(channel), SHUNT.decode(register)))
    }

    fn limit(&mut self, first: u8, channel: Channel) -> Result<Amperes, SensorError<I2C::Error>> {
        let register = self.registers.read_u16(channel.register(first))?;
        Ok(current_through(self.shunt(channel), SHUNT.decode(register)))
    }
}

impl<I2C: I2c> RailMeter for Ina3221<I2C> {
    /// Returns the number of enabled channels. The rails are these, in order.
    fn rails(&self) -> usize {
        self.channels.count()
    }

    fn read_rail(&mut self, rail: usize) -> Result<RailReading, ErrorKind> {
        let channel = self.channels.iter().nth(rail).expect("the caller counts up to `rails`");
        self.read(channel).map_err(|fault| fault.bus_fault().unwrap_or(ErrorKind::Other))
    }
}
