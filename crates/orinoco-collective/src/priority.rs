//! Priority of the threads that give signs of life.

use rustix::process::setpriority_process;
use rustix::thread::gettid;
use thread_priority::{
    Error, RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// Nice value: above those of programs that somebody waits for, below those of the system's own threads.
const NICE: i32 = -10;

/// Lets this thread run before others, if the process may: it works for microseconds, and the others take the rank for dead if it has
/// no core for long. It must block again and again, also while a peer floods it: ordinary threads cannot take the core from it.
pub(crate) fn raise() {
    // A nice value counts only within the thread's control group or session, where the kernel shares the processor among those.
    if set_real_time().is_err() {
        // Without the right (CAP_SYS_NICE, or limits on priorities) it takes its turn like others.
        let _ = setpriority_process(Some(gettid()), NICE);
    }
}

/// Gives this thread the lowest real-time priority, with which it runs before all threads that have none. Those of the same priority
/// take turns.
fn set_real_time() -> Result<(), Error> {
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::RoundRobin);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::process::getpriority_process;
    use thread_priority::{ScheduleParams, thread_schedule_policy_param};

    use super::*;

    /// Policy, real-time priority and nice value of this thread.
    fn own() -> (ThreadSchedulePolicy, i32, i32) {
        let (policy, ScheduleParams { sched_priority }) =
            thread_schedule_policy_param(thread_native_id()).expect("this thread");
        (policy, sched_priority, getpriority_process(Some(gettid())).expect("this thread"))
    }

    #[test]
    fn it_is_raised_for_this_thread_alone_where_the_process_may() {
        let before = own();
        let may_be_real_time = thread::spawn(|| set_real_time().is_ok()).join().unwrap();
        let may_be_nice = thread::spawn(|| setpriority_process(Some(gettid()), NICE).is_ok()).join().unwrap();
        let raised = thread::spawn(|| {
            raise();
            own()
        });
        let round_robin = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::RoundRobin);
        let expected = match (may_be_real_time, may_be_nice) {
            (true, _) => (round_robin, 1, before.2),
            (false, true) => (before.0, before.1, NICE),
            (false, false) => before,
        };
        assert_eq!(raised.join().unwrap(), expected);
        assert_eq!(own(), before);
    }
}
