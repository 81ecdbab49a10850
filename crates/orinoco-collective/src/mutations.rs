//! Input for decoders that no right sender would give: valid input that was changed, and noise. Each input has a seed.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use orinoco_core::Rng;

use crate::clock::Ticks;

/// Inputs of a quick test.
const QUICK: u64 = 1_500;
/// Time of each decoder in the long tests, in minutes.
const MINUTES_LONG: u64 = 10;
/// Growth of the address space that is none, in KiB. Other tests of this program run meanwhile, whose threads need stacks.
const GROWTH_KIB: u64 = 512 << 10;
/// Growth of resident memory over a long run, in which nothing else runs.
const GROWTH_LONG_KIB: u64 = 32 << 10;
/// Inputs before memory is compared: allocators have taken by then what they keep.
const WARM_UP: u64 = 1_000;

/// Numbers at the bounds of what fields hold.
const BOUNDS: [u64; 14] = [
    0,
    1,
    2,
    63,
    64,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 40,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// Runs a decoder on many inputs, which `input` makes of a seed's random numbers. `ORINOCO_FUZZ_MINUTES` runs it for that long, and
/// `ORINOCO_SEED` on that input alone.
///
/// # Panics
/// If the decoder does, with the seed, or if memory grows.
#[expect(clippy::print_stderr, reason = "a test says how it is repeated, and how much it has run")]
pub(crate) fn check(decoder: &str, mut input: impl FnMut(&mut Rng)) {
    let minutes = number("ORINOCO_FUZZ_MINUTES")
        .or(env::var_os("ORINOCO_TEST_LONG").map(|_| MINUTES_LONG))
        .map(|minutes| Duration::from_secs(60 * minutes));
    let first = number("ORINOCO_SEED");
    let (start, mut seed) = (Ticks::now(), first.unwrap_or(0));
    let (mut space, mut resident) = (memory("VmPeak:"), 0);
    loop {
        let run = catch_unwind(AssertUnwindSafe(|| input(&mut Rng::with_seed(seed))));
        if let Err(panic) = run {
            eprintln!("{decoder}: run it again with ORINOCO_SEED={seed}");
            resume_unwind(panic);
        }
        seed += 1;
        if seed == WARM_UP {
            (space, resident) = (memory("VmPeak:"), memory("RssAnon:"));
        }
        let is_over = match minutes {
            Some(time) => Ticks::now().since(start) >= time,
            None => seed >= QUICK,
        };
        if is_over || first.is_some() {
            break;
        }
    }
    let grown = memory("VmPeak:").saturating_sub(space);
    assert!(grown < GROWTH_KIB, "{decoder}: the address space grew by {grown} KiB");
    if minutes.is_some() {
        let grown = memory("RssAnon:").saturating_sub(resident);
        assert!(grown < GROWTH_LONG_KIB, "{decoder}: memory grew by {grown} KiB");
        eprintln!("{decoder}: {seed} inputs, memory grew by {grown} KiB");
    }
}

fn number(variable: &str) -> Option<u64> {
    let value = env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {value:?}")))
}

/// A size in KiB of this process.
fn memory(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line of the status");
    line.split_whitespace().next().expect("a number").parse().expect("a number")
}

pub(crate) fn noise(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.u8(..)).collect()
}

/// Changes some bytes: bits flip, parts are cut out, repeated, or replaced by parts of another input or by noise.
pub(crate) fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..rng.usize(1..4) {
        let at = rng.usize(..=bytes.len());
        let end = (at + rng.usize(..100)).min(bytes.len());
        match rng.u32(..8) {
            0 | 1 if at < bytes.len() => bytes[at] ^= 1 << rng.u32(..8),
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            5 => {
                let start = rng.usize(..=other.len());
                bytes.splice(at.., other[start..].iter().copied());
            }
            6 => {
                let len = rng.usize(..100);
                bytes.splice(at..end, noise(rng, len));
            }
            _ => set_number(rng, bytes, at),
        }
    }
}

/// Sets a number at a place to one at the bounds.
pub(crate) fn set_number(rng: &mut Rng, bytes: &mut [u8], at: usize) {
    let number = BOUNDS[rng.usize(..BOUNDS.len())].to_le_bytes();
    let len = [1, 2, 4, 8][rng.usize(..4)].min(bytes.len() - at);
    bytes[at..at + len].copy_from_slice(&number[..len]);
}

/// Makes the last four bytes the CRC32C of those before: whoever sends it knows the format.
pub(crate) fn seal_checksum(bytes: &mut [u8]) {
    let checked = bytes.len() - 4;
    let checksum = crc32c::crc32c(&bytes[..checked]);
    bytes[checked..].copy_from_slice(&checksum.to_le_bytes());
}
