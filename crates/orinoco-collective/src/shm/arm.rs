//! Rest until another core writes, which Arm processors have an instruction for (`wfe`): it takes less power than looking again and
//! again, and ends when the cache line is written.
//!
//! Source: Arm Architecture Reference Manual for A-profile, "Wait for Event": the load-exclusive marks the line in the core's monitor,
//! and a write of another core to it is an event. Linux makes an event of its own about 10,000 times a second where it says so
//! (`HWCAP_EVTSTRM`), so a rest ends without a write, too.
#![cfg_attr(target_arch = "aarch64", expect(unsafe_code, reason = "the instruction has no function"))]

use super::sync::AtomicU32;

/// Whether a rest is sure to end.
pub(super) fn can_rest() -> bool {
    /// `HWCAP_EVTSTRM` in `asm/hwcap.h`.
    const EVENT_STREAM: usize = 1 << 2;
    cfg!(all(target_arch = "aarch64", not(shuttle))) && rustix::param::linux_hwcap().0 & EVENT_STREAM != 0
}

/// Rests until another core writes to the flag's cache line, but no longer than about 100 us, and not at all if the flag is no longer
/// `seen`. It may return for nothing.
#[cfg(all(target_arch = "aarch64", not(shuttle)))]
pub(super) fn rest_until_written(flag: &AtomicU32, seen: u32) {
    // SAFETY: it reads the flag, which is there and aligned, and writes no memory. If the flag is written after the load, the event
    // is noted, and `wfe` does not rest.
    unsafe {
        std::arch::asm!(
            "ldxr {now:w}, [{flag}]",
            "cmp {now:w}, {seen:w}",
            "b.ne 2f",
            "wfe",
            "2:",
            "clrex",
            flag = in(reg) flag.as_ptr(),
            seen = in(reg) seen,
            now = out(reg) _,
            options(nostack, readonly),
        );
    }
}

/// Elsewhere it is a pause between two looks.
#[cfg(not(all(target_arch = "aarch64", not(shuttle))))]
pub(super) fn rest_until_written(_flag: &AtomicU32, _seen: u32) {
    super::sync::hint();
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::super::sync::Ordering;
    use super::*;

    #[test]
    fn a_rest_ends_by_a_write_or_by_itself() {
        let flag = AtomicU32::new(0);
        rest_until_written(&flag, 1);
        if can_rest() || !cfg!(target_arch = "aarch64") {
            (0..100).for_each(|_| rest_until_written(&flag, 0));
        }
        thread::scope(|scope| {
            scope.spawn(|| flag.store(1, Ordering::Release));
            while flag.load(Ordering::Acquire) == 0 {
                if can_rest() {
                    rest_until_written(&flag, 0);
                }
            }
        });
    }
}
