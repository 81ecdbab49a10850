//! Facts of the machine that matter: memory, disk, and the rights of the user on device nodes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use orinoco_api::{MachinePart, PartState};
use orinoco_board::readers::Snapshot;
use orinoco_core::text::mebibytes;
use orinoco_sysroot::Sysroot;
use rustix::fs::{Access, AtFlags, CWD, accessat, statvfs};

use super::advice::{System, name_of};
use super::check::{Fix, Group, part, with_fix};

/// Free space below which a disk is reported: recordings and downloads of libraries soon fail. ONNX Runtime's wheel and its
/// library take 60 MiB.
const DISK_FREE_MIN: u64 = 256 << 20;
/// Greatest number of device nodes that are looked at.
const NODES_MAX: usize = 256;

/// Device nodes that Orinoco opens, by the start of their names, each with its purpose and the package whose udev rule gives them
/// a group, where the kernel alone gives none.
const NODES: [(&str, &str, &str, Option<&str>); 7] = [
    ("/dev", "video", "cameras", None),
    ("/dev", "i2c-", "power sensors", Some("i2c-tools")),
    ("/dev", "nvmap", "the GPU and video memory of a Jetson", None),
    ("/dev", "nvhost-", "the GPU and video engines of a Jetson", None),
    ("/dev", "nvidia", "the GPU", None),
    ("/dev/dri", "renderD", "the GPU and video engines", None),
    ("/dev/infiniband", "uverbs", "RDMA", None),
];

/// Reports memory, disk and device nodes.
pub(super) fn checks(
    snapshot: &Snapshot,
    cache: Option<&Path>,
    sysroot: &Sysroot,
    system: &System,
) -> Vec<MachinePart> {
    let mut parts = memory(snapshot);
    if sysroot.is_host() {
        parts.extend(cache.into_iter().chain([Path::new(".")]).map(disk));
    }
    let groups = sysroot.text("/etc/group").unwrap_or_default();
    let devices = NODES.iter().map(|kind| devices(*kind, &groups, system)).collect::<Option<Vec<_>>>();
    match devices {
        Some(devices) => parts.extend(devices.into_iter().flatten()),
        None => {
            let says = "a recording has no device nodes; run `orinoco doctor` on the board";
            parts.push(part(Group::Machine, "device", "all", PartState::NotChecked, says));
        }
    }
    parts
}

fn memory(snapshot: &Snapshot) -> Vec<MachinePart> {
    let report = |name: &str, state, says| part(Group::Machine, "memory", name, state, says);
    let memory = &snapshot.memory;
    let mut parts = vec![match (&memory.total, &memory.available) {
        (Ok(total), Ok(available)) => {
            let says = format!("{} available of {}", mebibytes(*available), mebibytes(*total));
            report("memory", PartState::Ok, says)
        }
        (Err(unknown), _) | (_, Err(unknown)) => {
            report("memory", PartState::NotChecked, format!("/proc/meminfo: {unknown}"))
        }
    }];
    if let Ok(Some(max)) = &snapshot.group.memory_max {
        let says = format!("{} at most, by the control group of this process", mebibytes(*max));
        parts.push(report("limit", PartState::Ok, says));
    }
    parts
}

/// Reports the free space of the disk with a folder, which need not exist yet.
fn disk(folder: &Path) -> MachinePart {
    let there = folder.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
    let report =
        |state, says: String| part(Group::Machine, "disk", folder.display().to_string(), state, says);
    match statvfs(there) {
        Ok(disk) => {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let is_enough = free >= DISK_FREE_MIN;
            let says = format!("{} free", mebibytes(free));
            if is_enough {
                report(PartState::Ok, says)
            } else {
                report(PartState::Broken, format!("only {says}"))
            }
        }
        Err(why) => report(PartState::NotChecked, why.to_string()),
    }
}

/// Reports the device nodes of one kind: those that can be opened on one line, the others by their owners. `None` for a recording.
fn devices(
    (folder, prefix, purpose, package): (&str, &str, &str, Option<&str>),
    groups: &str,
    system: &System,
) -> Option<Vec<MachinePart>> {
    let entries = fs::read_dir(system.real(folder)?).into_iter().flatten().flatten();
    let is_one = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(prefix)) && !path.is_dir()
    };
    let mut nodes: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_one).take(NODES_MAX).collect();
    nodes.sort();
    let (open, denied): (Vec<PathBuf>, Vec<PathBuf>) = nodes.into_iter().partition(|path| may_open(path));
    let mut parts = Vec::new();
    if !open.is_empty() {
        let says = format!("{} may open {}, for {purpose}", system.user.name, names(&open));
        parts.push(part(Group::Machine, "device", format!("{folder}/{prefix}*"), PartState::Ok, says));
    }
    let mut by_owner: BTreeMap<(u32, u32), Vec<PathBuf>> = BTreeMap::new();
    for path in denied {
        let Ok(metadata) = fs::metadata(&path) else { continue };
        by_owner.entry((metadata.gid(), metadata.mode() & 0o777)).or_default().push(path);
    }
    for (owner, paths) in by_owner {
        parts.push(denied_part(owner, &paths, (purpose, package), groups, system));
    }
    Some(parts)
}

/// Reports nodes that the user may not open, with the group that may.
fn denied_part(
    (gid, mode): (u32, u32),
    paths: &[PathBuf],
    (purpose, package): (&str, Option<&str>),
    groups: &str,
    system: &System,
) -> MachinePart {
    let group = name_of(groups, gid).unwrap_or_else(|| gid.to_string());
    let user = &system.user.name;
    let report = |why: String| {
        let says = format!("permission denied for {}, for {purpose}: {why}", names(paths));
        part(Group::Machine, "device", paths[0].display().to_string(), PartState::Broken, says)
    };
    /// Mode bits: the group may read and write.
    const GROUP_OPENS: u32 = 0o060;
    if mode & GROUP_OPENS != GROUP_OPENS || gid == 0 {
        let part = report(format!("group {group} with mode {mode:04o}"));
        let fix = package.map_or_else(
            || Fix::words("add a udev rule that gives the node a group, such as video, with mode 0660"),
            |package| system.install(&[package]),
        );
        return with_fix(part, fix);
    }
    if is_member(groups, &group, user) {
        let part = report(format!("{user} joined the group {group} after this login"));
        return with_fix(part, Fix::words("log out and in again"));
    }
    with_fix(report(format!("{user} is not in the group {group}")), system.join_group(&group))
}

fn may_open(path: &Path) -> bool {
    accessat(CWD, path, Access::READ_OK | Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

/// Returns whether a group of a text of the form of group(5) lists a user.
fn is_member(groups: &str, group: &str, user: &str) -> bool {
    let fields = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let mut members = fields.filter(|fields| fields[0] == group).filter_map(|fields| fields.get(3).copied());
    members.any(|members| members.split(',').any(|member| member.trim() == user))
}

fn names(paths: &[PathBuf]) -> String {
    match paths {
        [one] => one.display().to_string(),
        [first, rest @ ..] => format!("{} and {} more", first.display(), rest.len()),
        [] => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use orinoco_sysroot::Recording;

    use super::*;

    #[test]
    fn members_of_groups_are_found() {
        let groups = "video:x:44:ada, bob\ni2c:x:108:\nodd\n";
        assert!(is_member(groups, "video", "bob"));
        assert!(!is_member(groups, "video", "ad"));
        assert!(!is_member(groups, "i2c", "ada") && !is_member(groups, "odd", "ada"));
    }

    #[test]
    fn devices_of_rdma_are_looked_at() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("dev/infiniband");
        fs::create_dir_all(&folder).expect("made");
        fs::write(folder.join("uverbs0"), "").expect("written");
        let sysroot = Sysroot::at(root.path());
        let parts = checks(&Snapshot::default(), None, &sysroot, &System::read(&sysroot));
        let device = parts.iter().find(|part| part.kind == "device").expect("there is one");
        assert_eq!((&*device.name, device.state), ("/dev/infiniband/uverbs*", PartState::Ok));
        assert!(device.says.ends_with("uverbs0, for RDMA"), "{}", device.says);
    }

    #[test]
    fn devices_of_a_recording_are_not_those_of_this_machine() {
        let sysroot = Sysroot::replay(Recording::synthetic(), || Duration::ZERO);
        let parts = checks(&Snapshot::default(), None, &sysroot, &System::read(&sysroot));
        let devices: Vec<_> = parts.iter().filter(|part| part.kind == "device").collect();
        let [device] = devices[..] else { panic!("{devices:?}") };
        assert_eq!((&*device.name, device.state), ("all", PartState::NotChecked));
        assert_eq!(device.says, "a recording has no device nodes; run `orinoco doctor` on the board");
    }

    #[test]
    fn a_disk_is_that_of_the_nearest_folder() {
        let found = disk(Path::new("/no/such/folder"));
        assert_eq!(found.name, "/no/such/folder");
        assert!(found.says.contains("free"), "{}", found.says);
    }
}
