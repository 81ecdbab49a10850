//! One synthetic board for each profile, by its public description. Names and numbers of rails, zones and modes come from
//! the sources that the profile names; the readings are made up.

use orinoco_board::{BoardKind, Detection, profiles};

use crate::builder::{Channel, SyntheticBoard};

/// Answers that a board must give.
struct Expected<'a> {
    profile: &'a str,
    module: &'a str,
    sku: Option<&'a str>,
    soc: &'a str,
    carrier: &'a str,
    memory_gib: f64,
    l4t: &'a str,
    jetpack: &'a str,
    power_mode: &'a str,
    rails: &'a [&'a str],
    total: Option<&'a str>,
}

fn check(board: &SyntheticBoard, expected: &Expected<'_>) {
    let found = board.detect();
    let name = expected.profile;
    assert_eq!(found.conflicts, Vec::<String>::new(), "{name}");
    assert_eq!(found.is_jetson.as_ref().map(|fact| fact.value), Some(true), "{name}");
    assert_eq!(
        found.profile.as_ref().map(|fact| fact.value.name.as_str()),
        Some(name),
        "{:?}",
        found.problems
    );
    assert_eq!(text(&found.module), Some(expected.module), "{name}");
    assert_eq!(text(&found.sku), expected.sku, "{name}");
    assert_eq!(text(&found.soc), Some(expected.soc), "{name}");
    assert_eq!(text(&found.carrier), Some(expected.carrier), "{name}");
    assert_eq!(found.memory_gib.as_ref().map(|fact| fact.value), Some(expected.memory_gib), "{name}");
    assert_eq!(text(&found.l4t), Some(expected.l4t), "{name}");
    assert_eq!(text(&found.jetpack), Some(expected.jetpack), "{name}");
    let mode = found.power_mode.as_ref().map(|fact| fact.value.name.as_str());
    assert_eq!(mode, Some(expected.power_mode), "{name}");
    assert_eq!(rail_names(&found), expected.rails, "{name}");
    assert_eq!(text(&found.total_rail), expected.total, "{name}");
    assert!(found.total_covers.is_some(), "{name}");
    check_against_profile(&found);
}

/// Rails, zones and the power mode of a board must be those of its profile.
fn check_against_profile(found: &Detection) {
    let profile = found.profile.as_ref().expect("a profile").value;
    for rail in &found.rails {
        let i2c = rail.i2c.expect("a place");
        let known = profile.rails.iter().find(|known| Some(&known.name) == rail.name.as_ref());
        let known = known.unwrap_or_else(|| panic!("{} has no rail {:?}", profile.name, rail.name));
        assert_eq!((known.address, known.channel), (i2c.address, rail.channel), "{}", known.name);
        assert!(known.bus.is_none_or(|bus| bus == i2c.bus), "{}", known.name);
        assert_eq!(known.chip, rail.chip, "{}", known.name);
        assert!(rail.power.is_some() && rail.unavailable.is_none(), "{rail:?}");
        assert_eq!((rail.warning, rail.critical), (None, None), "limits that nobody set");
    }
    for zone in &found.thermal_zones {
        let mut names =
            profile.thermal_zones.iter().flat_map(|zone| zone.other_names.iter().chain([&zone.name]));
        assert!(names.any(|name| *name == zone.name), "{} has no zone {}", profile.name, zone.name);
    }
    let mode = &found.power_mode.as_ref().expect("a mode").value;
    let known = profile.power_modes.iter().find(|known| known.name == mode.name);
    assert!(known.is_some(), "{} has no mode {}", profile.name, mode.name);
}

fn text(fact: &Option<orinoco_board::Fact<String>>) -> Option<&str> {
    fact.as_ref().map(|fact| fact.value.as_str())
}

fn rail_names(found: &Detection) -> Vec<&str> {
    found.rails.iter().map(|rail| rail.name.as_deref().unwrap_or("-")).collect()
}

const NANO_RAILS: [Channel<'_>; 3] =
    [("VDD_IN", 5032, 1184), ("VDD_CPU_GPU_CV", 5024, 320), ("VDD_SOC", 5024, 288)];
const AGX_RAILS: [Channel<'_>; 3] =
    [("VDD_GPU_SOC", 19_864, 160), ("VDD_CPU_CV", 19_864, 40), ("VIN_SYS_5V0", 5040, 800)];
const AGX_MEMORY: [Channel<'_>; 3] = [("NC", 0, 0), ("VDDQ_VDD2_1V8AO", 5040, 120), ("NC", 0, 0)];
const NANO_NAMES: [&str; 3] = ["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"];
const AGX_NAMES: [&str; 4] = ["VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0", "VDDQ_VDD2_1V8AO"];
const ORIN_ZONES: [(&str, Option<i64>); 9] = [
    ("cpu-thermal", Some(47_531)),
    ("gpu-thermal", Some(46_812)),
    ("cv0-thermal", None),
    ("cv1-thermal", None),
    ("cv2-thermal", None),
    ("soc0-thermal", Some(45_000)),
    ("soc1-thermal", Some(46_000)),
    ("soc2-thermal", Some(46_500)),
    ("tj-thermal", Some(47_531)),
];

/// Orin NX or Nano on NVIDIA's carrier P3768.
fn orin(model: &str, sku: &str, memory_mib: u64, cpus: u32) -> SyntheticBoard {
    let pair = format!("nvidia,p3768-0000+{sku}-super");
    let module = format!("nvidia,{sku}");
    SyntheticBoard::jetson(model, &[&pair, &module, "nvidia,tegra234"], memory_mib, cpus)
        .release(36, "4.3", "5.15.148-tegra")
        .boot_control(&format!("3767-300-{}-S.1-1-1-jetson-orin-nano-devkit-super-", &sku[6..]), "0x23")
        .ina3221(1, "1-0040", &NANO_RAILS)
        .thermal(&ORIN_ZONES)
}

fn agx_orin(sku: &str, memory_mib: u64, cpus: u32) -> SyntheticBoard {
    let pair = format!("nvidia,p3737-0000+{sku}");
    let module = format!("nvidia,{sku}");
    let model = "NVIDIA Jetson AGX Orin Developer Kit";
    SyntheticBoard::jetson(model, &[&pair, &module, "nvidia,tegra234"], memory_mib, cpus)
        .release(36, "4.4", "5.15.148-tegra")
        .boot_control(&format!("3701-500-{}-J.0-1-1-jetson-agx-orin-devkit-", &sku[6..]), "0x23")
        .ina3221(3, "1-0040", &AGX_RAILS)
        .ina3221(4, "1-0041", &AGX_MEMORY)
        .thermal(&ORIN_ZONES)
}

const AGX_MODES: [(u32, &str); 4] = [(0, "MAXN"), (1, "MODE_15W"), (2, "MODE_30W"), (3, "MODE_50W")];

#[test]
fn agx_orin_64gb() {
    check(
        &agx_orin("p3701-0005", 62_841, 12).power_modes(&AGX_MODES, 2),
        &Expected {
            profile: "agx-orin-64gb",
            module: "Jetson AGX Orin 64GB",
            sku: Some("p3701-0005"),
            soc: "tegra234",
            carrier: "p3737-0000",
            memory_gib: 64.0,
            l4t: "36.4.4",
            jetpack: "6.2.1",
            power_mode: "MODE_30W",
            rails: &AGX_NAMES,
            total: None,
        },
    );
}

#[test]
fn agx_orin_32gb() {
    let modes = [(0, "MAXN"), (1, "MODE_15W"), (2, "MODE_30W"), (3, "MODE_40W")];
    check(
        &agx_orin("p3701-0004", 30_697, 8).power_modes(&modes, 3),
        &Expected {
            profile: "agx-orin-32gb",
            module: "Jetson AGX Orin 32GB",
            sku: Some("p3701-0004"),
            soc: "tegra234",
            carrier: "p3737-0000",
            memory_gib: 32.0,
            l4t: "36.4.4",
            jetpack: "6.2.1",
            power_mode: "MODE_40W",
            rails: &AGX_NAMES,
            total: None,
        },
    );
}

#[test]
fn agx_orin_of_the_first_developer_kit() {
    check(
        &agx_orin("p3701-0000", 30_697, 12).power_modes(&AGX_MODES, 0),
        &Expected {
            profile: "agx-orin-devkit-32gb",
            module: "Jetson AGX Orin Developer Kit 32GB",
            sku: Some("p3701-0000"),
            soc: "tegra234",
            carrier: "p3737-0000",
            memory_gib: 32.0,
            l4t: "36.4.4",
            jetpack: "6.2.1",
            power_mode: "MAXN",
            rails: &AGX_NAMES,
            total: None,
        },
    );
}

#[test]
fn orin_nx_and_orin_nano() {
    let nx = "NVIDIA Jetson Orin NX Engineering Reference Developer Kit Super";
    let nano = "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super";
    let super_modes = [(0, "MAXN_SUPER"), (1, "10W"), (2, "15W"), (3, "25W"), (4, "40W")];
    let nx_8_modes = [(0, "MAXN_SUPER"), (1, "10W"), (2, "15W"), (3, "20W"), (4, "40W")];
    let nano_modes = [(0, "15W"), (1, "25W"), (2, "MAXN_SUPER"), (3, "7W")];
    let small_modes = [(0, "10W"), (1, "25W"), (2, "MAXN_SUPER")];
    // MAXN_SUPER is 0 on an NX and 2 on a Nano.
    for (profile, module, sku, model, memory_mib, cpus, modes, current, mode) in [
        (
            "orin-nx-16gb",
            "Jetson Orin NX 16GB",
            "p3767-0000",
            nx,
            15_656,
            8,
            &super_modes[..],
            0,
            "MAXN_SUPER",
        ),
        ("orin-nx-8gb", "Jetson Orin NX 8GB", "p3767-0001", nx, 7_607, 6, &nx_8_modes[..], 4, "40W"),
        (
            "orin-nano-8gb",
            "Jetson Orin Nano 8GB",
            "p3767-0005",
            nano,
            7_607,
            6,
            &nano_modes[..],
            2,
            "MAXN_SUPER",
        ),
        ("orin-nano-8gb", "Jetson Orin Nano 8GB", "p3767-0003", nano, 7_607, 6, &nano_modes[..], 3, "7W"),
        ("orin-nano-4gb", "Jetson Orin Nano 4GB", "p3767-0004", nano, 3_420, 6, &small_modes[..], 1, "25W"),
    ] {
        check(
            &orin(model, sku, memory_mib, cpus).power_modes(modes, current),
            &Expected {
                profile,
                module,
                sku: Some(sku),
                soc: "tegra234",
                carrier: "p3768-0000",
                memory_gib: if memory_mib > 8192 {
                    16.0
                } else if memory_mib > 4096 {
                    8.0
                } else {
                    4.0
                },
                l4t: "36.4.3",
                jetpack: "6.2",
                power_mode: mode,
                rails: &NANO_NAMES,
                total: Some("VDD_IN"),
            },
        );
    }
}

const XAVIER_ZONES: [(&str, Option<i64>); 4] = [
    ("CPU-therm", Some(36_500)),
    ("GPU-therm", Some(35_000)),
    ("AUX-therm", Some(35_500)),
    ("PMIC-Die", Some(100_000)),
];

#[test]
fn agx_xavier() {
    let first = [("GPU", 19_200, 40), ("CPU", 19_200, 40), ("SOC", 19_200, 90)];
    let second = [("CV", 19_200, 0), ("VDDRQ", 19_200, 20), ("SYS5V", 19_200, 100)];
    let modes = [(0, "MAXN"), (1, "MODE_10W"), (2, "MODE_15W"), (3, "MODE_30W_ALL")];
    let mut board =
        SyntheticBoard::jetson("Jetson-AGX", &["nvidia,p2972-0000", "nvidia,tegra194"], 31_917, 8)
            .release(32, "7.1", "4.9.253-tegra")
            .boot_control("2888-400-0004-M.0-1-2-jetson-xavier-mmcblk0p1", "0x19")
            .iio(0, "1-0040", &first)
            .iio(1, "1-0041", &second)
            .thermal(&XAVIER_ZONES)
            .power_modes(&modes, 3);
    let mut expected = Expected {
        profile: "agx-xavier",
        module: "Jetson AGX Xavier 32GB",
        sku: Some("p2888-0004"),
        soc: "tegra194",
        carrier: "p2972-0000",
        memory_gib: 32.0,
        l4t: "32.7.1",
        jetpack: "4.6.1",
        power_mode: "MODE_30W_ALL",
        rails: &["GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"],
        total: None,
    };
    // The driver of R32 is called ina3221x; the profile has the sensor's name.
    let found = board.detect();
    assert!(found.rails.iter().all(|rail| rail.chip == "ina3221x"), "{:?}", found.rails);
    board = board.without("/sys/bus/iio").ina3221(0, "1-0040", &first).ina3221(1, "1-0041", &second);
    board = board
        .without("/sys/devices/platform/bus@0/c240000.i2c/i2c-1/1-0040/iio:device0")
        .without("/sys/devices/platform/bus@0/c240000.i2c/i2c-1/1-0041/iio:device1")
        .without("/sys/bus/i2c/drivers");
    check(&board.release(35, "4.1", "5.10.120-tegra"), &{
        expected.l4t = "35.4.1";
        expected.jetpack = "5.1.2";
        expected
    });
}

#[test]
fn xavier_nx() {
    let modes = [(0, "MODE_15W_2CORE"), (8, "MODE_20W_6CORE")];
    let compatible = ["nvidia,p3509-0000+p3668-0001", "nvidia,tegra194"];
    check(
        &SyntheticBoard::jetson("NVIDIA Jetson Xavier NX Developer Kit", &compatible, 6_857, 6)
            .release(35, "6.0", "5.10.216-tegra")
            .boot_control("3668-300-0001-G.0-1-2-jetson-xavier-nx-devkit-emmc-mmcblk0p1", "0x19")
            .ina3221(5, "7-0040", &NANO_RAILS)
            .thermal(&XAVIER_ZONES)
            .power_modes(&modes, 8),
        &Expected {
            profile: "xavier-nx",
            module: "Jetson Xavier NX 8GB",
            sku: Some("p3668-0001"),
            soc: "tegra194",
            carrier: "p3509-0000",
            memory_gib: 8.0,
            l4t: "35.6.0",
            jetpack: "5.1.4",
            power_mode: "MODE_20W_6CORE",
            rails: &NANO_NAMES,
            total: Some("VDD_IN"),
        },
    );
}

#[test]
fn tx2() {
    let first = [("VDD_SYS_GPU", 19_176, 10), ("VDD_SYS_SOC", 19_176, 30), ("VDD_4V0_WIFI", 4_800, 0)];
    let second = [("VDD_IN", 19_176, 120), ("VDD_SYS_CPU", 19_176, 10), ("VDD_SYS_DDR", 19_176, 20)];
    let modes =
        [(0, "MAXN"), (1, "MAXQ"), (2, "MAXP_CORE_ALL"), (3, "MAXP_CORE_ARM"), (4, "MAXP_CORE_DENVER")];
    check(
        &SyntheticBoard::jetson("quill", &["nvidia,p2597-0000+p3310-1000", "nvidia,tegra186"], 7_858, 6)
            .release(32, "7.6", "4.9.337-tegra")
            .iio(0, "0-0040", &first)
            .iio(1, "0-0041", &second)
            .thermal(&[("BCPU-therm", Some(33_000)), ("PMIC-Die", Some(100_000))])
            .power_modes(&modes, 3),
        &Expected {
            profile: "tx2",
            module: "Jetson TX2",
            sku: Some("p3310-1000"),
            soc: "tegra186",
            carrier: "p2597-0000",
            memory_gib: 8.0,
            l4t: "32.7.6",
            jetpack: "4.6.6",
            power_mode: "MAXP_CORE_ARM",
            rails: &["VDD_SYS_GPU", "VDD_SYS_SOC", "VDD_4V0_WIFI", "VDD_IN", "VDD_SYS_CPU", "VDD_SYS_DDR"],
            total: Some("VDD_IN"),
        },
    );
}

#[test]
fn nano() {
    let compatible = ["nvidia,p3449-0000-b00+p3448-0000-b00", "nvidia,jetson-nano", "nvidia,tegra210"];
    check(
        &SyntheticBoard::jetson("NVIDIA Jetson Nano Developer Kit", &compatible, 3_956, 4)
            .release(32, "7.1", "4.9.253-tegra")
            .boot_control("3448-300-0000-K.0-1-0-jetson-nano-qspi-sd-mmcblk0p1", "0x21")
            .iio(
                0,
                "6-0040",
                &[("POM_5V_IN", 5_064, 480), ("POM_5V_GPU", 5_064, 16), ("POM_5V_CPU", 5_064, 96)],
            )
            .thermal(&[("AO-therm", Some(41_500)), ("CPU-therm", Some(34_000)), ("PMIC-Die", Some(100_000))])
            .power_modes(&[(0, "MAXN"), (1, "5W")], 1),
        &Expected {
            profile: "nano",
            module: "Jetson Nano 4GB",
            sku: Some("p3448-0000"),
            soc: "tegra210",
            carrier: "p3449-0000",
            memory_gib: 4.0,
            l4t: "32.7.1",
            jetpack: "4.6.1",
            power_mode: "5W",
            rails: &["POM_5V_IN", "POM_5V_GPU", "POM_5V_CPU"],
            total: Some("POM_5V_IN"),
        },
    );
}

#[test]
fn agx_thor() {
    let rails = [("VDD_GPU", 27_000, 0), ("VDD_CPU_SOC_MSS", 27_000, 240), ("VIN_SYS_5V0", 4_960, 1_200)];
    let modes = [(0, "MAXN"), (1, "120W"), (2, "90W"), (3, "70W")];
    for (profile, module, sku, memory_mib, cpus, mode) in [
        ("agx-thor-t5000", "Jetson T5000", "p3834-0008", 125_772, 14, 1),
        ("agx-thor-t4000", "Jetson T4000", "p3834-0000", 61_900, 12, 0),
    ] {
        let pair = format!("nvidia,p4071-0000+{sku}");
        let own = format!("nvidia,{sku}");
        let compatible = [pair.as_str(), own.as_str(), "nvidia,tegra264"];
        check(
            &SyntheticBoard::jetson("NVIDIA Jetson AGX Thor Developer Kit", &compatible, memory_mib, cpus)
                .release(38, "4.0", "6.8.12-tegra")
                .ina3221(6, "2-0040", &rails)
                .ina238(5, "2-0044", 19_700, 1_350)
                .thermal(&[
                    ("cpu-thermal", Some(53_700)),
                    ("gpu-thermal", None),
                    ("tj-thermal", Some(55_100)),
                ])
                .power_modes(&modes, mode),
            &Expected {
                profile,
                module,
                sku: Some(sku),
                soc: "tegra264",
                carrier: "p4071-0000",
                memory_gib: if cpus == 14 { 128.0 } else { 64.0 },
                l4t: "38.4.0",
                jetpack: "7.1",
                power_mode: modes[mode as usize].1,
                rails: &["VDD_GPU", "VDD_CPU_SOC_MSS", "VIN_SYS_5V0", "VIN"],
                total: Some("VIN"),
            },
        );
    }
}

/// Checks a machine that is no Jetson.
fn check_other(board: &SyntheticBoard, profile: Option<&str>) -> Detection {
    let found = board.detect();
    assert_eq!(found.is_jetson.as_ref().map(|fact| fact.value), Some(false), "{found:?}");
    assert_eq!(found.profile.as_ref().map(|fact| fact.value.name.as_str()), profile);
    assert_eq!(found.conflicts, Vec::<String>::new());
    for key in ["module", "sku", "carrier", "l4t", "jetpack", "power_mode"] {
        assert!(found.unknown.contains(&key), "{key}");
    }
    found
}

#[test]
fn a_development_host() {
    let board = SyntheticBoard::empty()
        .file("/proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\n")
        .memory_mib(24_050)
        .cpus(2)
        .file("/proc/sys/kernel/osrelease", "6.1.0-28-amd64\n")
        .file("/sys/class/dmi/id/sys_vendor", "Dell Inc.\n")
        .file("/sys/class/dmi/id/product_name", "OptiPlex 7090\n")
        .file("/sys/class/hwmon/hwmon0/name", "coretemp\n");
    let found = check_other(&board, Some("devhost"));
    assert_eq!(text(&found.model), Some("Dell Inc. OptiPlex 7090"));
    assert_eq!(found.memory_gib.map(|fact| fact.value), Some(23.5));
    assert_eq!((found.cpus.map(|fact| fact.value), found.rails.len()), (Some(2), 0));
}

#[test]
fn a_host_with_energy_counters_lists_them() {
    let counter = |board: SyntheticBoard, number: &str, name: &str| {
        board.file(&format!("/sys/class/powercap/intel-rapl:{number}/name"), format!("{name}\n"))
    };
    let host = SyntheticBoard::empty().file("/proc/cpuinfo", "vendor_id\t: GenuineIntel\n");
    let host = counter(counter(host, "0", "package-0"), "0:0", "core");
    let host = host.file("/sys/class/powercap/intel-rapl:0/energy_uj", "5000\n");
    let found = host.detect();
    let counters: Vec<String> = found
        .energy_counters
        .iter()
        .map(|of| format!("{} {} {:?}", of.name, of.source, of.unavailable))
        .collect();
    assert_eq!(
        counters,
        [
            "package-0 /sys/class/powercap/intel-rapl:0 None",
            "package-0/core /sys/class/powercap/intel-rapl:0:0 Some(\"does not exist\")"
        ]
    );
    assert!(found.rails.is_empty(), "counters of a processor are no rails of a board");
    assert!(found.total_covers.expect("a host has a profile").value.contains("RAPL"));
}

#[test]
fn a_server_with_an_arm_processor() {
    let board = SyntheticBoard::empty()
        .file("/proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\n")
        .memory_mib(490_000)
        .cpus(72)
        .file("/proc/sys/kernel/osrelease", "6.8.0-1010-nvidia-64k\n")
        .file("/sys/firmware/acpi/tables/APIC", "APIC")
        .file("/sys/class/dmi/id/sys_vendor", "Supermicro\n")
        .file("/sys/class/dmi/id/product_name", "ARS-111GL-NHR\n")
        .file(
            "/proc/driver/nvidia/gpus/0009:01:00.0/information",
            "Model: \t\t NVIDIA GH200 480GB\nIRQ: 1\n",
        );
    let found = check_other(&board, Some("sbsa"));
    assert_eq!(found.gpus[0].value, "NVIDIA GH200 480GB");
    assert_eq!(found.memory_gib.map(|fact| fact.value), Some(478.5));
}

#[test]
fn an_emulated_board_and_a_board_of_another_maker() {
    let board = SyntheticBoard::jetson("Virtual Edge Board", &["linux,dummy-virt"], 498, 4)
        .file("/proc/sys/kernel/osrelease", "6.1.0-28-arm64\n")
        .ina3221(0, "0-0040", &NANO_RAILS);
    let found = check_other(&board, Some("virtual"));
    assert_eq!(text(&found.total_rail), Some("VDD_IN"));
    let pi = SyntheticBoard::jetson(
        "Raspberry Pi 5 Model B",
        &["raspberrypi,5-model-b", "brcm,bcm2712"],
        8_000,
        4,
    );
    check_other(&pi, None);
}

#[test]
fn every_profile_of_a_jetson_has_a_board_here() {
    let this = include_str!("kinds.rs");
    for profile in profiles().iter().filter(|profile| profile.kind == BoardKind::Jetson) {
        assert!(this.contains(&format!("\"{}\"", profile.name)), "{}", profile.name);
    }
}
