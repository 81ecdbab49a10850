//! The governor and its helper on an emulated board, under the units that are shipped. Nothing overrides them, and both use the
//! board's own files: the thermal zone and the clocks are the kernel's (`Board::dvfs`). Only `nvpmodel` is synthetic.

use std::time::Duration;

use orinoco_rig::{Board, Boards, Flavour, Options};
use orinoco_tests::{Random, cross_binary, root};
use serde_json::{Value, json};

use super::{ControlTunnel, eventually, install, put, put_text, run, stage, start};

const SOCKET: &str = "/run/orinoco-helper.sock";
const GPU: &str = "/sys/class/devfreq/17000000.gpu/max_freq";
const CORES: &str = "/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq";
const MODE: &str = "/var/lib/nvpmodel/status";
/// Power mode, highest clock of the GPU in hertz and of the cores in kilohertz, before a change.
const ORIGINAL: &str = "pmode:0001\n612000000\n1510400";
/// The same, at the lowest levels that a governor can choose.
const LOWEST: &str = "pmode:0000\n306000000\n729600";

/// Synthetic `nvpmodel`, which sets the highest clocks as the real one does.
const NVPMODEL: &str = "#!/bin/sh
[ \"$1\" = -m ] || exit 2
case $2 in
  0) gpu=408000000 cores=1113600 ;;
  1) gpu=612000000 cores=1510400 ;;
  *) exit 1 ;;
esac
echo $gpu >/sys/class/devfreq/17000000.gpu/max_freq
echo $cores >/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq
echo pmode:000$2 >/var/lib/nvpmodel/status
";

/// Its power modes. The third switches units of the GPU on, and needs a reboot.
const MODES: &str = "< POWER_MODEL ID=0 NAME=15W >\nTPC_POWER_GATING TPC_PG_MASK 240\n\
    < POWER_MODEL ID=1 NAME=25W >\nTPC_POWER_GATING TPC_PG_MASK 240\n\
    < POWER_MODEL ID=2 NAME=MAXN >\nTPC_POWER_GATING TPC_PG_MASK 252\n";

const BOARD: &str = "version = 1
[governor]
temperature_limit = '80 °C'
actuators = ['power-mode', 'gpu-clock', 'cpu-clock']
[[stream]]
name = 'gate'
source = 'test://ball?width=64&height=48&fps=5&pace=pts'
models = []
";

/// Maximum time until everything is restored after a kill.
const RESTORED_MAX: Duration = Duration::from_secs(2);
/// Maximum time in which the governor lowers everything: a mode changes at most once in 10 s, and a helper that is gone is tried
/// again after 10 s. An emulated board may need as long again to start the daemon.
const LOWERED_MAX: Duration = Duration::from_secs(120);

/// Boots a board with the daemon and the helper installed, whose socket listens.
fn governed_board() -> Option<Boards> {
    let (helper, sender) = (cross_binary("orinoco-helper")?, cross_binary("examples/send_lines")?);
    let boards = stage(Flavour::Systemd, &Options { hurried: true, ..Options::default() }, "orinocod")?;
    let board = &boards[0];
    board.dvfs().expect("a thermal zone and clocks");
    install(board);
    put(board, &helper, "/usr/bin/orinoco-helper");
    put(board, &sender, "/tmp/send_lines");
    for unit in ["orinoco-helper.service", "orinoco-helper.socket"] {
        let file = root().join("crates/orinoco-helper").join(unit);
        put(board, &file, &format!("/etc/systemd/system/{unit}"));
    }
    put_text(board, NVPMODEL, "/usr/sbin/nvpmodel");
    put_text(board, MODES, "/etc/nvpmodel.conf");
    run(
        board,
        "chmod 755 /usr/sbin/nvpmodel; mkdir -p /var/lib/nvpmodel; nvpmodel -m 1; systemctl daemon-reload; \
         systemctl enable --now orinoco-helper.socket",
    );
    assert_eq!(settings(board), ORIGINAL);
    Some(boards)
}

fn settings(board: &Board) -> String {
    run(board, &format!("cat {MODE} {GPU} {CORES}"))
}

fn wait_until_lowered(board: &Board) {
    eventually("the lowest levels", LOWERED_MAX, || (settings(board) == LOWEST).then_some(()));
}

/// Kills a program, and returns the time until everything is restored, by the board's clock.
fn kill(board: &Board, program: &str) -> Duration {
    let original = ORIGINAL.replace('\n', "\\n");
    let times = run(
        board,
        &format!(
            "original=$(printf '{original}'); pid=$(pidof {program}); read -r start rest </proc/uptime; kill -9 $pid; \
             until [ \"$(cat {MODE} {GPU} {CORES})\" = \"$original\" ]; do usleep 10000; done; \
             read -r end rest </proc/uptime; echo $start $end"
        ),
    );
    let times: Vec<f64> = times.split(' ').map(|time| time.parse().expect("a number of seconds")).collect();
    Duration::from_secs_f64(times[1] - times[0])
}

/// Sends lines to the helper as a user, and returns the answers.
fn send(board: &Board, user: &str, file: &str) -> Vec<String> {
    let command = format!("busybox su -s /bin/sh -c '/tmp/send_lines {SOCKET} <{file} 2>&1' {user}");
    let output = board.ssh_within(&command, Duration::from_secs(600)).expect("it ends");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Checks who may use the helper's socket: the mode of the file keeps others out, and the helper refuses those whom the mode
/// lets in.
fn check_users(board: &Board) {
    assert_eq!(run(board, &format!("stat -c '%a %U %G' {SOCKET}")), "660 orinoco orinoco");
    put_text(board, "{\"verb\":\"status\"}\n", "/tmp/status");
    run(board, "chmod 644 /tmp/status");
    let refused = send(board, "edge", "/tmp/status");
    assert!(refused[0].contains("Permission denied"), "{refused:?}");
    let inactive = board.ssh("systemctl is-active orinoco-helper").expect("ssh runs");
    assert_eq!(String::from_utf8_lossy(&inactive.stdout), "inactive\n", "nobody has connected");
    run(board, "sed -i 's/^orinoco:x:[0-9]*:/&edge/' /etc/group");
    let refused = send(board, "edge", "/tmp/status");
    assert!(refused[0].contains("not-allowed"), "{refused:?}");
    for user in ["orinoco", "root"] {
        let answers = send(board, user, "/tmp/status");
        assert!(answers[0].contains("\"done\""), "{user}: {answers:?}");
    }
    assert_eq!(run(board, "systemctl is-active orinoco-helper"), "active", "its socket has started it");
}

/// Checks that a program has no capability and cannot gain one.
pub(super) fn check_no_capabilities(board: &Board, program: &str, user: &str) {
    let command = "ps -o user= -p $p; grep -E '^Cap|^NoNewPrivs' /proc/$p/status";
    let status = run(board, &format!("p=$(pidof {program}); {command}"));
    let lines: Vec<&str> = status.lines().collect();
    assert_eq!((lines[0], lines.len()), (user, 7), "{status}");
    for line in &lines[1..] {
        let expected = if line.starts_with("NoNewPrivs") { "1" } else { "0000000000000000" };
        assert_eq!(line.split_whitespace().last(), Some(expected), "{program}: {line}");
    }
}

/// Checks that the daemon cannot change the settings itself: its user may not, and in its unit nobody may.
fn check_read_only(board: &Board) {
    for file in [GPU, CORES, MODE, "/etc/nvpmodel.conf"] {
        let write = |how: &str| {
            let output = board.ssh(&format!("{how} 'echo 1 >{file}' 2>&1")).expect("ssh runs");
            assert!(!output.status.success(), "{how}: {file}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let refused = write("busybox su -s /bin/sh orinoco -c");
        assert!(refused.contains("Permission denied"), "{refused}");
        let refused = write("busybox nsenter -t $(pidof orinocod) -m sh -c");
        assert!(refused.contains("Read-only file system"), "{refused}");
    }
}

#[test]
#[ignore = "boots an emulated board; `make test-boards` runs it"]
fn heat_lowers_a_board_under_the_shipped_units_and_kills_restore_it() {
    let Some(boards) = governed_board() else { return };
    boards.alone().expect("the others end");
    let board = &boards[0];
    check_users(board);
    start(board, BOARD);
    let tunnel = ControlTunnel::open(board);
    let governor = |wanted: fn(&Value) -> bool| {
        eventually("the governor", LOWERED_MAX, || {
            tunnel.get("/v1/status").map(|status| status["governor"].clone()).filter(wanted)
        })
    };
    let holding = governor(|governor| governor["state"] == "holding");
    assert_eq!(holding["actuators"][0]["level"], "25W", "{holding}");
    check_no_capabilities(board, "orinocod", "orinoco");
    check_no_capabilities(board, "orinoco-helper", "root");
    check_read_only(board);
    assert_eq!(settings(board), ORIGINAL);

    board.heat(82_000).expect("written");
    wait_until_lowered(board);
    println!("the daemon killed: restored after {:.2?}", bounded(kill(board, "orinocod")));
    // systemd starts it again, and the board is still hot.
    wait_until_lowered(board);
    assert_eq!(run(board, "systemctl show -P NRestarts orinocod"), "1");

    let daemon = run(board, "pidof orinocod");
    println!("the helper killed: restored after {:.2?}", bounded(kill(board, "orinoco-helper")));
    wait_until_lowered(board);
    assert_eq!(
        run(board, "pidof orinocod; systemctl show -P NRestarts orinoco-helper"),
        format!("{daemon}\n1")
    );

    board.heat(45_000).expect("written");
    // Without a wanted latency it goes up after 15 s in which nothing pressed, step by step.
    eventually("the highest levels", LOWERED_MAX * 2, || (settings(board) == ORIGINAL).then_some(()));
    board.heat(82_000).expect("written");
    wait_until_lowered(board);
    run(board, "systemctl stop orinocod");
    eventually("the original settings", RESTORED_MAX, || (settings(board) == ORIGINAL).then_some(()));
}

fn bounded(time: Duration) -> Duration {
    assert!(time < RESTORED_MAX, "restored after {time:?}");
    time
}

// --- lines that are no request -----------------------------------------------------------------------------------------

/// Number of lines that are sent.
const LINES: usize = 3000;
/// Greatest length of a line: the helper takes 512 bytes.
const LINE_BYTES_MAX: usize = 600;

/// Returns a line that is a request, nearly one, or any bytes.
fn line(random: &mut Random) -> Vec<u8> {
    const NAMES: [&str; 8] = ["15W", "25W", "MAXN", "15w", "", "0", "../../etc/passwd", "15W\u{0}; reboot"];
    const DOMAINS: [&str; 7] = [
        "devfreq/17000000.gpu",
        "cpufreq/policy0",
        "cpufreq/policy1",
        "devfreq/../17000000.gpu",
        "cpufreq/policy0/../../cpu0/online",
        "/sys/power/state",
        "",
    ];
    const CLOCKS: [u64; 9] =
        [306_000_000, 408_000_000, 612_000_000, 729_600_000, 1_510_400_000, 0, 1, 306_000_001, u64::MAX];
    const VERBS: [&str; 4] = ["status", "restore", "reboot", "set-clocks"];
    let mut request = match random.below(6) {
        0 => json!({ "verb": "set-power-mode", "name": NAMES[random.below(NAMES.len())] }),
        1 | 2 => json!({ "verb": "set-clock", "domain": DOMAINS[random.below(DOMAINS.len())],
            "hertz": CLOCKS[random.below(CLOCKS.len())] }),
        3 => json!({ "verb": VERBS[random.below(VERBS.len())] }),
        4 => json!({ "verb": "set-power-mode", "name": "15W", "id": random.below(3) }),
        _ => return (0..random.below(LINE_BYTES_MAX)).map(|_| byte(random)).collect(),
    }
    .to_string()
    .into_bytes();
    // Every third one has a byte that is wrong.
    if random.below(3) == 0 {
        let index = random.below(request.len());
        request[index] = byte(random);
    }
    request
}

/// Returns any byte but that which ends a line.
fn byte(random: &mut Random) -> u8 {
    Some(random.below(256) as u8).filter(|byte| *byte != b'\n').unwrap_or(b' ')
}

/// Checks an answer: whatever was asked for, only values of the board's lists are set. Returns `done`, or the reason of a refusal.
fn check_answer(answer: &str) -> String {
    let answer: Value = serde_json::from_str(answer).unwrap_or_else(|why| panic!("{why}: {answer}"));
    if answer["answer"] == "refused" {
        return answer["reason"].as_str().expect("a string").to_owned();
    }
    let modes = answer["power_modes"].as_array().expect("a list");
    let current: Vec<&Value> = modes.iter().filter(|mode| mode["is_current"] == true).collect();
    assert!(matches!(&current[..], [mode] if mode["name"] != "MAXN"), "{answer}");
    for (clock, listed) in [
        ("devfreq/17000000.gpu", [306_000_000, 408_000_000, 612_000_000]),
        ("cpufreq/policy0", [729_600_000, 1_113_600_000, 1_510_400_000]),
    ] {
        let clocks = answer["clocks"].as_array().expect("a list");
        let found = clocks.iter().find(|found| found["domain"] == clock).expect("it is there");
        assert!(listed.iter().any(|hertz| found["max"] == *hertz), "{answer}");
    }
    "done".to_owned()
}

/// Returns the settings of the kernel near those of the list, and files that are newer than `/tmp/before`. What the kernel counts
/// or measures is left out.
fn state_of(board: &Board) -> String {
    let settings = "/sys/devices/platform/17000000.gpu/devfreq /sys/devices/system/cpu /sys/devices/virtual/thermal \
                    /proc/sys/kernel /proc/sys/vm";
    let measured = "/(stats|power|cpuidle|trans_stat|cur_freq|scaling_cur_freq|cpuinfo_cur_freq|target_freq|temp)\\b\
                    |random|ns_last_pid|pty/nr";
    let files =
        "find /etc /usr /var/lib /root /home -xdev -type f -newer /tmp/before ! -path '/var/lib/systemd/*'";
    run(board, &format!("grep -rs . {settings} | grep -vE '{measured}' | sort; {files}"))
}

#[test]
#[ignore = "boots an emulated board; `make test-boards` runs it"]
fn the_helper_on_a_board_refuses_what_is_not_on_its_list() {
    let Some(boards) = governed_board() else { return };
    let board = &boards[0];
    // Files of the same second count as newer.
    run(board, "sleep 1; touch /tmp/before");
    let before = state_of(board);
    let seed = std::env::var("ORINOCO_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    let mut random = Random(seed);
    let dir = tempfile::tempdir().expect("temporary folder");
    let local = dir.path().join("lines");
    let lines: Vec<Vec<u8>> = (0..LINES).map(|_| line(&mut random)).collect();
    std::fs::write(&local, lines.join(&b'\n')).expect("written");
    put(board, &local, "/tmp/lines");
    run(board, "chmod 644 /tmp/lines");

    let answers = send(board, "orinoco", "/tmp/lines");
    assert_eq!(answers.len(), LINES, "seed {seed}: each line has an answer");
    let mut counts = std::collections::BTreeMap::<String, usize>::new();
    for answer in &answers {
        *counts.entry(check_answer(answer)).or_default() += 1;
    }
    println!("seed {seed}: {LINES} lines: {counts:?}");
    let reasons: Vec<&str> = counts.keys().map(String::as_str).collect();
    assert_eq!(reasons, ["done", "needs-reboot", "not-a-request", "not-listed"]);

    eventually("the original settings", RESTORED_MAX, || (settings(board) == ORIGINAL).then_some(()));
    let expected = format!("{before}\n{MODE}");
    assert_eq!(
        state_of(board),
        expected,
        "seed {seed}: nvpmodel has set its mode again, and nothing else differs"
    );
    run(board, "echo '{\"verb\":\"status\"}' >/tmp/lines");
    assert_eq!(check_answer(&send(board, "orinoco", "/tmp/lines")[0]), "done", "it still answers");
    assert_eq!(run(board, "systemctl show -P NRestarts orinoco-helper"), "0");
}
