//! Comparison of the readings with the limits.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use orinoco_core::{Celsius, Nanos, Watts};

use crate::trend::Trend;
use crate::{Inputs, Limits, Missing, Reason, Zone};

/// Age at which a reading is missing.
pub const STALE_AFTER: Duration = Duration::from_secs(5);
/// Distance that is kept to a trip point at which the kernel throttles.
pub const TRIP_MARGIN: Celsius = Celsius::from_units(3);
/// Distance to the limit at which an expected temperature counts as too high: sensors have steps of up to 0.5 °C, and the die rises
/// by about 1 °C while a power mode is set.
const GUARD: Celsius = Celsius::from_units(2);
/// Distance that is kept in addition where the lanes do nothing, in degrees, and less of it the higher their load was within
/// [`LOAD_FOR`]: a load that grows at once heats the die by several degrees before the next readings show it.
const IDLE_GUARD: f64 = 5.0;
/// Load from which nothing is kept in addition.
const LOAD_HIGH: f64 = 0.8;
/// Time for which a load counts: less work and other clocks change it, and the board has just carried it.
const LOAD_FOR: Duration = Duration::from_secs(60);
/// Distance above the limit from which an expected temperature rises fast.
const FAST: Celsius = Celsius::from_units(3);
/// Distance to the limit that a step up must leave: the hysteresis of temperatures.
const BAND: Celsius = Celsius::from_units(5);
/// Part of it that is left where more than [`GUARD`] is kept.
const GUARD_BAND: Celsius = Celsius::from_units(1);
/// Distance to its limit within which a zone that goes silent is missed. Others may be switched off.
const MISSED_WITHIN: Celsius = Celsius::from_units(15);
/// Ambient temperature that is assumed where the effect of more power is estimated: a hot cabinet. Where it is colder, more power
/// heats the board more than estimated, but slowly, and the guard takes the step back.
const AMBIENT: f64 = 45.0;
/// Share of the power limit that steps up may use: the hysteresis of power.
const POWER_SHARE: f64 = 0.96;
/// Share of the power limit above which the mean of [`POWERS_MAX`] readings is too high.
const POWER_HIGH: f64 = 0.995;
/// Multiple of the power limit above which a single reading is too high: sensors have noise of 1 % or 2 %.
const POWER_PEAK: f64 = 1.03;
/// Number of power readings that are averaged.
const POWERS_MAX: usize = 8;
/// Share of a limit that a step down aims at.
const AIM: f64 = 0.93;
/// Least factor of power that one step down aims at.
const CUT_MIN: f64 = 0.6;
/// The same where power or temperature passes its limit slowly: one level, so that what it does is seen before the next.
const CUT_SLOW: f64 = 1.0;

/// Readings compared with the limits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Pressure {
    /// Readings are missing.
    Blind(Missing),
    /// A limit is, or is about to be, exceeded. The power should fall to `cut` of what it is.
    Over { reason: Reason, cut: f64 },
    /// No limit is exceeded. The power may grow by the factor `room`; 1 is none.
    Under { room: f64 },
}

/// History of the readings, as far as it is needed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gauge {
    trends: BTreeMap<String, Trend>,
    powers: VecDeque<Watts>,
    /// Time of the latest reading of the power.
    power_at: Option<Nanos>,
    /// Highest load of the last [`LOAD_FOR`], and its time.
    load: Option<(Nanos, f64)>,
    read_at: Option<Nanos>,
    started: Option<Nanos>,
}

impl Gauge {
    /// Takes the readings, unless they are those of an earlier tick.
    pub(crate) fn add(&mut self, now: Nanos, inputs: &Inputs) {
        self.started.get_or_insert(now);
        let Some(read_at) = inputs.read_at.filter(|read_at| self.read_at != Some(*read_at)) else { return };
        self.read_at = Some(read_at);
        if let Some(power) = inputs.power {
            self.power_at = Some(read_at);
            self.powers.push_back(power);
            if self.powers.len() > POWERS_MAX {
                self.powers.pop_front();
            }
        }
        if let Some(load) = inputs.load {
            let is_over = |(at, highest)| load >= highest || now.since(at) > LOAD_FOR;
            if self.load.is_none_or(is_over) {
                self.load = Some((now, load));
            }
        }
        for zone in &inputs.zones {
            if let Some(temperature) = zone.temperature {
                self.trends.entry(zone.name.clone()).or_default().add(read_at, temperature);
            }
        }
    }

    /// Forgets readings that were taken before a step.
    pub(crate) fn restart(&mut self) {
        self.powers.clear();
        self.trends.values_mut().for_each(Trend::restart);
    }

    /// Compares the readings with the limits.
    pub(crate) fn pressure(&self, now: Nanos, inputs: &Inputs, limits: &Limits) -> Pressure {
        if let Some(missing) = self.missing(now, inputs, limits) {
            return Pressure::Blind(missing);
        }
        let power = limits.power.map_or(Pressure::Under { room: f64::MAX }, |limit| self.power(limit));
        let guard = self.idle_guard();
        let zones = limited(inputs, limits).filter_map(|(zone, limit)| self.zone(zone, limit, guard));
        zones.fold(power, Pressure::worse)
    }

    fn missing(&self, now: Nanos, inputs: &Inputs, limits: &Limits) -> Option<Missing> {
        let is_stale = |at: Option<Nanos>| now.since(at.or(self.started).unwrap_or(now)) > STALE_AFTER;
        if is_stale(self.read_at) {
            return Some(Missing::Readings);
        }
        if limits.power.is_some() && is_stale(self.power_at) {
            return Some(Missing::Power);
        }
        let last = |zone: &Zone| self.trends.get(&zone.name).and_then(Trend::last);
        let latest = limited(inputs, limits).filter_map(|(zone, _)| last(zone)).map(|(at, _)| at).max();
        let is_heat_needed = limits.temperature.is_some() || limited(inputs, limits).next().is_some();
        if is_heat_needed && is_stale(latest) {
            return Some(Missing::Temperatures);
        }
        let lost = limited(inputs, limits).find(|(zone, limit)| {
            last(zone).is_some_and(|(at, before)| is_stale(Some(at)) && before + MISSED_WITHIN >= *limit)
        });
        lost.map(|(zone, _)| Missing::Zone(zone.name.clone()))
    }

    fn power(&self, limit: Watts) -> Pressure {
        let (Some(&latest), count) = (self.powers.back(), self.powers.len()) else {
            // Right after a step there is no reading yet.
            return Pressure::Under { room: 1.0 };
        };
        let mean = self.powers.iter().map(|power| power.to_f64()).sum::<f64>() / count as f64;
        let (latest_w, limit_w) = (latest.to_f64(), limit.to_f64());
        let is_high = mean > limit_w * POWER_HIGH && count == POWERS_MAX;
        if is_high || latest_w > limit_w * POWER_PEAK {
            let high = mean.max(latest_w);
            let reason = Reason::Power { power: Watts::from_f64(high), limit };
            let is_peak = latest_w > limit_w * POWER_PEAK;
            let cut = if is_peak { (limit_w * AIM / high).max(CUT_MIN) } else { CUT_SLOW };
            return Pressure::Over { reason, cut };
        }
        Pressure::Under { room: limit_w * POWER_SHARE / mean.max(latest_w).max(0.001) }
    }

    /// Returns the distance to the limit that is kept because the load may grow.
    fn idle_guard(&self) -> Celsius {
        let load = self.load.map_or(LOAD_HIGH, |(_, load)| load);
        Celsius::from_f64(IDLE_GUARD * (1.0 - load / LOAD_HIGH).max(0.0))
    }

    fn zone(&self, zone: &Zone, limit: Celsius, guard: Celsius) -> Option<Pressure> {
        let trend = self.trends.get(&zone.name)?;
        let ((_, now), soon) = (trend.last()?, trend.soon()?);
        let heat = (soon.to_f64() - AMBIENT).max(10.0);
        if soon + GUARD + guard >= limit {
            let reason = Reason::Temperature { zone: zone.name.clone(), now, soon, limit };
            let cut = if soon > limit + FAST { CUT_MIN } else { CUT_SLOW };
            return Some(Pressure::Over { reason, cut });
        }
        let band = BAND.max(GUARD + guard + GUARD_BAND);
        Some(Pressure::Under { room: 1.0 + (limit - band - soon).to_f64() / heat })
    }
}

impl Pressure {
    /// Returns the pressure that leaves less room.
    fn worse(self, other: Self) -> Self {
        let rank = |pressure: &Self| match pressure {
            Self::Blind(_) => -2.0,
            Self::Over { cut, .. } => cut - 2.0,
            Self::Under { room } => *room,
        };
        if rank(&other) < rank(&self) { other } else { self }
    }
}

/// Returns the zones that have a limit, with it: those with a trip point, else all of them.
fn limited<'a>(inputs: &'a Inputs, limits: &Limits) -> impl Iterator<Item = (&'a Zone, Celsius)> {
    let some_have_trips = inputs.zones.iter().any(|zone| zone.throttle_at.is_some());
    let wanted = limits.temperature;
    inputs.zones.iter().filter_map(move |zone| {
        let trip = zone.throttle_at.map(|trip| trip - TRIP_MARGIN);
        match (trip, wanted) {
            (Some(trip), Some(wanted)) => Some((zone, trip.min(wanted))),
            (Some(trip), None) => Some((zone, trip)),
            (None, Some(wanted)) if !some_have_trips => Some((zone, wanted)),
            (None, _) => None,
        }
    })
}
