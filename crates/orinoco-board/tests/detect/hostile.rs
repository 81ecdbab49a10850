//! Hostile files: whatever a directory holds, detection ends, does not panic, and does not claim what no file says.

use orinoco_board::{Detection, detect};
use orinoco_sysroot::{FILE_BYTES_MAX, Sysroot};
use proptest::prelude::*;

use crate::builder::SyntheticBoard;

/// Files that detection reads.
const PATHS: [&str; 30] = [
    "/proc/device-tree/model",
    "/proc/device-tree/compatible",
    "/sys/firmware/devicetree/base/model",
    "/etc/nv_tegra_release",
    "/etc/nv_boot_control.conf",
    "/etc/nvpmodel.conf",
    "/var/lib/nvpmodel/status",
    "/var/lib/dpkg/status",
    "/proc/meminfo",
    "/proc/cpuinfo",
    "/proc/sys/kernel/osrelease",
    "/proc/version",
    "/sys/devices/system/cpu/possible",
    "/sys/devices/system/cpu/present",
    "/sys/devices/system/cpu/online",
    "/sys/devices/soc0/soc_id",
    "/sys/devices/soc0/family",
    "/sys/class/dmi/id/product_name",
    "/sys/class/dmi/id/bios_version",
    "/sys/class/hwmon/hwmon0/name",
    "/sys/class/hwmon/hwmon0/in1_label",
    "/sys/class/hwmon/hwmon0/in1_input",
    "/sys/class/hwmon/hwmon0/curr1_input",
    "/sys/class/hwmon/hwmon0/power1_input",
    "/sys/bus/i2c/devices/1-0040/iio:device0/name",
    "/sys/bus/i2c/devices/1-0040/iio:device0/rail_name_0",
    "/sys/bus/i2c/devices/1-0040/iio:device0/in_voltage0_input",
    "/sys/class/thermal/thermal_zone0/type",
    "/sys/class/thermal/thermal_zone0/temp",
    "/proc/driver/nvidia/gpus/0000:01:00.0/information",
];

/// Texts of real files, whole and cut, from which hostile ones are made.
const TEXTS: [&str; 22] = [
    "nvidia,p3768-0000+p3767-0005\0nvidia,p3767-0003\0nvidia,tegra234\0",
    "nvidia,p3701-0005\0nvidia,tegra194\0",
    "nvidia,tegra",
    "NVIDIA Jetson Orin Nano Developer Kit\0",
    "Jetson-AGX\0",
    "# R36 (release), REVISION: 4.3, GCID: 1, BOARD: t186ref\n# BOARD: other\n",
    "# R (release), REVISION: ",
    "TNSPEC 3767-300-0005-K.2-1-1-jetson-orin-nano-devkit-\nTEGRA_CHIPID 0x19\n",
    "TNSPEC 3701-------\nTNSPEC \nCOMPATIBLE_SPEC 2888--0004--1--x",
    "< POWER_MODEL ID=0 NAME=MAXN >\n< POWER_MODEL ID=0 NAME=MAXN >\n<<<>",
    "pmode:0000",
    "MemTotal:       7789568 kB\n",
    "MemTotal: 18446744073709551615 kB\n",
    "0-5\n",
    "0-4294967295\n",
    "CPU implementer\t: 0x41\nvendor_id : x\n",
    "ina3221\n",
    "ina238\n",
    "ina3221x\n",
    "-9223372036854775808\n",
    "9223372036854775807\n",
    "100000\n",
];

fn content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::sample::select(&TEXTS[..]).prop_map(|text| text.as_bytes().to_vec()),
        2 => (prop::sample::select(&TEXTS[..]), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(text, at, byte)| {
            let mut bytes = text.as_bytes().to_vec();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes
        }),
        2 => prop::collection::vec(any::<u8>(), 0..200),
        1 => ".{0,80}".prop_map(String::into_bytes),
    ]
}

/// Checks what holds of every detection.
fn check(found: &Detection) {
    for (key, source) in found.sources() {
        assert_eq!(source.is_none(), found.unknown.contains(&key), "{key}");
    }
    assert_eq!(found.rails.is_empty(), found.unknown.contains(&"rails"));
    if let Some(sku) = &found.sku {
        let profile = found.profile.as_ref().expect("a SKU comes with its profile").value;
        assert!(profile.module(&sku.value).is_some(), "{}", sku.value);
    }
    for rail in &found.rails {
        assert!(rail.power.is_some() || rail.unavailable.is_some(), "{rail:?}");
    }
    for zone in &found.thermal_zones {
        assert_ne!(zone.temperature.is_some(), zone.unavailable.is_some(), "{zone:?}");
    }
    let shown = found.conflicts.iter().chain(found.problems.iter().map(|problem| &problem.cause));
    for text in shown {
        assert!(!text.contains(char::is_control) && text.chars().count() < 2_000, "{text:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_file_makes_it_panic(files in prop::collection::btree_map(prop::sample::select(&PATHS[..]), content(), 0..25)) {
        let mut board = SyntheticBoard::empty();
        for (path, bytes) in &files {
            board = board.file(path, bytes);
        }
        check(&board.detect());
    }
}

#[test]
fn endless_long_and_looping_files_are_refused() {
    let long = vec![b'x'; FILE_BYTES_MAX as usize + 1];
    let mut board = SyntheticBoard::empty();
    for path in ["/etc/nv_tegra_release", "/proc/cpuinfo", "/etc/nvpmodel.conf"] {
        board = board.file(path, &long);
    }
    let board = board
        .link("/etc/nv_boot_control.conf", "/etc/b")
        .link("/etc/b", "/etc/nv_boot_control.conf")
        .link("/proc/meminfo", "/dev/zero")
        .link("/proc/device-tree", "/proc/device-tree")
        .link("/sys/class/hwmon", "..")
        .link("/sys/bus/i2c/devices/1-0040", "/sys/bus/i2c/devices")
        .fifo("/var/lib/nvpmodel/status");
    let found = board.detect();
    check(&found);
    let of = |path: &str| {
        let problem = found.problems.iter().find(|problem| problem.path == path);
        problem.map_or("", |problem| problem.cause.as_str())
    };
    assert_eq!(of("/etc/nv_tegra_release"), "is larger than 1 MiB");
    assert_eq!(of("/etc/nv_boot_control.conf"), "its symbolic links form a loop");
    // Links stay inside the board: its /dev/zero does not exist.
    assert_eq!(of("/proc/meminfo"), "does not exist");
    assert_eq!(of("/var/lib/nvpmodel/status"), "is not a regular file");
}

#[test]
fn a_folder_with_too_many_entries_is_cut() {
    let mut board = SyntheticBoard::empty();
    for number in 0..400 {
        board = board.file(&format!("/sys/class/hwmon/hwmon{number}/name"), "ina3221\n");
        board = board.file(&format!("/sys/class/hwmon/hwmon{number}/in1_input"), "1\n");
    }
    let found = board.detect();
    check(&found);
    assert!((1..=256).contains(&found.rails.len()), "{}", found.rails.len());
    let nowhere = detect(&Sysroot::at("/nonexistent/board"));
    check(&nowhere);
    assert_eq!(nowhere.is_jetson, None);
}
