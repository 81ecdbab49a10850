use super::probe::{Probe, Source, list_of_cores, number_between};
use super::reading::{Reading, Unknown, put};

const HWMON: &str = "/sys/class/hwmon";
const CPUS: &str = "/sys/devices/system/cpu";

/// Counter of the times that hardware slowed itself down, because of heat or current.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThrottleCounter {
    /// Name: `oc1` to `oc3` of a Jetson (over-current), `cpu0 core` or `cpu0 package` of an Intel processor (heat).
    pub name: String,
    /// File of the counter.
    pub path: String,
}

/// Counters of throttling.
#[derive(Debug, Default)]
pub(super) struct Throttling {
    pub(super) counters: Vec<ThrottleCounter>,
    files: Vec<Source>,
}

impl Throttling {
    pub(super) fn find(probe: &mut Probe<'_>) -> Self {
        let mut throttling = Self::default();
        for name in probe.sysroot.entries(HWMON).unwrap_or_default() {
            throttling.add_jetson(probe, &format!("{HWMON}/{name}"));
        }
        throttling.add_intel(probe);
        throttling
    }

    /// Adds the over-current events of a Jetson (Jetson Linux Developer Guide, "Jetson Orin Nano Series, ...", section
    /// "Over-Current Event").
    fn add_jetson(&mut self, probe: &mut Probe<'_>, folder: &str) {
        let files = probe.sysroot.entries(folder).unwrap_or_default();
        for file in files {
            let Some(number) = number_between(&file, "oc", "_event_cnt") else { continue };
            self.add(probe, format!("oc{number}"), format!("{folder}/{file}"));
        }
    }

    /// Adds the counters of Intel's processors (Documentation/ABI/testing/sysfs-devices-system-cpu, thermal_throttle). That
    /// of the package is the same for all its cores, and is taken from the first.
    fn add_intel(&mut self, probe: &mut Probe<'_>) {
        let cores = probe.sysroot.text(&format!("{CPUS}/online")).unwrap_or_default();
        let mut packages = Vec::new();
        for core in list_of_cores(&cores).unwrap_or_default() {
            let folder = format!("{CPUS}/cpu{core}");
            let files = probe.sysroot.entries(&format!("{folder}/thermal_throttle")).unwrap_or_default();
            let package = probe.sysroot.text(&format!("{folder}/topology/physical_package_id")).ok();
            let is_first = !packages.contains(&package);
            for (part, is_wanted) in [("core", true), ("package", is_first)] {
                let file = format!("{part}_throttle_count");
                if is_wanted && files.contains(&file) {
                    let path = format!("{folder}/thermal_throttle/{file}");
                    self.add(probe, format!("cpu{core} {part}"), path);
                }
            }
            if is_first {
                packages.push(package);
            }
        }
    }

    fn add(&mut self, probe: &mut Probe<'_>, name: String, path: String) {
        self.files.push(probe.file(&path).into());
        self.counters.push(ThrottleCounter { name, path });
    }

    pub(super) fn read(&mut self, into: &mut Vec<Reading<u64>>) {
        into.truncate(self.counters.len());
        for (index, file) in self.files.iter_mut().enumerate() {
            let count = file.number().and_then(|count| u64::try_from(count).map_err(|_| Unknown::Malformed));
            put(into, index, count);
        }
    }
}
