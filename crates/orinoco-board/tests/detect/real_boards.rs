//! Ways in which real boards differ from the manual, as public reports have them. A detector that believes one file gets
//! these wrong.

use orinoco_board::{Detection, Fact};
use orinoco_core::{Amperes, Celsius, Watts};

use crate::builder::SyntheticBoard;

const NANO: [&str; 3] = ["nvidia,p3768-0000+p3767-0005", "nvidia,p3767-0005", "nvidia,tegra234"];
const NANO_MODEL: &str = "NVIDIA Jetson Orin Nano Developer Kit";
const NANO_SPEC: &str = "3767-300-0005-K.2-1-1-jetson-orin-nano-devkit-";

fn nano() -> SyntheticBoard {
    SyntheticBoard::jetson(NANO_MODEL, &NANO, 7_607, 6)
}

fn text(fact: &Option<Fact<String>>) -> Option<&str> {
    fact.as_ref().map(|fact| fact.value.as_str())
}

fn module(found: &Detection) -> (Option<&str>, Option<&str>, Option<&str>) {
    let profile = found.profile.as_ref().map(|fact| fact.value.name.as_str());
    (profile, text(&found.module), text(&found.sku))
}

/// Checks that exactly one contradiction is reported, with all of these parts.
fn check_conflict(found: &Detection, parts: &[&str]) {
    let [conflict] = &found.conflicts[..] else { panic!("one contradiction, not {:?}", found.conflicts) };
    for part in parts {
        assert!(conflict.contains(part), "{part} is not in: {conflict}");
    }
}

/// Checks that a problem is reported for a file, by its name.
fn check_problem(found: &Detection, path: &str, cause: &str) {
    let has = found.problems.iter().any(|problem| problem.path == path && problem.cause.contains(cause));
    assert!(has, "{path}: {cause} is not in {:?}", found.problems);
}

#[test]
fn model_strings_vary() {
    let orin_nx = ["nvidia,tegra234"];
    for (model, compatible, memory_mib, cpus, profile) in [
        ("NVIDIA Orin NX Developer Kit", &orin_nx[..], 15_656, 8, Some("orin-nx-16gb")),
        (
            "NVIDIA Jetson Orin NX Engineering Reference Developer Kit Super",
            &orin_nx,
            7_607,
            6,
            Some("orin-nx-8gb"),
        ),
        ("Orin Nano Developer Kit", &orin_nx, 3_420, 6, Some("orin-nano-4gb")),
        ("NVIDIA Jetson AGX Orin", &orin_nx, 62_841, 12, Some("agx-orin-64gb")),
        ("Jetson-AGX", &["nvidia,tegra194"], 15_000, 8, Some("agx-xavier")),
        ("quill", &["nvidia,tegra186"], 7_858, 6, Some("tx2")),
        (
            "NVIDIA Jetson Nano 2GB Developer Kit",
            &["nvidia,jetson-nano", "nvidia,tegra210"],
            1_979,
            4,
            Some("nano"),
        ),
        // The carrier is named, or nothing at all: the module is not known, and not guessed.
        ("NVIDIA P3768 Carrier", &orin_nx, 7_607, 6, None),
        ("Custom Vision Box", &orin_nx, 7_607, 6, None),
    ] {
        let found = SyntheticBoard::jetson(model, compatible, memory_mib, cpus).detect();
        assert_eq!(found.profile.as_ref().map(|fact| fact.value.name.as_str()), profile, "{model}");
        assert_eq!((found.conflicts.len(), text(&found.sku)), (0, None), "{model}");
        assert_eq!(found.is_jetson.map(|fact| fact.value), Some(true), "{model}");
    }
}

#[test]
fn what_holds_for_all_modules_that_fit_is_said() {
    // 32 GB and industrial modules differ only in their SKU.
    let found =
        SyntheticBoard::jetson("Jetson-AGX", &["nvidia,p2972-0000", "nvidia,tegra194"], 31_917, 8).detect();
    assert_eq!(module(&found), (Some("agx-xavier"), Some("Jetson AGX Xavier"), None));
}

#[test]
fn makers_name_their_carrier_in_different_places() {
    // Only in TNSPEC; the device tree is the developer kit's.
    let seeed = "3767-300-0005-H.2-1-0-recomputer-orin-j401-";
    let found = nano().boot_control(seeed, "0x23").detect();
    assert_eq!(text(&found.carrier), Some("recomputer-orin-j401"));
    check_conflict(
        &found,
        &["/etc/nv_boot_control.conf", "recomputer-orin-j401", "/proc/device-tree", "p3768-0000"],
    );
    // In the model.
    let own =
        SyntheticBoard::jetson("Seeed reComputer J4012", &["seeed,j4012", "nvidia,tegra234"], 15_656, 8);
    let found = own.boot_control("3767-300-0000-H.2-1-0-jetson-orin-nano-devkit-", "0x23").detect();
    assert_eq!(text(&found.carrier), Some("Seeed reComputer J4012"));
    assert_eq!(module(&found), (Some("orin-nx-16gb"), Some("Jetson Orin NX 16GB"), Some("p3767-0000")));
    // In a line of the release file.
    let line = "# R36 (release), REVISION: 4.3, GCID: 1, BOARD: generic, EABI: aarch64, DATE: 2025\n# BOARD_NAME: Hadron NGX027\n";
    let compatible = ["nvidia,p3767-0005", "nvidia,tegra234"];
    let found = SyntheticBoard::jetson(NANO_MODEL, &compatible, 7_607, 6)
        .file("/etc/nv_tegra_release", line)
        .detect();
    assert_eq!(text(&found.carrier), Some("Hadron NGX027"));
    assert_eq!((text(&found.l4t), found.conflicts.len()), (Some("36.4.3"), 0));
    // Nowhere: the developer kit's carrier.
    assert_eq!(text(&nano().boot_control(NANO_SPEC, "0x23").detect().carrier), Some("p3768-0000"));
}

#[test]
fn the_device_tree_may_be_that_of_another_module() {
    let tree = ["nvidia,p3768-0000+p3767-0000", "nvidia,p3767-0000", "nvidia,tegra234"];
    let model = "NVIDIA Jetson Orin NX Developer Kit";
    let board = || SyntheticBoard::jetson(model, &tree, 7_607, 6);
    // Memory, cores and TNSPEC decide.
    let found = board().boot_control("3767-300-0001-K.2-1-0-jetson-orin-nano-devkit-", "0x23").detect();
    assert_eq!(module(&found), (Some("orin-nx-8gb"), Some("Jetson Orin NX 8GB"), Some("p3767-0001")));
    check_conflict(&found, &["/proc/device-tree/compatible", "p3767-0000", "/proc/meminfo", "8 GB"]);
    // Without TNSPEC the model's name decides between those that fit, and no SKU is known.
    let found = board().detect();
    assert_eq!(module(&found), (Some("orin-nx-8gb"), Some("Jetson Orin NX 8GB"), None));
    assert!(found.unknown.contains(&"sku"));
    check_conflict(&found, &["p3767-0000 (Jetson Orin NX 16GB)", "7.4 GiB"]);
}

#[test]
fn cores_and_memory_may_contradict_the_rest() {
    // Booted with nr_cpus=4.
    let found = SyntheticBoard::jetson(NANO_MODEL, &NANO, 7_607, 4).boot_control(NANO_SPEC, "0x23").detect();
    assert_eq!(module(&found).2, Some("p3767-0005"));
    let by_name = "/etc/nv_boot_control.conf names p3767-0005 (Jetson Orin Nano 8GB)";
    check_conflict(&found, &["/sys/devices/system/cpu/possible gives 4 CPU cores", by_name]);
    // TNSPEC of an NX on a Nano by its device tree and cores: TNSPEC goes first.
    let found = nano().boot_control("3767-300-0001-K.2-1-0-jetson-orin-nano-devkit-", "0x23").detect();
    assert_eq!(module(&found).2, Some("p3767-0001"));
    assert_eq!(found.conflicts.len(), 2, "{:?}", found.conflicts);
    assert!(
        found.conflicts.iter().all(|text| text.contains("nv_boot_control.conf")),
        "{:?}",
        found.conflicts
    );
    // Another SoC.
    let found = nano().boot_control(NANO_SPEC, "0x19").detect();
    check_conflict(&found, &["tegra234", "tegra194", "/etc/nv_boot_control.conf"]);
}

#[test]
fn a_compatible_list_may_name_two_modules_or_carriers() {
    let two = ["nvidia,p3768-0000+p3767-0005", "nvidia,p3767-0003", "nvidia,tegra234"];
    let found = SyntheticBoard::jetson(NANO_MODEL, &two, 7_607, 6).detect();
    assert_eq!(module(&found), (Some("orin-nano-8gb"), Some("Jetson Orin Nano 8GB"), None));
    check_conflict(&found, &["several modules", "p3767-0005, p3767-0003"]);
    let carriers = ["nvidia,p3509-0000+p3767-0000", "nvidia,p3768-0000+p3767-0000", "nvidia,tegra234"];
    let found = SyntheticBoard::jetson("NVIDIA Jetson Orin NX", &carriers, 15_656, 8).detect();
    assert_eq!((text(&found.carrier), module(&found).2), (None, Some("p3767-0000")));
    check_conflict(&found, &["several carriers", "p3509-0000, p3768-0000"]);
}

#[test]
fn a_module_without_a_profile_is_not_taken_for_one_that_fits() {
    // TX2 NX: memory, cores and SoC are those of a TX2 4GB.
    let tree = ["nvidia,p3509-0000+p3636-0001", "nvidia,tegra186"];
    let found = SyntheticBoard::jetson("NVIDIA Jetson TX2 NX Developer Kit", &tree, 3_830, 6).detect();
    assert_eq!(module(&found), (None, None, None));
    check_problem(&found, "the device tree", "p3636-0001");
    // A SKU that does not exist yet, of a part that does.
    let tree = ["nvidia,p3768-0000+p3767-0009", "nvidia,p3767-0009", "nvidia,tegra234"];
    let found = SyntheticBoard::jetson("NVIDIA Jetson Orin Next", &tree, 7_607, 6).detect();
    assert_eq!(module(&found), (None, None, None));
}

#[test]
fn the_release_file_has_several_forms() {
    for (text_of_file, l4t, jetpack) in [
        (
            "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64, DATE: Wed Jan  8 01:49:37 UTC 2025",
            Some("36.4.3"),
            Some("6.2"),
        ),
        (
            "# R39 (release), REVISION: 2.1, GCID: 46758480, BOARD: generic, EABI: aarch64, DATE: Fri Aug 7 05:54:22 AM UTC 2026",
            Some("39.2.1"),
            Some("7.2.1"),
        ),
        (
            "\n\n# R35 (release), REVISION: 4.1, GCID: 1, BOARD: t186ref, EABI: aarch64, DATE: 2023-08-01\n# more",
            Some("35.4.1"),
            Some("5.1.2"),
        ),
        ("# R32 (release), REVISION: 5", Some("32.5"), Some("4.5")),
        ("# R99 (release), REVISION: 1.0, BOARD: generic", Some("99.1.0"), None),
        ("R36.4.3", None, None),
    ] {
        let found = nano().file("/etc/nv_tegra_release", text_of_file).detect();
        assert_eq!((text(&found.l4t), text(&found.jetpack)), (l4t, jetpack), "{text_of_file}");
        // BOARD: t186ref is not the board.
        assert_eq!(module(&found).0, Some("orin-nano-8gb"));
    }
    check_problem(
        &nano().file("/etc/nv_tegra_release", "R36.4.3").detect(),
        "/etc/nv_tegra_release",
        "names no release",
    );
}

#[test]
fn r39_runs_on_orin_and_on_thor() {
    let found = nano().release(39, "2.0", "6.8.12-1021-tegra").detect();
    assert_eq!((module(&found).0, text(&found.l4t)), (Some("orin-nano-8gb"), Some("39.2.0")));
    let tree = ["nvidia,p4071-0000+p3834-0008", "nvidia,p3834-0008", "nvidia,tegra264"];
    let found = SyntheticBoard::jetson("NVIDIA Jetson AGX Thor Developer Kit", &tree, 125_772, 14)
        .release(39, "2.0", "6.8.12-1021-tegra")
        .detect();
    assert_eq!((module(&found).0, text(&found.jetpack)), (Some("agx-thor-t5000"), Some("7.2")));
}

#[test]
fn in_a_container_the_release_may_be_missing() {
    let found = nano().file("/proc/sys/kernel/osrelease", "5.15.148-tegra\n").detect();
    assert_eq!((text(&found.l4t), text(&found.jetpack)), (None, None));
    assert!(found.unknown.contains(&"l4t") && found.unknown.contains(&"jetpack"));
    check_problem(&found, "/etc/nv_tegra_release", "does not exist");
    assert_eq!(module(&found).2, Some("p3767-0005"));
    // Without a device tree: a Jetson of unknown kind, by its kernel.
    let bare =
        SyntheticBoard::empty().file("/proc/sys/kernel/osrelease", "5.15.148-tegra\n").memory_mib(7_607);
    let found = bare.cpus(6).detect();
    let jetson = found.is_jetson.as_ref().expect("it is known");
    assert_eq!((jetson.value, jetson.source.as_str()), (true, "/proc/sys/kernel/osrelease"));
    assert_eq!(module(&found), (None, None, None));
    for key in ["module", "soc", "sku", "carrier", "l4t", "jetpack", "power_mode", "rails", "profile"] {
        assert!(found.unknown.contains(&key), "{key}");
    }
    // The package of the core. The list of packages of a real board is longer than what drivers write.
    let packages = "Package: base-files\nVersion: 12\n\nPackage: nvidia-l4t-core\nStatus: install ok installed\n\
        Version: 36.4.3-20250107174145\n";
    let long = "Package: filler\nVersion: 1\n\n".repeat(150_000) + packages;
    assert!(long.len() > 4 << 20);
    for packages in [packages, &long] {
        let found = nano().file("/var/lib/dpkg/status", packages).detect();
        assert_eq!(text(&found.l4t), Some("36.4.3"));
        assert!(found.problems.iter().all(|problem| problem.path != "/var/lib/dpkg/status"));
    }
    let found = nano().release(36, "4.4", "5.15.148-tegra").file("/var/lib/dpkg/status", packages).detect();
    check_conflict(&found, &["/etc/nv_tegra_release", "36.4.4", "/var/lib/dpkg/status", "36.4.3"]);
    // Nothing at all.
    let found = SyntheticBoard::empty().detect();
    assert_eq!((found.is_jetson, found.conflicts.len()), (None, 0));
    assert!(found.unknown.len() >= 15, "{:?}", found.unknown);
}

#[test]
fn the_boot_loader_may_be_older() {
    let bios = "/sys/class/dmi/id/bios_version";
    let found = nano().release(36, "4.3", "5.15.148-tegra").file(bios, "36.3.0-gcid-36106755\n").detect();
    assert_eq!((text(&found.l4t), text(&found.boot_loader)), (Some("36.4.3"), Some("36.3.0")));
    check_conflict(&found, &["/etc/nv_tegra_release", "36.4.3", bios, "36.3.0"]);
    let found = nano().release(36, "4.3", "5.15.148-tegra").file(bios, "36.4.3-gcid-38968081\n").detect();
    assert_eq!(found.conflicts, Vec::<String>::new());
}

#[test]
fn tnspec_has_empty_fields_blanks_and_no_fixed_line() {
    let file = "TEGRA_CHIPID 0x23\nTEGRA_EMMC_ONLY false\nCOMPATIBLE_SPEC 3767--0005--1--jetson-orin-nano-devkit-  \n\
        TNSPEC   3767-300-0005-K.2-1-1-jetson-orin-nano-devkit-   \nTEGRA_OTA_GPT_DEVICE /dev/mtdblock0      \n";
    let board = |text: &str| nano().file("/etc/nv_boot_control.conf", text).detect();
    let found = board(file);
    assert_eq!((module(&found).2, text(&found.carrier)), (Some("p3767-0005"), Some("p3768-0000")));
    assert_eq!(found.conflicts, Vec::<String>::new());
    check_problem(&board("TNSPEC nothing-at-all\n"), "/etc/nv_boot_control.conf", "names no board");
    check_problem(&board("TEGRA_CHIPID 0x23\n"), "/etc/nv_boot_control.conf", "has no TNSPEC");
    let twice = "TNSPEC 3767-300-0005-K.2-1-1-jetson-orin-nano-devkit-\nTNSPEC 3767-300-0003-K.2-1-1-jetson-orin-nano-devkit-\n";
    let found = board(twice);
    assert!(found.conflicts.iter().any(|text| text.contains("several boards")), "{:?}", found.conflicts);
}

#[test]
fn power_modes_go_by_name() {
    // MAXN_SUPER is 2 on a Nano, 0 on an NX, and a maker added a mode.
    for (modes, current, name) in [
        (&[(0, "15W"), (1, "25W"), (2, "MAXN_SUPER"), (3, "7W")][..], 2, "MAXN_SUPER"),
        (&[(0, "MAXN_SUPER"), (1, "10W")], 0, "MAXN_SUPER"),
        (&[(0, "MAXN"), (4, "40W_FANLESS")], 4, "40W_FANLESS"),
    ] {
        let found = nano().power_modes(modes, current).detect();
        let mode = found.power_mode.expect("a mode").value;
        assert_eq!((mode.id, mode.name.as_str()), (current, name));
        assert_eq!(found.power_modes.len(), modes.len());
    }
    let found = nano().power_modes(&[(0, "15W")], 7).detect();
    assert_eq!(found.power_mode, None);
    check_conflict(&found, &["/var/lib/nvpmodel/status", "mode 7", "/etc/nvpmodel.conf"]);
    // The default of the configuration is not the mode that is set.
    let found = nano().power_modes(&[(0, "15W")], 0).without("/var/lib/nvpmodel").detect();
    assert!(found.power_mode.is_none() && found.unknown.contains(&"power_mode"));
    check_problem(&found, "/var/lib/nvpmodel/status", "does not exist");
}

#[test]
fn sensors_are_found_on_any_bus_and_under_any_number() {
    let rails = [("VDD_IN", 5_032, 1_184), ("VDD_CPU_GPU_CV", 5_024, 320), ("VDD_SOC", 5_024, -8)];
    for (hwmon, i2c) in [(0, "1-0040"), (7, "2-0041"), (31, "7-0040")] {
        let found = nano().ina3221(hwmon, i2c, &rails).detect();
        assert_eq!(found.rails.len(), 3, "channels 4 to 7 are no rails");
        let places: Vec<(String, u32)> =
            found.rails.iter().map(|rail| (rail.i2c.expect("a place").to_string(), rail.channel)).collect();
        assert_eq!(places, [1, 2, 3].map(|channel| (i2c.to_owned(), channel)));
        assert_eq!(found.rails[0].power, Some(Watts::from_micro(5_957_888)));
        assert_eq!(found.rails[2].current, Some(Amperes::from_milli(-8)));
        assert_eq!(text(&found.total_rail), Some("VDD_IN"));
        assert!(found.total_covers.expect("it is said").value.contains("carrier is not measured"));
    }
}

#[test]
fn a_limit_that_nobody_set_is_none() {
    let folder = "/sys/devices/platform/bus@0/c240000.i2c/i2c-1/1-0040/hwmon/hwmon1";
    let board = || nano().ina3221(1, "1-0040", &[("VDD_IN", 5_000, 1_000)]);
    let found = board().detect();
    assert_eq!((found.rails[0].warning, found.rails[0].critical), (None, None));
    let found = board().file(&format!("{folder}/curr1_crit"), "7000\n").detect();
    assert_eq!((found.rails[0].warning, found.rails[0].critical), (None, Some(Amperes::from_units(7))));
}

#[test]
fn a_sensor_without_a_label_measures_the_whole_input() {
    let thor = ["nvidia,p4071-0000+p3834-0008", "nvidia,p3834-0008", "nvidia,tegra264"];
    let rails = [("VDD_GPU", 27_000, 100), ("VDD_CPU_SOC_MSS", 27_000, 240), ("VIN_SYS_5V0", 4_960, 1_200)];
    let board = SyntheticBoard::jetson("NVIDIA Jetson AGX Thor Developer Kit", &thor, 125_772, 14);
    let found = board.ina3221(6, "2-0040", &rails).ina238(5, "2-0044", 19_700, 3_000).detect();
    let total =
        found.rails.iter().find(|rail| rail.name.as_deref() == Some("VIN")).expect("the profile names it");
    // The sensor's own power, in microwatts.
    assert_eq!((total.power, total.chip.as_str()), (Some(Watts::from_milli(59_100)), "ina238"));
    assert_eq!(text(&found.total_rail), Some("VIN"));
    // On a board without such a sensor in its profile it is the total all the same, and has no name of ours.
    let agx = ["nvidia,p3737-0000+p3701-0005", "nvidia,p3701-0005", "nvidia,tegra234"];
    let board = SyntheticBoard::jetson("NVIDIA Jetson AGX Orin", &agx, 62_841, 12);
    let found = board
        .ina3221(1, "1-0040", &[("VDD_GPU_SOC", 19_800, 300)])
        .ina238(2, "1-0044", 19_800, 3_000)
        .detect();
    assert_eq!(text(&found.total_rail), Some("ina238 at 1-0044, channel 1"));
    assert!(found.total_covers.expect("it is said").value.contains("whole input"));
}

#[test]
fn agx_orin_has_no_total_and_says_so() {
    let agx = ["nvidia,p3737-0000+p3701-0005", "nvidia,p3701-0005", "nvidia,tegra234"];
    let board = SyntheticBoard::jetson("NVIDIA Jetson AGX Orin Developer Kit", &agx, 62_841, 12);
    // 26 W in the rails, where a meter at the supply shows 60 W.
    let rails = [("VDD_GPU_SOC", 19_800, 900), ("VDD_CPU_CV", 19_800, 200), ("VIN_SYS_5V0", 5_000, 850)];
    let found = board.ina3221(1, "1-0040", &rails).detect();
    assert_eq!(found.total_rail, None);
    assert!(found.unknown.contains(&"total_rail"));
    let covers = found.total_covers.expect("it is said").value;
    assert!(covers.contains("No rail measures the whole input") && covers.contains("meter"), "{covers}");
}

#[test]
fn rails_of_r32_are_under_iio() {
    let board = SyntheticBoard::jetson("NVIDIA Jetson Nano Developer Kit", &["nvidia,tegra210"], 3_956, 4);
    let found = board.iio(0, "6-0040", &[("POM_5V_IN", 5_064, 480), ("POM_5V_GPU", 5_064, 0)]).detect();
    let rail = &found.rails[0];
    assert_eq!((rail.name.as_deref(), rail.channel, rail.chip.as_str()), (Some("POM_5V_IN"), 1, "ina3221x"));
    assert_eq!(
        (rail.i2c.expect("a place").to_string().as_str(), rail.power),
        ("6-0040", Some(Watts::from_milli(2_430)))
    );
    assert_eq!((found.rails.len(), rail.warning), (2, None));
}

#[test]
fn a_sensor_that_gives_no_value_is_unknown_and_not_zero() {
    let board = nano().ina3221(1, "1-0040", &[("VDD_IN", 5_000, 1_000)]);
    let folder = "/sys/devices/platform/bus@0/c240000.i2c/i2c-1/1-0040/hwmon/hwmon1";
    let current = format!("{folder}/curr1_input");
    let found = board.without(&current).fifo(&current).detect();
    let rail = &found.rails[0];
    assert_eq!((rail.current, rail.power), (None, None));
    assert!(
        rail.voltage.is_some() && rail.unavailable.as_deref().is_some_and(|why| why.starts_with("current"))
    );
}

#[test]
fn zones_may_have_no_value_or_one_that_means_nothing() {
    let zones = [
        ("CPU-therm", Some(36_500)),
        ("gpu-thermal", None),
        ("PMIC-Die", Some(100_000)),
        ("odd", Some(-9_999_999)),
    ];
    let found = nano().thermal(&zones).detect();
    let temperatures: Vec<Option<Celsius>> =
        found.thermal_zones.iter().map(|zone| zone.temperature).collect();
    assert_eq!(temperatures, [Some(Celsius::from_milli(36_500)), None, None, None]);
    assert!(found.thermal_zones[1..].iter().all(|zone| zone.unavailable.is_some()));
    assert!(found.thermal_zones[2].unavailable.as_deref().is_some_and(|why| why.contains("100 degrees")));
}

#[test]
fn wrong_files_are_reported_by_name() {
    let meminfo = nano().file("/proc/meminfo", "MemTotal: much kB\n").detect();
    check_problem(&meminfo, "/proc/meminfo", "gives no size");
    assert!(meminfo.memory_gib.is_none() && meminfo.unknown.contains(&"memory_gb"));
    let cpus = nano().file("/sys/devices/system/cpu/possible", "all\n").detect();
    check_problem(&cpus, "/sys/devices/system/cpu/possible", "no list of CPUs");
    let binary = nano().file("/etc/nv_tegra_release", [0xff, 0x00, 0x80]).detect();
    check_problem(&binary, "/etc/nv_tegra_release", "not UTF-8");
    let empty = nano().file("/etc/nvpmodel.conf", "").detect();
    check_problem(&empty, "/etc/nvpmodel.conf", "is empty");
    let status =
        nano().power_modes(&[(0, "15W")], 0).file("/var/lib/nvpmodel/status", "mode fast\n").detect();
    check_problem(&status, "/var/lib/nvpmodel/status", "names no mode: mode fast");
}

#[test]
fn files_of_a_jetson_on_another_machine_are_a_contradiction() {
    let board = SyntheticBoard::empty().file("/proc/cpuinfo", "vendor_id\t: GenuineIntel\n");
    let found = board.release(36, "4.3", "6.1.0-28-amd64").detect();
    assert_eq!(found.is_jetson.as_ref().map(|fact| fact.value), Some(false));
    check_conflict(&found, &["/etc/nv_tegra_release", "/proc/cpuinfo"]);
}

#[test]
fn the_serial_number_is_not_read() {
    let shown = format!("{:?}", nano().boot_control(NANO_SPEC, "0x23").detect());
    assert!(shown.contains("p3767-0005") && !shown.contains("1421234567890"));
}

#[test]
fn every_answer_names_its_source() {
    let found = nano()
        .release(36, "4.3", "5.15.148-tegra")
        .boot_control(NANO_SPEC, "0x23")
        .power_modes(&[(0, "15W")], 0)
        .ina3221(1, "1-0040", &[("VDD_IN", 5_000, 1_000)])
        .detect();
    for (key, source) in found.sources() {
        let is_unknown = found.unknown.contains(&key);
        assert_eq!(source.is_none(), is_unknown, "{key}");
        assert!(
            source.is_none_or(|source| source.starts_with('/') || source.starts_with("profile ")),
            "{key} {source:?}"
        );
    }
    assert_eq!(found.unknown, ["boot_loader"], "{:?}", found.problems);
}
