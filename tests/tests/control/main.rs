//! The daemon's control socket, over the life of a daemon.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
#![allow(clippy::print_stdout, reason = "tests say what they skip and what they compared")]

mod prometheus;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use orinoco_tests::{binary, root, signal, wait};
use serde_json::Value;

/// Maximum time that a test waits for a daemon.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Daemon with one stream, its control socket and its log.
struct Daemon {
    child: Child,
    log: BufReader<ChildStderr>,
    socket: PathBuf,
}

impl Daemon {
    /// Starts a daemon whose board file has `control` in its section [control].
    fn start(dir: &Path, control: &str, variables: &[(&str, &str)]) -> Self {
        write_board(dir, control);
        Self::run(dir, variables)
    }

    /// Starts a daemon with the board file in a folder.
    fn run(dir: &Path, variables: &[(&str, &str)]) -> Self {
        // As under systemd, WATCHDOG_PID names the daemon's own process (sd_watchdog_enabled(3)).
        let mut command = Command::new("sh");
        command.args(["-c", "WATCHDOG_PID=$$ exec \"$0\" --board \"$1\""]);
        command.arg(binary("orinocod")).arg(dir.join("board.toml"));
        command.envs(variables.iter().copied()).current_dir(root());
        // A daemon that outlives a failed test does not hold the test's own output.
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        let log = BufReader::new(child.stderr.take().expect("piped"));
        Self { child, log, socket: dir.join("orinoco.sock") }
    }

    /// Reads the log up to a line with `wanted`, and returns the line.
    fn hear(&mut self, wanted: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.log.read_line(&mut line).expect("text") > 0, "the daemon ended without `{wanted}`");
            if line.contains(wanted) {
                return line;
            }
        }
    }

    /// Reads the log to its end.
    fn rest_of_log(mut self) -> String {
        let mut text = String::new();
        self.log.read_to_string(&mut text).expect("text");
        self.child.wait().expect("a child");
        text
    }

    fn get(&self, path: &str) -> (u16, String) {
        get(UnixStream::connect(&self.socket).expect("the socket answers"), "localhost", path)
    }

    /// Asks until the answer is as wanted.
    fn get_until(&self, path: &str, is_wanted: impl Fn(u16, &str) -> bool) -> String {
        let begin = Instant::now();
        loop {
            let (status, body) = self.get(path);
            if is_wanted(status, &body) {
                return body;
            }
            assert!(begin.elapsed() < WAIT_MAX, "{path}: {status} {body}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn stop(self) {
        signal(&self.child, "TERM");
        assert_eq!(wait(self.child, WAIT_MAX).0, Some(0));
        assert!(!self.socket.exists(), "the socket is gone with its daemon");
    }
}

fn write_board(dir: &Path, control: &str) {
    let text = format!(
        "version = 1\n[control]\n{control}\n\
         [[stream]]\nname = 'gate'\nsource = 'test://ball?pace=pts'\nmodels = []\n"
    );
    fs::write(dir.join("board.toml"), text).expect("written");
}

fn socket_key(dir: &Path) -> String {
    format!("socket = '{}'\n", dir.join("orinoco.sock").display())
}

/// Sends a request and returns status and body of its answer.
fn get(mut stream: impl Read + Write, host: &str, path: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head[9..12].parse().expect("a status"), body.to_owned())
}

/// Compares an object with the schema of its contract.
fn assert_is_of(schema: &str, object: &Value) {
    let file = root().join(format!("docs/schemas/{schema}.schema.json"));
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    let index = compiler.compile(&file.display().to_string(), &mut schemas).expect("a schema");
    assert_eq!(schemas.validate(object, index).err().map(|why| why.to_string()), None);
}

#[test]
fn a_daemon_serves_its_state_until_it_ends() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let mut daemon = Daemon::start(dir.path(), &(socket_key(dir.path()) + "listen = '127.0.0.1:0'\n"), &[]);
    let line = daemon.hear("control socket=");
    let address = line.trim().rsplit_once("listen=").expect("its address").1.to_owned();
    daemon.hear("running");
    let ready = daemon.get_until("/readyz", |status, _| status == 200);
    assert_is_of("orinoco.health-1", &serde_json::from_str(&ready).expect("JSON"));
    let text = daemon.get_until("/v1/status", |_, body| {
        let status: Value = serde_json::from_str(body).expect("JSON");
        status["streams"][0]["frames_out"].as_u64().expect("a count") > 10
    });
    let status: Value = serde_json::from_str(&text).expect("JSON");
    assert_is_of("orinoco.status-1", &status);
    assert_eq!((&status["board"], &status["streams"][0]["name"]), (&"board".into(), &"gate".into()));
    let (code, metrics) = get(TcpStream::connect(&address).expect("it listens"), &address, "/metrics");
    assert_eq!(code, 200);
    assert!(
        metrics.contains("stream=\"gate\"") && metrics.contains("orinoco_server_requests_total"),
        "{metrics}"
    );
    check_metrics(&metrics);
    assert_eq!(get(TcpStream::connect(&address).expect("it listens"), "evil.example", "/metrics").0, 403);
    assert!(daemon.get("/v1/dump").1.contains("\"events\""));
    let mut events = BufReader::new(UnixStream::connect(&daemon.socket).expect("the socket answers"));
    let request = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    events.get_mut().write_all(request).expect("sent");
    let event = events.lines().map(|line| line.expect("the stream goes on")).find_map(|line| {
        let event: Value = serde_json::from_str(line.strip_prefix("data: ")?).expect("JSON");
        (event["kind"] == "source-state" && event["subject"] == "gate").then_some(event)
    });
    assert_is_of("orinoco.event-1", &event.expect("an event"));
    // What listens is fixed while the board runs.
    write_board(dir.path(), &socket_key(dir.path()));
    signal(&daemon.child, "HUP");
    assert!(daemon.hear("E0110").contains("[control]"));
    daemon.stop();
    assert!(TcpStream::connect(&address).is_err());
}

/// Has Prometheus's own checker read the metrics.
fn check_metrics(text: &str) {
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut checker) = promtool.spawn() else {
        println!("skipped: promtool is not installed (Debian: prometheus)");
        return;
    };
    checker.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
    let output = checker.wait_with_output().expect("it ends");
    let said = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
    assert!(output.status.success() && said.is_empty(), "{said}\n{text}");
}

#[test]
fn a_killed_daemon_leaves_its_socket_to_the_next_and_a_running_one_does_not() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let key = socket_key(dir.path());
    let mut killed = Daemon::start(dir.path(), &key, &[]);
    killed.hear("running");
    signal(&killed.child, "KILL");
    wait(killed.child, WAIT_MAX);
    assert!(killed.socket.exists(), "nobody was there to remove it");
    let mut next = Daemon::start(dir.path(), &key, &[]);
    next.hear("running");
    assert_eq!(next.get("/healthz").0, 200);
    let mut refused = Daemon::start(dir.path(), &key, &[]);
    assert!(refused.hear("E0901").contains("another process listens on it"));
    assert_eq!(wait(refused.child, WAIT_MAX).0, Some(2));
    assert_eq!(next.get("/healthz").0, 200);
    next.stop();
}

#[test]
fn a_signal_of_a_crash_leaves_a_dump_and_ends_the_daemon_by_its_signal() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let state = dir.path().join("state");
    let variables = [("STATE_DIRECTORY", state.to_str().expect("text"))];
    let mut daemon = Daemon::start(dir.path(), &socket_key(dir.path()), &variables);
    daemon.hear("running");
    daemon.get_until("/readyz", |status, _| status == 200);
    signal(&daemon.child, "SEGV");
    assert!(daemon.hear("crashed: ").contains("SIGSEGV from another process"));
    daemon.hear("dump=");
    let ended = daemon.child.wait().expect("a child");
    assert_eq!(ended.signal(), Some(11), "{ended}: systemd and core files see the signal");
    let dumps: Vec<_> = fs::read_dir(state.join("dumps"))
        .expect("a folder")
        .map(|dump| dump.expect("a file").path())
        .collect();
    let [path] = &dumps[..] else { panic!("one dump: {dumps:?}") };
    assert!(path.to_str().expect("text").ends_with("-crash.json"));
    let dump: Value = serde_json::from_slice(&fs::read(path).expect("readable")).expect("JSON");
    assert_is_of("orinoco.dump-1", &dump);
    assert_eq!(
        (dump["reason"].as_str(), dump["crash"].as_str()),
        (Some("crash"), Some("SIGSEGV from another process"))
    );
    assert!(!dump["trace"].as_array().expect("a list").is_empty(), "it has the latest records");
}

#[test]
fn a_crash_while_the_board_starts_is_told_and_ends_the_daemon_by_its_signal() {
    let dir = tempfile::tempdir().expect("temporary folder");
    // The start waits some seconds for the reader of a named pipe.
    let pipe = dir.path().join("results");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("starts").success());
    let text = format!(
        "version = 1\n[control]\nsocket = false\n\
         [[sink]]\nname = 's'\nkind = 'jsonl'\npath = '{}'\n\
         [[stream]]\nname = 'gate'\nsource = 'test://ball?pace=pts'\nmodels = []\nsinks = ['s']\n",
        pipe.display()
    );
    fs::write(dir.path().join("board.toml"), text).expect("written");
    let mut daemon = Daemon::run(dir.path(), &[]);
    let begin = Instant::now();
    while !catches_abort(&daemon.child) {
        assert!(begin.elapsed() < WAIT_MAX, "the daemon does not install its handler");
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(&daemon.child, "ABRT");
    let told = daemon.hear("crashed: ");
    assert!(told.contains("SIGABRT from another process while engines and models were loaded"), "{told}");
    let ended = daemon.child.wait().expect("a child");
    assert_eq!(ended.signal(), Some(6), "{ended}");
}

/// Whether a process has a handler for SIGABRT (proc_pid_status(5), `SigCgt`).
fn catches_abort(child: &Child) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a mask");
    u64::from_str_radix(caught.trim(), 16).expect("a hexadecimal number") & 1 << (6 - 1) != 0
}

/// A camera that cannot be reached is told of again and again, with its address, but not with its password.
#[test]
fn passwords_in_sources_are_shown_nowhere() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port();
    write_board(dir.path(), &socket_key(dir.path()));
    let path = dir.path().join("board.toml");
    let camera = format!(
        "[[stream]]\nname = 'camera'\nsource = 'rtsp://guard:open-sesame@127.0.0.1:{port}/live'\nmodels = []\n"
    );
    fs::write(&path, fs::read_to_string(&path).expect("readable") + &camera).expect("written");
    let mut daemon = Daemon::run(dir.path(), &[]);
    let mut said = daemon.hear("running");
    let shown = format!("127.0.0.1:{port}");
    let mut seen = daemon.get_until("/v1/dump", |_, dump| dump.contains(&shown));
    seen += &daemon.get_until("/v1/status", |_, status| status.contains("camera"));
    seen += &daemon.get("/metrics").1;
    signal(&daemon.child, "TERM");
    said += &daemon.rest_of_log();
    assert!(said.contains(&shown), "{said}");
    let secret = "open-sesame";
    assert!(!seen.contains(secret) && !said.contains(secret), "{seen}\n{said}");
}

#[test]
fn the_watchdog_is_fed_while_the_board_runs() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let address = dir.path().join("notify");
    let systemd = UnixDatagram::bind(&address).expect("bound");
    systemd.set_read_timeout(Some(WAIT_MAX)).expect("set");
    let notify = address.display().to_string();
    let variables = [("NOTIFY_SOCKET", notify.as_str()), ("WATCHDOG_USEC", "400000")];
    let daemon = Daemon::start(dir.path(), "socket = false\n", &variables);
    let (mut fed, begin) = (0, Instant::now());
    while fed < 3 {
        assert!(begin.elapsed() < WAIT_MAX, "fed {fed} times");
        let mut buffer = [0; 4096];
        let length = systemd.recv(&mut buffer).expect("a notification in time");
        fed += usize::from(buffer[..length].starts_with(b"WATCHDOG=1"));
    }
    daemon.stop();
}
