//! Whole runs: boards, interruption, the daemon, and outputs without a reader.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
#![allow(clippy::print_stdout, reason = "tests say what they skip and what they compared")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use orinoco_tests::{binary, orinoco, results, root, signal, wait};
use serde_json::Value;

fn board(dir: &Path, source: &str) -> String {
    let out = dir.join("{stream}.jsonl").display().to_string();
    let text = format!(
        "version = 1\n[[model]]\nname = 'person-nano'\n[[model]]\nname = 'again'\nmodel = 'person-nano'\n\
         [[sink]]\nname = 's'\nkind = 'jsonl'\npath = '{out}'\n\
         [[stream]]\nname = 'a'\nsource = '{source}'\nmodels = ['person-nano']\nsinks = ['s']\n\
         [[stream]]\nname = 'b'\nsource = '{source}'\nmodels = ['person-nano', 'again']\nsinks = ['s']\n"
    );
    let path = dir.join("board.toml");
    fs::write(&path, text).expect("written");
    path.display().to_string()
}

/// Creates a socket in the place of systemd's, and returns it with its address.
fn notified(dir: &Path) -> (UnixDatagram, PathBuf) {
    let address = dir.join("notify");
    let socket = UnixDatagram::bind(&address).expect("bound");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
    (socket, address)
}

/// Waits until systemd receives a notification with `wanted`.
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

/// Starts a run of a paced test pattern with a model, and waits for the first result. Returns the run and the reader of
/// its results.
fn live_run(arguments: &[&str]) -> (Child, BufReader<ChildStdout>) {
    let source = ["run", "--model", "person-nano", "--source", "test://ball?pace=pts", "--sink", "jsonl"];
    let mut command = orinoco(&[&source[..], arguments].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("starts");
    let mut reader = BufReader::new(child.stdout.take().expect("piped"));
    reader.read_line(&mut String::new()).expect("a result comes");
    (child, reader)
}

#[test]
fn a_hangup_ends_a_run_as_sigterm_does_with_its_outputs_complete() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let [results, summary] = ["r.jsonl", "s.json"].map(|name| dir.path().join(name).display().to_string());
    for signals in [&["TERM"][..], &["HUP"], &["HUP", "HUP", "HUP"]] {
        let (child, reader) = live_run(&["--results", &results, "--summary", &summary]);
        // A shell forwards a hangup that the kernel has already sent. So several hangups are not a request to abort at
        // once.
        signals.iter().for_each(|name| signal(&child, name));
        drop(std::thread::spawn(move || reader.lines().for_each(drop)));
        assert_eq!(wait(child, Duration::from_secs(10)).0, Some(130), "{signals:?}");
        let written: Value = serde_json::from_slice(&fs::read(&summary).expect("a summary")).expect("JSON");
        assert_eq!(written["end"], "interrupted", "{signals:?}");
        assert_eq!(Some(lines(Path::new(&results)) as u64), written["streams"][0]["frames_out"].as_u64());
    }
}

#[test]
fn a_hangup_that_was_ignored_from_the_start_is_ignored() {
    let mut command = Command::new("sh");
    // nohup ignores the signal in the same way.
    command.args(["-c", "trap '' HUP; exec \"$0\" run --source 'test://ball?pace=pts' --sink framemd5"]);
    command.arg(binary("orinoco")).current_dir(root());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("starts");
    let mut reader = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = || reader.read_line(&mut String::new()).expect("text") > 0;
    assert!(line());
    signal(&child, "HUP");
    std::thread::sleep(Duration::from_millis(500));
    assert!(child.try_wait().expect("waits").is_none(), "it has ended");
    signal(&child, "TERM");
    while line() {}
    assert_eq!(wait(child, Duration::from_secs(10)).0, Some(130));
}

/// Asserts that a run ends by itself with success soon after its output has no reader any more: within a second on an
/// idle machine.
fn assert_ends_unread(child: Child) {
    assert_eq!(wait(child, Duration::from_secs(5)).0, Some(0));
}

#[test]
fn a_live_run_that_nobody_reads_ends_with_success() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let summary = dir.path().join("s.json").display().to_string();
    let (child, reader) = live_run(&["--summary", &summary]);
    drop(reader);
    assert_ends_unread(child);
    let summary: Value = serde_json::from_slice(&fs::read(summary).expect("written")).expect("JSON");
    assert_eq!((&summary["end"], summary["faults"].as_array().map(Vec::len)), (&"complete".into(), Some(0)));
    let stream = &summary["streams"][0];
    let count = |value: &Value| value.as_u64().expect("a count");
    let dropped: u64 =
        stream["dropped"].as_array().expect("causes").iter().map(|d| count(&d["frames"])).sum();
    assert_eq!(count(&stream["frames_in"]), count(&stream["frames_out"]) + dropped);
}

#[test]
fn an_output_that_failed_does_not_count_as_one_that_is_read() {
    // Every write to `/dev/full` fails.
    let (child, reader) = live_run(&["--sink", "jsonl=/dev/full"]);
    std::thread::sleep(Duration::from_secs(1));
    drop(reader);
    assert_eq!(wait(child, Duration::from_secs(10)).0, Some(3), "the failed output is reported");
}

#[test]
fn a_file_that_nobody_reads_the_results_of_ends_with_success() {
    for sink in ["jsonl", "framemd5"] {
        let source = "test://ball?frames=1000000";
        let mut command = orinoco(&["run", "--model", "person-nano", "--source", source, "--sink", sink]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut String::new()).expect("text");
        let output = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !said.contains("error"), "{sink}: {said}");
    }
}

#[test]
fn a_named_pipe_whose_reader_goes_is_no_fault() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("starts").success());
    for kind in ["jsonl", "framemd5"] {
        let sink = format!("{kind}={}", pipe.display());
        let source = "test://ball?frames=1000000";
        let mut command = orinoco(&["run", "--model", "person-nano", "--source", source, "--sink", &sink]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
        let mut reader = BufReader::new(fs::File::open(&pipe).expect("it is opened for writing, too"));
        reader.read_line(&mut String::new()).expect("text");
        drop(reader);
        let output = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !said.contains("error"), "{sink}: {said}");
    }
}

#[test]
fn a_source_without_frames_does_not_keep_a_run_that_nobody_reads() {
    // The camera accepts the connection and never answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let camera = format!("rtsp://{}/quiet", listener.local_addr().expect("bound"));
    for source in [&camera, "stdin://?format=gray8&width=64&height=48&fps=10"] {
        let mut command = orinoco(&["run", "--source", source, "--sink", "framemd5"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        let (_stdin, mut said) = (child.stdin.take(), child.stderr.take().expect("piped"));
        // After this time the run has begun.
        std::thread::sleep(Duration::from_millis(700));
        assert!(child.try_wait().expect("waits").is_none(), "{source} ended by itself");
        drop(child.stdout.take());
        assert_ends_unread(child);
        let mut text = String::new();
        said.read_to_string(&mut text).expect("text");
        assert!(text.contains("standard output has no reader any more and is closed"), "{source}: {text}");
    }
}

#[test]
fn other_outputs_go_on_when_standard_output_is_not_read_any_more() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let [results, summary] = ["r.jsonl", "s.json"].map(|name| dir.path().join(name).display().to_string());
    let (mut child, reader) = live_run(&["--results", &results, "--summary", &summary]);
    drop(reader);
    std::thread::sleep(Duration::from_secs(2));
    assert!(child.try_wait().expect("waits").is_none(), "it has ended");
    signal(&child, "INT");
    assert_eq!(wait(child, Duration::from_secs(10)).0, Some(130));
    let summary: Value = serde_json::from_slice(&fs::read(&summary).expect("written")).expect("JSON");
    assert_eq!(summary["faults"].as_array().map(Vec::len), Some(0));
    let frames = summary["streams"][0]["frames_out"].as_u64();
    assert!(frames >= Some(20) && Some(lines(Path::new(&results)) as u64) == frames, "{frames:?}");
}

#[test]
fn commands_whose_text_nobody_reads_succeed_in_silence() {
    let image = root().join("docs/demo.jpg").display().to_string();
    let many = vec![image.as_str(); 2000];
    let infer = [&["infer", "--model", "person-nano", "--json"], &many[..]].concat();
    for arguments in [
        &infer[..],
        &["models", "list"],
        &["models", "list", "--json"],
        &["models", "show", "person-nano"],
        &["cameras"],
        &["doctor"],
        &["explain"],
        &["completions", "bash"],
        &["--help"],
    ] {
        let (reader, writer) = std::io::pipe().expect("made");
        drop(reader);
        let start = std::time::Instant::now();
        let output = orinoco(arguments).stdout(writer).output().expect("starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{}: {said}", arguments[0]);
        assert!(!said.contains("panicked") && !said.contains("error"), "{}: {said}", arguments[0]);
        assert!(start.elapsed() < Duration::from_secs(15), "{}: every image was looked at", arguments[0]);
    }
}

/// Returns the lines that a terminal with `columns` columns shows, without control sequences.
fn on_terminal(columns: usize, arguments: &str) -> Option<Vec<String>> {
    let program = binary("orinoco").display().to_string();
    let inside = format!("stty cols {columns} rows 24; exec {program} {arguments}");
    let mut command = Command::new("script");
    command.args(["-qec", &inside, "/dev/null"]).current_dir(root()).stdin(Stdio::null());
    let Ok(output) = command.env("TERM", "xterm").env("SHELL", "/bin/sh").output() else {
        println!("skipped: a terminal: script(1) is not here");
        return None;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut plain = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => drop(rest.by_ref().find(|c| c.is_ascii_alphabetic())),
            c => plain.push(c),
        }
    }
    Some(plain.split(['\r', '\n']).map(str::to_owned).collect())
}

#[test]
fn progress_stays_one_line_on_a_narrow_terminal() {
    for (columns, frames) in [(40, "--frames 60"), (40, ""), (100, "--frames 60")] {
        // Without --frames, the program does not know the end of the run.
        let source = if frames.is_empty() { "&frames=60" } else { "" };
        let arguments = format!("run --source 'test://ball?pace=pts{source}' {frames} --summary /dev/null");
        let Some(lines) = on_terminal(columns, &arguments) else { return };
        let shown: Vec<&String> = lines.iter().filter(|line| line.contains(" fps  ")).collect();
        let progress: Vec<&&String> = shown.iter().filter(|line| !line.starts_with("frames")).collect();
        assert!(progress.len() > 5, "{lines:#?}");
        for line in progress {
            assert!(line.chars().count() <= columns, "{columns} columns: {line}");
        }
    }
}

#[test]
fn a_command_without_outputs_says_that_it_was_interrupted() {
    for name in ["TERM", "HUP"] {
        let mut command = orinoco(&["bench", "preprocess", "--frames", "1000000"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
        let mut said = BufReader::new(child.stderr.take().expect("piped"));
        // After this time the command has begun.
        std::thread::sleep(Duration::from_millis(500));
        signal(&child, name);
        let (code, _) = wait(child, Duration::from_secs(10));
        assert_eq!(code, Some(130), "{name}: {:?}", said.fill_buf());
    }
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
    // The pipe is full and stays full, because its reader never reads.
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
    // The frames go only into a pipe that is never read, and a file source waits for it.
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
fn a_batch_larger_than_a_sources_slots_does_not_wait_for_its_time() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let board = dir.path().join("board.toml");
    // The test pattern has 16 slots, so no batch has 32 frames: if it waited for more, each would take a minute.
    let text = "version = 1\n[[model]]\nname = 'person-nano'\nbatch = 32\n\
                [[stream]]\nname = 'a'\nsource = 'test://ball?frames=48'\nmodels = ['person-nano']\n\
                queue_frames = 64\nbatch_wait_ms = 60000\n";
    fs::write(&board, text).expect("written");
    let output =
        orinoco(&["run", "--board", &board.display().to_string(), "--json"]).output().expect("starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let summary: Value = serde_json::from_slice(&output.stdout).expect("one JSON summary");
    assert_eq!(summary["streams"][0]["frames_out"], 48);
    // There are few batches, because they are full.
    assert!(summary["models"][0]["replays"].as_u64() <= Some(8), "{}", summary["models"][0]);
    let wall_s = summary["wall_s"].as_f64().expect("seconds");
    assert!(wall_s < 60.0, "{wall_s} s");
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
