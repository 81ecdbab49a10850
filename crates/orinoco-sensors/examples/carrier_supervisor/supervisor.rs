//! The supervisor, without a clock, a board or a heap.

use core::convert::Infallible;

use embedded_hal::digital::OutputPin;
use embedded_hal::i2c::I2c;
use embedded_hal::pwm::SetDutyCycle;
use orinoco_core::{Amperes, Celsius, Ohms, Watts};
use orinoco_sensors::{
    Averaging, CurvePoint, Duty, FanConfig, FanCurve, FanStatus, Heartbeat, HeartbeatState, Ina3221,
    Polarity, Poll, PwmFan, RailSampler, SamplerConfig, SensorError, Tmp75, ina3221,
};

/// Address of the INA3221 on Jetson's developer kits.
pub(crate) const INA3221_ADDRESS: u8 = 0x40;
/// Address of the carrier's TMP75.
pub(crate) const TMP75_ADDRESS: u8 = 0x48;

const RAILS: usize = 3;
/// Samples of a rail that are kept: 1.6 s.
const SAMPLES: usize = 16;
const SAMPLE_PERIOD_US: u64 = 100_000;
/// Failed readings of a rail, one after another, after which the chips are set up again: they may have lost their power.
const FAILED_READINGS_MAX: u32 = 3;

/// Things that are wrong with the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// The rails together take more power than allowed.
    Power,
    /// The board is too hot.
    Hot,
    /// The fan does not turn.
    FanStalled,
    /// The module has not reported for too long.
    ModuleSilent,
    /// A sensor does not answer.
    SensorLost,
}

/// Set of alarms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Alarms(u8);

impl Alarms {
    fn set(&mut self, alarm: Alarm, is_raised: bool) {
        self.0 |= u8::from(is_raised) << alarm as u8;
    }

    /// Whether the alarm is raised.
    #[cfg_attr(target_os = "none", expect(dead_code, reason = "a firmware with a link to a host reports it"))]
    pub(crate) fn contains(self, alarm: Alarm) -> bool {
        self.0 & 1 << alarm as u8 != 0
    }

    /// Whether no alarm is raised.
    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// Limits of a board.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Shunt resistor of each rail.
    pub(crate) shunts: [Ohms; RAILS],
    /// Power of all rails together.
    pub(crate) power: Watts,
    /// Critical current of each rail, at which the chip pulls its own alert pin.
    pub(crate) current: Amperes,
    /// Temperature of the carrier.
    pub(crate) temperature: Celsius,
}

/// Inputs at one time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inputs {
    /// Time in microseconds.
    pub(crate) now_us: u64,
    /// Total of the fan's tachometer pulses.
    pub(crate) fan_pulses: u32,
    /// The module toggled its heartbeat line since the last poll.
    pub(crate) module: ModuleSignal,
}

/// Heartbeat line of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModuleSignal {
    /// It has toggled.
    Alive,
    /// It has not.
    Silent,
}

/// Outputs of one poll, for a log or a host.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(target_os = "none", expect(dead_code, reason = "a firmware with a link to a host sends it"))]
pub(crate) struct Report {
    /// Alarms that are raised.
    pub(crate) alarms: Alarms,
    /// Power of all rails together; `None` before the first sample.
    pub(crate) power: Option<Watts>,
    /// Temperature of the carrier; `None` where it could not be read.
    pub(crate) temperature: Option<Celsius>,
    /// State of the fan.
    pub(crate) fan: FanStatus,
    /// State that the heartbeat shows.
    pub(crate) heartbeat: HeartbeatState,
}

/// Supervisor of one board. Its pins cannot fail, as on every microcontroller; the bus can.
pub(crate) struct Supervisor<I2C, PWM, LED, ALERT> {
    limits: Limits,
    power_monitor: Ina3221<I2C>,
    thermometer: Tmp75<I2C>,
    sampler: RailSampler<RAILS, SAMPLES>,
    fan: PwmFan<PWM, 3>,
    heartbeat: Heartbeat<LED>,
    alert: ALERT,
    is_set_up: bool,
    temperature: Option<Celsius>,
}

impl<I2C, PWM, LED, ALERT> Supervisor<I2C, PWM, LED, ALERT>
where
    I2C: I2c,
    PWM: SetDutyCycle<Error = Infallible>,
    LED: OutputPin<Error = Infallible>,
    ALERT: OutputPin<Error = Infallible>,
{
    /// Creates the supervisor. Both chips are on the bus that `buses` share.
    pub(crate) fn new(
        limits: Limits,
        buses: [I2C; 2],
        pwm: PWM,
        led: LED,
        alert: ALERT,
    ) -> Result<Self, SensorError<I2C::Error>> {
        let [first, second] = buses;
        let Ok(fan) = PwmFan::new(pwm, fan_config());
        let Ok(heartbeat) = Heartbeat::new(led, Polarity::ActiveHigh, 2_000_000);
        Ok(Self {
            limits,
            power_monitor: Ina3221::new(first, INA3221_ADDRESS, limits.shunts)?,
            thermometer: Tmp75::new(second, TMP75_ADDRESS),
            sampler: RailSampler::new(SamplerConfig { period_us: SAMPLE_PERIOD_US, gap_us_max: 1_000_000 }),
            fan,
            heartbeat,
            alert,
            is_set_up: false,
            temperature: None,
        })
    }

    /// Returns the sampler, with the last samples and the energy of each rail.
    #[cfg_attr(target_os = "none", expect(dead_code, reason = "a firmware with a link to a host sends it"))]
    pub(crate) fn sampler(&self) -> &RailSampler<RAILS, SAMPLES> {
        &self.sampler
    }

    /// Does what is due. Call it every 10 ms or so: the heartbeat's flashes are 50 ms short.
    pub(crate) fn poll(&mut self, inputs: Inputs) -> Report {
        if !self.is_set_up {
            self.is_set_up = self.set_up().is_ok();
        }
        self.sample(inputs.now_us);
        if inputs.module == ModuleSignal::Alive {
            self.heartbeat.feed(inputs.now_us);
        }
        let Ok(fan) = self.fan.poll(inputs.now_us, self.temperature, inputs.fan_pulses);
        let alarms = self.alarms(fan);
        self.heartbeat.set_state(match (self.is_set_up, alarms.is_empty()) {
            (false, _) => HeartbeatState::Starting,
            (true, true) => HeartbeatState::Running,
            (true, false) => HeartbeatState::Warning,
        });
        let Ok(heartbeat) = self.heartbeat.poll(inputs.now_us);
        let mut alarms = alarms;
        alarms.set(Alarm::ModuleSilent, heartbeat == HeartbeatState::Fault);
        let Ok(()) = if alarms.is_empty() { self.alert.set_low() } else { self.alert.set_high() };
        Report { alarms, power: self.power(), temperature: self.temperature, fan, heartbeat }
    }

    /// Checks that the chips are there, and sets them up.
    fn set_up(&mut self) -> Result<(), SensorError<I2C::Error>> {
        self.power_monitor.probe()?;
        self.thermometer.probe()?;
        let averaging = Averaging::Samples16;
        self.power_monitor.configure(&ina3221::Config { averaging, ..ina3221::Config::default() })?;
        for channel in ina3221::Channel::ALL {
            self.power_monitor.set_critical_limit(channel, self.limits.current)?;
        }
        Ok(())
    }

    /// Reads the rails and the temperature when they are due.
    fn sample(&mut self, now_us: u64) {
        if let Poll::Sampled { .. } = self.sampler.poll(now_us, &mut [&mut self.power_monitor]) {
            self.temperature = self.thermometer.temperature().ok();
            let lost =
                |rail: &orinoco_sensors::Rail<SAMPLES>| rail.bus_errors_in_row() >= FAILED_READINGS_MAX;
            self.is_set_up &= !self.sampler.rails().iter().any(lost);
        }
    }

    /// Returns the power of all rails together, if each has a sample.
    fn power(&self) -> Option<Watts> {
        let latest = self.sampler.rails().iter().map(|rail| rail.latest().map(|sample| sample.power()));
        if self.sampler.rails().is_empty() { None } else { latest.sum() }
    }

    /// Returns the alarms, except that of the module.
    fn alarms(&self, fan: FanStatus) -> Alarms {
        let mut alarms = Alarms::default();
        alarms.set(Alarm::Power, self.power().is_some_and(|power| power > self.limits.power));
        alarms.set(Alarm::Hot, self.temperature.is_some_and(|now| now > self.limits.temperature));
        alarms.set(Alarm::FanStalled, fan.is_stalled);
        alarms.set(Alarm::SensorLost, !self.is_set_up || self.temperature.is_none());
        alarms
    }
}

/// Slow up to 40 degrees, full speed from 70.
fn fan_config() -> FanConfig<3> {
    let point = |degrees, percent| CurvePoint {
        temperature: Celsius::from_units(degrees),
        duty: Duty::from_percent(percent),
    };
    FanConfig {
        curve: FanCurve::new(&[point(40, 20), point(60, 60), point(70, 100)]).expect("the points rise"),
        hysteresis: Celsius::from_units(3),
        pulses_per_revolution: 2,
        window_us: 1_000_000,
        stall_us: 3_000_000,
    }
}
