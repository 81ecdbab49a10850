//! Names of persons, of networks and of single devices, which a recording must not hold.

use std::borrow::Cow;

/// Texts in the names of files that are left out, with the reason. A name is compared in lower case.
const FORBIDDEN_NAMES: &[(&str, &str)] = &[
    ("serial", "serial number"),
    ("hostname", "host name"),
    ("machine-id", "identity of the installation"),
    ("eeprom", "holds serial numbers and MAC addresses"),
    ("ssid", "wireless network"),
    ("password", "secret"),
    ("passwd", "secret"),
    ("secret", "secret"),
];

/// Words in the names of files that are left out, with the reason. `local-mac-address` has the words `local`, `mac` and
/// `address`; `machine` has another.
const FORBIDDEN_WORDS: &[(&str, &str)] = &[
    ("mac", "MAC address"),
    ("uuid", "identity of a device"),
    ("ecid", "identity of a device"),
    ("uid", "identity of a device"),
    ("seed", "secret"),
    ("psk", "secret"),
    ("token", "secret"),
];

/// Texts in the names of folders below which every file is left out, with the reason.
const FORBIDDEN_FOLDERS: &[(&str, &str)] = &[
    ("networkmanager", "networks"),
    ("system-connections", "networks"),
    ("wpa_supplicant", "wireless network"),
    ("wireless", "wireless network"),
    ("ieee80211", "wireless network"),
    ("bluetooth", "identity of a device"),
    ("ssh", "secret"),
    ("net", "MAC addresses"),
];

/// Parameters of the kernel's command line that are about hardware. The value of any other is left out.
const KERNEL_PARAMETERS: &[&str] = &[
    "cma",
    "console",
    "default_hugepagesz",
    "earlycon",
    "fbcon",
    "firmware_class.path",
    "hugepages",
    "hugepagesz",
    "intel_iommu",
    "iommu",
    "irqaffinity",
    "isolcpus",
    "maxcpus",
    "mem",
    "mitigations",
    "nohz",
    "nohz_full",
    "pci",
    "pcie_aspm",
    "pd_ignore_unused",
    "psi",
    "rcu_nocbs",
    "rootfstype",
    "swiotlb",
    "systemd.unified_cgroup_hierarchy",
    "cgroup_enable",
    "cgroup_disable",
    "tegraid",
    "tegra_fbmem",
    "transparent_hugepage",
    "usbcore.autosuspend",
    "video",
];

/// Words of the kernel's command line that have no value and say nothing about a person.
const KERNEL_FLAGS: &[&str] = &["debug", "nohlt", "nokaslr", "quiet", "ro", "rootwait", "rw", "splash"];

/// Debian's list of packages. It says what a person has installed, so that only some are recorded.
pub const PACKAGES: &str = "/var/lib/dpkg/status";

/// Greatest length of that list. That of a JetPack with a desktop has a few MiB.
pub const PACKAGES_BYTES_MAX: u64 = 32 << 20;

/// Beginnings of the names of packages that are recorded: those of Jetson Linux and of NVIDIA's libraries.
const RECORDED_PACKAGES: &[&str] = &["cuda-", "libcudnn", "libnvinfer", "nvidia-", "tensorrt"];

/// Fields of a package that are recorded.
const PACKAGE_FIELDS: &[&str] = &["Package:", "Status:", "Version:"];

/// Returns why a file is left out as a whole; `None` for a file that may be recorded.
pub(crate) fn forbidden(path: &str) -> Option<&'static str> {
    let path = path.to_lowercase();
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", &path));
    let words = |name: &str, word: &str| name.split(|c: char| !c.is_alphanumeric()).any(|part| part == word);
    let by_name = FORBIDDEN_NAMES.iter().find(|(text, _)| name.contains(text));
    let by_word = FORBIDDEN_WORDS.iter().find(|(word, _)| words(name, word));
    let by_folder =
        FORBIDDEN_FOLDERS.iter().find(|(folder, _)| folders.split('/').any(|part| part == *folder));
    by_name.or(by_word).or(by_folder).map(|(_, reason)| *reason)
}

/// Returns a content without what could identify a person or a device, and a word for what was replaced, if anything was.
pub(crate) fn redacted<'c>(path: &str, content: &'c [u8]) -> (Cow<'c, [u8]>, Option<&'static str>) {
    if path == PACKAGES {
        let kept = packages(&String::from_utf8_lossy(content));
        return (kept.into_bytes().into(), Some("packages that are not NVIDIA's"));
    }
    if BUILD_FILES.contains(&path) {
        let text = String::from_utf8_lossy(content);
        let changed = without_builder(&text).map(String::into_bytes);
        return match changed {
            Some(safe) => (safe.into(), Some("user and host of a build")),
            None => (content.into(), None),
        };
    }
    let name = path.rsplit('/').next().unwrap_or_default();
    if matches!(name, "cmdline" | "bootargs") {
        let text = String::from_utf8_lossy(content);
        let safe = command_line(&text);
        let changed = (safe != text).then_some("values of the kernel's command line");
        return (safe.into_bytes().into(), changed);
    }
    let without_serial = if name == "cpuinfo" { without_serial(content) } else { None };
    let had_serial = without_serial.is_some();
    let text = without_serial.map_or(Cow::Borrowed(content), Cow::Owned);
    match without_addresses(&text) {
        Some(safe) => (safe.into(), Some("MAC addresses or UUIDs")),
        None => (text, had_serial.then_some("serial number")),
    }
}

/// Files in which kernel and driver say who has built them, as in `Linux version 5.15.148-tegra (user@host) (gcc ...)`.
const BUILD_FILES: &[&str] = &["/proc/version", "/proc/driver/nvidia/version"];

/// Returns a text without the `user@host` in parentheses; `None` if there is none.
fn without_builder(text: &str) -> Option<String> {
    let is_builder = |inner: &&str| inner.contains('@') && !inner.contains([' ', '\n', '(']);
    let parts = text.split('(').skip(1).filter_map(|rest| rest.split_once(')').map(|(inner, _)| inner));
    let builders: Vec<&str> = parts.filter(is_builder).collect();
    (!builders.is_empty()).then(|| {
        let replace = |text: String, builder: &&str| text.replace(&format!("({builder})"), "(left out)");
        builders.iter().fold(text.to_owned(), replace)
    })
}

/// Whether a name of a file has a MAC address or a UUID in it.
pub(crate) fn is_identifying(name: &str) -> bool {
    without_addresses(name.as_bytes()).is_some()
}

/// Returns a kernel's command line without the values of parameters that are not known to be about hardware.
fn command_line(text: &str) -> String {
    let end = text.trim_end_matches(['\n', '\0', ' ']);
    let words: Vec<Cow<'_, str>> = end.split(' ').map(safe_word).collect();
    format!("{}{}", words.join(" "), &text[end.len()..])
}

fn safe_word(word: &str) -> Cow<'_, str> {
    match word.split_once('=') {
        Some((name, _)) if KERNEL_PARAMETERS.contains(&name) => word.into(),
        Some((name, _)) => format!("{name}=(left-out)").into(),
        None if word.is_empty() || KERNEL_FLAGS.contains(&word) => word.into(),
        None => "(left-out)".into(),
    }
}

/// Returns names, states and versions of the packages that are recorded, in the form of the list.
fn packages(list: &str) -> String {
    let is_recorded = |paragraph: &&str| {
        let name =
            paragraph.lines().find_map(|line| line.strip_prefix("Package:")).unwrap_or_default().trim();
        RECORDED_PACKAGES.iter().any(|start| name.starts_with(start))
    };
    let is_kept = |line: &&str| PACKAGE_FIELDS.iter().any(|field| line.starts_with(field));
    let of_package = |paragraph: &str| {
        paragraph.lines().filter(is_kept).map(|line| format!("{line}\n")).collect::<String>()
    };
    list.split("\n\n").filter(is_recorded).map(|paragraph| of_package(paragraph) + "\n").collect()
}

/// Returns `/proc/cpuinfo` without the serial number that some Arm kernels write there; `None` if there is none.
fn without_serial(content: &[u8]) -> Option<Vec<u8>> {
    let is_serial = |line: &&[u8]| line.to_ascii_lowercase().starts_with(b"serial");
    let lines = || content.split_inclusive(|byte| *byte == b'\n');
    lines()
        .any(|line| is_serial(&line))
        .then(|| lines().filter(|line| !is_serial(line)).flatten().copied().collect())
}

/// Returns a content with each digit of its MAC addresses and UUIDs replaced by `x`; `None` if there are none.
fn without_addresses(content: &[u8]) -> Option<Vec<u8>> {
    // Most contents are numbers.
    if !content.iter().any(|byte| matches!(byte, b':' | b'-')) {
        return None;
    }
    let mut safe: Option<Vec<u8>> = None;
    let mut start = 0;
    while start < content.len() {
        let length = identity_length(content, start, &[2, 2, 2, 2, 2, 2])
            .or_else(|| identity_length(content, start, &[8, 4, 4, 4, 12]));
        if let Some(length) = length {
            let found = &mut safe.get_or_insert_with(|| content.to_vec())[start..start + length];
            found.iter_mut().filter(|byte| byte.is_ascii_hexdigit()).for_each(|byte| *byte = b'x');
        }
        start += length.unwrap_or(1);
    }
    safe
}

/// Returns the length of groups of hexadecimal digits that begin at `start`, separated by `:` or `-` (a MAC address) or by
/// `-` (a UUID), and neither preceded nor followed by another digit or group.
fn identity_length(content: &[u8], start: usize, groups: &[usize]) -> Option<usize> {
    let is_digit = |at: usize| content.get(at).is_some_and(u8::is_ascii_hexdigit);
    let is_separator = |at: usize| matches!(content.get(at), Some(b':' | b'-'));
    if start > 0 && (is_digit(start - 1) || is_separator(start - 1) && start > 1 && is_digit(start - 2)) {
        return None;
    }
    let mut at = start;
    for (index, length) in groups.iter().enumerate() {
        if index > 0 {
            if !is_separator(at) {
                return None;
            }
            at += 1;
        }
        if !(at..at + length).all(is_digit) {
            return None;
        }
        at += length;
    }
    let goes_on = is_digit(at) || is_separator(at) && is_digit(at + 1);
    (!goes_on).then_some(at - start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, content: &str) -> String {
        let (safe, changed) = redacted(path, content.as_bytes());
        let safe = String::from_utf8(safe.into_owned()).expect("text stays text");
        match changed {
            Some(what) => format!("{safe} [{what}]"),
            None => {
                assert_eq!(safe, content, "a change is named");
                safe
            }
        }
    }

    #[test]
    fn identities_are_replaced_in_texts() {
        assert_eq!(
            check("/a", "eth 48:b0:2d:05:ff:0a up"),
            "eth xx:xx:xx:xx:xx:xx up [MAC addresses or UUIDs]"
        );
        assert_eq!(check("/a", "48-B0-2D-05-FF-0A"), "xx-xx-xx-xx-xx-xx [MAC addresses or UUIDs]");
        let uuid = "root 9b3f9c1e-0b5d-4c0e-8b1e-6f0f1e2d3c4b\n";
        let gone = "root xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx\n [MAC addresses or UUIDs]";
        assert_eq!(check("/a", uuid), gone);
        for plain in
            ["45500\n", "0000:01:00.0", "12:34:56", "1:2:3:4:5:6", "48:b0:2d:05:ff:0a:11", "", "2,4-6"]
        {
            assert_eq!(check("/a", plain), plain);
        }
    }

    #[test]
    fn a_command_line_keeps_hardware_only() {
        let line =
            "root=PARTUUID=1 rw console=ttyTCU0,115200n8 systemd.set_credential=a:b isolcpus=2,3 hunter2\n";
        let safe = "root=(left-out) rw console=ttyTCU0,115200n8 systemd.set_credential=(left-out) isolcpus=2,3 (left-out)\n";
        let safe = format!("{safe} [values of the kernel's command line]");
        assert_eq!(check("/proc/cmdline", line), safe);
        assert_eq!(check("/proc/device-tree/chosen/bootargs", "quiet rw\0"), "quiet rw\0");
    }

    #[test]
    fn who_built_kernel_and_driver_is_left_out() {
        let kernel = "Linux version 5.15.148-tegra (jane@build-7) (aarch64-gcc (GCC) 11.4.0) #1 SMP\n";
        let safe = "Linux version 5.15.148-tegra (left out) (aarch64-gcc (GCC) 11.4.0) #1 SMP\n [user and host of a build]";
        assert_eq!(check("/proc/version", kernel), safe);
        let driver = "NVRM version: 540.4.0 Release Build (jane@yard)\nGCC version: (x) 11\n";
        let safe = "NVRM version: 540.4.0 Release Build (left out)\nGCC version: (x) 11\n [user and host of a build]";
        assert_eq!(check("/proc/driver/nvidia/version", driver), safe);
        assert_eq!(check("/proc/version", "Linux version 6.8 (GCC)\n"), "Linux version 6.8 (GCC)\n");
    }

    #[test]
    fn the_serial_number_of_an_arm_cpuinfo_is_left_out() {
        let cpuinfo = "CPU part\t: 0xd42\nSerial\t\t: 1424221000000\nModel: x\n";
        assert_eq!(check("/proc/cpuinfo", cpuinfo), "CPU part\t: 0xd42\nModel: x\n [serial number]");
    }

    #[test]
    fn identifying_files_are_left_out_and_others_are_not() {
        for path in [
            "/proc/device-tree/serial-number",
            "/sys/devices/soc0/serial_number",
            "/proc/device-tree/chosen/nvidia,ethernet-mac",
            "/proc/device-tree/ethernet/local-mac-address",
            "/proc/device-tree/chosen/ecid",
            "/proc/device-tree/chosen/kaslr-seed",
            "/sys/bus/i2c/devices/0-0050/eeprom",
            "/sys/class/net/eth0/address",
            "/sys/class/dmi/id/product_uuid",
            "/sys/class/dmi/id/board_serial",
            "/etc/hostname",
            "/etc/machine-id",
            "/etc/NetworkManager/system-connections/home.nmconnection",
        ] {
            assert!(forbidden(path).is_some(), "{path}");
        }
        for path in [
            "/proc/device-tree/model",
            "/sys/devices/soc0/machine",
            "/proc/device-tree/serial@3100000/compatible",
            "/sys/class/thermal/thermal_zone0/temp",
            "/etc/nv_tegra_release",
        ] {
            assert_eq!(forbidden(path), None, "{path}");
        }
    }
}
