//! Groups through PCI on two emulated boards that share a device's memory: results, and a board that dies.

use std::time::Instant;

use orinoco_rig::{Boards, Fault, Link, Options, Session};

use super::group::{READ_MAX, SILENCE, check_results, check_silent, next_line, stage_group};

/// Memory that the boards share, in MiB.
const SHARED_MIB: u32 = 16;

/// Boots two boards that share memory.
fn two_boards() -> Option<Boards> {
    let options =
        Options { link: Link::None, shared_bar_mib: Some(SHARED_MIB), hurried: true, ..Options::default() };
    stage_group(&options, &["examples/conformance"])
}

/// Starts the example on both boards. `kind` follows the name of the file that a process maps: `_wc` combines writes.
fn start(boards: &Boards, mode: &str, kind: &str) -> [Session; 2] {
    [0, 1].map(|rank| {
        let window = boards[rank].bar().expect("shared memory").file;
        let command = format!("/tmp/conformance {mode} pcie {window}{kind} {rank} 2 /tmp/group.key 2>&1");
        boards[rank].spawn(&command).expect("ssh starts")
    })
}

#[test]
#[ignore = "boots emulated boards; `make test-boards` runs it"]
fn results_through_pci_are_exact() {
    let Some(boards) = two_boards() else { return };
    // The second group finds what the first has left in the memory.
    for kind in ["", "_wc"] {
        check_results(start(&boards, "check", kind));
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
    check_silent(&error, 1);
    assert!(start.elapsed() <= SILENCE + READ_MAX, "{:?}", start.elapsed());
}
