//! Joins readings with busy times, and keeps what was measured over restarts.

use std::collections::VecDeque;
use std::time::Duration;

use orinoco_core::{Joules, ModelId, Nanos, StreamId, TimeSpan, Watts};

use super::baseline::IdleReadings;
use super::busy::{BusyTimes, Column, Key};
use super::quantile::Error;
use super::regression::{GivenIdle, Question, Regression, Solution, Sum};
use super::report::{
    Baseline, BaselineSource, Estimate, Figure, Losses, ModelEnergy, NotMeasured, StageEnergy, StreamEnergy,
};
use super::settings::{IdlePower, MeterSettings};
use crate::{BatchRecord, Stage};

/// Length of the shortest comparison, in times that the sensor or a batch cannot resolve.
const LENGTH_MIN: f64 = 4.0;

/// Longest time for which a reading waits for batches that began before it.
const LATENESS_LIMIT: Duration = Duration::from_secs(60);

/// Maximum part of a measurement whose readings were attributed without a batch that was reported later.
const DOUBTFUL_PART_MAX: f64 = 0.01;

/// Busy share of a reading up to which no lane counts as busy.
const IDLE_SHARE_MAX: f64 = 1e-3;

/// Half-width of a 95 % interval of the normal distribution, in standard deviations.
const NORMAL_HALF_WIDTH: f64 = 1.96;

/// Items of one stream in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamItems {
    /// Id of the stream.
    pub stream: StreamId,
    /// Number of its images in the batch.
    pub items: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Attribution {
    busy: BusyTimes,
    regression: Regression,
    idle: IdleReadings,
    given: Option<IdlePower>,
    gain: f64,
    /// Resolution of each rail in the total, in watts.
    resolutions: Vec<f64>,
    /// Time for which a reading waits for batches that began before it.
    lateness_max: Duration,
    sample_period: Duration,
    /// Time of the latest reading.
    latest: Nanos,
    /// Readings whose batches may still be reported, in watts.
    waiting: VecDeque<(Nanos, f64)>,
    settled: Nanos,
    started: Nanos,
    /// Time since the start whose readings were attributed without a batch that was reported later, and the time up to which
    /// this is counted.
    doubtful: Duration,
    doubtful_until: Nanos,
    shares: Vec<f64>,
    streams: Vec<StreamBusy>,
    models: Vec<ModelTotal>,
    losses: Losses,
}

/// Busy time that a stream's items took in each column, since the measurement (re)started.
#[derive(Clone, Debug)]
struct StreamBusy {
    stream: StreamId,
    frames: u64,
    /// In seconds, as a batch is split into shares.
    columns: Vec<f64>,
    before: Total,
}

/// Energy of a model before the latest restart.
#[derive(Clone, Copy, Debug)]
struct ModelTotal {
    model: ModelId,
    before: Total,
    items_unmeasured: u64,
}

/// Energy over several measurements, in joules.
#[derive(Clone, Copy, Debug)]
struct Total {
    energy: f64,
    variance: f64,
    freedom: f64,
    range: f64,
    shared: f64,
    is_measured: bool,
}

impl Total {
    const NONE: Self = Self {
        energy: 0.0,
        variance: 0.0,
        freedom: f64::INFINITY,
        range: 0.0,
        shared: 0.0,
        is_measured: false,
    };

    /// Adds an energy. Errors of different measurements are independent, except for what the readings of all share.
    fn and(self, sum: Sum, range: f64) -> Self {
        Self {
            energy: self.energy + sum.value,
            variance: self.variance + sum.variance,
            freedom: self.freedom.min(sum.freedom),
            range: self.range + range,
            shared: self.shared + sum.shared * sum.value.max(0.0),
            is_measured: true,
        }
    }

    fn figure(self) -> Figure {
        if !self.is_measured {
            return Err(NotMeasured::NoItems);
        }
        let error = Error { deviation: self.variance.sqrt(), freedom: self.freedom, range: self.range };
        let half_width = error.half_width();
        if half_width >= self.energy {
            return Err(NotMeasured::TooUncertain);
        }
        Ok(Estimate {
            energy: Joules::from_f64(self.energy),
            half_width: Joules::from_f64(half_width),
            statistical: Joules::from_f64(Error { range: 0.0, ..error }.half_width()),
            systematic: Joules::from_f64(self.range),
            shared: (self.shared / self.energy).clamp(0.0, 1.0),
        })
    }
}

impl Attribution {
    pub(super) fn new(settings: &MeterSettings, start: Nanos) -> Self {
        let gain = settings.total_rails().map(|rail| rail.gain_tolerance).fold(0.0, f64::max);
        Self {
            busy: BusyTimes::new(&settings.sensor, settings.columns_max, start),
            regression: Regression::new(),
            idle: IdleReadings::new(start),
            given: settings.idle,
            gain,
            resolutions: settings.total_rails().map(|rail| rail.resolution.to_f64()).collect(),
            lateness_max: settings.lateness_max,
            sample_period: settings.sample_period,
            latest: start,
            waiting: VecDeque::new(),
            settled: start,
            started: start,
            doubtful: Duration::ZERO,
            doubtful_until: start,
            shares: Vec::new(),
            streams: Vec::new(),
            models: Vec::new(),
            losses: Losses::default(),
        }
    }

    pub(super) fn losses(&self) -> Losses {
        self.losses
    }

    /// Adds a reading of the total; `None` if a rail gave none.
    pub(super) fn add_reading(&mut self, at: Nanos, power: Option<Watts>) {
        match power {
            None => self.losses.readings_missing += 1,
            Some(power)
                if self.waiting.back().is_none_or(|(before, _)| *before < at) && at > self.settled =>
            {
                self.waiting.push_back((at, power.to_f64()));
            }
            Some(_) => self.losses.readings_skipped += 1,
        }
        self.latest = self.latest.max(at);
        self.settle(at - self.lateness_max);
    }

    /// Attributes all readings up to `until`, whose batches are all known.
    pub(super) fn settle(&mut self, until: Nanos) {
        while let Some(&(at, power)) = self.waiting.front().filter(|(at, _)| *at <= until) {
            self.waiting.pop_front();
            self.settled = at;
            if !self.busy.shares(at, &mut self.shares) {
                self.losses.readings_skipped += 1;
                continue;
            }
            if self.shares.iter().step_by(2).sum::<f64>() <= IDLE_SHARE_MAX {
                self.idle.add(at, power);
            }
            self.regression.add(&self.shares, power);
        }
    }

    pub(super) fn add_batch(&mut self, record: &BatchRecord, streams: &[StreamItems]) {
        // Work that another machine did used no energy of this board.
        if record.was_suspended || record.items == 0 {
            return;
        }
        self.check_lateness(record.span);
        let key = Key::of(record);
        if self.busy.lacks_column(key) && self.busy.columns().iter().any(|column| self.is_removed(column)) {
            self.restart(record.span.start());
        }
        self.losses.batches_without_column += u64::from(self.busy.lacks_column(key));
        // What would see the span that must go is attributed before, though a slower batch may still be reported.
        if let Some(until) = self.busy.seen_until_if_full() {
            self.settle(until);
        }
        let column = self.busy.column(key);
        self.busy.add(column, record.span, record.items);
        if self.models.iter().all(|model| model.model != record.model) {
            let model = ModelTotal { model: record.model, before: Total::NONE, items_unmeasured: 0 };
            self.models.push(model);
        }
        let each = record.span.duration().as_secs_f64() / f64::from(record.items);
        for part in streams {
            let busy = &mut self.stream(part.stream).columns;
            if busy.len() <= column {
                busy.resize(column + 1, 0.0);
            }
            busy[column] += each * f64::from(part.items);
        }
    }

    /// Waits longer from now on if readings were attributed without a batch that took place in this span. If they are more than
    /// a small part of the measurement, nothing of it is right, and it begins again.
    fn check_lateness(&mut self, span: TimeSpan) {
        // The stages of a batch are reported together, so only the first of them is late.
        let from = span.start().max(self.doubtful_until);
        if from >= self.settled || span.end() <= self.started {
            return;
        }
        self.losses.batches_late += 1;
        self.doubtful += self.settled.since(from);
        self.doubtful_until = self.settled;
        let needed = self.latest.since(span.start());
        self.lateness_max = self.lateness_max.max((needed + needed / 2).min(LATENESS_LIMIT));
        let measured = self.settled.since(self.started).as_secs_f64();
        if self.doubtful.as_secs_f64() > DOUBTFUL_PART_MAX * measured {
            for model in &mut self.models {
                model.items_unmeasured += stage_items(self.busy.columns(), model.model, Stage::Infer);
            }
            self.drop_waiting(self.latest);
            self.begin(self.latest);
        }
    }

    /// Drops the readings up to `until` that are not attributed yet.
    fn drop_waiting(&mut self, until: Nanos) {
        let before = self.waiting.len();
        self.waiting.retain(|(at, _)| *at > until);
        self.losses.readings_skipped += (before - self.waiting.len()) as u64;
    }

    fn is_removed(&self, column: &Column) -> bool {
        column.key.is_some_and(|key| self.models.iter().all(|model| model.model != key.model))
    }

    pub(super) fn add_frame(&mut self, stream: StreamId) {
        self.stream(stream).frames += 1;
    }

    fn stream(&mut self, stream: StreamId) -> &mut StreamBusy {
        let at = self.streams.iter().position(|other| other.stream == stream).unwrap_or_else(|| {
            self.streams.push(StreamBusy { stream, frames: 0, columns: Vec::new(), before: Total::NONE });
            self.streams.len() - 1
        });
        &mut self.streams[at]
    }

    pub(super) fn remove_stream(&mut self, stream: StreamId) {
        self.streams.retain(|other| other.stream != stream);
    }

    /// Removes a model. Its column stays until the next restart, because it explains earlier readings.
    pub(super) fn remove_model(&mut self, model: ModelId) {
        self.models.retain(|other| other.model != model);
    }

    /// Starts the measurement again: what was measured is kept in the totals, and nothing of it is used for what comes.
    pub(super) fn restart(&mut self, at: Nanos) {
        // Batches that began before later readings may still be under way.
        self.settle(at.min(self.latest - self.lateness_max));
        self.drop_waiting(at);
        let (mut models, mut streams) = (std::mem::take(&mut self.models), std::mem::take(&mut self.streams));
        let results = self.results();
        for model in &mut models {
            match results.of_model(model.model) {
                Some(Ok((sum, range))) => model.before = model.before.and(sum, range),
                Some(Err(_)) => model.items_unmeasured += results.items(model.model),
                None => {}
            }
        }
        for stream in &mut streams {
            if let Some(Ok((sum, range))) = results.energy(&stream.columns) {
                stream.before = stream.before.and(sum, range);
            }
        }
        (self.models, self.streams) = (models, streams);
        self.begin(at);
    }

    /// Begins a measurement that knows nothing of what was before `at`.
    fn begin(&mut self, at: Nanos) {
        for stream in &mut self.streams {
            stream.columns.clear();
            stream.frames = 0;
        }
        self.busy.restart(at);
        self.regression = Regression::new();
        self.idle = IdleReadings::new(at);
        (self.settled, self.started) = (self.settled.max(at), at);
        (self.doubtful, self.doubtful_until) = (Duration::ZERO, self.settled);
    }

    pub(super) fn baseline(&self) -> Result<Baseline, NotMeasured> {
        match self.given {
            Some(IdlePower { power, half_width }) => {
                Ok(Baseline { power, half_width, drift_per_hour: None, source: BaselineSource::Given })
            }
            None => self.idle.baseline(self.gain),
        }
    }

    pub(super) fn energies(&self) -> (Vec<ModelEnergy>, Vec<StreamEnergy>) {
        let results = self.results();
        let models = self.models.iter().map(|model| results.model_energy(model)).collect();
        (models, self.streams.iter().map(|stream| results.stream_energy(stream)).collect())
    }

    /// Returns the shortest time scale that is used. Its comparisons take [`LENGTH_MIN`] times as long as the sensor averages,
    /// and as the longest batch: then an error of the sensor's window of a tenth biases a power by 0.4 % at most (for steps
    /// of the load, by six times the square of the error over the length), and a power that is not constant during a batch
    /// counts with its mean.
    fn first_scale(&self) -> usize {
        let length = LENGTH_MIN * self.busy.resolution().as_secs_f64();
        (length / (2.0 * self.sample_period.as_secs_f64())).max(1.0).log2().ceil() as usize
    }

    fn results(&self) -> Results<'_> {
        let columns = self.busy.columns();
        // Rounding to steps of a size q has the variance q^2 / 12.
        let noise_min = self.resolutions.iter().map(|q| q * q / 12.0).sum();
        let given = self.given.map(|idle| GivenIdle {
            power: idle.power.to_f64(),
            deviation: idle.half_width.to_f64() / NORMAL_HALF_WIDTH,
        });
        let question = Question {
            columns: columns.len(),
            first_scale: self.first_scale(),
            noise_min,
            clock_deviation: self.busy.clock_deviation(),
            given,
        };
        let solution = self.regression.solve(&question);
        let noise = solution.as_ref().map_or(0.0, Solution::noise);
        Results {
            columns,
            busy: columns.iter().map(|column| column.busy.as_secs_f64()).collect(),
            rounding: self.resolutions.iter().map(|&resolution| rounding_max(resolution, noise)).sum(),
            seconds: self.settled.since(self.started).as_secs_f64(),
            gain: self.gain,
            solution,
        }
    }
}

/// Returns the greatest error of a mean power by rounding to steps of `resolution`, in watts. Noise averages it out: it falls
/// to the first harmonic of the quantiser's characteristic function (Widrow and Kollár, "Quantization Noise", chapter 9).
fn rounding_max(resolution: f64, noise_variance: f64) -> f64 {
    if resolution <= 0.0 {
        return 0.0;
    }
    let exponent = -2.0 * std::f64::consts::PI.powi(2) * noise_variance / (resolution * resolution);
    (resolution / std::f64::consts::PI * exponent.exp()).min(0.5 * resolution)
}

/// Returns the number of images that went through a stage of a model.
fn stage_items(columns: &[Column], model: ModelId, stage: Stage) -> u64 {
    let of_stage = |key: Key| key.model == model && key.stage == stage;
    // A stage has spans of several units; each counts all of its images.
    let columns = columns.iter().filter(|column| column.key.is_some_and(of_stage));
    columns.map(|column| column.items).max().unwrap_or(0)
}

/// Solution of the regression, with what turns it into energies.
struct Results<'a> {
    columns: &'a [Column],
    /// Busy time of each column, in seconds.
    busy: Vec<f64>,
    solution: Option<Solution>,
    /// Greatest error of a mean power by rounding, in watts.
    rounding: f64,
    /// Length of the measurement.
    seconds: f64,
    gain: f64,
}

/// An energy in joules, and the greatest error of it that all readings share.
type Energy = Result<(Sum, f64), NotMeasured>;

impl Results<'_> {
    /// Returns the energy of busy times, which are in seconds; `None` if they are all zero.
    fn energy(&self, busy: &[f64]) -> Option<Energy> {
        if busy.iter().all(|&time| time == 0.0) {
            return None;
        }
        let mut factors = busy.to_vec();
        factors.resize(self.columns.len(), 0.0);
        let solution = self.solution.as_ref();
        let sum = solution.and_then(|solution| solution.sum(&factors, &self.busy));
        Some(sum.ok_or(NotMeasured::TooFewReadings).map(|sum| {
            // Rounding changes the power while busy and that while idle, each for the time of the measurement at most.
            let own: f64 = busy.iter().sum();
            let all: f64 = self.busy.iter().sum();
            let rounding = 2.0 * self.rounding * self.seconds * (own / all).min(1.0);
            (sum, self.gain * sum.value.abs() + rounding)
        }))
    }

    fn of_model(&self, model: ModelId) -> Option<Energy> {
        self.energy(&self.busy_where(|key| key.model == model))
    }

    fn busy_where(&self, is_wanted: impl Fn(Key) -> bool) -> Vec<f64> {
        let time = |(column, busy): (&Column, &f64)| match column.key {
            Some(key) if is_wanted(key) => *busy,
            _ => 0.0,
        };
        self.columns.iter().zip(&self.busy).map(time).collect()
    }

    /// Returns the number of images that a model inferred.
    fn items(&self, model: ModelId) -> u64 {
        stage_items(self.columns, model, Stage::Infer)
    }

    /// Returns the energy of busy times, divided by a number of items.
    fn per_item(&self, busy: &[f64], items: u64) -> Figure {
        let energy = self.energy(busy).filter(|_| items > 0).ok_or(NotMeasured::NoItems)?;
        let (sum, range) = energy?;
        let per = 1.0 / items as f64;
        let sum = Sum { value: sum.value * per, variance: sum.variance * per * per, ..sum };
        Total::NONE.and(sum, range * per).figure()
    }

    fn total(&self, before: Total, energy: Option<Energy>) -> Figure {
        match energy {
            Some(Ok((sum, range))) => before.and(sum, range).figure(),
            Some(Err(reason)) if !before.is_measured => Err(reason),
            _ => before.figure(),
        }
    }

    fn model_energy(&self, of: &ModelTotal) -> ModelEnergy {
        let stage = |stage: &Stage| {
            let busy = self.busy_where(|key| key.model == of.model && key.stage == *stage);
            let items = stage_items(self.columns, of.model, *stage);
            (items > 0).then(|| StageEnergy { stage: *stage, per_item: self.per_item(&busy, items) })
        };
        let items = self.items(of.model);
        let energy = self.of_model(of.model);
        let unmeasured = if matches!(energy, Some(Err(_))) { items } else { 0 };
        ModelEnergy {
            model: of.model,
            items,
            per_item: self.per_item(&self.busy_where(|key| key.model == of.model), items),
            total: self.total(of.before, energy),
            items_unmeasured: of.items_unmeasured + unmeasured,
            stages: Stage::ALL.iter().filter_map(stage).collect(),
        }
    }

    fn stream_energy(&self, of: &StreamBusy) -> StreamEnergy {
        let stage = |stage: &Stage| {
            let time = |(column, busy): (&Column, &f64)| match column.key {
                Some(key) if key.stage == *stage => *busy,
                _ => 0.0,
            };
            let busy: Vec<f64> = self.columns.iter().zip(&of.columns).map(time).collect();
            let is_busy = busy.iter().any(|&time| time > 0.0);
            is_busy.then(|| StageEnergy { stage: *stage, per_item: self.per_item(&busy, of.frames) })
        };
        StreamEnergy {
            stream: of.stream,
            frames: of.frames,
            per_frame: self.per_item(&of.columns, of.frames),
            total: self.total(of.before, self.energy(&of.columns)),
            stages: Stage::ALL.iter().filter_map(stage).collect(),
        }
    }
}
