//! Recordings of synthetic boards: what was recorded is what a replay gives.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use orinoco_sysroot::{Packing, ReadErrorKind, Recorder, Recording, Schedule, Selection, Sysroot, record};
use proptest::prelude::*;
use tempfile::TempDir;

/// Time that a test sets.
#[derive(Clone, Default)]
struct Time(Arc<AtomicU64>);

impl Time {
    fn set(&self, at: Duration) {
        self.0.store(at.as_nanos() as u64, Ordering::Relaxed);
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }

    fn replay(&self, recording: Recording) -> Sysroot {
        let time = self.clone();
        Sysroot::replay(recording, move || time.now())
    }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn select(tree: &[&str], values: &[&str]) -> Selection {
    let owned = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
    Selection { tree: owned(tree), values: owned(values) }
}

fn write(root: &Path, path: &str, bytes: impl AsRef<[u8]>) {
    let path = root.join(path.trim_start_matches('/'));
    fs::create_dir_all(path.parent().expect("a parent")).expect("the folder is made");
    fs::write(path, bytes).expect("the file is written");
}

/// Returns the recording as it comes out of an archive.
fn archived(recording: &Recording, packing: Packing) -> Recording {
    let mut archive = Vec::new();
    recording.save(&mut archive, packing).expect("memory takes it");
    Recording::load(&archive[..]).expect("our own archive is read")
}

#[test]
fn a_directory_is_recorded_with_its_links_names_and_errors() {
    let dir = TempDir::new().expect("a folder");
    write(dir.path(), "/sys/devices/i2c-1/1-0040/hwmon/hwmon3/name", "ina3221\n");
    write(dir.path(), "/sys/devices/i2c-1/1-0040/hwmon/hwmon3/in1_input", "19032\n");
    write(dir.path(), "/sys/devices/i2c-1/1-0040/hwmon/hwmon3/power/control", "auto\n");
    write(dir.path(), "/proc/device-tree/model", "NVIDIA Jetson\0");
    write(dir.path(), "/proc/device-tree/serial-number", "1424\0");
    write(dir.path(), "/proc/device-tree/i2c@c240000/reg", [0, 1, 2, 255]);
    fs::create_dir_all(dir.path().join("sys/class/hwmon")).expect("a folder");
    let hwmon = dir.path().join("sys/class/hwmon/hwmon3");
    symlink("../../devices/i2c-1/1-0040/hwmon/hwmon3", hwmon).expect("a link");
    let device = dir.path().join("sys/devices/i2c-1/1-0040/hwmon/hwmon3/device");
    symlink("../../../1-0040", device).expect("a link");
    symlink("loop", dir.path().join("loop")).expect("a link");
    let board = Sysroot::at(dir.path());
    let selection = select(
        &[
            "/sys/class/hwmon/*/name",
            "/sys/class/hwmon/*/device",
            "/proc/device-tree/**",
            "/etc/none",
            "/loop",
        ],
        &["/sys/class/hwmon/*/in*_input"],
    );
    let mut recorder = Recorder::new(&board, &selection);
    recorder.sample(|| Duration::ZERO);
    let recording = recorder.finish();
    assert_eq!(recording.left_out(), ["/proc/device-tree/serial-number: left out: serial number"]);
    assert_eq!(archived(&recording, Packing::Gzip), recording);
    let replay = Time::default().replay(archived(&recording, Packing::Plain));
    for path in [
        "/sys/class/hwmon/hwmon3/name",
        "/sys/class/hwmon/hwmon3/in1_input",
        "/sys/class/hwmon/hwmon3/device/hwmon/hwmon3/name",
        "/proc/device-tree/model",
        "/proc/device-tree/i2c@c240000/reg",
        "/etc/none",
        "/etc/none/below",
        "/loop",
        "/sys/class/hwmon",
        "/sys/class/hwmon/hwmon4/name",
    ] {
        assert_eq!(replay.bytes(path), board.bytes(path), "{path}");
    }
    for path in
        ["/sys/class/hwmon", "/sys/class/hwmon/hwmon3", "/proc/device-tree", "/proc/device-tree/model"]
    {
        assert_eq!(replay.entries(path), board.entries(path), "{path}");
    }
    for path in ["/sys/class/hwmon/hwmon3", "/sys/class/hwmon/hwmon3/device", "/loop", "/proc/device-tree"] {
        assert_eq!(replay.link(path), board.link(path), "{path}");
    }
    let not_recorded = |path: &str| replay.bytes(path).expect_err("left out").kind;
    assert_eq!(not_recorded("/proc/device-tree/serial-number"), ReadErrorKind::NotRecorded);
    assert_eq!(not_recorded("/sys/class/hwmon/hwmon3/power/control"), ReadErrorKind::NotRecorded);
    assert_eq!(not_recorded("/home"), ReadErrorKind::NotRecorded);
}

#[test]
fn an_unpacked_archive_is_a_root() {
    let mut board = Recording::synthetic();
    board.add_file("/sys/devices/zone/temp", "45500\n").expect("a file");
    board.add_link("/sys/class/thermal/thermal_zone0", "../../devices/zone").expect("a link");
    board.add_link("/sys/class/thermal/odd", "..//../devices/./zone/").expect("a link");
    let long = format!("/sys/{}", "a/".repeat(80));
    board.add_file(&format!("{long}value"), "1").expect("a file");
    board.add_link(&format!("{long}link"), &"../".repeat(60)).expect("a link");
    let mut archive = Vec::new();
    board.save(&mut archive, Packing::Plain).expect("memory takes it");
    assert_eq!(Recording::load(&archive[..]).expect("our own archive is read"), board);
    let dir = TempDir::new().expect("a folder");
    tar::Archive::new(&archive[..]).unpack(dir.path()).expect("tar unpacks it");
    let root = Sysroot::at(dir.path().join("tree"));
    assert_eq!(root.number::<i32>("/sys/class/thermal/thermal_zone0/temp"), Ok(45_500));
    assert_eq!(root.text(&format!("{long}value")).as_deref(), Ok("1"));
    let readme = fs::read_to_string(dir.path().join("README.txt")).expect("a text for people");
    assert!(readme.starts_with("This archive describes one board"));
}

#[test]
fn rounds_that_take_too_long_are_missed_and_counted() {
    let mut board = Recording::synthetic();
    for at in 0..10 {
        board.add_value("/temp", millis(at * 10), Ok(at.to_string().as_bytes())).expect("a value");
    }
    let time = Time::default();
    let board = time.replay(board);
    let waits = AtomicU64::new(0);
    let wait = |until: Duration| {
        time.set(time.now().max(until));
        // The third round finds that another one took 25 ms.
        if waits.fetch_add(1, Ordering::Relaxed) == 2 {
            time.set(time.now() + millis(25));
        }
        ControlFlow::Continue(())
    };
    let schedule = Schedule { period: millis(10), rounds: 6 };
    let recorded = record(&board, &select(&[], &["/temp"]), schedule, || time.now(), wait);
    assert_eq!((recorded.rounds, recorded.missed, recorded.is_cut_short), (4, 2, false));
    let replay = time.replay(recorded.recording);
    let texts = [0, 10, 45, 50].map(|at| {
        time.set(millis(at));
        replay.text("/temp").expect("a value")
    });
    assert_eq!(texts, ["0", "1", "4", "5"]);
}

/// Values with which a file of a synthetic board can answer.
fn content() -> impl Strategy<Value = Result<Vec<u8>, ReadErrorKind>> {
    prop_oneof![
        4 => "-?[0-9]{1,6}\n".prop_map(|text| Ok(text.into_bytes())),
        1 => proptest::collection::vec(any::<u8>(), 0..6).prop_map(Ok),
        1 => Just(Ok(Vec::new())),
        1 => Just(Err(ReadErrorKind::Unavailable)),
        1 => Just(Err(ReadErrorKind::Denied)),
        1 => Just(Err(ReadErrorKind::Absent)),
        1 => Just(Err(ReadErrorKind::Other("Remote I/O error (os error 121)".into()))),
    ]
}

/// Contents of a file, each with the time in ms after the one before it.
type Contents = Vec<(u64, Result<Vec<u8>, ReadErrorKind>)>;

fn files() -> impl Strategy<Value = Vec<Contents>> {
    proptest::collection::vec(proptest::collection::vec((0_u64..4, content()), 1..8), 1..5)
}

proptest! {
    /// A recording gives, at every time, bit for bit what the board gave in the round before it, errors included.
    #[test]
    fn a_replay_gives_what_the_board_gave(files in files(), period in 1_u64..5, gzip: bool) {
        let mut board = Recording::synthetic();
        let path = |file: usize| format!("/sys/class/hwmon/hwmon{file}/in1_input");
        for (file, contents) in files.iter().enumerate() {
            let real = format!("/sys/devices/{file}");
            board.add_link(&format!("/sys/class/hwmon/hwmon{file}"), &format!("../../devices/{file}")).unwrap();
            let mut at = 0;
            for (step, content) in contents {
                at += step;
                let content = content.as_ref().map(|bytes| &bytes[..]).map_err(Clone::clone);
                board.add_value(&format!("{real}/in1_input"), millis(at), content).unwrap();
            }
        }
        let time = Time::default();
        let board = time.replay(board);
        let selection = select(&[], &["/sys/class/hwmon/*/in*_input"]);
        let schedule = Schedule { period: millis(period), rounds: 40 };
        let wait = |until| { time.set(until); ControlFlow::Continue(()) };
        let recorded = record(&board, &selection, schedule, || time.now(), wait);
        prop_assert_eq!(recorded.rounds, 40);
        let packing = if gzip { Packing::Gzip } else { Packing::Plain };
        let loaded = archived(&recorded.recording, packing);
        prop_assert_eq!(&loaded, &recorded.recording);
        let replay = time.replay(loaded);
        for at in 0..40 * period {
            let round = at / period * period;
            for file in 0..files.len() {
                time.set(millis(round));
                let expected = board.bytes(&path(file));
                time.set(millis(at));
                prop_assert_eq!(replay.bytes(&path(file)), expected, "at {} ms, file {}", at, file);
            }
        }
    }

    /// A directory of this machine whose files change, vanish and become folders replays the same way.
    #[test]
    fn a_changing_directory_replays(rounds in proptest::collection::vec(proptest::collection::vec(0_u8..5, 3), 1..6)) {
        let dir = TempDir::new().unwrap();
        for file in 0..3 {
            write(dir.path(), &format!("/sys/values/{file}"), "first\n");
        }
        let board = Sysroot::at(dir.path());
        let mut recorder = Recorder::new(&board, &select(&[], &["/sys/values/*"]));
        let mut expected = Vec::new();
        for (round, states) in rounds.iter().enumerate() {
            for (file, state) in states.iter().enumerate() {
                set_state(&dir.path().join(format!("sys/values/{file}")), *state);
            }
            recorder.sample(|| millis(round as u64));
            expected.push([0, 1, 2].map(|file| board.bytes(&format!("/sys/values/{file}"))));
        }
        let time = Time::default();
        let replay = time.replay(archived(&recorder.finish(), Packing::Plain));
        for (round, expected) in expected.iter().enumerate() {
            time.set(millis(round as u64));
            let found = [0, 1, 2].map(|file| replay.bytes(&format!("/sys/values/{file}")));
            prop_assert_eq!(&found, expected, "round {}", round);
        }
    }
}

/// Makes a path one of several files, a folder, or nothing.
fn set_state(path: &Path, state: u8) {
    let _ = fs::remove_file(path);
    let _ = fs::remove_dir(path);
    match state {
        0 => {}
        1 => fs::create_dir(path).expect("a folder"),
        2 => fs::write(path, [0xff, 0]).expect("a file"),
        _ => fs::write(path, format!("{state}\n")).expect("a file"),
    }
}

#[test]
fn of_the_installed_packages_only_those_of_nvidia_are_recorded() {
    let dir = TempDir::new().expect("a folder");
    let list = "Package: nvidia-l4t-core\nStatus: install ok installed\nMaintainer: A Person <person@example.com>\nVersion: 36.4.3-2025\n\n\
                Package: secret-project\nVersion: 1.0\n\n\
                Package: libnvinfer10\nVersion: 10.3.0.30-1+cuda12.5\n";
    // Longer than any other file of a recording may be.
    let padded = format!("{list}\nPackage: padding\nDescription: {}\n", "x".repeat(2 << 20));
    write(dir.path(), "/var/lib/dpkg/status", padded);
    let selection = select(&["/var/lib/dpkg/status"], &[]);
    let recording = Recorder::new(&Sysroot::at(dir.path()), &selection).finish();
    let expected = "Package: nvidia-l4t-core\nStatus: install ok installed\nVersion: 36.4.3-2025\n\n\
                    Package: libnvinfer10\nVersion: 10.3.0.30-1+cuda12.5";
    let replayed = Time::default().replay(archived(&recording, Packing::Gzip));
    assert_eq!(replayed.text("/var/lib/dpkg/status").expect("recorded"), expected);
    assert_eq!(recording.left_out(), ["/var/lib/dpkg/status: replaced: packages that are not NVIDIA's"]);
}

#[test]
fn a_root_is_a_folder_or_an_archive() {
    let dir = TempDir::new().expect("a folder");
    write(dir.path(), "/proc/uptime", "1\n");
    let mut recording = Recording::synthetic();
    recording.add_file("/proc/uptime", "2\n").expect("added");
    recording.add_value("/proc/uptime", millis(100), Ok(b"3\n")).expect("added");
    let archive = dir.path().join("board.tar.gz");
    recording.save(fs::File::create(&archive).expect("made"), Packing::Gzip).expect("saved");
    let time = Time::default();
    let open = |path: &Path| {
        let time = time.clone();
        Sysroot::open(path, move || time.now())
    };

    let folder = open(dir.path()).expect("a folder");
    assert_eq!(folder.text("/proc/uptime").expect("there"), "1");
    let replayed = open(&archive).expect("an archive");
    assert_eq!(replayed.text("/proc/uptime").expect("there"), "2");
    time.set(millis(100));
    assert_eq!(replayed.text("/proc/uptime").expect("there"), "3");

    let cause = |path: &Path| open(path).map(drop).expect_err("refused").to_string();
    assert!(cause(&dir.path().join("none")).contains("No such file"), "{}", cause(&dir.path().join("none")));
    assert_eq!(cause(Path::new("/dev/null")), "it is neither a folder nor a file");
    let text = cause(&dir.path().join("proc/uptime"));
    assert!(text.starts_with("it is no recording of a board: entry `"), "{text}");
}
