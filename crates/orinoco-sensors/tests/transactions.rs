//! Exact transactions of each driver, with a mocked bus.

use embedded_hal::i2c::ErrorKind;
use embedded_hal_mock::eh1::i2c::{Mock, Transaction as T};
use orinoco_core::{Amperes, Celsius, Coulombs, Joules, Ohms, Volts, Watts};
use orinoco_sensors::ina226::{self, AlertCondition};
use orinoco_sensors::ina228::{self, Mode as Mode228, Quantities, ShuntRange};
use orinoco_sensors::ina3221::{self, AlertConfig, Channel, Channels, PowerValidLimits};
use orinoco_sensors::{
    AlertLatch, AlertPolarity, Averaging, ConversionSignal, ConversionTime, Device, Ina226, Ina228, Ina3221,
    Mode, SensorError, Tmp75, Tmp451, tmp75, tmp451,
};

const INA: u8 = 0x40;
const SHUNT: Ohms = Ohms::from_milli(5);

/// Transaction that reads a register.
fn read(address: u8, register: u8, bytes: &[u8]) -> T {
    T::write_read(address, vec![register], bytes.to_vec())
}

/// Transaction that writes a register.
fn write(address: u8, register: u8, bytes: &[u8]) -> T {
    T::write(address, [&[register], bytes].concat())
}

/// Runs `action` with a driver on a bus that expects these transactions, and checks that it made them all.
fn check<D, R>(
    expected: &[T],
    create: impl FnOnce(Mock) -> D,
    action: impl FnOnce(&mut D) -> R,
    release: impl FnOnce(D) -> Mock,
) -> R {
    let mut driver = create(Mock::new(expected));
    let result = action(&mut driver);
    release(driver).done();
    result
}

fn check_ina3221<R>(expected: &[T], action: impl FnOnce(&mut Ina3221<Mock>) -> R) -> R {
    check(expected, |bus| Ina3221::new(bus, INA, [SHUNT; 3]).unwrap(), action, Ina3221::release)
}

fn check_ina226<R>(expected: &[T], action: impl FnOnce(&mut Ina226<Mock>) -> R) -> R {
    check(expected, |bus| Ina226::new(bus, INA, SHUNT).unwrap(), action, Ina226::release)
}

fn check_ina228<R>(expected: &[T], action: impl FnOnce(&mut Ina228<Mock>) -> R) -> R {
    check(expected, |bus| Ina228::new(bus, INA, SHUNT).unwrap(), action, Ina228::release)
}

fn check_tmp451<R>(expected: &[T], action: impl FnOnce(&mut Tmp451<Mock>) -> R) -> R {
    check(expected, |bus| Tmp451::new(bus, tmp451::ADDRESS), action, Tmp451::release)
}

fn check_tmp75<R>(expected: &[T], action: impl FnOnce(&mut Tmp75<Mock>) -> R) -> R {
    check(expected, |bus| Tmp75::new(bus, tmp75::ADDRESS), action, Tmp75::release)
}

#[test]
fn ina3221_is_identified_and_set_up() {
    let ids = [read(INA, 0xFE, &[0x54, 0x49]), read(INA, 0xFF, &[0x32, 0x20])];
    assert_eq!(check_ina3221(&ids, Ina3221::probe), Ok(()));
    assert_eq!(check_ina3221(&[write(INA, 0x00, &[0x80, 0x00])], Ina3221::reset), Ok(()));
    let defaults = [write(INA, 0x00, &[0x71, 0x27])];
    assert_eq!(check_ina3221(&defaults, |chip| chip.configure(&ina3221::Config::default())), Ok(()));
    let config = ina3221::Config {
        channels: Channels::NONE.with(Channel::One).with(Channel::Three),
        averaging: Averaging::Samples1024,
        bus_time: ConversionTime::Us8244,
        shunt_time: ConversionTime::Us140,
        mode: Mode::ShuntTriggered,
    };
    // Channels 1 and 3, averaging 7, bus time 7, shunt time 0, mode 1.
    let register = [write(INA, 0x00, &[0x5F, 0xC1]), read(INA, 0x00, &[0x5F, 0xC1])];
    let back = check_ina3221(&register, |chip| {
        chip.configure(&config)?;
        chip.configuration()
    });
    assert_eq!(back, Ok(config));
}

#[test]
fn ina3221_reads_aligned_twos_complement() {
    // 80 mV through 5 milliohms, and 12 V: 2,000 steps of 40 uV and 1,500 of 8 mV, three bits to the left.
    let one = [read(INA, 0x01, &[0x3E, 0x80]), read(INA, 0x02, &[0x2E, 0xE0])];
    let reading = check_ina3221(&one, |chip| chip.read(Channel::One)).unwrap();
    assert_eq!((reading.current, reading.voltage), (Amperes::from_units(16), Volts::from_units(12)));
    assert_eq!(reading.power(), Watts::from_units(192));
    // The datasheet's example: -80 mV is 0xC180.
    let negative = [read(INA, 0x03, &[0xC1, 0x80])];
    assert_eq!(check_ina3221(&negative, |chip| chip.shunt_voltage(Channel::Two)), Ok(Volts::from_milli(-80)));
    let least = [read(INA, 0x05, &[0xFF, 0xF8])];
    assert_eq!(check_ina3221(&least, |chip| chip.current(Channel::Three)), Ok(Amperes::from_milli(-8)));
    let highest = [read(INA, 0x06, &[0x7F, 0xF8])];
    assert_eq!(
        check_ina3221(&highest, |chip| chip.bus_voltage(Channel::Three)),
        Ok(Volts::from_milli(32_760))
    );
    let sum = [read(INA, 0x0D, &[0xFF, 0xFE])];
    assert_eq!(check_ina3221(&sum, Ina3221::shunt_sum), Ok(Volts::from_micro(-40)));
}

#[test]
fn ina3221_limits_go_to_their_registers() {
    // 10 A through 5 milliohms: 50 mV, 1,250 steps.
    let critical = [write(INA, 0x09, &[0x27, 0x10]), read(INA, 0x09, &[0x27, 0x10])];
    let back = check_ina3221(&critical, |chip| {
        chip.set_critical_limit(Channel::Two, Amperes::from_units(10))?;
        chip.critical_limit(Channel::Two)
    });
    assert_eq!(back, Ok(Amperes::from_units(10)));
    let warning = [write(INA, 0x0C, &[0x7F, 0xF8]), read(INA, 0x0C, &[0x7F, 0xF8])];
    let back = check_ina3221(&warning, |chip| {
        let set = chip.set_warning_limit(Channel::Three, Amperes::from_units(1_000))?;
        assert_eq!(set, Amperes::from_milli(32_760));
        chip.warning_limit(Channel::Three)
    });
    assert_eq!(back, Ok(Amperes::from_milli(32_760)));
    // 100 mV: 2,500 steps, one bit to the left.
    let sum = [write(INA, 0x0E, &[0x13, 0x88]), read(INA, 0x0E, &[0x13, 0x88])];
    let back = check_ina3221(&sum, |chip| {
        chip.set_shunt_sum_limit(Volts::from_milli(100))?;
        chip.shunt_sum_limit()
    });
    assert_eq!(back, Ok(Volts::from_milli(100)));
    // The datasheet's defaults: 10 V and 9 V.
    let valid = [
        write(INA, 0x10, &[0x27, 0x10]),
        write(INA, 0x11, &[0x23, 0x28]),
        read(INA, 0x10, &[0x27, 0x10]),
        read(INA, 0x11, &[0x23, 0x28]),
    ];
    let limits = PowerValidLimits { upper: Volts::from_units(10), lower: Volts::from_units(9) };
    let back = check_ina3221(&valid, |chip| {
        assert_eq!(chip.set_power_valid_limits(limits), Ok(limits));
        chip.power_valid_limits()
    });
    assert_eq!(back, Ok(limits));
}

#[test]
fn ina3221_alerts_are_set_up_and_read() {
    let config = AlertConfig {
        summed: Channels::ALL,
        warning: AlertLatch::Latched,
        critical: AlertLatch::Transparent,
    };
    // The timing-control bit is written as 1, its level without an alert.
    let set = [write(INA, 0x0F, &[0x78, 0x02])];
    assert_eq!(check_ina3221(&set, |chip| chip.configure_alerts(&config)), Ok(()));
    // Critical 1, warning 3, sum, power valid, timing control (low), ready.
    let flags = check_ina3221(&[read(INA, 0x0F, &[0x02, 0x4D])], Ina3221::alerts).unwrap();
    assert_eq!(flags.critical, Channels::NONE.with(Channel::One));
    assert_eq!(flags.warning, Channels::NONE.with(Channel::Three));
    assert!(flags.sum && flags.power_valid && flags.timing_control && flags.conversion_ready);
}

#[test]
fn ina226_registers() {
    let ids = [read(INA, 0xFE, &[0x54, 0x49]), read(INA, 0xFF, &[0x22, 0x60])];
    assert_eq!(check_ina226(&ids, Ina226::probe), Ok(()));
    let set = [write(INA, 0x00, &[0x41, 0x27])];
    assert_eq!(check_ina226(&set, |chip| chip.configure(&ina226::Config::default())), Ok(()));
    // 1 A through 5 milliohms is 2,000 steps of 2.5 uV; 12 V is 9,600 of 1.25 mV.
    let both = [read(INA, 0x01, &[0x07, 0xD0]), read(INA, 0x02, &[0x25, 0x80])];
    let reading = check_ina226(&both, Ina226::read).unwrap();
    assert_eq!((reading.current, reading.voltage), (Amperes::from_units(1), Volts::from_units(12)));
    let negative = [read(INA, 0x01, &[0x80, 0x00])];
    assert_eq!(check_ina226(&negative, Ina226::shunt_voltage), Ok(Volts::from_micro(-81_920)));
}

#[test]
fn ina226_calibration_has_the_finest_steps() {
    // The datasheet's design example has 2 milliohms and 15 A. It rounds the step up to 1 mA; the finest one gives
    // 5,592.
    let expected = [
        write(0x41, 0x05, &[0x15, 0xD8]),
        read(0x41, 0x04, &[0x55, 0x54]),
        read(0x41, 0x03, &[0x00, 0x64]),
        write(0x41, 0x07, &[0x00, 0x64]),
        write(0x41, 0x06, &[0x08, 0x03]),
    ];
    let create = |bus| Ina226::new(bus, 0x41, Ohms::from_milli(2)).unwrap();
    let action = |chip: &mut Ina226<Mock>| {
        let calibration = chip.calibrate(Amperes::from_units(15)).unwrap();
        // A step is 0.00512 / (5592 * 0.002) A = 457.7969 uA.
        assert_eq!(chip.chip_current(&calibration), Ok(Amperes::from_micro(10_000_114)));
        let power = chip.chip_power(&calibration).unwrap();
        assert_eq!(power, Watts::from_micro(1_144_492));
        assert!(calibration.current_max() >= Amperes::from_units(15));
        let alert = ina226::AlertConfig {
            condition: AlertCondition::PowerAbove(power, calibration),
            polarity: AlertPolarity::ActiveHigh,
            latch: AlertLatch::Latched,
            ..ina226::AlertConfig::default()
        };
        assert_eq!(chip.configure_alert(&alert), Ok(AlertCondition::PowerAbove(power, calibration)));
    };
    check(&expected, create, action, Ina226::release);
}

#[test]
fn ina226_calibration_saturates() {
    // 3 A through 5 milliohms gives 11,184; 1 A would need more than 15 bits; nothing at all is taken as very little.
    for (current, register) in
        [(3_000, [0x2B, 0xB0]), (1_050, [0x7C, 0xD4]), (1_000, [0x7F, 0xFF]), (0, [0x7F, 0xFF])]
    {
        let calibration = check_ina226(&[write(INA, 0x05, &register)], |chip| {
            chip.calibrate(Amperes::from_milli(current)).unwrap()
        });
        // 15 bits hold one step less.
        assert!(calibration.current_max().micro() * 32_768 >= current * 1_000 * 32_767);
    }
    let coarsest =
        check_ina226(&[write(INA, 0x05, &[0x00, 0x01])], |chip| chip.calibrate(Amperes::from_units(1 << 40)));
    assert_eq!(coarsest.unwrap().current_max(), Amperes::from_micro(32_767 * 1_024_000));
}

#[test]
fn ina226_alert_registers() {
    for (condition, limit, mask) in [
        (AlertCondition::CurrentAbove(Amperes::from_units(1)), [0x07, 0xD0], 0x84),
        (AlertCondition::CurrentBelow(Amperes::from_units(-1)), [0xF8, 0x30], 0x44),
        (AlertCondition::BusAbove(Volts::from_units(12)), [0x25, 0x80], 0x24),
        (AlertCondition::BusBelow(Volts::from_units(12)), [0x25, 0x80], 0x14),
        (AlertCondition::None, [0, 0], 0x04),
    ] {
        let config = ina226::AlertConfig {
            condition,
            conversion: ConversionSignal::AlertPin,
            ..ina226::AlertConfig::default()
        };
        let expected = [write(INA, 0x07, &limit), write(INA, 0x06, &[mask, 0x00])];
        assert_eq!(check_ina226(&expected, |chip| chip.configure_alert(&config)), Ok(condition));
    }
    let flags = check_ina226(&[read(INA, 0x06, &[0x80, 0x1C])], Ina226::alerts).unwrap();
    assert!(flags.alert && flags.conversion_ready && flags.overflow);
}

#[test]
fn ina228_registers() {
    let ids = [read(INA, 0x3E, &[0x54, 0x49]), read(INA, 0x3F, &[0x22, 0x81])];
    assert_eq!(check_ina228(&ids, Ina228::probe), Ok(()));
    let set =
        [write(INA, 0x03, &[0x00, 0x00]), write(INA, 0x00, &[0x00, 0x00]), write(INA, 0x01, &[0xFB, 0x68])];
    assert_eq!(check_ina228(&set, |chip| chip.configure(&ina228::Config::default())), Ok(()));
    let config = ina228::Config {
        delay_steps: 255,
        shunt_ppm: Some(20_000),
        range: ShuntRange::Narrow,
        mode: Mode228::Triggered(Quantities::SHUNT.and(Quantities::TEMPERATURE)),
        bus_time: ina228::ConversionTime::Us50,
        shunt_time: ina228::ConversionTime::Us4120,
        temperature_time: ina228::ConversionTime::Us84,
        averaging: Averaging::Samples4,
    };
    let set = [
        write(INA, 0x03, &[0x3F, 0xFF]),
        write(INA, 0x00, &[0x3F, 0xF0]),
        write(INA, 0x01, &[0x61, 0xC9]),
        read(INA, 0x04, &[0x80, 0x00, 0x00]),
        write(INA, 0x0C, &[0x7F, 0xFF]),
    ];
    check_ina228(&set, |chip| {
        chip.configure(&config).unwrap();
        // -2^19 steps of 78.125 nV.
        assert_eq!(chip.current(), Ok(Amperes::from_micro(-8_192_000)));
        let limit = chip.set_current_over(Amperes::from_units(9)).unwrap();
        assert_eq!(limit, Amperes::from_micro(8_191_750));
    });
}

#[test]
fn ina228_reads_20_bits() {
    let readings = [
        // 163.84 mV less one step of 312.5 nV, whose lowest four bits mean nothing.
        read(INA, 0x04, &[0x7F, 0xFF, 0xFF]),
        read(INA, 0x05, &[0x0F, 0x00, 0x00]),
        read(INA, 0x06, &[0xF3, 0x80]),
    ];
    check_ina228(&readings, |chip| {
        assert_eq!(chip.current(), Ok(Amperes::from_micro(32_767_938)));
        assert_eq!(chip.bus_voltage(), Ok(Volts::from_units(12)));
        assert_eq!(chip.die_temperature(), Ok(Celsius::from_units(-25)));
    });
}

#[test]
fn ina228_calibration_and_accumulators() {
    let expected = [
        // 32.768 A through 5 milliohms is the whole range: SHUNT_CAL is its default.
        write(INA, 0x02, &[0x10, 0x00]),
        write(INA, 0x00, &[0x40, 0x00]),
        read(INA, 0x07, &[0xFF, 0xFF, 0xF0]),
        read(INA, 0x08, &[0x00, 0x13, 0x88]),
        read(INA, 0x09, &[0x00, 0x00, 0x00, 0x13, 0x88]),
        read(INA, 0x0A, &[0xFF, 0xFF, 0xFF, 0xFF, 0xF0]),
        write(INA, 0x11, &[0x00, 0x14]),
    ];
    check_ina228(&expected, |chip| {
        let calibration = chip.calibrate(Amperes::from_milli(32_768)).unwrap();
        // A step of the current is 62.5 uA, one of the power 200 uW, one of the energy 3.2 mJ, one of the charge 62.5
        // uC.
        assert_eq!(chip.chip_current(&calibration), Ok(Amperes::from_micro(-63)));
        assert_eq!(chip.chip_power(&calibration), Ok(Watts::from_units(1)));
        assert_eq!(chip.energy(&calibration), Ok(Joules::from_units(16)));
        assert_eq!(chip.charge(&calibration), Ok(Coulombs::from_milli(-1)));
        let limit = chip.set_power_over(&calibration, Watts::from_units(1)).unwrap();
        assert_eq!(limit, Watts::from_milli(1_024));
    });
}

#[test]
fn ina228_limits_and_flags() {
    let expected = [
        write(INA, 0x0D, &[0xFC, 0x18]),
        write(INA, 0x0E, &[0x0F, 0x00]),
        write(INA, 0x0F, &[0x00, 0x00]),
        write(INA, 0x10, &[0x32, 0x00]),
        write(INA, 0x0B, &[0xF0, 0x00]),
        read(INA, 0x0B, &[0xFE, 0xFE]),
        read(INA, 0x0B, &[0x00, 0x01]),
    ];
    check_ina228(&expected, |chip| {
        assert_eq!(chip.set_current_under(Amperes::from_units(-1)), Ok(Amperes::from_units(-1)));
        assert_eq!(chip.set_bus_over(Volts::from_units(12)), Ok(Volts::from_units(12)));
        assert_eq!(chip.set_bus_under(Volts::from_units(-1)), Ok(Volts::ZERO));
        assert_eq!(chip.set_temperature_over(Celsius::from_units(100)), Ok(Celsius::from_units(100)));
        let config = ina228::AlertConfig {
            latch: AlertLatch::Latched,
            conversion: ConversionSignal::AlertPin,
            compared: ina228::Compared::Readings,
            polarity: AlertPolarity::ActiveHigh,
        };
        chip.configure_alerts(&config).unwrap();
        let all = ina228::Flags {
            energy_overflow: true,
            charge_overflow: true,
            math_overflow: true,
            temperature_over: true,
            current_over: true,
            current_under: true,
            bus_over: true,
            bus_under: true,
            power_over: true,
            conversion_ready: true,
            memory_damaged: true,
        };
        assert_eq!(chip.flags(), Ok(all));
        assert_eq!(chip.flags(), Ok(ina228::Flags::default()));
    });
}

#[test]
fn tmp451_registers() {
    let at = tmp451::ADDRESS;
    assert_eq!(check_tmp451(&[read(at, 0xFE, &[0x55])], Tmp451::probe), Ok(()));
    let config = tmp451::Config {
        range: tmp451::TemperatureRange::Extended,
        rate: tmp451::ConversionRate::Hz32,
        mode: tmp451::Mode::Shutdown,
        alert_pin: tmp451::AlertPin::Therm2,
        consecutive: tmp451::Consecutive::Four,
    };
    let expected = [
        write(at, 0x09, &[0x64]),
        write(at, 0x0A, &[0x09]),
        write(at, 0x22, &[0x0F]),
        write(at, 0x0F, &[0xFF]),
        // 0 degrees are 64 in the extended range; the remote diode has 25.0625.
        read(at, 0x00, &[0x40]),
        read(at, 0x15, &[0x00]),
        read(at, 0x00, &[0x40]),
        read(at, 0x02, &[0x00]),
        read(at, 0x01, &[0x59]),
        read(at, 0x10, &[0x10]),
        read(at, 0x01, &[0x59]),
    ];
    check_tmp451(&expected, |chip| {
        chip.configure(&config).unwrap();
        chip.start_one_shot().unwrap();
        assert_eq!(chip.local(), Ok(Celsius::ZERO));
        assert_eq!(chip.remote(), Ok(Some(Celsius::from_micro(25_062_500))));
    });
    assert_eq!(check_tmp451(&[read(at, 0x02, &[0x04])], Tmp451::remote), Ok(None));
}

#[test]
fn tmp451_reads_both_bytes_of_one_conversion() {
    let at = tmp451::ADDRESS;
    // 24.9375 degrees become 25.0 between the bytes: neither 24.0 nor 25.9375 is read.
    let expected =
        [read(at, 0x00, &[0x18]), read(at, 0x15, &[0xF0]), read(at, 0x00, &[0x19]), read(at, 0x15, &[0x00])];
    assert_eq!(check_tmp451(&expected, Tmp451::local), Ok(Celsius::from_units(25)));
}

#[test]
fn tmp451_limits() {
    let at = tmp451::ADDRESS;
    let degrees = Celsius::from_units;
    let expected = [
        write(at, 0x0B, &[0x55]),
        write(at, 0x0C, &[0x00]),
        write(at, 0x20, &[0x7F]),
        write(at, 0x0D, &[0x64]),
        write(at, 0x13, &[0x80]),
        write(at, 0x0E, &[0x0A]),
        write(at, 0x14, &[0x10]),
        write(at, 0x19, &[0x6C]),
        write(at, 0x21, &[0x0A]),
        write(at, 0x11, &[0xFE]),
        write(at, 0x12, &[0x80]),
    ];
    check_tmp451(&expected, |chip| {
        let local = tmp451::Limits { upper: degrees(85), lower: degrees(-10), therm: degrees(200) };
        let set = chip.set_local_limits(local).unwrap();
        assert_eq!(set, tmp451::Limits { upper: degrees(85), lower: degrees(0), therm: degrees(127) });
        let remote = tmp451::Limits {
            upper: Celsius::from_milli(100_500),
            lower: Celsius::from_micro(10_062_500),
            therm: degrees(108),
        };
        assert_eq!(chip.set_remote_limits(remote), Ok(remote));
        assert_eq!(chip.set_therm_hysteresis(degrees(10)), Ok(degrees(10)));
        assert_eq!(chip.set_remote_offset(Celsius::from_milli(-1_500)), Ok(Celsius::from_milli(-1_500)));
    });
}

#[test]
fn tmp75_registers() {
    let at = tmp75::ADDRESS;
    let ids = [read(at, 0x00, &[0x19, 0x00]), read(at, 0x02, &[0x4B, 0x00]), read(at, 0x03, &[0x50, 0x00])];
    assert_eq!(check_tmp75(&ids, Tmp75::probe), Ok(()));
    let config = tmp75::Config {
        resolution: tmp75::Resolution::Bits12,
        fault_queue: tmp75::FaultQueue::Six,
        polarity: AlertPolarity::ActiveHigh,
        thermostat: tmp75::Thermostat::Interrupt,
        mode: tmp75::Mode::Shutdown,
    };
    let limits = tmp75::Limits { upper: Celsius::from_milli(80_500), lower: Celsius::from_units(-200) };
    let expected = [
        write(at, 0x01, &[0x7F]),
        write(at, 0x01, &[0xFF]),
        // The datasheet's example: -25 degrees.
        read(at, 0x00, &[0xE7, 0x00]),
        write(at, 0x03, &[0x50, 0x80]),
        write(at, 0x02, &[0x80, 0x00]),
    ];
    check_tmp75(&expected, |chip| {
        chip.configure(&config).unwrap();
        chip.start_one_shot().unwrap();
        assert_eq!(chip.temperature(), Ok(Celsius::from_units(-25)));
        let set = chip.set_limits(limits).unwrap();
        assert_eq!(set, tmp75::Limits { lower: Celsius::from_units(-128), ..limits });
    });
}

#[test]
fn another_chip_is_refused_with_what_was_read() {
    let ids = [read(INA, 0xFE, &[0x54, 0x49]), read(INA, 0xFF, &[0x22, 0x60])];
    let fault = check_ina3221(&ids, Ina3221::probe).unwrap_err();
    let expected = SensorError::WrongDevice {
        device: Device { chip: "INA3221", address: INA },
        register: 0xFF,
        read: 0x2260,
        expected: 0x3220,
        mask: 0xFFFF,
    };
    assert_eq!(fault, expected);
    assert_eq!(
        fault.to_string(),
        "the INA3221 at 0x40 is another chip: its register 0xff reads 0x2260, expected 0x3220 in the bits 0xffff"
    );
    let wrong = [read(tmp451::ADDRESS, 0xFE, &[0x41])];
    assert!(matches!(
        check_tmp451(&wrong, Tmp451::probe),
        Err(SensorError::WrongDevice { read: 0x41, expected: 0x55, .. })
    ));
    let wrong = [read(tmp75::ADDRESS, 0x00, &[0x12, 0x34])];
    assert!(matches!(check_tmp75(&wrong, Tmp75::probe), Err(SensorError::WrongDevice { read: 0x1234, .. })));
}

#[test]
fn a_fault_of_the_bus_names_the_register() {
    let failing = [read(INA, 0x01, &[0, 0]).with_error(ErrorKind::Bus)];
    let fault = check_ina3221(&failing, |chip| chip.read(Channel::One)).unwrap_err();
    assert_eq!(fault.bus_fault(), Some(ErrorKind::Bus));
    assert_eq!(fault.to_string(), "reading register 0x01 of the INA3221 at 0x40: Bus");
    let failing = [write(INA, 0x00, &[0x80, 0x00]).with_error(ErrorKind::ArbitrationLoss)];
    let fault = check_ina3221(&failing, Ina3221::reset).unwrap_err();
    assert_eq!(fault.to_string(), "writing register 0x00 of the INA3221 at 0x40: ArbitrationLoss");
}

#[test]
fn a_shunt_of_zero_is_refused() {
    let shunts = [SHUNT, Ohms::ZERO, SHUNT];
    let mut bus = Mock::new(&[]);
    let fault = Ina3221::new(&mut bus, INA, shunts).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "the INA3221 at 0x40 cannot have a shunt of 0.000000 Ω at channel 2: it must be above zero"
    );
    assert_eq!(fault.bus_fault(), None);
    assert!(Ina226::new(&mut bus, INA, Ohms::from_milli(-1)).is_err());
    assert!(Ina228::new(&mut bus, INA, Ohms::ZERO).is_err());
    bus.done();
}
