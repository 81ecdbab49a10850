//! Properties of the drivers over simulated chips, whose registers were written without the drivers' code.

use std::cell::RefCell;

use embedded_hal::i2c::ErrorKind;
use embedded_hal_bus::i2c::RefCellDevice;
use orinoco_core::{Amperes, Celsius, Ohms, Volts, Watts};
use orinoco_sensors::ina226::AlertCondition;
use orinoco_sensors::ina3221::{AlertConfig, AlertFlags, Channel, Channels, MaskEnable, PowerValidLimits};
use orinoco_sensors::simulated::{SimulatedBus, SimulatedChip, SimulatedFault};
use orinoco_sensors::tmp451::TemperatureRange;
use orinoco_sensors::{
    AlertLatch, AlertPolarity, Averaging, ConversionTime, Device, Ina226, Ina228, Ina3221, Mode, RailMeter,
    SensorError, Tmp75, Tmp451, ina226, ina228, ina3221, tmp75, tmp451,
};
use proptest::prelude::*;
use proptest::sample::select;

const ADDRESS: u8 = 0x40;

fn bus_with(chip: SimulatedChip) -> SimulatedBus<1> {
    let mut bus = SimulatedBus::new();
    bus.add(ADDRESS, chip);
    bus
}

/// Chip of the bus, at which a test turns the physical quantities.
fn chip(bus: &mut SimulatedBus<1>) -> &mut SimulatedChip {
    bus.chip(ADDRESS).unwrap()
}

fn distance(a: i64, b: i64) -> u64 {
    a.abs_diff(b)
}

fn averaging() -> impl Strategy<Value = Averaging> {
    select(&Averaging::ALL[..])
}

fn time() -> impl Strategy<Value = ConversionTime> {
    select(&ConversionTime::ALL[..])
}

fn mode() -> impl Strategy<Value = Mode> {
    select(&Mode::ALL[..])
}

fn latch() -> impl Strategy<Value = AlertLatch> {
    select(&[AlertLatch::Transparent, AlertLatch::Latched][..])
}

fn polarity() -> impl Strategy<Value = AlertPolarity> {
    select(&[AlertPolarity::ActiveLow, AlertPolarity::ActiveHigh][..])
}

fn channels() -> impl Strategy<Value = Channels> {
    proptest::sample::subsequence(Channel::ALL.to_vec(), 0..=3)
        .prop_map(|channels| channels.into_iter().fold(Channels::NONE, Channels::with))
}

prop_compose! {
    fn ina3221_config()(
        channels in channels(), averaging in averaging(), bus_time in time(), shunt_time in time(), mode in mode(),
    ) -> ina3221::Config {
        ina3221::Config { channels, averaging, bus_time, shunt_time, mode }
    }
}

prop_compose! {
    fn mask_enable()(
        summed in channels(), warning in latch(), critical in latch(), critical_flags in channels(),
        warning_flags in channels(), flags in any::<[bool; 4]>(),
    ) -> MaskEnable {
        let [sum, power_valid, timing_control, conversion_ready] = flags;
        MaskEnable {
            config: AlertConfig { summed, warning, critical },
            flags: AlertFlags {
                critical: critical_flags, warning: warning_flags, sum, power_valid, timing_control, conversion_ready,
            },
        }
    }
}

prop_compose! {
    fn ina228_config()(
        delay_steps in any::<u8>(), shunt_ppm in proptest::option::of(0..=ina228::Config::SHUNT_PPM_MAX),
        range in select(&[ina228::ShuntRange::Wide, ina228::ShuntRange::Narrow][..]),
        mode in ina228_mode(), times in [ina228_time(), ina228_time(), ina228_time()], averaging in averaging(),
    ) -> ina228::Config {
        let [bus_time, shunt_time, temperature_time] = times;
        ina228::Config { delay_steps, shunt_ppm, range, mode, bus_time, shunt_time, temperature_time, averaging }
    }
}

fn ina228_time() -> impl Strategy<Value = ina228::ConversionTime> {
    select(&ina228::ConversionTime::ALL[..])
}

fn ina228_mode() -> impl Strategy<Value = ina228::Mode> {
    use ina228::Quantities;
    let single = || select(&[Quantities::BUS, Quantities::SHUNT, Quantities::TEMPERATURE][..]);
    let quantities = || {
        proptest::collection::vec(single(), 1..4)
            .prop_map(|all| all.into_iter().reduce(Quantities::and).unwrap())
    };
    prop_oneof![
        Just(ina228::Mode::Shutdown),
        quantities().prop_map(ina228::Mode::Triggered),
        quantities().prop_map(ina228::Mode::Continuous),
    ]
}

prop_compose! {
    fn tmp451_config()(
        range in select(&[TemperatureRange::Standard, TemperatureRange::Extended][..]),
        rate in select(&tmp451::ConversionRate::ALL[..]),
        mode in select(&[tmp451::Mode::Continuous, tmp451::Mode::Shutdown][..]),
        alert_pin in select(&[tmp451::AlertPin::Alert, tmp451::AlertPin::Masked, tmp451::AlertPin::Therm2][..]),
        consecutive in select(&[
            tmp451::Consecutive::One, tmp451::Consecutive::Two, tmp451::Consecutive::Three, tmp451::Consecutive::Four,
        ][..]),
    ) -> tmp451::Config {
        tmp451::Config { range, rate, mode, alert_pin, consecutive }
    }
}

prop_compose! {
    fn tmp75_config()(
        resolution in select(&tmp75::Resolution::ALL[..]), fault_queue in select(&tmp75::FaultQueue::ALL[..]),
        polarity in polarity(),
        thermostat in select(&[tmp75::Thermostat::Comparator, tmp75::Thermostat::Interrupt][..]),
        mode in select(&[tmp75::Mode::Continuous, tmp75::Mode::Shutdown][..]),
    ) -> tmp75::Config {
        tmp75::Config { resolution, fault_queue, polarity, thermostat, mode }
    }
}

/// Shunt resistors from 100 microohms to 1 ohm.
fn shunt() -> impl Strategy<Value = Ohms> {
    (100_i64..1_000_000).prop_map(Ohms::from_micro)
}

proptest! {
    #[test]
    fn settings_come_back_from_the_chip(
        ina3221 in ina3221_config(), ina228 in ina228_config(), tmp451 in tmp451_config(), tmp75 in tmp75_config(),
    ) {
        let mut bus = bus_with(SimulatedChip::ina3221());
        let mut driver = Ina3221::new(&mut bus, ADDRESS, [Ohms::from_milli(5); 3]).unwrap();
        driver.configure(&ina3221).unwrap();
        prop_assert_eq!(driver.configuration(), Ok(ina3221));
        prop_assert_eq!(driver.rails(), ina3221.channels.count());

        let ina226 = ina226::Config {
            averaging: ina3221.averaging, bus_time: ina3221.bus_time, shunt_time: ina3221.shunt_time, mode: ina3221.mode,
        };
        let mut bus = bus_with(SimulatedChip::ina226());
        let mut driver = Ina226::new(&mut bus, ADDRESS, Ohms::from_milli(5)).unwrap();
        driver.configure(&ina226).unwrap();
        prop_assert_eq!(driver.configuration(), Ok(ina226));

        let mut bus = bus_with(SimulatedChip::ina228());
        let mut driver = Ina228::new(&mut bus, ADDRESS, Ohms::from_milli(5)).unwrap();
        driver.configure(&ina228).unwrap();
        prop_assert_eq!(driver.configuration(), Ok(ina228));

        let mut bus = bus_with(SimulatedChip::tmp451());
        let mut driver = Tmp451::new(&mut bus, ADDRESS);
        driver.configure(&tmp451).unwrap();
        prop_assert_eq!(driver.configuration(), Ok(tmp451));

        let mut bus = bus_with(SimulatedChip::tmp75());
        let mut driver = Tmp75::new(&mut bus, ADDRESS);
        driver.configure(&tmp75).unwrap();
        prop_assert_eq!(driver.configuration(), Ok(tmp75));
    }

    #[test]
    fn every_register_of_settings_decodes_and_encodes(register: u16) {
        // Reset bit and reserved bits are not settings; modes 0 and 4 are the same.
        let power_down = |mode: u16| if mode & 7 == 4 { mode & !7 } else { mode };
        let decoded = ina3221::Config::decode(register).encode();
        prop_assert_eq!(decoded, power_down(register & 0x7FFF));
        let decoded = ina226::Config::decode(register).encode();
        prop_assert_eq!(decoded, power_down(register & 0x0FFF) | 0x4000);
        prop_assert_eq!(MaskEnable::decode(register).encode(), register & 0x7FFF);
        prop_assert_eq!(tmp75::Config::decode(register as u8).encode(), register as u8 & 0x7F);
    }

    #[test]
    fn alert_settings_and_flags_round_trip(value in mask_enable()) {
        prop_assert_eq!(MaskEnable::decode(value.encode()), value);
        let mut bus = bus_with(SimulatedChip::ina3221());
        chip(&mut bus).set_register(0x0F, value.encode().into());
        let mut driver = Ina3221::new(&mut bus, ADDRESS, [Ohms::from_milli(5); 3]).unwrap();
        prop_assert_eq!(driver.mask_enable(), Ok(value));
    }

    #[test]
    fn ina3221_reads_within_its_resolution(
        shunt in shunt(), index in 0_usize..3, shunt_uv in -200_000_i64..200_000, bus_mv in -33_000_i64..33_000,
    ) {
        let mut bus = bus_with(SimulatedChip::ina3221());
        chip(&mut bus).set_rail(index, Volts::from_milli(bus_mv), shunt_uv * 1_000_000);
        let mut driver = Ina3221::new(&mut bus, ADDRESS, [shunt; 3]).unwrap();
        let channel = Channel::ALL[index];
        let (expected_uv, expected_mv) = (shunt_uv.clamp(-163_840, 163_800), bus_mv.clamp(-32_768, 32_760));
        let shunt_voltage = driver.shunt_voltage(channel).unwrap();
        prop_assert!(distance(shunt_voltage.micro(), expected_uv) <= 20);
        let reading = driver.read(channel).unwrap();
        prop_assert!(distance(reading.voltage.micro(), expected_mv * 1_000) <= 4_000);
        // 20 uV through the shunt, and half a microampere.
        let expected = expected_uv as f64 / shunt.micro() as f64;
        let tolerance = 20.0 / shunt.micro() as f64 + 0.6e-6;
        prop_assert!((reading.current.to_f64() - expected).abs() <= tolerance);
        // The other channels have nothing at their inputs.
        let other = Channel::ALL[(index + 1) % 3];
        prop_assert_eq!(driver.read(other).unwrap().power(), Watts::ZERO);
    }

    #[test]
    fn ina226_reads_within_its_resolution(
        shunt in shunt(), shunt_uv in -100_000_i64..100_000, bus_mv in -1_000_i64..45_000,
    ) {
        let mut bus = bus_with(SimulatedChip::ina226());
        let mut driver = Ina226::new(&mut bus, ADDRESS, shunt).unwrap();
        let range = Amperes::from_f64(0.08192 / shunt.to_f64());
        let calibration = driver.calibrate(range).unwrap();
        chip(driver.release()).set_rail(0, Volts::from_milli(bus_mv), shunt_uv * 1_000_000);
        let mut driver = Ina226::new(&mut bus, ADDRESS, shunt).unwrap();
        let (expected_uv, expected_mv) = (shunt_uv.clamp(-81_920, 81_917), bus_mv.clamp(0, 40_958));
        let reading = driver.read().unwrap();
        prop_assert!(distance(reading.voltage.micro(), expected_mv * 1_000) <= 1_250);
        let expected = expected_uv as f64 / shunt.micro() as f64;
        let step = 2.5 / shunt.micro() as f64;
        prop_assert!((reading.current.to_f64() - expected).abs() <= step + 0.6e-6);
        // The chip's own current and power, which it rounds down: a step each for shunt, calibration and the chip.
        let current = driver.chip_current(&calibration).unwrap();
        prop_assert!((current.to_f64() - expected).abs() <= 3.0 * step + expected.abs() / 2_000.0 + 0.6e-6);
        let power = driver.chip_power(&calibration).unwrap();
        let product = expected.abs() * expected_mv as f64 / 1e3;
        let tolerance = 25.0 * step + 3.0 * step * 41.0 + product / 1_000.0 + expected.abs() * 0.00125 + 1e-6;
        prop_assert!((power.to_f64() - product).abs() <= tolerance, "{} for {}", power, product);
    }

    #[test]
    fn ina228_reads_within_its_resolution(
        shunt in shunt(), config in ina228_config(), shunt_nv in -200_000_000_i64..200_000_000,
        bus_uv in -1_000_i64..105_000_000, degrees in -300_000_i64..300_000,
    ) {
        let config = ina228::Config { mode: ina228::Mode::Continuous(ina228::Quantities::ALL), ..config };
        let mut bus = bus_with(SimulatedChip::ina228());
        let (range_nv, step_pv) = match config.range {
            ina228::ShuntRange::Wide => (163_840_000, 312_500),
            ina228::ShuntRange::Narrow => (40_960_000, 78_125),
        };
        let mut driver = Ina228::new(&mut bus, ADDRESS, shunt).unwrap();
        driver.configure(&config).unwrap();
        let calibration = driver.calibrate(Amperes::from_f64(range_nv as f64 / 1e3 / shunt.micro() as f64)).unwrap();
        let bus = driver.release();
        chip(bus).set_rail(0, Volts::from_micro(bus_uv), shunt_nv * 1_000);
        chip(bus).set_temperature(Celsius::from_milli(degrees), None);
        let mut driver = Ina228::new(bus, ADDRESS, shunt).unwrap();
        driver.configuration().unwrap();

        let expected_nv = shunt_nv.clamp(-range_nv, range_nv);
        let expected = expected_nv as f64 / 1e3 / shunt.micro() as f64;
        let step = step_pv as f64 / 1e6 / shunt.micro() as f64;
        let reading = driver.read().unwrap();
        prop_assert!((reading.current.to_f64() - expected).abs() <= step + 0.6e-6);
        let expected_uv = bus_uv.clamp(0, 102_399_804);
        prop_assert!(distance(reading.voltage.micro(), expected_uv) <= 99);
        let temperature = driver.die_temperature().unwrap();
        prop_assert!(distance(temperature.micro(), degrees.clamp(-256_000, 255_992) * 1_000) <= 3_907);
        let current = driver.chip_current(&calibration).unwrap();
        prop_assert!((current.to_f64() - expected).abs() <= 3.0 * step + expected.abs() / 2_000.0 + 0.6e-6);
        let power = driver.chip_power(&calibration).unwrap();
        let product = expected.abs() * expected_uv as f64 / 1e6;
        let tolerance = 3.2 * step * 2.0 + 3.0 * step * 103.0 + product / 1_000.0 + expected.abs() * 2e-4 + 1e-6;
        prop_assert!((power.to_f64() - product).abs() <= tolerance, "{} for {}", power, product);
    }

    #[test]
    fn ina228_accumulates_energy_and_charge(
        shunt_nv in -150_000_000_i64..150_000_000, seconds in 1_u64..100_000, bus_mv in 1_000_i64..60_000,
    ) {
        let shunt = Ohms::from_milli(5);
        let mut bus = bus_with(SimulatedChip::ina228());
        let mut driver = Ina228::new(&mut bus, ADDRESS, shunt).unwrap();
        let calibration = driver.calibrate(Amperes::from_milli(32_768)).unwrap();
        let bus = driver.release();
        chip(bus).set_rail(0, Volts::from_milli(bus_mv), shunt_nv * 1_000);
        chip(bus).advance(seconds * 1_000_000);
        let mut driver = Ina228::new(bus, ADDRESS, shunt).unwrap();
        let current = driver.chip_current(&calibration).unwrap().to_f64();
        let power = driver.chip_power(&calibration).unwrap().to_f64();
        let (charge, energy) = (driver.charge(&calibration).unwrap(), driver.energy(&calibration).unwrap());
        // The rounding of current and power to microamperes and microwatts, and a step of the accumulator.
        prop_assert!((charge.to_f64() - current * seconds as f64).abs() <= 0.6e-6 * seconds as f64 + 63e-6);
        prop_assert!((energy.to_f64() - power * seconds as f64).abs() <= 0.6e-6 * seconds as f64 + 3.3e-3);
        driver.reset_accumulators().unwrap();
        prop_assert_eq!(driver.energy(&calibration).unwrap().micro(), 0);
        prop_assert_eq!(driver.charge(&calibration).unwrap().micro(), 0);
    }

    #[test]
    fn limits_of_the_ina3221_round_trip_and_saturate(
        shunt in shunt(), index in 0_usize..3, microamperes: i64, bus_uv: i64, sum_uv: i64,
    ) {
        let mut bus = bus_with(SimulatedChip::ina3221());
        let mut driver = Ina3221::new(&mut bus, ADDRESS, [shunt; 3]).unwrap();
        let (channel, limit) = (Channel::ALL[index], Amperes::from_micro(microamperes));
        let set = driver.set_critical_limit(channel, limit).unwrap();
        prop_assert_eq!(driver.critical_limit(channel), Ok(set));
        prop_assert_eq!(driver.set_warning_limit(channel, limit), Ok(set));
        prop_assert_eq!(driver.warning_limit(channel), Ok(set));
        let microvolts = (i128::from(microamperes) * i128::from(shunt.micro()) / 1_000_000).clamp(-163_840, 163_800);
        let across = i128::from(set.micro()) * i128::from(shunt.micro()) / 1_000_000;
        prop_assert!(across.abs_diff(microvolts) <= 21 + shunt.micro().unsigned_abs() as u128 / 1_000_000);
        // A limit that the chip has is kept as it is.
        prop_assert_eq!(driver.set_critical_limit(channel, set), Ok(set));

        let set = driver.set_shunt_sum_limit(Volts::from_micro(sum_uv)).unwrap();
        prop_assert_eq!(driver.shunt_sum_limit(), Ok(set));
        prop_assert!(distance(set.micro(), sum_uv.clamp(-655_360, 655_320)) <= 20);
        let limits = PowerValidLimits { upper: Volts::from_micro(bus_uv), lower: Volts::from_micro(sum_uv) };
        let set = driver.set_power_valid_limits(limits).unwrap();
        prop_assert_eq!(driver.power_valid_limits(), Ok(set));
        prop_assert!(distance(set.upper.micro(), bus_uv.clamp(-32_768_000, 32_760_000)) <= 4_000);
    }

    #[test]
    fn limits_of_the_thermometers_round_trip_and_saturate(
        upper: i64, milli in -300_000_i64..300_000, config in tmp451_config(),
    ) {
        let (upper, lower) = (Celsius::from_micro(upper), Celsius::from_milli(milli));
        let mut bus = bus_with(SimulatedChip::tmp75());
        let mut driver = Tmp75::new(&mut bus, ADDRESS);
        let set = driver.set_limits(tmp75::Limits { upper, lower }).unwrap();
        prop_assert_eq!(driver.limits(), Ok(set));
        prop_assert!(distance(set.lower.micro(), milli.clamp(-128_000, 127_937) * 1_000) <= 31_750);

        let (least, greatest) = match config.range {
            TemperatureRange::Standard => (0, 127),
            TemperatureRange::Extended => (-64, 191),
        };
        let mut bus = bus_with(SimulatedChip::tmp451());
        let mut driver = Tmp451::new(&mut bus, ADDRESS);
        driver.configure(&config).unwrap();
        let limits = tmp451::Limits { upper, lower, therm: lower };
        let set = driver.set_local_limits(limits).unwrap();
        prop_assert_eq!(driver.local_limits(), Ok(set));
        prop_assert!(distance(set.lower.milli(), milli.clamp(least * 1_000, greatest * 1_000)) <= 500);
        let set = driver.set_remote_limits(limits).unwrap();
        prop_assert_eq!(driver.remote_limits(), Ok(set));
        let expected = milli.clamp(least * 1_000, greatest * 1_000 + 937);
        prop_assert!(distance(set.lower.micro(), expected * 1_000) <= 31_750);
    }

    #[test]
    fn thermometers_read_within_their_resolution(
        config in tmp451_config(), resolution in select(&tmp75::Resolution::ALL[..]), local in -150_000_i64..250_000,
        remote in proptest::option::of(-150_000_i64..250_000),
    ) {
        let mut bus = bus_with(SimulatedChip::tmp451());
        let mut driver = Tmp451::new(&mut bus, ADDRESS);
        driver.configure(&config).unwrap();
        let bus = driver.release();
        chip(bus).set_temperature(Celsius::from_milli(local), remote.map(Celsius::from_milli));
        let mut driver = Tmp451::new(bus, ADDRESS);
        driver.configuration().unwrap();
        if config.mode == tmp451::Mode::Shutdown {
            driver.start_one_shot().unwrap();
        }
        let (least, greatest) = match config.range {
            TemperatureRange::Standard => (0, 127_938),
            TemperatureRange::Extended => (-64_000, 191_938),
        };
        let within = |read: Celsius, milli: i64| distance(read.micro(), milli.clamp(least, greatest) * 1_000) <= 31_750;
        prop_assert!(within(driver.local().unwrap(), local));
        match (driver.remote().unwrap(), remote) {
            (Some(read), Some(remote)) => prop_assert!(within(read, remote)),
            (read, remote) => prop_assert_eq!(read, remote.map(Celsius::from_milli)),
        }

        let mut bus = bus_with(SimulatedChip::tmp75());
        let mut driver = Tmp75::new(&mut bus, ADDRESS);
        driver.configure(&tmp75::Config { resolution, mode: tmp75::Mode::Shutdown, ..Default::default() }).unwrap();
        let bus = driver.release();
        chip(bus).set_temperature(Celsius::from_milli(local), None);
        let mut driver = Tmp75::new(bus, ADDRESS);
        driver.configuration().unwrap();
        prop_assert_eq!(driver.temperature(), Ok(Celsius::ZERO), "nothing is converted in shutdown");
        driver.start_one_shot().unwrap();
        let step = 500_000_i64 >> resolution as u32;
        let expected = (local * 1_000).clamp(-128_000_000, 128_000_000 - step);
        prop_assert!(distance(driver.temperature().unwrap().micro(), expected) <= step as u64 / 2);
    }

    #[test]
    fn a_failing_bus_is_reported_and_changes_nothing(config in ina3221_config()) {
        let mut bus = bus_with(SimulatedChip::ina3221());
        bus.fail_next(2);
        let mut driver = Ina3221::new(&mut bus, ADDRESS, [Ohms::from_milli(5); 3]).unwrap();
        let fault = driver.configure(&config).unwrap_err();
        let device = Device { chip: "INA3221", address: ADDRESS };
        let source = SimulatedFault::Injected;
        prop_assert_eq!(fault, SensorError::Write { device, register: 0x00, source });
        let fault = driver.configuration().unwrap_err();
        prop_assert_eq!(fault, SensorError::Read { device, register: 0x00, source });
        prop_assert_eq!(driver.configuration(), Ok(ina3221::Config::default()));
    }
}

#[test]
fn defaults_are_the_chips_own() {
    let shunt = Ohms::from_milli(5);
    let mut bus = bus_with(SimulatedChip::ina3221());
    let mut driver = Ina3221::new(&mut bus, ADDRESS, [shunt; 3]).unwrap();
    assert_eq!(driver.probe(), Ok(()));
    assert_eq!(driver.configuration(), Ok(ina3221::Config::default()));
    assert_eq!(driver.mask_enable(), Ok(MaskEnable::default()));
    assert_eq!(driver.critical_limit(Channel::One), Ok(Amperes::from_milli(32_760)));
    let mut bus = bus_with(SimulatedChip::ina226());
    let mut driver = Ina226::new(&mut bus, ADDRESS, shunt).unwrap();
    assert_eq!((driver.probe(), driver.configuration()), (Ok(()), Ok(ina226::Config::default())));
    let mut bus = bus_with(SimulatedChip::ina228());
    let mut driver = Ina228::new(&mut bus, ADDRESS, shunt).unwrap();
    assert_eq!((driver.probe(), driver.configuration()), (Ok(()), Ok(ina228::Config::default())));
    let mut bus = bus_with(SimulatedChip::tmp451());
    let mut driver = Tmp451::new(&mut bus, ADDRESS);
    assert_eq!((driver.probe(), driver.configuration()), (Ok(()), Ok(tmp451::Config::default())));
    let mut bus = bus_with(SimulatedChip::tmp75());
    let mut driver = Tmp75::new(&mut bus, ADDRESS);
    assert_eq!((driver.probe(), driver.configuration()), (Ok(()), Ok(tmp75::Config::default())));
}

#[test]
fn a_reset_restores_the_defaults() {
    let mut bus = bus_with(SimulatedChip::ina3221());
    let mut driver = Ina3221::new(&mut bus, ADDRESS, [Ohms::from_milli(5); 3]).unwrap();
    driver.configure(&ina3221::Config { channels: Channels::NONE, ..Default::default() }).unwrap();
    driver.set_shunt_sum_limit(Volts::ZERO).unwrap();
    assert_eq!(driver.rails(), 0);
    driver.reset().unwrap();
    assert_eq!((driver.rails(), driver.shunt_sum_limit()), (3, Ok(Volts::from_micro(655_320))));
}

#[test]
fn a_triggered_mode_converts_once() {
    let mut bus = bus_with(SimulatedChip::ina3221());
    let mut driver = Ina3221::new(&mut bus, ADDRESS, [Ohms::from_milli(10); 3]).unwrap();
    let once = ina3221::Config { mode: Mode::BothTriggered, ..ina3221::Config::default() };
    driver.configure(&once).unwrap();
    let bus = driver.release();
    chip(bus).set_rail(0, Volts::from_units(5), 10_000_000_000);
    let mut driver = Ina3221::new(bus, ADDRESS, [Ohms::from_milli(10); 3]).unwrap();
    assert_eq!(driver.read(Channel::One).unwrap().power(), Watts::ZERO);
    driver.configure(&once).unwrap();
    assert_eq!(driver.read(Channel::One).unwrap().power(), Watts::from_units(5));
}

#[test]
fn alerts_of_the_ina3221() {
    let bus = RefCell::new(bus_with(SimulatedChip::ina3221()));
    let mut driver = Ina3221::new(RefCellDevice::new(&bus), ADDRESS, [Ohms::from_milli(10); 3]).unwrap();
    let summed = Channels::NONE.with(Channel::One).with(Channel::Two);
    driver
        .configure_alerts(&AlertConfig {
            summed,
            warning: AlertLatch::Transparent,
            critical: AlertLatch::Latched,
        })
        .unwrap();
    driver.set_warning_limit(Channel::One, Amperes::from_units(2)).unwrap();
    driver.set_critical_limit(Channel::One, Amperes::from_units(3)).unwrap();
    driver.set_shunt_sum_limit(Volts::from_milli(50)).unwrap();
    let limits = PowerValidLimits { upper: Volts::from_units(5), lower: Volts::from_units(4) };
    driver.set_power_valid_limits(limits).unwrap();

    // These millivolts across the shunts, and these volts at every bus.
    let apply = |shunts_mv: [i64; 3], volts: i64| {
        for (channel, millivolts) in shunts_mv.into_iter().enumerate() {
            chip(&mut bus.borrow_mut()).set_rail(
                channel,
                Volts::from_units(volts),
                millivolts * 1_000_000_000,
            );
        }
    };
    let one = Channels::NONE.with(Channel::One);
    let calm = AlertFlags { conversion_ready: true, ..AlertFlags::default() };
    apply([10, 0, 0], 3);
    assert_eq!(driver.alerts(), Ok(calm));
    assert_eq!(driver.alerts(), Ok(AlertFlags::default()), "nothing was converted since");
    apply([25, 0, 0], 6);
    assert_eq!(driver.alerts(), Ok(AlertFlags { warning: one, power_valid: true, ..calm }));
    // Between the power-valid limits it stays valid. Channel 3 is not summed, and its limits are at their defaults.
    apply([40, 20, 90], 5);
    let all = AlertFlags { warning: one, critical: one, sum: true, power_valid: true, ..calm };
    assert_eq!(driver.alerts(), Ok(all));
    // Critical alerts are latched until they are read; warnings are not.
    apply([40, 20, 90], 5);
    apply([10, 0, 0], 3);
    assert_eq!(driver.alerts(), Ok(AlertFlags { critical: one, sum: true, ..calm }));
    assert_eq!(driver.shunt_sum(), Ok(Volts::from_milli(10)));
    apply([10, 0, 0], 3);
    assert_eq!(driver.alerts(), Ok(calm));
}

#[test]
fn alerts_of_the_ina226() {
    let bus = RefCell::new(bus_with(SimulatedChip::ina226()));
    let mut driver = Ina226::new(RefCellDevice::new(&bus), ADDRESS, Ohms::from_milli(10)).unwrap();
    let calibration = driver.calibrate(Amperes::from_units(8)).unwrap();
    let apply = |shunt_mv: i64, volts: i64| {
        chip(&mut bus.borrow_mut()).set_rail(0, Volts::from_units(volts), shunt_mv * 1_000_000_000);
    };
    // Below and above each limit, in millivolts across the shunt and volts of the bus.
    for (condition, quiet, raised) in [
        (AlertCondition::CurrentAbove(Amperes::from_units(3)), (30, 12), (31, 12)),
        (AlertCondition::CurrentBelow(Amperes::from_units(3)), (30, 12), (29, 12)),
        (AlertCondition::BusAbove(Volts::from_units(12)), (30, 12), (30, 13)),
        (AlertCondition::BusBelow(Volts::from_units(12)), (30, 12), (30, 11)),
        (AlertCondition::PowerAbove(Watts::from_units(37), calibration), (30, 12), (33, 12)),
        (AlertCondition::None, (30, 12), (30, 12)),
    ] {
        let config = ina226::AlertConfig { condition, latch: AlertLatch::Latched, ..Default::default() };
        apply(quiet.0, quiet.1);
        driver.configure_alert(&config).unwrap();
        apply(quiet.0, quiet.1);
        assert!(!driver.alerts().unwrap().alert, "{condition:?}");
        apply(raised.0, raised.1);
        apply(quiet.0, quiet.1);
        let flags = driver.alerts().unwrap();
        assert_eq!(
            (flags.alert, flags.conversion_ready),
            (condition != AlertCondition::None, true),
            "{condition:?}"
        );
        assert!(!driver.alerts().unwrap().alert, "reading clears the latch: {condition:?}");
    }
    apply(81, 40);
    assert!(driver.alerts().unwrap().overflow, "8.1 A are more than 8 A");
}

#[test]
fn alerts_of_the_ina228() {
    let bus = RefCell::new(bus_with(SimulatedChip::ina228()));
    let mut driver = Ina228::new(RefCellDevice::new(&bus), ADDRESS, Ohms::from_milli(10)).unwrap();
    let calibration = driver.calibrate(Amperes::from_units(16)).unwrap();
    driver.set_current_over(Amperes::from_units(3)).unwrap();
    driver.set_current_under(Amperes::from_units(1)).unwrap();
    driver.set_bus_over(Volts::from_units(13)).unwrap();
    driver.set_bus_under(Volts::from_units(11)).unwrap();
    driver.set_temperature_over(Celsius::from_units(80)).unwrap();
    driver.set_power_over(&calibration, Watts::from_units(50)).unwrap();
    let mut flags = |shunt_mv: i64, volts: i64, degrees: i64| {
        let mut bus = bus.borrow_mut();
        chip(&mut bus).set_rail(0, Volts::from_units(volts), shunt_mv * 1_000_000_000);
        chip(&mut bus).set_temperature(Celsius::from_units(degrees), None);
        drop(bus);
        driver.flags().unwrap()
    };
    let calm = ina228::Flags { conversion_ready: true, ..Default::default() };
    assert_eq!(flags(20, 12, 25), calm);
    assert_eq!(flags(31, 12, 81), ina228::Flags { current_over: true, temperature_over: true, ..calm });
    assert_eq!(flags(9, 10, 25), ina228::Flags { current_under: true, bus_under: true, ..calm });
    assert_eq!(flags(29, 20, 25), ina228::Flags { bus_over: true, power_over: true, ..calm });
    assert_eq!(flags(20, 12, 25), calm);
    assert!(flags(163, 12, 25).math_overflow, "16.3 A are more than 16 A");
}

#[test]
fn alerts_of_the_tmp451() {
    let bus = RefCell::new(bus_with(SimulatedChip::tmp451()));
    let mut driver = Tmp451::new(RefCellDevice::new(&bus), ADDRESS);
    let degrees = Celsius::from_units;
    driver
        .set_local_limits(tmp451::Limits { upper: degrees(60), lower: degrees(10), therm: degrees(70) })
        .unwrap();
    driver
        .set_remote_limits(tmp451::Limits { upper: degrees(80), lower: degrees(20), therm: degrees(90) })
        .unwrap();
    let apply = |local, remote: Option<i64>| {
        chip(&mut bus.borrow_mut()).set_temperature(degrees(local), remote.map(degrees));
    };
    apply(25, Some(40));
    assert_eq!(driver.status(), Ok(tmp451::Status::default()));
    apply(71, Some(91));
    let hot = tmp451::Status { local_above: true, remote_above: true, ..Default::default() };
    assert_eq!(driver.status(), Ok(tmp451::Status { local_therm: true, remote_therm: true, ..hot }));
    apply(5, Some(15));
    let cold = tmp451::Status { local_below: true, remote_below: true, ..Default::default() };
    assert_eq!(driver.status(), Ok(cold));
    apply(25, None);
    assert_eq!(driver.remote(), Ok(None));
    driver.set_remote_offset(Celsius::from_milli(-2_500)).unwrap();
    apply(25, Some(40));
    assert_eq!(driver.remote(), Ok(Some(Celsius::from_milli(37_500))));
}

#[test]
fn readings_take_as_long_as_the_datasheet_has_it() {
    let config = ina3221::Config { averaging: Averaging::Samples16, ..Default::default() };
    assert_eq!(config.cycle_micros(), 16 * 3 * 2_200);
    let buses =
        ina3221::Config { mode: Mode::BusContinuous, channels: Channels::NONE.with(Channel::One), ..config };
    assert_eq!(buses.cycle_micros(), 16 * 1_100);
    assert_eq!(ina226::Config::default().cycle_micros(), 2_200);
    assert_eq!(ina228::Config::default().cycle_micros(), 3 * 1_052);
    assert_eq!(ina228::Config { mode: ina228::Mode::Shutdown, ..Default::default() }.cycle_micros(), 0);
    assert_eq!(tmp451::ConversionRate::default().period_micros(), 62_500);
    assert_eq!(tmp75::Resolution::Bits12.conversion_micros(), 220_000);
}

#[test]
fn a_rail_that_cannot_be_read_reports_the_kind_of_fault() {
    let mut bus = bus_with(SimulatedChip::ina226());
    let mut absent = Ina226::new(&mut bus, ADDRESS + 1, Ohms::from_milli(5)).unwrap();
    assert!(matches!(absent.read_rail(0), Err(ErrorKind::NoAcknowledge(_))));
    let mut driver = Ina226::new(&mut bus, ADDRESS, Ohms::from_milli(5)).unwrap();
    assert!(driver.read_rail(0).is_ok());
    bus.fail_next(1);
    let mut driver = Ina226::new(&mut bus, ADDRESS, Ohms::from_milli(5)).unwrap();
    assert_eq!(driver.read_rail(0), Err(ErrorKind::Bus));
}
