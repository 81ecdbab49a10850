//! Priority of the threads that give signs of life.

use rustix::process::setpriority_process;
use rustix::thread::gettid;

/// Nice value: above those of programs that somebody waits for, below those of the system's own threads.
const NICE: i32 = -10;

/// Lets this thread run before others, if the process may: it works for microseconds, and the others take the rank for dead if it has
/// no core for long.
pub(crate) fn raise() {
    // Without the right (CAP_SYS_NICE, or a limit on nice values) it takes its turn like others.
    let _ = setpriority_process(Some(gettid()), NICE);
}

#[cfg(test)]
mod tests {
    use rustix::process::getpriority_process;

    use super::*;

    #[test]
    fn it_is_raised_for_this_thread_alone_where_the_process_may() {
        let nice = || getpriority_process(Some(gettid())).unwrap();
        let before = nice();
        let may = std::thread::spawn(|| setpriority_process(Some(gettid()), NICE).is_ok()).join().unwrap();
        let raised = std::thread::spawn(move || {
            raise();
            nice()
        });
        assert_eq!(raised.join().unwrap(), if may { NICE } else { before });
        assert_eq!(nice(), before);
    }
}
