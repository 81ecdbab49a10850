//! Events of a simulated board: its limits, and phases of load and ambient temperature.

use std::time::Duration;

use orinoco_core::{Celsius, Rng, Watts};
use orinoco_governor::Limits;

use crate::board::{Board, Setting};

/// Time of constant load and ambient temperature.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase {
    pub(crate) seconds: f64,
    /// Load relative to what full speed and all work can do.
    pub(crate) rate: f64,
    pub(crate) ambient: f64,
    /// Whether some setting holds the latency and, with slack, the limits.
    pub(crate) is_feasible: bool,
}

/// Sensor that gives nothing for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) of_power: bool,
}

/// Board with its limits and its fate.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) board: Board,
    pub(crate) has_clocks: bool,
    /// Greatest power of each mode, as its maker states it; `None` where none is stated.
    pub(crate) ceilings: Vec<Option<f64>>,
    /// Expected power of each mode, which is up to 15 % wrong.
    pub(crate) scales: Vec<f64>,
    pub(crate) limits: Limits,
    /// Temperature at which the simulated kernel throttles.
    pub(crate) trip: f64,
    pub(crate) target: Option<Duration>,
    pub(crate) phases: Vec<Phase>,
    pub(crate) outage: Option<Outage>,
}

impl Scenario {
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let has_clocks = rng.f64() < 0.7;
        let board = Board::random(rng, has_clocks);
        let highest = board.clocks.len() - 1;
        let lowest = Setting { mode: 0, cap: if has_clocks { 0 } else { highest }, work: 0 };
        let top = Setting { mode: board.modes.len() - 1, cap: highest, work: board.works.len() - 1 };
        let phases = phases(rng);
        let hottest = phases.iter().map(|phase| phase.ambient).fold(f64::MIN, f64::max);
        let (cool, low) = board.steady(lowest, 1.0, hottest);
        let high = board.power(top, 1.0, 85.0);
        let low = low * 1.1;
        let power = low + rng.f64() * (high * 1.05 - low).max(0.0);
        let temperature = cool.max(50.0) + 7.0 + 25.0 * rng.f64();
        let trip = (temperature + 3.0).max(95.0);
        let limited = rng.usize(0..4);
        let limits = Limits {
            power: (limited != 0).then(|| Watts::from_f64(power)),
            temperature: (limited != 1).then(|| Celsius::from_f64(temperature)),
        };
        let middle = phases[0].rate.min(0.8);
        let target = board.p99(top, middle) * (1.3 + 3.0 * rng.f64());
        let target = (rng.f64() < 0.85).then(|| Duration::from_secs_f64(target));
        let full = |mode| board.power(Setting { mode, ..top }, 1.0, 85.0);
        let are_stated = !has_clocks || rng.f64() < 0.7;
        let modes = 0..board.modes.len();
        let ceilings = modes.clone().map(|mode| are_stated.then(|| full(mode).ceil())).collect();
        let scales = modes.map(|mode| full(mode) * (0.85 + 0.3 * rng.f64()));
        let mut scales: Vec<f64> = scales.collect();
        scales.sort_by(f64::total_cmp);
        let total: f64 = phases.iter().map(|phase| phase.seconds).sum();
        let outage = (rng.f64() < 0.15).then(|| {
            let from = total * rng.f64();
            Outage { from, to: from + 5.0 + 20.0 * rng.f64(), of_power: rng.bool() }
        });
        let mut scenario = Self { board, has_clocks, ceilings, scales, limits, trip, target, phases, outage };
        let feasible: Vec<bool> = scenario.phases.iter().map(|phase| scenario.is_feasible(phase)).collect();
        scenario.phases.iter_mut().zip(feasible).for_each(|(phase, is)| phase.is_feasible = is);
        scenario
    }

    /// Returns the temperature limit of the die: the wanted one, or the trip point less the margin.
    pub(crate) fn die_limit(&self) -> f64 {
        let wanted = self.limits.temperature.map_or(f64::MAX, Celsius::to_f64);
        wanted.min(self.trip - orinoco_governor::TRIP_MARGIN.to_f64())
    }

    /// Whether some setting holds the latency with 20 % slack, and the limits with 15 % of power and 9 degrees. Without clocks a
    /// mode must fit by its stated power, since nothing else tells what it may take.
    fn is_feasible(&self, phase: &Phase) -> bool {
        let Some(target) = self.target else { return false };
        self.board.settings(self.has_clocks).any(|setting| {
            let load = self.board.load(setting, phase.rate);
            let (die, power) = self.board.steady(setting, load, phase.ambient);
            let limit = self.limits.power.map_or(f64::MAX, Watts::to_f64);
            let stated = self.ceilings[setting.mode].filter(|_| !self.has_clocks);
            self.board.p99(setting, phase.rate) <= target.as_secs_f64() * 0.8
                && stated.unwrap_or(power / 0.85) <= limit
                && die <= self.die_limit() - 9.0
        })
    }
}

fn phases(rng: &mut Rng) -> Vec<Phase> {
    let mut ambient = 5.0 + 30.0 * rng.f64();
    (0..rng.usize(2..5))
        .map(|_| {
            ambient = (ambient - 15.0 + 30.0 * rng.f64()).clamp(-10.0, 50.0);
            let (seconds, rate) = (850.0 + 250.0 * rng.f64(), 0.05 + 0.9 * rng.f64());
            Phase { seconds, rate, ambient, is_feasible: false }
        })
        .collect()
}
