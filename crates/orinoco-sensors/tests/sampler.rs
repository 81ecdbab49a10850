//! Sampling of rails: times, energy, missed samples and faults.

use embedded_hal::i2c::ErrorKind;
use orinoco_core::{Amperes, Joules, Ohms, Volts};
use orinoco_sensors::simulated::{SimulatedBus, SimulatedChip};
use orinoco_sensors::{Ina226, Ina3221, Poll, RailMeter, RailReading, RailSampler, SamplerConfig};
use proptest::prelude::*;

const CONFIG: SamplerConfig = SamplerConfig { period_us: 1_000, gap_us_max: 10_000 };

/// Meter of one rail whose next reading the test chooses.
struct Chosen(Result<RailReading, ErrorKind>);

impl RailMeter for Chosen {
    fn rails(&self) -> usize {
        1
    }

    fn read_rail(&mut self, rail: usize) -> Result<RailReading, ErrorKind> {
        assert_eq!(rail, 0);
        self.0
    }
}

fn reading(microwatts: i64) -> RailReading {
    RailReading { voltage: Volts::from_units(1), current: Amperes::from_micro(microwatts) }
}

#[test]
fn samples_are_taken_at_their_times_and_late_ones_are_counted() {
    let mut sampler = RailSampler::<1, 4>::new(CONFIG);
    let mut meter = Chosen(Ok(reading(1)));
    let sampled = |missed, until_us| Poll::Sampled { missed, failed: 0, until_us };
    for (now_us, expected) in [
        (500, sampled(0, 1_500)),
        (1_499, Poll::Wait { until_us: 1_500 }),
        (1_500, sampled(0, 2_500)),
        // Late by less than a period: the phase is kept.
        (3_400, sampled(0, 3_500)),
        (3_500, sampled(0, 4_500)),
        (7_600, sampled(3, 8_500)),
        (8_499, Poll::Wait { until_us: 8_500 }),
    ] {
        assert_eq!(sampler.poll(now_us, &mut [&mut meter]), expected, "at {now_us}");
    }
    assert_eq!(sampler.missed(), 3);
    let times: Vec<u64> = sampler.rail(0).unwrap().samples().map(|sample| sample.at_us).collect();
    assert_eq!(times, [1_500, 3_400, 3_500, 7_600], "the last four, oldest first");
}

#[test]
fn faults_are_counted_and_bridged_up_to_a_gap() {
    let mut sampler = RailSampler::<1, 8>::new(CONFIG);
    let mut meter = Chosen(Ok(reading(1_000_000)));
    sampler.poll(0, &mut [&mut meter]);
    meter.0 = Err(ErrorKind::Bus);
    for now_us in [1_000, 2_000, 3_000] {
        let polled = sampler.poll(now_us, &mut [&mut meter]);
        assert_eq!(polled, Poll::Sampled { missed: 0, failed: 1, until_us: now_us + 1_000 });
    }
    let rail = sampler.rail(0).unwrap();
    assert_eq!((rail.bus_errors(), rail.bus_errors_in_row()), (3, 3));
    assert_eq!((rail.last_error(), rail.samples().count()), (Some(ErrorKind::Bus), 1));
    // 10 ms without a reading are bridged: 1 W, then 3 W.
    meter.0 = Ok(reading(3_000_000));
    sampler.poll(10_000, &mut [&mut meter]);
    let rail = sampler.rail(0).unwrap();
    assert_eq!((rail.energy(), rail.bus_errors_in_row()), (Joules::from_milli(20), 0));
    // A gap of more is not.
    sampler.poll(21_000, &mut [&mut meter]);
    let rail = sampler.rail(0).unwrap();
    assert_eq!((rail.energy(), rail.unmeasured_us()), (Joules::from_milli(20), 11_000));
    sampler.poll(22_000, &mut [&mut meter]);
    assert_eq!(sampler.rail(0).unwrap().energy(), Joules::from_milli(23));
}

#[test]
fn several_chips_are_sampled_together() {
    let mut buses = [SimulatedBus::<1>::new(), SimulatedBus::<1>::new()];
    buses[0].add(0x40, SimulatedChip::ina3221());
    buses[1].add(0x41, SimulatedChip::ina226());
    for channel in 0..3 {
        let shunt = (channel as i64 + 1) * 5_000_000_000;
        buses[0].chip(0x40).unwrap().set_rail(channel, Volts::from_units(5), shunt);
    }
    buses[1].chip(0x41).unwrap().set_rail(0, Volts::from_units(12), 10_000_000_000);
    let [first, second] = &mut buses;
    let mut sampler = RailSampler::<4, 8>::new(CONFIG);
    let mut monitor = Ina3221::new(first, 0x40, [Ohms::from_milli(5); 3]).unwrap();
    let mut single = Ina226::new(second, 0x41, Ohms::from_milli(5)).unwrap();
    for now_us in (0..=1_000_000).step_by(1_000) {
        sampler.poll(now_us, &mut [&mut monitor, &mut single]);
    }
    let energies: Vec<Joules> = sampler.rails().iter().map(|rail| rail.energy()).collect();
    assert_eq!(energies, [5, 10, 15, 24].map(Joules::from_units));
    // One bus fails: its rails only.
    monitor.release().fail_next(u32::MAX);
    let [first, second] = &mut buses;
    let mut monitor = Ina3221::new(first, 0x40, [Ohms::from_milli(5); 3]).unwrap();
    let mut single = Ina226::new(second, 0x41, Ohms::from_milli(5)).unwrap();
    let polled = sampler.poll(1_001_000, &mut [&mut monitor, &mut single]);
    assert_eq!(polled, Poll::Sampled { missed: 0, failed: 3, until_us: 1_002_000 });
    let errors: Vec<u32> = sampler.rails().iter().map(|rail| rail.bus_errors()).collect();
    assert_eq!(errors, [1, 1, 1, 0]);
}

#[test]
#[should_panic(expected = "more than 2 rails")]
fn more_rails_than_the_sampler_has_are_a_bug() {
    let mut bus = SimulatedBus::<1>::new();
    bus.add(0x40, SimulatedChip::ina3221());
    let mut monitor = Ina3221::new(&mut bus, 0x40, [Ohms::from_milli(5); 3]).unwrap();
    RailSampler::<2, 8>::new(CONFIG).poll(0, &mut [&mut monitor]);
}

#[test]
fn a_sampler_without_a_period_does_not_hang() {
    let mut sampler = RailSampler::<1, 1>::new(SamplerConfig { period_us: 0, gap_us_max: 1_000 });
    let mut meter = Chosen(Ok(reading(1)));
    assert_eq!(sampler.poll(0, &mut [&mut meter]), Poll::Sampled { missed: 0, failed: 0, until_us: 1 });
}

proptest! {
    /// The total is the exact sum of the trapezoids, rounded down once, however odd powers and times are.
    #[test]
    fn energy_does_not_drift(
        samples in proptest::collection::vec((1_u64..100_000, -50_000_000_i64..50_000_000), 1..200),
    ) {
        let config = SamplerConfig { period_us: 1, gap_us_max: u64::MAX };
        let mut sampler = RailSampler::<1, 1>::new(config);
        let (mut now_us, mut last, mut doubled) = (0, None, 0_i128);
        for (step_us, microwatts) in samples {
            now_us += step_us;
            let mut meter = Chosen(Ok(reading(microwatts)));
            sampler.poll(now_us, &mut [&mut meter]);
            if let Some(last) = last.replace(microwatts) {
                doubled += i128::from(last + microwatts) * i128::from(step_us);
            }
        }
        // Twice the energy in microwatts times microseconds, of which a microjoule has a million.
        let exact = doubled.div_euclid(2_000_000);
        prop_assert_eq!(i128::from(sampler.rail(0).unwrap().energy().micro()), exact);
    }

    /// Energy is added up in one step or in many.
    #[test]
    fn a_long_gap_is_the_sum_of_short_ones(microwatts in -50_000_000_i64..50_000_000, seconds in 1_u64..100) {
        let energy = |step_us: u64| {
            let mut sampler = RailSampler::<1, 1>::new(SamplerConfig { period_us: step_us, gap_us_max: u64::MAX });
            for now_us in (0..=seconds * 1_000_000).step_by(step_us as usize) {
                sampler.poll(now_us, &mut [&mut Chosen(Ok(reading(microwatts)))]);
            }
            sampler.rail(0).unwrap().energy()
        };
        prop_assert_eq!(energy(1_000_000), energy(12_500));
        prop_assert_eq!(energy(1_000_000), energy(seconds * 1_000_000));
    }
}
