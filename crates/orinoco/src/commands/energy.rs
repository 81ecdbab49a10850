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
use orinoco_board::readers::Sensors;
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
        let rails = EnergyRails::choose(sensors, detection, unit, None, now);
        rails.map(|rails| Self { rails, sensors }).map_err(|why| why.to_string())
    }

    /// Returns the mean length of a burst that the sensors can tell from a pause.
    pub(crate) fn burst(&self) -> Duration {
        burst_length(&self.rails.settings().sensor)
    }

    /// Reads the rails on a thread of its own while `work` runs, which returns its batches in the order of their times.
    pub(crate) fn measure<E>(
        &mut self,
        clock: &Arc<dyn Clock>,
        work: impl FnOnce() -> Result<Vec<BatchRecord>, E>,
    ) -> Result<Measurement, E> {
        let start = clock.now();
        let times = self.rails.reading_times(start, Rng::with_seed(SEED + 1));
        let sampler = Sampler::new(self.sensors, times);
        let (is_over, signal) = (AtomicBool::new(false), clock.signal());
        let (samples, batches) = thread::scope(|scope| {
            let sampling = scope.spawn(|| sampler.run(&**clock, &*signal, &is_over));
            let batches = work();
            is_over.store(true, Ordering::Release);
            signal.notify();
            let samples = sampling.join().expect("reading sensors does not panic");
            Ok((samples, batches?))
        })?;
        let settings = self.rails.settings().clone();
        let report = attribute(&settings, start, &samples, &batches);
        Ok(Measurement { settings, report, readings: samples.len(), batches })
    }
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
