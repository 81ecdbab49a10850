//! Memory that this process may still take, and the bound that limits it.

use std::fmt;
use std::path::{Path, PathBuf};

use orinoco_memory::Mib;
use orinoco_sysroot::Sysroot;
use rustix::process::{Resource, getrlimit};

/// Bound on the memory of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MemoryBound {
    /// Available memory of the machine.
    Machine,
    /// Memory that the kernel may still commit, where it commits no more than it has (`vm.overcommit_memory = 2`).
    Commit,
    /// Memory limit of a control group, by its path.
    ControlGroup(PathBuf),
    /// Limit on address space (`RLIMIT_AS`).
    AddressSpace,
    /// Limit on data (`RLIMIT_DATA`).
    Data,
}

impl MemoryBound {
    /// Returns the divisor of the remaining bytes that gives the size of one area. Where mappings count, and not only
    /// touched pages, everything that the process allocates later counts as well: half is left for weights and the engine's
    /// own memory.
    fn parts(&self) -> u64 {
        match self {
            Self::Machine | Self::ControlGroup(_) => 1,
            Self::Commit | Self::AddressSpace | Self::Data => 2,
        }
    }

    /// Returns the next step to get more memory, as an instruction.
    pub(crate) fn next(&self) -> &'static str {
        match self {
            Self::Machine => "free some memory, or use a smaller model",
            Self::Commit => "free some memory, or raise vm.overcommit_ratio (sysctl)",
            Self::ControlGroup(_) => "raise the group's limit (MemoryMax= of a systemd unit)",
            Self::AddressSpace => "raise the limit (ulimit -v, LimitAS= of a systemd unit)",
            Self::Data => "raise the limit (ulimit -d, LimitDATA= of a systemd unit)",
        }
    }
}

/// Memory that one more area may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Available {
    /// Size of the area, in bytes.
    pub(crate) bytes: u64,
    /// Bytes that the tightest bound leaves in total.
    left: u64,
    /// Tightest bound.
    pub(crate) bound: MemoryBound,
}

impl Available {
    fn under(bound: MemoryBound, left: u64) -> Self {
        Self { bytes: left / bound.parts(), left, bound }
    }

    /// Returns the same bound with another size of the area, in bytes.
    #[cfg(test)]
    pub(crate) fn with_bytes(self, bytes: u64) -> Self {
        Self { bytes, left: bytes * self.bound.parts(), ..self }
    }
}

impl fmt::Display for Available {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = Mib(self.left);
        match &self.bound {
            MemoryBound::Machine => write!(f, "this machine has {left} MiB of memory available"),
            MemoryBound::Commit => {
                write!(f, "the kernel promises at most {left} MiB more (vm.overcommit_memory is 2)")
            }
            MemoryBound::ControlGroup(path) => {
                write!(
                    f,
                    "control group {} may take at most {left} MiB more (its memory limit)",
                    path.display()
                )
            }
            MemoryBound::AddressSpace => {
                write!(f, "the limit on address space leaves {left} MiB (ulimit -v)")
            }
            MemoryBound::Data => write!(f, "the limit on data leaves {left} MiB (ulimit -d)"),
        }
    }
}

/// Returns the memory that one more area of this process may take; `None` where the system has no figure.
pub(crate) fn available() -> Option<Available> {
    let limits =
        Limits { address_space: getrlimit(Resource::As).current, data: getrlimit(Resource::Data).current };
    available_in(&Sysroot::host(), limits)
}

/// Limits of the process, in bytes; `None` where it has no such limit.
#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    address_space: Option<u64>,
    data: Option<u64>,
}

/// Returns the available memory, with the kernel's files in `sysroot`.
fn available_in(sysroot: &Sysroot, limits: Limits) -> Option<Available> {
    let kernel = Kernel { sysroot };
    let machine = kernel.meminfo("MemAvailable:").map(|left| Available::under(MemoryBound::Machine, left));
    let limited = |limit: Option<u64>, taken: &str, bound: MemoryBound| {
        let left = limit?.saturating_sub(kernel.status(taken)?);
        Some(Available::under(bound, left))
    };
    let bounds = [
        machine,
        kernel.commit(),
        limited(limits.address_space, "VmSize:", MemoryBound::AddressSpace),
        limited(limits.data, "VmData:", MemoryBound::Data),
    ];
    bounds.into_iter().flatten().chain(kernel.control_groups()).min_by_key(|available| available.bytes)
}

/// Files of the kernel about memory.
struct Kernel<'a> {
    sysroot: &'a Sysroot,
}

impl Kernel<'_> {
    /// Reads a file with one number; `None` also for `max`.
    fn number(&self, path: &str) -> Option<u64> {
        self.sysroot.number(path).ok()
    }

    fn meminfo(&self, field: &str) -> Option<u64> {
        kib_field(&self.sysroot.text("/proc/meminfo").ok()?, field)
    }

    fn status(&self, field: &str) -> Option<u64> {
        kib_field(&self.sysroot.text("/proc/self/status").ok()?, field)
    }

    fn commit(&self) -> Option<Available> {
        /// Value of `vm.overcommit_memory` with which the kernel commits no more than it has.
        const NEVER_OVERCOMMIT: u64 = 2;
        if self.number("/proc/sys/vm/overcommit_memory")? != NEVER_OVERCOMMIT {
            return None;
        }
        let left = self.meminfo("CommitLimit:")?.saturating_sub(self.meminfo("Committed_AS:")?);
        Some(Available::under(MemoryBound::Commit, left))
    }

    /// Returns the memory that each control group of this process leaves, up to the root of the hierarchy
    /// (proc_pid_cgroup(5)).
    fn control_groups(&self) -> Vec<Available> {
        let text = self.sysroot.text("/proc/self/cgroup").unwrap_or_default();
        let mut found = Vec::new();
        for line in text.lines() {
            let mut parts = line.splitn(3, ':');
            let (_, Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next()) else {
                continue;
            };
            let files = match controllers {
                "" => &UNIFIED,
                names if names.split(',').any(|name| name == "memory") => &VERSION_1,
                _ => continue,
            };
            // In a container, the path is that of its own group as the root, or is not mounted: then only the root is
            // found.
            for group in Path::new(group).ancestors() {
                let folder = Path::new(files.mount).join(group.strip_prefix("/").unwrap_or(group));
                found.extend(self.control_group(&folder, files, group));
            }
        }
        found
    }

    fn control_group(&self, folder: &Path, files: &GroupFiles, group: &Path) -> Option<Available> {
        let file = |name| format!("{}/{name}", folder.display());
        let limit = self.number(&file(files.limit))?;
        let taken = self.number(&file(files.taken))?;
        // File cache counts as used, but the kernel reclaims it when memory is needed.
        let stat = self.sysroot.text(&file("memory.stat")).unwrap_or_default();
        let cached = stat.lines().find_map(|line| line.strip_prefix(files.cached)?.trim().parse().ok());
        let taken = taken.saturating_sub(cached.unwrap_or(0));
        Some(Available::under(MemoryBound::ControlGroup(group.to_owned()), limit.saturating_sub(taken)))
    }
}

/// Names of the files of a control group.
struct GroupFiles {
    mount: &'static str,
    limit: &'static str,
    taken: &'static str,
    cached: &'static str,
}

const UNIFIED: GroupFiles = GroupFiles {
    mount: "/sys/fs/cgroup",
    limit: "memory.max",
    taken: "memory.current",
    cached: "inactive_file ",
};
const VERSION_1: GroupFiles = GroupFiles {
    mount: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    taken: "memory.usage_in_bytes",
    cached: "total_inactive_file ",
};

/// Reads a field of `/proc/meminfo` or `/proc/PID/status`, in bytes.
fn kib_field(text: &str, field: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = rest.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    use expect_test::{Expect, expect};

    const MEMINFO: &str = "MemTotal: 1000000 kB\nMemFree: 5 kB\nMemAvailable:     819200 kB\n\
                           CommitLimit:      512000 kB\nCommitted_AS:     307200 kB\n";
    const STATUS: &str = "Name:\torinoco\nVmSize:\t  102400 kB\nVmData:\t   51200 kB\n";

    fn check(files: &[(&str, &str)], limits: Limits, expected: Expect) {
        let root = tempfile::tempdir().expect("temporary folder");
        for (path, text) in [("proc/meminfo", MEMINFO), ("proc/self/status", STATUS)].iter().chain(files) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        let found = available_in(&Sysroot::at(root.path()), limits).expect("there is a figure");
        expected.assert_eq(&format!("{} MiB: {found}; {}", Mib(found.bytes), found.bound.next()));
    }

    #[test]
    fn the_tightest_bound_is_named() {
        let none = Limits::default();
        check(
            &[],
            none,
            expect![
                "800.0 MiB: this machine has 800.0 MiB of memory available; free some memory, or use a smaller model"
            ],
        );
        let (overcommit, strict) =
            ("proc/sys/vm/overcommit_memory", ("proc/sys/vm/overcommit_memory", "2\n"));
        check(
            &[(overcommit, "0\n")],
            none,
            expect![
                "800.0 MiB: this machine has 800.0 MiB of memory available; free some memory, or use a smaller model"
            ],
        );
        check(
            &[strict],
            none,
            expect![
                "100.0 MiB: the kernel promises at most 200.0 MiB more (vm.overcommit_memory is 2); free some memory, or raise vm.overcommit_ratio (sysctl)"
            ],
        );
        check(
            &[strict],
            Limits { address_space: Some(200 << 20), ..none },
            expect![
                "50.0 MiB: the limit on address space leaves 100.0 MiB (ulimit -v); raise the limit (ulimit -v, LimitAS= of a systemd unit)"
            ],
        );
        check(
            &[strict],
            Limits { address_space: Some(1 << 40), data: Some(60 << 20) },
            expect![
                "5.0 MiB: the limit on data leaves 10.0 MiB (ulimit -d); raise the limit (ulimit -d, LimitDATA= of a systemd unit)"
            ],
        );
        check(
            &[],
            Limits { address_space: Some(10 << 20), ..none },
            expect![
                "0.0 MiB: the limit on address space leaves 0.0 MiB (ulimit -v); raise the limit (ulimit -v, LimitAS= of a systemd unit)"
            ],
        );
    }

    #[test]
    fn the_limits_of_control_groups_count_up_to_their_root() {
        let none = Limits::default();
        let unified = [
            ("proc/self/cgroup", "1:cpu:/x\n0::/system.slice/orinocod.service\n"),
            ("sys/fs/cgroup/system.slice/orinocod.service/memory.max", "max\n"),
            ("sys/fs/cgroup/system.slice/orinocod.service/memory.current", "104857600\n"),
            ("sys/fs/cgroup/system.slice/memory.max", "314572800\n"),
            ("sys/fs/cgroup/system.slice/memory.current", "209715200\n"),
            ("sys/fs/cgroup/system.slice/memory.stat", "anon 1\ninactive_file 104857600\n"),
        ];
        check(
            &unified,
            none,
            expect![
                "200.0 MiB: control group /system.slice may take at most 200.0 MiB more (its memory limit); raise the group's limit (MemoryMax= of a systemd unit)"
            ],
        );
        // In a container, the path of its group is not mounted.
        let version_1 = [
            ("proc/self/cgroup", "4:memory,hugetlb:/docker/1234\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "201326592\n"),
        ];
        check(
            &version_1,
            none,
            expect![
                "64.0 MiB: control group / may take at most 64.0 MiB more (its memory limit); raise the group's limit (MemoryMax= of a systemd unit)"
            ],
        );
        let unlimited = [
            ("proc/self/cgroup", "4:memory:/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "201326592\n"),
        ];
        check(
            &unlimited,
            none,
            expect![
                "800.0 MiB: this machine has 800.0 MiB of memory available; free some memory, or use a smaller model"
            ],
        );
    }

    #[test]
    fn this_machine_has_memory() {
        let found = available().expect("Linux gives a figure");
        assert!(found.bytes > 0, "{found}");
    }
}
