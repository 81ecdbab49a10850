//! Groups through PCI on two emulated boards that share a device's memory: results, and a board that dies.

use std::io::BufRead;
use std::time::{Duration, Instant};

use orinoco_rig::{Boards, Fault, Flavour, Link, Options, Rig, Session, Unavailable};
use orinoco_tests::cross_binary;

use super::{RUN_MAX, put, put_text, run};

/// Memory that the boards share, in MiB.
const SHARED_MIB: u32 = 16;
/// Time without a sign of life after which a rank counts as dead (`MessageSettings::silence`).
const SILENCE: Duration = Duration::from_millis(500);
/// Time that ssh and a busy machine add until the error is read here.
const READ_MAX: Duration = Duration::from_secs(3);

/// Boots two boards that share memory, with the example `conformance` and a key.
fn two_boards() -> Option<Boards> {
    let program = cross_binary("examples/conformance")?;
    let options =
        Options { link: Link::None, shared_bar_mib: Some(SHARED_MIB), hurried: true, ..Options::default() };
    let boards = match Rig::build(Flavour::Dropbear).and_then(|rig| rig.up(2, &options)) {
        Err(error) if error.is::<Unavailable>() => {
            println!("skipped: {error:#}");
            return None;
        }
        boards => boards.unwrap_or_else(|error| panic!("{error:#}")),
    };
    let key = format!("orinoco-group-key {}\n", "0123456789abcdef".repeat(4));
    for board in boards.iter() {
        put(board, &program, "/tmp/conformance");
        put_text(board, &key, "/tmp/group.key");
        run(board, "chmod 755 /tmp/conformance; chmod 600 /tmp/group.key");
    }
    Some(boards)
}

/// Starts the example on both boards. `kind` follows the name of the file that a process maps: `_wc` combines writes.
fn start(boards: &Boards, mode: &str, kind: &str) -> [Session; 2] {
    [0, 1].map(|rank| {
        let window = boards[rank].bar().expect("shared memory").file;
        let command = format!("/tmp/conformance {mode} pcie {window}{kind} {rank} 2 /tmp/group.key 2>&1");
        boards[rank].spawn(&command).expect("ssh starts")
    })
}

fn next_line(session: &mut Session) -> String {
    let mut line = String::new();
    session.stdout.read_line(&mut line).expect("text");
    line.trim().to_owned()
}

#[test]
#[ignore = "boots emulated boards; `make test-boards` runs it"]
fn results_through_pci_are_exact() {
    let Some(boards) = two_boards() else { return };
    // The second group finds what the first has left in the memory.
    for kind in ["", "_wc"] {
        for (rank, mut session) in start(&boards, "check", kind).into_iter().enumerate() {
            let line = next_line(&mut session);
            println!("{line}");
            let is_exact =
                line.starts_with(&format!("rank {rank} of 2: ")) && line.ends_with(" results are exact");
            assert!(is_exact, "{line}");
            assert!(session.wait(RUN_MAX).expect("it ends").success());
        }
    }
}

#[test]
#[ignore = "boots emulated boards; `make test-boards` runs it"]
fn a_board_that_dies_is_an_error_through_pci_that_names_its_rank() {
    let Some(boards) = two_boards() else { return };
    boards.alone().expect("the others end");
    let mut sessions = start(&boards, "hold", "");
    for (rank, session) in sessions.iter_mut().enumerate() {
        assert_eq!(next_line(session), format!("rank {rank} holds"));
    }
    boards[1].fault(&Fault::Kill).expect("the board is killed");
    let start = Instant::now();
    let error = next_line(&mut sessions[0]);
    println!("{} ms later: {error}", start.elapsed().as_millis());
    let (_, silent) =
        error.split_once("rank 1 gave no sign of life for ").unwrap_or_else(|| panic!("{error}"));
    let silent = silent.trim_end_matches(" ms").parse().map(Duration::from_millis);
    assert!(silent.is_ok_and(|silent| silent <= SILENCE), "{error}");
    assert!(start.elapsed() <= SILENCE + READ_MAX, "{:?}", start.elapsed());
}
