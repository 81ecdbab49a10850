//! The governor of a real daemon, on a synthetic board with a real helper, and what is restored when one of them is killed.

#![allow(clippy::print_stdout, reason = "tests say what they measured")]
#![expect(clippy::disallowed_methods, reason = "the test waits for real processes")]

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use orinoco_tests::{binary, root, signal, wait};
use serde_json::Value;

/// Longest time that a test waits for the daemon.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Longest time until everything is restored after a kill.
const RESTORED_MAX: Duration = Duration::from_secs(2);
const GPU: &str = "sys/class/devfreq/17000000.gpu/max_freq";
const MODE: &str = "var/lib/nvpmodel/status";
const HEAT: &str = "sys/class/thermal/thermal_zone0/temp";

/// Synthetic board, with the processes that run on it.
struct Board {
    dir: tempfile::TempDir,
    processes: Vec<Child>,
}

impl Board {
    fn new() -> Self {
        let board = Self { dir: tempfile::tempdir().expect("a folder"), processes: Vec::new() };
        let uid = fs::metadata(board.dir.path()).expect("made").uid();
        board.put("etc/passwd", &format!("orinoco:x:{uid}:{uid}::/:/bin/false\n"));
        board.put("etc/nvpmodel.conf", "< POWER_MODEL ID=0 NAME=15W >\n< POWER_MODEL ID=2 NAME=25W >\n");
        board.put(MODE, "pmode:0002\n");
        board.put("sys/class/devfreq/17000000.gpu/available_frequencies", "306000000 612000000\n");
        board.put(GPU, "612000000\n");
        board.put("sys/class/thermal/thermal_zone0/type", "tj-thermal\n");
        board.put("sys/class/thermal/thermal_zone0/trip_point_0_temp", "95000\n");
        board.put("sys/class/thermal/thermal_zone0/trip_point_0_type", "passive\n");
        board.put(HEAT, "50000\n");
        board.put(
            "usr/sbin/nvpmodel",
            "#!/bin/sh\n# Synthetic nvpmodel.\nroot=${0%/usr/sbin/nvpmodel}\n\
             echo \"pmode:000$2\" > \"$root/var/lib/nvpmodel/status\"\n\
             echo 612000000 > \"$root/sys/class/devfreq/17000000.gpu/max_freq\"\n",
        );
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(board.path("usr/sbin/nvpmodel"), executable).expect("set");
        board
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn put(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().expect("a folder")).expect("made");
        // Written whole, as a driver's file is never empty.
        fs::write(self.path("new"), text).expect("written");
        fs::rename(self.path("new"), self.path(name)).expect("renamed");
    }

    fn settings(&self) -> (String, String) {
        let get = |name| fs::read_to_string(self.path(name)).expect("readable").trim().to_owned();
        (get(MODE), get(GPU))
    }

    fn helper(&mut self) -> usize {
        let listener = UnixListener::bind(self.path("helper.sock")).expect("bound");
        let mut helper = Command::new(binary("orinoco-helper"));
        helper.arg("--root").arg(self.dir.path()).stdin(OwnedFd::from(listener)).stderr(Stdio::null());
        self.processes.push(helper.spawn().expect("starts"));
        self.processes.len() - 1
    }

    fn daemon(&mut self) -> usize {
        let helper = self.path("helper.sock");
        let stream = "[[stream]]\nname = 'gate'\nsource = 'test://ball?pace=pts'\nmodels = []\n";
        self.daemon_with(&format!("p99 = '10 s'\nhelper = '{}'\n{stream}", helper.display()))
    }

    /// Starts a daemon with more keys of its governor, and what comes after them in the board file.
    fn daemon_with(&mut self, rest: &str) -> usize {
        let file = self.path("board.toml");
        let socket = self.path("orinoco.sock");
        let text = format!(
            "version = 1\n[control]\nsocket = '{}'\n[governor]\ntemperature_limit = '80 °C'\n{rest}",
            socket.display()
        );
        fs::write(&file, text).expect("written");
        let mut daemon = Command::new(binary("orinocod"));
        daemon.arg("--board").arg(&file).arg("--sysroot").arg(self.dir.path());
        daemon.current_dir(root()).stderr(Stdio::null());
        self.processes.push(daemon.spawn().expect("starts"));
        self.processes.len() - 1
    }

    /// Asks the daemon until its governor is as wanted.
    fn governor(&self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let begin = Instant::now();
        loop {
            let status = status(&self.path("orinoco.sock"));
            match status {
                Some(status) if is_wanted(&status["governor"]) => return status,
                status => {
                    assert!(begin.elapsed() < WAIT_MAX, "{:?}", status.map(|all| all["governor"].clone()))
                }
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn wait_for(&self, settings: (&str, &str), longest: Duration) {
        let begin = Instant::now();
        while self.settings() != (settings.0.to_owned(), settings.1.to_owned()) {
            assert!(begin.elapsed() < longest, "{:?}", self.settings());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // It may have been killed by the test.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Asks for the status of a daemon; `None` while it starts.
fn status(socket: &Path) -> Option<Value> {
    let mut stream = UnixStream::connect(socket).ok()?;
    let request = b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1)
        .ok()
        .filter(|status: &Value| status["governor"].is_object())
}

#[test]
fn heat_lowers_a_board_and_a_killed_daemon_restores_it() {
    let mut board = Board::new();
    board.helper();
    let daemon = board.daemon();
    let status = board.governor(|governor| governor["state"] == "holding");
    assert_eq!(status["governor"]["actuators"][0]["level"], "25W");
    board.put(HEAT, "79500\n");
    board.wait_for(("pmode:0000", "306000000"), Duration::from_secs(20));
    let status = board.governor(|governor| governor["steps_down"] == 2);
    let events = status["events"].as_array().expect("events");
    let steps: Vec<&Value> = events.iter().filter(|event| event["kind"] == "governor-step").collect();
    assert_eq!(steps.len(), 2);
    assert!(
        steps[0]["text"].as_str().expect("text").contains("because tj-thermal is at 79.5"),
        "{}",
        steps[0]
    );
    let file = root().join("docs/schemas/orinoco.status-1.schema.json");
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    let index = compiler.compile(&file.display().to_string(), &mut schemas).expect("a schema");
    assert_eq!(schemas.validate(&status, index).err().map(|why| why.to_string()), None);
    board.processes[daemon].kill().expect("killed");
    board.wait_for(("pmode:0002", "612000000"), RESTORED_MAX);
}

#[test]
fn a_killed_helper_is_restored_and_found_again() {
    let mut board = Board::new();
    let helper = board.helper();
    let daemon = board.daemon();
    board.governor(|governor| governor["state"] == "holding");
    board.put(HEAT, "79500\n");
    board.wait_for(("pmode:0000", "306000000"), Duration::from_secs(20));
    board.processes[helper].kill().expect("killed");
    // ExecStopPost= of the unit; then the socket starts another one.
    let restored =
        Command::new(binary("orinoco-helper")).arg("--restore").arg("--root").arg(board.dir.path()).status();
    assert!(restored.expect("starts").success());
    board.wait_for(("pmode:0002", "612000000"), RESTORED_MAX);
    let status = board.governor(|governor| governor["state"] == "unavailable");
    assert_eq!(status["governor"]["fault"]["code"], "E0921");
    assert_eq!(status["healthy"], true, "the board runs on");
    fs::remove_file(board.path("helper.sock")).expect("removed");
    board.helper();
    board.wait_for(("pmode:0000", "306000000"), Duration::from_secs(40));
    let daemon = board.processes.remove(daemon);
    signal(&daemon, "TERM");
    assert_eq!(wait(daemon, WAIT_MAX).0, Some(0));
    board.wait_for(("pmode:0002", "612000000"), RESTORED_MAX);
}

#[test]
fn a_board_without_a_helper_runs_ungoverned_and_doctor_has_the_command() {
    let mut board = Board::new();
    let daemon = board.daemon();
    let status = board.governor(|governor| governor["fault"].is_object());
    assert_eq!(
        (&status["governor"]["state"], &status["governor"]["fault"]["code"]),
        (&"unavailable".into(), &"E0921".into())
    );
    board.governor(|_| true);
    let daemon = board.processes.remove(daemon);
    signal(&daemon, "TERM");
    assert_eq!(wait(daemon, WAIT_MAX).0, Some(0));
    let doctor =
        orinoco_tests::orinoco(&["doctor", "--json", "--board"]).arg(board.path("board.toml")).output();
    let report: Value = serde_json::from_slice(&doctor.expect("starts").stdout).expect("JSON");
    let parts = report["parts"].as_array().expect("parts");
    let part = parts.iter().find(|part| part["kind"] == "governor").expect("the governor is a part");
    assert_eq!((&part["state"], part["next"].is_string()), (&"missing".into(), true));
    assert_eq!(report["board_file"]["can_run"], true);
}

/// Copies the demo model, with another threshold.
fn put_variant(to: &Path) {
    let demo = root().join("models/person-nano");
    fs::create_dir_all(to.join("1")).expect("made");
    fs::copy(demo.join("1/model.onnx"), to.join("1/model.onnx")).expect("copied");
    let text = fs::read_to_string(demo.join("model.toml")).expect("readable");
    let (threshold, other) = ("score_threshold = 0.4", "score_threshold = 0.5");
    assert!(text.contains(threshold), "{text}");
    fs::write(to.join("model.toml"), text.replace(threshold, other)).expect("written");
}

#[test]
fn heat_lengthens_the_interval_then_takes_the_variant_while_the_stream_continues() {
    let mut board = Board::new();
    let (light, results) = (board.path("light"), board.path("results.jsonl"));
    put_variant(&light);
    let daemon = board.daemon_with(&format!(
        "actuators = ['interval', 'model-variant']\n[inference]\nengines = ['tract']\n\
         [[model]]\nname = 'person'\nmodel = '{}'\ninterval_max = 2\nvariants = ['{}']\n\
         [[sink]]\nname = 'results'\nkind = 'jsonl'\npath = '{}'\n\
         [[stream]]\nname = 'gate'\nsource = 'test://ball?width=320&height=240&fps=5&pace=pts'\n\
         models = ['person']\nsinks = ['results']\n",
        root().join("models/person-nano").display(),
        light.display(),
        results.display()
    ));
    board.governor(|governor| governor["state"] == "holding");
    board.put(HEAT, "79500\n");
    let status = board.governor(|governor| governor["state"] == "exhausted");
    let levels: Vec<&Value> = status["governor"]["actuators"]
        .as_array()
        .expect("actuators")
        .iter()
        .map(|one| &one["level"])
        .collect();
    assert_eq!(levels, [&Value::from("2"), &Value::from(light.display().to_string())]);
    let kinds = ["governor-step", "interval-changed", "model-replaced"];
    let events = status["events"].as_array().expect("events").iter();
    let seen: Vec<&str> =
        events.filter_map(|event| event["kind"].as_str()).filter(|kind| kinds.contains(kind)).collect();
    assert_eq!(seen, ["interval-changed", "governor-step", "model-replaced", "governor-step"]);
    board.put(HEAT, "50000\n");
    // It rises again when nothing has pressed for a while.
    board.governor(|governor| governor["steps_up"] == 1);
    let daemon = board.processes.remove(daemon);
    signal(&daemon, "TERM");
    assert_eq!(wait(daemon, WAIT_MAX).0, Some(0));
    let lines = fs::read_to_string(&results).expect("readable");
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let numbers: Vec<u64> = lines.iter().map(|line| line["seq"].as_u64().expect("a number")).collect();
    assert!(
        numbers.windows(2).all(|pair| pair[0] < pair[1]),
        "the stream has not started again: {numbers:?}"
    );
    println!("{} results of {} frames", lines.len(), numbers.last().expect("a result") + 1);
}
