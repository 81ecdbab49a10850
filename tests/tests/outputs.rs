//! Protection of inputs and outputs: no output overwrites a file that is read, or that another output writes. All
//! programs, and all options that name an output.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use orinoco_api::Summary;
use orinoco_tests::{binary, orinoco, root, signal, wait};

/// Files that a run reads: a source, a model with its description, and a board file.
struct Inputs {
    dir: tempfile::TempDir,
}

impl Inputs {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("temporary folder");
        let model = dir.path().join("models/person-nano");
        fs::create_dir_all(model.join("1")).expect("made");
        for name in ["model.toml", "1/model.onnx"] {
            fs::copy(root().join("models/person-nano").join(name), model.join(name)).expect("copied");
        }
        fs::create_dir(dir.path().join("images")).expect("made");
        for name in ["images/a.png", "images/b.png"] {
            image::RgbImage::new(64, 48).save(dir.path().join(name)).expect("written");
        }
        let board = format!(
            "version = 1\n[[model]]\nname = 'm'\nmodel = '{dir}/models/person-nano'\n[[sink]]\nname = 's'\nkind = 'jsonl'\n\
             path = '{dir}/sink.jsonl'\n[[stream]]\nname = 'a'\nsource = '{dir}/images/'\nmodels = ['m']\nsinks = ['s']\n",
            dir = dir.path().display()
        );
        fs::write(dir.path().join("board.toml"), board).expect("written");
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns the content of all files that are read. It must be the same before and after a run.
    fn contents(&self) -> Vec<Vec<u8>> {
        INPUTS.iter().map(|name| fs::read(self.path(name)).expect("it is there")).collect()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let (model, images) = (self.path("models/person-nano"), self.path("images/"));
        let (model, images) = (model.display().to_string(), images.display().to_string());
        let common = ["run", "--model", &model, "--source", &images];
        orinoco(&[&common, arguments].concat()).output().expect("starts")
    }
}

const INPUTS: [&str; 5] = [
    "images/a.png",
    "images/b.png",
    "models/person-nano/model.toml",
    "models/person-nano/1/model.onnx",
    "board.toml",
];

fn check_refused(output: &Output, words: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("E0501") && words.iter().all(|word| text.contains(word)), "{words:?} in {text}");
}

#[test]
fn what_a_run_reads_is_refused_as_any_of_its_outputs() {
    let inputs = Inputs::new();
    let before = inputs.contents();
    for (number, name) in INPUTS[..4].iter().enumerate() {
        let whose = if number < 2 {
            "stream 0 reads this file"
        } else {
            "it is a file of model person-nano and would be overwritten"
        };
        let whose =
            if number < 2 { whose.to_owned() } else { format!("model {}", inputs.path("models").display()) };
        let (hard, soft) = (inputs.path(&format!("hard{number}")), inputs.path(&format!("soft{number}")));
        fs::hard_link(inputs.path(name), &hard).expect("linked");
        symlink(inputs.path(name), &soft).expect("linked");
        for file in [&inputs.path(name), &hard, &soft] {
            let file = file.display().to_string();
            for option in ["--output", "--results", "--summary"] {
                check_refused(&inputs.run(&[option, &file]), &[&file]);
            }
            let new = inputs.path("new.jsonl").display().to_string();
            let sink = format!("framemd5={file}");
            let refused =
                inputs.run(&["--results", &new, "--summary", &format!("{new}.json"), "--sink", &sink]);
            check_refused(&refused, &[&file, if number < 2 { &whose } else { "and would be overwritten" }]);
            assert!(!inputs.path("new.jsonl").exists() && !inputs.path("new.jsonl.json").exists());
        }
    }
    assert_eq!(inputs.contents(), before);
}

#[test]
fn two_outputs_of_a_run_are_two_files() {
    let inputs = Inputs::new();
    let out = inputs.path("out").display().to_string();
    let other = inputs.path("images/../out").display().to_string();
    for pair in [["--results", "--summary"], ["--output", "--summary"], ["--output", "--results"]] {
        for [first, second] in [[&out, &other], [&other, &out]] {
            check_refused(&inputs.run(&[pair[0], first, pair[1], second]), &["it"]);
            assert!(!Path::new(&out).exists());
        }
    }
    let fine = inputs.run(&["--results", &out, "--summary", "/dev/null", "--sink", "framemd5=/dev/null"]);
    assert!(fine.status.success(), "{}", String::from_utf8_lossy(&fine.stderr));
    assert_eq!(fs::read_to_string(&out).expect("written").lines().count(), 2);
}

#[test]
fn a_daemon_refuses_outputs_onto_what_it_reads_and_keeps_what_it_wrote() {
    let inputs = Inputs::new();
    let before = inputs.contents();
    let daemon = |summary: &Path| {
        let mut command = Command::new(binary("orinocod"));
        command.args(["--board", &inputs.path("board.toml").display().to_string()]);
        command.args(["--summary", &summary.display().to_string()]).current_dir(root());
        command.output().expect("starts")
    };
    let hard = inputs.path("hard");
    fs::hard_link(inputs.path("board.toml"), &hard).expect("linked");
    let names = INPUTS.iter().map(|name| inputs.path(name)).chain([hard, inputs.path("sink.jsonl")]);
    for file in names {
        check_refused(&daemon(&file), &[&file.display().to_string()]);
        assert!(!inputs.path("sink.jsonl").exists(), "{}", file.display());
    }
    assert_eq!(inputs.contents(), before);
    for expected in ["sink.jsonl", "sink-2.jsonl"] {
        let output = daemon(&inputs.path("summary.json"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let summary = fs::read(inputs.path("summary.json")).expect("written");
        let summary: Summary = serde_json::from_slice(&summary).expect("a summary");
        assert_eq!(summary.files, [inputs.path(expected).display().to_string()]);
    }
    // The file of an earlier recording is refused as a summary, although the sink would now write to another file.
    check_refused(
        &daemon(&inputs.path("sink.jsonl")),
        &["another output (stream a) already writes to this file"],
    );
}

#[test]
fn an_evaluation_does_not_draw_over_its_images() {
    let inputs = Inputs::new();
    let data = inputs.path("data");
    for folder in ["person", "other"] {
        fs::create_dir_all(data.join(folder)).expect("made");
        fs::copy(inputs.path("images/a.png"), data.join(folder).join("a.png")).expect("copied");
    }
    let plots = inputs.path("plots");
    fs::create_dir(&plots).expect("made");
    symlink(data.join("person/a.png"), plots.join("confusion.svg")).expect("linked");
    let before = fs::read(data.join("person/a.png")).expect("readable");
    let (data, plots) = (data.display().to_string(), plots.display().to_string());
    let arguments = ["eval", "--model", "person-nano", "--dataset", &data, "--plots", &plots];
    check_refused(
        &orinoco(&arguments).output().expect("starts"),
        &["confusion.svg", "it is a file of the data set and would be overwritten"],
    );
    assert_eq!(fs::read(Path::new(&data).join("person/a.png")).expect("readable"), before);
}

#[test]
fn results_of_a_quiet_camera_are_there_within_a_second() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let (lines, sums) = (dir.path().join("r.jsonl"), dir.path().join("sums"));
    let mut command = orinoco(&["run", "--model", "person-nano", "--source"]);
    command.args(["test://ball?pace=pts&fps=1", "--results"]).arg(&lines);
    command.args(["--sink", &format!("framemd5={}", sums.display())]);
    let child = command.stderr(std::process::Stdio::null()).spawn().expect("starts");
    let count = |file: &Path| {
        fs::read_to_string(file).unwrap_or_default().lines().filter(|line| !line.starts_with('#')).count()
    };
    let begin = std::time::Instant::now();
    while count(&lines) == 0 {
        assert!(begin.elapsed() < Duration::from_secs(60), "nothing is seen");
        std::thread::sleep(Duration::from_millis(5));
    }
    // There is one more frame each second, written at most a second late. A checksum is known only when the next frame
    // arrives.
    std::thread::sleep(Duration::from_millis(3900));
    let seen = (count(&lines), count(&sums));
    assert!(seen.0 >= 4 && seen.1 >= 3, "{seen:?}");
    signal(&child, "KILL");
    wait(child, Duration::from_secs(10));
    assert!(count(&lines) >= 4, "a kill loses a second");
}

#[test]
fn a_folder_of_photos_of_many_sizes_becomes_one_video() {
    let dir = tempfile::tempdir().expect("temporary folder");
    for (number, (width, height)) in [(320, 240), (640, 200), (200, 640), (319, 241)].into_iter().enumerate()
    {
        let photo = image::RgbImage::from_pixel(width, height, image::Rgb([200, 30, 30]));
        photo.save(dir.path().join(format!("{number}.png"))).expect("written");
    }
    let (source, video) = (dir.path().display().to_string(), dir.path().join("out/x.mp4"));
    let video = video.display().to_string();
    let output = orinoco(&["run", "--source", &source, "--output", &video]).output().expect("starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = orinoco(&["run", "--source", &video, "--sink", "framemd5"]).output().expect("starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("320x240") && text.lines().filter(|line| line.starts_with("0, ")).count() == 4,
        "{text}"
    );
}

#[test]
fn frames_that_a_failed_output_did_not_take_are_dropped() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let file = dir.path().join("sums").display().to_string();
    let mut command = Command::new("bash");
    command.args(["-c", "ulimit -f 8; exec \"$0\" \"$@\""]).arg(binary("orinoco"));
    command.args(["run", "--json", "--source", "test://ball?frames=6000&width=32&height=32", "--sink"]);
    command.arg(format!("framemd5={file}")).current_dir(root());
    let output = command.output().expect("starts");
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let summary: Summary = serde_json::from_str(text.lines().last().expect("a summary")).expect("a summary");
    let stream = &summary.streams[0];
    let dropped: Vec<(&str, u64)> =
        stream.dropped.iter().map(|dropped| (dropped.cause.as_str(), dropped.frames)).collect();
    let [("sink-failed", frames)] = dropped[..] else { panic!("{dropped:?}") };
    assert_eq!((stream.frames_in, stream.frames_out + frames), (6000, 6000));
    assert!(summary.files.is_empty());
    assert_eq!(summary.incomplete, std::slice::from_ref(&file));
    let kept = fs::read_to_string(&file).expect("it is there");
    assert!(kept.len() > 7000 && kept.ends_with('\n'), "whole lines: {}", kept.len());
}
