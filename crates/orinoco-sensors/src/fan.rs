//! Fan with a PWM input and a tachometer.

use core::fmt;

use embedded_hal::pwm::SetDutyCycle;
use heapless::Vec;
use orinoco_core::Celsius;

/// Duty cycle of a fan, in thousandths of full speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duty(u16);

impl Duty {
    /// Standstill.
    pub const OFF: Self = Self(0);
    /// Full speed.
    pub const FULL: Self = Self(1_000);

    /// Creates a duty cycle from per cent. More than 100 is full speed.
    pub const fn from_percent(percent: u8) -> Self {
        Self::from_permille(percent as u16 * 10)
    }

    /// Creates a duty cycle from thousandths. More than 1,000 is full speed.
    pub const fn from_permille(permille: u16) -> Self {
        if permille > Self::FULL.0 { Self::FULL } else { Self(permille) }
    }

    /// Returns the duty cycle in thousandths.
    pub const fn permille(self) -> u16 {
        self.0
    }
}

/// Speed of a fan, in revolutions a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rpm(pub u32);

/// Point of a [`FanCurve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurvePoint {
    /// Temperature.
    pub temperature: Celsius,
    /// Duty cycle from this temperature on.
    pub duty: Duty,
}

/// Fault of a [`FanCurve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CurveError {
    /// There is no point.
    Empty,
    /// There are more points than the curve can have.
    TooManyPoints {
        /// Number of points that it can have.
        max: usize,
    },
    /// A point has no higher temperature than the point before it, or a lower duty cycle.
    Falling {
        /// Index of the point.
        point: usize,
    },
}

impl fmt::Display for CurveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a fan curve needs at least one point"),
            Self::TooManyPoints { max } => write!(f, "a fan curve has at most {max} points"),
            Self::Falling { point } => {
                write!(
                    f,
                    "point {point} of a fan curve must be hotter than the point before it, and not slower"
                )
            }
        }
    }
}

impl core::error::Error for CurveError {}

/// Duty cycle by temperature: straight lines between up to `P` points, and constant before the first and after the
/// last.
#[derive(Clone, Debug)]
pub struct FanCurve<const P: usize>(Vec<CurvePoint, P>);

impl<const P: usize> FanCurve<P> {
    /// Creates the curve through these points.
    ///
    /// # Errors
    /// Refuses no points, more than `P`, and points that do not rise in temperature or fall in duty cycle.
    pub fn new(points: &[CurvePoint]) -> Result<Self, CurveError> {
        let rises =
            |pair: &[CurvePoint]| pair[0].temperature < pair[1].temperature && pair[0].duty <= pair[1].duty;
        if points.is_empty() {
            return Err(CurveError::Empty);
        }
        if let Some(falling) = points.windows(2).position(|pair| !rises(pair)) {
            return Err(CurveError::Falling { point: falling + 1 });
        }
        Vec::from_slice(points).map(Self).map_err(|_| CurveError::TooManyPoints { max: P })
    }

    /// Returns the duty cycle at a temperature.
    pub fn duty_at(&self, temperature: Celsius) -> Duty {
        let (first, last) = (self.0[0], self.0[self.0.len() - 1]);
        if temperature <= first.temperature {
            return first.duty;
        }
        let above = self.0.windows(2).find(|pair| temperature < pair[1].temperature);
        above.map_or(last.duty, |pair| between(pair[0], pair[1], temperature))
    }
}

/// Returns the duty cycle on the line from `a` to the hotter `b`.
fn between(a: CurvePoint, b: CurvePoint, temperature: Celsius) -> Duty {
    let rise = i64::from(b.duty.0 - a.duty.0);
    let (part, whole) = ((temperature - a.temperature).micro(), (b.temperature - a.temperature).micro());
    let step = rise.saturating_mul(part) / whole;
    Duty(a.duty.0 + step as u16)
}

/// Settings of a [`PwmFan`].
#[derive(Clone, Debug)]
pub struct FanConfig<const P: usize> {
    /// Duty cycle by temperature.
    pub curve: FanCurve<P>,
    /// Fall of the temperature before the fan slows down. It speeds up at once.
    pub hysteresis: Celsius,
    /// Pulses of the tachometer in one revolution: 2 for most fans.
    pub pulses_per_revolution: u8,
    /// Time over which pulses are counted, in microseconds: 1 s gives steps of 30 rpm with 2 pulses per revolution.
    pub window_us: u64,
    /// Time without a pulse after which a fan that should turn counts as stalled, in microseconds.
    pub stall_us: u64,
}

/// State of a fan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FanStatus {
    /// Duty cycle that is set.
    pub duty: Duty,
    /// Speed in the last complete window; `None` before the first one.
    pub speed: Option<Rpm>,
    /// The fan should turn, and its tachometer has been silent for too long.
    pub is_stalled: bool,
}

/// Fan that follows a temperature, with up to `P` points of its curve.
#[derive(Debug)]
pub struct PwmFan<PWM, const P: usize> {
    pwm: PWM,
    config: FanConfig<P>,
    /// Temperature that set the duty cycle; `None` before the first, and after one that was unknown.
    held: Option<Celsius>,
    tachometer: Tachometer,
    stall: StallDetector,
}

impl<PWM: SetDutyCycle, const P: usize> PwmFan<PWM, P> {
    /// Creates the fan, and lets it run at full speed until the first temperature is known.
    pub fn new(mut pwm: PWM, config: FanConfig<P>) -> Result<Self, PWM::Error> {
        set_duty(&mut pwm, Duty::FULL)?;
        let tachometer = Tachometer::new(config.pulses_per_revolution, config.window_us);
        let stall = StallDetector { stall_us: config.stall_us, progress: None };
        Ok(Self { pwm, config, held: None, tachometer, stall })
    }

    /// Returns the PWM output, which keeps its duty cycle.
    pub fn release(self) -> PWM {
        self.pwm
    }

    /// Sets the duty cycle for a temperature; full speed where it is unknown. `pulses` is the total of the tachometer's
    /// pulses, which wraps around: a timer's counter, an interrupt's, or a [`PulseCounter`].
    ///
    /// # Errors
    /// Returns the fault of the PWM output.
    pub fn poll(
        &mut self,
        now_us: u64,
        temperature: Option<Celsius>,
        pulses: u32,
    ) -> Result<FanStatus, PWM::Error> {
        let duty = self.next_duty(temperature);
        set_duty(&mut self.pwm, duty)?;
        let speed = self.tachometer.update(now_us, pulses);
        Ok(FanStatus { duty, speed, is_stalled: self.stall.update(now_us, pulses, duty) })
    }

    /// Returns the duty cycle for a temperature. The fan slows down only after a fall by the hysteresis.
    fn next_duty(&mut self, temperature: Option<Celsius>) -> Duty {
        let held = match (temperature, self.held) {
            (None, _) => None,
            (Some(now), Some(held)) if now < held && held < now + self.config.hysteresis => Some(held),
            (now, _) => now,
        };
        self.held = held;
        held.map_or(Duty::FULL, |temperature| self.config.curve.duty_at(temperature))
    }
}

fn set_duty<PWM: SetDutyCycle>(pwm: &mut PWM, duty: Duty) -> Result<(), PWM::Error> {
    pwm.set_duty_cycle_fraction(duty.0, Duty::FULL.0)
}

/// Speed from a tachometer's pulses.
#[derive(Debug)]
pub struct Tachometer {
    pulses_per_revolution: u8,
    window_us: u64,
    /// Start of the window, with the total of pulses then.
    window: Option<(u64, u32)>,
    speed: Option<Rpm>,
}

impl Tachometer {
    /// Creates a tachometer. A window or a number of pulses of 0 is taken as 1.
    pub fn new(pulses_per_revolution: u8, window_us: u64) -> Self {
        let (pulses_per_revolution, window_us) = (pulses_per_revolution.max(1), window_us.max(1));
        Self { pulses_per_revolution, window_us, window: None, speed: None }
    }

    /// Takes the total of the pulses, which wraps around, and returns the speed in the last complete window.
    pub fn update(&mut self, now_us: u64, pulses: u32) -> Option<Rpm> {
        let (start_us, start) = *self.window.get_or_insert((now_us, pulses));
        let elapsed_us = now_us.saturating_sub(start_us);
        if elapsed_us >= self.window_us {
            self.speed = Some(self.speed_of(pulses.wrapping_sub(start), elapsed_us));
            self.window = Some((now_us, pulses));
        }
        self.speed
    }

    fn speed_of(&self, pulses: u32, elapsed_us: u64) -> Rpm {
        let revolution = elapsed_us.saturating_mul(self.pulses_per_revolution.into());
        let rpm = (u64::from(pulses) * 60_000_000 + revolution / 2) / revolution;
        Rpm(rpm.min(u32::MAX.into()) as u32)
    }
}

/// Detects a fan that does not turn.
#[derive(Debug)]
struct StallDetector {
    stall_us: u64,
    /// Time of the latest pulse, or of the latest standstill that was asked for, with the total of pulses then.
    progress: Option<(u64, u32)>,
}

impl StallDetector {
    fn update(&mut self, now_us: u64, pulses: u32, duty: Duty) -> bool {
        let (since_us, before) = *self.progress.get_or_insert((now_us, pulses));
        if pulses != before || duty == Duty::OFF {
            self.progress = Some((now_us, pulses));
            return false;
        }
        now_us.saturating_sub(since_us) >= self.stall_us
    }
}

/// Counts the pulses of a tachometer at a pin that is polled, where no timer or interrupt counts them. Each pulse must
/// be seen low once and high once: 3,000 rpm with 2 pulses per revolution need a poll every 5 ms at most.
#[derive(Debug)]
pub struct PulseCounter<PIN> {
    pin: PIN,
    was_low: bool,
    pulses: u32,
}

impl<PIN: embedded_hal::digital::InputPin> PulseCounter<PIN> {
    /// Creates a counter at 0. A pin that is low now begins no pulse.
    pub fn new(mut pin: PIN) -> Result<Self, PIN::Error> {
        let was_low = pin.is_low()?;
        Ok(Self { pin, was_low, pulses: 0 })
    }

    /// Returns the pin.
    pub fn release(self) -> PIN {
        self.pin
    }

    /// Looks at the pin, and returns the number of falling edges so far, which wraps around.
    pub fn poll(&mut self) -> Result<u32, PIN::Error> {
        let is_low = self.pin.is_low()?;
        if is_low && !self.was_low {
            self.pulses = self.pulses.wrapping_add(1);
        }
        self.was_low = is_low;
        Ok(self.pulses)
    }
}
