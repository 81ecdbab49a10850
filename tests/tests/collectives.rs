//! `orinoco perf`: collective operations among processes of this machine.

#![expect(clippy::disallowed_methods, reason = "a test follows a real process")]

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use orinoco_api::{ErrorReport, Measured, PerfEnergy, PerfReport};
use orinoco_tests::{assert_one_sentence, binary, free_address, orinoco};

fn report(arguments: &[&str]) -> PerfReport {
    let output = orinoco(arguments).output().expect("orinoco starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    assert_eq!(said, "", "{arguments:?}");
    serde_json::from_slice(&output.stdout).expect("a report")
}

#[test]
fn every_operation_is_exact_for_all_sizes() {
    for operation in [
        "all_reduce",
        "broadcast",
        "all_gather",
        "reduce_scatter",
        "all_to_all",
        "reduce",
        "scatter",
        "gather",
    ] {
        for (ranks, datatype) in [("2", "f32"), ("3", "bf16"), ("1", "i8")] {
            let sizes = ["-b", "8", "-e", "128K", "-f", "16", "-n", "5", "-c", "-d", datatype];
            let report = report(&[&["perf", operation, "--ranks", ranks, "--json"], &sizes[..]].concat());
            assert_eq!((report.operation.as_str(), report.ranks.to_string().as_str()), (operation, ranks));
            assert_eq!(report.rows.len(), 4);
            for row in &report.rows {
                assert_eq!(row.wrong, Some(0), "{operation} of {ranks} ranks: {row:?}");
                assert!(row.p50_us > 0.0 && row.p99_us >= row.p50_us && row.algbw > 0.0, "{row:?}");
            }
        }
    }
}

/// Starts a measurement of the energy of an all-reduce of 1 MiB on the board that `sysroot` describes.
fn with_energy(seconds: &str, sysroot: &Path) -> Child {
    let sysroot = sysroot.to_str().expect("a path that is text");
    let energy = format!("--energy={seconds}");
    let sizes = ["-b", "1M", "-e", "1M", "-n", "20"];
    let arguments = ["perf", "all_reduce", "--json", &energy, "--sysroot", sysroot];
    let mut command = orinoco(&[&arguments[..], &sizes[..]].concat());
    command.stdout(Stdio::piped()).spawn().expect("orinoco starts")
}

fn energy_of(perf: Child) -> (PerfReport, Measured<PerfEnergy>) {
    let output = perf.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    let report: PerfReport = serde_json::from_slice(&output.stdout).expect("a report");
    let energy = report.rows[0].energy.clone().expect("asked for");
    (report, energy)
}

#[test]
fn energy_is_not_measured_without_a_sensor() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let (_, energy) = energy_of(with_energy("0.1", dir.path()));
    let reason = energy.reason().expect("a reason");
    assert!(reason.starts_with("on the board of rank 0: this machine has no power sensor"), "{reason}");
}

/// A synthetic board that takes 5 W, and 2 W more while rank 0 does not sleep.
#[test]
fn energy_follows_the_power_of_the_board() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let chip = dir.path().join("sys/class/hwmon/hwmon0");
    fs::create_dir_all(&chip).expect("a folder");
    let files = [
        ("name", "ina3221"),
        ("in1_label", "VDD_IN"),
        ("in1_input", "20000"),
        ("curr1_input", "250"),
        ("shunt1_resistor", "5000"),
        ("update_interval", "4"),
        ("samples", "1"),
    ];
    files.iter().for_each(|(name, text)| fs::write(chip.join(name), format!("{text}\n")).expect("written"));
    std::os::unix::fs::symlink("../../../bus/i2c/devices/1-0040", chip.join("device")).expect("a link");
    let current = OpenOptions::new().write(true).open(chip.join("curr1_input")).expect("it is there");

    let mut perf = with_energy("5", dir.path());
    let stat = format!("/proc/{0}/task/{0}/stat", perf.id());
    while perf.try_wait().expect("a child").is_none() {
        let sleeps = fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") S "));
        current.write_at(if sleeps { b"250" } else { b"350" }, 0).expect("written");
        thread::sleep(Duration::from_micros(500));
    }
    let (report, energy) = energy_of(perf);
    let energy = energy.value().unwrap_or_else(|| panic!("{energy:?}"));
    assert_eq!((energy.boards, &energy.rails[..]), (1, &["VDD_IN".to_owned()][..]));
    let (idle, each, per_gb) = (energy.idle_watts, energy.joules_per_call, energy.joules_per_gb);
    assert!((idle.value - 5.0).abs() < 0.5 && each.half_width < each.value, "{energy:?}");
    // Calls that follow one another take another time than those that are timed one by one.
    let row = &report.rows[0];
    let watts = each.value / (row.p50_us * 1e-6);
    assert!((0.5..8.0).contains(&watts), "{watts} W: {energy:?} {row:?}");
    assert!((per_gb.value - each.value * 1e9 / row.bytes as f64).abs() <= 1e-9 * per_gb.value, "{energy:?}");
}

/// Writes a stand-in for ssh that runs the command on this machine. The host `gone` cannot be reached.
fn ssh_stand_in(dir: &Path) -> String {
    let path = dir.join("ssh-stand-in");
    let script = "#!/bin/sh\n\
        while [ \"$1\" != -- ]; do shift; done\n\
        host=$2; shift 2\n\
        [ \"$host\" = gone ] && { echo 'ssh: Could not resolve hostname gone' >&2; exit 255; }\n\
        echo \"$*\" >> \"$(dirname \"$0\")/commands\"\n\
        exec sh -c \"$*\"\n";
    let mut file =
        OpenOptions::new().create_new(true).write(true).mode(0o700).open(&path).expect("a new file");
    file.write_all(script.as_bytes()).expect("written");
    path.to_str().expect("a path that is text").to_owned()
}

#[test]
fn ranks_are_started_on_hosts_over_ssh() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let ssh = ssh_stand_in(dir.path());
    let port = free_address(Ipv4Addr::LOCALHOST);
    let program = binary("orinoco");
    let program = program.to_str().expect("a path that is text");
    let run = |hosts: &str, form: &[&str]| {
        let address = port.to_string();
        let group = ["--hosts", hosts, "--ssh", &ssh, "--program", program, "--address", &address];
        let sizes = ["-b", "8", "-e", "64K", "-f", "64", "-n", "5", "-c"];
        orinoco(&[&["perf", "all_reduce"], &group[..], &sizes[..], form].concat())
            .output()
            .expect("it starts")
    };
    let output = run("one,two,three", &["--json"]);
    assert!(output.status.success(), "{output:?}");
    let report: PerfReport = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!((report.ranks, report.transport.as_str()), (3, "tcp"));
    assert!(report.rows.iter().all(|row| row.wrong == Some(0)), "{report:?}");
    let commands = std::fs::read_to_string(dir.path().join("commands")).expect("commands");
    assert_eq!(commands.lines().count(), 3);
    let is_key = |word: &str| word.len() == 64 && word.bytes().all(|digit| digit.is_ascii_hexdigit());
    assert!(!commands.split_whitespace().any(is_key), "no key on a command line: {commands}");

    let text = run("one,two", &[]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("all_reduce over tcp, 2 ranks"), "{text:?}");
    assert_eq!(run("one,gone", &[]).status.code(), Some(3));
    let refused = run("one,gone", &["--json"]);
    let error: ErrorReport = serde_json::from_slice(&refused.stdout).expect("an error");
    let fault = &error.faults[0];
    assert_eq!((fault.code.as_str(), fault.subject.as_str()), ("E1007", "gone"));
    assert!(fault.cause.contains("Could not resolve hostname"), "{fault:?}");
    // No word of an option reaches the shell of a host.
    let injected = run("one;reboot", &[]);
    assert_eq!(injected.status.code(), Some(2), "{injected:?}");
}

#[test]
fn tcp_is_exact_with_and_without_encryption() {
    for transport in ["tcp", "tcp-plaintext"] {
        let sizes = ["-b", "8", "-e", "2M", "-f", "512", "-n", "5", "-c", "--ranks", "3"];
        let report =
            report(&[&["perf", "all_reduce", "--transport", transport, "--json"], &sizes[..]].concat());
        assert_eq!((report.transport.as_str(), report.rows.len()), (transport, 3));
        assert!(report.rows.iter().all(|row| row.wrong == Some(0)), "{:?}", report.rows);
        assert!(report.exchange_us > 0.0 && report.copy_bytes_per_s > 0.0);
    }
}

#[test]
fn pci_memory_is_exact_within_a_machine_and_between_ranks_that_share_a_window() {
    let sizes = ["-b", "8", "-e", "2M", "-f", "512", "-n", "5", "-c"];
    let here = report(
        &[&["perf", "all_to_all", "--transport", "pcie", "--ranks", "3", "--json"], &sizes[..]].concat(),
    );
    let folder = tempfile::tempdir().expect("a folder");
    let (key, window) = (group_key(folder.path()), folder.path().join("window"));
    let window = window.to_str().expect("a path that is text").to_owned();
    let shared = ranks_that_meet(&["--window", &window, "--key", &key], &sizes);
    for report in [here, shared] {
        assert_eq!((report.transport.as_str(), report.rows.len()), ("pcie", 3));
        assert!(report.rows.iter().all(|row| row.wrong == Some(0)), "{:?}", report.rows);
        assert!(report.exchange_us == 0.0 && report.rows[0].limit_share == 0.0, "not known");
    }
}

#[test]
fn options_of_ranks_that_do_not_go_together_are_refused() {
    let key = ["--rank", "0", "--key", "k"];
    for (options, cause) in [
        (&["--transport", "shm", "--address", "127.0.0.1:1"][..], "no transport shm"),
        (&["--transport", "tcp", "--window", "w"], "of no use over tcp"),
        (&["--transport", "shm", "--tcp-connections", "2"], "of no use over shm"),
        (&[], "no place where the ranks meet"),
    ] {
        let arguments = [&["perf", "all_reduce"], options, &key[..]].concat();
        assert_one_sentence(&orinoco(&arguments).output().expect("orinoco starts"), 2, "E0106", &[cause]);
    }
}

#[test]
fn the_choice_of_an_algorithm_is_explained() {
    let sizes = ["-b", "8", "-e", "32K", "-f", "64", "-n", "5", "--explain"];
    let report = report(
        &[&["perf", "all_reduce", "--transport", "tcp", "--tcp-connections", "2", "--json"], &sizes[..]]
            .concat(),
    );
    for row in &report.rows {
        let explanation = row.explanation.as_ref().expect("an explanation");
        let chosen = explanation.candidates.iter().find(|of| of.algorithm == explanation.algorithm);
        assert_eq!(chosen.map(|chosen| chosen.predicted_us), Some(explanation.predicted_us));
        assert!(explanation.bound_us > 0.0 && explanation.bound_share > 0.0, "{explanation:?}");
    }
    assert!(report.tuned);
}

#[test]
fn algorithm_and_order_can_be_demanded() {
    let sizes =
        ["-b", "8", "-e", "32K", "-f", "64", "-n", "5", "-c", "--json", "--transport", "tcp-plaintext"];
    for (options, order, algorithm) in [
        (&["--ranks", "3", "--order", "fast", "--algorithm", "ring"][..], "fast", Some("ring")),
        (&["--algorithm", "recursive-doubling", "-d", "bf16"], "reproducible", Some("recursive-doubling")),
        (&["--ranks", "3", "--order", "fast", "-d", "bf16", "-o", "product"], "fast", None),
        (&["--tune", "-o", "average"], "reproducible", None),
    ] {
        let report = report(&[&["perf", "all_reduce"], options, &sizes[..]].concat());
        assert_eq!((report.order.as_deref(), report.algorithm.as_deref()), (Some(order), algorithm));
        assert_eq!(report.tuned, options.contains(&"--tune"));
        assert!(report.rows.iter().all(|row| row.wrong == Some(0)), "{report:?}");
    }
}

#[test]
fn choices_that_cannot_be_made_are_refused() {
    for (options, cause) in [
        (&["--explain"][..], "one algorithm for each operation"),
        (&["--tune"], "one algorithm for each operation"),
        (&["--algorithm", "ring"], "one algorithm for each operation"),
        (&["--order", "fast"], "one algorithm for each operation"),
        (&["--transport", "tcp", "--algorithm", "ring"], "in another order"),
        (&["--transport", "tcp", "--algorithm", "bruck"], "no bruck algorithm for all_reduce"),
        (&["--transport", "tcp", "--tune", "--ranks", "17"], "more than 16 ranks"),
    ] {
        let arguments = [&["perf", "all_reduce"], options].concat();
        assert_one_sentence(&orinoco(&arguments).output().expect("orinoco starts"), 2, "E0106", &[cause]);
    }
}

/// A file with a key for ranks on several machines, as `orinoco explain E1003` says.
fn group_key(folder: &Path) -> String {
    let path = folder.join("group.key");
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).expect("a new file");
    writeln!(file, "orinoco-group-key {}", "5a".repeat(32)).expect("a short file");
    path.to_str().expect("a path that is text").to_owned()
}

/// Report of two ranks that are started one by one.
fn ranks_that_meet(place: &[&str], sizes: &[&str]) -> PerfReport {
    let rank = |rank: &'static str| {
        let arguments = [&["perf", "all_reduce", "--json", "--rank", rank], place, sizes].concat();
        orinoco(&arguments).stdout(Stdio::piped()).spawn().expect("orinoco starts")
    };
    let [first, second] = ["0", "1"].map(rank).map(|rank| rank.wait_with_output().expect("it ends"));
    assert!(first.status.success() && second.status.success());
    assert!(second.stdout.is_empty(), "rank 0 prints the report");
    serde_json::from_slice(&first.stdout).expect("a report")
}

#[test]
fn ranks_that_are_started_one_by_one_meet_at_an_address() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = group_key(folder.path());
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("an address");
    let address = listener.local_addr().expect("an address").to_string();
    drop(listener);
    let sizes = ["-b", "1K", "-e", "4K", "-f", "4", "-n", "10", "-c"];
    for transport in ["tcp", "tcp-plaintext"] {
        let place = ["--address", &address, "--key", &key, "--transport", transport];
        let report = ranks_that_meet(&place, &sizes);
        assert_eq!((report.transport.as_str(), report.ranks, report.rows.len()), (transport, 2, 2));
        assert!(report.rows.iter().all(|row| row.wrong == Some(0)));
    }
}

#[test]
fn key_files_that_cannot_be_used_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (key, absent) = (group_key(folder.path()), folder.path().join("absent"));
    std::fs::set_permissions(&key, Permissions::from_mode(0o640)).expect("own file");
    for (key, cause) in [(key.as_str(), "chmod 600"), (absent.to_str().expect("text"), "No such file")] {
        let arguments =
            ["perf", "all_reduce", "--address", "127.0.0.1:4711", "--rank", "0", "--key", key, "--json"];
        let output = orinoco(&arguments).output().expect("orinoco starts");
        let errors: ErrorReport = serde_json::from_slice(&output.stdout).expect("an error report");
        let fault = &errors.faults[0];
        assert_eq!((output.status.code(), fault.code.as_str()), (Some(2), "E1003"));
        assert!(fault.cause.contains(cause), "{}", fault.cause);
    }
}

#[test]
fn the_table_has_the_columns_of_nccl_tests() {
    let output =
        orinoco(&["perf", "all_reduce", "-b", "1K", "-e", "4K", "-f", "4", "-n", "10", "-o", "max"]).output();
    let output = output.expect("orinoco starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("all_reduce over shm, 2 ranks on "), "{text}");
    let headings: Vec<&str> =
        lines[1].split("  ").map(str::trim).filter(|heading| !heading.is_empty()).collect();
    let expected = "TYPE,REDOP,SIZE (B),COUNT,P50 (us),P99 (us),ALGBW (GB/s),BUSBW (GB/s),% OF LIMIT,#WRONG";
    assert_eq!(headings.join(","), expected);
    let row = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let (first, second) = (row(lines[2]), row(lines[3]));
    assert_eq!((&first[..4], &second[..4]), (&row("f32 max 1024 256")[..], &row("f32 max 4096 1024")[..]));
    assert_eq!(first.last().map(String::as_str), Some("N/A"));
}

/// Returns the process of rank 2 as soon as all ranks have joined: the file of the group, which it has mapped, has lost its name.
fn second_child_in_the_group(perf: &mut Child) -> String {
    let children = format!("/proc/{0}/task/{0}/children", perf.id());
    loop {
        assert!(perf.try_wait().expect("a child of ours").is_none(), "it runs for a while");
        let children = std::fs::read_to_string(&children).unwrap_or_default();
        let Some(second) = children.split_whitespace().nth(1) else { continue };
        let maps = std::fs::read_to_string(format!("/proc/{second}/maps")).unwrap_or_default();
        if maps.contains(&format!("/dev/shm/orinoco-perf-{} (deleted)", perf.id())) {
            return second.to_owned();
        }
    }
}

#[test]
fn a_rank_that_is_killed_is_named() {
    let arguments = ["perf", "all_reduce", "-b", "8", "-e", "8", "-n", "1000000", "--ranks", "3", "--json"];
    let mut perf =
        orinoco(&arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("orinoco starts");
    let victim = second_child_in_the_group(&mut perf);
    assert!(Command::new("kill").args(["-KILL", &victim]).status().expect("kill runs").success());
    let output = perf.wait_with_output().expect("it ends");
    let errors: ErrorReport = serde_json::from_slice(&output.stdout).expect("an error report");
    assert_eq!(output.status.code(), Some(3));
    let fault = &errors.faults[0];
    assert_eq!((fault.code.as_str(), fault.subject.as_str()), ("E1002", "rank 0"));
    assert!(fault.cause.contains("rank 2 has ended"), "{}", fault.cause);
}

#[test]
fn sizes_that_make_no_sense_are_refused() {
    for size in ["", "8X", "-1", "99999999999G"] {
        let output =
            orinoco(&["perf", "all_reduce", &format!("--begin={size}")]).output().expect("orinoco starts");
        assert_eq!(output.status.code(), Some(2), "{size}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("write a number of bytes, such as 8, 64K or 1M"), "{said}");
    }
}
