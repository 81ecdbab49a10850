use super::probe::{Probe, Source};
use super::reading::{Reading, Unknown};

const MEMINFO: &str = "/proc/meminfo";

/// Memory of the machine at one time, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryReading {
    /// Memory that the kernel manages. Less than the module has: firmware and carve-outs keep a part.
    pub total: Reading<u64>,
    /// Memory that nobody uses.
    pub free: Reading<u64>,
    /// Memory that programs can get without swapping.
    pub available: Reading<u64>,
    /// Contents of files that are kept in memory.
    pub cached: Reading<u64>,
    /// Swap space, zram included.
    pub swap_total: Reading<u64>,
    /// Swap space that is free.
    pub swap_free: Reading<u64>,
    /// Memory for contiguous allocations.
    pub cma_total: Reading<u64>,
    /// Memory for contiguous allocations that is free.
    pub cma_free: Reading<u64>,
    /// Memory that the GPU and the video engines of a Jetson use (`NvMapMemUsed`, from L4T R35 on).
    pub nvmap_used: Reading<u64>,
}

impl MemoryReading {
    fn unknown(reason: &Unknown) -> Self {
        let value = || Err(reason.clone());
        Self {
            total: value(),
            free: value(),
            available: value(),
            cached: value(),
            swap_total: value(),
            swap_free: value(),
            cma_total: value(),
            cma_free: value(),
            nvmap_used: value(),
        }
    }
}

impl Default for MemoryReading {
    fn default() -> Self {
        Self::unknown(&Unknown::NotOffered)
    }
}

/// `/proc/meminfo`.
#[derive(Debug)]
pub(super) struct Memory {
    file: Source,
    buffer: Vec<u8>,
}

impl Memory {
    pub(super) fn find(probe: &mut Probe<'_>) -> Self {
        Self { file: probe.file(MEMINFO).into(), buffer: Vec::new() }
    }

    pub(super) fn read(&mut self) -> MemoryReading {
        match self.file.text(&mut self.buffer) {
            Ok(text) => parse(text),
            Err(reason) => MemoryReading::unknown(&reason),
        }
    }
}

/// Reads lines such as `MemTotal:  7990140 kB`. The kernel's kB is 1024 bytes (proc_meminfo(5)).
fn parse(text: &str) -> MemoryReading {
    let mut memory = MemoryReading::default();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let slot = match name {
            "MemTotal" => &mut memory.total,
            "MemFree" => &mut memory.free,
            "MemAvailable" => &mut memory.available,
            "Cached" => &mut memory.cached,
            "SwapTotal" => &mut memory.swap_total,
            "SwapFree" => &mut memory.swap_free,
            "CmaTotal" => &mut memory.cma_total,
            "CmaFree" => &mut memory.cma_free,
            "NvMapMemUsed" => &mut memory.nvmap_used,
            _ => continue,
        };
        let kibibytes = value.trim().strip_suffix("kB").and_then(|number| number.trim().parse::<u64>().ok());
        *slot = kibibytes.and_then(|kibibytes| kibibytes.checked_mul(1024)).ok_or(Unknown::Malformed);
    }
    memory
}
