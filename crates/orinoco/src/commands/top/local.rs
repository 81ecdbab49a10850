//! Status of this machine without a daemon, from its sensors.

use std::path::Path;
use std::time::Duration;

use orinoco_api::{
    EVENT_SCHEMA, EnergyStatus, EventJson, Fault, MemoryStatus, STATUS_SCHEMA, SensorsStatus, Status,
};
use orinoco_board::readers::{Sensors, Snapshot};
use orinoco_core::{Clock, Diagnosis, Nanos};
use orinoco_pipeline::MonotonicClock;
use orinoco_runtime::{resident_bytes, sensors_status};
use orinoco_sysroot::Sysroot;

use crate::commands::board::sysroot_at;

/// Time between the first two readings. Loads, and power from energy counters, are differences.
const SECOND_READING_AFTER: Duration = Duration::from_millis(200);

/// File with the name of this machine.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// Sensors of this machine, or of a board whose files are elsewhere.
#[derive(Debug)]
pub(crate) struct LocalBoard {
    clock: MonotonicClock,
    start: Nanos,
    /// Name of the board.
    name: String,
    /// Place of its files, for people.
    shown: String,
    sensors: Sensors,
    snapshot: Snapshot,
}

impl LocalBoard {
    /// Finds the sensors of this machine, and reads them once.
    pub(crate) fn open(clock: MonotonicClock) -> Self {
        let sysroot = Sysroot::host();
        let name = sysroot.text(HOST_NAME).map(|name| name.trim().to_owned());
        Self::new(&sysroot, name.ok(), "this machine".to_owned(), clock)
    }

    /// Finds the sensors of the board whose files are in the folder or recording `path`, and reads them once.
    pub(crate) fn elsewhere(path: &Path, clock: MonotonicClock) -> Result<Self, Diagnosis> {
        // A recording has no host name, and a folder that of another machine.
        Ok(Self::new(&sysroot_at(Some(path))?, None, path.display().to_string(), clock))
    }

    /// Returns the place of the board's files, for people.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    fn new(sysroot: &Sysroot, name: Option<String>, shown: String, clock: MonotonicClock) -> Self {
        let mut board = Self {
            clock,
            start: clock.now(),
            name: name.unwrap_or_else(|| shown.clone()),
            shown,
            sensors: Sensors::discover(sysroot),
            snapshot: Snapshot::default(),
        };
        board.sensors.read(board.start, &mut board.snapshot);
        let (signal, until) = (clock.signal(), clock.now() + SECOND_READING_AFTER);
        while clock.now() < until {
            signal.wait(Some(until));
        }
        board
    }

    /// Reads the sensors, and returns the status: without streams, models and lanes, and neither healthy nor ready, because no
    /// board runs. `no_daemon` is the reason why no daemon answered; `None` if none was asked.
    pub(crate) fn status(&mut self, no_daemon: Option<&Diagnosis>) -> Status {
        let now = self.clock.now();
        self.sensors.read(now, &mut self.snapshot);
        let sensors = sensors_status(&self.sensors, &self.snapshot, &[]);
        let memory = MemoryStatus {
            resident_bytes: resident_bytes(),
            machine_bytes: self.snapshot.memory.total.as_ref().ok().copied(),
            available_bytes: self.snapshot.memory.available.as_ref().ok().copied(),
            ..MemoryStatus::default()
        };
        status(self.name.clone(), now.since(self.start), sensors, memory, no_daemon)
    }
}

fn status(
    board: String,
    uptime: Duration,
    sensors: SensorsStatus,
    memory: MemoryStatus,
    no_daemon: Option<&Diagnosis>,
) -> Status {
    let text = no_daemon.map_or_else(|| "no daemon was asked".to_owned(), Diagnosis::to_string);
    let event = EventJson {
        schema: EVENT_SCHEMA.to_owned(),
        number: 1,
        at_s: 0.0,
        level: if no_daemon.is_some() { "warning" } else { "info" }.to_owned(),
        kind: "no-daemon".to_owned(),
        subject: None,
        text: format!("sensors of this machine only: {text}"),
        fault: no_daemon.map(Fault::from),
    };
    Status {
        schema: STATUS_SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        board,
        healthy: false,
        ready: false,
        uptime_s: uptime.as_secs_f64(),
        window_s: 0.0,
        streams: Vec::new(),
        streams_ended: 0,
        models: Vec::new(),
        lanes: Vec::new(),
        memory,
        sensors,
        energy: EnergyStatus {
            rails: Vec::new(),
            covers: None,
            joules: None,
            unmeasured_s: uptime.as_secs_f64(),
            idle_watts: None,
            not_measured: Some("energy is counted by the daemon only".to_owned()),
        },
        governor: None,
        cluster: None,
        events: vec![event],
    }
}
