//! Resident memory of this process, from the kernel.

use std::fs;

/// Resident now, in bytes; 0 where `/proc` is not to be had.
pub fn resident_bytes() -> u64 {
    status_field("VmRSS:")
}

/// The highest it ever was, in bytes; 0 where `/proc` is not to be had.
pub fn peak_bytes() -> u64 {
    status_field("VmHWM:")
}

/// Makes [`peak_bytes`] the highest from now on. Where the kernel does not offer that (a build without
/// `CONFIG_PROC_PAGE_MONITOR`), it stays the highest since the start, which is no less.
pub(crate) fn reset_peak() {
    /// Resets the peak of resident memory (proc_pid_clear_refs(5)).
    const PEAK: &str = "5";
    let _ = fs::write("/proc/self/clear_refs", PEAK);
}

fn status_field(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib: u64 = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0);
    kib * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_seen_after_it_is_over() {
        const BYTES: usize = 64 << 20;
        reset_peak();
        let before = resident_bytes();
        drop(std::hint::black_box(vec![1_u8; BYTES]));
        let grown = peak_bytes().saturating_sub(before);
        assert!(grown >= (BYTES / 2) as u64, "{grown} of {BYTES}");
    }
}
