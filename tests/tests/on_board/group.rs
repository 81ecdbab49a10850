//! Groups of two emulated boards: what the tests of their transports share.

use std::io::{BufRead, Read};
use std::time::Duration;

use orinoco_rig::{Boards, Flavour, Options, Session};

use super::{RUN_MAX, put_text, run, stage_all};

/// Time without a sign of life after which a rank counts as dead (`MessageSettings::silence`).
pub(super) const SILENCE: Duration = Duration::from_millis(500);
/// Time that ssh and a busy machine add until an error is read here.
pub(super) const READ_MAX: Duration = Duration::from_secs(3);

/// Boots two boards with examples of `orinoco-collective` and a group key in `/tmp`.
pub(super) fn stage_group(options: &Options, examples: &[&str]) -> Option<Boards> {
    let boards = stage_all(Flavour::Dropbear, options, 2, examples)?;
    let key = format!("orinoco-group-key {}\n", "0123456789abcdef".repeat(4));
    for board in boards.iter() {
        put_text(board, &key, "/tmp/group.key");
        run(board, "chmod 600 /tmp/group.key");
    }
    Some(boards)
}

/// Reads lines until one begins with a word. Returns the rest of it.
pub(super) fn line_after(session: &mut Session, word: &str) -> String {
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

/// Reads the next line of a program.
pub(super) fn next_line(session: &mut Session) -> String {
    let mut line = String::new();
    session.stdout.read_line(&mut line).expect("text");
    line.trim().to_owned()
}

/// Checks that both ranks of the example `conformance` find all results exact.
pub(super) fn check_results(sessions: [Session; 2]) {
    for (rank, mut session) in sessions.into_iter().enumerate() {
        let line = next_line(&mut session);
        println!("{line}");
        let is_exact =
            line.starts_with(&format!("rank {rank} of 2: ")) && line.ends_with(" results are exact");
        assert!(is_exact, "{line}");
        assert!(session.wait(RUN_MAX).expect("it ends").success());
    }
}

/// Checks that an error names a rank that fell silent, and no later than after [`SILENCE`].
pub(super) fn check_silent(error: &str, rank: usize) {
    let (_, silent) = error
        .split_once(&format!("rank {rank} gave no sign of life for "))
        .unwrap_or_else(|| panic!("{error}"));
    let silent = silent.split(' ').next().and_then(|millis| millis.parse().ok()).map(Duration::from_millis);
    assert!(silent.is_some_and(|silent| silent <= SILENCE), "{error}");
}
