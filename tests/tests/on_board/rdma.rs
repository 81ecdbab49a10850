//! Groups over RDMA on two emulated boards with Soft-RoCE: results, steady state, a pulled cable, and rates compared with
//! `ib_write_bw`. Rates of emulated boards say nothing about others: only their ratio counts.

use std::time::Instant;

use orinoco_rig::{Boards, Fault, Link, Options, Session};

use super::group::{READ_MAX, SILENCE, check_results, check_silent, line_after, next_line, stage_group};
use super::{ATTEMPTS, RUN_MAX, run};

/// Port at which rank 0 listens.
const PORT: u16 = 4711;
/// Turns of the comparison with `ib_write_bw`.
const TURNS: usize = 5;
/// Bytes and number of the messages of one turn.
const MESSAGE: u64 = 1 << 20;
const MESSAGES: u64 = 32;
/// Bytes of the header of a message.
const HEADER_BYTES: u64 = 48;
/// Least share of the rate of `ib_write_bw`.
const SHARE_MIN: f64 = 0.8;

/// Boots two boards with an MTU that allows RDMA's largest packets, and Soft-RoCE.
fn two_boards() -> Option<Boards> {
    let options = Options { link: Link::Bridge, mtu: 4200, hurried: true, ..Options::default() };
    let boards = stage_group(&options, &["examples/conformance", "examples/rdma"])?;
    for board in boards.iter() {
        assert_eq!(board.soft_roce().expect("an RDMA device"), "rxe0");
    }
    Some(boards)
}

/// Starts a program on both boards. The arguments of a rank follow its address.
fn start(boards: &Boards, arguments: impl Fn(&str, usize) -> String) -> [Session; 2] {
    let address = format!("{}:{PORT}", boards[0].address());
    [0, 1].map(|rank| {
        let command = format!("{} 2>&1", arguments(&address, rank));
        boards[rank].spawn(&command).expect("ssh starts")
    })
}

/// Starts a mode of the example `conformance` on both boards.
fn conformance(boards: &Boards, mode: &str) -> [Session; 2] {
    start(boards, |address, rank| format!("/tmp/conformance {mode} rdma {address} {rank} 2 /tmp/group.key"))
}

/// Runs a mode of the example `rdma` on both boards. Returns the line that begins with a word, of each.
fn both(boards: &Boards, mode: &str, word: &str) -> [String; 2] {
    let sessions = start(boards, |address, rank| format!("/tmp/rdma {address} /tmp/group.key {rank} {mode}"));
    sessions.map(|mut session| {
        let found = line_after(&mut session, word);
        assert!(session.wait(RUN_MAX).expect("it ends").success(), "{mode}: {found}");
        found
    })
}

#[test]
#[ignore = "boots emulated boards; `make test-boards` runs it"]
fn results_over_rdma_are_exact_and_a_steady_state_registers_nothing() {
    let Some(boards) = two_boards() else { return };
    check_results(conformance(&boards, "check"));
    for line in both(&boards, "count", "counted:") {
        let counted = Counts::read(&line);
        assert_eq!(counted.of("registrations"), 0, "{line}");
        assert!(counted.of("writes") >= 1_000, "{line}");
        assert!(counted.of("completions") <= counted.of("requests") / 16 + 1, "{line}");
    }
    for line in both(&boards, "long", "long:") {
        let counted = Counts::read(&line);
        assert_eq!(counted.of("registrations"), 0, "{line}");
        assert!(counted.of("completions") <= counted.of("requests") / 16 + 1, "{line}");
        // Headers are copied, and nothing else.
        assert!(counted.of("direct") > 0, "{line}");
        assert!(counted.of("copied_bytes") <= counted.of("writes") * HEADER_BYTES, "{line}");
    }
}

/// A line of counters, each a name and a number.
struct Counts<'a>(Vec<&'a str>);

impl<'a> Counts<'a> {
    fn read(line: &'a str) -> Self {
        println!("{line}");
        Self(line.split(' ').collect())
    }

    fn of(&self, name: &str) -> u64 {
        let at = self.0.iter().position(|word| *word == name).expect("a counter");
        self.0[at + 1].parse().expect("a number")
    }
}

#[test]
#[ignore = "boots emulated boards; `make test-boards` runs it"]
fn a_pulled_cable_is_an_error_over_rdma_that_names_the_rank() {
    let Some(boards) = two_boards() else { return };
    let mut sessions = conformance(&boards, "hold");
    for (rank, session) in sessions.iter_mut().enumerate() {
        assert_eq!(next_line(session), format!("rank {rank} holds"));
    }
    boards[1].fault(&Fault::LinkDown).expect("the cable is pulled");
    let start = Instant::now();
    for (rank, session) in sessions.iter_mut().enumerate() {
        let error = next_line(session);
        println!("rank {rank}, {} ms later: {error}", start.elapsed().as_millis());
        check_silent(&error, 1 - rank);
    }
    assert!(start.elapsed() <= SILENCE + READ_MAX, "{:?}", start.elapsed());
}

/// Rate of `ib_write_bw` from the second board to the first, in MiB/s. It prints 0 if it cannot make sense of the clock of an
/// emulated processor, and is asked again.
fn write_bandwidth(boards: &Boards) -> f64 {
    let rate = (0..ATTEMPTS).map(|_| printed_bandwidth(boards)).find(|rate| *rate > 0.0);
    rate.expect("a rate in one of several attempts")
}

fn printed_bandwidth(boards: &Boards) -> f64 {
    // With its own timeout of 67 ms, Soft-RoCE sends the whole window again several times per second.
    let test = format!("ib_write_bw -d rxe0 -x 1 -u 18 -F -s {MESSAGE} -n {MESSAGES}");
    let server = boards[0].spawn(&format!("{test} >/tmp/server.log 2>&1")).expect("ssh starts");
    run(&boards[0], "until ss -Hltn sport = 18515 | grep -q .; do usleep 50000; done");
    let printed = run(&boards[1], &format!("{test} board1"));
    server.wait(RUN_MAX).expect("the server ends");
    let row = printed.lines().map(str::trim).find(|line| line.starts_with(&MESSAGE.to_string()));
    let rate = row.and_then(|row| row.split_whitespace().nth(3)?.parse().ok());
    rate.unwrap_or_else(|| panic!("ib_write_bw printed {printed}"))
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

#[test]
#[ignore = "boots emulated boards; `make test-boards` runs it"]
fn messages_of_a_mebibyte_reach_most_of_the_rate_of_ib_write_bw() {
    let Some(boards) = two_boards() else { return };
    boards.alone().expect("no other boards");
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for turn in 1..=TURNS {
        theirs.push(write_bandwidth(&boards));
        let stream = both(&boards, "stream 1", "stream:");
        let rate = stream[1].trim_end_matches(" MiB/s").parse().expect("a rate");
        ours.push(rate);
        println!("turn {turn}: ib_write_bw {:.2}, messages {rate:.2} MiB/s", theirs[turn - 1]);
    }
    let share = median(ours) / median(theirs);
    println!("share {share:.2}");
    assert!(share >= SHARE_MIN, "share {share:.2}");
}
