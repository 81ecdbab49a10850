//! Synthetic boards, in the layout that Linux gives the files of a real one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use orinoco_board::{Detection, detect};
use orinoco_sysroot::Sysroot;
use tempfile::TempDir;

/// Channel of a power sensor: label, millivolts, milliamperes.
pub(crate) type Channel<'a> = (&'a str, i64, i64);

/// Synthetic board in a temporary folder.
pub(crate) struct SyntheticBoard {
    dir: TempDir,
}

impl SyntheticBoard {
    /// Creates a board without any file.
    pub(crate) fn empty() -> Self {
        Self { dir: TempDir::new().expect("a folder") }
    }

    /// Creates a Jetson: an Arm processor, the device tree, memory in MiB as `/proc/meminfo` gives it, and CPU cores.
    pub(crate) fn jetson(model: &str, compatible: &[&str], memory_mib: u64, cpus: u32) -> Self {
        let board = Self::empty().device_tree(model, compatible).memory_mib(memory_mib).cpus(cpus);
        board.file("/proc/cpuinfo", "processor\t: 0\nBogoMIPS\t: 62.50\nCPU implementer\t: 0x41\n")
    }

    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn detect(&self) -> Detection {
        detect(&Sysroot::at(self.root()))
    }

    pub(crate) fn file(self, path: &str, bytes: impl AsRef<[u8]>) -> Self {
        let path = self.made(path);
        fs::write(path, bytes).expect("the file is written");
        self
    }

    pub(crate) fn without(self, path: &str) -> Self {
        let path = self.root().join(path.trim_start_matches('/'));
        match path.symlink_metadata().expect("it is there").is_dir() {
            true => fs::remove_dir_all(path).expect("removed"),
            false => fs::remove_file(path).expect("removed"),
        }
        self
    }

    pub(crate) fn link(self, path: &str, target: &str) -> Self {
        symlink(target, self.made(path)).expect("the link is made");
        self
    }

    /// Makes a FIFO: a file that gives no value. It stands for one that answers EAGAIN, which a directory cannot.
    pub(crate) fn fifo(self, path: &str) -> Self {
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, self.made(path), kind, 0o600.into(), 0).expect("a FIFO");
        self
    }

    pub(crate) fn device_tree(self, model: &str, compatible: &[&str]) -> Self {
        let list: String = compatible.iter().map(|name| format!("{name}\0")).collect();
        self.file("/sys/firmware/devicetree/base/model", format!("{model}\0"))
            .file("/sys/firmware/devicetree/base/compatible", list)
            // A detector has no business with it.
            .file("/sys/firmware/devicetree/base/serial-number", "1421234567890\0")
            .link("/proc/device-tree", "/sys/firmware/devicetree/base")
    }

    pub(crate) fn memory_mib(self, mib: u64) -> Self {
        let kib = mib * 1024;
        self.file("/proc/meminfo", format!("MemTotal:       {kib} kB\nMemFree:         123456 kB\n"))
    }

    pub(crate) fn cpus(self, count: u32) -> Self {
        let list = format!("0-{}\n", count - 1);
        let folder = "/sys/devices/system/cpu";
        self.file(&format!("{folder}/possible"), &list).file(&format!("{folder}/online"), &list)
    }

    /// Writes the first line of the release file as NVIDIA does, and the kernel's release.
    pub(crate) fn release(self, major: u32, revision: &str, kernel: &str) -> Self {
        let line = format!(
            "# R{major} (release), REVISION: {revision}, GCID: 38968081, BOARD: generic, EABI: aarch64, \
             DATE: Wed Jan  8 01:49:37 UTC 2025\n# KERNEL_VARIANT: oot\n"
        );
        self.file("/etc/nv_tegra_release", line).file("/proc/sys/kernel/osrelease", format!("{kernel}\n"))
    }

    pub(crate) fn boot_control(self, spec: &str, chip: &str) -> Self {
        let text = format!(
            "TNSPEC {spec}\nTEGRA_CHIPID {chip}\nTEGRA_OTA_BOOT_DEVICE /dev/mtdblock0\n\
             TEGRA_OTA_GPT_DEVICE /dev/mtdblock0\n"
        );
        self.file("/etc/nv_boot_control.conf", text)
    }

    /// Writes a configuration with these power modes, of which `current` is set.
    pub(crate) fn power_modes(self, modes: &[(u32, &str)], current: u32) -> Self {
        let models: String = modes
            .iter()
            .map(|(id, name)| format!("< POWER_MODEL ID={id} NAME={name} >\nCPU_ONLINE CORE_0 1\n\n"))
            .collect();
        self.file(
            "/etc/nvpmodel/nvpmodel_synthetic.conf",
            format!("# FORMAT:\n{models}< PM_CONFIG DEFAULT=0 >\n"),
        )
        .link("/etc/nvpmodel.conf", "/etc/nvpmodel/nvpmodel_synthetic.conf")
        .file("/var/lib/nvpmodel/status", format!("pmode:{current:04}\n"))
    }

    /// Adds an INA3221 as the kernel's driver shows it: `in1` to `in3` and `curr1` to `curr3` are rails, `in4` to `in7` and
    /// `curr4` shunts and sums (Linux, Documentation/hwmon/ina3221.rst).
    pub(crate) fn ina3221(mut self, hwmon: u32, i2c: &str, channels: &[Channel<'_>]) -> Self {
        let folder = self.hwmon_folder(hwmon, i2c);
        self = self.file(&format!("{folder}/name"), "ina3221\n");
        for (index, (label, millivolts, milliamperes)) in channels.iter().enumerate() {
            let channel = index + 1;
            self = self
                .file(&format!("{folder}/in{channel}_label"), format!("{label}\n"))
                .file(&format!("{folder}/in{channel}_enable"), "1\n")
                .file(&format!("{folder}/in{channel}_input"), format!("{millivolts}\n"))
                .file(&format!("{folder}/curr{channel}_input"), format!("{milliamperes}\n"))
                .file(&format!("{folder}/curr{channel}_max"), "32760\n")
                .file(&format!("{folder}/curr{channel}_crit"), "81900\n")
                .file(&format!("{folder}/in{}_input", channel + 3), "7\n");
        }
        self.file(&format!("{folder}/in7_label"), "sum of shunt voltages\n")
            .file(&format!("{folder}/in7_input"), "21\n")
            .file(&format!("{folder}/curr4_input"), "999999\n")
            .hwmon_links(hwmon, i2c)
    }

    /// Adds an INA238, which has no label and gives its power in microwatts.
    pub(crate) fn ina238(mut self, hwmon: u32, i2c: &str, millivolts: i64, milliamperes: i64) -> Self {
        let folder = self.hwmon_folder(hwmon, i2c);
        for (name, value) in [
            ("in0_input", 3),
            ("in1_input", millivolts),
            ("curr1_input", milliamperes),
            ("power1_input", millivolts * milliamperes),
        ] {
            self = self.file(&format!("{folder}/{name}"), format!("{value}\n"));
        }
        self.file(&format!("{folder}/name"), "ina238\n").hwmon_links(hwmon, i2c)
    }

    /// Adds an INA3221 as the driver `ina3221x` of R32 shows it.
    pub(crate) fn iio(mut self, device: u32, i2c: &str, channels: &[Channel<'_>]) -> Self {
        let folder = format!("{}/iio:device{device}", i2c_folder(i2c));
        self = self.file(&format!("{folder}/name"), "ina3221x\n");
        for (index, (label, millivolts, milliamperes)) in channels.iter().enumerate() {
            self = self
                .file(&format!("{folder}/rail_name_{index}"), format!("{label}\n"))
                .file(&format!("{folder}/in_voltage{index}_input"), format!("{millivolts}\n"))
                .file(&format!("{folder}/in_current{index}_input"), format!("{milliamperes}\n"))
                .file(
                    &format!("{folder}/in_power{index}_input"),
                    format!("{}\n", millivolts * milliamperes / 1000),
                )
                .file(&format!("{folder}/warn_current_limit_{index}"), "32760\n");
        }
        let target = format!("../../../{}", folder.trim_start_matches("/sys/"));
        self.link(&format!("/sys/bus/iio/devices/iio:device{device}"), &target)
            .link(&format!("/sys/bus/i2c/drivers/ina3221x/{i2c}"), &i2c_folder(i2c))
    }

    /// Adds thermal zones in their order. A zone without a value is a FIFO.
    pub(crate) fn thermal(mut self, zones: &[(&str, Option<i64>)]) -> Self {
        for (index, (name, milli)) in zones.iter().enumerate() {
            let folder = format!("/sys/class/thermal/thermal_zone{index}");
            self = self.file(&format!("{folder}/type"), format!("{name}\n"));
            let temp = format!("{folder}/temp");
            self = match milli {
                Some(milli) => self.file(&temp, format!("{milli}\n")),
                None => self.fifo(&temp),
            };
        }
        self
    }

    fn hwmon_folder(&self, hwmon: u32, i2c: &str) -> String {
        format!("{}/hwmon/hwmon{hwmon}", i2c_folder(i2c))
    }

    fn hwmon_links(self, hwmon: u32, i2c: &str) -> Self {
        let folder = self.hwmon_folder(hwmon, i2c);
        let device = i2c_folder(i2c);
        self.link(&format!("{folder}/device"), &format!("../../../{i2c}"))
            .link(
                &format!("/sys/class/hwmon/hwmon{hwmon}"),
                &format!("../..{}", folder.trim_start_matches("/sys")),
            )
            .link(
                &format!("/sys/bus/i2c/devices/{i2c}"),
                &format!("../../..{}", device.trim_start_matches("/sys")),
            )
    }

    /// Returns the path in the temporary folder, with its folders made.
    fn made(&self, path: &str) -> PathBuf {
        let path = self.root().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().expect("a parent")).expect("the folder is made");
        path
    }
}

fn i2c_folder(i2c: &str) -> String {
    let bus = i2c.split('-').next().expect("a bus");
    format!("/sys/devices/platform/bus@0/c240000.i2c/i2c-{bus}/{i2c}")
}
