//! The control law.

use std::collections::BTreeMap;
use std::time::Duration;

use orinoco_core::{Nanos, Watts};

use crate::pressure::{Gauge, Pressure};
use crate::retry::Retries;
use crate::{
    Actuator, ActuatorKind, Decision, Direction, Inputs, Limits, Reason, State, Step, StreamLatency,
};

/// Time between two ticks.
pub const TICK: Duration = Duration::from_secs(1);
/// Shortest time between two changes of the power mode, by whomever: a change stops the board for a moment.
pub const MODE_DWELL: Duration = Duration::from_secs(10);
/// Time after a step until its effect is read: by the second tick after it.
const SETTLE: Duration = Duration::from_millis(1500);
/// Time after a step until latencies are judged, and the next step up is taken.
const EVIDENCE: Duration = Duration::from_secs(5);
/// Time without any pressure after which levels are raised that no latency asks for.
const CALM: Duration = Duration::from_secs(15);
/// Share of its target above which a latency counts as slow: the mode is raised before the target is missed.
const SLOW_RATIO: f64 = 0.95;
/// Share of its target to which a latency, and of the lanes' time to which the load, may grow by more work.
const WORK_RATIO: f64 = 0.85;
/// Load above which lower clocks would make frames wait.
const BUSY: f64 = 0.65;
/// The same for a lower power mode, whose steps are larger.
const BUSY_MODE: f64 = 0.5;
/// Load below which the board is expected to take twice the power under full load.
const LOAD_MIN: f64 = 0.5;
/// Factor of power at which one step aims while readings are missing.
const BLIND_CUT: f64 = 0.85;
/// Factor by which a step aims lower if the step before it, a moment ago, did not suffice.
const SECOND_CUT: f64 = 0.8;
/// Exponent with which the power changes at least with the scale of a clock: a part of it does not depend on the clock. A step
/// down counts on no more. A step up is tried on no less, because it is taken back within seconds.
const CLOCK_EXPONENT: f64 = 0.5;
/// Exponent with which the power grows with the scale of a mode while the clocks stay: what is left is cores and memory.
const GUARDED_EXPONENT: f64 = 0.4;
/// Exponent with which the heat grows with the scale of a mode: the idle power is a part of it that stays. A board that heats faster
/// is answered before its limit.
const MODE_HEAT_EXPONENT: f64 = 0.7;
/// Growth of the power for which a step up of a clock needs room at most. Steps of some boards are large, and a faster clock is
/// busy for less of the time.
const CLOCK_GROWTH_MAX: f64 = 1.1;

const _: () = assert!(SETTLE.as_nanos() < EVIDENCE.as_nanos() && EVIDENCE.as_nanos() < MODE_DWELL.as_nanos());

/// Governor of one board.
#[derive(Clone, Debug)]
pub struct Governor {
    limits: Limits,
    gauge: Gauge,
    retries: Retries,
    last_step: Option<Nanos>,
    /// Latest step down because of a limit.
    last_cut: Option<Nanos>,
    last_mode_change: Option<Nanos>,
    /// Name of the power mode at the last tick.
    mode: Option<String>,
    /// Level of each actuator that changes the work, by name, when it was seen last.
    works: BTreeMap<String, usize>,
    /// Start of the present time without pressure.
    calm_since: Option<Nanos>,
}

/// Latencies compared with their targets.
#[derive(Clone, Debug, PartialEq)]
enum Speed<'a> {
    /// No stream has a target.
    Unasked,
    /// This stream is, or is about to be, slower than wanted.
    Slow(&'a StreamLatency),
    /// All are fast enough; the slowest takes this share of its target.
    Fast(f64),
    /// Too few frames came to tell.
    Unknown,
}

/// Index of the power modes in the inputs, the actuator, its level, and clocks with their levels.
type HigherMode<'a> = (usize, &'a Actuator, usize, Vec<(usize, usize)>);

impl Governor {
    /// Creates the governor of a board.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            gauge: Gauge::default(),
            retries: Retries::default(),
            last_step: None,
            last_cut: None,
            last_mode_change: None,
            mode: None,
            works: BTreeMap::new(),
            calm_since: None,
        }
    }

    /// Decides what to do at `now`. It is called once in [`TICK`]; a step that it returns is taken before the next call, or the
    /// inputs of that call show that it was not. An actuator whose step takes longer is left out of the inputs meanwhile.
    pub fn tick(&mut self, now: Nanos, inputs: &Inputs) -> Decision {
        self.note_mode(now, inputs);
        self.note_works(now, inputs);
        self.gauge.add(now, inputs);
        let pressure = self.gauge.pressure(now, inputs, &self.limits);
        let (state, step) = match pressure {
            Pressure::Blind(missing) => self.blind(now, inputs, Reason::Blind(missing)),
            Pressure::Over { reason, cut } => self.over(now, inputs, reason, cut),
            Pressure::Under { room } => self.under(now, inputs, room),
        };
        if let Some(step) = &step {
            self.stepped(now, inputs, step);
        }
        Decision { state, step }
    }

    /// Notes a change of the power mode, by a step or by somebody else: the dwell counts from the time at which it is seen.
    fn note_mode(&mut self, now: Nanos, inputs: &Inputs) {
        let modes = inputs.actuators.iter().find(|actuator| actuator.kind == ActuatorKind::PowerMode);
        let mode = modes.and_then(|modes| Some(modes.levels.get(modes.current)?.name.clone()));
        if self.mode.is_some() && mode.is_some() && self.mode != mode {
            self.last_mode_change = Some(now);
        }
        self.mode = mode.or(self.mode.take());
    }

    /// Notes changes of the work. Another model takes a while to load, and is not among the inputs meanwhile: what is measured
    /// counts from the change on.
    fn note_works(&mut self, now: Nanos, inputs: &Inputs) {
        for work in inputs.actuators.iter().filter(|actuator| !actuator.kind.is_speed()) {
            let before = self.works.insert(work.name.clone(), work.current);
            if before.is_some_and(|before| before != work.current) {
                self.last_step = Some(now);
                self.gauge.restart();
            }
        }
    }

    /// Lowers everything, step by step, until the readings are back.
    fn blind(&mut self, now: Nanos, inputs: &Inputs, reason: Reason) -> (State, Option<Step>) {
        self.calm_since = None;
        let step = self.down(now, inputs, reason, BLIND_CUT, false);
        if step.is_some() {
            self.retries.failed(now);
        }
        (State::Blind, step)
    }

    fn over(&mut self, now: Nanos, inputs: &Inputs, reason: Reason, cut: f64) -> (State, Option<Step>) {
        self.calm_since = None;
        let is_slow = match speed(inputs) {
            Speed::Slow(_) => true,
            Speed::Fast(_) => {
                let has_clocks =
                    of_kind(inputs, ActuatorKind::Clock).any(|(_, clock)| clock.lower().is_some());
                inputs.load.is_some_and(|load| load > if has_clocks { BUSY } else { BUSY_MODE })
            }
            Speed::Unasked | Speed::Unknown => false,
        };
        let is_lowest = inputs.actuators.iter().all(|actuator| actuator.lower().is_none());
        // A step that did not suffice did less than expected, and so would the next.
        let is_second = !has_passed(now, self.last_cut, EVIDENCE);
        let cut = if is_second && cut < 1.0 { cut * SECOND_CUT } else { cut };
        let step = self.down(now, inputs, reason, cut, is_slow);
        if step.is_some() {
            self.last_cut = Some(now);
            self.retries.failed(now);
        }
        (if is_lowest { State::Exhausted } else { State::Limiting }, step)
    }

    fn under(&mut self, now: Nanos, inputs: &Inputs, room: f64) -> (State, Option<Step>) {
        let calm_since = *self.calm_since.get_or_insert(now);
        let is_calm = now.since(calm_since) >= CALM && has_passed(now, self.last_step, CALM);
        let may_judge = has_passed(now, self.last_step, EVIDENCE);
        match speed(inputs) {
            Speed::Slow(slow) if may_judge => {
                let step = self
                    .faster(now, inputs, room, Some(slow))
                    .or_else(|| less_work(inputs, latency_reason(slow)));
                (if step.is_some() { State::Holding } else { State::Slow }, step)
            }
            Speed::Slow(_) => (State::Holding, None),
            Speed::Fast(share) if is_calm => (State::Holding, self.more_work(now, inputs, room, share)),
            Speed::Unasked if is_calm => {
                let more = self.more_work(now, inputs, room, 0.0);
                (State::Holding, more.or_else(|| self.faster(now, inputs, room, None)))
            }
            Speed::Fast(_) | Speed::Unasked | Speed::Unknown => (State::Holding, None),
        }
    }

    /// Returns the step that lowers the power: clocks first, because they change at once, then the power mode, then the work. A
    /// board that is too slow already, or would be, does less work first.
    fn down(&self, now: Nanos, inputs: &Inputs, reason: Reason, cut: f64, is_slow: bool) -> Option<Step> {
        if !has_passed(now, self.last_step, SETTLE) {
            return None;
        }
        let work = || less_work(inputs, reason.clone());
        let clocks = || {
            let clocks = of_kind(inputs, ActuatorKind::Clock).filter(|(_, clock)| clock.lower().is_some());
            let highest = clocks.max_by(|(_, one), (_, other)| one.height().total_cmp(&other.height()));
            highest.map(|(index, clock)| step_down(index, fitting(clock, cut), reason.clone()))
        };
        let mode = || {
            let mut modes = of_kind(inputs, ActuatorKind::PowerMode).filter(|_| self.may_change_mode(now));
            let (index, lower) = modes.find_map(|(index, modes)| Some((index, modes.lower()?)))?;
            Some(step_down(index, lower, reason.clone()))
        };
        let first = if is_slow { work() } else { None };
        first.or_else(clocks).or_else(mode).or_else(work)
    }

    /// Returns the step that makes inferences faster, if one fits under the limits; for the `slow` stream, if there is one.
    fn faster(
        &mut self,
        now: Nanos,
        inputs: &Inputs,
        room: f64,
        slow: Option<&StreamLatency>,
    ) -> Option<Step> {
        if !has_passed(now, self.last_step, EVIDENCE) {
            return None;
        }
        let fits = |clock: &Actuator, level: usize| {
            clock.ratio_to(level).powf(CLOCK_EXPONENT).min(CLOCK_GROWTH_MAX) <= room
        };
        let clocks = of_kind(inputs, ActuatorKind::Clock).filter_map(|(index, clock)| {
            let level = clock.higher().filter(|level| fits(clock, *level))?;
            self.retries.allows(now, &clock.name, level, room).then_some((index, clock, level))
        });
        let clock = clocks.min_by(|one, other| one.1.height().total_cmp(&other.1.height()));
        let clock = clock.map(|(index, clock, level)| (index, clock, level, Vec::new()));
        let (index, actuator, level, clocks) = clock.or_else(|| {
            let mode = self.higher_mode(now, inputs, room)?;
            let is_missed = slow.and_then(StreamLatency::ratio).is_some_and(|ratio| ratio >= 1.0);
            (mode.3.is_empty() || is_missed).then_some(mode)
        })?;
        let reason = slow.map_or(Reason::Room, latency_reason);
        self.retries.stepped_up(now, &actuator.name, level, room);
        Some(Step { actuator: index, level, clocks, direction: Direction::Up, reason })
    }

    /// Returns the next higher power mode that fits under the limits, with the clocks to lower with it.
    fn higher_mode<'a>(&self, now: Nanos, inputs: &'a Inputs, room: f64) -> Option<HigherMode<'a>> {
        let (index, modes) =
            of_kind(inputs, ActuatorKind::PowerMode).find(|_| self.may_change_mode(now) && room >= 1.0)?;
        let level = modes.higher().filter(|level| self.retries.allows(now, &modes.name, *level, room))?;
        let clocks = match modes.is_guarded {
            true => lowered(inputs, room / modes.ratio_to(level).powf(GUARDED_EXPONENT))?,
            false => self.mode_fits(inputs, modes, level, room).then(Vec::new)?,
        };
        Some((index, modes, level, clocks))
    }

    /// Whether a power mode is expected to stay under the limits. A mode whose greatest power is known and within the limit
    /// always does as far as power goes; the load of any other may still rise.
    fn mode_fits(&self, inputs: &Inputs, modes: &Actuator, level: usize, room: f64) -> bool {
        let is_within = |ceiling: Watts| self.limits.power.is_none_or(|limit| ceiling <= limit);
        let is_bounded = modes.levels[level].ceiling.is_some_and(is_within);
        let growth = modes.ratio_to(level);
        if is_bounded {
            // Heat is what is left to compare, and that of the last minutes is in the room already.
            return room >= 1.0 && self.limits_heat_only(inputs, growth.powf(MODE_HEAT_EXPONENT));
        }
        let full = 1.0 / inputs.load.unwrap_or(LOAD_MIN).clamp(LOAD_MIN, 1.0);
        growth * full <= room
    }

    /// Whether a growth of the power fits under the limits of temperature alone.
    fn limits_heat_only(&self, inputs: &Inputs, growth: f64) -> bool {
        let heat_only = Limits { power: None, ..self.limits };
        // The time is that of the readings, so that none is missing.
        let now = inputs.read_at.unwrap_or_default();
        match self.gauge.pressure(now, inputs, &heat_only) {
            Pressure::Under { room } => growth <= room,
            Pressure::Over { .. } | Pressure::Blind(_) => false,
        }
    }

    /// Returns the step that infers more of the frames, or with a larger model, if power and latency leave room for it.
    fn more_work(&mut self, now: Nanos, inputs: &Inputs, room: f64, share: f64) -> Option<Step> {
        let works = inputs.actuators.iter().enumerate().filter(|(_, actuator)| !actuator.kind.is_speed());
        let higher = works.filter_map(|(index, work)| Some((index, work, work.higher()?)));
        let mut fitting = higher.filter(|(_, work, level)| {
            let growth = work.ratio_to(*level);
            growth <= room
                && share * growth <= WORK_RATIO
                && inputs.load.is_none_or(|load| load * growth <= WORK_RATIO)
                && self.retries.allows(now, &work.name, *level, room)
        });
        let (index, work, level) = fitting.next()?;
        self.retries.stepped_up(now, &work.name, level, room);
        Some(Step {
            actuator: index,
            level,
            clocks: Vec::new(),
            direction: Direction::Up,
            reason: Reason::Room,
        })
    }

    fn stepped(&mut self, now: Nanos, inputs: &Inputs, step: &Step) {
        let actuator = &inputs.actuators[step.actuator];
        self.last_step = Some(now);
        if actuator.kind == ActuatorKind::PowerMode {
            self.last_mode_change = Some(now);
        }
        self.gauge.restart();
    }

    fn may_change_mode(&self, now: Nanos) -> bool {
        has_passed(now, self.last_mode_change, MODE_DWELL)
    }
}

fn has_passed(now: Nanos, since: Option<Nanos>, time: Duration) -> bool {
    since.is_none_or(|since| now.since(since) >= time)
}

fn of_kind(inputs: &Inputs, kind: ActuatorKind) -> impl Iterator<Item = (usize, &Actuator)> {
    inputs.actuators.iter().enumerate().filter(move |(_, actuator)| actuator.kind == kind)
}

fn speed(inputs: &Inputs) -> Speed<'_> {
    let known = inputs.latencies.iter().filter_map(|latency| Some((latency.ratio()?, latency)));
    let slowest = known.max_by(|(one, _), (other, _)| one.total_cmp(other));
    match slowest {
        Some((ratio, latency)) if ratio > SLOW_RATIO => Speed::Slow(latency),
        Some((ratio, _)) => Speed::Fast(ratio),
        None if inputs.latencies.is_empty() => Speed::Unasked,
        None => Speed::Unknown,
    }
}

fn latency_reason(slow: &StreamLatency) -> Reason {
    let p99 = slow.p99.expect("a slow stream has a latency");
    Reason::Latency { stream: slow.stream.clone(), p99, target: slow.target }
}

/// Returns the step that infers fewer of the frames, or with a smaller model.
fn less_work(inputs: &Inputs, reason: Reason) -> Option<Step> {
    let mut works = inputs.actuators.iter().enumerate().filter(|(_, actuator)| !actuator.kind.is_speed());
    let (index, lower) = works.find_map(|(index, work)| Some((index, work.lower()?)))?;
    Some(step_down(index, lower, reason))
}

fn step_down(actuator: usize, level: usize, reason: Reason) -> Step {
    Step { actuator, level, clocks: Vec::new(), direction: Direction::Down, reason }
}

/// Returns the clocks to lower so that the power falls to `cut` of what it is, with their levels; none where `cut` is 1 or more,
/// and `None` if the lowest levels do not suffice.
fn lowered(inputs: &Inputs, cut: f64) -> Option<Vec<(usize, usize)>> {
    if cut >= 1.0 {
        return Some(Vec::new());
    }
    let clocks = of_kind(inputs, ActuatorKind::Clock).map(|(index, clock)| {
        let level = fitting(clock, cut);
        (clock.ratio_to(level).powf(CLOCK_EXPONENT) <= cut).then_some((index, level))
    });
    clocks.collect()
}

/// Returns the highest lower level of a clock at which the power is expected to fall to `cut` of what it is; the lowest if none
/// is expected to.
fn fitting(clock: &Actuator, cut: f64) -> usize {
    let lower = (0..clock.current).rev();
    lower.into_iter().find(|level| clock.ratio_to(*level).powf(CLOCK_EXPONENT) <= cut).unwrap_or(0)
}

#[cfg(test)]
mod tests;
