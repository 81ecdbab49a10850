use super::*;
use orinoco_core::Celsius;

use crate::{Missing, Zone};

/// Board with three power modes, five clocks and two intervals, all in the middle or at the top.
fn inputs(second: u64) -> Inputs {
    let level = |name: &str, scale: f64| crate::Level { name: name.to_owned(), scale, ceiling: None };
    let ladder = |kind, name: &str, levels: Vec<crate::Level>, current| Actuator {
        kind,
        name: name.to_owned(),
        levels,
        current,
        is_guarded: kind == ActuatorKind::PowerMode,
    };
    let modes = vec![level("7W", 7.0), level("15W", 15.0), level("25W", 25.0)];
    let clocks = [306.0, 408.0, 510.0, 612.0, 714.0].map(|mhz| level(&format!("{mhz} MHz"), mhz / 714.0));
    let intervals = vec![level("2", 0.5), level("1", 1.0)];
    Inputs {
        read_at: Some(at(second)),
        zones: vec![
            Zone {
                name: "tj-thermal".into(),
                temperature: Some(Celsius::from_units(60)),
                throttle_at: Some(Celsius::from_units(95)),
            },
            Zone {
                name: "cv0-thermal".into(),
                temperature: None,
                throttle_at: Some(Celsius::from_units(95)),
            },
        ],
        power: Some(Watts::from_units(12)),
        latencies: vec![latency(50)],
        load: Some(0.5),
        actuators: vec![
            ladder(ActuatorKind::PowerMode, "power-mode", modes, 1),
            ladder(ActuatorKind::Clock, "gpu", clocks.into(), 2),
            ladder(ActuatorKind::Interval, "interval", intervals, 1),
        ],
    }
}

fn at(second: u64) -> Nanos {
    Nanos(0) + Duration::from_secs(second)
}

fn latency(p99_ms: u64) -> StreamLatency {
    let target = Duration::from_millis(100);
    StreamLatency { stream: "gate".into(), p99: Some(Duration::from_millis(p99_ms)), target }
}

fn limits() -> Limits {
    Limits { power: Some(Watts::from_units(15)), temperature: Some(Celsius::from_units(85)) }
}

/// Ticks over these seconds with inputs that `change` changes, and returns the steps as text. Steps are taken.
fn steps(seconds: std::ops::Range<u64>, change: impl Fn(u64, &mut Inputs)) -> Vec<String> {
    let mut governor = Governor::new(limits());
    let mut levels: Vec<usize> = inputs(0).actuators.iter().map(|actuator| actuator.current).collect();
    let mut taken = Vec::new();
    for second in seconds {
        let mut inputs = inputs(second);
        for (actuator, level) in inputs.actuators.iter_mut().zip(&levels) {
            actuator.current = *level;
        }
        change(second, &mut inputs);
        let Some(step) = governor.tick(at(second), &inputs).step else { continue };
        levels[step.actuator] = step.level;
        let actuator = &inputs.actuators[step.actuator];
        taken.push(format!(
            "{second} {} {}: {}",
            actuator.name, actuator.levels[step.level].name, step.reason
        ));
    }
    taken
}

#[test]
fn a_board_within_its_limits_is_left_alone() {
    assert_eq!(steps(0..120, |_, _| {}), [""; 0]);
}

#[test]
fn too_much_power_lowers_the_clock_at_once_and_then_the_mode() {
    let hot = |_: u64, inputs: &mut Inputs| inputs.power = Some(Watts::from_units(20));
    let reason = "the input power of 20.0 W is too high for the limit of 15.0 W";
    let expected = [
        format!("0 gpu 306 MHz: {reason}"),
        format!("2 power-mode 7W: {reason}"),
        format!("4 interval 2: {reason}"),
    ];
    assert_eq!(steps(0..60, hot), expected);
}

#[test]
fn modes_change_once_in_ten_seconds() {
    let only_modes = |_: u64, inputs: &mut Inputs| {
        inputs.actuators.truncate(1);
        inputs.power = Some(Watts::from_units(30));
    };
    let mut governor = Governor::new(limits());
    let mut changes = Vec::new();
    let mut level = 2;
    for second in 0..60 {
        let mut inputs = inputs(second);
        only_modes(second, &mut inputs);
        inputs.actuators[0].current = level;
        if let Some(step) = governor.tick(at(second), &inputs).step {
            level = step.level;
            changes.push(second);
        }
    }
    // The dwell counts from the tick that sees the change.
    assert_eq!(changes, [0, 11]);
}

#[test]
fn a_change_by_somebody_else_starts_the_dwell() {
    let mut governor = Governor::new(limits());
    let decide = |governor: &mut Governor, second: u64, mode: usize, watts: i64| {
        let mut inputs = inputs(second);
        inputs.actuators.truncate(1);
        inputs.actuators[0].current = mode;
        inputs.power = Some(Watts::from_units(watts));
        governor.tick(at(second), &inputs)
    };
    assert_eq!(decide(&mut governor, 0, 1, 12).step, None);
    let seen = decide(&mut governor, 1, 2, 20);
    assert_eq!((seen.state, seen.step), (State::Limiting, None));
    assert_eq!(decide(&mut governor, 10, 2, 20).step, None);
    assert!(decide(&mut governor, 11, 2, 20).step.is_some());
}

#[test]
fn a_rising_temperature_is_answered_before_its_limit() {
    let rising = |second: u64, inputs: &mut Inputs| {
        inputs.zones[0].temperature = Some(Celsius::from_f64(70.0 + second as f64));
    };
    let first = steps(0..14, rising).into_iter().next().expect("a step");
    let reason = "tj-thermal is at 74.0 °C and expected at 82.0 °C in 8 s, too high for its limit of 85.0 °C";
    assert_eq!(first, format!("4 gpu 408 MHz: {reason}"));
}

#[test]
fn without_a_limit_the_trip_point_is_kept_at_a_distance() {
    let mut governor = Governor::new(Limits::default());
    let mut hot = inputs(0);
    hot.zones[0].temperature = Some(Celsius::from_units(91));
    let decision = governor.tick(at(0), &hot);
    assert!(matches!(
        decision.step.expect("a step").reason,
        Reason::Temperature { limit, .. } if limit == Celsius::from_units(92)
    ));
}

#[test]
fn a_slow_stream_gets_more_speed_where_there_is_room_and_less_work_where_there_is_none() {
    let slow = |watts: i64| {
        move |_: u64, inputs: &mut Inputs| {
            inputs.latencies = vec![latency(120)];
            inputs.power = Some(Watts::from_units(watts));
        }
    };
    let reason = "p99 of stream gate is 120.0 ms instead of 100.0 ms";
    assert_eq!(steps(0..1, slow(8)), [format!("0 gpu 612 MHz: {reason}")]);
    assert_eq!(steps(0..1, slow(15)), [format!("0 interval 2: {reason}")]);
}

#[test]
fn unknown_is_not_zero() {
    let without_power = |_: u64, inputs: &mut Inputs| inputs.power = None;
    assert_eq!(steps(0..6, without_power), [""; 0], "a gap is no fault yet");
    let all = steps(0..60, without_power);
    let levels: Vec<&str> = all
        .iter()
        .map(|step| step.split_once(' ').and_then(|(_, rest)| rest.split_once(':')).expect("form").0)
        .collect();
    assert_eq!(levels, ["gpu 306 MHz", "power-mode 7W", "interval 2"]);
    assert!(all[0].ends_with("the input power cannot be read"), "{all:?}");
    let mut governor = Governor::new(limits());
    governor.tick(at(0), &inputs(0));
    // Readings that are repeated for seconds count as missing.
    assert_eq!(
        governor.tick(at(7), &inputs(0)).step.map(|step| step.reason),
        Some(Reason::Blind(Missing::Readings))
    );
}

#[test]
fn a_zone_that_goes_silent_near_its_limit_is_missed_and_a_cold_one_is_not() {
    let silent_from = |celsius: i64| {
        move |second: u64, inputs: &mut Inputs| {
            let temperature = Some(Celsius::from_units(celsius)).filter(|_| second < 5);
            let zone = Zone { name: "gpu".into(), temperature, throttle_at: Some(Celsius::from_units(95)) };
            inputs.zones.push(zone);
        }
    };
    assert_eq!(steps(0..40, silent_from(60)), [""; 0]);
    let missed = steps(0..40, silent_from(75));
    assert!(missed[0].ends_with("gpu was near its limit and cannot be read any more"), "{missed:?}");
}

#[test]
fn at_the_lowest_levels_a_limit_is_given_up_openly() {
    let mut governor = Governor::new(limits());
    let mut inputs = inputs(0);
    inputs.actuators.iter_mut().for_each(|actuator| actuator.current = 0);
    inputs.power = Some(Watts::from_units(30));
    assert_eq!(governor.tick(at(0), &inputs), Decision { state: State::Exhausted, step: None });
    inputs.actuators.clear();
    assert_eq!(governor.tick(at(1), &inputs), Decision { state: State::Exhausted, step: None });
}

#[test]
fn power_that_a_step_up_exceeded_is_not_tried_again_at_once() {
    // Above 408 MHz the board takes too much.
    let steps = steps(0..200, |_, inputs| {
        let level = inputs.actuators[1].current;
        inputs.latencies = vec![latency(120)];
        inputs.actuators.truncate(2);
        inputs.power = Some(Watts::from_units(if level > 1 { 17 } else { 13 }));
    });
    let ups: Vec<u64> = steps
        .iter()
        .filter(|step| step.contains("gpu 510 MHz"))
        .map(|step| step.split(' ').next().and_then(|second| second.parse().ok()).expect("a second"))
        .collect();
    assert!(ups.len() >= 2 && ups.windows(2).all(|pair| pair[1] - pair[0] >= 30), "{steps:?}");
}
