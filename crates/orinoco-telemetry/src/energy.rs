//! Energy of a board, of its models, their stages, and the streams, from readings of its power sensors and the times at which
//! the models kept it busy. `docs/energy.md` describes the method to users.
//!
//! The module reads no sensor and no clock: readings and batches are arguments. Their order is free within
//! [`MeterSettings::lateness_max`].
//!
//! Read first: [`EnergyMeter`] (takes readings and batches), [`EnergyReport`] (what it knows), [`SampleSchedule`] (when the
//! sensors are to be read) and [`Sensor`] (what a reading is about).

mod attribution;
mod baseline;
mod busy;
mod counter;
mod matrix;
mod quantile;
mod regression;
mod report;
mod schedule;
mod sensor;
mod settings;

use orinoco_core::{ModelId, Nanos, StreamId, Watts};

use crate::{BatchRecord, ResultRecord};
use attribution::Attribution;

pub use attribution::StreamItems;
pub use counter::EnergyCounter;
pub use report::{
    Baseline, BaselineSource, EnergyReport, Estimate, Figure, Losses, ModelEnergy, NotMeasured, RailEnergy,
    StageEnergy, StreamEnergy, TotalEnergy,
};
pub use schedule::SampleSchedule;
pub use sensor::{Averaging, Sensor};
pub use settings::{COLUMNS_MAX, Covers, IdlePower, MeterSettings, Rail, SettingsError, TIME_MAX};

/// Sampling periods without a reading after which a counter stops and counts the time as unmeasured.
const GAP_PERIODS_MAX: u32 = 10;

/// Meter of a board's energy. Adding a batch or a frame of a known stream and model allocates nothing; readings that are
/// attributed because of it may.
#[derive(Clone, Debug)]
pub struct EnergyMeter {
    settings: MeterSettings,
    rails: Vec<EnergyCounter>,
    total: EnergyCounter,
    attribution: Attribution,
}

impl EnergyMeter {
    /// Creates a meter at the time `start`, before which no batch counts.
    ///
    /// # Errors
    /// Returns the first setting that is out of its range.
    pub fn new(settings: MeterSettings, start: Nanos) -> Result<Self, SettingsError> {
        settings.check()?;
        // A sensor that is slower than the readings makes no gap.
        let step = settings.sample_period.max(settings.sensor.update_period);
        let gap_max = step * GAP_PERIODS_MAX;
        let counter = |is_of_means| match is_of_means {
            true => EnergyCounter::of_means(gap_max),
            false => EnergyCounter::new(gap_max),
        };
        let rails = settings.rails.iter().map(|rail| counter(rail.is_mean)).collect();
        let total = counter(settings.total_rails().all(|rail| rail.is_mean));
        Ok(Self { rails, total, attribution: Attribution::new(&settings, start), settings })
    }

    /// Adds a reading of all rails, in the order of the settings; `None` for a rail whose sensor gave none. Readings come in
    /// the order of their times.
    ///
    /// # Panics
    /// Panics if the number of powers is not that of the rails.
    pub fn add_reading(&mut self, at: Nanos, powers: &[Option<Watts>]) {
        let rails = &self.settings.rails;
        assert_eq!(powers.len(), rails.len(), "one power for each rail");
        self.rails.iter_mut().zip(powers).for_each(|(counter, power)| counter.add(at, *power));
        let in_total = rails.iter().zip(powers).filter(|(rail, _)| rail.is_in_total);
        let total = in_total.map(|(_, power)| *power).sum::<Option<Watts>>();
        self.total.add(at, total);
        self.attribution.add_reading(at, total);
    }

    /// Adds one stage of a batch, and the streams of its images. Images without a stream, such as those of a client's request,
    /// belong to none. A batch that was computed elsewhere is ignored.
    pub fn add_batch(&mut self, record: &BatchRecord, streams: &[StreamItems]) {
        self.attribution.add_batch(record, streams);
    }

    /// Adds a frame that went through every model.
    pub fn add_frame(&mut self, record: &ResultRecord) {
        self.attribution.add_frame(record.stream);
    }

    /// Attributes all readings up to `until` at once, for example at the end of a run: all batches up to then are known.
    pub fn settle(&mut self, until: Nanos) {
        self.attribution.settle(until);
    }

    /// Starts the attribution and the baseline again, because the same work costs another power from `at` on: after a change of
    /// the power mode or of the clocks. Totals and counters go on.
    pub fn restart(&mut self, at: Nanos) {
        self.attribution.restart(at);
    }

    /// Removes a model from the reports. What it used still explains the readings of its time.
    pub fn remove_model(&mut self, model: ModelId) {
        self.attribution.remove_model(model);
    }

    /// Removes a stream from the reports.
    pub fn remove_stream(&mut self, stream: StreamId) {
        self.attribution.remove_stream(stream);
    }

    /// Returns all figures. It allocates, and takes some milliseconds where there are many models: once a second is often enough.
    pub fn report(&self) -> EnergyReport {
        let rail = |(rail, counter): (&Rail, &EnergyCounter)| RailEnergy {
            name: rail.name.clone(),
            energy: counter.energy(),
            power: counter.power(),
            unmeasured: counter.unmeasured(),
        };
        let (models, streams) = self.attribution.energies();
        EnergyReport {
            rails: self.settings.rails.iter().zip(&self.rails).map(rail).collect(),
            total: TotalEnergy {
                covers: self.settings.covers,
                rails: self.settings.total_rails().map(|rail| rail.name.clone()).collect(),
                energy: self.total.energy(),
                measured: self.total.measured(),
                unmeasured: self.total.unmeasured(),
            },
            baseline: self.attribution.baseline(),
            models,
            streams,
            losses: self.attribution.losses(),
        }
    }
}
