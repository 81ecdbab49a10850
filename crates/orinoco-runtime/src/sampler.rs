//! Reads the board's sensors on a thread of its own, and attributes the measured energy to models and streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use orinoco_board::detect;
use orinoco_board::readers::{Sensors, Snapshot};
use orinoco_core::{Clock, Diagnosis, Joules, Nanos, Rng, Signal, Watts, WithSubject, codes};
use orinoco_sysroot::Sysroot;
use orinoco_telemetry::energy::{EnergyMeter, EnergyReport, SampleSchedule};
use orinoco_telemetry::{Work, WorkFeed};

use crate::energy_settings::meter_settings;
use crate::monitor::{Latest, Monitor};
use crate::sensors_status::sensors_status;

/// Mean time between two readings of the power rails. Ten readings a second use less than 0.5 % of a core on a board whose
/// rails are on I2C (six reads of 0.1 ms to 0.8 ms), and see batches of any length by their share of the time.
const RAILS_EVERY: Duration = Duration::from_millis(100);
/// Time between two readings of all sensors, and two reports.
const SENSORS_EVERY: Duration = Duration::from_secs(1);

/// Thread that reads the sensors of a board while it runs.
pub(crate) struct Sampler {
    thread: JoinHandle<()>,
    stop: Arc<AtomicBool>,
    signal: Arc<dyn Signal>,
}

impl Sampler {
    /// Starts to read the sensors of `sysroot`, and to take the lanes' work from `feed`.
    pub(crate) fn start(
        sysroot: Sysroot,
        clock: Arc<dyn Clock>,
        feed: WorkFeed,
        monitor: &Monitor,
    ) -> Result<Self, Diagnosis> {
        let (stop, signal) = (Arc::new(AtomicBool::new(false)), clock.signal());
        let (stopping, waiting, monitor) = (Arc::clone(&stop), Arc::clone(&signal), monitor.clone());
        let run = move || {
            let mut sampling = Sampling::new(&sysroot, &*clock, feed, monitor);
            while !stopping.load(Ordering::Acquire) {
                let next = sampling.step(clock.now());
                waiting.wait(Some(next));
            }
            sampling.finish(clock.now());
        };
        let next = "raise the limit on threads (ulimit -u)";
        let thread = thread::Builder::new().name("sensors".to_owned()).spawn(run);
        let thread = thread.about(&codes::ENGINE_RUN, "thread sensors", next)?;
        Ok(Self { thread, stop, signal })
    }

    /// Takes the last readings, and ends the thread.
    pub(crate) fn finish(self) {
        self.stop.store(true, Ordering::Release);
        self.signal.notify();
        // Figures of a thread that panicked stay as they were.
        let _ = self.thread.join();
    }
}

/// Work of the thread. It reads no clock: its caller passes the time.
struct Sampling {
    sensors: Sensors,
    snapshot: Snapshot,
    feed: WorkFeed,
    /// Meter, or the reason why energy is not measured.
    meter: Result<EnergyMeter, String>,
    schedule: SampleSchedule,
    rng: Rng,
    powers: Vec<Option<Watts>>,
    next_rails: Nanos,
    next_sensors: Nanos,
    monitor: Monitor,
}

impl Sampling {
    fn new(sysroot: &Sysroot, clock: &dyn Clock, feed: WorkFeed, monitor: Monitor) -> Self {
        let now = clock.now();
        let mut sensors = discover(sysroot);
        let mut snapshot = Snapshot::default();
        sensors.read(now, &mut snapshot);
        let total = detect(sysroot).total_rail.map(|fact| fact.value);
        let settings = meter_settings(sensors.rails(), &snapshot.rails, total.as_deref(), RAILS_EVERY);
        let meter =
            settings.and_then(|settings| EnergyMeter::new(settings, now).map_err(|why| why.to_string()));
        let mut rng = Rng::with_seed(clock.wall().unix_nanos());
        let mut schedule = SampleSchedule::new(now, RAILS_EVERY);
        let next_rails = schedule.next_sample(now, &mut rng);
        let mut sampling = Self {
            sensors,
            snapshot,
            feed,
            meter,
            schedule,
            rng,
            powers: Vec::new(),
            next_rails,
            next_sensors: now + SENSORS_EVERY,
            monitor,
        };
        sampling.publish();
        sampling
    }

    /// Reads what is due at `now`. Returns the time of the next reading.
    fn step(&mut self, now: Nanos) -> Nanos {
        if self.meter.is_err() {
            // Without rails nothing must be read at random times.
            self.feed.take(|_| {});
            if now >= self.next_sensors {
                self.sensors.read(now, &mut self.snapshot);
                self.next_sensors = now + SENSORS_EVERY;
                self.publish();
            }
            return self.next_sensors;
        }
        if now < self.next_rails {
            return self.next_rails;
        }
        self.next_rails = self.schedule.next_sample(now, &mut self.rng);
        if now < self.next_sensors {
            self.sensors.read_rails(now, &mut self.snapshot);
            self.measure(now);
            return self.next_rails;
        }
        self.sensors.read(now, &mut self.snapshot);
        self.next_sensors = now + SENSORS_EVERY;
        self.measure(now);
        self.publish();
        self.next_rails
    }

    /// Passes the lanes' work and the readings at `now` to the meter.
    fn measure(&mut self, now: Nanos) {
        let Ok(meter) = &mut self.meter else { return };
        let lost = self.feed.take(|work| match work {
            Work::Batch { record, streams } => meter.add_batch(&record, streams.as_slice()),
            Work::Frame(record) => meter.add_frame(&record),
        });
        if lost > 0 {
            // Work that is not known would be taken for idle power.
            meter.restart(now);
        }
        self.powers.clear();
        self.powers.extend(self.snapshot.rails.iter().map(|rail| rail.watts.as_ref().ok().copied()));
        meter.add_reading(now, &self.powers);
    }

    fn finish(mut self, now: Nanos) {
        self.sensors.read(now, &mut self.snapshot);
        self.measure(now);
        if let Ok(meter) = &mut self.meter {
            meter.settle(now);
        }
        self.publish();
    }

    /// Replaces the latest readings. What has ended is reported for the last time.
    fn publish(&mut self) {
        let energy = self.meter.as_ref().map(|meter| Arc::new(meter.report())).map_err(Clone::clone);
        let joules: Vec<Option<Joules>> = match &energy {
            Ok(report) => report.rails.iter().map(|rail| Some(rail.energy)).collect(),
            Err(_) => vec![None; self.sensors.rails().len()],
        };
        if let Ok(report) = &energy {
            self.forget(report);
        }
        self.monitor.readings().set(Latest {
            sensors: sensors_status(&self.sensors, &self.snapshot, &joules),
            machine_bytes: self.snapshot.memory.total.as_ref().ok().copied(),
            available_bytes: self.snapshot.memory.available.as_ref().ok().copied(),
            energy,
        });
    }

    /// Removes the streams and models that have ended from the meter.
    fn forget(&mut self, report: &EnergyReport) {
        let Ok(meter) = &mut self.meter else { return };
        let directory = self.monitor.directory();
        report.streams.iter().filter(|ended| !directory.has_stream(ended.stream)).for_each(|ended| {
            meter.remove_stream(ended.stream);
        });
        report.models.iter().filter(|ended| !directory.has_model(ended.model)).for_each(|ended| {
            meter.remove_model(ended.model);
        });
    }
}

/// Finds the sensors of a board. GPUs are asked through their driver on the machine itself only.
fn discover(sysroot: &Sysroot) -> Sensors {
    let sensors = Sensors::discover(sysroot);
    if !sysroot.is_host() {
        return sensors;
    }
    let gpus = orinoco_board::readers::Nvml::open().map(|nvml| Box::new(nvml) as _);
    sensors.with_gpus(gpus.map_err(|why| why.to_string()))
}

#[cfg(test)]
mod tests;
