//! Reloads a small real board in a process of its own. Streams of a test pattern, with a detector, join, leave, change and
//! get other models, while one stream continues. Threads and descriptors must be as many at the end as at the beginning.
//!
//! By default there are 40 reloads; `ORINOCO_TEST_LONG=1` makes 1,000, and checks the memory, too.

#![cfg(feature = "tract")]
#![allow(clippy::print_stdout, reason = "tests say what they measured")]
#![expect(clippy::disallowed_methods, reason = "the test waits for real threads")]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use orinoco_board::{Board, BoardModel, BoardStream, ControlSpec, Inference, SensorsSpec};
use orinoco_model::Repository;
use orinoco_runtime::{
    Control, Quiet, Reloaded, RunOptions, resident_bytes, set_up_process, start, trim_heap,
};
use orinoco_uri::SourceUri;

/// Maximum growth over 800 reloads, in bytes, which is the allocator's noise: about the size of two models.
const GROWTH_MAX: u64 = 16 << 20;
/// Maximum wait for anything in this test: longer is a hang.
const WAIT_MAX: Duration = Duration::from_secs(60);

#[test]
fn many_reloads_lose_no_stream_and_leave_nothing_behind() {
    set_up_process();
    let is_long = std::env::var_os("ORINOCO_TEST_LONG").is_some();
    let reloads = if is_long { 1000 } else { 40 };
    // After these reloads, pools, arenas and caches have their final size.
    let warm_after = reloads / 5;
    let repository = Repository { roots: Vec::new(), data: Vec::new() };
    let running = start(board(0), RunOptions::new(&repository, Arc::new(Quiet)));
    let running = running.unwrap_or_else(|why| panic!("{why}"));
    let control = running.control().clone();
    let summary = thread::spawn(move || running.wait(|_| {}));
    let mut warm = Figures::default();
    let mut joined = 2;
    for number in 1..=reloads {
        let done = reload(&control, board(number));
        joined += done.joined.len();
        assert!(done.faults.is_empty(), "{number}: {done:?}");
        assert_eq!(done.joined.len() + done.stayed, 2, "{number}: {done:?}");
        assert!(!done.joined.contains(&"stays".to_owned()), "{number}: {done:?}");
        if number == warm_after {
            warm = settled();
        }
    }
    let end = settled();
    println!("{reloads} reloads, {joined} streams: {warm:?} after {warm_after}, {end:?} at the end");
    assert_eq!((&end.threads, end.descriptors), (&warm.threads, warm.descriptors));
    let grown = end.resident_bytes.saturating_sub(warm.resident_bytes);
    assert!(!is_long || grown <= GROWTH_MAX, "{grown} bytes after {reloads} reloads");
    control.stop();
    let summary = summary.join().expect("it ends");
    assert!(summary.faults.is_empty(), "{:?}", summary.faults);
    let older: u64 = summary.older_streams.iter().map(|total| total.streams).sum();
    assert_eq!(
        summary.streams.len() + usize::try_from(older).expect("a few"),
        joined,
        "every stream is listed"
    );
    // The stream is listed among the latest, because it ended with the run.
    let stays: Vec<_> = summary.streams.iter().filter(|stream| stream.name == "stays").collect();
    let [stays] = &stays[..] else { panic!("{} streams of one", stays.len()) };
    let dropped: u64 = stays.dropped.iter().map(|dropped| dropped.frames).sum();
    assert!(stays.frames_out > 0, "it delivered nothing");
    assert_eq!(stays.frames_in, stays.frames_out + dropped, "its frames are accounted for");
}

/// Makes the board of one reload: a stream that is always on it, and another one that joins, leaves, changes, and has
/// models with changing settings.
fn board(number: usize) -> Board {
    let source = "test://ball?pace=pts&width=64&height=48&fps=5";
    let source = || SourceUri::parse(source).unwrap_or_else(|why| panic!("{why}"));
    let model = || concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/person-nano").to_owned();
    let first = BoardModel::new("first", model());
    let score_threshold = Some(0.3 + (number / 8 % 2) as f32 * 0.2);
    let second = BoardModel { score_threshold, ..BoardModel::new("second", model()) };
    let name = ["b", "c"][number / 4 % 2];
    let latency_max = (number % 2 == 1).then_some(Duration::from_secs(1));
    let other = BoardStream { latency_max, ..BoardStream::new(name, source(), vec![1]) };
    Board {
        name: "reloads".to_owned(),
        inference: Inference::new(vec!["tract".to_owned()]),
        memory: None,
        control: ControlSpec::default(),
        sensors: SensorsSpec::default(),
        otlp: None,
        cluster: None,
        governor: None,
        lanes: 2,
        models: vec![first, second],
        streams: vec![BoardStream::new("stays", source(), vec![0]), other],
        files: Vec::new(),
    }
}

fn reload(control: &Control, board: Board) -> Reloaded {
    let (tell, told) = channel();
    control.reload(board, move |answer| drop(tell.send(answer)));
    let answer = told.recv_timeout(WAIT_MAX).expect("it is answered");
    answer.unwrap_or_else(|why| panic!("{why}"))
}

/// Resources that a process holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Figures {
    /// Names of its threads.
    threads: Vec<String>,
    descriptors: usize,
    resident_bytes: u64,
}

/// Returns the entries of a folder of `/proc`.
fn entries(folder: &str) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).expect("Linux has it").filter_map(|entry| Some(entry.ok()?.path()))
}

/// Returns the sorted names of all threads; the two names of the changing stream are made equal.
fn threads() -> Vec<String> {
    // A thread may end before its name is read.
    let names = entries("/proc/self/task").filter_map(|task| fs::read_to_string(task.join("comm")).ok());
    let mut names: Vec<String> = names.map(|name| name.trim().replace("-c", "-b")).collect();
    names.sort();
    names
}

/// Returns the figures after the streams that left have ended: their lanes execute the waiting frames first.
fn settled() -> Figures {
    // A thread that starts has the name of the one that started it for a moment.
    let count =
        |names: &[String], wanted: &[&str]| names.iter().filter(|name| wanted.contains(&&***name)).count();
    let is_settled =
        |names: &[String]| count(names, &["src-b", "sink-b"]) == 2 && count(names, &["supervisor"]) == 1;
    let mut names = threads();
    for _ in 0..WAIT_MAX.as_millis() / 20 {
        if is_settled(&names) {
            break;
        }
        thread::sleep(Duration::from_millis(20));
        names = threads();
    }
    // Free memory may still be mapped, depending on how many streams were leaving at one time.
    trim_heap();
    Figures {
        threads: names,
        descriptors: entries("/proc/self/fd").count(),
        resident_bytes: resident_bytes(),
    }
}
