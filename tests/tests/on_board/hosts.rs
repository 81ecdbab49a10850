//! `orinoco perf --hosts`: ranks on two emulated boards that one command starts over SSH.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use orinoco_api::PerfReport;
use orinoco_rig::{Boards, Flavour, Link, Options};
use orinoco_tests::orinoco;

use super::stage_all;

/// Writes a script that logs in to the boards `a` and `b` as the rig does, whose ports and keys no configuration of ssh knows.
fn ssh_script(boards: &Boards, dir: &std::path::Path) -> String {
    let quoted = |word: &std::ffi::OsStr| format!("'{}'", word.to_str().expect("text"));
    let branch = |(name, board): (&str, &orinoco_rig::Board)| {
        let ssh = board.ssh_command();
        let words: Vec<String> =
            std::iter::once(ssh.get_program()).chain(ssh.get_args()).map(quoted).collect();
        format!("{name}) exec {} \"$@\" ;;\n", words.join(" "))
    };
    let branches: String = ["a", "b"].into_iter().zip(boards.iter()).map(branch).collect();
    let path = dir.join("ssh");
    let script = format!(
        "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nhost=$2; shift 2\ncase $host in\n{branches}esac\n"
    );
    fs::write(&path, script).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("a script");
    path.to_str().expect("a path that is text").to_owned()
}

#[test]
#[ignore = "boots emulated boards; `make test-boards` runs it"]
fn one_command_starts_ranks_on_two_boards() {
    let options = Options { link: Link::Bridge, hurried: true, ..Options::default() };
    let Some(boards) = stage_all(Flavour::Dropbear, &options, 2, &["orinoco"]) else { return };
    let dir = tempfile::tempdir().expect("temporary folder");
    let (ssh, address) = (ssh_script(&boards, dir.path()), format!("{}:4712", boards[0].address()));
    let group = ["--hosts", "a,b", "--ssh", &ssh, "--program", "/tmp/orinoco", "--address", &address];
    let sizes = ["-b", "8", "-e", "64K", "-f", "64", "-n", "5", "-c", "--json"];
    let output = orinoco(&[&["perf", "all_reduce"], &group[..], &sizes[..]].concat()).output();
    let output = output.expect("orinoco starts");
    assert!(output.status.success(), "{output:?}");
    let report: PerfReport = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!((report.ranks, report.transport.as_str(), report.rows.len()), (2, "tcp", 3));
    assert!(report.rows.iter().all(|row| row.wrong == Some(0) && row.p50_us > 0.0), "{report:?}");
}
