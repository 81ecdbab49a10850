//! Detections and profiles as tables.

use std::fmt::Display;

use orinoco_board::{
    BoardKind, CounterReport, Detection, Fact, Performance, PowerModeProfile, Profile, RailProfile,
    RailReport, ThermalZone, ThermalZoneProfile,
};
use orinoco_core::{Choice, Watts};

use crate::output::table;

/// Placeholder for what is not known.
const UNKNOWN: &str = "unknown";

pub(super) fn board(found: &Detection) -> String {
    let kind = match found.is_jetson.as_ref().map(|fact| fact.value) {
        Some(true) => "an NVIDIA Jetson",
        Some(false) => "not a Jetson",
        None => "unknown whether it is a Jetson",
    };
    let source = found.is_jetson.as_ref().map_or_else(String::new, |fact| format!(" ({})", fact.source));
    let mut parts = vec![format!("{kind}{source}"), table(&["answer", "value", "from"], 3, answers(found))];
    if !found.rails.is_empty() {
        let rows = found.rails.iter().map(rail).collect();
        let rails = table(&["rail", "sensor", "voltage, V", "current, A", "power, W"], 2, rows);
        parts.push(format!("{rails}\n{}", total(found)));
    } else if !found.energy_counters.is_empty() {
        let rows = found.energy_counters.iter().map(counter).collect();
        parts.push(format!("{}\n{}", table(&["energy counter", "from", "state"], 3, rows), total(found)));
    } else if found.is_jetson.as_ref().is_some_and(|fact| fact.value) {
        parts.push(
            "no power rail: there is no sensor under /sys/class/hwmon, /sys/bus/i2c or /sys/bus/iio"
                .to_owned(),
        );
    } else if found.is_jetson.is_some() && found.gpus.is_empty() {
        parts.push(
            "no power sensor: there is none under /sys/class/hwmon, /sys/class/powercap or /sys/bus/iio"
                .to_owned(),
        );
    }
    if !found.thermal_zones.is_empty() {
        parts.push(table(&["thermal zone", "°C"], 1, found.thermal_zones.iter().map(zone).collect()));
    }
    if !found.conflicts.is_empty() {
        parts.push(listed("contradictions", found.conflicts.iter()));
    }
    // Files that only a Jetson has are not missed elsewhere.
    let is_other = found.is_jetson.as_ref().is_some_and(|fact| !fact.value);
    let problems = found.problems.iter().filter(|problem| !(is_other && problem.is_absent));
    let problems: Vec<String> =
        problems.map(|problem| format!("{}: {} {}", problem.key, problem.path, problem.cause)).collect();
    if !problems.is_empty() {
        parts.push(listed("files that gave no answer", problems.iter()));
    }
    parts.join("\n\n")
}

/// Returns the rows of the answers. What only a Jetson has is left out elsewhere.
fn answers(found: &Detection) -> Vec<Vec<String>> {
    let is_jetson = found.is_jetson.as_ref().is_none_or(|fact| fact.value);
    let mut rows = vec![answer("model", &found.model, |model| model.clone())];
    if is_jetson {
        rows.push(answer("module", &found.module, |module| module.clone()));
        rows.push(answer("sku", &found.sku, |sku| sku.clone()));
        rows.push(answer("soc", &found.soc, |soc| soc.clone()));
        rows.push(answer("carrier", &found.carrier, |carrier| carrier.clone()));
    }
    rows.push(answer("memory", &found.memory_gib, |gib| format!("{gib} GB")));
    rows.push(answer("CPU cores", &found.cpus, |cpus| match &found.cpus_online {
        Some(online) if online.value != *cpus => format!("{cpus}, {} online", online.value),
        _ => cpus.to_string(),
    }));
    for gpu in &found.gpus {
        rows.push(vec!["GPU".to_owned(), gpu.value.clone(), gpu.source.clone()]);
    }
    rows.push(answer("kernel", &found.kernel, |kernel| kernel.clone()));
    if is_jetson {
        rows.push(answer("L4T", &found.l4t, |l4t| l4t.clone()));
        rows.push(answer("boot loader", &found.boot_loader, |version| version.clone()));
        rows.push(answer("JetPack", &found.jetpack, |jetpack| jetpack.clone()));
        rows.push(answer("power mode", &found.power_mode, |mode| {
            format!("{} (number {})", mode.name, mode.id)
        }));
    }
    rows.push(answer("profile", &found.profile, |profile| profile.name.clone()));
    rows
}

fn answer<T>(name: &str, fact: &Option<Fact<T>>, show: impl Fn(&T) -> String) -> Vec<String> {
    let (value, source) = match fact {
        Some(fact) => (show(&fact.value), first_source(&fact.source)),
        None => (UNKNOWN.to_owned(), "-".to_owned()),
    };
    vec![name.to_owned(), value, source]
}

/// Shows the first of several files; JSON has them all.
fn first_source(source: &str) -> String {
    let mut paths = source.split(", /");
    let first = paths.next().unwrap_or_default();
    match paths.count() {
        0 => first.to_owned(),
        more => format!("{first} and {more} more"),
    }
}

fn rail(rail: &RailReport) -> Vec<String> {
    let place = rail.i2c.map_or_else(String::new, |i2c| format!(" {i2c}"));
    let sensor = format!("{}{place} channel {}", rail.chip, rail.channel);
    let name = rail.name.clone().unwrap_or_else(|| UNKNOWN.to_owned());
    let value = |milli: Option<i64>| match milli {
        Some(milli) => format!("{:.3}", milli as f64 / 1000.0),
        None => UNKNOWN.to_owned(),
    };
    let voltage = value(rail.voltage.map(|voltage| voltage.milli()));
    let current = value(rail.current.map(|current| current.milli()));
    vec![name, sensor, voltage, current, value(rail.power.map(|power| power.milli()))]
}

fn counter(counter: &CounterReport) -> Vec<String> {
    let state = match &counter.unavailable {
        Some(cause) => format!("{UNKNOWN}: {cause}"),
        None => "can be read".to_owned(),
    };
    vec![counter.name.clone(), counter.source.clone(), state]
}

fn total(found: &Detection) -> String {
    let covers = found.total_covers.as_ref().map_or("", |covers| covers.value.as_str());
    match (&found.total_rail, covers) {
        (Some(rail), covers) => format!("total: {}. {covers}", rail.value),
        (None, "") => "total: unknown which rail measures the whole input".to_owned(),
        (None, covers) => format!("total: none. {covers}"),
    }
}

fn zone(zone: &ThermalZone) -> Vec<String> {
    let value = match (zone.temperature, &zone.unavailable) {
        (Some(temperature), _) => format!("{:.1}", temperature.to_f64()),
        (None, Some(cause)) => format!("{UNKNOWN}: {cause}"),
        (None, None) => UNKNOWN.to_owned(),
    };
    vec![zone.name.clone(), value]
}

fn listed<T: Display>(heading: &str, items: impl Iterator<Item = T>) -> String {
    let lines = items.map(|item| format!("  {item}")).collect::<Vec<_>>();
    format!("{heading}\n{}", lines.join("\n"))
}

pub(super) fn list(profiles: &[Profile]) -> String {
    let row = |profile: &Profile| {
        let performance = profile.performance.as_ref();
        vec![
            profile.name.clone(),
            profile.description.clone(),
            memory(profile),
            performance.map_or_else(dash, peak),
            performance.map_or_else(dash, power_range),
        ]
    };
    let rows = profiles.iter().map(row).collect();
    table(&["profile", "board", "memory, GB", "peak (Super)", "power (Super), W"], 2, rows)
}

fn dash() -> String {
    "-".to_owned()
}

/// Returns the sizes of memory with which the modules come: `8, 16`.
fn memory(profile: &Profile) -> String {
    let mut sizes: Vec<u32> = profile.modules.iter().map(|module| module.memory_gib).collect();
    sizes.sort_unstable();
    sizes.dedup();
    match sizes.is_empty() {
        true => dash(),
        false => sizes.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// Returns the peak rate with its unit, and that of Super modes in brackets: `40 TOPS (67)`.
fn peak(performance: &Performance) -> String {
    let Some(peak) = performance.peak else { return dash() };
    let unit =
        ["TFLOPS", "TOPS"].into_iter().find(|unit| performance.unit.contains(unit)).unwrap_or_default();
    match performance.peak_super {
        Some(higher) => format!("{peak} {unit} ({higher})"),
        None => format!("{peak} {unit}"),
    }
}

fn power_range(performance: &Performance) -> String {
    let watts = |power: Option<Watts>| power.map_or_else(dash, |power| power.to_f64().to_string());
    let range = format!("{} to {}", watts(performance.power_min), watts(performance.power_max));
    match performance.power_max_super {
        Some(higher) => format!("{range} ({})", higher.to_f64()),
        None => range,
    }
}

pub(super) fn profile(of: &Profile) -> String {
    let mut parts = vec![format!("{}: {}", of.name, of.description), facts(of)];
    if !of.modules.is_empty() {
        let row = |module: &orinoco_board::Module| {
            vec![
                module.sku.clone(),
                module.name.clone(),
                module.memory_gib.to_string(),
                module.source.clone(),
            ]
        };
        parts.push(table(
            &["part", "module", "memory, GB", "source"],
            4,
            of.modules.iter().map(row).collect(),
        ));
    }
    if !of.rails.is_empty() {
        let rows = of.rails.iter().map(profile_rail).collect();
        parts.push(table(&["rail", "sensor", "shunt, mΩ", "source"], 4, rows));
    }
    if let Some(total) = &of.total {
        let rail = total.rail.as_deref().unwrap_or("none");
        parts.push(format!("total: {rail}. {} ({})", total.covers, total.source));
    }
    if !of.thermal_zones.is_empty() {
        let rows = of.thermal_zones.iter().map(profile_zone).collect();
        parts.push(table(&["thermal zone", "trip points, °C", "source"], 3, rows));
    }
    if !of.power_modes.is_empty() {
        let rows = of.power_modes.iter().map(power_mode).collect();
        let headings = ["power mode", "table", "number", "W", "cores", "CPU, MHz", "GPU, MHz", "GPU mask"];
        let note = "The mode numbers are from NVIDIA's documentation and may differ on your board. \
                    Changing the GPU mask needs a reboot.";
        parts.push(format!("{}\n{note}", table(&headings, 2, rows)));
    }
    let sources = of.sources.iter().map(|source| format!("{}: {}", source.name, source.text));
    parts.push(listed("sources", sources));
    parts.join("\n\n")
}

/// Returns the table of what a profile has once.
fn facts(of: &Profile) -> String {
    let mut rows = vec![vec!["kind".to_owned(), of.kind.name().to_owned(), String::new()]];
    let mut add = |name: &str, value: Option<String>, source: &str| {
        let value = value.unwrap_or_else(|| UNKNOWN.to_owned());
        rows.push(vec![name.to_owned(), value, source.to_owned()]);
    };
    if let Some(soc) = &of.soc {
        let cores =
            soc.cpu_cores.map(|cores| format!("{cores} cores, {}", soc.cpu.as_deref().unwrap_or(UNKNOWN)));
        let sm = soc.sm.map_or_else(String::new, |sm| format!(", SM {}.{}", sm / 10, sm % 10));
        let cuda = soc.cuda_cores.map_or_else(String::new, |cores| format!(", {cores} CUDA cores"));
        add("SoC", Some(soc.name.clone()), &soc.source);
        add("CPU", cores, &soc.source);
        add("GPU", soc.gpu.as_ref().map(|gpu| format!("{gpu}{sm}{cuda}")), &soc.source);
        add("DLA", soc.dla.map(|dla| dla.to_string()), &soc.source);
        add("codecs", (!soc.codecs.is_empty()).then(|| soc.codecs.join(", ")), &soc.source);
    }
    if let Some(performance) = &of.performance {
        let rate = |rate: f64| format!("{rate} {}", performance.unit);
        add("peak", performance.peak.map(rate), &performance.source);
        if performance.peak_super.is_some() {
            add("peak, Super", performance.peak_super.map(rate), &performance.source);
        }
        add("power (Super)", Some(format!("{} W", power_range(performance))), &performance.source);
    }
    if of.kind == BoardKind::Jetson {
        let source = of.connections.as_ref().map_or("", |part| part.source.as_str());
        add("PCIe", of.connections.as_ref().and_then(|part| part.pcie.clone()), source);
        add("Ethernet", of.connections.as_ref().and_then(|part| part.ethernet.clone()), source);
    }
    for node in &of.devfreq {
        add("devfreq", Some(format!("{}: {}", node.unit, node.node)), &node.source);
    }
    table(&["fact", "value", "source"], 3, rows)
}

fn profile_rail(rail: &RailProfile) -> Vec<String> {
    let bus = rail.bus.map_or_else(|| "any bus".to_owned(), |bus| format!("bus {bus}"));
    let label = if rail.is_unlabelled { ", no label" } else { "" };
    let included = rail.included_in.as_ref().map_or_else(String::new, |rail| format!(", included in {rail}"));
    let (chip, address, channel) = (&rail.chip, rail.address, rail.channel);
    let sensor = format!("{chip} on {bus} at {address:#04x}, channel {channel}{label}{included}");
    let shunt = rail.shunt.map_or_else(|| UNKNOWN.to_owned(), |shunt| (shunt.to_f64() * 1000.0).to_string());
    vec![rail.name.clone(), sensor, shunt, rail.source.clone()]
}

fn profile_zone(zone: &ThermalZoneProfile) -> Vec<String> {
    let mut name = zone.name.clone();
    if !zone.other_names.is_empty() {
        name.push_str(&format!(" ({})", zone.other_names.join(", ")));
    }
    let trips: Vec<String> =
        zone.trips.iter().map(|trip| format!("{} {}", trip.kind.name(), trip.temperature.to_f64())).collect();
    let trips = if trips.is_empty() { UNKNOWN.to_owned() } else { trips.join(", ") };
    vec![name, trips, zone.source.clone()]
}

fn power_mode(mode: &PowerModeProfile) -> Vec<String> {
    let number =
        |value: Option<f64>, none: &str| value.map_or_else(|| none.to_owned(), |value| value.to_string());
    let count = |value: Option<u32>| value.map_or_else(|| UNKNOWN.to_owned(), |value| value.to_string());
    vec![
        mode.name.clone(),
        if mode.is_super { "super" } else { "standard" }.to_owned(),
        count(mode.id_hint),
        number(mode.budget.map(Watts::to_f64), "-"),
        count(mode.cpu_cores),
        number(mode.cpu_mhz, "-"),
        number(mode.gpu_mhz, "-"),
        mode.gpu_mask.map_or_else(|| UNKNOWN.to_owned(), |mask| format!("{mask:#x}")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_listed_with_memory_peak_and_power() {
        let text = anstream::adapter::strip_str(&list(orinoco_board::profiles())).to_string();
        let line =
            |name: &str| text.lines().find(|line| line.starts_with(name)).expect("it is listed").to_owned();
        let words: Vec<String> = line("orin-nano-8gb").split_whitespace().map(str::to_owned).collect();
        assert_eq!(words.join(" "), "orin-nano-8gb Jetson Orin Nano 8GB 8 40 TOPS (67) 7 to 15 (25)");
        assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
        assert!(line("xavier-nx").contains("8, 16"), "{text}");
        assert!(line("devhost").ends_with('-'), "{text}");
    }

    #[test]
    fn every_profile_can_be_shown() {
        for of in orinoco_board::profiles() {
            let text = profile(of);
            assert!(text.contains("sources\n") && text.contains("total: "), "{text}");
        }
    }

    #[test]
    fn several_sources_are_shortened() {
        assert_eq!(first_source("/proc/meminfo"), "/proc/meminfo");
        assert_eq!(first_source("/a, /b, /c"), "/a and 2 more");
    }
}
