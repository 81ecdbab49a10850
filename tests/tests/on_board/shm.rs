//! Two ranks on the two cores of an emulated board, which rest until the other writes (`wfe`).

use orinoco_rig::{Flavour, Options};

use super::group::check_results;
use super::{run, stage_all};

#[test]
#[ignore = "boots an emulated board; `make test-boards` runs it"]
fn results_through_shared_memory_are_exact() {
    let options = Options { cpus: 2, hurried: true, ..Options::default() };
    let Some(boards) = stage_all(Flavour::Dropbear, &options, 1, &["examples/conformance"]) else { return };
    let features = run(&boards[0], "grep -m 1 Features /proc/cpuinfo");
    assert!(features.split_whitespace().any(|feature| feature == "evtstrm"), "ranks do not rest: {features}");
    let start = |rank| boards[0].spawn(&format!("/tmp/conformance check shm /dev/shm/group {rank} 2 2>&1"));
    check_results([0, 1].map(|rank| start(rank).expect("ssh starts")));
}
