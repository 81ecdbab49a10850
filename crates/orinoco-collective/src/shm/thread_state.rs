//! State of a thread, also of another process, as the kernel gives it.

use std::fs;

pub(super) struct ThreadState {
    /// It could run, if it had a core or its memory were there.
    pub(super) wants_core: bool,
    /// Time of its start, by which it is told from a later one with the same number.
    pub(super) start: u64,
}

impl ThreadState {
    /// Reads the state of a thread. `None` if there is none, or if it is in another container.
    pub(super) fn read(process: u32, thread: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{process}/task/{thread}/stat")).ok()?)
    }

    /// Reads a line of proc_pid_stat(5): fields 3 and 22.
    fn parse(stat: &str) -> Option<Self> {
        // The second field is a name in parentheses, in which may be anything.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let wants_core = matches!(fields.next()?, "R" | "D");
        Some(Self { wants_core, start: fields.nth(18)?.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_runs_wants_a_core_and_none_is_not_found() {
        let (process, thread) = (std::process::id(), rustix::thread::gettid().as_raw_nonzero().get() as u32);
        let state = ThreadState::read(process, thread).unwrap();
        assert!(state.wants_core && state.start > 0);
        assert!(ThreadState::read(process, 0).is_none() && ThreadState::read(0, thread).is_none());
    }

    #[test]
    fn any_name_is_passed_over() {
        let rest = "1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 3 0 777 0 0";
        for (state, wants_core) in [("R", true), ("D", true), ("S", false), ("T", false), ("Z", false)] {
            let state = ThreadState::parse(&format!("12 (a ) R 5) {state} {rest}")).unwrap();
            assert_eq!((state.wants_core, state.start), (wants_core, 777));
        }
        assert!(ThreadState::parse("12 (a) R 1").is_none() && ThreadState::parse("").is_none());
    }
}
