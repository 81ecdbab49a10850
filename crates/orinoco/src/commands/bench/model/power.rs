//! Power of the board and energy per inference: rails that are sampled while the models run in bursts with pauses between.

use std::sync::Arc;
use std::time::Duration;

use orinoco_api::{CardEnergy, CardPower, Measured, Uncertain};
use orinoco_board::Detection;
use orinoco_board::readers::Sensors;
use orinoco_core::{Clock, ComputeUnit, Diagnosis, ModelId, Nanos, TimeSpan};
use orinoco_telemetry::BatchRecord;
use orinoco_telemetry::energy::{Covers, MeterSettings};

use super::board::BoardSensors;
use super::subject::Subject;
use crate::commands::energy::{
    self, BATCH_SPAN, LoadPlan, Measurement, Meter, SETTLE, Step, batch, plan, reason_text, wait_until,
};

/// Option that says for how long is measured.
const OPTION: &str = "--seconds";

/// Power and energy of one model, or the reasons why they are not measured.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PowerFigures {
    pub(super) power: Measured<CardPower>,
    pub(super) energy: Measured<CardEnergy>,
}

impl PowerFigures {
    fn missing(reason: &str) -> Self {
        Self { power: Measured::missing(reason), energy: Measured::missing(reason) }
    }
}

/// Measures power and energy of all subjects side by side: first the idle board, then the subjects in turns, `busy` each.
pub(super) fn measure(
    subjects: &mut [Subject],
    board: &BoardSensors,
    busy: Duration,
    clock: &Arc<dyn Clock>,
) -> Result<Vec<PowerFigures>, Diagnosis> {
    let units: Vec<ComputeUnit> = subjects.iter().map(unit).collect();
    let used = ComputeUnit::ALL.into_iter().filter(|unit| units.contains(unit));
    // The power of a counter is a difference to the reading before, so that no two meters can share sensors.
    let mut sensors: Vec<(ComputeUnit, Sensors)> =
        used.map(|unit| (unit, Sensors::discover(&board.sysroot))).collect();
    let mut meters = Meters::choose(&mut sensors, &board.detection, clock.now());
    let Some(burst) = meters.burst() else {
        return Ok(meters.figures(&units, &[]));
    };
    wait_until(&**clock, clock.now() + SETTLE);
    let plan = plan(clock.now(), burst, busy, subjects.len());
    let mut infer = |subject: usize| subjects[subject].execute().map(drop);
    let measured = energy::measure(&mut meters.meters, clock, || execute(&mut infer, plan, &**clock))?;
    Ok(meters.figures(&units, &measured))
}

/// Returns the unit whose power a subject's inferences change most.
fn unit(subject: &Subject) -> ComputeUnit {
    if subject.is_on_gpu() { ComputeUnit::Gpu } else { ComputeUnit::Cpu }
}

/// Meters of the units on which the subjects compute. A discrete GPU and the processor have rails of their own.
struct Meters<'a> {
    meters: Vec<Meter<'a>>,
    /// Index of each unit's meter, or the reason why it has none.
    of_unit: Vec<(ComputeUnit, Result<usize, String>)>,
}

impl<'a> Meters<'a> {
    /// Chooses a meter for each unit. Units with the same rails have one together.
    fn choose(sensors: &'a mut [(ComputeUnit, Sensors)], detection: &Detection, now: Nanos) -> Self {
        let (mut meters, mut of_unit) = (Vec::<Meter<'a>>::new(), Vec::new());
        for (unit, sensors) in sensors {
            let index = Meter::choose(sensors, detection, *unit, now).map(|meter| {
                meters.iter().position(|other| meter.has_total_of(other)).unwrap_or_else(|| {
                    meters.push(meter);
                    meters.len() - 1
                })
            });
            of_unit.push((*unit, index));
        }
        Self { meters, of_unit }
    }

    /// Returns the mean length of a burst that all meters can tell from a pause; `None` without meters.
    fn burst(&self) -> Option<Duration> {
        self.meters.iter().map(Meter::burst).max()
    }

    /// Returns the figures of the subjects on `units`, each by the meter of its unit.
    fn figures(&self, units: &[ComputeUnit], measured: &[Measurement]) -> Vec<PowerFigures> {
        let of_subject = |(index, unit): (usize, &ComputeUnit)| {
            let (_, meter) =
                self.of_unit.iter().find(|(of, _)| of == unit).expect("each unit in use has an entry");
            match meter {
                Ok(meter) => figures(&measured[*meter], index),
                Err(reason) => PowerFigures::missing(reason),
            }
        };
        units.iter().enumerate().map(of_subject).collect()
    }
}

/// Executes the subjects by the plan, and returns their busy times. `infer` executes one inference of a subject.
fn execute(
    mut infer: impl FnMut(usize) -> Result<(), Diagnosis>,
    mut plan: LoadPlan,
    clock: &dyn Clock,
) -> Result<Vec<BatchRecord>, Diagnosis> {
    let mut batches = Vec::new();
    loop {
        match plan.next(clock.now()) {
            Step::Pause(until) => wait_until(clock, until),
            Step::Work { subject, until } => burst(subject, until, &mut infer, clock, &mut batches)?,
            Step::End => return Ok(batches),
        }
    }
}

/// Executes one subject until a time, at least once.
fn burst(
    subject: usize,
    until: Nanos,
    infer: &mut impl FnMut(usize) -> Result<(), Diagnosis>,
    clock: &dyn Clock,
    batches: &mut Vec<BatchRecord>,
) -> Result<(), Diagnosis> {
    let (mut start, mut items) = (clock.now(), 0);
    loop {
        infer(subject)?;
        items += 1;
        let now = clock.now();
        if now >= until || now.since(start) >= BATCH_SPAN {
            batches.push(batch(subject, TimeSpan::new(start, now), items));
            (start, items) = (now, 0);
        }
        if now >= until {
            return Ok(());
        }
    }
}

/// Returns the figures of subject `index`.
fn figures(measured: &Measurement, index: usize) -> PowerFigures {
    let model = ModelId::from_index(index);
    let own = || measured.batches.iter().filter(|batch| batch.model == model);
    let seconds: f64 = own().map(|batch| batch.span.duration().as_secs_f64()).sum();
    let inferences: u64 = own().map(|batch| u64::from(batch.items)).sum();
    let energy = match measured.per_item(index) {
        Ok(estimate) => Measured::Value(CardEnergy {
            value: 1e3 * estimate.energy.to_f64(),
            half_width: 1e3 * estimate.half_width.to_f64(),
            statistical: 1e3 * estimate.statistical.to_f64(),
            systematic: 1e3 * estimate.systematic.to_f64(),
            inferences,
        }),
        Err(reason) => Measured::missing(reason_text(reason, OPTION)),
    };
    let power = measured.idle().map_or_else(
        |reason| Measured::missing(reason_text(reason, OPTION)),
        |idle| {
            let each = seconds / inferences.max(1) as f64;
            Measured::Value(CardPower {
                idle,
                busy: busy_power(idle, &energy, each),
                rails: measured.rails(),
                covers: covers_name(measured.settings.covers).to_owned(),
                gain_tolerance: gain_tolerance(&measured.settings),
                readings: measured.readings as u64,
            })
        },
    );
    PowerFigures { power, energy }
}

/// Adds the power of the model to the idle power. The half-widths are added up: both share the error of the sensors' gain.
fn busy_power(idle: Uncertain, energy: &Measured<CardEnergy>, seconds_each: f64) -> Measured<Uncertain> {
    match energy {
        Measured::Value(energy) => Measured::Value(Uncertain {
            value: idle.value + 1e-3 * energy.value / seconds_each,
            half_width: idle.half_width + 1e-3 * energy.half_width / seconds_each,
        }),
        Measured::NotMeasured(reason) => Measured::NotMeasured(reason.clone()),
    }
}

fn covers_name(covers: Covers) -> &'static str {
    match covers {
        Covers::Input => "input",
        Covers::NamedRails => "named-rails",
    }
}

/// Returns the rails, with the part of the board that they cover.
pub(super) fn rails_text(power: &CardPower) -> String {
    let part = if power.covers == "input" { "the whole input" } else { "only these rails" };
    format!("{}: {part}", power.rails.join(", "))
}

fn gain_tolerance(settings: &MeterSettings) -> f64 {
    settings.total_rails().map(|rail| rail.gain_tolerance).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests;
