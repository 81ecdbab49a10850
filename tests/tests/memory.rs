//! Memory plan of a board, and its budget.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
#![allow(clippy::print_stdout, reason = "tests say what they skip")]

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use orinoco_api::{ResultLine, Summary};
use orinoco_tests::{assert_one_sentence, binary, engines, orinoco, root, shared, signal, wait};
use serde_json::Value;

/// Writes a board with three models on one lane; `None`, with a printed line, if the models or the engine are missing.
fn board(dir: &Path, budget: &str) -> Option<PathBuf> {
    shared("models/yolox_nano.onnx")?;
    if !engines().contains(&"ort-cpu") {
        return None;
    }
    let mut text =
        format!("version = 1\n[memory]\nbudget = \"{budget}\"\n[inference]\nengines = [\"ort-cpu\"]\n");
    for name in ["yolox_nano", "fastestdet", "squeezenet1.0_fp32"] {
        let folder = root().join("tests/models").join(name);
        text.push_str(&format!("[[model]]\nname = \"{name}\"\nmodel = \"{}\"\n", folder.display()));
    }
    text.push_str("[[stream]]\nname = \"s\"\nsource = \"test://ball?width=320&height=240&frames=20\"\n");
    text.push_str("models = [\"yolox_nano\", \"fastestdet\", \"squeezenet1.0_fp32\"]\nsinks = [\"found\"]\n");
    let output = output(dir);
    text.push_str(&format!(
        "[[sink]]\nname = \"found\"\nkind = \"jsonl\"\npath = \"{}\"\n",
        output.display()
    ));
    let path = dir.join("board.toml");
    fs::write(&path, text).expect("written");
    Some(path)
}

fn output(dir: &Path) -> PathBuf {
    dir.join("found.jsonl")
}

fn run(command: &[&str], board: &Path, cache: &Path) -> Output {
    let mut orinoco = orinoco(command);
    orinoco.arg("--board").arg(board);
    // ONNX Runtime is found in the user's own cache; measured sizes are kept in this one.
    if let Some(library) = library() {
        orinoco.env("ORT_DYLIB_PATH", library);
    }
    orinoco.env("XDG_CACHE_HOME", cache).output().expect("starts")
}

fn library() -> Option<String> {
    let fetched = std::process::Command::new(root().join("cross/onnxruntime.sh"))
        .arg(std::env::consts::ARCH)
        .output()
        .ok()?;
    fetched.status.success().then(|| String::from_utf8_lossy(&fetched.stdout).trim().to_owned())
}

#[test]
fn a_board_runs_in_exactly_what_it_needs_and_not_in_a_byte_less() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let (cache, dir) = (dir.path().join("cache"), dir.path());
    let Some(path) = board(dir, "1 GiB") else { return };
    let told = run(&["memory", "--json"], &path, &cache);
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let told: Value = serde_json::from_slice(&told.stdout).expect("JSON");
    let total = told["total_bytes"].as_u64().expect("a number");
    assert_eq!(fs::read_dir(cache.join("orinoco/memory")).expect("it is kept").count(), 3);

    let told = run(&["memory", "--json", "--frames", "10"], &path, &cache);
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let told: Value = serde_json::from_slice(&told.stdout).expect("JSON");
    let used = &told["used"];
    let lane = &used["lanes"][0];
    assert_eq!((&used["frames"], &lane["outside"]), (&10.into(), &0.into()));
    assert_eq!(lane["models"].as_array().map(Vec::len), Some(3));
    assert!(
        lane["used_bytes"].as_u64() > Some(0)
            && lane["used_bytes"].as_u64() <= lane["scratch_bytes"].as_u64()
    );
    assert!(used["models_bytes"].as_u64() > Some(0), "{used}");
    assert!(!output(dir).exists(), "outputs are left alone");

    board(dir, &total.to_string());
    let ran = run(&["run", "--json"], &path, &cache);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(output(dir).exists());
    let text = String::from_utf8_lossy(&ran.stdout);
    let summary =
        text.lines().find_map(|line| serde_json::from_str::<Summary>(line).ok()).expect("a summary");
    let planned = summary.memory.planned.expect("it was planned");
    assert_eq!((planned.total_bytes, planned.budget_bytes), (total, total));
    let lane = &planned.lanes[0];
    assert_eq!((lane.outside, lane.models.len()), (0, 3));
    assert!(lane.used_bytes <= lane.scratch_bytes, "{lane:?}");

    board(dir, &(total - 1).to_string());
    let refused = run(&["run"], &path, &cache);
    let suggested = "set queue_frames of stream `s` to 3 instead of 4";
    assert_one_sentence(&refused, 2, "E0305", &["memory budget of", suggested]);
    let table = String::from_utf8_lossy(&refused.stderr);
    for word in ["less than 0.1 MiB over budget (board)", "yolox_nano", "scratch", "measured", "budget"] {
        assert!(table.contains(word), "`{word}` in\n{table}");
    }

    // The suggested setting can be written as it is, and then the plan fits.
    let text = fs::read_to_string(&path).expect("readable");
    let shorter = text.replace("[[stream]]\n", "[[stream]]\nqueue_frames = 3\n");
    fs::write(&path, shorter).expect("written");
    let planned = run(&["memory", "--json"], &path, &cache);
    assert!(planned.status.success(), "{}", String::from_utf8_lossy(&planned.stderr));
    let planned: Value = serde_json::from_slice(&planned.stdout).expect("JSON");
    let frame_bytes = 320 * 240 * 3 / 2;
    let saved = total - planned["total_bytes"].as_u64().expect("a number");
    assert!((frame_bytes - 4096..=frame_bytes + 4096).contains(&saved), "{saved} of a frame's {frame_bytes}");
}

#[test]
fn sizes_say_how_they_are_known() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let board = demo_board(dir.path());
    let text = fs::read_to_string(&board).expect("readable");
    let camera = "[[stream]]\nname = 'camera'\nsource = 'rtsp://127.0.0.1/x'\nmodels = ['m']\n";
    fs::write(&board, text + camera).expect("written");
    let planned = run(&["memory", "--json"], Path::new(&board), dir.path());
    assert!(planned.status.success(), "{}", String::from_utf8_lossy(&planned.stderr));
    let planned: Value = serde_json::from_slice(&planned.stdout).expect("JSON");
    let areas = planned["areas"].as_array().expect("a list");
    let mut end = 0;
    for area in areas {
        let basis = if area["kind"] == "frames" { "computed" } else { "measured" };
        assert_eq!(area["basis"], basis, "{area}");
        // Version 1 of the contract has offsets, computed as if the areas followed one another.
        assert_eq!((area["domain"].as_str(), area["offset"].as_u64()), (Some("host"), Some(end)), "{area}");
        assert_eq!(area["spans"][0]["offset"], area["offset"], "{area}");
        end += area["bytes"].as_u64().expect("a number");
    }
    assert_eq!(planned["total_bytes"], end);
    let frames: Vec<&Value> = areas.iter().filter(|area| area["kind"] == "frames").collect();
    let [frames] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!(
        (&frames["name"], &frames["spans"][0]["bytes"]),
        (&"s".into(), &(16 * 320 * 240 * 3 / 2).into())
    );
    let uncounted = serde_json::json!([{"name": "camera", "what": "decoder buffers"}]);
    assert_eq!(planned["uncounted"], uncounted);
}

#[test]
fn a_budget_that_is_no_size_is_refused() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let path = dir.path().join("board.toml");
    let text = "version = 1\n[memory]\nbudget = 'much'\n[[stream]]\nname = 's'\nsource = 'test://ball'\nmodels = []\n";
    fs::write(&path, text).expect("written");
    let refused = orinoco(&["run", "--board"]).arg(&path).output().expect("starts");
    assert_one_sentence(&refused, 2, "E0106", &["budget", "board.toml:3"]);
}

#[test]
fn models_that_share_a_lane_compute_the_same() {
    if shared("models/yolox_nano.onnx").is_none() || !engines().contains(&"ort-cpu") {
        return;
    }
    let arguments = ["bench", "memory", "--json", "--rounds", "1", "--models", "tests/models", "--model"];
    let models = ["yolox_nano", "fastestdet", "squeezenet1.0_fp32", "ultraface_rfb320", "deeplabv3_mnv2_257"];
    let done = orinoco(&arguments).args(models).output().expect("starts");
    // The command fails if outputs differ, or if a request lay outside of the area.
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let report: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    println!("{}", report["ratios"]);
    assert_eq!(report["outputs_equal"], true);
    assert_eq!(report["requests_outside"], 0);
}

/// Writes a board with a budget and the demo model, on an engine that runs on this machine. It needs no shared data.
fn demo_board(dir: &Path) -> String {
    let engine = engines().first().copied().expect("tract is linked in");
    let model = root().join("models/person-nano");
    let text = format!(
        "version = 1\n[memory]\nbudget = '1 GiB'\n[inference]\nengines = ['{engine}']\n\
         [[model]]\nname = 'm'\nmodel = '{}'\n\
         [[stream]]\nname = 's'\nsource = 'test://ball?width=320&height=240&frames=5'\nmodels = ['m']\n",
        model.display()
    );
    let path = dir.join("demo.toml");
    fs::write(&path, text).expect("written");
    path.display().to_string()
}

/// Returns a command without a cache folder.
fn without_cache(program: &str, board: &str) -> Command {
    let mut command = Command::new(binary(program));
    command.current_dir(root()).env_remove("HOME").env_remove("XDG_CACHE_HOME").env("NO_COLOR", "1");
    match program {
        "orinoco" => command.args(["run", "--board", board]),
        _ => command.args(["--board", board]),
    };
    if let Some(library) = library() {
        command.env("ORT_DYLIB_PATH", library);
    }
    command
}

#[test]
fn a_budget_is_measured_where_address_space_is_limited() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let board = demo_board(dir.path());
    // `ulimit -v` takes KiB: 1 GiB is a quarter of the largest area in which models are measured.
    let script = "ulimit -v 1048576 && exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(binary("orinoco")).args(["memory", "--board", &board]);
    if let Some(library) = library() {
        command.env("ORT_DYLIB_PATH", library);
    }
    let output = command.current_dir(root()).env("XDG_CACHE_HOME", dir.path()).output().expect("starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Plans the board with the cache that `cache` names. Returns the planned bytes and standard error.
fn total_bytes(board: &str, cache: &[(&str, &Path)]) -> (u64, String) {
    let mut command = orinoco(&["memory", "--json", "--board", board]);
    command.env_remove("HOME").env_remove("XDG_CACHE_HOME");
    if let Some(library) = library() {
        command.env("ORT_DYLIB_PATH", library);
    }
    let output = command.envs(cache.iter().copied()).output().expect("starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    (told["total_bytes"].as_u64().expect("a number"), said)
}

#[test]
fn measured_sizes_that_somebody_else_may_have_written_are_not_used() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let board = demo_board(dir.path());
    let base = dir.path().join(".cache");
    let folder = base.join("orinoco/memory");
    let (honest, _) = total_bytes(&board, &[("XDG_CACHE_HOME", &base)]);
    assert_eq!(fs::metadata(base.join("orinoco")).expect("made").permissions().mode() & 0o777, 0o700);
    let kept: Vec<PathBuf> =
        fs::read_dir(&folder).expect("kept").flatten().map(|entry| entry.path()).collect();
    let [kept] = &kept[..] else { panic!("{kept:?}") };
    let mut figures: Value = serde_json::from_slice(&fs::read(kept).expect("readable")).expect("JSON");
    let planted = 100 << 20;
    figures["weights_bytes"] = planted.into();
    fs::write(kept, figures.to_string()).expect("written");
    assert!(total_bytes(&board, &[("XDG_CACHE_HOME", &base)]).0 > planted, "the user's own are believed");
    // Weights that are measured again differ by a few pages.
    let is_honest = |(total, said): (u64, String)| {
        assert!(total < honest + (16 << 20), "{total} and {honest}: {said}");
        said
    };
    // Without a home folder, the folder for temporary files does not serve as a cache.
    is_honest(total_bytes(&board, &[("TMPDIR", dir.path())]));
    fs::set_permissions(base.join("orinoco"), Permissions::from_mode(0o777)).expect("set");
    let said = is_honest(total_bytes(&board, &[("XDG_CACHE_HOME", &base)]));
    assert!(said.contains("orinoco is ignored: others can write it"), "{said}");
}

/// Finds the process that measures a model for `parent`, and stops it before it is done. Returns its process ID.
fn stopped_child(parent: &Child) -> Option<u32> {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(60) {
        let found = fs::read_dir("/proc").expect("mounted").flatten().find_map(|entry| {
            let id: u32 = entry.file_name().to_str()?.parse().ok()?;
            // Until the child executes its own program, the parent waits for that and handles no signal.
            let environment = fs::read(format!("/proc/{id}/environ")).ok()?;
            let measures =
                environment.split(|byte| *byte == 0).any(|entry| entry.starts_with(b"ORINOCO_MEASURE="));
            (measures && status(id)?.1 == parent.id()).then_some(id)
        });
        if let Some(child) = found {
            send("STOP", child);
            thread::sleep(Duration::from_millis(20));
            return (status(child)?.0 == 'T').then_some(child);
        }
        thread::sleep(Duration::from_millis(1));
    }
    None
}

/// Returns the state and the parent of a process (proc_pid_stat(5)).
fn status(id: u32) -> Option<(char, u32)> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

fn send(name: &str, id: u32) {
    // A process that has ended needs no signal, so an error is ignored.
    let _ = Command::new("kill").args([&format!("-{name}"), &id.to_string()]).stderr(Stdio::null()).status();
}

#[test]
fn sigterm_while_a_model_is_measured_ends_the_program_and_the_measuring() {
    /// Number of attempts: a measurement may be over before it can be stopped.
    const ATTEMPTS: usize = 5;
    let dir = tempfile::tempdir().expect("temporary folder");
    let board = demo_board(dir.path());
    for (program, exit, both) in
        [("orinoco", 130, false), ("orinoco", 130, true), ("orinocod", 0, false), ("orinocod", 0, true)]
    {
        // A stopped process acts like a measurement that never ends.
        let hung = (0..ATTEMPTS).find_map(|_| {
            let mut run = without_cache(program, &board);
            let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
            match stopped_child(&run) {
                Some(child) => Some((run, child)),
                None => {
                    let _ = run.kill();
                    let _ = run.wait();
                    None
                }
            }
        });
        let (run, child) = hung.expect("measuring takes longer than finding its process");
        signal(&run, "TERM");
        if both {
            // systemd and terminals also send the signal to every process of the group.
            send("TERM", child);
            send("CONT", child);
        }
        let begin = Instant::now();
        assert_eq!(wait(run, Duration::from_secs(20)).0, Some(exit), "{program}, both: {both}");
        assert!(begin.elapsed() < Duration::from_secs(5), "{program} took {:?}", begin.elapsed());
        let gone = || status(child).is_none_or(|(state, _)| state == 'Z');
        assert!(
            (0..100).any(|_| gone() || {
                thread::sleep(Duration::from_millis(50));
                false
            }),
            "{program}"
        );
    }
}

/// A daemon on a board with a budget and two lanes, which is reloaded.
struct Daemon {
    child: Child,
    journal: BufReader<ChildStderr>,
    dir: PathBuf,
    budget: u64,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // After a failure; otherwise it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Daemon {
    fn start(dir: &Path, budget: u64, streams: &[(&str, &str)]) -> Self {
        let board = reloaded_board(dir, budget, streams);
        let mut command = Command::new(binary("orinocod"));
        command.arg("--board").arg(board).arg("--summary").arg(dir.join("summary.json"));
        command.env("XDG_CACHE_HOME", dir.join("cache")).env("NO_COLOR", "1").current_dir(root());
        if let Some(library) = library() {
            command.env("ORT_DYLIB_PATH", library);
        }
        let mut child = command.stderr(Stdio::piped()).spawn().expect("starts");
        let journal = BufReader::new(child.stderr.take().expect("piped"));
        let mut daemon = Self { child, journal, dir: dir.to_owned(), budget };
        daemon.read_until("state=live");
        daemon
    }

    /// The lines of the journal up to one with `words`.
    fn read_until(&mut self, words: &str) -> String {
        let mut lines = String::new();
        loop {
            let begin = lines.len();
            let bytes = self.journal.read_line(&mut lines).expect("text");
            assert!(bytes > 0, "it ended without `{words}`:\n{lines}");
            if lines[begin..].contains(words) {
                return lines;
            }
        }
    }

    /// Reloads another board; returns what the journal says of it.
    fn reload(&mut self, streams: &[(&str, &str)]) -> String {
        reloaded_board(&self.dir, self.budget, streams);
        signal(&self.child, "HUP");
        self.read_until("reloaded")
    }

    /// Waits until a stream is live, if `journal`, which was read just now, does not say so.
    fn wait_until_live(&mut self, journal: &str, stream: &str) {
        let live = format!("stream={stream} state=live");
        if !journal.contains(&live) {
            self.read_until(&live);
        }
    }

    fn status_bytes(&self, field: &str) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = text.lines().find_map(|line| line.strip_prefix(field)).expect("a field");
        line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("a number") * 1024
    }
}

/// A board of streams, each with its name and its model.
fn reloaded_board(dir: &Path, budget: u64, streams: &[(&str, &str)]) -> PathBuf {
    let engine = engines().first().copied().expect("tract is linked in");
    let model = root().join("models/person-nano").display().to_string();
    let mut text = format!(
        "version = 1\nlanes = 2\n[memory]\nbudget = '{budget}'\n[inference]\nengines = ['{engine}']\n\
         [[sink]]\nname = 's'\nkind = 'jsonl'\npath = '{}'\n",
        dir.join("{stream}.jsonl").display()
    );
    for (name, threshold) in [("m", 0.3), ("other", 0.4), ("third", 0.5)] {
        // Another setting makes another model of the run; one that no stream uses is not listed.
        if streams.iter().any(|(_, model)| *model == name) {
            text.push_str(&format!(
                "[[model]]\nname = '{name}'\nmodel = '{model}'\nscore_threshold = {threshold}\n"
            ));
        }
    }
    for (name, model) in streams {
        text.push_str(&format!(
            "[[stream]]\nname = '{name}'\nsource = 'test://ball?pace=pts&width=320&height=240'\n\
             models = ['{model}']\nsinks = ['s']\n"
        ));
    }
    let path = dir.join("lanes.toml");
    fs::write(&path, text).expect("written");
    path
}

/// Returns the bytes that building the model takes, which a plan of it has measured.
fn building_bytes(dir: &Path) -> u64 {
    let measured = fs::read_dir(dir.join("cache/orinoco/memory")).expect("kept").flatten().next();
    let text = fs::read(measured.expect("measured").path()).expect("readable");
    let measured: Value = serde_json::from_slice(&text).expect("JSON");
    measured["building_bytes"].as_u64().expect("a number")
}

fn planned_bytes(dir: &Path, streams: &[(&str, &str)]) -> u64 {
    let board = reloaded_board(dir, 1 << 40, streams);
    let planned = run(&["memory", "--json"], &board, &dir.join("cache"));
    assert!(planned.status.success(), "{}", String::from_utf8_lossy(&planned.stderr));
    let planned: Value = serde_json::from_slice(&planned.stdout).expect("JSON");
    planned["total_bytes"].as_u64().expect("a number")
}

#[test]
fn a_model_is_replaced_where_both_fit_the_budget() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let dir = dir.path();
    let alone = planned_bytes(dir, &[("a", "m")]);
    // Streams a and c are on one lane, where a second model has all but the scratch memory of its own.
    let shared = planned_bytes(dir, &[("a", "m"), ("b", "m"), ("c", "m")]);
    let both = planned_bytes(dir, &[("a", "m"), ("b", "m"), ("c", "other")]);
    let exactly = alone + (both - shared) + building_bytes(dir);
    for (budget, is_replaced) in [(exactly, true), (exactly - 4096, false)] {
        let mut daemon = Daemon::start(dir, budget, &[("a", "m")]);
        let board = dir.join("lanes.toml");
        let mut threshold = 0.3;
        for _ in 0..if is_replaced { 3 } else { 1 } {
            let text = fs::read_to_string(&board).expect("it was written");
            let (old, new) = (format!("= {threshold}"), format!("= {:.1}", threshold + 0.1));
            assert!(text.contains(&old), "{text}");
            fs::write(&board, text.replace(&old, &new)).expect("written");
            threshold += 0.1;
            // The plan that was replaced may count for a moment.
            thread::sleep(Duration::from_millis(500));
            signal(&daemon.child, "HUP");
            let journal = daemon.read_until("reloaded");
            let words = match is_replaced {
                true => ["model=m lane=0 replaced", "joined=- left=- stayed=1 replaced=m"],
                false => ["not reloaded", "E0305"],
            };
            assert!(words.iter().all(|words| journal.contains(words)), "{budget} bytes:\n{journal}");
        }
        signal(&daemon.child, "TERM");
        daemon.read_until("summary");
        assert!(daemon.child.wait().expect("waits").success());
    }
}

#[test]
fn a_reload_is_admitted_at_its_peak_and_what_leaves_gives_its_memory_back() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let dir = dir.path();
    let (a, ab) = ([("a", "m")], [("a", "m"), ("b", "other")]);
    let (alone, both) = (planned_bytes(dir, &a), planned_bytes(dir, &ab));
    let building = building_bytes(dir);
    println!("{alone} bytes with one stream, {both} with two, {building} to build a model");

    let mut daemon = Daemon::start(dir, both + building, &a);
    let before = daemon.status_bytes("VmRSS:");
    // The second lane had no stream at the start.
    let journal = daemon.reload(&ab);
    assert!(journal.contains("reloaded joined=b left=- stayed=1"), "{journal}");
    let grown = daemon.status_bytes("VmHWM:").saturating_sub(before);
    println!("resident memory grew by {grown} bytes at its peak");
    // What the first stream touches meanwhile, and threads, are not the change's.
    let planned = both - alone + building;
    assert!(grown <= planned + (16 << 20), "{grown} bytes, and {planned} were planned");

    daemon.wait_until_live(&journal, "b");
    let other = [("a", "m"), ("b", "third")];
    let journal = daemon.reload(&other);
    for words in
        ["not reloaded", "E0305", "during the reload", "goes", "building", "peak", "restart the daemon"]
    {
        assert!(journal.contains(words), "`{words}` in\n{journal}");
    }
    let journal = daemon.reload(&a);
    assert!(journal.contains("reloaded joined=- left=b stayed=1"), "{journal}");
    // The memory of b is given back when its last frame is through, which the journal does not say.
    let joined = (0..50).find_map(|_| {
        thread::sleep(Duration::from_millis(100));
        Some(daemon.reload(&other)).filter(|journal| journal.contains("reloaded joined=b left=- stayed=1"))
    });
    daemon.wait_until_live(&joined.expect("it does not fit after b has left"), "b");
    signal(&daemon.child, "TERM");
    daemon.read_until("summary");
    assert!(daemon.child.wait().expect("waits").success());

    let summary: Summary =
        serde_json::from_slice(&fs::read(dir.join("summary.json")).expect("written")).expect("JSON");
    let names: Vec<&str> = summary.streams.iter().map(|stream| stream.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "b"]);
    for (stream, file) in summary.streams.iter().zip(["a.jsonl", "b.jsonl", "b-2.jsonl"]) {
        assert!(stream.dropped.is_empty() && stream.frames_out > 0, "{stream:?}");
        let text = fs::read_to_string(dir.join(file)).expect("written");
        let line = |line| serde_json::from_str::<ResultLine>(line).expect("a result").seq;
        let numbers: Vec<u64> = text.lines().map(line).collect();
        assert_eq!(numbers, (0..stream.frames_in).collect::<Vec<_>>(), "{file}: every frame, once");
    }
    let planned = summary.memory.planned.expect("it was planned");
    assert_eq!((planned.total_bytes, planned.budget_bytes), (both, both + building));
    assert_eq!(planned.lanes.len(), 2);
    for lane in &planned.lanes {
        assert!(lane.outside == 0 && lane.used_bytes <= lane.scratch_bytes, "{lane:?}");
    }
}
