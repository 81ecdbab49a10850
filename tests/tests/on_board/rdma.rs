//! Groups over RDMA on two emulated boards with Soft-RoCE: results, steady state, a pulled cable, and rates compared with
//! `ib_write_bw`. Rates of emulated boards say nothing about others: only their ratio counts.

use std::io::{BufRead, Read};
use std::time::{Duration, Instant};

use orinoco_rig::{Boards, Fault, Flavour, Link, Options, Rig, Session, Unavailable};
use orinoco_tests::cross_binary;

use super::{ATTEMPTS, RUN_MAX, put, put_text, run};

/// Port at which rank 0 listens.
const PORT: u16 = 4711;
/// Turns of the comparison with `ib_write_bw`.
const TURNS: usize = 5;
/// Bytes and number of the messages of one turn.
const MESSAGE: u64 = 1 << 20;
const MESSAGES: u64 = 32;
/// Least share of the rate of `ib_write_bw`.
const SHARE_MIN: f64 = 0.8;
/// Time without a life sign after which a rank counts as dead (`MessageSettings::silence`).
const SILENCE: Duration = Duration::from_millis(500);
/// Time from the pulled cable until the error is printed and read here: what ssh and a busy machine add.
const READ_MAX: Duration = Duration::from_secs(3);

/// Boots two boards with an MTU that allows RDMA's largest packets, Soft-RoCE, and the example `rdma`.
fn two_boards() -> Option<Boards> {
    let program = cross_binary("examples/rdma")?;
    let options = Options { link: Link::Bridge, mtu: 4200, hurried: true, ..Options::default() };
    let boards = match Rig::build(Flavour::Dropbear).and_then(|rig| rig.up(2, &options)) {
        Err(error) if error.is::<Unavailable>() => {
            println!("skipped: {error:#}");
            return None;
        }
        boards => boards.unwrap_or_else(|error| panic!("{error:#}")),
    };
    let key = format!("orinoco-group-key {}\n", "0123456789abcdef".repeat(4));
    for board in boards.iter() {
        put(board, &program, "/tmp/rdma");
        put_text(board, &key, "/tmp/group.key");
        run(board, "chmod 755 /tmp/rdma; chmod 600 /tmp/group.key");
        assert_eq!(board.soft_roce().expect("an RDMA device"), "rxe0");
    }
    Some(boards)
}

fn command(boards: &Boards, rank: usize, mode: &str) -> String {
    format!("/tmp/rdma {}:{PORT} /tmp/group.key {rank} {mode} 2>&1", boards[0].address())
}

/// Starts a mode of the example on both boards.
fn start(boards: &Boards, mode: &str) -> [Session; 2] {
    [0, 1].map(|rank| boards[rank].spawn(&command(boards, rank, mode)).expect("ssh starts"))
}

/// Reads lines until one begins with a word, and returns the rest of it.
fn line(session: &mut Session, word: &str) -> String {
    let mut read = String::new();
    for line in session.stdout.by_ref().lines() {
        let line = line.expect("text");
        if let Some(rest) = line.strip_prefix(word) {
            return rest.trim().to_owned();
        }
        read += &format!("{line}\n");
    }
    panic!("no line `{word}` in:\n{read}");
}

/// Runs a mode of the example on both boards. Returns the line that begins with a word, of each.
fn both(boards: &Boards, mode: &str, word: &str) -> [String; 2] {
    start(boards, mode).map(|mut session| {
        let found = line(&mut session, word);
        assert!(session.wait(RUN_MAX).expect("it ends").success(), "{mode}: {found}");
        found
    })
}

#[test]
#[ignore = "boots emulated boards; `make test-boards` runs it"]
fn results_over_rdma_are_exact_and_a_steady_state_registers_nothing() {
    let Some(boards) = two_boards() else { return };
    for checked in both(&boards, "check", "checked:") {
        println!("{checked}");
        assert!(checked.ends_with(" elements, 0 wrong"), "{checked}");
    }
    for counted in both(&boards, "count", "counted:") {
        println!("{counted}");
        let words: Vec<&str> = counted.split(' ').collect();
        let count = |name: &str| -> u64 {
            let at = words.iter().position(|word| *word == name).expect("a counter");
            words[at + 1].parse().expect("a number")
        };
        assert_eq!(count("registrations"), 0);
        assert!(count("writes") >= 1_000, "{counted}");
        assert!(count("completions") <= count("writes") / 16 + 1, "{counted}");
    }
}

#[test]
#[ignore = "boots emulated boards; `make test-boards` runs it"]
fn a_pulled_cable_is_an_error_over_rdma_that_names_the_rank() {
    let Some(boards) = two_boards() else { return };
    let mut sessions = start(&boards, "hold");
    for session in &mut sessions {
        line(session, "holding");
    }
    boards[1].fault(&Fault::LinkDown).expect("the cable is pulled");
    let start = Instant::now();
    for (rank, session) in sessions.iter_mut().enumerate() {
        let failed = line(session, "failed:");
        println!("rank {rank}, {} ms later: {failed}", start.elapsed().as_millis());
        assert!(failed.contains(&format!("rank {} gave no sign of life for ", 1 - rank)), "{failed}");
        let silent = failed.split("for ").last().and_then(|rest| rest.split(' ').next()?.parse().ok());
        assert!(silent.is_some_and(|silent| Duration::from_millis(silent) <= SILENCE), "{failed}");
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
