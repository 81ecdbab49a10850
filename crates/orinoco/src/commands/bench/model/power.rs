//! Power of the board and energy per inference: rails that are sampled while the models run in bursts with pauses between.

mod load;
mod sampler;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use orinoco_api::{CardEnergy, CardPower, Measured, Uncertain};
use orinoco_core::{Clock, ComputeUnit, Diagnosis, LaneId, ModelId, Nanos, Rng, TimeSpan, Watts};
use orinoco_runtime::EnergyRails;
use orinoco_telemetry::energy::{Covers, EnergyMeter, EnergyReport, MeterSettings, NotMeasured};
use orinoco_telemetry::{BatchRecord, Stage};

use self::load::{LoadPlan, Step, burst_length};
use self::sampler::{RailSample, Sampler};
use super::board::BoardSensors;
use super::subject::Subject;

/// Wait before the idle power is measured: what was run before must be over for the sensors, too.
const SETTLE: Duration = Duration::from_secs(2);
/// Longest span that is reported as one batch. Inferences in a burst follow one another at once, so that they are one span.
const BATCH_SPAN: Duration = Duration::from_millis(10);
/// Seed of the bursts' lengths and of the sampling times.
const SEED: u64 = 0x0e_4e_12_67;

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
    let rails = match choose(board, unit, clock.now()) {
        Ok(rails) => rails,
        Err(reason) => return Ok(subjects.iter().map(|_| PowerFigures::missing(&reason)).collect()),
    };
    wait_until(&**clock, clock.now() + SETTLE);
    let (start, settings) = (clock.now(), rails.settings());
    let burst = burst_length(&settings.sensor);
    let plan = LoadPlan::new(start, burst, busy, subjects.len(), Rng::with_seed(SEED));
    let times = rails.reading_times(start, Rng::with_seed(SEED + 1));
    let sampler = Sampler::new(&mut board.sensors, times);
    let (samples, batches) = run(subjects, plan, sampler, clock)?;
    let report = attribute(settings, start, &samples, &batches);
    Ok((0..subjects.len()).map(|index| figures(&report, settings, index, samples.len(), &batches)).collect())
}

/// Chooses the rails for models that compute on `unit`; the error is the reason why there are none, as a sentence.
fn choose(board: &mut BoardSensors, unit: ComputeUnit, now: Nanos) -> Result<EnergyRails, String> {
    let rails = EnergyRails::choose(&mut board.sensors, &board.detection, unit, None, now);
    rails.map_err(|why| why.to_string())
}

/// Runs the subjects by the plan, while a thread samples the rails.
fn run(
    subjects: &mut [Subject],
    plan: LoadPlan,
    sampler: Sampler<'_>,
    clock: &Arc<dyn Clock>,
) -> Result<(Vec<RailSample>, Vec<BatchRecord>), Diagnosis> {
    let (is_over, signal) = (AtomicBool::new(false), clock.signal());
    thread::scope(|scope| {
        let sampling = scope.spawn(|| sampler.run(&**clock, &*signal, &is_over));
        let batches = execute(|subject| subjects[subject].execute().map(drop), plan, &**clock);
        is_over.store(true, Ordering::Release);
        signal.notify();
        let samples = sampling.join().expect("reading sensors does not panic");
        Ok((samples, batches?))
    })
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

fn batch(subject: usize, span: TimeSpan, items: u32) -> BatchRecord {
    BatchRecord {
        lane: LaneId(0),
        model: ModelId::from_index(subject),
        // The stages of an inference follow one another too fast to be told apart, and their sum is what counts here.
        stage: Stage::Infer,
        unit: ComputeUnit::Cpu,
        span,
        items,
        was_suspended: false,
    }
}

fn wait_until(clock: &dyn Clock, until: Nanos) {
    let signal = clock.signal();
    while clock.now() < until {
        signal.wait(Some(until));
    }
}

/// Attributes the samples to the batches. Both are in the order of their times.
fn attribute(
    settings: &MeterSettings,
    start: Nanos,
    samples: &[RailSample],
    batches: &[BatchRecord],
) -> EnergyReport {
    let mut meter = EnergyMeter::new(settings.clone(), start).expect("the settings are in their ranges");
    let mut waiting = batches.iter().peekable();
    for sample in samples {
        while let Some(batch) = waiting.next_if(|batch| batch.span.start() <= sample.at) {
            meter.add_batch(batch, &[]);
        }
        meter.add_reading(sample.at, &sample.powers);
    }
    waiting.for_each(|batch| meter.add_batch(batch, &[]));
    if let Some(last) = samples.last() {
        meter.settle(last.at);
    }
    meter.report()
}

/// Returns the figures of subject `index`.
fn figures(
    report: &EnergyReport,
    settings: &MeterSettings,
    index: usize,
    readings: usize,
    batches: &[BatchRecord],
) -> PowerFigures {
    let model = ModelId::from_index(index);
    let own = || batches.iter().filter(|batch| batch.model == model);
    let seconds: f64 = own().map(|batch| batch.span.duration().as_secs_f64()).sum();
    let inferences: u64 = own().map(|batch| u64::from(batch.items)).sum();
    let estimate = report.models.iter().find(|energy| energy.model == model);
    let estimate = estimate.map_or(Err(NotMeasured::NoItems), |energy| energy.per_item);
    let energy = match estimate {
        Ok(estimate) => Measured::Value(CardEnergy {
            value: 1e3 * estimate.energy.to_f64(),
            half_width: 1e3 * estimate.half_width.to_f64(),
            statistical: 1e3 * estimate.statistical.to_f64(),
            systematic: 1e3 * estimate.systematic.to_f64(),
            inferences,
        }),
        Err(reason) => Measured::missing(reason_text(reason)),
    };
    let power = report.baseline.map_or_else(
        |reason| Measured::missing(reason_text(reason)),
        |baseline| {
            let idle = uncertain(baseline.power, baseline.half_width + rounding(settings));
            let each = seconds / inferences.max(1) as f64;
            Measured::Value(CardPower {
                idle,
                busy: busy_power(idle, &energy, each),
                rails: report.total.rails.iter().map(|rail| rail.to_string()).collect(),
                covers: covers_name(settings.covers).to_owned(),
                gain_tolerance: gain_tolerance(settings),
                readings: readings as u64,
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

/// Returns the greatest error of the idle power by the sensors' resolution: half a step of each. Unlike the energy, it is not a
/// difference in which the error cancels, and an idle board may be too quiet to average it out.
fn rounding(settings: &MeterSettings) -> Watts {
    let steps: Watts = settings.total_rails().map(|rail| rail.resolution).sum();
    Watts::from_micro(steps.micro() / 2)
}

fn uncertain(value: Watts, half_width: Watts) -> Uncertain {
    Uncertain { value: value.to_f64(), half_width: half_width.to_f64() }
}

/// Returns the reason as a sentence of a card, with what to do.
fn reason_text(reason: NotMeasured) -> String {
    format!("{reason}; measure longer with --seconds")
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
