//! Settings of a board as the control law sees them.

use orinoco_api::ActuatorStatus;
use orinoco_board::{BoardModel, GovernorActuator, GovernorSpec, Profile};
use orinoco_core::Watts;
use orinoco_governor::{Actuator, ActuatorKind, Level};
use orinoco_helper::{ClockState, PowerState};

/// Power of a mode without a budget (`MAXN`), relative to the greatest budget of the others.
const UNLIMITED: f64 = 1.5;
/// Exponent with which the power grows with a clock, as voltage rises with it.
const CLOCK_EXPONENT: f64 = 1.5;
/// Power of a model's variant, relative to that of the next lighter one. Nothing is known of either before they run, and a wrong
/// estimate costs a step that is taken back.
const VARIANT_GROWTH: f64 = 2.0;

/// Settings that can be changed, and their levels.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Actuators {
    /// For the control law, in the order of `targets`.
    pub(super) all: Vec<Actuator>,
    /// Levels of each actuator, as whoever sets them names them.
    pub(super) targets: Vec<Target>,
}

/// Setting with its levels, as whoever sets it names them.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Target {
    /// Names of power modes.
    PowerMode(Vec<String>),
    /// Domain, and its clocks in hertz.
    Clock(String, Vec<u64>),
    /// Name of a model, and its inference intervals.
    Interval(String, Vec<u32>),
    /// Name of a model, and its variants.
    Variant(String, Vec<String>),
}

impl Actuators {
    /// Makes the actuators that the board file allows of what the helper can set.
    pub(super) fn new(spec: &GovernorSpec, profile: Option<&Profile>, state: &PowerState) -> Self {
        let mut actuators = Self::default();
        let has = |actuator| spec.actuators.contains(&actuator);
        let governs = |clock: &&ClockState| match clock.domain.starts_with("devfreq/") {
            true => has(GovernorActuator::GpuClock),
            false => has(GovernorActuator::CpuClock),
        };
        let clocks: Vec<&ClockState> = state.clocks.iter().filter(governs).collect();
        if has(GovernorActuator::PowerMode) {
            actuators.add_modes(spec, profile, state);
        }
        clocks.into_iter().for_each(|clock| actuators.add_clock(clock));
        let has_clocks = actuators.all.iter().any(|actuator| actuator.kind == ActuatorKind::Clock);
        let modes = actuators.all.iter_mut().filter(|actuator| actuator.kind == ActuatorKind::PowerMode);
        modes.for_each(|modes| modes.is_guarded = has_clocks);
        actuators
    }

    /// Adds the power modes, if there are several to choose from.
    fn add_modes(&mut self, spec: &GovernorSpec, profile: Option<&Profile>, state: &PowerState) {
        let is_allowed = |name: &String| spec.modes.as_ref().is_none_or(|modes| modes.contains(name));
        let modes = state.power_modes.iter();
        let usable = modes.filter(|mode| mode.is_current || (mode.can_be_set && is_allowed(&mode.name)));
        let mut usable: Vec<(&str, bool, Option<f64>)> =
            usable.map(|mode| (mode.name.as_str(), mode.is_current, budget(&mode.name, profile))).collect();
        let greatest = usable.iter().filter_map(|(.., budget)| *budget).fold(10.0, f64::max);
        usable.sort_by(|one, other| one.2.unwrap_or(f64::MAX).total_cmp(&other.2.unwrap_or(f64::MAX)));
        let Some(current) = usable.iter().position(|(_, is_current, _)| *is_current) else { return };
        let levels = usable.iter().map(|(name, _, budget)| Level {
            name: (*name).to_owned(),
            scale: budget.unwrap_or(greatest * UNLIMITED),
            ceiling: budget.map(Watts::from_f64),
        });
        let (kind, name) = (ActuatorKind::PowerMode, GovernorActuator::PowerMode);
        let name = orinoco_core::Choice::name(name).to_owned();
        self.all.push(Actuator { kind, name, levels: levels.collect(), current, is_guarded: false });
        let names = usable.iter().map(|(name, ..)| (*name).to_owned()).collect();
        self.targets.push(Target::PowerMode(names));
    }

    fn add_clock(&mut self, clock: &ClockState) {
        // A cap between two clocks of the list is at the lower one.
        let Some(current) = clock.available.iter().rposition(|hertz| *hertz <= clock.max) else { return };
        let levels = clock.available.iter().map(|hertz| Level {
            name: format!("{} MHz", hertz / 1_000_000),
            scale: (*hertz as f64 / 1e6).powf(CLOCK_EXPONENT),
            ceiling: None,
        });
        let (kind, name, levels) = (ActuatorKind::Clock, clock.domain.clone(), levels.collect());
        self.all.push(Actuator { kind, name, levels, current, is_guarded: false });
        self.targets.push(Target::Clock(clock.domain.clone(), clock.available.clone()));
    }

    /// Returns these actuators and the levels of models. Intervals come before variants, because they change at once.
    pub(super) fn with_models(mut self, models: &[BoardModel]) -> Self {
        models.iter().for_each(|model| self.add_intervals(model));
        models.iter().for_each(|model| self.add_variants(model));
        self
    }

    fn add_intervals(&mut self, model: &BoardModel) {
        // The law's levels rise with the power.
        let intervals: Vec<u32> = model.levels.intervals.iter().rev().copied().collect();
        let Some(current) = intervals.iter().position(|interval| *interval == model.interval) else { return };
        let levels = intervals.iter().map(|interval| Level {
            name: interval.to_string(),
            scale: 1.0 / f64::from(*interval),
            ceiling: None,
        });
        let (kind, name) = (ActuatorKind::Interval, format!("interval/{}", model.name));
        self.all.push(Actuator { kind, name, levels: levels.collect(), current, is_guarded: false });
        self.targets.push(Target::Interval(model.name.clone(), intervals));
    }

    fn add_variants(&mut self, model: &BoardModel) {
        let variants: Vec<String> = model.levels.variants.iter().rev().cloned().collect();
        let Some(current) = variants.iter().position(|variant| *variant == model.model) else { return };
        let levels = variants.iter().zip(0..).map(|(variant, step)| Level {
            name: variant.clone(),
            scale: VARIANT_GROWTH.powi(step),
            ceiling: None,
        });
        let (kind, name) = (ActuatorKind::ModelVariant, format!("model-variant/{}", model.name));
        self.all.push(Actuator { kind, name, levels: levels.collect(), current, is_guarded: false });
        self.targets.push(Target::Variant(model.name.clone(), variants));
    }

    /// Returns the highest clocks that are set now, by domain.
    pub(super) fn caps(&self) -> Vec<(String, u64)> {
        let pairs = self.all.iter().zip(&self.targets);
        let caps = pairs.filter_map(|(actuator, target)| match target {
            Target::Clock(domain, clocks) => Some((domain.clone(), *clocks.get(actuator.current)?)),
            Target::PowerMode(_) | Target::Interval(..) | Target::Variant(..) => None,
        });
        caps.collect()
    }

    /// Returns the actuators as the status has them.
    pub(super) fn status(&self) -> Vec<ActuatorStatus> {
        let all = self.all.iter().map(|actuator| ActuatorStatus {
            name: actuator.name.clone(),
            level: actuator.levels[actuator.current].name.clone(),
            levels: actuator.levels.iter().map(|level| level.name.clone()).collect(),
        });
        all.collect()
    }
}

/// Returns the power budget of a mode in watts: that of the board's profile, else the one in its name, such as `MODE_15W_6CORE`.
fn budget(name: &str, profile: Option<&Profile>) -> Option<f64> {
    let modes = profile.map_or(&[][..], |profile| &profile.power_modes);
    let published = modes.iter().find(|mode| mode.name == name).map(|mode| mode.budget.map(Watts::to_f64));
    published.unwrap_or_else(|| {
        let mut words = name.split(['_', ' ', '-']);
        words.find_map(|word| word.strip_suffix('W')?.parse::<u32>().ok()).map(f64::from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use orinoco_helper::ModeState;

    fn state() -> PowerState {
        let mode = |name: &str, is_current: bool, can_be_set: bool| ModeState {
            name: name.to_owned(),
            is_current,
            can_be_set,
        };
        PowerState {
            power_modes: vec![
                mode("MAXN_SUPER", true, true),
                mode("7W", false, false),
                mode("MODE_25W_6CORE", false, true),
                mode("15W", false, true),
            ],
            clocks: vec![
                ClockState {
                    domain: "devfreq/17000000.gpu".into(),
                    max: 700_000_000,
                    available: vec![306_000_000, 612_000_000, 918_000_000],
                },
                ClockState { domain: "cpufreq/policy0".into(), max: 1, available: vec![729_600_000] },
            ],
            ..PowerState::default()
        }
    }

    fn spec(modes: Option<&[&str]>, actuators: &[GovernorActuator]) -> GovernorSpec {
        let modes = modes.map(|modes| modes.iter().map(|mode| (*mode).to_owned()).collect());
        let actuators = actuators.to_vec();
        GovernorSpec { power_limit: None, temperature_limit: None, p99: None, modes, actuators, helper: None }
    }

    #[test]
    fn modes_are_in_order_of_their_budgets_and_need_no_reboot() {
        use GovernorActuator::{GpuClock, PowerMode};
        let actuators = Actuators::new(&spec(None, &[PowerMode, GpuClock]), None, &state());
        let modes = &actuators.all[0];
        let levels: Vec<_> =
            modes.levels.iter().map(|level| (level.name.as_str(), level.scale, level.ceiling)).collect();
        let watts = |watts| Some(Watts::from_units(watts));
        let expected =
            [("15W", 15.0, watts(15)), ("MODE_25W_6CORE", 25.0, watts(25)), ("MAXN_SUPER", 37.5, None)];
        assert_eq!((&levels[..], modes.current, modes.is_guarded), (&expected[..], 2, true));
        assert_eq!(actuators.caps(), [("devfreq/17000000.gpu".to_owned(), 612_000_000)]);
        assert_eq!(actuators.status()[1].levels, ["306 MHz", "612 MHz", "918 MHz"]);
    }

    #[test]
    fn only_what_the_board_file_allows_is_an_actuator() {
        use GovernorActuator::{CpuClock, PowerMode};
        let actuators = Actuators::new(&spec(Some(&["15W"]), &[PowerMode, CpuClock]), None, &state());
        let names: Vec<&str> = actuators.all[0].levels.iter().map(|level| level.name.as_str()).collect();
        assert_eq!(names, ["15W", "MAXN_SUPER"], "the mode that is set is a level, too");
        assert!(!actuators.all[0].is_guarded && actuators.all.len() == 1, "no clock is as low as the cap");
        assert_eq!(Actuators::new(&spec(None, &[]), None, &state()), Actuators::default());
    }

    #[test]
    fn levels_of_models_rise_with_the_power() {
        let levels =
            orinoco_board::ModelLevels { intervals: vec![1, 2, 4], variants: vec!["l".into(), "s".into()] };
        let model = BoardModel { interval: 2, levels, ..BoardModel::new("m", "l") };
        let fixed = BoardModel::new("fixed", "l");
        let actuators = Actuators::default().with_models(&[fixed, model]);
        let levels = |index: usize| -> Vec<(&str, f64)> {
            let levels = actuators.all[index].levels.iter();
            levels.map(|level| (level.name.as_str(), level.scale)).collect()
        };
        assert_eq!((levels(0), actuators.all[0].current), (vec![("4", 0.25), ("2", 0.5), ("1", 1.0)], 1));
        assert_eq!((levels(1), actuators.all[1].current), (vec![("s", 1.0), ("l", 2.0)], 1));
        let names: Vec<String> = actuators.status().into_iter().map(|actuator| actuator.name).collect();
        assert_eq!(names, ["interval/m", "model-variant/m"]);
    }

    #[test]
    fn a_profile_knows_budgets_that_names_do_not_tell() {
        let profile = orinoco_board::profile_named("orin-nano-8gb").expect("a profile");
        assert_eq!(budget("15W", Some(profile)), Some(15.0));
        assert_eq!(budget("MAXN_SUPER", Some(profile)), None);
        assert_eq!(
            (budget("MODE_30W_ALL", None), budget("MAXN", None), budget("W", None)),
            (Some(30.0), None, None)
        );
    }
}
