//! Runs the governor on a simulated board, and checks what must hold.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use orinoco_core::{Celsius, Choice, Nanos, Watts};
use orinoco_governor::{
    Actuator, ActuatorKind, Decision, Direction, Governor, Inputs, Level, MODE_DWELL, StreamLatency, Zone,
};
use orinoco_sim::Simulator;

use crate::board::{Heat, STEP_S, Setting};
use crate::scenario::{Phase, Scenario};

/// Time over which the mean of the power must be within its limit, in seconds.
const MEAN_S: f64 = 60.0;
/// Multiple of the power limit that counts as an excess: what noise hides is left to the mean.
const EXCESS: f64 = 1.05;
/// Longest time of an excess at a stretch, in seconds: a reading, a step, and its correction.
const EXCESS_S: f64 = 8.0;
/// The same on a board on which only power modes can be set, which change once in 10 s.
const EXCESS_MODES_S: f64 = 16.0;
/// Longest time for which a latency may be missed at a stretch, in seconds: a limit may cost a step, whose effect on the latency is
/// judged after 5 s.
const MISSED_S: f64 = 10.0;
/// Time after a change of load or ambient in which the latency may be missed, in seconds, without that of the heat sink.
const SETTLE_S: f64 = 200.0;
/// Time after an outage of a sensor in which the latency may be missed, in seconds.
const AFTER_OUTAGE_S: f64 = 200.0;

/// Simulated time of a run.
struct Run<'a> {
    scenario: &'a Scenario,
    checked: &'a Checked,
    governor: Governor,
    heat: Heat,
    setting: Setting,
    /// Setting that takes effect at a time, in seconds.
    pending: Option<(f64, Setting)>,
    time: f64,
    /// Begin of the phase.
    begin: f64,
    /// Powers of the last [`MEAN_S`].
    powers: VecDeque<f64>,
    excess_s: f64,
    last_mode_change: Option<f64>,
    last_step: f64,
    /// Begin of the time in which the latency is missed.
    missed_since: Option<f64>,
    /// Inputs of the last tick, whose memory is used again.
    inputs: Inputs,
}

/// Seconds that were simulated, and those in which a latency had to hold.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    pub(crate) seconds: AtomicU64,
    pub(crate) latency_seconds: AtomicU64,
    /// Those of them in which it was missed.
    pub(crate) missed_seconds: AtomicU64,
    pub(crate) steps: AtomicU64,
}

/// Runs one board through its phases.
pub(crate) fn check(simulator: &mut Simulator, checked: &Checked) {
    let scenario = Scenario::random(simulator.rng());
    let (modes, works) = (scenario.board.modes.len(), scenario.board.works.len());
    let rng = simulator.rng();
    // A board may start in any mode, but not above its limits: it was off.
    let setting =
        Setting { mode: rng.usize(0..modes), cap: scenario.board.clocks.len() - 1, work: works - 1 };
    let ambient = scenario.phases[0].ambient;
    let setting = if scenario.has_clocks { setting } else { Setting { mode: 0, ..setting } };
    let mut run = Run {
        governor: Governor::new(scenario.limits),
        scenario: &scenario,
        checked,
        heat: Heat { die: ambient, sink: ambient },
        setting,
        pending: None,
        time: 0.0,
        begin: 0.0,
        powers: VecDeque::new(),
        excess_s: 0.0,
        last_mode_change: None,
        last_step: -1e9,
        missed_since: None,
        inputs: Inputs { actuators: actuators(&scenario), zones: zones(scenario.trip), ..Inputs::default() },
    };
    let ticker = simulator.add_task();
    for phase in &scenario.phases {
        run.phase(phase, simulator, ticker);
    }
}

impl Run<'_> {
    fn phase(&mut self, phase: &Phase, simulator: &mut Simulator, ticker: orinoco_sim::Task) {
        self.begin = self.time;
        let end = self.time + phase.seconds;
        while self.time < end {
            let due = simulator.next(Nanos(u64::MAX));
            assert!(due == Some(ticker), "the ticker is the only task");
            self.live_until(simulator.now().0 as f64 / 1e9, phase);
            let inputs = self.read(simulator, phase);
            let decision = self.governor.tick(simulator.now(), &inputs);
            simulator.note(|| self.line(&inputs, &decision));
            let busy = self.take(simulator, &inputs, &decision);
            self.check_latency(phase, &inputs);
            self.inputs = inputs;
            let jitter = Duration::from_millis(simulator.rng().u64(0..60));
            let next = simulator.now() + Duration::from_millis(970) + jitter + Duration::from_secs_f64(busy);
            simulator.work(ticker, next);
        }
    }

    /// Lets the board live until a time.
    fn live_until(&mut self, until: f64, phase: &Phase) {
        while self.time < until {
            self.time += STEP_S;
            if let Some((_, setting)) = self.pending.take_if(|(at, _)| *at <= self.time) {
                self.change(setting);
            }
            let load = self.scenario.board.load(self.setting, phase.rate);
            let power = self.scenario.board.power(self.setting, load, self.heat.die);
            self.heat = self.scenario.board.heat(self.heat, power, phase.ambient);
            self.check_limits(power);
        }
    }

    fn change(&mut self, setting: Setting) {
        if setting.mode != self.setting.mode {
            let since = self.last_mode_change.map_or(f64::MAX, |last| self.time - last);
            let least = MODE_DWELL.as_secs_f64() - STEP_S;
            assert!(since >= least, "the mode changed twice within {since:.1} s, at {:.1} s", self.time);
            self.last_mode_change = Some(self.time);
        }
        self.setting = setting;
    }

    fn check_limits(&mut self, power: f64) {
        let (limit, die) = (self.scenario.die_limit(), self.heat.die);
        assert!(die <= limit, "{die:.1} degrees are above {limit:.1}, at {:.1} s", self.time);
        let Some(limit) = self.scenario.limits.power.map(Watts::to_f64) else { return };
        self.powers.push_back(power);
        if self.powers.len() as f64 * STEP_S > MEAN_S {
            self.powers.pop_front();
        }
        // A sudden load is seen when it is there: until the governor has answered it, only the bound on the excess holds.
        if self.powers.len() as f64 * STEP_S >= MEAN_S && self.time > self.begin + MEAN_S + self.answer_s() {
            let mean = self.powers.iter().sum::<f64>() / self.powers.len() as f64;
            assert!(mean <= limit, "{mean:.2} W over a minute are above {limit:.2} W, at {:.1} s", self.time);
        }
        self.excess_s = if power > limit * EXCESS { self.excess_s + STEP_S } else { 0.0 };
        let most = self.answer_s() + self.outage(self.time).map_or(0.0, |_| EXCESS_MODES_S);
        assert!(
            self.excess_s <= most,
            "{power:.2} W for {most} s, above {limit:.2} W, at {:.1} s",
            self.time
        );
    }

    /// Returns the longest time until a sudden load is answered, in seconds.
    fn answer_s(&self) -> f64 {
        if self.scenario.has_clocks { EXCESS_S } else { EXCESS_MODES_S }
    }

    fn outage(&self, time: f64) -> Option<bool> {
        let outage = self.scenario.outage?;
        (outage.from <= time && time < outage.to + 10.0).then_some(outage.of_power)
    }

    /// Checks that the latency holds once the board has settled, if a setting is known that holds it.
    fn check_latency(&mut self, phase: &Phase, inputs: &Inputs) {
        let settle = SETTLE_S + 3.0 * self.scenario.board.sink_seconds();
        let outage = self.scenario.outage;
        let is_disturbed =
            outage.is_some_and(|outage| outage.from <= self.time && self.time < outage.to + AFTER_OUTAGE_S);
        if !phase.is_feasible || is_disturbed || self.time < self.begin + settle {
            self.missed_since = None;
            return;
        }
        let Some(latency) = inputs.latencies.first() else { return };
        self.checked.latency_seconds.fetch_add(1, Ordering::Relaxed);
        let p99 = self.scenario.board.p99(self.setting, phase.rate);
        let target = latency.target.as_secs_f64();
        if p99 <= target {
            self.missed_since = None;
            return;
        }
        self.checked.missed_seconds.fetch_add(1, Ordering::Relaxed);
        let missed_s = self.time - *self.missed_since.get_or_insert(self.time);
        assert!(
            missed_s <= MISSED_S,
            "p99 {:.1} ms has been above {:.1} ms for {missed_s:.1} s at {:.1} s, with {:?}",
            p99 * 1e3,
            target * 1e3,
            self.time,
            self.setting
        );
    }

    /// Makes the readings, with noise and gaps.
    fn read(&mut self, simulator: &mut Simulator, phase: &Phase) -> Inputs {
        let (board, outage) = (&self.scenario.board, self.outage(self.time));
        let load = board.load(self.setting, phase.rate);
        let rng = simulator.rng();
        let mut noise = |share: f64| 1.0 + share * (rng.f64() + rng.f64() - 1.0);
        let power = self.mean_power(phase) * noise(0.02);
        let p99 = board.p99(self.setting, phase.rate) * noise(0.03);
        let gap = rng.f64() < 0.02;
        let is_hidden = |of_power: bool| gap || outage == Some(of_power);
        let mut inputs = std::mem::take(&mut self.inputs);
        // Sensors of Jetsons have steps of up to half a degree.
        let die = (self.heat.die * 2.0).floor() / 2.0;
        for (zone, celsius) in inputs.zones.iter_mut().zip([die, die - 1.5]) {
            zone.temperature = Some(Celsius::from_f64(celsius)).filter(|_| !is_hidden(false));
        }
        inputs.read_at = Some(simulator.now());
        inputs.power = Some(Watts::from_f64(power)).filter(|_| !is_hidden(true));
        inputs.load = Some(load);
        inputs.latencies.clear();
        inputs.latencies.extend(self.scenario.target.map(|target| StreamLatency {
            stream: "gate".to_owned(),
            p99: (self.time - self.last_step > 3.0).then(|| Duration::from_secs_f64(p99)),
            target,
        }));
        self.set_levels(&mut inputs.actuators);
        inputs
    }

    /// Returns the mean power of the last second.
    fn mean_power(&self, phase: &Phase) -> f64 {
        let recent = self.powers.iter().rev().take((1.0 / STEP_S) as usize);
        let (sum, count) = recent.fold((0.0, 0), |(sum, count), power| (sum + power, count + 1));
        match count {
            0 => {
                let load = self.scenario.board.load(self.setting, phase.rate);
                self.scenario.board.power(self.setting, load, self.heat.die)
            }
            count => sum / f64::from(count),
        }
    }

    /// Tells the governor what is set. A mode bounds the clocks that can be chosen.
    fn set_levels(&self, actuators: &mut [Actuator]) {
        let top = self.scenario.board.modes[self.setting.mode].top;
        for actuator in actuators {
            match actuator.kind {
                ActuatorKind::PowerMode => actuator.current = self.setting.mode,
                ActuatorKind::Clock => {
                    let clocks = &self.scenario.board.clocks;
                    actuator.levels.truncate(top + 1);
                    let missing = clocks.iter().take(top + 1).skip(actuator.levels.len());
                    let missing: Vec<Level> = missing.map(clock_level).collect();
                    actuator.levels.extend(missing);
                    actuator.current = self.setting.cap.min(top);
                }
                ActuatorKind::Interval | ActuatorKind::ModelVariant => actuator.current = self.setting.work,
            }
        }
    }

    /// Takes the step. Returns the time for which that keeps the governor busy, in seconds.
    fn take(&mut self, simulator: &mut Simulator, inputs: &Inputs, decision: &Decision) -> f64 {
        self.checked.seconds.fetch_add(1, Ordering::Relaxed);
        let Some(step) = &decision.step else { return 0.0 };
        self.checked.steps.fetch_add(1, Ordering::Relaxed);
        let actuator = &inputs.actuators[step.actuator];
        assert_eq!(step.direction == Direction::Up, step.level > actuator.current, "{step:?}");
        let mut setting = self.setting;
        let mut busy = 0.0;
        match actuator.kind {
            ActuatorKind::PowerMode => {
                // A mode keeps the cap of the clock, so that a higher one takes little more power by itself.
                setting.cap = setting.cap.min(self.scenario.board.modes[setting.mode].top);
                if !self.scenario.has_clocks {
                    setting.cap = self.setting.cap;
                }
                if let [(_, level)] = step.clocks[..] {
                    setting.cap = level;
                }
                setting.mode = step.level;
                busy = 0.2 + 1.5 * simulator.rng().f64();
            }
            ActuatorKind::Clock => setting.cap = step.level,
            ActuatorKind::Interval | ActuatorKind::ModelVariant => setting.work = step.level,
        }
        self.last_step = self.time + busy;
        self.pending = Some((self.time + busy, setting));
        busy
    }

    fn line(&self, inputs: &Inputs, decision: &Decision) -> String {
        let power = inputs.power.map_or("-".to_owned(), |power| power.to_string());
        let step = decision.step.as_ref().map(|step| format!("{step:?}")).unwrap_or_default();
        let p99 = inputs.latencies.first().and_then(|latency| Some((latency.p99?, latency.target)));
        format!("{power} die {:.1} {:?} {p99:?} {:?} {step}", self.heat.die, self.setting, decision.state)
    }
}

fn zones(trip: f64) -> Vec<Zone> {
    // The last one is of a part that is switched off.
    let zone = |name: &str| Zone {
        name: name.to_owned(),
        temperature: None,
        throttle_at: Some(Celsius::from_f64(trip)),
    };
    ["tj", "cpu", "cv0"].map(zone).into()
}

fn actuators(scenario: &Scenario) -> Vec<Actuator> {
    let modes = scenario.scales.iter().zip(&scenario.ceilings).enumerate();
    let modes = modes.map(|(mode, (scale, ceiling))| Level {
        name: format!("mode {mode}"),
        scale: *scale,
        ceiling: ceiling.map(Watts::from_f64),
    });
    let works = scenario.board.works.iter();
    let works = works.map(|work| Level { name: format!("work {work}"), scale: *work, ceiling: None });
    let ladder = |kind: ActuatorKind, levels: Vec<Level>| Actuator {
        kind,
        name: kind.name().to_owned(),
        levels,
        current: 0,
        is_guarded: kind == ActuatorKind::PowerMode && scenario.has_clocks,
    };
    let mut all = vec![ladder(ActuatorKind::PowerMode, modes.collect())];
    if scenario.has_clocks {
        all.push(ladder(ActuatorKind::Clock, Vec::new()));
    }
    all.push(ladder(ActuatorKind::Interval, works.collect()));
    all
}

fn clock_level(clock: &f64) -> Level {
    Level { name: format!("{clock:.2}"), scale: clock.powf(1.5), ceiling: None }
}
