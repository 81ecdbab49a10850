//! Synthetic boards: trees of files in the public layout of a board's sysfs, with values that nobody measured.

#![allow(dead_code, reason = "each test and benchmark uses a part of it")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use orinoco_sysroot::{ReadErrorKind, Recording, Sysroot};

/// Entry of a synthetic board.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// File with its content.
    File(String, Vec<u8>),
    /// Symbolic link with its target.
    Link(String, String),
    /// File that fails.
    Fails(String, ReadErrorKind),
}

/// Tree of a synthetic board.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree(Vec<Entry>);

impl Tree {
    /// Adds a file.
    pub(crate) fn file(mut self, path: impl Into<String>, content: impl AsRef<[u8]>) -> Self {
        let path = path.into();
        self.0.retain(|entry| !matches!(entry, Entry::File(known, _) if *known == path));
        self.0.push(Entry::File(path, content.as_ref().to_vec()));
        self
    }

    /// Adds several files of one folder, each with a new line at its end, as drivers write.
    pub(crate) fn files(self, folder: &str, files: &[(&str, &str)]) -> Self {
        let add = |tree: Self, (name, text): &(&str, &str)| {
            tree.file(format!("{folder}/{name}"), format!("{text}\n"))
        };
        files.iter().fold(self, add)
    }

    /// Adds a symbolic link.
    pub(crate) fn link(mut self, path: impl Into<String>, target: &str) -> Self {
        self.0.push(Entry::Link(path.into(), target.to_owned()));
        self
    }

    /// Adds a file that fails, or makes one fail.
    pub(crate) fn fails(mut self, path: &str, kind: ReadErrorKind) -> Self {
        self.0.retain(|entry| !matches!(entry, Entry::File(known, _) if known == path));
        self.0.push(Entry::Fails(path.to_owned(), kind));
        self
    }

    /// Adds a chip of hwmon at an address of an I2C bus.
    pub(crate) fn chip(self, hwmon: u32, device: &str, files: &[(&str, &str)]) -> Self {
        let bus = device.split('-').next().expect("bus and address");
        let folder = format!("/sys/devices/platform/bus@0/i2c/i2c-{bus}/{device}/hwmon/hwmon{hwmon}");
        self.files(&folder, files)
            .link(format!("{folder}/device"), &format!("../../../{device}"))
            .link(format!("/sys/class/hwmon/hwmon{hwmon}"), &format!("../../..{folder}"))
    }

    /// Adds a thermal zone.
    pub(crate) fn zone(self, number: u32, name: &str, temp: &str) -> Self {
        let files = [("type", name), ("temp", temp), ("mode", "enabled")];
        self.files(&format!("/sys/class/thermal/thermal_zone{number}"), &files)
    }

    /// Returns the paths of its files.
    pub(crate) fn paths(&self) -> Vec<String> {
        let path = |entry: &Entry| match entry {
            Entry::File(path, _) => Some(path.clone()),
            Entry::Link(..) | Entry::Fails(..) => None,
        };
        self.0.iter().filter_map(path).collect()
    }

    /// Returns the board as a recording whose content does not change.
    pub(crate) fn recording(&self) -> Recording {
        let mut recording = Recording::synthetic();
        for entry in &self.0 {
            let added = match entry {
                Entry::File(path, content) => recording.add_file(path, content),
                Entry::Link(path, target) => recording.add_link(path, target),
                Entry::Fails(path, kind) => recording.add_value(path, Duration::ZERO, Err(kind.clone())),
            };
            added.unwrap_or_else(|error| panic!("{entry:?} {error}"));
        }
        recording
    }

    /// Returns the board as a root in memory.
    pub(crate) fn sysroot(&self) -> Sysroot {
        Sysroot::replay(self.recording(), || Duration::ZERO)
    }

    /// Writes the board into a directory. Files that fail are left out.
    pub(crate) fn write(&self, root: &Path) {
        let real = |path: &str| root.join(path.trim_start_matches('/'));
        let make = |path: &Path| fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        for entry in &self.0 {
            match entry {
                Entry::File(path, content) => {
                    make(&real(path));
                    fs::write(real(path), content).expect("a file");
                }
                Entry::Link(path, target) => {
                    make(&real(path));
                    symlink(target, real(path)).expect("a link");
                }
                Entry::Fails(..) => {}
            }
        }
    }
}

/// Time that a test sets.
#[derive(Clone, Default)]
pub(crate) struct Time(Arc<AtomicU64>);

impl Time {
    /// Sets the time, in milliseconds since the start.
    pub(crate) fn set(&self, millis: u64) {
        self.0.store(millis, Ordering::Relaxed);
    }

    /// Returns a root that answers at this time.
    pub(crate) fn replay(&self, recording: Recording) -> Sysroot {
        let time = self.clone();
        Sysroot::replay(recording, move || Duration::from_millis(time.0.load(Ordering::Relaxed)))
    }
}

/// Returns a synthetic Orin NX in the layout of L4T R36: an INA3221 with three rails, an INA238 without a label, nine
/// thermal zones of which one is switched off, GPU and video engines, eight cores in two clusters, a fan.
pub(crate) fn orin_nx() -> Tree {
    let mut tree = Tree::default()
        .chip(1, "1-0040", INA3221)
        .chip(4, "2-0044", INA238)
        .files(
            "/sys/class/hwmon/hwmon0",
            &[("name", "tmp451"), ("temp1_input", "41500"), ("temp2_input", "43250")],
        )
        .files("/sys/class/hwmon/hwmon2", &[("name", "pwm_tach"), ("rpm", "2810")])
        .files("/sys/class/hwmon/hwmon3", &[("name", "pwmfan"), ("pwm1", "88")])
        .files(
            "/sys/class/hwmon/hwmon5",
            &[
                ("name", "soctherm_oc"),
                ("oc1_event_cnt", "0"),
                ("oc2_event_cnt", "7"),
                ("oc3_event_cnt", "0"),
            ],
        )
        .file("/proc/stat", PROC_STAT)
        .file("/proc/meminfo", MEMINFO)
        .file("/proc/self/cgroup", "0::/system.slice/orinocod.service\n")
        .file("/sys/fs/cgroup/cgroup.controllers", "cpu io memory pids\n")
        .files("/sys/fs/cgroup/system.slice/orinocod.service", GROUP)
        .files("/sys/devices/system/cpu", &[("online", "0-5"), ("present", "0-7"), ("possible", "0-7")]);
    for name in ["cpu", "io", "memory"] {
        let text = "some avg10=1.50 avg60=0.80 avg300=0.20 total=1500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        tree = tree.file(format!("/proc/pressure/{name}"), text);
    }
    for (number, (name, temp)) in ZONES.iter().enumerate() {
        tree = tree.zone(number as u32, name, temp);
    }
    tree = tree.fails("/sys/class/thermal/thermal_zone2/temp", ReadErrorKind::Unavailable);
    tree = tree.files(
        "/sys/class/thermal/thermal_zone1",
        &[
            ("trip_point_0_temp", "99000"),
            ("trip_point_0_type", "passive"),
            ("trip_point_1_temp", "104500"),
            ("trip_point_1_type", "critical"),
            ("trip_point_2_temp", "-274000"),
            ("trip_point_2_type", "active"),
        ],
    );
    for (number, name) in ["pwm-fan", "cpufreq-cpu0", "cpufreq-cpu4", "17000000.gpu"].iter().enumerate() {
        let files = [("type", *name), ("max_state", "3"), ("cur_state", "1")];
        tree = tree.files(&format!("/sys/class/thermal/cooling_device{number}"), &files);
    }
    for policy in [0, 4] {
        tree = tree.files(&format!("/sys/devices/system/cpu/cpufreq/policy{policy}"), POLICY);
    }
    tree = tree
        .file("/sys/devices/system/cpu/cpufreq/policy0/related_cpus", "0 1 2 3\n")
        .file("/sys/devices/system/cpu/cpufreq/policy4/related_cpus", "4 5 6 7\n");
    for name in ["15340000.vic", "15380000.nvjpg", "15480000.nvdec", "154c0000.nvenc", "17000000.gpu"] {
        tree = tree.files(&format!("/sys/class/devfreq/{name}"), DEVICE);
    }
    tree.file("/sys/class/devfreq/17000000.gpu/device/load", "305\n")
}

/// Rails as hwmon shows an INA3221 (Documentation/hwmon/ina3221.rst), with limits as after a reset, shunt voltages and sums.
pub(crate) const INA3221: &[(&str, &str)] = &[
    ("name", "ina3221"),
    ("update_interval", "36"),
    ("in1_label", "VDD_IN"),
    ("in1_input", "19032"),
    ("curr1_input", "512"),
    ("curr1_max", "32760"),
    ("curr1_crit", "32760"),
    ("shunt1_resistor", "5000"),
    ("in2_label", "VDD_CPU_GPU_CV"),
    ("in2_input", "19024"),
    ("curr2_input", "128"),
    ("curr2_max", "3000"),
    ("curr2_crit", "32760"),
    ("shunt2_resistor", "5000"),
    ("in3_label", "VDD_SOC"),
    ("in3_input", "19032"),
    ("curr3_input", "96"),
    ("curr3_max", "32760"),
    ("curr3_crit", "32760"),
    ("shunt3_resistor", "5000"),
    ("in4_input", "2560"),
    ("in5_input", "640"),
    ("in6_input", "480"),
    ("in7_label", "sum of shunt voltages"),
    ("in7_input", "3680"),
    ("curr4_input", "736"),
    ("curr4_crit", "32760"),
];

/// INA238 (Documentation/hwmon/ina238.rst).
pub(crate) const INA238: &[(&str, &str)] = &[
    ("name", "ina238"),
    ("in0_input", "3"),
    ("in1_input", "19100"),
    ("curr1_input", "620"),
    ("power1_input", "11842000"),
    ("power1_max", "0"),
    ("temp1_input", "39875"),
];

const ZONES: [(&str, &str); 9] = [
    ("cpu-thermal", "46500"),
    ("gpu-thermal", "44125"),
    ("cv0-thermal", ""),
    ("cv1-thermal", "43000"),
    ("cv2-thermal", "43000"),
    ("soc0-thermal", "44750"),
    ("soc1-thermal", "45000"),
    ("soc2-thermal", "44500"),
    ("tj-thermal", "46500"),
];

const POLICY: &[(&str, &str)] = &[
    ("scaling_cur_freq", "1510400"),
    ("scaling_min_freq", "729600"),
    ("scaling_max_freq", "1984000"),
    ("scaling_governor", "schedutil"),
    ("cpuinfo_min_freq", "115200"),
    ("cpuinfo_max_freq", "1984000"),
];

const DEVICE: &[(&str, &str)] = &[
    ("cur_freq", "306000000"),
    ("min_freq", "306000000"),
    ("max_freq", "918000000"),
    ("available_frequencies", "306000000 408000000 510000000 612000000 714000000 816000000 918000000"),
    ("governor", "nvhost_podgov"),
];

const GROUP: &[(&str, &str)] = &[
    ("memory.current", "734003200"),
    ("memory.peak", "801112064"),
    ("memory.max", "max"),
    ("memory.events", "low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\noom_group_kill 0"),
    (
        "cpu.stat",
        "usage_usec 5000000\nuser_usec 4000000\nsystem_usec 1000000\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0",
    ),
];

pub(crate) const MEMINFO: &str = "\
MemTotal:       15823480 kB
MemFree:         8123456 kB
MemAvailable:   12345678 kB
Cached:          3000000 kB
SwapTotal:       7911728 kB
SwapFree:        7911728 kB
CmaTotal:         262144 kB
CmaFree:          200000 kB
NvMapMemUsed:     512000 kB
HugePages_Total:       0
";

pub(crate) const PROC_STAT: &str = "\
cpu  600 0 300 5100 0 0 0 0 0 0
cpu0 100 0 50 850 0 0 0 0 0 0
cpu1 100 0 50 850 0 0 0 0 0 0
cpu2 100 0 50 850 0 0 0 0 0 0
cpu3 100 0 50 850 0 0 0 0 0 0
cpu4 100 0 50 850 0 0 0 0 0 0
cpu5 100 0 50 850 0 0 0 0 0 0
intr 33097676 0 0 0
ctxt 99815390
";
