//! Tests of the rig on this machine: boards boot, have their devices, reach each other, and fail on request. They are
//! ignored by default, because they need QEMU and take minutes: `cargo xtask boards test`.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]
#![allow(clippy::print_stdout, reason = "tests say what they skip")]

use std::fs;
use std::io::BufRead;
use std::thread;
use std::time::{Duration, Instant};

use orinoco_rig::{
    Board, Boards, Fault, Flavour, Link, Options, Rail, Reading, Rig, Unavailable, VividOptions,
};

/// Maximum time in which a board must notice an event.
const NOTICE_MAX: Duration = Duration::from_secs(15);
/// Maximum payload of an RDMA packet, in bytes: the largest MTU of InfiniBand's transport.
const MTU_MAX: u64 = 4096;

/// Starts boards; `None`, with a printed line, if this machine does not support them.
fn stage(flavour: Flavour, count: u8, options: &Options) -> Option<Boards> {
    match Rig::build(flavour).and_then(|rig| rig.up(count, options)) {
        Ok(boards) => Some(boards),
        Err(error) if error.is::<Unavailable>() => {
            println!("skipped: {error:#}");
            None
        }
        Err(error) => panic!("{error:#}"),
    }
}

fn one_board() -> Option<Boards> {
    stage(Flavour::Dropbear, 1, &Options::default())
}

/// Starts two boards on a bridge, with an MTU that allows RDMA's largest packets.
fn two_boards() -> Option<Boards> {
    stage(Flavour::Dropbear, 2, &Options { link: Link::Bridge, mtu: 4200, ..Options::default() })
}

/// Executes a command on a board, which must succeed, and returns its output.
fn run(board: &Board, command: &str) -> String {
    board.run(command).unwrap_or_else(|error| panic!("{error:#}"))
}

fn fault(board: &Board, text: &str) {
    let fault: Fault = text.parse().expect("a fault");
    board.fault(&fault).unwrap_or_else(|error| panic!("{error:#}"));
}

/// Waits until a command on a board prints a text that `pleases` accepts.
fn eventually(board: &Board, command: &str, pleases: impl Fn(&str) -> bool) {
    let start = Instant::now();
    loop {
        let output = board.ssh(command).expect("ssh runs");
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if pleases(&text) {
            return;
        }
        assert!(start.elapsed() < NOTICE_MAX, "{board}: {command}: still `{text}`");
        thread::sleep(Duration::from_millis(200));
    }
}

/// Returns the mean round-trip time of ten pings, in milliseconds.
fn ping_ms(from: &Board, to: &Board) -> f64 {
    let summary = run(from, &format!("ping -q -c 10 -i 0.1 -w 20 {} | tail -1", to.address()));
    let mean = summary.split('/').nth(4).and_then(|word| word.parse().ok());
    mean.unwrap_or_else(|| panic!("ping says `{summary}`"))
}

#[test]
#[ignore = "boots emulated boards; `cargo xtask boards test` runs it"]
fn a_board_is_aarch64_keeps_files_and_has_power_rails() {
    let Some(boards) = &one_board() else { return };
    let board = &boards[0];
    assert_eq!(run(board, "uname -m; hostname"), "aarch64\nboard1");
    assert_eq!(board.ssh("exit 3").expect("ssh runs").status.code(), Some(3));
    assert!(board.log().expect("a console").contains("BOARD-READY"));
    assert!(board.is_running());

    let folder = tempfile::tempdir().expect("a temporary folder");
    let (there, back) = (folder.path().join("there"), folder.path().join("back"));
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|i| (i.wrapping_mul(7919) >> 8) as u8).collect();
    fs::write(&there, &bytes).expect("written");
    board.put(&there, "/tmp/a file").expect("copied");
    board.get("/tmp/a file", &back).expect("copied back");
    assert!(fs::read(back).expect("it is there") == bytes, "the copy differs");
    assert!(board.get("/nowhere", &folder.path().join("none")).is_err());
    assert!(!folder.path().join("none").exists());

    let mut session = board.spawn("seq 3; sleep 60").expect("ssh starts");
    let mut line = String::new();
    session.stdout.read_line(&mut line).expect("it prints");
    assert_eq!(line, "1\n");

    check_rails(board);
}

fn check_rails(board: &Board) {
    let hwmon = board.rails().expect("a power monitor");
    let set = [
        (Rail::VddIn, "VDD_IN", 5000, 1200),
        (Rail::VddCpuGpuCv, "VDD_CPU_GPU_CV", 3304, 640),
        (Rail::VddSoc, "VDD_SOC", 1104, 904),
    ];
    for (rail, _, millivolts, milliamps) in set {
        board.set_rail(rail, Reading { millivolts, milliamps }).expect("written");
    }
    for (rail, label, millivolts, milliamps) in set {
        let n = rail as u8;
        let read = run(board, &format!("cd {hwmon}; cat in{n}_label in{n}_input curr{n}_input"));
        assert_eq!(read, format!("{label}\n{millivolts}\n{milliamps}"));
    }
    assert_eq!(run(board, &format!("cat {hwmon}/name")), "ina3221");
}

#[test]
#[ignore = "boots emulated boards; `cargo xtask boards test` runs it"]
fn a_board_has_a_camera_that_can_be_pulled() {
    let Some(boards) = &one_board() else { return };
    let board = &boards[0];
    let devices = board.camera(VividOptions::default()).expect("a camera");
    assert_eq!(devices, ["/dev/video0"]);
    let set = "v4l2-ctl -d 0 --set-fmt-video=width=640,height=360,pixelformat=NV12 --set-parm=30";
    let stream = "v4l2-ctl -d 0 --stream-mmap=4 --stream-count=60 --stream-to=/tmp/frames 2>&1";
    run(board, set);
    // v4l2-ctl prints the frame rate once a second, here twice.
    let printed = run(board, &format!("{stream}; wc -c </tmp/frames; rm /tmp/frames"));
    let rates: Vec<f64> = printed
        .split(" fps")
        .filter_map(|before| before.rsplit([' ', '<', '\n']).next()?.parse().ok())
        .collect();
    let rate = *rates.first().unwrap_or_else(|| panic!("v4l2-ctl printed {printed}"));
    println!("{rate} frames per second");
    assert!((25.0..35.0).contains(&rate), "{rate} frames per second");
    assert!(printed.ends_with(&format!("\n{}", 60 * 640 * 360 * 3 / 2)), "{printed}");

    // GStreamer reads frames of the camera, too.
    let pipeline = "v4l2src num-buffers=20 ! video/x-raw,format=NV12,width=640,height=360 ! videoconvert ! \
                    video/x-raw,format=RGB ! filesink location=/tmp/rgb";
    run(board, &format!("gst-launch-1.0 -q {pipeline} 2>&1"));
    assert_eq!(run(board, "wc -c </tmp/rgb"), (20 * 640 * 360 * 3).to_string());

    fault(board, "unbind vivid vivid.0");
    assert!(!board.ssh("ls /dev/video0").expect("ssh runs").status.success(), "the camera is still there");
    fault(board, "bind vivid vivid.0");
    eventually(board, "ls /dev/video0", |text| text == "/dev/video0");
    run(board, &format!("{set}; {stream}"));

    let two = board.camera(VividOptions { count: 2, ..VividOptions::default() }).expect("two cameras");
    assert_eq!(two, ["/dev/video0", "/dev/video1"]);
}

#[test]
#[ignore = "boots emulated boards; `cargo xtask boards test` runs it"]
fn boards_reach_each_other_and_links_fail() {
    let Some(boards) = &two_boards() else { return };
    let [first, second] = &boards[..] else { panic!("two boards") };
    let plain_ms = ping_ms(second, first);
    run(second, "ping -q -c 1 -M do -s 4000 board1");

    fault(second, "netem delay 40ms");
    let slow_ms = ping_ms(second, first);
    println!("ping {plain_ms} ms, with 40 ms more {slow_ms} ms");
    assert!(slow_ms > 40.0, "{slow_ms} ms with 40 ms more");
    fault(second, "netem-off");
    assert!(!run(second, "tc qdisc show").contains("netem"));

    let carrier = ". /run/board.net; cat /sys/class/net/$BOARD/carrier";
    fault(second, "link-down");
    eventually(second, carrier, |text| text == "0");
    assert!(
        !first.ssh("ping -q -c 2 -w 3 board2").expect("ssh runs").status.success(),
        "a pulled cable carries"
    );
    fault(second, "link-up");
    eventually(second, carrier, |text| text == "1");
    eventually(first, "ping -q -c 1 -w 2 board2 >/dev/null && echo yes", |text| text == "yes");
}

#[test]
#[ignore = "boots emulated boards; `cargo xtask boards test` runs it"]
fn boards_write_to_each_others_memory_by_rdma() {
    let Some(boards) = &two_boards() else { return };
    let [first, second] = &boards[..] else { panic!("two boards") };
    let devices = [first, second].map(|board| board.soft_roce().expect("an RDMA device"));
    assert_eq!(devices, ["rxe0", "rxe0"]);
    let (writes, bytes) = (200u64, 65536u64);
    let test = format!("ib_write_bw -d rxe0 -x 1 -F -s {bytes} -n {writes}");
    let received = || -> u64 {
        let counter = run(first, "cat /sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts");
        counter.parse().unwrap_or_else(|_| panic!("a counter, not `{counter}`"))
    };
    let before = received();
    let server = first.spawn(&format!("{test} >/tmp/server.log 2>&1")).expect("ssh starts");
    eventually(first, "ss -Hltn sport = 18515", |text| !text.is_empty());
    let printed = run(second, &format!("{test} board1"));
    server.wait(NOTICE_MAX).expect("the server ends");
    // The rate that it prints is 0 if it cannot read the clock of an emulated processor.
    let done = printed.lines().map(str::trim).find(|line| line.starts_with(&bytes.to_string()));
    let done = done.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    assert_eq!(done, Some(writes), "ib_write_bw printed {printed}");
    let packets = received() - before;
    println!("{packets} packets");
    assert!(packets >= writes * bytes / MTU_MAX, "{packets} packets for {writes} writes of {bytes} bytes");
}

#[test]
#[ignore = "boots emulated boards; `cargo xtask boards test` runs it"]
fn boards_stop_go_on_start_again_and_die() {
    let Some(boards) = &two_boards() else { return };
    let [first, second] = &boards[..] else { panic!("two boards") };
    let reach = "ping -q -c 2 -w 3 board2";

    fault(second, "pause");
    assert!(!first.ssh(reach).expect("ssh runs").status.success(), "a paused board answers");
    assert!(second.ssh_within("true", Duration::from_secs(2)).is_err(), "a paused board runs commands");
    fault(second, "resume");
    eventually(first, "ping -q -c 1 -w 2 board2 >/dev/null && echo yes", |text| text == "yes");

    run(second, "touch /tmp/before");
    let boots = second.boots();
    fault(second, "reset");
    second.wait_for_boots(boots + 1, Duration::from_secs(120)).expect("it comes up again");
    assert_eq!(run(second, "ls /tmp"), "", "a reset keeps what was written");

    fault(second, "kill");
    assert!(!second.is_running());
    assert!(second.run("true").is_err(), "a dead board runs commands");
    assert!(!first.ssh(reach).expect("ssh runs").status.success(), "a dead board answers");
    assert!(first.is_running());
}

#[test]
#[ignore = "boots emulated boards; `cargo xtask boards test` runs it"]
fn boards_share_memory_and_sockets_without_root() {
    let options = Options { link: Link::Socket, shared_bar_mib: Some(16), ..Options::default() };
    let Some(boards) = &stage(Flavour::Dropbear, 2, &options) else { return };
    let [first, second] = &boards[..] else { panic!("two boards") };
    let [here, there] = [first, second].map(|board| board.bar().expect("shared memory"));
    assert_eq!((here.size, there.size), (16 << 20, 16 << 20));
    let end = here.size - 4;
    run(first, &format!("devmem {:#x} 32 0xC0FFEE42; devmem {:#x} 32 0x1", here.address, here.address + end));
    let read = run(second, &format!("devmem {:#x} 32; devmem {:#x} 32", there.address, there.address + end));
    assert_eq!(read, "0xC0FFEE42\n0x00000001");
    ping_ms(first, second);
}

#[test]
#[ignore = "boots emulated boards; `cargo xtask boards test` runs it"]
fn three_boards_reach_each_other_by_multicast() {
    let options = Options { link: Link::Socket, memory_mib: 256, ..Options::default() };
    let Some(boards) = &stage(Flavour::Dropbear, 3, &options) else { return };
    for pair in [(0, 1), (1, 2), (2, 0)] {
        ping_ms(&boards[pair.0], &boards[pair.1]);
    }
}

#[test]
#[ignore = "boots emulated boards; `cargo xtask boards test` runs it"]
fn a_board_runs_systemd() {
    let Some(boards) = &stage(Flavour::Systemd, 1, &Options::default()) else { return };
    let board = &boards[0];
    // `is-system-running` fails until it prints `running`.
    eventually(board, "systemctl is-system-running", |text| text != "starting");
    let failed = run(board, "systemctl --failed --no-legend");
    assert_eq!(
        (run(board, "systemctl is-system-running || true").as_str(), failed.as_str()),
        ("running", "")
    );
    assert_eq!(board.camera(VividOptions::default()).expect("a camera"), ["/dev/video0"]);
    board.rails().expect("a power monitor");
}

#[test]
#[ignore = "boots emulated boards; `cargo xtask boards test` runs it"]
fn nothing_stays_when_boards_are_dropped() {
    let options = Options { link: Link::Bridge, ..Options::default() };
    let Some(boards) = stage(Flavour::Dropbear, 1, &options) else { return };
    let (folder, one) = (boards.folder().to_owned(), boards[0].clone());
    assert_eq!(Boards::attach(&folder).expect("up").len(), 1);
    let namespace = std::path::Path::new("/run/netns").join(folder.file_name().expect("named"));
    assert!(folder.is_dir() && namespace.exists());
    drop(boards);
    assert!(!folder.exists() && !namespace.exists() && !one.is_running());
    assert!(Boards::attach(&folder).is_err());
}
