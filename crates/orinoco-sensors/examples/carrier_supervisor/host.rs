//! Run of the supervisor on a development host: simulated chips and pins, in virtual time.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::rc::Rc;

use embedded_hal::digital::{self, OutputPin};
use embedded_hal::pwm::{self, SetDutyCycle};
use embedded_hal_bus::i2c::RefCellDevice;
use orinoco_core::{Amperes, Celsius, Ohms, Volts, Watts};
use orinoco_sensors::simulated::{SimulatedBus, SimulatedChip};

use crate::supervisor::{
    Alarm, INA3221_ADDRESS, Inputs, Limits, ModuleSignal, Report, Supervisor, TMP75_ADDRESS,
};

const STEP_US: u64 = 10_000;
const SHUNT: Ohms = Ohms::from_milli(5);

/// Thousandths of the duty cycle times microseconds of one revolution of the fan: 4,500 rpm at full speed.
const TURN: u64 = 1_000 * 60_000_000 / 4_500;

/// Simulated pin or PWM output, whose level another part reads.
#[derive(Clone, Default)]
struct Output(Rc<Cell<u16>>);

impl digital::ErrorType for Output {
    type Error = Infallible;
}

impl pwm::ErrorType for Output {
    type Error = Infallible;
}

impl OutputPin for Output {
    fn set_low(&mut self) -> Result<(), Infallible> {
        self.0.set(0);
        Ok(())
    }

    fn set_high(&mut self) -> Result<(), Infallible> {
        self.0.set(1);
        Ok(())
    }
}

impl SetDutyCycle for Output {
    fn max_duty_cycle(&self) -> u16 {
        1_000
    }

    fn set_duty_cycle(&mut self, duty: u16) -> Result<(), Infallible> {
        self.0.set(duty);
        Ok(())
    }
}

/// Simulated board at one second of the run.
struct Scene {
    /// Currents of the three rails.
    currents: [Amperes; 3],
    temperature: Celsius,
    fan: FanState,
    module: ModuleSignal,
    bus: BusState,
}

#[derive(PartialEq)]
enum FanState {
    Turning,
    Blocked,
}

#[derive(PartialEq)]
enum BusState {
    Working,
    Broken,
}

/// One fault after another, each with time to be seen and to pass.
fn scene(second: u64) -> Scene {
    Scene {
        currents: [if second / 5 == 1 { 12_000 } else { 3_000 }, 2_000, 1_000].map(Amperes::from_milli),
        temperature: Celsius::from_units(if second / 5 == 3 { 90 } else { 45 }),
        fan: if second / 5 == 5 { FanState::Blocked } else { FanState::Turning },
        module: if second / 5 == 7 { ModuleSignal::Silent } else { ModuleSignal::Alive },
        bus: if second / 5 == 9 { BusState::Broken } else { BusState::Working },
    }
}

/// Seconds of the run: five faults, and five seconds before and after each.
const SECONDS: u64 = 55;

/// Runs the supervisor, and reports each change of its alarms and its totals as lines.
pub(crate) fn run(report_line: &mut dyn FnMut(String)) {
    let mut bus = SimulatedBus::<2>::new();
    bus.add(INA3221_ADDRESS, SimulatedChip::ina3221());
    bus.add(TMP75_ADDRESS, SimulatedChip::tmp75());
    let bus = RefCell::new(bus);
    let (pwm, led, alert) = (Output::default(), Output::default(), Output::default());
    let limits = Limits {
        shunts: [SHUNT; 3],
        power: Watts::from_units(60),
        current: Amperes::from_units(15),
        temperature: Celsius::from_units(85),
    };
    let buses = [RefCellDevice::new(&bus), RefCellDevice::new(&bus)];
    let mut supervisor = Supervisor::new(limits, buses, pwm.clone(), led.clone(), alert.clone())
        .expect("the shunts are above zero");
    let (mut turned, mut before) = (0, None);
    for now_us in (0..SECONDS * 1_000_000).step_by(STEP_US as usize) {
        let scene = scene(now_us / 1_000_000);
        apply(&scene, &mut bus.borrow_mut());
        turned += if scene.fan == FanState::Turning { u64::from(pwm.0.get()) * STEP_US } else { 0 };
        let fan_pulses = (turned / TURN * 2) as u32;
        let report = supervisor.poll(Inputs { now_us, fan_pulses, module: scene.module });
        assert_eq!(alert.0.get() == 1, !report.alarms.is_empty(), "the alert line is the alarms");
        if before.replace(report.alarms) != Some(report.alarms) {
            report_line(line(now_us, &report));
        }
    }
    for (index, rail) in supervisor.sampler().rails().iter().enumerate() {
        report_line(format!("rail {}: {}, {} bus errors", index + 1, rail.energy(), rail.bus_errors()));
    }
}

fn apply(scene: &Scene, bus: &mut SimulatedBus<2>) {
    let monitor = bus.chip(INA3221_ADDRESS).expect("it was added");
    for (channel, (current, volts)) in scene.currents.iter().zip([12, 5, 3]).enumerate() {
        monitor.set_rail(channel, Volts::from_units(volts), current.micro() * SHUNT.micro());
    }
    bus.chip(TMP75_ADDRESS).expect("it was added").set_temperature(scene.temperature, None);
    bus.fail_next(if scene.bus == BusState::Broken { u32::MAX } else { 0 });
}

fn line(now_us: u64, report: &Report) -> String {
    let all = [Alarm::Power, Alarm::Hot, Alarm::FanStalled, Alarm::ModuleSilent, Alarm::SensorLost];
    let raised: Vec<String> = all
        .into_iter()
        .filter(|alarm| report.alarms.contains(*alarm))
        .map(|alarm| format!("{alarm:?}"))
        .collect();
    let or_unknown = |quantity: Option<String>| quantity.unwrap_or_else(|| "unknown".into());
    format!(
        "{:5.2} s: {}; {}, {}, fan {} %, heartbeat {:?}",
        now_us as f64 / 1e6,
        if raised.is_empty() { "all is well".into() } else { raised.join(", ") },
        or_unknown(report.power.map(|power| format!("{power:.1}"))),
        or_unknown(report.temperature.map(|temperature| format!("{temperature:.0}"))),
        report.fan.duty.permille() / 10,
        report.heartbeat,
    )
}

#[cfg(test)]
mod tests {
    use super::run;

    #[test]
    fn each_fault_raises_its_alarm_and_passes() {
        let mut lines = Vec::new();
        run(&mut |line| lines.push(line));
        let alarms: Vec<&str> = lines
            .iter()
            .filter_map(|line| line.split_once(" s: ")?.1.split_once(';'))
            .map(|(alarms, _)| alarms)
            .collect();
        let expected = [
            "all is well",
            "Power",
            "all is well",
            "Hot",
            "all is well",
            "FanStalled",
            "all is well",
            "ModuleSilent",
            "all is well",
            "SensorLost",
            "all is well",
        ];
        assert_eq!(alarms, expected, "{lines:#?}");
    }
}
