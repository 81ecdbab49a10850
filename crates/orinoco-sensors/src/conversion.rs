/// Number of conversions whose average is a reading of an INA3221, INA226 or INA228.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Averaging {
    /// No averaging.
    #[default]
    Samples1,
    /// 4 conversions.
    Samples4,
    /// 16 conversions.
    Samples16,
    /// 64 conversions.
    Samples64,
    /// 128 conversions.
    Samples128,
    /// 256 conversions.
    Samples256,
    /// 512 conversions.
    Samples512,
    /// 1,024 conversions.
    Samples1024,
}

impl Averaging {
    /// All settings, in the order of their codes.
    pub const ALL: [Self; 8] = [
        Self::Samples1,
        Self::Samples4,
        Self::Samples16,
        Self::Samples64,
        Self::Samples128,
        Self::Samples256,
        Self::Samples512,
        Self::Samples1024,
    ];

    /// Returns the number of conversions.
    pub const fn samples(self) -> u32 {
        [1, 4, 16, 64, 128, 256, 512, 1024][self as usize]
    }

    /// Returns the three bits of a register.
    pub(crate) const fn code(self) -> u16 {
        self as u16
    }

    /// Returns the setting of the lowest three bits.
    pub(crate) const fn from_code(bits: u16) -> Self {
        Self::ALL[(bits & 7) as usize]
    }
}

/// Duration of one conversion of an INA3221 (SBOS576) or INA226 (SBOS547): fields VBUSCT and VSHCT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ConversionTime {
    /// 140 us.
    Us140,
    /// 204 us.
    Us204,
    /// 332 us.
    Us332,
    /// 588 us.
    Us588,
    /// 1.1 ms, as after a reset.
    #[default]
    Us1100,
    /// 2.116 ms.
    Us2116,
    /// 4.156 ms.
    Us4156,
    /// 8.244 ms.
    Us8244,
}

impl ConversionTime {
    /// All settings, in the order of their codes.
    pub const ALL: [Self; 8] = [
        Self::Us140,
        Self::Us204,
        Self::Us332,
        Self::Us588,
        Self::Us1100,
        Self::Us2116,
        Self::Us4156,
        Self::Us8244,
    ];

    /// Returns the duration in microseconds.
    pub const fn micros(self) -> u32 {
        [140, 204, 332, 588, 1_100, 2_116, 4_156, 8_244][self as usize]
    }

    /// Returns the three bits of a register.
    pub(crate) const fn code(self) -> u16 {
        self as u16
    }

    /// Returns the setting of the lowest three bits.
    pub(crate) const fn from_code(bits: u16) -> Self {
        Self::ALL[(bits & 7) as usize]
    }
}

/// Operating mode of an INA3221 (SBOS576) or INA226 (SBOS547): field MODE. Writing a triggered mode starts one
/// conversion of each enabled channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// No conversions.
    PowerDown = 0,
    /// One conversion of the shunt voltage.
    ShuntTriggered = 1,
    /// One conversion of the bus voltage.
    BusTriggered = 2,
    /// One conversion of both.
    BothTriggered = 3,
    /// Continuous conversions of the shunt voltage.
    ShuntContinuous = 5,
    /// Continuous conversions of the bus voltage.
    BusContinuous = 6,
    /// Continuous conversions of both, as after a reset.
    #[default]
    BothContinuous = 7,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 7] = [
        Self::PowerDown,
        Self::ShuntTriggered,
        Self::BusTriggered,
        Self::BothTriggered,
        Self::ShuntContinuous,
        Self::BusContinuous,
        Self::BothContinuous,
    ];

    /// Returns the three bits of a register.
    pub(crate) const fn code(self) -> u16 {
        self as u16
    }

    /// Returns the mode of the lowest three bits. Code 4 is power-down, as code 0 is.
    pub(crate) const fn from_code(bits: u16) -> Self {
        match bits & 7 {
            1 => Self::ShuntTriggered,
            2 => Self::BusTriggered,
            3 => Self::BothTriggered,
            5 => Self::ShuntContinuous,
            6 => Self::BusContinuous,
            7 => Self::BothContinuous,
            _ => Self::PowerDown,
        }
    }
}

/// Returns the time of one reading in microseconds: `channels` shunts and buses, as often as they are averaged.
pub(crate) const fn cycle_micros(
    averaging: Averaging,
    mode: Mode,
    bus_time: ConversionTime,
    shunt_time: ConversionTime,
    channels: u32,
) -> u32 {
    let shunt = if mode.code() & 1 == 1 { shunt_time.micros() } else { 0 };
    let bus = if mode.code() & 2 == 2 { bus_time.micros() } else { 0 };
    averaging.samples() * (shunt + bus) * channels
}
