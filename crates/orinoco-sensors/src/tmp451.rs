//! TMP451: temperature of the chip itself and of a remote diode, such as the one in a processor. Source: Texas
//! Instruments SBOS686, "Register Maps" and "Temperature Measurement Data".

use embedded_hal::i2c::I2c;
use orinoco_core::Celsius;

use crate::error::SensorError;
use crate::registers::Registers;
use crate::scale::nearest;

/// The one address of a TMP451.
pub const ADDRESS: u8 = 0x4C;
/// Value of the manufacturer's register.
pub const MANUFACTURER_ID: u8 = 0x55;

// Several registers have one address for reading and another one for writing.
const LOCAL_HIGH_BYTE: u8 = 0x00;
const LOCAL_LOW_BYTE: u8 = 0x15;
const REMOTE_HIGH_BYTE: u8 = 0x01;
const REMOTE_LOW_BYTE: u8 = 0x10;
const STATUS: u8 = 0x02;
const CONFIGURATION_READ: u8 = 0x03;
const CONFIGURATION_WRITE: u8 = 0x09;
const RATE_READ: u8 = 0x04;
const RATE_WRITE: u8 = 0x0A;
const LOCAL_UPPER: [u8; 2] = [0x05, 0x0B];
const LOCAL_LOWER: [u8; 2] = [0x06, 0x0C];
const REMOTE_UPPER: [u8; 2] = [0x07, 0x0D];
const REMOTE_LOWER: [u8; 2] = [0x08, 0x0E];
const ONE_SHOT: u8 = 0x0F;
const OFFSET_HIGH_BYTE: u8 = 0x11;
const OFFSET_LOW_BYTE: u8 = 0x12;
const REMOTE_UPPER_LOW_BYTE: u8 = 0x13;
const REMOTE_LOWER_LOW_BYTE: u8 = 0x14;
const REMOTE_THERM: u8 = 0x19;
const LOCAL_THERM: u8 = 0x20;
const THERM_HYSTERESIS: u8 = 0x21;
const CONSECUTIVE: u8 = 0x22;
const MANUFACTURER: u8 = 0xFE;

/// Sixteenth of a degree, in millionths: the step of a reading.
const STEP: i64 = 62_500;
/// Steps of a degree.
const STEPS: i64 = 16;

/// Range of the temperatures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TemperatureRange {
    /// 0 to 127 degrees, as after a reset. What is colder reads as 0.
    #[default]
    Standard,
    /// -64 to 191 degrees.
    Extended,
}

impl TemperatureRange {
    /// Returns the temperature of number 0, in steps.
    const fn origin(self) -> i64 {
        match self {
            Self::Standard => 0,
            Self::Extended => -64 * STEPS,
        }
    }

    /// Returns the greatest number.
    const fn greatest(self) -> i64 {
        match self {
            Self::Standard => 128 * STEPS - 1,
            Self::Extended => 256 * STEPS - 1,
        }
    }

    /// Returns the register that is nearest to a temperature: 12 bits, aligned to the left.
    fn encode(self, temperature: Celsius) -> u16 {
        let number = nearest(temperature.micro(), STEP) - self.origin();
        (number.clamp(0, self.greatest()) << 4) as u16
    }

    /// Returns the register of one byte that is nearest to a temperature.
    fn encode_degrees(self, temperature: Celsius) -> u8 {
        let number = nearest(temperature.micro(), STEP * STEPS) - self.origin() / STEPS;
        number.clamp(0, self.greatest() / STEPS) as u8
    }

    /// Returns the temperature of a register.
    fn decode(self, register: u16) -> Celsius {
        Celsius::from_micro((i64::from(register >> 4) + self.origin()) * STEP)
    }

    /// Returns the temperature of a register of one byte.
    fn decode_degrees(self, register: u8) -> Celsius {
        self.decode(u16::from(register) << 8)
    }
}

/// Rate of the conversions (SBOS686, "Conversion Rate Register").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ConversionRate {
    /// Every 16 s.
    Every16s,
    /// Every 8 s.
    Every8s,
    /// Every 4 s.
    Every4s,
    /// Every 2 s.
    Every2s,
    /// Once a second.
    Hz1,
    /// Twice a second.
    Hz2,
    /// 4 times a second.
    Hz4,
    /// 8 times a second.
    Hz8,
    /// 16 times a second, as after a reset.
    #[default]
    Hz16,
    /// 32 times a second.
    Hz32,
}

impl ConversionRate {
    /// All rates, in the order of their codes.
    pub const ALL: [Self; 10] = [
        Self::Every16s,
        Self::Every8s,
        Self::Every4s,
        Self::Every2s,
        Self::Hz1,
        Self::Hz2,
        Self::Hz4,
        Self::Hz8,
        Self::Hz16,
        Self::Hz32,
    ];

    /// Returns the time between conversions, in microseconds.
    pub const fn period_micros(self) -> u32 {
        16_000_000 >> self as u32
    }

    /// Returns the rate of a register. Codes above the fastest rate are the fastest rate.
    fn from_code(code: u8) -> Self {
        Self::ALL.get(usize::from(code & 0x0F)).copied().unwrap_or(Self::Hz32)
    }
}

/// Function of the pin ALERT/THERM2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlertPin {
    /// Latched alert: a limit was passed, or the diode is open.
    #[default]
    Alert,
    /// No alert: the pin is masked.
    Masked,
    /// Second thermostat: the pin follows the upper limits.
    Therm2,
}

/// Operating mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Conversions at the set rate.
    #[default]
    Continuous,
    /// No conversions, except one for each [`Tmp451::start_one_shot`].
    Shutdown,
}

/// Number of readings outside of a limit, one after another, that make an alert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consecutive {
    /// One.
    #[default]
    One,
    /// Two.
    Two,
    /// Three.
    Three,
    /// Four.
    Four,
}

impl Consecutive {
    /// Returns the register: bits 3 to 1. Bit 0 is always set.
    const fn encode(self) -> u8 {
        match self {
            Self::One => 0b0001,
            Self::Two => 0b0011,
            Self::Three => 0b0111,
            Self::Four => 0b1111,
        }
    }

    const fn decode(register: u8) -> Self {
        match register >> 1 & 7 {
            0b000 => Self::One,
            0b001 => Self::Two,
            0b011 => Self::Three,
            _ => Self::Four,
        }
    }
}

/// Settings. The default is the chip's own after a reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Range of the temperatures.
    pub range: TemperatureRange,
    /// Rate of the conversions.
    pub rate: ConversionRate,
    /// Operating mode.
    pub mode: Mode,
    /// Function of the alert pin.
    pub alert_pin: AlertPin,
    /// Readings that make an alert.
    pub consecutive: Consecutive,
}

impl Config {
    /// Returns the registers of configuration, rate and consecutive alerts.
    pub const fn encode(&self) -> [u8; 3] {
        let pin = match self.alert_pin {
            AlertPin::Alert => 0,
            AlertPin::Masked => 1 << 7,
            AlertPin::Therm2 => 1 << 5,
        };
        let mode = (matches!(self.mode, Mode::Shutdown) as u8) << 6;
        let range = (matches!(self.range, TemperatureRange::Extended) as u8) << 2;
        [pin | mode | range, self.rate as u8, self.consecutive.encode()]
    }

    /// Returns the settings of the registers of configuration, rate and consecutive alerts.
    pub fn decode([config, rate, consecutive]: [u8; 3]) -> Self {
        Self {
            range: if config & 1 << 2 != 0 { TemperatureRange::Extended } else { TemperatureRange::Standard },
            rate: ConversionRate::from_code(rate),
            mode: if config & 1 << 6 != 0 { Mode::Shutdown } else { Mode::Continuous },
            alert_pin: match (config & 1 << 7 != 0, config & 1 << 5 != 0) {
                (_, true) => AlertPin::Therm2,
                (true, false) => AlertPin::Masked,
                (false, false) => AlertPin::Alert,
            },
            consecutive: Consecutive::decode(consecutive),
        }
    }
}

/// Status flags. Reading them clears those of the limits, except where the fault persists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// A conversion is under way.
    pub busy: bool,
    /// The chip itself has been above its upper limit.
    pub local_above: bool,
    /// The chip itself has been below its lower limit.
    pub local_below: bool,
    /// The remote diode has been above its upper limit.
    pub remote_above: bool,
    /// The remote diode has been below its lower limit.
    pub remote_below: bool,
    /// The remote diode is not connected.
    pub remote_open: bool,
    /// The remote diode is above its THERM limit.
    pub remote_therm: bool,
    /// The chip itself is above its THERM limit.
    pub local_therm: bool,
}

impl Status {
    /// Returns the flags of the register.
    pub const fn decode(register: u8) -> Self {
        Self {
            busy: register & 1 << 7 != 0,
            local_above: register & 1 << 6 != 0,
            local_below: register & 1 << 5 != 0,
            remote_above: register & 1 << 4 != 0,
            remote_below: register & 1 << 3 != 0,
            remote_open: register & 1 << 2 != 0,
            remote_therm: register & 1 << 1 != 0,
            local_therm: register & 1 != 0,
        }
    }
}

/// Limits of one sensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// An alert is raised above this.
    pub upper: Celsius,
    /// An alert is raised below this.
    pub lower: Celsius,
    /// The pin THERM is asserted above this, until the temperature has fallen by the hysteresis.
    pub therm: Celsius,
}

/// TMP451 on an I2C bus.
#[derive(Debug)]
pub struct Tmp451<I2C> {
    registers: Registers<I2C>,
    range: TemperatureRange,
}

impl<I2C: I2c> Tmp451<I2C> {
    /// Creates the driver. It does not access the bus, and takes the chip to be as after a reset: call
    /// [`configure`](Self::configure), or [`configuration`](Self::configuration) where another program has set the
    /// range.
    pub fn new(bus: I2C, address: u8) -> Self {
        Self { registers: Registers::new(bus, "TMP451", address), range: TemperatureRange::Standard }
    }

    /// Returns the bus.
    pub fn release(self) -> I2C {
        self.registers.release()
    }

    /// Fails unless a chip of the manufacturer answers. The TMP451 has no register that identifies the type.
    pub fn probe(&mut self) -> Result<(), SensorError<I2C::Error>> {
        self.registers.expect_u8(MANUFACTURER, MANUFACTURER_ID)
    }

    /// Sets up the chip. After a change of the range the limits mean other temperatures, and the readings are wrong
    /// until the next conversion.
    pub fn configure(&mut self, config: &Config) -> Result<(), SensorError<I2C::Error>> {
        let [general, rate, consecutive] = config.encode();
        self.registers.write_u8(CONFIGURATION_WRITE, general)?;
        self.range = config.range;
        self.registers.write_u8(RATE_WRITE, rate)?;
        self.registers.write_u8(CONSECUTIVE, consecutive)
    }

    /// Reads the settings, and uses their range afterwards.
    pub fn configuration(&mut self) -> Result<Config, SensorError<I2C::Error>> {
        let general = self.registers.read_u8(CONFIGURATION_READ)?;
        let rate = self.registers.read_u8(RATE_READ)?;
        let consecutive = self.registers.read_u8(CONSECUTIVE)?;
        let config = Config::decode([general, rate, consecutive]);
        self.range = config.range;
        Ok(config)
    }

    /// Starts one conversion of both sensors, in shutdown.
    pub fn start_one_shot(&mut self) -> Result<(), SensorError<I2C::Error>> {
        // Any value does.
        self.registers.write_u8(ONE_SHOT, 0xFF)
    }

    /// Reads the temperature of the chip itself.
    pub fn local(&mut self) -> Result<Celsius, SensorError<I2C::Error>> {
        let register = self.read_pair(LOCAL_HIGH_BYTE, LOCAL_LOW_BYTE)?;
        Ok(self.range.decode(register))
    }

    /// Reads the temperature of the remote diode; `None` while it is not connected. It reads the status, which clears
    /// the flags of the limits.
    pub fn remote(&mut self) -> Result<Option<Celsius>, SensorError<I2C::Error>> {
        if self.status()?.remote_open {
            return Ok(None);
        }
        let register = self.read_pair(REMOTE_HIGH_BYTE, REMOTE_LOW_BYTE)?;
        Ok(Some(self.range.decode(register)))
    }

    /// Reads the status flags. This clears those of the limits.
    pub fn status(&mut self) -> Result<Status, SensorError<I2C::Error>> {
        self.registers.read_u8(STATUS).map(Status::decode)
    }

    /// Sets the limits of the chip itself. Returns those that it has: the nearest whole degrees within the range.
    pub fn set_local_limits(&mut self, limits: Limits) -> Result<Limits, SensorError<I2C::Error>> {
        let [upper, lower, therm] =
            [limits.upper, limits.lower, limits.therm].map(|limit| self.range.encode_degrees(limit));
        self.registers.write_u8(LOCAL_UPPER[1], upper)?;
        self.registers.write_u8(LOCAL_LOWER[1], lower)?;
        self.registers.write_u8(LOCAL_THERM, therm)?;
        let [upper, lower, therm] = [upper, lower, therm].map(|limit| self.range.decode_degrees(limit));
        Ok(Limits { upper, lower, therm })
    }

    /// Reads the limits of the chip itself.
    pub fn local_limits(&mut self) -> Result<Limits, SensorError<I2C::Error>> {
        let upper = self.registers.read_u8(LOCAL_UPPER[0])?;
        let lower = self.registers.read_u8(LOCAL_LOWER[0])?;
        let therm = self.registers.read_u8(LOCAL_THERM)?;
        let [upper, lower, therm] = [upper, lower, therm].map(|limit| self.range.decode_degrees(limit));
        Ok(Limits { upper, lower, therm })
    }

    /// Sets the limits of the remote diode. Returns those that the chip has: the nearest sixteenths of a degree within
    /// the range, and the nearest whole degree for THERM.
    pub fn set_remote_limits(&mut self, limits: Limits) -> Result<Limits, SensorError<I2C::Error>> {
        let [upper, lower] = [limits.upper, limits.lower].map(|limit| self.range.encode(limit));
        let therm = self.range.encode_degrees(limits.therm);
        self.write_pair(REMOTE_UPPER[1], REMOTE_UPPER_LOW_BYTE, upper)?;
        self.write_pair(REMOTE_LOWER[1], REMOTE_LOWER_LOW_BYTE, lower)?;
        self.registers.write_u8(REMOTE_THERM, therm)?;
        let [upper, lower] = [upper, lower].map(|limit| self.range.decode(limit));
        Ok(Limits { upper, lower, therm: self.range.decode_degrees(therm) })
    }

    /// Reads the limits of the remote diode.
    pub fn remote_limits(&mut self) -> Result<Limits, SensorError<I2C::Error>> {
        let upper = self.read_limit(REMOTE_UPPER[0], REMOTE_UPPER_LOW_BYTE)?;
        let lower = self.read_limit(REMOTE_LOWER[0], REMOTE_LOWER_LOW_BYTE)?;
        let therm = self.registers.read_u8(REMOTE_THERM)?;
        let [upper, lower] = [upper, lower].map(|limit| self.range.decode(limit));
        Ok(Limits { upper, lower, therm: self.range.decode_degrees(therm) })
    }

    /// Sets by how much a temperature must fall below its THERM limit until the pin is released. Returns the hysteresis
    /// that the chip has: whole degrees, up to 255.
    pub fn set_therm_hysteresis(&mut self, hysteresis: Celsius) -> Result<Celsius, SensorError<I2C::Error>> {
        let degrees = nearest(hysteresis.micro(), 1_000_000).clamp(0, 255);
        self.registers.write_u8(THERM_HYSTERESIS, degrees as u8)?;
        Ok(Celsius::from_units(degrees))
    }

    /// Sets the offset that the chip adds to the temperature of the remote diode. Returns the offset that it has: the
    /// nearest sixteenth of a degree within 128 degrees.
    pub fn set_remote_offset(&mut self, offset: Celsius) -> Result<Celsius, SensorError<I2C::Error>> {
        let steps = nearest(offset.micro(), STEP).clamp(-2_048, 2_047);
        self.write_pair(OFFSET_HIGH_BYTE, OFFSET_LOW_BYTE, (steps << 4) as u16)?;
        Ok(Celsius::from_micro(steps * STEP))
    }

    /// Reads a temperature in two bytes. Between the two a conversion may end: then both are read again, and the second
    /// pair is of one conversion, because those are at least 31 ms apart.
    fn read_pair(&mut self, high: u8, low: u8) -> Result<u16, SensorError<I2C::Error>> {
        let [before, fraction, after] =
            [self.registers.read_u8(high)?, self.registers.read_u8(low)?, self.registers.read_u8(high)?];
        let fraction = if before == after { fraction } else { self.registers.read_u8(low)? };
        Ok(u16::from_be_bytes([after, fraction]))
    }

    fn read_limit(&mut self, high: u8, low: u8) -> Result<u16, SensorError<I2C::Error>> {
        Ok(u16::from_be_bytes([self.registers.read_u8(high)?, self.registers.read_u8(low)?]))
    }

    fn write_pair(&mut self, high: u8, low: u8, value: u16) -> Result<(), SensorError<I2C::Error>> {
        let [degrees, fraction] = value.to_be_bytes();
        self.registers.write_u8(high, degrees)?;
        self.registers.write_u8(low, fraction)
    }
}
