//! Whole runs: boards, interruption, the daemon, memory of what was said in the summary.
#![allow(clippy::print_stdout, reason = "tests say what they skip and what they compared")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use orinoco_tests::{binary, orinoco, results, root, signal, wait};
use serde_json::Value;

fn board(dir: &Path, source: &str) -> String {
    let out = dir.join("{stream}.jsonl").display().to_string();
    let text = format!(
        "version = 1\n[[model]]\nname = 'person-nano'\n[[sink]]\nname = 's'\nkind = 'jsonl'\npath = '{out}'\n\
         [[stream]]\nname = 'a'\nsource = '{source}'\nmodels = ['person-nano']\nsinks = ['s']\n\
         [[stream]]\nname = 'b'\nsource = '{source}'\nmodels = ['person-nano', 'person-nano']\nsinks = ['s']\n"
    );
    let path = dir.join("board.toml");
    fs::write(&path, text).expect("written");
    path.display().to_string()
}

/// What stands for systemd: a socket, and its address.
fn notified(dir: &Path) -> (UnixDatagram, PathBuf) {
    let address = dir.join("notify");
    let socket = UnixDatagram::bind(&address).expect("bound");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
    (socket, address)
}

/// Waits until systemd is told `wanted`.
fn hear(systemd: &UnixDatagram, wanted: &str) {
    let mut buffer = [0; 4096];
    loop {
        let size = systemd.recv(&mut buffer).unwrap_or_else(|why| panic!("waiting for {wanted}: {why}"));
        if String::from_utf8_lossy(&buffer[..size]).contains(wanted) {
            return;
        }
    }
}

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).expect("readable").lines().count()
}

#[test]
fn a_board_runs_all_its_streams_and_counts_every_frame() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let board = board(dir.path(), "test://ball?frames=20");
    let output = orinoco(&["run", "--board", &board, "--json"]).output().expect("starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let summary: Value = serde_json::from_slice(&output.stdout).expect("one JSON summary");
    assert_eq!((&summary["schema"], &summary["end"]), (&"orinoco.summary/1".into(), &"complete".into()));
    for stream in summary["streams"].as_array().expect("streams") {
        assert_eq!((&stream["frames_in"], &stream["frames_out"]), (&20.into(), &20.into()));
        assert_eq!(stream["dropped"].as_array().map(Vec::len), Some(0));
        let stages: Vec<&str> =
            stream["stages"].as_array().expect("stages").iter().filter_map(|s| s["stage"].as_str()).collect();
        assert_eq!(stages, ["queue", "preprocess", "infer", "postprocess", "sink", "total"]);
    }
    assert_eq!((lines(&dir.path().join("a.jsonl")), lines(&dir.path().join("b.jsonl"))), (20, 40));
}

#[test]
fn without_onnx_runtime_tract_serves_and_says_why() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let mut command = orinoco(&["run", "--model", "person-nano", "--source", "test://ball?frames=2"]);
    command.env("XDG_CACHE_HOME", dir.path()).env("HOME", dir.path()).env_remove("ORT_DYLIB_PATH");
    let output = command
        .args(["--summary", &dir.path().join("s.json").display().to_string()])
        .output()
        .expect("starts");
    assert!(output.status.success());
    let summary: Value =
        serde_json::from_slice(&fs::read(dir.path().join("s.json")).expect("written")).expect("JSON");
    let model = &summary["models"][0];
    if model["engine"] == "ort-cpu" {
        println!("skipped: ONNX Runtime is installed system-wide");
        return;
    }
    assert_eq!((&model["engine"], &model["refused"][0]["engine"]), (&"tract".into(), &"ort-cpu".into()));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("ort-cpu refused") && text.contains("libonnxruntime"), "{text}");
}

#[test]
fn ctrl_c_ends_with_the_summary() {
    let mut command =
        orinoco(&["run", "--model", "person-nano", "--source", "test://ball?pace=pts", "--json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("starts");
    let mut reader = BufReader::new(child.stdout.take().expect("piped"));
    let mut first = String::new();
    reader.read_line(&mut first).expect("a result comes");
    signal(&child, "INT");
    let rest: Vec<String> = reader.lines().map(|line| line.expect("text")).collect();
    let (code, _) = wait(child, Duration::from_secs(10));
    assert_eq!(code, Some(130));
    let summary: Value = serde_json::from_str(rest.last().expect("a summary")).expect("JSON");
    assert_eq!(summary["end"], "interrupted");
    assert_eq!(summary["streams"][0]["frames_in"], summary["streams"][0]["frames_out"]);
}

#[test]
fn the_daemon_tells_systemd_and_drains_on_sigterm() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let board = board(dir.path(), "test://ball?pace=pts");
    let (systemd, socket) = notified(dir.path());
    let mut command = Command::new(binary("orinocod"));
    command.args(["--board", &board, "--summary", &dir.path().join("s.json").display().to_string()]);
    command.current_dir(root()).env("NOTIFY_SOCKET", &socket).stderr(Stdio::null());
    let child = command.spawn().expect("starts");
    hear(&systemd, "READY=1");
    hear(&systemd, "STATUS=");
    std::thread::sleep(Duration::from_millis(500));
    signal(&child, "TERM");
    hear(&systemd, "STOPPING=1");
    let (code, _) = wait(child, Duration::from_secs(10));
    assert_eq!(code, Some(0));
    let summary: Value =
        serde_json::from_slice(&fs::read(dir.path().join("s.json")).expect("written")).expect("JSON");
    for (stream, name, models) in [(0, "a", 1), (1, "b", 2)] {
        let frames = summary["streams"][stream]["frames_in"].as_u64().expect("a count") as usize;
        assert!(frames > 0);
        assert_eq!(
            lines(&dir.path().join(format!("{name}.jsonl"))),
            frames * models,
            "every frame in work was finished"
        );
    }
}

#[test]
fn a_daemon_whose_log_nobody_reads_still_stops() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let board = board(dir.path(), "test://ball?pace=pts");
    let mut command = Command::new(binary("orinocod"));
    command.args(["--board", &board, "--summary", &dir.path().join("s.json").display().to_string()]);
    let mut child = command.current_dir(root()).stderr(Stdio::piped()).spawn().expect("starts");
    let mut said = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("state=live") {
        line.clear();
        assert!(said.read_line(&mut line).expect("text") > 0, "it ended");
    }
    drop(said);
    signal(&child, "TERM");
    assert_eq!(wait(child, Duration::from_secs(10)).0, Some(0));
    assert!(dir.path().join("s.json").is_file());
}

#[test]
fn a_daemon_whose_log_is_stuck_still_stops() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let board = board(dir.path(), "test://ball?pace=pts");
    let (systemd, socket) = notified(dir.path());
    // A pipe that is full, and stays full: its reader is there, and reads nothing.
    let (reader, mut writer) = std::io::pipe().expect("made");
    let log = writer.try_clone().expect("cloned");
    let filler = std::thread::spawn(move || while writer.write_all(&[b'.'; 4096]).is_ok() {});
    std::thread::sleep(Duration::from_millis(200));
    let mut command = Command::new(binary("orinocod"));
    command.args(["--board", &board, "--summary", &dir.path().join("s.json").display().to_string()]);
    command.current_dir(root()).env("NOTIFY_SOCKET", socket).stderr(log);
    let child = command.spawn().expect("starts");
    hear(&systemd, "READY=1");
    signal(&child, "TERM");
    assert_eq!(wait(child, Duration::from_secs(10)).0, Some(0));
    assert!(dir.path().join("s.json").is_file());
    drop((command, reader));
    filler.join().expect("its pipe has no reader any more");
}

#[test]
fn a_daemon_with_a_stuck_output_still_stops() {
    if std::env::var_os("ORINOCO_TEST_LONG").is_none() {
        println!("skipped: it takes the 50 s that a board may take to end (ORINOCO_TEST_LONG=1)");
        return;
    }
    let dir = tempfile::tempdir().expect("temporary folder");
    // Frames that go nowhere but into a pipe that nobody reads; file sources wait for it.
    let board = dir.path().join("board.toml");
    let text = format!(
        "version = 1\n[[sink]]\nname = 's'\nkind = 'framemd5'\npath = '{dir}/{{stream}}'\n\
         [[stream]]\nname = 'stuck'\nsource = 'test://ball'\nmodels = []\nsinks = ['s']\n\
         [[stream]]\nname = 'fine'\nsource = 'test://ball?pace=pts'\nmodels = []\nsinks = ['s']\n",
        dir = dir.path().display()
    );
    fs::write(&board, text).expect("written");
    let pipe = dir.path().join("stuck");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("starts").success());
    let reader = fs::File::options().read(true).write(true).open(&pipe).expect("a pipe");
    let mut command = Command::new(binary("orinocod"));
    command.args(["--board", &board.display().to_string()]);
    command.args(["--summary", &dir.path().join("s.json").display().to_string()]);
    let child = command.current_dir(root()).stderr(Stdio::null()).spawn().expect("starts");
    std::thread::sleep(Duration::from_secs(5));
    signal(&child, "TERM");
    assert_eq!(wait(child, Duration::from_secs(60)).0, Some(3));
    let summary: Value =
        serde_json::from_slice(&fs::read(dir.path().join("s.json")).expect("written")).expect("JSON");
    let faults = summary["faults"].as_array().expect("faults");
    assert_eq!((faults.len(), &faults[0]["subject"]), (1, &"thread sink-stuck".into()));
    assert!(lines(&dir.path().join("fine")) > 0);
    drop(reader);
}

#[test]
fn a_batch_finds_what_single_frames_find() {
    let run = |batch: &str| {
        let source = "test://ball?frames=10";
        let arguments = [
            "run",
            "--model",
            "person-nano",
            "--source",
            source,
            "--score",
            "0.001",
            "--batch",
            batch,
            "--json",
        ];
        let output = orinoco(&arguments).output().expect("starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        results(&output)
    };
    let (single, batched) = (run("1"), run("4"));
    assert_eq!((single.len(), batched.len()), (10, 10));
    for (one, other) in single.iter().zip(&batched) {
        assert_eq!(
            (one.seq, one.pts_ns, one.detections.len()),
            (other.seq, other.pts_ns, other.detections.len())
        );
        for (a, b) in one.detections.iter().zip(&other.detections) {
            assert!((a.score - b.score).abs() < 1e-4, "{a:?} {b:?}");
        }
    }
}
