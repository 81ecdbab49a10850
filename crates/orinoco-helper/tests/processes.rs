//! The helper as a process, with clients that are processes: who is served, and what is restored when one is killed.

#![expect(clippy::disallowed_methods, reason = "the test waits for real processes")]
#![allow(clippy::print_stdout, reason = "tests say what they skip")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use orinoco_helper::{Client, ClientError, REQUEST_BYTES_MAX, RefusalReason, Request};

/// Longest time until everything is restored after somebody was killed.
const RESTORED_MAX: Duration = Duration::from_secs(2);
const GPU: &str = "sys/class/devfreq/17000000.gpu/max_freq";
const STATUS: &str = "var/lib/nvpmodel/status";
/// Variable with the socket for the client that this test starts as a process of its own.
const CLIENT: &str = "ORINOCO_TEST_HELPER_SOCKET";

/// Synthetic board, and a helper that serves its socket.
struct Rig {
    dir: tempfile::TempDir,
    helper: Child,
}

impl Rig {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let put = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        let uid = rustix::process::geteuid().as_raw();
        put("etc/passwd", &format!("orinoco:x:{uid}:{uid}::/:/bin/false\n"));
        put("etc/nvpmodel.conf", "< POWER_MODEL ID=0 NAME=15W >\n< POWER_MODEL ID=2 NAME=MAXN >\n");
        put(STATUS, "pmode:0002\n");
        put("sys/class/devfreq/17000000.gpu/available_frequencies", "306000000 612000000\n");
        put(GPU, "612000000\n");
        put(
            "usr/sbin/nvpmodel",
            "#!/bin/sh\n# Synthetic nvpmodel.\nroot=${0%/usr/sbin/nvpmodel}\n\
             echo \"pmode:000$2\" > \"$root/var/lib/nvpmodel/status\"\n\
             echo 612000000 > \"$root/sys/class/devfreq/17000000.gpu/max_freq\"\n",
        );
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(dir.path().join("usr/sbin/nvpmodel"), executable).expect("set");
        let listener = UnixListener::bind(dir.path().join("socket")).expect("bound");
        // The service opens it for its group; here a client of another user connects, too.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("set");
        fs::set_permissions(dir.path().join("socket"), fs::Permissions::from_mode(0o666)).expect("set");
        let helper = helper(dir.path()).stdin(OwnedFd::from(listener)).spawn().expect("starts");
        Self { dir, helper }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    fn connect(&self) -> Client {
        Client::connect(&self.socket()).expect("the helper answers").0
    }

    fn settings(&self) -> (String, String) {
        let get = |name| fs::read_to_string(self.dir.path().join(name)).expect("readable").trim().to_owned();
        (get(STATUS), get(GPU))
    }

    /// Waits until everything is as it was at the start.
    fn assert_restored_soon(&self) {
        let begin = Instant::now();
        let original = ("pmode:0002".to_owned(), "612000000".to_owned());
        while self.settings() != original || self.dir.path().join("run/orinoco-helper/saved.json").exists() {
            assert!(begin.elapsed() < RESTORED_MAX, "{:?}", self.settings());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // It may have been killed by the test.
        let _ = self.helper.kill();
        let _ = self.helper.wait();
    }
}

fn helper(root: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orinoco-helper"));
    command.arg("--root").arg(root).stderr(Stdio::null());
    command
}

fn lower(client: &mut Client) {
    client.ask(&Request::SetPowerMode { name: "15W".to_owned() }).expect("set");
    let clock = Request::SetClock { domain: "devfreq/17000000.gpu".to_owned(), hertz: 306_000_000 };
    let state = client.ask(&clock).expect("set");
    assert!(state.is_changed);
}

/// Not a test of its own: the process of a client that lowers everything and waits to be killed.
#[test]
fn client_process() {
    let Some(socket) = std::env::var_os(CLIENT) else { return };
    let (mut client, _) = Client::connect(Path::new(&socket)).expect("the helper answers");
    lower(&mut client);
    let mut stdin = String::new();
    // Its end never comes before the kill.
    let _ = std::io::stdin().read_to_string(&mut stdin);
}

#[test]
fn a_killed_client_is_restored() {
    let rig = Rig::start();
    let mut client = Command::new(std::env::current_exe().expect("a running test has a path"));
    client.args(["--exact", "client_process", "--nocapture"]).env(CLIENT, rig.socket());
    let mut client =
        client.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    let begin = Instant::now();
    while rig.settings() != ("pmode:0000".to_owned(), "306000000".to_owned()) {
        assert!(begin.elapsed() < Duration::from_secs(20), "the client lowers the settings");
        std::thread::sleep(Duration::from_millis(5));
    }
    client.kill().expect("killed");
    rig.assert_restored_soon();
    client.wait().expect("it ends");
    lower(&mut rig.connect());
    rig.assert_restored_soon();
}

#[test]
fn a_killed_helper_is_restored_by_what_systemd_starts_next() {
    let mut rig = Rig::start();
    let mut client = rig.connect();
    lower(&mut client);
    rig.helper.kill().expect("killed");
    rig.helper.wait().expect("it ends");
    assert_eq!(
        rig.settings(),
        ("pmode:0000".to_owned(), "306000000".to_owned()),
        "nobody was there to restore"
    );
    // ExecStopPost= of the unit.
    let status = helper(rig.dir.path()).arg("--restore").status().expect("starts");
    assert!(status.success());
    rig.assert_restored_soon();
    assert!(matches!(client.ask(&Request::Status {}), Err(ClientError::Broken(_))));
}

#[test]
fn the_next_start_restores_too() {
    let mut rig = Rig::start();
    lower(&mut rig.connect());
    rig.assert_restored_soon();
    let mut client = rig.connect();
    lower(&mut client);
    rig.helper.kill().expect("killed");
    rig.helper.wait().expect("it ends");
    fs::remove_file(rig.socket()).expect("removed");
    let listener = UnixListener::bind(rig.socket()).expect("bound");
    rig.helper = helper(rig.dir.path()).stdin(OwnedFd::from(listener)).spawn().expect("starts");
    rig.assert_restored_soon();
}

#[test]
fn one_client_at_a_time_is_served() {
    let rig = Rig::start();
    let mut first = rig.connect();
    lower(&mut first);
    match Client::connect(&rig.socket()) {
        Err(ClientError::Refused(refusal)) => assert_eq!(refusal.reason, RefusalReason::Busy),
        other => panic!("{other:?}"),
    }
    assert!(first.ask(&Request::Status {}).expect("it is served on").is_changed);
    drop(first);
    rig.assert_restored_soon();
    rig.connect();
}

#[test]
fn another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can start a process of another user");
    }
    let rig = Rig::start();
    // The user of the daemon and root may ask; this one is neither.
    let output = Command::new(std::env::current_exe().expect("a running test has a path"))
        .args(["--exact", "client_process", "--nocapture"])
        .env(CLIENT, rig.socket())
        .uid(65_534)
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else {
        return println!("skipped: the test lies where other users cannot start it");
    };
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(!output.status.success() && text.contains("NotAllowed"), "{text}");
}

#[test]
fn noise_neither_ends_the_helper_nor_changes_anything() {
    let rig = Rig::start();
    let before = rig.settings();
    // A linear congruential generator: any bytes will do, and the same ones each time.
    let mut number: u32 = 1;
    let mut random = || {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (number >> 16) as u8
    };
    for round in 0..200 {
        let mut stream = UnixStream::connect(rig.socket()).expect("it listens");
        let length = usize::from(random()) * 5;
        let bytes: Vec<u8> = (0..length).map(|_| if random() < 20 { b'\n' } else { random() }).collect();
        // Of a line that is too long the helper takes the start only, and closes.
        let _ = stream.write_all(&bytes);
        if round % 2 == 0 {
            // Each request is answered by one line.
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut answers = String::new();
            let _ = stream.read_to_string(&mut answers);
            assert!(
                answers.lines().all(|line| line.contains("not-a-request") | line.contains("busy")),
                "{answers}"
            );
        }
    }
    assert_eq!(rig.settings(), before);
    let mut stream = connect_until_served(&rig);
    stream.get_mut().write_all(&vec![b'x'; REQUEST_BYTES_MAX]).expect("sent");
    let mut line = String::new();
    stream.read_line(&mut line).expect("an answer");
    assert!(line.contains("at most 512 bytes"), "{line}");
}

/// Connects, again if the client before is not gone yet.
fn connect_until_served(rig: &Rig) -> BufReader<UnixStream> {
    loop {
        let mut stream = BufReader::new(UnixStream::connect(rig.socket()).expect("it listens"));
        stream.get_mut().write_all(b"{\"verb\":\"status\"}\n").expect("sent");
        let mut line = String::new();
        if stream.read_line(&mut line).is_ok() && line.contains("\"done\"") {
            return stream;
        }
    }
}
