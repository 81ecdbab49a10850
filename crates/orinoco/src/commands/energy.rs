//! Energy of work that a command does itself, in bursts with pauses between: the rails are read meanwhile, and the idle power is
//! taken off. The method is that of a running board (docs/energy.md).

mod load;
mod sampler;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use orinoco_api::Uncertain;
use orinoco_board::Detection;
use orinoco_board::readers::{Rail, Sensors};
use orinoco_core::{Clock, ComputeUnit, LaneId, ModelId, Nanos, Rng, TimeSpan, Watts};
use orinoco_runtime::EnergyRails;
use orinoco_telemetry::energy::{EnergyMeter, EnergyReport, Figure, MeterSettings, NotMeasured};
use orinoco_telemetry::{BatchRecord, Stage};

pub(crate) use load::{LoadPlan, Step, burst_length};
pub(crate) use sampler::{RailSample, Sampler};

/// Wait before the idle power is measured: what was run before must be over for the sensors, too.
pub(crate) const SETTLE: Duration = Duration::from_secs(2);
/// Longest span that is reported as one batch. Items in a burst follow one another at once, so that they are one span.
pub(crate) const BATCH_SPAN: Duration = Duration::from_millis(10);
/// Seed of the bursts' lengths and of the sampling times.
const SEED: u64 = 0x0e_4e_12_67;

/// Reader of the rails by which a board's energy is measured.
pub(crate) struct Meter<'a> {
    rails: EnergyRails,
    sensors: &'a mut Sensors,
}

/// Readings of the rails while the work was done, and its batches.
pub(crate) struct Measurement {
    pub(crate) settings: MeterSettings,
    pub(crate) report: EnergyReport,
    /// Number of readings.
    pub(crate) readings: usize,
    pub(crate) batches: Vec<BatchRecord>,
}

impl<'a> Meter<'a> {
    /// Chooses the rails for work on `unit`; the error is the reason why there are none, as a sentence.
    pub(crate) fn choose(
        sensors: &'a mut Sensors,
        detection: &Detection,
        unit: ComputeUnit,
        now: Nanos,
    ) -> Result<Self, String> {
        let rails =
            EnergyRails::choose(sensors, detection, unit, None, now).map_err(|why| why.to_string())?;
        let meter = Self { rails, sensors };
        if unit == ComputeUnit::Cpu && meter.total().all(|rail| rail.chip == "nvml") {
            let reason = "only the GPU's own power can be read, and it does not include work on the processor; `orinoco doctor` \
                          lists the other sensors";
            return Err(reason.to_owned());
        }
        Ok(meter)
    }

    /// Returns the mean length of a burst that the sensors can tell from a pause.
    pub(crate) fn burst(&self) -> Duration {
        burst_length(&self.rails.settings().sensor)
    }

    /// Returns whether the rails in the total are those of another meter.
    pub(crate) fn has_total_of(&self, other: &Meter<'_>) -> bool {
        self.total()
            .map(|rail| (&rail.source, &rail.name))
            .eq(other.total().map(|rail| (&rail.source, &rail.name)))
    }

    /// Returns the rails in the total.
    fn total(&self) -> impl Iterator<Item = &Rail> {
        let rails = self.sensors.rails().iter().zip(&self.rails.settings().rails);
        rails.filter(|(_, settings)| settings.is_in_total).map(|(rail, _)| rail)
    }

    /// Returns a reader of the rails from `start` on.
    pub(crate) fn sampler(&mut self, start: Nanos) -> Sampler<'_> {
        let times = self.rails.reading_times(start, Rng::with_seed(SEED + 1));
        Sampler::new(self.sensors, times)
    }

    /// Attributes the samples since `start` to the batches.
    pub(crate) fn measurement(
        &self,
        start: Nanos,
        samples: &[RailSample],
        batches: Vec<BatchRecord>,
    ) -> Measurement {
        let settings = self.rails.settings().clone();
        let report = attribute(&settings, start, samples, &batches);
        Measurement { settings, report, readings: samples.len(), batches }
    }
}

/// Reads the rails of each meter on a thread of its own while `work` runs, which returns its batches in the order of their times.
/// Returns a measurement for each meter, with all batches.
pub(crate) fn measure<E>(
    meters: &mut [Meter<'_>],
    clock: &Arc<dyn Clock>,
    work: impl FnOnce() -> Result<Vec<BatchRecord>, E>,
) -> Result<Vec<Measurement>, E> {
    let (start, is_over) = (clock.now(), AtomicBool::new(false));
    // A signal wakes one thread.
    let signals: Vec<_> = meters.iter().map(|_| clock.signal()).collect();
    let (samples, batches) = thread::scope(|scope| {
        let threads: Vec<_> = meters
            .iter_mut()
            .zip(&signals)
            .map(|(meter, signal)| {
                let sampler = meter.sampler(start);
                scope.spawn(|| sampler.run(&**clock, &**signal, &is_over))
            })
            .collect();
        let batches = work();
        is_over.store(true, Ordering::Release);
        signals.iter().for_each(|signal| signal.notify());
        let samples =
            threads.into_iter().map(|thread| thread.join().expect("reading sensors does not panic"));
        let samples: Vec<Vec<RailSample>> = samples.collect();
        Ok((samples, batches?))
    })?;
    let measured = meters.iter().zip(&samples);
    Ok(measured.map(|(meter, samples)| meter.measurement(start, samples, batches.clone())).collect())
}

impl Measurement {
    /// Returns the energy of one item of subject `index` above the idle power.
    pub(crate) fn per_item(&self, index: usize) -> Figure {
        let model = ModelId::from_index(index);
        let energy = self.report.models.iter().find(|energy| energy.model == model);
        energy.map_or(Err(NotMeasured::NoItems), |energy| energy.per_item)
    }

    /// Returns the power of the idle board.
    pub(crate) fn idle(&self) -> Result<Uncertain, NotMeasured> {
        let half_width = |half_width: Watts| half_width + rounding(&self.settings);
        self.report.baseline.map(|idle| Uncertain {
            value: idle.power.to_f64(),
            half_width: half_width(idle.half_width).to_f64(),
        })
    }

    /// Returns the names of the rails in the total.
    pub(crate) fn rails(&self) -> Vec<String> {
        self.report.total.rails.iter().map(|rail| rail.to_string()).collect()
    }
}

/// Plans bursts of the mean length `burst` from `now` on, with pauses between, until each of `subjects` has worked for `busy`.
pub(crate) fn plan(now: Nanos, burst: Duration, busy: Duration, subjects: usize) -> LoadPlan {
    LoadPlan::new(now, burst, busy, subjects, Rng::with_seed(SEED))
}

/// Returns the record of `items` of a subject that were done in `span`.
pub(crate) fn batch(subject: usize, span: TimeSpan, items: u32) -> BatchRecord {
    BatchRecord {
        lane: LaneId(0),
        model: ModelId::from_index(subject),
        // The stages of an item follow one another too fast to be told apart, and their sum is what counts here.
        stage: Stage::Infer,
        unit: ComputeUnit::Cpu,
        span,
        items,
        was_suspended: false,
    }
}

pub(crate) fn wait_until(clock: &dyn Clock, until: Nanos) {
    let signal = clock.signal();
    while clock.now() < until {
        signal.wait(Some(until));
    }
}

/// Attributes the samples to the batches. Both are in the order of their times.
pub(crate) fn attribute(
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

/// Returns the greatest error of the idle power by the sensors' resolution: half a step of each. Unlike the energy, it is not a
/// difference in which the error cancels, and an idle board may be too quiet to average it out.
fn rounding(settings: &MeterSettings) -> Watts {
    let steps: Watts = settings.total_rails().map(|rail| rail.resolution).sum();
    Watts::from_micro(steps.micro() / 2)
}

/// Returns the reason as a sentence, with what to do; `option` is the one that says for how long is measured.
pub(crate) fn reason_text(reason: NotMeasured, option: &str) -> String {
    format!("{reason}; measure longer with {option}")
}
