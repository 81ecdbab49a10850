use std::time::Duration;

use orinoco_core::Joules;
use orinoco_sysroot::ReadErrorKind;

use super::rail::{Files, Inputs, Rail, RailKind, Sensor};
use crate::readers::probe::Probe;

const CLASS: &str = "/sys/class/powercap";

/// Energy counters of Intel's and AMD's processors (Documentation/power/powercap/powercap.rst). `intel-rapl-mmio` shows the same
/// package a second time, and is not read.
const PREFIX: &str = "intel-rapl:";

/// Period in which a processor updates its counters (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 3B,
/// section 15.10.3).
const PERIOD: Duration = Duration::from_millis(1);

/// Name of the counter of the memory that belongs to a package.
const DRAM: &str = "dram";

/// Finds the counters, those of a package before those of its parts.
pub(super) fn find(probe: &mut Probe<'_>) -> Vec<(Rail, Sensor)> {
    if probe.sysroot.entries(CLASS).is_err() {
        return Vec::new();
    }
    let zones = probe.names(CLASS, PREFIX);
    let mut zones: Vec<(String, String)> =
        zones.into_iter().filter_map(|zone| name(probe, &zone).map(|name| (zone, name))).collect();
    zones.sort();
    zones.iter().map(|(zone, name)| rail(probe, zone, name, &zones)).collect()
}

fn name(probe: &mut Probe<'_>, zone: &str) -> Option<String> {
    probe.text(&format!("{CLASS}/{zone}/name")).filter(|name| !name.is_empty())
}

fn rail(probe: &mut Probe<'_>, zone: &str, name: &str, zones: &[(String, String)]) -> (Rail, Sensor) {
    let folder = format!("{CLASS}/{zone}");
    // `intel-rapl:0:1` is a part of `intel-rapl:0`.
    let package = zone.strip_prefix(PREFIX).and_then(|numbers| numbers.rsplit_once(':'));
    let package = package.and_then(|(numbers, _)| {
        zones
            .iter()
            .find(|(zone, _)| zone.strip_prefix(PREFIX) == Some(numbers))
            .map(|(_, name)| name.clone())
    });
    let wraps_at = probe.number(&format!("{folder}/max_energy_range_uj")).map(Joules::from_micro);
    let energy = format!("{folder}/energy_uj");
    if let Err(error) = probe.sysroot.bytes(&energy) {
        let advice = match error.kind {
            ReadErrorKind::Denied => {
                ": the kernel lets only root read energy counters (CVE-2020-8694); a udev rule can give a group access"
            }
            _ => "",
        };
        probe.gap(&energy, format!("{}{advice}", error.kind));
    }
    let full_name = package.as_ref().map_or_else(|| name.to_owned(), |package| format!("{package}/{name}"));
    let rail = Rail {
        period: Some(PERIOD),
        // A package's counter does not contain that of its memory, although the kernel shows it below the package (Intel SDM, volume 3,
        // "RAPL Interfaces": the domains package and DRAM).
        part_of: package.filter(|_| name != DRAM),
        ..Rail::new(full_name, folder, "intel-rapl", RailKind::EnergyCounter { wraps_at })
    };
    let files = Files { microjoules: probe.file(&energy).into(), ..Files::NONE };
    (rail, Sensor { inputs: Inputs::Files(files), earlier: None })
}
