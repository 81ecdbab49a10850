//! `orinoco status` and `orinoco top` against a daemon with a fixed answer.

#![expect(clippy::disallowed_methods, reason = "the tests wait for real processes")]

mod screen;
mod server;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use expect_test::{Expect, expect};
use serde_json::Value;
use server::{Answer, STATUS, serve, serve_tcp};

/// Time in which a command ends. Its own limit for an answer is 5 s.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

fn orinoco(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orinoco"));
    command.args(arguments).env_remove("ORINOCO_SOCKET").env_remove("CLICOLOR_FORCE");
    command
}

fn run(mut command: Command) -> Output {
    let start = Instant::now();
    let output = command.output().expect("orinoco starts");
    assert!(start.elapsed() < ENDS_WITHIN, "took {:?}", start.elapsed());
    output
}

fn status_of(socket: &Path, arguments: &[&str]) -> Output {
    let mut command = orinoco(&["status", "--socket"]);
    command.arg(socket).args(arguments);
    run(command)
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Checks that a command failed with one sentence, and exit code 3. The folder of the socket is shown as `FOLDER`.
fn check_failure(output: &Output, folder: &Path, expected: &Expect) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert_eq!(stdout(output), "");
    expected.assert_eq(&text.replace(&folder.display().to_string(), "FOLDER"));
}

#[test]
fn a_status_is_shown_as_tables() {
    let (_folder, socket) = serve(Answer::json("200 OK", STATUS));
    let output = status_of(&socket, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    expect![[r#"
        gate-north  healthy, not ready  up 3 h 12 min  orinoco 0.1.0

        stream                           state        fps  p50 ms  p99 ms      in     out  dropped  late  reconnects
        gate                             live        30.0   21.30   38.70  345812  345790       22    14           0
        yard                             live        25.0   24.10   41.90  288400  288400        0     0           1
        ramp                             stalled      0.0       -       -  201133  200871      262     2          17
        dock-door-4-overhead-wide-angle  connecting   0.0       -       -       0       0        0     0           3
          gate: 22 drop-oldest, 11 late in infer, 3 late in queue
          ramp: 250 lost-at-source, 12 drop-oldest, 2 late in decode
        1 stream ended

        model        engine           batch  images  p50 ms  p99 ms  mJ per image
        person-nano  ort-cuda 1.31.1      4  834190    7.90   12.40    61.4 ± 1.9
        plates       tract 0.23.9         1    9120   31.90   44.10             -
          person-nano: 12 % of the energy is split by busy time, because models ran at the same time
          plates: energy not measured: too few inferences so far

        lane  state               batches  frames  requests  busy  GPU busy
        0     executing for 4 ms   170300  634190         0  62 %      45 %
        1     waiting               50100  200871         3  19 %       0 %

        memory  700.0 MiB resident, 2048.0 MiB planned of 3072.0 MiB, 9216.0 MiB of the machine's 15452.6 MiB available
        energy  149812.0 J (VDD_IN, the whole board), 6.12 W while idle, 4 s without power readings, not included

        rail                W      V     A         J
        VDD_IN          14.08  19.03  0.74  149812.0
        VDD_CPU_GPU_CV   5.90  19.02  0.31   61200.0
        VDD_SOC          1.90  19.03  0.10   20113.0

        temperature     °C  limit
        cpu-thermal   58.5     99
        gpu-thermal   91.2     99
        cv0-thermal      -      -
        soc0-thermal  57.0     99
        tj-thermal    91.2     99
        tmp451 temp1  43.2      -

        clock          MHz  allowed  load
        15340000.vic   115      730     -
        17000000.gpu   612      918  71 %
        cpu 0-3       1510     1984  42 %
        cpu 4-7        730     1984  18 %
        all cores        -        -  30 %

        fan        rpm  power
        pwm_tach  2810      -
        pwmfan       -   34 %

        4 sensor values not known; the reasons: orinoco status --json, sensors.unknown

        event           level    what happened
        3 h 12 min ago  info     the source is live
        55 s ago        warning  attempt 4 failed: there is no /dev/video0
        7 s ago         warning  no frame for 5.0 s
    "#]].assert_eq(&stdout(&output));
}

#[test]
fn json_is_the_object_of_the_daemon() {
    let (_folder, socket) = serve(Answer::chunked(STATUS));
    let output = status_of(&socket, &["--json"]);
    let expected: Value = serde_json::from_str(STATUS).expect("JSON");
    let printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(printed, expected);
    assert_eq!(stdout(&output).lines().count(), 1, "one line");
}

#[test]
fn a_board_that_is_not_healthy_fails_the_check() {
    let stuck = STATUS.replace("\"healthy\": true", "\"healthy\": false");
    let (_folder, socket) = serve(Answer::json("200 OK", &stuck));
    let output = status_of(&socket, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).starts_with("gate-north  not healthy, not ready"), "{}", stdout(&output));
}

#[test]
fn the_socket_of_the_environment_and_an_address_are_used() {
    let (_folder, socket) = serve(Answer::json("200 OK", STATUS));
    let mut command = orinoco(&["status", "--json"]);
    command.env("ORINOCO_SOCKET", &socket);
    assert_eq!(run(command).status.code(), Some(0));
    for host in ["127.0.0.1", "localhost"] {
        let address = format!("http://{host}:{}", serve_tcp(Answer::json("200 OK", STATUS)));
        let output = run(orinoco(&["status", "--json", "--address", &address]));
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn without_a_daemon_the_command_to_start_it_is_given() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("orinoco.sock");
    check_failure(
        &status_of(&socket, &[]),
        folder.path(),
        &expect![[r#"
        error[E0911]: FOLDER/orinoco.sock: no daemon runs: its socket does not exist; start the daemon with `sudo systemctl start orinocod`, or name its socket with --socket
    "#]],
    );
    // A socket whose listener has gone.
    drop(std::os::unix::net::UnixListener::bind(&socket).expect("a socket"));
    check_failure(
        &status_of(&socket, &[]),
        folder.path(),
        &expect![[r#"
        error[E0911]: FOLDER/orinoco.sock: nobody listens at it: the daemon has ended; start the daemon with `sudo systemctl start orinocod`, or name its socket with --socket
    "#]],
    );
    let file = folder.path().join("file");
    fs::write(&file, "").expect("a file");
    check_failure(
        &status_of(&file, &[]),
        folder.path(),
        &expect![[r#"
        error[E0911]: FOLDER/file: it is not a socket; name the daemon's socket with --socket
    "#]],
    );
    let nobody =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a free port");
    let output = run(orinoco(&["status", "--address", &format!("http://{nobody}")]));
    let text = String::from_utf8_lossy(&output.stderr).replace(&nobody.to_string(), "ADDRESS");
    expect![[r#"
        error[E0911]: http://ADDRESS: no daemon listens at this address; name the address of [control] in the board file, or use the socket
    "#]].assert_eq(&text);
}

#[test]
fn without_permission_the_command_to_join_the_group_is_given() {
    let (folder, socket) = serve(Answer::json("200 OK", STATUS));
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o000)).expect("its mode is set");
    // Root may use every socket, so the test gives up root.
    let output = match rustix::process::geteuid().is_root() {
        false => status_of(&socket, &[]),
        true => {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("its mode is set");
            let program = folder.path().join("orinoco");
            fs::copy(env!("CARGO_BIN_EXE_orinoco"), &program).expect("the program is copied");
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
            command.args(["status", "--socket"]).arg(&socket).env("HOME", folder.path());
            run(command)
        }
    };
    check_failure(
        &output,
        folder.path(),
        &expect![[r#"
        error[E0912]: FOLDER/orinoco.sock: this user may not use the daemon's socket; run `sudo usermod -aG orinoco "$USER"` and log in again
    "#]],
    );
}

#[test]
fn an_answer_that_is_no_status_is_named() {
    let check = |answer: Answer, expected: Expect| {
        let (folder, socket) = serve(answer);
        check_failure(&status_of(&socket, &[]), folder.path(), &expected);
    };
    check(
        Answer::Bytes(b"SSH-2.0-OpenSSH_9.2p1\r\n".to_vec()),
        expect![[r#"
        error[E0914]: FOLDER/orinoco.sock: this is not the daemon: its answer is not HTTP; name the daemon's socket with --socket, or compare the versions of `orinoco` and `orinocod`
    "#]],
    );
    check(
        Answer::Bytes(Vec::new()),
        expect![[r#"
        error[E0914]: FOLDER/orinoco.sock: the connection was closed before the answer; try again; if it stays so, see `journalctl -u orinocod -n 50`
    "#]],
    );
    check(
        Answer::json("200 OK", "<html>It works!</html>"),
        expect![[r#"
        error[E0914]: FOLDER/orinoco.sock: this is not the daemon: its answer is not JSON; name the daemon's socket with --socket, or compare the versions of `orinoco` and `orinocod`
    "#]],
    );
    check(
        Answer::json("200 OK", "{\"schema\":\"orinoco.status/2\"}"),
        expect![[r#"
        error[E0914]: FOLDER/orinoco.sock: the daemon answers in the format orinoco.status/2, and this program reads orinoco.status/1; use the `orinoco` that was installed with the daemon
    "#]],
    );
    check(
        Answer::json("200 OK", "{\"schema\":\"orinoco.status/1\",\"version\":\"0.1.0\"}"),
        expect![[r#"
            error[E0914]: FOLDER/orinoco.sock: the daemon's status cannot be read: missing field `board`; use the `orinoco` that was installed with the daemon
        "#]],
    );
    check(
        Answer::json("200 OK", "[1, 2]"),
        expect![[r#"
        error[E0914]: FOLDER/orinoco.sock: this is not the daemon: its answer is JSON, but no status; name the daemon's socket with --socket, or compare the versions of `orinoco` and `orinocod`
    "#]],
    );
    check(
        Answer::json("404 Not Found", "no such page"),
        expect![[r#"
        error[E0914]: FOLDER/orinoco.sock: this is not the daemon: it refuses with HTTP 404 Not Found; name the daemon's socket with --socket, or compare the versions of `orinoco` and `orinocod`
    "#]],
    );
    let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n{\"schema\"".to_vec();
    check(
        Answer::Bytes(cut),
        expect![[r#"
            error[E0914]: FOLDER/orinoco.sock: the connection was closed in the middle of the answer; try again; if it stays so, see `journalctl -u orinocod -n 50`
        "#]],
    );
}

#[test]
fn what_the_daemon_says_itself_is_passed_on() {
    let report = r#"{"schema":"orinoco.error/1","faults":[{"code":"E0305","subject":"board","cause":"39.0 MiB over budget","next":"use a smaller model"}]}"#;
    let (folder, socket) = serve(Answer::json("503 Service Unavailable", report));
    let output = status_of(&socket, &[]);
    assert_eq!(output.status.code(), Some(2), "the exit code is that of the fault");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text, "error[E0305]: board: 39.0 MiB over budget; use a smaller model\n");
    drop(folder);
    let (folder, socket) = serve(Answer::json("503 Service Unavailable", "busy"));
    check_failure(
        &status_of(&socket, &[]),
        folder.path(),
        &expect![[r#"
        error[E0914]: FOLDER/orinoco.sock: this is not the daemon: it refuses with HTTP 503 Service Unavailable; name the daemon's socket with --socket, or compare the versions of `orinoco` and `orinocod`
    "#]],
    );
}

#[test]
fn a_daemon_that_does_not_answer_in_time_is_not_waited_for() {
    let expected = expect![[r#"
        error[E0913]: FOLDER/orinoco.sock: the daemon did not answer within 5 s; see what it does with `journalctl -u orinocod -n 50`, and try again
    "#]];
    for start in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"] {
        let (folder, socket) = serve(Answer::Unfinished(start.as_bytes().to_vec()));
        check_failure(&status_of(&socket, &[]), folder.path(), &expected);
    }
}

#[test]
fn top_prints_json_lines_and_says_when_the_daemon_goes() {
    let (_folder, socket) = serve(Answer::json("200 OK", STATUS));
    let mut command = orinoco(&["top", "--json", "--once", "--socket"]);
    let output = run({
        command.arg(&socket);
        command
    });
    let printed: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(printed, serde_json::from_str::<Value>(STATUS).expect("JSON"));
    let gone = tempfile::tempdir().expect("a temporary folder").path().join("orinoco.sock");
    let mut command = orinoco(&["top", "--json", "--socket"]);
    command.arg(&gone);
    let output = run(command);
    assert_eq!(output.status.code(), Some(3));
    let printed: Value = serde_json::from_slice(&output.stdout).expect("an error report");
    assert_eq!(printed["faults"][0]["code"], "E0911");
}

#[test]
fn top_shows_this_machine_where_no_daemon_runs() {
    let gone = tempfile::tempdir().expect("a temporary folder").path().join("orinoco.sock");
    let mut fallback = orinoco(&["top", "--json", "--once"]);
    fallback.env("ORINOCO_SOCKET", &gone);
    for (command, level) in
        [(fallback, "warning"), (orinoco(&["top", "--json", "--once", "--local"]), "info")]
    {
        let output = run(command);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let status: Value = serde_json::from_slice(&output.stdout).expect("one object");
        check_schema(&status);
        assert_eq!((&status["healthy"], &status["streams"]), (&false.into(), &Value::Array(Vec::new())));
        assert_eq!(
            (&status["events"][0]["kind"], &status["events"][0]["level"]),
            (&"no-daemon".into(), &level.into())
        );
        assert!(status["memory"]["machine_bytes"].as_u64().is_some_and(|bytes| bytes > 1 << 20));
        let load = status["sensors"]["cpu_load"].as_f64().expect("Linux counts the time of its cores");
        assert!((0.0..=1.0).contains(&load));
        let warning = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            warning.starts_with("warning: sensors of this machine only:"),
            level == "warning",
            "{warning}"
        );
    }
}

/// Checks that an object fits the schema of the status.
fn check_schema(status: &Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas/orinoco.status-1.schema.json");
    let schema: Value = serde_json::from_str(&fs::read_to_string(path).expect("a schema")).expect("JSON");
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    compiler.add_resource("mem:///status", schema).expect("a resource");
    let index = compiler.compile("mem:///status", &mut schemas).expect("a schema that compiles");
    schemas.validate(status, index).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn top_needs_a_terminal() {
    let output = run(orinoco(&["top"]));
    assert_eq!(output.status.code(), Some(2));
    expect![[r#"
        error[E0703]: orinoco top: standard output is not a terminal; use `orinoco top --json`
    "#]]
    .assert_eq(&String::from_utf8_lossy(&output.stderr));
}
