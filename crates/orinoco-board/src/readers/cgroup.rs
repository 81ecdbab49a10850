use std::time::Duration;

use super::probe::{Probe, Source};
use super::reading::{Reading, Unknown};

const OWN_GROUP: &str = "/proc/self/cgroup";

/// Folders at which systemd mounts control groups of version 2: alone, or next to those of version 1.
pub(super) const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// Limits and use of the process's own control group at one time (Documentation/admin-guide/cgroup-v2.rst).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupReading {
    /// Memory of the group, in bytes.
    pub memory: Reading<u64>,
    /// Greatest memory of the group so far, in bytes.
    pub memory_peak: Reading<u64>,
    /// Limit of its memory, in bytes; `None` without a limit.
    pub memory_max: Reading<Option<u64>>,
    /// Number of times that the group reached its limit.
    pub memory_limit_hits: Reading<u64>,
    /// Number of its processes that the kernel killed for memory.
    pub oom_kills: Reading<u64>,
    /// Processor time of the group.
    pub cpu_time: Reading<Duration>,
    /// Time that the group was held back by its limit of processor time.
    pub throttled: Reading<Duration>,
}

impl Default for GroupReading {
    fn default() -> Self {
        Self {
            memory: Err(Unknown::NotOffered),
            memory_peak: Err(Unknown::NotOffered),
            memory_max: Err(Unknown::NotOffered),
            memory_limit_hits: Err(Unknown::NotOffered),
            oom_kills: Err(Unknown::NotOffered),
            cpu_time: Err(Unknown::NotOffered),
            throttled: Err(Unknown::NotOffered),
        }
    }
}

/// Files of the process's own control group.
#[derive(Debug)]
pub(super) struct Group {
    memory: Source,
    memory_peak: Source,
    memory_max: Source,
    memory_events: Source,
    cpu_stat: Source,
    buffer: Vec<u8>,
}

impl Group {
    pub(super) fn find(probe: &mut Probe<'_>) -> Self {
        let folder = folder(probe);
        let names = folder.as_deref().map_or_else(Vec::new, |folder| probe.names(folder, ""));
        let mut file = |name: &str| match &folder {
            Some(folder) => probe.attribute(folder, &names, name),
            None => Source::NONE,
        };
        Self {
            memory: file("memory.current"),
            memory_peak: file("memory.peak"),
            memory_max: file("memory.max"),
            memory_events: file("memory.events"),
            cpu_stat: file("cpu.stat"),
            buffer: Vec::new(),
        }
    }

    pub(super) fn read(&mut self) -> GroupReading {
        let buffer = &mut self.buffer;
        let memory_max = self.memory_max.text(buffer).and_then(|text| match text {
            "max" => Ok(None),
            bytes => bytes.parse().map(Some).map_err(|_| Unknown::Malformed),
        });
        let events = self.memory_events.text(buffer);
        let memory_limit_hits = keyed(&events, "max");
        let oom_kills = keyed(&events, "oom_kill");
        let stat = self.cpu_stat.text(buffer);
        GroupReading {
            memory: bytes(&mut self.memory),
            memory_peak: bytes(&mut self.memory_peak),
            memory_max,
            memory_limit_hits,
            oom_kills,
            cpu_time: keyed(&stat, "usage_usec").map(Duration::from_micros),
            throttled: keyed(&stat, "throttled_usec").map(Duration::from_micros),
        }
    }
}

/// Returns the folder of the process's own group, or says why there is none.
fn folder(probe: &mut Probe<'_>) -> Option<String> {
    let text = probe.text(OWN_GROUP).unwrap_or_default();
    let Some(path) = text.lines().find_map(|line| line.strip_prefix("0::")) else {
        probe.gap(OWN_GROUP, "names no control group of version 2");
        return None;
    };
    let is_mounted = |mount: &&&str| probe.sysroot.bytes(&format!("{mount}/cgroup.controllers")).is_ok();
    let Some(mount) = MOUNTS.iter().find(is_mounted) else {
        probe.gap(MOUNTS[0], "has no control groups of version 2");
        return None;
    };
    // In a container the path can lead out of what is mounted; then the mount itself is the container's group.
    let own = format!("{mount}{}", path.trim_end_matches('/'));
    let is_below = !path.split('/').any(|name| name == "..");
    let is_there = is_below && probe.sysroot.entries(&own).is_ok();
    Some(if is_there { own } else { (*mount).to_owned() })
}

fn bytes(file: &mut Source) -> Reading<u64> {
    file.number().and_then(|bytes| u64::try_from(bytes).map_err(|_| Unknown::Malformed))
}

/// Returns the value of a line `key value`.
fn keyed(text: &Reading<&str>, key: &str) -> Reading<u64> {
    let text = text.as_ref().map_err(Clone::clone)?;
    let value = |line: &str| line.strip_prefix(key)?.strip_prefix(' ').map(|value| value.parse());
    let value = text.lines().find_map(value).ok_or(Unknown::NotOffered)?;
    value.map_err(|_| Unknown::Malformed)
}
