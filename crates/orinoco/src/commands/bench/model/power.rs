//! Power of the board and energy per inference: rails that are sampled while the models run in bursts with pauses between.

use std::sync::Arc;
use std::time::Duration;

use orinoco_api::{CardEnergy, CardPower, Measured, Uncertain};
use orinoco_core::{Clock, ComputeUnit, Diagnosis, ModelId, Nanos, TimeSpan};
use orinoco_telemetry::BatchRecord;
use orinoco_telemetry::energy::{Covers, MeterSettings};

use super::board::BoardSensors;
use super::subject::Subject;
use crate::commands::energy::{
    BATCH_SPAN, LoadPlan, Measurement, Meter, SETTLE, Step, batch, plan, reason_text, wait_until,
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
    board: &mut BoardSensors,
    busy: Duration,
    clock: &Arc<dyn Clock>,
) -> Result<Vec<PowerFigures>, Diagnosis> {
    let unit = if subjects.iter().any(Subject::is_on_gpu) { ComputeUnit::Gpu } else { ComputeUnit::Cpu };
    let mut meter = match Meter::choose(&mut board.sensors, &board.detection, unit, clock.now()) {
        Ok(meter) => meter,
        Err(reason) => return Ok(subjects.iter().map(|_| PowerFigures::missing(&reason)).collect()),
    };
    wait_until(&**clock, clock.now() + SETTLE);
    let plan = plan(clock.now(), meter.burst(), busy, subjects.len());
    let mut infer = |subject: usize| subjects[subject].execute().map(drop);
    let measured = meter.measure(clock, || execute(&mut infer, plan, &**clock))?;
    let subjects = subjects.len();
    Ok((0..subjects).map(|index| figures(&measured, index)).collect())
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

fn gain_tolerance(settings: &MeterSettings) -> f64 {
    settings.total_rails().map(|rail| rail.gain_tolerance).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests;
