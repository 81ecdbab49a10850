//! Reads the board's sensors on a thread of its own, and attributes the measured energy to models and streams.

mod power_settings;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use orinoco_board::detect;
use orinoco_board::readers::{Sensors, Snapshot};
use orinoco_core::{ComputeUnit, Diagnosis, Joules, Nanos, Rng, Signal, Watts};
use orinoco_sysroot::Sysroot;
use orinoco_telemetry::energy::{EnergyMeter, EnergyReport};
use orinoco_telemetry::{Event, Work, WorkFeed};

use crate::energy_rails::{EnergyRails, ReadingTimes};
use crate::monitor::{Latest, Monitor};
use crate::sensors_status::sensors_status;
use crate::shared::Shared;
use crate::threads::{ThreadError, spawn};
use power_settings::PowerSettings;

/// Name of the thread.
const THREAD: &str = "sensors";
/// Time between two readings of all sensors, and two reports.
const SENSORS_EVERY: Duration = Duration::from_secs(1);
/// Time until sensors are looked for again where no energy is measured: a driver may be loaded, or a chip answer, later.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// Thread that reads the sensors of a board while it runs. It ends when this is dropped, after the last readings. If it panics,
/// the run continues without readings and without figures of energy.
pub(crate) struct Sampler {
    /// The thread, until it is joined. It returns its fault if it panicked.
    thread: Option<JoinHandle<Option<Diagnosis>>>,
    stop: Arc<AtomicBool>,
    signal: Arc<dyn Signal>,
}

impl Sampler {
    /// Starts to read the sensors of `sysroot`, its power rails about every `power_interval`, and to take the lanes' work from
    /// `feed`. A panic of the thread is an event.
    pub(crate) fn start(
        sysroot: Sysroot,
        power_interval: Duration,
        shared: &Shared,
        feed: WorkFeed,
        monitor: &Monitor,
    ) -> Result<Self, Diagnosis> {
        let Shared { clock, events, .. } = shared;
        let (clock, events, rng) = (Arc::clone(clock), Arc::clone(events), Rng::with_seed(shared.seed));
        let (stop, signal) = (Arc::new(AtomicBool::new(false)), clock.signal());
        let (stopping, waiting) = (Arc::clone(&stop), Arc::clone(&signal));
        let (published, readings) = (monitor.clone(), monitor.readings().clone());
        let run = move || {
            let mut sampling = Sampling::new(&sysroot, power_interval, rng, feed, published);
            sampling.begin(clock.now());
            while !stopping.load(Ordering::Acquire) {
                let next = sampling.step(clock.now());
                waiting.wait(Some(next));
            }
            sampling.finish(clock.now());
        };
        let ended = move |end: Result<(), Diagnosis>| {
            let why = end.err()?;
            // Old readings would be taken for present ones.
            readings.set(Latest::failed(readings.latest().at));
            events.emit(Event::SensorsFailed { why: why.clone() });
            Some(why)
        };
        let thread = spawn(THREAD.to_owned(), run, ended)?;
        Ok(Self { thread: Some(thread), stop, signal })
    }

    /// Waits until the last readings are published. Returns the fault of the thread if it panicked.
    pub(crate) fn finish(mut self) -> Option<Diagnosis> {
        self.end()
    }

    fn end(&mut self) -> Option<Diagnosis> {
        self.stop.store(true, Ordering::Release);
        self.signal.notify();
        let end = self.thread.take()?.join();
        // The report of a panic may panic, too.
        end.unwrap_or_else(|_| Some(ThreadError::Panicked.diagnosis(THREAD)))
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.end();
    }
}

/// Work of the thread. It reads no clock: its caller passes the time.
struct Sampling {
    sysroot: Sysroot,
    power_interval: Duration,
    rng: Rng,
    sensors: Sensors,
    snapshot: Snapshot,
    settings: PowerSettings,
    /// Time of the last look at which they were those for which the energy is fitted.
    fitted_at: Nanos,
    feed: WorkFeed,
    /// Meter, or the reason why energy is not measured.
    meter: Result<RailMeter, String>,
    powers: Vec<Option<Watts>>,
    next_sensors: Nanos,
    /// Time at which sensors are looked for again, if no energy is measured.
    next_look: Nanos,
    monitor: Monitor,
}

/// Meter of the energy, and the times at which its rails are read.
struct RailMeter {
    meter: EnergyMeter,
    times: ReadingTimes,
    next: Nanos,
}

impl RailMeter {
    /// Creates the meter; the error is the reason why it refuses the rails.
    fn new(rails: &EnergyRails, rng: Rng, now: Nanos) -> Result<Self, String> {
        let meter = EnergyMeter::new(rails.settings().clone(), now).map_err(|why| why.to_string())?;
        let mut times = rails.reading_times(now, rng);
        let next = times.next(now);
        Ok(Self { meter, times, next })
    }
}

impl Sampling {
    fn new(sysroot: &Sysroot, power_interval: Duration, rng: Rng, feed: WorkFeed, monitor: Monitor) -> Self {
        Self {
            sysroot: sysroot.clone(),
            power_interval,
            rng,
            sensors: Sensors::discover(sysroot),
            snapshot: Snapshot::default(),
            settings: PowerSettings::default(),
            fitted_at: Nanos(0),
            feed,
            meter: Err(String::new()),
            powers: Vec::new(),
            next_sensors: Nanos(0),
            next_look: Nanos(0),
            monitor,
        }
    }

    /// Reads all sensors for the first time, and begins to measure if there are rails for it.
    fn begin(&mut self, now: Nanos) {
        let rails = EnergyRails::choose(
            &mut self.sensors,
            &detect(&self.sysroot),
            // A lane's thread waits for whatever unit its model uses, so its spans are those of the processor.
            ComputeUnit::Cpu,
            Some(self.power_interval),
            now,
        );
        let rng = Rng::with_seed(self.rng.u64(..));
        self.meter = rails.map_err(|why| why.to_string()).and_then(|rails| RailMeter::new(&rails, rng, now));
        self.snapshot = Snapshot::default();
        self.sensors.read(now, &mut self.snapshot);
        self.settings.update(&self.sysroot, &self.snapshot);
        self.fitted_at = now;
        (self.next_sensors, self.next_look) = (now + SENSORS_EVERY, now + LOOK_AGAIN_AFTER);
        self.publish();
    }

    /// Reads what is due at `now`. Returns the time of the next reading.
    fn step(&mut self, now: Nanos) -> Nanos {
        let Ok(rails) = &mut self.meter else {
            // Without rails nothing must be read at random times.
            self.feed.take(|_| {});
            if now >= self.next_look {
                self.sensors = Sensors::discover(&self.sysroot);
                self.begin(now);
            } else if now >= self.next_sensors {
                self.sensors.read(now, &mut self.snapshot);
                self.next_sensors = now + SENSORS_EVERY;
                self.publish();
            }
            return self.meter.as_ref().map_or(self.next_sensors, |rails| rails.next);
        };
        if now < rails.next {
            return rails.next;
        }
        rails.next = rails.times.next(now);
        let next = rails.next;
        if now < self.next_sensors {
            self.sensors.read_rails(now, &mut self.snapshot);
            self.measure(now);
            return next;
        }
        self.sensors.read(now, &mut self.snapshot);
        self.next_sensors = now + SENSORS_EVERY;
        self.check_settings(now);
        self.measure(now);
        self.publish();
        next
    }

    /// Passes the lanes' work and the readings at `now` to the meter.
    fn measure(&mut self, now: Nanos) {
        let Ok(RailMeter { meter, .. }) = &mut self.meter else { return };
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

    /// Starts the attribution again if the power mode or a clock limit has changed: the same work then needs another power.
    fn check_settings(&mut self, now: Nanos) {
        let is_change = self.settings.update(&self.sysroot, &self.snapshot);
        if let (true, Ok(RailMeter { meter, .. })) = (is_change, &mut self.meter) {
            // When it came is not known, so readings since the settings were seen before it count neither before nor after it.
            meter.restart(self.fitted_at);
            meter.restart(now);
        }
        if self.settings.are_fitted() {
            self.fitted_at = now;
        }
    }

    /// Publishes the last readings. A change of settings is not looked for: a fit that starts now would have no figures.
    fn finish(mut self, now: Nanos) {
        self.sensors.read(now, &mut self.snapshot);
        self.measure(now);
        if let Ok(RailMeter { meter, .. }) = &mut self.meter {
            meter.settle(now);
        }
        self.publish();
    }

    /// Replaces the latest readings. What has ended is reported for the last time.
    fn publish(&mut self) {
        let energy = self.meter.as_ref().map(|rails| Arc::new(rails.meter.report())).map_err(Clone::clone);
        let joules: Vec<Option<Joules>> = match &energy {
            // A rail without any reading has no energy, not one of 0.
            Ok(report) => {
                report.rails.iter().map(|rail| rail.power.is_some().then_some(rail.energy)).collect()
            }
            Err(_) => vec![None; self.sensors.rails().len()],
        };
        if let Ok(report) = &energy {
            self.forget(report);
        }
        self.monitor.readings().set(Latest {
            at: Some(self.snapshot.at),
            sensors: sensors_status(&self.sensors, &self.snapshot, &joules),
            machine_bytes: self.snapshot.memory.total.as_ref().ok().copied(),
            available_bytes: self.snapshot.memory.available.as_ref().ok().copied(),
            energy,
        });
    }

    /// Removes the streams and models that have ended from the meter.
    fn forget(&mut self, report: &EnergyReport) {
        let Ok(RailMeter { meter, .. }) = &mut self.meter else { return };
        let directory = self.monitor.directory();
        report.streams.iter().filter(|ended| !directory.has_stream(ended.stream)).for_each(|ended| {
            meter.remove_stream(ended.stream);
        });
        report.models.iter().filter(|ended| !directory.has_model(ended.model)).for_each(|ended| {
            meter.remove_model(ended.model);
        });
    }
}

#[cfg(test)]
mod tests;
