//! A stream on one emulated board whose second model runs on another: results, a reset of that board, and its return; and the same
//! over RDMA, which one board then stops using. The second
//! model classifies digits, because it is small: what it takes people for is of no interest, but that it is the same everywhere.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use orinoco_api::{ClusterStatus, ModelStatus, Status};
use orinoco_rig::{Board, Boards, Fault, Flavour, Link, Options};
use orinoco_tests::{make_cluster, root, shared};
use serde_json::Value;

use super::group::next_line;
use super::{put, put_model, put_text, run, stage_all};

/// Size of the photo, in pixels.
const SIZE: (u32, u32) = (640, 360);
/// Port of both seats.
const PORT: u16 = 4711;
/// Maximum time that the test waits for a daemon.
const WAIT_MAX: Duration = Duration::from_secs(180);
/// Time in which the stream must go on without the other board.
const GOES_ON_MAX: Duration = Duration::from_secs(5);

/// Boards, and the keys and list of their cluster.
struct Cascade {
    boards: Boards,
    files: tempfile::TempDir,
    operator: String,
    /// ONNX file of the second model.
    digits: String,
}

impl Cascade {
    fn stage(options: Options) -> Option<Self> {
        let digits = shared("models/mnist_8.onnx")?;
        let boards = stage_all(Flavour::Dropbear, &options, 2, &["orinoco", "orinocod"])?;
        let address = |index: usize| -> SocketAddr {
            format!("{}:{PORT}", boards[index].address()).parse().expect("an address")
        };
        let files = tempfile::tempdir().expect("temporary folder");
        // An emulated core encrypts a few megabytes in a second.
        let photo = image::open(root().join("docs/demo.jpg")).expect("an image with people").to_rgb8();
        let photo = image::imageops::resize(&photo, SIZE.0, SIZE.1, image::imageops::FilterType::Triangle);
        photo.save(files.path().join("photo.png")).expect("written");
        let operator = make_cluster(files.path(), &[("a", address(0)), ("b", address(1))]);
        Some(Self { boards, files, operator, digits })
    }

    /// Copies to a board what its daemon reads. `rest` of the board file follows the section of its cluster.
    fn prepare(&self, index: usize, rest: &str) {
        let (board, name) = (&self.boards[index], ["a", "b"][index]);
        put_model(board);
        run(board, "mkdir -p /tmp/digits/models");
        put(board, &root().join("tests/models/mnist_8/model.toml"), "/tmp/digits/model.toml");
        put(board, Path::new(&self.digits), "/tmp/digits/models/mnist_8.onnx");
        put(board, &self.files.path().join("photo.png"), "/tmp/photo.png");
        put(board, &self.files.path().join("members"), "/tmp/members");
        put(board, &self.files.path().join(format!("{name}.key")), "/tmp/seat.key");
        self.configure(index, rest);
        run(board, "chmod 600 /tmp/seat.key; mkdir -p /tmp/out");
    }

    /// Writes a board file.
    fn configure(&self, index: usize, rest: &str) {
        let operator = &self.operator;
        let text = format!(
            "version = 1\n[inference]\nengines = ['tract']\n[control]\nsocket = '/tmp/orinoco.sock'\n\
             [cluster]\nlist = 'members'\noperator_key = '{operator}'\nkey = 'seat.key'\n{rest}"
        );
        put_text(&self.boards[index], &text, "/tmp/board.toml");
    }

    /// Results of the stream on the first board alone, which the two must give together.
    fn expected(&self) -> Vec<String> {
        let a = &self.boards[0];
        put_text(
            a,
            &format!("version = 1\n[inference]\nengines = ['tract']\n{}", stream("")),
            "/tmp/alone.toml",
        );
        run(
            a,
            "/tmp/orinoco run --board /tmp/alone.toml --frames 3 && mv /tmp/out/gate.jsonl /tmp/alone.jsonl",
        );
        let expected = results(&run(a, "cat /tmp/alone.jsonl")).swap_remove(0);
        assert!(expected.len() == 1 && expected[0].contains("score"), "{expected:?}");
        expected
    }
}

/// People in a photo, and the second model on the best of them, by `seat`.
fn stream(seat: &str) -> String {
    format!(
        "[[model]]\nname = 'people'\nmodel = '/tmp/person-nano'\n\
         [[model]]\nname = 'digits'\nmodel = '/tmp/digits'\nbatch = 1\non = {{ model = 'people', count_max = 1 }}\n{seat}\
         [[sink]]\nname = 'results'\nkind = 'jsonl'\npath = '/tmp/out/{{stream}}.jsonl'\n\
         [[stream]]\nname = 'gate'\nsource = '/tmp/photo.png?loop=1'\nmodels = ['people', 'digits']\nsinks = ['results']\n"
    )
}

const SERVED: &str = "[[model]]\nname = 'digits'\nmodel = '/tmp/digits'\nbatch = 1\n\
                      [[stream]]\nname = 'cluster'\nsource = 'cluster://'\nmodels = ['digits']\n";

fn start(board: &Board) {
    run(
        board,
        "cd /tmp && (setsid /tmp/orinocod --board /tmp/board.toml >/tmp/log 2>&1 </dev/null &) ; sleep 0.1",
    );
}

fn stop(board: &Board) {
    run(board, "kill $(pidof orinocod); while pidof orinocod >/dev/null; do sleep 0.1; done");
}

/// Asks for a part of the state of a board's daemon until it is as wanted.
fn part_until<P: Debug>(
    board: &Board,
    part: impl Fn(Status) -> Option<P>,
    is_wanted: impl Fn(&P) -> bool,
) -> P {
    let begin = Instant::now();
    loop {
        let output = board.ssh("/tmp/orinoco --json status --socket /tmp/orinoco.sock").expect("ssh starts");
        let status: Option<Status> = serde_json::from_slice(&output.stdout).ok();
        match status.and_then(&part) {
            Some(part) if is_wanted(&part) => return part,
            part => assert!(begin.elapsed() < WAIT_MAX, "{part:?}\n{}", run(board, "cat /tmp/log")),
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Asks for the state of the second model on the first board until it is as wanted.
fn until(board: &Board, is_wanted: impl Fn(&ModelStatus) -> bool) -> ModelStatus {
    let digits = |status: Status| status.models.into_iter().find(|model| model.name == "digits");
    part_until(board, digits, is_wanted)
}

/// Asks for the state of the cluster until it is as wanted.
fn cluster_until(board: &Board, is_wanted: impl Fn(&ClusterStatus) -> bool) -> ClusterStatus {
    part_until(board, |status| status.cluster, is_wanted)
}

fn remote(model: &ModelStatus) -> u64 {
    model.remote.as_ref().expect("it has a seat").images
}

fn missed(model: &ModelStatus) -> u64 {
    model.remote.as_ref().expect("it has a seat").missed.iter().map(|missed| missed.images).sum()
}

/// Results of the second model by frame: the object, and what was found in it. The last frame may not be complete.
fn results(text: &str) -> Vec<Vec<String>> {
    let mut frames: Vec<Vec<String>> = Vec::new();
    for line in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let seq = line["seq"].as_u64().expect("a number") as usize;
        frames.resize(seq + 1, Vec::new());
        if line["model"] == "digits" {
            frames[seq].push(format!("{} {}", line["object"], line["classes"]));
        }
    }
    frames.pop();
    frames
}

#[test]
#[ignore = "boots emulated boards; `make test-boards` runs it"]
fn a_stream_goes_on_without_the_board_of_its_second_model_and_uses_it_again() {
    let options = Options { link: Link::Bridge, hurried: true, ..Options::default() };
    let Some(cascade) = Cascade::stage(options) else { return };
    let (a, b) = (&cascade.boards[0], &cascade.boards[1]);
    cascade.boards.alone().expect("no other boards");
    cascade.prepare(0, &stream("seat = 'b'\n"));
    cascade.prepare(1, SERVED);
    let expected = cascade.expected();

    start(b);
    start(a);
    let before = until(a, |model| remote(model) >= 10);
    // The log is read by one command that waits there: each connection and status takes the emulated core a second.
    let watch = "n=$(grep -c E1005 /tmp/log); echo watching; \
                 while [ $(grep -c E1005 /tmp/log) = $n ]; do usleep 100000; done; echo reported";
    let mut watcher = a.spawn(watch).expect("ssh starts");
    assert_eq!(next_line(&mut watcher), "watching");
    b.fault(&Fault::Reset).expect("the board is reset");
    let reset = Instant::now();
    assert_eq!(next_line(&mut watcher), "reported");
    println!("it went on after {} ms at most", reset.elapsed().as_millis());
    assert!(reset.elapsed() < GOES_ON_MAX, "{:?}", reset.elapsed());
    let gone = until(a, |model| missed(model) > missed(&before));
    until(a, |model| missed(model) >= missed(&gone) + 4);

    b.wait_for_boots(2, WAIT_MAX).expect("it boots again");
    for program in ["orinoco", "orinocod"] {
        put(b, &orinoco_tests::cross_binary(program).expect("it was there"), &format!("/tmp/{program}"));
    }
    cascade.prepare(1, SERVED);
    start(b);
    let back = until(a, |model| remote(model) >= remote(&gone) + 10);
    println!("it is used again: {:?}", back.remote);
    stop(a);
    let frames = results(&run(a, "cat /tmp/out/gate.jsonl"));
    // The board may have been reset between two objects of a frame.
    let is_part = |found: &&Vec<String>| found.iter().all(|result| expected.contains(result));
    assert!(frames.iter().all(|found| is_part(&found)), "{frames:?}");
    let skipped = frames.iter().filter(|found| **found != expected);
    let (all, skipped) = (frames.len(), skipped.count());
    println!("{all} frames, {skipped} of them without the second model");
    assert!(skipped > 0 && skipped < all);
    assert!(skipped as u64 >= missed(&back) && missed(&back) > 0, "{skipped} frames, {:?}", back.remote);
}

#[test]
#[ignore = "boots emulated boards; `make test-boards` runs it"]
fn a_cluster_uses_rdma_until_one_of_its_boards_cannot() {
    // An MTU that allows RDMA's largest packets.
    let options = Options { link: Link::Bridge, mtu: 4200, hurried: true, ..Options::default() };
    let Some(cascade) = Cascade::stage(options) else { return };
    let (a, b) = (&cascade.boards[0], &cascade.boards[1]);
    for board in [a, b] {
        assert_eq!(board.soft_roce().expect("an RDMA device"), "rxe0");
    }
    let preferred = "transports = ['rdma', 'tcp']\n";
    cascade.prepare(0, &format!("{preferred}{}", stream("seat = 'b'\n")));
    cascade.prepare(1, &format!("{preferred}{SERVED}"));
    let expected = cascade.expected();
    start(b);
    start(a);
    for board in [a, b] {
        let cluster = cluster_until(board, |cluster| cluster.transport.is_some());
        assert_eq!(cluster.transport.as_deref(), Some("rdma"), "{cluster:?}\n{}", run(board, "cat /tmp/log"));
        assert_eq!(cluster.rdma_port.as_deref(), Some("rxe0 port 1, MTU 4096 bytes"));
    }
    let over_rdma = until(a, |model| remote(model) >= 5);

    // The second board names a device that it does not have.
    stop(b);
    cascade.configure(1, &format!("{preferred}rdma_device = 'rxe1'\n{SERVED}"));
    start(b);
    let cluster = cluster_until(a, |cluster| cluster.fallback.is_some());
    let why = "seat b cannot use RDMA, or its board file does not include it; its own log says why";
    assert_eq!((cluster.transport.as_deref(), cluster.fallback.as_deref()), (Some("tcp"), Some(why)));
    let cluster = cluster_until(b, |cluster| cluster.fallback.is_some());
    let why = cluster.fallback.expect("it has one");
    assert!(why.contains("rxe0 port 1 is not the device that the settings name"), "{why}");
    until(a, |model| remote(model) >= remote(&over_rdma) + 5);

    // It requires RDMA by that device: there is no group then.
    stop(b);
    cascade.configure(1, &format!("{preferred}require = ['rdma']\nrdma_device = 'rxe1'\n{SERVED}"));
    start(b);
    let is_refused = |cluster: &ClusterStatus| {
        let fault = cluster.fault.as_deref().unwrap_or_default();
        fault.starts_with("seat b requires RDMA, but not all boards of the group can use it: ")
    };
    cluster_until(b, is_refused);
    stop(a);
    let frames = results(&run(a, "cat /tmp/out/gate.jsonl"));
    let whole = frames.iter().filter(|found| **found == expected).count();
    println!("{} frames, {whole} of them with the second model", frames.len());
    assert!(frames.iter().flatten().all(|result| expected.contains(result)), "{frames:?}");
    assert!(whole >= 10, "{frames:?}");
}
