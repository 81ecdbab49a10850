//! Sleep for shuttle, which has none of the kernel's.

use std::time::Duration;

use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::sync::{Condvar, Mutex};

pub(in crate::shm) use shuttle::hint::spin_loop as hint;
pub(in crate::shm) use shuttle::sync::atomic::{AtomicU32, AtomicU64};
pub(in crate::shm) use shuttle::thread::yield_now;

shuttle::lazy_static! {
    static ref SLEEPERS: Sleepers = Sleepers::default();
}

/// Those who sleep in one execution.
#[derive(Default)]
struct Sleepers {
    /// Addresses of the flags at which somebody sleeps.
    flags: Mutex<Vec<usize>>,
    woken: Condvar,
    time_out: AtomicBool,
}

/// Lets every sleep end by itself from now on. Otherwise none does, so that a rank that nobody wakes is found.
pub(in crate::shm) fn let_sleep_time_out() {
    SLEEPERS.time_out.store(true, Ordering::SeqCst);
}

pub(in crate::shm) fn sleep(flag: &AtomicU32, seen: u32, _: Duration) {
    let mut flags = SLEEPERS.flags.lock().expect("nobody panics");
    if flag.load(Ordering::SeqCst) != seen {
        return;
    }
    if SLEEPERS.time_out.load(Ordering::SeqCst) {
        drop(flags);
        return yield_now();
    }
    let address = std::ptr::from_ref(flag).addr();
    flags.push(address);
    while flags.contains(&address) {
        flags = SLEEPERS.woken.wait(flags).expect("nobody panics");
    }
}

pub(in crate::shm) fn wake(flag: &AtomicU32) {
    let address = std::ptr::from_ref(flag).addr();
    SLEEPERS.flags.lock().expect("nobody panics").retain(|sleeper| *sleeper != address);
    SLEEPERS.woken.notify_all();
}

/// Another rank may go on here.
pub(in crate::shm) fn step() {
    // Shuttle changes threads at atomics.
    SLEEPERS.time_out.load(Ordering::SeqCst);
}
