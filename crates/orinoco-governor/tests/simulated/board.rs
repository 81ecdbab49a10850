//! Simulated board: heat, power and latency by its settings.

use orinoco_core::Rng;

/// Seconds between two steps of the heat.
pub(crate) const STEP_S: f64 = 0.1;
/// Rise of the temperature by which leakage grows e-fold, in degrees.
const LEAKAGE_RISE: f64 = 35.0;

/// Settings of the board: indices of its levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) mode: usize,
    /// Cap of the clock. Without clocks to set, it is the highest.
    pub(crate) cap: usize,
    pub(crate) work: usize,
}

/// Power mode.
#[derive(Clone, Debug)]
pub(crate) struct Mode {
    /// Index of the highest clock that it allows.
    pub(crate) top: usize,
    /// Share of the cores that are on.
    pub(crate) cores: f64,
}

/// Physics of a board. Heat goes from the die to the heat sink, and from there to the air.
#[derive(Clone, Debug)]
pub(crate) struct Board {
    pub(crate) modes: Vec<Mode>,
    /// Clocks relative to the highest.
    pub(crate) clocks: Vec<f64>,
    /// Work of a frame relative to the most, by level.
    pub(crate) works: Vec<f64>,
    /// Power without load, in watts.
    idle: f64,
    /// Leakage at 25 °C, in watts.
    leakage: f64,
    /// Power of full load at the highest clock with all cores, in watts.
    dynamic: f64,
    /// Time of one inference at the highest clock with all cores, in seconds.
    service: f64,
    /// Thermal resistances, in kelvin per watt.
    die_to_sink: f64,
    sink_to_air: f64,
    /// Heat capacities, in joules per kelvin.
    die_capacity: f64,
    sink_capacity: f64,
}

/// Temperatures of the nodes, in degrees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heat {
    pub(crate) die: f64,
    pub(crate) sink: f64,
}

impl Board {
    /// Makes a board in the range of Jetsons: 7 W to 60 W, heat sinks of 40 s to 200 s.
    pub(crate) fn random(rng: &mut Rng, has_clocks: bool) -> Self {
        let mut between = |low: f64, high: f64| low + (high - low) * rng.f64();
        let clock_count = between(5.0, 12.0) as usize;
        let lowest = between(0.25, 0.45);
        let clocks: Vec<f64> =
            (0..clock_count).map(|i| lowest + (1.0 - lowest) * i as f64 / (clock_count - 1) as f64).collect();
        let mode_count = if has_clocks { between(1.0, 5.0) } else { between(2.0, 5.0) } as usize;
        let modes = (1..=mode_count).map(|number| {
            let share = number as f64 / mode_count as f64;
            let top = ((clock_count - 1) as f64 * share).round() as usize;
            Mode { top, cores: 0.5 + 0.5 * share }
        });
        let modes: Vec<Mode> = modes.collect();
        let works = if between(0.0, 1.0) < 0.5 { vec![0.25, 0.5, 1.0] } else { vec![1.0] };
        let dynamic = between(6.0, 45.0);
        // A greater board has a greater heat sink.
        let resistance = between(20.0, 45.0) / dynamic;
        let sink_to_air = resistance * between(0.6, 0.85);
        let sink_seconds = between(40.0, 200.0);
        let die_to_sink = resistance - sink_to_air;
        let die_seconds = between(1.5, 4.0);
        Self {
            modes,
            clocks,
            works,
            idle: dynamic * between(0.15, 0.4),
            leakage: dynamic * between(0.01, 0.05),
            dynamic,
            service: between(0.004, 0.06),
            die_to_sink,
            sink_to_air,
            die_capacity: die_seconds / die_to_sink,
            sink_capacity: sink_seconds / sink_to_air,
        }
    }

    fn clock(&self, setting: Setting) -> f64 {
        self.clocks[setting.cap.min(self.modes[setting.mode].top)]
    }

    fn speed(&self, setting: Setting) -> f64 {
        self.clock(setting) * self.modes[setting.mode].cores
    }

    /// Returns the share of its time in which the lane works, with a `rate` relative to what full speed and all work can do.
    pub(crate) fn load(&self, setting: Setting, rate: f64) -> f64 {
        (rate * self.works[setting.work] / self.speed(setting)).min(1.0)
    }

    /// Returns the power at full load without leakage, in watts.
    fn full(&self, setting: Setting) -> f64 {
        let clock = self.clock(setting);
        let volts = 0.55 + 0.45 * clock;
        self.idle + self.dynamic * self.modes[setting.mode].cores * clock * volts * volts
    }

    /// Returns the power, in watts.
    pub(crate) fn power(&self, setting: Setting, load: f64, die: f64) -> f64 {
        let leakage = self.leakage * ((die - 25.0) / LEAKAGE_RISE).exp();
        self.idle + (self.full(setting) - self.idle) * load + leakage
    }

    /// Returns the p99 latency, in seconds: it grows with the load, and is bounded by the queue.
    pub(crate) fn p99(&self, setting: Setting, rate: f64) -> f64 {
        let own = self.service / self.speed(setting);
        let load = rate * self.works[setting.work] / self.speed(setting);
        own * (1.2 + 0.3 / (1.0 - load.min(0.97)))
    }

    /// Lets the heat flow for [`STEP_S`].
    pub(crate) fn heat(&self, heat: Heat, power: f64, ambient: f64) -> Heat {
        let to_sink = (heat.die - heat.sink) / self.die_to_sink;
        let to_air = (heat.sink - ambient) / self.sink_to_air;
        Heat {
            die: heat.die + (power - to_sink) * STEP_S / self.die_capacity,
            sink: heat.sink + (to_sink - to_air) * STEP_S / self.sink_capacity,
        }
    }

    /// Returns temperature and power that settle at a load, by iteration; leakage may run away, which gives a very high one.
    pub(crate) fn steady(&self, setting: Setting, load: f64, ambient: f64) -> (f64, f64) {
        let (mut die, mut power) = (ambient, 0.0);
        for _ in 0..60 {
            power = self.power(setting, load, die);
            die = (ambient + power * (self.die_to_sink + self.sink_to_air)).min(300.0);
        }
        (die, power)
    }

    /// Returns the time constant of the heat sink, in seconds.
    pub(crate) fn sink_seconds(&self) -> f64 {
        self.sink_capacity * self.sink_to_air
    }

    /// Returns all settings; without clocks, those at the highest cap.
    pub(crate) fn settings(&self, has_clocks: bool) -> impl Iterator<Item = Setting> {
        let (modes, works, highest) = (self.modes.len(), self.works.len(), self.clocks.len() - 1);
        let caps = if has_clocks { 0..=highest } else { highest..=highest };
        caps.flat_map(move |cap| {
            (0..modes).flat_map(move |mode| (0..works).map(move |work| Setting { mode, cap, work }))
        })
    }
}
