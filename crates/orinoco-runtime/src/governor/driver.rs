//! One tick: readings in, at most one step out, events for what an operator may count.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use orinoco_api::{Fault, GovernorStatus};
use orinoco_board::{GovernorSpec, Profile};
use orinoco_core::{Celsius, Choice, Diagnosis, Nanos, Watts, codes};
use orinoco_governor::{Direction, Governor, Inputs, Limits, Reason, State, Step};
use orinoco_helper::{PowerState, Request};
use orinoco_telemetry::{Event, EventSink};

use super::actuators::{Actuators, Target};
use super::helper::{Helper, HelperError};
use super::model_levels::{Choice as LevelChoice, ModelLevels};
use super::readings::{Readings, zones};
use crate::monitor::Monitor;
use crate::prepare::RunAction;

/// Name of the state in which nothing is governed.
const UNAVAILABLE: &str = "unavailable";

/// Time after a step that failed until the next one.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// Governor of a run, with the helper and the readings.
pub(super) struct Driver {
    spec: GovernorSpec,
    profile: Option<&'static Profile>,
    monitor: Monitor,
    events: Arc<dyn EventSink>,
    law: Governor,
    helper: Helper,
    /// Settings that the helper changes.
    hardware: Actuators,
    /// Whether the helper can change nothing now, because the kernel throttles.
    is_blocked: bool,
    model_levels: ModelLevels<TakenStep>,
    /// Settings that can be changed now: those of the helper, and levels of models.
    actuators: Actuators,
    readings: Readings,
    status: GovernorStatus,
    /// Time until which no step is taken, after one that failed.
    steps_from: Nanos,
    /// Fault that was reported last, by its code and cause, so that it is reported once.
    reported: Option<(&'static str, String)>,
    /// Whether it was reported what can be changed.
    is_ready: bool,
}

/// Returns the status of a governor that governs nothing.
pub(super) fn unavailable(spec: &GovernorSpec) -> GovernorStatus {
    GovernorStatus {
        state: UNAVAILABLE.to_owned(),
        power_watts: None,
        power_limit_watts: spec.power_limit.map(Watts::to_f64),
        temperature_limit_celsius: spec.temperature_limit.map(Celsius::to_f64),
        p99_target_ms: spec.p99.map(|p99| p99.as_secs_f64() * 1e3),
        actuators: Vec::new(),
        steps_up: 0,
        steps_down: 0,
        last_step: None,
        fault: None,
    }
}

/// Step that is being taken.
struct TakenStep {
    actuator: String,
    from: String,
    to: String,
    direction: Direction,
    why: String,
    /// Whether it is taken because readings are missing.
    is_blind: bool,
}

impl Driver {
    pub(super) fn new(
        spec: GovernorSpec,
        profile: Option<&'static Profile>,
        monitor: Monitor,
        events: Arc<dyn EventSink>,
        actions: Sender<RunAction>,
    ) -> Self {
        let limits = Limits { power: spec.power_limit, temperature: spec.temperature_limit };
        let status = unavailable(&spec);
        Self {
            helper: Helper::new(spec.helper.clone()),
            law: Governor::new(limits),
            spec,
            profile,
            monitor,
            events,
            hardware: Actuators::default(),
            is_blocked: false,
            model_levels: ModelLevels::new(actions),
            actuators: Actuators::default(),
            readings: Readings::default(),
            status,
            steps_from: Nanos(0),
            reported: None,
            is_ready: false,
        }
    }

    /// Reads, decides, and takes at most one step.
    pub(super) fn tick(&mut self, now: Nanos) {
        self.poll_helper(now);
        if let Some((step, answer)) = self.model_levels.answer(now) {
            self.model_level_answered(step, answer);
        }
        self.collect_actuators(now);
        if !self.is_ready && self.is_whole() {
            self.ready();
        }
        let inputs = self.inputs(now);
        let mut decision = self.law.tick(now, &inputs);
        if decision.state == State::Exhausted && self.model_levels.is_waiting() {
            decision.state = State::Limiting;
        }
        if self.is_whole() || !inputs.actuators.is_empty() {
            self.status.state = decision.state.name().to_owned();
            match decision.step.as_ref().filter(|_| now >= self.steps_from) {
                Some(step) => self.take(now, &inputs, step),
                None => self.judge(decision.state, &inputs),
            }
        }
        self.status.power_watts = inputs.power.map(Watts::to_f64);
        self.status.actuators = self.actuators.status();
        self.monitor.set_governor(self.status.clone());
    }

    /// Asks the helper for its state, if it is needed and that is due.
    fn poll_helper(&mut self, now: Nanos) {
        if !self.spec.needs_helper() {
            return;
        }
        let was_connected = self.helper.is_connected();
        match self.helper.poll(now) {
            Some(Ok(state)) => {
                self.take_state(&state);
                self.is_ready &= was_connected;
            }
            Some(Err(why)) => self.lose_helper(&why),
            None => {}
        }
    }

    /// Whether everything that changes settings is there.
    fn is_whole(&self) -> bool {
        (self.helper.is_connected() && !self.is_blocked) || !self.spec.needs_helper()
    }

    fn collect_actuators(&mut self, now: Nanos) {
        let board = self.monitor.directory().levels().to_vec();
        let models = self.model_levels.models(now, board, &self.spec.actuators);
        self.actuators = self.hardware.clone().with_models(&models);
    }

    fn inputs(&mut self, now: Nanos) -> Inputs {
        let latest = self.monitor.readings().latest();
        let monitor = self.monitor.clone();
        let latencies = self.spec.p99.map(|target| self.readings.latencies(now, &monitor, target));
        Inputs {
            read_at: latest.at,
            zones: zones(&latest),
            power: self.readings.power(&latest),
            latencies: latencies.unwrap_or_default(),
            load: self.readings.load(now, &monitor),
            actuators: self.actuators.all.clone(),
        }
    }

    fn take_state(&mut self, state: &PowerState) {
        self.is_blocked = state.blocked_by.is_some();
        self.hardware = match &state.blocked_by {
            None => Actuators::new(&self.spec, self.profile, state),
            Some(_) => Actuators::default(),
        };
        if let Some(device) = &state.blocked_by {
            let cause = format!(
                "the kernel is throttling ({device}), which hides the clock limits that are set, so they could not be restored later"
            );
            let next = "the governor changes nothing until the throttling ends; to help it end, cool the board or reduce its load";
            self.status.state = UNAVAILABLE.to_owned();
            self.is_ready = false;
            self.report(Diagnosis::new(&codes::GOVERNOR_STEP, "power settings", cause, next));
        }
    }

    /// Reports what can be changed.
    fn ready(&mut self) {
        self.is_ready = true;
        let levels = self.actuators.status().into_iter();
        let levels: Vec<String> =
            levels.map(|actuator| format!("{} at {}", actuator.name, actuator.level)).collect();
        self.recover();
        if levels.is_empty() {
            let next = "allow other actuators or modes in [governor]; `orinoco doctor --board FILE` shows what there is";
            let cause =
                "there is no power mode, clock, interval or model variant that the governor may change";
            self.report(Diagnosis::new(&codes::GOVERNOR_STEP, "[governor]", cause, next));
            return;
        }
        self.events.emit(Event::GovernorReady { actuators: levels.join(", ") });
    }

    fn lose_helper(&mut self, why: &HelperError) {
        self.hardware = Actuators::default();
        self.is_blocked = false;
        self.status.state = UNAVAILABLE.to_owned();
        self.report(self.helper.diagnosis(why));
    }

    /// Takes a step.
    fn take(&mut self, now: Nanos, inputs: &Inputs, step: &Step) {
        let actuator = &inputs.actuators[step.actuator];
        let taken = TakenStep {
            actuator: actuator.name.clone(),
            from: actuator.levels[actuator.current].name.clone(),
            to: actuator.levels[step.level].name.clone(),
            direction: step.direction,
            why: step.reason.to_string(),
            is_blind: matches!(step.reason, Reason::Blind(_)),
        };
        let request = match &self.actuators.targets[step.actuator] {
            Target::PowerMode(names) => Request::SetPowerMode { name: names[step.level].clone() },
            Target::Clock(domain, clocks) => {
                Request::SetClock { domain: domain.clone(), hertz: clocks[step.level] }
            }
            Target::Interval(model, intervals) => {
                let choice = LevelChoice::Interval(intervals[step.level]);
                return self.model_levels.choose(model, choice, taken);
            }
            Target::Variant(model, variants) => {
                let choice = LevelChoice::Variant(variants[step.level].clone());
                return self.model_levels.choose(model, choice, taken);
            }
        };
        match self.set(now, step, &request) {
            Ok(()) => {
                self.note_step(taken);
                if matches!(step.reason, Reason::Blind(_)) {
                    self.judge(State::Blind, inputs);
                }
            }
            Err(why @ HelperError::Refused { .. }) => {
                self.steps_from = now + RETRY_AFTER;
                self.report(self.helper.diagnosis(&why));
            }
            Err(why) => self.lose_helper(&why),
        }
        self.readings.restart_latencies();
    }

    /// Notes the end of a step that changes a level of a model.
    fn model_level_answered(&mut self, step: TakenStep, answer: Result<(), Diagnosis>) {
        match answer {
            Ok(()) => self.note_step(step),
            Err(why) => {
                let subject = format!("{} at {}: {}", step.actuator, step.to, why.subject);
                self.report(Diagnosis { code: &codes::GOVERNOR_STEP, subject, ..why });
            }
        }
        self.readings.restart_latencies();
    }

    /// Counts and reports a step that was taken.
    fn note_step(&mut self, step: TakenStep) {
        let TakenStep { actuator, from, to, direction, why, is_blind } = step;
        self.status.last_step = Some(format!("{actuator} from {from} to {to}, because {why}"));
        match direction {
            Direction::Up => self.status.steps_up += 1,
            Direction::Down => self.status.steps_down += 1,
        }
        self.events.emit(Event::GovernorStep { actuator, from, to, direction: direction.name(), why });
        if !is_blind {
            self.recover();
        }
    }

    /// Has the helper set a level. A power mode sets clocks of its own, so those that were set before, or lower ones, follow it.
    fn set(&mut self, now: Nanos, step: &Step, request: &Request) -> Result<(), HelperError> {
        let mut caps = self.actuators.caps();
        for (index, level) in &step.clocks {
            if let Target::Clock(domain, clocks) = &self.actuators.targets[*index] {
                caps.iter_mut().filter(|(known, _)| known == domain).for_each(|cap| cap.1 = clocks[*level]);
            }
        }
        let mut state = self.helper.ask(now, request)?;
        if matches!(request, Request::SetPowerMode { .. }) {
            for (domain, cap) in caps {
                state = self.cap(now, state, &domain, cap)?;
            }
        }
        self.take_state(&state);
        self.collect_actuators(now);
        Ok(())
    }

    /// Lowers a clock to the highest one up to `cap`, unless it is there already.
    fn cap(
        &mut self,
        now: Nanos,
        state: PowerState,
        domain: &str,
        cap: u64,
    ) -> Result<PowerState, HelperError> {
        let clock = state.clocks.iter().find(|clock| clock.domain == domain);
        let wanted = clock.and_then(|clock| {
            let wanted = *clock.available.iter().rfind(|hertz| **hertz <= cap)?;
            (wanted < clock.max).then_some(wanted)
        });
        let Some(hertz) = wanted else { return Ok(state) };
        self.helper.ask(now, &Request::SetClock { domain: domain.to_owned(), hertz })
    }

    /// Reports a state in which it cannot do what it is there for.
    fn judge(&mut self, state: State, inputs: &Inputs) {
        match state {
            State::Blind => {
                let power = self.spec.power_limit.is_some() && inputs.power.is_none();
                let cause = match power {
                    true => "the input power cannot be read",
                    false => "temperatures with a limit cannot be read",
                };
                let next =
                    "see `orinoco status` for the sensors that cannot be read, and `orinoco explain E0923`";
                self.report(Diagnosis::new(&codes::GOVERNOR_BLIND, "[governor]", cause, next));
            }
            State::Exhausted => {
                let cause = "a limit is exceeded at the lowest levels that it may set";
                let next = "allow it more modes or actuators, cool the board, or raise the limit";
                self.report(Diagnosis::new(&codes::GOVERNOR_LIMIT, "[governor]", cause, next));
            }
            State::Holding | State::Slow => self.recover(),
            State::Limiting => {}
        }
    }

    /// Reports a fault, unless it was reported already.
    fn report(&mut self, why: Diagnosis) {
        self.status.fault = Some(Fault::from(&why));
        let key = (why.code.id, why.cause.clone());
        if self.reported.as_ref() != Some(&key) {
            self.reported = Some(key);
            self.events.emit(Event::GovernorFault { why });
        }
    }

    /// Notes that there is no fault any more.
    fn recover(&mut self) {
        if !self.is_whole() || self.actuators.all.is_empty() {
            return;
        }
        self.reported = None;
        self.status.fault = None;
    }
}
