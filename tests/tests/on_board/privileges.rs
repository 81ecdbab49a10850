//! Work of the daemon as the user `orinoco`, without a capability, under its shipped unit. The governor's part is in
//! governor.rs.

use std::net::Ipv4Addr;
use std::time::Duration;

#[allow(dead_code, reason = "the exporter's own tests use more of it")]
#[path = "../../../crates/orinoco-otlp/tests/exporter/receiver.rs"]
mod receiver;

use orinoco_api::{EnergyFigure, Summary};
use orinoco_rig::{Board, Flavour, Options, Rail, Reading, Session, VividOptions};
use orinoco_tests::make_cluster;
use orinoco_tests::onnx::{Attribute, Graph, element};
use serde_json::Value;

use super::governor::check_no_capabilities;
use super::{ControlTunnel, RUN_MAX, eventually, install, put, put_text, run, stage, start, start_service};
use receiver::{Receiver, Reply, at};

const BOARD: &str = "version = 1
[inference]
engines = ['tract']
[otlp]
metrics_interval_ms = 1000
[[model]]
name = 'm'
model = '/tmp/small'
interval = 10
[[sink]]
name = 'results'
kind = 'jsonl'
path = 'results.jsonl'
[[stream]]
name = 'camera'
source = 'v4l2:///dev/video0?format=NV12&width=640&height=360&fps=5'
models = ['m']
sinks = ['results']
drop = 'drop-oldest'
";

/// Power of the board while the lane is idle and while it is busy: 5 V and 1 or 2 A.
const IDLE: Reading = Reading { millivolts: 5000, milliamps: 1000 };
const BUSY_MORE_WATTS: f64 = 5.0;
/// Makes the current of `VDD_IN` follow the lane: 1 A while its thread sleeps, else 2 A. The words are those of `board-rails`.
/// It goes before all else on the board, because a current that is late counts against the measurement.
const LOAD: &str = "busybox renice -n -20 -p $$
bus=$(i2cdetect -l | sed -n 's/^i2c-\\([0-9]*\\).*SMBus stub.*/\\1/p')
lane=$(dirname $(grep -l '^lane-0$' /proc/$(pidof orinocod)/task/*/comm))
while read -r line <$lane/stat; do
  case $line in *') R '*) word=0xd007 ;; *) word=0xe803 ;; esac
  [ $word = \"$set\" ] || i2cset -f -y $bus 0x40 1 $word w
  set=$word
  usleep 20000
done
";
/// Maximum time until the energy of a frame is measured. A minute is enough, with an inference every 2 s; a busy machine gets
/// longer.
const MEASURED_MAX: Duration = Duration::from_secs(400);
/// Greatest half-width of the energy, as a share of it, with which the test is content.
const HALF_WIDTH_MAX: f64 = 0.25;
/// Greatest difference of the energy from the power that the lane adds times its busy time, as a share. A current that an
/// emulated core writes a tenth of a second late makes the figure smaller. How precise the meter is, its own tests show.
const ENERGY_ERROR_MAX: f64 = 0.4;

/// Copies a model to `/tmp/small`: one convolution, which takes an emulated core half a second. The meter knows of a
/// batch when it has ended, and takes what is older than 2 s for idle power, so that it cannot measure the demo model here.
fn put_small_model(board: &Board) {
    const CHANNELS: usize = 48;
    const KERNEL: usize = 7;
    let shape = [CHANNELS as i64, 3, KERNEL as i64, KERNEL as i64];
    let graph = Graph::new()
        .input("images", element::F32, &[1, 3, 96, 96])
        .floats("weights", &shape, &[0.01; CHANNELS * 3 * KERNEL * KERNEL])
        .node("Conv", &["images", "weights"], &["features"], &[("pads", Attribute::Ints(vec![3; 4]))])
        .node("GlobalAveragePool", &["features"], &["means"], &[])
        .output("means", element::F32, &[1, CHANNELS as i64, 1, 1]);
    let dir = tempfile::tempdir().expect("temporary folder");
    let local = dir.path().join("model.onnx");
    std::fs::write(&local, graph.file()).expect("written");
    run(board, "mkdir -p /tmp/small/1");
    put(board, &local, "/tmp/small/1/model.onnx");
    let description =
        "version = 1\nname = 'small'\n[input]\nwidth = 96\nheight = 96\n[output]\nhead = 'raw'\n";
    put_text(board, description, "/tmp/small/model.toml");
    run(board, "chmod -R a+rX /tmp/small");
}

fn follow_load(board: &Board) -> Session {
    put_text(board, LOAD, "/tmp/load");
    board.spawn("sh /tmp/load").expect("ssh starts")
}

/// Checks the rails, the temperature and the clocks of a status.
fn check_sensors(status: &Value) {
    let sensors = &status["sensors"];
    let rails = sensors["rails"].as_array().expect("a list");
    let watts = |name| rails.iter().find(|rail| rail["name"] == name).map(|rail| rail["watts"].clone());
    assert!(watts("VDD_IN").is_some_and(|watts| watts == 5.0 || watts == 10.0), "{sensors}");
    assert_eq!(watts("VDD_SOC"), Some(Value::from(0.0)), "{sensors}");
    assert_eq!(sensors["temperatures"][0]["celsius"], 45.0, "{sensors}");
    let clocks = sensors["clocks"].as_array().expect("a list").iter();
    assert!(clocks.filter(|clock| clock["max_mhz"].is_number()).count() >= 2, "{sensors}");
    assert!(!sensors["unknown"].to_string().contains("ermission"), "{sensors}");
    assert_eq!(
        (&status["energy"]["covers"], &status["energy"]["rails"][0]),
        (&"input".into(), &"VDD_IN".into())
    );
}

/// Returns the energy of a frame, once it is known well.
fn energy_per_frame(status: &Value) -> Option<f64> {
    let energy: EnergyFigure =
        serde_json::from_value(status["streams"][0]["energy_per_frame"].clone()).ok()?;
    let (energy, half_width) = (energy.mj?, energy.half_width_mj?);
    (half_width < HALF_WIDTH_MAX * energy).then_some(energy)
}

#[test]
#[ignore = "boots an emulated board; `make test-boards` runs it"]
fn a_daemon_without_privileges_does_all_its_work() {
    let options = Options { memory_mib: 768, cpus: 2, hurried: true, ..Options::default() };
    let Some(boards) = stage(Flavour::Systemd, &options, "orinocod") else { return };
    boards.alone().expect("the others end");
    let board = &boards[0];
    board.camera(VividOptions::default()).expect("a camera");
    board.dvfs().expect("rails, a thermal zone and clocks");
    board.set_rail(Rail::VddIn, IDLE).expect("written");
    put_small_model(board);
    let collector = Receiver::start(|_, _| Reply::status("200 OK"));
    let tunnel = ControlTunnel::open_with(board, &["-R", &format!("4318:{}", collector.address())]);
    start_service(board, BOARD);
    let _load = follow_load(board);
    check_no_capabilities(board, "orinocod", "orinoco");
    run(board, "udevadm trigger --settle --subsystem-match=i2c-dev");
    assert_eq!(
        run(board, "stat -c '%a %G' /dev/i2c-0; id -nG orinoco | tr ' ' '\\n' | grep i2c"),
        "660 i2c\ni2c"
    );

    let energy = |status: &Value| {
        let frames = status["streams"][0]["frames_out"].as_f64().expect("a number");
        let busy_s = status["lanes"][0]["busy_s"].as_f64().expect("a number");
        energy_per_frame(status).map(|energy| (energy, BUSY_MORE_WATTS * busy_s * 1e3 / frames))
    };
    let status = eventually("the energy of a frame", MEASURED_MAX, || {
        tunnel.get("/v1/status").filter(|status| energy(status).is_some())
    });
    check_sensors(&status);
    let (measured, expected) = energy(&status).expect("checked above");
    println!(
        "{} frames and {} inferences; {measured:.1} mJ a frame, of {expected:.1} mJ",
        status["streams"][0]["frames_out"], status["models"][0]["inferences"]
    );
    assert!((measured / expected - 1.0).abs() < ENERGY_ERROR_MAX, "{measured} mJ of {expected} mJ: {status}");

    let metrics = tunnel.text("/metrics").expect("an answer");
    for name in ["orinoco_frames_out_total", "orinoco_rail_power_watts"] {
        assert!(metrics.contains(name), "{name}");
    }
    assert_eq!(tunnel.get("/healthz").expect("an answer")["healthy"], true);
    let dump = tunnel.get("/v1/dump").expect("an answer");
    assert_eq!(dump["reason"], "request");
    assert!(!dump["trace"].as_array().expect("a list").is_empty());
    collector.wait_until(|requests| !at(requests, "/v1/metrics").is_empty());
    assert_eq!(
        run(
            board,
            "stat -c '%a %U' /var/lib/orinoco/results.jsonl; wc -l </var/lib/orinoco/results.jsonl | grep -v '^0$' | wc -l"
        ),
        "640 orinoco\n1"
    );
    check_end(board);
}

/// Stops the daemon, and checks its summary and its journal.
fn check_end(board: &Board) {
    let stopped =
        board.ssh_within("systemctl stop orinocod; journalctl -u orinocod -o cat --no-pager", RUN_MAX);
    let journal = String::from_utf8_lossy(&stopped.expect("it ends").stdout).into_owned();
    assert_eq!(
        run(board, "journalctl -u orinocod -o cat --no-pager -p warning; systemctl --failed --no-legend"),
        ""
    );
    let text = journal.lines().find_map(|line| line.strip_prefix("summary ")).expect("a summary");
    let summary: Summary = serde_json::from_str(text).expect("JSON");
    let energy = summary.streams[0].energy_per_frame.as_ref().and_then(|energy| energy.mj);
    println!("the summary: {energy:?} mJ a frame");
    assert!(energy.is_some_and(|mj| mj > 0.0), "{text}");
}

/// Real-time priority and policy of the thread that exchanges signs of life with other seats: what follows its name in `stat` begins with
/// the third field (proc(5)).
const PRIORITY_OF_SEAT: &str = "seat=$(dirname $(grep -l '^orinoco-seat$' /proc/$(pidof orinocod)/task/*/comm)) && \
     sed 's/.*) //' $seat/stat | cut -d ' ' -f 38,39";
/// The lowest real-time priority, and `SCHED_RR`.
const REAL_TIME: &str = "1 2";

#[test]
#[ignore = "boots an emulated board; `make test-boards` runs it"]
fn signs_of_life_of_a_seat_have_real_time_priority() {
    let Some(boards) = stage(Flavour::Systemd, &Options::default(), "orinocod") else { return };
    let board = &boards[0];
    let files = tempfile::tempdir().expect("temporary folder");
    // The other seat is not started.
    let [own, other] = [4711, 4712].map(|port| (Ipv4Addr::LOCALHOST, port).into());
    let operator = make_cluster(files.path(), &[("a", own), ("b", other)]);
    install(board);
    put(board, &files.path().join("members"), "/etc/orinoco/members");
    put(board, &files.path().join("a.key"), "/etc/orinoco/a.key");
    run(
        board,
        "chown orinoco /etc/orinoco/* && chmod 600 /etc/orinoco/a.key && chmod 644 /etc/orinoco/members",
    );
    let text = format!(
        "version = 1\n[cluster]\nlist = 'members'\noperator_key = '{operator}'\nkey = 'a.key'\n\
         [[stream]]\nname = 'ball'\nsource = 'test://ball?width=64&height=48&fps=5&pace=pts'\nmodels = []\n"
    );
    start(board, &text);
    check_no_capabilities(board, "orinocod", "orinoco");
    assert_eq!(run(board, PRIORITY_OF_SEAT), REAL_TIME);
}
