//! Atomics and sleep, on which the shared memory stands.
//!
//! They are the standard library's and the kernel's. In a build with `--cfg shuttle` (`cargo xtask shuttle`) they are shuttle's,
//! which runs the ranks of a test one at a time in an order that a seed decides.

#[cfg(shuttle)]
mod model;

#[cfg(all(test, shuttle))]
pub(super) use self::model::let_sleep_time_out;
#[cfg(shuttle)]
pub(super) use self::model::{AtomicU32, AtomicU64, hint, sleep, step, wake, yield_now};
pub(super) use std::sync::atomic::Ordering;

#[cfg(not(shuttle))]
pub(super) use self::real::{hint, sleep, step, wake, yield_now};
#[cfg(not(shuttle))]
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64};

#[cfg(not(shuttle))]
mod real {
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    use rustix::thread::futex;

    pub(in crate::shm) use std::hint::spin_loop as hint;
    pub(in crate::shm) use std::thread::yield_now;

    /// Sleeps until the flag is no longer `seen` and somebody wakes those who sleep at it, or for a time.
    pub(in crate::shm) fn sleep(flag: &AtomicU32, seen: u32, time: Duration) {
        let time = rustix::time::Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        // It returns at once where the flag has changed, and is called again where it returns for nothing.
        let _ = futex::wait(flag, futex::Flags::empty(), seen, Some(&time));
    }

    /// Wakes all who sleep at a flag.
    #[cold]
    pub(in crate::shm) fn wake(flag: &AtomicU32) {
        // Without an answer a sleeper wakes by itself.
        let _ = futex::wake(flag, futex::Flags::empty(), u32::MAX >> 1);
    }

    /// A payload is read or written now, which another order of the ranks could do at another time.
    #[inline(always)]
    pub(in crate::shm) fn step() {}
}
