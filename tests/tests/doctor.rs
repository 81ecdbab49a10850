//! `orinoco doctor` on machines that lack something: each case names what is missing and the command that corrects it, that
//! command is run where it can be, and the exit code says whether a board file can run.
#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
#![allow(clippy::print_stdout, reason = "tests say what they skip")]

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use gstreamer as gst;
use orinoco_tests::onnx::{Attribute, Graph, element};
use orinoco_tests::{binary, engines, orinoco, root};
use serde_json::Value;

/// User and group without rights, as every Debian and Ubuntu has them.
const NOBODY: u32 = 65_534;
/// Group of cameras, as in Debian and Ubuntu.
const VIDEO: u32 = 44;

/// Graph of the doctor's probe inference.
fn probe_graph() -> Vec<u8> {
    let shape = Attribute::Ints(vec![3, 3]);
    Graph::new()
        .input("x", element::F32, &[1, 1, 4, 4])
        .floats("ones", &[1, 1, 3, 3], &[1.0; 9])
        .floats("bias", &[1], &[-50.0])
        .node("Conv", &["x", "ones", "bias"], &["sums"], &[("kernel_shape", shape)])
        .node("Relu", &["sums"], &["y"], &[])
        .output("y", element::F32, &[1, 1, 2, 2])
        .file()
}

/// Runs a command that prints a report, and returns its exit code and the report.
#[track_caller]
fn report(command: &mut Command) -> (Option<i32>, Value) {
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("panicked"), "{said}");
    let report = serde_json::from_slice(&output.stdout);
    let text = String::from_utf8_lossy(&output.stdout);
    (output.status.code(), report.unwrap_or_else(|why| panic!("{why}: {text}{said}")))
}

fn doctor(arguments: &[&str]) -> Command {
    orinoco(&[&["doctor", "--json"], arguments].concat())
}

/// Returns the part of a report with this kind, and with a name that begins so.
#[track_caller]
fn part<'r>(report: &'r Value, kind: &str, name: &str) -> &'r Value {
    let parts = report["parts"].as_array().expect("parts");
    let is_it = |part: &&Value| {
        part["kind"] == kind && part["name"].as_str().is_some_and(|text| text.starts_with(name))
    };
    parts.iter().find(is_it).unwrap_or_else(|| panic!("no {kind} {name} in {report:#}"))
}

#[track_caller]
fn check(part: &Value, state: &str, words: &[&str]) {
    assert_eq!((&part["state"], part["ok"] == true), (&Value::from(state), state == "ok"), "{part:#}");
    for word in words {
        assert!(part["says"].as_str().expect("a text").contains(word), "`{word}` in {part:#}");
    }
}

fn commands(part: &Value) -> Vec<String> {
    let commands = part["fix"].as_array().expect("commands").iter();
    commands.map(|command| command.as_str().expect("a text").to_owned()).collect()
}

/// Returns a shell script that makes the corrections and then the report. The tests are root where a command needs that.
fn corrected(commands: &[String]) -> Command {
    let steps: Vec<String> =
        commands.iter().map(|command| command.trim_start_matches("sudo ").to_owned()).collect();
    let mut shell = Command::new("sh");
    let script =
        format!("set -e\n{}\nexec '{}' doctor --json", steps.join("\n"), binary("orinoco").display());
    shell.args(["-c", &script]).current_dir(root());
    shell
}

fn is_root(what: &str) -> bool {
    let output = Command::new("id").arg("-u").output().expect("id starts");
    let is_root = output.stdout == b"0\n";
    if !is_root {
        println!("skipped: {what}: the tests are not root");
    }
    is_root
}

/// `UPDATE_EXPECT=1` writes the file again.
#[test]
fn the_graph_of_the_probe_inference_is_written_node_by_node() {
    let path = root().join("crates/orinoco/src/commands/doctor/probe/conv.onnx");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, probe_graph()).expect("written");
    }
    assert_eq!(fs::read(&path).expect("readable"), probe_graph(), "{}", path.display());
}

#[test]
fn engines_and_sources_are_proved_by_an_inference_and_a_frame() {
    let (code, report) = report(&mut doctor(&[]));
    assert_eq!(code, Some(0));
    check(part(&report, "engine", "tract"), "ok", &["probe inference correct"]);
    for engine in engines() {
        check(part(&report, "engine", engine), "ok", &["probe inference correct"]);
    }
    check(part(&report, "source", "test pattern"), "ok", &["a frame of 64x48"]);
    for codec in ["H.264", "H.265"] {
        check(part(&report, "decoder", codec), "ok", &["a frame of 64x64, decoded by "]);
    }
    check(part(&report, "memory", "memory"), "ok", &["available of"]);
    assert_eq!(report["board_file"], Value::Null);
    let text = orinoco(&["doctor"]).output().expect("it starts").stdout;
    let text = String::from_utf8(text).expect("a text");
    assert!(text.starts_with("group ") && text.contains("\nengines "), "{text}");
}

#[test]
fn a_library_of_onnx_runtime_that_is_missing_is_named() {
    let mut command = doctor(&[]);
    let (code, found) = report(command.env("ORT_DYLIB_PATH", "/no/such/libonnxruntime.so"));
    assert_eq!(code, Some(0), "a machine is no gate");
    let engine = part(&found, "engine", "ort-cpu");
    check(engine, "missing", &["/no/such/libonnxruntime.so, named by ORT_DYLIB_PATH"]);
    check(part(&found, "engine", "tract"), "ok", &[]);
    check_unset(engine, "/no/such/libonnxruntime.so");
}

/// Checks that the first command unsets the variable that names this library and that, where there is a usable one, this corrects it.
fn check_unset(engine: &Value, library: &str) {
    let unset = &commands(engine)[..1];
    assert_eq!(unset, ["unset ORT_DYLIB_PATH"]);
    if engines().contains(&"ort-cpu") {
        let (_, after) = report(corrected(unset).env("ORT_DYLIB_PATH", library));
        check(part(&after, "engine", "ort-cpu"), "ok", &["probe inference correct"]);
    }
}

/// Without any library, the commands fetch the one that the tests run with.
#[test]
fn onnx_runtime_is_fetched_by_the_commands_that_the_doctor_names() {
    let home = tempfile::tempdir().expect("a folder");
    let mut command = doctor(&[]);
    command.env("HOME", home.path()).env_remove("XDG_CACHE_HOME").env_remove("ORT_DYLIB_PATH");
    let (_, found) = report(&mut command);
    let engine = part(&found, "engine", "ort-cpu");
    if engine["ok"] == true {
        println!("skipped: this system has a library of its own: {}", engine["says"]);
        return;
    }
    check(engine, "missing", &["no usable libonnxruntime.so"]);
    let fix = commands(engine);
    if fix.is_empty() {
        assert!(
            engine["next"].as_str().is_some_and(|next| next.contains("no command is known")),
            "{engine:#}"
        );
        println!("skipped: no command is known for {}", found["system"]);
        return;
    }
    let cache = home.path().join(".cache/orinoco/onnxruntime").display().to_string();
    assert!(fix.last().is_some_and(|last| last.contains(&cache)), "{fix:?}");
    if std::env::var_os("ORINOCO_TEST_LONG").is_none() {
        println!("skipped: fetching 24 MB from the package registry (ORINOCO_TEST_LONG=1)");
        return;
    }
    // The least strict usual mask: files that a group may write are not trusted.
    let mut shell = corrected(&[&["umask 002".to_owned()], &fix[..]].concat());
    shell.env("HOME", home.path()).env_remove("XDG_CACHE_HOME").env_remove("ORT_DYLIB_PATH");
    let output = shell.output().expect("sh starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    let after = serde_json::from_str(last)
        .unwrap_or_else(|why| panic!("{why}: {text}{}", String::from_utf8_lossy(&output.stderr)));
    check(part(&after, "engine", "ort-cpu"), "ok", &["probe inference correct", &cache]);
}

/// Builds a library that says it is ONNX Runtime of this version; `None`, with a line, without a C compiler.
fn library_of_version(folder: &Path, version: &str) -> Option<PathBuf> {
    let source = format!(
        "typedef struct {{ const void *(*api)(unsigned); const char *(*version)(void); }} Base;\n\
         static const void *api(unsigned v) {{ (void)v; return 0; }}\n\
         static const char *version(void) {{ return \"{version}\"; }}\n\
         static const Base base = {{ api, version }};\n\
         const Base *OrtGetApiBase(void) {{ return &base; }}\n"
    );
    let (file, library) = (folder.join("old.c"), folder.join("libonnxruntime.so"));
    fs::write(&file, source).expect("written");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&file).status();
    let is_built = built.is_ok_and(|status| status.success());
    if !is_built {
        println!("skipped: no C compiler `cc`");
    }
    is_built.then_some(library)
}

#[test]
fn onnx_runtime_of_a_wrong_version_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(library) = library_of_version(dir.path(), "1.10.0") else { return };
    let (_, found) = report(doctor(&[]).env("ORT_DYLIB_PATH", &library));
    let engine = part(&found, "engine", "ort-cpu");
    check(engine, "broken", &["is ONNX Runtime 1.10.0, but 1.20 or newer is needed"]);
    check_unset(engine, library.to_str().expect("a path that is text"));
}

#[test]
fn without_a_camera_the_doctor_says_so() {
    let cameras = fs::read_dir("/dev").into_iter().flatten().flatten();
    if cameras.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("video")) {
        println!("skipped: this machine has a camera");
        return;
    }
    let (_, found) = report(&mut doctor(&[]));
    check(part(&found, "camera", "v4l2"), "missing", &["there is no /dev/video*"]);
    let dir = tempfile::tempdir().expect("a folder");
    let board = board(dir.path(), "person-nano", "v4l2:///dev/video0", "");
    let (code, found) = report(&mut doctor(&["--board", &board]));
    assert_eq!(code, Some(1));
    check(part(&found, "stream", "s"), "broken", &["/dev/video0"]);
    check(part(&found, "trial", ""), "not_checked", &[]);
}

/// Writes a board file with one stream. `more` are further lines of the stream.
fn board(folder: &Path, model: &str, source: &str, more: &str) -> String {
    let path = folder.join("board.toml");
    let text = format!(
        "version = 1\n[[model]]\nname = \"m\"\nmodel = \"{model}\"\n[[sink]]\nname = \"r\"\nkind = \"jsonl\"\n\
         path = \"{}/out/{{stream}}.jsonl\"\n[[stream]]\nname = \"s\"\nsource = \"{source}\"\nmodels = [\"m\"]\n{more}\n",
        folder.display()
    );
    fs::write(&path, text).expect("written");
    path.display().to_string()
}

#[test]
fn the_exit_code_says_whether_a_board_file_can_run() {
    let dir = tempfile::tempdir().expect("a folder");
    let pattern = "test://ball?width=320&height=240";
    let model = root().join("models/person-nano").display().to_string();
    let file = board(dir.path(), &model, pattern, "sinks = [\"r\"]");
    let (code, found) = report(&mut doctor(&["--board", &file]));
    assert_eq!(code, Some(0), "{found:#}");
    assert_eq!(found["board_file"]["can_run"], true);
    for (kind, words) in [("model", "."), ("stream", "320x240"), ("sink", "s.jsonl"), ("trial", "1 stream")] {
        check(part(&found, kind, ""), "ok", &[words]);
    }
    check(part(&found, "plan", ""), "not_checked", &["no memory budget"]);
    assert!(!dir.path().join("out").exists(), "nothing is left behind");

    let missing = board(dir.path(), &model, "no/such.mp4", "sinks = [\"r\"]");
    let (code, found) = report(&mut doctor(&["--board", &missing]));
    assert_eq!((code, &found["board_file"]["can_run"]), (Some(1), &Value::Bool(false)));
    check(part(&found, "stream", "s"), "broken", &["no/such.mp4", "there is no such file"]);

    fs::write(dir.path().join("out"), "a file where a folder is wanted").expect("written");
    let file = board(dir.path(), &model, pattern, "sinks = [\"r\"]");
    let (code, found) = report(&mut doctor(&["--board", &file]));
    assert_eq!(code, Some(1));
    check(part(&found, "sink", "s"), "broken", &["s.jsonl"]);

    let required = "[inference]\nengines = [\"tract\"]\nrequire = [\"ort-cpu\"]";
    let zone = "[[stream.zone]]\nname = \"z\"\ncorners = [0, 0, 1, 1, 0, 0]";
    for wrong in ["sink = [\"r\"]", zone, required] {
        let faulty = board(dir.path(), &model, pattern, wrong);
        let (code, found) = report(&mut doctor(&["--board", &faulty]));
        assert_eq!((code, &found["schema"]), (Some(2), &Value::from("orinoco.error/1")), "{wrong}");
    }
}

#[test]
fn an_absent_collector_keeps_no_board_from_running_and_wrong_settings_do() {
    let dir = tempfile::tempdir().expect("a folder");
    let model = root().join("models/person-nano").display().to_string();
    // Nobody listens on port 9 of this machine.
    let otlp = "[otlp]\nendpoint = \"http://127.0.0.1:9\"";
    let file = board(dir.path(), &model, "test://ball?width=320&height=240", otlp);
    let (code, found) = report(&mut doctor(&["--board", &file]));
    assert_eq!(code, Some(0), "{found:#}");
    check(part(&found, "otlp", "collector"), "missing", &["no connection"]);
    let (code, found) = report(doctor(&["--board", &file]).env("OTEL_TRACES_SAMPLER_ARG", "2"));
    assert_eq!(code, Some(1), "{found:#}");
    check(part(&found, "otlp", "settings"), "broken", &["OTEL_TRACES_SAMPLER_ARG"]);
}

#[test]
fn a_memory_plan_that_does_not_fit_is_named() {
    if !engines().contains(&"ort-cpu") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let model = root().join("models/person-nano").display().to_string();
    let file = board(dir.path(), &model, "test://ball?width=320&height=240", "[memory]\nbudget = \"1 MiB\"");
    let (code, found) = report(&mut doctor(&["--board", &file]));
    assert_eq!(code, Some(1));
    check(part(&found, "plan", ""), "broken", &["over its memory budget of 1.0 MiB"]);
    assert!(part(&found, "plan", "")["next"].as_str().is_some_and(|next| !next.is_empty()));
}

#[test]
fn a_missing_operator_is_named_on_each_engine() {
    let dir = tempfile::tempdir().expect("a folder");
    let graph = Graph::new()
        .input("x", element::F32, &[1, 3, 32, 32])
        .node("NoSuchOperator", &["x"], &["y"], &[])
        .output("y", element::F32, &[1, 3, 32, 32]);
    fs::write(dir.path().join("m.onnx"), graph.file()).expect("written");
    let model = dir.path().join("m.onnx").display().to_string();
    let file = board(dir.path(), &model, "test://ball?width=320&height=240", "");
    let (code, found) = report(&mut doctor(&["--board", &file]));
    assert_eq!(code, Some(1));
    let model = part(&found, "model", "m");
    check(model, "broken", &["NoSuchOperator", "tract"]);
    if engines().contains(&"ort-cpu") {
        check(model, "broken", &["ort-cpu"]);
    }
}

#[test]
fn a_missing_decoder_is_named_with_its_package() {
    gst::init().expect("GStreamer starts");
    let dir = tempfile::tempdir().expect("a folder");
    let plugins = dir.path().join("plugins");
    fs::create_dir(&plugins).expect("made");
    // Everything that a video needs, except a decoder.
    let names = ["coreelements", "playback", "typefindfunctions", "videoconvertscale", "videoconvert"];
    for name in names.iter().chain(&["isomp4", "videoparsersbad", "videofilter", "app"]) {
        let plugin = gst::Registry::get().find_plugin(name);
        let Some(file) = plugin.and_then(|plugin| plugin.filename()) else { continue };
        symlink(&file, plugins.join(file.file_name().expect("a name"))).expect("linked");
    }
    let mut command = doctor(&[]);
    command.env("GST_PLUGIN_SYSTEM_PATH_1_0", &plugins).env("GST_REGISTRY", dir.path().join("registry"));
    let (_, found) = report(&mut command);
    for codec in ["H.264", "H.265"] {
        let decoder = part(&found, "decoder", codec);
        check(decoder, "missing", &["no decoder for H.26"]);
        let named = [commands(decoder).concat(), decoder["next"].to_string()].concat();
        assert!(named.contains("gstreamer1.0-libav"), "{decoder:#}");
    }
    let element = part(&found, "gstreamer", "rtspsrc");
    check(element, "missing", &["rtsp://"]);
    assert!([commands(element).concat(), element["next"].to_string()].concat().contains("plugins-good"));
}

/// Synthetic board, and a copy of the program, that a user without rights can reach.
struct Board {
    dir: tempfile::TempDir,
}

impl Board {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("set");
        fs::copy(binary("orinoco"), dir.path().join("orinoco")).expect("copied");
        let board = Self { dir };
        board.write(
            "etc/os-release",
            "PRETTY_NAME=\"Ubuntu 22.04.5 LTS\"\nID=ubuntu\nVERSION_ID=\"22.04\"\n",
            0o644,
        );
        board.write("etc/passwd", "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n", 0o644);
        board.write("etc/group", "root:x:0:\nvideo:x:44:\nnogroup:x:65534:\n", 0o644);
        board
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("board")
    }

    fn write(&self, path: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("set");
        path
    }

    /// Reports what the user without rights finds, as a member of `groups`.
    fn doctor(&self, groups: &[u32]) -> Value {
        let groups = match groups {
            [] => "--clear-groups".to_owned(),
            groups => format!("--groups={}", groups.iter().map(u32::to_string).collect::<Vec<_>>().join(",")),
        };
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), &groups]);
        command.arg(self.dir.path().join("orinoco")).args(["doctor", "--json", "--sysroot"]).arg(self.root());
        report(command.current_dir("/")).1
    }
}

#[test]
fn sensors_that_may_not_be_read_are_named_and_the_commands_correct_it() {
    if !is_root("rights on files") {
        return;
    }
    let board = Board::new();
    let chip = "sys/class/hwmon/hwmon3";
    board.write(&format!("{chip}/name"), "ina3221\n", 0o444);
    board.write(&format!("{chip}/in1_label"), "VDD_IN\n", 0o444);
    board.write(&format!("{chip}/in1_input"), "5000\n", 0o400);
    board.write(&format!("{chip}/curr1_input"), "1000\n", 0o400);
    board.write("sys/class/thermal/thermal_zone0/type", "cpu-thermal\n", 0o444);
    board.write("sys/class/thermal/thermal_zone0/temp", "45500\n", 0o444);
    let found = board.doctor(&[]);
    assert_eq!(found["system"], "Ubuntu 22.04.5 LTS");
    check(part(&found, "temperature", "cpu-thermal"), "ok", &["45.5"]);
    check(part(&found, "engine", "all"), "not_checked", &[]);
    let rail = part(&found, "rail", "VDD_IN");
    check(rail, "broken", &["permission denied", "hwmon3/in1_input", "hwmon3/curr1_input"]);
    let fix = commands(rail);
    assert!(fix.iter().all(|command| command.starts_with("sudo ")), "{fix:?}");
    for command in &fix {
        let command = command.trim_start_matches("sudo ");
        assert!(Command::new("sh").args(["-c", command]).status().expect("sh starts").success(), "{command}");
    }
    check(part(&board.doctor(&[]), "rail", "VDD_IN"), "ok", &["5.000 W"]);
}

#[test]
fn another_boards_files_are_read_from_a_folder() {
    let board = Board::new();
    board.write("proc/cpuinfo", "vendor_id\t: GenuineIntel\n", 0o644);
    board.write("etc/nv_tegra_release", "# R36 (release), REVISION: 4.3, GCID: 1, BOARD: generic\n", 0o644);
    let folder = board.root().display().to_string();
    let (code, found) = report(&mut doctor(&["--sysroot", &folder]));
    assert_eq!(code, Some(0));
    check(part(&found, "conflict", "files"), "broken", &["/etc/nv_tegra_release", "/proc/cpuinfo"]);
    check(part(&found, "source", "all"), "not_checked", &["only the board's files"]);
    check(part(&found, "memory", "memory"), "not_checked", &["/proc/meminfo"]);
    check(part(&found, "board", "total power"), "missing", &["/sys/class/powercap"]);
    board.write("sys/class/powercap/intel-rapl:0/name", "package-0\n", 0o644);
    board.write("sys/class/powercap/intel-rapl:0/energy_uj", "5000\n", 0o644);
    let (_, found) = report(&mut doctor(&["--sysroot", &folder]));
    let says = ["energy counters package-0", "Fans, disks and the power supply are not measured"];
    check(part(&found, "board", "total power"), "ok", &says);
    let detect = orinoco(&["board", "detect", "--sysroot", &folder]).output().expect("it starts");
    let text = String::from_utf8_lossy(&detect.stdout);
    let row = text.lines().find(|line| line.starts_with("package-0")).unwrap_or_else(|| panic!("{text}"));
    assert!(row.ends_with("can be read") && text.contains("total: none. Processor package"), "{text}");
    // The profile of a Jetson says what its rails measure; this board has none.
    let jetson = Board::new();
    jetson.write("proc/cpuinfo", "CPU implementer\t: 0x41\n", 0o644);
    jetson.write("etc/nv_tegra_release", "# R36 (release), REVISION: 4.3, GCID: 1, BOARD: generic\n", 0o644);
    let (_, found) = report(&mut doctor(&["--sysroot", &jetson.root().display().to_string()]));
    check(part(&found, "board", "L4T"), "ok", &["36.4.3"]);
    check(part(&found, "board", "JetPack"), "ok", &["6.2"]);
    check(part(&found, "board", "total power"), "missing", &["there is no power sensor"]);
    check(part(&found, "board", "power mode"), "not_checked", &["/etc/nvpmodel.conf does not exist"]);
    let both = orinoco(&["doctor", "--sysroot", &folder, "--board", "b.toml"]).output().expect("it starts");
    assert_eq!(both.status.code(), Some(2));
}

/// Records a board for three seconds, and sets a file of it to `later` in the middle.
fn record(board: &Board, archive: &Path, changing: &str, later: &str) {
    let folder = board.root().display().to_string();
    let arguments = ["board", "record", "--json", "--seconds", "3", "--rate", "20", "--sysroot", &folder];
    let child = orinoco(&arguments).arg(archive).stdout(Stdio::piped()).spawn().expect("it starts");
    thread::sleep(Duration::from_millis(1500));
    // A reader sees the old file or the new one, and never an empty one.
    let new = board.write("new", later, 0o444);
    fs::rename(new, board.root().join(changing)).expect("replaced");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_recording_is_replayed_by_the_commands_that_take_a_folder() {
    let board = Board::new();
    let (chip, current) = ("sys/class/hwmon/hwmon3", "sys/class/hwmon/hwmon3/curr1_input");
    board.write("proc/cpuinfo", "CPU implementer\t: 0x41\n", 0o644);
    board.write(&format!("{chip}/name"), "ina3221\n", 0o444);
    board.write(&format!("{chip}/in1_label"), "VDD_IN\n", 0o444);
    board.write(&format!("{chip}/in1_input"), "5000\n", 0o444);
    board.write(current, "1000\n", 0o444);
    let packages =
        "Package: mail-client\nVersion: 7\n\nPackage: nvidia-l4t-core\nVersion: 36.4.3-20250107174145\n";
    board.write("var/lib/dpkg/status", packages, 0o644);
    let detected = |root: &Path| {
        let root = root.display().to_string();
        let mut detect = orinoco(&["board", "detect", "--json", "--sysroot", &root]);
        report(&mut detect).1
    };
    let of_board = detected(&board.root());
    assert_eq!(of_board["l4t"], "36.4.3", "{of_board:#}");
    let archive = board.dir.path().join("board.tar.gz");
    record(&board, &archive, current, "3000\n");
    assert_eq!(detected(&archive), of_board);
    let (_, found) = report(&mut doctor(&["--sysroot", &archive.display().to_string()]));
    check(part(&found, "rail", "VDD_IN"), "ok", &["5.000 W"]);
    let devices: Vec<&Value> =
        found["parts"].as_array().expect("parts").iter().filter(|part| part["kind"] == "device").collect();
    let [device] = devices[..] else {
        panic!("the device nodes of this machine are not the board's: {devices:#?}")
    };
    check(device, "not_checked", &["a recording has no device nodes"]);
    let fixes = found["parts"].as_array().expect("parts").iter().filter(|part| !commands(part).is_empty());
    assert_eq!(fixes.count(), 0, "a recording cannot be corrected: {found:#}");

    let archive = archive.display().to_string();
    let mut top = orinoco(&["top", "--json", "--interval", "0.2", "--sysroot", &archive]);
    let mut top = top.stdout(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(top.stdout.take().expect("piped")).lines();
    let powers = lines.map(|line| {
        let status: Value = serde_json::from_str(&line.expect("text")).expect("JSON");
        status["sensors"]["rails"][0]["watts"].as_f64().unwrap_or_else(|| panic!("{status:#}"))
    });
    // The recording is 3 s long, so these are twice as many lines as are printed in its time.
    let powers: Vec<f64> = powers
        .take(30)
        .scan(0.0, |last, now| {
            (*last < 15.0).then(|| {
                *last = now;
                now
            })
        })
        .collect();
    top.kill().expect("it runs");
    top.wait().expect("it ends");
    assert!(powers.len() > 3 && powers[..3] == [5.0; 3], "{powers:?}");
    assert_eq!(powers.last(), Some(&15.0), "{powers:?}");
}

#[test]
fn a_user_outside_of_the_group_is_named_and_the_command_corrects_it() {
    if !is_root("groups") {
        return;
    }
    let board = Board::new();
    let camera = board.write("dev/video0", "", 0o660);
    chown(&camera, Some(0), Some(VIDEO)).expect("root may");
    board.write("dev/i2c-1", "", 0o600);
    let found = board.doctor(&[]);
    let device = part(&found, "device", &camera.display().to_string());
    check(device, "broken", &["permission denied", "nobody is not in the group video", "cameras"]);
    assert_eq!(commands(device), ["sudo usermod -aG video nobody"]);
    // The kernel gives the nodes of I2C buses no group: a package's rule does.
    let bus = part(&found, "device", &board.root().join("dev/i2c-1").display().to_string());
    check(bus, "broken", &["group root with mode 0600"]);
    assert_eq!(commands(bus), ["sudo apt-get install -y i2c-tools"]);

    // The command, on the board's own files of users and groups.
    board.write("etc/shadow", "root:*:1::::::\nnobody:*:1::::::\n", 0o600);
    let mut command = Command::new("usermod");
    let Ok(output) = command.arg("--prefix").arg(board.root()).args(["-aG", "video", "nobody"]).output()
    else {
        println!("skipped: usermod is not here");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let groups = fs::read_to_string(board.root().join("etc/group")).expect("readable");
    assert!(groups.contains("video:x:44:nobody"), "{groups}");
    let found = board.doctor(&[]);
    let device = part(&found, "device", &camera.display().to_string());
    check(device, "broken", &["nobody joined the group video after this login"]);
    let found = board.doctor(&[VIDEO]);
    check(part(&found, "device", "/dev/video*"), "ok", &["nobody may open"]);
}
