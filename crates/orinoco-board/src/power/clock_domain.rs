use orinoco_sysroot::{ReadError, Sysroot};

use crate::readers::{is_gpu_name, read_cooling};

const DEVFREQ: &str = "/sys/class/devfreq";
const CPUFREQ: &str = "/sys/devices/system/cpu/cpufreq";

/// Greatest number of domains of one kind; a Jetson has one or two GPUs, and up to four groups of cores.
const DOMAINS_MAX: usize = 16;
/// Greatest number of clocks of a domain; an Orin's cores have about 30.
const CLOCKS_MAX: usize = 128;
/// Greatest length of the name of a device, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Parts of the names of cooling devices that lower the clocks of cores: `cpufreq-cpu0`, `thermal-cpufreq-0` before Linux 5.13,
/// `cpu-balanced` and `emergency-balanced` of JetPack 4, `Processor` of ACPI.
const CPU_COOLING: [&str; 3] = ["cpu", "balanced", "Processor"];
/// The same of GPUs, besides their own names: `devfreq-17000000.gpu`, `thermal-devfreq-0`, `gk20a_cdev`.
const GPU_COOLING: [&str; 3] = ["devfreq", "balanced", "gk20a"];

/// Part of a board whose highest clock can be set: a GPU, or a group of cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockDomain {
    /// Name: `devfreq/17000000.gpu` or `cpufreq/policy0`.
    pub name: String,
    /// File of the highest clock that is allowed.
    pub max_file: String,
    /// Unit of the files.
    pub unit: ClockUnit,
    /// Clocks that the driver lists, in hertz, in ascending order.
    pub available: Vec<u64>,
}

/// Unit of a file with a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockUnit {
    /// Hertz, as devfreq has it.
    Hertz,
    /// Kilohertz, as cpufreq has it.
    Kilohertz,
}

impl ClockUnit {
    fn hertz(self) -> u64 {
        match self {
            Self::Hertz => 1,
            Self::Kilohertz => 1_000,
        }
    }
}

impl ClockDomain {
    /// Reads the highest clock that is allowed now, in hertz.
    ///
    /// # Errors
    /// Says why the file gave no number.
    pub fn max(&self, sysroot: &Sysroot) -> Result<u64, ReadError> {
        Ok(sysroot.number::<u64>(&self.max_file)?.saturating_mul(self.unit.hertz()))
    }

    /// Returns the name of a cooling device that may lower the domain's clock now. [`max`](Self::max) is the least of what a user, the
    /// power mode and the cooling devices allow, so meanwhile it does not tell what a user has set. A device whose state cannot be read
    /// lowers nothing, as far as is known.
    pub fn throttled_by(&self, sysroot: &Sysroot) -> Option<String> {
        let is_of_cores = self.name.starts_with("cpufreq/");
        let lowers_it = |name: &str| match is_of_cores {
            true => CPU_COOLING.iter().any(|part| name.contains(part)),
            false => is_gpu_name(name) || GPU_COOLING.iter().any(|part| name.contains(part)),
        };
        let devices = read_cooling(sysroot).into_iter();
        let mut active = devices.filter(|(_, state)| state.as_ref().is_ok_and(|state| *state > 0));
        active.find_map(|(device, _)| lowers_it(&device.name).then_some(device.name))
    }

    /// Returns the text of a clock for the domain's file.
    pub fn text_of(&self, hertz: u64) -> String {
        (hertz / self.unit.hertz()).to_string()
    }
}

/// Finds the GPUs and groups of cores whose driver lists the clocks that it can set.
pub fn clock_domains(sysroot: &Sysroot) -> Vec<ClockDomain> {
    let gpus = names(sysroot, DEVFREQ, is_gpu_name).into_iter().map(|name| {
        let folder = format!("{DEVFREQ}/{name}");
        let files = (format!("{folder}/max_freq"), format!("{folder}/available_frequencies"));
        domain(sysroot, format!("devfreq/{name}"), files, ClockUnit::Hertz)
    });
    let cores = names(sysroot, CPUFREQ, |name| name.starts_with("policy")).into_iter().map(|name| {
        let folder = format!("{CPUFREQ}/{name}");
        let files = (format!("{folder}/scaling_max_freq"), format!("{folder}/scaling_available_frequencies"));
        domain(sysroot, format!("cpufreq/{name}"), files, ClockUnit::Kilohertz)
    });
    gpus.chain(cores).flatten().collect()
}

fn names(sysroot: &Sysroot, folder: &str, is_one: impl Fn(&str) -> bool) -> Vec<String> {
    let is_plain = |name: &str| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "._-:@".contains(c);
        name.len() <= NAME_BYTES_MAX && !name.starts_with('.') && name.chars().all(is_part)
    };
    let names = sysroot.entries(folder).unwrap_or_default();
    names.into_iter().filter(|name| is_plain(name) && is_one(name)).take(DOMAINS_MAX).collect()
}

/// Reads a domain; `None` if its driver does not list its clocks, or its highest clock cannot be read.
fn domain(
    sysroot: &Sysroot,
    name: String,
    (max_file, list): (String, String),
    unit: ClockUnit,
) -> Option<ClockDomain> {
    let text = sysroot.text(&list).ok()?;
    let clocks = text.split_whitespace().filter_map(|clock| clock.parse::<u64>().ok());
    let mut available: Vec<u64> = clocks
        .take(CLOCKS_MAX)
        .map(|clock| clock.saturating_mul(unit.hertz()))
        .filter(|hz| *hz > 0)
        .collect();
    available.sort_unstable();
    available.dedup();
    let domain = ClockDomain { name, max_file, unit, available };
    (!domain.available.is_empty() && domain.max(sysroot).is_ok()).then_some(domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_throttled_by_cooling_devices_of_its_kind() {
        let dir = tempfile::tempdir().expect("a folder");
        let put = |device: u32, name: &str, state: &str| {
            let folder = dir.path().join(format!("sys/class/thermal/cooling_device{device}"));
            std::fs::create_dir_all(&folder).expect("made");
            std::fs::write(folder.join("type"), format!("{name}\n")).expect("written");
            std::fs::write(folder.join("max_state"), "3\n").expect("written");
            std::fs::write(folder.join("cur_state"), state).expect("written");
        };
        let domain = |name: &str| ClockDomain {
            name: name.to_owned(),
            max_file: String::new(),
            unit: ClockUnit::Hertz,
            available: Vec::new(),
        };
        let sysroot = Sysroot::at(dir.path());
        let throttled =
            || ["cpufreq/policy0", "devfreq/17000000.gpu"].map(|name| domain(name).throttled_by(&sysroot));
        assert_eq!(throttled(), [None, None], "no device");
        put(0, "pwm-fan", "3\n");
        put(1, "hot-surface-alert", "1\n");
        put(2, "cpufreq-cpu0", "0\n");
        put(3, "devfreq-17000000.gpu", "unreadable");
        assert_eq!(throttled(), [None, None], "a fan lowers no clock, and state 0 cools nothing");
        put(2, "cpufreq-cpu0", "1\n");
        assert_eq!(throttled(), [Some("cpufreq-cpu0".to_owned()), None]);
        put(3, "devfreq-17000000.gpu", "2\n");
        assert_eq!(throttled()[1].as_deref(), Some("devfreq-17000000.gpu"));
        for name in ["thermal-cpufreq-0", "cpu-balanced", "Processor", "emergency-balanced"] {
            put(2, name, "1");
            assert_eq!(throttled()[0].as_deref(), Some(name));
        }
        for name in ["thermal-devfreq-0", "gpu-balanced", "gk20a_cdev", "17000000.ga10b"] {
            put(3, name, "1");
            put(2, "pwm-fan", "0");
            assert_eq!(throttled()[1].as_deref(), Some(name));
        }
    }

    #[test]
    fn domains_are_gpus_and_groups_of_cores_that_list_their_clocks() {
        let dir = tempfile::tempdir().expect("a folder");
        let put = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        put("sys/class/devfreq/17000000.gpu/available_frequencies", "612000000 306000000 x\n");
        put("sys/class/devfreq/17000000.gpu/max_freq", "612000000\n");
        put("sys/class/devfreq/15480000.nvdec/available_frequencies", "100 200\n");
        put("sys/class/devfreq/15480000.nvdec/max_freq", "200\n");
        put("sys/devices/system/cpu/cpufreq/policy0/scaling_available_frequencies", "115200 729600\n");
        put("sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq", "729600\n");
        put("sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq", "729600\n");
        put("sys/devices/system/cpu/cpufreq/ondemand/scaling_max_freq", "1\n");
        let sysroot = Sysroot::at(dir.path());
        let domains = clock_domains(&sysroot);
        let shown: Vec<_> = domains
            .iter()
            .map(|domain| (domain.name.as_str(), &domain.available[..], domain.max(&sysroot).ok()))
            .collect();
        assert_eq!(
            shown,
            [
                ("devfreq/17000000.gpu", &[306_000_000, 612_000_000][..], Some(612_000_000)),
                ("cpufreq/policy0", &[115_200_000, 729_600_000][..], Some(729_600_000)),
            ]
        );
        assert_eq!(domains[1].text_of(115_200_000), "115200");
    }
}
