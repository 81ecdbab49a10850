//! A stream whose second model runs on another board of a cluster: the results are those of one board, the stream goes on when that
//! board ends, and uses it again when it is back.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
#![allow(clippy::print_stdout, reason = "the test says how long things took")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use image::codecs::gif::GifEncoder;
use image::{Delay, Frame};
use orinoco_api::{ModelStatus, Status};
use orinoco_tests::{binary, make_local_cluster, orinoco, root, signal, wait};
use serde_json::Value;

/// Maximum time that a test waits for a daemon.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Time in which a stream must go on without the other board.
const GOES_ON_MAX: Duration = Duration::from_secs(5);

/// Held by each test that infers: several at once would keep each other from answering in time.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path that is text")
}

/// Writes the board file of a seat.
fn write_board(dir: &Path, name: &str, operator: &str, rest: &str) {
    let board = format!(
        "version = 1\n[inference]\nengines = ['tract']\n[control]\nsocket = '{}'\n\
         [cluster]\nlist = 'members'\noperator_key = '{operator}'\nkey = '{name}.key'\n{rest}",
        dir.join(format!("{name}.sock")).display()
    );
    fs::write(dir.join(format!("{name}.toml")), board).expect("written");
}

/// Writes a video of one photo, a frame a second, so that a busy machine keeps up. An answer that takes longer than 1.5 s is late, and
/// one of two images takes 0.2 s in the profile `dev` where nothing else runs.
fn write_people(path: &Path) {
    let photo = image::open(root().join("docs/demo.jpg")).expect("a photo").to_rgba8();
    let frame = || Frame::from_parts(photo.clone(), 0, 0, Delay::from_numer_denom_ms(1_000, 1));
    let mut video = GifEncoder::new_with_speed(File::create(path).expect("a file"), 30);
    video.encode_frames([frame(), frame()]).expect("written");
}

/// People in a video of one photo, and the same model again on each of them, by `seat` (with these keys).
fn stream_of_people(seat: &str, sink: &Path) -> String {
    let video = sink.with_extension("gif");
    write_people(&video);
    format!(
        "[[model]]\nname = 'people'\nmodel = 'person-nano'\n\
         [[model]]\nname = 'again'\nmodel = 'person-nano'\nbatch = 2\non = {{ model = 'people', count_max = 2 }}\n{seat}\
         [[sink]]\nname = 'results'\nkind = 'jsonl'\npath = '{}'\n\
         [[stream]]\nname = 'gate'\nsource = '{}?loop=1&pace=pts'\nmodels = ['people', 'again']\nsinks = ['results']\n",
        sink.display(),
        video.display(),
    )
}

const SERVED: &str = "[[model]]\nname = 'again'\nmodel = 'person-nano'\nbatch = 2\n\
                      [[stream]]\nname = 'cluster'\nsource = 'cluster://'\nmodels = ['again']\n";

/// A daemon, which is killed when this value is dropped.
struct Daemon {
    /// `None` once its end is waited for.
    child: Option<Child>,
    socket: PathBuf,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("killed");
            child.wait().expect("ended");
        }
    }
}

impl Daemon {
    fn start(dir: &Path, name: &str) -> Self {
        let log =
            File::options().create(true).append(true).open(dir.join(format!("{name}.log"))).expect("a log");
        let mut command = Command::new(binary("orinocod"));
        command
            .arg("--board")
            .arg(dir.join(format!("{name}.toml")))
            .current_dir(root())
            .stderr(Stdio::from(log));
        Self { child: Some(command.spawn().expect("starts")), socket: dir.join(format!("{name}.sock")) }
    }

    fn status(&self) -> Option<Status> {
        let output = orinoco(&["--json", "status", "--socket", text(&self.socket)]).output();
        serde_json::from_slice(&output.expect("orinoco starts").stdout).ok()
    }

    /// Asks for the state of the second model until it is as wanted.
    fn until(&self, is_wanted: impl Fn(&ModelStatus) -> bool) -> ModelStatus {
        let begin = Instant::now();
        loop {
            let status = self.status();
            let model = status.and_then(|mut status| {
                let index = status.models.iter().position(|model| model.name == "again")?;
                Some(status.models.swap_remove(index))
            });
            match model {
                Some(model) if is_wanted(&model) => return model,
                model => assert!(begin.elapsed() < WAIT_MAX, "{model:?}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the daemon ends, and returns its exit code.
    fn exit_code(mut self) -> Option<i32> {
        wait(self.child.take().expect("it was not waited for"), WAIT_MAX).0
    }

    fn end(self) {
        signal(self.child.as_ref().expect("it was not waited for"), "TERM");
        assert_eq!(self.exit_code(), Some(0));
    }
}

fn remote(model: &ModelStatus) -> u64 {
    model.remote.as_ref().expect("it has a seat").images
}

fn missed(model: &ModelStatus, cause: &str) -> u64 {
    let missed = &model.remote.as_ref().expect("it has a seat").missed;
    missed.iter().find(|missed| missed.cause == cause).map_or(0, |missed| missed.images)
}

/// Results of the second model by the number of the frame: the object, and what was found in it.
fn results_of_second(path: &Path) -> BTreeMap<u64, Vec<String>> {
    let text = fs::read_to_string(path).expect("results");
    let mut frames: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    // The last line may not be complete.
    for line in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let results = frames.entry(line["seq"].as_u64().expect("a number")).or_default();
        if line["model"] == "again" {
            results.push(format!("{} {}", line["object"], line["detections"]));
        }
    }
    frames
}

/// Results of one frame of the stream on one board.
fn results_of_one_board(dir: &Path) -> Vec<String> {
    let results = dir.join("alone.jsonl");
    let board = format!("version = 1\n[inference]\nengines = ['tract']\n{}", stream_of_people("", &results));
    fs::write(dir.join("alone.toml"), board).expect("written");
    let run = orinoco(&["run", "--board", text(&dir.join("alone.toml")), "--frames", "3"]).output();
    let run = run.expect("orinoco starts");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let frames: BTreeSet<Vec<String>> = results_of_second(&results).into_values().collect();
    assert_eq!(frames.len(), 1, "every frame is the same photo");
    let frame = frames.into_iter().next().expect("one");
    assert!(frame.len() > 1 && frame.iter().any(|result| result.contains("person")), "{frame:?}");
    frame
}

/// Checks that the frames of a stream have all results or, if it may skip them, none. Returns how many have none.
fn check_frames(path: &Path, expected: &[String]) -> usize {
    let frames = results_of_second(path);
    let numbers: Vec<u64> = frames.keys().copied().collect();
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>(), "no frame is lost");
    // The last one may not be complete.
    let complete = frames.values().take(numbers.len() - 1);
    complete
        .filter(|results| *results != expected)
        .map(|results| assert!(results.is_empty(), "{results:?}"))
        .count()
}

#[test]
fn a_stream_goes_on_without_the_seat_of_its_second_model_and_uses_it_again() {
    let _turn = turn();
    let dir = tempfile::tempdir().expect("temporary folder");
    let dir = dir.path();
    let expected = results_of_one_board(dir);
    let operator = make_local_cluster(dir, &["a", "b"]);
    let results = dir.join("gate.jsonl");
    write_board(dir, "a", &operator, &stream_of_people("seat = 'b'\n", &results));
    write_board(dir, "b", &operator, SERVED);

    // Without the other board the stream runs, too.
    let a = Daemon::start(dir, "a");
    a.until(|model| missed(model, "offline") > 0);
    let b = Daemon::start(dir, "b");
    let before = a.until(|model| remote(model) >= 20);
    assert!(
        b.status().expect("a status").ready,
        "a board that serves others is ready without frames of its own"
    );

    let start = Instant::now();
    drop(b);
    let after = a.until(|model| missed(model, "offline") > missed(&before, "offline"));
    println!("it went on after {} ms", start.elapsed().as_millis());
    assert!(start.elapsed() < GOES_ON_MAX, "{:?}", start.elapsed());
    a.until(|model| missed(model, "offline") >= missed(&after, "offline") + 10);

    let b = Daemon::start(dir, "b");
    let back = a.until(|model| remote(model) >= remote(&after) + 20);
    println!("{back:?}");
    let fps = a.status().expect("a status").streams[0].fps;
    a.end();
    b.end();
    let skipped = check_frames(&results, &expected);
    assert!(skipped > 0, "some frames went on without the second model ({fps} per second)");
    // Objects of a frame are sent together: frames without results are as many as were counted.
    assert!(skipped as u64 * expected.len() as u64 >= missed(&back, "offline"), "{skipped} frames, {back:?}");
}

#[test]
fn a_local_model_takes_over_when_its_seat_is_offline() {
    let _turn = turn();
    let dir = tempfile::tempdir().expect("temporary folder");
    let dir = dir.path();
    let expected = results_of_one_board(dir);
    let operator = make_local_cluster(dir, &["a", "b"]);
    let results = dir.join("gate.jsonl");
    write_board(dir, "a", &operator, &stream_of_people("seat = 'b'\nfallback = 'local'\n", &results));
    write_board(dir, "b", &operator, SERVED);
    let (a, b) = (Daemon::start(dir, "a"), Daemon::start(dir, "b"));
    a.until(|model| remote(model) >= 20);
    drop(b);
    let missed = a.until(|model| missed(model, "offline") >= 10);
    println!("{missed:?}");
    a.end();
    assert_eq!(check_frames(&results, &expected), 0, "every frame has all results");
}

#[test]
fn a_seat_that_does_not_serve_the_model_is_named_with_the_reason() {
    let _turn = turn();
    let dir = tempfile::tempdir().expect("temporary folder");
    let dir = dir.path();
    let operator = make_local_cluster(dir, &["a", "b"]);
    write_board(dir, "a", &operator, &stream_of_people("seat = 'b'\n", &dir.join("gate.jsonl")));
    write_board(dir, "b", &operator, &SERVED.replace("'again'", "'other'"));
    let (a, b) = (Daemon::start(dir, "a"), Daemon::start(dir, "b"));
    a.until(|model| missed(model, "failed") > 0);
    a.end();
    b.end();
    let log = fs::read_to_string(dir.join("a.log")).expect("a log");
    let line = log.lines().find(|line| line.contains("E1006")).unwrap_or_else(|| panic!("{log}"));
    for part in
        ["model=again", "seat=b", "the seat serves no model of this name", "frames go on without this model"]
    {
        assert!(line.contains(part), "{line}");
    }
}

#[test]
fn a_seat_that_is_not_in_the_list_is_refused_at_the_start() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let dir = dir.path();
    let operator = make_local_cluster(dir, &["a", "b"]);
    write_board(dir, "a", &operator, &stream_of_people("seat = 'south'\n", &dir.join("gate.jsonl")));
    let a = Daemon::start(dir, "a");
    assert_eq!(a.exit_code(), Some(2));
    let log = fs::read_to_string(dir.join("a.log")).expect("a log");
    let expected = "seat `south` of a model is not another seat of the member list; use one of b";
    assert!(log.contains("E1004") && log.contains(expected), "{log}");
}
