//! Daemons on this machine that form a cluster, from keys and a signed list to a board that ends and comes back.

#![expect(clippy::disallowed_methods, reason = "the test waits for real threads or processes")]

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use orinoco_api::{
    ClusterList, ClusterModels, ClusterStatus, DoctorReport, LinkStatus, LinksReport, PartState, PullReport,
    Status, Summary,
};
use orinoco_collective::{
    Communicator, GroupKey, ReduceOp, Rendezvous, Security, SharedPorts, TcpGroup, TcpSettings,
};
use orinoco_tests::{
    assert_one_sentence, binary, cluster_key, make_local_cluster, orinoco, root, signal, wait,
};

/// Maximum time that a test waits for a daemon.
const WAIT_MAX: Duration = Duration::from_secs(60);

fn text(path: &Path) -> &str {
    path.to_str().expect("a path that is text")
}

fn socket(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.sock"))
}

/// Socket at which programs share the port of a board.
fn program_socket(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.programs.sock"))
}

fn write_board(dir: &Path, name: &str, operator: &str) -> PathBuf {
    let board = dir.join(format!("{name}.toml"));
    let text = format!(
        "version = 1\n[control]\nsocket = '{}'\n\
         [cluster]\nlist = 'members'\noperator_key = '{operator}'\nkey = '{name}.key'\nprogram_socket = '{}'\n\
         [[stream]]\nname = 'gate'\nsource = 'test://ball?pace=pts'\nmodels = []\n",
        socket(dir, name).display(),
        program_socket(dir, name).display()
    );
    fs::write(&board, text).expect("written");
    board
}

/// The daemon of a board, with a state directory of its own.
fn daemon(dir: &Path, name: &str, operator: &str) -> Command {
    let state = dir.join(format!("{name}.state"));
    fs::create_dir_all(&state).expect("created");
    let mut command = Command::new(binary("orinocod"));
    command.arg("--board").arg(write_board(dir, name, operator));
    command.arg("--summary").arg(summary_file(dir, name));
    command.env("STATE_DIRECTORY", state).current_dir(root()).stderr(Stdio::null());
    command
}

fn summary_file(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.summary.json"))
}

/// The cluster in the summary of a daemon that has ended.
fn cluster_at_the_end(dir: &Path, name: &str) -> ClusterStatus {
    let text = fs::read(summary_file(dir, name)).expect("a summary");
    let summary: Summary = serde_json::from_slice(&text).expect("a summary");
    summary.cluster.expect("the board is in a cluster")
}

struct Daemon {
    child: Child,
    socket: PathBuf,
}

impl Daemon {
    fn start(dir: &Path, name: &str, operator: &str) -> Self {
        let child = daemon(dir, name, operator).spawn().expect("starts");
        Self { child, socket: socket(dir, name) }
    }

    /// Asks for the status; `None` if the daemon does not answer.
    fn status(&self) -> Option<Status> {
        let arguments = ["--json", "status", "--socket", text(&self.socket)];
        let output = orinoco(&arguments).output().expect("orinoco starts");
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Asks for the state of the cluster until it is as wanted.
    fn cluster_until(&self, is_wanted: impl Fn(&ClusterStatus) -> bool) -> ClusterStatus {
        let begin = Instant::now();
        loop {
            let cluster = self.status().and_then(|status| status.cluster);
            match cluster {
                Some(cluster) if is_wanted(&cluster) => return cluster,
                _ => assert!(begin.elapsed() < WAIT_MAX, "{cluster:?}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Waits until the links of seat c are measured, and looks at what `orinoco links` shows.
fn check_links(c: &Daemon) {
    let is_measured = |link: &LinkStatus| link.used && link.bytes_per_s.is_some() && link.reason.is_none();
    c.cluster_until(|cluster| {
        let others = || cluster.seats.iter().take(2);
        others().all(|seat| seat.links.iter().any(is_measured)) && cluster.matrix.len() == 6
    });
    let links = |form: &[&str]| {
        let output = orinoco(&[form, &["links", "--socket", text(&c.socket)]].concat()).output();
        let output = output.expect("orinoco starts");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let report: LinksReport = serde_json::from_str(&links(&["--json"])).expect("links");
    assert_eq!((report.seat.as_str(), report.seats.len(), report.matrix.len()), ("c", 3, 6));
    let of_a = &report.seats[0].links[0];
    assert_eq!((of_a.interface.as_deref(), of_a.transport.as_deref()), (Some("lo"), Some("tcp")));
    assert!(report.seats[2].links.is_empty(), "no link with itself");
    let shown = links(&[]);
    let row = shown.lines().find(|line| line.starts_with("a ")).expect("a row for seat a");
    assert!(row.contains("used") && row.contains("127.0.0.1") && row.ends_with("MB/s"), "{shown}");
}

fn members(cluster: &ClusterStatus) -> Vec<&str> {
    let members = cluster.seats.iter().filter(|seat| seat.state == "member");
    members.map(|seat| seat.name.as_str()).collect()
}

#[test]
fn boards_form_a_cluster_and_go_on_without_one_that_fails() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let operator = make_local_cluster(dir.path(), &["a", "b", "c"]);
    let start = |name| Daemon::start(dir.path(), name, &operator);
    let (a, b, mut c) = (start("a"), start("b"), start("c"));
    for daemon in [&a, &b, &c] {
        let cluster = daemon.cluster_until(|cluster| members(cluster) == ["a", "b", "c"]);
        assert_eq!((cluster.name.as_str(), cluster.serial), ("crossing", 1));
    }

    check_links(&c);

    c.child.kill().expect("killed");
    c.child.wait().expect("ended");
    for daemon in [&a, &b] {
        let cluster = daemon.cluster_until(|cluster| members(cluster) == ["a", "b"]);
        assert_eq!(cluster.seats[2].state, "unreachable");
    }

    // It comes back, waits for the others' epoch to be old enough, and is in the next.
    let c = start("c");
    for daemon in [&a, &b, &c] {
        daemon.cluster_until(|cluster| members(cluster) == ["a", "b", "c"]);
    }

    // Two of three end: the third has no epoch, and says why.
    for daemon in [b, c] {
        signal(&daemon.child, "TERM");
        assert_eq!(wait(daemon.child, WAIT_MAX).0, Some(0));
    }
    let of_b = cluster_at_the_end(dir.path(), "b");
    assert_eq!((of_b.seat.as_str(), members(&of_b)), ("b", vec!["a", "b", "c"]));
    assert!(of_b.epoch.is_some() && of_b.transport.as_deref() == Some("tcp"), "{of_b:?}");
    let cluster = a.cluster_until(|cluster| cluster.epoch.is_none());
    assert!(members(&cluster).is_empty());
    let events = a.status().expect("it answers").events;
    let has = |kind: &str, words: &str| {
        assert!(events.iter().any(|event| event.kind == kind && event.text.contains(words)), "{events:?}");
    };
    has("epoch-began", "over tcp, with seats a,b,c");
    has("epoch-ended", "is over: seat");
    let shown = orinoco(&["status", "--socket", text(&a.socket)]).output().expect("orinoco starts");
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.contains("cluster crossing, list 1: no epoch"), "{shown}");
    assert!(shown.contains("unreachable"), "{shown}");
    signal(&a.child, "TERM");
    assert_eq!(wait(a.child, WAIT_MAX).0, Some(0));
    let of_a = cluster_at_the_end(dir.path(), "a");
    assert!(of_a.epoch.is_none() && members(&of_a).is_empty(), "{of_a:?}");
}

/// Programs next to the daemons of two boards form a group through the boards' ports, while the boards go on with their own epoch.
#[test]
fn programs_share_the_ports_of_daemons() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let operator = make_local_cluster(dir.path(), &["a", "b"]);
    let daemons = ["a", "b"].map(|name| Daemon::start(dir.path(), name, &operator));
    let of_both = |cluster: &ClusterStatus| members(cluster) == ["a", "b"];
    let epochs = daemons.each_ref().map(|daemon| daemon.cluster_until(of_both).epoch);
    let seats = daemons[0].cluster_until(of_both).seats;
    let addresses: Vec<SocketAddr> =
        seats.iter().map(|seat| seat.address.parse().expect("one address")).collect();
    let key = GroupKey::generate().expect("a key");
    std::thread::scope(|scope| {
        let join = |rank: usize| {
            let socket = program_socket(dir.path(), ["a", "b"][rank]);
            let mode = fs::metadata(&socket).expect("the socket").permissions().mode();
            assert_eq!(mode & 0o777, 0o660);
            let ports = SharedPorts { group: "training".to_owned(), addresses: addresses.clone(), socket };
            let settings = TcpSettings::new(Security::GroupKey(key.clone()));
            let mut group =
                TcpGroup::join(&Rendezvous::SharedPorts(ports), rank, 2, settings).expect("both join");
            let mut vector = vec![1.5f32; 100_000];
            group.all_reduce(ReduceOp::Sum, &mut vector).expect("a sum");
            assert!(vector.iter().all(|value| *value == 3.0));
        };
        let ranks = [0, 1].map(|rank| scope.spawn(move || join(rank)));
        ranks.into_iter().for_each(|rank| rank.join().expect("no panic"));
    });
    let later = daemons.each_ref().map(|daemon| daemon.cluster_until(of_both).epoch);
    assert_eq!(later, epochs, "the boards' own epoch goes on");
    for (daemon, name) in daemons.into_iter().zip(["a", "b"]) {
        signal(&daemon.child, "TERM");
        assert_eq!(wait(daemon.child, WAIT_MAX).0, Some(0));
        assert!(!program_socket(dir.path(), name).exists(), "the daemon removes its socket");
    }
}

/// Repository of a board with the version of a model.
fn write_version(dir: &Path, name: &str, version: u32) -> PathBuf {
    let (models, own) = (dir.join(format!("{name}.models")), root().join("models/person-nano"));
    let folder = models.join("person-nano");
    let of_version = folder.join(version.to_string());
    fs::create_dir_all(&of_version).expect("created");
    let description = fs::read_to_string(own.join("model.toml")).expect("a description");
    let lines =
        description.lines().filter(|line| !line.starts_with("sha256")).map(|line| format!("{line}\n"));
    fs::write(folder.join("model.toml"), lines.collect::<String>()).expect("written");
    // A long `doc_string` (field 6 of ModelProto), so that the file is copied in several parts.
    let mut onnx = fs::read(own.join("1/model.onnx")).expect("a graph");
    onnx.extend([0x32, 0x80, 0x80, 0xa0, 0x01]);
    onnx.extend(std::iter::repeat_n(b'a' + u8::try_from(version).expect("a small number"), 0x28_0000));
    fs::write(of_version.join("model.onnx"), onnx).expect("written");
    models
}

/// Starts the daemon of a board that runs a model and shares it.
fn start_sharing(dir: &Path, name: &str, operator: &str) -> Daemon {
    let mut command = daemon(dir, name, operator);
    let board = dir.join(format!("{name}.toml"));
    let text = fs::read_to_string(&board).expect("the board file");
    let text = text
        .replace("[[stream]]", "share_models = true\n[[stream]]")
        .replace("models = []", "models = ['person-nano']");
    fs::write(&board, text + "[[model]]\nname = 'person-nano'\n").expect("written");
    command.arg("--models").arg(dir.join(format!("{name}.models"))).env("ORINOCO_DATA", dir);
    Daemon { child: command.spawn().expect("starts"), socket: socket(dir, name) }
}

/// Waits until a board sees that a seat shares this version of the model.
fn shared_version(of: &Daemon, version: u32) -> ClusterModels {
    let begin = Instant::now();
    loop {
        let arguments = ["--json", "models", "list", "--cluster", "--socket", text(&of.socket)];
        let output = orinoco(&arguments).output().expect("orinoco starts");
        let models: Option<ClusterModels> = serde_json::from_slice(&output.stdout).ok();
        let has = |models: &ClusterModels| {
            models.seats.iter().any(|seat| seat.models.iter().any(|model| model.version == Some(version)))
        };
        match models {
            Some(models) if has(&models) => return models,
            _ => assert!(begin.elapsed() < WAIT_MAX, "{output:?}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_board_copies_the_models_that_another_runs() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let operator = make_local_cluster(dir.path(), &["a", "b"]);
    let theirs = write_version(dir.path(), "a", 2);
    let a = start_sharing(dir.path(), "a", &operator);
    let b = Daemon::start(dir.path(), "b", &operator);
    let shared = shared_version(&b, 2);
    assert_eq!((shared.cluster.as_str(), shared.seat.as_str(), shared.seats.len()), ("crossing", "b", 1));
    let paths: Vec<&str> = shared.seats[0].models[0].files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["2/model.onnx", "model.toml"]);

    let ours = dir.path().join("b.models");
    let pull = |model: &str, more: &[&str]| {
        let first = ["models", "pull", model, "--models", text(&ours), "--socket", text(&b.socket)];
        orinoco(&[&first[..], more].concat()).output().expect("orinoco starts")
    };
    let report = |model: &str| {
        let output = pull(model, &["--json"]);
        assert!(output.status.success(), "{output:?}");
        let report: PullReport = serde_json::from_slice(&output.stdout).expect("a report");
        let files = report.files.into_iter().map(|file| (file.path, file.state));
        (report.seat, report.version, files.collect::<Vec<_>>())
    };
    let files = |all: &[(&str, &str)]| {
        all.iter().map(|(path, state)| (path.to_string(), state.to_string())).collect::<Vec<_>>()
    };
    let same = |path: &str| {
        let read = |models: &Path| fs::read(models.join("person-nano").join(path)).expect("a file");
        assert!(read(&theirs) == read(&ours), "{path}");
    };
    let added = files(&[("2/model.onnx", "added"), ("model.toml", "added")]);
    assert_eq!(report("person-nano"), ("a".to_owned(), Some(2), added));
    ["2/model.onnx", "model.toml"].into_iter().for_each(same);
    let unchanged = files(&[("2/model.onnx", "unchanged"), ("model.toml", "unchanged")]);
    assert_eq!(report("person-nano").2, unchanged);

    // The other board gets a new version, and another description.
    write_version(dir.path(), "a", 3);
    let description = theirs.join("person-nano/model.toml");
    let changed = fs::read_to_string(&description).expect("a description") + "# changed\n";
    fs::write(&description, changed).expect("written");
    signal(&a.child, "HUP");
    shared_version(&b, 3);
    assert_eq!(report("person-nano").2, files(&[("3/model.onnx", "added"), ("model.toml", "replaced")]));
    ["2/model.onnx", "3/model.onnx", "model.toml"].into_iter().for_each(same);

    // `pull` never replaces the ONNX file of a version.
    let in_use = ours.join("person-nano/3/model.onnx");
    fs::write(&in_use, "another graph").expect("written");
    let refused = pull("person-nano", &["--seat", "a"]);
    assert_one_sentence(&refused, 3, "E1008", &["3/model.onnx", "not overwritten"]);
    assert_eq!(fs::read_to_string(&in_use).expect("kept"), "another graph");
    let left = fs::read_dir(&ours).expect("a folder").flatten().map(|entry| entry.file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["person-nano"], "nothing else is left");

    // Daemons load the highest version, so a lower one would not be used.
    let higher = ours.join("person-nano/9");
    fs::create_dir(&higher).expect("created");
    fs::copy(&in_use, higher.join("model.onnx")).expect("copied");
    assert_one_sentence(&pull("person-nano", &[]), 3, "E1008", &["version 9", "instead of version 3"]);

    assert_one_sentence(
        &pull("plates", &[]),
        3,
        "E1008",
        &["plates", "no connected board of the cluster shares"],
    );
    assert_one_sentence(&pull("person-nano", &["--seat", "c"]), 3, "E1008", &["seat c does not share"]);
    for daemon in [a, b] {
        signal(&daemon.child, "TERM");
        assert_eq!(wait(daemon.child, WAIT_MAX).0, Some(0));
    }
    let lone = orinoco(&["models", "list", "--cluster", "--socket", text(&socket(dir.path(), "b"))]);
    assert_one_sentence(&{ lone }.output().expect("orinoco starts"), 3, "E0911", &["no daemon runs"]);
}

#[test]
fn a_daemon_whose_program_socket_cannot_be_made_says_why() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let operator = make_local_cluster(dir.path(), &["a", "b"]);
    fs::write(program_socket(dir.path(), "a"), "notes").expect("written");
    assert_refused(
        dir.path(),
        "a",
        &operator,
        &["a.programs.sock", "there is a file of that name", "[cluster]"],
    );
    assert_eq!(fs::read_to_string(program_socket(dir.path(), "a")).expect("it is kept"), "notes");
}

#[test]
fn a_list_is_checked_and_shown() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let operator = make_local_cluster(dir.path(), &["a", "b", "c"]);
    let members = dir.path().join("members");
    let check = |key: &str| {
        let arguments = ["--json", "cluster", "check", text(&members), "--operator-key", key];
        orinoco(&arguments).output().expect("orinoco starts")
    };
    let list: ClusterList = serde_json::from_slice(&check(&operator).stdout).expect("a list");
    assert_eq!(list.seats.iter().map(|seat| seat.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    let other = "0f".repeat(32);
    let arguments = ["cluster", "check", text(&members), "--operator-key", &other];
    let refused = orinoco(&arguments).output().expect("orinoco starts");
    assert_one_sentence(&refused, 2, "E1004", &["members", "is not signed"]);
    let again =
        orinoco(&["cluster", "keygen", text(&dir.path().join("a.key"))]).output().expect("orinoco starts");
    assert_one_sentence(&again, 2, "E1004", &["a.key", "exists"]);
}

#[test]
fn the_doctor_takes_the_seat_for_a_moment() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let operator = make_local_cluster(dir.path(), &["a", "b", "c"]);
    let check = |name: &str| {
        let board = write_board(dir.path(), name, &operator);
        let output =
            orinoco(&["doctor", "--json", "--board", text(&board)]).output().expect("orinoco starts");
        let report: DoctorReport = serde_json::from_slice(&output.stdout).expect("a report");
        let parts = report.parts.into_iter().filter(|part| part.kind == "cluster");
        let shown = parts.map(|part| (part.name, part.state, part.says)).collect::<Vec<_>>();
        (report.board_file.expect("a verdict").can_run, shown)
    };
    let has = |shown: &[(String, PartState, String)], name: &str, state: PartState, words: &str| {
        let is_it = |(own, of, says): &(String, PartState, String)| {
            own.ends_with(name) && *of == state && says.contains(words)
        };
        assert!(shown.iter().any(is_it), "no {name} {words}: {shown:?}");
    };
    let a = Daemon::start(dir.path(), "a", &operator);
    a.cluster_until(|cluster| cluster.seat == "a");
    let (can_run, shown) = check("b");
    assert!(can_run, "{shown:?}");
    has(&shown, "members", PartState::Ok, "serial 1");
    has(&shown, "seat a", PartState::Ok, "reachable");
    has(&shown, "seat b", PartState::Ok, "this board");
    has(&shown, "seat c", PartState::NotChecked, "did not connect");
    // The daemon has the address of its own seat.
    let (can_run, shown) = check("a");
    assert!(can_run, "{shown:?}");
    has(&shown, "this board", PartState::NotChecked, "in use");
    signal(&a.child, "TERM");
    assert_eq!(wait(a.child, WAIT_MAX).0, Some(0));

    cluster_key(&["keygen", text(&dir.path().join("stolen.key"))]);
    let (can_run, shown) = check("stolen");
    assert!(!can_run, "{shown:?}");
    has(&shown, "stolen.key", PartState::Broken, "is not in the member list");
    fs::remove_file(dir.path().join("b.key")).expect("removed");
    has(&check("b").1, "b.key", PartState::Broken, "b.key");
    fs::write(dir.path().join("members"), "orinoco-cluster 1\n").expect("written");
    has(&check("b").1, "members", PartState::Broken, "not signed");
}

#[test]
fn a_daemon_whose_seat_cannot_be_taken_says_why() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let operator = make_local_cluster(dir.path(), &["a", "b", "c"]);
    cluster_key(&["keygen", text(&dir.path().join("stolen.key"))]);
    assert_refused(dir.path(), "stolen", &operator, &["members", "this board is not in the member list"]);
}

#[test]
fn a_daemon_refuses_an_older_list_than_it_has_used() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let operator = make_local_cluster(dir.path(), &["a", "b"]);
    let daemon = Daemon::start(dir.path(), "a", &operator);
    daemon.cluster_until(|cluster| cluster.serial == 1);
    signal(&daemon.child, "TERM");
    wait(daemon.child, WAIT_MAX);

    let path = |name: &str| dir.path().join(name);
    let list = fs::read_to_string(path("list")).expect("the list");
    fs::write(path("list"), list.replace("serial 1", "serial 0")).expect("written");
    fs::remove_file(path("members")).expect("removed");
    let [list, key, members] = ["list", "operator.key", "members"].map(path);
    cluster_key(&["sign", text(&list), "--key", text(&key), "--output", text(&members)]);
    let words = ["members", "serial 0", "serial 1", "cluster-serials.json"];
    assert_refused(dir.path(), "a", &operator, &words);
}

/// Checks that a daemon does not start, and that the one line of its error has these words.
fn assert_refused(dir: &Path, name: &str, operator: &str, words: &[&str]) {
    let output = daemon(dir, name, operator).stderr(Stdio::piped()).output().expect("starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    let errors: Vec<&str> = text.lines().filter(|line| line.starts_with("error: ")).collect();
    assert!(errors.len() == 1 && errors[0].starts_with("error: E1004 "), "{text}");
    words.iter().for_each(|word| assert!(errors[0].contains(word), "`{word}` in: {text}"));
}
