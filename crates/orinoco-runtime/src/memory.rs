//! Resident memory of this process, from the kernel.

use std::fs;

use orinoco_sysroot::Sysroot;

/// Returns the resident memory in bytes; 0 if `/proc` cannot be read.
pub fn resident_bytes() -> u64 {
    status_field("VmRSS:")
}

/// Returns the peak of resident memory since the start or the last reset, in bytes; 0 if `/proc` cannot be read.
pub fn peak_bytes() -> u64 {
    status_field("VmHWM:")
}

/// Resets the peak that [`peak_bytes`] returns. If the kernel does not support it (a build without
/// `CONFIG_PROC_PAGE_MONITOR`), the peak since the start remains, which is not lower.
pub(crate) fn reset_peak() {
    /// Value that resets the peak of resident memory (proc_pid_clear_refs(5)).
    const PEAK: &str = "5";
    let _ = fs::write("/proc/self/clear_refs", PEAK);
}

fn status_field(name: &str) -> u64 {
    let status = Sysroot::host().text("/proc/self/status").unwrap_or_default();
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
