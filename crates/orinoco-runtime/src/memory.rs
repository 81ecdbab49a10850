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

fn status_field(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib: u64 = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0);
    kib * 1024
}
