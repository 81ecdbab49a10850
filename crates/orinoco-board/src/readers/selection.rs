use orinoco_sysroot::{PACKAGES, Selection, Sysroot};

use super::cgroup::MOUNTS;

/// Files that say what a board is. They are read once.
const IDENTITY: &[&str] = &[
    "/etc/nv_boot_control.conf",
    "/etc/nv_tegra_release",
    "/etc/nvpmodel.conf",
    "/etc/nvpmodel/*",
    "/etc/os-release",
    "/proc/cmdline",
    "/proc/cpuinfo",
    "/proc/version",
    "/proc/driver/nvidia/gpus/*/information",
    "/proc/driver/nvidia/version",
    "/proc/sys/kernel/osrelease",
    PACKAGES,
    "/sys/bus/i2c/devices/*",
    "/sys/bus/i2c/devices/*/hwmon/*",
    "/sys/bus/i2c/devices/*/iio:device*",
    "/sys/bus/i2c/devices/*/iio:device*/*_current_limit_*",
    "/sys/bus/i2c/devices/*/iio:device*/name",
    "/sys/bus/i2c/devices/*/iio:device*/rail_name_*",
    "/sys/bus/i2c/devices/*/name",
    "/sys/bus/i2c/drivers/ina*/*",
    "/sys/bus/i2c/drivers/ina*/*/hwmon/*",
    "/sys/bus/i2c/drivers/ina*/*/iio:device*",
    "/sys/bus/iio/devices/*",
    "/sys/class/devfreq/*",
    "/sys/class/devfreq/*/available_frequencies",
    "/sys/class/devfreq/*/available_governors",
    "/sys/class/dmi/id/bios_version",
    "/sys/class/dmi/id/board_name",
    "/sys/class/dmi/id/board_vendor",
    "/sys/class/dmi/id/product_name",
    "/sys/class/dmi/id/sys_vendor",
    "/sys/class/hwmon/*/*_crit",
    "/sys/class/hwmon/*/*_enable",
    "/sys/class/hwmon/*/*_label",
    "/sys/class/hwmon/*/*_max",
    "/sys/class/hwmon/*/device",
    "/sys/class/hwmon/*/device/name",
    "/sys/class/hwmon/*/device/of_node/shunt-resistor",
    "/sys/class/hwmon/*/label",
    "/sys/class/hwmon/*/name",
    "/sys/class/hwmon/*/samples",
    "/sys/class/hwmon/*/shunt*_resistor",
    "/sys/class/hwmon/*/update_interval",
    "/sys/class/powercap/intel-rapl:*/max_energy_range_uj",
    "/sys/class/powercap/intel-rapl:*/name",
    "/sys/class/thermal/cooling_device*/max_state",
    "/sys/class/thermal/cooling_device*/type",
    "/sys/class/thermal/thermal_zone*/mode",
    "/sys/class/thermal/thermal_zone*/policy",
    "/sys/class/thermal/thermal_zone*/trip_point_*",
    "/sys/class/thermal/thermal_zone*/type",
    "/sys/bus/i2c/drivers/ina3221x/*/iio:device*/*_current_limit_*",
    "/sys/bus/i2c/drivers/ina3221x/*/iio:device*/name",
    "/sys/bus/i2c/drivers/ina3221x/*/iio:device*/rail_name_*",
    "/sys/devices/pwm-fan",
    "/sys/devices/soc0/family",
    "/sys/devices/soc0/machine",
    "/sys/devices/soc0/revision",
    "/sys/devices/soc0/soc_id",
    "/sys/devices/system/cpu/cpu*/topology/physical_package_id",
    "/sys/devices/system/cpu/cpufreq/policy*",
    "/sys/devices/system/cpu/cpufreq/policy*/cpuinfo_*_freq",
    "/sys/devices/system/cpu/cpufreq/policy*/related_cpus",
    "/sys/devices/system/cpu/cpufreq/policy*/scaling_available_*",
    "/sys/devices/system/cpu/possible",
    "/sys/devices/system/cpu/present",
    "/sys/module/tegra_fuse/parameters/*",
    "/var/lib/nvpmodel/status",
    "/sys/firmware/acpi/tables",
    // The largest part, so the last. Only one of the paths is a folder on most kernels, and the other leads to it.
    "/sys/firmware/devicetree/base/**",
    "/proc/device-tree/**",
];

/// Files whose values change, as the readers of this crate read them.
const VALUES: &[&str] = &[
    "/proc/meminfo",
    "/proc/pressure/*",
    "/proc/stat",
    "/sys/bus/i2c/devices/*/iio:device*/in_*_input",
    "/sys/bus/i2c/drivers/ina3221x/*/iio:device*/in_*_input",
    "/sys/class/devfreq/*/cur_freq",
    "/sys/class/devfreq/*/device/load",
    "/sys/class/devfreq/*/governor",
    "/sys/class/devfreq/*/max_freq",
    "/sys/class/devfreq/*/min_freq",
    "/sys/class/hwmon/*/*_alarm",
    "/sys/class/hwmon/*/*_average",
    "/sys/class/hwmon/*/*_input",
    "/sys/class/hwmon/*/oc*_event_cnt",
    "/sys/class/hwmon/*/pwm*",
    "/sys/class/hwmon/*/rpm",
    "/sys/class/powercap/intel-rapl:*/energy_uj",
    "/sys/class/thermal/cooling_device*/cur_state",
    "/sys/class/thermal/thermal_zone*/temp",
    "/sys/devices/gpu.0/load",
    "/sys/devices/platform/17000000.gpu/load",
    "/sys/devices/platform/gpu.0/load",
    "/sys/devices/pwm-fan/cur_pwm",
    "/sys/devices/pwm-fan/rpm_measured",
    "/sys/devices/system/cpu/cpu*/thermal_throttle/*_count",
    "/sys/devices/system/cpu/cpufreq/policy*/scaling_cur_freq",
    "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor",
    "/sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq",
    "/sys/devices/system/cpu/cpufreq/policy*/scaling_min_freq",
    "/sys/devices/system/cpu/online",
];

/// Files of a control group of version 2.
const GROUP: &[&str] = &["cpu.stat", "memory.current", "memory.events", "memory.max", "memory.peak"];

/// Returns the files to record of a board, so that its recording answers detection and readers as the board does.
pub fn recorded_files(sysroot: &Sysroot) -> Selection {
    let owned = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
    let mut selection = Selection { tree: owned(IDENTITY), values: owned(VALUES) };
    selection.tree.push("/proc/self/cgroup".to_owned());
    let groups = sysroot.text("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
    let own = if own.split('/').any(|name| name == "..") { "" } else { own.trim_end_matches('/') };
    for mount in MOUNTS {
        selection.tree.push(format!("{mount}/cgroup.controllers"));
        for folder in [mount.to_owned(), format!("{mount}{own}")] {
            // The names in the group's folder say which of the files there are.
            selection.tree.push(folder.clone());
            selection.values.extend(GROUP.iter().map(|file| format!("{folder}/{file}")));
        }
    }
    selection
}
