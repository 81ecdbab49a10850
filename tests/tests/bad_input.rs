//! Bad input: the right exit code, one sentence that names the cause and the next step, no panic, no hang.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
#![allow(clippy::print_stdout, reason = "tests say what they skip and what they compared")]

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use orinoco_tests::{Random, assert_one_sentence, data, engines, orinoco, results, root, shared};

/// Maximum time in which bad input must be refused.
const REFUSED_WITHIN: Duration = Duration::from_secs(30);

fn run(arguments: &[&str]) -> Output {
    let start = Instant::now();
    let output = orinoco(arguments).output().expect("orinoco starts");
    assert!(start.elapsed() < REFUSED_WITHIN, "{arguments:?} took {:?}", start.elapsed());
    output
}

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(&path, text).expect("written");
    path.display().to_string()
}

/// Writes the demo model's description with one replacement, and copies the demo model next to it. Returns their
/// folder.
fn model_with(dir: &Path, from: &str, to: &str) -> String {
    let toml = fs::read_to_string(root().join("models/person-nano/model.toml")).expect("readable");
    assert!(toml.contains(from), "{from}");
    let folder = dir.join("m");
    fs::create_dir_all(folder.join("1")).expect("made");
    fs::copy(root().join("models/person-nano/1/model.onnx"), folder.join("1/model.onnx")).expect("copied");
    fs::write(folder.join("model.toml"), toml.replace(from, to)).expect("written");
    folder.display().to_string()
}

#[test]
fn missing_files() {
    assert_one_sentence(&run(&["run", "--source", "no/such.mp4"]), 2, "E0101", &["no/such.mp4"]);
    assert_one_sentence(&run(&["run", "--board", "no/such.toml"]), 2, "E0101", &["no/such.toml"]);
    let output = run(&["infer", "--model", "no-such-model", "a.jpg"]);
    assert_one_sentence(&output, 2, "E0201", &["no-such-model", "person-nano"]);
    assert_one_sentence(&run(&["infer", "--model", "no/such.onnx", "a.jpg"]), 2, "E0101", &["no/such.onnx"]);
    assert_one_sentence(
        &run(&["infer", "--model", "person-nano", "no/such.jpg"]),
        2,
        "E0101",
        &["no/such.jpg"],
    );
}

#[test]
fn a_source_starts_at_the_working_folder() {
    let dir = tempfile::tempdir().expect("temporary folder");
    fs::copy(root().join("docs/demo.jpg"), dir.path().join("a.jpg")).expect("copied");
    let board = |source: &str| {
        let text = format!("version = 1\n[[stream]]\nname = 'a'\nsource = '{source}'\nmodels = []\n");
        write(dir.path(), "b.toml", &text)
    };
    let output = run(&["run", "--board", &board("a.jpg")]);
    assert_one_sentence(&output, 2, "E0101", &["a.jpg", "relative to the working folder"]);
    for source in ["${dir}/a.jpg", "docs/demo.jpg"] {
        let output = run(&["run", "--board", &board(source)]);
        assert!(output.status.success(), "{source}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn engines_and_sources_that_do_not_exist() {
    let output = run(&["run", "--model", "person-nano", "--source", "test://ball", "--engine", "gpu"]);
    assert_one_sentence(&output, 2, "E0301", &["gpu", "ort-cpu, tract"]);
    assert_one_sentence(&run(&["run", "--source", "ftp://host/a"]), 2, "E0401", &["ftp", "rtsp://"]);
    assert_one_sentence(&run(&["run", "--source", "test://ball?size=3"]), 2, "E0401", &["size"]);
    assert_one_sentence(&run(&["run", "--source", "test://ball", "--sink", "avi=x"]), 2, "E0106", &["avi"]);
    let output = run(&["run", "--source", "test://ball?frames=1", "--output", "/proc/no/such/out.mp4"]);
    assert_one_sentence(&output, 2, "E0501", &["/proc/no/such/out.mp4"]);
}

#[test]
fn outputs_that_would_destroy_something() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let image = dir.path().join("a.jpg").display().to_string();
    fs::copy(root().join("docs/demo.jpg"), &image).expect("copied");
    let sink = format!("framemd5={image}");
    for option in [["--results", &image], ["--sink", &sink], ["--summary", &image]] {
        let output = run(&[&["run", "--source", &image], &option[..]].concat());
        assert_one_sentence(&output, 2, "E0501", &["a.jpg", "reads this file"]);
    }
    let same =
        fs::read(&image).expect("it is there") == fs::read(root().join("docs/demo.jpg")).expect("an image");
    assert!(same, "the source was changed");
    let output = run(&["run", "--source", "test://ball?frames=1", "--output", "-"]);
    assert_one_sentence(&output, 2, "E0501", &["seekable"]);
}

#[test]
fn outputs_whose_names_promise_another_format() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let named = |name: &str| dir.path().join(name).display().to_string();
    for (option, name, next) in [
        ("--output", "a.jpg", ".mp4"),
        ("--output", "a.avi", ".mp4"),
        ("--output", "a.mkv", ".mp4"),
        ("--results", "a.mp4", ".jsonl"),
    ] {
        let output = run(&["run", "--source", "test://ball?frames=1", option, &named(name)]);
        assert_one_sentence(&output, 2, "E0501", &[name, next]);
    }
    assert_eq!(fs::read_dir(dir.path()).expect("it is there").count(), 0, "nothing was written");
}

#[test]
fn a_folder_is_named_as_it_was_given() {
    for option in ["--output", "--results"] {
        let output = run(&["run", "--source", "test://ball?frames=1", option, "."]);
        assert_one_sentence(&output, 2, "E0501", &["]: .: it is a folder"]);
    }
    let output = run(&["infer", "--model", "person-nano", "."]);
    assert_one_sentence(&output, 2, "E0101", &["]: .: "]);
    assert_one_sentence(&run(&["run", "--board", "."]), 2, "E0101", &["]: .: "]);
    let output = run(&["run", "--source", "test://ball?frames=1", "--summary", "."]);
    assert_one_sentence(&output, 2, "E0501", &["]: .: "]);
    let output = orinoco(&["eval", "--model", "person-nano", "--dataset", "."]);
    let empty = tempfile::tempdir().expect("temporary folder");
    let mut eval = output;
    let place = root().join("models").display().to_string();
    let output = eval.args(["--models", &place]).current_dir(empty.path()).output().expect("starts");
    assert_one_sentence(&output, 2, "E0602", &["]: .: "]);
}

#[test]
fn a_summary_that_cannot_be_written_is_told_before_the_run() {
    let source = "test://ball?pace=pts&frames=900";
    let output = run(&["run", "--source", source, "--summary", "/proc/no/s.json"]);
    assert_one_sentence(&output, 2, "E0501", &["/proc/no/s.json"]);
    let dir = tempfile::tempdir().expect("temporary folder");
    let summary = dir.path().join("s.json");
    let refused = ["run", "--source", source, "--model", "no-such-model", "--summary"];
    let output = run(&[&refused[..], &[&summary.display().to_string()]].concat());
    assert_one_sentence(&output, 2, "E0201", &["no-such-model"]);
    assert!(!summary.exists(), "a run that was refused left a summary");
}

#[test]
fn text_that_does_not_reach_standard_output_fails_the_command() {
    let full = fs::File::options().write(true).open("/dev/full").expect("Linux has it");
    let output = orinoco(&["explain"]).stdout(full).output().expect("orinoco starts");
    assert_one_sentence(&output, 3, "E0502", &["standard output"]);
}

#[test]
fn a_bench_tells_what_its_child_could_not_do() {
    let output = run(&["bench", "memory", "--model", "no-such-model"]);
    assert_one_sentence(&output, 2, "E0201", &["no-such-model", "person-nano"]);
}

/// Returns clap's message for a command line that it refuses.
fn refused(arguments: &[&str]) -> String {
    let output = run(arguments);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}:\n{text}");
    text.lines().take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_run_is_of_a_board_or_of_a_source() {
    for arguments in [&["run"][..], &["run", "--model", "person-nano"]] {
        let text = refused(arguments);
        assert!(text.ends_with("<--board <FILE>|--source <URI>>"), "{arguments:?}: {text}");
    }
    let board = ["run", "--board", "boards/devhost.toml"];
    for option in [
        &["--source", "test://ball"][..],
        &["--model", "person-nano"],
        &["--score", "0.9"],
        &["--iou", "0.5"],
        &["--resize", "bilinear"],
        &["--batch", "4"],
        &["--track"],
        &["--sink", "jsonl"],
        &["--output", "a.mp4"],
        &["--results", "a.jsonl"],
    ] {
        let text = refused(&[&board, option].concat());
        assert!(text.contains("cannot be used with") && text.contains(option[0]), "{option:?}: {text}");
    }
}

#[test]
fn an_engine_that_this_machine_cannot_run() {
    if Path::new("/dev/nvidiactl").exists() {
        println!("skipped: ort-cuda's refusal: there is a GPU");
        return;
    }
    let output = run(&["infer", "--model", "person-nano", "--engine", "ort-cuda", "a.jpg"]);
    assert_one_sentence(&output, 3, "E0302", &["ort-cuda refused ("]);
}

#[test]
fn images_that_are_none() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let text = write(dir.path(), "a.jpg", "this is text");
    assert_one_sentence(&run(&["infer", "--model", "person-nano", &text]), 2, "E0407", &["a.jpg"]);
    let empty = write(dir.path(), "b.png", "");
    assert_one_sentence(&run(&["infer", "--model", "person-nano", &empty]), 2, "E0407", &["b.png"]);
}

#[test]
fn a_board_with_an_unknown_key() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let board = write(
        dir.path(),
        "b.toml",
        "version = 1\n[[stream]]\nname = 'a'\nsource = 'test://ball'\nmodels = []\nsurce = 'x'\n",
    );
    let output = run(&["run", "--board", &board]);
    assert_one_sentence(&output, 2, "E0103", &["b.toml:6", "stream[0].surce", "did you mean `source`?"]);
}

#[test]
fn all_that_is_wrong_with_a_board_comes_at_once_with_its_lines() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let demo = root().join("models/person-nano").display().to_string();
    let text = format!(
        "version = 1\n[[model]]\nname = 'm'\nmodel = '{demo}'\n\
         [[model]]\nname = 'gone'\nmodel = '/no/such/model.toml'\n\
         [[model]]\nname = 'faces'\nmodel = '{demo}'\non = {{ model = 'm', classes = ['horse'] }}\n\
         [[stream]]\nname = 'a'\nsource = 'no/such.mp4'\nmodels = ['m', 'faces', 'gone']\n\
         [[stream.zone]]\nname = 'z'\ncorners = [0, 0, 2, 0, 2, 2]\n\
         [[stream.line]]\nname = 'l'\nends = [0.5, 0.5, 0.5, 0.5]\n\
         [[stream]]\nname = 'b'\nsource = 'nor/such.mp4'\nmodels = []\n"
    );
    let board = write(dir.path(), "b.toml", &text);
    let output = run(&["run", "--json", "--board", &board]);
    assert_eq!(output.status.code(), Some(2));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let faults = told["faults"].as_array().expect("faults").iter();
    let found: Vec<String> = faults
        .map(|fault| {
            let subject = fault["subject"].as_str().expect("text");
            let place = subject.replace(&format!("{}/", dir.path().display()), "");
            format!("{} {}", fault["code"].as_str().expect("text"), place)
        })
        .collect();
    assert_eq!(
        found,
        [
            "E0101 b.toml:14: no/such.mp4",
            "E0106 b.toml:18: stream a, zone z",
            "E0106 b.toml:21: stream a, line l",
            "E0101 b.toml:24: nor/such.mp4",
            "E0101 b.toml:7: /no/such/model.toml",
            "E0107 b.toml:10: model faces",
        ]
    );
}

#[test]
fn descriptions_that_disagree_with_the_graph() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let refused = |from: &str, to: &str, words: &[&str]| {
        let model = model_with(dir.path(), from, to);
        for engine in engines() {
            let output = run(&["models", "show", &model, "--engine", engine]);
            assert_one_sentence(&output, 2, "E0204", words);
        }
    };
    refused("width = 384", "width = 400", &["[?,3,288,384]", "[1,3,288,400]"]);
    refused("name = \"images\"", "name = \"photos\"", &["no input `photos`", "images"]);
    refused("layout = \"NCHW\"", "layout = \"NHWC\"", &["[?,3,288,384]", "[1,288,384,3]"]);
    refused("labels = [\"person\"]", "labels = [\"person\", \"dog\"]", &["heatmap", "[?,2,36,48]"]);
    refused("head = \"centernet\"", "head = \"yolox\"", &["3 outputs"]);
}

#[test]
fn descriptions_with_wrong_values() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let refused = |from: &str, to: &str, code: &str, words: &[&str]| {
        let model = model_with(dir.path(), from, to);
        assert_one_sentence(&run(&["models", "show", &model]), 2, code, words);
    };
    refused("dtype = \"f32\"", "dtype = \"f64\"", "E0106", &["input.dtype", "f64", "f32"]);
    refused("head = \"centernet\"", "head = \"centrenet\"", "E0106", &["output.head", "centernet, yolox"]);
    refused("sha256 = \"04", "sha256 = \"05", "E0203", &["model.onnx", "sha256"]);
    refused("width = 384", "widht = 384\nwidth = 384", "E0103", &["input.widht", "did you mean `width`?"]);
    refused("width = 384", "width = \"384\"", "E0105", &["input.width", "a whole number"]);
    refused("version = 1", "version = 2", "E0109", &["version"]);
    refused("version = 1", "version = ", "E0102", &["model.toml:1"]);
}

#[test]
fn a_tensor_of_the_wrong_type() {
    let (Some(model), Some(data)) = (shared("models/squeezenet1.0_fp16.onnx"), data()) else { return };
    let dir = tempfile::tempdir().expect("temporary folder");
    let toml = fs::read_to_string(root().join("models/person-nano/model.toml")).expect("readable");
    let toml = toml.replace("name = \"images\"", "name = \"data_0\"").replace("sha256", "description2");
    let toml: String =
        toml.lines().filter(|line| !line.starts_with("description")).collect::<Vec<_>>().join("\n");
    let toml = toml.replacen("version = 1", &format!("version = 1\nfile = \"{model}\""), 1);
    let path = write(dir.path(), "model.toml", &toml);
    for engine in engines() {
        let output =
            orinoco(&["models", "show", &path, "--engine", engine]).env("ORINOCO_DATA", &data).output();
        assert_one_sentence(&output.expect("starts"), 2, "E0204", &["data_0", "f16", "f32"]);
    }
}

#[test]
fn files_that_are_not_onnx() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let text = write(
        dir.path(),
        "a.onnx",
        "this is text, and quite a lot of it, so that no parser can call it short",
    );
    let empty = write(dir.path(), "b.onnx", "");
    let lfs =
        write(dir.path(), "c.onnx", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
    for engine in engines() {
        for (file, word) in [(&text, "a.onnx"), (&empty, "b.onnx"), (&lfs, "Git LFS")] {
            assert_one_sentence(&run(&["models", "show", file, "--engine", engine]), 2, "E0202", &[word]);
        }
    }
}

#[test]
fn an_rtsp_server_that_is_not_there() {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port();
    let uri = format!("rtsp://user:secret@127.0.0.1:{port}/a");
    let output = run(&["run", "--source", &uri, "--reconnect-attempts", "2"]);
    assert_one_sentence(&output, 3, "E0405", &["127.0.0.1"]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("secret"), "the password is shown");
}

#[test]
fn an_rtsp_server_that_never_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let uri = format!("rtsp://127.0.0.1:{}/a", listener.local_addr().expect("bound").port());
    let output = run(&["run", "--source", &uri, "--reconnect-attempts", "1"]);
    assert_one_sentence(&output, 3, "E0405", &["127.0.0.1"]);
}

#[test]
fn a_source_that_fails_has_no_figures() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let video = write(dir.path(), "a.mp4", "this is text");
    for bench in ["pipeline", "streams"] {
        let arguments = ["bench", bench, "--model", "person-nano", "--frames", "2", "--rounds", "1"];
        let output = run(&[&arguments[..], &["--source", &video]].concat());
        assert_one_sentence(&output, 3, "E0402", &["a.mp4"]);
        assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn a_bench_gives_up_a_camera_that_is_not_there() {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port();
    let uri = format!("rtsp://127.0.0.1:{port}/a");
    let output = run(&["bench", "pipeline", "--model", "person-nano", "--frames", "2", "--source", &uri]);
    assert_one_sentence(&output, 3, "E0405", &["127.0.0.1"]);
}

#[test]
fn errors_are_json_when_json_is_asked_for() {
    let output = run(&["run", "--source", "no/such.mp4", "--json"]);
    let errors: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(errors["schema"], "orinoco.error/1");
    assert_eq!(errors["faults"][0]["code"], "E0101");
}

/// Returns offsets at which a file is cut: half of them anywhere, and a quarter near each end, where headers are.
fn cuts(size: usize, count: usize, seed: u64) -> Vec<usize> {
    let mut random = Random(seed);
    let edge = size.min(4096);
    (0..count)
        .map(|i| match i % 4 {
            0 => random.below(edge),
            1 => size - 1 - random.below(edge),
            _ => random.below(size),
        })
        .collect()
}

#[test]
fn two_hundred_truncated_videos() {
    let Some(video) = shared("video/car-detection.mp4") else { return };
    let whole = fs::read(video).expect("readable");
    let dir = tempfile::tempdir().expect("temporary folder");
    let cuts = cuts(whole.len(), 200, 20_261_120);
    let frames: Vec<u64> = std::thread::scope(|scope| {
        let whole = &whole;
        let halves = cuts.chunks(cuts.len() / 2).enumerate().map(|(half, cuts)| {
            let file = dir.path().join(format!("{half}.mp4"));
            scope.spawn(move || {
                cuts.iter().filter_map(|cut| frames_before_cut(whole, *cut, &file)).collect::<Vec<u64>>()
            })
        });
        let halves: Vec<_> = halves.collect();
        halves.into_iter().flat_map(|half| half.join().expect("no cut is wrong")).collect()
    });
    println!(
        "200 truncations of the MP4: {} ended with one fault, {} frames before the cuts were processed",
        frames.len(),
        frames.iter().sum::<u64>()
    );
}

/// Runs a video that is cut. Returns the number of its frames if the run ended with a fault.
fn frames_before_cut(whole: &[u8], cut: usize, file: &Path) -> Option<u64> {
    fs::write(file, &whole[..cut]).expect("written");
    let output = run(&["run", "--source", &file.display().to_string(), "--json"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!text.contains("panicked"), "cut at {cut}:\n{text}");
    let json = String::from_utf8_lossy(&output.stdout);
    let last: serde_json::Value = serde_json::from_str(json.lines().last().unwrap_or("null")).expect("JSON");
    match output.status.code() {
        // The cut removed only padding or the audio track, so every frame is there.
        Some(0) => {
            assert_eq!(last["streams"][0]["frames_out"], 377, "cut at {cut}");
            None
        }
        Some(3) => {
            assert_eq!(last["faults"].as_array().map(Vec::len), Some(1), "cut at {cut}: {last}");
            assert!(last["faults"][0]["cause"].as_str().is_some_and(|c| !c.contains('\n')), "cut at {cut}");
            Some(last["streams"][0]["frames_out"].as_u64().unwrap_or(0))
        }
        other => panic!("cut at {cut}: exit {other:?}\n{text}"),
    }
}

#[test]
fn two_hundred_truncated_models() {
    let whole = fs::read(root().join("models/person-nano/1/model.onnx")).expect("readable");
    let dir = tempfile::tempdir().expect("temporary folder");
    let file = dir.path().join("cut.onnx");
    for engine in engines() {
        for cut in cuts(whole.len(), 200, 20_261_121) {
            fs::write(&file, &whole[..cut]).expect("written");
            let output = run(&["models", "show", &file.display().to_string(), "--engine", engine]);
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(!text.contains("panicked"), "{engine}, cut at {cut}:\n{text}");
            assert_eq!(output.status.code(), Some(2), "{engine}, cut at {cut}:\n{text}");
            assert_eq!(
                text.lines().filter(|line| line.starts_with("error")).count(),
                1,
                "{engine}, {cut}:\n{text}"
            );
        }
        println!("{engine}: 200 truncations of the ONNX refused");
    }
}

#[test]
fn results_are_silent_about_nothing() {
    let output = run(&["run", "--model", "person-nano", "--source", "test://ball?frames=3", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(results(&output).len(), 3, "one line for each frame");
}
