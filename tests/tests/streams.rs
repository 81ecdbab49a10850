//! Processing of a stream's frames: models that run on some of the frames or on detected objects, and streams that join
//! and leave a running board.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
#![allow(clippy::print_stdout, reason = "tests say what they compared")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use orinoco_api::{DetectionJson, ResultLine, Summary};
use orinoco_core::BoxF;
use orinoco_tests::{Agreement, agree, binary, orinoco, results, root, signal};

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, text).expect("written");
    path.display().to_string()
}

fn read(path: &Path) -> Vec<ResultLine> {
    let text = fs::read_to_string(path).expect("readable");
    text.lines().map(|line| serde_json::from_str(line).expect("a result")).collect()
}

/// Reads a file that is still written: its last line may be incomplete.
fn whole_lines(path: &Path) -> Vec<ResultLine> {
    let text = fs::read_to_string(path).expect("readable");
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).expect("a result")).collect()
}

fn as_box(bounds: [f32; 4]) -> BoxF {
    let [x1, y1, x2, y2] = bounds;
    BoxF { x1, y1, x2, y2 }
}

/// Executes a board, which must succeed.
fn run(board: &str) {
    let output = orinoco(&["run", "--board", board, "--json"]).output().expect("starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Writes the frames of a camera that turns over an image with people: each frame is a section further to the right.
fn turning_camera(dir: &Path, frames: u32) -> String {
    let folder = dir.join("frames");
    fs::create_dir(&folder).expect("made");
    let image = image::open(root().join("docs/demo.jpg")).expect("an image with people").to_rgb8();
    let (width, height) = (image.width() - 4 * frames, image.height());
    for frame in 0..frames {
        let part = image::imageops::crop_imm(&image, 4 * frame, 0, width, height).to_image();
        part.save(folder.join(format!("{frame:02}.png"))).expect("written");
    }
    folder.display().to_string()
}

fn one_stream(dir: &Path, out: &str, source: &str, models: &str, stream: &str) -> String {
    let path = dir.join(out).display().to_string();
    format!(
        "version = 1\n{models}\n[[sink]]\nname = 's'\nkind = 'jsonl'\npath = '{path}'\n\
         [[stream]]\nname = 'a'\nsource = '{source}'\nsinks = ['s']\n{stream}\n"
    )
}

#[test]
fn between_the_frames_that_are_searched_the_tracker_says_where_objects_are() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let source = turning_camera(dir.path(), 16);
    for (out, interval) in [("all.jsonl", 1), ("some.jsonl", 3)] {
        let models = format!("[[model]]\nname = 'person-nano'\ninterval = {interval}");
        let stream = "models = ['person-nano']\ntrack = true";
        let board = one_stream(dir.path(), out, &source, &models, stream);
        run(&write(dir.path(), "board.toml", &board));
    }
    let (all, some) = (read(&dir.path().join("all.jsonl")), read(&dir.path().join("some.jsonl")));
    assert!(all.iter().all(|line| !line.predicted) && all.len() == 16);
    let searched: Vec<u64> = some.iter().filter(|line| !line.predicted).map(|line| line.seq).collect();
    assert_eq!(searched, [0, 3, 6, 9, 12, 15]);
    // By these frames, the tracker's filter has estimated the speed of the objects.
    let (mut moved, mut left, mut count) = (0.0, 0.0, 0);
    for line in some.iter().filter(|line| line.predicted && line.seq > 6) {
        let there = &all[line.seq as usize].detections;
        let before = some.iter().rfind(|other| !other.predicted && other.seq < line.seq).expect("searched");
        for found in &line.detections {
            let id = found.track_id.expect("only what is followed is predicted");
            let last =
                before.detections.iter().find(|other| other.track_id == Some(id)).expect("it was seen");
            moved += overlap_max(found.bounds, there);
            left += overlap_max(last.bounds, there);
            count += 1;
        }
    }
    let (moved, left) = (moved / count as f32, left / count as f32);
    println!("{count} predicted boxes: overlap {moved:.2} with what is there, {left:.2} had they stayed");
    assert!(count > 20 && moved > 0.7 && moved > left + 0.05);
}

/// Returns the maximum IoU of a box with any of the others.
fn overlap_max(bounds: [f32; 4], others: &[DetectionJson]) -> f32 {
    others.iter().map(|other| as_box(bounds).iou(&as_box(other.bounds))).fold(0.0, f32::max)
}

#[test]
fn a_model_looks_at_the_objects_of_another() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let image = image::open(root().join("docs/demo.jpg")).expect("an image with people").to_rgb8();
    let source = dir.path().join("image.png");
    image.save(&source).expect("written");
    // A person that fills the image is hard for this model, so detections with low scores count, too.
    let closer = "score_threshold = 0.02";
    let models = format!(
        "[[model]]\nname = 'finder'\nmodel = '{model}'\n[[model]]\nname = 'closer'\nmodel = '{model}'\nbatch = 2\n\
         {closer}\non = {{ model = 'finder', classes = ['person'], side_min = 24, count_max = 5 }}",
        model = root().join("models/person-nano").display()
    );
    let stream = "models = ['finder', 'closer']";
    let board = one_stream(dir.path(), "o.jsonl", &source.display().to_string(), &models, stream);
    run(&write(dir.path(), "board.toml", &board));
    let lines = read(&dir.path().join("o.jsonl"));
    let (finder, closer) = lines.split_first().expect("lines");
    let large = finder.detections.iter().filter(|found| {
        let [x1, y1, x2, y2] = pixels(found.bounds);
        (x2 - x1).min(y2 - y1) >= 24
    });
    assert_eq!(closer.len(), large.count().min(5), "{finder:#?}");
    let mut seen = 0;
    for line in closer {
        let object = line.object.as_ref().expect("what it looked at");
        assert_eq!((line.model.as_str(), object.model.as_str()), ("closer", "finder"));
        assert_eq!(object.detection, finder.detections[object.index], "as the finder has it");
        // An image of this section alone gives the same detections, at other coordinates.
        let [x1, y1, x2, y2] = pixels(object.detection.bounds);
        let part = image::imageops::crop_imm(&image, x1, y1, x2 - x1, y2 - y1).to_image();
        let alone = dir.path().join("part.png");
        part.save(&alone).expect("written");
        let output = orinoco(&["infer", "--model", "models/person-nano", "--score", "0.02", "--json"])
            .arg(&alone)
            .output()
            .expect("starts");
        let mut alone = results(&output).remove(0).detections;
        for found in &mut alone {
            found.bounds.iter_mut().zip([x1, y1, x1, y1]).for_each(|(side, by)| *side += by as f32);
        }
        let how = Agreement { iou_min: 0.99, score_max: 0.001, threshold: 0.02 };
        agree(&line.detections, &alone, how).unwrap_or_else(|why| panic!("{why}"));
        seen += alone.len();
    }
    assert!(seen > 0, "nothing was compared");
}

/// Returns the pixels that a box touches: first column and row, and the ones after the last.
fn pixels([x1, y1, x2, y2]: [f32; 4]) -> [u32; 4] {
    [x1.max(0.0).floor(), y1.max(0.0).floor(), x2.ceil(), y2.ceil()].map(|side| side as u32)
}

#[test]
fn a_class_that_the_finder_does_not_know_is_refused() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let models = "[[model]]\nname = 'person-nano'\n[[model]]\nname = 'b'\nmodel = '{root}/models/person-nano'\n\
                  on = { model = 'person-nano', classes = ['cat'] }";
    let models = models.replace("{root}", &root().display().to_string());
    let board = one_stream(dir.path(), "o", "test://ball?frames=1", &models, "models = ['person-nano', 'b']");
    let output = orinoco(&["run", "--board", &write(dir.path(), "b.toml", &board)]).output().expect("starts");
    orinoco_tests::assert_one_sentence(&output, 2, "E0107", &["model b", "`cat`", "person"]);
}

// --- streams that join and leave -------------------------------------------------------------------------------------------

/// Daemon, with a reader of its log.
struct Daemon {
    child: Child,
    said: BufReader<ChildStderr>,
    passed: Vec<String>,
    board: String,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The daemon still runs only after a failure.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Daemon {
    /// Starts the daemon, and waits until the streams `live` are.
    fn start(dir: &Path, streams: &str, live: &[&str]) -> Self {
        let board = write(dir, "board.toml", &Self::text(dir, streams));
        let mut command = Command::new(binary("orinocod"));
        command.args(["--board", &board, "--summary", &dir.join("s.json").display().to_string()]);
        let mut child = command.current_dir(root()).stderr(Stdio::piped()).spawn().expect("starts");
        let said = BufReader::new(child.stderr.take().expect("piped"));
        let mut daemon = Self { child, said, passed: Vec::new(), board };
        for name in live {
            daemon.hear(&format!("stream={name} state=live"));
        }
        daemon
    }

    fn text(dir: &Path, streams: &str) -> String {
        Self::with_threshold(dir, 0.3, streams)
    }

    /// Returns a board whose model `other` has this score threshold.
    fn with_threshold(dir: &Path, threshold: f32, streams: &str) -> String {
        let out = dir.join("{stream}.jsonl").display().to_string();
        format!(
            "version = 1\n[[model]]\nname = 'person-nano'\n[[model]]\nname = 'other'\nmodel = '{}/models/person-nano'\n\
             score_threshold = {threshold}\n[[sink]]\nname = 's'\nkind = 'jsonl'\npath = '{out}'\n{streams}",
            root().display()
        )
    }

    /// Waits for a line with `words`, and returns it. Lines of several threads come in any order, so earlier lines that
    /// were not asked for are searched first.
    fn hear(&mut self, words: &str) -> String {
        loop {
            if let Some(index) = self.passed.iter().position(|line| line.contains(words)) {
                return self.passed.remove(index);
            }
            let mut line = String::new();
            let bytes = self.said.read_line(&mut line).expect("text");
            assert!(bytes > 0, "it ended without `{words}`: {:#?}", self.passed);
            self.passed.push(line);
        }
    }

    fn reload(&mut self, text: &str) {
        fs::write(&self.board, text).expect("written");
        signal(&self.child, "HUP");
    }
}

fn stream(name: &str, models: &str) -> String {
    format!(
        "[[stream]]\nname = '{name}'\nsource = 'test://ball?pace=pts&width=160&height=120'\nmodels = [{models}]\nsinks = ['s']\n"
    )
}

#[test]
fn streams_join_and_leave_and_the_others_do_not_notice() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let dir = dir.path();
    let (a, b, c) = (stream("a", "'person-nano'"), stream("b", "'other'"), stream("c", "'person-nano'"));
    let mut daemon = Daemon::start(dir, &format!("{a}{b}"), &["a", "b"]);
    daemon.reload(&Daemon::text(dir, &format!("{a}{c}")));
    assert!(daemon.hear("reloaded").contains("joined=c left=b stayed=1"));
    daemon.hear("stream=b state=ended");
    daemon.hear("stream=c state=live");
    // The model of b was unloaded with b, and is loaded again.
    let slower = stream("c", "'other'");
    daemon.reload(&Daemon::text(dir, &format!("{a}{slower}")));
    assert!(daemon.hear("reloaded").contains("joined=c left=c stayed=1"));
    daemon.hear("stream=c state=live");
    std::thread::sleep(Duration::from_millis(300));
    signal(&daemon.child, "TERM");
    daemon.hear("summary");
    assert!(daemon.child.wait().expect("waits").success());

    let summary: Summary =
        serde_json::from_slice(&fs::read(dir.join("s.json")).expect("written")).expect("JSON");
    let names: Vec<&str> = summary.streams.iter().map(|stream| stream.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "c"]);
    for (stream, file) in summary.streams.iter().zip(["a.jsonl", "b.jsonl", "c.jsonl", "c-2.jsonl"]) {
        assert!(stream.dropped.is_empty() && stream.frames_out > 0, "{stream:?}");
        let numbers: Vec<u64> = read(&dir.join(file)).iter().map(|line| line.seq).collect();
        assert_eq!(numbers, (0..stream.frames_in).collect::<Vec<_>>(), "{file}: every frame, once");
    }
}

#[test]
fn a_model_is_replaced_while_its_streams_continue() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let dir = dir.path();
    let streams = format!("{}{}", stream("a", "'person-nano'"), stream("b", "'other'"));
    let board = |threshold| Daemon::with_threshold(dir, threshold, &streams);
    let mut daemon = Daemon::start(dir, &streams, &["a", "b"]);
    // A low threshold finds something in every frame, and a high one nothing.
    for (threshold, has_detections) in [(0.001, true), (0.999, false), (0.002, true)] {
        daemon.reload(&board(threshold));
        daemon.hear("model=other lane=0 replaced");
        assert!(daemon.hear("reloaded").contains("joined=- left=- stayed=2 replaced=other"));
        let path = dir.join("b.jsonl");
        let before = whole_lines(&path).len();
        let is_new = || {
            let lines = whole_lines(&path);
            let latest = lines.last().filter(|_| lines.len() > before + 1);
            latest.is_some_and(|line| line.detections.is_empty() != has_detections)
        };
        let waits = (0..300).find(|_| {
            std::thread::sleep(Duration::from_millis(100));
            is_new()
        });
        assert!(waits.is_some(), "no result of the new model with threshold {threshold}");
    }
    signal(&daemon.child, "TERM");
    daemon.hear("summary");
    assert!(daemon.child.wait().expect("waits").success());

    let summary: Summary =
        serde_json::from_slice(&fs::read(dir.join("s.json")).expect("written")).expect("JSON");
    assert_eq!(summary.models.iter().filter(|model| model.name == "other").count(), 1, "it is one model");
    for (stream, name) in summary.streams.iter().zip(["a", "b"]) {
        assert_eq!((&*stream.name, stream.dropped.len()), (name, 0));
        let numbers: Vec<u64> =
            read(&dir.join(format!("{name}.jsonl"))).iter().map(|line| line.seq).collect();
        assert_eq!(numbers, (0..stream.frames_in).collect::<Vec<_>>(), "every frame, once, in one file");
    }
    assert_eq!(summary.streams.len(), 2);
}

#[test]
fn a_board_that_cannot_be_reloaded_runs_on() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let dir = dir.path();
    let a = stream("a", "'person-nano'");
    let mut daemon = Daemon::start(dir, &a, &["a"]);
    for (text, wanted) in [
        ("version = 1\n[[stream]\n".to_owned(), "E0102"),
        (Daemon::text(dir, &format!("lanes = 2\n{a}")).replace("[[model]]", ""), "E01"),
        (format!("lanes = 2\n{}", Daemon::text(dir, &format!("{a}{}", stream("b", "")))), "E0110"),
        (Daemon::text(dir, &format!("{a}{}", stream("b", "")).replace("test://ball", "ftp://ball")), "E0401"),
    ] {
        daemon.reload(&text);
        daemon.hear(wanted);
        daemon.hear("not reloaded");
    }
    daemon.reload(&Daemon::text(dir, &a));
    assert!(daemon.hear("reloaded").contains("joined=- left=- stayed=1"));
    signal(&daemon.child, "TERM");
    daemon.hear("summary");
    assert!(daemon.child.wait().expect("waits").success());
    let summary: Summary =
        serde_json::from_slice(&fs::read(dir.join("s.json")).expect("written")).expect("JSON");
    assert_eq!((summary.streams.len(), summary.streams[0].dropped.len()), (1, 0));
}
