//! A simulated board, whose power is known in closed form at every time, and its simulated power sensor.
//!
//! Two models run on two lanes and overlap. Besides, there is an idle power, leakage that follows the temperature, which
//! follows the power, and two other processes. The sensor is an INA3221 with its exponential average (datasheet SBOS576,
//! section 7.4.1), its resolution (40 µV across the shunt, 8 mV of the bus), a clock that is off, and a shunt that is off.

use std::time::Duration;

use orinoco_core::{ComputeUnit, LaneId, ModelId, Nanos, Rng, TimeSpan, Watts};
use orinoco_telemetry::energy::{
    Averaging, Covers, EnergyMeter, EnergyReport, MeterSettings, Rail, SampleSchedule, Sensor,
};
use orinoco_telemetry::{BatchRecord, Stage};

pub(crate) const MODELS: [ModelId; 2] = [ModelId(0), ModelId(1)];

/// Greatest error of the simulated shunts. Each run draws its own, uniformly within plus and minus this.
pub(crate) const GAIN_TOLERANCE: f64 = 0.01;

/// Greatest error of the sensor's own clock, drawn uniformly. The datasheet gives conversion times of 1.1 ms that are at most
/// 1.21 ms (section 6.5).
const CLOCK_TOLERANCE: f64 = 0.1;

/// Length of a run, in seconds.
pub(crate) const SECONDS: f64 = 480.0;

/// Seconds at the start in which no model runs.
const IDLE_SECONDS: f64 = 8.0;

/// Properties that differ between runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) samples: u16,
    pub(crate) conversion: f64,
    pub(crate) sample_period: f64,
    /// Frame periods of the models, in seconds.
    pub(crate) frame_periods: [f64; 2],
    pub(crate) volts: f64,
    pub(crate) cross_load: f64,
    pub(crate) gain: f64,
    pub(crate) clock: f64,
    pub(crate) missing: f64,
}

impl Scenario {
    /// Draws a scenario.
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let (samples, conversion) = [(1, 1.1e-3), (64, 140e-6), (16, 1.1e-3)][rng.usize(0..3)];
        let sample_period = [0.01, 0.02][rng.usize(0..2)];
        // In half of the runs the sampling period is a multiple or a part of the frame period.
        let commensurate = [0.02_f64, 0.025, 0.05, 0.04];
        let frame_periods = if rng.bool() {
            [commensurate[rng.usize(2..4)], commensurate[rng.usize(0..4)].max(0.025)]
        } else {
            [0.03 + 0.01 * rng.f64(), 0.025 + 0.01 * rng.f64()]
        };
        Self {
            samples,
            conversion,
            sample_period,
            frame_periods,
            volts: [5.0, 19.0][rng.usize(0..2)] * (1.0 + 0.02 * symmetric(rng)),
            cross_load: rng.f64(),
            gain: GAIN_TOLERANCE * symmetric(rng),
            clock: CLOCK_TOLERANCE * symmetric(rng),
            missing: 0.03,
        }
    }

    /// A board without any error of the sensor but its resolution and its average.
    pub(crate) fn exact() -> Self {
        Self {
            samples: 64,
            conversion: 140e-6,
            sample_period: 0.02,
            frame_periods: [1.0 / 30.0, 0.025],
            volts: 5.0,
            cross_load: 0.0,
            gain: 0.0,
            clock: 0.0,
            missing: 0.0,
        }
    }

    /// Returns the same scenario with another error of the shunt.
    pub(crate) fn with_other_gain(self, rng: &mut Rng) -> Self {
        Self { gain: GAIN_TOLERANCE * symmetric(rng), ..self }
    }

    /// Returns the time in which the sensor converts all channels, in seconds: shunt and bus of three.
    fn cycle(&self) -> f64 {
        6.0 * self.conversion * (1.0 + self.clock)
    }

    /// Returns the time in which the sensor's cycle drifts by a whole cycle against every second frame of a model, in seconds.
    /// In this time the sensor, which sees one sixth of the time, has seen every part of the inferences. Two frames, because at
    /// half a cycle in a frame it sees only two sixths.
    pub(crate) fn drift_seconds(&self, model: usize) -> f64 {
        let two_frames = 2.0 * self.frame_periods[model];
        let cycles = two_frames / self.cycle();
        two_frames / (cycles - cycles.round()).abs()
    }

    pub(crate) fn settings(&self) -> MeterSettings {
        let conversion = Duration::from_secs_f64(self.conversion);
        let averaging = match self.samples {
            1 => Averaging::Window(conversion),
            samples => Averaging::Exponential { samples, conversion },
        };
        MeterSettings {
            rails: vec![Rail {
                name: "VDD_IN".into(),
                resolution: Watts::from_f64(SHUNT_STEP * self.volts),
                gain_tolerance: GAIN_TOLERANCE,
                is_in_total: true,
                is_mean: false,
            }],
            covers: Covers::Input,
            // Three channels, each with a conversion of the shunt and one of the bus.
            sensor: Sensor { update_period: 6 * conversion, averaging, clock_tolerance: CLOCK_TOLERANCE },
            sample_period: Duration::from_secs_f64(self.sample_period),
            idle: None,
            lateness_max: Duration::from_secs(1),
            columns_max: 32,
        }
    }
}

/// Smallest difference of current: 40 µV across 5 mΩ.
const SHUNT_STEP: f64 = 40e-6 / 5e-3;

/// Smallest difference of the bus voltage.
const BUS_STEP: f64 = 8e-3;

fn symmetric(rng: &mut Rng) -> f64 {
    2.0 * rng.f64() - 1.0
}

fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    -mean * (1.0 - rng.f64()).ln()
}

/// Result of a simulated run.
pub(crate) struct Run {
    pub(crate) report: EnergyReport,
    /// Energy per inference of each model in closed form, in joules.
    pub(crate) truth: [f64; 2],
    /// Energy of the board over the run in closed form, in joules.
    pub(crate) board: f64,
}

/// Simulates a run, and measures it.
pub(crate) fn run(scenario: &Scenario, rng: &mut Rng) -> Run {
    let (batches, truth, curve) = simulate(scenario, rng);
    let mut meter = EnergyMeter::new(scenario.settings(), Nanos(0)).expect("the settings are right");
    let mut chip = Chip::new(scenario, &curve, rng);
    let mut schedule = SampleSchedule::new(Nanos(0), Duration::from_secs_f64(scenario.sample_period));
    let outages = [rng.f64() * SECONDS, rng.f64() * SECONDS];
    let mut batches = batches.iter().peekable();
    let mut now = Nanos(0);
    loop {
        now = schedule.next_sample(now, rng);
        let at = now.0 as f64 * 1e-9;
        if at >= SECONDS {
            break;
        }
        while let Some(batch) = batches.next_if(|batch| batch.span.end() <= now) {
            meter.add_batch(batch, &[]);
        }
        let power = chip.read(at);
        let is_missing = scenario.missing > 0.0
            && (rng.f64() < scenario.missing
                || outages.iter().any(|start| (*start..start + 1.5).contains(&at)));
        meter.add_reading(now, &[(!is_missing).then_some(Watts::from_f64(power))]);
    }
    batches.for_each(|batch| meter.add_batch(batch, &[]));
    meter.settle(Nanos((SECONDS * 1e9) as u64));
    Run { report: meter.report(), truth, board: curve.energy(SECONDS) }
}

/// One stage of a simulated model: mean duration in seconds, power in watts.
type SimulatedStage = (Stage, f64, f64);

const STAGES: [[SimulatedStage; 3]; 2] = [
    [(Stage::Preprocess, 2e-3, 3.0), (Stage::Infer, 11e-3, 10.0), (Stage::Postprocess, 1e-3, 2.5)],
    [(Stage::Preprocess, 1.5e-3, 2.5), (Stage::Infer, 9e-3, 9.0), (Stage::Postprocess, 0.5e-3, 2.0)],
];

/// Returns the batches by end, the energy per inference of each model, and the power of the board.
fn simulate(scenario: &Scenario, rng: &mut Rng) -> (Vec<BatchRecord>, [f64; 2], Curve) {
    let mut steps = vec![(0.0, 4.0 + 2.0 * rng.f64())];
    let mut batches = Vec::new();
    let mut truth = [0.0; 2];
    for (model, energy) in truth.iter_mut().enumerate() {
        let starts = frames(scenario.frame_periods[model], rng);
        for &start in &starts {
            *energy += batch(model, start, rng, &mut steps, &mut batches);
        }
        *energy /= starts.len() as f64;
    }
    batches.sort_by_key(|batch| batch.span.end());
    process(0.6 * scenario.cross_load, 0.3, 1.7, rng, &mut steps);
    process(0.3 * scenario.cross_load, 4.0, 12.0, rng, &mut steps);
    let curve = with_leakage(steps, rng);
    (batches, truth, curve)
}

/// Returns the times at which a model starts: stretches of constant or rising rate, with pauses.
fn frames(period: f64, rng: &mut Rng) -> Vec<f64> {
    let mut starts = Vec::new();
    let phase = rng.f64() * period;
    let mut at = IDLE_SECONDS;
    while at < SECONDS - 4.0 {
        at += 0.3 + exponential(rng, 1.2);
        let end = (at + 0.5 + exponential(rng, 3.0)).min(SECONDS - 3.0);
        let is_ramp = rng.u32(0..4) == 0;
        let length = end - at;
        let begin = at;
        // A camera's frames keep their phase over a pause.
        let mut frame = ((at - phase) / period).ceil();
        while at < end {
            at = phase + frame * period;
            starts.push(at);
            frame += match is_ramp {
                true => (4.0 - 3.0 * ((at - begin) / length).min(1.0)).round(),
                false => 1.0,
            };
        }
    }
    starts
}

/// Adds one inference. Returns its energy.
fn batch(
    model: usize,
    start: f64,
    rng: &mut Rng,
    steps: &mut Vec<(f64, f64)>,
    batches: &mut Vec<BatchRecord>,
) -> f64 {
    let (mut at, mut energy) = (start, 0.0);
    for (stage, mean, power) in STAGES[model] {
        let duration = mean * (1.0 + 0.08 * symmetric(rng));
        let power = power * (1.0 + 0.05 * symmetric(rng));
        // The power rises in two steps over the first twentieth of a stage.
        let rise = duration / 40.0;
        for (from, by) in
            [(0.0, 0.5 * power), (rise, 0.25 * power), (2.0 * rise, 0.25 * power), (duration, -power)]
        {
            steps.push((at + from, by));
        }
        energy += power * (duration - 0.25 * rise - 0.25 * 2.0 * rise);
        let nanos = |seconds: f64| Nanos((seconds * 1e9).round() as u64);
        batches.push(BatchRecord {
            lane: LaneId(model as u32),
            model: MODELS[model],
            stage,
            unit: ComputeUnit::Cpu,
            span: TimeSpan::new(nanos(at), nanos(at + duration)),
            items: 1,
            was_suspended: false,
        });
        at += duration;
    }
    energy
}

/// Adds another process that is now and then busy.
fn process(power: f64, mean_on: f64, mean_off: f64, rng: &mut Rng, steps: &mut Vec<(f64, f64)>) {
    let mut at = exponential(rng, mean_off);
    while power > 0.0 && at < SECONDS {
        steps.push((at, power));
        at += exponential(rng, mean_on);
        steps.push((at, -power));
        at += exponential(rng, mean_off);
    }
}

/// Adds leakage: it grows by a factor of e in 45 degrees, and the die follows the power with 1.5 K/W and 25 s. The air warms
/// meanwhile.
fn with_leakage(mut steps: Vec<(f64, f64)>, rng: &mut Rng) -> Curve {
    const STEP: f64 = 0.1;
    let without = Curve::new(steps.clone());
    let air_rise = 10.0 * symmetric(rng) / SECONDS;
    let mut air = 25.0 + 10.0 * rng.f64();
    let mut die = air + 1.5 * without.energy(IDLE_SECONDS) / IDLE_SECONDS;
    let (mut leakage, mut before) = (0.0, 0.0);
    let mut energies = without.cursor();
    for step in 0..(SECONDS / STEP) as usize {
        let now = 0.6 * ((die - 45.0) / 45.0).exp();
        steps.push((step as f64 * STEP, now - leakage));
        leakage = now;
        let energy = energies.energy((step + 1) as f64 * STEP);
        let power = (energy - before) / STEP + leakage;
        before = energy;
        die += STEP / 25.0 * (air + 1.5 * power - die);
        air += STEP * air_rise;
    }
    Curve::new(steps)
}

/// Power over time, constant between steps, and its exact integral.
struct Curve {
    times: Vec<f64>,
    powers: Vec<f64>,
    energies: Vec<f64>,
}

impl Curve {
    /// Creates the curve from changes of the power.
    fn new(mut steps: Vec<(f64, f64)>) -> Self {
        steps.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut curve = Self { times: vec![0.0], powers: vec![0.0], energies: vec![0.0] };
        let (mut at, mut power, mut energy) = (0.0, 0.0, 0.0);
        for (time, by) in steps {
            energy += power * (time - at);
            (at, power) = (time, power + by);
            curve.times.push(at);
            curve.powers.push(power);
            curve.energies.push(energy);
        }
        curve
    }

    /// Returns the energy from the start to `time`.
    fn energy(&self, time: f64) -> f64 {
        self.cursor().energy(time)
    }

    fn cursor(&self) -> Cursor<'_> {
        Cursor { curve: self, at: 0 }
    }
}

/// Reader of a curve at times that do not go back.
struct Cursor<'a> {
    curve: &'a Curve,
    at: usize,
}

impl Cursor<'_> {
    fn energy(&mut self, time: f64) -> f64 {
        let Curve { times, powers, energies } = self.curve;
        while self.at + 1 < times.len() && times[self.at + 1] <= time {
            self.at += 1;
        }
        energies[self.at] + powers[self.at] * (time - times[self.at])
    }
}

/// The sensor: it converts channel after channel by its own clock.
struct Chip<'a> {
    cursor: Cursor<'a>,
    cycle: f64,
    conversion: f64,
    /// Start of the next conversion of our channel.
    next: f64,
    samples: f64,
    /// Averaged current, in amperes.
    current: f64,
    volts: f64,
    gain: f64,
}

impl<'a> Chip<'a> {
    fn new(scenario: &Scenario, curve: &'a Curve, rng: &mut Rng) -> Self {
        let conversion = scenario.conversion * (1.0 + scenario.clock);
        let cycle = scenario.cycle();
        Self {
            cursor: curve.cursor(),
            cycle,
            conversion,
            next: cycle * rng.f64(),
            samples: f64::from(scenario.samples),
            current: curve.energy(1.0) / scenario.volts,
            volts: scenario.volts,
            gain: scenario.gain,
        }
    }

    /// Returns the power that is read at a time, in watts.
    fn read(&mut self, at: f64) -> f64 {
        while self.next + self.conversion <= at {
            let before = self.cursor.energy(self.next);
            let power = (self.cursor.energy(self.next + self.conversion) - before) / self.conversion;
            self.current += (power / self.volts - self.current) / self.samples;
            self.next += self.cycle;
        }
        let rounded = |value: f64, step: f64| (value / step).round() * step;
        rounded(self.current * (1.0 + self.gain), SHUNT_STEP) * rounded(self.volts, BUS_STEP)
    }
}
