//! Fan, trigger and heartbeat.

use embedded_hal_mock::eh1::delay::{CheckedDelay, Transaction as Delay};
use embedded_hal_mock::eh1::digital::{Mock as Pin, State, Transaction as Level};
use embedded_hal_mock::eh1::pwm::{Mock as Pwm, Transaction as PwmCall};
use orinoco_core::Celsius;
use orinoco_sensors::{
    CurveError, CurvePoint, Duty, FanConfig, FanCurve, FanStatus, Heartbeat, HeartbeatState, Polarity,
    PulseCounter, PwmFan, Rpm, Start, Tachometer, Trigger, TriggerConfig,
};
use proptest::prelude::*;

fn point(degrees: i64, percent: u8) -> CurvePoint {
    CurvePoint { temperature: Celsius::from_units(degrees), duty: Duty::from_percent(percent) }
}

fn config() -> FanConfig<3> {
    FanConfig {
        curve: FanCurve::new(&[point(40, 0), point(60, 50), point(80, 100)]).unwrap(),
        hysteresis: Celsius::from_units(5),
        pulses_per_revolution: 2,
        window_us: 1_000_000,
        stall_us: 3_000_000,
    }
}

#[test]
fn a_curve_must_rise() {
    for (points, fault) in [
        (&[][..], CurveError::Empty),
        (&[point(40, 10), point(40, 20)], CurveError::Falling { point: 1 }),
        (&[point(40, 10), point(50, 20), point(60, 19)], CurveError::Falling { point: 2 }),
        (&[point(1, 1), point(2, 2), point(3, 3), point(4, 4)], CurveError::TooManyPoints { max: 3 }),
    ] {
        assert_eq!(FanCurve::<3>::new(points).unwrap_err(), fault);
    }
}

#[test]
fn the_fan_follows_its_curve_and_slows_down_late() {
    // Temperatures in tenths of a degree, and the duty cycle in per mille that each sets.
    let steps = [
        (None, 1_000),
        (Some(300), 0),
        (Some(500), 250),
        (Some(600), 500),
        // Within the hysteresis it stays, also below the temperature before.
        (Some(560), 500),
        (Some(551), 500),
        (Some(550), 375),
        (Some(599), 497),
        (Some(900), 1_000),
        (None, 1_000),
        // After an unknown temperature there is nothing to hold.
        (Some(300), 0),
    ];
    let full = [PwmCall::max_duty_cycle(255), PwmCall::set_duty_cycle(255)];
    let calls = steps.iter().flat_map(|(_, permille)| {
        [PwmCall::max_duty_cycle(255), PwmCall::set_duty_cycle((permille * 255_u32 / 1_000) as u16)]
    });
    let calls: Vec<PwmCall> = full.into_iter().chain(calls).collect();
    let mut fan = PwmFan::new(Pwm::new(&calls), config()).unwrap();
    for (tenths, permille) in steps {
        let temperature = tenths.map(|tenths: i64| Celsius::from_milli(tenths * 100));
        let status = fan.poll(0, temperature, 0).unwrap();
        assert_eq!(u32::from(status.duty.permille()), permille, "at {temperature:?}");
    }
    fan.release().done();
}

#[test]
fn a_fan_that_does_not_turn_is_stalled() {
    let polls = [
        // Time in seconds, temperature, pulses, and whether it is stalled.
        (0, 50, 0, false),
        (2, 50, 100, false),
        (4, 50, 100, false),
        (5, 50, 100, true),
        (6, 50, 101, false),
        // One that should stand still is not stalled, and has three seconds to start.
        (20, 30, 101, false),
        (22, 50, 101, false),
        (23, 50, 101, true),
    ];
    let call = [PwmCall::max_duty_cycle(1_000), PwmCall::set_duty_cycle(1_000)];
    let calls: Vec<PwmCall> = polls
        .iter()
        .flat_map(|(_, degrees, _, _)| {
            let duty = if *degrees == 50 { 250 } else { 0 };
            [PwmCall::max_duty_cycle(1_000), PwmCall::set_duty_cycle(duty)]
        })
        .collect();
    let mut fan = PwmFan::new(Pwm::new(&[&call[..], &calls].concat()), config()).unwrap();
    for (seconds, degrees, pulses, is_stalled) in polls {
        let status = fan.poll(seconds * 1_000_000, Some(Celsius::from_units(degrees)), pulses).unwrap();
        assert_eq!(status.is_stalled, is_stalled, "after {seconds} s");
    }
    fan.release().done();
}

#[test]
fn speed_is_counted_over_windows() {
    let mut tachometer = Tachometer::new(2, 1_000_000);
    // The counter wraps around.
    let start = u32::MAX - 49;
    assert_eq!(tachometer.update(0, start), None);
    assert_eq!(tachometer.update(999_999, start.wrapping_add(99)), None);
    assert_eq!(tachometer.update(1_000_000, start.wrapping_add(100)), Some(Rpm(3_000)));
    assert_eq!(tachometer.update(1_500_000, start.wrapping_add(100)), Some(Rpm(3_000)));
    assert_eq!(tachometer.update(3_000_000, start.wrapping_add(100)), Some(Rpm(0)));
}

#[test]
fn pulses_are_falling_edges() {
    let levels = [State::Low, State::Low, State::High, State::Low, State::Low, State::High, State::Low];
    let levels: Vec<Level> = levels.into_iter().map(Level::get).collect();
    let mut counter = PulseCounter::new(Pin::new(&levels)).unwrap();
    let counts: Vec<u32> = (0..6).map(|_| counter.poll().unwrap()).collect();
    assert_eq!(counts, [0, 0, 1, 1, 1, 2]);
    counter.release().done();
}

#[test]
fn a_trigger_fires_a_pulse_of_its_width() {
    for (polarity, idle, active) in
        [(Polarity::ActiveHigh, State::Low, State::High), (Polarity::ActiveLow, State::High, State::Low)]
    {
        let config = TriggerConfig { polarity, width_us: 50, recovery_us: 200 };
        let levels = [idle, active, idle, idle].map(Level::set);
        let mut delay = CheckedDelay::new(&[Delay::delay_us(50), Delay::delay_us(200)]);
        let mut trigger = Trigger::new(Pin::new(&levels), config).unwrap();
        trigger.fire(&mut delay).unwrap();
        trigger.release().unwrap().done();
        delay.done();
    }
}

#[test]
fn a_trigger_without_waiting_refuses_pulses_that_are_too_close() {
    let config = TriggerConfig { polarity: Polarity::ActiveHigh, width_us: 50, recovery_us: 200 };
    let levels = [State::Low, State::High, State::Low, State::High, State::Low].map(Level::set);
    let mut trigger = Trigger::new(Pin::new(&levels), config).unwrap();
    assert_eq!(trigger.poll(0), Ok(None));
    assert_eq!(trigger.start(1_000), Ok(Start::Started));
    assert_eq!(trigger.start(1_010), Ok(Start::Busy { until_us: 1_250 }));
    assert_eq!(trigger.poll(1_049), Ok(Some(1_050)));
    // Polled late: the pulse is longer, and its recovery begins with its end.
    assert_eq!(trigger.poll(1_060), Ok(Some(1_260)));
    assert_eq!(trigger.start(1_259), Ok(Start::Busy { until_us: 1_260 }));
    assert_eq!(trigger.start(1_260), Ok(Start::Started));
    trigger.release().unwrap().done();
}

/// Levels of a heartbeat's pin every 50 ms, as its polls set them.
fn levels(pattern: &str) -> Vec<Level> {
    let level = |on| Level::set(if on { State::High } else { State::Low });
    pattern.chars().map(|character| level(character == '#')).collect()
}

#[test]
fn a_heartbeat_shows_its_state_and_that_nobody_feeds_it() {
    // 1 s of starting, 1 s of running, 1 s of a warning, then no more feeding for longer than 1 s: a fault.
    let patterns = [
        "#...#...#...#...#...",
        "##..................",
        "##...##.............",
        "#####.....#####.....",
        // It is fed again.
        "##...##.............",
    ];
    let all = [".", &patterns.concat(), "."].concat();
    let mut heartbeat = Heartbeat::new(Pin::new(&levels(&all)), Polarity::ActiveHigh, 1_000_000).unwrap();
    for step in 0..100_u64 {
        let now_us = step * 50_000;
        match step {
            20 => heartbeat.set_state(HeartbeatState::Running),
            40 => heartbeat.set_state(HeartbeatState::Warning),
            _ => {}
        }
        if step <= 40 || step >= 80 {
            heartbeat.feed(now_us);
        }
        let expected = match step {
            0..20 => HeartbeatState::Starting,
            20..40 => HeartbeatState::Running,
            40..60 | 80.. => HeartbeatState::Warning,
            60..80 => HeartbeatState::Fault,
        };
        assert_eq!(heartbeat.poll(now_us), Ok(expected), "step {step}");
    }
    assert_eq!(heartbeat.timeouts(), 1);
    heartbeat.release().unwrap().done();
}

#[test]
fn points_closer_than_a_thousandth_of_a_degree_keep_their_duty_cycles() {
    let points = [0, 1, 2].map(|i| CurvePoint {
        temperature: Celsius::from_micro(i),
        duty: Duty::from_permille(u16::try_from(i / 2).unwrap()),
    });
    let curve = FanCurve::<3>::new(&points).unwrap();
    assert_eq!(points.map(|point| curve.duty_at(point.temperature)), points.map(|point| point.duty));
}

proptest! {
    /// A hotter fan is never slower, and the duty cycle lies between those of the curve's ends.
    #[test]
    fn the_curve_rises(
        rises in proptest::collection::vec((1_i64..50_000_000, 0_u16..400), 1..8), a: i64, b: i64,
    ) {
        let mut at = CurvePoint { temperature: Celsius::from_units(-50), duty: Duty::OFF };
        let points: Vec<CurvePoint> = rises
            .into_iter()
            .map(|(micro, permille)| {
                let duty = Duty::from_permille(at.duty.permille() + permille);
                at = CurvePoint { temperature: at.temperature + Celsius::from_micro(micro), duty };
                at
            })
            .collect();
        let curve = FanCurve::<8>::new(&points).unwrap();
        for point in &points {
            prop_assert_eq!(curve.duty_at(point.temperature), point.duty);
        }
        let [cooler, hotter] = [a.min(b), a.max(b)].map(|t| curve.duty_at(Celsius::from_micro(t % 1_000_000_000)));
        if a.min(b) % 1_000_000_000 <= a.max(b) % 1_000_000_000 {
            prop_assert!(cooler <= hotter);
        }
        prop_assert!(points[0].duty <= cooler && hotter <= points[points.len() - 1].duty);
    }

    /// The fan's duty cycle never falls while the temperature stays within the hysteresis of its peak.
    #[test]
    fn noise_within_the_hysteresis_does_not_move_the_fan(noise in proptest::collection::vec(0_i64..5_000, 1..50)) {
        let full = [PwmCall::max_duty_cycle(1_000), PwmCall::set_duty_cycle(1_000)];
        let held = [PwmCall::max_duty_cycle(1_000), PwmCall::set_duty_cycle(750)];
        let calls: Vec<PwmCall> =
            full.into_iter().chain(held.into_iter().cycle().take(2 * noise.len() + 2)).collect();
        let mut fan = PwmFan::new(Pwm::new(&calls), config()).unwrap();
        let expected = FanStatus { duty: Duty::from_permille(750), speed: None, is_stalled: false };
        prop_assert_eq!(fan.poll(0, Some(Celsius::from_units(70)), 0), Ok(expected));
        for milli in noise {
            let temperature = Celsius::from_milli(70_000 - milli);
            prop_assert_eq!(fan.poll(0, Some(temperature), 0), Ok(expected));
        }
        fan.release().done();
    }
}
