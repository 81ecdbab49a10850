use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use orinoco_api::{SensorsStatus, TemperatureStatus};
use orinoco_board::{BoardModel, GovernorActuator, ModelLevel, ModelLevels};
use orinoco_core::{Celsius, Nanos, WallTime, codes};
use orinoco_helper::{Peers, PowerSettings, SILENCE_MAX, Server};
use orinoco_pipeline::MonotonicClock;
use orinoco_sysroot::Sysroot;
use orinoco_telemetry::{Event, Telemetry};

use super::*;
use crate::action::Action;
use crate::event_log::EventLog;
use crate::monitor::Latest;
use crate::reloaded::{Reloaded, Reply};

const GPU: &str = "sys/class/devfreq/17000000.gpu/max_freq";
const MODE: &str = "var/lib/nvpmodel/status";

/// Events as text.
#[derive(Default)]
struct EventTexts(Mutex<Vec<String>>);

impl EventSink for EventTexts {
    fn emit(&self, event: Event) {
        let text = match event {
            Event::GovernorReady { actuators } => format!("ready {actuators}"),
            Event::GovernorStep { actuator, from, to, direction, .. } => {
                format!("{direction} {actuator} {from} {to}")
            }
            Event::GovernorFault { why } => format!("{} {}", why.code.id, why.cause),
            other => panic!("{other:?}"),
        };
        self.0.lock().expect("no test panics here").push(text);
    }
}

/// Synthetic board with a helper on a thread, and the governor of a run on it.
struct Rig {
    dir: tempfile::TempDir,
    monitor: Monitor,
    events: Arc<EventTexts>,
    driver: Option<Driver>,
    /// Receiver of the driver's actions, which the supervisor has in a run.
    actions: Receiver<RunAction>,
    second: u64,
}

impl Rig {
    fn new() -> Self {
        Self::with(&[GovernorActuator::PowerMode, GovernorActuator::GpuClock])
    }

    fn with(actuators: &[GovernorActuator]) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let put = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        let uid = rustix::process::geteuid().as_raw();
        put("etc/passwd", &format!("orinoco:x:{uid}:{uid}::/:/bin/false\n"));
        put("etc/nvpmodel.conf", "< POWER_MODEL ID=0 NAME=15W >\n< POWER_MODEL ID=2 NAME=25W >\n");
        put(MODE, "pmode:0002\n");
        put("sys/class/devfreq/17000000.gpu/available_frequencies", "306000000 612000000 918000000\n");
        put(GPU, "918000000\n");
        put(
            "usr/sbin/nvpmodel",
            "#!/bin/sh\n# Synthetic nvpmodel.\nroot=${0%/usr/sbin/nvpmodel}\n\
             echo \"pmode:000$2\" > \"$root/var/lib/nvpmodel/status\"\n\
             echo 918000000 > \"$root/sys/class/devfreq/17000000.gpu/max_freq\"\n",
        );
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(dir.path().join("usr/sbin/nvpmodel"), executable).expect("set");
        let clock = Arc::new(MonotonicClock::default());
        let log = Arc::new(EventLog::new(Arc::new(crate::Quiet), clock.clone()));
        let monitor = Monitor::new(clock, Telemetry::default(), log, "test");
        let events = Arc::new(EventTexts::default());
        let spec = spec(&dir, actuators);
        let (sender, actions) = channel();
        let driver = Driver::new(spec, None, monitor.clone(), events.clone(), sender);
        Self { dir, monitor, events, driver: Some(driver), actions, second: 0 }
    }

    /// Starts the helper, which serves until the test ends.
    fn start_helper(&self) {
        let listener = UnixListener::bind(self.dir.path().join("socket")).expect("bound");
        let sysroot = Sysroot::at(self.dir.path());
        let peers = Peers::of_user(&sysroot, "orinoco");
        let settings = PowerSettings::new(sysroot);
        let mut server = Server::new(listener, settings, peers, SILENCE_MAX).expect("a socket that listens");
        thread::spawn(move || server.run(&mut |_| {}));
    }

    /// Lets a number of seconds pass at a temperature.
    fn pass(&mut self, seconds: u64, celsius: Option<f64>) {
        for _ in 0..seconds {
            self.second += 1;
            let now = Nanos(0) + Duration::from_secs(self.second);
            set_temperature(&self.monitor, now, celsius);
            self.driver.as_mut().expect("it governs").tick(now);
        }
    }

    /// Sets the present levels of the model `m`, as a run does when a change was applied.
    fn set_model(&self, interval: u32, variant: &str) {
        let levels =
            ModelLevels { intervals: vec![1, 2], variants: vec!["large".to_owned(), "small".to_owned()] };
        let model = BoardModel { interval, levels, ..BoardModel::new("m", variant) };
        self.monitor.directory_mut().set_levels(&[model]);
    }

    /// Takes the one choice of levels that the driver has asked for, with the reply to it.
    fn choice(&self) -> Option<(ModelLevel, Reply)> {
        let action = self.actions.try_recv().ok()?;
        assert!(self.actions.try_recv().is_err(), "one at a time");
        let Action::ChooseLevels(mut levels, reply) = action else { panic!("no choice of levels") };
        Some((levels.remove("m").expect("a level of the model"), reply))
    }

    fn settings(&self) -> (String, String) {
        let get = |name| fs::read_to_string(self.dir.path().join(name)).expect("readable").trim().to_owned();
        (get(MODE), get(GPU))
    }

    fn events(&self) -> Vec<String> {
        self.events.0.lock().expect("no test panics here").drain(..).collect()
    }

    fn status(&self) -> orinoco_api::GovernorStatus {
        self.monitor.status().governor.expect("it governs")
    }
}

fn spec(dir: &tempfile::TempDir, actuators: &[GovernorActuator]) -> GovernorSpec {
    GovernorSpec {
        power_limit: None,
        temperature_limit: Some(Celsius::from_units(80)),
        p99: None,
        modes: None,
        actuators: actuators.to_vec(),
        helper: Some(dir.path().join("socket")),
    }
}

fn set_temperature(monitor: &Monitor, now: Nanos, celsius: Option<f64>) {
    let zone = TemperatureStatus { name: "tj-thermal".into(), celsius, limit_celsius: Some(95.0) };
    let sensors = SensorsStatus { temperatures: vec![zone], ..SensorsStatus::default() };
    monitor.readings().set(Latest { at: Some(now), sensors, ..Latest::default() });
}

/// Virtual time of a hot board, in which waits are over at once. One of them panics.
#[derive(Clone)]
struct Doomed {
    now: Arc<AtomicU64>,
    waits_left: Arc<AtomicU32>,
    monitor: Monitor,
}

impl Clock for Doomed {
    fn now(&self) -> Nanos {
        Nanos(self.now.load(Ordering::Relaxed))
    }

    fn wall(&self) -> WallTime {
        WallTime::from_unix_nanos(0)
    }

    fn signal(&self) -> Arc<dyn Signal> {
        Arc::new(self.clone())
    }
}

impl Signal for Doomed {
    fn notify(&self) {}

    fn wait(&self, until: Option<Nanos>) {
        assert!(self.waits_left.fetch_sub(1, Ordering::Relaxed) > 0, "this test wants it");
        let now = until.expect("the governor has a beat");
        self.now.store(now.0, Ordering::Relaxed);
        set_temperature(&self.monitor, now, Some(79.5));
    }
}

fn settings(mode: &str, gpu: &str) -> (String, String) {
    (mode.to_owned(), gpu.to_owned())
}

#[test]
fn heat_lowers_the_clock_then_the_mode_and_the_end_restores_both() {
    let mut rig = Rig::new();
    rig.start_helper();
    rig.pass(3, Some(60.0));
    assert_eq!(rig.events(), ["ready power-mode at 25W, devfreq/17000000.gpu at 918 MHz"]);
    assert_eq!((rig.status().state.as_str(), rig.status().fault), ("holding", None));
    rig.pass(1, Some(79.5));
    // A fast rise skips levels.
    assert_eq!(rig.events(), ["down devfreq/17000000.gpu 918 MHz 306 MHz"]);
    assert_eq!(rig.settings(), settings("pmode:0002", "306000000"));
    rig.pass(20, Some(79.5));
    let steps = rig.events();
    assert_eq!(steps[0], "down power-mode 25W 15W");
    assert!(steps[1].starts_with("E0924"), "{steps:?}");
    // The mode sets 918 MHz; the cap of the clock stays.
    assert_eq!(rig.settings(), settings("pmode:0000", "306000000"));
    let status = rig.status();
    assert_eq!((status.state.as_str(), status.steps_down), ("exhausted", 2));
    assert_eq!(status.actuators[1].level, "306 MHz");
    // It cools, and rises step by step, the clock first.
    rig.pass(60, Some(50.0));
    assert_eq!(rig.settings(), settings("pmode:0002", "918000000"));
    assert_eq!(rig.status().state, "holding");
    rig.pass(1, Some(79.5));
    assert_eq!(rig.settings().1, "306000000");
    rig.driver = None;
    assert_restored(&rig);
}

fn assert_restored(rig: &Rig) {
    let clock = MonotonicClock::default();
    let until = clock.now() + Duration::from_secs(2);
    while rig.settings() != settings("pmode:0002", "918000000") {
        assert!(clock.now() < until, "{:?}", rig.settings());
        clock.signal().wait(Some(clock.now() + Duration::from_millis(5)));
    }
}

#[test]
fn after_a_panic_it_is_reported_and_the_helper_restores_the_settings() {
    let mut rig = Rig::new();
    rig.start_helper();
    rig.driver = None;
    let (now, waits_left) = (Arc::new(AtomicU64::new(1_000_000_000)), Arc::new(AtomicU32::new(10)));
    let clock = Arc::new(Doomed { now, waits_left, monitor: rig.monitor.clone() });
    let spec = spec(&rig.dir, &[GovernorActuator::PowerMode, GovernorActuator::GpuClock]);
    let (events, (sender, _actions)) = (rig.events.clone(), channel());
    let governor = GovernorThread::start(spec, None, clock, events, rig.monitor.clone(), sender);
    let governor = governor.expect("threads start");
    while !governor.thread.as_ref().is_some_and(JoinHandle::is_finished) {
        thread::yield_now();
    }
    let why = governor.finish().expect("it panicked");
    let events = rig.events();
    assert!(events.iter().any(|event| event.starts_with("down ")), "{events:?}");
    assert_eq!(events.last(), Some(&format!("{} {}", why.code.id, why.cause)));
    let status = rig.status();
    assert_eq!((status.state.as_str(), status.actuators.len()), ("unavailable", 0));
    assert!(status.steps_down > 0 && status.fault.is_some_and(|fault| fault.subject == "thread governor"));
    assert_restored(&rig);
}

#[test]
fn without_its_helper_it_says_so_once_and_takes_it_when_it_comes() {
    let mut rig = Rig::new();
    rig.pass(25, Some(90.0));
    let events = rig.events();
    assert_eq!(events, ["E0921 the helper's socket does not exist"]);
    let status = rig.status();
    assert_eq!(
        (status.state.as_str(), status.fault.expect("a fault").code.as_str()),
        ("unavailable", "E0921")
    );
    rig.start_helper();
    rig.pass(10, Some(60.0));
    assert!(rig.events()[0].starts_with("ready "));
    assert_eq!(rig.status().fault, None);
}

#[test]
fn while_the_kernel_throttles_it_waits_with_its_first_change() {
    let mut rig = Rig::new();
    let root = rig.dir.path().to_owned();
    let device = root.join("sys/class/thermal/cooling_device0");
    fs::create_dir_all(&device).expect("made");
    fs::write(device.join("type"), "devfreq-17000000.gpu\n").expect("written");
    fs::write(device.join("max_state"), "3\n").expect("written");
    let throttle = |state: &str, hertz: &str| {
        fs::write(device.join("cur_state"), state).expect("written");
        fs::write(root.join(GPU), hertz).expect("written");
    };
    throttle("1\n", "612000000\n");
    rig.start_helper();
    rig.pass(20, Some(90.0));
    let events = rig.events();
    assert!(events.len() == 1 && events[0].starts_with("E0922 the kernel is throttling"), "{events:?}");
    let status = rig.status();
    assert_eq!((status.state.as_str(), status.actuators.len()), ("unavailable", 0));
    assert_eq!(rig.settings(), settings("pmode:0002", "612000000"));
    throttle("0\n", "918000000\n");
    rig.pass(10, Some(60.0));
    assert_eq!(rig.events(), ["ready power-mode at 25W, devfreq/17000000.gpu at 918 MHz"]);
    assert_eq!((rig.status().state.as_str(), rig.status().fault), ("holding", None));
}

#[test]
fn a_sensor_that_goes_silent_lowers_the_power() {
    let mut rig = Rig::new();
    rig.start_helper();
    rig.pass(3, Some(70.0));
    rig.events();
    rig.pass(30, None);
    let events = rig.events();
    assert!(
        events[0].starts_with("down ") && events.iter().any(|event| event.starts_with("E0923")),
        "{events:?}"
    );
    assert_eq!(rig.settings(), settings("pmode:0000", "306000000"));
    assert_eq!(rig.status().state, "blind");
    let metrics = rig.monitor.metrics(false);
    let names: Vec<&str> =
        metrics.iter().map(|metric| metric.name).filter(|name| name.contains("governor")).collect();
    assert_eq!(
        names,
        [
            "orinoco_governor_available",
            "orinoco_governor_limiting",
            "orinoco_governor_slow",
            "orinoco_governor_steps_total"
        ]
    );
}

#[test]
fn without_settings_of_the_board_it_changes_interval_and_variant_one_after_the_other() {
    let mut rig = Rig::with(&[GovernorActuator::Interval, GovernorActuator::ModelVariant]);
    rig.set_model(1, "large");
    rig.pass(3, Some(60.0));
    assert_eq!(rig.events(), ["ready interval/m at 1, model-variant/m at large"], "it needs no helper");
    rig.pass(5, Some(79.5));
    let (level, reply) = rig.choice().expect("a choice");
    assert_eq!(level, ModelLevel { interval: Some(2), variant: None });
    assert_eq!((rig.events(), rig.status().steps_down), (Vec::new(), 0), "it waits for the answer");
    rig.set_model(2, "large");
    reply.send(Ok(Reloaded::default()));
    rig.pass(1, Some(79.5));
    assert_eq!(rig.events(), ["down interval/m 1 2"]);
    rig.pass(5, Some(79.5));
    let (level, reply) = rig.choice().expect("a choice");
    assert_eq!(level, ModelLevel { interval: Some(2), variant: Some("small".to_owned()) });
    let refused = Diagnosis::new(&codes::RELOAD, "model m", "it cannot take over", "nothing");
    reply.send(Err(refused.into()));
    rig.pass(1, Some(79.5));
    let events = rig.events();
    assert_eq!(events[0], "E0922 it cannot take over");
    assert!(events[1].starts_with("E0924"), "nothing else is left to lower: {events:?}");
    rig.pass(28, Some(79.5));
    assert!(rig.choice().is_none(), "it waits after a refusal");
    rig.pass(4, Some(79.5));
    let (_, reply) = rig.choice().expect("another try");
    rig.set_model(2, "small");
    reply.send(Ok(Reloaded::default()));
    rig.pass(10, Some(79.5));
    let events = rig.events();
    assert_eq!(events[0], "down model-variant/m large small");
    assert_eq!(rig.status().state, "exhausted");
    rig.pass(60, Some(40.0));
    let (level, _) = rig.choice().expect("it cools");
    assert_eq!(level, ModelLevel { interval: Some(1), variant: Some("small".to_owned()) });
}
