//! TMP75: temperature with a thermostat. Source: Texas Instruments SBOS288, "Programming" and "Register Maps".

use embedded_hal::i2c::I2c;
use orinoco_core::Celsius;

use crate::alert::AlertPolarity;
use crate::error::SensorError;
use crate::registers::Registers;
use crate::scale::Scale;

/// First of the eight addresses that the pins A2 to A0 select.
pub const ADDRESS: u8 = 0x48;

const TEMPERATURE: u8 = 0x00;
const CONFIGURATION: u8 = 0x01;
const LOWER_LIMIT: u8 = 0x02;
const UPPER_LIMIT: u8 = 0x03;

/// Temperature and limits: 12 bits, aligned to the left, of a sixteenth of a degree, in millionths.
const SCALE: Scale = Scale::signed(62_500, 12, 4);

/// Resolution of the readings, which decides how long a conversion takes (SBOS288, "Converter Resolution").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Resolution {
    /// Half a degree.
    #[default]
    Bits9,
    /// A quarter of a degree.
    Bits10,
    /// An eighth of a degree.
    Bits11,
    /// A sixteenth of a degree.
    Bits12,
}

impl Resolution {
    /// All resolutions, in the order of their codes.
    pub const ALL: [Self; 4] = [Self::Bits9, Self::Bits10, Self::Bits11, Self::Bits12];

    /// Returns the typical duration of a conversion, in microseconds.
    pub const fn conversion_micros(self) -> u32 {
        27_500 << self as u32
    }
}

/// Number of readings outside of the limits, one after another, that make an alert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum FaultQueue {
    /// One.
    #[default]
    One,
    /// Two.
    Two,
    /// Four.
    Four,
    /// Six.
    Six,
}

impl FaultQueue {
    /// All lengths, in the order of their codes.
    pub const ALL: [Self; 4] = [Self::One, Self::Two, Self::Four, Self::Six];
}

/// Behaviour of the alert pin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Thermostat {
    /// Comparator: the pin is active from above the upper limit until below the lower one.
    #[default]
    Comparator,
    /// Interrupt: the pin is active from each crossing until a register is read.
    Interrupt,
}

/// Operating mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Continuous conversions.
    #[default]
    Continuous,
    /// No conversions, except one for each [`Tmp75::start_one_shot`].
    Shutdown,
}

/// Settings. The default is the chip's own after a reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Resolution of the readings.
    pub resolution: Resolution,
    /// Readings that make an alert.
    pub fault_queue: FaultQueue,
    /// Level of the pin in an alert.
    pub polarity: AlertPolarity,
    /// Behaviour of the alert pin.
    pub thermostat: Thermostat,
    /// Operating mode.
    pub mode: Mode,
}

/// Bit that starts one conversion in shutdown. It reads as 0.
const ONE_SHOT: u8 = 1 << 7;

impl Config {
    /// Returns the register.
    pub const fn encode(&self) -> u8 {
        (self.resolution as u8) << 5
            | (self.fault_queue as u8) << 3
            | (matches!(self.polarity, AlertPolarity::ActiveHigh) as u8) << 2
            | (matches!(self.thermostat, Thermostat::Interrupt) as u8) << 1
            | matches!(self.mode, Mode::Shutdown) as u8
    }

    /// Returns the settings of a register.
    pub const fn decode(register: u8) -> Self {
        Self {
            resolution: Resolution::ALL[(register >> 5 & 3) as usize],
            fault_queue: FaultQueue::ALL[(register >> 3 & 3) as usize],
            polarity: if register & 1 << 2 != 0 {
                AlertPolarity::ActiveHigh
            } else {
                AlertPolarity::ActiveLow
            },
            thermostat: if register & 1 << 1 != 0 { Thermostat::Interrupt } else { Thermostat::Comparator },
            mode: if register & 1 != 0 { Mode::Shutdown } else { Mode::Continuous },
        }
    }
}

/// Limits of the thermostat. After a reset they are 80 and 75 degrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The alert begins above this.
    pub upper: Celsius,
    /// The alert ends below this.
    pub lower: Celsius,
}

/// TMP75 on an I2C bus.
#[derive(Debug)]
pub struct Tmp75<I2C> {
    registers: Registers<I2C>,
    config: Config,
}

impl<I2C: I2c> Tmp75<I2C> {
    /// Creates the driver. It does not access the bus.
    pub fn new(bus: I2C, address: u8) -> Self {
        Self { registers: Registers::new(bus, "TMP75", address), config: Config::default() }
    }

    /// Returns the bus.
    pub fn release(self) -> I2C {
        self.registers.release()
    }

    /// Fails unless a chip answers as a TMP75 does: the lowest four bits of temperature and limits are 0. It has no
    /// register that identifies it, so a chip that is compatible passes, too.
    pub fn probe(&mut self) -> Result<(), SensorError<I2C::Error>> {
        [TEMPERATURE, LOWER_LIMIT, UPPER_LIMIT]
            .into_iter()
            .try_for_each(|register| self.registers.expect(register, 0, 0x000F))
    }

    /// Sets up the chip.
    pub fn configure(&mut self, config: &Config) -> Result<(), SensorError<I2C::Error>> {
        self.registers.write_u8(CONFIGURATION, config.encode())?;
        self.config = *config;
        Ok(())
    }

    /// Reads the settings.
    pub fn configuration(&mut self) -> Result<Config, SensorError<I2C::Error>> {
        self.config = Config::decode(self.registers.read_u8(CONFIGURATION)?);
        Ok(self.config)
    }

    /// Starts one conversion with the settings of the last [`configure`](Self::configure) or
    /// [`configuration`](Self::configuration), in shutdown. The reading is there after
    /// [`conversion_micros`](Resolution::conversion_micros).
    pub fn start_one_shot(&mut self) -> Result<(), SensorError<I2C::Error>> {
        self.registers.write_u8(CONFIGURATION, self.config.encode() | ONE_SHOT)
    }

    /// Reads the temperature.
    pub fn temperature(&mut self) -> Result<Celsius, SensorError<I2C::Error>> {
        self.registers.read_u16(TEMPERATURE).map(celsius)
    }

    /// Sets the limits. Returns those that the chip has: the nearest sixteenths of a degree within -128 to 127.9375.
    pub fn set_limits(&mut self, limits: Limits) -> Result<Limits, SensorError<I2C::Error>> {
        let [upper, lower] = [limits.upper, limits.lower].map(|limit| SCALE.encode(limit.micro()));
        self.registers.write_u16(UPPER_LIMIT, upper)?;
        self.registers.write_u16(LOWER_LIMIT, lower)?;
        Ok(Limits { upper: celsius(upper), lower: celsius(lower) })
    }

    /// Reads the limits.
    pub fn limits(&mut self) -> Result<Limits, SensorError<I2C::Error>> {
        let upper = self.registers.read_u16(UPPER_LIMIT).map(celsius)?;
        let lower = self.registers.read_u16(LOWER_LIMIT).map(celsius)?;
        Ok(Limits { upper, lower })
    }
}

fn celsius(register: u16) -> Celsius {
    Celsius::from_micro(SCALE.decode(register))
}
